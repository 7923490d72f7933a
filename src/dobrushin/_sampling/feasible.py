"""A state that no factor forbids: where chains of models with hard zeros start.

Depth-first search with propagation: whenever the allowed states of a variable shrink, the factors around it are asked
which states of their other variables are still possible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import FactorGraph, Model
from dobrushin._sampling.build import has_hard_zeros
from dobrushin.errors import BudgetError

# Choices that are tried before the search gives up.
MOST_CHOICES = 100_000

Domains = list[NDArray[np.bool_]]


def allowed_state(model: Model, most_choices: int = MOST_CHOICES) -> NDArray[np.int64] | None:
    """States 0..k-1 of all variables that no factor forbids; None if there are none.

    `BudgetError` if the search gives up.
    """
    if not has_hard_zeros(model):
        return np.zeros(model.n_variables, dtype=np.int64)
    graph = model.to_factor_graph()
    hard = _Constraints(graph)
    domains: Domains | None = [np.ones(k, dtype=np.bool_) for k in graph.cardinalities.tolist()]
    assert domains is not None
    domains = hard.propagate(domains, set(range(len(hard.tables))))
    if domains is None:
        return None
    return _search(hard, domains, most_choices)


def _search(hard: _Constraints, domains: Domains, most_choices: int) -> NDArray[np.int64] | None:
    stack = [(domains, _choices(hard, domains))]
    for _ in range(most_choices):
        if not stack:
            return None
        domains, (variable, states) = stack[-1]
        if variable < 0:
            return np.array([int(np.argmax(domain)) for domain in domains], dtype=np.int64)
        if not states:
            stack.pop()
            continue
        state = states.pop()
        trial = list(domains)
        trial[variable] = np.arange(len(domains[variable])) == state
        narrowed = hard.propagate(trial, set(hard.around[variable]))
        if narrowed is not None:
            stack.append((narrowed, _choices(hard, narrowed)))
    remedy = "Fix some variables with 'condition' to a state that is known to be allowed."
    raise BudgetError("The search for an allowed state", most_choices + 1, most_choices, "choices", remedy)


def _choices(hard: _Constraints, domains: Domains) -> tuple[int, list[int]]:
    """The constrained variable with the fewest states left (-1 if all are settled), and these, the best one last."""
    best, fewest = -1, np.iinfo(np.int64).max
    for variable in hard.constrained:
        left = int(domains[variable].sum())
        if 1 < left < fewest:
            best, fewest = variable, left
            if left == 2:
                break
    if best < 0:
        return -1, []
    states = np.flatnonzero(domains[best])
    return best, states[np.argsort(hard.liking[best][states], kind="stable")].tolist()


class _Constraints:
    """The factors of a model that forbid something, as tables of what they allow."""

    def __init__(self, graph: FactorGraph) -> None:
        self.scopes: list[tuple[int, ...]] = []
        self.tables: list[NDArray[np.bool_]] = []
        self.around: list[list[int]] = [[] for _ in range(graph.n_variables)]
        self.liking = [np.zeros(k) for k in graph.cardinalities.tolist()]
        entries = np.flatnonzero(np.isneginf(graph._table))
        for k in np.unique(np.searchsorted(graph._table_start, entries, side="right") - 1).tolist():
            scope, table = graph.factor(k)
            allowed = table > -np.inf
            for axis, variable in enumerate(scope):
                others = tuple(a for a in range(len(scope)) if a != axis)
                self.around[variable].append(len(self.tables))
                self.liking[variable] += np.exp(np.minimum(table, 0.0)).sum(axis=others)
            self.scopes.append(tuple(scope))
            self.tables.append(allowed)
        self.constrained = sorted({variable for scope in self.scopes for variable in scope})

    def propagate(self, domains: Domains, waiting: set[int]) -> Domains | None:
        """Drop states that some factor has no allowed combination for; None if a variable has none left."""
        domains = list(domains)
        while waiting:
            k = waiting.pop()
            scope, table = self.scopes[k], self.tables[k]
            if not scope:
                if not table.all():
                    return None
                continue
            possible = table
            for axis, variable in enumerate(scope):
                shape = [1] * len(scope)
                shape[axis] = -1
                possible = possible & domains[variable].reshape(shape)
            for axis, variable in enumerate(scope):
                left: Any = possible.any(axis=tuple(a for a in range(len(scope)) if a != axis))
                if not left.any():
                    return None
                if left.sum() < domains[variable].sum():
                    domains[variable] = left
                    waiting.update(other for other in self.around[variable] if other != k)
        return domains
