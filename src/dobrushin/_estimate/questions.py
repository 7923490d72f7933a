"""The targets of an estimate, read and checked: what is counted or averaged, and how much a bias can move it. [trusted]

A question knows which variables it looks at, how its bias follows from the disagreement of those variables, and how
many intervals it needs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.targets import Joint, Statistic
from dobrushin._models import Model
from dobrushin._shared import validate as check
from dobrushin._variation.rounding import weighted_sum
from dobrushin.errors import ArgumentError

# Cells of a joint marginal: more would need as many intervals.
_MOST_CELLS = 2**16


class Question(ABC):
    """Some rows of the answer that belong together."""

    positions: NDArray[np.int64]  # of the variables that it looks at

    @property
    @abstractmethod
    def weights(self) -> NDArray[np.float64]:
        """How much the answer can change with each of the variables."""

    @property
    @abstractmethod
    def intervals(self) -> int:
        """How many intervals must hold at once. Two states of one variable share one."""

    @property
    @abstractmethod
    def targets(self) -> list[Any]:
        """What was asked, for each row."""

    @property
    @abstractmethod
    def states(self) -> list[Any]:
        """The state that the row is about; None for a statistic."""

    @abstractmethod
    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound on the bias of each row, given bounds on the disagreement of the variables at `positions`."""

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Marginals(Question):
    """The marginals of single variables, one after the other."""

    positions: NDArray[np.int64]
    labels: Sequence[Hashable]
    values: list[range]  # the states of each

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of states of each variable."""
        return np.array([len(states) for states in self.values])

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(len(self.positions))

    @property
    def intervals(self) -> int:
        return int(_intervals(self.sizes).sum())

    @property
    def targets(self) -> list[Any]:
        return [label for label, states in zip(self.labels, self.values, strict=True) for _ in states]

    @property
    def states(self) -> list[Any]:
        return [state for states in self.values for state in states]

    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.repeat(disagreement, self.sizes)

    def flat(self, table: NDArray[Any]) -> NDArray[Any]:
        """Rows of an array (variables, states), without the states that a variable does not have."""
        return table[np.arange(table.shape[1]) < self.sizes[:, None]]


@dataclass(frozen=True)
class JointMarginal(Question):
    """The joint marginal of a few variables."""

    positions: NDArray[np.int64]
    joint: Joint
    values: list[range]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        return tuple(len(states) for states in self.values)

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.ones(len(self.positions))

    @property
    def intervals(self) -> int:
        return int(_intervals(math.prod(self.shape)))

    @property
    def targets(self) -> list[Any]:
        return [self.joint] * math.prod(self.shape)

    @property
    def states(self) -> list[Any]:
        return list(product(*self.values))

    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        bound = min(1.0, weighted_sum(self.weights, disagreement, 0))
        return np.full(math.prod(self.shape), bound)

    def cells(self, states: NDArray[Any]) -> NDArray[np.int64]:
        """Number of the joint state of each chain; states of shape (chains, variables)."""
        first = np.array([states[0] for states in self.values])
        step = np.array([states.step for states in self.values])
        digits = (states.astype(np.int64) - first) // step
        return np.ravel_multi_index(tuple(digits.T), self.shape).astype(np.int64)


@dataclass(frozen=True)
class Mean(Question):
    """The mean of a statistic; variables that the evidence fixes are filled in."""

    positions: NDArray[np.int64]
    statistic: Statistic
    own_weights: NDArray[np.float64]
    template: NDArray[np.int64]  # one state per variable of the statistic
    moving: NDArray[np.int64]  # places in the template of the variables at `positions`

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.own_weights

    @property
    def is_event(self) -> bool:
        """Whether it only takes the values 0 and 1."""
        return self.statistic._is_event

    @property
    def intervals(self) -> int:
        return 1

    @property
    def targets(self) -> list[Any]:
        return [self.statistic]

    @property
    def states(self) -> list[Any]:
        return [None]

    @property
    def span(self) -> float:
        """Largest less least value."""
        return float(self.statistic.bounds[1]) - float(self.statistic.bounds[0])

    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([min(self.span, weighted_sum(self.own_weights, disagreement, 0))])

    def values(self, states: NDArray[Any], first: int) -> NDArray[np.float64]:
        """The statistic in each chain; states of shape (chains, variables at `positions`)."""
        if len(self.moving) == len(self.template):
            return self.statistic.values(states, first)
        full = np.tile(self.template, (len(states), 1))
        full[:, self.moving] = states
        return self.statistic.values(full, first)


def _intervals(sizes: Any) -> Any:
    """The probabilities of two states mirror each other."""
    return np.where(np.asarray(sizes) <= 2, 1, sizes)


def read_targets(model: Model, targets: Any, evidence: dict[Hashable, int], rest: Model) -> list[Question]:
    """The questions behind `targets`; positions are those in `rest`, the model given the evidence."""
    if isinstance(targets, np.ndarray) and targets.ndim == 0:
        targets = targets.item()
    if isinstance(targets, str) and targets == "all" and not _is_label(model, targets):
        targets = list(rest.labels)
    elif isinstance(targets, Joint | Statistic) or _is_label(model, targets):
        targets = [targets]
    elif isinstance(targets, str) or not isinstance(targets, Iterable):
        raise ArgumentError("estimate", "targets", f"'all', Joint, Statistic or {_known(model)}", targets)
    items = list(targets)
    if not items:
        raise ArgumentError("estimate", "targets", "at least one target", items)
    plain = [item for item in items if not isinstance(item, Joint | Statistic)]
    if plain:
        check.positions(plain, model.labels, model._lookup, "estimate", "targets")  # known and distinct
    questions: list[Question] = []
    for kind, group in groupby(items, lambda item: type(item) if isinstance(item, Joint | Statistic) else Hashable):
        if kind is Hashable:
            questions.append(_marginals(rest, list(group), evidence))
        else:
            questions += [_joint(model, item, evidence, rest) if kind is Joint else _mean(model, item, evidence, rest)
                          for item in group]  # fmt: skip
    return questions


def _marginals(rest: Model, labels: list[Any], evidence: dict[Hashable, int]) -> Marginals:
    _unobserved(labels, evidence)
    positions = check.positions(labels, rest.labels, rest._lookup, "estimate", "targets")
    return Marginals(positions, rest._labels_at(positions), [rest.states(i) for i in positions.tolist()])


def _joint(model: Model, joint: Joint, evidence: dict[Hashable, int], rest: Model) -> JointMarginal:
    check.positions(list(joint.labels), model.labels, model._lookup, "estimate", "targets")
    _unobserved(joint.labels, evidence)
    positions = check.positions(list(joint.labels), rest.labels, rest._lookup, "estimate", "targets")
    question = JointMarginal(positions, joint, [rest.states(i) for i in positions.tolist()])
    if (cells := math.prod(question.shape)) > _MOST_CELLS:
        raise ArgumentError(
            "estimate", "targets", f"joint marginals of at most {_MOST_CELLS} states", cells, repr(joint)
        )
    return question


def _mean(model: Model, statistic: Statistic, evidence: dict[Hashable, int], rest: Model) -> Mean:
    weights = {label: float(weight) for label, weight in statistic.weights.items() if weight > 0}
    everywhere = check.positions(list(weights), model.labels, model._lookup, "estimate", "targets")
    order = np.argsort(everywhere)
    labels = [list(weights)[k] for k in order]
    template = np.array([int(evidence.get(label, 0)) for label in labels], dtype=np.int64)
    moving = np.array([k for k, label in enumerate(labels) if label not in evidence], dtype=np.int64)
    if not len(moving):
        raise ArgumentError("estimate", "targets", "statistics of variables outside the evidence", statistic.name)
    free = [labels[k] for k in moving]
    positions = check.positions(free, rest.labels, rest._lookup, "estimate", "targets")
    return Mean(positions, statistic, np.array([weights[label] for label in free]), template, moving)


def _unobserved(labels: Iterable[Hashable], evidence: dict[Hashable, int]) -> None:
    for label in labels:
        if label in evidence:
            raise ArgumentError("estimate", "targets", "variables that are not in the evidence", label)


def _is_label(model: Model, value: Any) -> bool:
    return isinstance(value, Hashable) and check.label_position(value, model.labels, model._lookup) is not None


def _known(model: Model) -> str:
    return check.expected_labels(model.labels)
