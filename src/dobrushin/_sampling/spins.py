"""Kernels for Ising models with any number of neighbours: by local fields, or by matrix products."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._kernels import spins as loops
from dobrushin._kernels.waves import ising_waves
from dobrushin._models.forms import Form
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import ScanRegion
from dobrushin._sampling.array_kernel import (
    DIAGONAL_SWEEPS,
    FEW_CHAINS,
    ArrayKernel,
    StepList,
    WaveKernel,
    find_diagonals,
)
from dobrushin._sampling.cuda.device_kernel import DeviceDense, DeviceLabels
from dobrushin._sampling.kernel import Work, narrowed
from dobrushin._scan import Cycle, Scan
from dobrushin._shared.arrays import UNIT, frozen, in_cache

# All measured by benchmarks/kernels.py.
# Entries of the largest matrix of couplings: 128 MB.
MAX_MATRIX_ENTRIES = 2**24
# A matrix of couplings pays from this mean number of neighbours on, if at least this share of the variables between the
# first and the last neighbour are neighbours.
MANY_NEIGHBORS, MIN_SHARE = 64, 0.4
# Steps that take as long as making one row of the matrix.
STEPS_PER_ROW = 16
# Steps whose local fields come from one product of matrices.
BLOCK_STEPS = 64


@dataclass(frozen=True)
class LocalFieldKernel(WaveKernel):
    """Kernel for Ising models that keeps each spin's local field: many chains at once, or waves of commuting steps."""

    region: ScanRegion
    weights: NDArray[np.float64]  # couplings
    fields: NDArray[np.float64]
    error: NDArray[np.float64]
    orders: dict[tuple[str, Cycle | None], Any] = field(default_factory=dict, compare=False)
    twin: ClassVar[Any] = DeviceLabels
    name: ClassVar[str] = "field"
    rate: ClassVar[float] = 7e8
    batch: ClassVar[int] = 128
    is_kept: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        return isinstance(form, SpinPairs)

    @classmethod
    def make(cls, form: Any, region: ScanRegion) -> LocalFieldKernel:
        theta = form.couplings.data[region.entry]
        fields = form.fields if len(region.place) == form.n_variables else form.fields[region.place]
        error = np.empty(len(fields))
        largest = 0.0
        for few in in_cache(len(theta)):
            largest = max(largest, theta[few].max(), -theta[few].min())
        for few in in_cache(len(fields)):
            # UNIT ((degree + 2) (|field| + degree max |theta|) + 64): the exponential is good to 2^-48.
            degree = np.diff(region.start[few.start : few.stop + 1])
            bound = degree * largest
            bound += np.abs(fields[few])
            bound *= degree + 2
            bound += 64.0
            bound *= UNIT
            np.minimum(bound, 1.0, out=error[few])
        return cls(region, frozen(theta), frozen(fields), frozen(error))

    @property
    def cost(self) -> float:
        return (1.5 + 0.12 * len(self.region.neighbor) / max(1, len(self.region.updated))) / 2.5

    @property
    def costs(self) -> NDArray[np.float64]:
        return (1.5 + 0.12 * np.diff(self.region.start)) / 2.5

    @property
    def step(self) -> float:
        # Chains side by side share the time of memory accesses; a single chain waits for them.
        updates = max(1, len(self.region.updated))
        return 2e-9 + 0.33e-9 * len(self.region.neighbor) / updates

    def device_tables(self) -> tuple[Any, ...]:
        return *narrowed(self.region.start, self.region.neighbor), self.weights, self.fields

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        shared = (self.region.start, self.region.neighbor, self.weights, self.fields)
        if x.shape[1] > 1:
            spins = 2 * x[:-1] - 1
            loops.ising_lanes(*steps, *shared, keys, spins)
            x[:-1] = spins > 0
        elif not self.run_by_diagonals(work, steps, keys, x[:-1, 0]):
            chain = 2.0 * x[:-1, 0] - 1.0
            if not self.run_in_waves(ising_waves, self.fields, work, steps, keys, chain):
                loops.ising_steps(*steps, *shared, _brackets(), *keys[:, 0], chain)
            x[:-1, 0] = chain > 0

    def run_by_diagonals(self, work: Work, steps: StepList, keys: NDArray[np.uint64], states: NDArray[np.int8]) -> bool:
        """Run whole sweeps of a grid by diagonals; return False, with nothing done, if diagonals do not pay."""
        if not steps.period or not self.is_sweep(work.segment):
            return False
        is_worth, shared = steps.repeats >= DIAGONAL_SWEEPS, (self.region, self.weights, self.fields)
        diagonals = self.order_of("diagonals", work.cycle, is_worth, lambda: find_diagonals(*shared))
        if diagonals is not None:
            diagonals.sweep(steps, keys, states)
        return diagonals is not None


@cache
def _brackets() -> NDArray[np.float64]:
    return frozen(loops.brackets())


@dataclass(frozen=True)
class DenseKernel(ArrayKernel):
    """Kernel for Ising models with many neighbours, by matrix products.

    Couplings are rounded to multiples of powers of 2, so that sums of them are exact.
    """

    region: ScanRegion
    columns: NDArray[np.float64]  # [j, i]: the coupling to j in the local field of i
    fields: NDArray[np.float64]
    reach: NDArray[np.int64]  # (variables, 2): first neighbour, last neighbour + 1
    error: NDArray[np.float64]
    is_one_launch: ClassVar[bool] = False
    twin: ClassVar[Any] = DeviceDense
    name: ClassVar[str] = "dense"
    rate: ClassVar[float] = 5e8
    batch: ClassVar[int] = 256
    few_chains: ClassVar[float] = FEW_CHAINS

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        return isinstance(form, SpinPairs) and region.size**2 <= MAX_MATRIX_ENTRIES

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: ScanRegion, chains: int) -> bool:
        entries = len(region.neighbor)
        if entries < MANY_NEIGHBORS * len(region.updated) or len(scan) * chains < STEPS_PER_ROW * region.size:
            return False
        reach = _reach(region)
        return entries >= MIN_SHARE * int((reach[:, 1] - reach[:, 0]).sum())

    @classmethod
    def make(cls, form: Any, region: ScanRegion) -> DenseKernel:
        theta, fields = form.couplings.data[region.entry], form.fields[region.place]
        total, degree = np.abs(fields), np.diff(region.start)
        some = np.flatnonzero(degree)
        total[some] += np.add.reduceat(np.abs(theta), region.start[some]) if len(some) else 0.0
        grid = grid_of(total)
        of_entry = np.repeat(grid, degree)
        rounded = np.rint(theta / of_entry) * of_entry
        rows = sparse.csr_array((rounded, region.neighbor, region.start), shape=(region.size, region.size)).toarray()
        error = UNIT * ((degree + 2) * total + 64.0)
        own = frozen(np.rint(fields / grid) * grid)
        return cls(region, frozen(rows.T), own, _reach(region), frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        return (4.0 + 0.06 * np.diff(self.region.start)) / 2.5

    @property
    def step(self) -> float:
        updates = max(1, len(self.region.updated))
        return 1e-8 + 0.3e-9 * len(self.region.neighbor) / updates

    def device_tables(self) -> tuple[Any, ...]:
        columns = np.ascontiguousarray(self.columns)
        return columns, self.fields, self.reach.astype(np.int32), np.int32(len(columns))

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        spins = 2.0 * x[:-1] - 1.0
        if x.shape[1] > 1:
            self._run_blocks(steps, keys, spins)
        else:
            local = self.fields + spins[:, 0] @ self.columns
            loops.dense_chain(*steps, self.reach, self.columns, *keys[:, 0], local, spins[:, 0])
        x[:-1] = spins > 0

    def _run_blocks(self, steps: StepList, keys: NDArray[np.uint64], spins: NDArray[np.float64]) -> None:
        """Run steps for all chains in blocks of `BLOCK_STEPS`, with one matrix product for each block."""
        local = np.empty((BLOCK_STEPS, keys.shape[1]))
        for sweep in range(steps.repeats):
            first = steps.base + sweep * steps.period
            for k in range(0, len(steps.order), BLOCK_STEPS):
                block = steps.order[k : k + BLOCK_STEPS]
                lo, hi = int(self.reach[block, 0].min()), int(self.reach[block, 1].max())
                h = local[: len(block)]
                np.matmul(self._couplings(block, lo, hi), spins[lo:hi], out=h)
                h += self.fields[block, None]
                loops.dense_block(block, first + k, self.columns, keys, h, spins)

    def _couplings(self, block: NDArray[np.int32], lo: int, hi: int) -> NDArray[np.float64]:
        """Return the couplings between a block of variables and variables lo to hi, if possible without copying."""
        begin, end = int(block[0]), int(block[-1]) + 1
        if end - begin == len(block) and (np.diff(block) == 1).all():
            return self.columns[lo:hi, begin:end].T
        return self.columns[lo:hi, block].T


def grid_of(total: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for each variable, a power of 2 whose multiples add up exactly to sums as large as `total`.

    The power is 2^(e - 52) for the least 2^e above `total`. Sums of multiples are exact below 2^(e + 1), which leaves
    room for the error of rounding the terms to multiples.
    """
    return np.ldexp(1.0, np.maximum(np.frexp(total)[1], -900) - 52)


def _reach(region: ScanRegion) -> NDArray[np.int64]:
    """Return, for each variable, its first neighbour and its last neighbour + 1; zeros without neighbours."""
    reach = np.zeros((region.size, 2), dtype=np.int64)
    some = np.flatnonzero(np.diff(region.start) > 0)
    if len(some):
        reach[some, 0] = np.minimum.reduceat(region.neighbor, region.start[some])
        reach[some, 1] = np.maximum.reduceat(region.neighbor, region.start[some]) + 1
    return frozen(reach)
