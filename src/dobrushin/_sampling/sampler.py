"""The public function."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dobrushin._models import Model
from dobrushin._sampling.batches import Job, Progress, run_all
from dobrushin._sampling.build import KERNELS, build_kernel, update_error
from dobrushin._sampling.checkpoint import Checkpoint
from dobrushin._sampling.kernels import Kernel
from dobrushin._sampling.record import Record, read_record
from dobrushin._sampling.region import Region, region_of
from dobrushin._sampling.samples import Samples
from dobrushin._sampling.start import make_guard, read_initial
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.executors import read_executor, workers_of
from dobrushin._shared.seeds import kept_seed, master_words, seed_sequence
from dobrushin._shared.state_file import read_checkpoint, stored_seed
from dobrushin.errors import ArgumentError, SamplingInterrupted, WorkerError, how_to_go_on

BACKENDS = ("auto", "cpu", "cuda")


def sample(
    model: Model,
    scan: Any,
    *,
    chains: int = 1,
    seed: int | np.random.SeedSequence | None = None,
    initial: Any = "uniform",
    record: Any = None,
    kernel: str | None = None,
    backend: str = "auto",
    executor: Executor | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
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
        Independent uniform states; each variable's most likely state by its own potentials; states of shape (n,) or
        (chains, n); or a function from an array of chain numbers to states of shape (len, n), called once for each
        batch of chains.
    record : Record, "final", "counts" or labels, optional
        What to keep; default the final states.
    kernel : {"bits", "table", "field", "potts", "factors"}, optional
        Force a way to draw; default the fastest that fits, which the result names.
    backend : {"auto", "cpu", "cuda"}
        Where to draw: with "auto" on an NVIDIA GPU if there is one and the run is long (extra `cuda`). The draws are
        the same.
    executor : concurrent.futures.Executor, optional
        Default: one thread per core.
    progress : bool
        Show a bar with rate and time left when attached to a terminal.
    checkpoint : path, optional
        Write the state of the run here every few seconds, and go on from it if it exists.

    Returns
    -------
    Samples

    Raises
    ------
    SamplingInterrupted
        On Ctrl-C; it carries the chains that finished.
    WorkerError
        When the executor ends early, as a process pool does when one of its workers dies; it carries them too.

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
    if not isinstance(model, Model):
        raise ArgumentError("sample", "model", "a model", model)
    scan = as_scan(scan, "sample")
    scan.check_fits(model.n_variables, "sample")
    chains = check.count(chains, "sample", "chains")
    executor = read_executor(executor, "sample")
    if kernel is not None:
        check.choice(kernel, KERNELS, "sample", "kernel")
    check.choice(backend, BACKENDS, "sample", "backend")
    file = read_checkpoint(checkpoint, "sample")
    if seed is None and file is not None:
        seed = stored_seed(file)
    sequence = seed_sequence(seed, "sample")
    return draw(model, scan, range(chains), sequence, initial, record, kernel, executor, progress, file, backend)


def draw(
    model: Model,
    scan: Scan,
    numbers: range,
    sequence: np.random.SeedSequence,
    initial: Any = "uniform",
    record: Any = None,
    kernel: str | None = None,
    executor: Executor | None = None,
    progress: bool = False,
    checkpoint: Path | None = None,
    backend: str = "cpu",
    function: str = "sample",
) -> Samples:
    """The chains with these numbers (the first one a multiple of 64): `sample` once its arguments are read."""
    keep = read_record(record)
    chains = len(numbers)
    region = region_of(model, scan)
    made = on_backend(build_kernel(model, scan, region, chains, kernel), scan, chains, backend, function)
    job = make_job(model, scan, region, made, keep, master_words(sequence), "sample")
    job.start = read_initial(model, region, initial, chains)
    job.guard = make_guard(model, region)
    # Batches of a run with a checkpoint must be the same wherever it goes on.
    batches = make_batches(made, numbers, workers_of(executor) if checkpoint is None else 4)
    saved = None
    if checkpoint is not None:
        about = (made.name, made, chains, numbers.start, len(batches), scan.to_arrays(), job.rows, job.stops, keep)
        saved = Checkpoint(checkpoint, sequence, (*about, job.start), function)
    with progress_bar(bool(progress), len(scan) * chains, "sampling") as report:
        finished, trouble = run_all(job, batches, executor, saved, report, function)
    samples = _collect(model, region, job, keep, finished, batches, kept_seed(sequence))
    if trouble is not None:
        ended = [np.arange(batches[k].start, batches[k].stop) for k in sorted(finished)]
        which = np.concatenate([np.empty(0, dtype=np.int64), *ended])
        if isinstance(trouble, KeyboardInterrupt):
            raise SamplingInterrupted(samples, chains, which)
        hint = f"They are the attribute 'samples' of this error. {how_to_go_on(saved is not None)}"
        raise WorkerError(str(trouble), samples.chains, chains, "chains", hint, samples=samples, chain_numbers=which)
    return samples


def make_job(model: Model, scan: Scan, region: Region, made: Kernel, keep: Record, master: Any, function: str) -> Job:
    """What the batches of a run need to know, but for the start."""
    if keep.variables is None:
        rows = np.arange(region.size)
    else:
        wanted = check.positions(list(keep.variables), model.labels, model._lookup, function, "record")
        place = np.minimum(np.searchsorted(region.positions, wanted), region.size - 1)
        if (missing := region.positions[place] != wanted).any():
            label = model.labels[int(wanted[int(np.argmax(missing))])]
            raise ArgumentError(function, "record", "variables that the scan updates, or their neighbours", label)
        rows = place
    every = len(scan) if keep.every is None else keep.every
    stops = np.arange(every, len(scan) + 1, every)
    if not len(stops):
        raise ArgumentError(function, "record", f"kept at least once in {len(scan)} steps", got=f"every={every}")
    largest = int(model.cardinalities[region.positions[rows]].max())
    return Job(made, scan, master, rows, stops, keep.states, keep.counts, None, None, largest)


def on_backend(made: Kernel, scan: Scan, chains: int, backend: str, caller: str) -> Kernel:
    """The kernel where it is to run."""
    if backend == "cpu":
        return made
    from dobrushin._sampling.cuda import chosen

    return chosen(made, scan, chains, backend, caller)


def make_batches(made: Kernel, numbers: range, cores: int) -> list[range]:
    """Ranges of chains that are run together: whole words, and enough of them for all cores."""
    if hasattr(made, "batches"):  # on a device, whose memory counts
        fitting: list[range] = made.batches(numbers)
        return fitting
    size = made.batch
    while size > made.lanes and len(numbers) < 2 * cores * size:
        size //= 2
    return [range(lo, min(lo + size, numbers.stop)) for lo in range(numbers.start, numbers.stop, size)]


def _collect(
    model: Model, region: Region, job: Job, keep: Record, finished: dict[int, Progress], batches: list[range], seed: Any
) -> Samples:
    made = job.kernel
    parts = [finished[k] for k in sorted(finished)]
    chains = sum(len(batches[k]) for k in finished)
    states, counts = None, None
    if job.states:
        shape = (len(job.stops), len(job.rows), 0)
        pieces = [part.states for part in parts if part.states is not None] or [np.empty(shape, dtype=made.dtype)]
        joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=2)
        if model._spins:
            joined *= 2
            joined -= 1
        # (draws, variables, chains) in memory: seen as (chains, draws, variables) without a copy
        states = joined[0].T if keep.every is None else joined.transpose(2, 0, 1)
    if job.counts:
        counts = np.zeros((len(job.rows), job.largest), dtype=np.int64)
        for part in parts:
            counts += part.counts if part.counts is not None else 0
    error = update_error(model.n_variables, job.scan, region, made)
    kept = region.positions[job.rows]
    labels = model.labels if len(kept) == model.n_variables and (np.diff(kept) == 1).all() else model._labels_at(kept)
    return Samples(states, counts, labels, chains, job.scan, seed, made.name, error, model._spins, job.largest)


@contextmanager
def progress_bar(wanted: bool, total: int, what: str, unit: str = "updates") -> Iterator[Callable[[int], None] | None]:
    """A function that shows how many of all are done, or None where there is nobody to see it."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[rate]} " + unit + "/s"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, rate="-")

        def report(done: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, rate=f"{speed:.2g}" if speed else "-")

        yield report
