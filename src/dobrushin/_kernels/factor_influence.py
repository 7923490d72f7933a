"""Influence bounds from tables of factors, row by row (theory page, "Range of the factors" and what follows it).

Every function rounds towards larger influence. A row of the influence matrix is about one variable, and its entries are
about the neighbours of that variable. Factor f of a row contains the neighbours m_of (places in the row's list of
neighbours) with the strides m_stride, both at m_start[f] : m_start[f + 1]. The factors that contain the neighbour of
entry e, and its places in them, are by_factor and by_member at by_start[e] : by_start[e + 1]. A loop that can pause
stops after `allowance` operations, and `at` counts what it has finished.
"""

import numpy as np

from dobrushin._kernels.gap import COST, ENUMERATED, U, gap
from dobrushin._shared.compile import kernel

# Entries of `state` in `factor_ranges` and `coarse_ranges`: the sum of the row's ranges, the largest range of the
# present entry; for coarse ranges also the sizes of potentials, of all factors and of the present one, and whether any
# two values differ.
SUM, RANGE, SIZE, FACTOR_SIZE, DIFFERS = 0, 1, 2, 3, 4
# Rows of `values`, which have a number for each value y of the neighbour: the largest and the smallest difference from
# another value or from the centre in the present configuration; their range in the present factor, and summed over the
# factors so far; the largest potential of the factor, and summed over the factors so far.
LARGEST, SMALLEST, FACTOR, TOTAL, FACTOR_LARGEST, TOTAL_LARGEST = 0, 1, 2, 3, 4, 5
VALUES = 6
# Entries of `state` in `enumerated_rows`: the largest sum of absolute potentials, whether one overflows, whether a law
# is undefined, and the largest distance of two laws.
MAGNITUDE, OVERFLOW, UNDEFINED, WORST = 0, 1, 2, 3
STATE = 5


@kernel
def factor_ranges(at, allowance, rows, k_own, out_start, k_other, m_start, m_of, m_stride, f_own_stride, base, table, by_start, by_member, by_factor, cells, values, state, C_bar, cap):  # fmt: skip  # noqa: E501
    """Bound the influence by tanh(D / 4), with D the largest sum of the factors' double differences over two values.

    The values are those of the neighbour. `at` counts finished [rows, entries of the present row, values x of the
    present neighbour, its potentials, configurations of the other variables of its factors]. `cells` is scratch space
    for an entry's potentials.
    """
    spent = 0
    while at[0] < rows.size and spent < allowance:
        r = rows[at[0]]
        lo, hi = out_start[r], out_start[r + 1]
        while at[1] < hi - lo:
            e = lo + at[1]
            if at[2] == 0:
                at[3], at[4] = _copy(k_own[r], lo, e, k_other, m_start, m_of, m_stride, f_own_stride, base, table, by_start, by_member, by_factor, cells)  # fmt: skip  # noqa: E501
                at[2] = 1
                state[RANGE] = 0.0
                if at[1] == 0:
                    state[SUM] = 0.0
                spent += 4 * at[3] + 64 * at[4]
            factors = by_start[e + 1] - by_start[e]
            while at[2] < k_other[e]:
                x = at[2]
                _double_differences(x, k_own[r], lo, e, k_other, m_start, m_of, by_start, by_member, by_factor, cells, values)  # fmt: skip  # noqa: E501
                for y in range(x):
                    if values[TOTAL, y] >= 0.0:
                        D = values[TOTAL, y] + 8.0 * (factors + 2) * U * values[TOTAL_LARGEST, y]
                        state[RANGE] = max(state[RANGE], D)
                spent += at[3] * x // k_other[e] + 64 * at[4]
                at[2] += 1
                if spent >= allowance:
                    return
            C_bar[e] = gap(state[RANGE], 0.0)
            state[SUM] += state[RANGE]
            spent += COST
            at[1] += 1
            at[2] = 0
            if spent >= allowance and at[1] < hi - lo:
                return
        cap[r] = 0.0 if lo == hi else gap(state[SUM] * (1.0 + (hi - lo) * 2.0 * U), 0.0)
        spent += COST
        at[0] += 1
        at[1] = 0


@kernel
def _others(lo, k_other, m_lo, m_hi, m_of, q):
    """Return the number of joint states of a factor's variables without the row's variable and member q."""
    others = 1
    for p in range(m_lo, m_hi):
        if p != q:
            others *= k_other[lo + m_of[p]]
    return others


@kernel
def _copy(k, lo, e, k_other, m_start, m_of, m_stride, f_own_stride, base, table, by_start, by_member, by_factor, cells):
    """Copy the factors of an entry one after the other, each with the axes [other members, own state, neighbour].

    Return the numbers of potentials and of joint states of the other members.
    """
    size, steps = 0, 0
    for place in range(by_start[e], by_start[e + 1]):
        f, q = by_factor[place], by_member[place]
        m_lo, m_hi = m_start[f], m_start[f + 1]
        digits, cell = _digits(0, lo, k_other, m_lo, m_hi, m_of, q), base[f]
        for _ in range(_others(lo, k_other, m_lo, m_hi, m_of, q)):
            for a in range(k):
                for x in range(k_other[e]):
                    cells[size] = table[cell + a * f_own_stride[f] + x * m_stride[q]]
                    size += 1
            cell = _next(cell, digits, lo, k_other, m_lo, m_hi, m_of, m_stride, q)
            steps += 1
    return size, steps


@kernel
def _double_differences(x, k, lo, e, k_other, m_start, m_of, by_start, by_member, by_factor, cells, values):
    """Compute, for each value y < x of the neighbour, the sum of the factors' double differences between x and y.

    The double difference of a factor is the largest (theta_a,x - theta_a,y) - (theta_b,x - theta_b,y) over own states a
    and b and the other variables of the factor; infinite if only one of x and y forbids some state. The sums are in
    values[TOTAL], with -1 if x and y certainly have the same effect on this variable. values[TOTAL_LARGEST] sums the
    largest potentials.
    """
    largest, smallest, potential = values[LARGEST], values[SMALLEST], values[FACTOR_LARGEST]
    values[TOTAL, :x] = -1.0
    values[TOTAL_LARGEST, :x] = 0.0
    width, begin = k_other[e], 0
    for place in range(by_start[e], by_start[e + 1]):
        f = by_factor[place]
        values[FACTOR, :x] = -1.0
        potential[:x] = 0.0
        largest_own = 0.0
        for _ in range(_others(lo, k_other, m_start[f], m_start[f + 1], m_of, by_member[place])):
            for y in range(x):
                largest[y] = -np.inf
                smallest[y] = np.inf
            for _a in range(k):
                row, theta = cells[begin : begin + x], cells[begin + x]
                if theta == -np.inf:
                    for y in range(x):
                        if row[y] > -np.inf:
                            largest[y] = np.inf
                else:
                    largest_own = max(largest_own, abs(theta))
                    # Infinite where y forbids a. No branches: large tables spend their time in this loop.
                    for y in range(x):
                        difference, size = theta - row[y], abs(row[y])
                        largest[y] = difference if difference > largest[y] else largest[y]
                        smallest[y] = difference if difference < smallest[y] else smallest[y]
                        potential[y] = size if size > potential[y] else potential[y]
                begin += width
            for y in range(x):
                if largest[y] == np.inf:
                    values[FACTOR, y] = np.inf
                elif largest[y] > -np.inf and (largest[y] != 0.0 or smallest[y] != 0.0):
                    # A range that is 0 only after rounding is not 0.
                    values[FACTOR, y] = max(values[FACTOR, y], largest[y] - smallest[y])
        for y in range(x):
            if values[FACTOR, y] >= 0.0:
                values[TOTAL, y] = max(0.0, values[TOTAL, y]) + values[FACTOR, y]
                values[TOTAL_LARGEST, y] += max(largest_own, potential[y])


@kernel
def _digits(c, lo, k_other, m_lo, m_hi, m_of, q):
    """Return the state of each of a factor's members in joint state number c, without member q."""
    digits = np.zeros(m_hi - m_lo, dtype=np.int64)
    for p in range(m_lo, m_hi):
        if p != q:
            digits[p - m_lo] = c % k_other[lo + m_of[p]]
            c //= k_other[lo + m_of[p]]
    return digits


@kernel
def _offset(digits, m_lo, m_stride):
    """Return where the entry for a joint state of a factor's members is in its table."""
    cell = 0
    for p in range(digits.size):
        cell += digits[p] * m_stride[m_lo + p]
    return cell


@kernel
def _next(cell, digits, lo, k_other, m_lo, m_hi, m_of, m_stride, q):
    """Advance the digits to the next joint state of a factor's members, and return the place of its table entry."""
    for p in range(m_lo, m_hi):
        if p != q:
            digits[p - m_lo] += 1
            cell += m_stride[p]
            if digits[p - m_lo] < k_other[lo + m_of[p]]:
                break
            cell -= digits[p - m_lo] * m_stride[p]
            digits[p - m_lo] = 0
    return cell


@kernel
def coarse_ranges(at, allowance, rows, k_own, unary_start, unary, out_start, k_other, m_start, m_of, m_stride, f_own_stride, base, table, by_start, by_member, by_factor, values, state, C_bar, cap):  # fmt: skip  # noqa: E501
    """Bound the influence like `factor_ranges`, with a number at most twice as large as D, in linear time.

    The time is linear in the size of the tables. The number is the sum of two distances of the neighbour's values from
    their mean. States that the unary forbids are left out. `at` counts finished [rows, entries of the present row,
    factors of the present entry, own states of the present factor in each configuration of its other members].
    """
    spent = 0
    while at[0] < rows.size and spent < allowance:
        r = rows[at[0]]
        lo, hi = out_start[r], out_start[r + 1]
        if at[1] == 0 and at[2] == 0 and at[3] == 0:
            state[SUM] = 0.0
        while at[1] < hi - lo:
            e = lo + at[1]
            if at[2] == 0 and at[3] == 0:
                state[SIZE] = 0.0
                state[DIFFERS] = 0.0
                values[TOTAL, : k_other[e]] = 0.0
            while at[2] < by_start[e + 1] - by_start[e]:
                f, q = by_factor[by_start[e] + at[2]], by_member[by_start[e] + at[2]]
                m_lo, m_hi = m_start[f], m_start[f + 1]
                if at[3] == 0:
                    state[FACTOR_SIZE] = 0.0
                    values[FACTOR, : k_other[e]] = 0.0
                digits = _digits(at[3] // k_own[r], lo, k_other, m_lo, m_hi, m_of, q)
                cell = base[f] + _offset(digits, m_lo, m_stride)
                last = _others(lo, k_other, m_lo, m_hi, m_of, q) * k_own[r]
                for i in range(at[3], last):
                    a = i % k_own[r]
                    if a == 0:
                        values[LARGEST, : k_other[e]] = -np.inf
                        values[SMALLEST, : k_other[e]] = np.inf
                    if unary[unary_start[r] + a] > -np.inf:
                        _from_centre(cell + a * f_own_stride[f], m_stride[q], k_other[e], table, values, state)
                    if a == k_own[r] - 1:
                        _farthest(k_other[e], values)
                        cell = _next(cell, digits, lo, k_other, m_lo, m_hi, m_of, m_stride, q)
                    spent += 6 * k_other[e] + 96
                    if spent >= allowance and i + 1 < last:
                        at[3] = i + 1
                        return
                state[SIZE] += state[FACTOR_SIZE]
                for x in range(k_other[e]):
                    values[TOTAL, x] += values[FACTOR, x]
                at[2] += 1
                at[3] = 0
            factors = by_start[e + 1] - by_start[e]
            D = _diameter(k_other[e], values) + 32.0 * (factors + 2) * U * state[SIZE] if state[DIFFERS] > 0.0 else 0.0
            C_bar[e] = gap(D, 0.0)
            state[SUM] += D
            spent += COST + k_other[e]
            at[1] += 1
            at[2] = 0
        cap[r] = gap(state[SUM] * (1.0 + (hi - lo) * 2.0 * U), 0.0)
        spent += COST
        at[0] += 1
        at[1] = 0


@kernel
def _from_centre(cell, stride, k_other, table, values, state):
    """Update the range of each neighbour value's differences from the mean over all values.

    The potentials are those of one own state and one joint state of the other members.
    """
    mean, forbidden = 0.0, 0
    first = table[cell]
    for x in range(k_other):
        theta = table[cell + x * stride]
        if theta == -np.inf:
            forbidden += 1
        else:
            mean += theta / k_other
            state[FACTOR_SIZE] = max(state[FACTOR_SIZE], abs(theta))
        if theta != first:
            state[DIFFERS] = 1.0
    if forbidden == k_other:
        return
    for x in range(k_other):
        # Infinite where only some values forbid the label; the mean of the largest numbers may overflow.
        difference = table[cell + x * stride] - mean if forbidden == 0 and abs(mean) < np.inf else np.inf
        values[LARGEST, x] = max(values[LARGEST, x], difference)
        values[SMALLEST, x] = min(values[SMALLEST, x], difference)


@kernel
def _farthest(k_other, values):
    """Update each neighbour value's distance from the mean: the largest range of differences in a joint state.

    The range of the present joint state has just been computed.
    """
    for x in range(k_other):
        if values[LARGEST, x] == np.inf:
            values[FACTOR, x] = np.inf
        elif values[LARGEST, x] > -np.inf:
            distance = values[LARGEST, x] - values[SMALLEST, x]
            values[FACTOR, x] = max(values[FACTOR, x], distance)


@kernel
def _diameter(k_other, values):
    """Return the sum of the two largest distances of values from the mean."""
    first, second = 0.0, 0.0
    for x in range(k_other):
        distance = values[TOTAL, x]
        if distance > first:
            first, second = distance, first
        elif distance > second:
            second = distance
    return first + second


@kernel
def enumerated_rows(at, allowance, rows, k_own, unary_start, unary, out_start, k_other, f_start, m_start, m_of, m_stride, f_own_stride, base, table, law, defined, least, state, C_bar, theorem, cap):  # fmt: skip  # noqa: E501
    """Replace bounds by the exact influence where it is smaller, by enumeration of the neighbours' configurations.

    All configurations count, whether or not the model allows them. A law is undefined if every label is forbidden; it
    is at distance 0 from other undefined laws and at distance 1 from defined ones. See the theory page, "Enumeration
    and undefined conditionals". `at` counts finished [rows, laws of the present row, entries, laws that were compared
    for the present entry]. Scratch: law, the laws of a row; defined, whether each is defined; least, the least
    probability of each label.
    """
    spent = 0
    while at[0] < rows.size and spent < allowance:
        r = rows[at[0]]
        lo, hi = out_start[r], out_start[r + 1]
        k = k_own[r]
        configurations = 1
        for e in range(lo, hi):
            configurations *= k_other[e]
        members = m_start[f_start[r + 1]] - m_start[f_start[r]] + f_start[r + 1] - f_start[r]
        if at[1] == 0:
            state[:] = 0.0
            least[:k] = 1.0
        spent += _laws(at, allowance - spent, configurations, 3 * k * (members + 4), r, k, lo, hi, unary_start, unary, k_other, f_start, m_start, m_of, m_stride, f_own_stride, base, table, law, defined, least, state)  # fmt: skip  # noqa: E501
        if at[1] < configurations:
            return
        if state[OVERFLOW] == 0.0:
            slack = 8.0 * (f_start[r + 1] - f_start[r] + 2) * U * state[MAGNITUDE] + 4.0 * (k + 8) * U
            stride = 1
            for e in range(lo, lo + at[2]):
                stride *= k_other[e]
            while at[2] < hi - lo:
                e = lo + at[2]
                for c in range(at[3], configurations):
                    x = (c // stride) % k_other[e]
                    for y in range(x):
                        distance = _distance(k, law, defined, c, c + (y - x) * stride)
                        state[WORST] = max(state[WORST], distance)
                    spent += x * k + 4
                    if spent >= allowance and c + 1 < configurations:
                        at[3] = c + 1
                        return
                stride *= k_other[e]
                if state[WORST] + slack < C_bar[e]:
                    C_bar[e] = state[WORST] + slack
                    theorem[e] = ENUMERATED
                state[WORST] = 0.0
                at[2] += 1
                at[3] = 0
            if state[UNDEFINED] == 0.0:
                # TV(p, q) = 1 - sum_a min(p_a, q_a) for any two of the laws
                common = 0.0
                for a in range(k):
                    common += least[a]
                cap[r] = min(cap[r], 1.0 - common + slack)
        at[0] += 1
        at[1] = 0
        at[2] = 0


@kernel
def _laws(at, allowance, configurations, cost, r, k, lo, hi, unary_start, unary, k_other, f_start, m_start, m_of, m_stride, f_own_stride, base, table, law, defined, least, state):  # fmt: skip  # noqa: E501
    """Compute conditional laws of the row's variable, one for each configuration; return the number of operations."""
    digit = np.empty(hi - lo, dtype=np.int64)
    rest = at[1]
    for p in range(hi - lo):
        digit[p] = rest % k_other[lo + p]
        rest //= k_other[lo + p]
    spent = 0
    while at[1] < configurations:
        c = at[1]
        top = -np.inf
        for a in range(k):
            weight = unary[unary_start[r] + a]
            magnitude = abs(weight)
            for f in range(f_start[r], f_start[r + 1]):
                cell = base[f] + a * f_own_stride[f]
                for q in range(m_start[f], m_start[f + 1]):
                    cell += digit[m_of[q]] * m_stride[q]
                weight += table[cell]
                magnitude += abs(table[cell])
            law[c * k + a] = weight
            if not weight < np.inf:
                state[OVERFLOW] = 1.0
            top = max(top, weight)
            if magnitude < np.inf:
                state[MAGNITUDE] = max(state[MAGNITUDE], magnitude)
        defined[c] = top > -np.inf
        if defined[c]:
            total = 0.0
            for a in range(k):
                law[c * k + a] = np.exp(law[c * k + a] - top)
                total += law[c * k + a]
            for a in range(k):
                law[c * k + a] /= total
                least[a] = min(least[a], law[c * k + a])
        else:
            state[UNDEFINED] = 1.0
        for p in range(hi - lo):
            digit[p] += 1
            if digit[p] < k_other[lo + p]:
                break
            digit[p] = 0
        at[1] += 1
        spent += cost
        if spent >= allowance:
            break
    return spent


@kernel
def _distance(k, law, defined, c, c2):
    if not defined[c] and not defined[c2]:
        return 0.0
    if defined[c] != defined[c2]:
        return 1.0
    total = 0.0
    for a in range(k):
        total += abs(law[c * k + a] - law[c2 * k + a])
    return 0.5 * total
