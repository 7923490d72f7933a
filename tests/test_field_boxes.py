"""Coefficients of covariates, and fields on boxes: bounds against grids, answers against quadrature."""

import itertools
import math
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import networkx as nx
import numpy as np
import pandas
import pytest

import dobrushin as db
from dobrushin._estimate.choice import choose_for_call
from dobrushin._estimate.query import read_settings
from dobrushin._fields import entropy
from dobrushin._fields.anchor import FieldSpace, space_of
from dobrushin._fields.boxes import (
    OFFSETS,
    Decay,
    bound_eigenvalues,
    bound_inverse,
    box_of,
    curvature_at,
    decay_of,
    least_curvatures,
    least_eigenvalue,
)
from dobrushin._fields.questions import FieldReader
from dobrushin._sampling.kernel import Work
from dobrushin._shared.running import master_key
from field_boxes import LIKELIHOODS, Marginals, box_violations, boxed_cases, entropy_violations, random_regression
from sentences import check_sentence

MOST_UPDATES = 5 * 10**6
PATH = nx.path_graph(["a", "b", "c"])


class Interrupting(Executor):
    """Runs batches in this thread, and is interrupted after some of them."""

    def __init__(self, batches):
        self._max_workers, self.left = 24, batches

    def submit(self, function, /, *args, **kwargs):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        future = Future()
        future.set_result(function(*args, **kwargs))
        return future


def counted_field(deviation=3.0):
    prior = db.GaussianField.car(PATH, rho=0.9, precision=2.0)
    field = prior.covariates({"one": 1.0, "slope": {"a": -1.0, "b": 0.5, "c": 0.5}}, deviation)
    return field.poisson({"a": 7, "b": 2, "c": 11}, exposure=4.0)


def diffuse_field():
    areas, rng = nx.convert_node_labels_to_integers(nx.grid_2d_graph(7, 8)), np.random.default_rng(5)
    expected = np.exp(2.0 + 0.9 * rng.normal(size=56))
    prior = db.GaussianField.car(areas, rho=0.95, precision=1.4).covariates({"one": 1.0}, deviation=3.0)
    return prior.poisson(dict(enumerate(rng.poisson(expected))), dict(enumerate(expected)))


def totals(check, cases, **options):
    found = [check(*case, **options) for case in cases]
    return np.sum([pair for pair in found if pair is not None], axis=0)


@pytest.fixture(scope="module")
def cases():
    return list(boxed_cases(3, 24, most=3))


def test_boxes_hold_what_is_stated(cases):
    failed, checked = totals(box_violations, cases)
    assert (failed, checked > 200) == (0, True)


def test_boxes_around_means_that_are_shown_more_precisely_are_smaller_and_hold(cases):
    close = [(field, box_of(field._form, 1e-2, OFFSETS[-1])) for field, _ in cases[:12]]
    failed, checked = totals(box_violations, close)
    assert (failed, checked > 100) == (0, True)
    for (_, wide), (_, small) in zip(cases, close, strict=False):
        assert (small.stages[0].half <= wide.stages[0].half * 1.0001).all()


def test_smaller_boxes_are_tried_where_others_take_long(monkeypatch):
    """Counts that say little: more chains show where the means are, so that the box can be smaller."""
    field = diffuse_field()
    planned = db.plan(field, tolerance=0.1, method="entropy")
    monkeypatch.setattr(entropy, "OFFSETS", OFFSETS[:1])
    assert 100 * planned.updates < db.plan(field, tolerance=0.1, method="entropy").updates


def test_boxes_that_are_too_small_are_caught(cases):
    """A twentieth of the bounds does not hold: they are not much larger than they have to be."""
    assert totals(box_violations, cases, shrink=0.05)[0] > 20


def test_entropy_falls_as_fast_as_stated(cases):
    failed, checked = totals(entropy_violations, [(boxed,) for _, boxed in cases])
    assert (failed, checked > 150) == (0, True)


def test_a_rate_that_is_too_large_is_caught(cases):
    assert totals(entropy_violations, [(boxed,) for _, boxed in cases], shrink=0.3)[0] > 20


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_answers_about_coefficients_agree_with_quadrature(likelihood):
    rng, wrong, rows = np.random.default_rng(8), 0, 0
    for seed in range(8):
        field = random_regression(rng, 1 + seed % 2, likelihood, most=3)
        if db.plan(field, tolerance=0.1, method="entropy").updates > MOST_UPDATES:
            continue
        boxed = box_of(field._form, 1e-2)
        reference = Marginals(field._form, boxed.centre, curvature_at(field._form, boxed.centre))
        laws = [reference.of(i) for i in range(field.n_variables)]
        means, labels = np.array([mean for mean, _, _ in laws]), list(field.labels)
        tolerance = 0.3 * float(np.sqrt(boxed.variance).max())
        answer = db.estimate(field, labels, tolerance=tolerance, confidence=0.9999, method="entropy", seed=seed)
        wrong += int(((means < answer.lower) | (means > answer.upper)).sum())
        events = [db.Exceeds(label, mean + 0.3) for label, mean in zip(labels, means, strict=True)]
        targets = [*events, db.Quantile(labels[-1], 0.9), db.Deviation(labels[0])]
        answer = db.estimate(field, targets, tolerance=0.1, confidence=0.9999, method="entropy", seed=seed)
        truth = np.array([1.0 - law(mean + 0.3) for mean, _, law in laws])
        wrong += int(((truth < answer.lower[:-2] - 1e-4) | (truth > answer.upper[:-2] + 1e-4)).sum())
        law = laws[-1][2]
        wrong += not law(answer.lower[-2]) <= 0.9001 or not law(answer.upper[-2]) >= 0.8999
        wrong += not answer.lower[-1] <= laws[0][1] <= answer.upper[-1]
        rows += 2 * len(labels) + 2
        assert answer.plan.method == "entropy"
        assert (answer.half_width[:-2] <= 0.1).all()
    assert (wrong, rows > 2) == (0, True)


def test_auto_takes_random_scans_where_dobrushins_condition_fails():
    field = counted_field()
    plan = db.plan(field, ["a", "one", db.Exceeds("slope", 0.0)], tolerance=0.1)
    assert plan.method == "entropy"
    with pytest.raises(db.CertificateError, match="spectral radius of 1 or more"):
        db.estimate(field, ["a"], method="dobrushin")
    answer = db.estimate(field, ["one"], evidence={"slope": 0.1}, tolerance=0.3, method="entropy", seed=1)
    assert answer.half_width[0] <= 0.3
    assert "the probability outside" in " ".join(answer.assumptions)
    assert "relative entropy" in entropy.FieldEntropy.explain(answer)[1]
    with pytest.raises(db.CertificateError, match="proof"):
        db.estimate(field, ["a"], method="entropy", proof="never.proof")


def test_all_chains_follow_one_order_that_depends_on_the_seed_alone():
    field = counted_field()
    method, _ = choose_for_call(field, "all", {}, read_settings(field, 0.2, 0.95, "entropy", None, math.inf))
    kernel, scan = method.kernel, method.plan.scan
    master = master_key(np.random.SeedSequence(5))
    n, steps = field.n_variables, 40

    def run(chains, pieces=(0, steps)):
        x = kernel.start(master, chains)
        for lo, hi in itertools.pairwise(pieces):
            kernel.run(x, Work(master, chains, scan._segments[0], lo, hi, lo))
        return x

    whole = run(range(6))
    assert (np.hstack([run(range(2)), run(range(2, 6))]) == whole).all()
    assert (run(range(6), (0, 7, 8, steps)) == whole).all()
    few = run(range(64), (0, 5))  # the same variables have moved in all chains
    moved = few != kernel.start(master, range(64))
    assert 1 <= moved.all(axis=1).sum() == moved.any(axis=1).sum() <= min(5, n)


def test_the_order_is_that_of_every_worker_and_of_runs_that_resume(tmp_path):
    field, file = counted_field(), tmp_path / "run.npz"
    options = {"targets": ["one", db.Exceeds("a", 0.5)], "tolerance": 0.3, "method": "entropy", "seed": 5}

    def answered(**run):
        answer = db.estimate(field, **options, run=db.RunOptions(**run))
        return answer.value.tolist(), answer.lower.tolist(), answer.upper.tolist(), answer.chains

    plain = answered()
    for workers in (1, 2):
        with ThreadPoolExecutor(workers) as pool:
            assert answered(executor=pool) == plain
    with pytest.raises(db.Interrupted) as caught:
        answered(executor=Interrupting(1), checkpoint=file)
    assert 0 < caught.value.result.chains < plain[3]
    assert answered(checkpoint=file) == plain
    assert db.estimate(field, **options | {"seed": 6}).value.tolist() != plain[0]


def test_intervals_miss_no_more_often_than_stated_and_those_of_short_scans_do(monkeypatch):
    """Joint coverage of exceedance probabilities at confidence 0.8, against sums over a grid."""
    field = db.GaussianField.leroux(nx.path_graph(2), 0.9, 1.5).poisson([6, 2], [2.0, 2.5])
    grid = np.linspace(-4.0, 4.0, 801)
    states = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(field._form.log_density(states))
    events = [(0, 1.2025), (1, 0.8025), (1, -0.8025)]  # thresholds lie between points of the grid
    truth = np.array([density @ (states[:, i] > level) for i, level in events]) / density.sum()
    targets = [db.Exceeds(i, level) for i, level in events]

    def missed(seed):
        options = {"tolerance": 0.1, "confidence": 0.8, "method": "entropy", "seed": seed}
        answer = db.estimate(field, targets, **options)
        return bool(((truth < answer.lower) | (truth > answer.upper)).any())

    assert np.mean([missed(seed) for seed in range(30)]) <= 0.2
    monkeypatch.setattr(Decay, "steps", lambda *_: 1)  # a control: the start is too near the centre
    assert np.mean([missed(seed) for seed in range(10)]) > 0.5


def test_the_order_pays_for_its_share_of_the_error(monkeypatch):
    """Markov's inequality makes scans longer for a higher confidence, and shorter for a larger share."""
    field = counted_field()
    options = {"targets": ["one"], "tolerance": 0.3, "method": "entropy"}
    steps = [len(db.plan(field, confidence=confidence, **options).scan) for confidence in (0.9, 0.99, 1 - 1e-9)]
    assert steps[0] < steps[1] < steps[2]
    monkeypatch.setattr(entropy, "_ORDER_SHARE", 0.5)
    assert len(db.plan(field, confidence=0.9, **options).scan) < steps[0]


def test_a_box_of_the_user_needs_no_other():
    matrix = [[1.0, 0.6, 0.6], [0.6, 1.0, 0.6], [0.6, 0.6, 1.0]]  # Dobrushin's condition fails
    field = db.GaussianField(matrix, linear=0.3, lower=-1.0, upper=2.0)
    answer = db.estimate(field, [0], tolerance=0.05, method="entropy", seed=3)
    other = db.estimate(field, [0], tolerance=0.05, method="dobrushin", seed=4)
    assert abs(answer.value[0] - other.value[0]) <= answer.half_width[0] + other.half_width[0]
    half = db.GaussianField(matrix, lower=0.0)
    with pytest.raises(db.CertificateError, match="all of them both limits, or none"):
        db.estimate(half, [0], method="entropy")
    levels = db.GaussianField(matrix, levels={1: [0.0, 1.0]})
    with pytest.raises(db.CertificateError, match="finite sets"):
        db.estimate(levels, [0], method="entropy")


def test_nothing_is_claimed_where_the_means_are_not_near_the_middle(monkeypatch):
    """What is outside the box was bounded for means near the middle: draws have to show that they are there."""
    field, search = counted_field(), entropy.box_of

    def shifted(*arguments):
        boxed = search(*arguments)
        return replace(boxed, centre=boxed.centre + 1.0)

    monkeypatch.setattr(entropy, "box_of", shifted)
    answer = db.estimate(field, ["a", db.Exceeds("b", 0.0)], tolerance=0.3, method="entropy", seed=1)
    assert answer.lower.tolist() == [-np.inf, 0.0]
    assert answer.upper.tolist() == [np.inf, 1.0]


def test_summaries_stand_for_several_targets():
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0], labels=["a", "b"])
    one = db.Summary("a", levels=[0.1, 0.9], threshold=1.0)
    answer = db.estimate(field, [one, "b", db.Deviation("b"), db.Between("b", 0.0, 1.0)], tolerance=1e-6)
    assert answer.states == ["mean", "sd", "quantile", "quantile", "probability", "mean", "sd", "probability"]
    table = db.Summary.table(answer)
    assert table.index.tolist() == ["a", "b"]
    assert [name for name in table if "er" not in name] == ["mean", "sd", "10%", "90%", "> 1", "0 to 1"]
    deviation = float(np.sqrt(np.linalg.inv(field.precision.toarray())[0, 0]))
    assert table.loc["a", "sd lower"] <= deviation <= table.loc["a", "sd upper"] < deviation + 1e-6
    assert answer[db.Deviation("b")].value[0] == table.loc["b", "sd"]
    assert db.estimate(field, one, tolerance=1e-6).value.tolist() == answer.value[:5].tolist()
    check_sentence(lambda: db.Summary("a", levels=[1.5]), "level .* 1.5")
    check_sentence(lambda: db.estimate(field, db.Summary("c")), "targets .* 'c'")
    check_sentence(lambda: db.estimate(db.Ising({(0, 1): 0.5}), db.Deviation(0)), "targets .* about fields")
    counted = field.poisson({"a": 3})
    with pytest.raises(db.CertificateError, match="no Lipschitz constant"):
        db.estimate(counted, db.Deviation("a"), method="dobrushin")


def test_the_bias_of_bounded_statistics_is_at_most_the_total_variation():
    """Probabilities outside of the box and of chains bound it, however steep the statistic is."""
    field = counted_field()
    boxed = box_of(field._form, 0.01)
    for steepness in (0.1, 1e6):
        step = db.Statistic(
            lambda x: (x > 0).all(axis=1), dict.fromkeys("abc", steepness), (0.0, 1.0), name="all above"
        )
        inner = FieldSpace(boxed.form.to_model(field.labels), space_of(field).place)
        question = FieldReader(field, {}, field, inner).read(step)
        bias, _ = entropy._bound_question(question, boxed, 1e-4, 0.0)
        assert bias <= boxed.outside + 1.001e-4
    fixed = field.condition({"one": 0.3, "slope": 0.2})
    reference = Marginals(fixed._form, np.zeros(3), np.full(3, 8.0))
    steep = db.Statistic(lambda x: 1 / (1 + np.exp(-50 * x[:, 0])), {"a": 12.5}, (0.0, 1.0), name="steep")
    answer = db.estimate(fixed, steep, tolerance=0.05, confidence=0.9999, method="entropy", seed=2)
    above = 1.0 - reference.of(0)[2](0.0)
    assert answer.lower[0] - 0.02 <= above <= answer.upper[0] + 0.02


def test_summaries_as_tables_for_other_libraries():
    """Rows as they are, one row for each label, and ArviZ data."""
    pytest.importorskip("arviz")
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0], labels=["a", "b"])
    slope = db.Statistic(lambda x: x[:, 0] - x[:, 1], {"a": 1.0, "b": 1.0}, (-np.inf, np.inf), name="slope")
    answer = db.estimate(field.poisson({"a": 30}, 10.0), [db.Summary("a", threshold=1.0), slope], tolerance=0.2, seed=1)
    assert answer.headline.startswith("1 probability, 2 means, 3 quantiles and 1 standard deviation")
    rows = answer.to_dataframe()
    assert rows["target"].tolist()[:2] == ["a", "standard deviation of a"]
    table = db.Summary.table(answer)
    assert table.index.tolist() == ["a", "slope"]
    assert table.loc["slope", "mean lower"] == answer["slope"].lower[0]
    joined = table.join(pandas.DataFrame({"name": ["east", "west"]}, index=["b", "a"]))
    assert joined.loc["a", "name"] == "west"
    data = answer.to_arviz()["constant_data"]
    assert data["value"].to_numpy().tolist() == answer.value.tolist()
    assert str(data["row"].to_numpy()[1]) == "standard deviation of a=sd"
    check_sentence(lambda: db.Summary.table(db.estimate(db.Ising({(0, 1): 0.5}))), "an answer about a field")


def test_deviations_without_slack_or_width_are_caught(cases, monkeypatch):
    """Moments of the field on its box are not those of the field, nor are averages means."""
    assert totals(box_violations, cases, shrink=0.01)[0] > 60
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    truth = float(np.sqrt(2.0 / 3.0))
    answer = db.estimate(field, db.Deviation(0), tolerance=0.1, method="entropy", seed=2)
    assert answer.lower[0] <= truth <= answer.upper[0]
    monkeypatch.setattr(entropy.BernsteinMean, "half_width", 0.0)
    for name in ("moved", "moved_square"):
        monkeypatch.setattr(entropy.Boxed, name, lambda *_: 0.0)
    monkeypatch.setattr(entropy.Boxed, "clip", lambda self, i, _: (float(self.form.upper[i]), 0.0, 0.0))
    answer = db.estimate(field, db.Deviation(0), tolerance=0.1, method="entropy", seed=2)
    assert not answer.lower[0] <= truth <= answer.upper[0]


def test_coefficients_carry_the_term_of_low_rank():
    """The marginal precision of the linear predictors is Q - Q X (S^-1 + X'QX)^-1 X'Q."""
    prior = db.GaussianField.car(PATH, rho=0.9, precision=2.0, linear=[1.0, 0.0, 2.0])
    values = np.array([[1.0, 1.0, 1.0], [-1.0, 0.5, 0.7]])
    field = prior.covariates({"one": 1.0, "slope": values[1]}, {"one": 3.0, "slope": 0.5})
    assert field.labels == ("a", "b", "c", "one", "slope")
    q, x = prior.precision.toarray(), values.T
    middle = np.linalg.inv(np.diag([1 / 9.0, 4.0]) + x.T @ q @ x)
    expected = np.linalg.inv(q - q @ x @ middle @ x.T @ q)
    covariance = np.linalg.inv(field.precision.toarray())
    assert np.allclose(covariance[:3, :3], expected)
    assert np.allclose(covariance[3:, 3:], np.diag([9.0, 0.25]))
    assert np.allclose(covariance @ field.linear, [*np.linalg.solve(q, prior.linear), 0.0, 0.0])


def test_gaussian_fields_without_dobrushins_condition_are_solved():
    prior = db.GaussianField.car(PATH, rho=0.9, precision=2.0).covariates({"one": 1.0, "slope": [1.0, -2.0, 1.0]})
    field = prior.normal({"a": 1.5, "b": 0.25, "c": -2.0}, precision=4.0)
    answer = db.estimate(field, ["a", "slope", db.Exceeds("one", 0.0)], tolerance=1e-9)
    assert answer.plan.method == "exact"
    matrix = [[Fraction(value) for value in row] for row in field.precision.toarray().tolist()]
    exact = solve_exactly(matrix, [Fraction(value) for value in field.linear.tolist()])
    for row, i in ((0, 0), (1, 4)):
        assert Fraction(float(answer.lower[row])) <= exact[i] <= Fraction(float(answer.upper[row]))
    assert answer.half_width.max() < 1e-9


def solve_exactly(matrix, right):
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def test_inverses_and_eigenvalues_are_bounded():
    rng = np.random.default_rng(2)
    for n in (1, 3, 8):
        root = rng.normal(size=(n, n))
        matrix = root @ root.T + 1e-3 * np.eye(n)
        inverse, error = bound_inverse(matrix)
        exact = [solve_exactly(_exact(matrix), [Fraction(int(i == k)) for i in range(n)]) for k in range(n)]
        for k in range(n):
            off = [abs(Fraction(float(inverse[i, k])) - exact[k][i]) for i in range(n)]
            assert all(gap <= Fraction(float(bound)) for gap, bound in zip(off, error, strict=True))
        diagonal = np.sqrt(np.diag(matrix))
        least = np.linalg.eigvalsh(matrix / np.outer(diagonal, diagonal))[0]
        assert least - 1e-9 < least_eigenvalue(matrix) < least
    assert bound_inverse(np.array([[1.0, 1.0], [1.0, 1.0]])) is None
    assert least_eigenvalue(np.array([[1.0, np.inf], [np.inf, 1.0]])) == -np.inf


def _exact(matrix):
    return [[Fraction(value) for value in row] for row in matrix.tolist()]


@pytest.mark.parametrize(
    ("covariates", "deviation", "words"),
    [
        ({}, 1.0, "covariates .* a dict from names to values"),
        ({"a": 1.0}, 1.0, "names that are not labels of the field. Got 'a'"),
        ({"one": [1.0, np.nan, 2.0]}, 1.0, "finite .* variable 'b'"),
        ({"one": {"a": 1.0}}, 1.0, "finite .* variable 'b'"),
        ({"one": 0.0}, 1.0, "different from 0 somewhere. Got 'one'"),
        ({"one": 1.0}, 0.0, "deviation .* positive and finite"),
        ({"one": 1.0}, {"two": 1.0}, "deviation .* 'two'"),
    ],
)
def test_bad_covariates_get_a_sentence(covariates, deviation, words):
    prior = db.GaussianField.car(PATH, rho=0.9)
    check_sentence(lambda: prior.covariates(covariates, deviation), words)


def test_covariates_come_before_observations():
    field = db.GaussianField.car(PATH, rho=0.9).poisson({"a": 1})
    check_sentence(lambda: field.covariates({"one": 1.0}), "a prior without limits, levels or likelihoods")


def test_the_start_of_nearly_singular_fields_has_all_of_its_entropy():
    """The logarithm of the determinant of H is bounded from below: floating point was off by up to 1e-4 here."""
    checked, plain = 0, 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 6))
        vectors = rng.normal(size=(n, int(rng.integers(1, n))))
        precision = vectors @ vectors.T + np.eye(n) * 10.0 ** rng.uniform(-13, -3)
        try:
            boxed = box_of(db.GaussianField((precision + precision.T) / 2, lower=-1.0, upper=1.0)._form, 0.01)
            decay_of(boxed)
        except db.CertificateError:
            continue
        matrix = least_curvatures(boxed.form)
        exact = log_determinant(matrix)
        bound = np.log(bound_eigenvalues(matrix)).sum() + np.log(np.diag(matrix)).sum()
        assert bound <= exact + 1e-12 * n
        checked += 1
        plain += np.linalg.slogdet(matrix)[1] > exact + 1e-6 * n
    assert checked > 50
    assert plain > 0  # the control: without a bound, it is too large


def log_determinant(matrix):
    """Return the logarithm of a determinant by elimination in rationals."""
    rows, total = [[Fraction(float(value)) for value in row] for row in matrix], 0.0
    for k, row in enumerate(rows):
        total += math.log(row[k])
        for below in rows[k + 1 :]:
            factor = below[k] / row[k]
            below[:] = [a - factor * b for a, b in zip(below, row, strict=True)]
    return total
