"""What is claimed: rows of questions, how outcomes are counted for them, and what a bias does to them."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import Document, fields, require

_KINDS: dict[str, dict[str, Any]] = {
    "marginal": {"variables": list},
    "joint": {"variables": list},
    "linear": {"variables": list, "name": str, "slope": int, "offset": int, "divisor": int, "bounds": list},
    "distance": {"variables": list, "weights": list},
}


class Question:
    """The marginal of a variable, a joint marginal, the mean of a linear statistic, or a distance of laws."""

    def __init__(self, about: Any, states: list[int], names: list[str], spins: bool) -> None:
        require(isinstance(about, dict) and about.get("kind") in _KINDS, "A question is of no known kind.")
        self.kind = about["kind"]
        fields(about, "a question", kind=str, **_KINDS[self.kind])
        self.variables = about["variables"]
        fits = all(type(v) is int and 0 <= v < len(states) for v in self.variables)
        fits = fits and 0 < len(set(self.variables)) == len(self.variables)
        require(fits and (self.kind != "marginal" or len(self.variables) == 1), "A question names no such variables.")
        self.sizes, self.spins = [states[v] for v in self.variables], spins
        self.names = [names[v] for v in self.variables]
        self.shown = ", ".join(self.names)
        self.least, self.most = 0.0, 1.0
        self.weights = [1.0] * len(self.variables)
        if self.kind == "linear":
            self._read_linear(about)
        elif self.kind == "distance":
            self.weights = _numbers(about["weights"], len(self.variables))
            require(min(self.weights) > 0.0, "A weight is not positive.")
            self.most = math.fsum(self.weights)
        self.is_counted = self.kind in ("marginal", "joint")  # or averaged
        # How many intervals are claimed; how many have to hold at once: the chances of two states mirror each other.
        self.rows = math.prod(self.sizes) if self.is_counted else 1
        self.intervals = self.rows if self.rows > 2 else 1
        self.span = self.most - self.least  # how far the answer can be off at all

    def _read_linear(self, about: dict[str, Any]) -> None:
        """A whole number, and so many times the sum of the states, over a whole number: bounds are exact."""
        self.name, self.slope, self.offset, self.divisor = (about[k] for k in ("name", "slope", "offset", "divisor"))
        self.least, self.most = _numbers(about["bounds"], 2)
        ends = [self.offset, self.offset + self.slope * (sum(self.sizes) - len(self.sizes))]
        fits = self.divisor > 0 and max(abs(self.slope), self.divisor, *map(abs, ends)) < 2**50
        require(fits and self.least < self.most, f"The statistic {self.name!r} is out of range.")
        fits = Fraction(self.least) * self.divisor <= min(ends) and max(ends) <= Fraction(self.most) * self.divisor
        require(fits, f"The values of {self.name!r} leave the bounds that are claimed for it.")
        self.weights = [abs(self.slope) * (size - 1) / self.divisor for size in self.sizes]

    def bias(self, disagreement: dict[int, float]) -> float:
        """How far each row can be off, given bounds on the disagreement of variables."""
        terms = (weight * disagreement.get(v, 1.0) for weight, v in zip(self.weights, self.variables, strict=True))
        return min(self.span, math.fsum(terms) * (1.0 + 1e-15))

    def count(self, digits: NDArray[Any], block: int, is_sets: bool) -> NDArray[np.int64]:
        """For each block of outcomes (variables, n): how many are in each row and, of sets, how many are open (-1).

        An outcome with a digit of -2 is none.
        """
        number = -(-digits.shape[1] // block)
        blocks, columns = np.arange(digits.shape[1]) // block, []
        if self.is_counted:
            settled = (digits >= 0).all(axis=0)
            cell = np.ravel_multi_index(tuple(digits[:, settled].astype(np.int64)), self.sizes)
            columns.append(np.bincount(blocks[settled] * self.rows + cell, minlength=number * self.rows))
        if is_sets:
            columns.append(np.bincount(blocks[(digits == -1).any(axis=0)], minlength=number))
        return np.concatenate([column.reshape(number, -1) for column in columns], axis=1)

    def values(self, digits: NDArray[Any], fill: float) -> NDArray[np.float64]:
        """A linear statistic in each outcome, from 0 to 1; `fill` where one is open."""
        unit = np.clip((self.value(np.maximum(digits, 0)) - self.least) / self.span, 0.0, 1.0)
        return np.where((digits >= 0).all(axis=0), unit, fill)

    def value(self, digits: NDArray[Any]) -> NDArray[np.float64]:
        """A linear statistic of digits (variables, n)."""
        return (self.offset + self.slope * digits.sum(axis=0, dtype=np.int64)) / self.divisor

    def words(self, lower: list[float], upper: list[float]) -> list[str]:
        """The claim as sentences."""
        if self.kind == "distance":
            weighted = ", ".join(f"{w!r} of {name}" for w, name in zip(self.weights, self.names, strict=True))
            law = f"the law of {self.shown}" if set(self.weights) == {1.0} else f"a law (with weights {weighted})"
            return [f"distance of {law} after the scan from the model's: at most {upper[0]!r}"]
        if self.kind == "linear":
            formula = f"({self.offset} + {self.slope} times the sum) / {self.divisor}"
            formula += f" of the states, numbered from 0, of {self.shown}"
            return [f"mean of {self.name!r}: from {lower[0]!r} to {upper[0]!r}; it is {formula}"]
        states = product(*(range(-1, 2, 2) if self.spins else range(size) for size in self.sizes))
        return [
            f"probability of {self.shown} = {', '.join(map(str, state))}: from {low!r} to {high!r}"
            for state, low, high in zip(states, lower, upper, strict=True)
        ]


def _numbers(values: Any, count: int) -> list[float]:
    fits = isinstance(values, list) and len(values) == count and all(isinstance(value, float) for value in values)
    require(fits, "A list of numbers has the wrong length or kind.")
    return values


def read_names(names: list[str], positions: list[int]) -> list[str]:
    """How the variables are called in words: by name, and by position in the model where that is another one."""
    fits = len(names) == len(positions) and all(isinstance(name, str) for name in names)
    require(fits and len(set(names)) == len(names), "The variables of the proof have no names of their own.")
    pairs = zip(names, positions, strict=True)
    return [name if name == str(p) else f"{name!r} (variable {p} of the model)" for name, p in pairs]


def read_questions(plan: dict[str, Any], states: list[int], names: list[str]) -> list[Question]:
    """The questions of a proof."""
    require(plan["questions"] and not (plan["spins"] and set(states) - {2}), "Nothing is asked of spins.")
    return [Question(about, states, names, plan["spins"]) for about in plan["questions"]]


def read_rows(document: Document, questions: list[Question], side: str) -> list[list[float]]:
    """The lower or upper ends that are claimed."""
    rows = document.claim[side]
    require(len(rows) == len(questions), "The claim does not fit the questions.")
    return [_numbers(row, question.rows) for row, question in zip(rows, questions, strict=True)]
