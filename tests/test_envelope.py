"""Gaussian envelopes: the law that is drawn from, majorisers above, exact draws, intervals that hold."""

import math

import numpy as np
import pytest
from scipy import special, stats

import dobrushin as db
from dobrushin._estimate import weights as module
from dobrushin._estimate.bets import weighted_interval
from dobrushin._exact.envelope import Envelope, EnvelopeLaw
from dobrushin._kernels.envelope import normal
from dobrushin._sampling.weighted import Tries, draw_weighted
from models import all_states

# Every statistical check below fails by chance at most this often.
ALPHA = 1e-9


def dense(n, strength, seed, spread=0.0):
    """All pairs, with normal couplings of standard deviation strength / sqrt(n), and normal fields."""
    rng = np.random.default_rng(seed)
    pairs = {(i, j): strength / math.sqrt(n) * float(rng.normal()) for i in range(n) for j in range(i)}
    return db.Ising(pairs, fields=spread * rng.normal(size=n))


def random_case(seed):
    rng = np.random.default_rng(seed)
    strength, spread = float(rng.choice([1e-3, 0.2, 0.5, 1.0])), float(rng.choice([0.0, 0.3, 1.5]))
    return dense(int(rng.integers(2, 8)), strength, seed, spread)


def make(model, improve=True):
    made = Envelope(model.couplings.toarray(), model.fields)
    made.begin()
    if improve:
        made.improve()
    return made


def log_bound(law):
    """log U of the model that a law is the envelope of, and the couplings of that model."""
    factor, _, fields, curvature, tops = law
    covariance = factor.T @ factor
    couplings = np.linalg.solve((np.eye(len(fields)) + np.outer(curvature, np.ones(len(fields))) * covariance).T,
                                covariance.T).T  # fmt: skip
    tilt = curvature * fields
    log_det = np.linalg.slogdet(np.eye(len(fields)) + curvature[:, None] * covariance)[1]
    squares = fields @ tilt + tilt @ covariance @ tilt
    return tops.sum() + 0.5 * (log_det + squares - np.trace(couplings)), couplings


def check(model, made, law=None):
    """The envelope belongs to this model, its majorisers lie above, and U >= Z."""
    law = made.law if law is None else law
    bound, couplings = log_bound(law)
    off = ~np.eye(len(law.fields), dtype=bool)
    assert np.abs(couplings - model.couplings.toarray())[off].max(initial=0.0) <= max(made.distortion, 1e-12)
    assert np.array_equal(law.fields, model.fields)
    assert np.allclose(law.shift, law.factor @ (law.curvature * law.fields), atol=1e-12)
    a = np.linspace(0.0, 12.0, 4001)[:, None]
    above = np.logaddexp(a, -a) - 0.5 * law.curvature * a**2 - law.tops
    assert above.max() <= 1e-12
    log_Z = special.logsumexp(model.log_density(all_states(model)))
    assert log_Z <= bound + 1e-10
    return bound, log_Z


def check_draws(model, made, tries=2000, threshold=-math.inf, seed=7):
    """The mean weight of each joint state is f / U."""
    n = model.n_variables
    draws = draw_weighted(Tries.make(made, np.arange(n), threshold), range(tries), np.random.SeedSequence(seed))
    assert (draws.weights <= 1.0).all()
    mean = np.exp(model.log_density(all_states(model)) - log_bound(made.law)[0])
    cells = np.ravel_multi_index(tuple(draws.states.astype(np.int64).T), (2,) * n)
    total = np.bincount(cells, weights=draws.weights, minlength=len(mean))
    reach = stats.norm.isf(ALPHA / 2 / len(mean)) * np.sqrt(tries * np.maximum(mean, 5.0 / tries)) + 20
    assert (np.abs(total - tries * mean) <= reach).all()


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_envelopes_against_enumeration(first):
    for seed in range(first, first + 50):
        model = random_case(seed)
        made = make(model)
        bound, _ = check(model, made)
        assert made.log_bound == pytest.approx(bound, abs=1e-6)
        assert made.distortion < 1e-9
        check_draws(model, made)


@pytest.mark.slow
def test_envelopes_against_enumeration_of_many_models():
    for seed in range(1000, 3000):
        model = random_case(seed)
        made = make(model)
        check(model, made)
        check_draws(model, made, tries=5000)


def test_the_search_lowers_the_bound():
    model = dense(40, 0.4, 1, 0.2)
    first, last = make(model, improve=False), make(model)
    assert last.log_bound < first.log_bound - 0.5
    moved = Envelope(model.couplings.toarray(), model.fields)
    moved.diagonal, moved.points = last.diagonal * 1.02, last.points
    assert log_bound(moved.law)[0] > log_bound(last.law)[0]


@pytest.mark.parametrize("what", ["tops", "curvature", "factor", "fields"])
def test_a_wrong_law_is_caught(what):
    """The negative control; a bound that is 5 % too small is that of tops which sum to 0.05 less."""
    model = dense(6, 0.5, 3, 0.3)
    made = make(model)
    check(model, made)
    law = made.law
    wrong = {
        "tops": law.tops - 0.05 / 6,
        "curvature": law.curvature * 0.99,
        "factor": law.factor * 1.001,
        "fields": law.fields + 1e-3,
    }
    with pytest.raises(AssertionError):
        check(model, made, law._replace(**{what: wrong[what]}))


def test_a_law_of_another_model_has_a_large_distortion():
    model = dense(6, 0.5, 3, 0.3)
    made = make(model)
    assert made.distortion < 1e-10
    wrong = make(model)
    vars(wrong)["law"] = made.law._replace(factor=made.law.factor * (1 + 1e-6))
    assert wrong.distortion > 1e-7


def test_draws_of_a_wrong_envelope_are_caught():
    model = dense(5, 0.8, 4, 0.3)
    made = make(model)
    check_draws(model, made, tries=100_000)
    law = made.law
    for wrong in (law._replace(tops=law.tops - 0.1), law._replace(factor=frozen(law.factor * 1.1))):
        other = make(model)
        vars(other)["law"] = EnvelopeLaw(*map(frozen, wrong))
        bound = log_bound(law)[0]
        draws = draw_weighted(Tries.make(other, np.arange(5), -math.inf), range(100_000), np.random.SeedSequence(7))
        log_Z = special.logsumexp(model.log_density(all_states(model)))
        assert abs(draws.weights.mean() - math.exp(log_Z - bound)) > 0.002


def frozen(array):
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("threshold", [0.0, math.log(0.3)])
def test_completed_draws_are_exact(threshold):
    model = dense(6, 0.5, 8, 0.4)
    made = make(model)
    check_draws(model, made, tries=40_000, threshold=threshold)
    runner = Tries.make(made, np.array([1, 4]), 0.0)
    found = draw_weighted(runner, range(20_000), np.random.SeedSequence(3))
    assert len(found.states) > 4000
    assert float(runner.error[0]) * found.tries < 1e-8
    law = db.exact.distribution(model).reshape([2] * 6).sum(axis=(0, 2, 3, 5)).ravel()
    counts = np.bincount(found.states[:, 0] * 2 + found.states[:, 1], minlength=4)
    assert stats.chisquare(counts, len(found.states) * law).pvalue > ALPHA


def test_normal_numbers_are_quantiles():
    rng = np.random.default_rng(1)
    words = rng.integers(2**64, size=(2, 4000), dtype=np.uint64)
    words[0] >>= rng.integers(0, 63, size=4000).astype(np.uint64)
    for first, second in [*words.T, *np.array([[0, 0], [1, 2**64 - 1], [2**64 - 1, 5], [2**64 - 2, 5]], np.uint64)]:
        share = (int(first) >> 1) / 2**64 + (int(second) / 2**128 if int(first) < 2**53 else 2.0**-65)
        found = normal(first, second)
        wanted = stats.norm.isf(share) if int(first) & 1 else stats.norm.ppf(share)
        if share > 2.0**-100:  # below, the last bits of the second word matter
            assert abs(found - wanted) < 1e-13
        assert abs(found) < 13.5


@pytest.mark.parametrize("runs", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_intervals_cover_and_another_law_is_caught(runs):
    model = dense(8, 0.5, 2, 0.3)
    made = make(model)
    truth = float(db.exact.marginals(model)[3][1])
    law, missed = made.law, {"right": 0, "wrong": 0}
    for name in missed:
        if name == "wrong":
            fields = law.fields.copy()
            fields[3] += 0.3
            vars(made)["law"] = law._replace(fields=frozen(fields))
        runner = Tries.make(made, np.array([3]), -math.inf)
        for seed in range(runs):
            draws = draw_weighted(runner, range(2000), np.random.SeedSequence(seed))
            values = (draws.states[:, 0] == 1).astype(float)
            before = 100 * np.array([0.5, 0.25, 0.1])
            _, low, high = weighted_interval(draws.weights * values, draws.weights, 0.05, 0.05, before)
            missed[name] += not low <= truth <= high
    assert stats.binom.sf(missed["right"] - 1, runs, 0.05) > ALPHA
    assert stats.binom.sf(missed["wrong"] - 1, runs, 0.05) < ALPHA


def test_exact_samples():
    model = dense(14, 0.4, 8, 0.4)
    found = db.exact_sample(model, [4, 1], draws=4000, method="weights", seed=3)
    assert found.states.shape == (4000, 2)
    assert found.error < 1e-6
    assert found.steps >= 4000
    law = db.exact.distribution(model).reshape([2] * 14).sum(axis=(0, 2, 3, *range(5, 14))).T.ravel()
    counts = np.bincount((found.states[:, 0] + 1) + (found.states[:, 1] + 1) // 2, minlength=4)
    assert stats.chisquare(counts, 4000 * law).pvalue > ALPHA
    fewer = db.exact_sample(model, [4, 1], draws=100, method="weights", seed=3)
    assert np.array_equal(fewer.states, found.states[:100])


# -- estimates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.1, 0.3])
def test_estimates_contain_the_truth(strength):
    model = dense(14, strength, 5, 0.3)
    targets = [*model.labels, db.Joint(3, 0)]
    found = db.estimate(model, targets, tolerance=0.1, confidence=1 - 1e-6, method="weights", seed=1)
    exact = db.estimate(model, targets, method="exact")
    assert (found.lower <= exact.value + 1e-9).all()
    assert (exact.value - 1e-9 <= found.upper).all()
    assert found.plan.kernel == "Gaussian envelope"
    assert "envelope" in found.assumptions[0]
    assert "hyperbolic" in " ".join(module.Weights.explain(found))


def test_evidence():
    model = dense(20, 0.3, 6, 0.2)
    known = {0: 1, 4: -1}
    found = db.estimate(model, [1, db.Joint(2, 3)], evidence=known, tolerance=0.05, method="weights", seed=1)
    exact = db.estimate(model, [1, db.Joint(2, 3)], evidence=known, method="exact")
    assert (found.lower <= exact.value).all()
    assert (exact.value <= found.upper).all()
    assert found.half_width.max() <= 0.05


def test_dense_models_that_nothing_else_answers():
    found = db.estimate(dense(120, 0.2, 0), db.Joint(0, 1), tolerance=0.1, seed=1)
    assert "Gaussian envelope; a pilot puts the bound" in found.plan.reason
    assert (found.plan.method, found.plan.kernel) == ("weights", "Gaussian envelope")
    assert found.half_width.max() <= 0.1


def test_a_checkpoint_gives_the_same_answer(tmp_path):
    how = {"targets": [0, 3], "tolerance": 0.1, "method": "weights", "seed": 5}
    first = db.estimate(dense(18, 0.3, 5), **how)
    run = db.RunOptions(checkpoint=tmp_path / "state")
    for _ in range(2):
        again = db.estimate(dense(18, 0.3, 5), **how, run=run)
        assert np.array_equal(again.lower, first.lower)
        assert again.chains == first.chains


def test_what_both_proposals_lack_is_said():
    repulsive = db.Ising({(i, j): -0.5 for i in range(100) for j in range(i)})
    with pytest.raises(
        db.CertificateError, match=r"weights: the bound by a Gaussian envelope .*; the model is too dense"
    ):
        db.estimate(repulsive, [0], method="weights", seed=1)


@pytest.mark.parametrize("strength", [1e-300, 1e-8, 50.0, 1e6, 1e99])
def test_huge_and_tiny_couplings(strength):
    model = db.Ising({(i, j): strength * (-1) ** (i * j % 3) for i in range(14) for j in range(i)})
    try:
        found = db.estimate(model, [0], tolerance=0.2, method="weights", seed=1)
    except db.CertificateError as error:
        found = error.result
    assert found.lower[0] <= 0.5 <= found.upper[0]
