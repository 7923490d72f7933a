"""Exact sums over a region, with its boundary fixed. [trusted]

The factors that touch the region are conditioned on the states of its boundary, and summed by the engine for exact
sums. For binary models without frustration, the two extreme boundary states are found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.arithmetic import NoAllowedState, Working
from dobrushin._exact.engine import plan_in_order
from dobrushin._exact.order import Order, graph_arguments, make_order
from dobrushin._kernels.contraction import cut_tables
from dobrushin._kernels.orders import CLIQUE, FILL, two_colour
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.memory import Memory
from dobrushin._models.near import Numbering
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._shared.arrays import distinct, frozen, is_among, prefix_sums, row_entries
from dobrushin._shared.call import NO_DEADLINE
from dobrushin._shared.compile import code_for

# Searches for an order: how many, the part of the sums' work that they may take, and the most that one may take.
_MOST_SEEDS, _SHARE, _MOST_WORK = 16, 0.05, 2**29


class LogTables(NamedTuple):
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
    factors: LogTables

    @property
    def border(self) -> NDArray[np.int64]:
        """Positions of the variables outside."""
        return self.numbering.positions[~self.inside]

    def fix(self, digits: NDArray[np.int64]) -> LogTables:
        """The factors over the region alone, with the variables outside in these states; nothing is rounded."""
        whole, cut = self.factors, self._cut
        state = np.zeros(len(self.inside), dtype=np.int64)
        state[~self.inside] = digits
        entries = np.empty(cut.table_start[-1], dtype=np.int64)
        shape = (whole.states, whole.scope_start, whole.scope, whole.table_start)
        code_for(cut_tables, 16 * len(entries))(*shape, self.inside, state, cut.table_start, entries)
        return cut._replace(table=frozen(whole.table[entries]))

    @cached_property
    def _cut(self) -> LogTables:
        """The factors over the region, without their entries: what does not depend on the states outside."""
        whole, inside = self.factors, self.inside
        if not len(whole.scope):
            return whole._replace(states=frozen(whole.states[inside]))
        is_free = inside[whole.scope]
        sizes = np.multiply.reduceat(np.where(is_free, whole.states[whole.scope], 1), whole.scope_start[:-1])
        return LogTables(
            frozen(whole.states[inside]),
            frozen(prefix_sums(is_free)[whole.scope_start]),
            frozen((np.cumsum(inside) - 1)[whole.scope[is_free]]),
            frozen(prefix_sums(sizes)),
            whole.table[:0],
        )

    @cached_property
    def extremes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
        """Return the lowest and the highest boundary states, and which state of each inner variable is the higher one.

        For binary variables with pair factors that are attractive after relabelling states; None for other models.
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


def _join(states: NDArray[np.int64], scopes: list[NDArray[Any]], tables: list[NDArray[Any]]) -> LogTables:
    """Blocks of factors of one shape, (F, arity) and (F, size), one after the other."""
    arity = [np.full(len(block), block.shape[1]) for block in scopes]
    size = [np.full(len(block), block.shape[1]) for block in tables]
    none = np.empty(0, dtype=np.int64)
    return LogTables(
        frozen(states),
        frozen(prefix_sums(np.concatenate([none, *arity]))),
        frozen(np.concatenate([none, *(block.ravel() for block in scopes)])),
        frozen(prefix_sums(np.concatenate([none, *size]))),
        frozen(np.concatenate([np.empty(0), *(block.ravel() for block in tables)])),
    )


def pair_signs(tables: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whether tables (00, 01, 10, 11) of binary pairs are attractive (+1), repulsive (-1) or neither (0).

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
    """Return states 0 or 1 that are equal along positive edges and differ along others; None if frustrated."""
    if (signs > 0).all():
        return np.ones(n, dtype=np.int64)
    owner = np.concatenate([ends[:, 0], ends[:, 1]])
    order = np.argsort(owner, kind="stable")
    start = prefix_sums(np.bincount(owner, minlength=n))
    other = np.concatenate([ends[:, 1], ends[:, 0]])[order]
    sign = np.concatenate([signs, signs])[order]
    high = code_for(two_colour, 8 * len(other))(frozen(start), frozen(other), frozen(sign))
    return None if high[0] < 0 else high


Block = tuple[NDArray[np.int64], NDArray[np.float64]]  # scopes (F, arity) by position, and flat tables (F, size)


def surroundings(form: Form, inside: NDArray[np.int64]) -> Surroundings:
    """Return the factors that touch the variables at increasing positions; no other factor is read."""
    form, blocks_of = widen(form, _BLOCKS)
    blocks = blocks_of(form, inside)
    own = distinct(np.concatenate([inside, *(scope.ravel() for scope, _ in blocks)]), form.n_variables)
    scopes, tables = [np.searchsorted(own, scope) for scope, _ in blocks], [table for _, table in blocks]
    is_inside = frozen(is_among(own, inside))
    factors = _join(form.cardinalities[own], scopes, tables)
    return Surroundings(Numbering(form.n_variables, own), is_inside, factors)


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


def find_order(
    start: NDArray[np.int64], neighbor: NDArray[np.int64], states: NDArray[np.int64], group: NDArray[np.int64],
    given: NDArray[np.int64], most: float,
) -> Order | None:  # fmt: skip
    """The best order of a few that keep the variables of a group together; None if all have more entries than `most`.

    Ties are broken by `given`, then at random. Better orders are looked for as long as that takes little time beside
    the sums.
    """
    start, neighbor = _with_clique(start, neighbor, group)
    graph, given = graph_arguments(start, neighbor, states), frozen(given)
    best, entries, work = None, most, 0.0
    for seed in range(_MOST_SEEDS):
        for rule in (FILL, CLIQUE):
            order, total, largest, used = make_order(graph, rule, given, seed, entries, _MOST_WORK)
            work += used
            if total < entries or (best is None and total <= entries):
                best, entries = Order(order.tolist(), total, math.log2(largest)), total
        if work > _SHARE * entries or (best is None and seed):
            break
    return best


def _with_clique(
    start: NDArray[np.int64], neighbor: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A graph, CSR, in which some variables are made neighbours."""
    if len(group) < 2:
        return start, neighbor
    n = len(start) - 1
    first, second = np.repeat(group, len(group)), np.tile(group, len(group))
    owner = np.repeat(np.arange(n), np.diff(start))
    codes = np.unique(np.concatenate([owner * n + neighbor, (first * n + second)[first != second]]))
    return prefix_sums(np.bincount(codes // n, minlength=n)), codes % n


class Law(NamedTuple):
    """The joint law of a group of variables, in C order; a probability p is off by at most `error` p + `loss`."""

    probabilities: NDArray[np.float64]
    error: float
    loss: float


class RegionSum:
    """A plan that sums factors of one structure; only their entries differ from run to run."""

    def __init__(self, order: Order, factors: LogTables, group: NDArray[np.int64], memory: Memory) -> None:
        self._plan = plan_in_order(FactorTables(*factors), [tuple(group.tolist())], order.variables, memory)

    @property
    def bytes(self) -> int:
        """Memory that a run takes."""
        return self._plan.bytes

    def run(self, factors: LogTables) -> Law | None:
        """The law of the group; None if no state is allowed."""
        try:
            sums = self._plan.run(FactorTables(*factors), working=Working(NO_DEADLINE))
        except NoAllowedState:
            return None
        return Law(sums.marginals[0].ravel(), sums.relative, sums.absolute)
