"""The public function `sample`, and the functions with which other packages run chains."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import Model
from dobrushin._models.near import ScanRegion
from dobrushin._models.sources import as_model
from dobrushin._sampling.batches import Job, Outcome, run_batches
from dobrushin._sampling.kernel import KERNELS, Runner, choose_kernel, update_error
from dobrushin._sampling.samples import Samples
from dobrushin._sampling.start import make_guard, read_start
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import is_increasing
from dobrushin._shared.call import NO_DEADLINE, limited, public
from dobrushin._shared.device import cupy, is_available
from dobrushin._shared.environment import log
from dobrushin._shared.executors import Trouble, raise_trouble
from dobrushin._shared.memory import require_memory
from dobrushin._shared.running import (
    PLAIN,
    Running,
    RunOptions,
    kept_seed,
    master_key,
    read_options,
    read_running,
    refuse_long,
)
from dobrushin._shared.text import counted
from dobrushin.errors import ArgumentError
from dobrushin.typing import Initial, KernelName, ModelLike, ScanLike, Seed

# From these numbers of chains and of updates on, "auto" takes the GPU (benchmarks/gpu.py).
MANY_CHAINS, MANY_UPDATES = 2**16, 10**10
_TOO_LARGE = "Keep fewer variables (record=), only counts (record='counts'), or draw in several calls."
_TOO_LONG = "Ask for fewer chains or steps, or pass time_limit= (seconds after which finished chains are returned)."


@dataclass(frozen=True)
class Record:
    """Choice of the states that `sample` keeps.

    Parameters
    ----------
    variables : labels, optional
        Variables to keep; default all variables that the scan updates, and their neighbours.
    every : int, optional
        Keep the states after every `every` steps; default only after the last step.
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

    def _rows(self, model: Model, region: ScanRegion) -> NDArray[np.int64]:
        """Return the variables to keep, by number in the region."""
        if self.variables is None:
            return np.arange(region.size)
        positions = check.positions(list(self.variables), model.labels, model._lookup, "record")
        if not (held := region.numbering.holds(positions)).all():
            label = model.labels[int(positions[int(np.argmin(held))])]
            raise ArgumentError("record", "variables that the scan updates, or their neighbours", label)
        return region.numbering.own(positions)

    def _stops(self, steps: int) -> NDArray[np.int64]:
        """Return the step numbers after which something is kept."""
        every = steps if self.every is None else self.every
        if every > steps:
            raise ArgumentError("record", f"kept at least once in {counted(steps, 'step')}", got=f"every={every}")
        return np.arange(every, steps + 1, every)


# Keeps the last states alone.
FINAL = Record()


def read_record(record: Any) -> Record:
    """Return the user's argument `record` as a Record; it may be None, "final", "counts", labels or a Record."""
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
    model: ModelLike,
    scan: ScanLike,
    *,
    chains: int = 1,
    seed: Seed = None,
    initial: Initial = "uniform",
    record: Record | Iterable[Hashable] | None = None,
    kernel: KernelName | None = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    run: RunOptions | None = None,
) -> Samples:
    """Run a scan on a model, in independent chains.

    Only the variables that the scan updates and their neighbours are held in memory, so the time of a chain depends on
    the scan and not on the size of the model.

    Parameters
    ----------
    model : Model
    scan : Scan or ScanResult
    chains : int
    seed : int, SeedSequence, Generator or None
        With the same seed and kernel, the first chains are the same for any number of chains and any executor.
    initial : "uniform", "mode", array or function
        Independent uniform states, or one allowed state in chains where these are forbidden; each variable's most
        likely state by its own potentials; states of shape (n,) or (chains, n); or a function from an array of chain
        numbers to states of shape (len, n), called once for each batch of chains.
    record : Record, "final", "counts" or labels, optional
        States or counts to keep; default the final states.
    kernel : {"bits", "counts", "table", "dense", "field", "potts", "conditional", "factors"}, optional
        Force a kernel; default the fastest that fits, which the result names.
    time_limit : number, optional
        Seconds after which to return the first chains, up to the first chain that did not finish. Without a limit, a
        run that would take longer than an hour is refused; ``math.inf`` allows it.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.
    run : RunOptions, optional
        Executor, GPU and checkpoint. The draws are the same.

    Returns
    -------
    Samples

    Raises
    ------
    Interrupted
        On Ctrl-C; ``error.result`` has the first chains that finished.
    BudgetError
        When the run would take too long, or more memory than there is.
    WorkerError
        When the executor ends early, as a process pool does when one of its workers dies; ``error.result`` as above.

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
    scan = as_scan(scan, model)
    scan._check_fits(model.n_variables)
    chains = check.count(chains, "chains")
    running, sequence = read_running(read_options(run, ("memory_limit",)), seed, time_limit)
    keep, runner = read_record(record), make_runner(model, scan, chains, kernel, initial)
    refuse_long("This run", runner.seconds(float(len(scan)) * chains, scan), running.deadline, _TOO_LONG)
    samples, trouble = ChainSource(model, runner, scan, sequence, initial, keep).draw(range(chains), running)
    raise_trouble(trouble, samples, samples.chains, chains, "chains", is_saved=running.checkpoint is not None)
    return samples


@singledispatch
def make_runner(model: Model, scan: Scan, chains: int, kernel: str | None, initial: Any) -> Runner:
    """Return the kernel with this name, or without a name the fastest one that fits.

    Model families with continuous states register their own version.
    """
    del initial
    if kernel is not None:
        check.choice(kernel, list(KERNELS), "kernel")
    return choose_kernel(model, scan, chains, kernel)


class ChainSource:
    """Source of independent chains, which draws them in blocks and prepares only once what all blocks share.

    The kernel must have been made for the model and the scan. `start` is the argument `initial` of `sample`; a kernel
    with a fixed start ignores it.
    """

    def __init__(
        self, model: Model, kernel: Runner, scan: Scan, sequence: np.random.SeedSequence, start: Any = "uniform",
        record: Record = FINAL,
    ) -> None:  # fmt: skip
        if record.counts and not kernel.counts_states:
            raise ArgumentError("record", "'final', labels or a Record: a field's states are not counted", got="counts")
        self.model, self.kernel, self.scan, self.sequence = model, kernel, scan, sequence
        self.start, self.record = start, record
        self._jobs: dict[bool, Job] = {}  # on the CPU, and on the GPU
        self._empty: Samples | None = None

    def draw(self, numbers: range, running: Running = PLAIN) -> tuple[Samples, Trouble | None]:
        """Draw the chains with these numbers; return their samples and the reason for an early end.

        The first number must be a multiple of 64.
        """
        with limited(running.deadline):
            job = self.job(len(numbers), running.backend)
        if job.states and running.deadline is NO_DEADLINE:  # a limit may end the run before memory does
            kept = 2.0 * len(numbers) * len(job.rows) * len(job.stops)  # the batches, and their concatenation
            require_memory("Keeping these states", kept * np.dtype(self.kernel.dtype).itemsize, _TOO_LARGE)
        outcome = run_batches(job, numbers, self.sequence, running, "sampling")
        return self.samples(job, outcome), outcome.trouble

    def job(self, chains: int, backend: str) -> Job:
        """Return the job that runs blocks of chains on a backend, of this number of chains or another."""
        runner = on_backend(self.kernel, self.scan, chains, backend)
        is_here = runner is self.kernel
        if is_here not in self._jobs:
            self._jobs[is_here] = self._make_job(runner, chains)
        return self._jobs[is_here]

    def _make_job(self, runner: Runner, chains: int) -> Job:
        model, record, region = self.model, self.record, runner.region
        form, rows = model._form_of(region), record._rows(model, region)
        largest = 2 if model._spins else 0
        if runner.counts_states and not model._spins:
            largest = int(model.cardinalities[region.positions[rows]].max())
        is_uniform = runner.fixed_start is not None or check.is_text(self.start, "uniform")
        return Job(
            runner,
            self.scan,
            master=master_key(self.sequence),
            rows=rows,
            stops=record._stops(len(self.scan)),
            largest=largest,
            states=record.states,
            counts=record.counts,
            start=None if is_uniform else read_start(model, form, region, self.start, chains),
            guard=make_guard(model, form, region, is_uniform) if form.has_zeros else None,
        )

    def samples(self, job: Job, outcome: Outcome) -> Samples:
        """Return the outcome of a job as samples, in the states and labels of the model."""
        if self._empty is None:
            self._empty = self._describe(job)
        states, counts = None, outcome.counts(job) if job.counts else None
        if job.states:
            states = outcome.states(job)
            if self._empty._spins:
                states *= 2
                states -= 1
            # An array (draws, variables, chains) in memory becomes a view (chains, draws, variables).
            states = states.transpose(2, 0, 1) if self.record.every is not None else states[0].T
        return replace(self._empty, states=states, counts=counts, chains=outcome.chains)

    def _describe(self, job: Job) -> Samples:
        """Return empty samples, with the description that the samples of all blocks have."""
        model, runner, n = self.model, job.runner, self.model.n_variables
        error = update_error(n, job.scan, runner) if model._is_whole else np.array(runner.errors_in(job.scan).max())
        if model._error:  # the numbers of the model were rounded before the draws
            error = np.where(error > 0, np.minimum(error + model._error, 1.0), 0.0)
        is_all = len(job.rows) == n and is_increasing(job.rows)
        kept = runner.region.positions if is_all else runner.region.positions[job.rows]
        has_refuge = job.guard is not None and job.guard.refuge is not None
        start, point = "given" if job.start is not None else "uniform where allowed" if has_refuge else "uniform", None
        if runner.fixed_start is not None:
            start, point = runner.fixed_start.words, runner.fixed_start.point
        return Samples(
            states=None,
            counts=None,
            variables=model.labels if is_all else model._labels_at(kept),
            chains=0,
            scan=job.scan,
            seed=kept_seed(self.sequence),
            kernel=runner.name,
            update_error=error,
            state_names=model._names_of(kept),
            _spins=model._spins,
            _cardinality=job.largest,
            _start=start,
            _point=point,
        )


def on_backend(runner: Runner, scan: Scan, chains: int, backend: str) -> Runner:
    """Return the runner itself, or its GPU version for the backend "cuda", and for "auto" if the run is large."""
    if backend == "auto":
        is_worth = runner.twin is not None and chains >= MANY_CHAINS and chains * len(scan) >= MANY_UPDATES
        backend = "cuda" if is_worth and is_available() else "cpu"
    if backend != "cuda":
        return runner
    if runner.twin is None:
        raise ArgumentError("backend", f"'cpu' for the kernel {runner.name!r}", "cuda")
    cupy()  # raises an error that names what is missing
    log.info("kernel %s runs on the GPU", runner.name)
    twin: Runner = runner.twin(runner)
    return twin
