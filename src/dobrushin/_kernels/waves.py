"""Steps that do not depend on each other: their levels, and sweeps of one chain in waves of such steps.

Waves (theory page, "Waves") are for cycles of L steps in which every variable occurs once. With level(v) the level of
step v within the cycle, and P one more than the largest difference of levels along an edge, level(v) + P s is an order
of all steps (s, v) of all sweeps that keeps every dependency: two neighbours are never at one level, and of two steps
on neighbours the earlier one has the lower level. So several sweeps are under way at once: in round m, class c = level
mod P updates the variables whose sweep m - level // P (their lag) lies between 0 and S - 1. Variables are stored by
class, number of neighbours and level; what a round updates in one bucket is then one stretch of memory.

On a grid of R rows and C columns whose variables are updated row by row, the waves are diagonals: the site in row r and
column c has level r + c within a sweep, and P = 2, so the diagonals d - 2 s of all sweeps s that are under way commute.
A diagonal is stored in one piece, by row: row r of diagonal d at origin[d] + r, from row max(0, d - C + 1) on. So the
neighbours of consecutive sites are consecutive: above and to the left on the diagonal before, at r - 1 and r; to the
right and below on the one after, at r and r + 1.

The sums and the comparisons are those of `spins.ising_steps` and `labels.potts_chain`: so are the draws.
"""

import numpy as np

from dobrushin._kernels.elementary import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

SCALE = 2.0**53
UNIT = 2.0**-53
BLOCK = 256  # steps of a wave that are computed together
TOGETHER = 16  # sweeps that are under way at once: what they touch stays in the cache
ROWS, WIDTH = 64, 256  # rows and diagonals that are copied together: they fit into a cache


@kernel
def levels(order, start, neighbor, n):
    """Longest dependency path that ends at each step: steps on equal or adjacent variables do not commute."""
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
def reorder(order, start, neighbor, n, window):
    """A permutation of the steps that sorts each window by level: the same scan, since only steps that commute move.

    One chain then has several independent updates under way at once. Windows keep the memory that they touch small.
    """
    permutation = np.empty(order.size, dtype=np.int32)
    latest = np.full(n, -1, dtype=np.int32)
    level = np.empty(window, dtype=np.int32)
    first = np.empty(window + 1, dtype=np.int32)
    for lo in range(0, order.size, window):
        size = min(window, order.size - lo)
        first[:] = 0
        for t in range(size):
            i = order[lo + t]
            before = latest[i]
            for e in range(start[i], start[i + 1]):
                before = max(before, latest[neighbor[e]])
            latest[i] = before + 1
            level[t] = before + 1
            first[before + 2] += 1
        for t in range(size):
            latest[order[lo + t]] = -1
        for k in range(window):
            first[k + 1] += first[k]
        for t in range(size):
            permutation[lo + first[level[t]]] = lo + t
            first[level[t]] += 1
    return permutation


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
    """Return places of the variables, and the buckets of the rounds, in their order.

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
    """Run waves of a Potts model: strengths and unaries, (label, place), are exponentials; x holds labels by place."""
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
def is_grid(C, start, neighbor):
    """Whether these are the neighbours on a grid with C columns, in increasing order."""
    R = (start.size - 1) // C
    for r in range(R):
        is_inner = 0 < r < R - 1
        for c in range(0, C, C - 1 if is_inner else 1):
            if not _has_neighbors(r, c, R, C, start, neighbor):
                return False
        if not is_inner:
            continue
        i, m = r * C + 1, C - 2
        e = start[i]
        if start[i + m] != e + 4 * m:
            return False
        starts, near = start[i : i + m], neighbor[e : e + 4 * m]
        wrong = 0  # the bits of all differences, which are taken of many numbers at once
        for k in range(m):
            wrong |= (starts[k] - (e + 4 * k)) | (near[4 * k] - (i + k - C)) | (near[4 * k + 1] - (i + k - 1))
            wrong |= (near[4 * k + 2] - (i + k + 1)) | (near[4 * k + 3] - (i + k + C))
        if wrong != 0:
            return False
    return True


@kernel
def _has_neighbors(r, c, R, C, start, neighbor):
    """Whether a site has the neighbours that it should have."""
    i = r * C + c
    e, end = start[i], start[i + 1]
    if end - e != (r > 0) + (c > 0) + (c < C - 1) + (r < R - 1):
        return False
    if r > 0:
        if neighbor[e] != i - C:
            return False
        e += 1
    if c > 0:
        if neighbor[e] != i - 1:
            return False
        e += 1
    if c < C - 1:
        if neighbor[e] != i + 1:
            return False
        e += 1
    return r == R - 1 or neighbor[e] == i + C


@kernel
def arrange_grid(C, origin, start, theta, field, right, down, own):
    """Fill the couplings to the right and below, and the fields, by diagonals."""
    R = field.size // C
    for top in range(0, R, ROWS):
        for left in range(top, R + C, WIDTH):
            for r in range(top, min(top + ROWS, R)):
                below = 1 if r < R - 1 else 0
                degree = 2 + below + (1 if r > 0 else 0)
                entry = start[r * C] + degree * (1 - r) - 2  # + degree * d: that of the last neighbour
                for d in range(max(left, r), min(left + WIDTH, r + C)):
                    at = origin[d] + r
                    own[at] = field[r * (C - 1) + d]
                    right[at] = theta[entry + degree * d - below]
                    down[at] = theta[entry + degree * d]
    for d in range(R - 1, R + C - 1):  # the last row
        down[origin[d] + R - 1] = 0.0
    for r in range(R):  # the last column
        at = origin[r + C - 1] + r
        right[at] = 0.0
        if r < R - 1:
            down[at] = theta[start[(r + 1) * C] - 1]


@kernel
def to_diagonals(C, origin, states, x):
    """Spins -1.0 and +1.0 by diagonals from states 0 and 1 by position."""
    R = states.size // C
    for top in range(0, R, ROWS):
        for left in range(top, R + C, WIDTH):
            for r in range(top, min(top + ROWS, R)):
                for d in range(max(left, r), min(left + WIDTH, r + C)):
                    x[origin[d] + r] = 2.0 * states[r * (C - 1) + d] - 1.0


@kernel
def from_diagonals(C, origin, x, states):
    """The inverse."""
    R = states.size // C
    for top in range(0, R, ROWS):
        for left in range(top, R + C, WIDTH):
            for r in range(top, min(top + ROWS, R)):
                for d in range(max(left, r), min(left + WIDTH, r + C)):
                    states[r * (C - 1) + d] = x[origin[d] + r] > 0.0


@kernel
def sweep_diagonals(sweeps, base, C, origin, right, down, field, key, gamma, x):
    """All steps of `sweeps` sweeps; the first one is number `base` of the scan."""
    n, D = x.size, origin.size
    for done in range(0, sweeps, TOGETHER):
        S = min(TOGETHER, sweeps - done)
        for level in range(D + 2 * (S - 1)):
            for s in range(max(0, (level - D + 2) // 2), min(S - 1, level // 2) + 1):
                _diagonal(level - 2 * s, base + (done + s) * n, C, origin, right, down, field, key, gamma, x)


@kernel
def _diagonal(d, number, C, origin, right, down, field, key, gamma, x):
    """Update the sites of a diagonal; that in row r is step number + d + r (C - 1) of the scan."""
    R, n = (x.size) // C, x.size
    low, high = max(0, d - C + 1), min(R - 1, d)
    at = origin[d]
    before = origin[d - 1] if d > 0 else 0
    after = origin[d + 1] if d < origin.size - 1 else 0
    begin, end = max(1, d - C + 2), min(R - 1, d)  # rows whose sites have four neighbours
    if begin >= end:
        begin, end = high + 1, high + 1
    for r in range(low, begin):
        _site(r, d, number, C, n, at, before, after, right, down, field, key, gamma, x)
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
        _site(r, d, number, C, n, at, before, after, right, down, field, key, gamma, x)


@kernel
def _site(r, d, number, C, n, at, before, after, right, down, field, key, gamma, x):
    """Update a site on the border."""
    c = d - r
    h = field[at + r]
    if r > 0:
        h += down[before + r - 1] * x[before + r - 1]
    if c > 0:
        h += right[before + r] * x[before + r]
    if c < C - 1:
        h += right[at + r] * x[after + r]
    if (r + 1) * C < n:
        h += down[at + r] * x[after + r + 1]
    u = np.float64(np.int64(mix(key + gamma * np.uint64(number + d + r * (C - 1))) >> np.uint64(11)))
    x[at + r] = 1.0 if u * (1.0 + exponential(-2.0 * h)) < SCALE else -1.0
