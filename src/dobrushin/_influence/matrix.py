"""The class `Influence`: an upper bound on the Dobrushin influence matrix."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import linalg

from dobrushin._influence.rows import THEOREMS, Rows
from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Floats, Ints, frozen, prefix_sums
from dobrushin._shared.call import public, watch
from dobrushin._shared.text import card, counted
from dobrushin.errors import ArgumentError

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
