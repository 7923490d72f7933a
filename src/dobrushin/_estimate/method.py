"""Base class of the estimation methods, and the plan that a method makes for a query.

To add a method, write a subclass of `Method` in a separate file and register it in the `__init__` of this package.
`estimate`, `plan`, the command line and the report read the list of registered methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Asked, Estimate, Transcript
from dobrushin._estimate.partial import intersect
from dobrushin._estimate.query import METHODS, Query
from dobrushin._estimate.questions import TargetQuestion
from dobrushin._estimate.targets import name_of, shown
from dobrushin._models import Model
from dobrushin._models.near import Numbering
from dobrushin._sampling import Samples
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import guarded
from dobrushin._shared.running import MOST_SECONDS, Running, kept_seed
from dobrushin._shared.text import card, in_full, percent, rounded_up
from dobrushin._variation import Variation
from dobrushin.errors import BudgetError, CertificateError, Interrupted, WorkerError

if TYPE_CHECKING:
    from dobrushin._estimate.runs import Run

# Largest number of joint states of one target that may be summed.
_MAX_JOINT_STATES = 2**14
# "auto" asks no further methods once a certain answer takes at most this number of seconds.
QUICK_SECONDS = 0.1
# Methods that need a pilot are not planned where an answer is expected within this number of seconds.
SOON_SECONDS = 2.0
REMEDY = (
    "What may help: a larger tolerance, fewer targets, or evidence= for strongly coupled variables; diagnose(model) "
    "says whether joint variables would help. For an estimate without any guarantee pass method='uncertified'."
)


@dataclass(frozen=True)
class Plan:
    """Plan of an estimate: the method, its reason and its cost.

    Attributes
    ----------
    method : str
        Name of the method, as `estimate` takes it; never "auto".
    reason : str
        Why this method was chosen, in a sentence.
    tolerance, confidence : float
        Requested half-width and confidence of the intervals.
    bias : float or None
        Share of the tolerance reserved for the bias of the scan: certified by Dobrushin's bound, or estimated by a
        pilot (coalescence); None if unknown.
    interval : str
        Kind of confidence interval, fixed before anything is drawn.
    intervals : int
        Number of intervals that are valid at once (Bonferroni).
    scan : Scan or None
        Order of updates; None when nothing is sampled.
    chains : int
        Largest number of chains. Means of statistics stop earlier if their variance allows it.
    kernel : str or None
        Kernel with which the chains are drawn.
    seconds : float
        Expected time in seconds.
    reaches_tolerance : bool
        False if a pilot (coalescence) has shown that some intervals will be wider than the tolerance.
    stops_early : bool
        Whether fewer than `chains` chains may be enough.
    other_updates : int
        Gibbs updates besides those of the scan: already spent by a pilot, or planned for all subproblems together.
    is_certified : bool
        Whether the estimate will come with a guarantee.
    is_certain : bool
        Whether the intervals are valid with certainty: no random draws are involved.
    relevance : str
        Number of variables relevant to the targets, where the others were dropped. The scan is for the model of the
        relevant variables: in the whole model, the dropped variables would still influence their neighbours.

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
    noun: str = "probability"  # quantity that is estimated for a label: "probability" or "mean"
    made_by: type[Method] = field(default_factory=lambda: Nothing, repr=False)

    @property
    def updates(self) -> int:
        """Return the largest number of Gibbs updates, including those of a pilot; for clusters, the expected number."""
        return self.other_updates + (0 if self.scan is None else len(self.scan) * self.chains)

    @property
    def monte_carlo(self) -> float:
        """Return the part of the tolerance that the bias leaves for the random error."""
        return self.tolerance - (self.bias or 0.0)

    def _lift(self, part: Numbering) -> Plan:
        """Return the plan with its scan renumbered from a submodel to the whole model."""
        return self if self.scan is None else replace(self, scan=self.scan._lift(part))

    def __str__(self) -> str:
        most, kernel = "at most " if self.stops_early else "", f", kernel {self.kernel}" if self.kernel else ""
        sure = ", for certain" if self.is_certain else f" at confidence {percent(self.confidence)}"
        lines = [f"Plan: {self.method} ({self.reason})", f"  tolerance {in_full(self.tolerance)}{sure}"]
        if not self.is_certain:
            lines.append(f"  interval  {self.interval}, {self.intervals} at once")
        if self.scan is not None:
            bias = "unknown" if self.bias is None else rounded_up(self.bias)
            lines[1] += f" = {bias} bias + {self.monte_carlo:.3g} Monte Carlo"
            updates = f"{float(len(self.scan)) * self.chains:.3g} updates"
            updates += f" (pilot: {self.other_updates:.3g})" if self.other_updates else ""
            lines.append(f"  scan      {len(self.scan)} steps x {most}{self.chains} chains = {updates}{kernel}")
        elif self.chains:
            lines.append(f"  draws     {most}{self.chains}, about {self.other_updates:.3g} updates{kernel}")
        if self.relevance:
            lines.append(f"  model     {self.relevance}")
        lines.append(f"  time      about {self.seconds:.2g} s")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heading, *lines = str(self).split("\n")
        pairs = [line.split(None, 1) for line in lines]
        return card(heading, [(name, text) for name, text in pairs])


@dataclass
class Choice:
    """State of the search of method="auto" for the best proposal; the methods read and update it one after the other.

    Attributes
    ----------
    best : Method or None
        The best proposal so far.
    refusals : dict from name to str
        For each method without a proposal, the reason.
    can_sample : bool
        Whether some method has proposed a scan to run.
    by_name : bool
        Whether the user asked for this one method, which then has no rival and may plan for longer.
    so_far : list of functions
        Functions that return the certain intervals of methods that miss the tolerance; called if all methods miss it.
    fallback : Method or None
        A proposal that misses the tolerance by far, used only if no other method has one.
    quickly : bool
        Whether only answers are wanted that are certain and almost finished when they have been planned.
    """

    best: Method | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    can_sample: bool = False
    by_name: bool = False
    so_far: list[Callable[[], Estimate | None]] = field(default_factory=list)
    fallback: Method | None = None
    quickly: bool = False


@dataclass(frozen=True)
class Curve:
    """A bound after each number of steps of a scan, to be plotted, with a caption (`words`)."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    words: str


class AnswerRows(NamedTuple):
    """Estimates, interval limits and bias bounds of one question, with an entry for each target and state."""

    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    bias: NDArray[np.float64]

    @classmethod
    def within(
        cls, question: Any, value: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64],
        bias: NDArray[np.float64], widening: NDArray[np.float64] | None = None,
    ) -> AnswerRows:  # fmt: skip
        """Return the rows with intervals widened on both sides by the bias (or by `widening`).

        The intervals are cut at the least and the largest possible value (the `bounds` of the question).
        """
        (least, most), wider = question.bounds, bias if widening is None else widening
        return cls(value, np.maximum(lower - wider, least), np.minimum(upper + wider, most), bias)


class Method(ABC):
    """Base class of the methods of `estimate`; an instance is a proposal: a query with a plan for its answer.

    Attributes
    ----------
    name : str
        Name of the method, as `estimate` takes it.
    is_certified : bool
        Whether answers of the method come with a guarantee.
    is_certain : bool
        Whether intervals are valid with certainty: no random draws are involved.
    in_auto : bool
        Whether method="auto" considers the method.
    works_nearby : bool
        Whether the method reads only variables near the targets, and so can work on a ball around them.
    reach : int
        Radius of the first ball around the targets, as a multiple of the usual one.
    outcomes : str
        Noun for the draws that are counted, such as "chains".
    remedy : str
        Advice for users if the method has no certificate.
    bias_is_proven : bool
        Whether bias bounds are valid with certainty, not only with a confidence.
    has_proof : bool
        Whether answers can be written as proofs.
    share : float
        Share of the remaining planning time that the method may use in "auto", unless it is the last method.
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
    has_proof: ClassVar[bool] = True
    share: ClassVar[float] = 0.5

    def __init__(self, query: Query, plan: Plan) -> None:
        self.query, self.plan = query, plan
        self.known: list[Estimate] = []  # certain intervals of other methods
        self.refusals: dict[str, str] = {}  # why the other methods have no proposal, if this one misses the tolerance

    def narrow(self, estimate: Estimate, tolerance: float | None = None) -> Estimate:
        """Intersect an answer that misses the tolerance with the certain intervals of other methods.

        Other answers are returned unchanged. If a proof is wanted, nothing is intersected: a proof is about the
        intervals of one method.
        """
        is_missed = self.misses(estimate, tolerance) and not self.query.proof
        return intersect(estimate, self.known) if is_missed else estimate

    def misses(self, estimate: Estimate, tolerance: float | None = None) -> bool:
        """Return whether some interval of the estimate is wider than the tolerance."""
        return bool((estimate.half_width > (tolerance or self.query.tolerance)).any())

    def too_wide(self, estimate: Estimate, reason: str, remedy: str) -> CertificateError:
        """Return the `CertificateError` for an answer that misses the tolerance, with the answer as its result."""
        return CertificateError({self.name: reason}, remedy, result=estimate)

    def describe_wide(self, estimate: Estimate) -> tuple[int, int, str]:
        """Count the targets with too wide intervals, and all targets; return both numbers, and a text about the widest
        interval.
        """
        names = [name_of(target) for target in estimate.targets]
        pairs = zip(names, estimate.half_width, strict=True)
        wide = {name for name, half_width in pairs if half_width > self.query.tolerance}
        worst = int(np.argmax(estimate.half_width))
        return len(wide), len(set(names)), f"the widest is {estimate.half_width[worst]:.3g} at {names[worst]}"

    @classmethod
    def asking_seconds(cls, query: Query, quickly: bool) -> float | None:
        """Return the least seconds that planning with this method takes; None if "auto" should not ask it.

        `quickly` is true in the first round, which looks for answers that are certain and almost finished by planning.
        """
        return None if quickly else 0.0

    @classmethod
    @abstractmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        """Return this method's proposal for the query, or the best one so far (`choice.best`) if that is better.

        Raise `CertificateError` or `BudgetError` if the method has no proposal.
        """

    @abstractmethod
    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """Return the answer to the planned query."""

    def begin(self, sequence: np.random.SeedSequence, running: Running) -> Run | None:
        """Return a run that is still to be drawn, so that runs of several queries can be drawn together.

        Return None if the method draws nothing, or if its draws cannot wait for those of other queries.
        """
        return None

    @classmethod
    @abstractmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        """Explain in a few paragraphs why the intervals are valid, or why they may not be valid."""

    @classmethod
    def curve(cls, estimate: Estimate, model: Model | None) -> Curve | None:
        """Return the bound on the bias after each number of steps, to be plotted; None if the method has no such bound.

        `model` is the model conditioned on the evidence.
        """
        return None

    def assemble(
        self, rows: list[AnswerRows], confidence: float, assumptions: tuple[str, ...], plan: Plan | None = None,
        *, samples: Samples | None = None, certificate: Variation | None = None,
        seed: np.random.SeedSequence | None = None, run: Run | None = None,
    ) -> Estimate:  # fmt: skip
        """Make an estimate from the rows of all questions; `run` has the draws, if there are any."""
        targets, states = map(list, zip(*(row for one in self.query.questions for row in one.rows), strict=True))
        mean, lower, upper, bias = (frozen(np.concatenate(column)) for column in zip(*rows, strict=True))
        plan, kept = plan or self.plan, None if seed is None else kept_seed(seed)
        if plan.relevance:
            assumptions = (*assumptions, f"{plan.relevance}; rounding in the sum over the others is included")
        return Estimate(
            targets, states, mean, lower, upper, bias, confidence, assumptions, plan, samples, certificate, kept,
            stopped_by=None if run is None else run.stopped_by,
            asked=Asked(transcript=Transcript(self, run)) if self.query.proof else None,
        )  # fmt: skip

    @classmethod
    def draft(cls, query: Query, reason: str, bias: float | None, **parts: Any) -> Plan:
        """Return a plan of this method: fields that follow from the query are filled in, `parts` has the others."""
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
        """Return the `CertificateError` that says why this method has no proposal."""
        return CertificateError({cls.name: reason}, cls.remedy)

    @classmethod
    def refuse_many_states(cls, query: Query, question: TargetQuestion) -> None:
        """Raise an error if the question needs a joint law with more states than may be summed."""
        states = math.prod(query.model._form.cardinalities[question.positions].tolist())
        if question.needs_joint_law and states > _MAX_JOINT_STATES:
            count = f"{states:.3g}" if states < 1e300 else "more than 1e300"
            raise cls.refuse(
                f"{shown(question.rows[0][0])!r} depends on {count} joint states, more than the {_MAX_JOINT_STATES} "
                "that may be summed."
            )

    def updated(self) -> NDArray[np.int64]:
        """Return the positions of variables whose neighbours the answer depends on; empty for the whole model."""
        scan, n = self.plan.scan, self.query.model.n_variables
        return np.empty(0, dtype=np.int64) if scan is None else scan._updates(n)

    def needed_updates(self) -> int:
        """Return the least number of Gibbs updates that an answer can take: means may stop early, counts do not."""
        if self.plan.scan is None or not self.plan.stops_early:
            return self.plan.updates
        return len(self.plan.scan) * self.query.least_chains(self.plan.monte_carlo)


class Nothing(Method):
    """The vacuous answer, given when no method has a result: limits that are valid for every model."""

    name: ClassVar[str] = "none"
    in_auto: ClassVar[bool] = False

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method:
        return cls(query, cls.draft(query, "no method had a result when the call ended", None))

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        rows = []
        for question in self.query.questions:
            least, most = (np.full(len(question), end) for end in question.bounds)
            with np.errstate(invalid="ignore"):  # infinite bounds have no midpoint
                middle = 0.5 * (least + most)
            rows.append(AnswerRows(middle, least, most, most - least))
        return self.assemble(rows, 1.0, ("none: these limits hold for every model",))

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return ["No method had a result when the call ended. The limits hold for every model."]


def nothing_known(query: Query) -> Estimate:
    """Return the vacuous answer to a query: limits that are valid for every model."""
    return Nothing.propose(query, Choice()).answer(np.random.SeedSequence(0), Running())


@contextmanager
def carry_estimate(
    query: Query, plan: Plan | None = None, part: Numbering | None = None,
    adapt: Callable[[Estimate], Estimate] | None = None,
) -> Iterator[None]:  # fmt: skip
    """Attach a partial estimate, at worst the vacuous one, to errors raised in this context.

    A `MemoryError` becomes a `BudgetError`, which gets a plan as well. Estimates are changed by `adapt` if given;
    otherwise their scans are renumbered from the submodel `part` to the whole model.
    """

    def carried(result: Estimate | None) -> Estimate:
        estimate = result or nothing_known(query)
        if adapt is not None:
            return adapt(estimate)
        return estimate if part is None else estimate._lift(part)

    try:
        with guarded():
            yield
    except KeyboardInterrupt as error:
        raise interrupted(carried(error.result if isinstance(error, Interrupted) else None)) from None
    except (CertificateError, WorkerError) as error:
        raise error.with_result(carried(error.result)) from None
    except BudgetError as error:
        own = error.plan or plan
        own = own if own is None or part is None else own._lift(part)
        raise error.with_result(carried(error.result), own) from None


def allowed_seconds(query: Query, usual: float) -> float:
    """Return how many seconds an answer may be expected to take: the time limit, or `usual` seconds without one."""
    return usual if query.time_limit in (None, math.inf) else min(query.time_limit or 0.0, MOST_SECONDS)


def register(method: type[Method]) -> type[Method]:
    """Register a method under its name; "auto" asks the methods in the order of registration."""
    METHODS[method.name] = method
    return method


def interrupted(estimate: Estimate) -> Interrupted:
    """Return the error that Ctrl-C raises, with the partial result."""
    return Interrupted(f"the intervals so far have half-widths up to {estimate.half_width.max():.3g}", result=estimate)
