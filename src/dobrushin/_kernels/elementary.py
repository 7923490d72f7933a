"""The exponential and the logarithm in forms that compilers can vectorise, and exponential random times."""

import numpy as np

from dobrushin._shared.compile import kernel

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to a whole number


@kernel
def exponential(t):
    """Return exp(t) with a relative error of about 2^-50, without branches.

    The result is 2^k times the Taylor polynomial of degree 13 at the remainder of t.
    """
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


UNIT = 2.0**-53
ROOT_HALF = np.int64(0x3FE6A09E00000000)  # the first bits of the square root of 1/2
EXPONENT = np.int64(-(2**52))  # the bits of the sign and the exponent
LEAST = 1e-300  # no time is 0, which forbidden labels could not be told from


@kernel
def arrival(random):
    """Return an exponential random time, -log(u) for a uniform u made from 64 random bits."""
    return max(-logarithm((np.float64(np.int64(random >> np.uint64(11))) + 0.5) * UNIT), LEAST)


@kernel
def logarithm(u):
    """Return log(u) of a positive number to a relative error of about 2^-49, without a branch.

    u = 2^e m with m between the square roots of 1/2 and 2, and log(m) = 2 artanh(s), s = (m - 1) / (m + 1).
    """
    bits = np.float64(u).view(np.int64)
    above = bits - ROOT_HALF
    e = np.float64(above >> np.int64(52))
    m = np.int64(bits - (above & EXPONENT)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = 2.0 / 15.0 + z * (2.0 / 17.0 + z * (2.0 / 19.0 + z * (2.0 / 21.0)))
    p = 2.0 / 7.0 + z * (2.0 / 9.0 + z * (2.0 / 11.0 + z * (2.0 / 13.0 + z * p)))
    p = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * p))
    return e * LN2_HIGH + (2.0 * s + (s * p + e * LN2_LOW))
