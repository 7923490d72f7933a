"""General pairwise models: a table per edge."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._models.factors import FactorGraph
from dobrushin._models.model import Model
from dobrushin._models.potts import allowed_evidence
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError


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

    _first_argument = "unaries"

    def __init__(self, unaries: Any, edges: ArrayLike, tables: Any, labels: Sequence[Hashable] | None = None) -> None:
        rows = [check.real_array(row, "PairwiseMRF", "unaries") for row in unaries]
        for i, row in enumerate(rows):
            if row.ndim != 1 or len(row) < 2:
                raise ArgumentError(
                    "PairwiseMRF", "unaries", "one array of at least 2 log-potentials per variable",
                    got=f"shape {row.shape}", where=f"index {i}",
                )  # fmt: skip
            if not check.is_log_potential(row).all() or np.isneginf(row).all():
                requirement = check.LOG_POTENTIAL + ", and not -inf for every state"
                raise ArgumentError("PairwiseMRF", "unaries", requirement, row, f"index {i}")
        sizes = np.array([len(row) for row in rows], dtype=np.int64)
        pairs = _read_edges(edges, len(rows))
        flat = _read_tables(tables, pairs, sizes)
        self._build(sizes, np.concatenate([*rows, np.empty(0)]), pairs, flat, labels)

    def _build(
        self,
        sizes: NDArray[np.int64],
        unaries: NDArray[np.float64],
        pairs: NDArray[np.int64],
        flat: NDArray[np.float64],
        labels: Sequence[Hashable] | None,
    ) -> None:
        n = len(sizes)
        super().__init__(n, labels)
        self._cardinalities = frozen(sizes)
        self._unary_start = frozen(np.concatenate([[0], np.cumsum(sizes)]))
        self._unary = frozen(unaries)
        self._edges = frozen(pairs)
        self._table = frozen(flat)
        area = sizes[pairs[:, 0]] * sizes[pairs[:, 1]]
        self._table_start = frozen(np.concatenate([[0], np.cumsum(area)]).astype(np.int64))
        # Both directions of every edge, sorted by (variable, neighbour). The entry of variable a-state x and
        # neighbour b-state y is table[start + x * own_stride + y * other_stride].
        i = np.concatenate([pairs[:, 0], pairs[:, 1]])
        j = np.concatenate([pairs[:, 1], pairs[:, 0]])
        edge = np.tile(np.arange(len(pairs)), 2)
        width = sizes[pairs[:, 1]]
        one = np.ones(len(pairs), dtype=np.int64)
        order = np.lexsort((j, i))
        index = np.int32 if max(n, len(i)) < 2**31 else np.int64
        self._start = frozen(np.concatenate([[0], np.cumsum(np.bincount(i, minlength=n))]).astype(index))
        self._neighbor = frozen(j[order].astype(index))
        self._edge_of = frozen(edge[order])
        self._own_stride = frozen(np.concatenate([width, one])[order])
        self._other_stride = frozen(np.concatenate([one, width])[order])

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        return self._cardinalities

    @property
    def edges(self) -> NDArray[np.int64]:
        """Positions of the ends of the edges, shape (E, 2)."""
        return self._edges

    def unary(self, i: int) -> NDArray[np.float64]:
        """Log-potentials of the variable at position `i`."""
        self._check_position(i, "unary")
        return self._unary[self._unary_start[i] : self._unary_start[i + 1]]

    def table(self, e: int) -> NDArray[np.float64]:
        """Log-table of edge `e`: rows for its first end, columns for its second."""
        if not 0 <= e < len(self._edges):
            raise ArgumentError("PairwiseMRF.table", "e", f"from 0 to {len(self._edges) - 1}", e)
        flat = self._table[self._table_start[e] : self._table_start[e + 1]]
        return flat.reshape(self._cardinalities[self._edges[e]])

    @property
    def _adjacency(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._start, self._neighbor

    @property
    def _numbers_per_state(self) -> int:
        return 2 * len(self._edges) + 2 * self.n_variables

    def _log_density_rows(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        first, second = self._edges[:, 0], self._edges[:, 1]
        cell = self._table_start[:-1] + states[:, first] * self._cardinalities[second] + states[:, second]
        return self._unary[self._unary_start[:-1] + states].sum(axis=1) + self._table[cell].sum(axis=1)

    def _log_weights(self, i: int, states: NDArray[np.int64]) -> NDArray[np.float64]:
        span = slice(self._start[i], self._start[i + 1])
        base = self._table_start[self._edge_of[span]] + states[..., self._neighbor[span]] * self._other_stride[span]
        own = np.arange(self._cardinalities[i])
        return self.unary(i) + self._table[base[..., None] + self._own_stride[span][:, None] * own].sum(axis=-2)

    def _condition(self, fixed: NDArray[np.bool_], state: NDArray[np.int64]) -> PairwiseMRF:
        kept, known = np.flatnonzero(~fixed), np.flatnonzero(fixed)
        allowed_evidence(self._unary[self._unary_start[known] + state[known]], known, self._labels, "PairwiseMRF")
        ends = fixed[self._edges]
        for e in np.flatnonzero(ends.all(axis=1)).tolist():
            a, b = self._edges[e]
            allowed_evidence(self.table(e)[state[a], state[b]][None], self._edges[e], self._labels, "PairwiseMRF")
        unaries: NDArray[np.float64] = self._unary.copy()
        for e in np.flatnonzero(ends[:, 0] != ends[:, 1]).tolist():
            a, b = self._edges[e]
            if fixed[a]:
                unaries[self._unary_start[b] : self._unary_start[b + 1]] += self.table(e)[state[a]]
            else:
                unaries[self._unary_start[a] : self._unary_start[a + 1]] += self.table(e)[:, state[b]]
        free = np.flatnonzero(~ends.any(axis=1)).tolist()
        renumber = np.cumsum(~fixed) - 1
        rows = [unaries[self._unary_start[i] : self._unary_start[i + 1]] for i in kept]
        for i, row in zip(kept, rows, strict=True):
            if np.isneginf(row).all():
                allowed_evidence(np.array([-np.inf]), np.array([i]), self._labels, "PairwiseMRF")
        return PairwiseMRF(rows, renumber[self._edges[free]], [self.table(e) for e in free], self._labels_at(kept))

    def to_factor_graph(self) -> FactorGraph:
        """The same distribution as a `FactorGraph`."""
        n, edges = self.n_variables, len(self._edges)
        model = FactorGraph.__new__(FactorGraph)
        model._build(
            self._cardinalities,
            np.concatenate([np.arange(n), n + 2 * np.arange(edges + 1)]),
            np.concatenate([np.arange(n), self._edges.ravel()]),
            np.concatenate([self._unary_start[:-1], self._unary_start[-1] + self._table_start]),
            np.concatenate([self._unary, self._table]),
            self._labels,
        )
        return model

    def __repr__(self) -> str:
        return f"PairwiseMRF(n_variables={self.n_variables}, edges={len(self._edges)})"


def _read_edges(edges: ArrayLike, n: int) -> NDArray[np.int64]:
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ArgumentError("PairwiseMRF", "edges", "an array of positions of shape (E, 2)", edges)
    pairs = pairs.astype(np.int64)
    check.all_entries((pairs >= 0) & (pairs < n), pairs, "PairwiseMRF", "edges", f"positions from 0 to {n - 1}")
    if (loop := pairs[:, 0] == pairs[:, 1]).any():
        k = int(np.argmax(loop))
        raise ArgumentError(
            "PairwiseMRF", "edges", "between distinct variables", tuple(pairs[k].tolist()), f"index {k}"
        )
    key = pairs.min(axis=1) * n + pairs.max(axis=1)
    _, index, counts = np.unique(key, return_index=True, return_counts=True)
    if (counts > 1).any():
        k = int(index[counts > 1][0])
        raise ArgumentError("PairwiseMRF", "edges", "distinct unordered pairs", tuple(pairs[k].tolist()), f"index {k}")
    return pairs


def _read_tables(tables: Any, pairs: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    shapes = sizes[pairs]
    if isinstance(tables, np.ndarray) and tables.dtype != object and tables.ndim == 2:
        tables = np.broadcast_to(tables, (len(pairs), *tables.shape))
    if isinstance(tables, np.ndarray) and tables.dtype != object and tables.ndim == 3 and len(tables) == len(pairs):
        flat = check.real_array(tables, "PairwiseMRF", "tables").reshape(len(pairs), -1)
        wrong = (shapes != tables.shape[1:]).any(axis=1)
        got = np.broadcast_to(tables.shape[1:], shapes.shape)
        parts = list(flat[:0])
    else:
        parts = [check.real_array(table, "PairwiseMRF", "tables") for table in tables]
        if len(parts) != len(pairs):
            requirement = f"one table for each of {len(pairs)} edges"
            raise ArgumentError("PairwiseMRF", "tables", requirement, got=f"{len(parts)} tables")
        got = np.array([part.shape if part.ndim == 2 else (-1, -1) for part in parts]).reshape(-1, 2)
        wrong = (shapes != got).any(axis=1)
        flat = None
    if wrong.any():
        k = int(np.argmax(wrong))
        requirement = f"of shape {tuple(shapes[k].tolist())} for edge {tuple(pairs[k].tolist())}"
        raise ArgumentError(
            "PairwiseMRF", "tables", requirement, got=f"shape {tuple(got[k].tolist())}", where=f"index {k}"
        )
    joined = np.concatenate([*(part.ravel() for part in parts), np.empty(0)]) if flat is None else flat.ravel()
    if (bad := ~check.is_log_potential(joined)).any():
        k = int(np.argmax(bad))
        e = int(np.searchsorted(np.cumsum(shapes.prod(axis=1)), k, side="right"))
        raise ArgumentError("PairwiseMRF", "tables", check.LOG_POTENTIAL, joined[k], f"index {e}")
    return joined.astype(np.float64)
