"""What calls on the same model share: influence rows, models given evidence, and allowed states.

Nothing here is public. A workspace lives as long as its model.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._arrays import frozen
from dobrushin._influence import Influence, influence
from dobrushin._influence.rows import Rows, influence_rows
from dobrushin._models import FactorGraph, Ising, Model

# Models given evidence that are kept: so many, and fewer of large ones.
_MOST_KEPT, _MOST_VARIABLES = 16, 10**6
_UNIT = 2.0**-53
_MAKING = RLock()


class KnownRows:
    """The best influence rows of a model, each computed once; rows that evidence does not touch come from `before`."""

    def __init__(self, model: Model, before: KnownRows | None = None, kept: NDArray[np.int64] | None = None) -> None:
        self.model = model
        self.n_variables = model.n_variables
        self.labels: Sequence[Hashable] = model.labels
        self._lookup = model._lookup
        self._before, self._kept = before, kept
        self._lock = RLock()
        self._begin = np.zeros(self.n_variables, dtype=np.int64)  # 1 + first entry; 0: not known
        self._size = np.zeros(self.n_variables, dtype=np.int32)
        self._cap = np.zeros(self.n_variables)
        self._entries = 0
        self._columns = np.zeros(64, dtype=np.int32 if self.n_variables < 2**31 else np.int64)
        self._values = np.zeros(64)
        self._theorem = np.zeros(64, dtype=np.uint8)

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        """The rows at increasing positions."""
        with self._lock:
            return self._rows(positions)

    def _rows(self, positions: NDArray[np.int64]) -> Rows:
        missing = positions[self._begin[positions] == 0]
        if len(missing):
            found = self._inherited(missing)
            rest = missing[self._begin[missing] == 0] if found else missing
            if len(rest):
                self._store(rest, influence_rows(self.model, rest, "best"))
        sizes = self._size[positions].astype(np.int64)
        start = np.concatenate([[0], np.cumsum(sizes)])
        entry = np.arange(start[-1]) + np.repeat(self._begin[positions] - 1 - start[:-1], sizes)
        parts = (self._columns[entry], self._values[entry], self._theorem[entry], self._cap[positions])
        return Rows(frozen(start), *(frozen(part) for part in parts))

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

    def _inherited(self, positions: NDArray[np.int64]) -> bool:
        """Take over rows of variables with no neighbour in the evidence, as far as they are known."""
        if self._before is None or self._kept is None:
            return False
        old = self._kept[positions]
        start = self.model._adjacency[0]
        before = self._before.model._adjacency[0]
        same = (start[positions + 1] - start[positions]) == (before[old + 1] - before[old])
        same &= self._before._begin[old] > 0
        if not same.any():
            return False
        rows = self._before.rows(old[same])
        columns = np.searchsorted(self._kept, rows.columns).astype(self._columns.dtype)
        self._store(positions[same], rows._replace(columns=columns))
        return True


class Workspace:
    """A model with what is known about it.

    `rounding` bounds how far the log-density of the model is from that of the model it was made from by evidence (up to
    a constant), which bounds the error of each of its conditional laws too.
    """

    def __init__(self, model: Model, rows: KnownRows | None = None, rounding: float = 0.0) -> None:
        self.model = model
        self.rows = KnownRows(model) if rows is None else rows
        self.rounding = rounding
        self._given: OrderedDict[Any, Workspace] = OrderedDict()
        self._lock = RLock()
        self.memory: dict[Any, Any] = {}  # results of costly questions that do not depend on targets

    @cached_property
    def influence(self) -> Influence:
        """The whole influence."""
        return influence(self.model)

    def given(self, evidence: Mapping[Hashable, int]) -> Workspace:
        """The workspace of the model given some evidence: labels of the model, and states as whole numbers."""
        if not evidence:
            return self
        key = frozenset(evidence.items())
        with self._lock:
            if key in self._given:
                self._given.move_to_end(key)
                return self._given[key]
            rest = self.model.condition(evidence)
            known = np.array([self.model.index(label) for label in evidence])
            kept = np.delete(np.arange(self.model.n_variables), known)
            made = Workspace(rest, KnownRows(rest, self.rows, kept), condition_rounding(self.model, known))
            self._given[key] = made
            while len(self._given) > min(_MOST_KEPT, 1 + _MOST_VARIABLES // self.model.n_variables):
                self._given.popitem(last=False)
            return made


def condition_rounding(model: Model, known: NDArray[np.int64]) -> float:
    """Bound on the rounding of the log-density when variables are fixed, up to a constant.

    What the evidence leaves of terms with several variables is added to terms of fewer: each sum of k numbers is off by
    at most k units of the sum of their sizes. All terms that hold a neighbour of the evidence are counted.
    """
    if isinstance(model, FactorGraph):
        return 0.0  # tables are cut, nothing is added
    if isinstance(model, Ising):
        rows = abs(model.couplings[known])
        sizes = np.asarray(rows.sum(axis=0)).ravel()
        touched = np.flatnonzero(sizes)
        counts = np.asarray((rows > 0).sum(axis=0)).ravel()[touched]
        return float(2.0 * _UNIT * ((counts + 2) * (sizes[touched] + np.abs(model.fields[touched]))).sum())
    graph = model.to_factor_graph()
    near = np.unique(np.concatenate([known, *(model.neighbors(int(i)) for i in known)]))
    factors = np.unique(np.concatenate([graph._factor_of[graph._factor_start[i] : graph._factor_start[i + 1]]
                                        for i in near.tolist()]))  # fmt: skip
    total = 0.0
    for k in factors.tolist():
        table = graph.factor(k)[1]
        total += float(np.abs(np.where(table > -np.inf, table, 0.0)).max())
    return 2.0 * _UNIT * (len(factors) + 2) * total


def workspace(model: Model) -> Workspace:
    """The workspace of a model: the same one every time."""
    with _MAKING:
        if model._workspace is None:
            model._workspace = Workspace(model)
        found: Workspace = model._workspace
    return found
