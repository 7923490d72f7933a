"""Intervals from independent draws with weights in [0, 1], by a gambler's bets on them. [trusted]

Theory page, "Betting on weights".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.minibuckets import MiniBuckets
from dobrushin._kernels import weights as loops
from dobrushin._sampling.weighted import WeightedDraws

if TYPE_CHECKING:
    from dobrushin._estimate.weights import Pilot

# Largest share of the wealth that is bet.
_LARGEST_BET = 0.9
# Number of draws for which the pilot counts in the first bets.
PRIOR = 100.0


def weighted_interval(
    y: NDArray[np.float64], z: NDArray[np.float64], aim: float, error: float, before: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Return an estimate of a mean p, with both limits, from independent pairs 0 <= y <= z <= 1 with E (y - p z) = 0.

    With probability 1 - `error`, the interval is valid after every number of pairs; each limit has half of the error.

    Parameters
    ----------
    aim : float
        Half-width for which the bets are chosen.
    before : array
        Guesses of the sums of z, of y and of (y - p z)^2, which count as earlier pairs in the bets.
    """
    if not len(z):
        return 0.5, 0.0, 1.0
    sums = before.copy()
    bets = loops.bet(y, z, aim, sums)
    # Products of the wealth and their logarithms are off by a few units for each pair.
    needed = math.log(2.0 / error) + 1e-9 + 2.0**-48 * len(z)
    middle = min(max(float(y.sum() / z.sum()), 0.0), 1.0)
    low, high = (float(loops.limit(y, z, bets, _LARGEST_BET, needed, sign, middle)) for sign in (1.0, -1.0))
    return min(max(middle, low), high), low, high


def log_partition_limits(
    made: MiniBuckets, draws: WeightedDraws, pilot: Pilot, aim: float, error: float
) -> tuple[float, float, float]:
    """Return an estimate of log Z with both limits: log U plus the logarithm of an interval for the mean weight.

    The interval is valid after any number of draws. It does not include the error of the model's own log-density.

    Parameters
    ----------
    aim : float
        Relative half-width of the interval for Z for which the bets are chosen.
    """
    y = np.zeros(draws.tries)  # in the order of the draws: a bet may depend on earlier ones only
    y[draws.numbers] = draws.weights
    before = PRIOR * np.array([1.0, pilot.mean, pilot.square])
    found = weighted_interval(y, np.ones(draws.tries), aim * pilot.mean, error, before)
    middle, low, high = (made.log_bound + (math.log(p) if p > 0 else -math.inf) for p in found)
    return middle, low - made.distortion, high + made.distortion
