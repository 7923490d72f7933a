"""Bounds on the effect of a region's boundary, from how strongly messages can vary along walks. [trusted]

The bounds hold for factors of any number of variables and states, and need no influence matrix. With weak fields they
work up to larger couplings than Dobrushin's bound (theory page, "The boundary: walks").
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from dobrushin._exact.engine import RegionFactors
from dobrushin._models.factors import FactorTables
from dobrushin._shared.arrays import Floats, Ints

# Relative outward rounding of each product of the recursion, and of each difference of potentials.
_UP, _ULPS = 1.0 + 2.0**-40, 2.0**-50
# Largest number of sweeps of the recursion, and sweeps between two checks whether further ones still help.
_SWEEPS, _SWEEPS_PER_LOOK, _HELPS = 128, 8, 0.99
# Largest number of differences of potentials to compute; for larger regions no bound is given.
_MOST_WORK = 2.0**21


def boundary_effect(around: RegionFactors, targets: Ints) -> Floats:
    """Bound the total variation distance between each target's law in the model and under any boundary state.

    `targets` are positions among the variables of the region. The sum of the bounds is a bound for the targets' joint
    law.
    """
    factors, inside = around.factors, around.inside
    arity, of = np.diff(factors.scope_start), factors.scope
    owner, sizes = np.repeat(np.arange(len(arity)), arity), np.diff(factors.table_start)
    if float((sizes[owner] * factors.sizes[of] ** 2).sum()) > _MOST_WORK:
        return np.ones(len(targets))
    ranges = _double_differences(factors)
    message = ranges  # from each factor to each of its variables
    wanted = np.flatnonzero(inside)[targets]
    best = np.full(len(targets), np.inf)
    for _ in range(_SWEEPS // _SWEEPS_PER_LOOK):
        for _ in range(_SWEEPS_PER_LOOK):
            belief = np.where(inside[of], _sums_of_others(message, of), np.inf)
            message = np.minimum(message, _passed(ranges, _sums_of_others(belief, owner)))
        found = np.bincount(of, message, len(inside))[wanted] * _UP
        is_done = bool((np.isfinite(found) & (found >= _HELPS * best)).all())
        best = found
        if is_done:
            break
    return np.minimum(1.0, np.tanh(0.25 * best) * _UP)


def _passed(ranges: Floats, x: Floats) -> Floats:
    """Bound the oscillation of a message that a table sends on, if the incoming message has oscillation x at most.

    The oscillation of a message is the range of its logarithm, and `ranges` are those of the tables. The bound is 4
    atanh(tanh(range / 4) tanh(x / 4)), computed without cancellation.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        a, b = np.exp(-0.5 * ranges), np.exp(-0.5 * x)
        found = 2.0 * np.log1p(np.expm1(-0.5 * ranges) * np.expm1(-0.5 * x) / (a + b)) * _UP
    return np.where(a + b > 0.0, found, np.inf)


def _sums_of_others(values: Floats, group: Ints) -> Floats:
    """Return, for each entry, the sum of the other entries of its group, rounded up; entries may be infinite."""
    is_infinite = np.isinf(values)
    finite = np.where(is_infinite, 0.0, values)
    total = np.bincount(group, finite)[group]
    others = np.maximum(total - finite, 0.0) + total * (_UP - 1.0)
    return np.where(np.bincount(group, is_infinite)[group] > is_infinite, np.inf, others)


def _double_differences(factors: FactorTables) -> Floats:
    """Return, for each factor f and each of its variables, how much f's log-ratios between two states can vary.

    This is the range of log f(a, .) - log f(b, .) over the other variables, maximised over states a and b. It is
    infinite for factors with zeros.
    """
    starts, ranges = factors.scope_start, np.full(len(factors.scope), np.inf)
    alike: dict[tuple[int, ...], list[int]] = {}
    for k in range(factors.n_factors):
        table = factors.factor(k)[1]
        if np.isfinite(table).all():
            alike.setdefault(table.shape, []).append(k)
    for shape, same in alike.items():
        tables = factors.table[factors.table_start[same][:, None] + np.arange(math.prod(shape))]
        error = _ULPS * np.abs(tables).max(axis=1)
        for axis, states in enumerate(shape):
            rows = np.moveaxis(tables.reshape(-1, *shape), axis + 1, 1).reshape(len(same), states, -1)
            found = np.zeros(len(same))
            for a, b in combinations(range(states), 2):
                found = np.maximum(found, np.ptp(rows[:, a] - rows[:, b], axis=1))
            ranges[starts[same] + axis] = found + error
    return ranges
