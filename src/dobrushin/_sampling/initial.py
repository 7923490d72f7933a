"""Where chains start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin import _validate as check
from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
from dobrushin._sampling.region import Region
from dobrushin.errors import ArgumentError

Start = Callable[[range], NDArray[np.int64]]


@dataclass(frozen=True)
class Same:
    """All chains start in one state."""

    states: NDArray[np.int64]  # (variables, 1)

    def __call__(self, chains: range) -> NDArray[np.int64]:
        return np.repeat(self.states, len(chains), axis=1)


@dataclass(frozen=True)
class Each:
    """Every chain has its own state."""

    states: NDArray[np.int64]  # (variables, chains)

    def __call__(self, chains: range) -> NDArray[np.int64]:
        return self.states[:, chains.start : chains.stop]


@dataclass(frozen=True)
class Made:
    """A function of the user's makes the states of given chains."""

    model: Model
    region: Region
    function: Any

    def __call__(self, chains: range) -> NDArray[np.int64]:
        return _digits(self.model, self.region, self.function(np.arange(chains.start, chains.stop)), len(chains))


def read_initial(model: Model, region: Region, initial: Any, chains: int) -> Start | None:
    """States 0..k-1 of the region's variables, (variables, chains), for a range of chains; None for uniform ones."""
    if isinstance(initial, str) and initial == "uniform":
        return None
    if isinstance(initial, str) and initial == "mode":
        return Same(_mode(model, region.positions)[:, None])
    if callable(initial):
        return Made(model, region, initial)
    if isinstance(initial, str):
        raise ArgumentError("sample", "initial", "'uniform', 'mode', states or a function", initial)
    array = check.real_array(initial, "sample", "initial")
    if array.ndim == 1:
        return Same(_digits(model, region, array[None], 1))
    return Each(_digits(model, region, array, chains))


def check_allowed(model: Model, region: Region, states: NDArray[np.int64], first: int) -> None:
    """Fail if a start has probability zero, and name a factor that it violates."""
    graph = model.to_factor_graph()
    own = np.full(model.n_variables, -1)
    own[region.positions] = np.arange(region.size)
    for k in range(graph.n_factors):
        scope, table = graph.factor(k)
        if not np.isneginf(table).any() or (own[list(scope)] < 0).any():
            continue
        bad = np.isneginf(table[tuple(states[own[v]] for v in scope)])
        if bad.any():
            chain = int(np.argmax(bad))
            names = ", ".join(f"{model.labels[v]!r} = {states[own[v], chain]}" for v in scope)
            requirement = "an allowed state (pass one as initial=, or a function that makes them)"
            raise ArgumentError("sample", "initial", requirement, f"forbidden: {names}", f"chain {first + chain}")


def _digits(model: Model, region: Region, states: Any, chains: int) -> NDArray[np.int64]:
    array = check.real_array(states, "sample", "initial")
    if array.shape != (chains, model.n_variables):
        requirement = f"states of shape ({model.n_variables},) or ({chains}, {model.n_variables})"
        raise ArgumentError("sample", "initial", requirement, f"shape {array.shape}")
    checked = model._check_states(array, "sample")
    seen = checked[:, region.positions].T
    return (seen + 1) // 2 if model._spins else seen


def _mode(model: Model, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most likely state of each variable by its own potentials alone."""
    if isinstance(model, Ising | SpinMRF):
        up: NDArray[np.bool_] = model.fields[positions] >= 0
        return up.astype(np.int64)
    if isinstance(model, Potts):
        return model.unaries[positions].argmax(axis=1)
    if isinstance(model, PairwiseMRF):
        return np.array([model.unary(i).argmax() for i in positions.tolist()])
    assert isinstance(model, FactorGraph)
    mode = np.zeros(len(positions), dtype=np.int64)
    for place, i in enumerate(positions.tolist()):
        total = np.zeros(int(model.cardinalities[i]))
        for k in model._factor_of[model._factor_start[i] : model._factor_start[i + 1]].tolist():
            scope, table = model.factor(k)
            if len(scope) == 1:
                total = total + table
        mode[place] = total.argmax()
    return mode
