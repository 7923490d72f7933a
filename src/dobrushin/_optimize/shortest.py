"""The shortest scan that can be found for a tolerance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np

from dobrushin._influence import Influence, RowSource, row_source
from dobrushin._kernels.greedy import suffix_norms
from dobrushin._models import Model
from dobrushin._models.sources import as_model, read_source
from dobrushin._optimize.dogs import polisher
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.guide import guide_of
from dobrushin._optimize.scan_result import ScanResult, whole
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Floats, Ints
from dobrushin._shared.call import public
from dobrushin._shared.compile import in_pieces
from dobrushin._variation import Objective, Variation, evaluate, read_objective
from dobrushin.errors import ArgumentError, ToleranceError
from dobrushin.typing import Criterion, Guide

# Without max_steps the search ends here, or earlier when doubling the length no longer helps.
MOST_STEPS = 10**8
FIRST_LOOK = 1000


@public("choosing a scan", read=read_source)
def shortest_scan(
    model: Model | Influence,
    targets: Any = None,
    weights: Any = None,
    *,
    tolerance: float,
    criterion: Criterion = "sum",
    polish: int = 1,
    max_steps: int | None = None,
    guide: Guide | None = "auto",
    progress: bool | None = None,
) -> ScanResult:
    """Find the shortest scan whose certified bound is at most a tolerance.

    Parameters
    ----------
    model : Model or Influence
        Of a model only the rows near the targets are ever computed, so that the time depends on the length of
        the scan and not on the size of the model.
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
        What the scan that a `ToleranceError` carries is chosen with. "auto": where the spectral radius of the influence
        is 1 or more, the influence scaled to a radius below 1, until *its* variation is at most the tolerance. That
        certifies nothing, but such scans do well in simulation; see `coalescence`.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    ScanResult

    Raises
    ------
    ToleranceError
        When no such scan was found; it carries the best one.

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
    limit = MOST_STEPS if max_steps is None else check.count(max_steps, "max_steps")

    def measure(bound: Variation) -> float:
        return _measure(bound, objective, criterion)

    def certify(order: Ints) -> ScanResult:
        scan = Scan(order)
        return ScanResult(scan, evaluate(source, scan, objective, error=source._error))

    search = BackwardGreedy(source, objective)
    reach = _reach_sum if criterion == "sum" else _reach_max
    result = reach(search, certify, measure, tolerance, limit, len(objective.positions))
    if result is None:
        if guide is not None and search.steps < limit:
            failed = certify(search.order()).variation
            if (chooser := guide_of(whole(model), failed, guide)) is not None:
                search = BackwardGreedy(chooser, objective)
                search.extend(tolerance, limit)
                best = certify(search.order())
                raise ToleranceError(tolerance, measure(best.variation), _GUIDED, result=best)
        raise _failure(search, certify, measure, tolerance, limit)
    return _shorten(result, search, certify, measure, tolerance, polish) if polish else result


_GUIDED = (
    "The spectral radius of the influence is 1 or more, where longer scans are not better by this bound. The scan was "
    "chosen with a weaker influence: see dobrushin.coalescence for a certificate by simulation."
)
Certify = Callable[[Ints], ScanResult]
Measure = Callable[[Variation], float]


def _reach_sum(
    search: BackwardGreedy, certify: Certify, measure: Measure, tolerance: float, limit: int, targets: int
) -> ScanResult | None:
    """Grow the scan until its certificate holds: the norm of the greedy search is almost that certificate."""
    del targets
    goal, look = tolerance, FIRST_LOOK
    while True:
        reached = search.extend(goal, min(limit, look))
        if reached:
            result = certify(search.order() if search.steps else search.first())
            if measure(result.variation) <= tolerance:
                return result
            if search.norm == 0.0:
                return None  # the remaining variation is rounding, which a longer scan cannot reduce
            goal = min(search.norm * (1 - 1e-9), float(np.nextafter(search.norm, 0.0)))
        elif search.steps >= limit or stagnates(search.norms):
            return None
        else:
            look *= 2


def _reach_max(
    search: BackwardGreedy, certify: Certify, measure: Measure, tolerance: float, limit: int, targets: int
) -> ScanResult | None:
    """Grow by a quarter at a time until every bound holds, then bisect; shorter scans are ends of longer ones."""
    short, long = 0, min(limit, targets)
    while True:
        search.extend(0.0, long)
        result = certify(search.order(min(long, search.steps)))
        if measure(result.variation) <= tolerance:
            break
        if search.norm == 0.0:
            return None  # the remaining variation is rounding, which a longer scan cannot reduce
        if long >= limit or search.steps < long or (long > 8 * FIRST_LOOK and stagnates(search.norms)):
            return None
        short, long = long, min(limit, long + long // 4 + 1)
    while long - short > 1:
        middle = (short + long) // 2
        trial = certify(search.order(middle))
        if measure(trial.variation) <= tolerance:
            result, long = trial, middle
        else:
            short = middle
    return result


def stagnates(norms: Floats) -> bool:
    """Whether doubling the length of a greedy scan no longer helps."""
    half = len(norms) // 2
    # Written so that norms which have overflowed stagnate too.
    return not norms[half:].min() <= 0.999 * norms[:half].min()


def _shorten(
    result: ScanResult, search: BackwardGreedy, certify: Certify, measure: Measure, tolerance: float, polish: int
) -> ScanResult:
    """A polished scan is better than it need be, so that its first steps can go; again until nothing goes."""
    matrix, weights = search.matrix(), search.weights()
    improve = polisher(matrix, weights, search.has_row[: search.size], polish)
    order = search.local(result.scan.order)
    while len(order) > 1:
        better = improve(order)
        norms = _suffix_norms(better, matrix, weights)
        fits = np.flatnonzero(norms[1:-1] <= tolerance)
        keep = int(fits[0]) + 1 if len(fits) else len(order) - 1
        trial = certify(search.ids[better[-keep:]])
        if measure(trial.variation) > tolerance:
            trial = certify(search.ids[improve(better[-keep:])])
        if measure(trial.variation) > tolerance:
            break
        result, order = trial, search.local(trial.scan.order)
    return result


def _suffix_norms(order: Ints, matrix: Any, weights: Floats) -> Floats:
    """The variation of each end of an order by itself, without clamps and rounding: by number of steps."""
    rows, norms = (matrix.indptr[:-1], matrix.indptr[1:], matrix.indices, matrix.data), np.empty(len(order) + 1)
    in_pieces(suffix_norms, len(order), order, *rows, weights.copy(), np.empty(2), norms)
    return norms


def _failure(
    search: BackwardGreedy, certify: Certify, measure: Measure, tolerance: float, limit: int
) -> ToleranceError:
    best = certify(search.order(int(np.argmin(search.norms[1:])) + 1))
    why = (
        f"It may take more than {limit} steps: raise max_steps."
        if search.steps >= limit
        else "Longer scans were no better: the influence on the variables near the targets is too strong. Try a "
        "sharper influence (method='best' or 'exact'), fewer targets or a larger tolerance."
    )
    return ToleranceError(tolerance, measure(best.variation), why, result=best)


def _shortest_nearby(model: Model, targets: Any, weights: Any, **options: Any) -> ScanResult:
    """Search on growing parts around the targets until the scan stays away from the border; lift the result."""
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
            # Nothing is certified for steps at the border, whose neighbours are not all there.
            order = error.result.scan.order
            order = order[part.inner[order]]
            if len(order):
                source = row_source(part.model)
                objective = read_objective(source, targets, weights)
                best = ScanResult(Scan(order), evaluate(source, Scan(order), objective, error=source._error))
                reached = _measure(best.variation, objective, options["criterion"])
                raise ToleranceError(error.tolerance, reached, error.why, result=best._lift(part.numbering)) from None
        else:
            if part.inner[result.scan._updates(part.model.n_variables)].all():
                return result._lift(part.numbering)
        radius *= 2


def _measure(bound: Variation, objective: Objective, criterion: str) -> float:
    return bound.value if criterion == "sum" else float((objective.weights * bound.target_bounds).max())
