"""Reading of arguments that stand for a model: a path, or a model of another library.

Objects of other libraries are recognised by the module of their class, so that no library is imported for this. The
packages `io` and `adapters` register their readers in `dobrushin._shared.environment`, and are loaded at first use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dobrushin._models.memory import Memory, Slot
from dobrushin._models.model import Model
from dobrushin._shared.environment import PATHS, READERS
from dobrushin._shared.text import nearest
from dobrushin.errors import ArgumentError

_REQUIREMENT = "a model, the path of a file, or a model of dimod, pgmpy, pyAgrum, networkx, PyMC or thrml"
# Models of the files that were read last, by path, time of the last change and size.
_FILES: Slot[Model] = Slot("files", max_values=8)
_MEMORY = Memory()


def as_model(value: Any, argument: str = "model", requirement: str = _REQUIREMENT) -> Model:
    """Return a model as it is; read it if the value is a path, and convert objects of other libraries."""
    value = read_source(value)
    if isinstance(value, Model):
        return value
    if isinstance(value, str | os.PathLike):
        requirement += f" (there is no such file{_nearest_file(value)})"
    raise ArgumentError(argument, requirement, value)


def _nearest_file(path: Any) -> str:
    """Return the end of a message that names the file with the most similar name in the same folder."""
    folder, name = os.path.split(os.fsdecode(path))
    close = []
    with suppress(OSError):
        close = nearest(name, os.listdir(folder or "."), 1)
    return f"; the nearest is {close[0]!r}" if close else ""


def read_source(value: Any) -> Any:
    """Read a model from a path or an object of another library; return any other value unchanged."""
    if isinstance(value, Model):
        return value
    if isinstance(value, str | os.PathLike):
        path = os.fsdecode(value)
        return _read_path(path) if os.path.exists(path) else value
    reader = reader_of(value)
    return value if reader is None else reader(value)


def reader_of(value: object) -> Callable[[Any], Any] | None:
    """Return the function that reads objects of this class's library, or None."""
    # From the class outwards: the networks of pgmpy are graphs of networkx, too.
    for kind in type(value).__mro__:
        reader = READERS.get(kind.__module__.partition(".")[0].lower())
        if reader is not None:
            return reader
    return None


def _read_path(path: str) -> Model:
    """Read a model from a file or folder; reading an unchanged file again returns the same object."""
    model: Model
    if os.path.isdir(path):
        model = READERS[PATHS](path)
        return model
    about = os.stat(path)
    key = (os.path.realpath(path), about.st_mtime_ns, about.st_size)
    return _MEMORY.get(_FILES, lambda: READERS[PATHS](path), key)
