"""Sets of labels of Potts models on the GPU, one run to a thread."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dobrushin._sampling.cuda.device_kernel import BLOCK, DeviceKernel, Route
from dobrushin._sampling.cuda.labels import compiled
from dobrushin._shared.device import cupy, launch


class DeviceSetLabels(DeviceKernel):
    """`SetLabels` on the device."""

    name: ClassVar[str] = "set labels"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**20
    chunk: ClassVar[int] = 10**9
    width: ClassVar[Any] = np.uint8

    @property
    def _labels(self) -> int:
        return int(self.host.unary.shape[1])

    @property
    def rows(self) -> int:
        return self.region.size * (self._labels + 1)

    def _compiled(self, name: str) -> Any:
        return compiled(name, self._labels)

    def _make_tables(self) -> tuple[Any, ...]:
        cp, region = cupy(), self.region
        indices = (cp.asarray(part.astype(np.int32)) for part in (region.start, region.neighbor))
        return (*indices, cp.asarray(self.host.delay), cp.asarray(self.host.unary), np.int32(region.size))

    def _begin(self, columns: range, keys: Any) -> Any:
        del keys
        x = cupy().zeros((self.rows, len(columns)), dtype=np.uint8)
        x[: self.region.size * self._labels] = 1
        return x

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        cycle = (route.order, np.int32(len(route.order)), np.int32(route.place))
        runs = x.shape[1]
        arguments = (*cycle, np.uint64(step), np.int32(steps), *self.tables(), keys, x, np.uint32(runs))
        launch(self._compiled("set_labels"), runs, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        out = cupy().empty((len(rows), chains), dtype=np.int16)
        arguments = (x, rows, np.uint32(x.shape[1]), np.uint64(chains), out)
        launch(self._compiled("settled_labels"), chains, 256, arguments, len(rows))
        return out
