"""Models as graphs: where the nodes go, and how they are drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist

from dobrushin._models import Model
from dobrushin._shared.extras import require
from dobrushin.plots.style import Look, inches, plain

MOST_NODES = 2000
_MOST_EDGES = 20_000
_MOST_NAMES = 25


class Graph(NamedTuple):
    """Part of a model's graph, with places for its nodes."""

    shown: NDArray[np.int64]  # positions in the model, sorted
    total: int
    names: list[str]
    edges: NDArray[np.int64]  # pairs of places in `shown`
    places: NDArray[np.float64]


def subgraph(model: Model, shown: NDArray[np.int64]) -> Graph:
    """The graph of some variables of a model."""
    start, neighbor = model._form.adjacency
    rows = [neighbor[start[i] : start[i + 1]] for i in shown.tolist()]
    other = np.concatenate(rows).astype(np.int64)
    own = np.repeat(np.arange(len(shown)), [len(row) for row in rows])
    place = np.minimum(np.searchsorted(shown, other), len(shown) - 1)
    kept = (shown[place] == other) & (own < place)
    edges = np.stack([own[kept], place[kept]], axis=1)
    names = [plain(model.labels[i], 12) for i in shown.tolist()] if len(shown) <= _MOST_NAMES else []
    return Graph(shown, model.n_variables, names, edges, layout(len(shown), edges))


def layout(n: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Places in the plane for the nodes of a graph: connected parts one by one, the largest first, in rows."""
    matrix = sparse.coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), (n, n)).tocsr()
    _, part = csgraph.connected_components(matrix, directed=False)
    members = np.split(np.argsort(part, kind="stable"), np.cumsum(np.bincount(part))[:-1])
    members.sort(key=len, reverse=True)
    placed = []
    for nodes in members:
        places = _stress(matrix[nodes][:, nodes])
        placed.append(places - places.min(axis=0))
    boxes = np.array([places.max(axis=0) + 1.0 for places in placed])
    width = max(float(boxes[:, 0].max()), float(np.sqrt(1.3 * boxes.prod(axis=1).sum())))
    result = np.empty((n, 2))
    x = y = shelf = 0.0
    for nodes, places, box in zip(members, placed, boxes, strict=True):
        if x and x + box[0] > width:
            x, y, shelf = 0.0, y + shelf, 0.0
        result[nodes] = places + np.array([x, y])
        x, shelf = x + float(box[0]), max(shelf, float(box[1]))
    return result


def _stress(matrix: Any) -> NDArray[np.float64]:
    """Places whose distances are near those in the graph: stress majorisation, from classical scaling.

    Minimises sum_ij (|x_i - x_j| - d_ij)^2 / d_ij^2 (Gansner, Koren and North, 2004).
    """
    n = matrix.shape[0]
    if n == 1:
        return np.zeros((1, 2))
    distance = csgraph.shortest_path(matrix, directed=False, unweighted=True)
    squares = distance**2
    centred = squares.mean(axis=0) + squares.mean(axis=1)[:, None] - squares.mean() - squares
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    for _ in range(30):  # towards the two leading eigenvectors; what follows needs no more than a rough start
        x = centred @ np.linalg.qr(x)[0]
    x /= np.sqrt(np.linalg.norm(x, axis=0) * 2)
    x += rng.normal(scale=0.05, size=x.shape)  # nodes in the same place would stay there
    np.fill_diagonal(distance, 1.0)
    weight = distance**-2
    np.fill_diagonal(weight, 0.0)
    factor = linalg.cho_factor(np.diag(weight.sum(axis=1)) - weight + 1.0 / n)
    pull = weight * distance
    for _ in range(100 if n <= 500 else 40):
        apart = cdist(x, x)
        np.fill_diagonal(apart, 1.0)
        ratio = pull / np.maximum(apart, 1e-9)
        x = linalg.cho_solve(factor, ratio.sum(axis=1)[:, None] * x - ratio @ x)
    x -= x.mean(axis=0)
    _, _, axes = np.linalg.svd(x, full_matrices=False)
    return x @ axes.T  # the longest side lies


def draw_graph(
    axes: list[Any], graph: Graph, counts: list[NDArray[Any]], marked: NDArray[np.int64], norm: Any, look: Look
) -> tuple[Any, str]:
    """Nodes coloured by counts, blank where the count is 0; the last mappable, and what is not shown."""
    n = len(graph.shown)
    area = float((72 * inches(axes[0])).prod())
    size = float(np.clip(0.1 * area / n, 3.0, 110.0))  # nodes cover a part of the panel that does not hide edges
    above = (0.0, 1.5 + float(np.sqrt(size / np.pi)))
    is_target = np.isin(graph.shown, marked)
    lines = graph.places[graph.edges] if len(graph.edges) <= _MOST_EDGES else np.empty((0, 2, 2))
    alpha = float(np.clip(250.0 / max(1, len(lines)), 0.05, 0.4))
    collections = require("matplotlib.collections", "plots")
    for ax, part in zip(axes, counts, strict=True):
        ax.add_collection(
            collections.LineCollection(lines, colors=[look.ink], linewidths=0.7, alpha=alpha, zorder=1), autolim=False
        )
        edge = [look.alarm if target else look.ink for target in is_target]
        width = np.where(is_target, 2.0, 0.5 if n <= 300 else 0.2)
        never = part == 0
        x, y = graph.places.T
        ax.scatter(
            x[never], y[never], s=0.6 * size, c=[look.paper] * int(never.sum()), zorder=2,
            edgecolors=[e for e, blank in zip(edge, never, strict=True) if blank], linewidths=width[never],
        )  # fmt: skip
        image = ax.scatter(
            x[~never], y[~never], s=size, c=part[~never], norm=norm, cmap=look.map, zorder=3,
            edgecolors=[e for e, blank in zip(edge, never, strict=True) if not blank], linewidths=width[~never],
        )  # fmt: skip
        for name, place in zip(graph.names, graph.places, strict=False):
            ax.annotate(
                name, place, above, textcoords="offset points", ha="center", va="bottom", fontsize="xx-small",
                color=look.ink, usetex=False, zorder=4,
            )  # fmt: skip
        ax.set_aspect("equal", adjustable="datalim")
        ax.margins(0.12)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
    note = "" if n == graph.total else f"\n({n} of {graph.total} variables)"
    return image, note + ("" if len(graph.edges) <= _MOST_EDGES else f"\n({len(graph.edges)} edges not drawn)")
