"""Any factors: the range of each table, and enumeration of the neighbourhood."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dobrushin._influence import budget
from dobrushin._influence.rows import Bounds, Wanted, over_rows, theorem_for
from dobrushin._kernels import factor_influence as kernels
from dobrushin._kernels.gap import RANGE, RANGE_COARSE
from dobrushin._models.factors import FactorTables
from dobrushin._shared.arrays import Array, Floats, Ints, frozen, prefix_sums, row_entries


class Packed(NamedTuple):
    """The factors of each row, their members as places in the row's list of neighbours."""

    k_own: Ints
    unary_start: Ints
    unary: Floats
    start: Ints
    k_other: Ints
    f_start: Ints
    m_start: Ints
    m_of: Ints
    m_stride: Ints
    own_stride: Ints
    base: Ints
    table: Floats


@theorem_for(FactorTables)
def factor_rows(form: FactorTables, wanted: Wanted) -> Bounds:
    """The range of the factors and, unless the method is "paper", enumeration under a budget.

    The paper has no theorem for factors: see the theory page, "Range of the factors".
    """
    packed, bounds = pack_factors(form, wanted.positions, wanted.start, wanted.columns), wanted.no_bounds()
    if wanted.method != "exact":
        _find_ranges(packed, bounds)
    if wanted.is_paper:
        bounds.cap[:] = 1.0
        return bounds
    return _enumerate_neighbors(packed, wanted, bounds)


def enumerate_factors(form: FactorTables, wanted: Wanted, bounds: Bounds) -> Bounds:
    """The bounds, with exact influences where the neighbourhood is small enough and they are smaller."""
    packed = pack_factors(form, wanted.positions, wanted.start, wanted.columns)
    return _enumerate_neighbors(packed, wanted, bounds)


def _enumerate_neighbors(packed: Packed, wanted: Wanted, bounds: Bounds) -> Bounds:
    members = packed.m_start[packed.f_start[1:]] - packed.m_start[packed.f_start[:-1]]
    rows, room = budget.enumerable(wanted, packed.k_own, packed.k_other, members)
    bounds = wanted.before_enumeration(bounds)
    enumerate_rows(rows, room, packed, bounds)
    return bounds


def enumerate_rows(rows: Ints, room: int, packed: Packed, bounds: Bounds) -> None:
    """Put exact influences on some rows into the bounds where they are smaller."""
    states = int(packed.k_own[rows].max(initial=0))
    law, defined = np.empty(room), np.empty(room // 2 + 1, dtype=np.bool_)
    work = (law, defined, np.empty(states), np.empty(kernels.STATE))
    over_rows(kernels.enumerated_rows, len(rows), rows, *packed, *work, *bounds)


def _find_ranges(packed: Packed, bounds: Bounds) -> None:
    """Fill in the range of the factors, or distances from a centre in rows where that takes too long."""
    by_neighbor = _by_neighbor(packed)
    cells = _cells(packed, by_neighbor)
    rows, coarse = budget.split_rows(packed.start, cells * packed.k_other, cells)
    _, _, _, start, k_other, _, *rest = packed
    bounds.theorem[:] = RANGE
    _, entries = row_entries(start[rows], np.diff(start)[rows])
    room = int(np.rint(cells[entries].max(initial=0.0)))
    work = (np.empty(room), _room_for_values(k_other[entries]), np.empty(kernels.STATE))
    over_rows(
        kernels.factor_ranges, len(rows), rows, packed.k_own, start, k_other, *rest, *by_neighbor, *work,
        bounds.values, bounds.cap, at_once=4.0 * room,
    )  # fmt: skip
    find_coarse_ranges(coarse, packed, by_neighbor, RANGE_COARSE, bounds)


def _cells(packed: Packed, by_neighbor: tuple[Array, ...]) -> Floats:
    """For each entry, how many potentials the factors have that it shares."""
    logs = prefix_sums(np.log(packed.k_other.astype(float))[_entries_of_members(packed)])
    by_start, _, factor = by_neighbor
    entry = np.repeat(np.arange(len(packed.k_other)), np.diff(by_start))
    own = np.repeat(packed.k_own, np.diff(packed.start))[entry]
    with np.errstate(over="ignore"):
        sizes = own * np.exp((logs[packed.m_start[1:]] - logs[packed.m_start[:-1]])[factor])
    cells: Floats = np.bincount(entry, weights=sizes, minlength=len(packed.k_other)).astype(np.float64)
    return cells


def _room_for_values(k_other: Ints) -> Floats:
    return np.empty((kernels.VALUES, int(k_other.max(initial=1))))


def find_coarse_ranges(rows: Ints, packed: Packed, by_neighbor: tuple[Array, ...], name: int, bounds: Bounds) -> None:
    """Fill in the bounds by distances from a centre on some rows."""
    k_own, unary_start, unary, start, k_other, _, *rest = packed
    _, entries = row_entries(start[rows], np.diff(start)[rows])
    bounds.theorem[entries] = name
    work = (_room_for_values(k_other[entries]), np.empty(kernels.STATE))
    over_rows(
        kernels.coarse_ranges, len(rows), rows, k_own, unary_start, unary, start, k_other, *rest, *by_neighbor,
        *work, bounds.values, bounds.cap,
    )  # fmt: skip


def _by_neighbor(packed: Packed) -> tuple[Array, ...]:
    """The members again, sorted by the neighbour that they are."""
    entry = _entries_of_members(packed)
    factor = np.repeat(np.arange(len(packed.base)), np.diff(packed.m_start))
    order = np.argsort(entry, kind="stable")
    by_start = prefix_sums(np.bincount(entry, minlength=int(packed.start[-1])))
    return frozen(by_start), frozen(order), frozen(factor[order])


def _entries_of_members(packed: Packed) -> Ints:
    """The entry of its row that each member is."""
    row = np.repeat(np.arange(len(packed.k_own)), np.diff(packed.f_start))
    first = np.repeat(packed.start[row], np.diff(packed.m_start))
    entries: Ints = first + packed.m_of
    return entries


def pack_factors(form: FactorTables, positions: Ints, start: Ints, columns: Array) -> Packed:
    """The factors of some rows, as the kernels take them; single-variable factors are factors here, not unaries."""
    counts = form.factor_start[positions + 1] - form.factor_start[positions]
    f_start, slot = row_entries(form.factor_start[positions], counts)
    factor = form.factor_of[slot]
    row = np.repeat(np.arange(len(positions)), counts)
    sizes = form.scope_start[factor + 1] - form.scope_start[factor]
    _, member = row_entries(form.scope_start[factor], sizes)
    member_row = np.repeat(row, sizes)
    variable = form.scope[member]
    other = variable != positions[member_row]
    # Neighbours are sorted within each row, so (row, variable) can be found by one search.
    n = form.n_variables
    key = np.repeat(np.arange(len(positions)), np.diff(start)) * n + columns
    place = np.searchsorted(key, member_row[other] * n + variable[other]) - start[member_row[other]]
    k_own = form.cardinalities[positions]
    parts = (
        k_own, np.zeros_like(k_own), np.zeros(int(k_own.max(initial=0))), start, form.cardinalities[columns],
        f_start, prefix_sums(sizes - 1), place, form.stride[member][other], form.factor_stride[slot],
        form.table_start[factor], form.table,
    )  # fmt: skip
    return Packed(*(frozen(part) for part in parts))
