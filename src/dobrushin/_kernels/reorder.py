"""Putting independent steps next to each other (theory page, "Windows")."""

import numpy as np

from dobrushin._shared.compile import kernel


@kernel
def reorder(order, start, neighbor, n, window):
    """A permutation of the steps that sorts each window by level: the same scan, since only steps that commute move.

    One chain then has several independent updates under way at once. Windows keep the memory that they touch small.
    """
    permutation = np.empty(order.size, dtype=np.int32)
    latest = np.full(n, -1, dtype=np.int32)
    level = np.empty(window, dtype=np.int32)
    first = np.empty(window + 1, dtype=np.int32)
    for lo in range(0, order.size, window):
        size = min(window, order.size - lo)
        first[:] = 0
        for t in range(size):
            i = order[lo + t]
            before = latest[i]
            for e in range(start[i], start[i + 1]):
                before = max(before, latest[neighbor[e]])
            latest[i] = before + 1
            level[t] = before + 1
            first[before + 2] += 1
        for t in range(size):
            latest[order[lo + t]] = -1
        for k in range(window):
            first[k + 1] += first[k]
        for t in range(size):
            permutation[lo + first[level[t]]] = lo + t
            first[level[t]] += 1
    return permutation
