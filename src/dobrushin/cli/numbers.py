"""Numbers as they are written on the command line: also 1e6 for a whole one, and errors that show what was found."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, get_args

import typer


def read_by_us(annotation: Any) -> None:
    """Let the option that an annotation describes, if it takes a number, be read here."""
    kind, *details = get_args(annotation) or (None,)
    kinds = {kind, *get_args(kind)} & {int, float}
    for option in details:
        if kinds and option.parser is None:
            option.parser = partial(_read, is_whole=int in kinds, least=option.min)
            option.metavar = "INTEGER" if int in kinds else "NUMBER"
            option.min = None


def _read(text: Any, is_whole: bool, least: float | None) -> float:
    """The number; an error of usage where there is none, or where it is too small.

    Examples
    --------
    >>> _read("1e6", True, 1), _read("0.01", False, None)
    (1000000, 0.01)
    """
    found: float | None = None
    with suppress(ValueError, OverflowError):
        found = _whole(text) if is_whole else float(text)
    if found is None or (least is not None and not found >= least):
        what = "a whole number" if is_whole else "a number"
        bound = "" if least is None else f" of at least {least:g}"
        raise typer.BadParameter(f"it must be {what}{bound}. Got {str(text)!r}.")
    return found


def _whole(text: Any) -> int | None:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return int(number) if number.is_integer() else None
