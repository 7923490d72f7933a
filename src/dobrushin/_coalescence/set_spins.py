"""Bounding sets of spins, held as the lowest and the highest possible state. [trusted]

One kernel packs 64 runs into a word; the other computes local fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._coalescence.device_sets import DeviceSetBits
from dobrushin._coalescence.sets import SetKernel, SetSteps
from dobrushin._kernels import bits
from dobrushin._kernels.sets import set_field
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import ScanRegion
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms
from dobrushin._sampling.bits import MAX_NEIGHBORS, bit_thresholds, tabulate
from dobrushin._sampling.kernel import CACHE_BYTES
from dobrushin._sampling.labels import local_factors, pack_region, sum_factors
from dobrushin._shared.arrays import UNIT, frozen


@dataclass(frozen=True)
class SetBits(SetKernel):
    """Kernel of bounding sets that packs 64 runs into a word, for spins with pair couplings to at most 6 neighbours."""

    region: ScanRegion
    neighbor: NDArray[np.int64]  # rows of the neighbours' states with the smallest chance of state 1, then the largest
    threshold: NDArray[np.uint64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set bits"
    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 4096
    rate: ClassVar[float] = 3.4e9
    twin: ClassVar[Any] = DeviceSetBits

    @classmethod
    def fits(cls, form: Form) -> bool:
        degree = int(np.diff(form.adjacency[0]).max(initial=0))
        return degree <= MAX_NEIGHBORS and has_spin_pairs(form)

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> SetBits:
        neighbor, probability, error = tabulate(form, region)
        size = region.size
        follows = np.ones(neighbor.shape, dtype=np.bool_)
        follows[region.row, region.slot] = spin_pairs(form).couplings.data[region.entry] >= 0
        absent = neighbor == size
        low, high = np.where(absent, 2 * size, neighbor), np.where(absent, 2 * size, size + neighbor)
        rows = np.concatenate([np.where(follows, low, high), np.where(follows, high, low)], axis=1)
        # Both ends of a set are rounded.
        error = np.minimum(2.0 * (error + 2.0**-52), 1.0)
        return cls(region, frozen(rows), frozen(bit_thresholds(probability)), frozen(error))

    @property
    def costs(self) -> NDArray[np.float64]:
        return np.full(self.region.size, 4.5 if self.neighbor.shape[1] > 8 else 1.0)

    @property
    def step(self) -> float:
        return 5e-7 if self.neighbor.shape[1] > 8 else 2.5e-7

    def device_tables(self) -> tuple[Any, ...]:
        return self.neighbor.astype(np.uint32), self.threshold, np.uint32(self.region.size)

    @property
    def device_loop(self) -> str:
        return f"set_bits{self.neighbor.shape[1] // 2}"

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint64]:
        size = self.region.size
        x = np.zeros((2 * size + 1, -(-len(chains) // 64)), dtype=np.uint64)
        x[size : 2 * size] = ~np.uint64(0)
        return x

    def go(self, x: NDArray[Any], steps: SetSteps, keys: NDArray[np.uint64]) -> None:
        never = np.zeros(self.threshold.shape[1], dtype=np.bool_)
        wide = True if self.neighbor.shape[1] > 8 else None
        bits.set_bits(*steps, wide, self.neighbor, self.threshold, frozen(never), keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int16)
        bits.settled_bits(x, self.region.size, rows, out)
        return out


@dataclass(frozen=True)
class SetField(SetKernel):
    """Kernel of bounding sets by local fields, for spins with pair couplings and any number of neighbours."""

    region: ScanRegion
    theta: NDArray[np.float64]
    fields: NDArray[np.float64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set field"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    rate: ClassVar[float] = 2.5e8

    @classmethod
    def fits(cls, form: Form) -> bool:
        return has_spin_pairs(form)

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> SetField:
        spins = spin_pairs(form)
        theta, fields = spins.couplings.data[region.entry], spins.fields[region.place]
        terms = np.diff(region.start).astype(np.int64)
        size = np.abs(fields) + terms * np.abs(theta).max(initial=0.0)
        if spins is not form:  # couplings and fields are sums of terms, which may have cancelled
            tables = form.tables()
            factors = local_factors(pack_region(tables, region), region)
            terms = terms + factors.counts
            size = np.maximum(size, 2.0 * sum_factors(tables, region).largest)
        # Two ends, each with a local field and an exponential; `spin_pairs` has rounded couplings and fields.
        error = 2.0 * UNIT * ((2 * terms + 16) * size + 256.0)
        return cls(region, frozen(theta), frozen(fields), frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        # An update reads the sets of all neighbours in all runs of a batch.
        near = 16 * self.region.size * self.batch <= CACHE_BYTES
        return (3.7 + (0.3 if near else 1.5) * np.diff(self.region.start)) / 5.0

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.float64]:
        x = np.ones((2 * self.region.size, len(chains)))
        x[: self.region.size] = -1.0
        return x

    def go(self, x: NDArray[Any], steps: SetSteps, keys: NDArray[np.uint64]) -> None:
        shared = (self.region.start, self.region.neighbor, self.theta, self.fields)
        set_field(*steps, *shared, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        low, high = x[rows, :chains] > 0, x[self.region.size + rows, :chains] > 0
        return np.where(low == high, low, -1).astype(np.int16)


# -- binary models as spins with couplings and fields ---------------------------------------------

# Largest number of variables in a term, by form.
_ORDERS: dict[type[Form], Callable[[Any], int]] = {
    SpinPairs: lambda _: 2,
    LabelPairs: lambda _: 2,
    PairTables: lambda _: 2,
    SpinTerms: lambda form: int(form.order),
    FactorTables: lambda form: int(np.diff(form.scope_start).max(initial=0)),
}


def has_spin_pairs(form: Form) -> bool:
    """Return whether all variables are binary, all terms have at most two variables, and no state is forbidden."""
    if (form.cardinalities != 2).any() or form.has_zeros:
        return False
    form, order = widen(form, _ORDERS)
    return order(form) <= 2


def spin_pairs(form: Form) -> SpinPairs:
    """Return a model for which `has_spin_pairs` holds as spins with couplings and fields; neighbours stay the same."""
    if isinstance(form, SpinPairs):
        return form
    graph = form.tables()
    arity, n = np.diff(graph.scope_start), graph.n_variables
    fields = np.zeros(n)
    single = np.flatnonzero(arity == 1)
    tables = graph.table[graph.table_start[single][:, None] + np.arange(2)]
    np.add.at(fields, graph.scope[graph.scope_start[single]], 0.5 * (tables[:, 1] - tables[:, 0]))
    double = np.flatnonzero(arity == 2)
    t00, t01, t10, t11 = graph.table[graph.table_start[double][:, None] + np.arange(4)].T
    i, j = graph.scope[graph.scope_start[double]], graph.scope[graph.scope_start[double] + 1]
    np.add.at(fields, i, 0.25 * ((t10 - t00) + (t11 - t01)))
    np.add.at(fields, j, 0.25 * ((t01 - t00) + (t11 - t10)))
    strength = 0.25 * ((t00 - t01) + (t11 - t10))
    # Variables whose couplings cancel stay neighbours.
    start, columns = form.adjacency
    entries = np.repeat(np.arange(n), np.diff(start)) * n + columns
    values = np.zeros(len(columns))
    np.add.at(values, np.searchsorted(entries, i * n + j), strength)
    np.add.at(values, np.searchsorted(entries, j * n + i), strength)
    return SpinPairs(sparse.csr_array((values, columns, start), (n, n)), fields)
