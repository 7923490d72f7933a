"""Influence bounds against exact enumeration."""

import decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dobrushin as db
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

SEEDS = st.integers(0, 10**6)


def excess(model, bound, scale=1.0):
    """How much the true influence is above the bound, at most."""
    return float((db.exact.influence(model) - scale * bound.matrix.toarray()).max())


@pytest.mark.parametrize("method", ["best", "paper", "exact"])
@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, strength=st.sampled_from([1e-6, 0.3, 1.0, 4.0]))
def test_bounds_hold(family, method, seed, strength):
    model = random_model(np.random.default_rng(seed), family, strength=strength)
    bound = db.influence(model, method=method)
    # The oracle itself is good to about 1e-15.
    assert excess(model, bound) <= 1e-14
    if method == "exact":
        assert np.abs(db.exact.influence(model) - bound.matrix.toarray()).max() <= 1e-12


@pytest.mark.parametrize("method", ["best", "paper", "exact"])
@pytest.mark.parametrize("family", FAMILIES_WITH_ZEROS)
@given(seed=SEEDS)
def test_bounds_hold_with_hard_zeros(family, method, seed):
    model = random_model(np.random.default_rng(seed), family, zeros=True)
    bound = db.influence(model, method=method)
    assert np.isfinite(bound.matrix.data).all()
    assert excess(model, bound) <= 1e-14


@pytest.mark.parametrize("family", FAMILIES)
def test_deflated_bounds_fail(family):
    """Negative control: a bound two percent too small is caught."""
    models = [random_model(np.random.default_rng(seed), family, n=4) for seed in range(20)]
    assert max(excess(model, db.influence(model), scale=0.98) for model in models) > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS)
def test_caps_hold(family, seed):
    model = random_model(np.random.default_rng(seed), family, zeros=family in FAMILIES_WITH_ZEROS)
    caps = db.influence(model).caps
    states = all_states(model)
    for i in range(model.n_variables):
        laws = []
        for state in states:
            try:
                laws.append(model.conditional(i, state))
            except ValueError:
                laws.append(None)
        known = np.array([law for law in laws if law is not None])
        farthest = 0.5 * np.abs(known[:, None] - known[None]).sum(axis=-1).max()
        if len(known) < len(laws):
            farthest = 1.0
        assert farthest <= caps[i] + 1e-14


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS)
def test_best_is_never_worse_than_the_paper(family, seed):
    model = random_model(np.random.default_rng(seed), family)
    best, paper = (db.influence(model, method=method).matrix.toarray() for method in ("best", "paper"))
    assert (best <= paper * (1 + 1e-12) + 1e-14).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_best_without_enumeration_holds(family, monkeypatch):
    """The closed forms alone, which large neighbourhoods fall back on."""
    from dobrushin._influence import theorems

    monkeypatch.setattr(theorems, "BEST_OPERATIONS", 0.0)
    monkeypatch.setattr(theorems, "BEST_DEGREE", 0)
    for seed in range(150):
        for zeros in (False, True):
            model = random_model(np.random.default_rng(seed), family, n=4, zeros=zeros, strength=[0.3, 1, 3][seed % 3])
            bound = db.influence(model)
            assert "enumeration" not in bound.theorems
            assert "Theorem 5, exact" not in bound.theorems
            assert excess(model, bound) <= 1e-14


def test_unaries_sharpen_theorem_4():
    rng = np.random.default_rng(0)
    model = db.Potts.grid(5, 5, states=9, couplings=0.48, unaries=rng.normal(scale=3, size=(5, 5, 9)))
    best, paper = db.influence(model), db.influence(model, method="paper")
    assert best.theorems["Theorem 4 with unaries"] > 10
    assert best.matrix.sum() < 0.95 * paper.matrix.sum()


@pytest.mark.parametrize("power", [-320, -300, -100, -16, -8, 2, 8, 16, 98])
@pytest.mark.parametrize("family", FAMILIES)
def test_huge_and_tiny_couplings(family, power):
    for seed in range(20):
        model = random_model(np.random.default_rng(seed), family, n=4, strength=10.0**power)
        for method in ("best", "paper", "exact"):
            bound = db.influence(model, method=method)
            assert ((bound.matrix.data >= 0) & (bound.matrix.data <= 1 + 1e-12)).all()
            assert excess(model, bound) <= 1e-14
            if family in ("ising", "spins") and -320 < power < 0:
                # No bound rounds a positive influence to nothing.
                assert (bound.matrix.data > 0).all()


def gap(D, h):
    """sinh(D/2) / (cosh h + cosh(D/2)), as the influence on a spin with one neighbour and a field."""
    return float(db.influence(db.Ising({(0, 1): D / 4}, fields=[h / 2, 0])).matrix[0, 1])


@given(log_D=st.floats(-30, 6), log_h=st.floats(-30, 6))
def test_gap_against_sixty_digits(log_D, log_h):
    D, h = 10.0**log_D, 10.0**log_h
    with decimal.localcontext(prec=60, Emin=-(10**9), Emax=10**9):
        x, y = decimal.Decimal(D) / 2, decimal.Decimal(h)
        sinh = (x.exp() - (-x).exp()) / 2
        true = sinh / ((y.exp() + (-y).exp()) / 2 + (x.exp() + (-x).exp()) / 2)
        value = decimal.Decimal(gap(D, h))
        assert value >= true
        if true > decimal.Decimal(2) ** -900:
            assert value <= true * decimal.Decimal(1 + 1e-11 * (1 + abs(D - h)) + 1e-14 * (D + h))


def test_gap_at_the_edges():
    assert gap(0.0, 0.0) == 0.0
    forbid = db.PairwiseMRF(np.zeros((2, 2)), [(0, 1)], np.array([[0.0, 0.0], [0.0, -np.inf]]))  # D is infinite
    assert db.influence(forbid, method="paper").matrix[0, 1] == 1.0
    assert 0 < gap(1e-318, 0.0) <= 2.0**-999
    assert 0 < gap(1.0, 5000.0) <= 2.0**-999
    assert gap(0.8, 0.0) == pytest.approx(np.tanh(0.2), rel=1e-14)


def test_four_equal_couplings():
    theta = 0.25
    torus = db.Ising.grid(40, 40, couplings=theta, periodic=True)
    assert db.influence(torus, method="paper").matrix.data == pytest.approx(np.tanh(theta), rel=1e-13)
    assert db.influence(torus).matrix.data == pytest.approx(np.tanh(2 * theta) / 2, rel=1e-13)
    for end, method in ((0.2554, "paper"), (0.2747, "best")):
        inside = db.influence(db.Ising.grid(12, 12, couplings=end - 1e-4, periodic=True), method=method)
        outside = db.influence(db.Ising.grid(12, 12, couplings=end + 1e-4, periodic=True), method=method)
        assert (inside.satisfies_dobrushin, outside.satisfies_dobrushin) == (True, False)


def test_theorem_5_as_the_paper_writes_it():
    rng = np.random.default_rng(1)
    model = random_model(rng, "ising", n=6)
    matrix = db.influence(model, method="paper").matrix.toarray()
    theta, field = model.couplings.toarray(), model.fields
    for i, j in zip(*np.nonzero(theta), strict=True):
        rest = np.abs(theta[i]).sum() - abs(theta[i, j])
        b = max(np.exp(-2 * rest - 2 * field[i]), min(np.exp(2 * rest - 2 * field[i]), 1))
        up, down = np.exp(2 * theta[i, j]), np.exp(-2 * theta[i, j])
        assert matrix[i, j] == pytest.approx(abs(up - down) * b / ((1 + b * up) * (1 + b * down)), rel=1e-12)


def test_theorem_6_as_the_paper_writes_it_and_tightened():
    model = db.SpinMRF({(0, 1, 2): 0.3, (0, 1): -0.2, (0, 3): 0.4}, fields=[1.5, 0, 0, 0])
    s1, s2, field = 0.5, 0.4, 1.5
    b = max(np.exp(-2 * s2 - 2 * field), min(np.exp(2 * s2 - 2 * field), 1))
    paper = db.influence(model, method="paper").matrix[0, 1]
    assert paper == pytest.approx(2 * np.sinh(2 * s1) * b / (1 + b) ** 2, rel=1e-12)
    assert db.influence(model).matrix[0, 1] < paper


def test_only_possible_neighbourhoods_are_not_enough():
    """x_1 = x_2 hard, x_3 follows their mean: a bound from allowed states only would be 0, and unsound."""
    equal = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    spin = np.array([-1.0, 1.0])
    follow = spin[None, None, :] * (spin[:, None, None] + spin[None, :, None]) / 2
    model = db.FactorGraph([2, 2, 2], [((0, 1), equal), ((0, 1, 2), follow)])
    laws = [model.conditional(2, state) for state in ([0, 0, 0], [1, 1, 0])]
    assert 0.5 * np.abs(laws[0] - laws[1]).sum() > 0.38  # though no two allowed states differ at one of x_1, x_2 only
    assert db.influence(model).matrix[2, 0] > 0.38
    start = np.zeros((2, 2, 2))
    start[1, 1] = 0.5
    law = db.exact.law(model, [2], initial=start)
    bias = db.exact.total_variation(law, db.exact.distribution(model), targets=[2])
    assert bias == pytest.approx(0.381, abs=1e-3)
    assert bias <= db.variation(model, db.Scan([2]), targets=[2]).value


def pair(table, unary=(0.0, 0.0)):
    return db.PairwiseMRF([unary, [0.0] * np.shape(table)[1]], [(0, 1)], [np.asarray(table)])


@pytest.mark.parametrize("convert", [lambda model: model, lambda model: model.to_factor_graph()])
@pytest.mark.parametrize("method", ["best", "paper", "exact"])
def test_rounding_never_hides_an_influence(method, convert):
    """Differences that vanish in floating point, and weights too small for it."""
    lost = convert(pair([[1e16, 0.5], [1e16, 0.0]]))
    assert db.influence(lost, method=method).matrix[0, 1] >= 0.1225
    assert db.influence(lost, method=method).caps[0] >= 0.1225
    tiny = convert(pair([[1.0, 1e-17], [1.0, 0.0]]))
    assert db.influence(tiny, method=method).matrix[0, 1] >= 2.5e-18
    subnormal = convert(pair([[0.0, 0.0], [743.0, -743.0]], unary=[0.0, -744.1]))
    assert db.influence(subnormal, method=method).matrix[0, 1] >= 0.2497
    unary = np.array([0.0, -744.4] + [-745.2] * 400)
    many = convert(pair(np.vstack([[0.0, 0.0], np.tile([742.0, -742.0], (401, 1))]), unary=unary))
    assert db.influence(many, method=method).matrix[0, 1] >= 0.94


def test_strong_unaries_with_many_labels_and_hubs_are_fast():
    """Potts rows take time linear in the labels, pairwise rows in the degree."""
    rng = np.random.default_rng(0)
    large = db.Potts.grid(30, 30, states=200, couplings=0.3, unaries=rng.normal(size=(30, 30, 200)))
    assert db.influence(large).matrix.nnz == large.couplings.nnz
    leaves = 3000
    star = db.PairwiseMRF(
        rng.normal(size=(leaves + 1, 3)), [(0, k + 1) for k in range(leaves)], 1e-3 * rng.normal(size=(leaves, 3, 3))
    )
    assert (db.influence(star).matrix[[0]].data < 1e-2).all()


def test_negative_potts_couplings():
    """The sharper form of Theorem 4 for Potts models is that of the same tables."""
    rng = np.random.default_rng(1)
    for seed in range(60):
        couplings = rng.normal(size=(5, 5)) * (rng.random((5, 5)) < 0.7) * 0.4
        couplings = np.triu(couplings, 1) + np.triu(couplings, 1).T
        unaries = rng.normal(scale=2, size=(5, 4))
        if seed % 3 == 0:
            unaries[:, 3] = -np.inf
        potts = db.Potts(couplings, states=4, unaries=unaries)
        assert excess(potts, db.influence(potts)) <= 1e-14


def test_undefined_conditionals_count():
    """A neighbour's value that forbids every label is at distance 1 from one that does not."""
    table = np.array([[0.0, -np.inf], [0.0, -np.inf]])
    model = db.PairwiseMRF([[0.0, 1.0], [0.0, 0.0]], [(0, 1)], [table])
    for method in ("best", "paper", "exact"):
        assert db.influence(model, method=method).matrix[0, 1] == 1.0


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_on_demand_are_the_same(family):
    for seed in range(20):
        model = random_model(np.random.default_rng(seed), family, n=6, zeros=True)
        every = db.influence(model)
        some = db.influence(model, rows=[4, 1])
        for i in (1, 4):
            assert (some.matrix[[i]].toarray() == every.matrix[[i]].toarray()).all()
            assert some.caps[i] == every.caps[i]
        assert some.computed_rows.tolist() == [1, 4]
        with pytest.raises(ValueError, match="every variable that is updated"):
            db.variation(some, db.Scan([1, 2]))
        with pytest.raises(ValueError, match=r"None for Influence\.norm"):
            some.norm(1)


def test_norms_and_radius(monkeypatch):
    rng = np.random.default_rng(3)
    for n in (3, 500):
        dense = rng.random((n, n)) * (rng.random((n, n)) < 5 / n)
        bound = db.Influence(dense)
        assert bound.norm(1) == pytest.approx(np.linalg.norm(dense, 1))
        assert bound.norm(2) == pytest.approx(np.linalg.norm(dense, 2), rel=1e-5)
        assert bound.norm(np.inf) == pytest.approx(np.linalg.norm(dense, np.inf))
        assert bound.spectral_radius() == pytest.approx(np.abs(np.linalg.eigvals(dense)).max(), rel=1e-4)
    monkeypatch.setattr("dobrushin._influence.matrix._PRECISE_VARIABLES", 100)  # of large ones to three digits
    assert db.Influence(dense).spectral_radius() == pytest.approx(bound.spectral_radius(), rel=1e-3)
    chain = db.Influence(np.diag([5.0, 5.0, 5.0], k=1))
    assert chain.spectral_radius() == 0
    assert chain.satisfies_dobrushin
    assert db.influence(db.Ising.grid(1, 1)).satisfies_dobrushin


def test_every_entry_says_where_it_came_from():
    model = db.Ising.grid(3, 3, couplings=0.2)
    assert db.influence(model).theorem(0, 1) == "Theorem 5, exact"
    assert db.influence(model, method="paper").theorem(0, 1) == "Theorem 5"
    assert db.influence(model).theorem(0, 8) is None
    assert db.Influence([[0, 0.1], [0.1, 0]]).theorems == {"given": 2}
    hub = db.Ising({(0, k): 0.1 for k in range(1, 16)})
    assert db.influence(hub).theorem(0, 1) == "Theorem 5"
    assert db.influence(hub, method="exact").theorem(0, 1) == "Theorem 5, exact"


def test_exact_has_a_budget():
    hub = db.Ising({(0, k): 0.1 for k in range(1, 40)})
    with pytest.raises(db.BudgetError, match="variable 0 needs"):
        db.influence(hub, method="exact")
    wide = db.Potts({(0, k): 0.1 for k in range(1, 15)}, states=6)
    with pytest.raises(db.BudgetError, match="variable 0 needs"):
        db.influence(wide, method="exact")


def test_exact_has_a_budget_for_any_number_of_neighbours():
    star = db.Ising({(0, leaf): 0.1 for leaf in range(1, 1500)})
    with pytest.raises(db.BudgetError, match="Use method='best' instead"):
        db.influence(star, method="exact")


def test_labels_of_very_many_states_need_no_tables():
    model = db.Potts({(0, 1): 0.1}, states=10**9)
    best, paper = db.influence(model), db.influence(model, method="paper")
    np.testing.assert_array_equal(best.matrix.toarray(), paper.matrix.toarray())
    with pytest.raises(db.BudgetError, match="exact influence"):
        db.influence(model, method="exact")
