"""What a way to an answer is: it plans, answers from what it planned, and says in words what the answer rests on.

To add one, write a subclass of `Method` and register it; see `methods.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.query import Query
from dobrushin._models import Model
from dobrushin._models.near import Numbering
from dobrushin._scan import Scan
from dobrushin._shared.executors import Running
from dobrushin.errors import CertificateError

if TYPE_CHECKING:
    from dobrushin._estimate.answer import Estimate

REMEDY = (
    "What may help: a larger tolerance or fewer targets; fixing strongly coupled variables (evidence=); joint "
    "variables (model.merge with suggest_groups). For an estimate without any guarantee pass method='uncertified'."
)


@dataclass(frozen=True)
class Plan:
    """What an estimate will do.

    Attributes
    ----------
    method : str
        A name that `estimate` takes, but for "auto".
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
    stops_early : bool
        Whether fewer chains may do.
    is_certified : bool
        Whether the estimate will come with a guarantee.
    is_certain : bool
        Whether nothing is left to chance.

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
    stops_early: bool = False
    is_certified: bool = True
    is_certain: bool = False

    @property
    def updates(self) -> int:
        """Total number of Gibbs updates."""
        return 0 if self.scan is None else len(self.scan) * self.chains

    @property
    def monte_carlo(self) -> float:
        """The part of the tolerance that is left for the random error."""
        return self.tolerance - (self.bias or 0.0)

    def lift(self, part: Numbering | None) -> Plan:
        """The plan with its scan by positions in the model that the part belongs to."""
        return self if self.scan is None or part is None else replace(self, scan=self.scan.lift(part))

    def __str__(self) -> str:
        lines = [f"Plan: {self.method} ({self.reason})"]
        split = ""
        if self.scan is not None:
            bias = "unknown" if self.bias is None else f"{self.bias:.3g}"
            split = f" = {bias} bias + {self.monte_carlo:.3g} Monte Carlo"
        lines.append(f"  tolerance {self.tolerance:g} at confidence {self.confidence:g}{split}")
        lines.append(f"  interval  {self.interval}, {self.intervals} at once")
        if self.scan is not None:
            most = "at most about " if self.stops_early else ""
            work = f"{len(self.scan)} steps x {most}{self.chains} chains = {self.updates:.3g} updates"
            lines.append(f"  scan      {work}, kernel {self.kernel}")
        lines.append(f"  time      about {self.seconds:.2g} s")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass
class Choice:
    """What "auto" knows while it asks one method after the other.

    Attributes
    ----------
    best : Method or None
        The best proposal so far.
    refusals : dict from name to str
        Why methods that were asked before have no proposal.
    by_name : bool
        Whether the user asked for this method: then there is no rival, and no reason to spare time.
    """

    best: Method | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    by_name: bool = False


@dataclass(frozen=True)
class Curve:
    """A bound against the steps of a scan, for people to look at."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    words: str


class Method(ABC):
    """A way to an answer. An instance is a proposal for one query: its plan, and whatever planning has made.

    Attributes
    ----------
    name : str
        What `estimate` calls it.
    summary : str
        What it does, in a line of a help text.
    is_certified : bool
        Whether its answers come with a guarantee.
    is_certain : bool
        Whether nothing is left to chance.
    in_auto : bool
        Whether "auto" asks for it.
    works_nearby : bool
        Whether it looks only at what is near the targets, and so works on a part of a larger model.
    outcomes : str
        What is counted: "chains", or what takes their place.
    bias_is_proven : bool
        Whether a bound on the bias holds for certain, and not at a confidence.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    is_certified: ClassVar[bool] = True
    is_certain: ClassVar[bool] = False
    in_auto: ClassVar[bool] = True
    works_nearby: ClassVar[bool] = False
    outcomes: ClassVar[str] = "chains"
    bias_is_proven: ClassVar[bool] = True

    def __init__(self, query: Query, plan: Plan) -> None:
        self.query, self.plan = query, plan

    @classmethod
    @abstractmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        """Its own proposal, or the best one so far if that is better.

        `CertificateError` or `BudgetError` where it has none.
        """

    @abstractmethod
    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """The answer, from what was planned."""

    @classmethod
    @abstractmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        """Why the intervals hold, or why they need not: paragraphs for people."""

    @classmethod
    def curve(cls, estimate: Estimate, model: Model | None) -> Curve | None:
        """The bound against the steps, where there is one; `model` is the one given the evidence."""
        del estimate, model
        return None

    @classmethod
    def draft(cls, query: Query, reason: str, bias: float | None, **parts: Any) -> Plan:
        """A plan of this method, with what every plan says."""
        counted = any(question.is_counted for question in query.questions)
        averaged = not all(question.is_counted for question in query.questions)
        names = ["Clopper-Pearson"] * counted + ["empirical Bernstein (stops when narrow enough)"] * averaged
        interval = "none needed" if cls.is_certain else " and ".join(names)
        return Plan(
            cls.name, reason, query.tolerance, query.confidence, bias, interval, query.intervals,
            stops_early=averaged and not cls.is_certain, is_certified=cls.is_certified, is_certain=cls.is_certain,
            **parts,
        )  # fmt: skip

    @classmethod
    def refuse(cls, reason: str) -> CertificateError:
        """What to raise where there is no proposal."""
        return CertificateError({cls.name: reason}, REMEDY)

    def needed_updates(self) -> int:
        """Updates that are made whatever the outcomes are: means may stop early, counts do not."""
        if self.plan.scan is None or not self.plan.stops_early:
            return self.plan.updates
        return len(self.plan.scan) * self.query.least_chains(self.plan.monte_carlo)
