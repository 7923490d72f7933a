"""One chain of binary variables with few neighbours, by tables of its conditional probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import binary
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.array_kernel import ArrayKernel, Orders
from dobrushin._sampling.bits import fits_table, table_cells, tabulate
from dobrushin._sampling.field import Field
from dobrushin._sampling.kernel import Runner, Work
from dobrushin._sampling.waves import repeats_long_cycles
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen

# Thresholds that a table may have: 4 MB.
LARGEST_TABLE = 2**19


@dataclass(frozen=True)
class Table(ArrayKernel):
    """One chain of binary variables with at most 6 neighbours, by tables of thresholds."""

    region: Region
    neighbor: NDArray[np.int64]
    threshold: NDArray[np.uint64]  # 2^63 P(1)
    error: NDArray[np.float64]
    orders: Orders = field(default_factory=dict, compare=False)
    has_twin: ClassVar[bool] = True
    name: ClassVar[str] = "table"
    rate: ClassVar[float] = 1.5e8

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan
        return fits_table(form, region)

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        # A table costs as much as some draws for each of its entries, and is slow where it does not fit in a cache.
        cells = table_cells(region)
        pays = len(scan) * chains > 4 * cells and cells < LARGEST_TABLE and not repeats_long_cycles(scan)
        return pays or not Field.fits(form, scan, region)  # only local fields are faster

    @classmethod
    def make(cls, form: Form, region: Region) -> Table:
        neighbor, probability, error = tabulate(form, region)
        threshold = np.rint(probability * 2.0**63).astype(np.uint64)
        return cls(region, neighbor, frozen(threshold), np.minimum(error + 2.0**-52, 1.0))

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.labels import DeviceTable

        return DeviceTable(self)

    def run(self, x: NDArray[np.int8], work: Work) -> None:
        keys = work.keys(1)
        shared = (self.neighbor.ravel(), self.threshold.ravel(), self.neighbor.shape[1] > 4)
        for c, lists in enumerate(self.steps_of_chains(work, keys)):
            state = x[:, c].copy()
            for steps in lists:
                binary.table_steps(*steps, *shared, keys[0, c], keys[1, c], state)
            x[:, c] = state
