"""Coalescence: sets that contain every trajectory, limits that hold, exact draws that are exact."""

import itertools
import json
import math
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dobrushin as db
import reference
from dobrushin._coalescence import sets
from dobrushin._coalescence.sets import SET_KERNELS, choose_sets
from dobrushin._estimate.method import METHODS
from dobrushin._kernels import generator
from dobrushin._kernels.elementary import arrival, logarithm
from dobrushin._shared.intervals import lower_limit, upper_limit
from dobrushin._shared.running import master_key
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

SEEDS = st.integers(0, 10**6)
# Every check below fails by chance at most this often.
ALPHA = 1e-9


def run_sets(model, scan, labels, runs, seed, every=None):
    """So many runs by the kernel that fits the model."""
    return sets.run_sets(
        model, choose_sets(model, scan), scan, labels, range(runs), np.random.SeedSequence(seed), every=every
    )


def kernel_models():
    """One model for each kernel."""
    rng = np.random.default_rng(2)
    star = {(0, i): float(rng.normal()) for i in range(1, 9)}
    return {
        "set bits": db.Ising.grid(2, 3, couplings=rng.normal(size=7), fields=rng.normal(size=(2, 3))),
        "set field": db.Ising(star, fields=list(rng.normal(size=9))),
        "set labels": random_model(rng, "potts", n=5, density=0.7, max_states=4),
        "set race": random_model(rng, "factors", n=5),
    }


# -- the sets ------------------------------------------------------------------------------------------------------


def random_bits(master, run, lanes, counter):
    """The 64 random bits of a stream with this number."""
    keys = generator.streams(master[0], master[1], run // lanes, 1)
    with np.errstate(over="ignore"):
        return int(generator.mix(keys[0, 0] + keys[1, 0] * np.uint64(counter)))


def trajectory_map(kernel, model, master, run, number):
    """The map of a step: from states (digits) to the new state of variable i."""
    if kernel == "set bits":
        bits = [(random_bits(master, run, 64, 64 * number + plane) >> (run % 64)) & 1 for plane in range(64)]
        u = sum(bit * 2.0 ** -(plane + 1) for plane, bit in enumerate(bits))
        return lambda p: int(u < p[1])
    if kernel == "set field":
        u = ((random_bits(master, run, 1, number) >> 11) + 0.5) * 2.0**-53
        return lambda p: int(u < p[1])
    K = int(model.cardinalities.max())

    def race(p):
        times = []
        for a in range(len(p)):
            u = ((random_bits(master, run, 1, number * K + a) >> 11) + 0.5) * 2.0**-53
            times.append(-math.log(u) / p[a] if p[a] > 0 else math.inf)
        return int(np.argmin(times))

    return race


@pytest.mark.parametrize("kernel", ["set bits", "set field", "set labels", "set race"])
def test_sets_contain_every_trajectory_and_settle_only_with_all_of_them(kernel):
    """Trajectories from all starts, one by one, with the random bits of the run."""
    model = kernel_models()[kernel]
    n = model.n_variables
    rng = np.random.default_rng(0)
    order = rng.integers(n, size=3 * n)
    scan = db.Scan(np.concatenate([np.arange(n), order]))
    master = master_key(np.random.SeedSequence(5))
    runs = run_sets(model, scan, list(model.labels), 8, 5, every=1)
    assert runs.kernel == kernel
    settled_somewhere = 0
    for run in (0, 7):
        digits = all_states(model) if not model._spins else (all_states(model) + 1) // 2
        digits = digits.copy()
        for t, i in enumerate(scan.order):
            step = trajectory_map(kernel, model, master, run, t)
            real = 2 * digits - 1 if model._spins else digits
            p = model.conditional(int(i), real)
            digits[:, i] = [step(row) for row in p]
            for j in range(n):
                value = runs.settled[run, t, j]
                if value >= 0:
                    settled_somewhere += 1
                    assert (digits[:, j] == value).all()
                elif kernel in ("set bits", "set field"):
                    # The ends of binary sets are reached, as far as their neighbours' sets are independent.
                    assert len(np.unique(digits[:, j])) == 2 or t > 0
    assert settled_somewhere > 0


@pytest.mark.parametrize("kernel", ["set bits", "set field", "set labels", "set race"])
def test_kernels_agree_with_sets_enumerated_by_hand(kernel):
    """The new set of a step by enumeration of the neighbours' sets (binary), or from the ranges of the weights."""
    model = kernel_models()[kernel]
    n = model.n_variables
    scan = db.Scan(np.random.default_rng(1).integers(n, size=30))
    positions = choose_sets(model, scan).region.positions.tolist()
    largest = int(model.cardinalities.max())
    master = master_key(np.random.SeedSequence(9))
    runs = run_sets(model, scan, [model.labels[i] for i in positions], 3, 9, every=1)
    graph = model.to_factor_graph()
    for run in range(3):
        sets = [set(range(k)) for k in graph.cardinalities.tolist()]
        for t, i in enumerate(scan.order.tolist()):
            step = trajectory_map(kernel, model, master, run, t)
            if kernel in ("set labels", "set race"):
                sets[i] = reference.race_set(graph, sets, i, [
                    -math.log(((random_bits(master, run, 1, t * largest + a) >> 11) + 0.5) * 2.0**-53)
                    for a in range(int(graph.cardinalities[i]))])  # fmt: skip
            else:
                near = model.neighbors(i).tolist()
                possible = set()
                for values in itertools.product(*(sets[j] for j in near)):
                    state = np.zeros(n, dtype=int)
                    state[near] = values
                    possible.add(step(model.conditional(i, 2 * state - 1)))
                sets[i] = possible
            for place, position in enumerate(positions):
                value = runs.settled[run, t, place]
                assert sets[position] == {int(value)} if value >= 0 else len(sets[position]) > 1


def bracket(model, runs, settled):
    """For each variable and state whether the limits of P(S = {a}) and P(a in S) admit pi(a)."""
    marginals = db.exact.marginals(model)
    total = sum(map(len, marginals))
    fine = True
    for j, exact in enumerate(marginals):
        open_ = int((settled[:, j] < 0).sum())
        for a, p in enumerate(exact):
            single = int((settled[:, j] == a).sum())
            fine &= bool(
                lower_limit(single, runs, ALPHA / total) <= p <= upper_limit(single + open_, runs, ALPHA / total)
            )
    return fine


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(FAMILIES), st.booleans())
def test_settled_runs_bracket_the_marginals(seed, family, zeros):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, zeros=zeros, strength=float(rng.choice([0.3, 1.0, 3.0])))
    steps = int(rng.integers(1, 5)) * model.n_variables
    scan = db.Scan.systematic(model.n_variables, max(steps, model.n_variables))
    runs = run_sets(model, scan, list(model.labels), 2048, seed)
    assert bracket(model, 2048, runs.settled[:, -1])


def test_a_set_that_drops_a_label_is_caught():
    """Negative control: pretend that unsettled variables are settled in their first state."""
    model = db.Potts({(0, 1): 1.5, (1, 2): 1.5, (0, 2): 1.5}, states=3, unaries=np.array([[0, 0.5, -0.5]] * 3))
    settled = run_sets(model, db.Scan.systematic(3, 6), [0, 1, 2], 4096, 1).settled[:, -1]
    assert (settled < 0).any()
    assert bracket(model, 4096, settled)
    assert not bracket(model, 4096, np.where(settled < 0, 0, settled))


# -- the certificate -----------------------------------------------------------------------------------------------


def true_distance(model, scan, targets):
    """Largest total variation of the joint law of the targets after the scan, over all allowed starts."""
    pi = db.exact.distribution(model)
    axes = tuple(a for a in range(model.n_variables) if a not in targets)
    goal = pi.sum(axis=axes)
    worst = 0.0
    for state in all_states(model):
        if model.log_density(state) > -np.inf:
            law = db.exact.law(model, scan, initial=state).sum(axis=axes)
            worst = max(worst, 0.5 * float(np.abs(law - goal).sum()))
    return worst


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(FAMILIES), st.booleans())
def test_the_limits_are_above_the_true_distance(seed, family, zeros):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=int(rng.integers(1, 5)), zeros=zeros, strength=float(rng.choice([0.3, 1.0])))
    n = model.n_variables
    scan = db.Scan(np.concatenate([np.arange(n), rng.integers(n, size=int(rng.integers(0, 8)))]))
    targets = sorted(rng.choice(n, size=int(rng.integers(1, n + 1)), replace=False).tolist())
    proof = db.coalescence(model, scan, [model.labels[i] for i in targets], confidence=1 - ALPHA, runs=500, seed=seed)
    assert true_distance(model, scan, targets) <= proof.value
    for i, limit in zip(targets, proof.per_variable, strict=True):
        assert true_distance(model, scan, [i]) <= limit
    assert proof.per_variable.shape == (len(targets),)


def test_a_coupling_that_shares_too_much_is_unsound():
    """Theory page, "Two look-alikes that are wrong": one cut of u for a whole set settles without right."""
    model = db.PairwiseMRF([[0, 0], [0, 0]], [(0, 1)], [np.log([[0.6, 0.4], [0.4, 0.6]])])
    graph, everything = model.to_factor_graph(), [{0, 1}, {0, 1}]
    sets = [reference.one_cut_set(graph, everything, 0, u) for u in np.random.default_rng(0).random(512)]
    assert upper_limit(sum(len(states) > 1 for states in sets), len(sets), ALPHA) < 0.1  # below the true distance
    proof = db.coalescence(model, db.Scan([0]), targets=[0], confidence=1 - ALPHA, runs=4096, seed=1)
    assert true_distance(model, db.Scan([0]), [0]) == pytest.approx(0.1)
    assert proof.value >= 0.2  # P(u between 0.4 and 0.6)


def test_ferromagnets_equal_the_distance_of_the_extreme_starts():
    model = db.Ising.grid(2, 3, couplings=0.4)
    scan = db.Scan.systematic(6, 12)
    laws = [db.exact.law(model, scan, initial=np.full(6, spin)).sum(axis=(1, 2, 3, 4, 5)) for spin in (-1, 1)]
    distance = 0.5 * float(np.abs(laws[0] - laws[1]).sum())
    proof = db.coalescence(model, scan, [0], runs=100_000, seed=3)
    assert abs(proof.failures / proof.runs - distance) < 5 * math.sqrt(distance / proof.runs)


def test_curve_confidence_and_what_is_said():
    model = db.Ising.grid(4, 4, couplings=0.3)
    proof = db.coalescence(model, db.Scan.systematic(16, 100), targets=[5, 2], runs=1000, seed=1)
    steps, values = proof.curve(every=30)
    assert steps.tolist() == [0, 30, 60, 90, 100]
    assert values[0] == 1.0
    assert proof.value <= values[-1] < values[1]
    assert proof.variables == [5, 2]
    assert "confidence 99.9%" in repr(proof)
    assert proof.update_error < 1e-10
    again = db.coalescence(model, db.Scan.systematic(16, 100), targets=[5, 2], runs=1000, seed=proof.seed)
    assert (again.value, again.failures) == (proof.value, proof.failures)
    one = db.coalescence(model, db.Scan([5]), targets=[5, 2], runs=100, seed=1)
    assert one.value == 1.0
    assert one.is_vacuous
    assert one.per_variable[1] == 1.0 > one.per_variable[0]
    assert (one.curve()[1] == 1.0).all()
    with pytest.raises(db.ArgumentError, match="labels of the model"):
        db.coalescence(model, db.Scan([5]), targets=[99])
    # No failures at all: the rule of three.
    sure = db.coalescence(db.Ising({(0, 1): 0.1}), db.Scan.systematic(2, 400), runs=1000, seed=1)
    assert sure.failures == 0
    assert abs(sure.value - -math.log(0.001) / 1000) < 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confidence": 1.0}, "'confidence'"),
        ({"runs": 0}, "'runs'"),
        ({"scan": db.Scan.uniform(16, 5)}, "without random steps"),
        ({"scan": db.Scan([40])}, "40"),
        ({"targets": []}, "at least one"),
        ({"seed": "a"}, "'seed'"),
        ({"run": 1}, "'run'"),
        ({"run": db.RunOptions(memory_limit=1)}, "without 'memory_limit'"),
        ({"model": 1}, "'model'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    call = {"model": db.Ising.grid(4, 4, couplings=0.3), "scan": db.Scan.systematic(16, 16), **arguments}
    with pytest.raises(db.ArgumentError, match=message):
        db.coalescence(call.pop("model"), call.pop("scan"), **call)


# -- exact draws ---------------------------------------------------------------------------------------------------


def fits(counts, probabilities):
    """Whether counts of cells are compatible with their probabilities (each cell, Bonferroni)."""
    total, cells = int(counts.sum()), counts.size
    low = lower_limit(counts, total, ALPHA / 2 / cells)
    high = upper_limit(counts, total, ALPHA / 2 / cells)
    return bool(((low <= probabilities) & (probabilities <= high)).all())


def joint_counts(model, states):
    digits = (states + 1) // 2 if model._spins else states
    shape = tuple(model.cardinalities.tolist())
    return np.bincount(np.ravel_multi_index(tuple(digits.T), shape), minlength=math.prod(shape))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("own_scan", [False, True])
def test_exact_draws_have_the_joint_law(family, own_scan):
    rng = np.random.default_rng(FAMILIES.index(family))
    model = random_model(rng, family, n=4, strength=0.8)
    scan = db.Scan(rng.permutation(4)) if own_scan else None
    exact = db.exact_sample(model, list(model.labels), draws=20_000, scan=scan, seed=1)
    assert fits(joint_counts(model, exact.states), db.exact.distribution(model).ravel())


def test_keeping_only_the_draws_that_settle_soon_is_biased():
    """Negative control, and the reason why `exact_sample` never drops slow draws."""
    model = db.Ising({(0, 1): 0.8, (1, 2): -0.8, (0, 2): 0.8}, fields=[0.5, 0.0, 0.3])
    settled = run_sets(model, db.Scan.systematic(3, 4), [0, 1, 2], 100_000, 1).settled[:, -1]
    soon = settled[(settled >= 0).all(axis=1)].astype(int)
    assert len(soon) > 1000
    assert not fits(joint_counts(model, 2 * soon - 1), db.exact.distribution(model).ravel())
    exact = db.exact_sample(model, [0, 1, 2], draws=20_000, seed=1)
    assert fits(joint_counts(model, exact.states), db.exact.distribution(model).ravel())


@pytest.mark.parametrize("states", [2, 3])
def test_going_further_into_the_past_changes_no_draw(states):
    """Theory page, "Exact draws": sets are nested. 64 draws wait for the slowest of them; the first stays as it was."""
    triangle = dict.fromkeys(itertools.combinations(range(3), 2), 1.0 if states == 2 else 2.0)
    model = db.Ising(triangle, [0.5, 0.0, 0.3]) if states == 2 else db.Potts(triangle, states)
    longer = 0
    for seed in range(20):
        alone = db.exact_sample(model, [0, 1, 2], draws=1, seed=seed)
        among = db.exact_sample(model, [0, 1, 2], draws=64, seed=seed)
        np.testing.assert_array_equal(among.states[:1], alone.states)
        longer += among.steps > alone.steps
    assert longer > 10


def test_exact_draws_keep_to_their_time_and_stop_when_told(monkeypatch):
    cold = db.Ising.grid(10, 10, couplings=3.0)
    with pytest.raises(db.BudgetError, match=r"Drawing .*needs .* seconds or more, over the limit of 1e-09"):
        db.exact_sample(cold, [0], draws=10, time_limit=1e-9)
    with pytest.raises(db.ArgumentError, match="'time_limit'"):
        db.exact_sample(cold, [0], draws=10, time_limit=-1)
    model = db.Ising.grid(3, 3, couplings=0.3)
    whole = db.exact_sample(model, "all", draws=200, seed=1)
    monkeypatch.setattr("dobrushin._sampling.batches.CHUNK", 7 * 64)
    monkeypatch.setattr("dobrushin._sampling.batches.SWEEPS", 0)
    in_chunks = db.exact_sample(model, "all", draws=200, seed=1)
    np.testing.assert_array_equal(in_chunks.states, whole.states)
    assert in_chunks.steps == whole.steps


@pytest.mark.parametrize("family", FAMILIES_WITH_ZEROS)
def test_exact_draws_of_models_with_forbidden_states(family):
    rng = np.random.default_rng(12)
    done = 0
    for _ in range(20):
        model = random_model(rng, family, n=3, strength=0.5, zeros=True)
        try:
            exact = db.exact_sample(model, list(model.labels), draws=4096, seed=1, max_steps=4096)
        except db.CoalescenceError:
            continue
        done += 1
        assert fits(joint_counts(model, exact.states), db.exact.distribution(model).ravel())
    assert done >= 3


def partition_draws(draws, rng):
    """Theory page, "Two look-alikes that are wrong": u cut by lower bounds, from the past, on a Potts triangle."""
    model = db.Potts({(0, 1): 1.2, (1, 2): 1.2, (0, 2): 1.2}, states=3, unaries=np.array([[0.8, 1.0, 0.0]] * 3))
    graph = model.to_factor_graph()
    result = np.empty((draws, 3), dtype=int)
    for d in range(draws):
        u = []
        length = 3
        while True:
            u = [*rng.random(length - len(u)), *u]
            sets = [{0, 1, 2}] * 3
            for t in range(length):
                sets[t % 3] = reference.partition_set(graph, sets, t % 3, u[t])
            if all(len(s) == 1 for s in sets):
                break
            length *= 2
        result[d] = [next(iter(s)) for s in sets]
    return model, result


@pytest.mark.slow
def test_a_partition_of_the_unit_interval_is_unsound_from_the_past():
    model, draws = partition_draws(900, np.random.default_rng(0))
    marginal = db.exact.marginals(model)[0]
    assert not fits(np.bincount(draws[:, 0], minlength=3), marginal)
    exact = db.exact_sample(model, [0, 1, 2], draws=900, seed=1)
    assert fits(np.bincount(exact.states[:, 0], minlength=3), marginal)


@pytest.mark.slow
def test_exact_draws_on_a_torus_agree_with_a_long_run():
    torus = db.Ising.grid(40, 40, couplings=0.35, periodic=True)
    exact = db.exact_sample(torus, [0, 1], draws=4096, seed=1)
    assert exact.error < 1e-6
    agree = int((exact.states[:, 0] == exact.states[:, 1]).sum())
    run = db.sample(torus, db.Scan.systematic(1600, 1600 * 1000), chains=4096, seed=2, record=[0, 1])
    long = int((run.states[:, 0] == run.states[:, 1]).sum())
    assert stats.fisher_exact([[agree, 4096 - agree], [long, 4096 - long]]).pvalue > ALPHA
    assert abs(int((exact.states[:, 0] > 0).sum()) - 2048) < 6.2 * 32


def test_draws_are_the_same_however_many_are_asked_for():
    model = db.Ising.grid(5, 5, couplings=0.4)
    many, few = (db.exact_sample(model, [0, 12], draws=d, seed=7).states for d in (300, 70))
    np.testing.assert_array_equal(many[:64], few[:64])


def test_slow_draws_are_not_dropped():
    cold = db.Ising.grid(12, 12, couplings=1.5)
    with pytest.raises(db.CoalescenceError, match="would be biased") as caught:
        db.exact_sample(cold, [0], draws=100, max_steps=5000, seed=1, method="scan")
    assert 0 < caught.value.open_draws <= 100
    assert caught.value.steps == 5000
    inf = -np.inf
    stuck = db.FactorGraph([2, 2], [((0, 1), [[0, inf], [inf, 0]])])
    with pytest.raises(db.CoalescenceError, match="suggest_groups"):
        db.exact_sample(stuck, [0], draws=3, max_steps=100, seed=1)
    with pytest.raises(db.ArgumentError, match="every target"):
        db.exact_sample(cold, [0], draws=3, scan=db.Scan([1]))
    with pytest.raises(db.ArgumentError, match="random steps"):
        db.exact_sample(cold, [0], draws=3, scan=db.Scan.uniform(144, 3))
    with pytest.raises(db.ArgumentError, match="'draws'"):
        db.exact_sample(cold, [0], draws=0)


# -- guided scans --------------------------------------------------------------------------------------------------


def test_guided_scans_settle_where_the_raw_influence_misleads():
    torus = db.Ising.grid(24, 24, couplings=0.32, periodic=True)
    scans = {"systematic": db.Scan.systematic(576, 5760)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", db.VacuousBoundWarning)
        scans["raw"] = db.optimize_scan(torus, scans["systematic"], [0], guide=None).scan
        scans["dogs"] = db.optimize_scan(torus, scans["systematic"], [0]).scan
        scans["greedy"] = db.greedy_scan(torus, [0], steps=5760).scan
        with pytest.raises(db.ToleranceError, match="coalescence") as caught:
            db.shortest_scan(torus, [0], tolerance=1e-6)
    scans["shortest"] = caught.value.result.scan
    left = {name: db.coalescence(torus, scan, [0], runs=2000, seed=1).failures for name, scan in scans.items()}
    assert max(left["dogs"], left["greedy"]) < left["systematic"] / 4
    assert left["raw"] >= left["systematic"]
    assert left["shortest"] < left["systematic"]


def test_the_certificate_never_uses_the_scaled_matrix():
    torus = db.Ising.grid(12, 12, couplings=0.32, periodic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", db.VacuousBoundWarning)
        for result in (
            db.greedy_scan(torus, [0], steps=1000),
            db.optimize_scan(torus, db.Scan.systematic(144, 1000), [0]),
        ):
            assert result.variation.value == db.variation(torus, result.scan, [0]).value
    weak = db.Ising.grid(6, 6, couplings=0.2)
    assert db.greedy_scan(weak, [0], steps=100).scan == db.greedy_scan(weak, [0], steps=100, guide=None).scan
    with pytest.raises(db.ArgumentError, match="'guide'"):
        db.shortest_scan(weak, [0], tolerance=0.1, guide="yes")


# -- estimates -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(FAMILIES), st.booleans())
def test_estimates_by_coalescence_contain_the_truth(seed, family, zeros):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=4, zeros=zeros, strength=float(rng.choice([0.3, 1.0])))
    joint = db.Joint(model.labels[3], model.labels[0])
    targets = [*model.labels, joint, db.Statistic.total(model)]
    try:
        found = db.estimate(model, targets, tolerance=0.2, confidence=1 - ALPHA, method="coalescence", seed=seed)
    except db.CertificateError as error:
        found = error.result
        if found is None:
            return
        assert found.half_width.max() > 0.2
    exact = db.estimate(model, targets, method="exact")
    assert (found.lower <= exact.value + 1e-9).all()
    assert (exact.value - 1e-9 <= found.upper).all()


def test_auto_goes_past_dobrushins_condition(monkeypatch):
    for name in ("local", "walks"):
        monkeypatch.setattr(METHODS[name], "in_auto", False)
    frustrated, fields = np.resize([1.0, 1.0, -1.0], 3200), np.resize([0.01, 0.0, -0.01], (40, 40))
    torus = db.Ising.grid(40, 40, couplings=0.3 * frustrated, fields=fields, periodic=True)
    found = db.estimate(torus, [1], tolerance=0.05, seed=1)
    assert found.plan.method == "coalescence"
    assert found.half_width.max() <= 0.05
    assert (found.bias_bound < 0.1).all()
    assert "set bits" in str(found)
    assert "bounding sets" in found.assumptions[0]
    monkeypatch.setattr(METHODS["weights"], "in_auto", False)

    glass = db.Ising.grid(40, 40, couplings=0.6 * frustrated, fields=fields, periodic=True)
    with pytest.raises(db.CertificateError, match="coalescence: ") as caught:
        db.estimate(glass, [0], tolerance=0.05, budget=10**7)
    assert set(caught.value.reasons) == {"dobrushin", "exact", "clusters", "coalescence"}


def test_what_is_certified_is_kept_when_the_rest_is_not():
    """A cold block and a free spin: the free one has its interval."""
    cold = db.Ising({(i, j): 2.0 for i in range(5) for j in range(i)} | {(5, 6): 0.1})
    with pytest.raises(db.CertificateError, match="5 of 7 targets") as caught:
        db.estimate(cold, "all", tolerance=0.1, method="coalescence", budget=3 * 10**6, seed=1)
    found = caught.value.result
    assert (found[5].upper - found[5].lower).max() <= 0.2
    assert (found[0].upper - found[0].lower).max() > 0.2
    for target in (0, 5):
        assert (found[target].lower <= 0.5).all()
        assert (found[target].upper >= 0.5).all()


# -- what a sceptic found ------------------------------------------------------------------------------------------


def test_a_target_that_is_not_updated_yet_is_not_settled():
    apart = db.Ising(np.zeros((2, 2)), fields=[-5.0, 5.0])
    with pytest.raises(db.CoalescenceError):
        db.exact_sample(apart, [0, 1], draws=10, seed=1, max_steps=1)
    states = db.exact_sample(apart, [0, 1], draws=2000, seed=1).states
    assert (states[:, 0] < 0).mean() > 0.99
    assert (states[:, 1] > 0).mean() > 0.99
    table = np.zeros((3, 3))
    table[2, 0] = table[0, 2] = 5.0
    edges = [(0, i) for i in range(1, 42) if i != 20]
    unaries = [np.array([0.0, 0.0, -20.0])] * 42
    unaries[20] = np.log([0.98, 0.01, 0.01])
    star = db.PairwiseMRF(unaries, edges, [table] * len(edges))
    exact = db.exact_sample(star, list(range(42)), draws=2000, seed=1)
    assert fits(np.bincount(exact.states[:, 20], minlength=3), np.array([0.98, 0.01, 0.01]))


def test_many_terms_that_cancel_are_in_the_error():
    large, count, small = 2.0**36, 20_000, 2.0**-18
    factors = [((0, i), [[0.1, 0], [0, 0.1]]) for i in range(1, 8)]
    factors += [((8,), [0.0, 2 * large]), *[((8,), [0.0, 2 * small])] * count, ((8,), [0.0, -2 * large])]
    model = db.FactorGraph([2] * 9, factors)
    with pytest.raises(db.CertificateError, match="rounding"):
        db.exact_sample(model, [8], draws=10, seed=1)
    assert db.coalescence(model, db.Scan([8]), [8], runs=1000, seed=1).update_error > 0.1


def test_too_many_states_are_refused():
    table = np.full(40_000, -50.0)
    tracemalloc.start()
    with pytest.raises(db.ArgumentError, match="at most 32767 states"):
        db.exact_sample(db.FactorGraph([40_000], [((0,), table)]), [0], draws=3)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**28  # no table of pairs is made where there is none


def test_targets_that_hardly_count_and_short_budgets_are_planned():
    tiny = db.Statistic(lambda x: x[:, 0] + 1e-9 * x[:, 1], {0: 2.0, 399: 2e-9}, bounds=(-1.1, 1.1))
    found = db.estimate(db.Ising.grid(20, 20, couplings=0.3), tiny, tolerance=0.3, method="coalescence", seed=1)
    assert found.half_width[0] <= 0.3
    strong = {(i, j): 2.0 for i in range(6) for j in range(i)} | {(i, i + 1): 0.1 for i in range(6, 60, 2)}
    with pytest.raises((db.CertificateError, db.BudgetError)):
        db.estimate(db.Ising(strong), list(range(20)), tolerance=0.1, method="coalescence", budget=5e4, seed=1)


def test_the_span_of_a_statistic_is_planned_for():
    model = db.Ising.grid(6, 6, couplings=0.35, fields=0.3)
    found = db.estimate(model, db.Statistic.total(model), tolerance=0.9, method="coalescence", seed=1)
    assert found.half_width[0] <= 0.9


def test_the_same_sequence_gives_the_same_answer_again():
    model = db.Ising.grid(6, 6, couplings=0.35)
    first = db.estimate(model, [0], tolerance=0.1, method="coalescence", seed=np.random.SeedSequence(5, spawn_key=(1,)))
    again = db.estimate(model, [0], tolerance=0.1, method="coalescence", seed=first.seed)
    np.testing.assert_array_equal(first.value, again.value)
    assert json.loads(first.to_json())["chains"] == first.plan.chains


def test_models_without_any_state_are_refused():
    inf = -np.inf
    none = db.FactorGraph([2] * 3, [((0,), [0, inf]), ((0, 1), [[inf, inf], [0, 0]]), ((2,), [0, 1.0])])
    with pytest.raises(db.ArgumentError, match="allows some joint state"):
        db.exact_sample(none, [2], draws=3)
    with pytest.raises(db.ArgumentError, match="allows some joint state"):
        db.coalescence(none, db.Scan([2]), [2], runs=10)


@pytest.mark.parametrize("draws", [10**10, 10**12, 2**60])
def test_more_exact_draws_than_memory_holds_are_refused(draws):
    with pytest.raises(db.BudgetError, match="states in memory") as caught:
        db.exact_sample(db.Ising.grid(3, 3, couplings=0.1), [0, 1], draws)
    assert caught.value.required == 2 * draws


def test_arrival_times_are_logarithms():
    import decimal

    rng = np.random.default_rng(0)
    numbers = [0, 2**64 - 1, 2**63, 2**11, 2**52, *(int(v) for v in rng.integers(2**64, size=2000, dtype=np.uint64))]
    numbers += [2**64 - 2**k for k in range(11, 60)] + [2**k for k in range(11, 64)]
    worst = 0.0
    with decimal.localcontext(prec=40):
        for number in numbers:
            u = (float(number >> 11) + 0.5) * 2.0**-53
            true = -decimal.Decimal(u).ln()
            found = float(arrival(np.uint64(number)))
            if true == 0:
                assert found == 1e-300
            else:
                worst = max(worst, abs(float(decimal.Decimal(found) / true - 1)))
            time, true = decimal.Decimal(float(logarithm(found))), decimal.Decimal(found).ln()
            worst = max(worst, abs(float(time / true - 1)))
    assert worst < 2.0**-49


@pytest.mark.parametrize("seed", range(10))
def test_sets_of_labels_are_those_of_the_race_of_factors(seed):
    """On random Potts models, with couplings of both signs, forbidden labels and many of them."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 12))
    edges = {(i, j): float(rng.normal()) for i in range(12) for j in range(i) if rng.random() < 0.3}
    unaries = rng.normal(size=(12, states))
    if seed % 2:
        unaries[rng.random(size=(12, states)) < 0.2] = -np.inf
        unaries[:, 0] = 0.0
    model = db.Potts(edges, states, unaries)
    scan = db.Scan.systematic(12, 120)
    form, region = model._region(scan._updates(12))
    results = []
    for name in ("set labels", "set race"):
        assert SET_KERNELS[name].fits(form)
        kernel = SET_KERNELS[name].make(form, region)
        runs = sets.run_sets(model, kernel, scan, list(model.labels), range(100), np.random.SeedSequence(seed), every=5)
        results.append(runs.settled)
        assert (kernel.error < 1e-10).all()
    assert (results[0] == results[1]).all()
    assert (results[0] >= 0).any()


def test_huge_couplings_race_by_logarithms():
    model = db.Potts({(0, 1): 400.0, (1, 2): -300.0}, 3)
    scan = db.Scan.systematic(3, 9)
    assert choose_sets(model, scan).name == "set race"
    assert choose_sets(db.Potts({(0, 1): 4.0, (1, 2): -3.0}, 3), scan).name == "set labels"
