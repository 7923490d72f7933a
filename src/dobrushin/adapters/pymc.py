"""PyMC: models of discrete variables as factor graphs, answers as ArviZ data, scans as orders of PyMC's steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._models import FactorGraph
from dobrushin._sampling import Samples
from dobrushin._sampling.samples import arviz_data
from dobrushin._scan import as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.extras import require
from dobrushin._shared.progress import watched
from dobrushin.adapters.pymc_variables import STATISTICS, Variables
from dobrushin.adapters.pytensor import ChangingShape, Dependence, Part, shapes_of, split, with_shapes
from dobrushin.adapters.tables import add_table, as_small_tables
from dobrushin.errors import ArgumentError

__all__ = ["order", "read", "to_arviz"]

# Largest table of one term, and most evaluations of one tensor of terms.
_MOST_ENTRIES = 2**20
_MOST_CALLS = 10**6
# States at which the factor graph is compared with PyMC's own log-probability.
_COMPARED = 16


@watched("reading")
def read(model: Any, *, progress: bool | None = None) -> FactorGraph:
    """The factor graph of a PyMC model of discrete variables.

    Parameters
    ----------
    model : pymc.Model
        Its free variables are Bernoulli, Categorical, DiscreteUniform, Binomial, BetaBinomial or HyperGeometric, with
        numbers of states that do not depend on other variables. What is observed may be of any kind. Potentials may be
        anything; sums in them are taken apart, and each term may depend on few variables only.
    progress : bool, optional
        Show what is done: None in a terminal or a notebook, True also in a log, False nowhere.

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
    >>> db.adapters.pymc.read(model)  # doctest: +SKIP
    FactorGraph(n_variables=1, factors=1)
    >>> db.estimate(model, "ill").headline  # doctest: +SKIP
    'P(ill = 1) = 0.153846 exactly'
    """
    del progress  # `watched` reads it
    where = "adapters.pymc.read"
    variables = Variables.of(model, where)
    with model:
        terms = [term for term in model.logp(sum=False) if term is not None]
    factors = _factors(model, terms, variables, where)
    kept = np.flatnonzero(variables.sizes > 1)
    if not len(kept):
        raise ArgumentError(where, "model", "a model with a free variable of two or more states", list(variables.names))
    graph = FactorGraph(
        variables.sizes[kept],
        factors,
        [variables.labels[i] for i in kept],
        state_names=[tuple(range(variables.lowest[i], variables.lowest[i] + variables.sizes[i])) for i in kept],
    )
    _compare(graph, kept, model, terms, variables)
    return graph


def to_arviz(answer: Samples | Estimate, model: Any) -> Any:
    """An answer as ArviZ data with the variables, dimensions and coordinates of the PyMC model.

    Parameters
    ----------
    answer : Samples or Estimate
        Of the factor graph of the model, or of the model itself.
    model : pymc.Model

    Returns
    -------
    arviz.InferenceData (a DataTree from ArviZ 1 on)
        Draws, where they were kept, are the group ``posterior``; variables of which some entries were not kept are left
        out. Of an estimate, ``constant_data`` has ``x_mean``, ``x_lower``, ``x_upper`` and ``x_bias_bound`` with a last
        dimension ``x_state``, NaN for what was not asked.

    Examples
    --------
    >>> import pymc as pm  # doctest: +SKIP
    >>> import dobrushin as db
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     coin = pm.Bernoulli("coin", 0.7, shape=2)
    >>> data = db.adapters.pymc.to_arviz(db.estimate(model, ["coin[0]"]), model)  # doctest: +SKIP
    >>> data.constant_data["coin_mean"].sel(coin_state=1).values  # doctest: +SKIP
    array([0.7, nan])
    """
    where = "adapters.pymc.to_arviz"
    check.instance(answer, Samples | Estimate, where, "answer", "Samples or an Estimate")
    variables = Variables.of(model, where)
    groups: dict[str, dict[str, Any]] = {}
    dims: dict[str, list[str]] = {}
    coords: dict[str, Any] = {}
    samples = answer if isinstance(answer, Samples) else answer.samples
    if samples is not None and samples.states is not None:
        groups["posterior"] = variables.draws(samples, where)
    for name in variables.names:
        own = model.named_vars_to_dims.get(name)
        dims[name] = list(own) if own else [f"{name}_dim_{k}" for k in range(len(variables.shape[name]))]
        coords |= {dim: list(values) for dim in own or () if (values := model.coords.get(dim)) is not None}
    if isinstance(answer, Estimate):
        groups["constant_data"], states = variables.marginals(answer, where)
        for name, values in states.items():
            coords[f"{name}_state"] = values
            for statistic in STATISTICS:
                dims[f"{name}_{statistic}"] = [*dims[name], f"{name}_state"]
    if not any(groups.values()):
        raise ArgumentError(
            where, "answer", "one with all entries of a variable of the model, or with marginals", answer
        )
    data = arviz_data({name: group for name, group in groups.items() if group}, coords, dims)
    if isinstance(answer, Estimate) and groups["constant_data"]:
        about = {"headline": answer.headline, "confidence": answer.confidence, "method": answer.plan.method}
        about["certified"] = "yes" if answer.is_certified else "NO: the bias is unknown"
        data["constant_data"].attrs.update(about)
    return data


def order(model: Any, scan: Any, vars: Iterable[Any] | None = None) -> list[int]:
    """The order of a scan for PyMC's steps ``BinaryGibbsMetropolis`` and ``CategoricalGibbsMetropolis``.

    These steps take each entry of their variables once. Of a scan they can follow who comes after whom: entries are
    ordered by their last update in the scan, and those that it never updates come first.

    Parameters
    ----------
    model : pymc.Model
    scan : Scan or ScanResult
        Of the factor graph of the model.
    vars : list of free variables, optional
        Those of the step, in its order. Default all.

    Returns
    -------
    list of int
        For the argument ``order`` of the step.

    Notes
    -----
    The certificate of the scan is for Gibbs updates. PyMC's steps are Metropolis updates, which it does not cover.

    Examples
    --------
    >>> import pymc as pm  # doctest: +SKIP
    >>> import dobrushin as db
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     x = pm.Bernoulli("x", 0.5, shape=3)
    ...     link = pm.Potential("link", 0.4 * (x[1:] * x[:-1]).sum())
    >>> result = db.shortest_scan(db.adapters.pymc.read(model), ["x[0]"], tolerance=0.01)  # doctest: +SKIP
    >>> db.adapters.pymc.order(model, result)  # doctest: +SKIP
    [2, 1, 0]
    """
    where = "adapters.pymc.order"
    variables = Variables.of(model, where)
    kept = np.flatnonzero(variables.sizes > 1)
    scan = as_scan(scan, where)
    scan.check_fits(len(kept), where)
    names = list(variables.names) if vars is None else [getattr(variable, "name", variable) for variable in vars]
    for k, name in enumerate(names):
        if name not in variables.names or name in names[:k]:
            known = ", ".join(map(repr, variables.names))
            raise ArgumentError(where, "vars", f"distinct free variables of the model ({known})", name, f"index {k}")
    last = np.full(len(variables.sizes), -1)
    last[kept[scan.order]] = np.arange(len(scan))
    entries = np.concatenate([variables.numbers[name].ravel() for name in names])
    return [int(place) for place in np.argsort(last[entries], kind="stable")]


# -- terms ---------------------------------------------------------------------------------------


def _factors(
    model: Any, terms: Sequence[Any], variables: Variables, where: str
) -> list[tuple[tuple[int, ...], NDArray[np.float64]]]:
    """The log-probability as tables over the entries that have two or more values, numbered among themselves."""
    point = variables.point(np.zeros(len(variables.sizes), dtype=np.int64))
    names = [term.name for term in terms]
    values = [variables.values[name] for name in variables.names]
    terms, inputs = with_shapes(terms, dict(zip(values, point, strict=True)))
    origin = dict(zip(inputs, point, strict=True))
    try:
        shapes = shapes_of(terms, origin)
    except ValueError as error:  # checks of PyMC's are left out: this is one of an operation
        requirement = "one that can be evaluated where every variable has its lowest value"
        raise ArgumentError(where, "model", requirement, got=f"{type(error).__name__} ({_first_line(error)})") from None
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
        raise ArgumentError(where, "model", requirement, got=f"the operation {change}") from None
    tables: dict[tuple[int, ...], NDArray[np.float64]] = {}
    forbidden: dict[tuple[int, ...], NDArray[np.float64]] = {}
    for (name, part), tensor in zip(parts, tensors, strict=True):
        scopes = [tuple(sorted(entry)) for entry in needs.of(tensor)]
        for scope, table in _tables(name, part, scopes, inputs, variables, where):
            if part.is_condition:
                add_table(forbidden, scope, table)
            elif (bad := np.isnan(table) | np.isposinf(table)).any():
                bad &= ~_is_forbidden(forbidden, scope, table.shape)
                if bad.any():
                    index = tuple(int(k) for k in np.argwhere(bad)[0])
                    state = ", ".join(
                        f"{variables.labels[i]} = {variables.lowest[i] + k}" for i, k in zip(scope, index, strict=True)
                    )
                    got = f"{table[index]} for {name!r} at {state or 'every state'}"
                    raise ArgumentError(where, "model", "one whose log-probabilities are numbers or -inf", got=got)
                table = np.where(np.isnan(table) | np.isposinf(table), -np.inf, table)
            add_table(tables, scope, table)
    place = np.cumsum(variables.sizes > 1) - 1
    factors = []
    for scope, table in as_small_tables(tables):
        kept = [i for i in scope if variables.sizes[i] > 1]
        if kept:
            factors.append((tuple(int(place[i]) for i in kept), table.reshape(variables.sizes[kept])))
        elif np.isneginf(table).any():
            raise ArgumentError(where, "model", "one with a state that is allowed", got="a term that is always -inf")
    return factors


def _is_forbidden(
    forbidden: dict[tuple[int, ...], NDArray[np.float64]], scope: tuple[int, ...], shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Where a state of a scope fails a condition on some of its variables."""
    result = np.zeros(shape, dtype=bool)
    for own, table in forbidden.items():
        if set(own) <= set(scope):
            sizes = [size if i in own else 1 for i, size in zip(scope, shape, strict=True)]
            result |= np.isneginf(table).reshape(sizes)
    return result


def _tables(
    name: str, part: Part, scopes: list[tuple[int, ...]], inputs: list[Any], variables: Variables, where: str
) -> list[tuple[tuple[int, ...], NDArray[np.float64]]]:
    """The table of each entry of a tensor of terms."""
    if not scopes or part.weight == 0:
        return []
    sizes = variables.sizes
    for scope in scopes:
        if (entries := math.prod(int(sizes[i]) for i in scope)) > _MOST_ENTRIES:
            got = f"{name!r}, where one depends on {len(scope)} variables with {entries:.3g} states together"
            requirement = f"a model whose terms have at most {_MOST_ENTRIES:,} states (write larger ones as sums)"
            raise ArgumentError(where, "model", requirement, got=got)
    plan = _settings(scopes, sizes)
    if len(plan) > _MOST_CALLS:
        got = f"{name!r}, which would take {len(plan):,}"
        raise ArgumentError(where, "model", f"one whose terms take at most {_MOST_CALLS:,} evaluations", got=got)
    evaluate = _compile(inputs, part.tensor)
    try:
        values = np.stack([np.asarray(evaluate(*variables.point(digits))).ravel() for digits in plan])
    except Exception as error:
        got = f"{type(error).__name__} in {name!r} ({_first_line(error)})"
        raise ArgumentError(where, "model", "one whose log-probability can be evaluated everywhere", got=got) from error
    with np.errstate(invalid="ignore"):
        values = np.where(values, 0.0, -np.inf) if part.is_condition else part.weight * values.astype(np.float64)
    found = []
    for column, scope in enumerate(scopes):
        table = np.full([int(sizes[i]) for i in scope], np.nan)
        table[tuple(plan[:, i] for i in scope)] = values[:, column] if scope else values[0, column]
        found.append((scope, table))
    return found


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no message"])[0]


def _settings(scopes: list[tuple[int, ...]], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """States of all entries, such that each scope is in each of its states once or more; as few as is easy.

    Variables that share no scope can run through their states together: those of one colour do.
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


def _compile(inputs: list[Any], outputs: Any) -> Any:
    """A function of the variables, with PyMC's rewrites but without a compiler: most are called a few times."""
    mode = require("pytensor", "pymc").compile.mode.Mode(linker="py", optimizer="fast_run").excluding("fusion")
    return require("pymc.pytensorf", "pymc").compile(inputs, outputs, mode=mode, on_unused_input="ignore")


def _compare(graph: FactorGraph, kept: NDArray[Any], model: Any, terms: Sequence[Any], variables: Variables) -> None:
    """Fail if the factor graph is not what PyMC says: a fault of this library, or of an operation that it uses."""
    with model:
        evaluate = _compile([variables.values[name] for name in variables.names], list(terms))
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
