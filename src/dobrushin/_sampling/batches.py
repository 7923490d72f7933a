"""One path for all runs: batches of chains over an executor, with progress, interruption and checkpoints."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.checkpoint import Checkpoint
from dobrushin._sampling.kernels import Kernel, Work
from dobrushin._sampling.start import Guard, Start
from dobrushin._scan import Cycle, Scan
from dobrushin._shared.executors import Lost, own_executor, received, run_pieces, sent

# Updates between looks at whether to stop: some tens of milliseconds.
CHUNK = 10**7
SWEEPS = 64


@dataclass
class Job:
    """All that a batch needs to know; small enough to be sent to another process."""

    kernel: Kernel
    scan: Scan
    master: NDArray[np.uint64]
    rows: NDArray[np.int64]  # variables to keep, by own number
    stops: NDArray[np.int64]  # steps after which to keep them
    states: bool
    counts: bool
    start: Start | None
    guard: Guard | None
    largest: int


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
    job: Job = received(shared)
    kernel = job.kernel
    now = progress or Progress()
    if now.x is None:
        now.x = kernel.start(job.master, chains) if job.start is None else kernel.load(job.start(chains))
        if job.guard is not None:
            job.guard.check(kernel.read(now.x, np.arange(kernel.region.size), len(chains)), chains.start)
        if job.states:
            now.states = np.empty((len(job.stops), len(job.rows), len(chains)), dtype=kernel.dtype)
        if job.counts:
            now.counts = np.zeros((len(job.rows), job.largest), dtype=np.int64)
    chunk = kernel.look(len(chains)) or max(1, _chunk(job.scan) // len(chains))
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


def _chunk(scan: Scan) -> int:
    """Updates between looks at whether to stop."""
    if scan.is_random:
        return CHUNK // 10  # their variables are drawn a chunk at a time
    # Long cycles are fastest when many are run at once.
    return max(CHUNK, SWEEPS * max(len(segment.cycle) for segment in scan.segments if isinstance(segment, Cycle)))


def _advance(job: Job, x: Any, chains: range, lo: int, hi: int) -> None:
    before = 0
    for segment in job.scan.segments:
        a, b = max(lo - before, 0), min(hi - before, segment.steps)
        if a < b:
            job.kernel.run(x, Work(job.master, chains, segment, a, b, before + a))
        before += segment.steps


def _keep(job: Job, now: Progress, chains: int) -> None:
    if now.states is not None:
        now.states[now.kept] = job.kernel.read(now.x, job.rows, chains)
    if now.counts is not None:
        job.kernel.count(now.x, job.rows, chains, now.counts)
    now.kept += 1


def run_all(
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
    # Only threads of our own share memory with us: other executors get batches that cannot be asked or told anything.
    told = control if own else None
    workers = job.kernel.workers or os.cpu_count() or 1
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
        with sent(job, executor, function) as shared:

            def submit(pool: Executor, k: int) -> Future[Progress]:
                return pool.submit(run_batch, shared, batches[k], partial.get(k), told, k)

            left = [k for k in range(len(batches)) if k not in finished]
            trouble = run_pieces(pool, submit, left, finished, function, look=look, stop=control.stop.set)
    finally:
        control.stop.set()
        if own:
            pool.shutdown(wait=True, cancel_futures=True)
        save()
    return finished, trouble
