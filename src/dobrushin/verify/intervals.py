"""Intervals from independent outcomes: which ends follow from counts, and limits for means."""

import math

import numpy as np

from dobrushin.verify.document import Array, Budget

# More than all roundings in a tail; and than its terms beyond 40 deviations and 100.
MARGIN, FAR = 1e-9, 1e-60
# Shares of the error probability: for the number that was planned, and for ending before.
PLANNED, ANYTIME = 0.99, 0.01
# Of means: for ending when they are narrow, and for the number that was planned.
SEQUENTIAL, FINAL = 0.75, 0.25


def upper_tail(k: int, n: int, p: float, budget: Budget) -> float:
    """Bound P(at least k of n), each with chance p, from above; 1 where k is not above the mean.

    Terms are multiples of the largest one, by the ratios of neighbours.
    """
    if p <= 0.0 or p >= 1.0 or k <= n * p:
        return float(k <= 0 or p > 0.0)
    mode, reach = int(n * p), int(40.0 * math.sqrt(n * p * (1.0 - p))) + 100
    terms = min(n, reach)
    budget.charge("the tails of binomial laws", 2e-5 + 1e-7 * terms, briefly=100.0 * terms)
    above = np.arange(mode, min(n, mode + reach))
    below = np.arange(mode, max(0, mode - reach), -1)
    with np.errstate(under="ignore"):
        rising = np.cumprod((n - above) / (above + 1.0) * (p / (1.0 - p)))  # of mode + 1, ...
        falling = np.cumprod(below / (n - below + 1.0) * ((1.0 - p) / p))
    whole = 1.0 + math.fsum(rising) + math.fsum(falling)
    share = math.fsum(rising[k - mode - 1 :]) / whole
    return min(1.0, share * (1.0 + MARGIN + 2e-15 * reach) + FAR)


def is_below(p: float, k: int, n: int, error: float, early: bool, budget: Budget) -> bool:
    """Return whether p is a lower limit for the chance of an event that was seen k times in n.

    The limit is wrong with probability `error` at most: Clopper and Pearson's where as many were
    drawn as was planned, and Robbins' mixture for ending early (theory.md, Estimates).
    """
    if p <= 0.0:
        return True
    if not early:
        return upper_tail(k, n, p, budget) <= PLANNED * error
    if n == 0 or k == 0 or p * n >= k:
        return False
    mixed = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5)
    mixed -= math.lgamma(n + 1.0) + math.log(math.pi)
    seen = k * math.log(p) + ((n - k) * math.log1p(-p) if n > k else 0.0)
    slack = MARGIN + 1e-13 * n * math.log(n + 2.0)
    return mixed - seen >= -math.log(ANYTIME * error) + slack


def mean_limits(
    values: Array, error: float, aim: float, proxy: float | None
) -> tuple[float, float]:
    """Bound the mean of independent values in [0, 1] (theory.md, The empirical Bernstein sequence).

    A proxy is given where as many were drawn as was planned: Hoeffding's interval then holds too.
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
    losses = math.fsum(squares * (-np.log1p(-bets) - bets))
    reach = (math.log(2.0 / (SEQUENTIAL * error)) + losses) / total
    centre = math.fsum(bets * values) / total
    low, high = centre - reach, centre + reach
    if proxy is not None:
        reach = math.sqrt(2.0 * proxy * math.log(2.0 / (FINAL * error)) / n)
        mean = math.fsum(values) / n
        low, high = max(low, mean - reach), min(high, mean + reach)
    return max(0.0, low - 1e-12), min(1.0, high + 1e-12)
