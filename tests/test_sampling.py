"""Sampling: right draws, the same draws whoever makes them, and nothing more than is needed."""

import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dobrushin as db
import reference
from dobrushin._kernels import bits, generator
from dobrushin._sampling import batches, start
from dobrushin._sampling.kernel import KERNELS, choose_kernel
from dobrushin._sampling.sampler import ChainSource
from dobrushin._sampling.start import allowed_state
from dobrushin._scan import Cycle
from dobrushin._shared.running import master_key
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

SEEDS = st.integers(0, 10**6)


def digits(model, states):
    return (np.asarray(states, dtype=int) + 1) // 2 if isinstance(model, db.Ising | db.SpinMRF) else np.asarray(states)


def possible(model, scan):
    """The kernels that can run this."""
    names = []
    for name in KERNELS:
        try:
            db.sample(model, scan, kernel=name, seed=0)
            names.append(name)
        except db.ArgumentError:
            continue
    return names


# -- the generator ---------------------------------------------------------------------------


def test_known_answers_of_the_generator():
    """The first outputs of SplitMix64 from the state 1234567, as published with other implementations of it."""
    states = [np.uint64((1234567 + k * reference.GOLDEN) % 2**64) for k in range(1, 6)]
    words = [int(generator.mix(state)) for state in states]
    assert words == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_frozen_draws():
    """These change only when the generator or the meaning of its bits does: then old seeds give other runs."""
    model = db.Ising.grid(3, 3, couplings=0.3, fields=0.1)
    scan = db.Scan.systematic(9, 27)
    for kernel, expected in (("bits", FROZEN_BITS), ("table", FROZEN_CHAIN), ("field", FROZEN_CHAIN)):
        states = db.sample(model, scan, chains=3, seed=42, kernel=kernel).states
        assert ["".join("+" if s > 0 else "-" for s in row) for row in states] == expected


FROZEN_BITS = ["++-+++--+", "+--+-+---", "---+---++"]
FROZEN_CHAIN = ["+----+---", "----++++-", "------+--"]


@given(seed=SEEDS)
@settings(max_examples=20)
def test_streams_are_the_reference_ones(seed):
    master = master_key(np.random.SeedSequence(seed))
    keys = generator.streams(master[0], master[1], 5, 40)
    for s in range(40):
        assert (int(keys[0, s]), int(keys[1, s])) == reference.stream(master, 5 + s)
    assert (keys[1] & np.uint64(1)).all()


def relations(words):
    """The largest sums of signs: of lanes, neighbouring lanes, steps and blocks; `words` is (counters, blocks)."""
    lanes = (words.T[:, None, :] >> np.arange(64, dtype=np.uint64)[:, None]) & np.uint64(1)
    signs = 2.0 * lanes.astype(np.int8) - 1.0  # (blocks, lanes, counters)
    products = {
        "fair": signs,
        "lanes": signs[:, 1:] * signs[:, :-1],
        "steps": signs[..., 1:] * signs[..., :-1],
        "blocks": signs[1:] * signs[:-1],
    }
    return {name: float(np.abs(product.sum(axis=-1)).max()) for name, product in products.items()}


@pytest.mark.slow
def test_single_random_bits_are_fair_and_independent():
    """Bit-parallel chains use single bits: lanes, neighbouring lanes, planes and blocks must not be related."""
    keys = generator.streams(np.uint64(7), np.uint64(8), 0, 4)
    counters = np.arange(200_000)
    limit = 6.5 * np.sqrt(len(counters))  # alpha below 1e-9 for each of some hundred sums

    def draw(counters, keys):
        x = np.zeros((len(counters), 4), dtype=np.uint64)
        bits.start_bits(counters, keys, x)  # 64 bits for each counter and block
        return x

    words = draw(counters, keys)
    assert max(relations(words).values()) < limit
    # Negative controls: each relation is found in a generator that is broken that way.
    assert relations(words | np.roll(words, 1, axis=0))["fair"] > limit
    assert relations(words & ~np.uint64(2) | (words & np.uint64(1)) << np.uint64(1))["lanes"] > limit
    assert relations(draw(counters // 2, keys))["steps"] > limit
    assert relations(draw(counters, np.ascontiguousarray(keys[:, [0, 0, 1, 2]])))["blocks"] > limit


# -- right draws -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=25)
def test_draws_are_those_of_the_slow_reference(family, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=int(rng.integers(1, 7)), strength=float(rng.choice([0.3, 2.0])))
    n = model.n_variables
    scan = db.Scan(rng.integers(n, size=int(rng.integers(1, 20)))) + db.Scan.systematic(
        n, int(rng.integers(1, 3 * n + 1))
    )
    scan = scan[int(rng.integers(0, len(scan))) :] + db.Scan.systematic(n, 2 * n)[1:] if n > 1 else scan
    sequence = np.random.SeedSequence(seed)
    for kernel in possible(model, scan):
        run = db.sample(model, scan, chains=3, seed=sequence, kernel=kernel)
        expected = reference.sample(model, scan, 3, master_key(sequence), kernel)
        seen = [model.index(label) for label in run.variables]
        assert (digits(model, run.states) == expected[:, seen]).all(), kernel


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=10)
def test_random_scans_are_those_of_the_slow_reference(family, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=4)
    scan = db.Scan.uniform(4, 9) + db.Scan([1, 2]) + db.Scan.random([0.5, 0, 0.25, 0.25], 7)
    sequence = np.random.SeedSequence(seed)
    kernels = possible(model, scan)
    assert "bits" not in kernels
    for kernel in kernels:
        run = db.sample(model, scan, chains=3, seed=sequence, kernel=kernel)
        assert (digits(model, run.states) == reference.sample(model, scan, 3, master_key(sequence), kernel)).all()


@pytest.mark.parametrize("degree", range(8))
def test_every_degree(degree):
    """A star, whose centre has that many neighbours: narrow and wide tables, and none."""
    rng = np.random.default_rng(degree)
    model = db.Ising({(0, k): float(rng.normal()) for k in range(1, degree + 1)}, fields=rng.normal(size=degree + 1))
    scan = db.Scan.systematic(degree + 1, 3 * (degree + 1))
    sequence = np.random.SeedSequence(degree)
    kernels = possible(model, scan)
    assert ("bits" in kernels) == (degree <= 6)
    for kernel in kernels:
        run = db.sample(model, scan, chains=70, seed=sequence, kernel=kernel)
        assert (digits(model, run.states) == reference.sample(model, scan, 70, master_key(sequence), kernel)).all()


def test_many_labels():
    model = db.PairwiseMRF(np.zeros((2, 300)), [(0, 1)], [np.random.default_rng(0).normal(size=(300, 300))])
    run = db.sample(model, db.Scan.systematic(2, 6), chains=100, seed=0)
    expected = reference.sample(model, db.Scan.systematic(2, 6), 100, master_key(np.random.SeedSequence(0)), "factors")
    assert (run.states == expected).all()
    assert run.states.max() > 127


def deviation(model, law, states):
    """Largest difference between a frequency and its probability, in standard deviations."""
    cells = np.ravel_multi_index(tuple(digits(model, states).T), law.shape)
    p = law.ravel()
    frequency = np.bincount(cells, minlength=law.size) / len(states)
    spread = np.sqrt(np.maximum(p * (1 - p), 1e-300) / len(states))
    return np.where(
        (p > 0) & (p < 1), np.abs(frequency - p) / spread, np.where(np.abs(frequency - p) > 1e-12, np.inf, 0)
    ).max()


@pytest.mark.parametrize("random_scan", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_law_after_a_scan_is_the_exact_one(family, random_scan):
    """Joint frequencies of all states: marginals and correlations of every order at once."""
    rng = np.random.default_rng(5)
    model = random_model(rng, family, n=3, density=1.0)
    scan = db.Scan.random([0.5, 0.2, 0.3], 6) if random_scan else db.Scan([0, 1, 2, 1, 0])
    law = db.exact.law(model, scan)
    other = db.exact.law(model, scan[:2])
    for kernel in possible(model, scan):
        states = db.sample(model, scan, chains=40_000, seed=11, kernel=kernel).states
        assert deviation(model, law, states) < 6.5
        # Negative control: the law after the first two steps is told apart.
        assert deviation(model, other, states) > 6.5


def test_self_check_finds_nothing_wrong_and_can_find_something(monkeypatch):
    results = db.self_check(chains=20_000)
    assert {result.kernel for result in results} == set(KERNELS)
    assert all(result.ok for result in results)
    real = db.exact.law

    def shorter(model, scan, initial):
        return real(model, scan[:2], initial=initial)

    monkeypatch.setattr("dobrushin._exact.enumeration.law", shorter)
    assert not all(result.ok for result in db.self_check(chains=20_000))


# -- forbidden states --------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES_WITH_ZEROS)
@given(seed=SEEDS)
@settings(max_examples=20)
def test_forbidden_states_are_never_visited(family, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=5, zeros=True)
    states = all_states(model)
    allowed = states[model.log_density(states) > -np.inf]
    start = allowed[rng.integers(len(allowed))]
    scan = db.Scan.systematic(5, 40)
    for chains in (1, 80):
        run = db.sample(model, scan, chains=chains, seed=seed, initial=start, record=db.Record(every=1))
        assert (model.log_density(run.states.astype(int)) > -np.inf).all()


@pytest.mark.parametrize("family", FAMILIES_WITH_ZEROS)
@given(seed=SEEDS)
@settings(max_examples=20)
def test_only_forbidden_uniform_starts_are_replaced(family, seed):
    """Before the first update that matters, a chain is where it would be in a model without zeros, or allowed."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=5, zeros=True)
    scan = db.Scan.systematic(5, 40)
    kernels = [name for name in KERNELS if KERNELS[name].fits(*made_for(model, scan))]
    for kernel in kernels:
        few, run = (
            db.sample(model, scan, chains=n, seed=seed, kernel=kernel, record=db.Record(every=1)) for n in (3, 80)
        )
        assert (model.log_density(run.states.astype(int)) > -np.inf).all()
        np.testing.assert_array_equal(few.states, run.states[:3])
        if run._start == "uniform where allowed":
            assert repr(run).endswith(f"seed={seed}, start='uniform where allowed')")
            uniform = uniform_starts(model, kernel, scan, 80, seed)
            fine = model.log_density(uniform) > -np.inf
            given = db.sample(
                model, scan, chains=80, seed=seed, kernel=kernel, record=db.Record(every=1),
                initial=np.where(fine[:, None], uniform, allowed_state(model._form)),
            )  # fmt: skip
            np.testing.assert_array_equal(run.states, given.states)
            assert given._start == "given"


def made_for(model, scan):
    form, region = model._region(scan._updates(model.n_variables))
    return form, scan, region


def uniform_starts(model, kernel, scan, chains, seed):
    runner = choose_kernel(model, scan, chains, kernel)
    x = runner.start(master_key(np.random.SeedSequence(seed)), range(chains))
    return runner.read(x, np.arange(model.n_variables), chains).T.astype(int)


def test_colourings_are_drawn_without_a_start(tmp_path):
    """Almost no uniform state of the grid is a proper colouring."""
    edges = np.argwhere(np.triu(db.Ising.grid(6, 6, couplings=1.0).couplings.toarray()))
    differ = np.where(np.eye(5, dtype=bool), -np.inf, 0.0)
    colours = db.PairwiseMRF(np.zeros((36, 5)), edges, differ)
    run = db.sample(colours, db.Scan.systematic(36, 360), chains=200, seed=1)
    assert (run.states[:, edges[:, 0]] != run.states[:, edges[:, 1]]).all()
    with ProcessPoolExecutor(2) as pool:
        there = db.sample(colours, db.Scan.systematic(36, 360), chains=200, seed=1, run=db.RunOptions(executor=pool))
    np.testing.assert_array_equal(run.states, there.states)
    run.save(tmp_path / "run.npz")
    assert db.Samples.load(tmp_path / "run.npz")._start == run._start == "uniform where allowed"


def test_starts_are_uniform_where_nothing_near_is_forbidden():
    tables = [np.zeros((2, 2)), np.zeros((2, 2)), np.array([[0.0, -np.inf], [-np.inf, -np.inf]])]
    model = db.FactorGraph([2] * 4, [((0, 1), tables[0]), ((1, 2), tables[1]), ((2, 3), tables[2])])
    assert db.sample(model, db.Scan([0, 1]), chains=100, seed=1)._start == "uniform"
    run = db.sample(model, db.Scan([0, 1, 2]), chains=100, seed=1)
    assert run._start == "uniform where allowed"
    assert (run.states[:, 2:] == 0).all()
    assert db.sample(db.Ising.grid(3, 3), db.Scan([0]), seed=1)._start == "uniform"


def test_a_model_that_allows_nothing_is_named(monkeypatch):
    never = db.PairwiseMRF(np.zeros((2, 2)), [(0, 1)], np.full((2, 2), -np.inf))
    with pytest.raises(db.ArgumentError, match=r"'model' argument of dobrushin\.sample .* allows some joint state"):
        db.sample(never, db.Scan([0, 1]))
    gas = db.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (1, 2)], np.array([[-np.inf, 0.0], [0.0, -np.inf]]))
    monkeypatch.setattr(start, "_MAX_LOOKS", 0)
    monkeypatch.setattr(start, "_MAX_REPAIRS", 0)
    with pytest.raises(db.ArgumentError, match=r"'initial' .*the search for one gave up, so pass one as initial="):
        db.sample(gas, db.Scan([0, 1, 2]), chains=100, seed=1)


RAGGED = [[1] * 9, [1]]


@pytest.mark.parametrize("value", [None, 1.0, object(), RAGGED, [[1], RAGGED], "nonsense", {}, True])
def test_starts_that_are_none_are_named(value):
    model = db.Ising.grid(3, 3)
    for initial in (value, lambda _: value):
        with pytest.raises(db.ArgumentError, match=r"'initial' .* states or a function that returns them"):
            db.sample(model, db.Scan([0]), chains=2, initial=initial)


def test_a_forbidden_start_is_named():
    repel = np.array([[0.0, 0.0], [0.0, -np.inf]])
    gas = db.PairwiseMRF([[0, 0]] * 3, [(0, 1), (1, 2)], repel, labels=["a", "b", "c"])
    with pytest.raises(db.ArgumentError, match=r"'initial' .*forbidden: 'b' = 1, 'c' = 1.* chain 0"):
        db.sample(gas, db.Scan([0, 1, 2]), initial=[0, 1, 1])
    run = db.sample(gas, db.Scan.systematic(3, 30), chains=1000, seed=0, initial="mode")
    assert run.kernel == "bits"
    assert not ((run.states[:, 0] == 1) & (run.states[:, 1] == 1)).any()


# -- the same draws whoever makes them -------------------------------------------------------------


def test_more_chains_than_could_be_listed_begin_at_once():
    """The batches of a call are counted, not gone through: else the time limit of this call would be in vain."""
    samples = db.sample(db.Ising.grid(3, 3, couplings=0.2), db.Scan.systematic(9, 9), chains=10**15, time_limit=0.05)
    assert 0 <= samples.chains < 10**15


def test_draws_do_not_depend_on_chains_batches_or_executors(monkeypatch):
    rng = np.random.default_rng(0)
    for family in FAMILIES:
        model = random_model(rng, family, n=6)
        scan = db.Scan.systematic(6, 50)
        for kernel in possible(model, scan):
            whole = db.sample(model, scan, chains=300, seed=9, kernel=kernel).states
            assert (db.sample(model, scan, chains=70, seed=9, kernel=kernel).states == whole[:70]).all()
            assert (db.sample(model, scan, chains=1, seed=9, kernel=kernel).states == whole[:1]).all()
            with ThreadPoolExecutor(3) as pool:
                assert (
                    db.sample(model, scan, chains=300, seed=9, kernel=kernel, run=db.RunOptions(executor=pool)).states
                    == whole
                ).all()
            with monkeypatch.context() as patch:
                patch.setattr("dobrushin._sampling.batches.CHUNK", 7)
                patch.setattr("dobrushin._sampling.batches.SWEEPS", 1)
                assert (db.sample(model, scan, chains=300, seed=9, kernel=kernel).states == whole).all()
            assert (db.sample(model, scan, chains=300, seed=10, kernel=kernel).states != whole).any()


def test_other_processes_draw_the_same():
    model = db.Potts.grid(4, 4, states=3, couplings=0.4)
    scan = db.Scan.systematic(16, 64)
    with ProcessPoolExecutor(2) as pool:
        there = db.sample(model, scan, chains=200, seed=3, run=db.RunOptions(executor=pool), initial="mode")
    assert (there.states == db.sample(model, scan, chains=200, seed=3, initial="mode").states).all()


def test_levels_do_not_change_the_draws():
    """Steps that commute are computed in another order; their random bits belong to them."""
    model = db.Ising.grid(30, 30, couplings=0.3, fields=0.1)
    scan = db.Scan.systematic(900, 2000)
    fast = db.sample(model, scan, seed=4, kernel="field").states
    pieces = db.Scan(scan.order[:900]) + db.Scan(scan.order[900:1800]) + db.Scan(scan.order[1800:])
    assert (db.sample(model, pieces, seed=4, kernel="field").states == fast).all()
    assert (db.sample(model, scan, seed=4, kernel="table").states == fast).all()


@pytest.mark.parametrize("name", ["field", "potts"])
@pytest.mark.parametrize("seed", range(12))
def test_waves_make_the_draws_of_single_steps(name, seed):
    """Many sweeps at once, on grids, tori, random graphs, shuffled cycles and parts of a model."""
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        size = 24 * 29 + 23 * 30
        model = db.Ising.grid(24, 30, couplings=rng.normal(size=size) * 0.3, fields=rng.normal(size=(24, 30)))
    elif seed % 3 == 1:
        model = db.Ising.grid(40, 40, couplings=0.3, fields=rng.normal(size=(40, 40)), periodic=True)
    else:
        edges = {tuple(sorted(pair)) for pair in rng.integers(1000, size=(2500, 2)).tolist() if pair[0] != pair[1]}
        model = db.Ising({edge: float(rng.normal() * 0.2) for edge in edges}, fields=rng.normal(size=1000))
    n = model.n_variables
    if name == "potts":
        model = db.Potts(model.couplings, 4, unaries=rng.normal(size=(n, 4)))
    cycle = rng.permutation(n) if seed % 2 else np.arange(n)
    cycle = cycle[: n - 7] if seed % 4 == 3 else cycle  # seven variables keep their start
    scan = db.Scan._of((Cycle(cycle.astype(np.int64), 3, 40 * len(cycle) + 11),))
    kernel = choose_kernel(model, scan, 2, name)
    fast, _ = ChainSource(model, kernel, scan, np.random.SeedSequence(seed)).draw(range(2))
    [wave] = [made for (what, _), made in kernel.orders.items() if what == "wave"]
    assert wave is not None
    sweeps = [scan[k : k + len(cycle)] for k in range(0, len(scan), len(cycle))]
    slow = db.sample(model, reduce(db.Scan.__add__, sweeps), chains=2, seed=seed, kernel=name)
    assert (fast.states == slow.states).all()


def test_the_exponential_of_waves():
    import decimal

    from dobrushin._kernels.elementary import exponential

    rng = np.random.default_rng(0)
    worst = 0.0
    with decimal.localcontext(prec=40):
        for t in np.concatenate(
            [rng.uniform(-690, 690, 3000), rng.normal(size=2000), np.log(2) * (np.arange(60) - 30.5)]
        ):
            true = decimal.Decimal(float(t)).exp()
            worst = max(worst, abs(float(decimal.Decimal(float(exponential(float(t)))) / true - 1)))
    assert worst < 2.0**-48


def test_a_seed_that_was_not_given_is_kept():
    model = db.Ising.grid(3, 3, couplings=0.1)
    run = db.sample(model, db.Scan.systematic(9, 9), chains=5)
    again = db.sample(model, db.Scan.systematic(9, 9), chains=5, seed=run.seed)
    assert (run.states == again.states).all()


# -- nothing more than is needed -----------------------------------------------------------------


def test_only_what_the_scan_touches_is_simulated():
    small, large = (db.Ising.grid(k, k, couplings=0.2) for k in (30, 300))
    scan = db.Scan([0, 1, 0])
    run = db.sample(large, scan, chains=1000, seed=1)
    assert list(run.variables) == [0, 1, 2, 300, 301]
    assert run.states.shape == (1000, 5)
    assert (run.update_error > 0).sum() == 2
    same = db.sample(small, scan, chains=1000, seed=1, record=[0, 1])
    # The start of a variable belongs to its position: 0 and 1 see the same random bits, their other neighbours not.
    assert same.states.shape == (1000, 2)
    with pytest.raises(db.ArgumentError, match=r"'record' .* Got 17"):
        db.sample(large, scan, record=[0, 17])


@pytest.mark.parametrize("states", [None, 3])
def test_models_that_are_never_made_as_a_whole_give_the_same_draws(states):
    def couplings(edges):
        return 0.15 + 0.05 * np.sin(edges)

    def potentials(variables):
        return np.cos(variables) if states is None else np.cos(np.outer(variables, np.arange(states)))

    edges, sites = couplings(np.arange(2 * 40 * 39)), potentials(np.arange(1600))
    if states is None:
        part = db.Ising.grid(40, 40, couplings=couplings, fields=potentials)
        whole = db.Ising.grid(40, 40, couplings=edges, fields=sites.reshape(40, 40))
    else:
        part = db.Potts.grid(40, 40, states=3, couplings=couplings, unaries=potentials)
        whole = db.Potts.grid(40, 40, states=3, couplings=edges, unaries=sites.reshape(40, 40, 3))
    scan = db.shortest_scan(part, [820], tolerance=0.05).scan
    for options in ({"chains": 100}, {"initial": "mode"}, {"record": db.Record([820], every=2, counts=True)}):
        for kernel in possible(whole, scan):
            near, far = (db.sample(model, scan, seed=4, kernel=kernel, **options) for model in (part, whole))
            assert (near.states == far.states).all()
            assert near.update_error == far.update_error.max()  # no array over a model that is never made
            assert list(near.variables) == list(far.variables)
    near, far = (db.coalescence(model, scan, [820], runs=200, seed=4) for model in (part, whole))
    assert (near.value, near.update_error, near.kernel) == (far.value, far.update_error, far.kernel)


def test_records():
    model = db.Potts.grid(2, 3, states=3, couplings=0.4)
    scan = db.Scan.systematic(6, 20)
    every = db.sample(model, scan, chains=90, seed=2, record=db.Record(every=6, counts=True))
    assert every.states.shape == (90, 3, 6)
    for draw in range(3):
        part = db.sample(model, scan[: 6 * (draw + 1)], chains=90, seed=2, kernel=every.kernel)
        assert (every.states[:, draw] == part.states).all()
    expected = np.stack([(every.states == k).sum(axis=(0, 1)) for k in range(3)], axis=1)
    assert (every.counts == expected).all()
    assert every.marginals() == pytest.approx(expected / 270)
    counts = db.sample(model, scan, chains=90, seed=2, record="counts")
    assert counts.states is None
    final = db.sample(model, scan, chains=90, seed=2)
    assert counts.marginals() == pytest.approx(final.marginals())
    chosen = db.sample(model, scan, chains=90, seed=2, record=[5, 1])
    assert (chosen.states == final.states[:, [5, 1]]).all()
    with pytest.raises(db.ArgumentError, match="keeps states"):
        counts.mean(lambda x: x)


def test_bits_are_counted_to_the_last_chain():
    model = db.Ising.grid(3, 3, couplings=0.2, fields=0.3)
    scan = db.Scan.systematic(9, 18)
    for chains in (1, 63, 64, 65, 127, 128, 5000):
        run = db.sample(model, scan, chains=chains, seed=8, kernel="bits", record=db.Record(counts=True))
        assert (run.counts.sum(axis=1) == chains).all()
        assert (run.counts[:, 1] == (run.states == 1).sum(axis=0)).all()


def test_starts():
    scan = db.Scan([1, 2])
    model = db.Ising({(0, 1): 0.1, (1, 2): 0.1, (2, 3): 0.1}, fields=[1.0, 0, 0, -1.0])
    ends = [0, 3]
    own = np.array([[1, 1, 1, 1], [-1, 1, 1, -1], [1, 1, 1, -1]])
    for kernel in possible(model, scan):
        assert (db.sample(model, scan, chains=3, initial="mode", kernel=kernel).states[:, ends] == [1, -1]).all()
        assert (db.sample(model, scan, chains=3, initial=[-1, 1, 1, -1], kernel=kernel).states[:, ends] == -1).all()
        assert (db.sample(model, scan, chains=3, initial=own, kernel=kernel).states[:, ends] == own[:, ends]).all()
        made = db.sample(model, scan, chains=3, initial=lambda which: own[which], kernel=kernel)
        assert (made.states[:, ends] == own[:, ends]).all()
        uniform = db.sample(model, scan, chains=20_000, seed=0, kernel=kernel).states[:, ends]
        assert np.abs(uniform.mean(axis=0)).max() < 6.5 / np.sqrt(20_000)
    with pytest.raises(db.ArgumentError, match="'initial'"):
        db.sample(model, scan, initial="best")
    with pytest.raises(db.ArgumentError, match=r"\(3, 4\). Got shape \(2, 4\)"):
        db.sample(model, scan, chains=3, initial=own[:2])


# -- certificates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_stated_error_of_an_update_holds(family):
    """Thresholds and weights against conditionals in higher precision are far inside the stated error."""
    rng = np.random.default_rng(2)
    model = random_model(rng, family, n=4, strength=3.0)
    run = db.sample(model, db.Scan.systematic(4, 4), seed=0)
    assert ((run.update_error > 0) & (run.update_error < 1e-11)).all()
    plain = db.variation(model, run.scan, weights=np.ones(4))
    assert run.variation(model, weights=np.ones(4)).value >= plain.value


# -- files, other libraries ------------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    model = db.Ising({("a", "b"): 0.3, ("b", "c"): 0.1})
    scan = db.Scan.uniform(3, 5) + db.Scan([0, 1])
    run = db.sample(model, scan, chains=7, seed=1, record=db.Record(every=2, counts=True))
    run.save(tmp_path / "run")
    back = db.Samples.load(tmp_path / "run")
    assert (back.states == run.states).all()
    assert (back.counts == run.counts).all()
    assert (back.scan, back.seed, back.kernel, list(back.variables)) == (
        run.scan,
        run.seed,
        run.kernel,
        ["a", "b", "c"],
    )
    (tmp_path / "other").write_bytes(b"nonsense")
    with pytest.raises(db.ArgumentError, match=r"a file that Samples\.save wrote"):
        db.Samples.load(tmp_path / "other")


def test_dataframe_and_arviz():
    pandas = pytest.importorskip("pandas")
    model = db.Ising({("a", "b"): 0.3})
    final = db.sample(model, db.Scan.systematic(2, 6), chains=5, seed=1)
    every = db.sample(model, db.Scan.systematic(2, 6), chains=5, seed=1, record=db.Record(every=2))
    frame = every.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.shape == (15, 2)
    assert frame.loc[(4, 2), "b"] == every.states[4, 2, 1]
    pytest.importorskip("arviz")
    for run, draws in ((final, 1), (every, 3)):
        posterior = run.to_arviz(certificate=run.variation(model, targets=["a"]))["posterior"]
        assert "total variation of 1 target" in posterior.attrs["certificate"]
        assert posterior["x"].dims == ("chain", "draw", "variable")
        assert posterior["x"].shape == (5, draws, 2)
        assert posterior.attrs["kernel"] == run.kernel
        assert posterior.attrs["seed"] == "1"


# -- long runs ---------------------------------------------------------------------------------------------

LONG_RUN = """
import sys
import dobrushin as db
from dobrushin._sampling import batches
from dobrushin._shared import state_file
state_file.SECONDS = 0.05
batches.CHUNK = 200_000
batches.SWEEPS = 1
model = db.Ising.grid(20, 20, couplings=0.3)
keep = db.Record(every=40_000, counts=True)
result = db.sample(model, db.Scan.systematic(400, {steps}), chains=6, seed=5, kernel="table", record=keep,
                   run=db.RunOptions(checkpoint=sys.argv[1]))
result.save(sys.argv[2])
"""


def start_run(tmp_path, steps, name):
    code = textwrap.dedent(LONG_RUN.format(steps=steps))
    arguments = [sys.executable, "-c", code, str(tmp_path / "checkpoint"), str(tmp_path / name)]
    return subprocess.Popen(arguments, stderr=subprocess.DEVNULL)


@pytest.mark.slow
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path):
    steps = 20_000_000
    process = start_run(tmp_path, steps, "never")
    deadline = time.monotonic() + 60
    while not (tmp_path / "checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    process.kill()
    process.wait()
    assert not (tmp_path / "never").exists()
    assert start_run(tmp_path, steps, "resumed").wait(120) == 0
    (tmp_path / "checkpoint").unlink()
    assert start_run(tmp_path, steps, "whole").wait(120) == 0
    resumed, whole = db.Samples.load(tmp_path / "resumed"), db.Samples.load(tmp_path / "whole")
    assert (resumed.states == whole.states).all()
    assert (resumed.counts == whole.counts).all()


def test_checkpoints_of_other_runs_are_refused(tmp_path):
    model = db.Ising.grid(3, 3, couplings=0.3)
    path = tmp_path / "checkpoint"
    first = db.sample(model, db.Scan.systematic(9, 90), chains=3, seed=5, run=db.RunOptions(checkpoint=path))
    again = db.sample(model, db.Scan.systematic(9, 90), chains=3, seed=5, run=db.RunOptions(checkpoint=path))
    assert (first.states == again.states).all()
    unseeded = db.sample(model, db.Scan.systematic(9, 90), chains=3, run=db.RunOptions(checkpoint=path))
    assert unseeded.seed == 5
    keep = db.RunOptions(checkpoint=path)
    for change in ({"seed": 6}, {"chains": 4}):
        with pytest.raises(db.ArgumentError, match="the same run"):
            db.sample(model, db.Scan.systematic(9, 90), **{"chains": 3, "seed": 5, "run": keep, **change})
    with pytest.raises(db.ArgumentError, match="the same run"):
        db.sample(
            db.Ising.grid(3, 3, couplings=0.2),
            db.Scan.systematic(9, 90),
            chains=3,
            seed=5,
            run=db.RunOptions(checkpoint=path),
        )
    path.write_bytes(b"broken")
    with pytest.raises(db.ArgumentError, match="an earlier run wrote"):
        db.sample(model, db.Scan.systematic(9, 90), chains=3, seed=5, run=db.RunOptions(checkpoint=path))


def test_every_part_of_a_run_names_its_checkpoint(tmp_path, monkeypatch):
    """What changes the draws in any way makes it another run, however long the arrays are."""
    model = db.Ising.grid(4, 4, couplings=0.2)
    order = np.arange(3008) % 16
    other = order.copy()
    other[10:-3] = np.random.default_rng(0).permutation(other[10:-3])
    one, two = np.random.SeedSequence(5).spawn(2)
    graphs = [db.Potts({(0, 1): 1.0, (2, 3): 1.0}, 3), db.Potts({(0, 2): 1.0, (1, 3): 1.0}, 3)]
    cases = [
        [(model, db.Scan([0]), {"initial": sign * np.ones(16), "seed": 1}) for sign in (1, -1)],
        [(model, db.Scan(o), {"seed": 1}) for o in (order, other)],
        [(model, db.Scan([0]), {"seed": s}) for s in (one, two)],
        [(graph, db.Scan.systematic(4, 40), {"seed": 1}) for graph in graphs],
    ]
    for k, (first, second) in enumerate(cases):
        path = tmp_path / str(k)
        db.sample(*first[:2], chains=64, run=db.RunOptions(checkpoint=path), **first[2])
        with pytest.raises(db.ArgumentError, match="the same run"):
            db.sample(*second[:2], chains=64, run=db.RunOptions(checkpoint=path), **second[2])
    # Another number of cores is the same run.
    before = db.sample(model, db.Scan([0, 1]), chains=640, seed=1, run=db.RunOptions(checkpoint=tmp_path / "cores"))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    after = db.sample(model, db.Scan([0, 1]), chains=640, seed=1, run=db.RunOptions(checkpoint=tmp_path / "cores"))
    assert (before.states == after.states).all()


def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_run(tmp_path):
    model = db.Ising.grid(3, 3, couplings=0.2)
    for path in (tmp_path, tmp_path / "no" / "such", 5):
        with pytest.raises(db.ArgumentError, match="'checkpoint'"):
            db.sample(model, db.Scan.systematic(9, 10**15), run=db.RunOptions(checkpoint=path))


def test_spawned_seeds_repeat_their_runs(tmp_path):
    model = db.Ising.grid(3, 3, couplings=0.2)
    runs = [db.sample(model, db.Scan.systematic(9, 9), chains=9, seed=s) for s in np.random.SeedSequence(5).spawn(2)]
    assert (runs[0].states != runs[1].states).any()
    for run in runs:
        run.save(tmp_path / "run")
        back = db.Samples.load(tmp_path / "run")
        again = db.sample(model, db.Scan.systematic(9, 9), chains=9, seed=back.seed)
        assert (again.states == run.states).all()
    merged = model.merge([[0, 1]])
    odd = db.sample(merged, db.Scan([0, 1]), chains=3, seed=np.random.SeedSequence([1, 2]))
    odd.save(tmp_path / "odd")
    assert list(db.Samples.load(tmp_path / "odd").variables) == list(odd.variables)
    assert (0, 1) in odd.variables


def test_a_generator_is_a_seed_by_its_state():
    model, scan = db.Ising.grid(3, 3, couplings=0.2), db.Scan.systematic(9, 90)
    how = {"method": "dobrushin", "tolerance": 0.1}
    calls = [
        lambda seed: db.sample(model, scan, chains=70, seed=seed).states,
        lambda seed: db.exact_sample(model, [0, 1], 70, seed=seed).states,
        lambda seed: db.coalescence(model, scan, [0], runs=500, seed=seed).seed,
        lambda seed: db.estimate(model, [0], seed=seed, **how).value,
        lambda seed: db.estimate_many(model, [([0], None)], seed=seed, **how)[0].value,
        lambda seed: db.fit(model, np.ones((5, 9)), iterations=1, seed=seed).seed,
    ]
    for call in calls:
        rng = np.random.default_rng(5)
        first, second = call(rng), call(rng)
        assert not np.array_equal(first, second)  # the calls have moved it on
        assert np.array_equal(first, call(np.random.default_rng(5)))
    run = db.sample(model, scan, chains=70, seed=np.random.default_rng(5))
    assert isinstance(run.seed, int)
    assert np.array_equal(run.states, db.sample(model, scan, chains=70, seed=run.seed).states)


def test_a_function_is_asked_once_for_each_chain_and_its_answer_checked():
    hard = db.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (1, 2)], np.array([[0, 0], [0, -np.inf]]))
    asked = []

    def start(chains):
        asked.extend(chains.tolist())
        return np.zeros((len(chains), 3), dtype=int)

    db.sample(hard, db.Scan([0, 1]), chains=500, seed=1, initial=start)
    assert sorted(asked) == list(range(500))
    with pytest.raises(db.ArgumentError, match="forbidden"):
        db.sample(hard, db.Scan([0, 1]), chains=5, initial=lambda chains: np.ones((len(chains), 3), dtype=int))


def test_random_choices_are_as_exact_as_stated():
    from dobrushin._kernels.labels import partial_sums

    rng = np.random.default_rng(0)
    for q in (rng.dirichlet(np.full(2000, 0.3)), np.array([0.0, 0.25, 0.0, 0.75, 0.0]), np.full(1000, 1e-3)):
        q = q / q.sum()
        thresholds, last = partial_sums(q)
        exact = 0
        for i in range(last):
            exact += Fraction(float(q[i]))
            assert abs(Fraction(int(thresholds[i]), 2**64) - exact) < Fraction(4, 2**64)
        assert last == np.flatnonzero(q)[-1]
    model = db.Ising.grid(3, 3, couplings=0.1)
    fixed = db.sample(model, db.Scan.systematic(9, 9), seed=0, kernel="table").update_error
    random = db.sample(model, db.Scan.uniform(9, 9), seed=0, kernel="table").update_error
    assert random == pytest.approx(fixed + 9 * 2.0**-62, rel=1e-9)
    assert (random > fixed).all()


def test_errors_are_bounds_that_certificates_take():
    for model in (
        db.Ising({(0, 1): 1e100, (0, 2): -1e100}, fields=[0.3, 0, 0]),
        db.Potts({(0, 1): 1.0}, 3, unaries=[[1e17, 1e17 + 16, 1e17], [0, 1, 2.0]]),
    ):
        run = db.sample(model, db.Scan([0]), chains=20, seed=1)
        assert run.update_error.max() <= 1
        with pytest.warns(db.VacuousBoundWarning):
            assert run.variation(model).value >= 1


def test_shapes_do_not_depend_on_luck():
    model = db.Potts({(0, 1): 0.3, (1, 2): 0.4}, 5)
    for seed in range(6):
        assert db.sample(model, db.Scan.systematic(3, 9), seed=seed).marginals().shape == (3, 5)
    keep = db.Record(variables=(label for label in (0, 2)))
    for _ in range(2):
        assert db.sample(model, db.Scan.systematic(3, 9), record=keep).states.shape == (1, 2)


def test_wide_terms_are_refused_in_one_sentence():
    wide = db.SpinMRF({tuple(range(25)): 0.3, (25, 26): 0.5})
    with pytest.raises(db.ArgumentError, match="without terms of more than 20 variables"):
        db.sample(wide, db.Scan([25]))


@pytest.mark.parametrize(
    "wrong",
    [{"run": 5}, {"seed": -1}, {"seed": 0.5}, {"chains": 0}, {"kernel": "best"}, {"kernel": "potts"},
     {"initial": np.full(16, np.nan)}, {"initial": np.ones(15)}, {"initial": "no"}, {"record": 5}, {"record": "all"},
     {"record": db.Record(every=100)}],
    ids=str,
)  # fmt: skip
def test_wrong_arguments(wrong):
    name = next(iter(wrong))
    with pytest.raises(db.ArgumentError, match=f"The '{name}' argument of dobrushin.sample"):
        db.sample(db.Ising.grid(4, 4, couplings=0.2), db.Scan.systematic(16, 32), **wrong)


def test_self_check_takes_no_nonsense():
    for wrong in ({"chains": 0}, {"seed": "x"}):
        with pytest.raises(db.ArgumentError):
            db.self_check(**wrong)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_keeps_what_finished():
    code = """
    import signal, threading, os, time
    import dobrushin as db
    model = db.Ising.grid(20, 20, couplings=0.3)
    db.sample(model, db.Scan.systematic(400, 4000), chains=2, kernel="table")
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        db.sample(model, db.Scan.systematic(400, 40_000_000), chains=300, seed=1, kernel="table")
    except db.Interrupted as error:
        print(error.result.chains < 300, time.monotonic() - began < 20, error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("True True Interrupted: "), done.stderr
    assert isinstance(db.Interrupted, type)
    assert issubclass(db.Interrupted, KeyboardInterrupt)


def test_an_executor_that_fails_is_not_hidden():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(db.ArgumentError, match=r"'executor' .* shutdown"):
        db.sample(db.Ising.grid(2, 2), db.Scan([0]), run=db.RunOptions(executor=pool))


def test_a_run_interrupted_while_its_checkpoint_is_read_gives_the_file_back(tmp_path, monkeypatch):
    """The error is kept, and with it the run: its lock must not be."""
    model, scan, path = db.Ising.grid(4, 4, couplings=0.2), db.Scan.systematic(16, 32), tmp_path / "run.npz"
    whole = db.sample(model, scan, chains=70, seed=1, run=db.RunOptions(checkpoint=path))
    pack = batches._arrays

    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(batches, "_arrays", press)
    with pytest.raises(KeyboardInterrupt) as kept:
        db.sample(model, scan, chains=70, seed=1, run=db.RunOptions(checkpoint=path))
    monkeypatch.setattr(batches, "_arrays", pack)
    again = db.sample(model, scan, chains=70, seed=1, run=db.RunOptions(checkpoint=path))
    assert kept is not None
    np.testing.assert_array_equal(again.states, whole.states)
