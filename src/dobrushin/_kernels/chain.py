"""One chain of an Ising or Potts model: step after step, or in waves of steps that do not depend on each other.

Steps come as a list that is gone through `repeats` times: entry k updates variable order[k] and is step number
base + number[k] of the scan, `period` later each time.

Waves (theory page, "Waves") are for cycles of L steps in which every variable occurs once. With level(v) the level of
step v within the cycle, and P one more than the largest difference of levels along an edge, level(v) + P s is an order
of all steps (s, v) of all sweeps that keeps every dependency: two neighbours are never at one level, and of two steps
on neighbours the earlier one has the lower level. So several sweeps are under way at once: in round m, class c = level
mod P updates the variables whose sweep m - level // P (their lag) lies between 0 and S - 1. Variables are stored by
class, number of neighbours and level; what a round updates in one bucket is then one stretch of memory.

Both do the same sums and the same comparison, so they make the same draws.
"""

import math

import numpy as np

from dobrushin._kernels.exponential import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

SCALE = 2.0**53
UNIT = 2.0**-53
CELLS = 1024  # of the table that brackets logit(u) / 2, by the highest bits of u
BLOCK = 256  # steps of a wave that are computed together


@kernel
def brackets():
    """For each cell of u the middle and half the width of an interval that holds logit(u) / 2.

    It is wider than need be by far more than the rounding of logarithms and local fields.
    """
    table = np.empty((CELLS, 2))
    for c in range(1, CELLS - 1):
        low, high = c / CELLS, (c + 1) / CELLS
        left, right = 0.5 * (math.log(low) - math.log1p(-low)), 0.5 * (math.log(high) - math.log1p(-high))
        table[c, 0] = 0.5 * (left + right)
        table[c, 1] = 0.5 * (right - left) * (1.0 + 1e-6)
    for c in (0, CELLS - 1):
        table[c, 0], table[c, 1] = 0.0, np.inf
    return table


@kernel
def ising_steps(order, number, repeats, base, period, start, neighbor, theta, field, table, key, gamma, x):
    """Steps of an Ising model of any degree, spins -1.0 and +1.0.

    The spin is up where u < sigma(2 h), that is, where h > logit(u) / 2. The bracket of the latter, which does not wait
    for the neighbours, decides all but about one in 500 draws by a comparison without a branch; those are decided by
    the exponential, so the law of the draws is the exact one.
    """
    for _ in range(repeats):
        first = key + gamma * np.uint64(base)
        for k in range(order.size):
            i = order[k]
            lo, hi = start[i], start[i + 1]
            h = field[i]
            while hi - lo >= 4:
                h += (theta[lo] * x[neighbor[lo]] + theta[lo + 1] * x[neighbor[lo + 1]]) + (
                    theta[lo + 2] * x[neighbor[lo + 2]] + theta[lo + 3] * x[neighbor[lo + 3]]
                )
                lo += 4
            for e in range(lo, hi):
                h += theta[e] * x[neighbor[e]]
            u = mix(first + gamma * np.uint64(number[k])) >> np.uint64(11)
            cell = np.int64(u >> np.uint64(43))
            ahead = h - table[cell, 0]
            spin = math.copysign(1.0, ahead)
            if abs(ahead) <= table[cell, 1]:
                spin = 1.0 if np.float64(u) * (1.0 + exponential(-2.0 * h)) < SCALE else -1.0
            x[i] = spin
        base += period


@kernel
def potts_chain(order, number, repeats, base, period, start, neighbor, strength, unary, key, gamma, x):
    """One chain of a Potts model; `strength` and `unary` are exponentials, so that weights are products.

    The label is the number of partial sums of the weights that u times their total is not below.
    """
    k = unary.shape[1]
    flat = unary.ravel()
    weight = np.empty(k)
    for _ in range(repeats):
        for step in range(order.size):
            i = order[step]
            for a in range(k):
                weight[a] = flat[i * k + a]
            for e in range(start[i], start[i + 1]):
                weight[x[neighbor[e]]] *= strength[e]
            total = 0.0
            for a in range(k):
                total += weight[a]
                weight[a] = total
            u = np.float64(mix(key + gamma * np.uint64(base + number[step])) >> np.uint64(11)) * UNIT * total
            label = 0
            for a in range(k - 1):
                label += weight[a] <= u
            x[i] = label
        base += period


@kernel
def schedule(order, rank, start, neighbor):
    """Levels of the steps of a cycle, and P. rank[i] is the step that updates i, -1 for none."""
    level = np.empty(order.size, dtype=np.int32)
    P = 1
    for v in range(order.size):
        i = order[v]
        before = -1
        for e in range(start[i], start[i + 1]):
            w = rank[neighbor[e]]
            if 0 <= w < v:
                before = max(before, level[w])
        level[v] = before + 1
        for e in range(start[i], start[i + 1]):
            w = rank[neighbor[e]]
            if 0 <= w < v:
                P = max(P, level[v] - level[w] + 1)
    return level, P


@kernel
def _sorted_by(level):
    """Steps by level, in their order within each level."""
    first = np.zeros(level.max() + 2, dtype=np.int64)
    for v in range(level.size):
        first[level[v] + 1] += 1
    for k in range(first.size - 1):
        first[k + 1] += first[k]
    steps = np.empty(level.size, dtype=np.int32)
    for v in range(level.size):
        steps[first[level[v]]] = v
        first[level[v]] += 1
    return steps


@kernel
def arrange(order, level, P, D, start, neighbor, theta, slot, coupling, variables, number, lag):
    """Places of the variables, and what the rounds need, in their order.

    D is one more than the most neighbours. Bucket b = class * D + neighbours holds the places first[b] : first[b + 1];
    its neighbours and couplings stand at entry[b], one row for each neighbour. The last five arguments are filled: they
    come from NumPy, which asks for large pages, since they are written all over the place.
    """
    L, n = order.size, start.size - 1
    by_level = _sorted_by(level)
    first = np.zeros(P * D + 1, dtype=np.int64)
    for v in range(L):
        first[(level[v] % P) * D + start[order[v] + 1] - start[order[v]] + 1] += 1
    for b in range(P * D):
        first[b + 1] += first[b]
    place = np.full(n, -1, dtype=np.int32)
    at = first.copy()
    for q in range(L):
        v = by_level[q]
        b = (level[v] % P) * D + start[order[v] + 1] - start[order[v]]
        place[order[v]] = at[b]
        at[b] += 1
    rest = L
    for i in range(n):
        if place[i] < 0:
            place[i] = rest
            rest += 1
    entry = np.zeros(P * D, dtype=np.int64)
    used = 0
    for b in range(P * D):
        entry[b] = used
        used += (b % D) * (first[b + 1] - first[b])
    # In the order of the steps: what is read is then read once, one after the other.
    for v in range(L):
        i = order[v]
        k = place[i]
        variables[k] = i
        lag[k] = level[v] // P
        number[k] = v - np.int64(L) * lag[k]
        b = (level[v] % P) * D + start[i + 1] - start[i]
        width, at_entry = first[b + 1] - first[b], entry[b] + k - first[b]
        for e in range(start[i], start[i + 1]):
            slot[at_entry] = place[neighbor[e]]
            coupling[at_entry] = theta[e]
            at_entry += width
    return place, first, entry


@kernel
def _first_at_least(lag, lo, hi, value):
    while lo < hi:
        middle = (lo + hi) // 2
        if lag[middle] < value:
            lo = middle + 1
        else:
            hi = middle
    return lo


@kernel
def _stretch(lag, lo, hi, m, sweeps):
    """The places between lo and hi, sorted by lag, that round m updates: 0 <= m - lag < sweeps."""
    if lo == hi or lag[lo] > m or lag[hi - 1] <= m - sweeps:
        return lo, lo
    begin = lo if lag[lo] > m - sweeps else _first_at_least(lag, lo, hi, m - sweeps + 1)
    end = hi if lag[hi - 1] <= m else _first_at_least(lag, lo, hi, m + 1)
    return begin, end


@kernel
def ising_waves(sweeps, base, D, slot, coupling, own_field, number, lag, first, entry, key, gamma, x):
    """All steps of `sweeps` cycles; the first one is number `base` of the scan. Spins are -1.0 and +1.0, by place."""
    L = number.size
    last = lag.max()
    local = np.empty(BLOCK)
    for m in range(sweeps + last):
        stream = key + gamma * np.uint64(base + m * L)
        for b in range(first.size - 1):
            lo, hi, d = first[b], first[b + 1], b % D
            begin, end = _stretch(lag, lo, hi, m, sweeps)
            for c in range(begin, end, BLOCK):
                z = min(BLOCK, end - c)
                h = local[:z]
                _local_fields(d, hi - lo, entry[b] + c - lo, slot, coupling, own_field[c : c + z], x, h)
                numbers, spins = number[c : c + z], x[c : c + z]
                for k in range(z):
                    # Numbers of earlier sweeps are negative: they wrap, as the counter does.
                    u = np.float64(np.int64(mix(stream + gamma * np.uint64(numbers[k])) >> np.uint64(11)))
                    spins[k] = 1.0 if u * (1.0 + exponential(-2.0 * h[k])) < SCALE else -1.0


@kernel
def _local_fields(d, width, at, slot, coupling, field, x, h):
    z = h.size
    for k in range(z):
        h[k] = field[k]
    done = 0
    while d - done >= 4:
        n0, n1, n2, n3 = slot[at:], slot[at + width :], slot[at + 2 * width :], slot[at + 3 * width :]
        t0, t1, t2, t3 = coupling[at:], coupling[at + width :], coupling[at + 2 * width :], coupling[at + 3 * width :]
        for k in range(z):
            h[k] += (t0[k] * x[np.uint32(n0[k])] + t1[k] * x[np.uint32(n1[k])]) + (
                t2[k] * x[np.uint32(n2[k])] + t3[k] * x[np.uint32(n3[k])]
            )
        at += 4 * width
        done += 4
    for e in range(done, d):
        ne, te = slot[at + (e - done) * width :], coupling[at + (e - done) * width :]
        for k in range(z):
            h[k] += te[k] * x[np.uint32(ne[k])]


@kernel
def potts_waves(sweeps, base, D, slot, strength, unary, number, lag, first, entry, key, gamma, x):
    """The same for a Potts model: strengths and unaries, (label, place), are exponentials; x holds labels by place."""
    k, L = unary.shape
    last = lag.max()
    weight = np.empty((k, BLOCK))
    draw = np.empty(BLOCK)
    label = np.empty(BLOCK, dtype=np.int64)
    for m in range(sweeps + last):
        stream = key + gamma * np.uint64(base + m * L)
        for b in range(first.size - 1):
            lo, hi, d = first[b], first[b + 1], b % D
            begin, end = _stretch(lag, lo, hi, m, sweeps)
            for c in range(begin, end, BLOCK):
                z = min(BLOCK, end - c)
                for a in range(k):
                    row, own = weight[a], unary[a, c : c + z]
                    for j in range(z):
                        row[j] = own[j]
                for e in range(d):
                    at = entry[b] + e * (hi - lo) + c - lo
                    for j in range(z):
                        weight[x[slot[at + j]], j] *= strength[at + j]
                for a in range(1, k):
                    row, before = weight[a], weight[a - 1]
                    for j in range(z):
                        row[j] += before[j]
                numbers, total = number[c : c + z], weight[k - 1]
                for j in range(z):
                    random = mix(stream + gamma * np.uint64(numbers[j])) >> np.uint64(11)
                    draw[j] = np.float64(np.int64(random)) * UNIT * total[j]
                    label[j] = 0
                for a in range(k - 1):
                    row = weight[a]
                    for j in range(z):
                        label[j] += row[j] <= draw[j]
                for j in range(z):
                    x[c + j] = label[j]
