"""Any factors: the range of each table, and enumeration of the neighbourhood."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import budget
from dobrushin._influence.rows import Bounds, Wanted, theorem_for
from dobrushin._kernels import influence as kernels
from dobrushin._models.factors import FactorTables
from dobrushin._shared.arrays import frozen, prefix_sums, row_entries


@theorem_for(FactorTables)
def factor_rows(form: FactorTables, wanted: Wanted) -> Bounds:
    """The range of the factors and, unless the method is "paper", enumeration under a budget.

    The paper has no theorem for factors: see the theory page, "Range of the factors".
    """
    packed, bounds = pack_factors(form, wanted.positions, wanted.start, wanted.columns), wanted.no_bounds()
    kernels.factor_ranges(
        packed.k_own, wanted.start, packed.k_other, packed.m_start, packed.m_of, packed.m_stride, packed.own_stride,
        packed.base, form.table, *_by_neighbor(packed, wanted.start), bounds.values, bounds.cap,
    )  # fmt: skip
    bounds.theorem[:] = kernels.RANGE
    if wanted.is_paper:
        bounds.cap[:] = 1.0
        return bounds
    return _enumerate(form, wanted, packed, bounds)


def enumerate_factors(form: FactorTables, wanted: Wanted, bounds: Bounds) -> Bounds:
    """The bounds, with exact influences where the neighbourhood is small enough and they are smaller."""
    return _enumerate(form, wanted, pack_factors(form, wanted.positions, wanted.start, wanted.columns), bounds)


class Packed(NamedTuple):
    """The factors of each row, their members as places in the row's list of neighbours."""

    k_own: NDArray[np.int64]
    k_other: NDArray[np.int64]
    f_start: NDArray[np.int64]
    m_start: NDArray[np.int64]
    m_of: NDArray[np.int64]
    m_stride: NDArray[np.int64]
    own_stride: NDArray[np.int64]
    base: NDArray[np.int64]


def _enumerate(form: FactorTables, wanted: Wanted, packed: Packed, bounds: Bounds) -> Bounds:
    rows = budget.enumerable(wanted, packed.k_own, packed.k_other)
    bounds = wanted.before_enumeration(bounds)
    no_unary = np.zeros(int(packed.k_own.max()))  # single-variable factors are factors here
    kernels.enumerated_rows(
        rows, packed.k_own, frozen(np.zeros_like(packed.k_own)), frozen(no_unary), wanted.start, *packed[1:],
        form.table, *bounds,
    )  # fmt: skip
    return bounds


def _by_neighbor(packed: Packed, start: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """The members again, sorted by the neighbour that they are."""
    factor = np.repeat(np.arange(len(packed.base)), np.diff(packed.m_start))
    row = np.repeat(np.arange(len(packed.k_own)), np.diff(packed.f_start))[factor]
    entry = start[row] + packed.m_of
    order = np.argsort(entry, kind="stable")
    by_start = prefix_sums(np.bincount(entry, minlength=int(start[-1])))
    return frozen(by_start), frozen(order), frozen(factor[order])


def pack_factors(
    form: FactorTables, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any]
) -> Packed:
    """The factors of some rows, as the kernels take them."""
    counts = form.factor_start[positions + 1] - form.factor_start[positions]
    f_start, slot = row_entries(form.factor_start[positions], counts)
    factor = form.factor_of[slot]
    row = np.repeat(np.arange(len(positions)), counts)
    sizes = np.diff(form.scope_start)[factor]
    _, member = row_entries(form.scope_start[factor], sizes)
    member_row = np.repeat(row, sizes)
    variable = form.scope[member]
    other = variable != positions[member_row]
    # Neighbours are sorted within each row, so (row, variable) can be found by one search.
    n = form.n_variables
    key = np.repeat(np.arange(len(positions)), np.diff(start)) * n + columns
    place = np.searchsorted(key, member_row[other] * n + variable[other]) - start[member_row[other]]
    parts = (
        form.cardinalities[positions], form.cardinalities[columns], f_start, prefix_sums(sizes - 1), place,
        form.stride[member][other], form.factor_stride[slot], form.table_start[factor],
    )  # fmt: skip
    return Packed(*(frozen(part) for part in parts))
