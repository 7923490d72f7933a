"""Where the verbs print: tables and text for people, JSON for programs, nothing if told so."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dobrushin._shared.log import log
from dobrushin._shared.text import plain

# Wide enough for the tables where the output is not a terminal.
_WIDTH = 120


@dataclass(frozen=True)
class Output:
    """Who is to read what a verb prints."""

    as_json: bool
    quiet: bool

    @property
    def is_for_people(self) -> bool:
        """Whether somebody reads along."""
        return not self.quiet and not self.as_json

    def show(self, verb: str, about: Mapping[str, Any], text: Callable[[], RenderableType]) -> None:
        """Print a result: as JSON that begins with the name of its format, or as text."""
        self.print(lambda: json.dumps({"format": f"dobrushin {verb} 1", **plain(about)}, indent=1), text)

    def print(self, as_json: Callable[[], str], text: Callable[[], RenderableType]) -> None:
        """Print what one of the functions returns, or nothing."""
        if self.as_json:
            print(as_json())
        elif not self.quiet:
            console = Console()
            (console if console.is_terminal else Console(width=_WIDTH)).print(text(), highlight=False)

    def warn(self, text: str) -> None:
        """Print a line for people on the error stream."""
        if not self.quiet:
            print(text, file=sys.stderr)

    def note(self, text: str) -> None:
        """Print a line for people."""
        if self.is_for_people:
            print(text)


@contextmanager
def decisions_shown(is_wanted: bool) -> Iterator[None]:
    """Show meanwhile what the package logs, on the error stream."""
    if not is_wanted:
        yield
        return
    handler, level = logging.StreamHandler(), log.level
    handler.setFormatter(logging.Formatter("dobrushin: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """A table whose numbers stand at the right and sentences at the left, under its title."""
    return Group(escape(title), _Grid(columns, rows))


@dataclass(frozen=True)
class _Grid:
    """Columns as wide as what is in them; without lines between them where these leave no room for the numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        del console
        cells = list(zip(self.columns, *self.rows, strict=True))
        widths = [max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in cells]
        if sum(widths) + 3 * len(widths) + 1 <= options.max_width:
            grid = Table()
        else:
            grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for k, (column, *texts) in enumerate(cells):
            is_left = k == 0 or all(" " in text for text in texts)
            grid.add_column(column, justify="left" if is_left else "right", overflow="fold")
        for row in self.rows:
            grid.add_row(*map(escape, row))
        yield grid
