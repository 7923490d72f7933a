"""Kernels of bounding sets, for spins and for any number of states, on the CPU and on the GPU. [trusted]"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._coalescence.sets import SetKernel, SetRunner, SetSteps
from dobrushin._kernels import bits, sets
from dobrushin._kernels.sets import set_field
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import ScanRegion
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms
from dobrushin._sampling import cuda
from dobrushin._sampling.bits import MAX_NEIGHBORS, bit_thresholds, tabulate
from dobrushin._sampling.cuda.device_kernel import DeviceKernel, DeviceWords, States, in_parts
from dobrushin._sampling.kernel import CACHE_BYTES, narrowed
from dobrushin._sampling.labels import SAFE_EXPONENT, LocalFactors, local_factors, pack_region, sum_factors
from dobrushin._shared.arrays import UNIT, frozen, prefix_sums
from dobrushin._shared.compile import code_for
from dobrushin._shared.device import Function, cupy
from dobrushin.errors import ArgumentError


class _DeviceSets(SetRunner, DeviceKernel):
    """Kernel of bounding sets on the GPU."""

    def _column(self) -> NDArray[Any]:
        """Return the initial bounding sets, with all states, of one run or of 64 runs in the bits of one word."""
        column: NDArray[Any] = self.host.start(np.empty(0, dtype=np.uint64), range(1))
        return column

    @property
    def rows(self) -> int:
        return len(self._column())

    def _begin(self, columns: range, keys: Any) -> Any:
        column = self._column()
        x = cupy().empty((len(column), len(columns)), dtype=self.width)
        x[:] = cupy().asarray(column)
        return x


class DeviceSetBits(_DeviceSets, DeviceWords):
    """The kernel `SetBits` (64 runs in a word) on the GPU."""

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return self._unpack("settled_bits", x, rows, chains, np.int32(self.region.size))


class DeviceSetLabels(_DeviceSets):
    """The kernel `SetLabels` on the GPU: a bit for each label of a variable, 32 labels in a word."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**20
    chunk: ClassVar[int] = 10**9
    width: ClassVar[Any] = np.uint32

    @property
    def depth(self) -> int:
        """Largest number of other variables in a factor."""
        return 1

    def _compiled(self, name: str) -> Function:
        options = ("-fmad=false", f"-DLABELS={self.host.words}", f"-DDEPTH={self.depth}")
        return Function(cuda.__name__, ("generator.cuh", "states.cuh", "races.cu"), name, options)

    def _column(self) -> NDArray[Any]:
        inside = np.clip(self.host.states[:, None] - 32 * np.arange(-(-self.host.words // 32)), 0, 32)
        column: NDArray[Any] = ((1 << inside) - 1).astype(np.uint32).reshape(-1, 1)
        return column

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return self._unpack("settled_sets", x, rows, chains)

    def read(self, x: Any, rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        if isinstance(x, States):
            return super().read(x, rows, chains)
        # The host holds the states in the form of the GPU, which its own kernel cannot read.
        out = np.empty((len(rows), chains), dtype=self.dtype)

        def part(lo: int, hi: int) -> None:
            out[:, lo:hi] = super(DeviceSetLabels, self).read(States(cupy().asarray(x[:, lo:hi])), rows, hi - lo)

        in_parts(chains, part)
        return out


class DeviceSetRace(DeviceSetLabels):
    """The kernel `SetRace` on the GPU, with sets as in `DeviceSetLabels`, for models with any factors."""

    chunk: ClassVar[int] = 10**8

    @property
    def depth(self) -> int:
        return max(1, int(np.diff(self.host.factors.m_start).max(initial=0)))


# -- spins: the lowest and the highest possible state; 64 runs in a word, or local fields ------------------------------


@dataclass(frozen=True)
class SetBits(SetKernel):
    """Kernel of bounding sets that packs 64 runs into a word, for spins with pair couplings to at most 6 neighbours."""

    region: ScanRegion
    neighbor: NDArray[np.int64]  # rows of the neighbours' states with the smallest chance of state 1, then the largest
    threshold: NDArray[np.uint64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set bits"
    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 4096
    rate: ClassVar[float] = 3.4e9
    twin: ClassVar[Any] = DeviceSetBits

    @classmethod
    def fits(cls, form: Form) -> bool:
        degree = int(np.diff(form.adjacency[0]).max(initial=0))
        return degree <= MAX_NEIGHBORS and has_spin_pairs(form)

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> SetBits:
        neighbor, probability, error = tabulate(form, region)
        size = region.size
        follows = np.ones(neighbor.shape, dtype=np.bool_)
        follows[region.row, region.slot] = spin_pairs(form).couplings.data[region.entry] >= 0
        absent = neighbor == size
        low, high = np.where(absent, 2 * size, neighbor), np.where(absent, 2 * size, size + neighbor)
        rows = np.concatenate([np.where(follows, low, high), np.where(follows, high, low)], axis=1)
        # Both ends of a set are rounded.
        error = np.minimum(2.0 * (error + 2.0**-52), 1.0)
        return cls(region, frozen(rows), frozen(bit_thresholds(probability)), frozen(error))

    @property
    def costs(self) -> NDArray[np.float64]:
        return np.full(self.region.size, 4.5 if self.neighbor.shape[1] > 8 else 1.0)

    @property
    def step(self) -> float:
        return 5e-7 if self.neighbor.shape[1] > 8 else 2.5e-7

    def device_tables(self) -> tuple[Any, ...]:
        return self.neighbor.astype(np.uint32), self.threshold, np.uint32(self.region.size)

    @property
    def device_loop(self) -> str:
        return f"set_bits{self.neighbor.shape[1] // 2}"

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint64]:
        size = self.region.size
        x = np.zeros((2 * size + 1, -(-len(chains) // 64)), dtype=np.uint64)
        x[size : 2 * size] = ~np.uint64(0)
        return x

    def go(self, x: NDArray[Any], steps: SetSteps, keys: NDArray[np.uint64]) -> None:
        wide = True if self.neighbor.shape[1] > 8 else None
        bits.set_bits(*steps, wide, self.neighbor, self.threshold, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int16)
        code_for(bits.settled_bits, 12 * out.size)(x, self.region.size, rows, out)
        return out


@dataclass(frozen=True)
class SetField(SetKernel):
    """Kernel of bounding sets by local fields, for spins with pair couplings and any number of neighbours."""

    region: ScanRegion
    theta: NDArray[np.float64]
    fields: NDArray[np.float64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set field"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    rate: ClassVar[float] = 2.5e8

    @classmethod
    def fits(cls, form: Form) -> bool:
        return has_spin_pairs(form)

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> SetField:
        spins = spin_pairs(form)
        theta, fields = spins.couplings.data[region.entry], spins.fields[region.place]
        terms = np.diff(region.start).astype(np.int64)
        size = np.abs(fields) + terms * np.abs(theta).max(initial=0.0)
        if spins is not form:  # couplings and fields are sums of terms, which may have cancelled
            tables = form.tables()
            factors = local_factors(pack_region(tables, region), region)
            terms = terms + factors.counts
            size = np.maximum(size, 2.0 * sum_factors(tables, region).largest)
        # Two ends, each with a local field and an exponential; `spin_pairs` has rounded couplings and fields.
        error = 2.0 * UNIT * ((2 * terms + 16) * size + 256.0)
        return cls(region, frozen(theta), frozen(fields), frozen(np.minimum(error, 1.0)))

    @property
    def costs(self) -> NDArray[np.float64]:
        # An update reads the sets of all neighbours in all runs of a batch.
        near = 16 * self.region.size * self.batch <= CACHE_BYTES
        return (3.7 + (0.3 if near else 1.5) * np.diff(self.region.start)) / 5.0

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.float64]:
        x = np.ones((2 * self.region.size, len(chains)))
        x[: self.region.size] = -1.0
        return x

    def go(self, x: NDArray[Any], steps: SetSteps, keys: NDArray[np.uint64]) -> None:
        shared = (self.region.start, self.region.neighbor, self.theta, self.fields)
        set_field(*steps, *shared, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        low, high = x[rows, :chains] > 0, x[self.region.size + rows, :chains] > 0
        return np.where(low == high, low, -1).astype(np.int16)


# -- binary models as spins with couplings and fields ---------------------------------------------

# Largest number of variables in a term, by form.
_ORDERS: dict[type[Form], Callable[[Any], int]] = {
    SpinPairs: lambda _: 2,
    LabelPairs: lambda _: 2,
    PairTables: lambda _: 2,
    SpinTerms: lambda form: int(form.order),
    FactorTables: lambda form: int(np.diff(form.scope_start).max(initial=0)),
}


def has_spin_pairs(form: Form) -> bool:
    """Return whether all variables are binary, all terms have at most two variables, and no state is forbidden."""
    if (form.cardinalities != 2).any() or form.has_zeros:
        return False
    form, order = widen(form, _ORDERS)
    return order(form) <= 2


def spin_pairs(form: Form) -> SpinPairs:
    """Return a model for which `has_spin_pairs` holds as spins with couplings and fields; neighbours stay the same."""
    if isinstance(form, SpinPairs):
        return form
    graph = form.tables()
    n, (single, own), (double, tables) = graph.n_variables, graph.of_arity(1), graph.of_arity(2)
    fields = np.zeros(n)
    np.add.at(fields, single[:, 0], 0.5 * (own[:, 1] - own[:, 0]))
    (i, j), (t00, t01, t10, t11) = double.T, tables.T
    np.add.at(fields, i, 0.25 * ((t10 - t00) + (t11 - t01)))
    np.add.at(fields, j, 0.25 * ((t01 - t00) + (t11 - t10)))
    strength = 0.25 * ((t00 - t01) + (t11 - t10))
    # Variables whose couplings cancel stay neighbours.
    start, columns = form.adjacency
    entries = np.repeat(np.arange(n), np.diff(start)) * n + columns
    values = np.zeros(len(columns))
    np.add.at(values, np.searchsorted(entries, i * n + j), strength)
    np.add.at(values, np.searchsorted(entries, j * n + i), strength)
    return SpinPairs(sparse.csr_array((values, columns, start), (n, n)), fields)


# -- any number of states: an exponential time for each state, with its weight as rate; the least time wins ------------

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
    """Kernel of bounding sets for Potts models: each label gets a random time, and the earliest is the new label."""

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
    """Kernel of bounding sets for any model: each state gets a random time, and the earliest is the new state."""

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
