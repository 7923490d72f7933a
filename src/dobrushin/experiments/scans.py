"""Models, scans and measurements that several experiments share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin.experiments.catalog import Arrays, Part, Store

METHODS = ("uniform", "systematic", "DoGS", "iterated DoGS", "greedy + 1 round")
_POINTS = 100
FEW = 300  # chains, as in the paper


def paper_ising(rows: int = 10, cols: int = 10, seed: int = 0, fields: bool = True) -> db.Model:
    """Draw an Ising model as in Section 5.1: couplings uniform on [0, 0.25], fields 0 or 1.

    Examples
    --------
    >>> from dobrushin.experiments.scans import paper_ising
    >>> paper_ising()
    Ising(n_variables=100, edges=180)
    """
    rng = np.random.default_rng(seed)
    couplings = rng.uniform(0, 0.25, size=rows * (cols - 1) + (rows - 1) * cols)
    return db.Ising.grid(rows, cols, couplings, rng.integers(0, 2, size=(rows, cols)) if fields else None)


def make_scan(method: str, influence: db.Influence, steps: int, targets: Any = None) -> db.Scan:
    """Return a scan by one of the paper's methods, or by a greedy search followed by one round of DoGS.

    Scans are chosen by the bound itself, as in the paper, never by a scaled influence matrix.

    Examples
    --------
    >>> import dobrushin as db
    >>> from dobrushin.experiments.scans import make_scan
    >>> make_scan("greedy + 1 round", db.influence(db.Ising.grid(1, 3, couplings=0.1)), steps=3, targets=[0])
    Scan(steps=3, order=[0 1 0])
    """
    n = influence.n_variables
    systematic = db.Scan.systematic(n, steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", db.VacuousBoundWarning)
        if method == "uniform":
            return db.Scan.uniform(n, steps)
        if method == "systematic":
            return systematic
        if method == "DoGS":
            return db.optimize_scan(influence, systematic, targets, guide=None).scan
        if method == "iterated DoGS":
            return db.optimize_scan(influence, systematic, targets, iterations="converged", guide=None).scan
        greedy = db.greedy_scan(influence, targets, steps=steps, guide=None)
        return greedy.scan if method == "greedy" else db.optimize_scan(influence, greedy, targets, guide=None).scan


def certify(influence: db.Influence, scan: db.Scan, targets: Any = None) -> db.Variation:
    """Bound the bias of a scan, without a warning where the bound is vacuous."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", db.VacuousBoundWarning)
        return db.variation(influence, scan, targets)


def doubling_scan(
    influence: db.Influence,
    targets: Any = None,
    *,
    tolerance: float,
    base: db.Scan,
    cut: bool = False,
) -> db.ScanResult:
    """Find a short scan as the paper does (Section 5.2); `dobrushin.shortest_scan` finds shorter ones faster.

    Parameters
    ----------
    influence : Influence
    targets
        As for `dobrushin.variation`.
    tolerance : float
        Usually the variation of `base`.
    base : Scan
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
    >>> from dobrushin.experiments.scans import certify, doubling_scan
    >>> bound = db.influence(db.Potts.grid(20, 31, states=9, couplings=0.48), method="paper")
    >>> center = [31 * row + column for row in range(6, 14) for column in range(9, 21)]
    >>> sweep = db.Scan.systematic(620, steps=620)
    >>> tolerance = certify(bound, sweep, center).value
    >>> len(doubling_scan(bound, center, tolerance=tolerance, base=sweep).scan)
    128
    >>> len(doubling_scan(bound, center, tolerance=tolerance, base=sweep, cut=True).scan)
    110
    """
    steps = min(2, len(base))
    with warnings.catch_warnings():
        # Lengths that are too small are tried on purpose.
        warnings.simplefilter("ignore", db.VacuousBoundWarning)
        while (result := db.optimize_scan(influence, base[:steps], targets, guide=None)).variation.value > tolerance:
            if steps == len(base):
                why = f"These are all {steps} steps of 'base': give a longer one or a larger tolerance."
                raise db.ToleranceError(tolerance, result.variation.value, why, result=result)
            steps = min(2 * steps, len(base))
        # Bisect for the shortest suffix: a step more at the beginning never raises the variation, since it takes
        # b_0 = 1 to at most 1, and the steps that follow are monotone.
        too_short = 0
        while cut and len(result.scan) - too_short > 1:
            suffix = result.scan[-((len(result.scan) + too_short) // 2) :]
            bound = db.variation(influence, suffix, targets)
            if bound.value <= tolerance:
                result = db.ScanResult(suffix, bound)
            else:
                too_short = len(suffix)
    return result


def guarantees(
    influence: db.Influence, budgets: Sequence[int], targets: Any = None, methods: Sequence[str] = METHODS
) -> Arrays:
    """Bound each method's scan of each length, and the beginnings of its longest scan.

    Returns
    -------
    dict of arrays
        "budgets" and, under the name of each method, its bounds; "along" and "name, along": numbers of steps, and the
        bounds after as many steps of the longest scan; "name, scan": the longest scan, where it was optimised.
    """
    arrays: dict[str, Any] = {"budgets": np.asarray(budgets)}
    unit = math.gcd(*budgets)
    every = next(unit // k for k in range(1, unit + 1) if unit % k == 0 and k * budgets[-1] >= _POINTS * unit)
    for method in methods:
        longest = make_scan(method, influence, budgets[-1], targets)
        arrays["along"], arrays[f"{method}, along"] = certify(influence, longest, targets).curve(every)
        if method in ("uniform", "systematic"):  # the beginning of a longer one is the shorter one
            arrays[method] = arrays[f"{method}, along"][arrays["budgets"] // every]
        else:
            shorter = [make_scan(method, influence, steps, targets) for steps in budgets[:-1]]
            arrays[method] = np.array([certify(influence, scan, targets).value for scan in [*shorter, longest]])
            arrays[f"{method}, scan"] = longest.order
    return arrays


def biases(
    model: db.Model,
    influence: db.Influence,
    method: str,
    budgets: Sequence[int],
    chains: int,
    seed: np.random.SeedSequence,
) -> Arrays:
    """Estimate the mean of X_1 after each method's scan of each length, with standard errors.

    All chains begin at +1. In models without fields the true mean is 0, so that the mean is the bias, and no other
    start has a larger one when all couplings are positive.

    Examples
    --------
    >>> import numpy as np
    >>> import dobrushin as db
    >>> from dobrushin.experiments.scans import biases
    >>> model = db.Ising.grid(4, 4, couplings=0.1)
    >>> found = biases(model, db.influence(model), "systematic", [160], 10_000, np.random.SeedSequence(1))
    >>> abs(found["bias"][0]) < 4 * found["error"][0]
    np.True_
    """
    start = np.ones(model.n_variables, dtype=np.int8)
    keep = db.Record([model.labels[0]], states=False, counts=True)
    up = []
    for steps, own in zip(budgets, seed.spawn(len(budgets)), strict=True):
        scan = make_scan(method, influence, steps, [0])
        up.append(db.sample(model, scan, chains=chains, seed=own, initial=start, record=keep).marginals()[0, 1])
    share = np.array(up)
    return {"bias": 2 * share - 1, "error": 2 * np.sqrt(share * (1 - share) / chains)}


def all_biases(
    store: Store,
    name: str,
    what: tuple[db.Model, db.Influence, str, Sequence[int]],
    chains: int,
    repetitions: int,
    key: tuple[int, ...],
) -> dict[str, Any]:
    """Measure biases once with many chains, and several times with `FEW` chains as in the paper.

    Returns
    -------
    dict
        "many": arrays of `biases`; "few": a list of such arrays; "chains": the number of chains of "many".
    """
    seed_of, budgets = store.seed_of, what[-1]
    many = store.part(name, biases, *what, chains, seed_of(*key), chains=chains, budgets=budgets)
    few = store.parts([
        Part(f"{name}-{k}", biases, (*what, FEW, seed_of(*key, k)), {"budgets": budgets}) for k in range(repetitions)
    ])  # fmt: skip
    return {"many": many, "few": few, "chains": chains}
