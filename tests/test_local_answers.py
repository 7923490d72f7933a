"""Local exact answers: sums over a region, with a bound on what is outside, against enumeration."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dobrushin as db
import reference
from dobrushin._estimate import exact as exact_room
from dobrushin._estimate import local, regions
from dobrushin._estimate.correlations import favoured_states, laws_between
from dobrushin._estimate.dobrushin import Dobrushin
from dobrushin._estimate.exact import Exact
from dobrushin._estimate.local import Local
from dobrushin._estimate.method import METHODS, Choice
from dobrushin._estimate.query import DERIVED, make_query, read_settings
from dobrushin._estimate.regions import TargetRegion, WantedLaw
from dobrushin._exact.engine import pair_signs, sum_region, surroundings
from dobrushin._exact.order import find_region_order
from dobrushin._models.memory import Memory
from dobrushin._optimize.greedy import Ball, Reach
from dobrushin._shared.arrays import frozen
from models import FAMILIES, FAMILIES_WITH_ZEROS, random_model

SETTINGS = read_settings(db.Ising({(0, 1): 0.1}), 0.01, 0.99, "local", None, None)


def ball_of(model, inside):
    """Any set of variables as a region."""
    inside = np.sort(np.asarray(inside))
    rows = [[int(np.searchsorted(inside, j)) for j in model.neighbors(i) if j in inside] for i in inside.tolist()]
    start = np.cumsum([0, *map(len, rows)])
    border = sorted({int(j) for i in inside.tolist() for j in model.neighbors(i)} - set(inside.tolist()))
    neighbor = np.array([j for row in rows for j in row], dtype=np.int64)
    outwards = np.arange(len(inside))
    return Ball(inside, outwards, frozen(start), frozen(neighbor), np.array(border, dtype=np.int64))


def region_of(model, inside, kept, by_extremes):
    """A region of a model, whatever its shape."""
    query = make_query(model, [model.labels[int(i)] for i in kept], {}, SETTINGS)
    wanted = WantedLaw(np.asarray(kept), np.ones(len(kept)))
    return TargetRegion(query, wanted, ball_of(model, inside), by_extremes)


def random_subset(rng, n):
    """Some of n variables, and up to three of them in any order."""
    inside = np.sort(rng.choice(n, size=rng.integers(1, n + 1), replace=False))
    return inside, rng.choice(inside, size=rng.integers(1, min(3, len(inside)) + 1), replace=False)


def inside_law(model, inside, digits, kept):
    """Law of some variables, the others of the model fixed, by enumeration; None where no state is allowed."""
    tables = model._form.tables()
    sizes = tables.cardinalities
    states = np.array(list(itertools.product(*(range(sizes[i]) for i in inside))))
    full = np.tile(digits, (len(states), 1))
    full[:, inside] = states
    total = np.zeros(len(states))
    for scope, table in map(tables.factor, range(tables.n_factors)):
        if set(scope) & set(inside.tolist()):
            total += table[tuple(full[:, v] for v in scope)]
    if total.max() == -np.inf:
        return None
    law = np.zeros([sizes[i] for i in kept])
    np.add.at(law, tuple(full[:, i] for i in kept), np.exp(total - total.max()))
    return (law / law.sum()).ravel()


def model_law(model, kept):
    """Joint law of some variables in the order given, by enumeration."""
    law = db.exact.distribution(model)
    others = tuple(i for i in range(model.n_variables) if i not in kept)
    return law.sum(axis=others).transpose(np.argsort(np.argsort(kept))).ravel()


def ferromagnet(rng, n, strength=1.0, fields=1.0, flips=True):
    """A random Ising model that some names make attractive."""
    couplings = np.triu(strength * rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.5), 1)
    names = rng.choice([-1, 1], size=n) if flips else np.ones(n)
    couplings = (couplings + couplings.T) * names * names[:, None]
    return db.Ising(couplings, fields * rng.normal(size=n))


def sum_over(factors, ball, group):
    """The law of some variables by number, all others of a region summed out."""
    order = find_region_order(ball.start, ball.neighbor, factors.sizes, group, np.arange(len(ball.positions)), 1e12)
    laws = sum_region([factors], order, group, Memory())
    return None if laws is None else laws[0]


# -- sums inside a region ----------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("zeros", [False, True])
def test_a_sum_over_a_region_is_that_of_enumeration(family, zeros):
    rng = np.random.default_rng(5)
    empty = 0
    for _ in range(60):
        model = random_model(rng, family, zeros=zeros, max_states=4, strength=rng.choice([0.1, 1.0, 5.0]))
        inside, kept = random_subset(rng, model.n_variables)
        around, digits = surroundings(model._form, inside), rng.integers(model.cardinalities)
        [factors], ball = around.fix([digits[around.border]]), ball_of(model, inside)
        law, true = sum_over(factors, ball, np.searchsorted(inside, kept)), inside_law(model, inside, digits, kept)
        if true is None:
            assert law is None
            empty += 1
            continue
        assert law.error < 1e-11
        assert (np.abs(law.probabilities - true) <= law.probabilities * law.error + 1e-14).all()
    assert empty > 0 or not zeros or family not in ("pairwise", "factors")


@pytest.mark.parametrize("family", FAMILIES)
def test_tables_are_cut_at_the_states_outside(family):
    rng = np.random.default_rng(6)
    for _ in range(40):
        model = random_model(rng, family, max_states=4)
        inside, _ = random_subset(rng, model.n_variables)
        around, digits = surroundings(model._form, inside), rng.integers(model.cardinalities)
        whole, [cut] = around.factors, around.fix([digits[around.border]])
        own = digits[around.numbering.positions]
        assert cut.n_factors == whole.n_factors
        for k in range(whole.n_factors):
            (scope, table), (left, found) = whole.factor(k), cut.factor(k)
            scope, left = list(scope), list(left)
            free = around.inside[scope]
            np.testing.assert_array_equal(inside[left], around.numbering.positions[scope][free])
            np.testing.assert_array_equal(found, reference.cut_table(table, free, own[scope]))


def test_underflow_is_never_passed_over_in_silence():
    # Largest entries 1, and a product that needs more than the range of doubles: the sum alone would say 1.
    a, b, c = math.log(1e-165), math.log(1e-165), math.log(1e-170)
    tables = [((0,), [a, 0.0]), ((0,), [a, 0.0]), ((0, 1), [[0.0, -np.inf], [-np.inf, b]]), ((1,), [0.0, c])]
    model = db.FactorGraph([2, 2], tables)
    [factors] = surroundings(model._form, np.arange(2)).fix([np.empty(0, dtype=np.int64)])
    ball = ball_of(model, np.arange(2))
    law = sum_over(factors, ball, np.array([1]))
    true = db.exact.marginals(model)[1]
    assert np.abs(law.probabilities - true).max() <= law.error + law.loss < 1e-9
    long = db.PairwiseMRF(np.zeros((1200, 2)), [(i, i + 1) for i in range(1199)], np.array([[0.0, -3.0], [-3.0, 0.0]]))
    [factors] = surroundings(long._form, np.arange(1200)).fix([np.empty(0, dtype=np.int64)])
    ball = ball_of(long, np.arange(1200))
    law = sum_over(factors, ball, np.array([600]))
    assert law.error < 1e-10
    assert abs(law.probabilities[0] - 0.5) < 1e-10


# -- what is outside ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_dobrushins_bound_holds_for_random_regions(family):
    rng = np.random.default_rng(7)
    checks = useful = 0
    for trial in range(120):
        zeros = trial % 2 == 1 and family in FAMILIES_WITH_ZEROS
        model = random_model(rng, family, zeros=zeros, strength=rng.choice([0.15, 0.4, 1.0]), max_states=4)
        inside, kept = random_subset(rng, model.n_variables)
        region = region_of(model, inside, kept, by_extremes=False)
        (law,) = region.laws
        bounds, true = region.disagreement, model_law(model, kept)
        distance = 0.5 * np.abs(law.probabilities - true).sum()
        assert distance <= min(1.0, bounds.sum()) + 1e-12
        shape = model.cardinalities[kept]
        for axis, bound in enumerate(bounds):
            others = tuple(k for k in range(len(kept)) if k != axis)
            single = np.abs((law.probabilities - true).reshape(shape).sum(axis=others)).sum() / 2
            assert single <= bound + 1e-12
            checks += 1
        useful += bool(0 < bounds.max() < 0.5)
    assert checks > 150
    assert useful > 10


def test_a_bound_with_too_small_an_influence_fails(monkeypatch):
    rng = np.random.default_rng(7)
    real = regions.evaluate

    def weaker(source, scan, objective):
        return real(db.Influence(0.5 * source.whole.matrix), scan, objective)

    monkeypatch.setattr(regions, "evaluate", weaker)
    failures = 0
    for _ in range(200):
        model = random_model(rng, "ising", strength=0.4, n=5)
        inside, kept = random_subset(rng, 5)
        region = region_of(model, inside, kept[:1], by_extremes=False)
        distance = 0.5 * np.abs(region.laws[0].probabilities - model_law(model, kept[:1])).sum()
        failures += bool(distance > region.disagreement[0] + 1e-12)
    assert failures > 0


@pytest.mark.parametrize("strength", [0.1, 0.5, 2.0])
def test_extreme_boundaries_hold_at_all_temperatures_and_after_flips(strength):
    rng = np.random.default_rng(11)
    wide = 0
    for _ in range(150):
        model = ferromagnet(rng, int(rng.integers(2, 7)), strength)
        inside, kept = random_subset(rng, model.n_variables)
        region = region_of(model, inside, kept, by_extremes=True)
        laws = region.laws
        assert region.around.extremes is not None
        value = 0.5 * (laws[0].probabilities + laws[-1].probabilities)
        true, bounds = model_law(model, kept), region.disagreement
        assert np.abs(value - true).max() <= min(1.0, bounds.sum()) + 1e-12  # every joint probability
        shape = (2,) * len(kept)
        for axis, bound in enumerate(bounds):
            others = tuple(k for k in range(len(kept)) if k != axis)
            assert np.abs((value - true).reshape(shape).sum(axis=others)).max() <= bound + 1e-12
        wide += bool(bounds.max() > 1e-6)
    assert wide > 30


def test_boundaries_that_are_not_extreme_fail():
    rng = np.random.default_rng(3)
    failures = 0
    for _ in range(100):
        model = ferromagnet(rng, 5, 0.7)
        inside, kept = random_subset(rng, 5)
        around = surroundings(model._form, inside)
        if not len(around.border):
            continue
        mixed = rng.integers(0, 2, size=(2, 5))
        ends = [inside_law(model, inside, digits, kept[:1])[1] for digits in mixed]
        true = model_law(model, kept[:1])[1]
        failures += not min(ends) - 1e-12 <= true <= max(ends) + 1e-12
    assert failures > 0


def test_joint_probabilities_under_the_extremes_are_no_interval():
    # Two spins, each tied to a spin of its own outside: both extremes agree about (+, -), and are wrong.
    # (Fields that disagree, so that the model is no ferromagnet as a whole.)
    model = db.Ising({(0, 1): 0.3, (0, 2): 0.8, (1, 3): 0.8}, fields=[0, 0, 1e-9, -1e-9])
    region = region_of(model, [0, 1], np.array([0, 1]), by_extremes=True)
    low, high = (law.probabilities.reshape(2, 2)[1, 0] for law in region.laws)
    apart = db.exact.distribution(model.condition({2: 1, 3: -1}))[1, 0]
    assert round(low, 3) == round(high, 3) == 0.088
    assert round(apart, 3) == 0.563
    assert region.disagreement.sum() >= apart - low
    # Fields outside make (+, -) likely: the interval of the answer holds the truth, that of the extremes does not.
    tilted = db.Ising({(0, 1): 0.3, (0, 2): 0.8, (1, 3): 0.8}, fields=[0, 0, 2.0, -2.0])
    region = region_of(tilted, [0, 1], np.array([0, 1]), by_extremes=True)
    true = model_law(tilted, np.array([0, 1]))
    values = [law.probabilities for law in region.laws]
    assert true[2] > max(value[2] for value in values) + 0.3
    assert np.abs(0.5 * (values[0] + values[1]) - true).max() <= region.disagreement.sum()


def test_what_is_attractive_is_decided_without_rounding():
    tables = np.array(
        [[0.1, 0.2, 0.3, 0.4], [0.3, 0.1, 0.2, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -np.inf, 0.0, 0.0], [-np.inf] * 4]
    )
    exact = [sum(map(Fraction, row[[0, 3]].tolist())) - sum(map(Fraction, row[[1, 2]].tolist())) for row in tables[:3]]
    assert pair_signs(tables).tolist() == [*((x > 0) - (x < 0) for x in exact), 1, 0]
    assert (0.1 + 0.4) - (0.2 + 0.3) == 0 != exact[0]


def test_frustration_far_away_does_not_matter_and_nearby_it_does():
    couplings = {(0, 1): 0.2, (1, 2): 0.3, (2, 3): 0.3, (3, 4): 0.4, (2, 4): -0.5}
    model = db.Ising(couplings)
    assert surroundings(model._form, np.array([0, 1])).extremes is not None
    assert surroundings(model._form, np.array([0, 1, 2, 3])).extremes is None
    assert surroundings(db.Potts({(0, 1): 0.3}, states=3)._form, np.array([0])).extremes is None


def test_extremes_that_are_forbidden_are_not_used():
    hard = np.array([[0.0, 0.0], [-np.inf, 0.0]])  # not 1 before 0
    unaries = [[0.0, 0.0], [0.3, -np.inf], [0.0, 0.2]]
    model = db.PairwiseMRF(unaries, [(0, 1), (1, 2)], [hard, hard])
    answer = db.estimate(model, [0], method="local", tolerance=0.01)
    assert answer.lower[0] <= db.exact.marginals(model)[0][0] <= answer.upper[0]
    # x_0 = x_1 = x_2 in all, but the two ends have only one state each: neither extreme is allowed.
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    stuck = db.FactorGraph([2, 2, 2], [((0, 1), equal), ((1, 2), equal), ((1,), [0.0, -np.inf])])
    region = region_of(stuck, [1], np.array([1]), by_extremes=True)
    assert region.laws is None
    assert db.estimate(stuck, [1], method="local").value.tolist() == [1.0, 0.0]


def test_a_boundary_needs_no_state_of_the_rest_that_goes_with_it():
    # The bound is between any two boundaries with which the region has a state, possible under the model or not.
    rng = np.random.default_rng(4)
    checked = 0
    for _ in range(150):
        model = random_model(rng, "factors", n=5, zeros=True, strength=0.3)
        inside, kept = random_subset(rng, 5)
        region = region_of(model, inside, kept[:1], by_extremes=False)
        digits = rng.integers(model.cardinalities)
        law = inside_law(model, inside, digits, kept[:1])
        if law is not None:
            assert 0.5 * np.abs(law - model_law(model, kept[:1])).sum() <= region.disagreement[0] + 1e-12
            checked += 1
    assert checked > 50


def test_zero_influence_from_outside_is_not_taken_for_independence():
    # x_0 = x_1 always, so neither can move alone, and no conditional sees x_2: yet x_2 decides between 00 and 11.
    table = np.full((2, 2, 2), -np.inf)
    table[0, 0] = [2.0, -2.0]
    table[1, 1] = [-2.0, 2.0]
    model = db.FactorGraph([2, 2, 2], [((0, 1, 2), table), ((2,), [0.0, 1.0])])
    region = region_of(model, [0, 1], np.array([0]), by_extremes=False)
    assert region.disagreement[0] == 1
    answer = db.estimate(model, [0], method="local", tolerance=0.01)
    assert answer.lower[0] <= db.exact.marginals(model)[0][0] <= answer.upper[0]


# -- regions -----------------------------------------------------------------------------------


def test_regions_grow_by_the_best_paths_and_hold_their_targets():
    model = db.Ising.grid(50, 50, couplings=0.2)
    reach = Reach(db.influence(model), np.array([1275, 1277]))
    sizes = [reach.grow(size) for size in (1, 3, 12, 40)]
    balls = [reach.ball(size) for size in sizes]
    assert balls[0].positions.tolist() == [1275, 1277]
    for smaller, larger in itertools.pairwise(balls):
        assert set(smaller.positions) < set(larger.positions)
        assert set(smaller.border) & set(larger.positions)
    assert reach.grow(10**6, most=60) == 60
    chain = Reach(db.influence(db.Ising({(0, 1): 50.0, (1, 2): 0.5}, fields=[0, 0, 0, 0])), np.array([2, 0]))
    assert chain.ball(chain.grow(2)).positions.tolist() == [0, 2]
    assert chain.grow(100) == 3  # the fourth variable has no influence
    assert not len(chain.ball(3).border)


def test_orders_hold_targets_together_and_give_up_where_a_sum_is_too_large():
    model = db.Ising.grid(12, 12, couplings=0.2)
    ball, states, ties = ball_of(model, np.arange(144)), np.full(144, 2), np.arange(144)
    order = find_region_order(ball.start, ball.neighbor, states, np.array([70, 7]), ties, 1e9)
    assert sorted(order.variables) == list(range(144))
    assert order.bits <= 18
    assert find_region_order(ball.start, ball.neighbor, states, np.array([70]), ties, 1000) is None


# -- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_hold_on_random_models_with_evidence_and_several_components(family):
    rng = np.random.default_rng(13)
    reached = 0
    for trial in range(40):
        zeros = trial % 2 == 1 and family in FAMILIES_WITH_ZEROS
        model = random_model(rng, family, n=6, zeros=zeros, strength=0.3, max_states=4, density=0.35)
        known = int(rng.integers(6))
        state = db.exact.distribution(model)
        state = np.unravel_index(int(state.argmax()), state.shape)[known]
        evidence = {known: model.states(known)[int(state)]} if trial % 3 else {}
        free = [i for i in range(6) if i not in evidence]
        pair = db.Joint(*rng.choice(free, size=2, replace=False).tolist())
        spread = db.Statistic(lambda x: x.sum(axis=1), dict.fromkeys(free[:3], 4.0), (-20.0, 20.0))
        targets = [*free[:2], pair, spread]
        tolerance = float(rng.choice([0.003, 0.1]))
        try:
            answer = db.estimate(model, targets, method="local", tolerance=tolerance, evidence=evidence)
            assert answer.half_width.max() <= tolerance
            reached += 1
        except db.CertificateError as error:
            answer = error.result
        exact = db.estimate(model, targets, method="exact", tolerance=1e-6, evidence=evidence)
        assert (answer.lower <= exact.value + 1e-9).all()
        assert (exact.value - 1e-9 <= answer.upper).all()
        assert answer.confidence == 1
        assert (np.abs(answer.value - exact.value) <= answer.bias_bound + 1e-9).all()
    assert reached > 20


def test_answers_on_a_model_that_is_never_made_are_those_of_the_whole():
    whole = db.Ising.grid(60, 60, couplings=0.2, fields=0.05)
    local = db.Ising.grid(60, 60, couplings=lambda edges: np.full(len(edges), 0.2), fields=0.05)
    for targets, evidence in (([1830], None), ([0, db.Joint(1830, 1831)], {1829: 1})):
        answers = [
            db.estimate(model, targets, method="local", tolerance=1e-3, evidence=evidence) for model in (whole, local)
        ]
        np.testing.assert_allclose(answers[0].value, answers[1].value, rtol=0, atol=1e-12)
        assert max(answer.half_width.max() for answer in answers) <= 1e-3
    billion = db.Ising.grid(31623, 31623, couplings=0.2)
    answer = db.estimate(billion, [500_000_000], method="local", tolerance=1e-4)
    assert answer.lower[0] <= 0.5 <= answer.upper[0]
    assert answer.half_width.max() <= 1e-4
    potts = db.Potts.grid(10**5, 10**5, states=3, couplings=0.3)
    answer = db.estimate(potts, [5 * 10**9 + 5], method="local", tolerance=0.01)
    assert (np.abs(answer.value - 1 / 3) <= answer.bias_bound).all()


def test_small_tolerances_agree_with_clique_trees():
    rng = np.random.default_rng(1)
    signs = rng.choice([-1, 1], size=2 * 12 * 11)
    for couplings in (0.25, 0.2 * signs):
        grid = db.Ising.grid(12, 12, couplings=couplings, fields=rng.normal(size=(12, 12)) * 0.3)
        exact = db.exact.marginals(grid)
        for target in (0, 66, 143):
            answer = db.estimate(grid, [target], method="local", tolerance=1e-3)
            assert np.abs(answer.value - exact[target]).max() <= answer.bias_bound.max() <= 1e-3


def test_an_answer_that_is_too_wide_carries_its_intervals():
    cold = db.Ising.grid(60, 60, couplings=0.6)
    with pytest.raises(db.CertificateError, match="local: sums over regions of up to") as caught:
        db.estimate(cold, [1800], method="local", tolerance=0.01)
    reached = caught.value.result
    assert reached.lower[0] <= 0.5 <= reached.upper[0]
    assert reached.half_width.max() > 0.01
    assert not db.plan(cold, [1800], method="local").reaches_tolerance
    glass = db.Ising.grid(40, 40, couplings=np.random.default_rng(0).choice([-1, 1], size=2 * 40 * 39) * 1.0)
    with pytest.raises(db.CertificateError) as caught:
        db.estimate(glass, [800], method="local")
    assert caught.value.result.half_width.max() <= 0.5


def test_auto_says_how_far_regions_came():
    dense = np.random.default_rng(0).normal(size=(60, 60))
    glass = db.Ising(np.triu(dense, 1) + np.triu(dense, 1).T, fields=0.1)  # no flip leaves it unchanged
    with pytest.raises(db.CertificateError, match=r"local: .* (boundary effect|take about|too large)") as no:
        db.estimate(glass, [0], budget=1000)
    assert "local" in no.value.reasons


def test_a_joint_law_of_too_many_states_is_refused():
    grid = db.Ising.grid(30, 30, couplings=0.1)
    mean = db.Statistic(lambda x: x.mean(axis=1), dict.fromkeys(range(20), 0.1), (-1.0, 1.0))
    with pytest.raises(db.CertificateError, match=r"depends on 1\.05e\+06 joint states"):
        db.estimate(grid, mean, method="local")


def test_impossible_evidence_is_said():
    equal = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    model = db.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (1, 2)], [equal, equal])
    with pytest.raises(db.ArgumentError, match="possible"):
        db.estimate(model, [1], method="local", evidence={0: 0, 2: 1})


def test_auto_takes_sums_where_they_cost_no_more():
    grid = db.Ising.grid(1000, 1000, couplings=0.2, fields=0.01)
    assert db.plan(grid, [500_500], tolerance=1e-4).method == "local"
    plan = db.plan(grid, [500_500])
    assert (plan.method, plan.is_certain, plan.scan) == ("local", True, None)
    torus = db.Ising.grid(40, 40, couplings=0.3, fields=1e-4, periodic=True)
    answer = db.estimate(torus, [0])
    assert answer.plan.method == "local"
    assert answer.lower[0] <= 0.5 <= answer.upper[0]


def test_a_plan_that_was_too_hopeful_gives_way_to_its_rival(monkeypatch):
    grid = db.Ising.grid(100, 100, couplings=0.2, fields=0.01)

    def look(self, cells):
        del cells
        self._take(self._region(0.5))
        self.next = self.best

    monkeypatch.setattr(regions.Growth, "look", look)
    answer = db.estimate(grid, [5050], tolerance=0.02, seed=1)
    assert answer.plan.method == "dobrushin"


def test_a_time_limit_gives_what_was_reached():
    grid = db.Ising.grid(60, 60, couplings=0.42)
    answer = db.estimate(grid, [1830], method="local", tolerance=1e-3, time_limit=1e-3)
    assert answer.stopped_by == "the time limit"
    assert answer.lower[0] <= 0.5 <= answer.upper[0]


def test_very_many_targets_are_planned_from_some_of_them():
    grid = db.Ising.grid(12, 12, couplings=0.15, fields=0.1)
    answer = db.estimate(grid, "all", method="local", tolerance=0.02)
    exact = np.concatenate(db.exact.marginals(grid))
    assert (np.abs(answer.value - exact) <= answer.bias_bound + 1e-12).all()
    assert answer.half_width.max() <= 0.02


def test_what_an_answer_rests_on_is_said(tmp_path):
    answer = db.estimate(db.Ising.grid(60, 60, couplings=0.2), [1830], method="local", tolerance=1e-3)
    assert "extreme boundary states" in answer.assumptions[1]
    answer.report(tmp_path / "page.html")
    assert "with the variables on its boundary fixed" in (tmp_path / "page.html").read_text()
    mixed = db.Ising.grid(60, 60, couplings=np.where(np.arange(7080) % 3, 0.1, -0.1))
    answer = db.estimate(mixed, [1830], method="local", tolerance=1e-2)
    assert "Dobrushin's bound" in answer.assumptions[1]
    assert "bounded by Dobrushin's bound" in str(answer.plan)


def test_limits_that_hold_for_every_model_are_not_rounded_inwards():
    a, b = 246.9783218244797, 625.5080216656065
    model = db.FactorGraph([2], [((0,), [2e11, 0.0]), ((0,), [0.0, 1e11])])
    statistic = db.Statistic(lambda x: np.where(x[:, 0] == 0, a, b), {0: b - a}, (a, b))
    try:
        answer = db.estimate(model, statistic, method="local", tolerance=0.5)
    except db.CertificateError as error:
        answer = error.result
    assert answer.lower[0] <= a


def test_auto_asks_nobody_else_once_a_certain_answer_costs_less(monkeypatch):
    """Sums near the targets of a wide model, and a junction tree of a small one, are taken before others are asked."""
    rng = np.random.default_rng(0)
    wide = db.Ising.grid(30, 30, couplings=rng.uniform(0, 0.25, 2 * 30 * 29))
    cold = db.Ising.grid(8, 8, couplings=0.6, fields=0.01)
    asked = []
    for method in (Dobrushin, Local, Exact):

        def propose(cls, query, choice, known=method.propose.__func__):
            asked.append(cls.name)
            return known(cls, query, choice)

        monkeypatch.setattr(method, "propose", classmethod(propose))
    monkeypatch.setattr("dobrushin._estimate.exact._plan_for", noted(exact_room._plan_for, asked, "junction tree"))
    answer = db.estimate(wide, [0], tolerance=0.05)
    assert answer.plan.method == "local"
    assert answer.lower[0] <= 0.5 <= answer.upper[0]
    assert asked == ["local"]
    for targets in ([0], list(range(5)), "all"):
        asked.clear()
        answer = db.estimate(cold, targets, tolerance=0.05)
        assert answer.plan.method == "exact"
        assert asked[:2] == ["exact", "junction tree"]
        assert set(asked) == {"exact", "junction tree"}
    for method in (Local, Exact):  # none has a quick answer: they are asked in turn
        monkeypatch.setattr(method, "asking_seconds", classmethod(lambda _, query, quickly: None if quickly else 0.0))  # noqa: ARG005
    asked.clear()
    assert db.estimate(cold, [0], tolerance=0.05).plan.method == "local"
    assert asked == ["dobrushin", "local"]


def test_sums_on_a_ball_are_bounded_by_what_was_planned_there():
    """Whether or not somebody asks which variables are updated: an answer may not grow beyond the ball's border."""
    ball = db.Ising.grid(10**5, 10**5, couplings=0.2)._near(np.array([5 * 10**9]), 8)
    border = ~ball.inner[ball.numbering.own(np.array(ball.model.labels))]
    query = replace(make_query(ball.model, [5 * 10**9], {}, SETTINGS), border=border)
    method = Local.propose(query, Choice())
    limits = [growth.limit for growth in method.growths]
    assert max(limits) < ball.model.n_variables
    first = method.updated()
    assert len(first) == limits[0]
    assert (first == method.updated()).all()
    assert [growth.limit for growth in method.growths] == limits


def noted(function, calls, name):
    """The function, with a note of its calls."""

    def wrapped(*arguments):
        calls.append(name)
        return function(*arguments)

    return wrapped


@pytest.mark.parametrize("make", [db.Ising.grid, lambda *sides, **given: db.Potts.grid(*sides, states=3, **given)])
def test_evidence_makes_no_new_model_where_sums_near_the_targets_do(make):
    """The answers are those of sums over all states of the model given the evidence. Without it they are others."""
    missed = 0
    rng = np.random.default_rng(3)
    model = make(4, 600, couplings=rng.uniform(-0.3, 0.3, 4 * 599 + 3 * 600))
    for target in (0, 1207, 2399):
        near = [(target + step) % 2400 for step in (1, 3, 601)]
        evidence = {label: int(rng.choice(model.states(label))) for label in [*near, (target + 1100) % 2400]}
        for asked in ([target], db.Joint(target, (target + 2) % 2400)):
            answer = db.estimate(model, asked, evidence=evidence, tolerance=0.002)
            assert answer.plan.method == "local"
            exact = db.estimate(model.condition(evidence), asked, method="exact")
            assert (answer.lower <= exact.upper).all()
            assert (answer.upper >= exact.lower).all()
            assert answer.half_width.max() <= 0.002
            free = db.estimate(model, asked, tolerance=0.002)
            missed += ((free.lower > exact.upper) | (free.upper < exact.lower)).any()
    assert missed >= 4
    assert not any(space.is_given for space in model._memory.values(DERIVED))


def test_the_whole_model_is_looked_at_where_sums_nearby_do_not_do(monkeypatch):
    monkeypatch.setattr(METHODS["walks"], "in_auto", False)
    chain = db.Ising({(i, i + 1): 4.0 for i in range(2499)})
    answer = db.estimate(chain, [1000], evidence={0: 1})
    assert answer.plan.method == "exact"
    assert answer.value[1] > 0.6


@pytest.mark.parametrize(("time", "tolerance"), [(600.0, 1e-13), (None, 1e-15)])
def test_the_time_limit_is_no_reason_where_there_is_time_left(time, tolerance, monkeypatch):
    """Sums end at their planned size, or at what rounding allows, long before the time is over."""
    monkeypatch.setattr(local, "_OVERRUN", 1.0)
    monkeypatch.setattr(local, "_PILOT_CELLS", 2.0**10)
    grid = db.Ising.grid(30, 30, couplings=0.2)
    try:
        answer = db.estimate(grid, [0], method="local", tolerance=tolerance, time_limit=time)
    except db.CertificateError as error:
        answer = error.result
        assert time is None
    assert answer.widest > tolerance
    assert answer.stopped_by in {"rounding", "the largest sums that were planned"}


# -- free and extreme boundaries of ferromagnets -----------------------------------------------


def one_sided(rng, n, strength, field):
    """A ferromagnet whose fields favour one state, after random flips of spins; without field in some components."""
    model = ferromagnet(rng, n, strength)
    couplings = np.abs(model.couplings.toarray())
    fields = np.abs(rng.normal(size=n)) * field * rng.integers(0, 2, size=n)
    flips = rng.choice([-1.0, 1.0], size=n)
    return db.Ising(couplings * np.outer(flips, flips), fields=fields * flips)


def distance_between(model, inside, kept, change=None):
    """Total variation between the model's law and the mean of the laws with both boundaries, and its bound."""
    around = surroundings(model._form, inside)
    region = region_of(model, inside, kept, by_extremes=True)
    favours = favoured_states(model)
    if change is not None:
        favours = change(favours)
    laws, bound = laws_between(model, favours, around, region.order, region.group)
    value = 0.5 * (laws[0].probabilities + laws[1].probabilities)
    return 0.5 * np.abs(value - model_law(model, kept)).sum(), bound


@pytest.mark.parametrize("strength", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("field", [0.0, 0.3])
def test_free_and_extreme_boundaries_hold(strength, field):
    rng = np.random.default_rng(17)
    useful = 0
    for _ in range(150):
        model = one_sided(rng, int(rng.integers(2, 8)), strength, field)
        inside, kept = random_subset(rng, model.n_variables)
        distance, bound = distance_between(model, inside, kept)
        assert distance <= bound + 1e-12
        useful += bool(1e-6 < bound < 0.3)
    assert useful > 10


@pytest.mark.parametrize("wrong", ["states", "even"])
def test_boundaries_that_are_not_favoured_fail(wrong):
    """The negative control: another boundary, or laws made even in spite of a field."""

    def change(favours):
        if wrong == "even":
            return favours._replace(has_field=np.zeros_like(favours.has_field))
        return favours._replace(states=1 - favours.states)

    rng = np.random.default_rng(5)
    failures = 0
    for _ in range(100):
        model = one_sided(rng, 6, 0.5, 0.5)
        inside, kept = random_subset(rng, 6)
        distance, bound = distance_between(model, inside, kept, change)
        failures += distance > bound + 1e-9
    assert failures > 0


def with_fields_in_pairs(rng, model):
    """The same law, with a part of the fields in the tables of pairs: as a lattice gas has it."""

    def round_(numbers):  # sums of these have no rounding
        return np.round(1024.0 * np.asarray(numbers)) / 1024.0

    couplings = round_(model.couplings.toarray())
    fields = round_(model.fields)
    factors = []
    for i, j in zip(*np.nonzero(np.triu(couplings)), strict=True):
        first, second = round_(2.0 * rng.normal(size=2)) if rng.integers(2) else couplings[[i, j], [j, i]]
        fields[i] -= first
        fields[j] -= second
        table = couplings[i, j] * np.array([[1, -1], [-1, 1]]) + np.array([[-first], [first]]) + [-second, second]
        factors.append(((int(i), int(j)), table))
    factors += [((v,), [-h, h]) for v, h in enumerate(fields.tolist())]
    return db.FactorGraph([2] * model.n_variables, factors)


@pytest.mark.parametrize("field", [0.0, 0.3])
def test_free_boundaries_keep_the_fields_that_pairs_hold(field):
    rng = np.random.default_rng(23)
    useful = 0
    for _ in range(300):
        model = with_fields_in_pairs(rng, one_sided(rng, int(rng.integers(2, 8)), 0.5, field))
        inside, kept = random_subset(rng, model.n_variables)
        distance, bound = distance_between(model, inside, kept)
        assert distance <= bound + 1e-12
        useful += bool(1e-6 < bound < 0.3)
    assert useful > 10


def test_pairs_of_a_cold_lattice_gas_are_certain():
    couplings = db.Ising.grid(12, 30, couplings=0.625).couplings.toarray()
    pairs = [((i, j), [[0.0, 0.0], [0.0, 2.5]]) for i, j in np.argwhere(np.triu(couplings)).tolist()]
    fields = [((v,), [0.0, -2.0 * total]) for v, total in enumerate(couplings.sum(axis=0).tolist())]
    gas = db.FactorGraph([2] * 360, pairs + fields)
    exact = db.estimate(gas, db.Joint(100, 101), method="exact")
    found = db.estimate(gas, db.Joint(100, 101), tolerance=0.01, method="local")
    assert "Griffiths" in " ".join(found.assumptions)
    assert (found.lower <= exact.value + 1e-12).all()
    assert (exact.value - 1e-12 <= found.upper).all()


def test_fields_that_disagree_and_frustration_have_no_favourites():
    assert favoured_states(db.Ising({(0, 1): 0.5}, fields=[0.1, -0.1])) is None
    assert favoured_states(db.Ising({(0, 1): -0.5}, fields=[0.1, -0.1])) is not None
    assert favoured_states(db.Ising({(0, 1): 0.5, (1, 2): 0.5, (0, 2): -0.5})) is None
    assert favoured_states(db.Potts({(0, 1): 0.5}, states=3)) is None


def test_pairs_of_cold_ferromagnets_are_certain():
    cold = db.Ising.grid(12, 30, couplings=0.6)
    exact = db.estimate(cold, db.Joint(100, 101), method="exact")
    found = db.estimate(cold, db.Joint(100, 101), tolerance=0.01, method="local")
    assert found.half_width.max() <= 0.01
    assert (found.lower <= exact.value + 1e-12).all()
    assert (exact.value - 1e-12 <= found.upper).all()
    assert "Griffiths" in " ".join(found.assumptions)
    tilted = db.Ising.grid(12, 30, couplings=0.6, fields=np.full((12, 30), 0.05))
    found = db.estimate(tilted, db.Joint(100, 101, 130), tolerance=0.05, method="local")
    exact = db.estimate(tilted, db.Joint(100, 101, 130), method="exact")
    assert (found.lower <= exact.value + 1e-12).all()
    assert (exact.value - 1e-12 <= found.upper).all()
