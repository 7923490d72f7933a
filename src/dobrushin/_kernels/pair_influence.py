"""Influence bounds of Theorem 4 of the paper, row by row (paper Section 4.1; theory page, "Theorem 4 with unaries").

Every function rounds towards larger influence: ranges D up, offsets h down, the result up by a few ulps. A row is about
one variable, and its entry e about one neighbour: own state a and the neighbour's state x (its value) have the
log-potential table[base[e] + a * own_stride[e] + x * other_stride[e]]. "Label" is short for a state of the row's own
variable.
"""

import numpy as np

from dobrushin._kernels.gap import COST, THM4, THM4_UNARY, U, gap
from dobrushin._shared.compile import kernel

# Entries of `state`. For a row: the size of its potentials, the sum of its ranges, the operations spent on offsets. For
# the present entry: the bound so far, the largest range, and a range whose gap is known to be within the bound.
SIZE, SUM, SPENT, WORST, RANGE, COVERED = 0, 1, 2, 3, 4, 5
STATE = 6
# Rows of `labels`, which have a number for each own label: its potential when all neighbours have value 0, how many
# neighbours forbid it then, its weight without the present neighbour, and its distance behind the winner.
FIRST, FORBIDDEN, REST, BEHIND = 0, 1, 2, 3
LABELS = 4
# Rows of `values`, which have a number for each value of the neighbour: the largest and the smallest difference from
# another value (later the range), and the least log-odds of the label that may win in the row.
LARGEST, SMALLEST, ODDS = 0, 1, 2
VALUES = 3
# Rows of `count`, which have a number for each own label: how many neighbours, and whether the present one, can favour
# another label over it without limit; -1 where that is not known yet.
ALL, OWN = 0, 1


@kernel
def pair_rows(at, allowance, rows, k_own, unary_start, unary, out_start, k_other, base, own_stride, other_stride, table, offset_budget, by_own, by_other, labels, values, lead, own_lead, count, state, C_bar, theorem, cap):  # fmt: skip  # noqa: E501
    """Bound the influence in pairwise models by Theorem 4 of the paper and a sharper form with offsets (log-odds) h.

    The sharper form applies where one label is the most likely one for all values of the neighbours. Each row may spend
    `offset_budget` operations on exact offsets; after that, offsets are bounded from below. Offsets are taken to be 0
    without a budget, or with several neighbours and more labels than `lead` has room for.

    `at` counts finished [rows, entries that were read, entries that are done, x, y]. Arrays from `by_own` to `state`
    are scratch space.
    """
    spent = 0
    while at[0] < rows.size and spent < allowance:
        r = rows[at[0]]
        k, lo, hi = k_own[r], out_start[r], out_start[r + 1]
        u = unary[unary_start[r] : unary_start[r] + k]
        if at[1] == 0:
            _begin_row(k, u, labels, count, state)
            spent += 4 * k + COST
        while at[1] < hi - lo:
            e = lo + at[1]
            state[SIZE] += _meet(k, k_other[e], table, base[e], own_stride[e], other_stride[e], labels)
            at[1] += 1
            spent += 2 * k * k_other[e]
            if spent >= allowance:
                return
        with_offsets = hi - lo == 1 or k <= lead.shape[0]
        while at[2] < hi - lo:
            e = lo + at[2]
            spent += _entry(at, allowance - spent, e, k, lo, hi, u, k_other, base, own_stride, other_stride, table, offset_budget if with_offsets else 0, by_own, by_other, labels, values, lead, own_lead, count, state)  # fmt: skip  # noqa: E501
            if at[3] < k_other[e]:
                return
            C_bar[e] = state[WORST]
            theorem[e] = THM4_UNARY if state[WORST] < gap(state[RANGE], 0.0) else THM4
            state[SUM] += state[RANGE]
            at[2] += 1
            at[3] = 0
            spent += COST
            if spent >= allowance and at[2] < hi - lo:
                return
        cap[r] = gap(state[SUM] * (1.0 + (hi - lo) * 2.0 * U), 0.0)
        at[0] += 1
        at[1] = 0
        at[2] = 0


@kernel
def _begin_row(k, u, labels, count, state):
    state[:] = 0.0
    for a in range(k):
        if u[a] > -np.inf:
            state[SIZE] = max(state[SIZE], abs(u[a]))
        labels[FIRST, a] = 0.0
        labels[FORBIDDEN, a] = 0.0
    count[:, : min(k, count.shape[1])] = -1


@kernel
def _meet(k, k_other, table, base, stride, other_stride, labels):
    """Add a neighbour's log-potentials, for its state 0, to the running sum of each label of the row's variable.

    Return the largest absolute log-potential of the neighbour.
    """
    largest = 0.0
    for a in range(k):
        for x in range(k_other):
            theta = table[base + a * stride + x * other_stride]
            if theta > -np.inf:
                largest = max(largest, abs(theta))
        if table[base + a * stride] > -np.inf:
            labels[FIRST, a] += table[base + a * stride]
        else:
            labels[FORBIDDEN, a] += 1.0
    return largest


@kernel
def _entry(at, allowance, e, k, lo, hi, u, k_other, base, own_stride, other_stride, table, offset_budget, by_own, by_other, labels, values, lead, own_lead, count, state):  # fmt: skip  # noqa: E501
    """Continue to bound the influence of one neighbour, for one pair x > y of its states after the other.

    Each pair gives a range D and an offset h, and the bound is the largest value of `gap(D, h)`. Return the number of
    operations.
    """
    spent = 0
    slack = 16.0 * (hi - lo + k + 8) * U * (state[SIZE] + 1.0)
    if at[3] == 0:
        at[3] = 1
        at[4] = 0
        _copy(k, k_other[e], table, base[e], own_stride[e], other_stride[e], by_own, by_other)
        _leave_out(k, u, by_other, labels)
        state[WORST] = 0.0
        state[RANGE] = 0.0
        state[COVERED] = 0.0
        count[OWN, : min(k, count.shape[1])] = -1
        spent += 4 * k * k_other[e] + COST
        if offset_budget > 0:
            before = state[SPENT]
            _odds(e, k, lo, hi, u, k_other, base, own_stride, other_stride, table, by_other, labels, lead, own_lead, count, state, values[ODDS])  # fmt: skip  # noqa: E501
            spent += int(state[SPENT] - before)
    while at[3] < k_other[e]:
        x = at[3]
        _ranges(x, k, k_other[e], u, by_own, values)
        spent += (k * x) // 4 + 4 * x + 8
        for y in range(at[4], x):
            D = values[LARGEST, y]
            if D < 0.0:
                continue
            D += 8.0 * U * state[SIZE]
            state[RANGE] = max(state[RANGE], D)
            if state[COVERED] >= D:
                continue
            h = 0.0
            if offset_budget > 0 and np.inf > D:
                h = _rounded(0.5 * values[ODDS, x] + 0.5 * values[ODDS, y], slack)
            spent += COST
            if gap(D, h) > state[WORST]:
                if np.inf > D and state[SPENT] < offset_budget:
                    before = state[SPENT]
                    h = max(h, _rounded(_offset(x, y, e, k, lo, hi, u, k_other, base, own_stride, other_stride, table, by_other, labels, lead, own_lead, count, state), slack))  # fmt: skip  # noqa: E501
                    spent += int(state[SPENT] - before) + COST
                state[WORST] = max(state[WORST], gap(D, h))
            if h == 0.0:
                state[COVERED] = D
            if spent >= allowance:
                at[4] = y + 1
                return spent
        at[3] += 1
        at[4] = 0
        if spent >= allowance:
            return spent
    return spent


@kernel
def _copy(k, k_other, table, base, stride, other_stride, by_own, by_other):
    """Copy a table twice: with own labels as rows, and with the neighbour's values as rows."""
    for a in range(k):
        for x in range(k_other):
            theta = table[base + a * stride + x * other_stride]
            by_own[a * k_other + x] = theta
            by_other[x * k + a] = theta


@kernel
def _leave_out(k, u, by_other, labels):
    """Set the log-weight of each label without the present neighbour, when all other neighbours are in state 0."""
    for a in range(k):
        own = by_other[a]
        forbidden = labels[FORBIDDEN, a] > (0.0 if own > -np.inf else 1.0)
        labels[REST, a] = -np.inf if forbidden else u[a] + (labels[FIRST, a] - (own if own > -np.inf else 0.0))


@kernel
def _ranges(x, k, k_other, u, by_own, values):
    """Set values[LARGEST, y] for y < x to the range of theta_a,x - theta_a,y over the allowed labels a.

    The range is set to -1 if x and y certainly have the same effect on this variable, and is infinite if only one of
    them forbids some label.
    """
    largest, smallest = values[LARGEST], values[SMALLEST]
    for y in range(x):
        largest[y] = -np.inf
        smallest[y] = np.inf
    labels = 0
    for a in range(k):
        if u[a] == -np.inf:
            continue
        row = by_own[a * k_other : a * k_other + x]
        theta = by_own[a * k_other + x]
        if theta == -np.inf:
            for y in range(x):
                if row[y] > -np.inf:
                    largest[y] = np.inf
            continue
        labels += 1
        # Infinite where y forbids a. No branches: large tables spend their time in this loop.
        for y in range(x):
            difference = theta - row[y]
            largest[y] = difference if difference > largest[y] else largest[y]
            smallest[y] = difference if difference < smallest[y] else smallest[y]
    for y in range(x):
        if largest[y] == np.inf:
            continue
        # A range that is 0 only after rounding is not 0.
        same = largest[y] == 0.0 and smallest[y] == 0.0
        largest[y] = -1.0 if same or labels < 2 else largest[y] - smallest[y]


@kernel
def _rounded(h, slack):
    """Round an offset (a lower bound on log-odds) down, but not below 0."""
    return max(0.0, h - slack - 8.0 * U * h) if h > slack else 0.0


@kernel
def _odds(e, k, lo, hi, u, k_other, base, own_stride, other_stride, table, by_other, labels, lead, own_lead, count, state, odds):  # fmt: skip  # noqa: E501
    """Bound the log-odds of one label against all others from below, for each state x of this neighbour, in odds[x].

    The label is the most likely one when all neighbours are in state 0. Half the sum of odds[x] and odds[y] is at most
    the offset of the pair x, y.
    """
    winner, top = -1, -np.inf
    for a in range(k):
        if labels[REST, a] + by_other[a] > top:
            winner, top = a, labels[REST, a] + by_other[a]
    odds[: k_other[e]] = -np.inf
    state[SPENT] += k
    if winner < 0 or not _can_win(winner, e, k, lo, hi, k_other, base, own_stride, other_stride, table, lead, own_lead, count, state):  # fmt: skip  # noqa: E501
        return
    behind = labels[BEHIND]
    for x in range(k_other[e]):
        odds[x] = -np.inf
        theta = by_other[x * k + winner]
        if theta == -np.inf:
            continue
        nearest = -np.inf
        for a in range(k):
            behind[a] = -np.inf
            if a != winner and u[a] > -np.inf:
                ahead = by_other[x * k + a] - theta
                behind[a] = u[a] - u[winner] + ahead + _others_lead(winner, a, hi - lo, lead, own_lead, count)
                nearest = max(nearest, behind[a])
        if not -np.inf < nearest < np.inf:
            continue
        total = 0.0
        for a in range(k):
            total += np.exp(behind[a] - nearest)
        odds[x] = -nearest - np.log(total)
    state[SPENT] += 12 * k * k_other[e]


@kernel
def _offset(x, y, e, k, lo, hi, u, k_other, base, own_stride, other_stride, table, by_other, labels, lead, own_lead, count, state):  # fmt: skip  # noqa: E501
    """Return the least log-odds of one label against all others over the other neighbours' states; 0 if negative.

    Only the most likely label at some configuration can have positive log-odds at all of them.
    """
    winner, top = -1, -np.inf
    for a in range(k):
        weight = labels[REST, a] + (0.5 * by_other[x * k + a] + 0.5 * by_other[y * k + a])
        if weight > top:
            winner, top = a, weight
    state[SPENT] += 2 * k
    if winner < 0 or not _can_win(winner, e, k, lo, hi, k_other, base, own_stride, other_stride, table, lead, own_lead, count, state):  # fmt: skip  # noqa: E501
        return 0.0
    mid_winner = 0.5 * by_other[x * k + winner] + 0.5 * by_other[y * k + winner]
    behind = labels[BEHIND]
    nearest = -np.inf
    state[SPENT] += 2 * k
    for a in range(k):
        behind[a] = -np.inf
        mid = 0.5 * by_other[x * k + a] + 0.5 * by_other[y * k + a]
        if a == winner or u[a] == -np.inf or mid == -np.inf:
            continue
        behind[a] = u[a] - u[winner] + (mid - mid_winner) + _others_lead(winner, a, hi - lo, lead, own_lead, count)
        if not behind[a] < 0.0:
            return 0.0
        nearest = max(nearest, behind[a])
    if nearest == -np.inf:
        return 0.0
    total = 0.0
    for a in range(k):
        total += np.exp(behind[a] - nearest)
    state[SPENT] += 8 * k
    return max(0.0, -nearest - np.log(total))


@kernel
def _can_win(winner, e, k, lo, hi, k_other, base, own_stride, other_stride, table, lead, own_lead, count, state):
    """Return whether every neighbour but the present one favours other labels over `winner` by a finite amount at most.

    The amounts are stored in `lead` and `own_lead`.
    """
    if hi - lo == 1:
        return True
    if count[ALL, winner] < 0:
        lead[winner, :k] = 0.0
        count[ALL, winner] = 0
        for f in range(lo, hi):
            limited = _lead(winner, k, k_other[f], table, base[f], own_stride[f], other_stride[f], own_lead[winner])
            state[SPENT] += 2 * k * k_other[f]
            if limited:
                for a in range(k):
                    lead[winner, a] += own_lead[winner, a]
            else:
                count[ALL, winner] += 1
        count[OWN, winner] = -1
    if count[OWN, winner] < 0:
        limited = _lead(winner, k, k_other[e], table, base[e], own_stride[e], other_stride[e], own_lead[winner])
        state[SPENT] += 2 * k * k_other[e]
        count[OWN, winner] = 0 if limited else 1
    return count[ALL, winner] == count[OWN, winner]


@kernel
def _others_lead(winner, a, neighbors, lead, own_lead, count):
    """Return how much all neighbours but the present one together can favour label a over the winner."""
    if neighbors == 1:
        return 0.0
    return lead[winner, a] - (own_lead[winner, a] if count[OWN, winner] == 0 else 0.0)


@kernel
def _lead(winner, k, k_other, table, base, stride, other_stride, lead):
    """Set lead[a] to how much one neighbour can favour label a over the winner; return whether all are finite."""
    for a in range(k):
        lead[a] = -np.inf
        for x in range(k_other):
            theta = table[base + winner * stride + x * other_stride]
            if theta == -np.inf:
                # Where the winner is forbidden a leads without limit; where both are, no claim can be made either.
                return False
            lead[a] = max(lead[a], table[base + a * stride + x * other_stride] - theta)
        if lead[a] == np.inf:
            return False
        if lead[a] == -np.inf:
            # Always forbidden: so far behind that a finite number does as well.
            lead[a] = 0.0
    return True
