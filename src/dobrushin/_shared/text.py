"""Text for people: numbers, names and results, in lines and in notebooks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from difflib import get_close_matches
from html import escape
from itertools import islice
from numbers import Integral, Real
from typing import Any, NamedTuple

# Digits of a percentage, decimals and digits of a number, and digits that hold every double.
_PERCENT_DIGITS, _MAX_DECIMALS, _MAX_DIGITS, _EXACT = 10, 12, 15, 1100
# Smaller numbers are written with an exponent.
_LEAST_DECIMAL = 1e-4


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural unless the number is 1.

    Examples
    --------
    >>> counted(1, "target"), counted(20_000, "target")
    ('1 target', '20000 targets')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent(confidence: float) -> str:
    """Write a confidence as a percentage, rounded down, so that only certain answers have "100%".

    Examples
    --------
    >>> percent(0.99), percent(0.9995), percent(1 - 2e-12), percent(1)
    ('99%', '99.95%', '99.99999999%', '100%')
    """
    return f"{_rounded(100 * _as_decimal(confidence), _PERCENT_DIGITS, ROUND_FLOOR)}%"


def in_full(number: float) -> str:
    """Write a parameter with as few digits as distinguish it from other doubles.

    Examples
    --------
    >>> in_full(0.05), in_full(1000000.5), in_full(3.0)
    ('0.05', '1000000.5', '3')
    """
    return repr(float(number)).removesuffix(".0")


def rounded_up(value: float, digits: int = 3) -> str:
    """Write a bound with a few digits, rounded up.

    Examples
    --------
    >>> rounded_up(0.0014451), rounded_up(0.5), rounded_up(0.0)
    ('0.00145', '0.5', '0')
    """
    return _rounded(value, digits, ROUND_CEILING)


def _rounded(value: float | Decimal, digits: int, way: str) -> str:
    """Write a number rounded to `digits` significant digits, in a given direction, as %g does."""
    if not math.isfinite(value):
        return f"{value:g}"
    exact = _as_decimal(value)
    rounded = round_decimal(exact, digits - 1 - exact.adjusted(), way)
    text = f"{float(rounded):.{digits}g}"
    return text if Decimal(text) == rounded else str(rounded)  # doubles near zero have fewer digits


def _as_decimal(value: float | Decimal) -> Decimal:
    """Return the shortest decimal that reads as this double, so that 0.05 stays 0.05."""
    return value if isinstance(value, Decimal) else Decimal(repr(float(value)))


def round_decimal(value: float | Decimal, decimals: int, way: str) -> Decimal:
    """Round a number to `decimals` decimals in a direction, one of the constants ROUND_... of `decimal`."""
    with localcontext(prec=_EXACT):
        return _as_decimal(value).quantize(Decimal(1).scaleb(-decimals), way) + 0  # no negative zero


def decimals_for(half_width: float, largest: float = 1.0) -> int:
    """Return how many decimals an interval of this half-width supports: two digits of the half-width.

    `largest` is the size of the numbers to be written. At most 12 digits after their leading zeros, and 15 digits in
    all, are shown.

    Examples
    --------
    >>> decimals_for(0.01), decimals_for(1e-16), decimals_for(1e-40, 1e-20), decimals_for(30.0, 1e6)
    (4, 12, 31, 2)
    """
    size = math.floor(math.log10(largest)) if 0 < largest < math.inf else 0
    wanted = most = _MAX_DECIMALS + max(0, -1 - size)
    if 0 < half_width < math.inf:
        wanted = min(max(2 - math.floor(math.log10(half_width)), 2), most)
    return max(0, min(wanted, _MAX_DIGITS - 1 - size))


def interval_texts(value: float, lower: float, upper: float) -> tuple[str, str, str]:
    """Write an estimate and its limits with the digits that the width supports; limits are rounded outwards.

    Examples
    --------
    >>> interval_texts(0.396649, 0.386834, 0.406464), interval_texts(0.5, 0.5, 0.5)
    (('0.39665', '0.38683', '0.40647'), ('0.5', '0.5', '0.5'))
    >>> interval_texts(1 / 3, 1 / 3 - 1e-16, 1 / 3 + 1e-16)
    ('0.333333333333', '0.333333333333', '0.333333333334')
    """
    ways = ((value, ROUND_HALF_EVEN), (lower, ROUND_FLOOR), (upper, ROUND_CEILING))
    largest, half_width = max(abs(lower), abs(upper)), (upper - lower) / 2
    if not largest < 10.0**_MAX_DIGITS or math.isnan(value):
        low, high = (_rounded(number, _MAX_DIGITS, way) for number, way in ways[1:])
        return f"{value:.{_MAX_DIGITS}g}", low, high
    decimals = decimals_for(half_width, largest)
    numbers = [round_decimal(number, decimals, way) for number, way in ways]
    if 0 < largest < _LEAST_DECIMAL:
        mean, low, high = (_with_exponent(number) for number in numbers)
        return mean, low, high
    texts = [f"{number:f}" for number in numbers]
    # Zeros at the end of all three are left out.
    spare = min(decimals, *(len(text) - len(text.rstrip("0")) for text in texts))
    mean, low, high = (text[: len(text) - spare].rstrip(".") if spare else text for text in texts)
    return mean, low, high


def _with_exponent(number: Decimal) -> str:
    mantissa, _, exponent = f"{number:e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}" if number else "0"


def exact_text(value: float, lower: float, upper: float) -> str:
    """Write a number that is exact up to rounding, with a bound on the error of the written digits.

    Examples
    --------
    >>> exact_text(0.5, 0.5 - 1e-16, 0.5 + 1e-16), exact_text(9 / 13, 9 / 13 - 1e-9, 9 / 13 + 1e-9)
    ('0.5, exact to 1e-12', '0.692307692308, exact to 2e-09')
    """
    text = interval_texts(value, lower, upper)[0]
    if not math.isfinite(value):
        return text
    text = text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
    with localcontext(prec=_EXACT):
        off = max(Decimal(text) - _as_decimal(lower), _as_decimal(upper) - Decimal(text))
        least = Decimal(1).scaleb(-decimals_for((upper - lower) / 2, max(abs(lower), abs(upper))))
    return f"{text}, exact to {_rounded(max(off, least), 1, ROUND_CEILING)}"


# Most names that are compared with an unknown one; each comparison takes some microseconds.
_MAX_COMPARED = 20_000


def nearest(name: object, known: Iterable[Any], most: int = 3) -> list[Any]:
    """Return the known names that are spelled most similarly to an unknown one, the most similar first.

    Examples
    --------
    >>> nearest("smok", ["asia", "smoke", "lung"]), nearest("x", ["asia"])
    (['smoke'], [])
    """
    text = name if isinstance(name, str) else None
    if text is None or not text:
        return []
    by_text = {str(other).lower(): other for other in islice(known, _MAX_COMPARED)}
    return [by_text[close] for close in get_close_matches(text.lower(), by_text, most, 0.6)]


def hint(name: object, known: Iterable[Any]) -> str:
    """Return a suggestion of a similar known name, for the end of an error message; empty if there is none.

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
# Invisible characters that Python counts as printable: fillers, joiners and variation selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_FORMULAS, _NUMBER = {"=", "+", "-", "@"}, re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_BLANKS = re.compile(r"[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")


def printable(name: object) -> str:
    """Write a label or a state safely on one line of text, whatever file it comes from.

    Control and format characters (newlines, escape sequences, bidirectional marks) are escaped, runs of blanks become
    one blank, long names lose their middle, and names that could be read as something else are quoted. Numbers are
    written in full.

    Examples
    --------
    >>> printable("rain"), printable(3), printable(0.1), printable(("a", 1))
    ('rain', '3', '0.1', "('a', 1)")
    >>> print(printable("x = 1) = 0.99 exactly\\nP(y"))
    'x = 1) = 0.99 exactly\\nP(y'
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
    """Escape the invisible and text-reordering characters of a text; return any other value unchanged.

    Examples
    --------
    >>> visible("two\\nlines"), visible(3)
    ('two\\\\nlines', 3)
    """
    if not isinstance(value, str) or (value.isprintable() and not _UNSEEN.search(value)):
        return value
    return "".join(c if c.isprintable() and not _UNSEEN.match(c) else ascii(c)[1:-1] for c in value)


def csv_cell(value: Any) -> Any:
    """Return a cell for a CSV file; a text that a spreadsheet would run as a formula gets an apostrophe in front.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("-1"), csv_cell(-1), csv_cell("rain")
    ("'=1+1", '-1', -1, 'rain')
    """
    text = visible(value if isinstance(value, Real | str) or value is None else str(value))
    is_formula = isinstance(text, str) and text.lstrip()[:1] in _FORMULAS and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def _quoted(text: str) -> str:
    """Quote a text, escaping characters that are invisible or reorder text."""
    if len(text) > 4 * _MAX_CHARACTERS:  # one escape takes at least one character
        text = text[: 2 * _MAX_CHARACTERS] + text[-2 * _MAX_CHARACTERS :]
    text = _BLANKS.sub(" ", text).replace("\\", "\\\\").replace("'", "\\'")
    text, half = visible(text), _MAX_CHARACTERS // 2 - 2
    return f"'{text}'" if len(text) <= _MAX_CHARACTERS else f"'{text[:half]}...{text[-half:]}'"


def plain(value: Any) -> Any:
    """Convert a value to what JSON can hold: numbers, text, lists, objects, and None for non-finite numbers.

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


# -- notebooks: a heading, facts and a table, readable on light and on dark, every text escaped --------

# Colours are those of the surroundings (`currentColor`, and greys that are half transparent), so that nothing has to be
# known of the page. There are no scripts and no style sheets, which viewers of notebooks may strip.
_LINE = "1px solid rgba(128, 128, 128, 0.45)"
_CELL = "padding: 0.15em 0.7em; text-align: left; border: 0"
_NUMBER_CELL = "padding: 0.15em 0.7em; text-align: right; border: 0; font-variant-numeric: tabular-nums"


class Bar(NamedTuple):
    """A table cell that shows a number between 0 and 1 as a bar, with an interval around it."""

    value: float
    lower: float
    upper: float


def card(
    heading: str,
    facts: Iterable[tuple[str, str]] = (),
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[Any]] = (),
    note: str = "",
    details: tuple[str, Sequence[str]] | None = None,
    picture: str = "",
) -> str:
    """Return HTML of a result: a heading, named facts, a picture, a table, a note, and folded details.

    Cells of a table are text, or a `Bar`; the picture is HTML.

    Examples
    --------
    >>> card("Scan", [("steps", "<3>")])
    '<div ...><strong>Scan</strong>...steps...&lt;3&gt;...</div>'
    """
    parts = [f"<strong>{escape(heading)}</strong>"]
    lines = "".join(
        f'<tr style="background: none"><th scope="row" style="{_CELL}; font-weight: normal; opacity: 0.8">'
        f'{escape(name)}</th><td style="{_CELL}">{escape(text)}</td></tr>'
        for name, text in facts
    )
    if lines:
        parts.append(f'<table style="border-collapse: collapse; color: inherit; margin: 0.3em 0">{lines}</table>')
    if picture:
        parts.append(f'<div style="overflow-x: auto">{picture}</div>')
    if columns:
        parts.append(_table(columns, rows))
    if note:
        parts.append(f'<div style="opacity: 0.8">{escape(note)}</div>')
    if details is not None and details[1]:
        items = "".join(f"<li>{escape(line)}</li>" for line in details[1])
        parts.append(f"<details><summary>{escape(details[0])}</summary><ul>{items}</ul></details>")
    return f'<div style="max-width: 60em; overflow-x: auto; line-height: 1.4">{"".join(parts)}</div>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col" style="{_CELL}; border-bottom: {_LINE}">{escape(name)}</th>' for name in columns)
    cells = ("".join(_cell(cell, k) for k, cell in enumerate(row)) for row in rows)
    body = "".join(f'<tr style="background: none">{row}</tr>' for row in cells)
    style = "border-collapse: collapse; color: inherit; margin: 0.3em 0"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(cell: Any, column: int) -> str:
    if isinstance(cell, Bar):
        return f'<td style="{_CELL}; min-width: 10em">{_bar(cell)}</td>'
    return f'<td style="{_NUMBER_CELL if column else _CELL}">{escape(str(cell))}</td>'


def _bar(bar: Bar) -> str:
    """Return HTML of a bar up to the value, with a line for the interval."""
    value, lower, upper = (100 * min(1.0, max(0.0, x)) for x in bar)
    box = "position: absolute; top: 0.15em; height: 0.7em"
    filled = f'<div style="{box}; left: 0; width: {value:.2f}%; background: currentColor; opacity: 0.3"></div>'
    width = max(upper - lower, 0.4)
    line = f'<div style="{box}; left: {lower:.2f}%; width: {width:.2f}%; background: currentColor; opacity: 0.8"></div>'
    label = "{}, between {} and {}".format(*interval_texts(*bar))
    outer = f"position: relative; height: 1em; border-left: {_LINE}; border-right: {_LINE}"
    return f'<div role="img" aria-label="{escape(label)}" style="{outer}">{filled}{line}</div>'
