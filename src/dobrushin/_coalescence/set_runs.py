"""Running a scan on sets of states, in independent runs. [trusted]"""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.build import build_sets, run_error
from dobrushin._models import Model
from dobrushin._sampling.batches import run_all
from dobrushin._sampling.checkpoint import Checkpoint
from dobrushin._sampling.record import Record
from dobrushin._sampling.region import region_of
from dobrushin._sampling.sampler import make_batches, make_job, on_backend, progress_bar
from dobrushin._scan import Scan
from dobrushin._shared.executors import workers_of
from dobrushin._shared.seeds import master_words
from dobrushin._shared.state_file import numbered
from dobrushin.errors import WorkerError, how_to_go_on

# States that are looked at together.
_AT_ONCE = 2**26


@dataclass(frozen=True)
class SetRuns:
    """What some runs gave: `settled` has shape (runs, kept steps, variables).

    It is the digit 0..k-1 of the state where a variable is settled, else -1. `error` bounds the probability that any
    draw of a run was wrong.
    """

    settled: NDArray[np.int16]
    kernel: str
    error: float


def run_sets(
    model: Model,
    scan: Scan,
    labels: list[Hashable],
    numbers: range,
    sequence: np.random.SeedSequence,
    *,
    every: int | None = None,
    executor: Executor | None = None,
    progress: bool = False,
    backend: str = "cpu",
    checkpoint: Path | None = None,
    function: str = "coalescence",
) -> SetRuns:
    """The runs with these numbers (the first one a multiple of 64), looked at some variables."""
    region = region_of(model, scan)
    made = on_backend(build_sets(model, region), scan, len(numbers), backend, "coalescence")
    keep = Record(labels, every=every)
    job = make_job(model, scan, region, made, keep, master_words(sequence), "coalescence")
    if job.stops[-1] != len(scan):
        job.stops = np.append(job.stops, len(scan))
    batches = make_batches(made, numbers, workers_of(executor) if checkpoint is None else 4)
    saved = None
    if checkpoint is not None:
        about = (made.name, made, numbers.start, numbers.stop, len(batches), scan.to_arrays(), job.rows, job.stops)
        saved = Checkpoint(checkpoint, sequence, about, function)
    with progress_bar(progress, len(scan) * len(numbers), "coalescing") as report:
        finished, trouble = run_all(job, batches, executor, saved, report, function)
    if trouble is not None:
        done = sum(len(batches[k]) for k in finished)
        if isinstance(trouble, KeyboardInterrupt):
            raise trouble
        raise WorkerError(str(trouble), done, len(numbers), "runs", how_to_go_on(saved is not None))
    parts = [part for k in sorted(finished) if (part := finished[k].states) is not None]
    visits = np.asarray(scan.counts(model.n_variables))[region.positions]
    return SetRuns(np.concatenate(parts, axis=2).transpose(2, 0, 1), made.name, run_error(made, visits))


@dataclass
class Tally:
    """Counts over many runs, after each kept step (the first axis).

    `failures` are runs in which some variable was not settled, `open` those in which this one was not.
    """

    failures: NDArray[np.int64]  # (points,)
    open: NDArray[np.int64]  # (points, variables)
    kernel: str
    error: float


def tally_sets(
    model: Model, scan: Scan, labels: list[Hashable], runs: int, sequence: np.random.SeedSequence, **options: Any
) -> Tally:
    """Count, a block of runs after the other, so that memory does not grow with their number."""
    every, checkpoint = options.get("every"), options.pop("checkpoint", None)
    points = 1 if every is None else -(-len(scan) // every)
    block = max(64, _AT_ONCE // (len(labels) * points) // 64 * 64)
    total: Tally | None = None
    for k, first in enumerate(range(0, runs, block)):
        numbers, file = range(first, min(first + block, runs)), checkpoint and numbered(checkpoint, k)
        found = run_sets(model, scan, labels, numbers, sequence, checkpoint=file, **options)
        unsettled = found.settled < 0
        part = Tally(unsettled.any(axis=2).sum(axis=0), unsettled.sum(axis=0), found.kernel, found.error)
        if total is None:
            total = part
        else:
            total.failures += part.failures
            total.open += part.open
    assert total is not None
    return total
