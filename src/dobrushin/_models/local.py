"""Models that are never in memory as a whole: what is near some variables is made when it is asked for.

A ball around some variables is an ordinary model. Its inner variables, whose neighbours are all in the ball, have the
conditional laws that they have in the whole model. So whatever updates inner variables only (a scan, its certificate,
its chains, its sets of states) is the same in the ball as in the whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin import _validate as check
from dobrushin._models.base import Model
from dobrushin._models.ising import Ising
from dobrushin._models.potts import Potts
from dobrushin.errors import ArgumentError


class Ball(NamedTuple):
    """An ordinary model of the variables near some others."""

    model: Model  # labelled by positions in the whole
    inner: NDArray[np.bool_]  # which of its variables have all their neighbours in it


class Rows(NamedTuple):
    """Neighbours of some variables, CSR, and what couples them."""

    start: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]


class LocalModel(ABC):
    """An Ising or Potts model of any size, of which only what is near the targets is ever made.

    Made by `Ising.grid` and `Potts.grid` with functions or memory-mapped arrays, and by `open_model`. It can be given
    to `estimate`, `plan`, `shortest_scan`, `coalescence` and `estimate_many`, always with targets. Variables
    are named by their positions 0..n-1.
    """

    n_variables: int
    states: int | None  # None: spins

    @abstractmethod
    def rows(self, positions: NDArray[np.int64]) -> Rows:
        """Neighbours of some variables, by increasing position within each row."""

    @abstractmethod
    def potentials(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Fields of some variables, or their unaries of shape (len, states)."""

    def ball(self, centres: NDArray[np.int64], radius: int) -> Ball:
        """The variables within so many edges of the centres.

        Parameters
        ----------
        centres : array of positions
        radius : int

        Returns
        -------
        Ball
        """
        inside = np.unique(centres)
        inner = frontier = inside
        for _ in range(radius):
            near = np.unique(self.rows(frontier).columns)
            inner, inside = inside, np.union1d(inside, near)
            frontier = np.setdiff1d(inside, inner, assume_unique=True)
            if not len(frontier):
                break
        if not len(frontier):
            inner = inside
        return self._model(inside, np.isin(inside, inner, assume_unique=True))

    def _model(self, inside: NDArray[np.int64], inner: NDArray[np.bool_]) -> Ball:
        found = self.rows(inside)
        row = np.repeat(np.arange(len(inside)), np.diff(found.start))
        place = np.minimum(np.searchsorted(inside, found.columns), len(inside) - 1)
        kept = inside[place] == found.columns
        self._check_values(inside, row[kept], place[kept], found.values[kept])
        entries = (found.values[kept], (row[kept], place[kept]))
        matrix = sparse.csr_array(sparse.coo_array(entries, (len(inside), len(inside))))
        matrix.sort_indices()
        if matrix.nnz < len(entries[0]):
            raise ArgumentError("open_model", "path", "a model that names each neighbour once", "a double entry")
        if abs(matrix - matrix.T).nnz:
            gap = sparse.coo_array(matrix - matrix.T)
            k = int(np.flatnonzero(gap.data)[0])
            i, j = int(inside[gap.coords[0][k]]), int(inside[gap.coords[1][k]])
            raise ArgumentError("open_model", "path", "a model with symmetric couplings", gap.data[k], f"edge {(i, j)}")
        values = check.real_array(self.potentials(inside), "LocalModel", "fields")
        labels = inside.tolist()
        if self.states is None:
            return Ball(Ising._make(matrix, self._checked(values, inside, "fields"), labels), inner)
        return Ball(Potts._make(matrix, self.states, values, labels), inner)

    def _check_values(self, inside: Any, row: Any, place: Any, values: NDArray[np.float64]) -> None:
        bad = ~(np.abs(values) <= check.LARGEST)
        if bad.any():
            k = int(np.argmax(bad))
            edge = (int(inside[row[k]]), int(inside[place[k]]))
            raise ArgumentError("LocalModel", "couplings", check.FINITE, values[k], f"edge {edge}")

    def _checked(self, values: NDArray[np.float64], inside: Any, what: str) -> NDArray[np.float64]:
        bad = ~(np.abs(values) <= check.LARGEST)
        if bad.any():
            k = int(np.argmax(bad))
            raise ArgumentError("LocalModel", what, check.FINITE, values[k], f"variable {inside[k]}")
        return values


class LocalGrid(LocalModel):
    """A grid whose couplings are a number, an array (also memory-mapped) or a function of edge numbers."""

    def __init__(
        self, rows: int, cols: int, couplings: Any, potentials: Any, periodic: bool, states: int | None, function: str
    ) -> None:
        self.shape = (check.count(rows, function, "rows"), check.count(cols, function, "cols"))
        if periodic and min(self.shape) < 3:
            raise ArgumentError(function, "periodic", "False when a side has fewer than 3 sites", self.shape)
        self.periodic, self.states, self._function = bool(periodic), states, function
        self.n_variables = rows * cols
        self._across = rows * (cols if periodic else cols - 1)
        self.n_edges = self._across + (rows if periodic else rows - 1) * cols
        self._couplings = _reader(couplings, self.n_edges, 0, function, "couplings")
        what = "fields" if states is None else "unaries"
        self._potentials = _reader(potentials, self.n_variables, states or 0, function, what)

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        rows, cols = self.shape
        r, c = np.divmod(positions, cols)
        parts = []
        # Edges are numbered as in `Ising.grid`: to the right, row by row; then downwards, row by row.
        width = cols if self.periodic else cols - 1
        for dr, dc in ((-1, 0), (0, -1), (0, 1), (1, 0)):
            nr, nc = r + dr, c + dc
            if self.periodic:
                nr, nc, exists = nr % rows, nc % cols, np.ones(len(r), dtype=np.bool_)
            else:
                exists = (nr >= 0) & (nr < rows) & (nc >= 0) & (nc < cols)
            if dr:
                edge = self._across + np.where(dr < 0, nr, r) * cols + c
            else:
                edge = r * width + np.where(dc < 0, nc, c)
            parts.append((np.flatnonzero(exists), (nr * cols + nc)[exists], edge[exists]))
        owner, columns, edges = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.lexsort((columns, owner))
        start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(positions)))])
        return Rows(start, columns[order], self._couplings(edges[order]))

    def potentials(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._potentials(positions)

    def __repr__(self) -> str:
        what = "spins" if self.states is None else f"{self.states} states"
        return f"LocalGrid({self.shape[0]} x {self.shape[1]}, {what})"


class LocalArrays(LocalModel):
    """A model whose arrays are there, in memory or on disk, and of which only some entries are looked at."""

    def __init__(self, n: int, states: int | None, start: Any, neighbor: Any, coupling: Any, potential: Any) -> None:
        self.n_variables, self.states = n, states
        self._start, self._neighbor, self._coupling, self._potential = start, neighbor, coupling, potential

    @classmethod
    def of(cls, model: Ising | Potts) -> LocalArrays:
        """A model in memory."""
        matrix, n = model.couplings, model.n_variables
        states = None if isinstance(model, Ising) else int(model.cardinalities[0])
        potential = model.fields if isinstance(model, Ising) else model._unaries
        return cls(n, states, matrix.indptr, matrix.indices, matrix.data, potential)

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        first = np.asarray(self._start[positions], dtype=np.int64)
        sizes = np.asarray(self._start[positions + 1], dtype=np.int64) - first
        start = np.concatenate([[0], np.cumsum(sizes)])
        entry = np.arange(start[-1]) + np.repeat(first - start[:-1], sizes)
        columns = np.asarray(self._neighbor[entry], dtype=np.int64)
        return Rows(start, columns, np.asarray(self._coupling[entry], dtype=np.float64))

    def potentials(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._potential is None:
            return np.zeros(len(positions) if self.states is None else (len(positions), self.states))
        return np.asarray(self._potential[positions], dtype=np.float64)


def _reader(
    value: Any, size: int, states: int, function: str, argument: str
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
    """A function from numbers of edges or variables to values."""
    shape = (states,) if states else ()
    if value is None:
        return lambda numbers: np.zeros((len(numbers), *shape))
    if callable(value):

        def call(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
            found = check.real_array(value(numbers), function, argument)
            if found.shape != (len(numbers), *shape):
                requirement = f"a function that returns an array of shape {(len(numbers), *shape)}"
                raise ArgumentError(function, argument, requirement, f"shape {found.shape}")
            return found

        return call
    array = value if isinstance(value, np.ndarray) else check.real_array(value, function, argument)
    if array.ndim == 0:
        number = float(array)
        check.finite(np.array([number]), function, argument)
        return lambda numbers: np.full((len(numbers), *shape), number)
    if array.shape != (size, *shape):
        requirement = f"a number, a function or an array of shape {(size, *shape)}"
        raise ArgumentError(function, argument, requirement, f"shape {array.shape}")
    return lambda numbers: np.asarray(array[numbers], dtype=np.float64)


# Grids with more variables are not made as a whole.
MOST_SITES = 2 * 10**7


def is_local(rows: int, cols: int, couplings: Any, potentials: Any) -> bool:
    """Whether a grid should not be made as a whole."""
    parts = (couplings, potentials)
    return rows * cols > MOST_SITES or any(callable(part) or isinstance(part, np.memmap) for part in parts)
