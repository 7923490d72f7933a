"""Draws from the conditional laws of fields: exp(-psi) on an interval, psi(x) = m x^2/2 - c x + E e^x + N log(1 + e^x).

Log-concave laws are drawn by rejection from three tangents of -psi (theory page, "Draws of fields"). Each step has 2^16
random words of its own.
"""

import math

import numpy as np

from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

WORDS = 16  # a step has 2^WORDS random words
_ROOT2 = 1.4142135623730951
_ATTEMPTS = 20000


@kernel
def _uniform(word):
    """A number in (0, 1) with 53 random bits."""
    return (np.float64(word >> np.uint64(11)) + 0.5) * 1.1102230246251565e-16


@kernel
def _sigmoid(x):
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


@kernel
def _slope(x, m, c, E, N):
    """psi'(x)."""
    value = m * x - c
    if E > 0.0:
        value += E * math.exp(min(x, 700.0))
    if N > 0.0:
        value += N * _sigmoid(x)
    return value


@kernel
def _bend(x, m, E, N):
    """psi''(x)."""
    value = m
    if E > 0.0:
        value += E * math.exp(min(x, 700.0))
    if N > 0.0:
        s = _sigmoid(x)
        value += N * s * (1.0 - s)
    return value


@kernel
def find_mode(m, c, E, N, low, high):
    """A point of the interval that is near the mode; nothing relies on how near."""
    peak = c / m
    if E == 0.0 and N == 0.0:
        return min(max(peak, low), high)
    x = peak
    if E > 0.0:
        x = min(peak, max(math.log(max(c, 1.0) / E), 0.0))
    if low > -np.inf and _slope(low, m, c, E, N) >= 0.0:
        return low
    if high < np.inf and _slope(high, m, c, E, N) <= 0.0:
        return high
    left, right = -np.inf, np.inf
    for _ in range(200):
        g = _slope(x, m, c, E, N)
        bend = _bend(x, m, E, N)
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
def find_modes(diagonal, c, exposure, trials, lower, upper, point, excess):
    """Points near the modes of many sites, and how far the modes can be from them: |psi'| / m."""
    for i in range(point.size):
        m, E, N = diagonal[i], exposure[i], trials[i]
        x = find_mode(m, c[i], E, N, lower[i], upper[i])
        point[i] = x
        g = _slope(x, m, c[i], E, N)
        at_end = (x == lower[i] and g > 0.0) or (x == upper[i] and g < 0.0)
        excess[i] = 0.0 if at_end else abs(g) / m


@kernel
def _divergence(x, d, m, E, N):
    """psi(x + d) - psi(x) - psi'(x) d, which is not negative."""
    value = 0.5 * m * d * d
    if E > 0.0:
        value += E * math.exp(min(x, 700.0)) * max(math.expm1(min(d, 700.0)) - d, 0.0)
    if N > 0.0:
        s = _sigmoid(x)
        if d > 30.0:
            grown = d + math.log(s + (1.0 - s) * math.exp(-d))
        else:
            grown = math.log1p(s * math.expm1(d))
        value += N * max(grown - s * d, 0.0)
    return value


@kernel
def _slope_gain(x, d, m, E, N):
    """psi'(x + d) - psi'(x)."""
    value = m * d
    if E > 0.0:
        value += E * math.exp(min(x, 700.0)) * math.expm1(min(d, 700.0))
    if N > 0.0:
        value += N * (_sigmoid(x + d) - _sigmoid(x))
    return value


@kernel
def _mass(rate, length):
    """The integral of exp(-rate s) over s from 0 to length, which may be infinite where the rate is positive."""
    if length == np.inf:
        return 1.0 / rate
    z = rate * length
    if abs(z) < 1e-17:
        return length
    return -math.expm1(-z) / rate


@kernel
def _place(u, rate, length):
    """The place s below which there is the share u of that integral."""
    if length == np.inf:
        return -math.log1p(-u) / rate
    z = rate * length
    if abs(z) < 1e-17:
        return u * length
    return min(-math.log1p(u * math.expm1(-z)) / rate, length)


@kernel
def draw_site(m, c, E, N, low, high, key, gamma, step):
    """One draw from exp(-psi) on [low, high]."""
    x = find_mode(m, c, E, N, low, high)
    g = _slope(x, m, c, E, N)
    if not ((x == low and g > 0.0) or (x == high and g < 0.0)) and E == 0.0 and N == 0.0:
        g = 0.0  # the mode is c / m, and what is left is its rounding
    scale = _ROOT2 / max(math.sqrt(_bend(x, m, E, N)), abs(g))
    # Tangents at x, to the right and to the left of it; places are relative to x.
    right, left = min(scale, high - x), max(-scale, low - x)
    gain_right, gain_left = _slope_gain(x, right, m, E, N), _slope_gain(x, left, m, E, N)
    while high == np.inf and g + gain_right <= 0.0:
        right *= 2.0
        gain_right = _slope_gain(x, right, m, E, N)
    while low == -np.inf and g + gain_left >= 0.0:
        left *= 2.0
        gain_left = _slope_gain(x, left, m, E, N)
    cut_right, cut_left = 0.0, 0.0
    if right > 0.0:
        cut_right = min(max(right - _divergence(x, right, m, E, N) / gain_right, 0.0), right)
    if left < 0.0:
        cut_left = max(min(left - _divergence(x, left, m, E, N) / gain_left, 0.0), left)
    length_right = high - x - cut_right if high < np.inf else np.inf
    length_left = x + cut_left - low if low > -np.inf else np.inf
    rate_right, rate_left = g + gain_right, -(g + gain_left)
    middle = cut_right - cut_left
    # Masses under the three tangents, relative to the height at the left cut.
    mass_middle = _mass(g, middle)
    mass_left = _mass(rate_left, length_left) if length_left > 0.0 else 0.0
    mass_right = math.exp(-g * middle) * _mass(rate_right, length_right) if length_right > 0.0 else 0.0
    total = mass_left + mass_middle + mass_right
    base = key + gamma * (np.uint64(step) << np.uint64(WORDS))
    t = 0.0
    for attempt in range(_ATTEMPTS):
        w = base + gamma * np.uint64(3 * attempt)
        which = _uniform(mix(w)) * total
        u = _uniform(mix(w + gamma))
        if which < mass_left:
            t = cut_left - _place(u, rate_left, length_left)
            at = left
        elif which < mass_left + mass_middle:
            t = cut_left + _place(u, g, middle)
            at = 0.0
        else:
            t = cut_right + _place(u, rate_right, length_right)
            at = right
        lost = _divergence(x + at, t - at, m, E, N)
        if _uniform(mix(w + gamma + gamma)) < math.exp(-lost):
            break
    return min(max(x + t, low), high)


@kernel
def draw_value(m, c, first, last, values, key, gamma, step):
    """One of the values of a variable on a finite set, with weights exp(-m v^2/2 + c v)."""
    top = -np.inf
    for k in range(first, last):
        top = max(top, c * values[k] - 0.5 * m * values[k] * values[k])
    total = 0.0
    for k in range(first, last):
        total += math.exp(c * values[k] - 0.5 * m * values[k] * values[k] - top)
    left = _uniform(mix(key + gamma * (np.uint64(step) << np.uint64(WORDS)))) * total
    for k in range(first, last - 1):
        left -= math.exp(c * values[k] - 0.5 * m * values[k] * values[k] - top)
        if left < 0.0:
            return values[k]
    return values[last - 1]


@kernel
def field_steps(
    order, number, repeats, base, period, start, neighbor, Q, diagonal, linear, lower, upper, exposure, trials,
    value_start, values, keys, c, x
):  # fmt: skip
    """Take chains through lists of steps (see `chain`); x is (variables, chains), c has room for one number a chain."""
    for r in range(repeats):
        for k in range(order.size):
            i = order[k]
            step = base + r * period + number[k]
            m, E, N, low, high = diagonal[i], exposure[i], trials[i], lower[i], upper[i]
            for chain in range(x.shape[1]):
                c[chain] = linear[i]
            for e in range(start[i], start[i + 1]):
                q, j = Q[e], neighbor[e]
                for chain in range(x.shape[1]):
                    c[chain] -= q * x[j, chain]
            first, last = value_start[i], value_start[i + 1]
            if first < last:
                for chain in range(x.shape[1]):
                    x[i, chain] = draw_value(m, c[chain], first, last, values, keys[0, chain], keys[1, chain], step)
            else:
                for chain in range(x.shape[1]):
                    x[i, chain] = draw_site(m, c[chain], E, N, low, high, keys[0, chain], keys[1, chain], step)


@kernel
def spread(at, allowance, order, start, columns, C, g, v, total):
    """Pull weights back through the steps of an order; total[0] adds up v_t(i_t)^2 g. at: [steps from the end]."""
    spent = 0
    while at[0] < order.size and spent < allowance:
        i = order[order.size - 1 - at[0]]
        w = v[i]
        v[i] = 0.0
        if w > 0.0:
            total[0] += w * w * g[i]
            for e in range(start[i], start[i + 1]):
                v[columns[e]] += w * C[e]
        spent += 8 + 2 * (start[i + 1] - start[i])
        at[0] += 1
