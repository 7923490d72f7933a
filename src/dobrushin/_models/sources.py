"""What can stand where a model is asked for: a path, or a model of another library; each is read at this one door.

A kind is recognised by the library that its class comes from, so that no library is imported to look. The file that
reads it is opened when it is needed.
"""

from __future__ import annotations

import importlib
import os
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from dobrushin._models.model import Model
from dobrushin._shared.families import reads_sources
from dobrushin._shared.text import nearest
from dobrushin.errors import ArgumentError

_REQUIREMENT = "a model, the path of a file, or a model of dimod, pgmpy, pyAgrum, networkx, PyMC or thrml"
# Files that were read last, by what they were then.
_MOST_FILES = 8
_files: OrderedDict[tuple[str, int, int], Model] = OrderedDict()
_LOCK = Lock()


@dataclass(frozen=True)
class Source:
    """Models of another library: its name, and the function of this package that reads them."""

    library: str
    home: str
    function: str

    def read(self, value: Any) -> Model:
        """The model."""
        model: Model = getattr(importlib.import_module(self.home), self.function)(value)
        return model


SOURCES = {
    source.library: source
    for source in (
        Source("dimod", "dobrushin.adapters.dimod", "from_dimod"),
        Source("pgmpy", "dobrushin.adapters.pgmpy", "from_pgmpy"),
        Source("pyagrum", "dobrushin.adapters.pyagrum", "from_pyagrum"),
        Source("networkx", "dobrushin.adapters.networkx", "from_networkx"),
        Source("pymc", "dobrushin.adapters.pymc", "read"),
        Source("thrml", "dobrushin.adapters.thrml", "read"),
    )
}


def as_model(value: Any, function: str, argument: str = "model", requirement: str = _REQUIREMENT) -> Model:
    """A model itself, or the one that a path or an object of another library stands for."""
    value = read_source(value)
    if isinstance(value, Model):
        return value
    if isinstance(value, str | os.PathLike):
        requirement += f" (there is no such file{_nearest_file(value)})"
    raise ArgumentError(function, argument, requirement, value)


def _nearest_file(path: Any) -> str:
    """A file beside it that is called almost so."""
    folder, name = os.path.split(os.fsdecode(path))
    close = []
    with suppress(OSError):
        close = nearest(name, os.listdir(folder or "."), 1)
    return f"; the nearest is {close[0]!r}" if close else ""


@reads_sources
def read_source(value: Any) -> Any:
    """The model that a path or an object of another library stands for; anything else as it is."""
    if isinstance(value, Model):
        return value
    if isinstance(value, str | os.PathLike):
        path = os.fsdecode(value)
        return _read_path(path) if os.path.exists(path) else value
    source = source_of(value)
    return value if source is None else source.read(value)


def source_of(value: object) -> Source | None:
    """The library that a value comes from, if models of it are read."""
    # From the class outwards: the networks of pgmpy are graphs of networkx, too.
    for kind in type(value).__mro__:
        source = SOURCES.get(kind.__module__.partition(".")[0].lower())
        if source is not None:
            return source
    return None


def _read_path(path: str) -> Model:
    """The model of a file or folder; the same object as long as the file does not change, so that it is read once."""
    files = importlib.import_module("dobrushin.io")
    model: Model
    if os.path.isdir(path):
        model = files.open_model(path)
        return model
    about = os.stat(path)
    key = (os.path.realpath(path), about.st_mtime_ns, about.st_size)
    with _LOCK:
        if key in _files:
            _files.move_to_end(key)
            return _files[key]
    model = files.read(path)
    with _LOCK:
        _files[key] = model
        while len(_files) > _MOST_FILES:
            _files.popitem(last=False)
    return model
