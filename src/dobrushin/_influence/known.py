"""The influence rows of a model, kept as long as the model and shared by all calls; and the public function."""

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
    """Influence rows of a model, each computed once; rows that evidence leaves unchanged are taken from `before`."""

    def __init__(self, model: Model, before: KnownInfluence | None = None, kept: Ints | None = None) -> None:
        self.model = model
        self.n_variables = model.n_variables
        self.labels: Sequence[Hashable] = model.labels
        self._lookup = model._lookup
        self._before = before
        self._kept = None if before is None or kept is None else Numbering(before.n_variables, kept)
        self._lock = RLock()
        self._begin = np.zeros(self.n_variables, dtype=np.int64)  # 1 + first entry; 0: not known
        self._size = np.zeros(self.n_variables, dtype=np.int32)
        self._cap = np.zeros(self.n_variables)
        self._entries = 0
        self._all: Rows | None = None  # every row, once they were all asked for
        index = np.int32 if self.n_variables < 2**31 else np.int64
        self._parts: list[Array] = [np.zeros(64, dtype) for dtype in (index, np.float64, np.uint8)]  # as in `Rows`

    @property
    def _error(self) -> float:
        """Bound on the error of each conditional law by the rounding of the model's parameters."""
        return self.model._error

    def rows(self, positions: Ints) -> Rows:
        """Return the rows at increasing positions."""
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
        """Neighbours of all variables, CSR, for spins, whose rows are cheap enough to ask for more than are needed."""
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
        self._begin[positions] = first  # last: an interruption anywhere before leaves the rows unknown

    def _inherit(self, positions: Ints) -> None:
        """Take over the known rows of variables that have no neighbour in the evidence."""
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
        """The influence on every variable."""
        return Influence._make(self.rows(np.arange(self.n_variables)), self.n_variables, self.labels, None)


_KNOWN: Slot[KnownInfluence] = Slot("influence")


def known_influence(model: Model, before: KnownInfluence | None = None, kept: Ints | None = None) -> KnownInfluence:
    """Return the influence rows of a model: the same object every time, with the rows that were computed before.

    For a model made by evidence from another one, `before` has the rows of that model, and `kept` has the positions
    there of the remaining variables.
    """
    return model._memory.get(_KNOWN, lambda: KnownInfluence(model, before, kept))


def row_source(influence: Any) -> RowSource:
    """Return an object with rows of influence: an `Influence` itself; for a model, its rows, computed on demand."""
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
    """Bound how much each variable of a model can move each other one.

    Parameters
    ----------
    model : Model
    method : {"best", "paper", "exact"}
        "paper": Theorem 4 for pairwise models, 5 for Ising models, 6 for spins of higher order (for factor
        graphs, which the paper does not treat, the range of the factors). "best": the smallest bound that
        small enumerations and the sharper closed forms give; never above "paper" but for rounding. "exact": the
        true influence, rounded up, by enumerating neighbourhoods; `BudgetError` where one is too large.
    rows : labels, optional
        Variables whose rows are wanted; default all. Scans may then update only these.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    Influence

    Notes
    -----
    Where Theorem 4 or the range of the factors would take minutes because tables are large, a coarser bound is used, at
    most twice as large; `Influence.theorems` names it.
    All bounds have the form sinh(D/2) / (cosh h + cosh(D/2)), with D the range of the log-odds that variable j
    controls and h the least log-odds that the rest of the neighbourhood can leave, rounded up. Forbidden states
    (-inf) are handled by taking all configurations of the neighbours, allowed or not.

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
        raise ArgumentError("model", "a model that is in memory: only parts of a LocalModel are made", model)
    check.choice(method, METHODS, "method")
    if rows is None:
        computed = None
    else:
        computed = np.sort(check.positions(rows, model.labels, model._lookup, "rows"))
    bounds = influence_rows(model, np.arange(model.n_variables) if computed is None else computed, method)
    if model._error:  # each conditional law may be so far from the one that was meant, and two laws are compared
        values, cap = (
            frozen(np.minimum((part + 2.0 * model._error) * (1.0 + 2.0**-50), 1.0))
            for part in (bounds.values, bounds.cap)
        )
        bounds = bounds._replace(values=values, cap=cap)
    return Influence._make(bounds, model.n_variables, model.labels, computed)
