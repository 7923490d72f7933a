"""Bit-parallel chains: 64 in one number, for binary variables with few neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import bits
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.kernel import Kernel, Runner, Work, streams_of
from dobrushin._sampling.table import fits_table, table_cells, tabulate
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen

# From so many chains on, 64 at a time are faster than one after the other.
FEW_CHAINS = 16
# Larger tables (32 MB) are worth it for so many chains only.
LARGEST_TABLE, MANY_CHAINS = 2**22, 256


@dataclass(frozen=True)
class Bits(Kernel):
    """64 chains in one number of 64 bits, for binary variables with at most 6 neighbours."""

    region: Region
    neighbor: NDArray[np.int64]  # (variables, 4 or 6); a dummy, always 0, fills the row
    threshold: NDArray[np.uint64]  # (variables, 16 or 64): 2^64 P(1), by configuration
    certain: NDArray[np.bool_]
    error: NDArray[np.float64]
    name: ClassVar[str] = "bits"
    rate: ClassVar[float] = 3e9
    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 4096
    has_twin: ClassVar[bool] = True

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        return fits_table(form, region) and not scan.is_random

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        del form, scan
        return chains >= FEW_CHAINS and (table_cells(region) <= LARGEST_TABLE or chains >= MANY_CHAINS)

    @classmethod
    def make(cls, form: Form, region: Region) -> Bits:
        neighbor, probability, error = tabulate(form, region)
        certain = probability == 1
        threshold = bit_thresholds(probability)
        threshold[certain] = np.uint64(2**64 - 1)
        return cls(region, neighbor, frozen(threshold), frozen(certain), np.minimum(error + 2.0**-52, 1.0))

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.bits import DeviceBits

        return DeviceBits(self)

    @property
    def dtype(self) -> Any:
        return np.int8

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint64]:
        keys = streams_of(master, chains, 64)
        x = np.zeros((self.region.size + 1, keys.shape[1]), dtype=np.uint64)
        bits.start_bits(frozen(self.region.positions), keys, x)
        return x

    def load(self, states: NDArray[np.int64]) -> NDArray[np.uint64]:
        x = np.zeros((self.region.size + 1, -(-states.shape[1] // 64)), dtype=np.uint64)
        bits.pack(np.ascontiguousarray(states), x)
        return x

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        tables = (self.neighbor, self.threshold, self.certain, self.neighbor.shape[1] > 4)
        bits.update_bits(order, place, work.step, work.steps, *tables, work.keys(64), x)

    def read(self, x: NDArray[np.uint64], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int8)
        bits.unpack(x, rows, out)
        return out

    def count(self, x: NDArray[np.uint64], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        bits.count_bits(x, rows, chains, counts)


def bit_thresholds(probability: NDArray[np.float64]) -> NDArray[np.uint64]:
    """2^64 times each probability, or the largest whole number below that fits."""
    return np.minimum(np.rint(probability * 2.0**64), np.nextafter(2.0**64, 0)).astype(np.uint64)
