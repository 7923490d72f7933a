"""What `sample` asks of fields: chains from one point, with how far their draws are off."""

from __future__ import annotations

from typing import Any

import numpy as np

from dobrushin._fields.anchor import Anchor, FieldSpace, read_start, space_of, uncertified_start
from dobrushin._fields.kernel import FieldKernel
from dobrushin._fields.model import GaussianField
from dobrushin._models.near import region_of
from dobrushin._sampling.batches import Job, run_batches
from dobrushin._sampling.sampler import FINAL, Record
from dobrushin._sampling.samples import Samples
from dobrushin._scan import Scan
from dobrushin._shared.deadline import NO_DEADLINE
from dobrushin._shared.executors import Trouble
from dobrushin._shared.families import version_of
from dobrushin._shared.memory import require_memory
from dobrushin._shared.running import PLAIN, Running, kept_seed, master_key
from dobrushin.errors import ArgumentError, CertificateError

_TOO_LARGE = "Keep fewer variables (record=), or draw in several calls."


@version_of("make_runner", GaussianField)
def make_field_runner(model: GaussianField, scan: Scan, chains: int, kernel: str | None, initial: Any) -> FieldKernel:
    """`make_runner` of a field: `initial` is a point of the box, the same for all chains."""
    del chains
    if kernel not in (None, FieldKernel.name):
        raise ArgumentError("kernel", f"None or {FieldKernel.name!r} for a field", kernel)
    return make_kernel(space_of(model), _start(model, initial), scan)


def _start(model: GaussianField, initial: Any) -> Anchor:
    """Where chains begin; without a certificate they can be run all the same."""
    try:
        return read_start(model, initial)
    except CertificateError:
        return uncertified_start(model, initial)


def make_kernel(space: FieldSpace, anchor: Anchor, scan: Scan) -> FieldKernel:
    """The kernel of a scan, for chains that start at the anchor."""
    form = space.form
    certified = bool(np.isfinite(anchor.unit).all())
    error = space.errors(anchor).distance if certified else np.full(form.n_variables, np.inf)
    return FieldKernel.start_at(form, region_of(form, scan.updates(form.n_variables)), anchor.point, error)


@version_of("run_chains", GaussianField)
def run_field_chains(
    model: GaussianField,
    kernel: FieldKernel,
    scan: Scan,
    numbers: range,
    sequence: np.random.SeedSequence,
    *,
    start: Any = "uniform",
    record: Record = FINAL,
    running: Running = PLAIN,
) -> tuple[Samples, Trouble | None]:
    """`run_chains` of a field."""
    if record.counts:
        raise ArgumentError("record", "states: those of a field are not counted", got="counts")
    if running.backend == "cuda":
        raise ArgumentError("backend", "'cpu' for a field", running.backend)
    region, anchor = kernel.region, _start(model, start)
    rows = record._rows(model, region)
    job = Job(kernel, scan, master_key(sequence), rows, record._stops(len(scan)), 1)
    if running.deadline is NO_DEADLINE:
        require_memory("Keeping these states", 16.0 * len(numbers) * len(rows) * len(job.stops), _TOO_LARGE)
    outcome = run_batches(job, numbers, sequence, running, "sampling")
    states = outcome.states(job)
    states = states.transpose(2, 0, 1) if record.every is not None else states[0].T
    error = np.zeros(model.n_variables)
    error[region.positions[region.updated]] = kernel.error[region.updated]
    labels = model._labels_at(region.positions[rows])
    given = "given" if anchor is not space_of(model).__dict__.get("anchor") else "near the modes"
    samples = Samples(
        states, None, labels, outcome.chains, scan, kept_seed(sequence), kernel.name, error, False, 0, given,
        point=anchor.point,
    )  # fmt: skip
    return samples, outcome.trouble
