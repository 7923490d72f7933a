"""Many sweeps of one cycle at once, in waves of steps that commute (theory page, "Waves")."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import waves
from dobrushin._sampling.array_kernel import ArrayKernel, Steps
from dobrushin._sampling.kernel import Work
from dobrushin._scan import Cycle, Scan

# Arranging a cycle for waves costs about as much as so many sweeps.
MANY_SWEEPS = 24
# Waves of fewer steps are not worth their overhead.
WAVE_WIDTH = 16
MOST_NEIGHBORS = 64
# Sweeps of shorter cycles are fast enough by tables.
LONG_CYCLES = 10_000


def repeats_long_cycles(scan: Scan) -> bool:
    """Whether most of the steps repeat a long cycle, which can be run in waves."""
    steps = [s.steps for s in scan.segments if s.steps >= MANY_SWEEPS * s.period > LONG_CYCLES]
    return 2 * sum(steps) > len(scan)


@dataclass(frozen=True)
class Wave:
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


# None for cycles that are not fit for waves.
Waves = dict[Cycle, Wave | None]


class WaveKernel(ArrayKernel):
    """Kernels that can run many sweeps of a cycle in waves."""

    arranged: Waves

    @property
    @abstractmethod
    def weights(self) -> NDArray[np.float64]:
        """What belongs to each neighbour."""

    @abstractmethod
    def sweep(self, wave: Wave, sweeps: int, step: int, key: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        """Run whole cycles on states that are stored by place."""

    def run_in_waves(self, work: Work, steps: Steps, key: NDArray[np.uint64], state: NDArray[Any]) -> bool:
        """Run whole cycles with many steps at a time; False, with nothing done, where that does not help."""
        if not steps.period or (wave := self.wave_of(work.cycle, steps.repeats)) is None:
            return False
        stored = np.empty_like(state)
        stored[wave.place] = state
        self.sweep(wave, steps.repeats, steps.base, key, stored)
        state[:] = stored[wave.place]
        return True

    def wave_of(self, cycle: Cycle, sweeps: int) -> Wave | None:
        """The order of the waves of a cycle, if it is known, or worth making for so many sweeps."""
        if cycle not in self.arranged:
            if sweeps < MANY_SWEEPS:
                return None
            self.arranged[cycle] = self.arrange(cycle)
        return self.arranged[cycle]

    def arrange(self, cycle: Cycle) -> Wave | None:
        """The order of the waves; None if some variable comes twice, or too few steps commute."""
        order = self._part(cycle, 0, cycle.period)
        rank = np.full(self.region.size, -1, dtype=np.int32)
        rank[order] = np.arange(len(order))
        if (rank >= 0).sum() < len(order):
            return None
        level, P = waves.schedule(order, rank, self.region.start, self.region.neighbor)
        D = self.region.degree + 1
        if len(order) < WAVE_WIDTH * P or D > MOST_NEIGHBORS:
            return None
        entries, L = len(self.region.neighbor), len(order)
        slot, weight = np.empty(entries, dtype=np.int32), np.empty(entries)
        variables, number, lag = np.empty(L, dtype=np.int32), np.empty(L, dtype=np.int64), np.empty(L, dtype=np.int32)
        place, first, entry = waves.arrange(
            order, level, P, D, self.region.start, self.region.neighbor, self.weights, slot, weight, variables,
            number, lag,
        )  # fmt: skip
        return Wave(place, variables, D, slot, weight, number, lag, first, entry)
