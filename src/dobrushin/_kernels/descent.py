"""DoGS, the paper's Algorithm 2 with its errata, and forward greedy scans (MATH sections 2 and 5).

r = (I - C) b, so that the gain from updating i at the current step is d_i r_i. Gains are kept in a tournament tree.
"""

import numpy as np

from dobrushin._compile import kernel


@kernel
def _play(i, key, tree, leaves):
    """Replay the matches of variable i; stop where another winner stays."""
    node = (leaves + i) >> 1
    while node > 0:
        a, b = tree[2 * node], tree[2 * node + 1]
        winner = a if key[a] >= key[b] else b
        if tree[node] == winner and winner != i:
            break
        tree[node] = winner
        node >>= 1


@kernel
def _play_all(key, tree, leaves):
    for i in range(leaves):
        tree[leaves + i] = i
    for node in range(leaves - 1, 0, -1):
        a, b = tree[2 * node], tree[2 * node + 1]
        tree[node] = a if key[a] >= key[b] else b


@kernel
def dogs(order, start, columns, C_bar, column_start, rows, C_column, candidate, d, tolerance):
    """Replace each step of a fixed order, from the last to the first, by the best one given all the others.

    Works in place on `order` and `d`; stops early once the variation is at most `tolerance`. Returns the variation.
    """
    n = d.size
    leaves = 1
    while leaves < n:
        leaves *= 2
    b = np.ones(n)
    old = np.empty(order.size)
    for t in range(order.size):
        i = order[t]
        old[t] = b[i]
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e] * b[columns[e]]
        b[i] = total
    r = np.empty(n)
    key = np.full(leaves, -np.inf)
    V = 0.0
    for i in range(n):
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e] * b[columns[e]]
        r[i] = b[i] - total
        V += d[i] * b[i]
        if candidate[i]:
            key[i] = d[i] * r[i]
    tree = np.empty(2 * leaves, dtype=np.int32)
    _play_all(key, tree, leaves)
    for t in range(order.size - 1, -1, -1):
        if V <= tolerance:
            break
        # Back to b_{t-1}: the old value is stored, not the difference, so that b does not drift.
        i = order[t]
        delta = old[t] - b[i]
        b[i] = old[t]
        if delta != 0.0:
            r[i] += delta
            if candidate[i] and key[i] != d[i] * r[i]:
                key[i] = d[i] * r[i]
                _play(i, key, tree, leaves)
            for e in range(column_start[i], column_start[i + 1]):
                j = rows[e]
                r[j] -= C_column[e] * delta
                if candidate[j] and d[j] > 0.0:
                    key[j] = d[j] * r[j]
                    _play(j, key, tree, leaves)
        best = tree[1] if leaves > 1 else 0
        if key[best] > key[i]:
            V += d[i] * r[i] - key[best]
            order[t] = best
        else:
            best = i
        # Pull the weights back through the step.
        x = d[best]
        if x > 0.0:
            d[best] = 0.0
            for e in range(start[best], start[best + 1]):
                d[columns[e]] += x * C_bar[e]
            key[best] = d[best] * r[best]
            _play(best, key, tree, leaves)
            for e in range(start[best], start[best + 1]):
                j = columns[e]
                if candidate[j] and key[j] != d[j] * r[j]:
                    key[j] = d[j] * r[j]
                    _play(j, key, tree, leaves)
    return V


@kernel
def forward_greedy(steps, start, columns, C_bar, column_start, rows, C_column):
    """Update, step by step, the variable whose bound falls most (Gauss-Southwell)."""
    n = start.size - 1
    leaves = 1
    while leaves < n:
        leaves *= 2
    b = np.ones(n)
    key = np.full(leaves, -np.inf)
    for i in range(n):
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e]
        key[i] = 1.0 - total
    tree = np.empty(2 * leaves, dtype=np.int32)
    _play_all(key, tree, leaves)
    order = np.empty(steps, dtype=np.int64)
    for t in range(steps):
        i = tree[1] if leaves > 1 else 0
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e] * b[columns[e]]
        delta = b[i] - total
        b[i] = total
        key[i] -= delta
        _play(i, key, tree, leaves)
        for e in range(column_start[i], column_start[i + 1]):
            j = rows[e]
            key[j] += C_column[e] * delta
            _play(j, key, tree, leaves)
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
        if V <= tolerance:
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
