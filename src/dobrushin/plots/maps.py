"""Plots of scans: numbers of updates for each variable, on a grid or on the model's graph."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import Model
from dobrushin._models.sources import as_model
from dobrushin._optimize import ScanResult
from dobrushin._scan import as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.layout import spread
from dobrushin.errors import ArgumentError
from dobrushin.plots.style import Look, as_result, color_bar, dress, inches, look, panels, plain
from dobrushin.typing import ScanLike, Targets

_MAX_PANELS, _MAX_CELLS = 64, 2**26
# Cells of a panel along its longer side; of more, means of blocks.
_SIDE = 400
# Colours are logarithmic where the counts are this far apart.
_WIDE = 30
# Targets in panels with more cells along a side get circles, unless there are too many.
_CIRCLED_CELLS, _MAX_CIRCLES = 60, 30


@public(name="plots.scan_map")
def scan_map(
    scan: ScanLike,
    shape: tuple[int, int] | None = None,
    model: Model | None = None,
    segments: int = 4,
    targets: Targets | None = None,
    *,
    ax: Any = None,
) -> Any:
    """Draw how often a scan updates each variable, with a panel for each of several consecutive parts of the scan.

    Variables that a part never updates are left blank. All panels have the same colours.

    Parameters
    ----------
    scan : Scan or ScanResult
        Of random steps the expected numbers of updates are drawn.
    shape : (rows, columns), optional
        For grids, whose variables are numbered row by row: a heat map. Cut to where the scan is, if that is a
        small part of the grid.
    model : Model, optional
        Without a shape: its graph is drawn. Of more than 2000 variables only those that the scan updates, and the
        targets, which must not be more than that.
    segments : int
        Number of parts, of as many steps each; a panel for each.
    targets : labels, optional
        Outlined; positions if there is no model. Default: those that a ScanResult was made for.
    ax : Axes, or a sequence of them, optional
        One for each part; default those of a new figure.

    Returns
    -------
    matplotlib Axes, or array of Axes where there are several parts

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(9, 9, couplings=0.2)
    >>> result = db.shortest_scan(model, targets=[40], tolerance=0.01)
    >>> panels = db.plots.scan_map(result, shape=(9, 9))
    >>> panels[-1].get_title()
    'steps 290–386'
    """
    certificate = scan.variation if isinstance(scan, ScanResult) else None
    model = None if model is None else as_model(model)
    scan = as_scan(scan, model)
    n = None if model is None else model.n_variables
    if certificate is not None:
        if n is not None and n != certificate._problem.n:
            raise ArgumentError("model", f"the model of {certificate._problem.n} variables", got=f"{n} variables")
        n = certificate._problem.n
    cells = _read_shape(shape, n)
    if cells is None and model is None:
        raise ArgumentError("shape", "(rows, columns) of a grid if no 'model' is given", None)
    n = n if n is not None else cells[0] * cells[1]  # type: ignore[index]
    scan._check_fits(n)
    segments = check.count(segments, "segments")
    if segments > (most := min(_MAX_PANELS, len(scan))):
        raise ArgumentError("segments", f"at most {most} for {len(scan)} steps", segments)
    if segments * n > _MAX_CELLS:
        raise ArgumentError("segments", f"at most {_MAX_CELLS // n} for {n} variables", segments)
    marked = np.empty(0, dtype=np.int64)
    if targets is not None:
        labels, lookup = (range(n), None) if model is None else (model.labels, model._lookup)
        marked = check.positions(targets, labels, lookup, "targets")
    elif certificate is not None and len(certificate._objective.positions) < n:
        marked = certificate._objective.positions

    ends = [len(scan) * k // segments for k in range(segments + 1)]
    counts = [scan[a:b].counts(n) for a, b in pairwise(ends)]
    if cells is None:
        assert model is not None
        axes, image, parts, note = _draw_graph(ax, model, counts, marked)
    else:
        axes, image, parts, note = _draw_grid(ax, [part.reshape(cells) for part in counts], marked)
    colours = look(axes[0])
    for panel, (first, last) in zip(axes, pairwise(ends), strict=True):
        text = f"steps {first + 1}–{last}"
        panel.set_title(text, fontsize="medium" if len(text) < 16 else "small")
        dress(panel, look(panel))
    what = "expected updates" if scan.is_random else "updates"
    blank = " (blank: none)" if any((part == 0).any() for part in parts) else ""
    bar = color_bar(image, axes, f"{what} per variable{blank}{note}", colours)
    if type(image.norm).__name__ == "Normalize":
        whole = not scan.is_random and "means" not in note
        bar.ax.yaxis.set_major_locator(require("matplotlib.ticker", "plots").MaxNLocator(integer=whole, nbins=6))
    return as_result(axes)


def _read_shape(shape: Any, n: int | None) -> tuple[int, int] | None:
    cells = check.grid_shape(shape)
    if cells is None:
        return None
    if n is not None and cells[0] * cells[1] != n:
        raise ArgumentError("shape", f"(rows, columns) of {n} variables", shape)
    if cells[0] * cells[1] > _MAX_CELLS:
        raise ArgumentError("shape", f"of at most {_MAX_CELLS} variables", shape)
    return cells


def _panels(ax: Any, segments: int, aspect: float, is_grid: bool) -> list[Any]:
    """Return Axes for pictures with this ratio of height to width: wide ones below each other, others in rows."""
    if aspect < 0.4:
        columns = 1
    elif segments <= 4:
        columns = min(segments, 4 if is_grid else 2)
    else:
        columns = 3 if segments <= 6 else 4
    width = (5.6, 3.2, 2.5, 2.1)[columns - 1] * (1.0 if is_grid else 1.2)
    height = min(max(width * aspect, 0.5), 1.5 * width) + (0.75 if is_grid else 0.3)
    rows = -(-segments // columns)
    return panels(ax, segments, (width * columns + 0.9, max(2.2, height * rows)), columns)


def _draw_graph(
    ax: Any, model: Model, counts: list[NDArray[Any]], marked: NDArray[np.int64]
) -> tuple[list[Any], Any, list[NDArray[Any]], str]:
    n = model.n_variables
    shown = np.arange(n)
    if n > _MAX_NODES:
        shown = np.union1d(np.flatnonzero(np.any(counts, axis=0)), marked)
    if len(shown) > _MAX_NODES:
        requirement = f"one with at most {_MAX_NODES} variables to draw as a graph (for grids give 'shape')"
        raise ArgumentError("model", requirement, got=f"{len(shown)} variables")
    graph = _subgraph(model, shown)
    width, height = np.ptp(graph.places, axis=0)
    axes = _panels(ax, len(counts), float(np.clip((height + 0.5) / (width + 0.5), 0.4, 1.2)), is_grid=False)
    parts = [part[shown] for part in counts]
    image, note = _draw_nodes(axes, graph, parts, marked, _norm(parts), look(axes[0]))
    return axes, image, parts, note


def _norm(counts: list[NDArray[Any]]) -> Any:
    colors = require("matplotlib.colors", "plots")
    most = max(float(part.max()) for part in counts)
    least = min(float(part[part > 0].min()) for part in counts)
    return colors.LogNorm(least, most) if most > _WIDE * least else colors.Normalize(0.0, most)


def _draw_grid(
    ax: Any, counts: list[NDArray[Any]], marked: NDArray[np.int64]
) -> tuple[list[Any], Any, list[NDArray[Any]], str]:
    is_target = np.zeros(counts[0].shape, dtype=np.bool_)
    is_target.flat[marked] = True
    top, bottom, left, right = _window(np.any(counts, axis=0) | is_target)
    k = -(-max(bottom - top, right - left) // _SIDE)
    parts = [_means(part[top:bottom, left:right], k) for part in counts]
    high, wide = parts[0].shape
    aspect = "equal" if max(high, wide) <= 6 * min(high, wide) else "auto"
    axes = _panels(ax, len(counts), high / wide, is_grid=True)
    colours, norm = look(axes[0]), _norm(parts)
    extent = (left - 0.5, left + wide * k - 0.5, top + high * k - 0.5, top - 0.5)
    ticker = require("matplotlib.ticker", "plots")
    columns = axes[0].get_subplotspec().get_gridspec().ncols if ax is None else 1
    for number, (panel, part) in enumerate(zip(axes, parts, strict=True)):
        image = panel.imshow(
            np.ma.masked_equal(part, 0), norm=norm, cmap=colours.map, extent=extent, aspect=aspect,
            interpolation="nearest", origin="upper",
        )  # fmt: skip
        panel.set_xlabel("column" if wide > 1 else "")
        panel.set_ylabel("row" if high > 1 else "")
        if number % columns:
            panel.set_ylabel("")
            panel.tick_params(labelleft=False)
        if ax is None and number + columns < len(axes):
            panel.set_xlabel("")
            panel.tick_params(labelbottom=False)
        for axis, side, bins in ((panel.xaxis, wide * k, 4), (panel.yaxis, high * k, 4)):
            axis.set_major_locator(
                ticker.MaxNLocator(nbins=bins, integer=True) if side > 1 else ticker.FixedLocator([])
            )
        _outline(panel, is_target, colours, tiny=max(high, wide) > _CIRCLED_CELLS)
    return axes, image, parts, f",\nmeans of blocks of {k} × {k}" if k > 1 else ""


def _window(touched: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Return the first and last row and column to show: all, or those around a small updated part."""
    rows, columns = touched.shape
    window = []
    for axis, side in ((1, rows), (0, columns)):
        hit = np.flatnonzero(touched.any(axis=axis))
        margin = max(1, (hit[-1] - hit[0]) // 8)
        window += [max(0, int(hit[0]) - margin), min(side, int(hit[-1]) + 1 + margin)]
    if (window[1] - window[0]) * (window[3] - window[2]) > 0.4 * rows * columns:
        return 0, rows, 0, columns
    return window[0], window[1], window[2], window[3]


def _means(values: NDArray[Any], k: int) -> NDArray[np.float64]:
    """Return the means of blocks of k x k entries; blocks at the edges may be smaller."""
    if k == 1:
        return values.astype(np.float64)
    rows, columns = (np.arange(0, side, k) for side in values.shape)
    sums = np.add.reduceat(np.add.reduceat(values.astype(np.float64), rows, axis=0), columns, axis=1)
    sizes = np.outer(np.diff(rows, append=values.shape[0]), np.diff(columns, append=values.shape[1]))
    return sums / sizes


def _outline(ax: Any, is_target: NDArray[np.bool_], look: Look, tiny: bool) -> None:
    """Draw outlines around the targets; if the map's cells are `tiny`, also circles around a few targets."""
    padded = np.pad(is_target, 1)
    row, column = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    lines = [np.stack([column - 0.5, row - 0.5, column + 0.5, row - 0.5], axis=1)]
    row, column = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    lines.append(np.stack([column - 0.5, row - 0.5, column - 0.5, row + 0.5], axis=1))
    effects = require("matplotlib.patheffects", "plots")
    halo = [effects.Stroke(linewidth=3.0, foreground=look.paper), effects.Normal()]
    collection = require("matplotlib.collections", "plots").LineCollection(
        np.concatenate(lines).reshape(-1, 2, 2), colors=look.alarm, linewidths=1.4, path_effects=halo,
        capstyle="projecting", clip_on=False, zorder=3, label="targets",
    )  # fmt: skip
    ax.add_collection(collection, autolim=False)
    row, column = np.nonzero(is_target)
    if tiny and len(row) <= _MAX_CIRCLES:
        ax.plot(
            column, row, "o", markersize=9, markerfacecolor="none", color=look.alarm, markeredgewidth=1.4,
            path_effects=halo, clip_on=False, scalex=False, scaley=False,
        )  # fmt: skip


_MAX_NODES = 2000
_MAX_EDGES = 20_000
_MAX_NAMES = 25


class DrawnGraph(NamedTuple):
    """Part of a model's graph, with coordinates of its nodes."""

    shown: NDArray[np.int64]  # positions in the model, sorted
    total: int
    names: list[str]
    edges: NDArray[np.int64]  # pairs of places in `shown`
    places: NDArray[np.float64]


def _subgraph(model: Model, shown: NDArray[np.int64]) -> DrawnGraph:
    """Return the part of a model's graph with the variables `shown`."""
    start, neighbor = model._form.adjacency
    rows = [neighbor[start[i] : start[i + 1]] for i in shown.tolist()]
    other = np.concatenate(rows).astype(np.int64)
    own = np.repeat(np.arange(len(shown)), [len(row) for row in rows])
    place = np.minimum(np.searchsorted(shown, other), len(shown) - 1)
    kept = (shown[place] == other) & (own < place)
    edges = np.stack([own[kept], place[kept]], axis=1)
    names = [plain(model.labels[i], 12) for i in shown.tolist()] if len(shown) <= _MAX_NAMES else []
    return DrawnGraph(shown, model.n_variables, names, edges, spread(len(shown), edges))


def _draw_nodes(
    axes: list[Any], graph: DrawnGraph, counts: list[NDArray[Any]], marked: NDArray[np.int64], norm: Any, look: Look
) -> tuple[Any, str]:
    """Draw nodes coloured by counts, blank for a count of 0; return the last mappable and the nodes not shown."""
    n = len(graph.shown)
    area = float((72 * inches(axes[0])).prod())
    size = float(np.clip(0.1 * area / n, 3.0, 110.0))  # nodes cover a part of the panel that does not hide edges
    above = (0.0, 1.5 + float(np.sqrt(size / np.pi)))
    is_target = np.isin(graph.shown, marked)
    lines = graph.places[graph.edges] if len(graph.edges) <= _MAX_EDGES else np.empty((0, 2, 2))
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
    return image, note + ("" if len(graph.edges) <= _MAX_EDGES else f"\n({len(graph.edges)} edges not drawn)")
