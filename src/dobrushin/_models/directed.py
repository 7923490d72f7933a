"""Factor graphs that are Bayesian networks: which variable each table gives the probabilities of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.factors import FactorGraph


def sums_to_one(sums: NDArray[np.float64], states: Any) -> NDArray[np.bool_]:
    """Which sums of the probabilities of so many states are 1 but for rounding.

    Published tables are rounded, to two digits at worst: 0.33 three times sums to 0.99.
    """
    return np.abs(sums - 1) <= np.maximum(0.01, 0.005 * np.asarray(states)) + 1e-9


def find_parents(model: FactorGraph) -> list[tuple[int, int]] | None:
    """The variable that each factor gives the probabilities of, as pairs; None if the model is no Bayesian network.

    A variable that is in one factor only must be the one of that factor, and its sums must be 1. Without both, the same
    holds for those that are left.
    """
    scopes = [set(model.factor(k)[0]) for k in range(model.n_factors)]
    homes: list[set[int]] = [set() for _ in range(model.n_variables)]
    for k, scope in enumerate(scopes):
        for i in scope:
            homes[i].add(k)
    leaves = [i for i, home in enumerate(homes) if len(home) == 1]
    pairs: list[tuple[int, int]] = []
    while leaves:
        i = leaves.pop()
        if len(homes[i]) != 1:
            continue
        k = homes[i].pop()
        members, table = model.factor(k)
        weights = np.moveaxis(np.exp(table), members.index(i), -1)
        if not sums_to_one(weights.sum(axis=-1), weights.shape[-1]).all():
            return None
        pairs.append((i, k))
        for j in scopes[k] - {i}:
            homes[j].discard(k)
            if len(homes[j]) == 1:
                leaves.append(j)
            elif not homes[j]:
                return None
    return pairs if len(pairs) == model.n_variables == model.n_factors else None
