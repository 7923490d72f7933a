"""The bounds for each form: spins, pairs with and without the help of unaries, and factors of any kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dobrushin._influence import budget
from dobrushin._influence.rows import Bounds, WantedRows, over_rows, theorem_for
from dobrushin._kernels import factor_influence, pair_influence
from dobrushin._kernels.gap import RANGE, RANGE_COARSE, THM4_COARSE, THM6, THM6_TIGHT
from dobrushin._kernels.spin_influence import ising_rows, potts_rows, spin_rows
from dobrushin._models.factors import FactorTables
from dobrushin._models.ising import SpinPairs
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms
from dobrushin._shared.arrays import Array, Floats, Ints, frozen, prefix_sums, rows_at

# Potentials of labelled pairs that are written out at a time, for the rows that are enumerated.
_WRITTEN = 2**18
# Terms of more variables have neighbourhoods that are too large to enumerate anyway.
_TABLE_ORDER = 12

# -- factors of any kind -----------------------------------------------------------------------


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
def factor_rows(form: FactorTables, wanted: WantedRows) -> Bounds:
    """Return the range of the factors and, unless the method is "paper", enumeration under a budget.

    The paper has no theorem for factors: see the theory page, "Range of the factors".
    """
    packed, bounds = pack_factors(form, wanted.positions, wanted.start, wanted.columns), wanted.no_bounds()
    if wanted.method != "exact":
        _find_ranges(packed, bounds)
    return _enumerate_neighbors(packed, wanted, bounds)


def _enumerate_neighbors(packed: Packed, wanted: WantedRows, bounds: Bounds) -> Bounds:
    """Replace bounds by exact influences that are smaller, where the neighbourhood is small enough to enumerate.

    The method "paper" allows no enumeration; it has no caps either.
    """
    if wanted.is_paper:
        bounds.cap[:] = 1.0
        return bounds
    members = packed.m_start[packed.f_start[1:]] - packed.m_start[packed.f_start[:-1]]
    rows, room = budget.enumerable(wanted, packed.k_own, packed.k_other, members)
    bounds = wanted.before_enumeration(bounds)
    _enumerate_rows(rows, room, packed, bounds)
    return bounds


def _enumerate_rows(rows: Ints, room: int, packed: Packed, bounds: Bounds) -> None:
    """Put exact influences on some rows into the bounds where they are smaller."""
    states = int(packed.k_own[rows].max(initial=0))
    law, defined = np.empty(room), np.empty(room // 2 + 1, dtype=np.bool_)
    work = (law, defined, np.empty(states), np.empty(factor_influence.STATE))
    over_rows(factor_influence.enumerated_rows, len(rows), rows, *packed, *work, *bounds)


def _find_ranges(packed: Packed, bounds: Bounds) -> None:
    """Fill in the range of the factors, or distances from a centre in rows where that takes too long."""
    k_own, _, _, start, k_other, f_start, m_start, *_ = packed
    # For each member of a factor its entry, that is, the neighbour that it is in the row; and members by entry.
    row = np.repeat(np.arange(len(k_own)), np.diff(f_start))
    entry = np.repeat(start[row], np.diff(m_start)) + packed.m_of
    order = np.argsort(entry, kind="stable")
    factor = np.repeat(np.arange(len(packed.base)), np.diff(m_start))[order]
    by_start = prefix_sums(np.bincount(entry, minlength=int(start[-1])))
    by_neighbor = frozen(by_start), frozen(order), frozen(factor)
    # For each entry, how many potentials the factors have that it shares.
    logs = prefix_sums(np.log(k_other.astype(float))[entry])
    with np.errstate(over="ignore"):
        sizes = np.repeat(k_own, np.diff(start))[entry[order]] * np.exp(
            (logs[m_start[1:]] - logs[m_start[:-1]])[factor]
        )
    cells = np.bincount(entry[order], weights=sizes, minlength=len(k_other)).astype(np.float64)
    rows, coarse = budget.split_rows(start, cells * k_other, cells)
    bounds.theorem[:] = RANGE
    _, entries = rows_at(start, rows)
    room = int(np.rint(cells[entries].max(initial=0.0)))
    work = (np.empty(room), _room_for_values(k_other[entries]), np.empty(factor_influence.STATE))
    over_rows(
        factor_influence.factor_ranges, len(rows), rows, k_own, start, k_other, *packed[6:], *by_neighbor, *work,
        bounds.values, bounds.cap, at_once=4.0 * room,
    )  # fmt: skip
    _find_coarse_ranges(coarse, packed, by_neighbor, RANGE_COARSE, bounds)


def _room_for_values(k_other: Ints) -> Floats:
    return np.empty((factor_influence.VALUES, int(k_other.max(initial=1))))


def _find_coarse_ranges(rows: Ints, packed: Packed, by_neighbor: tuple[Array, ...], name: int, bounds: Bounds) -> None:
    """Fill in the bounds by distances from a centre on some rows."""
    k_own, unary_start, unary, start, k_other, _, *rest = packed
    _, entries = rows_at(start, rows)
    bounds.theorem[entries] = name
    work = (_room_for_values(k_other[entries]), np.empty(factor_influence.STATE))
    over_rows(
        factor_influence.coarse_ranges, len(rows), rows, k_own, unary_start, unary, start, k_other, *rest, *by_neighbor,
        *work, bounds.values, bounds.cap,
    )  # fmt: skip


def pack_factors(form: FactorTables, positions: Ints, start: Ints, columns: Array) -> Packed:
    """The factors of some rows, as the kernels take them; single-variable factors are factors here, not unaries."""
    f_start, slot = rows_at(form.factor_start, positions)
    factor = form.factor_of[slot]
    m_start, member = rows_at(form.scope_start, factor)
    sizes = np.diff(m_start)
    member_row = np.repeat(np.repeat(np.arange(len(positions)), np.diff(f_start)), sizes)
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


# -- pairs -------------------------------------------------------------------------------------


def pack_pairs(
    k_own: Ints, unary_start: Ints, unary: Floats, start: Ints, k_other: Ints, base: Ints, strides: Any, table: Floats
) -> Packed:
    """Pack pairs as factors: entry k of the rows is factor k, which has one other member.

    `strides` are those of the row's variable and of the neighbour in each table.
    """
    place = np.arange(len(k_other)) - np.repeat(start[:-1], np.diff(start))
    factors = (start, np.arange(len(k_other) + 1), place, strides[1], strides[0], base, table)
    return Packed(*(frozen(part) for part in (k_own, unary_start, unary, start, k_other, *factors)))


@theorem_for(PairTables)
def pair_table_rows(form: PairTables, wanted: WantedRows) -> Bounds:
    """Bound the influence by Theorem 4, by its sharper form with unaries, and by enumeration under a budget."""
    entry = wanted.entries(form.start)
    packed = pack_pairs(
        form.cardinalities[wanted.positions], form.unary_start[wanted.positions], form.unary,
        wanted.start, form.cardinalities[wanted.columns], form.table_start[form.edge_of[entry]],
        (form.own_stride[entry], form.other_stride[entry]), form.table,
    )  # fmt: skip
    bounds = wanted.no_bounds()
    if wanted.method != "exact":
        _find_bounds(packed, wanted, bounds)
    return _enumerate_neighbors(packed, wanted, bounds)


def _find_bounds(packed: Packed, wanted: WantedRows, bounds: Bounds) -> None:
    """Fill `bounds` by Theorem 4; in rows where that takes too long, by distances from one central law."""
    start, k_own, k_other = packed.start, packed.k_own, packed.k_other
    own = np.repeat(k_own, np.diff(start)).astype(float)
    rows, coarse = budget.split_rows(start, 0.5 * (own + 16) * k_other.astype(float) ** 2, own * k_other)
    _, entries = rows_at(start, rows)
    cells, states = int((own * k_other)[entries].max(initial=0.0)), int(k_own[rows].max(initial=0))
    # Leads are kept in rows with several neighbours.
    several = k_own[rows][np.diff(start)[rows] > 1]
    room = 0 if wanted.is_paper else int(several[several <= budget.LEADS].max(initial=0))
    work = (
        np.empty(cells), np.empty(cells), np.empty((pair_influence.LABELS, states)),
        np.empty((pair_influence.VALUES, int(k_other[entries].max(initial=0)))),
        np.empty((room, room)), np.empty((room, room)), np.empty((2, room), dtype=np.int64),
        np.empty(pair_influence.STATE),
    )  # fmt: skip
    offsets = 0 if wanted.is_paper else budget.OFFSETS
    tables = (*packed[:5], packed.base, packed.own_stride, packed.m_stride, packed.table)
    over_rows(pair_influence.pair_rows, len(rows), rows, *tables, offsets, *work, *bounds, at_once=8.0 * cells)
    if len(coarse):
        single = np.arange(len(k_other) + 1)
        by_neighbor = tuple(frozen(part) for part in (single, single[:-1], single[:-1]))
        _find_coarse_ranges(coarse, packed, by_neighbor, THM4_COARSE, bounds)


@theorem_for(LabelPairs)
def label_pair_rows(form: LabelPairs, wanted: WantedRows) -> Bounds:
    """Theorem 4 from strengths alone; tables are written out only for the rows that are enumerated."""
    strength, k, start = form.couplings.data[wanted.entries(form.couplings.indptr)], form.states, wanted.start
    given, count = form.given_unaries, len(wanted.positions)
    unary = np.zeros((count, 0)) if given is None else given[wanted.positions]
    bounds = wanted.no_bounds()
    if wanted.method != "exact":
        readable = unary if k <= budget.UNARIES else np.zeros((count, 0))
        arguments = (start, frozen(strength), frozen(readable), wanted.is_paper, *bounds)
        over_rows(potts_rows, count, *arguments, at_once=32.0 * readable.shape[1])
    if wanted.is_paper:
        return bounds
    k_own, k_other = np.full(count, k), np.full(len(strength), k)
    rows, room = budget.enumerable(wanted, k_own, k_other)
    values, theorem, cap = wanted.before_enumeration(bounds)
    equal = np.eye(k if len(rows) else 0).ravel()  # only where it is small
    sizes = np.diff(start)
    written = np.cumsum(sizes[rows] * k * k)
    while len(rows):
        last = max(1, int(np.searchsorted(written, written[0] + _WRITTEN)))
        part, rows, written = rows[:last], rows[last:], written[last:]
        part_start, entry = rows_at(start, part)
        own, edges = np.arange(len(part)), np.arange(len(entry))
        packed = pack_pairs(
            k_own[part], own * k, np.zeros(len(part) * k) if given is None else unary[part].ravel(),
            part_start, k_other[entry], edges * k * k, (np.full(len(entry), k), np.ones_like(edges)),
            np.outer(strength[entry], equal).ravel(),
        )  # fmt: skip
        improved = Bounds(values[entry], theorem[entry], cap[part])
        _enumerate_rows(frozen(own), room, packed, improved)
        values[entry], theorem[entry], cap[part] = improved
    return Bounds(values, theorem, cap)


# -- spins -------------------------------------------------------------------------------------


@theorem_for(SpinPairs)
def spin_pair_rows(form: SpinPairs, wanted: WantedRows) -> Bounds:
    """Theorem 5, and its exact form up to a degree limit."""
    degrees = np.diff(wanted.start)
    degree, limit = int(degrees.max(initial=0)), budget.BEST_DEGREE
    if wanted.method == "exact":
        limit = max(limit, degree)
        if degree > budget.EXACT_DEGREE:
            label = wanted.labels[int(wanted.positions[int(np.argmax(degrees))])]
            raise budget.over_budget(label, 2.0 ** (degree - 1), 2.0 ** (budget.EXACT_DEGREE - 1))
    bounds, matrix = wanted.no_bounds(), form.couplings
    over_rows(
        ising_rows, len(wanted.positions), wanted.positions, matrix.indptr, matrix.data, form.fields, wanted.start,
        wanted.is_paper, min(limit, degree), *bounds, at_once=0.0 if wanted.is_paper else 2.0 ** min(limit, degree),
    )  # fmt: skip
    return bounds


@theorem_for(SpinTerms)
def spin_term_rows(form: SpinTerms, wanted: WantedRows) -> Bounds:
    """Bound the influence by Theorem 6 (tightened unless the method is "paper") and by enumeration under a budget."""
    bounds = wanted.no_bounds()
    if wanted.method != "exact":
        widest = int(np.diff(wanted.start).max(initial=0))
        over_rows(
            spin_rows, len(wanted.positions), wanted.positions, form.factor_start, form.factor_of, form.scope_start,
            form.scope, form.strengths, form.fields, wanted.start, wanted.columns, wanted.is_paper, np.empty(widest),
            np.empty(1), bounds.values, bounds.cap,
        )  # fmt: skip
        bounds.theorem[:] = THM6 if wanted.is_paper else THM6_TIGHT
    if wanted.is_paper or (wanted.method == "best" and form.order > _TABLE_ORDER):
        return bounds
    packed = pack_factors(form.tables(), wanted.positions, wanted.start, wanted.columns)
    return _enumerate_neighbors(packed, wanted, bounds)
