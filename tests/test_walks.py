"""Trees of self-avoiding walks: certain intervals for binary pairwise models of any sign."""

import itertools

import numpy as np
import pytest

import dobrushin as db
import reference
from dobrushin._exact import walks
from dobrushin._exact.walks import WalkLaw, read_walks
from dobrushin._shared.call import Deadline
from models import random_model

INF = np.inf


def random_pairs(rng, n=None, zeros=0.15):
    """A random binary model with general tables, of which some exclude 1 beside 1; isolated variables; ties."""
    n = int(rng.integers(2, 8)) if n is None else n
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.6] or [(0, 1)]
    strength = rng.choice([0.3, 1.0, 3.0])
    tables = strength * rng.normal(size=(len(edges), 2, 2)) * rng.choice([1.0, 1.0, 0.0], size=(len(edges), 1, 1))
    tables[rng.random(len(edges)) < zeros, 1, 1] = -INF
    edges = [pair if rng.random() < 0.5 else pair[::-1] for pair in edges]
    return db.PairwiseMRF(strength * rng.normal(size=(n, 2)) * (rng.random((n, 1)) < 0.8), edges, tables)


def law_of(model, positions):
    law = db.exact.distribution(model)
    k = len(positions)
    return np.moveaxis(law, positions, range(k)).reshape((2,) * k + (-1,)).sum(-1).ravel()


def weights_of(model):
    """Weights of pairs, in both orders, and of single variables."""
    pairs = {}
    for e, (i, j) in enumerate(model.edges):
        pairs[i, j] = np.exp(model.table(e))
        pairs[j, i] = pairs[i, j].T
    return pairs, [np.exp(model.unary(i)) for i in range(model.n_variables)]


def check_cuts(model, rng):
    """Intervals at some cuts contain the law, and are narrow where nothing is cut."""
    tree = read_walks(model._form)
    n = model.n_variables
    positions = tuple(int(v) for v in rng.choice(n, size=rng.integers(1, min(3, n) + 1), replace=False))
    law = law_of(model, positions)
    for most in (1, 4, 20, 10**6):
        own = WalkLaw(tree, positions)
        own.least = 10.0 ** -rng.integers(0, 6)
        own._pass(most)
        low, high = own.limits()
        assert (low <= law + 1e-14).all()
        assert (law <= high + 1e-14).all()
    own = WalkLaw(tree, positions)
    own.least = 0.0
    own._pass(10**6)
    assert own.half_width < 1e-9


def test_any_cut_is_valid():
    rng = np.random.default_rng(1)
    for _ in range(150):
        check_cuts(random_pairs(rng), rng)


@pytest.mark.slow
def test_any_cut_is_valid_in_thousands_of_models():
    rng = np.random.default_rng(2)
    for _ in range(3000):
        check_cuts(random_pairs(rng), rng)


def test_the_tree_is_that_of_plain_walks_and_a_wrong_leaf_rule_is_caught():
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(60):
        model = random_pairs(rng, zeros=0.0)
        pairs, unaries = weights_of(model)
        root = int(rng.integers(model.n_variables))
        odds = reference.walk_tree_odds(pairs, unaries, root)
        law = law_of(model, (root,))
        assert odds == pytest.approx(law[1] / law[0], rel=1e-9)
        fixed, seen = np.full(model.n_variables, -1, dtype=np.int8), np.zeros(model.n_variables, dtype=bool)
        found = read_walks(model._form).odds_of(root, fixed, 0.0, 10**6, seen)
        assert found.low <= odds * (1 + 1e-12)
        assert odds <= found.high * (1 + 1e-12)
        other = reference.walk_tree_odds(pairs, unaries, root, larger_is_one=False)
        wrong += abs(other / odds - 1) > 1e-6
    assert wrong == 0  # the mirrored order is a numbering of its own
    turned = 0
    for _ in range(60):
        model = random_pairs(rng, n=5, zeros=0.0)
        pairs, unaries = weights_of(model)
        odds = reference.walk_tree_odds(pairs, unaries, 0)
        tree = read_walks(model._form)
        # Leaves that are always 0: the rule of a careless reader.
        careless = walks.WalkTree(**{**vars(tree), "twin": -1 - tree.twin})
        known = careless.odds_of(0, np.full(5, -1, dtype=np.int8), 0.0, 10**4, np.zeros(5, dtype=bool))
        turned += not known.low * (1 - 1e-9) <= odds <= known.high * (1 + 1e-9)
    assert turned > 20


def test_branches_expanded_one_by_one_are_the_same(monkeypatch):
    rng = np.random.default_rng(4)
    for _ in range(40):
        model = random_pairs(rng)
        tree, n = read_walks(model._form), model.n_variables
        fixed = np.full(n, -1, dtype=np.int8)
        fixed[n - 1] = rng.integers(-1, 2)
        ends = []
        for call in (2**22, 0):
            monkeypatch.setattr(walks, "_MAX_VISITS_OF_CALL", call)
            found = tree.odds_of(0, fixed, 0.0, 10**6, np.zeros(n, dtype=bool))
            ends.append((found.low, found.high))
        np.testing.assert_allclose(ends[0], ends[1], rtol=1e-10)


def test_one_field_for_each_exit_is_no_bound():
    """Unsound look-alike: a region with one field for each exit edge, anywhere in the range of all its messages."""

    def messages(tree, root, inside):
        found, n = {}, len(tree.odds)
        fixed = np.full(n, -1, dtype=np.int8)

        def go(path, u, seen):
            for h in range(tree.start[u], tree.start[u + 1]):
                w = int(tree.neighbor[h])
                if w in seen:
                    continue
                if w in inside:
                    go((*path, h), w, seen | {w})
                else:
                    below = tree.odds_of(root, fixed, 0.0, 10**6, np.zeros(n, dtype=bool), (*path, h))
                    R = np.sqrt(below.low * below.high)
                    found.setdefault(h, (u, []))[1].append((1 + tree.alpha[h] * R) / (1 + tree.beta[h] * R))

        go((), root, {root})
        return found

    rng, outside = np.random.default_rng(0), 0
    for _ in range(300):
        n = int(rng.integers(4, 7))
        theta = np.triu(rng.normal(size=(n, n)), 1) * (rng.random((n, n)) < 0.7)
        theta, h = theta + theta.T, rng.normal(size=n)
        inside = [0, *sorted(rng.choice(np.arange(1, n), size=rng.integers(1, n - 1), replace=False).tolist())]
        model = db.Ising(theta, h)
        tree = read_walks(model._form)
        exits = messages(tree, 0, set(inside))
        if len(exits) > 7:
            continue
        corners = []
        for choice in itertools.product(*((min(known), max(known)) for _, known in exits.values())):
            fields = h[inside].copy()
            for (edge, (u, _)), factor in zip(exits.items(), choice, strict=True):
                fields[inside.index(u)] += 0.5 * np.log(factor) - theta[u, tree.neighbor[edge]]
            corners.append(law_of(db.Ising(theta[np.ix_(inside, inside)], fields), (0,))[1])
        true = law_of(model, (0,))[1]
        outside += not min(corners) - 1e-3 <= true <= max(corners) + 1e-3
        own = WalkLaw(tree, (0,))
        own._pass(30)
        low, high = own.limits()
        assert low[1] <= true <= high[1]
    assert outside > 0


@pytest.mark.parametrize("family", ["ising", "pairwise", "potts", "factors", "spins"])
def test_estimates_contain_exact_answers(family):
    rng = np.random.default_rng(6)
    done = 0
    for _ in range(40):
        model = random_model(rng, family, n=5, max_states=2)
        labels = list(model.labels)
        total = db.Statistic(lambda x: x.mean(axis=1), dict.fromkeys(labels[:3], 1.0), (-1.0, 1.0), name="mean")
        asked = [labels[0], labels[2], db.Joint(*labels[:2]), total]
        given = {labels[4]: model.states(4)[1]} if rng.random() < 0.5 else None
        exact = db.estimate(model, asked, method="exact", evidence=given).value
        try:
            found = db.estimate(model, asked, method="walks", tolerance=1e-5, evidence=given)
        except db.CertificateError as error:
            assert "at most two variables" in str(error)  # noqa: PT017
            continue
        assert ((found.lower <= exact + 1e-14) & (exact <= found.upper + 1e-14)).all()
        assert found.half_width.max() <= 1e-5
        assert found.confidence == 1.0
        done += 1
    assert done > 3


def test_what_walks_are_not_for_is_said():
    with pytest.raises(db.CertificateError, match="two states"):
        db.estimate(db.Potts({(0, 1): 0.5}, 3), [0], method="walks")
    with pytest.raises(db.CertificateError, match="at most two variables"):
        db.estimate(db.SpinMRF({(0, 1, 2): 0.5}), [0], method="walks")
    equal = db.PairwiseMRF(np.zeros((2, 2)), [(0, 1)], np.array([[0.0, -INF], [-INF, 0.0]]))
    with pytest.raises(db.CertificateError, match="state 0 of some variable is forbidden"):
        db.estimate(equal, [0], method="walks")
    with pytest.raises(db.CertificateError, match="at most 6 variables"):
        db.estimate(db.Ising.grid(3, 3, couplings=0.1), db.Joint(*range(7)), method="walks")
    with pytest.raises(db.CertificateError, match="potentials are too large"):
        db.estimate(db.Ising({(0, 1): 1e5}), [0], method="walks")
    with pytest.raises(db.CertificateError, match="no proof"):
        db.estimate(db.Ising({(0, 1): 0.5}), [0], method="walks", proof="unwritten.proof")


def glass(theta=0.3, size=30):
    rng = np.random.default_rng(3)
    signs, fields = rng.choice([-1, 1], size=2 * size * size), 0.5 * rng.normal(size=(size, size))
    return db.Ising.grid(size, size, couplings=theta * signs, fields=fields, periodic=True)


def test_auto_answers_a_frustrated_lattice_for_certain():
    found = db.estimate(glass(), [7], tolerance=0.01)
    assert found.plan.method == "walks"
    assert "walks from 1 target" in found.plan.reason
    assert found.half_width.max() <= 0.01


def test_answers_that_miss_the_tolerance_carry_their_intervals():
    model = glass(0.5, 12)
    with pytest.raises(db.CertificateError, match="walks from 1 target visit") as caught:
        db.estimate(model, [7], tolerance=1e-9, method="walks")
    found = caught.value.result
    exact = db.estimate(model, [7], method="exact").value
    assert ((found.lower <= exact) & (exact <= found.upper)).all()


def test_a_lazy_model_is_read_where_walks_go():
    model = db.Ising.grid(
        2000, 2000, couplings=lambda k: 0.2 * np.where(k % 3 == 0, -1.0, 1.0), fields=lambda k: 0.1 * (k % 2)
    )
    found = db.estimate(model, [1000], evidence={1001: 1}, tolerance=1e-3, method="walks")
    near = db.estimate(model, [1000], evidence={1001: 1}, tolerance=1e-3, method="local")
    assert found.half_width.max() <= 1e-3
    assert (np.maximum(found.lower, near.lower) <= np.minimum(found.upper, near.upper)).all()


def _star_at_the_end_of_the_range(downwards):
    """A star whose centre is pushed beyond the range of numbers by some neighbours, and back by others; and its law."""
    up = np.array([[0.0, -150.0], [0.0, 150.0]])  # a factor of about e^300 for the centre
    if downwards:
        down, rest = np.array([[0.0, 150.0], [0.0, -150.0]]), np.array([[0.0, 73.0], [0.0, -72.5]])
        last = np.array([[0.0, -71.8], [0.0, 71.8]])
        unary, tables = [0.0] + 3 * [149.0] + 3 * [290.0], [down, down, rest, up, up, last]
        edges = [(0, i) for i in range(1, 7)]
    else:
        excluded = np.array([[-150.0, 150.0], [-150.0, -INF]])
        unary, tables = [290.0, 0.0] + 5 * [290.0], [excluded, up, up, up / 30, up, up]
        edges = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (1, 6)]
    return db.PairwiseMRF(np.stack([np.zeros(7), unary], axis=1), edges, tables)


@pytest.mark.parametrize("call", [2**22, 0])
@pytest.mark.parametrize("downwards", [False, True])
def test_products_at_the_end_of_the_range_are_rounded_outwards(downwards, call, monkeypatch):
    monkeypatch.setattr(walks, "_MAX_VISITS_OF_CALL", call)
    model = _star_at_the_end_of_the_range(downwards)
    truth = db.estimate(model, [0], method="exact")
    assert 0.4 < truth.value[1] < 0.7
    try:
        found = db.estimate(model, [0], method="walks", tolerance=1e-6)
    except db.CertificateError as error:
        found = error.result
    assert found.plan.method == "walks"
    assert (found.lower <= truth.upper).all()
    assert (truth.lower <= found.upper).all()


def test_a_factor_of_no_variables_may_forbid_everything():
    model = db.FactorGraph([2, 2], [((0, 1), np.eye(2)), ((), np.array(-INF))])
    with pytest.raises(db.ArgumentError, match="allows some joint state"):
        db.estimate(model, [0], method="walks")


def test_where_time_ends_the_intervals_of_the_last_whole_pass_remain():
    own = WalkLaw(read_walks(glass()._form), (7,))
    with Deadline(INF, work=0.01):  # enough for some passes, not for all
        assert not own.narrow(1e-12, 10**9)
    assert 0 < own.half_width < 0.1
    found = db.estimate(glass(), [7], tolerance=1e-12, method="walks", time_limit=0.3)
    assert found.stopped_by is not None
    assert found.half_width.max() < 0.1
