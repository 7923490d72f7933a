"""Answers that something ends before their time: they hold, and nothing that was done is lost."""

import contextlib
import itertools
import math
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import dobrushin as db
from dobrushin._shared import state_file
from dobrushin._shared.clock import noted_interrupts
from dobrushin._shared.executors import TimeUp, run_pieces
from dobrushin._shared.intervals import (
    ANYTIME,
    FINAL,
    PLANNED,
    SEQUENTIAL,
    clopper_pearson,
    hoeffding,
    lower_anytime,
    lower_limit,
    upper_end,
    values_needed,
)
from dobrushin._shared.state_file import StateFile

SPINS = db.Ising({(0, 1): 0.3, (1, 2): -0.2}, fields=[0.2, 0.0, 0.1])
TRUTH = float(db.exact.marginals(SPINS)[0][1])
NOW = 1e-9  # seconds: over before anything is done


class Watched(Executor):
    """Runs batches one after the other in this thread; `is_enough` sees the counts so far and may end the run."""

    def __init__(self, is_enough, workers=24):
        self._max_workers = workers
        self.is_enough, self.total, self.batches = is_enough, 0, 0

    def submit(self, function, /, *args, **kwargs):
        if self.batches and self.is_enough(self):
            raise KeyboardInterrupt
        future = Future()
        progress = function(*args, **kwargs)
        self.batches += 1
        if progress.counts is not None:
            self.total = self.total + progress.counts
        future.set_result(progress)
        return future


# -- intervals that hold whenever one stops ---------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.02, 0.4])
def test_anytime_limits_hold_at_all_times_at_once_and_planned_ones_do_not(p):
    error, runs, steps = 0.05, 1000, 400
    rng = np.random.default_rng(1)
    successes = (rng.random((runs, steps)) < p).cumsum(axis=1)
    missed, missed_planned = np.zeros(runs, bool), np.zeros(runs, bool)
    for n in range(1, steps + 1, 4):
        missed |= lower_anytime(successes[:, n - 1], n, error) > p
        missed_planned |= lower_limit(successes[:, n - 1], n, error) > p
    assert missed.sum() <= stats.binom.isf(1e-6, runs, error)
    assert missed_planned.sum() > 2 * stats.binom.isf(1e-6, runs, error)  # a limit for one number of trials, misused


def test_anytime_limits_are_the_ends_of_the_martingale_in_rational_arithmetic():
    from fractions import Fraction

    def martingale(k, n, p):
        value = Fraction(1)
        for i in range(n):  # B(k + 1/2, n - k + 1/2) / B(1/2, 1/2), a factor at a time
            top = Fraction(2 * i + 1, 2) if i < k else Fraction(2 * (i - k) + 1, 2)
            value *= top / (i + 1)
        return value / (p**k * (1 - p) ** (n - k))

    for k, n in ((1, 1), (3, 10), (17, 40), (40, 40)):
        limit = Fraction(float(lower_anytime(k, n, 0.01)))
        assert martingale(k, n, limit) >= 100
        assert martingale(k, n, limit + Fraction(1, 10**8)) < 100 + Fraction(1, 1000)
    assert lower_anytime(0, 10, 0.01) == 0.0
    assert lower_anytime(0, 0, 0.01) == 0.0


def test_shares_of_the_error_add_up():
    assert PLANNED + ANYTIME == 1.0
    assert SEQUENTIAL + FINAL == 1.0
    assert upper_end(3, 100, 0.1, early=False) == 1.0 - lower_limit(97, 100, 0.1 * PLANNED)
    assert upper_end(3, 100, 0.1, early=True) > upper_end(3, 100, 0.1, early=False)


def test_anytime_limits_stay_sound_at_huge_numbers_of_trials():
    for trials in (10**9, 10**12):
        limit = float(lower_anytime(trials // 2, trials, 1e-4))
        assert 0.5 - 20 / math.sqrt(trials) < limit < 0.5 - 1.5 / math.sqrt(trials)


@pytest.mark.slow
def test_early_answers_cover_when_an_adversary_stops_them_and_fixed_intervals_do_not():
    tolerance, confidence, runs, z = 0.02, 0.8, 1000, 1.6

    def looks_off(watched):
        plus, n = watched.total[0, 1], watched.total[0].sum()
        return abs(plus - n * TRUTH) > z * math.sqrt(n * TRUTH * (1 - TRUTH))

    missed = missed_fixed = early = 0
    for seed in range(runs):
        pool = Watched(looks_off)
        options = {"tolerance": tolerance, "confidence": confidence, "method": "dobrushin"}
        try:
            answer = db.estimate(SPINS, [0], seed=seed, run=db.RunOptions(executor=pool), **options)
        except db.Interrupted as interruption:
            answer, early = interruption.result, early + 1
            assert answer.stopped_by == "Ctrl-C"
        missed += not answer.lower[1] <= TRUTH <= answer.upper[1]
        low, high = clopper_pearson(pool.total[0, 1], int(pool.total[0].sum()), 1 - confidence)
        missed_fixed += not low <= TRUTH <= high
    assert early > 50
    limit = stats.binom.isf(1e-6, runs, 1 - confidence)
    assert missed <= limit
    assert missed_fixed > limit  # intervals of a fixed size, looked at until they miss


# -- what is kept when a run ends -------------------------------------------------------------------------------------


def test_an_interrupted_estimate_carries_its_intervals_and_goes_on_from_its_file(tmp_path):
    options = {"tolerance": 0.02, "method": "dobrushin", "seed": 3}
    plain = db.estimate(SPINS, [0, 2], **options)
    file = tmp_path / "run.npz"
    with pytest.raises(db.Interrupted, match="have half-widths up to") as caught:
        db.estimate(
            SPINS, [0, 2], run=db.RunOptions(checkpoint=file, executor=Watched(lambda w: w.batches == 3)), **options
        )
    early = caught.value.result
    assert early.is_certified
    assert early.half_width.max() > 0.02
    assert 0 < early.chains < plain.chains
    assert "stopped by Ctrl-C" in str(early)
    assert any("confidence sequence" in words for words in early.assumptions)
    again = db.estimate(SPINS, [0, 2], run=db.RunOptions(checkpoint=file), **options)
    np.testing.assert_array_equal(again.lower, plain.lower)
    np.testing.assert_array_equal(again.value, plain.value)


@pytest.mark.parametrize("method", ["dobrushin", "coalescence", "uncertified"])
def test_every_method_that_draws_has_early_answers(method):
    target = db.Statistic(lambda x: x.mean(axis=1), {0: 1.0, 1: 1.0}, bounds=(-1, 1), name="mean")
    for targets in ([0], [db.Joint(0, 1)], [target]):
        with pytest.raises(db.Interrupted) as caught:
            db.estimate(
                SPINS,
                targets,
                tolerance=0.01,
                method=method,
                seed=1,
                run=db.RunOptions(executor=Watched(lambda w: w.batches == 5)),
            )
        early = caught.value.result
        done = db.estimate(SPINS, targets, tolerance=0.01, method=method, seed=1)
        assert (early.lower <= done.value).all()
        assert (done.value <= early.upper).all()
        assert early.half_width.max() > done.half_width.max()
        assert not early._is_vacuous


def test_later_chains_that_happen_to_finish_are_left_out():
    class Backwards(Executor):
        """Finishes the second batch and never the first."""

        _max_workers = 64
        count = 0

        def submit(self, function, /, *args, **kwargs):
            future = Future()
            self.count += 1
            if self.count == 2:
                future.set_result(function(*args, **kwargs))
            if self.count > 3:
                raise KeyboardInterrupt
            return future

    with pytest.raises(db.Interrupted) as caught:
        db.sample(SPINS, db.Scan.systematic(3, 30), chains=6400, seed=1, run=db.RunOptions(executor=Backwards()))
    assert caught.value.result.chains == 0


def test_a_lost_executor_leaves_an_estimate():
    class Dying(Watched):
        def submit(self, function, /, *args, **kwargs):
            if self.batches == 4:
                raise RuntimeError("cannot schedule new futures after shutdown")
            return super().submit(function, *args, **kwargs)

    for method in ("dobrushin", "coalescence"):
        with pytest.raises(db.WorkerError) as caught:
            db.estimate(
                SPINS, [0], tolerance=0.01, method=method, seed=1, run=db.RunOptions(executor=Dying(lambda _: False))
            )
        estimate = caught.value.result
        assert estimate.lower[1] <= TRUTH <= estimate.upper[1]
        assert estimate.half_width.max() < 0.5


@pytest.mark.slow
def test_a_saved_run_with_little_time_has_the_plan_of_one_without_a_limit(tmp_path):
    clique = db.Ising({(i, j): 0.01 for i in range(70) for j in range(i)})
    options = {"tolerance": 0.01, "seed": 1}
    plain = db.estimate(clique, [0], **options)
    for k, time in enumerate((NOW, 0.02, 0.1)):
        file = tmp_path / f"run{k}.npz"
        with contextlib.suppress(db.BudgetError, db.CertificateError):
            db.estimate(clique, [0], run=db.RunOptions(checkpoint=file), time_limit=time, **options)
        again = db.estimate(clique, [0], run=db.RunOptions(checkpoint=file), **options)
        assert again.plan.method == plain.plan.method
        np.testing.assert_array_equal(again.lower, plain.lower)


# -- limits in time ---------------------------------------------------------------------------------------------------


def test_no_time_at_all_gives_limits_that_hold_for_every_model():
    scan = db.Scan.systematic(3, 300)
    try:
        answer = db.estimate(SPINS, [0], method="dobrushin", time_limit=NOW)
    except (db.BudgetError, db.CertificateError) as error:
        answer = error.result
    assert (answer.lower[0], answer.upper[0]) == (0.0, 1.0)
    assert db.sample(SPINS, scan, chains=10**9, record="counts", time_limit=NOW).chains < 10**9
    early = db.coalescence(SPINS, scan, runs=10**6, time_limit=NOW)
    assert early.stopped_early
    assert early.runs < 10**6
    many = db.estimate_many(SPINS, [([0], None), ([1], None)], method="dobrushin", time_limit=NOW)
    assert len(many.answers) + len(many.errors) == 2
    assert all(isinstance(error, db.BudgetError | db.CertificateError) for error in many.errors.values())
    data = db.sample(SPINS, scan, chains=100, seed=1).states
    assert len(db.fit(SPINS, data, time_limit=NOW).history) == 0


def test_a_model_that_is_never_made_has_limits_too_when_there_is_no_time():
    grid = db.Ising.grid(3, 3, couplings=lambda k: 0.1 + 0.0 * k)
    with pytest.raises((db.BudgetError, db.CertificateError)) as caught:
        db.estimate(grid, [4], method="coalescence", time_limit=NOW)
    assert caught.value.result.targets == [4, 4]
    assert (caught.value.result.upper - caught.value.result.lower == 1.0).all()


def test_queries_that_are_begun_when_no_time_is_left_say_so():
    from dobrushin._estimate.many import answer_piece
    from dobrushin._estimate.query import read_settings
    from dobrushin._estimate.several import Content
    from dobrushin._shared.executors import Within

    settings = read_settings(db.Ising({(0, 1): 0.1}), 1e-3, 0.99, "dobrushin", None, None)
    content = Content(SPINS, replace(settings, backend="cpu"), np.random.SeedSequence(1))
    for seconds in (0.0, -1.0):
        for outcome in answer_piece(content, {0: ([0], None)}, Within(1), seconds).values():
            assert isinstance(outcome, db.Estimate | db.BudgetError | db.CertificateError)


def test_queries_that_the_time_ended_are_begun_again():
    queries = [([0], None), ([1], None)]
    options = {"tolerance": 0.01, "method": "dobrushin", "seed": 2}
    whole = db.estimate_many(SPINS, queries, **options)
    cut = db.estimate_many(SPINS, queries, **options)
    stopped = replace(cut.answers[1], lower=np.zeros(2), upper=np.ones(2), stopped_by="the time limit")
    cut.answers[1] = stopped
    again = db.estimate_many(SPINS, queries, **options, finished=cut)
    np.testing.assert_array_equal(again[1].lower, whole[1].lower)
    assert again[0] is cut[0]
    late = db.estimate_many(SPINS, queries, **options, finished=cut, time_limit=NOW)
    assert late[1] is stopped  # there is nothing better


@pytest.mark.parametrize("time", [0, -1.0, math.nan, "soon", True])
def test_a_time_that_is_none_is_refused(time):
    scan = db.Scan.systematic(3, 30)
    calls = (
        lambda: db.estimate(SPINS, [0], time_limit=time),
        lambda: db.sample(SPINS, scan, time_limit=time),
        lambda: db.coalescence(SPINS, scan, time_limit=time),
        lambda: db.estimate_many(SPINS, [([0], None)], time_limit=time),
        lambda: db.fit(SPINS, [[1, 1, 1]], time_limit=time),
    )
    for call in calls:
        with pytest.raises(db.ArgumentError, match=r"'time_limit' argument .* positive number of seconds"):
            call()


def test_with_time_the_scan_fits_what_can_be_reached():
    asked = db.plan(SPINS, [0], tolerance=1e-7, method="dobrushin")
    answer = db.estimate(SPINS, [0], tolerance=1e-7, method="dobrushin", seed=1, time_limit=0.5)
    assert answer.steps < len(asked.scan)
    assert answer.stopped_by == "the time limit"
    assert "1e-07 was not reached" in answer.headline
    assert answer.lower[1] <= TRUTH <= answer.upper[1]


@pytest.mark.parametrize("make_pool", [lambda: None, lambda: ThreadPoolExecutor(2), lambda: ProcessPoolExecutor(1)])
def test_huge_numbers_of_chains_are_made_as_they_are_taken(make_pool):
    pool = make_pool()
    run = db.sample(
        SPINS,
        db.Scan.systematic(3, 30),
        chains=10**15,
        seed=1,
        record="counts",
        run=db.RunOptions(executor=pool),
        time_limit=1.0,
    )
    assert run.chains < 10**15
    assert run.counts.sum() == 3 * run.chains
    if pool is not None:
        pool.shutdown()


def test_pieces_are_asked_for_one_by_one():
    finished = {}

    def look():
        if len(finished) > 200:
            raise TimeUp

    class Immediate(Executor):
        def submit(self, function, /, *args, **kwargs):
            future = Future()
            future.set_result(function(*args, **kwargs))
            return future

    trouble = run_pieces(
        Immediate(), lambda pool, k: pool.submit(int, k), itertools.count(), finished,
        look=look, stop=lambda: None,
    )  # fmt: skip
    assert isinstance(trouble, TimeUp)
    assert list(finished) == list(range(201))


def test_work_that_takes_longer_than_anyone_waits_is_refused_with_a_way_out():
    with pytest.raises(db.BudgetError, match=r"seconds, over the limit.*time_limit=.*budget=") as caught:
        db.estimate(SPINS, [0], tolerance=1e-7, method="dobrushin")
    assert caught.value.plan.seconds > 3600
    assert caught.value.result._is_vacuous
    assert db.plan(SPINS, [0], tolerance=1e-7, method="dobrushin").chains == caught.value.plan.chains
    scan = db.Scan.systematic(3, 30)
    for call in (lambda: db.sample(SPINS, scan, chains=10**16), lambda: db.coalescence(SPINS, scan, runs=10**16)):
        with pytest.raises(db.BudgetError, match="time_limit="):
            call()


def test_refusals_carry_limits_that_hold():
    strong = db.Ising.grid(12, 12, couplings=3.0)
    with pytest.raises(db.CertificateError) as caught:
        db.estimate(strong, [0], method="dobrushin")
    assert caught.value.result._is_vacuous
    assert (caught.value.result.upper - caught.value.result.lower == 1.0).all()
    assert "attribute 'result'" not in str(caught.value)


# -- a plan is a promise ----------------------------------------------------------------------------------------------


def test_hoeffding_needs_as_many_values_as_it_says():
    for aim, error in ((0.3, 0.1), (0.01, 0.01), (1e-5, 1e-3)):
        values = values_needed(aim, error)
        assert hoeffding(values, error) <= aim < hoeffding(max(1, values - 1 - values // 10**9), error)


@pytest.mark.slow
def test_the_plan_of_a_mean_is_never_exceeded():
    coin = db.Ising({(0, 1): 0.05})  # spins with the largest variance there is
    target = db.Statistic(lambda x: x[:, 0].astype(float), {0: 2.0}, bounds=(-1, 1), name="spin")
    for tolerance in (0.1, 0.05):
        plan = db.plan(coin, [target], tolerance=tolerance, method="dobrushin")
        for seed in range(60):
            answer = db.estimate(
                coin, [target], tolerance=tolerance, method="dobrushin", seed=seed, budget=plan.updates
            )
            assert answer.chains <= plan.chains
            assert answer.half_width.max() <= tolerance


def test_the_plan_of_a_coalescence_can_be_its_budget():
    torus = db.Ising.grid(8, 8, couplings=0.3, periodic=True)
    for tolerance in (0.05, 0.02):
        plan = db.plan(torus, [0], tolerance=tolerance, method="coalescence")
        again = db.plan(torus, [0], tolerance=tolerance, method="coalescence", budget=plan.updates)
        assert again.scan == plan.scan or len(again.scan) == len(plan.scan)
        for seed in range(5):
            answer = db.estimate(torus, [0], tolerance=tolerance, method="coalescence", seed=seed, budget=plan.updates)
            assert answer.chains <= plan.chains


def test_hoeffding_takes_over_at_the_last_chain_and_holds():
    from dobrushin._estimate.questions import Mean, MeanTally
    from dobrushin._shared.intervals import FINAL, values_needed

    rng, runs, error, p = np.random.default_rng(5), 1000, 0.1, 0.5
    target = db.Statistic(lambda x: x[:, 0].astype(float), {0: 1.0}, bounds=(0, 1), name="bit")
    question = Mean(np.array([0]), target, np.ones(1), np.zeros(1, np.int64), np.array([0]), [range(2)])
    aim = 0.05
    planned = values_needed(aim, FINAL * error)
    missed = 0
    for _ in range(runs):
        tally = MeanTally(question, error, aim, sets=False)
        tally.add((rng.random((planned, 1)) < p).astype(np.int64), None, 0)
        _, low, high = tally.limits(planned, error, 0.0, early=False)
        assert high[0] - low[0] <= 2 * aim + 1e-12
        missed += not low[0] <= p <= high[0]
    assert missed <= stats.binom.isf(1e-6, runs, error)


def test_ctrl_c_leaves_no_lock_behind():
    """Ctrl-C right after a lock of a future is taken: the worker that needs the lock next would wait forever."""

    pressed = []

    class Pressing(ThreadPoolExecutor):
        def submit(self, function, /, *args, **kwargs):
            future = super().submit(function, *args, **kwargs)
            acquire = future._condition.acquire

            def press(*args):
                acquire(*args)
                if not pressed:  # a third press would raise at once
                    pressed.append(True)
                    signal.raise_signal(signal.SIGINT)
                return True

            future._condition.acquire = press  # as `concurrent.futures.wait` takes it
            return future

    with Pressing(2) as pool, pytest.raises(db.Interrupted):
        db.sample(
            SPINS, db.Scan.systematic(3, 300), chains=10**6, seed=1, record="counts", run=db.RunOptions(executor=pool)
        )


def test_ctrl_c_is_only_noted_while_pieces_run_and_raised_afterwards():
    with noted_interrupts() as presses:
        signal.raise_signal(signal.SIGINT)
        assert presses.count == 1
        with pytest.raises(KeyboardInterrupt):
            presses.look()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):  # nobody listens
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_where_threads_cannot_begin_the_work_is_done_all_the_same():
    code = """
import resource, threading
import dobrushin as db
spins = db.Ising({(0, 1): 0.3, (1, 2): -0.2})
scan = db.Scan.systematic(3, 30)
before = db.sample(spins, scan, chains=6400, seed=1).states
draws = db.exact_sample(spins, [0], 640, seed=1).states
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 12 * 2**20, resource.RLIM_INFINITY))
threading.Thread.start = None
assert (db.sample(spins, scan, chains=6400, seed=1).states == before).all()
assert (db.exact_sample(spins, [0], 640, seed=1).states == draws).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ctrl_c_while_a_checkpoint_is_written_waits_until_it_is(tmp_path, monkeypatch):
    """Else the zip file complains that it is not finished, and nobody hears of Ctrl-C."""
    write, file = np.savez, tmp_path / "run.npz"

    def press(*args, **kwargs):
        signal.raise_signal(signal.SIGINT)
        write(*args, **kwargs)

    monkeypatch.setattr(np, "savez", press)
    state = StateFile(file, "kind", "run", np.random.SeedSequence(1), (), "all")
    with pytest.raises(KeyboardInterrupt):
        state.begin({"numbers": np.arange(3)})
    with np.load(file) as stored:
        assert stored["numbers"].tolist() == [0, 1, 2]


def test_a_planted_link_is_not_followed(tmp_path):
    """The name of a temporary file cannot be guessed, so that nobody can make it a link to another file."""
    (tmp_path / "precious").write_text("kept")
    for name in ("run.npz.part", "run.part"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    db.sample(
        db.Ising.grid(3, 3, couplings=0.1),
        db.Scan.systematic(9, 9),
        chains=64,
        seed=1,
        run=db.RunOptions(checkpoint=tmp_path / "run.npz"),
    )
    assert (tmp_path / "precious").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "run.npz", "run.npz.part", "run.part"]


@pytest.mark.skipif(sys.platform == "win32", reason="other locks there")
def test_two_runs_do_not_share_a_checkpoint(tmp_path):
    model, scan, file = db.Ising.grid(3, 3, couplings=0.1), db.Scan.systematic(9, 9), tmp_path / "run.npz"
    other = StateFile(file, "kind", "run", np.random.SeedSequence(1), (), "all")
    assert other.read() is None
    late = StateFile(file, "kind", "run", np.random.SeedSequence(1), (), "all")
    with pytest.raises(db.ArgumentError, match="a file that no other run is writing"):
        late.read()
    other.begin({"numbers": np.arange(3)})
    for _ in range(2):
        with pytest.raises(db.ArgumentError, match=r"'checkpoint' .* a file that no other run is writing"):
            db.sample(model, scan, chains=64, seed=1, run=db.RunOptions(checkpoint=file))
        other.save({"numbers": np.arange(4)})
    other.close()
    with pytest.raises(db.ArgumentError, match="an earlier run wrote"):
        db.sample(model, scan, chains=64, seed=1, run=db.RunOptions(checkpoint=file))
    file.unlink()
    for _ in range(2):
        db.sample(model, scan, chains=64, seed=1, run=db.RunOptions(checkpoint=file))
    with pytest.raises(db.ArgumentError, match="written by the same run"):
        db.sample(model, scan, chains=64, seed=2, run=db.RunOptions(checkpoint=file))
    db.sample(model, scan, chains=64, seed=1, run=db.RunOptions(checkpoint=file))
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


@pytest.mark.skipif(sys.platform == "win32", reason="these locks play those of Windows")
def test_locks_of_windows_do_the_same(tmp_path, monkeypatch):
    import fcntl

    windows = SimpleNamespace(LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB, LK_UNLCK=fcntl.LOCK_UN)
    windows.locking = lambda descriptor, kind, _: fcntl.flock(descriptor, kind)
    monkeypatch.setattr(state_file, "fcntl", None)
    monkeypatch.setattr(state_file, "msvcrt", windows, raising=False)
    path, lock = tmp_path / "run.npz", tmp_path / "run.npz.lock"
    first, second = (StateFile(path, "kind", "run", np.random.SeedSequence(1), (), "all") for _ in range(2))
    assert first.read() is None
    first.begin({"numbers": np.arange(3)})
    assert lock.exists()
    with pytest.raises(db.ArgumentError, match="a file that no other run is writing"):
        second.read()
    first.save({"numbers": np.arange(4)})
    first.close()
    assert not lock.exists()
    assert second.read()["numbers"].tolist() == [0, 1, 2, 3]
    second.close()
    model, scan, file = db.Ising.grid(3, 3, couplings=0.2), db.Scan.systematic(9, 90), tmp_path / "sample.npz"
    runs = [db.sample(model, scan, chains=100, seed=1, run=db.RunOptions(checkpoint=file)) for _ in range(2)]
    assert np.array_equal(runs[0].states, runs[1].states)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.npz", "sample.npz"]


def test_the_plan_of_a_saved_call_does_not_depend_on_its_time_limit(tmp_path):
    model = db.Ising.grid(6, 6, couplings=0.35)
    options = {"method": "coalescence", "tolerance": 0.05, "seed": 1}
    whole = db.estimate(model, [0], **options)
    early = db.estimate(model, [0], time_limit=1e-6, run=db.RunOptions(checkpoint=tmp_path / "run"), **options)
    assert early.plan.scan == whole.plan.scan
    again = db.estimate(model, [0], run=db.RunOptions(checkpoint=tmp_path / "run"), **options)
    np.testing.assert_array_equal(again.value, whole.value)
