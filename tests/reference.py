"""Literal, dense and slow versions of every algorithm: what the fast code must agree with."""

from __future__ import annotations

import itertools

import numpy as np


def step_matrix(q, C_bar):
    """B(q) = I - diag(q)(I - C)."""
    eye = np.eye(len(q))
    return eye - np.diag(q) @ (eye - C_bar)


def disagreement(C_bar, vectors, cap=None, initial=None, error=None, clamp=True):
    """b_T of the recursion b_t = B(q_t) b_{t-1}; clamped as on the theory page, "Clamps, caps and update errors"."""
    n = len(C_bar)
    cap = np.ones(n) if cap is None else cap
    error = np.zeros(n) if error is None else error
    b = np.ones(n) if initial is None else np.array(initial, dtype=float)
    for q in vectors:
        if clamp:
            b = (1 - q) * b + q * np.minimum(1, np.minimum(cap, C_bar @ b) + error)
        else:
            b = step_matrix(q, C_bar) @ b
    return b


def one_hot(order, n):
    """The vectors q_t of a fixed order."""
    return [np.eye(n)[i] for i in order]


def dogs(C_bar, vectors, d, tolerance=-np.inf):
    """Algorithm 2 with V <- V + (q*_t - q_t)' w; returns the new vectors q*."""
    n, T = len(C_bar), len(vectors)
    eye = np.eye(n)
    b = [np.ones(n)]
    for q in vectors:
        b.append(step_matrix(q, C_bar) @ b[-1])
    d = np.array(d, dtype=float)
    V = d @ b[T]
    chosen = list(vectors)
    for t in range(T, 0, -1):
        if tolerance >= V:
            break
        w = -d * ((eye - C_bar) @ b[t - 1])
        best = int(np.argmin(w))
        # On a tie a fixed step stays.
        tie = vectors[t - 1].max() == 1 and not w[best] < vectors[t - 1] @ w - 2.0**-44 * V
        new = vectors[t - 1] if tie else eye[best]
        V += (new - vectors[t - 1]) @ w
        chosen[t - 1] = new
        d = d @ step_matrix(new, C_bar)
    return chosen


def backward_greedy(C_bar, d, steps):
    """Prepend argmax d, pull back; the last step is chosen first."""
    d = np.array(d, dtype=float)
    order = []
    for _ in range(steps):
        i = int(np.argmax(d))
        order.insert(0, i)
        x, d[i] = d[i], 0.0
        d = d + x * C_bar[i]
    return order


def forward_greedy(C_bar, steps):
    """Append argmax of b - C b."""
    b = np.ones(len(C_bar))
    order = []
    for _ in range(steps):
        i = int(np.argmax(b - C_bar @ b))
        b[i] = C_bar[i] @ b
        order.append(i)
    return order


def best_order(C_bar, d, steps):
    """The optimum over all orders, by exhaustive search."""
    n = len(C_bar)
    return min(
        (float(d @ disagreement(C_bar, one_hot(order, n), clamp=False)), order)
        for order in itertools.product(range(n), repeat=steps)
    )


def theorem_4(unary, tables, j, with_unaries):
    """Influence of neighbour j on a variable by Theorem 4, in time states^4.

    tables[k] has the variable's own labels as rows and the values of neighbour k as columns.
    """
    worst = 0.0
    for x, y in itertools.combinations(range(tables[j].shape[1]), 2):
        theta_x, theta_y = tables[j][:, x], tables[j][:, y]
        here = (unary > -np.inf) & ((theta_x > -np.inf) | (theta_y > -np.inf))
        if np.isinf(theta_x[here]).any() or np.isinf(theta_y[here]).any():
            return 1.0
        labels = here.nonzero()[0]
        change = {a: theta_x[a] - theta_y[a] for a in labels}
        D = max((change[a] - change[b] for a in labels for b in labels), default=0.0)
        h = 0.0
        for winner in labels if with_unaries else ():
            total = 0.0
            for a in labels:
                if a != winner:
                    others = sum(lead(tables[k], a, winner) for k in range(len(tables)) if k != j)
                    middle = (theta_x[a] + theta_y[a] - theta_x[winner] - theta_y[winner]) / 2
                    total += np.exp(unary[a] - unary[winner] + middle + others)
            if 0 < total < 1:
                h = max(h, -np.log(total))
        worst = max(worst, np.sinh(D / 2) / (np.cosh(h) + np.cosh(D / 2)))
    return worst


def lead(table, a, b):
    """The most that a neighbour can favour label a over label b."""
    if np.isneginf(table[b]).any():
        return np.inf
    return 0.0 if np.isneginf(table[a]).all() else max(table[a] - table[b])


def range_of_factors(tables):
    """D of the range of the factors: tables have the own label first, the neighbour second, then all others."""
    count = tables[0].shape[1]
    return max((sum(largest_difference(table, x, y) for table in tables) for x, y in itertools.combinations(range(count), 2)), default=0.0)  # fmt: skip  # noqa: E501


def largest_difference(table, x, y):
    """Largest double difference between the values x and y of the second axis."""
    worst = 0.0
    for rest in itertools.product(*map(range, table.shape[2:])):
        theta_x, theta_y = table[(slice(None), x, *rest)], table[(slice(None), y, *rest)]
        here = (theta_x > -np.inf) | (theta_y > -np.inf)
        if np.isinf(theta_x[here]).any() or np.isinf(theta_y[here]).any():
            return np.inf
        if here.any():
            worst = max(worst, np.ptp(theta_x[here] - theta_y[here]))
    return worst


def coarse_range_of_factors(tables, values=2):
    """The sum of the largest distances from the mean, summed over the factors; `values` other than 2 is no bound."""
    distance = np.zeros(tables[0].shape[1])
    for table in tables:
        farthest = np.zeros(table.shape[1])
        for rest in itertools.product(*map(range, table.shape[2:])):
            part = table[(slice(None), slice(None), *rest)]
            part = part[~np.isneginf(part).all(axis=1)]
            if np.isneginf(part).any():
                return np.inf
            if len(part):
                farthest = np.maximum(farthest, np.ptp(part - part.mean(axis=1, keepdims=True), axis=0))
        distance += farthest
    return np.sort(distance)[-values:].sum() if len(distance) > 1 else 0.0


def levels(order, adjacency):
    """Longest chain of dependent steps before each step."""
    level = []
    for t, i in enumerate(order):
        before = [level[s] for s in range(t) if order[s] == i or adjacency[order[s], i]]
        level.append(1 + max(before) if before else 0)
    return level


# -- sampling: the same random bits, one draw at a time ------------------------------------

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
CHOICE, START = 2**62, 2**63
BIT_KERNELS = ("bits", "counts")  # 64 chains share a stream


def mix(z):
    """SplitMix64's output function, in Python's integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def stream(master, s):
    """Key and increment of stream s."""
    key = mix((int(master[0]) + GOLDEN * s) & MASK)
    gamma = mix((int(master[1]) + GOLDEN * s) & MASK) | 1
    return key, gamma ^ 0xAAAAAAAAAAAAAAAA if bin(gamma ^ (gamma >> 1)).count("1") < 24 else gamma


def word(keys, counter):
    """Word number `counter` of a stream."""
    key, gamma = keys
    return mix((key + gamma * counter) & MASK)


def sample(model, scan, chains, master, kernel, initial=None):
    """Final states 0..k-1, shape (chains, n), drawn one by one with the random bits that belong to each step."""
    n = model.n_variables
    spins = -1 in model.states(0)
    out = np.empty((chains, n), dtype=int)
    for c in range(chains):
        keys = stream(master, c // 64 if kernel in BIT_KERNELS else c)
        if initial is not None:
            x = np.array(initial)
        elif kernel in BIT_KERNELS:
            x = np.array([(word(keys, START + v) >> (c % 64)) & 1 for v in range(n)])
        else:
            x = np.array([(word(keys, START + v) * int(model.cardinalities[v])) >> 64 for v in range(n)])
        for t in range(len(scan)):
            q = scan.step_probabilities(t, n)
            if q.max() == 1:
                i = int(q.argmax())
            else:
                i = int(np.searchsorted(np.cumsum(q), word(keys, CHOICE + t) / 2.0**64, side="right"))
            p = model.conditional(i, 2 * x - 1 if spins else x)
            x[i] = draw(p, keys, t, c, kernel)
        out[c] = x
    return out


def draw(p, keys, t, c, kernel):
    """One label, as the kernel draws it."""
    if kernel in BIT_KERNELS:
        u = 0
        for plane in range(64):
            u = 2 * u + ((word(keys, 64 * t + plane) >> (c % 64)) & 1)
        return int(u < p[1] * 2.0**64)
    w = word(keys, t)
    if kernel == "table":
        return int((w >> 1) < p[1] * 2.0**63)
    if kernel in ("field", "dense"):
        return int((w >> 11) < p[1] * 2.0**53)
    return int((np.cumsum(p)[:-1] <= (w >> 11) * 2.0**-53).sum())


def weight_ranges(graph, sets, i):
    """Smallest and largest log-weight of each label of i over the sets of its neighbours: factor by factor."""
    size = int(graph.cardinalities[i])
    low, high = np.zeros(size), np.zeros(size)
    for k in range(graph.n_factors):
        scope, table = graph.factor(k)
        if i not in scope:
            continue
        others = [v for v in scope if v != i]
        rows = []
        for values in itertools.product(*(sorted(sets[v]) for v in others)):
            chosen = dict(zip(others, values, strict=True))
            rows.append([table[tuple(a if v == i else chosen[v] for v in scope)] for a in range(size)])
        low += np.min(rows, axis=0)
        high += np.max(rows, axis=0)
    return low, high


def race_set(graph, sets, i, times):
    """Labels that can be first, if label a arrives between E_a exp(-hi_a) and E_a exp(-lo_a).

    Theory page, "More states: the race".
    """
    low, high = weight_ranges(graph, sets, i)
    logs = np.log(times)
    result = set()
    for a in range(len(low)):
        others = [logs[b] - low[b] for b in range(len(low)) if b != a]
        if high[a] > -np.inf and logs[a] - high[a] <= min(others):
            result.add(a)
    return result or set(range(len(low)))


def partition_set(graph, sets, i, u):
    """Unsound from the past: u is cut into pieces as long as the smallest chance of each label; the rest is open."""
    size = int(graph.cardinalities[i])
    others = [v for v in range(graph.n_variables) if v != i]
    least = np.ones(size)
    for values in itertools.product(*(sorted(sets[v]) for v in others)):
        state = np.zeros(graph.n_variables, dtype=int)
        state[others] = values
        least = np.minimum(least, graph.conditional(i, state))
    label = int(np.searchsorted(np.cumsum(least), u, side="right"))
    return {label} if label < size else set(range(size))


def one_cut_set(graph, sets, i, u):
    """Unsound: u is cut once for all neighbours, at the largest partial sums of the chances of the labels."""
    others = [v for v in range(graph.n_variables) if v != i]
    largest = np.zeros(int(graph.cardinalities[i]))
    for values in itertools.product(*(sorted(sets[v]) for v in others)):
        state = np.zeros(graph.n_variables, dtype=int)
        state[others] = values
        largest = np.maximum(largest, np.cumsum(graph.conditional(i, state)))
    return {int(np.searchsorted(largest, u, side="right"))}


def cut_table(table, inside, digits):
    """What is left of a table when the variables of some axes are in given states."""
    return table[tuple(slice(None) if free else digit for free, digit in zip(inside, digits, strict=True))]


def distances(adjacency, centre):
    """Edges between each variable and a centre."""
    distance = np.full(len(adjacency), np.inf)
    distance[centre] = 0
    for ring in range(1, len(adjacency)):
        near = adjacency[distance == ring - 1].any(axis=0) & np.isinf(distance)
        distance[near] = ring
    return distance


def spread(scope, table, sizes):
    """A table over some variables as one over all of them, repeated along the others."""
    order = sorted(range(len(scope)), key=lambda k: scope[k])
    shape = [sizes[v] if v in scope else 1 for v in range(len(sizes))]
    return np.broadcast_to(np.transpose(table, order).reshape(shape), sizes)


def mini_buckets(buckets, tables, tops, sizes):
    """The logarithms of q(x), and of C_v(x) of each bucket, at all joint states.

    A bucket is its variable, the numbers of its tables and those of its messages; tables are pairs of a scope and logs.
    What was taken from the logs of a message when it was sent is in `tops`.
    """
    log_q, log_C = np.zeros(sizes), []
    with np.errstate(invalid="ignore", divide="ignore"):
        for v, own, messages in buckets:
            product = sum((spread(*tables[k], sizes) for k in own), np.zeros(sizes))
            F = np.broadcast_to(np.log(np.exp(product).sum(axis=v, keepdims=True)), sizes)
            log_q = log_q + np.where(product > -np.inf, product - F, -np.inf)
            sent = sum((spread(*tables[k], sizes) + tops[k] for k in messages), np.zeros(sizes))
            log_C.append(np.where(-np.inf < F, F - sent, -np.inf))
    return log_q, log_C


def hoelder(groups, v, sizes):
    """The messages of mini-buckets with equal exponents: m_r(S_r) = (sum_v psi_r^R)^(1/R), in logarithms."""
    R = len(groups)
    with np.errstate(divide="ignore"):
        return [np.log(np.exp(R * spread(*group, sizes)).sum(axis=v, keepdims=True)) / R for group in groups]


def weighted_wealth(y, z, bets, share, p, sign):
    """The wealth of a gambler on the weights, one factor after the other."""
    room = p if sign > 0 else 1 - p
    wealth = 1.0
    for a, b, size in zip(y, z, bets, strict=True):
        wealth *= 1 + sign * min(size, share / room if room else np.inf) * (a - p * b)
    return wealth


def clusters_from_past(ends, low, high, n, keys, sweeps):
    """Clusters at time 0 of the upper and the lower chain, all edges open and all closed `sweeps` sweeps before.

    Edges join pairs of 0..n, n for the ghost; probabilities `low` and `high` are in units of 2^-53. The number of a
    cluster is that of its last vertex.
    """
    chains = [[True] * len(ends), [False] * len(ends)]
    for time in range(sweeps, 0, -1):
        for e, (u, v) in enumerate(ends):
            draw = word(keys, (time - 1) * len(ends) + e) >> 11
            for is_open in chains:
                is_open[e] = False
                cluster = connected([pair for pair, there in zip(ends, is_open, strict=True) if there], n + 1)
                is_open[e] = draw < (high[e] if cluster[u] == cluster[v] else low[e])
    return [connected([p for p, there in zip(ends, is_open, strict=True) if there], n + 1) for is_open in chains]


def connected(pairs, n):
    """The last vertex that each one is connected with."""
    last = list(range(n))
    for _ in range(n):
        for u, v in pairs:
            last[u] = last[v] = max(last[u], last[v])
    return last


def walk_tree_odds(tables, unaries, root, larger_is_one=True):
    """Odds of a binary variable by its whole tree of self-avoiding walks, one walk after the other.

    `tables[i, j][a, b]` is the weight of state a of i beside b of j, for both orders of each pair. A walk that comes
    back to a variable ends there in state 1 if it comes by a neighbour with a larger number than it left by.
    """

    def odds(walk):
        u = walk[-1]
        value = unaries[u][1] / unaries[u][0]
        for w in sorted(j for i, j in tables if i == u):
            table = tables[u, w]
            if len(walk) > 1 and w == walk[-2]:
                continue
            if w in walk:
                is_one = (u > walk[walk.index(w) + 1]) == larger_is_one
                value *= table[1, 1] / table[0, 1] if is_one else table[1, 0] / table[0, 0]
            else:
                R = odds([*walk, w])
                value *= (table[1, 0] + table[1, 1] * R) / (table[0, 0] + table[0, 1] * R)
        return value

    return odds([root])
