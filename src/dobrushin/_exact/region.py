"""Exact sums inside a region, with everything outside fixed. [trusted]

The factors that touch the region are cut at the states of the variables outside; what is left is summed by eliminating
one variable after the other. For binary models without frustration, the two extreme states outside are found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import elimination
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import Numbering
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._shared.arrays import frozen, prefix_sums, row_entries

UNIT = 2.0**-53
# Weights smaller than this, relative to the largest of their factor, count as 0; the error is accounted for.
_SMALLEST_LOG, _LOST = -690.0, 2.0**-994
# A loss by underflow that is this small, relative to the sum, is nothing beside the rounding.
_NEGLIGIBLE = 2.0**-200
# Cells between two looks at the clock and at Ctrl-C.
_CELLS_AT_ONCE = 2e7


class Factors(NamedTuple):
    """Log-tables over variables 0..n-1, in C order over their scopes."""

    states: NDArray[np.int64]
    scope_start: NDArray[np.int64]
    scope: NDArray[np.int64]
    table_start: NDArray[np.int64]
    table: NDArray[np.float64]


@dataclass(frozen=True)
class Surroundings:
    """The factors that touch a region: over its variables and their neighbours outside."""

    numbering: Numbering  # of all these variables in the model
    inside: NDArray[np.bool_]
    factors: Factors

    @property
    def border(self) -> NDArray[np.int64]:
        """Positions of the variables outside."""
        return self.numbering.positions[~self.inside]

    def fix(self, digits: NDArray[np.int64]) -> Factors:
        """The factors over the region alone, with the variables outside in these states; nothing is rounded."""
        factors, inside = self.factors, self.inside
        states, start, scope = factors.states, factors.scope_start, factors.scope
        value = np.zeros(len(inside), dtype=np.int64)
        value[~inside] = digits
        renumber = np.cumsum(inside) - 1
        arity = np.diff(start)
        scopes, tables = [], []
        for size in np.unique(arity[arity > 0]).tolist():
            which = np.flatnonzero(arity == size)
            members = scope[start[which, None] + np.arange(size)]
            kinds = 2 * states[members] + inside[members]
            for same in _groups(kinds):
                own, is_free = members[same], inside[members[same[0]]]
                shape = states[own[0]]
                stride = np.append(np.cumprod(shape[:0:-1])[::-1], 1)
                base = factors.table_start[which[same]] + value[own] @ np.where(is_free, 0, stride)
                cells = np.zeros(1, dtype=np.int64)
                for axis in np.flatnonzero(is_free):
                    cells = (cells[:, None] + stride[axis] * np.arange(shape[axis])).ravel()
                scopes.append(renumber[own[:, is_free]])
                tables.append(factors.table[base[:, None] + cells])
        return _join(states[inside], scopes, tables)

    @cached_property
    def extremes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
        """The lowest and the highest states outside, and which state of each variable inside is the higher one.

        For binary variables whose factors have at most two of them, and like equal states once some variables are
        renamed; None for other models.
        """
        factors = self.factors
        arity = np.diff(factors.scope_start)
        if (factors.states != 2).any() or (arity > 2).any():
            return None
        pairs = np.flatnonzero(arity == 2)
        ends = factors.scope[factors.scope_start[pairs, None] + np.arange(2)]
        signs = pair_signs(factors.table[factors.table_start[pairs, None] + np.arange(4)])
        high = _two_colour(ends[signs != 0], signs[signs != 0], len(self.inside))
        if high is None:
            return None
        outside = high[~self.inside]
        return 1 - outside, outside, high[self.inside]


def _groups(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Numbers of equal rows of a matrix, together."""
    base = float(rows.max()) + 1.0
    if base ** rows.shape[1] < 2.0**62:
        _, code = np.unique(rows @ int(base) ** np.arange(rows.shape[1]), return_inverse=True)
    else:
        _, code = np.unique(rows, axis=0, return_inverse=True)
    return [np.flatnonzero(code.ravel() == kind) for kind in range(int(code.max()) + 1)]


def _join(states: NDArray[np.int64], scopes: list[NDArray[Any]], tables: list[NDArray[Any]]) -> Factors:
    """Blocks of factors of one shape, (F, arity) and (F, size), one after the other."""
    arity = [np.full(len(block), block.shape[1]) for block in scopes]
    size = [np.full(len(block), block.shape[1]) for block in tables]
    none = np.empty(0, dtype=np.int64)
    return Factors(
        frozen(states),
        frozen(prefix_sums(np.concatenate([none, *arity]))),
        frozen(np.concatenate([none, *(block.ravel() for block in scopes)])),
        frozen(prefix_sums(np.concatenate([none, *size]))),
        frozen(np.concatenate([np.empty(0), *(block.ravel() for block in tables)])),
    )


def pair_signs(tables: NDArray[np.float64]) -> NDArray[np.int64]:
    """For tables (00, 01, 10, 11) of binary pairs: whether equal states are liked (+1), disliked (-1), or neither.

    The sign of t_00 + t_11 - t_01 - t_10, without rounding. A product of weights that is 0 on both sides is neither.
    """
    equal, unequal = tables[:, (0, 3)], tables[:, (1, 2)]
    with np.errstate(invalid="ignore"):
        gap = equal.sum(axis=1) - unequal.sum(axis=1)
        doubtful = np.abs(gap) <= 2.0**-50 * np.abs(tables).sum(axis=1)
    signs = np.where(np.isnan(gap), 0.0, np.sign(gap))
    for k in np.flatnonzero(doubtful & np.isfinite(tables).all(axis=1)).tolist():
        a, b, c, d = tables[k].tolist()
        signs[k] = np.sign(math.fsum((a, d, -b, -c)))
    return signs.astype(np.int64)


def _two_colour(ends: NDArray[np.int64], signs: NDArray[np.int64], n: int) -> NDArray[np.int64] | None:
    """States 0 or 1 of all variables that are equal along positive edges and differ along others; None if none are."""
    if (signs > 0).all():
        return np.ones(n, dtype=np.int64)
    owner = np.concatenate([ends[:, 0], ends[:, 1]])
    order = np.argsort(owner, kind="stable")
    start = prefix_sums(np.bincount(owner, minlength=n))
    other = np.concatenate([ends[:, 1], ends[:, 0]])[order]
    sign = np.concatenate([signs, signs])[order]
    high = elimination.two_colour(frozen(start), frozen(other), frozen(sign))
    return None if high[0] < 0 else high


Block = tuple[NDArray[np.int64], NDArray[np.float64]]  # scopes (F, arity) by position, and flat tables (F, size)


def surroundings(form: Form, inside: NDArray[np.int64]) -> Surroundings:
    """The factors that touch the variables at increasing positions; nothing else of the form is looked at."""
    form, blocks_of = widen(form, _BLOCKS)
    blocks = blocks_of(form, inside)
    own = np.unique(np.concatenate([inside, *(scope.ravel() for scope, _ in blocks)]))
    scopes, tables = [np.searchsorted(own, scope) for scope, _ in blocks], [table for _, table in blocks]
    is_inside = np.isin(own, inside, assume_unique=True)
    states = np.full(len(own), 2) if form.spins else form.cardinalities[own]
    return Surroundings(Numbering(form.n_variables, own), is_inside, _join(states, scopes, tables))


def _edges(couplings: Any, inside: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges at some variables, each once, and what couples their ends."""
    first = couplings.indptr[inside].astype(np.int64)
    start, entry = row_entries(first, couplings.indptr[inside + 1] - first)
    owner, other = np.repeat(inside, np.diff(start)), couplings.indices[entry].astype(np.int64)
    place = np.minimum(np.searchsorted(inside, other), len(inside) - 1)
    once = (owner < other) | (inside[place] != other)
    return np.stack([owner[once], other[once]], axis=1), couplings.data[entry[once]]


def _spin_blocks(form: SpinPairs, inside: NDArray[np.int64]) -> list[Block]:
    edges, values = _edges(form.couplings, inside)
    biased = inside[form.fields[inside] != 0]
    fields = form.fields[biased]
    pairs = np.stack([values, -values, -values, values], axis=1)
    return [(biased[:, None], np.stack([-fields, fields], axis=1)), (edges, pairs)]


def _label_blocks(form: LabelPairs, inside: NDArray[np.int64]) -> list[Block]:
    edges, values = _edges(form.couplings, inside)
    blocks = [(edges, values[:, None] * np.eye(form.states).ravel())]
    return blocks if form.given_unaries is None else [(inside[:, None], form.given_unaries[inside]), *blocks]


def _pair_blocks(form: PairTables, inside: NDArray[np.int64]) -> list[Block]:
    first = form.start[inside]
    _, entry = row_entries(first, form.start[inside + 1] - first)
    edges = np.unique(form.edge_of[entry])
    unaries = _by_size(inside[:, None], form.unary_start, inside, form.unary)
    return [*unaries, *_by_size(form.edges[edges], form.table_start, edges, form.table)]


def _by_size(
    scopes: NDArray[np.int64], start: NDArray[np.int64], chosen: NDArray[np.int64], table: NDArray[np.float64]
) -> list[Block]:
    """Blocks of tables of one size each: those of some rows that begin at `start`."""
    sizes = start[chosen + 1] - start[chosen]
    blocks = []
    for size in np.unique(sizes).tolist():
        same = sizes == size
        blocks.append((scopes[same], table[start[chosen[same], None] + np.arange(size)]))
    return blocks


def _factor_blocks(form: FactorTables, inside: NDArray[np.int64]) -> list[Block]:
    first = form.factor_start[inside]
    _, entry = row_entries(first, form.factor_start[inside + 1] - first)
    chosen = np.unique(form.factor_of[entry])
    arity = form.scope_start[chosen + 1] - form.scope_start[chosen]
    blocks = []
    for order in np.unique(arity).tolist():
        same = chosen[arity == order]
        scopes = form.scope[form.scope_start[same, None] + np.arange(order)]
        blocks += _by_size(scopes, form.table_start, same, form.table)
    return blocks


_BLOCKS: dict[type[Form], Any] = {
    SpinPairs: _spin_blocks,
    LabelPairs: _label_blocks,
    PairTables: _pair_blocks,
    FactorTables: _factor_blocks,
}


@dataclass(frozen=True)
class Order:
    """An order of elimination for a region, and what it takes."""

    rank: NDArray[np.int64]  # when each variable is eliminated; those that are kept come last
    steps: int
    log_cells: float
    width: int  # in bits

    @property
    def cells(self) -> float:
        """Entries of all cliques together."""
        return math.exp(min(self.log_cells, 700.0))


def find_order(
    start: NDArray[np.int64], neighbor: NDArray[np.int64], states: NDArray[np.int64], kept: NDArray[np.int64],
    most_cells: float,
) -> Order | None:  # fmt: skip
    """The cheapest order of some searches; None if each has a clique of more cells than `most_cells`."""
    n = len(states)
    log_states = frozen(np.log(states.astype(np.float64)))
    is_kept = np.zeros(n, dtype=np.bool_)
    is_kept[kept] = True
    best: Order | None = None
    for rule in (0, 1, 2):
        order, log_cells, widest = elimination.greedy_order(
            start, neighbor, log_states, frozen(is_kept), rule, math.log(most_cells)
        )
        if log_cells < (math.inf if best is None else best.log_cells):
            rank = np.empty(n, dtype=np.int64)
            rank[order] = np.arange(len(order))
            rank[kept] = len(order) + np.arange(len(kept))
            best = Order(frozen(rank), len(order), log_cells, math.ceil(widest / math.log(2.0) - 1e-9))
        if best is not None and best.log_cells < _GOOD_ENOUGH:
            break
    return best


# A search for a better order takes longer than so many cells (a logarithm).
_GOOD_ENOUGH = math.log(2e5)


class Law(NamedTuple):
    """The joint law of the variables that were kept, in C order as they were given; `error` is relative to it."""

    probabilities: NDArray[np.float64]
    error: float


class RegionSum:
    """A program that sums factors of one structure; only their entries differ from run to run."""

    def __init__(self, order: Order, factors: Factors) -> None:
        self.order, self.factors = order, factors
        *program, needed = elimination.write_program(
            order.rank, order.steps, factors.states, factors.scope_start, factors.scope
        )
        self._program = tuple(frozen(part) for part in program)
        self.bytes = 8 * int(needed)

    def run(self, factors: Factors) -> Law | None:
        """The law of the variables that were kept; None if no state is allowed."""
        weights, small, loss, error = _weigh(factors)
        if weights is None:
            return None
        order = self.order
        arena = np.empty(max(1, self.bytes // 8))
        known = np.zeros((order.steps + 1, 3))
        structure = (factors.states, order.rank, factors.scope_start, factors.scope, factors.table_start)
        chunk = max(1, int((order.steps + 1) * _CELLS_AT_ONCE / max(order.cells, 1.0)))
        for low in range(0, order.steps + 1, chunk):  # not all at once: Ctrl-C is heard between the parts
            high = min(low + chunk, order.steps + 1)
            status = elimination.run(low, high, *structure, weights, small, loss, self._program, arena, known)
            if status == elimination.EMPTY:
                lost = float(known[:, 2].max())
                return None if lost == 0.0 else Law(np.full(self._size, 1.0 / self._size), math.inf)
        table = arena[self._program[4][-1] :][: self._size]
        total = math.fsum(table.tolist())
        # One rounding for each table and each state that is added, and a few for the quotient.
        roundings = len(factors.scope_start) + order.steps + float(factors.states.sum()) + 8.0
        relative = 1.2 * (error + UNIT * roundings)
        lost = float(known[-1, 2]) * self._size / total
        if relative > 0.1 or lost > _NEGLIGIBLE:
            return Law(table / total, math.inf)
        return Law(table / total, 2.0 * relative / (1.0 - 2.0 * relative) + _NEGLIGIBLE)

    @property
    def _size(self) -> int:
        """Cells of the law."""
        return math.prod(self.factors.states[self.order.rank >= self.order.steps].tolist())


def _weigh(factors: Factors) -> tuple[Any, Any, Any, float]:
    """Weights of all factors, each with largest entry 1; their smallest ones but 0, what was lost, all errors."""
    table, starts = factors.table, factors.table_start[:-1]
    if not len(starts):
        return frozen(np.empty(0)), frozen(np.empty(0)), frozen(np.empty(0)), 0.0
    top = np.maximum.reduceat(table, starts)
    if np.isneginf(top).any():
        return None, None, None, 0.0
    shifted = table - np.repeat(top, np.diff(factors.table_start))
    gone = shifted < _SMALLEST_LOG
    loss = np.where(np.logical_or.reduceat(gone & (shifted > -np.inf), starts), _LOST, 0.0)
    shifted[gone] = -np.inf
    weights = np.exp(shifted)
    least = np.minimum.reduceat(np.where(gone, 0.0, shifted), starts)
    # A difference is off by a unit of itself, which exp turns into a relative error; exp itself is off by four.
    error = UNIT * float((4.0 - 1.01 * least).sum())
    return frozen(weights), frozen(np.exp(least) * (1.0 - 2.0**-40)), frozen(loss), error
