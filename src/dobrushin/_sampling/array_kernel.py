"""Kernels whose states are an array (variables, chains), and the lists of steps that they go through."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dobrushin._kernels import labels, waves
from dobrushin._kernels.generator import CHOICE
from dobrushin._models.near import Region
from dobrushin._sampling.kernel import Kernel, Runner, Work, streams_of
from dobrushin._scan import Cycle, Draw, Scan
from dobrushin._shared.arrays import frozen, is_increasing, prefix_sums, row_entries

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
# Orders that a kernel keeps for cycles; a scan hardly has more long ones.
MAX_ORDERS = 8


class StepList(NamedTuple):
    """A list of steps that is gone through `repeats` times; see `_kernels.spins`."""

    order: NDArray[np.int32]  # own numbers
    number: NDArray[np.int32]
    repeats: int
    base: int  # number of the first step
    period: int


class ArrayKernel(Kernel):
    """Chains side by side, each with a stream of its own."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    few_chains: ClassVar[float] = 1  # from this number on, chains go through a cycle side by side
    by_levels: ClassVar[bool] = False  # whether one chain is faster if steps that commute stand next to each other

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
        labels.count_labels(x, rows, counts)

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        if len(work.chains) >= self.few_chains and not work.segment.is_random:
            for steps in self.steps_of_cycle(work):
                self.advance(x, work, steps, keys)
            return
        for c, lists in enumerate(self.steps_of_chains(work, keys)):
            state, own_keys = x[:, c : c + 1].copy(), np.ascontiguousarray(keys[:, c : c + 1])
            for steps in lists:
                self.advance(state, work, steps, own_keys)
            x[:, c : c + 1] = state

    @abstractmethod
    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        """Take the states of chains with these keys through a list of steps: one chain, or at least `few_chains`."""

    def steps_of_chains(self, work: Work, keys: NDArray[np.uint64]) -> Iterator[list[StepList]]:
        """Yield the steps of each chain; a fixed order is the same for all of them."""
        if not work.segment.is_random:
            yield from [self.steps_of_cycle(work)] * keys.shape[1]
            return
        choices, numbers = choices_of(work.segment), _numbers(work.steps)
        positions = np.empty(work.steps, dtype=np.int64)
        for key, gamma in keys.T:
            labels.draw_order(work.step, work.steps, *choices, key, gamma, CHOICE, positions)
            yield [StepList(frozen(self.region.numbering.own(positions).astype(np.int32)), numbers, 1, work.step, 0)]

    def steps_of_cycle(self, work: Work) -> list[StepList]:
        """Return the steps as the rest of a cycle, whole cycles, and the beginning of another."""
        cycle, left, step = work.cycle, work.steps, work.step
        place, lists = (cycle.first + work.lo) % cycle.period, []
        if place or left < cycle.period:
            head = min(left, cycle.period - place)
            lists.append(StepList(self.own_order(cycle, place, place + head), _numbers(head), 1, step, 0))
            left, step = left - head, step + head
        repeats, tail = divmod(left, cycle.period)
        if repeats:
            order = self.own_order(cycle)
            number = self._by_levels(order) if self.by_levels else _numbers(len(order))
            lists.append(StepList(frozen(order[number]), number, repeats, step, cycle.period))
        if tail:
            lists.append(StepList(self.own_order(cycle, 0, tail), _numbers(tail), 1, step + repeats * cycle.period, 0))
        return lists

    def own_order(self, cycle: Cycle, first: int = 0, last: int | None = None) -> NDArray[np.int32]:
        """Return the variables of a part of a cycle by own number."""
        return frozen(self.region.numbering.own(cycle.array()[first:last]).astype(np.int32))

    def _by_levels(self, order: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the steps of a cycle sorted by level within windows, which keep the memory that they touch small."""
        level = waves.levels(order, self.region.start, self.region.neighbor, self.region.size)
        windows = np.full((-(-len(order) // WINDOW_STEPS), WINDOW_STEPS), len(order))
        windows.ravel()[: len(order)] = level
        by_window = np.argsort(windows, axis=1, kind="stable") + WINDOW_STEPS * np.arange(len(windows))[:, None]
        return frozen(by_window.ravel()[: len(order)].astype(np.int32))


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

    place: NDArray[np.int64]  # of each variable
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

    few_chains: ClassVar[float] = FEW_CHAINS
    weights: NDArray[np.float64]  # what belongs to each neighbour
    orders: dict[tuple[str, Cycle | None], Any]  # what was made for cycles, by kind; without a cycle: for sweeps

    def __getstate__(self) -> dict[str, Any]:
        # Copies of the scan in another process have segments of their own: what is kept is found by their identity.
        return {**self.__dict__, "orders": {}}

    def order_of(self, kind: str, cycle: Cycle, is_worth: bool, make: Callable[[], Any]) -> Any:
        """Return the order of this kind that was made for a cycle; None if there is none and it is not worth making."""
        key = (kind, None if self.is_sweep(cycle) else cycle)
        made = self.orders.get(key)
        if key not in self.orders and is_worth:
            made = make()
            if len(self.orders) >= MAX_ORDERS:
                self.orders.clear()
            self.orders[key] = made
        return made

    @abstractmethod
    def sweep(self, wave: WaveOrder, sweeps: int, step: int, keys: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        """Run whole cycles on the states of a chain that are stored by place."""

    def run_in_waves(self, work: Work, steps: StepList, keys: NDArray[np.uint64], state: NDArray[Any]) -> bool:
        """Run whole cycles of a chain with many steps at a time; False, with nothing done, where that does not help."""
        if not steps.period:
            return False
        is_worth, cycle = steps.repeats >= WAVE_SWEEPS, work.cycle
        wave: WaveOrder | None = self.order_of("wave", cycle, is_worth, lambda: self.arrange(cycle))
        if wave is None:
            return False
        stored = np.empty_like(state)
        stored[wave.place] = state
        self.sweep(wave, steps.repeats, steps.base, keys, stored)
        state[:] = stored[wave.place]
        return True

    def arrange(self, cycle: Cycle) -> WaveOrder | None:
        """Return the order of the waves; None if some variable comes twice, or too few steps commute."""
        region, order = self.region, self.own_order(cycle)
        L, D, degree = len(order), region.degree + 1, np.diff(region.start)
        level = waves.levels(order, region.start, region.neighbor, region.size)
        levels = np.full(region.size, -1)
        levels[order] = level
        if (levels >= 0).sum() < L:
            return None
        here, there = levels[region.row], levels[region.neighbor]
        P = 1 + int(np.abs(here - there)[(here >= 0) & (there >= 0)].max(initial=0))
        if L < MIN_WAVE_STEPS * P or D > MAX_WAVE_NEIGHBORS:
            return None
        bucket = (level % P) * D + degree[order]
        step = np.lexsort((level, bucket))  # at each place
        bucket, variables, lag = bucket[step], order[step], level[step] // P
        place = np.empty(region.size, dtype=np.int64)
        place[variables], place[levels < 0] = np.arange(L), np.arange(L, region.size)
        first = prefix_sums(np.bincount(bucket, minlength=P * D))
        sizes = np.diff(first)
        entry = prefix_sums(sizes * (np.arange(P * D) % D))[:-1]
        # The neighbours of a bucket stand one row for each of them.
        start, entries = row_entries(region.start[variables], degree[variables])
        at = np.arange(start[-1]) - np.repeat(start[:-1], np.diff(start))
        at *= np.repeat(sizes[bucket], degree[variables])
        at += np.repeat(entry[bucket] + np.arange(L) - first[bucket], degree[variables])
        slot, weight = np.empty(len(at), dtype=np.int32), np.empty(len(at))
        slot[at], weight[at] = place[region.neighbor[entries]], self.weights[entries]
        return WaveOrder(place, variables, D, slot, weight, step - L * lag, lag.astype(np.int32), first, entry)


@dataclass(frozen=True)
class Diagonals:
    """An Ising model on a grid, by diagonals."""

    rows: int
    columns: int
    right: NDArray[np.float64]  # couplings to the right and below, and fields
    down: NDArray[np.float64]
    fields: NDArray[np.float64]

    def sweep(self, steps: StepList, keys: NDArray[np.uint64], states: NDArray[np.int8]) -> None:
        """Take the states 0 and 1 of a chain through whole sweeps."""
        x = np.empty(len(self.fields))
        # Row r of diagonal d stands at d * width + r.
        width, shape = min(self.rows, self.columns), (self.rows, self.columns)
        grid = as_strided(x, shape, (x.itemsize * (width + 1), x.itemsize * width))
        grid[:] = 2.0 * states.reshape(shape) - 1.0
        shared = (*shape, self.right, self.down, self.fields)
        waves.sweep_diagonals(steps.repeats, steps.base, *shared, *keys[:, 0], x)
        states.reshape(shape)[:] = grid > 0.0


def find_diagonals(region: Region, theta: NDArray[np.float64], fields: NDArray[np.float64]) -> Diagonals | None:
    """Return the diagonals of a large grid whose variables are numbered row by row; None for anything else."""
    n, first_row = region.size, region.neighbor[: region.start[1]]
    if len(first_row) != 2 or len(region.updated) < n:
        return None
    columns = int(first_row[1])
    rows, rest = divmod(n, columns)
    if rest or min(rows, columns) < MIN_SIDE or len(theta) != 4 * n - 2 * (rows + columns):
        return None
    right, down, own = (np.zeros((rows + columns) * min(rows, columns) + rows) for _ in range(3))
    if not waves.arrange_grid(rows, columns, region.start, region.neighbor, theta, fields, right, down, own):
        return None
    return Diagonals(rows, columns, *map(frozen, (right, down, own)))
