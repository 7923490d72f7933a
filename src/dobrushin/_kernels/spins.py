"""Gibbs updates of spins in one chain.

Steps come as a list that is gone through `repeats` times: entry k updates variable order[k] and is step number
base + number[k] of the scan, `period` later each time. The list may be in any order that keeps the dependencies
(MATH section 8): independent steps next to each other can be computed at once by the processor.
"""

import math

import numpy as np

from dobrushin._compile import kernel
from dobrushin._kernels.generator import mix

SCALE = 2.0**53
CELLS = 1024  # of the table that brackets logit(u) / 2, by the highest bits of u


@kernel
def brackets():
    """For each cell of u the middle and half the width of an interval that holds logit(u) / 2.

    It is wider than need be by far more than the rounding of logarithms and local fields.
    """
    table = np.empty((CELLS, 2))
    for c in range(1, CELLS - 1):
        low, high = c / CELLS, (c + 1) / CELLS
        left, right = 0.5 * (math.log(low) - math.log1p(-low)), 0.5 * (math.log(high) - math.log1p(-high))
        table[c, 0] = 0.5 * (left + right)
        table[c, 1] = 0.5 * (right - left) * (1.0 + 1e-6)
    table[0] = 0.0, np.inf
    table[CELLS - 1] = 0.0, np.inf
    return table


@kernel
def ising_steps(order, number, repeats, base, period, start, neighbor, theta, field, table, key, gamma, x):
    """Steps of an Ising model of any degree, spins -1.0 and +1.0.

    The spin is up where u < sigma(2 h), that is, where h > logit(u) / 2. The bracket of the latter, which does not wait
    for the neighbours, decides all but about one in 500 draws by a comparison without a branch; those are decided by
    the exponential, so the law of the draws is the exact one.
    """
    for _ in range(repeats):
        first = key + gamma * np.uint64(base)
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
            u = mix(first + gamma * np.uint64(number[k])) >> np.uint64(11)
            cell = np.int64(u >> np.uint64(43))
            ahead = h - table[cell, 0]
            spin = math.copysign(1.0, ahead)
            if abs(ahead) <= table[cell, 1]:
                spin = 1.0 if np.float64(u) < SCALE / (1.0 + math.exp(-2.0 * h)) else -1.0
            x[i] = spin
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
