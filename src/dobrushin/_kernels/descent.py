"""DoGS, the paper's Algorithm 2 with its errata, and forward greedy scans (theory page, "Choosing scans").

With r = (I - C) b, updating variable i at the current step lowers the bound by the gain d_i r_i. The gains are the
leaves of a tree in which every node holds the largest of its eight children: one cache line a level, and most changes
end at the first level. Every loop can pause and continue: it stops after `allowance` operations, and `at` counts what
it has finished (see `in_pieces` in `dobrushin._shared.compile`).
"""

import numpy as np

from dobrushin._shared.compile import inlined, kernel

TIE = 2.0**-44
B, R, D = 0, 1, 2  # columns of the array `variable`, which has the numbers of a variable beside each other in memory


@kernel
def tree(n):
    """Return a tree of maxima with n leaves of value -inf.

    It is an array of all nodes level by level, with the start of each level and the number of levels.
    """
    base = np.zeros(24, dtype=np.int64)
    depth, size = 0, n
    while size > 1:
        size = (size + 7) // 8
        base[depth + 1] = base[depth] + 8 * size
        depth += 1
    return np.full(base[depth] + 8, -np.inf), base, depth


@inlined
def _largest_child(node, low):
    return max(
        max(max(node[low], node[low + 1]), max(node[low + 2], node[low + 3])),
        max(max(node[low + 4], node[low + 5]), max(node[low + 6], node[low + 7])),
    )


@kernel
def _build(node, base, depth, n):
    size = n
    for level in range(depth):
        size = (size + 7) // 8
        for p in range(size):
            node[base[level + 1] + p] = _largest_child(node, base[level] + 8 * p)


@inlined
def _set(i, value, node, base, depth):
    """Set leaf i of the tree and the nodes above it, up to the first node that does not change."""
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


@inlined
def _first_largest(i, level, lowest, node, base):
    """Return the first node below a given node, on the level `lowest`, that has the same value.

    The given node is number i of `level`.
    """
    value = node[base[level] + i]
    while level > lowest:
        level -= 1
        i *= 8
        low, is_before, before = base[level] + i, 1, 0
        for child in range(7):  # all of them: a loop that ends at the child would be mispredicted
            is_before &= node[low + child] != value
            before += is_before
        i += before
    return i


@inlined
def _row_times(i, start, columns, C_bar, b):
    total = 0.0
    for e in range(start[i], start[i + 1]):
        total += C_bar[e] * b[columns[e]]
    return total


@kernel
def bounds_through(at, allowance, order, start, columns, C_bar, variable, old):
    """Update the bounds b (a column of `variable`) step by step along an order, and store the values that are replaced.

    `at[0]` counts finished steps.
    """
    spent = 0
    while at[0] < order.size and spent < allowance:
        i = order[at[0]]
        old[at[0]] = variable[i, B]
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e] * variable[columns[e], B]
        variable[i, B] = total
        spent += 16 + 6 * (start[i + 1] - start[i])
        at[0] += 1


@kernel
def gains(at, allowance, start, columns, C_bar, candidate, variable, gain, base, depth, V):
    """Compute r = (I - C) b, the gain of each variable and the tree of gains; V[0] is set to the variation.

    `at[0]` counts finished variables.
    """
    spent, n = 0, candidate.size
    while at[0] < n and spent < allowance:
        i = at[0]
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e] * variable[columns[e], B]
        variable[i, R] = variable[i, B] - total
        V[0] += variable[i, D] * variable[i, B]
        if candidate[i]:
            gain[i] = variable[i, D] * variable[i, R]
        spent += 8 + 2 * (start[i + 1] - start[i])
        at[0] += 1
    if at[0] == n:
        _build(gain, base, depth, n)


@kernel
def dogs(at, allowance, order, start, columns, C_bar, column_start, rows, C_column, is_mutual, candidate, tolerance, old, variable, gain, base, depth, V):  # fmt: skip  # noqa: E501
    """Replace each step of a fixed order by the best variable given all other steps, from the last step to the first.

    Changes `order` in place, and stops early once the variation V[0] is at most `tolerance`. `at[0]` counts finished
    steps. `is_mutual` says that influence is mutual for all pairs, so that rows and columns have the same indices.
    """
    spent, done, total, root = 0, at[0], V[0], base[depth]
    while done < order.size and spent < allowance:
        if tolerance >= total:
            done = order.size
            break
        t = order.size - 1 - done
        done += 1
        # Back to b_{t-1}: the old value is stored, not the difference, so that b does not drift.
        i = order[t]
        delta = old[t] - variable[i, B]
        variable[i, B] = old[t]
        variable[i, R] += delta
        x = variable[i, D]
        own = x * variable[i, R] if candidate[i] else -np.inf
        # No gain is above `most`: the tree still has the gains from before, and only those of these rows change.
        most = gain[root]
        for e in range(column_start[i], column_start[i + 1]):
            j = np.int64(rows[e])
            variable[j, R] -= C_column[e] * delta
            if candidate[j]:
                most = max(most, variable[j, D] * variable[j, R])
        spent += 48 + 24 * (column_start[i + 1] - column_start[i])
        # On a tie the given step stays, also where rounding hides the tie. The gains that have changed need not be set
        # then, since all of them will change again.
        best = i
        if not (most <= own + TIE * total and is_mutual and x > 0.0):
            if candidate[i]:
                _set(i, own, gain, base, depth)
            for e in range(column_start[i], column_start[i + 1]):
                j = np.int64(rows[e])
                if candidate[j]:
                    _set(j, variable[j, D] * variable[j, R], gain, base, depth)
            if gain[root] > own + TIE * total:
                best = _first_largest(0, depth, 0, gain, base)
                total += x * variable[i, R] - gain[best]
                order[t] = best
                x = variable[best, D]
                _set(best, 0.0, gain, base, depth)
        if x > 0.0:
            _pull(best, x, start, columns, C_bar, candidate, variable, gain, base, depth)
            spent += 24 * (start[best + 1] - start[best])
    at[0] = done
    V[0] = total


@inlined
def _pull(i, x, start, columns, C_bar, candidate, variable, gain, base, depth):
    """Pull the weights back through a step that updates variable i: its weight x moves to its neighbours.

    The gains of these neighbours are updated too.
    """
    variable[i, D] = 0.0
    if candidate[i]:
        _set(i, 0.0, gain, base, depth)
    for e in range(start[i], start[i + 1]):
        j = np.int64(columns[e])
        variable[j, D] += x * C_bar[e]
        if candidate[j]:
            _set(j, variable[j, D] * variable[j, R], gain, base, depth)


@kernel
def falls(at, allowance, start, C_bar, fall, base, depth):
    """Compute how much a first update of each variable lowers its bound, and the tree of these falls.

    `at[0]` counts finished variables.
    """
    spent, n = 0, start.size - 1
    while at[0] < n and spent < allowance:
        i = at[0]
        total = 0.0
        for e in range(start[i], start[i + 1]):
            total += C_bar[e]
        fall[i] = 1.0 - total
        spent += 4 + start[i + 1] - start[i]
        at[0] += 1
    if at[0] == n:
        _build(fall, base, depth, n)


@kernel
def forward_greedy(at, allowance, order, start, columns, C_bar, column_start, rows, fall, base, depth, b):
    """Fill `order`: each step updates the variable whose bound falls most (Gauss-Southwell).

    `at[0]` counts finished steps.
    """
    spent = 0
    while at[0] < order.size and spent < allowance:
        i = _first_largest(0, depth, 0, fall, base)
        b[i] = _row_times(i, start, columns, C_bar, b)
        _set(i, 0.0, fall, base, depth)
        spent += 48 + 3 * (start[i + 1] - start[i])
        # Falls are summed afresh: running differences would keep the rounding of the large values at the start.
        for e in range(column_start[i], column_start[i + 1]):
            j = np.int64(rows[e])
            _set(j, b[j] - _row_times(j, start, columns, C_bar, b), fall, base, depth)
            spent += 24 + 3 * (start[j + 1] - start[j])
        order[at[0]] = i
        at[0] += 1


@kernel
def steps_through(at, allowance, steps, Q, start, columns, C_bar, every, b, kept):
    """Update the bounds b through steps, and store b before every `every`-th step in `kept`.

    A step s >= 0 updates variable s; s < 0 is random, with the probabilities in row -1 - s of Q. `at[0]` counts
    finished steps.
    """
    spent = 0
    new = np.empty_like(b)
    while at[0] < steps.size and spent < allowance:
        if at[0] % every == 0:
            kept[at[0] // every] = b
        _step(steps[at[0]], Q, start, columns, C_bar, b, new)
        b[:] = new
        spent += 4 * b.size + (2 * C_bar.size if steps[at[0]] < 0 else 0)
        at[0] += 1


@kernel
def _step(step, Q, start, columns, C_bar, b, out):
    """Set out = B(q) b, the bounds after one fixed or random step."""
    for i in range(b.size):
        out[i] = b[i]
    for i in range(b.size):
        q = 1.0 if step == i else (Q[-1 - step, i] if step < 0 else 0.0)
        if q > 0.0:
            out[i] = (1.0 - q) * b[i] + q * _row_times(i, start, columns, C_bar, b)


@kernel
def replace_steps(at, allowance, steps, Q, start, columns, C_bar, tolerance, before, d, V, chosen):
    """Replace each step by the best fixed one, from the last to the first; before[t] is b before step t.

    Stops early once the variation V[0] is at most `tolerance`; V[1] is then the number of steps that were not replaced.
    `at[0]` counts finished steps.
    """
    spent, n = 0, d.size
    while at[0] < steps.size and spent < allowance:
        t = steps.size - 1 - at[0]
        if tolerance >= V[0]:
            V[1] = t + 1
            at[0] = steps.size
            return
        b = before[t]
        best, best_key, mean_key = 0, -np.inf, 0.0
        for i in range(n):
            key = d[i] * (b[i] - _row_times(i, start, columns, C_bar, b))
            if key > best_key:
                best, best_key = i, key
            if steps[t] < 0:
                mean_key += Q[-1 - steps[t], i] * key
            elif steps[t] == i:
                mean_key = key
        V[0] += mean_key - best_key
        chosen[t] = best
        x = d[best]
        d[best] = 0.0
        for e in range(start[best], start[best + 1]):
            d[columns[e]] += x * C_bar[e]
        spent += 4 * n + 2 * C_bar.size
        at[0] += 1
