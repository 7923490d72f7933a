"""Draws from the conditional laws of fields: exp(-psi) on an interval, psi(x) = m x^2/2 - c x + E e^x + N log(1 + e^x).

E and N are the amounts of the terms of likelihoods, in the order of `_fields.likelihood.TERMS`.

Truncated Gaussians are drawn by rejection from strips of equal area, other log-concave laws, and Gaussians in a tail
or a narrow interval, by rejection from three tangents of -psi (theory page, "Draws of fields"). Each step has 2^16
random words of its own.
"""

import math

import numpy as np

from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

WORDS = 16  # a step has 2^WORDS random words
_ROOT2 = 1.4142135623730951
_ATTEMPTS = 16000
_AREA = 1e-3  # of a strip over exp(-z^2/2)
_UNIT = 2.0**-24  # edges of strips are whole multiples of this
_WIDE = 0.25  # intervals that are narrower, in standard deviations, are drawn from tangents: places would cancel


@kernel
def _uniform(word):
    """A number in (0, 1) with 53 random bits."""
    return (np.float64(word >> np.uint64(11)) + 0.5) * 1.1102230246251565e-16


@kernel
def _fine(word, more):
    """A number in (0, 1) whose relative precision does not suffer near 0."""
    return (np.float64(word) + _uniform(more)) * 5.421010862427522e-20


def _strip_edges():
    """Return the edges of strips with rectangles of equal area over exp(-z^2/2), up to the tail."""
    edges = [0]
    while True:
        edge = edges[-1] * _UNIT
        width = int(_AREA * math.exp(0.5 * edge * edge) / _UNIT)
        if width * _UNIT * edge > 1.0:
            return edges
        edges.append(edges[-1] + width)


# Constants of the compiled code: loops that look them up can then run on many chains at once. A strip is one number,
# its edge times 2^32 plus its width, so that it takes one look.
_EDGES = _strip_edges()
_STRIP = np.array([(left << 32) + right - left for left, right in zip(_EDGES, [*_EDGES[1:], _EDGES[-1]], strict=True)])
_LAST = float(len(_EDGES) - 1)  # the strip that stands for the tail
_EDGE = _EDGES[-1] * _UNIT
_ALL = _LAST + math.exp(-0.5 * _EDGE * _EDGE) / (_EDGE * _AREA)  # strips, and the tail counted in them
# How many strips are between 0 and z: this polynomial, z (P0 + P1 z^2 + ...), or at most _SLACK more or less.
_P0, _P1, _P2, _P3 = 999.6814651, -165.1235818, 23.70758499, -2.44188063
_P4, _P5, _P6 = 0.16711285, -0.006686382106, 0.0001166829936
_SLACK = 0.125


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
def find_modes(diagonal, c, amounts, lower, upper, point, excess):
    """Points near the modes of many sites, and how far the modes can be from them: |psi'| / m."""
    for i in range(point.size):
        m, E, N = diagonal[i], amounts[0, i], amounts[1, i]
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
        if x > 0.0:  # mirrored: s near 1 would cancel, times N
            x, d = -x, -d
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
        value += N * (_sigmoid(-x) - _sigmoid(-x - d) if x > 0.0 else _sigmoid(x + d) - _sigmoid(x))
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
def _place(word, more, rate, length):
    """A random place s with density exp(-rate s) on [0, length]."""
    if length == np.inf:
        return -math.log(_fine(word, more)) / rate
    z = rate * length
    if z > 1.0:
        v = _fine(word, more)
        return min(-math.log(v + (1.0 - v) * math.exp(-z)) / rate, length)
    u = _uniform(word)
    if abs(z) < 1e-17:
        return u * length
    return min(-math.log1p(u * math.expm1(-z)) / rate, length)


@kernel
def draw_site(m, c, E, N, low, high, key, gamma, step):
    """One draw from exp(-psi) on [low, high]."""
    x = find_mode(m, c, E, N, low, high)
    g = _slope(x, m, c, E, N)
    if not ((x == low and g > 0.0) or (x == high and g < 0.0)) and E == 0.0 and N == 0.0:
        g = 0.0  # the mode is c / m, and the slope there is rounding
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
        w = base + gamma * np.uint64(4 * attempt)
        which = _uniform(mix(w)) * total
        word, more = mix(w + gamma), mix(w + gamma * np.uint64(2))
        if which < mass_left:
            t = cut_left - _place(word, more, rate_left, length_left)
            at = left
        elif which < mass_left + mass_middle:
            t = cut_left + _place(word, more, g, middle)
            at = 0.0
        else:
            t = cut_right + _place(word, more, rate_right, length_right)
            at = right
        lost = _divergence(x + at, t - at, m, E, N)
        if _uniform(mix(w + gamma * np.uint64(3))) < math.exp(-lost):
            break
    return min(max(x + t, low), high)


@kernel
def _strips(z):
    """About how many strips are between 0 and z, negative where z is."""
    z = min(max(z, -_EDGE), _EDGE)
    y = z * z
    return z * (_P0 + y * (_P1 + y * (_P2 + y * (_P3 + y * (_P4 + y * (_P5 + y * _P6))))))


@kernel
def lower_place(z):
    """Return a place at or a little below that of z; the tail is one piece, without places inside."""
    place = _strips(z) - _SLACK
    return place if place > -_LAST else -_ALL


@kernel
def upper_place(z):
    """A place at or a little above that of z."""
    place = _strips(z) + _SLACK
    return place if place < _LAST else _ALL


@kernel
def _attempt(m, low, high, keys, number, c, xi):
    """A proposal for each chain, where it is accepted without a look at the density, and NaN elsewhere; how many are.

    No branches: all this runs on many chains at once.
    """
    inverse, root = 1.0 / m, math.sqrt(m)
    unit = _UNIT / root
    missing = 0
    for chain in range(c.size):
        mean = c[chain] * inverse
        first = lower_place((low - mean) * root) if low > -np.inf else -_ALL
        last = upper_place((high - mean) * root) if high < np.inf else _ALL
        word = mix(keys[0, chain] + keys[1, chain] * number)
        place = first + _uniform(word) * (last - first)
        size = abs(place)
        strip = _STRIP[np.uint64(np.int64(size))]
        edge = np.float64(strip >> 32)
        over = (size - np.float64(np.int64(size))) * np.float64(strip & 0xFFFFFFFF)
        # exp(-t) >= 1 - t for the ratio of the density to that at the edge, of which the strip keeps all but 6e-5.
        rough = np.float64(np.int64(word & np.uint64(2047)))
        sure = rough + 1.2 <= 2048.0 - (2048.0 * _UNIT * _UNIT) * (over * (edge + 0.5 * over))
        x = mean + math.copysign(edge + over, place) * unit
        settled = sure & (size < _LAST) & (x >= low) & (x <= high)
        xi[chain] = x if settled else np.nan
        missing += 1 - np.int64(settled)
    return missing


@kernel
def _redraw(mean, root, low, high, key, gamma, step):
    """One draw from N(mean, 1 / root^2) on [low, high]: from strips between two places that hold the interval."""
    first, last = lower_place((low - mean) * root), upper_place((high - mean) * root)
    base = key + gamma * (np.uint64(step) << np.uint64(WORDS))
    x = mean
    for attempt in range(_ATTEMPTS):
        w = base + gamma * np.uint64(4 * attempt)
        word = mix(w)
        place = first + _uniform(word) * (last - first)
        size = abs(place)
        if size < _LAST:
            strip = _STRIP[np.int64(size)]
            width = np.float64(strip & 0xFFFFFFFF) * _UNIT
            z = np.float64(strip >> 32) * _UNIT + (size - np.float64(np.int64(size))) * width
            # Eleven bits are left of the word; with the next one they decide.
            v = (np.float64(word & np.uint64(2047)) + _uniform(mix(w + gamma))) * 4.8828125e-4
            accepted = v * _AREA < math.exp(-0.5 * z * z) * width
        else:
            over = -math.log(_fine(mix(w + gamma), mix(w + gamma * np.uint64(2)))) / _EDGE
            z = _EDGE + over
            accepted = _uniform(mix(w + gamma * np.uint64(3))) < math.exp(-0.5 * over * over)
        x = mean + math.copysign(z, place) / root
        if accepted and low <= x <= high:
            break
    return min(max(x, low), high)


@kernel
def _draw_alone(m, c, low, high, key, gamma, step):
    """Return a draw whose first attempt was rejected; from tangents in tails and short intervals."""
    mean, root = c * (1.0 / m), math.sqrt(m)
    a, b = (low - mean) * root, (high - mean) * root
    if a >= _EDGE or b <= -_EDGE or (high - low) * root < _WIDE:
        return draw_site(m, c, 0.0, 0.0, low, high, key, gamma, step)
    return _redraw(mean, root, low, high, key, gamma, step)


@kernel
def draw_normals(m, low, high, keys, step, c, xi):
    """Draw for each of many chains from exp(-m x^2/2 + c x) on [low, high].

    The first attempt is made for all chains at once; the few whose attempt is rejected are drawn by themselves.
    """
    missing = c.size
    if (high - low) * math.sqrt(m) < _WIDE:
        xi[:] = np.nan
    else:
        missing = _attempt(m, low, high, keys, np.uint64(step) << np.uint64(WORDS), c, xi)
    chain = 0
    while missing > 0:
        if not low <= xi[chain] <= high:
            xi[chain] = _draw_alone(m, c[chain], low, high, keys[0, chain], keys[1, chain], step)
            missing -= 1
        chain += 1


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
def _linear_terms(own, near, Q, x, c):
    """linear_i - sum_j Q_ij x_j of each chain, one term after the other; four at a time, to read and write c seldom."""
    for chain in range(c.size):
        c[chain] = own
    e = 0
    while e + 4 <= near.size:
        q0, q1, q2, q3 = Q[e], Q[e + 1], Q[e + 2], Q[e + 3]
        x0, x1, x2, x3 = x[near[e]], x[near[e + 1]], x[near[e + 2]], x[near[e + 3]]
        for chain in range(c.size):
            c[chain] = (((c[chain] - q0 * x0[chain]) - q1 * x1[chain]) - q2 * x2[chain]) - q3 * x3[chain]
        e += 4
    while e < near.size:
        q, other = Q[e], x[near[e]]
        for chain in range(c.size):
            c[chain] -= q * other[chain]
        e += 1


@kernel
def field_steps(
    order, number, repeats, base, period, start, neighbor, Q, diagonal, linear, lower, upper, amounts,
    value_start, values, keys, c, x
):  # fmt: skip
    """Take chains through lists of steps (see `spins`); x is (variables, chains); c is scratch."""
    for r in range(repeats):
        for k in range(order.size):
            i = order[k]
            step = base + r * period + number[k]
            m, E, N, low, high = diagonal[i], amounts[0, i], amounts[1, i], lower[i], upper[i]
            _linear_terms(linear[i], neighbor[start[i] : start[i + 1]], Q[start[i] : start[i + 1]], x, c)
            first, last = value_start[i], value_start[i + 1]
            if first < last:
                for chain in range(x.shape[1]):
                    x[i, chain] = draw_value(m, c[chain], first, last, values, keys[0, chain], keys[1, chain], step)
            elif E > 0.0 or N > 0.0:
                for chain in range(x.shape[1]):
                    x[i, chain] = draw_site(m, c[chain], E, N, low, high, keys[0, chain], keys[1, chain], step)
            else:
                draw_normals(m, low, high, keys, step, c, x[i])


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
