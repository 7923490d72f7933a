"""Improve an order of elimination: re-order small connected pieces of its elimination tree, one after the other.

The bag of a variable is itself with its separator: the neighbours that it has when it is eliminated. Its parent is the
first of the separator to be eliminated. A piece T of the tree sees the rest of the graph only through the separator of
its root and those of the children that hang below T, so T can be re-ordered alone: only the bags of T change.
"""

import math

import numpy as np

from dobrushin._shared.compile import kernel

# Members of a separator, variables of a piece, and the words of bits that hold both.
MAX_SEPARATOR, MAX_PIECE, WORDS = 96, 60, 3
_TRIES = 4
_WEIGHTED, _FILL, _CLIQUE = 0, 1, 2
# After this share of the work only improvements are accepted; the temperature before, as a share of all entries.
_COLD, _TEMPERATURE = 0.83, 0.05


@kernel
def reorder(start, indices, sizes, order, seed, work_limit):
    """Return an order with fewer entries in all its bags, if `work_limit` units of work find one.

    Large-neighbourhood search with simulated annealing. Returns the order and its entries: infinitely many, with the
    order as it was given, where one of its separators has more than `MAX_SEPARATOR` members.
    """
    n = len(order)
    separator = np.empty((n, MAX_SEPARATOR), dtype=np.int32)
    count = np.zeros(n, dtype=np.int64)
    parent = np.full(n, -1, dtype=np.int64)
    child = np.full(n, -1, dtype=np.int64)
    sibling = np.full(n, -1, dtype=np.int64)
    entries = np.empty(n, dtype=np.float64)
    if not _build_tree(start, indices, sizes, order, separator, count, parent, child, sibling, entries):
        return order.copy(), np.inf
    weight = np.log2(sizes)
    place = np.full(n, -1, dtype=np.int64)
    piece = np.empty(MAX_PIECE, dtype=np.int64)
    frontier = np.empty(MAX_PIECE, dtype=np.int64)
    members = np.empty(MAX_PIECE + MAX_SEPARATOR, dtype=np.int64)
    near = np.zeros((MAX_PIECE + MAX_SEPARATOR, WORDS), dtype=np.uint64)
    trial = np.zeros((MAX_PIECE + MAX_SEPARATOR, WORDS), dtype=np.uint64)
    bags = np.zeros((2, MAX_PIECE, WORDS), dtype=np.uint64)
    orders = np.empty((2, MAX_PIECE), dtype=np.int64)
    noise = np.empty(MAX_PIECE, dtype=np.float64)
    cost = np.empty(MAX_PIECE, dtype=np.float64)
    state = np.uint64(seed * 2 + 1) * np.uint64(0x9E3779B97F4A7C15)
    total = entries.sum()
    work = 0
    while work < work_limit:
        size, root, state, steps = _grow(entries, parent, child, sibling, place, piece, frontier, state)
        work += steps
        old = 0.0
        for k in range(size):
            old += entries[piece[k]]
            members[k] = piece[k]
        m = size
        for k in range(count[root]):
            members[m] = separator[root, k]
            m += 1
        work += _local_graph(start, indices, separator, count, child, sibling, place, members, near, size, m)
        state, draw = _uniform(state)
        tau = _TEMPERATURE * max(0.0, 1.0 - work / (_COLD * work_limit))
        best = old - tau * total * math.log(draw)
        chosen = -1
        for _ in range(_TRIES):
            state, draw = _uniform(state)
            rule = _WEIGHTED if draw < 0.6 else _FILL if draw < 0.8 else _CLIQUE
            into = 1 - chosen if chosen >= 0 else 0
            state, made, steps = _try_order(
                near,
                trial,
                sizes,
                weight,
                members,
                size,
                m,
                _WEIGHTED if rule < 0.6 else _FILL if rule < 0.8 else _CLIQUE,
                noise,
                cost,
                bags[into],
                orders[into],
                best,
                state,
            )
            work += steps
            if made <= best:
                best, chosen = made, into
        if chosen >= 0:
            total += best - old
            _accept(
                separator,
                count,
                parent,
                child,
                sibling,
                entries,
                place,
                members,
                sizes,
                size,
                m,
                root,
                bags[chosen],
                orders[chosen],
            )
        for k in range(m):
            place[members[k]] = -1
    return _postorder(parent, child, sibling), entries.sum()


@kernel
def _uniform(state):
    """Return the next state of the generator, and a number in (0, 1)."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state, (np.float64(state >> np.uint64(11)) + 0.5) * 2.0**-53


@kernel
def _build_tree(start, indices, sizes, order, separator, count, parent, child, sibling, entries):
    """Write the elimination tree of an order with its separators; return whether these are small enough."""
    n = len(order)
    rank = np.empty(n, dtype=np.int64)
    for k in range(n):
        rank[order[k]] = k
    seen = np.full(n, -1, dtype=np.int64)
    for k in range(n):
        v = order[k]
        seen[v] = v
        c = child[v]
        size, first, product = 0, -1, sizes[v]
        for e in range(start[v], start[v + 1]):
            u = indices[e]
            if rank[u] > k and seen[u] != v:
                if size == MAX_SEPARATOR:
                    return False
                seen[u] = v
                separator[v, size] = u
                size += 1
        while c >= 0:
            for e in range(count[c]):
                u = separator[c, e]
                if seen[u] != v:
                    if size == MAX_SEPARATOR:
                        return False
                    seen[u] = v
                    separator[v, size] = u
                    size += 1
            c = sibling[c]
        for e in range(size):
            u = separator[v, e]
            product *= sizes[u]
            if first < 0 or rank[u] < rank[first]:
                first = u
        count[v], entries[v], parent[v] = size, product, first
        if first >= 0:
            sibling[v] = child[first]
            child[first] = v
    return True


@kernel
def _grow(entries, parent, child, sibling, place, piece, frontier, state):
    """Choose a connected piece around a large bag; return its size, its root, the generator's state, and the work."""
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
    mode = int(3.0 * draw)
    size, root, waiting, work = 0, centre, 1, looks
    frontier[0] = centre
    place[centre] = 0
    while size < wanted and waiting > 0:
        if mode == 0:
            state, draw = _uniform(state)
            at = int(draw * waiting)
        elif mode == 1:
            at = 0
        else:
            at = 0
            for k in range(1, waiting):
                if entries[frontier[k]] > entries[frontier[at]]:
                    at = k
        v = frontier[at]
        waiting -= 1
        if mode == 1:
            for k in range(at, waiting):
                frontier[k] = frontier[k + 1]
        else:
            frontier[at] = frontier[waiting]
        piece[size] = v
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
        place[piece[k]] = k
    return size, root, state, work


@kernel
def _local_graph(start, indices, separator, count, child, sibling, place, members, near, size, m):
    """Write the graph that the piece sees, and return the work.

    It has the edges of the model, and a clique on the separator of the root and of each child that hangs below.
    """
    work = m * WORDS
    for k in range(m):
        for w in range(WORDS):
            near[k, w] = np.uint64(0)
    for k in range(size, m):
        place[members[k]] = k
        for j in range(size, m):
            near[k, j >> 6] |= np.uint64(1) << np.uint64(j & 63)
    clique = np.zeros(WORDS, dtype=np.uint64)
    for k in range(size):
        v = members[k]
        for e in range(start[v], start[v + 1]):
            j = place[indices[e]]
            if j >= 0:
                near[k, j >> 6] |= np.uint64(1) << np.uint64(j & 63)
                near[j, k >> 6] |= np.uint64(1) << np.uint64(k & 63)
        work += start[v + 1] - start[v]
        c = child[v]
        while c >= 0:
            if place[c] < 0:
                clique[:] = np.uint64(0)
                for e in range(count[c]):
                    j = place[separator[c, e]]
                    clique[j >> 6] |= np.uint64(1) << np.uint64(j & 63)
                for e in range(count[c]):
                    j = place[separator[c, e]]
                    for w in range(WORDS):
                        near[j, w] |= clique[w]
                work += count[c] * (WORDS + 1)
            c = sibling[c]
    for k in range(m):
        near[k, k >> 6] &= ~(np.uint64(1) << np.uint64(k & 63))
    return work


@kernel
def _try_order(near, trial, sizes, weight, members, size, m, rule, noise, cost, bags, order, limit, state):
    """Eliminate the piece greedily by a rule with noise, and write the order and the separators.

    Returns the state of the generator, the entries of the bags (infinite if over the limit), and the work.
    """
    words = ((m - 1) >> 6) + 1
    work = m * words
    for k in range(m):
        for w in range(words):
            trial[k, w] = near[k, w]
    for k in range(size):
        state, first = _uniform(state)
        state, second = _uniform(state)
        normal = math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)
        noise[k] = math.exp(0.5 * normal)
        cost[k] = -1.0  # to be computed
    total = 0.0
    for step in range(size):
        at = -1
        for k in range(size):
            if cost[k] == np.inf:
                continue
            if cost[k] < 0.0:
                value, steps = _cost_of(trial, weight, members, k, words, rule)
                cost[k] = value * noise[k]
                work += steps
            if at < 0 or cost[k] < cost[at]:
                at = k
        work += size
        order[step] = at
        cost[at] = np.inf
        product, held = sizes[members[at]], 0
        for w in range(words):
            rest = trial[at, w]
            bags[at, w] = rest
            while rest:
                low = rest & (~rest + np.uint64(1))
                rest ^= low
                product *= sizes[members[(w << 6) + _count(low - np.uint64(1))]]
                held += 1
        total += product
        if total > limit or held > MAX_SEPARATOR:
            return state, np.inf, work
        # Join the neighbours; the costs of those who see a change are computed again.
        for w in range(words):
            rest = trial[at, w]
            while rest:
                low = rest & (~rest + np.uint64(1))
                rest ^= low
                u = (w << 6) + _count(low - np.uint64(1))
                for x in range(words):
                    trial[u, x] |= trial[at, x]
                trial[u, u >> 6] &= ~(np.uint64(1) << np.uint64(u & 63))
                trial[u, at >> 6] &= ~(np.uint64(1) << np.uint64(at & 63))
                work += words
        for k in range(size):
            if cost[k] == np.inf or cost[k] < 0.0:
                continue
            for w in range(words):
                if trial[k, w] & bags[at, w] or (bags[at, k >> 6] >> np.uint64(k & 63)) & np.uint64(1):
                    cost[k] = -1.0
                    break
    return state, total, work


@kernel
def _cost_of(trial, weight, members, v, words, rule):
    """Return what eliminating a variable costs by a rule, and the work of computing it."""
    total, work = 0.0, words
    for w in range(words):
        rest = trial[v, w]
        while rest:
            low = rest & (~rest + np.uint64(1))
            rest ^= low
            u = (w << 6) + _count(low - np.uint64(1))
            work += words
            if rule == _CLIQUE:
                total += weight[members[u]]
                continue
            for x in range(words):
                missing = trial[v, x] & ~trial[u, x]
                if x == u >> 6:
                    missing &= ~(np.uint64(1) << np.uint64(u & 63))
                if rule == _FILL:
                    total += _count(missing)
                    continue
                while missing:
                    bit = missing & (~missing + np.uint64(1))
                    missing ^= bit
                    total += weight[members[u]] * weight[members[(x << 6) + _count(bit - np.uint64(1))]]
                    work += 1
    return total, work


@kernel
def _accept(separator, count, parent, child, sibling, entries, place, members, sizes, size, m, root, bags, order):
    """Put a new order of the piece into the tree."""
    above = parent[root]
    rank = np.empty(m, dtype=np.int64)
    for step in range(size):
        rank[order[step]] = step
    for k in range(size, m):
        rank[k] = size
    # Children that hang below the piece wait in one list.
    hanging = -1
    for k in range(size):
        c = child[members[k]]
        while c >= 0:
            after = sibling[c]
            if place[c] < 0:
                sibling[c] = hanging
                hanging = c
            c = after
        child[members[k]] = -1
    new_root = members[order[size - 1]]
    if above >= 0:
        after = sibling[root]
        if child[above] == root:
            child[above] = new_root
        else:
            c = child[above]
            while sibling[c] != root:
                c = sibling[c]
            sibling[c] = new_root
    else:
        after = -1
    for step in range(size):
        k = order[step]
        v = members[k]
        held, first, product = 0, -1, sizes[v]
        for w in range(((m - 1) >> 6) + 1):
            rest = bags[k, w]
            while rest:
                low = rest & (~rest + np.uint64(1))
                rest ^= low
                j = (w << 6) + _count(low - np.uint64(1))
                separator[v, held] = members[j]
                product *= sizes[members[j]]
                held += 1
                if first < 0 or rank[j] < rank[first]:
                    first = j
        count[v], entries[v] = held, product
        if step < size - 1:
            up = members[first]
            parent[v] = up
            sibling[v] = child[up]
            child[up] = v
    parent[new_root] = above
    sibling[new_root] = after
    while hanging >= 0:
        after = sibling[hanging]
        first = -1
        for e in range(count[hanging]):
            j = place[separator[hanging, e]]
            if first < 0 or rank[j] < rank[first]:
                first = j
        up = members[first]
        parent[hanging] = up
        sibling[hanging] = child[up]
        child[up] = hanging
        hanging = after


@kernel
def _postorder(parent, child, sibling):
    """Return the variables, children before their parents."""
    n = len(parent)
    order = np.empty(n, dtype=np.int64)
    made = 0
    for root in range(n):
        if parent[root] >= 0:
            continue
        v = root
        while child[v] >= 0:
            v = child[v]
        while True:
            order[made] = v
            made += 1
            if v == root:
                break
            if sibling[v] >= 0:
                v = sibling[v]
                while child[v] >= 0:
                    v = child[v]
            else:
                v = parent[v]
    return order


@kernel
def _count(bits):
    """Return the number of bits that are set."""
    bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))
