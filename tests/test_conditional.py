"""The kernel `conditional`: tables of thresholds and of products, made beforehand."""

import decimal
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dobrushin as db
import reference
from dobrushin._sampling import labels
from dobrushin._sampling.kernel import WHOLE_KERNEL, choose_kernel
from dobrushin._shared.running import master_key
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

SEEDS = st.integers(0, 10**6)
# Limits of tables: all factors in one group, groups of several factors, and every factor by itself.
LIMITS = {"whole": (2**12, 2**9), "groups": (4, 12), "factors": (1, 1)}


def limit(patch, limits):
    patch.setattr(labels, "MAX_WHOLE_CELLS", limits[0])
    patch.setattr(labels, "MAX_GROUP_CELLS", limits[1])


def digits(model, states):
    return (np.asarray(states, dtype=int) + 1) // 2 if isinstance(model, db.Ising | db.SpinMRF) else np.asarray(states)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=8)
def test_draws_are_those_of_the_slow_reference(family, limits, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=int(rng.integers(1, 7)), max_states=5)
    n = model.n_variables
    scan = db.Scan(rng.integers(n, size=7)) + db.Scan.systematic(n, 3 * n) + db.Scan.uniform(n, 5)
    sequence = np.random.SeedSequence(seed)
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, LIMITS[limits])
        run = db.sample(model, scan, chains=3, seed=sequence, kernel="conditional")
    expected = reference.sample(model, scan, 3, master_key(sequence), "conditional")
    assert (digits(model, run.states) == expected).all()


def law(kernel, i, x):
    """The law that an update of variable i draws from, exactly, beside the states x."""
    g_start, m_start, member, stride, first, table = kernel.groups
    k = int(kernel.states[i])
    rows = []
    for g in range(g_start[i], g_start[i + 1]):
        cell = first[g] + sum(stride[m] * x[member[m]] for m in range(m_start[g], m_start[g + 1]))
        rows.append([Fraction(float(value)) for value in table[cell : cell + k]])
    if len(rows) == 1:
        cuts = [Fraction(0), *rows[0][: k - 1], Fraction(1)]
        return [b - a for a, b in itertools.pairwise(cuts)]
    weights = [Fraction(1)] * k
    for row in rows:
        weights = [w * value for w, value in zip(weights, row, strict=True)]
    return [w / sum(weights) for w in weights]


def exact_law(graph, i, x):
    """The conditional law, to fifty digits."""
    with decimal.localcontext(prec=60):
        logs = []
        for a in range(int(graph.cardinalities[i])):
            state = [a if v == i else int(s) for v, s in enumerate(x)]
            entries = [graph.factor(k) for k in range(graph.n_factors)]
            values = [float(table[tuple(state[v] for v in scope)]) for scope, table in entries if i in scope]
            logs.append(None if -np.inf in values else sum(map(decimal.Decimal, values), decimal.Decimal(0)))
        top = max(value for value in logs if value is not None)
        weights = [Fraction(0) if value is None else Fraction((value - top).exp()) for value in logs]
    return [w / sum(weights) for w in weights]


def excess(model, kernel):
    """The largest distance of a law from the exact one, over its bound."""
    graph, worst = model.to_factor_graph(), 0.0
    states = all_states(graph)
    for state in states[graph.log_density(states) > -np.inf][:20]:
        for i in range(graph.n_variables):
            pairs = zip(law(kernel, i, state), exact_law(graph, i, state), strict=True)
            distance = sum(abs(a - b) for a, b in pairs) / 2
            worst = max(worst, float(distance / Fraction(float(kernel.error[i]))))
    return worst


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("family", ["potts", "pairwise", "spins", "factors"])
@pytest.mark.parametrize("strength", [1e-9, 1.0, 15.0])
def test_the_stated_error_holds_and_a_smaller_one_would_not(family, limits, strength, monkeypatch):
    rng = np.random.default_rng(17)
    limit(monkeypatch, LIMITS[limits])
    for zeros in (False, True):
        model = random_model(rng, family, n=4, zeros=zeros, strength=strength, max_states=4, density=0.9)
        scan = db.Scan.systematic(4, 4)
        kernel = choose_kernel(model, scan, 1, "conditional")
        assert excess(model, kernel) < 1
        if zeros or strength > 1:  # states that are almost certain hide errors
            continue
        # Negative control: tables that are off by some times the bound are found out.
        off = np.where(np.arange(kernel.groups.table.size) % 2, 1.0, 1.0 - 64 * kernel.error.max())
        object.__setattr__(kernel, "groups", kernel.groups._replace(table=kernel.groups.table * off))
        assert excess(model, kernel) > 1


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("family", FAMILIES_WITH_ZEROS)
@given(seed=SEEDS)
@settings(max_examples=6)
def test_forbidden_states_have_no_chance(family, limits, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=4, zeros=True, max_states=4)
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, LIMITS[limits])
        kernel = choose_kernel(model, db.Scan.systematic(4, 4), 1, "conditional")
    states = all_states(model)
    for state in states[model.log_density(states) > -np.inf][:40]:
        for i in range(4):
            chances, exact = law(kernel, i, state), model.conditional(i, state)
            assert [p == 0 for p in chances] == [p == 0 for p in exact.tolist()]


def test_a_hub_with_more_neighbours_than_a_mask_has_bits():
    rng = np.random.default_rng(3)
    leaves = 70
    pairs = [((k, 0) if k % 2 else (0, k), 0.3 * rng.normal(size=(3, 3))) for k in range(1, leaves + 1)]
    triples = [((0, 1, 2), 0.3 * rng.normal(size=(3, 3, 3))), ((0,), rng.normal(size=3))]
    model = db.FactorGraph([3] * (leaves + 1), [*pairs, *triples])
    scan = db.Scan([0, 1, 2, 0, 5, 70, 0])
    fast, slow = (db.sample(model, scan, chains=500, seed=1, kernel=name).states for name in ("conditional", "factors"))
    assert (fast == slow).all()
    counts = np.diff(choose_kernel(model, scan, 1, "conditional").groups.g_start)
    assert (counts[0], counts[1]) == (leaves + 1, 1)


def test_tables_are_kept_small(monkeypatch):
    rng = np.random.default_rng(0)
    grid = np.argwhere(np.triu(db.Ising.grid(6, 6, couplings=1.0).couplings.toarray()))
    model = db.PairwiseMRF(rng.normal(size=(36, 8)), grid, rng.normal(size=(len(grid), 8, 8)))
    scan = db.Scan.systematic(36, 72)
    groups = choose_kernel(model, scan, 1, "conditional").groups
    sizes = np.diff([*groups.first, groups.table.size])
    assert sizes.max() <= labels.MAX_WHOLE_CELLS
    whole = db.sample(model, scan, chains=100, seed=1, kernel="conditional")
    monkeypatch.setattr(labels, "MAX_TABLE_CELLS", 20_000)
    model._form.memory.forget(WHOLE_KERNEL)
    small = choose_kernel(model, scan, 1, "conditional").groups
    assert small.table.size <= 20_000 < groups.table.size
    assert (db.sample(model, scan, chains=100, seed=1, kernel="conditional").states == whole.states).all()


def test_when_it_is_taken():
    rng = np.random.default_rng(0)
    model = random_model(rng, "factors", n=6, max_states=4, density=0.9)
    scan = db.Scan.systematic(6, 60)
    assert db.sample(model, scan, chains=1000, seed=1).kernel == "conditional"
    assert db.sample(model, db.Scan([0]), seed=1).kernel == "factors"  # too short to pay for tables
    # Products of weights that differ by more than a double can hold.
    strong = db.PairwiseMRF(np.zeros((3, 3)), [(0, 1), (1, 2)], 600.0 * np.eye(3))
    assert db.sample(strong, db.Scan.systematic(3, 300), chains=1000, seed=1).kernel == "factors"
    with pytest.raises(db.ArgumentError, match="one of 'factors' for this model and scan"):
        db.sample(strong, scan[:3], kernel="conditional")


def test_many_labels():
    model = db.PairwiseMRF(np.zeros((2, 300)), [(0, 1)], [np.random.default_rng(0).normal(size=(300, 300))])
    scan = db.Scan.systematic(2, 6)
    run = db.sample(model, scan, chains=100, seed=0, kernel="conditional")
    expected = reference.sample(model, scan, 100, master_key(np.random.SeedSequence(0)), "conditional")
    assert (run.states == expected).all()
    assert run.states.max() > 127
