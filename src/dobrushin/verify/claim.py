"""Put the claim of a proof into sentences.

The author of the file chose the names of variables and states. So each name is shown in quotes,
without characters that could hide or reorder text, beside the number of the variable or state.
"""

import math
import unicodedata
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from dobrushin.verify.document import Array, Budget, entries, items, require

LONGEST_NAME, DIGITS = 60, 10  # characters of a name that are shown, digits of an end
RIGHT_TO_LEFT = ("R", "AL", "AN")
LINEAR = {"name": str, "slope": int, "offset": int, "divisor": int, "bounds": list}
WEIGHTS = {"weights": list}
# Kinds of questions: entries, and the title of the claim. The last seven are about fields.
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "law": ({}, ""),
    "linear": (
        LINEAR,
        "mean of {name}, ({offset} + {slope} times the sum of the state numbers, from 0, of"
        " {shown}) / {divisor}",
    ),
    "distance": (
        WEIGHTS,
        "distance between the laws of {shown}, with weights {weights}, after the scan and of the"
        " model",
    ),
    "joint": (
        {},
        "total variation between the joint laws of {shown} after the scan and of the model",
    ),
    "bias": (WEIGHTS, "bias after the scan of any function of {shown} with slopes {weights}"),
    "mean": ({}, "mean of {shown}"),
    "statistic": (
        {"name": str, **WEIGHTS},
        "mean of {name}, a function of {shown} with slopes {weights}",
    ),
    "above": ({"threshold": float}, "P({shown} > {threshold})"),
    "between": ({"low": float, "high": float}, "P({low} <= {shown} <= {high})"),
    "quantile": ({"level": float}, "{level} quantile of {shown}"),
}
BOUNDS_ONLY = ("distance", "joint", "bias")  # questions whose answer is an upper bound


def escaped(character: str) -> str:
    """Return a character, or its escape code if it is invisible or changes the text around it."""
    moves = unicodedata.bidirectional(character) in RIGHT_TO_LEFT
    is_mark = unicodedata.category(character).startswith("M")
    is_plain = character.isprintable() and not is_mark and not moves
    return character if is_plain else ascii(character)[1:-1]


def printable(text: str) -> str:
    """Return text on one line of visible characters, leaving out the middle of a long text."""
    ends = text[: 2 * LONGEST_NAME] + text[2 * LONGEST_NAME :][-LONGEST_NAME:]
    line = " ".join("".join(map(escaped, ends)).split())
    half = LONGEST_NAME // 2
    return line if len(line) <= LONGEST_NAME else f"{line[:half]} ... {line[-half:]}"


def quoted(name: str) -> str:
    """Return a name in quotes, with quotes inside the name escaped."""
    return "'" + printable(name).replace("'", "\\'") + "'"


def rounded(value: float, is_low: bool) -> str:
    """Write an end of an interval in a few digits, rounded outwards so that it stays valid."""
    context = Context(DIGITS, ROUND_FLOOR if is_low else ROUND_CEILING)
    return repr(float(context.create_decimal(Decimal(repr(value)))))


class Names:
    """Printable names of the variables and states of a proof."""

    def __init__(self, plan: dict[str, Any], positions: Array, states: list[int]) -> None:
        self.plain: list[str] = items(plan["names"], str, len(states))
        require(
            len(set(self.plain)) == len(states), "Two variables of the proof have the same name."
        )
        self.variables = [
            f"variable {at}" if name == str(at) else f"{quoted(name)} (variable {at})"
            for name, at in zip(self.plain, positions.tolist(), strict=True)
        ]
        pairs = plan["states"].items()
        self.states = {int(v): items(names, str, states[int(v)]) for v, names in pairs}

    def state(self, variable: int, digit: int) -> str:
        """Return the name of a state (spins: -1 or 1), and its number if that differs."""
        names = self.states.get(variable)
        if names is None or names[digit] == str(digit):
            return str(digit)
        return names[digit] if names == ["-1", "1"] else f"{quoted(names[digit])} (state {digit})"

    def event(self, variables: Sequence[int], digits: Sequence[int]) -> str:
        """Describe joint states, as "variable 0 = 1, 'rain' (variable 3) = 'no' (state 0)"."""
        pairs = zip(variables, digits, strict=True)
        return ", ".join(f"{self.variables[v]} = {self.state(v, digit)}" for v, digit in pairs)


class ProofQuestion:
    """A question of a proof, about one or several variables.

    It asks for a joint law, the mean of a linear statistic, a distance after a scan, or a property
    of a field.
    """

    def __init__(self, about: Any, states: list[int], names: Names) -> None:
        is_known = isinstance(about, dict) and about.get("kind") in QUESTIONS
        require(is_known, "The kind of a question is unknown.")
        self.about, self.kind, self.names = about, about["kind"], names
        entries(about, "a question", kind=str, variables=list, **QUESTIONS[self.kind][0])
        self.variables: list[int] = items(about["variables"], int)
        require(
            0 < len(set(self.variables)) == len(self.variables)
            and all(0 <= v < len(states) for v in self.variables),
            "A question names unknown or repeated variables.",
        )
        self.sizes = [states[v] for v in self.variables]
        self.weights = items(about.get("weights", [1.0] * len(self.sizes)), float, len(self.sizes))
        require(min(self.weights) > 0.0, "A weight is not positive.")
        # The range of possible answers.
        self.least = -math.inf if self.kind in ("mean", "statistic", "quantile") else 0.0
        most = {"distance": math.fsum(self.weights), "bias": math.inf}
        self.most = most.get(self.kind, 1.0 - self.least)
        if self.kind == "linear":
            self._read_linear(about)
        self.is_law = self.kind == "law"
        # Number of claimed intervals. With two states one is enough: the other mirrors it.
        self.cells = math.prod(self.sizes) if self.is_law else 0
        self.rows = max(1, self.cells)
        self.intervals = self.cells if self.cells > 2 else 1
        self.span = self.most - self.least

    def _read_linear(self, about: dict[str, Any]) -> None:
        """Read a statistic: (offset + slope times the sum of the states) / divisor."""
        self.slope, self.offset, self.divisor = about["slope"], about["offset"], about["divisor"]
        self.least, self.most = items(about["bounds"], float, 2)
        ends = [self.offset, self.offset + self.slope * (sum(self.sizes) - len(self.sizes))]
        name = quoted(about["name"])
        is_small = max(abs(self.slope), self.divisor, *map(abs, ends)) < 2**50
        require(
            self.divisor > 0 and is_small and self.least < self.most,
            f"The numbers of the statistic {name} are out of range.",
        )
        least, most = (Fraction(end) * self.divisor for end in (self.least, self.most))
        is_inside = least <= min(ends) and max(ends) <= most
        require(is_inside, f"The values of {name} leave the bounds stated for it.")
        self.weights = [abs(self.slope) * (size - 1) / self.divisor for size in self.sizes]

    def bias(self, bounds: dict[int, float]) -> float:
        """Bound the error of an answer by bounds on the disagreement of each variable."""
        pairs = zip(self.weights, self.variables, strict=True)
        total = math.fsum(weight * bounds.get(v, 1.0) for weight, v in pairs)
        return min(self.span, total * (1.0 + 1e-15))

    def value(self, digits: Array) -> Array:
        """Return the value of the linear statistic for joint states, given as state numbers."""
        return (self.offset + self.slope * digits.sum(axis=0, dtype=np.int64)) / self.divisor

    def sentences(self, lower: list[float], upper: list[float], budget: Budget) -> list[str]:
        """Return a sentence for each claimed interval."""
        names = [self.names.variables[v] for v in self.variables]
        longest = sum(len(name) + LONGEST_NAME + 20 for name in names)
        size, seconds = 2.0 * self.rows * (longest + 200), 1e-5 * self.rows * len(names)
        budget.charge("the claim in words", seconds, held=size)
        if self.is_law:
            states = product(*map(range, self.sizes))
            titles = [f"P({self.names.event(self.variables, digits)})" for digits in states]
        else:
            about = {k: quoted(v) if k == "name" else v for k, v in self.about.items()}
            titles = [QUESTIONS[self.kind][1].format(**about, shown=", ".join(names))]
        rows = zip(titles, lower, upper, strict=True)
        if self.kind in BOUNDS_ONLY:
            return [f"{title}: at most {rounded(high, False)}" for title, _, high in rows]
        return [f"{title}: from {rounded(a, True)} to {rounded(b, False)}" for title, a, b in rows]
