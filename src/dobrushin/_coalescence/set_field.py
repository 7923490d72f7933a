"""Sets of spins with any number of neighbours. [trusted]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.set_kernel import SetKernel
from dobrushin._coalescence.spin_pairs import has_spin_pairs, spin_pairs
from dobrushin._kernels import sets
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.kernel import IN_CACHE, UNIT
from dobrushin._sampling.local_factors import largest_entries, local_factors, pack_region
from dobrushin._shared.arrays import frozen


@dataclass(frozen=True)
class SetField(SetKernel):
    """Spins with couplings of pairs, of any degree."""

    region: Region
    theta: NDArray[np.float64]
    fields: NDArray[np.float64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set field"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    rate: ClassVar[float] = 1e8

    @classmethod
    def fits(cls, form: Form) -> bool:
        return has_spin_pairs(form)

    @classmethod
    def make(cls, form: Form, region: Region) -> SetField:
        spins = spin_pairs(form)
        theta, fields = spins.couplings.data[region.entry], spins.fields[region.place]
        terms = np.diff(region.start).astype(np.int64)
        size = np.abs(fields) + terms * np.abs(theta).max(initial=0.0)
        if spins is not form:  # many terms may have been added up, and may have cancelled
            tables = form.tables()
            factors = local_factors(pack_region(tables, region), region)
            terms = terms + factors.counts
            size = np.maximum(size, 2.0 * largest_entries(tables, region))
        # Two ends, each with a local field and an exponential; the parameters themselves were rounded on the way here.
        error = 2.0 * UNIT * ((2 * terms + 16) * size + 256.0)
        return cls(region, frozen(theta), frozen(fields), frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        """By the neighbours, whose sets in all runs of a batch are read."""
        near = 16 * self.region.size * self.batch <= IN_CACHE
        return (3.7 + (0.3 if near else 1.5) * np.diff(self.region.start)) / 5.0

    def begin(self, runs: int) -> NDArray[np.float64]:
        x = np.ones((2 * self.region.size, runs))
        x[: self.region.size] = -1.0
        return x

    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        shared = (self.region.start, self.region.neighbor, self.theta, self.fields)
        sets.set_field(order, place, steps, number, stride, *shared, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        low, high = x[rows, :chains] > 0, x[self.region.size + rows, :chains] > 0
        return np.where(low == high, low, -1).astype(np.int16)
