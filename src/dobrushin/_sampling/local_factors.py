"""The factors of the variables that a scan updates, as kernels go through them."""

from __future__ import annotations

from functools import cached_property
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
        """How many factors each variable has."""
        return np.diff(self.f_start)


def local_factors(packed: Packed, region: Region) -> LocalFactors:
    """The factors of the updated variables of a region."""
    factors = np.repeat(np.arange(len(region.updated)), np.diff(packed.f_start))
    row = np.repeat(factors, np.diff(packed.m_start))
    member = region.neighbor[packed.start[row] + packed.m_of].astype(np.int64)
    counts = np.zeros(region.size, dtype=np.int64)
    counts[region.updated] = np.diff(packed.f_start)
    parts: Any = (
        prefix_sums(counts),
        packed.m_start,
        member,
        packed.m_stride,
        packed.own_stride,
        packed.base,
        packed.table,
    )
    return LocalFactors(*map(frozen, parts))


def pack_region(form: FactorTables, region: Region) -> Packed:
    """The factors of the updated variables."""
    starts = prefix_sums(np.diff(region.start)[region.updated])
    return pack_factors(form, region.place[region.updated], starts, region.place[region.neighbor])


def largest_entries(form: FactorTables, region: Region) -> NDArray[np.float64]:
    """For each variable of a region, the sum of the largest finite entries of its factors; 0 if it is not updated."""
    used = _Used(form, region)
    least, largest = used.extremes
    return used.sum(np.maximum(largest, -least))


def ranges(form: FactorTables, region: Region) -> NDArray[np.float64]:
    """The same with the differences between the largest and the least finite entry of each factor."""
    used = _Used(form, region)
    least, largest = used.extremes
    return used.sum(largest - least)


def table_sizes(form: FactorTables, region: Region) -> NDArray[np.float64]:
    """The same with the sizes of the tables."""
    used = _Used(form, region)
    return used.sum(used.sizes)


class _Used:
    """The factors of the updated variables; each is looked at once, and nothing else of the form."""

    def __init__(self, form: FactorTables, region: Region) -> None:
        place = region.place[region.updated]
        counts = form.factor_start[place + 1] - form.factor_start[place]
        _, slot = row_entries(form.factor_start[place], counts)
        self._row, self._size = np.repeat(region.updated, counts), region.size
        self._form, self._factor = form, form.factor_of[slot]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Of the table of each factor."""
        return self._form.table_start[self._factor + 1] - self._form.table_start[self._factor]

    @cached_property
    def extremes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Least and largest finite entry of each table."""
        form = self._form
        if 8 * len(self._factor) > form.n_factors:
            least, largest = form.extremes
            return least[self._factor], largest[self._factor]
        some = distinct(self._factor, form.n_factors)
        start, cells = row_entries(form.table_start[some], form.table_start[some + 1] - form.table_start[some])
        least, largest = finite_extremes(form.table[cells], start)
        number = np.searchsorted(some, self._factor)
        return least[number], largest[number]

    def sum(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sums of values of factors, for each variable of the region."""
        return np.bincount(self._row, weights=values, minlength=self._size).astype(np.float64)
