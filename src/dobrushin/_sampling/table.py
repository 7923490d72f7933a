"""Tables of the conditional probabilities of binary variables with few neighbours, and the chains that they drive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import binary
from dobrushin._kernels.tables import binary_tables
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import Region
from dobrushin._sampling.array_kernel import ArrayKernel, Orders
from dobrushin._sampling.field import Field
from dobrushin._sampling.kernel import UNIT, Work
from dobrushin._sampling.local_factors import pack_region
from dobrushin._sampling.waves import repeats_long_cycles
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen

# Neighbours that a table of all configurations is made for.
MOST_NEIGHBORS = 6
# Thresholds that a table may have: 4 MB.
LARGEST_TABLE = 2**19


class Conditionals(NamedTuple):
    """Neighbours (rows are filled up with a dummy), P(1) for each of their configurations, and its error."""

    neighbor: NDArray[np.int64]
    probability: NDArray[np.float64]
    error: NDArray[np.float64]


def fits_table(form: Form, region: Region) -> bool:
    """Whether all variables are binary and none has too many neighbours."""
    if region.degree > MOST_NEIGHBORS:
        return False
    return form.spins or bool((form.cardinalities[region.place] == 2).all())


def table_cells(region: Region) -> int:
    """Thresholds of a table for the updated variables."""
    return len(region.updated) * 2 ** max(4, region.degree)


def _spin_pairs(form: SpinPairs, region: Region, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    theta = np.zeros((region.size, width))
    theta[region.row, region.slot] = form.couplings.data[region.entry]
    field = form.fields[region.place]
    signs = 2.0 * ((np.arange(2**width)[:, None] >> np.arange(width)) & 1) - 1.0
    with np.errstate(over="ignore"):
        probability = 1.0 / (1.0 + np.exp(-2.0 * (field[:, None] + theta @ signs.T)))
    return probability, UNIT * ((width + 2) * (np.abs(theta).sum(axis=1) + np.abs(field)) + 8.0)


def _factors(form: FactorTables, region: Region, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    starts, packed = pack_region(form, region)
    rows, row_errors = np.zeros((len(region.updated), 2**width)), np.zeros(len(region.updated))
    binary_tables(
        frozen(starts), packed.f_start, packed.m_start, packed.m_of, packed.m_stride, packed.own_stride, packed.base,
        form.table, rows, row_errors,
    )  # fmt: skip
    probability, error = np.zeros((region.size, 2**width)), np.zeros(region.size)
    probability[region.updated], error[region.updated] = rows, row_errors
    return probability, error


_CONDITIONALS: dict[type[Form], Callable[[Any, Region, int], tuple[NDArray[np.float64], NDArray[np.float64]]]] = {
    SpinPairs: _spin_pairs,
    FactorTables: _factors,
}


def tabulate(form: Form, region: Region) -> Conditionals:
    """The table of a region that fits."""
    width = 4 if region.degree <= 4 else 6
    neighbor = np.full((region.size, width), region.size, dtype=np.int64)
    neighbor[region.row, region.slot] = region.neighbor
    form, conditionals = widen(form, _CONDITIONALS)
    probability, error = conditionals(form, region, width)
    return Conditionals(frozen(neighbor), frozen(probability), frozen(np.minimum(error, 1.0)))


@dataclass(frozen=True)
class Table(ArrayKernel):
    """One chain of binary variables with at most 6 neighbours, by tables of thresholds."""

    region: Region
    neighbor: NDArray[np.int64]
    threshold: NDArray[np.uint64]  # 2^63 P(1)
    error: NDArray[np.float64]
    orders: Orders = field(default_factory=dict)
    name: ClassVar[str] = "table"
    rate: ClassVar[float] = 1.5e8

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan
        return fits_table(form, region)

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        # A table costs as much as some draws for each of its entries, and is slow where it does not fit in a cache.
        cells = table_cells(region)
        pays = len(scan) * chains > 4 * cells and cells < LARGEST_TABLE and not repeats_long_cycles(scan)
        return pays or not Field.fits(form, scan, region)  # only local fields are faster

    @classmethod
    def make(cls, form: Form, region: Region) -> Table:
        neighbor, probability, error = tabulate(form, region)
        threshold = np.rint(probability * 2.0**63).astype(np.uint64)
        return cls(region, neighbor, frozen(threshold), np.minimum(error + 2.0**-52, 1.0))

    def run(self, x: NDArray[np.int8], work: Work) -> None:
        keys = work.keys(1)
        shared = (self.neighbor.ravel(), self.threshold.ravel(), self.neighbor.shape[1] > 4)
        for c, lists in enumerate(self.steps_of_chains(work, keys)):
            state = x[:, c].copy()
            for steps in lists:
                binary.table_steps(*steps, *shared, keys[0, c], keys[1, c], state)
            x[:, c] = state
