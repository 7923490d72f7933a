"""Sampling with a bias that Dobrushin's bound certifies beforehand. [trusted: `Dobrushin.bias_of`]"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import Curve
from dobrushin._estimate.query import Query
from dobrushin._estimate.runs import Bias, StateChains
from dobrushin._influence.rows import THEOREMS
from dobrushin._models import Model
from dobrushin._optimize.guide import influence_around, radius_around
from dobrushin._optimize.shortest import SECONDS_PER_STEP, BiasGoal, cheapest_order, cheapest_sweeps
from dobrushin._sampling.kernel import Kernel, update_error
from dobrushin._scan import Scan
from dobrushin._shared.call import current_deadline
from dobrushin._variation import Variation, evaluate

# Plans with more updates than this are refused.
_MAX_UPDATES = 1e19
# Share of the planning time for the search of a scan: the rest is for the certificate.
_SEARCH_SHARE = 0.75


class Dobrushin(StateChains):
    """The method "dobrushin": chains from arbitrary initial states, with the bias bounded before sampling."""

    name: ClassVar[str] = "dobrushin"
    works_nearby: ClassVar[bool] = True
    reach: ClassVar[int] = 2  # scans update more variables than regions of sums have
    reason: ClassVar[str] = "certified before sampling: Dobrushin's bound reaches the tolerance"
    # Phrases of `explain` and `curve`, which differ for kinds of variables.
    start: ClassVar[str] = "whatever its initial state"
    bounded: ClassVar[str] = "much {} can still depend on the initial state"
    caution: ClassVar[str] = ""

    @classmethod
    def find_scan(cls, query: Query) -> tuple[Scan, float | None]:
        scan = cheapest_scan(query)
        if scan is None:
            raise cls.refuse(_why_not(query))
        return scan, largest_bias(query, _evaluate(query, scan).target_bounds)

    @classmethod
    def bias_of(cls, query: Query, scan: Scan, kernel: Kernel) -> Bias:
        """Bound the bias of a scan, including the errors of the kernel's draws and the rounding of the model."""
        n, rounding = query.model.n_variables, query.space.rounding
        error = update_error(n, scan, kernel)
        if rounding:
            error = np.where(error > 0, np.minimum(error + rounding, 1.0), 0.0)
        certificate = _evaluate(query, scan, error)
        biases = query.biases(certificate.target_bounds)
        words = (
            "the bias is bounded by the Dobrushin variation of the scan "
            f"(influence by {name_theorems(query, scan)}), rounded upwards"
        )
        bias = Bias(biases, biases, words, certificate)
        left = query.tolerance - bias.largest
        if left <= 0 or len(scan) * cls.most_chains(query, left) > _MAX_UPDATES:
            raise cls.refuse(_why_not(query))
        return bias

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            f"The answer comes from {estimate.chains:,} independent chains. Each made {estimate.steps:,} updates of "
            "single variables, in an order that was chosen for these targets.",
            "Before sampling, Dobrushin's bound limited the bias of a chain after this number of updates, "
            f"{cls.start}: the mean of infinitely many such chains is off by at most {estimate._bias_text}. This bound "
            "is proven: it does not depend on the draws.",
            f"The random error remains. The intervals ({estimate.plan.interval}) were widened by the bias bound, and "
            f"hold all at once with probability {estimate.confidence_text} or more.{cls.caution}",
        ]

    @classmethod
    def curve(cls, estimate: Estimate, model: Model | None) -> Curve | None:
        if estimate.certificate is None:
            return None
        steps, values = estimate.certificate.curve()
        weights = estimate.certificate._objective.weights
        about = "the target" if len(weights) == 1 else "a variable of the targets"
        mean = "" if len(weights) == 1 else f" (the average of {len(weights):,})"
        words = f"Dobrushin's bound on how {cls.bounded.format(about)}{mean}."
        return Curve(steps, values / weights.sum(), f"{words} The bound is proven: it does not depend on draws.")


def name_theorems(query: Query, scan: Scan) -> str:
    """Return the names of the theorems that bound the influence on the variables updated by a scan."""
    theorems = np.unique(query.space.rows.rows(scan._updates(query.model.n_variables)).theorem)
    return ", ".join(THEOREMS[k] for k in theorems) or "none needed"


def _evaluate(query: Query, scan: Scan, error: NDArray[np.float64] | float = 0.0) -> Variation:
    current_deadline().charge(len(scan) * SECONDS_PER_STEP, f"the certificate of {len(scan)} steps")
    return evaluate(query.space.rows, scan, query.objective, 1.0, error)


def largest_bias(query: Query, bounds: NDArray[np.float64]) -> float:
    """Return the largest bias bound of any row of the answer, from bounds on the bias of each target variable."""
    return float(np.concatenate(query.biases(bounds)).max())


def cheapest_scan(query: Query) -> Scan | None:
    """Find the scan with the smallest product of steps and chains; return None if no scan reaches the tolerance.

    If almost all variables are targets, a search gains nothing over systematic sweeps.
    """
    source, objective, initial = query.space.rows, query.objective, query.space.initial
    goal = BiasGoal(query.tolerance, partial(largest_bias, query), sum(question.norm for question in query.questions))
    with current_deadline().part(_SEARCH_SHARE):
        if query.is_about_most:
            return cheapest_sweeps(source, objective, initial, goal)
        order = cheapest_order(source, objective, initial, goal)
    return None if order is None else query.complete(order)


def _why_not(query: Query) -> str:
    """Explain why Dobrushin's bound misses the tolerance: name the spectral radius and the strongest influences."""
    known = query.space.rows
    around = influence_around(known, query.objective.positions)
    sums = np.asarray(around.matrix.sum(axis=1)).ravel()
    worst = around.positions[np.argsort(-sums, kind="stable")[:3]].tolist()
    strengths = np.sort(-sums)[:3]
    rows = ", ".join(f"{query.model.labels[i]!r} ({-s:.3g})" for i, s in zip(worst, strengths, strict=True))
    radius = radius_around(known, around)
    where = "" if len(around.positions) == query.model.n_variables else " around the targets"
    what = f"the spectral radius of the influence{where} is {radius:.3g}, "
    what += "not below 1" if radius >= 1 else "but no scan of an affordable length was found"
    return f"{what}; the variables that others influence most are {rows}."
