"""Intersections of intervals that several methods found for the same rows. [trusted]

Certain intervals all hold, and so does what they have in common. Beside them intervals of one method may have a
confidence: it is that of the intersections. Two such methods would have to share the error probability before either
of them draws, so that a second one is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dobrushin._estimate.answer import Estimate


def intersect(estimate: Estimate, others: Sequence[Estimate]) -> Estimate:
    """Return an estimate with its intervals intersected with certain ones of other methods, row by row.

    Each row keeps the value and the bias bound of the narrower interval, and `Estimate.methods` names the methods that
    its interval came from. Plan and seed are those of the estimate, unless no row needs it.
    """
    helping = [other for other in others if _is_narrower(other, estimate)]
    others = sorted(helping, key=lambda other: float(other.half_width.sum()))
    if estimate._is_vacuous and others:
        estimate, *others = others
    for other in others:
        estimate = _intersect_two(estimate, other)
    return estimate


def _is_narrower(one: Estimate, other: Estimate) -> bool:
    return bool(((one.lower > other.lower) | (one.upper < other.upper)).any())


def _intersect_two(estimate: Estimate, other: Estimate) -> Estimate:
    if other.confidence < 1.0:
        raise ValueError("the intervals of another method may be intersected only if they are certain")
    lower, upper = np.maximum(estimate.lower, other.lower), np.minimum(estimate.upper, other.upper)
    # A certain interval holds; one with a confidence that does not meet it has failed.
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
