"""Sums in less memory: a cutset is fixed in each of its states in turn."""

import weakref
from dataclasses import replace

import numpy as np
import pytest

import dobrushin as db
from dobrushin._exact import cutset
from dobrushin._exact.cutset import CutPlan, plan_within
from dobrushin._exact.engine import SumPlan, plan_sums
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model


def groups_of(model, rng):
    """All single variables, and a few groups of several."""
    singles = [(v,) for v in range(model.n_variables)]
    wide = [tuple(rng.choice(model.n_variables, size=k, replace=False).tolist()) for k in (2, 3)]
    return singles + wide


def excess(model, plan, sums):
    """By how much answers are further from enumeration than their bounds allow; 1e-13 is for enumeration."""
    log_f = model.log_density(all_states(model))
    top = log_f.max()
    law = np.exp(log_f - top).reshape(tuple(model.cardinalities))
    log_Z = top + np.log(law.sum())
    law = law / law.sum()
    worst = abs(sums.log_partition - log_Z) - sums.log_partition_error - 1e-13 * (1 + abs(log_Z))
    for group, found in zip(plan.groups, sums.marginals, strict=True):
        others = tuple(v for v in range(model.n_variables) if v not in group)
        true = law.sum(axis=others).transpose(np.argsort(np.argsort(group)))
        worst = max(worst, float((np.abs(found - true) - sums.relative * true - sums.absolute - 1e-13).max()))
    return worst


@pytest.mark.parametrize("family", FAMILIES)
def test_the_answer_is_that_without_a_cutset(family):
    cut = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        zeros = family in FAMILIES_WITH_ZEROS and seed % 2 == 1
        strength = float(rng.choice([0.3, 2.0, 30.0]))
        model = random_model(rng, family, n=7, zeros=zeros, strength=strength, density=0.9)
        tables, groups = model._form.tables(), groups_of(model, rng)
        whole = plan_sums(tables, groups, 1e9)
        for share in (0.7, 0.5, 0.35):
            try:
                plan = plan_within(tables, groups, share * whole.bytes)
            except db.BudgetError:
                continue
            assert plan.bytes <= share * whole.bytes
            assert isinstance(plan, CutPlan)
            assert excess(model, plan, plan.run(tables)) <= 0
            assert excess(model, plan.asking(tables, [(0,)]), plan.asking(tables, [(0,)]).run(tables)) <= 0
            cut += 1
    assert cut > 10


def grid(side=9, seed=3):
    rng = np.random.default_rng(seed)
    edges = 2 * side * (side - 1)
    return db.Ising.grid(side, side, couplings=rng.normal(size=edges), fields=rng.normal(size=side * side))


@pytest.mark.parametrize("wrong", ["partition", "law"])
def test_a_slice_that_is_off_is_caught(wrong, monkeypatch):
    """The negative control: one state of the cutset has another weight, or another law."""
    rng = np.random.default_rng(1)
    model = random_model(rng, "ising", n=7, strength=0.7, density=0.9)
    tables, groups = model._form.tables(), groups_of(model, rng)
    plan = plan_within(tables, groups, 0.5 * plan_sums(tables, groups, 1e9).bytes)
    assert excess(model, plan, plan.run(tables)) <= 0
    real, calls = SumPlan.run, []

    def off(self, tables, **how):
        sums = real(self, tables, **how)
        calls.append(1)
        if len(calls) > 1:
            return sums
        if wrong == "partition":
            return replace(sums, log_partition=sums.log_partition + 1e-9)
        return replace(sums, marginals=[np.full(m.shape, 1.0 / m.size) for m in sums.marginals])

    monkeypatch.setattr(SumPlan, "run", off)
    assert excess(model, plan, plan.run(tables)) > 0


def test_public_functions_need_no_more_memory_than_they_may():
    model = grid()
    whole = plan_sums(model._form.tables(), [(v,) for v in range(81)], 1e9)
    wanted, total = db.exact.marginals(model), db.exact.log_partition(model)
    limit = whole.bytes // 3
    found = db.exact.marginals(model, memory_limit=limit)
    assert max(np.abs(a - b).max() for a, b in zip(found, wanted, strict=True)) <= found.error + wanted.error
    needed = plan_sums(model._form.tables(), [], 1e9).bytes
    less = db.exact.log_partition(model, memory_limit=needed // 2)
    assert abs(less - total) <= less.error + total.error
    assert 0 < less.error < 1e-10
    evidence = {0: 1, 40: -1}
    given = db.exact.log_partition(model, evidence=evidence, memory_limit=needed // 2)
    assert abs(given - db.exact.log_partition(model, evidence=evidence)) < 1e-10


def test_estimates_by_sums_need_no_more_memory_than_they_may():
    model = grid()
    whole = plan_sums(model._form.tables(), [(v,) for v in range(81)], 1e9)
    how = {"targets": [0, 40], "method": "exact"}
    small = db.RunOptions(memory_limit=whole.bytes // 3)
    found, wanted = db.estimate(model, **how, run=small), db.estimate(model, **how)
    assert np.abs(found.value - wanted.value).max() <= found.half_width.max() + wanted.half_width.max()
    # With the memory to do without, no cutset is kept.
    assert "of a cutset in turn" in found.plan.reason
    again = db.plan(model, [0, 40], method="exact")
    assert "cutset" not in again.reason
    assert again.seconds < db.plan(model, [0, 40], method="exact", run=small).seconds


def test_laws_given_the_states_of_a_cutset_are_not_kept(monkeypatch):
    tables, groups = grid()._form.tables(), [(v,) for v in range(81)]
    plan = plan_within(tables, groups, 0.5 * plan_sums(tables, groups, 1e9).bytes)
    real, made, alive = SumPlan.run, [], []

    def run(self, tables, **how):
        alive.append(sum(ref() is not None for ref in made))
        sums = real(self, tables, **how)
        made.append(weakref.ref(sums.marginals[0]))
        return sums

    monkeypatch.setattr(SumPlan, "run", run)
    plan.run(tables)
    assert len(alive) == plan.states >= 4
    assert max(alive) <= 1


@pytest.mark.parametrize("gap", [-3000.0, -600.0, 600.0, 3000.0])
def test_states_of_a_cutset_whose_weights_are_far_apart(gap):
    """The logarithms of the weights grow (or fall) by more than an exponential can hold."""
    rng = np.random.default_rng(4)
    factors = [((i, j), rng.normal(size=(3, 3))) for i in range(5) for j in range(i)]
    fields = [((v,), [0.0, gap + (v == 0), 2.0 * gap]) for v in range(5)]
    model = db.FactorGraph([3] * 5, factors + fields)
    tables, groups = model._form.tables(), groups_of(model, rng)
    plan = plan_within(tables, groups, 0.5 * plan_sums(tables, groups, 1e9).bytes)
    assert isinstance(plan, CutPlan)
    sums = plan.run(tables)
    assert excess(model, plan, sums) <= 0
    assert sums.log_partition_error < 1e-9


def test_the_memory_that_tables_share_counts_once():
    tables, groups = grid(11)._form.tables(), [(v,) for v in range(121)]
    whole = plan_sums(tables, groups, 1e9)
    plan = plan_within(tables, groups, 0.7 * whole.bytes)
    assert plan.states <= 8
    assert plan.order == whole.order  # that of a proof


def test_states_of_a_cutset_that_are_forbidden():
    forbidden = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    rng = np.random.default_rng(2)
    factors = [((i, j), rng.normal(size=(2, 2))) for i in range(7) for j in range(i)]
    model = db.FactorGraph([2] * 7, [*factors, ((0, 1), forbidden), ((1,), [0.0, -np.inf])])
    tables, groups = model._form.tables(), [(v,) for v in range(7)]
    plan = plan_within(tables, groups, 0.4 * plan_sums(tables, groups, 1e9).bytes)
    assert excess(model, plan, plan.run(tables)) <= 0
    never = db.FactorGraph([2] * 7, [*factors, *[((v,), [-np.inf, 0.0]) for v in (1, 2)], ((1, 2), forbidden[::-1])])
    tables = never._form.tables()
    plan = plan_within(tables, groups, 0.4 * plan_sums(tables, groups, 1e9).bytes)
    with pytest.raises(db.ArgumentError, match="allows some joint state"):
        plan.run(tables)


def test_cutsets_with_too_many_states_are_refused(monkeypatch):
    model = grid()
    with pytest.raises(db.BudgetError, match="It lacks"):
        db.exact.marginals(model, memory_limit=2000)
    monkeypatch.setattr(cutset, "_MAX_ENTRIES", 100.0)
    whole = plan_sums(model._form.tables(), [(v,) for v in range(81)], 1e9)
    with pytest.raises(db.BudgetError, match="It lacks"):
        db.exact.marginals(model, memory_limit=whole.bytes // 2)
