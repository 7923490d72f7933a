"""Regions around targets, grown until what is outside hardly matters. [trusted: `Region.laws`, `Region.disagreement`]

Inside a region everything is summed, with the variables outside fixed. What the others can do is bounded in one of two
ways: by the two extreme states outside, where the model likes equal neighbours up to names; else by Dobrushin's bound
for sweeps over the region, which leave the law inside as it is.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.query import Query
from dobrushin._exact.region import Factors, Law, Order, RegionSum, Surroundings, find_order, surroundings
from dobrushin._optimize.greedy import MOST_VARIABLES, Ball, Reach
from dobrushin._scan import Cycle, Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.deadline import current
from dobrushin._variation import Objective, evaluate

# About how long a cell, a region and each of its variables take.
SECONDS_PER_CELL, SECONDS_PER_REGION, _SECONDS_PER_VARIABLE = 2.5e-9, 2e-3, 3e-5
# Larger sums are not tried.
_MAX_SUM_CELLS = 2.0**34
# Sweeps of Dobrushin's bound over a region, as long as more of them help.
_SWEEPS, _HELPS = (8, 32, 128), 0.98
# Where a search begins: a variable counts as far away if its influence is below this power of the tolerance.
_FIRST_POWER = 1.8
# A bound that falls more slowly than this, against the influence of what is left out, will not get there.
_LEAST_SLOPE = 0.02
# Smaller regions that are tried before a prediction is made for one that is too dear.
_MOST_HALVINGS = 3


class Wanted(NamedTuple):
    """A law that is asked for: of one variable, or of some jointly."""

    positions: NDArray[np.int64]
    weights: NDArray[np.float64]


class Region:
    """Variables around a target, the order in which they are summed, and what those outside can do."""

    def __init__(self, query: Query, wanted: Wanted, ball: Ball, by_extremes: bool) -> None:
        self.query, self.wanted, self.ball = query, wanted, ball
        self.by_extremes = by_extremes
        self.sweeps = 0  # over the region, behind Dobrushin's bound
        self.is_summed = False  # whether the laws are known
        self._laws: list[Law] | None = None
        self._order: Order | None = None
        self._searched = 0.0  # cells up to which an order was looked for

    @property
    def size(self) -> int:
        """How many variables are inside."""
        return len(self.ball.positions)

    @property
    def is_closed(self) -> bool:
        """Whether nothing outside has a part in it."""
        return not len(self.ball.border)

    @property
    def order(self) -> Order | None:
        """An order of elimination; None if its sum is too large."""
        return self._order_within(_MAX_SUM_CELLS)

    def _order_within(self, cells: float) -> Order | None:
        """Return an order of elimination, looked for up to a number of cells unless one is known."""
        if self._order is None and cells > self._searched:
            ball, form = self.ball, self.query.model._form
            states = form.sizes_at(ball.positions)
            inwards = np.empty(self.size, dtype=np.int64)
            inwards[ball.outwards[::-1]] = np.arange(self.size)
            self._order = find_order(ball.start, ball.neighbor, states, self.group, inwards, cells)
            self._searched = cells
        return self._order

    @property
    def group(self) -> NDArray[np.int64]:
        """Numbers of the targets among the variables inside."""
        return np.searchsorted(self.ball.positions, self.wanted.positions)

    @property
    def sums(self) -> int:
        """How many sums are needed."""
        return 2 if self.by_extremes and not self.is_closed else 1

    @property
    def cells(self) -> float:
        """Entries of all cliques, of all sums that are needed."""
        return math.inf if self.order is None else self.sums * self.order.entries

    @property
    def seconds(self) -> float:
        """About how long it takes to look at the region, with its sums where they tell the bias."""
        sums = 0.0 if self.tells(0.0) else self.cells
        return SECONDS_PER_REGION + self.size * _SECONDS_PER_VARIABLE + sums * SECONDS_PER_CELL

    def fits(self, cells: float) -> bool:
        """Whether the sums that are needed take at most so many cells. The search gives up where they do not."""
        order = self._order_within(min(cells / self.sums, _MAX_SUM_CELLS))
        return order is not None and self.sums * order.entries <= cells

    def tells(self, cells: float) -> bool:
        """Whether the bias can be known in so many cells; Dobrushin's bound needs no sum."""
        return (not self.by_extremes and not self.is_closed) or (cells > 0.0 and self.fits(cells))

    @cached_property
    def around(self) -> Surroundings:
        """The factors that touch the region."""
        return surroundings(self.query.model._form, self.ball.positions)

    @property
    def laws(self) -> list[Law] | None:
        """The law of the targets under each state outside that is looked at; None where one is not allowed."""
        if not self.is_summed:
            self._laws, self.is_summed = self._sum(), True
        return self._laws

    def _sum(self) -> list[Law] | None:
        around = self.around
        if self.is_closed or not self.by_extremes or around.extremes is None:
            boundaries = [self._allowed(around.border)]
        else:
            boundaries = list(around.extremes[:2])
        program: RegionSum | None = None
        laws = []
        for digits in boundaries:
            factors: Factors = around.fix(digits)
            if program is None:
                if self.order is None:
                    return None
                program = RegionSum(self.order, factors, self.group, self.query.model.memory.common)
            law = program.run(factors)
            if law is None:
                return None
            laws.append(law)
        return laws

    def _allowed(self, border: NDArray[np.int64]) -> NDArray[np.int64]:
        """States outside with which the region has an allowed state."""
        form = self.query.model._form
        if form.has_zeros:
            allowed: NDArray[np.int64] = self.query.space.start[border]
            return allowed
        return form.favourites(border)

    @cached_property
    def disagreement(self) -> NDArray[np.float64]:
        """For each target, how far its law can be from that of the model by what is outside; by extremes, half the gap.

        The law that counts is the one that was summed, or the mean of both.
        """
        if self.is_closed:
            return np.zeros(len(self.wanted.positions))
        return self._half_gaps() if self.by_extremes else self._dobrushin()

    def _half_gaps(self) -> NDArray[np.float64]:
        laws, extremes = self.laws, self.around.extremes
        if laws is None or extremes is None:
            return np.ones(len(self.wanted.positions))
        kept = self.group
        lowest, highest = (law.probabilities for law in laws)
        shape = (2,) * len(kept)
        gaps = np.empty(len(kept))
        for axis, variable in enumerate(kept.tolist()):
            others = tuple(a for a in range(len(kept)) if a != axis)
            state = int(extremes[2][variable])
            up, down = (law.reshape(shape).sum(axis=others)[state] for law in (highest, lowest))
            error = sum(law.error + law.loss * len(lowest) for law in laws) + 2.0**-50 * len(lowest)
            gaps[axis] = max(0.0, float(up) - float(down)) + error
        return np.minimum(1.0, 0.5 * gaps * (1.0 + 2.0**-50))

    def _dobrushin(self) -> NDArray[np.float64]:
        """From sweeps over the region, the outermost variables first."""
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
        return result

    @property
    def bias(self) -> float:
        """The weighted sum of the disagreements, without its last rounding."""
        return float(self.wanted.weights @ self.disagreement)


class Growth:
    """Ever larger regions around one target, until the bound is small enough or the sum too dear."""

    def __init__(self, query: Query, wanted: Wanted, goal: float) -> None:
        self.query, self.wanted, self.goal = query, wanted, goal
        self.limit = MOST_VARIABLES  # variables that a region may have
        self.by_extremes = True
        self.history: list[tuple[float, float]] = []  # minus the logarithms of influence left out and of bias
        self.best: Region | None = None  # the one with the smallest bias so far
        self.next: Region | None = None  # the one to sum next

    @cached_property
    def reach(self) -> Reach:
        """The variables around the targets, the strongest first."""
        return Reach(self.query.space.rows, self.wanted.positions)

    @property
    def is_done(self) -> bool:
        """Whether the bias of the best region is small enough."""
        return self.best is not None and self.best.bias <= self.goal

    @property
    def reached(self) -> float:
        """The smallest bias so far."""
        return math.inf if self.best is None else self.best.bias

    def look(self, cells: float) -> None:
        """Grow as long as sums take at most so many cells; then `next` is the region that is expected to do."""
        x, halvings = self._step(), 0
        while not self.is_done and x is not None:
            current().check("a region around a target")
            region = self._region(x)
            if region is None:
                break
            if region.tells(cells):
                current().charge(region.seconds, f"a region of {region.size} variables")
                x = self._step() if self._take(region) else x
                continue
            # Too dear for now. What a smaller one shows makes a better prediction.
            halvings += 1
            x = 0.5 * (x + (self.history[-1][0] if self.history else 0.0))
            smaller = self._region(x)
            if smaller is None or smaller.size >= region.size or halvings > _MOST_HALVINGS:
                break
        x = self._predict()
        self.next = self.best if self.is_done else None if x is None else self._region(x)

    def limit_growth(self) -> None:
        """From now on keep to the region that is planned, and a few more variables in case it is not enough."""
        region = self.next if self.next is not None else self.best
        self.limit = 0 if region is None else region.size
        if region is not None and not self.is_done:
            self.limit = self.reach.grow(self.reach.grow(self.limit + 1) + 1)

    def settle(self, cells: float) -> None:
        """Make `best` a region that can be summed in so many cells."""
        least = len(self.wanted.positions)
        size = self.reach.grow(least) if self.best is None else self.best.size
        while self.best is None or (not self.best.fits(cells) and size > least):
            size = max(least, size // 2)
            region = Region(self.query, self.wanted, self.reach.ball(size), self.by_extremes)
            if region.fits(cells) or size == least:
                self.best = None
                self._take(region)

    def _take(self, region: Region) -> bool:
        """Look at the bias of a region; False if the way to bound it is not for this model."""
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
        """Minus the logarithm of the influence to leave out, as far as can be seen; None if no region will do."""
        goal = -math.log(self.goal)
        if not self.history:
            return _FIRST_POWER * goal
        x, y = self.history[-1]
        trivial = float(self.wanted.weights.sum()) * (0.5 if self.by_extremes else 1.0)
        x0, y0 = self.history[-2] if len(self.history) > 1 else (0.0, -math.log(trivial))
        slope = (y - y0) / (x - x0) if x > x0 else 0.0
        return None if slope < _LEAST_SLOPE else x + max((goal - y) / slope, 0.0)

    def _step(self) -> float | None:
        """Where to look next; None if there is no hope left."""
        x = self._predict()
        if not self.history:
            return x
        last = self.history[-1][0]
        if x is None:
            # One look is not enough to give up: near the targets a bound may be at its cap.
            return None if len(self.history) > 2 or last > 40.0 else 1.5 * last + 1.0
        return min(x, 2.5 * last + 2.0)

    def _region(self, x: float) -> Region | None:
        """The variables whose influence is at least exp(-x), more than before; None if there are none or too many."""
        least = len(self.wanted.positions) if self.best is None else self.best.size + 1
        size = self.reach.grow(least, math.exp(-x), self.limit + 1)
        # Variables come in layers of equal influence: take the layer that is nearest.
        larger = self.reach.grow(size + 1, most=self.limit + 1)
        middle = math.sqrt(self.reach.strength(size) * self.reach.strength(larger))
        size = larger if math.exp(-x) < middle and larger <= self.limit else size
        if not (self.best.size if self.best else 0) < size <= self.limit:
            return None
        return Region(self.query, self.wanted, self.reach.ball(size), self.by_extremes)
