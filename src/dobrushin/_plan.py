"""What an estimate will do, decided before it is done."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin import _validate as check
from dobrushin._elimination import MEMORY_LIMIT, CliqueTree, clique_tree
from dobrushin._intervals import trials_needed, values_needed
from dobrushin._models import Model
from dobrushin._objective import Objective
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.shortest import FIRST_LOOK, MOST_STEPS, stagnates
from dobrushin._questions import Mean, Question, read_targets
from dobrushin._sampling.build import build_kernel, update_error
from dobrushin._sampling.region import region_of
from dobrushin._scan import Scan
from dobrushin._variation import evaluate
from dobrushin._workspace import Workspace, workspace
from dobrushin.errors import ArgumentError, BudgetError, CertificateError

METHODS = ("auto", "exact", "dobrushin", "uncertified")
# Updates per second and core that the kernels make on an ordinary machine, for the expected time.
_RATES = {"bits": 3e9, "table": 1.5e8, "field": 1e8, "potts": 5e7, "factors": 1e7}
_OVERHEAD = 0.005
# A clique tree takes about so long per variable to find and per byte to run.
_SECONDS_PER_VARIABLE, _SECONDS_PER_BYTE = 1e-4, 5e-9
# An exact answer that is expected within this time is taken even where sampling would be faster still.
_QUICK = 0.05
# Statistics of so few joint states have exact means.
_MOST_CELLS = 2**14
# Without a certificate: sweeps, as long as they take no more updates than this.
_SWEEPS, _FEWEST_SWEEPS, _UNCERTIFIED_UPDATES = 1000, 10, 10**10


@dataclass(frozen=True)
class Plan:
    """What an estimate will do.

    Attributes
    ----------
    method : {"exact", "dobrushin", "uncertified"}
    reason : str
        Why this method, in a sentence.
    tolerance, confidence : float
        What was asked for.
    bias : float or None
        The part of the tolerance that the bias of the scan takes, certified; None where it is unknown.
    interval : str
        The confidence interval that will be used, fixed before any data are seen.
    intervals : int
        How many of them have to hold at once (Bonferroni).
    scan : Scan or None
        None when nothing is sampled.
    chains : int
        Number of chains. Means of statistics stop earlier if their variance allows it.
    kernel : str or None
        How `sample` will draw.
    seconds : float
        About how long it will take.

    Examples
    --------
    >>> import dobrushin as db
    >>> print(db.plan(db.Ising.grid(1000, 1000, couplings=0.2), targets=[0], tolerance=0.01))
    Plan: dobrushin (certified before sampling: Dobrushin's bound reaches the tolerance)
      tolerance 0.01 at confidence 0.99 = 0.00177 bias + 0.00823 Monte Carlo
      interval  Clopper-Pearson, 1 at once
      scan      175 steps x 24640 chains = 4.31e+06 updates, kernel bits
      time      about ... s
    """

    method: str
    reason: str
    tolerance: float
    confidence: float
    bias: float | None
    interval: str
    intervals: int
    scan: Scan | None = None
    chains: int = 0
    kernel: str | None = None
    seconds: float = 0.0

    @property
    def updates(self) -> int:
        """Total number of Gibbs updates."""
        return 0 if self.scan is None else len(self.scan) * self.chains

    @property
    def monte_carlo(self) -> float:
        """The part of the tolerance that is left for the random error."""
        return self.tolerance - (self.bias or 0.0)

    @property
    def is_certified(self) -> bool:
        """Whether the estimate will come with a guarantee."""
        return self.method != "uncertified"

    def __str__(self) -> str:
        lines = [f"Plan: {self.method} ({self.reason})"]
        if self.scan is not None:
            bias = "unknown" if self.bias is None else f"{self.bias:.3g}"
            split = f" = {bias} bias + {self.monte_carlo:.3g} Monte Carlo"
        else:
            split = ""
        lines.append(f"  tolerance {self.tolerance:g} at confidence {self.confidence:g}{split}")
        lines.append(f"  interval  {self.interval}, {self.intervals} at once")
        if self.scan is not None:
            most = "at most about " if "Bernstein" in self.interval else ""
            work = f"{len(self.scan)} steps x {most}{self.chains} chains = {self.updates:.3g} updates"
            lines.append(f"  scan      {work}, kernel {self.kernel}")
        lines.append(f"  time      about {self.seconds:.2g} s")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Query:
    """A call of `plan` or `estimate`, read and checked."""

    space: Workspace
    questions: list[Question]
    tolerance: float
    confidence: float
    method: str
    budget: float | None

    @property
    def intervals(self) -> int:
        """How many intervals have to hold at once."""
        return sum(question.intervals for question in self.questions)

    @property
    def error(self) -> float:
        """The probability with which each of them may be wrong."""
        return (1.0 - self.confidence) / self.intervals


def plan(
    model: Model,
    targets: Any,
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, int] | None = None,
    method: str = "auto",
    budget: float | None = None,
) -> Plan:
    """Say what `estimate` would do with the same arguments, without doing it.

    Parameters
    ----------
    model, targets, tolerance, confidence, evidence, method, budget
        As for `estimate`.

    Returns
    -------
    Plan

    Raises
    ------
    CertificateError
        When there is no way to a guarantee.
    BudgetError
        When the plan needs more updates than the budget; it carries the plan.

    Notes
    -----
    The length T of the scan and the number N of chains are those with the smallest N T for which the bias bound of the
    scan and the half-width of the interval together are at most the tolerance. Scans are backward greedy, so that
    shorter ones are ends of longer ones and all lengths are compared in one go.

    Examples
    --------
    >>> import dobrushin as db
    >>> made = db.plan(db.Ising.grid(300, 300, couplings=0.2), targets=[0, 1], tolerance=0.02)
    >>> made.method, len(made.scan), made.chains
    ('dobrushin', 208, 6784)
    """
    return make_plan(read_query(model, targets, tolerance, confidence, evidence, method, budget))


def read_query(
    model: Model, targets: Any, tolerance: Any, confidence: Any, evidence: Any, method: Any, budget: Any
) -> Query:
    """Check the arguments that `plan` and `estimate` share."""
    if not isinstance(model, Model):
        raise ArgumentError("estimate", "model", "a model", model)
    numbers = {}
    for name, value in (("tolerance", tolerance), ("confidence", confidence)):
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < 1:
            raise ArgumentError("estimate", name, "a number between 0 and 1, both excluded", value)
        numbers[name] = float(value)
    check.choice(method, METHODS, "estimate", "method")
    budget = None if budget is None else check.positive(budget, "estimate", "budget")
    if evidence is not None and not isinstance(evidence, Mapping):
        raise ArgumentError("estimate", "evidence", "a dict from labels to states", evidence)
    given: dict[Hashable, int] = dict(evidence or {})
    space = workspace(model).given(given)
    questions = read_targets(model, targets, given, space.model)
    return Query(space, questions, numbers["tolerance"], numbers["confidence"], method, budget)


def make_plan(query: Query) -> Plan:
    """The plan of a query."""
    made = _choose(query)
    if query.budget is not None and made.updates > query.budget and not _is_sequential(made):
        remedy = "Allow more, or ask for less: a larger tolerance, a lower confidence, fewer targets."
        raise BudgetError("This estimate", made.updates, query.budget, "Gibbs updates", remedy, made)
    return made


def _is_sequential(made: Plan) -> bool:
    return "Bernstein" in made.interval


def _choose(query: Query) -> Plan:
    if query.method == "uncertified":
        return _uncertified(query)
    if query.method == "exact":
        return _exact(query, "asked for")
    reasons: dict[str, str] = {}
    sampled = _dobrushin(query)
    if sampled is None:
        reasons["dobrushin"] = why_not_dobrushin(query)
    if query.method == "dobrushin":
        if sampled is None:
            raise CertificateError(reasons, _REMEDY)
        return sampled
    # Looking for a clique tree costs time by itself: not worth it where sampling is done sooner.
    worth = math.inf if sampled is None else max(sampled.seconds, _QUICK)
    if query.space.model.n_variables * _SECONDS_PER_VARIABLE < worth:
        try:
            exact = _exact(query, "a clique tree fits in memory" if sampled is None else "no dearer than sampling")
        except (BudgetError, CertificateError) as refusal:
            reasons["exact"] = str(refusal)
        else:
            if exact.seconds < worth:
                return exact
    if sampled is None:
        raise CertificateError(reasons, _REMEDY)
    return sampled


_REMEDY = (
    "What may help: a larger tolerance or fewer targets; fixing strongly coupled variables (evidence=); joint "
    "variables (model.merge). For an estimate without any guarantee pass method='uncertified'."
)


# -- Dobrushin -----------------------------------------------------------------------------------------------------


def combined(questions: list[Question]) -> Objective:
    """The variables that any question looks at, each with its largest weight."""
    positions = np.unique(np.concatenate([question.positions for question in questions]))
    weights = np.zeros(len(positions))
    for question in questions:
        np.maximum.at(weights, np.searchsorted(positions, question.positions), question.weights)
    return Objective(positions, weights, False)


def biases(questions: list[Question], objective: Objective, bounds: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Bounds on the bias of each row of each question, from bounds on the variables of the objective."""
    return [q.biases(bounds[np.searchsorted(objective.positions, q.positions)]) for q in questions]


def _dobrushin(query: Query) -> Plan | None:
    """The cheapest scan and number of chains; None when the bias cannot be brought below the tolerance."""
    objective = combined(query.questions)
    search = BackwardGreedy(query.space.rows, objective)

    def bias(scan: Scan, error: Any = 0.0) -> float:
        bounds = evaluate(query.space.rows, scan, objective, 1.0, error).target_bounds
        return max(float(part.max()) for part in biases(query.questions, objective, bounds))

    scan = _cheapest(search, bias, query)
    if scan is None:
        return None
    made = Plan("dobrushin", _REACHED, query.tolerance, query.confidence, bias(scan), *_interval(query), scan)
    made = _with_chains(made, query)
    # The draws are not exact: the bound that counts includes what the kernel errs.
    region = region_of(query.space.model, scan)
    kernel = build_kernel(query.space.model, scan, region, made.chains, None)
    error = update_error(query.space.model.n_variables, scan, region, kernel)
    certified = bias(scan, error)
    if certified >= query.tolerance:
        return None
    made = _with_chains(replace(made, bias=certified, kernel=kernel.name), query)
    return replace(made, seconds=expected_seconds(kernel.name, made.updates))


_REACHED = "certified before sampling: Dobrushin's bound reaches the tolerance"


def _cheapest(search: BackwardGreedy, bias: Any, query: Query) -> Scan | None:
    """The scan with the least steps x chains; chains go with 1 / (tolerance - bias)^2."""
    tolerance = query.tolerance
    length = _first_length(search, query)
    if length is None:
        return None
    best, least = None, math.inf
    while True:
        search.extend(0.0, length)
        scan = Scan(search.order(min(length, search.steps))) if search.steps else Scan(search.first())
        left = tolerance - bias(scan)
        if left > 0 and len(scan) / left**2 < least:
            best, least = scan, len(scan) / left**2
        if search.steps < length or length / tolerance**2 >= least:
            return best  # there is nothing more to update, or no longer scan can be cheaper
        if best is None and (length >= MOST_STEPS or (length > FIRST_LOOK and stagnates(search.norms))):
            return None
        length += max(1, length // 8)


def _first_length(search: BackwardGreedy, query: Query) -> int | None:
    """A length below which the bias is too large; None if that of all lengths is.

    The norm of the search bounds the sum of all biases, which is at most so many times the largest one.
    """
    sizes = [len(q.positions) if not isinstance(q, Mean) else 1 for q in query.questions]
    goal, look = query.tolerance * sum(sizes), FIRST_LOOK
    while not search.extend(goal, look):
        if search.steps < look:
            break
        if look >= MOST_STEPS or stagnates(search.norms):
            return None
        look *= 2
    return max(1, search.steps)


def _interval(query: Query) -> tuple[str, int]:
    counted = any(is_counted(question) for question in query.questions)
    averaged = not all(is_counted(question) for question in query.questions)
    names = ["Clopper-Pearson"] * counted + ["empirical Bernstein (stops when narrow enough)"] * averaged
    return " and ".join(names), query.intervals


def _with_chains(made: Plan, query: Query) -> Plan:
    """As many chains as the random error needs."""
    chains = 64
    for question in query.questions:
        if is_counted(question):
            chains = max(chains, chains_for_counts(query, made.monte_carlo))
        elif isinstance(question, Mean) and (aim := made.monte_carlo / question.span) < 0.5:
            chains = max(chains, values_needed(aim, query.error))
    return replace(made, chains=-(-chains // 64) * 64)


def is_counted(question: Question) -> bool:
    """Whether chains are counted, not averaged."""
    return not isinstance(question, Mean) or question.is_event


def chains_for_counts(query: Query, half_width: float) -> int:
    """As many chains as no Clopper-Pearson interval is wider for; whole words of them."""
    return -(-trials_needed(half_width, query.error) // 64) * 64


def expected_seconds(kernel: str, updates: float) -> float:
    """About how long so many updates take on all cores."""
    return _OVERHEAD + updates / (_RATES[kernel] * (os.cpu_count() or 1))


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


# -- exact ---------------------------------------------------------------------------------------------------------


def _exact(query: Query, reason: str) -> Plan:
    """By clique trees: one for the single variables, one more for every joint question."""
    cells = [_cells(query.space.model, question) for question in query.questions]
    for question, size in zip(query.questions, cells, strict=True):
        if size > _MOST_CELLS:
            what = f"{question.targets[0]!r} depends on {size:.3g} joint states, too many to add up"
            raise CertificateError({"exact": f"{what}."}, _REMEDY)
    tree = known_tree(query.space)
    trees = 1 + sum(size > 0 for size in cells)
    seconds = trees * (query.space.model.n_variables * _SECONDS_PER_VARIABLE + tree.memory * _SECONDS_PER_BYTE)
    why = f"{reason}: width {tree.width}, {tree.memory / 2**20:.3g} MiB"
    return Plan("exact", why, query.tolerance, query.confidence, 0.0, "none needed", query.intervals, seconds=seconds)


def _cells(model: Model, question: Question) -> float:
    """Joint states of the variables that a question about several looks at; 0 for single variables."""
    if len(question.positions) == 1 or (not hasattr(question, "joint") and not isinstance(question, Mean)):
        return 0
    return math.prod(model.cardinalities[question.positions].tolist())


def known_tree(space: Workspace) -> CliqueTree:
    """The clique tree of a model, looked for once."""
    if "tree" not in space.memory:
        try:
            space.memory["tree"] = clique_tree(space.model, MEMORY_LIMIT)
        except BudgetError as refusal:
            space.memory["tree"] = refusal
    if isinstance(space.memory["tree"], BudgetError):
        raise space.memory["tree"]
    tree: CliqueTree = space.memory["tree"]
    return tree


# -- without a certificate -----------------------------------------------------------------------------------------


def _uncertified(query: Query) -> Plan:
    """Sweeps over everything, from everywhere; how far that is from the truth is not known."""
    n = query.space.model.n_variables
    reason = "NOT CERTIFIED: the bias of the scan is unknown"
    made = Plan(
        "uncertified", reason, query.tolerance, query.confidence, None, *_interval(query), Scan.systematic(n, n)
    )
    made = _with_chains(made, query)
    allowed = _UNCERTIFIED_UPDATES if query.budget is None else query.budget
    sweeps = min(_SWEEPS, max(_FEWEST_SWEEPS, int(allowed // (made.chains * n))))
    if query.budget is not None and made.chains * n * sweeps > query.budget:
        sweeps = max(1, int(query.budget // (made.chains * n)))
    scan = Scan.systematic(n, sweeps * n)
    kernel = build_kernel(query.space.model, scan, region_of(query.space.model, scan), made.chains, None)
    made = replace(made, scan=scan, kernel=kernel.name)
    return replace(made, seconds=expected_seconds(kernel.name, made.updates))
