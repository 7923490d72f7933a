"""Claims in words: the checker makes them again from the numbers."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np


def claim_in_words(
    plan: dict[str, Any], names: list[str], lower: list[list[float]], upper: list[list[float]], sizes: Any
) -> list[str]:
    """What is claimed of each question, what is given, and the confidence."""
    lines = []
    for question, low, high in zip(plan["questions"], lower, upper, strict=True):
        lines += _WORDS[question["kind"]](question, names, plan["states"], sizes, low, high)
    lines += [f"given {names[v]} = {_state(plan['states'], v, digit)}" for v, digit in plan["evidence"]]
    return [*lines, f"all at once with confidence {plan['confidence']!r}"]


def _state(states: dict[str, list[str]], variable: int, digit: int) -> str:
    """What a state is called: by its name, and by its number where that is another one."""
    name = states[str(variable)][digit] if str(variable) in states else str(digit)
    return name if name == str(digit) else f"{name!r} (state {digit})"


def _law(question: dict[str, Any], names: list[str], states: Any, sizes: Any, low: Any, high: Any) -> list[str]:
    variables = question["variables"]
    shown = ", ".join(names[v] for v in variables)
    called = [[_state(states, v, digit) for digit in range(int(sizes[v]))] for v in variables]
    rows = zip(product(*called), low, high, strict=True)
    return [f"probability of {shown} = {', '.join(state)}: from {a!r} to {b!r}" for state, a, b in rows]


def _linear(question: dict[str, Any], names: list[str], states: Any, sizes: Any, low: Any, high: Any) -> list[str]:
    del states, sizes
    shown = ", ".join(names[v] for v in question["variables"])
    formula = f"({question['offset']} + {question['slope']} times the sum) / {question['divisor']}"
    formula += f" of the states, numbered from 0, of {shown}"
    return [f"mean of {question['name']!r}: from {low[0]!r} to {high[0]!r}; it is {formula}"]


def _distance(question: dict[str, Any], names: list[str], states: Any, sizes: Any, low: Any, high: Any) -> list[str]:
    del states, sizes, low
    own, weights = [names[v] for v in question["variables"]], question["weights"]
    law = f"the law of {', '.join(own)}"
    if np.any(np.array(weights) != 1.0):
        weighted = ", ".join(f"{weight!r} of {name}" for weight, name in zip(weights, own, strict=True))
        law = f"a law (with weights {weighted})"
    return [f"distance of {law} after the scan from the model's: at most {high[0]!r}"]


_WORDS = {"law": _law, "linear": _linear, "distance": _distance}
