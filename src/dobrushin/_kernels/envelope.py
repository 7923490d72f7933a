"""Importance samples (tries) from the Gaussian envelope of an Ising model, and normal random numbers.

Theory page, "The Gaussian envelope".
"""

import math

import numpy as np

from dobrushin._kernels.elementary import exponential, logarithm
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

UNIT = 2.0**-53
HALF_WORD = 2.0**-64
# Exponentials of smaller numbers are taken as 0.
LOWEST = -690.0
FEW = np.uint64(2**52)


@kernel
def normal(first, second):
    """Return a standard normal number made from two words of 64 random bits, by Wichura's algorithm AS 241.

    The first bit is the sign. The other bits make a uniform number below 1/2, with 53 digits however small it is, whose
    normal quantile is returned.
    """
    word = first >> np.uint64(1)
    u = np.float64(np.int64(word))
    if word < FEW:
        u += (np.float64(np.int64(second >> np.uint64(11))) + 0.5) * UNIT
    else:
        u += 0.5
    u *= HALF_WORD
    q = 0.5 - u
    if q <= 0.425:
        r = 0.180625 - q * q
        top = ((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r
        top = (((top + 45921.953931549871457) * r + 13731.693765509461125) * r + 1971.5909503065514427) * r
        top = (top + 133.14166789178437745) * r + 3.3871328727963666080
        low = ((5226.4952788528545610 * r + 28729.085735721942674) * r + 39307.895800092710610) * r
        low = (((low + 21213.794301586595867) * r + 5394.1960214247511077) * r + 687.18700749205790830) * r
        low = (low + 42.313330701600911252) * r + 1.0
        value = q * top / low
    else:
        r = math.sqrt(-logarithm(u))
        if r <= 5.0:
            r -= 1.6
            top = ((7.74545014278341407640e-4 * r + 0.0227238449892691845833) * r + 0.241780725177450611770) * r
            top = (((top + 1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.76949722146069140550) * r
            top = (top + 4.63033784615654529590) * r + 1.42343711074968357734
            low = ((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r + 0.0151986665636164571966) * r
            low = (((low + 0.148103976427480074590) * r + 0.689767334985100004550) * r + 1.67638483018380384940) * r
            low = (low + 2.05319162663775882187) * r + 1.0
        else:
            r -= 5.0
            top = ((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 0.00124266094738807843860) * r
            top = (((top + 0.0265321895265761230930) * r + 0.296560571828504891230) * r + 1.78482653991729133580) * r
            top = (top + 5.46378491116411436990) * r + 6.65790464350110377720
            low = ((2.04426310338993978564e-15 * r + 1.4215117583164458887e-7) * r + 1.8463183175100546818e-5) * r
            low = (((low + 7.868691311456132591e-4) * r + 0.0148753612908506148525) * r + 0.136929880922735805310) * r
            low = (low + 0.599832206555887937690) * r + 1.0
        value = top / low
    return value if first & np.uint64(1) else -value


@kernel
def draw_fields(keys, threshold, factor, shift, fields, curvature, tops, asked, a, out):
    """Draw local fields a from the envelope, and spins given the fields, in many importance samples.

    out[0] is the logarithm of each weight, and out[1 :] the wanted spins `asked`. Row k of `factor` says how much a
    normal number with mean shift[k] adds to the fields from k on. The weight is the product of 2 cosh(a_k) /
    exp(curvature[k] a_k^2 / 2 + tops[k]), each at most 1. A sample whose log-weight falls below `threshold` continues
    with the probability that keeps the mean weight.
    """
    n = fields.size
    for c in range(keys.shape[1]):
        key, gamma = keys[0, c], keys[1, c]
        for i in range(n):
            a[i] = fields[i]
        weight = 0.0
        for k in range(n):
            counter = np.uint64(4 * k)
            s = shift[k] + normal(mix(key + gamma * counter), mix(key + gamma * (counter + np.uint64(1))))
            for i in range(k, n):
                a[i] += factor[k, i] * s
            size = abs(a[k])
            ratio = size + logarithm(1.0 + exponential(-2.0 * size)) - 0.5 * curvature[k] * size * size - tops[k]
            weight += min(ratio, 0.0)
            if weight < threshold:
                u = np.float64(mix(key + gamma * (counter + np.uint64(2))) >> np.uint64(11)) * UNIT
                short = weight - threshold
                if short < LOWEST or u >= exponential(short):
                    weight = -np.inf
                    break
                weight = threshold
        out[0, c] = weight
        for i in range(asked.size):
            out[i + 1, c] = 0.0
            if weight > -np.inf:
                u = np.float64(mix(key + gamma * np.uint64(4 * asked[i] + 3)) >> np.uint64(11)) * UNIT
                out[i + 1, c] = 1.0 if u * (1.0 + exponential(-2.0 * a[asked[i]])) < 1.0 else 0.0
