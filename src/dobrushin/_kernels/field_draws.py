"""Draws from the conditional laws of Gaussian fields: densities exp(-psi) on an interval (see `field_laws`).

Truncated Gaussians are drawn by rejection from strips of equal area. Laws with a likelihood are drawn by rejection from
two half-Gaussians above exp(-psi). Laws in a tail or a narrow interval, or with a mode at an end, are drawn by
rejection from three tangents of -psi (theory page, "Draws of fields"). Each step has 2^16 random words of its own.
"""

import math

import numpy as np

from dobrushin._kernels.field_laws import (
    bend_at,
    divergence,
    find_mode,
    find_points,
    rise,
    slope,
    slope_gain,
    softplus_rise,
)
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

WORDS = 16  # each step owns 2^WORDS random words
_ROOT2 = 1.4142135623730951
_ATTEMPTS = 16000
_AREA = 1e-3  # of a strip over exp(-z^2/2)
_UNIT = 2.0**-24  # edges of strips are whole multiples of this
_WIDE = 0.25  # in standard deviations; narrower intervals use tangents, since the difference of places cancels


@kernel
def _uniform(word):
    return (np.float64(word >> np.uint64(11)) + 0.5) * 1.1102230246251565e-16


@kernel
def _fine(word, more):
    """Return a uniform number in (0, 1) with full relative precision near 0."""
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
def _mass(rate, length):
    """Return the integral of exp(-rate s) from 0 to length; length may be infinite if rate > 0."""
    if length == np.inf:
        return 1.0 / rate
    z = rate * length
    if abs(z) < 1e-17:
        return length
    return -math.expm1(-z) / rate


@kernel
def _place(word, more, rate, length):
    """Draw a number s from the density proportional to exp(-rate s) on [0, length]."""
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
    """Draw from the density proportional to exp(-psi) on [low, high], by rejection from three tangents."""
    x = find_mode(m, c, E, N, low, high)
    g = slope(x, m, c, E, N)
    if not ((x == low and g > 0.0) or (x == high and g < 0.0)) and E == 0.0 and N == 0.0:
        g = 0.0  # the mode is c / m, and the slope there is rounding
    scale = _ROOT2 / max(math.sqrt(bend_at(x, m, E, N)), abs(g))
    # Tangents at x, to the right and to the left of it; places are relative to x.
    right, left = min(scale, high - x), max(-scale, low - x)
    gain_right, gain_left = slope_gain(x, right, m, E, N), slope_gain(x, left, m, E, N)
    while high == np.inf and g + gain_right <= 0.0:
        right *= 2.0
        gain_right = slope_gain(x, right, m, E, N)
    while low == -np.inf and g + gain_left >= 0.0:
        left *= 2.0
        gain_left = slope_gain(x, left, m, E, N)
    cut_right, cut_left = 0.0, 0.0
    if right > 0.0:
        cut_right = min(max(right - divergence(x, right, m, E, N) / gain_right, 0.0), right)
    if left < 0.0:
        cut_left = max(min(left - divergence(x, left, m, E, N) / gain_left, 0.0), left)
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
        lost = divergence(x + at, t - at, m, E, N)
        if _uniform(mix(w + gamma * np.uint64(3))) < math.exp(-lost):
            break
    return min(max(x + t, low), high)


@kernel
def _strips(z):
    """Return approximately how many strips of equal area under exp(-z^2/2) are between 0 and z, with the sign of z."""
    z = min(max(z, -_EDGE), _EDGE)
    y = z * z
    return z * (_P0 + y * (_P1 + y * (_P2 + y * (_P3 + y * (_P4 + y * (_P5 + y * _P6))))))


@kernel
def lower_place(z):
    """Bound from below how many strips of equal area are between 0 and z, with the sign of z; the tail is one strip."""
    place = _strips(z) - _SLACK
    return place if place > -_LAST else -_ALL


@kernel
def upper_place(z):
    """Bound from above how many strips of equal area are between 0 and z, with the sign of z; the tail is one strip."""
    place = _strips(z) + _SLACK
    return place if place < _LAST else _ALL


@kernel
def _attempt(m, low, high, keys, number, c, xi):
    """Try to draw for each chain without evaluating the density; set rejected draws to NaN and return their number.

    The loop has no branches, so that the compiler can vectorise it over the chains.
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
    """Draw from N(mean, 1 / root^2) on [low, high] by rejection from the strips that cover the interval."""
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
    """Draw for one chain after its first attempt was rejected; by tangents in tails and short intervals."""
    mean, root = c * (1.0 / m), math.sqrt(m)
    a, b = (low - mean) * root, (high - mean) * root
    if a >= _EDGE or b <= -_EDGE or (high - low) * root < _WIDE:
        return draw_site(m, c, 0.0, 0.0, low, high, key, gamma, step)
    return _redraw(mean, root, low, high, key, gamma, step)


@kernel
def draw_normals(m, low, high, keys, step, c, xi):
    """Draw from the density proportional to exp(-m x^2 / 2 + c x) on [low, high] for each of many chains.

    The first attempt is made for all chains at once; the few rejected ones are drawn one by one.
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


# Sites with a likelihood: above exp(-psi), relative to a point near the mode, lie halves of two Gaussians, which are
# drawn from strips, and beyond the strips tails of half their slope (theory page, "Draws of fields").
_STEEP = 0.49 * _EDGE  # slope of the tails
_TAILED = _LAST + math.exp(-0.5 * _EDGE * _EDGE) / (_STEEP * _AREA)  # strips, and the tail counted in them
_LOOSE = 1.0 / 64.0  # share of the curvature that is left unused, so that the point may differ from the mode
_FEW_TRIALS = 256.0  # with more, the logarithm below is not good enough
_LEAST_SHARE = 0.05  # least share of the likelihoods' curvature anywhere in the strips


@kernel
def _kept_share(distance):
    """Bound 2 (e^-D - 1 + D) / D^2 from below: the average share of a likelihood's curvature within distance D."""
    near = 1.0 + distance * (-1.0 / 3.0 + distance * (1.0 / 12.0 - distance * (1.0 / 60.0)))
    return max(near, 2.0 * (distance - 1.0) / (distance * distance))


@kernel
def _half(fixed, fading):
    """Return the curvature of a half-Gaussian that lies above the density; 0 if none is found.

    `fixed` is the curvature that the density keeps at any distance, and `fading` the one that shrinks with the distance
    (see `_kept_share`).
    """
    share = _LEAST_SHARE
    if fixed + share * fading < 0.01:
        return 0.0  # strips would reach farther than the least share holds
    for _ in range(2):
        distance = _EDGE / math.sqrt((1.0 - _LOOSE) * (fixed + share * fading))
        share = max(share, _kept_share(distance))
    return (1.0 - _LOOSE) * (fixed + share * fading)


@kernel
def _find_halves(m, N, low, high, x, grown, s, g, left, right, slack):
    """Compute standard deviations of half-Gaussians above the density, left and right of each point; 0 if none."""
    for chain in range(x.size):
        fading = N * (s[chain] * (1.0 - s[chain]))
        below, above = _half(m, grown[chain] + fading), _half(m + grown[chain], fading)
        least = min(below, above)
        square = g[chain] * g[chain]
        is_fine = (low < x[chain]) & (x[chain] < high) & (square < 1e-3 * least) & (abs(x[chain]) < 600.0)
        slack[chain] = square * (0.5 / _LOOSE) / max(least, 1e-300)
        left[chain] = is_fine / math.sqrt(max(below, 1e-300))
        right[chain] = is_fine / math.sqrt(max(above, 1e-300))


@kernel
def _propose(word, left, right):
    """Return a random signed distance from the point near the mode, drawn under two half-Gaussians.

    Also return the edge and the width of the strip that it was drawn from, and whether it is within the strips.
    """
    place = _uniform(word) * (_TAILED * (left + right)) - _TAILED * left
    unit = left if place < 0.0 else right
    size = abs(place) / max(unit, 1e-300)
    inside = min(size, _LAST - 0.5)
    strip = _STRIP[np.uint64(np.int64(inside))]
    edge = np.float64(strip >> 32) * _UNIT
    width = np.float64(strip & 0xFFFFFFFF) * _UNIT
    z = edge + (inside - np.float64(np.int64(inside))) * width
    return math.copysign(z * unit, place), edge, width, size < _LAST


@kernel
def _propose_all(keys, number, left, right, d, lost, rough):
    """Propose for each chain a distance d from a point near the mode, from two half-Gaussians cut into strips.

    `rough` gets the random bits that decide on acceptance later (infinite in a tail, where there is no strip), and
    `lost` the logarithm of the density at the edge of the chosen strip, -edge^2 / 2.
    """
    for chain in range(d.size):
        word = mix(keys[0, chain] + keys[1, chain] * number)
        d[chain], edge, _, is_strip = _propose(word, left[chain], right[chain])
        lost[chain] = -0.5 * edge * edge
        rough[chain] = np.float64(np.int64(word & np.uint64(2047))) if is_strip else np.inf


@kernel
def _add_lost(m, E, N, grown, s, g, slack, d, lost):
    """Add psi(x + d) - psi(x) + slack to `lost` for each proposal; it is accepted with probability exp(-lost)."""
    for chain in range(d.size):
        lost[chain] += (0.5 * m * d[chain] + g[chain]) * d[chain] + slack[chain]
    if E > 0.0:
        for chain in range(d.size):
            lost[chain] += grown[chain] * rise(d[chain])
    if N > 0.0:
        for chain in range(d.size):
            lost[chain] += N * softplus_rise(d[chain], s[chain])


@kernel
def _settle(low, high, x, left, d, lost, rough, xi):
    """Accept proposals where simple bounds suffice; set the others to NaN and return their number."""
    missing = 0
    for chain in range(xi.size):
        t = lost[chain]
        # exp(-t) >= 1 - t + t^2/2 - t^3/6, and the strip keeps all but 1e-4 of the density at its edge.
        surely = 2048.0 * (1.0 - t * (1.0 - t * (0.5 - t * (1.0 / 6.0)))) - 1.3
        y = x[chain] + d[chain]
        settled = (left[chain] > 0.0) & (rough[chain] <= surely) & (t < 1.5) & (y >= low) & (y <= high)
        xi[chain] = y if settled else np.nan
        missing += 1 - np.int64(settled)
    return missing


@kernel
def _draw_site_alone(m, E, N, low, high, x, grown, s, g, left, right, slack, key, gamma, step):
    """Draw for one chain and a law with a likelihood, after the first attempt was not accepted."""
    base = key + gamma * (np.uint64(step) << np.uint64(WORDS))
    y = x
    for attempt in range(_ATTEMPTS):
        w = base + gamma * np.uint64(4 * attempt)
        word = mix(w)
        d, _, width, is_strip = _propose(word, left, right)
        if is_strip:
            # Eleven bits are left of the word; with the next one they decide.
            v = (np.float64(word & np.uint64(2047)) + _uniform(mix(w + gamma))) * 4.8828125e-4
            height, room = width / _AREA, 0.0
        else:
            over = -math.log(_fine(mix(w + gamma), mix(w + gamma * np.uint64(2)))) / _STEEP
            d = math.copysign((_EDGE + over) * (left if d < 0.0 else right), d)
            v = _uniform(mix(w + gamma * np.uint64(3)))
            height, room = 1.0, 0.5 * _EDGE * _EDGE + _STEEP * over
        lost = (0.5 * m * d + g) * d + slack - room
        if E > 0.0:
            lost += grown * rise(d)
        if N > 0.0:
            lost += N * softplus_rise(d, s)
        accepted = v < math.exp(-lost) * height
        y = x + d
        if accepted and low <= y <= high:
            break
    return min(max(y, low), high)


@kernel
def draw_likelihood_sites(m, E, N, low, high, keys, step, c, work, xi):
    """Draw from the density proportional to exp(-psi) on [low, high] for each of many chains.

    `xi` has the old values, where the search for the mode begins, and receives the new ones. The first attempt is made
    for all chains at once; the few that are not accepted are drawn one by one. `work` is scratch space, (10, chains).
    """
    x, grown, s, g, left, right, slack = work[0], work[1], work[2], work[3], work[4], work[5], work[6]
    d, bend, rough = work[7], work[8], work[9]
    for chain in range(c.size):
        x[chain] = xi[chain]
        grown[chain] = s[chain] = 0.0
    find_points(m, E, N, low, high, c, x, grown, s, g, bend)
    _find_halves(m, N, low, high, x, grown, s, g, left, right, slack)
    number = np.uint64(step) << np.uint64(WORDS)
    _propose_all(keys, number, left, right, d, bend, rough)
    _add_lost(m, E, N, grown, s, g, slack, d, bend)
    missing = _settle(low, high, x, left, d, bend, rough, xi)
    chain = 0
    while missing > 0:
        if not low <= xi[chain] <= high:
            key, gamma = keys[0, chain], keys[1, chain]
            if left[chain] > 0.0 and N <= _FEW_TRIALS:
                xi[chain] = _draw_site_alone(
                    m, E, N, low, high, x[chain], grown[chain], s[chain], g[chain], left[chain], right[chain],
                    slack[chain], key, gamma, step,
                )  # fmt: skip
            else:
                xi[chain] = draw_site(m, c[chain], E, N, low, high, key, gamma, step)
            missing -= 1
        chain += 1


@kernel
def draw_value(m, c, first, last, values, key, gamma, step):
    """Draw one of the values v of a variable on a finite set, with weights exp(-m v^2 / 2 + c v)."""
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
    """Compute the linear term linear_i - sum_j Q_ij x_j of a variable for each chain."""
    for chain in range(c.size):
        c[chain] = own
    e = 0
    while e + 4 <= near.size:  # four summands at a time save reads and writes of c
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
    """Run lists of steps (see `_kernels.spins`) in chains of a field; x is (variables, chains), c is scratch space."""
    work = np.empty((10, c.size))
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
                draw_likelihood_sites(m, E, N, low, high, keys, step, c, work, x[i])
            else:
                draw_normals(m, low, high, keys, step, c, x[i])


@kernel
def spread(at, allowance, order, start, columns, C, g, v, total):
    """Pull the weights v back through the steps of an order, last step first; total[0] adds up v_i^2 g_i.

    g_i is a given number for each variable i, such as the variance of its update. `at[0]` counts finished steps.
    """
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
