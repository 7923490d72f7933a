"""Gaussian envelopes of dense Ising models with weak couplings. [trusted: `Envelope.law`, `Envelope.distortion`]

Theory page, "The Gaussian envelope". A suitable diagonal makes the matrix of couplings positive definite. It is then
the covariance of Gaussian local fields, given which the spins are independent. Summing over the spins gives a product
of hyperbolic cosines, each of which is at most the exponential of a parabola that touches it at two points. So the law
of the fields lies below a Gaussian density, the envelope, whose integral is an upper bound U on the partition function.

The diagonal and the touching points are chosen to make U small; the bound holds for any choice.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple, TypeGuard

import numpy as np

from dobrushin._models.forms import Form
from dobrushin._models.ising import SpinPairs
from dobrushin._shared.arrays import UNIT, Floats, frozen
from dobrushin._shared.call import LateError, current_deadline

# Largest number of spins, and least average number of their neighbours, with which an envelope is tried.
_MAX_SPINS, _LEAST_DEGREE = 512, 12.0
# Seconds of a step of the search for n spins, divided by n^3 (benchmarks/strong.py).
_SECONDS_PER_CUBE = 1e-9
# The first diagonal exceeds the least one by this share of the largest eigenvalue; touching points begin beyond the
# largest eigenvalue by another share.
_ROOM, _BEYOND = 0.05, 1.1
# Steps towards the best points before the diagonal is improved.
_FIRST_STEPS = 8
# The barrier around indefinite matrices: its first weight, the factor by which it falls, and what log U may lose by it.
_BARRIER, _FALL, _LOSS = 1.0, 0.25, 0.01
# A step is halved at most this number of times.
_HALVINGS = 30
# Error of a normal number, and of the logarithm of a hyperbolic cosine relative to its terms (kernels `envelope`).
_NORMAL_ERROR, _COSH_ERROR = 2.0**-45, 2.0**-46
# Normal numbers g have |g| <= sqrt(n) + _RADIUS, but for a probability of exp(-_RADIUS^2 / 2) < 2^-58.
_RADIUS = 9.0


def has_envelope(form: Form) -> TypeGuard[SpinPairs]:
    """Return whether a Gaussian envelope may be useful: the model is dense and has not too many spins."""
    n = form.n_variables
    return isinstance(form, SpinPairs) and n <= _MAX_SPINS and form.couplings.nnz >= _LEAST_DEGREE * n


class EnvelopeLaw(NamedTuple):
    """The Gaussian law of the local fields and the parabolas, as arguments of the loop `draw_fields`."""

    factor: Floats  # transposed Cholesky factor of the covariance
    shift: Floats
    fields: Floats
    curvature: Floats
    tops: Floats


class _Gauss(NamedTuple):
    """The envelope for one choice of diagonal and touching points, with its bound log U.

    `inverse` is (1/W - A)^-1, where A has the couplings and this diagonal, and W the curvatures of the parabolas;
    `mean` is its product with the fields.
    """

    log_bound: float
    inverse: Floats
    mean: Floats

    @property
    def sizes(self) -> Floats:
        """Return 1 plus twice the derivative of log U with respect to each entry of the diagonal."""
        return np.diag(self.inverse) + self.mean**2


class Envelope:
    """Gaussian envelope of an Ising model, which bounds its partition function from above.

    Attributes
    ----------
    couplings : array of shape (n, n)
    fields : array
    diagonal : array
        Diagonal that makes the matrix of couplings positive definite.
    points : array
        Absolute values of the local fields at which the parabolas touch.
    log_bound : float
        Upper bound log U on the logarithm of the partition function, up to rounding.
    """

    is_exact = False

    def __init__(self, couplings: Floats, fields: Floats) -> None:
        self.couplings, self.fields = couplings, fields
        eigenvalues = np.linalg.eigvalsh(couplings)
        low, size = float(eigenvalues[0]), float(np.abs(eigenvalues).max()) + 1e-6
        self.diagonal = np.full(len(fields), max(-low, 0.0) + _ROOM * size)
        self.points = np.full(len(fields), _BEYOND * (float(eigenvalues[-1]) + float(self.diagonal[0])))
        self.log_bound = math.inf

    @property
    def step_seconds(self) -> float:
        """Return the estimated seconds of one step of the search for diagonal and touching points."""
        return _SECONDS_PER_CUBE * len(self.fields) ** 3 + 1e-4

    def begin(self) -> None:
        """Choose touching points for a uniform diagonal."""
        for _ in range(_FIRST_STEPS):
            self._match()

    def improve(self) -> None:
        """Improve the diagonal and the touching points in turns, as long as planning time is left.

        The weight of the barrier that keeps the couplings positive definite falls meanwhile, until it costs little.
        """
        weight = _BARRIER
        vars(self).pop("law", None)
        try:
            while weight * len(self.fields) > _LOSS:
                weight *= _FALL
                current_deadline().charge(6.0 * self.step_seconds, "a Gaussian envelope")
                self._match()
                self._lower(weight)
                self._match()
                self._lower(weight)
        except LateError:
            return

    # -- the search --

    def _try(self, diagonal: Floats, points: Floats) -> _Gauss | None:
        """Return the envelope with this diagonal and these touching points; None if there is none."""
        curvature = curvature_at(points)
        precision = np.diag(1.0 / curvature - diagonal) - self.couplings
        try:
            root = np.linalg.cholesky(precision)
        except np.linalg.LinAlgError:
            return None
        inverse = _inverse(precision)
        mean = inverse @ self.fields
        log_det = 2.0 * np.log(np.diag(root)).sum() + np.log(curvature).sum()
        bound = tops_at(points, curvature).sum() - 0.5 * (diagonal.sum() + log_det - self.fields @ mean)
        return _Gauss(float(bound), inverse, mean) if math.isfinite(bound) else None

    def _match(self) -> None:
        """Move the touching points towards the root mean squares of the local fields, where the bound is least."""
        found = self._try(self.diagonal, self.points)
        if found is None:
            return
        curvature, old = curvature_at(self.points), self.points**2
        wanted = np.maximum(found.sizes / curvature**2 - 1.0 / curvature, 0.0)
        share = 1.0
        for _ in range(_HALVINGS):
            points = np.sqrt(old + share * (wanted - old))
            moved = self._try(self.diagonal, points)
            if moved is not None and moved.log_bound <= found.log_bound:
                self.points, self.log_bound = points, moved.log_bound
                return
            share *= 0.5

    def _lower(self, weight: float) -> None:
        """Lower log U - weight * log det(J + D) by a Newton step of the diagonal D, where J are the couplings.

        The second term is a barrier that keeps J + D positive definite.
        """
        found, inverse = self._try(self.diagonal, self.points), self._barrier(self.diagonal)
        if found is None or inverse is None:
            return
        gradient = 0.5 * (found.sizes - 1.0) - weight * np.diag(inverse[1])
        both = np.outer(found.mean, found.mean)
        hessian = (0.5 * found.inverse + both) * found.inverse + weight * inverse[1] ** 2
        step = np.linalg.solve(hessian, -gradient)
        value, share = found.log_bound - weight * inverse[0], 1.0
        for _ in range(_HALVINGS):
            diagonal = self.diagonal + share * step
            moved, other = self._try(diagonal, self.points), self._barrier(diagonal)
            if moved is not None and other is not None and moved.log_bound - weight * other[0] <= value:
                self.diagonal, self.log_bound = diagonal, moved.log_bound
                return
            share *= 0.5

    def _barrier(self, diagonal: Floats) -> tuple[float, Floats] | None:
        """Return the log-determinant and the inverse of the couplings with this diagonal; None if indefinite."""
        matrix = self.couplings + np.diag(diagonal)
        try:
            root = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return None
        return 2.0 * float(np.log(np.diag(root)).sum()), _inverse(matrix)

    # -- the law of the fields --

    @cached_property
    def law(self) -> EnvelopeLaw:
        """Return the law from which local fields are drawn; raise `LinAlgError` if there is none.

        Its numbers are rounded, but any law of this form is the exact envelope of some model; `distortion` bounds how
        much that model differs.
        """
        curvature = curvature_at(self.points)
        matrix = self.couplings + np.diag(self.diagonal)
        inner = np.linalg.inv(np.diag(1.0 / curvature) - matrix)
        covariance = matrix + matrix @ inner @ matrix
        factor = np.linalg.cholesky(0.5 * (covariance + covariance.T)).T
        shift = factor @ (curvature * self.fields)
        arrays = (factor, shift, self.fields, curvature, tops_at(self.points, curvature))
        return EnvelopeLaw(*map(frozen, arrays))

    @cached_property
    def distortion(self) -> float:
        """Bound twice the effect of rounding on the logarithm of a state's probability, up to a constant."""
        factor, shift, fields, curvature, _ = self.law
        n, up = len(fields), 1.0 + 2.0**-30
        # Normal numbers, and local fields: their sizes, and how far they may be off.
        normals = math.sqrt(n) + _RADIUS
        sizes = np.abs(fields) + np.linalg.norm(factor, axis=0) * (normals + np.linalg.norm(shift)) * up
        errors = np.abs(factor).sum(axis=0) * _NORMAL_ERROR + (n + 4) * UNIT * sizes
        # Majorisers; the spins; the shift.
        squares = curvature * (sizes**2 + self.points**2)
        each = (3.0 + curvature * sizes) * errors + _COSH_ERROR * (2.0 + sizes + squares)
        shifts = float(np.linalg.norm((n + 2) * UNIT * np.abs(factor) @ (curvature * np.abs(fields))))
        return 2.0 * up * (float(each.sum()) + shifts * (normals + shifts) + self._misfit())

    def _misfit(self) -> float:
        """Bound the difference between the log-density of the model and that of the model whose envelope is drawn from.

        Let S be the rounded covariance of the local fields, W the diagonal matrix of the parabolas' curvatures, and A
        the couplings with the diagonal. The model whose envelope is drawn from has the couplings A' = S (1 + W S)^-1
        off the diagonal. So (A' - A)(1 + W S) = S - A - A W S, and the spectral norm of (1 + W S)^-1 is at most the
        root of max W / min W.
        """
        factor, _, _, curvature, _ = self.law
        n = len(curvature)
        matrix = self.couplings + np.diag(self.diagonal)
        covariance, weighted = factor.T @ factor, matrix * curvature
        residual = np.abs(covariance - matrix - weighted @ covariance)
        sizes = np.abs(factor).T @ np.abs(factor)
        rounding = (2 * n + 8) * UNIT * (sizes + np.abs(matrix) + np.abs(weighted) @ sizes)
        ratio = math.sqrt(float(curvature.max() / curvature.min()))
        return 0.5 * n * ratio * float(np.linalg.norm(residual + rounding))


def _inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def curvature_at(points: Floats) -> Floats:
    """Return the curvatures tanh(c) / c of the parabolas that touch log(2 cosh) at the points c."""
    is_small = points < 1e-4
    safe = np.where(is_small, 1.0, points)
    return np.where(is_small, 1.0 - points**2 / 3.0, np.tanh(safe) / safe)


def tops_at(points: Floats, curvature: Floats) -> Floats:
    """Return the constant terms of the parabolas that touch log(2 cosh) at these points."""
    return points + np.log1p(np.exp(-2.0 * points)) - 0.5 * curvature * points**2
