"""Backward greedy scans (theory page, "The backward greedy scan").

The scan is built from its last step backwards. d holds the weights pulled back through the steps chosen so far, and its
L1 norm is the variation of the scan built so far. The next step to prepend updates the variable with the largest d.
Variables are numbered when the search first meets them; only variables with a positive weight are in the heap.
"""

import numpy as np

from dobrushin._shared.compile import inlined, kernel

DONE, NEED_ROW, FULL, PAUSED = 0, 1, 2, 3


@kernel
def extend(
    allowance, tolerance, limit, begin, end, columns, C_bar, has_row, ids, d, heap, place, order, norms, state, counters
):
    """Prepend steps until the norm of d is at most `tolerance`, there are `limit` steps or the allowance is used up.

    `counters` holds [entries of the heap, steps], and `state` [norm of d, norm when it was last summed afresh]. `place`
    is 1 + the place in the heap, 0 for variables that are not in it.
    """
    size, steps = counters[0], counters[1]
    status, spent = FULL, 0
    while True:
        if state[0] < 0.5 * state[1] or state[0] <= tolerance:
            # The running norm loses digits as it shrinks.
            total = 0.0
            for p in range(size):
                total += d[heap[p]]
            state[0] = total
            state[1] = total
            spent += 2 * size
        if state[0] <= tolerance:
            status = DONE
            break
        if steps >= limit:
            break
        if spent >= allowance:
            status = PAUSED
            break
        i = heap[0]
        if not has_row[i]:
            status = NEED_ROW
            break
        x = d[i]
        d[i] = 0.0
        state[0] -= x
        _sift_down(0, size, ids, d, heap, place)
        for e in range(begin[i], end[i]):
            j = columns[e]
            if x * C_bar[e] > 0.0:
                d[j] += x * C_bar[e]
                state[0] += x * C_bar[e]
                if place[j] == 0:
                    heap[size] = j
                    place[j] = size + 1
                    size += 1
                _sift_up(place[j] - 1, ids, d, heap, place)
        order[steps] = i
        steps += 1
        norms[steps] = state[0]
        spent += 64 + 32 * (end[i] - begin[i])
    counters[0] = size
    counters[1] = steps
    return status


@kernel
def reach(limit, floor, most, begin, end, columns, C_bar, has_row, ids, p, heap, place, order, values, counters):
    """Choose the variables with the strongest influence on the targets.

    These are the first `limit`, ties with the last of them, and all of strength `floor` or more, but at most `most`.
    The strength p of a variable is the largest product of influences along a path from the targets; -1 once the
    variable has been chosen. Influences are lowered a little, so that no variable comes before the targets. `counters`
    holds [entries of the heap, variables chosen].
    """
    size, steps = counters[0], counters[1]
    status = DONE
    while True:
        i = heap[0]
        x = p[i]
        if x <= 0.0:
            break  # no other variable has an influence
        if steps >= most:
            break
        if steps >= limit and x < floor and not (steps > 0 and x > values[steps - 1] * (1.0 - 1e-9)):
            break
        if not has_row[i]:
            status = NEED_ROW
            break
        if steps == order.size:
            status = FULL
            break
        p[i] = -1.0
        _sift_down(0, size, ids, p, heap, place)
        for e in range(begin[i], end[i]):
            j = columns[e]
            y = x * C_bar[e] * (1.0 - 2.0**-20)
            if p[j] >= 0.0 and y > p[j]:
                p[j] = y
                if place[j] == 0:
                    heap[size] = j
                    place[j] = size + 1
                    size += 1
                _sift_up(place[j] - 1, ids, p, heap, place)
        order[steps] = i
        values[steps] = x
        steps += 1
    counters[0] = size
    counters[1] = steps
    return status


@kernel
def look_around(start, neighbor, number, ids, met, most, found, count):
    """Add unnumbered variables near the first `count` variables of `found` to `found`, the nearest first.

    Return how many variables `found` then has, at most `most`. The array `number` is not initialised: variable j has a
    number if ids[number[j]] is j, and is in `found` if the numbers from `met` on lead to it.
    """
    size = count
    k = 0
    while k < size < most:
        i = found[k]
        for e in range(start[i], start[i + 1]):
            j = neighbor[e]
            place = np.int64(number[j])
            if 0 <= place < met and ids[place] == j:
                continue
            place += count - met
            if count <= place < size and found[place] == j:
                continue
            if size == most:
                return size
            number[j] = met + size - count
            found[size] = j
            size += 1
        k += 1
    return size


@kernel
def push_all(at, allowance, count, ids, d, heap, place):
    """Put the variables 0 to count - 1 into the heap.

    `at[0]` counts finished variables.
    """
    last = min(count, at[0] + allowance // 32 + 1)
    for j in range(at[0], last):
        heap[j] = j
        place[j] = j + 1
        _sift_up(j, ids, d, heap, place)
    at[0] = last


@inlined
def _sift_up(p, ids, d, heap, place):
    i = heap[p]
    while p > 0:
        q = (p - 1) // 2
        other = heap[q]
        if not (d[i] > d[other] or (d[i] == d[other] and ids[i] < ids[other])):
            break
        heap[p] = other
        place[other] = p + 1
        p = q
    heap[p] = i
    place[i] = p + 1


@inlined
def _sift_down(p, size, ids, d, heap, place):
    i = heap[p]
    while True:
        q = 2 * p + 1
        if q >= size:
            break
        if q + 1 < size:
            a, b = heap[q], heap[q + 1]
            if d[b] > d[a] or (d[b] == d[a] and ids[b] < ids[a]):
                q += 1
        other = heap[q]
        if not (d[other] > d[i] or (d[other] == d[i] and ids[other] < ids[i])):
            break
        heap[p] = other
        place[other] = p + 1
        p = q
    heap[p] = i
    place[i] = p + 1


@kernel
def suffix_norms(at, allowance, order, begin, end, columns, C_bar, d, state, norms):
    """Set norms[k] to the variation of a scan's last k steps, for all k.

    It is the norm of the weights d pulled back through these steps. `at[0]` counts finished steps; `state` holds [norm
    of d, norm when it was last summed afresh].
    """
    spent = 0
    if at[0] == 0:
        state[0] = state[1] = norms[0] = _sum(d)
    while at[0] < order.size and spent < allowance:
        i = order[order.size - 1 - at[0]]
        x = d[i]
        d[i] = 0.0
        state[0] -= x
        for e in range(begin[i], end[i]):
            d[columns[e]] += x * C_bar[e]
            state[0] += x * C_bar[e]
        spent += 16 + 4 * (end[i] - begin[i])
        if state[0] < 0.5 * state[1]:
            state[0] = state[1] = _sum(d)
            spent += d.size
        at[0] += 1
        norms[at[0]] = state[0]


@kernel
def _sum(d):
    """Return the sum of d in order; NumPy would add in another order than compiled code."""
    total = 0.0
    for i in range(d.size):
        total += d[i]
    return total


@kernel
def move_steps(order, start, columns, C_bar, candidate, weights, most):
    """Improve `order` in place by moving single steps, until no move helps or `most` moves were tried.

    Return the variation without caps. Between a prefix that leads to b and a suffix that pulls the weights back to d, a
    new step on i changes the variation by -d_i (b - C b)_i.
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
    """Copy an array. An assignment would take seconds to compile, because of an error message that cannot occur."""
    for i in range(target.size):
        target[i] = source[i]


@kernel
def _row(i, start, columns, C_bar, b):
    total = 0.0
    for e in range(start[i], start[i + 1]):
        total += C_bar[e] * b[columns[e]]
    return total
