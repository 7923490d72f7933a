"""Where chains start."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.tables import first_forbidden
from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
from dobrushin._sampling.build import has_hard_zeros, local_factors
from dobrushin._sampling.region import Region
from dobrushin._shared import validate as check
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
    array = np.asarray(initial)
    if array.ndim == 1:
        return Same(_digits(model, region, array[None], 1))
    return Each(_digits(model, region, array, chains))


@dataclass(frozen=True)
class Guard:
    """Refuses starts that a factor of an updated variable forbids."""

    parts: tuple[NDArray[Any], ...]
    table: NDArray[np.float64]
    positions: NDArray[np.int64]
    labels: Sequence[Hashable]

    def check(self, states: NDArray[Any], first: int) -> None:
        """States of shape (variables, chains); `first` is the number of the first chain."""
        variable, factor, chain = first_forbidden(*self.parts, self.table, np.ascontiguousarray(states, dtype=np.int64))
        if variable < 0:
            return
        _, m_start, member, _, _, _ = self.parts
        names = [variable, *member[m_start[factor] : m_start[factor + 1]].tolist()]
        words = [f"{self.labels[int(self.positions[v])]!r} = {states[v, chain]}" for v in names]
        requirement = "an allowed state (pass one as initial=, or a function that makes them)"
        raise ArgumentError(
            "sample", "initial", requirement, got=f"forbidden: {', '.join(words)}", where=f"chain {first + chain}"
        )


def make_guard(model: Model, region: Region) -> Guard | None:
    """None for models that allow everything."""
    if not has_hard_zeros(model):
        return None
    graph, parts = local_factors(model, region)
    return Guard(parts, graph._table, region.positions, model.labels)


def _digits(model: Model, region: Region, states: Any, chains: int) -> NDArray[np.int64]:
    array = np.asarray(states)
    if array.shape != (chains, model.n_variables):
        requirement = f"states of shape ({model.n_variables},) or ({chains}, {model.n_variables})"
        got = array.shape[1:] if len(array) == 1 == chains else array.shape
        raise ArgumentError("sample", "initial", requirement, got=f"shape {got}")
    # Only what is simulated is looked at.
    seen = check.real_array(array[:, region.positions], "sample", "initial").T
    if model._spins:
        check.all_entries((seen == 1) | (seen == -1), seen, "sample", "initial", "-1 or +1")
        return (seen.astype(np.int64) + 1) // 2
    sizes = model.cardinalities[region.positions][:, None]
    fine = (seen >= 0) & (seen < sizes) & (seen == np.floor(seen))
    check.all_entries(fine, seen, "sample", "initial", "from 0 to the variable's cardinality less one")
    return seen.astype(np.int64)


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
