"""The recursion b_t = B(q_t) b_{t-1} with clamps (paper Section 3).

Theory page, "Clamps, caps and update errors" and "Rounding".

Only additions and multiplications of non-negative numbers, so that the rounding error is known beforehand.
"""

import numpy as np

from dobrushin._shared.compile import kernel

FLOOR = 2.0**-1000


@kernel
def forward(order, first, steps, start, columns, C_bar, cap, error, b):
    """Update b through `steps` steps of the cycle `order`, from its place `first`."""
    at = first
    for _ in range(steps):
        i = order[at]
        at += 1
        if at == order.size:
            at = 0
        b[i] = _updated(i, start, columns, C_bar, cap, error, b)


@kernel
def forward_random(q, steps, start, columns, C_bar, cap, error, b):
    """Update b through steps that each update variable i with probability q_i."""
    new = np.empty_like(b)
    for _ in range(steps):
        for i in range(q.size):
            if q[i] > 0.0:
                # Never b - q (b - new), which cancels.
                fresh = _updated(i, start, columns, C_bar, cap, error, b)
                value = (1.0 - q[i]) * b[i] + q[i] * fresh
                new[i] = 0.0 if b[i] == 0.0 and fresh == 0.0 else max(value, FLOOR)
        for i in range(q.size):
            if q[i] > 0.0:
                b[i] = new[i]


@kernel
def _updated(i, start, columns, C_bar, cap, error, b):
    """min(1, min(cap_i, sum_j C_ij b_j) + error_i).

    The cap bounds how far apart the exact conditionals are, so the error of the update comes on top of it.
    """
    if start[i] == start[i + 1]:
        return error[i]
    total = 0.0
    for e in range(start[i], start[i + 1]):
        total += C_bar[e] * b[columns[e]]
    # An underflow must not look like certainty.
    return max(FLOOR, min(1.0, min(cap[i], total) + error[i]))
