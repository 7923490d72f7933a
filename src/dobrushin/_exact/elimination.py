"""Exact marginals of all variables at once, by a clique tree in log space.

The variables are eliminated one after the other; a variable and the neighbours that it has left form a clique, and the
cliques form a tree on which messages are summed upwards and then downwards (Lauritzen and Spiegelhalter 1988, in the
form of Jensen, Lauritzen and Olesen 1990). Time and memory are those of the clique tables, and are known beforehand.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._models import Model
from dobrushin.errors import ArgumentError, BudgetError

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


@dataclass(frozen=True)
class Elimination:
    """What a calibrated clique tree knows: log Z, one array of probabilities per variable, and what that took.

    `error` bounds the rounding error of each probability, relative to it.
    """

    log_partition: float
    marginals: list[NDArray[np.float64]]
    width: int
    memory: int
    error: float


def eliminate(
    model: Model,
    memory_limit: float = MEMORY_LIMIT,
    function: str = "exact.marginals",
    source: Model | None = None,
    rounding: float = 0.0,
) -> Elimination:
    """Marginals of all variables and the log-partition function; `function` is named in errors.

    The bound on the error is for the model `source` that this one was made from by adding factors up, and whose own
    log-density was off by `rounding`.
    """
    tree = clique_tree(model, memory_limit)
    tables, messages, log_mass = _collect(model, tree, function)
    _distribute(tree, tables, messages)
    error = _rounding_error(model, model if source is None else source, tree, rounding)
    return Elimination(log_mass, _read_marginals(tree, tables), tree.width, tree.memory, error)


def _rounding_error(model: Model, source: Model, tree: CliqueTree, rounding: float) -> float:
    """Bound on the relative error of a marginal probability; infinite where nothing is known.

    A rounding of an entry of a table or message, by d in the logarithm, is a factor exp(d) on the variables of that
    clique: what is computed is exact for a model whose log-density is off by at most the sum E of all of these, and
    its probabilities are off by at most exp(2 E) - 1. Entries are at most M in size, the sum of the factors' ranges and
    of the logarithms of the sums; a sum of K exponentials is good to K + 8 roundings.
    """
    graph = source.to_factor_graph()
    sizes = model.cardinalities
    finite = np.abs(np.where(graph._table > -np.inf, graph._table, 0.0))
    filled = np.flatnonzero(np.diff(graph._table_start))
    largest = np.maximum.reduceat(finite, graph._table_start[:-1][filled]) if len(finite) else np.zeros(0)
    size = 2.0 * float(largest.sum()) + float(np.log(graph.cardinalities).sum())
    cliques = len(tree.cliques)
    sums = 2 * sum(math.prod(int(sizes[v]) for v in clique) for clique in tree.cliques)
    # Twice the factors: they may have been added up, and are added to tables.
    total = rounding + 2.0**-53 * ((3.0 * graph.n_factors + 12.0 * cliques) * size + sums + 24.0 * cliques)
    return math.expm1(2.0 * total) + 2.0**-50 if 2.0 * total < 0.5 else math.inf


def log_partition(model: Model, memory_limit: float = MEMORY_LIMIT, function: str = "exact.log_partition") -> float:
    """The log-partition function alone, which the upward pass gives."""
    return _collect(model, clique_tree(model, memory_limit), function)[2]


# -- the tree ------------------------------------------------------------------------------------------------------


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
    start, indices = model._adjacency
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


# -- the messages --------------------------------------------------------------------------------------------------


def _collect(
    model: Model, tree: CliqueTree, function: str
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]], float]:
    """Upward pass: tables that hold the terms at and below each clique, messages to the parents, and log Z.

    Every term and every message is shifted to a maximum of 0 and the shifts are added up apart, so that neither a
    large model nor a large potential costs digits.
    """
    sizes = model.cardinalities.tolist()
    tables = [np.zeros([sizes[v] for v in clique]) for clique in tree.cliques]
    shifts = _place_terms(model, tree, tables, function)
    messages = []
    for table, clique, s, parent in zip(tables, tree.cliques, tree.summed, tree.parents, strict=True):
        message = _log_sum(table, tuple(range(s)))
        top = float(message.max())
        if top == -math.inf:
            raise ArgumentError(function, "model", "one that allows some joint state", model)
        shifts.append(top)
        message -= top
        if parent >= 0:
            tables[parent] += _aligned(message, clique[s:], tree.cliques[parent])
        messages.append(message)
    return tables, messages, math.fsum(shifts)


def _place_terms(model: Model, tree: CliqueTree, tables: list[NDArray[np.float64]], function: str) -> list[float]:
    """Add each factor to a clique that contains it; returns the maxima that were taken off."""
    graph = model.to_factor_graph()
    shifts = []
    reach = 0.0
    for k in range(graph.n_factors):
        scope, table = graph.factor(k)
        top = float(table.max())
        if top == -math.inf:
            raise ArgumentError(function, "model", "one that allows some joint state", model)
        shifts.append(top)
        reach += 2 * float(np.abs(table, where=table > -np.inf, out=np.zeros(table.shape)).max())
        if reach == math.inf:
            raise ArgumentError(function, "model", "one whose log-potentials have a finite sum", model, f"factor {k}")
        if scope:
            home = tree.homes[min(scope, key=tree.rank.__getitem__)]
            tables[home] += _aligned(table - top, scope, tree.cliques[home])
    return shifts


def _distribute(tree: CliqueTree, tables: list[NDArray[np.float64]], messages: list[NDArray[np.float64]]) -> None:
    """Downward pass, in place: afterwards each table is the log-marginal of its clique, up to a constant."""
    for c in reversed(range(len(tables))):
        if tree.parents[c] < 0:
            continue
        shared = tree.cliques[c][tree.summed[c] :]
        above = tree.cliques[tree.parents[c]]
        whole = _log_sum(tables[tree.parents[c]], tuple(k for k, v in enumerate(above) if v not in shared))
        # What the parent knows beyond the message that came from here. Where that message was -inf so is the table.
        news = np.full(whole.shape, -np.inf)
        np.subtract(whole, messages[c], out=news, where=messages[c] > -np.inf)
        tables[c] += news


def _read_marginals(tree: CliqueTree, tables: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    marginals: list[NDArray[np.float64]] = [np.empty(0)] * len(tree.homes)
    for table, clique, s in zip(tables, tree.cliques, tree.summed, strict=True):
        weights = table - table.max()
        np.exp(weights, out=weights)
        for k, v in enumerate(clique[:s]):
            size = table.shape[k]
            before = math.prod(table.shape[:k])
            marginal = weights.reshape(before, size, -1).sum(axis=(0, 2))
            marginals[v] = marginal / marginal.sum()
    return marginals


def _aligned(array: NDArray[np.float64], scope: Any, clique: list[int]) -> NDArray[np.float64]:
    """The array with one axis per member of the clique, of length 1 for those outside its scope."""
    axes = sorted(range(len(scope)), key=lambda k: clique.index(scope[k]))
    size = dict(zip(scope, array.shape, strict=True))
    return array.transpose(axes).reshape([size.get(v, 1) for v in clique])


def _log_sum(table: NDArray[np.float64], axes: tuple[int, ...]) -> NDArray[np.float64]:
    """log sum exp over some axes; -inf where all that is summed is -inf."""
    top = table.max(axis=axes, keepdims=True)
    top[np.isneginf(top)] = 0.0
    shifted = table - top
    total = np.exp(shifted, out=shifted).sum(axis=axes, keepdims=True)
    with np.errstate(divide="ignore"):
        np.log(total, out=total)
    total += top
    return total.squeeze(axis=axes)
