"""The clique tree: its shape, what it computes, and what it refuses."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp

import dobrushin as db
from dobrushin._exact import clique_tree as trees
from dobrushin._exact import elimination
from dobrushin._exact.clique_tree import clique_tree
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model, symmetric

CASES = [(family, False) for family in FAMILIES] + [(family, True) for family in FAMILIES_WITH_ZEROS]


def graph_of(model):
    start, indices = model._form.adjacency
    return sparse.csr_array((np.ones(len(indices)), indices, start), shape=(model.n_variables,) * 2)


def tree_of(model, order):
    return trees._build(graph_of(model), model.cardinalities.tolist(), list(order), math.inf)


def orders(model, rng):
    """The two orders of the library and one that nobody would choose."""
    graph, sizes = graph_of(model), model.cardinalities.tolist()
    yield trees._sweep(graph, sizes, math.inf)
    yield trees._min_fill(graph, sizes, math.inf)
    yield rng.permutation(model.n_variables).tolist()


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
        for order in orders(model, rng):
            tree = tree_of(model, order)
            tables, messages, computed_z = elimination.collect(model, tree, "test")
            elimination.distribute(tree, tables, messages)
            assert computed_z == pytest.approx(log_z, abs=1e-11)
            for p, q in zip(elimination._read_marginals(tree, tables), expected, strict=True):
                np.testing.assert_allclose(p, q, rtol=0, atol=1e-11)


def test_disconnected_isolated_and_single_variables():
    pieces = np.zeros((7, 7))
    pieces[:3, :3] = symmetric(np.random.default_rng(0), 3, [(0, 1), (1, 2), (0, 2)], 1.0)
    pieces[4, 6] = pieces[6, 4] = 0.7
    model = db.Ising(pieces, [0.3, 0, 0, 0, 0, 0, -0.2])
    result = check_against_enumeration(model)
    np.testing.assert_array_equal(result[3], [0.5, 0.5])
    np.testing.assert_array_equal(result[5], [0.5, 0.5])
    assert clique_tree(model).width == 2

    check_against_enumeration(db.Ising([[0.0]], [1.5]))
    alone = db.FactorGraph([5], [])
    np.testing.assert_allclose(db.exact.marginals(alone)[0], np.full(5, 0.2), rtol=1e-15)
    assert db.exact.log_partition(alone) == pytest.approx(math.log(5))
    assert clique_tree(alone).width == 0


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
    assert clique_tree(model).width == 1


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
    assert clique_tree(model).width == 16


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


# -- the tree ------------------------------------------------------------------------------------------------------


def check_tree(model, tree):
    n = model.n_variables
    sets = [set(clique) for clique in tree.cliques]
    assert set().union(*sets) == set(range(n))
    assert not any(a <= b for a, b in itertools.permutations(sets, 2))
    graph = model.to_factor_graph()
    for k in range(graph.n_factors):
        scope = graph.factor(k)[0]
        if scope:
            assert set(scope) <= sets[tree.homes[min(scope, key=tree.rank.__getitem__)]]
    for c, (clique, summed, parent) in enumerate(zip(tree.cliques, tree.summed, tree.parents, strict=True)):
        assert [tree.rank[v] for v in clique] == sorted(tree.rank[v] for v in clique)
        assert all(tree.homes[v] == c for v in clique[:summed])
        if parent < 0:
            assert summed == len(clique)
        else:
            # Running intersection: what is not summed out here is all in the parent, and nothing else is shared.
            assert parent > c
            assert sets[c] & sets[parent] == set(clique[summed:]) != set()
    assert sum(tree.summed) == n
    assert tree.width == max(map(len, sets)) - 1
    table = [math.prod(model.cardinalities[clique].tolist()) for clique in tree.cliques]
    shared = [
        math.prod(model.cardinalities[clique[s:]].tolist()) for clique, s in zip(tree.cliques, tree.summed, strict=True)
    ]
    assert tree.memory == 8 * (sum(table) + sum(shared) + 2 * max(table))


def test_the_tree_has_the_running_intersection_property():
    rng = np.random.default_rng(11)
    for _ in range(40):
        family = rng.choice(FAMILIES)
        model = random_model(rng, family, n=int(rng.integers(1, 14)), density=0.6 * rng.random())
        check_tree(model, clique_tree(model))
        for order in orders(model, rng):
            check_tree(model, tree_of(model, order))


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
def test_min_fill_is_best_possible_on_chordal_graphs_and_rings(edges, n, width):
    model = db.Ising(symmetric(np.random.default_rng(0), n, edges, 1.0))
    graph, sizes = graph_of(model), [2] * n
    assert tree_of(model, trees._min_fill(graph, sizes, math.inf)).width == width


def test_min_fill_equals_its_definition():
    """The counts that are updated lazily are those of a count from scratch at every step."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        n = int(rng.integers(2, 25))
        near = np.zeros((n, n), dtype=bool)
        pairs = rng.random((n, n)) < rng.choice([0.1, 0.2, 0.4])
        near |= np.triu(pairs, 1) | np.triu(pairs, 1).T
        left, expected = set(range(n)), []
        order = trees._min_fill(sparse.csr_array(near.astype(float)), [2] * n, math.inf)
        while left:
            cost = {}
            for v in left:
                ring = [u for u in left if near[v, u]]
                cost[v] = sum(not near[a, b] for a, b in itertools.combinations(ring, 2))
            v = min(left, key=lambda u: (cost[u], u))
            expected.append(v)
            ring = [u for u in left if near[v, u]]
            near[np.ix_(ring, ring)] = True
            near[ring, ring] = False
            left.remove(v)
        assert order == expected


def test_the_cheaper_tree_is_taken():
    def memories(model):
        graph, sizes = graph_of(model), model.cardinalities.tolist()
        return [
            tree_of(model, find_order(graph, sizes, math.inf)).memory for find_order in (trees._sweep, trees._min_fill)
        ]

    square, strip = db.Ising.grid(14, 14, 0.1), db.Ising.grid(8, 200, 0.1)
    sweep, min_fill = memories(square)
    assert clique_tree(square).memory == sweep < min_fill
    sweep, min_fill = memories(strip)
    assert sweep > min_fill == clique_tree(strip).memory
    # A sweep through a tree is so wide that it is refused.
    tree = db.Ising({(i, (i - 1) // 2): 0.1 for i in range(1, 2**12)})
    assert clique_tree(tree).width == 1


# -- memory --------------------------------------------------------------------------------------------------------


def test_the_memory_is_what_was_foretold():
    model = db.Ising.grid(13, 13, np.random.default_rng(0).normal(size=2 * 13 * 12))
    foretold = clique_tree(model).memory
    tracemalloc.start()
    db.exact.marginals(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.8 * foretold < peak < 1.02 * foretold + 2**21


def test_the_limit_is_sharp():
    model = db.PairwiseMRF(np.zeros((12, 3)), [(i, i + 1) for i in range(11)], np.eye(3))
    memory = clique_tree(model).memory
    assert len(db.exact.marginals(model, memory_limit=memory)) == 12
    with pytest.raises(db.BudgetError, match="Raise 'memory_limit'") as refusal:
        db.exact.marginals(model, memory_limit=memory - 1)
    assert refusal.value.required == memory
    assert refusal.value.limit == memory - 1
    assert refusal.value.unit == "bytes"


def test_cliques_inside_others_do_not_count():
    # As many bytes again are in cliques that are not kept.
    pairs = [(6 * k + a, 6 * k + b) for k in range(50) for a, b in itertools.combinations(range(6), 2)]
    model = db.Ising(dict.fromkeys(pairs, 0.1))
    memory = 8 * (50 * (2**6 + 1) + 2 * 2**6)
    assert clique_tree(model, memory_limit=memory).memory == memory


def test_a_large_clique_is_refused_before_anything_is_allocated():
    complete = db.Ising(symmetric(np.random.default_rng(0), 60, list(itertools.combinations(range(60), 2)), 0.1))
    potts = db.Potts.grid(30, 30, states=10, couplings=0.1)
    for model in (complete, potts):
        tracemalloc.start()
        with pytest.raises(db.BudgetError):
            db.exact.marginals(model)
        with pytest.raises(db.BudgetError):
            db.exact.marginals(model, memory_limit=1e300)
        assert tracemalloc.get_traced_memory()[1] < 2**24
        tracemalloc.stop()


def test_a_dense_model_is_refused_at_once():
    # Counting the missing edges of this one would take minutes.
    n = 2000
    couplings = np.ones((n, n)) - np.eye(n)
    couplings[:1000, :999] = couplings[:999, :1000] = 0
    with pytest.raises(db.BudgetError) as refusal:
        db.exact.marginals(db.Ising(couplings))
    assert refusal.value.required == 2**32


def test_density_is_judged_by_what_every_order_needs():
    for n in range(1, 8):
        model = db.Ising(np.ones((n, n)) - np.eye(n))
        for limit in range(8 * 2**n, 8 * 2**n + 8):
            trees._refuse_dense(graph_of(model), limit)
        with pytest.raises(db.BudgetError):
            trees._refuse_dense(graph_of(model), 8 * 2**n - 1)
    # A clique with a long tail, and one whose members have many neighbours that have none.
    tail = {**dict.fromkeys(itertools.combinations(range(6), 2), 0.1), **{(i, i + 1): 0.1 for i in range(5, 40)}}
    with pytest.raises(db.BudgetError):
        trees._refuse_dense(graph_of(db.Ising(tail)), 8 * 2**6 - 1)
    star = {(0, i): 0.1 for i in range(1, 3000)}
    trees._refuse_dense(graph_of(db.Ising(star)), 8 * 2**2)


def test_a_huge_grid_is_refused_on_sight_of_a_piece(monkeypatch):
    model = db.Ising.grid(150, 150, 0.1)
    seen = []
    neighbor_sets = trees._neighbor_sets
    monkeypatch.setattr(trees, "_neighbor_sets", lambda g: seen.append(g.shape[0]) or neighbor_sets(g))
    with pytest.raises(db.BudgetError):
        trees._min_fill(graph_of(model), [2] * 150**2, trees.MEMORY_LIMIT)
    assert seen == [4096]


def test_a_large_narrow_model_is_not_refused():
    model = db.Ising({(i, (i - 1) // 2): 0.1 for i in range(1, 10000)}, fields=np.eye(1, 10000)[0])
    means = np.array([p[1] - p[0] for p in db.exact.marginals(model)])
    depth = np.floor(np.log2(np.arange(1, 10001)))
    np.testing.assert_allclose(means, np.tanh(1) * np.tanh(0.1) ** depth, atol=1e-14)
