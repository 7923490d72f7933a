"""Kernels whose states are on the GPU: each makes the draws of the kernel of the same name on the CPU.

Their states are (rows, columns), a column being a chain or a word of 64 chains, as on the CPU. Where they do not fit on
the device, the host holds them and some columns at a time are taken there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.kernels import SetBits, SetKernel
from dobrushin._sampling.cuda.device import cupy, free_memory, function, is_available, launch
from dobrushin._sampling.kernels import Bits, Factors, Kernel, PottsLanes, Work, cycle_of
from dobrushin._scan import Scan
from dobrushin.errors import ArgumentError

# Bits of thresholds that all chains look at, and threads of a block: see bits.cu.
PLANES, BLOCK = 12, 128
# Share of the free memory that the states of a batch may take: another batch may be on its way.
SHARE = 0.4
# Steps of one launch at most, so that none lasts longer than a display's watchdog allows.
MOST_STEPS = 2**17
# A device pays from so many chains and updates on: it is filled, and its start is worth it.
MANY_CHAINS, MANY_UPDATES = 2**16, 10**10
# Blocks in the second dimension of a grid.
MOST_ROWS = 65535


class States:
    """States on the device."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def copy(self) -> NDArray[Any]:
        """A copy that the host holds, from which a run can go on too."""
        copied: NDArray[Any] = self.array.get()
        return copied


@dataclass(eq=False)
class DeviceKernel(Kernel):
    """What kernels on the device share."""

    host: Any
    arranged: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # tables, by device
    workers: ClassVar[int] = 1  # threads that batches are handed to: the device is busy with one
    chunk: ClassVar[int]  # updates between looks at whether to stop, at most
    width: ClassVar[Any]  # type of a state

    def __post_init__(self) -> None:
        self.region, self.error = self.host.region, self.host.error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "arranged": {}}

    @property
    def dtype(self) -> Any:
        return self.host.dtype

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of the array of states."""

    @abstractmethod
    def _compiled(self, name: str) -> Any:
        """A function of the source file that the kernel is in."""

    @abstractmethod
    def _make_tables(self) -> tuple[Any, ...]:
        """What the kernel is about, on the device."""

    @abstractmethod
    def _begin(self, columns: range, keys: Any) -> Any:
        """Initial states of some columns, on the device."""

    @abstractmethod
    def _update(self, x: Any, order: Any, place: int, step: int, steps: int, keys: Any) -> None:
        """Take all columns through some steps."""

    @abstractmethod
    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        """States of some rows, on the device."""

    def batches(self, numbers: range) -> list[range]:
        """Ranges of chains that are run together: as even as can be, and small enough for the memory there is."""
        bytes_of_column = self.rows * np.dtype(self.width).itemsize + 16
        fit = max(1, int(SHARE * free_memory() / bytes_of_column)) * self.lanes
        count = -(-len(numbers) // min(self.batch, fit))
        size = -(-len(numbers) // count // 64) * 64
        return [range(lo, min(lo + size, numbers.stop)) for lo in range(numbers.start, numbers.stop, size)]

    def look(self, chains: int) -> int:
        """Steps of so many chains between looks at whether to stop: some tenths of a second at most."""
        return max(1, min(MOST_STEPS, self.chunk // chains))

    def start(self, master: NDArray[np.uint64], chains: range) -> Any:
        columns = self._columns(chains)

        def begin(some: range) -> Any:
            return self._begin(some, self._keys(master, some))

        try:
            return States(begin(columns))
        except _out_of_memory():
            x = np.empty((self.rows, len(columns)), dtype=self.width)

        def fill(lo: int, hi: int) -> None:
            x[:, lo:hi] = begin(columns[lo:hi]).get()

        _in_parts(len(columns), fill)
        return x

    def load(self, states: NDArray[np.int64]) -> Any:
        x = self.host.load(states)
        try:
            return States(cupy().asarray(x))
        except _out_of_memory():
            return x

    def run(self, x: Any, work: Work) -> None:
        order, place = cycle_of(work, self.region)
        on_device = cupy().asarray(order)
        columns = self._columns(work.chains)

        def advance(some: Any, which: range) -> None:
            keys = self._keys(work.master, which)
            for lo in range(work.lo, work.hi, MOST_STEPS):
                done, steps = lo - work.lo, min(MOST_STEPS, work.hi - lo)
                self._update(some, on_device, (place + done) % len(order), work.step + done, steps, keys)
            cupy().cuda.get_current_stream().synchronize()

        if isinstance(x, States):
            # Memory for keys alone: it was there at the start.
            advance(x.array, columns)
            return

        def part(lo: int, hi: int) -> None:
            some = cupy().asarray(x[:, lo:hi])
            advance(some, columns[lo:hi])
            x[:, lo:hi] = some.get()

        _in_parts(x.shape[1], part)

    def read(self, x: Any, rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        if not isinstance(x, States):
            read: NDArray[Any] = self.host.read(x, rows, chains)
            return read
        out = np.empty((len(rows), chains), dtype=self.dtype)

        def part(lo: int, hi: int) -> None:
            self._read(x.array, cupy().asarray(rows[lo:hi]), chains).get(out=out[lo:hi])

        for lo in range(0, len(rows), MOST_ROWS):
            hi = min(lo + MOST_ROWS, len(rows))
            _in_parts(hi - lo, lambda a, b, lo=lo: part(lo + a, lo + b))  # type: ignore[misc]
        return out

    def tables(self) -> tuple[Any, ...]:
        """What the kernel is about, on the current device; made once."""
        device = cupy().cuda.runtime.getDevice()
        if device not in self.arranged:
            try:
                self.arranged[device] = self._make_tables()
            except _out_of_memory() as error:
                raise MemoryError(f"The GPU cannot hold the tables of this model: use backend='cpu'. {error}") from None
        return self.arranged[device]

    def _columns(self, chains: range) -> range:
        return range(chains.start // self.lanes, (chains.stop - 1) // self.lanes + 1)

    def _keys(self, master: NDArray[np.uint64], columns: range) -> Any:
        keys = cupy().empty((2, len(columns)), dtype=np.uint64)
        arguments = (master[0], master[1], np.uint64(columns.start), np.uint32(len(columns)), keys)
        launch(self._compiled("streams"), len(columns), BLOCK, arguments)
        return keys


class _Words(DeviceKernel):
    """64 chains in a word."""

    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 2**24
    chunk: ClassVar[int] = 10**11
    width: ClassVar[Any] = np.uint64

    def _compiled(self, name: str) -> Any:
        return function("bits", name, f"-DPLANES={PLANES}", f"-DBLOCK={BLOCK}")

    def _choice(self, threshold: Any, degree: int) -> Any:
        n = threshold.shape[0]
        choice = cupy().empty((n, PLANES, 2 ** (degree - 2)), dtype=np.uint32)
        arguments = (threshold, np.uint32(n), np.int32(degree), choice)
        launch(self._compiled("choose"), choice.size, 256, arguments)
        return choice


class DeviceBits(_Words):
    """`Bits` on the device."""

    name: ClassVar[str] = "bits"

    @property
    def rows(self) -> int:
        return self.region.size + 1

    @property
    def _degree(self) -> int:
        return int(self.host.neighbor.shape[1])

    def _make_tables(self) -> tuple[Any, ...]:
        cp, host = cupy(), self.host
        threshold = cp.asarray(host.threshold)
        return (
            cp.asarray(host.neighbor.astype(np.uint32)), self._choice(threshold, self._degree), threshold,
            cp.asarray(host.certain.view(np.uint8)),
        )  # fmt: skip

    def _begin(self, columns: range, keys: Any) -> Any:
        cp = cupy()
        x = cp.zeros((self.rows, len(columns)), dtype=np.uint64)
        arguments = (cp.asarray(self.region.positions), np.uint32(self.region.size), keys, x, np.uint32(len(columns)))
        launch(self._compiled("start_bits"), len(columns), BLOCK, arguments)
        return x

    def _update(self, x: Any, order: Any, place: int, step: int, steps: int, keys: Any) -> None:
        about = (order, np.int32(len(order)), np.int32(place), np.uint64(step), np.int32(steps))
        W = x.shape[1]
        arguments = (*about, *self.tables(), keys, x, np.uint32(W))
        launch(self._compiled(f"update_bits{self._degree}"), W, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        out = cupy().empty((len(rows), chains), dtype=np.int8)
        arguments = (x, rows, np.uint32(x.shape[1]), np.uint64(chains), out)
        launch(self._compiled("unpack"), chains, 256, arguments, len(rows))
        return out

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        if not isinstance(x, States):
            self.host.count(x, rows, chains, counts)
            return
        ones = cupy().zeros(len(rows), dtype=np.uint64)
        arguments = (x.array, cupy().asarray(rows), np.uint32(x.array.shape[1]), np.uint64(chains), ones)
        launch(self._compiled("count_bits"), 256 * len(rows), 256, arguments)
        found = ones.get().astype(np.int64)
        counts[:, 1] += found
        counts[:, 0] += chains - found


class DeviceSetBits(_Words):
    """`SetBits` on the device."""

    name: ClassVar[str] = "set bits"
    count = SetKernel.count

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

    def _update(self, x: Any, order: Any, place: int, step: int, steps: int, keys: Any) -> None:
        about = (order, np.int32(len(order)), np.int32(place), np.uint64(step), np.uint64(1), np.int32(steps))
        W = x.shape[1]
        arguments = (*about, *self.tables(), np.int32(self.region.size), keys, x, np.uint32(W))
        launch(self._compiled(f"set_bits{self._degree}"), W, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        out = cupy().empty((len(rows), chains), dtype=np.int16)
        arguments = (x, np.int32(self.region.size), rows, np.uint32(x.shape[1]), np.uint64(chains), out)
        launch(self._compiled("settled_bits"), chains, 256, arguments, len(rows))
        return out


class _Labels(DeviceKernel):
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

    def _compiled(self, name: str) -> Any:
        state = "signed char" if self.dtype == np.int8 else "int"
        return function("labels", name, "-fmad=false", f"-DLABELS={self.host.largest}", f"-DSTATE={state}")

    @property
    @abstractmethod
    def _states(self) -> NDArray[np.int64]:
        """How many states each variable has."""

    def _begin(self, columns: range, keys: Any) -> Any:
        cp = cupy()
        x = cp.zeros((self.rows, len(columns)), dtype=self.dtype)
        states = cp.asarray(self._states.astype(np.int32))
        ids = cp.asarray(self.region.positions)
        arguments = (ids, states, np.uint32(self.region.size), keys, x, np.uint32(len(columns)))
        launch(self._compiled("start_labels"), len(columns), BLOCK, arguments)
        return x

    def _update(self, x: Any, order: Any, place: int, step: int, steps: int, keys: Any) -> None:
        about = (order, np.int32(len(order)), np.int32(place), np.uint64(step), np.int32(steps))
        chains = x.shape[1]
        arguments = (*about, *self.tables(), keys, x, np.uint32(chains))
        launch(self._compiled(f"update_{self.name}"), chains, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return x[rows, :chains]

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        if not isinstance(x, States):
            self.host.count(x, rows, chains, counts)
            return
        found = cupy().zeros(counts.shape, dtype=np.uint64)
        size, width = np.uint32(x.array.shape[1]), np.int32(counts.shape[1])
        for lo in range(0, len(rows), MOST_ROWS):
            some = cupy().asarray(rows[lo : lo + MOST_ROWS])
            arguments = (x.array, some, size, width, found[lo : lo + MOST_ROWS])
            launch(self._compiled("count_labels"), min(chains, 2**16), 256, arguments, len(some))
        counts += found.get().astype(np.int64)


class DevicePotts(_Labels):
    """`PottsLanes` on the device."""

    name: ClassVar[str] = "potts"

    @property
    def _states(self) -> NDArray[np.int64]:
        return np.full(self.region.size, self.host.largest)

    def _make_tables(self) -> tuple[Any, ...]:
        cp, region = cupy(), self.region
        indices = (cp.asarray(part.astype(np.int32)) for part in (region.start, region.neighbor))
        return (*indices, cp.asarray(self.host.strength), cp.asarray(self.host.unary))


class DeviceFactors(_Labels):
    """`Factors` on the device; its exponentials may differ from the CPU's in the last bit."""

    name: ClassVar[str] = "factors"

    @property
    def _states(self) -> NDArray[np.int64]:
        states: NDArray[np.int64] = self.host.states
        return states

    def _make_tables(self) -> tuple[Any, ...]:
        cp = cupy()
        indices = [cp.asarray(part.astype(np.int32)) for part in (self.host.states, *self.host.packed[:-1])]
        return (*indices, cp.asarray(self.host.packed[-1].astype(np.int64)), cp.asarray(self.host.table))


KINDS: dict[type[Kernel], type[DeviceKernel]] = {
    Bits: DeviceBits,
    PottsLanes: DevicePotts,
    Factors: DeviceFactors,
    SetBits: DeviceSetBits,
}


def on_device(made: Kernel, scan: Scan, caller: str) -> DeviceKernel:
    """The same kernel with its states on the GPU."""
    if scan.is_random:
        raise ArgumentError(caller, "backend", "'cpu' for scans with random steps", "cuda")
    if type(made) not in KINDS:
        known = ", ".join(repr(kind.name) for kind in KINDS)
        raise ArgumentError(caller, "backend", f"'cpu' for the kernel {made.name!r} (the GPU has {known})", "cuda")
    cupy()
    return KINDS[type(made)](made)


def chosen(made: Kernel, scan: Scan, chains: int, backend: str, caller: str) -> Kernel:
    """The kernel as it is, or on the GPU if that is asked for, or if it pays and nothing was asked for."""
    if backend == "cuda" or (backend == "auto" and pays(made, scan, chains)):
        return on_device(made, scan, caller)
    return made


def pays(made: Kernel, scan: Scan, chains: int) -> bool:
    """Whether a run is better off on the GPU, if there is one."""
    if scan.is_random or type(made) not in KINDS or chains < MANY_CHAINS or chains * len(scan) < MANY_UPDATES:
        return False
    return is_available()


def _out_of_memory() -> type[Exception]:
    error: type[Exception] = cupy().cuda.memory.OutOfMemoryError
    return error


def _in_parts(columns: int, act: Callable[[int, int], None]) -> None:
    """Do something for all columns, in as few parts as the device's memory allows."""
    size, lo = columns, 0
    while lo < columns:
        try:
            act(lo, min(lo + size, columns))
        except _out_of_memory():
            cupy().get_default_memory_pool().free_all_blocks()
            if size <= 1:
                raise
            size = -(-size // 2)
        else:
            lo += size
