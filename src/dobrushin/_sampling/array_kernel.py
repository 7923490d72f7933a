"""Kernels whose states are arrays of shape (variables, chains), and the lists of update steps that they run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dobrushin._kernels import labels, waves
from dobrushin._kernels.generator import CHOICE
from dobrushin._models.near import ScanRegion
from dobrushin._sampling.kernel import Kernel, Work, streams_of
from dobrushin._scan import Cycle, Scan
from dobrushin._shared.arrays import frozen, is_increasing, prefix_sums, row_entries

# Consecutive steps that are sorted by level together (theory page, "Windows").
WINDOW_STEPS = 2048
# With fewer chains, kernels that can run chains side by side run them one after the other (benchmarks/kernels.py).
FEW_CHAINS = 8

# Waves and diagonals (theory page, "Waves"), all measured by benchmarks/kernels.py.
# Sweeps that take as long as arranging a cycle for waves, and as arranging a grid by diagonals.
WAVE_SWEEPS, DIAGONAL_SWEEPS = 24, 3
# Steps of a wave, and rows and columns of a grid, below which the overhead of waves and diagonals is too large.
MIN_WAVE_STEPS, MIN_SIDE = 16, 256
# Largest number of neighbours for which waves are made: variables are sorted into one bucket per number of neighbours.
MAX_WAVE_NEIGHBORS = 64
# Cycles of fewer steps run faster by tables of thresholds.
LONG_CYCLE_STEPS = 10_000
# Arranged cycles that a kernel keeps; scans seldom have more long cycles.
MAX_ORDERS = 8


class StepList(NamedTuple):
    """Update steps that are repeated `repeats` times, as arguments of the loops in `_kernels.spins`."""

    order: NDArray[np.int32]  # variable of each step, by number in the region
    number: NDArray[np.int32]  # number of each step in the scan, counted from `base`
    repeats: int
    base: int
    period: int  # added to `base` after each repetition


class ArrayKernel(Kernel):
    """Base class of kernels that hold one column of states per chain, each chain with its own random stream."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    few_chains: ClassVar[float] = 1  # from this number of chains on, chains run a cycle side by side
    by_levels: ClassVar[bool] = False  # whether one chain is faster if steps that commute stand next to each other

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return the number of states of each variable; a single entry if all variables have the same number."""
        return np.array([2])

    @property
    def largest(self) -> int:
        return int(self.sizes.max())

    @property
    def dtype(self) -> Any:
        return np.int8 if self.largest <= 127 else np.int32

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        x = np.zeros((self.region.size + 1, len(chains)), dtype=self.dtype)
        labels.start_labels(frozen(self.region.positions), frozen(self.sizes), streams_of(master, chains, 1), x)
        return x

    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        x = np.zeros((self.region.size + 1, states.shape[1]), dtype=self.dtype)
        x[:-1] = states
        return x

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        size = self.region.size  # states may have one row more
        return x[:size, :chains].copy() if len(rows) == size and is_increasing(rows) else x[rows, :chains]

    def count(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        labels.count_labels(x, rows, counts)

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys, is_random = work.keys(1), work.segment.is_random
        lists = [] if is_random else self.steps_of_cycle(work)
        if len(work.chains) >= self.few_chains and not is_random:
            for steps in lists:
                self.advance(x, work, steps, keys)
            return
        choices = work.choices() if is_random else None
        for c in range(keys.shape[1]):
            state, own_keys = x[:, c : c + 1].copy(), np.ascontiguousarray(keys[:, c : c + 1])
            for steps in lists if choices is None else self.drawn_steps(work, choices, own_keys):
                self.advance(state, work, steps, own_keys)
            x[:, c : c + 1] = state

    @abstractmethod
    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        """Run a list of steps in one chain or in at least `few_chains` chains, whose random streams have these keys."""

    def drawn_steps(self, work: Work, choices: tuple[Any, ...], keys: NDArray[np.uint64]) -> list[StepList]:
        """Draw at random which variables one chain updates; `keys` are those of its random stream."""
        positions = np.empty(work.steps, dtype=np.int64)
        labels.draw_order(work.step, work.steps, *choices, *keys[:, 0], CHOICE, positions)
        order = frozen(self.region.numbering.own(positions).astype(np.int32))
        return [StepList(order, _numbers(work.steps), 1, work.step, 0)]

    def steps_of_cycle(self, work: Work) -> list[StepList]:
        """Return the steps as lists: the rest of the current cycle, whole cycles, and the beginning of another one."""
        cycle, left, step = work.cycle, work.steps, work.step
        place, lists = (cycle.first + work.lo) % cycle.period, []
        if place or left < cycle.period:
            head = min(left, cycle.period - place)
            lists.append(StepList(self.own_order(cycle, place, place + head), _numbers(head), 1, step, 0))
            left, step = left - head, step + head
        repeats, tail = divmod(left, cycle.period)
        if repeats:
            order = self.own_order(cycle)
            number = self._sorted_by_levels(order) if self.by_levels else _numbers(len(order))
            lists.append(StepList(frozen(order[number]), number, repeats, step, cycle.period))
        if tail:
            lists.append(StepList(self.own_order(cycle, 0, tail), _numbers(tail), 1, step + repeats * cycle.period, 0))
        return lists

    def own_order(self, cycle: Cycle, first: int = 0, last: int | None = None) -> NDArray[np.int32]:
        """Return the variables that a cycle updates from place `first` to `last`, by number in the region."""
        return frozen(self.region.numbering.own(cycle.array()[first:last]).astype(np.int32))

    def _sorted_by_levels(self, order: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return a cycle's steps sorted by level within windows, so that steps that commute are neighbours."""
        level = waves.levels(order, self.region.start, self.region.neighbor, self.region.size)
        windows = np.full((-(-len(order) // WINDOW_STEPS), WINDOW_STEPS), len(order))
        windows.ravel()[: len(order)] = level
        by_window = np.argsort(windows, axis=1, kind="stable") + WINDOW_STEPS * np.arange(len(windows))[:, None]
        return frozen(by_window.ravel()[: len(order)].astype(np.int32))


def _numbers(steps: int) -> NDArray[np.int32]:
    return frozen(np.arange(steps, dtype=np.int32))


# -- many sweeps of one cycle at once, in waves of steps that commute ---------------------------


def repeats_long_cycles(scan: Scan) -> bool:
    """Return whether most steps of a scan repeat a long cycle, so that waves (sets of commuting steps) pay."""
    steps = [s.steps for s in scan._segments if s.steps >= WAVE_SWEEPS * s.period > LONG_CYCLE_STEPS]
    return 2 * sum(steps) > len(scan)


class WaveOrder(NamedTuple):
    """The variables of a cycle rearranged for running many sweeps in waves: sets of steps that commute.

    The loops of `_kernels.waves` take all fields from `degrees` on.
    """

    place: NDArray[np.int64]  # of each variable
    variables: NDArray[np.int32]  # at each place that is updated
    degrees: int
    slot: NDArray[np.int32]
    weight: NDArray[np.float64]
    number: NDArray[np.int64]
    lag: NDArray[np.int32]
    first: NDArray[np.int64]
    entry: NDArray[np.int64]


class WaveKernel(ArrayKernel):
    """Base class of kernels that can run many sweeps of a cycle in waves: sets of steps that commute."""

    few_chains: ClassVar[float] = FEW_CHAINS
    weights: NDArray[np.float64]  # one entry for each neighbour of each variable
    orders: dict[tuple[str, Cycle | None], Any]  # arranged cycles by kind; None stands for a sweep of the region

    def __getstate__(self) -> dict[str, Any]:
        # Cycles are looked up by identity, and a copy of the scan in another process has other segments.
        return {**self.__dict__, "orders": {}}

    def order_of(self, kind: str, cycle: Cycle, is_worth: bool, make: Callable[[], Any]) -> Any:
        """Return the cached rearrangement of a cycle of this kind (waves or diagonals).

        If there is none, `make` computes one if `is_worth` is true; else the result is None.
        """
        key = (kind, None if self.is_sweep(cycle) else cycle)
        made = self.orders.get(key)
        if key not in self.orders and is_worth:
            made = make()
            if len(self.orders) >= MAX_ORDERS:
                self.orders.clear()
            self.orders[key] = made
        return made

    def run_in_waves(
        self, loop: Callable[..., None], own: NDArray[np.float64], work: Work, steps: StepList,
        keys: NDArray[np.uint64], state: NDArray[Any],
    ) -> bool:  # fmt: skip
        """Run whole cycles of one chain in waves of commuting steps; return False, with nothing done, if this is slow.

        `loop` is the kernel's loop over waves, and `own` has one row of parameters for each variable.
        """
        if not steps.period:
            return False
        is_worth, cycle = steps.repeats >= WAVE_SWEEPS, work.cycle
        wave: WaveOrder | None = self.order_of("wave", cycle, is_worth, lambda: self.arrange(cycle))
        if wave is None:
            return False
        stored = np.empty_like(state)
        stored[wave.place] = state
        loop(steps.repeats, steps.base, frozen(own[wave.variables].T), *wave[2:], *keys[:, 0], stored)
        state[:] = stored[wave.place]
        return True

    def arrange(self, cycle: Cycle) -> WaveOrder | None:
        """Rearrange a cycle for waves of commuting steps; None if a variable occurs twice or too few steps commute."""
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
        # The first neighbours of all variables of a bucket stand side by side, then their second neighbours, ...
        start, entries = row_entries(region.start[variables], degree[variables])
        at = np.arange(start[-1]) - np.repeat(start[:-1], np.diff(start))
        at *= np.repeat(sizes[bucket], degree[variables])
        at += np.repeat(entry[bucket] + np.arange(L) - first[bucket], degree[variables])
        slot, weight = np.empty(len(at), dtype=np.int32), np.empty(len(at))
        slot[at], weight[at] = place[region.neighbor[entries]], self.weights[entries]
        return WaveOrder(place, variables, D, slot, weight, step - L * lag, lag.astype(np.int32), first, entry)


@dataclass(frozen=True)
class Diagonals:
    """Couplings and fields of an Ising model on a grid, rearranged by diagonals.

    The sites on a diagonal are no neighbours of each other, so that their updates commute.
    """

    rows: int
    columns: int
    right: NDArray[np.float64]  # couplings to the right and below, and fields
    down: NDArray[np.float64]
    fields: NDArray[np.float64]

    def sweep(self, steps: StepList, keys: NDArray[np.uint64], states: NDArray[np.int8]) -> None:
        """Run whole sweeps of one chain diagonal by diagonal; the states are 0 and 1."""
        x = np.empty(len(self.fields))
        # Row r of diagonal d stands at d * width + r.
        width, shape = min(self.rows, self.columns), (self.rows, self.columns)
        grid = as_strided(x, shape, (x.itemsize * (width + 1), x.itemsize * width))
        grid[:] = 2.0 * states.reshape(shape) - 1.0
        shared = (*shape, self.right, self.down, self.fields)
        waves.sweep_diagonals(steps.repeats, steps.base, *shared, *keys[:, 0], x)
        states.reshape(shape)[:] = grid > 0.0


def find_diagonals(region: ScanRegion, theta: NDArray[np.float64], fields: NDArray[np.float64]) -> Diagonals | None:
    """Return the rearrangement by diagonals of a large grid numbered row by row; None for other models."""
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
