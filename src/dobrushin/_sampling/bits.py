"""Kernels for binary variables that compare random bits with tabulated thresholds.

Either 64 chains are packed into the bits of one word, or chains run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import bits
from dobrushin._kernels.conditional import binary_tables
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import ScanRegion
from dobrushin._sampling.array_kernel import ArrayKernel, StepList, repeats_long_cycles
from dobrushin._sampling.cuda.device_kernel import DeviceBits, DeviceLabels
from dobrushin._sampling.kernel import Kernel, Work, narrowed, streams_of
from dobrushin._sampling.labels import pack_region
from dobrushin._sampling.spins import LocalFieldKernel
from dobrushin._scan import Scan
from dobrushin._shared.arrays import UNIT, frozen, prefix_sums
from dobrushin._shared.compile import code_for

# Largest number of neighbours for a table of all their configurations.
MAX_NEIGHBORS = 6
# From this number of chains on, words of 64 chains are faster. All limits here are measured by benchmarks/kernels.py.
FEW_CHAINS = 16
# Larger tables of thresholds (32 MB), and counts of neighbours, pay from this number of chains on.
MAX_BITS_CELLS, MANY_CHAINS = 2**22, 256
# Largest table of thresholds for single chains (4 MB), and draws that take as long as making one threshold.
MAX_TABLE_CELLS, DRAWS_PER_CELL = 2**19, 4
# Bits of a configuration of counts: one group of up to 15 neighbours, two groups of up to 3, and so on.
COUNT_BITS = 4
# Variables that `CountsKernel.fits` examines first: couplings without any pattern are found at once.
FEW_VARIABLES = 64


@dataclass(frozen=True)
class WordKernel(Kernel):
    """Base class of kernels for binary variables that pack 64 chains into each 64-bit word."""

    region: ScanRegion
    threshold: NDArray[np.uint64]  # (variables, 16 or 64): 2^64 P(1), by configuration
    certain: NDArray[np.bool_]  # whether P(1) is exactly 1
    error: NDArray[np.float64]
    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 4096
    batches_per_core: ClassVar[int] = 1  # a step of few words takes almost as long as a step of many
    twin: ClassVar[Any] = DeviceBits

    @property
    def costs(self) -> NDArray[np.float64]:
        return np.full(self.region.size, 4.2 if self.threshold.shape[1] > 16 else 1.0)

    @property
    def step(self) -> float:
        return 3.6e-7 if self.threshold.shape[1] > 16 else 2e-7

    @property
    def dtype(self) -> Any:
        return np.int8

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint64]:
        keys = streams_of(master, chains, 64)
        x = np.zeros((self.region.size + 1, keys.shape[1]), dtype=np.uint64)
        code_for(bits.start_bits, 12 * x.size)(frozen(self.region.positions), keys, x)
        return x

    def load(self, states: NDArray[np.int64]) -> NDArray[np.uint64]:
        x = np.zeros((self.region.size + 1, -(-states.shape[1] // 64)), dtype=np.uint64)
        bits.pack(np.ascontiguousarray(states), x)
        return x

    def read(self, x: NDArray[np.uint64], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int8)
        code_for(bits.unpack, 4 * out.size)(x, rows, out)
        return out

    def count(self, x: NDArray[np.uint64], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        code_for(bits.count_bits, 16 * x.shape[1] * len(rows))(x, rows, chains, counts)


@dataclass(frozen=True)
class BitsKernel(WordKernel):
    """Kernel for binary variables with at most 6 neighbours: one threshold for each state of the neighbours."""

    neighbor: NDArray[np.int64]  # (variables, 4 or 6); a dummy, always 0, fills the row
    name: ClassVar[str] = "bits"
    rate: ClassVar[float] = 9e9

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        return fits_table(form, region) and not scan.is_random

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: ScanRegion, chains: int) -> bool:
        return chains >= FEW_CHAINS and (table_cells(region) <= MAX_BITS_CELLS or chains >= MANY_CHAINS)

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> BitsKernel:
        neighbor, probability, error = tabulate(form, region)
        error = np.minimum(error + 2.0**-52, 1.0)
        return cls(region, *thresholds_of(probability), error, neighbor)

    @property
    def device_loop(self) -> str:
        return f"update_bits{self.neighbor.shape[1]}"

    def device_tables(self) -> tuple[Any, ...]:
        return self.neighbor.astype(np.uint32), self.threshold, self.certain.view(np.uint8)

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        wide = True if self.neighbor.shape[1] > 4 else None
        tables = (wide, self.neighbor, self.threshold, self.certain)
        keys = work.keys(64)
        # A step reads about 16 planes of random bits, and all thresholds and words for each plane.
        operations = 16 * work.steps * (2 * self.threshold.shape[1] * (1 + keys.shape[1]))
        code_for(bits.update_bits, operations)(order, place, work.steps, work.step, *tables, keys, x)


def thresholds_of(probability: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the integer thresholds of probabilities for `update_bits`, and which probabilities are exactly 1."""
    certain = probability == 1
    threshold = bit_thresholds(probability)
    threshold[certain] = np.uint64(2**64 - 1)
    return frozen(threshold), frozen(certain)


def bit_thresholds(probability: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return 2^64 times each probability, at most the largest float below 2^64."""
    return np.minimum(np.rint(probability * 2.0**64), np.nextafter(2.0**64, 0)).astype(np.uint64)


# -- one chain after the other -------------------------------------------------------------------


@dataclass(frozen=True)
class TableKernel(ArrayKernel):
    """Kernel for binary variables with at most 6 neighbours that runs chains one after the other, with thresholds."""

    region: ScanRegion
    neighbor: NDArray[np.int64]
    threshold: NDArray[np.uint64]  # 2^63 P(1)
    error: NDArray[np.float64]
    twin: ClassVar[Any] = DeviceLabels
    is_one_launch: ClassVar[bool] = False  # random scans and few chains cannot share a launch
    few_chains: ClassVar[float] = np.inf
    by_levels: ClassVar[bool] = True
    name: ClassVar[str] = "table"
    rate: ClassVar[float] = 2.5e8

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        return fits_table(form, region)

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: ScanRegion, chains: int) -> bool:
        cells = table_cells(region)
        pays = len(scan) * chains > DRAWS_PER_CELL * cells and cells < MAX_TABLE_CELLS
        # Only the kernel by local fields is faster than tables.
        return (pays and not repeats_long_cycles(scan)) or not LocalFieldKernel.fits(form, scan, region)

    @classmethod
    def make(cls, form: Form, region: ScanRegion) -> TableKernel:
        neighbor, probability, error = tabulate(form, region)
        threshold = np.rint(probability * 2.0**63).astype(np.uint64)
        return cls(region, neighbor, frozen(threshold), np.minimum(error + 2.0**-52, 1.0))

    def device_tables(self) -> tuple[Any, ...]:
        return *narrowed(self.neighbor), self.threshold, np.int32(self.neighbor.shape[1])

    def advance(self, x: NDArray[np.int8], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        shared = (self.neighbor.ravel(), self.threshold.ravel(), self.neighbor.shape[1] > 4)
        bits.table_steps(*steps, *shared, *keys[:, 0], x[:, 0])


# -- spins whose neighbours come in few groups of equal coupling: only counts of them matter ------


class EqualNeighbors(NamedTuple):
    """Groups of neighbours whose couplings to a variable have the same non-zero absolute value."""

    entry: NDArray[np.int64]  # entries of the rows of the region, in the order of the groups
    group: NDArray[np.int64]  # group of each of these entries
    row: NDArray[np.int64]  # for each group: variable,
    size: NDArray[np.float64]  # absolute coupling,
    neighbors: NDArray[np.int64]  # number of neighbours,
    width: NDArray[np.int64]  # number of bits of their count,
    first: NDArray[np.int64]  # first of these bits in the configuration of the variable


@dataclass(frozen=True)
class CountsKernel(WordKernel):
    """Kernel for spins with few distinct absolute couplings per variable: only counts of neighbours matter."""

    triple_start: NDArray[np.int64]  # first triple of neighbours of each variable
    neighbor: NDArray[np.int64]  # (triples, 3)
    flip: NDArray[np.uint64]  # (triples, 3): all ones where the coupling is negative
    first: NDArray[np.int64]  # first bit of the count that each triple adds to
    name: ClassVar[str] = "counts"
    rate: ClassVar[float] = 1.2e10

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        if scan.is_random or not isinstance(form, SpinPairs):
            return False
        theta = form.couplings.data[region.entry]
        few = region.updated[:FEW_VARIABLES]
        return _are_few(_groups(theta, region, few)) and _are_few(_groups(theta, region, region.updated))

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: ScanRegion, chains: int) -> bool:
        return chains >= MANY_CHAINS and region.degree > MAX_NEIGHBORS

    @classmethod
    def make(cls, form: Any, region: ScanRegion) -> CountsKernel:
        theta, field = form.couplings.data[region.entry], form.fields[region.place]
        groups = _groups(theta, region, region.updated)
        configurations = np.arange(2**COUNT_BITS)
        local = np.repeat(field[:, None], len(configurations), axis=1)
        for k in range(COUNT_BITS):  # groups whose counts begin at bit k: at most one group of each variable
            here = groups.first == k
            count = (configurations >> k) & ((1 << groups.width[here]) - 1)[:, None]
            local[groups.row[here]] += groups.size[here, None] * (2 * count - groups.neighbors[here, None])
        with np.errstate(over="ignore"):
            probability = 1.0 / (1.0 + np.exp(-2.0 * local))
        total = np.abs(field) + np.bincount(region.row, weights=np.abs(theta), minlength=region.size)
        error = UNIT * ((COUNT_BITS + 2) * total + 8.0) + 2.0**-52
        threshold, certain = thresholds_of(probability)
        return cls(region, threshold, certain, frozen(np.minimum(error, 1.0)), *_triples(theta, region, groups))

    def device_tables(self) -> tuple[Any, ...]:
        start, neighbor, first = (part.astype(np.uint32) for part in (self.triple_start, self.neighbor, self.first))
        return start, neighbor, self.flip, first, self.threshold, self.certain.view(np.uint8)

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        tables = (self.triple_start, self.neighbor, self.flip, self.first, self.threshold, self.certain)
        bits.update_counts(order, place, work.steps, work.step, *tables, work.keys(64), x)


def _groups(theta: NDArray[np.float64], region: ScanRegion, updated: NDArray[np.int64]) -> EqualNeighbors:
    """Group the neighbours of each variable in `updated` by the absolute value of their couplings."""
    lengths = region.start[updated + 1] - region.start[updated]
    entry = np.repeat(region.start[updated] - prefix_sums(lengths)[:-1], lengths) + np.arange(lengths.sum())
    row, size = np.repeat(updated, lengths), np.abs(theta[entry])
    kept = size > 0
    entry, row, size = entry[kept], row[kept], size[kept]
    order = np.lexsort((size, row))
    entry, row, size = entry[order], row[order], size[order]
    begins = np.ones(len(row), dtype=bool)
    begins[1:] = (row[1:] != row[:-1]) | (size[1:] != size[:-1])
    group = np.cumsum(begins) - 1
    neighbors = np.bincount(group)
    row, size = row[begins], size[begins]
    width = np.frexp(neighbors.astype(np.float64))[1].astype(np.int64)  # counts 0 to `neighbors`
    before = prefix_sums(width)[:-1]
    new_row = np.ones(len(row), dtype=bool)
    new_row[1:] = row[1:] != row[:-1]
    first = before - before[new_row][np.cumsum(new_row) - 1]
    return EqualNeighbors(entry, group, row, size, neighbors, width, first)


def _are_few(groups: EqualNeighbors) -> bool:
    """Return whether the counts of all groups of each variable fit into `COUNT_BITS` bits."""
    return int((groups.first + groups.width).max(initial=0)) <= COUNT_BITS


def _triples(
    theta: NDArray[np.float64], region: ScanRegion, groups: EqualNeighbors
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """Split each group of neighbours into triples, in the form of the last four fields of `CountsKernel`."""
    per_group = -(-groups.neighbors // 3)
    triple_start = prefix_sums(per_group)
    within = np.arange(len(groups.entry)) - prefix_sums(groups.neighbors)[:-1][groups.group]
    place = 3 * triple_start[groups.group] + within
    neighbor = np.full(3 * triple_start[-1], region.size, dtype=np.int64)
    flip = np.zeros(len(neighbor), dtype=np.uint64)
    neighbor[place] = region.neighbor[groups.entry]
    flip[place[theta[groups.entry] < 0]] = bits.ALL
    of_row = np.bincount(groups.row, weights=per_group, minlength=region.size).astype(np.int64)
    start = prefix_sums(of_row)
    first = np.repeat(groups.first, per_group)
    return frozen(start), frozen(neighbor.reshape(-1, 3)), frozen(flip.reshape(-1, 3)), frozen(first)


# -- tables of conditional probabilities, which other kernels use too ---------------------------


def fits_table(form: Form, region: ScanRegion) -> bool:
    """Return whether all variables of a region are binary, with at most MAX_NEIGHBORS neighbours."""
    if region.degree > MAX_NEIGHBORS:
        return False
    return form.spins or bool((form.cardinalities[region.place] == 2).all())


def table_cells(region: ScanRegion) -> int:
    """Return the number of thresholds for the updated variables of a region."""
    return len(region.updated) * 2 ** max(4, region.degree)


def _spin_pairs(form: SpinPairs, region: ScanRegion, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    theta = np.zeros((region.size, width))
    theta[region.row, region.slot] = form.couplings.data[region.entry]
    field = form.fields[region.place]
    signs = 2.0 * ((np.arange(2**width)[:, None] >> np.arange(width)) & 1) - 1.0
    with np.errstate(over="ignore"):
        probability = 1.0 / (1.0 + np.exp(-2.0 * (field[:, None] + theta @ signs.T)))
    return probability, UNIT * ((width + 2) * (np.abs(theta).sum(axis=1) + np.abs(field)) + 8.0)


def _factors(form: FactorTables, region: ScanRegion, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    packed = pack_region(form, region)
    rows, row_errors = np.zeros((len(region.updated), 2**width)), np.zeros(len(region.updated))
    binary_tables(
        packed.start, packed.f_start, packed.m_start, packed.m_of, packed.m_stride, packed.own_stride, packed.base,
        form.table, rows, row_errors,
    )  # fmt: skip
    probability, error = np.zeros((region.size, 2**width)), np.zeros(region.size)
    probability[region.updated], error[region.updated] = rows, row_errors
    return probability, error


_CONDITIONALS: dict[type[Form], Callable[[Any, ScanRegion, int], tuple[NDArray[np.float64], NDArray[np.float64]]]] = {
    SpinPairs: _spin_pairs,
    FactorTables: _factors,
}


def tabulate(form: Form, region: ScanRegion) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Tabulate the conditional probabilities of a region for which `fits_table` holds.

    Return the neighbours of each variable, filled up with a dummy to 4 or 6, the probability of state 1 for each of
    their configurations, and a bound on the error of a variable's probabilities.
    """
    width = 4 if region.degree <= 4 else 6
    neighbor = np.full((region.size, width), region.size, dtype=np.int64)
    neighbor[region.row, region.slot] = region.neighbor
    form, conditionals = widen(form, _CONDITIONALS)
    probability, error = conditionals(form, region, width)
    return frozen(neighbor), frozen(probability), frozen(np.minimum(error, 1.0))
