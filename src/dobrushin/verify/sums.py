"""Sums over all states along an order of elimination, in plain NumPy, with a bound on their error.

Every table is scaled so that its largest entry is 1. An entry x of a table stands for a number within
relative x + absolute of it, with one such pair for each table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from string import ascii_letters

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import require
from dobrushin.verify.factors import UNIT, Factors

# Combinations of states that the checker runs through at most, for one table; how many in a second; and how many
# numbers all messages may hold.
MOST_CELLS, RATE, MOST_KEPT = 2**31, 1e8, 2**28
# Tables that are multiplied at once.
MOST_AT_ONCE = 16
TINY = 2.0**-1022


Spend = Callable[[float], None]  # is told how many seconds something takes


class Table:
    """Numbers over some variables, at most 1, and how far they are off."""

    def __init__(self, scope: tuple[int, ...], values: NDArray[np.float64], relative: float, absolute: float) -> None:
        top = float(values.max())
        require(top > 0.0, "The model allows no state, or its numbers are too small for the checker.")
        scale = 2.0 ** -math.frexp(top)[1]
        self.scope, self.values = scope, values * scale
        self.relative, self.absolute = relative, absolute * scale
        self.least = math.log2(np.min(self.values, where=self.values > 0.0, initial=1.0))


def _contract(tables: list[Table], kept: tuple[int, ...], states: list[int]) -> Table:
    """The product of some tables, summed over all variables but some: at once over a few, then one after the other."""
    held = {v for table in tables for v in table.scope}
    tables = sorted(tables, key=lambda table: len(table.scope))
    while len(tables) > MOST_AT_ONCE:
        first = tuple(sorted({v for table in tables[:MOST_AT_ONCE] for v in table.scope}))
        tables = [*tables[MOST_AT_ONCE:], _contract(tables[:MOST_AT_ONCE], first, states)]
    tables = tables + [Table((v,), np.ones(states[v]), 0.0, 0.0) for v in kept if v not in held]
    cells = math.prod(states[v] for v in held | set(kept))
    later: list[int] = []
    at_once, size = cells // math.prod(states[v] for v in kept), cells // math.prod(states[v] for v in held - set(kept))
    for v in sorted(held - set(kept)):
        if at_once > 64 and size * states[v] <= 2**24:
            later.append(v)
            at_once, size = at_once // states[v], size * states[v]
    letter = {v: ascii_letters[k] for k, v in enumerate(sorted(held | set(kept)))}
    scopes = ["".join(letter[v] for v in scope) for scope in [table.scope for table in tables] + [(*kept, *later)]]
    values = np.einsum(f"{','.join(scopes[:-1])}->{scopes[-1]}", *(table.values for table in tables))
    roundings = len(tables) + at_once
    for v in reversed(later):
        values, roundings = values.sum(axis=-1), roundings + states[v]
    relative = math.prod(1.0 + table.relative for table in tables) * (1.0 + 2.0 * roundings * UNIT) - 1.0
    require(relative < 1e-3, "The sums are too long for the checker's arithmetic.")
    loss = sum(table.absolute for table in tables) * 2.0
    if sum(table.least for table in tables) < -1020.0:  # products may underflow
        loss += len(tables) * TINY
    return Table(kept, np.asarray(values), relative, loss * (1.0 + relative) * (cells // max(1, values.size)))


class Sums:
    """Marginals of the product of factors, by messages up and down the tree that an order makes."""

    def __init__(self, factors: Factors, order: list[int], groups: list[list[int]], spend: Spend) -> None:
        """Groups are kept together, as if each had a factor of its own."""
        self.states, self.order = factors.states, order
        self.place = place = {v: k for k, v in enumerate(order)}
        require(len(place) == len(order), "An order of elimination names a variable twice.")
        scopes = [*factors.scopes, *map(tuple, groups)]
        require(all(v in place for scope in scopes for v in scope), "An order of elimination is not complete.")
        self.parent = [-1] * len(order)
        self.cliques = self._find_cliques(scopes, place)
        cells = [math.prod(self.states[v] for v in clique) for clique in self.cliques]
        kept = sum(size // self.states[v] for size, v in zip(cells, order, strict=True))
        require(max(cells, default=0) <= MOST_CELLS and kept <= MOST_KEPT, "A sum is too large for the checker.")
        spend(2.0 * sum(cells) / RATE)
        self.buckets: list[list[Table]] = [[] for _ in order]
        self.slot = [-1] * len(order)  # which table of the parent's bucket came from here
        for scope, log in zip(factors.scopes, factors.tables, strict=True):
            top = float(log.max())
            span = float(np.max(top - log, where=np.isfinite(log), initial=0.0))
            with np.errstate(under="ignore"):
                table = Table(scope, np.exp(log - top), (8.0 + min(span, 800.0)) * UNIT, TINY if span > 690.0 else 0.0)
            self.buckets[min(place[v] for v in scope)].append(table)
        for k, variable in enumerate(order):
            rest = tuple(v for v in self.cliques[k] if v != variable)
            if not rest and self.buckets[k]:
                _contract(self.buckets[k], (), self.states)  # some state is allowed
            elif rest:
                self.slot[k] = len(self.buckets[self.parent[k]])
                self.buckets[self.parent[k]].append(_contract(self.buckets[k], rest, self.states))
        self._down: dict[int, list[Table]] = {}

    def _find_cliques(self, scopes: list[tuple[int, ...]], place: dict[int, int]) -> list[tuple[int, ...]]:
        """The variables of each bucket, and the bucket that each one's message goes to."""
        members = [{v} for v in self.order]
        for scope in scopes:
            members[min(place[v] for v in scope)] |= set(scope)
        for k, variable in enumerate(self.order):
            if rest := members[k] - {variable}:
                self.parent[k] = min(place[v] for v in rest)
                members[self.parent[k]] |= rest
        return [tuple(sorted(scope)) for scope in members]

    def _from_above(self, k: int) -> list[Table]:
        """What the rest of the tree says to a bucket: one message, or none at a root."""
        chain = []
        while k not in self._down and self.parent[k] >= 0:
            chain.append(k)
            k = self.parent[k]
        above = self._down.setdefault(k, [])
        for child in reversed(chain):
            up = self.parent[child]
            others = [table for slot, table in enumerate(self.buckets[up]) if slot != self.slot[child]]
            kept = tuple(v for v in self.cliques[child] if v != self.order[child])
            self._down[child] = above = [_contract([*others, *above], kept, self.states)]
        return above

    def law(self, group: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Joint probabilities of some variables that one clique holds, and how far each may be off."""
        k = min(self.place[v] for v in group)
        require(set(group) <= set(self.cliques[k]), "The order of elimination takes the variables of a target apart.")
        tables = [*self.buckets[k], *self._from_above(k)]
        table = _contract(tables, group, self.states)
        total = float(table.values.sum())
        loose = table.absolute * (table.values.size + 1) / total
        relative = 3.0 * table.relative + 8.0 * (table.values.size + 4) * UNIT
        require(loose < 1e-3, "The numbers of a sum are too small for the checker.")
        probabilities = table.values / total
        return probabilities, probabilities * relative + 4.0 * loose
