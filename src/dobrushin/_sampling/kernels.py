"""The ways to run steps, one per shape of work. Each states how exact its draws are.

All share one face: `start` makes the states of some chains, `run` takes them through steps, `read` and `count` look at
them. A kernel holds only arrays, so it can be sent to other processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import binary, bits, chain, labels
from dobrushin._kernels.generator import CHOICE, streams
from dobrushin._kernels.reorder import reorder
from dobrushin._sampling.region import Region
from dobrushin._scan import Cycle, Draw, Segment
from dobrushin._shared.arrays import frozen

# Steps that are put in order of their levels together.
WINDOW = 2048
# Fewer chains are run one after the other.
FEW = 8
# Arranging a cycle for waves costs about as much as so many sweeps.
MANY_SWEEPS = 24
# Waves of fewer steps are not worth their overhead.
WAVE_WIDTH = 16
MOST_NEIGHBORS_IN_WAVES = 64


@dataclass(frozen=True)
class Work:
    """Steps lo to hi of a segment, for some chains; the first one is number `step` of the scan."""

    master: NDArray[np.uint64]
    chains: range
    segment: Segment
    lo: int
    hi: int
    step: int

    def keys(self, lanes: int) -> NDArray[np.uint64]:
        """Keys and increments of the chains' streams."""
        return streams_of(self.master, self.chains, lanes)


class Kernel(ABC):
    """What all kernels can do."""

    name: ClassVar[str]
    lanes: ClassVar[int]  # chains that share a stream
    batch: ClassVar[int]  # chains that are run together at most
    workers: ClassVar[int | None] = None  # threads to run batches in, if not one per core
    region: Region
    error: NDArray[np.float64]  # bound on the total-variation error of one update, by own number

    def look(self, chains: int) -> int | None:
        """Steps of so many chains between looks at whether to stop, if not the usual number."""
        del chains
        return None

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """Type of the states that `read` gives."""

    @abstractmethod
    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        """Uniform initial states."""

    @abstractmethod
    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        """Given initial states 0..k-1, of shape (variables, chains)."""

    @abstractmethod
    def run(self, x: NDArray[Any], work: Work) -> None:
        """Take the states through some steps."""

    @abstractmethod
    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        """States 0..k-1 of some variables, of shape (rows, chains)."""

    @abstractmethod
    def count(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        """Add to counts[row, state] the chains in that state."""


@dataclass(frozen=True)
class Bits(Kernel):
    """64 chains in a word, for binary variables with at most 6 neighbours."""

    region: Region
    neighbor: NDArray[np.int64]  # (variables, 4 or 6); a dummy, always 0, fills the row
    threshold: NDArray[np.uint64]  # (variables, 16 or 64): 2^64 P(1), by configuration
    certain: NDArray[np.bool_]
    error: NDArray[np.float64]
    name: ClassVar[str] = "bits"
    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 4096

    @property
    def dtype(self) -> Any:
        return np.int8

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint64]:
        keys = streams_of(master, chains, 64)
        x = np.zeros((self.region.size + 1, keys.shape[1]), dtype=np.uint64)
        bits.start_bits(frozen(self.region.positions), keys, x)
        return x

    def load(self, states: NDArray[np.int64]) -> NDArray[np.uint64]:
        x = np.zeros((self.region.size + 1, -(-states.shape[1] // 64)), dtype=np.uint64)
        bits.pack(np.ascontiguousarray(states), x)
        return x

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = cycle_of(work, self.region)
        tables = (self.neighbor, self.threshold, self.certain, self.neighbor.shape[1] > 4)
        bits.update_bits(order, place, work.step, work.hi - work.lo, *tables, work.keys(64), x)

    def read(self, x: NDArray[np.uint64], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int8)
        bits.unpack(x, rows, out)
        return out

    def count(self, x: NDArray[np.uint64], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        bits.count_bits(x, rows, chains, counts)


class _Rows(Kernel):
    """States as an array (variables, chains): what the other kernels share."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    by_levels: ClassVar[bool] = True  # whether that is faster than one step after the other
    orders: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]]  # of cycles

    def __getstate__(self) -> dict[str, Any]:
        # What was made for the scan's own segments is of no use to copies of them in another process.
        return {name: {} if name in ("orders", "arranged") else value for name, value in self.__dict__.items()}

    @property
    def largest(self) -> int:
        """Most states of a variable."""
        return 2

    @property
    def dtype(self) -> Any:
        return np.int8 if self.largest <= 127 else np.int32

    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        x = np.zeros((self.region.size + 1, states.shape[1]), dtype=self.dtype)
        x[:-1] = states
        return x

    def _uniform(self, states: NDArray[np.int64], master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        x = np.zeros((self.region.size + 1, len(chains)), dtype=self.dtype)
        labels.start_labels(frozen(self.region.positions), frozen(states), streams_of(master, chains, 1), x)
        return x

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        return x[rows, :chains]

    def count(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        del chains
        labels.count_labels(x, rows, counts)

    def _lists(self, work: Work, keys: NDArray[np.uint64]) -> Iterator[list[tuple[Any, Any, int, int, int]]]:
        """For each chain its steps as lists to be gone through; a fixed order is the same for all of them."""
        if isinstance(work.segment, Cycle):
            shared = self._fixed(work)
            for _ in range(keys.shape[1]):
                yield shared
            return
        size = work.hi - work.lo
        choices, numbers = _choices(work.segment), _numbers(size)
        drawn = np.empty(size, dtype=np.int64)
        for c in range(keys.shape[1]):
            labels.draw_order(work.step, size, *choices, keys[0, c], keys[1, c], CHOICE, drawn)
            yield [(frozen(self.region.local(drawn).astype(np.int32)), numbers, 1, work.step, 0)]

    def _fixed(self, work: Work) -> list[tuple[Any, Any, int, int, int]]:
        """The steps of a cycle as lists: (order, number, repeats, number of the first step, period)."""
        segment, left, step = work.segment, work.hi - work.lo, work.step
        assert isinstance(segment, Cycle)
        lists = []
        length = len(segment.cycle)
        place = (segment.first + work.lo) % length
        if place or left < length:
            head = min(left, length - place)
            lists.append((self._part(segment, place, head), _numbers(head), 1, step, 0))
            left, step = left - head, step + head
        repeats, tail = divmod(left, length)
        if repeats:
            lists.append((*self._whole(segment), repeats, step, length))
        if tail:
            lists.append((self._part(segment, 0, tail), _numbers(tail), 1, step + repeats * length, 0))
        return lists

    def _whole(self, segment: Cycle) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The whole cycle, in the order of its levels if that helps; made once, since long runs come back for it."""
        known = self.orders.get(id(segment))
        if known is None:
            order = self._part(segment, 0, len(segment.cycle))
            if self.by_levels:
                number = reorder(order, self.region.start, self.region.neighbor, self.region.size, WINDOW)
            else:
                number = _numbers(len(order))
            known = self.orders[id(segment)] = (frozen(order[number]), frozen(number))
        return known

    def _part(self, segment: Cycle, place: int, steps: int) -> NDArray[np.int32]:
        part = segment.array()[place : place + steps]
        return frozen(self.region.local(part).astype(np.int32))


@dataclass(frozen=True)
class Table(_Rows):
    """One chain of binary variables with at most 6 neighbours, by tables of thresholds."""

    region: Region
    neighbor: NDArray[np.int64]
    threshold: NDArray[np.uint64]  # 2^63 P(1)
    error: NDArray[np.float64]
    orders: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = field(default_factory=dict)
    name: ClassVar[str] = "table"

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        return self._uniform(np.full(self.region.size, 2), master, chains)

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        shared = (self.neighbor.ravel(), self.threshold.ravel(), self.neighbor.shape[1] > 4)
        for c, lists in enumerate(self._lists(work, keys)):
            state = x[:, c].copy()
            for steps in lists:
                binary.table_steps(*steps, *shared, keys[0, c], keys[1, c], state)
            x[:, c] = state


@dataclass(frozen=True)
class Wave:
    """A cycle in the order of its waves; see `_kernels.chain`."""

    place: NDArray[np.int32]  # of each variable
    variables: NDArray[np.int32]  # at each place that is updated
    degrees: int
    slot: NDArray[np.int32]
    weight: NDArray[np.float64]
    number: NDArray[np.int64]
    lag: NDArray[np.int32]
    first: NDArray[np.int64]
    entry: NDArray[np.int64]


class _Sweeps(_Rows):
    """Kernels that can run many sweeps of a cycle in waves of steps that commute."""

    arranged: dict[int, Wave | None]

    @abstractmethod
    def _weights(self) -> NDArray[np.float64]:
        """What belongs to each neighbour."""

    @abstractmethod
    def _waves(self, wave: Wave, sweeps: int, step: int, key: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        """Run whole cycles on states that are stored by place."""

    def _sweep(self, segment: Segment, sweeps: int, step: int, key: NDArray[np.uint64], state: NDArray[Any]) -> bool:
        """Run whole cycles with many steps at a time; False if the cycle is not fit for that."""
        assert isinstance(segment, Cycle)
        if id(segment) not in self.arranged:
            self.arranged[id(segment)] = self._arrange(segment)
        if (wave := self.arranged[id(segment)]) is None:
            return False
        stored = np.empty_like(state)
        stored[wave.place] = state
        self._waves(wave, sweeps, step, key, stored)
        state[:] = stored[wave.place]
        return True

    def _arrange(self, segment: Cycle) -> Wave | None:
        order = self._part(segment, 0, len(segment.cycle))
        rank = np.full(self.region.size, -1, dtype=np.int32)
        rank[order] = np.arange(len(order))
        if (rank >= 0).sum() < len(order):
            return None  # some variable comes twice
        level, P = chain.schedule(order, rank, self.region.start, self.region.neighbor)
        D = self.region.degree + 1
        if len(order) < WAVE_WIDTH * P or D > MOST_NEIGHBORS_IN_WAVES:
            return None
        entries, L = len(self.region.neighbor), len(order)
        slot, weight = np.empty(entries, dtype=np.int32), np.empty(entries)
        variables, number, lag = np.empty(L, dtype=np.int32), np.empty(L, dtype=np.int64), np.empty(L, dtype=np.int32)
        place, first, entry = chain.arrange(
            order, level, P, D, self.region.start, self.region.neighbor, self._weights(), slot, weight, variables,
            number, lag,
        )  # fmt: skip
        return Wave(place, variables, D, slot, weight, number, lag, first, entry)


@dataclass(frozen=True)
class Field(_Sweeps):
    """Chains of an Ising model of any degree, by local fields; long runs of one cycle in waves of independent steps."""

    region: Region
    theta: NDArray[np.float64]
    fields: NDArray[np.float64]
    error: NDArray[np.float64]
    orders: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = field(default_factory=dict)
    arranged: dict[int, Wave | None] = field(default_factory=dict)
    name: ClassVar[str] = "field"
    by_levels: ClassVar[bool] = False

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        return self._uniform(np.full(self.region.size, 2), master, chains)

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        shared = (self.region.start, self.region.neighbor, self.theta, self.fields, chain.brackets())
        for c, lists in enumerate(self._lists(work, keys)):
            state = 2.0 * x[:-1, c] - 1.0
            for steps in lists:
                if steps[2] < MANY_SWEEPS or not self._sweep(work.segment, *steps[2:4], keys[:, c], state):
                    chain.ising_steps(*steps, *shared, keys[0, c], keys[1, c], state)
            x[:-1, c] = state > 0

    def _weights(self) -> NDArray[np.float64]:
        return self.theta

    def _waves(self, wave: Wave, sweeps: int, step: int, key: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        own = frozen(self.fields[wave.variables])
        shared = (wave.slot, wave.weight, own, wave.number, wave.lag, wave.first, wave.entry)
        chain.ising_waves(sweeps, step, wave.degrees, *shared, key[0], key[1], stored)


@dataclass(frozen=True)
class PottsLanes(_Sweeps):
    """Chains of a Potts model side by side, few of them in waves; `strength` and `unary` are exponentials."""

    region: Region
    strength: NDArray[np.float64]
    unary: NDArray[np.float64]
    error: NDArray[np.float64]
    orders: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = field(default_factory=dict)
    arranged: dict[int, Wave | None] = field(default_factory=dict)
    name: ClassVar[str] = "potts"

    @property
    def largest(self) -> int:
        return self.unary.shape[1]

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        return self._uniform(np.full(self.region.size, self.largest), master, chains)

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        shared = (self.region.start, self.region.neighbor, self.strength, self.unary)
        if len(work.chains) >= FEW and isinstance(work.segment, Cycle):
            for steps in self._fixed(work):
                labels.potts_lanes(*steps, *shared, keys, x)
            return
        for c, lists in enumerate(self._lists(work, keys)):
            state = x[:-1, c].copy()
            for steps in lists:
                if steps[2] < MANY_SWEEPS or not self._sweep(work.segment, *steps[2:4], keys[:, c], state):
                    chain.potts_chain(*steps, *shared, keys[0, c], keys[1, c], state)
            x[:-1, c] = state

    def _weights(self) -> NDArray[np.float64]:
        return self.strength

    def _waves(self, wave: Wave, sweeps: int, step: int, key: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        own = frozen(self.unary[wave.variables].T)
        shared = (wave.slot, wave.weight, own, wave.number, wave.lag, wave.first, wave.entry)
        chain.potts_waves(sweeps, step, wave.degrees, *shared, key[0], key[1], stored)


@dataclass(frozen=True)
class Factors(_Rows):
    """Chains of any model, by its factors."""

    region: Region
    states: NDArray[np.int64]
    packed: tuple[NDArray[Any], ...]
    table: NDArray[np.float64]
    error: NDArray[np.float64]
    orders: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = field(default_factory=dict)
    name: ClassVar[str] = "factors"

    @property
    def largest(self) -> int:
        return int(self.states.max())

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        return self._uniform(self.states, master, chains)

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        shared = (self.states, *self.packed, self.table)
        if isinstance(work.segment, Cycle):
            for steps in self._fixed(work):
                labels.factor_steps(*steps, *shared, keys, x)
            return
        for c, lists in enumerate(self._lists(work, keys)):
            state = x[:, c : c + 1].copy()
            for steps in lists:
                labels.factor_steps(*steps, *shared, np.ascontiguousarray(keys[:, c : c + 1]), state)
            x[:, c : c + 1] = state


def streams_of(master: NDArray[np.uint64], chains: range, lanes: int) -> NDArray[np.uint64]:
    """Keys and increments of the streams of some chains."""
    first, last = chains.start // lanes, (chains.stop - 1) // lanes
    keys: NDArray[np.uint64] = streams(master[0], master[1], first, last - first + 1)
    return keys


def cycle_of(work: Work, region: Region) -> tuple[NDArray[np.int32], int]:
    """The cycle in own numbers, or as much of it as is used, and the place of the first step."""
    assert isinstance(work.segment, Cycle)
    part = work.segment.cut(work.lo, work.hi)
    if part.steps < len(part.cycle):
        return frozen(region.local(part.order()).astype(np.int32)), 0
    return frozen(region.local(part.array()).astype(np.int32)), part.first


def _numbers(steps: int) -> NDArray[np.int32]:
    return frozen(np.arange(steps, dtype=np.int32))


def _choices(segment: Draw) -> tuple[int, NDArray[np.uint64], int]:
    """What `draw_order` needs to choose variables."""
    if segment.probabilities is None and segment.n < 2**32:
        return segment.n, np.empty(0, dtype=np.uint64), 0
    return segment.n, *labels.partial_sums(frozen(segment.vector()))
