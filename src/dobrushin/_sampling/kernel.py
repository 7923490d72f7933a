"""Interface of sampling kernels, the list of kernels, and the choice of one for a model and a scan.

A kernel is the code that updates the variables of a scan, with the arrays that it needs, and a bound on the error of
its draws. It holds nothing but arrays, so that it can be sent to other processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.generator import streams
from dobrushin._kernels.labels import partial_sums
from dobrushin._models import Model
from dobrushin._models.forms import Form
from dobrushin._models.memory import Slot
from dobrushin._models.near import ScanRegion
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
    """Task for a runner: steps `lo` to `hi` of a segment, for a range of chains.

    Step `lo` uses the random numbers of step number `step`, later ones those of step + stride, step + 2 stride, ...
    """

    master: NDArray[np.uint64]
    chains: range
    segment: Segment
    lo: int
    hi: int
    step: int
    stride: int = 1  # -1 for runs from the past: the last step of a run has the number 0

    @property
    def steps(self) -> int:
        return self.hi - self.lo

    @property
    def cycle(self) -> Cycle:
        """Return the segment, which must be cyclic; raise TypeError if its steps are random."""
        if self.segment.is_random:
            raise TypeError("This kernel needs a scan of fixed order, and the steps of this scan are random.")
        return self.segment

    def keys(self, lanes: int) -> NDArray[np.uint64]:
        """Return the keys and increments of the random streams, of which each serves `lanes` chains."""
        return streams_of(self.master, self.chains, lanes)

    def order_in(self, region: ScanRegion) -> tuple[NDArray[np.int32], int]:
        """Return the variables that the steps update, by number in the region, and where in that list step `lo` is."""
        part = self.cycle.cut(self.lo, self.hi).within(region.numbering)
        return frozen(part.array().astype(np.int32)), part.first

    def choices(self) -> tuple[int, NDArray[np.uint64], int]:
        """Return the arguments with which `draw_order` draws which variables random steps update."""
        segment: Any = self.segment
        if segment.probabilities is None and segment.n < 2**32:
            return segment.n, np.empty(0, dtype=np.uint64), 0
        return segment.n, *partial_sums(frozen(segment.vector()))


def narrowed(*arrays: NDArray[Any]) -> tuple[NDArray[np.int32], ...]:
    """Return arrays as 32-bit integers, which CUDA functions take."""
    return tuple(array.astype(np.int32) for array in arrays)


def streams_of(master: NDArray[np.uint64], chains: range, lanes: int) -> NDArray[np.uint64]:
    """Return the keys and increments of the random streams of a range of chains; each stream serves `lanes` chains."""
    first, last = chains.start // lanes, (chains.stop - 1) // lanes
    count = last - first + 1
    keys: NDArray[np.uint64] = code_for(streams, 128 * count)(master[0], master[1], first, count)
    return keys


@dataclass(frozen=True)
class Batches(Sequence[range]):
    """Chains split into consecutive ranges of at most `size`; the chains of a range run together."""

    numbers: range
    size: int

    def __len__(self) -> int:
        return -(-len(self.numbers) // self.size)

    def __getitem__(self, k: Any) -> Any:
        if not 0 <= k * self.size < len(self.numbers):
            raise IndexError(k)
        return self.numbers[k * self.size : (k + 1) * self.size]


@dataclass(frozen=True)
class FixedStart:
    """The state from which a runner starts all chains, and the text that describes it in `Samples`."""

    point: NDArray[np.float64]
    words: str


# Seconds of a call besides its updates, and the cost of drawing the start of a variable, in ordinary updates. These and
# the rates, costs and steps of all runners are measured by benchmarks/rates.py.
_CALL_SECONDS, _START_UPDATES = 0.005, 0.25


class Runner(ABC):
    """Base class of objects that run chains: their methods `start`, `run`, and `read` or `count` work on states.

    A runner holds states or sets of states, on the host or on a GPU. Batches and checkpoints treat all runners alike.
    """

    name: ClassVar[str]
    rate: ClassVar[float]  # updates per second of one core, to estimate the time of a run (benchmarks/rates.py)
    lanes: ClassVar[int]  # chains that share a stream
    batch: ClassVar[int]  # largest number of chains that run together
    min_batch: ClassVar[int] = 1  # batches are not made smaller than this to give work to all cores
    batches_per_core: ClassVar[int] = 2
    workers: ClassVar[int | None] = None  # threads that run batches; None: one per core
    twin: ClassVar[Any] = None  # class of the runner on the GPU with the same draws: twin(self)
    is_one_launch: ClassVar[bool] = True  # whether the twin runs a cycle in one launch, which many runs can share
    measure: ClassVar[str] = "total variation"  # the distance in which `error` is
    counts_states: ClassVar[bool] = True  # whether states are digits, which can be counted
    fixed_start: FixedStart | None = None  # None where chains start uniformly or as the caller says
    region: ScanRegion
    error: NDArray[np.float64]  # bound on the error of one update of each variable of the region

    def errors_in(self, scan: Scan) -> NDArray[np.float64]:
        """Bound the error of an update of each updated variable, including the rounding of random scans."""
        updated = self.region.updated
        return np.minimum(self.error[updated] + choice_error(scan, self.region.positions[updated]), 1.0)

    @property
    def costs(self) -> NDArray[np.float64]:
        """Return the time of an update of each variable of the region, in units of 1 / `rate` seconds."""
        return np.ones(self.region.size)

    @property
    def step(self) -> float:
        """Return the seconds that a step takes for a batch in addition to its updates."""
        return 0.0

    @property
    def cost(self) -> float:
        """Return the time of an update averaged over the updated variables, in units of 1 / `rate` seconds."""
        updated = self.region.updated
        return float(self.costs[updated].mean()) if len(updated) else 1.0

    def is_sweep(self, segment: Segment) -> bool:
        """Return whether a segment consists of whole sweeps over all variables of the region in order."""
        size = self.region.size
        return not segment.is_random and segment.is_systematic and segment.steps >= segment.period == size

    def cost_of(self, scan: Scan) -> float:
        """Return the average time of a step of a scan, in units of 1 / `rate` seconds.

        The time for drawing the chain's initial state is included.
        """
        size = self.region.size
        if len(scan._segments) == 1 and self.is_sweep(scan._segments[0]):  # an incomplete last sweep hardly matters
            return self.cost + _START_UPDATES * size / len(scan)
        visits = scan._within(self.region.numbering).counts(size)
        return (float(self.costs @ visits) + _START_UPDATES * size) / max(1, len(scan))

    def seconds(self, updates: float, scan: Scan | None = None) -> float:
        """Estimate the seconds for a number of updates on all cores.

        The updates are steps of the scan; without a scan they are spread equally over all updated variables.
        """
        if scan is None:
            return _CALL_SECONDS + self.cost * updates / (self.rate * cores())
        # Few chains are spread over all cores, in batches of one stream.
        chains = updates / max(1, len(scan))
        batches = max(chains / self.batch, min(chains / self.lanes, float(self.batches_per_core * cores())))
        besides = batches * len(scan) * self.step
        return _CALL_SECONDS + (self.cost_of(scan) * updates / self.rate + besides) / cores()

    def steps_in(self, seconds: float, scan: Scan, chains: int) -> int:
        """Estimate how many steps of a scan a batch of chains makes in this number of seconds on one core."""
        return max(1, int(seconds / (self.step + chains * self.cost_of(scan) / self.rate)))

    def device_tables(self) -> tuple[Any, ...]:
        """Return the kernel's tables in the order and the types in which its CUDA function takes them."""
        raise NotImplementedError(f"the kernel {self.name!r} has no loop on the GPU")

    @property
    def device_loop(self) -> str:
        """Return the name of the CUDA function that runs the steps."""
        return f"update_{self.name}"

    def look(self, chains: int) -> int | None:
        """Return the number of steps between two checks of whether to stop; None for the default."""
        return None

    def batches(self, numbers: range, cores: int) -> Batches:
        """Return batches of chains that do not split random streams, enough to keep all cores busy."""
        size = self.batch
        while size > max(self.lanes, self.min_batch) and len(numbers) < self.batches_per_core * cores * size:
            size //= 2
        return Batches(numbers, size)

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """Return the type of the states that `read` returns."""

    @abstractmethod
    def start(self, master: NDArray[np.uint64], chains: range) -> Any:
        """Return the initial states of a range of chains: uniform ones or, for bounding chains, sets of all states."""

    def load(self, states: NDArray[np.int64]) -> Any:
        """Return initial states made from state numbers 0..k-1 of shape (variables, chains)."""
        raise NotImplementedError(f"The runner {self.name!r} chooses its own initial states and takes no others.")

    @abstractmethod
    def run(self, x: Any, work: Work) -> None:
        """Run some steps, which change the states `x`."""

    @abstractmethod
    def read(self, x: Any, rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        """Return the state numbers 0..k-1 of the variables `rows`, with shape (rows, chains)."""

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        """Add to counts[row, state] the number of chains in which the row's variable is in that state."""
        cells = self.read(x, rows, chains).astype(np.int64) + counts.shape[1] * np.arange(len(rows))[:, None]
        counts += np.bincount(cells.ravel(), minlength=counts.size).reshape(counts.shape)


class Kernel(Runner):
    """Base class of runners that sample from a model; `fits` and `is_worth` say when to use one."""

    is_kept: ClassVar[bool] = False  # whether a model keeps the kernel for later calls

    @classmethod
    @abstractmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        """Return whether the kernel can run this scan on this model."""

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: ScanRegion, chains: int) -> bool:
        """Return whether this kernel, if it fits, is preferred to the later ones in the list."""
        return True

    @classmethod
    @abstractmethod
    def make(cls, form: Form, region: ScanRegion) -> Kernel:
        """Make the kernel for a region of a model (in its internal form)."""


# Kernels by name, in the order in which they are asked whether they are worth it.
KERNELS: dict[str, type[Kernel]] = {}


def register(kernel: type[Kernel]) -> type[Kernel]:
    """Register a kernel under its name; kernels registered earlier take precedence."""
    KERNELS[kernel.name] = kernel
    return kernel


# The kernel that was last made for all variables of a form, by class.
WHOLE_KERNEL: Slot[Kernel] = Slot("kernel")


def choose_kernel(model: Model, scan: Scan, chains: int, name: str | None = None) -> Kernel:
    """Return the kernel with this name, or without a name the fastest one that fits the model and the scan."""
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


def fitting_kernels(form: Form, region: ScanRegion, scan: Scan) -> list[type[Kernel]]:
    """Return the kernels that can run this scan on this model."""
    return [kernel for kernel in KERNELS.values() if kernel.fits(form, scan, region)]


def update_error(n: int, scan: Scan, runner: Runner) -> NDArray[np.float64]:
    """Bound the total variation error of an update of each of the model's `n` variables; 0 for those never updated."""
    region = runner.region
    if len(region.updated) == n and not scan.is_random:
        return runner.error
    error = np.zeros(n)
    error[region.positions[region.updated]] = runner.errors_in(scan)
    return error


def choice_error(scan: Scan, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Bound the part of an update's error that comes from rounding the probabilities of a random scan.

    Rounding changes the probability q of choosing a variable by at most 2^-62. The certificate multiplies the error of
    an update by q, so this part of the error is at most 2^-62 / q.
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
