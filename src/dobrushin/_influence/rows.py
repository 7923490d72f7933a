"""Rows of the influence matrix of any model, bounded on demand by the theorem for the model's internal form."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.gap import ENUMERATED
from dobrushin._models import Model
from dobrushin._models.forms import Form, widen
from dobrushin._shared.arrays import Array, Floats, Ints, frozen, rows_at
from dobrushin._shared.compile import in_pieces
from dobrushin.typing import InfluenceMethod

METHODS = get_args(InfluenceMethod)
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
    "Theorem 4, coarse",
    "range of the factors, coarse",
    "strong convexity",
    "centred truncated normal",
    "known range of the neighbours",
    "values of the variable",
)


class Rows(NamedTuple):
    """Some rows of an influence matrix in CSR format; columns are positions in the model."""

    start: Ints
    columns: Array
    values: Floats
    theorem: NDArray[np.uint8]
    cap: Floats  # one per row: bound on how much all other variables together can change the conditional law

    def take(self, rows: Ints) -> Rows:
        """Return some of these rows, by their indices."""
        start, entry = rows_at(self.start, rows)
        parts = (self.columns[entry], self.values[entry], self.theorem[entry], self.cap[rows])
        return Rows(frozen(start), *(frozen(part) for part in parts))


class RowBounds(NamedTuple):
    """Bounds on the entries of some influence rows, in arrays that the kernels fill in."""

    values: Floats  # one per entry
    theorem: NDArray[np.uint8]  # number in `THEOREMS` of the theorem behind each entry
    cap: Floats  # one per row: bound on how much all other variables together can change the conditional law


class WantedRows(NamedTuple):
    """Influence rows to be bounded, with the variables that may have an influence on each, in CSR format."""

    positions: Ints
    start: Ints
    columns: Array
    method: str
    labels: Sequence[Hashable]  # of all variables, for messages

    @property
    def is_paper(self) -> bool:
        """Return whether the theorems are to be used exactly as stated in the paper."""
        return self.method == "paper"

    def no_bounds(self) -> RowBounds:
        """Return new arrays for a kernel to fill in: no influence, and caps at the trivial value 1."""
        entries = len(self.columns)
        return RowBounds(np.zeros(entries), np.zeros(entries, dtype=np.uint8), np.ones(len(self.positions)))

    def before_enumeration(self, bounds: RowBounds) -> RowBounds:
        """Return the bounds from which enumeration starts: those given or, with method="exact", the trivial ones."""
        if self.method != "exact":
            return bounds
        # No variable influences a variable without neighbours.
        cap = np.where(np.diff(self.start) > 0, 1.0, 0.0)
        return RowBounds(np.ones_like(bounds.values), np.full_like(bounds.theorem, ENUMERATED), cap)

    def entries(self, first: Array) -> Ints:
        """Return the indices of the entries of these rows in arrays of all rows, where row i begins at first[i]."""
        return np.arange(self.start[-1]) + np.repeat(first[self.positions] - self.start[:-1], np.diff(self.start))


# Runs the kernel of a theorem, in pieces and with progress.
over_rows = partial(in_pieces, what="bounding the influence", unit="variables")
Theorem = Callable[[Any, WantedRows], RowBounds]
THEOREMS_OF: dict[type[Form], Theorem] = {}


def theorem_for(form: type[Form]) -> Callable[[Theorem], Theorem]:
    """Return a decorator that registers the function which bounds the influence for an internal form of models.

    A form without such a function is rewritten as a more general form that has one.
    """

    def register(theorem: Theorem) -> Theorem:
        THEOREMS_OF[form] = theorem
        return theorem

    return register


@runtime_checkable
class RowSource(Protocol):
    """An object with labelled variables and influence rows: an `Influence`, or a model's rows computed on demand."""

    @property
    def n_variables(self) -> int: ...

    @property
    def labels(self) -> Sequence[Hashable]: ...

    @property
    def _error(self) -> float: ...  # bound on the error of each conditional law by rounding of parameters

    @property
    def _lookup(self) -> dict[Hashable, int] | None: ...

    def rows(self, positions: Ints) -> Rows: ...


def influence_rows(model: Model, positions: Ints, method: str) -> Rows:
    """Return the influence rows of variables at increasing positions, by the best bound that `method` allows."""
    positions, (ends, columns) = frozen(positions), model._form.adjacency
    start, entry = rows_at(ends, positions)
    if len(positions) < model.n_variables:
        columns = columns[entry]
    columns = frozen(columns.astype(np.int32 if model.n_variables < 2**31 else np.int64, copy=False))
    start = frozen(start)
    wanted = WantedRows(positions, start, columns, method, model.labels)
    if method == "paper" and not len(columns):
        bounds = wanted.no_bounds()
    else:
        form, theorem = widen(model._form, THEOREMS_OF)
        bounds = theorem(form, wanted)
    return Rows(start, columns, *(frozen(part) for part in bounds))
