"""What is known of a model's influence, shared by all calls on the same model.

Nothing here is public. It lives as long as its model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.matrix import Influence
from dobrushin._influence.rows import Rows, RowSource, influence_rows
from dobrushin._models import Model
from dobrushin._models.memory import Slot
from dobrushin._models.near import Numbering
from dobrushin._models.sources import as_model
from dobrushin._shared.arrays import frozen, row_entries


class KnownInfluence:
    """The best influence rows of a model, each computed once; rows that evidence does not touch come from `before`."""

    def __init__(
        self, model: Model, before: KnownInfluence | None = None, kept: NDArray[np.int64] | None = None
    ) -> None:
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
        self._columns = np.zeros(64, dtype=np.int32 if self.n_variables < 2**31 else np.int64)
        self._values = np.zeros(64)
        self._theorem = np.zeros(64, dtype=np.uint8)

    @property
    def _error(self) -> float:
        """Bound on how far each conditional law of the model is from the one that was meant."""
        return self.model._error

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        """The rows at increasing positions."""
        with self._lock:
            return self._rows(positions)

    def _rows(self, positions: NDArray[np.int64]) -> Rows:
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
        parts = (self._columns[entry], self._values[entry], self._theorem[entry], self._cap[positions])
        return Rows(frozen(start), *(frozen(part) for part in parts))

    @property
    def links(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Neighbours of all variables, CSR, where rows take so little time that a few more do not matter: of spins."""
        form = self.model._form
        return form.adjacency if form.is_indexed and form.spins else None

    def _store(self, positions: NDArray[np.int64], rows: Rows) -> None:
        total = self._entries + len(rows.columns)
        for name, part in (("_columns", rows.columns), ("_values", rows.values), ("_theorem", rows.theorem)):
            array = getattr(self, name)
            if total > len(array):
                array = np.resize(array, 2 * total)
                setattr(self, name, array)
            array[self._entries : total] = part
        self._size[positions] = np.diff(rows.start)
        self._cap[positions] = rows.cap
        first = 1 + self._entries + rows.start[:-1]
        self._entries = total
        self._begin[positions] = first  # last: an interruption anywhere before leaves the rows unknown

    def _inherit(self, positions: NDArray[np.int64]) -> None:
        """Take over rows of variables with no neighbour in the evidence, as far as they are known."""
        if self._before is None or self._kept is None:
            return
        old = self._kept.positions[positions]
        start, before = self.model._form.adjacency[0], self._before.model._form.adjacency[0]
        same = (start[positions + 1] - start[positions]) == (before[old + 1] - before[old])
        same &= (self._before._begin[old] > 0) | (self._before._all is not None)
        if same.any():
            rows = self._before.rows(old[same])
            columns = self._kept.own(rows.columns).astype(self._columns.dtype)
            self._store(positions[same], rows._replace(columns=columns))

    @cached_property
    def whole(self) -> Influence:
        """The influence on every variable."""
        return Influence._make(self.rows(np.arange(self.n_variables)), self.n_variables, self.labels, None)


_KNOWN: Slot[KnownInfluence] = Slot("influence")


def known_influence(
    model: Model, before: KnownInfluence | None = None, kept: NDArray[np.int64] | None = None
) -> KnownInfluence:
    """Return what is known of the influence of a model, the same object every time.

    The model may be new and made by evidence from one whose influence is known; `kept` are its positions there.
    """
    return model.memory.get(_KNOWN, lambda: KnownInfluence(model, before, kept))


def row_source(influence: Any) -> RowSource:
    """Rows of an `Influence`, or of a model's, computed when they are first asked for."""
    if isinstance(influence, RowSource):
        return influence
    return known_influence(as_model(influence, "influence", "an Influence or a model"))
