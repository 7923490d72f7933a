"""Binary pairwise models."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._models.couplings import is_graph, per_label, read_couplings, read_node_attribute
from dobrushin._models.factors import FactorGraph
from dobrushin._models.grids import grid_couplings, site_values
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError


class Ising(Model):
    """Ising model: spins -1/+1 with pair couplings and fields.

    Parameters
    ----------
    couplings : array, sparse matrix, dict or networkx graph
        A symmetric matrix theta with zero diagonal; or a dict from pairs of labels to strengths, each
        unordered pair once (whole-number labels are positions); or a graph with the edge attribute
        ``weight`` and the node attribute ``field`` (0 where missing).
    fields : number, array or dict, optional
        One number per variable. Default 0 (or the graph's).

    Notes
    -----
    pi(x) ∝ exp( sum over unordered pairs theta_ij x_i x_j + sum_i theta_i x_i ), so that
    P(x_i = +1 | rest) = sigma(2 theta_i + 2 sum_k theta_ik x_k).

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising({("a", "b"): 0.3, ("b", "c"): -0.2}, fields={"a": 1.0})
    >>> model
    Ising(n_variables=3, edges=2)
    >>> model.conditional(model.index("c"), [1, -1, 1]).round(4)
    array([0.4013, 0.5987])
    >>> round(float(model.log_density([1, 1, 1])), 6)
    1.1
    """

    _spins = True

    def __init__(self, couplings: Any, fields: Any = None) -> None:
        read = read_couplings(couplings, "Ising", fields)
        if fields is None and is_graph(couplings):
            fields = read_node_attribute(couplings, "field", 0.0)
        self._build(read.matrix, fields, read.labels)

    @classmethod
    def from_networkx(cls, graph: Any, coupling: str = "weight", field: str = "field") -> Ising:
        """Build from a networkx graph whose attributes have other names.

        Examples
        --------
        >>> import dobrushin as db, networkx as nx
        >>> graph = nx.path_graph(["x", "y", "z"])
        >>> nx.set_edge_attributes(graph, 0.5, "J")
        >>> db.Ising.from_networkx(graph, coupling="J").labels
        ('x', 'y', 'z')
        """
        if not is_graph(graph):
            raise ArgumentError("Ising.from_networkx", "graph", "a networkx graph", graph)
        read = read_couplings(graph, "Ising.from_networkx", weight=coupling)
        return cls._make(read.matrix, read_node_attribute(graph, field, 0.0), read.labels)

    @classmethod
    def grid(cls, rows: int, cols: int, couplings: Any = 0.0, fields: Any = None, periodic: bool = False) -> Ising:
        """A rectangular lattice, sites in row-major order.

        Parameters
        ----------
        rows, cols : int
        couplings : number, array, pair of arrays or function
            A number; or one number per edge, edges to the right neighbours first, row by row, then edges
            to the neighbours below, row by row; or the pair ``(right, down)`` of such arrays, of shapes
            (rows, cols - 1) and (rows - 1, cols), both (rows, cols) when periodic; or a function from an array of
            edge numbers, in that order, to couplings.
        fields : number, array of shape (rows, cols), or function of variable numbers, optional
        periodic : bool
            Join opposite sides (a torus).

        Returns
        -------
        Ising
            With a function, a memory-mapped array, or more than 20 million sites: a `LocalModel`, of which
            only what is near the targets is ever made.

        Examples
        --------
        >>> import dobrushin as db
        >>> torus = db.Ising.grid(40, 40, couplings=0.25, periodic=True)
        >>> torus.neighbors(0)
        array([   1,   39,   40, 1560])
        """
        from dobrushin._models.local import LocalGrid, is_local

        if is_local(rows, cols, couplings, fields):
            return LocalGrid(rows, cols, couplings, fields, periodic, None, "Ising.grid")  # type: ignore[return-value]
        matrix = grid_couplings(rows, cols, couplings, periodic, "Ising.grid")
        values = None if fields is None else site_values(fields, rows, cols, "Ising.grid", "fields")
        return cls._make(matrix, values, None)

    @classmethod
    def _make(cls, matrix: Any, fields: Any, labels: Sequence[Hashable] | None) -> Ising:
        model = cls.__new__(cls)
        model._build(matrix, fields, labels)
        return model

    def _build(self, matrix: Any, fields: Any, labels: Sequence[Hashable] | None) -> None:
        n = matrix.shape[0]
        super().__init__(n, labels)
        if isinstance(fields, Mapping):
            fields = per_label(fields, self._labels, 0.0, "Ising", "fields")
        array = check.real_array(0.0 if fields is None else fields, "Ising", "fields")
        if array.ndim and array.shape != (n,):
            raise ArgumentError("Ising", "fields", f"a number or an array of shape {(n,)}", got=f"shape {array.shape}")
        self._couplings = matrix
        self._fields = frozen(np.broadcast_to(check.finite(array, "Ising", "fields"), (n,)).copy())

    @property
    def couplings(self) -> Any:
        """Symmetric CSR matrix of the couplings theta_ij."""
        return self._couplings

    @property
    def fields(self) -> NDArray[np.float64]:
        """Fields theta_i."""
        return self._fields

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        return np.full(self.n_variables, 2, dtype=np.int64)

    @property
    def _adjacency(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._couplings.indptr, self._couplings.indices

    @property
    def _numbers_per_state(self) -> int:
        return 2 * self.n_variables

    def _log_density_rows(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        x = states.astype(np.float64)
        return np.einsum("sn,sn->s", x, 0.5 * (x @ self._couplings) + self._fields)

    def _log_weights(self, i: int, states: NDArray[np.int64]) -> NDArray[np.float64]:
        span = slice(self._couplings.indptr[i], self._couplings.indptr[i + 1])
        neighbors, strengths = self._couplings.indices[span], self._couplings.data[span]
        local_field = self._fields[i] + states[..., neighbors] @ strengths
        return np.stack([-local_field, local_field], axis=-1)

    def _condition(self, fixed: NDArray[np.bool_], state: NDArray[np.int64]) -> Ising:
        kept = np.flatnonzero(~fixed)
        rows = self._couplings[kept]
        fields = self._fields[kept] + rows @ state.astype(np.float64)
        return Ising._make(sparse.csr_array(rows[:, kept]), fields, self._labels_at(kept))

    def to_factor_graph(self) -> FactorGraph:
        """The same distribution as a `FactorGraph`, where -1/+1 become 0/1."""
        upper = sparse.coo_array(sparse.triu(self._couplings, k=1))
        biased = np.flatnonzero(self._fields)
        pairs = np.stack([upper.data, -upper.data, -upper.data, upper.data], axis=1)
        unaries = np.stack([-self._fields[biased], self._fields[biased]], axis=1)
        return FactorGraph._from_blocks(
            self.cardinalities, [(biased[:, None], unaries), (np.stack(upper.coords, axis=1), pairs)], self._labels
        )

    def __repr__(self) -> str:
        return f"Ising(n_variables={self.n_variables}, edges={self._couplings.nnz // 2})"
