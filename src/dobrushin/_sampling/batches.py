"""Runs of chains in batches over an executor, with progress, interruption and checkpoints.

All sampling, on CPU and GPU, goes through `run_batches`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from pickle import PicklingError
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.kernel import Batches, Runner, Work
from dobrushin._sampling.start import Guard, Start
from dobrushin._scan import Scan
from dobrushin._shared.call import Deadline, bar
from dobrushin._shared.environment import log
from dobrushin._shared.executors import (
    TimeUp,
    Trouble,
    own_executor,
    own_threads,
    receive,
    run_pieces,
    share,
    shares_memory,
    workers_of,
)
from dobrushin._shared.running import Running
from dobrushin._shared.state_file import StateFile

# Updates between two checks of whether to stop (some tens of milliseconds), and the least number of sweeps of a long
# cycle, since waves are fastest when many sweeps run at once.
CHUNK = 10**7
SWEEPS = 64
# Largest number of seconds between these checks.
LOOK_SECONDS = 0.2
# Runs with a checkpoint are split for this number of cores, so that batches are the same wherever the run resumes.
_CHECKPOINT_CORES = 4
_FORMAT = "dobrushin checkpoint 3"
_SAME = "model, scan, seed, chains, record and kernel"
_PARTS = ("x", "states", "counts")


@dataclass(frozen=True)
class Job:
    """Description of a run for all of its batches, small enough to send to another process."""

    runner: Runner
    scan: Scan
    master: NDArray[np.uint64]
    rows: NDArray[np.int64]  # variables to keep, by number in the region
    stops: NDArray[np.int64]  # steps after which to keep their states
    largest: int  # largest number of states of a variable to keep
    states: bool = True  # whether to keep states
    counts: bool = False  # whether to count states
    start: Start | None = None  # None: the start of the runner
    guard: Guard | None = None
    is_from_past: bool = False  # whether random numbers are counted back from the last step of the scan


@dataclass
class Progress:
    """State of a batch while it runs, from which the batch can resume."""

    step: int = 0
    kept: int = 0
    x: Any = None
    states: NDArray[Any] | None = None  # (kept steps, variables, chains)
    counts: NDArray[np.int64] | None = None

    def snapshot(self) -> Progress:
        """Return a copy that does not change while the batch runs.

        Kept states are shared with the copy, since a run only adds to them.
        """
        counts = None if self.counts is None else self.counts.copy()
        return Progress(self.step, self.kept, self.x.copy(), self.states, counts)


@dataclass
class Control:
    """Communication between the main thread and batches in threads of the same process."""

    deadline: Deadline
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    under_way: dict[int, Progress] = field(default_factory=dict)
    updates: int = 0
    snapshots: bool = False

    def report(self, index: int, now: Progress, updates: int) -> None:
        """Report the progress of a batch, and keep a copy of its state to resume from.

        Raises `Stopped` if the run was interrupted or its time limit is over.
        """
        with self.lock:
            self.updates += updates
            if self.snapshots:
                self.under_way[index] = now.snapshot()
        if self.stop.is_set() or self.deadline.is_over:
            raise Stopped


class Stopped(TimeUp):
    """The run of this batch was interrupted, or its time limit is over."""


def run_batch(shared: Any, chains: range, progress: Progress | None, control: Control | None, index: int) -> Progress:
    """Run a range of chains to the end of the scan; `shared` is the `Job` in the form that `share` sends."""
    job: Job = receive(shared)
    runner, scan = job.runner, job.scan
    now = progress or _begin(job, chains)
    chunk = runner.look(len(chains))
    if chunk is None:
        # All variables of a chunk of random steps are drawn, and held in memory, before the first update.
        periods = () if scan.is_random else (segment.period for segment in scan._segments)
        updates = CHUNK // 10 if scan.is_random else max(CHUNK, SWEEPS * max(periods))
        chunk = min(max(1, updates // len(chains)), runner.steps_in(LOOK_SECONDS, scan, len(chains)))
    while now.kept < len(job.stops):
        target = min(int(job.stops[now.kept]), now.step + chunk)
        before = 0
        for segment in scan._segments:
            lo, hi = max(now.step - before, 0), min(target - before, segment.steps)
            if lo < hi:
                number, stride = (len(scan) - 1 - before - lo, -1) if job.is_from_past else (before + lo, 1)
                runner.run(now.x, Work(job.master, chains, segment, lo, hi, number, stride))
            before += segment.steps
        done = (target - now.step) * len(chains)
        now.step = target
        if target == job.stops[now.kept]:
            if now.states is not None:
                now.states[now.kept] = runner.read(now.x, job.rows, len(chains))
            if now.counts is not None:
                runner.count(now.x, job.rows, len(chains), now.counts)
            now.kept += 1
        if control:
            control.report(index, now, done)
    now.x = None
    return now


def _begin(job: Job, chains: range) -> Progress:
    runner = job.runner
    x = runner.start(job.master, chains) if job.start is None else runner.load(job.start(chains))
    if job.guard is not None:
        better = job.guard.admit(runner.read(x, np.arange(runner.region.size), len(chains)), chains.start)
        x = x if better is None else runner.load(better)
    shape = (len(job.stops), len(job.rows), len(chains))
    states = np.empty(shape, dtype=runner.dtype) if job.states else None
    counts = np.zeros((len(job.rows), job.largest), dtype=np.int64) if job.counts else None
    return Progress(x=x, states=states, counts=counts)


class Outcome:
    """Results of a run, by number of the batch.

    The results of a run that ended early are those of the first batches, up to the first batch that did not finish.
    Later batches that happened to finish are left out, since the time of a chain may depend on its states. Counts
    without states are added up over the first batches, so that memory does not grow with their number.

    Attributes
    ----------
    first : int
        Number of batches from the first on that have finished, without a gap.
    all_chains : int
        Number of chains of all finished batches.
    added : array or None
        Sum of the counts of the first batches, where only counts are kept.
    parts : dict
        Results of other finished batches, by number.
    trouble : KeyboardInterrupt, Lost, TimeUp or None
        Reason why the run ended early.
    """

    def __init__(self, batches: Batches | list[range], adds_up: bool) -> None:
        self.batches, self._adds_up = batches, adds_up
        self.first = self.all_chains = 0
        self.added: NDArray[np.int64] | None = None
        self.parts: dict[int, Progress] = {}
        self.trouble: Trouble | None = None

    def __contains__(self, k: int) -> bool:
        return k < self.first or k in self.parts

    def __setitem__(self, k: int, part: Progress) -> None:
        self.parts[k] = part
        self.all_chains += len(self.batches[k])
        while self.first in self.parts:
            if self._adds_up:
                counts = cast(NDArray[np.int64], self.parts.pop(self.first).counts)
                self.added = counts if self.added is None else self.added + counts
            self.first += 1

    @property
    def chains(self) -> int:
        return self.batches[self.first - 1].stop - self.batches[0].start if self.first else 0

    def states(self, job: Job) -> NDArray[Any]:
        """Return the states of the first batches, an array of shape (kept steps, variables, chains)."""
        pieces = [states for k in range(self.first) if (states := self.parts[k].states) is not None]
        if not pieces:
            return np.empty((len(job.stops), len(job.rows), 0), dtype=job.runner.dtype)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=2)

    def counts(self, job: Job) -> NDArray[np.int64]:
        """Return the counts of the first batches, an array of shape (variables, states)."""
        if self.added is not None:
            return self.added
        total = np.zeros((len(job.rows), job.largest), dtype=np.int64)
        for k in range(self.first) if self.parts else ():
            total += cast(NDArray[np.int64], self.parts[k].counts)
        return total


def run_batches(
    job: Job, numbers: range | list[range], call_seed: np.random.SeedSequence, running: Running, what: str
) -> Outcome:
    """Run the chains with these numbers, as a range or as a list of batches, and return their results.

    The progress bar shows the text `what`. A checkpoint stores `call_seed`, with which the call can be repeated.
    """
    workers = _CHECKPOINT_CORES if running.checkpoint else workers_of(running.executor)
    batches: Batches | list[range] = numbers if isinstance(numbers, list) else job.runner.batches(numbers, workers)
    region = job.runner.region
    chains = sum(map(len, batches)) if isinstance(batches, list) else len(batches.numbers)
    log.info(
        "%s: kernel %s, region of %d variables (%d updated), %d chains of %d steps in %d batches",
        what, job.runner.name, region.size, len(region.updated), chains, len(job.scan), len(batches),
    )  # fmt: skip
    outcome = Outcome(batches, adds_up=not job.states)
    total = len(job.scan) * chains
    saved, done = None, 0
    if running.checkpoint is not None:
        saved = Checkpoint(running.checkpoint, call_seed, (job, numbers, len(batches)), outcome)
        under_way = sum(progress.step * len(batches[k]) for k, progress in saved.under_way.items())
        if done := outcome.all_chains * len(job.scan) + under_way:
            log.info("resuming from %s at %d %%", running.checkpoint, 100 * done // total)
    with closing(saved) if saved else nullcontext(), bar(total, what, deadline=running.deadline) as report:
        outcome.trouble = trouble = _run_all(job, outcome, running, saved, done, report)
    if trouble is not None:
        ended = type(trouble).__name__
        log.info("%s ended early (%s) with %d of %d chains", what, ended, outcome.all_chains, chains)
    return outcome


def _run_all(
    job: Job,
    finished: Outcome,
    running: Running,
    checkpoint: Checkpoint | None,
    done: int,
    report: Callable[[int], None] | None,
) -> Trouble | None:
    """Run the batches that have not finished; return the reason for an early end, or None.

    `done` is the number of updates that a checkpoint has already.
    """
    batches = finished.batches
    partial = {k: p.snapshot() for k, p in checkpoint.under_way.items()} if checkpoint else {}
    control = Control(running.deadline, updates=done, snapshots=checkpoint is not None)
    control.under_way |= checkpoint.under_way if checkpoint else {}
    executor = running.executor or own_executor()
    futures: dict[int, Future[Progress]] = {}
    # Batches in other processes cannot report progress, or be told to stop.
    told = control if shares_memory(executor) else None
    workers = job.runner.workers or os.cpu_count() or 1
    pool = own_threads(min(len(batches), workers)) if executor is None else executor

    def save() -> None:
        if checkpoint:
            with control.lock:
                control.under_way = {k: p for k, p in control.under_way.items() if k not in finished}
                under_way = dict(control.under_way)
            checkpoint.save(_arrays(finished, under_way))  # batches run meanwhile

    def look() -> None:
        for k in [k for k in futures if k in finished]:
            del futures[k]
        if report:
            report(control.updates if told else finished.all_chains * len(job.scan))
        if checkpoint and checkpoint.is_due():
            save()
        if running.deadline.is_over:
            raise TimeUp

    try:
        with share(job, executor) as shared:

            def submit(pool: Executor, k: int) -> Future[Progress]:
                future = pool.submit(run_batch, shared, batches[k], partial.get(k), told, k)
                if isinstance(future, Future):  # `run_pieces` refuses a pool that returns anything else
                    futures[k] = future
                return future

            left = (k for k in range(len(batches)) if k not in finished)
            return run_pieces(pool, submit, left, finished, look=look, stop=control.stop.set)
    except Exception:
        _raise_first(job, batches, futures, lambda k: k in finished or k in partial)
        raise
    finally:
        control.stop.set()
        if executor is None:
            pool.shutdown(wait=True, cancel_futures=True)
        save()


def _raise_first(
    job: Job, batches: Batches | list[range], futures: dict[int, Future[Progress]], is_sound: Callable[[int], bool]
) -> None:
    """Raise the error of the failed batch with the smallest number, whichever thread failed first.

    Batches before the one that failed may not have begun. Their initial states are made here to find their errors,
    unless `is_sound` says that they are known to be allowed.
    """
    errors: dict[int, BaseException] = {}
    for k, future in futures.items():
        error = future.exception() if future.done() and not future.cancelled() else None
        if error is not None and not isinstance(error, Stopped | PicklingError | BrokenExecutor):
            errors[k] = error
    for k in range(min(errors, default=0)):
        if not is_sound(k):
            _begin(job, batches[k])
    if errors:
        raise errors[min(errors)]


class Checkpoint(StateFile):
    """Checkpoint file of a run; the constructor loads finished batches from an existing file."""

    def __init__(self, path: Path, seed: np.random.SeedSequence, parts: Any, outcome: Outcome) -> None:
        super().__init__(path, _FORMAT, "run", seed, parts, _SAME)
        self.under_way: dict[int, Progress] = {}
        try:
            stored = self.read() or {}
            if "first.counts" in stored:
                outcome.first, outcome.added = int(stored["first.at"]), stored["first.counts"]
                outcome.all_chains = outcome.chains
            for name in [name for name in stored if name.endswith(".at") and name != "first.at"]:
                kind, k, _ = name.split(".")
                step, kept = (int(v) for v in stored[name])
                arrays = [stored.get(f"{kind}.{k}.{part}") for part in _PARTS]
                known: Any = outcome if kind == "finished" else self.under_way
                known[int(k)] = Progress(step, kept, *arrays)
            self.begin(_arrays(outcome, self.under_way))
        except BaseException:  # also Ctrl-C: the same process may resume from the file
            self.close()
            raise


def _arrays(finished: Outcome, under_way: dict[int, Progress]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    if finished.added is not None:
        arrays |= {"first.at": np.array(finished.first), "first.counts": finished.added}
    for kind, parts in (("finished", finished.parts), ("under_way", under_way)):
        for k, progress in parts.items():
            name = f"{kind}.{k}"
            arrays[f"{name}.at"] = np.array([progress.step, progress.kept], dtype=np.int64)
            for part in _PARTS:
                if (value := getattr(progress, part)) is not None:
                    # A running batch adds states to its array, and the arrays to write must not change.
                    arrays[f"{name}.{part}"] = value.copy() if parts is under_way and part == "states" else value
    return arrays
