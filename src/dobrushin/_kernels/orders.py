"""Greedy orders of elimination on a graph that is held in bits.

Row v of `near` has a bit for each neighbour of v that is not eliminated yet.
"""

import numpy as np

from dobrushin._shared.compile import kernel

# How the next variable is chosen: the fewest new edges, the smallest clique, new edges weighted by states, or as given.
FILL, CLIQUE, WEIGHTED_FILL, GIVEN = 0, 1, 2, 3


@kernel
def greedy_order(start, indices, weights, sizes, rule, given, seed, most, work_limit):
    """An order by a rule, ties broken at random (by `given` where the seed is 0).

    Returns the order, the number of entries of all cliques together, that of the largest one, and the work done. It
    stops with an infinite number of entries where more than `most` or more work would be needed. `sizes` are numbers of
    states, and `weights` whole numbers in proportion to their logarithms.
    """
    n = len(start) - 1
    words = (n + 63) // 64
    near = np.zeros((n, words), dtype=np.uint64)
    for v in range(n):
        for k in range(start[v], start[v + 1]):
            _set(near, v, indices[k])
    order = np.empty(n, dtype=np.int64)
    gone = np.zeros(n, dtype=np.bool_)
    cost = np.zeros(n, dtype=np.int64)
    ring = np.empty(n, dtype=np.int64)
    state = np.uint64(seed)
    work = 0
    for v in range(n):
        cost[v], steps = _cost(near, weights, rule, given, ring, v)
        work += steps
    total, largest = 0.0, 0.0
    dirty = np.zeros(words, dtype=np.uint64)
    for step in range(n):
        v, state = _pick(cost, gone, given, seed, state)
        order[step] = v
        gone[v] = True
        degree = _members(near[v], ring)
        entries = sizes[v]
        for k in range(degree):
            entries *= sizes[ring[k]]
        total += entries
        largest = max(largest, entries)
        work += n // 8
        if total > most or work > work_limit:
            return order, np.inf, largest, work
        added = _join_ring(near, ring, degree, v)
        work += degree * words
        if rule == GIVEN:
            continue
        # The costs of the ring change; others' only where they see two ends of a new edge.
        dirty[:] = 0
        for k in range(degree):
            u = ring[k]
            dirty[u >> 6] |= np.uint64(1) << np.uint64(u & 63)
        if added and rule != CLIQUE:
            inside = dirty.copy()
            for k in range(degree):
                for w in range(words):
                    dirty[w] |= near[ring[k], w]
            for w in range(words):
                rest = dirty[w] & ~inside[w]
                while rest:
                    low = rest & (~rest + np.uint64(1))
                    rest ^= low
                    u = (w << 6) + _count(low - np.uint64(1))
                    if _common(near[u], inside) < 2:
                        dirty[w] ^= low
        for w in range(words):
            rest = dirty[w]
            while rest:
                low = rest & (~rest + np.uint64(1))
                rest ^= low
                u = (w << 6) + _count(low - np.uint64(1))
                if not gone[u]:
                    cost[u], steps = _cost(near, weights, rule, given, ring, u)
                    work += steps
    return order, total, largest, work


@kernel
def _pick(cost, gone, given, seed, state):
    """The cheapest variable; of several a random one, or the first by `given` where the seed is 0."""
    best, ties = -1, 0
    for v in range(len(cost)):
        if gone[v]:
            continue
        if best < 0 or cost[v] < cost[best]:
            best, ties = v, 1
        elif cost[v] == cost[best]:
            ties += 1
            if seed == 0:
                if given[v] < given[best]:
                    best = v
            else:
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                if (state >> np.uint64(11)) % np.uint64(ties) == 0:
                    best = v
    return best, state


@kernel
def _cost(near, weights, rule, given, ring, v):
    """Return the cost of eliminating v by the rule, and the work of computing it."""
    if rule == GIVEN:
        return given[v], 1
    words = near.shape[1]
    degree = _members(near[v], ring)
    total = 0
    for k in range(degree):
        total += weights[ring[k]]
    if rule == CLIQUE:
        return total + weights[v], words
    missing = 0
    if rule == FILL:
        for k in range(degree):
            missing += degree - 1 - _common(near[ring[k]], near[v])
        return missing // 2, degree * words
    for k in range(degree):
        u = ring[k]
        seen = weights[u]
        for w in range(words):
            rest = near[u, w] & near[v, w]
            while rest:
                low = rest & (~rest + np.uint64(1))
                rest ^= low
                seen += weights[(w << 6) + _count(low - np.uint64(1))]
        missing += weights[u] * (total - seen)
    return missing // 2, degree * (words + degree)


@kernel
def _join_ring(near, ring, degree, v):
    """Make the neighbours of v neighbours of each other, and forget v; whether an edge was new."""
    words = near.shape[1]
    added = False
    for k in range(degree):
        u = ring[k]
        for w in range(words):
            fresh = near[v, w] & ~near[u, w]
            if (u >> 6) == w:
                fresh &= ~(np.uint64(1) << np.uint64(u & 63))
            if fresh:
                added = True
                near[u, w] |= fresh
        near[u, v >> 6] &= ~(np.uint64(1) << np.uint64(v & 63))
    return added


@kernel
def _members(bits, ring):
    """Write the places of the bits that are set into `ring`; how many they are."""
    count = 0
    for w in range(len(bits)):
        rest = bits[w]
        while rest:
            low = rest & (~rest + np.uint64(1))
            rest ^= low
            ring[count] = (w << 6) + _count(low - np.uint64(1))
            count += 1
    return count


@kernel
def _common(first, second):
    count = 0
    for w in range(len(first)):
        count += _count(first[w] & second[w])
    return count


@kernel
def _count(bits):
    """The number of bits that are set."""
    bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _set(near, v, u):
    near[v, u >> 6] |= np.uint64(1) << np.uint64(u & 63)


@kernel
def two_colour(start, neighbor, sign):
    """States 1 and 0 that are equal along positive edges and differ along negative ones; -1 first if none are."""
    n = start.size - 1
    state = np.full(n, -1, dtype=np.int64)
    stack = np.empty(n, dtype=np.int64)
    for root in range(n):
        if state[root] >= 0:
            continue
        state[root] = 1
        stack[0] = root
        size = 1
        while size > 0:
            size -= 1
            v = stack[size]
            for e in range(start[v], start[v + 1]):
                u = neighbor[e]
                wanted = state[v] if sign[e] > 0 else 1 - state[v]
                if state[u] < 0:
                    state[u] = wanted
                    stack[size] = u
                    size += 1
                elif state[u] != wanted:
                    state[0] = -1
                    return state
    return state
