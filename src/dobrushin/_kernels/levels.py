"""Levels of a scan (theory page, "Levels")."""

import numpy as np

from dobrushin._shared.compile import kernel


@kernel
def levels(order, start, neighbor, n):
    """Longest dependency path that ends at each step: steps on equal or adjacent variables do not commute."""
    latest = np.full(n, -1, dtype=np.int64)
    level = np.empty(order.size, dtype=np.int64)
    for t in range(order.size):
        i = order[t]
        before = latest[i]
        for e in range(start[i], start[i + 1]):
            before = max(before, latest[neighbor[e]])
        latest[i] = before + 1
        level[t] = before + 1
    return level
