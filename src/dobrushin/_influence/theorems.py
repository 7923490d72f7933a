"""Bounds on the influence: a function for each internal form of models calls the compiled loop of its theorem."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dobrushin._influence.rows import RowBounds, WantedRows, over_rows, theorem_for
from dobrushin._kernels import factor_influence, pair_influence
from dobrushin._kernels.gap import RANGE, RANGE_COARSE, THM4_COARSE, THM6, THM6_TIGHT
from dobrushin._kernels.spin_influence import ising_rows, potts_rows, spin_rows
from dobrushin._models.factors import FactorTables
from dobrushin._models.ising import SpinPairs
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms
from dobrushin._shared.arrays import Array, Floats, Ints, frozen, prefix_sums, rows_at
from dobrushin._shared.environment import log
from dobrushin.errors import BudgetError

# Limits on the work for one row of the influence matrix, in elementary operations (about a nanosecond each). For rows
# that take more operations to enumerate, method="best" uses a closed form, and method="exact" raises an error.
BEST_OPERATIONS = 1e5
EXACT_OPERATIONS = 1e9
# Largest number of neighbours of a variable for which Theorem 5 enumerates their sign patterns, 2 ** (degree - 1) for
# each neighbour.
BEST_DEGREE = 12
EXACT_DEGREE = 24
# Largest number of operations for the double differences of a row's tables, and of entries of a table. Beyond either
# limit, potentials at a neighbour's states are compared with their mean instead of with each other.
RANGE_OPERATIONS = 5e9
RANGE_ENTRIES = 2e7
# Largest number of operations for the offsets of a row that come from unaries; remaining entries get no offset.
OFFSET_OPERATIONS = 2 * 10**9
# Largest number of states of a variable with several neighbours for which offsets are bounded, and of a Potts model for
# which unaries are used.
LEAD_STATES = 4096
UNARY_STATES = 10**7
# Number of table entries that are written out at a time to enumerate the rows of a Potts model.
_WRITTEN_ENTRIES = 2**18
# Largest number of variables of a term for which neighbourhoods may be small enough to enumerate.
_TABLE_ORDER = 12

# -- budgets ----------------------------------------------------------------------------------


def enumerable(wanted: WantedRows, k_own: Ints, k_other: Ints, members: Ints | int = 0) -> tuple[Ints, int]:
    """Return the rows whose neighbourhoods are small enough to enumerate, and the size of the largest table needed.

    `members` is the number of neighbours in the factors of each row, counted once for each factor. With method="exact",
    raise `BudgetError` if a neighbourhood is too large.
    """
    start, is_exact = wanted.start, wanted.method == "exact"
    logs, sums = prefix_sums(np.log(k_other.astype(float))), prefix_sums(k_other.astype(float))
    with np.errstate(over="ignore"):
        laws = np.exp(logs[start[1:]] - logs[start[:-1]]) * k_own
        cost = laws * np.maximum(1.0 + sums[start[1:]] - sums[start[:-1]], members)
    over = (cost > (EXACT_OPERATIONS if is_exact else BEST_OPERATIONS)) & (np.diff(start) > 0)
    if over.any():
        if is_exact:
            r = int(np.argmax(over))
            raise over_budget(wanted.labels[int(wanted.positions[r])], float(cost[r]), EXACT_OPERATIONS)
        log.info("influence: %d of %d variables have too many neighbours to enumerate", np.sum(over), len(over))
    rows = np.flatnonzero(~over & (np.diff(start) > 0))
    return frozen(rows), int(np.rint(laws[rows].max(initial=0.0)))


def over_budget(label: object, cost: float, limit: float) -> BudgetError:
    """Return the error for a row of the exact influence that is too expensive."""
    return BudgetError(
        f"The exact influence on variable {label!r}", cost, limit, "operations", "Use method='best' instead."
    )


def split_rows(start: Ints, cost: Floats, cells: Floats) -> tuple[Ints, Ints]:
    """Split rows by the size of their tables: those whose double differences are affordable, and the others.

    Double differences compare all pairs of states of one variable at all pairs of states of the other. For each entry
    of the rows, `cost` is the number of operations for this, and `cells` the number of potentials that are read.
    """
    total = prefix_sums(cost)
    large = prefix_sums(cells > RANGE_ENTRIES)
    coarse = (total[start[1:]] - total[start[:-1]] > RANGE_OPERATIONS) | (large[start[1:]] > large[start[:-1]])
    if coarse.any():
        log.info("influence: tables too large at %d of %d variables; using coarser bounds", np.sum(coarse), len(coarse))
    return frozen(np.flatnonzero(~coarse)), frozen(np.flatnonzero(coarse))


# -- factors of any kind -----------------------------------------------------------------------


class Packed(NamedTuple):
    """The factors of some rows in flat arrays, as kernels take them.

    The other variables of a factor are given as indices into the row's list of neighbours.
    """

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
def factor_rows(form: FactorTables, wanted: WantedRows) -> RowBounds:
    """Bound the influence by the range of the factors and, unless the method is "paper", by affordable enumeration.

    The paper has no theorem for factors: see the theory page, "Range of the factors".
    """
    packed, bounds = pack_factors(form, wanted.positions, wanted.start, wanted.columns), wanted.no_bounds()
    if wanted.method != "exact":
        _find_ranges(packed, bounds)
    return _enumerate_neighbors(packed, wanted, bounds)


def _enumerate_neighbors(packed: Packed, wanted: WantedRows, bounds: RowBounds) -> RowBounds:
    """Replace bounds by exact influences where the neighbourhood is small enough to enumerate and they are smaller.

    The method "paper" uses neither enumeration nor caps.
    """
    if wanted.is_paper:
        bounds.cap[:] = 1.0
        return bounds
    members = packed.m_start[packed.f_start[1:]] - packed.m_start[packed.f_start[:-1]]
    rows, room = enumerable(wanted, packed.k_own, packed.k_other, members)
    bounds = wanted.before_enumeration(bounds)
    _enumerate_rows(rows, room, packed, bounds)
    return bounds


def _enumerate_rows(rows: Ints, room: int, packed: Packed, bounds: RowBounds) -> None:
    """Write the exact influences of some rows into `bounds` where they are smaller."""
    states = int(packed.k_own[rows].max(initial=0))
    law, defined = np.empty(room), np.empty(room // 2 + 1, dtype=np.bool_)
    work = (law, defined, np.empty(states), np.empty(factor_influence.STATE))
    over_rows(factor_influence.enumerated_rows, len(rows), rows, *packed, *work, *bounds)


def _find_ranges(packed: Packed, bounds: RowBounds) -> None:
    """Fill in bounds by the range of the factors; where that takes too long, compare potentials with their mean.

    The range of a factor is its largest double difference: how far a neighbour's state can change the log-odds of two
    states of the row's variable.
    """
    k_own, _, _, start, k_other, f_start, m_start, *_ = packed
    # `entry` is, for each other variable of a factor, its index among the row's neighbours; `order` sorts by neighbour.
    row = np.repeat(np.arange(len(k_own)), np.diff(f_start))
    entry = np.repeat(start[row], np.diff(m_start)) + packed.m_of
    order = np.argsort(entry, kind="stable")
    factor = np.repeat(np.arange(len(packed.base)), np.diff(m_start))[order]
    by_start = prefix_sums(np.bincount(entry, minlength=int(start[-1])))
    by_neighbor = frozen(by_start), frozen(order), frozen(factor)
    # `cells` has for each neighbour the number of potentials in the factors that it shares with the row's variable.
    logs = prefix_sums(np.log(k_other.astype(float))[entry])
    with np.errstate(over="ignore"):
        sizes = np.repeat(k_own, np.diff(start))[entry[order]] * np.exp(
            (logs[m_start[1:]] - logs[m_start[:-1]])[factor]
        )
    cells = np.bincount(entry[order], weights=sizes, minlength=len(k_other)).astype(np.float64)
    rows, coarse = split_rows(start, cells * k_other, cells)
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


def _find_coarse_ranges(
    rows: Ints, packed: Packed, by_neighbor: tuple[Array, ...], name: int, bounds: RowBounds
) -> None:
    """Fill in coarse bounds of some rows: potentials at each state of a neighbour are compared with their mean."""
    k_own, unary_start, unary, start, k_other, _, *rest = packed
    _, entries = rows_at(start, rows)
    bounds.theorem[entries] = name
    work = (_room_for_values(k_other[entries]), np.empty(factor_influence.STATE))
    over_rows(
        factor_influence.coarse_ranges, len(rows), rows, k_own, unary_start, unary, start, k_other, *rest, *by_neighbor,
        *work, bounds.values, bounds.cap,
    )  # fmt: skip


def pack_factors(form: FactorTables, positions: Ints, start: Ints, columns: Array) -> Packed:
    """Pack the factors of some rows into arrays for the kernels; factors of one variable are not packed as unaries."""
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
    """Pack pairwise tables as factors: entry k of the rows is factor k, which has one other variable.

    `strides` has the strides of the row's variable and of the neighbour in each table.
    """
    place = np.arange(len(k_other)) - np.repeat(start[:-1], np.diff(start))
    factors = (start, np.arange(len(k_other) + 1), place, strides[1], strides[0], base, table)
    return Packed(*(frozen(part) for part in (k_own, unary_start, unary, start, k_other, *factors)))


@theorem_for(PairTables)
def pair_table_rows(form: PairTables, wanted: WantedRows) -> RowBounds:
    """Bound the influence in pairwise models by Theorem 4 of the paper, a sharper form, and affordable enumeration."""
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


def _find_bounds(packed: Packed, wanted: WantedRows, bounds: RowBounds) -> None:
    """Fill in bounds by Theorem 4 of the paper; where that takes too long, compare potentials with their mean."""
    start, k_own, k_other = packed.start, packed.k_own, packed.k_other
    own = np.repeat(k_own, np.diff(start)).astype(float)
    rows, coarse = split_rows(start, 0.5 * (own + 16) * k_other.astype(float) ** 2, own * k_other)
    _, entries = rows_at(start, rows)
    cells, states = int((own * k_other)[entries].max(initial=0.0)), int(k_own[rows].max(initial=0))
    # Only rows with several neighbours need room for the leads of states over each other.
    several = k_own[rows][np.diff(start)[rows] > 1]
    room = 0 if wanted.is_paper else int(several[several <= LEAD_STATES].max(initial=0))
    work = (
        np.empty(cells), np.empty(cells), np.empty((pair_influence.LABELS, states)),
        np.empty((pair_influence.VALUES, int(k_other[entries].max(initial=0)))),
        np.empty((room, room)), np.empty((room, room)), np.empty((2, room), dtype=np.int64),
        np.empty(pair_influence.STATE),
    )  # fmt: skip
    offsets = 0 if wanted.is_paper else OFFSET_OPERATIONS
    tables = (*packed[:5], packed.base, packed.own_stride, packed.m_stride, packed.table)
    over_rows(pair_influence.pair_rows, len(rows), rows, *tables, offsets, *work, *bounds, at_once=8.0 * cells)
    if len(coarse):
        single = np.arange(len(k_other) + 1)
        by_neighbor = tuple(frozen(part) for part in (single, single[:-1], single[:-1]))
        _find_coarse_ranges(coarse, packed, by_neighbor, THM4_COARSE, bounds)


@theorem_for(LabelPairs)
def label_pair_rows(form: LabelPairs, wanted: WantedRows) -> RowBounds:
    """Bound the influence in Potts models by Theorem 4 of the paper, a sharper form, and affordable enumeration."""
    strength, k, start = form.couplings.data[wanted.entries(form.couplings.indptr)], form.states, wanted.start
    given, count = form.given_unaries, len(wanted.positions)
    unary = np.zeros((count, 0)) if given is None else given[wanted.positions]
    bounds = wanted.no_bounds()
    if wanted.method != "exact":
        readable = unary if k <= UNARY_STATES else np.zeros((count, 0))
        arguments = (start, frozen(strength), frozen(readable), wanted.is_paper, *bounds)
        over_rows(potts_rows, count, *arguments, at_once=32.0 * readable.shape[1])
    if wanted.is_paper:
        return bounds
    k_own, k_other = np.full(count, k), np.full(len(strength), k)
    rows, room = enumerable(wanted, k_own, k_other)
    values, theorem, cap = wanted.before_enumeration(bounds)
    equal = np.eye(k if len(rows) else 0).ravel()  # where a row is enumerated, k is small
    sizes = np.diff(start)
    written = np.cumsum(sizes[rows] * k * k)
    while len(rows):
        last = max(1, int(np.searchsorted(written, written[0] + _WRITTEN_ENTRIES)))
        part, rows, written = rows[:last], rows[last:], written[last:]
        part_start, entry = rows_at(start, part)
        own, edges = np.arange(len(part)), np.arange(len(entry))
        packed = pack_pairs(
            k_own[part], own * k, np.zeros(len(part) * k) if given is None else unary[part].ravel(),
            part_start, k_other[entry], edges * k * k, (np.full(len(entry), k), np.ones_like(edges)),
            np.outer(strength[entry], equal).ravel(),
        )  # fmt: skip
        improved = RowBounds(values[entry], theorem[entry], cap[part])
        _enumerate_rows(frozen(own), room, packed, improved)
        values[entry], theorem[entry], cap[part] = improved
    return RowBounds(values, theorem, cap)


# -- spins -------------------------------------------------------------------------------------


@theorem_for(SpinPairs)
def spin_pair_rows(form: SpinPairs, wanted: WantedRows) -> RowBounds:
    """Bound the influence in Ising models by Theorem 5 of the paper, or exactly for variables with few neighbours."""
    degrees = np.diff(wanted.start)
    degree, limit = int(degrees.max(initial=0)), BEST_DEGREE
    if wanted.method == "exact":
        limit = max(limit, degree)
        if degree > EXACT_DEGREE:
            label = wanted.labels[int(wanted.positions[int(np.argmax(degrees))])]
            raise over_budget(label, 2.0 ** min(degree - 1, 1023), 2.0 ** (EXACT_DEGREE - 1))
    bounds, matrix = wanted.no_bounds(), form.couplings
    over_rows(
        ising_rows, len(wanted.positions), wanted.positions, matrix.indptr, matrix.data, form.fields, wanted.start,
        wanted.is_paper, min(limit, degree), *bounds, at_once=0.0 if wanted.is_paper else 2.0 ** min(limit, degree),
    )  # fmt: skip
    return bounds


@theorem_for(SpinTerms)
def spin_term_rows(form: SpinTerms, wanted: WantedRows) -> RowBounds:
    """Bound the influence in models of spins by Theorem 6 of the paper and by affordable enumeration.

    The theorem is tightened unless the method is "paper".
    """
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
