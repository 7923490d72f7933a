"""GPU kernels, which give the same draws as the kernel of the same name on the CPU, and their base classes.

States have shape (rows, columns) as on the CPU, and a column is one chain or 64 chains. If the states do not fit into
the memory of the GPU, they stay in the memory of the host, and some columns at a time are copied to the GPU.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.kernel import Batches, Runner, Work
from dobrushin._shared.device import Function, cupy, free_memory, launch

# Threads of a block: see bits.cu.
BLOCK = 128
# Share of the free memory for the states of a batch: another batch may be under way.
MEMORY_SHARE = 0.4
# Largest number of steps of one launch: the watchdog of a display ends longer launches.
MAX_LAUNCH_STEPS = 2**17
# Chains of random steps that run together: each chain reads other variables, and the cache holds this number of chains.
MAX_RUNS_TOGETHER = 2**16
# Largest number of blocks in the second dimension of a grid.
MAX_GRID_ROWS = 65535


class Route(NamedTuple):
    """The variables to update, in arrays on the GPU: those of a cycle, or variables that each chain draws at random.

    Attributes
    ----------
    order : array
        Variables of the cycle, by number in the region; for random steps, the number in the region of each position.
    place : int
        Place in the cycle of the first step.
    thresholds : array or 0
        2^64 times the partial sums of the probabilities; 0 for equal probabilities.
    last : int
        Last variable with a positive probability; -1 for a cycle.
    """

    order: Any
    place: int
    thresholds: Any = np.uint64(0)
    last: int = -1

    def after(self, steps: int) -> Route:
        """Return the route without its first `steps` steps."""
        return self._replace(place=(self.place + steps) % len(self.order))


class States:
    """Array of states in the memory of the GPU."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def copy(self) -> NDArray[Any]:
        """Return a copy in the memory of the host; a run can also continue from such a copy."""
        copied: NDArray[Any] = self.array.get()
        return copied


@dataclass(eq=False)
class DeviceKernel(Runner):
    """Base class of GPU kernels, each with the same draws as the CPU kernel `host`."""

    host: Any
    arranged: dict[int, tuple[Any, ...]] = field(default_factory=dict, compare=False)  # tables, by device
    workers: ClassVar[int] = 1  # one thread keeps the GPU busy
    chunk: ClassVar[int]  # largest number of updates between two checks of whether to stop
    width: ClassVar[Any]  # type of a state

    def __post_init__(self) -> None:
        self.region, self.error = self.host.region, self.host.error

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name of the CPU kernel."""
        return str(self.host.name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "arranged": {}}

    @property
    def dtype(self) -> Any:
        return self.host.dtype

    @property
    def rows(self) -> int:
        return self.region.size + 1

    @property
    def most_together(self) -> int:
        """Return the largest number of columns (chains or words of 64) that run random steps in one launch."""
        return MAX_RUNS_TOGETHER

    @abstractmethod
    def _compiled(self, name: str) -> Function:
        """Return a function of the kernel's CUDA source file, compiled."""

    @abstractmethod
    def _begin(self, columns: range, keys: Any) -> Any:
        """Return the initial states of some columns as an array on the GPU."""

    @abstractmethod
    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        """Return the states of some rows as an array on the GPU."""

    def _make_tables(self) -> tuple[Any, ...]:
        """Copy the kernel's tables to the GPU, in the order of the CUDA function's arguments."""
        return tuple(
            cupy().asarray(part) if isinstance(part, np.ndarray) else part for part in self.host.device_tables()
        )

    def _way(self, route: Route, step: int, steps: int) -> tuple[Any, ...]:
        """Return the arguments of the CUDA function that come before its tables."""
        cycle = (route.order, np.int32(len(route.order)), np.int32(route.place))
        return *cycle, np.uint64(step), np.int32(steps)

    def _loop(self, route: Route, columns: int) -> tuple[Function, int]:
        """Return the CUDA function that runs the steps of a route, and the number of its threads."""
        return self._compiled(self.host.device_loop), columns

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        """Run `steps` steps of a route in all columns."""
        arguments = (*self._way(route, step, steps), *self.tables(), keys, x, np.uint32(x.shape[1]))
        function, threads = self._loop(route, x.shape[1])
        launch(function, threads, BLOCK, arguments)

    def _unpack(self, name: str, x: Any, rows: Any, chains: int, *about: Any) -> Any:
        """Return the states of some rows, unpacked by the CUDA function `name`; `about` are its further arguments."""
        out = cupy().empty((len(rows), chains), dtype=self.dtype)
        arguments = (x, *about, rows, np.uint32(len(rows)), np.uint32(x.shape[1]), np.uint64(chains), out)
        launch(self._compiled(name), chains, 256, arguments, len(rows))
        return out

    def batches(self, numbers: range, cores: int) -> Batches:
        """Return batches of equal size that fit into the free memory of the GPU."""
        bytes_of_column = self.rows * np.dtype(self.width).itemsize + 16
        fit = max(1, int(MEMORY_SHARE * free_memory() / bytes_of_column)) * self.lanes
        count = -(-len(numbers) // min(self.batch, fit))
        size = -(-len(numbers) // count // 64) * 64
        return Batches(numbers, size)

    def look(self, chains: int) -> int:
        """Return how many steps to run, for some tenths of a second, between two checks of whether to stop."""
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

        in_parts(len(columns), fill)
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

        def part(lo: int, hi: int) -> None:
            some = cupy().asarray(x[:, lo:hi])
            advance(some, columns[lo:hi])
            x[:, lo:hi] = some.get()

        most = self.most_together
        if not isinstance(x, States):
            in_parts(x.shape[1], part)
        elif work.segment.is_random and len(columns) > most:
            for lo in range(0, len(columns), most):
                few = x.array[:, lo : lo + most].copy()
                advance(few, columns[lo : lo + most])
                x.array[:, lo : lo + most] = few
        else:  # only the keys need more memory, which was free when the states were made
            advance(x.array, columns)

    def _route(self, work: Work) -> Route:
        cp = cupy()
        if not work.segment.is_random:
            order, place = work.order_in(self.region)
            return Route(cp.asarray(order), place)
        n, thresholds, last = work.choices()
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
            in_parts(hi - lo, lambda a, b, lo=lo: part(lo + a, lo + b))  # type: ignore[misc]
        return out

    def tables(self) -> tuple[Any, ...]:
        """Return the kernel's tables on the current GPU; the first call copies them there."""
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
    """Base class of GPU kernels that also count states on the GPU."""

    @abstractmethod
    def _tally(self, x: Any, rows: NDArray[np.int64], chains: int, width: int) -> Any:
        """Count the states of some rows, with up to `width` states each, on the GPU.

        Return an array of shape (rows, width), or of shape (rows,) with the counts of state 1 of binary variables.
        """

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        if isinstance(x, States):
            add_tally(self._tally(x.array, rows, chains, counts.shape[1]).get(), chains, counts)
        else:
            self.host.count(x, rows, chains, counts)


def add_tally(tally: NDArray[np.uint64], chains: int, counts: NDArray[np.int64]) -> None:
    """Add counts from the GPU, over `chains` chains, to the array counts[row, state]."""
    found = tally.astype(np.int64)
    counts += found if found.ndim == 2 else np.stack([chains - found, found], axis=1)


def out_of_memory() -> type[Exception]:
    """Return the exception that CuPy raises when the memory of the GPU is used up."""
    error: type[Exception] = cupy().cuda.memory.OutOfMemoryError
    return error


def in_parts(columns: int, act: Callable[[int, int], None]) -> None:
    """Call `act` for ranges that cover all columns, halving the ranges whenever the GPU runs out of memory."""
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


# -- 64 chains of binary variables in a thread, or one chain of variables with any number of states --------------------

# Bits of thresholds that all chains compare: see bits.cu.
PLANES = 12
# Steps of a dense model whose local fields come from one product of matrices, as in labels.cu, and chains in a product.
BLOCK_STEPS, MAX_DENSE_CHAINS = 32, 2**17
# Chains of a thread on a cycle, by loop, for few labels and many chains: measured. A thread reads as far beyond a row
# as its last chain is from its first, which must be less than a row is long.
LANES, MAX_LANES_LABELS, MIN_LANES_CHAINS = {"update_field": 4, "update_potts": 2}, 8, 2**18
# Words of shared memory that hold one chain: code is compiled for one of these numbers.
HELD_WORDS = (8, 16, 32, 64, 96)


class DeviceWords(DeviceKernel):
    """Base class of GPU kernels that pack 64 chains, or 64 runs of bounding sets, into each 64-bit word."""

    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 2**24
    chunk: ClassVar[int] = 10**11
    width: ClassVar[Any] = np.uint64

    def _compiled(self, name: str) -> Function:
        options = (f"-DPLANES={PLANES}", f"-DBLOCK={BLOCK}")
        return Function(__package__, ("generator.cuh", "bits.cu"), name, options)

    def _make_tables(self) -> tuple[Any, ...]:
        """Copy the tables to the GPU, with each bit of the thresholds as a Boolean function of the neighbours."""
        cp, tables = cupy(), []
        for part in self.host.device_tables():
            table = cp.asarray(part) if isinstance(part, np.ndarray) else part
            if part is self.host.threshold:
                n, cells = part.shape
                choice = cp.empty((n, PLANES, cells // 4), dtype=np.uint32)
                arguments = (table, np.uint32(n), np.int32(cells.bit_length() - 1), choice)
                launch(self._compiled("choose"), choice.size, 256, arguments)
                tables.append(choice)
            tables.append(table)
        return tuple(tables)


class DeviceBits(DeviceWords, CountingKernel):
    """The kernels of class `WordKernel` on the GPU."""

    def _begin(self, columns: range, keys: Any) -> Any:
        cp = cupy()
        x = cp.zeros((self.rows, len(columns)), dtype=np.uint64)
        arguments = (cp.asarray(self.region.positions), np.uint32(self.region.size), keys, x, np.uint32(len(columns)))
        launch(self._compiled("start_bits"), len(columns), BLOCK, arguments)
        return x

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return self._unpack("unpack", x, rows, chains)

    def _tally(self, x: Any, rows: NDArray[np.int64], chains: int, width: int) -> Any:
        found = cupy().zeros(len(rows), dtype=np.uint64)
        size = (np.uint32(len(rows)), np.uint32(x.shape[1]), np.uint64(chains))
        launch(self._compiled("count_bits"), 256 * len(rows), 256, (x, cupy().asarray(rows), *size, found))
        return found


class DeviceLabels(CountingKernel):
    """The kernels of class `ArrayKernel` on the GPU, with one chain in each thread."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**22
    chunk: ClassVar[int] = 10**10

    @property
    def width(self) -> Any:
        return self.host.dtype

    @property
    def most_together(self) -> int:
        return self.batch if self._words else super().most_together

    @property
    def _words(self) -> int:
        """Return how many words of shared memory hold a chain; 0 if a chain does not fit."""
        bits = next((bits for bits in (1, 2, 4, 8) if self.host.largest <= 2**bits), 32)
        needed = -(-self.rows // (32 // bits))
        return next((words for words in HELD_WORDS if needed <= words), 0)

    def _compiled(self, name: str, words: int = 0, lanes: int = 1) -> Function:
        """Return a CUDA function compiled for the model's number of states.

        Each thread has `lanes` chains, each of them in `words` words of shared memory.
        """
        state = "signed char" if self.dtype == np.int8 else "int"
        options = ["-fmad=false", f"-DLABELS={self.host.largest}", f"-DSTATE={state}", f"-DTHREADS={BLOCK}"]
        options += [f"-DHELD={words}"] if words else []
        options += [f"-DLANES={lanes}"] if lanes > 1 else []
        return Function(__package__, ("generator.cuh", "states.cuh", "labels.cu"), name, tuple(options))

    def _begin(self, columns: range, keys: Any) -> Any:
        cp = cupy()
        x = cp.zeros((self.rows, len(columns)), dtype=self.dtype)
        states = cp.asarray(np.broadcast_to(self.host.sizes, self.region.size).astype(np.int32))
        ids = cp.asarray(self.region.positions)
        arguments = (ids, states, np.uint32(self.region.size), keys, x, np.uint32(len(columns)))
        launch(self._compiled("start_labels"), len(columns), BLOCK, arguments)
        return x

    def _way(self, route: Route, step: int, steps: int) -> tuple[Any, ...]:
        cycle = (route.order, np.int32(len(route.order)), np.int32(route.place))
        drawn = (route.thresholds, np.int32(route.last))
        return *cycle, *drawn, np.uint64(step), np.int32(steps), np.int32(self.rows)

    def _loop(self, route: Route, columns: int) -> tuple[Function, int]:
        loop, is_random, lanes = self.host.device_loop, route.last >= 0, 1
        if not is_random and columns >= MIN_LANES_CHAINS and self.host.largest <= MAX_LANES_LABELS:
            lanes = LANES.get(loop, 1)
        return self._compiled(loop, self._words if is_random else 0, lanes), BLOCK * -(-columns // (BLOCK * lanes))

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return x[rows, :chains]

    def _tally(self, x: Any, rows: NDArray[np.int64], chains: int, width: int) -> Any:
        found = cupy().zeros((len(rows), width), dtype=np.uint64)
        for lo in range(0, len(rows), MAX_GRID_ROWS):
            some = cupy().asarray(rows[lo : lo + MAX_GRID_ROWS])
            size = (np.uint32(len(some)), np.uint32(x.shape[1]), np.int32(width))
            arguments = (x, some, *size, found[lo : lo + MAX_GRID_ROWS])
            launch(self._compiled("count_labels"), min(chains, 2**16), 256, arguments, len(some))
        return found


class DeviceDense(DeviceLabels):
    """The kernel `DenseKernel` on the GPU.

    The local fields for a block of steps are one matrix product, whose sums are exact in any order of summation.
    """

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        if route.last >= 0:  # each chain has its own steps
            super()._update(x, route, step, steps, keys)
            return
        columns, fields = self.tables()[:2]
        chains = x.shape[1]
        for lo in range(0, chains, MAX_DENSE_CHAINS):
            some = x[:, lo : lo + MAX_DENSE_CHAINS].copy()
            spins = 2.0 * some[:-1] - 1.0
            own_keys = keys[:, lo : lo + MAX_DENSE_CHAINS].copy()
            for k in range(0, steps, BLOCK_STEPS):
                block = self._block(route, k, min(BLOCK_STEPS, steps - k))
                toward = columns[:, block]
                local = toward.T @ spins + fields[block][:, None]
                about = (block, np.int32(len(block)), np.uint64(step + k), toward[block])
                arguments = (*about, local, own_keys, spins, some, np.uint32(some.shape[1]))
                launch(self._compiled("draw_block"), some.shape[1], BLOCK, arguments)
            x[:, lo : lo + MAX_DENSE_CHAINS] = some

    def _block(self, route: Route, k: int, count: int) -> Any:
        """Return the variables that the `count` steps from step `k` on update, in the order of a route."""
        length = len(route.order)
        first = (route.place + k) % length
        block = route.order[first : first + count]
        while len(block) < count:
            block = cupy().concatenate([block, route.order[: count - len(block)]])
        return block
