"""What calls on the same model share: influence rows, models given evidence, and allowed states.

Nothing here is public. A workspace lives as long as its model.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.known import KnownInfluence, known_influence
from dobrushin._influence.matrix import Influence
from dobrushin._models import FactorGraph, Ising, Model

# Models given evidence that are kept: so many, and fewer of large ones.
_MOST_KEPT, _MOST_VARIABLES = 16, 10**6
_UNIT = 2.0**-53
_MAKING = RLock()


class Workspace:
    """A model with what is known about it.

    `rounding` bounds how far the log-density of the model is from that of the model it was made from by evidence (up to
    a constant), which bounds the error of each of its conditional laws too.
    """

    def __init__(self, model: Model, rows: KnownInfluence | None = None, rounding: float = 0.0) -> None:
        self.model = model
        self.rows = known_influence(model) if rows is None else rows
        self.rounding = rounding
        self._given: OrderedDict[Any, Workspace] = OrderedDict()
        self._lock = RLock()
        self.memory: dict[Any, Any] = {}  # results of costly questions that do not depend on targets

    @property
    def influence(self) -> Influence:
        """The whole influence."""
        return self.rows.whole

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
            rest._known_influence = KnownInfluence(rest, self.rows, kept)
            made = Workspace(rest, None, condition_rounding(self.model, known))
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
