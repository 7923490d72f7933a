"""The protocol of kernels, their list, and the choice of one for a model and a scan.

A kernel updates the variables of a scan. It holds only arrays, so it can be sent to other processes, and it bounds the
error of its draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.generator import streams
from dobrushin._models import Model
from dobrushin._models.forms import Form
from dobrushin._models.memory import Slot
from dobrushin._models.near import Region
from dobrushin._models.spins import TABLE_ORDER
from dobrushin._scan import Cycle, Scan, Segment
from dobrushin._shared.arrays import frozen
from dobrushin._shared.compile import code_for
from dobrushin._shared.executors import cores
from dobrushin.errors import ArgumentError

# Bytes of an array that stays in the cache of a core: kernels read larger arrays more slowly.
CACHE_BYTES = 2**22


@dataclass(frozen=True)
class Work:
    """Steps lo to hi of a segment, for some chains; the first one is number `step` of the scan."""

    master: NDArray[np.uint64]
    chains: range
    segment: Segment
    lo: int
    hi: int
    step: int

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.hi - self.lo

    @property
    def cycle(self) -> Cycle:
        """The segment, for kernels that take fixed orders only."""
        if self.segment.is_random:
            raise TypeError("random steps have no cycle")
        return self.segment

    def keys(self, lanes: int) -> NDArray[np.uint64]:
        """Return keys and increments of the chains' streams."""
        return streams_of(self.master, self.chains, lanes)

    def order_in(self, region: Region) -> tuple[NDArray[np.int32], int]:
        """Return the part of the cycle that is used, in own numbers, and the place of the first step."""
        part = self.cycle.cut(self.lo, self.hi).within(region.numbering)
        return frozen(part.array().astype(np.int32)), part.first


def streams_of(master: NDArray[np.uint64], chains: range, lanes: int) -> NDArray[np.uint64]:
    """Return keys and increments of the streams of some chains."""
    first, last = chains.start // lanes, (chains.stop - 1) // lanes
    count = last - first + 1
    keys: NDArray[np.uint64] = code_for(streams, 128 * count)(master[0], master[1], first, count)
    return keys


@dataclass(frozen=True)
class Batches:
    """Ranges of chains that are run together, in order; each is made on demand."""

    numbers: range
    size: int

    def __len__(self) -> int:
        return -(-len(self.numbers) // self.size)

    def __getitem__(self, k: int) -> range:
        lo = self.numbers.start + k * self.size
        return range(lo, min(lo + self.size, self.numbers.stop))

    def __iter__(self) -> Iterator[range]:
        return (self[k] for k in range(len(self)))


@dataclass(frozen=True)
class FixedStart:
    """The one state of the whole model in which a runner lets all chains start, and how samples call it."""

    point: NDArray[np.float64]
    words: str


# Seconds that a call takes besides its updates; and the cost of starting a variable, in ordinary updates.
_CALL_SECONDS, _START_UPDATES = 0.005, 0.25


class Runner(ABC):
    """Object that takes the states of chains through steps: `start`, `run`, and `read` or `count`.

    It runs states or sets of states, on the host or on a device. Batches and checkpoints treat all runners alike.
    """

    name: ClassVar[str]
    rate: ClassVar[float]  # updates per second and core of an ordinary machine, to tell how long a run will take
    lanes: ClassVar[int]  # chains that share a stream
    batch: ClassVar[int]  # chains that are run together at most
    workers: ClassVar[int | None] = None  # threads to run batches in, if not one per core
    has_twin: ClassVar[bool] = False  # whether there is a runner on the GPU that makes the same draws
    is_one_launch: ClassVar[bool] = (
        True  # whether steps of a cycle are one launch there: then those of many runs can be
    )
    measure: ClassVar[str] = "total variation"  # the distance in which `error` is
    counts_states: ClassVar[bool] = True  # whether states are digits, which can be counted
    fixed_start: FixedStart | None = None  # None where chains start uniformly or as the caller says
    region: Region
    error: NDArray[np.float64]  # bound on the error of one update, by own number

    def errors_in(self, scan: Scan) -> NDArray[np.float64]:
        """Bound the error of an update of each updated variable, with that of a random choice of variables."""
        updated = self.region.updated
        return np.minimum(self.error[updated] + choice_error(scan, self.region.positions[updated]), 1.0)

    @property
    def costs(self) -> NDArray[np.float64]:
        """Time of an update relative to `rate`, by own number of its variable."""
        return np.ones(self.region.size)

    @property
    def step(self) -> float:
        """Seconds that a step of a batch takes besides its updates."""
        return 0.0

    @property
    def cost(self) -> float:
        """Time of an update relative to `rate`, on average over the updated variables."""
        updated = self.region.updated
        return float(self.costs[updated].mean()) if len(updated) else 1.0

    def is_sweep(self, segment: Segment) -> bool:
        """Return whether a segment updates all variables of the region in order, at least once."""
        size = self.region.size
        return not segment.is_random and segment.is_systematic and segment.steps >= segment.period == size

    def cost_of(self, scan: Scan) -> float:
        """Return the average time of a step of a scan relative to `rate`, with the cost of starting a chain."""
        size = self.region.size
        if len(scan._segments) == 1 and self.is_sweep(scan._segments[0]):  # a part of a sweep hardly matters
            return self.cost + _START_UPDATES * size / len(scan)
        visits = scan._within(self.region.numbering).counts(size)
        return (float(self.costs @ visits) + _START_UPDATES * size) / max(1, len(scan))

    def seconds(self, updates: float, scan: Scan | None = None) -> float:
        """Estimate the time of some updates on all cores: those of a scan, or of all updated variables alike."""
        if scan is None:
            return _CALL_SECONDS + self.cost * updates / (self.rate * cores())
        # Few chains are spread over all cores, in batches of one stream.
        chains = updates / max(1, len(scan))
        batches = max(chains / self.batch, min(chains / self.lanes, 2.0 * cores()))
        besides = batches * len(scan) * self.step
        return _CALL_SECONDS + (self.cost_of(scan) * updates / self.rate + besides) / cores()

    def steps_in(self, seconds: float, scan: Scan, chains: int) -> int:
        """Estimate how many steps of a scan some chains make together in a time, in seconds, on one core."""
        return max(1, int(seconds / (self.step + chains * self.cost_of(scan) / self.rate)))

    def twin(self) -> Runner:
        """Return the runner on the GPU that makes the same draws."""
        raise NotImplementedError(f"{self.name} has no twin")

    def device_tables(self) -> tuple[Any, ...]:
        """Return what the loop on the GPU takes between the steps and the states: arrays and numbers of its types."""
        raise NotImplementedError(f"{self.name} has no twin")

    @property
    def device_loop(self) -> str:
        """Name of the loop on the GPU."""
        return f"update_{self.name}"

    def look(self, chains: int) -> int | None:
        """Return the steps of some chains between looks at whether to stop; None for the usual number."""
        return None

    def batches(self, numbers: range, cores: int) -> Batches:
        """Return batches of chains: whole streams, and enough batches for all cores."""
        size = self.batch
        while size > self.lanes and len(numbers) < 2 * cores * size:
            size //= 2
        return Batches(numbers, size)

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """Type of the states that `read` returns."""

    @abstractmethod
    def start(self, master: NDArray[np.uint64], chains: range) -> Any:
        """Return initial states: uniform, or sets of all states."""

    @abstractmethod
    def load(self, states: NDArray[np.int64]) -> Any:
        """Return initial states from digits 0..k-1 of shape (variables, chains)."""

    @abstractmethod
    def run(self, x: Any, work: Work) -> None:
        """Take the states through some steps."""

    @abstractmethod
    def read(self, x: Any, rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        """Return digits 0..k-1 of some variables, of shape (rows, chains)."""

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        """Add to counts[row, state] the chains in that state."""
        cells = self.read(x, rows, chains).astype(np.int64) + counts.shape[1] * np.arange(len(rows))[:, None]
        counts += np.bincount(cells.ravel(), minlength=counts.size).reshape(counts.shape)


class Kernel(Runner):
    """Updates of single states by a model: the runs that they fit, when they are worth it, and how they are made."""

    is_kept: ClassVar[bool] = False  # whether a model keeps it for later calls

    @classmethod
    @abstractmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        """Return whether the kernel can run this scan."""

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        """Return whether `sample` takes the kernel by itself, if it fits and no earlier one in the list is worth it."""
        return True

    @classmethod
    @abstractmethod
    def make(cls, form: Form, region: Region) -> Kernel:
        """Return the kernel with its arrays, for a region of a form that it fits."""


# Kernels in the order in which they are asked whether they are worth it.
KERNELS: dict[str, type[Kernel]] = {}


def register(kernel: type[Kernel]) -> type[Kernel]:
    """Register a kernel under its name; kernels registered before it are asked first."""
    KERNELS[kernel.name] = kernel
    return kernel


# The kernel that was last made for all variables of a form, by its class.
WHOLE_KERNEL: Slot[Kernel] = Slot("kernel")


def choose_kernel(model: Model, scan: Scan, chains: int, name: str | None = None) -> Kernel:
    """Return the kernel with this name or, without one, the fastest that fits; with its arrays."""
    form, region = model._region(scan._updates(model.n_variables))
    if not form.has_tables:
        raise ArgumentError("model", f"without terms of more than {TABLE_ORDER} variables", model)
    if name is None:
        kernel = next(
            k for k in KERNELS.values() if k.is_worth(form, scan, region, chains) and k.fits(form, scan, region)
        )
    elif not (kernel := KERNELS[name]).fits(form, scan, region):
        fitting = ", ".join(repr(kernel.name) for kernel in fitting_kernels(form, region, scan))
        raise ArgumentError("kernel", f"one of {fitting} for this model and scan", name)
    if kernel.is_kept and model._is_whole and len(region.updated) == model.n_variables:
        return form.memory.get(WHOLE_KERNEL, lambda: kernel.make(form, region), kernel)
    return kernel.make(form, region)


def fitting_kernels(form: Form, region: Region, scan: Scan) -> list[type[Kernel]]:
    """Return the kernels that can run this scan on this model."""
    return [kernel for kernel in KERNELS.values() if kernel.fits(form, scan, region)]


def update_error(n: int, scan: Scan, runner: Runner) -> NDArray[np.float64]:
    """Bound the error of an update of each variable of a model of `n`; 0 for variables that are not updated."""
    region = runner.region
    if len(region.updated) == n and not scan.is_random:
        return runner.error
    error = np.zeros(n)
    error[region.positions[region.updated]] = runner.errors_in(scan)
    return error


def choice_error(scan: Scan, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Bound the error of an update that comes from rounding the choices of a random scan.

    A variable is chosen with a probability that is off by at most 2^-62. The certificate weighs the error of an update
    with the probability q of its variable, so the error has to be 2^-62 / q.
    """
    error = np.zeros(len(positions))
    for segment in scan._segments:
        if segment.is_random:
            q = np.zeros(max(segment.n, int(positions[-1]) + 1))
            q[: segment.n] = segment.vector()
            here = q[positions]
            error = np.maximum(error, np.divide(2.0**-62, here, out=np.zeros_like(here), where=here > 2.0**-62))
            error[(here > 0) & (here <= 2.0**-62)] = 1.0
    return error
