"""What can be asked of a field besides means: probabilities of intervals, and quantiles."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from dobrushin._estimate.targets import Target, TargetReader
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.text import printable
from dobrushin.errors import ArgumentError


class OfOneVariable(Target):
    """A target about one variable of a field."""

    label: Hashable

    @property
    def plain(self) -> Any:
        return self.shown

    @property
    def variables(self) -> list[Hashable]:
        return [self.label]

    def is_called(self, name: object) -> bool:
        return name == self or name == self.shown


class Event(OfOneVariable):
    """An interval that one variable of a field may be in."""

    def ask(self, reader: TargetReader) -> Any:
        return reader.read_interval(self)


@dataclass(frozen=True)
class Exceeds(Event):
    """The probability that a variable of a field is above a threshold, as a target of `estimate`.

    Parameters
    ----------
    label : label
    threshold : float

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    >>> db.estimate(field, db.Exceeds(0, 1.0)).mean.round(3)
    array([0.342])
    """

    label: Hashable
    threshold: float

    @public()
    def __post_init__(self) -> None:
        check.finite_number(self.threshold, "threshold")

    @property
    def ends(self) -> tuple[float, float]:
        """Least and largest value that do not make it true: above the first, up to the second."""
        return float(self.threshold), float("inf")

    @property
    def shown(self) -> str:
        return f"{printable(self.label)} > {self.threshold:g}"


@dataclass(frozen=True)
class Between(Event):
    """The probability that a variable of a field is in an interval, ends included, as a target of `estimate`.

    Parameters
    ----------
    label : label
    low, high : float

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    >>> db.estimate(field, db.Between(0, 0.0, 1.0)).mean.round(3)
    array([0.451])
    """

    label: Hashable
    low: float
    high: float

    @public()
    def __post_init__(self) -> None:
        check.finite_number(self.low, "low")
        check.finite_number(self.high, "high")
        if not self.low < self.high:
            raise ArgumentError("high", "above 'low'", self.high)

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends."""
        return float(self.low), float(self.high)

    @property
    def shown(self) -> str:
        return f"{self.low:g} <= {printable(self.label)} <= {self.high:g}"


@dataclass(frozen=True)
class Quantile(OfOneVariable):
    """A quantile of a variable of a field, as a target of `estimate`: the least q with P(x <= q) >= level.

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
    >>> db.estimate(field, db.Quantile(0, 0.95)).mean.round(3)
    array([2.01])
    """

    label: Hashable
    level: float

    @public()
    def __post_init__(self) -> None:
        check.fraction(self.level, "level")

    @property
    def noun(self) -> str:
        return "quantile"

    @property
    def shown(self) -> str:
        return f"{self.level:g} quantile of {printable(self.label)}"

    def ask(self, reader: TargetReader) -> Any:
        return reader.read_quantile(self)
