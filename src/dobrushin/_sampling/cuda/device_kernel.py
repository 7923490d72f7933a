"""Kernels whose states are on the GPU: each makes the draws of the kernel of the same name on the CPU.

Their states are (rows, columns), a column being a chain or 64 chains, as on the CPU. Where they do not fit on
the device, the host holds them and some columns at a time are taken there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.array_kernel import choices_of
from dobrushin._sampling.kernel import Batches, Runner, Work
from dobrushin._shared.device import Function, cupy, free_memory, launch

# Threads of a block: see bits.cu.
BLOCK = 128
# Share of the free memory that the states of a batch may take: another batch may be on its way.
MEMORY_SHARE = 0.4
# Steps of one launch at most, so that none lasts longer than a display's watchdog allows.
MAX_LAUNCH_STEPS = 2**17
# Chains that draw their steps by themselves look at other variables each. This number of chains stays in the cache.
MAX_RUNS_TOGETHER = 2**16
# Blocks in the second dimension of a grid.
MAX_GRID_ROWS = 65535


class Route(NamedTuple):
    """Which variables are updated, on the device: those of a cycle, from a place on, or some that each chain draws.

    Attributes
    ----------
    order : array
        Own numbers of the variables of the cycle; where they are drawn, of all positions.
    place : int
        Where in the cycle to begin.
    thresholds : array or 0
        2^64 times the partial sums of the probabilities; 0 where all are the same.
    last : int
        The last variable that can be drawn; -1 for a cycle.
    """

    order: Any
    place: int
    thresholds: Any = np.uint64(0)
    last: int = -1

    def after(self, steps: int) -> Route:
        """Return the route from a later step on."""
        return self._replace(place=(self.place + steps) % len(self.order))


class States:
    """States on the device."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def copy(self) -> NDArray[Any]:
        """Return a copy that the host holds, from which a run can continue too."""
        copied: NDArray[Any] = self.array.get()
        return copied


@dataclass(eq=False)
class DeviceKernel(Runner):
    """A kernel on the device, that makes the draws of one on the host."""

    host: Any
    arranged: dict[int, tuple[Any, ...]] = field(default_factory=dict, compare=False)  # tables, by device
    workers: ClassVar[int] = 1  # threads that batches are handed to: the device is busy with one
    chunk: ClassVar[int]  # updates between looks at whether to stop, at most
    width: ClassVar[Any]  # type of a state

    def __post_init__(self) -> None:
        self.region, self.error = self.host.region, self.host.error

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the kernel on the host, whose draws these are."""
        return str(self.host.name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "arranged": {}}

    @property
    def dtype(self) -> Any:
        return self.host.dtype

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of the array of states."""

    @property
    def most_together(self) -> int:
        """Columns that go through steps of their own at a time."""
        return MAX_RUNS_TOGETHER

    @abstractmethod
    def _compiled(self, name: str) -> Function:
        """Return a function of the source file that the kernel is in."""

    @abstractmethod
    def _begin(self, columns: range, keys: Any) -> Any:
        """Return initial states of some columns, on the device."""

    @abstractmethod
    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        """Return the states of some rows, on the device."""

    def _make_tables(self) -> tuple[Any, ...]:
        """Return the tables of the host's kernel on the device, in the order in which its loop takes them."""
        return tuple(
            cupy().asarray(part) if isinstance(part, np.ndarray) else part for part in self.host.device_tables()
        )

    def _way(self, route: Route, step: int, steps: int) -> tuple[Any, ...]:
        """Return what a loop takes before its tables."""
        cycle = (route.order, np.int32(len(route.order)), np.int32(route.place))
        return *cycle, np.uint64(step), np.int32(steps)

    def _loop(self, route: Route) -> Function:
        """Return the function that goes through a route."""
        return self._compiled(self.host.device_loop)

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        """Take all columns through some steps."""
        arguments = (*self._way(route, step, steps), *self.tables(), keys, x, np.uint32(x.shape[1]))
        launch(self._loop(route), x.shape[1], BLOCK, arguments)

    def _unpack(self, name: str, x: Any, rows: Any, chains: int, *about: Any) -> Any:
        """Return states of some rows by a function that unpacks them, with the arguments it takes after the states."""
        out = cupy().empty((len(rows), chains), dtype=self.dtype)
        arguments = (x, *about, rows, np.uint32(len(rows)), np.uint32(x.shape[1]), np.uint64(chains), out)
        launch(self._compiled(name), chains, 256, arguments, len(rows))
        return out

    def batches(self, numbers: range, cores: int) -> Batches:
        """Return chains that are run together: batches of one size that fit the memory there is."""
        bytes_of_column = self.rows * np.dtype(self.width).itemsize + 16
        fit = max(1, int(MEMORY_SHARE * free_memory() / bytes_of_column)) * self.lanes
        count = -(-len(numbers) // min(self.batch, fit))
        size = -(-len(numbers) // count // 64) * 64
        return Batches(numbers, size)

    def look(self, chains: int) -> int:
        """Return the steps of some chains between looks at whether to stop: some tenths of a second at most."""
        return max(1, min(MAX_LAUNCH_STEPS, self.chunk // chains))

    def start(self, master: NDArray[np.uint64], chains: range) -> Any:
        columns = self._columns(chains)

        def begin(some: range) -> Any:
            return self._begin(some, self._keys(master, some))

        try:
            return States(begin(columns))
        except out_of_memory():
            x = np.empty((self.rows, len(columns)), dtype=self.width)

        def fill(lo: int, hi: int) -> None:
            x[:, lo:hi] = begin(columns[lo:hi]).get()

        _in_parts(len(columns), fill)
        return x

    def load(self, states: NDArray[np.int64]) -> Any:
        x = self.host.load(states)
        try:
            return States(cupy().asarray(x))
        except out_of_memory():
            return x

    def run(self, x: Any, work: Work) -> None:
        route = self._route(work)
        columns = self._columns(work.chains)

        def advance(some: Any, which: range) -> None:
            keys = self._keys(work.master, which)
            for lo in range(work.lo, work.hi, MAX_LAUNCH_STEPS):
                done, steps = lo - work.lo, min(MAX_LAUNCH_STEPS, work.hi - lo)
                self._update(some, route.after(done), work.step + done, steps, keys)
            cupy().cuda.get_current_stream().synchronize()

        most = self.most_together
        if isinstance(x, States) and work.segment.is_random and len(columns) > most:
            for lo in range(0, len(columns), most):
                few = x.array[:, lo : lo + most].copy()
                advance(few, columns[lo : lo + most])
                x.array[:, lo : lo + most] = few
            return
        if isinstance(x, States):
            # Memory for keys alone: it was there at the start.
            advance(x.array, columns)
            return

        def part(lo: int, hi: int) -> None:
            some = cupy().asarray(x[:, lo:hi])
            advance(some, columns[lo:hi])
            x[:, lo:hi] = some.get()

        _in_parts(x.shape[1], part)

    def _route(self, work: Work) -> Route:
        cp = cupy()
        if not work.segment.is_random:
            order, place = work.order_in(self.region)
            return Route(cp.asarray(order), place)
        n, thresholds, last = choices_of(work.segment)
        own = np.zeros(n, dtype=np.int32)
        own[self.region.positions] = np.arange(self.region.size)
        return Route(cp.asarray(own), 0, cp.asarray(thresholds) if len(thresholds) else np.uint64(0), last)

    def read(self, x: Any, rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        if not isinstance(x, States):
            read: NDArray[Any] = self.host.read(x, rows, chains)
            return read
        out = np.empty((len(rows), chains), dtype=self.dtype)

        def part(lo: int, hi: int) -> None:
            self._read(x.array, cupy().asarray(rows[lo:hi]), chains).get(out=out[lo:hi])

        for lo in range(0, len(rows), MAX_GRID_ROWS):
            hi = min(lo + MAX_GRID_ROWS, len(rows))
            _in_parts(hi - lo, lambda a, b, lo=lo: part(lo + a, lo + b))  # type: ignore[misc]
        return out

    def tables(self) -> tuple[Any, ...]:
        """Return the tables of the kernel on the current device; they are made once."""
        device = cupy().cuda.runtime.getDevice()
        if device not in self.arranged:
            try:
                self.arranged[device] = self._make_tables()
            except out_of_memory() as error:
                raise MemoryError(f"The GPU cannot hold the tables of this model: use backend='cpu'. {error}") from None
        return self.arranged[device]

    def _columns(self, chains: range) -> range:
        return range(chains.start // self.lanes, (chains.stop - 1) // self.lanes + 1)

    def _keys(self, master: NDArray[np.uint64], columns: range) -> Any:
        keys = cupy().empty((2, len(columns)), dtype=np.uint64)
        arguments = (master[0], master[1], np.uint64(columns.start), np.uint32(len(columns)), keys)
        launch(self._compiled("streams"), len(columns), BLOCK, arguments)
        return keys


class CountingKernel(DeviceKernel):
    """A kernel that counts states on the device."""

    @abstractmethod
    def _tally(self, x: Any, rows: NDArray[np.int64], chains: int, width: int) -> Any:
        """Return what `_add` needs, on the device: counts of some rows, whose variables have up to `width` states."""

    @abstractmethod
    def _add(self, tally: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        """Add a tally to counts[row, state]."""

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        if isinstance(x, States):
            self._add(self._tally(x.array, rows, chains, counts.shape[1]).get().astype(np.int64), chains, counts)
        else:
            self.host.count(x, rows, chains, counts)


def out_of_memory() -> type[Exception]:
    """Return what CuPy raises when the memory of the device is used up."""
    error: type[Exception] = cupy().cuda.memory.OutOfMemoryError
    return error


def _in_parts(columns: int, act: Callable[[int, int], None]) -> None:
    """Call `act` on all columns, in as few parts as the device's memory allows."""
    size, lo = columns, 0
    while lo < columns:
        try:
            act(lo, min(lo + size, columns))
        except out_of_memory():
            cupy().get_default_memory_pool().free_all_blocks()
            if size <= 1:
                raise
            size = -(-size // 2)
        else:
            lo += size
