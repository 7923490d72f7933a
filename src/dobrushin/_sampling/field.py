"""Chains of spins with pair couplings, of any degree, by local fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import chain, lanes
from dobrushin._models.forms import Form
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import Region
from dobrushin._sampling.array_kernel import Orders
from dobrushin._sampling.kernel import UNIT, Runner, Work
from dobrushin._sampling.waves import Wave, WaveKernel, Waves
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen

# Fewer chains are run one after the other.
FEW_CHAINS = 8


@dataclass(frozen=True)
class Field(WaveKernel):
    """Chains of an Ising model of any degree side by side; few of them, on long runs of one cycle, in waves."""

    region: Region
    theta: NDArray[np.float64]
    fields: NDArray[np.float64]
    error: NDArray[np.float64]
    orders: Orders = field(default_factory=dict)
    arranged: Waves = field(default_factory=dict)
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
        theta, fields = form.couplings.data[region.entry], form.fields[region.place]
        degree = np.diff(region.start)
        size = np.abs(fields) + degree * max(theta.max(initial=0.0), -theta.min(initial=0.0))
        # The exponential of the waves is good to 2^-48.
        error = UNIT * ((degree + 2) * size + 64.0)
        return cls(region, frozen(theta), frozen(fields), frozen(np.minimum(error, 1.0)))

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
                lanes.ising_lanes(*steps, *shared, keys, spins)
            x[:-1] = spins > 0
            return
        brackets = chain.brackets()
        for c, lists in enumerate(self.steps_of_chains(work, keys)):
            state = 2.0 * x[:-1, c] - 1.0
            for steps in lists:
                if not self.run_in_waves(work, steps, keys[:, c], state):
                    chain.ising_steps(*steps, *shared, brackets, keys[0, c], keys[1, c], state)
            x[:-1, c] = state > 0

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.theta

    def sweep(self, wave: Wave, sweeps: int, step: int, key: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        own = frozen(self.fields[wave.variables])
        shared = (wave.slot, wave.weight, own, wave.number, wave.lag, wave.first, wave.entry)
        chain.ising_waves(sweeps, step, wave.degrees, *shared, key[0], key[1], stored)
