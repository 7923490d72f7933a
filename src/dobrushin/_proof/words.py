"""Claims in words: the checker makes them again from the numbers."""

from __future__ import annotations

from itertools import product
from typing import Any

# What questions ask for; of laws each row is called by its states.
_TITLES = {
    "linear": "mean of {name!r}, ({offset} + {slope} times the states (from 0) of {shown}) / {divisor}",
    "distance": "distance of the law of {shown}, weighted {weights}, after the scan from the model's",
    "joint": "total variation of the law of {shown} after the scan from the model's",
    "bias": "bias after the scan of any function of {shown} with slopes {weights}",
    "mean": "mean of {shown}",
    "statistic": "mean of {name!r}, a function of {shown} with slopes {weights}",
    "above": "probability of {shown} > {threshold}",
    "between": "probability of {low} <= {shown} <= {high}",
    "quantile": "{level} quantile of {shown}",
}


def claim_in_words(
    plan: dict[str, Any], names: list[str], lower: list[list[float]], upper: list[list[float]], sizes: Any
) -> list[str]:
    """What is claimed of each question, what is given, and the confidence."""
    lines = []
    for question, low, high in zip(plan["questions"], lower, upper, strict=True):
        titles = _titles(question, names, plan["states"], sizes)
        lines += [f"{title}: from {a!r} to {b!r}" for title, a, b in zip(titles, low, high, strict=True)]
    lines += [f"given {names[v]} = {_state(plan['states'], v, digit)}" for v, digit in plan["evidence"]]
    return [*lines, f"all at once with confidence {plan['confidence']!r}"]


def _titles(question: dict[str, Any], names: list[str], states: Any, sizes: Any) -> list[str]:
    variables = question["variables"]
    shown = ", ".join(names[v] for v in variables)
    if question["kind"] != "law":
        return [_TITLES[question["kind"]].format(**question, shown=shown)]
    called = [[_state(states, v, digit) for digit in range(int(sizes[v]))] for v in variables]
    return [f"probability of {shown} = {', '.join(state)}" for state in product(*called)]


def _state(states: dict[str, list[str]], variable: int, digit: int) -> str:
    """What a state is called: by its name, and by its number where that is another one."""
    name = states[str(variable)][digit] if str(variable) in states else str(digit)
    return name if name == str(digit) else f"{name!r} (state {digit})"
