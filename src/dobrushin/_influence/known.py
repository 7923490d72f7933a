"""The influence rows of a model, computed on demand and shared by all calls; and the public function `influence`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np

from dobrushin._influence.matrix import Influence
from dobrushin._influence.rows import METHODS, Rows, RowSource, influence_rows
from dobrushin._models import Model
from dobrushin._models.memory import Slot
from dobrushin._models.near import Numbering
from dobrushin._models.sources import as_model, read_source
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Ints, frozen, row_entries
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError
from dobrushin.typing import InfluenceMethod


class KnownInfluence:
    """The influence rows of a model, each computed once and on demand.

    Rows that evidence does not change are taken from `before`, the rows of the model before conditioning; `kept` has
    the positions of the remaining variables there.
    """

    def __init__(self, model: Model, before: KnownInfluence | None = None, kept: Ints | None = None) -> None:
        self.model = model
        self.n_variables = model.n_variables
        self.labels: Sequence[Hashable] = model.labels
        self._lookup = model._lookup
        self._before = before
        self._kept = None if before is None or kept is None else Numbering(before.n_variables, kept)
        self._lock = RLock()
        self._begin = np.zeros(
            self.n_variables, dtype=np.int64
        )  # 1 + index of the row's first entry; 0 if the row is not known
        self._size = np.zeros(self.n_variables, dtype=np.int32)
        self._cap = np.zeros(self.n_variables)
        self._entries = 0
        self._all: Rows | None = None  # all rows, once all have been requested
        index = np.int32 if self.n_variables < 2**31 else np.int64
        self._parts: list[Array] = [
            np.zeros(64, dtype) for dtype in (index, np.float64, np.uint8)
        ]  # columns, values, theorem, as in `Rows`

    @property
    def _error(self) -> float:
        """Bound on the error of each conditional law by rounding of the model's parameters."""
        return self.model._error

    def rows(self, positions: Ints) -> Rows:
        """Return the influence rows of the variables at these positions, which must be increasing."""
        with self._lock:
            if len(positions) == self.n_variables and self._all is None:
                self._all = influence_rows(self.model, positions, "best")
            if self._all is not None:
                return self._all if len(positions) == self.n_variables else self._all.take(positions)
            missing = positions[self._begin[positions] == 0]
            if len(missing):
                self._inherit(missing)
                rest = missing[self._begin[missing] == 0]
                if len(rest):
                    computed = influence_rows(self.model, rest, "best")
                    self._store(rest, computed)
                    if len(rest) == len(positions):
                        return computed
            start, entry = row_entries(self._begin[positions] - 1, self._size[positions].astype(np.int64))
            columns, values, theorem = (frozen(part[entry]) for part in self._parts)
            return Rows(frozen(start), columns, values, theorem, frozen(self._cap[positions]))

    @property
    def links(self) -> tuple[Array, Array] | None:
        """Neighbours of all variables in CSR format, or None.

        They are given for models of spins only, whose rows are so cheap that more of them may be computed than are
        needed.
        """
        form = self.model._form
        return form.adjacency if form.is_indexed and form.spins else None

    def _store(self, positions: Ints, rows: Rows) -> None:
        total = self._entries + len(rows.columns)
        for k, part in enumerate((rows.columns, rows.values, rows.theorem)):
            if total > len(self._parts[k]):
                self._parts[k] = np.resize(self._parts[k], 2 * total)
            self._parts[k][self._entries : total] = part
        self._size[positions] = np.diff(rows.start)
        self._cap[positions] = rows.cap
        first = 1 + self._entries + rows.start[:-1]
        self._entries = total
        self._begin[positions] = first  # set last: after an interruption before this line the rows count as unknown

    def _inherit(self, positions: Ints) -> None:
        """Copy the rows of variables without neighbours in the evidence from the model before conditioning."""
        if self._before is None or self._kept is None:
            return
        old = self._kept.positions[positions]
        start, before = self.model._form.adjacency[0], self._before.model._form.adjacency[0]
        same = (start[positions + 1] - start[positions]) == (before[old + 1] - before[old])
        same &= (self._before._begin[old] > 0) | (self._before._all is not None)
        if same.any():
            rows = self._before.rows(old[same])
            columns = self._kept.own(rows.columns).astype(self._parts[0].dtype)
            self._store(positions[same], rows._replace(columns=columns))

    @cached_property
    def whole(self) -> Influence:
        return Influence._make(self.rows(np.arange(self.n_variables)), self.n_variables, self.labels, None)


_KNOWN: Slot[KnownInfluence] = Slot("influence")


def known_influence(model: Model, before: KnownInfluence | None = None, kept: Ints | None = None) -> KnownInfluence:
    """Return the influence rows of a model; they are kept by the model, so that each row is computed once.

    If the model was made by conditioning another one, `before` has the rows of that model, and `kept` has the positions
    there of the remaining variables.
    """
    return model._memory.get(_KNOWN, lambda: KnownInfluence(model, before, kept))


def row_source(influence: Any) -> RowSource:
    """Return the source of influence rows: an `Influence` itself; for a model, its rows, computed on demand."""
    if isinstance(influence, RowSource):
        return influence
    return known_influence(as_model(influence, "model", "a model or an Influence"))


@public("bounding the influence", read=read_source)
def influence(
    model: Model,
    method: InfluenceMethod = "best",
    rows: Iterable[Hashable] | None = None,
    *,
    progress: bool | None = None,
) -> Influence:
    """Bound how much each variable of a model can change the conditional law of each other one.

    Parameters
    ----------
    model : Model
    method : {"best", "paper", "exact"}
        "paper": Theorem 4 for pairwise models, 5 for Ising models, 6 for spins of higher order (for factor
        graphs, which the paper does not treat, the range of the factors). "best": the smallest of these bounds, of
        sharper closed forms, and of enumerations of small neighbourhoods; never above "paper" but for rounding.
        "exact": the true influence, rounded up, by enumerating neighbourhoods; `BudgetError` if one is too large.
    rows : labels, optional
        Variables on which the influence is bounded; default all. Scans may then update only these.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    Influence

    Notes
    -----
    Where Theorem 4 or the range of the factors would take minutes because tables are large, a coarser bound is used, at
    most twice as large; `Influence.theorems` names it.
    All bounds have the form sinh(D/2) / (cosh h + cosh(D/2)), where D is the range over which variable j can change the
    log-odds, and h the least absolute log-odds that the other neighbours can leave; they are rounded up. If states are
    forbidden (-inf), all configurations of the neighbours are considered, allowed or not.

    Examples
    --------
    >>> import dobrushin as db
    >>> torus = db.Ising.grid(40, 40, couplings=0.26, periodic=True)
    >>> db.influence(torus, method="paper").satisfies_dobrushin, db.influence(torus).satisfies_dobrushin
    (False, True)
    >>> db.influence(torus)
    Influence(n_variables=1600, entries: 6400 by Theorem 5, exact)
    """
    model = as_model(model)
    if not model._is_whole:
        raise ArgumentError("model", "a model in memory; a LocalModel is never in memory as a whole", model)
    check.choice(method, METHODS, "method")
    if rows is None:
        computed = None
    else:
        computed = np.sort(check.positions(rows, model.labels, model._lookup, "rows"))
    bounds = influence_rows(model, np.arange(model.n_variables) if computed is None else computed, method)
    if model._error:  # rounding of parameters moves each conditional law by at most this, and two laws are compared
        values, cap = (
            frozen(np.minimum((part + 2.0 * model._error) * (1.0 + 2.0**-50), 1.0))
            for part in (bounds.values, bounds.cap)
        )
        bounds = bounds._replace(values=values, cap=cap)
    return Influence._make(bounds, model.n_variables, model.labels, computed)
