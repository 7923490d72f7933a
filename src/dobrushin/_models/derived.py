"""Models made from others: soft evidence as one more factor, and groups of variables as joint variables.

pi(x | seen) ∝ pi(x) l(x_i): a likelihood is kept as a factor of its own, so that nothing is added up and rounded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.forms import UNIT, log_table, sizes_of
from dobrushin._models.state_names import Names, StateNames, expected_states, read_state
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError, BudgetError

if TYPE_CHECKING:
    from dobrushin._models.factors import FactorGraph
    from dobrushin._models.model import Model

# Smaller quotients of likelihoods may have lost digits.
_SMALLEST_RATIO = 1e-300


class SplitEvidence(NamedTuple):
    """A model that has the soft evidence in it, the hard evidence that is left, and the soft one as it was given."""

    model: Model
    hard: Any
    soft: dict[Hashable, dict[Any, float]]


def split_evidence(
    model: Model, evidence: Any, is_asked: Callable[[Hashable], bool] = lambda _: False
) -> SplitEvidence:
    """Put likelihoods into the model; states of variables stay evidence.

    A likelihood of one state only is that state, unless somebody asks about the variable, which then has to stay.
    """
    is_soft = isinstance(evidence, Mapping) and any(isinstance(value, Mapping) for value in evidence.values())
    if not is_soft or not model._is_discrete:  # values of a field have no likelihoods: it says so when it reads them
        return SplitEvidence(model, evidence, {})
    hard: dict[Hashable, Any] = {}
    soft: dict[Hashable, dict[Any, float]] = {}
    factors: list[tuple[int, NDArray[np.float64]]] = []
    error = 0.0
    for label, value in evidence.items():
        i = int(check.positions([label], model.labels, model._lookup, "evidence")[0])
        if not isinstance(value, Mapping):  # by its name, since spins lose their numbers
            state = read_state(model, i, value, "evidence")
            hard[label] = model._called(i)[model._states_at(i).index(state)]
            continue
        likelihood = _read_likelihood(model, i, value)
        if np.count_nonzero(likelihood) == 1 and not is_asked(model.labels[i]):
            hard[label] = model._called(i)[int(np.argmax(likelihood))]
            continue
        soft[model.labels[i]] = dict(zip(model._called(i), likelihood.tolist(), strict=True))
        logs, rounding = _log_ratios(likelihood)
        factors.append((i, logs))
        error += rounding
    return SplitEvidence(_weigh(model, factors, error) if factors else model, hard, soft)


def _read_likelihood(model: Model, i: int, value: Mapping[Any, Any]) -> NDArray[np.float64]:
    """A number for each state, by its name or number."""
    states, where = model._states_at(i), f"label {model.labels[i]!r}"
    likelihood = np.full(len(states), np.nan)
    for state, number in value.items():
        k = states.index(read_state(model, i, state, "evidence"))
        if not check.is_real(number) or not 0 <= number <= sys.float_info.max:
            raise ArgumentError("evidence", "likelihoods that are non-negative and finite", number, where)
        likelihood[k] = float(number)
    if np.isnan(likelihood).any() or len(value) != len(states):
        requirement = f"a likelihood for each state; {expected_states(model, i, None)}"
        raise ArgumentError("evidence", requirement, got=f"{len(value)} of {len(states)}", where=where)
    if not likelihood.any():
        raise ArgumentError("evidence", "a positive likelihood for some state", dict(value), where)
    return likelihood


def _log_ratios(likelihood: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Logarithms of likelihoods over the largest one, and how far they may be off."""
    ratio = likelihood / likelihood.max()
    is_lost = (likelihood > 0) & (ratio < _SMALLEST_RATIO)
    logs, error = log_table(np.where(is_lost, 1.0, ratio), units=1.0)
    if is_lost.any():
        own, rounding = log_table(likelihood)
        logs[is_lost] = (own - own.max())[is_lost]
        error += 3.0 * rounding
    return logs, error


def _weigh(model: Model, factors: list[tuple[int, NDArray[np.float64]]], error: float) -> Model:
    """The model with more factors of single variables; spins keep their names -1 and +1."""
    from dobrushin._models.factors import FactorTables

    tables = model._form.tables()
    positions = np.array([i for i, _ in factors], dtype=np.int64)
    sizes = np.array([len(table) for _, table in factors], dtype=np.int64)
    form = FactorTables(
        tables.cardinalities,
        np.concatenate([tables.scope_start, len(tables.scope) + 1 + np.arange(len(factors))]),
        np.concatenate([tables.scope, positions]),
        np.concatenate([tables.table_start, len(tables.table) + np.cumsum(sizes)]),
        np.concatenate([tables.table, *(table for _, table in factors)]),
    )
    names = model._state_names
    if model._spins:
        own = () if names is None else tuple(names.at(i) or (-1, 1) for i in range(model.n_variables))
        names = StateNames((-1, 1) if names is None else None, own, of_spins=True)
    return form.off_by(tables.error + error).to_model(model.labels)._name_states(names)


# Joint states of one group, and entries of one factor's table after merging.
STATE_LIMIT = 2**16
TABLE_LIMIT = 2**24


def merge(model: Model, groups: Iterable[Iterable[Hashable]]) -> FactorGraph:
    """The factor graph in which each group is one variable; see `Model.merge`."""
    from dobrushin._models.factors import FactorGraph

    graph = model.to_factor_graph()
    members = _read_groups(model, groups)
    states = np.array([graph.cardinalities[group].prod() for group in members], dtype=np.int64)
    home = np.empty(model.n_variables, dtype=np.int64)  # the joint variable that each variable belongs to
    stride = np.ones(model.n_variables, dtype=np.int64)  # and its stride in the joint state
    for g, group in enumerate(members):
        home[group] = g
        for v, after in zip(group[-2::-1], group[:0:-1], strict=True):
            stride[v] = stride[after] * graph.cardinalities[after]

    tables: dict[tuple[int, ...], NDArray[np.float64]] = {}
    sizes: dict[tuple[int, ...], float] = {}  # the largest potentials that were added up
    error = 0.0
    largest = sizes_of(graph._form.table, graph._form.table_start)
    for k in range(graph.n_factors):
        scope, table = graph.factor(k)
        joint = tuple(sorted({int(home[v]) for v in scope}))
        shape = tuple(int(states[g]) for g in joint)
        if (entries := float(np.prod(shape, dtype=float))) > TABLE_LIMIT:
            raise BudgetError("The table of a tables factor", entries, TABLE_LIMIT, "entries", "Make smaller groups.")
        axes = np.indices(shape, sparse=True)
        own = tuple((axes[joint.index(home[v])] // stride[v]) % graph.cardinalities[v] for v in scope)
        expanded = np.broadcast_to(table[own], shape)
        sizes[joint] = sizes.get(joint, 0.0) + float(largest[k])
        if joint in tables:
            error += 2.0 * UNIT * sizes[joint]  # half a unit of the sum
            expanded = tables[joint] + expanded
        tables[joint] = expanded
    labels = [tuple(model.labels[v] for v in group) if len(group) > 1 else model.labels[group[0]] for group in members]
    merged = FactorGraph(states, tables.items(), labels)._name_states(_join_names(model, members))
    return merged._off_by(graph._error + error)


def _join_names(model: Model, members: list[NDArray[np.int64]]) -> StateNames | None:
    """Names of joint states: tuples of names, where all members have names."""
    if model._state_names is None:
        return None
    own: list[Names | None] = []
    for group in members:
        parts = [model._names_at(int(i)) for i in group]
        known = [names for names in parts if names is not None]
        joint = tuple(product(*known)) if len(group) > 1 else parts[0]
        own.append(joint if len(known) == len(parts) else None)
    return StateNames(own=tuple(own))


def _read_groups(model: Model, groups: Iterable[Iterable[Hashable]]) -> list[NDArray[np.int64]]:
    """Members of every joint variable, singles included, ordered by their first member."""
    f"{type(model).__name__}.merge"
    taken = np.zeros(model.n_variables, dtype=bool)
    first_of: dict[int, NDArray[np.int64]] = {}
    if not check.is_several(groups):
        raise ArgumentError("groups", "a list of lists of labels", groups)
    for k, group in enumerate(groups):
        joined = check.positions(group, model.labels, model._lookup, "groups")
        if taken[joined].any():
            shared = model.labels[int(joined[taken[joined]][0])]
            raise ArgumentError("groups", "disjoint", shared, f"group {k}")
        if (states := float(model.cardinalities[joined].prod(dtype=float))) > STATE_LIMIT:
            raise BudgetError(f"Group {k}", states, STATE_LIMIT, "joint states", "Make smaller groups.")
        taken[joined] = True
        first_of[int(joined.min())] = joined
    for i in np.flatnonzero(~taken):
        first_of[int(i)] = np.array([i])
    return [first_of[i] for i in sorted(first_of)]
