"""Sets of labels of any model: labels race, with exponential times. [trusted]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.set_kernel import SetKernel
from dobrushin._kernels import sets
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.kernel import UNIT, Runner
from dobrushin._sampling.local_factors import LocalFactors, largest_entries, local_factors, pack_region
from dobrushin._shared.arrays import frozen, prefix_sums
from dobrushin.errors import ArgumentError

# Cells of tables that take as long as an ordinary update, and what a cell costs more where runs are not side by side.
_ORDINARY_CELLS, _BY_RUN = 100.0, 10.0
# States are kept in 16 bits, and -1 stands for none.
_MOST_STATES = 2**15 - 1


@dataclass(frozen=True)
class SetRace(SetKernel):
    """Any model: labels race."""

    region: Region
    largest: int  # most states of any variable of the model: random numbers per step
    states: NDArray[np.int64]
    first: NDArray[np.int64]  # row of the first label of each variable
    factors: LocalFactors
    error: NDArray[np.float64]
    has_twin: ClassVar[bool] = True
    name: ClassVar[str] = "set race"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    rate: ClassVar[float] = 3e7

    @classmethod
    def fits(cls, form: Form) -> bool:
        del form
        return True

    @classmethod
    def make(cls, form: Form, region: Region) -> SetRace:
        largest = int(form.cardinalities.max())
        if largest > _MOST_STATES:
            raise ArgumentError("model", f"of variables with at most {_MOST_STATES} states", largest)
        tables = form.tables()
        factors = local_factors(pack_region(tables, region), region)
        k = form.cardinalities[region.place]
        # A set is wrong only if a difference of two arrival times, whose density is at most 1/4, is nearer to its limit
        # than all roundings together; for each of k (k - 1) ordered pairs. A time is a logarithm of at most 38, good to
        # 2^-49 of itself, of a number good to 2^-49 of itself: 39 * 16 units. The last term is for the times' grid.
        near = 2.0 * UNIT * ((factors.counts + 4) * largest_entries(tables, region) + 1024.0)
        error = k * (k - 1) * near + 128.0 * k * UNIT
        first = prefix_sums(k)[:-1]
        return cls(region, largest, frozen(k), frozen(first), factors, frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        """By the cells of the tables that an update looks at: all of small ones, side by side for many runs.

        Of others run by run those that are possible, when sets have shrunk to some extent: the more members a factor
        has, the less of its cells a single member that has settled takes away.
        """
        f_start, m_start, member = self.factors[:3]
        labels = np.repeat(self.states, np.diff(f_start))
        members, sums = np.diff(m_start), prefix_sums(np.log(self.states[member]))
        size = sums[m_start[1:]] - sums[m_start[:-1]]
        with np.errstate(over="ignore"):
            possible = _BY_RUN * np.exp(members / (members + 1.0) * size)
        cells = labels * np.where(size <= np.log(sets.MAX_CELLS + 0.5), np.exp(np.minimum(size, 9.0)), possible)
        row = np.repeat(np.arange(self.region.size), np.diff(f_start))
        return 0.6 + np.bincount(row, weights=cells, minlength=self.region.size) / _ORDINARY_CELLS

    def twin(self) -> Runner:
        from dobrushin._coalescence.device_races import DeviceSetRace

        return DeviceSetRace(self)

    def begin(self, runs: int) -> NDArray[np.uint8]:
        return np.ones((int(self.states.sum()), runs), dtype=np.uint8)

    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        shared = (self.largest, self.states, self.first, *self.factors)
        sets.set_race(order, place, steps, number, stride, *shared, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int16)
        sets.settled_labels(x, self.first, self.states, rows, out)
        return out
