"""Where chains start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
from dobrushin._sampling.region import Region
from dobrushin.errors import ArgumentError

Start = Callable[[range], NDArray[np.int64]]


def read_initial(model: Model, region: Region, initial: Any, chains: int) -> Start | None:
    """States 0..k-1 of the region's variables, (variables, chains), for a range of chains; None for uniform ones."""
    if isinstance(initial, str) and initial == "uniform":
        return None
    if isinstance(initial, str) and initial == "mode":
        mode = _mode(model, region.positions)
        return lambda which: np.repeat(mode[:, None], len(which), axis=1)
    if callable(initial):
        return lambda which: _digits(model, region, initial(np.arange(which.start, which.stop)), len(which))
    if isinstance(initial, str):
        raise ArgumentError("sample", "initial", "'uniform', 'mode', states or a function", initial)
    array = np.asarray(initial)
    if array.ndim == 1:
        one = _digits(model, region, array[None], 1)
        return lambda which: np.repeat(one, len(which), axis=1)
    every = _digits(model, region, array, chains)
    return lambda which: every[:, which.start : which.stop]


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
    array = np.asarray(states)
    if array.shape != (chains, model.n_variables):
        requirement = f"states of shape ({model.n_variables},) or ({chains}, {model.n_variables})"
        raise ArgumentError("sample", "initial", requirement, f"shape {array.shape}")
    checked = model._check_states(array, "sample")
    seen = checked[:, region.positions].T
    return (seen + 1) // 2 if model._spins else seen


def _mode(model: Model, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most likely state of each variable by its own potentials alone."""
    if isinstance(model, Ising | SpinMRF):
        return (model.fields[positions] >= 0).astype(np.int64)
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
