"""The free variables of a PyMC model, entry by entry: what they are called and which values they can have."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._sampling import Samples
from dobrushin._shared import validate as check
from dobrushin._shared.extras import require
from dobrushin.errors import ArgumentError

STATISTICS = ("mean", "lower", "upper", "bias_bound")
_KINDS = "Bernoulli, Categorical, DiscreteUniform, Binomial, BetaBinomial or HyperGeometric"


@dataclass(frozen=True)
class Variables:
    """The entries of the free variables of a model, one after the other."""

    names: tuple[str, ...]
    values: dict[str, Any]  # PyTensor's input for each variable
    shape: dict[str, tuple[int, ...]]
    numbers: dict[str, NDArray[np.int64]]  # of the entries
    labels: list[str]
    lowest: list[int]  # the least value of each entry
    sizes: NDArray[np.int64]  # how many values each entry can have

    @classmethod
    def of(cls, model: Any, where: str) -> Variables:
        """Those of a model, or a sentence with the first that cannot be used."""
        pymc = require("pymc", "pymc")
        check.instance(model, pymc.Model, where, "model", "a pymc.Model")
        if not model.free_RVs:
            raise ArgumentError(where, "model", "a model with free variables", got="none")
        start = model.initial_point()
        shape, numbers, values = {}, {}, {}
        labels: list[str] = []
        lowest: list[int] = []
        sizes: list[int] = []
        for variable in model.free_RVs:
            name, value = variable.name, model.rvs_to_values[variable]
            low, high = _support(variable, model, where)
            shape[name], values[name] = np.shape(start[value.name]), value
            count = math.prod(shape[name])
            numbers[name] = np.arange(len(labels), len(labels) + count).reshape(shape[name])
            labels += [_label(name, index) for index in np.ndindex(shape[name])]
            lowest += np.broadcast_to(low, shape[name]).ravel().astype(int).tolist()
            sizes += (np.broadcast_to(high - low, shape[name]).ravel().astype(int) + 1).tolist()
        if (array := np.array(sizes, dtype=np.int64)).min(initial=1) < 1:
            raise ArgumentError(where, "model", "one whose variables have values", labels[int(array.argmin())])
        return cls(tuple(values), values, shape, numbers, labels, lowest, array)

    def point(self, digits: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """A state of all entries as PyTensor's inputs take it."""
        flat = digits + np.array(self.lowest, dtype=np.int64)
        return [flat[self.numbers[name]].astype(self.values[name].dtype) for name in self.names]

    def draws(self, samples: Samples, where: str) -> dict[str, NDArray[np.int64]]:
        """Draws of each variable of which all entries were kept: (chains, draws, ...)."""
        states = samples._draws("to_arviz").astype(np.int64)
        place = {label: k for k, label in enumerate(samples.variables)}
        self._check_labels(place, where)
        found = {}
        for name in self.names:
            entries = self.numbers[name].ravel()
            if all(self.labels[i] in place or self.sizes[i] == 1 for i in entries) and len(entries):
                columns = [
                    states[..., place[self.labels[i]]] + self.lowest[i]
                    if self.sizes[i] > 1
                    else np.full(states.shape[:2], self.lowest[i])
                    for i in entries
                ]
                found[name] = np.stack(columns, axis=-1).reshape(*states.shape[:2], *self.shape[name])
        return found

    def marginals(self, answer: Estimate, where: str) -> tuple[dict[str, NDArray[np.float64]], dict[str, list[int]]]:
        """Statistics of the states of each variable that was asked about, and the values of these states."""
        asked = {target for target in answer.targets if isinstance(target, str)}
        self._check_labels(asked, where)
        found, states = {}, {}
        for name in self.names:
            entries = self.numbers[name].ravel()
            if not any(self.labels[i] in asked for i in entries):
                continue
            low = min(self.lowest[i] for i in entries)
            high = max(self.lowest[i] + int(self.sizes[i]) for i in entries)
            states[name] = list(range(low, high))
            arrays = {statistic: np.full((len(entries), high - low), np.nan) for statistic in STATISTICS}
            for row, i in enumerate(entries):
                if self.labels[i] in asked:
                    own = answer[self.labels[i]]
                    columns = [state - low for state in own.states]
                    for statistic in STATISTICS:
                        arrays[statistic][row, columns] = getattr(own, statistic)
            for statistic, array in arrays.items():
                found[f"{name}_{statistic}"] = array.reshape(*self.shape[name], high - low)
        return found, states

    def _check_labels(self, labels: Iterable[Hashable], where: str) -> None:
        known = set(self.labels)
        for label in labels:
            if label not in known:
                raise ArgumentError(where, "answer", "about the variables of the model", label)


def _label(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def _support(variable: Any, model: Any, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The least and the greatest value of each entry of a free variable."""
    node = variable.owner
    name = type(node.op).__name__.removesuffix("RV")
    if variable.dtype not in require("pymc", "pymc").discrete_types:
        got = f"the continuous variable {variable.name!r} ({name})"
        raise ArgumentError(where, "model", "one whose free variables are discrete", got=got)

    def limits() -> tuple[Any, Any] | None:
        if name == "Bernoulli":
            return 0, 1
        if name not in ("Categorical", "DiscreteUniform", "Binomial", "BetaBinomial", "HyperGeometric"):
            return None
        parameters = node.op.dist_params(node)
        if name == "Categorical":
            return 0, parameters[0].shape[-1] - 1
        if name == "DiscreteUniform":
            return parameters[0], parameters[1]
        if name == "HyperGeometric":
            maximum, minimum = require("pytensor.tensor", "pymc").maximum, require("pytensor.tensor", "pymc").minimum
            good, bad, drawn = parameters
            return maximum(0, drawn - bad), minimum(good, drawn)
        return 0, parameters[0]

    found = limits()
    if found is None:
        got = f"{variable.name!r} ({name})"
        raise ArgumentError(where, "model", f"one whose free variables are {_KINDS}", got=got)
    low, high = (_constant(limit, variable, model, where) for limit in found)
    return low, high


def _constant(limit: Any, variable: Any, model: Any, where: str) -> NDArray[np.int64]:
    """A limit of a support as a number; it must not depend on other variables."""
    if isinstance(limit, int):
        return np.array(limit)
    pytensor, traversal = require("pytensor", "pymc"), require("pytensor.graph.traversal", "pymc")
    with model:
        (limit,) = model.replace_rvs_by_values([limit])
    mode = pytensor.compile.mode.Mode(linker="py", optimizer="fast_run")
    inputs = list(model.value_vars)
    evaluate = pytensor.function(inputs, limit, mode=mode, on_unused_input="ignore")
    needed = set(traversal.ancestors(evaluate.maker.fgraph.outputs))
    if any(copy in needed for copy in evaluate.maker.fgraph.inputs[: len(inputs)]):
        got = f"{variable.name!r}, whose values depend on another variable"
        raise ArgumentError(where, "model", "one whose variables have fixed values", got=got)
    start = model.initial_point()
    return np.floor(np.asarray(evaluate(*[start[value.name] for value in inputs]))).astype(np.int64)
