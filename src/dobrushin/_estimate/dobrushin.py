"""Sampling with a bias that Dobrushin's bound certifies beforehand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.query import (
    Plan,
    Query,
    biases,
    combined,
    complete,
    expected_seconds,
    intervals_of,
    with_chains,
)
from dobrushin._estimate.questions import Mean
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.shortest import FIRST_LOOK, MOST_STEPS, stagnates
from dobrushin._sampling.build import build_kernel, update_error
from dobrushin._sampling.region import region_of
from dobrushin._scan import Scan
from dobrushin._variation.certificate import evaluate
from dobrushin._variation.objective import Objective

# No machine makes more updates than this in a lifetime.
_MOST_UPDATES = 1e19


def plan_dobrushin(query: Query) -> Plan | None:
    """The cheapest scan and number of chains; None when the bias cannot be brought below the tolerance."""
    objective = combined(query.questions)
    search = BackwardGreedy(query.space.rows, objective)

    def bias(scan: Scan, error: Any = 0.0) -> float:
        bounds = evaluate(query.space.rows, scan, objective, 1.0, error).target_bounds
        return max(float(part.max()) for part in biases(query.questions, objective, bounds))

    scan = _cheapest(search, objective, bias, query)
    if scan is None:
        return None
    made = Plan("dobrushin", _REACHED, query.tolerance, query.confidence, bias(scan), *intervals_of(query), scan)
    made = with_chains(made, query)
    # The draws are not exact: the bound that counts includes what the kernel errs.
    region = region_of(query.space.model, scan)
    kernel = build_kernel(query.space.model, scan, region, made.chains, None)
    error = with_rounding(update_error(query.space.model.n_variables, scan, region, kernel), query.space.rounding)
    certified = bias(scan, error)
    if certified >= query.tolerance:
        return None
    made = with_chains(replace(made, bias=certified, kernel=kernel.name), query)
    if made.updates > _MOST_UPDATES:
        return None
    return replace(made, seconds=expected_seconds(kernel.name, made.updates))


def with_rounding(error: NDArray[np.float64], rounding: float) -> NDArray[np.float64]:
    """Errors of updates, when the model itself is off by so much."""
    return np.where(error > 0, np.minimum(error + rounding, 1.0), 0.0) if rounding else error


_REACHED = "certified before sampling: Dobrushin's bound reaches the tolerance"


def _cheapest(search: BackwardGreedy, objective: Objective, bias: Any, query: Query) -> Scan | None:
    """The scan with the least steps x chains; chains go with 1 / (tolerance - bias)^2."""
    tolerance = query.tolerance
    length = _first_length(search, query)
    if length is None:
        return None
    best, least = None, math.inf
    while True:
        search.extend(0.0, length)
        scan = complete(search.order(min(length, search.steps)), objective)
        left = tolerance - bias(scan)
        if left > 0 and len(scan) / left**2 < least:
            best, least = scan, len(scan) / left**2
        if search.steps < length or length / tolerance**2 >= least:
            return best  # there is nothing more to update, or no longer scan can be cheaper
        if best is None and (
            length >= MOST_STEPS or (length > FIRST_LOOK + 4 * len(objective.positions) and stagnates(search.norms))
        ):
            return None
        length += max(1, length // 8)


def _first_length(search: BackwardGreedy, query: Query) -> int | None:
    """A length below which the bias is too large; None if that of all lengths is.

    The norm of the search bounds the sum of all biases, which is at most so many times the largest one.
    """
    sizes = [len(q.positions) if not isinstance(q, Mean) else 1 for q in query.questions]
    goal, look = query.tolerance * sum(sizes), FIRST_LOOK + 4 * sum(sizes)
    while not search.extend(goal, look):
        if search.steps < look:
            break
        if look >= MOST_STEPS or stagnates(search.norms):
            return None
        look *= 2
    return max(1, search.steps)


def why_not_dobrushin(query: Query) -> str:
    """Why the bias has no useful bound."""
    bound = query.space.influence
    sums = np.asarray(bound.matrix.sum(axis=1)).ravel()
    worst = np.argsort(-sums, kind="stable")[:3].tolist()
    rows = ", ".join(f"{query.space.model.labels[i]!r} ({sums[i]:.3g})" for i in worst)
    radius = bound.spectral_radius()
    what = (
        f"the spectral radius of the influence is {radius:.3g}, not below 1"
        if radius >= 1
        else f"the spectral radius of the influence is {radius:.3g}, but no scan of an affordable length was found"
    )
    return f"{what}; the strongest rows are those of {rows}."
