"""Chains of any model with tables of factors that are made beforehand: products of few rows, or thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.factors import Packed
from dobrushin._kernels import conditional
from dobrushin._models.forms import Form
from dobrushin._models.memory import Slot
from dobrushin._models.near import Numbering, Region
from dobrushin._sampling.array_kernel import Orders, Steps, TableKernel
from dobrushin._sampling.factors import Factors
from dobrushin._sampling.kernel import UNIT, Batches, Runner
from dobrushin._sampling.local_factors import pack_region, ranges, table_sizes
from dobrushin._sampling.potts import FEW_CHAINS, SAFE_EXPONENT
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen, prefix_sums

# Numbers in the table of all joint states of the neighbours, and of each group where that would be larger.
WHOLE, GROUP = 2**12, 2**10
# Numbers in all tables of a kernel: 64 MB. Groups are made smaller to fit, down to single factors.
LARGEST_TABLES = 2**23
# A number of a table costs as much as this part of an update.
_CELLS_PER_UPDATE = 4


class Groups(NamedTuple):
    """The groups of each variable of a region; see `_kernels.conditional`."""

    g_start: NDArray[np.int64]
    m_start: NDArray[np.int64]
    member: NDArray[np.int64]
    stride: NDArray[np.int64]
    first: NDArray[np.int64]
    table: NDArray[np.float64]


@dataclass(frozen=True)
class Conditional(TableKernel):
    """Chains of any model whose potentials are not too large, by tables of conditionals and of products."""

    region: Region
    states: NDArray[np.int64]
    groups: Groups
    error: NDArray[np.float64]
    orders: Orders = field(default_factory=dict, compare=False)
    name: ClassVar[str] = "conditional"
    rate: ClassVar[float] = 3e7
    batch: ClassVar[int] = 256
    has_twin: ClassVar[bool] = True
    is_kept: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan
        return form.has_tables and _extent(form, region).exponent < SAFE_EXPONENT

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        # A number of a table costs as much as some part of a draw. Tables that are too large cost memory, and one chain
        # is as fast without them where a variable has several.
        extent = _extent(form, region)
        numbers = min(extent.whole, max(extent.single, LARGEST_TABLES))
        pays = len(scan) * chains * _CELLS_PER_UPDATE > numbers
        return pays and extent.single <= LARGEST_TABLES and (chains >= FEW_CHAINS or extent.is_whole)

    @classmethod
    def make(cls, form: Form, region: Region) -> Conditional:
        tables = form.tables()
        packed = pack_region(tables, region)
        plain = Factors.of(tables, region, packed)
        # Besides the roundings of `factors`: an exponential and a product for each group, of which there are no more.
        error = np.minimum(plain.error + 8.0 * UNIT * plain.factors.counts, 1.0)
        return cls(region, plain.states, make_groups(packed, region), frozen(error))

    @property
    def costs(self) -> NDArray[np.float64]:
        """By the rows that an update looks at."""
        rows, k = np.diff(self.groups.g_start), self.states
        one, several = 1.0 + 0.75 * k, 3.0 + 0.4 * k + 0.25 * rows * (k + 3)
        return np.where(rows <= 1, one, several) / 10.0

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.labels import DeviceConditional

        return DeviceConditional(self)

    def batches(self, numbers: range, cores: int) -> Batches:
        """Few chains are not spread so far that each of them looks rows up by itself."""
        return Batches(numbers, max(FEW_CHAINS, super().batches(numbers, cores).size))

    def run_steps(self, steps: Steps, keys: NDArray[np.uint64], x: NDArray[Any]) -> None:
        conditional.conditional_steps(*steps, self.states, *self.groups, keys, x)


class Extent(NamedTuple):
    """How large the tables of a region are: one for each variable, cut at twice what is allowed, or one a factor."""

    exponent: float  # most that log-weights of a variable can differ by
    whole: float
    single: float
    is_whole: bool  # whether one table for each variable is allowed


# Of all variables of a form, which are asked about more than once.
_EXTENT: Slot[Extent] = Slot("extent of tables")


def _extent(form: Form, region: Region) -> Extent:
    if len(region.updated) < form.n_variables:
        return _find_extent(form, region)
    return form.memory.get(_EXTENT, lambda: _find_extent(form, region))


def _find_extent(form: Form, region: Region) -> Extent:
    k, tables = form.cardinalities[region.place], form.tables()
    logs = np.bincount(region.row, weights=np.log(k[region.neighbor]), minlength=region.size) + np.log(k)
    whole = np.exp(np.minimum(logs[region.updated], np.log(2.0 * WHOLE)))
    exponent = float(ranges(tables, region).max(initial=0.0))
    single = float(table_sizes(tables, region).sum())
    return Extent(exponent, float(whole.sum()), single, bool((whole <= WHOLE).all()))


def make_groups(packed: Packed, region: Region) -> Groups:
    """The groups of the updated variables: as large as they may be, and so that all tables fit."""
    rows, factors = len(packed.k_own), len(packed.base)
    group, counts = np.empty(factors, dtype=np.int64), np.empty(rows, dtype=np.int64)
    masks = np.zeros(factors + rows, dtype=np.uint64)
    shape = (packed.k_own, packed.start, packed.k_other)
    scopes = (packed.f_start, packed.m_start, packed.m_of)
    for less in (1, 8, 64, WHOLE):
        members, numbers = conditional.group_factors(
            *shape, *scopes, WHOLE // less, GROUP // less, group, counts, masks
        )
        if numbers <= LARGEST_TABLES:
            break
    tables = Groups(
        prefix_sums(Numbering(region.size, region.updated).spread(counts, 0)),
        np.empty(int(counts.sum()) + 1, dtype=np.int64),
        np.empty(int(members), dtype=np.int64),
        np.empty(int(members), dtype=np.int64),
        np.empty(int(counts.sum()), dtype=np.int64),
        np.empty(int(numbers)),
    )
    values = (packed.m_stride, packed.own_stride, packed.base, packed.table)
    conditional.fill_groups(*shape, region.neighbor, *scopes, *values, group, counts, masks, *tables[1:])
    return Groups(*map(frozen, tables))
