"""Sampling of many models at once on the GPU: each stage of all runs is one launch, for any scans and sizes.

A run of a few thousand chains leaves most of a GPU idle and takes little longer than a launch. Each run gives the same
draws as it would alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.batches import Job, Outcome, Progress
from dobrushin._sampling.cuda.device_kernel import (
    MAX_GRID_ROWS,
    MAX_LAUNCH_STEPS,
    MEMORY_SHARE,
    CountingKernel,
    DeviceKernel,
    add_tally,
)
from dobrushin._sampling.kernel import Batches, Work
from dobrushin._shared.device import cupy, free_memory, one_launch
from dobrushin._shared.environment import log


class Chains(NamedTuple):
    """Request for chains: a job, and the range of chain numbers to draw."""

    job: Job
    numbers: range


class _Flight(NamedTuple):
    """A request that is being drawn, with its GPU kernel and the keys of its random streams."""

    job: Job
    runner: Any  # a DeviceKernel; a CountingKernel, where it counts
    numbers: range
    columns: range
    keys: Any


def can_join(wanted: Chains) -> bool:
    """Return whether a request can share its launches with others.

    It needs a single batch with a uniform start and a fixed scan, and must keep states or counts of the end only.
    """
    job, count = wanted
    runner, scan = job.runner, job.scan
    if not isinstance(runner, DeviceKernel) or not runner.host.is_one_launch or scan.is_random:
        return False
    if job.counts and not isinstance(runner, CountingKernel):
        return False
    if job.states == job.counts or job.start is not None or job.guard is not None or len(job.stops) > 1:
        return False
    if len(job.rows) > MAX_GRID_ROWS:
        return False
    return len(scan) <= MAX_LAUNCH_STEPS and _updates(wanted) <= runner.chunk and len(runner.batches(count, 1)) == 1


def draw_together(wanted: Sequence[Chains]) -> list[Outcome]:
    """Draw requests for which `can_join` holds; each launch takes as many of them as fit into the GPU's memory."""
    outcomes: list[Outcome] = []
    most = MEMORY_SHARE * free_memory()
    while len(outcomes) < len(wanted):
        left = wanted[len(outcomes) :]
        size = np.cumsum([_bytes(one) for one in left])
        updates = np.cumsum([_updates(one) / one.job.runner.chunk for one in left])  # type: ignore[attr-defined]
        count = max(1, int(((size <= most) & (updates <= 1.0)).sum()))
        log.info(
            "drawing %d runs in one launch on the GPU: %.3g updates", count, float(sum(map(_updates, left[:count])))
        )
        outcomes += _draw(left[:count])
    return outcomes


def _updates(wanted: Chains) -> float:
    return float(len(wanted.job.scan)) * len(wanted.numbers)


def _bytes(wanted: Chains) -> float:
    job, runner = wanted.job, cast(Any, wanted.job.runner)
    column = runner.rows * np.dtype(runner.width).itemsize + 16.0
    kept = len(job.rows) * np.dtype(runner.dtype).itemsize if job.states else 0
    return column * -(-len(wanted.numbers) // runner.lanes) + kept * len(wanted.numbers)


def _draw(wanted: Sequence[Chains]) -> list[Outcome]:
    flights = []
    with one_launch():
        for job, numbers in wanted:
            runner = cast(DeviceKernel, job.runner)
            columns = runner._columns(numbers)
            flights.append(_Flight(job, runner, numbers, columns, runner._keys(job.master, columns)))
    with one_launch():
        states = [flight.runner._begin(flight.columns, flight.keys) for flight in flights]
        for flight in flights:
            flight.runner.tables()
    for number in range(max(len(flight.job.scan._segments) for flight in flights)):
        with one_launch():
            for flight, x in zip(flights, states, strict=True):
                _update(flight, x, number)
    with one_launch():
        read = [_read(flight, x) for flight, x in zip(flights, states, strict=True)]
    return [_outcome(flight, found.get()) for flight, found in zip(flights, read, strict=True)]


def _update(flight: _Flight, x: Any, number: int) -> None:
    """Run segment `number` of a request's scan, if there is one."""
    job, runner, segments = flight.job, flight.runner, flight.job.scan._segments
    if number < len(segments):
        steps, before = segments[number].steps, sum(segment.steps for segment in segments[:number])
        work = Work(job.master, flight.numbers, segments[number], 0, steps, before)
        runner._update(x, runner._route(work), before, steps, flight.keys)


def _read(flight: _Flight, x: Any) -> Any:
    """Return the counts or states that a request keeps, as an array on the GPU."""
    job, chains = flight.job, len(flight.numbers)
    if job.counts:
        return flight.runner._tally(x, job.rows, chains, job.largest)
    return flight.runner._read(x, cupy().asarray(job.rows), chains)


def _outcome(flight: _Flight, found: NDArray[Any]) -> Outcome:
    """Return the result of a request, the same as that of a run by itself."""
    job, chains = flight.job, len(flight.numbers)
    outcome = Outcome(Batches(flight.numbers, chains), adds_up=job.counts)
    counts = np.zeros((len(job.rows), job.largest), dtype=np.int64) if job.counts else None
    if counts is not None:
        add_tally(found, chains, counts)
    outcome[0] = Progress(len(job.scan), 1, states=None if job.counts else found[None], counts=counts)
    return outcome
