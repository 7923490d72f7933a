"""Some variables of a larger model, with numbers of their own; and the one way back to the larger model."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.forms import Form
from dobrushin._shared.arrays import distinct, frozen, prefix_sums, row_entries

if TYPE_CHECKING:
    from dobrushin._models.model import Model


@dataclass(frozen=True)
class Numbering:
    """Some of `n` variables: number k is that of the variable at positions[k].

    Scans, certificates, plans and estimates of the part have a method `lift(numbering)` that brings them to the whole.
    """

    n: int
    positions: NDArray[np.int64]  # increasing

    @property
    def size(self) -> int:
        """How many variables there are in the part."""
        return len(self.positions)

    def own(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of some positions that are in the part."""
        if self.size and self.positions[-1] == self.size - 1:
            return positions
        return np.searchsorted(self.positions, positions)

    def holds(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some positions are in the part."""
        return self.positions[np.minimum(np.searchsorted(self.positions, positions), self.size - 1)] == positions

    def within(self, outer: Numbering) -> Numbering:
        """Number the same variables in a model that the larger one is itself a part of."""
        return Numbering(outer.n, outer.positions[self.positions])

    def spread(self, values: NDArray[Any], elsewhere: Any) -> NDArray[Any]:
        """An array over the larger model with the part's values, and others elsewhere."""
        whole = np.full(self.n, elsewhere) if np.ndim(elsewhere) == 0 else elsewhere.copy()
        whole[self.positions] = values
        return whole

    def take(self, values: Any) -> NDArray[Any]:
        """The part's entries of an array over the larger model; or one number for each of them."""
        return np.full(self.size, float(values)) if np.ndim(values) == 0 else values[self.positions]

    def look_up(self, values: NDArray[Any], positions: NDArray[np.int64], elsewhere: Any) -> NDArray[Any]:
        """The part's values at some positions of the larger model, and others where they are not in the part."""
        if self.size == self.n:
            return values[positions]
        number = np.minimum(np.searchsorted(self.positions, positions), self.size - 1)
        elsewhere = elsewhere if np.ndim(elsewhere) == 0 else elsewhere[positions]
        return np.where(self.positions[number] == positions, values[number], elsewhere)


@dataclass(frozen=True)
class Part:
    """An ordinary model of the variables near some others, labelled by their positions in the whole."""

    model: Model
    inner: NDArray[np.bool_]  # which of its variables have all their neighbours in it
    numbering: Numbering

    def holds(self, label: Hashable) -> bool:
        """Whether a variable of the whole is in the part."""
        return bool(self.numbering.holds(np.array([label]))[0])


@dataclass(frozen=True)
class Region:
    """Some variables that are updated and their neighbours, with numbers of their own.

    Rows of neighbours, CSR, are there only for the variables that are updated.
    """

    numbering: Numbering  # in the model
    updated: NDArray[np.int64]  # own numbers
    start: NDArray[Any]
    neighbor: NDArray[Any]  # own numbers
    place: NDArray[np.int64]  # of each variable in the form: that of the model, or of a part of it
    entry: NDArray[np.int64] | slice  # where each neighbour stands in the form's adjacency

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.numbering.size

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position of each variable in the model."""
        return self.numbering.positions

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


def region_of(form: Form, updated: NDArray[np.int64]) -> Region:
    """Return the region that updates of the variables at increasing positions read, without touching the rest."""
    n, (start, neighbor) = form.n_variables, form.adjacency
    if len(updated) == n:
        return Region(Numbering(n, updated), updated, start, neighbor, updated, slice(None))
    sizes = (start[updated + 1] - start[updated]).astype(np.int64)
    _, entry = row_entries(start[updated].astype(np.int64), sizes)
    seen = neighbor[entry]
    positions = distinct(np.concatenate([updated, seen]), n)
    own = np.searchsorted(positions, updated)
    row_start = prefix_sums(Numbering(len(positions), own).spread(sizes, 0)).astype(np.int32)
    row_neighbor = np.searchsorted(positions, seen).astype(np.int32)
    return Region(Numbering(n, positions), own, frozen(row_start), frozen(row_neighbor), positions, entry)
