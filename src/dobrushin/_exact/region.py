"""Exact sums over a region, with its boundary fixed. [trusted]

The factors that touch the region are conditioned on the states of its boundary, and summed by the engine for exact
sums. For binary models without frustration, the two extreme boundary states are found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dobrushin._exact.arithmetic import NoAllowedState, Working
from dobrushin._exact.engine import plan_in_order
from dobrushin._exact.order import Order
from dobrushin._kernels.orders import two_colour
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import DivisibleForm, Form
from dobrushin._models.memory import Memory
from dobrushin._models.near import Numbering
from dobrushin._shared.arrays import Bools, Floats, Ints, distinct, frozen, is_among, prefix_sums
from dobrushin._shared.call import NO_DEADLINE
from dobrushin._shared.compile import code_for


@dataclass(frozen=True)
class Surroundings:
    """The factors that touch a region: over its variables and their neighbours outside."""

    numbering: Numbering  # of all these variables in the model
    inside: Bools
    factors: FactorTables

    @property
    def border(self) -> Ints:
        """Positions of the variables outside."""
        return self.numbering.positions[~self.inside]

    def fix(self, digits: Ints) -> FactorTables:
        """Return the factors over the region alone, with the variables outside in these states; nothing is rounded."""
        state = np.zeros(len(self.inside), dtype=np.int64)
        state[~self.inside] = digits
        return self.factors.cut(self.inside, state)

    @cached_property
    def extremes(self) -> tuple[Ints, Ints, Ints] | None:
        """Return the lowest and the highest boundary states, and which state of each inner variable is the higher one.

        For binary variables with pair factors that are attractive after relabelling states; None for other models.
        """
        factors = self.factors
        arity = np.diff(factors.scope_start)
        if (factors.sizes != 2).any() or (arity > 2).any():
            return None
        pairs = np.flatnonzero(arity == 2)
        ends = factors.scope[factors.scope_start[pairs, None] + np.arange(2)]
        signs = pair_signs(factors.table[factors.table_start[pairs, None] + np.arange(4)])
        ends, signs = ends[signs != 0], signs[signs != 0]
        high = np.ones(len(self.inside), dtype=np.int64)
        if (signs < 0).any():
            owner, other = ends.T.ravel(), ends[:, ::-1].T.ravel()
            order = np.argsort(owner, kind="stable")
            start = prefix_sums(np.bincount(owner, minlength=len(high)))
            sign = np.concatenate([signs, signs])[order]
            high = code_for(two_colour, 8 * len(other))(frozen(start), frozen(other[order]), frozen(sign))
        if high[0] < 0:  # frustrated
            return None
        outside = high[~self.inside]
        return 1 - outside, outside, high[self.inside]


def pair_signs(tables: Floats) -> Ints:
    """Return whether tables (00, 01, 10, 11) of binary pairs are attractive (+1), repulsive (-1) or neither (0).

    The sign of t_00 + t_11 - t_01 - t_10, without rounding. A product of weights that is 0 on both sides is neither.
    """
    equal, unequal = tables[:, (0, 3)], tables[:, (1, 2)]
    with np.errstate(invalid="ignore"):
        gap = equal.sum(axis=1) - unequal.sum(axis=1)
        doubtful = np.abs(gap) <= 2.0**-50 * np.abs(tables).sum(axis=1)
    signs = np.where(np.isnan(gap), 0.0, np.sign(gap))
    for k in np.flatnonzero(doubtful & np.isfinite(tables).all(axis=1)).tolist():
        a, b, c, d = tables[k].tolist()
        signs[k] = np.sign(math.fsum((a, d, -b, -c)))
    return signs.astype(np.int64)


def surroundings(form: Form, inside: Ints) -> Surroundings:
    """Return the factors that touch the variables at increasing positions; no other factor is read."""
    if isinstance(form, FactorTables) or not isinstance(form, DivisibleForm):
        own, factors = form.tables().touching(inside)
    else:
        near = distinct(np.concatenate([inside, form.neighbors_at(inside)]), form.n_variables)
        is_inside = is_among(near, inside)
        own, factors = form.part(near, is_inside).tables().touching(np.flatnonzero(is_inside))
        own = near[own]
    return Surroundings(Numbering(form.n_variables, own), frozen(is_among(own, inside)), factors)


class Law(NamedTuple):
    """The joint law of a group of variables, in C order; a probability p is off by at most `error` p + `loss`."""

    probabilities: Floats
    error: float
    loss: float


def sum_region(tables: Sequence[FactorTables], order: Order, group: Ints, memory: Memory) -> list[Law] | None:
    """Return the law of a group in each of some tables with the same scopes; None if one allows no state."""
    plan = plan_in_order(tables[0], [tuple(group.tolist())], order.variables, memory)
    try:
        sums = [plan.run(each, working=Working(NO_DEADLINE)) for each in tables]
    except NoAllowedState:
        return None
    return [Law(each.marginals[0].ravel(), each.relative, each.absolute) for each in sums]
