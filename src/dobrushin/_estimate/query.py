"""Queries, read and checked; and `Space`, the interface through which methods use a model."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.questions import JointMarginal, Mean, SingleMarginals, TargetQuestion
from dobrushin._estimate.targets import Joint, Statistic, Target, TargetReader
from dobrushin._exact.arithmetic import SumResult
from dobrushin._exact.engine import SumPlan
from dobrushin._exact.sums import LogPartition
from dobrushin._influence.matrix import Influence, KnownInfluence, known_influence
from dobrushin._influence.rows import RowSource
from dobrushin._models import Model
from dobrushin._models.memory import Slot
from dobrushin._models.near import Numbering
from dobrushin._sampling.start import allowed_state
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import distinct
from dobrushin._shared.intervals import FINAL, PLANNED, trials_needed, values_needed
from dobrushin._shared.memory import memory_limit as read_memory
from dobrushin._shared.running import RunOptions, read_options
from dobrushin._variation import Objective
from dobrushin.errors import ArgumentError, BudgetError

if TYPE_CHECKING:
    from dobrushin._estimate.method import Method

# Smallest error probability: smaller ones are lost to rounding in 1 - confidence.
LEAST_ERROR = 1e-12
# Largest number of joint states of a joint marginal: each needs an interval.
_MAX_JOINT_STATES = 2**16
# Chains are drawn in groups of 64.
_LANES = 64
# Number of target variables from which on a search for a scan takes too long.
_MANY_TARGETS = 10**5


@dataclass(frozen=True)
class Settings:
    """Settings of a call that do not depend on the model."""

    tolerance: float
    confidence: float
    method: str
    budget: float | None
    time_limit: float | None = None  # seconds for the whole call
    memory_limit: float | None = None
    backend: str = "auto"
    proof: bool = False  # whether a proof of the answer is wanted


def read_settings(
    model: Model, tolerance: Any, confidence: Any, method: Any, budget: Any, seconds: float | None,
    run: RunOptions | None = None,
) -> Settings:  # fmt: skip
    """Check the settings of a call and return them; `seconds` is its time limit."""
    space, options = workspace(model), read_options(run)
    tolerance = space.read_tolerance(tolerance)
    confidence = check.fraction(confidence, "confidence")
    if 1.0 - confidence < LEAST_ERROR:
        raise ArgumentError("confidence", f"at most 1 - {LEAST_ERROR:g}", confidence)
    check.choice(method, ("auto", *space.methods), "method")
    most = None if budget is None else check.positive(budget, "budget")
    memory = None if options.memory_limit is None else read_memory(options.memory_limit)
    return Settings(tolerance, confidence, method, most, seconds, memory, options.backend)


@dataclass(frozen=True, kw_only=True)
class Query(Settings):
    """A call of `plan` or `estimate`, read and checked.

    Attributes
    ----------
    space : Space
        The model given the evidence, with cached results. Each method uses the attributes of its own kind of model.
    questions : list of TargetQuestion
    border : array of bool, or None
        For a ball cut out of a larger model, marks the variables with neighbours outside of the ball; None for a whole
        model.
    relevance : str
        Text that says how many variables are relevant to the targets; empty if no variable was dropped.
    """

    space: Any
    questions: list[Any]
    border: NDArray[np.bool_] | None = None
    relevance: str = ""

    @property
    def model(self) -> Model:
        """Return the model given the evidence."""
        model: Model = self.space.model
        return model

    @property
    def is_part(self) -> bool:
        """Return whether the model is a ball cut out of a larger one."""
        return self.border is not None

    def reaches_border(self, positions: NDArray[np.int64]) -> bool:
        """Return whether some of these variables have neighbours outside of the ball; False for a whole model."""
        return self.border is not None and bool(self.border[positions].any())

    @cached_property
    def intervals(self) -> int:
        """Return the number of intervals that have to be valid at once."""
        return sum(question.intervals for question in self.questions)

    @cached_property
    def error(self) -> float:
        return (1.0 - self.confidence) / self.intervals

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """Return the positions of the variables of all questions, in increasing order."""
        named = np.concatenate([question.positions for question in self.questions])
        return distinct(named, self.model.n_variables)

    @cached_property
    def objective(self) -> Objective:
        """Return the variables of all questions, each weighted by the largest change that it can make to an answer."""
        weights = np.zeros(len(self.positions))
        for question, own in zip(self.questions, self.columns, strict=True):
            np.maximum.at(weights, own, question.weights)
        return Objective(self.positions, weights, False)

    @cached_property
    def labels(self) -> list[Hashable]:
        return self.model._labels_at(self.positions)

    @property
    def is_about_most(self) -> bool:
        """Return whether there are so many targets that systematic sweeps do as well as a greedy scan."""
        asked = len(self.positions)
        return asked >= _MANY_TARGETS and 4 * asked >= self.model.n_variables

    @cached_property
    def columns(self) -> list[NDArray[np.int64]]:
        """Return for each question the indices of its variables in `positions`."""
        return [np.searchsorted(self.positions, question.positions) for question in self.questions]

    def biases(self, bounds: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Bound the bias of each row of each question, given bounds on the bias of each variable in `positions`."""
        return [question.biases(bounds[own]) for question, own in zip(self.questions, self.columns, strict=True)]

    def complete(self, order: NDArray[np.int64]) -> Scan:
        """Return a scan that ends with this order; targets missing from the order are updated once each before it."""
        updated = np.zeros(self.model.n_variables, dtype=np.bool_)
        updated[order] = True
        missing = self.positions[~updated[self.positions]]
        return Scan(np.concatenate([missing, order]) if len(missing) else order)

    def least_chains(self, half_width: float) -> int:
        """Return the least number of chains that can give this half-width: means may stop early, counts do not."""
        if not any(question.is_counted for question in self.questions):
            return _LANES
        return -(-trials_needed(half_width, PLANNED * self.error) // _LANES) * _LANES

    def most_chains(self, half_width: float) -> int:
        """Return the number of chains that gives this half-width for all outcomes."""
        chains = [self.least_chains(half_width)]
        aims = [half_width / question.span for question in self.questions if not question.is_counted]
        chains += [values_needed(aim, FINAL * self.error) for aim in aims if aim < 0.5]
        return -(-max(chains) // _LANES) * _LANES


def make_query(model: Model, targets: Any, given: dict[Hashable, Any], settings: Settings) -> Query:
    """Return the query of a call, given its evidence as read by `read_evidence`."""
    space = workspace(model).given(given)
    space = space.provable() if settings.proof else space
    questions = space.reader(model, given).read_targets(targets)
    return Query(**vars(settings), space=space, questions=questions)


def read_evidence(model: Model, evidence: Any) -> dict[Hashable, Any]:
    """Return the evidence as a dict from labels to integer states, so that equal evidence is recognised."""
    if evidence is None:
        return {}
    observed = model._read_evidence(evidence)
    return {model.labels[i]: state for i, state in observed.items()}


class _StateReader(TargetReader):
    """Reader of targets (labels, joint marginals, statistics) of a model whose variables have states."""

    def read_variables(self, positions: NDArray[np.int64]) -> list[TargetQuestion]:
        labels = self.rest._labels_at(positions)
        return [SingleMarginals(positions, labels, self._states(positions), self._names(positions))]

    def read(self, target: Target) -> JointMarginal | Mean:
        if isinstance(target, Joint):
            self._known_positions(target.labels)
            positions = self.positions(target.labels)
            values = self._states(positions)
            if (count := math.prod(map(len, values))) > _MAX_JOINT_STATES:
                requirement = f"joint marginals of at most {_MAX_JOINT_STATES} states"
                raise ArgumentError("targets", requirement, count, repr(target))
            return JointMarginal(positions, target, values, self._names(positions))
        if isinstance(target, Statistic):
            return self._read_statistic(target)
        raise ArgumentError("targets", f"labels, {self.kinds}: Exceeds, Between and Quantile are about fields", target)

    def _known_positions(self, labels: Iterable[Hashable]) -> NDArray[np.int64]:
        """Return positions in the model before conditioning; raise `ArgumentError` for unknown labels."""
        return check.positions(list(labels), self.model.labels, self.model._lookup, "targets")

    def _read_statistic(self, statistic: Statistic) -> Mean:
        if not statistic.is_bounded:
            raise ArgumentError("targets", "statistics with finite bounds", statistic.name)
        weights = {label: float(weight) for label, weight in statistic.weights.items() if weight > 0}
        named = list(weights)
        labels = [named[k] for k in np.argsort(self._known_positions(named)).tolist()]
        template = np.array([int(self.evidence.get(label, 0)) for label in labels], dtype=np.int64)
        are_digits = self.model._state_names is not None and self.model._state_names.of_spins
        template = 2 * template - 1 if are_digits else template
        moving = np.array([k for k, label in enumerate(labels) if label not in self.evidence], dtype=np.int64)
        if not len(moving):
            raise ArgumentError("targets", "statistics of variables outside the evidence", statistic.name)
        free = [labels[k] for k in moving]
        positions = self.positions(free)
        own_weights = np.array([weights[label] for label in free])
        return Mean(positions, statistic, own_weights, template, moving, self._states(positions), are_digits)

    def _states(self, positions: NDArray[np.int64]) -> list[range]:
        # Variables with the same number of states have the same states, since a model has either spins or labels.
        sizes = self.rest._form.cardinalities[positions]
        kinds = {int(k): self.rest.states(int(positions[np.argmax(sizes == k)])) for k in set(sizes.tolist())}
        return [kinds[k] for k in sizes.tolist()]

    def _names(self, positions: NDArray[np.int64]) -> list[Sequence[Any]] | None:
        """Return the names of the states of each variable; None if states are numbers."""
        return None if self.rest._state_names is None else [self.rest._called(i) for i in positions.tolist()]


class Space(ABC):
    """A model, possibly conditioned on evidence, with cached results and the methods for its kind of variables.

    Each kind of variables (with states, or continuous) has a subclass that supplies the reader of targets, the methods,
    the rows of the influence matrix and the initial state of chains. All kinds share the rest: reading a call, choosing
    a scan and a method, running chains, intervals, checkpoints, many queries.

    Attributes
    ----------
    model : Model
    noun : str
        Quantity that is estimated for a label: "probability" or "mean".
    place : Numbering or None
        Positions of the variables in the original model.
    can_shrink : bool
        Whether variables irrelevant to the targets are dropped.
    is_replayed : bool
        Whether proofs contain the seed, so that the checker draws the same chains.
    initial : float or array
        Bounds on the disagreement of the initial state with the stationary distribution, in the units of `rows`.
    start : object
        Initial state of the chains, as the argument ``initial`` of `sample`.
    """

    model: Model
    noun: ClassVar[str] = "probability"
    place: Numbering | None
    can_shrink: ClassVar[bool] = False
    is_replayed: ClassVar[bool] = False
    initial: Any = 1.0
    start: Any = "uniform"

    @property
    @abstractmethod
    def rows(self) -> RowSource:
        """Return the source of rows of the influence matrix, scaled to units in which no disagreement exceeds 1."""

    @property
    @abstractmethod
    def methods(self) -> Mapping[str, type[Method]]:
        """Return the methods for this kind of variables, by name."""

    def candidates(self, query: Query) -> list[type[Method]]:
        """Return the methods that "auto" considers for a query, in the order in which they are asked.

        For a query on a ball, only methods that work on balls are considered: others would answer as if the model ended
        at the border.
        """
        asked = (method for method in self.methods.values() if method.in_auto)
        able = (method for method in asked if method.works_nearby or not query.is_part)
        return [method for method in able if method.has_proof or not query.proof]

    @abstractmethod
    def read_tolerance(self, value: Any) -> float:
        """Check a tolerance and return it as a number."""

    @abstractmethod
    def reader(self, model: Model, evidence: dict[Hashable, Any]) -> TargetReader:
        """Return the object that turns the targets of a call about `model`, given `evidence`, into questions."""

    @abstractmethod
    def condition(self, evidence: Mapping[Hashable, Any]) -> Space:
        """Return a new `Space` for the model conditioned on evidence."""

    def given(self, evidence: Mapping[Hashable, Any]) -> Space:
        """Return the `Space` of the model conditioned on evidence (labels to states or values), which may be cached."""
        return self.derive(frozenset(evidence.items()), lambda: self.condition(evidence)) if evidence else self

    def derive(self, key: Hashable, make: Callable[[], Space]) -> Any:
        """Return the `Space` of a model derived from this one: cached under `key`, or else made by `make`."""
        return self.model._memory.get(DERIVED, make, key)

    def provable(self) -> Space:
        """Return the model in a version whose influence bounds can be checked in a proof; by default itself."""
        return self


# The methods for variables with states, by name, in the order in which "auto" asks them.
METHODS: dict[str, type[Method]] = {}


@dataclass(eq=False)
class Workspace(Space):
    """A model whose variables have states, with its cached results, which are kept as long as the model.

    Attributes
    ----------
    place : Numbering or None
        Positions of the relevant variables in the original model; None if none were dropped.
    sum_plans : dict
        Plans of sums, by the positions of the variables of a joint law; the empty key stands for the marginals of all
        single variables. In place of a plan that was refused: the memory limit in bytes, and the refusal.
    sums : SumResult or None
        The marginals of all single variables.
    log_partition : LogPartition or None
        Logarithm of the sum of all unnormalised probabilities.
    log_evidence : LogPartition or None
        Logarithm of the probability of the evidence on which the model is conditioned.
    """

    model: Model
    is_given: bool = False
    place: Numbering | None = None
    sum_plans: dict[tuple[int, ...], SumPlan | tuple[float, BudgetError]] = field(default_factory=dict)
    sums: SumResult | None = None
    log_partition: LogPartition | None = None
    log_evidence: LogPartition | None = None

    can_shrink: ClassVar[bool] = True
    is_replayed: ClassVar[bool] = True

    @property
    def methods(self) -> Mapping[str, type[Method]]:
        return METHODS

    def read_tolerance(self, value: Any) -> float:
        return check.fraction(value, "tolerance")

    def reader(self, model: Model, evidence: dict[Hashable, Any]) -> TargetReader:
        return _StateReader(model, evidence, self.model)

    @property
    def rounding(self) -> float:
        """Return a bound on the rounding error of the log-density, up to an additive constant.

        The bound also holds for the error of each conditional law.
        """
        return self.model._error

    @property
    def rows(self) -> KnownInfluence:
        """Return the rows of the influence matrix, each computed once and on demand."""
        return known_influence(self.model)

    @property
    def influence(self) -> Influence:
        return self.rows.whole

    @cached_property
    def start(self) -> Any:
        """Return the initial state of chains: "uniform" or, if some states are forbidden, an allowed state.

        Raise `ArgumentError` if no state is allowed.
        """
        if not self.model._form.has_zeros:
            return "uniform"
        state = allowed_state(self.model._form)
        if state is None:
            raise self.impossible()
        return state

    def impossible(self) -> ArgumentError:
        """Return the error for impossible evidence, or for a model without allowed states."""
        if self.is_given:
            return ArgumentError("evidence", "possible under the model", got="evidence of probability zero")
        return ArgumentError("model", "one that allows some joint state", self.model)

    def condition(self, evidence: Mapping[Hashable, Any]) -> Workspace:
        given = {self.model.index(label): state for label, state in evidence.items()}
        rest, known = self.model._fix(given), np.array(list(given))
        kept = np.delete(np.arange(self.model.n_variables), known)
        known_influence(rest, self.rows, kept)
        return Workspace(rest, is_given=True)


@singledispatch
def make_space(model: Model) -> Space:
    """Make the `Space` of a model, which caches its results: a `Workspace`, unless its family registered another."""
    return Workspace(model)


def workspace(model: Model) -> Any:
    """Return the model with its cached results (a `Space`), made once and kept by the model."""
    return model._memory.get(_SPACE, lambda: make_space(model))


_SPACE: Slot[Space] = Slot("space")
# Spaces of models derived from a model by evidence or targets.
DERIVED: Slot[Space] = Slot(
    "derived spaces", max_values=16, max_bytes=2**27, bytes_of=lambda space: space.model._form.nbytes
)
