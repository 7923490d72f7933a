"""The form of fields: real numbers in boxes, or in finite sets, coupled by products."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from dobrushin._models.checked_arrays import FLOAT, WHOLE, CheckedArrays
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin._fields.model import GaussianField

UNIT = 2.0**-53
PARTS = ("couplings", "diagonal", "linear", "lower", "upper", "exposure", "trials", "value_start", "values")


class FieldTerms(Form):
    """pi(x) ∝ exp( -sum_i phi_i(x_i) - sum over unordered pairs Q_ij x_i x_j ) on a box.

    phi_i(x) = diagonal_i x^2 / 2 - linear_i x + exposure_i e^x + trials_i log(1 + e^x), on the interval from lower_i to
    upper_i, or on the values of variable i where it has any (exposure and trials are then 0).

    Parameters
    ----------
    couplings : CSR matrix
        Q: symmetric, with an empty diagonal and sorted columns.
    diagonal, linear, lower, upper, exposure, trials : arrays
        One number for each variable.
    value_start, values : arrays
        The values of variables on finite sets, in increasing order, CSR; no value for continuous ones.
    """

    state_type = np.float64
    stored_as = "GaussianField"
    stored_arrays: ClassVar = {
        "i": WHOLE, "j": WHOLE, "couplings": FLOAT, "diagonal": FLOAT, "linear": FLOAT, "lower": FLOAT, "upper": FLOAT,
        "exposure": FLOAT, "trials": FLOAT, "value_start": WHOLE, "values": FLOAT,
    }  # fmt: skip

    def __init__(
        self,
        couplings: Any,
        diagonal: NDArray[np.float64],
        linear: NDArray[np.float64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        exposure: NDArray[np.float64],
        trials: NDArray[np.float64],
        value_start: NDArray[np.int64],
        values: NDArray[np.float64],
    ) -> None:
        self.couplings = couplings
        self.diagonal, self.linear = frozen(diagonal), frozen(linear)
        self.lower, self.upper = frozen(lower), frozen(upper)
        self.exposure, self.trials = frozen(exposure), frozen(trials)
        self.value_start, self.values = frozen(value_start), frozen(values)
        self.is_plain = False  # whether bounds are those that a proof can state: the plainest ones

    def to_plain(self) -> FieldTerms:
        """The same, with bounds that a proof can state."""
        plain = self.with_parts()
        plain.is_plain = True
        return plain

    def with_parts(self, **parts: Any) -> FieldTerms:
        """The same with some arrays replaced."""
        return FieldTerms(**{name: parts.get(name, getattr(self, name)) for name in PARTS})

    # -- the variables ---------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        return len(self.diagonal)

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
        del positions
        self._refuse("one of discrete variables")

    @cached_property
    def is_finite(self) -> NDArray[np.bool_]:
        """Which variables are on a finite set of numbers."""
        return frozen(np.diff(self.value_start) > 0)

    @cached_property
    def width(self) -> NDArray[np.float64]:
        """The width of each variable's interval, rounded up; 0 for one value."""
        return frozen(np.where(self.upper > self.lower, (self.upper - self.lower) * (1 + 2 * UNIT), 0.0))

    @cached_property
    def is_bounded(self) -> NDArray[np.bool_]:
        """Which variables have a finite width."""
        return frozen(self.width < np.inf)

    @cached_property
    def is_gaussian(self) -> bool:
        """Whether the field is Gaussian: continuous, without truncation, all likelihoods normal."""
        free = np.isneginf(self.lower).all() and np.isposinf(self.upper).all()
        return bool(free and not self.exposure.any() and not self.trials.any())

    @cached_property
    def curvature(self) -> NDArray[np.float64]:
        """m_i: phi_i - m_i x^2 / 2 is convex on the interval; rounded down.

        The likelihoods add what they have at the flat end of the interval.
        """
        if self.is_plain:
            return self.diagonal
        with np.errstate(over="ignore", invalid="ignore"):
            counts = np.where(self.exposure > 0, self.exposure * np.exp(self.lower), 0.0)
            farthest = np.maximum(np.abs(self.lower), np.abs(self.upper))
            logit = np.where(self.trials > 0, self.trials * special.expit(farthest) * special.expit(-farthest), 0.0)
        return frozen(self.diagonal + (counts + logit) * (1 - 2.0**-40))

    def values_of(self, i: int) -> NDArray[np.float64]:
        """The values of a variable on a finite set; none for a continuous one."""
        return self.values[self.value_start[i] : self.value_start[i + 1]]

    # -- probabilities ---------------------------------------------------------------------

    @property
    def numbers_per_state(self) -> int:
        return 6 * self.n_variables

    def log_density(self, states: NDArray[Any]) -> NDArray[np.float64]:
        x = np.asarray(states, dtype=np.float64)
        own = -0.5 * self.diagonal * x * x + self.linear * x - self.trials * np.logaddexp(0.0, x)
        with np.errstate(over="ignore"):
            own -= self.exposure * np.exp(np.where(self.exposure > 0, x, 0.0))
        return np.einsum("sn->s", own) - 0.5 * np.einsum("sn,sn->s", x, x @ self.couplings)

    def log_weights(self, i: int, states: NDArray[np.int64]) -> NDArray[np.float64]:
        del i, states
        self._refuse("one of discrete variables")

    # -- what only discrete models have ----------------------------------------------------

    def _refuse(self, requirement: str) -> NoReturn:
        raise ArgumentError(
            "model", f"{requirement} here: a field has influence, scans, variation, sample, estimate "
            "and plan", got=f"a field of {self.n_variables} variables",
        )  # fmt: skip

    def tables(self) -> FactorTables:
        self._refuse("one of discrete variables")

    @property
    def has_tables(self) -> bool:
        return False

    def condition(self, fixed: NDArray[np.bool_], state: NDArray[Any]) -> FieldTerms:
        kept = np.flatnonzero(~fixed)
        rows = self.couplings[kept]
        linear = self.linear[kept] - rows[:, np.flatnonzero(fixed)] @ np.asarray(state, dtype=np.float64)[fixed]
        sizes = np.diff(self.value_start)[kept]
        values = [self.values_of(int(i)) for i in kept[sizes > 0]]
        matrix = sparse.csr_array(rows[:, kept])
        matrix.sort_indices()
        return FieldTerms(
            matrix, self.diagonal[kept], linear, self.lower[kept], self.upper[kept], self.exposure[kept],
            self.trials[kept], np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([np.empty(0), *values]),
        )  # fmt: skip

    # -- models and files ------------------------------------------------------------------

    def to_model(self, labels: Sequence[Hashable] | None) -> GaussianField:
        from dobrushin._fields.model import GaussianField

        return GaussianField._from_form(self, labels)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        upper = sparse.coo_array(sparse.triu(self.couplings, k=1))
        arrays: dict[str, NDArray[Any]] = {"i": upper.coords[0], "j": upper.coords[1], "couplings": upper.data}
        return arrays | {name: getattr(self, name) for name in self.stored_arrays if name not in arrays}

    @classmethod
    def from_arrays(cls, arrays: CheckedArrays) -> FieldTerms:
        from dobrushin._fields.reading import read_stored

        return read_stored(arrays)
