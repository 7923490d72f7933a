"""Parts of models: some variables near others, with numbers of their own, and the way back to the whole model.

The part near some variables is an ordinary model. Its inner variables, whose neighbours are all in it, have the
conditional laws that they have in the whole model. So whatever updates inner variables only (a scan, its certificate,
its chains, its bounding sets) is the same in the part as in the whole.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin._models.forms import Form, PartSource, own_numbers
from dobrushin._shared.arrays import Array, Bools, Ints, distinct, frozen, is_among, prefix_sums, rows_at
from dobrushin.errors import BudgetError

if TYPE_CHECKING:
    from dobrushin._models.model import Model


# Variables of the largest part. Larger parts are not worth their memory.
_MAX_VARIABLES = 4 * 10**6
# Variables that a part of radius 8 may have, in all and for each centre; twice the radius may have four times as many.
# Grids stay far below. Where every variable has many neighbours, the part is cut so that it does not become the model.
_VARIABLES_OF_PART, _VARIABLES_PER_CENTRE = 2**14, 2**8


@dataclass(frozen=True)
class Numbering:
    """Some of `n` variables: number k is that of the variable at positions[k].

    Scans, certificates, plans and estimates of the part have a method that renumbers them for the whole.
    """

    n: int
    positions: Ints  # increasing

    @property
    def size(self) -> int:
        """Number of variables in the part."""
        return len(self.positions)

    def own(self, positions: Ints) -> Ints:
        """Return the numbers of some positions that are in the part."""
        return own_numbers(self.positions, positions)

    def holds(self, positions: Ints) -> Bools:
        """Return which of some positions are in the part."""
        return is_among(positions, self.positions)

    def within(self, outer: Numbering) -> Numbering:
        """Number the same variables in a model that the larger one is itself a part of."""
        return Numbering(outer.n, outer.positions[self.positions])

    def spread(self, values: Array, elsewhere: Any) -> Array:
        """Return an array over the larger model: the part's values, and `elsewhere` for other variables."""
        whole = np.full(self.n, elsewhere) if np.ndim(elsewhere) == 0 else elsewhere.copy()
        whole[self.positions] = values
        return whole

    def take(self, values: Any) -> Array:
        """Return the part's entries of an array over the larger model; of a number, that many copies."""
        return np.full(self.size, float(values)) if np.ndim(values) == 0 else values[self.positions]

    def look_up(self, values: Array, positions: Ints, elsewhere: Any) -> Array:
        """Return the part's values at some positions of the larger model, `elsewhere` at positions outside."""
        if self.size == self.n:
            return values[positions]
        number = np.minimum(np.searchsorted(self.positions, positions), self.size - 1)
        elsewhere = elsewhere if np.ndim(elsewhere) == 0 else elsewhere[positions]
        return np.where(self.positions[number] == positions, values[number], elsewhere)


def find_ball(parts: PartSource, centres: Ints, radius: int) -> tuple[Ints, Bools]:
    """Find the variables within `radius` edges of the centres; fewer in dense graphs, but the centres' neighbours.

    Returns
    -------
    positions : array
        Increasing.
    is_inner : array of bool
        Which of them have all their neighbours among them.
    """
    border = np.unique(centres)
    layers, inner, before, size = [border], [], border[:0], len(border)
    room = (_VARIABLES_OF_PART + _VARIABLES_PER_CENTRE * size) * radius**2 // 64
    for layer in range(radius):
        degrees = parts.degrees_at(border)
        is_cut = bool(layer and size + degrees.sum() > room)
        if is_cut:
            # Variables with few neighbours come first: a hub would exhaust the limit alone.
            order = np.argsort(degrees, kind="stable")
            few = np.sort(order[np.cumsum(degrees[order]) <= room - size])
            border, degrees = border[few], degrees[few]
        if not len(border):
            break
        _require_room(int(degrees.max()))  # before the neighbours are read
        inner.append(border)
        # A neighbour of a layer is in the layer, in the one before or in the next.
        found = distinct(parts.neighbors_at(border), parts.n_variables)
        found = found[~(is_among(found, layers[-1]) | is_among(found, before))]
        before, border, size = layers[-1], found, size + len(found)
        layers.append(found)
        _require_room(size)
        if is_cut:
            break
    positions = np.unique(np.concatenate(layers))
    return positions, is_among(positions, np.unique(np.concatenate(inner)))


def _require_room(size: int) -> None:
    if size > _MAX_VARIABLES:
        remedy = "The influence near the targets decays too slowly: try a larger tolerance."
        raise BudgetError("The part of the model around the targets", size, _MAX_VARIABLES, "variables", remedy)


@dataclass(frozen=True)
class ModelPart:
    """An ordinary model of the variables near some others, labelled by their positions in the whole model."""

    model: Model
    inner: Bools  # which of its variables have all their neighbours in it
    numbering: Numbering

    def holds(self, label: Hashable) -> bool:
        """Return whether a variable of the whole model is in the part."""
        return bool(self.numbering.holds(np.array([label]))[0])


@dataclass(frozen=True)
class Region:
    """Some variables that are updated and their neighbours, with numbers of their own.

    Only variables that are updated have rows of neighbours, CSR.
    """

    numbering: Numbering  # in the model
    updated: Ints  # own numbers
    start: Array
    neighbor: Array  # own numbers
    place: Ints  # of each variable in the form: that of the model, or of a part of it
    entry: Ints | slice  # where each neighbour stands in the form's adjacency

    @property
    def size(self) -> int:
        """Number of variables."""
        return self.numbering.size

    @property
    def positions(self) -> Ints:
        """Position of each variable in the model."""
        return self.numbering.positions

    @property
    def degree(self) -> int:
        """Most neighbours of an updated variable."""
        return int(np.diff(self.start).max(initial=0))

    @property
    def row(self) -> Ints:
        """For each entry of `neighbor`, the variable whose neighbour it is."""
        return np.repeat(np.arange(self.size), np.diff(self.start))

    @property
    def slot(self) -> Ints:
        """For each entry of `neighbor`, its place among the neighbours of the same variable."""
        return np.arange(len(self.neighbor)) - np.repeat(self.start[:-1], np.diff(self.start))


def region_of(form: Form, updated: Ints) -> Region:
    """Return the region that updates of the variables at increasing positions read, without touching the rest."""
    n, (start, neighbor) = form.n_variables, form.adjacency
    if len(updated) == n:
        return Region(Numbering(n, updated), updated, start, neighbor, updated, slice(None))
    own_start, entry = rows_at(start, updated)
    seen = neighbor[entry]
    positions = distinct(np.concatenate([updated, seen]), n)
    own = np.searchsorted(positions, updated)
    row_start = prefix_sums(Numbering(len(positions), own).spread(np.diff(own_start), 0)).astype(np.int32)
    row_neighbor = np.searchsorted(positions, seen).astype(np.int32)
    return Region(Numbering(n, positions), own, frozen(row_start), frozen(row_neighbor), positions, entry)
