"""The factors of the variables that a scan updates, as kernels go through them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.factors import Packed, pack_factors
from dobrushin._models.factors import FactorTables, finite_extremes
from dobrushin._models.near import Region
from dobrushin._shared.arrays import distinct, frozen, prefix_sums, row_entries


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
