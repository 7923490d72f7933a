"""Sets of spins, 64 runs in one number, for few neighbours. [trusted]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.set_kernel import SetKernel
from dobrushin._coalescence.spin_pairs import has_spin_pairs, spin_pairs
from dobrushin._kernels import bits
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.bits import MOST_NEIGHBORS, bit_thresholds, tabulate
from dobrushin._sampling.kernel import Runner
from dobrushin._shared.arrays import frozen


@dataclass(frozen=True)
class SetBits(SetKernel):
    """64 runs in one number of 64 bits, for binary variables that follow or oppose each of at most 6 neighbours."""

    region: Region
    neighbor: NDArray[np.int64]  # rows of the configuration with the smallest chance of 1, then with the largest
    threshold: NDArray[np.uint64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set bits"
    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 4096
    rate: ClassVar[float] = 1.2e9
    has_twin: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form) -> bool:
        degree = int(np.diff(form.adjacency[0]).max(initial=0))
        return degree <= MOST_NEIGHBORS and has_spin_pairs(form)

    @classmethod
    def make(cls, form: Form, region: Region) -> SetBits:
        neighbor, probability, error = tabulate(form, region)
        size = region.size
        follows = np.ones(neighbor.shape, dtype=np.bool_)
        follows[region.row, region.slot] = spin_pairs(form).couplings.data[region.entry] >= 0
        absent = neighbor == size
        low, high = np.where(absent, 2 * size, neighbor), np.where(absent, 2 * size, size + neighbor)
        rows = np.concatenate([np.where(follows, low, high), np.where(follows, high, low)], axis=1)
        # Both ends of the set are drawn.
        error = np.minimum(2.0 * (error + 2.0**-52), 1.0)
        return cls(region, frozen(rows), frozen(bit_thresholds(probability)), frozen(error))

    @property
    def costs(self) -> NDArray[np.float64]:
        return np.full(self.region.size, 12.0 if self.neighbor.shape[1] > 8 else 1.0)

    @property
    def step(self) -> float:
        return 4e-6 if self.neighbor.shape[1] > 8 else 4e-7

    def twin(self) -> Runner:
        from dobrushin._coalescence.device_set_bits import DeviceSetBits

        return DeviceSetBits(self)

    def begin(self, runs: int) -> NDArray[np.uint64]:
        size = self.region.size
        x = np.zeros((2 * size + 1, -(-runs // 64)), dtype=np.uint64)
        x[size : 2 * size] = ~np.uint64(0)
        return x

    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        wide = self.neighbor.shape[1] > 8
        bits.set_bits(order, place, steps, number, stride, self.neighbor, self.threshold, wide, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int16)
        bits.settled_bits(x, self.region.size, rows, out)
        return out
