"""Sweeps of one chain on a grid, diagonal by diagonal; see `_kernels.waves`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import waves
from dobrushin._models.near import Region
from dobrushin._sampling.array_kernel import Steps
from dobrushin._shared.arrays import frozen, prefix_sums

# Shorter diagonals are not worth their overhead.
SHORTEST_SIDE = 256


@dataclass(frozen=True)
class Diagonals:
    """An Ising model on a grid, by diagonals."""

    columns: int
    origin: NDArray[np.int64]  # where row 0 of each diagonal stands, or would stand
    right: NDArray[np.float64]  # couplings to the right and below, and fields
    down: NDArray[np.float64]
    fields: NDArray[np.float64]

    def sweep(self, steps: Steps, key: NDArray[np.uint64], states: NDArray[np.int8]) -> None:
        """Take the states 0 and 1 of a chain through whole sweeps."""
        x = np.empty(len(states))
        waves.to_diagonals(self.columns, self.origin, states, x)
        shared = (self.columns, self.origin, self.right, self.down, self.fields)
        waves.sweep_diagonals(steps.repeats, steps.base, *shared, key[0], key[1], x)
        waves.from_diagonals(self.columns, self.origin, x, states)


def find_diagonals(region: Region, theta: NDArray[np.float64], fields: NDArray[np.float64]) -> Diagonals | None:
    """The diagonals of a large grid whose variables are numbered row by row; None for anything else."""
    n, first_row = region.size, region.neighbor[: region.start[1]]
    if len(first_row) != 2 or len(region.updated) < n:
        return None
    columns = int(first_row[1])
    rows, rest = divmod(n, columns)
    if rest or min(rows, columns) < SHORTEST_SIDE or not waves.is_grid(columns, region.start, region.neighbor):
        return None
    d = np.arange(rows + columns - 1)
    first = prefix_sums(np.minimum(np.minimum(d + 1, len(d) - d), min(rows, columns)))[:-1]
    origin = frozen(first - np.maximum(0, d - columns + 1))
    right, down, own = np.empty(n), np.empty(n), np.empty(n)
    waves.arrange_grid(columns, origin, region.start, theta, fields, right, down, own)
    return Diagonals(columns, origin, frozen(right), frozen(down), frozen(own))
