"""Numbers as people read them."""

from __future__ import annotations

import math


def percent(confidence: float) -> str:
    """A confidence as people say it.

    Examples
    --------
    >>> percent(0.99), percent(0.9995)
    ('99%', '99.95%')
    """
    return f"{100 * confidence:.10g}%"


def rounded_up(value: float, digits: int = 3) -> str:
    """A few digits, rounded upwards.

    Examples
    --------
    >>> rounded_up(0.0014451), rounded_up(0.5), rounded_up(0.0)
    ('0.00145', '0.5', '0')
    """
    text = f"{value:.{digits}g}"
    if float(text) >= value:
        return text
    unit: float = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{value + unit:.{digits}g}"
