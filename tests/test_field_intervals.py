"""Intervals of means of fields: functions of normal variables, sample variances, and look-alikes."""

import math
import warnings

import numpy as np
import pytest
from scipy import special, stats

import dobrushin as db
from dobrushin._fields.anchor import space_of
from dobrushin._fields.certificate import ChainBounds
from dobrushin._fields.intervals import STAGED, Clip, TallyTerms, normal_reach
from dobrushin._variation import Objective
from field_reference import random_field

CONTINUOUS = ("gaussian", "one-sided", "two-sided", "poisson", "logit")


def end_of_chain(field, order, start, z):
    """The last state of a chain whose draws are the quantiles of normal variables, by quadrature of each law."""
    form, x = field._form, start.copy()
    matrix = form.couplings.toarray()
    for i, own in zip(order, z, strict=True):
        others = np.delete(np.arange(len(x)), i)
        c = form.linear[i] - matrix[i, others] @ x[others]
        m, E, N = form.diagonal[i], form.amounts[0, i], form.amounts[1, i]
        middle = min(max(c / m, form.lower[i]), form.upper[i])
        reach = 9.0 / math.sqrt(m) + abs(middle - start[i])
        nodes = np.linspace(max(form.lower[i], middle - reach), min(form.upper[i], middle + reach), 6001)
        log = c * nodes - 0.5 * m * nodes**2 - N * np.logaddexp(0.0, nodes) - (E * np.exp(nodes) if E else 0.0)
        density = np.exp(log - log.max())
        total = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
        x[i] = np.interp(special.ndtr(own), total / total[-1], nodes)
    return x


def steepest(seed):
    """The largest slope of one function of a random chain that is seen, over the bound."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    field = random_field(rng, CONTINUOUS[seed % len(CONTINUOUS)], n)
    anchor = space_of(field).anchor
    order = rng.integers(0, n, size=int(rng.integers(1, 3 * n + 1)))
    weights = rng.random(n) + 0.1
    bound = ChainBounds(anchor, db.Scan(order)).steepness(Objective(np.arange(n), weights, False))
    signs, largest = rng.choice([-1.0, 1.0], size=n), 0.0
    for _ in range(3):
        z = rng.normal(size=len(order))
        way = rng.normal(size=len(order)) * (rng.random(len(order)) < 0.7)
        way[-1] += 0.1
        near, far = (end_of_chain(field, order, anchor.point, z + s * 0.05 * way) for s in (-1.0, 1.0))
        largest = max(largest, abs(float(signs * weights @ (far - near))) / (0.1 * float(np.linalg.norm(way))))
    return largest / bound


def test_chains_are_no_steeper_functions_of_normal_variables_than_the_bound():
    ratios = [steepest(seed) for seed in range(150)]
    assert max(ratios) <= 1.0 + 1e-3
    assert max(ratios) > 0.9  # a bound that is a tenth smaller would be caught


def test_the_steepness_of_a_finite_set_is_infinite():
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], levels={1: [-1.0, 1.0]})
    anchor = space_of(field).anchor
    for order, known in (([0], True), ([1, 0], False), ([0, 1], True)):
        chain = ChainBounds(anchor, db.Scan(order))
        assert math.isfinite(chain.steepness(Objective(np.array([0]), np.ones(1), False))) is known


def excess(function, reach):
    """The probability that a function of a normal variable is above its mean by this much, by quadrature."""
    z = np.linspace(-12.0, 12.0, 240_001)
    law = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    values = function(z)
    return float(law[values > values @ law + reach].sum())


@pytest.mark.parametrize("error", [0.4, 0.1, 0.01, 1e-4])
def test_the_reach_of_functions_of_a_normal_variable_is_sharp(error):
    reach, q = normal_reach(error), stats.norm.isf(error)
    shapes = [lambda z: z, np.abs, np.sin, lambda z: -np.abs(z), lambda z: np.logaddexp(0.0, z), np.tanh]
    shapes += [lambda z, end=end: np.minimum(z, q + end) for end in np.linspace(-1.0, 1.0, 21)]
    assert max(excess(shape, reach) for shape in shapes) <= error * (1.0 + 1e-3)
    # Negative control: the quantile of the normal law itself, as if functions were no farther from their mean.
    assert max(excess(shape, reach * 0.99) for shape in shapes) > error * (1.0 + 1e-3)
    assert reach > q


SHAPES = [
    lambda z: z,
    lambda z: np.maximum(z - 2.0, 0.0),
    lambda z: np.minimum(z + 1.0, 0.0),
    lambda z: 0.3 * z,
    lambda z: np.maximum(np.abs(z) - 1.5, 0.0),
]


def misses(shape, chains, error, forgetful=False, runs=4000):
    """How often the interval from the sample variance misses the mean of a function of a normal variable."""
    clip = Clip(-50.0, 100.0, 1.0, 0.0, 0.0, STAGED, 1.0)
    z = np.linspace(-12.0, 12.0, 240_001)
    law = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    mean = float(shape(z) @ law)
    values = shape(np.random.default_rng(1).normal(size=(runs, chains)))
    deviations = values.std(axis=1)
    if forgetful:
        reaches = stats.norm.isf(error / 2) * deviations / math.sqrt(chains)
    else:
        reaches = np.array([clip.varied_reach(chains, float(deviation), error) for deviation in deviations])
    return int((np.abs(values.mean(axis=1) - mean) > reaches).sum())


@pytest.mark.parametrize("chains", [8, 64, 500])
def test_intervals_from_the_sample_variance_hold(chains):
    for shape in SHAPES:
        assert misses(shape, chains, 0.1) <= stats.binom.isf(1e-9, 4000, 0.1)
    # Negative control: the normal interval, which never sees the rare values that a mean comes from.
    assert any(misses(shape, chains, 0.02, True) > stats.binom.isf(1e-9, 4000, 0.02) for shape in SHAPES)


def test_the_interval_from_the_sample_variance_is_narrow_where_it_is_small():
    clip = Clip(-50.0, 100.0, 1.0, 0.0, 0.0, STAGED, 1.0)
    fixed = clip._replace(shares=(0.0, 1.0)).half_width(4000, 0.05)
    assert clip.varied_reach(4000, 0.05, 0.05) < 0.3 * fixed
    assert clip.varied_reach(4000, 1.0, 0.05) < 1.6 * fixed
    # It grows with the deviation, and with the chance of chains that drift away.
    reaches = [clip.varied_reach(500, deviation, 0.05) for deviation in np.linspace(0.0, 2.0, 50)]
    assert (np.diff(reaches) >= 0.0).all()
    drifting = clip._replace(chance=5e-5)
    assert drifting.varied_reach(500, 0.3, 0.05) > clip.varied_reach(500, 0.3, 0.05)
    assert drifting.varied_reach(1001, 0.3, 0.05) == math.inf


def test_stages_look_at_their_own_chains_only():
    """A tally gives the same stages however its values are cut into blocks, and shares are never spent twice."""
    field = db.GaussianField([[1.0]])
    space = space_of(field)
    question = space.reader(field, {}).read_variables(np.array([0]))[0]
    plain = Clip(-8.0, 16.0, 1.0, 1e-9, 0.0, STAGED, 1.0)
    clip = plain.with_stages(0.05, 0.2, 0.05)
    assert len(clip.stages) > 2
    assert sum(clip.shares) + sum(stage.share for stage in clip.stages) <= 1.0
    assert not plain.with_stages(0.05, 1.0, 0.05).stages  # more than the planned number would not pay
    x = 0.2 * np.random.default_rng(0).normal(size=clip.stages[1].chains)
    found = []
    for size in (len(x), 1000, 77):
        tally = question.tally_for(TallyTerms(0.05, 0.05, space.anchor.errors, 0.0, clip, 0.05))
        for first in range(0, len(x), size):
            tally.add(x[first : first + size, None], None, first)
        assert tally.is_narrow
        found.append([*tally.passed, tally.ends(False)])
    for other in found[1:]:
        assert np.allclose(np.concatenate(other), np.concatenate(found[0]), rtol=1e-12)
    assert found[0][-1].high - found[0][-1].low <= 0.1


def test_rare_drift_costs_little():
    """A chance of drift below the error probability is charged to it, and not as chains that may be anywhere."""
    clip = Clip(-50.0, 100.0, 1.0, 0.0, 1e-8, (0.0, 1.0), 1.0)
    without = clip._replace(chance=0.0)
    assert clip.half_width(10_000, 1e-3) < 1.02 * without.half_width(10_000, 1e-3)
    # Where it is above, some chains may be anywhere, and the interval is finite all the same.
    drifting = clip._replace(chance=1e-6, span=1.0)
    assert without.half_width(10_000, 1e-3) < drifting.half_width(10_000, 1e-3) < math.inf


def test_intervals_of_means_cover():
    """Coverage at confidence 0.8, where intervals are a third narrower than Chernoff's bound; with a control."""
    field = db.GaussianField([[1.0, -0.6], [-0.6, 1.0]], linear=[0.5, 0.0])
    true = float(np.linalg.solve(field.precision.toarray(), field.linear)[0])
    sd = math.sqrt(float(np.linalg.inv(field.precision.toarray())[0, 0]))
    held, thin, widths = 0, 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(200):
            options = {"tolerance": 0.15 * sd, "confidence": 0.8, "method": "dobrushin", "seed": seed}
            answer = db.estimate(field, [0], **options)
            held += bool(answer.lower[0] <= true <= answer.upper[0])
            thin += bool(abs(answer.value[0] - true) <= 0.5 * answer.half_width[0])
            widths.append(answer.half_width[0] * math.sqrt(answer.chains) / sd)
    assert stats.binom.cdf(held, 200, 0.8) > 1e-3
    assert stats.binom.cdf(thin, 200, 0.8) < 1e-9
    assert np.mean(widths) < 0.72 * math.sqrt(2.0 * math.log(10.0))
