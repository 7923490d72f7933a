"""Chains of spins with very many neighbours, by products of matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._kernels import spins as loops
from dobrushin._models.forms import Form
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import Region
from dobrushin._sampling.array_kernel import ArrayKernel, Orders, Steps
from dobrushin._sampling.kernel import UNIT, Runner, Work
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen

# Entries of the largest matrix: 128 MB.
LARGEST_MATRIX = 2**24
# Neighbours on average, and the least share of the variables between the first and the last of them, to be worth it.
MANY_NEIGHBORS, FULL = 64, 0.4
# Making the matrix costs about as much as so many steps for each of its rows.
SHORT = 16
# Steps whose local fields come from one product.
BLOCK = 64
# Fewer chains are run one after the other.
FEW_CHAINS = 8


@dataclass(frozen=True)
class Dense(ArrayKernel):
    """Chains of an Ising model with many neighbours; couplings are rounded so that the sums are exact."""

    region: Region
    columns: NDArray[np.float64]  # [j, i]: the coupling to j in the local field of i
    fields: NDArray[np.float64]
    reach: NDArray[np.int64]  # (variables, 2): the first neighbour, and the one after the last
    error: NDArray[np.float64]
    orders: Orders = field(default_factory=dict, compare=False)
    has_twin: ClassVar[bool] = True
    name: ClassVar[str] = "dense"
    rate: ClassVar[float] = 4e8
    batch: ClassVar[int] = 256
    by_levels: ClassVar[bool] = False

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan
        return isinstance(form, SpinPairs) and region.size**2 <= LARGEST_MATRIX

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        del form
        entries = len(region.neighbor)
        if entries < MANY_NEIGHBORS * len(region.updated) or len(scan) * chains < SHORT * region.size:
            return False
        reach = _reach(region)
        return entries >= FULL * int((reach[:, 1] - reach[:, 0]).sum())

    @classmethod
    def make(cls, form: Any, region: Region) -> Dense:
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

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.labels import DeviceDense

        return DeviceDense(self)

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys, spins = work.keys(1), 2.0 * x[:-1] - 1.0
        is_random = work.segment.is_random
        if is_random or (len(work.chains) < FEW_CHAINS and work.steps >= self.region.size):
            for c, lists in enumerate(self.steps_of_chains(work, keys)):
                state = spins[:, c].copy()
                local = self.fields + state @ self.columns
                for steps in lists:
                    loops.dense_chain(*steps, self.reach, self.columns, keys[0, c], keys[1, c], local, state)
                spins[:, c] = state
        else:
            for steps in self.steps_of_cycle(work):
                self._run_blocks(steps, keys, spins)
        x[:-1] = spins > 0

    def _run_blocks(self, steps: Steps, keys: NDArray[np.uint64], spins: NDArray[np.float64]) -> None:
        """Take all chains through the steps, a block at a time."""
        local = np.empty((BLOCK, keys.shape[1]))
        for sweep in range(steps.repeats):
            first = steps.base + sweep * steps.period
            for k in range(0, len(steps.order), BLOCK):
                block = steps.order[k : k + BLOCK]
                lo, hi = int(self.reach[block, 0].min()), int(self.reach[block, 1].max())
                h = local[: len(block)]
                np.matmul(self._couplings(block, lo, hi), spins[lo:hi], out=h)
                h += self.fields[block, None]
                loops.dense_block(block, first + k, self.columns, keys, h, spins)

    def _couplings(self, block: NDArray[np.int32], lo: int, hi: int) -> NDArray[np.float64]:
        """The couplings of a block of variables to those from lo to hi; without a copy where they are consecutive."""
        begin, end = int(block[0]), int(block[-1]) + 1
        if end - begin == len(block) and (np.diff(block) == 1).all():
            return self.columns[lo:hi, begin:end].T
        return self.columns[lo:hi, block].T


def grid_of(total: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each variable a power of 2, multiples of which add up without rounding as long as they stay within `total`.

    With 2^e above the total the power is 2^(e - 52): sums of multiples that are below 2^(e + 1) are exact, which leaves
    room for what rounding to multiples adds.
    """
    return np.ldexp(1.0, np.maximum(np.frexp(total)[1], -900) - 52)


def _reach(region: Region) -> NDArray[np.int64]:
    """The first neighbour of each variable, and the one after the last; nothing for those without neighbours."""
    reach = np.zeros((region.size, 2), dtype=np.int64)
    some = np.flatnonzero(np.diff(region.start) > 0)
    if len(some):
        reach[some, 0] = np.minimum.reduceat(region.neighbor, region.start[some])
        reach[some, 1] = np.maximum.reduceat(region.neighbor, region.start[some]) + 1
    return frozen(reach)
