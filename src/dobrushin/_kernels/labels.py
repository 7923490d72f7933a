"""Gibbs updates of variables with any number of states: Potts models and general factors.

States have the layout [variable, chain]. Lists of steps are as in `spins`; the chains share the list.
"""

import numpy as np

from dobrushin._kernels.generator import START, below, mix
from dobrushin._shared.compile import kernel

UNIT = 2.0**-53


@kernel
def start_labels(ids, states, keys, x):
    """Set every variable to a uniform random state.

    `states` has a single entry if all variables have equally many states.
    """
    for v in range(ids.size):
        k = states[v] if states.size > 1 else states[0]
        for c in range(keys.shape[1]):
            random = mix(keys[0, c] + keys[1, c] * (START + np.uint64(ids[v])))
            x[v, c] = below(random, k)


@kernel
def potts_chain(order, number, repeats, base, period, start, neighbor, strength, unary, key, gamma, x):
    """Run a list of steps in one chain of a Potts model; `strength` and `unary` are exponentials of log-potentials.

    The new state is the number of partial sums of the weights that are at most u times the total weight, for a uniform
    random number u.
    """
    k = unary.shape[1]
    flat = unary.ravel()
    weight = np.empty(k)
    for _ in range(repeats):
        for step in range(order.size):
            i = order[step]
            for a in range(k):
                weight[a] = flat[i * k + a]
            for e in range(start[i], start[i + 1]):
                weight[x[neighbor[e]]] *= strength[e]
            total = 0.0
            for a in range(k):
                total += weight[a]
                weight[a] = total
            u = np.float64(mix(key + gamma * np.uint64(base + number[step])) >> np.uint64(11)) * UNIT * total
            label = 0
            for a in range(k - 1):
                label += weight[a] <= u
            x[i] = label
        base += period


@kernel
def potts_lanes(order, number, repeats, base, period, start, neighbor, strength, unary, keys, x):
    """Run a list of steps of a Potts model in chains side by side, with the same draws as `potts_chain`."""
    k, chains = unary.shape[1], keys.shape[1]
    weight = np.empty((k, chains))
    key, gamma = keys[0], keys[1]
    for _ in range(repeats):
        for step in range(order.size):
            i = order[step]
            for a in range(k):
                for c in range(chains):
                    weight[a, c] = unary[i, a]
            for e in range(start[i], start[i + 1]):
                f = strength[e]
                other = x[neighbor[e]]
                for a in range(k):
                    row = weight[a]
                    for c in range(chains):
                        row[c] *= f if other[c] == a else 1.0
            for a in range(1, k):
                for c in range(chains):
                    weight[a, c] += weight[a - 1, c]
            counter = np.uint64(base + number[step])
            own = x[i]
            for c in range(chains):
                u = np.float64(mix(key[c] + gamma[c] * counter) >> np.uint64(11)) * UNIT * weight[k - 1, c]
                label = 0
                for a in range(k - 1):
                    label += weight[a, c] <= u
                own[c] = label
        base += period


@kernel
def factor_steps(order, number, repeats, base, period, states, f_start, member_start, member, stride, own_stride, table_start, table, keys, x):  # fmt: skip  # noqa: E501
    """Run a list of steps of any factor graph by adding log-potentials.

    Forbidden states (-inf) have weight exactly 0.
    """
    chains = keys.shape[1]
    weight = np.empty(states.max())
    for _ in range(repeats):
        for step in range(order.size):
            i = order[step]
            k = states[i]
            counter = np.uint64(base + number[step])
            for c in range(chains):
                for a in range(k):
                    weight[a] = 0.0
                for f in range(f_start[i], f_start[i + 1]):
                    cell = table_start[f]
                    for m in range(member_start[f], member_start[f + 1]):
                        cell += x[member[m], c] * stride[m]
                    for a in range(k):
                        weight[a] += table[cell + a * own_stride[f]]
                top = weight[0]
                for a in range(1, k):
                    top = max(top, weight[a])
                total = 0.0
                for a in range(k):
                    total += np.exp(weight[a] - top)
                    weight[a] = total
                u = np.float64(mix(keys[0, c] + keys[1, c] * counter) >> np.uint64(11)) * UNIT * total
                label = 0
                for a in range(k - 1):
                    label += weight[a] <= u
                x[i, c] = label
        base += period


@kernel
def partial_sums(q):
    """Return 2^64 times the partial sums of probabilities, and the last variable with a positive probability.

    Sums have twice the usual precision, with an error of about one unit. From the last variable with a positive
    probability on, they are 2^64 - 1.
    """
    thresholds = np.empty(q.size, dtype=np.uint64)
    high, low = 0.0, 0.0
    last = 0
    for i in range(q.size):
        total = high + q[i]
        part = total - high
        low += (high - (total - part)) + (q[i] - part)
        high = total
        if q[i] > 0.0:
            last = i
        scaled = min(high * 2.0**64, 2.0**64 - 2048.0)
        thresholds[i] = np.uint64(scaled) + np.uint64(np.int64(low * 2.0**64))
    for i in range(last, q.size):
        thresholds[i] = ~np.uint64(0)
    return thresholds, last


@kernel
def draw_order(first, steps, n, thresholds, last, key, gamma, choice, out):
    """Draw the variables that random steps update; step t has number first + t.

    They are uniform on n variables if there are no thresholds.
    """
    for t in range(steps):
        random = mix(key + gamma * (choice + np.uint64(first + t)))
        if thresholds.size == 0:
            out[t] = below(random, n)
        else:
            out[t] = min(np.searchsorted(thresholds, random, side="right"), last)


@kernel
def count_labels(x, rows, counts):
    """Add to counts[v, state] the number of chains in which the variable of rows[v] is in that state."""
    for v in range(rows.size):
        for c in range(x.shape[1]):
            counts[v, np.int64(x[rows[v], c])] += 1
