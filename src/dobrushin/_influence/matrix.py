"""The class `Influence`, an upper bound on the Dobrushin influence matrix; and the rows of a model, kept with it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import linalg

from dobrushin._influence.rows import METHODS, THEOREMS, Rows, RowSource, influence_rows
from dobrushin._models import Model
from dobrushin._models.memory import Slot
from dobrushin._models.near import Numbering
from dobrushin._models.sources import as_model, read_source
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Floats, Ints, frozen, prefix_sums, row_entries
from dobrushin._shared.call import public, watch
from dobrushin._shared.text import card, counted
from dobrushin.errors import ArgumentError
from dobrushin.typing import InfluenceMethod

# Largest number of variables for which eigenvalues and singular values are computed densely.
_DENSE_VARIABLES = 400
# Largest number of variables for which the spectral radius is found to six digits; beyond it, to three, since six would
# take minutes.
_PRECISE_VARIABLES = 10**5


class Influence:
    """An entrywise upper bound on the Dobrushin influence matrix of a model.

    The function `influence` makes it; the constructor takes any matrix that is known to be such a bound.

    Parameters
    ----------
    matrix : array or sparse matrix, shape (n, n)
        Non-negative; entry (i, j) bounds how much variable j can change the conditional law of variable i.
    labels : sequence, optional
        Names of the variables; default 0..n-1.

    Notes
    -----
    matrix[i, j] is at least C_ij, the maximum over states x and y that differ only at j of the total variation between
    the laws of variable i given the rest of x and given the rest of y (paper, "Dobrushin influence matrix").

    Examples
    --------
    >>> import dobrushin as db
    >>> bound = db.Influence([[0, 0.3], [0.2, 0]])
    >>> bound.norm(float("inf")), round(bound.spectral_radius(), 6), bound.satisfies_dobrushin
    (0.3, 0.244949, True)
    """

    _error = 0.0  # error of conditional laws by rounding of the model's parameters: the bound includes it already

    @public()
    def __init__(self, matrix: ArrayLike, labels: Sequence[Hashable] | None = None) -> None:
        array = check.square_matrix(matrix, "matrix")
        if not (n := array.shape[0]):
            raise ArgumentError("matrix", "a square matrix", got="shape (0, 0)")
        check.matrix_entries((array.data >= 0) & (array.data < np.inf), array, "matrix", "non-negative and finite")
        array.eliminate_zeros()
        self._set(array, np.zeros(array.nnz, dtype=np.uint8), np.ones(n), check.read_labels(labels, n), None)

    @classmethod
    def _make(cls, rows: Rows, n: int, labels: Sequence[Hashable], computed: Ints | None) -> Influence:
        start, cap = rows.start, rows.cap
        if computed is not None:
            part = Numbering(n, computed)
            start = prefix_sums(part.spread(np.diff(rows.start), 0))
            cap = part.spread(rows.cap, 1.0)
        index = np.int32 if max(n, len(rows.columns)) < 2**31 else np.int64
        matrix = sparse.csr_array((rows.values, rows.columns.astype(index, copy=False), start.astype(index)), (n, n))
        result = cls.__new__(cls)
        result._set(matrix, rows.theorem, cap, labels, computed)
        return result

    def _set(
        self, matrix: Any, theorem: NDArray[np.uint8], cap: Floats, labels: Sequence[Hashable], computed: Ints | None
    ) -> None:
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.setflags(write=False)
        self._matrix = matrix
        self._theorem = frozen(theorem)
        self._cap = frozen(cap)
        self._labels = labels
        self._computed = computed

    @property
    def matrix(self) -> Any:
        """The bound as a SciPy CSR array of shape (n, n)."""
        return self._matrix

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return int(self._matrix.shape[0])

    @property
    def labels(self) -> Sequence[Hashable]:
        """Names of the variables, by position."""
        return self._labels

    @property
    def caps(self) -> Floats:
        """For each variable, a bound (at most 1) on how much all others together can change its conditional law."""
        return self._cap

    @property
    def computed_rows(self) -> Ints | None:
        """Positions of the variables whose rows were computed; None if all were."""
        return self._computed

    @cached_property
    def _lookup(self) -> dict[Hashable, int] | None:
        return check.lookup_table(self._labels)

    @property
    def theorems(self) -> dict[str, int]:
        """Number of entries of the matrix that each theorem bounds."""
        counts = np.bincount(self._theorem, minlength=len(THEOREMS))
        return {name: int(count) for name, count in zip(THEOREMS, counts, strict=True) if count}

    def theorem(self, i: int, j: int) -> str | None:
        """Return the name of the theorem that bounds entry (i, j); None where there is no influence."""
        span = slice(self._matrix.indptr[i], self._matrix.indptr[i + 1])
        places = np.flatnonzero(self._matrix.indices[span] == j)
        return THEOREMS[self._theorem[span][places[0]]] if len(places) else None

    def rows(self, positions: Ints) -> Rows:
        """Return the rows of the matrix for the variables at these positions, which must be increasing."""
        if self._computed is not None and not (known := np.isin(positions, self._computed)).all():
            label = self._labels[int(positions[int(np.argmin(known))])]
            raise ArgumentError("rows", "None, or include every variable that is updated", label)
        matrix = self._matrix
        rows = Rows(matrix.indptr, matrix.indices, matrix.data, self._theorem, self._cap)
        is_whole = len(positions) == self.n_variables
        return rows._replace(start=matrix.indptr.astype(np.int64)) if is_whole else rows.take(positions)

    # -- norms and spectral radius -----------------------------------------------------------

    @public()
    def norm(self, order: float) -> float:
        """Return a matrix norm: 1 (largest column sum), 2 (spectral) or inf (largest row sum).

        Examples
        --------
        >>> import dobrushin as db
        >>> db.influence(db.Ising.grid(10, 10, couplings=0.2), method="paper").norm(1)
        0.789501...
        """
        self._whole("norm")
        if order == 1:
            return float(self._matrix.sum(axis=0).max())
        if order == np.inf:
            return float(self._matrix.sum(axis=1).max())
        if order != 2:
            raise ArgumentError("order", "1, 2 or inf", order)
        return self._spectral_norm

    @cached_property
    def _spectral_norm(self) -> float:
        if self.n_variables <= _DENSE_VARIABLES:
            return float(np.linalg.norm(self._matrix.toarray(), 2))
        # ||C||_2^2 is the spectral radius of the non-negative matrix C'C.
        transpose = sparse.csr_array(self._matrix.T)
        return float(np.sqrt(_spectral_radius(lambda x: transpose @ (self._matrix @ x), self.n_variables)))

    def spectral_radius(self) -> float:
        """Return the largest absolute eigenvalue. If it is below 1, the variation of systematic scans tends to 0.

        The result has six correct digits, or about three for more than 100,000 variables. Certificates do not use it.
        """
        self._whole("spectral_radius")
        return self._radius

    @cached_property
    def _radius(self) -> float:
        if self.n_variables <= _DENSE_VARIABLES:
            return float(np.abs(np.linalg.eigvals(self._matrix.toarray())).max())
        return _spectral_radius(lambda x: self._matrix @ x, self.n_variables)

    @property
    def satisfies_dobrushin(self) -> bool:
        """Return whether Dobrushin's condition holds: some matrix norm, and so the spectral radius, is below 1."""
        self._whole("satisfies_dobrushin")
        return self.norm(np.inf) < 1 or self.norm(1) < 1 or self.spectral_radius() < 1

    def _whole(self, method: str) -> None:
        if self._computed is not None:
            raise ArgumentError("rows", f"None for Influence.{method}", got=f"{len(self._computed)} rows")

    def _repr_html_(self) -> str:
        facts = [(name, f"{count:,} entries") for name, count in self.theorems.items()]
        if self._computed is None:
            norms = f"rows {self.norm(np.inf):.4g}, columns {self.norm(1):.4g}"
            facts.append(("norms", f"{norms}, spectral radius {self.spectral_radius():.4g}"))
            facts.append(("Dobrushin's condition", "holds" if self.satisfies_dobrushin else "fails"))
        return card(f"Influence of {counted(self.n_variables, 'variable')}", facts)

    def __repr__(self) -> str:
        sources = ", ".join(f"{count} by {name}" for name, count in self.theorems.items())
        partial = "" if self._computed is None else f", rows={len(self._computed)}"
        return f"Influence(n_variables={self.n_variables}, entries: {sources or 'none'}{partial})"


def _spectral_radius(apply: Any, n: int) -> float:
    """Return the spectral radius of a non-negative matrix, given as a function that multiplies by the matrix."""
    operator = linalg.LinearOperator((n, n), matvec=apply, dtype=np.float64)
    # The error of the eigenvalue is about the square of the residual.
    residual = 1e-6 if n <= _PRECISE_VARIABLES else 1e-3
    options = {"which": "LR", "v0": np.ones(n), "tol": residual, "return_eigenvectors": False}
    with watch(None, "looking for the spectral radius"):
        try:
            return float(abs(linalg.eigs(operator, k=1, **options)[0]))
        except linalg.ArpackError:
            # Power iteration on I + C, which has no other eigenvalue of the same size; the quotient is an upper bound.
            x = np.ones(n)
            for _ in range(1000):
                y = x + apply(x)
                x = y / y.max()
            return float((apply(x) / x).max())


# -- the rows of a model, kept with it; and the public function --------------------------------------------------------


class KnownInfluence:
    """The influence rows of a model, each computed once and on demand.

    Rows that evidence does not change are taken from `before`, the rows of the model before conditioning; `kept` has
    the positions of the remaining variables there.
    """

    def __init__(self, model: Model, before: KnownInfluence | None = None, kept: Ints | None = None) -> None:
        self.model = model
        self.n_variables = model.n_variables
        self.labels: Sequence[Hashable] = model.labels
        self._lookup = model._lookup
        self._before = before
        self._kept = None if before is None or kept is None else Numbering(before.n_variables, kept)
        self._lock = RLock()
        self._begin = np.zeros(
            self.n_variables, dtype=np.int64
        )  # 1 + index of the row's first entry; 0 if the row is not known
        self._size = np.zeros(self.n_variables, dtype=np.int32)
        self._cap = np.zeros(self.n_variables)
        self._entries = 0
        self._all: Rows | None = None  # all rows, once all have been requested
        index = np.int32 if self.n_variables < 2**31 else np.int64
        self._parts: list[Array] = [
            np.zeros(64, dtype) for dtype in (index, np.float64, np.uint8)
        ]  # columns, values, theorem, as in `Rows`

    @property
    def _error(self) -> float:
        """Bound on the error of each conditional law by rounding of the model's parameters."""
        return self.model._error

    def rows(self, positions: Ints) -> Rows:
        """Return the influence rows of the variables at these positions, which must be increasing."""
        with self._lock:
            if len(positions) == self.n_variables and self._all is None:
                self._all = influence_rows(self.model, positions, "best")
            if self._all is not None:
                return self._all if len(positions) == self.n_variables else self._all.take(positions)
            missing = positions[self._begin[positions] == 0]
            if len(missing):
                self._inherit(missing)
                rest = missing[self._begin[missing] == 0]
                if len(rest):
                    computed = influence_rows(self.model, rest, "best")
                    self._store(rest, computed)
                    if len(rest) == len(positions):
                        return computed
            start, entry = row_entries(self._begin[positions] - 1, self._size[positions].astype(np.int64))
            columns, values, theorem = (frozen(part[entry]) for part in self._parts)
            return Rows(frozen(start), columns, values, theorem, frozen(self._cap[positions]))

    @property
    def links(self) -> tuple[Array, Array] | None:
        """Neighbours of all variables in CSR format, or None.

        They are given for models of spins only, whose rows are so cheap that more of them may be computed than are
        needed.
        """
        form = self.model._form
        return form.adjacency if form.is_indexed and form.spins else None

    def _store(self, positions: Ints, rows: Rows) -> None:
        total = self._entries + len(rows.columns)
        for k, part in enumerate((rows.columns, rows.values, rows.theorem)):
            if total > len(self._parts[k]):
                self._parts[k] = np.resize(self._parts[k], 2 * total)
            self._parts[k][self._entries : total] = part
        self._size[positions] = np.diff(rows.start)
        self._cap[positions] = rows.cap
        first = 1 + self._entries + rows.start[:-1]
        self._entries = total
        self._begin[positions] = first  # set last: after an interruption before this line the rows count as unknown

    def _inherit(self, positions: Ints) -> None:
        """Copy the rows of variables without neighbours in the evidence from the model before conditioning."""
        if self._before is None or self._kept is None:
            return
        old = self._kept.positions[positions]
        start, before = self.model._form.adjacency[0], self._before.model._form.adjacency[0]
        same = (start[positions + 1] - start[positions]) == (before[old + 1] - before[old])
        same &= (self._before._begin[old] > 0) | (self._before._all is not None)
        if same.any():
            rows = self._before.rows(old[same])
            columns = self._kept.own(rows.columns).astype(self._parts[0].dtype)
            self._store(positions[same], rows._replace(columns=columns))

    @cached_property
    def whole(self) -> Influence:
        return Influence._make(self.rows(np.arange(self.n_variables)), self.n_variables, self.labels, None)


_KNOWN: Slot[KnownInfluence] = Slot("influence")


def known_influence(model: Model, before: KnownInfluence | None = None, kept: Ints | None = None) -> KnownInfluence:
    """Return the influence rows of a model; they are kept by the model, so that each row is computed once.

    If the model was made by conditioning another one, `before` has the rows of that model, and `kept` has the positions
    there of the remaining variables.
    """
    return model._memory.get(_KNOWN, lambda: KnownInfluence(model, before, kept))


def row_source(influence: Any) -> RowSource:
    """Return the source of influence rows: an `Influence` itself; for a model, its rows, computed on demand."""
    if isinstance(influence, RowSource):
        return influence
    return known_influence(as_model(influence, "model", "a model or an Influence"))


@public("bounding the influence", read=read_source)
def influence(
    model: Model,
    method: InfluenceMethod = "best",
    rows: Iterable[Hashable] | None = None,
    *,
    progress: bool | None = None,
) -> Influence:
    """Bound how much each variable of a model can change the conditional law of each other one.

    Parameters
    ----------
    model : Model
    method : {"best", "paper", "exact"}
        "paper": Theorem 4 for pairwise models, 5 for Ising models, 6 for spins of higher order (for factor
        graphs, which the paper does not treat, the range of the factors). "best": the smallest of these bounds, of
        sharper closed forms, and of enumerations of small neighbourhoods; never above "paper" but for rounding.
        "exact": the true influence, rounded up, by enumerating neighbourhoods; `BudgetError` if one is too large.
    rows : labels, optional
        Variables on which the influence is bounded; default all. Scans may then update only these.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    Influence

    Notes
    -----
    Where Theorem 4 or the range of the factors would take minutes because tables are large, a coarser bound is used, at
    most twice as large; `Influence.theorems` names it.
    All bounds have the form sinh(D/2) / (cosh h + cosh(D/2)), where D is the range over which variable j can change the
    log-odds, and h the least absolute log-odds that the other neighbours can leave; they are rounded up. If states are
    forbidden (-inf), all configurations of the neighbours are considered, allowed or not.

    Examples
    --------
    >>> import dobrushin as db
    >>> torus = db.Ising.grid(40, 40, couplings=0.26, periodic=True)
    >>> db.influence(torus, method="paper").satisfies_dobrushin, db.influence(torus).satisfies_dobrushin
    (False, True)
    >>> db.influence(torus)
    Influence(n_variables=1600, entries: 6400 by Theorem 5, exact)
    """
    model = as_model(model)
    if not model._is_whole:
        raise ArgumentError("model", "a model in memory; a LocalModel is never in memory as a whole", model)
    check.choice(method, METHODS, "method")
    if rows is None:
        computed = None
    else:
        computed = np.sort(check.positions(rows, model.labels, model._lookup, "rows"))
    bounds = influence_rows(model, np.arange(model.n_variables) if computed is None else computed, method)
    if model._error:  # rounding of parameters moves each conditional law by at most this, and two laws are compared
        values, cap = (
            frozen(np.minimum((part + 2.0 * model._error) * (1.0 + 2.0**-50), 1.0))
            for part in (bounds.values, bounds.cap)
        )
        bounds = bounds._replace(values=values, cap=cap)
    return Influence._make(bounds, model.n_variables, model.labels, computed)
