"""Work over executors: the same answers however it is split, and nothing lost when workers are."""

from __future__ import annotations

import errno
import io
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import dobrushin as db
from dobrushin._estimate import many, several
from dobrushin._estimate.query import read_settings
from dobrushin._sampling import batches
from dobrushin._shared import executors as _executor
from dobrushin._shared import state_file as _resume
from dobrushin._shared.call import entered
from dobrushin._shared.executors import Within, cores, receive, share, workers_of
from dobrushin._shared.state_file import fingerprint
from executors import Deadly, Forbidden, Noted, deadly_event

MODEL = db.Ising.grid(12, 12, couplings=0.2, fields=0.05)
SCAN = db.Scan.systematic(144, 288)


def same_estimate(a: db.Estimate, b: db.Estimate) -> bool:
    parts = ("value", "lower", "upper", "bias_bound")
    return a.targets == b.targets and all(np.array_equal(getattr(a, p), getattr(b, p)) for p in parts)


def queries(count: int) -> list:
    rng = np.random.default_rng(0)
    asked = []
    for _ in range(count):
        target, *known = rng.choice(144, 4, replace=False).tolist()
        asked.append(([target], {k: int(rng.choice([-1, 1])) for k in known} if rng.random() < 0.7 else None))
    return asked


class Ending:
    """Takes a few pieces and then no more, as a pool does whose machine goes away."""

    taken = 0

    def submit(self, fn, /, *args, **kwargs) -> Future:
        self.taken += 1
        if self.taken > 3:
            raise BrokenExecutor("gone")
        return super().submit(fn, *args, **kwargs)


class EndingThreads(Ending, ThreadPoolExecutor):
    """Of this process."""


class EndingProcesses(Ending, ProcessPoolExecutor):
    """Of other processes."""


class Counting(ThreadPoolExecutor):
    """Remembers how large what it is given would be for another process."""

    def __init__(self) -> None:
        super().__init__(2)
        self.bytes: list[int] = []

    def submit(self, fn, /, *args, **kwargs) -> Future:
        self.bytes.append(len(pickle.dumps(args)))
        return super().submit(fn, *args, **kwargs)


# -- process pools -----------------------------------------------------------------------------------------------------


def test_a_dead_worker_is_an_error_that_keeps_the_chains_and_the_run_goes_on(tmp_path):
    start = Deadly(str(tmp_path), 144, at=600)
    options = {"chains": 1000, "seed": 3, "initial": start, "kernel": "field"}
    file = tmp_path / "run.npz"
    with ProcessPoolExecutor(1) as pool, pytest.raises(db.WorkerError, match="of 1000 chains had finished") as caught:
        db.sample(MODEL, SCAN, run=db.RunOptions(executor=pool, checkpoint=file), **options)
    error = caught.value
    assert "checkpoint" in str(error)
    plain = db.sample(MODEL, SCAN, **options)
    assert 0 < error.result.chains < 1000
    np.testing.assert_array_equal(error.result.states, plain.states[: error.result.chains])
    kept = pickle.loads(pickle.dumps(error))
    assert str(kept) == str(error)
    with ProcessPoolExecutor(2) as pool:
        rest = db.sample(MODEL, SCAN, run=db.RunOptions(executor=pool, checkpoint=file), **options)
    np.testing.assert_array_equal(rest.states, plain.states)


def test_a_pool_that_is_shut_down_is_refused():
    pool = ProcessPoolExecutor(1)
    pool.shutdown()
    for call in (
        lambda: db.sample(MODEL, SCAN, run=db.RunOptions(executor=pool)),
        lambda: db.estimate(MODEL, [0], run=db.RunOptions(executor=pool), method="dobrushin"),
        lambda: db.coalescence(MODEL, SCAN, run=db.RunOptions(executor=pool)),
        lambda: db.estimate_many(MODEL, queries(2), run=db.RunOptions(executor=pool), tolerance=0.1),
    ):
        with pytest.raises(db.ArgumentError, match=r"'executor' .* one that accepts work\. Got .*shutdown"):
            call()


def test_functions_that_cannot_be_sent_are_named():
    with (
        ProcessPoolExecutor(1) as pool,
        pytest.raises(db.ArgumentError, match=r"'executor' argument of dobrushin\.sample .*lambda"),
    ):
        db.sample(
            MODEL,
            SCAN,
            run=db.RunOptions(executor=pool),
            initial=lambda numbers: np.ones((len(numbers), 144), dtype=int),
        )


@pytest.mark.slow
def test_coalescence_and_estimates_are_the_same_in_processes(tmp_path):
    model = db.Ising.grid(6, 6, couplings=0.35)
    scan = db.Scan.systematic(36, 360)
    plain = db.coalescence(model, scan, runs=2000, seed=5)
    with ProcessPoolExecutor(2) as pool:
        there = db.coalescence(
            model, scan, runs=2000, seed=5, run=db.RunOptions(executor=pool, checkpoint=tmp_path / "sets.npz")
        )
        np.testing.assert_array_equal(there.per_variable, plain.per_variable)
        again = db.coalescence(model, scan, runs=2000, run=db.RunOptions(checkpoint=tmp_path / "sets.npz"))
        np.testing.assert_array_equal(again.per_variable, plain.per_variable)
        for method in ("dobrushin", "coalescence"):
            options = {"tolerance": 0.05, "method": method, "seed": 2}
            here = db.estimate(MODEL, [3], **options)
            file = tmp_path / f"{method}.npz"
            assert same_estimate(
                db.estimate(MODEL, [3], run=db.RunOptions(executor=pool, checkpoint=file), **options), here
            )
            assert file.exists()


# Each in more than a few batches.
LONG_CALLS = {
    "sample": lambda **how: db.sample(MODEL, SCAN, chains=700, **how).states,
    "coalescence": lambda **how: db.coalescence(MODEL, SCAN, runs=700, **how).per_variable,
    **{
        f"estimate by {method}": lambda method=method, **how: (
            db.estimate(MODEL, [3], tolerance=0.05, method=method, **how).value
        )
        for method in ("dobrushin", "coalescence", "uncertified")
    },
}


@pytest.mark.parametrize("pool", [None, EndingThreads, EndingProcesses], ids=["own threads", "threads", "processes"])
@pytest.mark.parametrize("name", LONG_CALLS)
def test_every_call_goes_on_from_its_checkpoint_with_and_without_a_seed(tmp_path, monkeypatch, name, pool):
    """Also under a seed that is more than a number; the end is that of a run that was never broken off."""
    call = LONG_CALLS[name]
    for k, seed in enumerate((None, 7, np.random.SeedSequence(4, spawn_key=(1,)))):
        file = tmp_path / f"{k}.npz"
        with monkeypatch.context() as broken, nullcontext() if pool is None else pool(2) as executor:
            broken.setattr(batches, "own_threads", EndingThreads)
            with pytest.raises(db.WorkerError, match="gone"):
                call(seed=seed, run=db.RunOptions(checkpoint=file, executor=executor))
        used = _resume.stored_seed(file)
        again = call(run=db.RunOptions(checkpoint=file))
        np.testing.assert_array_equal(again, call(seed=used if seed is None else seed))
        np.testing.assert_array_equal(again, call(seed=seed, run=db.RunOptions(checkpoint=file)))
        with pytest.raises(db.ArgumentError, match=r"'checkpoint' .* written by the same run"):
            call(seed=8, run=db.RunOptions(checkpoint=file))


def test_an_estimate_goes_on_from_its_checkpoint_without_a_seed(tmp_path):
    file = tmp_path / "run.npz"
    first = db.estimate(MODEL, [3], tolerance=0.05, method="dobrushin", run=db.RunOptions(checkpoint=file))
    assert same_estimate(
        db.estimate(MODEL, [3], tolerance=0.05, method="dobrushin", run=db.RunOptions(checkpoint=file)), first
    )
    with pytest.raises(db.ArgumentError, match=r"'checkpoint' argument of dobrushin\.estimate"):
        db.estimate(MODEL, [4], tolerance=0.05, method="dobrushin", run=db.RunOptions(checkpoint=file))


def test_what_is_large_travels_once():
    large = np.arange(10**6)
    with ProcessPoolExecutor(2) as pool:
        with share(large, pool) as shared:
            assert len(pickle.dumps(shared)) < 1000
            path = Path(shared.path)
            np.testing.assert_array_equal(pool.submit(receive, shared).result(), large)
            assert receive(shared) is receive(shared)
        assert not path.exists()
        with share(large[:10], pool) as shared:
            assert shared is not large  # a slice: small, and sent as it is
            np.testing.assert_array_equal(receive(shared), large[:10])


@contextmanager
def pretend_processes(pool: Executor, monkeypatch) -> Iterator[None]:
    """Treat a pool as one whose workers share no memory."""
    monkeypatch.setattr(_executor, "ProcessPoolExecutor", type(pool))
    for module in (_executor, batches):
        monkeypatch.setattr(module, "shares_memory", lambda executor: executor is None)
    yield


def test_the_pieces_of_a_large_run_are_small(monkeypatch):
    model = db.Ising.grid(300, 300, couplings=0.2)
    with Counting() as pool, pretend_processes(pool, monkeypatch):
        db.sample(
            model,
            db.Scan.systematic(model.n_variables, model.n_variables),
            chains=512,
            run=db.RunOptions(executor=pool),
            record=[0],
        )
    assert len(pool.bytes) > 1
    assert max(pool.bytes) < 10_000


def test_a_pool_whose_work_is_cancelled_is_an_error(tmp_path):
    start = Noted(str(tmp_path), 144, seconds=0.3)
    pool = ThreadPoolExecutor(1)
    threading.Timer(0.5, lambda: pool.shutdown(wait=False, cancel_futures=True)).start()
    with pytest.raises(db.WorkerError, match="of 512 chains had finished") as caught:
        db.sample(MODEL, SCAN, chains=512, seed=3, initial=start, kernel="field", run=db.RunOptions(executor=pool))
    assert 0 < caught.value.result.chains < 512


class Stuck(Executor):
    """Takes work and never does it."""

    def submit(self, *_, **__) -> Future:
        return Future()


def test_an_interrupt_does_not_wait_for_an_executor_that_does_nothing(monkeypatch):
    monkeypatch.setattr(_executor, "_STOP_SECONDS", 0.2)
    db.sample(MODEL, SCAN)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(db.Interrupted, match="0 of 64 chains"):
        db.sample(MODEL, SCAN, chains=64, run=db.RunOptions(executor=Stuck()))
    timer.join()


def test_a_pool_can_be_used_by_its_own_work():
    with ThreadPoolExecutor(1) as pool:
        inside = pool.submit(
            lambda: db.sample(MODEL, SCAN, chains=200, seed=3, run=db.RunOptions(executor=pool))
        ).result()
        found = pool.submit(
            lambda: db.estimate_many(MODEL, queries(3), tolerance=0.1, seed=3, run=db.RunOptions(executor=pool))
        ).result()
    np.testing.assert_array_equal(inside.states, db.sample(MODEL, SCAN, chains=200, seed=3).states)
    assert len(found.answers) == 3


class NoFuture(Executor):
    """Does not know what an executor returns."""

    def submit(self, fn, /, *args, **kwargs):
        return fn(*args, **kwargs)


def test_what_is_no_executor_is_named():
    class Client(NoFuture):
        def get_executor(self):
            return self

    for executor, words in (
        (Client(), r"client\.get_executor\(\)"),
        (ThreadPoolExecutor, "a concurrent.futures.Executor"),
        (NoFuture(), "returns a Future"),
    ):
        with pytest.raises(db.ArgumentError, match=f"'executor' .*{words}"):
            db.sample(MODEL, SCAN, run=db.RunOptions(executor=executor))


def test_more_workers_get_more_pieces(monkeypatch):
    monkeypatch.setattr(_executor, "workers_of", lambda _: 100)
    stuck = Stuck()
    futures = []
    stuck.submit = lambda *_: futures.append(Future()) or futures[-1]

    def look() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_executor, "_STOP_SECONDS", 0.0)
    submit = lambda pool, k: pool.submit(k)  # noqa: E731
    _executor.run_pieces(stuck, submit, range(1000), {}, look=look, stop=lambda: None)
    assert len(futures) == 200


@pytest.mark.parametrize("pool", [nullcontext, lambda: ThreadPoolExecutor(4), lambda: ProcessPoolExecutor(2)])
def test_the_lowest_chain_with_a_forbidden_start_is_named(tmp_path, pool):
    """Its batch is the last to find out; others, and those that only begin in this process, do not go before it."""
    gas = db.PairwiseMRF(np.zeros((4, 2)), [(0, 1), (1, 2), (2, 3)], np.array([[0.0, 0.0], [0.0, -np.inf]]))
    with pool() as executor:
        for first in (0, 68, 700):
            for file in (None, tmp_path / str(first)):
                run = db.RunOptions(executor=executor, checkpoint=file)
                how = {"chains": 1000, "seed": 1, "initial": Forbidden(4, first), "run": run}
                with pytest.raises(db.ArgumentError, match=rf"forbidden: 0 = 1, 1 = 1 at chain {first}\."):
                    db.sample(gas, db.Scan.systematic(4, 4000), **how)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_with_a_flipped_bit_is_refused(tmp_path):
    file = tmp_path / "run.npz"
    options = {"chains": 300, "seed": 3, "record": "counts"}
    plain = db.sample(MODEL, SCAN, run=db.RunOptions(checkpoint=file), **options)
    data = file.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        place, bit = int(rng.integers(len(data))), int(rng.integers(8))
        file.write_bytes(data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :])
        try:
            again = db.sample(MODEL, SCAN, run=db.RunOptions(checkpoint=file), **options)
        except db.ArgumentError as error:
            assert "'checkpoint'" in str(error)  # noqa: PT017
        else:
            np.testing.assert_array_equal(again.counts, plain.counts)


def test_a_checkpoint_with_another_count_is_refused(tmp_path):
    file = tmp_path / "run.npz"
    options = {"chains": 300, "seed": 3, "record": "counts"}
    db.sample(MODEL, SCAN, run=db.RunOptions(checkpoint=file), **options)
    with np.load(file) as stored:
        arrays = dict(stored)
    name = next(name for name in arrays if name.endswith(".counts"))
    for change in ({name: arrays[name] + 1}, {}):
        np.savez(file, **{key: value for key, value in arrays.items() if key != name}, **change)
        with pytest.raises(db.ArgumentError, match=r"'checkpoint' .* that an earlier run wrote"):
            db.sample(MODEL, SCAN, run=db.RunOptions(checkpoint=file), **options)


def npy(header: bytes, content: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n" + content


def damaged(file: Path) -> Iterator[tuple[str, bytes]]:
    """What is in a checkpoint, but for one array that says it is larger than it is; by what was done."""
    huge = b"{'descr': '<i8', 'fortran_order': False, 'shape': (%s), }"
    with zipfile.ZipFile(file) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    name = next(name for name in members if name.endswith(".counts.npy"))
    changes = {
        "huge shape": {name: npy(huge % b"1000000000000,", members[name][128:])},
        "overflow": {name: npy(huge % b"4611686018427387904, 4", b"")},
        "negative": {name: npy(huge % b"-1, -2", bytes(16))},
        "seed": {"seed.npy": npy(b"{'descr': '<U1000000000', 'fortran_order': False, 'shape': (), }", b"1")},
        "object": {name: npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", bytes(16))},
        "version": {name: b"\x93NUMPY\x03\x00" + bytes(100)},
        "empty": {name: b""},
    }
    for what, change in changes.items():
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as packed:
            for key, content in (members | change).items():
                packed.writestr(key, content)
        yield what, data.getvalue()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for key, content in members.items():
            packed.writestr(key, content)
        packed.writestr("bomb.npy", npy(huge % b"2000000,", bytes(16_000_000)))
    yield "deflated", data.getvalue()
    whole = file.read_bytes()
    place = whole.index(b"PK\x01\x02")
    for where in (place + 20, place + 24):
        yield "directory", whole[:where] + (2**31).to_bytes(4, "little") + whole[where + 4 :]


def test_a_checkpoint_that_says_it_is_larger_than_it_is_takes_no_memory(tmp_path):
    file = tmp_path / "run.npz"
    options = {"chains": 300, "record": "counts"}
    db.sample(MODEL, SCAN, seed=3, run=db.RunOptions(checkpoint=file), **options)
    for what, data in list(damaged(file)):
        for seed in (3, None):
            file.write_bytes(data)
            tracemalloc.start()
            with pytest.raises(db.ArgumentError, match=r"'checkpoint' .* that an earlier run wrote"):
                db.sample(MODEL, SCAN, seed=seed, run=db.RunOptions(checkpoint=file), **options)
            assert tracemalloc.get_traced_memory()[1] < 8_000_000, what
            tracemalloc.stop()


def test_arrays_of_another_run_are_not_read(tmp_path, monkeypatch):
    file = tmp_path / "run.npz"
    db.sample(MODEL, SCAN, seed=3, chains=300, run=db.RunOptions(checkpoint=file))
    read = []

    def note(packed, name):
        read.append(name)
        return actual(packed, name)

    actual = _resume._read_array
    monkeypatch.setattr(_resume, "_read_array", note)
    with pytest.raises(db.ArgumentError, match=r"'checkpoint' .* written by the same run"):
        db.sample(MODEL, SCAN, seed=4, chains=300, run=db.RunOptions(checkpoint=file))
    assert sorted(read) == ["format", "run", "seed"]


def test_a_seed_with_an_absurd_pool_is_not_made(tmp_path):
    file = tmp_path / "run.npz"
    np.savez(file, seed=np.array("[1, [], 1000000000000]"))
    assert _resume.stored_seed(file) is None


def test_a_run_whose_checkpoint_can_no_longer_be_written_goes_on(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr(_resume, "SECONDS", 0.0)

    def start(numbers):
        shutil.rmtree(folder, ignore_errors=True)
        return np.ones((len(numbers), 144), dtype=int)

    with pytest.warns(db.CheckpointWarning, match="can no longer be written"):
        run = db.sample(
            MODEL, SCAN, chains=300, seed=3, initial=start, run=db.RunOptions(checkpoint=folder / "run.npz")
        )
    assert run.chains == 300


def test_paths_that_are_none(tmp_path):
    calls = (
        lambda path: db.sample(MODEL, SCAN, run=db.RunOptions(checkpoint=path)),
        lambda path: db.estimate(MODEL, [0], method="exact", run=db.RunOptions(checkpoint=path)),
        lambda path: db.coalescence(MODEL, SCAN, run=db.RunOptions(checkpoint=path)),
    )
    for call in calls:
        for path, words in (
            (3, "a path. Got 3"),
            (True, "a path. Got True"),
            ("a\0b", "a path"),
            (tmp_path, r"it is a folder\)"),
            (tmp_path / "no" / "x", "there is no folder"),
        ):
            with pytest.raises(db.ArgumentError, match=f"'checkpoint' .*{words}"):
                call(path)
    (tmp_path / "x.npz.1").touch()
    with pytest.raises(db.ArgumentError, match="files of another run beside it"):
        db.estimate(MODEL, [0], run=db.RunOptions(checkpoint=tmp_path / "x.npz"))


def test_a_run_without_a_seed_goes_on_with_any_seed(tmp_path):
    for k, seed in enumerate((np.random.SeedSequence([1, 2]), np.random.SeedSequence(4, spawn_key=(1,)))):
        first = db.sample(MODEL, SCAN, seed=seed, run=db.RunOptions(checkpoint=tmp_path / str(k)))
        again = db.sample(MODEL, SCAN, run=db.RunOptions(checkpoint=tmp_path / str(k)))
        np.testing.assert_array_equal(first.states, again.states)
    wide = db.sample(MODEL, SCAN, seed=np.random.SeedSequence(5, pool_size=8))
    np.testing.assert_array_equal(db.sample(MODEL, SCAN, seed=wide.seed).states, wide.states)


# -- many queries ------------------------------------------------------------------------------------------------------


def test_many_estimates_are_those_of_single_calls_whatever_the_split():
    asked = queries(16)
    plain = db.estimate_many(MODEL, asked, tolerance=0.05, seed=7)
    assert len(plain) == len(plain.answers) == 16
    assert plain.errors == {}
    for k in (0, 7, 15):
        single = db.estimate(MODEL, asked[k][0], evidence=asked[k][1], tolerance=0.05, seed=plain[k].seed)
        assert same_estimate(single, plain[k])
    with ProcessPoolExecutor(2) as pool, ThreadPoolExecutor(3) as threads:
        for executor in (pool, threads):
            there = db.estimate_many(MODEL, asked, tolerance=0.05, seed=7, run=db.RunOptions(executor=executor))
            assert all(same_estimate(a, b) for a, b in zip(there, plain, strict=True))
    # Each query has draws of its own, also where the same is asked twice.
    twice = db.estimate_many(MODEL, [([3], None)] * 2, tolerance=0.05, seed=7, method="dobrushin")
    assert twice[0].value[0] != twice[1].value[0]
    # The answer to a query does not depend on which queries come after it.
    fewer = db.estimate_many(MODEL, asked[:5], tolerance=0.05, seed=7)
    assert all(same_estimate(fewer[k], plain[k]) for k in range(5))


def test_a_query_that_fails_leaves_the_others():
    hard = db.Statistic(lambda x: x[:, 0] * 1.0, weights={0: 2.0}, bounds=(0.5, 1.0), name="wrong bounds")
    asked = [([0], None), (["nowhere"], None), ([0], {1: 3}), ([1], {1: 1}), ([hard], None), ([2], None)]
    found = db.estimate_many(MODEL, asked, tolerance=0.05, seed=1)
    assert sorted(found.answers) == [0, 5]
    assert sorted(found.errors) == [1, 2, 3, 4]
    with pytest.raises(db.ArgumentError, match="nowhere"):
        found[1]
    assert "2 of 6 queries answered" in str(found)
    assert "query 1: " in str(found)
    assert "1 more errors" in str(found)
    assert found.to_dataframe()["query"].tolist() == [0, 0, 5, 5]
    with pytest.raises(db.ArgumentError, match=r"one of the 6 queries\. Got 6"):
        found[6]
    assert found[-1] is found[5]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("ab", r"'queries' argument .* pairs \(targets, evidence\).*Got 'ab'"),
        (3, r"'queries' argument .*Got 3"),
        ([([0], None), [0]], r"'queries\[1\]' argument .*Got \[0\]"),
        ([([0], [1])], r"'queries\[0\]' argument"),
    ],
)
def test_queries_that_are_none(asked, words):
    with pytest.raises(db.ArgumentError, match=words):
        db.estimate_many(MODEL, asked)


def test_settings_are_checked_before_any_work():
    for options in ({"tolerance": 2}, {"confidence": 1}, {"method": "fast"}, {"budget": -1}, {"run": 3}):
        with pytest.raises(db.ArgumentError, match=rf"'{next(iter(options))}' argument of dobrushin.estimate_many"):
            db.estimate_many(MODEL, queries(2), **options)


def test_no_queries_are_no_trouble():
    found = db.estimate_many(MODEL, [])
    assert len(found) == 0
    assert list(found) == []
    assert len(found.to_dataframe()) == 0


def test_many_estimates_survive_a_dead_worker(monkeypatch):
    monkeypatch.setenv("DOBRUSHIN_TEST_MAIN", str(os.getpid()))
    deadly = db.Statistic(deadly_event, weights={5: 1.0}, bounds=(0, 1), name="deadly")
    asked = queries(12)
    asked[8] = ([deadly], None)
    with ProcessPoolExecutor(1) as pool, pytest.raises(db.WorkerError, match="of 12 queries had finished") as caught:
        db.estimate_many(MODEL, asked, tolerance=0.05, seed=7, run=db.RunOptions(executor=pool))
    kept = caught.value.result
    assert 0 < len(kept.answers) < 12
    rest = db.estimate_many(MODEL, asked, tolerance=0.05, finished=kept)
    plain = db.estimate_many(MODEL, asked, tolerance=0.05, seed=7)
    assert all(rest[k] is kept[k] for k in kept.answers)
    assert all(same_estimate(a, b) for a, b in zip(rest, plain, strict=True))
    for other in ({"tolerance": 0.06}, {"tolerance": 0.05, "seed": 8}):
        with pytest.raises(db.ArgumentError, match="'finished' argument"):
            db.estimate_many(MODEL, asked, finished=kept, **other)
    with pytest.raises(db.ArgumentError, match="'finished' argument"):
        db.estimate_many(MODEL, queries(12), tolerance=0.05, finished=kept)


def test_many_estimates_survive_an_interrupt():
    asked = queries(60)
    db.estimate_many(MODEL, asked[:2], tolerance=0.005, method="dobrushin")  # everything is loaded
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(db.Interrupted, match="of 60 queries had finished") as caught:
        db.estimate_many(MODEL, asked, tolerance=0.005, method="dobrushin", seed=7)
    timer.join()
    kept = pickle.loads(pickle.dumps(caught.value)).result
    assert len(kept.answers) < 60
    rest = db.estimate_many(MODEL, asked, tolerance=0.005, method="dobrushin", finished=kept)
    plain = db.estimate_many(MODEL, asked, tolerance=0.005, method="dobrushin", seed=7)
    assert all(same_estimate(a, b) for a, b in zip(rest, plain, strict=True))


def test_what_another_call_finished_is_refused():
    far = np.arange(100)
    pair = ([db.Joint(3, 4)], None)
    asked = [(far, None), pair]
    kept = db.estimate_many(MODEL, asked, tolerance=0.2, seed=7)
    back = pickle.loads(pickle.dumps(kept))
    same = db.estimate_many(MODEL, [(far.copy(), None), ([db.Joint(3, 4)], None)], tolerance=0.2, finished=back)
    assert len(same.answers) == 2
    other = far.copy()
    other[50] = 120
    stronger = db.Ising.grid(12, 12, couplings=0.2, fields=2.0)
    for model, ask in ((MODEL, [(other, None), pair]), (stronger, asked), (MODEL, [pair, pair])):
        with pytest.raises(db.ArgumentError, match="'finished' argument"):
            db.estimate_many(model, ask, tolerance=0.2, finished=kept)


def test_a_fingerprint_is_of_what_a_model_is_not_of_what_was_done_with_it():
    def model(strength=0.3):
        return db.Ising({("a", "b"): strength, ("b", "c"): 0.2})

    used = model()
    db.estimate(used, ["a"], evidence={"c": 1}, tolerance=0.1)
    db.influence(used)
    assert fingerprint(used) == fingerprint(model()) == fingerprint(pickle.loads(pickle.dumps(used)))
    others = [model(0.31), db.Ising({("a", "b"): 0.3, ("b", "d"): 0.2}), used.condition({"a": 1})]
    names = {fingerprint(other) for other in [used, *others]}
    assert len(names) == 4
    adds = [lambda x, k=k: x + k for k in range(2)]
    assert len({fingerprint(f) for f in [*adds, lambda x: x + 1, lambda x: x + 2, (1, 2), [1, 2], "12", 12]}) == 8
    held: list = []
    held.append(held)
    assert fingerprint(held)


def test_a_query_that_cannot_be_sent_is_named():
    shared = db.Statistic.magnetisation(MODEL, [0, 1])
    own = db.Statistic.event([0], lambda x: x[:, 0] > 0)
    asked = [([0], None), (own, None), (shared, None), ((k for k in [1]), MappingProxyType({2: 1}))]
    with ProcessPoolExecutor(1) as pool:
        found = db.estimate_many(MODEL, asked, tolerance=0.1, seed=7, run=db.RunOptions(executor=pool))
    assert sorted(found.errors) == [1]
    assert "'queries[1]' argument" in str(found.errors[1])
    energy = db.Statistic.energy(db.Ising({(0, 1): 0.5}))
    assert pickle.loads(pickle.dumps(energy)).name == "energy"


def test_a_piece_returns_what_it_has_when_it_is_interrupted(monkeypatch):
    def answer(self, k, _):
        self.is_begun = True
        if k == 2:
            raise KeyboardInterrupt
        return plain[0]

    plain = db.estimate_many(MODEL, [([0], None)], tolerance=0.2, seed=1)
    monkeypatch.setattr(several._Wave, "plan", answer)
    settings = replace(read_settings(MODEL, 0.2, 0.99, "auto", None, None), backend="cpu")
    content = several.Content(MODEL, settings, np.random.SeedSequence(1))
    found = many.answer_piece(content, {k: ([k], None) for k in range(5)}, Within(1), None)
    assert sorted(found) == [0, 1]


def test_long_pieces_come_back_and_the_rest_goes_on(monkeypatch):
    asked = queries(8)
    plain = db.estimate_many(MODEL, asked, tolerance=0.05, seed=7)
    monkeypatch.setattr(many, "_PIECE_SECONDS", 0.0)  # one query a piece, as long as they last
    with Counting() as pool, pretend_processes(pool, monkeypatch):
        monkeypatch.setattr(many, "shares_memory", lambda _: False)
        monkeypatch.setattr(many, "workers_of", lambda _: 1)
        found = db.estimate_many(MODEL, asked, tolerance=0.05, seed=7, run=db.RunOptions(executor=pool))
    assert all(same_estimate(a, b) for a, b in zip(plain, found, strict=True))
    assert len(pool.bytes) == 8


def test_a_piece_plans_for_the_cores_of_the_whole_and_stops_with_it():
    stopped = threading.Event()
    with entered(within=Within(123, stopped)):
        assert cores() == 123
        run = db.sample(MODEL, SCAN, chains=100, seed=1)
        stopped.set()
        with pytest.raises(db.WorkerError, match="told to stop"):
            db.sample(MODEL, SCAN, chains=100, seed=1)
    assert cores() == (os.cpu_count() or 1)
    np.testing.assert_array_equal(run.states, db.sample(MODEL, SCAN, chains=100, seed=1).states)


# -- Dask --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dask() -> Iterator:
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.slow
def test_dask_gives_the_same(dask):
    pool = dask.get_executor()
    assert workers_of(pool) == 2
    plain = db.sample(MODEL, SCAN, chains=1000, seed=3, kernel="field")
    there = db.sample(MODEL, SCAN, chains=1000, seed=3, kernel="field", run=db.RunOptions(executor=pool))
    np.testing.assert_array_equal(plain.states, there.states)
    assert same_estimate(
        db.estimate(MODEL, [3], tolerance=0.05, seed=2, method="dobrushin", run=db.RunOptions(executor=pool)),
        db.estimate(MODEL, [3], tolerance=0.05, seed=2, method="dobrushin"),
    )
    asked = queries(20)
    here = db.estimate_many(MODEL, asked, tolerance=0.05, seed=7)
    far = db.estimate_many(MODEL, asked, tolerance=0.05, seed=7, run=db.RunOptions(executor=pool))
    assert all(same_estimate(a, b) for a, b in zip(here, far, strict=True))


@pytest.mark.slow
def test_dask_reruns_what_killed_workers_had(dask, tmp_path):
    start = Noted(str(tmp_path), 144, seconds=0.1)
    options = {"chains": 2048, "seed": 3, "initial": start, "kernel": "field"}
    pids = list(dask.run(os.getpid).values())
    assert len(pids) == 2
    killed = []

    def kill() -> None:
        for count, pid in zip((4, 10), pids, strict=True):
            while len(list(tmp_path.iterdir())) < count:
                time.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    there = db.sample(MODEL, SCAN, run=db.RunOptions(executor=dask.get_executor()), **options)
    killer.join()
    began = [int(path.name.split(".")[0]) for path in tmp_path.iterdir()]
    assert killed == pids
    assert len(began) > len(set(began)) >= 14  # some batches had to begin again
    plain = db.sample(MODEL, SCAN, **options)
    np.testing.assert_array_equal(plain.states, there.states)


def test_a_dask_client_that_is_closed_is_refused(dask):
    distributed = pytest.importorskip("distributed")
    other = distributed.Client(dask.scheduler.address)
    pool = other.get_executor()
    other.close()
    with pytest.raises(db.ArgumentError, match=r"'executor' .* one that accepts work"):
        db.sample(MODEL, SCAN, run=db.RunOptions(executor=pool))


def test_where_no_temporary_file_can_be_written_the_model_travels_with_each_piece(monkeypatch, tmp_path):
    model = db.Ising.grid(150, 150, couplings=0.2)
    scan = db.Scan.systematic(model.n_variables, 2 * model.n_variables)
    plain = db.sample(model, scan, chains=128, seed=1)
    for folder in (tmp_path / "missing", tmp_path):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        if folder is tmp_path:  # the file is made, and then there is no room for it
            monkeypatch.setattr("dobrushin._shared.executors.open", lambda *_: FullDisk(), raising=False)
        with ProcessPoolExecutor(1) as pool:
            same = db.sample(model, scan, chains=128, seed=1, run=db.RunOptions(executor=pool))
        np.testing.assert_array_equal(same.states, plain.states)
    assert list(tmp_path.iterdir()) == []


class FullDisk:
    """A file on it."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def write(self, _):
        raise OSError(errno.ENOSPC, "No space left on device")
