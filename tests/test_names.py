"""What a session relies on: scans in the user's words, answers that can be found, compared and stored, graphs."""

import json

import networkx as nx
import numpy as np
import pytest

import dobrushin as db
from dobrushin._estimate.targets import Target

GRID = db.Ising.grid(4, 4, couplings=0.2, fields=0.1)
CHAIN = db.Ising({("a", "b"): 0.3, ("b", "c"): -0.2}, fields={"a": 0.5})
ASIA = "docs/gallery/asia.bif"


# -- scans -------------------------------------------------------------------------------------


def test_scans_are_measured_in_steps_or_sweeps_of_a_model():
    assert db.Scan.systematic(GRID, sweeps=10) == db.Scan.systematic(16, 160)
    assert db.Scan.uniform(GRID, sweeps=3) == db.Scan.uniform(16, steps=48)
    assert len(db.Scan.systematic(ASIA, sweeps=2)) == 16
    for wrong in ({}, {"steps": 3, "sweeps": 2}):
        with pytest.raises(db.ArgumentError, match=r"'steps'.*'sweeps'"):
            db.Scan.systematic(GRID, **wrong)


@pytest.mark.parametrize(
    "use",
    [
        lambda scan: db.variation(CHAIN, scan, ["a"]).value,
        lambda scan: db.variation(db.influence(CHAIN), scan, ["a"]).value,
        lambda scan: db.optimize_scan(CHAIN, scan, ["a"]).variation.value,
        lambda scan: db.sample(CHAIN, scan, chains=50, seed=1).states.tolist(),
        lambda scan: db.coalescence(CHAIN, scan, ["a"], runs=500, seed=1).value,
        lambda scan: db.exact_sample(CHAIN, "all", 20, scan=scan, seed=1).states.tolist(),
    ],
)
def test_a_list_of_variables_is_a_scan(use):
    assert use(["b", "a", "c", "a"] * 2) == use(db.Scan([1, 0, 2, 0] * 2))


# -- answers -----------------------------------------------------------------------------------

FIELD = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], labels=["u", "v"])
ANSWERS = {
    "sampled": lambda: db.estimate(GRID, [0, db.Joint(1, 2)], method="dobrushin", tolerance=0.1, seed=3),
    "named": lambda: db.estimate(ASIA, ["tub", db.Joint("lung", "bronc")], evidence={"xray": "yes"}),
    "soft": lambda: db.estimate(ASIA, "tub", evidence={"xray": {"yes": 0.9, "no": 0.2}}),
    "statistic": lambda: db.estimate(GRID, [0, db.Statistic.energy(GRID)], tolerance=0.5, method="dobrushin", seed=1),
    "field": lambda: db.estimate(FIELD, ["u", db.Exceeds("v", 0.5), db.Quantile("u", 0.9)], tolerance=0.2, seed=1),
    "uncertified": lambda: db.estimate(GRID, [0], method="uncertified", tolerance=0.2, seed=1),
    "evidence": lambda: db.estimate(
        GRID, 0, evidence={5: 1}, method="dobrushin", tolerance=0.2, seed=np.random.SeedSequence(3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_read_is_the_one_that_was_written(name, tmp_path):
    answer = ANSWERS[name]()
    answer.save(tmp_path / "answer.json")
    again = db.Estimate.load(tmp_path / "answer.json")
    assert again == answer == ANSWERS[name]()
    assert str(again) == str(answer)
    assert again.to_json() == answer.to_json() == db.Estimate.from_json(answer.to_json()).to_json()
    for target in answer.targets:
        key = target._name if isinstance(target, Target) else target
        np.testing.assert_array_equal(again[key].lower, answer[target].lower)
    assert again.to_dataframe().equals(answer.to_dataframe())


def test_the_headline_says_what_the_user_asserts():
    own = db.Statistic(lambda x: x[:, 0] * 1.0, {0: 2.0}, (-1, 1), "own")
    risk = db.Statistic(lambda x: np.abs(x[:, 0]), {"u": 1.0}, (-np.inf, np.inf), "risk")
    agree = db.Statistic.event([0, 1], lambda x: x[:, 0] == x[:, 1])
    made = [db.Statistic.magnetisation(GRID), db.Statistic.total(GRID, [0, 3]), db.Statistic.energy(GRID), agree]

    def headline(model, target, tolerance=0.5, method="dobrushin"):
        return db.estimate(model, target, tolerance=tolerance, seed=1, method=method).headline

    asserted = "proved if the given weights are correct"
    assert asserted in headline(GRID, own)
    assert asserted in headline(FIELD, risk)
    assert "for certain; proved if the given" in headline(GRID, own, method="local")
    assert headline(GRID, own, method="exact").endswith("exact to 1e-12")  # needs no weights
    for target in made:
        assert headline(GRID, target).endswith("; proved, not diagnosed")
    # Weights made for spins are too small for variables with four states.
    other = db.Potts.grid(4, 4, states=4, couplings=0.1, unaries=[[6.0, 0.0, 0.0, 0.0]] * 16)
    assert asserted in headline(other, made[0])


def test_certain_plans_and_answers_show_no_confidence():
    plan, answer = db.plan(GRID, [0], method="local"), db.estimate(GRID, [0], method="local")
    assert "tolerance 0.01, for certain" in str(plan)
    assert "%" not in str(plan) + str(answer)
    assert "99%" in str(db.plan(GRID, [0], method="dobrushin"))


def test_a_bias_bound_beyond_the_half_width_is_explained():
    grid = db.Ising.grid(12, 12, couplings=0.43, fields=0.05)
    answer = db.estimate(grid, [60], method="coalescence", tolerance=0.1, seed=1)
    assert answer.bias_bound[0] > answer.half_width[0]
    assert answer.footer.endswith("which the share of runs that did not coalesce bounds")
    near = db.estimate(GRID, [0], method="coalescence", tolerance=0.1, seed=1)
    assert "share of runs" not in near.footer


def test_a_read_answer_prints_names_without_control_characters():
    hostile = db.Statistic(lambda x: x[:, 0] * 1.0, {0: 2.0}, (-1, 1), "m\nP(0 = 1) = 0.99, exact\u202e")
    answer = db.estimate(GRID, hostile, method="exact")
    again = db.Estimate.from_json(answer.to_json())
    for shown in (str(answer), str(again), again.headline):
        assert "\nP(0" not in shown
        assert "\u202e" not in shown


def test_answers_differ_where_anything_that_matters_does():
    def ask(**changes):
        return db.estimate(GRID, **{"targets": [0], "method": "dobrushin", "tolerance": 0.1, "seed": 1, **changes})

    answer = ask()
    assert answer == ask()
    for changes in ({"seed": 2}, {"targets": [1]}, {"evidence": {9: 1}}, {"tolerance": 0.11}, {"confidence": 0.9}):
        assert answer != ask(**changes)
    assert answer != answer.to_json()


def test_text_that_is_no_answer_is_refused(tmp_path):
    good = json.loads(db.estimate(CHAIN, "a").to_json())
    bad = ["", "[]", "{}", "null", json.dumps({**good, "format": "dobrushin estimate 1"})]
    bad += [json.dumps({k: v for k, v in good.items() if k != key}) for key in ("rows", "plan", "seed")]
    row = {**good["rows"][0], "value": 10**400}  # no double holds it
    bad += [json.dumps({**good, "rows": [row]}), "[" * 100_000]
    for text in bad:
        (tmp_path / "bad.json").write_text(text)
        for read in (lambda text=text: db.Estimate.from_json(text), lambda: db.Estimate.load(tmp_path / "bad.json")):
            with pytest.raises(db.ArgumentError, match=r"Estimate\.to_json wrote"):
                read()


def test_answers_to_many_queries_are_json():
    answers = db.estimate_many(CHAIN, [("a", None), ("b", {"a": 1}), ("b", {"a": 7})])
    stored = json.loads(answers.to_json())
    assert [entry["error"] is None for entry in stored["queries"]] == [True, True, False]
    assert db.Estimate.from_json(json.dumps(stored["queries"][1]["answer"])) == answers[1]
    assert "states -1, +1" in stored["queries"][2]["error"]


class Label:
    """A name that counts how often it is compared."""

    compared = 0

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        Label.compared += 1
        return isinstance(other, Label) and self.number == other.number


def test_an_answer_is_found_without_looking_at_the_others():
    labels = [Label(k) for k in range(500)]
    many = FIELD.grid(20, 25, rho=0.5, labels=labels)
    answer = db.estimate(many, labels, method="exact")
    answer[labels[0]]
    Label.compared = 0
    for k in range(500):
        assert len(answer[Label(k)].value) == 1
    assert Label.compared <= 3 * 500
    with pytest.raises(db.ArgumentError, match="nearest is 'smoke'"):
        db.estimate(ASIA, "all")["smok"]


def test_columns_are_named_after_what_they_hold():
    assert "probability" in str(db.estimate(CHAIN, "a"))
    assert "mean" in db.estimate(FIELD, "u").to_dataframe().columns
    assert "quantile" in str(db.estimate(FIELD, db.Quantile("u", 0.9), tolerance=0.2))
    assert "value" in db.estimate(FIELD, ["u", db.Exceeds("v", 0.5)], tolerance=0.2, seed=1).to_dataframe().columns


def test_the_headline_of_a_joint_marginal_names_each_state():
    answer = db.estimate(ASIA, db.Joint("lung", "bronc"), evidence={"xray": "yes"})
    assert answer.headline.startswith("P(lung = no, bronc = no | xray = yes) = 0.28486")


def test_a_pair_of_labels_is_no_joint_target():
    with pytest.raises(db.ArgumentError, match=r"Joint\('a', 'b'\) for the joint marginal of these variables"):
        db.estimate(CHAIN, [("a", "b")])
    assert db.estimate(CHAIN, db.Joint("a", "b")).value.sum() == pytest.approx(1.0)


# -- graphs ------------------------------------------------------------------------------------


def test_edges_and_parents_of_networks():
    model = db.read(ASIA)
    assert model.parents["either"] == ("lung", "tub")
    assert model.parents["smoke"] == ()
    assert set(model.edges) == {(parent, child) for child, parents in model.parents.items() for parent in parents}
    graph = model.to_networkx()
    assert nx.is_directed_acyclic_graph(graph)
    assert list(graph.nodes) == list(model.labels)
    assert set(graph.edges) == set(model.edges)
    with pytest.raises(db.ArgumentError, match="Bayesian network"):
        CHAIN.parents  # noqa: B018


@pytest.mark.parametrize(
    "model", [CHAIN, GRID, db.Potts({("a", "b"): 1.0, ("b", "c"): -0.5}, 3, unaries={"a": [1, 2, 3]})]
)
def test_graphs_come_back_as_the_models_they_were(model):
    assert db.from_networkx(model.to_networkx()) == model
    assert set(map(frozenset, model.to_networkx().edges)) == set(map(frozenset, model.edges))


def test_graphs_of_other_models():
    pairs = db.PairwiseMRF([[0.0, 0.1]] * 3, [(2, 1), (0, 1)], [np.eye(2)] * 2, ["a", "b", "c"])
    assert pairs.edges == [("c", "b"), ("a", "b")]  # in the order of the tables
    assert FIELD.edges == [("u", "v")]
    with pytest.raises(db.ArgumentError, match="lazy"):
        db.Ising.grid(3, 4, lambda k: 0.1 + 0.0 * k).edges  # noqa: B018


# -- labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: db.Ising({("a", "b"): 1.0}, fields={"A": 2.0}),
        lambda: db.Potts({("a", "b"): 1.0}, 2, unaries={"A": [0.0, 1.0]}),
        lambda: db.SpinMRF({("a", "b"): 1.0}, fields={"A": 2.0}),
        lambda: db.Ising({(0, 1): 1.0}, fields={10: 2.0}),
    ],
)
def test_a_misspelt_label_adds_no_variable(make):
    with pytest.raises(db.ArgumentError, match="labels of the model"):
        make()


def test_fields_name_the_variables_of_a_model_without_couplings():
    assert db.Ising({}, fields={"a": 1.0, "b": 0.0}).labels == ("a", "b")
