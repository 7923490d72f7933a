"""Factor graphs: any discrete model."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from dobrushin._kernels.tables import cut_tables
from dobrushin._models.couplings import read_blocks, read_cardinalities, read_factors
from dobrushin._models.derived import log_sum, sum_out, sum_variation
from dobrushin._models.forms import (
    FLOAT,
    WHOLE,
    CheckedArrays,
    DivisibleForm,
    ImpossibleEvidence,
    own_numbers,
    require_variables,
)
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Bools, Floats, Ints, distinct, frozen, prefix_sums, rows_at
from dobrushin._shared.call import public
from dobrushin._shared.compile import code_for
from dobrushin.errors import ArgumentError
from dobrushin.typing import NamesOfStates


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
        Names of the states; see `Model`.

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

    @public()
    def __init__(
        self,
        cardinalities: ArrayLike,
        factors: Iterable[tuple[Iterable[int], ArrayLike]],
        labels: Sequence[Hashable] | None = None,
        *,
        state_names: NamesOfStates = None,
    ) -> None:
        sizes = read_cardinalities(cardinalities, "cardinalities")
        form = FactorTables(sizes, *read_factors(factors, sizes))
        super().__init__(form, labels, state_names)

    @classmethod
    @public()
    def from_arrays(
        cls,
        cardinalities: ArrayLike,
        scopes: ArrayLike,
        tables: ArrayLike,
        labels: Sequence[Hashable] | None = None,
        state_names: NamesOfStates = None,
    ) -> FactorGraph:
        """Make a factor graph from arrays of factors, which is much faster than from a long list of factors.

        Parameters
        ----------
        cardinalities : array of int
            Number of states of each variable, at least 2.
        scopes : array of int of shape (F, arity), or a list of them
            Positions of the variables of each factor.
        tables : array of shape (F, k, ..., k), or a list of them
            The log-table of each factor: after the first axis, one for each variable of its scope. Factors of different
            shapes go to different arrays of the lists.
        labels : sequence, optional
            Names of the variables; default 0..n-1.
        state_names : tuple, dict or list, optional
            Names of the states; see `Model`.

        Returns
        -------
        FactorGraph

        Examples
        --------
        A ring of three-state variables with a field on each of them.

        >>> import dobrushin as db, numpy as np
        >>> i = np.arange(1000)
        >>> ring, fields = np.stack([i, (i + 1) % 1000], axis=1), i[:, None]
        >>> tables = np.tile(0.3 * np.eye(3), (1000, 1, 1)), np.tile([0.0, 0.1, 0.2], (1000, 1))
        >>> db.FactorGraph.from_arrays(np.full(1000, 3), [ring, fields], tables)
        FactorGraph(n_variables=1000, factors=2000)
        """
        sizes = read_cardinalities(cardinalities, "cardinalities")
        require_variables(len(sizes), "cardinalities")
        return cls._from_form(FactorTables.from_blocks(sizes, read_blocks(scopes, tables, sizes)), labels, state_names)

    @property
    def n_factors(self) -> int:
        """Return the number of factors."""
        return self._form.n_factors

    @public()
    def factor(self, k: int) -> tuple[tuple[int, ...], Floats]:
        """Return the scope (positions) and the log-table of factor `k`."""
        if not 0 <= k < self.n_factors:
            raise ArgumentError("k", f"from 0 to {self.n_factors - 1}", k)
        return self._form.factor(k)

    def to_factor_graph(self) -> FactorGraph:
        """Return the model itself, which is a factor graph already."""
        return self


class ScopedForm(DivisibleForm):
    """Base class of internal forms with factors, each over its scope (the variables it depends on).

    The variables of factor k are scope[scope_start[k] : scope_start[k + 1]]; the factors of variable i are
    factor_of[factor_start[i] : factor_start[i + 1]].
    """

    scope_start: Ints
    scope: Ints

    @property
    def n_factors(self) -> int:
        return len(self.scope_start) - 1

    def scope_of(self, k: int) -> Ints:
        return self.scope[self.scope_start[k] : self.scope_start[k + 1]]

    @property
    def numbers_per_state(self) -> int:
        return 2 * len(self.scope) + self.n_variables

    # Indices by variable are made when they are first asked for.

    @cached_property
    def adjacency(self) -> tuple[Array, Array]:
        return adjacency(self.scope_start, self.scope, self.n_variables)

    @cached_property
    def _by_variable(self) -> Ints:
        """Return the order that sorts the entries of all scopes by variable."""
        return np.argsort(self.scope, kind="stable")

    @cached_property
    def factor_start(self) -> Ints:
        return frozen(prefix_sums(np.bincount(self.scope, minlength=self.n_variables)))

    @cached_property
    def factor_of(self) -> Ints:
        return frozen(np.repeat(np.arange(self.n_factors), np.diff(self.scope_start))[self._by_variable])

    def _factors_at(self, positions: Ints) -> tuple[Ints, Ints]:
        """Return the numbers of the factors that contain each of some variables, as CSR arrays."""
        start, slot = rows_at(self.factor_start, positions)
        return start, self.factor_of[slot]

    def _scopes_of(self, factors: Ints) -> tuple[Ints, Ints]:
        """Return the positions of the variables of each of some factors, as CSR arrays."""
        start, members = rows_at(self.scope_start, factors)
        return start, self.scope[members]

    def degrees_at(self, positions: Ints) -> Ints:
        start, factors = self._factors_at(positions)
        others = prefix_sums(self.scope_start[factors + 1] - self.scope_start[factors] - 1)
        return others[start[1:]] - others[start[:-1]]

    def neighbors_at(self, positions: Ints) -> Ints:
        return self._scopes_of(np.unique(self._factors_at(positions)[1]))[1]


class FactorTables(ScopedForm):
    """The most general internal form of a model: a log-table for each factor.

    The table of factor k is table[table_start[k] : table_start[k + 1]], in C order over the variables
    scope[scope_start[k] : scope_start[k + 1]], of which `stride` has the strides; `factor_stride` has the stride of
    each variable in each of its factors, in the order of `factor_of`.

    Parameters
    ----------
    cardinalities : array of int, each at least 2
    scope_start, scope : arrays of int
        Distinct positions in each scope.
    table_start, table : array of int, array of log-potentials
    """

    family = FactorGraph
    sizes: Ints
    stored_as = "FactorGraph"
    stored_arrays: ClassVar = {"cardinalities": WHOLE, "arity": WHOLE, "scope": WHOLE, "tables": FLOAT}

    def __init__(self, cardinalities: Ints, scope_start: Ints, scope: Ints, table_start: Ints, table: Floats) -> None:
        check.log_potential(table, "factors")
        self._set(cardinalities, scope_start, scope, table_start, table)

    def _set(self, cardinalities: Ints, *arrays: Array) -> None:
        """Set the arrays without checking the potentials."""
        self.n_variables = require_variables(len(cardinalities), "cardinalities")
        self.sizes = frozen(cardinalities)
        self.scope_start, self.scope, self.table_start, self.table = (frozen(array) for array in arrays)

    @cached_property
    def stride(self) -> Ints:
        """Return the strides of each factor's table in C order, one for each variable of its scope."""
        sizes, start = self.sizes[self.scope], self.scope_start
        strides, arity = np.ones(len(sizes), dtype=np.int64), np.diff(start)
        for back in range(1, int(arity.max(initial=1))):
            wide = start[1:][arity > back] - 1 - back
            strides[wide] = strides[wide + 1] * sizes[wide + 1]
        return frozen(strides)

    @cached_property
    def factor_stride(self) -> Ints:
        return frozen(self.stride[self._by_variable])

    @classmethod
    def from_blocks(cls, cardinalities: Ints, blocks: list[tuple[Array, Floats]]) -> FactorTables:
        """Make tables from blocks of F valid factors of equal shape: scopes (F, arity) and flat tables (F, size)."""

        def join(which: int, dtype: Any) -> tuple[Ints, Array]:
            parts = [block[which] for block in blocks]
            widths = np.array([part.shape[1] for part in parts], dtype=np.int64)
            start = prefix_sums(np.repeat(widths, [len(part) for part in parts]))
            flat = [part.ravel() for part in parts]
            return start, np.concatenate([*flat, np.empty(0, dtype=dtype)], dtype=dtype, casting="unsafe")

        form = cls.__new__(cls)
        form._set(cardinalities, *join(0, np.int64), *join(1, np.float64))
        return form

    @property
    def counts(self) -> dict[str, int]:
        return {"factors": self.n_factors}

    def factor(self, k: int) -> tuple[tuple[int, ...], Floats]:
        """Return the scope and the log-table of factor `k`."""
        scope = self.scope_of(k)
        table = self.table[self.table_start[k] : self.table_start[k + 1]]
        return tuple(scope.tolist()), table.reshape(self.sizes[scope])

    def of_arity(self, arity: int) -> tuple[Ints, Floats]:
        """Return the factors of this many variables, if all variables have equally many states.

        The arrays are the scopes, one in each row, and the flat log-tables, one in each row.
        """
        factors = np.flatnonzero(np.diff(self.scope_start) == arity)[:, None]
        scopes = self.scope[self.scope_start[factors] + np.arange(arity)]
        entries = int(self.cardinalities[0]) ** arity
        if not len(factors):  # entries may be more than fit in memory
            return scopes, np.empty((0, entries))
        return scopes, self.table[self.table_start[factors] + np.arange(entries)]

    def factors_of(self, i: int) -> list[tuple[tuple[int, ...], Floats]]:
        return [self.factor(k) for k in self.factor_of[self.factor_start[i] : self.factor_start[i + 1]].tolist()]

    @cached_property
    def has_zeros(self) -> bool:
        return bool(np.isneginf(self.table).any())

    @cached_property
    def extremes(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest finite entry of each factor; 0 for a factor without finite entries."""
        return finite_extremes(self.table, self.table_start)

    def favourites(self, positions: Ints) -> Ints:
        digits = np.zeros(len(positions), dtype=np.int64)
        for place, i in enumerate(positions.tolist()):
            total = np.zeros(int(self.sizes[i]))
            for scope, table in self.factors_of(i):
                if len(scope) == 1:
                    total = total + table
            digits[place] = total.argmax()
        return digits

    def tables(self) -> FactorTables:
        return self

    def log_density(self, states: Ints) -> Floats:
        if not self.n_factors:
            return np.zeros(len(states))
        cell = np.zeros((len(states), len(self.scope) + 1), dtype=np.int64)
        np.multiply(states[:, self.scope], self.stride, out=cell[:, 1:])
        np.cumsum(cell, axis=1, out=cell)
        offset = cell[:, self.scope_start[1:]] - cell[:, self.scope_start[:-1]]
        return self.table[self.table_start[:-1] + offset].sum(axis=1)

    def log_weights(self, i: int, states: Ints) -> Floats:
        total = np.zeros((*states.shape[:-1], int(self.sizes[i])))
        for scope, table in self.factors_of(i):
            axis = scope.index(i)
            others = tuple(states[..., v] for v in scope if v != i)
            total += np.moveaxis(table, axis, -1)[others]
        return total

    def condition(self, fixed: Bools, state: Ints) -> FactorTables:
        [rest] = self.cut(~fixed, np.where(fixed, state, 0)[None])
        before, after = np.diff(self.scope_start), np.diff(rest.scope_start)
        cut = np.flatnonzero(after < before)
        if len(cut):
            start, cells = rows_at(rest.table_start, cut)
            tops = np.maximum.reduceat(rest.table[cells], start[:-1])
            if (forbidden := np.isneginf(tops)).any():
                k = int(cut[np.argmax(forbidden)])
                seen = self.scope_of(k)
                raise ImpossibleEvidence(seen[fixed[seen]][0], f"a combination that factor {k} forbids")
        kept = np.flatnonzero((after > 0) | (before == 0))
        return rest._take(np.arange(rest.n_variables), kept).off_by(self.error)  # nothing is rounded

    def cut(self, free: Bools, states: Ints) -> list[FactorTables]:
        """Return, for each row of states, all factors as tables over the free variables; nothing is rounded.

        The other variables are fixed as in the row, where free variables have state 0.
        """
        is_free, some = free[self.scope], np.diff(self.scope_start) > 0
        sizes = np.ones(self.n_factors, dtype=np.int64)
        lengths = np.where(is_free, self.sizes[self.scope], 1)
        sizes[some] = np.multiply.reduceat(lengths, self.scope_start[:-1][some]) if some.any() else 1
        start, entries = frozen(prefix_sums(sizes)), np.empty(int(sizes.sum()), dtype=np.int64)
        shape = (self.sizes, self.scope_start, self.scope, self.table_start, frozen(free))
        scope_start = frozen(prefix_sums(is_free)[self.scope_start])
        rest = frozen(self.sizes[free]), scope_start, frozen((np.cumsum(free) - 1)[self.scope[is_free]]), start
        forms = []
        for state in states:
            code_for(cut_tables, 16 * len(entries))(*shape, state, start, entries)
            form = FactorTables.__new__(FactorTables)
            form._set(*rest, self.table[entries])
            forms.append(form)
        return forms

    def touching(self, inside: Ints) -> tuple[Ints, FactorTables]:
        chosen = np.unique(self._factors_at(inside)[1])
        chosen = chosen[np.lexsort((np.diff(self.table_start)[chosen], np.diff(self.scope_start)[chosen]))]
        own = distinct(np.concatenate([inside, self._scopes_of(chosen)[1]]), self.n_variables)
        return own, self._take(own, chosen)

    def restrict(self, variables: Bools) -> FactorTables:
        members = np.append(variables[self.scope], True)[self.scope_start[:-1]]
        return self._select(variables, members | (np.diff(self.scope_start) == 0))

    def sum_out(self, wanted: Bools) -> tuple[FactorTables, Bools]:
        rest = sum_out(self, wanted)
        return self._select(rest.variables, rest.factors).off_by(rest.error), rest.variables

    def sum_out_barren(self) -> tuple[FactorTables | None, float, float]:
        """Sum out barren variables: those in one factor only, whose sum does not depend on other variables.

        Return the remaining tables, the logarithm of the product of the sums, and a bound on its error.
        """
        rest = sum_out(self, np.zeros(self.n_variables, dtype=bool))
        terms = [log_sum(self.factor(k)[1], axis) for k, axis in rest.sums]
        # Variables that are in no factor any more go with as many terms as they have states.
        alone = ~rest.variables
        alone[[self.factor(k)[0][axis] for k, axis in rest.sums]] = False
        terms += np.log(self.sizes[alone]).tolist()
        if not rest.variables.any():
            terms += [float(self.factor(k)[1]) for k in np.flatnonzero(rest.factors).tolist()]
        left = self._select(rest.variables, rest.factors) if rest.variables.any() else None
        return left, math.fsum(terms), self.error + rest.error

    def sum_variation(self, k: int, axis: int) -> float:
        """Bound how much the sum of factor `k` over an axis varies with its other variables; see `derived.sum_out`."""
        if (k, axis) not in self._variations:
            self._variations[k, axis] = sum_variation(self.factor(k)[1], axis)
        return self._variations[k, axis]

    @cached_property
    def _variations(self) -> dict[tuple[int, int], float]:
        return {}

    def _select(self, variables: Bools, factors: Bools) -> FactorTables:
        """Return the model restricted to some variables and to factors that contain no other variables."""
        return self._take(np.flatnonzero(variables), np.flatnonzero(factors)).off_by(self.error)

    def _take(self, inside: Ints, factors: Ints) -> FactorTables:
        """Return the model restricted to the variables at positions `inside` (increasing) and to some factors."""
        scope_start, members = self._scopes_of(factors)
        table_start, cells = rows_at(self.table_start, factors)
        sizes = np.asarray(self.sizes[inside])
        return FactorTables(sizes, scope_start, own_numbers(inside, members), table_start, self.table[cells])

    def part(self, inside: Ints, inner: Bools) -> FactorTables:
        # Only the factors of inner variables are listed: an outer variable may have very many.
        return self._take(inside, np.unique(self._factors_at(inside[inner])[1]))

    def to_arrays(self) -> dict[str, Array]:
        shape = {"arity": np.diff(self.scope_start), "scope": self.scope, "cardinalities": self.sizes}
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


def finite_extremes(table: Floats, start: Ints) -> tuple[Floats, Any]:
    """Return the smallest and the largest finite entry of each table; 0 for a table without finite entries."""
    if len(start) == 1:
        return np.zeros(0), np.zeros(0)
    forbidden = np.isneginf(table)
    least = np.minimum.reduceat(np.where(forbidden, np.inf, table), start[:-1])
    largest = np.maximum.reduceat(table, start[:-1])
    none = np.isneginf(largest)
    return np.where(none, 0.0, least), np.where(none, 0.0, largest)


def adjacency(scope_start: Ints, scope: Ints, n: int) -> tuple[Array, Array]:
    """Return the neighbours of each variable, which share a scope with it: CSR row starts and sorted columns."""
    ones = np.ones(len(scope), dtype=np.int32)
    member = sparse.csr_array((ones, scope, scope_start), shape=(len(scope_start) - 1, n))
    shared = sparse.coo_array(member.T @ member)
    apart = shared.coords[0] != shared.coords[1]
    i, j = shared.coords[0][apart], shared.coords[1][apart]
    graph = sparse.csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
    graph.sort_indices()
    index = np.int32 if max(n, graph.nnz) < 2**31 else np.int64
    return frozen(graph.indptr.astype(index)), frozen(graph.indices.astype(index))
