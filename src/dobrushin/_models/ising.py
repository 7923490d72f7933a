"""Ising models: binary variables with pairwise couplings and fields."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike

from dobrushin._models.couplings import (
    couplings_of_part,
    is_graph,
    read_fields,
    read_pairs,
    restrict_couplings,
)
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import (
    FLOAT,
    UNIT,
    WHOLE,
    CheckedArrays,
    DivisibleForm,
    Form,
    PartSource,
    require_finite_sums,
    require_variables,
)
from dobrushin._models.model import Model
from dobrushin._models.spins import SpinForm, SpinTerms
from dobrushin._shared.arrays import Array, Bools, Floats, Ints, distinct, is_among
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError
from dobrushin.typing import Couplings, Graph, GridCouplings, GridPotentials, NamesOfStates, PerVariable

if TYPE_CHECKING:
    from dobrushin._models.local import LocalModel


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
    state_names : tuple, dict or list, optional
        Names of the states -1 and +1, in this order; see `Model`.

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

    _form: SpinPairs

    @public()
    def __init__(
        self, couplings: Couplings, fields: PerVariable | None = None, *, state_names: NamesOfStates = None
    ) -> None:
        read = read_pairs(couplings, fields, "fields", "field", 0.0)
        super().__init__(SpinPairs(read.couplings, read.potentials).off_by(read.error), read.labels, state_names)

    @classmethod
    @public()
    def from_networkx(
        cls, graph: Graph, coupling: str = "weight", field: str = "field", *, state_names: NamesOfStates = None
    ) -> Ising:
        """Make an Ising model from a networkx graph whose attributes have other names.

        Examples
        --------
        >>> import dobrushin as db, networkx as nx
        >>> graph = nx.path_graph(["x", "y", "z"])
        >>> nx.set_edge_attributes(graph, 0.5, "J")
        >>> db.Ising.from_networkx(graph, coupling="J").labels
        ('x', 'y', 'z')
        """
        if not is_graph(graph):
            raise ArgumentError("graph", "a networkx graph", graph)
        read = read_pairs(graph, None, "fields", field, 0.0, coupling)
        form = SpinPairs(read.couplings, read.potentials).off_by(read.error)
        return cls._from_form(form, read.labels, state_names)

    @overload
    @classmethod
    def grid(
        cls,
        rows: int,
        cols: int,
        couplings: ArrayLike | tuple[ArrayLike, ArrayLike] = 0.0,
        fields: ArrayLike | None = None,
        periodic: bool = False,
        *,
        state_names: NamesOfStates = None,
    ) -> Ising: ...

    @overload
    @classmethod
    def grid(
        cls,
        rows: int,
        cols: int,
        couplings: GridCouplings = 0.0,
        fields: GridPotentials = None,
        periodic: bool = False,
        *,
        state_names: NamesOfStates = None,
    ) -> LocalModel: ...

    @classmethod
    @public()
    def grid(
        cls,
        rows: int,
        cols: int,
        couplings: GridCouplings = 0.0,
        fields: GridPotentials = None,
        periodic: bool = False,
        *,
        state_names: NamesOfStates = None,
    ) -> Ising | LocalModel:
        """Make the Ising model of a rectangular lattice, with sites in row-major order.

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
        state_names : tuple, dict or list, optional
            As for `Ising`; of a `LocalModel`, a tuple for all variables.

        Returns
        -------
        Ising or LocalModel
            A `LocalModel`, which is lazy, if a function or a memory-mapped array is given or the grid has more than 20
            million sites.

        Examples
        --------
        >>> import dobrushin as db
        >>> torus = db.Ising.grid(40, 40, couplings=0.25, periodic=True)
        >>> torus.neighbors(0)
        array([   1,   39,   40, 1560])
        """
        from dobrushin._models.local import GridPairs

        return GridPairs(rows, cols, couplings, fields, periodic, None).model(cls, state_names)

    @property
    def couplings(self) -> Any:
        """Return the symmetric CSR matrix of the couplings theta_ij."""
        return self._form.couplings

    @property
    def fields(self) -> Floats:
        """Return the fields theta_i."""
        return self._form.fields


class CoupledForm(DivisibleForm):
    """Base class of internal forms in which each edge has one number, its coupling.

    Parameters
    ----------
    couplings : CSR matrix
        Symmetric, with an empty diagonal and sorted columns (see `symmetric`).
    """

    is_indexed = True
    first_radius = 8

    def __init__(self, couplings: Any) -> None:
        self.n_variables = require_variables(couplings.shape[0], "couplings")
        self.couplings = couplings

    @property
    def adjacency(self) -> tuple[Array, Array]:
        return self.couplings.indptr, self.couplings.indices

    def pairs(self) -> tuple[Array, Array, Floats]:
        """Return both ends of each coupled pair, the smaller position first, and the couplings."""
        matrix = self.couplings
        first = np.repeat(np.arange(self.n_variables, dtype=matrix.indices.dtype), np.diff(matrix.indptr))
        upper = first < matrix.indices
        return first[upper], matrix.indices[upper], matrix.data[upper]

    def _pairs_at(self, inside: Ints) -> tuple[Ints, Floats]:
        """Return the edges that touch any of some variables, in the order of `pairs`, and their couplings."""
        start, entry = self._entries_at(inside)
        owner, other = np.repeat(inside, np.diff(start)), self.couplings.indices[entry]
        once = (owner < other) | ~is_among(other, inside)
        first, second = np.minimum(owner, other)[once], np.maximum(owner, other)[once]
        order = np.lexsort((second, first))
        return np.stack([first[order], second[order]], axis=1), self.couplings.data[entry[once][order]]

    @abstractmethod
    def _blocks(self, positions: Ints, ends: Ints, strengths: Floats) -> list[tuple[Ints, Floats]]:
        """Return factors for these variables and edges, in blocks of equal shape: scopes and log-tables."""

    def tables(self) -> FactorTables:
        i, j, strengths = self.pairs()
        blocks = self._blocks(np.arange(self.n_variables), np.stack([i, j], axis=1), strengths)
        return FactorTables.from_blocks(self.cardinalities, blocks).off_by(self.error)

    def touching(self, inside: Ints) -> tuple[Ints, FactorTables]:
        ends, strengths = self._pairs_at(inside)
        own = distinct(np.concatenate([inside, ends.ravel()]), self.n_variables)
        blocks = [(np.searchsorted(own, scopes), tables) for scopes, tables in self._blocks(inside, ends, strengths)]
        return own, FactorTables.from_blocks(self.cardinalities[own], blocks)

    @abstractmethod
    def _replace(self, couplings: Any, kept: Ints) -> Form:
        """Return the model of the variables `kept` with other couplings and unchanged fields or unaries."""

    def parts(self) -> PartSource:
        return self

    def part(self, inside: Ints, inner: Bools) -> Form:
        start, entry = self._entries_at(inside[inner])
        row = np.repeat(np.flatnonzero(inner), np.diff(start))
        column = np.searchsorted(inside, self.couplings.indices[entry])
        return self._replace(couplings_of_part(row, column, self.couplings.data[entry], inner), inside)

    def restrict(self, variables: Bools) -> Form:
        rest = self._replace(restrict_couplings(self.couplings, variables), np.flatnonzero(variables))
        return rest.off_by(self.error)


class SpinPairs(CoupledForm, SpinForm):
    """Internal form of Ising models: spins with pairwise couplings and fields."""

    family = Ising
    stored_as = "Ising"
    stored_arrays: ClassVar = {"i": WHOLE, "j": WHOLE, "couplings": FLOAT, "fields": FLOAT}

    def __init__(self, couplings: Any, fields: Any = None) -> None:
        super().__init__(couplings)
        self.fields = read_fields(fields, self.n_variables)

    @property
    def counts(self) -> dict[str, int]:
        return {"edges": self.couplings.nnz // 2}

    def wider(self) -> SpinTerms:
        i, j, strengths = self.pairs()
        scope = np.stack([i, j], axis=1).astype(np.int64).ravel()
        return SpinTerms(2 * np.arange(len(strengths) + 1), scope, strengths, self.fields).off_by(self.error)

    def _blocks(self, positions: Ints, ends: Ints, strengths: Floats) -> list[tuple[Ints, Floats]]:
        pairs = ends, np.stack([strengths, -strengths, -strengths, strengths], axis=1)
        return [self.field_tables(positions), pairs]

    def log_density(self, states: Ints) -> Floats:
        x = states.astype(np.float64)
        return np.einsum("sn,sn->s", x, 0.5 * (x @ self.couplings) + self.fields)

    def log_weights(self, i: int, states: Ints) -> Floats:
        span = slice(self.couplings.indptr[i], self.couplings.indptr[i + 1])
        neighbors, strengths = self.couplings.indices[span], self.couplings.data[span]
        local_field = self.fields[i] + states[..., neighbors] @ strengths
        return np.stack([-local_field, local_field], axis=-1)

    def condition(self, fixed: Bools, state: Ints) -> SpinPairs:
        kept = np.flatnonzero(~fixed)
        fields = self.fields[kept] + (self.couplings @ state.astype(np.float64))[kept]
        require_finite_sums(fields, kept)
        # A sum of a field and k - 1 couplings is off by at most k units of the sum of their sizes.
        _, entry = self._entries_at(np.flatnonzero(fixed))
        near, place, counts = np.unique(self.couplings.indices[entry], return_inverse=True, return_counts=True)
        sizes = np.bincount(place, weights=np.abs(self.couplings.data[entry]), minlength=len(near))
        error = self.error + float(2.0 * UNIT * ((counts + 2) * (sizes + np.abs(self.fields[near]))).sum())
        return SpinPairs(restrict_couplings(self.couplings, ~fixed), fields).off_by(error)

    def _replace(self, couplings: Any, kept: Ints) -> SpinPairs:
        return SpinPairs(couplings, self.fields[kept])

    def to_arrays(self) -> dict[str, Array]:
        return dict(zip(self.stored_arrays, (*self.pairs(), self.fields), strict=True))

    @classmethod
    def from_arrays(cls, arrays: CheckedArrays) -> SpinPairs:
        fields = arrays.finite("fields")
        arrays.require_variables(len(fields))
        return cls(arrays.couplings(len(fields)), fields)
