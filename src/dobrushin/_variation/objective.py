"""What the user cares about: a set of variables, or weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import RowSource
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError


@dataclass(frozen=True)
class Objective:
    """Positive weights d at some positions; `is_set` when they are the indicator of a target set."""

    positions: NDArray[np.int64]
    weights: NDArray[np.float64]
    is_set: bool

    def trivial(self) -> float:
        """The bound that holds without any knowledge: 1 for the total variation of a set, else the sum of weights."""
        with np.errstate(over="ignore"):
            return 1.0 if self.is_set else float(self.weights.sum())

    def describe(self, n: int) -> str:
        """What it is, in English."""
        size = len(self.positions)
        if not self.is_set:
            return f"{size} weighted variables"
        return f"all {n} variables" if size == n else f"{size} target{'s' if size > 1 else ''}"


def read_objective(source: RowSource, targets: Any, weights: Any, function: str) -> Objective:
    """The objective of a call; all variables when neither targets nor weights are given."""
    n = source.n_variables
    if targets is not None and weights is not None:
        raise ArgumentError(function, "weights", "None when 'targets' is given", weights)
    if weights is None:
        if targets is None:
            return Objective(np.arange(n), np.ones(n), True)
        positions = check.positions(targets, source.labels, source._lookup, function, "targets")
        return Objective(np.sort(positions), np.ones(len(positions)), True)
    if isinstance(weights, Mapping):
        positions = check.positions(list(weights), source.labels, source._lookup, function, "weights")
        values = check.real_array(list(weights.values()), function, "weights")
    else:
        values = check.real_array(weights, function, "weights")
        if values.shape != (n,):
            raise ArgumentError(
                function, "weights", f"one number for each of {n} variables", got=f"shape {values.shape}"
            )
        positions = np.arange(n)
    check.all_entries((values >= 0) & (values < np.inf), values, function, "weights", "non-negative and finite")
    kept = np.flatnonzero(values > 0)
    if not len(kept):
        raise ArgumentError(function, "weights", "positive for some variable", weights)
    order = kept[np.argsort(positions[kept], kind="stable")]
    return Objective(positions[order], values[order], False)
