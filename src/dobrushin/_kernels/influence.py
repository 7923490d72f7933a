"""Influence bounds, row by row (paper Section 4.1; theory page, "Influence").

Every function rounds towards larger influence: ranges D up, offsets h down, the result up by a few ulps. How much is in
the theory page, "Rounding of influence bounds".
One file, because Numba does not notice when a callee in another file changes.
"""

import numpy as np

from dobrushin._shared.compile import kernel

U = 2.0**-53  # unit roundoff
FLOOR = 2.0**-1000  # stands for positive numbers too small to be told from 0

# Which bound an entry came from; the order of `THEOREMS` in dobrushin._influence.
THM4, THM4_UNARY, THM5, THM5_EXACT, THM6, THM6_TIGHT, ENUMERATED, RANGE = 1, 2, 3, 4, 5, 6, 7, 8


@kernel
def gap(D, h):
    """sigma(h + D/2) - sigma(h - D/2) = sinh(D/2) / (cosh h + cosh(D/2)), from above, without cancellation."""
    if D <= 0.0:
        return 0.0
    x = 0.5 * D
    if not (x < np.inf and h < np.inf):
        return 1.0
    M = max(x, h)
    top = np.exp(x - M) * -np.expm1(-2.0 * x)
    bottom = np.exp(h - M) + np.exp(-h - M) + np.exp(x - M) + np.exp(-x - M)
    # exp turns the rounding of its argument, at most |x - h| U, into a relative error.
    value = top / bottom * (1.0 + (32.0 + 4.0 * abs(x - h)) * U)
    return min(1.0, max(value, FLOOR))


@kernel
def ising_rows(rows, start, theta, field, out_start, paper, max_degree, C_bar, theorem, cap):
    """Theorem 5, and its exact form where at most 2**(max_degree - 1) sign patterns are to be tried."""
    sums = np.empty(2 ** max(0, max_degree - 1))
    for r in range(rows.size):
        i = rows[r]
        lo, hi = start[i], start[i + 1]
        m = hi - lo
        total = 0.0
        for e in range(lo, hi):
            total += abs(theta[e])
        slack = 2.0 * (m + 2) * U * (total + abs(field[i]))
        enumerate_signs = not paper and m <= max_degree
        for e in range(lo, hi):
            D = 4.0 * abs(theta[e])
            if enumerate_signs:
                sums[0] = field[i]
                size = 1
                for k in range(lo, hi):
                    if k != e:
                        for s in range(size):
                            sums[size + s] = sums[s] + theta[k]
                            sums[s] -= theta[k]
                        size *= 2
                nearest = np.inf
                for s in range(size):
                    nearest = min(nearest, abs(sums[s]))
            else:
                nearest = abs(field[i]) - (total - abs(theta[e]))
            out = out_start[r] + e - lo
            C_bar[out] = gap(D, max(0.0, 2.0 * (nearest - slack)))
            theorem[out] = THM5_EXACT if enumerate_signs else THM5
        cap[r] = 1.0 if paper else gap(4.0 * (total + slack), 2.0 * abs(field[i]))


@kernel
def potts_rows(out_start, strength, unary, paper, C_bar, theorem, cap):
    """Theorem 4 for Potts models, where D = 2 |s|, and its sharper form, in time linear in the labels.

    Theory page, "Theorem 4 with unaries".

    The label with the largest unary is the only one that can win whatever the neighbours do. Over the pairs of values
    of neighbour j it is pressed hardest when both are its strongest rivals (s > 0), or when one is the winner itself
    and the other its weakest rival (s < 0). unary has no columns where there are none.
    """
    for r in range(cap.size):
        lo, hi = out_start[r], out_start[r + 1]
        total = 0.0
        for e in range(lo, hi):
            total += abs(strength[e])
        size = total
        winner, first, second, last, alive = -1, -np.inf, -np.inf, np.inf, 0
        for a in range(unary.shape[1]):
            u = unary[r, a]
            if u > -np.inf:
                alive += 1
                size = max(size, total + abs(u))
                if winner < 0 or u > unary[r, winner]:
                    winner = a
        if alive == 1:
            # The law is a point mass.
            C_bar[lo:hi] = 0.0
            theorem[lo:hi] = THM4_UNARY
            cap[r] = 0.0
            continue
        for a in range(unary.shape[1]):
            u = unary[r, a]
            if a != winner and u > -np.inf:
                if u > first:
                    first, second = u, first
                elif u > second:
                    second = u
                last = min(last, u)
        others = 0.0  # the rivals' weights, relative to the strongest
        without_last = 0.0
        dropped = 0
        for a in range(unary.shape[1]):
            u = unary[r, a]
            if a != winner and u > -np.inf:
                others += np.exp(u - first)
                if u == last and dropped == 0:
                    dropped = 1
                else:
                    without_last += np.exp(u - first)
        slack = 8.0 * (hi - lo + unary.shape[1] + 8) * U * (size + 1.0)
        for e in range(lo, hi):
            h = 0.0
            if winner >= 0 and not paper:
                s = abs(strength[e])
                if strength[e] > 0.0:
                    strongest = 1.0 + (np.exp(second - first) if second > -np.inf else 0.0)
                    rivals = np.log(others + np.expm1(0.5 * s) * strongest) if s < 600.0 else np.inf
                else:
                    rivals = np.log(np.exp(0.5 * s) * without_last + np.exp(last - first)) if s < 600.0 else np.inf
                h = unary[r, winner] - first - rivals - (total - s) - slack
            theorem[e] = THM4_UNARY if h > 0.0 else THM4
            C_bar[e] = gap(2.0 * abs(strength[e]), max(0.0, h))
        cap[r] = 1.0 if paper else gap(2.0 * total * (1.0 + (hi - lo) * 2.0 * U), 0.0)


@kernel
def spin_rows(rows, term_start, term_of, scope_start, scope, theta, field, out_start, blanket, paper, C_bar, cap):
    """Theorem 6 as in the paper, or tightened: D = 4 s1, h = max(0, 2 |theta_i| - 2 s2)."""
    for r in range(rows.size):
        i = rows[r]
        members = blanket[out_start[r] : out_start[r + 1]]
        s1 = np.zeros(members.size)
        total = 0.0
        lo, hi = term_start[i], term_start[i + 1]
        for e in range(lo, hi):
            t = term_of[e]
            strength = abs(theta[t])
            total += strength
            for v in range(scope_start[t], scope_start[t + 1]):
                if scope[v] != i:
                    s1[np.searchsorted(members, scope[v])] += strength
        slack = 2.0 * (hi - lo + 2) * U * (total + abs(field[i]))
        for k in range(members.size):
            s2 = total - s1[k]
            h = max(0.0, 2.0 * (abs(field[i]) - s2 - slack))
            D = 4.0 * (s1[k] + slack)
            if paper:
                # sinh(D/2) / (1 + cosh h), which may exceed 1
                x = 0.5 * D
                M = max(x, h)
                top = np.exp(x - M) * -np.expm1(-2.0 * x)
                bottom = 2.0 * np.exp(-M) + np.exp(h - M) + np.exp(-h - M)
                value = top / bottom * (1.0 + (32.0 + 4.0 * abs(x - h)) * U)
                C_bar[out_start[r] + k] = min(1.0, max(value, FLOOR)) if np.inf > M else 1.0
            else:
                C_bar[out_start[r] + k] = gap(D, h)
        cap[r] = 1.0 if paper else gap(4.0 * (total + slack), max(0.0, 2.0 * abs(field[i]) - slack))


@kernel
def pairwise_rows(k_own, unary_start, unary, out_start, k_other, base, own_stride, other_stride, table, paper, C_bar, theorem, cap):  # fmt: skip  # noqa: E501
    """Theorem 4, and its sharper form where some label wins whatever the neighbours do.

    Theory page, "Theorem 4 with unaries" and "Hard zeros in closed forms".

    Entry e is about neighbour e of its row: log-potential table[base[e] + a * own_stride[e] + x * other_stride[e]].
    """
    for r in range(k_own.size):
        k = k_own[r]
        u = unary[unary_start[r] : unary_start[r] + k]
        lo, hi = out_start[r], out_start[r + 1]
        # The most that all neighbours together can favour a over b; and how many can do so without limit.
        lead = np.zeros((k, k))
        unlimited = np.zeros((k, k), dtype=np.int64)
        own_lead = np.empty((k, k))
        size = 0.0
        for a in range(k):
            if u[a] > -np.inf:
                size = max(size, abs(u[a]))
        for e in range(lo, hi):
            size += _lead(k, k_other[e], table, base[e], own_stride[e], other_stride[e], own_lead)
            for a in range(k):
                for b in range(k):
                    if own_lead[a, b] < np.inf:
                        lead[a, b] += own_lead[a, b]
                    else:
                        unlimited[a, b] += 1
        slack = 16.0 * (hi - lo + k + 8) * U * (size + 1.0)
        total_D = 0.0
        for e in range(lo, hi):
            _lead(k, k_other[e], table, base[e], own_stride[e], other_stride[e], own_lead)
            worst = 0.0
            worst_D = 0.0
            used_unary = False
            for x in range(k_other[e]):
                for y in range(x):
                    D = _range(u, k, table, base[e], own_stride[e], x * other_stride[e], y * other_stride[e])
                    if D < 0.0:
                        continue
                    D += 8.0 * U * size
                    worst_D = max(worst_D, D)
                    h = 0.0
                    if np.inf > D and not paper:
                        h = _offset(u, k, table, base[e], own_stride[e], x * other_stride[e], y * other_stride[e], lead, unlimited, own_lead)  # fmt: skip  # noqa: E501
                        h = max(0.0, h - slack - 8.0 * U * h)
                    used_unary = used_unary or h > 0.0
                    worst = max(worst, gap(D, h))
            C_bar[e] = worst
            theorem[e] = THM4_UNARY if used_unary else THM4
            total_D += worst_D
        cap[r] = 1.0 if paper else gap(total_D * (1.0 + (hi - lo) * 2.0 * U), 0.0)


@kernel
def _lead(k, k_other, table, base, stride, other_stride, lead):
    """lead[a, b]: the most that one neighbour can favour a over b; returns the largest potential."""
    lead[:, :] = -np.inf
    largest = 0.0
    for x in range(k_other):
        for a in range(k):
            theta_a = table[base + a * stride + x * other_stride]
            if theta_a > -np.inf:
                largest = max(largest, abs(theta_a))
            for b in range(k):
                theta_b = table[base + b * stride + x * other_stride]
                # Where b is forbidden a leads without limit; where both are, no claim can be made either.
                lead[a, b] = max(lead[a, b], theta_a - theta_b if theta_b > -np.inf else np.inf)
    for a in range(k):
        for b in range(k):
            if lead[a, b] == -np.inf:
                # a is always forbidden: so far behind that a finite number does as well
                lead[a, b] = 0.0
    return largest


@kernel
def _range(u, k, table, base, stride, x, y):
    """Range over the possible labels a of theta_a,x - theta_a,y.

    -1 if x and y are surely the same to this variable, infinite if a label is forbidden by only one of them.
    """
    largest, smallest = -np.inf, np.inf
    same, labels = True, 0
    for a in range(k):
        if u[a] == -np.inf:
            continue
        theta_x, theta_y = table[base + a * stride + x], table[base + a * stride + y]
        if theta_x == -np.inf and theta_y == -np.inf:
            continue
        if theta_x == -np.inf or theta_y == -np.inf:
            return np.inf
        labels += 1
        same = same and theta_x == theta_y
        largest = max(largest, theta_x - theta_y)
        smallest = min(smallest, theta_x - theta_y)
    # A range that is 0 only after rounding is not 0.
    return -1.0 if same or labels < 2 else largest - smallest


@kernel
def _offset(u, k, table, base, stride, x, y, lead, unlimited, own_lead):
    """Least log-odds by which the same label beats all others together, over the other neighbours' values; else 0.

    At most one label can do so.
    """
    behind = np.empty(k)
    for winner in range(k):
        if u[winner] == -np.inf:
            continue
        mid_winner = 0.5 * table[base + winner * stride + x] + 0.5 * table[base + winner * stride + y]
        if mid_winner == -np.inf:
            continue
        nearest = -np.inf
        for a in range(k):
            behind[a] = -np.inf
            if a == winner or u[a] == -np.inf:
                continue
            mid = 0.5 * table[base + a * stride + x] + 0.5 * table[base + a * stride + y]
            if mid == -np.inf:
                continue
            own = own_lead[a, winner]
            if unlimited[a, winner] > (1 if own == np.inf else 0):
                nearest = np.inf
                break
            others = lead[a, winner] - (own if own < np.inf else 0.0)
            behind[a] = u[a] - u[winner] + (mid - mid_winner) + others
            nearest = max(nearest, behind[a])
        if -np.inf < nearest < 0.0:
            total = 0.0
            for a in range(k):
                total += np.exp(behind[a] - nearest)
            if nearest + np.log(total) < 0.0:
                return -nearest - np.log(total)
    return 0.0


@kernel
def factor_ranges(k_own, out_start, k_other, m_start, m_of, m_stride, f_own_stride, base, table, by_start, by_member, by_factor, C_bar, cap):  # fmt: skip  # noqa: E501
    """tanh(D/4), D the sum over factors of the largest double difference (theory page, "Range of the factors").

    Factor f of some row touches the neighbours m_of (places in the row's list) with the strides m_stride, both at
    m_start[f] : m_start[f + 1]. The factors that entry e shares, and its places in them, are by_factor and by_member at
    by_start[e] : by_start[e + 1].
    """
    for r in range(k_own.size):
        lo, hi = out_start[r], out_start[r + 1]
        total_D = 0.0
        for e in range(lo, hi):
            worst_D = 0.0
            for x in range(k_other[e]):
                for y in range(x):
                    D, size = 0.0, 0.0
                    same = True
                    for q in range(by_start[e], by_start[e + 1]):
                        f = by_factor[q]
                        part, largest = _double_difference(
                            k_own[r], lo, k_other, m_start[f], m_start[f + 1], m_of, m_stride, by_member[q],
                            f_own_stride[f], base[f], table, x, y,
                        )  # fmt: skip
                        if part >= 0.0:
                            same = False
                            D += part
                            size += largest
                    if not same:
                        # A range that is 0 only after rounding is not 0.
                        worst_D = max(worst_D, D + 8.0 * (by_start[e + 1] - by_start[e] + 2) * U * size)
            C_bar[e] = gap(worst_D, 0.0)
            total_D += worst_D
        cap[r] = gap(total_D * (1.0 + (hi - lo) * 2.0 * U), 0.0)


@kernel
def _double_difference(k, lo, k_other, m_lo, m_hi, m_of, m_stride, q, own_stride, base, table, x, y):
    """Largest (theta_a,x - theta_a,y) - (theta_b,x - theta_b,y) over a, b and the other variables of the factor.

    -1 if x and y are surely the same to this variable, infinite if a label is forbidden by only one of them.
    """
    others = 1
    for p in range(m_lo, m_hi):
        if p != q:
            others *= k_other[lo + m_of[p]]
    worst = 0.0
    size = 0.0
    same = True
    for c in range(others):
        cell = base
        rest = c
        for p in range(m_lo, m_hi):
            if p != q:
                cell += (rest % k_other[lo + m_of[p]]) * m_stride[p]
                rest //= k_other[lo + m_of[p]]
        largest, smallest = -np.inf, np.inf
        for a in range(k):
            theta_x = table[cell + a * own_stride + x * m_stride[q]]
            theta_y = table[cell + a * own_stride + y * m_stride[q]]
            if theta_x == -np.inf and theta_y == -np.inf:
                continue
            if theta_x == -np.inf or theta_y == -np.inf:
                return np.inf, 0.0
            same = same and theta_x == theta_y
            size = max(size, abs(theta_x), abs(theta_y))
            largest = max(largest, theta_x - theta_y)
            smallest = min(smallest, theta_x - theta_y)
        if largest > -np.inf:
            worst = max(worst, largest - smallest)
    return (-1.0 if same else worst), size


@kernel
def enumerated_rows(rows, k_own, unary_start, unary, out_start, k_other, f_start, m_start, m_of, m_stride, f_own_stride, base, table, C_bar, theorem, cap):  # fmt: skip  # noqa: E501
    """Exact influence of the listed rows by all configurations of their neighbours; kept where it is smaller.

    All configurations count, whether or not the model allows them. A law that is undefined, because every label is
    forbidden, is at distance 0 from another undefined one and at distance 1 from any other (theory page, "Enumeration
    and undefined conditionals").
    """
    for r in rows:
        lo, hi = out_start[r], out_start[r + 1]
        k = k_own[r]
        configurations = 1
        for e in range(lo, hi):
            configurations *= k_other[e]
        law = np.empty((configurations, k))
        defined = np.empty(configurations, dtype=np.bool_)
        digit = np.zeros(hi - lo, dtype=np.int64)
        size = 0.0
        overflow = False
        for c in range(configurations):
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
                law[c, a] = weight
                overflow = overflow or not weight < np.inf
                top = max(top, weight)
                if magnitude < np.inf:
                    size = max(size, magnitude)
            defined[c] = top > -np.inf
            if defined[c]:
                total = 0.0
                for a in range(k):
                    law[c, a] = np.exp(law[c, a] - top)
                    total += law[c, a]
                for a in range(k):
                    law[c, a] /= total
            for p in range(hi - lo):
                digit[p] += 1
                if digit[p] < k_other[lo + p]:
                    break
                digit[p] = 0
        if overflow:
            continue
        slack = 8.0 * (f_start[r + 1] - f_start[r] + 2) * U * size + 4.0 * (k + 8) * U
        stride = 1
        for e in range(lo, hi):
            worst = 0.0
            for c in range(configurations):
                x = (c // stride) % k_other[e]
                for y in range(x):
                    worst = max(worst, _distance(law, defined, c, c + (y - x) * stride))
            stride *= k_other[e]
            if worst + slack < C_bar[e]:
                C_bar[e] = worst + slack
                theorem[e] = ENUMERATED
        # TV(p, q) = 1 - sum_a min(p_a, q_a) for any two of the laws
        if defined.all():
            common = 0.0
            for a in range(k):
                common += law[:, a].min()
            cap[r] = min(cap[r], 1.0 - common + slack)


@kernel
def _distance(law, defined, c, c2):
    if not defined[c] and not defined[c2]:
        return 0.0
    if defined[c] != defined[c2]:
        return 1.0
    total = 0.0
    for a in range(law.shape[1]):
        total += abs(law[c, a] - law[c2, a])
    return 0.5 * total
