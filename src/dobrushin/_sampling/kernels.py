"""All ways to draw, and the choice of one for a model, a scan and a number of chains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import Model
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._models.spins import TABLE_ORDER
from dobrushin._sampling.bits import Bits
from dobrushin._sampling.factors import Factors
from dobrushin._sampling.field import Field
from dobrushin._sampling.kernel import Kernel, Runner
from dobrushin._sampling.potts import PottsLanes
from dobrushin._sampling.table import Table
from dobrushin._scan import Scan
from dobrushin.errors import ArgumentError

# In the order in which they are asked whether they are worth it.
KERNELS: dict[str, type[Kernel]] = {}


def register(kernel: type[Kernel]) -> type[Kernel]:
    """Make a kernel known under its name; those registered before it are asked first."""
    KERNELS[kernel.name] = kernel
    return kernel


for _kernel in (Bits, Table, Field, PottsLanes, Factors):
    register(_kernel)


def choose_kernel(model: Model, scan: Scan, chains: int, name: str | None = None, function: str = "sample") -> Kernel:
    """The kernel with this name or, without one, the fastest that fits; with its arrays."""
    form, region = model._region(scan.updates(model.n_variables))
    if not form.has_tables:
        raise ArgumentError(function, "model", f"without terms of more than {TABLE_ORDER} variables", model)
    if name is None:
        kernel = next(
            k for k in KERNELS.values() if k.fits(form, scan, region) and k.is_worth(form, scan, region, chains)
        )
        return kernel.make(form, region)
    if not KERNELS[name].fits(form, scan, region):
        fitting = ", ".join(repr(kernel.name) for kernel in fitting_kernels(form, region, scan))
        raise ArgumentError(function, "kernel", f"one of {fitting} for this model and scan", name)
    return KERNELS[name].make(form, region)


def fitting_kernels(form: Form, region: Region, scan: Scan) -> list[type[Kernel]]:
    """The kernels that can run this scan on this model."""
    return [kernel for kernel in KERNELS.values() if kernel.fits(form, scan, region)]


def update_error(n: int, scan: Scan, runner: Runner) -> NDArray[np.float64]:
    """For each variable of a model of `n`, a bound on the error of one of its updates; 0 for those without any."""
    region = runner.region
    error = np.zeros(n)
    updated = region.positions[region.updated]
    error[updated] = np.minimum(runner.error[region.updated] + choice_error(scan, updated), 1.0)
    return error


def choice_error(scan: Scan, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the rounding of a random scan's choices adds to the error of an update.

    A variable is chosen with a probability that is off by at most 2^-62. The certificate weighs the error of an update
    with the probability q of its variable, so the error has to be 2^-62 / q.
    """
    error = np.zeros(len(positions))
    for segment in scan.segments:
        if segment.is_random:
            q = np.zeros(max(segment.n, int(positions[-1]) + 1))
            q[: segment.n] = segment.vector()
            here = q[positions]
            error = np.maximum(error, np.divide(2.0**-62, here, out=np.zeros_like(here), where=here > 2.0**-62))
            error[(here > 0) & (here <= 2.0**-62)] = 1.0
    return error
