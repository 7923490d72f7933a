"""Bayesian networks: what tables must be, and what all their files share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._models import FactorGraph
from dobrushin._models.directed import sums_to_one
from dobrushin.io.numbers import is_number, quote
from dobrushin.io.source import Source

# Rows that miss 1 by more than this are not rounded but wrong, and by less than this for each state they do not.
_SLIGHT, _ROUNDING = 1e-5, 1e-15


def sums_of(values: NDArray[np.float64], first: NDArray[Any]) -> NDArray[np.float64]:
    """Sums of the values from each of these places up to the next; too large ones are inf."""
    with np.errstate(over="ignore"):
        return np.add.reduceat(values, first)


def normalise(table: NDArray[np.float64], sums: NDArray[np.float64], states: Any) -> NDArray[np.float64]:
    """Tables of probabilities, whose rows have these sums and numbers of states, with rows that sum to 1.

    Published tables are rounded, and their product is then no Bayesian network: what does not matter in a network would
    matter a little. Rows that miss 1 by more than `_SLIGHT` are left as they are, and so is what is 1 but for rounding.
    """
    off = np.abs(sums - 1)
    divisor = np.where((off > _ROUNDING * np.asarray(states)) & (off <= _SLIGHT), sums, 1.0)
    return table / np.repeat(divisor, states)


def in_a_cycle(children: NDArray[Any], parents: NDArray[Any], n: int) -> int | None:
    """A variable that is its own ancestor, if there is one; an edge for each child and parent."""
    graph = sparse.csr_array((np.ones(len(children), dtype=np.int8), (parents, children)), shape=(n, n))
    count, group = csgraph.connected_components(graph, directed=True, connection="strong")
    if count == n:
        return None
    return int(np.argmax(np.bincount(group)[group] > 1))


@dataclass
class Network:
    """What the file of a Bayesian network says."""

    states: dict[str, tuple[str, ...]]
    parents: dict[str, tuple[str, ...]]
    # A row for each state of the parents, the last parent fastest; a column for each state of the variable.
    tables: dict[str, NDArray[np.float64]]

    def to_model(self, source: Source) -> FactorGraph:
        """A factor graph of the tables; variables with one state are left out."""
        random = [name for name, states in self.states.items() if len(states) > 1]
        if not random:
            raise source.error("a variable with two or more states", "none", 0)
        position = {name: i for i, name in enumerate(random)}
        factors = []
        for name, table in self.tables.items():
            scope = [v for v in (*self.parents[name], name) if v in position]
            with np.errstate(divide="ignore"):
                logs = np.log(table).reshape([len(self.states[v]) for v in scope])
            factors.append(([position[v] for v in scope], logs))
        names = [self.states[name] for name in random]
        return FactorGraph([len(own) for own in names], factors, random, state_names=names)

    # -- for readers that do not know where in the file they are ------------------------------

    def add_variable(self, source: Source, name: str, states: Sequence[str]) -> None:
        """A variable with its states, once and with different ones."""
        if name in self.states:
            raise source.error("each variable once", f"{quote(name)} twice")
        if not name or not states or len(set(states)) < len(states):
            raise source.error(f"one or more different states of {quote(name)}", quote(", ".join(states)))
        self.states[name] = tuple(states)

    def add_table(self, source: Source, name: str, parents: Sequence[str], words: Sequence[str]) -> None:
        """The probabilities of a variable: its own states are fastest, those of its first parent slowest."""
        for member in (name, *parents):
            if member not in self.states:
                raise source.error("tables of variables that were declared", quote(member))
        if name in self.tables or len({name, *parents}) < 1 + len(parents):
            raise source.error(f"one table of {quote(name)}, with different parents", "another one")
        sizes = [len(self.states[member]) for member in (*parents, name)]
        source.require_memory(8.0 * min(math.prod(sizes), 2**60), "tables")
        if len(words) != math.prod(sizes):
            raise source.error(f"{math.prod(sizes)} probabilities of {quote(name)}", str(len(words)))
        for word in words:
            if not (is_number(word.encode()) and float(word) >= 0):
                raise source.error(f"probabilities of {quote(name)}, 0 or more", quote(word))
        rows = np.array([float(word) for word in words]).reshape(-1, sizes[-1])
        sums = sums_of(rows.ravel(), np.arange(0, rows.size, sizes[-1]))
        if (bad := ~sums_to_one(sums, sizes[-1])).any():
            sentence = f"the sum {sums[int(np.argmax(bad))]:.6g}"
            raise source.error(f"probabilities of {quote(name)} that sum to 1", sentence)
        self.parents[name] = tuple(parents)
        self.tables[name] = normalise(rows.ravel(), sums, sizes[-1]).reshape(rows.shape)

    def finish(self, source: Source) -> FactorGraph:
        """The model, if every variable has a table and none is its own ancestor."""
        for name in self.states:
            if name not in self.tables:
                raise source.error(f"a table of {quote(name)}", "none")
        position = {name: i for i, name in enumerate(self.states)}
        pairs = [(position[child], position[p]) for child, parents in self.parents.items() for p in parents]
        children, above = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        loop = in_a_cycle(children, above, len(position))
        if loop is not None:
            raise source.error("a network without a cycle", f"{quote(list(position)[loop])} among its own ancestors")
        return self.to_model(source)
