"""The paper's way to a short scan: double the length until DoGS meets the tolerance (paper, Section 5.2)."""

from __future__ import annotations

import warnings
from typing import Any

from dobrushin._influence import Influence
from dobrushin._models import Model
from dobrushin._optimize import ScanResult, optimize
from dobrushin._optimize.scan_result import whole
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._variation import variation
from dobrushin.errors import ToleranceError, VacuousBoundWarning


@public(name="experiments.doubling_scan")
def doubling_scan(
    influence: Influence | Model,
    targets: Any = None,
    weights: Any = None,
    *,
    tolerance: float,
    base: Scan | ScanResult,
    cut: bool = False,
) -> ScanResult:
    """Find a short scan as the paper does; `dobrushin.shortest_scan` finds shorter ones in less time.

    Parameters
    ----------
    influence : Influence or Model
    targets, weights
        As for `dobrushin.variation`.
    tolerance : float
        Usually the variation of `base`.
    base : Scan or ScanResult
        The scan whose first 2, 4, 8, ... steps are optimised, at most all of them: usually systematic.
    cut : bool
        Whether to drop steps at the beginning of the scan found for as long as the rest meets the tolerance.

    Returns
    -------
    ScanResult

    Raises
    ------
    ToleranceError
        When the whole of `base`, optimised, does not meet the tolerance; it carries that scan.

    Notes
    -----
    One round of DoGS (paper, Algorithm 2) for each length, as in the paper's Section 5.2. The paper does not describe
    a cut, but the 110 steps of its Section 5.5 are no power of two; the cut gives just that number.

    Examples
    --------
    The segmentation experiment, whose scan has 110 steps in the paper:

    >>> import dobrushin as db
    >>> from dobrushin.experiments.doubling import doubling_scan
    >>> bound = db.influence(db.Potts.grid(20, 31, states=9, couplings=0.48), method="paper")
    >>> center = {31 * row + column: 1.0 for row in range(6, 14) for column in range(9, 21)}
    >>> sweep = db.Scan.systematic(620, steps=620)
    >>> tolerance = db.variation(bound, sweep, weights=center).value
    >>> len(doubling_scan(bound, weights=center, tolerance=tolerance, base=sweep).scan)
    128
    >>> len(doubling_scan(bound, weights=center, tolerance=tolerance, base=sweep, cut=True).scan)
    110
    """
    source = whole(influence)
    scan = as_scan(base)
    tolerance = check.positive(tolerance, "tolerance")
    with warnings.catch_warnings():
        # Lengths that are too small are tried on purpose.
        warnings.simplefilter("ignore", VacuousBoundWarning)
        result = _double(source, scan, targets, weights, tolerance)
        return _shortest_suffix(source, result, targets, weights, tolerance) if cut else result


def _double(source: Influence, base: Scan, targets: Any, weights: Any, tolerance: float) -> ScanResult:
    """The first of the lengths 2, 4, 8, ... at which one round of DoGS meets the tolerance."""
    steps = min(2, len(base))
    while True:
        result = optimize(source, base[:steps], targets, weights, guide=None)
        if result.variation.value <= tolerance:
            return result
        if steps == len(base):
            why = f"These are all {steps} steps of 'base': give a longer one or a larger tolerance."
            raise ToleranceError(tolerance, result.variation.value, result, why)
        steps = min(2 * steps, len(base))


def _shortest_suffix(source: Influence, result: ScanResult, targets: Any, weights: Any, tolerance: float) -> ScanResult:
    """Bisect for the shortest suffix that meets the tolerance.

    A step more at the beginning never raises the variation: it takes b_0 = 1 to something at most 1, and the steps
    that follow are monotone.
    """
    too_short = 0
    while len(result.scan) - too_short > 1:
        suffix = result.scan[-((len(result.scan) + too_short) // 2) :]
        bound = variation(source, suffix, targets, weights)
        if bound.value <= tolerance:
            result = ScanResult(suffix, bound)
        else:
            too_short = len(suffix)
    return result
