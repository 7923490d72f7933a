"""Levels of steps, and sweeps of one chain in waves of steps that commute.

Waves (theory page, "Waves") are for cycles of L steps in which every variable occurs once. Let level(v) be the level of
step v within the cycle, and P one more than the largest difference of levels along an edge. Ordering all steps (s, v)
of all sweeps s by level(v) + P s keeps every dependency: two neighbours are never at one level, and of two steps on
neighbours the earlier step has the lower level. So several sweeps run at once: in round m, class c = level mod P
updates the variables whose sweep m - lag lies between 0 and S - 1, where lag = level // P. Variables are stored by
class, number of neighbours and level, so that a round updates one stretch of memory in each bucket.

On a grid of R rows and C columns whose variables are updated row by row, waves are diagonals: the site in row r and
column c has level r + c within a sweep, and P = 2, so the diagonals d - 2 s of all running sweeps s commute. A diagonal
is stored in one piece, by row: row r of diagonal d at d min(R, C) + r. So the neighbours of consecutive sites are
consecutive: above and to the left on diagonal d - 1, at r - 1 and r; to the right and below on diagonal d + 1, at r and
r + 1.

Sums and comparisons, and so the draws, are the same as in `spins.ising_steps` and `labels.potts_chain`.
"""

import numpy as np

from dobrushin._kernels.elementary import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

SCALE = 2.0**53
UNIT = 2.0**-53
BLOCK = 256  # steps of a wave that are computed together
TOGETHER = 16  # sweeps of a grid that run at once: the memory that they touch stays in the cache


@kernel
def levels(order, start, neighbor, n):
    """Return the level of each step: the length of the longest chain of dependent steps that ends with it.

    Steps on equal or adjacent variables depend on each other.
    """
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


@kernel
def _stretch(lag, lo, hi, m, sweeps):
    """Return the range of the places lo to hi - 1 that are updated in round m.

    A place is updated in the rounds lag to lag + sweeps - 1; the places are sorted by lag.
    """
    if lo == hi or lag[lo] > m or lag[hi - 1] <= m - sweeps:
        return lo, lo
    begin = lo if lag[lo] > m - sweeps else lo + np.searchsorted(lag[lo:hi], m - sweeps + 1)
    end = hi if lag[hi - 1] <= m else lo + np.searchsorted(lag[lo:hi], m + 1)
    return begin, end


@kernel
def ising_waves(sweeps, base, own_field, D, slot, coupling, number, lag, first, entry, key, gamma, x):
    """Run `sweeps` cycles of an Ising model in waves; the first step has the number `base`.

    Spins are -1.0 and +1.0, stored by place in the wave order.
    """
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
                    # Numbers of earlier sweeps are negative, and wrap around as the counter does.
                    u = np.float64(np.int64(mix(stream + gamma * np.uint64(numbers[k])) >> np.uint64(11)))
                    spins[k] = 1.0 if u * (1.0 + exponential(-2.0 * h[k])) < SCALE else -1.0


@kernel
def _local_fields(d, width, at, slot, coupling, field, x, h):
    """Compute the local fields h of variables that are stored side by side and have d neighbours each."""
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
def potts_waves(sweeps, base, unary, D, slot, strength, number, lag, first, entry, key, gamma, x):
    """Run `sweeps` cycles of a Potts model in waves; the first step has the number `base`.

    `strength` and `unary` are exponentials of log-potentials; `unary` and x are stored by place in the wave order.
    """
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


@kernel
def arrange_grid(rows, columns, start, neighbor, theta, field, right, down, own):
    """Fill in the couplings to the right and below and the fields of a grid, in the order of diagonals.

    Return whether the model's neighbours are those of a grid, in increasing order.
    """
    width, e, is_grid = min(rows, columns), 0, True
    for r in range(rows):
        for c in range(columns):
            i, at = r * columns + c, (r + c) * width + r
            own[at] = field[i]
            is_grid &= start[i] == e
            if r > 0:
                is_grid &= neighbor[e] == i - columns
                e += 1
            if c > 0:
                is_grid &= neighbor[e] == i - 1
                e += 1
            if c < columns - 1:
                is_grid &= neighbor[e] == i + 1
                right[at] = theta[e]
                e += 1
            if r < rows - 1:
                is_grid &= neighbor[e] == i + columns
                down[at] = theta[e]
                e += 1
        if not is_grid:
            return False
    return True


@kernel
def sweep_diagonals(sweeps, base, rows, columns, right, down, field, key, gamma, x):
    """Run `sweeps` sweeps of a grid by diagonals; the first step has the number `base`."""
    n, D = rows * columns, rows + columns - 1
    for done in range(0, sweeps, TOGETHER):
        S = min(TOGETHER, sweeps - done)
        for level in range(D + 2 * (S - 1)):
            for s in range(max(0, (level - D + 2) // 2), min(S - 1, level // 2) + 1):
                _diagonal(level - 2 * s, base + (done + s) * n, rows, columns, right, down, field, key, gamma, x)


@kernel
def _diagonal(d, number, R, C, right, down, field, key, gamma, x):
    """Update the sites on diagonal d of a grid.

    The site in row r is step number + d + r (C - 1) of the scan, where C is the number of columns.
    """
    low, high = max(0, d - C + 1), min(R - 1, d)
    at = d * min(R, C)
    before, after = at - min(R, C), at + min(R, C)
    begin, end = max(1, d - C + 2), min(R - 1, d)  # rows whose sites have four neighbours
    if begin >= end:
        begin, end = high + 1, high + 1
    for r in range(low, begin):
        _site(r, d - r, number, R, C, at, before, after, right, down, field, key, gamma, x)
    m = end - begin
    if m > 0:
        own, own_field = x[at + begin : at + end], field[at + begin : at + end]
        x0, x1 = x[before + begin - 1 : before + end - 1], x[before + begin : before + end]
        x2, x3 = x[after + begin : after + end], x[after + begin + 1 : after + end + 1]
        t0, t1 = down[before + begin - 1 : before + end - 1], right[before + begin : before + end]
        t2, t3 = right[at + begin : at + end], down[at + begin : at + end]
        stream = key + gamma * np.uint64(number + d + begin * (C - 1))
        stride = gamma * np.uint64(C - 1)
        for k in range(m):
            h = own_field[k] + ((t0[k] * x0[k] + t1[k] * x1[k]) + (t2[k] * x2[k] + t3[k] * x3[k]))
            u = np.float64(np.int64(mix(stream + stride * np.uint64(k)) >> np.uint64(11)))
            own[k] = 1.0 if u * (1.0 + exponential(-2.0 * h)) < SCALE else -1.0
    for r in range(end, high + 1):
        _site(r, d - r, number, R, C, at, before, after, right, down, field, key, gamma, x)


@kernel
def _site(r, c, number, R, C, at, before, after, right, down, field, key, gamma, x):
    """Update a site on the border of the grid."""
    h = field[at + r]
    if r > 0:
        h += down[before + r - 1] * x[before + r - 1]
    if c > 0:
        h += right[before + r] * x[before + r]
    if c < C - 1:
        h += right[at + r] * x[after + r]
    if r < R - 1:
        h += down[at + r] * x[after + r + 1]
    u = np.float64(np.int64(mix(key + gamma * np.uint64(number + r * C + c)) >> np.uint64(11)))
    x[at + r] = 1.0 if u * (1.0 + exponential(-2.0 * h)) < SCALE else -1.0
