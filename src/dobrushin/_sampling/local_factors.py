"""The factors of the variables that a scan updates, as kernels go through them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.factors import Packed, pack_factors
from dobrushin._models.factors import FactorTables
from dobrushin._models.near import Region
from dobrushin._shared.arrays import frozen, prefix_sums


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


def local_factors(form: FactorTables, region: Region) -> LocalFactors:
    """The factors of the updated variables of a region."""
    starts, packed = pack_region(form, region)
    factors = np.repeat(np.arange(len(region.updated)), np.diff(packed.f_start))
    row = np.repeat(factors, np.diff(packed.m_start))
    member = region.neighbor[starts[row] + packed.m_of].astype(np.int64)
    counts = np.zeros(region.size, dtype=np.int64)
    counts[region.updated] = np.diff(packed.f_start)
    parts: Any = (
        prefix_sums(counts),
        packed.m_start,
        member,
        packed.m_stride,
        packed.own_stride,
        packed.base,
        form.table,
    )
    return LocalFactors(*map(frozen, parts))


def pack_region(form: FactorTables, region: Region) -> tuple[NDArray[np.int64], Packed]:
    """Where the neighbours of each updated variable begin, and its factors."""
    starts = prefix_sums(np.diff(region.start)[region.updated])
    return starts, pack_factors(form, region.place[region.updated], starts, region.place[region.neighbor])


def largest_entries(form: FactorTables, factors: LocalFactors) -> NDArray[np.float64]:
    """For each variable of a region, the sum of the largest finite entries of its factors."""
    largest = np.zeros(form.n_factors)
    finite = np.abs(np.where(form.table > -np.inf, form.table, 0.0))
    filled = np.flatnonzero(np.diff(form.table_start))
    largest[filled] = np.maximum.reduceat(finite, form.table_start[:-1][filled]) if len(finite) else 0.0
    used = np.searchsorted(form.table_start, factors.base, side="right") - 1
    size = len(factors.counts)
    row = np.repeat(np.arange(size), factors.counts)
    return np.bincount(row, weights=largest[used], minlength=size).astype(np.float64)
