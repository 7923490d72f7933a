"""Chains of any model, by the tables of its factors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.factors import Packed
from dobrushin._kernels import labels
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.array_kernel import Orders, Steps, TableKernel
from dobrushin._sampling.kernel import IN_CACHE, UNIT, Runner
from dobrushin._sampling.local_factors import LocalFactors, largest_entries, local_factors, pack_region
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen


@dataclass(frozen=True)
class Factors(TableKernel):
    """Chains of any model."""

    region: Region
    states: NDArray[np.int64]
    factors: LocalFactors
    error: NDArray[np.float64]
    orders: Orders = field(default_factory=dict, compare=False)
    name: ClassVar[str] = "factors"
    rate: ClassVar[float] = 1e7
    has_twin: ClassVar[bool] = True
    is_kept: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan, region
        return form.has_tables

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        del form, scan, region, chains
        return True

    @classmethod
    def make(cls, form: Form, region: Region) -> Factors:
        tables = form.tables()
        return cls.of(tables, region, pack_region(tables, region))

    @classmethod
    def of(cls, tables: FactorTables, region: Region, packed: Packed) -> Factors:
        """The kernel from factors that were packed already."""
        factors = local_factors(packed, region)
        k = tables.cardinalities[region.place]
        error = UNIT * (8.0 * (factors.counts + 2) * largest_entries(tables, region) + 8.0 * (k + 4))
        return cls(region, frozen(k), factors, frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        """By the cells of the tables that an update looks at, which take longer when they are far apart."""
        cells = self.states * self.factors.counts
        far = self.factors.table.nbytes > IN_CACHE
        return (28.0 + 4.0 * self.factors.counts + (4.0 if far else 1.0) * cells) / 52.0

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.labels import DeviceFactors

        return DeviceFactors(self)

    def run_steps(self, steps: Steps, keys: NDArray[np.uint64], x: NDArray[Any]) -> None:
        labels.factor_steps(*steps, self.states, *self.factors, keys, x)
