"""The scan as a moving picture: which variables it updates when, and how it closes in on the targets."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._scan import Scan
from dobrushin.report.graph import Grid, Surroundings, as_grid

# Moments of the slider, updates that are shown, cells across and down, and the size of the picture of distances.
_FRAMES, _POINTS, _CELLS = 2000, 150_000, 180
_BANDS, _MOMENTS = 48, 240
# More empty rows or columns than this are left out of the map.
_GAP = 8


def picture(scan: Scan, around: Surroundings | None, shape: tuple[int, int] | None) -> dict[str, Any]:
    """Everything that the moving picture needs."""
    steps = len(scan)
    points = min(steps, _POINTS)
    generator = np.random.default_rng(0)
    positions = positions_at(scan, _moments(steps, points, generator), generator)
    n = scan.size if around is None else len(around.sites)
    places = positions if around is None else around.places(positions)
    content: dict[str, Any] = {
        "steps": steps,
        "frames": min(steps, _FRAMES),
        "points": points,
        "random": scan.is_random,
        "updated": len(scan.updates(scan.size)),
        "variables": None if around is None else around.n_sites,
        "bands": _bands(places, around, n),
        "grid": None,
    }
    grid = None if around is None else as_grid(around, shape)
    if around is not None and grid is not None:
        content["grid"] = _cells(places, around, grid)
    return content


def positions_at(scan: Scan, times: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Positions that are updated at these steps; random steps are drawn.

    Examples
    --------
    >>> import dobrushin as db
    >>> scan = db.Scan([7, 5]) + db.Scan.systematic(3, steps=10**12)
    >>> positions_at(scan, np.array([0, 1, 2, 3, 10**11 + 5]), np.random.default_rng(0))
    array([7, 5, 0, 1, 1])
    """
    positions = np.empty(len(times), dtype=np.int64)
    before = 0
    for segment in scan.segments:
        lo, hi = np.searchsorted(times, [before, before + segment.steps])
        if segment.is_random:
            share = np.cumsum(segment.vector())
            drawn = np.searchsorted(share, generator.random(hi - lo) * share[-1], side="right")
            positions[lo:hi] = np.minimum(drawn, segment.n - 1)
        else:
            positions[lo:hi] = segment.at(times[lo:hi] - before)
        before += segment.steps
    return positions


def _moments(steps: int, points: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """All steps, or one of each stretch: at random, since every k-th of a cycle may always be the same variable."""
    if points == steps:
        return np.arange(steps)
    edges = np.arange(points + 1) * steps // points
    return edges[:-1] + (generator.random(points) * np.diff(edges)).astype(np.int64)


def _bands(places: NDArray[np.int64], around: Surroundings | None, n: int) -> dict[str, Any]:
    """How many of the updates of each moment are so far from the targets; or, without distances, at such positions."""
    kind, value, top, unreached = "position", places, n - 1, False
    distance = np.zeros(1) if around is None else around.distances(places)
    if (far := int(distance.max())) > 0:
        unreached = bool((distance < 0).any())
        kind, value, top = "distance", np.where(distance < 0, far + 1, distance), far + unreached
    bands, moments = min(top + 1, _BANDS), min(len(places), _MOMENTS)
    moment = np.arange(len(places)) * moments // len(places)
    counts = np.bincount(moment * bands + value * bands // (top + 1), minlength=moments * bands)
    share = counts.reshape(moments, bands) / np.bincount(moment, minlength=moments)[:, None]
    return {
        "kind": kind,
        "bands": bands,
        "moments": moments,
        "top": top,
        "unreached": unreached,
        "share": _pack(np.ceil(255 * share).astype(np.uint8)),
    }


def _cells(places: NDArray[np.int64], around: Surroundings, grid: Grid) -> dict[str, Any]:
    """The part of the grid that the scan updates, in cells of one or more sites."""
    row, column = np.divmod(around.sites, grid.columns)
    seen_row, seen_column = np.divmod(around.observed, grid.columns)
    if grid.is_periodic and len(around.targets):  # the first target in the middle
        shifts = (grid.rows // 2 - row[around.targets[0]], grid.columns // 2 - column[around.targets[0]])
        row, seen_row = (row + shifts[0]) % grid.rows, (seen_row + shifts[0]) % grid.rows
        column, seen_column = (column + shifts[1]) % grid.columns, (seen_column + shifts[1]) % grid.columns
    used = np.union1d(np.unique(places), around.targets)
    rows, columns = _strip(row[used], grid.rows), _strip(column[used], grid.columns)
    size = -(-max(len(rows), len(columns)) // _CELLS)
    width = -(-len(columns) // size)

    def cell(r: NDArray[np.int64], c: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(rows, r) // size * width + np.searchsorted(columns, c) // size

    inside = np.isin(seen_row, rows) & np.isin(seen_column, columns)
    targets = around.targets
    return {
        "rows": -(-len(rows) // size),
        "columns": width,
        "size": size,
        "whole": [grid.rows, grid.columns],
        "part": [len(rows), len(columns)],
        "row_cuts": _cuts(rows, size),
        "column_cuts": _cuts(columns, size),
        "points": _pack(cell(row[places], column[places]).astype("<u2")),
        "targets": np.unique(cell(row[targets], column[targets])).tolist(),
        "observed": np.unique(cell(seen_row[inside], seen_column[inside])).tolist(),
    }


def _strip(lines: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """The rows (or columns) that are used, those beside them, and gaps too small to cut out."""
    used = np.unique(np.concatenate([np.maximum(lines - 1, 0), lines, np.minimum(lines + 1, n - 1)]))
    gaps = np.flatnonzero((np.diff(used) > 1) & (np.diff(used) <= _GAP))
    return np.union1d(used, np.concatenate([used, *(np.arange(used[k], used[k + 1]) for k in gaps)]))


def _cuts(lines: NDArray[np.int64], size: int) -> list[int]:
    """Cells at whose upper (or left) edge something is cut out."""
    return ((1 + np.flatnonzero(np.diff(lines) > 1)) // size).tolist()


def _pack(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()
