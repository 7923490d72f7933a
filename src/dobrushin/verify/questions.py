"""What is claimed: rows of questions, how outcomes are counted for them, and what a bias does to them."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import Document, fields, reject, require


class Question:
    """The marginal of a variable, a joint marginal, the mean of a linear statistic, or a distance of laws."""

    def __init__(self, about: Any, states: list[int], names: list[str], spins: bool) -> None:
        require(isinstance(about, dict), "A question is not an object.")
        self.kind = about.get("kind")
        if self.kind == "marginal":
            fields(about, "a marginal", kind=str, variable=int)
            self.variables = [about["variable"]]
        elif self.kind == "joint":
            fields(about, "a joint marginal", kind=str, variables=list)
            self.variables = about["variables"]
        elif self.kind == "linear":
            fields(about, "a linear statistic", kind=str, name=str, variables=list, slopes=list, offset=float, bounds=list)
            self.variables = about["variables"]
        elif self.kind == "distance":
            fields(about, "a distance", kind=str, variables=list, weights=list)
            self.variables = about["variables"]
        else:
            reject("A question is of no known kind.")
        known = all(type(v) is int and 0 <= v < len(states) for v in self.variables)
        require(known and self.variables, "A question names no variable of the proof.")
        require(len(set(self.variables)) == len(self.variables), "A question names a variable twice.")
        self.sizes = [states[v] for v in self.variables]
        self.shown = ", ".join(names[v] for v in self.variables)
        self.spins = spins
        if self.kind == "linear":
            self._read_linear(about)
        elif self.kind == "distance":
            self.weights = _numbers(about["weights"], len(self.variables))
            require(min(self.weights) > 0.0, "A weight is not positive.")
        else:
            self.weights = [1.0] * len(self.variables)

    def _read_linear(self, about: dict[str, Any]) -> None:
        self.shown, self.offset = about["name"], about["offset"]
        self.slopes = _numbers(about["slopes"], len(self.variables))
        self.least, self.most = _numbers(about["bounds"], 2)
        self.weights = [abs(s) * (k - 1) for s, k in zip(self.slopes, self.sizes, strict=True)]
        ends = [s * (k - 1) for s, k in zip(self.slopes, self.sizes, strict=True)]
        low = self.offset + math.fsum(min(0.0, end) for end in ends)
        high = self.offset + math.fsum(max(0.0, end) for end in ends)
        slack = 1e-9 * (1.0 + abs(low) + abs(high))
        fits = self.least - slack <= low and high <= self.most + slack and self.least < self.most
        require(fits, f"The values of {self.shown!r} leave the bounds that are claimed for it.")

    @property
    def rows(self) -> int:
        """How many numbers are claimed."""
        return math.prod(self.sizes) if self.is_counted else 1

    @property
    def is_counted(self) -> bool:
        """Whether outcomes are counted, not averaged."""
        return self.kind in ("marginal", "joint")

    @property
    def intervals(self) -> int:
        """How many intervals have to hold at once: the chances of two states mirror each other."""
        return self.rows if self.rows > 2 else 1

    @property
    def span(self) -> float:
        """How far the answer can be off at all."""
        return self.most - self.least if self.kind == "linear" else 1.0

    def bias(self, disagreement: dict[int, float]) -> float:
        """How far each row can be off, given bounds on the disagreement of variables."""
        terms = [w * disagreement.get(v, 1.0) for w, v in zip(self.weights, self.variables, strict=True)]
        total = math.fsum(terms) * (1.0 + 1e-15)
        return total if self.kind == "distance" else min(self.span, total)

    def count(self, digits: NDArray[Any], block: int) -> NDArray[np.int64]:
        """For each block of outcomes (variables, n) how many are in each row; those with a digit below 0 in none."""
        settled = (digits >= 0).all(axis=0)
        cell = np.ravel_multi_index(tuple(np.maximum(digits, 0).astype(np.int64)), self.sizes)
        blocks = np.arange(digits.shape[1]) // block
        size = -(-digits.shape[1] // block) * self.rows
        counts = np.bincount((blocks * self.rows + cell)[settled], minlength=size)
        return counts.reshape(-1, self.rows).astype(np.int64)

    def values(self, digits: NDArray[Any], fill: float) -> NDArray[np.float64]:
        """A linear statistic in each outcome, from 0 to 1; `fill` where a digit is below 0."""
        value = self.offset + np.asarray(self.slopes) @ np.maximum(digits, 0)
        unit = np.clip((value - self.least) / self.span, 0.0, 1.0)
        return np.where((digits >= 0).all(axis=0), unit, fill)

    def words(self, lower: list[float], upper: list[float]) -> list[str]:
        """The claim as sentences."""
        if self.kind == "distance":
            return [f"distance of the law of {self.shown} after the scan from the model's: at most {upper[0]!r}"]
        if self.kind == "linear":
            return [f"mean of {self.shown}: from {lower[0]!r} to {upper[0]!r}"]
        ranges = [range(-1, 2, 2) if self.spins else range(k) for k in self.sizes]
        states = [", ".join(map(str, state)) for state in product(*ranges)]
        return [
            f"probability of {self.shown} = {state}: from {low!r} to {high!r}"
            for state, low, high in zip(states, lower, upper, strict=True)
        ]


def _numbers(values: Any, count: int) -> list[float]:
    fits = isinstance(values, list) and len(values) == count and all(isinstance(v, float) for v in values)
    require(fits, "A list of numbers has the wrong length or kind.")
    return values


def read_questions(document: Document, states: list[int]) -> tuple[list[Question], list[str]]:
    """The questions of a proof, and the names of its variables."""
    plan = document.plan
    names, spins = plan["names"], plan["spins"]
    fits = isinstance(names, list) and len(names) == len(states) and all(isinstance(name, str) for name in names)
    require(fits and len(set(names)) == len(names), "The variables of the proof have no names of their own.")
    require(not spins or all(k == 2 for k in states), "Spins have two states.")
    require(isinstance(plan["questions"], list) and plan["questions"], "Nothing is asked.")
    return [Question(about, states, names, spins) for about in plan["questions"]], names


def read_rows(document: Document, questions: list[Question], side: str) -> list[list[float]]:
    """The lower or upper ends that are claimed."""
    rows = document.claim[side]
    require(isinstance(rows, list) and len(rows) == len(questions), "The claim does not fit the questions.")
    return [_numbers(row, question.rows) for row, question in zip(rows, questions, strict=True)]
