"""Gibbs updates of sets: every variable has the set of states that any trajectory could be in.

See the theory page, "Sets that hold every trajectory". All trajectories share the random bits of a step, and the map
from these bits and the neighbours to the new state does not depend on the sets. A step updates variable
order[place + t] (cyclic) and uses the random bits of number + stride * t.
"""

import numpy as np

from dobrushin._kernels.exponential import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

ZERO, ONE, ALL = np.uint64(0), np.uint64(1), ~np.uint64(0)
UNIT = 2.0**-53


@kernel
def set_bits(order, place, steps, number, stride, neighbor, threshold, wide, keys, x):
    """Binary variables whose chance of state 1 rises or falls with each neighbour: 64 runs side by side.

    Row i of x holds the lowest state of variable i, row n + i the highest. neighbor[i] are the rows whose configuration
    gives the smallest chance: 4 of them, or 6 where `wide`, then as many for the largest. Both ends compare the same
    random number with their own threshold, as in `bits`.
    """
    W = keys.shape[1]
    n, width = threshold.shape[0], neighbor.shape[1] // 2
    key, gamma = keys[0], keys[1]
    random, low, high = np.empty(W, dtype=np.uint64), np.empty(W, dtype=np.uint64), np.empty(W, dtype=np.uint64)
    open_low, open_high = np.empty(W, dtype=np.uint64), np.empty(W, dtype=np.uint64)
    mask = np.empty(threshold.shape[1], dtype=np.uint64)
    for t in range(steps):
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        for w in range(W):
            low[w] = ZERO
            open_low[w] = ALL
        for w in range(W):
            high[w] = ZERO
            open_high[w] = ALL
        counter = np.uint64(number + stride * t) * np.uint64(64)
        near, far = neighbor[i, :width], neighbor[i, width:]
        for plane in range(64):
            for c in range(mask.size):
                mask[c] = ZERO - ((threshold[i, c] >> np.uint64(63 - plane)) & ONE)
            # Loops of their own, each simple enough to be run on many blocks at once.
            for w in range(W):
                random[w] = mix(key[w] + gamma[w] * counter)
            if wide:
                left = _plane6(x, near, mask, random, low, open_low) | _plane6(x, far, mask, random, high, open_high)
            else:
                left = _plane4(x[near[0]], x[near[1]], x[near[2]], x[near[3]], mask, random, low, open_low)
                left |= _plane4(x[far[0]], x[far[1]], x[far[2]], x[far[3]], mask, random, high, open_high)
            counter += ONE
            if left == ZERO:
                break
        for w in range(W):  # as an assignment of arrays it would take seconds to compile
            x[i, w] = low[w]
            x[n + i, w] = high[w]


@kernel
def _plane4(a0, a1, a2, a3, mask, random, spin, open_lanes):
    m0, m1, m2, m3, m4, m5, m6, m7 = mask[0], mask[1], mask[2], mask[3], mask[4], mask[5], mask[6], mask[7]
    m8, m9, m10, m11, m12, m13, m14, m15 = mask[8], mask[9], mask[10], mask[11], mask[12], mask[13], mask[14], mask[15]
    left = ZERO
    for w in range(spin.size):
        b0, b1 = a0[w], a1[w]
        q0 = _select(b1, _select(b0, m0, m1), _select(b0, m2, m3))
        q1 = _select(b1, _select(b0, m4, m5), _select(b0, m6, m7))
        q2 = _select(b1, _select(b0, m8, m9), _select(b0, m10, m11))
        q3 = _select(b1, _select(b0, m12, m13), _select(b0, m14, m15))
        bit = _select(a3[w], _select(a2[w], q0, q1), _select(a2[w], q2, q3))
        differ = (random[w] ^ bit) & open_lanes[w]
        spin[w] |= differ & bit
        open_lanes[w] &= ~differ
        left |= open_lanes[w]
    return left


@kernel
def _plane6(x, rows, mask, random, spin, open_lanes):
    a0, a1, a2, a3, a4, a5 = x[rows[0]], x[rows[1]], x[rows[2]], x[rows[3]], x[rows[4]], x[rows[5]]
    left = ZERO
    for w in range(spin.size):
        bit = _config6(mask, a0[w], a1[w], a2[w], a3[w], a4[w], a5[w])
        differ = (random[w] ^ bit) & open_lanes[w]
        spin[w] |= differ & bit
        open_lanes[w] &= ~differ
        left |= open_lanes[w]
    return left


@kernel
def _config6(mask, c0, c1, c2, c3, c4, c5):
    """The bit of the threshold that the configuration of six neighbours selects."""
    bit = ZERO
    for quarter in range(4):
        m = 16 * quarter
        q0 = _select(c1, _select(c0, mask[m], mask[m + 1]), _select(c0, mask[m + 2], mask[m + 3]))
        q1 = _select(c1, _select(c0, mask[m + 4], mask[m + 5]), _select(c0, mask[m + 6], mask[m + 7]))
        q2 = _select(c1, _select(c0, mask[m + 8], mask[m + 9]), _select(c0, mask[m + 10], mask[m + 11]))
        q3 = _select(c1, _select(c0, mask[m + 12], mask[m + 13]), _select(c0, mask[m + 14], mask[m + 15]))
        part = _select(c3, _select(c2, q0, q1), _select(c2, q2, q3))
        here = (c4 if quarter & 1 else ~c4) & (c5 if quarter & 2 else ~c5)
        bit |= part & here
    return bit


@kernel
def _select(b, low, high):
    """low where the bit of b is 0, high where it is 1."""
    return low ^ (b & (low ^ high))


@kernel
def set_field(order, place, steps, number, stride, start, neighbor, theta, field, keys, x):
    """Ising models of any degree: spins -1.0 and +1.0, lowest in rows 0 to n - 1, highest in rows n to 2 n - 1.

    The spin is up where u < sigma(2 h); the ends of the set see the least and the largest local field.
    """
    runs, n = keys.shape[1], field.size
    least, most = np.empty(runs), np.empty(runs)
    key, gamma = keys[0], keys[1]
    for t in range(steps):
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        for c in range(runs):
            least[c] = field[i]
            most[c] = field[i]
        for e in range(start[i], start[i + 1]):
            j, f = neighbor[e], theta[e]
            down, up = x[j if f > 0 else n + j], x[n + j if f > 0 else j]
            for c in range(runs):
                least[c] += f * down[c]
                most[c] += f * up[c]
        counter = np.uint64(number + stride * t)
        low, high = x[i], x[n + i]
        for c in range(runs):
            u = (np.float64(mix(key[c] + gamma[c] * counter) >> np.uint64(11)) + 0.5) * UNIT
            low[c] = 1.0 if u * (1.0 + exponential(-2.0 * least[c])) < 1.0 else -1.0
            high[c] = 1.0 if u * (1.0 + exponential(-2.0 * most[c])) < 1.0 else -1.0


@kernel
def count_settled(settled, counts):
    """Add to counts[v, 1 + state] the runs in which variable v is settled in that state, to counts[v, 0] the others."""
    for v in range(settled.shape[0]):
        for c in range(settled.shape[1]):
            counts[v, 1 + np.int64(settled[v, c])] += 1


@kernel
def settled_bits(x, n, rows, out):
    """out[v, run]: the state of a variable that is settled, else -1."""
    for v in range(rows.size):
        for w in range(x.shape[1]):
            low, high = x[rows[v], w], x[n + rows[v], w]
            most = min(64, out.shape[1] - 64 * w)
            for lane in range(most):
                a, b = (low >> np.uint64(lane)) & ONE, (high >> np.uint64(lane)) & ONE
                out[v, 64 * w + lane] = np.int16(a) if a == b else np.int16(-1)
