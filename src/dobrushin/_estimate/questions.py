"""The questions of an estimate: how outcomes are counted or averaged, and how a bias changes the result. [trusted]

A question has its variables, a bound on its bias from the disagreement of these variables, a number of intervals, and a
tally of outcomes. An outcome is the final state of a chain, or the final bounding sets of a run. A variable has
coalesced (`settled`) if its set has one state. An outcome is *open* if a variable of the question has not coalesced.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.targets import Joint, Statistic
from dobrushin._shared.arrays import weighted_sum
from dobrushin._shared.intervals import FINAL, SEQUENTIAL, BernsteinMean, hoeffding, lower_end, upper_end


class Shortfall(StrEnum):
    """Reasons why an interval is wider than the tolerance, worded to follow "stopped by".

    The code that decides to return, or to raise, a partial result sets the reason.
    """

    INTERRUPTED = "Ctrl-C"
    TIME = "the time limit"
    BUDGET = "the budget"
    EXECUTOR = "the loss of the executor"
    ROUNDING = "rounding"
    UNDECIDABLE = "draws too close to an end of the event to decide"
    SUMS = "the largest sums that were planned"

    def __repr__(self) -> str:
        return repr(self.value)


class TargetQuestion(ABC):
    """A question about the model: a group of rows of the answer that are estimated from the same variables.

    Attributes
    ----------
    positions : array
        Positions of the variables.
    intervals : int
        Number of intervals that have to be valid at once. Two states of one variable share an interval.
    norm : int
        Bound on the ratio between the sum of the variables' biases and the largest bias of a row.
    is_counted : bool
        Whether draws are counted; otherwise their values are averaged.
    is_counted_by_kernels : bool
        Whether counts of the states of single variables are enough, so that sampling kernels can do the counting.
    interval : str
        Kind of interval.
    bounds : pair of floats
        Least and largest possible value of every row.
    name : str or None
        Name of a statistic whose weights were given by the user and cannot be checked.
    """

    positions: NDArray[np.int64]
    intervals: int = 1
    norm: int = 1
    is_counted: bool = True
    is_counted_by_kernels: bool = False
    interval: str = "Clopper-Pearson"
    bounds: tuple[float, float] = (0.0, 1.0)
    name: str | None = None

    @property
    @abstractmethod
    def weights(self) -> NDArray[np.float64]:
        """Return, for each variable, the largest change of the answer when this variable alone changes."""

    @property
    @abstractmethod
    def rows(self) -> list[tuple[Any, Any]]:
        """Return the target and the state of each row of the answer; the state is None for a statistic."""

    @property
    def needs_joint_law(self) -> bool:
        return len(self.positions) > 1

    @property
    def span(self) -> float:
        """Return the width of the vacuous interval: the largest possible value minus the least."""
        return self.bounds[1] - self.bounds[0]

    @abstractmethod
    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the bias of each row, given bounds on the disagreement of each variable.

        The disagreement is the probability that a chain and a stationary chain, coupled to it, differ at the variable.
        """

    def __len__(self) -> int:
        return len(self.rows)


class StateQuestion(TargetQuestion):
    """A question about variables with states (not continuous ones), answered by counting or averaging outcomes.

    An outcome is the final state of a chain, or the final bounding sets of a run; it is open if a set has several
    states.

    Attributes
    ----------
    sizes : array
        Number of rows for each count that `unsettled` returns.
    choices : array
        For each row, the number of states among which an open outcome is divided in the estimate.
    """

    sizes: NDArray[np.int64]
    choices: NDArray[np.int64]

    @abstractmethod
    def count(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> NDArray[np.int64]:
        """Count, for each row of the answer, the outcomes in its state.

        Outcomes in which a variable has not coalesced are left out. `states` has shape (outcomes, variables), `settled`
        tells which variables have coalesced (None: all), and `first` is the number of the first outcome.
        """

    @abstractmethod
    def unit_values(self, states: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        """Yield, for each row of the answer, its value in every outcome, scaled to the range from 0 to 1."""

    def unsettled(self, settled: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the outcomes in which a variable has not coalesced: for the whole question, or for each variable."""
        return np.array([np.count_nonzero(~settled.all(axis=1))])

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(len(self.positions))

    def exact(self, probabilities: NDArray[np.float64], error: float) -> tuple[NDArray[np.float64], ...]:
        """Return the value and the error bound of each row, given probabilities with at most this relative error."""
        if error == np.inf:
            return probabilities, np.ones(len(probabilities))
        return probabilities, np.minimum(1.0, probabilities * (2.0 * error) + 2.0**-1000)

    def tally(self, error: float, aim: float, sets: bool) -> Tally:
        """Return a new, empty tally of outcomes; `aim` is the requested half-width of a mean."""
        return CountTally(self) if self.is_counted else MeanTally(self, error, aim, sets)

    def __len__(self) -> int:
        return len(self.choices)


@dataclass(eq=False)
class SingleMarginals(StateQuestion):
    """Question about the marginals of several single variables."""

    positions: NDArray[np.int64]
    labels: Sequence[Hashable]
    values: list[range]  # states of each variable
    names: Sequence[Sequence[Any]] | None = None  # names of these states
    sizes: NDArray[np.int64] = field(init=False)

    is_counted_by_kernels = True
    needs_joint_law = False

    def __post_init__(self) -> None:
        self.sizes = np.array([len(states) for states in self.values])
        self.choices = np.repeat(self.sizes, self.sizes)
        self.intervals, self.norm = int(_intervals(self.sizes).sum()), len(self.positions)

    @property
    def rows(self) -> list[tuple[Any, Any]]:
        called = self.values if self.names is None else self.names
        return [(label, state) for label, states in zip(self.labels, called, strict=True) for state in states]

    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.repeat(disagreement, self.sizes)

    def count(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> NDArray[np.int64]:
        parts = []
        for k, values in enumerate(self.values):
            column = states[:, k] if settled is None else states[settled[:, k], k]
            parts.append(np.bincount((column.astype(np.int64) - values[0]) // values.step, minlength=len(values)))
        return np.concatenate(parts)

    def unit_values(self, states: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        for k, values in enumerate(self.values):
            for state in values:
                yield (states[:, k] == state).astype(np.float64)

    def unsettled(self, settled: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.asarray((~settled).sum(axis=0))


@dataclass(eq=False)
class JointMarginal(StateQuestion):
    """Question about the joint marginal of a few variables."""

    positions: NDArray[np.int64]
    joint: Joint
    values: list[range]
    names: Sequence[Sequence[Any]] | None = None  # names of these states

    def __post_init__(self) -> None:
        self.shape = tuple(len(states) for states in self.values)
        rows = math.prod(self.shape)
        self.sizes, self.choices = np.array([rows]), np.full(rows, max(2, rows))
        self.intervals, self.norm = int(_intervals(rows)), len(self.positions)

    @property
    def rows(self) -> list[tuple[Any, Any]]:
        return [(self.joint, states) for states in product(*(self.values if self.names is None else self.names))]

    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.full(len(self), min(1.0, weighted_sum(self.weights, disagreement, 0)))

    def count(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> NDArray[np.int64]:
        return np.bincount(self._cells(_settled_rows(states, settled)), minlength=len(self))

    def unit_values(self, states: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        cells = self._cells(states)
        return ((cells == k).astype(np.float64) for k in range(len(self)))

    def _cells(self, states: NDArray[Any]) -> NDArray[np.int64]:
        """Return, for each joint state, the number of its row in the answer."""
        lowest = np.array([values[0] for values in self.values])
        step = np.array([values.step for values in self.values])
        digits = (states.astype(np.int64) - lowest) // step
        return np.ravel_multi_index(tuple(digits.T), self.shape).astype(np.int64)


@dataclass(eq=False)
class Mean(StateQuestion):
    """Question about the mean of a statistic; variables of the statistic that are observed keep their states."""

    positions: NDArray[np.int64]
    statistic: Statistic
    own_weights: NDArray[np.float64]
    template: NDArray[np.int64]  # a state for each variable of the statistic; the observed ones are correct
    moving: NDArray[np.int64]  # indices in the template of the variables that are not observed
    values_of: list[range]  # the states of the variables that are not observed
    are_digits: bool = False  # whether states are 0, 1 although the statistic takes spins -1, +1

    def __post_init__(self) -> None:
        statistic = self.statistic
        self.is_counted = statistic.is_event
        if not self.is_counted:
            self.interval = "empirical Bernstein (stops when narrow enough)"
            spans = np.array([states[-1] - states[0] for states in self.values_of]) * (1 + self.are_digits)
            self.name = None if statistic._has_known_weights(spans, self.own_weights) else statistic.name
        self.bounds = float(statistic.bounds[0]), float(statistic.bounds[1])
        self.sizes, self.choices = np.array([1]), np.array([2])

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.own_weights

    @property
    def rows(self) -> list[tuple[Any, Any]]:
        return [(self.statistic, None)]

    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([min(self.span, weighted_sum(self.own_weights, disagreement, 0))])

    def values(self, states: NDArray[Any], first: int) -> NDArray[np.float64]:
        """Return the value of the statistic in each outcome; `states` has shape (outcomes, unobserved variables)."""
        if not len(states):
            return np.empty(0)
        states = 2 * states.astype(np.int64) - 1 if self.are_digits else states
        if len(self.moving) == len(self.template):
            return self.statistic.values(states, first)
        full = np.tile(self.template, (len(states), 1))
        full[:, self.moving] = states
        return self.statistic.values(full, first)

    def count(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> NDArray[np.int64]:
        return np.array([int(self.values(_settled_rows(states, settled), first).sum())])

    def unit_values(self, states: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        yield (self.values(states, 0) - self.bounds[0]) / self.span

    def exact(self, probabilities: NDArray[np.float64], error: float) -> tuple[NDArray[np.float64], ...]:
        states = np.array(list(product(*self.values_of)))
        possible = probabilities > 0
        values = self.values(states[possible], 0)
        mean = np.array([float(probabilities[possible] @ values)])
        # A sum rounds once per term, by at most one unit of the largest value.
        bound = min((2.0 * error + 2.0**-50 * len(values)) * float(np.abs(values).max()), self.span)
        return mean, np.array([bound])


def _intervals(sizes: Any) -> Any:
    """Return how many intervals k states need: k, but 1 for two states, whose probabilities sum to 1."""
    return np.where(np.asarray(sizes) <= 2, 1, sizes)


def _settled_rows(states: NDArray[Any], settled: NDArray[np.bool_] | None) -> NDArray[Any]:
    return states if settled is None else states[settled.all(axis=1)]


# -- outcomes, counted and averaged ------------------------------------------------------------


class Tally(ABC):
    """Counts or averages of the outcomes drawn so far, for one question."""

    def __init__(self, question: Any) -> None:
        self.question = question
        # For each row, the number of outcomes in which its variables have not coalesced.
        self.open = np.zeros(len(question), dtype=np.int64)

    @abstractmethod
    def add(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> None:
        """Add a block of outcomes.

        `settled` tells which variables have coalesced (None: all), and `first` is the number of the first outcome.
        """

    @property
    def shortfall(self) -> Shortfall | None:
        """Return why no number of outcomes makes the interval as narrow as the tolerance; None if some number does."""
        return None

    @property
    def is_narrow(self) -> bool:
        """Return whether the interval is already narrow enough."""
        return True

    @abstractmethod
    def limits(self, outcomes: int, error: float, wrong: float, early: bool) -> tuple[NDArray[np.float64], ...]:
        """Return the value and both interval limits of each row.

        Each limit is wrong with probability at most `error` / 2, and each outcome with probability at most `wrong`.
        `early` says whether the run was stopped before its planned end.
        """


class CountTally(Tally):
    """Tally of counts. An outcome in which a variable has not coalesced counts for every state in the upper limits."""

    def __init__(self, question: StateQuestion) -> None:
        super().__init__(question)
        self.settled = np.zeros(len(question), dtype=np.int64)

    def add(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> None:
        if settled is not None:
            self.open = self.open + np.repeat(self.question.unsettled(settled), self.question.sizes)
        self.settled = self.settled + self.question.count(states, settled, first)

    def add_counts(self, table: NDArray[np.int64], unsettled: NDArray[np.int64] | None = None) -> None:
        """Add counts of shape (variables, states), and for each variable the number of outcomes without coalescence."""
        if unsettled is not None:
            self.open = self.open + np.repeat(unsettled, self.question.sizes)
        is_state = np.arange(table.shape[1]) < self.question.sizes[:, None]  # smaller variables are padded
        self.settled = self.settled + table[is_state]

    def limits(self, outcomes: int, error: float, wrong: float, early: bool) -> tuple[NDArray[np.float64], ...]:
        shared = self.settled + self.open / self.question.choices
        value = shared / outcomes if outcomes else np.full(len(self.question), 0.5)
        low = lower_end(self.settled, outcomes, error / 2, early) - wrong
        high = upper_end(self.settled + self.open, outcomes, error / 2, early) + wrong
        return value, low, high


class MeanTally(Tally):
    """Tally of averages, for intervals of a mean.

    If a variable has not coalesced, the outcome counts with its least value in the lower limit, with its largest in the
    upper.
    """

    def __init__(self, question: StateQuestion, error: float, aim: float, sets: bool) -> None:
        super().__init__(question)
        self.aim = aim
        self.low = BernsteinMean(SEQUENTIAL * error, aim / question.span)
        self.high = BernsteinMean(SEQUENTIAL * error, aim / question.span) if sets else self.low

    @property
    def is_narrow(self) -> bool:
        return bool(self.low.half_width * self.question.span <= self.aim)

    def add(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> None:
        values = self.question.values(_settled_rows(states, settled), first)
        unit = (values - self.question.bounds[0]) / self.question.span
        if settled is None:
            self.low.add(unit)
            return
        self.open = self.open + self.question.unsettled(settled)
        closed = settled.all(axis=1)
        for end, fill in ((self.low, 0.0), (self.high, 1.0)):
            whole = np.full(len(states), fill)
            whole[closed] = unit
            end.add(whole)

    def limits(self, outcomes: int, error: float, wrong: float, early: bool) -> tuple[NDArray[np.float64], ...]:
        count, bounds = self.low.count, self.question.bounds
        if not count:
            return tuple(np.array([number]) for number in (0.5 * sum(bounds), *bounds))
        least, span = bounds[0], self.question.span
        value = least + span * 0.5 * (self.low.total + self.high.total) / count
        low, high = self.low.interval()[0], self.high.interval()[1]
        if not early and not self.is_narrow:
            reach = hoeffding(outcomes, FINAL * error)
            low, high = max(low, self.low.total / count - reach), min(high, self.high.total / count + reach)
        ends = (value, least + span * (low - wrong), least + span * (high + wrong))
        return tuple(np.array([number]) for number in ends)
