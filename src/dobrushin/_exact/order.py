"""Elimination orders: found greedily and then improved piece by piece, before any table is computed."""

from __future__ import annotations

import heapq
import itertools
import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._exact.arithmetic import Working
from dobrushin._kernels.orders import CLIQUE, FILL, GIVEN, WEIGHTED_FILL, greedy_order
from dobrushin._kernels.reorder import reorder
from dobrushin._shared.arrays import Array, Ints, frozen, prefix_sums
from dobrushin._shared.call import checked
from dobrushin._shared.compile import code_for
from dobrushin.errors import BudgetError

# Graphs with at most this number of variables are held in bits; for larger ones only one min-fill order is tried.
_MAX_BITSET_VARIABLES = 2**14
# Greedy runs may take this share of the entries to be summed as work, in at most `_SEARCH_ROUNDS` rounds. A unit of
# work and an entry take about the same time, a few nanoseconds; starting a run takes as long as `_RUN_UNITS` units
# (benchmarks/orders.py).
_SEARCH_SHARE, _RUN_UNITS, _SEARCH_ROUNDS = 0.1, 2.0**12, 8
_MAX_UNITS_OF_RUN = 2**29
# An order with more entries than this is improved piece by piece, in stages of four times the work of the one before:
# at most this share of the entries that are left, and at most `_LAST_STAGE_UNITS` units (a second).
_IMPROVED_FROM, _FIRST_STAGE_UNITS, _SHARE_OF_STAGE, _LAST_STAGE_UNITS = 2.0**22, 2**20, 0.15, 2**28
# Orders with more entries than this multiple of the largest number that may be summed are not improved; nor are those
# with a table that is so many times as large as the memory allows.
_HOPELESS_FACTOR, _HOPELESS_TABLE = 2.0**12, 2.0**8
# Seeds that are tried for the order of a region, and the share of the entries that these searches may take as work.
_SEEDS_OF_REGION, _SHARE_OF_REGION = 16, 0.05
# A run of at most this work may be interpreted; looking for the next variable takes this many operations for each.
_LITTLE_OPERATIONS, _OPERATIONS_PER_LOOK = 2**13, 8
# Orders with more entries are refused: they would take hours.
MAX_SUMMED_ENTRIES = 2.0**40
# Variables in the piece on which min-fill is tried first when a large model has more than twice as many.
_PIECE_VARIABLES = 2**12
# An order with at most this number of entries per variable is summed sooner than a better one is found.
_GOOD_ENTRIES_PER_VARIABLE = 64.0
_STAGE = "an elimination order"
# Searches with at most this number of variables take negligible time.
_QUICK_VARIABLES = 64


class Order(NamedTuple):
    """An elimination order, and the number of table entries of its cliques."""

    variables: list[int]
    entries: float  # of all cliques together
    bits: float = math.inf  # of the largest, where it is known


def find_order(
    adjacency: tuple[Array, Array], sizes: Ints, working: Working, most: float = MAX_SUMMED_ENTRIES,
    largest: float = math.inf,
) -> Order:  # fmt: skip
    """Return the best of several elimination orders; raise BudgetError if none has at most `most` table entries.

    One order sweeps through the model from end to end (reverse Cuthill-McKee, best on grids). The others eliminate next
    the variable that adds the fewest edges, or the fewest edges weighted by numbers of states, or that has the smallest
    clique; ties are broken at random. If the best order still has very many entries, a large-neighbourhood search
    improves it, unless its largest table is far above `largest` entries. Random numbers depend on the graph alone, so
    that the order is the same every time.
    """
    graph = graph_of(adjacency)
    refuse_dense(graph, most)
    rank = places_in_sweep(graph)
    n = len(sizes)
    if n > _MAX_BITSET_VARIABLES:
        return _order_of_large(graph, sizes.tolist(), np.argsort(rank).tolist(), most)
    start, indices = (np.asarray(part, dtype=np.int64) for part in adjacency)
    with working.threads() if n > _QUICK_VARIABLES else nullcontext():
        graph_arguments = _graph_arguments(start, indices, sizes)
        best, entries = _best_run(graph_arguments, frozen(rank), most, largest, working)
    _refuse(min(entries, 2.0**200), most)
    return Order(best.tolist(), entries)


def graph_of(adjacency: tuple[Array, Array]) -> Any:
    """Return the graph given by CSR arrays as a sparse matrix with 1 for each pair of neighbours."""
    start, indices = adjacency
    n = len(start) - 1
    return sparse.csr_matrix((np.ones(len(indices), dtype=np.int8), indices, start), shape=(n, n))


def places_in_sweep(graph: Any) -> Ints:
    """Return each variable's rank in a sweep through the graph from end to end (reverse Cuthill-McKee)."""
    return np.argsort(csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True))


def find_region_order(
    start: Ints, neighbor: Ints, states: Ints, group: Ints,
    given: Ints, most: float,
) -> Order | None:  # fmt: skip
    """Return the best of a few orders that keep a group in one clique; None if all have more entries than `most`.

    Ties are broken by the order `given`, then at random. The search takes only a small share of the elimination's own
    time.
    """
    if len(group) > 1:  # make the group neighbours of each other
        n = len(start) - 1
        first, second = np.repeat(group, len(group)), np.tile(group, len(group))
        owner = np.repeat(np.arange(n), np.diff(start))
        codes = np.unique(np.concatenate([owner * n + neighbor, (first * n + second)[first != second]]))
        start, neighbor = prefix_sums(np.bincount(codes // n, minlength=n)), codes % n
    graph, given = _graph_arguments(start, neighbor, states), frozen(given)
    best, entries, work = None, most, 0.0
    for seed in range(_SEEDS_OF_REGION):
        for rule in (FILL, CLIQUE):
            order, total, largest, used = _make_order(graph, rule, given, seed, entries, _MAX_UNITS_OF_RUN)
            work += used
            if total < entries or (best is None and total <= entries):
                best, entries = Order(order.tolist(), total, math.log2(largest)), total
        if work > _SHARE_OF_REGION * entries or (best is None and seed):
            break
    return best


def _graph_arguments(start: Ints, indices: Ints, sizes: Ints) -> tuple[Array, ...]:
    """Return the graph in the form that `greedy_order` takes: CSR arrays, weights and numbers of states."""
    weights = np.maximum(1, np.round(8.0 * np.log2(sizes))).astype(np.int64)
    return frozen(start), frozen(indices), frozen(weights), frozen(sizes.astype(np.float64))


def _make_order(graph: tuple[Array, ...], rule: int, given: Ints, seed: int, most: float, work: int) -> Any:
    """Call `greedy_order`, with interpreted instead of compiled code if there is little work."""
    code = code_for(greedy_order, _OPERATIONS_PER_LOOK * len(given) ** 2)
    if code is not greedy_order:
        made = code(*graph, rule, given, seed, most, _LITTLE_OPERATIONS)
        if made[3] <= _LITTLE_OPERATIONS:
            return made
    return greedy_order(*graph, rule, given, seed, most, work)


def _best_run(
    graph: tuple[Array, ...], rank: Ints, most: float, largest: float, working: Working
) -> tuple[Ints, float]:
    """Return the best order of several greedy runs, and the number of its table entries.

    A long elimination is worth more search: its order is then improved piece by piece.
    """
    start, indices, weights, sizes = graph
    best, entries, table, work = rank, math.inf, math.inf, 0.0
    rules = (FILL, CLIQUE, WEIGHTED_FILL) if weights.min() < weights.max() else (FILL, CLIQUE)
    runs = itertools.chain([(GIVEN, 0)], ((rule, seed) for seed in range(1, _SEARCH_ROUNDS + 1) for rule in rules))
    for rule, seed in runs:
        # Where even the best is far too large, more tries are not worth their time.
        if seed > 1 and (work > _SEARCH_SHARE * entries or entries > _HOPELESS_FACTOR * most):
            break
        limits = min(entries, 2.0**200), _MAX_UNITS_OF_RUN
        order, total, widest, used = working.wait_for(_make_order, graph, rule, rank, seed, *limits)
        work += used + _RUN_UNITS
        if total < entries:
            best, entries, table = order, total, widest
    if not _IMPROVED_FROM < entries <= _HOPELESS_FACTOR * most or table > _HOPELESS_TABLE * largest:
        return best, entries
    stage = _FIRST_STAGE_UNITS
    while stage <= max(_FIRST_STAGE_UNITS, min(_LAST_STAGE_UNITS, _SHARE_OF_STAGE * entries)):
        # Always two searches, so that the order does not depend on the number of threads.
        searches = [(start, indices, sizes, best, stage + k, stage) for k in range(2)]
        for order, total in working.wait_for_all(reorder, searches):
            if total < entries:
                best, entries = order, total
        stage *= 4
    return best, entries


def refuse_dense(graph: Any, most: float) -> None:
    """Raise BudgetError if the graph has a subgraph so dense that every order exceeds `most` table entries.

    The first variable of the subgraph to be eliminated forms a clique with its neighbours there, of at least 2 states
    each.
    """
    degree = max(0, math.floor(math.log2(most)))
    core = np.ones(graph.shape[0])
    while core.any():
        inside = core * (graph @ core >= degree)
        if (inside == core).all():
            _refuse(2.0 ** (degree + 1), most)
            return
        core = inside


def _refuse(entries: float, most: float) -> None:
    if entries > most:
        remedy = "Fix some variables with evidence, or sample."
        raise BudgetError("Summing over the states", min(entries, 2.0**1000), most, "entries", remedy)


def _order_of_large(graph: Any, sizes: list[int], sweep: list[int], most: float) -> Order:
    """Return the better of a sweep and a min-fill order, for graphs too large for the bitset search."""
    best, refusals = Order(sweep, most), []
    for find in (lambda: sweep, lambda: _min_fill(graph, sizes, most)):
        try:
            order = find()
            best = Order(order, _entries_of(graph, sizes, order, best.entries))
        except BudgetError as refusal:
            refusals.append(refusal)
            continue
        if best.entries <= _GOOD_ENTRIES_PER_VARIABLE * len(sizes):
            break
    if len(refusals) == 2:
        raise min(refusals, key=lambda refusal: refusal.required)
    return best


def _entries_of(graph: Any, sizes: list[int], order: list[int], most: float) -> float:
    """Return the number of table entries of all cliques of an order; raise BudgetError beyond `most`."""
    neighbors = _neighbor_sets(graph)
    total = 0.0
    for v in checked(order, _STAGE):
        ring = neighbors[v]
        total += _clique(v, ring, sizes)
        _refuse(total, most)
        for u in ring:
            near = neighbors[u]
            near |= ring
            near.discard(u)
            near.discard(v)
    return total


def _min_fill(graph: Any, sizes: list[int], most: float) -> list[int]:
    """Return the order that always eliminates next the first variable that adds the fewest edges.

    The heap keeps outdated entries, whose number of edges differs from the one in `missing`; they are skipped.
    """
    n = len(sizes)
    if n > 2 * _PIECE_VARIABLES:
        centre = int(np.argmax(np.diff(graph.indptr)))
        piece = csgraph.breadth_first_order(graph, centre, return_predecessors=False)[:_PIECE_VARIABLES]
        _min_fill(graph[piece][:, piece], [sizes[v] for v in piece], most)
    neighbors = _neighbor_sets(graph)
    missing = [_missing_edges(neighbors, v) for v in checked(range(n), _STAGE)]
    heap = [(missing[v], v) for v in range(n)]
    heapq.heapify(heap)
    gone = [False] * n
    order = []
    for _ in checked(itertools.repeat(None), _STAGE):
        if not heap:
            break
        added, v = heapq.heappop(heap)
        if gone[v] or added != missing[v]:
            continue
        gone[v] = True
        order.append(v)
        ring = neighbors[v]
        _refuse(_clique(v, ring, sizes), most)
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


def _neighbor_sets(graph: Any) -> list[set[int]]:
    start, indices = graph.indptr.tolist(), graph.indices.tolist()
    return [set(indices[a:b]) for a, b in checked(itertools.pairwise(start), _STAGE)]


def _missing_edges(neighbors: list[set[int]], v: int) -> int:
    """Return the number of pairs of neighbours of v that are not neighbours of each other."""
    ring = neighbors[v]
    return (len(ring) * (len(ring) - 1) - sum(len(neighbors[u] & ring) for u in ring)) // 2


def _clique(v: int, ring: set[int], sizes: list[int]) -> float:
    return math.prod([float(sizes[v]), *(float(sizes[u]) for u in ring)])
