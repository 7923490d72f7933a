"""Log-linear models for `fit`: tables that are linear in the parameters, and the model with given parameters.

All log-tables lie one after the other in the array `base + design @ parameters`; `design` has a row for each table
entry. Several factors may share a table. Free parameters are the finite ones that `fit` was asked to learn; the others
keep their values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts
from dobrushin._models.couplings import symmetric
from dobrushin._models.factors import FactorTables
from dobrushin._models.ising import SpinPairs
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.state_names import StateNames
from dobrushin._shared.arrays import Array, Floats, Ints, frozen, prefix_sums, row_entries

# Entries of the temporary arrays of a statistic.
_ENTRIES_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False)
class Structure:
    """A family of log-linear models over fixed factors.

    Attributes
    ----------
    family : type
        Family of the models that `model` returns.
    labels, state_names : labels and names of states of the variables
    sizes : array of int
        Number of states of each variable.
    scopes : list of arrays (factors, arity)
        Positions of the variables of the factors, those of one arity together.
    table_of : array of int
        Table of each factor, in the order of `scopes`.
    table_start : array of int
        First entry of each table, and the number of entries.
    base : array
        The part of each entry that is not learned.
    design : sparse array (entries, parameters)
    start : array
        Parameters to start from, of which those at `free` are learned.
    free : array of int
    name_parameters : function
        Returns the names of all parameters.
    make : function, optional
        Returns the model with all these parameters. None: a factor graph of the tables.
    n_graphs : int
        Number of graphs that are observed together in one row of the data.
    vocabulary : Vocabulary or None
        The attributes of shared weights.
    rows : array of int, optional
        For tables of conditional probabilities: the row of each entry, whose probabilities sum to 1.
    """

    family: type[Model]
    labels: Sequence[Hashable]
    sizes: Ints
    scopes: list[Ints]
    table_of: Ints
    table_start: Ints
    base: Floats
    design: sparse.csr_array
    start: Floats
    free: Ints
    name_parameters: Callable[[], list[tuple[Hashable, ...]]]
    make: Callable[[Floats], Model] | None = None
    state_names: StateNames | None = None
    n_graphs: int = 1
    vocabulary: Any = None
    rows: Ints | None = None

    @property
    def n(self) -> int:
        return len(self.sizes)

    @property
    def is_spins(self) -> bool:
        return self.family is Ising

    @property
    def type_of_states(self) -> type:
        """The smallest integer type that holds all states."""
        return np.int8 if int(self.sizes.max()) <= 127 else np.int32

    def model(self, full: Floats) -> Model:
        """Return the model with the parameters `full`."""
        if self.make is None:
            graph = FactorGraph._from_form(self.tables(self.entries(full)), self.labels)
            model: Model = graph._off_by(self.rounding(full))
        else:
            model = self.make(full)
        return model._name_states(self.state_names)

    def fill(self, theta: Floats) -> Floats:
        """Return all parameters, given the values of the free ones."""
        full: Floats = self.start.copy()
        full[self.free] = theta
        return full

    def names(self) -> list[tuple[Hashable, ...]]:
        """Return the names of the free parameters."""
        names = self.name_parameters()
        return [names[k] for k in self.free.tolist()]

    # -- tables ----------------------------------------------------------------------------------------------------

    def entries(self, full: Floats) -> Floats:
        """Return the entries of all log-tables, given all parameters."""
        found: Floats = self.base + self.design @ full
        return found

    def rounding(self, full: Floats) -> float:
        """Bound the error of a joint state's log-density from rounding the tables."""
        if self.vocabulary is None:  # an entry is a parameter, up to its sign
            return 0.0
        sizes = np.where(np.isfinite(self.base), np.abs(self.base), 0.0) + self._sizes_of_weights @ np.abs(full)
        largest = np.maximum.reduceat(sizes, self.table_start[:-1])[self.table_of]
        terms = 2.0 + float(np.diff(self.design.indptr).max(initial=0))
        return float(largest.sum()) * terms * 2.0**-52

    @cached_property
    def weights(self) -> sparse.csr_array:
        """Columns of the design matrix that belong to free parameters."""
        return self.design if len(self.free) == self.design.shape[1] else self.design[:, self.free]

    @cached_property
    def shape(self) -> tuple[Ints, Ints, Ints]:
        """Where each scope begins, the variables of all scopes, and the first entry of each factor's table."""
        arity = np.repeat([scope.shape[1] for scope in self.scopes], [len(scope) for scope in self.scopes])
        scope = np.concatenate([part.ravel() for part in self.scopes]).astype(np.int64)
        return frozen(prefix_sums(arity.astype(np.int64))), frozen(scope), frozen(self.table_start[self.table_of])

    def tables(self, entries: Floats) -> FactorTables:
        """Return a model's factors as tables, one table for each factor, given all table entries."""
        scope_start, scope, first = self.shape
        start, entry = row_entries(first, self.table_start[self.table_of + 1] - first)
        return FactorTables(self.sizes, scope_start, scope, start, entries[entry])

    # -- statistics of states, which have shape (variables, observations) -----------------------------------------

    def digits(self, states: Array) -> Array:
        """Return states counted from 0, with shape (variables, observations).

        `states` has shape (observations, variables).
        """
        return np.ascontiguousarray(((states + 1) // 2 if self.is_spins else states).T, dtype=self.type_of_states)

    def entries_of(self, x: Array) -> Iterator[Ints]:
        """Yield, for a group of factors at a time, the table entry of each factor in each observation."""
        first, step = 0, max(1, _ENTRIES_AT_ONCE // max(1, x.shape[1]))
        for scope in self.scopes:
            for k in range(0, len(scope), step):
                here = scope[k : k + step]
                tables = self.table_of[first + k : first + k + len(here)]
                entry = np.zeros((len(here), x.shape[1]), dtype=np.int64)
                for column in here.T:
                    entry *= self.sizes[column][:, None]
                    entry += x[column]
                yield entry + self.table_start[tables][:, None]
            first += len(scope)

    def count(self, x: Array) -> Floats:
        """Return how often each table entry occurs in the observations."""
        counts = np.zeros(len(self.base), dtype=np.int64)
        for entry in self.entries_of(x):
            counts += np.bincount(entry.ravel(), minlength=len(counts))
        return counts.astype(np.float64)

    def means(self, counts: Floats, rows: float, *, is_size: bool = False) -> Floats:
        """Return the mean of each free statistic over rows of data and graphs, given the counts of table entries.

        With `is_size`, average the absolute values of a statistic's terms.
        """
        weights = self._sizes_of_weights if is_size else self.weights
        found: Floats = weights.T @ counts / (rows * self.n_graphs)
        return found

    @cached_property
    def _sizes_of_weights(self) -> sparse.csr_array:
        is_positive = not len(self.weights.data) or self.weights.data.min() >= 0.0
        return self.weights if is_positive else abs(self.weights)

    @cached_property
    def most_terms(self) -> int:
        """The largest number of table entries that depend on one free parameter."""
        return int(np.bincount(self.weights.indices).max(initial=0))

    def along(self, direction: Floats, x: Array) -> Floats:
        """Return sum_k direction_k t_k(x) for each observation x, with t_k the statistics averaged over graphs."""
        values, total = self.weights @ direction, np.zeros(x.shape[1])
        for entry in self.entries_of(x):
            total += values[entry].sum(axis=0)
        return total / self.n_graphs

    # -- bounds on the error of statistics, given the disagreement of each variable -----------------------------------

    @cached_property
    def _table_ranges(self) -> sparse.csr_array:
        """Range of each free parameter's coefficients within each table."""
        entry = self.weights.tocoo()
        sizes = np.diff(self.table_start)
        table = np.repeat(np.arange(len(sizes)), sizes)[entry.coords[0]]
        key = entry.coords[1].astype(np.int64) * len(sizes) + table
        order = np.argsort(key, kind="stable")
        keys, first, counts = np.unique(key[order], return_index=True, return_counts=True)
        if not len(keys):
            return sparse.csr_array((self.weights.shape[1], len(sizes)))
        parameter, table = keys // len(sizes), keys % len(sizes)
        high, low = (way.reduceat(entry.data[order], first) for way in (np.maximum, np.minimum))
        has_zero = counts < sizes[table]
        high, low = np.where(has_zero, np.maximum(high, 0.0), high), np.where(has_zero, np.minimum(low, 0.0), low)
        return sparse.csr_array((high - low, (parameter, table)), shape=(self.weights.shape[1], len(sizes)))

    @cached_property
    def factor_ranges(self) -> sparse.csr_array:
        """The most that each factor can change each free statistic, averaged over graphs."""
        factors = np.arange(len(self.table_of))
        shape = (len(self.table_start) - 1, len(factors))
        uses = sparse.csr_array((np.ones(len(factors)), (self.table_of, factors)), shape=shape)
        return (self._table_ranges @ uses) / self.n_graphs

    @cached_property
    def ranges(self) -> Floats:
        """Upper bound on the range of each free statistic."""
        found: Floats = np.asarray(self.factor_ranges.sum(axis=1)).ravel()
        return found

    @cached_property
    def _influence_of_variables(self) -> sparse.csr_array:
        """The most that each variable can change each free statistic."""
        scope_start, scope, _ = self.shape
        member = sparse.csr_array((np.ones(len(scope)), scope, scope_start), shape=(len(self.table_of), self.n))
        changes = self.factor_ranges @ member
        changes.eliminate_zeros()
        return changes

    @cached_property
    def used(self) -> Ints:
        """Variables on which a free statistic depends."""
        return frozen(np.unique(self._influence_of_variables.indices).astype(np.int64))

    def target_weights(self) -> Floats:
        """Return weights w of the variables with sum_i d_ik b_i <= max_i w_i b_i for each free statistic k.

        Here d_ik is the most that variable i can change statistic k, and b_i any disagreement.
        """
        changes = self._influence_of_variables.tocoo()
        w = np.zeros(self.n)
        members = np.diff(self._influence_of_variables.indptr)
        np.maximum.at(w, changes.coords[1], changes.data * members[changes.coords[0]])
        return w

    def bias(self, b: Floats) -> Floats:
        """Bound the bias of each free statistic, given bounds b on the disagreement of the variables."""
        scope_start, scope, _ = self.shape
        total = np.minimum(1.0, np.add.reduceat(np.append(b[scope], 0.0), scope_start[:-1]))
        terms = int(np.diff(self.factor_ranges.indptr).max(initial=0)) + int(np.diff(scope_start).max(initial=0))
        found: Floats = np.minimum(self.ranges, self.factor_ranges @ total * (1.0 + terms * 2.0**-50))
        return found


# -- families with parameters of their own for each edge and variable ----------------------------------------------


def _own_parameters(
    family: type[Model],
    sizes: Ints,
    edges: Ints,
    labels: Sequence[Hashable],
    start: Floats | None,
    learn: str,
    blocks: tuple[Any, Any],
    make: Callable[[Floats], Model],
    name_edges: Callable[[], list[tuple[Hashable, ...]]] | None = None,
) -> Structure:
    """Return a structure with separate parameters for each edge and variable; `blocks` are their design matrices."""
    n = len(sizes)
    lengths = np.concatenate([sizes[edges].prod(axis=1), sizes])
    design = sparse.csr_array(sparse.block_diag(blocks, format="csr"))
    split = blocks[0].shape[1]
    start = np.zeros(design.shape[1]) if start is None else start
    is_edge = np.arange(len(start)) < split
    asked = is_edge if learn == "edges" else ~is_edge if learn == "unaries" else np.ones(len(start), dtype=np.bool_)

    def names() -> list[tuple[Hashable, ...]]:
        of_edges = name_edges() if name_edges else [("coupling", labels[a], labels[b]) for a, b in edges.tolist()]
        if family is Ising:
            return [*of_edges, *(("field", label) for label in labels)]
        return [*of_edges, *(("unary", labels[i], a) for i in range(n) for a in range(int(sizes[i])))]

    table_start = prefix_sums(lengths).astype(np.int64)
    return Structure(
        family, labels, frozen(sizes), [frozen(edges), frozen(np.arange(n)[:, None])], frozen(np.arange(len(lengths))),
        frozen(table_start), np.zeros(int(table_start[-1])), design, frozen(start),
        frozen(np.flatnonzero(asked & np.isfinite(start))), names, make,
    )  # fmt: skip


def _identity(n: int) -> Any:
    return sparse.eye_array(n, format="csr")


def _per_item(n: int, column: Any) -> Any:
    """Return the design matrix of n tables, each of which is a parameter of its own times `column`."""
    return sparse.kron(_identity(n), np.array(column, dtype=np.float64).reshape(-1, 1), format="csr")


def _ising(sizes: Ints, edges: Ints, labels: Sequence[Hashable], start: Floats | None, learn: str) -> Structure:
    """Return the structure of an Ising model, whose statistics are x_i x_j and x_i."""

    def make(full: Floats) -> Ising:
        matrix = symmetric(edges[:, 0], edges[:, 1], full[: len(edges)], len(sizes))
        return Ising._from_form(SpinPairs(matrix, full[len(edges) :]), labels)

    blocks = _per_item(len(edges), [1, -1, -1, 1]), _per_item(len(sizes), [-1, 1])
    return _own_parameters(Ising, sizes, edges, labels, start, learn, blocks, make)


def _potts(sizes: Ints, edges: Ints, labels: Sequence[Hashable], start: Floats | None, learn: str) -> Structure:
    """Return the structure of a Potts model, whose statistics are 1{x_i = x_j} and 1{x_i = a}."""
    k = int(sizes[0])

    def make(full: Floats) -> Potts:
        matrix = symmetric(edges[:, 0], edges[:, 1], full[: len(edges)], len(sizes))
        return Potts._from_form(LabelPairs(matrix, k, full[len(edges) :].reshape(-1, k)), labels)

    blocks = _per_item(len(edges), np.eye(k)), _identity(k * len(sizes))
    return _own_parameters(Potts, sizes, edges, labels, start, learn, blocks, make)


def _pairwise(sizes: Ints, edges: Ints, labels: Sequence[Hashable], start: Floats | None, learn: str) -> Structure:
    """Return the structure of a pairwise model, whose statistics are 1{x_i = a, x_j = b} and 1{x_i = a}."""
    split = int(sizes[edges].prod(axis=1).sum())

    def make(full: Floats) -> PairwiseMRF:
        return PairwiseMRF._from_form(PairTables(sizes, full[split:], edges, full[:split]), labels)

    def name_edges() -> list[tuple[Hashable, ...]]:
        pairs = [(a, b, np.ndindex(int(sizes[a]), int(sizes[b]))) for a, b in edges.tolist()]
        return [("table", labels[a], labels[b], s, t) for a, b, cells in pairs for s, t in cells]

    blocks = _identity(split), _identity(int(sizes.sum()))
    return _own_parameters(PairwiseMRF, sizes, edges, labels, start, learn, blocks, make, name_edges)


# By the name that `fit` takes.
FAMILIES = {"ising": _ising, "potts": _potts, "pairwise": _pairwise}


def structure_of(model: Model, learn: str) -> Structure | None:
    """Return the log-linear structure of an Ising, Potts or pairwise model; None for other models."""
    ordinary: Any = model._form.to_model(model.labels)._name_states(model._state_names)
    if isinstance(ordinary, PairwiseMRF):
        kind, edges = _pairwise, ordinary._form.edges
        start = np.concatenate([ordinary._form.table, ordinary._form.unary])
    elif isinstance(ordinary, Ising | Potts):
        upper = sparse.coo_array(sparse.triu(ordinary.couplings, k=1))
        order = np.lexsort((upper.coords[1], upper.coords[0]))
        edges = np.stack(upper.coords, axis=1)[order].astype(np.int64)
        kind, singles = (_ising, ordinary.fields) if isinstance(ordinary, Ising) else (_potts, ordinary.unaries.ravel())
        start = np.concatenate([upper.data[order], singles])
    else:
        return None
    structure = kind(ordinary.cardinalities, edges, ordinary.labels, start, learn)
    return replace(structure, state_names=ordinary._state_names)
