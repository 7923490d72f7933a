"""Intervals for the odds of a binary variable, from its tree of self-avoiding walks (theory page, "Walks").

The half-edges of variable v are start[v] to start[v + 1] - 1; `neighbor` is the other end of a half-edge and `twin` the
half-edge of the opposite direction. If R are the odds at the other end, half-edge h multiplies the odds of its own
variable by its factor (1 + alpha[h] R) / (1 + beta[h] R): 1 at R = 0, and ratio[h] = alpha[h] / beta[h] at infinity.

`odds` are those of a variable by itself, and beyond[h] those of the other end of h without the edge itself.
`exit_of[v]` is the half-edge by which the current walk left v, or -1; `fixed[v]` is the state of an observed variable,
or -1.
"""

import numpy as np

from dobrushin._shared.compile import kernel

# Products and maps are rounded outwards by this share, which is more than they can be off by.
DOWN, UP = 1.0 - 32.0 * 2.0**-53, 1.0 + 32.0 * 2.0**-53
LEAST, MOST = 1e-300, 1e300


@kernel
def factor(alpha, beta, ratio, R):
    """Return the factor of a half-edge when its other end has odds R, rounded to nearest.

    Very large odds count as infinite.
    """
    if R > MOST or alpha * R > MOST or beta * R > MOST:
        return ratio
    return (1.0 + alpha * R) / (1.0 + beta * R)


@kernel
def lowered(low, factor):
    """Return low * factor, rounded down; 0 if it is so small that floats lose their precision."""
    low = min(low * factor * DOWN, MOST)
    return low if low >= LEAST else 0.0


@kernel
def raised(high, factor):
    """Return high * factor, rounded up.

    A factor of 0 may stand for one below `LEAST`.
    """
    return max(high * max(factor, LEAST) * UP, LEAST)


@kernel
def prepare_walks(start, neighbor, twin, alpha, beta, ratio, beyond, rounds):
    """Return, for each half-edge, the range of its factor over all states beyond it, and an estimate of its slope.

    Columns: lower end, upper end, logarithm of their ratio, |d log factor / d log R| at a fixed point of belief
    propagation. The last two only decide which branches are expanded.
    """
    size = neighbor.size
    known = np.empty((size, 4))
    message = np.empty(size)
    for h in range(size):
        w = neighbor[h]
        low, high, middle = beyond[h], beyond[h], beyond[h]
        for j in range(start[w], start[w + 1]):
            if j != twin[h]:
                low *= min(1.0, ratio[j]) * DOWN
                high = max(high * (max(1.0, ratio[j]) * UP), LEAST)
                low = min(low, MOST)
                middle *= np.sqrt(max(ratio[j], 1e-30))
        low = 0.0 if low < LEAST else low
        a, b = factor(alpha[h], beta[h], ratio[h], low), factor(alpha[h], beta[h], ratio[h], high)
        known[h, 0], known[h, 1] = min(a, b) * DOWN, max(max(a, b) * UP, LEAST)
        known[h, 2] = np.log(known[h, 1] / max(known[h, 0], LEAST))
        message[h] = middle
    new = message.copy()
    for _ in range(rounds):
        for h in range(size):
            w = neighbor[h]
            value = beyond[h]
            for j in range(start[w], start[w + 1]):
                if j != twin[h]:
                    value *= factor(alpha[j], beta[j], ratio[j], message[j])
            new[h] = np.sqrt(max(value, 1e-200)) * np.sqrt(max(message[h], 1e-200))
        message[:] = new
    for h in range(size):
        R = min(message[h], 1e100)
        known[h, 3] = abs(alpha[h] - beta[h]) * R / ((1.0 + alpha[h] * R) * (1.0 + beta[h] * R))
    return known


@kernel
def walk_odds(
    path, root, start, neighbor, twin, alpha, beta, ratio, odds, beyond, known, fixed, least, most, exit_of, seen
):
    """Return an interval for the odds of the variable at the end of a walk, and the number of variables visited.

    A branch is cut when its weight times the log-width of its range is below `least`, and every branch once `most`
    variables have been visited. The interval is valid for any choice of cuts.
    """
    n = start.size - 1
    u, weight, own = root, 1.0, odds[root]
    for h in path:
        exit_of[u] = h
        weight *= known[h, 3]
        u, own = neighbor[h], beyond[h]
    vertex, place = np.empty(n + 1, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    low, high, weights = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1)
    depth, visited = 0, 1
    vertex[0], place[0], low[0], high[0], weights[0] = u, start[u], own, own, weight
    seen[u] = True
    while True:
        v, k = vertex[depth], place[depth]
        if k == start[v + 1]:
            exit_of[v] = -1
            if depth == 0:
                break
            depth -= 1
            h = place[depth]
            a = factor(alpha[h], beta[h], ratio[h], low[depth + 1])
            b = factor(alpha[h], beta[h], ratio[h], high[depth + 1])
            low[depth] = lowered(low[depth], min(a, b) * DOWN)
            high[depth] = raised(high[depth], max(a, b) * UP)
            place[depth] = h + 1
            continue
        w = neighbor[k]
        if fixed[w] >= 0 or exit_of[w] >= 0:
            # Where the walk comes back, the end is fixed by the order of the half-edges at that variable.
            if fixed[w] >= 0:
                is_one = fixed[w] == 1
            else:
                is_one = twin[k] > exit_of[w]
            if is_one and (fixed[w] >= 0 or twin[k] != exit_of[w]):
                low[depth] = lowered(low[depth], ratio[k])
                high[depth] = raised(high[depth], ratio[k])
            place[depth] = k + 1
            continue
        seen[w] = True
        if visited >= most or weights[depth] * known[k, 2] < least:
            low[depth] = lowered(low[depth], known[k, 0])
            high[depth] = raised(high[depth], known[k, 1])
            place[depth] = k + 1
            continue
        exit_of[v] = k
        depth += 1
        visited += 1
        vertex[depth], place[depth], low[depth], high[depth] = w, start[w], beyond[k], beyond[k]
        weights[depth] = weights[depth - 1] * known[k, 3]
    u = root
    for h in path:
        exit_of[u] = -1
        u = neighbor[h]
    return low[0], high[0], visited
