"""Coupling from the past on the edges of random clusters (theory page, "Random clusters").

The half-edges of variable v have the numbers start[v] to start[v + 1] - 1. `neighbor` is the other end of a half-edge,
and `twin` is the half-edge of the opposite direction. Edge e < E has the half-edges first[e] and twin[first[e]]. Edge
E + k joins the variable tied[k] to the ghost, a vertex that stands for the favoured state. A draw runs two chains of
edges, the upper and the lower. Their states are one byte for each half-edge, then one byte for each variable's edge to
the ghost: bit 0 is set if the edge is open in the upper chain, bit 1 if it is open in the lower chain.

Edge e at time -t uses random number (t - 1) * edges + e of the stream of its draw, whatever the start of the chains.
The colour of a cluster uses random number START + the first target of the cluster.
"""

import numpy as np

from dobrushin._kernels.generator import START, below, mix
from dobrushin._shared.compile import kernel

UPPER, LOWER, BOTH = 1, 2, 3
GHOST, OPEN = 0, -1  # cluster of a target: the ghost's, or not yet known; other clusters are numbered from 1 on
_MOST_SEARCHES = 2**30


@kernel
def run_clusters(lo, hi, past, start, neighbor, twin, first, tied, low, high, targets, keys, x, work):
    """Run sweeps lo to hi of coupling from the past in some draws; sweeps are numbered through all rounds of a draw.

    Round r begins at time -past * 2^r with all edges open in the upper chain and closed in the lower chain. A draw is
    done after the first round at whose end both chains have the same clusters of targets. Row c of x holds the number
    of sweeps of that round (-1 while the draw is not done), the clusters of the targets, and the states of edges as
    bytes. `work[c]` counts updated edges and visited variables.
    """
    mark = np.zeros(start.size - 1, dtype=np.int32)
    queue = np.empty((2, start.size - 1), dtype=np.int32)
    E, edges = first.size, low.size
    for c in range(keys.shape[1]):
        if x[c, 0] > 0:
            continue
        found, state, counts = x[c, : 1 + targets.size], x[c, 1 + targets.size :].view(np.uint8), np.zeros(2, np.int64)
        mark[:] = 0
        for step in range(lo, hi):
            sweeps, begun = past, step
            while begun >= sweeps:
                begun -= sweeps
                sweeps *= 2
            if begun == 0:
                state[:] = 0
                state[: neighbor.size] = UPPER
                for k in range(tied.size):
                    state[neighbor.size + tied[k]] = UPPER
            number = np.uint64(sweeps - begun - 1) * np.uint64(edges)
            for e in range(edges):
                word = mix(keys[0, c] + keys[1, c] * (number + np.uint64(e))) >> np.uint64(11)
                if counts[0] > _MOST_SEARCHES:
                    mark[:] = 0
                    counts[0] = 0
                if e < E:
                    h = first[e]
                    state[h] = BOTH if word < low[e] else 0
                    state[twin[h]] = state[h]
                    if word >= low[e] and word < high[e]:
                        u, v = neighbor[twin[h]], neighbor[h]
                        bits = _joined(u, v, start, neighbor, state, mark, queue, counts)
                        state[h] = bits
                        state[twin[h]] = bits
                else:
                    h = neighbor.size + tied[e - E]
                    state[h] = BOTH if word < low[e] else 0
                    if word >= low[e] and word < high[e]:
                        state[h] = _joined(tied[e - E], -1, start, neighbor, state, mark, queue, counts)
            work[c] += edges
            if begun == sweeps - 1 and _agree(targets, start, neighbor, state, mark, queue, found):
                found[0] = sweeps
                break
        work[c] += counts[1]


@kernel
def _joined(u, v, start, neighbor, state, mark, queue, counts):
    """Return, as bits, in which of the two chains u and v are connected.

    v = -1 is the ghost, the additional variable that stands for the fields.
    """
    answer, differs = _search(u, v, LOWER, start, neighbor, state, mark, queue, counts)
    if answer:
        return np.uint8(BOTH)
    if not differs:  # the cluster that ends here is the same in both chains
        return np.uint8(0)
    answer, differs = _search(u, v, UPPER, start, neighbor, state, mark, queue, counts)
    return np.uint8(UPPER if answer else 0)


@kernel
def _search(u, v, bit, start, neighbor, state, mark, queue, counts):
    """Search for a path between u and v from both ends in turns, until the searches meet or one cluster is exhausted.

    Return whether u and v are connected and, if not, whether an edge at the exhausted cluster differs between chains.
    """
    counts[0] += 1
    ghosts = neighbor.size
    side, mine, other = 0, 2 * counts[0], 2 * counts[0] + 1
    mark[u] = mine
    queue[0, 0] = u
    # The search whose turn it is, and the other search: first and last + 1 of the waiting variables, whether the
    # cluster is tied to the ghost, whether one of its edges differs between the chains.
    head, tail, tied, differs = 0, 1, False, False
    other_head, other_tail, other_tied, other_differs = 0, 0, v < 0, False
    if v >= 0:
        mark[v] = other
        queue[1, 0] = v
        other_tail = 1
    while True:
        if not tied:
            if head == tail:
                counts[1] += head + other_head
                return False, differs
            w = queue[side, head]
            head += 1
            if state[ghosts + w]:
                if state[ghosts + w] & bit:
                    if other_tied:
                        counts[1] += head + other_head
                        return True, False
                    tied = True
                differs |= state[ghosts + w] != BOTH
            for h in range(start[w], start[w + 1]):
                s = state[h]
                if s & bit:
                    z = neighbor[h]
                    if mark[z] == other:
                        counts[1] += head + other_head
                        return True, False
                    if mark[z] != mine:
                        mark[z] = mine
                        queue[side, tail] = z
                        tail += 1
                differs |= s == UPPER
        side, mine, other = 1 - side, other, mine
        head, tail, other_head, other_tail = other_head, other_tail, head, tail
        tied, differs, other_tied, other_differs = other_tied, other_differs, tied, differs


@kernel
def _agree(targets, start, neighbor, state, mark, queue, found):
    """Return whether both chains have the same clusters of targets, and if so write the clusters to `found`."""
    _label(targets, UPPER, start, neighbor, state, mark, queue[0])
    for k in range(targets.size):
        found[k + 1] = mark[targets[k]]
    _label(targets, LOWER, start, neighbor, state, mark, queue[0])
    same = True
    for k in range(targets.size):
        same &= found[k + 1] == mark[targets[k]]
    mark[:] = 0
    if not same:
        found[1:] = OPEN
        return False
    for k in range(targets.size):
        found[k + 1] = -found[k + 1] - 1
    return True


@kernel
def _label(targets, bit, start, neighbor, state, mark, queue):
    """Mark each variable in a target's cluster with the number of the cluster.

    The mark is -2 - k in a cluster whose first target is number k, and -1 in the cluster of the ghost, which stands for
    the fields.
    """
    mark[:] = 0
    ghosts = neighbor.size
    for k in range(targets.size):
        if mark[targets[k]] < 0:
            continue
        queue[0] = targets[k]
        mark[targets[k]] = -2 - k
        head, tail = 0, 1
        tied = False
        while head < tail:
            w = queue[head]
            head += 1
            tied |= state[ghosts + w] & bit > 0
            for h in range(start[w], start[w + 1]):
                if state[h] & bit and mark[neighbor[h]] == 0:
                    mark[neighbor[h]] = -2 - k
                    queue[tail] = neighbor[h]
                    tail += 1
        if tied:
            for i in range(tail):
                mark[queue[i]] = -1


@kernel
def colour_clusters(clusters, places, gauge, favourite, keys, states):
    """Draw one colour for each cluster, and set the states of its targets; target k is variable places[k]."""
    q = gauge.shape[1]
    for c in range(clusters.shape[0]):
        for k in range(clusters.shape[1]):
            first = clusters[c, k]
            if first == OPEN:
                states[c, k] = -1
                continue
            colour = favourite[k]
            if first != GHOST:
                colour = below(mix(keys[0, c] + keys[1, c] * (START + np.uint64(places[first - 1]))), q)
            states[c, k] = gauge[k, colour]


@kernel
def align_states(start, neighbor, turn, turns):
    """Relabel states as colours so that every pair of neighbours rewards equal colours, if possible.

    Each edge is stored at both ends, as two half-edges. Beside state x at its own end, half-edge h rewards state
    turns[turn[h]][x] at the other end. Return the state of each variable for each colour, the number of each variable's
    component, and a half-edge that rewards different colours, or -1 if there is none.
    """
    n, q = start.size - 1, turns.shape[1]
    gauge = np.empty((n, q), dtype=np.int16)
    component = np.full(n, -1, dtype=np.int32)
    stack = np.empty(n, dtype=np.int32)
    count = 0
    for root in range(n):
        if component[root] >= 0:
            continue
        component[root] = count
        for a in range(q):
            gauge[root, a] = a
        stack[0] = root
        size = 1
        while size > 0:
            size -= 1
            v = stack[size]
            for h in range(start[v], start[v + 1]):
                w, permutation = neighbor[h], turns[turn[h]]
                if component[w] < 0:
                    component[w] = count
                    stack[size] = w
                    size += 1
                    for a in range(q):
                        gauge[w, a] = permutation[gauge[v, a]]
                else:
                    for a in range(q):
                        if gauge[w, a] != permutation[gauge[v, a]]:
                            return gauge, component, h
        count += 1
    return gauge, component, -1
