"""Many runs in one launch on the GPU: the counts and answers that each gives by itself on the CPU."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import dobrushin as db
from dobrushin._coalescence.sets import choose_sets, collect_sets, make_set_job, run_sets
from dobrushin._estimate import several
from dobrushin._estimate.estimator import Prepared
from dobrushin._estimate.runs import ChainRun
from dobrushin._sampling.cuda import together
from dobrushin._sampling.cuda.together import Chains, can_join, draw_together
from dobrushin._sampling.kernel import choose_kernel
from dobrushin._sampling.sampler import ChainSource, on_backend
from dobrushin._shared import device
from dobrushin._shared.running import Running
from models import random_model
from test_cuda import gpu as gpu
from test_cuda import ising

pytestmark = pytest.mark.usefixtures("gpu")
GRID = db.Ising.grid(200, 200, couplings=0.15)
HOW = {"seed": 3, "method": "dobrushin", "tolerance": 0.05}


def eight_neighbours(rng):
    """A torus where all couplings have the same size, and each spin eight neighbours."""
    shifts = [(0, 1), (1, 0), (1, 1), (1, -1)]
    edges = [(6 * i + j, 6 * ((i + a) % 6) + (j + b) % 6) for i in range(6) for j in range(6) for a, b in shifts]
    return db.Ising({edge: 0.2 * rng.choice([-1, 1]) for edge in edges}, fields=np.full(36, 0.1))


def potts(rng):
    return db.Potts.grid(4, 5, states=int(rng.integers(2, 5)), couplings=0.4, unaries=None)


CASES = {
    "bits": [lambda rng: ising(rng, 4), lambda rng: ising(rng, 6), lambda rng: ising(rng, 4, True)],
    "counts": [eight_neighbours],
    "field": [eight_neighbours, lambda rng: ising(rng, 6)],
    "potts": [potts],
    "conditional": [lambda rng: random_model(rng, "pairwise", n=7, max_states=4), potts],
    "factors": [lambda rng: random_model(rng, "factors", n=6, max_states=3), lambda rng: ising(rng, 4)],
}


def wanted_runs(names, count, most_chains):
    """Runs of different models, scans and numbers of chains: as they are on the GPU, and what the CPU draws.

    Some keep states, the others counts.
    """
    rng = np.random.default_rng(7)
    runs = []
    for number in range(count):
        name = names[number % len(names)]
        model = CASES[name][number % len(CASES[name])](rng)
        n = model.n_variables
        scan = db.Scan.systematic(n, int(rng.integers(1, 3 * n))) + db.Scan(rng.integers(0, n, int(rng.integers(1, 9))))
        chains, seed = int(rng.integers(1, most_chains)), np.random.SeedSequence(number)
        kernel = choose_kernel(model, scan, chains, name)
        record = db.Record(states=number % 3 == 0, counts=number % 3 != 0)
        source = ChainSource(model, kernel, scan, seed, record=record)
        samples, _ = source.draw(range(chains))
        job = source.job(chains, "cuda")
        runs.append((Chains(job, range(chains)), samples, partial(source.samples, job)))
    return runs


def assert_same_draws(runs, outcomes):
    for (chains, samples, collected), outcome in zip(runs, outcomes, strict=True):
        found = collected(outcome)
        assert (found.states is None, found.counts is None) == (samples.states is None, samples.counts is None)
        for name in ("states", "counts"):
            if getattr(samples, name) is not None:
                np.testing.assert_array_equal(getattr(found, name), getattr(samples, name))
        assert (outcome.chains, outcome.trouble) == (len(chains.numbers), None)


@pytest.mark.parametrize("names", [[name] for name in CASES] + [list(CASES)], ids=lambda names: "+".join(names))
def test_counts_are_those_of_each_run_by_itself(gpu, names):
    runs = wanted_runs(names, 7 if len(names) == 1 else 14, 20_000 if gpu[1] else 200)
    assert all(can_join(chains) for chains, *_ in runs)
    assert_same_draws(runs, draw_together([chains for chains, *_ in runs]))


def test_runs_that_do_not_fit_together_are_drawn_in_turn(monkeypatch):
    runs = wanted_runs(["bits", "potts"], 6, 150)
    monkeypatch.setattr(together, "free_memory", lambda: 4000)
    groups = []
    draw = together._draw
    monkeypatch.setattr(together, "_draw", lambda wanted: groups.append(len(wanted)) or draw(wanted))
    assert_same_draws(runs, draw_together([chains for chains, *_ in runs]))
    assert len(groups) > 1
    assert sum(groups) == 6


def test_runs_that_need_more_than_counts_stay_by_themselves(monkeypatch):
    chains = wanted_runs(["bits"], 2, 100)[1][0]
    table = choose_kernel(ising(np.random.default_rng(1), 6), db.Scan.systematic(27, 30), 10, "table")
    moved = on_backend(table, chains.job.scan, 10, "cuda")
    assert not can_join(chains._replace(job=replace(chains.job, runner=moved)))
    job = chains.job
    assert can_join(chains)
    for other in (
        {"states": True},
        {"counts": False},
        {"rows": np.zeros(2**16, dtype=np.int64)},
        {"start": lambda numbers: numbers},
        {"guard": object()},
        {"stops": np.array([1, 2])},
        {"scan": db.Scan.uniform(30, 10)},
    ):
        assert not can_join(chains._replace(job=replace(job, **other)))
    monkeypatch.setattr(together, "MAX_LAUNCH_STEPS", len(job.scan) - 1)
    assert not can_join(chains)


SETS = {
    "set bits": [lambda rng: ising(rng, 4), lambda rng: ising(rng, 6)],
    "set labels": [potts],
    "set race": [
        lambda rng: random_model(rng, "factors", n=6, max_states=3),
        lambda rng: random_model(rng, "pairwise"),
    ],
}


def test_sets_are_those_of_each_run_by_itself(gpu):
    rng = np.random.default_rng(3)
    wanted, expected = [], []
    for number in range(9):
        makers = list(SETS.values())[number % 3]
        model = makers[number % len(makers)](rng)
        labels, n = list(model.labels)[:3], model.n_variables
        scan = db.Scan.systematic(n, int(rng.integers(n, 4 * n)))
        runs, seed = int(rng.integers(1, 5000 if gpu[1] else 150)), np.random.SeedSequence(number)
        kernel = choose_sets(model, scan)
        moved = on_backend(kernel, scan, runs, "cuda")
        wanted.append(Chains(make_set_job(model, moved, scan, labels, seed), range(runs)))
        expected.append((kernel, run_sets(model, kernel, scan, labels, range(runs), seed)))
    assert {kernel.name for kernel, _ in expected} == set(SETS)
    assert all(map(can_join, wanted))
    assert not can_join(Chains(replace(wanted[0].job, states=False, counts=True), wanted[0].numbers))
    for one, (kernel, alone), outcome in zip(wanted, expected, draw_together(wanted), strict=True):
        found = collect_sets(kernel, one.job, outcome)
        np.testing.assert_array_equal(found.settled, alone.settled)
        assert (found.settled < 0).any() or len(found.settled) < 20


# -- answers -----------------------------------------------------------------------------------


def queries(count):
    """Targets near and far from evidence, and in a corner."""
    return [([201 * k], {201 * k + 1: 1} if k % 3 else None) for k in range(count)]


def same(ours, theirs):
    return all(
        np.array_equal(getattr(ours, name), getattr(theirs, name))
        for name in ("value", "lower", "upper", "bias_bound", "targets", "states", "assumptions")
    ) and str(ours.seed) == str(theirs.seed)


def interrupted(function, moment):
    """A function whose call number `moment` is interrupted."""
    calls = itertools.count(1)

    def call(*arguments):
        if next(calls) == moment:
            raise KeyboardInterrupt
        return function(*arguments)

    return call


def count_launches(monkeypatch):
    """How often each function is launched, for one run and for many."""
    seen = {"one": 0, "many": 0}
    make = device.Function.compiled

    def counting(self, for_many=False):
        seen["many" if for_many else "one"] += 1
        return make(self, for_many)

    monkeypatch.setattr(device.Function, "compiled", counting)
    return seen


def test_answers_are_those_of_the_cpu_and_take_one_launch(monkeypatch):
    launches = count_launches(monkeypatch)
    needed = []
    for count in (3, 9):
        here = db.estimate_many(GRID, queries(count), **HOW, run=db.RunOptions(backend="cpu"))
        assert sum(launches.values()) == sum(needed)
        there = db.estimate_many(GRID, queries(count), **HOW, run=db.RunOptions(backend="cuda"))
        assert not there.errors
        assert all(same(a, b) for a, b in zip(here, there, strict=True))
        needed.append(sum(launches.values()) - sum(needed))
    assert launches["one"] == 0
    assert needed[0] == needed[1] == 5  # streams, starts, tables, updates, counts


def test_queries_of_all_kinds_beside_each_other():
    pair, agree = db.Joint(5, 6), db.Statistic.event([7, 8], lambda x: x[:, 0] == x[:, 1])
    asked = [
        ([0], None),
        (pair, {9: 1}),
        ([3, 4], None),
        (agree, None),
        ([0], {0: 1}),
        ("all", {1: 1}),
        ([1], {"x": 1}),
    ]
    small = db.Ising.grid(5, 5, couplings=0.1)
    for method in ("dobrushin", "auto", "local"):
        here, there = (
            db.estimate_many(small, asked, seed=3, tolerance=0.1, method=method, run=db.RunOptions(backend=backend))
            for backend in ("cpu", "cuda")
        )
        assert sorted(here.errors) == sorted(there.errors)
        assert {4, 6} <= set(there.errors)
        assert all(str(here.errors[k]) == str(there.errors[k]) for k in here.errors)
        for k in here.answers:
            if method == "dobrushin":
                assert same(here[k], there[k])
            else:  # exact sums on a GPU differ by rounding
                np.testing.assert_allclose(here[k].value, there[k].value, atol=1e-9)


def test_answers_by_coalescence_are_drawn_together_too(monkeypatch):
    model = db.Ising.grid(60, 60, couplings=0.3)
    asked = [([60 * k + k], {60 * k + k + 1: 1}) for k in range(5)]
    how = {"seed": 3, "method": "coalescence", "tolerance": 0.1}
    here = db.estimate_many(model, asked, **how, run=db.RunOptions(backend="cpu"))
    launches = count_launches(monkeypatch)
    there = db.estimate_many(model, asked, **how, run=db.RunOptions(backend="cuda"))
    # Streams, tables, updates, what is settled. Pilots are on the CPU, and a second try, where one is needed, is alone.
    assert launches["many"] == 4
    assert all(same(a, b) for a, b in zip(here, there, strict=True))


def test_models_that_forbid_states_and_other_families():
    rng = np.random.default_rng(1)
    models = [random_model(rng, family, n=6, max_states=3) for family in ("potts", "pairwise", "spins", "factors")]
    models.append(
        db.Potts.grid(3, 3, states=3, couplings=0.2, unaries=np.where(rng.random((3, 3, 3)) < 0.2, -np.inf, 0))
    )
    for model in models:
        asked = [([label], None) for label in model.labels[:4]]
        how = {"seed": 1, "tolerance": 0.2, "method": "uncertified"}
        here, there = (
            db.estimate_many(model, asked, **how, run=db.RunOptions(backend=backend)) for backend in ("cpu", "cuda")
        )
        assert sorted(here.answers) == sorted(there.answers)
        for k in here.answers:
            # The exponential of `factors` may differ in the last bit on a GPU.
            np.testing.assert_allclose(here[k].value, there[k].value, atol=1e-3)


def test_without_memory_for_many_each_is_drawn_by_itself(monkeypatch):
    here = db.estimate_many(GRID, queries(4), **HOW, run=db.RunOptions(backend="cpu"))

    def full(_):
        raise MemoryError("no room")

    monkeypatch.setattr(together, "draw_together", full)
    there = db.estimate_many(GRID, queries(4), **HOW, run=db.RunOptions(backend="cuda"))
    assert all(same(a, b) for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize(
    ("where", "name", "moment", "kept"),
    [
        (several, "prepare_query", 4, [0, 1, 2]),  # what was planned is drawn
        (Prepared, "complete", 3, [0, 1]),  # what was drawn and finished stays
    ],
)
def test_an_interruption_keeps_what_there_is(where, name, moment, kept, monkeypatch):
    whole = db.estimate_many(GRID, queries(6), **HOW, run=db.RunOptions(backend="cpu"))
    monkeypatch.setattr(where, name, interrupted(getattr(where, name), moment))
    with pytest.raises(db.Interrupted) as caught:
        db.estimate_many(GRID, queries(6), **HOW, run=db.RunOptions(backend="cuda"))
    assert sorted(caught.value.result.answers) == kept
    assert all(same(whole[k], caught.value.result[k]) for k in kept)


def test_what_cannot_wait_is_answered_at_once(monkeypatch):
    product = db.Statistic(lambda x: x[:, 0] * x[:, 1], {0: 2, 1: 2}, bounds=(-1, 1))
    asked = [(product, None), *queries(3), (product, {5: 1})]
    monkeypatch.setattr(ChainRun, "draw", interrupted(ChainRun.draw, 2))
    with pytest.raises(db.Interrupted) as caught:
        db.estimate_many(GRID, asked, **HOW, run=db.RunOptions(backend="cuda"))
    assert sorted(caught.value.result.answers) == [0, 1, 2, 3]


def test_what_a_gpu_says_is_said_of_each_query(monkeypatch):
    def broken(*_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(device.Function, "compiled", broken)
    found = db.estimate_many(GRID, queries(3), **HOW, run=db.RunOptions(backend="cuda"))
    assert sorted(found.errors) == [0, 1, 2]
    assert all("no compiler" in str(error) for error in found.errors.values())


def test_queries_on_one_large_model_wait_for_each_other(monkeypatch):
    monkeypatch.setattr(several, "_MAX_VARIABLES_TOGETHER", 50_000)
    launches = count_launches(monkeypatch)
    found = db.estimate_many(GRID, [([201 * k], None) for k in range(6)], **HOW, run=db.RunOptions(backend="cuda"))
    assert not found.errors
    assert launches == {"one": 0, "many": 5}


def test_small_launches_are_not_blown_up_by_large_ones(gpu, monkeypatch):
    runs = wanted_runs(["bits", "potts"], 6, 3000 if gpu[1] else 200)
    monkeypatch.setattr(device, "_MAX_BLOCKS", 1)
    launches = count_launches(monkeypatch)
    assert_same_draws(runs, draw_together([chains for chains, *_ in runs]))
    assert launches["many"] > 10


def test_short_waves_give_the_same_answers(monkeypatch):
    here = db.estimate_many(GRID, queries(5), **HOW, run=db.RunOptions(backend="cpu"))
    for name, limit in (("_SECONDS_TOGETHER", 0.0), ("_MAX_VARIABLES_TOGETHER", 300)):
        with monkeypatch.context() as patch:
            patch.setattr(several, name, limit)
            there = db.estimate_many(GRID, queries(5), **HOW, run=db.RunOptions(backend="cuda"))
        assert all(same(a, b) for a, b in zip(here, there, strict=True))


def test_with_little_work_auto_stays_on_the_cpu(monkeypatch):
    monkeypatch.setattr(several, "is_available", lambda: True)
    monkeypatch.setattr(several, "may_be_available", lambda: True)
    launches = count_launches(monkeypatch)
    here = db.estimate_many(GRID, queries(3), **HOW, run=db.RunOptions(backend="cpu"))
    there = db.estimate_many(GRID, queries(3), **HOW, run=db.RunOptions(backend="auto"))
    assert sum(launches.values()) == 0
    monkeypatch.setattr(several, "MANY_UPDATES", 0)
    moved = db.estimate_many(GRID, queries(3), **HOW, run=db.RunOptions(backend="auto"))
    assert launches["many"] == 5
    assert all(same(a, b) and same(a, c) for a, b, c in zip(here, there, moved, strict=True))


def test_a_limit_in_time_ends_many_on_the_gpu_too():
    asked = queries(4)
    found = db.estimate_many(GRID, asked, **HOW, run=db.RunOptions(backend="cuda"), time_limit=60)
    assert all(
        same(a, b)
        for a, b in zip(found, db.estimate_many(GRID, asked, **HOW, run=db.RunOptions(backend="cpu")), strict=True)
    )
    ended = db.estimate_many(GRID, asked, **HOW, run=db.RunOptions(backend="cuda"), time_limit=1e-6)
    assert sorted({*ended.answers, *ended.errors}) == [0, 1, 2, 3]


@pytest.mark.parametrize("family", ["ising", "potts", "pairwise", "factors"])
def test_sets_are_counted_as_they_are_read(family):
    model = random_model(np.random.default_rng(4), family, n=6, max_states=3, strength=0.5)
    scan, labels, seed = db.Scan.systematic(6, 12), list(model.labels), np.random.SeedSequence(1)
    kernel = choose_sets(model, scan)
    settled = run_sets(model, kernel, scan, labels, range(300), seed).settled[:, -1]
    expected = np.array([[(column == state).sum() for state in range(-1, 3)] for column in settled.T])
    assert (expected[:, 0] > 0).any()
    assert (expected[:, 1:] > 0).any()
    for backend in ("cpu", "cuda"):
        how = {"running": Running(backend=backend), "counts": True}
        counted = run_sets(model, kernel, scan, labels, range(300), seed, **how)
        assert (counted.runs, len(counted.settled)) == (300, 0)
        np.testing.assert_array_equal(counted.counts, expected[:, : counted.counts.shape[1]])


@pytest.mark.parametrize("states", [2, 3])
def test_sets_that_are_counted_give_the_answers_of_those_that_are_kept(states, monkeypatch, tmp_path):
    model = db.Potts.grid(6, 6, states=states, couplings=0.7)
    how = {"seed": 3, "method": "coalescence", "tolerance": 0.1}
    kept = db.estimate(model, "all", **how)
    told = db.estimate(model, "all", **how, proof=tmp_path / "answer.proof")
    assert told.asked.transcript.run.tallies[0].open.sum() > 0  # else there would be nothing to forget
    monkeypatch.setattr("dobrushin._estimate.coalescence._KEPT_STATES", 0)
    for backend in ("cpu", "cuda"):
        counted = db.estimate(model, "all", **how, run=db.RunOptions(backend=backend))
        assert same(kept, counted)
        assert counted.plan.chains == kept.plan.chains
