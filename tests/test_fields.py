"""Fields: theorems against quadrature, with the unsound look-alikes as negative controls."""

import dataclasses
import itertools
import math
import warnings
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from scipy import sparse, special, stats
from typer.testing import CliRunner

import dobrushin as db
from dobrushin._fields import solve, terms
from dobrushin._fields.anchor import _is_supersolution, space_of
from dobrushin._fields.certificate import ChainBounds
from dobrushin._fields.intervals import SHARES, Clip, most_drifted, ranks
from dobrushin._kernels import field_draws
from dobrushin._kernels.generator import streams
from dobrushin._variation import Objective
from dobrushin.cli.app import app
from field_reference import KINDS, Grid, random_field

TWO = [[2.0, -1.0], [-1.0, 2.0]]
# Quadrature is good to about this, relatively.
CLOSE = 1e-6


def cases(count, kinds=KINDS, sizes=(1, 2, 3, 4)):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        yield rng, random_field(rng, kinds[seed % len(kinds)], int(rng.choice(sizes)))


def check_case(rng, field, shrink=None):
    """What is violated of all bounds on one case; `shrink` makes one kind of bound too small on purpose."""
    shrink = shrink or {}
    space = space_of(field)
    n = field.n_variables
    point = space.anchor.point + 0.0
    grid = Grid(field, point)
    start = grid.nearest(point + rng.normal(size=n) * rng.choice([0.1, 1.5]) / np.sqrt(field._form.diagonal))
    x0 = np.array([grid.points[i][start[i]] for i in range(n)])
    anchor = space.anchor_at(x0)
    faults = []
    far = anchor.initial * anchor.unit * shrink.get("start", 1.0)
    for i in range(n):
        true = float(np.abs(grid.points[i] - x0[i]) @ grid.marginal(grid.law, i))
        if true > far[i] * (1 + CLOSE) + 1e-12:
            faults.append("start")
    order = rng.integers(0, n, size=int(rng.integers(1, 3 * n + 2)))
    order = np.concatenate([rng.permutation(n), order]) if rng.random() < 0.7 else order
    law = grid.run(order, start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", db.VacuousBoundWarning)
        bound = db.variation(field, db.Scan(order), initial=x0)
    distances, tvs = bound.per_variable * shrink.get("bias", 1.0), bound.tv_per_variable * shrink.get("tv", 1.0)
    for i in range(n):
        gap = grid.marginal(law, i) - grid.marginal(grid.law, i)
        if abs(float(grid.points[i] @ gap)) > distances[i] + CLOSE * anchor.unit[i]:
            faults.append("bias")
        if i in order and 0.5 * np.abs(gap).sum() > tvs[i] + CLOSE:
            faults.append("tv")
    if 0.5 * np.abs(law - grid.law).sum() > bound.tv_bound * shrink.get("joint", 1.0) + CLOSE:
        faults.append("joint")
    weights = rng.random(n) * (rng.random(n) < 0.7) + 1e-3
    sigma2 = ChainBounds(anchor, db.Scan(order)).proxy(Objective(np.arange(n), weights, False)) * shrink.get(
        "tail", 1.0
    )
    values = sum(w * p.reshape([-1 if k == i else 1 for k in range(n)]) for i, (w, p) in enumerate(zip(weights, grid.points, strict=True)))  # fmt: skip  # noqa: E501
    centred = values - float((values * law).sum())
    for t in (-3.0, -1.0, -0.3, 0.3, 1.0, 3.0):
        rate = t / math.sqrt(sigma2)
        top = float((rate * centred)[law > 1e-200].max())
        if math.log(float((law * np.exp(np.minimum(rate * centred - top, 0.0))).sum())) + top > 0.5 * t * t + CLOSE:
            faults.append("tail")
    return faults


def check_influence(field, shrink=1.0):
    """Whether moving one neighbour can move the mean of a variable by more than the bound."""
    form, space = field._form, space_of(field)
    matrix = db.influence(field).matrix.toarray() * shrink
    point = space.anchor.point
    grid = Grid(field, point)
    for i in range(field.n_variables):
        law = grid.conditional(i)
        means = (law * grid.points[i].reshape([-1 if k == i else 1 for k in range(grid.n)])).sum(axis=i, keepdims=True)
        for j in range(field.n_variables):
            if j == i or not form.couplings[i, j]:
                continue
            steps = np.diff(grid.points[j])
            moved = np.abs(np.diff(means, axis=j)).max(axis=tuple(k for k in range(grid.n) if k != j))
            if (moved > matrix[i, j] * steps * (1 + CLOSE) + 1e-9 * steps.max()).any():
                return True
    return False


def test_bounds_hold_against_quadrature():
    for rng, field in cases(36, sizes=(1, 2, 3)):
        assert check_case(rng, field) == []
    for rng, field in cases(3, sizes=(4,)):
        assert check_case(rng, field) == []


def test_influence_holds_against_quadrature():
    for _, field in cases(18, sizes=(1, 2)):
        assert not check_influence(field)


@pytest.mark.parametrize(("what", "share"), [("start", 0.5), ("bias", 0.3), ("tv", 0.3), ("joint", 0.3), ("tail", 0.3)])
def test_bounds_that_are_too_small_are_caught(what, share):
    """Negative controls: each kind of bound, made too small, is violated in some case."""
    assert any(what in check_case(rng, field, {what: share}) for rng, field in cases(60, sizes=(1, 2, 3)))


def test_an_influence_that_is_too_small_is_caught():
    assert any(check_influence(field, 0.8) for _, field in cases(30, sizes=(2,)))


def test_each_influence_bound_is_needed():
    """The variance bounds: each is attained, so that a tenth less is violated."""
    free = db.GaussianField(TWO)
    assert db.influence(free).theorems == {"strong convexity": 2}
    centred = db.GaussianField(TWO, lower={0: -0.5}, upper={0: 0.5})
    assert "centred truncated normal" in db.influence(centred).theorems
    known = db.GaussianField(TWO, lower=[0.0, 4.0], upper=[1.0, 5.0])
    assert "known range of the neighbours" in db.influence(known).theorems
    spin = db.GaussianField(TWO, levels={0: [-1, 1]})
    assert "values of the variable" in db.influence(spin).theorems
    for field in (free, centred, known, spin):
        assert not check_influence(field)
        assert check_influence(field, 0.9)


def test_a_likelihood_adds_no_curvature_on_an_unbounded_interval():
    """A look-alike: taking the curvature of the likelihood at the mode into m_i."""
    field = db.GaussianField([[1.0, -0.9], [-0.9, 1.0]]).poisson([0, 0], exposure=1e-4)
    assert db.influence(field).matrix.toarray()[0, 1] == pytest.approx(0.9)
    improper = sparse.csr_array(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    with pytest.raises(db.ArgumentError, match="positive definite"):
        db.GaussianField(improper)


def test_marginal_distances_of_a_random_start_are_not_enough():
    """Section on starts: from the product of the marginals every W1 is 0, and yet one update moves x_3."""
    precision = np.array([[1, -0.8, -0.5], [-0.8, 1.6, -0.5], [-0.5, -0.5, 1.5]])
    covariance = np.linalg.inv(precision)
    pull = -precision[2, :2] / precision[2, 2]
    true = math.sqrt(covariance[2, 2])
    drawn = math.sqrt(1 / precision[2, 2] + pull**2 @ np.diag(covariance)[:2])
    assert math.sqrt(2 / math.pi) * abs(true - drawn) > 0.1  # W1 of centred normals; with b_0 = 0 it would be 0


def test_a_supersolution_must_not_be_negative():
    matrix = np.array([[0.0, 2.0], [2.0, 0.0]])
    a = np.array([-1.0, -1.0])
    assert (a >= matrix @ a + 0.5).all()  # and yet it bounds nothing
    assert not _is_supersolution(sparse.csr_array(matrix), a, np.full(2, 0.5), 1.0)
    assert _is_supersolution(sparse.csr_array(0.1 * matrix), -a, np.full(2, 0.5), 1.0)
    with pytest.raises(db.CertificateError, match="spectral radius of 1 or more"):
        db.variation(db.GaussianField([[1.0, 0.6, 0.6], [0.6, 1.0, 0.6], [0.6, 0.6, 1.0]]), db.Scan([0]))


def test_random_scans_and_given_starts_are_certified():
    field = db.GaussianField(TWO, linear=[1.0, 0.0])
    far = db.variation(field, db.Scan([0, 1, 0]), weights=[1, 0], initial=[50.0, -50.0])
    near = db.variation(field, db.Scan([0, 1, 0]), weights=[1, 0])
    assert near.value < far.value
    grid_mean = np.linalg.solve(TWO, [1.0, 0.0])[0]
    x = np.array([50.0, -50.0])
    for i in (0, 1, 0):
        x[i] = ([1.0, 0.0][i] + x[1 - i]) / 2
    assert 1.0 < abs(x[0] - grid_mean) <= far.value  # a look-alike: distances that are capped at 1
    random = db.variation(field, db.Scan.uniform(2, 200), targets=[0])
    assert random.tv_bound < 1e-6


# -- draws -----------------------------------------------------------------------------------

SITES = [
    (1.0, 0.0, 0.0, 0.0, -np.inf, np.inf),
    (2.0, 3.0, 0.0, 0.0, -1.0, 0.5),
    (1.0, -30.0, 0.0, 0.0, 0.0, np.inf),
    (1.0, 30.0, 0.0, 0.0, -np.inf, 0.0),
    (1.0, 0.0, 0.0, 0.0, 30.0, 30.0 + 1e-8),
    (0.5, 7.0, 3.0, 0.0, -np.inf, np.inf),
    (0.01, 1000.0, 1e-3, 0.0, -np.inf, np.inf),
    (0.5, -7.0, 30.0, 0.0, -2.0, np.inf),
    (0.3, 2.0, 0.0, 4.0, -np.inf, np.inf),
    (1e-3, 300.0, 0.0, 1000.0, -np.inf, 2.0),
    (1.0, 1000.0, 2.0, 3.0, -1.0, 1.0),
]


def site_law(m, c, E, N, low, high, x):
    """The distribution function of a site on a fine grid around draws x."""
    sd = x.std()
    a, b = max(low, x.min() - 3 * sd), min(high, x.max() + 3 * sd)
    nodes = np.linspace(a, b, 100_001)
    psi = 0.5 * m * nodes**2 - c * nodes + E * np.exp(nodes) + N * np.logaddexp(0, nodes)
    density = np.exp(-(psi - psi.min()))
    cdf = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return lambda y: np.interp(y, nodes, cdf / cdf[-1])


def draws_of(site, count=20_000, seed=7):
    m, c, E, N, low, high = site
    field = db.GaussianField([[m]], c, lower=low, upper=high)
    form = dataclasses.replace(field._form, amounts=np.array([[E], [N]]))
    scan, field = db.Scan([0]), form.to_model(None)
    return db.sample(field, scan, chains=count, seed=seed).states[:, 0]


@pytest.mark.parametrize("site", SITES)
def test_draws_have_the_law_of_the_site(site):
    x = draws_of(site)
    assert x.min() >= site[4]
    assert x.max() <= site[5]
    assert stats.kstest(x, site_law(*site, x)).pvalue > 1e-4


def test_a_proposal_at_a_computed_mode_is_caught():
    """A look-alike: proposing N(mode, 1/m) as if the mode were exact. Its acceptance ratio exceeds 1."""
    m, c, E = 1.0, 0.0, 1e-3
    mode = -special.lambertw(E).real + 0.01

    def psi(x):
        return 0.5 * m * x * x - c * x + E * math.exp(x)

    assert math.exp(-(psi(-8.0) - psi(mode)) + 0.5 * m * (-8.0 - mode) ** 2) > 1.0
    for x in (-8.0, 0.3, 5.0):
        slope = m * mode - c + E * math.exp(mode)
        assert psi(x) - psi(mode) - slope * (x - mode) - 0.5 * m * (x - mode) ** 2 >= 0


def test_wrong_draws_are_caught():
    """Negative control of the test: draws of a site that is a little different."""
    x = draws_of((1.0, 0.05, 0.0, 0.0, -np.inf, np.inf))
    assert stats.kstest(x, site_law(1.0, 0.0, 0.0, 0.0, -np.inf, np.inf, x)).pvalue < 1e-4


def test_strips_hold_the_density_and_places_hold_the_interval():
    """What the rejection of truncated Gaussians rests on; without the slack, places would cut off what is inside."""
    edges = np.array(field_draws._EDGES) * field_draws._UNIT
    kept = np.diff(edges) * np.exp(-0.5 * edges[:-1] ** 2) / field_draws._AREA
    assert kept.max() <= 1 + 1e-15  # the rectangle is above the density
    assert kept.min() >= 1 - 0.2 / 2048 + 1e-5  # and accepts at its edge what `_attempt` takes without a look
    # Between points 1e-5 apart, strips and the polynomial grow by at most 0.01 each.
    z = np.arange(0.0, 3.7, 1e-5)
    true = np.interp(z, edges, np.arange(len(edges)))
    low = np.array([field_draws.lower_place(x) for x in z.tolist()])
    high = np.array([field_draws.upper_place(x) for x in z.tolist()])
    assert (np.diff(true) <= 0.0101).all()
    assert (low <= true - 0.02).all()
    assert (high >= true + 0.02).all()
    assert (low + field_draws._SLACK > true).any()  # negative control
    assert [field_draws.lower_place(-x) for x in z[::100].tolist()] == (-high[::100]).tolist()
    # The tail is proposed as a whole or not at all.
    assert set(high[high > field_draws._LAST]) == {field_draws._ALL}
    assert field_draws.lower_place(-math.inf) == -field_draws._ALL
    assert field_draws.upper_place(math.inf) == field_draws._ALL


def binned(x, low, high):
    """The p-value of draws from a standard normal on an interval, by bins that are narrow at its ends."""
    inner = np.linspace(low, high, 60)
    near = np.array([1e-4, 5e-4, 2e-3])
    edges = np.unique(np.concatenate([inner, low + near, high - near]))
    expected = np.diff(stats.norm.cdf(edges)) / (stats.norm.cdf(high) - stats.norm.cdf(low)) * len(x)
    return stats.chisquare(np.histogram(x, edges)[0], expected * (len(x) / expected.sum())).pvalue


@pytest.mark.parametrize(("low", "high"), [(0.3, 2.0), (-4.5, 0.1), (-0.2, 0.2), (3.4, 3.9)])
def test_truncated_draws_are_right_up_to_the_ends(low, high):
    x = draws_of((1.0, 0.0, 0.0, 0.0, low, high), count=1_000_000)
    assert binned(x, low, high) > 1e-6


def test_truncated_draws_that_miss_an_end_are_caught():
    """Negative control: a place that is one strip too high at the lower end."""
    x = draws_of((1.0, 0.0, 0.0, 0.0, 0.3, 2.0), count=1_000_000)
    assert binned(x[x > 0.301], 0.3, 2.0) < 1e-6


def test_draws_depend_on_the_seed_alone():
    field = db.GaussianField.grid(4, 5, rho=0.8, lower=0.0).poisson({3: 2})
    scan = db.Scan.systematic(20, 100)
    many = db.sample(field, scan, chains=700, seed=3).states
    assert (db.sample(field, scan, chains=100, seed=3).states == many[:100]).all()
    assert not (db.sample(field, scan, chains=100, seed=4).states == many[:100]).any()
    random = db.sample(field, db.Scan.uniform(20, 50), chains=70, seed=3).states
    assert (db.sample(field, db.Scan.uniform(20, 50), chains=9, seed=3).states == random[:9]).all()


def test_values_of_finite_sets_are_drawn():
    field = db.GaussianField(TWO, levels={0: [-1, 0.5, 2]})
    states = db.sample(field, db.Scan([0]), chains=40_000, seed=1, initial=[0.5, 1.0]).states
    values = np.array([-1, 0.5, 2])
    weights = np.exp(-(values**2) + 1.0 * values)
    share = np.array([(states[:, 0] == v).mean() for v in values])
    assert np.abs(share - weights / weights.sum()).max() < 0.015


# -- estimates -------------------------------------------------------------------------------


def test_exact_answers_of_gaussian_fields():
    rng = np.random.default_rng(1)
    field = random_field(rng, "gaussian", 4)
    mean = np.linalg.solve(field.precision.toarray(), field.linear)
    sd = np.sqrt(np.diag(np.linalg.inv(field.precision.toarray())))
    targets = [0, 3, db.Exceeds(1, mean[1] + 0.3), db.Between(2, mean[2] - sd[2], mean[2] + sd[2])]
    truth = [mean[0], mean[3], special.ndtr(-0.3 / sd[1]), special.ndtr(1) - special.ndtr(-1)]
    for method in ("auto", "local"):
        answer = db.estimate(field, targets, tolerance=1e-6, method=method)
        assert (answer.lower <= truth).all()
        assert (truth <= answer.upper).all()
        assert answer.half_width.max() < 1e-9
        assert answer.confidence == 1
    assert db.estimate(field, targets).plan.method == "exact"


def test_what_rounding_leaves_is_held_against_the_tolerance():
    field = db.GaussianField.grid(9, 9, rho=1 - 1e-10, periodic=True, linear=1.0)
    answer = db.estimate(field, [5], tolerance=1e7)
    true = 1 / sum(Fraction(float(number)) for number in field.precision[[5]].data)  # all means are the same
    assert answer.lower[0] <= true <= answer.upper[0]
    assert 0.01 < answer.half_width[0] <= 1e7
    with pytest.raises(db.CertificateError, match=r"exact: the rounding error of .* exceeds the tolerance 0\.01"):
        db.estimate(field, [5], tolerance=0.01, method="exact")


def test_local_answers_hold_and_a_region_without_its_border_is_caught():
    rng = np.random.default_rng(2)
    field = db.GaussianField.grid(40, 40, rho=0.95, linear=rng.normal(size=1600) + 1.0)
    true = float(sparse.linalg.spsolve(sparse.csc_array(field.precision), field.linear)[820])
    answer = db.estimate(field, [820], tolerance=0.5, method="local")
    assert answer.lower[0] <= true <= answer.upper[0]
    assert answer.half_width[0] <= 0.5
    assert abs(answer.value[0] - true) > 1e-6  # the region alone is wrong: what is outside has to be bounded


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_agree_with_quadrature(kind):
    rng = np.random.default_rng(5)
    field = random_field(rng, kind, 3)
    grid = Grid(field, space_of(field).anchor.point)
    laws = [grid.marginal(grid.law, i) for i in range(3)]
    means = [float(p @ law) for p, law in zip(grid.points, laws, strict=True)]
    sd = [math.sqrt(max(float(p**2 @ law) - m * m, 1e-6)) for p, law, m in zip(grid.points, laws, means, strict=True)]
    threshold = float(np.median(grid.points[0]))
    stat = db.Statistic(lambda x: np.maximum(x[:, 0], x[:, 1]), {0: 1, 2: 1}, (-math.inf, math.inf), "largest")
    answer = db.estimate(field, [0, 1, 2, stat], tolerance=0.2 * max(sd), method="dobrushin", seed=3)
    mesh = np.maximum(grid.points[0][:, None], grid.points[2][None, :])
    means.append(float((grid.law.sum(axis=1) * mesh).sum()))
    assert (answer.lower <= means).all()
    assert (means <= answer.upper).all()
    assert answer.half_width.max() <= 0.2 * max(sd) * (1 + 1e-9)
    event = db.estimate(field, db.Exceeds(0, threshold), tolerance=0.05, method="dobrushin", seed=3)
    if kind != "mixed":
        cdf = np.interp(threshold, grid.points[0], np.cumsum(laws[0]) - 0.5 * laws[0])
        assert event.lower[0] - 0.01 <= 1 - cdf <= event.upper[0] + 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_agree_with_quadrature(kind):
    rng = np.random.default_rng(6)
    field = random_field(rng, kind, 2)
    grid = Grid(field, space_of(field).anchor.point)
    targets = [db.Quantile(i, level) for i in range(2) for level in (0.1, 0.5, 0.9)]
    answers = [db.estimate(field, targets, tolerance=0.02, method="dobrushin", seed=4)]
    if kind == "gaussian":
        answers += [db.estimate(field, targets, tolerance=0.02, method=method) for method in ("exact", "local")]
    for answer in answers:
        for target, low, high in zip(targets, answer.lower, answer.upper, strict=True):
            law, points = grid.marginal(grid.law, target.label), grid.points[target.label]
            # A node stands for what is around it: half of its own mass may be on either side.
            assert law[points < low].sum() - law.max() / 2 <= target.level <= law[points <= high].sum() + law.max() / 2
            assert law[(points > low) & (points < high)].sum() <= 0.08 + law.max()
    assert answers[0].states == ["quantile"] * 6
    assert "the tolerance" not in answers[0].headline


def test_ranks_hold_a_quantile_with_the_stated_probability():
    """Exactly, from binomial laws; ranks that are a little closer, or that forget the bias, are caught."""
    for chains, level, bias, early in [(500, 0.5, 0.0, False), (400, 0.1, 0.02, False), (300, 0.9, 0.05, True)]:
        r, s = ranks(chains, level - bias, level + bias, 0.2, early)
        assert stats.binom.cdf(r - 1, chains, level - bias) <= 0.1
        assert stats.binom.sf(s - 1, chains, level + bias) <= 0.1
        if not early:
            closer = r + 0.2 * math.sqrt(chains * level * (1 - level))
            assert stats.binom.cdf(closer, chains, level - bias) > 0.1
        if bias and not early:
            forgetful = ranks(chains, level, level, 0.2, early)[0]
            assert stats.binom.cdf(forgetful - 1, chains, level - bias) > 0.1
    assert ranks(10, 0.0, 1.0, 0.1, False) == (0, 11)


def test_intervals_cover_and_fail_without_their_bias_or_their_width():
    """Coverage at confidence 0.8 over seeds; a quick share of benchmarks/fields.py."""
    field = db.GaussianField([[1.0, -0.9], [-0.9, 1.0]], linear=[0.5, 0.0], lower=-1.0, upper=2.0)
    grid = Grid(field, space_of(field).anchor.point)
    true = float(grid.points[0] @ grid.marginal(grid.law, 0))
    held, thin, widths = 0, 0, []
    for seed in range(60):
        answer = db.estimate(field, [0], tolerance=0.08, confidence=0.8, method="dobrushin", seed=seed)
        held += bool(answer.lower[0] <= true <= answer.upper[0])
        middle, half = 0.5 * (answer.lower[0] + answer.upper[0]), answer.half_width[0]
        thin += bool(abs(middle - true) <= 0.1 * half)
        widths.append(half)
    assert held >= 0.8 * 60 - 3 * math.sqrt(60 * 0.16)
    assert thin < 0.8 * 60 - 3 * math.sqrt(60 * 0.16)  # a tenth of the width does not cover
    assert max(widths) <= 0.08


def test_chains_that_drift_are_counted():
    """How many of them there can be, from binomial laws; and intervals hold although some chains went astray."""
    for chains, chance, error in [(1000, 1e-9, 1e-3), (10**6, 1e-6, 1e-4), (10**5, 1e-3, 1e-5), (50, 0.2, 1e-3)]:
        k = most_drifted(chains * chance, error)
        assert stats.binom.sf(k, chains, chance) <= error
    assert stats.binom.sf(10, 10**4, 1e-3) > 1e-4  # the expected number alone is exceeded
    assert most_drifted(1e4, 1e-3) == math.inf
    clip = Clip(0.0, 1.0, 1e-6, 0.0, 1e-3, SHARES[1])
    rng, chains = np.random.default_rng(1), 10**4
    moved = abs((rng.normal(size=chains) * 1e-3 + (rng.random(chains) < clip.chance)).mean())
    assert moved <= clip.half_width(chains, 0.2)
    assert moved > clip._replace(chance=0.0).half_width(chains, 0.2)  # as if all of them were near
    assert clip._replace(span=math.inf).half_width(chains, 0.2) == math.inf  # unclipped, one may be anywhere
    assert clip.half_width(clip.most_chains(0.05, 0.2), 0.2) <= 0.05


def test_narrow_intervals_of_many_means_have_a_plan():
    """So many chains that some may have drifted: once, no chain was allowed to."""
    field = db.GaussianField.car(nx.grid_2d_graph(4, 4), rho=0.9, precision=2.0, lower=-3.0).poisson(np.arange(16) % 5)
    plan = db.plan(field, "all", tolerance=0.003)
    drift = ChainBounds(space_of(field).anchor, plan.scan).drift
    assert plan.chains * drift.chance > 0.01 / 16 * 1e-3
    assert plan.chains < 10**7


def test_a_statistic_may_be_bounded_on_one_side():
    """E|x| of a normal law is known; the interval stops at the bound that is there."""
    field = db.GaussianField([[4.0]])
    answer = db.estimate(field, UNBOUNDED, tolerance=0.05, seed=1)
    assert answer.lower[0] <= math.sqrt(0.5 / math.pi) <= answer.upper[0]
    near = db.Statistic(lambda x: np.abs(x[:, 0]), {0: 1}, (0.39, math.inf))
    with pytest.raises(db.ArgumentError, match=r"within the bounds 0\.39 to inf"):
        db.estimate(field, near, tolerance=0.05, seed=1)
    assert db.estimate(field, UNBOUNDED, tolerance=2.0, seed=1).lower[0] >= 0.0


def test_plans_and_data_frames():
    field = db.GaussianField.car(nx.cycle_graph(5), rho=0.8, labels=list("abcde")).poisson([1, 0, 2, 4, 1], 2.0)
    plan = db.plan(field, ["a", db.Exceeds("b", 0.5)], tolerance=0.1)
    assert plan.method == "dobrushin"
    assert plan.scan is not None
    assert plan.chains > 0
    frame = db.estimate(field, ["a", db.Exceeds("b", 0.5)], tolerance=0.1, seed=1).to_dataframe()
    assert list(frame["target"]) == ["a", "b > 0.5"]
    assert list(frame["state"]) == ["mean", "probability"]
    early = db.estimate(field, "all", tolerance=0.02, seed=1, time_limit=0.05)
    assert (early.upper > early.lower).all()
    with pytest.raises(db.BudgetError):
        db.estimate(field, "all", tolerance=0.01, seed=1, budget=1000)


# -- input -----------------------------------------------------------------------------------

UNBOUNDED = db.Statistic(lambda x: np.abs(x[:, 0]), {0: 1}, (0.0, math.inf), "size")


def _by_function(linear):
    return db.GaussianField.grid(9, 9, linear=linear, linear_bound=1.0)


BAD = [
    (lambda: db.GaussianField([[1, 0.2], [0.3, 1]]), "symmetric"),
    (lambda: db.GaussianField([[1, 0.0], [0.0, 0]]), "positive on the diagonal"),
    (lambda: db.GaussianField([[1, -2.0], [-2.0, 1]]), "positive definite"),
    (lambda: db.GaussianField(np.eye(3) - 0.6 * (np.ones((3, 3)) - np.eye(3))), "positive definite"),
    (lambda: db.GaussianField([1.0, 2.0]), "square matrix"),
    (lambda: db.GaussianField(TWO, linear=[1.0, math.nan]), "'linear'"),
    (lambda: db.GaussianField(TWO, lower=1.0, upper=1.0), "above 'lower'"),
    (lambda: db.GaussianField(TWO, lower=[0.0, 2.0], upper=1.0), "interval from 2 to 1 at variable 1"),
    (lambda: db.GaussianField(TWO, lower=[0.0, math.nan]), "'lower'"),
    (
        lambda: db.sample(db.GaussianField(TWO, lower=0.0), db.Scan([0]), initial=[0.0, -1.0]),
        "inside the box.*variable 1",
    ),
    (lambda: db.sample(db.GaussianField(TWO), db.Scan([0]), record="counts"), "are not counted"),
    (lambda: db.estimate(db.GaussianField(TWO), [0], evidence={0: math.inf}), r"from -1e\+100 to"),
    (lambda: db.estimate(db.GaussianField(TWO), [0], method="exact", verify=True), "'dobrushin' for a proof"),
    (lambda: db.GaussianField(TWO, levels={0: [1.0]}), "two or more different"),
    (lambda: db.GaussianField(TWO, levels={0: [0, 1]}, lower={0: 0.0}), "infinite for variables with levels"),
    (lambda: db.GaussianField(TWO).poisson([1, -2]), "whole numbers"),
    (lambda: db.GaussianField(TWO, labels=["a", "b"]).poisson({"b": -2}), "Got -2.0 at variable 'b'"),
    (lambda: db.GaussianField(TWO).poisson([1, 1e17]), r"at most 2\^53. Got 1e\+17 at variable 1"),
    (lambda: db.GaussianField([[1, 0.3], [0.3 + 1e-16, 1]]), r"to the last bit, as \(P \+ P.T\) / 2 is"),
    (lambda: db.GaussianField(TWO).poisson([1, 2.5]), "whole numbers"),
    (lambda: db.GaussianField(TWO).poisson([1, 2], exposure=0.0), "'exposure'"),
    (lambda: db.GaussianField(TWO).bernoulli([1, 2]), "number of trials"),
    (lambda: db.GaussianField(TWO).normal([1, 2], precision=-1.0), "'precision'"),
    (lambda: db.GaussianField(TWO, levels={0: [0, 1]}).poisson([1, 2]), "continuous variables"),
    (lambda: db.GaussianField.car(nx.path_graph(3), rho=1.0), "'rho'"),
    (lambda: db.GaussianField.car(nx.empty_graph(2), rho=0.5), "isolated"),
    (lambda: db.GaussianField.grid(3, 3, rho=1.5), "'rho'"),
    (lambda: db.GaussianField.leroux(np.array([[0, 1], [0, 0]]), rho=0.5), "undirected"),
    (lambda: db.Exceeds(0, math.inf), "'threshold'"),
    (lambda: db.Between(0, 1.0, 0.0), "above 'low'"),
    (lambda: db.Quantile(0, 1.0), "'level'"),
    (lambda: db.estimate(db.GaussianField(TWO), db.Quantile(7, 0.5)), "labels of the model"),
    (lambda: db.estimate(db.Ising({(0, 1): 0.1}), db.Quantile(0, 0.5)), "about fields"),
    (lambda: db.variation(db.GaussianField(TWO, lower=0.0), db.Scan([0]), initial=[-1.0, 0.0]), "inside the box"),
    (lambda: db.estimate(db.GaussianField(TWO), [0], method="coalescence"), "'method'"),
    (lambda: db.estimate(db.GaussianField(TWO), db.Joint(0, 1)), "means, Exceeds"),
    (lambda: db.estimate(db.GaussianField(TWO), db.Statistic.event([0], lambda x: x[:, 0] > 0)), "Exceeds or Between"),
    (lambda: db.estimate(db.GaussianField(TWO), [7]), "labels of the model"),
    (lambda: db.estimate(db.Ising({(0, 1): 0.1}), db.Exceeds(0, 1.0)), "about fields"),
    (lambda: db.coalescence(db.GaussianField(TWO), db.Scan([0])), "discrete variables"),
    (lambda: db.influence(db.GaussianField(TWO), method="paper"), "'best' for a field"),
    (lambda: db.variation(db.Ising({(0, 1): 0.1}), db.Scan([0]), initial=[1, 1]), "except for a field"),
    (lambda: db.variation(db.GaussianField(TWO), db.Scan([0]), initial=np.zeros((5, 2))), "for a fixed start"),
    (lambda: db.sample(db.GaussianField(TWO), db.Scan([0]), chains=5, initial=np.zeros((5, 2))), "for a fixed start"),
    (lambda: db.GaussianField.leroux([[0, 0.5], [1, 0]], rho=0.5), r"by rows.*\(0\.5, 1\.0\) at indices \(0, 1\)"),
    (lambda: db.GaussianField.car(nx.DiGraph([(0, 1)]), rho=0.5), "undirected simple graph. Got DiGraph"),
    (lambda: db.GaussianField.car(nx.Graph([(0, 1, {"weight": "x"})]), rho=0.5), r"numbers. Got 'x' at edge \(0, 1\)"),
    (lambda: db.GaussianField.car([[0, -1], [-1, 0]], rho=0.5), r"Got -1.0 at index \(0, 1\)"),
    (lambda: db.GaussianField.car(None, rho=0.5), "libpysal weights or a matrix. Got None"),
    (lambda: db.estimate(db.GaussianField(TWO), [0], evidence={1: [1, 2]}), r"Got \[1, 2\] at label 1"),
    (lambda: db.estimate(db.GaussianField(TWO), [0], evidence={1: "x"}), "Got 'x' at label 1"),
    (lambda: db.estimate(db.GaussianField(TWO), [1], evidence={1: 0.0}), "not in the evidence. Got 1"),
    (lambda: db.plan(db.GaussianField(TWO), db.Exceeds(1, 0.0), evidence={1: 0.0}), "not in the evidence. Got 1"),
    (lambda: db.GaussianField.grid(9, 9, linear=1.0, linear_bound=1.0), "None unless 'linear' is a function"),
    (lambda: db.GaussianField.grid(9, 9, linear=np.sin, linear_bound=1.0, lower=0.0), "left out where 'linear'"),
    (lambda: db.estimate(_by_function(lambda _: np.ones(3)), [40]), r"for each of \d+ sites. Got shape \(3,\)"),
    (lambda: db.estimate(_by_function(lambda i: np.where(i == 41, 2.0, 0.0)), [40]), "Got 2.0 at site 41"),
    (lambda: db.estimate(_by_function(np.sin), "all"), "has too many for .all."),
    (lambda: db.estimate(_by_function(np.sin), UNBOUNDED), "means, Exceeds, Between or Quantile"),
    (lambda: db.estimate(db.Ising({(0, 1): 0.1}), UNBOUNDED), "statistics with finite bounds"),
    (lambda: db.Statistic(np.sum, {0: 1}, (math.inf, math.inf)), "the smaller one first"),
]


@pytest.mark.parametrize(("call", "words"), BAD)
def test_bad_input_gets_a_sentence(call, words):
    with pytest.raises(db.ArgumentError, match=words):
        call()


def test_a_field_that_fails_dobrushins_condition_says_which_rows():
    field = db.GaussianField([[1.0, 0.6, 0.6], [0.6, 1.0, 0.6], [0.6, 0.6, 1.0]])
    with pytest.raises(db.CertificateError, match=r"row sums are those of 0 .*would have to be above 1.2"):
        db.estimate(field, [0], method="dobrushin")
    run = db.sample(field, db.Scan.systematic(3, 30), chains=100, seed=1)  # chains can be run all the same
    assert np.isfinite(run.states).all()
    assert np.isinf(run.update_error).all()


def test_scans_are_chosen_and_files_keep_fields(tmp_path):
    field = db.GaussianField.car(nx.cycle_graph(6), rho=0.8, labels=list("abcdef")).poisson([1, 0, 2, 4, 1, 2], 2.0)
    plain = db.variation(field, db.Scan.systematic(6, 60), weights={"a": 1.0})
    better = db.optimize_scan(field, db.Scan.systematic(6, 60), weights={"a": 1.0})
    assert better.variation.value <= plain.value
    short = db.shortest_scan(field, ["a"], tolerance=0.01)
    assert short.variation.value <= 0.01
    assert short.variation.value == db.variation(field, short, ["a"]).value
    assert db.greedy_scan(field, ["a", "c"], steps=60).variation.value < 0.1
    mixed = db.GaussianField(TWO, levels={1: [-1, 0, 1]}, lower={0: 0.0})
    for model in (field, mixed):
        db.write(model, tmp_path / "field.npz")
        again = db.read(tmp_path / "field.npz")
        for name, array in model._form.to_arrays().items():
            assert (again._form.to_arrays()[name] == array).all()
        assert list(again.labels) == list(model.labels)
    assert "Wasserstein" in str(db.diagnose(field))


def test_the_influence_of_a_field_alone_certifies_nothing():
    """It knows no start: as if it were that of a discrete model, distances above 1 would be cut off."""
    alone = db.influence(db.GaussianField(TWO))
    for call in (
        lambda: db.variation(alone, db.Scan([0])),
        lambda: db.optimize_scan(alone, db.Scan([0])),
        lambda: db.shortest_scan(alone, [0], tolerance=0.1),
        lambda: db.greedy_scan(alone, [0], steps=3),
    ):
        with pytest.raises(db.ArgumentError, match="the field itself"):
            call()


def test_many_means_of_a_large_gaussian_field_are_solved_at_once(monkeypatch):
    monkeypatch.setattr("dobrushin._fields.anchor._WHOLE_VARIABLES", 500)
    field = db.GaussianField.grid(30, 30, rho=0.8, linear=1.0)
    everywhere, some = db.estimate(field, "all"), db.estimate(field, list(range(5)))
    assert (everywhere.plan.method, some.plan.method) == ("exact", "local")
    assert (np.abs(everywhere.value[:5] - some.value) <= some.bias_bound + everywhere.bias_bound[:5]).all()
    assert db.plan(field, [db.Exceeds(i, 1.0) for i in range(20)]).method == "local"  # each needs a variance of its own


def test_grids_by_a_function_are_solved_around_targets():
    def linear(sites):
        return np.sin(1.7 * sites)

    lazy = db.GaussianField.grid(30, 40, rho=0.9, linear=linear, linear_bound=1.0)
    whole = db.GaussianField.grid(30, 40, rho=0.9, linear=linear(np.arange(1200)))
    exact = sparse.linalg.spsolve(sparse.csc_array(whole.precision), whole.linear)
    for site in (0, 39, 40, 620, 1199):
        answer = db.estimate(lazy, [site], tolerance=0.1)
        assert answer.lower[0] <= exact[site] <= answer.upper[0]
    pair = [db.Exceeds(620, 0.5)]
    assert abs(db.estimate(lazy, pair).value - db.estimate(whole, pair).value)[0] < 0.01
    with pytest.raises(db.ArgumentError, match=r"linear_bound = 0\.1"):
        db.estimate(db.GaussianField.grid(30, 40, linear=linear, linear_bound=0.1), [620])
    with pytest.raises(db.ArgumentError, match="must be in memory"):
        db.sample(lazy, db.Scan([0]))
    assert "unbounded" in lazy._repr_html_()


def test_graphs_of_all_kinds_give_the_same_prior():
    graph = nx.cycle_graph(4)
    adjacency = nx.to_scipy_sparse_array(graph)

    class Weights:  # the face of libpysal's
        sparse = adjacency
        id_order = (0, 1, 2, 3)

    class Graph:  # and of its graphs
        sparse = adjacency
        unique_ids = np.arange(4)

    graphs = (graph, adjacency, adjacency.toarray(), Weights(), Graph())
    fields = [db.GaussianField.leroux(g, rho=0.7) for g in graphs]
    assert fields[-1].labels == fields[0].labels
    assert all((f.precision != fields[0].precision).nnz == 0 for f in fields)


def test_modes_are_found_from_anywhere():
    keys = streams(np.uint64(1), np.uint64(2), 0, 1)
    assert keys.shape == (2, 1)
    for m, c, E, N in [(1e-6, 5.0, 1e15, 0.0), (1.0, -1e8, 3.0, 2.0), (1e-8, 1e6, 1e-10, 1e6), (3.0, 1e9, 1e-3, 0.0)]:
        x = field_draws.find_mode(m, c, E, N, -np.inf, np.inf)
        slope = m * x - c + E * math.exp(min(x, 700)) + N * special.expit(x)
        bend = m + E * math.exp(min(x, 700)) + N * special.expit(x) * special.expit(-x)
        assert abs(slope) <= 0.02 * math.sqrt(bend) + 1e-6 * abs(c)


# -- the same doors as other models -----------------------------------------------------------


def test_kept_variables_are_those_that_were_asked_for():
    """Any of them: also all but the first, or all but one."""
    field, scan = db.GaussianField.grid(2, 2, rho=0.8, linear=[[0.0, 5.0], [50.0, -20.0]]), db.Scan.systematic(4, 40)
    whole = db.sample(field, scan, chains=3, seed=1).states
    for size in (1, 2, 3, 4):
        for kept in itertools.permutations(range(4), size):
            assert (db.sample(field, scan, chains=3, seed=1, record=kept).states == whole[:, list(kept)]).all()
    exact = db.estimate(field, [1, 2, 3], method="exact").value
    answer = db.estimate(field, [1, 2, 3], tolerance=0.1, method="dobrushin", seed=1)
    assert (answer.lower <= exact).all()
    assert (exact <= answer.upper).all()


def test_evidence_is_the_conditioned_field():
    field = db.GaussianField.car(nx.path_graph(list("abcd")), rho=0.8, precision=2.0)
    given = field.condition({"b": 1.5})
    rest, precision = [0, 2, 3], field.precision.toarray()
    exact = np.linalg.solve(precision[np.ix_(rest, rest)], -1.5 * precision[rest, 1])
    for method in ("exact", "local", "dobrushin"):
        answer = db.estimate(field, ["a", "d"], evidence={"b": 1.5}, tolerance=0.1, method=method, seed=1)
        assert (answer.lower <= exact[[0, 2]]).all()
        assert (exact[[0, 2]] <= answer.upper).all()
    assert answer.asked.evidence == {"b": 1.5}
    # Plan and certificate are about the field that was given.
    assert set(answer.plan.scan._updates(4).tolist()) == {0, 2, 3}
    assert db.plan(field, ["a", "d"], evidence={"b": 1.5}, tolerance=0.1, method="dobrushin").chains >= answer.chains
    assert answer.certificate.per_variable[1] == 0.0
    alone = db.estimate(given, ["a", "d"], tolerance=0.1, method="dobrushin", seed=1)
    assert answer.certificate.per_variable[[0, 2, 3]] == pytest.approx(alone.certificate.per_variable)
    assert (alone.value == answer.value).all()
    box = db.GaussianField(TWO, lower=0.0, upper=1.0, labels=["a", "b"])
    with pytest.raises(db.ArgumentError, match=r"0 to 1\. Got 2\.0 at label 'b'"):
        db.estimate(box, ["a"], evidence={"b": 2.0})


def test_many_queries_about_a_field():
    field = db.GaussianField.car(nx.path_graph(4), rho=0.8).poisson([1, 0, 3, 2])
    queries = [([0, db.Exceeds(1, 0.0)], None), ([0], {1: 0.5}), ([9], None)]
    many = db.estimate_many(field, queries, tolerance=0.2, seed=1)
    assert sorted(many.answers) == [0, 1]
    assert "labels of the model" in str(many.errors[2])
    again = db.estimate(field, [0], evidence={1: 0.5}, tolerance=0.2, seed=many[1].seed)
    assert (again.value == many[1].value).all()
    solved = db.estimate_many(db.GaussianField.grid(9, 9, linear=np.sin, linear_bound=1.0), [([40], None)])
    assert solved[0].plan.method == "local"


def test_samples_of_a_field_are_kept(tmp_path):
    field = db.GaussianField(TWO, lower=0.0, labels=["a", "b"])
    run = db.sample(field, db.Scan.systematic(2, 20), chains=50, seed=3, initial=[1.0, 0.5])
    run.save(tmp_path / "run.npz")
    again = db.Samples.load(tmp_path / "run.npz")
    assert (again.states == run.states).all()
    assert (again._point == [1.0, 0.5]).all()
    assert again.variation(field, ["a"]).value == run.variation(field, ["a"]).value
    with pytest.raises(db.ArgumentError, match="of discrete variables"):
        again.marginals()
    assert "mean (deviation)" in again._repr_html_()
    assert "2 unbounded on one side or both" in field._repr_html_()


# -- the command line ------------------------------------------------------------------------


def test_verbs_take_fields(tmp_path):
    field = db.GaussianField.car(nx.cycle_graph(4), rho=0.6, labels=list("abcd")).poisson([1, 0, 2, 4], 2.0)
    db.write(field, path := tmp_path / "field.npz")

    def call(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        return result.exit_code, result.stdout + result.stderr

    code, text = call("estimate", path, "--target", "a", "--target", "b>0.5", "--tolerance", "0.3", "--seed", "1")
    assert code == 0
    assert "b > 0.5" in text
    for verb in ("inspect", "influence", "certify", "optimize"):
        assert call(verb, path)[0] == 0
    code, text = call("sample", path, "--chains", "50", "--seed", "1", "--scan", "systematic")
    assert code == 0
    assert "deviation" in text
    code, text = call("estimate", path, "--target", "a@0.9", "--tolerance", "0.1", "--seed", "1")
    assert code == 0
    assert "0.9 quantile of a" in text
    wrong = {
        ("--target", "z>0.5"): "--target must name",
        ("--target", "a>high"): "label>number or label@level",
        ("--target", "a@2"): "between 0 and 1",
        ("--evidence", "b=yes"): "label=number for a field. Got 'yes'",
        ("--evidence", "b=nan"): "from -1e+100 to 1e+100",
        ("--evidence", "z=1"): "--evidence must name",
        ("--tolerance", "-1"): "must be a positive finite number",
        ("--method", "coalescence"): "'auto', 'exact', 'local', 'dobrushin'",
        ("--proof", str(tmp_path / "p"), "--method", "exact"): "'dobrushin' for a proof about a field",
    }
    for words, sentence in wrong.items():
        code, text = call("estimate", path, *words)
        assert (code, sentence in " ".join(text.split())) == (2, True), (words, text)
    code, text = call("estimate", path, "--target", "a", "--evidence", "b=0.5", "--tolerance", "0.3", "--seed", "1")
    assert code == 0
    code, text = call("sample", path, "--chains", "5", "--output", tmp_path / "run.npz")
    assert code == 0
    assert db.Samples.load(tmp_path / "run.npz").chains == 5
    (tmp_path / "empty.npz").touch()
    assert "empty file" in call("estimate", tmp_path / "empty.npz")[1]
    for other in ("model.uai", "model.bif", "model.coo"):
        assert call("convert", path, tmp_path / other)[0] == 2
    db.write(db.GaussianField(0.4 * np.eye(3) + 0.6, lower=0.0), strong := tmp_path / "strong.npz")
    code, text = call("estimate", strong)
    assert (code, "a box for the variables" in text, "uncertified" in text) == (3, True, False)


def test_files_of_fields_that_make_no_sense_are_refused(tmp_path):
    """A box that is empty, a precision that is none: the file is at fault, and the sentence names it."""
    db.write(db.GaussianField(TWO, lower=0.0, upper=1.0), path := tmp_path / "field.npz")
    with np.load(path) as stored:
        arrays = dict(stored)
    for name, value in (("lower", [2.0, 2.0]), ("upper", [math.nan, 1.0]), ("diagonal", [-1.0, 2.0])):
        assert name in arrays
        np.savez(path, **{**arrays, name: np.array(value)})
        result = CliRunner().invoke(app, ["estimate", str(path)])
        assert result.exit_code != 0
        assert isinstance(result.exception, SystemExit), name
        assert "Error" in result.stderr


@pytest.mark.parametrize("value", [0.5, np.nan])
def test_the_headline_of_an_interval_without_ends(value):
    """A run that is ended early may know nothing of an unbounded variable."""
    answer = db.estimate(db.GaussianField([[1.0]]), [0], tolerance=0.5, method="dobrushin", seed=1)
    ends = {"value": np.array([value]), "lower": np.array([-np.inf]), "upper": np.array([np.inf])}
    assert "+- inf" in dataclasses.replace(answer, **ends).headline


def exact_mean(matrix, linear):
    """Solve P x = linear in rationals, by elimination."""
    n = len(linear)
    rows = [[Fraction(x) for x in row] + [Fraction(b)] for row, b in zip(matrix, linear, strict=True)]
    for k in range(n):
        pivot = next(j for j in range(k, n) if rows[j][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for j in range(n):
            if j != k:
                rows[j] = [x - rows[j][k] * y for x, y in zip(rows[j], rows[k], strict=True)]
    return [row[-1] for row in rows]


def test_terms_that_nearly_cancel_carry_their_rounding():
    field = db.GaussianField([[1.0]], linear=[1e16]).normal({0: -3e16}, precision=1 / 3)
    truth = (Fraction(1e16) + Fraction(1 / 3) * Fraction(-3e16)) / (1 + Fraction(1 / 3))
    answer = db.estimate(field, tolerance=10.0)
    assert Fraction(float(answer.lower[0])) <= truth <= Fraction(float(answer.upper[0]))
    assert abs(float(truth) - 0.41633) < 1e-4
    with pytest.raises(db.CertificateError, match="rounding"):
        db.estimate(field, tolerance=1e-3, method="exact")


def derived_fields(count, seed=5):
    """Fields whose linear terms were computed: the field, and its precision matrix and linear term in rationals."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(1, 5))
        scale = 10.0 ** rng.integers(-40, 41)
        couplings = np.triu(-0.2 * rng.random((n, n)), 1) * scale
        matrix = couplings + couplings.T + np.diag(scale * (1.0 + rng.random(n)))
        linear = scale * rng.normal(size=n) * 10.0 ** rng.integers(0, 17)
        field, own = db.GaussianField(matrix, linear=linear), [Fraction(x) for x in linear]
        exact = [[Fraction(x) for x in row] for row in matrix]
        for _ in range(int(rng.integers(1, 4))):
            i, weight = int(rng.integers(n)), scale * rng.random()
            value = -linear[i] / weight * (1.0 + 1e-15 * rng.normal())  # cancels what is there, but for rounding
            if abs(value) > 1e99:
                continue
            field = field.normal({i: value}, precision=weight)
            own[i] += Fraction(weight) * Fraction(value)
            exact[i][i] += Fraction(weight)
        if n > 1 and rng.random() < 0.5:
            value = float(rng.normal() * 10.0 ** rng.integers(0, 12))
            field = field.condition({n - 1: value})
            own = [own[i] - exact[i][n - 1] * Fraction(value) for i in range(n - 1)]
            exact = [row[: n - 1] for row in exact[: n - 1]]
        yield field, exact, own


def violations(count):
    """How many certain intervals for means miss the exact mean."""
    missed = 0
    for field, matrix, linear in derived_fields(count):
        truth = exact_mean(matrix, linear)
        widest = 10.0 * max(1.0, *(abs(float(x)) for x in truth), float(np.abs(field.linear).max()))
        try:
            answer = db.estimate(field, tolerance=min(widest, 1e99), method="exact")
        except db.CertificateError:
            continue
        ends = zip(answer.lower.tolist(), answer.upper.tolist(), truth, strict=True)
        missed += sum(not Fraction(low) <= mean <= Fraction(high) for low, high, mean in ends)
    return missed


def test_derived_terms_against_rationals(monkeypatch):
    assert violations(300) == 0
    # Negative control: without the carried error intervals are missed.
    make = terms.FieldTerms.__post_init__

    def forget(form):
        make(form)
        form.linear_error = np.zeros_like(form.linear)

    monkeypatch.setattr(terms.FieldTerms, "__post_init__", forget)
    assert violations(300) > 5


def count_underflow_violations():
    """How many intervals miss the mean where products are smaller than numbers with all their digits."""
    matrix, linear = [[3e-100, 1e-100], [1e-100, 3e-100]], [7e-322, 1.3e-321]
    coupled = db.GaussianField([[3e-100, 1e-200], [1e-200, 3e-100]]).condition({1: 3.3e-123})
    cases = [
        (db.GaussianField(matrix, linear), exact_mean(matrix, linear)),
        (coupled, [-Fraction(1e-200) * Fraction(3.3e-123) / Fraction(3e-100)]),
    ]
    missed = 0
    for field, truth in cases:
        for method in ("exact", "local"):
            answer = db.estimate(field, tolerance=0.1, method=method)
            ends = zip(answer.lower.tolist(), answer.upper.tolist(), truth, strict=True)
            missed += sum(not Fraction(low) <= mean <= Fraction(high) for low, high, mean in ends)
    return missed


def test_products_that_underflow_are_counted(monkeypatch):
    assert count_underflow_violations() == 0
    for module in (solve, terms):  # negative control
        monkeypatch.setattr(module, "SMALLEST", 0.0)
    assert count_underflow_violations() == 6


def test_the_rounding_of_terms_is_stored(tmp_path):
    field = db.GaussianField([[1.0]], linear=[1e16]).normal({0: -3e16}, precision=1 / 3)
    db.write(field, tmp_path / "field.npz")
    again = db.read(tmp_path / "field.npz")
    assert again == field
    assert again._form.linear_error[0] == field._form.linear_error[0] > 0
