"""Runs of many models at once on the GPU: each stage of all of them is one launch, whatever their scans and sizes.

A run of some thousand chains leaves most of a GPU idle, and takes hardly longer than a launch. The draws are those that
each run makes by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.batches import Finished, Job, Outcome, Progress
from dobrushin._sampling.cuda.device_kernel import MOST_STEPS, SHARE, CountingKernel
from dobrushin._sampling.kernel import Batches, Work
from dobrushin._shared.device import free_memory, one_launch
from dobrushin._shared.log import log


class Chains(NamedTuple):
    """Chains that are wanted: what a batch of them needs to know, and their numbers."""

    job: Job
    numbers: range


class _Flight(NamedTuple):
    """Chains under way."""

    job: Job
    runner: CountingKernel
    numbers: range
    columns: range
    keys: Any


def can_join(wanted: Chains) -> bool:
    """Whether chains can be drawn together with others: they are counted, fit in one batch, and start anywhere."""
    job, count = wanted
    runner, scan = job.runner, job.scan
    if not isinstance(runner, CountingKernel) or not runner.is_one_launch or scan.is_random:
        return False
    if job.states or not job.counts or job.start is not None or job.guard is not None or len(job.stops) > 1:
        return False
    return len(scan) <= MOST_STEPS and _updates(wanted) <= runner.chunk and len(runner.batches(count, 1)) == 1


def draw_together(wanted: Sequence[Chains]) -> list[Outcome]:
    """Draw all chains of runs that can join, as many runs at a time as there is memory for."""
    outcomes: list[Outcome] = []
    most = SHARE * free_memory()
    while len(outcomes) < len(wanted):
        left = wanted[len(outcomes) :]
        size = np.cumsum([_bytes(one) for one in left])
        updates = np.cumsum([_updates(one) / one.job.runner.chunk for one in left])  # type: ignore[attr-defined]
        count = max(1, int(((size <= most) & (updates <= 1.0)).sum()))
        log.info("%d runs are one on the GPU: %.3g updates", count, float(sum(map(_updates, left[:count]))))
        outcomes += _draw(left[:count])
    return outcomes


def _updates(wanted: Chains) -> float:
    return float(len(wanted.job.scan)) * len(wanted.numbers)


def _bytes(wanted: Chains) -> float:
    runner: Any = wanted.job.runner
    return (runner.rows * np.dtype(runner.width).itemsize + 16.0) * -(-len(wanted.numbers) // runner.lanes)


def _draw(wanted: Sequence[Chains]) -> list[Outcome]:
    flights = []
    with one_launch():
        for job, numbers in wanted:
            runner: Any = job.runner
            columns = runner._columns(numbers)
            flights.append(_Flight(job, runner, numbers, columns, runner._keys(job.master, columns)))
    with one_launch():
        states = [flight.runner._begin(flight.columns, flight.keys) for flight in flights]
        for flight in flights:
            flight.runner.tables()
    for number in range(max(len(flight.job.scan.segments) for flight in flights)):
        with one_launch():
            for flight, x in zip(flights, states, strict=True):
                _update(flight, x, number)
    with one_launch():
        tallies = [_count(flight, x) for flight, x in zip(flights, states, strict=True)]
    return [_outcome(flight, tally.get().astype(np.int64)) for flight, tally in zip(flights, tallies, strict=True)]


def _update(flight: _Flight, x: Any, number: int) -> None:
    """Go through one segment of the scan, if there are so many."""
    job, runner, segments = flight.job, flight.runner, flight.job.scan.segments
    if number < len(segments):
        steps, before = segments[number].steps, sum(segment.steps for segment in segments[:number])
        work = Work(job.master, flight.numbers, segments[number], 0, steps, before)
        runner._update(x, runner._route(work), before, steps, flight.keys)


def _count(flight: _Flight, x: Any) -> Any:
    return flight.runner._tally(x, flight.job.rows, len(flight.numbers), flight.job.largest)


def _outcome(flight: _Flight, tally: NDArray[np.int64]) -> Outcome:
    """What the run would have given by itself."""
    counts = np.zeros((len(flight.job.rows), flight.job.largest), dtype=np.int64)
    flight.runner._add(tally, len(flight.numbers), counts)
    finished = Finished(Batches(flight.numbers, len(flight.numbers)), adds_up=True)
    finished[0] = Progress(len(flight.job.scan), 1, counts=counts)
    return Outcome(finished, None)
