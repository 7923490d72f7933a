"""Sets of labels of Potts models: the race, with many runs side by side. [trusted]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.set_kernel import SetKernel
from dobrushin._kernels import sets
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._models.potts import LabelPairs
from dobrushin._sampling.kernel import UNIT, Runner
from dobrushin._sampling.potts import SAFE_EXPONENT
from dobrushin._shared.arrays import frozen

# States are kept in 16 bits, and -1 stands for none.
_MOST_STATES = 2**15 - 1


@dataclass(frozen=True)
class SetLabels(SetKernel):
    """Potts models: labels race, by products of exponentials that are made beforehand."""

    region: Region
    delay: NDArray[np.float64]  # exp(-coupling) of each neighbour
    unary: NDArray[np.float64]  # exp(largest unary - unary), inf where a label is forbidden
    error: NDArray[np.float64]
    has_twin: ClassVar[bool] = True
    name: ClassVar[str] = "set labels"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    rate: ClassVar[float] = 1e7

    @classmethod
    def fits(cls, form: Form) -> bool:
        return isinstance(form, LabelPairs) and form.states <= _MOST_STATES and form.largest_exponent < SAFE_EXPONENT

    @classmethod
    def make(cls, form: Any, region: Region) -> SetLabels:
        theta, unary = form.couplings.data[region.entry], form.unaries[region.place]
        k, degree = unary.shape[1], np.diff(region.start)
        size = np.bincount(region.row, weights=np.abs(theta), minlength=region.size)
        size = size + np.abs(np.where(unary > -np.inf, unary, 0.0)).max(axis=1)
        # A set is wrong only if a difference of two logarithms of times, whose density is at most 1/4, is nearer to its
        # limit than all roundings together; for each of k (k - 1) ordered pairs. The last term is for the grid.
        near = 2.0 * UNIT * (4.0 * size + 4.0 * (degree + 2) + 128.0)
        error = np.minimum(k * (k - 1) * near + 128.0 * k * UNIT, 1.0)
        delay = np.exp(unary.max(axis=1, keepdims=True) - unary)
        return cls(region, frozen(np.exp(-theta)), frozen(delay), frozen(error))

    @property
    def largest(self) -> int:
        """Random numbers per step."""
        return self.unary.shape[1]

    @property
    def costs(self) -> NDArray[np.float64]:
        k = self.unary.shape[1]
        return k * (7.0 + np.diff(self.region.start)) / 99.0

    def twin(self) -> Runner:
        from dobrushin._coalescence.device_races import DeviceSetLabels

        return DeviceSetLabels(self)

    @property
    def _first(self) -> NDArray[np.int64]:
        return np.arange(self.region.size) * self.unary.shape[1]

    def begin(self, runs: int) -> NDArray[np.uint8]:
        """Everything is possible, and nothing alone."""
        size, k = self.unary.shape
        x = np.ones((size * (k + 1), runs), dtype=np.uint8)
        x[size * k :] = 0
        return x

    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        tables = (self.region.start, self.region.neighbor, self.delay, self.unary)
        sets.set_labels(order, place, steps, number, stride, *tables, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int16)
        states = np.full(self.region.size, self.unary.shape[1])
        sets.settled_labels(x, frozen(self._first), frozen(states), rows, out)
        return out
