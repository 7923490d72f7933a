"""Conversions from PyMC models of discrete variables, of answers to ArviZ, and scans as steps of PyMC."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._models import FactorGraph
from dobrushin._sampling import Samples
from dobrushin._sampling.samples import arviz_data
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.adapters.pytensor import (
    ChangingShape,
    Dependence,
    Scope,
    Table,
    TermPart,
    TermTables,
    add_table,
    compile_terms,
    is_forbidden,
    shapes_of,
    split,
    with_shapes,
)
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin.adapters.pymc_step import GibbsStep, order

__all__ = ["GibbsStep", "order", "to_arviz"]

_STATISTICS = ("value", "lower", "upper", "bias_bound")
# The least and the greatest value of a variable by its distribution, from the parameters of the distribution.
_SUPPORTS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "Bernoulli": lambda _: (0, 1),
    "Categorical": lambda p: (0, p.shape[-1] - 1),
    "DiscreteUniform": lambda low, high: (low, high),
    "Binomial": lambda n, _: (0, n),
    "BetaBinomial": lambda n, *_: (0, n),
    "HyperGeometric": lambda good, bad, n: (abs(n - bad) / 2 + (n - bad) / 2, (good + n) / 2 - abs(good - n) / 2),
}
# Largest table of one term, and most evaluations of one tensor of terms.
_MAX_ENTRIES = 2**20
_MAX_CALLS = 10**6
# States at which the factor graph is compared with PyMC's own log-probability.
_COMPARED = 16


@public("reading")
def from_pymc(model: Any, *, progress: bool | None = None) -> FactorGraph:
    """Return the factor graph of a PyMC model of discrete variables.

    Parameters
    ----------
    model : pymc.Model
        Its free variables are Bernoulli, Categorical, DiscreteUniform, Binomial, BetaBinomial or HyperGeometric, with
        numbers of states that do not depend on other variables. What is observed may be of any kind. Potentials may be
        anything; sums in them are taken apart, and each term may depend on few variables only.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: also in a log; False: never.

    Returns
    -------
    FactorGraph
        A variable for each entry of the free variables, called ``x``, ``x[2]`` or ``x[1, 0]``, in the order of
        `model.free_RVs`. Its states are called by the values of the variable. Entries with one possible value are left
        out.

    Raises
    ------
    ArgumentError
        For continuous variables, variables without finitely many states, terms of too many variables, and
        log-probabilities that are no numbers.

    Notes
    -----
    log pi(x) = model.logp(x) + constant: which entries each term depends on is read from its graph, and its table is
    PyMC's own log-probability at each of their states. The sum is compared with PyMC's at some states at the end.

    Examples
    --------
    >>> import pymc as pm  # doctest: +SKIP
    >>> import dobrushin as db
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     ill = pm.Bernoulli("ill", 0.01)
    ...     test = pm.Bernoulli("test", pm.math.switch(ill, 0.9, 0.05), observed=1)
    >>> db.from_pymc(model)  # doctest: +SKIP
    FactorGraph(n_variables=1, factors=1)
    >>> db.estimate(model, "ill").headline  # doctest: +SKIP
    'P(ill = 0) = 0.846153846154, exact to 1e-12'
    """
    variables = Entries.of(model)
    with model:
        terms = [term for term in model.logp(sum=False) if term is not None]
    factors, error = _factors(model, terms, variables)
    kept = np.flatnonzero(variables.sizes > 1)
    if not len(kept):
        raise ArgumentError("model", "a model with a free variable of two or more states", list(variables.names))
    graph = FactorGraph(
        variables.sizes[kept],
        factors,
        [variables.labels[i] for i in kept],
        state_names=[tuple(range(variables.lowest[i], variables.lowest[i] + variables.sizes[i])) for i in kept],
    )._off_by(error)
    _compare(graph, kept, model, terms, variables)
    return graph


@public(name="adapters.pymc.to_arviz")
def to_arviz(answer: Samples | Estimate, model: Any) -> Any:
    """Return samples or an estimate as ArviZ data, with the variables, dimensions and coordinates of the PyMC model.

    Parameters
    ----------
    answer : Samples or Estimate
        Of the factor graph of the model, or of the model itself.
    model : pymc.Model

    Returns
    -------
    arviz.InferenceData (a DataTree from ArviZ 1 on)
        Draws, where they were kept, are the group ``posterior``; variables of which some entries were not kept are left
        out. For an estimate, ``constant_data`` has ``x_value``, ``x_lower``, ``x_upper`` and ``x_bias_bound``, with a
        last dimension ``x_state``, NaN for other variables.

    Examples
    --------
    >>> import pymc as pm  # doctest: +SKIP
    >>> import dobrushin as db
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     coin = pm.Bernoulli("coin", 0.7, shape=2)
    >>> data = db.adapters.pymc.to_arviz(db.estimate(model, ["coin[0]"]), model)  # doctest: +SKIP
    >>> data.constant_data["coin_value"].sel(coin_state=1).values  # doctest: +SKIP
    array([0.7, nan])
    """
    check.instance(answer, Samples | Estimate, "answer", "Samples or an Estimate")
    variables = Entries.of(model)
    groups: dict[str, dict[str, Any]] = {}
    dims: dict[str, list[str]] = {}
    coords: dict[str, Any] = {}
    samples = answer if isinstance(answer, Samples) else answer.samples
    if samples is not None and samples.states is not None:
        groups["posterior"] = variables.draws(samples)
    for name in variables.names:
        own = model.named_vars_to_dims.get(name)
        dims[name] = list(own) if own else [f"{name}_dim_{k}" for k in range(len(variables.shape[name]))]
        coords |= {dim: list(values) for dim in own or () if (values := model.coords.get(dim)) is not None}
    if isinstance(answer, Estimate):
        groups["constant_data"], states = variables.marginals(answer)
        for name, values in states.items():
            coords[f"{name}_state"] = values
            for statistic in _STATISTICS:
                dims[f"{name}_{statistic}"] = [*dims[name], f"{name}_state"]
    if not any(groups.values()):
        raise ArgumentError("answer", "one with marginals, or draws of all entries of a variable", answer)
    data = arviz_data({name: group for name, group in groups.items() if group}, coords, dims)
    if isinstance(answer, Estimate) and groups["constant_data"]:
        about = {"headline": answer.headline, "confidence": answer.confidence, "method": answer.plan.method}
        about["certified"] = "yes" if answer.is_certified else "NO: the bias is unknown"
        data["constant_data"].attrs.update(about)
    return data


def __getattr__(name: str) -> Any:
    """Import step methods, which subclass PyMC's own classes, on first use."""
    if name not in ("GibbsStep", "order"):
        raise AttributeError(f"module 'dobrushin.adapters.pymc' has no attribute {name!r}")
    import dobrushin.adapters.pymc_step as steps

    return getattr(steps, name)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no message"])[0]


# -- terms ---------------------------------------------------------------------------------------


def _factors(model: Any, terms: Sequence[Any], variables: Entries) -> tuple[list[tuple[Scope, Table]], float]:
    """Return the log-probability as tables over entries of variables, and a bound on its rounding.

    Only entries with two or more values count; they are numbered 0, 1, ... in their order.
    """
    point = variables.point(np.zeros(len(variables.sizes), dtype=np.int64))
    names = [term.name for term in terms]
    values = [variables.values[name] for name in variables.names]
    terms, inputs = with_shapes(terms, dict(zip(values, point, strict=True)))
    origin = dict(zip(inputs, point, strict=True))
    try:
        shapes = shapes_of(terms, origin)
    except ValueError as error:  # checks of PyMC's are left out: this is one of an operation
        requirement = "one that can be evaluated where every variable has its lowest value"
        raise ArgumentError("model", requirement, got=f"{type(error).__name__} ({_first_line(error)})") from None
    parts = [
        (name, part)
        for name, term in zip(names, terms, strict=True)
        for part in split(term, shapes, model.check_bounds)
    ]
    # Conditions first: where they fail, other terms need not be numbers.
    parts.sort(key=lambda named: not named[1].is_condition)
    tensors = [part.tensor for _, part in parts]
    numbers = [variables.numbers[name] for name in variables.names]
    try:
        needs = Dependence(tensors, origin, dict(zip(inputs, numbers, strict=True)))
    except ChangingShape as change:
        requirement = "one whose terms have shapes that no variable changes"
        raise ArgumentError("model", requirement, got=f"the operation {change}") from None
    tables = TermTables()
    forbidden: dict[Scope, Table] = {}
    for (name, part), tensor in zip(parts, tensors, strict=True):
        scopes = [tuple(sorted(entry)) for entry in needs.of(tensor)]
        for scope, table in _tables(name, part, scopes, inputs, variables):
            if part.is_condition:
                add_table(forbidden, scope, table)
            elif (bad := np.isnan(table) | np.isposinf(table)).any():
                bad &= ~is_forbidden(forbidden, scope, table.shape)
                if bad.any():
                    index = tuple(int(k) for k in np.argwhere(bad)[0])
                    state = ", ".join(
                        f"{variables.labels[i]} = {variables.lowest[i] + k}" for i, k in zip(scope, index, strict=True)
                    )
                    got = f"{table[index]} for {name!r} at {state or 'every state'}"
                    raise ArgumentError("model", "one whose log-probabilities are numbers or -inf", got=got)
                table = np.where(np.isnan(table) | np.isposinf(table), -np.inf, table)
            tables.add(scope, table)
    place = np.cumsum(variables.sizes > 1) - 1
    factors = []
    small, rounding = tables.small()
    for scope, table in small:
        kept = [i for i in scope if variables.sizes[i] > 1]
        if kept:
            factors.append((tuple(int(place[i]) for i in kept), table.reshape(variables.sizes[kept])))
        elif np.isneginf(table).any():
            raise ArgumentError("model", "one with a state that is allowed", got="a term that is always -inf")
    return factors, rounding


def _tables(
    name: str, part: TermPart, scopes: list[Scope], inputs: list[Any], variables: Entries
) -> list[tuple[Scope, Table]]:
    """Return the scope and the table of each entry of a tensor of log-probabilities, by evaluating it."""
    if not scopes or part.weight == 0:
        return []
    sizes = variables.sizes
    for scope in scopes:
        if (entries := math.prod(int(sizes[i]) for i in scope)) > _MAX_ENTRIES:
            got = f"{name!r}, where one depends on {len(scope)} variables with {entries:.3g} states together"
            requirement = f"a model whose terms have at most {_MAX_ENTRIES:,} states (write larger ones as sums)"
            raise ArgumentError("model", requirement, got=got)
    plan = _settings(scopes, sizes)
    if len(plan) > _MAX_CALLS:
        got = f"{name!r}, which would take {len(plan):,}"
        raise ArgumentError("model", f"one whose terms take at most {_MAX_CALLS:,} evaluations", got=got)
    evaluate = compile_terms(inputs, part.tensor)
    try:
        values = np.stack([np.asarray(evaluate(*variables.point(digits))).ravel() for digits in plan])
    except Exception as error:
        got = f"{type(error).__name__} in {name!r} ({_first_line(error)})"
        raise ArgumentError("model", "one whose log-probability can be evaluated everywhere", got=got) from error
    with np.errstate(invalid="ignore"):
        values = np.where(values, 0.0, -np.inf) if part.is_condition else part.weight * values.astype(np.float64)
    found = []
    for column, scope in enumerate(scopes):
        table = np.full([int(sizes[i]) for i in scope], np.nan)
        table[tuple(plan[:, i] for i in scope)] = values[:, column] if scope else values[0, column]
        found.append((scope, table))
    return found


def _settings(scopes: list[Scope], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return joint states of all entries to evaluate, in which each scope takes each of its states at least once.

    Variables that share no scope get the same colour, and run through their states together, which needs fewer joint
    states.
    """
    distinct = [scope for scope in dict.fromkeys(scopes) if scope]
    near: dict[int, set[int]] = {}
    for scope in distinct:
        for i in scope:
            near.setdefault(i, set()).update(scope)
    colour: dict[int, int] = {}
    for i in sorted(near, key=lambda i: -len(near[i])):
        taken = {colour[j] for j in near[i] if j in colour}
        colour[i] = next(k for k in itertools.count() if k not in taken)
    widths = [max(int(sizes[i]) for i in near if colour[i] == k) for k in range(len(set(colour.values())))]
    alone = [math.prod(int(sizes[i]) for i in scope) for scope in distinct]
    if math.prod(widths) <= max(1, sum(alone)):
        states = np.indices(widths).reshape(len(widths), math.prod(widths)).T
        plan = np.zeros((len(states), len(sizes)), dtype=np.int64)
        for i, k in colour.items():
            plan[:, i] = np.minimum(states[:, k], sizes[i] - 1)
        return plan
    plan = np.zeros((sum(alone), len(sizes)), dtype=np.int64)
    row = 0
    for scope, count in zip(distinct, alone, strict=True):
        plan[row : row + count, list(scope)] = np.indices([int(sizes[i]) for i in scope]).reshape(len(scope), -1).T
        row += count
    return plan


def _compare(graph: FactorGraph, kept: NDArray[Any], model: Any, terms: Sequence[Any], variables: Entries) -> None:
    """Fail if the factor graph and PyMC disagree on log-probabilities: a defect of this library, or of an operation."""
    with model:
        evaluate = compile_terms([variables.values[name] for name in variables.names], list(terms))
    digits = np.zeros((_COMPARED, len(variables.sizes)), dtype=np.int64)
    digits[1:] = np.random.default_rng(0).integers(0, variables.sizes, size=(_COMPARED - 1, len(variables.sizes)))
    ours = graph.log_density(digits[:, kept])
    theirs = np.array([sum(float(np.sum(term)) for term in evaluate(*variables.point(row))) for row in digits])
    theirs[np.isnan(theirs)] = -np.inf
    allowed = np.isfinite(theirs)
    constant = (theirs - ours)[allowed][:1] if allowed.any() else np.zeros(1)
    size = 1.0 + np.abs(theirs[allowed]).max(initial=0.0)
    if (np.isfinite(ours) != allowed).any() or (np.abs(theirs - ours - constant)[allowed] > 1e-5 * size).any():
        raise RuntimeError("The factor graph differs from PyMC's log-probability. Please report this with the model.")


# -- variables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entries:
    """The entries of the free variables of a PyMC model, in one list."""

    names: tuple[str, ...]
    values: dict[str, Any]  # PyTensor's input for each variable
    shape: dict[str, tuple[int, ...]]
    numbers: dict[str, NDArray[np.int64]]  # of the entries
    labels: list[str]
    lowest: list[int]  # the least value of each entry
    sizes: NDArray[np.int64]  # how many values each entry can have

    @classmethod
    def of(cls, model: Any, chosen: Sequence[Any] | None = None) -> Entries:
        """Return the entries of the free variables of a model, or of those that are chosen."""
        pymc = require("pymc", "pymc")
        check.instance(model, pymc.Model, "model", "a pymc.Model")
        if not model.free_RVs:
            raise ArgumentError("model", "a model with free variables", got="none")
        start = model.initial_point()
        shape, numbers, values = {}, {}, {}
        labels: list[str] = []
        lowest: list[int] = []
        sizes: list[int] = []
        for variable in model.free_RVs if chosen is None else chosen:
            if variable not in model.free_RVs:
                raise ArgumentError("vars", "free variables of the model", getattr(variable, "name", variable))
            name, value = variable.name, model.rvs_to_values[variable]
            low, high = _support(variable, model)
            shape[name], values[name] = np.shape(start[value.name]), value
            count = math.prod(shape[name])
            numbers[name] = np.arange(len(labels), len(labels) + count).reshape(shape[name])
            labels += [f"{name}[{', '.join(map(str, index))}]" if index else name for index in np.ndindex(shape[name])]
            lowest += np.broadcast_to(low, shape[name]).ravel().astype(int).tolist()
            sizes += (np.broadcast_to(high - low, shape[name]).ravel().astype(int) + 1).tolist()
        if (array := np.array(sizes, dtype=np.int64)).min(initial=1) < 1:
            raise ArgumentError(
                "model", "one in which each variable has at least one value", labels[int(array.argmin())]
            )
        return cls(tuple(values), values, shape, numbers, labels, lowest, array)

    def point(self, digits: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the values of PyTensor's inputs at a joint state of the entries, counted from 0."""
        flat = digits + np.array(self.lowest, dtype=np.int64)
        return [flat[self.numbers[name]].astype(self.values[name].dtype) for name in self.names]

    def draws(self, samples: Samples) -> dict[str, NDArray[np.int64]]:
        """Return the draws of each variable whose entries were all recorded, with shape (chains, draws, ...)."""
        states = samples._draws().astype(np.int64)
        place = {label: k for k, label in enumerate(samples.variables)}
        self._check_labels(place)
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

    def marginals(self, answer: Estimate) -> tuple[dict[str, NDArray[np.float64]], dict[str, list[int]]]:
        """Return arrays of each target variable's estimates and limits by state, and the values of the states."""
        asked = {target for target in answer.targets if isinstance(target, str)}
        self._check_labels(asked)
        found, states = {}, {}
        for name in self.names:
            entries = self.numbers[name].ravel()
            if not any(self.labels[i] in asked for i in entries):
                continue
            low = min(self.lowest[i] for i in entries)
            high = max(self.lowest[i] + int(self.sizes[i]) for i in entries)
            states[name] = list(range(low, high))
            arrays = {statistic: np.full((len(entries), high - low), np.nan) for statistic in _STATISTICS}
            for row, i in enumerate(entries):
                if self.labels[i] in asked:
                    own = answer[self.labels[i]]
                    columns = [state - low for state in own.states]
                    for statistic in _STATISTICS:
                        arrays[statistic][row, columns] = getattr(own, statistic)
            for statistic, array in arrays.items():
                found[f"{name}_{statistic}"] = array.reshape(*self.shape[name], high - low)
        return found, states

    def _check_labels(self, labels: Iterable[Hashable]) -> None:
        known = set(self.labels)
        for label in labels:
            if label not in known:
                raise ArgumentError("answer", "about the variables of the model", label)


def _support(variable: Any, model: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest and the largest value of each entry of a free variable."""
    node = variable.owner
    name = type(node.op).__name__.removesuffix("RV")
    if variable.dtype not in require("pymc", "pymc").discrete_types:
        got = f"the continuous variable {variable.name!r} ({name})"
        raise ArgumentError("model", "one whose free variables are discrete", got=got)

    if name not in _SUPPORTS:
        *others, last = _SUPPORTS
        requirement = f"one whose free variables are {', '.join(others)} or {last}"
        raise ArgumentError("model", requirement, got=f"{variable.name!r} ({name})")
    found = _SUPPORTS[name](*node.op.dist_params(node))
    low, high = (_constant(limit, variable, model) for limit in found)
    return low, high


def _constant(limit: Any, variable: Any, model: Any) -> NDArray[np.int64]:
    """Evaluate a limit of a variable's support; fail if it depends on other variables."""
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
        raise ArgumentError(
            "model", "one in which the set of values of a variable does not depend on other variables", got=got
        )
    start = model.initial_point()
    return np.floor(np.asarray(evaluate(*[start[value.name] for value in inputs]))).astype(np.int64)
