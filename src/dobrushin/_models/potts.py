"""Potts models: neighbours like to agree, or to differ."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._models.couplings import is_graph, per_label, read_couplings, read_node_attribute
from dobrushin._models.factors import FactorGraph
from dobrushin._models.grids import grid_couplings
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError


class Potts(Model):
    """Potts model: each edge rewards equal states.

    Parameters
    ----------
    couplings : array, sparse matrix, dict or networkx graph
        As for `Ising`; strengths are finite (for hard constraints use `PairwiseMRF`).
    states : int
        Number of states of each variable.
    unaries : array of shape (n, states) or dict, optional
        Log-potential of each state of each variable; -inf forbids a state. From a graph the node
        attribute ``unary`` is taken.

    Notes
    -----
    pi(x) ∝ exp( sum over edges s_ij 1{x_i = x_j} + sum_i unary_i(x_i) ).

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Potts({(0, 1): 0.5, (1, 2): 0.5}, states=3)
    >>> model.conditional(1, [0, 1, 0]).round(4)
    array([0.5761, 0.2119, 0.2119])
    """

    def __init__(self, couplings: Any, states: int, unaries: Any = None) -> None:
        read = read_couplings(couplings, "Potts", unaries)
        if unaries is None and is_graph(couplings):
            zero = [0.0] * check.count(states, "Potts", "states", 2)
            unaries = read_node_attribute(couplings, "unary", zero)
        self._build(read.matrix, states, unaries, read.labels)

    @classmethod
    def grid(
        cls, rows: int, cols: int, states: int, couplings: Any = 0.0, unaries: Any = None, periodic: bool = False
    ) -> Potts:
        """A rectangular lattice, sites in row-major order.

        Parameters
        ----------
        rows, cols, states : int
        couplings : number, array, pair of arrays or function
            As for `Ising.grid`.
        unaries : array of shape (rows, cols, states), or function of variable numbers, optional
        periodic : bool

        Returns
        -------
        Potts
            Or a `LocalModel`, as for `Ising.grid`.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Potts.grid(20, 31, states=9, couplings=0.48)
        Potts(n_variables=620, states=9, edges=1189)
        """
        from dobrushin._models.local import LocalGrid, is_local

        if is_local(rows, cols, couplings, unaries):
            count = check.count(states, "Potts.grid", "states", 2)
            return LocalGrid(rows, cols, couplings, unaries, periodic, count, "Potts.grid")  # type: ignore[return-value]
        matrix = grid_couplings(rows, cols, couplings, periodic, "Potts.grid")
        if unaries is not None:
            array = check.real_array(unaries, "Potts.grid", "unaries")
            if array.shape != (rows, cols, states):
                requirement = f"an array of shape {(rows, cols, states)}"
                raise ArgumentError("Potts.grid", "unaries", requirement, got=f"shape {array.shape}")
            unaries = array.reshape(rows * cols, states)
        return cls._make(matrix, states, unaries, None)

    @classmethod
    def _make(cls, matrix: Any, states: int, unaries: Any, labels: Sequence[Hashable] | None) -> Potts:
        model = cls.__new__(cls)
        model._build(matrix, states, unaries, labels)
        return model

    def _build(self, matrix: Any, states: int, unaries: Any, labels: Sequence[Hashable] | None) -> None:
        self._states = check.count(states, "Potts", "states", 2)
        n = matrix.shape[0]
        super().__init__(n, labels)
        if isinstance(unaries, Mapping):
            unaries = per_label(unaries, self._labels, [0.0] * states, "Potts", "unaries")
        self._couplings = matrix
        self._unaries: NDArray[np.float64] | None = None
        if unaries is not None:
            array = check.log_potential(check.real_array(unaries, "Potts", "unaries"), "Potts", "unaries")
            if array.shape != (n, states):
                raise ArgumentError("Potts", "unaries", f"an array of shape {(n, states)}", got=f"shape {array.shape}")
            none = np.flatnonzero(np.isneginf(array).all(axis=1))
            if len(none):
                requirement = "above -inf for some state of each variable"
                raise ArgumentError("Potts", "unaries", requirement, array[none[0]], f"index {none[0]}")
            self._unaries = frozen(array.copy())

    @property
    def couplings(self) -> Any:
        """Symmetric CSR matrix of the strengths s_ij."""
        return self._couplings

    @property
    def unaries(self) -> NDArray[np.float64]:
        """Log-potentials of the single variables, shape (n, states)."""
        return np.zeros((self.n_variables, self._states)) if self._unaries is None else self._unaries

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        return np.full(self.n_variables, self._states, dtype=np.int64)

    @property
    def _adjacency(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._couplings.indptr, self._couplings.indices

    @property
    def _numbers_per_state(self) -> int:
        return 3 * self.n_variables

    def _log_density_rows(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        total = np.zeros(len(states))
        for a in range(self._states):
            here = (states == a).astype(np.float64)
            total += 0.5 * np.einsum("sn,sn->s", here, here @ self._couplings)
        if self._unaries is not None:
            total += self._unaries[np.arange(self.n_variables), states].sum(axis=-1)
        return total

    def _log_weights(self, i: int, states: NDArray[np.int64]) -> NDArray[np.float64]:
        span = slice(self._couplings.indptr[i], self._couplings.indptr[i + 1])
        neighbors, strengths = self._couplings.indices[span], self._couplings.data[span]
        agree = states[..., neighbors, None] == np.arange(self._states)
        return self.unaries[i] + np.einsum("...ma,m->...a", agree, strengths)

    def _condition(self, fixed: NDArray[np.bool_], state: NDArray[np.int64]) -> Potts:
        kept, known = np.flatnonzero(~fixed), np.flatnonzero(fixed)
        allowed_evidence(self.unaries[known, state[known]], known, self._labels, "Potts")
        rows = self._couplings[kept]
        one_hot = np.zeros((self.n_variables, self._states))
        one_hot[known, state[known]] = 1.0
        unaries = self.unaries[kept] + rows @ one_hot
        return Potts._make(sparse.csr_array(rows[:, kept]), self._states, unaries, self._labels_at(kept))

    def to_factor_graph(self) -> FactorGraph:
        """The same distribution as a `FactorGraph`."""
        upper = sparse.coo_array(sparse.triu(self._couplings, k=1))
        pairs = upper.data[:, None] * np.eye(self._states).ravel()
        blocks = [(np.stack(upper.coords, axis=1), pairs)]
        if self._unaries is not None:
            blocks.insert(0, (np.arange(self.n_variables)[:, None], self._unaries))
        return FactorGraph._from_blocks(self.cardinalities, blocks, self._labels)

    def __repr__(self) -> str:
        return f"Potts(n_variables={self.n_variables}, states={self._states}, edges={self._couplings.nnz // 2})"


def allowed_evidence(
    values: NDArray[np.float64], positions: NDArray[Any], labels: Sequence[Hashable], family: str
) -> None:
    """Fail if the log-potential of an observed state is -inf."""
    if (bad := np.isneginf(values)).any():
        label = labels[int(positions[int(np.argmax(bad))])]
        raise ArgumentError(
            f"{family}.condition", "evidence", "possible", got="a forbidden state", where=f"label {label!r}"
        )
