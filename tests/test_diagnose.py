"""The doctor, and the blocks that it proposes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dobrushin as db
from dobrushin import _diagnose
from dobrushin._coalescence.sets import tally_sets
from models import FAMILIES, random_model

INF = -np.inf
EQUAL = [[0.0, INF], [INF, 0.0]]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(FAMILIES), st.booleans(), st.integers(2, 40))
def test_groups_are_disjoint_small_and_can_be_merged(seed, family, zeros, most):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, zeros=zeros, strength=3.0)
    groups = db.suggest_groups(model, max_states=most)
    members = [label for group in groups for label in group]
    assert len(members) == len(set(members))
    for group in groups:
        assert len(group) > 1
        assert np.prod([model.cardinalities[model.index(label)] for label in group]) <= most
    merged = model.merge(groups) if groups else model
    assert merged.n_variables == model.n_variables - len(members) + len(groups)


def test_weak_couplings_stay_apart_and_strong_ones_go_together():
    assert db.suggest_groups(db.Ising.grid(5, 5, couplings=0.1)) == []
    chain = db.Ising({("a", "b"): 3.0, ("b", "c"): 0.1, ("c", "d"): -2.0})
    assert db.suggest_groups(chain) == [["a", "b"], ["c", "d"]]
    assert db.suggest_groups(chain, max_states=2) == []
    with pytest.raises(db.ArgumentError, match="'max_states'"):
        db.suggest_groups(chain, max_states=1)
    with pytest.raises(db.ArgumentError, match="'model'"):
        db.suggest_groups([1])


def test_a_method_for_some_variables_is_not_advised_where_all_are_summed():
    hard = np.where(np.arange(8).reshape(2, 2, 2) % 3 == 0, 0.0, -np.inf)
    model = db.FactorGraph([2] * 4, [((0, 1, 2), hard), ((3,), [0.0, 1.0])])
    seen = db.diagnose(model)
    assert 0 < max(seen.coalescence.values()) < 1
    assert seen.plans[0][:2] == ("all variables", "exact")
    assert not any("for some targets" in words for words in seen.advice)


def test_blocks_are_suggested_only_where_they_lower_the_spectral_radius():
    grid = db.Ising.grid(3, 8, couplings=0.6)
    groups = db.suggest_groups(grid)
    assert groups
    merged = db.influence(grid.merge(groups)).spectral_radius()
    seen = db.diagnose(grid)
    assert merged > seen.spectral_radius > 1
    assert not any("merge" in words for words in seen.advice)
    ring = db.Ising({(k, (k + 1) % 8): 2.0 if k % 2 else 0.4 for k in range(8)} | {(0, 4): 0.4})
    seen = db.diagnose(ring)
    merged = db.influence(ring.merge(db.suggest_groups(ring))).spectral_radius()
    words = next(words for words in seen.advice if "merge" in words)
    assert merged < 1 < seen.spectral_radius
    assert f"spectral radius {merged:.3g} instead of {seen.spectral_radius:.3g}" in words


def test_blocks_let_variables_move_that_cannot_move_alone():
    model = db.FactorGraph([2] * 4, [((0, 1), EQUAL), ((2, 3), EQUAL), ((1, 2), 0.3 * np.eye(2))])
    seen = db.diagnose(model)
    assert seen.irreducible is False
    assert seen.determined == [0, 1, 2, 3]
    assert "trapped" in str(seen)
    assert any("merge" in words for words in seen.advice)
    with pytest.raises(db.CoalescenceError):
        db.exact_sample(model, [0], 10, seed=1, max_steps=1000)
    blocks = model.merge(db.suggest_groups(model))
    exact = db.exact_sample(blocks, list(blocks.labels), 2000, seed=1)
    both = np.exp(0.3) / (2 * (1 + np.exp(0.3)))
    agree = (exact.states[:, 0] == exact.states[:, 1]).mean()
    assert abs(agree - 2 * both) < 6.2 * np.sqrt(0.25 / 2000)
    assert db.diagnose(blocks).irreducible is None or db.diagnose(blocks).irreducible


@pytest.mark.slow
def test_diagnosis_says_what_holds():
    weak = db.diagnose(db.Ising.grid(8, 8, couplings=0.1))
    assert weak.satisfies_dobrushin
    assert weak.irreducible
    assert not weak.hard_zeros
    assert weak.dobrushin[10] == 1.0
    assert weak.coalescence[10] == 1.0
    assert weak.width in (8, 9)
    assert len(str(weak).splitlines()) <= 12
    cold = db.diagnose(db.Ising.grid(30, 30, couplings=1.5, periodic=True))
    assert not cold.satisfies_dobrushin
    assert cold.width is None
    assert set(cold.dobrushin.values()) == {0.0}
    assert max(cold.coalescence.values()) == 0.0
    assert {method for _, method, _ in cold.plans} == {"symmetry"}
    alone = db.diagnose(db.Potts(np.zeros((1, 1)), states=3, unaries=[[0.0, INF, 1.0]]))
    assert alone.hard_zeros
    assert alone.irreducible
    with pytest.raises(db.ArgumentError, match="'model'"):
        db.diagnose(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        db.Ising.grid(20, 20, couplings=0.3),
        db.Ising(np.kron(np.eye(2), db.Ising.grid(8, 8, couplings=0.6).couplings.toarray())),
        db.Ising.grid(3, 3, couplings=2.0).to_factor_graph(),
        db.FactorGraph([2] * 2, [((0, 1), EQUAL)]),
    ],
)
def test_nobody_is_advised_against_what_estimate_can_do(model):
    seen = db.diagnose(model)
    assert seen.plans[0][0] == "all variables"
    assert not any("uncertified" in words for words in seen.advice)
    assert db.estimate(model, "all", method=seen.plans[0][1], tolerance=0.05, seed=1).is_certified
    assert "within 0.01 by" in str(seen)


def test_trapped_and_free_constraints_are_told_apart():
    """Two neighbouring occupied sites are forbidden: every state can be emptied. Equality: none can be left."""
    hard_core = db.FactorGraph([2] * 3, [((0, 1), [[0, 0], [0, INF]]), ((1, 2), [[0, 0], [0, INF]])])
    assert db.diagnose(hard_core).irreducible is True
    assert db.diagnose(db.FactorGraph([2] * 2, [((0, 1), EQUAL)])).irreducible is False
    # Allowed: 00, 01, 10, 22: the last one is alone.
    alone = np.full((3, 3), INF)
    alone[[0, 0, 1, 2], [0, 1, 0, 2]] = 0.0
    assert db.diagnose(db.FactorGraph([3, 3], [((0, 1), alone)])).irreducible is False


def test_an_interrupt_of_pilot_runs_ends_the_diagnosis(monkeypatch):
    def interrupted(*arguments):
        return replace(tally_sets(*arguments), trouble=KeyboardInterrupt())

    monkeypatch.setattr(_diagnose, "tally_sets", interrupted)
    with pytest.raises(KeyboardInterrupt):
        db.diagnose(db.Ising.grid(4, 4, couplings=0.2))
