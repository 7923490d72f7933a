"""What the verbs write: found out before the work whether it can be written, and tables without a library."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dobrushin as db
from dobrushin._shared.extras import require
from dobrushin._shared.text import csv_cell
from dobrushin.cli.guard import Unwritable, Usage
from dobrushin.io.formats import FORMATS, extensions


def check_file(option: str, path: Path | None, *, endings: Sequence[str] = (), is_replaced: bool = False) -> None:
    """Refuse a file that cannot be written, as far as that can be known; nothing is left or changed.

    `endings` are those that its name may have. A file that is replaced as a whole is written under another name first.
    """
    if path is None:
        return
    if endings and path.suffix.lower() not in endings:
        raise Usage(f"{option} must end in {', '.join(endings[:-1])} or {endings[-1]}. Got {str(path)!r}.")
    if path.is_dir():
        raise _unwritable(option, "file", path, "it is a folder")
    is_special = path.exists() and not path.is_file()  # a device or a pipe: to open it is to use it
    if is_special and os.access(path, os.W_OK):
        return
    _check_parent(option, "file", path)
    try:
        if path.exists():
            path.open("ab").close()
        if is_replaced or not path.exists():
            _try_to_make(path.with_name(f"{path.name}.{os.urandom(4).hex()}.part") if is_replaced else path)
    except OSError as error:
        raise _unwritable(option, "file", path, error.strerror or str(error)) from None


def check_plot(option: str, path: Path | None) -> None:
    """Refuse a picture that cannot be drawn or written."""
    if path is not None:
        canvas = require("matplotlib.backend_bases", "plots").FigureCanvasBase
        check_file(option, path, endings=[f".{ending}" for ending in sorted(canvas.get_supported_filetypes())])


def check_folder(option: str, path: Path) -> None:
    """Make a folder, and refuse one in which nothing can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except FileExistsError:
        raise _unwritable(option, "folder", path, "it is a file") from None
    except OSError as error:
        raise _unwritable(option, "folder", path, error.strerror or str(error)) from None


def check_model(option: str, path: Path | None) -> None:
    """Refuse a file or folder to which no model can be written."""
    if path is None:
        return
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if not ending:
        if path.exists():
            raise _unwritable(option, "new folder", path, "it exists")
        _check_parent(option, "new folder", path)
    elif not any(ending in known.extensions and known.written_from for known in FORMATS.values()):
        raise Usage(
            f"{option} must be a file name with one of the extensions {extensions(written=True)}, also with .gz after "
            f"it, or that of a folder, without an extension. Got {path.name!r}."
        )
    else:
        check_file(option, path, is_replaced=True)


def rehearse_model(path: Path | None, model: db.Model) -> None:
    """Write a model of the same kind elsewhere, for the reasons why this format cannot hold it."""
    if path is not None:
        with tempfile.TemporaryDirectory() as folder:
            db.write(model, Path(folder) / path.name)


def write_table(path: Path, columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> None:
    """Write a .csv file: a line of names, then a line for each row; what is unknown stays empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(csv_cell, columns))
        writer.writerows(["" if cell != cell else csv_cell(cell) for cell in row] for row in rows)


def _check_parent(option: str, kind: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise _unwritable(option, kind, path, f"there is no folder {str(path.parent)!r}")


def _try_to_make(path: Path) -> None:
    """Make a file and remove it."""
    path.open("xb").close()
    path.unlink()


def _unwritable(option: str, kind: str, path: Path, reason: str) -> Unwritable:
    return Unwritable(f"{option} must be a {kind} that can be written ({reason}). Got {str(path)!r}.")
