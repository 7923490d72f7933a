"""From what callers pass in to a structure, observations and settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dobrushin._learning.structure import FAMILIES, Structure, structure_of
from dobrushin._models import Model
from dobrushin._models.couplings import name_variables
from dobrushin._models.sources import as_model, read_source
from dobrushin._models.state_names import read_state
from dobrushin._shared import validate as check
from dobrushin._shared.options import Learn, Step
from dobrushin._shared.running import kept_seed
from dobrushin.errors import ArgumentError

_MODEL = "an Ising, Potts or PairwiseMRF model, or a list of edges"


@dataclass(frozen=True)
class Options:
    """Where gradients come from, and when they are small enough."""

    method: str
    scan: str
    tolerance: float
    steps: int | None
    chains: int
    persistent: bool
    stop: float | None
    sequence: np.random.SeedSequence

    @property
    def is_exact(self) -> bool:
        """Whether gradients come from a clique tree."""
        return self.method == "exact"

    def check_for(self, structure: Structure) -> Options:
        """The options as numbers that make sense for this structure."""
        tolerance = check.positive(self.tolerance, "tolerance")
        if tolerance >= structure.difference:
            requirement = f"below {structure.difference:g}, the range of the statistics"
            raise ArgumentError("tolerance", requirement, tolerance)
        steps, stop = self.steps, self.stop
        if steps is not None:
            steps = check.count(steps, "steps", structure.n if self.scan == "systematic" else 1)
        if stop is not None:
            stop = check.positive(stop, "stop")
        elif self.is_exact:
            stop = 1e-6
        return replace(self, tolerance=tolerance, steps=steps, stop=stop, persistent=bool(self.persistent))

    def about(self) -> dict[str, Any]:
        """What a fit says of itself, and a checkpoint of the fit that wrote it."""
        return {
            "method": "exact" if self.is_exact else self.scan,
            "persistent": not self.is_exact and self.persistent,
            "seed": None if self.is_exact else kept_seed(self.sequence),
            "tolerance": self.tolerance,
            "chains": self.chains,
        }


@dataclass(frozen=True)
class Settings:
    """How to climb."""

    step: float | Callable[[int], float] | None  # None: chosen at each iteration
    ridge: float
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def project(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The nearest point of the box."""
        return np.clip(theta, self.low, self.high)

    def inward(self, theta: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """The gradient without the coordinates that push out of the box."""
        out = ((theta >= self.high) & (gradient > 0)) | ((theta <= self.low) & (gradient < 0))
        return np.where(out, 0.0, gradient)

    def step_size(self, iteration: int) -> float | None:
        """The step size of an iteration, counted from 0; None where it is to be chosen."""
        if callable(self.step):
            return check.positive(self.step(iteration), "step")
        return self.step


def read_problem(
    source: Any, data: Any, family: str | None, states: int | None, learn: str
) -> tuple[Structure, NDArray[np.int64]]:
    """The structure, and observations of shape (rows, variables) in the order of its labels."""
    check.choice(learn, get_args(Learn), "learn")
    source = as_model(source) if isinstance(source, str | os.PathLike) else read_source(source)
    names = list(data.columns) if hasattr(data, "columns") else None
    array = check.real_array(_number_states(data, source), "data")
    if array.ndim != 2 or not len(array):
        requirement = "an array with a row for each observation, at least one, and a column for each variable"
        raise ArgumentError("data", requirement, got=f"shape {array.shape}")
    if isinstance(source, Model):
        structure = _from_model(source, family, states, learn)
    else:
        structure = _from_edges(source, array, names, family, states, learn)
    if array.shape[1] != structure.n:
        requirement = f"an array with a column for each of {structure.n} variables, in the order of the labels"
        raise ArgumentError("data", requirement, got=f"{array.shape[1]} columns")
    if names is not None:
        array = array[:, _columns(names, structure.labels)]
    _check_states(array, structure)
    if not len(structure.free):
        raise ArgumentError("learn", "'all', 'edges' or 'unaries' such that a parameter can be learned", learn)
    return structure, array.astype(np.int64)


def _number_states(data: Any, source: Any) -> Any:
    """Observations as numbers, where a column of a data frame has names of states."""
    if not hasattr(data, "columns") or not isinstance(source, Model) or source._state_names is None:
        return data
    columns = []
    for k, label in enumerate(data.columns):
        position, values = check.label_position(label, source.labels, source._lookup), data.iloc[:, k].tolist()
        if position is not None and source._names_at(position) is not None:
            number = {value: read_state(source, position, value, "data") for value in set(values)}
            values = [number[value] for value in values]
        columns.append(values)
    return np.array(columns).T if columns else data


def _from_model(model: Model, family: str | None, states: int | None, learn: str) -> Structure:
    structure = structure_of(model, learn)
    if structure is None:
        raise ArgumentError("model", _MODEL, model)
    for name, value in (("family", family), ("states", states)):
        if value is not None:
            raise ArgumentError(name, "None when a model is given", value)
    if not len(structure.edges) and learn != "unaries":
        requirement = "one with edges (couplings of 0 are none: pass a list of edges, or couplings of 1 and initial=0)"
        raise ArgumentError("model", requirement, model)
    return structure


def _from_edges(
    source: Any, data: NDArray[np.float64], names: list[Hashable] | None, family: str | None, states: Any, learn: str
) -> Structure:
    family = check.choice("ising" if family is None else family, tuple(FAMILIES), "family")
    keys = _read_edges(source)
    if not keys and learn != "unaries":
        raise ArgumentError("model", "a list of at least one edge", source)
    columns = range(data.shape[1])
    labels: Sequence[Hashable]
    if names is not None:
        labels = check.read_labels(names, len(names))
        lookup = check.lookup_table(labels)
    else:
        count, own, lookup = name_variables(keys, "model", None)
        labels = columns if own is None else own
        if own is None and count > len(columns):
            requirement = f"a list of edges between the {len(columns)} columns of the data"
            raise ArgumentError("model", requirement, count - 1)
    pairs = np.empty((len(keys), 2), dtype=np.int64)
    for k, ends in enumerate(keys):
        for side, label in enumerate(ends):
            position = check.label_position(label, labels, lookup)
            if position is None:
                raise ArgumentError("model", "a list of edges between columns of the data", label, f"edge {k}")
            pairs[k, side] = position
    pairs.sort(axis=1)
    unique, index = np.unique(pairs, axis=0, return_index=True)
    if len(unique) < len(pairs):
        k = int(np.setdiff1d(np.arange(len(pairs)), index)[0])
        raise ArgumentError("model", "a list of edges without repetition", keys[k], f"edge {k}")
    return FAMILIES[family].on(pairs, labels, _number_of_states(family, states, data), learn)


def _read_edges(source: Any) -> list[tuple[Hashable, ...]]:
    """Pairs of distinct labels."""
    if not check.is_several(source):
        raise ArgumentError("model", _MODEL, source)
    edges: list[tuple[Hashable, ...]] = []
    for k, edge in enumerate(source):
        pair = edge.tolist() if isinstance(edge, np.ndarray) else edge
        ends = tuple(pair) if check.is_several(pair) else ()
        if len(ends) != 2 or ends[0] == ends[1]:
            raise ArgumentError("model", "a list of pairs of distinct labels", edge, f"edge {k}")
        edges.append(ends)
    return edges


def _number_of_states(family: str, states: Any, data: NDArray[np.float64]) -> int:
    if family == "ising":
        if states is not None:
            raise ArgumentError("states", "None for spins -1/+1", states)
        return 2
    if states is not None:
        return check.count(states, "states", 2)
    largest = float(data.max(initial=0.0))
    return max(2, int(largest) + 1) if 0 <= largest < 2**15 else 2


def _columns(names: list[Hashable], labels: Sequence[Hashable]) -> list[int]:
    """Where the columns of a data frame are that belong to the labels."""
    place = {name: k for k, name in enumerate(names)}
    if len(place) < len(names):
        raise ArgumentError("data", "a data frame whose columns have distinct names", names)
    for label in labels:
        if label not in place:
            raise ArgumentError("data", f"a data frame with the labels as columns, {label!r} among them", names)
    return [place[label] for label in labels]


def _check_states(data: NDArray[np.float64], structure: Structure) -> None:
    if structure.spins:
        requirement = "-1 or +1 everywhere (of 0/1 data take 2 * x - 1)"
        check.all_entries((data == 1) | (data == -1), data, "data", requirement)
        return
    fine = (data >= 0) & (data < structure.sizes) & (data == np.floor(data))
    top = int(structure.sizes.max()) - 1
    requirement = f"states from 0 to {top}" if (structure.sizes == top + 1).all() else "states from 0 to k - 1"
    check.all_entries(fine, data, "data", requirement)
    if np.isneginf(structure.start).any():
        model = structure.pairwise(structure.start)
        if (bad := np.isneginf(model.log_density(data))).any():
            row = int(np.argmax(bad))
            raise ArgumentError("data", "allowed by the model", data[row].astype(np.int64), f"row {row}")


def read_settings(count: int, step: Any, ridge: Any, box: Any) -> Settings:
    """The options of the ascent."""
    if isinstance(step, str):
        check.choice(step, get_args(Step), "step")
        size = None
    elif callable(step):
        size = step
    else:
        size = check.positive(step, "step")
    ridge = check.non_negative(ridge, "ridge")
    low, high = np.full(count, -np.inf), np.full(count, np.inf)
    if box is not None:
        ends = box if isinstance(box, tuple | list) else (-np.asarray(box), box)
        if len(ends) != 2:
            raise ArgumentError("box", "a number, or a pair of a lower and an upper bound", box)
        low, high = (_vector(end, count, "box") for end in ends)
        if not (fine := low <= high).all():
            k = int(np.argmin(fine))
            requirement = "a lower bound that is not above the upper one (a single number is the upper one)"
            raise ArgumentError("box", requirement, (float(low[k]), float(high[k])), f"index {k}")
    return Settings(size, ridge, low, high)


def read_start(structure: Structure, initial: Any, settings: Settings) -> NDArray[np.float64]:
    """The free parameters to start from, inside the box."""
    theta = structure.start[structure.free]
    if initial is not None:
        theta = check.finite(_vector(initial, len(theta), "initial"), "initial")
    return settings.project(theta)


def _vector(value: Any, count: int, argument: str) -> NDArray[np.float64]:
    array = check.real_array(value, argument)
    if array.ndim and array.shape != (count,):
        requirement = f"a number or one for each of {count} parameters"
        raise ArgumentError(argument, requirement, got=f"shape {array.shape}")
    check.all_entries(~np.isnan(array), array, argument, "a number, not NaN")
    return np.broadcast_to(array, (count,)).astype(np.float64)
