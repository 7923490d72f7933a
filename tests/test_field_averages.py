"""Averages over priors: marginal likelihoods against dense quadrature, with controls that must fail."""

import itertools
import json
import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import dobrushin as db
from dobrushin._fields import averages, evidence
from dobrushin._fields.boxes import curvature_at, descend
from dobrushin._fields.evidence import (
    Bounds,
    Drop,
    Shrink,
    prior_matrix,
    second_moments,
    solved_integral,
    steps_between,
)
from sentences import check_sentence
from test_field_boxes import log_determinant

PATHS = {2: nx.path_graph(2), 3: nx.path_graph(3)}


class Quadrature:
    """The log-integral and the law of a field of two or three variables, on a dense grid around its mode."""

    def __init__(self, form):
        n, mode = form.n_variables, descend(form)
        root = np.linalg.cholesky(np.linalg.inv(prior_matrix(form) + np.diag(curvature_at(form, mode))))
        z = np.linspace(-8.0, 8.0, {1: 4001, 2: 301, 3: 91}[n])
        mesh = np.stack([part.ravel() for part in np.meshgrid(*[z] * n, indexing="ij")])
        self.states = (mode[:, None] + root @ mesh).T
        log = form.log_density(self.states)
        top = log.max()
        law = np.exp(log - top)
        cell = n * math.log(z[1] - z[0]) + math.log(abs(np.linalg.det(root)))
        # Without the factor (2 pi)^(n / 2), as the package counts.
        self.log_integral = top + math.log(law.sum()) + cell - 0.5 * n * math.log(2.0 * math.pi)
        self.law = law / law.sum()

    def mean(self, function):
        return float(self.law @ function(self.states))


def priors_of(rng, n, kind="", count=3):
    """Settings of rho and the precision, near each other; n counts the intercept of "regression"."""
    scale, priors = float(np.exp(rng.normal())), {}
    for _ in range(count):
        pair = float(rng.uniform(0.1, 0.95)), scale * float(np.exp(0.5 * rng.normal()))
        priors[pair] = db.GaussianField.leroux(PATHS[n - (kind == "regression")], *pair)
        if kind == "regression":
            priors[pair] = priors[pair].covariates({"one": 1.0}, deviation=2.0)
    return priors


def true_weights(priors, observe, prior_weights=None):
    logs = []
    for name, prior in priors.items():
        matrix = prior_matrix(prior._form)
        inside = 0.5 * prior.linear @ np.linalg.solve(matrix, prior.linear) - 0.5 * np.linalg.slogdet(matrix)[1]
        more = 0.0 if prior_weights is None else math.log(prior_weights[name])
        logs.append(Quadrature(observe(prior)._form).log_integral - inside + more)
    weights = np.exp(np.array(logs) - max(logs))
    return weights / weights.sum()


def observations(rng, n, kind):
    if kind == "poisson":
        counts, exposure = rng.poisson(3.0, n), np.exp(rng.normal(size=n))
        return lambda prior: prior.poisson(counts, exposure)
    if kind == "regression":
        counts = dict(enumerate(rng.poisson(20.0, n - 1)))
        return lambda prior: prior.poisson(counts, 15.0)
    outcomes = rng.integers(0, 4, n)
    return lambda prior: prior.bernoulli(outcomes, 3)


def holds(answer, truth):
    return bool(((answer.weight_lower <= truth) & (truth <= answer.weight_upper)).all())


@pytest.mark.parametrize(
    ("n", "kind", "seed"),
    [(2, "poisson", 1), (3, "poisson", 2), (2, "logit", 3), (3, "logit", 4), (3, "regression", 5)],
)
def test_averages_and_weights_agree_with_quadrature(n, kind, seed):
    rng = np.random.default_rng(seed)
    priors, observe = priors_of(rng, n, kind), observations(rng, n, kind)
    preferred = {name: float(rng.uniform(0.5, 2.0)) for name in priors}
    answer = db.average_over(
        priors, observe, [0, db.Exceeds(1, 0.2)], prior_weights=preferred, weighting="certified", tolerance=0.05, seed=1
    )
    truth = true_weights(priors, observe, preferred)
    assert holds(answer, truth)
    assert (answer.weight_upper - answer.weight_lower).max() < 0.4
    laws = [Quadrature(observe(prior)._form) for prior in priors.values()]
    for row, function in enumerate((lambda x: x[:, 0], lambda x: (x[:, 1] > 0.2).astype(float))):
        mean = truth @ [law.mean(function) for law in laws]
        assert answer.lower[row] - 0.02 * row <= mean <= answer.upper[row] + 0.02 * row  # the grid rounds events
    assert answer.half_width.max() <= 0.05
    assert (answer.weighting, answer.is_certified) == ("certified", True)


def close_call():
    """Two settings whose weights are bounded narrowly, with observations that tell them apart."""
    priors = {rho: db.GaussianField.leroux(PATHS[2], rho, 1.0) for rho in (0.2, 0.9)}

    def observe(prior):
        return prior.poisson([12, 2], 4.0)

    return priors, observe, true_weights(priors, observe)


def test_weights_without_the_integral_of_the_prior_are_caught(monkeypatch):
    priors, observe, truth = close_call()
    options = {"weighting": "certified", "tolerance": 0.02, "seed": 3}
    assert holds(db.average_over(priors, observe, [0], **options), truth)
    monkeypatch.setattr(averages, "solved_integral", lambda _: Bounds(0.0, 0.0))
    assert not holds(db.average_over(priors, observe, [0], **options), truth)


def test_weights_from_a_wrong_ratio_are_caught(monkeypatch):
    priors, observe, truth = close_call()
    monkeypatch.setattr(
        evidence.Shrink, "__call__", lambda self, x: np.exp(-0.25 * np.einsum("ci,ci->c", x @ self.gap, x))
    )
    assert not holds(db.average_over(priors, observe, [0], weighting="certified", tolerance=0.005, seed=3), truth)


def test_laplace_weights_are_near_and_labelled():
    priors, observe, truth = close_call()
    answer = db.average_over(priors, observe, [0], weighting="laplace", tolerance=0.05, seed=3)
    assert np.abs(answer.weights - truth).max() < 0.05
    assert not holds(answer, truth)  # they are no bounds, and do not say so
    assert not answer.is_certified
    assert "NOT CERTIFIED" in answer.headline
    assert "Laplace" in answer.assumptions[-1]
    assert "Laplace" in str(answer)


def test_averages_are_written_as_json():
    priors, observe, _ = close_call()
    answer = db.average_over(priors, observe, [0, db.Exceeds(1, 0.2)], weighting="laplace", tolerance=0.1, seed=3)
    stored = json.loads(answer.to_json())
    assert [row["lower"] for row in stored["rows"]] == answer.lower.tolist()
    assert [row["target"] for row in stored["rows"]] == answer.to_dataframe()["target"].astype(str).tolist()
    assert [setting["weight"] for setting in stored["settings"]] == answer.weights.tolist()
    assert [setting["setting"] for setting in stored["settings"]] == ["0.2", "0.9"]
    again = db.Estimate.from_json(json.dumps(stored["settings"][1]["answer"]))
    assert (again.value == answer.answers[1].value).all()
    assert (stored["certified"], stored["weighting"]) == (False, "laplace")


def test_weights_of_gaussian_fields_are_solved():
    rng = np.random.default_rng(4)
    y, noise = rng.normal(size=3), 2.0
    priors = {rho: db.GaussianField.leroux(PATHS[3], rho, 1.5, linear=[0.3, 0.0, -1.0]) for rho in (0.1, 0.5, 0.9)}
    answer = db.average_over(priors, lambda prior: prior.normal(y, noise))
    logs = []
    for prior in priors.values():
        covariance = np.linalg.inv(prior.precision.toarray())
        off = y - covariance @ prior.linear
        spread = covariance + np.eye(3) / noise
        logs.append(-0.5 * off @ np.linalg.solve(spread, off) - 0.5 * np.linalg.slogdet(spread)[1])
    truth = np.exp(logs) / np.exp(logs).sum()
    assert np.abs(answer.weights - truth).max() < 1e-10
    assert (answer.weight_upper - answer.weight_lower).max() < 1e-7
    assert (answer.weighting, answer.is_certified, answer.confidence) == ("exact", True, 1.0)
    assert holds(answer, truth)
    assert "for certain" in answer.headline


def test_weights_of_settings_that_are_out_of_the_question_are_not_0():
    """Their true weights are positive, though doubles do not hold them."""
    priors = {scale: db.GaussianField([[scale]]) for scale in (1e-6, 1.0)}
    answer = db.average_over(priors, lambda prior: prior.normal([1e4]))
    assert answer.weights.tolist() == [1.0, 0.0]
    assert 0.0 <= answer.weight_lower[1] < answer.weight_upper[1] <= 1e-299
    assert answer.weight_lower[0] < 1.0 == answer.weight_upper[0]


def test_observations_of_fields_of_very_different_precision_are_the_same():
    """Differences of precisions near 1e7 round observations by more than 1e-10."""
    priors = {scale: db.GaussianField.leroux(PATHS[2], 0.5, scale) for scale in (1.0, 1e7)}
    assert db.average_over(priors, lambda prior: prior.normal([1.0, 2.0], 0.3)).weighting == "exact"


def test_log_integrals_hold_the_exact_determinant():
    """Determinants in rationals; without the bound on errors, some would be missed."""
    outside = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 6))
        vectors = rng.normal(size=(n, int(rng.integers(1, n))))
        matrix = vectors @ vectors.T + np.eye(n) * 10.0 ** rng.uniform(-9, -3)
        matrix = (matrix + matrix.T) / 2
        found = solved_integral(db.GaussianField(matrix)._form)
        if found is None:
            continue
        exact = -0.5 * log_determinant(matrix)
        assert found.low <= exact <= found.high
        outside += abs(-0.5 * np.linalg.slogdet(matrix)[1] - exact) > 1e-13
    assert outside > 0


@pytest.mark.parametrize(("n", "kind"), [(2, "poisson"), (3, "regression")])
def test_drops_agree_with_quadrature(n, kind):
    """Ratios of integrals are means under the base, and the bounds that need no draws hold."""
    rng, near, drawn = np.random.default_rng(6), 0, 0
    for _ in range(6):
        observe, priors = observations(rng, n, kind), priors_of(rng, n, kind, count=2).values()
        ends = [prior_matrix(prior._form) for prior in priors]
        labels = next(iter(priors)).labels

        def observed(matrix, observe=observe, labels=labels):
            return observe(db.GaussianField(matrix, labels=labels))

        total = 0.0
        for step in steps_between(*ends, observed):
            for sign, drop in zip((-1.0, 1.0), step, strict=True):
                law = Quadrature(drop.base._form)
                log_mean = math.log(law.mean(Shrink(drop.gap)))
                assert drop.known.low <= log_mean <= drop.known.high
                assert (law.law @ law.states**2 <= second_moments(drop.base._form)).all()
                near, drawn = near + (drop.known.low > -0.1), drawn + (drop.known.low < -0.1)
                total += sign * log_mean
        truth = [Quadrature(observed(end)._form).log_integral for end in ends]
        assert total == pytest.approx(truth[1] - truth[0], abs=1e-4)
    assert drawn > 5
    assert near > 0


def test_lipschitz_constants_hold_and_are_attained():
    rng, largest = np.random.default_rng(7), 0.0
    for n in (1, 2, 3):
        vectors = rng.normal(size=(n, n))
        shrink = Shrink(vectors @ vectors.T)
        x = 3.0 * rng.normal(size=(20_000, n))
        gradient = np.abs(x @ shrink.gap) * shrink(x)[:, None]
        assert (gradient <= shrink.slopes).all()
        largest = max(largest, float((gradient / shrink.slopes).max()))
    assert largest > 0.95  # smaller constants would not hold


def test_the_largest_average_is_at_the_ends_of_weights():
    rng = np.random.default_rng(8)
    for _ in range(50):
        count = int(rng.integers(1, 5))
        values, least = rng.normal(size=count), rng.random(count)
        most = least + rng.random(count)
        corners = [np.array(corner) for corner in itertools.product(*zip(least, most, strict=True))]
        best = max(corner @ values / corner.sum() for corner in corners)
        found = averages.largest_average(values, least, most)
        assert best <= found <= best + 1e-9
        assert count == 1 or least @ values / least.sum() < found  # a control: equal weights are not the largest
    assert averages.largest_average(np.array([1.0, np.inf]), np.ones(2), np.ones(2)) == np.inf


def test_auto_leaves_out_draws_that_take_long(monkeypatch):
    priors, observe, _ = close_call()
    monkeypatch.setattr(averages, "_MAX_SECONDS", 0.0)
    assert db.average_over(priors, observe, [0], tolerance=0.1, seed=3).weighting == "laplace"
    monkeypatch.setattr(averages, "steps_between", lambda *_: None)
    with pytest.raises(db.CertificateError, match="finer grid"):
        db.average_over(priors, observe, [0], weighting="certified", tolerance=0.1, seed=3)


def test_time_limit_gives_wider_intervals():
    priors, observe, truth = close_call()
    run = db.RunOptions(time_limit=3.0)
    plain = db.average_over(priors, observe, [0], tolerance=0.1, seed=3)
    unhurried = db.average_over(priors, observe, [0], tolerance=0.1, seed=3, time_limit=math.inf)
    assert (plain.value == unhurried.value).all()
    hurried = db.average_over(priors, observe, [0], tolerance=1e-4, seed=3, run=run)
    assert hurried.half_width.max() > 1e-4
    assert hurried.weighting == "laplace" or holds(hurried, truth)


def test_weights_without_enough_draws_are_refused(monkeypatch):
    """A ratio of integrals that may be 0 leaves the other weights without an upper bound."""
    priors, observe, _ = close_call()

    def vacuous(*args, **options):
        answer = db.estimate(*args, **options)
        return replace(answer, lower=np.zeros(1), upper=np.ones(1))

    monkeypatch.setattr(evidence, "estimate", vacuous)
    answer = db.average_over(priors, observe, [0], tolerance=0.1, seed=3)
    assert (answer.weighting, np.isfinite(answer.upper).all()) == ("laplace", True)
    with pytest.raises(db.CertificateError, match="allow more time") as caught:
        db.average_over(priors, observe, [0], tolerance=0.1, seed=3, weighting="certified")
    assert list(caught.value.result) == [0.2, 0.9]


def test_errors_carry_the_answers_so_far(monkeypatch):
    priors, observe, _ = close_call()
    plain, asked = db.average_over(priors, observe, [0], tolerance=0.1, seed=3), []
    error: BaseException = KeyboardInterrupt()

    def stopped(field, *args, **options):
        asked.append(field)
        if len(asked) > 1:
            raise error
        return db.estimate(field, *args, **options)

    monkeypatch.setattr(averages, "estimate", stopped)
    with pytest.raises(db.Interrupted, match="1 of 2 settings") as caught:
        db.average_over(priors, observe, [0], tolerance=0.1, seed=3)
    assert list(caught.value.result) == [0.2]
    assert (caught.value.result[0.2].value == plain.answers[0].value).all()
    partial = plain.answers[1]
    for error in (
        db.Interrupted("stopped", result=partial),
        db.CertificateError({"exact": "no."}, "", result=partial),
        db.BudgetError("This", 2.0, 1.0, "seconds", "", result=partial),
        db.WorkerError("gone", 1, 2, "chains", "", result=partial),
        db.CertificateError({"exact": "no."}, ""),
    ):
        asked.clear()
        is_partial = error.result is not None
        with pytest.raises(type(error)) as caught:
            db.average_over(priors, observe, [0], tolerance=0.1, seed=3)
        assert list(caught.value.result) == ([0.2, 0.9] if is_partial else [0.2])
        assert "answers of the settings so far" in str(caught.value)
        assert "0.9" in "".join(getattr(caught.value, "__notes__", ["0.9"]))


def test_errors_of_weights_carry_all_answers(monkeypatch):
    priors, observe, _ = close_call()

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(evidence, "estimate", stopped)
    with pytest.raises(db.Interrupted, match="2 of 2 settings") as caught:
        db.average_over(priors, observe, [0], tolerance=0.1, seed=3)
    assert list(caught.value.result) == [0.2, 0.9]


def test_no_setting_is_begun_after_the_time_limit(monkeypatch):
    priors, observe, _ = close_call()
    monkeypatch.setattr(evidence.Deadline, "spent", property(lambda _: 10.0))
    with pytest.raises(db.BudgetError, match="over the limit of 5") as caught:
        db.average_over(priors, observe, [0], time_limit=5.0)
    assert caught.value.result == {}
    assert "setting 0.2" in caught.value.__notes__[0]


def test_arguments_get_a_sentence():
    priors, observe, _ = close_call()
    poisson, small = observe(priors[0.2]), db.GaussianField([[1.0]])
    pulled = db.GaussianField.leroux(PATHS[2], 0.5, linear=[0.0, 3.0])

    def capped(prior, **bounds):
        return observe(db.GaussianField(prior.precision, prior.linear, labels=prior.labels, **bounds))

    for call, words in (
        (lambda: db.average_over({}, observe), "priors .* at least one entry"),
        (lambda: db.average_over({1: poisson}, observe), "priors .* no likelihoods .* setting 1"),
        (lambda: db.average_over(priors, poisson), "observe .* a function"),
        (
            lambda: db.average_over(priors, lambda prior: prior.poisson([1, 2], prior.precision[0, 0])),
            "observe .* adds the same observations",
        ),
        (lambda: db.average_over(priors, lambda _: 3), "observe .* likelihoods added"),
        (lambda: db.average_over(priors, observe, db.Quantile(0, 0.5)), "targets .* no averages"),
        (lambda: db.average_over(priors, observe, iter([db.Quantile(0, 0.5)])), "targets .* no averages"),
        (lambda: db.average_over(priors | {1: small}, observe), "same variables .* Got [0] at setting 1"),
        (lambda: db.average_over(priors | {1: pulled}, observe), "linear terms .* Got 3.0 at variable 1 of setting 1"),
        (lambda: db.average_over(priors, lambda prior: capped(prior, upper=1.0)), "observe .* likelihoods added"),
        (lambda: db.average_over(priors, lambda prior: capped(prior, lower=1.0)), "observe .* likelihoods added"),
        (lambda: db.average_over(priors, observe, prior_weights={0.2: 1.0}), "prior_weights .* no number at setting"),
        (lambda: db.average_over(priors, observe, prior_weights={0.2: 1, 0.9: -1}), "Got -1 at setting 0.9"),
        (lambda: db.average_over(priors, observe, prior_weights={0.2: 1, 0.9: math.nan}), "Got nan at setting 0.9"),
        (lambda: db.average_over(priors, observe, prior_weights={0.2: 1, 0.9: 1, 3: 1}), "'priors'. Got setting 3"),
        (
            lambda: db.average_over(priors, lambda prior: prior.covariates({"x": 1.0})),
            "covariates are part of the prior",
        ),
        (lambda: db.average_over(priors, observe, prior_weights=[1.0, 2.0]), "prior_weights .* a dict"),
        (lambda: db.average_over(priors, observe, time_limit=0), "time_limit .* positive"),
        (lambda: db.average_over(priors, observe, run=db.RunOptions(checkpoint="file")), "run .* 'checkpoint'"),
        (lambda: db.average_over(priors, observe, weighting="best"), "weighting"),
    ):
        check_sentence(call, words)


def test_priors_on_graphs_have_their_precisions():
    graph = nx.path_graph(["a", "b", "c"])
    laplacian = np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
    besag = db.GaussianField.besag(graph, precision=2.0, ridge=0.01)
    assert besag.labels == ("a", "b", "c")
    assert np.allclose(besag.precision.toarray(), 2.0 * laplacian + 0.01 * np.eye(3))
    inverse = np.linalg.pinv(laplacian)
    scaled = inverse / np.exp(np.log(np.diag(inverse)).mean())
    bym2 = db.GaussianField.bym2(graph, mixing=0.7, precision=4.0)
    assert np.allclose(np.linalg.inv(bym2.precision.toarray()), (0.7 * scaled + 0.3 * np.eye(3)) / 4.0)
    check_sentence(lambda: db.GaussianField.bym2(graph, mixing=1.0), "mixing .* less than 1")
    check_sentence(lambda: db.GaussianField.bym2(nx.empty_graph(3), mixing=0.5), "graph .* connected .* 3 components")
    check_sentence(lambda: db.GaussianField.bym2(nx.empty_graph(1), mixing=0.5), "graph .* two nodes .* Got 1 node.")
    check_sentence(lambda: db.GaussianField.besag(graph, ridge=0.0), "ridge .* positive")


@pytest.mark.parametrize("prior", ["besag", "bym2"])
def test_intrinsic_priors_are_certified_by_counts(prior):
    graph = nx.path_graph(3)
    field = db.GaussianField.besag(graph, 2.0) if prior == "besag" else db.GaussianField.bym2(graph, 0.8, 2.0)
    field = field.poisson([300, 420, 550], 300.0)
    law = Quadrature(field._form)
    answer = db.estimate(field, tolerance=0.05, seed=1)
    means = law.law @ law.states
    assert ((answer.lower <= means) & (means <= answer.upper)).all()


def test_a_drop_from_no_surely_definite_base_has_no_bound():
    field = db.GaussianField(np.array([[1.0, 1.0 - 2.0**-52], [1.0 - 2.0**-52, 1.0]])).poisson([1, 2])
    assert not np.isfinite(second_moments(field._form)).any()
    assert solved_integral(db.GaussianField(np.array([[1.0, 1.0 - 2.0**-52], [1.0 - 2.0**-52, 1.0]]))._form) is None
    assert Drop(field, np.ones((2, 2)), -1.0, 0.1).known.low == -np.inf
