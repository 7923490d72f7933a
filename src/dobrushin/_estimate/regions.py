"""Regions around targets, grown until the effect of their boundary is small. [trusted: `laws`, `disagreement`]

The states of a region are summed with its boundary fixed. There are four bounds on the boundary effect. Where
couplings are attractive after relabelling states, it is bounded by the two extreme boundary states, or for joint laws
in a ferromagnet by a free boundary and an extreme one if these give less. Elsewhere it is bounded by Dobrushin's bound
for sweeps over the region, which leave the conditional law of the region invariant; where that bound misses the
tolerance, by messages along walks if they give less.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.correlations import Favours, favoured_states, laws_between
from dobrushin._estimate.query import Query
from dobrushin._exact.engine import Law, RegionFactors, sum_region, surroundings
from dobrushin._exact.order import Order, find_region_order
from dobrushin._exact.walks import boundary_effect
from dobrushin._optimize.greedy import MAX_BALL_VARIABLES, Ball, Reach
from dobrushin._scan import Cycle, Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import current_deadline
from dobrushin._variation import Objective, evaluate

# Seconds per table entry, per region and per variable of a region.
SECONDS_PER_CELL, SECONDS_PER_REGION, _SECONDS_PER_VARIABLE = 2.5e-9, 2e-3, 3e-5
# Sums with more table entries are not tried.
_MAX_SUM_CELLS = 2.0**34
# Numbers of sweeps tried for Dobrushin's bound; the next number is tried only if this one lowered the bound below this
# multiple of the one before.
_SWEEPS, _HELPS = (8, 32, 128), 0.98
# The first region leaves out variables with an influence below this power of the tolerance.
_FIRST_POWER = 1.8
# The search for a region ends if the logarithm of the bound falls by less than this for each unit by which the
# logarithm of the influence of the variables left out falls.
_LEAST_SLOPE = 0.02
# The names of the bounds on the boundary effect of a region.
EXTREMES, DOBRUSHIN, WALKS = "its two extreme states", "Dobrushin's bound", "messages along walks"
CORRELATIONS = "Griffiths' inequalities"
# Number of smaller regions tried to predict the bias of a region that is too expensive to sum.
_MAX_HALVINGS = 3


class WantedLaw(NamedTuple):
    """The variables whose law a question needs, alone or jointly, with their weights in the answer."""

    positions: NDArray[np.int64]
    weights: NDArray[np.float64]


class TargetRegion:
    """A region of variables around a target, with an elimination order and a bound on the effect of its boundary."""

    def __init__(self, query: Query, wanted: WantedLaw, ball: Ball, by_extremes: bool) -> None:
        self.query, self.wanted, self.ball, self.by_extremes = query, wanted, ball, by_extremes
        self.sweeps = 0  # number of sweeps over the region in Dobrushin's bound
        self.by_walks = False  # whether messages along walks give a smaller bound than Dobrushin's
        self.by_correlations = False  # whether a free boundary and an extreme one give less than two extremes
        self.is_summed = False  # whether the laws are known
        self._laws: list[Law] | None = None
        self._order: Order | None = None
        self._searched = 0.0  # number of table entries with which an order was searched for in vain

    @property
    def size(self) -> int:
        return len(self.ball.positions)

    @property
    def is_closed(self) -> bool:
        return not len(self.ball.border)

    @property
    def order(self) -> Order | None:
        """Return an elimination order; None if its tables are too large."""
        return self.order_within(_MAX_SUM_CELLS)

    def order_within(self, cells: float) -> Order | None:
        """Return an elimination order, searched for with at most `cells` table entries; None if none is found.

        An order that is already known is returned whatever its size.
        """
        if self._order is None and cells > self._searched:
            ball, form = self.ball, self.query.model._form
            states = form.cardinalities[ball.positions]
            inwards = np.empty(self.size, dtype=np.int64)
            inwards[ball.outwards[::-1]] = np.arange(self.size)
            self._order = find_region_order(ball.start, ball.neighbor, states, self.group, inwards, cells)
            self._searched = cells
        return self._order

    @property
    def group(self) -> NDArray[np.int64]:
        """Return the indices of the targets among the variables of the region."""
        return np.searchsorted(self.ball.positions, self.wanted.positions)

    @property
    def bounded_by(self) -> str:
        """Return the name of the bound on the boundary effect, for messages."""
        if self.by_extremes:
            return CORRELATIONS if self.by_correlations else EXTREMES
        return WALKS if self.by_walks else DOBRUSHIN

    @property
    def sums(self) -> int:
        """Return how many times the region has to be summed: once for each boundary state that the bound compares."""
        return 2 if self.by_extremes and not self.is_closed else 1

    @property
    def cells(self) -> float:
        """Return the number of clique table entries of all these sums together; infinity if there are too many."""
        return math.inf if self.order is None else self.sums * self.order.entries

    @property
    def seconds(self) -> float:
        """Return the expected seconds to bound the bias, including sums where the bound needs them."""
        sums = 0.0 if self.can_bound(0.0) else self.cells
        return SECONDS_PER_REGION + self.size * _SECONDS_PER_VARIABLE + sums * SECONDS_PER_CELL

    def fits(self, cells: float) -> bool:
        """Return whether the sums need at most `cells` table entries; the search for an order stops at this number."""
        order = self.order_within(min(cells / self.sums, _MAX_SUM_CELLS))
        return order is not None and self.sums * order.entries <= cells

    def can_bound(self, cells: float) -> bool:
        """Return whether `cells` table entries are enough to bound the bias; Dobrushin's bound needs no sum."""
        return (not self.by_extremes and not self.is_closed) or (cells > 0.0 and self.fits(cells))

    @cached_property
    def around(self) -> RegionFactors:
        """Return the factors with variables in the region."""
        return surroundings(self.query.model._form, self.ball.positions)

    @property
    def laws(self) -> list[Law] | None:
        """Return the law of the targets under each boundary that is summed; None if one has probability zero."""
        _ = self.disagreement  # chooses the boundaries
        return self._boundary_laws

    @property
    def _boundary_laws(self) -> list[Law] | None:
        if not self.is_summed:
            around, memory = self.around, self.query.model._memory.common
            if self.is_closed or not self.by_extremes or around.extremes is None:
                boundaries = [self.allowed_states(around.border)]
            else:
                boundaries = list(around.extremes[:2])
            if self.order is not None:
                self._laws = sum_region(around.fix(boundaries), self.order, self.group, memory)
            self.is_summed = True
        return self._laws

    def allowed_states(self, border: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return states of the boundary for which some state of the region is allowed."""
        form = self.query.model._form
        return self.query.space.start[border] if form.has_zeros else form.favourites(border)

    @cached_property
    def disagreement(self) -> NDArray[np.float64]:
        """Bound for each target the total variation distance between its summed law and its law in the model.

        With two extreme boundary states, the summed law is the mean of two, and the distance is at most half of their
        gap.
        """
        if self.is_closed:
            return np.zeros(len(self.wanted.positions))
        if not self.by_extremes:
            return self._by_influence()
        gaps = self._half_gaps()
        is_missed = float(self.wanted.weights @ gaps) > self.query.tolerance
        is_joint = len(gaps) > 1 and self._boundary_laws is not None
        return self._less_than(gaps) if is_missed and is_joint else gaps

    def _less_than(self, gaps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return smaller bounds on the targets' distances if a ferromagnet has them, else the given bounds (`gaps`).

        The smaller bounds compare joint laws under a free boundary and under the favoured boundary states; these laws
        are then kept.
        """
        favours = self._favours
        if favours is None or self.order is None:
            return gaps
        found = laws_between(self.query.model, favours, self.around, self.order, self.group)
        if found is None:
            return gaps
        # The distance of joint laws bounds how often each variable disagrees.
        other = np.full(len(gaps), found[1])
        self.by_correlations = bool(self.wanted.weights @ other < self.wanted.weights @ gaps)
        if not self.by_correlations:
            return gaps
        self._laws = found[0]
        return other

    @property
    def _favours(self) -> Favours | None:
        """Return the states that the couplings and fields of a ferromagnet favour.

        Return None if only a part of the model is in memory, if a proof is wanted, or if the model is no ferromagnet.
        """
        return None if self.query.is_part or self.query.proof else favoured_states(self.query.model)

    def _half_gaps(self) -> NDArray[np.float64]:
        laws, extremes = self._boundary_laws, self.around.extremes
        if laws is None or extremes is None:
            return np.ones(len(self.wanted.positions))
        kept = self.group
        lowest, highest = (law.probabilities for law in laws)
        shape = (2,) * len(kept)
        gaps = np.empty(len(kept))
        error = sum(law.error + law.loss * len(lowest) for law in laws) + 2.0**-50 * len(lowest)
        for axis, variable in enumerate(kept.tolist()):
            others = tuple(a for a in range(len(kept)) if a != axis)
            state = int(extremes[2][variable])
            up, down = (law.reshape(shape).sum(axis=others)[state] for law in (highest, lowest))
            gaps[axis] = max(0.0, float(up) - float(down)) + error
        return np.minimum(1.0, 0.5 * gaps * (1.0 + 2.0**-50))

    def _by_influence(self) -> NDArray[np.float64]:
        """Bound the boundary effect by Dobrushin's bound for sweeps inwards, or by messages along walks."""
        wanted, ball = self.wanted, self.ball
        rank = np.argsort(wanted.positions)
        objective = Objective(wanted.positions[rank], np.ones(len(rank)), False)
        inwards = frozen(ball.positions[ball.outwards[::-1]])
        best = np.ones(len(rank))
        for sweeps in _SWEEPS:
            scan = Scan._of((Cycle(inwards, 0, sweeps * len(inwards)),))
            bounds = evaluate(self.query.space.rows, scan, objective).target_bounds
            helps = bounds.sum() < _HELPS * best.sum()
            self.sweeps = sweeps
            best = np.minimum(best, bounds)
            if not helps:
                break
        result = np.empty(len(rank))
        result[rank] = best
        if self.query.proof or best.sum() <= self.query.tolerance:
            return result
        other = boundary_effect(self.around, self.group)
        self.by_walks = bool(other.sum() < result.sum())
        return other if self.by_walks else result

    @property
    def bias(self) -> float:
        """Return the sum of the targets' disagreements, times their weights in the answer (not rounded upwards)."""
        return float(self.wanted.weights @ self.disagreement)


class Growth:
    """The search for a region around one target, which grows until the bias is small enough or sums cost too much."""

    def __init__(self, query: Query, wanted: WantedLaw, goal: float) -> None:
        self.query, self.wanted, self.goal = query, wanted, goal
        self.limit = MAX_BALL_VARIABLES  # largest number of variables of a region
        self.by_extremes = True
        self.history: list[tuple[float, float]] = []  # -log(influence left out), -log(bias) of each region
        self.best: TargetRegion | None = None  # the region with the smallest bias so far
        self.next: TargetRegion | None = None  # the region to be summed next

    @cached_property
    def reach(self) -> Reach:
        """Return the variables around the targets, those of strongest influence first."""
        return Reach(self.query.space.rows, self.wanted.positions)

    @property
    def is_done(self) -> bool:
        """Return whether the bias of the best region reaches the goal."""
        return self.best is not None and self.best.bias <= self.goal

    def look(self, cells: float) -> None:
        """Grow the region while its sums need at most `cells` table entries, then predict how far it has to grow."""
        x, halvings = self._step(), 0
        while not self.is_done and x is not None:
            current_deadline().check("a region around a target")
            region = self._region(x)
            if region is None:
                break
            if region.can_bound(cells):
                current_deadline().charge(region.seconds, f"a region of {region.size} variables")
                x = self._step() if self._take(region) else x
                continue
            # Too expensive for now: the bias of a smaller region improves the prediction.
            halvings += 1
            x = 0.5 * (x + (self.history[-1][0] if self.history else 0.0))
            smaller = self._region(x)
            if smaller is None or smaller.size >= region.size or halvings > _MAX_HALVINGS:
                break
        x = self._predict()
        self.next = self.best if self.is_done else None if x is None else self._region(x)

    def limit_growth(self) -> None:
        """Limit later growth to the planned region and, in case it misses the goal, a few more variables."""
        region = self.next if self.next is not None else self.best
        self.limit = 0 if region is None else region.size
        if region is not None and not self.is_done:
            self.limit = self.reach.grow(self.reach.grow(self.limit + 1) + 1)

    def shrink_to(self, cells: float) -> None:
        """Replace `best`, if its sums need more than `cells` table entries, by a smaller region."""
        least = len(self.wanted.positions)
        size = self.reach.grow(least) if self.best is None else self.best.size
        while self.best is None or (not self.best.fits(cells) and size > least):
            size = max(least, size // 2)
            region = TargetRegion(self.query, self.wanted, self.reach.ball(size), self.by_extremes)
            if region.fits(cells) or size == least:
                self.best = None
                self._take(region)

    def _take(self, region: TargetRegion) -> bool:
        """Bound the bias of a region and remember it; return False if extreme boundary states give no bound here."""
        if region.by_extremes and not region.is_closed and (region.around.extremes is None or region.laws is None):
            self.by_extremes = False
            self.history.clear()
            self.best = None
            return False
        bias = region.bias
        if self.best is None or bias < self.best.bias:
            self.best = region
        self.history.append((-math.log(self.reach.strength(region.size)), -math.log(max(bias, 1e-300))))
        return True

    def _predict(self) -> float | None:
        """Predict how far a region has to reach for the goal, as -log of the influence that it leaves out.

        Return None if no region is expected to reach the goal.
        """
        goal = -math.log(self.goal)
        if not self.history:
            return _FIRST_POWER * goal
        x, y = self.history[-1]
        trivial = float(self.wanted.weights.sum()) * (0.5 if self.by_extremes else 1.0)
        x0, y0 = self.history[-2] if len(self.history) > 1 else (0.0, -math.log(trivial))
        slope = (y - y0) / (x - x0) if x > x0 else 0.0
        return None if slope < _LEAST_SLOPE else x + max((goal - y) / slope, 0.0)

    def _step(self) -> float | None:
        """Return how far the next region reaches, as -log of the influence that it leaves out; None to give up."""
        x = self._predict()
        if not self.history:
            return x
        last = self.history[-1][0]
        if x is None:
            # One region is not enough to give up: the bound of a small region may be vacuous.
            return None if len(self.history) > 2 or last > 40.0 else 1.5 * last + 1.0
        return min(x, 2.5 * last + 2.0)

    def _region(self, x: float) -> TargetRegion | None:
        """Return the region of all variables with an influence of at least exp(-x) on the targets.

        Return None if it is too large, or no larger than the best region so far.
        """
        least = len(self.wanted.positions) if self.best is None else self.best.size + 1
        size = self.reach.grow(least, math.exp(-x), self.limit + 1)
        # Variables come in layers of equal influence: end at the layer whose influence is closest to exp(-x).
        larger = self.reach.grow(size + 1, most=self.limit + 1)
        middle = math.sqrt(self.reach.strength(size) * self.reach.strength(larger))
        size = larger if math.exp(-x) < middle and larger <= self.limit else size
        if not (self.best.size if self.best else 0) < size <= self.limit:
            return None
        return TargetRegion(self.query, self.wanted, self.reach.ball(size), self.by_extremes)
