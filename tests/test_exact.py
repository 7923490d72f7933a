"""The oracle itself: enumeration, true influence and exact laws, against their definitions spelled out."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

import dobrushin as db
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

CASES = [(family, False) for family in FAMILIES] + [(family, True) for family in FAMILIES_WITH_ZEROS]


def rng_of(*key):
    return np.random.default_rng(list(key))


# -- distribution, marginals, log_partition ------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "zeros"), CASES)
def test_distribution_is_the_normalised_density(family, zeros):
    rng = rng_of(1, FAMILIES.index(family), zeros)
    for _ in range(15):
        model = random_model(rng, family, zeros=zeros)
        p = db.exact.distribution(model)
        assert p.shape == tuple(model.cardinalities)
        weights = np.array([math.exp(model.log_density(state)) for state in all_states(model)])
        np.testing.assert_allclose(p.ravel(), weights / weights.sum(), rtol=1e-12)
        assert db.exact.log_partition(model) == pytest.approx(math.log(weights.sum()), abs=1e-12)
        marginals = db.exact.marginals(model)
        assert len(marginals) == model.n_variables
        for i, marginal in enumerate(marginals):
            expected = p.sum(axis=tuple(k for k in range(p.ndim) if k != i))
            np.testing.assert_allclose(marginal, expected, rtol=0, atol=1e-13)


def test_index_0_of_a_spin_is_minus_1():
    p = db.exact.distribution(db.SpinMRF({(0, 1): 0.0}, fields=[2.0, 0.0]))
    np.testing.assert_allclose(p[1].sum(), 1 / (1 + math.exp(-4)))
    np.testing.assert_allclose(db.exact.marginals(db.Ising([[0.0]], [2.0]))[0][1], 1 / (1 + math.exp(-4)))


def test_more_states_than_are_enumerated_at_a_time():
    """3^11 joint states, against the tables of a chain added up along the axes."""
    rng, n = rng_of(2), 11
    unaries, tables = rng.normal(size=(n, 3)), rng.normal(size=(n - 1, 3, 3))
    log_weights = np.zeros((3,) * n)
    for i in range(n):
        log_weights += unaries[i].reshape((3,) + (1,) * (n - 1 - i))
    for i in range(n - 1):
        log_weights += tables[i].reshape((3, 3) + (1,) * (n - 2 - i))
    weights = np.exp(log_weights)
    p = db.exact.distribution(db.PairwiseMRF(unaries, [(i, i + 1) for i in range(n - 1)], list(tables)))
    np.testing.assert_allclose(p, weights / weights.sum(), rtol=1e-11)


def test_enumeration_is_limited():
    for n in (25, 65, 5000):
        with pytest.raises(db.BudgetError, match=f"{n} variables") as refusal:
            db.exact.distribution(db.Ising.grid(1, n, 0.1))
        assert refusal.value.required == (2.0**n if n < 1024 else math.inf)
    with pytest.raises(db.BudgetError):
        db.exact.law(db.Ising.grid(5, 5, 0.1), [0])


def test_no_allowed_state():
    model = db.FactorGraph([2, 2], [((0, 1), np.full((2, 2), -np.inf))])
    with pytest.raises(db.ArgumentError, match="allows some joint state"):
        db.exact.distribution(model)


@pytest.mark.parametrize("limit", [0, -1.0, math.nan, "much"])
def test_memory_limit_must_be_positive(limit):
    model = db.Ising({(0, 1): 0.1})
    for run in (db.exact.marginals, db.exact.log_partition):
        with pytest.raises(db.ArgumentError, match=f"'memory_limit' argument of dobrushin.exact.{run.__name__}"):
            run(model, memory_limit=limit)


def test_memory_limit_is_passed_on():
    model = db.Ising.grid(6, 6, 0.1)
    for run in (db.exact.marginals, db.exact.log_partition):
        with pytest.raises(db.BudgetError):
            run(model, memory_limit=1000)


# -- influence -----------------------------------------------------------------------------------------------------


def influence_by_loops(model):
    """Every pair of joint states that differ at one variable."""
    C = np.zeros((model.n_variables, model.n_variables))
    for x in all_states(model):
        for j in range(model.n_variables):
            for value in model.states(j):
                y = x.copy()
                y[j] = value
                for i in set(range(model.n_variables)) - {j}:
                    distance = 0.5 * np.abs(model.conditional(i, x) - model.conditional(i, y)).sum()
                    C[i, j] = max(C[i, j], distance)
    return C


@pytest.mark.parametrize("family", FAMILIES)
def test_influence_equals_a_double_loop(family):
    rng = rng_of(3, FAMILIES.index(family))
    for n in (1, 2, 3, 4):
        model = random_model(rng, family, n=n, density=0.8)
        np.testing.assert_allclose(db.exact.influence(model), influence_by_loops(model), rtol=0, atol=1e-14)


def test_influence_of_one_edge_in_closed_form():
    np.testing.assert_allclose(db.exact.influence(db.Ising({(0, 1): 0.7})), np.tanh(0.7) * (1 - np.eye(2)))
    field = db.exact.influence(db.Ising({(0, 1): 0.7}, fields=[2.0, 0.0]))
    sigma = [1 / (1 + math.exp(-2 * (2.0 + s))) for s in (-0.7, 0.7)]
    assert field[0, 1] == pytest.approx(sigma[1] - sigma[0])


def equal_pair_and_a_third():
    """x_0 = x_1, and x_2 coupled to both with s_2 (s_0 + s_1) / 2."""
    same = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    pull = np.array([[0.5, -0.5], [-0.5, 0.5]])
    return db.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (0, 2), (1, 2)], [same, pull, pull])


def test_influence_counts_configurations_without_mass():
    model = equal_pair_and_a_third()
    C = db.exact.influence(model)
    sigma = 1 / (1 + math.exp(-2))
    assert C[2, 0] == C[2, 1] == pytest.approx(sigma - 0.5)
    assert C[0, 1] == C[1, 0] == 1
    assert C[0, 2] == C[1, 2] == 0

    # Between states that the model allows no single change of x_0 or x_1 is possible at all: an influence that was
    # restricted to them would be 0 and would promise an update of x_2 without bias. The bias is 0.381.
    allowed = {tuple(x) for x in all_states(model) if model.log_density(x) > -np.inf}
    assert not any(
        sum(a != b for a, b in zip(x, y, strict=True)) == 1 and x[2] == y[2] for x in allowed for y in allowed
    )
    p = db.exact.law(model, [2], initial=[1, 1, 0])
    bias = db.exact.total_variation(p, db.exact.distribution(model), targets=[2])
    assert bias == pytest.approx(sigma - 0.5)
    assert bias == pytest.approx(0.381, abs=5e-4)


def test_undefined_conditionals():
    # x_2 has no state where x_0 = 1, whatever x_1: undefined against undefined is 0, against defined 1.
    table = np.zeros((2, 3, 2))
    table[1] = -np.inf
    C = db.exact.influence(db.FactorGraph([2, 3, 2], [((0, 1, 2), table), ((2,), [0.0, 1.0])]))
    np.testing.assert_array_equal(C[2], [1, 0, 0])
    # x_0 itself is certain: whatever the others are, its state 1 is forbidden.
    np.testing.assert_array_equal(C[0], [0, 0, 0])
    # And x_1 is undefined or uniform.
    np.testing.assert_array_equal(C[1], [1, 0, 0])

    # x_2 must equal both others: undefined wherever they differ.
    same = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    C = db.exact.influence(db.PairwiseMRF(np.zeros((3, 2)), [(2, 0), (2, 1)], [same, same]))
    np.testing.assert_array_equal(C, [[0, 0, 1], [0, 0, 1], [1, 1, 0]])


def test_influence_with_forbidden_single_states():
    # Three states, of which the unaries leave two: the softmax over those two.
    model = db.Potts({(0, 1): 0.8}, states=3, unaries=[[0.0, 0.0, -np.inf], [0.0, 0.0, 0.0]])
    C = db.exact.influence(model)
    assert C[0, 1] == pytest.approx(math.tanh(0.4))
    assert C[1, 0] == pytest.approx((math.exp(0.8) - 1) / (math.exp(0.8) + 2))


def test_influence_is_limited_per_variable():
    star = {(0, i): 0.1 for i in range(1, 23)}
    with pytest.raises(db.BudgetError, match="neighbours of variable 0") as refusal:
        db.exact.influence(db.Ising(star))
    assert refusal.value.required == 2**23
    # The number of variables itself is not limited.
    C = db.exact.influence(db.Ising.grid(1, 500, 0.3))
    assert C.shape == (500, 500)
    assert C[0, 1] == pytest.approx(math.tanh(0.3))


# -- law -----------------------------------------------------------------------------------------------------------


def transition_matrix(model, i):
    """Row x, column y: probability that an update of i turns x into y."""
    states = all_states(model)
    place = {tuple(x): k for k, x in enumerate(states)}
    matrix = np.zeros((len(states), len(states)))
    for k, x in enumerate(states):
        try:
            conditional = model.conditional(i, x)
        except db.ArgumentError:
            matrix[k, k] = 1
            continue
        for probability, value in zip(conditional, model.states(i), strict=True):
            y = x.copy()
            y[i] = value
            matrix[k, place[tuple(y)]] += probability
    return matrix


@pytest.mark.parametrize(("family", "zeros"), CASES)
def test_law_is_the_product_of_transition_matrices(family, zeros):
    rng = rng_of(4, FAMILIES.index(family), zeros)
    for _ in range(6):
        model = random_model(rng, family, n=int(rng.integers(1, 5)), zeros=zeros, density=0.7)
        n, shape = model.n_variables, tuple(model.cardinalities)
        order = rng.integers(n, size=6)
        start = rng.dirichlet(np.ones(math.prod(shape)))
        matrices = [transition_matrix(model, i) for i in range(n)]
        expected = start
        for i in order:
            expected = expected @ matrices[i]
        p = db.exact.law(model, order, initial=start.reshape(shape))
        np.testing.assert_allclose(p.ravel(), expected, rtol=0, atol=1e-14)

        uniform = np.full(len(start), 1 / len(start)) @ matrices[order[0]]
        np.testing.assert_allclose(db.exact.law(model, order[:1]).ravel(), uniform, rtol=0, atol=1e-14)

        # The model's own law stays as it is.
        pi = db.exact.distribution(model)
        np.testing.assert_allclose(db.exact.law(model, order, initial=pi), pi, rtol=0, atol=1e-14)


def test_law_of_random_scans():
    rng = rng_of(5)
    model = random_model(rng, "factors", n=3)
    q = np.array([0.5, 0.2, 0.3])
    matrices = [transition_matrix(model, i) for i in range(3)]
    step = sum(q[i] * matrices[i] for i in range(3))
    start = np.zeros(len(step))
    start[0] = 1
    expected = start @ step @ step @ matrices[1] @ (sum(matrices) / 3)
    scan = db.Scan.random(q, steps=2) + db.Scan([1]) + db.Scan.uniform(3, steps=1)
    p = db.exact.law(model, scan, initial=[0, 0, 0])
    np.testing.assert_allclose(p.ravel(), expected, rtol=0, atol=1e-14)
    with pytest.raises(db.ArgumentError, match=r"dobrushin.exact.law must be over 3 variables"):
        db.exact.law(model, db.Scan.uniform(4, steps=1))


def test_law_takes_scans_results_and_positions():
    model = db.Ising({(0, 1): 0.4, (1, 2): -0.3})
    expected = db.exact.law(model, [0, 1, 2, 0])
    for scan in (np.array([0, 1, 2, 0]), db.Scan.systematic(3, steps=4), SimpleNamespace(scan=db.Scan([0, 1, 2, 0]))):
        np.testing.assert_array_equal(db.exact.law(model, scan), expected)
    np.testing.assert_array_equal(db.exact.law(model, []), np.full((2, 2, 2), 1 / 8))


def test_law_from_a_point():
    p = db.exact.law(db.Ising({(0, 1): 0.4}), [], initial=[1, -1])
    np.testing.assert_array_equal(p, [[0, 0], [1, 0]])
    p = db.exact.law(db.FactorGraph([2, 4], []), [0], initial=[1, 3])
    np.testing.assert_array_equal(p, [[0, 0, 0, 0.5], [0, 0, 0, 0.5]])
    # One variable: a state and a law are told apart by their length.
    single = db.FactorGraph([3], [])
    np.testing.assert_array_equal(db.exact.law(single, [], initial=[2]), [0, 0, 1])
    np.testing.assert_array_equal(db.exact.law(single, [], initial=[0.5, 0.5, 0]), [0.5, 0.5, 0])


@pytest.mark.parametrize(
    ("scan", "initial", "message"),
    [
        (
            [0, 2],
            "uniform",
            r"'scan' argument of dobrushin.exact.law must be of positions from 0 to 1. Got 2 at index 1",
        ),
        ([-1], "uniform", "Got -1 at index 0"),
        ([0.5], "uniform", "a Scan, a ScanResult or a sequence of positions"),
        ([[0, 1]], "uniform", "a Scan, a ScanResult or a sequence of positions"),
        ([0], "random", "one of 'uniform'. Got 'random'"),
        (
            [0],
            [1, 0],
            r"'initial' argument of dobrushin.exact.law must be a state of each variable. Got 0.0 at index 1",
        ),
        ([0], [1, 1, 1], r"'uniform', one state of shape \(2,\) or a law of shape \(2, 2\)"),
        ([0], [[0.5, 0.5], [0.5, -0.5]], r"non-negative and finite. Got -0.5 at index \(1, 1\)"),
        ([0], [[0.5, 0.5], [0.5, np.nan]], "non-negative and finite. Got nan"),
        ([0], [[0.5, 0.5], [0.5, 0.5]], "probabilities that sum to 1. Got 2.0"),
    ],
)
def test_law_says_what_is_wrong(scan, initial, message):
    with pytest.raises(db.ArgumentError, match=message):
        db.exact.law(db.Ising({(0, 1): 0.4}), scan, initial)


def test_an_undefined_update_changes_nothing():
    same = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    model = db.PairwiseMRF(np.zeros((3, 2)), [(2, 0), (2, 1)], [same, same])
    p = db.exact.law(model, [2, 2], initial=[0, 1, 1])
    assert p[0, 1, 1] == p.sum() == 1
    p = db.exact.law(model, [2], initial=[1, 1, 0])
    assert p[1, 1, 1] == p.sum() == 1


# -- total variation -----------------------------------------------------------------------------------------------


def test_total_variation_is_the_largest_difference_of_an_event():
    rng = rng_of(6)
    p, q = (rng.dirichlet(np.ones(12)).reshape(2, 3, 2) for _ in range(2))
    for targets in ([0], [1], [2, 0], [1, 2], [0, 1, 2]):
        rest = tuple(set(range(3)) - set(targets))
        difference = (p.sum(axis=rest) - q.sum(axis=rest)).ravel()
        events = itertools.product([0, 1], repeat=len(difference))
        largest = max(abs(difference @ np.array(event)) for event in events)
        assert db.exact.total_variation(p, q, targets) == pytest.approx(largest, abs=1e-15)
    assert db.exact.total_variation(p, q) == db.exact.total_variation(p, q, [0, 1, 2])
    assert db.exact.total_variation(p, q, 1) == db.exact.total_variation(p, q, [1])
    assert db.exact.total_variation(p, p) == 0


@pytest.mark.parametrize(
    ("q", "targets", "message"),
    [
        (np.ones((2, 3)) / 6, None, r"the shape \(2, 2\) of 'p'. Got shape \(2, 3\)"),
        (np.ones((2, 2)) / 4, [2], "'targets' argument of dobrushin.exact.total_variation must be labels"),
        (np.ones((2, 2)) / 4, [0, 0], "distinct"),
        (np.ones((2, 2)) / 4, [], "at least one"),
    ],
)
def test_total_variation_says_what_is_wrong(q, targets, message):
    with pytest.raises(db.ArgumentError, match=message):
        db.exact.total_variation(np.ones((2, 2)) / 4, q, targets)
