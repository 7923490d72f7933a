"""Variables that can be summed out of a product of tables without changing the law of the others. [trusted]

A variable that occurs in one factor only can be summed out there. If the sum does not depend on the other variables of
the factor, as in a table of probabilities given parents, both can go, and then perhaps the parents. In a Bayesian
network these are the variables without observed or wanted descendants. But nothing here rests on a claim that the model
is one: the sums are computed, so that no reader, file or change of the model can make it wrong.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dobrushin._models.factors import FactorTables

# Sums that differ by this much relatively are still called equal; what it changes is counted.
_EQUAL = 1e-12


class Rest(NamedTuple):
    """What is left, and what was summed.

    Attributes
    ----------
    variables, factors : arrays of bool
        What is left.
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
