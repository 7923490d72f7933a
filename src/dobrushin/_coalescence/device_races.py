"""Sets of labels on the GPU, one run to a thread."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.cuda import races
from dobrushin._sampling.cuda.device_kernel import BLOCK, DeviceKernel, Route
from dobrushin._shared.arrays import prefix_sums
from dobrushin._shared.device import cupy, launch


class _Races(DeviceKernel):
    """What races of labels share: a row of flags for each label of each variable."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**20
    width: ClassVar[Any] = np.uint8

    @property
    def _states(self) -> NDArray[np.int64]:
        """How many labels each variable has."""
        raise NotImplementedError

    def _sets(self) -> tuple[Any, Any]:
        """On the device: the row of the first label of each variable, and how many it has."""
        first = prefix_sums(self._states)[:-1]
        return cupy().asarray(first.astype(np.int32)), cupy().asarray(self._states.astype(np.int32))

    def _compiled(self, name: str) -> Any:
        return races.compiled(name, self.host.largest)

    def _begin(self, columns: range, keys: Any) -> Any:
        del keys
        x = cupy().zeros((self.rows, len(columns)), dtype=np.uint8)
        x[: int(self._states.sum())] = 1
        return x

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        cycle = (route.order, np.int32(len(route.order)), np.int32(route.place))
        runs = x.shape[1]
        arguments = (*cycle, np.uint64(step), np.int32(steps), *self.tables()[2:], keys, x, np.uint32(runs))
        launch(self._compiled(self.name.replace(" ", "_")), runs, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        out = cupy().empty((len(rows), chains), dtype=np.int16)
        arguments = (x, rows, *self.tables()[:2], np.uint32(x.shape[1]), np.uint64(chains), out)
        launch(self._compiled("settled_labels"), chains, 256, arguments, len(rows))
        return out


class DeviceSetLabels(_Races):
    """`SetLabels` on the device."""

    name: ClassVar[str] = "set labels"
    chunk: ClassVar[int] = 10**9

    @property
    def _states(self) -> NDArray[np.int64]:
        return np.full(self.region.size, self.host.largest)

    @property
    def rows(self) -> int:
        return self.region.size * (self.host.largest + 1)

    def _make_tables(self) -> tuple[Any, ...]:
        cp, region = cupy(), self.region
        indices = (cp.asarray(part.astype(np.int32)) for part in (region.start, region.neighbor))
        about = (*indices, cp.asarray(self.host.delay), cp.asarray(self.host.unary), np.int32(region.size))
        return (*self._sets(), *about)


class DeviceSetRace(_Races):
    """`SetRace` on the device."""

    name: ClassVar[str] = "set race"
    chunk: ClassVar[int] = 10**8

    @property
    def _states(self) -> NDArray[np.int64]:
        states: NDArray[np.int64] = self.host.states
        return states

    @property
    def rows(self) -> int:
        return int(self._states.sum())

    def _compiled(self, name: str) -> Any:
        return races.compiled(name, self.host.largest, max(1, int(np.diff(self.host.factors.m_start).max(initial=0))))

    def _make_tables(self) -> tuple[Any, ...]:
        cp, factors, (first, states) = cupy(), self.host.factors, self._sets()
        narrow = (cp.asarray(part.astype(np.int32)) for part in factors[:3])
        wide = (cp.asarray(part.astype(np.int64)) for part in factors[3:-1])
        about = (np.int32(self.host.largest), states, first, *narrow, *wide, cp.asarray(factors.table))
        return (first, states, *about)
