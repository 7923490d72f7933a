"""DoGS, the paper's Algorithm 2 with its errata, and forward greedy scans.

Theory page, "DoGS with running differences" and "The forward greedy scan".

r = (I - C) b, so that the gain from updating i at the current step is d_i r_i. Gains are the leaves of a tree in which
every node holds the largest of its eight children: one cache line a level, and most changes end at the first.
"""

import numpy as np

from dobrushin._shared.compile import kernel

TIE = 2.0**-44
B, R, D = 0, 1, 2  # columns of the array `at`: what is known of a variable lies together in memory


@kernel
def _tree(n):
    """Room for n leaves, all -inf: the nodes, level by level, and where each level begins."""
    base = np.zeros(24, dtype=np.int64)
    depth, size = 0, n
    while size > 1:
        size = (size + 7) // 8
        base[depth + 1] = base[depth] + 8 * size
        depth += 1
    return np.full(base[depth] + 8, -np.inf), base, depth


@kernel
def _largest_child(node, low):
    return max(
        max(max(node[low], node[low + 1]), max(node[low + 2], node[low + 3])),
        max(max(node[low + 4], node[low + 5]), max(node[low + 6], node[low + 7])),
    )


@kernel
def _build(node, base, depth, n):
    """All nodes from their leaves."""
    size = n
    for level in range(depth):
        size = (size + 7) // 8
        for p in range(size):
            node[base[level + 1] + p] = _largest_child(node, base[level] + 8 * p)


@kernel
def _set(i, value, node, base, depth):
    """Change leaf i; stop at the first level whose largest value stays."""
    old = node[i]
    node[i] = value
    for level in range(depth):
        i >>= 3
        now = node[base[level + 1] + i]
        if value < now:
            if old < now:
                return
            value = _largest_child(node, base[level] + 8 * i)
        if value == now:
            return
        old = now
        node[base[level + 1] + i] = value


@kernel
def _argmax(node, base, depth):
    """The first leaf with the largest value."""
    i = 0
    for level in range(depth - 1, -1, -1):
        value = node[base[level + 1] + i]
        i *= 8
        while node[base[level] + i] != value:
            i += 1
    return i


@kernel
def dogs(order, start, columns, C_bar, column_start, rows, C_column, candidate, d, tolerance):
    """Replace each step of a fixed order, from the last to the first, by the best one given all the others.

    Works in place on `order`; stops early once the variation is at most `tolerance`. Returns the variation.
    """
    n = d.size
    at = np.empty((n, 3))
    for i in range(n):
        at[i, B] = 1.0
        at[i, D] = d[i]
    old = np.empty(order.size)
    for t in range(order.size):
        i = order[t]
        old[t] = at[i, B]
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e] * at[columns[e], B]
        at[i, B] = total
    gain, base, depth = _tree(n)
    V = 0.0
    for i in range(n):
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e] * at[columns[e], B]
        at[i, R] = at[i, B] - total
        V += d[i] * at[i, B]
        if candidate[i]:
            gain[i] = d[i] * at[i, R]
    _build(gain, base, depth, n)
    for t in range(order.size - 1, -1, -1):
        if tolerance >= V:
            break
        # Back to b_{t-1}: the old value is stored, not the difference, so that b does not drift.
        i = order[t]
        delta = old[t] - at[i, B]
        at[i, B] = old[t]
        if delta != 0.0:
            at[i, R] += delta
            if candidate[i] and at[i, D] > 0.0:
                _set(i, at[i, D] * at[i, R], gain, base, depth)
            for e in range(column_start[i], column_start[i + 1]):
                j = np.int64(rows[e])
                at[j, R] -= C_column[e] * delta
                if candidate[j] and at[j, D] > 0.0:
                    _set(j, at[j, D] * at[j, R], gain, base, depth)
        best = _argmax(gain, base, depth)
        # On a tie the given step stays, also where rounding hides the tie.
        if gain[best] > gain[i] + TIE * V:
            V += at[i, D] * at[i, R] - gain[best]
            order[t] = best
        else:
            best = i
        # Pull the weights back through the step.
        x = at[best, D]
        if x > 0.0:
            at[best, D] = 0.0
            if candidate[best]:
                _set(best, 0.0, gain, base, depth)
            for e in range(start[best], start[best + 1]):
                j = np.int64(columns[e])
                at[j, D] += x * C_bar[e]
                if candidate[j]:
                    _set(j, at[j, D] * at[j, R], gain, base, depth)
    return V


@kernel
def forward_greedy(steps, start, columns, C_bar, column_start, rows):
    """Update, step by step, the variable whose bound falls most (Gauss-Southwell)."""
    n = start.size - 1
    b = np.ones(n)
    fall, base, depth = _tree(n)
    for i in range(n):
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e]
        fall[i] = 1.0 - total
    _build(fall, base, depth, n)
    order = np.empty(steps, dtype=np.int64)
    for t in range(steps):
        i = _argmax(fall, base, depth)
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e] * b[columns[e]]
        b[i] = total
        _set(i, 0.0, fall, base, depth)
        # Falls are summed afresh: running differences would keep the rounding of the large values at the start.
        for e in range(column_start[i], column_start[i + 1]):
            j = np.int64(rows[e])
            total = 0.0
            for f in range(start[j], start[j + 1]):
                total += C_bar[f] * b[columns[f]]
            _set(j, b[j] - total, fall, base, depth)
        order[t] = i
    return order


@kernel
def _step(step, Q, start, columns, C_bar, b, out):
    """out = B(q) b for one step: a variable (step >= 0) or row -1 - step of Q."""
    for i in range(b.size):
        out[i] = b[i]
    for i in range(b.size):
        q = 1.0 if step == i else (Q[-1 - step, i] if step < 0 else 0.0)
        if q > 0.0:
            total = 0.0
            for e in range(start[i], start[i + 1]):
                total += C_bar[e] * b[columns[e]]
            out[i] = (1.0 - q) * b[i] + q * total


@kernel
def dogs_random(steps, Q, start, columns, C_bar, d, tolerance):
    """The same from a scan with random steps; returns the new steps and the number that was kept as it was.

    The vectors b_t are not all kept but recomputed from every so many-th: sqrt(T) vectors at a time.
    """
    n, T = d.size, steps.size
    every = int(np.ceil(np.sqrt(T)))
    marks = np.empty((T // every + 1, n))
    inside = np.empty((every, n))
    b = np.ones(n)
    new = np.empty(n)
    for t in range(T):
        if t % every == 0:
            marks[t // every] = b
        _step(steps[t], Q, start, columns, C_bar, b, new)
        b, new = new, b
    V = 0.0
    for i in range(n):
        V += d[i] * b[i]
    out = steps.copy()
    for t in range(T - 1, -1, -1):
        if tolerance >= V:
            return out, t + 1, V
        if t == T - 1 or t % every == every - 1:
            first = t - t % every
            inside[0] = marks[t // every]
            for s in range(first, t):
                _step(steps[s], Q, start, columns, C_bar, inside[s - first], inside[s - first + 1])
        b = inside[t % every]
        best, best_key, mean_key = 0, -np.inf, 0.0
        for i in range(n):
            total = 0.0
            for e in range(start[i], start[i + 1]):
                total += C_bar[e] * b[columns[e]]
            key = d[i] * (b[i] - total)
            if key > best_key:
                best, best_key = i, key
            if steps[t] < 0:
                mean_key += Q[-1 - steps[t], i] * key
            elif steps[t] == i:
                mean_key = key
        V += mean_key - best_key
        out[t] = best
        x = d[best]
        d[best] = 0.0
        for e in range(start[best], start[best + 1]):
            d[columns[e]] += x * C_bar[e]
    return out, 0, V
