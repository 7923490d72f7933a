"""Read observations, possibly with missing values: arrays, data frames, and lists of labelled graphs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._learning.structure import Structure
from dobrushin._learning.sums import ExactSums
from dobrushin._models import Model
from dobrushin._models.state_names import expected_states, read_state
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Floats, Ints, frozen, prefix_sums
from dobrushin._shared.environment import require
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    import pandas

_TABLE = "an array with a row for each observation, at least one, and a column for each variable"


@dataclass(frozen=True, eq=False)
class Imputed:
    """The missing values of the data, and their likeliest states under the fitted model.

    Attributes
    ----------
    rows : array of int
        Row of each missing value in the data; of several graphs, the number of the graph.
    labels : list
        The variable of each missing value.
    states : array
        The likeliest state, given what was observed in the same row.
    probabilities : array
        Its probability.
    """

    rows: Ints
    labels: list[Hashable]
    states: NDArray[Any]
    probabilities: Floats

    def __len__(self) -> int:
        return len(self.labels)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas DataFrame, a row for each missing value."""
        columns = {"row": self.rows, "label": self.labels, "state": self.states, "probability": self.probabilities}
        return require("pandas", "formats").DataFrame(columns)

    def __repr__(self) -> str:
        return f"Imputed(values={len(self)}, mean_probability={self.probabilities.mean():.3g})"


@dataclass(frozen=True, eq=False)
class Observed:
    """Observations as states counted from 0, with counts of table entries.

    Attributes
    ----------
    x : array of shape (variables, observations)
        States counted from 0, and -1 where a value is missing.
    counts : array
        How often each table entry occurs in the observations without gaps.
    gaps : array of shape (variables, observations)
        The observations with gaps.
    gap_rows : array of int
        Which observations these are.
    """

    x: Array
    counts: Floats
    gaps: Array
    gap_rows: Ints

    @classmethod
    def of(cls, structure: Structure, x: Array) -> Observed:
        """Return observations with the counts of table entries; rows with missing values are kept apart."""
        has_gap = (x < 0).any(axis=0)
        complete = x if not has_gap.any() else x[:, ~has_gap]
        return cls(x, structure.count(complete), x[:, has_gap], np.flatnonzero(has_gap))

    @property
    def n_rows(self) -> int:
        return self.x.shape[1]

    @property
    def complete(self) -> bool:
        return not len(self.gap_rows)

    def impute(self, structure: Structure, full: Floats) -> Imputed | None:
        """Return the likeliest state of each missing value, under the model with the parameters `full`."""
        if self.complete:
            return None
        gap, v = np.nonzero(self.gaps.T < 0)
        states: Any = np.empty(len(v), dtype=self.gaps.dtype)
        chance = np.empty(len(v))
        # Missing values are ordered by rows: compute the first one of each row, and each variable's number in its row.
        first = prefix_sums(np.bincount(gap, minlength=self.gaps.shape[1]))
        rank = np.cumsum(self.gaps < 0, axis=0, dtype=np.int32) - 1
        for i, rows, marginal in ExactSums(structure, self.gaps, self.gap_rows, singles=True).marginals(
            structure.entries(full)
        ):
            is_gap = self.gaps[i, rows] < 0
            place = first[rows[is_gap]] + rank[i, rows[is_gap]]
            states[place], chance[place] = marginal[:, is_gap].argmax(axis=0), marginal[:, is_gap].max(axis=0)
        names, labels = structure.state_names, [structure.labels[i] for i in v.tolist()]
        if names is not None:
            called = (names.at(i) for i in v.tolist())
            known = [s if own is None else own[s] for s, own in zip(states.tolist(), called, strict=True)]
            states = np.array(known, dtype=object)
        elif structure.is_spins:
            states = 2 * states - 1
        states = states.astype(np.int64) if names is None else states
        where: Any = self.gap_rows[gap]
        if structure.n_graphs > 1:
            pairs: list[Any] = labels
            where, labels = np.array([graph for graph, _ in pairs]), [label for _, label in pairs]
        return Imputed(frozen(where), labels, states, frozen(chance))


def read_table(data: Any) -> tuple[Any, list[Hashable] | None]:
    """Return the data as a data frame or an array of real numbers, and the names of the columns, if any.

    There is a row for each observation.
    """
    names = list(data.columns) if hasattr(data, "columns") else None
    table = data if names is not None else check.real_array(data, "data")
    if len(table.shape) != 2 or not table.shape[0]:
        raise ArgumentError("data", _TABLE, got=f"shape {table.shape}")
    return table, names


def read_observations(model: Model, structure: Structure, table: Any, names: list[Hashable] | None) -> Observed:
    """Read the states of all observations into an array, in the order of the model's labels."""
    if names is None and table.shape[1] != structure.n:
        requirement = f"an array with a column for each of {structure.n} variables, in the order of the labels"
        raise ArgumentError("data", requirement, got=f"{table.shape[1]} columns")
    places = range(structure.n) if names is None else _columns(names, structure.labels)
    x: Array = np.empty((structure.n, table.shape[0]), dtype=structure.type_of_states)
    for i, place in enumerate(places):
        x[i] = _read_column(model, i, table, place) if names is None else _read_frame(model, i, table, place)
        if (x[i] < 0).all():
            where = f"label {structure.labels[i]!r}"
            raise ArgumentError("data", "a table with an observed value in every column", got="none", where=where)
    observed = Observed.of(structure, x)
    _check_allowed(structure, x)
    return observed


def _read_column(model: Model, i: int, table: Array, place: int) -> Array:
    """Return a variable's states, counted from 0, from a column of an array; -1 for a missing value."""
    column = np.asarray(table[:, place], dtype=np.float64)
    states = model._states_at(i)
    missing = np.isnan(column)
    fine = missing | np.isin(column, states)
    if not fine.all():
        row = int(np.argmin(fine))
        requirement = f"states from 0 to {states[-1]}, or NaN for missing values"
        if states.step == 2:
            requirement = "-1 or +1 everywhere (of 0/1 data take 2 * x - 1), or NaN for missing values"
        raise ArgumentError("data", requirement, float(column[row]), f"index {(row, place)}")
    digits: Array = (np.where(missing, states.start - states.step, column) - states.start) // states.step
    return digits


def _read_frame(model: Model, i: int, table: Any, place: int) -> Array:
    """Return a variable's states, counted from 0, from a column of a data frame, which may have names of states."""
    codes, values = table.iloc[:, place].factorize()
    digits = np.array([_read_value(model, i, value) for value in values] + [-1])
    found: Array = digits[codes]
    return found


def _read_value(model: Model, i: int, value: Any) -> int:
    """Return a variable's state, counted from 0, given its name or number, which may be a whole float."""
    if isinstance(value, float) and value.is_integer() and model._names_at(i) is None:
        value = int(value)
    states = model._states_at(i)
    return states.index(read_state(model, i, value, "data"))


def _columns(names: list[Hashable], labels: Sequence[Hashable]) -> list[int]:
    """Return the positions of the columns of a data frame that have the labels as names."""
    place = {name: k for k, name in enumerate(names)}
    if len(place) < len(names):
        raise ArgumentError("data", "a data frame whose columns have distinct names", names)
    for label in labels:
        if label not in place:
            raise ArgumentError("data", f"a data frame with the labels as columns, {label!r} among them", names)
    return [place[label] for label in labels]


def read_graphs(models: Sequence[Model], structure: Structure, data: Any) -> Observed:
    """Read the states of several graphs: for each a list in the order of its labels, or a dict by label."""
    if not check.is_several(data) or len(rows := list(data)) != len(models):
        got = f"{len(rows)} of them" if check.is_several(data) else data
        raise ArgumentError("data", f"the states of each of {len(models)} graphs", got)
    states = [list(_read_graph(model, row, k)) for k, (model, row) in enumerate(zip(models, rows, strict=True))]
    x: Array = np.array([digit for own in states for digit in own], dtype=structure.type_of_states)[:, None]
    if (x < 0).all():
        raise ArgumentError("data", "states, at least one of which is not missing", got="missing values only")
    _check_allowed(structure, x)
    return Observed.of(structure, x)


def _read_graph(model: Model, row: Any, k: int) -> Iterator[int]:
    if isinstance(row, Mapping):
        if row:
            check.positions(list(row), model.labels, model._lookup, "data")
        row = [row.get(label) for label in model.labels]
    row = list(row) if check.is_several(row) else []
    if len(row) != model.n_variables:
        requirement = f"a state of each of {model.n_variables} variables of graph {k}, or a dict of states by label"
        raise ArgumentError("data", requirement, got=f"{len(row)} states")
    for i, value in enumerate(row):
        if value is None or value != value:
            yield -1
            continue
        names = model._names_at(i)
        if names is None or not isinstance(value, Hashable) or value not in names:
            value = value.item() if isinstance(value, np.generic) else value
            try:
                yield _read_value(model, i, value)
            except ArgumentError:
                where = f"graph {k}, label {model.labels[i]!r}"
                raise ArgumentError("data", expected_states(model, i, value), value, where) from None
        else:
            yield names.index(value)


def _check_allowed(structure: Structure, x: Array) -> None:
    """Refuse complete observations of probability 0; those with missing values are checked when summed."""
    forbidden = np.isneginf(structure.entries(structure.start))
    if not forbidden.any():
        return
    complete = np.flatnonzero((x >= 0).all(axis=0))
    for entry in structure.entries_of(x[:, complete]):
        if (bad := forbidden[entry].any(axis=0)).any():
            row = int(complete[np.argmax(bad)])
            raise ArgumentError("data", "allowed by the model", x[:, row].astype(np.int64), f"row {row}")
