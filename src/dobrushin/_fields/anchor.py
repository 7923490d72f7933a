"""Where chains of a field start, how far that is from the field, and how far draws can be off. [trusted]

The start is one fixed point. Distances are measured in units in which none ever exceeds 1: the width of a bounded
variable, and for the others any vector a >= C a + r, which bounds how far the field is from the start (theory page,
"The start of a field"). In these units a field is certified like any other model.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.sparse import linalg

from dobrushin._estimate.query import Query, Space, make_space, workspace
from dobrushin._estimate.targets import TargetReader
from dobrushin._fields.influence import conditional_variances
from dobrushin._fields.model import GaussianField
from dobrushin._fields.terms import UNIT, FieldTerms, require_all
from dobrushin._influence.known import KnownInfluence, known_influence
from dobrushin._influence.rows import Rows
from dobrushin._kernels.field_draws import find_modes
from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError, CertificateError

if TYPE_CHECKING:
    from dobrushin._estimate.method import Method

# The methods for fields, by name, in the order in which "auto" asks them.
FIELD_METHODS: dict[str, type[Method]] = {}
# Above this size a region around each target is tried before the whole field is factorised, unless so many targets are
# means, all of which one factorisation gives, that it is cheaper: one or more for so many variables.
_WHOLE, _MANY_MEANS = 20_000, 100
# Systems up to this size are solved directly; larger ones are bounded by their largest row.
_DIRECT = 60_000
_SWEEPS, _STILL = 400, 0.01
_ROOM = 1e-7
# A draw is farther from the mode of its law than 13 m^(-1/2) with probability 2 exp(-72) or less.
_FAR = 14.0
FAR_CHANCE = 1e-31
_LARGEST_EXPONENT = 640
REMEDY = (
    "What may help: a box for the variables (lower=, upper=), a larger diagonal, or weaker couplings. Every field "
    "whose diagonal exceeds the sum of its row's couplings satisfies Dobrushin's condition."
)


@dataclass(frozen=True)
class Anchor:
    """An initial point with bounds on its distance from the field.

    Attributes
    ----------
    point : array
        x0.
    unit : array
        Distances of each variable are measured in this.
    initial : array
        Bounds on E_pi |Y_i - x0_i| in these units: at most 1.
    """

    point: NDArray[np.float64]
    unit: NDArray[np.float64]
    initial: NDArray[np.float64]


class FieldSpace(Space):
    """The space of a field, with its cached bounds; it lives as long as the field.

    Attributes
    ----------
    known : KnownInfluence
        Rows of the influence, as distances; `rows` are those in the units of the usual start.
    """

    noun: ClassVar[str] = "mean"

    def __init__(self, field: GaussianField, place: Numbering | None = None) -> None:
        self.model, self.form, self.labels, self.place = field, field._form, field.labels, place
        self._given: dict[bytes, Anchor] = {}
        self._errors: dict[int, tuple[Anchor, DrawErrors]] = {}

    @cached_property
    def known(self) -> KnownInfluence:
        return known_influence(self.model)

    @cached_property
    def rows(self) -> ScaledRows:
        return ScaledRows(self, self.anchor)

    @property
    def initial(self) -> NDArray[np.float64]:
        return self.anchor.initial

    @property
    def methods(self) -> Mapping[str, type[Method]]:
        return FIELD_METHODS

    def candidates(self, query: Query) -> list[type[Method]]:
        exact, local, chains = FIELD_METHODS.values()
        n, counted = self.form.n_variables, any(question.is_counted for question in query.questions)
        if n > _WHOLE and (counted or n > _MANY_MEANS * len(query.questions)):
            return [local, exact, chains]
        return [exact, local, chains]

    def read_tolerance(self, value: Any) -> float:
        return read_distance(value)

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
            return FieldSpace(self.form.to_plain().to_model(self.labels), self.place)

        space: FieldSpace = self.derive("provable", make)
        return space

    def bounds_at(self, i: int) -> tuple[float, float]:
        """The ends of the interval of a variable."""
        return float(self.form.lower[i]), float(self.form.upper[i])

    def is_finite_at(self, i: int) -> bool:
        """Whether a variable is on a finite set of numbers, so that its values carry no rounding."""
        return bool(self.form.is_finite[i])

    @cached_property
    def variances(self) -> NDArray[np.float64]:
        """s_i of every variable."""
        return frozen(conditional_variances(self.form, np.arange(self.form.n_variables)).values)

    @cached_property
    def matrix(self) -> Any:
        """C as a sparse matrix."""
        return self.known.whole.matrix

    @cached_property
    def largest_row(self) -> float:
        """An upper bound on the largest row sum of C."""
        sums = np.asarray(self.matrix.sum(axis=1)).ravel()
        return float(sums.max(initial=0.0)) * (1.0 + UNIT * (8.0 + int(np.diff(self.matrix.indptr).max(initial=0))))

    @cached_property
    def largest_pull(self) -> float:
        """The largest |linear_i| / m_i, rounded up."""
        sizes = np.abs(self.form.linear) + self.form.linear_error
        return float((sizes / self.form.diagonal).max(initial=0.0)) * (1.0 + 4 * UNIT)

    @cached_property
    def tilt(self) -> NDArray[np.float64]:
        """For each variable, how much total variation a distance of 1 before its update makes, over its own distance.

        kappa_i / s_i, and at least 1 / width: where a distance is cut off at the width, nothing is known.
        """
        form, s = self.form, self.variances
        kappa = 0.5 * np.sqrt(s)
        smooth = 1.0 / np.sqrt(2.0 * np.pi * form.curvature)
        kappa = np.where(form.is_finite, kappa, np.minimum(kappa, smooth)) * (1.0 + 16 * UNIT)
        with np.errstate(divide="ignore", over="ignore"):
            return frozen(np.maximum(kappa / s, 1.0 / form.width) * (1.0 + 16 * UNIT))

    def slips(self, anchor: Anchor) -> NDArray[np.float64]:
        """Bound the total variation between the law of a draw and a law whose distance is bounded."""
        errors = self.errors(anchor)
        return errors.chance + self.tilt * self.variances * errors.field

    @cached_property
    def anchor(self) -> Anchor:
        """Return the default initial point: near the modes of all conditional laws."""
        return self.anchor_at(find_start(self.form))

    def anchor_at(self, point: NDArray[np.float64]) -> Anchor:
        """What is known of a start; `CertificateError` where the field fails Dobrushin's condition."""
        key = point.tobytes()
        if key not in self._given:
            if len(self._given) > 8:
                self._given.clear()
            self._given[key] = self._make_anchor(point)
        return self._given[key]

    def _make_anchor(self, point: NDArray[np.float64]) -> Anchor:
        form = self.form
        ends = np.maximum(form.upper - point, point - form.lower) * (1.0 + 4 * UNIT)
        free = ~form.is_bounded
        distance = ends.copy()
        if free.any():
            # A chain may go from one end of an interval to the other: its width counts, not the far end.
            widths = np.where(free, 0.0, form.width)
            distance[free] = self._supersolution(point, widths, np.flatnonzero(free), self.matrix)
        unit = np.where(free, distance, form.width)
        initial = np.where(free, 1.0, np.minimum(ends / np.where(free, 1.0, form.width) * (1.0 + 4 * UNIT), 1.0))
        return Anchor(frozen(point), frozen(unit), frozen(initial))

    def _supersolution(
        self, point: NDArray[np.float64], widths: NDArray[np.float64], rows: NDArray[np.int64], matrix: Any
    ) -> NDArray[np.float64]:
        """a >= C a + r on the unbounded variables, with the others at their widths; checked."""
        slack = 1.0 + UNIT * (16.0 + 2.0 * np.diff(matrix.indptr)[rows])
        fixed = (matrix[rows] @ widths + _rest(self.form, point)[rows]) * slack
        a = supersolve(sparse.csr_array(matrix[rows][:, rows]), fixed)
        if a is None:
            raise self.refuse()
        return a

    def refuse(self) -> CertificateError:
        """What to raise where Dobrushin's condition fails on the unbounded variables."""
        form = self.form
        free = np.flatnonzero(~form.is_bounded)
        block = sparse.csr_array(self.matrix[free][:, free])
        sums = np.asarray(block.sum(axis=1)).ravel()
        worst = np.argsort(-sums, kind="stable")[:3]
        shown = ", ".join(f"{self.labels[int(free[k])]!r} ({sums[k]:.3g})" for k in worst)
        i = int(free[worst[0]])
        needed = float(np.abs(form.couplings[[i]]).sum())
        reason = (
            "the influence of the unbounded variables on each other has a spectral radius of 1 or more, so that the "
            f"field need not forget its start; the strongest rows are those of {shown}. The diagonal of "
            f"{self.labels[i]!r}, {form.diagonal[i]:.3g}, would have to be above {needed:.3g}, the sum of its "
            "couplings, for its row to be below 1."
        )
        return CertificateError({"dobrushin": reason}, REMEDY)

    def reach(self, anchor: Anchor) -> NDArray[np.float64]:
        """S_j: |X_j| is at most this throughout a run, but for a probability of `FAR_CHANCE` at each step.

        Modes move by |Q_ij| / m_i, so where the influence is below that, the distances are bounded anew.
        """
        form, free = self.form, ~self.form.is_bounded
        inside = np.maximum(np.abs(form.lower), np.abs(form.upper))
        if not free.any():
            return inside
        distance = anchor.unit.copy()
        if (self.variances[free] < 0.999 / form.diagonal[free]).any():
            rows = np.flatnonzero(free)
            matrix = sparse.csr_array(sparse.dia_array((1.0 / form.diagonal[None], [0]), shape=self.matrix.shape))
            moves = sparse.csr_array(matrix @ abs(form.couplings)) * (1.0 + 8 * UNIT)
            distance[free] = self._supersolution(anchor.point, np.where(free, 0.0, anchor.unit), rows, moves)
        return np.where(form.is_bounded, inside, np.abs(anchor.point) + _FAR * 1.001 * distance)

    def errors(self, anchor: Anchor) -> DrawErrors:
        """How far one draw of each variable can be off (theory page, "Draws of fields")."""
        if id(anchor) not in self._errors:
            if len(self._errors) > 8:
                self._errors.clear()
            self._errors[id(anchor)] = (
                anchor,
                self._make_errors(anchor),
            )  # kept alive, so that the number stays its own
        return self._errors[id(anchor)][1]

    def _require_exponents(self, size: NDArray[np.float64]) -> None:
        """Refuse counts whose e^x leaves the range of doubles: draws rely on x below 700."""
        form = self.form
        counted = form.exposure > 0
        exponent = np.log(np.maximum(size, 1.0)) - np.log(np.where(counted, form.exposure, 1.0))
        if (wrong := counted & ~(np.maximum(exponent, form.lower) <= _LARGEST_EXPONENT)).any():
            label = self.labels[int(np.argmax(wrong))]
            raise CertificateError(
                {"dobrushin": f"e^x of variable {label!r} may be above e^{_LARGEST_EXPONENT}."}, REMEDY
            )

    def _make_errors(self, anchor: Anchor) -> DrawErrors:
        form, reach = self.form, self.reach(anchor)
        size = np.abs(form.linear) + abs(form.couplings) @ reach
        self._require_exponents(size)
        degree = np.diff(form.couplings.indptr)
        largest = np.zeros(form.n_variables)
        finite = np.flatnonzero(form.is_finite)
        largest[finite] = inside = np.maximum(np.abs(form.lower[finite]), np.abs(form.upper[finite]))
        # Of the linear term c of a conditional law, and of psi' at its mode.
        field = (degree + 8.0) * 2.0**-52 * (size + form.diagonal * reach) + form.error_of_slopes(reach)
        deviation = 1.0 / np.sqrt(form.curvature)
        chance = 2.0**-44 * np.sqrt(1.0 + size + form.diagonal * (reach + deviation) + form.trials)
        chance[finite] = 2.0**-49 * (
            np.diff(form.value_start)[finite] + 4.0 * inside * (size[finite] + form.diagonal[finite] * inside)
        )
        place = 2.0**-40 * (reach + np.minimum(form.width, deviation))
        place[finite] = 0.0
        spanned = np.minimum(form.width, 16.0 * np.where(form.is_finite, np.inf, deviation))
        distance = self.variances * field + place + chance * spanned
        return DrawErrors(frozen(distance), frozen(chance), frozen(place), frozen(field))


@dataclass(frozen=True)
class DrawErrors:
    """Bounds on how far a draw of each variable is off.

    A draw is within `place` of one from the exact law whose linear term is off by at most `field`, but for an event of
    probability `chance`. All together it is within `distance` in Wasserstein distance.
    """

    distance: NDArray[np.float64]
    chance: NDArray[np.float64]
    place: NDArray[np.float64]
    field: NDArray[np.float64]


class ScaledRows:
    """The influence of a field in the units of an anchor: no distance exceeds 1, and the cap of every row is 1."""

    _error = 0.0  # draws have errors of their own

    def __init__(self, space: FieldSpace, anchor: Anchor) -> None:
        self._rows, self._unit = space.known, anchor.unit
        self.n_variables, self.labels, self._lookup = space.known.n_variables, space.known.labels, space.known._lookup

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        """The rows at increasing positions."""
        rows = self._rows.rows(positions)
        own = np.repeat(self._unit[positions], np.diff(rows.start))
        values = rows.values * (self._unit[rows.columns] / own) * (1.0 + 8 * UNIT)
        return Rows(rows.start, rows.columns, frozen(values), rows.theorem, frozen(np.ones(len(positions))))


@make_space.register
def _(model: GaussianField) -> FieldSpace:
    return FieldSpace(model)


def space_of(field: GaussianField) -> FieldSpace:
    """The space of a field: the same object every time."""
    space: FieldSpace = workspace(field)
    return space


def read_distance(value: Any) -> float:
    """Check a tolerance that is a distance: its square has to be a number."""
    tolerance = check.positive(value, "tolerance")
    if not 1.0 / check.LARGEST <= tolerance <= check.LARGEST:
        raise ArgumentError("tolerance", f"a number from {1.0 / check.LARGEST:g} to {check.LARGEST:g}", value)
    return tolerance


def supersolve(matrix: Any, fixed: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """A vector a > 0 with a >= C a + fixed, in exact arithmetic; None if none is found. `fixed` is positive.

    However it was found, it is checked. Its existence shows that the spectral radius of C is below 1.
    """
    n = len(fixed)
    slack = 1.0 + UNIT * (16.0 + 2.0 * int(np.diff(matrix.indptr).max(initial=0)))
    sums = np.asarray(matrix.sum(axis=1)).ravel() * slack
    rho = float(sums.max(initial=0.0))
    a = None
    if n <= _DIRECT:
        # With C a little too large, every row has room for the rounding of the solution.
        system = sparse.csc_array(sparse.eye_array(n) - matrix * (1.0 + _ROOM))
        with np.errstate(all="ignore"):
            try:
                a = linalg.splu(system).solve(fixed * (1.0 + _ROOM))
            except RuntimeError:  # singular
                a = None
    if (a is None or not _is_supersolution(matrix, a, fixed, slack)) and rho < 1.0:
        a = np.full(n, float(fixed.max()) / (1.0 - rho) * (1.0 + 1e-12))
        for _ in range(50):  # of a supersolution, C a + r is a smaller one
            a = (matrix @ a + fixed) * slack
    return a if a is not None and _is_supersolution(matrix, a, fixed, slack) else None


def _is_supersolution(matrix: Any, a: NDArray[np.float64], fixed: NDArray[np.float64], slack: float) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isfinite(a).all() and (a > 0).all() and (a >= (matrix @ a + fixed) * slack).all())


def _rest(form: FieldTerms, point: NDArray[np.float64]) -> NDArray[np.float64]:
    """r_i = |mode of p(. | x0) - x0_i| + m_i^(-1/2), rounded up."""
    c = form.linear - form.couplings @ point
    size = np.abs(form.linear) + abs(form.couplings) @ np.abs(point) + form.diagonal * np.abs(point)
    near, excess = point.copy(), np.empty(form.n_variables)
    if form.is_plain:  # the slope at the start, over the least curvature
        with np.errstate(over="ignore"):
            counts = form.exposure * np.exp(np.where(form.exposure > 0, point, 0.0))
        likelihood = counts + form.trials * special.expit(point)
        excess = np.abs(form.diagonal * point - c + likelihood) / form.diagonal
    else:
        find_modes(form.diagonal, frozen(c), form.exposure, form.trials, form.lower, form.upper, near, excess)
    with np.errstate(over="ignore", invalid="ignore"):
        size += np.where(form.exposure > 0, form.exposure * np.exp(near), 0.0) + form.trials
    terms = np.maximum(np.diff(form.couplings.indptr) + 8.0, 16.0 * form.is_plain)  # the checker takes some for granted
    rounding = (size * 2.0**-50 * terms + form.error_of_slopes(np.abs(point))) / form.diagonal
    rest: NDArray[np.float64] = np.abs(near - point) + excess + rounding + 1.0 / np.sqrt(form.diagonal)
    return rest * (1.0 + 8 * UNIT)


def find_start(form: FieldTerms) -> NDArray[np.float64]:
    """A point near the modes of all conditional laws, by sweeps; any point is sound."""
    n = form.n_variables
    point, excess = np.empty(n), np.empty(n)
    x = np.clip(np.zeros(n), form.lower, form.upper)
    finite = np.flatnonzero(form.is_finite)
    scale = np.sqrt(form.diagonal)
    for sweep in range(_SWEEPS):
        c = frozen(form.linear - form.couplings @ x)
        find_modes(form.diagonal, c, form.exposure, form.trials, form.lower, form.upper, point, excess)
        for i in finite.tolist():
            values = form.values_of(i)
            weights = c[i] * values - 0.5 * form.diagonal[i] * values**2
            point[i] = values[int(np.argmax(weights))] if sweep < 20 else x[i]
        moved = float((np.abs(point - x) * scale).max())
        x = point.copy()
        if moved < _STILL or not np.isfinite(moved):
            break
    return np.where(np.abs(x) <= check.LARGEST, x, np.clip(0.0, form.lower, form.upper))


def read_start(field: GaussianField, initial: Any) -> Anchor:
    """The anchor of a start that was given: a point of the box; None for the usual one."""
    point = read_point(field, initial)
    return space_of(field).anchor if point is None else space_of(field).anchor_at(point)


def read_point(field: GaussianField, initial: Any) -> NDArray[np.float64] | None:
    """A start that was given; None for the usual one."""
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


def uncertified_start(field: GaussianField, given: NDArray[np.float64] | None) -> Anchor:
    """Return a start of which nothing is known, for fields without a certificate."""
    point = find_start(field._form) if given is None else given
    return Anchor(frozen(point), np.full(len(point), np.inf), np.ones(len(point)))
