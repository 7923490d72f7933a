"""Run a scan on bounding sets: the base class of their kernels, and the results of independent runs. [trusted]

A bounding set contains all states that a variable could have in trajectories that begin in any allowed state and use
the same random bits. A variable has coalesced when its set has one state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.sets import count_settled
from dobrushin._models import Model
from dobrushin._models.forms import Form
from dobrushin._models.near import ScanRegion
from dobrushin._sampling.batches import Job, Outcome, run_batches
from dobrushin._sampling.kernel import Runner, Work
from dobrushin._sampling.sampler import Record, on_backend
from dobrushin._scan import Scan
from dobrushin._shared.executors import Trouble
from dobrushin._shared.running import PLAIN, Running, master_key

# Largest numbers of states that are counted at a time (32 MB), and that `tally_sets` keeps at a time (128 MB).
MAX_COUNTED_STATES, MAX_KEPT_STATES = 2**24, 2**26


class SetSteps(NamedTuple):
    """Consecutive steps of a cyclic scan, as the arguments of the loops in `_kernels.sets`."""

    order: NDArray[np.int32]  # variables of the cycle, by their numbers in the region
    place: int  # index of the first step in the cycle
    steps: int
    number: int  # number of the random bits that the first step uses
    stride: int  # difference of these numbers between consecutive steps


class SetRunner(Runner):
    """Runner of a scan on bounding sets; its `read` returns -1 where a variable has not coalesced.

    In arrays of counts, the first column is the number of runs in which a variable has not coalesced.
    """

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        some = max(1, MAX_COUNTED_STATES // max(1, chains))
        for lo in range(0, len(rows), some):
            count_settled(self.read(x, rows[lo : lo + some], chains), counts[lo : lo + some])


class SetKernel(SetRunner):
    """Base class of the kernels of bounding sets on the CPU."""

    @property
    def words(self) -> int:
        """Number of random words that a step draws, one for each state; 0 if all states share a single word."""
        return 0

    @classmethod
    @abstractmethod
    def fits(cls, form: Form) -> bool:
        """Return whether the kernel can run on this model (in its internal form)."""

    @classmethod
    @abstractmethod
    def make(cls, form: Form, region: ScanRegion) -> SetKernel:
        """Return the kernel with its arrays, for a region of a model (in its internal form)."""

    @property
    def dtype(self) -> Any:
        return np.int16

    @property
    def device_loop(self) -> str:
        return self.name.replace(" ", "_")

    def run_error(self, scan: Scan) -> float:
        """Bound the probability that rounding changes any update of a run."""
        visits = scan._within(self.region.numbering).counts(self.region.size)
        return min(1.0, float(self.error @ visits) * (1 + 1e-9))

    @abstractmethod
    def go(self, x: NDArray[Any], steps: SetSteps, keys: NDArray[np.uint64]) -> None:
        """Update the bounding sets `x` of runs whose random streams have these keys."""

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        self.go(x, SetSteps(order, place, work.steps, work.step, work.stride), work.keys(self.lanes))


# Kernels of bounding sets by name; `choose_sets` takes the first kernel that fits.
SET_KERNELS: dict[str, type[SetKernel]] = {}


def choose_sets(model: Model, scan: Scan) -> SetKernel:
    """Return the fastest kernel of bounding sets that fits the model.

    The choice depends on the model alone: exact draws run ever larger regions with the same random bits, and a step
    must be the same map in all of them.
    """
    form, region = model._region(scan._updates(model.n_variables))
    kernel: Any = next(kernel for kernel in SET_KERNELS.values() if kernel.fits(form)).make(form, region)
    # Rounding of the form's numbers changes its conditional laws by at most twice `form.error`.
    return replace(kernel, error=kernel.error + 2.0 * form.error) if form.error else kernel


@dataclass(frozen=True)
class SetRuns:
    """Results of independent runs of a scan on bounding sets.

    Attributes
    ----------
    runs : int
        Number of runs that finished: fewer than requested if something (`trouble`) ended the call early.
    settled : array of shape (runs, kept steps, variables)
        The state number 0..k-1 of a variable that has coalesced, else -1. Empty if only counts are kept.
    counts : array of shape (variables, 1 + states), or None
        Number of runs in which a variable has not coalesced after the last step, then the numbers of runs in which it
        has coalesced in each state.
    error : float
        Bound on the probability that rounding changes any update of a run.
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
    """Run a scan on bounding sets, with these run numbers, and keep or count the states of some variables.

    The first number is a multiple of 64. A checkpoint keeps `call_seed`, from which `sequence` was made and with which
    the call can be repeated.
    """
    runner = on_backend(kernel, scan, len(numbers), running.backend)
    job = make_set_job(model, runner, scan, labels, sequence, every, counts)
    outcome = run_batches(job, numbers, call_seed or sequence, running, "coalescing")
    return collect_sets(kernel, job, outcome)


def make_set_job(
    model: Model, runner: Runner, scan: Scan, labels: list[Hashable], sequence: np.random.SeedSequence,
    every: int | None = None, counts: bool = False,
) -> Job:  # fmt: skip
    """Return the job that runs a scan on bounding sets.

    It keeps the states of the variables `labels` after every `every` steps, or only `counts` after the last step.
    """
    region = runner.region
    record = Record(labels, every=every)
    rows = record._rows(model, region)
    stops = np.union1d(record._stops(len(scan)), [len(scan)])
    largest = int(model.cardinalities[region.positions[rows]].max())
    return Job(runner, scan, master_key(sequence), rows, stops, largest + counts, states=not counts, counts=counts)


def collect_sets(kernel: SetKernel, job: Job, outcome: Outcome) -> SetRuns:
    """Return the results of a finished job of runs on bounding sets."""
    nothing = np.empty((len(job.stops), len(job.rows), 0), dtype=np.int16)
    settled = (outcome.states(job) if job.states else nothing).transpose(2, 0, 1)
    counts = outcome.counts(job) if job.counts else None
    return SetRuns(outcome.chains, settled, counts, kernel.name, kernel.run_error(job.scan), outcome.trouble)


@dataclass(frozen=True)
class SetTally:
    """Numbers of runs in which variables had not coalesced, after each kept step."""

    runs: int  # fewer than requested if something (`trouble`) ended the call early
    failures: NDArray[np.int64]  # (kept steps,): runs in which some variable had not coalesced
    open: NDArray[np.int64]  # (kept steps, variables): runs in which this variable had not coalesced
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
) -> SetTally:
    """Run a scan on bounding sets and count the runs that do not coalesce.

    Runs are made block after block, so that memory does not grow with their number.
    """
    points = 1 if every is None else -(-len(scan) // every)
    block = max(64, MAX_KEPT_STATES // (len(labels) * points) // 64 * 64)
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
    return SetTally(done, failures, unsettled, kernel.name, part.error, part.trouble)
