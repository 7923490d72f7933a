"""Search for the shortest scan whose certified bound is within a tolerance, or for the cheapest one for an estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import numpy as np

from dobrushin._influence import Influence, RowSource, row_source
from dobrushin._kernels.greedy import suffix_norms
from dobrushin._kernels.variation import forward
from dobrushin._models import Model
from dobrushin._models.sources import as_model, read_source
from dobrushin._optimize.dogs import polisher
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.guide import ScanResult, guide_of, whole
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Floats, Ints, frozen
from dobrushin._shared.call import LateError, current_deadline, public
from dobrushin._shared.compile import in_pieces
from dobrushin._variation import Objective, evaluate, read_objective, touched_by
from dobrushin.errors import ArgumentError, ToleranceError
from dobrushin.typing import Criterion, Guide, Targets, Weights

# Number of steps at which a search without `max_steps` ends, if longer scans still help.
MAX_SEARCH_STEPS = 10**8
FIRST_LOOK = 1000
# Seconds per step of a bound along a scan, besides its native calls.
SECONDS_PER_STEP = 1e-7
# Number of sweeps after which the search checks whether more of them help.
_FEW_SWEEPS = 4


@public("choosing a scan", read=read_source)
def shortest_scan(
    model: Model | Influence,
    targets: Targets | None = None,
    weights: Weights | None = None,
    *,
    tolerance: float,
    criterion: Criterion = "sum",
    polish: int = 1,
    max_steps: int | None = None,
    guide: Guide | None = "auto",
    progress: bool | None = None,
) -> ScanResult:
    """Find a scan, as short as possible, whose certified bound is at most a tolerance.

    Parameters
    ----------
    model : Model or Influence
        For a model, only the influence on variables near the targets is computed, so that the time depends on the
        length of the scan and not on the size of the model.
    targets, weights
        As for `variation`.
    tolerance : float
    criterion : {"sum", "max"}
        Whether the tolerance is for the variation (the sum of the targets' bounds, which bounds their joint law) or
        for the largest of the bounds (each marginal by itself).
    polish : int
        Rounds of DoGS on each attempt to make the scan shorter; 0 for no such attempts. Short scans are also
        improved by moving single steps.
    max_steps : int, optional
        Give up at this length. Without it, give up when doubling the length no longer helps.
    guide : {"auto", None}
        How to choose the scan that a `ToleranceError` carries. "auto": if the spectral radius of the influence is 1 or
        more, scale the influence to a radius below 1, and extend the scan until its variation by the scaled influence
        is at most the tolerance. This certifies nothing, but such scans do well in simulation; see `coalescence`.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    ScanResult

    Raises
    ------
    ToleranceError
        If no such scan was found; the error carries the scan with the smallest bound that was found.

    Notes
    -----
    Backward greedy: with d the weights pulled back through the steps chosen so far, prepend i = argmax d_i and pull
    back, x = d_i, d_i = 0, d_j += x C_ij, until the L1 norm of d, which is the variation, is at most the tolerance.

    Examples
    --------
    >>> import dobrushin as db
    >>> million = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> result = db.shortest_scan(million, targets=[0], tolerance=0.01)
    >>> len(result.scan), round(result.variation.value, 4)
    (68, 0.0099)
    """
    if not isinstance(model, RowSource):
        model = as_model(model, "model", "a model or an Influence")
    if isinstance(model, Model) and not model._is_whole:
        return _shortest_nearby(
            model, targets, weights, tolerance=tolerance, criterion=criterion, polish=polish, max_steps=max_steps,
            guide=guide,
        )  # fmt: skip
    source = row_source(model)
    objective = read_objective(source, targets, weights)
    tolerance = check.positive(tolerance, "tolerance")
    if guide is not None:
        check.choice(guide, get_args(Guide), "guide")
    check.choice(criterion, get_args(Criterion), "criterion")
    polish = check.count(polish, "polish", 0)
    limit = MAX_SEARCH_STEPS if max_steps is None else check.count(max_steps, "max_steps")
    search = _ShortestSearch(source, objective, criterion, tolerance, limit)
    result = search.reach_sum() if criterion == "sum" else search.reach_max()
    greedy = search.greedy
    if result is None and guide is not None and greedy.steps < limit:
        failed = search.certify(greedy.order()).variation
        if (chooser := guide_of(whole(model), failed, guide)) is not None:
            guided = BackwardGreedy(chooser, objective)
            guided.extend(tolerance, limit)
            return search.require(guided.order(), _GUIDED)
    if result is None:
        why = f"It may take more than {limit} steps: raise max_steps." if greedy.steps >= limit else _STAGNATES
        result = search.require(greedy.order(int(np.argmin(greedy.norms[1:])) + 1), why)
    return search.shorten(result, polish) if polish else result


_GUIDED = (
    "The spectral radius of the influence is 1 or more, so that longer scans do not lower this bound. The scan was "
    "chosen with a scaled-down influence; dobrushin.coalescence may certify it by simulation."
)
_STAGNATES = (
    "Longer scans were no better: the influence on the variables near the targets is too strong. Try a sharper "
    "influence (method='best' or 'exact'), fewer targets or a larger tolerance."
)


class _ShortestSearch:
    """A search for a short scan whose certificate is within a tolerance."""

    def __init__(self, source: RowSource, objective: Objective, criterion: str, tolerance: float, limit: int) -> None:
        self.source, self.objective, self.criterion = source, objective, criterion
        self.tolerance, self.limit = tolerance, limit
        self.greedy = BackwardGreedy(source, objective)

    def certify(self, order: Ints) -> ScanResult:
        scan = Scan(order)
        return ScanResult(scan, evaluate(self.source, scan, self.objective, error=self.source._error))

    def measure(self, result: ScanResult) -> float:
        """Return the bound that the tolerance is for: the sum over all targets, or the largest bound of a target."""
        bound = result.variation
        return bound.value if self.criterion == "sum" else float((self.objective.weights * bound.target_bounds).max())

    def require(self, order: Ints, why: str) -> ScanResult:
        """Return the scan with its certificate; raise `ToleranceError` if the certificate misses the tolerance."""
        best = self.certify(order)
        if (reached := self.measure(best)) > self.tolerance:
            raise ToleranceError(self.tolerance, reached, why, result=best)
        return best

    def reach_sum(self) -> ScanResult | None:
        """Extend the greedy scan until its certificate is within the tolerance; None if longer scans do not help.

        The search keeps the scan's bound without clamps at 1 (its norm), which almost equals the certificate.
        """
        greedy, goal, look = self.greedy, self.tolerance, FIRST_LOOK
        while True:
            if greedy.extend(goal, min(self.limit, look)):
                result = self.certify(greedy.order() if greedy.steps else greedy.first())
                if self.measure(result) <= self.tolerance:
                    return result
                if greedy.norm == 0.0:
                    return None  # the remaining variation is rounding, which a longer scan cannot reduce
                goal = min(greedy.norm * (1 - 1e-9), float(np.nextafter(greedy.norm, 0.0)))
            elif greedy.steps >= self.limit or stagnates(greedy.norms):
                return None
            else:
                look *= 2

    def reach_max(self) -> ScanResult | None:
        """Extend the scan by quarters until the bound of every target is within the tolerance, then bisect the length.

        Return None if longer scans do not help.
        """
        greedy, short, long = self.greedy, 0, min(self.limit, len(self.objective.positions))
        while True:
            greedy.extend(0.0, long)
            result = self.certify(greedy.order(min(long, greedy.steps)))
            if self.measure(result) <= self.tolerance:
                break
            if greedy.norm == 0.0:
                return None  # the remaining variation is rounding, which a longer scan cannot reduce
            if long >= self.limit or greedy.steps < long or (long > 8 * FIRST_LOOK and stagnates(greedy.norms)):
                return None
            short, long = long, min(self.limit, long + long // 4 + 1)
        while long - short > 1:
            middle = (short + long) // 2
            trial = self.certify(greedy.order(middle))
            if self.measure(trial) <= self.tolerance:
                result, long = trial, middle
            else:
                short = middle
        return result

    def shorten(self, result: ScanResult, polish: int) -> ScanResult:
        """Polish the scan and drop first steps that are no longer needed; repeat until no step can be dropped."""
        greedy = self.greedy
        matrix, weights = greedy.matrix(), greedy.weights()
        improve = polisher(matrix, weights, greedy.has_row[: greedy.size], polish)
        order = greedy.local(result.scan.order)
        while len(order) > 1:
            better = improve(order)
            # The linear variation of the last k steps of the order, for each k.
            rows, norms = (matrix.indptr[:-1], matrix.indptr[1:], matrix.indices, matrix.data), np.empty(len(order) + 1)
            in_pieces(suffix_norms, len(order), better, *rows, weights.copy(), np.empty(2), norms)
            fits = np.flatnonzero(norms[1:-1] <= self.tolerance)
            keep = int(fits[0]) + 1 if len(fits) else len(order) - 1
            trial = self.certify(greedy.ids[better[-keep:]])
            if self.measure(trial) > self.tolerance:
                trial = self.certify(greedy.ids[improve(better[-keep:])])
            if self.measure(trial) > self.tolerance:
                break
            result, order = trial, greedy.local(trial.scan.order)
        return result


def stagnates(norms: Floats) -> bool:
    """Return whether doubling the length of a greedy scan no longer lowers its bound (without clamps at 1)."""
    half = len(norms) // 2
    # The negation makes norms that have overflowed (to infinity or NaN) stagnate too.
    return not norms[half:].min() <= 0.999 * norms[:half].min()


def _shortest_nearby(model: Model, targets: Any, weights: Any, **options: Any) -> ScanResult:
    """Search on a ball around the targets, doubling its radius until the scan stays inside the ball."""
    named = list(weights) if isinstance(weights, Mapping) else targets
    if named is None:
        raise ArgumentError("targets", "labels, or a dict of weights", weights)
    centres = check.positions(named, model.labels, None, "targets")
    radius = 8
    while True:
        part = model._near(centres, radius)
        try:
            result = shortest_scan(part.model, targets, weights, **options)
        except ToleranceError as error:
            # Steps at the border are left out: some of their neighbours are outside of the ball.
            order = error.result.scan.order
            order = order[part.inner[order]]
            if len(order):
                source = row_source(part.model)
                objective = read_objective(source, targets, weights)
                search = _ShortestSearch(source, objective, options["criterion"], error.tolerance, 0)
                best = search.certify(order)
                reached, lifted = search.measure(best), best._lift(part.numbering)
                raise ToleranceError(error.tolerance, reached, error.why, result=lifted) from None
        else:
            if part.inner[result.scan._updates(part.model.n_variables)].all():
                return result._lift(part.numbering)
        radius *= 2


# -- the cheapest scan: the least steps x chains, where chains are proportional to 1 / (tolerance - bias)^2 ----------


class BiasGoal(NamedTuple):
    """Goal of a search: the tolerance of an estimate, and the bias that follows from bounds on its target variables.

    `bias` returns the largest bias of any row of the answer; the sum of the bounds is at most `size` times that.
    """

    tolerance: float
    bias: Callable[[Floats], float]
    size: int

    def cost(self, steps: int, bounds: Floats) -> float:
        """Return a number proportional to steps x chains, with the chains that the tolerance needs; inf if none do."""
        left = self.tolerance - self.bias(bounds)
        return steps / left**2 if left > 0 and left**2 > 0 else math.inf


def cheapest_order(source: RowSource, objective: Objective, initial: Floats | float, goal: BiasGoal) -> Ints | None:
    """Return the order of the greedy scan with the smallest cost; None if no scan reaches the tolerance.

    `initial` bounds the disagreement at the start. Costs leave out rounding and certify nothing. They are those of the
    scan that updates the targets missing from the order once each, at the beginning.
    """
    search, tolerance = BackwardGreedy(source, objective, ahead=True), goal.tolerance
    length = _first_length(search, goal)
    if length is None or tolerance**2 == 0.0:
        return None
    targets = len(objective.positions)  # the search meets the targets first, in this order
    best, least, known = None, math.inf, 0
    rows: tuple[Any, ...] = ()
    start = np.broadcast_to(np.asarray(initial, dtype=np.float64), source.n_variables)
    while True:
        try:
            order = search.last(length)
            is_left = np.ones(targets, dtype=np.bool_)
            is_left[order[order < targets]] = False
            run = np.concatenate([np.flatnonzero(is_left), order])
            current_deadline().charge(len(run) * SECONDS_PER_STEP, f"the bias of {len(run)} steps")
            if (count := int(np.count_nonzero(search.has_row))) > known:
                known, rows = count, tuple(map(frozen, (*search.rows(), np.zeros(search.size))))
            b = start[search.ids[: search.size]]
            in_pieces(forward, len(run), len(run), frozen(run), 0, *rows, b)
        except LateError:
            if best is None:
                raise
            break
        if (cost := goal.cost(len(run), b[:targets])) < least:
            best, least = length, cost
        if len(order) < length or length / tolerance**2 >= least:
            break  # no variable is left to update, or no longer scan can be cheaper
        enough = length > FIRST_LOOK + 4 * targets
        if best is None and (length >= MAX_SEARCH_STEPS or (enough and stagnates(search.norms))):
            return None
        length += max(1, length // 8)
    return None if best is None else search.order(best)


def _first_length(search: BackwardGreedy, goal: BiasGoal) -> int | None:
    """Return a scan length below which the bias exceeds the tolerance; None if it does so at every length.

    The search's norm bounds the sum of the bounds on all target variables.
    """
    look = FIRST_LOOK + 4 * goal.size
    while not search.extend(goal.tolerance * goal.size, look):
        if search.steps < look:
            break
        if look >= MAX_SEARCH_STEPS or stagnates(search.norms):
            return None
        look *= 2
    return max(1, search.steps)


def cheapest_sweeps(source: RowSource, objective: Objective, initial: Floats | float, goal: BiasGoal) -> Scan | None:
    """Return the systematic scan with the smallest cost; None if no number of sweeps reaches the tolerance."""
    n = source.n_variables
    sweep = Scan.systematic(n, n)
    problem = touched_by(source, sweep, initial, 0.0)
    b = problem.start_values()
    best, least, norms = None, math.inf, [math.inf]
    while len(norms) / goal.tolerance**2 < least and n * len(norms) <= MAX_SEARCH_STEPS:
        current_deadline().charge(n * SECONDS_PER_STEP, f"sweep {len(norms)} over {n} variables")
        problem.advance(sweep, b)
        bounds = problem.at(b, objective.positions)
        if (cost := goal.cost(len(norms), bounds)) < least:
            best, least = len(norms), cost
        norms.append(float(bounds.sum()))
        if best is None and len(norms) > _FEW_SWEEPS and stagnates(np.array(norms[1:])):
            return None
    return None if best is None else Scan.systematic(n, best * n)
