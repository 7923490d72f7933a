"""Factor graphs: any discrete model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError


class FactorGraph(Model):
    """A product of factors of any arity over variables of any cardinalities.

    Parameters
    ----------
    cardinalities : array of int
        Number of states of each variable, at least 2.
    factors : iterable of (scope, log_table)
        `scope` is a tuple of positions, `log_table` an array with one axis per variable of the scope;
        -inf forbids a combination.
    labels : sequence, optional
        Names of the variables; default 0..n-1.

    Notes
    -----
    pi(x) ∝ exp( sum over factors log_table[x_scope] ).

    Examples
    --------
    >>> import dobrushin as db, numpy as np
    >>> xor = np.where(np.indices((2, 2, 2)).sum(axis=0) % 2 == 0, 0.0, -np.inf)
    >>> model = db.FactorGraph([2, 2, 2], [((0, 1, 2), xor), ((0,), [0.0, 1.0])])
    >>> model.log_density([[1, 1, 0], [1, 1, 1]])
    array([  1., -inf])
    >>> model.conditional(2, [0, 1, 0])
    array([0., 1.])
    """

    _first_argument = "cardinalities"

    def __init__(
        self,
        cardinalities: ArrayLike,
        factors: Iterable[tuple[Any, ArrayLike]],
        labels: Sequence[Hashable] | None = None,
    ) -> None:
        sizes = read_cardinalities(cardinalities, "FactorGraph", "cardinalities")
        scopes, tables = [], []
        for k, factor in enumerate(factors):
            where = f"factor {k}"
            try:
                scope, table = factor
                scope = tuple(scope)
                if not all(isinstance(v, Integral) and not isinstance(v, bool) for v in scope):
                    raise TypeError
                scope_array = np.array(scope, dtype=np.int64)
            except (TypeError, ValueError, OverflowError):
                requirement = "pairs (scope, log_table) with a scope of positions"
                raise ArgumentError("FactorGraph", "factors", requirement, factor, where) from None
            if scope_array.size and (scope_array.min() < 0 or scope_array.max() >= len(sizes)):
                requirement = f"on scopes of positions from 0 to {len(sizes) - 1}"
                raise ArgumentError("FactorGraph", "factors", requirement, tuple(scope), where)
            if len(set(scope_array.tolist())) < len(scope_array):
                raise ArgumentError("FactorGraph", "factors", "on distinct variables", tuple(scope), where)
            array = check.real_array(table, "FactorGraph", "factors")
            shape = tuple(int(c) for c in sizes[scope_array])
            if array.shape != shape:
                requirement = f"tables of the shape {shape} of their scope {tuple(scope_array.tolist())}"
                raise ArgumentError("FactorGraph", "factors", requirement, got=f"shape {array.shape}", where=where)
            if not (fine := check.is_log_potential(array)).all():
                raise ArgumentError("FactorGraph", "factors", check.LOG_POTENTIAL, array[check.first(~fine)], where)
            scopes.append(scope_array)
            tables.append(array.ravel())
        arity = np.array([len(scope) for scope in scopes], dtype=np.int64)
        size = np.array([len(table) for table in tables], dtype=np.int64)
        self._build(
            sizes, _starts(arity), _joined(scopes, np.int64), _starts(size), _joined(tables, np.float64), labels
        )

    @classmethod
    def _from_blocks(
        cls,
        cardinalities: NDArray[np.int64],
        blocks: list[tuple[NDArray[Any], NDArray[np.float64]]],
        labels: Sequence[Hashable] | None,
    ) -> FactorGraph:
        """Build from blocks of factors of one shape: scopes (F, arity) and flat tables (F, size)."""
        arity = np.concatenate([np.full(len(s), s.shape[1], dtype=np.int64) for s, _ in blocks])
        size = np.concatenate([np.full(len(t), t.shape[1], dtype=np.int64) for _, t in blocks])
        scopes = _joined([s.ravel() for s, _ in blocks], np.int64)
        tables = _joined([t.ravel() for _, t in blocks], np.float64)
        model = cls.__new__(cls)
        model._build(cardinalities, _starts(arity), scopes, _starts(size), tables, labels)
        return model

    @classmethod
    def _from_arrays(cls, other: FactorGraph) -> FactorGraph:
        """The same factors on variables that are named by their positions."""
        model = cls.__new__(cls)
        model._build(other._cardinalities, other._scope_start, other._scope, other._table_start, other._table, None)
        return model

    def _build(
        self,
        cardinalities: NDArray[np.int64],
        scope_start: NDArray[np.int64],
        scope: NDArray[np.int64],
        table_start: NDArray[np.int64],
        table: NDArray[np.float64],
        labels: Sequence[Hashable] | None,
    ) -> None:
        super().__init__(len(cardinalities), labels)
        self._cardinalities = frozen(cardinalities)
        self._scope_start = frozen(scope_start)
        self._scope = frozen(scope)
        self._table_start = frozen(table_start)
        self._table = frozen(table)
        self._stride = frozen(_strides(scope_start, cardinalities[scope]))
        factor = np.repeat(np.arange(len(scope_start) - 1), np.diff(scope_start))
        order = np.argsort(scope, kind="stable")
        # Factors of each variable, and the stride of the variable in the table of each.
        self._factor_start = frozen(_starts(np.bincount(scope, minlength=len(cardinalities))))
        self._factor_of = frozen(factor[order])
        self._factor_stride = frozen(self._stride[order])

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        return self._cardinalities

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self._scope_start) - 1

    def factor(self, k: int) -> tuple[tuple[int, ...], NDArray[np.float64]]:
        """Scope (positions) and log-table of factor `k`."""
        if not 0 <= k < self.n_factors:
            raise ArgumentError("FactorGraph.factor", "k", f"from 0 to {self.n_factors - 1}", k)
        scope = self._scope[self._scope_start[k] : self._scope_start[k + 1]]
        table = self._table[self._table_start[k] : self._table_start[k + 1]]
        return tuple(scope.tolist()), table.reshape(self._cardinalities[scope])

    @cached_property
    def _adjacency_cached(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return adjacency(self._scope_start, self._scope, self.n_variables)

    @property
    def _adjacency(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._adjacency_cached

    @property
    def _numbers_per_state(self) -> int:
        return 2 * len(self._scope) + 1

    def _log_density_rows(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        if not self.n_factors:
            return np.zeros(len(states))
        cell = np.zeros((len(states), len(self._scope) + 1), dtype=np.int64)
        np.multiply(states[:, self._scope], self._stride, out=cell[:, 1:])
        np.cumsum(cell, axis=1, out=cell)
        offset = cell[:, self._scope_start[1:]] - cell[:, self._scope_start[:-1]]
        return self._table[self._table_start[:-1] + offset].sum(axis=1)

    def _log_weights(self, i: int, states: NDArray[np.int64]) -> NDArray[np.float64]:
        total = np.zeros((*states.shape[:-1], int(self._cardinalities[i])))
        for k in self._factor_of[self._factor_start[i] : self._factor_start[i + 1]]:
            scope, table = self.factor(int(k))
            axis = scope.index(i)
            others = tuple(states[..., v] for v in scope if v != i)
            total += np.moveaxis(table, axis, -1)[others]
        return total

    def _condition(self, fixed: NDArray[np.bool_], state: NDArray[np.int64]) -> FactorGraph:
        kept = np.flatnonzero(~fixed)
        renumber = np.cumsum(~fixed) - 1
        factors = []
        for k in range(self.n_factors):
            scope, table = self.factor(k)
            known = [v for v in scope if fixed[v]]
            rest = table[tuple(state[v] if fixed[v] else slice(None) for v in scope)]
            if known and np.isneginf(rest).all():
                label = self._labels[known[0]]
                requirement = "possible"
                raise ArgumentError(
                    "FactorGraph.condition",
                    "evidence",
                    requirement,
                    got=f"a combination that factor {k} forbids",
                    where=f"label {label!r}",
                )
            free = tuple(int(renumber[v]) for v in scope if not fixed[v])
            if free or not known:
                factors.append((free, rest))
        return FactorGraph(self._cardinalities[kept], factors, self._labels_at(kept))

    def to_factor_graph(self) -> FactorGraph:
        """This model itself."""
        return self

    def __repr__(self) -> str:
        return f"FactorGraph(n_variables={self.n_variables}, factors={self.n_factors})"


def adjacency(scope_start: NDArray[np.int64], scope: NDArray[np.int64], n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Which variables occur together in some scope: CSR row starts and sorted columns."""
    ones = np.ones(len(scope), dtype=np.int32)
    member = sparse.csr_array((ones, scope, scope_start), shape=(len(scope_start) - 1, n))
    shared = sparse.coo_array(member.T @ member)
    apart = shared.coords[0] != shared.coords[1]
    i, j = shared.coords[0][apart], shared.coords[1][apart]
    graph = sparse.csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
    graph.sort_indices()
    index = np.int32 if max(n, graph.nnz) < 2**31 else np.int64
    return frozen(graph.indptr.astype(index)), frozen(graph.indices.astype(index))


def read_cardinalities(value: ArrayLike, function: str, argument: str) -> NDArray[np.int64]:
    """Numbers of states, each at least 2."""
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ArgumentError(function, argument, "a sequence of whole numbers", value)
    check.all_entries(array >= 2, array, function, argument, "at least 2")
    return array.astype(np.int64)


def _starts(sizes: NDArray[Any]) -> NDArray[np.int64]:
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([*parts, np.empty(0, dtype=dtype)]).astype(dtype)


def _strides(start: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Strides of C-ordered tables: within each scope, the product of the sizes that follow."""
    strides = np.ones(len(sizes), dtype=np.int64)
    arity = np.diff(start)
    for back in range(1, int(arity.max(initial=1))):
        wide = start[1:][arity > back] - 1 - back
        strides[wide] = strides[wide + 1] * sizes[wide + 1]
    return strides
