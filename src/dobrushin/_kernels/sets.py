"""Gibbs updates of bounding sets, which contain the state of each variable in the trajectories from all starts.

See the theory page, "Sets that hold every trajectory" and "More states: the race". All trajectories share the random
numbers of a step, and the map from these numbers and the neighbours to the new state does not depend on the sets. Step
t updates variable order[place + t] (cyclic) and uses the random numbers of number + stride * t. Sets of spins with few
neighbours are in `_kernels.bits`.

Labels race: each label has a random arrival time, and the label that arrives first wins. Label a of a step uses random
number (number + stride * t) * K + a, where K is the largest number of labels of a variable.
"""

import numpy as np

from dobrushin._kernels.elementary import arrival, exponential, logarithm
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

UNIT = 2.0**-53


@kernel
def count_settled(settled, counts):
    """Count the runs where variable v has coalesced in each state, in counts[v, 1 + state]; others in counts[v, 0]."""
    for v in range(settled.shape[0]):
        for c in range(settled.shape[1]):
            counts[v, 1 + np.int64(settled[v, c])] += 1


@kernel
def set_field(order, place, steps, number, stride, start, neighbor, theta, field, keys, x):
    """Update bounding sets of an Ising model, each of which is the range from a lowest to a highest spin.

    Rows 0 to n - 1 of x hold the lowest spins (-1.0 or +1.0), rows n to 2 n - 1 the highest. A spin is up if u <
    sigma(2 h), where u is a uniform number, sigma the logistic function and h the local field. The lowest spin is drawn
    with the least local field, and the highest with the largest.
    """
    runs, n = keys.shape[1], field.size
    least, most = np.empty(runs), np.empty(runs)
    key, gamma = keys[0], keys[1]
    for t in range(steps):
        i = order[place]
        place = place + 1 if place + 1 < order.size else 0
        for c in range(runs):
            least[c] = field[i]
            most[c] = field[i]
        for e in range(start[i], start[i + 1]):
            j, f = neighbor[e], theta[e]
            down, up = x[j if f > 0 else n + j], x[n + j if f > 0 else j]
            for c in range(runs):
                least[c] += f * down[c]
                most[c] += f * up[c]
        counter = np.uint64(number + stride * t)
        low, high = x[i], x[n + i]
        for c in range(runs):
            u = (np.float64(mix(key[c] + gamma[c] * counter) >> np.uint64(11)) + 0.5) * UNIT
            low[c] = 1.0 if u * (1.0 + exponential(-2.0 * least[c])) < 1.0 else -1.0
            high[c] = 1.0 if u * (1.0 + exponential(-2.0 * most[c])) < 1.0 else -1.0


@kernel
def set_labels(order, place, steps, number, stride, start, neighbor, delay, unary, keys, x):
    """Update bounding sets of a Potts model: label a arrives at time E_a exp(-s_a), and the first label wins.

    E_a is an exponential random time and s_a the log-weight of the label. `delay` and `unary` are exponentials of
    negative log-weights. A neighbour that could have label a multiplies the earliest or the latest time of the label by
    `delay`; a neighbour with label a alone multiplies both. Products are rounded in the same order for all
    trajectories, so that the time of a trajectory stays between the earliest and the latest time. A label stays
    possible if its earliest time is at most the latest time of every label.

    Row i k + a of x says whether label a of variable i is possible, row n k + i whether variable i has a single label.
    """
    runs, n, k = keys.shape[1], start.size - 1, unary.shape[1]
    key, gamma = keys[0], keys[1]
    earliest, slow = np.empty((k, runs)), np.empty(runs)
    best, count = np.empty(runs), np.empty(runs, dtype=np.int64)
    for t in range(steps):
        i = order[place]
        place = place + 1 if place + 1 < order.size else 0
        counter = np.uint64(number + stride * t) * np.uint64(k)
        for c in range(runs):
            best[c] = np.inf
            count[c] = 0
        for a in range(k):
            fast, w = earliest[a], unary[i, a]
            for c in range(runs):
                time = arrival(mix(key[c] + gamma[c] * counter)) * w
                fast[c] = time
                slow[c] = time
            counter += np.uint64(1)
            for e in range(start[i], start[i + 1]):
                j, f = neighbor[e], delay[e]
                if f <= 1.0:
                    _scale(f, x[j * k + a], x[n * k + j], fast, slow)
                else:
                    _scale(f, x[j * k + a], x[n * k + j], slow, fast)
            for c in range(runs):
                best[c] = min(best[c], slow[c])
        for a in range(k):
            row, fast = x[i * k + a], earliest[a]
            for c in range(runs):
                possible = fast[c] <= best[c]
                row[c] = possible
                count[c] += possible
        alone = x[n * k + i]
        for c in range(runs):
            alone[c] = count[c] == 1


@kernel
def _scale(f, there, alone, possible, certain):
    """Multiply `possible` by f in runs where the label is possible, and `certain` where it is the only possible one."""
    for c in range(possible.size):
        possible[c] *= f if there[c] else 1.0
        certain[c] *= f if there[c] & alone[c] else 1.0


# If a factor's members have at most MAX_CELLS joint states, and there are at least MIN_RUNS runs, loops visit all joint
# states for all runs side by side; otherwise they visit only the possible joint states, run by run.
MAX_CELLS, MIN_RUNS = 256, 8


@kernel
def set_race(order, place, steps, number, stride, K, states, first, f_start, m_start, member, m_stride, own_stride, base, table, keys, x):  # fmt: skip  # noqa: E501
    """Update bounding sets of any model: label a arrives at log-time ln E_a - s_a, and the first label wins.

    E_a is an exponential random time and s_a the log-weight of the label. Let lo_a and hi_a be the least and the
    largest s_a over the neighbours' sets. Label a stays possible if ln E_a - hi_a <= ln E_b - lo_b for all other labels
    b. Row first[i] + a of x says whether label a of variable i is possible.
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
        place = place + 1 if place + 1 < order.size else 0
        k = states[i]
        lo[:k] = 0.0
        hi[:k] = 0.0
        for f in range(f_start[i], f_start[i + 1]):
            members, strides = member[m_start[f] : m_start[f + 1]], m_stride[m_start[f] : m_start[f + 1]]
            least[:k] = np.inf
            most[:k] = -np.inf
            cells = 1
            for m in range(members.size):
                cells = min(cells * states[members[m]], MAX_CELLS + 1)
            if cells <= MAX_CELLS and runs >= MIN_RUNS:
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
            early, late = hi[a], lo[a]  # from here on the earliest and the latest time of a label
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
            if count[c] == 0:  # these sets allow no state at all, so that every state stays possible
                for a in range(k):
                    x[first[i] + a, c] = 1


@kernel
def _range_side_by_side(states, first, members, strides, base, own_stride, table, x, k, digit, allowed, least, most):
    """Find a factor's least and largest entry for each label of a variable, for all runs side by side.

    The other variables of the factor (its members) range over their possible labels.
    """
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
    """Find a factor's least and largest entry for each label of a variable, run by run.

    The other variables of the factor (its members) range over their possible labels.
    """
    before = np.int64(-1)  # before the first label; a literal would have another type for Numba
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
    """Return the next possible label of a variable after `label`, or its number of states if there is none."""
    label += 1
    while label < states and not x[first + label, c]:
        label += 1
    return label


@kernel
def settled_labels(x, first, states, rows, out):
    """Set out[v, run] to the label of a variable if it has coalesced in that run, else to -1."""
    before = np.int64(-1)
    for v in range(rows.size):
        i = rows[v]
        for c in range(out.shape[1]):
            label = next_label(x, first[i], states[i], before, c)
            out[v, c] = label if next_label(x, first[i], states[i], label, c) == states[i] else -1
