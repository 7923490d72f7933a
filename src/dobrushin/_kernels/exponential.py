"""The exponential function, in a form that runs on many numbers at once."""

import numpy as np

from dobrushin._shared.compile import kernel

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to a whole number


@kernel
def exponential(t):
    """exp(t) without a branch or a call, to about 2^-50: 2^k times the Taylor polynomial of the rest to degree 13."""
    t = min(max(t, -700.0), 700.0)
    y = t * 1.4426950408889634 + ROUND
    k = y - ROUND
    r = (t - k * LN2_HIGH) - k * LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (1.0 / 2.0 + r * (1.0 / 6.0))
    middle = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0))
    high = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
    top = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0)
    p = low + r4 * (middle + r4 * (high + r4 * top))
    # The whole number stands in the lowest bits of y: shifted, it is added to the exponent of p.
    bits = np.float64(p).view(np.int64) + (np.float64(y).view(np.int64) << np.int64(52))
    return np.int64(bits).view(np.float64)
