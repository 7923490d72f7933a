"""Guarantees of several scans against their length; measured biases of the same scans."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from dobrushin._influence import Influence
from dobrushin._models import Ising
from dobrushin._optimize import greedy_scan, optimize
from dobrushin._sampling import Record, sample
from dobrushin._scan import Scan
from dobrushin._variation import variation
from dobrushin.errors import VacuousBoundWarning
from dobrushin.experiments.drawing import finish, legend_below, look
from dobrushin.experiments.store import Arrays

METHODS = ("uniform", "systematic", "DoGS", "iterated DoGS", "greedy + 1 round")
_POINTS = 100


def make_scan(method: str, influence: Influence, steps: int, targets: Any = None) -> Scan:
    """A scan of the paper's comparisons, or greedy and then one round of DoGS.

    Nothing is guided: these are the bounds that the paper's objective gives.

    Examples
    --------
    >>> import dobrushin as db
    >>> from dobrushin.experiments.curves import make_scan
    >>> make_scan("greedy + 1 round", db.influence(db.Ising.grid(1, 3, couplings=0.1)), steps=3, targets=[0])
    Scan(steps=3, order=[0 1 0])
    """
    n = influence.n_variables
    systematic = Scan.systematic(n, steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VacuousBoundWarning)
        if method == "uniform":
            return Scan.uniform(n, steps)
        if method == "systematic":
            return systematic
        if method == "DoGS":
            return optimize(influence, systematic, targets, guide=None).scan
        if method == "iterated DoGS":
            return optimize(influence, systematic, targets, rounds="converged", guide=None).scan
        result = greedy_scan(influence, targets, steps=steps, guide=None)
        return optimize(influence, result, targets, guide=None).scan


def value_of(influence: Influence, scan: Scan, targets: Any = None) -> float:
    """The certified bound, also where it says nothing."""
    return float(_bound(influence, scan, targets).value)


def _bound(influence: Influence, scan: Scan, targets: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VacuousBoundWarning)
        return variation(influence, scan, targets)


def guarantees(
    influence: Influence, budgets: Sequence[int], targets: Any = None, methods: Sequence[str] = METHODS
) -> Arrays:
    """For each method the bounds of scans that were made for each of these lengths, and along the longest.

    Returns
    -------
    dict of arrays
        "budgets" and, under the name of each method, its bounds; "along" and "name, along", the bound on the way
        through the longest scan; "name, scan", the longest scan where it was chosen.
    """
    arrays: dict[str, Any] = {"budgets": np.asarray(budgets)}
    unit = math.gcd(*budgets)
    every = next(unit // k for k in range(1, unit + 1) if unit % k == 0 and k * budgets[-1] >= _POINTS * unit)
    for method in methods:
        longest = make_scan(method, influence, budgets[-1], targets)
        arrays["along"], arrays[f"{method}, along"] = _bound(influence, longest, targets).curve(every)
        if method in ("uniform", "systematic"):  # the beginning of a longer one is the shorter one
            arrays[method] = arrays[f"{method}, along"][arrays["budgets"] // every]
        else:
            shorter = [make_scan(method, influence, steps, targets) for steps in budgets[:-1]]
            arrays[method] = np.array([value_of(influence, scan, targets) for scan in [*shorter, longest]])
            arrays[f"{method}, scan"] = longest.order
    return arrays


def draw_guarantees(ax: Any, data: Arrays, title: str, methods: Sequence[str] = METHODS, compact: bool = False) -> None:
    """Lines with marks: scans made for each length. Thin lines: the bound on the way through the longest of them."""
    for method in methods:
        best = f"{method}: {data[method].min():.2g}"
        if method in ("uniform", "systematic"):
            ax.plot(data["along"], data[f"{method}, along"], label=best, **look(method))
        else:
            ax.plot(data["budgets"], data[method], label=best, **look(method, marker=not compact))
            if not compact:
                ax.plot(data["along"], data[f"{method}, along"], **{**look(method), "linewidth": 0.6, "alpha": 0.7})
    finish(ax, title, "Gibbs steps T", "bound on the total variation")
    if compact:
        ax.label_outer()
        legend_below(ax, columns=1, size=7)


def measured_bias(model: Ising, scan: Scan, chains: int, seed: Any) -> tuple[float, float]:
    """Mean of X_1 after a scan, over chains that all begin at +1, and its standard error.

    In models without fields the true mean is 0, and no other start has a larger bias when all couplings are positive.

    Examples
    --------
    >>> import dobrushin as db
    >>> from dobrushin.experiments.curves import measured_bias
    >>> model = db.Ising.grid(4, 4, couplings=0.1)
    >>> bias, error = measured_bias(model, db.Scan.systematic(16, 160), chains=10_000, seed=1)
    >>> abs(bias) < 4 * error
    True
    """
    start = np.ones(model.n_variables, dtype=np.int8)
    keep = Record([model.labels[0]], states=False, counts=True)
    run = sample(model, scan, chains=chains, seed=seed, initial=start, record=keep)
    up = float(run.marginals()[0, 1])
    return 2 * up - 1, 2 * float(np.sqrt(up * (1 - up) / chains))


def biases(
    model: Ising, influence: Influence, method: str, budgets: Sequence[int], chains: int, seed: np.random.SeedSequence
) -> Arrays:
    """Measured biases of the scans that a method makes for each length, with their standard errors."""
    scans = [make_scan(method, influence, steps, [0]) for steps in budgets]
    seeds = seed.spawn(len(scans))
    pairs = [measured_bias(model, scan, chains, own) for scan, own in zip(scans, seeds, strict=True)]
    return {"bias": np.array([pair[0] for pair in pairs]), "error": np.array([pair[1] for pair in pairs])}
