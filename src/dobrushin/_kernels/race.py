"""Sets of labels of Potts models, many runs at once: the race of `factor_race`, by products instead of logarithms.

See the theory page, "More states: the race". Row i k + a of x says whether label a of variable i is possible, and row
n k + i whether one label alone is. A step updates variable order[place + t] (cyclic), and label a uses the random
number (number + stride * t) * k + a.
"""

import numpy as np

from dobrushin._kernels.generator import mix
from dobrushin._kernels.logarithm import arrival
from dobrushin._shared.compile import kernel


@kernel
def set_labels(order, place, steps, number, stride, start, neighbor, delay, unary, keys, x):
    """Label a arrives at E_a times exp(-s_a); delay and unary are exponentials of what is subtracted.

    Where the neighbour could have the label, the earliest and the latest time have the factor or not; where it has no
    other, both do. Products are rounded in the same order for all trajectories, so that times between the factors stay
    between the products. A label stays if it can be first: its earliest time is not after the latest time of any label.
    """
    runs, n, k = keys.shape[1], start.size - 1, unary.shape[1]
    key, gamma = keys[0], keys[1]
    earliest, slow = np.empty((k, runs)), np.empty(runs)
    best, count = np.empty(runs), np.empty(runs, dtype=np.int64)
    for t in range(steps):
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        counter = np.uint64(number + stride * t) * np.uint64(k)
        for c in range(runs):
            best[c] = np.inf
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
                best[c] = min(best[c], slow[c])
        for a in range(k):
            row, fast = x[i * k + a], earliest[a]
            for c in range(runs):
                possible = fast[c] <= best[c]
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
