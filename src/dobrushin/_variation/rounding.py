"""Rounding of sums of non-negative numbers, from above.

A value that k additions and multiplications of non-negative numbers lead to has a relative error of at most
k u / (1 - k u), with u = 2^-53 the unit roundoff; for k u < 1/4 a factor 1 + 2 k u, itself rounded, makes it an
upper bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dobrushin.errors import BudgetError

UNIT = 2.0**-53
# Stands for positive bounds too small to be told from 0: products of such numbers do not lose relative precision.
FLOOR = 2.0**-1000


def inflation(operations: int) -> float:
    """Factor that turns the result of so many roundings into an upper bound."""
    # Four more pay for the roundings of the factor itself and of its use.
    k = operations + 4
    if k * UNIT >= 0.25:
        raise BudgetError("A certificate of this scan", k, 0.25 / UNIT, "roundings", "Split the scan.")
    return 1.0 + 2.0 * k * UNIT


def weighted_sum(weights: NDArray[np.float64], bounds: NDArray[np.float64], operations: int) -> float:
    """Upper bound on weights' bounds, where the bounds carry the rounding of so many operations."""
    terms = len(weights)
    # Any order of the additions has this error bound. Products below the normal range lose up to 2^-1075 each.
    total = float(weights @ bounds) + terms * 2.0**-1074
    return total * inflation(operations + 2 * terms)
