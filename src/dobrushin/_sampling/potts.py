"""Chains of labels that like to agree with their neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import labels
from dobrushin._kernels.waves import potts_waves
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._models.potts import LabelPairs
from dobrushin._sampling.array_kernel import Orders
from dobrushin._sampling.kernel import UNIT, Runner, Work
from dobrushin._sampling.waves import Wave, WaveKernel, Waves
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen

# Exponentials of larger sums could overflow.
SAFE_EXPONENT = 500.0
# Fewer chains are run one after the other.
FEW_CHAINS = 8


@dataclass(frozen=True)
class PottsLanes(WaveKernel):
    """Chains of a Potts model side by side, few of them in waves; `strength` and `unary` are exponentials."""

    region: Region
    strength: NDArray[np.float64]
    unary: NDArray[np.float64]
    error: NDArray[np.float64]
    orders: Orders = field(default_factory=dict, compare=False)
    arranged: Waves = field(default_factory=dict, compare=False)
    name: ClassVar[str] = "potts"
    rate: ClassVar[float] = 5e7
    has_twin: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan
        return isinstance(form, LabelPairs) and _largest_exponent(form, region) < SAFE_EXPONENT

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        del form, scan, region, chains
        return True

    @classmethod
    def make(cls, form: Any, region: Region) -> PottsLanes:
        strength = form.couplings.data[region.entry]
        unary = form.unaries[region.place]
        size = _row_sums(np.abs(strength), region) + np.abs(np.where(unary > -np.inf, unary, 0.0)).max(axis=1)
        k = unary.shape[1]
        error = UNIT * (2.0 * size + 8.0 * (np.diff(region.start) + k + 4))
        relative = np.exp(unary - unary.max(axis=1, keepdims=True))
        return cls(region, frozen(np.exp(strength)), frozen(relative), frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        k = self.largest
        return (5.0 + 0.9 * k + (0.1 + 0.13 * k) * np.diff(self.region.start)) / 10.0

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.labels import DevicePotts

        return DevicePotts(self)

    @property
    def largest(self) -> int:
        return self.unary.shape[1]

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        shared = (self.region.start, self.region.neighbor, self.strength, self.unary)
        if len(work.chains) >= FEW_CHAINS and not work.segment.is_random:
            for steps in self.steps_of_cycle(work):
                labels.potts_lanes(*steps, *shared, keys, x)
            return
        for c, lists in enumerate(self.steps_of_chains(work, keys)):
            state = x[:-1, c].copy()
            for steps in lists:
                if not self.run_in_waves(work, steps, keys[:, c], state):
                    labels.potts_chain(*steps, *shared, keys[0, c], keys[1, c], state)
            x[:-1, c] = state

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.strength

    def sweep(self, wave: Wave, sweeps: int, step: int, key: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        own = frozen(self.unary[wave.variables].T)
        shared = (wave.slot, wave.weight, own, wave.number, wave.lag, wave.first, wave.entry)
        potts_waves(sweeps, step, wave.degrees, *shared, key[0], key[1], stored)


def _largest_exponent(form: Any, region: Region) -> float:
    """The largest exponent that a product of weights can have."""
    sums = _row_sums(np.abs(form.couplings.data[region.entry]), region)
    unary = form.unaries[region.place]
    gap = unary.max(axis=1) - np.where(unary > -np.inf, unary, np.inf).min(axis=1)
    return float((sums + gap).max())


def _row_sums(values: NDArray[np.float64], region: Region) -> NDArray[np.float64]:
    return np.bincount(region.row, weights=values, minlength=region.size).astype(np.float64)
