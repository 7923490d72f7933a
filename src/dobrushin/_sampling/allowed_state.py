"""A state that no factor forbids: where chains of models with hard zeros start.

Depth-first search with propagation: whenever the allowed states of a variable shrink, the factors around it are asked
which states of their other variables are still possible.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import FactorGraph, Model
from dobrushin._sampling.build import has_hard_zeros
from dobrushin.errors import BudgetError

# Choices that are tried before the search gives up.
MOST_CHOICES = 100_000


def allowed_state(model: Model, most_choices: int = MOST_CHOICES) -> NDArray[np.int64] | None:
    """States 0..k-1 of all variables that no factor forbids; None if there are none.

    `BudgetError` if the search gives up.
    """
    n = model.n_variables
    zeros = np.zeros(n, dtype=np.int64)
    if not has_hard_zeros(model):
        return zeros
    graph = model.to_factor_graph()
    if float(graph.log_density(zeros)) > -np.inf:
        return zeros
    return _Search(graph, most_choices).run()


class _Search:
    """Depth-first search. Changes of the domains are written down, so that they can be taken back."""

    def __init__(self, graph: FactorGraph, most_choices: int) -> None:
        self.most_choices = most_choices
        self.domains = [np.ones(k, dtype=np.bool_) for k in graph.cardinalities.tolist()]
        self.left = graph.cardinalities.tolist()  # how many states are left to each variable
        self.scopes: list[tuple[int, ...]] = []
        self.tables: list[NDArray[np.bool_]] = []
        self.around: list[list[int]] = [[] for _ in range(graph.n_variables)]
        self.liking = [np.zeros(k) for k in graph.cardinalities.tolist()]
        entries = np.flatnonzero(np.isneginf(graph._table))
        for k in np.unique(np.searchsorted(graph._table_start, entries, side="right") - 1).tolist():
            scope, table = graph.factor(k)
            for axis, variable in enumerate(scope):
                others = tuple(a for a in range(len(scope)) if a != axis)
                self.around[variable].append(len(self.tables))
                self.liking[variable] += np.exp(np.minimum(table, 0.0)).sum(axis=others)
            self.scopes.append(tuple(scope))
            self.tables.append(table > -np.inf)
        self.trail: list[tuple[int, NDArray[np.bool_]]] = []
        # Variables by the number of states left; entries that are out of date are skipped.
        self.heap = [(self.left[v], v) for v in range(graph.n_variables) if self.around[v]]
        heapq.heapify(self.heap)

    def run(self) -> NDArray[np.int64] | None:
        """An allowed state, or None."""
        if not self._propagate(set(range(len(self.tables)))):
            return None
        stack: list[tuple[int, list[int], int]] = []  # variable, states to try, length of the trail before
        descend = True
        for _ in range(self.most_choices):
            if descend:
                variable = self._next()
                if variable < 0:
                    return np.array([int(np.argmax(domain)) for domain in self.domains], dtype=np.int64)
                states = np.flatnonzero(self.domains[variable])
                order = states[np.argsort(self.liking[variable][states], kind="stable")]
                stack.append((variable, order.tolist(), len(self.trail)))
            while stack and not stack[-1][1]:
                self._undo(stack.pop()[2])
            if not stack:
                return None
            variable, untried, mark = stack[-1]
            self._undo(mark)
            self._set(variable, np.arange(len(self.domains[variable])) == untried.pop())
            descend = self._propagate(set(self.around[variable]))
        remedy = "Fix some variables with 'condition' to a state that is known to be allowed."
        raise BudgetError(
            "The search for an allowed state", self.most_choices + 1, self.most_choices, "choices", remedy
        )

    def _next(self) -> int:
        """The variable with the fewest states left, but more than one; -1 if all are settled."""
        while self.heap:
            left, variable = self.heap[0]
            if left == self.left[variable] and left > 1:
                return variable
            heapq.heappop(self.heap)
        return -1

    def _set(self, variable: int, domain: NDArray[np.bool_]) -> None:
        self.trail.append((variable, self.domains[variable]))
        self._put(variable, domain)

    def _put(self, variable: int, domain: NDArray[np.bool_]) -> None:
        self.domains[variable] = domain
        self.left[variable] = int(domain.sum())
        heapq.heappush(self.heap, (self.left[variable], variable))

    def _undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            self._put(*self.trail.pop())

    def _propagate(self, waiting: set[int]) -> bool:
        """Drop states that some factor has no allowed combination for; False if a variable has none left."""
        while waiting:
            k = waiting.pop()
            scope, table = self.scopes[k], self.tables[k]
            if not scope:
                return False
            possible = table
            for axis, variable in enumerate(scope):
                shape = [1] * len(scope)
                shape[axis] = -1
                possible = possible & self.domains[variable].reshape(shape)
            for axis, variable in enumerate(scope):
                left: Any = possible.any(axis=tuple(a for a in range(len(scope)) if a != axis))
                count = int(left.sum())
                if not count:
                    return False
                if count < self.left[variable]:
                    self._set(variable, left)
                    waiting.update(other for other in self.around[variable] if other != k)
        return True
