"""Soft evidence against the definition: pi(x) times the likelihoods, enumerated."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
from dobrushin.cli.app import app
from dobrushin.verify import verify_proof
from models import FAMILIES, FAMILIES_WITH_ZEROS, random_model


def literal_marginal(model, target, soft, hard):
    """By the definition, from the joint distribution."""
    p = db.exact.distribution(model).copy()
    for i, likelihood in soft.items():
        shape = [1] * p.ndim
        shape[i] = -1
        p = p * np.reshape([likelihood[state] for state in model.states(i)], shape)
    for i, state in hard.items():
        keep = [slice(None)] * p.ndim
        k = model.states(i).index(state)
        keep[i] = slice(k, k + 1)
        p = p[tuple(keep)]
    marginal = p.sum(axis=tuple(axis for axis in range(p.ndim) if axis != target))
    return marginal / marginal.sum()


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_soft_evidence_is_one_more_factor(family, zeros):
    if zeros and family not in FAMILIES_WITH_ZEROS:
        pytest.skip("nothing is forbidden in this family")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model = random_model(rng, family, n=4, zeros=zeros)
        soft = {
            i: {state: float(rng.exponential() * 10.0 ** rng.integers(-5, 5)) for state in model.states(i)}
            for i in (0, 1)
        }
        for target in (0, 3):
            answer = db.estimate(model, target, evidence=soft)
            expected = literal_marginal(model, target, soft, {})
            assert answer.states == list(model.states(target))
            assert (answer.lower - 1e-12 <= expected).all()
            assert (expected <= answer.upper + 1e-12).all()
            np.testing.assert_allclose(answer.value, expected, atol=1e-12)
        weighted = model.condition(soft)
        assert weighted.labels == model.labels
        np.testing.assert_allclose(db.exact.marginals(weighted)[0], literal_marginal(model, 0, soft, {}), atol=1e-12)
    if zeros:
        return
    wrong = {0: dict.fromkeys(model.states(0), 1.0), 1: soft[1]}  # the comparison sees a factor that is missing
    assert not np.allclose(literal_marginal(model, 0, wrong, {}), literal_marginal(model, 0, soft, {}), atol=1e-6)


def test_soft_and_hard_evidence_together():
    model = random_model(np.random.default_rng(2), "ising", n=4)
    soft = {0: {-1: 0.2, 1: 3.0}}
    answer = db.estimate(model, 2, evidence={**soft, 1: -1})
    np.testing.assert_allclose(answer.value, literal_marginal(model, 2, soft, {1: -1}), atol=1e-12)
    assert answer.asked.evidence == {1: -1, 0: {-1: 0.2, 1: 3.0}}
    assert answer.asked.model is model
    assert answer.log_evidence is None


@pytest.mark.parametrize("method", ["local", "dobrushin", "coalescence"])
def test_every_method_knows_it(method):
    model = db.Ising.grid(4, 4, couplings=0.1, state_names=("no", "yes"))
    evidence = {0: {"yes": 0.9, "no": 0.1}}
    exact = db.estimate(model, 1, evidence=evidence, method="exact").value
    answer = db.estimate(model, 1, evidence=evidence, method=method, tolerance=0.05, seed=1)
    assert answer.states == ["no", "yes"]
    assert (answer.lower <= exact).all()
    assert (exact <= answer.upper).all()


@pytest.mark.parametrize("method", ["exact", "dobrushin", "coalescence"])
def test_functions_of_spins_see_spins(method):
    """A model with likelihoods is made of tables, whose states are 0 and 1; statistics of spins are not told so."""
    model = db.Ising.grid(2, 3, couplings=0.1, fields=0.3)
    product = db.Statistic(lambda x: x[:, 0] * x[:, 1], {1: 2, 2: 2}, bounds=(-1, 1), name="product")
    down = db.Statistic.event([1, 2], lambda x: (x == -1).all(axis=1), name="both down")
    asked = [product, down, db.Statistic.magnetisation(model), db.Statistic.total(model, [0, 4, 5])]
    for evidence in ({}, {4: -1}):
        plain = db.estimate(model, asked, evidence=evidence, method="exact").value
        even = {0: {-1: 0.5, 1: 0.5}}  # says nothing
        answer = db.estimate(model, asked, evidence={**evidence, **even}, method=method, tolerance=0.1, seed=1)
        assert answer.targets == asked
        assert (answer.lower - 1e-12 <= plain).all()
        assert (plain <= answer.upper + 1e-12).all()


def test_functions_of_spins_in_proofs(tmp_path):
    model = db.Ising.grid(2, 2, couplings=0.1, fields=0.3)
    evidence = {0: {-1: 0.5, 1: 0.5}, 3: -1}
    answer = db.estimate(model, db.Statistic.magnetisation(model), evidence=evidence)
    answer.write_proof(tmp_path / "spins.proof")
    assert verify_proof(tmp_path / "spins.proof").verdict == "holds"


def test_states_by_number_beside_likelihoods():
    model = db.Ising({(0, 1): 0.5, (1, 2): 0.3}, state_names=("no", "yes"))
    soft = {0: {"no": 0.2, "yes": 0.7}}
    by_number, by_name = (db.estimate(model, 1, evidence={**soft, 2: state}).value for state in (-1, "no"))
    assert (by_number == by_name).all()


def test_certain_likelihoods_are_evidence_and_even_ones_are_none():
    model = db.Ising({("a", "b"): 0.5}, state_names=("no", "yes"))
    certain = db.estimate(model, "b", evidence={"a": {"no": 0.0, "yes": 0.3}})
    np.testing.assert_array_equal(certain.value, db.estimate(model, "b", evidence={"a": "yes"}).value)
    assert certain.asked.evidence == {"a": "yes"}
    even = db.estimate(model, "a", evidence={"a": {"no": 5.0, "yes": 5.0}})
    np.testing.assert_allclose(even.value, [0.5, 0.5], atol=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        ({"yes": 0.7}, "a likelihood for each state"),
        ({"yes": 0.7, "no": -1}, "non-negative and finite"),
        ({"yes": 0.7, "no": float("nan")}, "non-negative and finite"),
        ({"yes": 0.7, "no": "x"}, "non-negative and finite"),
        ({"yes": 0.0, "no": 0.0}, "a positive likelihood for some state"),
        ({"yes": 0.7, "nono": 1.0}, "one of the states"),
        ({"yes": 0.7, "no": 0.2, -1: 0.1}, "a likelihood for each state"),
        ({}, "a likelihood for each state"),
    ],
)
def test_likelihoods_that_cannot_be_used_are_refused(likelihood, message):
    model = db.Ising({("a", "b"): 0.5}, state_names=("no", "yes"))
    for ask in (lambda e: db.estimate(model, "b", evidence=e), model.condition):
        with pytest.raises(db.ArgumentError, match=message):
            ask({"a": likelihood})


def test_the_command_line_and_files_have_it(tmp_path):
    model = db.Ising({("a", "b"): 0.5}, state_names=("no", "yes"))
    db.write(model, tmp_path / "pair.npz")
    words = ["estimate", str(tmp_path / "pair.npz"), "--target", "b", "--evidence"]
    result = CliRunner().invoke(app, [*words, "a=yes:0.7/no:0.3", "--json", "--report", str(tmp_path / "page.html")])
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.output)
    expected = db.estimate(model, "b", evidence={"a": {"yes": 0.7, "no": 0.3}})
    assert [row["value"] for row in data["rows"]] == expected.value.tolist()
    likelihoods = [{"state": "no", "likelihood": 0.3}, {"state": "yes", "likelihood": 0.7}]
    assert data["evidence"] == [{"target": "a", "state": likelihoods}]
    assert CliRunner().invoke(app, [*words, "a=yes:x/no:0.3"]).exit_code == 2


def test_sums_and_maxima_take_likelihoods():
    model = db.Ising({(0, 1): 0.5, (1, 2): -0.3}, fields=[0.1, 0.0, 0.4], state_names={0: ("no", "yes")})
    evidence = {0: {"no": 0.2, "yes": 0.8}, 2: -1}
    joint = db.exact.distribution(model)[:, :, 0] * np.array([0.25, 1.0])[:, None]
    z = db.exact.log_partition(model)
    soft = db.exact.log_partition(model, evidence=evidence)
    assert float(soft - z) == pytest.approx(np.log(joint.sum()), abs=1e-12)
    best = db.exact.most_likely(model, evidence=evidence)
    assert best.states == {0: "yes", 1: 1, 2: -1}
    assert best.log_density - float(z) == pytest.approx(np.log(joint.max()), abs=1e-12)
    assert db.exact.most_likely(model, evidence={0: {"no": 1.0, "yes": 1e-9}}).states[0] == "no"


def test_a_likelihood_of_one_state_leaves_the_variable_where_it_is_asked_about():
    model = db.Ising({("a", "b"): 0.4, ("b", "c"): 0.3})
    certain, hard = {"a": {-1: 0.0, 1: 2.0}}, {"a": 1}
    answer = db.estimate(model, "all", evidence=certain, method="exact")
    assert list(dict.fromkeys(answer.targets)) == ["a", "b", "c"]
    assert answer["a"].value.tolist() == pytest.approx([0.0, 1.0], abs=1e-11)
    np.testing.assert_allclose(answer["c"].value, db.estimate(model, "c", evidence=hard).value, atol=1e-9)
    assert db.estimate(model, ["a", "c"], evidence=certain)["a"].upper[0] < 1e-9
    assert db.estimate(model, db.Joint("a", "c"), evidence=certain).value.sum() == pytest.approx(1.0)
    assert model.condition(certain).labels == model.labels
    assert (
        db.estimate(model, "c", evidence=certain).value.tolist()
        == db.estimate(model, "c", evidence=hard).value.tolist()
    )


@pytest.mark.parametrize("scale", [1e-300, 1e200, 1e308])
def test_likelihoods_of_any_size_are_the_same_up_to_their_factor(scale):
    model = db.Ising({("a", "b"): 0.4})
    large = db.estimate(model, "b", evidence={"a": {-1: scale, 1: scale / 2}}, method="exact")
    usual = db.estimate(model, "b", evidence={"a": {-1: 1.0, 1: 0.5}}, method="exact")
    np.testing.assert_allclose(large.value, usual.value, atol=1e-12)
