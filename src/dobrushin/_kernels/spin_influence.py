"""Influence bounds of spins and of Potts models, row by row (paper Section 4.1; theory page, "Influence").

Every function rounds towards larger influence: ranges D up, offsets h down, the result up by a few ulps. Every loop can
pause and continue: it stops after `allowance` operations, and `at` counts what it has finished (see `in_pieces` in
`dobrushin._shared.compile`).
"""

import numpy as np

from dobrushin._kernels.gap import COST, FLOOR, THM4, THM4_UNARY, THM5, THM5_EXACT, U, gap
from dobrushin._shared.compile import kernel


@kernel
def ising_rows(at, allowance, rows, start, theta, field, out_start, paper, max_degree, C_bar, theorem, cap):
    """Bound the influence on spins by the paper's Theorem 5, or exactly if a spin has at most `max_degree` neighbours.

    The exact form enumerates 2 ** (degree - 1) sign patterns of the other neighbours for each entry. `at` counts
    finished [rows, entries of the present row].
    """
    sums = np.empty(1 << max(0, max_degree - 1))
    spent = 0
    while at[0] < rows.size and spent < allowance:
        r = at[0]
        i = rows[r]
        lo, hi = start[i], start[i + 1]
        m = hi - lo
        total = 0.0
        for e in range(lo, hi):
            total += abs(theta[e])
        if at[1] == 0:
            spent += m + 8
        slack = 2.0 * (m + 2) * U * (total + abs(field[i]))
        enumerate_signs = not paper and m <= max_degree
        for e in range(lo + at[1], hi):
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
                spent += 2 * size
            else:
                nearest = abs(field[i]) - (total - abs(theta[e]))
            out = out_start[r] + e - lo
            C_bar[out] = gap(D, max(0.0, 2.0 * (nearest - slack)))
            theorem[out] = THM5_EXACT if enumerate_signs else THM5
            spent += COST
            if spent >= allowance and e + 1 < hi:
                at[1] = e + 1 - lo
                return
        cap[r] = 1.0 if paper else gap(4.0 * (total + slack), 2.0 * abs(field[i]))
        at[0] += 1
        at[1] = 0


@kernel
def potts_rows(at, allowance, out_start, strength, unary, paper, C_bar, theorem, cap):
    """Bound the influence in Potts models with couplings s by the paper's Theorem 4 (D = 2 |s|) and a sharper form.

    The time is linear in the number of states. Only the state with the largest unary (the winner) can be the most
    likely one for all states of the neighbours. Among pairs of states of neighbour j, its lead is smallest when both
    are its strongest rivals (s > 0), or when one is the winner itself and the other its weakest rival (s < 0). Without
    unaries, `unary` has no columns. `at` counts finished [rows, entries of the present row].
    """
    spent = 0
    while at[0] < cap.size and spent < allowance:
        r = at[0]
        lo, hi = out_start[r], out_start[r + 1]
        total = 0.0
        for e in range(lo, hi):
            total += abs(strength[e])
        if at[1] == 0:
            spent += hi - lo + 32 * unary.shape[1] + 8
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
            # Only one label is allowed: the law is a point mass.
            C_bar[lo:hi] = 0.0
            theorem[lo:hi] = THM4_UNARY
            cap[r] = 0.0
            at[0] += 1
            continue
        for a in range(unary.shape[1]):
            u = unary[r, a]
            if a != winner and u > -np.inf:
                if u > first:
                    first, second = u, first
                elif u > second:
                    second = u
                last = min(last, u)
        others = 0.0  # the rivals' weights without the two strongest, relative to the strongest
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
        for e in range(lo + at[1], hi):
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
            spent += 2 * COST
            if spent >= allowance and e + 1 < hi:
                at[1] = e + 1 - lo
                return
        cap[r] = 1.0 if paper else gap(2.0 * total * (1.0 + (hi - lo) * 2.0 * U), 0.0)
        at[0] += 1
        at[1] = 0


@kernel
def spin_rows(at, allowance, rows, term_start, term_of, scope_start, scope, theta, field, out_start, blanket, paper, s1, state, C_bar, cap):  # fmt: skip  # noqa: E501
    """Bound the influence on spins with terms of any order by Theorem 6, as in the paper or tightened.

    The bound of neighbour j on spin i is a function of D = 4 s1 and h = max(0, 2 |theta_i| - 2 s2), where s1 is the sum
    of the absolute strengths of the terms with i and j, and s2 that of the terms with i and without j. The arrays s1
    and `state` are scratch space. `at` counts finished [rows, terms of the present row, entries of the present row].
    """
    spent = 0
    while at[0] < rows.size and spent < allowance:
        r = at[0]
        i = rows[r]
        members = blanket[out_start[r] : out_start[r + 1]]
        lo, hi = term_start[i], term_start[i + 1]
        if at[1] == 0:
            state[0] = 0.0
            s1[: members.size] = 0.0
            spent += members.size + 8
        for e in range(lo + at[1], hi):
            t = term_of[e]
            strength = abs(theta[t])
            state[0] += strength
            for v in range(scope_start[t], scope_start[t + 1]):
                if scope[v] != i:
                    s1[np.searchsorted(members, scope[v])] += strength
            spent += COST * (scope_start[t + 1] - scope_start[t])
            at[1] += 1
            if spent >= allowance:
                return
        total = state[0]
        slack = 2.0 * (hi - lo + 2) * U * (total + abs(field[i]))
        for k in range(at[2], members.size):
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
            spent += COST
            if spent >= allowance and k + 1 < members.size:
                at[2] = k + 1
                return
        cap[r] = 1.0 if paper else gap(4.0 * (total + slack), max(0.0, 2.0 * abs(field[i]) - slack))
        at[0] += 1
        at[1] = 0
        at[2] = 0
