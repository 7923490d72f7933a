"""Initial points of chains for Gaussian fields, with bounds on distances from the field and on rounding. [trusted]

All chains start at one fixed point x0. Each variable has a unit of length such that its expected distance from x0 under
the field is at most 1 unit. For a bounded variable the unit is the width of its interval. For unbounded ones it is a
vector a with a >= C a + r, where C is the influence matrix and r bounds how far each variable is from x0 given its
neighbours at x0 (theory page, "The start of a field"). In these units a field is certified like a discrete model.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from dobrushin._estimate.query import Query, Space, make_space, workspace
from dobrushin._estimate.targets import TargetReader
from dobrushin._fields.influence import conditional_variances
from dobrushin._fields.likelihood import LARGEST_EXPONENT, require_all
from dobrushin._fields.model import GaussianField
from dobrushin._fields.terms import FieldTerms
from dobrushin._influence.matrix import KnownInfluence, known_influence
from dobrushin._influence.rows import Rows
from dobrushin._kernels.field_laws import find_modes
from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import UNIT, distinct, frozen, row_entries
from dobrushin.errors import ArgumentError, CertificateError

if TYPE_CHECKING:
    from dobrushin._estimate.method import Method

# The methods for fields, by name, in the order in which "auto" asks them.
FIELD_METHODS: dict[str, type[Method]] = {}
# Number of variables above which a region around each target is tried before the whole field is factorised; and the
# number of variables per wanted mean below which one factorisation, which gives all means, is cheaper even then.
_WHOLE_VARIABLES, _MANY_MEANS = 20_000, 100
# Systems up to this size are solved directly; solutions of larger ones are bounded by the largest row sum.
_DIRECT_VARIABLES = 60_000
_START_SWEEPS, _START_DEVIATIONS = 400, 0.01
_SOLVER_MARGIN = 1e-7
# A draw is farther from the mode of its law than 13 m^(-1/2) with probability 2 exp(-72) or less.
_FAR_DEVIATIONS = 14.0
FAR_CHANCE = 1e-31
REMEDY = (
    "What may help: a box for the variables (lower=, upper=), a larger diagonal, or weaker couplings. Every field "
    "whose diagonal exceeds the sum of its row's couplings satisfies Dobrushin's condition."
)


class FieldSpace(Space):
    """Everything that `estimate` needs of a Gaussian field: influence rows, initial point and methods, all cached.

    Attributes
    ----------
    known : KnownInfluence
        Rows of the influence matrix, as ratios of distances.
    rows : ScaledRows
        The same rows in the units of the default initial point.
    """

    noun: ClassVar[str] = "mean"

    def __init__(self, field: GaussianField, place: Numbering | None = None) -> None:
        self.model, self.form, self.place = field, field._form, place

    @cached_property
    def known(self) -> KnownInfluence:
        return known_influence(self.model)

    @cached_property
    def rows(self) -> ScaledRows:
        return ScaledRows(self.anchor)

    @property
    def initial(self) -> NDArray[np.float64]:
        return self.anchor.initial

    @property
    def methods(self) -> Mapping[str, type[Method]]:
        return FIELD_METHODS

    def candidates(self, query: Query) -> list[type[Method]]:
        exact, local, *chains = FIELD_METHODS.values()
        n, counted = self.form.n_variables, any(question.is_counted for question in query.questions)
        if n > _WHOLE_VARIABLES and (counted or n > _MANY_MEANS * len(query.questions)):
            return [local, exact, *chains]
        return [exact, local, *chains]

    def read_tolerance(self, value: Any) -> float:
        tolerance = check.positive(value, "tolerance")
        if not 1.0 / check.LARGEST <= tolerance <= check.LARGEST:  # its square has to be a number
            requirement = f"a number from {1.0 / check.LARGEST:g} to {check.LARGEST:g}"
            raise ArgumentError("tolerance", requirement, value)
        return tolerance

    def reader(self, model: Any, evidence: dict[Hashable, Any]) -> TargetReader:
        from dobrushin._fields.questions import FieldReader

        return FieldReader(model, evidence, self.model, self)

    def condition(self, evidence: Mapping[Hashable, Any]) -> FieldSpace:
        given = {self.model.index(label): value for label, value in evidence.items()}
        rest: Any = self.model._fix(given)
        n = self.model.n_variables
        return FieldSpace(rest, Numbering(n, np.setdiff1d(np.arange(n), list(given))))

    def provable(self) -> FieldSpace:
        def make() -> FieldSpace:
            return FieldSpace(replace(self.form, is_plain=True).to_model(self.model.labels), self.place)

        space: FieldSpace = self.derive("provable", make)
        return space

    # -- for the methods that solve linear systems ---------------------------------------------

    @property
    def is_gaussian(self) -> bool:
        """Return whether the law is Gaussian, so that its means and variances solve linear systems."""
        return self.form.is_gaussian

    def bounds_at(self, i: int) -> tuple[float, float]:
        return float(self.form.lower[i]), float(self.form.upper[i])

    @cached_property
    def largest_row(self) -> float:
        """Return an upper bound on the largest row sum of the influence matrix C."""
        sums = np.asarray(self.matrix.sum(axis=1)).ravel()
        return float(sums.max(initial=0.0)) * (1.0 + UNIT * (8.0 + int(np.diff(self.matrix.indptr).max(initial=0))))

    @cached_property
    def largest_pull(self) -> float:
        """Return the largest |linear_i| / precision_ii over all variables i, rounded up."""
        sizes = np.abs(self.form.linear) + self.form.linear_error
        return float((sizes / self.form.diagonal).max(initial=0.0)) * (1.0 + 4 * UNIT)

    def around(self, centres: NDArray[np.int64], radius: int) -> tuple[FieldTerms, NDArray[np.int64], Numbering | None]:
        """Return the field, the variables within `radius` edges of the centres, and a `Numbering` of it or None.

        Here it is None, because the whole field is in memory. Of a field that is built on demand only a neighbourhood
        is returned, and the `Numbering` has the positions of its variables in the whole field.
        """
        matrix, n = self.form.couplings, self.form.n_variables
        known = shell = np.unique(centres)
        for _ in range(radius):
            first = matrix.indptr[shell].astype(np.int64)
            _, entry = row_entries(first, matrix.indptr[shell + 1] - first)
            near = distinct(matrix.indices[entry].astype(np.int64), n)
            shell = near[~Numbering(n, known).holds(near)]
            if not len(shell):
                break
            known = np.sort(np.concatenate([known, shell]))
        return self.form, known, None

    # -- bounds on distances -------------------------------------------------------------------

    @cached_property
    def variances(self) -> NDArray[np.float64]:
        """Return s_i for each variable i: a bound on its conditional variance given the other variables."""
        return frozen(conditional_variances(self.form, np.arange(self.form.n_variables)).values)

    @cached_property
    def matrix(self) -> Any:
        """Return the influence matrix C as a sparse matrix."""
        return self.known.whole.matrix

    @cached_property
    def tilt(self) -> NDArray[np.float64]:
        """Return, for each variable, the factor from a bound in Wasserstein distance to one in total variation.

        It is at least 1 / width, because distances are capped at the width of the variable's interval.
        """
        form, s = self.form, self.variances
        kappa = 0.5 * np.sqrt(s)
        smooth = 1.0 / np.sqrt(2.0 * np.pi * form.curvature)
        kappa = np.where(form.is_finite, kappa, np.minimum(kappa, smooth)) * (1.0 + 16 * UNIT)
        with np.errstate(divide="ignore", over="ignore"):
            return frozen(np.maximum(kappa / s, 1.0 / form.width) * (1.0 + 16 * UNIT))

    @cached_property
    def anchor(self) -> Anchor:
        """Return the default initial point of chains, near the modes of all conditional laws, with its bounds."""
        return self.anchor_at(find_start(self.form))

    def anchor_at(self, point: NDArray[np.float64] | None) -> Anchor:
        """Return an initial point of chains (None: the default) with bounds on its distance from the field.

        Raises CertificateError if a variable is unbounded and Dobrushin's condition fails.
        """
        if point is None:
            return self.anchor
        form = self.form
        ends = np.maximum(form.upper - point, point - form.lower) * (1.0 + 4 * UNIT)
        free = ~form.is_bounded
        distance = ends.copy()
        if free.any():
            # A chain may go from one end of an interval to the other: its width counts, not the far end.
            widths = np.where(free, 0.0, form.width)
            distance[free] = self.supersolution(point, widths, np.flatnonzero(free), self.matrix)
        unit = np.where(free, distance, form.width)
        initial = np.where(free, 1.0, np.minimum(ends / np.where(free, 1.0, form.width) * (1.0 + 4 * UNIT), 1.0))
        return Anchor(self, frozen(point), frozen(unit), frozen(initial))

    def supersolution(
        self, point: NDArray[np.float64], widths: NDArray[np.float64], rows: NDArray[np.int64], matrix: Any
    ) -> NDArray[np.float64]:
        """Return a vector a >= C a + r on the unbounded variables `rows`, where bounded variables have their `widths`.

        C is the influence matrix `matrix`, and r bounds the distances from the initial point given the other variables
        there. Raises CertificateError if no such vector is found.
        """
        slack = 1.0 + UNIT * (16.0 + 2.0 * np.diff(matrix.indptr)[rows])
        fixed = (matrix[rows] @ widths + _rest(self.form, point)[rows]) * slack
        a = supersolve(sparse.csr_array(matrix[rows][:, rows]), fixed)
        if a is None:
            raise self.refuse()
        return a

    def refuse(self) -> CertificateError:
        """Return the error that says why no certificate exists: Dobrushin's condition fails on unbounded variables."""
        form, labels = self.form, self.model.labels
        free = np.flatnonzero(~form.is_bounded)
        block = sparse.csr_array(self.matrix[free][:, free])
        sums = np.asarray(block.sum(axis=1)).ravel()
        worst = np.argsort(-sums, kind="stable")[:3]
        shown = ", ".join(f"{labels[int(free[k])]!r} ({sums[k]:.3g})" for k in worst)
        i = int(free[worst[0]])
        needed = float(np.abs(form.couplings[[i]]).sum())
        reason = (
            "the influence of the unbounded variables on each other has a spectral radius of 1 or more, so that "
            f"chains may not forget their start; the largest row sums are those of {shown}. The diagonal of "
            f"{labels[i]!r}, {form.diagonal[i]:.3g}, would have to be above {needed:.3g}, the sum of its "
            "couplings, for its row sum to be below 1."
        )
        return CertificateError({"dobrushin": reason}, REMEDY)


class DrawErrors(NamedTuple):
    """Bounds on the rounding errors of a draw from a conditional law, for each variable.

    Except with probability `chance`, a draw is within `place` of an exact draw from a conditional law whose linear term
    is off by at most `field`. In total a draw is within `distance` of the exact law in Wasserstein distance.
    """

    distance: NDArray[np.float64]
    chance: NDArray[np.float64]
    place: NDArray[np.float64]
    field: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Anchor:
    """An initial point of chains, with bounds on its distance from the field and on the errors of draws.

    Attributes
    ----------
    space : FieldSpace
    point : array
        The initial point x0.
    unit : array
        Unit of length of each variable, in which distances are measured; infinite if there is no certificate.
    initial : array
        Bounds on the expected distance |Y_i - x0_i| in these units, for Y drawn from the field; at most 1.
    """

    space: FieldSpace
    point: NDArray[np.float64]
    unit: NDArray[np.float64]
    initial: NDArray[np.float64]

    def reach(self) -> NDArray[np.float64]:
        """Return a bound S_j on each |x_j| that a chain exceeds with probability at most `FAR_CHANCE` at each step.

        For unbounded variables it follows the modes of the conditional laws. A mode moves by |Q_ij| / P_ii when x_j
        moves by 1, which may be more than the mean moves.
        """
        space, form, free = self.space, self.space.form, ~self.space.form.is_bounded
        inside = np.maximum(np.abs(form.lower), np.abs(form.upper))
        if not free.any():
            return inside
        distance = self.unit.copy()
        if (space.variances[free] < 0.999 / form.diagonal[free]).any():
            rows = np.flatnonzero(free)
            shape = form.couplings.shape
            matrix = sparse.csr_array(sparse.dia_array((1.0 / form.diagonal[None], [0]), shape=shape))
            moves = sparse.csr_array(matrix @ abs(form.couplings)) * (1.0 + 8 * UNIT)
            distance[free] = space.supersolution(self.point, np.where(free, 0.0, self.unit), rows, moves)
        return np.where(form.is_bounded, inside, np.abs(self.point) + _FAR_DEVIATIONS * 1.001 * distance)

    @cached_property
    def errors(self) -> DrawErrors:
        """Return bounds on the rounding errors of one draw of each variable (theory page, "Draws of fields")."""
        form, reach = self.space.form, self.reach()
        size = np.abs(form.linear) + abs(form.couplings) @ reach
        for term, amount in form.likelihood:
            if (wrong := term.find_overflow(amount, size, form.lower)).any():
                label = self.space.model.labels[int(np.argmax(wrong))]
                reason = f"variable {label!r} may be above {LARGEST_EXPONENT}, where its likelihood term e^x overflows."
                raise CertificateError({"dobrushin": reason}, REMEDY)
        degree = np.diff(form.couplings.indptr)
        finite = np.flatnonzero(form.is_finite)
        inside = np.maximum(np.abs(form.lower[finite]), np.abs(form.upper[finite]))
        # Errors of the linear term c of a conditional law, and of psi' at its mode.
        field = (degree + 8.0) * 2.0**-52 * (size + form.diagonal * reach) + form.error_of_slopes(reach)
        deviation = 1.0 / np.sqrt(form.curvature)
        slopes = sum(term.bound_draws(amount) for term, amount in form.likelihood)
        chance = 2.0**-44 * np.sqrt(1.0 + size + form.diagonal * (reach + deviation) + slopes)
        chance[finite] = 2.0**-49 * (
            np.diff(form.value_start)[finite] + 4.0 * inside * (size[finite] + form.diagonal[finite] * inside)
        )
        place = 2.0**-40 * (reach + np.minimum(form.width, deviation))
        place[finite] = 0.0
        spanned = np.minimum(form.width, 16.0 * np.where(form.is_finite, np.inf, deviation))
        distance = self.space.variances * field + place + chance * spanned
        return DrawErrors(frozen(distance), frozen(chance), frozen(place), frozen(field))

    @cached_property
    def slips(self) -> NDArray[np.float64]:
        """Return, for each variable, a bound on the total variation between a rounded and an exact draw."""
        return self.errors.chance + self.space.tilt * self.space.variances * self.errors.field


class ScaledRows:
    """The influence matrix of a field in units in which no expected distance from the initial point exceeds 1."""

    _error = 0.0  # draws have errors of their own

    def __init__(self, anchor: Anchor) -> None:
        known = anchor.space.known
        self._rows, self._unit = known, anchor.unit
        self.n_variables, self.labels, self._lookup = known.n_variables, known.labels, known._lookup

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        """Return the influence rows of the variables at `positions`, which are increasing."""
        rows = self._rows.rows(positions)
        own = np.repeat(self._unit[positions], np.diff(rows.start))
        values = rows.values * (self._unit[rows.columns] / own) * (1.0 + 8 * UNIT)
        return Rows(rows.start, rows.columns, frozen(values), rows.theorem, frozen(np.ones(len(positions))))


@make_space.register
def _(model: GaussianField) -> FieldSpace:
    return FieldSpace(model)


def space_of(field: GaussianField) -> FieldSpace:
    """Return the cached `FieldSpace` of a field."""
    space: FieldSpace = workspace(field)
    return space


def supersolve(matrix: Any, fixed: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return a vector a > 0 with a >= C a + fixed for a positive vector `fixed`; None if none is found.

    The inequality has been checked in floating point with a margin for rounding. Such a vector shows that the spectral
    radius of C is below 1.
    """
    n = len(fixed)
    slack = 1.0 + UNIT * (16.0 + 2.0 * int(np.diff(matrix.indptr).max(initial=0)))
    sums = np.asarray(matrix.sum(axis=1)).ravel() * slack
    rho = float(sums.max(initial=0.0))
    a = None
    if n <= _DIRECT_VARIABLES:
        # C is increased slightly, so that the solution satisfies the inequality in spite of rounding.
        system = sparse.csc_array(sparse.eye_array(n) - matrix * (1.0 + _SOLVER_MARGIN))
        with np.errstate(all="ignore"):
            try:
                a = linalg.splu(system).solve(fixed * (1.0 + _SOLVER_MARGIN))
            except RuntimeError:  # singular
                a = None
    if (a is None or not _is_supersolution(matrix, a, fixed, slack)) and rho < 1.0:
        a = np.full(n, float(fixed.max()) / (1.0 - rho) * (1.0 + 1e-12))
        for _ in range(50):  # if a is a supersolution, C a + r is a smaller one
            a = (matrix @ a + fixed) * slack
    return a if a is not None and _is_supersolution(matrix, a, fixed, slack) else None


def _is_supersolution(matrix: Any, a: NDArray[np.float64], fixed: NDArray[np.float64], slack: float) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isfinite(a).all() and (a > 0).all() and (a >= (matrix @ a + fixed) * slack).all())


def _rest(form: FieldTerms, point: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bound E|x_i - x0_i| for each variable i when all others are at the initial point x0; rounded up.

    The bound is |mode of p(x_i | x0) - x0_i| + P_ii^(-1/2).
    """
    c = form.linear - form.couplings @ point
    size = np.abs(form.linear) + abs(form.couplings) @ np.abs(point) + form.diagonal * np.abs(point)
    near, excess = point.copy(), np.empty(form.n_variables)
    if form.is_plain:  # the slope at the start, over the least curvature
        with np.errstate(over="ignore"):
            likelihood = sum(term.slope(amount, point) for term, amount in form.likelihood)
        excess = np.abs(form.diagonal * point - c + likelihood) / form.diagonal
    else:
        find_modes(form.diagonal, frozen(c), form.amounts, form.lower, form.upper, near, excess)
    with np.errstate(over="ignore", invalid="ignore"):
        size += sum(term.bound_slope(amount, near) for term, amount in form.likelihood)
    # For a proof at least 16 roundings: the checker allows for a relative rounding of 1e-14 in any case.
    terms = np.maximum(np.diff(form.couplings.indptr) + 8.0, 16.0 * form.is_plain)
    rounding = (size * 2.0**-50 * terms + form.error_of_slopes(np.abs(point))) / form.diagonal
    rest: NDArray[np.float64] = np.abs(near - point) + excess + rounding + 1.0 / np.sqrt(form.diagonal)
    return rest * (1.0 + 8 * UNIT)


def find_start(form: FieldTerms) -> NDArray[np.float64]:
    """Return a point near the modes of all conditional laws.

    It is found by moving all variables to the modes of their conditional laws again and again. Certificates are valid
    for any initial point; a point near the modes makes them tighter.
    """
    n = form.n_variables
    point, excess = np.empty(n), np.empty(n)
    x = np.clip(np.zeros(n), form.lower, form.upper)
    finite = np.flatnonzero(form.is_finite)
    scale = np.sqrt(form.diagonal)
    for sweep in range(_START_SWEEPS):
        c = frozen(form.linear - form.couplings @ x)
        find_modes(form.diagonal, c, form.amounts, form.lower, form.upper, point, excess)
        for i in finite.tolist():
            values = form.values_of(i)
            weights = c[i] * values - 0.5 * form.diagonal[i] * values**2
            point[i] = values[int(np.argmax(weights))] if sweep < 20 else x[i]
        moved = float((np.abs(point - x) * scale).max())
        x = point.copy()
        if moved < _START_DEVIATIONS or not np.isfinite(moved):
            break
    return np.where(np.abs(x) <= check.LARGEST, x, np.clip(0.0, form.lower, form.upper))


def read_start(field: GaussianField, initial: Any) -> NDArray[np.float64] | None:
    """Return the initial point that a user passed, after checking it; None for the default."""
    if initial is None or check.is_text(initial, "uniform", "mode"):
        return None
    point = check.real_array(initial, "initial")
    n = field.n_variables
    if point.shape != (n,):
        requirement = f"one number for each of {n} variables: the certificate is for a fixed start"
        raise ArgumentError("initial", requirement, got=f"shape {point.shape}")
    form = field._form
    fine = (point >= form.lower) & (point <= form.upper) & (np.abs(point) <= check.LARGEST)
    for i in np.flatnonzero(form.is_finite & fine):
        fine[i] = point[i] in form.values_of(int(i))
    requirement = "inside the box, at most 1e100 in size, at a value that the variable can have"
    require_all(fine, point, field.labels, "initial", requirement)
    return point.copy()
