"""The factors of the variables that a scan updates, as kernels go through them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.factors import Packed, pack_factors
from dobrushin._models.factors import FactorTables
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
    return used.sum(np.maximum(used.largest, -used.least))


def ranges(form: FactorTables, region: Region) -> NDArray[np.float64]:
    """The same with the differences between the largest and the least finite entry of each factor."""
    used = _Used(form, region)
    return used.sum(used.largest - used.least)


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
        self._row, self._n = np.repeat(region.updated, counts), region.size
        self._form, self._factor = form, distinct(form.factor_of[slot], form.n_factors)
        self._number = np.searchsorted(self._factor, form.factor_of[slot])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Of the table of each factor."""
        start = self._form.table_start
        return start[self._factor + 1] - start[self._factor]

    @property
    def largest(self) -> NDArray[np.float64]:
        """Largest finite entry of each table, 0 for none."""
        return self._reduce(np.maximum, -np.inf)

    @property
    def least(self) -> NDArray[np.float64]:
        """The least."""
        return self._reduce(np.minimum, np.inf)

    def _reduce(self, extreme: np.ufunc, nothing: float) -> NDArray[np.float64]:
        if not len(self._factor):
            return np.zeros(0)
        start, cells = row_entries(self._form.table_start[self._factor], self.sizes)
        values = self._form.table[cells]
        values = np.where(values > -np.inf, values, nothing)
        found: NDArray[np.float64] = extreme.reduceat(values, start[:-1])
        return np.where(np.isfinite(found), found, 0.0)

    def sum(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sums of values of factors, for each variable of the region."""
        return np.bincount(self._row, weights=values[self._number], minlength=self._n).astype(np.float64)
