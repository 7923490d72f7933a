"""Sets of spins, 64 runs to a thread, on the GPU. [trusted]"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dobrushin._coalescence.set_kernel import SetRunner
from dobrushin._sampling.cuda.bits import DeviceWords
from dobrushin._sampling.cuda.device_kernel import BLOCK, Route
from dobrushin._shared.device import cupy, launch


class DeviceSetBits(SetRunner, DeviceWords):
    """`SetBits` on the device."""

    name: ClassVar[str] = "set bits"

    @property
    def rows(self) -> int:
        return 2 * self.region.size + 1

    @property
    def _degree(self) -> int:
        return int(self.host.neighbor.shape[1]) // 2

    def _make_tables(self) -> tuple[Any, ...]:
        cp = cupy()
        threshold = cp.asarray(self.host.threshold)
        return cp.asarray(self.host.neighbor.astype(np.uint32)), self._choice(threshold, self._degree), threshold

    def _begin(self, columns: range, keys: Any) -> Any:
        del keys
        x = cupy().zeros((self.rows, len(columns)), dtype=np.uint64)
        x[self.region.size : 2 * self.region.size] = ~np.uint64(0)
        return x

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        cycle = (route.order, np.int32(len(route.order)), np.int32(route.place))
        about = (*cycle, np.uint64(step), np.uint64(1), np.int32(steps))
        W = x.shape[1]
        arguments = (*about, *self.tables(), np.int32(self.region.size), keys, x, np.uint32(W))
        launch(self._compiled(f"set_bits{self._degree}"), W, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        out = cupy().empty((len(rows), chains), dtype=np.int16)
        size = (np.uint32(len(rows)), np.uint32(x.shape[1]), np.uint64(chains))
        arguments = (x, np.int32(self.region.size), rows, *size, out)
        launch(self._compiled("settled_bits"), chains, 256, arguments, len(rows))
        return out
