"""The logarithm, in a form that runs on many numbers at once, and random times by it."""

import numpy as np

from dobrushin._kernels.exponential import LN2_HIGH, LN2_LOW
from dobrushin._shared.compile import kernel

UNIT = 2.0**-53
ROOT_HALF = np.int64(0x3FE6A09E00000000)  # the first bits of the square root of 1/2
EXPONENT = np.int64(-(2**52))  # the bits of the sign and the exponent
LEAST = 1e-300  # no time is 0, which forbidden labels could not be told from


@kernel
def arrival(random):
    """-log(u) of a random number u between 0 and 1."""
    return max(-logarithm((np.float64(np.int64(random >> np.uint64(11))) + 0.5) * UNIT), LEAST)


@kernel
def logarithm(u):
    """log(u) of a positive number, without a branch or a call, to about 2^-49 of itself.

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
