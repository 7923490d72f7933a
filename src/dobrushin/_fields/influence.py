"""Influence bounds for fields: C_ij = s_i |Q_ij|, where s_i bounds the variance of x_i given the others. [trusted]

Theory page, "Fields". All numbers are rounded up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dobrushin._fields.terms import FieldTerms
from dobrushin._influence.rows import THEOREMS, RowBounds, WantedRows, theorem_for
from dobrushin._shared.arrays import row_entries
from dobrushin.errors import ArgumentError

CONVEX = THEOREMS.index("strong convexity")
CENTRED = THEOREMS.index("centred truncated normal")
RANGE = THEOREMS.index("known range of the neighbours")
LEVELS = THEOREMS.index("values of the variable")

# More than the rounding of a few operations, and than the error of SciPy's error functions.
_UP = 1.0 + 2.0**-44
_ERF_ERROR = 1e-12
# Half-widths, in standard deviations, below which the width alone is as good; and intervals, in units of how fast the
# density changes, below which the closed form of the variance cancels.
_NARROW_DEVIATIONS, _SHORT_INTERVAL = 0.3, 0.1
_FAR_OUT = 2.0**20


class Variances(NamedTuple):
    """Bounds on the conditional variances of some variables, and which theorem each bound comes from."""

    values: NDArray[np.float64]
    theorem: NDArray[np.uint8]


def conditional_variances(form: FieldTerms, positions: NDArray[np.int64]) -> Variances:
    """Return the smallest known bound on the conditional variance of each of some variables.

    For a proof (`form.is_plain`) the simplest bound is returned, which the checker can recompute.
    """
    finite = form.is_finite[positions]
    if form.is_plain:
        square = form.width[positions] ** 2
        plain = np.where(finite, square / 4.0, np.minimum(1.0 / form.diagonal[positions], square / 12.0)) * _UP
        return Variances(plain, np.where(finite, LEVELS, CONVEX).astype(np.uint8))
    continuous, some = positions[~finite], positions[finite]
    values, theorem = np.empty(len(positions)), np.empty(len(positions), dtype=np.uint8)
    values[~finite], theorem[~finite] = _continuous(form, continuous)
    values[finite], theorem[finite] = _finite(form, some)
    return Variances(values, theorem)


def _continuous(form: FieldTerms, positions: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    m, width = form.curvature[positions], form.width[positions]
    values = centred_variance(m, width) * _UP
    theorem = np.where(np.isinf(width), CONVEX, CENTRED).astype(np.uint8)
    # The sup over a range of h is in closed form for truncated Gaussians.
    plain = ~form.amounts[:, positions].any(axis=0)
    truncated = np.isfinite(form.lower[positions]) | np.isfinite(form.upper[positions])
    rows = np.flatnonzero(plain & truncated)
    if len(rows):
        low, high = _field_range(form, positions[rows])
        known = np.isfinite(low) & np.isfinite(high)
        rows, low, high = rows[known], low[known], high[known]
        i = positions[rows]
        sharper = truncated_variance(form.diagonal[i], form.lower[i], form.upper[i], low, high) * _UP
        better = sharper < values[rows]
        values[rows[better]], theorem[rows[better]] = sharper[better], RANGE
    return values, theorem


def centred_variance(m: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of N(0, 1/m) truncated to an interval of this width around 0; the width may be infinite."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        t = 0.5 * width * np.sqrt(m)
        inside = special.erf(t / np.sqrt(2.0))
        lost = np.where(t < 40.0, np.sqrt(2.0 / np.pi) * t * np.exp(-0.5 * t * t) / inside, 0.0)
        closed = (1.0 - lost + _ERF_ERROR) / m
    return np.minimum(np.where(t < _NARROW_DEVIATIONS, np.inf, closed), np.minimum(width * (width / 12.0), 1.0 / m))


def _field_range(form: FieldTerms, positions: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bound the linear term linear_i - sum_j Q_ij x_j of each variable over all values of its neighbours."""
    matrix = form.couplings
    first = matrix.indptr[positions].astype(np.int64)
    start, entry = row_entries(first, matrix.indptr[positions + 1] - first)
    weights, columns = matrix.data[entry], matrix.indices[entry]
    row = np.repeat(np.arange(len(positions)), np.diff(start))
    ends = np.stack([weights * form.lower[columns], weights * form.upper[columns]])
    h_low = np.bincount(row, ends.min(axis=0), len(positions))
    h_high = np.bincount(row, ends.max(axis=0), len(positions))
    size = np.bincount(row, np.abs(ends).max(axis=0), len(positions)) + np.abs(form.linear[positions])
    with np.errstate(invalid="ignore"):
        slack = size * 2.0**-50 * (np.diff(start) + 4) + form.linear_error[positions]
        return form.linear[positions] - h_high - slack, form.linear[positions] - h_low + slack


def truncated_variance(
    m: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64], low: Any, high: Any
) -> NDArray[np.float64]:
    """Return the largest variance of the density exp(-m x^2 / 2 + c x) on [lower, upper] for c between low and high.

    The variance falls with the distance of the peak c / m from the middle of the interval (theory page), so the nearest
    peak gives the largest variance. The result is infinite where cancellation would spoil the closed form.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        middle = 0.5 * (lower + upper)  # infinite where one end is: the variance grows towards the open side
        peak = np.clip(middle, low / m, high / m)
        root = np.sqrt(m)
        a, b = (lower - peak) * root, (upper - peak) * root
        flip = a + b < 0
        a, b = np.where(flip, -b, a), np.where(flip, -a, b)  # now |a| <= b
        # Everything relative to the density at a.
        ratio = np.exp(-0.5 * (b - a) * (b + a))
        tail = special.erfcx(a / np.sqrt(2.0)) - np.where(np.isinf(b), 0.0, ratio * special.erfcx(b / np.sqrt(2.0)))
        mass = np.sqrt(np.pi / 2.0) * tail
        end = np.where(np.isinf(b), 0.0, b * ratio)
        first, second = a / mass, end / mass
        shift = (1.0 - np.where(np.isinf(b), 0.0, ratio)) / mass
        closed = 1.0 + first - second - shift * shift
        size = 1.0 + np.abs(first) + second + shift * shift
        usable = ((b - a) * (1.0 + np.abs(a)) > _SHORT_INTERVAL) & np.isfinite(size) & (a > -30.0)
        # Far from 0 the middle of the interval is rounded too much.
        usable &= np.minimum(np.abs(lower), np.abs(upper)) * root < _FAR_OUT
        return np.where(usable, (closed + 1e-11 * size) / m, np.inf)


def _finite(form: FieldTerms, positions: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Bound the conditional variances of variables on finite sets of numbers.

    The bound is L^2 / 4, with L the distance from the least to the largest value. It is smaller for evenly spaced
    values, whose weights are log-concave, and for two values whose log-odds stay away from 0.
    """
    width = form.width[positions]
    values = width * (width * 0.25)
    start, sizes = form.value_start[positions], np.diff(form.value_start)[positions]
    low, high = _field_range(form, positions) if len(positions) else (np.empty(0), np.empty(0))
    for r, (first, size) in enumerate(zip(start.tolist(), sizes.tolist(), strict=True)):
        points = form.values[first : first + size]
        gaps = np.diff(points)
        if size == 2:
            values[r] = min(values[r], _two_values(form.diagonal[positions[r]], points, low[r], high[r]))
        elif gaps.max() <= gaps.min() * (1 + 1e-9):
            # K + 1 points, K (K + 2) / 12 of the squared distance; uneven by rounding only.
            values[r] = min(values[r], gaps.max() ** 2 * (size - 1) * (size + 1) / 12.0 * (1 + 1e-8))
    return values * _UP, np.full(len(positions), LEVELS, dtype=np.uint8)


def _two_values(own: float, points: NDArray[np.float64], low: float, high: float) -> float:
    """Return the largest variance of a variable with two values, whose linear term is between `low` and `high`."""
    gap = float(points[1] - points[0])
    shift = -0.5 * own * (float(points[1]) ** 2 - float(points[0]) ** 2)
    if not np.isfinite(low) or not np.isfinite(high):
        return gap * gap * 0.25 * _UP
    least, most = shift + gap * low, shift + gap * high
    slack = 2.0**-48 * (abs(shift) + gap * max(abs(low), abs(high)) + 0.5 * own * float(np.square(points).max()))
    odds = max(0.0, least - slack, -most - slack)
    return gap * gap * 0.25 / float(np.cosh(min(0.5 * odds, 300.0))) ** 2 * _UP


@theorem_for(FieldTerms)
def field_rows(form: FieldTerms, wanted: WantedRows) -> RowBounds:
    """Return the influence bounds C_ij = s_i |Q_ij| for the wanted rows."""
    if wanted.method != "best":
        raise ArgumentError("method", "'best' for a field", wanted.method)
    bounds = wanted.no_bounds()
    s = conditional_variances(form, wanted.positions)
    degree = np.diff(wanted.start)
    bounds.values[:] = np.repeat(s.values, degree) * np.abs(form.couplings.data[wanted.entries(form.couplings.indptr)])
    bounds.values[:] *= 1.0 + 2.0**-51
    bounds.theorem[:] = np.repeat(s.theorem, degree)
    bounds.cap[:] = form.width[wanted.positions]
    return bounds
