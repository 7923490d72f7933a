"""What a way to run steps on sets of states is, and the choice of one for a model. [trusted]

What runs hold is the set of states that a variable could have, whatever allowed state the trajectory began in.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.sets import count_settled
from dobrushin._models import Model
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.kernel import Runner, Work, streams_of
from dobrushin._scan import Scan

# States that are read together to be counted.
_AT_ONCE = 2**24


class SetRunner(Runner):
    """Sets instead of states: `read` gives -1 where a variable is not settled.

    Counts have a column more: the first is for runs in which a variable is not settled.
    """

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        some = max(1, _AT_ONCE // max(1, chains))
        for lo in range(0, len(rows), some):
            count_settled(self.read(x, rows[lo : lo + some], chains), counts[lo : lo + some])


class SetKernel(SetRunner):
    """A way to run on sets."""

    @classmethod
    @abstractmethod
    def fits(cls, form: Form) -> bool:
        """Whether it can run on this model."""

    @classmethod
    @abstractmethod
    def make(cls, form: Form, region: Region) -> SetKernel:
        """Its arrays, for a region of a form that it fits."""

    @property
    def dtype(self) -> Any:
        return np.int16

    def run_error(self, scan: Scan) -> float:
        """Bound on the probability that any draw of a run is wrong."""
        visits = scan.within(self.region.numbering).counts(self.region.size)
        return min(1.0, float(self.error @ visits) * (1 + 1e-9))

    @abstractmethod
    def begin(self, runs: int) -> NDArray[Any]:
        """Everything is possible."""

    @abstractmethod
    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        """Steps of a cycle; the first uses the random bits of `number`, and each next one those `stride` further."""

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        del master
        return self.begin(len(chains))

    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        raise NotImplementedError("sets begin with everything")

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        self.steps(x, order, place, work.steps, work.step, 1, work.keys(self.lanes))

    def keys(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint64]:
        """Keys and increments of the runs' streams."""
        return streams_of(master, chains, self.lanes)


# The first one that fits is taken.
SET_KERNELS: dict[str, type[SetKernel]] = {}


def register(kernel: type[SetKernel]) -> type[SetKernel]:
    """Make a kernel known under its name; those registered before it are asked first."""
    SET_KERNELS[kernel.name] = kernel
    return kernel


def choose_sets(model: Model, scan: Scan) -> SetKernel:
    """The fastest kernel that fits the model.

    Which one that is depends on the model alone: exact draws run ever larger regions with the same random bits, and
    every step has to be the same map each time.
    """
    form, region = model._region(scan.updates(model.n_variables))
    kernel: Any = next(kernel for kernel in SET_KERNELS.values() if kernel.fits(form)).make(form, region)
    # The conditional laws of the form may be so far from those that were meant.
    return replace(kernel, error=kernel.error + 2.0 * form.error) if form.error else kernel
