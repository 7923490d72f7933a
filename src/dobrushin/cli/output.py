"""Output of verbs: exit codes, tables for people, JSON for programs, and checks that files can be written."""

from __future__ import annotations

import csv
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table

import dobrushin as db
from dobrushin._shared.environment import log, require
from dobrushin._shared.text import csv_cell, plain
from dobrushin.io.formats import FORMATS, extensions

CERTIFIED, FAILED, USAGE, NO_CERTIFICATE, INTERRUPTED = 0, 1, 2, 3, 130
# The exit code of a program ended by the signal of a closed pipe.
CLOSED = 141
# Wide enough for the tables where the output is not a terminal.
_WIDTH = 120
_Result = TypeVar("_Result")


class Usage(Exception):
    """An option has a value that cannot be used."""

    code = USAGE


class Unwritable(Usage):
    """A file or folder cannot be written; raised before the work begins."""

    code = FAILED

    def __init__(self, option: str, kind: str, path: Path, reason: str) -> None:
        super().__init__(f"{option} must be a {kind} that can be written ({reason}). Got {str(path)!r}.")


@dataclass
class Output:
    """The output of a verb: for people, for programs (JSON) or none; and the error that ended the work early.

    A verb first prints its partial result, then raises the error.
    """

    as_json: bool
    quiet: bool
    failure: BaseException | None = None

    @property
    def is_for_people(self) -> bool:
        """True if the output is for people: neither --json nor --quiet."""
        return not self.quiet and not self.as_json

    def shows_progress(self, verbose: bool) -> bool | None:
        """Return the argument `progress` for the library: False with --json or --quiet, True with --verbose."""
        return (verbose or None) if self.is_for_people else False

    def reach(self, call: Callable[[], _Result], *errors: type[Any]) -> _Result:
        """Return the result of a call, or of an error that carries a partial result; the error is raised at the end."""
        kinds: Any = (db.Interrupted, db.WorkerError, *errors)
        try:
            return call()
        except kinds as error:
            if error.result is None:
                raise
            self.failure = error
            result: _Result = error.result
            return result

    def show(self, verb: str, about: Mapping[str, Any], text: Callable[[], RenderableType]) -> None:
        """Print a result: as JSON with the name of its format, or as text or a table."""
        self.print(lambda: json.dumps({"format": f"dobrushin {verb} 1", **plain(about)}, indent=1), text)

    def print(self, as_json: Callable[[], str], text: Callable[[], RenderableType]) -> None:
        """Print the result of one of the two functions: JSON with --json, nothing with --quiet, else text."""
        if self.as_json:
            print(as_json())
        elif not self.quiet:
            console, page = Console(), text()
            is_wide = isinstance(page, str)  # a line as it is
            (console if console.is_terminal else Console(width=_WIDTH)).print(
                page, highlight=False, markup=False, soft_wrap=is_wide
            )

    def warn(self, text: str) -> None:
        """Print a line on the error stream, except with --quiet."""
        if not self.quiet:
            print(text, file=sys.stderr)

    def note(self, text: str) -> None:
        """Print a line if the output is for people."""
        if self.is_for_people:
            print(text)


@contextmanager
def decisions_shown(is_wanted: bool) -> Iterator[None]:
    """Show the package's log on the error stream inside a `with` block."""
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
    """Return a table with a title, with numbers aligned right and sentences left."""
    return Group(title, _Grid(columns, rows))


@dataclass(frozen=True)
class _Grid:
    """A table as wide as its content, without lines between columns if the terminal is too narrow for them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        cells = list(zip(self.columns, *self.rows, strict=True))
        widths = [max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in cells]
        is_wide = sum(widths) + 3 * len(widths) + 1 <= options.max_width
        grid = Table() if is_wide else Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for k, (column, *texts) in enumerate(cells):
            is_left = k == 0 or all(" " in text for text in texts)
            grid.add_column(column, justify="left" if is_left else "right", overflow="fold")
        for row in self.rows:
            grid.add_row(*row)
        yield grid


# -- files -------------------------------------------------------------------------------------


def check_file(option: str, path: Path | None, *, endings: Sequence[str] = (), is_replaced: bool = False) -> None:
    """Refuse a file that cannot be written, as far as that can be known in advance; nothing is changed.

    `endings` are the allowed extensions. A file that `is_replaced` will be written under another name and then renamed.
    """
    if path is None:
        return
    if endings and path.suffix.lower() not in endings:
        *others, last = endings
        allowed = f"{', '.join(others)} or {last}" if others else last
        raise Usage(f"{option} must end in {allowed}. Got {str(path)!r}.")
    if path.is_dir():
        raise Unwritable(option, "file", path, "it is a folder")
    is_special = path.exists() and not path.is_file()  # a device or a pipe: to open it is to use it
    if is_special and os.access(path, os.W_OK):
        return
    _check_parent(option, "file", path)
    try:
        if path.exists():
            path.open("ab").close()
        if is_replaced or not path.exists():
            trial = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part") if is_replaced else path
            trial.open("xb").close()
            trial.unlink()
    except OSError as error:
        raise Unwritable(option, "file", path, error.strerror or str(error)) from None


def check_plot(option: str, path: Path | None) -> None:
    """Refuse a picture that cannot be drawn or written."""
    if path is not None:
        canvas = require("matplotlib.backend_bases", "plots").FigureCanvasBase
        check_file(option, path, endings=[f".{ending}" for ending in sorted(canvas.get_supported_filetypes())])


def check_folder(option: str, path: Path) -> None:
    """Create a folder, and refuse one in which no file can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)
        raise Unwritable(option, "folder", path, reason) from None


def check_model(option: str, path: Path | None) -> None:
    """Refuse a path to which no model can be written."""
    if path is None:
        return
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if not ending:
        if path.exists():
            raise Unwritable(option, "new folder", path, "it exists")
        _check_parent(option, "new folder", path)
    elif not any(ending in known.extensions and known.written_from for known in FORMATS.values()):
        raise Usage(
            f"{option} must be a file name with one of the extensions {extensions(written=True)}, also with .gz after "
            f"it, or that of a folder, without an extension. Got {path.name!r}."
        )
    else:
        check_file(option, path, is_replaced=True)


def _check_parent(option: str, kind: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise Unwritable(option, kind, path, f"there is no folder {str(path.parent)!r}")


def write_table(path: Path, columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> None:
    """Write a .csv file: a line of column names, then a line for each row; unknown values stay empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(csv_cell, columns))
        writer.writerows(["" if cell != cell else csv_cell(cell) for cell in row] for row in rows)
