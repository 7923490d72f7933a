"""Kernels for variables with any number of states: Potts models, and general models by their factors."""

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
from dobrushin._models.near import Numbering, ScanRegion
from dobrushin._models.potts import LabelPairs
from dobrushin._sampling.array_kernel import FEW_CHAINS, ArrayKernel, StepList, WaveKernel
from dobrushin._sampling.cuda.device_kernel import DeviceLabels
from dobrushin._sampling.kernel import CACHE_BYTES, Work, narrowed
from dobrushin._scan import Cycle, Scan
from dobrushin._shared.arrays import UNIT, distinct, frozen, prefix_sums, row_entries

# Log-weights of a variable that differ by more could overflow in exponentials, or underflow in products.
SAFE_EXPONENT = 500.0
# All measured by benchmarks/tables.py.
# Entries of the table over all joint states of a variable's neighbours; and of each group of neighbours otherwise.
MAX_WHOLE_CELLS, MAX_GROUP_CELLS = 2**12, 2**10
# Entries of all tables of a kernel: 64 MB. Groups are made smaller to fit, down to single factors.
MAX_TABLE_CELLS = 2**23
# Table entries whose computation takes as long as an update.
CELLS_PER_UPDATE = 4


@dataclass(frozen=True)
class PottsKernel(WaveKernel):
    """Kernel for Potts models: many chains side by side, or few chains on long cycles in waves of commuting steps."""

    region: ScanRegion
    weights: NDArray[np.float64]  # exponentials of couplings
    unary: NDArray[np.float64]  # exponentials
    error: NDArray[np.float64]
    orders: dict[tuple[str, Cycle | None], Any] = field(default_factory=dict, compare=False)
    by_levels: ClassVar[bool] = True
    name: ClassVar[str] = "potts"
    rate: ClassVar[float] = 1.8e8
    twin: ClassVar[Any] = DeviceLabels

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        return isinstance(form, LabelPairs) and _largest_exponent(form, region) < SAFE_EXPONENT

    @classmethod
    def make(cls, form: Any, region: ScanRegion) -> PottsKernel:
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
        return *narrowed(self.region.start, self.region.neighbor), self.weights, self.unary

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.array([self.unary.shape[1]])

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        shared = (self.region.start, self.region.neighbor, self.weights, self.unary)
        if x.shape[1] > 1:
            labels.potts_lanes(*steps, *shared, keys, x)
        elif not self.run_in_waves(potts_waves, self.unary, work, steps, keys, x[:-1, 0]):
            labels.potts_chain(*steps, *shared, *keys[:, 0], x[:-1, 0])


def _largest_exponent(form: Any, region: ScanRegion) -> float:
    """Return the largest difference between two log-weights of a variable, over all states of its neighbours."""
    sums = _row_sums(np.abs(form.couplings.data[region.entry]), region)
    unary = form.unaries[region.place]
    gap = unary.max(axis=1) - np.where(unary > -np.inf, unary, np.inf).min(axis=1)
    return float((sums + gap).max())


def _row_sums(values: NDArray[np.float64], region: ScanRegion) -> NDArray[np.float64]:
    return np.bincount(region.row, weights=values, minlength=region.size).astype(np.float64)


# -- any model, by the tables of its factors -----------------------------------------------------


class LocalFactors(NamedTuple):
    """The factors and tables of each variable of a region, in the arrays that the loop `factor_steps` takes."""

    f_start: NDArray[np.int64]
    m_start: NDArray[np.int64]
    member: NDArray[np.int64]
    m_stride: NDArray[np.int64]
    own_stride: NDArray[np.int64]
    base: NDArray[np.int64]
    table: NDArray[np.float64]

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.f_start)


def local_factors(packed: Packed, region: ScanRegion) -> LocalFactors:
    """Return the factors of the updated variables of a region, with neighbours by number in the region."""
    factors = np.repeat(np.arange(len(region.updated)), np.diff(packed.f_start))
    row = np.repeat(factors, np.diff(packed.m_start))
    member = region.neighbor[packed.start[row] + packed.m_of].astype(np.int64)
    counts = np.zeros(region.size, dtype=np.int64)
    counts[region.updated] = np.diff(packed.f_start)
    places = (packed.m_stride, packed.own_stride, packed.base)
    parts: Any = (prefix_sums(counts), packed.m_start, member, *places, packed.table)
    return LocalFactors(*map(frozen, parts))


def pack_region(form: FactorTables, region: ScanRegion) -> Packed:
    """Return the factors of the updated variables in the arrays of a `Packed`."""
    starts = prefix_sums(np.diff(region.start)[region.updated])
    return pack_factors(form, region.place[region.updated], starts, region.place[region.neighbor])


class FactorSums(NamedTuple):
    """Sizes summed over all factors of a variable, for each variable of a region; 0 if it is not updated."""

    largest: NDArray[np.float64]  # sum of largest absolute values of finite entries
    range: NDArray[np.float64]  # sum of differences between the largest and the least finite entry
    entries: NDArray[np.float64]  # sum of numbers of entries


def sum_factors(form: FactorTables, region: ScanRegion) -> FactorSums:
    """Return, for each updated variable, sums over its factors: of their largest values, ranges and table entries."""
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
    """Base class of kernels for variables with any numbers of states, from tables of factors."""

    states: NDArray[np.int64]  # number of states of each variable
    twin: ClassVar[Any] = DeviceLabels
    is_kept: ClassVar[bool] = True

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.states


@dataclass(frozen=True)
class FactorsKernel(LabelsKernel):
    """Kernel for any model that adds log-potentials: for few chains, short runs, and very large potentials."""

    region: ScanRegion
    states: NDArray[np.int64]
    factors: LocalFactors
    error: NDArray[np.float64]
    name: ClassVar[str] = "factors"
    rate: ClassVar[float] = 2.1e7

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        return form.has_tables

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> FactorsKernel:
        tables = form.tables()
        return cls.of(tables, region, pack_region(tables, region))

    @classmethod
    def of(cls, tables: FactorTables, region: ScanRegion, packed: Packed) -> FactorsKernel:
        """Make the kernel from factors that were packed before."""
        factors = local_factors(packed, region)
        k = tables.cardinalities[region.place]
        error = UNIT * (8.0 * (factors.counts + 2) * sum_factors(tables, region).largest + 8.0 * (k + 4))
        return cls(region, frozen(k), factors, frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        # An update reads entries of tables, which takes longer when the tables do not fit in the cache.
        cells = self.states * self.factors.counts
        far = self.factors.table.nbytes > CACHE_BYTES
        return (28.0 + 4.0 * self.factors.counts + (4.0 if far else 1.0) * cells) / 52.0

    def device_tables(self) -> tuple[Any, ...]:
        return *narrowed(self.states, *self.factors[:-2]), self.factors.base.astype(np.int64), self.factors.table

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        labels.factor_steps(*steps, self.states, *self.factors, keys, x)


class FactorGroups(NamedTuple):
    """Products of groups of factors for each variable of a region, in the arrays that `conditional_steps` takes."""

    g_start: NDArray[np.int64]
    m_start: NDArray[np.int64]
    member: NDArray[np.int64]
    stride: NDArray[np.int64]
    first: NDArray[np.int64]
    table: NDArray[np.float64]


@dataclass(frozen=True)
class ConditionalKernel(LabelsKernel):
    """Kernel for models without very large potentials, from tables of conditional probabilities or of weights."""

    region: ScanRegion
    states: NDArray[np.int64]
    groups: FactorGroups
    error: NDArray[np.float64]
    name: ClassVar[str] = "conditional"
    rate: ClassVar[float] = 1.3e8
    batch: ClassVar[int] = 256
    min_batch: ClassVar[int] = FEW_CHAINS  # chains side by side look rows up together

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        return form.has_tables and _extent(form, region).exponent < SAFE_EXPONENT

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: ScanRegion, chains: int) -> bool:
        # Making an entry of a table takes part of a draw. Very large tables cost memory, and a single chain is as fast
        # without tables where a variable has several of them.
        extent = _extent(form, region)
        numbers = min(extent.whole, max(extent.single, MAX_TABLE_CELLS))
        pays = len(scan) * chains * CELLS_PER_UPDATE > numbers
        return pays and extent.single <= MAX_TABLE_CELLS and (chains >= FEW_CHAINS or extent.is_whole)

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> ConditionalKernel:
        tables = form.tables()
        packed = pack_region(tables, region)
        plain = FactorsKernel.of(tables, region, packed)
        # To the roundings of FactorsKernel each group adds an exponential and a product, and a variable has at most as
        # many groups as factors.
        error = np.minimum(plain.error + 8.0 * UNIT * plain.factors.counts, 1.0)
        return cls(region, plain.states, make_groups(packed, region), frozen(error))

    @property
    def costs(self) -> NDArray[np.float64]:
        rows, k = np.diff(self.groups.g_start), self.states
        one, several = 0.4 + 0.4 * k, 3.0 + 0.4 * k + 0.25 * rows * (k + 3)
        return np.where(rows <= 1, one, several) / 10.0

    def device_tables(self) -> tuple[Any, ...]:
        groups = self.groups
        narrow = narrowed(self.states, groups.g_start, groups.m_start, groups.member)
        return *narrow, groups.stride, groups.first, groups.table

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        conditional.conditional_steps(*steps, self.states, *self.groups, keys, x)


class Extent(NamedTuple):
    """Sizes of the tables that a region needs, by which `ConditionalKernel` decides whether tables pay."""

    exponent: float  # largest difference of log-weights of a variable
    whole: float  # entries with one table for each variable, each counted up to twice the limit
    single: float  # entries with one table for each factor
    is_whole: bool  # whether one table for each variable is within the limit


# Extent of the tables of all variables of a form, which `is_worth` and `fits` both need.
_EXTENT: Slot[Extent] = Slot("extent of tables")


def _extent(form: Form, region: ScanRegion) -> Extent:
    if len(region.updated) < form.n_variables:
        return _find_extent(form, region)
    return form.memory.get(_EXTENT, lambda: _find_extent(form, region))


def _find_extent(form: Form, region: ScanRegion) -> Extent:
    k, tables = form.cardinalities[region.place], form.tables()
    logs = np.bincount(region.row, weights=np.log(k[region.neighbor]), minlength=region.size) + np.log(k)
    whole = np.exp(np.minimum(logs[region.updated], np.log(2.0 * MAX_WHOLE_CELLS)))
    sums = sum_factors(tables, region)
    is_whole = bool((whole <= MAX_WHOLE_CELLS).all())
    return Extent(float(sums.range.max(initial=0.0)), float(whole.sum()), float(sums.entries.sum()), is_whole)


def make_groups(packed: Packed, region: ScanRegion) -> FactorGroups:
    """Multiply the factors of each updated variable in groups as large as the limits on table sizes allow."""
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
