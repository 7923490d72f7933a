"""Maps of areas, such as counties, coloured by the estimates for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._fields.averaged import Average
from dobrushin._fields.questions import summary_rows
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.errors import ArgumentError
from dobrushin.plots.estimates import verdict
from dobrushin.plots.style import as_result, color_bar, dress, look, panels

_SHAPES = "a GeoDataFrame, or a dict from labels to shapes (Polygon or MultiPolygon, of shapely or GeoJSON)"


@public(name="plots.choropleth")
def choropleth(estimate: Estimate | Average, areas: Any, column: str | None = None, *, ax: Any = None) -> Any:
    """Draw two maps of areas: coloured by their estimates, and by the half-widths of the intervals.

    Areas about which nothing was estimated are hatched.

    Parameters
    ----------
    estimate : Estimate or Average
        About a field, with labels of areas.
    areas : GeoDataFrame, GeoSeries, or dict from labels to shapes
        The index has the labels. Shapes are polygons of shapely, or geometries of GeoJSON.
    column : str, optional
        A column of `Summary.table`, such as "mean", "sd", "5%" or "> 0". Default: the first one.
    ax : two matplotlib Axes, optional
        Default those of a new figure.

    Returns
    -------
    array of two matplotlib Axes

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0], labels=["west", "east"])
    >>> square = [(0, 0), (1, 0), (1, 1), (0, 1)]
    >>> areas = {
    ...     name: {"type": "Polygon", "coordinates": [[(x + shift, y) for x, y in square]]}
    ...     for name, shift in (("west", 0), ("east", 1))
    ... }
    >>> axes = db.plots.choropleth(db.estimate(field), areas, "mean")
    >>> [ax.get_title() for ax in axes]
    ['exact, but for rounding', 'half-widths']
    """
    check.instance(estimate, Estimate | Average, "estimate", "an Estimate or an Average")
    rows, shapes = summary_rows(estimate), _read_shapes(areas)
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    chosen = columns[0] if column is None else column
    if chosen not in columns:
        raise ArgumentError("column", f"one of {', '.join(map(repr, columns))}", column)
    known = {label: row[chosen] for label, row in rows.items() if chosen in row and label in shapes}
    if not known:
        raise ArgumentError("areas", "about some of the labels that were estimated", next(iter(shapes)))
    axes = panels(ax, 2, (8.4, 3.0))
    values = {label: limits.value for label, limits in known.items()}
    reaches = {label: (limits.high - limits.low) / 2 for label, limits in known.items()}
    title = verdict(estimate) if isinstance(estimate, Estimate) else estimate.verdict
    for panel, part, name, heading in zip(
        axes, (values, reaches), (chosen, f"half-width of {chosen}"), (title, "half-widths"), strict=True
    ):
        _draw(panel, shapes, part, name)
        panel.set_title(heading, fontsize="medium")
        dress(panel, look(panel), alarm=panel is axes[0] and not estimate.is_certified)
    return as_result(axes)


def _draw(ax: Any, shapes: dict[Any, list[NDArray[np.float64]]], values: dict[Any, float], name: str) -> None:
    """Draw areas in the colours of their values; areas without a value are hatched."""
    collections, paths = (require(f"matplotlib.{part}", "plots") for part in ("collections", "path"))
    drawn = {label: paths.Path.make_compound_path(*map(_closed, rings)) for label, rings in shapes.items()}
    colours = look(ax)
    edges = {"edgecolors": [colours.frame], "linewidths": 0.5}
    blank = [path for label, path in drawn.items() if label not in values]
    if blank:
        ax.add_collection(collections.PathCollection(blank, facecolors="none", hatch="////", **edges))
    image = collections.PathCollection([drawn[label] for label in values], cmap=colours.map, **edges)
    image.set_array(np.array(list(values.values())))
    ax.add_collection(image)
    ax.set_aspect("equal")
    ax.autoscale_view()
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    color_bar(image, [ax], name, colours)


def _closed(ring: NDArray[np.float64]) -> Any:
    path = require("matplotlib.path", "plots").Path
    return path(np.concatenate([ring, ring[:1]]), closed=True)


def _read_shapes(areas: Any) -> dict[Any, list[NDArray[np.float64]]]:
    """Return the rings of each area, by label: outer ones counterclockwise, and holes clockwise."""
    geometry = getattr(areas, "geometry", areas)
    if not hasattr(geometry, "items") or not len(geometry):
        raise ArgumentError("areas", _SHAPES, areas)
    shapes = {}
    for label, shape in geometry.items():
        plain = getattr(shape, "__geo_interface__", shape)
        kind = plain.get("type") if isinstance(plain, Mapping) else None
        if kind not in ("Polygon", "MultiPolygon"):
            raise ArgumentError("areas", _SHAPES, shape, f"label {label!r}")
        polygons = plain["coordinates"] if kind == "MultiPolygon" else [plain["coordinates"]]
        rings = [(np.asarray(ring, dtype=np.float64)[:, :2], k > 0) for part in polygons for k, ring in enumerate(part)]
        shapes[label] = [ring if (_area(ring) < 0) == is_hole else ring[::-1] for ring, is_hole in rings]
    return shapes


def _area(ring: NDArray[np.float64]) -> float:
    """Return the area inside a ring, negative if it runs clockwise."""
    x, y = ring.T
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))
