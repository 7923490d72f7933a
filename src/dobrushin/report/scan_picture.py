"""Data of the report's animation of a scan: which variables are updated when, and how far from the targets."""

from __future__ import annotations

import base64
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._estimate.targets import variables_of
from dobrushin._models import Model
from dobrushin._scan import Scan
from dobrushin.errors import ArgumentError

# Moments of the slider, updates that are shown, cells across and down, and the size of the picture of distances.
_FRAMES, _MAX_POINTS, _PICTURE_CELLS = 2000, 150_000, 180
_BANDS, _MOMENTS = 48, 240
# More empty rows or columns than this are left out of the map.
_GAP_PIXELS = 8


def picture(scan: Scan, around: Surroundings | None, shape: tuple[int, int] | None) -> dict[str, Any]:
    """Return the data of the animation of a scan."""
    steps = len(scan)
    points = min(steps, _MAX_POINTS)
    generator = np.random.default_rng(0)
    places = positions_at(scan, _moments(steps, points, generator), generator)
    n, n_sites, cells = scan._size, None, None
    if around is not None:
        n, n_sites, places = len(around.sites), around.n_sites, around.places(places)
        grid = as_grid(around, shape)
        cells = None if grid is None else _cells(places, around, grid)
    return {
        "steps": steps,
        "frames": min(steps, _FRAMES),
        "points": points,
        "random": scan.is_random,
        "updated": len(scan._updates(scan._size)),
        "variables": n_sites,
        "bands": _bands(places, around, n),
        "grid": cells,
    }


def positions_at(scan: Scan, times: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the positions that a scan updates at these steps; positions at random steps are drawn.

    Examples
    --------
    >>> import dobrushin as db
    >>> scan = db.Scan([7, 5]) + db.Scan.systematic(3, steps=10**12)
    >>> positions_at(scan, np.array([0, 1, 2, 3, 10**11 + 5]), np.random.default_rng(0))
    array([7, 5, 0, 1, 1])
    """
    positions = np.empty(len(times), dtype=np.int64)
    before = 0
    for segment in scan._segments:
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
    """Choose `points` step numbers at random, one in each of `points` equal stretches of the scan.

    Every k-th step of a cycle could always update the same variable, so that the choice is random.
    """
    if points == steps:
        return np.arange(steps)
    edges = np.arange(points + 1) * steps // points
    return edges[:-1] + (generator.random(points) * np.diff(edges)).astype(np.int64)


def _bands(places: NDArray[np.int64], around: Surroundings | None, n: int) -> dict[str, Any]:
    """Count updates by time and distance from the targets, or by time and position if distances are unknown."""
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
    """Return the part of the grid that the scan updates, as cells of one or more sites."""
    row, column = np.divmod(around.sites, grid.columns)
    seen_row, seen_column = np.divmod(around.observed, grid.columns)
    if grid.is_periodic and len(around.targets):  # the first target in the middle
        shifts = (grid.rows // 2 - row[around.targets[0]], grid.columns // 2 - column[around.targets[0]])
        row, seen_row = (row + shifts[0]) % grid.rows, (seen_row + shifts[0]) % grid.rows
        column, seen_column = (column + shifts[1]) % grid.columns, (seen_column + shifts[1]) % grid.columns
    used = np.union1d(np.unique(places), around.targets)
    rows, columns = _strip(row[used], grid.rows), _strip(column[used], grid.columns)
    size = -(-max(len(rows), len(columns)) // _PICTURE_CELLS)
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
    """Return the rows (or columns) to show: updated ones, their neighbours, and short gaps between them."""
    used = np.unique(np.concatenate([np.maximum(lines - 1, 0), lines, np.minimum(lines + 1, n - 1)]))
    gaps = np.flatnonzero((np.diff(used) > 1) & (np.diff(used) <= _GAP_PIXELS))
    return np.union1d(used, np.concatenate([used, *(np.arange(used[k], used[k + 1]) for k in gaps)]))


def _cuts(lines: NDArray[np.int64], size: int) -> list[int]:
    """Return the cells above (or left of) which rows (or columns) were left out."""
    return ((1 + np.flatnonzero(np.diff(lines) > 1)) // size).tolist()


def _pack(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


# On a grid, at least this part of the links goes down, and as many go across.
_PART_OF_LINKS = 0.25


@dataclass(frozen=True)
class Surroundings:
    """The variables around the targets that a scan may update, numbered from 0, with the edges between them.

    `sites` has their positions in the model before conditioning, where a grid is still complete.
    """

    n_sites: int
    sites: NDArray[np.int64]
    positions: NDArray[np.int64]  # in the model that was sampled, increasing
    start: NDArray[Any]
    neighbor: NDArray[Any]
    targets: NDArray[np.int64]
    observed: NDArray[np.int64]  # sites

    def places(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the variables at these positions of the sampled model."""
        return np.searchsorted(self.positions, positions)

    def distances(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of edges from each variable to the nearest target; -1 if there is no path."""
        distance = np.full(len(self.sites), -1, dtype=np.int64)
        front, far, left = self.targets, 0, np.unique(wanted)
        distance[front] = 0
        while len(front) and len(left := left[distance[left] < 0]):
            sizes = self.start[front + 1] - self.start[front]
            begin = np.concatenate([[0], np.cumsum(sizes)])
            links = np.arange(begin[-1]) + np.repeat(self.start[front] - begin[:-1], sizes)
            front = self.neighbor[links]
            front = np.unique(front[distance[front] < 0])
            far += 1
            distance[front] = far
        return distance[wanted]

    def links(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the two ends of each edge as sites, the smaller first; an edge may be repeated."""
        ends = np.repeat(self.sites, np.diff(self.start)), self.sites[self.neighbor]
        return np.minimum(*ends), np.maximum(*ends)


def surroundings(estimate: Estimate, model: Model, sampled: Model, evidence: dict[Hashable, Any]) -> Surroundings:
    """Return the surroundings of an estimate's targets; `sampled` is `model` conditioned on the evidence."""
    known = np.array([model.index(label) for label in evidence], dtype=np.int64)
    sizes = []
    if estimate.certificate is not None:
        sizes.append(estimate.certificate._problem.n)
    elif estimate.samples is not None:
        sizes.append(len(estimate.samples.update_error))
    fits = all(size == sampled.n_variables for size in sizes)
    scan = estimate.plan.scan
    if not fits or (scan is not None and scan._size > sampled.n_variables):
        raise _not_this(model)
    sites = np.delete(np.arange(model.n_variables), known)
    targets = _targets(estimate, model, sampled, evidence)
    return Surroundings(
        model.n_variables, sites, np.arange(sampled.n_variables), *sampled._form.adjacency, targets, np.unique(known)
    )


def _targets(estimate: Estimate, model: Model, sampled: Model, evidence: dict[Hashable, Any]) -> NDArray[np.int64]:
    places = []
    for label in dict.fromkeys(label for target in estimate.targets for label in variables_of(target)):
        try:
            model.index(label)
            places += [] if label in evidence else [sampled.index(label)]
        except ArgumentError:
            raise _not_this(model) from None
    return np.unique(np.array(places, dtype=np.int64))


def _not_this(model: Model) -> ArgumentError:
    return ArgumentError("model", "the model that was estimated, and 'evidence' what was observed", model)


def certified_surroundings(estimate: Estimate) -> Surroundings | None:
    """Return the surroundings of the targets from an estimate's certificate; None if it has none."""
    if estimate.certificate is None:
        return None
    problem, objective = estimate.certificate._problem, estimate.certificate._objective
    part = problem.numbering
    targets = part.own(objective.positions[part.holds(objective.positions)])
    nothing = np.empty(0, dtype=np.int64)
    return Surroundings(part.n, part.positions, part.positions, problem.start, problem.columns, targets, nothing)


@dataclass(frozen=True)
class Grid:
    """A rectangle of sites, numbered row by row."""

    rows: int
    columns: int
    is_periodic: bool


def as_grid(around: Surroundings, shape: tuple[int, int] | None) -> Grid | None:
    """Return the grid that the variables form; None if they form none.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(300, 200, couplings=0.2, periodic=True)
    >>> as_grid(surroundings(db.estimate(model, [0], seed=1), model, model, {}), None)
    Grid(rows=300, columns=200, is_periodic=True)
    """
    n = around.n_sites
    if shape is not None and shape[0] * shape[1] != n:
        raise ArgumentError("shape", f"(rows, columns) of {n} variables", shape)
    low, high = around.links()
    step = high - low
    rows, columns = _likely_shape(step, n) if shape is None else shape
    if rows < 2 or columns < 2 or rows * columns != n:
        return None
    same_row = low // columns == high // columns
    across, down = same_row & (step == 1), step == columns
    wrapped = (same_row & (step == columns - 1) & (columns > 2)) | ((step == n - columns) & (rows > 2))
    both_ways = min(across.sum(), down.sum()) >= _PART_OF_LINKS * len(step)
    if shape is None and not (both_ways and (across | down | wrapped).all()):
        return None
    return Grid(rows, columns, bool(wrapped.any()))


def _likely_shape(step: NDArray[np.int64], n: int) -> tuple[int, int]:
    """Guess the rows and columns of a grid: a row is as long as the most common step, above 1, between neighbours."""
    counts = np.bincount(step, minlength=3)
    columns = 2 + int(np.argmax(counts[2:])) if counts[2:].any() else n
    return n // columns, columns
