"""Drawing: the public function, and what it does once its arguments are read."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import Model
from dobrushin._models.near import Region
from dobrushin._models.sources import as_model
from dobrushin._sampling.batches import Job, Outcome, run_batches
from dobrushin._sampling.kernel import KERNELS, Runner, choose_kernel, update_error
from dobrushin._sampling.samples import Samples
from dobrushin._sampling.start import make_guard, read_start
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import is_increasing
from dobrushin._shared.call import public
from dobrushin._shared.deadline import NO_DEADLINE
from dobrushin._shared.executors import TimeUp, Trouble
from dobrushin._shared.log import log
from dobrushin._shared.memory import require_memory
from dobrushin._shared.options import Backend, KernelName
from dobrushin._shared.running import PLAIN, Running, kept_seed, master_key, read_running, refuse_long
from dobrushin.errors import ArgumentError, SamplingInterrupted, WorkerError, how_to_go_on

# A device pays from so many chains and updates on: it is filled, and its start is worth it.
MANY_CHAINS, MANY_UPDATES = 2**16, 10**10
_TOO_LARGE = "Keep fewer variables (record=), only counts (record='counts'), or draw in several calls."
_TOO_LONG = "Ask for fewer chains or steps, or allow it with time= (seconds after which what is there is returned)."


@dataclass(frozen=True)
class Record:
    """What `sample` keeps of a run.

    Parameters
    ----------
    variables : labels, optional
        Which variables; default all that the scan can see (those it updates, and their neighbours).
    every : int, optional
        Keep the states after every so many steps; default only after the last.
    states : bool
        Keep the states themselves.
    counts : bool
        Count how often each variable is in each state, over all chains and kept steps.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(4, 4, couplings=0.2)
    >>> keep = db.Record(variables=[0], every=16, states=False, counts=True)
    >>> run = db.sample(model, db.Scan.systematic(16, 160), chains=100, seed=1, record=keep)
    >>> int(run.counts.sum())
    1000
    """

    variables: Iterable[Hashable] | None = None
    every: int | None = None
    states: bool = True
    counts: bool = False

    @public()
    def __post_init__(self) -> None:
        if self.variables is not None:
            if not check.is_several(self.variables):
                raise ArgumentError("variables", "labels", self.variables)
            object.__setattr__(self, "variables", tuple(self.variables))
        if self.every is not None:
            check.count(self.every, "every")
        if not self.states and not self.counts:
            raise ArgumentError("states", "True when 'counts' is False: something must be kept", self.states)

    def _rows(self, model: Model, region: Region) -> NDArray[np.int64]:
        """Numbers in the region of the variables to keep."""
        if self.variables is None:
            return np.arange(region.size)
        positions = check.positions(list(self.variables), model.labels, model._lookup, "record")
        if not (held := region.numbering.holds(positions)).all():
            label = model.labels[int(positions[int(np.argmin(held))])]
            raise ArgumentError("record", "variables that the scan updates, or their neighbours", label)
        return region.numbering.own(positions)

    def _stops(self, steps: int) -> NDArray[np.int64]:
        """The steps of a scan of so many after which to keep something."""
        every = steps if self.every is None else self.every
        if every > steps:
            raise ArgumentError("record", f"kept at least once in {steps} steps", got=f"every={every}")
        return np.arange(every, steps + 1, every)


# Only the last states.
FINAL = Record()


def read_record(record: Any) -> Record:
    """A Record, or one of its short forms: None, "final", "counts", or labels."""
    if isinstance(record, Record):
        return record
    if record is None or check.is_text(record, "final"):
        return FINAL
    if check.is_text(record, "counts"):
        return Record(states=False, counts=True)
    if check.is_several(record):
        return Record(variables=list(record))
    raise ArgumentError("record", "None, 'final', 'counts', labels or a Record", record)


@public("preparing")
def sample(
    model: Model,
    scan: Any,
    *,
    chains: int = 1,
    seed: int | np.random.SeedSequence | None = None,
    initial: Any = "uniform",
    record: Any = None,
    kernel: KernelName | None = None,
    backend: Backend = "auto",
    executor: Executor | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    time: float | None = None,
) -> Samples:
    """Run a scan on a model, in independent chains.

    Only the variables that the scan updates and their neighbours exist while it runs, so the cost of a chain depends
    on the scan and not on the size of the model.

    Parameters
    ----------
    model : Model
    scan : Scan or ScanResult
    chains : int
    seed : int, SeedSequence or None
        With the same seed and kernel the first chains are the same however many are asked for, whatever the
        executor.
    initial : "uniform", "mode", array or function
        Independent uniform states, or one allowed state in chains where these are forbidden; each variable's most
        likely state by its own potentials; states of shape (n,) or (chains, n); or a function from an array of chain
        numbers to states of shape (len, n), called once for each batch of chains.
    record : Record, "final", "counts" or labels, optional
        What to keep; default the final states.
    kernel : {"bits", "counts", "table", "dense", "field", "potts", "conditional", "factors"}, optional
        Force a way to draw; default the fastest that fits, which the result names.
    backend : {"auto", "cpu", "cuda"}
        Where to draw: with "auto" on an NVIDIA GPU if there is one and the run is long (extra `cuda`). The draws are
        the same.
    executor : concurrent.futures.Executor, optional
        Default: one thread per core.
    progress : bool, optional
        Show what is done: None in a terminal or a notebook, True also in a log, False nowhere.
    checkpoint : path, optional
        Write the state of the run here every few seconds, and go on from it if it exists.
    time : number, optional
        Seconds after which to return what is there: the chains with the first numbers, up to the first one that did
        not finish. Without it, a run that would take longer than an hour is refused; ``math.inf`` allows it.

    Returns
    -------
    Samples

    Raises
    ------
    SamplingInterrupted
        On Ctrl-C; it carries the first chains too.
    BudgetError
        When the run would take too long, or more memory than there is.
    WorkerError
        When the executor ends early, as a process pool does when one of its workers dies; it carries them as well.

    Notes
    -----
    Step t updates variable i_t: X_i ~ pi(. | X_rest) (paper, Algorithm 1).

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> found = db.shortest_scan(model, targets=[0], tolerance=0.05)
    >>> run = db.sample(model, found, chains=10_000, seed=1, record=[0])
    >>> run
    Samples(chains=10000, variables=1, steps=19, kernel='bits', seed=1)
    >>> abs(float(run.states.mean())) < 0.05
    True
    """
    model = as_model(model)
    scan = as_scan(scan)
    scan.check_fits(model.n_variables)
    chains = check.count(chains, "chains")
    running, sequence = read_running(executor, backend, checkpoint, seed, time)
    keep, runner = read_record(record), make_runner(model, scan, chains, kernel, initial)
    refuse_long("This run", runner.seconds(float(len(scan)) * chains, scan), running.deadline, _TOO_LONG)
    samples, trouble = run_chains(
        model, runner, scan, range(chains), sequence, start=initial, record=keep, running=running
    )
    match trouble:
        case None | TimeUp():
            return samples
        case KeyboardInterrupt():
            raise SamplingInterrupted(samples, chains)
    hint = f"They are the attribute 'samples' of this error. {how_to_go_on(running.checkpoint is not None)}"
    raise WorkerError(str(trouble), samples.chains, chains, "chains", hint, samples=samples)


@singledispatch
def make_runner(model: Model, scan: Scan, chains: int, kernel: str | None, initial: Any) -> Runner:
    """Make the kernel of `sample`: the one that was asked for, or the fastest that fits.

    A family whose states are not digits registers a function of its own.
    """
    del initial
    if kernel is not None:
        check.choice(kernel, list(KERNELS), "kernel")
    return choose_kernel(model, scan, chains, kernel)


def run_chains(
    model: Model,
    kernel: Runner,
    scan: Scan,
    numbers: range,
    sequence: np.random.SeedSequence,
    *,
    start: Any = "uniform",
    record: Record = FINAL,
    running: Running = PLAIN,
) -> tuple[Samples, Trouble | None]:
    """The chains with these numbers (the first one a multiple of 64) by a kernel that was made for the model and scan.

    `start` is the `initial` of `sample`; a kernel with a start of its own does not look at it. Of a run that something
    ends before its time, the first chains, and what it was.
    """
    if record.counts and not kernel.counts_states:
        raise ArgumentError("record", "states: those of a field are not counted", got="counts")
    runner = on_backend(kernel, scan, len(numbers), running.backend)
    job = make_job(model, runner, scan, len(numbers), sequence, start, record)
    if record.states and running.deadline is NO_DEADLINE:  # with one, only what is finished in time is kept
        kept = 2.0 * len(numbers) * len(job.rows) * len(job.stops)  # in batches, and put together
        require_memory("Keeping these states", kept * np.dtype(kernel.dtype).itemsize, _TOO_LARGE)
    outcome = run_batches(job, numbers, sequence, running, "sampling")
    return collect(model, job, outcome, record, sequence), outcome.trouble


def make_job(
    model: Model, runner: Runner, scan: Scan, chains: int, sequence: np.random.SeedSequence, start: Any, record: Record,

) -> Job:  # fmt: skip
    """What a batch of so many chains needs to know."""
    region = runner.region
    form, rows = model._form_of(region), record._rows(model, region)
    is_uniform = runner.fixed_start is not None or check.is_text(start, "uniform")
    return Job(
        runner,
        scan,
        master_key(sequence),
        rows,
        record._stops(len(scan)),
        _largest(model, region, rows) if runner.counts_states else 0,
        record.states,
        record.counts,
        None if is_uniform else read_start(model, form, region, start, chains),
        make_guard(model, form, region, is_uniform) if form.has_zeros else None,
    )


def _largest(model: Model, region: Region, rows: NDArray[np.int64]) -> int:
    """The largest number of states of some variables of a region."""
    if model._spins:
        return 2
    sizes = model.cardinalities
    return int((sizes if len(rows) == len(sizes) else sizes[region.positions[rows]]).max())


def on_backend(runner: Runner, scan: Scan, chains: int, backend: str) -> Runner:
    """The runner itself, or its twin on the GPU if that is asked for, or if it pays and nothing was asked for."""
    if backend == "cpu" or (backend == "auto" and not _pays_on_gpu(runner, scan, chains)):
        return runner
    if not runner.has_twin:
        raise ArgumentError("backend", f"'cpu' for the kernel {runner.name!r}", "cuda")
    from dobrushin._shared.device import cupy

    cupy()  # says what is missing
    log.info("kernel %s runs on the GPU", runner.name)
    return runner.twin()


def _pays_on_gpu(runner: Runner, scan: Scan, chains: int) -> bool:
    """Whether a run is better off on the GPU, if there is one."""
    if not runner.has_twin or chains < MANY_CHAINS or chains * len(scan) < MANY_UPDATES:
        return False
    from dobrushin._shared.device import is_available

    return is_available()


def collect(model: Model, job: Job, outcome: Outcome, record: Record, sequence: np.random.SeedSequence) -> Samples:
    """The result of a run."""
    states, counts = None, None
    if job.states:
        states = outcome.states(job)
        if model._spins:
            states *= 2
            states -= 1
        # (draws, variables, chains) in memory: seen as (chains, draws, variables) without a copy
        states = states.transpose(2, 0, 1) if record.every is not None else states[0].T
    if job.counts:
        counts = outcome.counts(job)
    n, runner = model.n_variables, job.runner
    error = update_error(n, job.scan, runner) if model.is_whole else np.array(runner.errors_in(job.scan).max())
    is_all = len(job.rows) == n and is_increasing(job.rows)
    kept = runner.region.positions if is_all else runner.region.positions[job.rows]
    labels = model.labels if is_all else model._labels_at(kept)
    has_refuge = job.guard is not None and job.guard.refuge is not None
    start, point = "given" if job.start is not None else "uniform where allowed" if has_refuge else "uniform", None
    if runner.fixed_start is not None:
        start, point = runner.fixed_start.words, runner.fixed_start.point
    return Samples(
        states, counts, labels, outcome.chains, job.scan, kept_seed(sequence), runner.name, error, model._spins,
        job.largest, start, model._names_of(kept), point,
    )  # fmt: skip
