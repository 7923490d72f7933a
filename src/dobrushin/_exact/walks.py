"""Intervals for marginals of binary pairwise models, from trees of self-avoiding walks (Weitz 2006). [trusted]

The odds of a variable are those of the root of its tree of self-avoiding walks, and they are monotone in the odds of
each child. So a subtree that is not expanded can be replaced by the range of its odds, and the root's interval is valid
wherever the tree is cut.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.engine import RegionFactors
from dobrushin._kernels.walks import DOWN, MOST, UP, factor, lowered, prepare_walks, raised, walk_odds
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form
from dobrushin._models.memory import Slot
from dobrushin._shared.arrays import UNIT, Bools, Floats, Ints, frozen, prefix_sums
from dobrushin._shared.call import LateError, current_deadline

States = NDArray[np.int8]
# Seconds for each variable that is visited.
SECONDS_PER_VISIT = 3.5e-8
# The reason for models in which a factor without variables is 0.
IMPOSSIBLE = "no joint state is allowed."
# Largest difference of logarithms whose exponential is taken.
_LARGEST = 300.0
# Rounds of belief propagation, which only tells where to look.
_ROUNDS = 12
# Models in which a variable has more neighbours are refused.
_MAX_NEIGHBORS = 512
# Branches are cut at the first weight, and then at ever smaller ones, by this factor, down to the last.
_FIRST_WEIGHT, _FINER, _LAST_WEIGHT = 1e-2, 0.2, 1e-18
# Most visits of one call of the kernel, which cannot be interrupted, and the visits that a branch may take in any case.
_MAX_VISITS_OF_CALL, _MIN_VISITS = 2**22, 64
# From this number of visits on, predictions are believed.
_VISITS_TO_PREDICT = 2 * 10**5


@dataclass(frozen=True, eq=False)
class WalkTree:
    """A binary pairwise model as odds of variables and ratios of edges, from which self-avoiding walks are made.

    Each edge is stored at both of its ends, as two half-edges. The arrays are those of `_kernels/walks`. `error` bounds
    the effect of rounding on the logarithm of any probability.
    """

    start: Ints
    neighbor: Ints
    twin: Ints
    alpha: Floats
    beta: Floats
    ratio: Floats
    odds: Floats
    beyond: Floats
    known: Floats
    error: float

    @property
    def is_attractive(self) -> bool:
        return bool((self.ratio >= 1.0).all())

    def odds_of(
        self, root: int, fixed: States, least: float, most: int, seen: Bools, path: tuple[int, ...] = ()
    ) -> _Odds:
        """Return an interval for the odds of the variable at the end of a walk from the root.

        `path` holds the steps of the walk (half-edges); without it the variable is the root. `fixed` has the states of
        observed variables and -1 for others. If many variables may be visited, the branches of the root and of its
        neighbours are expanded one after the other, so that each kernel call is short.
        """
        if len(path) >= 2 or (not path and most <= _MAX_VISITS_OF_CALL):
            exit_of = np.full(len(self.odds), -1, dtype=np.int64)
            edges = self.start, self.neighbor, self.twin, self.alpha, self.beta, self.ratio
            odds = self.odds, self.beyond, self.known
            places = np.array(path, dtype=np.int64)
            found = walk_odds(places, root, *edges, *odds, fixed, least, most, exit_of, seen)
            current_deadline().check("walks from a target")
            return _Odds(*found)
        left = dict(zip([root, *self.neighbor[list(path)].tolist()], path, strict=False))
        end = int(self.neighbor[path[-1]]) if path else root
        low = high = float(self.beyond[path[-1]] if path else self.odds[end])
        visited = 1
        seen[end] = True
        halves = range(int(self.start[end]), int(self.start[end + 1]))
        for h in halves:
            w = int(self.neighbor[h])
            if fixed[w] >= 0 or w in left:
                is_one = fixed[w] == 1 if fixed[w] >= 0 else self.twin[h] > left[w]
                a = b = self.ratio[h] if is_one else 1.0
            else:
                share = max(_MIN_VISITS, most // len(halves))
                below = self.odds_of(root, fixed, least, share, seen, (*path, h))
                edge = self.alpha[h], self.beta[h], self.ratio[h]
                ends = factor(*edge, below.low), factor(*edge, below.high)
                a, b = min(ends) * DOWN, max(ends) * UP
                visited += below.visited
            low, high = lowered(low, a), raised(high, b)
        return _Odds(low, high, visited)


class _Odds(NamedTuple):
    low: float
    high: float
    visited: int

    @property
    def interval(self) -> tuple[float, float]:
        """Return an interval for the probability of state 1."""
        low = self.low / (1.0 + self.low) * DOWN
        return low, 1.0 if self.high > MOST else min(1.0, self.high / (1.0 + self.high) * UP)


def read_walks(form: Form) -> WalkTree | str:
    """Return the model as a `WalkTree`; if trees of walks cannot be made from it, return the reason.

    The result is cached.
    """
    return form.memory.get(_TREE, lambda: _read(form))


_TREE: Slot[WalkTree | str] = Slot("walks")


def _read(form: Form) -> WalkTree | str:
    if (form.cardinalities != 2).any():
        return "walks are for variables with two states."
    if int(np.diff(form.adjacency[0]).max(initial=0)) > _MAX_NEIGHBORS:
        return f"a variable has more than {_MAX_NEIGHBORS} neighbours."
    tables = form.tables() if form.has_tables else None
    if tables is None or (np.diff(tables.scope_start) > 2).any():
        return "walks are for factors of at most two variables."
    (_, constants), (single, own), (double, pairs) = map(tables.of_arity, range(3))
    if np.isneginf(constants).any():
        return IMPOSSIBLE
    n, (i, j), pairs = tables.n_variables, double.T, pairs.reshape(-1, 2, 2)
    pairs[i > j] = pairs[i > j].transpose(0, 2, 1)
    ends, place = np.unique(np.minimum(i, j) * n + np.maximum(i, j), return_inverse=True)
    merged = np.zeros((len(ends), 2, 2))
    np.add.at(merged, place.ravel(), pairs)
    if np.isneginf(own[:, 0]).any() or np.isneginf(merged[:, 0]).any() or np.isneginf(merged[:, :, 0]).any():
        return "state 0 of some variable is forbidden by its own potential or beside a neighbour's state."
    largest = sizes_of(merged)
    if largest > _LARGEST:
        return "potentials are too large."
    a, b = ends // n, ends % n
    E = len(ends)
    owner, other = np.concatenate([a, b]), np.concatenate([b, a])
    order = np.lexsort((other, owner))
    spot = np.empty(2 * E, dtype=np.int64)
    spot[order] = np.arange(2 * E)
    twin = np.concatenate([spot[E:], spot[:E]])[order]
    table = np.concatenate([merged, merged.transpose(0, 2, 1)])[order]  # rows: states of the own variable
    with np.errstate(invalid="ignore"):
        alpha, beta = np.exp(table[:, 1, 1] - table[:, 1, 0]), np.exp(table[:, 0, 1] - table[:, 0, 0])
    log_odds = np.zeros(n)
    np.add.at(log_odds, single[:, 0], own[:, 1] - own[:, 0])
    alone = table[:, 1, 0] - table[:, 0, 0]  # the factor of a half-edge whose other end is 0
    np.add.at(log_odds, owner[order], alone)
    sizes = np.where(np.isfinite(tables.table), np.abs(tables.table), 0.0).sum()
    terms = 2.0 * np.bincount(tables.scope, minlength=n).max(initial=1) + 16.0
    if float(np.abs(log_odds[np.isfinite(log_odds)]).max(initial=0.0)) > _LARGEST:
        return "potentials are too large."
    # Sums of potentials, and an exponential for each variable and twice for each half-edge.
    error = form.error + UNIT * (2.0 * terms * float(sizes) + 4.0 * n + 16.0 * len(twin)) * (1.0 + 1e-9)
    start = prefix_sums(np.bincount(owner, minlength=n)).astype(np.int64)
    neighbor, twin = other[order].astype(np.int64), twin.astype(np.int64)
    ratio, beyond = alpha / beta, np.exp(log_odds[neighbor] - alone[twin])
    known = prepare_walks(start, neighbor, twin, alpha, beta, ratio, beyond, _ROUNDS)
    edges = frozen(start), frozen(neighbor), frozen(twin), frozen(alpha), frozen(beta), frozen(ratio)
    return WalkTree(*edges, frozen(np.exp(log_odds)), frozen(beyond), frozen(known), error)


def sizes_of(table: Floats) -> float:
    """Return twice the largest absolute value of the finite entries of a log-table, a bound on their differences."""
    finite = np.where(np.isfinite(table), np.abs(table), 0.0)
    return 2.0 * float(finite.max(initial=0.0))


def _predict(past: list[tuple[int, float]], tolerance: float) -> float:
    """Predict how many variables the next pass must visit for this tolerance, from the sizes of earlier passes."""
    if len(past) < 4:
        return math.inf
    (n0, wide), (n1, narrow) = past[-3], past[-1]
    if not (n1 > n0 and 0.0 < narrow < wide):
        return math.inf
    power = math.log(n1 / n0) / math.log(wide / narrow)
    return 3.0 * n1 * math.exp(min(700.0, power * math.log(narrow / tolerance)))


@dataclass
class WalkLaw:
    """Intervals for the probabilities of all joint states of some variables, narrowed pass by pass.

    Each joint probability is a product of conditional probabilities (chain rule), each from a tree of walks.

    Attributes
    ----------
    low, high : arrays of shape (2, ..., 2)
        Limits of the probability of each joint state.
    visited : int
        Number of variables visited by all walks so far.
    """

    tree: WalkTree
    positions: tuple[int, ...]
    visited: int = 0
    least: float = _FIRST_WEIGHT

    def __post_init__(self) -> None:
        self.seen: Bools = np.zeros(len(self.tree.odds), dtype=np.bool_)
        self.past = [(0, 1.0)]  # variables visited by each pass, and the half-width after it
        shape = (2,) * len(self.positions)
        self.low, self.high = np.zeros(shape), np.ones(shape)

    @property
    def half_width(self) -> float:
        return 0.5 * float((self.high - self.low).max())

    def narrow(self, tolerance: float, most: int, far: int = 0, hopeless: float = math.inf) -> bool:
        """Expand the trees further until the half-width is at most `tolerance`; return whether that was reached.

        About `most` variables are visited, and up to `far` if earlier passes predict that this suffices (the width
        falls roughly as a power of the number of variables visited). The work ends where they predict more than
        `hopeless`. If the time limit of the call ends the work, the intervals of the last complete pass remain.
        """
        with suppress(LateError):
            self._narrow(tolerance, most, far, hopeless)
        return self.half_width <= tolerance

    def _narrow(self, tolerance: float, most: int, far: int, hopeless: float) -> None:
        before, past = self.visited, self.past
        while self.half_width > tolerance and self.least >= _LAST_WEIGHT:
            used, size = self.visited - before, past[-1][0]
            if used > _VISITS_TO_PREDICT and len(past) > 3 and _predict(past, tolerance) > hopeless:
                break
            room = most if used + 3 * size < most else far if used + _predict(past, tolerance) < far else 0
            if not room:
                break
            current_deadline().charge(SECONDS_PER_VISIT * 3 * size, "walks from a target")
            is_cut = self._pass(max(_MIN_VISITS, (room - used) // (2 ** len(self.positions) - 1)))
            past.append((self.visited - before - used, self.half_width))
            self.least *= _FINER
            if is_cut and room >= far:
                break

    def _pass(self, room: int) -> bool:
        """Expand all trees at the current cut-off weight; return whether some tree used up its number of visits."""
        is_cut = False
        fixed = np.full(len(self.tree.odds), -1, dtype=np.int8)
        low, high = np.ones_like(self.low), np.ones_like(self.high)
        for k, v in enumerate(self.positions):
            for states in product((0, 1), repeat=k):
                fixed[list(self.positions)] = -1
                fixed[list(self.positions[:k])] = states
                odds = self.tree.odds_of(v, fixed, self.least, room, self.seen)
                self.visited += odds.visited
                is_cut |= odds.visited >= room
                ends = odds.interval
                low[(*states, 1)] *= ends[0] * DOWN
                high[(*states, 1)] *= ends[1] * UP
                low[(*states, 0)] *= max(0.0, 1.0 - ends[1] * UP) * DOWN
                high[(*states, 0)] *= (1.0 - ends[0] * DOWN) * UP
        self.low, self.high = np.maximum(self.low, low), np.minimum(self.high, np.minimum(high, 1.0))
        return is_cut

    def limits(self) -> tuple[Floats, Floats]:
        """Return the lower and upper limits of all joint probabilities, widened for the rounding of potentials."""
        slack = math.expm1(2.0 * self.tree.error) + 2.0**-50 if self.tree.error < 1.0 else 1.0
        low, high = self.low.ravel(), self.high.ravel()
        return np.maximum(0.0, low - slack), np.minimum(1.0, high + slack)


# -- the boundary of a region: how strongly messages can vary along walks [trusted] ------------------------------------
#
# The bounds hold for factors of any number of variables and states, and need no influence matrix. With weak fields they
# work up to larger couplings than Dobrushin's bound (theory page, "The boundary: walks").

# Relative outward rounding of each product of the recursion, and of each difference of potentials.
_UP, _ULPS = 1.0 + 2.0**-40, 2.0**-50
# Largest number of sweeps of the recursion, and sweeps between two checks whether further ones still help.
_SWEEPS, _SWEEPS_PER_LOOK, _HELPS = 128, 8, 0.99
# Largest number of differences of potentials to compute; for larger regions no bound is given.
_MOST_WORK = 2.0**21


def boundary_effect(around: RegionFactors, targets: Ints) -> Floats:
    """Bound the total variation distance between each target's law in the model and under any boundary state.

    `targets` are positions among the variables of the region. The sum of the bounds is a bound for the targets' joint
    law.
    """
    factors, inside = around.factors, around.inside
    arity, of = np.diff(factors.scope_start), factors.scope
    owner, sizes = np.repeat(np.arange(len(arity)), arity), np.diff(factors.table_start)
    if float((sizes[owner] * factors.sizes[of] ** 2).sum()) > _MOST_WORK:
        return np.ones(len(targets))
    ranges = _double_differences(factors)
    message = ranges  # from each factor to each of its variables
    wanted = np.flatnonzero(inside)[targets]
    best = np.full(len(targets), np.inf)
    for _ in range(_SWEEPS // _SWEEPS_PER_LOOK):
        for _ in range(_SWEEPS_PER_LOOK):
            belief = np.where(inside[of], _sums_of_others(message, of), np.inf)
            message = np.minimum(message, _passed(ranges, _sums_of_others(belief, owner)))
        found = np.bincount(of, message, len(inside))[wanted] * _UP
        is_done = bool((np.isfinite(found) & (found >= _HELPS * best)).all())
        best = found
        if is_done:
            break
    return np.minimum(1.0, np.tanh(0.25 * best) * _UP)


def _passed(ranges: Floats, x: Floats) -> Floats:
    """Bound the oscillation of a message that a table sends on, if the incoming message has oscillation x at most.

    The oscillation of a message is the range of its logarithm, and `ranges` are those of the tables. The bound is 4
    atanh(tanh(range / 4) tanh(x / 4)), computed without cancellation.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        a, b = np.exp(-0.5 * ranges), np.exp(-0.5 * x)
        found = 2.0 * np.log1p(np.expm1(-0.5 * ranges) * np.expm1(-0.5 * x) / (a + b)) * _UP
    return np.where(a + b > 0.0, found, np.inf)


def _sums_of_others(values: Floats, group: Ints) -> Floats:
    """Return, for each entry, the sum of the other entries of its group, rounded up; entries may be infinite."""
    is_infinite = np.isinf(values)
    finite = np.where(is_infinite, 0.0, values)
    total = np.bincount(group, finite)[group]
    others = np.maximum(total - finite, 0.0) + total * (_UP - 1.0)
    return np.where(np.bincount(group, is_infinite)[group] > is_infinite, np.inf, others)


def _double_differences(factors: FactorTables) -> Floats:
    """Return, for each factor f and each of its variables, how much f's log-ratios between two states can vary.

    This is the range of log f(a, .) - log f(b, .) over the other variables, maximised over states a and b. It is
    infinite for factors with zeros.
    """
    starts, ranges = factors.scope_start, np.full(len(factors.scope), np.inf)
    alike: dict[tuple[int, ...], list[int]] = {}
    for k in range(factors.n_factors):
        table = factors.factor(k)[1]
        if np.isfinite(table).all():
            alike.setdefault(table.shape, []).append(k)
    for shape, same in alike.items():
        tables = factors.table[factors.table_start[same][:, None] + np.arange(math.prod(shape))]
        error = _ULPS * np.abs(tables).max(axis=1)
        for axis, states in enumerate(shape):
            rows = np.moveaxis(tables.reshape(-1, *shape), axis + 1, 1).reshape(len(same), states, -1)
            found = np.zeros(len(same))
            for a, b in combinations(range(states), 2):
                found = np.maximum(found, np.ptp(rows[:, a] - rows[:, b], axis=1))
            ranges[starts[same] + axis] = found + error
    return ranges
