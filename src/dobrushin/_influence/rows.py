"""Influence rows of any model, on demand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.binary import spin_pair_rows, spin_term_rows
from dobrushin._influence.factors import factor_rows
from dobrushin._influence.pairwise import label_pair_rows, pair_table_rows
from dobrushin._influence.wanted import Bounds, Wanted
from dobrushin._models import Model
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen, row_entries

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


@runtime_checkable
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
    start, columns = (frozen(part) for part in _neighborhoods(model._form, positions))
    wanted = Wanted(positions, start, columns, method, model.labels)
    if method == "paper" and not len(columns):
        bounds = wanted.no_bounds()
    else:
        form, theorem = widen(model._form, THEOREMS_OF)
        bounds = theorem(form, wanted)
    return Rows(start, columns, *(frozen(part) for part in bounds))


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
    check.instance(influence, RowSource, function, "influence", "an Influence or a model")
    source: RowSource = influence
    return source


def _neighborhoods(form: Form, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Neighbours of some variables, one after the other."""
    start, columns = form.adjacency
    first, sizes = start[positions].astype(np.int64), (start[positions + 1] - start[positions]).astype(np.int64)
    rows, entry = row_entries(first, sizes)
    if len(positions) < form.n_variables:
        columns = columns[entry]
    return rows, columns.astype(np.int32 if form.n_variables < 2**31 else np.int64, copy=False)


THEOREMS_OF: dict[type[Form], Callable[[Any, Wanted], Bounds]] = {
    SpinPairs: spin_pair_rows,
    SpinTerms: spin_term_rows,
    LabelPairs: label_pair_rows,
    PairTables: pair_table_rows,
    FactorTables: factor_rows,
}
