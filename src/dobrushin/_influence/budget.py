"""How much enumeration is worth it.

Costs are counted in elementary operations, about a nanosecond each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.influence import ENUMERATED
from dobrushin._shared.arrays import frozen
from dobrushin.errors import BudgetError

# Per row: with method="best" larger rows fall back on a closed form, with method="exact" they are an error.
BEST = 1e5
EXACT = 1e9
# Sign patterns that Theorem 5 tries with method="best" and "exact": 2 ** (degree - 1) per entry.
BEST_DEGREE = 12
EXACT_DEGREE = 24


def enumerable(
    labels: Any, positions: NDArray[np.int64], k_own: NDArray[np.int64], start: NDArray[np.int64],
    k_other: NDArray[np.int64], method: str,
) -> NDArray[np.int64]:  # fmt: skip
    """Indices of the rows whose neighbourhoods are small enough to enumerate."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(k_other.astype(float)))])
    sums = np.concatenate([[0.0], np.cumsum(k_other.astype(float))])
    with np.errstate(over="ignore"):
        configurations = np.exp(logs[start[1:]] - logs[start[:-1]])
        cost = configurations * k_own * (1.0 + sums[start[1:]] - sums[start[:-1]])
    if method == "exact" and (over := cost > EXACT).any():
        r = int(np.argmax(over))
        over_budget(labels[int(positions[r])], float(cost[r]), EXACT)
    return frozen(np.flatnonzero(cost <= (EXACT if method == "exact" else BEST)))


def forget(values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64]) -> None:
    """Start from the trivial bound, so that what enumeration finds stands by itself."""
    values[:] = 1.0
    cap[:] = 1.0
    theorem[:] = ENUMERATED


def over_budget(label: object, cost: float, limit: float) -> None:
    """Say that a row of the exact influence is out of reach."""
    raise BudgetError(
        f"The exact influence on variable {label!r}", cost, limit, "operations", "Use method='best' instead."
    )
