"""Gibbs updates of Ising models with any number of neighbours: one chain, many chains, or by matrix products.

A list of steps runs `repeats` times: entry k updates variable order[k], and its number in the scan is base + number[k]
plus `period` for each repetition before. One chain has spins -1.0 and +1.0. Chains side by side have the layout
[variable, chain].

`ising_steps`, `ising_lanes` and the loops of `_kernels.waves` add neighbours in the same order, four at a time, and
compare in the same way, so they make the same draws. In `dense_chain` and `dense_block` the couplings and the field of
a variable are multiples of one power of 2, so that local fields are exact sums (theory page, "Errors of an update") and
may come from products of matrices, or from updates by differences. columns[j, i] is the coupling to j in the local
field of i.
"""

import math

import numpy as np

from dobrushin._kernels.elementary import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

SCALE = 2.0**53
CELLS = 1024  # entries of the table of brackets of logit(u) / 2, by the highest bits of u


@kernel
def brackets():
    """Return a table of intervals that contain logit(u) / 2, by the highest bits of a random number u.

    The intervals are given by middle and half the width. Their margin is far wider than the rounding of logarithms and
    local fields.
    """
    table = np.empty((CELLS, 2))
    for c in range(1, CELLS - 1):
        low, high = c / CELLS, (c + 1) / CELLS
        left, right = 0.5 * (math.log(low) - math.log1p(-low)), 0.5 * (math.log(high) - math.log1p(-high))
        table[c, 0] = 0.5 * (left + right)
        table[c, 1] = 0.5 * (right - left) * (1.0 + 1e-6)
    for c in (0, CELLS - 1):
        table[c, 0], table[c, 1] = 0.0, np.inf
    return table


@kernel
def ising_steps(order, number, repeats, base, period, start, neighbor, theta, field, table, key, gamma, x):
    """Run a list of steps in one chain of an Ising model with spins -1.0 and +1.0.

    The spin is up if u < sigma(2 h), that is, if h > logit(u) / 2 for the local field h. A tabulated bracket of
    logit(u) / 2 does not wait for the neighbours, and decides all but about one in 500 draws by a comparison without a
    branch. The exponential decides the other draws, so brackets do not change the law of the draws.
    """
    for _ in range(repeats):
        first = key + gamma * np.uint64(base)
        for k in range(order.size):
            i = order[k]
            lo, hi = start[i], start[i + 1]
            h = field[i]
            while hi - lo >= 4:
                h += (theta[lo] * x[neighbor[lo]] + theta[lo + 1] * x[neighbor[lo + 1]]) + (
                    theta[lo + 2] * x[neighbor[lo + 2]] + theta[lo + 3] * x[neighbor[lo + 3]]
                )
                lo += 4
            for e in range(lo, hi):
                h += theta[e] * x[neighbor[e]]
            u = mix(first + gamma * np.uint64(number[k])) >> np.uint64(11)
            cell = np.int64(u >> np.uint64(43))
            ahead = h - table[cell, 0]
            spin = math.copysign(1.0, ahead)
            if abs(ahead) <= table[cell, 1]:
                spin = 1.0 if np.float64(u) * (1.0 + exponential(-2.0 * h)) < SCALE else -1.0
            x[i] = spin
        base += period


@kernel
def ising_lanes(order, number, repeats, base, period, start, neighbor, theta, field, keys, x):
    """Run a list of steps of an Ising model in chains side by side."""
    chains = keys.shape[1]
    key, gamma = keys[0], keys[1]
    h = np.empty(chains)
    for _ in range(repeats):
        for k in range(order.size):
            i = order[k]
            own_field = field[i]
            for c in range(chains):
                h[c] = own_field
            _add_neighbors(start[i], start[i + 1], neighbor, theta, x, h)
            counter = np.uint64(base + number[k])
            own = x[i]
            for c in range(chains):
                u = np.float64(np.int64(mix(key[c] + gamma[c] * counter) >> np.uint64(11)))
                own[c] = 1 if u * (1.0 + exponential(-2.0 * h[c])) < SCALE else -1
        base += period


@kernel
def _add_neighbors(lo, hi, neighbor, theta, x, h):
    """Add the terms of neighbours lo to hi - 1 to the local fields h, in groups of four."""
    while hi - lo >= 8:
        t0, t1, t2, t3 = theta[lo], theta[lo + 1], theta[lo + 2], theta[lo + 3]
        t4, t5, t6, t7 = theta[lo + 4], theta[lo + 5], theta[lo + 6], theta[lo + 7]
        x0, x1, x2, x3 = x[neighbor[lo]], x[neighbor[lo + 1]], x[neighbor[lo + 2]], x[neighbor[lo + 3]]
        x4, x5, x6, x7 = x[neighbor[lo + 4]], x[neighbor[lo + 5]], x[neighbor[lo + 6]], x[neighbor[lo + 7]]
        for c in range(h.size):
            group = (t0 * x0[c] + t1 * x1[c]) + (t2 * x2[c] + t3 * x3[c])
            h[c] = (h[c] + group) + ((t4 * x4[c] + t5 * x5[c]) + (t6 * x6[c] + t7 * x7[c]))
        lo += 8
    if hi - lo >= 4:
        t0, t1, t2, t3 = theta[lo], theta[lo + 1], theta[lo + 2], theta[lo + 3]
        x0, x1, x2, x3 = x[neighbor[lo]], x[neighbor[lo + 1]], x[neighbor[lo + 2]], x[neighbor[lo + 3]]
        for c in range(h.size):
            h[c] += (t0 * x0[c] + t1 * x1[c]) + (t2 * x2[c] + t3 * x3[c])
        lo += 4
    for e in range(lo, hi):
        t, other = theta[e], x[neighbor[e]]
        for c in range(h.size):
            h[c] += t * other[c]


@kernel
def dense_chain(order, number, repeats, base, period, reach, columns, key, gamma, h, x):
    """Run a list of steps in one chain, keeping the local fields h of all variables, which change when a spin flips.

    reach[i] are the first neighbour of variable i and its last neighbour + 1.
    """
    for _ in range(repeats):
        first = key + gamma * np.uint64(base)
        for k in range(order.size):
            i = order[k]
            u = np.float64(np.int64(mix(first + gamma * np.uint64(number[k])) >> np.uint64(11)))
            spin = 1.0 if u * (1.0 + exponential(-2.0 * h[i])) < SCALE else -1.0
            if spin != x[i]:
                x[i] = spin
                change, column = 2.0 * spin, columns[i]
                for j in range(reach[i, 0], reach[i, 1]):
                    h[j] += change * column[j]
        base += period


@kernel
def dense_block(block, step, columns, keys, h, x):
    """Run a block of steps in chains side by side; entry k of `block` is the variable of step number step + k.

    h[k] are the local fields of variable block[k] before the block; each step adds its change to later rows of h.
    """
    chains = keys.shape[1]
    key, gamma = keys[0], keys[1]
    change = np.empty(chains)
    for k in range(block.size):
        i = block[k]
        counter = np.uint64(step + k)
        own, field = x[i], h[k]
        for c in range(chains):
            u = np.float64(np.int64(mix(key[c] + gamma[c] * counter) >> np.uint64(11)))
            spin = 1.0 if u * (1.0 + exponential(-2.0 * field[c])) < SCALE else -1.0
            change[c] = spin - own[c]
            own[c] = spin
        for later in range(k + 1, block.size):
            theta = columns[i, block[later]]
            if theta != 0.0:
                row = h[later]
                for c in range(chains):
                    row[c] += theta * change[c]
