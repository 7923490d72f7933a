"""Sampling with a bias that Dobrushin's bound certifies beforehand. [trusted: `Dobrushin.bias_of`]"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import Curve
from dobrushin._estimate.query import Query
from dobrushin._estimate.runs import Bias, StateChains
from dobrushin._influence.rows import THEOREMS
from dobrushin._kernels.variation import forward
from dobrushin._models import Model
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.guide import influence_around, radius_around
from dobrushin._optimize.shortest import FIRST_LOOK, MAX_SEARCH_STEPS, stagnates
from dobrushin._sampling.kernel import Kernel, update_error
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import LateError, current_deadline
from dobrushin._shared.compile import in_pieces
from dobrushin._variation import Variation, evaluate, touched_by

# Plans with more updates than this are refused.
_MAX_UPDATES = 1e19
# Seconds per step of a certificate, besides its native calls.
_SECONDS_PER_STEP = 1e-7
# Share of the planning time for the search of a scan: the rest is for the certificate.
_SEARCH_SHARE = 0.75
# Number of sweeps after which the search checks whether more of them help.
_FEW_SWEEPS = 4


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
    current_deadline().charge(len(scan) * _SECONDS_PER_STEP, f"the certificate of {len(scan)} steps")
    return evaluate(query.space.rows, scan, query.objective, 1.0, error)


def largest_bias(query: Query, bounds: NDArray[np.float64]) -> float:
    """Return the largest bias bound of any row of the answer, from bounds on the bias of each target variable."""
    return max(float(part.max()) for part in query.biases(bounds))


def cheapest_scan(query: Query) -> Scan | None:
    """Find the scan with the smallest product of steps and chains; return None if no scan reaches the tolerance.

    The number of chains is proportional to 1 / (tolerance - bias)^2, where the bias is that of exact updates.
    """
    with current_deadline().part(_SEARCH_SHARE):
        return _cheapest_sweeps(query) if query.is_about_most else _cheapest_greedy(query)


def _cheapest_greedy(query: Query) -> Scan | None:
    search = BackwardGreedy(query.space.rows, query.objective, ahead=True)
    length = _first_length(search, query)
    if length is None:
        return None
    tolerance, trials = query.tolerance, _Trials(query, search)
    best, least = None, math.inf
    if tolerance**2 == 0.0:
        return None
    while True:
        try:
            order = search.last(length)
            steps, bias = trials.bound_bias(order)
        except LateError:
            if best is None:
                raise
            break
        left = tolerance - bias
        if left > 0 and left**2 > 0 and steps / left**2 < least:
            best, least = length, steps / left**2
        if len(order) < length or length / tolerance**2 >= least:
            break  # no variable is left to update, or no longer scan can be cheaper
        enough = length > FIRST_LOOK + 4 * len(query.objective.positions)
        if best is None and (length >= MAX_SEARCH_STEPS or (enough and stagnates(search.norms))):
            return None
        length += max(1, length // 8)
    return None if best is None else query.complete(search.order(best))


class _Trials:
    """Bias bounds of the scans that one greedy search proposes; they compare scans and certify nothing."""

    def __init__(self, query: Query, search: BackwardGreedy) -> None:
        self._query, self._search = query, search
        self._known = 0  # how many rows of the search the arrays below hold
        self._rows: tuple[NDArray[np.float64], ...] = ()
        self._start = np.empty(0)

    def bound_bias(self, order: NDArray[np.int64]) -> tuple[int, float]:
        """Return the number of steps of the scan that ends with `order`, and its largest bias bound.

        `order` has the search's own numbers of variables. As in `Query.complete`, targets that it does not update are
        updated once each, at the beginning.
        """
        search, size = self._search, self._search.size
        targets = np.arange(len(self._query.positions))  # the search meets the targets first, in this order
        order = np.concatenate([np.setdiff1d(targets, order), order])
        steps = len(order)
        current_deadline().charge(steps * _SECONDS_PER_STEP, f"the bias of {steps} steps")
        if (known := int(np.count_nonzero(search.has_row))) > self._known:
            self._known = known
            self._rows = tuple(frozen(part) for part in (*search.rows(), np.zeros(size)))
            initial = np.asarray(self._query.space.initial)
            self._start = np.full(size, float(initial)) if initial.ndim == 0 else initial[search.ids[:size]]
        b = self._start.copy()
        in_pieces(forward, steps, steps, frozen(order), 0, *self._rows, b)
        return steps, largest_bias(self._query, b[targets])


def _cheapest_sweeps(query: Query) -> Scan | None:
    """Find the cheapest systematic scan. It is used if almost all variables are targets, where a search gains nothing.

    Return None if no number of sweeps reaches the tolerance.
    """
    n, tolerance = query.model.n_variables, query.tolerance
    sweep = Scan.systematic(n, n)
    problem = touched_by(query.space.rows, sweep, query.space.initial, 0.0)
    b = problem.start_values()
    best, least, norms = None, math.inf, [math.inf]
    while len(norms) / tolerance**2 < least and n * len(norms) <= MAX_SEARCH_STEPS:
        current_deadline().charge(n * _SECONDS_PER_STEP, f"sweep {len(norms)} over {n} variables")
        problem.advance(sweep, b)
        bounds = problem.at(b, query.objective.positions)
        left = tolerance - largest_bias(query, bounds)
        if left > 0 and left**2 > 0 and len(norms) / left**2 < least:
            best, least = len(norms), len(norms) / left**2
        norms.append(float(bounds.sum()))
        if best is None and len(norms) > _FEW_SWEEPS and stagnates(np.array(norms[1:])):
            return None
    return None if best is None else Scan.systematic(n, best * n)


def _first_length(search: BackwardGreedy, query: Query) -> int | None:
    """Return a scan length below which the bias exceeds the tolerance; None if it does so at every length.

    The search's norm bounds the sum of the biases of all targets, which is at most `size` times the largest bias.
    """
    size = sum(question.norm for question in query.questions)
    goal, look = query.tolerance * size, FIRST_LOOK + 4 * size
    while not search.extend(goal, look):
        if search.steps < look:
            break
        if look >= MAX_SEARCH_STEPS or stagnates(search.norms):
            return None
        look *= 2
    return max(1, search.steps)


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
