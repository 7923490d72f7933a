"""Partition functions and the probability of evidence: the chain rule against enumeration."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

import dobrushin as db
from dobrushin._estimate import partition
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

CASES = [(family, False) for family in FAMILIES] + [(family, True) for family in FAMILIES_WITH_ZEROS]


def log_sum(model, evidence):
    """The logarithm of the sum over the joint states that agree with the evidence, by enumeration."""
    states = all_states(model)
    kept = np.ones(len(states), dtype=bool)
    for label, state in evidence.items():
        kept &= states[:, model.index(label)] == state
    return logsumexp(model.log_density(states[kept])) if kept.any() else -math.inf


def possible_evidence(model, rng, count):
    """Some states of an allowed joint state."""
    states = all_states(model)
    allowed = states[np.isfinite(model.log_density(states))]
    row = allowed[rng.integers(len(allowed))]
    chosen = rng.choice(model.n_variables, min(count, model.n_variables), replace=False)
    return {model.labels[i]: int(row[i]) for i in chosen.tolist()}


def every_second(chain):
    return np.arange(0, chain.model.n_variables, 2)


@pytest.mark.parametrize(("family", "zeros"), CASES)
@pytest.mark.parametrize("strength", [0.1, 1.0, 5.0])
def test_the_chain_rule_holds_against_enumeration(family, zeros, strength, monkeypatch):
    """Cuts of small models are made up, since sums over all states would do."""
    monkeypatch.setattr(partition._Chain, "cut", lambda chain: chain._left(every_second(chain)))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        model = random_model(rng, family, n=7, zeros=zeros, strength=strength, labels=seed % 2 == 1)
        evidence = possible_evidence(model, rng, 2)
        truth = log_sum(model, evidence)
        slack = 1e-12 * max(1.0, abs(truth))  # of the enumeration
        for given in (evidence, {}):
            found = db.log_partition(model, evidence=given, method="chain", tolerance=1e-3)
            expected = log_sum(model, given)
            assert found.lower - slack <= expected <= found.upper + slack
            assert found.error <= 1e-3
            assert found.method == "chain"
        found = db.log_evidence(model, evidence, method="chain", tolerance=1e-3)
        expected = truth - log_sum(model, {})
        assert found.lower - slack <= expected <= found.upper + slack
        exact = db.log_evidence(model, evidence)
        assert exact.lower - slack <= expected <= exact.upper + slack


@pytest.mark.parametrize(("family", "zeros"), CASES)
def test_weights_hold_against_enumeration(family, zeros, monkeypatch):
    """Mini-buckets of two or three bits split most buckets."""
    monkeypatch.setattr(partition, "_BITS", 2.6)
    missed = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model = random_model(rng, family, n=7, zeros=zeros, strength=0.6)
        evidence = possible_evidence(model, rng, 1)
        for given in (evidence, {}):
            found = db.log_partition(model, evidence=given, method="weights", tolerance=0.1, seed=seed)
            missed += not found.lower - 1e-12 <= log_sum(model, given) <= found.upper + 1e-12
            assert found.error <= 0.1
        found = db.log_evidence(model, evidence, method="weights", tolerance=0.2, seed=seed)
        missed += not found.lower <= log_sum(model, evidence) - log_sum(model, {}) <= found.upper
    assert missed <= 2  # of 18, with probability 0.99 each


def test_a_bound_that_is_too_small_is_caught(monkeypatch):
    """Negative control: log U less by 0.3 moves the interval away from the truth."""
    monkeypatch.setattr(partition, "_BITS", 2.6)
    honest = partition.log_partition_limits

    def too_small(made, *arguments):
        return tuple(end - 0.3 for end in honest(made, *arguments))

    monkeypatch.setattr(partition, "log_partition_limits", too_small)
    model = random_model(np.random.default_rng(3), "ising", n=7, strength=0.6)
    found = db.log_partition(model, method="weights", tolerance=0.1, seed=1)
    assert found.upper < log_sum(model, {})


def test_wide_glasses_are_weighed():
    """Where the first factor of the chain rule is not certain, "auto" takes weights."""
    rng = np.random.default_rng(0)
    edges = [(i, j) for i in range(900) for j in (i + 1, i + 30) if j < 900 and (j == i + 30 or j % 30)]
    glass = db.Ising({edge: float(rng.choice([-0.5, 0.5])) for edge in edges}, rng.normal(size=900) * 0.3)
    found = db.log_partition(glass, tolerance=0.3, seed=1)
    assert found.method == "weights"
    assert found.confidence == 0.99
    assert found.error <= 0.3


def test_error_probabilities_that_cannot_be_split_are_refused(monkeypatch):
    """Rounded, 1 - alpha would be 1 and the error probability of a factor nothing."""
    estimate = partition._Chain._estimate

    def by_draws(chain, label, asked):
        return estimate(chain, label, replace(asked, method="dobrushin", tolerance=0.2))

    monkeypatch.setattr(partition._Chain, "_estimate", by_draws)
    model = db.Ising.grid(3, 3, couplings=0.1, fields=0.1)
    with pytest.raises(db.CertificateError, match="below 1e-12"):
        db.log_evidence(model, {0: 1, 1: 1}, method="chain", tolerance=1.0, confidence=1 - 2e-12, seed=1)
    assert db.log_evidence(model, {0: 1, 1: 1}, method="chain", tolerance=1.0, seed=1).confidence == 0.99


def test_wide_intervals_hold_and_narrow_ones_do_not(monkeypatch):
    """Bounds near the edge: local sums leave intervals of visible width, whose ends are those of the answer."""
    rng = np.random.default_rng(5)
    grid = db.Ising.grid(9, 9, couplings=0.25, fields=rng.normal(size=81) * 0.3)
    exact = db.exact.log_partition(grid)
    monkeypatch.setattr(partition, "_MAX_ENTRIES", 2.0**9)
    for method in ("local", "dobrushin"):
        settings = partition._Chain._estimate

        def by_method(chain, label, asked, method=method, settings=settings):
            return settings(chain, label, replace(asked, method=method))

        with monkeypatch.context() as patch:
            patch.setattr(partition._Chain, "_estimate", by_method)
            found = db.log_partition(grid, method="chain", tolerance=0.5, seed=1)
        assert found.lower <= exact.upper
        assert exact.lower <= found.upper
        assert found.error <= 0.5
        assert found.confidence == (1.0 if method == "local" else 0.99)


def test_probabilities_that_are_too_high_are_caught(monkeypatch):
    """Negative control: factors that are 1 % too large give an interval without the truth."""
    monkeypatch.setattr(partition._Chain, "cut", lambda chain: chain._left(every_second(chain)))
    honest = partition._Chain._factor

    def too_high(*arguments):
        state, low, high = honest(*arguments)
        return state, 1.01 * low, 1.01 * high

    monkeypatch.setattr(partition._Chain, "_factor", too_high)
    model = random_model(np.random.default_rng(2), "ising", n=7)
    found = db.log_partition(model, method="chain", tolerance=1e-3)
    assert found.upper < log_sum(model, {})


def test_evidence_in_a_large_model_takes_a_look_near_it():
    million = db.Ising.grid(1000, 1000, couplings=0.2)
    observed = {500_500: 1, 500_501: 1, 501_500: -1, 0: 1}
    found = db.log_evidence(million, observed, tolerance=1e-3)
    small = db.Ising.grid(17, 17, couplings=0.2)
    near = db.exact.log_partition(small, evidence={144: 1, 145: 1, 161: -1}) - db.exact.log_partition(small)
    assert found.confidence == 1.0
    assert found.error <= 1e-3
    assert float(found) == pytest.approx(near + math.log(0.5), abs=2e-3)


def test_impossible_and_empty_evidence():
    model = db.FactorGraph([2, 2], [((0, 1), [[0.0, -np.inf], [-np.inf, 0.0]])])
    with pytest.raises(db.CertificateError, match=r"the probability of 1 is between 0 and .*; it may be impossible"):
        db.log_evidence(model, {0: 0, 1: 1}, method="chain")
    for method in ("auto", "exact"):
        assert db.log_evidence(model, {0: 0, 1: 1}, method=method) == -math.inf
    for method in ("auto", "exact", "chain"):
        assert db.log_evidence(model, {}, method=method) == pytest.approx(0.0, abs=1e-14)
        assert db.log_evidence(model, {0: 0}, method=method) == pytest.approx(math.log(0.5), abs=1e-12)


def test_everything_observed_or_nothing_allowed():
    grid = db.Ising.grid(2, 2, couplings=0.3, fields=0.1)
    known = {0: 1, 1: 1, 2: -1, 3: 1}
    for method in ("auto", "exact", "chain", "weights"):
        found = db.log_partition(grid, evidence=known, method=method)
        assert found.lower <= log_sum(grid, known) <= found.upper
    torn = db.FactorGraph([2, 2], [((0, 1), np.where(np.eye(2) > 0, 0.0, -np.inf))])
    none = db.log_partition(torn, evidence={0: 0, 1: 1}, method="weights")
    assert (none.lower, none.upper) == (-math.inf, math.nextafter(-math.inf, math.inf))
    empty = db.FactorGraph([2, 2], [((0,), [-np.inf, 0.0]), ((0, 1), [[0.0, 0.0], [-np.inf, -np.inf]])])
    for method in ("exact", "weights"):
        with pytest.raises(db.ArgumentError, match="allows some joint state"):
            db.log_evidence(empty, {1: 0}, method=method)


def test_the_partial_result_for_evidence_is_that_of_its_probability(monkeypatch):
    """Not the sum that was not known well enough."""
    monkeypatch.setattr(partition, "_BITS", 2.0)
    monkeypatch.setattr(partition, "_MAX_TRIES", 10**5)
    model = random_model(np.random.default_rng(1), "ising", n=7, density=1.0, strength=0.5)
    truth = log_sum(model, {0: 1}) - log_sum(model, {})
    with pytest.raises(db.CertificateError, match="the logarithm is known to within") as caught:
        db.log_evidence(model, {0: 1}, method="weights", tolerance=1e-3, seed=1)
    found = caught.value.result
    assert found.lower <= truth <= found.upper
    assert log_sum(model, {}) > found.upper
    assert log_sum(model, {0: 1}) > found.upper


def test_tries_that_all_fail_bound_nothing_from_below(monkeypatch):
    model = db.FactorGraph([2, 2, 2, 2], [((i, j), np.eye(2)) for i in range(4) for j in range(i)])
    monkeypatch.setattr(partition, "_BITS", 2.0)
    draw = partition.draw_weighted
    none = np.empty(0, dtype=np.int64)
    failed = {"numbers": none, "weights": none.astype(float), "states": np.empty((0, 0), dtype=np.int16)}
    monkeypatch.setattr(partition, "_MAX_TRIES", 100)
    monkeypatch.setattr(partition, "draw_weighted", lambda *args: draw(*args)._replace(**failed))
    with pytest.raises(db.CertificateError, match="known to within inf") as caught:
        db.log_partition(model, method="weights", seed=1)
    assert caught.value.result.lower == -math.inf


def test_names_of_states_are_evidence():
    model = db.FactorGraph([2], [((0,), [0.0, math.log(3.0)])], ["rain"], state_names={"rain": ["no", "yes"]})
    for method in ("exact", "chain"):
        assert db.log_evidence(model, {"rain": "yes"}, method=method) == pytest.approx(math.log(0.75))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "magic"}, "'method' argument of dobrushin.log_evidence"),
        ({"tolerance": 0.0}, "'tolerance' argument of dobrushin.log_evidence"),
        ({"confidence": 1.5}, "'confidence' argument of dobrushin.log_evidence"),
        ({"evidence": {0: {-1: 0.5, 1: 1.0}}}, "likelihoods"),
        ({"evidence": {99: 1}}, "99"),
    ],
)
def test_bad_input_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        db.log_evidence(db.Ising.grid(2, 2, couplings=0.1), **{"evidence": {0: 1}, **options})


def test_what_cannot_be_bounded_is_named():
    rng = np.random.default_rng(0)
    edges = [(i, j) for i in range(3600) for j in (i + 1, i + 60) if j < 3600 and (j == i + 60 or j % 60)]
    glass = db.Ising({edge: float(rng.choice([-3.0, 3.0])) for edge in edges})
    with pytest.raises((db.CertificateError, db.BudgetError)):
        db.log_evidence(glass, {1800: 1, 1801: 1}, method="chain", tolerance=1e-4, time_limit=2)
