"""One chain of an Ising model on a grid, diagonal by diagonal, several sweeps at once (theory page, "Waves").

A grid of R rows and C columns whose variables are updated row by row. The site in row r and column c has level r + c
within a sweep, and P = 2: the diagonals d - 2 s of all sweeps s that are under way commute. A diagonal is stored in one
piece, by row: row r of diagonal d at origin[d] + r, from row max(0, d - C + 1) on. So the neighbours of consecutive
sites are consecutive: above and to the left on the diagonal before, at r - 1 and r; to the right and below on the one
after, at r and r + 1.

The sums and the comparison are those of `chain.ising_steps`: so are the draws.
"""

import numpy as np

from dobrushin._kernels.exponential import exponential
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

SCALE = 2.0**53
TOGETHER = 16  # sweeps that are under way at once: what they touch stays in the cache
ROWS, WIDTH = 64, 256  # rows, and pieces of so many diagonals, that are put there together: they fit into a cache


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
