"""Bit-parallel chains: 64 in one number, for binary variables with few neighbours."""

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
from dobrushin._models.near import Region
from dobrushin._sampling.kernel import UNIT, Batches, Kernel, Runner, Work, streams_of
from dobrushin._sampling.local_factors import pack_region
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.compile import code_for

# Neighbours that a table of all configurations is made for.
MOST_NEIGHBORS = 6
# From so many chains on, 64 at a time are faster than one after the other.
FEW_CHAINS = 16
# Larger tables (32 MB) are worth it for so many chains only.
LARGEST_BITS, MANY_CHAINS = 2**22, 256


@dataclass(frozen=True)
class BitChains(Kernel):
    """64 chains in one number of 64 bits: what the ways to draw them share."""

    region: Region
    threshold: NDArray[np.uint64]  # (variables, 16 or 64): 2^64 P(1), by configuration
    certain: NDArray[np.bool_]
    error: NDArray[np.float64]
    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 4096

    @property
    def costs(self) -> NDArray[np.float64]:
        return np.full(self.region.size, 3.5 if self.threshold.shape[1] > 16 else 1.0)

    @property
    def step(self) -> float:
        return 1e-6 if self.threshold.shape[1] > 16 else 2e-7

    def batches(self, numbers: range, cores: int) -> Batches:
        # A step of few numbers of 64 bits takes almost as long as one of many: one batch for each core.
        size = self.batch
        while size > self.lanes and len(numbers) < cores * size:
            size //= 2
        return Batches(numbers, size)

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
class Bits(BitChains):
    """64 chains in one number of 64 bits, for binary variables with at most 6 neighbours."""

    neighbor: NDArray[np.int64]  # (variables, 4 or 6); a dummy, always 0, fills the row
    name: ClassVar[str] = "bits"
    rate: ClassVar[float] = 3e9
    has_twin: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        return fits_table(form, region) and not scan.is_random

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        del form, scan
        return chains >= FEW_CHAINS and (table_cells(region) <= LARGEST_BITS or chains >= MANY_CHAINS)

    @classmethod
    def make(cls, form: Form, region: Region) -> Bits:
        neighbor, probability, error = tabulate(form, region)
        error = np.minimum(error + 2.0**-52, 1.0)
        return cls(region, *thresholds_of(probability), error, neighbor)

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.bits import DeviceBits

        return DeviceBits(self)

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        tables = (self.neighbor, self.threshold, self.certain, self.neighbor.shape[1] > 4)
        keys = work.keys(64)
        # About 16 planes of random bits for each step, in which thresholds and words are gone through.
        operations = 16 * work.steps * (2 * self.threshold.shape[1] * (1 + keys.shape[1]))
        code_for(bits.update_bits, operations)(order, place, work.step, work.steps, *tables, keys, x)


def thresholds_of(probability: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Thresholds, and which probabilities are exactly 1."""
    certain = probability == 1
    threshold = bit_thresholds(probability)
    threshold[certain] = np.uint64(2**64 - 1)
    return frozen(threshold), frozen(certain)


def bit_thresholds(probability: NDArray[np.float64]) -> NDArray[np.uint64]:
    """2^64 times each probability, or the largest whole number below that fits."""
    return np.minimum(np.rint(probability * 2.0**64), np.nextafter(2.0**64, 0)).astype(np.uint64)


# -- tables of conditional probabilities, which other kernels use too ---------------------------


class Conditionals(NamedTuple):
    """Neighbours (rows are filled up with a dummy), P(1) for each of their configurations, and its error."""

    neighbor: NDArray[np.int64]
    probability: NDArray[np.float64]
    error: NDArray[np.float64]


def fits_table(form: Form, region: Region) -> bool:
    """Whether all variables are binary and none has too many neighbours."""
    if region.degree > MOST_NEIGHBORS:
        return False
    return form.spins or bool((form.cardinalities[region.place] == 2).all())


def table_cells(region: Region) -> int:
    """Thresholds of a table for the updated variables."""
    return len(region.updated) * 2 ** max(4, region.degree)


def _spin_pairs(form: SpinPairs, region: Region, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    theta = np.zeros((region.size, width))
    theta[region.row, region.slot] = form.couplings.data[region.entry]
    field = form.fields[region.place]
    signs = 2.0 * ((np.arange(2**width)[:, None] >> np.arange(width)) & 1) - 1.0
    with np.errstate(over="ignore"):
        probability = 1.0 / (1.0 + np.exp(-2.0 * (field[:, None] + theta @ signs.T)))
    return probability, UNIT * ((width + 2) * (np.abs(theta).sum(axis=1) + np.abs(field)) + 8.0)


def _factors(form: FactorTables, region: Region, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    packed = pack_region(form, region)
    rows, row_errors = np.zeros((len(region.updated), 2**width)), np.zeros(len(region.updated))
    binary_tables(
        packed.start, packed.f_start, packed.m_start, packed.m_of, packed.m_stride, packed.own_stride, packed.base,
        form.table, rows, row_errors,
    )  # fmt: skip
    probability, error = np.zeros((region.size, 2**width)), np.zeros(region.size)
    probability[region.updated], error[region.updated] = rows, row_errors
    return probability, error


_CONDITIONALS: dict[type[Form], Callable[[Any, Region, int], tuple[NDArray[np.float64], NDArray[np.float64]]]] = {
    SpinPairs: _spin_pairs,
    FactorTables: _factors,
}


def tabulate(form: Form, region: Region) -> Conditionals:
    """The table of a region that fits."""
    width = 4 if region.degree <= 4 else 6
    neighbor = np.full((region.size, width), region.size, dtype=np.int64)
    neighbor[region.row, region.slot] = region.neighbor
    form, conditionals = widen(form, _CONDITIONALS)
    probability, error = conditionals(form, region, width)
    return Conditionals(frozen(neighbor), frozen(probability), frozen(np.minimum(error, 1.0)))
