"""Coordinates in the plane for drawing the nodes of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._shared.arrays import Floats, Ints

# Sweeps in which the nodes of a level are put near their parents and children.
_ORDERING_SWEEPS = 8


def layered(n: int, arrows: Ints) -> Floats:
    """Return coordinates for drawing a directed acyclic graph: each parent above its children, and close to them.

    Examples
    --------
    >>> layered(3, np.array([[0, 2], [1, 2]])).tolist()
    [[-0.5, 0.0], [0.5, 0.0], [0.0, 1.0]]
    """
    level = np.zeros(n, dtype=np.int64)
    for _ in range(n):  # one level below the lowest parent; no way is longer than n
        np.maximum.at(level, arrows[:, 1], level[arrows[:, 0]] + 1)
    for i in range(n):  # those without parents go down to their children
        below = arrows[arrows[:, 0] == i, 1]
        if len(below) and not (arrows[:, 1] == i).any():
            level[i] = level[below].min() - 1
    x = np.zeros(n)
    for depth in range(int(level.max(initial=0)) + 1):
        x[level == depth] = _side_by_side(int((level == depth).sum()))
    for _ in range(_ORDERING_SWEEPS):
        wish = np.array([x[_linked(arrows, i)].mean() if len(_linked(arrows, i)) else x[i] for i in range(n)])
        for depth in range(int(level.max(initial=0)) + 1):
            members = np.flatnonzero(level == depth)
            order = members[np.argsort(wish[members], kind="stable")]
            x[order] = _side_by_side(len(order)) + wish[members].mean()
    return np.stack([x, level.astype(np.float64)], axis=1)


def _side_by_side(count: int) -> Floats:
    return np.arange(count, dtype=np.float64) - 0.5 * (count - 1)


def _linked(arrows: Ints, i: int) -> Ints:
    return np.concatenate([arrows[arrows[:, 1] == i, 0], arrows[arrows[:, 0] == i, 1]])


def spread(n: int, edges: Ints) -> Floats:
    """Return coordinates for drawing a graph: its connected components side by side in rows, the largest first."""
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


def _stress(matrix: Any) -> Floats:
    """Return coordinates whose distances approximate those in the graph, by stress majorisation.

    Minimises sum_ij (|x_i - x_j| - d_ij)^2 / d_ij^2, starting from classical scaling (Gansner, Koren and North, 2004).
    """
    from scipy import linalg  # here, since both take long to load, and pictures of graphs are rare
    from scipy.spatial.distance import cdist

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
