"""Targets and questions about a field, with bounds on their bias from Wasserstein distances. [trusted]"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.questions import TargetQuestion
from dobrushin._estimate.targets import Statistic, Target, TargetReader
from dobrushin._fields.anchor import Anchor
from dobrushin._fields.intervals import (
    ClippedMean,
    EventTally,
    FieldTally,
    Limits,
    PlannedMean,
    QuantileTally,
    TallyTerms,
)
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import UNIT, weighted_sum
from dobrushin._shared.environment import require
from dobrushin._shared.text import in_full, printable
from dobrushin.errors import ArgumentError

# -- targets -----------------------------------------------------------------------------------


class OfOneVariable(Target):
    """A target about one variable of a field."""

    label: Hashable

    @property
    def _variables(self) -> list[Hashable]:
        return [self.label]


@dataclass(frozen=True)
class Exceeds(OfOneVariable):
    """Target of `estimate`: the probability that a variable of a field is above a threshold.

    Parameters
    ----------
    label : label
    threshold : float

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    >>> db.estimate(field, db.Exceeds(0, 1.0)).value.round(3)
    array([0.342])
    """

    label: Hashable
    threshold: float

    def __post_init__(self) -> None:
        check.finite_number(self.threshold, "threshold")

    @property
    def _ends(self) -> tuple[float, float]:
        return float(self.threshold), float("inf")

    @property
    def _name(self) -> str:
        return f"{printable(self.label)} > {in_full(self.threshold)}"


@dataclass(frozen=True)
class Between(OfOneVariable):
    """Target of `estimate`: the probability that a variable of a field is in an interval, ends included.

    Parameters
    ----------
    label : label
    low, high : float

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    >>> db.estimate(field, db.Between(0, 0.0, 1.0)).value.round(3)
    array([0.451])
    """

    label: Hashable
    low: float
    high: float

    def __post_init__(self) -> None:
        check.finite_number(self.low, "low")
        check.finite_number(self.high, "high")
        if not self.low < self.high:
            raise ArgumentError("high", "above 'low'", self.high)

    @property
    def _ends(self) -> tuple[float, float]:
        return float(self.low), float(self.high)

    @property
    def _name(self) -> str:
        return f"{in_full(self.low)} <= {printable(self.label)} <= {in_full(self.high)}"


@dataclass(frozen=True)
class Quantile(OfOneVariable):
    """Target of `estimate`: a quantile of a variable of a field, the least q with P(x <= q) >= level.

    The tolerance is a probability here, not a distance: as many chains are drawn as would give P(x <= q) within it. The
    ends of the interval are then sample quantiles whose levels are at most twice the tolerance from `level`.

    Parameters
    ----------
    label : label
    level : float
        Between 0 and 1.

    Notes
    -----
    Quantiles of increasing functions are functions of quantiles, so those of a relative risk e^x, which is not
    Lipschitz, are e^q.

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    >>> db.estimate(field, db.Quantile(0, 0.95)).value.round(3)
    array([2.01])
    """

    label: Hashable
    level: float

    def __post_init__(self) -> None:
        check.fraction(self.level, "level")

    @property
    def _noun(self) -> str:
        return "quantile"

    @property
    def _name(self) -> str:
        return f"{in_full(self.level)} quantile of {printable(self.label)}"


@dataclass(frozen=True)
class Deviation(OfOneVariable):
    """Target of `estimate`: the standard deviation of a variable of a field.

    As many chains are drawn as for a probability of the same tolerance; the interval may be wider than the tolerance.

    Parameters
    ----------
    label : label

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    >>> db.estimate(field, db.Deviation(0)).value.round(3)
    array([0.816])
    """

    label: Hashable

    @property
    def _noun(self) -> str:
        return "standard deviation"

    @property
    def _name(self) -> str:
        return f"standard deviation of {printable(self.label)}"


@dataclass(frozen=True)
class Summary(OfOneVariable):
    """Target of `estimate`: mean, standard deviation, quantiles and a tail probability of a field's variable.

    The summary stands for several targets: the label (the mean), a `Deviation`, a `Quantile` for each level and, with a
    threshold, an `Exceeds`. They share one run, and all intervals of a call hold at once.

    Parameters
    ----------
    label : label
    levels : sequence of float
    threshold : float, optional

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0], labels=["a", "b"])
    >>> answer = db.estimate(field, [db.Summary("a", threshold=1.0), db.Summary("b", threshold=1.0)])
    >>> db.Summary.table(answer)[["mean", "sd", "5%", "95%", "> 1"]].round(2)
       mean    sd    5%   95%   > 1
    a  0.67  0.82 -0.68  2.01  0.34
    b  0.33  0.82 -1.01  1.68  0.21
    """

    label: Hashable
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    threshold: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        _ = self.parts  # checks them

    @property
    def parts(self) -> list[Any]:
        """Return the targets that the summary stands for."""
        exceeds = [] if self.threshold is None else [Exceeds(self.label, self.threshold)]
        return [self.label, Deviation(self.label), *(Quantile(self.label, level) for level in self.levels), *exceeds]

    @property
    def _name(self) -> str:
        return f"summary of {printable(self.label)}"

    @staticmethod
    def table(answer: Any) -> Any:
        """Return a pandas DataFrame with one row for each label: the values, and both ends of their intervals.

        The labels are the index, so that the table can be joined with others about the same areas, such as a
        GeoDataFrame.
        """
        pandas = require("pandas", "formats")
        rows = summary_rows(answer)
        cells = [
            {f"{name}{end}": number for name, limits in row.items() for end, number in zip(_ENDS, limits, strict=True)}
            for row in rows.values()
        ]
        return pandas.DataFrame(cells, index=list(rows))


# Endings of the columns of a table of summaries, in the order of `Limits`.
_ENDS = ("", " lower", " upper")
_STATES = ("mean", "sd", "quantile", "probability", None)


def summary_rows(answer: Any) -> dict[Hashable, dict[str, Limits]]:
    """Return value and limits of each row of an answer about a field, by label and by the name of its column."""
    if unknown := [state for state in answer.states if state not in _STATES]:
        raise ArgumentError("answer", "an answer about a field", got=f"one with the state {unknown[0]!r}")
    rows: dict[Hashable, dict[str, Limits]] = {}
    for target, *numbers in zip(answer.targets, answer.value, answer.lower, answer.upper, strict=True):
        label, name = (target._name, "mean") if isinstance(target, Target) else (target, "mean")
        if isinstance(target, OfOneVariable):
            label, name = target.label, _column(target)
        rows.setdefault(label, {})[name] = Limits(*map(float, numbers))
    return rows


def _column(target: OfOneVariable) -> str:
    """Return the name of a target's column in a summary table, such as "5%" or "sd"."""
    if isinstance(target, Quantile):
        return f"{100 * target.level:g}%"
    if isinstance(target, Exceeds):
        return f"> {target.threshold:g}"
    return f"{target.low:g} to {target.high:g}" if isinstance(target, Between) else "sd"


_MEANS = "empirical Bernstein or Gaussian concentration"  # intervals

# -- questions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FieldQuestion(TargetQuestion):
    """A single quantity to estimate: a mean, a probability, a quantile or a standard deviation.

    Attributes
    ----------
    positions : array
        Positions of the variables that the question depends on.
    slopes : array
        Lipschitz constants of the averaged function in these variables; 1 for probabilities and quantiles.
    space : FieldSpace
    target : label or Target
    state : str or None
        The kind of question: "mean", "probability", "quantile", "sd", or None for a statistic.

    """

    positions: NDArray[np.int64]
    slopes: NDArray[np.float64]
    space: Any
    target: Any
    state: str | None
    bounds: tuple[float, float] = (0.0, 1.0)
    is_counted: bool = True
    interval: str = "Clopper-Pearson"
    name: str | None = None

    @property
    def rows(self) -> list[tuple[Any, Any]]:
        return [(self.target, self.state)]

    @property
    def weights(self) -> NDArray[np.float64]:
        scale = self.space.tilt[self.positions] if self.is_counted else self.slopes
        weights: NDArray[np.float64] = scale * self.space.anchor.unit[self.positions]
        return weights

    def biases(self, disagreement: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the bias of the question after a scan that updates all of its variables."""
        anchor: Anchor = self.space.anchor
        distances = disagreement * anchor.unit[self.positions] * (1.0 + 4 * UNIT)
        if not self.is_counted:
            least, most = self.bounds
            return np.array([min(most - least, weighted_sum(self.slopes, distances, 4))])
        slips = np.minimum(anchor.slips[self.positions], 1.0)
        return np.minimum(1.0, (distances * self.space.tilt[self.positions] + slips) * (1.0 + 4 * UNIT))

    def values(self, states: NDArray[np.float64], first: int) -> NDArray[np.float64]:
        """Return the value of the averaged function in each chain; `states` has shape (chains, positions).

        `first` is the number of the first of these chains in the run.
        """
        return self.target.values(states, first) if isinstance(self.target, Statistic) else states[:, 0]

    def tally_for(self, terms: TallyTerms) -> FieldTally:
        """Return the tally that collects the chains' values for this question."""
        if self.is_counted:
            return QuantileTally(self, terms) if isinstance(self.target, Quantile) else EventTally(self, terms)
        assert terms.clip is not None
        return ClippedMean(self, terms.clip, terms) if terms.clip.shares[0] else PlannedMean(self, terms.clip, terms)


class FieldReader(TargetReader):
    """Turns targets into questions about a field."""

    kinds: ClassVar[str] = "Exceeds, Between, Quantile, Deviation, Summary, Statistic"
    space: Any

    def __init__(self, model: Any, evidence: dict[Hashable, Any], rest: Any, space: Any) -> None:
        super().__init__(model, evidence, rest)
        object.__setattr__(self, "space", space)

    def read_targets(self, targets: Any) -> list[Any]:
        items = [targets] if isinstance(targets, Summary) else targets
        if isinstance(items, list | tuple) and any(isinstance(item, Summary) for item in items):
            items = [part for item in items for part in (item.parts if isinstance(item, Summary) else [item])]
        return super().read_targets(items)

    def read_variables(self, positions: NDArray[np.int64]) -> list[Any]:
        return [self._mean(i) for i in positions.tolist()]

    def _mean(self, i: int) -> FieldQuestion:
        label, bounds = self.rest.labels[i], self.space.bounds_at(i)
        return FieldQuestion(np.array([i]), np.ones(1), self.space, label, "mean", bounds, False, _MEANS)

    def read(self, target: Target) -> FieldQuestion:
        if isinstance(target, Statistic):
            return self._read_statistic(target)
        if not isinstance(target, OfOneVariable):
            kinds = "means, Exceeds, Between, Quantile, Deviation, Summary or Statistic for a field"
            raise ArgumentError("targets", kinds, target)
        position = self.positions([target.label])
        common = (position, np.ones(1), self.space, target)
        if isinstance(target, Quantile):
            bounds = self.space.bounds_at(int(position[0]))
            return FieldQuestion(*common, "quantile", bounds, interval="order statistics")
        if isinstance(target, Deviation):
            return FieldQuestion(*common, "sd", (0.0, math.inf), interval="empirical Bernstein")
        return FieldQuestion(*common, "probability")

    def _read_statistic(self, statistic: Statistic) -> FieldQuestion:
        if statistic.is_event:
            requirement = "Exceeds or Between for events of a field: indicators have no Lipschitz constant"
            raise ArgumentError("targets", requirement, statistic.name)
        weights = {label: float(weight) for label, weight in statistic.weights.items() if weight > 0}
        positions = self.positions(weights)
        order = np.argsort(positions)
        own = np.array(list(weights.values()))[order]
        # Bounds of a statistic are given, and no proof can state them.
        given = (-math.inf, math.inf) if self.space.form.is_plain else statistic.bounds
        bounds = (float(given[0]), float(given[1]))
        return FieldQuestion(positions[order], own, self.space, statistic, None, bounds, False, _MEANS, statistic.name)
