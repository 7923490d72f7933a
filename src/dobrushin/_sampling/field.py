"""Chains of spins with pair couplings, of any degree, by local fields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import spins as loops
from dobrushin._kernels import waves as wave_loops
from dobrushin._models.forms import Form
from dobrushin._models.ising import SpinPairs
from dobrushin._models.memory import Slot
from dobrushin._models.near import Region
from dobrushin._sampling.array_kernel import Order, Orders, Steps
from dobrushin._sampling.diagonals import find_diagonals
from dobrushin._sampling.kernel import UNIT, Runner, Work
from dobrushin._sampling.waves import MANY_SWEEPS, Wave, WaveKernel, Waves
from dobrushin._scan import Cycle, Scan
from dobrushin._shared.arrays import frozen, in_cache

# Fewer chains are run one after the other.
FEW_CHAINS = 8
# Putting a grid into diagonals costs about as much as so many sweeps.
SOME_SWEEPS = 3


@dataclass(frozen=True)
class Field(WaveKernel):
    """Chains of an Ising model of any degree side by side; few of them, on long runs of one cycle, in waves."""

    region: Region
    theta: NDArray[np.float64]
    fields: NDArray[np.float64]
    error: NDArray[np.float64]
    orders: Orders = field(default_factory=dict, compare=False)
    arranged: Waves = field(default_factory=dict, compare=False)
    for_sweeps: dict[str, Any] = field(default_factory=dict, compare=False)  # what was made for sweeps, by what it is
    has_twin: ClassVar[bool] = True
    name: ClassVar[str] = "field"
    rate: ClassVar[float] = 4e8
    batch: ClassVar[int] = 128
    by_levels: ClassVar[bool] = False

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan, region
        return isinstance(form, SpinPairs)

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        del form, scan, region, chains
        return True

    @classmethod
    def make(cls, form: Any, region: Region) -> Field:
        if len(region.updated) < form.n_variables:
            return cls._make(form, region)
        kept: Field = form.memory.get(_WHOLE, lambda: cls._make(form, region))
        return replace(kept, orders={}, arranged={})

    @classmethod
    def _make(cls, form: Any, region: Region) -> Field:
        theta = form.couplings.data[region.entry]
        fields = form.fields if len(region.place) == form.n_variables else form.fields[region.place]
        error = np.empty(len(fields))
        largest = 0.0
        for few in in_cache(len(theta)):
            largest = max(largest, theta[few].max(), -theta[few].min())
        for few in in_cache(len(fields)):
            # UNIT ((degree + 2) (|field| + degree max |theta|) + 64): the exponential is good to 2^-48.
            degree = np.diff(region.start[few.start : few.stop + 1])
            bound = degree * largest
            bound += np.abs(fields[few])
            bound *= degree + 2
            bound += 64.0
            bound *= UNIT
            np.minimum(bound, 1.0, out=error[few])
        return cls(region, frozen(theta), frozen(fields), frozen(error))

    @property
    def cost(self) -> float:
        return (1.5 + 0.12 * len(self.region.neighbor) / max(1, len(self.region.updated))) / 2.5

    @property
    def costs(self) -> NDArray[np.float64]:
        return (1.5 + 0.12 * np.diff(self.region.start)) / 2.5

    @property
    def step(self) -> float:
        # What chains side by side share, and a chain by itself has to wait for.
        updates = max(1, len(self.region.updated))
        return 5e-9 + 0.7e-9 * len(self.region.neighbor) / updates

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.labels import DeviceField

        return DeviceField(self)

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        shared = (self.region.start, self.region.neighbor, self.theta, self.fields)
        if len(work.chains) >= FEW_CHAINS and not work.segment.is_random:
            spins = 2 * x[:-1] - 1
            for steps in self.steps_of_cycle(work):
                loops.ising_lanes(*steps, *shared, keys, spins)
            x[:-1] = spins > 0
            return
        brackets = loops.brackets()
        for c, lists in enumerate(self.steps_of_chains(work, keys)):
            states = x[:-1, c].copy()
            for steps in lists:
                if self.run_by_diagonals(work, steps, keys[:, c], states):
                    continue
                spins = 2.0 * states - 1.0
                if not self.run_in_waves(work, steps, keys[:, c], spins):
                    loops.ising_steps(*steps, *shared, brackets, keys[0, c], keys[1, c], spins)
                states[:] = spins > 0
            x[:-1, c] = states

    def run_by_diagonals(self, work: Work, steps: Steps, key: NDArray[np.uint64], states: NDArray[np.int8]) -> bool:
        """Run whole sweeps of a grid; False, with nothing done, where that is not what they are, or does not help."""
        if not steps.period or not self.is_sweep(work.segment):
            return False
        if "diagonals" not in self.for_sweeps:
            if steps.repeats < SOME_SWEEPS:
                return False
            self.for_sweeps["diagonals"] = find_diagonals(self.region, self.theta, self.fields)
        if (diagonals := self.for_sweeps["diagonals"]) is None:
            return False
        diagonals.sweep(steps, key, states)
        return True

    def wave_of(self, cycle: Cycle, sweeps: int) -> Wave | None:
        if not self.is_sweep(cycle):
            return super().wave_of(cycle, sweeps)
        if "wave" not in self.for_sweeps:
            if sweeps < MANY_SWEEPS:
                return None
            self.for_sweeps["wave"] = self.arrange(cycle)
        wave: Wave | None = self.for_sweeps["wave"]
        return wave

    def _whole(self, cycle: Cycle) -> Order:
        if not self.is_sweep(cycle):
            return super()._whole(cycle)
        if "order" not in self.for_sweeps:
            order = frozen(np.arange(cycle.period, dtype=np.int32))
            self.for_sweeps["order"] = (order, order)
        whole: Order = self.for_sweeps["order"]
        return whole

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.theta

    def sweep(self, wave: Wave, sweeps: int, step: int, key: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        own = frozen(self.fields[wave.variables])
        shared = (wave.slot, wave.weight, own, wave.number, wave.lag, wave.first, wave.entry)
        wave_loops.ising_waves(sweeps, step, wave.degrees, *shared, key[0], key[1], stored)


# The kernel of a whole form, with what was made for its sweeps.
_WHOLE: Slot[Field] = Slot("field kernel")
