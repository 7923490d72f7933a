"""The settings of a call, checked: what does not depend on the targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dobrushin._estimate.method import METHODS
from dobrushin._estimate.query import Settings
from dobrushin._shared import validate as check
from dobrushin._shared.families import by_family
from dobrushin._shared.memory import memory_limit as read_memory
from dobrushin.errors import ArgumentError

# Smaller error probabilities get lost in the rounding of what they are made of.
_LEAST_ERROR = 1e-12


@by_family
def read_settings(model: Any, *settings: Any) -> Settings:
    """Check what does not depend on the targets: see `check_settings`."""
    del model
    return check_settings(METHODS, check.fraction, *settings)


def check_settings(
    known: Mapping[str, Any], read_tolerance: Callable[[Any, str], float], tolerance: Any, confidence: Any,
    method: Any, budget: Any, time: Any, memory_limit: Any = None,
) -> Settings:  # fmt: skip
    """The settings of a call, for a family of models with these methods and this kind of tolerance."""
    tolerance = read_tolerance(tolerance, "tolerance")
    confidence = check.fraction(confidence, "confidence")
    if 1.0 - confidence < _LEAST_ERROR:
        raise ArgumentError("confidence", f"at most 1 - {_LEAST_ERROR:g}", confidence)
    check.choice(method, ("auto", *known), "method")
    most = None if budget is None else check.positive(budget, "budget")
    memory = None if memory_limit is None else read_memory(memory_limit)
    return Settings(tolerance, confidence, method, most, None if time is None else float(time), memory)
