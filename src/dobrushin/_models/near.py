"""Parts of models: some variables of a model as a model of their own, and the renumbering back.

An inner variable of a part is one whose neighbours are all in the part. Its conditional laws are the same in the part
and in the whole model. So a scan that updates inner variables only has the same certificate, chains and bounding sets
in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin._models.forms import Form, PartSource, own_numbers
from dobrushin._shared.arrays import Array, Bools, Ints, distinct, frozen, is_among, prefix_sums, rows_at
from dobrushin.errors import BudgetError

if TYPE_CHECKING:
    from dobrushin._models.model import Model


# Variables of the largest part that is made.
_MAX_VARIABLES = 4 * 10**6
# Variables that a part of radius 8 may have, in all and for each centre; the limit grows with the square of the radius.
# Grids stay far below. The limit keeps a part of a dense graph from becoming the whole model.
_VARIABLES_OF_PART, _VARIABLES_PER_CENTRE = 2**14, 2**8


@dataclass(frozen=True)
class Numbering:
    """Positions in a model of the variables of a part: variable k of the part is at positions[k] in the model.

    Scans, certificates, plans and estimates of a part have a method that renumbers them for the whole model.
    """

    n: int
    positions: Ints  # increasing

    @cached_property
    def size(self) -> int:
        return len(self.positions)

    def own(self, positions: Ints) -> Ints:
        """Return the numbers in the part of the variables at these positions, which must all be in the part."""
        return own_numbers(self.positions, positions)

    def holds(self, positions: Ints) -> Bools:
        """Return which of these positions belong to variables in the part."""
        return is_among(positions, self.positions)

    def within(self, outer: Numbering) -> Numbering:
        """Return the numbering of the same variables in a larger model.

        `outer` numbers the current model as a part of the larger one.
        """
        return Numbering(outer.n, outer.positions[self.positions])

    def spread(self, values: Array, elsewhere: Any) -> Array:
        """Extend an array over the part to the whole model, with the value `elsewhere` for all other variables."""
        whole = np.full(self.n, elsewhere) if np.ndim(elsewhere) == 0 else elsewhere.copy()
        whole[self.positions] = values
        return whole

    def take(self, values: Any) -> Array:
        """Restrict an array over the whole model to the part; a single number is repeated for each variable."""
        return np.full(self.size, float(values)) if np.ndim(values) == 0 else values[self.positions]

    def look_up(self, values: Array, positions: Ints, elsewhere: Any) -> Array:
        """Return the entries of an array over the part at positions in the whole model.

        Positions outside the part have the value `elsewhere`.
        """
        if self.size == self.n:
            return values[positions]
        number = np.minimum(np.searchsorted(self.positions, positions), self.size - 1)
        elsewhere = elsewhere if np.ndim(elsewhere) == 0 else elsewhere[positions]
        return np.where(self.positions[number] == positions, values[number], elsewhere)


def find_ball(parts: PartSource, centres: Ints, radius: int) -> tuple[Ints, Bools]:
    """Return the variables within `radius` edges of the centres; in dense graphs only some, to limit their number.

    Returns
    -------
    positions : array
        Increasing.
    is_inner : array of bool
        Which of the positions have all their neighbours among the positions.
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
    """A part of a model as a model by itself; labels are the positions in the whole model."""

    model: Model
    inner: Bools  # which variables of the part have all their neighbours in the part
    numbering: Numbering


@dataclass(frozen=True)
class ScanRegion:
    """The variables that a scan updates together with their neighbours, numbered 0, 1, ... within the region.

    `start` and `neighbor` hold the neighbours of the updated variables as CSR arrays; rows of other variables are
    empty.
    """

    numbering: Numbering  # in the model
    updated: Ints  # by number in the region
    start: Array
    neighbor: Array  # by number in the region
    place: Ints  # of each variable in the form: that of the model, or of a part of it
    entry: Ints | slice  # where each neighbour stands in the form's adjacency

    @cached_property
    def size(self) -> int:
        return self.numbering.size

    @cached_property
    def positions(self) -> Ints:
        """Return the position in the model of each variable of the region."""
        return self.numbering.positions

    @cached_property
    def degree(self) -> int:
        """Return the largest number of neighbours of an updated variable."""
        return int(np.diff(self.start).max(initial=0))

    @property
    def row(self) -> Ints:
        """Return, for each entry of `neighbor`, the variable that has this neighbour."""
        return np.repeat(np.arange(self.size), np.diff(self.start))

    @property
    def slot(self) -> Ints:
        """Return, for each entry of `neighbor`, its index among the neighbours of the same variable."""
        return np.arange(len(self.neighbor)) - np.repeat(self.start[:-1], np.diff(self.start))


def region_of(form: Form, updated: Ints) -> ScanRegion:
    """Return the region of the variables at increasing positions `updated`, in time proportional to its size."""
    n, (start, neighbor) = form.n_variables, form.adjacency
    if len(updated) == n:
        return ScanRegion(Numbering(n, updated), updated, start, neighbor, updated, slice(None))
    own_start, entry = rows_at(start, updated)
    seen = neighbor[entry]
    positions = distinct(np.concatenate([updated, seen]), n)
    own = np.searchsorted(positions, updated)
    row_start = prefix_sums(Numbering(len(positions), own).spread(np.diff(own_start), 0)).astype(np.int32)
    row_neighbor = np.searchsorted(positions, seen).astype(np.int32)
    return ScanRegion(Numbering(n, positions), own, frozen(row_start), frozen(row_neighbor), positions, entry)
