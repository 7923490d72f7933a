"""Models as graphs: where the nodes go, and how they are drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import Model
from dobrushin._shared.extras import require
from dobrushin._shared.layout import spread
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
    return Graph(shown, model.n_variables, names, edges, spread(len(shown), edges))


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
