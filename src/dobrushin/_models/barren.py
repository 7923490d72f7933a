"""Variables that can be summed out of a product of tables without changing the law of the others. [trusted]

A variable that occurs in one factor only can be summed out there. If the sum does not depend on the other variables of
the factor, as in a table of probabilities given parents, both can go, and then perhaps the parents. In a Bayesian
network these are the variables without observed or wanted descendants. But nothing here rests on a claim that the model
is one: the sums are computed, so that no reader, file or change of the model can make it wrong.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dobrushin._models.factors import FactorGraph, FactorTables

# Sums that differ by this much relatively are still called equal; what it changes is counted.
_EQUAL = 1e-12


class Rest(NamedTuple):
    """The variables and factors that remain after summation, and the sums.

    Attributes
    ----------
    variables, factors : arrays of bool
        Masks of those that remain.
    error : float
        Bounds how far its log-density is off, up to a constant.
    sums : list of pairs
        Factors that were dropped, each with the axis over which it was summed.
    """

    variables: NDArray[np.bool_]
    factors: NDArray[np.bool_]
    error: float
    sums: list[tuple[int, int]]


def sum_out(form: FactorTables, wanted: NDArray[np.bool_]) -> Rest:
    """Drop variables that are not wanted and in one factor or none, as long as the sums are constant.

    Each sum is within a factor of e^(±error) of a constant, and all terms are non-negative: so is, in the end, their
    product, by which the law of the variables that are left differs from the product of the factors that are left.
    """
    factor_start, factor_of = form.factor_start.tolist(), form.factor_of.tolist()
    count = np.diff(form.factor_start).tolist()  # factors that are left, of each variable
    variables, factors = np.ones(form.n_variables, dtype=bool), np.ones(form.n_factors, dtype=bool)
    waiting = np.flatnonzero((np.diff(form.factor_start) <= 1) & ~wanted).tolist()
    error, sums = 0.0, []
    while waiting:
        v = waiting.pop()
        if not variables[v]:
            continue
        own = [k for k in factor_of[factor_start[v] : factor_start[v + 1]] if factors[k]]
        if own:
            scope = form.scope[form.scope_start[own[0]] : form.scope_start[own[0] + 1]].tolist()
            axis = scope.index(v)
            variation = form.sum_variation(own[0], axis)
            if variation == math.inf:
                continue
            error += variation
            sums.append((own[0], axis))
            factors[own[0]] = False
            for u in scope:
                count[u] -= 1
                if count[u] <= 1 and not wanted[u]:
                    waiting.append(u)
        variables[v] = False
    return Rest(variables, factors, error, sums)


def sum_variation(log_table: NDArray[np.float64], axis: int) -> float:
    """Bound on how much the logarithm of the sum over an axis varies with the others; inf unless it is about constant.

    The largest term is 1, so that sums that are about equal are 1 or more. A sum of k terms is then good to
    (k + 16) / 2^52: a few units for each exponential, one for each addition, and less than one for each argument.
    """
    top = float(log_table.max())
    if top == -math.inf:
        return math.inf
    sums = np.exp(log_table - top).sum(axis=axis)
    least, most = float(sums.min()), float(sums.max())
    if least <= 0.0 or most - least > _EQUAL * least:
        return math.inf
    return (most - least) / least + (log_table.shape[axis] + 16) * 2.0**-51


def log_sum(log_table: NDArray[np.float64], axis: int) -> float:
    """The logarithm of the sum over an axis where it is about constant: as far off as `sum_variation` says."""
    top = float(log_table.max())
    first = np.moveaxis(log_table, axis, -1).reshape(-1, log_table.shape[axis])[0]
    return top + math.log(float(np.exp(first - top).sum()))


def sums_to_one(sums: NDArray[np.float64], states: Any) -> NDArray[np.bool_]:
    """Return which sums of probabilities over `states` states are 1 up to rounding.

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
