"""Chains of an Ising model with many neighbours, whose local fields are sums that no order of adding changes.

Couplings and fields are multiples of a power of 2, one for each variable, so that all sums are exact (theory page,
"Errors of an update"). So local fields may come from products of matrices, or be kept up to date by what changes.
columns[j, i] is the coupling of i to j that the local field of i takes; spins are -1.0 and +1.0.
"""

import numpy as np

from dobrushin._kernels.exponential import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

SCALE = 2.0**53


@kernel
def dense_chain(order, number, repeats, base, period, reach, columns, key, gamma, h, x):
    """Steps of one chain, as in `chain`; all local fields are kept up to date, which costs nothing without a change.

    reach[i] are the first neighbour of variable i, and the one after the last.
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
    """Steps of chains side by side: entry k of `block` is step number step + k.

    h[k] are the local fields of variable block[k] before these steps; later ones follow what earlier ones change.
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
