"""All ways to run sets of states, and the choice of one for a model. [trusted]"""

from __future__ import annotations

from dobrushin._coalescence.set_bits import SetBits
from dobrushin._coalescence.set_field import SetField
from dobrushin._coalescence.set_kernel import SetKernel
from dobrushin._coalescence.set_race import SetRace
from dobrushin._models import Model
from dobrushin._scan import Scan

# The first one that fits is taken.
SET_KERNELS: dict[str, type[SetKernel]] = {kernel.name: kernel for kernel in (SetBits, SetField, SetRace)}


def choose_sets(model: Model, scan: Scan) -> SetKernel:
    """The fastest kernel that fits the model.

    Which one that is depends on the model alone: exact draws run ever larger regions with the same random bits, and
    every step has to be the same map each time.
    """
    form, region = model._region(scan.updates(model.n_variables))
    return next(kernel for kernel in SET_KERNELS.values() if kernel.fits(form)).make(form, region)
