"""Influence rows of any model, on demand."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.binary import ising_rows, spin_rows
from dobrushin._influence.factors import factor_rows
from dobrushin._influence.pairwise import pairwise_rows, potts_rows
from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError

METHODS = ("best", "paper", "exact")
THEOREMS = (
    "given",
    "Theorem 4",
    "Theorem 4 with unaries",
    "Theorem 5",
    "Theorem 5, exact",
    "Theorem 6",
    "Theorem 6, tightened",
    "enumeration",
    "range of the factors",
)


class Rows(NamedTuple):
    """Some rows of an influence bound, CSR: columns are positions in the model."""

    start: NDArray[np.int64]
    columns: NDArray[Any]
    values: NDArray[np.float64]
    theorem: NDArray[np.uint8]
    cap: NDArray[np.float64]  # one per row: the most that all other variables together can move it


class RowSource(Protocol):
    """Anything that can say how the variables are named and what their influence rows are."""

    @property
    def n_variables(self) -> int: ...

    @property
    def labels(self) -> Sequence[Hashable]: ...

    @property
    def _lookup(self) -> dict[Hashable, int] | None: ...

    def rows(self, positions: NDArray[np.int64]) -> Rows: ...


def influence_rows(model: Model, positions: NDArray[np.int64], method: str) -> Rows:
    """The rows at `positions` (increasing), by the smallest bound that `method` allows."""
    positions = frozen(positions)
    start, columns = (frozen(part) for part in _neighborhoods(model, positions))
    parts = (np.zeros(len(columns)), np.zeros(len(columns), dtype=np.uint8), np.ones(len(positions)))
    if len(columns) or method != "paper":
        family = next(family for family in type(model).__mro__ if family in _BOUNDS)
        _BOUNDS[family](model, positions, start, columns, method, *parts)
    return Rows(start, columns, *(frozen(part) for part in parts))


class ModelRows:
    """Rows computed when they are asked for."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.n_variables = model.n_variables
        self.labels = model.labels
        self._lookup = model._lookup

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        """The best known bound for these rows."""
        return influence_rows(self.model, positions, "best")


def row_source(influence: Any, function: str) -> RowSource:
    """Rows of an `Influence`, or of a model's, computed on demand."""
    if isinstance(influence, Model):
        return ModelRows(influence)
    if hasattr(influence, "rows") and hasattr(influence, "labels"):
        source: RowSource = influence
        return source
    raise ArgumentError(function, "influence", "an Influence or a model", influence)


def _neighborhoods(model: Model, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Neighbours of some variables, one after the other."""
    start, columns = model._adjacency
    first, sizes = start[positions].astype(np.int64), (start[positions + 1] - start[positions]).astype(np.int64)
    out_start = np.zeros(len(positions) + 1, dtype=np.int64)
    np.cumsum(sizes, out=out_start[1:])
    if len(positions) < model.n_variables:
        columns = columns[np.arange(out_start[-1]) + np.repeat(first - out_start[:-1], sizes)]
    return out_start, columns.astype(np.int32 if model.n_variables < 2**31 else np.int64, copy=False)


_BOUNDS: dict[type[Model], Any] = {
    Ising: ising_rows,
    SpinMRF: spin_rows,
    Potts: potts_rows,
    PairwiseMRF: pairwise_rows,
    FactorGraph: factor_rows,
}
