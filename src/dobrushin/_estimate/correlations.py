"""Laws in a region of a ferromagnet, between those with a free and with an extreme boundary. [trusted]

Theory page, "The boundary: free and extreme". All couplings of the model are attractive and all its fields favour one
state, after relabelling. Then the mean of every product of spins lies between its means without the boundary and with
the boundary in the favoured states (Griffiths), at any temperature.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dobrushin._coalescence.ferromagnet import read_ferromagnet
from dobrushin._exact.engine import Law, RegionFactors, sum_region
from dobrushin._exact.order import Order
from dobrushin._models import Model
from dobrushin._models.memory import Slot
from dobrushin._shared.arrays import Bools, Floats, Ints
from dobrushin.errors import CertificateError


class Favours(NamedTuple):
    """The states that the fields and couplings of a ferromagnet of binary variables make more likely."""

    states: Ints  # of each variable
    has_field: Bools  # whether its component has a field
    component: Ints
    error: float  # of the log-density, by rounding of potentials


_FAVOURS: Slot[Favours | None] = Slot("favoured states")


def favoured_states(model: Model) -> Favours | None:
    """Return the states that fields and couplings make more likely.

    Return None if the model is no ferromagnet of binary variables.
    """
    return model._memory.get(_FAVOURS, lambda: _read(model))


def _read(model: Model) -> Favours | None:
    try:
        magnet = read_ferromagnet(model)
    except CertificateError:
        return None
    if magnet.q != 2:
        return None
    every = np.arange(len(magnet.favourite))
    states = magnet.gauge[every, magnet.favourite].astype(np.int64)
    return Favours(states, magnet.has_field(every), magnet.component.astype(np.int64), magnet.error)


def laws_between(
    model: Model, favours: Favours, around: RegionFactors, order: Order, group: Ints
) -> tuple[list[Law], float] | None:
    """Return laws of some variables of a region: with a free boundary, and with the favoured states on the boundary.

    Also return a bound on the total variation distance between their average and the law in the model. `group` has the
    variables, as places in the region. Return None if the sums fail.
    """
    border, memory = around.border, model._memory.common
    free = sum_region([around.without_border()], order, group, memory)
    tied = sum_region(around.fix([favours.states[border]]), order, group, memory)
    if free is None or tied is None:
        return None
    targets = around.numbering.positions[around.inside][group]
    laws = [law._replace(probabilities=_even(law.probabilities, favours, targets)) for law in (*free, *tied)]
    size = len(laws[0].probabilities)
    low, high = (_moments(law.probabilities, favours.states[targets]) for law in laws)
    # A mean of a product is a sum of all probabilities with signs.
    error = sum(law.error + law.loss * size for law in laws) + 2.0**-50 * size
    gaps = np.maximum(high - low, 0.0).ravel()[1:] + error
    # A model within `favours.error` is the ferromagnet: its law, those of the region and the gaps differ by this.
    rounding = size * math.expm1(min(2.0 * favours.error, 1.0))
    distance = 0.25 * float(gaps.sum()) + rounding
    return laws, min(1.0, distance * (1.0 + 2.0**-40))


def _even(probabilities: Floats, favours: Favours, targets: Ints) -> Floats:
    """Average a law with its mirror images: both states of all variables of a component without fields are exchanged.

    The law in the model is its own mirror image. The average has the same means of all products of spins that the
    exchange does not change.
    """
    law = probabilities.reshape((2,) * len(targets))
    component = favours.component[targets]
    for c in np.unique(component[~favours.has_field[targets]]).tolist():
        law = 0.5 * (law + np.flip(law, tuple(np.flatnonzero(component == c).tolist())))
    return law.ravel()


def _moments(probabilities: Floats, favoured: Ints) -> Floats:
    """Return the means of the products of all subsets of spins, which are +1 in the favoured states; 1 for no spins."""
    moments = probabilities.reshape((2,) * len(favoured))
    for axis, state in enumerate(favoured.tolist()):
        up, down = moments.take(state, axis), moments.take(1 - state, axis)
        moments = np.stack([up + down, up - down], axis)
    return moments
