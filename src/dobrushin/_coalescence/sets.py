"""Running a scan on sets of states, in independent runs: the protocol of their kernels, and results of runs. [trusted]

Runs hold the set of states that a variable could have, whatever allowed state the trajectory began in.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.sets import count_settled
from dobrushin._models import Model
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.batches import LOOK_SECONDS, Job, Outcome, Stopped, run_batches
from dobrushin._sampling.kernel import Runner, Work, streams_of
from dobrushin._sampling.sampler import Record, on_backend
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.executors import Trouble
from dobrushin._shared.running import PLAIN, Running, master_key

# States that are read together to be counted: 32 MB; and those that are kept together to be looked at: 128 MB.
MAX_COUNTED_STATES, MAX_KEPT_STATES = 2**24, 2**26


class SetSteps(NamedTuple):
    """Steps of a cycle of own numbers, from a place on."""

    order: NDArray[np.int32]
    place: int
    steps: int
    number: int  # of the random bits that the first step uses
    stride: int  # how much further those of each next step are


class SetRunner(Runner):
    """Runner of sets: `read` gives -1 where a variable has not coalesced.

    Counts have a column more: the first is for runs in which a variable has not coalesced.
    """

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        some = max(1, MAX_COUNTED_STATES // max(1, chains))
        for lo in range(0, len(rows), some):
            count_settled(self.read(x, rows[lo : lo + some], chains), counts[lo : lo + some])


class SetKernel(SetRunner):
    """A kernel of sets."""

    @property
    def words(self) -> int:
        """Return how many random numbers a step takes, one for each state; 0 where one number serves all states."""
        return 0

    @classmethod
    @abstractmethod
    def fits(cls, form: Form) -> bool:
        """Return whether it can run on this model."""

    @classmethod
    @abstractmethod
    def make(cls, form: Form, region: Region) -> SetKernel:
        """Return the kernel with its arrays, for a region of a form that it fits."""

    @property
    def dtype(self) -> Any:
        return np.int16

    @property
    def device_loop(self) -> str:
        return self.name.replace(" ", "_")

    def run_error(self, scan: Scan) -> float:
        """Return a bound on the probability that any draw of a run is wrong."""
        visits = scan._within(self.region.numbering).counts(self.region.size)
        return min(1.0, float(self.error @ visits) * (1 + 1e-9))

    @abstractmethod
    def begin(self, runs: int) -> NDArray[Any]:
        """Return sets in which every state is possible."""

    @abstractmethod
    def go(self, x: NDArray[Any], steps: SetSteps, keys: NDArray[np.uint64]) -> None:
        """Take the sets of some runs, whose streams have these keys, through some steps."""

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        return self.begin(len(chains))

    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        raise NotImplementedError(
            "bounding sets start with all states of each variable; initial states cannot be loaded"
        )

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        self.go(x, SetSteps(order, place, work.steps, work.step, 1), work.keys(self.lanes))

    def run_from_past(
        self,
        master: NDArray[np.uint64],
        chains: range,
        order: NDArray[np.int64],
        rows: NDArray[np.int64],
        stop: threading.Event,
    ) -> NDArray[np.int64]:
        """Return coalesced states, or -1, of steps whose last one has number 0, the one before it 1, and so on.

        `Stopped` if `stop` is set meanwhile.
        """
        x, T = self.begin(len(chains)), len(order)
        local = frozen(self.region.numbering.own(order).astype(np.int32))
        keys, chunk = streams_of(master, chains, self.lanes), self.steps_in(LOOK_SECONDS, Scan(order), len(chains))
        for first in range(0, T, chunk):
            if stop.is_set():
                raise Stopped
            self.go(x, SetSteps(local, first, min(chunk, T - first), T - 1 - first, -1), keys)
        settled: NDArray[np.int64] = self.read(x, rows, len(chains)).T.astype(np.int64)
        return settled


# The first one that fits is taken.
SET_KERNELS: dict[str, type[SetKernel]] = {}


def register(kernel: type[SetKernel]) -> type[SetKernel]:
    """Register a kernel under its name; kernels registered before it are asked first."""
    SET_KERNELS[kernel.name] = kernel
    return kernel


def choose_sets(model: Model, scan: Scan) -> SetKernel:
    """Return the fastest kernel that fits the model.

    Which one that is depends on the model alone: exact draws run ever larger regions with the same random bits, and
    every step has to be the same map each time.
    """
    form, region = model._region(scan._updates(model.n_variables))
    kernel: Any = next(kernel for kernel in SET_KERNELS.values() if kernel.fits(form)).make(form, region)
    # The conditional laws of the form may be this far from those of the model that was meant.
    return replace(kernel, error=kernel.error + 2.0 * form.error) if form.error else kernel


@dataclass(frozen=True)
class SetRuns:
    """Results of some runs.

    Attributes
    ----------
    runs : int
        How many there are. Where something (`trouble`) ended them early, these are the first of them.
    settled : array of shape (runs, kept steps, variables)
        The digit 0..k-1 of the state where a variable has coalesced, else -1. Without runs where only counts are kept.
    counts : array of shape (variables, 1 + states), or None
        After the last step, the runs in which a variable has not coalesced, and those in which it has each state.
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
    """Run sets with these numbers (the first one a multiple of 64), and keep or count some variables.

    A checkpoint keeps `call_seed`, from which `sequence` was made: the seed to resume with.
    """
    runner = on_backend(kernel, scan, len(numbers), running.backend)
    job = make_set_job(model, runner, scan, labels, sequence, every, counts)
    outcome = run_batches(job, numbers, call_seed or sequence, running, "coalescing")
    return collect_sets(kernel, job, outcome)


def make_set_job(
    model: Model, runner: Runner, scan: Scan, labels: list[Hashable], sequence: np.random.SeedSequence,
    every: int | None = None, counts: bool = False,
) -> Job:  # fmt: skip
    """Return the job of a batch of runs; with `counts`, runs are counted and not kept."""
    region = runner.region
    record = Record(labels, every=every)
    rows = record._rows(model, region)
    stops = np.union1d(record._stops(len(scan)), [len(scan)])
    largest = int(model.cardinalities[region.positions[rows]].max())
    return Job(runner, scan, master_key(sequence), rows, stops, largest + counts, states=not counts, counts=counts)


def collect_sets(kernel: SetKernel, job: Job, outcome: Outcome) -> SetRuns:
    """Return the results of runs of a kernel, or of its twin on the GPU."""
    nothing = np.empty((len(job.stops), len(job.rows), 0), dtype=np.int16)
    settled = (outcome.states(job) if job.states else nothing).transpose(2, 0, 1)
    counts = outcome.counts(job) if job.counts else None
    return SetRuns(outcome.chains, settled, counts, kernel.name, kernel.run_error(job.scan), outcome.trouble)


@dataclass(frozen=True)
class SetTally:
    """Counts over many runs, after each kept step (the first axis).

    `failures` are runs in which some variable had not coalesced, `open` those in which this one had not.
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
) -> SetTally:
    """Count, a block of runs after the other, so that memory does not grow with their number."""
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
