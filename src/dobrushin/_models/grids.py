"""Rectangular grids: sites in row-major order, 4 neighbours each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.couplings import symmetric
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError


def grid_couplings(rows: int, cols: int, couplings: Any, periodic: bool) -> Any:
    """Symmetric CSR couplings of a grid.

    Edges come in this order: each site with its right neighbour, row by row, then each site with the one
    below, row by row. `couplings` is a number, an array over the edges, or the pair (right, down).
    """
    rows = check.count(rows, "rows")
    cols = check.count(cols, "cols")
    if periodic and 2 in (rows, cols):
        raise ArgumentError("periodic", "False when a side has 2 sites, whose edges would be double", (rows, cols))
    site = np.arange(rows * cols, dtype=np.int64 if rows * cols >= 2**31 else np.int32).reshape(rows, cols)
    shapes, starts, ends = [], [], []
    for axis in (1, 0):
        wrap = periodic and site.shape[axis] > 1
        start = site if wrap else (site[:, :-1] if axis == 1 else site[:-1])
        end = np.roll(site, -1, axis) if wrap else (site[:, 1:] if axis == 1 else site[1:])
        shapes.append(start.shape)
        starts.append(start.ravel())
        ends.append(end.ravel())
    i, j = np.concatenate(starts), np.concatenate(ends)
    return symmetric(i, j, _edge_values(couplings, shapes, len(i)), rows * cols)


def site_values(values: Any, rows: int, cols: int, argument: str) -> NDArray[np.float64]:
    """One number per site, from a number or an array over the grid."""
    array = check.real_array(values, argument)
    if array.ndim and array.shape not in ((rows, cols), (rows * cols,)):
        raise ArgumentError(argument, f"a number or an array of shape {(rows, cols)}", got=f"shape {array.shape}")
    return np.broadcast_to(array, (rows, cols) if array.ndim != 1 else array.shape).ravel()


def _edge_values(couplings: Any, shapes: list[Any], edges: int) -> NDArray[np.float64]:
    if isinstance(couplings, tuple) and len(couplings) == 2 and np.ndim(couplings[0]) == 2:
        parts = [check.real_array(part, "couplings") for part in couplings]
        for part, shape in zip(parts, shapes, strict=True):
            if part.shape != shape:
                raise ArgumentError("couplings", f"(right, down) of shapes {tuple(shapes)}", got=f"shape {part.shape}")
        array = np.concatenate([part.ravel() for part in parts])
    else:
        array = check.real_array(couplings, "couplings")
    if array.ndim and array.shape != (edges,):
        requirement = f"a number, an array over the {edges} edges or (right, down) of shapes {tuple(shapes)}"
        raise ArgumentError("couplings", requirement, got=f"shape {array.shape}")
    return np.broadcast_to(check.finite(array, "couplings"), (edges,)).astype(np.float64)
