"""Influence bounds of variables with many states: what they are within the budgets, and beyond."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dobrushin as db
import reference
from dobrushin._influence import theorems
from models import random_model
from test_influence import excess

SEEDS = st.integers(0, 10**6)
TABLES = ["pairwise", "factors"]
COARSE = {"pairwise": "Theorem 4, coarse", "factors": "range of the factors, coarse"}


@pytest.fixture
def no_enumeration(monkeypatch):
    """Closed forms only."""
    monkeypatch.setattr(theorems, "BEST_OPERATIONS", 0.0)


@pytest.fixture
def coarse(monkeypatch):
    """Every row is beyond the budgets for enumeration and for double differences."""
    monkeypatch.setattr(theorems, "BEST_OPERATIONS", 0.0)
    monkeypatch.setattr(theorems, "RANGE_OPERATIONS", -1.0)


def own_tables(model, i):
    """For each neighbour j of variable i, the log-tables that have both, with i first and j second."""
    tables = {}
    for scope, table in model._form.tables().factors_of(i):
        for j in scope:
            if j != i:
                rest = [v for v in scope if v not in (i, j)]
                tables.setdefault(j, []).append(np.transpose(table, [scope.index(v) for v in (i, j, *rest)]))
    return tables


@pytest.mark.parametrize("method", ["best", "paper"])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.usefixtures("no_enumeration")
def test_theorem_4_is_the_literal_one(method, zeros):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        model = random_model(rng, "pairwise", n=4, zeros=zeros, max_states=5, strength=[0.1, 1.0, 4.0][seed % 3])
        bound = db.influence(model, method=method)
        for i in range(4):
            tables = {j: parts[0] for j, parts in own_tables(model, i).items()}
            for place, j in enumerate(tables):
                literal = reference.theorem_4(model.unary(i), list(tables.values()), place, method == "best")
                assert bound.matrix[i, j] >= literal * (1 - 1e-15)
                assert bound.matrix[i, j] <= literal * (1 + 1e-10) + 1e-12


@pytest.mark.usefixtures("no_enumeration")
def test_an_entry_is_named_after_the_bound_that_it_is():
    names = set()
    for seed in range(30):
        model = random_model(np.random.default_rng(seed), "pairwise", n=4, max_states=5)
        best, paper = db.influence(model), db.influence(model, method="paper")
        for i, j in zip(*best.matrix.nonzero(), strict=True):
            names.add(best.theorem(i, j))
            smaller = best.matrix[i, j] < paper.matrix[i, j]
            assert best.theorem(i, j) == ("Theorem 4 with unaries" if smaller else "Theorem 4")
    assert len(names) == 2


@pytest.mark.parametrize("method", ["best", "paper"])
@pytest.mark.usefixtures("no_enumeration")
def test_the_range_of_the_factors_is_the_literal_one(method):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        model = random_model(rng, "factors", n=5, zeros=seed % 2 == 0, strength=[0.1, 1.0, 4.0][seed % 3])
        bound = db.influence(model, method=method)
        for i, j in zip(*bound.matrix.nonzero(), strict=True):
            literal = np.tanh(reference.range_of_factors(own_tables(model, i)[j]) / 4)
            assert bound.matrix[i, j] == pytest.approx(literal, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("family", TABLES)
@given(seed=SEEDS, zeros=st.booleans(), power=st.sampled_from([-320, -16, -6, 0, 1, 8, 98]))
def test_coarse_bounds_hold(family, seed, zeros, power):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theorems, "BEST_OPERATIONS", 0.0)
        patch.setattr(theorems, "RANGE_OPERATIONS", -1.0)
        model = random_model(np.random.default_rng(seed), family, zeros=zeros, max_states=4, strength=10.0**power)
        bound = db.influence(model)
        assert set(bound.theorems) <= {COARSE[family]}
        assert excess(model, bound) <= 1e-14
        assert ((bound.caps >= bound.matrix.max(axis=1).toarray().ravel() * (1 - 1e-12)) | (bound.caps == 1)).all()


@pytest.mark.parametrize("family", TABLES)
@pytest.mark.usefixtures("coarse")
def test_coarse_bounds_are_the_literal_ones_and_at_most_twice_as_far(family):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        model = random_model(rng, family, n=4, zeros=seed % 2 == 0, max_states=5)
        bound = db.influence(model, method="paper")
        for i, j in zip(*bound.matrix.nonzero(), strict=True):
            tables = own_tables(model, i)[j]
            if family == "pairwise":
                tables = [tables[0][model.unary(i) > -np.inf]]
            D, literal = reference.range_of_factors(tables), reference.coarse_range_of_factors(tables)
            assert bound.matrix[i, j] == pytest.approx(np.tanh(literal / 4), rel=1e-12, abs=1e-13)
            assert literal * (1 + 1e-12) >= D
            assert literal <= 2 * D * (1 + 1e-12)
            if model.cardinalities[j] == 2 and len(tables) == 1:
                assert literal == pytest.approx(D)  # two values are as far from each other as from the middle, twice


def test_one_distance_from_the_mean_is_no_bound():
    """Negative control: the farthest value alone is caught, so the two farthest are needed."""
    worst = 0.0
    for seed in range(40):
        model = random_model(np.random.default_rng(seed), "pairwise", n=3, max_states=4)
        exact = db.exact.influence(model)
        for i, j in zip(*exact.nonzero(), strict=True):
            wrong = np.tanh(reference.coarse_range_of_factors(own_tables(model, i)[j], values=1) / 4)
            worst = max(worst, exact[i, j] - wrong)
    assert worst > 1e-2


@pytest.mark.parametrize("offsets", [0, 1, 100])
@pytest.mark.usefixtures("no_enumeration")
def test_a_spent_budget_for_offsets_leaves_bounds(monkeypatch, offsets):
    full = [db.influence(strong_unaries(seed)).matrix.toarray() for seed in range(30)]
    monkeypatch.setattr(theorems, "OFFSET_OPERATIONS", offsets)
    gained = 0
    for seed in range(30):
        model = strong_unaries(seed)
        bound, paper = db.influence(model), db.influence(model, method="paper")
        assert excess(model, bound) <= 1e-14
        assert (bound.matrix.toarray() >= full[seed] * (1 - 1e-12)).all()
        assert (bound.matrix.toarray() <= paper.matrix.toarray() * (1 + 1e-12)).all()
        gained += (bound.matrix.toarray() < 0.9 * paper.matrix.toarray()).any()
    assert (gained > 20) == (offsets > 0)


def strong_unaries(seed):
    """A small pairwise model in which one label of each variable is likely."""
    rng = np.random.default_rng(seed)
    edges = [edge for edge in itertools.combinations(range(4), 2) if rng.random() < 0.6] or [(0, 1)]
    sizes = rng.integers(2, 5, size=4)
    unaries = [rng.normal(size=k) for k in sizes]
    for unary in unaries:
        unary[0] += rng.uniform(1, 6)
    return db.PairwiseMRF(unaries, edges, [0.5 * rng.normal(size=(sizes[i], sizes[j])) for i, j in edges])


def test_offsets_are_at_least_the_mean_of_two_odds():
    """What stands for offsets once their budget is spent; and, as a negative control, not at least the larger one."""
    rng = np.random.default_rng(0)
    below_the_larger = 0
    for _ in range(500):
        weights = rng.normal(
            scale=2, size=(rng.integers(1, 6), 2)
        )  # of the rivals, relative to the winner, under x and y
        offset = -np.log(np.exp(weights.mean(axis=1)).sum())
        odds = -np.log(np.exp(weights).sum(axis=0))
        assert offset >= odds.mean() - 1e-12
        below_the_larger += offset < odds.max() - 1e-9
    assert below_the_larger > 100


@pytest.mark.slow
@pytest.mark.parametrize("method", ["best", "paper"])
def test_very_many_states_have_quick_bounds(method):
    rng = np.random.default_rng(0)
    wide = db.PairwiseMRF([np.zeros(3000)] * 2, [(0, 1)], [0.1 * rng.normal(size=(3000, 3000))])
    assert db.influence(wide, method=method).theorems == {"Theorem 4, coarse": 2}
    # Leads of all labels over each other would take 80 GB; so would a table of which labels are equal.
    lopsided = db.PairwiseMRF(
        [np.zeros(100_000), np.zeros(2), np.zeros(2)], [(0, 1), (0, 2)], 0.1 * rng.normal(size=(2, 100_000, 2))
    )
    bound = db.influence(lopsided, method=method)
    assert bound.theorem(0, 1) == "Theorem 4"
    assert bound.theorem(1, 0) == "Theorem 4, coarse"
    cube = db.FactorGraph([300] * 3, [((0, 1, 2), np.zeros((300, 300, 300)))])
    assert db.influence(cube, method=method).theorems == {"range of the factors, coarse": 6}
    assert db.influence(cube, method=method).matrix.max() == 0


@pytest.mark.parametrize("method", ["best", "paper", "exact"])
def test_variables_without_neighbours_may_have_any_number_of_states(method):
    potts = db.Potts(np.zeros((2, 2)), states=10**12)
    assert db.influence(potts, method=method).matrix.nnz == 0
    alone = db.PairwiseMRF([np.zeros(10**6)], np.zeros((0, 2), dtype=int), [])
    assert db.influence(alone, method=method).matrix.nnz == 0
    if method != "paper":
        assert db.influence(potts, method=method).caps.tolist() == [0, 0]
        assert db.influence(alone, method=method).caps.tolist() == [0]


def test_many_factors_of_the_same_variables_count_for_the_budget():
    table = np.zeros((8, 8))
    model = db.FactorGraph([8, 8], [((0, 1), table)] * 3000)
    assert db.influence(model).theorems == {"range of the factors": 2}
    assert db.influence(db.FactorGraph([8, 8], [((0, 1), table)] * 3)).theorems == {"range of the factors": 2}
