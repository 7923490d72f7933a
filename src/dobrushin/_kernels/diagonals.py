"""One chain of an Ising model on a grid, diagonal by diagonal, several sweeps at once (theory page, "Waves").

A grid of R rows and C columns whose variables are updated row by row. The site in row r and column c has level r + c
within a sweep, and P = 2: the diagonals d - 2 s of all sweeps s that are under way commute. A diagonal is stored in one
piece, by row: row r of diagonal d at first[d] + r - low(d), with low(d) = max(0, d - C + 1) its lowest row. So the
neighbours of consecutive sites are consecutive: above and to the left on the diagonal before, at r - 1 and r; to the
right and below on the one after, at r and r + 1.

The sums and the comparison are those of `chain.ising_steps`: so are the draws.
"""

import numpy as np

from dobrushin._kernels.exponential import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

SCALE = 2.0**53
TOGETHER = 16  # sweeps that are under way at once: what they touch stays in the cache
ROWS = 8  # rows that are put into diagonals together: as many numbers as are next to each other there


@kernel
def is_grid(C, start, neighbor):
    """Whether these are the neighbours on a grid with C columns, in increasing order."""
    n = start.size - 1
    c = C - 1
    for i in range(n):
        e, c = start[i], c + 1 if c < C - 1 else 0  # a remainder would take most of the time
        if i >= C:
            if e == neighbor.size or neighbor[e] != i - C:
                return False
            e += 1
        if c > 0:
            if e == neighbor.size or neighbor[e] != i - 1:
                return False
            e += 1
        if c < C - 1:
            if e == neighbor.size or neighbor[e] != i + 1:
                return False
            e += 1
        if i + C < n:
            if e == neighbor.size or neighbor[e] != i + C:
                return False
            e += 1
        if e != start[i + 1]:
            return False
    return True


@kernel
def arrange_grid(C, first, start, theta, field, right, down, own):
    """Fill the couplings to the right and below, and the fields, by diagonals."""
    n = field.size
    R = n // C
    for top in range(0, R, ROWS):
        size = min(ROWS, R - top)
        for c0 in range(C + size - 1):
            d = top + c0
            at = first[d] - max(0, d - C + 1) + top
            if size == ROWS and ROWS <= c0 + 1 < C and (top + ROWS) * C < n:  # all have two more neighbours
                for k in range(ROWS):
                    i = (top + k) * C + c0 - k
                    last = start[i + 1] - 1
                    own[at + k] = field[i]
                    down[at + k] = theta[last]
                    right[at + k] = theta[last - 1]
                continue
            for k in range(max(0, c0 - C + 1), min(size, c0 + 1)):
                i = (top + k) * C + c0 - k
                last = start[i + 1] - 1
                below = i + C < n
                own[at + k] = field[i]
                down[at + k] = theta[last] if below else 0.0
                right[at + k] = theta[last - below] if c0 - k < C - 1 else 0.0


@kernel
def to_diagonals(C, first, states, x):
    """Spins -1.0 and +1.0 by diagonals from states 0 and 1 by position."""
    R = states.size // C
    for top in range(0, R, ROWS):
        size = min(ROWS, R - top)
        for c0 in range(C + size - 1):
            d = top + c0
            at = first[d] - max(0, d - C + 1) + top
            site = top * C + c0
            if size == ROWS and ROWS <= c0 + 1 <= C:  # a loop of known length
                for k in range(ROWS):
                    x[at + k] = 2.0 * states[site + k * (C - 1)] - 1.0
                continue
            for k in range(max(0, c0 - C + 1), min(size, c0 + 1)):
                x[at + k] = 2.0 * states[site + k * (C - 1)] - 1.0


@kernel
def from_diagonals(C, first, x, states):
    """The inverse."""
    R = states.size // C
    for top in range(0, R, ROWS):
        size = min(ROWS, R - top)
        for c0 in range(C + size - 1):
            d = top + c0
            at = first[d] - max(0, d - C + 1) + top
            site = top * C + c0
            if size == ROWS and ROWS <= c0 + 1 <= C:
                for k in range(ROWS):
                    states[site + k * (C - 1)] = x[at + k] > 0.0
                continue
            for k in range(max(0, c0 - C + 1), min(size, c0 + 1)):
                states[site + k * (C - 1)] = x[at + k] > 0.0


@kernel
def sweep_diagonals(sweeps, base, C, first, right, down, field, key, gamma, x):
    """All steps of `sweeps` sweeps; the first one is number `base` of the scan."""
    n, D = x.size, first.size - 1
    for done in range(0, sweeps, TOGETHER):
        S = min(TOGETHER, sweeps - done)
        for level in range(D + 2 * (S - 1)):
            for s in range(max(0, (level - D + 2) // 2), min(S - 1, level // 2) + 1):
                _diagonal(level - 2 * s, base + (done + s) * n, C, first, right, down, field, key, gamma, x)


@kernel
def _diagonal(d, number, C, first, right, down, field, key, gamma, x):
    """Update the sites of a diagonal; that in row r is step number + d + r (C - 1) of the scan."""
    R, n = (x.size) // C, x.size
    low, high = max(0, d - C + 1), min(R - 1, d)
    # Where row 0 would stand, on this diagonal and on its neighbours.
    at = first[d] - low
    before = first[d - 1] - max(0, d - C) if d > 0 else 0
    after = first[d + 1] - max(0, d - C + 2)
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
