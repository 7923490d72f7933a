"""Marginal likelihoods of fields that differ in their prior, compared with each other. [trusted]

Theory page, "Several priors". The logarithm of a marginal likelihood is the log-integral of the observed field less
that of its prior. Those of Gaussian fields are solved. Others are compared by steps: each ends at a precision that is
above that of a base field, so that the ratio of both integrals is the mean of a function with values in [0, 1].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dobrushin._estimate.estimator import estimate, plan
from dobrushin._estimate.targets import Statistic
from dobrushin._fields.boxes import (
    bound_inverse,
    bound_slope,
    curvature_at,
    descend,
    least_eigenvalue,
    scaled_eigenvalues,
    slope_at,
)
from dobrushin._fields.intervals import SHARES, values_expected
from dobrushin._fields.model import GaussianField
from dobrushin._fields.terms import FieldTerms
from dobrushin._shared.arrays import Floats
from dobrushin._shared.call import NO_DEADLINE, Deadline
from dobrushin._shared.running import RunOptions, child_seed

# Largest drop of a log-integral from the base of a step to its end, as Laplace's approximation predicts it: the means
# in [0, 1] that are sampled are then about e^-2 or more, where the fewest draws are needed in all. And the largest
# number of pieces of a line between two priors.
_MAX_DROP, _MAX_PIECES = 2.0, 64
# Part of the smaller diagonal that a base is below both ends, so that rounding cannot put it above one of them.
_MARGIN = 1e-9
_UP = 1.0 + 1e-9


class Drawing(NamedTuple):
    """How the draws for the weights are run."""

    seed: np.random.SeedSequence
    deadline: Deadline
    options: RunOptions


def time_share(deadline: Deadline, left: int) -> float | None:
    """Return the seconds for the next of several pieces of work; fail if the time limit is over."""
    if deadline is NO_DEADLINE:
        return None
    deadline.check()
    return max(deadline.left / left, 1e-3)


class Bounds(NamedTuple):
    """Lower and upper bound of a number."""

    low: float
    high: float

    def minus(self, other: Bounds) -> Bounds:
        """Return bounds on the difference."""
        return Bounds(self.low - other.high, self.high - other.low)


def prior_matrix(form: FieldTerms) -> Floats:
    """Return the precision of a field without likelihoods as a dense matrix."""
    matrix: Floats = form.couplings.toarray()
    matrix[np.diag_indices_from(matrix)] = form.diagonal
    return matrix


def solved_integral(form: FieldTerms) -> Bounds | None:
    """Bound the log-integral of a Gaussian field less (n / 2) ln(2 pi); None if it is not surely finite.

    This is b'P^-1 b / 2 - ln(det P) / 2, with the errors of P and b as the field carries them.
    """
    matrix, b = prior_matrix(form), np.abs(form.linear)
    known = bound_inverse(matrix, form.diagonal_error)
    eigenvalues, error = scaled_eigenvalues(matrix)
    error += float((form.diagonal_error / form.diagonal).max()) * _UP
    if known is None or not eigenvalues[0] > 2.0 * error:
        return None
    n, logs = len(b), np.concatenate([np.log(eigenvalues), np.log(form.diagonal)])
    determinant_error = float((error / (eigenvalues - error)).sum()) + (2 * n + 4.0) * 2.0**-50 * float(
        np.abs(logs).sum()
    )
    size = np.abs(known[0]) + known[1][:, None]
    moved = form.linear_error @ size @ (2.0 * b + form.linear_error) + (b @ known[1]) * b.sum()
    rounding = (n + 4.0) * 2.0**-50 * float(b @ size @ b)
    value = 0.5 * (float(form.linear @ known[0] @ form.linear) - float(logs.sum()))
    reach = 0.5 * (determinant_error + float(moved) + rounding) * _UP
    return Bounds(value - reach, value + reach)


class NormalApproximation(NamedTuple):
    """The normal law with the mode and the curvature of a field, and Laplace's approximation of the log-integral."""

    log_integral: float  # less (n / 2) ln(2 pi)
    mode: Floats
    covariance: Floats


def approximate(form: FieldTerms) -> NormalApproximation:
    """Return the normal approximation of a field."""
    mode = descend(form)
    matrix = prior_matrix(form) + np.diag(curvature_at(form, mode))
    slope, covariance = slope_at(form, mode), np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    inside = 0.5 * float(slope @ covariance @ slope - np.linalg.slogdet(matrix)[1])
    return NormalApproximation(float(form.log_density(mode[None, :])[0]) + inside, mode, covariance)


def second_moments(form: FieldTerms) -> Floats:
    """Bound E x_i^2 of a field whose prior is Gaussian; infinite if its precision is not surely positive definite."""
    known = bound_inverse(prior_matrix(form), form.diagonal_error)
    if known is None:
        return np.full(form.n_variables, np.inf)
    mode = descend(form)
    slope = bound_slope(form, mode)
    size = math.sqrt(float(slope @ (np.abs(known[0]) @ slope + known[1] * slope.sum())) * _UP)
    deviation = np.sqrt((np.diag(known[0]) + known[1]) * _UP)
    return np.asarray((np.abs(mode) + deviation * (math.sqrt(form.n_variables) + size)) ** 2 * _UP)


@dataclass(frozen=True)
class Shrink:
    """The function exp(-x'Gx / 2) of states, for a matrix G without negative eigenvalues."""

    gap: Floats

    def __call__(self, x: Floats) -> Floats:
        return np.asarray(np.exp(-0.5 * np.maximum(np.einsum("ci,ci->c", x @ self.gap, x), 0.0)))

    @property
    def slopes(self) -> Floats:
        """Return the function's Lipschitz constants: sqrt(G_ii / e), because |y| e^{-|y|^2 / 2} is at most e^{-1/2}."""
        return np.asarray(np.sqrt(np.diag(self.gap) / math.e) * _UP)


@dataclass(frozen=True, eq=False)
class Drop:
    """The logarithm of Z(base precision + gap) / Z(base precision), the integrals of two observed fields.

    Attributes
    ----------
    base : GaussianField
    gap : array
        A matrix without negative eigenvalues.
    predicted : float
        The logarithm by Laplace's approximation.
    spread : float
        Variance of x'Gx / 2 by the normal approximation, G the gap.
    """

    base: GaussianField
    gap: Floats
    predicted: float
    spread: float

    @property
    def known(self) -> Bounds:
        """Return bounds on the logarithm of the ratio without draws: by Jensen's inequality if the gap is diagonal."""
        own = np.diag(self.gap)
        if np.count_nonzero(self.gap) > np.count_nonzero(own):
            return Bounds(-math.inf, 0.0)
        return Bounds(-0.5 * float(own @ second_moments(self.base._form)) * _UP, 0.0)

    def _ask(self, width: float) -> tuple[Statistic, float]:
        """Return the statistic whose mean is the ratio, and the tolerance for a half-width of the logarithm."""
        shrink = Shrink(self.gap)
        weights = dict(zip(self.base.labels, shrink.slopes.tolist(), strict=True))
        return Statistic(shrink, weights, (0.0, 1.0), "ratio"), 0.9 * width * math.exp(self.predicted)

    def seconds(self, width: float, confidence: float) -> float:
        """Predict how long `bounds` takes."""
        statistic, tolerance = self._ask(width)
        planned = plan(self.base, statistic, tolerance=tolerance, confidence=confidence)
        variance = math.exp(2.0 * self.predicted) * min(1.0, math.expm1(min(self.spread, 1.0)))
        expected = values_expected(tolerance, variance, (1.0 - confidence) / SHARES[0][0])
        return planned.seconds * min(1.0, expected / max(planned.chains, 1))

    def bounds(self, width: float, confidence: float, work: Drawing, number: int, left: int) -> Bounds:
        """Bound the logarithm within about `width`, by draws from the base field.

        This is drop `number` of the work, and `left` drops, this one included, share the time that is left.
        """
        statistic, tolerance = self._ask(width)
        answer = estimate(
            self.base, statistic, tolerance=tolerance, confidence=confidence, seed=child_seed(work.seed, number),
            time_limit=time_share(work.deadline, left), run=work.options,
        )  # fmt: skip
        size = np.sqrt(second_moments(self.base._form))
        rounding = (len(size) + 8.0) * 2.0**-50 * float(size @ np.abs(self.gap) @ size)  # of gap and x' gap x
        low, high = float(answer.lower[0]) - rounding, min(float(answer.upper[0]) + rounding, 1.0)
        return Bounds(math.log(low) - 1e-12 if low > 0.0 else -math.inf, math.log(high) + 1e-12)


def steps_between(
    first: Floats, second: Floats, observed: Callable[[Floats], GaussianField]
) -> list[tuple[Drop, Drop]] | None:
    """Return steps from one prior precision to another; None if no number of steps makes them small enough.

    A step is a pair of `Drop`s, from a common base field to both ends of the step. The difference of the log-integrals
    of the two observed fields is the sum of the second drops less the sum of the first ones.
    """
    pieces = 1
    while pieces <= _MAX_PIECES:
        shares = np.linspace(0.0, 1.0, pieces + 1)
        points = [first, *((1.0 - share) * first + share * second for share in shares[1:-1]), second]
        steps, least = [], -math.inf
        for a, b in itertools.pairwise(points):
            step = _step(a, b, observed)
            least = -math.inf if step is None else min(drop.predicted for drop in step)
            if step is None or least < -_MAX_DROP:
                break
            steps.append(step)
        else:
            return steps
        pieces = math.ceil(pieces * max(2.0, -least / _MAX_DROP)) if math.isfinite(least) else 2 * pieces
    return None


def _step(first: Floats, second: Floats, observed: Callable[[Floats], GaussianField]) -> tuple[Drop, Drop] | None:
    """Return two `Drop`s: from a base precision below both given ones to each of them; None if no base is found.

    The base is one of the two precisions less a small margin, if that is enough. Else it is the first one less a
    diagonal matrix, or less the part of the change with negative eigenvalues.
    """
    margin = _MARGIN * np.diag(np.minimum(np.diag(first), np.diag(second)))
    change = second - first
    dominated = np.maximum(np.abs(change).sum(axis=1) - np.abs(np.diag(change)) - np.diag(change), 0.0)
    values, vectors = np.linalg.eigh(change)
    falling = (vectors * np.maximum(-values, 0.0)) @ vectors.T
    for taken in (margin, margin - change, margin + np.diag(dominated), margin + 0.5 * (falling + falling.T)):
        base = first - taken
        gaps = first - base, second - base
        if all(least_eigenvalue(matrix) > 0.0 for matrix in (base, *gaps)):
            field = observed(base)
            start = approximate(field._form)
            one, other = (
                _drop(field, start, gap, observed(end)) for gap, end in zip(gaps, (first, second), strict=True)
            )
            return one, other
    return None


def _drop(base: GaussianField, start: NormalApproximation, gap: Floats, end: GaussianField) -> Drop:
    moved = gap @ start.covariance
    spread = 0.5 * float(np.einsum("ij,ji->", moved, moved) + 2.0 * start.mode @ moved @ gap @ start.mode)
    return Drop(base, gap, min(approximate(end._form).log_integral - start.log_integral, 0.0), spread)


def matrix_field(prior: GaussianField, matrix: Floats) -> GaussianField:
    """Return a prior with another precision."""
    return GaussianField(sparse.csr_array(matrix), prior.linear, labels=prior.labels)
