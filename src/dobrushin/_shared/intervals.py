"""Confidence intervals that are valid for any finite number of chains. [trusted]

The kind of each interval, its error probability, and either the number of chains or the stopping rule are fixed before
the data are seen. A run may also end for a reason that no rule foresees: the clock, Ctrl-C, a worker that dies. A small
part of the error probability is reserved for this case, for limits that are valid after every number of chains
simultaneously.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dobrushin._shared.arrays import Bools, Floats
from dobrushin.errors import BudgetError

# Limits are moved outwards by more than the error of the incomplete beta function (about 1e-14).
_OUTWARDS = 1e-11
# Bisection replaces an inverse that does not give the error level back to this relative precision.
_BELIEVED = 1e-6
# Largest number of trials that is considered for an interval.
_MAX_TRIALS = 2**52
# Shares of the error probability: for the number of trials that was planned, and for stopping at any time before.
PLANNED, ANYTIME = 0.99, 0.01
# Of the error of a mean: for stopping when it is narrow, and for the largest number of values that may be drawn.
SEQUENTIAL, FINAL = 0.75, 0.25
# Largest bet of the empirical Bernstein interval, in units of the range.
LARGEST_BET = 0.5


def lower_limit(successes: ArrayLike, trials: int, error: float) -> Floats:
    """Return the lower limit of Clopper and Pearson (1934) for a probability of success.

    The limit is above the probability with probability at most `error`.
    """
    k = np.asarray(successes, dtype=np.float64)
    a, b = np.maximum(k, 1.0), np.maximum(trials - k + 1.0, 1.0)
    limit = _beta_quantile(a, b, error)
    return np.where(k > 0, np.maximum(limit - _OUTWARDS, 0.0), 0.0)


def _beta_quantile(a: Floats, b: Floats, error: float) -> Floats:
    """Return the quantile of the beta distribution with parameters a and b at the level `error`.

    It is computed by SciPy, or by bisection where SciPy's inverse is inaccurate.
    """
    a, b = np.broadcast_arrays(a, b)
    x = np.array(special.betaincinv(a, b, error))
    wrong = ~(np.abs(special.betainc(a, b, x) - error) <= _BELIEVED * error)
    if wrong.any():
        ends = np.zeros(int(wrong.sum())), np.ones(int(wrong.sum()))
        x[wrong] = _bisect(lambda x: special.betainc(a[wrong], b[wrong], x) <= error, *ends, 200)
    return x


def _bisect(is_low: Callable[[Floats], Bools], low: Floats, high: Floats, rounds: int) -> Floats:
    """Return, for each interval from `low` to `high`, nearly the largest number at which `is_low` is true."""
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        below = is_low(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low


def upper_limit(successes: ArrayLike, trials: int, error: float) -> Floats:
    """Return the upper limit of Clopper and Pearson: below the probability with probability at most `error`."""
    return 1.0 - lower_limit(trials - np.asarray(successes), trials, error)


def clopper_pearson(successes: ArrayLike, trials: int, error: float) -> tuple[Floats, Floats]:
    """Return the lower and the upper limit, each of which is wrong with probability at most error / 2."""
    return lower_limit(successes, trials, error / 2), upper_limit(successes, trials, error / 2)


def lower_anytime(successes: ArrayLike, trials: int, error: float) -> Floats:
    """Return the lower limit of Robbins (1970), which is valid after every number of trials at once.

    It is ever above the probability p of success with probability at most `error`.

    After n trials with k successes, B(k + 1/2, n - k + 1/2) / (B(1/2, 1/2) p^k (1 - p)^(n - k)) is a martingale that
    starts at 1. It is nonnegative, so it ever reaches 1 / error with probability at most `error` (Ville). The limit is
    the least p for which it is below that.
    """
    k = np.asarray(successes, dtype=np.float64)
    if not trials:
        return np.zeros(k.shape)
    rest = trials - k
    # More than the error of these logarithms, which nearly cancel.
    slack = 1e-9 + 1e-14 * trials * math.log(trials + 2.0)
    least = special.betaln(k + 0.5, rest + 0.5) - math.log(math.pi) + math.log(error) - slack
    ends = np.zeros(k.shape), k / trials
    low = _bisect(lambda p: special.xlogy(k, p) + special.xlog1py(rest, -p) < least, *ends, 100)
    return np.where(k > 0, np.maximum(low - _OUTWARDS, 0.0), 0.0)


def lower_end(successes: ArrayLike, trials: int, error: float, early: bool) -> Floats:
    """Return the lower limit for a run that drew the planned number of trials, or ended early for any reason.

    Both kinds of limits, after all numbers of trials, are valid simultaneously except with probability `error`.
    """
    if early:
        return lower_anytime(successes, trials, ANYTIME * error)
    return lower_limit(successes, trials, PLANNED * error)


def upper_end(successes: ArrayLike, trials: int, error: float, early: bool) -> Floats:
    """Return the upper limit, under the conditions of `lower_end`."""
    return 1.0 - lower_end(trials - np.asarray(successes), trials, error, early)


@lru_cache(maxsize=4096)
def trials_needed(half_width: float, error: float) -> int:
    """Return nearly the smallest number of trials that gives all Clopper-Pearson intervals this half-width.

    Raise `BudgetError` if no number is large enough.
    """

    def fits(trials: int) -> bool:
        # The interval is widest in the middle (a test tries all numbers of successes).
        low, high = clopper_pearson([trials // 2, (trials + 1) // 2], trials, error)
        return bool((high - low).max() <= 2.0 * half_width)

    if half_width >= 0.5:
        return 1
    high = 2
    while not fits(high):
        high *= 2
        if high > _MAX_TRIALS:
            raise _out_of_reach(half_width, error)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@dataclass
class BernsteinMean:
    """An interval for the mean of independent values in [0, 1], valid at every time at once.

    The empirical Bernstein confidence sequence of Waudby-Smith and Ramdas (2024, "Estimating means of bounded random
    variables by betting", section 3.2). Any bets below 1 that depend on earlier values only are sound; these are the
    ones that reach the half-width `aim` with the fewest values, aim / variance. A run may stop at any time.

    Parameters
    ----------
    error : float
        The probability that the interval ever misses is at most this.
    aim : float
        Half-width at which the caller means to stop.

    Notes
    -----
    With bets c_t, m_t and s_t^2 the mean and variance of the values before t (started at 1/2 and 1/4), the interval is
    sum c_t x_t / sum c_t -+ (ln(2 / error) + sum (x_t - m_t)^2 (-ln(1 - c_t) - c_t)) / sum c_t.
    """

    error: float
    aim: float
    count: int = 0
    total: float = 0.0
    _squares: float = field(default=0.0, repr=False)
    _bets: float = field(default=0.0, repr=False)
    _won: float = field(default=0.0, repr=False)
    _paid: float = field(default=0.0, repr=False)

    def add(self, values: Floats) -> None:
        """Include further values, in their order."""
        before = self.count + np.arange(len(values))
        means = (0.5 + self.total + np.concatenate([[0.0], np.cumsum(values)[:-1]])) / (before + 1)
        deviations = (values - means) ** 2
        squares = self._squares + np.concatenate([[0.0], np.cumsum(deviations)[:-1]])
        variances = (0.25 + squares) / (before + 1)
        bets = np.minimum(LARGEST_BET, self.aim / variances)
        self._bets += math.fsum(bets)
        self._won += math.fsum(bets * values)
        self._paid += math.fsum(deviations * (-np.log1p(-bets) - bets))
        self._squares += math.fsum(deviations)
        self.total += math.fsum(values)
        self.count += len(values)

    @property
    def half_width(self) -> float:
        """Half the width of the interval before it is cut to [0, 1]."""
        if not self.count:
            return math.inf
        return (math.log(2.0 / self.error) + self._paid) / self._bets + _OUTWARDS

    def interval(self) -> tuple[float, float]:
        """Return the interval from the values so far."""
        if not self.count:
            return 0.0, 1.0
        centre = self._won / self._bets
        return max(0.0, centre - self.half_width), min(1.0, centre + self.half_width)


def hoeffding(values: int, error: float) -> float:
    """Return the half-width of Hoeffding's interval (1963) for the mean of a fixed number of values in [0, 1]."""
    return math.sqrt(math.log(2.0 / error) / (2.0 * values)) + _OUTWARDS


def values_needed(aim: float, error: float) -> int:
    """Return the smallest number of values that gives Hoeffding's interval this half-width.

    Raise `BudgetError` if no number is large enough.
    """
    if not aim > 2.0 * _OUTWARDS or math.log(2.0 / error) > 2.0 * (aim - _OUTWARDS) ** 2 * _MAX_TRIALS:
        raise _out_of_reach(aim, error)
    values = max(1, math.floor(math.log(2.0 / error) / (2.0 * (aim - _OUTWARDS) ** 2)))
    while hoeffding(values, error) > aim:
        values += max(1, values >> 40)
    return values


def _out_of_reach(half_width: float, error: float) -> BudgetError:
    squared = 2.0 * half_width * half_width
    needed = math.log(2.0 / error) / squared if squared else math.inf
    what, remedy = f"An interval of half-width {half_width:.3g}", "Ask for a larger tolerance."
    return BudgetError(what, needed, _MAX_TRIALS, "outcomes", remedy)
