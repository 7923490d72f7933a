"""The part of a model that a scan can see: the variables it updates and their neighbours."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import Model
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen, prefix_sums, row_entries
from dobrushin.errors import ArgumentError


@dataclass(frozen=True)
class Region:
    """Variables numbered by their place in `positions`; rows of neighbours only for those that are updated."""

    positions: NDArray[np.int64]
    updated: NDArray[np.int64]  # own numbers
    start: NDArray[Any]
    neighbor: NDArray[Any]  # own numbers
    entry: NDArray[np.int64] | slice  # where each neighbour stands in the model's own list

    @property
    def size(self) -> int:
        """Number of variables."""
        return len(self.positions)

    @property
    def degree(self) -> int:
        """Most neighbours of an updated variable."""
        return int(np.diff(self.start).max(initial=0))

    @property
    def row(self) -> NDArray[np.int64]:
        """For each entry of `neighbor`, whose neighbour it is."""
        return np.repeat(np.arange(self.size), np.diff(self.start))

    @property
    def slot(self) -> NDArray[np.int64]:
        """For each entry of `neighbor`, its place among the neighbours of the same variable."""
        return np.arange(len(self.neighbor)) - np.repeat(self.start[:-1], np.diff(self.start))

    def local(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Own numbers of positions that are in the region."""
        if len(self.positions) and self.positions[-1] == len(self.positions) - 1:
            return positions
        return np.searchsorted(self.positions, positions)

    def rows_of(self, model: Model, labels: Iterable[Hashable] | None, function: str) -> NDArray[np.int64]:
        """Own numbers of the variables with these labels; None: of all."""
        if labels is None:
            return np.arange(self.size)
        wanted = check.positions(list(labels), model.labels, model._lookup, function, "record")
        rows = np.minimum(np.searchsorted(self.positions, wanted), self.size - 1)
        if (missing := self.positions[rows] != wanted).any():
            label = model.labels[int(wanted[int(np.argmax(missing))])]
            raise ArgumentError(function, "record", "variables that the scan updates, or their neighbours", label)
        return rows


def region_of(model: Model, scan: Scan) -> Region:
    """What the scan can see of the model; nothing else of it is touched."""
    n = model.n_variables
    updated = scan.updates(n)
    start, neighbor = model._form.adjacency
    if len(updated) == n:
        return Region(updated, updated, start, neighbor, slice(None))
    first, sizes = start[updated].astype(np.int64), (start[updated + 1] - start[updated]).astype(np.int64)
    _, entry = row_entries(first, sizes)
    seen = neighbor[entry]
    positions = np.union1d(updated, seen)
    own = np.searchsorted(positions, updated)
    row_sizes = np.zeros(len(positions), dtype=np.int64)
    row_sizes[own] = sizes
    local_start = prefix_sums(row_sizes).astype(np.int32)
    local_neighbor = np.searchsorted(positions, seen).astype(np.int32)
    return Region(positions, own, frozen(local_start), frozen(local_neighbor), entry)
