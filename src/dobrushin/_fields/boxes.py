"""Boxes around Gaussian fields with likelihoods, and how fast random-scan chains on a box forget their start. [trusted]

Theory page, "Fields on boxes". On a box the second derivatives of the energy (the negative log-density) are at least
those of a constant matrix H. H bounds the variances and tails of the field on the box, and hence the probability
outside the box. The least eigenvalue of H, scaled to a unit diagonal, bounds the rate at which the relative entropy of
a chain falls if each step updates a variable chosen uniformly. H need not be diagonally dominant, so this also works
where Dobrushin's condition fails.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy import optimize

from dobrushin._fields.terms import FieldTerms
from dobrushin._shared.arrays import Floats
from dobrushin.errors import CertificateError

# Largest number of variables: matrices are dense here.
MAX_VARIABLES = 1000
# Largest |E x_i - centre_i| allowed in the innermost box, in standard deviations; the chains verify it. Boxes for
# smaller ones are smaller, but more chains are needed to verify them.
OFFSETS = (0.45, 0.25, 0.15)
# Share of the outermost box that contains nearly all mass of the field on this box; and the largest box that is tried,
# in standard deviations of the prior.
_INNER_SHARE, _MOST_DEVIATIONS = 0.975, 12.0
_MAX_STAGES, _GROWTH_TRIALS = 8, 200
# Probability with which the prior alone leaves the largest box to be considered.
_FAR_CHANCE = 1e-12
_UP = 1.0 + 1e-9
_NODES, _WEIGHTS = hermegauss(7)


def least_curvatures(form: FieldTerms) -> Floats:
    """Return the matrix H that bounds the second derivatives of the energy from below everywhere on the field's box."""
    matrix: Floats = form.couplings.toarray()
    matrix[np.diag_indices_from(matrix)] = form.curvature
    return matrix


def bound_inverse(matrix: Floats, error: Floats | float = 0.0) -> tuple[Floats, Floats] | None:
    """Return the inverse of a matrix and bounds on the errors of its rows; None if it may not be positive definite.

    `error` bounds the errors of the diagonal of the given matrix H. With an approximate inverse X and R = I - H X the
    exact inverse is X + X R (I - R)^-1, so entries of row i are off by at most |X_i| r / (1 - r), where r is the
    largest row sum of |R|.
    """
    if not least_eigenvalue(matrix) > 0.0:
        return None
    n, inverse = len(matrix), np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    size = np.abs(matrix) @ np.abs(inverse)
    rest = np.abs(np.eye(n) - matrix @ inverse) + size * (n + 4.0) * 2.0**-52
    rest += np.broadcast_to(error, n)[:, None] * np.abs(inverse)
    r = float(rest.sum(axis=1).max())
    return (inverse, np.abs(inverse).sum(axis=1) * (r / (1.0 - r)) * _UP) if r < 0.01 else None


def bound_variances(matrix: Floats) -> Floats | None:
    """Bound the diagonal of the inverse of a matrix from above; None if the matrix may not be positive definite."""
    known = bound_inverse(matrix)
    return None if known is None else (np.diag(known[0]) + known[1]) * _UP


def scaled_eigenvalues(matrix: Floats) -> tuple[Floats, float]:
    """Return the eigenvalues of a symmetric matrix, scaled to a unit diagonal, and a bound on their errors."""
    n, diagonal = len(matrix), np.diag(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0).all()):
        return np.full(n, -np.inf), 0.0
    root = np.sqrt(diagonal)
    # The scaled matrix has norm n or less, and its eigenvalues are found within a small multiple of the roundoff.
    return np.asarray(np.linalg.eigvalsh(matrix / np.outer(root, root))), n * (n + 8.0) * 2.0**-46


def bound_eigenvalues(matrix: Floats) -> Floats:
    """Bound the eigenvalues of a symmetric matrix, scaled to a unit diagonal, from below; -inf if no bound is known."""
    values, error = scaled_eigenvalues(matrix)
    return np.asarray(values - error)


def least_eigenvalue(matrix: Floats) -> float:
    """Bound the least eigenvalue of a symmetric matrix, scaled to a unit diagonal, from below; -inf if unknown."""
    return float(bound_eigenvalues(matrix)[0])


def curvature_at(form: FieldTerms, x: Floats) -> Floats:
    """Return the second derivatives at x of the likelihoods' contribution to the energy, one for each variable."""
    total: Any = sum(term.least_curvature(amount, x, x) for term, amount in form.likelihood)
    return np.asarray(total)


def slope_at(form: FieldTerms, x: Floats, variance: Floats | float = 0.0) -> Floats:
    """Return the gradient of the energy at x.

    The gradient of the likelihoods is averaged over N(x_i, variance_i) for each variable i.
    """
    slope: Floats = form.couplings @ x + form.diagonal * x - form.linear
    for term, amount in form.likelihood:
        slope = slope + _average(functools.partial(term.slope, amount), x, variance)
    return slope


def bound_slope(form: FieldTerms, x: Floats) -> Floats:
    """Bound the absolute value of each entry of the energy's gradient at x, including rounding errors."""
    size = np.abs(form.couplings) @ np.abs(x) + form.diagonal * np.abs(x) + np.abs(form.linear)
    size = size + sum(term.bound_slope(amount, x) for term, amount in form.likelihood)
    exact = np.abs(slope_at(form, x)) + form.linear_error + form.diagonal_error * np.abs(x)
    return np.asarray(exact + size * (len(x) + 16.0) * 2.0**-50)


def descend(form: FieldTerms) -> Floats:
    """Return a point near the mode of the field on its box, by L-BFGS.

    The bounds that use the point hold for any point.
    """
    start = np.clip(np.zeros(form.n_variables), form.lower, form.upper)
    with np.errstate(all="ignore"):
        found = optimize.minimize(
            lambda x: -float(form.log_density(x[None, :])[0]), start, jac=lambda x: slope_at(form, x),
            method="L-BFGS-B", bounds=optimize.Bounds(form.lower, form.upper), options={"maxiter": 1000},
        )  # fmt: skip
    return np.asarray(found.x if np.isfinite(found.x).all() else start)


def _average(function: Callable[[Floats], Floats], x: Floats, variance: Floats | float) -> Floats:
    """Return the average of a function under N(x_i, variance_i) for each entry of x, by Gauss-Hermite quadrature."""
    parts = [weight * function(x + node * np.sqrt(variance)) for node, weight in zip(_NODES, _WEIGHTS, strict=True)]
    return np.asarray(np.sum(parts, axis=0) / _WEIGHTS.sum())


@dataclass(frozen=True, eq=False)
class BoxStage:
    """One of several nested boxes, with bounds on the field restricted to it.

    Attributes
    ----------
    half : array
        Half of the box's width in each variable.
    variance : array
        Variance proxies: on the box x_i is sub-Gaussian with proxy variance_i, which also bounds its variance.
    offset : array
        Bounds on |E x_i - centre_i| on the box. Those of the innermost box are assumed here; the sampled means verify
        them afterwards.
    escape : float
        Bound on the probability outside this box, under the field restricted to the next larger box; for the outermost
        box, under the field itself.
    """

    half: Floats
    variance: Floats
    offset: Floats
    escape: float = 0.0


@dataclass(frozen=True, eq=False)
class Boxed:
    """A field restricted to a box, with bounds on what the restriction changes.

    Attributes
    ----------
    form : FieldTerms
        The field on the innermost box.
    centre : array
        The centre of all boxes, near which chains start.
    variance : array
        Variance proxies of the variables on the innermost box.
    stages : list of BoxStage
        Nested boxes from the outermost to the innermost; empty if the user gave both limits of each variable.
    tails, squares : array
        Bounds on how much restricting the field to the outermost box changes the means of |x_i - centre_i| and of
        (x_i - centre_i)^2.
    """

    form: FieldTerms
    centre: Floats
    variance: Floats
    stages: list[BoxStage]
    tails: Floats
    squares: Floats

    @property
    def outside(self) -> float:
        """Return a bound on the probability that the unrestricted field is outside the innermost box."""
        return sum(stage.escape for stage in self.stages) * _UP

    def moved(self, positions: NDArray[np.int64], slopes: Floats) -> float:
        """Bound how much the restriction to the box changes the mean of a function with Lipschitz constants `slopes`.

        Conditioning on an event of probability 1 - p changes the mean of a sub-Gaussian variable with proxy v by at
        most p / (1 - p) sqrt(2 v ln(1 / p)).
        """
        if not self.stages:
            return 0.0
        total = float(slopes @ self.tails[positions])
        for outer, inner in zip(self.stages, self.stages[1:], strict=False):
            total += _shift(inner.escape, float(slopes @ np.sqrt(outer.variance[positions])))
        return total * _UP

    def moved_square(self, i: int) -> float:
        """Bound how much the restriction to the box changes the mean of (x_i - centre_i)^2.

        Given an event of probability p, the mean square of a centred sub-Gaussian variable with proxy v is at most 4 v
        (ln(1 / p) + ln(2) / 2).
        """
        if not self.stages:
            return 0.0
        total = float(self.squares[i])
        for outer, inner in zip(self.stages, self.stages[1:], strict=False):
            if (p := inner.escape) > 0.0:
                centred = 4.0 * outer.variance[i] * (math.log(1.0 / p) + 0.35)
                total += p * 2.0 * float(centred + outer.offset[i] ** 2)
        return total * _UP

    def clip(self, i: int, deviations: float) -> tuple[float, float, float]:
        """Return a half-width for clipping x_i - centre_i, and bounds on the changes of its mean and mean square."""
        half = float(max(self.form.upper[i] - self.centre[i], self.centre[i] - self.form.lower[i])) * _UP
        if not self.stages:
            return half, 0.0, 0.0
        offset, v = float(self.stages[-1].offset[i]), float(self.variance[i])
        reach = offset + deviations * math.sqrt(v)
        if reach >= half:
            return half, 0.0, 0.0
        # P(|x - centre| > u) <= 2 exp(-(u - offset)^2 / 2 v), integrated over u, and over 2 u.
        rest = 2.0 * v * math.exp(-0.5 * deviations**2) * _UP
        return reach, rest / (reach - offset), 2.0 * rest * reach / (reach - offset)


def _shift(p: float, deviation: Any) -> Any:
    """Bound how far conditioning on an event of probability 1 - p moves a mean (see `Boxed.moved`).

    The bound is p / (1 - p) sqrt(2 ln(1 / p)) deviation.
    """
    return p / (1.0 - p) * math.sqrt(2.0 * math.log(1.0 / p)) * deviation if p > 0.0 else 0.0 * deviation


def _two_tails(reach: Floats, variance: Floats) -> float:
    """Return 2 sum_i exp(-reach_i^2 / (2 variance_i)), which bounds P(|x_i - E x_i| > reach_i for some i)."""
    return float(2.0 * np.exp(-0.5 * np.maximum(reach, 0.0) ** 2 / variance).sum()) * _UP


def box_of(form: FieldTerms, outside: float, offset: float = OFFSETS[0]) -> Boxed:
    """Restrict a field to its limits or, if it has none, to a box outside which its probability is about `outside`."""
    if form.is_finite.any():
        raise _refuse("some variables are on finite sets of numbers, which have no density.")
    if form.n_variables > MAX_VARIABLES:
        raise _refuse(f"{form.n_variables} variables are too many for dense matrices (at most {MAX_VARIABLES}).")
    if form.is_bounded.all():
        variance = bound_variances(least_curvatures(form))
        if variance is None:
            raise _refuse("the energy is not convex on the box.")
        spread = np.minimum(variance, 0.25 * form.width**2)
        none = np.zeros(form.n_variables)
        return Boxed(form, descend(form), spread, [], none, none)
    if np.isfinite(form.lower).any() or np.isfinite(form.upper).any():
        raise _refuse("some variables have limits and others have not: give all of them both limits, or none.")
    return _BoxSearch(form, outside, offset).boxed()


def _refuse(reason: str) -> CertificateError:
    return CertificateError({"entropy": reason}, "")


class _BoxSearch:
    """Search for nested boxes that contain almost all of the probability of a field without limits."""

    def __init__(self, form: FieldTerms, outside: float, offset: float) -> None:
        prior = bound_inverse(least_curvatures(form))
        if prior is None:
            raise _refuse("the precision is not positive definite.")
        self.form, self.goal, self.offset, self.n = form, outside, offset, form.n_variables
        self.prior = (np.diag(prior[0]) + prior[1]) * _UP
        self.mode, self.centre = self._find_centre()
        slope = bound_slope(form, self.mode)
        # E |x - mode|^2 in the units of the prior is at most (sqrt(n) + g)^2, g the size of the gradient.
        size = math.sqrt(float(slope @ (np.abs(prior[0]) @ slope + prior[1] * slope.sum())) * _UP)
        self.spread = np.sqrt(self.prior) * (math.sqrt(self.n) + size) + np.abs(self.mode - self.centre)

    def _find_centre(self) -> tuple[Floats, Floats]:
        """Return the mode and approximate means of the field; bounds do not rely on their accuracy."""
        mode, self.variance = self._newton(descend(self.form), is_mean=False)
        mean, variance = self._newton(mode, is_mean=True)
        if not np.isfinite(mode).all():
            raise _refuse("no mode of the field was found.")
        if np.isfinite(mean).all() and (np.abs(mean - mode) < 5.0 * np.sqrt(self.variance)).all():
            self.variance = variance
            return mode, mean
        return mode, mode

    def _newton(self, x: Floats, is_mean: bool) -> tuple[Floats, Floats]:
        """Return a zero of the energy's gradient, found by Newton's method, and approximate variances there.

        With `is_mean`, the gradient is averaged over a normal law, which gives approximate means instead of the mode.
        """
        form, matrix = self.form, least_curvatures(self.form)
        own, variance = np.diag(matrix).copy(), np.zeros(self.n)
        with np.errstate(all="ignore"):
            for _ in range(100):
                bend = _average(lambda at: curvature_at(form, at), x, variance)
                matrix[np.diag_indices_from(matrix)] = own + bend
                if not np.isfinite(matrix).all():
                    return np.full(self.n, np.nan), variance
                inverse = np.linalg.inv(matrix)
                step = -inverse @ slope_at(form, x, variance)
                x = x + step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))
                before, variance = variance, np.diag(inverse) if is_mean else variance
                if np.abs(step).max() < 1e-12 and np.abs(variance - before).max() < 1e-9:
                    break
        return x, np.diag(inverse)

    def on(self, half: Floats) -> FieldTerms:
        return replace(self.form, lower=self.centre - half, upper=self.centre + half)

    def variances(self, half: Floats) -> Floats:
        variance = bound_variances(least_curvatures(self.on(half)))
        return self.prior if variance is None else np.minimum(variance, self.prior)

    def boxed(self) -> Boxed:
        stages = [self._outermost()]
        while len(stages) < _MAX_STAGES:
            outer = stages[-1]
            z = math.sqrt(2.0 * math.log(2.0 * self.n * 2.0 * _MAX_STAGES / self.goal))
            half = np.minimum(outer.half, (z + 1.2 * self.offset) * np.sqrt(outer.variance))
            if (half > 0.98 * outer.half).all():
                break
            stages.append(BoxStage(half, self.variances(half), np.empty(0)))
        return self._certify(stages)

    def _outermost(self) -> BoxStage:
        """Return a box outside which the field has at most about half of the allowed probability."""
        half = 6.0 * np.sqrt(self.variance)
        for _ in range(_GROWTH_TRIALS):
            variance = self.variances(half)
            needed = self.goal / 2.0 * (1.0 - _INNER_SHARE) / max(self._horizon(half), 1.0)
            z = math.sqrt(2.0 * math.log(2.0 * self.n / needed))
            new = (z + 1.3 * self.offset) * np.sqrt(variance) / _INNER_SHARE
            if (new <= half * 1.0001).all():
                break
            half = np.minimum(np.maximum(half, new), _MOST_DEVIATIONS * np.sqrt(self.prior))
        return BoxStage(half, self.variances(half), np.empty(0))

    def _horizon(self, half: Floats) -> float:
        """Return the factor by which to scale a box so that it holds all but `_FAR_CHANCE` of the probability."""
        far = math.sqrt(2.0 * math.log(2.0 * self.n / _FAR_CHANCE))
        return float(((self.spread + far * np.sqrt(self.prior)) / half).max()) * _UP

    def _certify(self, stages: list[BoxStage]) -> Boxed:
        """Bound the probability outside each box, from the innermost to the outermost.

        The bounds hold for any nested boxes.
        """
        known = [replace(stages[-1], offset=self.offset * np.sqrt(stages[-1].variance))]
        for outer in reversed(stages[:-1]):
            inner, deviation = known[0], np.sqrt(outer.variance)
            more = 0.0
            for _ in range(20):
                p = _two_tails(inner.half * (1.0 - 1e-12) - inner.offset - more * deviation, outer.variance)
                if not p < 0.1:
                    raise self._too_wide(stages[0])
                if _shift(p, 1.0) * _UP < more or p == 0.0:
                    break
                more = 1.5 * _shift(p, 1.0)
            else:
                raise self._too_wide(stages[0])
            known = [replace(outer, offset=inner.offset + more * deviation), replace(inner, escape=p), *known[1:]]
        outer, horizon = known[0], self._horizon(known[0].half)
        reach = outer.half * (1.0 - 1e-12)
        shell = _two_tails(_INNER_SHARE * reach - outer.offset, outer.variance)
        escape = (_FAR_CHANCE + shell * max((horizon - 1.0) / (1.0 - _INNER_SHARE), 1.0)) * _UP
        if not escape < 0.1:
            raise self._too_wide(outer)
        known[0] = replace(outer, escape=escape)
        # P(x_i > centre_i + u) is log-concave in u, at least 0.86 (1 - escape) at -back, at most `escape` at
        # `half`.
        back = outer.offset + 2.0 * np.sqrt(outer.variance)
        scale = (outer.half + back) / math.log(0.86 * (1.0 - escape) / escape)
        tails = 2.0 * scale + outer.half + outer.offset + np.sqrt(outer.variance)
        squares = 4.0 * scale * (outer.half + scale) + outer.half**2 + outer.variance + outer.offset**2
        form = self.on(stages[-1].half)
        return Boxed(form, self.centre, known[-1].variance, known, escape * tails * _UP, escape * squares * _UP)

    def _too_wide(self, stage: BoxStage) -> CertificateError:
        i = int(np.argmax(stage.half))
        return _refuse(
            "the probability outside a box around the field has no useful bound: half-widths of up to "
            f"{stage.half[i]:.3g} would be needed, where the observations constrain the variables too little. A larger "
            "precision, narrower priors of coefficients, or limits (lower=, upper=) help."
        )


@dataclass(frozen=True, eq=False)
class Decay:
    """Decay of the relative entropy of a chain that updates uniformly chosen variables, from a uniform start.

    Attributes
    ----------
    rate : float
        The least eigenvalue of H, scaled to a unit diagonal: each step multiplies the entropy by 1 - rate / n or less.
    entropy : float
        Bound on the relative entropy of the start.
    point, spread : arrays
        A chain starts uniformly on the intervals from point_i - spread_i to point_i + spread_i.
    """

    rate: float
    entropy: float
    point: Floats
    spread: Floats

    def steps(self, entropy: float) -> int:
        """Return the number of steps after which the relative entropy is at most `entropy`."""
        share = math.log1p(-self.rate / len(self.point))
        return max(1, math.ceil(math.log(min(entropy / self.entropy, 1.0)) / share * _UP))


def decay_of(boxed: Boxed) -> Decay:
    """Choose a uniform start for chains on a box, and bound its relative entropy and how fast this falls.

    The start is a product of uniform laws with means `point`, variances spread^2 / 3 and entropies ln(2 spread). The
    bound compares the energy with two quadratic functions: one with the largest curvatures on the start's intervals,
    from above, and one with the least curvatures on the box, from below.
    """
    form, matrix = boxed.form, least_curvatures(boxed.form)
    eigenvalues, known = bound_eigenvalues(matrix), bound_inverse(matrix)
    rate = float(eigenvalues[0])
    if known is None or not rate > 0.0:
        raise _refuse("the least curvature on the box is not positive definite.")
    n = form.n_variables
    spread = np.minimum(np.sqrt(3.0 / (form.diagonal + curvature_at(form, boxed.centre))), 0.499 * form.width)
    point = np.clip(boxed.centre, form.lower + spread, form.upper - spread)
    largest: Any = sum(
        term.largest_curvature(amount, point - spread, point + spread) for term, amount in form.likelihood
    )
    slope = bound_slope(form, point)
    logarithm = float(np.log(eigenvalues).sum() + np.log(np.diag(matrix)).sum())  # of the determinant, from below
    energy = ((form.diagonal + form.diagonal_error + largest) * spread**2).sum() / 6.0
    missed = 0.5 * float(slope @ (np.abs(known[0]) @ slope + known[1] * slope.sum())) * _UP
    entropy = energy + missed - np.log(2.0 * spread).sum() + 0.5 * (n * math.log(2.0 * math.pi) - logarithm)
    if not math.isfinite(entropy):
        raise _refuse("the relative entropy of the start has no finite bound.")
    return Decay(min(rate, 1.0), max(float(entropy) + 1e-6 * n, 1e-3), point, spread)
