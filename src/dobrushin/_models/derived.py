"""Models derived from others: with soft evidence, with joint variables, and with variables summed out. [trusted]

Soft evidence multiplies the model by likelihoods: pi(x | observation) ∝ pi(x) l(x_i). Each likelihood is kept as a
factor of its own, so that no sums are rounded.

A variable that occurs in one factor only can be summed out of it. If the sum does not depend on the other variables of
the factor, as in a table of probabilities given parents, the factor is dropped together with the variable, and then
perhaps the parents too. In a Bayesian network this drops the variables without observed or wanted descendants. The code
does not assume a Bayesian network: it computes the sums, so the result is right for every model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dobrushin._models.forms import UNIT, log_table, sizes_of
from dobrushin._models.state_names import Names, StateNames, expected_states, read_state
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Bools, Floats, Ints
from dobrushin.errors import ArgumentError, BudgetError

if TYPE_CHECKING:
    from dobrushin._models.factors import FactorGraph, FactorTables
    from dobrushin._models.model import Model

# Smaller quotients of likelihoods may have lost digits.
_SMALLEST_RATIO = 1e-300
# Joint states of one group, and entries of one factor's table after merging.
_MAX_JOINT_STATES, _MAX_TABLE_ENTRIES = 2**16, 2**24
# Sums with at most this relative difference count as equal; the difference is added to the error bound.
_EQUAL = 1e-12


class SplitEvidence(NamedTuple):
    """A model with soft evidence included, the remaining hard evidence, and the soft evidence as given."""

    model: Model
    hard: Any
    soft: dict[Hashable, dict[Any, float]]


def split_evidence(
    model: Model, evidence: Any, is_asked: Callable[[Hashable], bool] = lambda _: False
) -> SplitEvidence:
    """Split evidence into likelihoods, which become part of the model, and observed states.

    A likelihood that is positive for one state only counts as observing that state, unless `is_asked` says that the
    variable is a target, which must stay in the model.
    """
    is_soft = isinstance(evidence, Mapping) and any(isinstance(value, Mapping) for value in evidence.values())
    if not is_soft or not model._is_discrete:  # a field refuses likelihoods when it reads its evidence
        return SplitEvidence(model, evidence, {})
    hard: dict[Hashable, Any] = {}
    soft: dict[Hashable, dict[Any, float]] = {}
    factors: list[tuple[int, Floats]] = []
    error = 0.0
    for label, value in evidence.items():
        i = int(check.positions([label], model.labels, model._lookup, "evidence")[0])
        if not isinstance(value, Mapping):  # by its name, since spins lose their numbers
            state = read_state(model, i, value, "evidence")
            hard[label] = model._called(i)[model._states_at(i).index(state)]
            continue
        likelihood = _read_likelihood(model, i, value)
        if sum(map(bool, likelihood)) == 1 and not is_asked(model.labels[i]):
            hard[label] = model._called(i)[next(k for k, number in enumerate(likelihood) if number)]
            continue
        soft[model.labels[i]] = dict(zip(model._called(i), map(float, likelihood), strict=True))
        logs, rounding = _log_ratios(likelihood)
        factors.append((i, logs))
        error += rounding
    return SplitEvidence(_weigh(model, factors, error) if factors else model, hard, soft)


def _read_likelihood(model: Model, i: int, value: Mapping[Any, Any]) -> list[Fraction]:
    """Read the likelihoods of the states of a variable, given by name or number, in the order of the states."""
    states, where = model._states_at(i), f"label {model.labels[i]!r}"
    likelihood: dict[int, Fraction] = {}
    for state, number in value.items():
        k = states.index(read_state(model, i, state, "evidence"))
        exact = check.exact_number(number)
        if exact is None or exact < 0:
            requirement = "likelihoods that are non-negative and finite, and at least 5e-324 where they are not 0"
            raise ArgumentError("evidence", requirement, number, where)
        likelihood[k] = exact
    if len(likelihood) != len(states) or len(value) != len(states):
        requirement = f"a likelihood for each state; {expected_states(model, i, None)}"
        raise ArgumentError("evidence", requirement, got=f"{len(value)} of {len(states)}", where=where)
    if not any(likelihood.values()):
        raise ArgumentError("evidence", "a positive likelihood for some state", dict(value), where)
    return [likelihood[k] for k in range(len(states))]


def _log_ratios(likelihood: list[Fraction]) -> tuple[Floats, float]:
    """Return the logarithms of likelihoods divided by the largest one, and a bound on their error."""
    largest = max(likelihood)
    ratios = [number / largest for number in likelihood]
    rounded = np.array([float(ratio) for ratio in ratios])
    is_lost = (rounded < _SMALLEST_RATIO) & np.array([number > 0 for number in likelihood])
    logs, error = log_table(np.where(is_lost, 1.0, rounded), units=1.0)
    for k in np.flatnonzero(is_lost).tolist():
        ends = [math.log(number) for number in (ratios[k].numerator, ratios[k].denominator)]
        logs[k] = ends[0] - ends[1]
        error += 8.0 * UNIT * sum(ends)
    return logs, error


def _weigh(model: Model, factors: list[tuple[int, Floats]], error: float) -> Model:
    """Multiply the model by tables of single variables, given as log-tables.

    The result is a factor graph; the states of former spins keep the names -1 and +1.
    """
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


def merge(model: Model, groups: Iterable[Iterable[Hashable]]) -> FactorGraph:
    """Return the factor graph in which each group of variables is one joint variable (see `Model.merge`)."""
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

    tables: dict[tuple[int, ...], Floats] = {}
    sizes: dict[tuple[int, ...], float] = {}  # the largest potentials that were added up
    error = 0.0
    largest = sizes_of(graph._form.table, graph._form.table_start)
    for k in range(graph.n_factors):
        scope, table = graph.factor(k)
        joint = tuple(sorted({int(home[v]) for v in scope}))
        shape = tuple(int(states[g]) for g in joint)
        if (entries := float(np.prod(shape, dtype=float))) > _MAX_TABLE_ENTRIES:
            what, remedy = "The table of a merged factor", "Make smaller groups."
            raise BudgetError(what, entries, _MAX_TABLE_ENTRIES, "entries", remedy)
        axes = np.indices(shape, sparse=True)
        own = tuple((axes[joint.index(home[v])] // stride[v]) % graph.cardinalities[v] for v in scope)
        expanded = np.broadcast_to(table[own], shape)
        sizes[joint] = sizes.get(joint, 0.0) + float(largest[k])
        if joint in tables:
            error += 2.0 * UNIT * sizes[joint]  # half a unit of the sum
            expanded = tables[joint] + expanded
        tables[joint] = expanded
    labels = [tuple(model.labels[v] for v in group) if len(group) > 1 else model.labels[group[0]] for group in members]
    merged = FactorGraph(states, tables.items(), labels)._off_by(graph._error + error)
    if model._state_names is None:
        return merged
    joint_names: list[Names | None] = []  # tuples of names, where all members have names
    for group in members:
        parts = [model._names_at(int(i)) for i in group]
        known = [names for names in parts if names is not None]
        combined = tuple(product(*known)) if len(group) > 1 else parts[0]
        joint_names.append(combined if len(known) == len(parts) else None)
    return merged._name_states(StateNames(own=tuple(joint_names)))


def _read_groups(model: Model, groups: Iterable[Iterable[Hashable]]) -> list[Ints]:
    """Return the positions of each group, ordered by first member; other variables are groups of their own."""
    taken = np.zeros(model.n_variables, dtype=bool)
    first_of: dict[int, Ints] = {}
    if not check.is_several(groups):
        raise ArgumentError("groups", "a list of lists of labels", groups)
    for k, group in enumerate(groups):
        joined = check.positions(group, model.labels, model._lookup, "groups")
        if taken[joined].any():
            shared = model.labels[int(joined[taken[joined]][0])]
            raise ArgumentError("groups", "disjoint", shared, f"group {k}")
        if (states := float(model.cardinalities[joined].prod(dtype=float))) > _MAX_JOINT_STATES:
            raise BudgetError(f"Group {k}", states, _MAX_JOINT_STATES, "joint states", "Make smaller groups.")
        taken[joined] = True
        first_of[int(joined.min())] = joined
    for i in np.flatnonzero(~taken):
        first_of[int(i)] = np.array([i])
    return [first_of[i] for i in sorted(first_of)]


# -- summing variables out ----------------------------------------------------------------------


class Summed(NamedTuple):
    """Result of summing out variables: what remains of the model, and which sums were taken.

    Attributes
    ----------
    variables, factors : arrays of bool
        Which variables and factors remain.
    error : float
        Bound on the error of the remaining log-density, up to a constant.
    sums : list of pairs
        Each factor that was summed out, with the axis of the sum.
    """

    variables: Bools
    factors: Bools
    error: float
    sums: list[tuple[int, int]]


def sum_out(form: FactorTables, wanted: Bools) -> Summed:
    """Sum out unwanted variables that are in one factor at most and whose sum does not depend on other variables.

    This is repeated with the variables that remain. Each sum is within a factor of e^(±error) of a constant, and all
    terms are non-negative. So the law of the remaining variables is proportional to the product of the remaining
    factors, within a factor of e^(±total error).
    """
    factor_start, factor_of = form.factor_start.tolist(), form.factor_of.tolist()
    count = np.diff(form.factor_start).tolist()  # remaining factors of each variable
    variables, factors = np.ones(form.n_variables, dtype=bool), np.ones(form.n_factors, dtype=bool)
    waiting = np.flatnonzero((np.diff(form.factor_start) <= 1) & ~wanted).tolist()
    error, sums = 0.0, []
    while waiting:
        v = waiting.pop()
        if not variables[v]:
            continue
        own = [k for k in factor_of[factor_start[v] : factor_start[v + 1]] if factors[k]]
        if own:
            scope = form.scope[form.scope_start[own[0]] : form.scope_start[own[0] + 1]].tolist()
            axis = scope.index(v)
            variation = form.sum_variation(own[0], axis)
            if variation == math.inf:
                continue
            error += variation
            sums.append((own[0], axis))
            factors[own[0]] = False
            for u in scope:
                count[u] -= 1
                if count[u] <= 1 and not wanted[u]:
                    waiting.append(u)
        variables[v] = False
    return Summed(variables, factors, error, sums)


def sum_variation(log_table: Floats, axis: int) -> float:
    """Bound how much the logarithm of a table's sum over an axis varies with the other axes; inf beyond rounding.

    Tables are scaled to a largest entry of 1, so that sums which are about equal are 1 or more. The relative error of a
    sum of k terms is then at most (k + 16) / 2^52: a few units for each exponential, one for each addition, and less
    than one for each argument.
    """
    top = float(log_table.max())
    if top == -math.inf:
        return math.inf
    sums = np.exp(log_table - top).sum(axis=axis)
    least, most = float(sums.min()), float(sums.max())
    if least <= 0.0 or most - least > _EQUAL * least:
        return math.inf
    return (most - least) / least + (log_table.shape[axis] + 16) * 2.0**-51


def log_sum(log_table: Floats, axis: int) -> float:
    """Return the logarithm of a table's sum over an axis, where all these sums are equal up to rounding."""
    top = float(log_table.max())
    first = np.moveaxis(log_table, axis, -1).reshape(-1, log_table.shape[axis])[0]
    return top + math.log(float(np.exp(first - top).sum()))


def sums_to_one(sums: Floats, states: Any) -> Bools:
    """Return which sums of `states` probabilities equal 1, with a tolerance for rounded tables.

    Published tables have two digits at worst: 0.33 three times sums to 0.99.
    """
    return np.abs(sums - 1) <= np.maximum(0.01, 0.005 * np.asarray(states)) + 1e-9


def find_parents(model: FactorGraph) -> list[tuple[int, int]] | None:
    """Return pairs (variable, factor with its conditional probabilities); None if the model is no Bayesian network.

    A variable that is in one factor only must be the child of that factor, whose sums over the variable must be 1. Both
    are then removed, and the search continues with the remaining variables.
    """
    scopes = [set(model.factor(k)[0]) for k in range(model.n_factors)]
    homes: list[set[int]] = [set() for _ in range(model.n_variables)]
    for k, scope in enumerate(scopes):
        for i in scope:
            homes[i].add(k)
    leaves = [i for i, home in enumerate(homes) if len(home) == 1]
    pairs: list[tuple[int, int]] = []
    while leaves:
        i = leaves.pop()
        if len(homes[i]) != 1:
            continue
        k = homes[i].pop()
        members, table = model.factor(k)
        weights = np.moveaxis(np.exp(table), members.index(i), -1)
        if not sums_to_one(weights.sum(axis=-1), weights.shape[-1]).all():
            return None
        pairs.append((i, k))
        for j in scopes[k] - {i}:
            homes[j].discard(k)
            if len(homes[j]) == 1:
                leaves.append(j)
            elif not homes[j]:
                return None
    return pairs if len(pairs) == model.n_variables == model.n_factors else None
