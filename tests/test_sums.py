"""Sums over all states: what they give, how far they can be off, in which order they are made, what is refused."""

import decimal
import itertools
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp

import dobrushin as db
from dobrushin._estimate.method import METHODS
from dobrushin._exact import arithmetic, engine, order
from dobrushin._exact.arithmetic import Working
from dobrushin._exact.engine import plan_sums
from dobrushin._exact.order import find_order, graph_of, refuse_dense
from dobrushin._kernels import contraction
from dobrushin._kernels import orders as kernels
from dobrushin._kernels.reorder import reorder
from dobrushin._models.memory import Memory
from dobrushin._shared import memory
from dobrushin._shared.call import Deadline
from dobrushin._shared.compile import Interpreted, code_for
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model, symmetric

CASES = [(family, False) for family in FAMILIES] + [(family, True) for family in FAMILIES_WITH_ZEROS]


def plan_of(model, groups, order):
    """The plan of an order that nobody chose."""
    tables = model._form.tables()
    return engine.plan_in_order(tables, groups, list(order), Memory())


def orders(model, rng):
    """An order of the library, and one that nobody would choose."""
    yield find_order(model._form.adjacency, model.cardinalities, Working()).variables
    yield rng.permutation(model.n_variables).tolist()


def singles(model):
    return [(v,) for v in range(model.n_variables)]


def by_enumeration(model):
    log_density = model.log_density(all_states(model))
    log_z = logsumexp(log_density)
    p = np.exp(log_density - log_z).reshape(model.cardinalities)
    axes = range(model.n_variables)
    return log_z, [p.sum(axis=tuple(k for k in axes if k != i)) for i in axes]


def check_against_enumeration(model, tolerance=1e-11):
    log_z, marginals = by_enumeration(model)
    result = db.exact.marginals(model)
    assert db.exact.log_partition(model) == pytest.approx(log_z, rel=tolerance, abs=tolerance)
    for computed, expected in zip(result, marginals, strict=True):
        np.testing.assert_allclose(computed, expected, rtol=0, atol=tolerance)
        assert computed.sum() == pytest.approx(1, abs=1e-14)
    return result


@pytest.mark.parametrize(("family", "zeros"), CASES)
def test_marginals_equal_enumeration_for_every_family_and_every_order(family, zeros):
    rng = np.random.default_rng([1, zeros, FAMILIES.index(family)])
    for _ in range(30):
        model = random_model(rng, family, zeros=zeros, density=rng.random(), strength=rng.choice([0.3, 1, 5]))
        check_against_enumeration(model)
        log_z, expected = by_enumeration(model)
        for variables in orders(model, rng):
            sums = plan_of(model, singles(model), variables).run(model._form.tables())
            assert sums.log_partition == pytest.approx(log_z, abs=1e-11)
            for p, q in zip(sums.marginals, expected, strict=True):
                np.testing.assert_allclose(p, q, rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [0.1, 3.0, 300.0])
def test_marginals_know_their_error(scale):
    """Against sums of decimals; the error is a bound, and no wild one."""
    rng = np.random.default_rng(int(scale))
    tables = scale * rng.normal(size=(6, 3, 3))
    model = db.FactorGraph([3] * 6, [((k, (k + 1) % 6), table) for k, table in enumerate(tables)])
    result = db.exact.marginals(model)
    assert 0.0 < result.error < 1e-9
    with decimal.localcontext() as context:
        context.prec = 60
        weights = {
            state: sum(
                decimal.Decimal(float(table[state[k], state[(k + 1) % 6]])) for k, table in enumerate(tables)
            ).exp()
            for state in itertools.product(range(3), repeat=6)
        }
        whole = sum(weights.values())
        for v, a in itertools.product(range(6), range(3)):
            true = sum(weight for state, weight in weights.items() if state[v] == a) / whole
            assert abs(decimal.Decimal(float(result[v][a])) - true) <= decimal.Decimal(result.error)
    again = pickle.loads(pickle.dumps(result))
    assert again.error == result.error
    assert np.array_equal(again, result)


@pytest.mark.parametrize(("family", "zeros"), CASES)
def test_joint_marginals_of_groups(family, zeros):
    rng = np.random.default_rng([2, zeros, FAMILIES.index(family)])
    for _ in range(20):
        model = random_model(rng, family, n=int(rng.integers(2, 7)), zeros=zeros, density=rng.random())
        n = model.n_variables
        groups = [tuple(rng.permutation(n)[: rng.integers(1, min(n, 3) + 1)].tolist()) for _ in range(4)]
        tables, joint = model._form.tables(), db.exact.distribution(model)
        sums = plan_sums(tables, groups, 1e9).run(tables)
        for group, p in zip(groups, sums.marginals, strict=True):
            rest = tuple(k for k in range(n) if k not in group)
            expected = joint.sum(axis=rest).transpose(np.argsort(np.argsort(group)))
            np.testing.assert_allclose(p, expected, rtol=0, atol=1e-12)


def test_large_steps_in_pieces_are_the_small_ones(monkeypatch):
    """Pieces and copies change nothing but the order in which a sum is added up."""
    from dobrushin._exact import arithmetic as working

    rng = np.random.default_rng(4)
    model = db.Ising.grid(5, 6, rng.normal(size=49), rng.normal(size=(5, 6)))
    plain = db.exact.marginals(model)
    for private in (0, 8, 2**14):
        monkeypatch.setattr(working, "_ENTRIES_OF_LARGE_STEP", 8)
        monkeypatch.setattr(working, "_ENTRIES_PER_PIECE", 16)
        monkeypatch.setattr(working, "_ENTRIES_OF_PRIVATE_TABLE", private)
        np.testing.assert_allclose(db.exact.marginals(model), plain, rtol=1e-14)


def test_disconnected_isolated_and_single_variables():
    pieces = np.zeros((7, 7))
    pieces[:3, :3] = symmetric(np.random.default_rng(0), 3, [(0, 1), (1, 2), (0, 2)], 1.0)
    pieces[4, 6] = pieces[6, 4] = 0.7
    model = db.Ising(pieces, [0.3, 0, 0, 0, 0, 0, -0.2])
    result = check_against_enumeration(model)
    np.testing.assert_array_equal(result[3], [0.5, 0.5])
    np.testing.assert_array_equal(result[5], [0.5, 0.5])
    assert plan_sums(model._form.tables(), singles(model), 1e9).width == 2

    check_against_enumeration(db.Ising([[0.0]], [1.5]))
    alone = db.FactorGraph([5], [])
    np.testing.assert_allclose(db.exact.marginals(alone)[0], np.full(5, 0.2), rtol=1e-15)
    assert db.exact.log_partition(alone) == pytest.approx(math.log(5))
    assert plan_sums(alone._form.tables(), [(0,)], 1e9).width == 0


def test_constants_and_repeated_scopes():
    table = np.arange(6.0).reshape(2, 3)
    model = db.FactorGraph([2, 3, 2], [((), 2.5), ((0, 1), table), ((1, 0), -2 * table.T), ((), -1.0)])
    check_against_enumeration(model)


def test_long_chain_in_closed_form():
    strength, n = 0.8, 2000
    model = db.Ising.grid(1, n, couplings=strength, fields=np.eye(1, n) * 50)
    # With the first spin held at +1 by its field, E x_i = tanh(strength)^i.
    means = np.array([p[1] - p[0] for p in db.exact.marginals(model)])
    np.testing.assert_allclose(means, np.tanh(strength) ** np.arange(n), atol=1e-13)
    assert db.exact.log_partition(model) == pytest.approx(50 + (n - 1) * math.log(2 * math.cosh(strength)), rel=1e-13)
    assert plan_sums(model._form.tables(), singles(model), 1e9).width == 1


def test_grid_against_a_transfer_matrix():
    rng = np.random.default_rng(5)
    rows, cols = 6, 9
    right, down = rng.normal(size=(rows, cols - 1)), rng.normal(size=(rows - 1, cols))
    fields = rng.normal(size=(rows, cols))
    columns = np.array(list(itertools.product([-1, 1], repeat=rows)))
    within = [columns @ fields[:, c] + (columns[:, :-1] * columns[:, 1:]) @ down[:, c] for c in range(cols)]
    between = [(columns * right[:, c]) @ columns.T for c in range(cols - 1)]
    forward = [within[0]]
    for c in range(1, cols):
        forward.append(within[c] + logsumexp(forward[-1][:, None] + between[c - 1], axis=0))
    backward = [np.zeros(len(columns))]
    for c in range(cols - 2, -1, -1):
        backward.insert(0, logsumexp(between[c] + within[c + 1] + backward[0], axis=1))
    log_z = logsumexp(forward[-1])

    model = db.Ising.grid(rows, cols, (right, down), fields)
    marginals = db.exact.marginals(model)
    assert db.exact.log_partition(model) == pytest.approx(log_z, rel=1e-13)
    for c in range(cols):
        p = np.exp(forward[c] + backward[c] - log_z)
        for r in range(rows):
            assert marginals[r * cols + c][1] == pytest.approx(p[columns[:, r] == 1].sum(), abs=1e-12)


def test_symmetry_of_a_16_by_16_grid():
    couplings = np.random.default_rng(0).normal(size=480)
    model = db.Ising.grid(16, 16, couplings)
    np.testing.assert_allclose(np.array(db.exact.marginals(model)), 0.5, atol=1e-12)


# -- numbers that could go wrong -----------------------------------------------------------------------------------


def test_huge_potentials():
    spread = np.array([[0.0, 1e99], [-1e99, 1e99]])
    model = db.FactorGraph([2, 2, 2], [((0, 1), spread), ((1, 2), [[0, 1], [1, 0]]), ((2,), [0, 1])])
    p = db.exact.marginals(model)
    np.testing.assert_allclose(p[0], [0.5, 0.5])
    np.testing.assert_array_equal(p[1], [0, 1])
    # Exact although 1e99 + 1 is 1e99: terms are shifted before they are added.
    np.testing.assert_allclose(p[2], [0.5, 0.5])

    for sign in (1, -1):
        shifted = db.PairwiseMRF([[sign * 1e5, sign * 1e5 + 1]] * 50, [(i, i + 1) for i in range(49)], np.zeros((2, 2)))
        expected = [[1 / (1 + math.e), math.e / (1 + math.e)]] * 50
        np.testing.assert_allclose(db.exact.marginals(shifted), expected, rtol=1e-10)
        assert db.exact.log_partition(shifted) == pytest.approx(50 * (sign * 1e5 + math.log1p(math.e)), rel=1e-14)


def test_frustrated_potentials_do_not_vanish():
    # Two terms that pull with the same huge force in opposite directions leave the small one to decide.
    model = db.FactorGraph([2], [((0,), [0, -1e6]), ((0,), [-1e6, 0]), ((0,), [0, 1])])
    np.testing.assert_allclose(db.exact.marginals(model)[0], [1 / (1 + math.e), math.e / (1 + math.e)], rtol=1e-9)


def test_hard_constraints_along_a_ring():
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    ring = db.PairwiseMRF(np.zeros((9, 3)), [(i, (i + 1) % 9) for i in range(9)], differ)
    assert math.exp(db.exact.log_partition(ring)) == pytest.approx(
        2**9 - 2
    )  # proper colourings of a ring: 2^n + 2 (-1)^n
    np.testing.assert_allclose(db.exact.marginals(ring), 1 / 3)

    # Equality all along a chain, with one end known: certainty at the other.
    same = np.where(np.eye(4, dtype=bool), 0.0, -np.inf)
    unaries = np.zeros((30, 4))
    unaries[0, [0, 1, 3]] = -np.inf
    known = db.PairwiseMRF(unaries, [(i, i + 1) for i in range(29)], same)
    np.testing.assert_array_equal(db.exact.marginals(known), np.tile([0, 0, 1, 0], (30, 1)))
    assert db.exact.log_partition(known) == 0


def test_no_mass_at_all():
    differ = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)
    odd_ring = db.PairwiseMRF(np.zeros((5, 2)), [(i, (i + 1) % 5) for i in range(5)], differ)
    constant = db.FactorGraph([2, 2], [((), -np.inf)])
    table = db.FactorGraph([2, 2], [((0, 1), np.full((2, 2), -np.inf))])
    contradiction = db.FactorGraph([2], [((0,), [0, -np.inf]), ((0,), [-np.inf, 0])])
    for model in (odd_ring, constant, table, contradiction):
        for run in (db.exact.marginals, db.exact.log_partition):
            message = rf"'model' argument of dobrushin.exact.{run.__name__} must be one that allows some joint state"
            with pytest.raises(db.ArgumentError, match=message):
                run(model)


# -- rounding and underflow ----------------------------------------------------------------------------------------


def in_many_digits(model):
    """Marginals and the log-partition function by enumeration, in 60 digits."""
    with decimal.localcontext(prec=60):
        graph = model.to_factor_graph()
        shape = model.cardinalities.tolist()
        weights = {}
        for state in itertools.product(*map(range, shape)):
            logs = [
                float(graph.factor(k)[1][tuple(state[v] for v in graph.factor(k)[0])]) for k in range(graph.n_factors)
            ]
            possible = -math.inf not in logs
            weights[state] = (
                sum(map(decimal.Decimal, logs), decimal.Decimal(0)).exp() if possible else decimal.Decimal(0)
            )
        total = sum(weights.values())
        marginals = [
            [sum(w for x, w in weights.items() if x[v] == a) / total for a in range(size)]
            for v, size in enumerate(shape)
        ]
        return marginals, total.ln()


def largest_excess(model, sums, variables=None):
    """How far the worst probability is beyond its bound: at most 0 if the bound holds."""
    with decimal.localcontext(prec=60):
        marginals, log_z = in_many_digits(model)
        marginals = marginals if variables is None else [marginals[v] for v in variables]
        excess = [abs(decimal.Decimal(sums.log_partition) - log_z) - decimal.Decimal(sums.log_partition_error)]
        for computed, exact in zip(sums.marginals, marginals, strict=True):
            for p, q in zip(computed.tolist(), exact, strict=True):
                bound = q * decimal.Decimal(sums.relative) + decimal.Decimal(sums.absolute)
                excess.append(abs(decimal.Decimal(p) - q) - bound)
        return max(excess)


def wide(model, plan):
    """The sums with numbers that have exponents of their own."""
    return arithmetic.Wide(plan.program, arithmetic.shifted_tables(model._form.tables())).run(Working())


@pytest.mark.parametrize(("family", "zeros"), CASES)
def test_errors_are_within_their_bounds_in_many_digits(family, zeros):
    rng = np.random.default_rng([7, zeros, FAMILIES.index(family)])
    for strength in (0.3, 30.0, 600.0):
        for _ in range(4):
            model = random_model(rng, family, n=int(rng.integers(1, 6)), zeros=zeros, strength=strength)
            tables = model._form.tables()
            plan = plan_sums(tables, singles(model), 1e9)
            for sums in (plan.run(tables), wide(model, plan)):
                assert sums.relative < 1e-9
                assert largest_excess(model, sums) <= 0


def treacherous():
    """The likely states of both variables pass through numbers that underflow, the others do not."""
    a = np.log([1e-165, 1.0])
    pair = np.log(np.array([[1.0, 1e-300], [1e-300, 1e-165]]))
    pair[0, 1] = pair[1, 0] = -np.inf
    factors = [((0,), a), ((0,), a), ((0, 1), pair), ((1,), np.log([1.0, 1e-170]))]
    model = db.FactorGraph([2, 2], factors)
    return model, plan_of(model, [(1,)], [0, 1])


def plain(model, plan):
    """The sums with plain numbers, whatever underflows."""
    tables = model._form.tables()
    return arithmetic.Plain(plan.program, tables, arithmetic.shifted_tables(tables)).run(Working())


def test_what_underflows_is_not_lost():
    model, plan = treacherous()
    by_plain = plain(model, plan)
    assert by_plain.marginals[0][1] > 0.999  # wrong: the truth is 1e-5
    assert by_plain.absolute == 1  # and it says so
    assert largest_excess(model, by_plain, [1]) <= 0
    for sums in (plan.run(model._form.tables()), wide(model, plan)):
        assert sums.marginals[0][1] == pytest.approx(1e-5, rel=1e-4)
        assert sums.absolute < 1e-100
        assert largest_excess(model, sums, [1]) <= 0
    # Both variables: on the way down nothing is left of plain numbers.
    both = plan_of(model, [(0,), (1,)], [0, 1])
    assert plain(model, both) is None
    assert largest_excess(model, both.run(model._form.tables())) <= 0
    found = db.estimate(model, [1], method="exact", tolerance=1e-9)
    assert found.value[0] == pytest.approx(0.99999, abs=1e-7)


def test_a_bound_without_underflow_is_wrong(monkeypatch):
    """Negative control."""
    model, plan = treacherous()
    monkeypatch.setattr(arithmetic, "UNDERFLOW", 0.0)
    sums = plan.run(model._form.tables())
    assert sums.marginals[0][1] > 0.999
    assert largest_excess(model, sums, [1]) > 0.9


def test_a_bound_without_roundings_is_wrong(monkeypatch):
    """Negative control."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(arithmetic, "UNIT", 2.0**-75)
    model = random_model(rng, "factors", n=6, strength=3.0)
    tables = model._form.tables()
    assert largest_excess(model, plan_sums(tables, singles(model), 1e9).run(tables)) > 0


def test_underflow_that_does_not_matter_costs_nothing():
    """Numbers beside 1 that are too small for floats; no sum is made twice."""
    rng = np.random.default_rng(1)
    pairs = [(i, i + 1) for i in range(11)]
    tables = [np.where(np.eye(2), 0.0, -800.0) + rng.normal(size=(2, 2)) for _ in pairs]
    model = db.PairwiseMRF(rng.normal(size=(12, 2)), pairs, tables)
    plan = plan_sums(model._form.tables(), singles(model), 1e9)
    sums = plain(model, plan)
    assert 0 < sums.absolute < 2.0**-900
    _, expected = by_enumeration(model)
    np.testing.assert_allclose(sums.marginals, expected, rtol=1e-12)


# -- the partition function and the most likely state --------------------------------------------------------------


@pytest.mark.parametrize(("family", "zeros"), CASES)
def test_evidence_in_the_partition_function_and_the_most_likely_state(family, zeros):
    rng = np.random.default_rng([3, zeros, FAMILIES.index(family)])
    for _ in range(25):
        model = random_model(rng, family, zeros=zeros, strength=rng.choice([0.5, 4]))
        states = all_states(model)
        density = model.log_density(states)
        seen = rng.permutation(model.n_variables)[: rng.integers(0, model.n_variables + 1)]
        evidence = {model.labels[v]: int(rng.choice(list(model.states(v)))) for v in seen}
        fits = np.all(states[:, seen] == list(evidence.values()), axis=1)
        found = db.exact.log_partition(model, evidence=evidence)
        expected = logsumexp(density[fits])
        assert isinstance(found, float)
        assert found.value == float(found)
        assert abs(found - expected) <= found.error + 1e-12 if expected > -math.inf else found == -math.inf
        if expected == -math.inf:
            with pytest.raises(db.ArgumentError, match=r"'evidence' argument of dobrushin\.exact\.most_likely"):
                db.exact.most_likely(model, evidence=evidence)
            continue
        best = db.exact.most_likely(model, evidence=evidence)
        assert evidence.items() <= best.states.items()
        assert density[fits].max() <= best.log_density + best.error + 1e-12
        assert best.log_density == pytest.approx(density[fits].max(), abs=1e-10)
        assert list(best.states) == list(model.labels)


def test_the_partition_function_keeps_its_error_when_it_travels():
    z = db.exact.log_partition(db.Ising.grid(3, 3, couplings=0.2))
    again = pickle.loads(pickle.dumps(z))
    assert again == z
    assert again.error == z.error > 0


def test_maxima_do_not_underflow():
    model, _ = treacherous()
    assert db.exact.most_likely(model).states == {0: 0, 1: 0}


# -- orders --------------------------------------------------------------------------------------------------------


def kernel_order(near, rule, sizes=None, seed=0):
    graph = sparse.csr_array(np.asarray(near, dtype=float))
    n = graph.shape[0]
    sizes = np.full(n, 2.0) if sizes is None else np.asarray(sizes, dtype=float)
    weights = np.maximum(1, np.round(8 * np.log2(sizes))).astype(np.int64)
    start, indices = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    arguments = [start, indices, weights, sizes]
    for array in arguments:
        array.setflags(write=False)
    given = np.arange(n)
    given.setflags(write=False)
    return code_for(kernels.greedy_order, 0)(*arguments, rule, given, seed, np.inf, 2**60)


@pytest.mark.parametrize(
    ("edges", "n", "width"),
    [
        ([], 3, 0),
        ([(i, i + 1) for i in range(19)], 20, 1),
        ([(i, (i - 1) // 2) for i in range(1, 127)], 127, 1),
        ([(0, i) for i in range(1, 40)], 40, 1),
        ([(i, (i + 1) % 12) for i in range(12)], 12, 2),
        (list(itertools.combinations(range(8), 2)), 8, 7),
    ],
)
def test_orders_are_best_possible_on_chordal_graphs_and_rings(edges, n, width):
    model = db.Ising(symmetric(np.random.default_rng(0), n, edges, 1.0))
    assert plan_sums(model._form.tables(), singles(model), 1e9).width == width


@pytest.mark.parametrize("rule", [kernels.FILL, kernels.CLIQUE, kernels.WEIGHTED_FILL])
def test_greedy_orders_equal_their_definition(rule):
    """The costs that are kept up to date are those of a count from scratch at every step."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        n = int(rng.integers(2, 90))
        near = np.triu(rng.random((n, n)) < rng.choice([0.05, 0.1, 0.3]), 1)
        near |= near.T
        sizes = rng.integers(2, 6, size=n)
        weights = np.maximum(1, np.round(8 * np.log2(sizes))).astype(int)
        variables, entries, largest, _ = kernel_order(near, rule, sizes)
        left, expected, total, most = set(range(n)), [], 0.0, 0.0
        while left:
            cost = {}
            for v in left:
                ring = [u for u in left if near[v, u]]
                missing = [(a, b) for a, b in itertools.combinations(ring, 2) if not near[a, b]]
                cost[v] = (
                    len(missing) if rule == kernels.FILL
                    else int(weights[ring].sum() + weights[v]) if rule == kernels.CLIQUE
                    else int(sum(weights[a] * weights[b] for a, b in missing))
                )  # fmt: skip
            v = min(left, key=lambda u: (cost[u], u))
            expected.append(v)
            ring = [u for u in left if near[v, u]]
            total += float(np.prod(sizes[[v, *ring]], dtype=float))
            most = max(most, float(np.log2(sizes[[v, *ring]]).sum()))
            near[np.ix_(ring, ring)] = True
            near[ring, ring] = False
            left.remove(v)
        assert variables.tolist() == expected
        assert entries == pytest.approx(total)
        assert np.log2(largest) == pytest.approx(most)


def entries_of(near, sizes, order):
    """The entries of all bags of an order, by their definition."""
    near, left, total = near.copy(), set(range(len(sizes))), 0.0
    for v in order:
        ring = [u for u in left if near[v, u]]
        total += float(np.prod(sizes[[v, *ring]], dtype=float))
        near[np.ix_(ring, ring)] = True
        near[ring, ring] = False
        left.remove(v)
    return total


@pytest.mark.parametrize("seed", range(30))
def test_pieces_of_an_order_are_reordered_with_the_entries_of_the_whole(seed):
    """Also for graphs in several components, hubs, trees and variables with one state."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 150))
    near = np.triu(rng.random((n, n)) < rng.choice([0.0, 0.5, 2.0, 4.0]) / n, 1)
    near[0, 1:] |= seed % 5 == 0
    near |= near.T
    sizes = rng.integers(1 if seed % 3 == 0 else 2, 5, size=n)
    order = rng.permutation(n)
    graph = sparse.csr_array(near)
    start, indices = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    better, entries = reorder(start, indices, sizes.astype(float), order, seed, 200_000)
    assert sorted(better.tolist()) == list(range(n))
    if entries == np.inf:  # a separator was too large to begin with
        assert better.tolist() == order.tolist()
        return
    assert entries == pytest.approx(entries_of(near, sizes, better), rel=1e-12)
    assert entries <= entries_of(near, sizes, order)


def test_large_separators_are_left_as_they_are():
    near = np.triu(np.ones((120, 120), dtype=bool), 1)
    graph = sparse.csr_array(near | near.T)
    order = np.arange(120)[::-1].copy()
    same, entries = reorder(
        graph.indptr.astype(np.int64), graph.indices.astype(np.int64), np.full(120, 2.0), order, 1, 1000
    )
    assert entries == np.inf
    assert same.tolist() == order.tolist()


def test_orders_of_long_sums_are_improved_and_do_not_depend_on_threads(monkeypatch):
    rng = np.random.default_rng(3)
    pairs = {tuple(sorted(rng.choice(110, 2, replace=False).tolist())) for _ in range(230)}
    model = db.Ising(dict.fromkeys(pairs, 0.1))
    found = find_order(model._form.adjacency, model.cardinalities, Working(), 2.0**60)
    monkeypatch.setattr(arithmetic, "has_room_for_threads", lambda _: False)
    assert found == find_order(model._form.adjacency, model.cardinalities, Working(), 2.0**60)
    monkeypatch.setattr(order, "_IMPROVED_FROM", math.inf)
    greedy = find_order(model._form.adjacency, model.cardinalities, Working(), 2.0**60)
    assert found.entries < 0.9 * greedy.entries


def test_restarts_help_and_repeat_themselves():
    rng = np.random.default_rng(8)
    near = np.triu(rng.random((60, 60)) < 0.07, 1)
    model = db.Ising({(int(i), int(j)): 0.1 for i, j in zip(*np.nonzero(near), strict=True)})
    first = find_order(model._form.adjacency, model.cardinalities, Working())
    assert first == find_order(model._form.adjacency, model.cardinalities, Working())
    one_try = kernel_order(db.Ising(model._form.to_model(None).couplings).couplings.toarray() != 0, kernels.FILL)
    assert first.entries <= one_try[1]


def test_large_graphs_get_an_order_without_bits(monkeypatch):
    rng = np.random.default_rng(5)
    for family in FAMILIES:
        model = random_model(rng, family, n=9, density=0.3)
        with monkeypatch.context() as patch:
            patch.setattr(order, "_MAX_BITSET_VARIABLES", 4)
            check_against_enumeration(model)
    model = db.Ising({(i, (i - 1) // 2): 0.1 for i in range(1, 20000)}, fields=np.eye(1, 20000)[0])
    means = np.array([p[1] - p[0] for p in db.exact.marginals(model)])
    depth = np.floor(np.log2(np.arange(1, 20001)))
    np.testing.assert_allclose(means, np.tanh(1) * np.tanh(0.1) ** depth, atol=1e-14)


def test_a_hub_of_many_factors():
    """Thousands of tables that share a variable are multiplied two by two."""
    n = 3000
    rng = np.random.default_rng(2)
    couplings, fields = rng.normal(size=n) * 0.02, rng.normal(size=n + 1) * 0.1
    model = db.Ising({(0, i): couplings[i - 1] for i in range(1, n + 1)}, fields=fields)
    hub = fields[0] + 0.5 * np.sum(np.log(np.cosh(couplings + fields[1:])) - np.log(np.cosh(fields[1:] - couplings)))
    mean = np.tanh(hub)
    p = db.exact.marginals(model)
    assert p[0][1] - p[0][0] == pytest.approx(mean, abs=1e-12)
    plus, minus = np.tanh(fields[1] + couplings[0]), np.tanh(fields[1] - couplings[0])
    assert p[1][1] - p[1][0] == pytest.approx((1 + mean) / 2 * plus + (1 - mean) / 2 * minus, abs=1e-12)


# -- programs ------------------------------------------------------------------------------------------------------


def test_no_step_writes_what_it_reads_and_every_table_has_its_place():
    rng = np.random.default_rng(11)
    for _ in range(40):
        model = random_model(rng, rng.choice(FAMILIES), n=int(rng.integers(1, 12)), density=0.6 * rng.random())
        steps = plan_of(model, singles(model), rng.permutation(model.n_variables)).program

        def span(block, steps=steps):
            size = math.prod(steps.sizes[steps.scope_of(block)].tolist())
            return int(steps.offset[block]), int(steps.offset[block]) + size

        assert all(span(b)[0] >= 0 and span(b)[1] <= steps.length for b in range(len(steps.offset)))
        for t in range(len(steps.made)):
            first, last = span(int(steps.made[t]))
            for block in steps.operands_of(t).tolist():
                begin, end = span(block)
                assert end <= first or last <= begin
        assert len(steps.reads) == model.n_variables
        assert steps.n_up <= len(steps.made)


def test_few_targets_take_a_shorter_way_down():
    model = db.Ising.grid(8, 40, couplings=0.1)
    tables = model._form.tables()
    everything = plan_sums(tables, singles(model), 1e9)
    one = everything.asking(tables, [(0,)])
    none = everything.asking(tables, [])
    assert none.entries < one.entries < everything.entries
    np.testing.assert_allclose(one.run(tables).marginals[0], [0.5, 0.5])
    assert none.run(tables).log_partition == pytest.approx(db.exact.log_partition(model))


# -- memory and time -----------------------------------------------------------------------------------------------


def test_the_memory_is_what_was_foretold():
    model = db.Ising.grid(14, 14, np.random.default_rng(0).normal(size=2 * 14 * 13))
    tables = model._form.tables()
    plan = plan_sums(tables, singles(model), 1e9)
    tracemalloc.start()
    plan.run(tables)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.9 * plan.bytes < peak < 1.1 * plan.bytes + 2**20
    # Tables of cliques would be larger.
    assert plan.bytes < 8 * plan.program.entries[: plan.program.n_up].sum()


def test_the_limit_is_sharp_and_says_what_is_missing(monkeypatch):
    monkeypatch.setattr("dobrushin._exact.cutset._MAX_STATES", 1)
    model = db.PairwiseMRF(np.zeros((12, 3)), [(i, i + 1) for i in range(11)], np.eye(3))
    needed = plan_sums(model._form.tables(), singles(model), 1e9).bytes
    assert len(db.exact.marginals(model, memory_limit=needed)) == 12
    with pytest.raises(db.BudgetError, match=r"lacks 1 bytes. Raise 'memory_limit' \(--memory-limit") as refusal:
        db.exact.marginals(model, memory_limit=needed - 1)
    assert refusal.value.required == needed
    assert refusal.value.limit == needed - 1
    assert refusal.value.unit == "bytes"
    with pytest.raises(db.BudgetError, match="memory_limit"):
        db.estimate(model, "all", method="exact", run=db.RunOptions(memory_limit="1KiB"))
    assert db.estimate(model, "all", method="exact", run=db.RunOptions(memory_limit="1MB")).is_certified
    # A plan that was refused is looked for again when more is allowed.
    assert db.plan(model, "all", method="exact", run=db.RunOptions(memory_limit=needed)).method == "exact"


def test_a_large_clique_is_refused_before_anything_is_allocated():
    complete = db.Ising(symmetric(np.random.default_rng(0), 60, list(itertools.combinations(range(60), 2)), 0.1))
    potts = db.Potts.grid(30, 30, states=10, couplings=0.1)
    for model in (complete, potts):
        tracemalloc.start()
        for limit in (None, 1e300):
            with pytest.raises(db.BudgetError):
                db.exact.marginals(model, memory_limit=limit)
        assert tracemalloc.get_traced_memory()[1] < 2**25
        tracemalloc.stop()


def test_a_dense_model_is_refused_at_once():
    # Counting the missing edges of this one would take minutes.
    n = 2000
    couplings = np.ones((n, n)) - np.eye(n)
    couplings[:1000, :999] = couplings[:999, :1000] = 0
    with pytest.raises(db.BudgetError) as refusal:
        db.exact.marginals(db.Ising(couplings))
    assert refusal.value.required == 2 * order.MAX_SUMMED_ENTRIES


def test_density_is_judged_by_what_every_order_needs():
    def refuse(model, most):
        refuse_dense(graph_of(model._form.adjacency), most)

    for n in range(1, 8):
        model = db.Ising(np.ones((n, n)) - np.eye(n))
        refuse(model, 2**n)
        with pytest.raises(db.BudgetError):
            refuse(model, 2**n - 1)
    # A clique with a long tail, and one whose members have many neighbours that have none.
    tail = {**dict.fromkeys(itertools.combinations(range(6), 2), 0.1), **{(i, i + 1): 0.1 for i in range(5, 40)}}
    with pytest.raises(db.BudgetError):
        refuse(db.Ising(tail), 2**6 - 1)
    refuse(db.Ising({(0, i): 0.1 for i in range(1, 3000)}), 2**2)


def test_a_huge_grid_is_refused_on_sight_of_a_piece(monkeypatch):
    model = db.Ising.grid(150, 150, 0.1)
    seen = []
    neighbor_sets = order._neighbor_sets
    monkeypatch.setattr(order, "_neighbor_sets", lambda g: seen.append(g.shape[0]) or neighbor_sets(g))
    with pytest.raises(db.BudgetError):
        order._min_fill(graph_of(model._form.adjacency), [2] * 150**2, 2.0**28)
    assert seen == [4096]


@pytest.mark.parametrize(
    ("text", "number"),
    [("2GiB", 2**31), ("500MB", 5e8), ("1.5 gb", 1.5e9), ("64", 64), ("1e9", 1e9), ("3KiB", 3072), ("2TiB", 2**41)],
)
def test_sizes_as_people_write_them(text, number):
    assert memory.memory_limit(text) == number


@pytest.mark.parametrize("text", ["", "GiB", "-1", "two GB", "1..2MB", "0", "nan", "1XB"])
def test_sizes_that_are_none(text):
    with pytest.raises(db.ArgumentError, match="a number of bytes"):
        memory.memory_limit(text)


def test_free_memory_is_the_least_of_all_limits(tmp_path, monkeypatch):
    assert 2**20 < memory.free_memory() < 2**60
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text("1000\n")
    (tmp_path / "a" / "memory.current").write_text("400\n")
    (tmp_path / "a" / "memory.stat").write_text("anon 1\ninactive_file 50\n")
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("10\n")
    mine = tmp_path / "cgroup"
    mine.write_text("0::/a/b\n")
    assert list(memory._groups(tmp_path, mine)) == [650.0]
    old = tmp_path / "memory" / "a"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("900")
    (old / "memory.usage_in_bytes").write_text("100")
    mine.write_text("4:cpu,memory:/a\n")
    assert list(memory._groups(tmp_path, mine)) == [800.0]
    monkeypatch.setattr(memory, "_groups", lambda: iter([12345.0]))
    assert memory.free_memory() == 12345
    assert memory.memory_limit(None) == pytest.approx(0.8 * 12345)


def test_sums_stop_when_the_time_is_over(monkeypatch):
    from dobrushin._exact import arithmetic as working

    monkeypatch.setattr(working, "_ENTRIES_OF_LARGE_STEP", 64)
    monkeypatch.setattr(working, "_ENTRIES_PER_PIECE", 64)
    model = db.Ising.grid(6, 6, couplings=0.1)
    tables = model._form.tables()
    plan = plan_sums(tables, singles(model), 1e9)
    ticks = itertools.count()
    with pytest.raises(db.BudgetError, match="exact sums"):
        plan.run(tables, working=Working(Deadline(5.0, "The estimate", clock=lambda: float(next(ticks)))))
    # In time, with what the current limit allows.
    with Deadline(1e6):
        assert len(plan.run(tables).marginals) == 36


def test_an_interrupt_ends_the_sums_and_leaves_nothing_behind(monkeypatch):
    from dobrushin._exact import arithmetic as working

    monkeypatch.setattr(working, "_ENTRIES_OF_LARGE_STEP", 64)
    model = db.Ising.grid(6, 6, couplings=0.1)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Working, "report", interrupt)
        with pytest.raises(KeyboardInterrupt):
            db.estimate(model, "all", method="exact")
    assert db.estimate(model, "all", method="exact").value == pytest.approx(0.5)


def test_the_error_of_the_most_likely_state_counts_the_rounding_of_its_density():
    from fractions import Fraction

    best = db.exact.most_likely(db.FactorGraph([2], [((0,), [0.1, 0.1]), ((0,), [0.7, 0.7])]))
    assert Fraction(0.1) + Fraction(0.7) <= Fraction(best.log_density) + Fraction(best.error)
    assert best.error < 1e-14


def test_auto_says_how_many_bytes_are_missing(monkeypatch):
    for name in ("local", "walks", "parts", "clusters", "coalescence", "weights"):
        monkeypatch.setattr(METHODS[name], "in_auto", False)
    model = db.Ising.grid(9, 9, couplings=3.0 * np.random.default_rng(0).choice([-1.0, 1.0], size=144), fields=0.1)
    with pytest.raises(
        db.CertificateError, match=r"exact: sums would take .* more than is allowed: raise 'memory_limit'"
    ):
        db.estimate(model, [0], run=db.RunOptions(memory_limit="1KB"), tolerance=1e-3)


def test_a_larger_limit_is_advised_only_where_so_much_memory_is_free(monkeypatch):
    model = db.Ising.grid(9, 9, couplings=0.4)
    for free, is_advised in ((1e12, True), (2e3, False)):
        monkeypatch.setattr(memory, "free_memory", lambda free=free: free)
        with pytest.raises(db.BudgetError) as caught:
            db.exact.marginals(model, memory_limit="1KB")
        assert ("Raise 'memory_limit'" in str(caught.value)) is is_advised
        assert "some variables with evidence, or sample" in str(caught.value)


# Sizes of variables, scopes of factors and variables that are kept: sums of runs, with one or two operands along
# the run, with tables that alternate, that are long in no axis, and of many terms.
STEPS = [
    ([2] * 12, [range(11), (0, 11)], range(1, 12)),
    ([2] * 12, [range(11), range(11), (0, 11)], range(1, 12)),
    ([3] * 6 + [5], [range(6), (0, 6)], range(1, 7)),
    ([20, 20, 20, 20], [(0, 1, 2), (0, 3)], (1, 2, 3)),
    ([20, 20, 20, 20], [(0, 1, 2), (0, 3)], (2, 3)),
    ([4, 7, 30, 5], [(0, 1, 2), (0, 1, 3), (2, 3)], (2, 3)),
    ([2, 3, 2, 3], [(0, 1, 2), (2, 3)], (0, 3)),
    ([6, 6, 40], [(0, 1, 2), (0, 2), (1, 2), (2,)], (2,)),
    ([2] * 16, [range(16), (0, 3, 6, 9, 12, 15, 1)], range(0, 16, 2)),
    ([2] * 16, [range(16), (0, 3, 6, 9, 12, 15, 1), (2, 5, 11)], range(1, 16, 3)),
    ([3] * 10, [range(0, 10, 2), range(1, 10, 2), range(10)], (9, 0, 7)),
]


@pytest.mark.parametrize(("sizes", "scopes", "kept"), STEPS)
def test_a_step_is_the_sum_of_products_also_in_parts_and_by_the_interpreter(sizes, scopes, kept):
    rng = np.random.default_rng(len(sizes))
    scopes, kept = [tuple(scope) for scope in scopes], tuple(kept)
    tables = [rng.random([sizes[v] for v in scope]) * (rng.random([sizes[v] for v in scope]) < 0.8) for scope in scopes]
    lengths = [table.size for table in tables]
    start = np.concatenate([[0], np.cumsum(lengths)])
    scope = np.concatenate([*scopes, kept]).astype(np.int64)
    scope_start = np.concatenate([[0], np.cumsum([len(one) for one in (*scopes, kept)])])
    count = len(scopes)
    made, operand_start, operand = np.array([count]), np.array([0, count]), np.arange(count)
    place = np.full(len(sizes), -1)
    axes, _ = contraction.layout(0, np.array(sizes), scope_start, scope, made, operand_start, operand, place)
    store, total = np.concatenate([table.ravel() for table in tables]), int(axes[:-2, 0].prod())
    letters = ["".join(chr(97 + v) for v in one) for one in (*scopes, kept)]
    expected = np.einsum(f"{','.join(letters[:-1])}->{letters[-1]}", *tables, optimize=True).ravel()
    whole = np.zeros(len(expected))
    contraction.add_products(axes, 0, total, store, start[:-1], whole)
    np.testing.assert_allclose(whole, expected, rtol=1e-12)
    interpreted = np.zeros(len(expected))
    Interpreted(contraction.add_products)(axes, 0, total, store, start[:-1], interpreted)
    np.testing.assert_array_equal(interpreted, whole)
    parts, cuts = np.zeros(len(expected)), np.unique([0, *rng.integers(0, total + 1, 3), total])
    for begin, end in itertools.pairwise(cuts.tolist()):
        contraction.add_products(axes, begin, end, store, start[:-1], parts)
    np.testing.assert_allclose(parts, expected, rtol=1e-12)
    if total > 1:  # negative control: a part that is left out is missed
        less = np.zeros(len(expected))
        contraction.add_products(axes, 0, total - 1, store, start[:-1], less)
        assert not np.allclose(less, expected, rtol=1e-6)


def test_extremes_are_the_largest_and_the_smallest_positive_entry():
    rng = np.random.default_rng(0)
    for table in (np.zeros(7), np.array([0.0, 5e-324, 1e300]), rng.random(1000) * (rng.random(1000) < 0.5), np.ones(1)):
        positive = table[table > 0.0]
        assert contraction.extremes(table) == (table.max(), positive.min() if len(positive) else math.inf)
        assert Interpreted(contraction.extremes)(table) == contraction.extremes(table)
