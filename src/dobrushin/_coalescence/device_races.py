"""Sets of labels on the GPU, one run to a thread."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dobrushin._coalescence.set_kernel import SetRunner
from dobrushin._sampling.cuda import races
from dobrushin._sampling.cuda.device_kernel import BLOCK, DeviceKernel, Route
from dobrushin._shared.device import cupy, launch


class _Races(SetRunner, DeviceKernel):
    """What races of labels share."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**20
    settled: ClassVar[str]  # the function that reads settled labels

    def _compiled(self, name: str) -> Any:
        return races.compiled(name, self.host.largest)

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        cycle = (route.order, np.int32(len(route.order)), np.int32(route.place))
        runs = x.shape[1]
        arguments = (*cycle, np.uint64(step), np.int32(steps), *self.tables(), keys, x, np.uint32(runs))
        launch(self._compiled(self.name.replace(" ", "_")), runs, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        out = cupy().empty((len(rows), chains), dtype=np.int16)
        arguments = (x, rows, np.uint32(len(rows)), np.uint32(x.shape[1]), np.uint64(chains), out)
        launch(self._compiled(self.settled), chains, 256, arguments, len(rows))
        return out


class DeviceSetLabels(_Races):
    """`SetLabels` on the device: a row of flags for each label of each variable."""

    name: ClassVar[str] = "set labels"
    settled: ClassVar[str] = "settled_labels"
    width: ClassVar[Any] = np.uint8
    chunk: ClassVar[int] = 10**9

    @property
    def rows(self) -> int:
        return self.region.size * (self.host.largest + 1)

    def _begin(self, columns: range, keys: Any) -> Any:
        del keys
        x = cupy().zeros((self.rows, len(columns)), dtype=np.uint8)
        x[: self.region.size * self.host.largest] = 1
        return x

    def _make_tables(self) -> tuple[Any, ...]:
        cp, region = cupy(), self.region
        indices = (cp.asarray(part.astype(np.int32)) for part in (region.start, region.neighbor))
        return (*indices, cp.asarray(self.host.delay), cp.asarray(self.host.unary), np.int32(region.size))


class DeviceSetRace(_Races):
    """`SetRace` on the device: a bit for each label of a variable, in rows of 32."""

    name: ClassVar[str] = "set race"
    settled: ClassVar[str] = "settled_sets"
    width: ClassVar[Any] = np.uint32
    chunk: ClassVar[int] = 10**8

    @property
    def words(self) -> int:
        """How many rows a variable has."""
        return int(-(-self.host.largest // 32))

    @property
    def rows(self) -> int:
        return self.region.size * self.words

    def _begin(self, columns: range, keys: Any) -> Any:
        del keys
        inside = np.clip(self.host.states[:, None] - 32 * np.arange(self.words), 0, 32)
        full = ((1 << inside) - 1).astype(np.uint32).reshape(-1, 1)
        return cupy().asarray(full) + cupy().zeros((self.rows, len(columns)), dtype=np.uint32)

    def _compiled(self, name: str) -> Any:
        return races.compiled(name, self.host.largest, max(1, int(np.diff(self.host.factors.m_start).max(initial=0))))

    def _make_tables(self) -> tuple[Any, ...]:
        cp, factors = cupy(), self.host.factors
        narrow = (cp.asarray(part.astype(np.int32)) for part in (self.host.states, *factors[:3]))
        wide = (cp.asarray(part.astype(np.int64)) for part in factors[3:-1])
        return (np.int32(self.host.largest), *narrow, *wide, cp.asarray(factors.table))
