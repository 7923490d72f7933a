"""Gibbs updates of spins in one chain.

Steps come as a list that is gone through `repeats` times: entry k updates variable order[k] and is step number
base + number[k] of the scan, `period` later each time. The list may be in any order that keeps the dependencies
(MATH section 8): independent steps next to each other are computed at once by the processor.
"""

import math

import numpy as np

from dobrushin._compile import kernel
from dobrushin._kernels.generator import mix

SCALE = 2.0**53
CELLS = 1024  # of the table that brackets sigma(2 h)
SPAN = 8.0  # for h between -SPAN and SPAN


@kernel
def brackets():
    """For each cell of h, integers low <= 2^53 sigma(2 h) <= high, with a margin for the rounding of h and of exp."""
    table = np.empty((CELLS, 2), dtype=np.int64)
    for c in range(CELLS):
        left, right = SPAN * (2.0 * c / CELLS - 1.0), SPAN * (2.0 * (c + 1) / CELLS - 1.0)
        low = 0.0 if c == 0 else SCALE / (1.0 + math.exp(-2.0 * left)) * (1.0 - 1e-12)
        high = SCALE if c == CELLS - 1 else SCALE / (1.0 + math.exp(-2.0 * right)) * (1.0 + 1e-12)
        table[c, 0] = np.int64(low)
        table[c, 1] = np.int64(high) + 1
    return table


@kernel
def ising_steps(order, number, repeats, base, period, start, neighbor, theta, field, table, key, gamma, x):
    """Steps of an Ising model of any degree, spins -1.0 and +1.0.

    The bracket decides all but about one in 500 draws without an exponential; the rest are decided by it, so the law
    of the draws is the exact one.
    """
    half = 0.5 * CELLS
    for _ in range(repeats):
        for k in range(order.size):
            i = order[k]
            lo, hi = start[i], start[i + 1]
            h = field[i]
            if hi - lo == 4:
                h += (theta[lo] * x[neighbor[lo]] + theta[lo + 1] * x[neighbor[lo + 1]]) + (
                    theta[lo + 2] * x[neighbor[lo + 2]] + theta[lo + 3] * x[neighbor[lo + 3]]
                )
            else:
                for e in range(lo, hi):
                    h += theta[e] * x[neighbor[e]]
            u = np.int64(mix(key + gamma * np.uint64(base + number[k])) >> np.uint64(11))
            cell = np.int64(min(max(h * (half / SPAN) + half, 0.0), CELLS - 1.0))
            low = table[cell, 0]
            up = np.float64(u < low)
            # One comparison for low <= u < high: it is almost never true, so it costs nothing.
            if np.uint64(u - low) < np.uint64(table[cell, 1] - low):
                up = np.float64(u < SCALE / (1.0 + math.exp(-2.0 * h)))
            x[i] = 2.0 * up - 1.0
        base += period


@kernel
def table_steps(order, number, repeats, base, period, neighbor, threshold, wide, key, gamma, x):
    """Steps of binary variables with few neighbours, states 0 and 1.

    Variable i has the neighbours neighbor[4 i : 4 i + 4] and the thresholds 2^63 P(1), by configuration, at
    threshold[16 i : 16 i + 16]; 6 and 64 of them where `wide`. Missing neighbours are a dummy that is always 0.
    """
    for _ in range(repeats):
        first = key + gamma * np.uint64(base)
        for k in range(order.size):
            i = order[k]
            if wide:
                j = 6 * i
                c = x[neighbor[j]] + 2 * x[neighbor[j + 1]] + 4 * x[neighbor[j + 2]] + 8 * x[neighbor[j + 3]]
                c += 16 * x[neighbor[j + 4]] + 32 * x[neighbor[j + 5]]
                p = threshold[64 * i + np.int64(c)]
            else:
                j = 4 * i
                c = x[neighbor[j]] + 2 * x[neighbor[j + 1]] + 4 * x[neighbor[j + 2]] + 8 * x[neighbor[j + 3]]
                p = threshold[16 * i + np.int64(c)]
            x[i] = (mix(first + gamma * np.uint64(number[k])) >> np.uint64(1)) < p
        base += period
