"""Sets of labels of Potts models, many runs at once: the race of `sets.set_race`, by products instead of logarithms.

See the theory page, "More states: the race". Row i k + a of x says whether label a of variable i is possible, and row
n k + i whether one label alone is. A step updates variable order[place + t] (cyclic), and label a uses the random
number (number + stride * t) * k + a.
"""

import numpy as np

from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

UNIT = 2.0**-53
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROOT_HALF = np.int64(0x3FE6A09E00000000)  # the first bits of the square root of 1/2
EXPONENT = np.int64(-(2**52))  # the bits of the sign and the exponent
LEAST = 1e-300  # no time is 0, which forbidden labels could not be told from


@kernel
def arrival(random):
    """-log(u) of a random number u between 0 and 1, without a branch or a call, to about 2^-49 of itself.

    u = 2^e m with m between the square roots of 1/2 and 2, and log(m) = 2 artanh(s), s = (m - 1) / (m + 1).
    """
    u = (np.float64(np.int64(random >> np.uint64(11))) + 0.5) * UNIT
    bits = np.float64(u).view(np.int64)
    above = bits - ROOT_HALF
    e = np.float64(above >> np.int64(52))
    m = np.int64(bits - (above & EXPONENT)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = 2.0 / 15.0 + z * (2.0 / 17.0 + z * (2.0 / 19.0 + z * (2.0 / 21.0)))
    p = 2.0 / 7.0 + z * (2.0 / 9.0 + z * (2.0 / 11.0 + z * (2.0 / 13.0 + z * p)))
    p = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * p))
    return max(-(e * LN2_HIGH + (2.0 * s + (s * p + e * LN2_LOW))), LEAST)


@kernel
def set_labels(order, place, steps, number, stride, start, neighbor, delay, unary, keys, x):
    """Label a arrives at E_a times exp(-s_a); delay and unary are exponentials of what is subtracted.

    Where the neighbour could have the label, the earliest and the latest time have the factor or not; where it has no
    other, both do. Products are rounded in the same order for all trajectories, so that times between the factors stay
    between the products. A label stays if it can be first.
    """
    runs, n, k = keys.shape[1], start.size - 1, unary.shape[1]
    key, gamma = keys[0], keys[1]
    earliest, slow = np.empty((k, runs)), np.empty(runs)
    best, second = np.empty(runs), np.empty(runs)
    winner, count = np.empty(runs, dtype=np.int64), np.empty(runs, dtype=np.int64)
    for t in range(steps):
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        counter = np.uint64(number + stride * t) * np.uint64(k)
        for c in range(runs):
            best[c] = np.inf
            second[c] = np.inf
            winner[c] = -1
            count[c] = 0
        for a in range(k):
            fast, w = earliest[a], unary[i, a]
            for c in range(runs):
                time = arrival(mix(key[c] + gamma[c] * counter)) * w
                fast[c] = time
                slow[c] = time
            counter += np.uint64(1)
            for e in range(start[i], start[i + 1]):
                j, f = neighbor[e], delay[e]
                if f <= 1.0:
                    _scale(f, x[j * k + a], x[n * k + j], fast, slow)
                else:
                    _scale(f, x[j * k + a], x[n * k + j], slow, fast)
            for c in range(runs):
                time = slow[c]
                second[c] = min(second[c], max(best[c], time))
                winner[c] = a if time < best[c] else winner[c]
                best[c] = min(best[c], time)
        for a in range(k):
            row, fast = x[i * k + a], earliest[a]
            for c in range(runs):
                possible = fast[c] <= (second[c] if winner[c] == a else best[c])
                row[c] = possible
                count[c] += possible
        alone = x[n * k + i]
        for c in range(runs):
            alone[c] = count[c] == 1


@kernel
def _scale(f, there, alone, possible, certain):
    """Multiply by f the times of runs in which the label is possible, and those in which it is certain."""
    for c in range(possible.size):
        possible[c] *= f if there[c] else 1.0
        certain[c] *= f if there[c] & alone[c] else 1.0
