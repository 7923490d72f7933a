"""Chains of an Ising model side by side, one in each lane of the processor's vectors.

States are spins -1 and +1 with the layout [variable, chain]. Lists of steps are as in `chain`; the chains share the
list. The sums, four neighbours at a time, and the comparison are those of `chain.ising_steps`: so are the draws.
"""

import numpy as np

from dobrushin._kernels.exponential import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

SCALE = 2.0**53


@kernel
def ising_lanes(order, number, repeats, base, period, start, neighbor, theta, field, keys, x):
    """Steps of an Ising model of any degree, for all chains."""
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
    """Add to h what the neighbours lo to hi contribute; two groups of four in one pass, as long as there are two."""
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
