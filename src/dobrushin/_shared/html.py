"""Results as notebooks show them: a heading, facts and a table, readable on light and on dark, every text escaped.

Colours are those of the surroundings (`currentColor`, and greys that are half transparent), so that nothing has to be
known of the page. There are no scripts and no style sheets, which viewers of notebooks may strip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from dobrushin._shared.text import interval_texts

_LINE = "1px solid rgba(128, 128, 128, 0.45)"
_CELL = "padding: 0.15em 0.7em; text-align: left; border: 0"
_NUMBER = "padding: 0.15em 0.7em; text-align: right; border: 0; font-variant-numeric: tabular-nums"


class Bar(NamedTuple):
    """A cell that shows a number as a bar: from 0 to 1, with an interval around it."""

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
    """A small page: a heading, named facts, a picture, a table, a note, and lines that are folded away.

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
    body = "".join(
        '<tr style="background: none">' + "".join(_cell(cell, k) for k, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    style = "border-collapse: collapse; color: inherit; margin: 0.3em 0"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(cell: Any, column: int) -> str:
    if isinstance(cell, Bar):
        return f'<td style="{_CELL}; min-width: 10em">{_bar(cell)}</td>'
    return f'<td style="{_NUMBER if column else _CELL}">{escape(str(cell))}</td>'


def _bar(bar: Bar) -> str:
    """A bar up to the value, and a line across the interval."""
    value, lower, upper = (100 * min(1.0, max(0.0, x)) for x in bar)
    box = "position: absolute; top: 0.15em; height: 0.7em"
    filled = f'<div style="{box}; left: 0; width: {value:.2f}%; background: currentColor; opacity: 0.3"></div>'
    width = max(upper - lower, 0.4)
    line = f'<div style="{box}; left: {lower:.2f}%; width: {width:.2f}%; background: currentColor; opacity: 0.8"></div>'
    label = "{}, between {} and {}".format(*interval_texts(*bar))
    outer = f"position: relative; height: 1em; border-left: {_LINE}; border-right: {_LINE}"
    return f'<div role="img" aria-label="{escape(label)}" style="{outer}">{filled}{line}</div>'
