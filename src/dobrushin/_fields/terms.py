"""The internal form of Gaussian fields, and the reading of users' arguments for them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._fields.likelihood import TERMS, Term, per_variable, require_all
from dobrushin._models.couplings import is_graph
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import FLOAT, WHOLE, CheckedArrays, Form
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import UNIT, frozen
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin._fields.model import GaussianField

# Blocks up to this size are factorised to see whether they are positive definite.
_DENSE_VARIABLES = 500
# The square of a width must not underflow.
_NARROWEST = 1e-100
# Quotients by a precision must not overflow.
LEAST_PRECISION = 1e-100
# Entries with a smaller relative difference were probably meant to be equal; the message then says so.
_ROUNDED_SHARE = 1e-9
_DEFINITE = "positive definite on the variables that are not bounded"
SMALLEST = 2.0**-1074  # the smallest positive float, which bounds the error of products that underflow


@dataclass(eq=False)
class FieldTerms(Form):
    """Internal form of a Gaussian field: a log-density of quadratic and convex terms, on a box.

    pi(x) ∝ exp( -sum_i phi_i(x_i) - sum over unordered pairs Q_ij x_i x_j )

    phi_i(x) = diagonal_i x^2 / 2 - linear_i x + sum_k amounts_ki g_k(x), where likelihoods contribute the functions g_k
    (`TERMS`). x_i is in the interval from lower_i to upper_i or, for variables on a finite set, one of the given
    values; the amounts of these variables are 0.

    Parameters
    ----------
    couplings : CSR matrix
        Q: symmetric, with an empty diagonal and sorted columns.
    diagonal, linear, lower, upper : arrays
        One number for each variable.
    amounts : array, shape (terms, variables)
        One row for each of `TERMS`.
    value_start, values : arrays
        The values of variables on finite sets, in increasing order: those of variable i are
        values[value_start[i] : value_start[i + 1]], none for a continuous variable.
    linear_error, diagonal_error : arrays, optional
        Bounds on the rounding errors of `linear` and `diagonal`, where these were computed; default zero.
    is_plain : bool
        True restricts all bounds to the simple ones that a proof can state.
    """

    couplings: Any
    diagonal: NDArray[np.float64]
    linear: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    amounts: NDArray[np.float64]
    value_start: NDArray[np.int64]
    values: NDArray[np.float64]
    linear_error: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    diagonal_error: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    is_plain: bool = False

    state_type: ClassVar = np.float64
    stored_as: ClassVar = "GaussianField"
    stored_arrays: ClassVar = {
        "i": WHOLE, "j": WHOLE, "couplings": FLOAT, "diagonal": FLOAT, "linear": FLOAT, "lower": FLOAT, "upper": FLOAT,
        **{term.name: FLOAT for term in TERMS}, "value_start": WHOLE, "values": FLOAT,
    }  # fmt: skip
    optional_arrays: ClassVar = {"linear_error": FLOAT, "diagonal_error": FLOAT}

    def __post_init__(self) -> None:
        self.n_variables = len(self.diagonal)
        for name in self.optional_arrays:
            if not len(vars(self)[name]):
                setattr(self, name, np.zeros(self.n_variables))
        for part in fields(self)[1:-1]:
            setattr(self, part.name, frozen(vars(self)[part.name]))

    # -- the variables ---------------------------------------------------------------------

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        self._refuse("one of discrete variables")

    @property
    def adjacency(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.couplings.indptr, self.couplings.indices

    @property
    def counts(self) -> dict[str, int]:
        counts = {"edges": self.couplings.nnz // 2}
        if finite := int(self.is_finite.sum()):
            counts["finite"] = finite
        if bounded := int((self.is_bounded & ~self.is_finite).sum()):
            counts["bounded"] = bounded
        return counts

    @property
    def has_zeros(self) -> bool:
        return False

    def favourites(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        self._refuse("one of discrete variables")

    @cached_property
    def is_finite(self) -> NDArray[np.bool_]:
        """Return an array that is True for the variables on finite sets of numbers."""
        return frozen(np.diff(self.value_start) > 0)

    def error_of_slopes(self, reach: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the error of the slope of each variable's own energy phi_i where |x_i| <= reach_i, from rounding."""
        return (self.linear_error + self.diagonal_error * reach) * (1.0 + 4 * UNIT)

    @cached_property
    def width(self) -> NDArray[np.float64]:
        """Return the width of each variable's interval, rounded up."""
        return frozen(np.where(self.upper > self.lower, (self.upper - self.lower) * (1 + 2 * UNIT), 0.0))

    @cached_property
    def is_bounded(self) -> NDArray[np.bool_]:
        """Return an array that is True for the variables with two finite limits."""
        return frozen(self.width < np.inf)

    @cached_property
    def is_gaussian(self) -> bool:
        """Return whether the law is Gaussian: no limits, no finite sets, and normal likelihoods only."""
        free = np.isneginf(self.lower).all() and np.isposinf(self.upper).all()
        return bool(free and not self.amounts.any())

    @cached_property
    def curvature(self) -> NDArray[np.float64]:
        """Return a lower bound m_i on the second derivative of each phi_i on its interval.

        The likelihoods contribute their least curvature on the interval.
        """
        least = self.diagonal - self.diagonal_error * (1.0 + 4 * UNIT)
        if self.is_plain:
            return frozen(least)
        with np.errstate(over="ignore", invalid="ignore"):
            more = sum(term.least_curvature(amount, self.lower, self.upper) for term, amount in self.likelihood)
        return frozen(least + more * (1 - 2.0**-40))

    @property
    def likelihood(self) -> list[tuple[Term, NDArray[np.float64]]]:
        """Return the functions that likelihoods add to the energy, each with its amounts for all variables."""
        return list(zip(TERMS, self.amounts, strict=True))

    def values_of(self, i: int) -> NDArray[np.float64]:
        """Return the values of variable i if it is on a finite set; an empty array if it is continuous."""
        return self.values[self.value_start[i] : self.value_start[i + 1]]

    # -- probabilities ---------------------------------------------------------------------

    @property
    def numbers_per_state(self) -> int:
        return 6 * self.n_variables

    def log_density(self, states: NDArray[Any]) -> NDArray[np.float64]:
        x = np.asarray(states, dtype=np.float64)
        own = -0.5 * self.diagonal * x * x + self.linear * x
        for term, amount in reversed(self.likelihood):
            own -= term.value(amount, x)
        return np.einsum("sn->s", own) - 0.5 * np.einsum("sn,sn->s", x, x @ self.couplings)

    def log_weights(self, i: int, states: NDArray[np.int64]) -> NDArray[np.float64]:
        self._refuse("one of discrete variables")

    # -- what only discrete models have ----------------------------------------------------

    def _refuse(self, requirement: str) -> NoReturn:
        raise ArgumentError(
            "model", f"{requirement}: a field can only be used with influence, scans, variation, sample, "
            "estimate and plan", got=f"a field of {self.n_variables} variables",
        )  # fmt: skip

    def tables(self) -> FactorTables:
        self._refuse("one of discrete variables")

    @property
    def has_tables(self) -> bool:
        return False

    def condition(self, fixed: NDArray[np.bool_], state: NDArray[Any]) -> FieldTerms:
        kept = np.flatnonzero(~fixed)
        rows = self.couplings[kept]
        known = np.asarray(state, dtype=np.float64)[fixed]
        given = sparse.csr_array(rows[:, np.flatnonzero(fixed)])
        linear = self.linear[kept] - given @ known
        # Each product and each sum of a row rounds once: by a share of the sum of the sizes, or where it underflows.
        products = np.diff(given.indptr)
        size = np.abs(self.linear[kept]) + abs(given) @ np.abs(known)
        rounding = np.where(products > 0, (products + 2.0) * (UNIT * size + SMALLEST), 0.0)
        error = self.linear_error[kept] + rounding * (1.0 + 2.0**-20)
        sizes = np.diff(self.value_start)[kept]
        values = [self.values_of(int(i)) for i in kept[sizes > 0]]
        matrix = sparse.csr_array(rows[:, kept])
        matrix.sort_indices()
        return FieldTerms(
            matrix, self.diagonal[kept], linear, self.lower[kept], self.upper[kept],
            self.amounts[:, kept], np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([np.empty(0), *values]),
            error, self.diagonal_error[kept],
        )  # fmt: skip

    # -- models and files ------------------------------------------------------------------

    def to_model(self, labels: Sequence[Hashable] | None) -> GaussianField:
        from dobrushin._fields.model import GaussianField

        return GaussianField._from_form(self, labels)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        upper = sparse.coo_array(sparse.triu(self.couplings, k=1))
        arrays: dict[str, NDArray[Any]] = {"i": upper.coords[0], "j": upper.coords[1], "couplings": upper.data}
        errors = {"linear_error": self.linear_error, "diagonal_error": self.diagonal_error}
        arrays |= {name: error for name, error in errors.items() if error.any()}
        known = vars(self) | {term.name: amount for term, amount in self.likelihood}
        return arrays | {name: known[name] for name in self.stored_arrays if name not in arrays}

    @classmethod
    def from_arrays(cls, arrays: CheckedArrays) -> FieldTerms:
        return read_stored(arrays)


# -- what users give, checked ------------------------------------------------------------------


def read_precision(value: Any) -> tuple[Any, NDArray[np.float64]]:
    """Return the off-diagonal couplings (CSR, sorted) and the diagonal of a symmetric matrix, after checking it."""
    if sparse.issparse(value):
        matrix = check.sparse_matrix(value, "precision")
    else:
        dense = check.real_array(value, "precision")
        if dense.ndim != 2:
            raise ArgumentError("precision", "a square matrix", got=f"shape {dense.shape}")
        matrix = sparse.csr_array(dense)
    n = matrix.shape[0]
    if n != matrix.shape[1] or not n:
        raise ArgumentError("precision", "a square matrix", got=f"shape {matrix.shape}")
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    if (bad := ~(np.abs(matrix.data) <= check.LARGEST)).any():
        k = int(np.argmax(bad))
        where = f"index {(int(rows[k]), int(matrix.indices[k]))}"
        raise ArgumentError("precision", check.FINITE, matrix.data[k], where)
    _require_symmetric(matrix, "precision", "symmetric")
    diagonal = matrix.diagonal()
    check.all_entries(diagonal >= LEAST_PRECISION, diagonal, "precision", "positive on the diagonal, 1e-100 or more")
    off = sparse.csr_array(matrix - sparse.dia_array((diagonal[None], [0]), shape=(n, n)))
    off.eliminate_zeros()
    off.sort_indices()
    for array in (off.data, off.indices, off.indptr):
        array.setflags(write=False)
    return off, diagonal


def read_graph(graph: Any) -> tuple[Any, Sequence[Hashable] | None]:
    """Return the symmetric matrix of a graph's edge weights, without self-loops, and the graph's labels.

    Accepted are networkx graphs, libpysal weights and graphs (anything with `sparse` and `id_order` or `unique_ids`),
    and matrices. Edges without a weight have weight 1.
    """
    labels: Sequence[Hashable] | None = None
    names = getattr(graph, "id_order", getattr(graph, "unique_ids", None))
    if is_graph(graph):
        labels = list(graph.nodes)
        matrix = _edge_weights(graph, {label: i for i, label in enumerate(labels)})
    elif names is not None and sparse.issparse(getattr(graph, "sparse", None)):
        labels = names.tolist() if hasattr(names, "tolist") else list(names)
        matrix = check.sparse_matrix(graph.sparse, "graph")
    elif sparse.issparse(graph):
        matrix = check.sparse_matrix(graph, "graph")
    else:
        dense = np.empty(0) if graph is None or isinstance(graph, str) else check.real_array(graph, "graph")
        if dense.ndim != 2:
            raise ArgumentError("graph", "a networkx graph, libpysal weights or a matrix", graph)
        matrix = sparse.csr_array(dense)
    if matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
        raise ArgumentError("graph", "of one or more nodes", got=f"shape {matrix.shape}")
    entries = matrix.tocoo()
    fine = (entries.data >= 0) & (entries.data <= check.LARGEST)
    if not fine.all():
        k = int(np.argmin(fine))
        where = f"index {(int(entries.coords[0][k]), int(entries.coords[1][k]))}"
        raise ArgumentError("graph", "one whose edge weights are finite and not negative", entries.data[k], where)
    requirement = "undirected: a symmetric matrix (weights that are standardised by rows are not)"
    _require_symmetric(matrix, "graph", requirement)
    matrix.setdiag(0.0)
    matrix.eliminate_zeros()
    return matrix, labels


def _edge_weights(graph: Any, position: Mapping[Hashable, int]) -> Any:
    if graph.is_directed() or graph.is_multigraph():
        raise ArgumentError("graph", "an undirected simple graph", got=type(graph).__name__)
    ends, weights = [], []
    for a, b, data in graph.edges(data=True):
        weight = data.get("weight", 1.0)
        if not check.is_real(weight):
            raise ArgumentError("graph", "one whose edge weights are numbers", weight, f"edge {(a, b)!r}")
        if a != b:
            ends.append((position[a], position[b]))
            weights.append(float(weight))
    i, j = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    shape = (len(position), len(position))
    return sparse.coo_array((np.tile(weights, 2), (np.append(i, j), np.append(j, i))), shape=shape).tocsr()


def _require_symmetric(matrix: Any, argument: str, requirement: str) -> None:
    difference = sparse.coo_array(matrix - matrix.T)
    if (uneven := difference.data != 0).any():
        k = int(np.argmax(uneven))
        i, j = int(difference.coords[0][k]), int(difference.coords[1][k])
        one, other = float(matrix[i, j]), float(matrix[j, i])
        if abs(one - other) <= _ROUNDED_SHARE * abs(one):
            requirement += " to the last bit, as (P + P.T) / 2 is"
        raise ArgumentError(argument, requirement, (one, other), f"indices {(i, j)} and {(j, i)}")


def read_box(lower: Any, upper: Any, labels: Sequence[Hashable]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and upper limits of all variables, infinite where none was given."""
    low = per_variable(lower, labels, -np.inf, "lower")
    high = per_variable(upper, labels, np.inf, "upper")
    for end, limit, argument in ((low, -np.inf, "lower"), (high, np.inf, "upper")):
        fine = (np.abs(end) <= check.LARGEST) | (end == limit)
        require_all(fine, end, labels, argument, f"{check.FINITE}, or {limit}")
    if (empty := ~(high - low >= _NARROWEST)).any():
        i = int(np.argmax(empty))
        got = f"the interval from {low[i]:g} to {high[i]:g}"
        requirement = "above 'lower'" if not low[i] < high[i] else f"{_NARROWEST:g} or more above 'lower'"
        raise ArgumentError("upper", requirement, got=got, where=f"variable {labels[i]!r}")
    return low, high


def read_levels(levels: Any, labels: Sequence[Hashable]) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Return the positions of variables on finite sets, in increasing order, and their values."""
    if levels is None:
        return np.empty(0, dtype=np.int64), []
    if not isinstance(levels, Mapping):
        raise ArgumentError("levels", "a dict from labels to values", levels)
    if not levels:
        return np.empty(0, dtype=np.int64), []
    positions = check.positions(list(levels), labels, check.lookup_table(labels), "levels")
    sets = []
    for label, values in levels.items():
        array = np.sort(np.atleast_1d(check.real_array(values, "levels")).ravel())
        if len(array) < 2 or not (np.diff(array) >= _NARROWEST).all() or not (np.abs(array) <= check.LARGEST).all():
            raise ArgumentError("levels", "two or more different finite values", values, f"label {label!r}")
        sets.append(array)
    order = np.argsort(positions)
    return positions[order], [sets[int(k)] for k in order]


def require_definite(form: FieldTerms, labels: Sequence[Hashable]) -> None:
    """Raise ArgumentError if the field is found to be improper on the variables without limits.

    The matrix is factorised for small fields only; for others, pairs of variables are checked.
    """
    free = np.flatnonzero(np.isneginf(form.lower) & np.isposinf(form.upper))
    block = sparse.coo_array(form.couplings[free][:, free])
    own = form.diagonal[free]
    i, j = block.coords
    with np.errstate(over="ignore"):
        bad = ~(np.abs(block.data) < np.sqrt(own[i]) * np.sqrt(own[j]))
    if bad.any():
        k = int(np.argmax(bad))
        pair = (labels[int(free[i[k]])], labels[int(free[j[k]])])
        got = f"the coupling {block.data[k]:g} of {pair[0]!r} and {pair[1]!r}"
        raise ArgumentError("precision", _DEFINITE, got=got)
    if len(free) <= _DENSE_VARIABLES:
        try:
            np.linalg.cholesky(block.toarray() + np.diag(own))
        except np.linalg.LinAlgError:
            raise ArgumentError("precision", _DEFINITE, got="an indefinite matrix") from None


def require_continuous(form: FieldTerms, seen: NDArray[np.bool_], labels: Sequence[Hashable]) -> None:
    """Raise ArgumentError if a variable on a finite set was observed."""
    if (wrong := seen & form.is_finite).any():
        label = labels[int(np.argmax(wrong))]
        raise ArgumentError("labels", "labels of continuous variables: others take no observations", label)


def read_stored(arrays: CheckedArrays) -> FieldTerms:
    """Return the field that the arrays of a file contain, after checking them."""
    diagonal = arrays.finite("diagonal")
    n = len(diagonal)
    arrays.require_variables(n)
    arrays.require(diagonal >= LEAST_PRECISION, "a positive diagonal", diagonal)
    parts: dict[str, Any] = {name: arrays[name] for name in ("linear", "lower", "upper")}
    amounts = {term.name: arrays[term.name] for term in TERMS}
    for name, part in (parts | amounts).items():
        arrays.require(len(part) == n, f"{n} numbers in {name}", f"{len(part)}")
    arrays.finite("linear")
    for name, amount in amounts.items():
        arrays.require(arrays.finite(name) >= 0, f"{name} that are not negative", amount)
    low, high = parts["lower"], parts["upper"]
    fine = (high - low >= _NARROWEST) & (low <= check.LARGEST) & (high >= -check.LARGEST)
    fine &= (low >= -check.LARGEST) | np.isneginf(low)
    arrays.require(fine & ((high <= check.LARGEST) | np.isposinf(high)), "intervals from lower to upper", low)
    start, values = arrays["value_start"], arrays.finite("values")
    sizes = np.diff(start)
    shaped = len(start) == n + 1 and start[0] == 0 and start[-1] == len(values) and bool((sizes >= 0).all())
    arrays.require(shaped, f"{n + 1} increasing indices of the first value of each variable", f"{len(start)} numbers")
    arrays.require(sizes != 1, "two or more values of a variable on a finite set", sizes)
    inner = np.ones(max(len(values) - 1, 0), dtype=np.bool_)
    inner[start[1:-1][(start[1:-1] > 0) & (start[1:-1] < len(values))] - 1] = False
    arrays.require((np.diff(values) >= _NARROWEST) | ~inner, "values in increasing order", values[1:])
    finite = np.flatnonzero(sizes)
    ends = (low[finite] == values[start[finite]]) & (high[finite] == values[start[finite + 1] - 1])
    arrays.require(ends, "lower and upper as the least and the largest value", low[finite])
    parts["amounts"] = np.stack(list(amounts.values()))
    observed = parts["amounts"][:, finite].sum(axis=0)
    arrays.require(observed == 0, "no likelihood on finite sets", observed)
    errors: dict[str, Any] = {name: arrays[name] for name in FieldTerms.optional_arrays if arrays.get(name) is not None}
    for name, error in errors.items():
        arrays.require(len(error) == n, f"{n} numbers in {name}", f"{len(error)}")
        arrays.require(arrays.finite(name) >= 0, f"{name} that are not negative", error)
    return FieldTerms(arrays.couplings(n), diagonal, **parts, value_start=start, values=values, **errors)
