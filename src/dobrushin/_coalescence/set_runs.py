"""Running a scan on sets of states, in independent runs. [trusted]"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.set_kernel import SetKernel
from dobrushin._models import Model
from dobrushin._sampling.batches import Job, Outcome, run_batches
from dobrushin._sampling.kernel import Runner
from dobrushin._sampling.sampler import Record, on_backend
from dobrushin._scan import Scan
from dobrushin._shared.executors import Trouble
from dobrushin._shared.running import PLAIN, Running, master_key

# States that are looked at together.
_AT_ONCE = 2**26


@dataclass(frozen=True)
class SetRuns:
    """What some runs gave.

    Attributes
    ----------
    runs : int
        How many there are. Where something (`trouble`) ended them early, these are the first of them.
    settled : array of shape (runs, kept steps, variables)
        The digit 0..k-1 of the state where a variable is settled, else -1. Without runs where only counts are kept.
    counts : array of shape (variables, 1 + states), or None
        After the last step, in how many of them a variable is not settled, and in how many in each state.
    error : float
        Bounds the probability that any draw of a run was wrong.
    """

    runs: int
    settled: NDArray[np.int16]
    counts: NDArray[np.int64] | None
    kernel: str
    error: float
    trouble: Trouble | None = None


def run_sets(
    model: Model,
    kernel: SetKernel,
    scan: Scan,
    labels: list[Hashable],
    numbers: range,
    sequence: np.random.SeedSequence,
    *,
    every: int | None = None,
    running: Running = PLAIN,
    call_seed: np.random.SeedSequence | None = None,
    counts: bool = False,
) -> SetRuns:
    """The runs with these numbers (the first one a multiple of 64), looked at some variables, or counted.

    A checkpoint keeps `call_seed`, from which `sequence` was made: the seed to go on with.
    """
    runner = on_backend(kernel, scan, len(numbers), running.backend)
    job = make_set_job(model, runner, scan, labels, sequence, every, counts)
    outcome = run_batches(job, numbers, call_seed or sequence, running, "coalescing")
    return collect_sets(kernel, job, outcome)


def make_set_job(
    model: Model, runner: Runner, scan: Scan, labels: list[Hashable], sequence: np.random.SeedSequence,
    every: int | None = None, counts: bool = False,
) -> Job:  # fmt: skip
    """What a batch of runs needs to know; with `counts`, they are counted and not kept."""
    region = runner.region
    record = Record(labels, every=every)
    rows = record._rows(model, region)
    stops = np.union1d(record._stops(len(scan)), [len(scan)])
    largest = int(model.cardinalities[region.positions[rows]].max())
    return Job(runner, scan, master_key(sequence), rows, stops, largest + counts, states=not counts, counts=counts)


def collect_sets(kernel: SetKernel, job: Job, outcome: Outcome) -> SetRuns:
    """What runs of a kernel gave, or of its twin on the GPU."""
    nothing = np.empty((len(job.stops), len(job.rows), 0), dtype=np.int16)
    settled = (outcome.states(job) if job.states else nothing).transpose(2, 0, 1)
    counts = outcome.counts(job) if job.counts else None
    return SetRuns(outcome.chains, settled, counts, kernel.name, kernel.run_error(job.scan), outcome.trouble)


@dataclass(frozen=True)
class Tally:
    """Counts over many runs, after each kept step (the first axis).

    `failures` are runs in which some variable was not settled, `open` those in which this one was not.
    """

    runs: int  # fewer than were asked for where something ended them early
    failures: NDArray[np.int64]  # (points,)
    open: NDArray[np.int64]  # (points, variables)
    kernel: str
    error: float
    trouble: Trouble | None


def tally_sets(
    model: Model,
    kernel: SetKernel,
    scan: Scan,
    labels: list[Hashable],
    runs: int,
    sequence: np.random.SeedSequence,
    *,
    every: int | None = None,
    running: Running = PLAIN,
) -> Tally:
    """Count, a block of runs after the other, so that memory does not grow with their number."""
    points = 1 if every is None else -(-len(scan) // every)
    block = max(64, _AT_ONCE // (len(labels) * points) // 64 * 64)
    failures, unsettled = np.zeros(points, dtype=np.int64), np.zeros((points, len(labels)), dtype=np.int64)
    done = 0
    for k, first in enumerate(range(0, runs, block)):
        numbers, own = range(first, min(first + block, runs)), replace(running, checkpoint=running.file(k))
        part = run_sets(model, kernel, scan, labels, numbers, sequence, every=every, running=own)
        is_open = part.settled < 0
        failures += is_open.any(axis=2).sum(axis=0)
        unsettled += is_open.sum(axis=0)
        done += len(is_open)
        if part.trouble is not None:
            break
    return Tally(done, failures, unsettled, kernel.name, part.error, part.trouble)
