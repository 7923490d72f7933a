"""Intersect the intervals that several methods found for the same targets. [trusted]

Certain intervals are all valid, and so is their intersection. At most one of the methods may have intervals that are
valid only with a confidence, which is then the confidence of the intersections. Two such methods would have to share
the error probability before either of them draws; here a second one is therefore refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dobrushin._estimate.answer import Estimate


def intersect(estimate: Estimate, others: Sequence[Estimate]) -> Estimate:
    """Intersect the intervals of an estimate, row by row, with the certain intervals of other estimates.

    Each row keeps the value and the bias bound of the narrower interval; `Estimate.methods` names the methods of each
    row. Plan and seed are those of `estimate`, unless another estimate is better in every row.
    """
    lower, upper = estimate.lower, estimate.upper
    helping = [other for other in others if ((other.lower > lower) | (other.upper < upper)).any()]
    others = sorted(helping, key=lambda other: float(other.half_width.sum()))
    if estimate._is_vacuous and others:
        estimate, *others = others
    for other in others:
        estimate = _intersect_two(estimate, other)
    return estimate


def _intersect_two(estimate: Estimate, other: Estimate) -> Estimate:
    if other.confidence < 1.0:
        raise ValueError("the intervals of another method may be intersected only if they are certain")
    lower, upper = np.maximum(estimate.lower, other.lower), np.minimum(estimate.upper, other.upper)
    # The certain interval is valid. If it is disjoint from an interval with a confidence, that interval has failed.
    has_failed = lower > upper
    lower, upper = np.where(has_failed, other.lower, lower), np.where(has_failed, other.upper, upper)
    is_own = ((lower == estimate.lower) & (upper == estimate.upper)) & ~has_failed
    is_others = ((lower == other.lower) & (upper == other.upper)) & ~is_own
    if is_own.all():
        return estimate
    if is_others.all():
        return other
    is_narrower = other.half_width < estimate.half_width
    value = np.clip(np.where(is_narrower, other.value, estimate.value), lower, upper)
    bias = np.where(is_narrower, other.bias_bound, estimate.bias_bound)
    pairs = zip(estimate.methods, other.methods, is_own.tolist(), is_others.tolist(), strict=True)
    found_by = tuple(a if own else b if others else f"{a} and {b}" for a, b, own, others in pairs)
    words = [words for words in other.assumptions if words not in estimate.assumptions]
    return replace(
        estimate, value=value, lower=lower, upper=upper, bias_bound=bias, found_by=found_by,
        assumptions=(*estimate.assumptions, *words), samples=None,
    )  # fmt: skip
