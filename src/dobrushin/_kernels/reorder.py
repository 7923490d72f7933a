"""Search that improves an elimination order by re-ordering small connected pieces of its elimination tree.

The bag of a variable is the variable with its separator: the neighbours that it has when it is eliminated. Its parent
is the first variable of its separator to be eliminated. A connected piece of the tree sees the rest of the graph only
through the separators of its root and of the children that hang below the piece. So a piece can be re-ordered alone:
only the bags of its own variables change.

A tree is a tuple (separator, count, parent, child, sibling, entries): the separator of v is separator[v, : count[v]],
and child[v] is the first of its children, which follow each other by `sibling`. Sets of variables are rows of bits.
"""

import math

import numpy as np

from dobrushin._kernels.orders import CLIQUE, WEIGHTED_FILL, bit, count_bits, members_of, shuffled
from dobrushin._shared.compile import kernel

# Largest separator and largest piece that the search handles.
MAX_SEPARATOR, MAX_PIECE = 96, 60
# Orders that are tried for each piece, and the share of them that weigh new edges (the others keep cliques small).
_TRIES, _WEIGHTED_SHARE = 4, 0.6
# After this share of the work only improvements are accepted; the temperature before, as a share of all entries.
_COLD, _TEMPERATURE = 0.83, 0.05


@kernel
def reorder(start, indices, sizes, order, seed, work_limit):
    """Return an elimination order with fewer table entries, if `work_limit` units of work find one.

    Large-neighbourhood search with simulated annealing. Returns the order and its number of entries. If a separator has
    more than `MAX_SEPARATOR` members, the given order is returned with infinitely many entries.
    """
    n, most = len(order), MAX_PIECE + MAX_SEPARATOR
    separator, count = np.empty((n, MAX_SEPARATOR), dtype=np.int32), np.zeros(n, dtype=np.int64)
    parent, child = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    sibling, entries = np.full(n, -1, dtype=np.int64), np.empty(n, dtype=np.float64)
    tree = separator, count, parent, child, sibling, entries
    if not _build_tree(start, indices, sizes, order, tree):
        return order.copy(), np.inf
    weight = np.log2(sizes)
    # The piece, then its boundary: the separator of its root. `place` is where a variable stands there, or -1.
    members = np.empty(most, dtype=np.int64)
    place = np.full(n, -1, dtype=np.int64)
    near = np.zeros((most, (most + 63) // 64), dtype=np.uint64)
    bags = np.zeros((2, MAX_PIECE, near.shape[1]), dtype=np.uint64)
    orders = np.empty((2, MAX_PIECE), dtype=np.int64)
    state = np.uint64(seed * 2 + 1) * np.uint64(0x9E3779B97F4A7C15)
    total = entries.sum()
    work = 0
    while work < work_limit:
        size, root, state, steps = _grow(tree, place, members, state)
        work += steps
        old = 0.0
        for k in range(size):
            old += entries[members[k]]
        m = size + count[root]
        for k in range(size, m):
            members[k] = separator[root, k - size]
        work += _local_graph(start, indices, tree, place, members, near, size, m)
        state, draw = _uniform(state)
        tau = _TEMPERATURE * max(0.0, 1.0 - work / (_COLD * work_limit))
        best = old - tau * total * math.log(draw)
        chosen = -1
        for _ in range(_TRIES):
            state, draw = _uniform(state)
            rule = WEIGHTED_FILL if draw < _WEIGHTED_SHARE else CLIQUE
            into = 1 - chosen if chosen >= 0 else 0
            state, made, steps = _try_order(
                near[:m], sizes, weight, members, size, rule, bags[into], orders[into], best, state
            )
            work += steps
            if made <= best:
                best, chosen = made, into
        if chosen >= 0:
            total += best - old
            _accept(tree, place, members, sizes, size, m, root, bags[chosen], orders[chosen])
        for k in range(m):
            place[members[k]] = -1
    return _postorder(parent, child, sibling), entries.sum()


@kernel
def _uniform(state):
    state = shuffled(state)
    return state, (np.float64(state >> np.uint64(11)) + 0.5) * 2.0**-53


@kernel
def _build_tree(start, indices, sizes, order, tree):
    """Fill in the elimination tree of an order; return whether its separators are small enough."""
    separator, count, _, child, sibling, entries = tree
    n = len(order)
    rank = np.empty(n, dtype=np.int64)
    for k in range(n):
        rank[order[k]] = k
    seen = np.full(n, -1, dtype=np.int64)
    found = np.empty(n, dtype=np.int64)
    for k in range(n):
        v = order[k]
        seen[v] = v
        size = 0
        for e in range(start[v], start[v + 1]):
            if rank[indices[e]] > k:
                size = _add_new(indices[e], v, seen, found, size)
        c = child[v]
        while c >= 0:
            for e in range(count[c]):
                size = _add_new(np.int64(separator[c, e]), v, seen, found, size)
            c = sibling[c]
        if size > MAX_SEPARATOR:
            return False
        first, product = -1, sizes[v]
        for e in range(size):
            u = found[e]
            separator[v, e] = u
            product *= sizes[u]
            if first < 0 or rank[u] < rank[first]:
                first = u
        count[v], entries[v] = size, product
        if first >= 0:
            _hang(tree, v, first)
    return True


@kernel
def _add_new(u, v, seen, found, size):
    """Append u to the variables found for v if it is not among them; return how many there are."""
    if seen[u] == v:
        return size
    seen[u] = v
    found[size] = u
    return size + 1


@kernel
def _hang(tree, v, up):
    _, _, parent, child, sibling, _ = tree
    parent[v] = up
    sibling[v] = child[up]
    child[up] = v


@kernel
def _grow(tree, place, members, state):
    """Choose a connected piece of the elimination tree around a large bag (clique of an eliminated variable).

    Return its size, its root, the next state of the random generator, and the work done.
    """
    _, _, parent, child, sibling, entries = tree
    n = len(entries)
    state, draw = _uniform(state)
    looks = int(2.0 ** (7.0 * draw))
    centre = -1
    for _ in range(looks):
        state, draw = _uniform(state)
        v = int(draw * n)
        if centre < 0 or entries[v] > entries[centre]:
            centre = v
    state, draw = _uniform(state)
    wanted = min(int(6.0 * 10.0**draw), MAX_PIECE)
    state, draw = _uniform(state)
    mode = int(3.0 * draw)  # the next variable: any, the one that waits longest, or the one with the largest bag
    frontier = np.empty(MAX_PIECE, dtype=np.int64)
    size, root, waiting, work = 0, centre, 1, looks
    frontier[0] = centre
    place[centre] = 0
    while size < wanted and waiting > 0:
        at = 0
        if mode == 0:
            state, draw = _uniform(state)
            at = int(draw * waiting)
        elif mode == 2:
            for k in range(1, waiting):
                if entries[frontier[k]] > entries[frontier[at]]:
                    at = k
        v = frontier[at]
        waiting -= 1
        if mode == 1:
            for k in range(waiting):
                frontier[k] = frontier[k + 1]
        else:
            frontier[at] = frontier[waiting]
        members[size] = v
        size += 1
        if v == parent[root]:
            root = v
        work += waiting + 4
        u = parent[v]
        if u >= 0 and place[u] < 0 and v == root and waiting < MAX_PIECE:
            place[u] = 0
            frontier[waiting] = u
            waiting += 1
        u = child[v]
        while u >= 0:
            if place[u] < 0 and waiting < MAX_PIECE:
                place[u] = 0
                frontier[waiting] = u
                waiting += 1
            work += 1
            u = sibling[u]
    for k in range(waiting):
        place[frontier[k]] = -1
    for k in range(size):
        place[members[k]] = k
    return size, root, state, work


@kernel
def _local_graph(start, indices, tree, place, members, near, size, m):
    """Fill in the graph over a piece and its surrounding separators; return the work done.

    It has the edges of the model, and a clique on the separator of the root and of each child that hangs below.
    """
    separator, count, _, child, sibling, _ = tree
    words = near.shape[1]
    work = m * words
    clique = np.zeros(words, dtype=np.uint64)
    for k in range(size, m):
        place[members[k]] = k
        clique[k >> 6] |= bit(k)
    for k in range(m):
        for w in range(words):
            near[k, w] = clique[w] if k >= size else np.uint64(0)
    for k in range(size):
        v = members[k]
        for e in range(start[v], start[v + 1]):
            j = place[indices[e]]
            if j >= 0:
                near[k, j >> 6] |= bit(j)
                near[j, k >> 6] |= bit(k)
        work += start[v + 1] - start[v]
        c = child[v]
        while c >= 0:
            if place[c] < 0:
                clique[:] = np.uint64(0)
                for e in range(count[c]):
                    j = place[separator[c, e]]
                    clique[j >> 6] |= bit(j)
                for e in range(count[c]):
                    for w in range(words):
                        near[place[separator[c, e]], w] |= clique[w]
                work += count[c] * (words + 1)
            c = sibling[c]
    for k in range(m):
        near[k, k >> 6] &= ~bit(k)
    return work


@kernel
def _try_order(near, sizes, weight, members, size, rule, bags, order, limit, state):
    """Find an order of the piece greedily, by a rule with random noise; write it and its separators.

    Returns the state of the generator, the entries of the bags (infinite if over the limit), and the work done.
    """
    m = len(near)
    words = ((m - 1) >> 6) + 1
    trial = near[:, :words].copy()
    ring = np.empty(m, dtype=np.int64)
    noise, cost = np.empty(size), np.full(size, -1.0)  # -1: to be computed
    work = m * words
    for k in range(size):
        state, first = _uniform(state)
        state, second = _uniform(state)
        normal = math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)
        noise[k] = math.exp(0.5 * normal)
    total = 0.0
    for step in range(size):
        at = size
        for k in range(size):
            if cost[k] == np.inf:
                continue
            if cost[k] < 0.0:
                value, steps = _noiseless_cost(trial, weight, members, k, rule, ring)
                cost[k] = value * noise[k]
                work += steps
            if at == size or cost[k] < cost[at]:
                at = k
        work += size
        order[step] = at
        cost[at] = np.inf
        product, held = sizes[members[at]], members_of(trial, at, ring)
        for k in range(held):
            product *= sizes[members[ring[k]]]
        total += product
        if total > limit or held > MAX_SEPARATOR:
            return state, np.inf, work
        for w in range(bags.shape[1]):
            bags[at, w] = trial[at, w] if w < words else np.uint64(0)
        for k in range(held):
            u = ring[k]
            for w in range(words):
                trial[u, w] |= trial[at, w]
            trial[u, u >> 6] &= ~bit(u)
            trial[u, at >> 6] &= ~bit(at)
        work += held * words
        # The costs of those who see a change are computed again.
        for k in range(size):
            if 0.0 <= cost[k] < np.inf:
                for w in range(words):
                    if trial[k, w] & trial[at, w] or trial[at, k >> 6] & bit(k):
                        cost[k] = -1.0
                        break
    return state, total, work


@kernel
def _noiseless_cost(trial, weight, members, v, rule, ring):
    """Return the cost of eliminating a variable of the piece by the rule, and the work of computing it."""
    words = trial.shape[1]
    degree = members_of(trial, v, ring)
    total, work = 0.0, words * (degree + 1)
    for k in range(degree):
        u = ring[k]
        if rule == CLIQUE:
            total += weight[members[u]]
            continue
        for w in range(words):
            missing = trial[v, w] & ~trial[u, w]
            if w == u >> 6:
                missing &= ~bit(u)
            while missing:
                low = missing & (~missing + np.uint64(1))
                missing ^= low
                total += weight[members[u]] * weight[members[(w << 6) + count_bits(low - np.uint64(1))]]
                work += 1
    return total, work


@kernel
def _accept(tree, place, members, sizes, size, m, root, bags, order):
    """Replace the piece of the tree by its new order."""
    separator, count, parent, child, sibling, entries = tree
    above, after = parent[root], sibling[root]
    rank, ring = np.full(m, size, dtype=np.int64), np.empty(m, dtype=np.int64)
    for step in range(size):
        rank[order[step]] = step
    # Children that hang below the piece wait in one list.
    hanging = -1
    for k in range(size):
        c = child[members[k]]
        while c >= 0:
            following = sibling[c]
            if place[c] < 0:
                sibling[c] = hanging
                hanging = c
            c = following
        child[members[k]] = -1
    new_root = members[order[size - 1]]
    if above >= 0:
        if child[above] == root:
            child[above] = new_root
        else:
            c = child[above]
            while sibling[c] != root:
                c = sibling[c]
            sibling[c] = new_root
    for step in range(size):
        k = order[step]
        v = members[k]
        held, product = members_of(bags, k, ring), sizes[v]
        for e in range(held):
            separator[v, e] = members[ring[e]]
            product *= sizes[members[ring[e]]]
        count[v], entries[v] = held, product
        if step < size - 1:
            _hang(tree, v, members[_first(rank, ring[:held])])
    parent[new_root] = above
    sibling[new_root] = after
    while hanging >= 0:
        c, hanging = hanging, sibling[hanging]
        for e in range(count[c]):
            ring[e] = place[separator[c, e]]
        _hang(tree, c, members[_first(rank, ring[: count[c]])])


@kernel
def _first(rank, ring):
    first = ring[0]
    for k in ring:
        if rank[k] < rank[first]:
            first = k
    return first


@kernel
def _postorder(parent, child, sibling):
    """Return the variables of the tree so that children come before their parents."""
    n = len(parent)
    order, stack = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    waiting = 0
    for v in range(n):
        if parent[v] < 0:
            stack[waiting] = v
            waiting += 1
    for k in range(n - 1, -1, -1):  # parents before their children, written from the end
        waiting -= 1
        v = stack[waiting]
        order[k] = v
        u = child[v]
        while u >= 0:
            stack[waiting] = u
            waiting += 1
            u = sibling[u]
    return order
