"""Targets of `estimate` besides the marginals of single variables: joint marginals, statistics and events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._models import FactorGraph, Model
from dobrushin._models.sources import as_model
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.text import in_full, printable
from dobrushin.errors import ArgumentError


class Target(ABC):
    """Base class of the targets of `estimate` other than labels (which stand for marginals of single variables)."""

    @property
    @abstractmethod
    def _name(self) -> Hashable:
        """Return the name by which the target is found in `answer[name]` and in JSON."""

    @property
    @abstractmethod
    def _variables(self) -> list[Hashable]:
        """Return the labels of the variables that the target depends on."""

    @property
    def _noun(self) -> str:
        """Return what the target's value is: "probability", "mean" or "quantile"."""
        return "probability"

    @property
    def _text(self) -> str:
        """Return the target as text for tables and headlines."""
        return str(self._name)


@dataclass(frozen=True)
class TargetReader(ABC):
    """Base class of readers, which turn the targets of a call into questions about a model given evidence.

    Attributes
    ----------
    model : Model
    evidence : dict
        Observed states by label.
    rest : Model
        The model of the unobserved variables: `model` conditioned on the evidence.
    """

    model: Any
    evidence: dict[Hashable, Any]
    rest: Any

    kinds: ClassVar[str] = "Joint, Statistic"  # kinds of targets besides labels, as messages name them

    def read_all(self) -> list[Any]:
        """Return the questions about all unobserved variables."""
        return self.read_variables(np.arange(self.rest.n_variables))

    @abstractmethod
    def read_variables(self, positions: NDArray[np.int64]) -> list[Any]:
        """Return the questions about the marginals of the variables at these positions in `rest`."""

    @abstractmethod
    def read(self, target: Target) -> Any:
        """Return the question about a target that is not a label."""

    def read_targets(self, targets: Any) -> list[Any]:
        """Turn the argument `targets` of a call into questions; raise `ArgumentError` for unreadable targets."""
        if isinstance(targets, np.ndarray) and targets.ndim == 0:
            targets = targets.item()
        if isinstance(targets, Target) or self._is_label(targets):
            items = [targets]
        elif check.is_text(targets, "all"):
            return self.read_all()
        elif isinstance(targets, str) or not isinstance(targets, Iterable):
            known = check.expected_labels(self.model.labels, targets)
            raise ArgumentError("targets", f"'all', {self.kinds} or {known}", targets)
        else:
            items = list(targets)
        if not items:
            raise ArgumentError("targets", "at least one target", items)
        plain = [item for item in items if not isinstance(item, Target)]
        for item in plain:
            is_several = isinstance(item, tuple | list) and len(item) > 1 and not self._is_label(item)
            if is_several and "Joint" in self.kinds and all(map(self._is_label, item)):
                suggestion = f"Joint({', '.join(map(repr, item))}) for the joint marginal of these variables"
                raise ArgumentError("targets", suggestion, item)
        if plain:
            check.positions(plain, self.model.labels, self.model._lookup, "targets")  # known and distinct
        questions: list[Any] = []
        for compound, group in groupby(items, lambda item: isinstance(item, Target)):
            some = list(group)
            questions += map(self.read, some) if compound else self.read_variables(self.positions(some))
        return questions

    def _is_label(self, value: Any) -> bool:
        return check.label_position(value, self.model.labels, self.model._lookup) is not None

    def positions(self, labels: Iterable[Hashable]) -> NDArray[np.int64]:
        """Return the positions of labels in `rest`; raise `ArgumentError` for unknown or observed variables."""
        labels = list(labels)
        for label in labels:
            if label in self.evidence:
                raise ArgumentError("targets", "variables that are not in the evidence", label)
        return check.positions(labels, self.rest.labels, self.rest._lookup, "targets")


class Joint(Target):
    """The joint marginal of some variables, as a target of `estimate`.

    Parameters
    ----------
    *labels
        At least two variables. Their joint states are tuples, in this order.

    Examples
    --------
    >>> import dobrushin as db
    >>> pair = db.estimate(db.Ising({(0, 1): 0.5, (1, 2): 0.5}), db.Joint(0, 2), seed=1)
    >>> pair.states
    [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    >>> pair.value.round(3)
    array([0.303, 0.197, 0.197, 0.303])
    """

    @public()
    def __init__(self, *labels: Hashable) -> None:
        if len(labels) < 2:
            raise ArgumentError("labels", "at least two labels", labels)
        self.labels = labels

    @property
    def _name(self) -> Hashable:
        return self.labels

    @property
    def _text(self) -> str:
        return ", ".join(map(printable, self.labels))

    @property
    def _variables(self) -> list[Hashable]:
        return list(self.labels)

    def __repr__(self) -> str:
        return f"Joint({', '.join(map(repr, self.labels))})"


@dataclass(frozen=True, eq=False)
class Statistic(Target):
    """A function of the states whose mean is estimated, as a target of `estimate`.

    Ready-made statistics: `magnetisation`, `energy`, `total` and `event`.

    Parameters
    ----------
    f : function
        Function of states of shape (chains, k), for the k variables with non-zero weight in the order of the model's
        labels, that returns an array of shape (chains,).
    weights : dict from label to number
        Largest change of f when one variable changes: 2 for the value of a spin -1/+1.
        **The error bounds rely on the weights, which cannot be checked.**
    bounds : pair of numbers
        Least and largest value of f, checked on every computed value. For fields, where weights are Lipschitz
        constants, a bound may be infinite.
    name : str
        Name of the statistic in the result.

    Notes
    -----
    abs(E f(X_T) - E_pi f) <= sum_i weights_i b_i with b_i the disagreement of variable i (paper, "Dobrushin variation
    controls weighted TV"), and never more than the span of the bounds.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(50, 50, couplings=0.2)
    >>> product = db.Statistic(lambda x: x[:, 0] * x[:, 1], {0: 2, 1: 2}, bounds=(-1, 1), name="x0 x1")
    >>> db.estimate(model, product, tolerance=0.02, seed=1).value.round(2)
    array([0.21])
    """

    f: Callable[[NDArray[Any]], ArrayLike]
    weights: Mapping[Hashable, float]
    bounds: tuple[float, float]
    name: str = "statistic"
    _is_event: bool = False

    @public()
    def __post_init__(self) -> None:
        if not callable(self.f):
            raise ArgumentError("f", "a function", self.f)
        if not isinstance(self.weights, Mapping):
            raise ArgumentError("weights", "a dict from labels to numbers", self.weights)
        for label, weight in self.weights.items():
            if not check.is_real(weight) or not 0 <= float(weight) < np.inf:
                raise ArgumentError("weights", "non-negative and finite", weight, f"label {label!r}")
        if not any(float(weight) > 0 for weight in self.weights.values()):
            raise ArgumentError("weights", "positive for at least one variable", dict(self.weights))
        is_pair = isinstance(self.bounds, tuple | list) and len(self.bounds) == 2
        is_pair = is_pair and all(map(check.is_real, self.bounds))
        span = float(self.bounds[1]) - float(self.bounds[0]) if is_pair else 0.0
        if not span > 0 or (span == np.inf and self.is_bounded):
            requirement = "two numbers, the smaller one first; only fields may have infinite ones"
            raise ArgumentError("bounds", requirement, self.bounds)

    @property
    def _noun(self) -> str:
        return "probability" if self.is_event else "mean"

    @property
    def _name(self) -> Hashable:
        return self.name

    @property
    def _text(self) -> str:
        return printable(self.name)

    @property
    def _variables(self) -> list[Hashable]:
        return list(self.weights)

    @property
    def is_bounded(self) -> bool:
        """Return whether both bounds are finite."""
        return bool(np.isfinite([float(bound) for bound in self.bounds]).all())

    def _has_known_weights(self, spans: NDArray[np.int64], weights: NDArray[np.float64]) -> bool:
        """Return whether the weights surely bound the changes of the value, as for ready-made statistics.

        For a mean or a sum of states they must be large enough for the largest change of each variable's state
        (`spans`).
        """
        if self.f in (_mean, _sum):
            count = sum(float(weight) > 0 for weight in self.weights.values()) if self.f is _mean else 1
            return bool((weights >= spans / count).all())
        return isinstance(self.f, _Energy)

    @property
    def is_event(self) -> bool:
        """Return whether the statistic takes only the values 0 and 1."""
        return self._is_event

    @classmethod
    @public()
    def magnetisation(cls, model: Model, labels: Iterable[Hashable] | None = None) -> Statistic:
        """Return the statistic "mean of the spins (-1/+1)", of some variables or by default of all.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising.grid(20, 20, couplings=0.1, fields=0.5)
        >>> db.estimate(model, db.Statistic.magnetisation(model), tolerance=0.05, seed=1).value.round(1)
        array([0.6])
        """
        model = as_model(model)
        if not model._spins:
            raise ArgumentError("model", "one of spins -1/+1", model)
        names = _labels(model, labels)
        weights = dict.fromkeys(names, 2.0 / len(names))
        return cls(_mean, weights, (-1.0, 1.0), "magnetisation")

    @classmethod
    @public()
    def total(cls, model: Model, labels: Iterable[Hashable] | None = None) -> Statistic:
        """Return the statistic "sum of the states", of some variables or by default of all.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Potts.grid(10, 10, states=3, couplings=0.2)
        >>> db.estimate(model, db.Statistic.total(model, [0, 1]), tolerance=0.05, seed=1).value.round(1)
        array([2.])
        """
        model = as_model(model)
        names = _labels(model, labels)
        ranges = [model.states(model.index(name)) for name in names]
        weights = {name: float(states[-1] - states[0]) for name, states in zip(names, ranges, strict=True)}
        if not any(weights.values()):
            raise ArgumentError("labels", "variables with more than one state", names)
        bounds = (float(sum(r[0] for r in ranges)), float(sum(r[-1] for r in ranges)))
        return cls(_sum, weights, bounds, "total")

    @classmethod
    @public()
    def energy(cls, model: Model) -> Statistic:
        """Return the statistic "energy": minus the unnormalised log-density of the state of all variables.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising({(0, 1): 0.5})
        >>> db.estimate(model, db.Statistic.energy(model), tolerance=0.01).value.round(3)  # -0.5 tanh(0.5)
        array([-0.231])
        """
        model = as_model(model)
        graph = model.to_factor_graph()
        change, low, high = np.zeros(graph.n_variables), 0.0, 0.0
        factors = []
        for k in range(graph.n_factors):
            scope, table = graph.factor(k)
            # Forbidden entries never occur; any finite value extends the energy to them.
            finite = np.where(table > -np.inf, table, np.min(table, where=table > -np.inf, initial=0.0))
            low, high = low - float(finite.max()), high - float(finite.min())
            for axis, i in enumerate(scope):
                change[i] += float(np.ptp(finite, axis=axis).max())
            factors.append((scope, finite))
        moving = np.flatnonzero(change)
        if not len(moving):
            raise ArgumentError("model", "one whose energy is not constant", model)
        slack = 1e-9 * (1.0 + max(abs(low), abs(high)))
        weights = {model.labels[i]: change[i] * (1 + 1e-12) for i in moving.tolist()}
        extended = FactorGraph(graph.cardinalities, factors)
        return cls(_Energy(extended, moving, model._spins), weights, (low - slack, high + slack), "energy")

    @classmethod
    @public()
    def event(
        cls, labels: Iterable[Hashable], predicate: Callable[[NDArray[Any]], ArrayLike], name: str = "event"
    ) -> Statistic:
        """Return the statistic that is 1 if an event occurs, else 0; its mean is the probability of the event.

        Parameters
        ----------
        labels
            Variables that the event depends on.
        predicate : function
            Takes their states, of shape (chains, k), in the order of the model's labels, and returns an array
            of truth values of shape (chains,).

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising.grid(50, 50, couplings=0.2)
        >>> agree = db.Statistic.event([0, 1], lambda x: x[:, 0] == x[:, 1], name="agree")
        >>> db.estimate(model, agree, tolerance=0.02, seed=1).value.round(1)
        array([0.6])
        """
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise ArgumentError("labels", "a list of labels", labels)
        return cls(predicate, dict.fromkeys(labels, 1.0), (0.0, 1.0), name, True)

    @public(name="Statistic")
    def values(self, states: NDArray[Any], first: int = 0) -> NDArray[np.float64]:
        """Return the value of the function for each row of `states`, checked against the bounds.

        `first` is the number of the first row, for messages.
        """
        if states.dtype.kind != "f":
            states = states.astype(np.int64)  # small integers would overflow in the user's arithmetic
        try:
            result = np.asarray(self.f(states))
        except MemoryError:
            raise
        except Exception as error:
            requirement = f"a function of states of shape {states.shape}; it raised {type(error).__name__}: {error}"
            raise ArgumentError("f", requirement, self.name) from error
        if result.shape != states.shape[:1]:
            requirement = f"a function that returns an array of shape {states.shape[:1]}"
            raise ArgumentError("f", requirement, got=f"shape {result.shape}")
        values = check.real_array(result, "f")
        low, high = map(float, self.bounds)
        wrong = ~((values >= low) & (values <= high))
        if self._is_event:
            wrong |= (values != 0) & (values != 1)
        if wrong.any():
            chain = int(np.argmax(wrong))
            what = "true or false" if self._is_event else f"within the bounds {in_full(low)} to {in_full(high)}"
            requirement = f"a function whose values are {what} (statistic {printable(self.name)})"
            raise ArgumentError("f", requirement, values[chain], f"chain {first + chain}")
        return values


# These are not lambdas, which cannot be sent to other processes.


def _mean(x: NDArray[Any]) -> Any:
    return x.mean(axis=1)


def _sum(x: NDArray[Any]) -> Any:
    return x.sum(axis=1, dtype=np.float64)


@dataclass(frozen=True)
class _Energy:
    """The function behind `Statistic.energy`: minus the log-density, given the states of the variables `moving`."""

    model: FactorGraph
    moving: NDArray[np.int64]
    spins: bool

    def __call__(self, x: NDArray[Any]) -> Any:
        states = np.zeros((len(x), self.model.n_variables), dtype=np.int64)
        states[:, self.moving] = (x + 1) // 2 if self.spins else x
        return -self.model.log_density(states)


def shown(target: Any) -> Any:
    """Return a target as text for tables; a label is returned unchanged."""
    return target._text if isinstance(target, Target) else target


def name_of(target: Any) -> str:
    """Return a target or label as text that is safe to print in one line."""
    return target._text if isinstance(target, Target) else printable(target)


def variables_of(target: Any) -> list[Hashable]:
    return target._variables if isinstance(target, Target) else [target]


def is_asked(label: Hashable, targets: Any) -> bool:
    """Return whether the argument `targets` of a call includes this variable."""
    if check.is_text(targets, "all"):
        return True
    several = list(targets) if check.is_several(targets) else []
    single = [targets] if isinstance(targets, Hashable) else []
    return any(label in variables_of(target) for target in [*single, *several] if isinstance(target, Hashable))


def _labels(model: Model, labels: Iterable[Hashable] | None) -> list[Hashable]:
    if labels is None:
        return list(model.labels)
    found = check.positions(labels, model.labels, model._lookup, "labels")
    return [model.labels[int(i)] for i in found]
