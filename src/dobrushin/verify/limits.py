"""Confidence limits, checked: is a probability so far from what was counted that so many would hardly ever be seen?

A limit is not computed but tried. The tail of the binomial law is added up from its largest term on, which Loader's
form gives without cancellation; Stirling's series has bounds on both sides. No special function is used.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# More than all roundings in a tail.
MARGIN = 1e-9
# Shares of the error probability: for the number that was planned, and for ending at any time before. For means: for
# ending when they are narrow, and for the largest number that was planned.
PLANNED, ANYTIME = 0.99, 0.01
SEQUENTIAL, FINAL = 0.75, 0.25


def _stirling(n: int) -> float:
    """ln n! less (n + 1/2) ln n - n + ln(2 pi) / 2."""
    if n < 16:
        return math.log(math.factorial(n)) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi)
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / n**2) / n**2) / n**2) / n


def _deviance(x: float, mean: float) -> float:
    """x ln(x / mean) + mean - x."""
    gap = (x - mean) / mean
    return mean * ((1.0 + gap) * math.log1p(gap) - gap)


def upper_tail(k: int, n: int, p: float) -> float:
    """P(at least k of n) with chance p each, from above; 1 where k is not above the mean."""
    if k <= 0 or p >= 1.0 or k <= n * p:
        return 1.0
    if p <= 0.0:
        return 0.0
    q = 1.0 - p
    if k == n:
        return math.exp(n * math.log(p)) * (1.0 + MARGIN)
    log = _stirling(n) - _stirling(k) - _stirling(n - k) - _deviance(k, n * p) - _deviance(n - k, n * q)
    first = math.exp(log) * math.sqrt(n / (2.0 * math.pi * k * (n - k)))
    total = term = 1.0
    for j in range(k, n):
        ratio = (n - j) / (j + 1.0) * p / q  # it falls with j
        term *= ratio
        total += term
        if term * ratio < 1e-13 * (1.0 - ratio):
            total += term * ratio / (1.0 - ratio)
            break
    return min(1.0, first * total * (1.0 + MARGIN))


def is_below(p: float, k: int, n: int, error: float, early: bool) -> bool:
    """Whether p is a lower limit for the chance of what was seen k times in n: wrong with probability `error`."""
    if p <= 0.0:
        return True
    if early:
        return _is_outside(p, k, n, ANYTIME * error)
    return upper_tail(k, n, p) <= PLANNED * error


def is_above(p: float, k: int, n: int, error: float, early: bool) -> bool:
    """The same for an upper limit."""
    return is_below(1.0 - p, n - k, n, error, early)


def _is_outside(p: float, k: int, n: int, error: float) -> bool:
    """Robbins' mixture: whether p < k / n is refuted at some time or other with probability at most `error`."""
    if n == 0 or k == 0 or p * n >= k:
        return False
    mixed = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1.0) - math.log(math.pi)
    seen = k * math.log(p) + ((n - k) * math.log1p(-p) if n > k else 0.0)
    return mixed - seen >= -math.log(error) + MARGIN + 1e-13 * n * math.log(n + 2.0)


def mean_limits(values: NDArray[Any], error: float, aim: float, largest: int | None) -> tuple[float, float]:
    """Limits for the mean of independent values in [0, 1]: Waudby-Smith and Ramdas' empirical Bernstein sequence.

    Where as many values were drawn as was planned at most (`largest`), Hoeffding's interval holds too.
    """
    n = len(values)
    if not n:
        return 0.0, 1.0
    before = np.arange(n)
    means = (0.5 + np.concatenate([[0.0], np.cumsum(values)[:-1]])) / (before + 1)
    squares = (values - means) ** 2
    variances = (0.25 + np.concatenate([[0.0], np.cumsum(squares)[:-1]])) / (before + 1)
    bets = np.minimum(0.5, aim / variances)
    total = math.fsum(bets)
    reach = (math.log(2.0 / (SEQUENTIAL * error)) + math.fsum(squares * (-np.log1p(-bets) - bets))) / total
    centre = math.fsum(bets * values) / total
    low, high = centre - reach, centre + reach
    if n == largest:
        reach = math.sqrt(math.log(2.0 / (FINAL * error)) / (2.0 * n))
        mean = math.fsum(values) / n
        low, high = max(low, mean - reach), min(high, mean + reach)
    return max(0.0, low - 1e-12), min(1.0, high + 1e-12)
