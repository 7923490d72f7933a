"""Missing values: expectation maximisation and clamped gradients, against enumeration."""
# ruff: noqa: E501 (the table of bad input has one case a line)

import re

import numpy as np
import pytest

import dobrushin as db
from dobrushin._learning.ascent import AscentOptions, ExactAscent
from dobrushin._learning.data import Observed
from dobrushin._learning.em import network_structure
from dobrushin._learning.structure import structure_of
from dobrushin.errors import Interrupted

NAN = float("nan")
FREE = AscentOptions(None, None, 0.0, -np.inf, np.inf)


def random_network(rng, n=4):
    """Variables of 2 and 3 states with up to two parents among those before them; one table has a zero."""
    sizes = rng.integers(2, 4, size=n).tolist()
    factors = []
    for i in range(n):
        parents = rng.permutation(i)[: int(rng.integers(0, 3))].tolist()
        table = rng.dirichlet(np.ones(sizes[i]), size=[sizes[p] for p in parents])
        scope = [*parents, i]
        order = rng.permutation(len(scope))
        factors.append((tuple(scope[k] for k in order), np.log(table).transpose(order)))
    return db.FactorGraph(sizes, [factors[k] for k in rng.permutation(n)])


def with_gaps(rng, states, share=0.3):
    data = states.astype(float)
    data[rng.random(data.shape) < share] = NAN
    return data


def drawn(rng, model, count):
    law = db.exact.distribution(model)
    digits = rng.choice(law.size, size=count, p=law.ravel())
    return np.stack(np.unravel_index(digits, law.shape), axis=1)


def literal_em_step(model, data):
    """Mean log-likelihood of the data, and the tables after a step, by enumeration."""
    law = db.exact.distribution(model)
    states = np.stack(np.unravel_index(np.arange(law.size), law.shape), axis=1)
    weights, total = np.zeros(law.size), 0.0
    for row in data:
        fits = (np.isnan(row) | (states == row)).all(axis=1)
        own = law.ravel() * fits
        total += np.log(own.sum())
        weights += own / own.sum()
    counts = []
    for k in range(model.n_factors):
        scope, table = model.factor(k)
        own = np.zeros(table.shape)
        np.add.at(own, tuple(states[:, v] for v in scope), weights)
        counts.append(own)
    return total / len(data), counts


def children(model):
    """The axis of the child in each table."""
    return [
        next(a for a in range(t.ndim) if np.allclose(np.exp(t).sum(axis=a), 1))
        for _, t in map(model.factor, range(model.n_factors))
    ]


@pytest.mark.parametrize("prior", [0.0, 0.7])
def test_a_step_of_em_is_that_of_enumeration(prior):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = random_network(rng)
        data = with_gaps(rng, drawn(rng, model, 30))
        found = db.fit(model, data, method=db.EM(prior=prior), iterations=1)
        value, counts = literal_em_step(model, data)
        assert found.history.log_likelihood[0] == pytest.approx(value, rel=1e-12)
        assert found.method == "em"
        assert found.bias_bound < 1e-10
        for k, axis in enumerate(children(model)):
            own = counts[k] + prior
            totals = own.sum(axis=axis, keepdims=True)
            before = np.exp(model.factor(k)[1])
            wanted = np.where(totals > 1e-9, own / np.where(totals > 1e-9, totals, 1.0), before)
            np.testing.assert_allclose(np.exp(found.model.factor(k)[1]), wanted, atol=1e-10)


@pytest.mark.parametrize("starts", [1, 3])
def test_the_likelihood_never_falls(starts):
    for seed in range(15):
        rng = np.random.default_rng(100 + seed)
        model = random_network(rng, 5)
        data = with_gaps(rng, drawn(rng, model, 25), 0.4)
        found = db.fit(model, data, method=db.EM(starts=starts), iterations=25, gradient_tol=1e-12, seed=seed)
        values = found.history.log_likelihood
        assert (np.diff(values) >= -1e-12).all()
        assert values[-1] > values[0]
        alone = db.fit(model, data, iterations=25, gradient_tol=1e-12)
        assert values[-1] >= alone.history.log_likelihood[-1] - 1e-12


def test_a_step_in_the_wrong_direction_is_caught():
    """Negative control: tables that are learned from other data have a smaller likelihood."""
    rng = np.random.default_rng(5)
    model = random_network(rng)
    data = with_gaps(rng, drawn(rng, model, 200), 0.2)
    learned = db.fit(model, data, iterations=30).history.log_likelihood[-1]
    other = db.fit(model, data[:20], iterations=30).model
    again = db.fit(other, data, method=db.EM(), iterations=1).history.log_likelihood[0]
    assert again < learned - 1e-3


def test_complete_data_need_one_step():
    rng = np.random.default_rng(2)
    model = random_network(rng)
    states = drawn(rng, model, 200)
    found = db.fit(model, states)
    assert found.converged
    assert len(found.history) == 2
    assert found.imputed is None
    scope, _ = model.factor(0)
    axis = children(model)[0]
    counts = np.zeros([model.cardinalities[v] for v in scope])
    np.add.at(counts, tuple(states[:, v] for v in scope), 1.0)
    totals = counts.sum(axis=axis, keepdims=True)
    seen = np.broadcast_to(totals > 0, counts.shape)
    np.testing.assert_allclose(
        np.exp(found.model.factor(0)[1])[seen], (counts / np.maximum(totals, 1))[seen], atol=1e-12
    )


def test_what_was_imputed_is_the_posterior():
    rng = np.random.default_rng(3)
    model = random_network(rng)
    data = with_gaps(rng, drawn(rng, model, 40))
    found = db.fit(model, data, iterations=3)
    report = found.imputed
    assert len(report) == np.isnan(data).sum()
    for row, label, state, probability in zip(
        report.rows, report.labels, report.states, report.probabilities, strict=True
    ):
        assert np.isnan(data[row, label])
        seen = {i: int(x) for i, x in enumerate(data[row]) if not np.isnan(x)}
        rest = found.model.condition(seen) if seen else found.model
        marginal = db.exact.marginals(rest)[list(rest.labels).index(label)]
        assert state == marginal.argmax()
        assert probability == pytest.approx(marginal.max(), abs=1e-12)
    assert repr(report).startswith(f"Imputed(values={len(report)}, mean_probability=0.")


def test_a_file_and_a_data_frame_in_one_line(tmp_path):
    pandas = pytest.importorskip("pandas")
    edges = [("rain", "grass"), ("sprinkler", "grass")]
    rng = np.random.default_rng(4)
    frame = pandas.DataFrame({"sprinkler": rng.choice(["off", "on"], 300), "rain": rng.choice(["no", "yes"], 300)})
    frame["grass"] = np.where((frame.rain == "yes") | (frame.sprinkler == "on"), "wet", "dry")
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    found = db.fit(edges, frame, family="bayesian")
    assert found.model.state_names["grass"] == ("dry", "wet")
    assert found.converged
    path = tmp_path / "garden.bif"
    db.write(found.model, path)
    again = db.fit(path, frame)
    assert again.converged
    assert again.history.log_likelihood[-1] == pytest.approx(found.history.log_likelihood[-1], abs=1e-3)
    report = again.imputed.to_dataframe()
    assert list(report.columns) == ["row", "label", "state", "probability"]
    assert set(report.state) <= {"no", "yes", "off", "on", "dry", "wet"}
    assert len(report) == frame.isna().sum().sum()
    numbers = db.fit([(0, 1)], [[0, 1], [1, 2], [NAN, 0]], family="bayesian")
    assert numbers.model.cardinalities.tolist() == [2, 3]


@pytest.mark.parametrize("family", ["ising", "potts", "pairwise"])
def test_gradients_of_gaps_are_those_of_enumeration(family):
    edges = [(0, 1), (0, 2), (1, 2), (2, 3)]
    rng = np.random.default_rng(6)
    k = 2 if family == "ising" else 3
    digits = with_gaps(rng, rng.integers(0, k, size=(20, 4)))
    data = 2 * digits - 1 if family == "ising" else digits
    options = {"family": family, "ridge": 0.02, "method": "exact"}
    found = db.fit(edges, data, iterations=300, **options)
    assert found.converged
    # At the optimum the gradient of the penalised likelihood, by differences of its literal value, is 0.
    structure = structure_of(found.model, "all")
    assert structure.names() == found.names

    def value(theta):
        law = db.exact.distribution(structure.model(theta))
        states = np.stack(np.unravel_index(np.arange(law.size), law.shape), axis=1)
        rows = [law.ravel()[(np.isnan(row) | (states == row)).all(axis=1)].sum() for row in digits]
        return np.log(rows).mean() - 0.01 * theta @ theta

    assert found.history.log_likelihood[-1] == pytest.approx(
        value(found.parameters) + 0.01 * found.parameters @ found.parameters, abs=1e-12
    )
    for j in rng.permutation(len(found.parameters))[:6]:
        step = np.where(np.arange(len(found.parameters)) == j, 1e-4, 0.0)
        slope = (value(found.parameters + step) - value(found.parameters - step)) / 2e-4
        assert abs(slope) < 1e-5
    if family == "ising":
        assert set(found.imputed.states.tolist()) <= {-1, 1}
    chains = db.fit(
        edges, data, family=family, ridge=0.02, box=0.3, method=db.GibbsGradient(chains=2000), iterations=30, seed=1
    )
    inside = db.fit(edges, data, box=0.3, **options)
    penalised = [fit.parameters for fit in (chains, inside)]
    assert value(penalised[1]) - 5e-3 < value(penalised[0]) < value(penalised[1]) + 1e-9


def test_an_interrupted_fit_goes_on(tmp_path):
    rng = np.random.default_rng(8)
    model = random_network(rng)
    data = with_gaps(rng, drawn(rng, model, 40))
    options = {"method": db.EM(starts=2), "iterations": 9, "gradient_tol": 1e-13, "seed": 3}
    whole = db.fit(model, data, **options)

    def interrupt(k, _):
        if k == 4:
            raise KeyboardInterrupt

    keep = db.RunOptions(checkpoint=tmp_path / "em.npz")
    with pytest.raises(Interrupted, match="4 of 9"):
        db.fit(model, data, **options, run=keep, callback=interrupt)
    resumed = db.fit(model, data, **options, run=keep)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    np.testing.assert_array_equal(resumed.history.log_likelihood, whole.history.log_likelihood)
    with pytest.raises(db.ArgumentError, match="written by the same fit"):
        db.fit(model, np.where(np.isnan(data), 0, data), **options, run=keep)


def test_many_rows_are_summed_in_pieces(monkeypatch):
    rng = np.random.default_rng(9)
    model = random_network(rng)
    data = with_gaps(rng, drawn(rng, model, 50))
    whole = db.fit(model, data, iterations=3)
    monkeypatch.setattr("dobrushin._learning.sums._NUMBERS_AT_ONCE", 200)
    pieces = db.fit(model, data, iterations=3)
    np.testing.assert_allclose(pieces.parameters, whole.parameters, atol=1e-10)
    monkeypatch.setattr("dobrushin._learning.sums._MAX_ENTRIES", 1)
    np.testing.assert_allclose(db.fit(model, data, iterations=3).parameters, whole.parameters, atol=1e-10)


def test_structures_of_networks():
    rng = np.random.default_rng(10)
    model = random_network(rng)
    structure = network_structure(model)
    exact = ExactAscent(
        structure, Observed.of(structure, drawn(rng, model, 5).T.astype(np.int8)), FREE, structure.start
    )
    assert exact._sums.run(structure.start).log_partition == pytest.approx(0.0, abs=1e-12)
    assert len(structure.names()) == len(structure.start)
    assert network_structure(db.FactorGraph([2, 2], [((0, 1), np.zeros((2, 2)))])) is None


NET = db.FactorGraph([2, 2], [((0,), np.log([0.4, 0.6])), ((0, 1), np.log([[0.1, 0.9], [1.0, 1e-9]]))])
ZERO = db.FactorGraph([2, 2], [((0,), np.log([0.5, 0.5])), ((0, 1), np.array([[0.0, -np.inf], [-np.inf, 0.0]]))])
BAD = {
    "a cycle": (lambda: db.fit([(0, 1), (1, 2), (2, 0)], np.ones((3, 3)), family="bayesian"), "'model' .* a network without a cycle. Got 0 -> 1 -> 2 -> 0"),
    "a column that is missing": (lambda: db.fit(NET, [[0, NAN], [1, NAN]]), "'data' .* an observed value in every column. Got none at label 1"),
    "everything missing": (lambda: db.fit(NET, [[NAN, NAN]]), "'data' .* an observed value in every column. Got none at label 0"),
    "a state out of range": (lambda: db.fit(NET, [[0, 2], [1, NAN]]), "'data' .* states from 0 to 1, or NaN for missing values. Got 2.0 at index (0, 1)"),
    "a row that cannot be": (lambda: db.fit(ZERO, [[0, 0], [0, 1]]), "'data' .* allowed by the model. Got array([0, 1]) at row 1"),
    "no network": (lambda: db.fit(db.FactorGraph([2], [((0,), [0.0, 1.0])]), [[0]], method="em"), "'model' .* a Bayesian network, for method='em'. Got FactorGraph"),
    "another family": (lambda: db.fit([(0, 1)], [[0, 1]], family="potts", method="em"), "'family' .* 'bayesian' with method='em', and only then. Got 'potts'"),
    "chains for a network": (lambda: db.fit([(0, 1)], [[0, 1]], family="bayesian", method="gibbs"), "'family' .* Got 'bayesian'"),
    "ridge": (lambda: db.fit(NET, [[0, 1]], ridge=0.1), "'ridge' .* left out for a Bayesian network. Got 0.1"),
    "box": (lambda: db.fit(NET, [[0, 1]], box=0.1), "'box' .* left out for a Bayesian network. Got 0.1"),
    "learn": (lambda: db.fit(NET, [[0, 1]], learn="edges"), "'learn' .* left out for a Bayesian network. Got 'edges'"),
    "initial": (lambda: db.fit(NET, [[0, 1]], initial=np.zeros(6)), "'initial' .* left out for a Bayesian network."),
    "prior": (lambda: db.EM(prior=-1), "'prior' .* non-negative and finite. Got -1"),
    "starts": (lambda: db.EM(starts=0), "'starts' .* at least 1. Got 0"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(db.ArgumentError) as caught:
        call()
    text = str(caught.value)
    assert re.search(".*".join(map(re.escape, message.split(".*"))), text), text
    assert text.endswith(".")
    assert "\n" not in text


def test_rows_with_gaps_that_cannot_be_are_named():
    three = db.FactorGraph(
        [2, 2, 2],
        [
            ((0,), np.log([0.5, 0.5])),
            ((0, 1), np.where(np.eye(2) > 0, 0.0, -np.inf)),
            ((1, 2), np.log([[0.5, 0.5], [0.5, 0.5]])),
        ],
    )
    with pytest.raises(db.ArgumentError, match=r"allowed by the model. Got a row of probability 0 at row 2"):
        db.fit(three, [[0, 0, 0], [1, 1, 1], [0, 1, NAN], [1, 1, NAN], [1, 1, NAN]])


def test_text_in_a_data_frame():
    pandas = pytest.importorskip("pandas")
    named = db.FactorGraph([2], [((0,), np.log([0.5, 0.5]))], ["a"], state_names=("low", "high"))
    with pytest.raises(
        db.ArgumentError, match=r"one of the states 'low', 'high' of 'a' \(the nearest is 'high'\). Got 'hihg'"
    ):
        db.fit(named, pandas.DataFrame({"a": ["low", "hihg", None]}))
    with pytest.raises(db.ArgumentError, match=r"two different states, 'b' among them\. Got one state"):
        db.fit([("a", "b")], pandas.DataFrame({"a": ["x", "y"], "b": ["z", None]}), family="bayesian")
