"""Draws from the conditional laws of fields: exp(-psi) on an interval, psi(x) = m x^2/2 - c x + E e^x + N log(1 + e^x).

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
_AREA = 5e-4  # of a strip under exp(-z^2/2)
_CELLS = 256  # of the table of places, per unit
_BLOCK = 16  # chains that are looked at together
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
    """Strips from 0 on with rectangles of equal area over exp(-z^2/2), until one is too wide; the last has no end."""
    edges = [0.0]
    while True:
        width = _AREA / math.exp(-0.5 * edges[-1] ** 2)
        if width * edges[-1] > 1.0:
            return np.array([*edges, np.inf])
        edges.append(edges[-1] + width)


# Constants of the compiled code: loops that look them up can then run on many chains at once.
_X = _strip_edges()
_LAST = len(_X) - 2  # the strip that stands for the tail
_EDGE = float(_X[_LAST])
_TAIL = math.exp(-0.5 * _EDGE * _EDGE) / (_EDGE * _AREA)  # the tail, counted in strips
# The places of the ends of cells, counted in strips; the last cell reaches beyond the tail.
_GRID = np.arange(int(_EDGE * _CELLS) + 1) / _CELLS
_PLACE = np.append(np.interp(_GRID, _X[:-1], np.arange(_LAST + 1.0)), [_LAST + _TAIL] * 2)
_FARTHEST = float(len(_GRID)) - 0.5


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
def _lower_places(c, inverse, root, end, out):
    """Places at or a little below those of the lower end of the interval, for many chains at once."""
    for chain in range(c.size):
        z = (end - c[chain] * inverse) * root
        cell = np.int32(min(abs(z) * _CELLS, _FARTHEST))
        place = _PLACE[np.uint32(cell + np.int32(z < 0.0))]
        out[chain] = math.copysign(place, z)


@kernel
def _upper_places(c, inverse, root, end, out):
    """Places at or a little above those of the upper end."""
    for chain in range(c.size):
        z = (end - c[chain] * inverse) * root
        cell = np.int32(min(abs(z) * _CELLS, _FARTHEST))
        place = _PLACE[np.uint32(cell + np.int32(z >= 0.0))]
        out[chain] = math.copysign(place, z)


@kernel
def _words(keys, number, words):
    """The first random words of a step, for many chains at once."""
    for chain in range(words.size):
        words[chain] = mix(keys[0, chain] + keys[1, chain] * number)


@kernel
def _settle(words, low, high, z):
    """Proposals between two places, where they are accepted without a look at the density; NaN elsewhere."""
    for chain in range(words.size):
        s = low[chain] + _uniform(words[chain]) * (high[chain] - low[chain])
        size = abs(s)
        k = np.uint32(min(np.int32(size), np.int32(_LAST)))
        x = _X[k]
        width = _X[k + np.uint32(1)] - x
        over = (size - np.float64(np.int32(k))) * width
        # exp(-t) >= 1 - t for the ratio of the density to that at the edge of the strip.
        rough = np.float64(np.int32(words[chain] & np.uint64(2047)))
        sure = rough + 1.001 <= 2048.0 * (1.0 - over * (x + 0.5 * over))
        z[chain] = math.copysign(x + over, s) if sure else np.nan


@kernel
def _redraw(mean, root, low, high, from_place, to_place, key, gamma, step):
    """One draw from N(mean, 1 / root^2) on [low, high]: from strips between two places that hold the interval."""
    base = key + gamma * (np.uint64(step) << np.uint64(WORDS))
    x = mean
    for attempt in range(_ATTEMPTS):
        w = base + gamma * np.uint64(4 * attempt)
        word = mix(w)
        s = from_place + _uniform(word) * (to_place - from_place)
        size = abs(s)
        k = min(np.int64(size), _LAST)
        if k < _LAST:
            z = _X[k] + (size - k) * (_X[k + 1] - _X[k])
            # Eleven bits are left of the word; with the next one they decide.
            v = (np.float64(word & np.uint64(2047)) + _uniform(mix(w + gamma))) * 4.8828125e-4
            accepted = v < math.exp(-0.5 * (z - _X[k]) * (z + _X[k]))
        else:
            over = -math.log(_fine(mix(w + gamma), mix(w + gamma * np.uint64(2)))) / _EDGE
            z = _EDGE + over
            accepted = _uniform(mix(w + gamma * np.uint64(3))) < math.exp(-0.5 * over * over)
        x = mean + math.copysign(z, s) / root
        if accepted and low <= x <= high:
            break
    return min(max(x, low), high)


@kernel
def _move(c, inverse, deviation, z, xi):
    for chain in range(c.size):
        xi[chain] = c[chain] * inverse + z[chain] * deviation


@kernel
def _all_inside(x, low, high):
    """Whether all numbers are in the interval; NaN is not."""
    outside = 0
    for k in range(x.size):
        outside += 1 - np.int64((x[k] >= low) & (x[k] <= high))
    return outside == 0


@kernel
def _draw_alone(m, c, low, high, from_place, to_place, key, gamma, step):
    """One draw, of which the first attempt at once has settled nothing; from tangents in tails and narrow intervals."""
    mean, root = c * (1.0 / m), math.sqrt(m)
    a, b = (low - mean) * root, (high - mean) * root
    if a >= _EDGE or b <= -_EDGE or (high - low) * root < _WIDE:
        return draw_site(m, c, 0.0, 0.0, low, high, key, gamma, step)
    return _redraw(mean, root, low, high, from_place, to_place, key, gamma, step)


@kernel
def draw_normals(m, low, high, keys, step, c, words, room, xi):
    """One draw for each of many chains from exp(-m x^2/2 + c x) on [low, high].

    The first attempt is made for all chains at once; the few that it does not settle are drawn by themselves.
    """
    inverse, root = 1.0 / m, math.sqrt(m)
    from_place, to_place = room[0], room[1]
    if (high - low) * root < _WIDE:
        xi[:] = np.nan
    else:
        from_place[:] = -(_LAST + _TAIL)
        to_place[:] = _LAST + _TAIL
        if low > -np.inf:
            _lower_places(c, inverse, root, low, from_place)
        if high < np.inf:
            _upper_places(c, inverse, root, high, to_place)
        _words(keys, np.uint64(step) << np.uint64(WORDS), words)
        _settle(words, from_place, to_place, room[2])
        _move(c, inverse, 1.0 / root, room[2], xi)
    for first in range(0, c.size, _BLOCK):
        last = min(first + _BLOCK, c.size)
        if _all_inside(xi[first:last], low, high):
            continue
        for chain in range(first, last):
            if not low <= xi[chain] <= high:
                xi[chain] = _draw_alone(
                    m, c[chain], low, high, from_place[chain], to_place[chain], keys[0, chain], keys[1, chain], step
                )


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
    value_start, values, keys, c, words, room, x
):  # fmt: skip
    """Take chains through lists of steps (see `chain`); x is (variables, chains); c, words, room: scratch."""
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
            elif E > 0.0 or N > 0.0:
                for chain in range(x.shape[1]):
                    x[i, chain] = draw_site(m, c[chain], E, N, low, high, keys[0, chain], keys[1, chain], step)
            else:
                draw_normals(m, low, high, keys, step, c, words, room, x[i])


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
