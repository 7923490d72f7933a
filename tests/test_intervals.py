"""Confidence intervals: they hold as often as they say, and are no wider than planned."""

import math

import numpy as np
import pytest
from scipy import stats

import dobrushin as db
from dobrushin._shared.intervals import (
    BernsteinMean,
    clopper_pearson,
    lower_limit,
    trials_needed,
    upper_limit,
    values_needed,
)


@pytest.mark.parametrize("trials", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("error", [0.3, 0.05, 1e-3])
def test_clopper_pearson_covers_for_every_probability(trials, error):
    """Exact coverage, not simulated: the probability of all counts whose interval holds."""
    counts = np.arange(trials + 1)
    low, high = clopper_pearson(counts, trials, error)
    for p in np.concatenate([np.linspace(0, 1, 101), low, high, [1e-9, 1 - 1e-9]]):
        weight = stats.binom.pmf(counts, trials, p)
        assert weight[(low > p) | (high < p)].sum() <= error
        # Negative control: an interval of half the width misses too often somewhere (checked below).


@pytest.mark.parametrize(("trials", "error"), [(142976, 0.005), (10112, 5e-16), (2000, 1e-9), (999 + 141977, 0.005)])
def test_limits_hold_where_scipys_inverse_is_off(trials, error):
    """Forwards: with the lower limit as the true probability, so many successes or more are as rare as stated."""
    counts = np.unique(np.concatenate([np.arange(1, 40), trials - np.arange(950, 1050), [trials // 2, trials - 1]]))
    low = lower_limit(counts, trials, error)
    assert (low <= counts / trials).all()
    assert (stats.binom.sf(counts - 1, trials, low) <= error * (1 + 1e-6)).all()
    tight = np.minimum(low + 2e-11, 1.0) * (1 + 1e-6)
    assert (stats.binom.sf(counts - 1, trials, tight) >= error * (1 - 1e-3)).all()


def test_half_the_width_does_not_cover():
    counts = np.arange(65)
    low, high = clopper_pearson(counts, 64, 0.05)
    middle, half = (low + high) / 2, (high - low) / 4
    misses = [stats.binom.pmf(counts, 64, p)[np.abs(middle - p) > half].sum() for p in np.linspace(0.1, 0.9, 41)]
    assert max(misses) > 0.2


def test_limits_agree_with_scipy_and_mirror_each_other():
    for trials in (1, 10, 1000, 10**6):
        counts = np.unique(np.linspace(0, trials, 7).astype(int))
        for k in counts:
            known = stats.binomtest(int(k), trials).proportion_ci(0.99, method="exact")
            low, high = clopper_pearson(k, trials, 0.01)
            assert abs(low - known.low) < 1e-9
            assert abs(high - known.high) < 1e-9
        np.testing.assert_array_equal(upper_limit(counts, trials, 0.01), 1 - lower_limit(trials - counts, trials, 0.01))
    assert lower_limit(0, 10, 0.1) == 0
    assert upper_limit(10, 10, 0.1) == 1
    # The rule of three: no success in n trials.
    assert abs(upper_limit(0, 1000, 0.05) - -math.log(0.05) / 1000) < 1e-5


@pytest.mark.parametrize("error", [0.3, 0.01, 1e-6])
def test_no_interval_is_wider_than_planned(error):
    for half_width in (0.4, 0.2, 0.11, 0.05, 0.02):
        trials = trials_needed(half_width, error)
        for more in (trials, trials + 1, -(-trials // 64) * 64):
            low, high = clopper_pearson(np.arange(more + 1), more, error)
            assert (high - low).max() / 2 <= half_width
        low, high = clopper_pearson(np.arange(trials - 1), trials - 2, error)
        assert trials <= 3 or (high - low).max() / 2 > half_width
    assert trials_needed(0.5, error) == 1


def slow_bernstein(values, error, aim):
    """One value after the other, as the formula says."""
    total, squares, bets, won, paid = 0.0, 0.0, 0.0, 0.0, 0.0
    for t, x in enumerate(values):
        mean, variance = (0.5 + total) / (t + 1), (0.25 + squares) / (t + 1)
        bet = min(0.5, aim / variance)
        bets, won = bets + bet, won + bet * x
        paid += (x - mean) ** 2 * (-math.log(1 - bet) - bet)
        total, squares = total + x, squares + (x - mean) ** 2
    return won / bets, (math.log(2 / error) + paid) / bets


@pytest.mark.parametrize("pieces", [1, 3, 50])
def test_bernstein_is_its_formula_however_the_values_come(pieces):
    values = np.random.default_rng(3).beta(2, 5, size=400)
    sequence = BernsteinMean(0.05, 0.03)
    assert sequence.half_width == math.inf
    assert sequence.interval() == (0.0, 1.0)
    for part in np.array_split(values, pieces):
        sequence.add(part)
    centre, half = slow_bernstein(values, 0.05, 0.03)
    low, high = sequence.interval()
    assert abs((low + high) / 2 - centre) < 1e-9
    assert abs((high - low) / 2 - half) < 1e-9


DRAWS = {
    "coin": lambda rng, size: (rng.random(size) < 0.5).astype(float),
    "rare": lambda rng, size: (rng.random(size) < 0.01).astype(float),
    "narrow": lambda rng, size: 0.3 + 0.02 * rng.random(size),
    "skew": lambda rng, size: rng.beta(0.2, 2.0, size),
}
MEANS = {"coin": 0.5, "rare": 0.01, "narrow": 0.31, "skew": 0.2 / 2.2}


def misses(name, shrink, runs=2000, error=0.1, aim=0.05):
    """How often the interval misses at some time at which one looks at it."""
    rng = np.random.default_rng(11)
    count = 0
    for _ in range(runs):
        sequence = BernsteinMean(error, aim)
        for _ in range(8):
            sequence.add(DRAWS[name](rng, 50))
            low, high = sequence.interval()
            centre, half = (low + high) / 2, (high - low) / 2
            if abs(MEANS[name] - centre) > shrink * half:
                count += 1
                break
    return count


@pytest.mark.parametrize("name", DRAWS)
def test_bernstein_holds_at_all_times_at_once(name):
    assert misses(name, 1.0) <= stats.binom.ppf(1 - 1e-9, 2000, 0.1)


def test_a_narrower_bernstein_interval_fails():
    assert misses("coin", 0.4) > stats.binom.ppf(1 - 1e-9, 2000, 0.1)


@pytest.mark.parametrize("name", DRAWS)
def test_bernstein_stops_about_when_planned(name):
    rng = np.random.default_rng(5)
    variance = float(np.var(DRAWS[name](rng, 10**6)))
    sequence = BernsteinMean(0.01, 0.02)
    while sequence.half_width > 0.02:
        sequence.add(DRAWS[name](rng, 16))
    assert sequence.count <= 1.3 * 2 * np.log(2 / 0.01) * variance / 0.02**2 + 600


@pytest.mark.parametrize("half_width", [1e-9, 1e-12, 1e-163, 5e-324])
def test_half_widths_that_no_number_of_outcomes_reaches_are_refused(half_width):
    for needed in (trials_needed, values_needed):
        with pytest.raises(db.BudgetError, match=r"An interval of half-width .* needs .* outcomes"):
            needed(half_width, 0.01)


@pytest.mark.parametrize("tolerance", [1e-12, 1e-163, 5e-324])
def test_no_estimate_claims_a_tolerance_that_it_cannot_reach(tolerance):
    model = db.Ising.grid(3, 3, couplings=0.1)
    for method in ("dobrushin", "uncertified"):
        with pytest.raises(db.CertificateError, match=method):
            db.plan(model, [0], tolerance=tolerance, method=method)
    assert not db.plan(model, [0], tolerance=tolerance, method="coalescence").reaches_tolerance
