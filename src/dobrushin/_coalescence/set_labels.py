"""Bounding sets of variables with any number of states, in many runs side by side. [trusted]

An update draws an exponential time for each state, with the state's weight as rate; the state with the least time wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.device_sets import DeviceSetLabels, DeviceSetRace
from dobrushin._coalescence.sets import SetKernel, SetSteps
from dobrushin._kernels import sets
from dobrushin._models.forms import Form
from dobrushin._models.near import ScanRegion
from dobrushin._models.potts import LabelPairs
from dobrushin._sampling.kernel import narrowed
from dobrushin._sampling.labels import SAFE_EXPONENT, LocalFactors, local_factors, pack_region, sum_factors
from dobrushin._shared.arrays import UNIT, frozen, prefix_sums
from dobrushin.errors import ArgumentError

# States are kept in 16 bits; -1 stands for a variable that has not coalesced.
_MAX_STATES = 2**15 - 1
# Number of table entries that take as long to read as an ordinary update, and the factor by which reading takes longer
# if it is done for one run at a time (benchmarks/tables.py).
_ORDINARY_ENTRIES, _BY_RUN = 100.0, 10.0


class FlagKernel(SetKernel):
    """Kernel of bounding sets as flags: for each label of a variable, a row tells which runs allow the label."""

    first: NDArray[np.int64]  # row of the first label of each variable
    states: NDArray[np.int64]
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int16)
        sets.settled_labels(x, self.first, self.states, rows, out)
        return out


@dataclass(frozen=True)
class SetLabels(FlagKernel):
    """Kernel of bounding sets for Potts models: the label with the least of tabulated random times wins."""

    region: ScanRegion
    delay: NDArray[np.float64]  # exp(-coupling) of each neighbour
    unary: NDArray[np.float64]  # exp(largest unary - unary), inf where a label is forbidden
    first: NDArray[np.int64]
    states: NDArray[np.int64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set labels"
    twin: ClassVar[Any] = DeviceSetLabels
    rate: ClassVar[float] = 2.9e7

    @classmethod
    def fits(cls, form: Form) -> bool:
        return isinstance(form, LabelPairs) and form.states <= _MAX_STATES and form.largest_exponent < SAFE_EXPONENT

    @classmethod
    def make(cls, form: Any, region: ScanRegion) -> SetLabels:
        theta, unary = form.couplings.data[region.entry], form.unaries[region.place]
        k, degree = unary.shape[1], np.diff(region.start)
        size = np.bincount(region.row, weights=np.abs(theta), minlength=region.size)
        size = size + np.abs(np.where(unary > -np.inf, unary, 0.0)).max(axis=1)
        # A set is wrong only if, for one of k (k - 1) ordered pairs of labels, the difference of two log-times is
        # within the sum of all roundings from its limit; the density of the difference is at most 1/4. The last term
        # is for the grid of times.
        near = 2.0 * UNIT * (4.0 * size + 4.0 * (degree + 2) + 128.0)
        error = np.minimum(k * (k - 1) * near + 128.0 * k * UNIT, 1.0)
        delay = np.exp(unary.max(axis=1, keepdims=True) - unary)
        flags = (frozen(np.arange(region.size) * k), frozen(np.full(region.size, k)))
        return cls(region, frozen(np.exp(-theta)), frozen(delay), *flags, frozen(error))

    @property
    def words(self) -> int:
        return self.unary.shape[1]

    @property
    def costs(self) -> NDArray[np.float64]:
        k = self.unary.shape[1]
        return k * (7.0 + np.diff(self.region.start)) / 99.0

    def device_tables(self) -> tuple[Any, ...]:
        return *narrowed(self.region.start, self.region.neighbor), self.delay, self.unary

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint8]:
        """Return the initial flags: every label of every variable is possible, and no variable has coalesced."""
        size, k = self.unary.shape
        x = np.ones((size * (k + 1), len(chains)), dtype=np.uint8)
        x[size * k :] = 0
        return x

    def go(self, x: NDArray[Any], steps: SetSteps, keys: NDArray[np.uint64]) -> None:
        tables = (self.region.start, self.region.neighbor, self.delay, self.unary)
        sets.set_labels(*steps, *tables, keys, x)


@dataclass(frozen=True)
class SetRace(FlagKernel):
    """Kernel of bounding sets for any model: the state with the least exponential time wins."""

    region: ScanRegion
    largest: int  # largest number of states of a variable of the model, which is the number of random words per step
    states: NDArray[np.int64]
    first: NDArray[np.int64]  # row of the first label of each variable
    factors: LocalFactors
    error: NDArray[np.float64]
    name: ClassVar[str] = "set race"
    twin: ClassVar[Any] = DeviceSetRace
    rate: ClassVar[float] = 3.4e7

    @classmethod
    def fits(cls, form: Form) -> bool:
        return True

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> SetRace:
        largest = int(form.cardinalities.max())
        if largest > _MAX_STATES:
            raise ArgumentError("model", f"of variables with at most {_MAX_STATES} states", largest)
        tables = form.tables()
        factors = local_factors(pack_region(tables, region), region)
        k = form.cardinalities[region.place]
        # A set is wrong only if, for one of k (k - 1) ordered pairs of states, the difference of two log-times is
        # within the sum of all roundings from its limit; the density of the difference is at most 1/4. A log-time is
        # at most 38 and has a relative error of 2^-49, like its argument: 39 * 16 units. The last term is for the grid
        # of times.
        near = 2.0 * UNIT * ((factors.counts + 4) * sum_factors(tables, region).largest + 1024.0)
        error = k * (k - 1) * near + 128.0 * k * UNIT
        first = prefix_sums(k)[:-1]
        return cls(region, largest, frozen(k), frozen(first), factors, frozen(np.minimum(error, 1.0)))

    @property
    def words(self) -> int:
        return self.largest

    @property
    def costs(self) -> NDArray[np.float64]:
        # An update reads all entries of small tables, for many runs side by side. Of large tables it reads the possible
        # entries, run by run, here with sets that have shrunk to some extent: the more members a factor has, the less
        # one coalesced member reduces the number of possible entries.
        f_start, m_start, member = self.factors[:3]
        labels = np.repeat(self.states, np.diff(f_start))
        members, sums = np.diff(m_start), prefix_sums(np.log(self.states[member]))
        size = sums[m_start[1:]] - sums[m_start[:-1]]
        with np.errstate(over="ignore"):
            possible = _BY_RUN * np.exp(members / (members + 1.0) * size)
        cells = labels * np.where(size <= np.log(sets.MAX_CELLS + 0.5), np.exp(np.minimum(size, 9.0)), possible)
        row = np.repeat(np.arange(self.region.size), np.diff(f_start))
        return 0.6 + np.bincount(row, weights=cells, minlength=self.region.size) / _ORDINARY_ENTRIES

    def device_tables(self) -> tuple[Any, ...]:
        wide = (part.astype(np.int64) for part in self.factors[3:-1])
        return np.int32(self.largest), *narrowed(self.states, *self.factors[:3]), *wide, self.factors.table

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint8]:
        return np.ones((int(self.states.sum()), len(chains)), dtype=np.uint8)

    def go(self, x: NDArray[Any], steps: SetSteps, keys: NDArray[np.uint64]) -> None:
        shared = (self.largest, self.states, self.first, *self.factors)
        sets.set_race(*steps, *shared, keys, x)
