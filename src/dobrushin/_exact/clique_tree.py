"""Clique trees: in which order to sum out the variables of a model, and what that takes.

The variables are eliminated one after the other; a variable and the neighbours that it has left form a clique, and the
cliques form a tree. Time and memory of inference are those of the clique tables, and are known beforehand.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._models import Model
from dobrushin.errors import BudgetError

MEMORY_LIMIT = 2**31

# NumPy before 2.0 knows 32 axes: whatever the caller allows, no table may be larger than that of 32 binary variables.
_MOST_BYTES = 8 * 2**32
# A tree that needs no more bytes than this is calibrated in less time than a better one is found.
_GOOD_ENOUGH = 2**20
# Variables in the piece on which min-fill is tried first when a model has more than twice as many.
_PIECE = 2**12


@dataclass(frozen=True)
class CliqueTree:
    """The cliques of an elimination order, none of them inside another.

    Attributes
    ----------
    cliques : list of lists of positions
        Children come before their parents, and members in the order of their elimination.
    summed : list of int
        How many members, the first ones, are summed out in the clique; the others it shares with its parent.
    parents : list of int
        Index of the parent, -1 at a root.
    homes : list of int
        By position of a variable: the clique in which it is summed out. Every term that contains the variable and
        none that was eliminated before lies inside that clique.
    rank : list of int
        By position of a variable: when it is eliminated.
    width : int
        Size of the largest clique less one.
    memory : int
        Bytes of all tables, of the messages, and of the scratch space of the largest clique.
    """

    cliques: list[list[int]]
    summed: list[int]
    parents: list[int]
    homes: list[int]
    rank: list[int]
    width: int
    memory: int


def clique_tree(model: Model, memory_limit: float = MEMORY_LIMIT) -> CliqueTree:
    """The cheaper of two trees, found without making any table: its `width` and `memory` are what inference takes.

    One order sweeps through the model from end to end (reverse Cuthill-McKee: best on grids and strips), the other
    takes the variable that adds the fewest edges (min-fill: best on trees and irregular graphs), and is looked for
    only if the first needs more than a megabyte. `BudgetError` if both need more than `memory_limit` bytes.

    So that hopeless models are refused in seconds, a model with a subgraph of too many neighbours everywhere (which no
    order can take apart) is refused at once, each search gives up at the first clique that is too large, and on large
    models min-fill is first tried on a piece of 4096 variables around one of the highest degree: if it refuses the
    piece it refuses the model. The last two say nothing about trees that other orders might give.
    """
    start, indices = model._form.adjacency
    n = model.n_variables
    parts = (np.ones(len(indices)), indices.astype(np.int32), start.astype(np.int32))
    graph = sparse.csr_array(parts, shape=(n, n))
    sizes = model.cardinalities.tolist()
    limit = min(memory_limit, _MOST_BYTES)
    _refuse_dense(graph, limit)
    best: CliqueTree | None = None
    refusals = []
    for find_order in (_sweep, _min_fill):
        try:
            tree = _build(graph, sizes, find_order(graph, sizes, limit), limit)
        except BudgetError as refusal:
            refusals.append(refusal)
            continue
        best, limit = tree, tree.memory
        if best.memory <= _GOOD_ENOUGH:
            break
    if best is None:
        raise min(refusals, key=lambda refusal: refusal.required)
    return best


def _refuse_dense(graph: Any, limit: float) -> None:
    """Refuse a graph in which some variables all have so many neighbours among themselves that no order is good enough.

    The first of them to be eliminated forms a clique with all its neighbours, of at least 2 states each.
    """
    degree = max(0, math.floor(math.log2(limit / 8)))
    core = np.ones(graph.shape[0])
    while core.any():
        inside = core * (graph @ core >= degree)
        if (inside == core).all():
            _refuse(8 * 2 ** (degree + 1), limit)
            return
        core = inside


def _sweep(graph: Any, _sizes: list[int], _limit: float) -> list[int]:
    """Order of a front that moves through the graph."""
    return csgraph.reverse_cuthill_mckee(sparse.csr_matrix(graph), symmetric_mode=True).tolist()


def _min_fill(graph: Any, sizes: list[int], limit: float) -> list[int]:
    """Order that always takes a variable whose elimination adds the fewest edges, the first of them if several do.

    The heap also holds outdated entries; they are known by a number of edges that is not the present one.
    """
    n = len(sizes)
    if n > 2 * _PIECE:
        centre = int(np.argmax(np.diff(graph.indptr)))
        piece = csgraph.breadth_first_order(sparse.csr_matrix(graph), centre, return_predecessors=False)[:_PIECE]
        _min_fill(graph[piece][:, piece], [sizes[v] for v in piece], limit)
    neighbors = _neighbor_sets(graph)
    missing = [_missing_edges(neighbors, v) for v in range(n)]
    heap = [(missing[v], v) for v in range(n)]
    heapq.heapify(heap)
    gone = [False] * n
    order = []
    while heap:
        added, v = heapq.heappop(heap)
        if gone[v] or added != missing[v]:
            continue
        gone[v] = True
        order.append(v)
        ring = neighbors[v]
        _refuse(8 * _entries(v, ring, sizes), limit)
        changed = set(ring)
        for u in ring:
            neighbors[u].discard(v)
        if added:
            members = sorted(ring)
            for k, a in enumerate(members):
                for b in members[k + 1 :]:
                    if b not in neighbors[a]:
                        # Outside the ring, the new edge closes one missing pair of everyone who sees both ends.
                        for w in (neighbors[a] & neighbors[b]) - ring:
                            missing[w] -= 1
                            changed.add(w)
                        neighbors[a].add(b)
                        neighbors[b].add(a)
        for u in ring:
            if added:
                missing[u] = _missing_edges(neighbors, u)
            else:  # The ring was complete already: u only loses its pairs of v and somebody outside the ring.
                missing[u] -= len(neighbors[u]) - (len(ring) - 1)
        for u in changed:
            heapq.heappush(heap, (missing[u], u))
    return order


def _build(graph: Any, sizes: list[int], order: list[int], limit: float) -> CliqueTree:
    """The tree of an elimination order."""
    rank = [0] * len(sizes)
    for k, v in enumerate(order):
        rank[v] = k
    later = [sorted(ring, key=rank.__getitem__) for ring in _eliminated(graph, sizes, order, limit)]

    # The clique of v is v and later[v]. If that is all that an earlier clique hands up, it lies inside the earlier
    # one, which then sums out v as well.
    cliques: list[list[int]] = []
    summed: list[int] = []
    homes = [-1] * len(sizes)
    heir: dict[int, int] = {}
    for v in order:
        if v in heir:
            homes[v] = heir[v]
            summed[heir[v]] += 1
        else:
            homes[v] = len(cliques)
            cliques.append([v, *later[v]])
            summed.append(1)
        if later[v] and len(later[v]) == len(later[later[v][0]]) + 1:
            heir[later[v][0]] = homes[v]

    # A clique hands up to the home of the first variable that it does not sum out, which itself ends later.
    by_end = sorted(range(len(cliques)), key=lambda c: rank[cliques[c][summed[c] - 1]])
    place = {c: k for k, c in enumerate(by_end)}
    homes = [place[c] for c in homes]
    cliques = [cliques[c] for c in by_end]
    summed = [summed[c] for c in by_end]
    parents = [homes[clique[s]] if s < len(clique) else -1 for clique, s in zip(cliques, summed, strict=True)]

    tables = [math.prod(sizes[v] for v in clique) for clique in cliques]
    messages = [math.prod(sizes[v] for v in clique[s:]) for clique, s in zip(cliques, summed, strict=True)]
    memory = 8 * (sum(tables) + sum(messages) + 2 * max(tables))
    _refuse(memory, limit)
    return CliqueTree(cliques, summed, parents, homes, rank, max(map(len, cliques)) - 1, memory)


def _eliminated(graph: Any, sizes: list[int], order: list[int], limit: float) -> list[set[int]]:
    """The neighbours that each variable has left when it is eliminated."""
    neighbors = _neighbor_sets(graph)
    total = 0
    for v in order:
        ring = neighbors[v]
        entries = _entries(v, ring, sizes)
        total += entries
        # Cliques that lie inside others are not kept, but each is at most half of the one that it lies in.
        _refuse(8 * max(entries, total // 2), limit)
        for u in ring:
            near = neighbors[u]
            near |= ring
            near.discard(u)
            near.discard(v)
    return neighbors


def _neighbor_sets(graph: Any) -> list[set[int]]:
    start, indices = graph.indptr.tolist(), graph.indices.tolist()
    return [set(indices[a:b]) for a, b in itertools.pairwise(start)]


def _missing_edges(neighbors: list[set[int]], v: int) -> int:
    """Pairs of neighbours of v that are not neighbours of each other."""
    ring = neighbors[v]
    return (len(ring) * (len(ring) - 1) - sum(len(neighbors[u] & ring) for u in ring)) // 2


def _entries(v: int, ring: set[int], sizes: list[int]) -> int:
    return sizes[v] * math.prod(sizes[u] for u in ring)


def _refuse(required: int, limit: float) -> None:
    if required > limit:
        raise BudgetError(
            "A part of the clique tree",
            float(min(required, 2**1000)),
            limit,
            "bytes",
            "Raise 'memory_limit', fix some variables with 'condition', or sample.",
        )
