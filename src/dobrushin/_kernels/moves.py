"""Local search over short scans: take one step out and put the best one in, anywhere.

See the theory page, "Replacing, inserting, moving a step".
"""

import numpy as np

from dobrushin._shared.compile import kernel


@kernel
def move_steps(order, start, columns, C_bar, candidate, weights, most):
    """Improve `order` in place by moves until none helps or `most` were tried; returns the linear variation.

    Between a prefix that leads to b and a suffix that pulls the weights back to d, inserting a step on i changes the
    variation by -d_i (b - C b)_i.
    """
    n, T = weights.size, order.size
    b = np.empty((T + 1, n))
    d = np.empty((T + 1, n))
    rest = np.empty(T - 1, dtype=order.dtype)
    V = np.inf
    tried, since, s = 0, 0, T - 1
    while since < T and tried < most:
        _copy(order[:s], rest[:s])
        _copy(order[s + 1 :], rest[s:])
        b[0] = 1.0
        for t in range(T - 1):
            _copy(b[t], b[t + 1])
            b[t + 1, rest[t]] = _row(rest[t], start, columns, C_bar, b[t])
        _copy(weights, d[T - 1])
        for t in range(T - 2, -1, -1):
            _copy(d[t + 1], d[t])
            i = rest[t]
            x = d[t, i]
            d[t, i] = 0.0
            for e in range(start[i], start[i + 1]):
                d[t, columns[e]] += x * C_bar[e]
        without = 0.0
        for i in range(n):
            without += weights[i] * b[T - 1, i]
        best, where, what = 0.0, s, order[s]
        for t in range(T - 1, -1, -1):
            for i in range(n):
                if candidate[i] and d[t, i] > 0.0:
                    fall = d[t, i] * (b[t, i] - _row(i, start, columns, C_bar, b[t]))
                    if fall > best:
                        best, where, what = fall, t, i
        tried += 1
        if without - best < V * (1.0 - 1e-12):
            since = 0 if np.inf > V else 1
            V = without - best
            _copy(rest[:where], order[:where])
            order[where] = what
            _copy(rest[where:], order[where + 1 :])
        else:
            since += 1
        s = s - 1 if s > 0 else T - 1
    return V


@kernel
def _copy(source, target):
    """As an assignment of arrays this would take seconds to compile, for the words of an error that cannot occur."""
    for i in range(target.size):
        target[i] = source[i]


@kernel
def _row(i, start, columns, C_bar, b):
    total = 0.0
    for e in range(start[i], start[i + 1]):
        total += C_bar[e] * b[columns[e]]
    return total
