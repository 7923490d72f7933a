"""The recursion b_t = B(q_t) b_{t-1} with clamps (paper Section 3; theory page, "Clamps, caps and update errors").

There are only additions and multiplications of non-negative numbers, which bounds the rounding error beforehand. Every
loop can pause and continue: it stops after `allowance` operations, and `at` counts what it has finished (see
`in_pieces` in `dobrushin._shared.compile`).
"""

from dobrushin._shared.compile import inlined, kernel, prefetch

# Steps ahead at which the data of a step are fetched: its row's place and limits, the row, and the bounds.
FAR, NEAR, NEXT = 24, 16, 8
FLOOR = 2.0**-1000


@kernel
def forward(at, allowance, steps, order, first, start, columns, C_bar, cap, error, b):
    """Update the bounds b through `steps` steps of the cycle `order`, from its place `first` on.

    `at[0]` counts finished steps.
    """
    spent = 0
    done = at[0]
    place = (first + done) % order.size
    while done < steps and spent < allowance:
        if place + FAR < order.size:
            i = order[place + FAR]
            prefetch(start, i)
            prefetch(cap, i)
            prefetch(error, i)
            e = start[order[place + NEAR]]
            prefetch(columns, e)
            prefetch(C_bar, e)
            i = order[place + NEXT]
            for e in range(start[i], start[i + 1]):
                prefetch(b, columns[e])
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        b[i] = _updated(i, start, columns, C_bar, cap, error, b)
        spent += 16 + 6 * (start[i + 1] - start[i])
        done += 1
    at[0] = done


@kernel
def forward_random(at, allowance, steps, q, start, columns, C_bar, cap, error, new, b):
    """Update the bounds b through random steps, each of which updates variable i with probability q_i.

    `at` counts finished [steps, variables of the present step]; `new` is scratch space, as long as b.
    """
    spent = 0
    while at[0] < steps and spent < allowance:
        for i in range(at[1], q.size):
            spent += 1
            if q[i] > 0.0:
                # Never b - q (b - new), which cancels.
                fresh = _updated(i, start, columns, C_bar, cap, error, b)
                value = (1.0 - q[i]) * b[i] + q[i] * fresh
                new[i] = 0.0 if b[i] == 0.0 and fresh == 0.0 else max(value, FLOOR)
                spent += 8 + 2 * (start[i + 1] - start[i])
            if spent >= allowance and i + 1 < q.size:
                at[1] = i + 1
                return
        for i in range(q.size):
            if q[i] > 0.0:
                b[i] = new[i]
        at[0] += 1
        at[1] = 0


@inlined
def _updated(i, start, columns, C_bar, cap, error, b):
    """Return the bound on variable i after an update: min(1, min(cap_i, sum_j C_ij b_j) + error_i).

    The cap bounds the distance of the exact conditional laws; the error of the update is added to it.
    """
    if start[i] == start[i + 1]:
        return error[i]
    total = 0.0
    for e in range(start[i], start[i + 1]):
        total += C_bar[e] * b[columns[e]]
    # A bound that underflows must not become 0, which would claim certainty.
    return max(FLOOR, min(1.0, min(cap[i], total) + error[i]))
