"""What a way to an answer is: it plans, answers from what it planned, and says in words what the answer rests on.

To add one, write a subclass of `Method` in a file of its own and register it in the `__init__` of this room. Everybody
who speaks of methods reads the list: `estimate`, `plan`, the command line, the report.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.origin import Asked, Transcript
from dobrushin._estimate.query import METHODS, Query
from dobrushin._estimate.questions import Question
from dobrushin._estimate.targets import shown
from dobrushin._models import Model
from dobrushin._models.near import Numbering
from dobrushin._sampling import Samples
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import guarded
from dobrushin._shared.deadline import NO_DEADLINE
from dobrushin._shared.html import card
from dobrushin._shared.running import Running, kept_seed
from dobrushin._shared.text import in_full, percent, rounded_up
from dobrushin._variation import Variation
from dobrushin.errors import BudgetError, CertificateError, Interrupted, WorkerError

if TYPE_CHECKING:
    from dobrushin._estimate.runs import Run

# Joint states of the law of some variables that are added up at most.
_MAX_JOINT_STATES = 2**14
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
        Number of chains: never more. Means of statistics stop earlier if their variance allows it.
    kernel : str or None
        How `sample` will draw.
    seconds : float
        About how long it will take.
    reaches_tolerance : bool
        False where a pilot (coalescence) has shown that some intervals will be wider.
    stops_early : bool
        Whether fewer chains may do.
    other_updates : int
        Gibbs updates besides those of the scan: of a pilot, which are spent already, or of all parts.
    is_certified : bool
        Whether the estimate will come with a guarantee.
    is_certain : bool
        Whether nothing is left to chance.
    relevance : str
        How many variables matter to the targets, where the others were dropped. The scan is for the model of these
        variables: in the whole one, variables that do not matter to the targets would still move their neighbours.

    Examples
    --------
    >>> import dobrushin as db
    >>> print(db.plan(db.Ising.grid(1000, 1000, couplings=0.2), targets=[0], method="dobrushin"))
    Plan: dobrushin (certified before sampling: Dobrushin's bound reaches the tolerance)
      tolerance 0.01 at confidence 99% = 0.00177 bias + 0.00823 Monte Carlo
      interval  Clopper-Pearson, 1 at once
      scan      175 steps x 24704 chains = 4.32e+06 updates, kernel bits
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
    other_updates: int = 0
    is_certified: bool = True
    is_certain: bool = False
    relevance: str = ""
    noun: str = "probability"  # what a label by itself was taken to ask for
    made_by: type[Method] | None = field(default=None, repr=False)

    @property
    def updates(self) -> int:
        """Total number of Gibbs updates, those of a pilot included: never more."""
        return self.other_updates + (0 if self.scan is None else len(self.scan) * self.chains)

    @property
    def monte_carlo(self) -> float:
        """The part of the tolerance that is left for the random error."""
        return self.tolerance - (self.bias or 0.0)

    def lift(self, part: Numbering) -> Plan:
        """The plan with its scan by positions in the model that the part belongs to."""
        return self if self.scan is None else replace(self, scan=self.scan.lift(part))

    def __str__(self) -> str:
        lines = [f"Plan: {self.method} ({self.reason})"]
        split = ""
        if self.scan is not None:
            bias = "unknown" if self.bias is None else rounded_up(self.bias)
            split = f" = {bias} bias + {self.monte_carlo:.3g} Monte Carlo"
        lines.append(f"  tolerance {in_full(self.tolerance)} at confidence {percent(self.confidence)}{split}")
        lines.append(f"  interval  {self.interval}, {self.intervals} at once")
        if self.scan is not None:
            most = "at most " if self.stops_early else ""
            own, pilot = float(len(self.scan)) * self.chains, f" (pilot: {self.other_updates:.3g})"
            work = f"{len(self.scan)} steps x {most}{self.chains} chains = {own:.3g} updates"
            work += pilot if self.other_updates else ""
            lines.append(f"  scan      {work}, kernel {self.kernel}")
        if self.relevance:
            lines.append(f"  model     {self.relevance}")
        lines.append(f"  time      about {self.seconds:.2g} s")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        heading, *lines = str(self).split("\n")
        pairs = [line.split(None, 1) for line in lines]
        return card(heading, [(name, text) for name, text in pairs])


@dataclass
class Choice:
    """What "auto" knows while it asks one method after the other.

    Attributes
    ----------
    best : Method or None
        The best proposal so far.
    refusals : dict from name to str
        Why methods that were asked before have no proposal.
    can_sample : bool
        Whether some method has a scan that it would run.
    by_name : bool
        Whether the user asked for this method: then there is no rival, and no reason to spare time.
    """

    best: Method | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    can_sample: bool = False
    by_name: bool = False


@dataclass(frozen=True)
class Curve:
    """A bound against the steps of a scan, for people to look at."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    words: str


class Rows(NamedTuple):
    """What is known about the rows of one question."""

    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    bias: NDArray[np.float64]


class Method(ABC):
    """A way to an answer. An instance is a proposal for one query: its plan, and whatever planning has made.

    Attributes
    ----------
    name : str
        What `estimate` calls it.
    is_certified : bool
        Whether its answers come with a guarantee.
    is_certain : bool
        Whether nothing is left to chance.
    in_auto : bool
        Whether "auto" asks for it.
    works_nearby : bool
        Whether it looks only at what is near the targets, and so works on a part of a larger model.
    reach : int
        How many times as far as others it looks around the targets.
    outcomes : str
        What is counted: "chains", or what takes their place.
    remedy : str
        What may help where there is no certificate.
    bias_is_proven : bool
        Whether a bound on the bias holds for certain, and not at a confidence.
    share : float
        The part of the time that is left for planning that it may take in "auto", if it is not the last one.
    """

    name: ClassVar[str]
    is_certified: ClassVar[bool] = True
    is_certain: ClassVar[bool] = False
    in_auto: ClassVar[bool] = True
    works_nearby: ClassVar[bool] = False
    reach: ClassVar[int] = 1
    outcomes: ClassVar[str] = "chains"
    remedy: ClassVar[str] = REMEDY
    bias_is_proven: ClassVar[bool] = True
    share: ClassVar[float] = 0.5

    def __init__(self, query: Query, plan: Plan) -> None:
        self.query, self.plan = query, plan

    @classmethod
    def quick_seconds(cls, query: Query) -> float | None:
        """Return about how long `propose_quickly` takes; None where other methods should be asked first."""
        del query
        return None

    @classmethod
    def propose_quickly(cls, query: Query) -> Method | None:
        """Return a certain proposal that is taken whatever others would propose; None where there is none.

        `CertificateError` or `BudgetError` where it has none for a reason.
        """
        del query
        return None

    @classmethod
    @abstractmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        """Its own proposal, or the best one so far if that is better.

        `CertificateError` or `BudgetError` where it has none.
        """

    @abstractmethod
    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """The answer, from what was planned."""

    def begin(self, sequence: np.random.SeedSequence, running: Running) -> Run | None:
        """The run that gives the answer, for those who draw several together; None where nothing is drawn."""
        del sequence, running
        return None

    @classmethod
    @abstractmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        """Why the intervals hold, or why they need not: paragraphs for people."""

    @classmethod
    def curve(cls, estimate: Estimate, model: Model | None) -> Curve | None:
        """The bound against the steps, where there is one; `model` is the one given the evidence."""
        del estimate, model
        return None

    def assemble(
        self, rows: list[Rows], confidence: float, assumptions: tuple[str, ...], plan: Plan | None = None,
        *, samples: Samples | None = None, certificate: Variation | None = None,
        seed: np.random.SeedSequence | None = None, run: Any = None,
    ) -> Estimate:  # fmt: skip
        """Put the rows of all questions together."""
        targets = [target for question in self.query.questions for target in question.targets]
        states = [state for question in self.query.questions for state in question.states]
        mean, lower, upper, bias = (frozen(np.concatenate(column)) for column in zip(*rows, strict=True))
        plan, kept = plan or self.plan, None if seed is None else kept_seed(seed)
        if plan.relevance:
            assumptions = (*assumptions, f"{plan.relevance}; rounding in what the others sum to is included")
        return Estimate(
            targets, states, mean, lower, upper, bias, confidence, assumptions, plan, samples, certificate, kept,
            asked=Asked(transcript=Transcript(self, run)) if self.query.proof else None,
        )  # fmt: skip

    @classmethod
    def draft(cls, query: Query, reason: str, bias: float | None, **parts: Any) -> Plan:
        """A plan of this method, with what every plan says."""
        averaged = not all(question.is_counted for question in query.questions)
        counted_first = sorted(query.questions, key=lambda question: not question.is_counted)
        names = dict.fromkeys(question.interval for question in counted_first)
        interval = "none needed" if cls.is_certain else " and ".join(names)
        return Plan(
            cls.name, reason, query.tolerance, query.confidence, bias, interval, query.intervals,
            stops_early=averaged and not cls.is_certain, is_certified=cls.is_certified, is_certain=cls.is_certain,
            relevance=query.relevance, noun=query.space.noun, made_by=cls,
            **parts,
        )  # fmt: skip

    @classmethod
    def refuse(cls, reason: str) -> CertificateError:
        """What to raise where there is no proposal."""
        return CertificateError({cls.name: reason}, cls.remedy)

    @classmethod
    def refuse_many_states(cls, query: Query, question: Question) -> None:
        """Refuse a question about the joint law of more states than are added up."""
        states = math.prod(query.model._form.sizes_at(question.positions).tolist())
        if question.needs_joint_law and states > _MAX_JOINT_STATES:
            count = f"{states:.3g}" if states < 1e300 else "more than 1e300"
            raise cls.refuse(f"{shown(question.targets[0])!r} depends on {count} joint states, too many to add up.")

    def updated(self) -> NDArray[np.int64]:
        """Positions of the variables whose neighbours the answer relies on; none where it relies on all of them."""
        scan, n = self.plan.scan, self.query.model.n_variables
        return np.empty(0, dtype=np.int64) if scan is None else scan.updates(n)

    def needed_updates(self) -> int:
        """Updates that are made whatever the outcomes are: means may stop early, counts do not."""
        if self.plan.scan is None or not self.plan.stops_early:
            return self.plan.updates
        return len(self.plan.scan) * self.query.least_chains(self.plan.monte_carlo)


class Nothing(Method):
    """What there is when no method has given anything: the limits that hold for every model."""

    name: ClassVar[str] = "none"
    in_auto: ClassVar[bool] = False

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method:
        del choice
        return cls(query, cls.draft(query, "no method has given anything", None))

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        del sequence, running
        rows = []
        for question in self.query.questions:
            least, most = (np.full(len(question), end) for end in question.bounds)
            with np.errstate(invalid="ignore"):  # where there are no bounds, there is no middle
                middle = 0.5 * (least + most)
            rows.append(Rows(middle, least, most, most - least))
        return self.assemble(rows, 1.0, ("nothing: these limits hold for every model",))

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        del estimate
        return ["No method had given anything when the call ended. The limits are those that hold for every model."]


def nothing_known(query: Query) -> Estimate:
    """The answer to a query of which nothing is known."""
    return Nothing.propose(query, Choice()).answer(np.random.SeedSequence(0), Running())


def method_of(plan: Plan) -> type[Method]:
    """The method that made a plan."""
    return plan.made_by or Nothing


@contextmanager
def adapt_errors(adapt: Callable[[Estimate], Estimate], part: Numbering | None) -> Iterator[None]:
    """Adapt the estimates that errors carry; their plans to the model that a part belongs to."""
    try:
        yield
    except Interrupted as error:
        raise interrupted(adapt(error.result)) from None
    except (CertificateError, WorkerError) as error:
        if error.result is None:
            raise
        raise error.with_result(adapt(error.result)) from None
    except BudgetError as error:
        plan = error.plan if part is None or error.plan is None else error.plan.lift(part)
        raise error.with_result(None if error.result is None else adapt(error.result), plan) from None


def register(method: type[Method]) -> type[Method]:
    """Make a method known under its name; "auto" asks it after those that are known before it."""
    METHODS[method.name] = method
    return method


def is_certain(name: str) -> bool:
    """Whether a method leaves nothing to chance; "auto" may."""
    return name in METHODS and METHODS[name].is_certain


def interrupted(estimate: Estimate) -> Interrupted:
    """Return the error that carries what an estimate had reached when Ctrl-C was pressed."""
    return Interrupted(f"the intervals so far have half-widths up to {estimate.half_width.max():.3g}", result=estimate)


@contextmanager
def carry_estimate(query: Query, plan: Plan | None = None) -> Iterator[None]:
    """Attach an estimate to errors that have none, at worst a vacuous one, and a plan to those of budgets."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise interrupted(nothing_known(query)) from None
    except CertificateError as error:
        raise error.with_result(error.result or nothing_known(query)) from None
    except BudgetError as error:
        raise error.with_result(error.result or nothing_known(query), error.plan or plan) from None


def answer(method: Method, sequence: np.random.SeedSequence, running: Running) -> Estimate:
    """Return the answer of a proposal; errors carry an estimate, at worst a vacuous one."""
    return answer_by(lambda: method.answer(sequence, running), method, running)


def answer_by(find: Callable[[], Estimate], method: Method, running: Running) -> Estimate:
    """Return what a function finds as the answer of a proposal; errors are those of `answer`."""
    limit = nullcontext() if running.deadline is NO_DEADLINE else running.deadline
    with carry_estimate(method.query, method.plan), limit:
        return guarded(find)
