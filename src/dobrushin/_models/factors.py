"""Factor graphs: any discrete model."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dobrushin._models.barren import log_sum, sum_out, sum_variation
from dobrushin._models.checked_arrays import FLOAT, WHOLE, CheckedArrays
from dobrushin._models.forms import Form, ImpossibleEvidence, require_variables
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen, prefix_sums, row_entries
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
    state_names : tuple, dict or list, optional
        What the states are called; see `Model`.

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

    _form: FactorTables

    def __init__(
        self,
        cardinalities: ArrayLike,
        factors: Iterable[tuple[Any, ArrayLike]],
        labels: Sequence[Hashable] | None = None,
        *,
        state_names: Any = None,
    ) -> None:
        sizes = read_cardinalities(cardinalities, "FactorGraph", "cardinalities")
        scopes, tables = [], []
        for k, factor in enumerate(factors):
            where = f"factor {k}"
            try:
                scope, table = factor
                scope = tuple(scope)
                if not all(map(check.is_whole, scope)):
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
        scope, table = _join(scopes, np.int64), _join(tables, np.float64)
        form = FactorTables(sizes, prefix_sums(arity), scope, prefix_sums(size), table, "FactorGraph")
        super().__init__(form, labels, state_names)

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return self._form.n_factors

    def factor(self, k: int) -> tuple[tuple[int, ...], NDArray[np.float64]]:
        """Scope (positions) and log-table of factor `k`."""
        if not 0 <= k < self.n_factors:
            raise ArgumentError("FactorGraph.factor", "k", f"from 0 to {self.n_factors - 1}", k)
        return self._form.factor(k)

    def to_factor_graph(self) -> FactorGraph:
        """This model itself."""
        return self


class FactorTables(Form):
    """A log-table for each factor: the widest form.

    The table of factor k is table[table_start[k] : table_start[k + 1]], in C order over the variables
    scope[scope_start[k] : scope_start[k + 1]], of which `stride` has the strides. The factors of variable i are
    factor_of[factor_start[i] : factor_start[i + 1]], with its stride in each of them in `factor_stride`.

    Parameters
    ----------
    cardinalities : array of int, each at least 2
    scope_start, scope : arrays of int
        Distinct positions in each scope.
    table_start, table : array of int, array of log-potentials
    function : str
        Who is named in messages.
    """

    stored_as = "FactorGraph"
    stored_arrays: ClassVar = {"cardinalities": WHOLE, "arity": WHOLE, "scope": WHOLE, "tables": FLOAT}

    def __init__(
        self,
        cardinalities: NDArray[np.int64],
        scope_start: NDArray[np.int64],
        scope: NDArray[np.int64],
        table_start: NDArray[np.int64],
        table: NDArray[np.float64],
        function: str = "FactorTables",
    ) -> None:
        require_variables(len(cardinalities), function, "cardinalities")
        check.log_potential(table, function, "factors")
        self._set(cardinalities, scope_start, scope, table_start, table)

    def _set(
        self,
        cardinalities: NDArray[np.int64],
        scope_start: NDArray[np.int64],
        scope: NDArray[np.int64],
        table_start: NDArray[np.int64],
        table: NDArray[np.float64],
    ) -> None:
        self._cardinalities = frozen(cardinalities)
        self.scope_start, self.scope = frozen(scope_start), frozen(scope)
        self.table_start, self.table = frozen(table_start), frozen(table)
        self.stride = frozen(_strides(scope_start, cardinalities[scope]))
        factor = np.repeat(np.arange(len(scope_start) - 1), np.diff(scope_start))
        order = np.argsort(scope, kind="stable")
        self.factor_start = frozen(prefix_sums(np.bincount(scope, minlength=len(cardinalities))))
        self.factor_of = frozen(factor[order])
        self.factor_stride = frozen(self.stride[order])

    @classmethod
    def from_blocks(
        cls, cardinalities: NDArray[np.int64], blocks: list[tuple[NDArray[Any], NDArray[np.float64]]]
    ) -> FactorTables:
        """Join blocks of factors of one shape, known to be right: scopes (F, arity) and flat tables (F, size)."""
        arity = np.concatenate([np.full(len(scopes), scopes.shape[1], dtype=np.int64) for scopes, _ in blocks])
        size = np.concatenate([np.full(len(tables), tables.shape[1], dtype=np.int64) for _, tables in blocks])
        scope = _join([scopes.ravel() for scopes, _ in blocks], np.int64)
        table = _join([tables.ravel() for _, tables in blocks], np.float64)
        form = cls.__new__(cls)
        form._set(cardinalities, prefix_sums(arity), scope, prefix_sums(size), table)
        return form

    @property
    def n_variables(self) -> int:
        return len(self._cardinalities)

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        return self._cardinalities

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.scope_start) - 1

    @property
    def counts(self) -> dict[str, int]:
        return {"factors": self.n_factors}

    def factor(self, k: int) -> tuple[tuple[int, ...], NDArray[np.float64]]:
        """Scope and log-table of factor `k`."""
        scope = self.scope[self.scope_start[k] : self.scope_start[k + 1]]
        table = self.table[self.table_start[k] : self.table_start[k + 1]]
        return tuple(scope.tolist()), table.reshape(self._cardinalities[scope])

    def factors_of(self, i: int) -> list[tuple[tuple[int, ...], NDArray[np.float64]]]:
        """Scopes and log-tables of the factors of variable `i`."""
        return [self.factor(k) for k in self.factor_of[self.factor_start[i] : self.factor_start[i + 1]].tolist()]

    @cached_property
    def adjacency(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return adjacency(self.scope_start, self.scope, self.n_variables)

    @cached_property
    def has_zeros(self) -> bool:
        return bool(np.isneginf(self.table).any())

    def favourites(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        digits = np.zeros(len(positions), dtype=np.int64)
        for place, i in enumerate(positions.tolist()):
            total = np.zeros(int(self._cardinalities[i]))
            for scope, table in self.factors_of(i):
                if len(scope) == 1:
                    total = total + table
            digits[place] = total.argmax()
        return digits

    def tables(self) -> FactorTables:
        return self

    def wider(self) -> None:
        return None

    @property
    def numbers_per_state(self) -> int:
        return 2 * len(self.scope) + 1

    def log_density(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        if not self.n_factors:
            return np.zeros(len(states))
        cell = np.zeros((len(states), len(self.scope) + 1), dtype=np.int64)
        np.multiply(states[:, self.scope], self.stride, out=cell[:, 1:])
        np.cumsum(cell, axis=1, out=cell)
        offset = cell[:, self.scope_start[1:]] - cell[:, self.scope_start[:-1]]
        return self.table[self.table_start[:-1] + offset].sum(axis=1)

    def log_weights(self, i: int, states: NDArray[np.int64]) -> NDArray[np.float64]:
        total = np.zeros((*states.shape[:-1], int(self._cardinalities[i])))
        for scope, table in self.factors_of(i):
            axis = scope.index(i)
            others = tuple(states[..., v] for v in scope if v != i)
            total += np.moveaxis(table, axis, -1)[others]
        return total

    def condition(self, fixed: NDArray[np.bool_], state: NDArray[np.int64]) -> FactorTables:
        renumber = np.cumsum(~fixed) - 1
        scopes, tables = [], []
        for k in range(self.n_factors):
            scope, table = self.factor(k)
            known = [v for v in scope if fixed[v]]
            rest = table[tuple(state[v] if fixed[v] else slice(None) for v in scope)]
            if known and np.isneginf(rest).all():
                raise ImpossibleEvidence(known[0], f"a combination that factor {k} forbids")
            free = [int(renumber[v]) for v in scope if not fixed[v]]
            if free or not known:
                scopes.append(np.array(free, dtype=np.int64))
                tables.append(rest.ravel())
        arity, size = (np.array([len(part) for part in parts], dtype=np.int64) for parts in (scopes, tables))
        return FactorTables(
            self._cardinalities[~fixed],
            prefix_sums(arity), _join(scopes, np.int64),
            prefix_sums(size), _join(tables, np.float64),
        )  # fmt: skip

    def restrict(self, variables: NDArray[np.bool_]) -> FactorTables:
        members = np.append(variables[self.scope], True)[self.scope_start[:-1]]
        return self._select(variables, members | (np.diff(self.scope_start) == 0))

    def sum_out(self, wanted: NDArray[np.bool_]) -> tuple[FactorTables, NDArray[np.bool_], float]:
        rest = sum_out(self, wanted)
        return self._select(rest.variables, rest.factors), rest.variables, rest.error

    def sum_out_barren(self) -> tuple[FactorTables | None, float, float]:
        """All that can be summed by itself is: what is left, the logarithm of the sum, and how far that may be off."""
        rest = sum_out(self, np.zeros(self.n_variables, dtype=bool))
        terms = [log_sum(self.factor(k)[1], axis) for k, axis in rest.sums]
        # Variables that are in no factor any more go with as many terms as they have states.
        alone = ~rest.variables
        alone[[self.factor(k)[0][axis] for k, axis in rest.sums]] = False
        terms += np.log(self._cardinalities[alone]).tolist()
        if not rest.variables.any():
            terms += [float(self.factor(k)[1]) for k in np.flatnonzero(rest.factors).tolist()]
        left = self._select(rest.variables, rest.factors) if rest.variables.any() else None
        return left, math.fsum(terms), rest.error

    def sum_variation(self, k: int, axis: int) -> float:
        """How much the sum of factor `k` over an axis varies with the others, computed once; see `barren`."""
        if (k, axis) not in self._variations:
            self._variations[k, axis] = sum_variation(self.factor(k)[1], axis)
        return self._variations[k, axis]

    @cached_property
    def _variations(self) -> dict[tuple[int, int], float]:
        return {}

    def _select(self, variables: NDArray[np.bool_], factors: NDArray[np.bool_]) -> FactorTables:
        """Some variables and some factors, which have no other variables."""
        arity, size = (np.diff(start)[factors] for start in (self.scope_start, self.table_start))
        scope_start, members = row_entries(self.scope_start[:-1][factors], arity)
        table_start, cells = row_entries(self.table_start[:-1][factors], size)
        renumber = np.cumsum(variables) - 1
        scope, table = renumber[self.scope[members]], self.table[cells]
        return FactorTables(self._cardinalities[variables], scope_start, scope, table_start, table)

    def condition_error(self, known: NDArray[np.int64]) -> float:
        """Zero: tables are cut, and nothing is added."""
        del known
        return 0.0

    def to_model(self, labels: Sequence[Hashable] | None) -> FactorGraph:
        return FactorGraph._from_form(self, labels)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        shape = {"arity": np.diff(self.scope_start), "scope": self.scope, "cardinalities": self._cardinalities}
        return {**shape, "tables": self.table}

    @classmethod
    def from_arrays(cls, arrays: CheckedArrays) -> FactorTables:
        sizes = arrays.cardinalities()
        start, _ = arrays.scopes(len(sizes), least=0)
        area = np.ones(len(start) - 1)
        with np.errstate(over="ignore"):
            np.multiply.at(area, np.repeat(np.arange(len(area)), np.diff(start)), sizes[arrays["scope"]])
        table = arrays.logs("tables", area)
        return cls(sizes, start, arrays["scope"], prefix_sums(area).astype(np.int64), table)


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


def _join(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([*parts, np.empty(0, dtype=dtype)]).astype(dtype)


def _strides(start: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Strides of C-ordered tables: within each scope, the product of the sizes that follow."""
    strides = np.ones(len(sizes), dtype=np.int64)
    arity = np.diff(start)
    for back in range(1, int(arity.max(initial=1))):
        wide = start[1:][arity > back] - 1 - back
        strides[wide] = strides[wide + 1] * sizes[wide + 1]
    return strides
