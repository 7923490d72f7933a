"""Sets of labels of any factors, many runs at once: the race of logarithms.

See the theory page, "More states: the race". Row first[i] + a of x says whether label a of variable i is possible. A
step updates variable order[place + t] (cyclic), and label a uses the random number (number + stride * t) * K + a.
"""

import numpy as np

from dobrushin._kernels.generator import mix
from dobrushin._kernels.logarithm import arrival, logarithm
from dobrushin._shared.compile import kernel

# Up to so many joint states of a factor's members are all looked at for many runs at once; of more, only the possible
# ones, run by run.
MOST_CELLS, _LEAST_RUNS = 256, 8


@kernel
def set_race(order, place, steps, number, stride, K, states, first, f_start, m_start, member, m_stride, own_stride, base, table, keys, x):  # fmt: skip  # noqa: E501
    """Labels arrive at ln E_a - s_a, E_a independent exponentials, s_a the log-weight; the first one wins.

    With lo_a and hi_a the range of s_a over the neighbours' sets, a label stays if it can be first:
    ln E_a - hi_a <= ln E_b - lo_b for all b (for a itself that is always so).
    """
    runs = keys.shape[1]
    lo, hi = np.empty((K, runs)), np.empty((K, runs))
    least, most = np.empty((K, runs)), np.empty((K, runs))
    best, count = np.empty(runs), np.empty(runs, dtype=np.int64)
    allowed = np.empty(runs, dtype=np.uint8)
    deepest = 1
    for f in range(m_start.size - 1):
        deepest = max(deepest, m_start[f + 1] - m_start[f])
    digit = np.empty(deepest, dtype=np.int64)
    for t in range(steps):
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        k = states[i]
        lo[:k] = 0.0
        hi[:k] = 0.0
        for f in range(f_start[i], f_start[i + 1]):
            members, strides = member[m_start[f] : m_start[f + 1]], m_stride[m_start[f] : m_start[f + 1]]
            least[:k] = np.inf
            most[:k] = -np.inf
            cells = 1
            for m in range(members.size):
                cells = min(cells * states[members[m]], MOST_CELLS + 1)
            if cells <= MOST_CELLS and runs >= _LEAST_RUNS:
                _range_side_by_side(states, first, members, strides, base[f], own_stride[f], table, x, k, digit, allowed, least, most)  # fmt: skip  # noqa: E501
            else:
                _range_by_run(states, first, members, strides, base[f], own_stride[f], table, x, k, digit, least, most)
            for a in range(k):
                for c in range(runs):
                    lo[a, c] += least[a, c]
                    hi[a, c] += most[a, c]
        for c in range(runs):
            best[c] = np.inf
            count[c] = 0
        counter = np.uint64(number + stride * t) * np.uint64(K)
        for a in range(k):
            early, late = hi[a], lo[a]  # from here on the times at which a label can arrive
            for c in range(runs):
                time = logarithm(arrival(mix(keys[0, c] + keys[1, c] * counter)))
                early[c] = time - early[c]
                late[c] = time - late[c]
                best[c] = min(best[c], late[c])
            counter += np.uint64(1)
        for a in range(k):
            row, early = x[first[i] + a], hi[a]
            for c in range(runs):
                possible = (early[c] < np.inf) & (early[c] <= best[c])
                row[c] = possible
                count[c] += possible
        for c in range(runs):
            if count[c] == 0:  # no state is allowed beside these sets: nothing is known
                for a in range(k):
                    x[first[i] + a, c] = 1


@kernel
def _range_side_by_side(states, first, members, strides, base, own_stride, table, x, k, digit, allowed, least, most):
    """The least and the largest entry for each label over the members' sets, in all runs: cell after cell."""
    digit[: members.size] = 0
    cell = base
    while True:
        allowed[:] = 1
        for m in range(members.size):
            row = x[first[members[m]] + digit[m]]
            for c in range(allowed.size):
                allowed[c] &= row[c]
        for a in range(k):
            value, low, high = table[cell + a * own_stride], least[a], most[a]
            for c in range(allowed.size):
                low[c] = min(low[c], value if allowed[c] else np.inf)
                high[c] = max(high[c], value if allowed[c] else -np.inf)
        m = members.size - 1
        while m >= 0 and digit[m] == states[members[m]] - 1:
            cell -= digit[m] * strides[m]
            digit[m] = 0
            m -= 1
        if m < 0:
            return
        digit[m] += 1
        cell += strides[m]


@kernel
def _range_by_run(states, first, members, strides, base, own_stride, table, x, k, digit, least, most):
    """The same run by run, over possible labels only, the last member changing fastest."""
    before = np.int64(-1)  # the first label; a literal would be a type of its own
    for c in range(x.shape[1]):
        cell = base
        for m in range(members.size):
            digit[m] = next_label(x, first[members[m]], states[members[m]], before, c)
            cell += digit[m] * strides[m]
        m = 0
        while m >= 0:
            for a in range(k):
                value = table[cell + a * own_stride]
                least[a, c] = min(least[a, c], value)
                most[a, c] = max(most[a, c], value)
            m = members.size - 1
            while m >= 0:
                j = members[m]
                following = next_label(x, first[j], states[j], digit[m], c)
                more = following < states[j]
                if not more:
                    following = next_label(x, first[j], states[j], before, c)
                cell += (following - digit[m]) * strides[m]
                digit[m] = following
                if more:
                    break
                m -= 1


@kernel
def next_label(x, first, states, label, c):
    """The next possible label after `label`; the number of states if there is none."""
    label += 1
    while label < states and not x[first + label, c]:
        label += 1
    return label


@kernel
def settled_labels(x, first, states, rows, out):
    """out[v, run]: the label of a variable that is settled, else -1."""
    before = np.int64(-1)
    for v in range(rows.size):
        i = rows[v]
        for c in range(out.shape[1]):
            label = next_label(x, first[i], states[i], before, c)
            out[v, c] = label if next_label(x, first[i], states[i], label, c) == states[i] else -1
