"""The effect of a region's boundary, bounded by the oscillation of messages along walks."""

import itertools

import numpy as np
import pytest

import dobrushin as db
from dobrushin._exact import walks as messages
from dobrushin._exact.engine import surroundings
from dobrushin._exact.walks import boundary_effect


def random_factors(rng):
    """A random model of tables of up to four variables, weak to very strong, with zeros, ties and loose variables."""
    n = int(rng.integers(2, 7))
    sizes = rng.integers(2, 5 if n < 6 else 4, size=n)
    strength = rng.choice([1e-6, 0.05, 0.2, 0.5, 1.0, 3.0, 30.0])
    factors = []
    for _ in range(rng.integers(1, 9)):
        scope = rng.choice(n, size=min(n, rng.choice([1, 2, 2, 2, 3, 4])), replace=False)
        table = strength * rng.normal(size=sizes[scope])
        if rng.random() < 0.15:
            table[rng.random(table.shape) < 0.2] = -np.inf
        factors.append((tuple(scope.tolist()), table))
    return sizes, factors


def laws_inside(sizes, factors, inside):
    """The laws of the variables inside, as rows, given each state of the others under which one is allowed."""
    logs, n = np.zeros(sizes), len(sizes)
    for scope, table in factors:
        if set(scope) & set(inside.tolist()):
            order = np.argsort(scope)
            logs = logs + table.transpose(order).reshape([sizes[v] if v in scope else 1 for v in range(n)])
    others = [v for v in range(n) if v not in inside]
    logs = logs.transpose([*others, *inside.tolist()]).reshape(-1, int(np.prod(sizes[inside])))
    logs = logs[logs.max(axis=1) > -np.inf]
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).reshape(-1, *sizes[inside])


def largest_distance(laws):
    laws = laws.reshape(len(laws), -1)
    return max((0.5 * np.abs(a - b).sum() for a, b in itertools.combinations(laws, 2)), default=0.0)


def violations(rng, models):
    """Return how many bounds of random regions are violated, and how many say something."""
    violated = useful = 0
    for _ in range(models):
        sizes, factors = random_factors(rng)
        inside = np.sort(rng.choice(len(sizes), size=rng.integers(1, len(sizes) + 1), replace=False))
        laws = laws_inside(sizes, factors, inside)
        if not len(laws):
            continue
        bounds = boundary_effect(surroundings(db.FactorGraph(sizes, factors)._form, inside), np.arange(len(inside)))
        for axis, bound in enumerate(bounds):
            single = laws.sum(axis=tuple(a + 1 for a in range(len(inside)) if a != axis))
            violated += largest_distance(single) > bound + 1e-13
            useful += 0 < bound < 0.5
        violated += largest_distance(laws) > min(1.0, bounds.sum()) + 1e-13
    return violated, useful


def test_no_boundary_moves_a_law_by_more():
    violated, useful = violations(np.random.default_rng(1), 200)
    assert not violated
    assert useful > 50


@pytest.mark.slow
def test_no_boundary_moves_a_law_by_more_in_thousands_of_models():
    violated, useful = violations(np.random.default_rng(2), 3000)
    assert not violated
    assert useful > 500


def test_too_small_a_range_and_a_lost_neighbour_are_caught(monkeypatch):
    ranges, others = messages._double_differences, messages._sums_of_others
    with monkeypatch.context() as context:
        context.setattr(messages, "_double_differences", lambda factors: 0.8 * ranges(factors))
        assert violations(np.random.default_rng(3), 150)[0] > 0
    with monkeypatch.context() as context:
        context.setattr(messages, "_sums_of_others", lambda values, group: 0.5 * others(values, group))
        assert violations(np.random.default_rng(3), 150)[0] > 0


def test_a_message_through_a_table_is_that_of_two_states():
    ranges, x = (
        np.array([0.1, 2.0, 30.0, 1e-9, np.inf, np.inf, 3.0, 0.0]),
        np.array([0.3, 5.0, 1.0, 1e-9, 2.0, np.inf, np.inf, 4.0]),
    )
    found = messages._passed(ranges, x)
    with np.errstate(divide="ignore"):
        expected = 4 * np.arctanh(np.tanh(ranges / 4) * np.tanh(x / 4))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert (found[:4] >= expected[:4]).all()


def test_sums_of_others_may_be_infinite():
    values, group = np.array([1.0, np.inf, 2.0, 3.0, np.inf]), np.array([0, 0, 0, 1, 2])
    found = messages._sums_of_others(values, group)
    np.testing.assert_allclose(found, [np.inf, 3.0, np.inf, 0.0, 0.0], atol=1e-11)


@pytest.mark.parametrize("kind", ["glass", "potts"])
def test_sums_near_the_targets_reach_beyond_dobrushins_condition(kind):
    rng = np.random.default_rng(5)
    if kind == "glass":
        model, targets = db.Ising.grid(12, 12, couplings=0.28 * rng.choice([-1.0, 1.0], size=264)), [66, db.Joint(0, 1)]
    else:
        edges = [(7 * r + c, 7 * r + c + step) for r in range(7) for c in range(7) for step in (1, 7)]
        edges = [(a, b) for a, b in edges if b < 49 and (b - a == 7 or b % 7)]
        model, targets = db.Potts(dict.fromkeys(edges, 0.6), 3, 0.1 * rng.normal(size=(49, 3))), [24, db.Joint(0, 1)]
    exact = db.estimate(model, targets, method="exact").value
    found = db.estimate(model, targets, method="local", tolerance=0.2)
    assert "messages along walks" in " ".join(found.assumptions)
    assert ((found.lower <= exact) & (exact <= found.upper)).all()
