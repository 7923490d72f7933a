"""How much enumeration is worth it.

Costs are counted in elementary operations, about a nanosecond each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.rows import Wanted
from dobrushin._shared.arrays import frozen, prefix_sums
from dobrushin._shared.log import log
from dobrushin.errors import BudgetError

# Per row: with method="best" larger rows fall back on a closed form, with method="exact" they are an error.
BEST = 1e5
EXACT = 1e9
# Sign patterns that Theorem 5 tries with method="best" and "exact": 2 ** (degree - 1) per entry.
BEST_DEGREE = 12
EXACT_DEGREE = 24


def enumerable(wanted: Wanted, k_own: NDArray[np.int64], k_other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of the rows whose neighbourhoods are small enough to enumerate."""
    start = wanted.start
    logs, sums = prefix_sums(np.log(k_other.astype(float))), prefix_sums(k_other.astype(float))
    with np.errstate(over="ignore"):
        configurations = np.exp(logs[start[1:]] - logs[start[:-1]])
        cost = configurations * k_own * (1.0 + sums[start[1:]] - sums[start[:-1]])
    if wanted.method == "exact" and (over := cost > EXACT).any():
        r = int(np.argmax(over))
        raise over_budget(wanted.labels[int(wanted.positions[r])], float(cost[r]), EXACT)
    fits = cost <= (EXACT if wanted.method == "exact" else BEST)
    if not fits.all():
        log.info("influence: %d of %d rows have too many neighbours to enumerate", np.sum(~fits), len(fits))
    return frozen(np.flatnonzero(fits))


def over_budget(label: object, cost: float, limit: float) -> BudgetError:
    """What to raise when a row of the exact influence is out of reach."""
    return BudgetError(
        f"The exact influence on variable {label!r}", cost, limit, "operations", "Use method='best' instead."
    )
