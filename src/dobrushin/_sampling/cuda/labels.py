"""One chain to a thread, of variables with any number of states, on the GPU."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.cuda.device_kernel import BLOCK, MOST_ROWS, CountingKernel, Route
from dobrushin._shared.device import Function, cupy, launch

# Steps of a dense model whose local fields come from one product, as in labels.cu; and chains that do so together, with
# spins as doubles.
_BLOCK_STEPS, _MOST_SPINS = 32, 2**17
# Words of a block's fast memory that hold one chain: code is compiled for one of these.
_WORDS = (8, 16, 32, 64, 96)


def _compile(name: str, labels: int, state: str = "signed char", words: int = 0) -> Function:
    """A function of labels.cu, for so many labels; and for chains that so many words hold, if any."""
    options = ["-fmad=false", f"-DLABELS={labels}", f"-DSTATE={state}"]
    options += [f"-DHELD={words}", f"-DTHREADS={BLOCK}"] if words else []
    return Function(__package__, ("generator.cuh", "states.cuh", "labels.cu"), name, tuple(options))


class _Labels(CountingKernel):
    """One chain a thread."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**22
    chunk: ClassVar[int] = 10**10

    @property
    def width(self) -> Any:
        return self.host.dtype

    @property
    def rows(self) -> int:
        return self.region.size + 1

    @property
    def most_together(self) -> int:
        return self.batch if self._words else super().most_together

    @property
    def _words(self) -> int:
        """Words that hold a chain, where the fast memory is large enough; else 0."""
        bits = next((bits for bits in (1, 2, 4, 8) if self.host.largest <= 2**bits), 32)
        needed = -(-self.rows // (32 // bits))
        return next((words for words in _WORDS if needed <= words), 0)

    def _compiled(self, name: str, words: int = 0) -> Function:
        return _compile(name, self.host.largest, "signed char" if self.dtype == np.int8 else "int", words)

    def _begin(self, columns: range, keys: Any) -> Any:
        cp = cupy()
        x = cp.zeros((self.rows, len(columns)), dtype=self.dtype)
        states = cp.asarray(np.broadcast_to(self.host.sizes, self.region.size).astype(np.int32))
        ids = cp.asarray(self.region.positions)
        arguments = (ids, states, np.uint32(self.region.size), keys, x, np.uint32(len(columns)))
        launch(self._compiled("start_labels"), len(columns), BLOCK, arguments)
        return x

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        way = (route.order, np.int32(len(route.order)), np.int32(route.place), route.thresholds, np.int32(route.last))
        about = (*way, np.uint64(step), np.int32(steps), np.int32(self.rows))
        chains = x.shape[1]
        arguments = (*about, *self.tables(), keys, x, np.uint32(chains))
        words = self._words if route.last >= 0 else 0
        launch(self._compiled(f"update_{self.name}", words), chains, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return x[rows, :chains]

    def _tally(self, x: Any, rows: NDArray[np.int64], chains: int, width: int) -> Any:
        found = cupy().zeros((len(rows), width), dtype=np.uint64)
        for lo in range(0, len(rows), MOST_ROWS):
            some = cupy().asarray(rows[lo : lo + MOST_ROWS])
            size = (np.uint32(len(some)), np.uint32(x.shape[1]), np.int32(width))
            arguments = (x, some, *size, found[lo : lo + MOST_ROWS])
            launch(self._compiled("count_labels"), min(chains, 2**16), 256, arguments, len(some))
        return found

    def _add(self, tally: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        del chains
        counts += tally


class DevicePotts(_Labels):
    """`PottsLanes` on the device."""

    name: ClassVar[str] = "potts"

    def _make_tables(self) -> tuple[Any, ...]:
        cp, region = cupy(), self.region
        indices = (cp.asarray(part.astype(np.int32)) for part in (region.start, region.neighbor))
        return (*indices, cp.asarray(self.host.strength), cp.asarray(self.host.unary))


class DeviceField(_Labels):
    """`Field` on the device."""

    name: ClassVar[str] = "field"

    def _make_tables(self) -> tuple[Any, ...]:
        cp, region = cupy(), self.region
        indices = (cp.asarray(part.astype(np.int32)) for part in (region.start, region.neighbor))
        return (*indices, cp.asarray(self.host.theta), cp.asarray(self.host.fields))


class DeviceDense(_Labels):
    """`Dense` on the device."""

    name: ClassVar[str] = "dense"
    is_one_launch: ClassVar[bool] = False

    def _make_tables(self) -> tuple[Any, ...]:
        cp, host = cupy(), self.host
        columns, reach = np.ascontiguousarray(host.columns), host.reach.astype(np.int32)
        return cp.asarray(columns), cp.asarray(host.fields), cp.asarray(reach), np.int32(len(columns))

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        """Local fields of a block of steps by one product of matrices; sums are exact, so their order is free."""
        if route.last >= 0:  # each chain has its own steps
            super()._update(x, route, step, steps, keys)
            return
        columns, fields = self.tables()[:2]
        chains = x.shape[1]
        for lo in range(0, chains, _MOST_SPINS):
            some = x[:, lo : lo + _MOST_SPINS].copy()
            spins = 2.0 * some[:-1] - 1.0
            own_keys = keys[:, lo : lo + _MOST_SPINS].copy()
            for k in range(0, steps, _BLOCK_STEPS):
                block = self._block(route, k, min(_BLOCK_STEPS, steps - k))
                toward = columns[:, block]
                local = toward.T @ spins + fields[block][:, None]
                about = (block, np.int32(len(block)), np.uint64(step + k), toward[block])
                arguments = (*about, local, own_keys, spins, some, np.uint32(some.shape[1]))
                launch(self._compiled("draw_block"), some.shape[1], BLOCK, arguments)
            x[:, lo : lo + _MOST_SPINS] = some

    def _block(self, route: Route, k: int, count: int) -> Any:
        """The variables of some steps."""
        length = len(route.order)
        first = (route.place + k) % length
        block = route.order[first : first + count]
        while len(block) < count:
            block = cupy().concatenate([block, route.order[: count - len(block)]])
        return block


class DeviceTable(_Labels):
    """`Table` on the device."""

    name: ClassVar[str] = "table"
    is_one_launch: ClassVar[bool] = False  # it is for random scans, and for few chains

    def _make_tables(self) -> tuple[Any, ...]:
        cp, neighbor = cupy(), self.host.neighbor
        return cp.asarray(neighbor.astype(np.int32)), cp.asarray(self.host.threshold), np.int32(neighbor.shape[1])


class DeviceConditional(_Labels):
    """`Conditional` on the device."""

    name: ClassVar[str] = "conditional"

    def _make_tables(self) -> tuple[Any, ...]:
        cp, groups = cupy(), self.host.groups
        narrow = (self.host.states, groups.g_start, groups.m_start, groups.member)
        wide = (groups.stride, groups.first, groups.table)
        return (*(cp.asarray(part.astype(np.int32)) for part in narrow), *map(cp.asarray, wide))


class DeviceFactors(_Labels):
    """`Factors` on the device; its exponentials may differ from the CPU's in the last bit."""

    name: ClassVar[str] = "factors"

    def _make_tables(self) -> tuple[Any, ...]:
        cp, factors = cupy(), self.host.factors
        narrow = (self.host.states, *factors[:-2])
        wide = (factors.base.astype(np.int64), factors.table)
        return (*(cp.asarray(part.astype(np.int32)) for part in narrow), *map(cp.asarray, wide))
