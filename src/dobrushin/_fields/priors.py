"""Precisions of priors on graphs: conditional autoregressions and their relatives."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._fields.terms import read_graph
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Floats
from dobrushin.errors import ArgumentError

# A precision, and the names of the nodes of its graph if they have any.
Labelled = tuple[Any, Sequence[Hashable] | None]


def car_precision(graph: Any, rho: Any, precision: Any) -> Labelled:
    """Return the precision matrix of a conditional autoregression: precision (D - rho W).

    W has the weights of the edges, and the diagonal matrix D their sums at each node.
    """
    weights, degrees, labels = _read(graph)
    _require_rho(rho)
    if (alone := ~(degrees > 0)).any():
        names = range(len(degrees)) if labels is None else labels
        label = names[int(np.argmax(alone))]
        raise ArgumentError("graph", "without isolated nodes (see leroux)", label)
    return check.positive(precision, "precision") * (_diagonal(degrees) - rho * weights), labels


def leroux_precision(graph: Any, rho: Any, precision: Any) -> Labelled:
    """Return the precision matrix of Leroux's prior: precision ((1 - rho) I + rho (D - W)).

    W has the weights of the edges, and the diagonal matrix D their sums at each node.
    """
    weights, degrees, labels = _read(graph)
    _require_rho(rho)
    if rho < 0:
        raise ArgumentError("rho", "from 0 to 1, less than 1", rho)
    own = (1.0 - rho) + rho * degrees
    return check.positive(precision, "precision") * (_diagonal(own) - rho * weights), labels


def besag_precision(graph: Any, precision: Any, ridge: Any) -> Labelled:
    """Return the precision matrix of Besag's intrinsic autoregression with a ridge: precision (D - W) + ridge I.

    W has the weights of the edges, and the diagonal matrix D their sums at each node.
    """
    weights, degrees, labels = _read(graph)
    scale = check.positive(precision, "precision")
    return _diagonal(scale * degrees + check.positive(ridge, "ridge")) - scale * weights, labels


def bym2_precision(graph: Any, mixing: Any, precision: Any) -> Labelled:
    """Return the precision matrix of structured and unstructured effects: precision (mixing S + (1 - mixing) I)^-1.

    S is the scaled covariance of the intrinsic autoregression.
    """
    weights, degrees, labels = _read(graph)
    if not check.is_real(mixing) or not 0 <= float(mixing) < 1:
        requirement = "from 0 to 1, less than 1: without unstructured effects the sum of the effects has no variance"
        raise ArgumentError("mixing", requirement, mixing)
    parts = csgraph.connected_components(weights, directed=False)[0]
    if parts > 1 or len(degrees) < 2:
        raise ArgumentError(
            "graph", "connected, with two nodes or more", got="1 node" if parts == 1 else f"{parts} components"
        )
    values, vectors = np.linalg.eigh((_diagonal(degrees) - weights).toarray())
    variances = np.concatenate([[0.0], 1.0 / values[1:]])  # the first eigenvector is constant
    scale = float(np.exp(np.log((vectors**2) @ variances).mean()))
    own = (float(mixing) * variances / scale + (1.0 - float(mixing))) / check.positive(precision, "precision")
    matrix = (vectors / own) @ vectors.T
    return 0.5 * (matrix + matrix.T), labels


def _read(graph: Any) -> tuple[Any, Floats, Sequence[Hashable] | None]:
    """Return the weights of a graph, their sums, and its labels."""
    weights, labels = read_graph(graph)
    return weights, np.asarray(weights.sum(axis=1)).ravel(), labels


def _require_rho(rho: Any) -> None:
    if not check.is_real(rho) or not -1 < float(rho) < 1:
        raise ArgumentError("rho", "between -1 and 1, both excluded: the field is improper there", rho)


def _diagonal(values: Floats) -> Any:
    return sparse.dia_array((values[None], [0]), shape=(len(values), len(values)))
