"""`sample` for fields: chains from one point, with the certificate of how they are drawn."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._fields.anchor import Anchor, FieldSpace, read_start, space_of, uncertified_start
from dobrushin._fields.certificate import FieldVariation, certify
from dobrushin._fields.kernel import FieldKernel
from dobrushin._fields.model import GaussianField
from dobrushin._influence import Influence
from dobrushin._models import Model
from dobrushin._models.near import region_of
from dobrushin._sampling.batches import Job, run_batches
from dobrushin._sampling.sampler import Record, read_record
from dobrushin._sampling.samples import Samples
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.deadline import NO_DEADLINE
from dobrushin._shared.executors import TimeUp, Trouble
from dobrushin._shared.families import version_of
from dobrushin._shared.memory_guard import guard_memory, require_memory
from dobrushin._shared.options import Backend, KernelName
from dobrushin._shared.running import Running, kept_seed, master_key, read_running, refuse_long
from dobrushin._variation import read_objective
from dobrushin.errors import ArgumentError, CertificateError, SamplingInterrupted, WorkerError, how_to_go_on

_TOO_LARGE = "Keep fewer variables (record=), or draw in several calls."
_TOO_LONG = "Ask for fewer chains or steps, or allow it with time= (seconds after which what is there is returned)."


@dataclass(frozen=True, eq=False, repr=False)
class FieldSamples(Samples):
    """States of a field that a run kept; `update_error` bounds how far one draw is off, as a distance."""

    point: NDArray[np.float64] | None = None  # where all chains started

    def marginals(self) -> NDArray[np.float64]:
        raise ArgumentError("Samples.marginals", "samples", "of discrete variables", got="states of a field")

    def variation(self, influence: Influence | Model, targets: Any = None, weights: Any = None) -> FieldVariation:
        """The certificate of the scan as it was drawn, from where the chains started."""
        if not isinstance(influence, GaussianField):
            raise ArgumentError("Samples.variation", "influence", "the field that was sampled", influence)
        objective = read_objective(space_of(influence).rows, targets, weights, "variation")
        return certify(space_of(influence), self.scan, objective, read_start(influence, self.point, "variation"))

    def save(self, path: str | os.PathLike[str]) -> None:
        del path
        raise ArgumentError("Samples.save", "samples", "of discrete variables", got="states of a field")


@version_of("sample", GaussianField)
@guard_memory
def sample_field(
    model: GaussianField,
    scan: Any,
    *,
    chains: int = 1,
    seed: int | np.random.SeedSequence | None = None,
    initial: Any = None,
    record: Any = None,
    kernel: KernelName | None = None,
    backend: Backend = "auto",
    executor: Executor | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    time: float | None = None,
) -> FieldSamples:
    """`sample` of a field: `initial` is a point of the box, the same for all chains."""
    scan = as_scan(scan, "sample")
    scan.check_fits(model.n_variables, "sample")
    chains = check.count(chains, "sample", "chains")
    if kernel not in (None, FieldKernel.name):
        raise ArgumentError("sample", "kernel", f"None or {FieldKernel.name!r} for a field", kernel)
    if backend == "cuda":
        raise ArgumentError("sample", "backend", "'cpu' for a field", backend)
    del progress  # `watched` reads it
    running, sequence = read_running(executor, backend, checkpoint, seed, time, "sample")
    keep, space = read_record(record), space_of(model)
    if keep.counts:
        raise ArgumentError("sample", "record", "states: those of a field are not counted", got="counts")
    try:
        anchor = read_start(model, initial, "sample")
    except CertificateError:  # chains can be run all the same
        anchor = uncertified_start(model, initial, "sample")
    runner = make_kernel(space, anchor, scan)
    refuse_long("This run", runner.seconds(float(len(scan)) * chains, scan), running.deadline, _TOO_LONG)
    samples, trouble = run_field(model, runner, anchor, scan, range(chains), sequence, keep, running, "sample")
    match trouble:
        case None | TimeUp():
            return samples
        case KeyboardInterrupt():
            raise SamplingInterrupted(samples, chains)
    hint = f"They are the attribute 'samples' of this error. {how_to_go_on(running.checkpoint is not None)}"
    raise WorkerError(str(trouble), samples.chains, chains, "chains", hint, samples=samples)


def make_kernel(space: FieldSpace, anchor: Anchor, scan: Scan) -> FieldKernel:
    """The kernel of a scan, for chains that start at the anchor."""
    form = space.form
    certified = bool(np.isfinite(anchor.unit).all())
    error = space.errors(anchor).distance if certified else np.full(form.n_variables, np.inf)
    return FieldKernel.start_at(form, region_of(form, scan.updates(form.n_variables)), anchor.point, error)


def run_field(
    model: GaussianField,
    runner: FieldKernel,
    anchor: Anchor,
    scan: Scan,
    numbers: range,
    sequence: np.random.SeedSequence,
    record: Record,
    running: Running,
    function: str,
) -> tuple[FieldSamples, Trouble | None]:
    """The chains with these numbers; of a run that something ends before its time, the first ones, and what it was."""
    region = runner.region
    rows = record._rows(model, region, function)
    job = Job(runner, scan, master_key(sequence), rows, record._stops(len(scan), function), 1)
    if running.deadline is NO_DEADLINE:
        require_memory("Keeping these states", 16.0 * len(numbers) * len(rows) * len(job.stops), _TOO_LARGE)
    outcome = run_batches(job, numbers, sequence, running, "sampling", function)
    states = outcome.states(job)
    states = states.transpose(2, 0, 1) if record.every is not None else states[0].T
    error = np.zeros(model.n_variables)
    error[region.positions[region.updated]] = runner.error[region.updated]
    labels = model._labels_at(region.positions[rows])
    given = "given" if anchor is not space_of(model).__dict__.get("anchor") else "near the modes"
    samples = FieldSamples(
        states, None, labels, outcome.chains, scan, kept_seed(sequence), runner.name, error, False, 0, given,
        point=anchor.point,
    )  # fmt: skip
    return samples, outcome.trouble
