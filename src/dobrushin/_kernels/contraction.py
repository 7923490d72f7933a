"""Sums of products of tables, for variable elimination, without storing the products. [trusted]

All tables lie in one array `store`. Table b has the variables scope[scope_start[b] : scope_start[b + 1]], in C order,
from offset[b] on. Step t makes the table made[t] from those at operand[operand_start[t] : operand_start[t + 1]]:

    made[kept] = sum over the other variables of the product of the operands.

`layout` arranges the loops of a step: `_tile` runs the two inner axes (the tile), and a counter of digits all others.
The last functions do the same for maxima in place of sums, and for numbers with a separate exponent: a pair (m, e)
stands for m 2**e with m in [1/2, 1), or m = 0, and never underflows.
"""

import math

import numpy as np

from dobrushin._shared.compile import kernel

# Columns of a layout: length of the axis, stride in the table that is made (0: summed), strides in the operands.
LENGTH, MADE = 0, 1
# The longest run of axes that is treated as one: such a run of the table that is made stays in the cache.
_RUN = 1024
# Shortest run, and largest number of terms of its sums, for which all terms are added before the run is written
# (benchmarks/exact.py roofline).
_LEAST_RUN, _MOST_TERMS = 16, 4096
# Entries of a step of shorter runs from which on places are listed.
_MANY_ENTRIES = 16 * _RUN


@kernel
def layout(t, sizes, scope_start, scope, made, operand_start, operand, place):
    """Return the axes of a step, one row each, and the number of kept axes outside the inner tile.

    Kept axes come first, then summed axes; the last two rows are the inner tile. Neighbouring axes that are adjacent in
    every table that has them are joined to one axis. `place` is scratch space, with -1 everywhere.
    """
    first, count, out = operand_start[t], operand_start[t + 1] - operand_start[t], made[t]
    most = scope_start[out + 1] - scope_start[out]
    for k in range(first, first + count):
        most += scope_start[operand[k] + 1] - scope_start[operand[k]]
    axes = np.zeros((most + 2, count + 2), dtype=np.int64)
    n = n_kept = np.int64(0)
    for column in range(MADE, count + 2):
        b = out if column == MADE else operand[first + column - 2]
        for s in range(scope_start[b], scope_start[b + 1]):
            if place[scope[s]] < 0:
                place[scope[s]] = n
                axes[n, LENGTH] = sizes[scope[s]]
                n += 1
        stride = 1
        for s in range(scope_start[b + 1] - 1, scope_start[b] - 1, -1):
            axes[place[scope[s]], column] = stride
            stride *= sizes[scope[s]]
        if column == MADE:
            n_kept = n
    for column in range(MADE, count + 2):
        b = out if column == MADE else operand[first + column - 2]
        for s in range(scope_start[b], scope_start[b + 1]):
            place[scope[s]] = -1
    _sort_summed(axes, n_kept, n)
    rows, kept = _fuse(axes, n_kept, n)
    return _choose_tile(axes, rows, kept)


@kernel
def _sort_summed(axes, first, last):
    """Sort the summed axes by their largest stride in any operand, in decreasing order."""
    columns = axes.shape[1]
    for i in range(first + 1, last):
        for j in range(i, first, -1):
            here = there = 0
            for c in range(2, columns):
                here = max(here, axes[j, c])
                there = max(there, axes[j - 1, c])
            if here <= there:
                break
            for c in range(columns):
                axes[j, c], axes[j - 1, c] = axes[j - 1, c], axes[j, c]


@kernel
def _fuse(axes, kept, n):
    """Join neighbouring axes where all strides allow it; return the numbers of remaining axes and of kept ones.

    Axes are joined from the last one on, so that the remainder of a long run is its outer part. The remaining rows move
    to the beginning.
    """
    columns = axes.shape[1]
    row, rows_summed = n, 0
    for i in range(n - 1, -1, -1):
        joined = row < n and i != kept - 1 and axes[row, LENGTH] * axes[i, LENGTH] <= _RUN
        if joined:
            for c in range(1, columns):
                if axes[i, c] != axes[row, c] * axes[row, LENGTH]:
                    joined = False
        if joined:
            axes[row, LENGTH] *= axes[i, LENGTH]
        else:
            row -= 1
            for c in range(columns):
                axes[row, c] = axes[i, c]
        if i >= kept:
            rows_summed = n - row
    for i in range(row, n):
        for c in range(columns):
            axes[i - row, c] = axes[i, c]
    return n - row, n - row - rows_summed


@kernel
def _choose_tile(axes, rows, kept):
    """Choose the two axes of the inner tile and move them to the end; axes of length 1 fill up missing ones."""
    columns, terms = axes.shape[1], 1
    for i in range(kept, rows):
        terms *= axes[i, LENGTH]
    picked = np.full(2, -1, dtype=np.int64)
    for turn in range(2):
        best = -1.0
        for i in range(rows):
            if i == picked[0]:
                continue
            widest = axes[i, MADE] // terms  # the table that is made is written once for all terms of its sums
            for c in range(2, columns):
                widest = max(widest, axes[i, c])
            # Consecutive entries are best; a stride that touches another cache line with every entry is useless.
            cost = 1.0 if widest <= 1 else 1.0 + widest / 8.0 if widest <= 32 else 64.0
            score = min(float(axes[i, LENGTH]), 64.0) / cost * (1.0 if i < kept else 0.7)
            if score > best:
                best, picked[turn] = score, i
    result = np.zeros((max(rows, 2), columns), dtype=np.int64)
    outer, outer_kept = 0, 0
    for i in range(rows):
        row = len(result) - 1 if i == picked[0] else len(result) - 2 if i == picked[1] else outer
        for c in range(columns):
            result[row, c] = axes[i, c]
        if row == outer and i != picked[0] and i != picked[1]:
            outer += 1
            outer_kept += i < kept
    for row in range(len(result)):
        result[row, LENGTH] = max(1, result[row, LENGTH])
    return result, outer_kept


@kernel
def add_products(axes, begin, end, store, start, out):
    """Add products of table entries to `out`, for the combinations begin to end - 1 of the axes outside the tile."""
    count, outer = axes.shape[1] - 2, axes[:-2]
    digit, base = np.zeros(len(outer), dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    _begin(outer, begin, start, digit, base)
    # Operands by the axes that change them: neither axis of the tile, the outer one alone, or the inner one.
    kinds, sizes = np.zeros((3, count), dtype=np.int64), np.zeros(3, dtype=np.int64)
    for k in range(count):
        kind = 2 if axes[-1, 2 + k] else 1 if axes[-2, 2 + k] else 0
        kinds[kind, sizes[kind]] = k
        sizes[kind] += 1
    terms = 1
    for a in range(len(axes) - 1):
        if axes[a, MADE] == 0:
            terms *= axes[a, LENGTH]
    is_long = axes[-1, MADE] > 0 and axes[-1, LENGTH] >= _LEAST_RUN
    if is_long and 2 <= terms <= _MOST_TERMS and 1 <= sizes[2] <= 2:
        _add_strips(axes, begin, end, store, start, out, kinds, sizes, terms)
        return
    if axes[-1, LENGTH] < _LEAST_RUN and (end - begin) * axes[-1, LENGTH] * axes[-2, LENGTH] >= _MANY_ENTRIES:
        _add_by_places(axes, begin, end, store, start, out)
        return
    for _ in range(begin, end):
        factor = 1.0
        for k in range(sizes[0]):
            factor *= store[base[kinds[0, k]]]
        if factor > 0.0:
            _tile(axes, store, out, base, factor, kinds, sizes)
        _advance(outer, digit, base)


@kernel
def _begin(axes, begin, start, digit, base):
    """Compute the digits of combination number `begin` of the axes, and its place in each table."""
    rest = begin
    for a in range(len(axes) - 1, -1, -1):
        digit[a] = rest % axes[a, LENGTH]
        rest //= axes[a, LENGTH]
    for k in range(len(start)):
        base[k] = start[k]
    base[-1] = 0
    for a in range(len(axes)):
        for k in range(len(base)):
            base[k - 1] += digit[a] * axes[a, MADE + k]


@kernel
def _advance(axes, digit, base):
    """Advance the digits to the next combination, and its place in each table with them."""
    for a in range(len(axes) - 1, -1, -1):
        digit[a] += 1
        is_next = digit[a] < axes[a, LENGTH]
        steps = 1 if is_next else 1 - axes[a, LENGTH]
        for k in range(len(base)):
            base[k - 1] += steps * axes[a, MADE + k]
        if is_next:
            return
        digit[a] = 0


@kernel
def _tile(axes, store, out, base, factor, kinds, sizes):
    """Add the products along the two axes of the inner tile.

    Places are unsigned integers, because Numba does not check these for negative indices.
    """
    n, o = np.uint64(axes[-1, LENGTH]), np.uint64(base[-1])
    so, to = np.uint64(axes[-1, MADE]), np.uint64(axes[-2, MADE])
    k, other = kinds[2, 0], kinds[2, min(1, kinds.shape[1] - 1)]
    a, sa, ta = np.uint64(base[k]), np.uint64(axes[-1, 2 + k]), np.uint64(axes[-2, 2 + k])
    b, sb, tb = np.uint64(base[other]), np.uint64(axes[-1, 2 + other]), np.uint64(axes[-2, 2 + other])
    for j in range(axes[-2, LENGTH]):
        share = factor
        for m in range(sizes[1]):
            share *= store[base[kinds[1, m]] + j * axes[-2, 2 + kinds[1, m]]]
        if share > 0.0:
            if sizes[2] == 1:
                _run_one(store, out, n, share, o, so, a, sa)
            elif sizes[2] == 2:
                _run_two(store, out, n, share, o, so, a, sa, b, sb)
            else:
                _run_many(axes, store, out, base, j, share, kinds[2], sizes[2])
        o += to
        a += ta
        b += tb


@kernel
def _add_strips(axes, begin, end, store, start, out, kinds, sizes, terms):
    """Add the products as `add_products` does, run by run: all terms of a run are summed before it is written.

    A run belongs to a combination of the kept axes but the last one. The terms of its sum are added in the same order
    as by `_tile`, so that the result is the same. `terms` is their number.
    """
    count, outer, n = axes.shape[1] - 2, axes[:-2], np.uint64(axes[-1, LENGTH])
    one, two = np.uint64(1), np.uint64(2)
    split = len(outer)
    while split > 0 and outer[split - 1, MADE] == 0:
        split -= 1
    # If the outer axis of the tile is summed, it is the last of the summed axes.
    repeats = 1 if axes[-2, MADE] > 0 else axes[-2, LENGTH]
    rows, inner = axes[-2, LENGTH] // repeats, terms // repeats
    digit, base = np.zeros(len(outer), dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    # Where the operands of each term begin, counted from those of the first term.
    shift = np.empty((terms, count), dtype=np.int64)
    for t in range(terms):
        for k in range(count):
            shift[t, k] = base[k] + t % repeats * axes[-2, 2 + k]
        if t % repeats == repeats - 1:
            _advance(outer[split:], digit[split:], base)
    _begin(outer[:split], begin // inner, start, digit, base)
    so, k, other = np.uint64(axes[-1, MADE]), kinds[2, 0], kinds[2, min(1, count - 1)]
    sa, sb = np.uint64(axes[-1, 2 + k]), np.uint64(axes[-1, 2 + other])
    # Two rows side by side, as of a binary variable, are written together.
    at_once = np.uint64(2 if rows == 2 and axes[-2, MADE] == 1 and axes[-1, MADE] == 2 else 1)
    sums, share = np.empty(at_once * n), np.empty(2)
    while begin < end:
        first = begin % inner
        last = min(inner, first + end - begin)
        for j in range(rows):
            row = np.uint64(j) % at_once
            o, t, some = row * n, first * repeats, 0
            while t < last * repeats:
                some = 2 if sizes[2] == 1 and t + 1 < last * repeats else 1
                share[1] = 0.0  # an odd last term is followed by 0 times itself
                for u in range(some):
                    share[u] = 1.0
                    for kind in range(2):
                        for m in range(sizes[kind]):
                            v = kinds[kind, m]
                            share[u] *= store[base[v] + shift[t + u, v] + j * axes[-2, 2 + v]]
                x, y = share[0], share[1]
                a = np.uint64(base[k] + shift[t, k] + j * axes[-2, 2 + k])
                b = np.uint64(base[k] + shift[t + some - 1, k] + j * axes[-2, 2 + k])
                is_first = t == first * repeats
                if is_first and sizes[2] == 1:
                    for i in range(n):
                        sums[o + i] = x * store[a + i * sa] + y * store[b + i * sa]
                elif sizes[2] == 1:
                    for i in range(n):
                        sums[o + i] = (sums[o + i] + x * store[a + i * sa]) + y * store[b + i * sa]
                else:
                    b = np.uint64(base[other] + shift[t, other] + j * axes[-2, 2 + other])
                    for i in range(n):
                        sums[o + i] = (0.0 if is_first else sums[o + i]) + x * store[a + i * sa] * store[b + i * sb]
                t += some
            if row + one < at_once:
                continue
            o = np.uint64(base[-1] + j // np.int64(at_once) * axes[-2, MADE])
            if last - first < inner:
                for i in range(n):
                    for r in range(at_once):
                        out[o + i * so + r] += sums[r * n + i]
            elif at_once == two:
                for i in range(n):
                    out[o + two * i] = sums[i]
                    out[o + two * i + one] = sums[n + i]
            else:
                for i in range(n):
                    out[o + i * so] = sums[i]
        begin += last - first
        _advance(outer[:split], digit, base)


@kernel
def _add_by_places(axes, begin, end, store, start, out):
    """Add the products as `add_products` does where all runs are short: by a list of places for some of the axes."""
    count, split, size = axes.shape[1] - 2, len(axes) - 2, axes[-1, LENGTH] * axes[-2, LENGTH]
    tile = size
    while split > 0 and size * axes[split - 1, LENGTH] <= _RUN:
        split -= 1
        size *= axes[split, LENGTH]
    inner, digit, base = size // tile, np.zeros(len(axes), dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    places = np.empty((count + 1, size), dtype=np.uint64)
    for e in range(size):
        for k in range(count + 1):
            places[k, e] = base[k]
        _advance(axes[split:], digit, base)
    _begin(axes[:split], begin // inner, start, digit, base)
    while begin < end:
        first = begin % inner
        last = min(inner, first + end - begin)
        o, a, b = np.uint64(base[-1]), np.uint64(base[0]), np.uint64(base[min(1, count - 1)])
        if count == 2:
            for e in range(first * tile, last * tile):
                out[o + places[2, e]] += store[a + places[0, e]] * store[b + places[1, e]]
        else:
            for e in range(first * tile, last * tile):
                term = 1.0
                for k in range(count):
                    term *= store[np.uint64(base[k]) + places[k, e]]
                out[o + places[count, e]] += term
        begin += last - first
        _advance(axes[:split], digit, base)


@kernel
def _run_one(store, out, n, factor, o, so, a, sa):
    zero = np.uint64(0)
    if so == zero:
        total = 0.0
        for i in range(n):
            total += store[a + i * sa]
        out[o] += factor * total
    else:
        for i in range(n):
            out[o + i * so] += factor * store[a + i * sa]


@kernel
def _run_two(store, out, n, factor, o, so, a, sa, b, sb):
    zero = np.uint64(0)
    if so == zero:
        total = 0.0
        for i in range(n):
            total += store[a + i * sa] * store[b + i * sb]
        out[o] += factor * total
    else:
        for i in range(n):
            out[o + i * so] += factor * store[a + i * sa] * store[b + i * sb]


@kernel
def _run_many(axes, store, out, base, j, factor, operands, count):
    """Add the products along the inner axis for more than two operands that change along it."""
    for i in range(axes[-1, LENGTH]):
        term = factor
        for v in range(count):
            k = operands[v]
            term *= store[base[k] + j * axes[-2, 2 + k] + i * axes[-1, 2 + k]]
        out[base[-1] + j * axes[-2, MADE] + i * axes[-1, MADE]] += term


@kernel
def extremes(table):
    """Return the largest entry, and the smallest positive one (infinite if all are 0); bits have the same order."""
    bits = table.view(np.uint64)
    most, least = np.uint64(0), ~np.uint64(0)  # the least of all bits less 1, by which 0 becomes the largest number
    for i in range(len(bits)):
        most = max(most, bits[i])
        least = min(least, bits[i] - np.uint64(1))
    smallest = np.uint64(least + np.uint64(1)).view(np.float64) if least != ~np.uint64(0) else np.inf
    return np.uint64(most).view(np.float64), smallest


@kernel
def rescale(table, exponent):
    """Divide a table by a power of 2, in two steps because the power itself may be too large for a float."""
    half = -exponent // 2
    first, second = math.ldexp(1.0, half), math.ldexp(1.0, -exponent - half)
    for i in range(len(table)):
        table[i] = table[i] * first * second


@kernel
def account(t, terms, most, smallest, loss, made, operand_start, operand, exponent, units, absolute, least):
    """Record bounds on the error of the table that step t computed (theory page, "Rounding of exact answers").

    A stored entry is the true one divided by 2**exponent, up to `units` relative rounding errors and an absolute error
    of `absolute`; entries other than 0 are at least 2**least. `most` and `smallest` are the extremes of the table
    before it is divided by the power of 2 that brings its largest entry into [1/2, 1); returns the exponent of that
    power. `loss` is what a product of numbers below 1 can lose where it underflows.
    """
    shift = math.frexp(most)[1]
    out = made[t]
    count = operand_start[t + 1] - operand_start[t]
    lowest, total, off, power = 0.0, 0.0, 0.0, 0
    for k in range(operand_start[t], operand_start[t + 1]):
        b = operand[k]
        lowest += least[b]
        total += units[b]
        off += math.log1p(2.0 * absolute[b])
        power += exponent[b]
    error = math.expm1(off) * 1.001
    if lowest - max(0, shift) < -1000.0:
        error += count * loss
    exponent[out] = power + shift
    units[out] = total + count + 2.0 * terms
    absolute[out] = terms * error * 1.001 * math.ldexp(1.0, -shift) if error > 0.0 else 0.0
    least[out] = math.frexp(smallest)[1] - 1 - shift if smallest < np.inf else 0
    return shift


@kernel
def run_steps(
    first, last, sizes, scope_start, scope, offset, made, operand_start, operand, store, place, loss,
    exponent, units, absolute, least,
):  # fmt: skip
    """Run steps first to last - 1; return the first one whose table has zeros only, or `last`."""
    for t in range(first, last):
        axes, _ = layout(t, sizes, scope_start, scope, made, operand_start, operand, place)
        # Typed, or the kernels below are compiled once more for these constants.
        begin, entries, terms = np.int64(0), np.int64(1), 1.0
        for a in range(len(axes)):
            if axes[a, MADE] == 0:
                terms *= axes[a, LENGTH]
            if a < len(axes) - 2:
                entries *= axes[a, LENGTH]
        size = 1
        for k in range(scope_start[made[t]], scope_start[made[t] + 1]):
            size *= sizes[scope[k]]
        table = store[offset[made[t]] : offset[made[t]] + size]
        for i in range(size):
            table[i] = 0.0
        start = np.empty(operand_start[t + 1] - operand_start[t], dtype=np.int64)
        for k in range(len(start)):
            start[k] = offset[operand[operand_start[t] + k]]
        add_products(axes, begin, entries, store, start, table)
        most, smallest = extremes(table)
        shift = account(t, terms, most, smallest, loss, made, operand_start, operand, exponent, units, absolute, least)
        if shift != 0:
            rescale(table, shift)
        if most == 0.0:
            return t
    return last


@kernel
def add_wide_products(axes, begin, end, store, powers, start, out, out_powers):
    """Add products to a table of numbers with separate exponents, for the combinations begin to end - 1 of all axes."""
    digit = np.zeros(len(axes), dtype=np.int64)
    base = np.zeros(len(start) + 1, dtype=np.int64)
    _begin(axes, begin, start, digit, base)
    for _ in range(begin, end):
        number, power = 1.0, 0
        for k in range(len(start)):
            number *= store[base[k]]
            power += powers[base[k]]
        if number > 0.0:
            o = base[-1]
            ahead = power - out_powers[o]
            if out[o] == 0.0:
                out[o], out_powers[o] = number, power
            elif ahead > 0:
                out[o] = number + (math.ldexp(out[o], -ahead) if ahead < 2000 else 0.0)
                out_powers[o] = power
            elif ahead > -2000:
                out[o] += math.ldexp(number, ahead)
        _advance(axes, digit, base)


@kernel
def take_maxima(axes, begin, end, store, start, out):
    """Compute maxima over the summed axes of sums of logarithms, and raise the entries of `out` to them.

    The combinations begin to end - 1 of all axes are visited.
    """
    digit = np.zeros(len(axes), dtype=np.int64)
    base = np.zeros(len(start) + 1, dtype=np.int64)
    _begin(axes, begin, start, digit, base)
    for _ in range(begin, end):
        total = 0.0
        for k in range(len(start)):
            total += store[base[k]]
        out[base[-1]] = max(out[base[-1]], total)
        _advance(axes, digit, base)
