"""Numbers and names as people read them."""

from __future__ import annotations

import math
import re
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


# Characters of a name in a line of text; longer names lose their middle.
_MAX_CHARACTERS = 80
# Names that are printed as they are: a word, perhaps with indices, or several words without signs.
_PLAIN = re.compile(r"(?:[\w.:/<>+*^~#@!?&$-]|[<>]=)+(?:\[[\w ,.-]*\])?|\w[\w.-]*(?: \w[\w.-]*)*")
# Characters that nobody sees, though Python counts them as printable: fillers, joiners and variation selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_FORMULAS, _NUMBER = {"=", "+", "-", "@"}, re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_BLANKS = re.compile(r"[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")


def printable(name: object) -> str:
    """Return a label or a state as it can stand in a line of text, whatever file it comes from.

    Control and format characters (newlines, escape sequences, bidirectional marks) are escaped, runs of blanks become
    one blank, long names lose their middle, and names that could be read as something else are quoted. Numbers are
    written in full.

    Examples
    --------
    >>> printable("rain"), printable(3), printable(0.1), printable(("a", 1))
    ('rain', '3', '0.1', "('a', 1)")
    >>> print(printable("x = 1) = 0.99 exactly\\nP(y"))
    'x = 1) = 0.99 exactly\nP(y'
    """
    if isinstance(name, Real) or name is None:
        return str(name)
    if isinstance(name, tuple):
        parts = [_quoted(part) if isinstance(part, str) else printable(part) for part in name[:_MAX_CHARACTERS]]
        parts += ["..."] if len(name) > _MAX_CHARACTERS else []
        return f"({', '.join(parts)}{',' if len(name) == 1 else ''})"
    text = str(name)
    is_plain = len(text) <= _MAX_CHARACTERS and _PLAIN.fullmatch(text) and not _UNSEEN.search(text)
    return text if is_plain else _quoted(text)


def visible(value: Any) -> Any:
    """Escape the characters of a text that cannot be seen or that move others; return any other value as it is.

    Examples
    --------
    >>> visible("two\\nlines"), visible(3)
    ('two\\\\nlines', 3)
    """
    if not isinstance(value, str) or (value.isprintable() and not _UNSEEN.search(value)):
        return value
    return "".join(c if c.isprintable() and not _UNSEEN.match(c) else ascii(c)[1:-1] for c in value)


def csv_cell(value: Any) -> Any:
    """Return a cell of a table that other programs open: a text that begins like a formula follows an apostrophe.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("-1"), csv_cell(-1), csv_cell("rain")
    ("'=1+1", '-1', -1, 'rain')
    """
    text = visible(value if isinstance(value, Real | str) or value is None else str(value))
    is_formula = isinstance(text, str) and text.lstrip()[:1] in _FORMULAS and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def _quoted(text: str) -> str:
    """Quote a text, with escapes for what cannot be seen or moves other characters."""
    if len(text) > 4 * _MAX_CHARACTERS:  # one escape takes at least one character
        text = text[: 2 * _MAX_CHARACTERS] + text[-2 * _MAX_CHARACTERS :]
    text = _BLANKS.sub(" ", text).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{_shortened(visible(text))}'"


def _shortened(text: str) -> str:
    half = _MAX_CHARACTERS // 2 - 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:half]}...{text[-half:]}"


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
