"""Chains of variables with any number of states: Potts models, and any model by the tables of its factors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.theorems import Packed, pack_factors
from dobrushin._kernels import conditional, labels
from dobrushin._kernels.waves import potts_waves
from dobrushin._models.factors import FactorTables, finite_extremes
from dobrushin._models.forms import Form
from dobrushin._models.memory import Slot
from dobrushin._models.near import Numbering, Region
from dobrushin._models.potts import LabelPairs
from dobrushin._sampling.array_kernel import FEW_CHAINS, ArrayKernel, StepList, WaveKernel, WaveOrder
from dobrushin._sampling.kernel import CACHE_BYTES, Batches, Work
from dobrushin._scan import Cycle, Scan
from dobrushin._shared.arrays import UNIT, distinct, frozen, prefix_sums, row_entries

# Log-weights of a variable that differ by more could overflow as exponentials, or underflow in products.
SAFE_EXPONENT = 500.0
# All measured by benchmarks/tables.py.
# Numbers in the table of all joint states of the neighbours, and of each group where that would be larger.
MAX_WHOLE_CELLS, MAX_GROUP_CELLS = 2**12, 2**10
# Numbers in all tables of a kernel: 64 MB. Groups are made smaller to fit, down to single factors.
MAX_TABLE_CELLS = 2**23
# Numbers of a table that cost as much as an update.
CELLS_PER_UPDATE = 4


@dataclass(frozen=True)
class PottsKernel(WaveKernel):
    """Chains of a Potts model side by side, few of them in waves."""

    region: Region
    weights: NDArray[np.float64]  # exponentials of couplings
    unary: NDArray[np.float64]  # exponentials
    error: NDArray[np.float64]
    orders: dict[tuple[str, Cycle | None], Any] = field(default_factory=dict, compare=False)
    by_levels: ClassVar[bool] = True
    name: ClassVar[str] = "potts"
    rate: ClassVar[float] = 5e7
    has_twin: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        return isinstance(form, LabelPairs) and _largest_exponent(form, region) < SAFE_EXPONENT

    @classmethod
    def make(cls, form: Any, region: Region) -> PottsKernel:
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

    def device_tables(self) -> tuple[Any, ...]:
        rows = (self.region.start.astype(np.int32), self.region.neighbor.astype(np.int32))
        return *rows, self.weights, self.unary

    @property
    def largest(self) -> int:
        return self.unary.shape[1]

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        shared = (self.region.start, self.region.neighbor, self.weights, self.unary)
        if x.shape[1] > 1:
            labels.potts_lanes(*steps, *shared, keys, x)
        elif not self.run_in_waves(work, steps, keys, x[:-1, 0]):
            labels.potts_chain(*steps, *shared, *keys[:, 0], x[:-1, 0])

    def sweep(self, wave: WaveOrder, sweeps: int, step: int, keys: NDArray[np.uint64], stored: NDArray[Any]) -> None:
        potts_waves(sweeps, step, *wave.arguments(frozen(self.unary[wave.variables].T)), *keys[:, 0], stored)


def _largest_exponent(form: Any, region: Region) -> float:
    """Return the largest exponent that a product of weights can have."""
    sums = _row_sums(np.abs(form.couplings.data[region.entry]), region)
    unary = form.unaries[region.place]
    gap = unary.max(axis=1) - np.where(unary > -np.inf, unary, np.inf).min(axis=1)
    return float((sums + gap).max())


def _row_sums(values: NDArray[np.float64], region: Region) -> NDArray[np.float64]:
    return np.bincount(region.row, weights=values, minlength=region.size).astype(np.float64)


# -- any model, by the tables of its factors -----------------------------------------------------


class LocalFactors(NamedTuple):
    """The factors of each variable of a region as in `Packed`, but with members by own number; and their tables."""

    f_start: NDArray[np.int64]
    m_start: NDArray[np.int64]
    member: NDArray[np.int64]
    m_stride: NDArray[np.int64]
    own_stride: NDArray[np.int64]
    base: NDArray[np.int64]
    table: NDArray[np.float64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of factors of each variable."""
        return np.diff(self.f_start)


def local_factors(packed: Packed, region: Region) -> LocalFactors:
    """Return the factors of the updated variables of a region."""
    factors = np.repeat(np.arange(len(region.updated)), np.diff(packed.f_start))
    row = np.repeat(factors, np.diff(packed.m_start))
    member = region.neighbor[packed.start[row] + packed.m_of].astype(np.int64)
    counts = np.zeros(region.size, dtype=np.int64)
    counts[region.updated] = np.diff(packed.f_start)
    places = (packed.m_stride, packed.own_stride, packed.base)
    parts: Any = (prefix_sums(counts), packed.m_start, member, *places, packed.table)
    return LocalFactors(*map(frozen, parts))


def pack_region(form: FactorTables, region: Region) -> Packed:
    """Return the factors of the updated variables as `Packed`."""
    starts = prefix_sums(np.diff(region.start)[region.updated])
    return pack_factors(form, region.place[region.updated], starts, region.place[region.neighbor])


class FactorSums(NamedTuple):
    """Sums over the factors of each variable of a region; 0 for variables that are not updated."""

    largest: NDArray[np.float64]  # of the largest absolute values of finite entries
    range: NDArray[np.float64]  # of the differences between the largest and the least finite entries
    entries: NDArray[np.float64]  # of the numbers of entries


def sum_factors(form: FactorTables, region: Region) -> FactorSums:
    """Return sums over the factors of each variable; every factor is looked at once, and nothing else of the form."""
    place = region.place[region.updated]
    counts = form.factor_start[place + 1] - form.factor_start[place]
    _, slot = row_entries(form.factor_start[place], counts)
    row, factor = np.repeat(region.updated, counts), form.factor_of[slot]
    if 8 * len(factor) > form.n_factors:
        least, largest = (values[factor] for values in form.extremes)
    else:
        some = distinct(factor, form.n_factors)
        start, entries = row_entries(form.table_start[some], form.table_start[some + 1] - form.table_start[some])
        number = np.searchsorted(some, factor)
        least, largest = (values[number] for values in finite_extremes(form.table[entries], start))
    sizes = form.table_start[factor + 1] - form.table_start[factor]
    sums = (np.maximum(largest, -least), largest - least, sizes)
    return FactorSums(*(np.bincount(row, weights=values, minlength=region.size).astype(np.float64) for values in sums))


class LabelsKernel(ArrayKernel):
    """Chains of variables with any numbers of states, by tables: those of all chains are looked up side by side."""

    states: NDArray[np.int64]  # how many each variable has

    @property
    def largest(self) -> int:
        return int(self.states.max())

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.states


@dataclass(frozen=True)
class FactorsKernel(LabelsKernel):
    """Chains of any model, by logarithms: few chains, short runs, and potentials that tables cannot hold."""

    region: Region
    states: NDArray[np.int64]
    factors: LocalFactors
    error: NDArray[np.float64]
    name: ClassVar[str] = "factors"
    rate: ClassVar[float] = 1e7
    has_twin: ClassVar[bool] = True
    is_kept: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        return form.has_tables

    @classmethod
    def make(cls, form: Form, region: Region) -> FactorsKernel:
        tables = form.tables()
        return cls.of(tables, region, pack_region(tables, region))

    @classmethod
    def of(cls, tables: FactorTables, region: Region, packed: Packed) -> FactorsKernel:
        """Return the kernel of factors that were packed already."""
        factors = local_factors(packed, region)
        k = tables.cardinalities[region.place]
        error = UNIT * (8.0 * (factors.counts + 2) * sum_factors(tables, region).largest + 8.0 * (k + 4))
        return cls(region, frozen(k), factors, frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        """By the entries of the tables that an update looks at, which take longer when they are far apart."""
        cells = self.states * self.factors.counts
        far = self.factors.table.nbytes > CACHE_BYTES
        return (28.0 + 4.0 * self.factors.counts + (4.0 if far else 1.0) * cells) / 52.0

    def device_tables(self) -> tuple[Any, ...]:
        narrow = (part.astype(np.int32) for part in (self.states, *self.factors[:-2]))
        return *narrow, self.factors.base.astype(np.int64), self.factors.table

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        labels.factor_steps(*steps, self.states, *self.factors, keys, x)


class FactorGroups(NamedTuple):
    """The groups of each variable of a region; see `_kernels.conditional`."""

    g_start: NDArray[np.int64]
    m_start: NDArray[np.int64]
    member: NDArray[np.int64]
    stride: NDArray[np.int64]
    first: NDArray[np.int64]
    table: NDArray[np.float64]


@dataclass(frozen=True)
class ConditionalKernel(LabelsKernel):
    """A kernel for all models whose potentials are not too large: conditionals come from tables and their products."""

    region: Region
    states: NDArray[np.int64]
    groups: FactorGroups
    error: NDArray[np.float64]
    name: ClassVar[str] = "conditional"
    rate: ClassVar[float] = 3e7
    batch: ClassVar[int] = 256
    has_twin: ClassVar[bool] = True
    is_kept: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        return form.has_tables and _extent(form, region).exponent < SAFE_EXPONENT

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        # A number of a table costs as much as some part of a draw. Tables that are too large cost memory, and one chain
        # is as fast without them where a variable has several.
        extent = _extent(form, region)
        numbers = min(extent.whole, max(extent.single, MAX_TABLE_CELLS))
        pays = len(scan) * chains * CELLS_PER_UPDATE > numbers
        return pays and extent.single <= MAX_TABLE_CELLS and (chains >= FEW_CHAINS or extent.is_whole)

    @classmethod
    def make(cls, form: Form, region: Region) -> ConditionalKernel:
        tables = form.tables()
        packed = pack_region(tables, region)
        plain = FactorsKernel.of(tables, region, packed)
        # Besides the roundings of `factors`: an exponential and a product for each group; there are no more groups than
        # factors.
        error = np.minimum(plain.error + 8.0 * UNIT * plain.factors.counts, 1.0)
        return cls(region, plain.states, make_groups(packed, region), frozen(error))

    @property
    def costs(self) -> NDArray[np.float64]:
        """By the rows that an update looks at."""
        rows, k = np.diff(self.groups.g_start), self.states
        one, several = 1.0 + 0.75 * k, 3.0 + 0.4 * k + 0.25 * rows * (k + 3)
        return np.where(rows <= 1, one, several) / 10.0

    def device_tables(self) -> tuple[Any, ...]:
        groups = self.groups
        narrow = (part.astype(np.int32) for part in (self.states, groups.g_start, groups.m_start, groups.member))
        return *narrow, groups.stride, groups.first, groups.table

    def batches(self, numbers: range, cores: int) -> Batches:
        """Return batches of at least FEW_CHAINS chains, which look rows up together."""
        return Batches(numbers, max(FEW_CHAINS, super().batches(numbers, cores).size))

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        conditional.conditional_steps(*steps, self.states, *self.groups, keys, x)


class Extent(NamedTuple):
    """Sizes of the tables of a region: one for each variable, cut at twice the limit, or one for each factor."""

    exponent: float  # largest difference of log-weights of a variable
    whole: float
    single: float
    is_whole: bool  # whether one table for each variable is allowed


# The extent of the tables of all variables of a form, which is needed more than once.
_EXTENT: Slot[Extent] = Slot("extent of tables")


def _extent(form: Form, region: Region) -> Extent:
    if len(region.updated) < form.n_variables:
        return _find_extent(form, region)
    return form.memory.get(_EXTENT, lambda: _find_extent(form, region))


def _find_extent(form: Form, region: Region) -> Extent:
    k, tables = form.cardinalities[region.place], form.tables()
    logs = np.bincount(region.row, weights=np.log(k[region.neighbor]), minlength=region.size) + np.log(k)
    whole = np.exp(np.minimum(logs[region.updated], np.log(2.0 * MAX_WHOLE_CELLS)))
    sums = sum_factors(tables, region)
    is_whole = bool((whole <= MAX_WHOLE_CELLS).all())
    return Extent(float(sums.range.max(initial=0.0)), float(whole.sum()), float(sums.entries.sum()), is_whole)


def make_groups(packed: Packed, region: Region) -> FactorGroups:
    """Return the groups of the updated variables: as large as the limits allow."""
    rows, factors = len(packed.k_own), len(packed.base)
    group, counts = np.empty(factors, dtype=np.int64), np.empty(rows, dtype=np.int64)
    masks = np.zeros(factors + rows, dtype=np.uint64)
    shape = (packed.k_own, packed.start, packed.k_other)
    scopes = (packed.f_start, packed.m_start, packed.m_of)
    for less in (1, 8, 64, MAX_WHOLE_CELLS):
        members, numbers = conditional.group_factors(
            *shape, *scopes, MAX_WHOLE_CELLS // less, MAX_GROUP_CELLS // less, group, counts, masks
        )
        if numbers <= MAX_TABLE_CELLS:
            break
    tables = FactorGroups(
        prefix_sums(Numbering(region.size, region.updated).spread(counts, 0)),
        np.empty(int(counts.sum()) + 1, dtype=np.int64),
        np.empty(int(members), dtype=np.int64),
        np.empty(int(members), dtype=np.int64),
        np.empty(int(counts.sum()), dtype=np.int64),
        np.empty(int(numbers)),
    )
    values = (packed.m_stride, packed.own_stride, packed.base, packed.table)
    conditional.fill_groups(*shape, region.neighbor, *scopes, *values, group, counts, masks, *tables[1:])
    return FactorGroups(*map(frozen, tables))
