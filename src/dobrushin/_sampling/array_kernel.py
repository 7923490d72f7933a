"""Kernels whose states are an array (variables, chains), and the lists of steps that they go through."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import labels, waves
from dobrushin._kernels.generator import CHOICE
from dobrushin._models.near import Region
from dobrushin._sampling.kernel import Kernel, Runner, Work, streams_of
from dobrushin._scan import Cycle, Draw, Scan
from dobrushin._shared.arrays import frozen, is_increasing, prefix_sums

# Steps that are put in order of their levels together.
WINDOW_STEPS = 2048
# With fewer chains, kernels that can run chains side by side run them one after the other (benchmarks/kernels.py).
FEW_CHAINS = 8

# Waves and diagonals (theory page, "Waves"), all measured by benchmarks/kernels.py.
# Arranging a cycle for waves costs about as much as this number of sweeps; putting a grid into diagonals as the other.
WAVE_SWEEPS, DIAGONAL_SWEEPS = 24, 3
# Steps of a wave, and rows and columns of a grid, below which the overhead of waves and diagonals is too large.
MIN_WAVE_STEPS, MIN_SIDE = 16, 256
# Neighbours of a variable above which waves are not made: each number of neighbours has a bucket of its own.
MAX_WAVE_NEIGHBORS = 64
# Sweeps of cycles with fewer steps are fast enough by tables of thresholds.
LONG_CYCLE_STEPS = 10_000


class StepList(NamedTuple):
    """A list of steps that is gone through `repeats` times; see `_kernels.spins`."""

    order: NDArray[np.int32]  # own numbers
    number: NDArray[np.int32]
    repeats: int
    base: int  # number of the first step
    period: int


# Orders that were made for cycles, by kind: "order" (the variables and which step each is) or "wave" (a `WaveOrder`).
Orders = dict[tuple[str, Cycle], Any]


class ArrayKernel(Kernel):
    """Chains side by side, each with a stream of its own."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    by_levels: ClassVar[bool] = True  # whether that is faster than one step after the other
    orders: Orders

    def __getstate__(self) -> dict[str, Any]:
        # Copies of the scan in another process have segments of their own: what is kept is found by their identity.
        return {name: {} if name in ("orders", "for_sweeps") else value for name, value in self.__dict__.items()}

    @property
    def largest(self) -> int:
        """Most states of a variable."""
        return 2

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of states of each variable; a single entry if they all have the same."""
        return np.array([self.largest])

    @property
    def dtype(self) -> Any:
        return np.int8 if self.largest <= 127 else np.int32

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.device_chains import DeviceLabels

        return DeviceLabels(self)

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        x = np.zeros((self.region.size + 1, len(chains)), dtype=self.dtype)
        labels.start_labels(frozen(self.region.positions), frozen(self.sizes), streams_of(master, chains, 1), x)
        return x

    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        x = np.zeros((self.region.size + 1, states.shape[1]), dtype=self.dtype)
        x[:-1] = states
        return x

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        size = self.region.size  # there may be a row more than that
        return x[:size, :chains].copy() if len(rows) == size and is_increasing(rows) else x[rows, :chains]

    def count(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        del chains
        labels.count_labels(x, rows, counts)

    def steps_of_chains(self, work: Work, keys: NDArray[np.uint64]) -> Iterator[list[StepList]]:
        """Yield the steps of each chain; a fixed order is the same for all of them."""
        if not work.segment.is_random:
            shared = self.steps_of_cycle(work)
            for _ in range(keys.shape[1]):
                yield shared
            return
        choices, numbers = choices_of(work.segment), _numbers(work.steps)
        positions = np.empty(work.steps, dtype=np.int64)
        for c in range(keys.shape[1]):
            labels.draw_order(work.step, work.steps, *choices, keys[0, c], keys[1, c], CHOICE, positions)
            yield [StepList(frozen(self.region.numbering.own(positions).astype(np.int32)), numbers, 1, work.step, 0)]

    def steps_of_cycle(self, work: Work) -> list[StepList]:
        """Return the steps as the rest of a cycle, whole cycles, and the beginning of another."""
        cycle, left, step = work.cycle, work.steps, work.step
        place = (cycle.first + work.lo) % cycle.period
        lists = []
        if place or left < cycle.period:
            head = min(left, cycle.period - place)
            lists.append(StepList(self._part(cycle, place, head), _numbers(head), 1, step, 0))
            left, step = left - head, step + head
        repeats, tail = divmod(left, cycle.period)
        if repeats:
            lists.append(StepList(*self._whole(cycle), repeats, step, cycle.period))
        if tail:
            lists.append(StepList(self._part(cycle, 0, tail), _numbers(tail), 1, step + repeats * cycle.period, 0))
        return lists

    def _whole(self, cycle: Cycle) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the variables of a cycle, by levels if that helps, and which step each is."""
        kept, key = self.kept_for(cycle, "order")
        if key not in kept:
            region, order = self.region, self._part(cycle, 0, cycle.period)
            number = _numbers(len(order))
            if self.by_levels:
                number = waves.reorder(order, region.start, region.neighbor, region.size, WINDOW_STEPS)
            kept[key] = (frozen(order[number]), frozen(number))
        return kept[key]

    def kept_for(self, cycle: Cycle, what: str) -> tuple[dict[Any, Any], Any]:
        """Return the memory that holds an order made for a cycle, for which long runs ask again, and its key there."""
        return self.orders, (what, cycle)

    def are_side_by_side(self, work: Work) -> bool:
        """Return whether the chains go through the same steps, and are enough to do so together."""
        return len(work.chains) >= FEW_CHAINS and not work.segment.is_random

    def _part(self, cycle: Cycle, place: int, steps: int) -> NDArray[np.int32]:
        return frozen(self.region.numbering.own(cycle.array()[place : place + steps]).astype(np.int32))


def _numbers(steps: int) -> NDArray[np.int32]:
    return frozen(np.arange(steps, dtype=np.int32))


def choices_of(segment: Draw) -> tuple[int, NDArray[np.uint64], int]:
    """Return what `draw_order` needs to choose variables."""
    if segment.probabilities is None and segment.n < 2**32:
        return segment.n, np.empty(0, dtype=np.uint64), 0
    return segment.n, *labels.partial_sums(frozen(segment.vector()))


# -- many sweeps of one cycle at once, in waves of steps that commute ---------------------------


def repeats_long_cycles(scan: Scan) -> bool:
    """Return whether most of the steps repeat a long cycle, which can be run in waves."""
    steps = [s.steps for s in scan._segments if s.steps >= WAVE_SWEEPS * s.period > LONG_CYCLE_STEPS]
    return 2 * sum(steps) > len(scan)


class WaveOrder(NamedTuple):
    """A cycle in the order of its waves; see `_kernels.waves`."""

    place: NDArray[np.int32]  # of each variable
    variables: NDArray[np.int32]  # at each place that is updated
    degrees: int
    slot: NDArray[np.int32]
    weight: NDArray[np.float64]
    number: NDArray[np.int64]
    lag: NDArray[np.int32]
    first: NDArray[np.int64]
    entry: NDArray[np.int64]

    def arguments(self, own: NDArray[np.float64]) -> tuple[Any, ...]:
        """Return what the loops over waves take: the degrees, what belongs to each place, and the stretches."""
        return self.degrees, self.slot, self.weight, own, self.number, self.lag, self.first, self.entry


class WaveKernel(ArrayKernel):
    """Kernels that can run many sweeps of a cycle in waves."""

    weights: NDArray[np.float64]  # what belongs to each neighbour

    @abstractmethod
    def sweep(self, wave: WaveOrder, sweeps: int, step: int, key: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        """Run whole cycles on states that are stored by place."""

    def run_in_waves(self, work: Work, steps: StepList, key: NDArray[np.uint64], state: NDArray[Any]) -> bool:
        """Run whole cycles with many steps at a time; False, with nothing done, where that does not help."""
        if not steps.period or (wave := self.wave_of(work.cycle, steps.repeats)) is None:
            return False
        stored = np.empty_like(state)
        stored[wave.place] = state
        self.sweep(wave, steps.repeats, steps.base, key, stored)
        state[:] = stored[wave.place]
        return True

    def wave_of(self, cycle: Cycle, sweeps: int) -> WaveOrder | None:
        """Return the order of the waves of a cycle, if it is known, or worth making for this number of sweeps."""
        kept, key = self.kept_for(cycle, "wave")
        if key not in kept:
            if sweeps < WAVE_SWEEPS:
                return None
            kept[key] = self.arrange(cycle)
        return kept[key]

    def arrange(self, cycle: Cycle) -> WaveOrder | None:
        """Return the order of the waves; None if some variable comes twice, or too few steps commute."""
        region, order = self.region, self._part(cycle, 0, cycle.period)
        rank = np.full(region.size, -1, dtype=np.int32)
        rank[order] = np.arange(len(order))
        if (rank >= 0).sum() < len(order):
            return None
        level, P = waves.schedule(order, rank, region.start, region.neighbor)
        D = region.degree + 1
        if len(order) < MIN_WAVE_STEPS * P or D > MAX_WAVE_NEIGHBORS:
            return None
        entries, L = len(region.neighbor), len(order)
        slot, weight = np.empty(entries, dtype=np.int32), np.empty(entries)
        variables, number, lag = np.empty(L, dtype=np.int32), np.empty(L, dtype=np.int64), np.empty(L, dtype=np.int32)
        about = (region.start, region.neighbor, self.weights)
        place, first, entry = waves.arrange(order, level, P, D, *about, slot, weight, variables, number, lag)
        return WaveOrder(place, variables, D, slot, weight, number, lag, first, entry)


@dataclass(frozen=True)
class Diagonals:
    """An Ising model on a grid, by diagonals."""

    columns: int
    origin: NDArray[np.int64]  # where row 0 of each diagonal stands, or would stand
    right: NDArray[np.float64]  # couplings to the right and below, and fields
    down: NDArray[np.float64]
    fields: NDArray[np.float64]

    def sweep(self, steps: StepList, key: NDArray[np.uint64], states: NDArray[np.int8]) -> None:
        """Take the states 0 and 1 of a chain through whole sweeps."""
        x = np.empty(len(states))
        waves.to_diagonals(self.columns, self.origin, states, x)
        shared = (self.columns, self.origin, self.right, self.down, self.fields)
        waves.sweep_diagonals(steps.repeats, steps.base, *shared, key[0], key[1], x)
        waves.from_diagonals(self.columns, self.origin, x, states)


def find_diagonals(region: Region, theta: NDArray[np.float64], fields: NDArray[np.float64]) -> Diagonals | None:
    """Return the diagonals of a large grid whose variables are numbered row by row; None for anything else."""
    n, first_row = region.size, region.neighbor[: region.start[1]]
    if len(first_row) != 2 or len(region.updated) < n:
        return None
    columns = int(first_row[1])
    rows, rest = divmod(n, columns)
    if rest or min(rows, columns) < MIN_SIDE or not waves.is_grid(columns, region.start, region.neighbor):
        return None
    d = np.arange(rows + columns - 1)
    first = prefix_sums(np.minimum(np.minimum(d + 1, len(d) - d), min(rows, columns)))[:-1]
    origin = frozen(first - np.maximum(0, d - columns + 1))
    made = right, down, own = np.empty(n), np.empty(n), np.empty(n)
    waves.arrange_grid(columns, origin, region.start, theta, fields, *made)
    return Diagonals(columns, origin, frozen(right), frozen(down), frozen(own))
