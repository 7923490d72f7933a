"""General pairwise models, with a log-table for each edge."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import (
    FLOAT,
    WHOLE,
    CheckedArrays,
    DivisibleForm,
    own_numbers,
    require_finite_sums,
    require_possible,
    require_variables,
    sizes_of,
    sums_of,
)
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Bools, Floats, Ints, distinct, frozen, prefix_sums, rows_at
from dobrushin._shared.call import public
from dobrushin._shared.text import counted
from dobrushin.errors import ArgumentError
from dobrushin.typing import NamesOfStates


class PairwiseMRF(Model):
    """Pairwise Markov random field with a log-table on each edge.

    Parameters
    ----------
    unaries : array of shape (n, k) or sequence of n arrays
        Log-potentials of the single variables; their lengths are the cardinalities. -inf forbids a state.
    edges : array of shape (E, 2)
        Positions of the two ends, each unordered pair at most once.
    tables : array of shape (E, k, k), sequence of E arrays, or one (k, k) array for all edges
        ``tables[e][a, b]`` is the log-potential of state a at ``edges[e][0]`` and b at ``edges[e][1]``.
    labels : sequence, optional
        Names of the variables; default 0..n-1.
    state_names : tuple, dict or list, optional
        Names of the states; see `Model`.

    Notes
    -----
    pi(x) ∝ exp( sum_i unary_i(x_i) + sum over edges table_ij(x_i, x_j) ).

    Examples
    --------
    Hard-core lattice gas of fugacity 0.5 on a path: no two neighbours are occupied.

    >>> import dobrushin as db, numpy as np
    >>> repel = np.array([[0.0, 0.0], [0.0, -np.inf]])
    >>> gas = db.PairwiseMRF(np.tile([0.0, np.log(0.5)], (4, 1)), [(0, 1), (1, 2), (2, 3)], repel)
    >>> gas.conditional(1, [[0, 0, 0, 1], [1, 0, 0, 0]]).round(4)
    array([[0.6667, 0.3333],
           [1.    , 0.    ]])
    """

    _form: PairTables

    @public()
    def __init__(
        self,
        unaries: Iterable[ArrayLike],
        edges: ArrayLike,
        tables: Iterable[ArrayLike],
        labels: Sequence[Hashable] | None = None,
        *,
        state_names: NamesOfStates = None,
    ) -> None:
        rows = [check.real_array(row, "unaries") for row in unaries]
        for i, row in enumerate(rows):
            if row.ndim != 1 or len(row) < 2:
                raise ArgumentError(
                    "unaries", "one array of at least 2 log-potentials per variable",
                    got=f"shape {row.shape}", where=f"index {i}",
                )  # fmt: skip
            if not check.is_log_potential(row).all() or np.isneginf(row).all():
                requirement = check.LOG_POTENTIAL + ", and not -inf for every state"
                raise ArgumentError("unaries", requirement, row, f"index {i}")
        sizes = np.array([len(row) for row in rows], dtype=np.int64)
        pairs = _read_edges(edges, len(rows))
        flat = _read_tables(tables, pairs, sizes)
        form = PairTables(sizes, np.concatenate([*rows, np.empty(0)]), pairs, flat)
        super().__init__(form, labels, state_names)

    @property
    def edges(self) -> list[tuple[Hashable, Hashable]]:
        """Return the pairs of labels that have a table, in the order of the tables."""
        return [(self._labels[i], self._labels[j]) for i, j in self._form.edges.tolist()]

    @public()
    def unary(self, i: int) -> Floats:
        """Return the log-potentials of the variable at position `i`."""
        self._check_position(i)
        return self._form.unary_of(i)

    @public()
    def table(self, e: int) -> Floats:
        """Return the log-table of edge `e`: rows for its first end, columns for its second."""
        if not 0 <= e < len(self._form.edges):
            raise ArgumentError("e", f"from 0 to {len(self._form.edges) - 1}", e)
        return self._form.table_of(e)


class PairTables(DivisibleForm):
    """Internal form of pairwise models: log-potentials of single variables and a log-table for each edge.

    The unary of variable i is unary[unary_start[i] : unary_start[i + 1]], the table of edge e is
    table[table_start[e] : table_start[e + 1]] in C order. Both directions of every edge are sorted by variable and
    neighbour, CSR: `start` and `neighbor`. State x of the variable and y of the neighbour of entry k have the potential
    table[table_start[edge_of[k]] + x * own_stride[k] + y * other_stride[k]].

    Parameters
    ----------
    cardinalities : array of int, each at least 2
    unary : array of log-potentials
    edges : array of int, shape (E, 2)
        Each unordered pair at most once.
    table : array of log-potentials
    """

    family = PairwiseMRF
    sizes: Ints
    stored_as = "PairwiseMRF"
    stored_arrays: ClassVar = {"cardinalities": WHOLE, "unaries": FLOAT, "i": WHOLE, "j": WHOLE, "tables": FLOAT}

    def __init__(self, cardinalities: Ints, unary: Floats, edges: Ints, table: Floats) -> None:
        self.n_variables = n = require_variables(len(cardinalities), "unaries")
        self.sizes, self.edges = frozen(cardinalities), frozen(edges)
        self.unary_start = frozen(prefix_sums(cardinalities))
        self.unary = frozen(check.log_potential(unary, "unaries"))
        self.table_start = frozen(prefix_sums(cardinalities[edges].prod(axis=1)))
        self.table = frozen(check.log_potential(table, "tables"))
        i, j = np.concatenate([edges[:, 0], edges[:, 1]]), np.concatenate([edges[:, 1], edges[:, 0]])
        edge = np.tile(np.arange(len(edges)), 2)
        width, one = cardinalities[edges[:, 1]], np.ones(len(edges), dtype=np.int64)
        order = np.lexsort((j, i))
        index = np.int32 if max(n, len(i)) < 2**31 else np.int64
        self.start = frozen(prefix_sums(np.bincount(i, minlength=n)).astype(index))
        self.neighbor = frozen(j[order].astype(index))
        self.edge_of = frozen(edge[order])
        self.own_stride = frozen(np.concatenate([width, one])[order])
        self.other_stride = frozen(np.concatenate([one, width])[order])

    @property
    def adjacency(self) -> tuple[Array, Array]:
        return self.start, self.neighbor

    @property
    def counts(self) -> dict[str, int]:
        return {"edges": len(self.edges)}

    def unary_of(self, i: int) -> Floats:
        return self.unary[self.unary_start[i] : self.unary_start[i + 1]]

    def table_of(self, e: int) -> Floats:
        flat = self.table[self.table_start[e] : self.table_start[e + 1]]
        return flat.reshape(self.sizes[self.edges[e]])

    @cached_property
    def has_zeros(self) -> bool:
        return bool(np.isneginf(self.table).any() or np.isneginf(self.unary).any())

    def favourites(self, positions: Ints) -> Ints:
        return np.array([self.unary_of(i).argmax() for i in positions.tolist()], dtype=np.int64)

    def tables(self) -> FactorTables:
        return self._tables

    @cached_property
    def _tables(self) -> FactorTables:
        n, edges = self.n_variables, len(self.edges)
        return FactorTables(
            self.sizes,
            np.concatenate([np.arange(n), n + 2 * np.arange(edges + 1)]),
            np.concatenate([np.arange(n), self.edges.ravel()]),
            np.concatenate([self.unary_start[:-1], self.unary_start[-1] + self.table_start]),
            np.concatenate([self.unary, self.table]),
        ).off_by(self.error)

    @property
    def numbers_per_state(self) -> int:
        return 2 * len(self.edges) + 2 * self.n_variables

    def log_density(self, states: Ints) -> Floats:
        first, second = self.edges[:, 0], self.edges[:, 1]
        cell = self.table_start[:-1] + states[:, first] * self.sizes[second] + states[:, second]
        return self.unary[self.unary_start[:-1] + states].sum(axis=1) + self.table[cell].sum(axis=1)

    def log_weights(self, i: int, states: Ints) -> Floats:
        span = slice(self.start[i], self.start[i + 1])
        base = self.table_start[self.edge_of[span]] + states[..., self.neighbor[span]] * self.other_stride[span]
        own = np.arange(self.sizes[i])
        return self.unary_of(i) + self.table[base[..., None] + self.own_stride[span][:, None] * own].sum(axis=-2)

    def condition(self, fixed: Bools, state: Ints) -> PairTables:
        kept, known = np.flatnonzero(~fixed), np.flatnonzero(fixed)
        require_possible(self.unary[self.unary_start[known] + state[known]], known)
        ends = fixed[self.edges]
        for e in np.flatnonzero(ends.all(axis=1)).tolist():
            a, b = self.edges[e]
            require_possible(self.table_of(e)[state[a], state[b]][None], self.edges[e])
        unary: Floats = self.unary.copy()
        for e in np.flatnonzero(ends[:, 0] != ends[:, 1]).tolist():
            a, b = self.edges[e]
            if fixed[a]:
                unary[self.unary_start[b] : self.unary_start[b + 1]] += self.table_of(e)[state[a]]
            else:
                unary[self.unary_start[a] : self.unary_start[a + 1]] += self.table_of(e)[:, state[b]]
        require_finite_sums(unary[rows_at(self.unary_start, kept)[1]], np.repeat(kept, self.sizes[kept]))
        require_possible(np.maximum.reduceat(unary, self.unary_start[:-1])[kept], kept)
        near = self._around(fixed)
        unaries, tables = np.flatnonzero(near), np.flatnonzero(near[self.edges].any(axis=1))
        largest = sizes_of(self.unary, self.unary_start)[unaries], sizes_of(self.table, self.table_start)[tables]
        error = sums_of(np.concatenate(largest))
        free = np.flatnonzero(~ends.any(axis=1))
        return self._take(kept, free, unary).off_by(self.error + error)

    def part(self, inside: Ints, inner: Bools) -> PairTables:
        return self._take(
            inside, distinct(self.edge_of[self._entries_at(inside[inner])[1]], len(self.edges)), self.unary
        )

    def _take(self, inside: Ints, edges: Ints, unary: Floats) -> PairTables:
        """Return the model of the variables at positions `inside`, with some edges between them and these unaries."""
        own, cells = rows_at(self.unary_start, inside)[1], rows_at(self.table_start, edges)[1]
        return PairTables(self.sizes[inside], unary[own], own_numbers(inside, self.edges[edges]), self.table[cells])

    def to_arrays(self) -> dict[str, Array]:
        i, j = self.edges.T
        unaries = {"cardinalities": self.sizes, "unaries": self.unary}
        return {**unaries, "i": i, "j": j, "tables": self.table}

    @classmethod
    def from_arrays(cls, arrays: CheckedArrays) -> PairTables:
        sizes = arrays.cardinalities()
        unaries, n = arrays.logs("unaries", sizes), len(sizes)
        best = np.maximum.reduceat(unaries, np.cumsum(sizes) - sizes)
        arrays.require(best > -np.inf, "a state of each variable that is allowed", best)
        arrays.require(len(arrays["i"]) == len(arrays["j"]), "arrays i and j of equal length", "different lengths")
        pairs = np.stack([arrays["i"], arrays["j"]], axis=1)
        arrays.require(((pairs >= 0) & (pairs < n)).all(axis=1), f"positions from 0 to {n - 1}", pairs)
        arrays.require(pairs[:, 0] != pairs[:, 1], "edges between different variables", pairs)
        order = np.lexsort((pairs.max(axis=1), pairs.min(axis=1)))
        ends = np.sort(pairs, axis=1)[order]
        if (twice := (np.diff(ends, axis=0) == 0).all(axis=1)).any():
            raise arrays.error("each edge once", f"{tuple(ends[1:][twice][0].tolist())} twice")
        areas = sizes[pairs].astype(np.float64).prod(axis=1)
        return cls(sizes, unaries, pairs, arrays.logs("tables", areas))


def _read_edges(edges: ArrayLike, n: int) -> Ints:
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ArgumentError("edges", "an array of positions of shape (E, 2)", edges)
    pairs = pairs.astype(np.int64)
    check.all_entries((pairs >= 0) & (pairs < n), pairs, "edges", f"positions from 0 to {n - 1}")
    if (loop := pairs[:, 0] == pairs[:, 1]).any():
        k = int(np.argmax(loop))
        raise ArgumentError("edges", "between distinct variables", tuple(pairs[k].tolist()), f"index {k}")
    key = pairs.min(axis=1) * n + pairs.max(axis=1)
    _, index, counts = np.unique(key, return_index=True, return_counts=True)
    if (counts > 1).any():
        k = int(index[counts > 1][0])
        raise ArgumentError("edges", "distinct unordered pairs", tuple(pairs[k].tolist()), f"index {k}")
    return pairs


def _read_tables(tables: Any, pairs: Ints, sizes: Ints) -> Floats:
    """Return the log-tables of all edges as one flat array; a single given table is used for all edges."""
    shapes, is_array = sizes[pairs], isinstance(tables, np.ndarray) and tables.dtype != object
    if is_array and tables.ndim == 2:
        tables = np.broadcast_to(tables, (len(pairs), *tables.shape))
    if is_array and tables.ndim == 3 and len(tables) == len(pairs):
        parts, got = [check.real_array(tables, "tables")], np.broadcast_to(tables.shape[1:], shapes.shape)
    else:
        parts = [check.real_array(table, "tables") for table in tables]
        if len(parts) != len(pairs):
            requirement = f"one table for each of {counted(len(pairs), 'edge')}"
            raise ArgumentError("tables", requirement, got=counted(len(parts), "table"))
        got = np.array([part.shape if part.ndim == 2 else (-1, -1) for part in parts]).reshape(-1, 2)
    if (wrong := (shapes != got).any(axis=1)).any():
        k = int(np.argmax(wrong))
        requirement = f"of shape {tuple(shapes[k].tolist())} for edge {tuple(pairs[k].tolist())}"
        raise ArgumentError("tables", requirement, got=f"shape {tuple(got[k].tolist())}", where=f"index {k}")
    joined = np.concatenate([*(part.ravel() for part in parts), np.empty(0)])
    if (bad := ~check.is_log_potential(joined)).any():
        k = int(np.argmax(bad))
        e = int(np.searchsorted(np.cumsum(shapes.prod(axis=1)), k, side="right"))
        raise ArgumentError("tables", check.LOG_POTENTIAL, joined[k], f"index {e}")
    return joined
