"""A question to the library, and the plan to answer it: what all methods share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.questions import Mean, Question, read_targets
from dobrushin._estimate.workspace import Workspace, workspace
from dobrushin._models import Model
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.executors import cores
from dobrushin._shared.intervals import trials_needed, values_needed
from dobrushin._variation.objective import Objective
from dobrushin.errors import ArgumentError

METHODS = ("auto", "exact", "dobrushin", "coalescence", "uncertified")
# Updates per second and core that the kernels make on an ordinary machine, for the expected time.
_RATES = {
    "bits": 3e9, "table": 1.5e8, "field": 1e8, "potts": 5e7, "factors": 1e7,
    "set bits": 1.2e9, "set field": 1e8, "set race": 1.5e6,
}  # fmt: skip
_OVERHEAD = 0.005


@dataclass(frozen=True)
class Plan:
    """What an estimate will do.

    Attributes
    ----------
    method : {"exact", "dobrushin", "coalescence", "uncertified"}
    reason : str
        Why this method, in a sentence.
    tolerance, confidence : float
        What was asked for.
    bias : float or None
        The part of the tolerance that is set aside for the bias of the scan: certified by Dobrushin's bound, or
        measured by a pilot (coalescence); None where it is unknown.
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
    reaches_tolerance : bool
        False where a pilot (coalescence) has shown that some intervals will be wider.

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
    reaches_tolerance: bool = True

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
    local: bool = False  # the model is a part of a larger one

    @cached_property
    def intervals(self) -> int:
        """How many intervals have to hold at once."""
        return sum(question.intervals for question in self.questions)

    @cached_property
    def error(self) -> float:
        """The probability with which each of them may be wrong."""
        return (1.0 - self.confidence) / self.intervals


def read_query(
    model: Any,
    targets: Any,
    tolerance: Any,
    confidence: Any,
    evidence: Any,
    method: Any,
    budget: Any,
    local: bool = False,
) -> Query:
    """Check the arguments that `plan` and `estimate` share."""
    if not isinstance(model, Model):
        raise ArgumentError("estimate", "model", "a model", model)
    settings = read_settings(tolerance, confidence, method, budget, "estimate")
    given = _read_evidence(model, evidence)
    space = workspace(model).given(given)
    questions = read_targets(model, targets, given, space.model)
    return Query(space, questions, *settings, local)


def read_settings(
    tolerance: Any, confidence: Any, method: Any, budget: Any, function: str
) -> tuple[float, float, str, float | None]:
    """Check what does not depend on the model."""
    for name, value in (("tolerance", tolerance), ("confidence", confidence)):
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < 1:
            raise ArgumentError(function, name, "a number between 0 and 1, both excluded", value)
    check.choice(method, METHODS, function, "method")
    most = None if budget is None else check.positive(budget, function, "budget")
    return float(tolerance), float(confidence), method, most


def _read_evidence(model: Model, evidence: Any) -> dict[Hashable, int]:
    """Labels as the model has them, states as whole numbers; so that equal evidence is recognised."""
    if evidence is None:
        return {}
    if not isinstance(evidence, Mapping):
        raise ArgumentError("estimate", "evidence", "a dict from labels to states", evidence)
    if not evidence:
        return {}
    positions = check.positions(list(evidence), model.labels, model._lookup, "estimate", "evidence")
    given: dict[Hashable, int] = {}
    for position, (label, value) in zip(positions.tolist(), evidence.items(), strict=True):
        states = model.states(position)
        if isinstance(value, bool) or not isinstance(value, Real) or value not in states:
            words = "-1, +1" if states.step == 2 else f"0 to {len(states) - 1}"
            requirement = f"one of the states {words} of {label!r}"
            raise ArgumentError("estimate", "evidence", requirement, value, f"label {label!r}")
        given[model.labels[position]] = int(float(value))
    return given


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


def intervals_of(query: Query) -> tuple[str, int]:
    """Which intervals are used, and how many have to hold at once."""
    counted = any(is_counted(question) for question in query.questions)
    averaged = not all(is_counted(question) for question in query.questions)
    names = ["Clopper-Pearson"] * counted + ["empirical Bernstein (stops when narrow enough)"] * averaged
    return " and ".join(names), query.intervals


def with_chains(made: Plan, query: Query) -> Plan:
    """As many chains as the random error needs."""
    chains = 64
    if any(is_counted(question) for question in query.questions):
        chains = chains_for_counts(query, made.monte_carlo)
    for question in query.questions:
        if isinstance(question, Mean) and not question.is_event and (aim := made.monte_carlo / question.span) < 0.5:
            chains = max(chains, values_needed(aim, query.error))
    return replace(made, chains=-(-chains // 64) * 64)


def is_counted(question: Question) -> bool:
    """Whether chains are counted, not averaged."""
    return not isinstance(question, Mean) or question.is_event


def chains_for_counts(query: Query, half_width: float) -> int:
    """As many chains as no Clopper-Pearson interval is wider for; whole words of them."""
    return -(-trials_needed(half_width, query.error) // 64) * 64


def complete(order: NDArray[np.int64], objective: Objective) -> Scan:
    """Variables that count for so little that no step was spent on them are updated once, at the beginning."""
    missing = np.setdiff1d(objective.positions, order)
    return Scan(np.concatenate([missing, order]) if len(missing) else order)


def expected_seconds(kernel: str, updates: float, cost: float = 1.0) -> float:
    """About how long so many updates take on all cores."""
    return _OVERHEAD + cost * updates / (_RATES[kernel] * cores())
