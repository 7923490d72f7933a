"""Soft evidence: how likely each state of a variable makes what was seen, in the place of its state.

pi(x | seen) ∝ pi(x) l(x_i): one more factor. It is kept as a factor of its own, so that nothing is added up and
rounded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.forms import log_table
from dobrushin._models.state_names import StateNames, expected_states, read_state
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
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
    if not is_soft or not model.is_discrete:  # values of a field have no likelihoods: it says so when it reads them
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
