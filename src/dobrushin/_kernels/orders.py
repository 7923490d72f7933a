"""Greedy elimination orders of a graph.

Sets of variables are rows of bits. Row v of `near` has a bit for each neighbour of v that is not eliminated yet.
"""

import numpy as np

from dobrushin._shared.compile import kernel

# How the next variable is chosen: the fewest new edges, the smallest clique, new edges weighted by states, or as given.
FILL, CLIQUE, WEIGHTED_FILL, GIVEN = 0, 1, 2, 3


# -- rows of bits --------------------------------------------------------------------------------


@kernel
def bit(u):
    return np.uint64(1) << np.uint64(u & 63)


@kernel
def count_bits(bits):
    """Return the number of bits of a word that are set."""
    bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def members_of(sets, v, ring):
    """Write the members of set v into `ring`, in increasing order; return how many there are."""
    count = 0
    for w in range(sets.shape[1]):
        rest = sets[v, w]
        while rest:
            low = rest & (~rest + np.uint64(1))
            rest ^= low
            ring[count] = (w << 6) + count_bits(low - np.uint64(1))
            count += 1
    return count


@kernel
def _common(sets, u, v):
    count = 0
    for w in range(sets.shape[1]):
        count += count_bits(sets[u, w] & sets[v, w])
    return count


# -- greedy orders -------------------------------------------------------------------------------


@kernel
def greedy_order(start, indices, weights, sizes, rule, given, seed, most, work_limit):
    """Return an elimination order: the next variable is always the cheapest by a rule.

    Ties are broken at random, or by `given` if the seed is 0. `sizes` are numbers of states, and `weights` whole
    numbers in proportion to their logarithms. Also returned are the number of table entries of all cliques, that of the
    largest clique, and the work done. The number of entries is infinite if it would exceed `most`, or the work
    `work_limit`.
    """
    n = len(start) - 1
    words = (n + 63) // 64
    near = np.zeros((n, words), dtype=np.uint64)
    for v in range(n):
        for k in range(start[v], start[v + 1]):
            near[v, indices[k] >> 6] |= bit(indices[k])
    order = np.empty(n, dtype=np.int64)
    gone = np.zeros(n, dtype=np.bool_)
    cost = np.zeros(n, dtype=np.int64)
    ring, affected = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    seen = np.zeros((1, words), dtype=np.uint64)
    state = np.uint64(seed)
    work = 0
    for v in range(n):
        cost[v], steps = _cost(near, weights, rule, given, ring, v)
        work += steps
    total, largest = 0.0, 0.0
    for step in range(n):
        v, state = _pick(cost, gone, given, seed, state)
        order[step] = v
        gone[v] = True
        degree = members_of(near, v, ring)
        entries = sizes[v]
        for k in range(degree):
            entries *= sizes[ring[k]]
        total += entries
        largest = max(largest, entries)
        work += n // 8
        if total > most or work > work_limit:
            return order, np.inf, largest, work
        for w in range(words):
            seen[0, w] = near[v, w]
        has_new_edges = _join_ring(near, ring, degree, v)
        work += degree * words
        if rule == GIVEN:
            continue
        # Costs change in the ring, and outside of it where a variable sees both ends of a new edge.
        is_seen_outside = has_new_edges and rule != CLIQUE
        if is_seen_outside:
            for k in range(degree):
                for w in range(words):
                    seen[0, w] |= near[ring[k], w]
        for k in range(members_of(seen, 0, affected)):
            u = affected[k]
            if is_seen_outside and not near[v, u >> 6] & bit(u) and _common(near, u, v) < 2:
                continue
            cost[u], steps = _cost(near, weights, rule, given, ring, u)
            work += steps
    return order, total, largest, work


@kernel
def _pick(cost, gone, given, seed, state):
    """Return the cheapest variable, and the next state of the random generator.

    Ties are broken at random, or by `given` if the seed is 0.
    """
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
                state = shuffled(state)
                if (state >> np.uint64(11)) % np.uint64(ties) == 0:
                    best = v
    return best, state


@kernel
def _cost(near, weights, rule, given, ring, v):
    """Return the cost of eliminating variable v by the rule, and the work of computing it."""
    if rule == GIVEN:
        return given[v], 1
    words = near.shape[1]
    degree = members_of(near, v, ring)
    total = 0
    for k in range(degree):
        total += weights[ring[k]]
    if rule == CLIQUE:
        return total + weights[v], words
    missing = 0
    if rule == FILL:
        for k in range(degree):
            missing += degree - 1 - _common(near, ring[k], v)
        return missing // 2, degree * words
    for k in range(degree):
        u = ring[k]
        seen = weights[u]
        for j in range(degree):
            if near[u, ring[j] >> 6] & bit(ring[j]):
                seen += weights[ring[j]]
        missing += weights[u] * (total - seen)
    return missing // 2, degree * (words + degree)


@kernel
def _join_ring(near, ring, degree, v):
    """Connect all neighbours of v with each other and remove v; return whether an edge was new."""
    words = near.shape[1]
    added = False
    for k in range(degree):
        u = ring[k]
        for w in range(words):
            fresh = near[v, w] & ~near[u, w]
            if (u >> 6) == w:
                fresh &= ~bit(u)
            if fresh:
                added = True
                near[u, w] |= fresh
        near[u, v >> 6] &= ~bit(v)
    return added


@kernel
def shuffled(state):
    """Return the next state of the generator of random numbers (xorshift)."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    return state ^ (state << np.uint64(17))
