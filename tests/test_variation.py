"""Certificates against exact laws and rational arithmetic."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dobrushin as db
import reference
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

SEEDS = st.integers(0, 10**6)
pytestmark = pytest.mark.filterwarnings("ignore::dobrushin.errors.VacuousBoundWarning")


def random_scan(rng, n):
    kind, steps = rng.integers(4), int(rng.integers(1, 4 * n + 1))
    if kind == 0:
        return db.Scan(rng.integers(n, size=steps))
    if kind == 1:
        return db.Scan.systematic(n, steps)
    if kind == 2:
        return db.Scan.random(rng.dirichlet(np.ones(n)), steps)
    return db.Scan(rng.integers(n, size=steps)) + db.Scan.uniform(n, 2)


def starts(rng, model):
    """A few initial laws on allowed states: points, and a mixture."""
    states = all_states(model)
    allowed = np.flatnonzero(model.log_density(states) > -np.inf)
    for k in rng.choice(allowed, size=min(4, len(allowed)), replace=False):
        yield states[k]
    mixture = np.zeros(len(states))
    mixture[allowed] = rng.dirichlet(np.ones(len(allowed)))
    yield mixture.reshape(tuple(model.cardinalities))


def worst_violation(model, scan, rng, scale=1.0):
    """Exact distance minus certified bound, over starts, target sets and single variables."""
    influence = db.influence(model)
    deflated = db.Influence(scale * influence.matrix) if scale < 1 else influence
    n, pi = model.n_variables, db.exact.distribution(model)
    targets = rng.choice(n, size=int(rng.integers(1, n + 1)), replace=False)
    bound = db.variation(deflated, scan, targets=targets.tolist())
    worst = -np.inf
    for start in starts(rng, model):
        law = db.exact.law(model, scan, initial=start)
        worst = max(worst, db.exact.total_variation(law, pi, targets=targets) - bound.tv_bound)
        for i in range(n):
            worst = max(worst, db.exact.total_variation(law, pi, targets=[i]) - bound.per_variable[i])
    return worst


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, strength=st.sampled_from([0.1, 0.4, 1.5]))
def test_exact_distance_is_within_the_bound(family, seed, strength):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=int(rng.integers(1, 6)), strength=strength, zeros=family in FAMILIES_WITH_ZEROS)
    assert worst_violation(model, random_scan(rng, model.n_variables), rng) <= 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_a_deflated_influence_is_caught(family):
    """Negative control."""
    worst = -np.inf
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = random_model(rng, family, n=3, strength=0.4, density=1.0)
        worst = max(worst, worst_violation(model, random_scan(rng, 3), rng, scale=0.4))
    assert worst > 1e-3


@given(seed=SEEDS)
def test_functions_with_bounded_differences(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, FAMILIES[seed % 5], n=4, strength=0.3)
    weights = rng.random(4) * (rng.random(4) < 0.7) + 1e-3
    scan = random_scan(rng, 4)
    bound = db.variation(model, scan, weights=weights)
    shape = tuple(model.cardinalities)
    # sum_i weights_i g_i(x_i) with each g_i in [0, 1] has these differences
    f = sum(
        weights[i] * np.reshape(rng.random(shape[i]).round(), [-1 if k == i else 1 for k in range(4)]) for i in range(4)
    )
    pi = db.exact.distribution(model)
    for start in starts(rng, model):
        law = db.exact.law(model, scan, initial=start)
        assert abs(((law - pi) * f).sum()) <= bound.value + 1e-12


@given(seed=SEEDS)
def test_rounding_is_upwards(seed):
    """The same recursion in rational arithmetic: never above the reported bound, and close to it."""
    matrix, scan, weights, initial, error = rounding_case(seed)
    bound = db.variation(db.Influence(matrix), scan, weights=weights, initial_disagreement=initial, update_error=error)
    b = rational_disagreement(matrix, scan, initial, error)
    true = sum(Fraction(w) * x for w, x in zip(weights, b, strict=True))
    assert true <= Fraction(bound.value) <= true * (1 + Fraction(1, 10**12)) + Fraction(1, 10**290)
    for exact, reported in zip(b, bound.per_variable, strict=True):
        assert exact <= Fraction(reported)


def test_rounding_without_inflation_is_caught():
    """Negative control: of the same recursion in plain floating point, some rational values are above the result."""
    violations = 0
    for seed in range(200):
        matrix, scan, weights, initial, error = rounding_case(seed)
        vectors = [scan.step_probabilities(t, len(matrix)) for t in range(len(scan))]
        plain = weights @ reference.disagreement(matrix, vectors, initial=initial, error=error)
        b = rational_disagreement(matrix, scan, initial, error)
        violations += sum(Fraction(w) * x for w, x in zip(weights, b, strict=True)) > Fraction(float(plain))
    assert violations > 20


def rounding_case(seed):
    """A random matrix, scan, weights, start and update errors."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    matrix = rng.random((n, n)) * (rng.random((n, n)) < 0.7) * 10.0 ** rng.integers(-12, 1)
    weights = rng.random(n) + 1e-9
    initial, error = rng.random(n), rng.random(n) * 1e-6
    return matrix, random_scan(rng, n), weights, initial, error


def rational_disagreement(matrix, scan, initial, error):
    """The clamped recursion, without rounding."""
    n = len(matrix)
    b = [Fraction(x) for x in initial]
    rows = [[Fraction(x) for x in row] for row in matrix]
    for t in range(len(scan)):
        q = [Fraction(x) for x in scan.step_probabilities(t, n)]
        new = [min(Fraction(1), min(Fraction(1), sum(c * y for c, y in zip(row, b, strict=True))) + Fraction(e))
               for row, e in zip(rows, error, strict=True)]  # fmt: skip
        b = [(1 - p) * old + p * fresh for p, old, fresh in zip(q, b, new, strict=True)]
    return b


@given(seed=SEEDS)
def test_equals_the_dense_reference(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, FAMILIES[seed % 5], n=5, strength=0.5)
    influence, scan = db.influence(model), random_scan(rng, 5)
    vectors = [scan.step_probabilities(t, 5) for t in range(len(scan))]
    dense = reference.disagreement(influence.matrix.toarray(), vectors, cap=influence.caps)
    assert db.variation(influence, scan).per_variable == pytest.approx(dense, rel=1e-12, abs=1e-290)
    if not scan.is_random:
        # From a model, only the rows of the scan are computed.
        assert db.variation(model, scan, targets=[0]).per_variable == pytest.approx(dense, rel=1e-12, abs=1e-290)


def test_local_and_whole_numbering_agree():
    model = db.Ising.grid(30, 30, couplings=0.2)
    scan = db.Scan([0, 31, 30, 1, 0, 31])
    local = db.variation(model, scan, targets=[0, 500])
    assert local._problem.numbering.size < 20
    dense = reference.disagreement(
        db.influence(model).matrix.toarray(), reference.one_hot(scan.order, 900), cap=db.influence(model).caps
    )
    assert local.per_variable == pytest.approx(dense, rel=1e-12)
    assert local.value == pytest.approx(dense[0] + 1)
    assert local.target_bounds.tolist() == [local.per_variable[0], 1.0]


def test_marginal_distances_of_the_start_are_not_enough():
    """Start from the product of pi's marginals: all marginal distances 0, and yet updating x_3 makes a bias."""
    model = db.Ising({(0, 1): 1.5, (0, 2): 0.8, (1, 2): 0.8}, fields=[0, 0, 0.8])
    pi = db.exact.distribution(model)
    marginals = db.exact.marginals(model)
    start = np.einsum("i,j,k->ijk", *marginals)
    law = db.exact.law(model, [2], initial=start)
    bias = db.exact.total_variation(law, pi, targets=[2])
    assert bias == pytest.approx(0.076, abs=5e-4)
    unsound = db.variation(model, db.Scan([2]), targets=[2], initial_disagreement=0.0)
    assert unsound.value < bias  # so 0 was not a valid initial_disagreement
    assert db.variation(model, db.Scan([2]), targets=[2]).value >= bias


def test_the_error_of_an_update_comes_on_top_of_the_cap():
    """A variable without neighbours has cap 0: min(cap, sum + error) would certify an inexact draw as exact."""
    model = db.Ising({(0, 1): 0.3}, fields=[0, 0, 1.0])
    bound = db.variation(model, db.Scan([2]), targets=[2], update_error=0.01)
    assert 0.01 <= bound.value < 0.0100001
    assert db.variation(model, db.Scan([2]), targets=[2]).value < 1e-300
    assert db.variation(model, db.Scan([0, 1] * 50), targets=[0], update_error=0.01).value >= 0.01
    weak = db.Ising({(0, 1): 1e-6})  # with a neighbour, but a cap far below the error
    assert db.influence(weak).caps.max() < 1e-5
    assert db.variation(weak, db.Scan([0]), targets=[0], update_error=0.01).value >= 0.01


def test_underflow_does_not_look_like_certainty():
    bound = db.variation(db.Ising({(0, 1): 1e-3}), db.Scan.systematic(2, 10**6))
    assert 0 < bound.value < 1e-290
    assert (bound.per_variable >= 2.0**-1000).all()
    # A product of positive numbers that is 0 in floating point is not 0.
    lost = db.variation(db.Influence([[0, 5e-324], [0.5, 0]]), db.Scan([1, 0]), initial_disagreement=1e-300)
    assert (lost.per_variable > 0).all()
    tiny = db.variation(db.Ising({(0, 1): 1e-3}), db.Scan.systematic(2, 10**4), weights=[1e-300, 1e-300])
    assert tiny.value > 0


def test_an_update_that_lands_on_its_start_is_rounded_up():
    c, t = 0.6369616873214543, 0.2697867137638703
    bound = db.variation(db.Influence([[0, c], [0.1, 0]]), db.Scan([0]), targets=[0], initial_disagreement=[c * t, t])
    assert Fraction(bound.per_variable[0]) >= Fraction(c) * Fraction(t)
    random = db.variation(
        db.Influence([[0, 0.5], [0.5, 0]]), db.Scan.random([1e-200, 1.0], 1), initial_disagreement=[0, 1e-200]
    )
    assert random.per_variable[0] > 0


def test_certificates_do_not_change_with_the_callers_arrays():
    initial = np.full(3, 0.5)
    bound = db.variation(db.Ising({(0, 1): 0.1, (1, 2): 0.1}), db.Scan([0]), initial_disagreement=initial)
    before = bound.curve()[1].tolist()
    initial[:] = 0
    assert bound.curve()[1].tolist() == before


def test_hopeless_lengths_are_refused_at_once():
    with pytest.raises(db.BudgetError, match="roundings"):
        db.variation(db.Ising({(0, 1): 0.1}), db.Scan.systematic(2, 10**16))


@pytest.mark.parametrize("kind", ["systematic", "uniform", "dogs"])
def test_proposition_7(kind):
    """||C||_2 < 1 drives the variation to 0, also where row and column sums are above 1."""
    n = 12
    star = np.zeros((n, n))
    star[0, 1:] = 0.28
    star[1:, 0] = 0.28
    influence = db.Influence(star)
    assert influence.norm(2) < 1 < influence.norm(1)
    values = []
    for sweeps in (1, 20, 100, 400):
        scan = db.Scan.uniform(n, sweeps * n) if kind == "uniform" else db.Scan.systematic(n, sweeps * n)
        if kind == "dogs":
            values.append(db.optimize_scan(influence, scan).variation.value)
        else:
            values.append(db.variation(influence, scan).value)
    assert all(a > b for a, b in itertools.pairwise(values))
    assert values[-1] < 1e-6


def test_initial_disagreement_and_monotonicity():
    model = db.Ising.grid(4, 4, couplings=0.2)
    scan = db.Scan.systematic(16, 64)
    full = db.variation(model, scan).value
    assert db.variation(model, scan, initial_disagreement=0.5).value < full
    assert db.variation(model, scan, initial_disagreement=np.full(16, 0.5)).value < full
    assert db.variation(model, scan, update_error=1e-3).value > full


def test_one_pass_certifies_every_variable_and_the_curve_every_prefix():
    model = db.Ising.grid(5, 5, couplings=0.2)
    scan = db.Scan.systematic(25, 60) + db.Scan.uniform(25, 15)
    bound = db.variation(model, scan, targets=[3, 7])
    steps, values = bound.curve(every=20)
    assert steps.tolist() == [0, 20, 40, 60, 75]
    for t, value in zip(steps[1:], values[1:], strict=True):
        assert db.variation(model, scan[:t], targets=[3, 7]).value == pytest.approx(value, rel=1e-12)
    assert values[0] == pytest.approx(2)
    for i in (0, 13):
        assert db.variation(model, scan, targets=[i]).value == pytest.approx(bound.per_variable[i], rel=1e-12)


def test_relabelling_changes_nothing():
    rng = np.random.default_rng(5)
    couplings = rng.normal(size=(6, 6)) * 0.2
    couplings = np.triu(couplings, 1) + np.triu(couplings, 1).T
    order = rng.integers(6, size=30)
    shuffle = rng.permutation(6)
    there = np.argsort(shuffle)
    one = db.variation(db.Ising(couplings), db.Scan(order), targets=[2])
    two = db.variation(db.Ising(couplings[np.ix_(shuffle, shuffle)]), db.Scan(there[order]), targets=[int(there[2])])
    assert one.value == pytest.approx(two.value, rel=1e-12)
    named = db.Ising({("a", "b"): 0.3, ("b", "c"): 0.2})
    plain = db.Ising({(0, 1): 0.3, (1, 2): 0.2})
    scan = db.Scan.systematic(3, 9)
    assert db.variation(named, scan, targets="b").value == db.variation(plain, scan, targets=1).value
    assert db.variation(named, scan, weights={"b": 2.0}).value == db.variation(plain, scan, weights=[0, 2.0, 0]).value


def test_vacuous_bounds_are_marked_and_explained():
    model = db.Ising.grid(6, 6, couplings=0.5)
    with pytest.warns(db.VacuousBoundWarning, match="Try a longer scan"):
        bound = db.variation(model, db.Scan.systematic(36, 3600))
    assert bound.is_vacuous
    assert "vacuous" in repr(bound)
    assert bound.tv_bound == 1.0
    assert float(bound) == bound.value
    with pytest.warns(db.VacuousBoundWarning, match="Single variables are bounded"):
        db.variation(db.Ising.grid(6, 6, couplings=0.1), db.Scan.systematic(36, 36))
    assert not db.variation(
        db.Ising.grid(6, 6, couplings=0.1), db.Scan.systematic(36, 36), weights=np.ones(36)
    ).is_vacuous


def test_the_segmentation_figure_of_the_paper():
    potts = db.influence(db.Potts.grid(20, 31, states=9, couplings=0.48), method="paper")
    centre = [row * 31 + column for row in range(6, 14) for column in range(9, 21)]
    assert db.variation(potts, db.Scan.systematic(620, 620), targets=centre).value == pytest.approx(85.467, abs=5e-4)
