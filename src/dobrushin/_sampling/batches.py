"""One path for all runs: batches of chains over an executor, with progress, interruption and checkpoints."""

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

# Updates between looks at whether to stop: some tens of milliseconds.
CHUNK = 10**7
SWEEPS = 64
# Seconds between these looks with slow kernels.
LOOK_SECONDS = 0.2
# Batches of a run with a checkpoint must be the same wherever it is resumed: as if for this number of cores.
_CHECKPOINT_CORES = 4
_FORMAT = "dobrushin checkpoint 3"
_SAME = "model, scan, seed, chains, record and kernel"
_PARTS = ("x", "states", "counts")


@dataclass(frozen=True)
class Job:
    """All that a batch needs to know; small enough to be sent to another process."""

    runner: Runner
    scan: Scan
    master: NDArray[np.uint64]
    rows: NDArray[np.int64]  # variables to keep, by own number
    stops: NDArray[np.int64]  # steps after which to keep them
    largest: int  # most states of a variable that is kept
    states: bool = True  # whether to keep states
    counts: bool = False  # whether to count them
    start: Start | None = None  # None: as the runner starts by itself
    guard: Guard | None = None


@dataclass
class Progress:
    """State of a batch on its way: enough to resume from."""

    step: int = 0
    kept: int = 0
    x: Any = None
    states: NDArray[Any] | None = None  # (kept steps, variables, chains)
    counts: NDArray[np.int64] | None = None

    def snapshot(self) -> Progress:
        """Return a copy that stays as it is while the batch runs (kept states are only added to: they are shared)."""
        counts = None if self.counts is None else self.counts.copy()
        return Progress(self.step, self.kept, self.x.copy(), self.states, counts)


@dataclass
class Control:
    """Messages between the main thread and the batches; not sent to other processes."""

    deadline: Deadline
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    under_way: dict[int, Progress] = field(default_factory=dict)
    updates: int = 0
    snapshots: bool = False

    def report(self, index: int, now: Progress, updates: int) -> None:
        """Report the progress of a batch, leave a copy to resume from, and stop if the run has been stopped."""
        with self.lock:
            self.updates += updates
            if self.snapshots:
                self.under_way[index] = now.snapshot()
        if self.stop.is_set() or self.deadline.is_over:
            raise Stopped


class Stopped(TimeUp):
    """A batch that was told to stop."""


def run_batch(shared: Any, chains: range, progress: Progress | None, control: Control | None, index: int) -> Progress:
    """Take some chains through the scan; `shared` is the job as it was sent."""
    job: Job = receive(shared)
    runner, scan = job.runner, job.scan
    now = progress or _begin(job, chains)
    chunk = runner.look(len(chains))
    if chunk is None:
        # The variables of random steps are drawn a chunk at a time; long cycles are fastest when many are run at once.
        periods = () if scan.is_random else (segment.period for segment in scan._segments)
        updates = CHUNK // 10 if scan.is_random else max(CHUNK, SWEEPS * max(periods))
        chunk = min(max(1, updates // len(chains)), runner.steps_in(LOOK_SECONDS, scan, len(chains)))
    while now.kept < len(job.stops):
        target = min(int(job.stops[now.kept]), now.step + chunk)
        before = 0
        for segment in scan._segments:
            lo, hi = max(now.step - before, 0), min(target - before, segment.steps)
            if lo < hi:
                runner.run(now.x, Work(job.master, chains, segment, lo, hi, before + lo))
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
    """Results of a run: the batches that finished, by number.

    Of a run that ended early these are the chains with the first numbers, up to the first one that is missing. Later
    ones that happened to finish are left out: how long a chain takes may depend on where it goes. Where only counts are
    kept, those of the first batches are added up: memory does not grow with them.

    Attributes
    ----------
    first : int
        Number of batches from the first on that have finished, without a gap.
    all_chains : int
        Chains of all finished batches.
    added : array or None
        Counts of the first batches, where they are added up.
    parts : dict
        The others, by number.
    trouble : KeyboardInterrupt, Lost, TimeUp or None
        What ended the run early.
    """

    def __init__(self, batches: Batches, adds_up: bool) -> None:
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
        """Number of the first chains that finished."""
        return self.batches[self.first - 1].stop - self.batches.numbers.start if self.first else 0

    def states(self, job: Job) -> NDArray[Any]:
        """Return the kept states of the first chains: (kept steps, variables, chains)."""
        pieces = [states for k in range(self.first) if (states := self.parts[k].states) is not None]
        if not pieces:
            return np.empty((len(job.stops), len(job.rows), 0), dtype=job.runner.dtype)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=2)

    def counts(self, job: Job) -> NDArray[np.int64]:
        """Return how often each kept variable was in each state."""
        if self.added is not None:
            return self.added
        total = np.zeros((len(job.rows), job.largest), dtype=np.int64)
        for k in range(self.first) if self.parts else ():
            total += cast(NDArray[np.int64], self.parts[k].counts)
        return total


def run_batches(job: Job, numbers: range, call_seed: np.random.SeedSequence, running: Running, what: str) -> Outcome:
    """Run the chains with these numbers; `what` stands beside the progress bar, a checkpoint keeps `call_seed`."""
    batches = job.runner.batches(numbers, _CHECKPOINT_CORES if running.checkpoint else workers_of(running.executor))
    region = job.runner.region
    log.info(
        "%s: kernel %s, region of %d variables (%d updated), %d chains of %d steps in %d batches",
        what, job.runner.name, region.size, len(region.updated), len(numbers), len(job.scan), len(batches),
    )  # fmt: skip
    outcome = Outcome(batches, adds_up=not job.states)
    total = len(job.scan) * len(numbers)
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
        log.info("%s ended early (%s) with %d of %d chains", what, ended, outcome.all_chains, len(numbers))
    return outcome


def _run_all(
    job: Job,
    finished: Outcome,
    running: Running,
    checkpoint: Checkpoint | None,
    done: int,
    report: Callable[[int], None] | None,
) -> Trouble | None:
    """Run the batches that have not finished, after `done` updates; return what ended the run early, or None."""
    batches = finished.batches
    partial = {k: p.snapshot() for k, p in checkpoint.under_way.items()} if checkpoint else {}
    control = Control(running.deadline, updates=done, snapshots=checkpoint is not None)
    control.under_way |= checkpoint.under_way if checkpoint else {}
    executor = running.executor or own_executor()
    own = executor is None
    futures: dict[int, Future[Progress]] = {}
    # Executors that do not share memory with us get batches that cannot be asked or told anything.
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
                if isinstance(future, Future):  # else the pool is no executor, which is noticed where it is waited for
                    futures[k] = future
                return future

            left = (k for k in range(len(batches)) if k not in finished)
            return run_pieces(pool, submit, left, finished, look=look, stop=control.stop.set)
    except Exception:
        _raise_first(job, batches, futures, lambda k: k in finished or k in partial)
        raise
    finally:
        control.stop.set()
        if own:
            pool.shutdown(wait=True, cancel_futures=True)
        save()


def _raise_first(
    job: Job, batches: Batches, futures: dict[int, Future[Progress]], is_sound: Callable[[int], bool]
) -> None:
    """Raise the error of the lowest batch that has one: the same, whichever was noticed first.

    Batches before one that failed may not have begun. The starts of those that are not known to be sound are made here.
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
    """The batches of a run by number, in a file; read into its outcome when it is made, if the file exists."""

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
        except BaseException:  # also Ctrl-C: the same process may go on from the file
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
                    # A running batch adds to its kept states, and the arrays to write must not change.
                    arrays[f"{name}.{part}"] = value.copy() if parts is under_way and part == "states" else value
    return arrays
