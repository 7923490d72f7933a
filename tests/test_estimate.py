"""Estimates: intervals that hold, tolerances that are kept, and clear words where there is no certificate."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dobrushin as db
from dobrushin._estimate.dobrushin import Dobrushin
from dobrushin._estimate.query import Settings, make_query, workspace
from dobrushin._estimate.runs import ChainRun
from dobrushin._influence.matrix import known_influence
from dobrushin._sampling import start
from dobrushin._sampling.kernel import choose_kernel
from dobrushin._sampling.start import allowed_state
from dobrushin._shared.running import Running
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

SEEDS = st.integers(0, 10**6)


def truth(model, answer):
    """Exact values of all rows of an estimate of marginals."""
    marginals = db.exact.marginals(model)
    return np.concatenate([marginals[model.index(t)] for t in dict.fromkeys(answer.targets)])


def weak_models(count, n=4):
    """Random models of all families inside Dobrushin's condition."""
    rng = np.random.default_rng(7)
    found = []
    while len(found) < count:
        model = random_model(rng, FAMILIES[len(found) % 5], n=n, strength=0.3)
        if db.influence(model).spectral_radius() < 0.9:
            found.append(model)
    return found


# -- coverage ------------------------------------------------------------------------------------------------------


def coverage(models, runs, confidence=0.8, shrink=1.0):
    """Misses of each model, and the largest half-width."""
    result, widest = [], 0.0
    for model in models:
        miss = 0
        for seed in range(runs):
            found = db.estimate(model, "all", tolerance=0.1, confidence=confidence, method="dobrushin", seed=seed)
            half = shrink * found.half_width
            middle = (found.lower + found.upper) / 2
            miss += bool((np.abs(truth(model, found) - middle) > half).any())
            widest = max(widest, float(found.half_width.max()))
        result.append(miss)
    return np.array(result), widest


@pytest.mark.slow
def test_intervals_hold_as_often_as_they_say_and_keep_the_tolerance():
    models = weak_models(20)
    misses, widest = coverage(models, 50)
    assert widest <= 0.1
    assert (misses <= stats.binom.ppf(1 - 1e-6, 50, 0.2)).all()
    assert misses.sum() <= stats.binom.ppf(1 - 1e-6, 1000, 0.2)


def test_intervals_of_half_the_width_do_not_hold():
    misses, _ = coverage(weak_models(5), 40, shrink=0.5)
    assert misses.sum() > stats.binom.ppf(1 - 1e-6, 200, 0.2)


def slow_chain():
    """A chain of spins that is driven from one end; a short scan from a uniform start has a bias at the other."""
    model = db.Ising({(i, i + 1): 0.45 for i in range(5)}, fields=[3.0, 0, 0, 0, 0, 0])
    query = make_query(model, [5], {}, Settings(0.5, 0.9, "dobrushin", None))
    scan = db.Scan([4, 5])
    bias = float(db.variation(model, scan, [5]).value)
    plan = db.Plan("dobrushin", "by hand", 0.5, 0.9, bias, "Clopper-Pearson", 1, scan, 0, "bits")
    return model, query, plan


def test_the_bias_of_a_slow_chain_is_covered_only_with_its_bound():
    model, query, plan = slow_chain()
    kernel = choose_kernel(model, plan.scan, 64, "bits")
    bias = Dobrushin.bias_of(query, plan.scan, kernel)
    run = ChainRun(Dobrushin(query, plan, kernel, bias), np.random.SeedSequence(1), Running())
    run.trials = 64 * 2000
    run.draw()
    found = run.estimate()
    exact = truth(model, found)
    assert (found.lower <= exact).all()
    assert (exact <= found.upper).all()
    # Negative control: without the bias term the true value is far outside.
    assert (found.lower + found.bias_bound > exact).any()


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(FAMILIES), st.booleans())
def test_every_certified_answer_contains_the_truth(seed, family, zeros):
    """At a confidence at which a miss in any of these examples is a fault."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, zeros=zeros, strength=float(rng.choice([0.1, 0.4])))
    try:
        found = db.estimate(
            model, "all", tolerance=0.2, confidence=1 - 1e-9, method=str(rng.choice(["dobrushin", "auto"])), seed=seed
        )
    except db.CertificateError:
        return
    exact = truth(model, found)
    assert (found.lower <= exact).all()
    assert (exact <= found.upper).all()
    assert found.half_width.max() <= 0.2
    assert (found.bias_bound >= 0).all()


def test_joint_marginals_statistics_and_events_are_covered_together():
    model = db.Ising.grid(3, 3, couplings=0.15, fields=0.1)
    joint = db.Joint(4, 0)
    energy, magnetisation = db.Statistic.energy(model), db.Statistic.magnetisation(model)
    event = db.Statistic.event([0, 8], lambda x: x[:, 0] != x[:, 1])
    total = db.Statistic.total(model, [1, 2])
    targets = [3, joint, 5, energy, magnetisation, event, total]
    states, probability = all_states(model), db.exact.distribution(model).ravel()
    found = db.estimate(model, targets, tolerance=0.1, confidence=1 - 1e-9, method="dobrushin", seed=2)
    assert found.half_width.max() <= 0.1
    pairs = [probability[(states[:, 4] == a) & (states[:, 0] == b)].sum() for a in (-1, 1) for b in (-1, 1)]
    means = [
        probability @ -model.log_density(states),
        probability @ states.mean(axis=1),
        probability @ (states[:, 0] != states[:, 8]),
        probability @ states[:, 1:3].sum(axis=1),
    ]
    marginals = db.exact.marginals(model)
    exact = np.concatenate([marginals[3], pairs, marginals[5], means])
    assert found.states == [-1, 1, (-1, -1), (-1, 1), (1, -1), (1, 1), -1, 1, None, None, None, None]
    for answer in (found, db.estimate(model, targets, tolerance=0.1)):
        assert (answer.lower <= exact).all()
        assert (exact <= answer.upper).all()
        np.testing.assert_array_equal(answer[joint].value, answer.value[2:6])
        np.testing.assert_array_equal(answer["energy"].value, answer.value[8:9])
    assert answer.plan.method == "exact"
    np.testing.assert_allclose(answer.value, exact, atol=1e-12)
    # The means stopped long before the worst case that was planned for.
    assert found.samples.chains < found.plan.chains / 2


# -- methods and plans ---------------------------------------------------------------------------------------------


def test_the_plan_splits_the_tolerance_and_no_other_length_is_cheaper():
    model = db.Ising.grid(50, 50, couplings=0.2)
    made = db.plan(model, [0], tolerance=0.02, method="dobrushin")
    assert 0 < made.bias < made.tolerance
    assert made.bias + made.monte_carlo == made.tolerance
    assert abs(db.variation(model, made.scan, [0]).value - made.bias) < 1e-12
    for share in (0.3, 0.6, 2.0, 3.0):
        bias = share * made.bias
        if bias < made.tolerance:
            other = db.shortest_scan(model, [0], tolerance=bias, polish=0)
            chains = stats.norm.ppf(0.995) ** 2 / 4 / (0.02 - other.variation.value) ** 2
            assert len(other.scan) * chains > 0.95 * made.updates
    found = db.estimate(model, [0], tolerance=0.02, seed=1, method="dobrushin")
    assert found.plan.scan == made.scan
    assert found.samples.chains == made.chains
    assert str(made).startswith("Plan: dobrushin")


def test_auto_takes_the_clique_tree_where_it_is_cheaper():
    chain = db.Ising({(i, i + 1): 2.0 for i in range(30)})  # far outside Dobrushin's condition
    found = db.estimate(chain, [0, 30])
    assert found.plan.method == "exact"
    assert found.confidence == 1.0
    assert found.samples is None
    np.testing.assert_allclose(found.value, 0.5, atol=1e-12)
    assert (found.upper > found.lower).all()
    assert found.half_width.max() < 1e-9
    assert db.estimate(db.Ising.grid(1000, 1000, couplings=0.1), [0], seed=1).plan.method == "local"


@pytest.mark.slow
def test_a_strong_model_without_a_certificate_says_why():
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=10_800)
    model = db.Ising.grid(60, 60, couplings=signs[:7200], fields=0.3 * signs[7200:].reshape(60, 60), periodic=True)
    for method in ("auto", "dobrushin"):
        with pytest.raises(db.CertificateError, match="spectral radius of the influence is") as caught:
            db.estimate(model, [0], method=method)
        assert "method='uncertified'" in str(caught.value)
        assert "dobrushin" in caught.value.reasons
    with pytest.raises(db.BudgetError, match="Summing over the states needs"):
        db.estimate(model, [0], method="exact")


def test_uncertified_is_marked_wherever_it_is_shown():
    model = db.Ising.grid(6, 6, couplings=0.5)
    found = db.estimate(model, [0], tolerance=0.1, method="uncertified", seed=1)
    assert not found.is_certified
    assert np.isnan(found.bias_bound).all()
    for text in (str(found), str(found.plan), found.to_json(), " ".join(found.assumptions)):
        assert "NOT CERTIFIED" in text or '"certified": false' in text
    assert json.loads(found.to_json())["rows"][0]["bias_bound"] is None
    assert "NO" in found.to_arviz()["constant_data"].attrs["certified"]


def test_evidence_conditions_and_contradictions_are_named():
    model = db.Ising.grid(3, 3, couplings=0.2)
    found = db.estimate(model, "all", evidence={4: 1, 0: -1}, tolerance=0.05, method="dobrushin", seed=1)
    rest = model.condition({4: 1, 0: -1})
    exact = np.concatenate(db.exact.marginals(rest))
    assert list(dict.fromkeys(found.targets)) == [1, 2, 3, 5, 6, 7, 8]
    assert (np.abs(found.value - exact) < 0.05).all()
    inf = -np.inf
    hard = db.FactorGraph([2, 2, 2], [((0, 1), [[0, inf], [inf, 0]]), ((1, 2), [[0, inf], [inf, 0]])])
    for method in ("auto", "exact", "uncertified"):
        with pytest.raises(db.ArgumentError, match=r"'evidence' argument .* must be possible"):
            db.estimate(hard, [1], evidence={0: 0, 2: 1}, method=method)
    some = db.FactorGraph([2, 2, 2, 2], [((0, 1), [[0, inf], [inf, 0]]), ((1, 2), [[0, inf], [0, 0]]),
                                         ((2, 3), [[inf, 0], [inf, inf]])])  # fmt: skip
    for method in ("auto", "exact", "uncertified"):
        with pytest.raises(db.ArgumentError, match=r"evidence of probability zero|forbids"):
            db.estimate(some, [1], evidence={3: 0, 0: 1}, method=method)
    spins = db.estimate(model, db.Statistic.magnetisation(model), evidence={4: 1}, tolerance=0.1, seed=1)
    states = all_states(rest := model.condition({4: 1}))
    exact = db.exact.distribution(rest).ravel() @ (states.sum(axis=1) + 1) / 9
    assert spins.lower[0] <= exact <= spins.upper[0]


def test_exact_rounding_bound_holds_for_huge_potentials():
    rng = np.random.default_rng(0)
    for size in (1.0, 1e6):
        model = random_model(rng, "pairwise", n=5, strength=size)
        found = db.estimate(model, "all", method="exact")
        exact = db.exact.distribution(model)
        for k, label in enumerate(model.labels):
            axes = tuple(a for a in range(5) if a != k)
            assert (
                np.abs(found[label].value - exact.sum(axis=axes)) <= 2 * found[label].bias_bound + 1e-9 * size
            ).all()


# -- what is shared ------------------------------------------------------------------------------------------------


def test_repeated_calls_compute_each_influence_row_once(monkeypatch):
    from dobrushin._influence import matrix as known

    asked = []
    compute = known.influence_rows

    def counting(model, positions, method):
        asked.extend((model.n_variables, int(i)) for i in positions)
        return compute(model, positions, method)

    monkeypatch.setattr(known, "influence_rows", counting)
    model = db.Ising.grid(30, 30, couplings=0.2)
    db.estimate(model, [0], seed=1)
    assert len(asked) == len(set(asked)) > 0
    before = len(asked)
    db.estimate(model, [0], seed=2)
    db.plan(model, [0], tolerance=0.02)
    assert len(asked) == before
    # Evidence far away changes nothing but the rows beside it.
    db.estimate(model, [0], evidence={2: 1}, seed=1)
    known = {i for _, i in asked[:before]}
    again = {i for _, i in asked[before:] if i + (i >= 2) in known}
    assert again
    assert again <= {1, 2, 31, 32, 61} | {i - 1 for i in (1, 3, 32)}
    once = len(asked)
    db.estimate(model, [0], evidence={2: 1}, seed=5)
    assert len(asked) == once


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from(FAMILIES))
def test_remembered_rows_are_those_of_the_conditioned_model(seed, family):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=6)
    space = workspace(model)
    space.rows.rows(np.arange(6))
    evidence = {model.labels[2]: model.states(2)[0], model.labels[4]: model.states(4)[-1]}
    given_rows = space.given(evidence).rows.rows(np.arange(4))
    fresh = known_influence(model.condition(evidence)).rows(np.arange(4))
    np.testing.assert_array_equal(given_rows.columns, fresh.columns)
    np.testing.assert_array_equal(given_rows.values, fresh.values)
    np.testing.assert_array_equal(given_rows.cap, fresh.cap)


def test_seeds_threads_and_blocks_give_the_same_answer():
    model = db.Ising.grid(10, 10, couplings=0.2)
    targets = [0, db.Statistic.magnetisation(model, range(10))]
    one = db.estimate(model, targets, tolerance=0.02, method="dobrushin", seed=4)
    with ThreadPoolExecutor(1) as pool:
        two = db.estimate(model, targets, tolerance=0.02, method="dobrushin", seed=4, run=db.RunOptions(executor=pool))
    np.testing.assert_array_equal(one.value, two.value)
    np.testing.assert_array_equal(one.samples.states, two.samples.states)
    other = db.estimate(model, targets, tolerance=0.02, method="dobrushin", seed=5)
    assert other.value[0] != one.value[0]
    unseeded = db.estimate(model, [0], tolerance=0.05, method="dobrushin")
    again = db.estimate(model, [0], tolerance=0.05, method="dobrushin", seed=unseeded.seed)
    np.testing.assert_array_equal(unseeded.value, again.value)


def test_results_convert():
    model = db.PairwiseMRF([[0.0, 0.1], [0.0, 0.0, 0.3]], [(0, 1)], [np.full((2, 3), 0.1)], ["a", "b"])
    found = db.estimate(model, ["b", db.Joint("a", "b")], tolerance=0.05, method="dobrushin", seed=1)
    frame = found.to_dataframe()
    assert list(frame.columns) == ["target", "state", "probability", "lower", "upper", "bias_bound"]
    assert list(frame["target"]) == ["b"] * 3 + ["a, b"] * 6
    data = found.to_arviz()
    assert data["posterior"]["x"].shape == (found.samples.chains, 1, 2)
    assert data["constant_data"]["lower"].shape == (9,)
    stored = json.loads(found.to_json(indent=1))
    assert stored["certified"] is True
    numbers = {name: float(getattr(found, name)[4]) for name in ("value", "lower", "upper", "bias_bound")}
    about = {"target": ["a", "b"], "state": [0, 1], "kind": "probability", "variables": ["a", "b"]}
    assert stored["rows"][4] == {**about, **numbers}
    with pytest.raises(TypeError, match="not iterable"):
        list(found)
    exact = db.estimate(model, ["a"]).to_arviz()
    assert exact["constant_data"].attrs["method"] == "exact"


# -- bad input -----------------------------------------------------------------------------------------------------

SMALL = db.Ising.grid(4, 4, couplings=0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tolerance": 0}, "'tolerance' .* between 0 and 1, both excluded. Got 0"),
        ({"tolerance": 1.0}, "'tolerance' .* Got 1.0"),
        ({"tolerance": float("nan")}, "'tolerance' .* Got nan"),
        ({"tolerance": "0.1"}, "'tolerance' .* Got '0.1'"),
        ({"confidence": 1}, "'confidence' .* Got 1"),
        ({"confidence": -0.5}, "'confidence' .* Got -0.5"),
        ({"targets": []}, "'targets' .* at least one target"),
        ({"targets": [99]}, "'targets' .* labels of the model .0 to 15.. Got 99 at index 0"),
        ({"targets": "some"}, "'targets' .* Got 'some'"),
        ({"targets": [1, 1]}, "'targets' .* distinct labels"),
        ({"targets": db.Joint(0, 99)}, "'targets' .* Got 99"),
        ({"targets": [0], "evidence": {0: 1}}, "not in the evidence. Got 0"),
        ({"targets": db.Joint(0, 1), "evidence": {0: 1}}, "not in the evidence. Got 0"),
        ({"evidence": {99: 1}}, "'evidence' .* Got 99"),
        ({"evidence": {1: 0}}, "'evidence' .* states -1, .1 of 1. Got 0"),
        ({"evidence": [1]}, "'evidence' .* dict"),
        ({"method": "magic"}, "'method' .* 'auto', 'symmetry', 'dobrushin', 'local', 'walks', 'exact'"),
        ({"budget": -1}, "'budget' .* positive"),
        ({"seed": -1}, "'seed'"),
        ({"run": 3}, "'run' .* a RunOptions"),
        ({"model": 3}, "'model' .* a model.* Got 3"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    call = {"model": SMALL, "targets": [0], **arguments}
    with pytest.raises(db.ArgumentError, match=message):
        db.estimate(call.pop("model"), call.pop("targets"), **call)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: db.Joint(1), "at least two"),
        (lambda: db.Statistic(3, {0: 1}, (0, 1)), "'f' .* a function"),
        (lambda: db.Statistic(len, [1], (0, 1)), "'weights' .* dict"),
        (lambda: db.Statistic(len, {0: -1}, (0, 1)), "'weights' .* Got -1 at label 0"),
        (lambda: db.Statistic(len, {0: 0}, (0, 1)), "'weights' .* positive for at least one"),
        (lambda: db.Statistic(len, {0: 1}, (1, 0)), "'bounds' .* smaller one first"),
        (lambda: db.Statistic(len, {0: 1}, (float("inf"), float("inf"))), "'bounds'"),
        (lambda: db.Statistic(len, {0: 1}, (0, 10**400)), "'bounds'"),
        (lambda: db.Statistic(len, {0: 10**400}, (0, 1)), "'weights' .* at label 0"),
        (lambda: db.estimate(SMALL, db.Statistic(len, {0: 1}, (0, float("inf")))), "statistics with finite bounds"),
        (lambda: db.Statistic.magnetisation(db.Potts({(0, 1): 1.0}, states=3)), "spins"),
        (lambda: db.Statistic.total(SMALL, [77]), "'labels' .* Got 77"),
        (lambda: db.Statistic.energy(3), "'model'"),
        (lambda: db.Statistic.event("ab", len), "'labels'"),
    ],
)
def test_bad_statistics_are_named(make, message):
    with pytest.raises(db.ArgumentError, match=message):
        make()


@pytest.mark.parametrize("method", ["dobrushin", "exact"])
def test_a_statistic_that_breaks_its_bounds_certifies_nothing(method):
    wrong = db.Statistic(lambda x: x[:, 0] * 3.0, {0: 6}, (-1, 1), name="wrong")
    with pytest.raises(db.ArgumentError, match=r"within the bounds -1 to 1 .*Got -?3.0 at chain \d"):
        db.estimate(SMALL, wrong, tolerance=0.1, method=method, seed=1)
    undefined = db.Statistic(lambda x: np.full(len(x), np.nan), {0: 2}, (-1, 1))
    with pytest.raises(db.ArgumentError, match="Got nan at chain 0"):
        db.estimate(SMALL, undefined, tolerance=0.1, method=method, seed=1)
    shape = db.Statistic(lambda x: x, {0: 2}, (-1, 1))
    with pytest.raises(db.ArgumentError, match="returns an array of shape"):
        db.estimate(SMALL, shape, tolerance=0.1, method=method, seed=1)
    crash = db.Statistic(lambda x: x[:, 7], {0: 2}, (-1, 1))
    with pytest.raises(db.ArgumentError, match="it raised IndexError"):
        db.estimate(SMALL, crash, tolerance=0.1, method=method, seed=1)
    event = db.Statistic.event([0], lambda x: 0.5 * (x[:, 0] > 0))
    with pytest.raises(db.ArgumentError, match="true or false"):
        db.estimate(SMALL, event, tolerance=0.1, method=method, seed=1)


def test_a_budget_that_is_too_small_gives_the_plan_and_what_was_reached():
    with pytest.raises(db.BudgetError, match="Gibbs updates") as caught:
        db.estimate(SMALL, [0], budget=1000, method="dobrushin", seed=1)
    assert caught.value.plan.updates > 1000
    assert caught.value.result._is_vacuous
    statistic = db.Statistic.energy(SMALL)
    with pytest.raises(db.BudgetError, match="The attribute 'result' of this error has the best") as caught:
        db.estimate(SMALL, statistic, budget=10**5, tolerance=0.01, method="dobrushin", seed=1)
    reached = caught.value.result
    exact = db.exact.distribution(SMALL).ravel() @ -SMALL.log_density(all_states(SMALL))
    assert reached.lower[0] <= exact <= reached.upper[0]
    assert reached.half_width[0] > 0.01


def test_statistics_see_states_in_the_order_of_the_model():
    model = db.Ising({("b", "a"): 0.1, ("a", "c"): 0.1}, fields={"c": 3.0})
    seen = []

    def look(x):
        seen.append(x.mean(axis=0))
        return x[:, 0] * 0.0

    weights = {"c": 2, "b": 0, "a": 2}
    db.estimate(model, db.Statistic(look, weights, (-1, 1)), tolerance=0.5, method="dobrushin", seed=1)
    order = [label for label in model.labels if weights[label]]
    assert seen[0].shape == (2,)
    assert seen[0][order.index("c")] > 0.9


# -- allowed states ------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from(FAMILIES_WITH_ZEROS))
def test_an_allowed_state_is_found_where_there_is_one(seed, family):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, zeros=True)
    state = allowed_state(model._form)
    assert model.log_density(state) > -np.inf


def test_an_impossible_model_is_recognised(monkeypatch):
    inf = -np.inf
    different = [[inf, 0], [0, inf]]
    triangle = db.FactorGraph([2] * 3, [((0, 1), different), ((1, 2), different), ((0, 2), different)])
    assert allowed_state(triangle._form) is None
    with pytest.raises(db.ArgumentError, match="allows some joint state"):
        db.estimate(triangle, [0])
    scopes = [(i, j) for i in range(4) for j in range(i)]
    impossible = db.FactorGraph([3] * 4, [(scope, np.where(np.eye(3), inf, 0.0)) for scope in scopes])
    assert allowed_state(impossible._form) is None
    monkeypatch.setattr(start, "_MAX_LOOKS", 8)
    monkeypatch.setattr(start, "_MAX_REPAIRS", 100)
    with pytest.raises(db.BudgetError, match=r"search for an allowed state needs 101 repairs.*Pass .* as 'initial'"):
        allowed_state(impossible._form)


@pytest.mark.parametrize("seed", range(3))
def test_violated_tables_are_repaired_where_choices_take_long(seed, monkeypatch):
    """Random clauses of three variables, 4 for each variable, and colourings with a colour that is ruled out."""
    monkeypatch.setattr(start, "_MAX_LOOKS", 3000)
    rng = np.random.default_rng(seed)
    clauses = []
    for _ in range(400):
        table = np.zeros((2, 2, 2))
        table[tuple(rng.integers(0, 2, 3))] = -np.inf
        clauses.append((tuple(rng.choice(100, 3, replace=False).tolist()), table))
    satisfiable = db.FactorGraph([2] * 100, clauses)
    different = np.where(np.eye(4), -np.inf, 0.0)
    edges = {tuple(sorted(rng.choice(100, 2, replace=False).tolist())) for _ in range(150)}
    ruled_out = [((i,), [0.0, 0.0, 0.0, -np.inf]) for i in range(0, 100, 3)]
    colouring = db.FactorGraph([4] * 100, [*ruled_out, *((edge, different) for edge in edges)])
    for model in (satisfiable, colouring):
        assert model.log_density(allowed_state(model._form)) == 0


# -- what a sceptic found ------------------------------------------------------------------------------------------


def test_statistics_do_their_arithmetic_in_wide_integers():
    model = db.Ising.grid(3, 3, couplings=0.1, fields=3.0)
    large = db.Statistic(lambda x: 100 * x[:, 0] + 100 * x[:, 1], {0: 200, 1: 200}, (-200, 200))
    found = db.estimate(model, large, tolerance=0.9, method="dobrushin", seed=1)
    assert found.lower[0] > 195
    table = np.random.default_rng(0).normal(size=(2, 300)) * 0.01
    wide = db.FactorGraph([2, 300], [((0, 1), table)])
    state = db.Statistic(lambda x: x[:, 1].astype(float), {0: 1, 1: 299}, (0, 299))
    for method in ("dobrushin", "exact"):
        found = db.estimate(wide, state, evidence={1: 299}, tolerance=0.9, method=method, seed=1)
        assert found.upper[0] == 299 == round(found.value[0])


def test_rows_are_remembered_safely_by_many_threads():
    model = db.Ising.grid(60, 60, couplings=0.2)
    fresh = db.influence(model)
    rng = np.random.default_rng(0)
    asked = [np.unique(rng.integers(3600, size=40)) for _ in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(workspace(model).rows.rows, asked))
    for positions, rows in zip(asked, found, strict=True):
        np.testing.assert_array_equal(rows.values, fresh.rows(positions).values)
        np.testing.assert_array_equal(rows.columns, fresh.rows(positions).columns)


def test_an_interruption_leaves_rows_unknown_not_wrong(monkeypatch):
    model = db.Ising.grid(10, 10, couplings=0.2)
    rows = workspace(model).rows

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dobrushin._influence.matrix.np.resize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rows.rows(np.arange(60))
    monkeypatch.undo()
    np.testing.assert_array_equal(rows.rows(np.arange(60)).values, db.influence(model, rows=range(60)).matrix.data)
    np.testing.assert_array_equal(rows.rows(np.arange(100)).values, db.influence(model).matrix.data)


def test_rounding_of_evidence_is_in_the_intervals():
    huge = db.Ising({("b", "x"): 1e16, ("b", "w"): 1.0, ("b", "y"): 1e16, ("b", "c"): 0.1}, fields={"b": 0.3})
    evidence = {"x": 1, "w": 1, "y": -1}
    with pytest.raises(db.CertificateError):
        db.estimate(huge, ["b"], evidence=evidence)
    with pytest.raises(db.CertificateError) as caught:
        db.estimate(huge, ["b"], evidence=evidence, method="exact")
    assert caught.value.result.upper[1] >= 0.92  # the truth is about 0.93


def test_rounding_of_merged_factors_is_in_the_intervals():
    tables = [[[1e17, 0], [0, 0]], [[5, 0], [0, 0]], [[-1e17, 0], [0, 0]]]
    model = db.FactorGraph([2, 2], [((0, 1), table) for table in tables])
    with pytest.raises(db.CertificateError) as caught:
        db.estimate(model, db.Joint(0, 1), method="exact")
    assert caught.value.result.upper[0] >= 0.98


def test_exact_answers_that_rounding_spoils_are_not_certified():
    # Potentials of this size have no digits left for the 1.
    tables = [((0, 1), [[1e17, 0], [0, 1e17]]), ((0, 1), [[-1e17, 0], [0, 1 - 1e17]])]
    with pytest.raises(db.CertificateError, match=r"rounding errors of the sums reach .* above the tolerance"):
        db.estimate(db.FactorGraph([2, 2], tables), [0], method="exact")
    # A coupling so large is as good as an equation, and loses nothing.
    found = db.estimate(db.Ising({(0, 1): 1e50}, fields=[1, 0]), [0], method="exact")
    assert abs(found.value[1] - 1 / (1 + np.exp(-2))) < found.half_width[1] < 1e-12


@pytest.mark.parametrize("tolerance", [1e-10, 1e-14])
def test_tiny_tolerances_are_exact_or_refused(tolerance):
    model = db.Ising.grid(4, 4, couplings=0.2)
    if tolerance > 1e-12:
        assert db.estimate(model, [0], tolerance=tolerance).plan.method == "exact"
    else:
        with pytest.raises(db.CertificateError, match=r"rounding errors of the sums reach .* above the tolerance"):
            db.estimate(model, [0], tolerance=tolerance)
    with pytest.raises((db.CertificateError, db.BudgetError)):
        db.estimate(model, [0], tolerance=1e-12, method="dobrushin", budget=1e12)


def test_variables_that_hardly_count_are_updated_too():
    model = db.Ising.grid(20, 20, couplings=0.1)
    tiny = db.Statistic(lambda x: x[:, 0] + 1e-6 * x[:, 1], {0: 2, 399: 2e-6}, (-2, 2))
    found = db.estimate(model, tiny, tolerance=0.1, method="dobrushin", seed=1)
    assert abs(found.value[0]) < 0.1


def test_energy_of_a_model_with_forbidden_states():
    inf = -np.inf
    model = db.FactorGraph([2] * 3, [((0, 1), [[inf, 0], [0, inf]]), ((2,), [0, 1.0])])
    found = db.estimate(model, db.Statistic.energy(model), tolerance=0.05)
    assert abs(found.value[0] + np.e / (1 + np.e)) < 1e-9
    with pytest.raises(db.ArgumentError, match="not constant"):
        db.Statistic.energy(db.Ising(np.zeros((2, 2))))


def test_many_targets_do_not_look_like_stagnation():
    made = db.plan(db.Ising.grid(60, 60, couplings=0.25, fields=0.1), "all", tolerance=0.1)
    assert made.method == "dobrushin"


def test_joint_questions_are_planned_on_their_own_tree():
    model = db.Ising.grid(14, 14, couplings=0.9)
    joint = db.Joint(*range(0, 196, 17))
    try:
        made = db.plan(model, joint, tolerance=0.3, method="exact")
    except db.BudgetError:
        return
    assert made.method == "exact"


def test_odd_labels_and_lookups():
    model = db.FactorGraph([2, 2, 2], [((0, 1), np.eye(2)), ((1, 2), np.eye(2))], labels=[0, 1, (0, 1)])
    joint = db.Joint(0, 1)
    one = db.Statistic(lambda x: 1.0 * x[:, 0], {0: 1}, (0, 1))
    two = db.Statistic(lambda x: 2.0 * x[:, 0], {0: 2}, (0, 2))
    found = db.estimate(model, [(0, 1), joint, one, two], method="exact")
    assert found[(0, 1)].states == [0, 1]
    assert found[joint].states == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found[two].value == pytest.approx(2 * found[one].value)
    with pytest.raises(db.ArgumentError, match="several targets have this name"):
        found["statistic"]
    with pytest.raises(db.ArgumentError, match="targets that were estimated"):
        found[np.array([0, 1])]
    assert db.estimate(SMALL, np.array(3)).targets == [3, 3]
    for evidence in ({1: [1]}, {1: np.array(1)}, {True: 1}, {1: True}):
        with pytest.raises(db.ArgumentError, match="'evidence'"):
            db.estimate(SMALL, [0], evidence=evidence)
    db.estimate(SMALL, [0], evidence={1: 1})
    with pytest.raises(db.ArgumentError, match="'evidence'"):
        db.estimate(SMALL, [0], evidence={True: True})
    with pytest.raises(db.ArgumentError, match="'bounds'"):
        db.Statistic(len, {0: 1}, (-1.7e308, 1.7e308))


def test_allowed_states_of_large_models_are_found_fast():
    different = np.where(np.eye(3), -np.inf, 0.0)
    size = 40
    edges = [(i, i + 1) for i in range(size * size) if (i + 1) % size] + [
        (i, i + size) for i in range(size * size - size)
    ]
    colouring = db.FactorGraph([3] * size**2, [(edge, different) for edge in edges])
    assert colouring.log_density(allowed_state(colouring._form)) == 0


def test_the_answer_says_when_the_tolerance_was_not_reached():
    statistic = db.Statistic.energy(SMALL)
    with pytest.raises(db.BudgetError) as caught:
        db.estimate(SMALL, statistic, budget=10**5, tolerance=0.01, method="dobrushin", seed=1)
    assert "the tolerance 0.01 was not reached" in str(caught.value.result)


def test_memory_that_runs_out_in_a_statistic_is_not_said_to_be_a_fault_of_the_statistic():
    def full(_):
        raise MemoryError

    with pytest.raises(db.BudgetError, match=r"^dobrushin\.estimate "):
        db.estimate(SMALL, db.Statistic(full, {0: 1.0}, (0.0, 1.0)), tolerance=0.1)


def test_memory_too_small_to_read_what_is_free_gives_the_same_error(monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(Dobrushin, "answer", full)
    monkeypatch.setattr("dobrushin._shared.memory.free_memory", full)
    with pytest.raises(db.BudgetError, match=r"^dobrushin\.estimate "):
        db.estimate(db.Ising.grid(4, 4, couplings=0.1), [0], method="dobrushin")


def test_memory_that_runs_out_is_said_of_the_function_that_was_called(monkeypatch):
    def full(*_):
        raise MemoryError

    model = db.Ising.grid(4, 4, couplings=0.1)
    for name in ("answer", "propose"):
        with monkeypatch.context() as patch:
            patch.setattr(Dobrushin, name, full)
            with pytest.raises(db.BudgetError, match=r"^dobrushin\.estimate "):
                db.estimate(model, [0], method="dobrushin")
