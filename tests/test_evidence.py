"""The probability of the evidence, beside exact answers, against enumeration."""

import json
import math

import numpy as np
import pytest

import dobrushin as db
import models
from dobrushin._estimate import exact
from dobrushin._models import derived
from test_relevance import random_network, random_question


def probability(model, evidence):
    """P(evidence) by enumeration."""
    joint = db.exact.distribution(model)
    for v, state in evidence.items():
        joint = joint.take([model.states(v).index(state)], axis=v)
    return float(joint.sum())


def log_weight(model):
    """Logarithm of the sum of all unnormalised probabilities, by enumeration."""
    with np.errstate(divide="ignore"):
        return float(np.logaddexp.reduce(model.log_density(models.all_states(model))))


@pytest.mark.parametrize("seed", range(40))
def test_networks_are_summed_without_what_is_barren(seed):
    rng = np.random.default_rng(seed)
    model, _ = random_network(rng, int(rng.integers(1, 7)), zeros=seed % 2 == 1)
    evidence, targets = random_question(rng, model)
    z = db.exact.log_partition(model)
    assert abs(z) <= z.error < 1e-10
    share = probability(model, evidence)
    found = db.exact.log_partition(model, evidence=evidence)
    assert abs(found - math.log(share)) <= found.error + 1e-12
    if evidence:
        answer = db.estimate(model, targets, evidence=evidence, method="exact")
        assert abs(answer.log_evidence - math.log(share)) <= answer.log_evidence.error + 1e-12
        assert "P(evidence) = " in str(answer)


@pytest.mark.parametrize("family", models.FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_any_family(family, seed):
    rng = np.random.default_rng([seed, 7])
    model = models.random_model(rng, family, strength=1.5)
    z = db.exact.log_partition(model)
    assert abs(z - log_weight(model)) <= z.error + 1e-11
    states = models.all_states(model)
    state = states[rng.integers(len(states))]
    evidence = {v: int(state[v]) for v in rng.permutation(model.n_variables)[1:3].tolist()}
    if probability(model, evidence) == 0.0 or len(evidence) == model.n_variables:
        return
    target = next(v for v in range(model.n_variables) if v not in evidence)
    answer = db.estimate(model, [model.labels[target]], evidence={model.labels[v]: s for v, s in evidence.items()})
    if answer.plan.method == "exact":
        assert abs(answer.log_evidence - math.log(probability(model, evidence))) <= answer.log_evidence.error + 1e-12
        assert json.loads(answer.to_json())["log_evidence"] == answer.log_evidence


def test_a_wrong_sum_of_what_is_barren_is_seen(monkeypatch):
    """Negative control: the largest term instead of the sum."""
    monkeypatch.setattr("dobrushin._models.factors.log_sum", lambda table, _axis: float(table.max()))
    model, _ = random_network(np.random.default_rng(3), 5)
    z = db.exact.log_partition(model)
    assert abs(z) > z.error


def test_what_is_left_out():
    grid = db.Ising.grid(4, 4, couplings=0.3)
    assert db.estimate(grid, [0], method="exact").log_evidence is None  # no evidence
    sampled = db.estimate(grid, [0], evidence={1: 1}, method="coalescence", tolerance=0.2, seed=1)
    assert sampled.log_evidence is None
    exact = db.estimate(grid, [0], evidence={1: 1}, method="exact")
    assert exact.log_evidence == pytest.approx(math.log(0.5), abs=1e-12)


def test_it_is_left_out_where_it_would_take_longer_than_the_answer(monkeypatch):
    monkeypatch.setattr(exact, "_SECONDS_TO_WEIGH", 0.0)
    monkeypatch.setattr(exact, "_SHARE_TO_WEIGH", 0.0)
    answer = db.estimate(db.Ising.grid(4, 4, couplings=0.3), [0], evidence={1: 1}, method="exact")
    assert answer.log_evidence is None


def test_improbable_evidence_is_said_in_logarithms():
    fields = np.full(500, 2.0)
    model = db.Ising({(0, 1): 0.5}, fields)
    answer = db.estimate(model, [0], evidence=dict.fromkeys(range(1, 500), -1), method="exact")
    assert "log P(evidence) = -20" in str(answer)
    assert answer.log_evidence == pytest.approx(-499 * math.log1p(math.exp(4.0)), rel=0.01)


def test_sums_with_terms_of_zero():
    table = np.array([[0.0, -np.inf], [-np.inf, 0.0], [-np.inf, 0.0]])
    assert derived.log_sum(table, 1) == 0.0
    assert derived.log_sum(np.log([[1.0, 1.0], [2.0, 2.0]]), 0) == pytest.approx(math.log(3))
