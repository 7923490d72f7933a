"""The last step of every influence bound (paper Section 4.1; theory page, "Rounding of influence bounds").

All influence kernels call this file, and must be compiled again after a change here.
"""

import numpy as np

from dobrushin._shared.compile import kernel

U = 2.0**-53  # unit roundoff
FLOOR = 2.0**-1000  # stands for positive numbers too small to be told from 0
COST = 64  # elementary operations of one call of `gap`

# The bound that an entry came from, in the order of `THEOREMS` in dobrushin._influence.rows.
THM4, THM4_UNARY, THM5, THM5_EXACT, THM6, THM6_TIGHT, ENUMERATED, RANGE, THM4_COARSE, RANGE_COARSE = range(1, 11)


@kernel
def gap(D, h):
    """Return sigma(h + D/2) - sigma(h - D/2) = sinh(D/2) / (cosh h + cosh(D/2)), rounded up, without cancellation."""
    if D <= 0.0:
        return 0.0
    x = 0.5 * D
    if not (x < np.inf and h < np.inf):
        return 1.0
    M = max(x, h)
    top = np.exp(x - M) * -np.expm1(-2.0 * x)
    bottom = np.exp(h - M) + np.exp(-h - M) + np.exp(x - M) + np.exp(-x - M)
    # exp turns the rounding of its argument, at most |x - h| U, into a relative error.
    value = top / bottom * (1.0 + (32.0 + 4.0 * abs(x - h)) * U)
    return min(1.0, max(value, FLOOR))
