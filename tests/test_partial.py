"""Partial answers: the best certain intervals of all methods, carried by the error."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import dobrushin as db
from dobrushin._estimate import local, regions
from dobrushin._estimate.local import Local
from dobrushin._estimate.method import Choice, nothing_known
from dobrushin._estimate.partial import intersect
from dobrushin._estimate.query import Workspace, make_query, read_settings

FAMILIES = ["frustrated", "ferromagnet", "potts", "zeros"]


def make(family, rng):
    """Return a small, strongly coupled model."""
    edges = [(i, j) for i in range(9) for j in range(i + 1, 9) if rng.random() < 0.35]
    if family == "frustrated":
        return db.Ising({e: rng.normal(0, 0.8) for e in edges}, fields={i: rng.normal(0, 0.5) for i in range(9)})
    if family == "ferromagnet":
        return db.Ising({e: rng.uniform(0, 0.8) for e in edges}, fields={i: rng.normal(0, 0.5) for i in range(9)})
    if family == "potts":
        return db.Potts({e: rng.uniform(-1, 1) for e in edges}, 3, rng.normal(0, 0.5, (max(map(max, edges)) + 1, 3)))
    tables = [rng.normal(size=(2, 2)) for _ in edges]
    tables[0][0, 0] = -np.inf
    return db.FactorGraph([2] * 9, list(zip(edges, tables, strict=True)))


def partial_of(model, targets, evidence=None):
    """Return the intervals of local sums that are not allowed to be large enough."""
    settings = read_settings(model, 1e-9, 0.99, "auto", None, None)
    query, choice = make_query(model, targets, evidence or {}, settings), Choice()
    with suppress(db.CertificateError):
        Local.propose(query, choice)
    return query, [found for find in choice.so_far if (found := find()) is not None]


@pytest.fixture
def small_sums(monkeypatch):
    monkeypatch.setattr(regions, "_MAX_SUM_CELLS", 2.0**4)
    monkeypatch.setattr(local, "_PILOT_CELLS", 2.0**4)


def violated(family, seed, shrink=1.0):
    """Return whether an interval misses the exact value, and whether one says more than nothing."""
    rng = np.random.default_rng(seed)
    model = make(family, rng)
    last = model.labels[-1]
    evidence = {last: model.states(last)[0]} if seed % 2 else None
    free = [label for label in model.labels if label != last]
    targets = [*free[:3], db.Joint(*free[3:5])]
    query, found = partial_of(model, targets, evidence)
    if not found:
        return False, False
    known = [
        replace(e, lower=e.value - shrink * (e.value - e.lower), upper=e.value + shrink * (e.upper - e.value))
        for e in found
    ]
    answer = intersect(nothing_known(query), known)
    exact = db.estimate(model, targets, evidence=evidence, method="exact").value
    missed = (exact < answer.lower - 1e-12) | (exact > answer.upper + 1e-12)
    return bool(missed.any()), bool((answer.half_width < 0.49).any())


@pytest.mark.usefixtures("small_sums")
@pytest.mark.parametrize("family", FAMILIES)
def test_partial_intervals_contain_the_exact_values(family):
    outcomes = [violated(family, seed) for seed in range(12)]
    assert not any(missed for missed, _ in outcomes)
    assert any(helps for _, helps in outcomes)


@pytest.mark.usefixtures("small_sums")
def test_intervals_that_are_too_narrow_are_caught():
    assert any(violated(family, seed, 0.02)[0] for family in FAMILIES for seed in range(12))


def widths(lower, upper, confidence=1.0, method="local"):
    """Return an answer about one spin with these limits."""
    answer = db.estimate(db.Ising({(0, 1): 0.5}), [0])
    lower, upper = np.array(lower), np.array(upper)
    plan = replace(answer.plan, method=method)
    value = 0.5 * (lower + upper)
    return replace(answer, value=value, lower=lower, upper=upper, confidence=confidence, plan=plan, bias_bound=value)


def test_rows_are_intersected_and_name_their_methods():
    one = widths([0.2, 0.0], [0.9, 1.0], 0.99, "weights")
    two = widths([0.1, 0.3], [0.8, 0.6])
    both = intersect(one, [two])
    assert both.lower.tolist() == [0.2, 0.3]
    assert both.upper.tolist() == [0.8, 0.6]
    assert both.methods == ("weights and local", "local")
    assert both.confidence == 0.99
    assert both.plan.method == "weights"
    assert intersect(one, []) is one


def test_a_certain_interval_wins_where_the_two_do_not_meet():
    both = intersect(widths([0.5, 0.5], [0.6, 0.6], 0.99), [widths([0.1, 0.0], [0.2, 1.0])])
    assert both.lower.tolist() == [0.1, 0.5]
    assert both.upper.tolist() == [0.2, 0.6]


def test_two_answers_with_a_confidence_are_not_intersected():
    one, two = widths([0.0, 0.0], [0.9, 0.9], 0.99), widths([0.2, 0.0], [0.8, 1.0], 0.99)
    with pytest.raises(ValueError, match="only if they are certain"):
        intersect(one, [two])


@pytest.mark.usefixtures("small_sums")
@pytest.mark.parametrize(
    "targets", [[0], [0, db.Joint(1, 2)], [db.Statistic(lambda x: x.mean(1), {0: 1, 5: 1}, (-1, 1))]]
)
def test_the_error_carries_what_local_sums_found(targets, monkeypatch):
    monkeypatch.setattr(Workspace, "candidates", lambda *_: [Local])
    rng = np.random.default_rng(4)
    fields = {i: rng.normal(0, 0.5) for i in range(36)}
    model = db.Ising.grid(6, 6, couplings=0.25, fields=np.array(list(fields.values())).reshape(6, 6))
    with pytest.raises(db.CertificateError, match=r"best intervals, with half-widths .*\(local\)") as caught:
        db.estimate(model, targets, tolerance=1e-8, evidence={35: 1})
    result = caught.value.result
    assert set(result.methods) == {"local"}
    assert result.confidence == 1.0
    exact = db.estimate(model, targets, method="exact", evidence={35: 1}).value
    assert ((result.lower <= exact) & (exact <= result.upper)).all()
    assert (result.half_width < 0.45).all()


@pytest.mark.usefixtures("small_sums")
def test_many_queries_keep_the_partial_result(monkeypatch):
    monkeypatch.setattr(Workspace, "candidates", lambda *_: [Local])
    model = db.Ising.grid(6, 6, couplings=0.25)
    answers = db.estimate_many(model, [([0], {35: 1}), ([1], {35: 1})], tolerance=1e-8)
    assert [error.result.methods[0] for error in answers.errors.values()] == ["local", "local"]
