"""Numbers and names as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from numbers import Integral, Real
from typing import Any


def counted(number: int, noun: str) -> str:
    """A number of things.

    Examples
    --------
    >>> counted(1, "target"), counted(20_000, "target")
    ('1 target', '20000 targets')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
    if not float(text) < value:
        return text
    unit: float = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{value + unit:.{digits}g}"


# Names that are compared with one that is unknown: comparing takes some microseconds for each.
_MOST_COMPARED = 20_000


def nearest(name: object, known: Iterable[Any], most: int = 3) -> list[Any]:
    """The known names that are written almost like an unknown one, the nearest first.

    Examples
    --------
    >>> nearest("smok", ["asia", "smoke", "lung"]), nearest("x", ["asia"])
    (['smoke'], [])
    """
    text = name if isinstance(name, str) else None
    if text is None or not text:
        return []
    by_text = {str(other).lower(): other for other in islice(known, _MOST_COMPARED)}
    return [by_text[close] for close in get_close_matches(text.lower(), by_text, most, 0.6)]


def hint(name: object, known: Iterable[Any]) -> str:
    """What may have been meant, to be put behind a list of what is known; empty where nothing is near.

    Examples
    --------
    >>> hint("exakt", ["exact", "local"]), hint("x", ["exact"])
    (" (the nearest is 'exact')", '')
    """
    close = nearest(name, known, 1)
    return f" (the nearest is {close[0]!r})" if close else ""


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers, text, lists and objects; null for what is no finite number.

    Examples
    --------
    >>> plain({"value": float("nan"), 3: (1, "a", frozenset())})
    {'value': None, '3': [1, 'a', 'frozenset()']}
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)
