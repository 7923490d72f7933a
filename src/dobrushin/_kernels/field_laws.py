"""Conditional laws of single variables of Gaussian fields, and their modes.

Their density is exp(-psi) with psi(x) = m x^2 / 2 - c x + E e^x + N log(1 + e^x), where E and N are the amounts of the
likelihood terms in the order of `_fields.likelihood.TERMS`.
"""

import math

import numpy as np

from dobrushin._kernels.elementary import exponential, logarithm
from dobrushin._shared.compile import kernel

_NEWTON = 4  # points, of which the last one counts


@kernel
def sigmoid(x):
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


@kernel
def slope(x, m, c, E, N):
    """Return psi'(x), the derivative of the law's negative log-density psi."""
    value = m * x - c
    if E > 0.0:
        value += E * math.exp(min(x, 700.0))
    if N > 0.0:
        value += N * sigmoid(x)
    return value


@kernel
def bend_at(x, m, E, N):
    """Return psi''(x), the second derivative of the law's negative log-density psi."""
    value = m
    if E > 0.0:
        value += E * math.exp(min(x, 700.0))
    if N > 0.0:
        s = sigmoid(x)
        value += N * s * (1.0 - s)
    return value


@kernel
def find_mode(m, c, E, N, low, high):
    """Return a point of the interval near the mode of exp(-psi); draws are correct for any point."""
    peak = c / m
    if E == 0.0 and N == 0.0:
        return min(max(peak, low), high)
    x = peak
    if E > 0.0:
        x = min(peak, max(math.log(max(c, 1.0) / E), 0.0))
    if low > -np.inf and slope(low, m, c, E, N) >= 0.0:
        return low
    if high < np.inf and slope(high, m, c, E, N) <= 0.0:
        return high
    left, right = -np.inf, np.inf
    for _ in range(200):
        g = slope(x, m, c, E, N)
        bend = bend_at(x, m, E, N)
        if g > 0.0:
            right = x
        else:
            left = x
        if abs(g) <= 0.01 * math.sqrt(bend):
            break
        new = x - g / bend
        if not left < new < right:
            if left > -np.inf and right < np.inf:
                new = 0.5 * (left + right)
            else:
                new = x - math.copysign(1.0 + abs(x), g)
        if new == x:
            break
        x = new
    return min(max(x, low), high)


@kernel
def find_modes(diagonal, c, amounts, lower, upper, point, excess):
    """Compute points near the modes of many variables' laws, and bounds |psi'| / m on the distances from them."""
    for i in range(point.size):
        m, E, N = diagonal[i], amounts[0, i], amounts[1, i]
        x = find_mode(m, c[i], E, N, lower[i], upper[i])
        point[i] = x
        g = slope(x, m, c[i], E, N)
        at_end = (x == lower[i] and g > 0.0) or (x == upper[i] and g < 0.0)
        excess[i] = 0.0 if at_end else abs(g) / m


@kernel
def divergence(x, d, m, E, N):
    """Return psi(x + d) - psi(x) - psi'(x) d >= 0, for the law's negative log-density psi."""
    value = 0.5 * m * d * d
    if E > 0.0:
        value += E * math.exp(min(x, 700.0)) * max(math.expm1(min(d, 700.0)) - d, 0.0)
    if N > 0.0:
        if x > 0.0:  # mirrored: s near 1 would cancel, times N
            x, d = -x, -d
        s = sigmoid(x)
        if d > 30.0:
            grown = d + math.log(s + (1.0 - s) * math.exp(-d))
        else:
            grown = math.log1p(s * math.expm1(d))
        value += N * max(grown - s * d, 0.0)
    return value


@kernel
def slope_gain(x, d, m, E, N):
    """Return psi'(x + d) - psi'(x), for the law's negative log-density psi."""
    value = m * d
    if E > 0.0:
        value += E * math.exp(min(x, 700.0)) * math.expm1(min(d, 700.0))
    if N > 0.0:
        value += N * (sigmoid(-x) - sigmoid(-x - d) if x > 0.0 else sigmoid(x + d) - sigmoid(x))
    return value


@kernel
def find_points(m, E, N, low, high, c, x, grown, s, g, bend):
    """Take Newton steps towards the mode for each chain.

    Also compute E e^x, the logistic function, psi' and psi'' at the points.
    """
    for k in range(_NEWTON):
        if k > 0:
            for chain in range(c.size):
                move = min(max(g[chain] / bend[chain], -1.0), 1.0)
                x[chain] = min(max(x[chain] - move, low), high)
        for chain in range(c.size):
            g[chain] = m * x[chain] - c[chain]
            bend[chain] = m
        if E > 0.0:
            for chain in range(c.size):
                grown[chain] = E * exponential(x[chain])
                g[chain] += grown[chain]
                bend[chain] += grown[chain]
        if N > 0.0:
            for chain in range(c.size):
                s[chain] = 1.0 / (1.0 + exponential(-x[chain]))
                g[chain] += N * s[chain]
                bend[chain] += N * (s[chain] * (1.0 - s[chain]))


@kernel
def rise(d):
    """Return e^d - 1 - d."""
    p = 1.0 / 479001600.0 + d * (1.0 / 6227020800.0 + d * (1.0 / 87178291200.0))
    p = 1.0 / 3628800.0 + d * (1.0 / 39916800.0 + d * p)
    p = 1.0 / 40320.0 + d * (1.0 / 362880.0 + d * p)
    p = 1.0 / 720.0 + d * (1.0 / 5040.0 + d * p)
    p = 0.5 + d * (1.0 / 6.0 + d * (1.0 / 24.0 + d * (1.0 / 120.0 + d * p)))
    return (d * d) * p if abs(d) < 0.5 else (exponential(d) - 1.0) - d


@kernel
def softplus_rise(d, s):
    """Return log(1 + e^(x + d)) - log(1 + e^x) - s d, where s is 1 / (1 + e^-x)."""
    return max(logarithm(1.0 + s * (exponential(d) - 1.0)) - s * d, 0.0)
