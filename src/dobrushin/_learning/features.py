"""Read shared weights: which entries of which tables, in one graph or several, depend on each weight.

An attribute is a named feature of a scope; each joint state of the scope has a weight for it, or all have one together.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dobrushin._learning.structure import Structure
from dobrushin._models import FactorGraph, Model
from dobrushin._models.state_names import StateNames
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Floats, frozen, prefix_sums
from dobrushin.errors import ArgumentError

_ROWS = "pairs of a scope (a label or several) and its attributes (a name, names, or a dict from names to values)"
_VALUES = "a number, or an array with an axis for each variable of the scope"
Shape = tuple[int, ...]


class _Attribute(NamedTuple):
    """The weights of an attribute: the first one, and the joint states that have one weight each.

    `states` is None for an attribute with a table of its own, which is one weight.
    """

    first: int
    shape: Shape
    states: list[Sequence[Hashable]] | None


@dataclass
class AttributeNames:
    """The attributes of a log-linear model, with the positions of their weights."""

    attributes: dict[Hashable, _Attribute] = field(default_factory=dict)
    size: int = 0

    def names(self) -> list[tuple[Hashable, ...]]:
        """Return the name of each weight: the attribute, followed by the states of the scope."""
        names: list[tuple[Hashable, ...]] = []
        for name, attribute in self.attributes.items():
            if attribute.states is None:
                names.append((name,))
            else:
                joint = (zip(attribute.states, cell, strict=True) for cell in np.ndindex(attribute.shape))
                names += [(name, *(states[digit] for states, digit in cell)) for cell in joint]
        return names


@dataclass
class _Tables:
    """Tables found while features are read, with the attributes of each, and fixed tables, which are not learned."""

    vocabulary: AttributeNames
    grows: bool  # whether new attributes are added, or left out
    index: dict[Any, int] = field(default_factory=dict)
    shapes: list[Shape] = field(default_factory=list)
    base: list[tuple[int, Floats]] = field(default_factory=list)
    # Attributes with one weight per joint state: table, first weight, and the value that multiplies all of them.
    plain: tuple[list[int], list[int], list[float]] = field(default_factory=lambda: ([], [], []))
    # Attributes with a single weight: table, weight, and the array of entries that the weight multiplies.
    shaped: list[tuple[int, int, Floats]] = field(default_factory=list)

    def add_base(self, shape: Shape, table: Floats) -> int:
        """Add a fixed table, and return its number."""
        self.base.append((len(self.shapes), table))
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def find(self, model: Model, places: tuple[int, ...], shape: Shape, attributes: Any, where: str) -> int:
        """Return the number of the table of these attributes on a scope; add it if it is new."""
        if isinstance(attributes, Mapping):
            names, values = tuple(attributes), list(attributes.values())
            key: Any = (shape, names, *(v.tobytes() if isinstance(v, np.ndarray) else repr(v) for v in values))
        else:
            is_list = type(attributes) is list or (check.is_several(attributes) and not isinstance(attributes, tuple))
            names = tuple(attributes) if is_list else (attributes,)
            key, values = (shape, names), [1.0] * len(names)
        try:
            place = self.index.get(key)
        except TypeError:
            raise ArgumentError("features", "names of attributes that are hashable", attributes, where) from None
        if place is not None:
            return place
        place = self.index[key] = len(self.shapes)
        self.shapes.append(shape)
        known = self.vocabulary.attributes
        for name, value in zip(names, values, strict=True):
            if (attribute := known.get(name)) is None:
                if not self.grows:
                    continue
                attribute = self._add_attribute(name, [model._called(i) for i in places], shape, value)
            if attribute.shape != shape:
                requirement = f"an attribute of scopes with the same numbers of states, {attribute.shape} of {name!r}"
                raise ArgumentError("features", requirement, shape, where)
            if attribute.states is None or type(value) is not float:
                self._add_value(place, name, attribute, value, where)
            else:
                self.plain[0].append(place)
                self.plain[1].append(attribute.first)
                self.plain[2].append(value)
        return place

    def _add_attribute(self, name: Hashable, states: list[Any], shape: Shape, value: Any) -> _Attribute:
        is_number = check.is_real(value)
        attribute = _Attribute(self.vocabulary.size, shape, states if is_number else None)
        self.vocabulary.attributes[name] = attribute
        self.vocabulary.size += math.prod(shape) if is_number else 1
        return attribute

    def _add_value(self, place: int, name: Hashable, attribute: _Attribute, value: Any, where: str) -> None:
        """Record the value of an attribute in a table: a number, or an array with an entry for each joint state.

        Raise `ArgumentError` if earlier values of the attribute were of the other kind or another shape.
        """
        if check.is_real(value) != (attribute.states is not None):
            raise ArgumentError("features", f"numbers, or arrays, wherever {name!r} has values", value, where)
        if attribute.states is not None:
            self.plain[0].append(place)
            self.plain[1].append(attribute.first)
            self.plain[2].append(float(value))
            return
        table = check.finite(check.real_array(value, "features"), "features")
        if table.shape != attribute.shape:
            requirement = f"{_VALUES}, {attribute.shape} of {name!r}"
            raise ArgumentError("features", requirement, got=f"shape {table.shape}", where=where)
        self.shaped.append((place, attribute.first, table.ravel()))

    def design(self, start: Any) -> sparse.csr_array:
        """Return the design matrix: a row for each table entry, a column for each weight."""
        rows, columns, values = [], [], []
        sizes = np.diff(start)
        place, first, value = (np.array(column) for column in self.plain)
        check.all_entries(np.isfinite(value), value, "features", "finite values of attributes")
        for size in np.unique(sizes[place.astype(np.int64)]).tolist():
            here = np.flatnonzero(sizes[place] == size)
            cells = np.arange(size)
            rows.append((start[place[here], None] + cells).ravel())
            columns.append((first[here, None] + cells).ravel())
            values.append(np.repeat(value[here], size))
        for table, weight, numbers in self.shaped:
            rows.append(start[table] + np.arange(len(numbers)))
            columns.append(np.full(len(numbers), weight))
            values.append(numbers)
        shape = int(start[-1]), self.vocabulary.size
        if not rows:
            return sparse.csr_array(shape)
        cells_of = np.concatenate(rows), np.concatenate(columns)
        found = sparse.csr_array(sparse.coo_array((np.concatenate(values), cells_of), shape=shape))
        found.eliminate_zeros()
        return found


def read_features(
    models: Sequence[Model], features: Any, is_single: bool, vocabulary: AttributeNames | None = None
) -> Structure:
    """Return the structure of a log-linear model with shared weights, on one graph or several.

    If a vocabulary is given, the weights are those of its attributes, and all other attributes are left out.
    """
    tables = _Tables(AttributeNames() if vocabulary is None else vocabulary, vocabulary is None)
    offset, names, sizes = 0, [], []
    labels: list[Hashable] = []
    of_arity: dict[int, tuple[list[tuple[int, ...]], list[int]]] = {}
    for k, (model, rows) in enumerate(zip(models, _rows_of(features, len(models), is_single), strict=True)):
        where = "" if is_single else f"graph {k}, "
        cardinalities = [int(size) for size in model.cardinalities]
        form = model._form.tables()
        for f in range(form.n_factors):
            scope, log_table = form.factor(f)
            if scope:
                of_arity.setdefault(len(scope), ([], []))
                of_arity[len(scope)][0].append(tuple(offset + v for v in scope))
                of_arity[len(scope)][1].append(tables.add_base(log_table.shape, log_table.ravel()))
        for r, row in enumerate(rows):
            try:
                scope, attributes = row
            except (TypeError, ValueError):
                raise ArgumentError("features", _ROWS, row, f"{where}row {r}") from None
            places = _positions(model, scope, f"{where}row {r}")
            shape = tuple([cardinalities[i] for i in places])
            table = tables.find(model, places, shape, attributes, f"{where}row {r}")
            scopes, used = of_arity.setdefault(len(places), ([], []))
            scopes.append(tuple([offset + i for i in places]))
            used.append(table)
        labels += list(model.labels) if is_single else [(k, label) for label in model.labels]
        unnamed = (-1, 1) if model._states_at(0).step == 2 else None  # spins keep their states
        names += [model._names_at(i) or unnamed for i in range(len(cardinalities))]
        sizes += cardinalities
        offset += len(cardinalities)
    start = prefix_sums(np.array([math.prod(shape) for shape in tables.shapes], dtype=np.int64))
    design = tables.design(start)
    if vocabulary is None:
        _check_weights(design, tables.vocabulary)
    base = np.zeros(int(start[-1]))
    for table, numbers in tables.base:
        base[start[table] : start[table + 1]] = numbers
    arities = sorted(of_arity)
    weights = tables.vocabulary
    return Structure(
        FactorGraph, check.read_labels(labels, len(labels)), frozen(np.array(sizes, dtype=np.int64)),
        [frozen(np.array(of_arity[a][0], dtype=np.int64)) for a in arities],
        frozen(np.array([t for a in arities for t in of_arity[a][1]], dtype=np.int64)), frozen(start), base, design,
        frozen(np.zeros(weights.size)), frozen(np.arange(weights.size)), weights.names, None,
        StateNames(own=tuple(names)) if any(names) else None, len(models), weights,
    )  # fmt: skip


def _rows_of(features: Any, count: int, is_single: bool) -> Iterable[Iterable[Any]]:
    """Return the (scope, attributes) pairs of each graph."""
    if callable(features):
        given = [features(k) for k in range(count)]
        for k, rows in enumerate(given):
            if rows is None:
                raise ArgumentError("features", f"a function that returns {_ROWS}", got="None", where=f"graph {k}")
    else:
        given = [features] if is_single else features
    if not check.is_several(given) or not all(check.is_several(rows) for rows in given):
        raise ArgumentError("features", f"a list of {_ROWS}, one list for each graph", features)
    lists = [list(rows.items()) if isinstance(rows, Mapping) else list(rows) for rows in given]
    if len(lists) != count:
        raise ArgumentError("features", f"a list for each of {count} graphs", got=f"{len(lists)} lists")
    if not any(lists):
        raise ArgumentError("features", f"at least one of {_ROWS}", got="none")
    return lists


def _positions(model: Model, scope: Any, where: str) -> tuple[int, ...]:
    """Return the positions of the variables of a scope, which is a label or several."""
    labels, lookup = model.labels, model._lookup
    if lookup is None and type(scope) is int and 0 <= scope < len(labels):  # a short cut for very many scopes
        return (scope,)
    alone = check.label_position(scope, labels, lookup)
    if alone is not None:
        return (alone,)
    if not check.is_several(scope):
        raise ArgumentError("features", check.expected_labels(labels, scope), scope, where)
    places = []
    for label in scope:
        place = check.label_position(label, labels, lookup)
        if place is None:
            raise ArgumentError("features", check.expected_labels(labels, label), label, where)
        places.append(place)
    if not places or len(set(places)) < len(places):
        raise ArgumentError("features", "scopes of one label or several different ones", scope, where)
    return tuple(places)


def _check_weights(design: sparse.csr_array, vocabulary: AttributeNames) -> None:
    """Refuse attributes with a weight on which no table entry depends."""
    used = np.zeros(vocabulary.size, dtype=np.bool_)
    used[design.indices] = True
    if not used.all():
        first = int(np.argmin(used))
        name = next(n for n, a in reversed(vocabulary.attributes.items()) if a.first <= first)
        raise ArgumentError("features", "attributes that have a value other than 0 somewhere", name)
