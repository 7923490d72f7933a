"""One path for all runs: batches of chains over an executor, with progress, interruption and checkpoints."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from pickle import PicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.kernel import Runner, Work
from dobrushin._sampling.start import Guard, Start
from dobrushin._scan import Scan
from dobrushin._shared.executors import Lost, own_executor, receive, run_pieces, share, workers_of
from dobrushin._shared.log import log
from dobrushin._shared.running import Running, progress_bar
from dobrushin._shared.state_file import StateFile

# Updates between looks at whether to stop: some tens of milliseconds.
CHUNK = 10**7
SWEEPS = 64
# Batches of a run with a checkpoint must be the same wherever it goes on: as if for so many cores.
_CORES = 4
_FORMAT = "dobrushin checkpoint 2"
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
    """How far a batch has come: enough to go on from."""

    step: int = 0
    kept: int = 0
    x: Any = None
    states: NDArray[Any] | None = None  # (kept steps, variables, chains)
    counts: NDArray[np.int64] | None = None

    def snapshot(self) -> Progress:
        """A copy that stays as it is while the batch goes on (kept states are only added to: they are shared)."""
        counts = None if self.counts is None else self.counts.copy()
        return Progress(self.step, self.kept, self.x.copy(), self.states, counts)


@dataclass
class Control:
    """What the main thread and the batches tell each other; not sent to other processes."""

    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    under_way: dict[int, Progress] = field(default_factory=dict)
    updates: int = 0
    snapshots: bool = False

    def report(self, index: int, now: Progress, updates: int) -> None:
        """Say how far a batch is, leave a copy that can be gone on from, and stop if so told."""
        with self.lock:
            self.updates += updates
            if self.snapshots:
                self.under_way[index] = now.snapshot()
        if self.stop.is_set():
            raise Stopped


class Stopped(Exception):
    """A batch that was told to stop."""


def run_batch(shared: Any, chains: range, progress: Progress | None, control: Control | None, index: int) -> Progress:
    """Take some chains through the scan; `shared` is the job as it was sent."""
    job: Job = receive(shared)
    now = progress or _begin(job, chains)
    chunk = job.runner.look(len(chains)) or max(1, _chunk(job.scan) // len(chains))
    while now.kept < len(job.stops):
        target = min(int(job.stops[now.kept]), now.step + chunk)
        _advance(job, now.x, chains, now.step, target)
        done = (target - now.step) * len(chains)
        now.step = target
        if now.step == job.stops[now.kept]:
            _keep(job, now, len(chains))
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


def _chunk(scan: Scan) -> int:
    """Updates between looks at whether to stop."""
    if scan.is_random:
        return CHUNK // 10  # their variables are drawn a chunk at a time
    # Long cycles are fastest when many are run at once.
    return max(CHUNK, SWEEPS * max(segment.period for segment in scan.segments))


def _advance(job: Job, x: Any, chains: range, lo: int, hi: int) -> None:
    before = 0
    for segment in job.scan.segments:
        a, b = max(lo - before, 0), min(hi - before, segment.steps)
        if a < b:
            job.runner.run(x, Work(job.master, chains, segment, a, b, before + a))
        before += segment.steps


def _keep(job: Job, now: Progress, chains: int) -> None:
    if now.states is not None:
        now.states[now.kept] = job.runner.read(now.x, job.rows, chains)
    if now.counts is not None:
        job.runner.count(now.x, job.rows, chains, now.counts)
    now.kept += 1


@dataclass(frozen=True)
class Outcome:
    """The batches of a run that finished, in order, and what ended it before its time (or None)."""

    batches: list[range]
    parts: list[Progress]
    trouble: KeyboardInterrupt | Lost | None

    @property
    def was_interrupted(self) -> bool:
        """Whether it was ended by Ctrl-C."""
        return isinstance(self.trouble, KeyboardInterrupt)

    @property
    def chains(self) -> int:
        """How many chains finished."""
        return sum(map(len, self.batches))

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Which ones."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(np.arange(b.start, b.stop) for b in self.batches)])

    def states(self, job: Job) -> NDArray[Any]:
        """The kept states of all of them: (kept steps, variables, chains)."""
        pieces = [part.states for part in self.parts if part.states is not None]
        if not pieces:
            return np.empty((len(job.stops), len(job.rows), 0), dtype=job.runner.dtype)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=2)


def run_batches(
    job: Job, numbers: range, call_seed: np.random.SeedSequence, running: Running, what: str, function: str
) -> Outcome:
    """Run the chains with these numbers; `what` stands beside the progress bar, a checkpoint keeps `call_seed`."""
    batches = job.runner.batches(numbers, _CORES if running.checkpoint else workers_of(running.executor))
    region = job.runner.region
    log.info(
        "%s: kernel %s, region of %d variables (%d updated), %d chains of %d steps in %d batches",
        what, job.runner.name, region.size, len(region.updated), len(numbers), len(job.scan), len(batches),
    )  # fmt: skip
    saved = None
    if running.checkpoint is not None:
        saved = Checkpoint(running.checkpoint, call_seed, (job, numbers, len(batches)), function)
    total = len(job.scan) * len(numbers)
    with progress_bar(True, total, what) if running.progress else nullcontext() as report:
        finished, trouble = _run_all(job, batches, running.executor, saved, report, function)
    done = sorted(finished)
    return Outcome([batches[k] for k in done], [finished[k] for k in done], trouble)


def _run_all(
    job: Job,
    batches: list[range],
    executor: Executor | None,
    checkpoint: Checkpoint | None,
    report: Callable[[int], None] | None,
    function: str,
) -> tuple[dict[int, Progress], KeyboardInterrupt | Lost | None]:
    """Run the batches; returns what finished, by number, and what ended the run before its time (or None)."""
    finished: dict[int, Progress] = dict(checkpoint.finished) if checkpoint else {}
    partial = {k: p.snapshot() for k, p in checkpoint.under_way.items()} if checkpoint else {}
    control = Control(snapshots=checkpoint is not None, under_way=dict(checkpoint.under_way) if checkpoint else {})
    executor = executor or own_executor()
    own = executor is None
    futures: dict[int, Future[Progress]] = {}
    # Only threads of our own share memory with us: other executors get batches that cannot be asked or told anything.
    told = control if own else None
    workers = job.runner.workers or os.cpu_count() or 1
    pool = ThreadPoolExecutor(max_workers=min(len(batches), workers)) if executor is None else executor

    def save() -> None:
        if checkpoint:
            with control.lock:
                checkpoint.write(finished, {k: p for k, p in control.under_way.items() if k not in finished})

    def look() -> None:
        if report:
            report(control.updates if own else sum(len(batches[k]) for k in finished) * len(job.scan))
        if checkpoint and checkpoint.is_due():
            save()

    try:
        with share(job, executor, function) as shared:

            def submit(pool: Executor, k: int) -> Future[Progress]:
                future = pool.submit(run_batch, shared, batches[k], partial.get(k), told, k)
                if isinstance(future, Future):  # else the pool is no executor, which is noticed where it is waited for
                    futures[k] = future
                return future

            left = [k for k in range(len(batches)) if k not in finished]
            trouble = run_pieces(pool, submit, left, finished, function, look=look, stop=control.stop.set)
    except Exception:
        _raise_first(job, batches, futures, {*finished, *partial})
        raise
    finally:
        control.stop.set()
        if own:
            pool.shutdown(wait=True, cancel_futures=True)
        save()
    return finished, trouble


def _raise_first(job: Job, batches: list[range], futures: dict[int, Future[Progress]], sound: set[int]) -> None:
    """Raise the error of the lowest batch that has one: the same, whichever was noticed first.

    Batches before one that failed may not have begun. The starts of those that are not among the `sound` ones are made
    here.
    """
    errors = {k: error for k, future in futures.items() if (error := _error_of(future)) is not None}
    for k in range(min(errors, default=0)):
        if k not in sound:
            _begin(job, batches[k])
    if errors:
        raise errors[min(errors)]


def _error_of(future: Future[Progress]) -> BaseException | None:
    """What a batch failed with by itself; None for those that did not."""
    error = future.exception() if future.done() and not future.cancelled() else None
    return None if isinstance(error, Stopped | PicklingError | BrokenExecutor) else error


class Checkpoint:
    """The batches of a run by number, in a file; read when it is made, if the file exists."""

    def __init__(self, path: Path, seed: np.random.SeedSequence, parts: Any, function: str) -> None:
        self._file = StateFile(path, _FORMAT, "run", seed, parts, _SAME, function)
        self.finished: dict[int, Progress] = {}
        self.under_way: dict[int, Progress] = {}
        stored = self._file.read() or {}
        for name in [name for name in stored if name.endswith(".at")]:
            kind, k, _ = name.split(".")
            step, kept = (int(v) for v in stored[name])
            arrays = [stored.get(f"{kind}.{k}.{part}") for part in _PARTS]
            {"finished": self.finished, "under_way": self.under_way}[kind][int(k)] = Progress(step, kept, *arrays)
        self._file.begin(_arrays(self.finished, self.under_way))

    def is_due(self) -> bool:
        """Whether the last writing is long ago."""
        return self._file.is_due()

    def write(self, finished: dict[int, Progress], under_way: dict[int, Progress]) -> None:
        """Replace the file."""
        self._file.save(_arrays(finished, under_way))


def _arrays(finished: dict[int, Progress], under_way: dict[int, Progress]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for kind, parts in (("finished", finished), ("under_way", under_way)):
        for k, progress in parts.items():
            name = f"{kind}.{k}"
            arrays[f"{name}.at"] = np.array([progress.step, progress.kept], dtype=np.int64)
            for part in _PARTS:
                if (value := getattr(progress, part)) is not None:
                    arrays[f"{name}.{part}"] = value
    return arrays
