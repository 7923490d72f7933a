"""Groups of variables as joint variables."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.factors import FactorGraph
from dobrushin._models.forms import UNIT, sizes_of
from dobrushin._models.model import Model
from dobrushin._models.state_names import Names, StateNames
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError, BudgetError

# Joint states of one group, and entries of one factor's table after merging.
STATE_LIMIT = 2**16
TABLE_LIMIT = 2**24


def merge(model: Model, groups: Iterable[Iterable[Hashable]]) -> FactorGraph:
    """The factor graph in which each group is one variable; see `Model.merge`."""
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
