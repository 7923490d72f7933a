"""Fields: claims that were false once, and look-alikes of true ones."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

import dobrushin as db
from dobrushin._fields.anchor import space_of
from dobrushin._fields.influence import conditional_variances
from dobrushin._fields.intervals import FIXED, SHARES, TallyTerms, undecidable_share
from dobrushin._kernels import field_laws
from field_reference import KINDS, Grid, random_field


def test_unbounded_variable_next_to_one_that_crosses_its_interval():
    # From the middle of its interval the chain's x1 goes to one end, the field's is at the other.
    options = {"linear": [0.0, 5.0], "lower": {1: -1.0}, "upper": {1: 1.0}}
    field = db.GaussianField([[1.0, -10.0], [-10.0, 1.0]], **options)
    with pytest.warns(db.VacuousBoundWarning):
        bound = db.variation(field, db.Scan([1, 0]), initial=[-1.0, 0.0]).per_variable[0]
    x = np.linspace(-1.0, 1.0, 20001)
    own, drawn = np.exp(49.5 * x * x + 5 * x - 60.0), np.exp(-0.5 * x * x - 5 * x)
    true = 10.0 * abs((x @ own) / own.sum() - (x @ drawn) / drawn.sum())
    assert true > 17.6
    assert bound >= true


@pytest.mark.parametrize("width", [1e-6, 1e-14, 1e-40])
@pytest.mark.parametrize("linear", [0.0, 3.0, -3.0])
def test_narrow_interval_away_from_the_peak(width, linear):
    # The law is flat on the interval; mean + z / root would cancel there.
    field = db.GaussianField([[1.0]], linear=[linear], lower=0.0, upper=width)
    answer = db.estimate(field, [db.Exceeds(0, share * width) for share in (0.3, 0.6)], tolerance=0.03, seed=1)
    assert (answer.lower <= [0.7, 0.4]).all()
    assert (answer.upper >= [0.7, 0.4]).all()


def test_counts_beyond_the_range_of_doubles_are_refused():
    field = db.GaussianField([[1.0]], lower=700.0, upper=740.0).poisson([1e10], exposure=[1e-300])
    with pytest.raises(db.CertificateError, match="e\\^x"):
        db.estimate(field, [0], tolerance=0.1, seed=1)


def test_range_of_the_neighbours_far_from_zero():
    # The middle of the interval is no double; the variance is that around the middle.
    low = 2.0**53
    field = db.GaussianField([[1.0, 1e-3], [1e-3, 1.0]], lower=[low, -1.0], upper=[low + 2, 1.0], linear=[low + 1, 0.0])
    z = np.linspace(-1.0, 1.0, 20001)
    weights = np.exp(-0.5 * z * z)
    assert db.influence(field).matrix[0, 1] >= 1e-3 * (z**2 @ weights) / weights.sum() * (1 - 1e-3)


def test_curve_ends_at_the_value():
    options = {"linear": [10.0, 0.0], "lower": {1: 0.0}, "upper": {1: 50.0}}
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], **options)
    bound = db.variation(field, db.Scan.systematic(2, 20), weights={0: 2.0, 1: 1.0}, initial=[0.0, 0.0])
    _, values = bound.curve()
    assert values[-1] == pytest.approx(bound.value, rel=1e-9)
    assert values[0] >= 2.0 * 20.0 / 3.0  # how far the mean of the first one is from the start
    both = db.variation(field, db.Scan.systematic(2, 20), targets=[0, 1], initial=[0.0, 0.0])
    assert both.curve()[1][-1] == pytest.approx(both.per_variable.sum(), rel=1e-9)


def test_widths_whose_square_underflows_are_refused():
    # Their influence would be 0, and yet 1e100 times a neighbour of size 1e45 moves them.
    precision = [[1.0, 1e100], [1e100, 1e-90]]
    with pytest.raises(db.ArgumentError, match="two or more different"):
        db.GaussianField(precision, levels={0: [0.0, 1e-165]})
    with pytest.raises(db.ArgumentError, match="1e-100 or more above"):
        db.GaussianField(precision, lower={0: 0.0}, upper={0: 1e-165})


def test_a_sample_variance_proves_nothing_of_an_unbounded_mean():
    """A look-alike: the normal interval. Most runs never see where the mean comes from."""
    field = db.GaussianField([[1.0]])
    rare = db.Statistic(lambda x: np.maximum(x[:, 0] - 3.0, 0.0), {0: 1.0}, (0.0, math.inf), "excess")
    true = math.exp(-4.5) / math.sqrt(2 * math.pi) - 3.0 * stats.norm.sf(3.0)
    held = by_variance = 0
    for seed in range(40):
        answer = db.estimate(field, rare, tolerance=0.15, confidence=0.9, seed=seed)
        held += bool(answer.lower[0] <= true <= answer.upper[0])
        values = np.maximum(answer.samples.states[:200, 0] - 3.0, 0.0)
        by_variance += bool(abs(values.mean() - true) <= 1.645 * values.std(ddof=1) / math.sqrt(200))
    assert held == 40
    assert by_variance < 20


def test_draws_are_doubles_and_thresholds_are_bracketed():
    """A look-alike: counting draws above a threshold as they are. A draw may stand for what is a little below it."""
    field = db.GaussianField([[1.0]])
    space = space_of(field)
    errors = space.anchor.errors
    x = db.sample(field, db.Scan([0]), chains=50, seed=1).states[:, 0]
    event = space.reader(field, {}).read(db.Exceeds(0, float(x[7])))
    above = int((x > x[7]).sum())
    for drawn in (x, x + 0.5 * errors.place[0]):
        tally = event.tally_for(TallyTerms(0.1, 0.05, errors, 0.0, None, 0.05))
        tally.add(drawn[:, None], None, 0)
        assert (tally.surely, tally.perhaps) == (above, above + 1)


def test_a_random_scan_may_miss_a_variable():
    """A look-alike: the distance times kappa alone. With chance 1/8 the first variable still is at its start."""
    field = db.GaussianField(np.diag([1.0, 1.0]))
    assert db.variation(field, db.Scan.uniform(2, 3), targets=[0]).tv_bound >= 1 / 8
    assert db.variation(field, db.Scan([0]) + db.Scan.uniform(2, 3), targets=[0]).tv_bound < 1e-9


def random_scan_faults(seed, share=1.0):
    """Which bounds on a scan with random parts are violated, against quadrature; `share` makes them too small."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    field = random_field(rng, KINDS[seed % len(KINDS)], n)
    space = space_of(field)
    grid = Grid(field, space.anchor.point)
    start = grid.nearest(space.anchor.point + rng.normal(size=n) / np.sqrt(field._form.diagonal))
    x0 = np.array([grid.points[i][start[i]] for i in range(n)])
    order, chances, steps = rng.integers(0, n, size=3), rng.dirichlet(np.ones(n)), int(rng.integers(1, 4 * n))
    law = grid.run(order[:2], start)
    for _ in range(steps):
        law = sum(chances[i] * law.sum(axis=i, keepdims=True) * grid.conditional(i) for i in range(n))
    law = law.sum(axis=int(order[2]), keepdims=True) * grid.conditional(int(order[2]))
    scan = db.Scan(order[:2]) + db.Scan.random(chances, steps) + db.Scan(order[2:])
    weights = rng.random(n) + 0.1
    bound = db.variation(field, scan, weights=weights, initial=x0)
    mesh = np.meshgrid(*grid.points, indexing="ij")
    f = np.maximum.reduce([w * np.abs(x - c) for w, x, c in zip(weights, mesh, x0, strict=True)])
    checks = {
        "bias": (abs(float((f * (law - grid.law)).sum())), bound.value, 1e-6 * float(weights @ bound._unit)),
        "joint": (0.5 * float(np.abs(law - grid.law).sum()), db.variation(field, scan, initial=x0).tv_bound, 1e-6),
    }
    return [what for what, (true, most, close) in checks.items() if true > share * most + close]


@pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
def test_random_scans_hold_against_quadrature():
    assert [random_scan_faults(seed) for seed in range(36)] == [[]] * 36
    caught = {fault for seed in range(36) for fault in random_scan_faults(seed, 0.2)}
    assert caught == {"bias", "joint"}


def test_the_error_probability_is_split_beforehand():
    """A look-alike: the narrower of two intervals that each hold with the whole confidence."""
    assert all(sum(shares) <= 1.0 for shares in (*SHARES, FIXED))


def test_many_intervals_share_the_error_probability():
    field = db.GaussianField(np.eye(10), lower=0.0)
    events = [db.Exceeds(i, 0.5) for i in range(10)]
    for targets in (events, list(range(10))):
        all_at_once = db.plan(field, targets, tolerance=0.05, confidence=0.9).chains
        assert all_at_once > 1.3 * db.plan(field, targets[:1], tolerance=0.05, confidence=0.9).chains


def test_quantiles_are_widened_by_the_bias():
    """The law of the chains may have the quantile at any level that is off by the bias."""
    field = db.GaussianField([[1.0]])
    space = space_of(field)
    question = space.reader(field, {}).read(db.Quantile(0, 0.5))
    x = np.sort(np.random.default_rng(1).normal(size=1000))
    widths = []
    for bias in (0.0, 0.1):
        tally = question.tally_for(TallyTerms(0.1, 0.05, space.anchor.errors, bias, None, 0.05))
        tally.add(x[:, None], None, 0)
        limits = tally.ends(False)
        assert limits.low < stats.norm.ppf(0.5 - bias)
        assert stats.norm.ppf(0.5 + bias) < limits.high
        widths.append(limits.high - limits.low)
    assert widths[0] < 0.2


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli"])
def test_curvature_of_a_likelihood_in_a_box_is_that_at_its_flat_end(likelihood):
    """The variance of a site on its box, over all linear terms, stays below the bound; four times the curvature not."""
    field = db.GaussianField([[1.0]], lower=0.0, upper=3.0)
    field = field.poisson([0], 2.0) if likelihood == "poisson" else field.bernoulli([0], trials=40)
    form, x = field._form, np.linspace(0.0, 3.0, 3001)
    log = form.log_density(x[:, None]) + np.outer(np.linspace(-60, 60, 601), x)
    weights = np.exp(log - log.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    true = float((weights @ x**2 - (weights @ x) ** 2).max())
    assert true <= conditional_variances(form, np.array([0])).values[0]
    excess = form.curvature - form.diagonal
    steep = replace(form, diagonal=form.diagonal + 4.0 * excess, amounts=np.zeros((2, 1)))
    assert true > conditional_variances(steep, np.array([0])).values[0]


@pytest.mark.parametrize("slope", [1e-9, 1e-20])
def test_statistics_that_hardly_move(slope):
    """Values that differ by less than their rounding are clipped to an interval that is not empty."""
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    level = db.Statistic(lambda x: 1e9 + slope * x[:, 0], {0: slope}, (-math.inf, math.inf))
    answer = db.estimate(field, [level], tolerance=0.1, seed=1)
    assert answer.lower[0] < 1e9 < answer.upper[0] < answer.lower[0] + 0.01


@pytest.mark.parametrize("method", ["auto", "dobrushin"])
@pytest.mark.parametrize("tolerance", [1e-200, 1e200])
def test_tolerances_without_a_square(tolerance, method):
    field = db.GaussianField([[1.0]], lower=0.0)
    with pytest.raises(db.ArgumentError, match="from 1e-100 to"):
        db.estimate(field, tolerance=tolerance, method=method)


def test_draws_that_cannot_be_decided_are_the_reason_for_a_wide_interval():
    field = db.GaussianField([[2.0, -0.5], [-0.5, 2.0]], lower=-3.0, upper=3.0)
    assert not db.plan(field, db.Between(0, 0.0, 1e15), tolerance=0.1).reaches_tolerance
    wide = db.estimate(field, db.Between(0, 0.0, 1e15), tolerance=0.1, seed=1)
    assert wide.widest > 0.1
    assert wide.stopped_by == "draws too close to an end of the event to decide"
    assert wide.stopped_by in wide.headline
    narrow = db.estimate(field, db.Exceeds(0, 0.3), tolerance=0.1, seed=1)
    assert narrow.widest <= 0.1
    assert narrow.stopped_by is None
    assert narrow.plan.reaches_tolerance


@pytest.mark.parametrize(("box", "linear"), [((-math.inf, math.inf), 0.0), ((-1.0, 2.0), 3.0), ((0.0, 2.0), -4.0)])
@pytest.mark.parametrize("ends", [(-0.5, 1e14), (0.0, 2e13)])
def test_the_plan_counts_with_the_draws_that_cannot_be_decided(box, linear, ends):
    """Without its room for them the plan has too few chains for its tolerance."""
    field = db.GaussianField([[2.0, -0.5], [-0.5, 2.0]], linear=linear, lower=box[0], upper=box[1])
    target = db.Between(0, *ends)
    plan = db.plan(field, target, tolerance=0.4, method="dobrushin")
    answer = db.estimate(field, target, tolerance=0.4, method="dobrushin", seed=1)
    states = db.sample(field, plan.scan, chains=4000, seed=2).states[:, 0]
    space = space_of(field)
    question = space.reader(field, {}).read(target)
    share = undecidable_share(question, space.anchor.errors)
    assert np.mean(np.abs(states - ends[0]) <= 2.0**-50 * sum(map(abs, ends))) <= share + 0.05
    assert plan.bias >= 0.5 * share or not plan.reaches_tolerance
    assert answer.widest <= 0.4 or not plan.reaches_tolerance


def logistic_divergence(x, d, trials):
    """N (log(1 + e^(x + d)) - log(1 + e^x) - d / (1 + e^-x)), in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        x, d = Decimal(x), Decimal(d)
        s = 1 / (1 + (-x).exp())
        return float(Decimal(trials) * ((1 + s * (d.exp() - 1)).ln() - s * d))


@pytest.mark.parametrize(("trials", "failures"), [(1e6, 3), (1e9, 10), (1e12, 14)])
def test_ratios_of_nearly_certain_outcomes_are_as_good_as_their_chance_says(trials, failures):
    field = db.GaussianField([[0.01]]).bernoulli([trials - failures], trials=[trials])
    space = space_of(field)
    chance = space.anchor.errors.chance[0]
    x = math.log(trials / failures)
    for d in np.linspace(-1.5, 1.5, 31).tolist():
        for start in (x, -x):
            exact = logistic_divergence(start, d, trials)
            ratio = math.exp(-field_laws.divergence(start, d, 0.0, 0.0, trials))
            assert abs(ratio - math.exp(-exact)) <= chance
    # Slopes of the tangents: an error of theirs is felt over a distance of about 1.
    for d in (-0.7, 0.4):
        exact = trials * math.exp(-x) * -math.expm1(-d) / ((1.0 + math.exp(-x)) * (1.0 + math.exp(-x - d)))
        assert abs(field_laws.slope_gain(x, d, 0.0, 0.0, trials) - exact) <= chance


def test_a_field_of_finite_sets_alone_is_estimated_without_a_warning():
    field = db.GaussianField([[1.0, -0.3], [-0.3, 1.0]], linear=[0.2, 0.0], levels={0: [-1, 1], 1: [-1, 1]})
    answer = db.estimate(field, [0], tolerance=0.05, seed=1)
    assert answer.lower[0] <= math.tanh(0.2) <= answer.upper[0]


@pytest.mark.parametrize("precision", [1e-300, 5e-324])
def test_a_precision_whose_inverse_overflows_is_refused(precision):
    """No mean is said to be exactly NaN."""
    with pytest.raises(db.ArgumentError, match="positive on the diagonal, 1e-100 or more"):
        db.GaussianField([[precision]], linear=[1e10])


def test_what_is_too_large_for_a_field_is_told_the_limit():
    field = db.GaussianField([[1.0, 0.5], [0.5, 1.0]])
    with pytest.raises(db.ArgumentError, match=r"from -1e\+100 to 1e\+100\. Got 1e\+300"):
        field.condition({0: 1e300})
    with pytest.raises(db.ArgumentError, match="at most 1e100 in size"):
        db.sample(field, db.Scan([0]), initial=[1e300, 0.0])


def share_of(field, error):
    """Bound the share of draws within `error` of the lower end of an event."""
    space, form = space_of(field), field._form
    end = float(max(form.lower[0], min(form.upper[0], 0.0)))  # the bound does not depend on where in the box it is
    question = space.reader(field, {}).read(db.Between(0, end, error * 2.0**50))
    return undecidable_share(question, space.anchor.errors)


def largest_band(field, error):
    """The largest share of the law of one variable that any interval of this half-width has."""
    form = field._form
    mode = float(space_of(field).anchor.point[0])
    spread = 12.0 / math.sqrt(float(form.diagonal[0]))
    x = np.linspace(max(form.lower[0], mode - spread), min(form.upper[0], mode + spread), 200_001)
    log = form.log_density(x[:, None])
    total = np.concatenate([[0.0], np.cumsum(np.exp(log - log.max()))])
    width = min(len(x), max(1, int(2.0 * error / (x[1] - x[0]))))
    return float((total[width:] - total[:-width]).max() / total[-1])


def shares_and_bands():
    rng, found = np.random.default_rng(7), []
    for kind in ("gaussian", "one-sided", "two-sided", "poisson", "logit"):
        for _ in range(25):
            field = random_field(rng, kind, 1)
            error = 1e-3 / math.sqrt(float(field._form.diagonal[0]))
            found.append((share_of(field, error), largest_band(field, error)))
    for linear in (30.0, 300.0, -3000.0):  # laws that lean on an end of their box
        field = db.GaussianField([[1.0]], linear=linear, lower=-1.0, upper=2.0)
        found.append((share_of(field, 1e-5), largest_band(field, 1e-5)))
    return found


def test_no_law_has_more_undecidable_draws_than_the_plan_counts_with():
    found = shares_and_bands()
    assert all(band <= share for share, band in found)
    # Negative controls: a bound without its constant e^(3/2) / (1/2), or without the slope at the mode, is too small.
    assert any(band > share / (4.0 * math.exp(1.5)) for share, band in found)
    flat = db.GaussianField([[1.0]], linear=0.0, lower=-1.0, upper=2.0)
    steep = db.GaussianField([[1.0]], linear=300.0, lower=-1.0, upper=2.0)
    assert share_of(flat, 1e-5) < largest_band(steep, 1e-5) <= share_of(steep, 1e-5)
