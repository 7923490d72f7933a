"""The answer of `average_over`: averages over settings of a prior, with the weights of the settings."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dobrushin._estimate import Estimate
from dobrushin._estimate.headline import UNCHECKED
from dobrushin._estimate.targets import shown
from dobrushin._shared.arrays import Floats
from dobrushin._shared.environment import require
from dobrushin._shared.text import interval_texts, percent, printable, rounded_up, visible

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class Average:
    """Answers averaged over settings, as `average_over` returns them.

    Attributes
    ----------
    settings : list
    weights : array
        Posterior probabilities of the settings.
    weight_lower, weight_upper : array
        Their bounds; equal to the weights if `weighting` is "laplace".
    answers : list of Estimate
        The answer given each setting.
    targets, states : list
        Target and state of each row, as in an `Estimate`.
    value, lower, upper : array
        The average of each row, and its interval.
    confidence : float
        Probability with which all intervals and bounds are valid at once.
    weighting : str
        "exact": marginal likelihoods that were solved. "certified": bounded by draws. "laplace": approximated.
    """

    settings: list[Hashable]
    weights: Floats
    weight_lower: Floats
    weight_upper: Floats
    answers: list[Estimate]
    value: Floats
    lower: Floats
    upper: Floats
    confidence: float
    weighting: str

    _SOURCES: ClassVar[dict[str, str]] = {
        "exact": "the marginal likelihoods of the settings were solved, with bounds on their rounding",
        "certified": "ratios of marginal likelihoods were bounded as means of certified draws",
        "laplace": (
            "NOT CERTIFIED: the weights of the settings are Laplace approximations, whose error is unknown and not "
            "included; the answers given each setting are certified"
        ),
    }

    @property
    def targets(self) -> list[Any]:
        """Return the target of each row."""
        return self.answers[0].targets

    @property
    def states(self) -> list[Any]:
        """Return the state of each row."""
        return self.answers[0].states

    @property
    def half_width(self) -> Floats:
        """Return half the width of each interval."""
        return (self.upper - self.lower) / 2

    @property
    def is_certified(self) -> bool:
        """Return whether the intervals are guaranteed, weights included."""
        return self.weighting != "laplace" and all(answer.is_certified for answer in self.answers)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions under which the intervals are valid."""
        given = (assumption for answer in self.answers for assumption in answer.assumptions)
        settings = f"the settings and their prior weights {UNCHECKED}"
        return (*dict.fromkeys(given), settings, f"weights: {self._SOURCES[self.weighting]}")

    @property
    def verdict(self) -> str:
        """Return in a few words whether the intervals are certified."""
        if not self.is_certified:
            return "NOT CERTIFIED: weights by Laplace's approximation"
        return "for certain" if self.confidence == 1 else f"certified at confidence {percent(self.confidence)}"

    @property
    def headline(self) -> str:
        """Return the precision of the average and its certainty in one line."""
        rows = "1 row" if len(self.value) == 1 else f"{len(self.value):,} rows"
        settings = "1 setting" if len(self.settings) == 1 else f"{len(self.settings):,} settings"
        sure = f"with {percent(self.confidence)} confidence" if self.confidence < 1 else "for certain"
        source = {"exact": "weights solved", "certified": "weights certified"}.get(self.weighting)
        within = f"each within {rounded_up(float(self.half_width.max()))}"
        return f"{rows} averaged over {settings}, {within}, {sure}; {source or self._SOURCES[self.weighting]}"

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with columns target, state, value, lower, upper.

        Examples
        --------
        >>> import dobrushin as db, numpy as np
        >>> edge = np.array([[0, 1], [1, 0]])
        >>> priors = {rho: db.GaussianField.leroux(edge, rho) for rho in (0.2, 0.8)}
        >>> db.average_over(priors, lambda prior: prior.normal([1.0, 0.5])).to_dataframe().round(3)
           target state  value  lower  upper
        0       0  mean  0.610  0.610  0.610
        1       1  mean  0.404  0.404  0.404
        """
        frames = require("pandas", "formats")
        columns: dict[str, Any] = {"target": [visible(shown(target)) for target in self.targets], "state": self.states}
        return frames.DataFrame(columns | {"value": self.value, "lower": self.lower, "upper": self.upper})

    def to_json(self, indent: int | None = None) -> str:
        """Return the averages, the weights and the answers given each setting as JSON text.

        An answer is what `Estimate.to_json` writes; settings are written as text.

        Examples
        --------
        >>> import dobrushin as db, json, numpy as np
        >>> edge = np.array([[0, 1], [1, 0]])
        >>> priors = {rho: db.GaussianField.leroux(edge, rho) for rho in (0.2, 0.8)}
        >>> stored = json.loads(db.average_over(priors, lambda prior: prior.normal([1.0, 0.5])).to_json())
        >>> stored["settings"][1]["setting"], round(stored["rows"][0]["value"], 2)
        ('0.8', 0.61)
        """
        weights = zip(self.weights.tolist(), self.weight_lower.tolist(), self.weight_upper.tolist(), strict=True)
        settings = [
            {
                "setting": str(name), "weight": weight, "weight_lower": low, "weight_upper": high,
                "answer": json.loads(answer.to_json()),
            }
            for name, (weight, low, high), answer in zip(self.settings, weights, self.answers, strict=True)
        ]  # fmt: skip
        rows = [
            {
                "target": str(shown(target)),
                "state": str(state),
                "value": None if math.isnan(value) else value,
                "lower": low,
                "upper": high,
            }
            for target, state, value, low, high in zip(
                self.targets, self.states, self.value.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True
            )
        ]
        known = {name: getattr(self, name) for name in ("headline", "weighting", "confidence")}
        known |= {"certified": self.is_certified, "assumptions": list(self.assumptions)}
        return json.dumps({"format": "dobrushin average 1", **known, "settings": settings, "rows": rows}, indent=indent)

    def __str__(self) -> str:
        lines = [self.headline]
        for name, *numbers in zip(self.settings, self.weights, self.weight_lower, self.weight_upper, strict=True):
            value, low, high = interval_texts(*numbers)
            span = "" if self.weighting == "laplace" else f", {low} to {high}"
            lines.append(f"  {printable(name)}: weight {value}{span}")
        return "\n".join(lines)

    __repr__ = __str__
