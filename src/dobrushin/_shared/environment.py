"""The version, the log, optional libraries, and safe replacement of files."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import IO, Any

VERSION = "1.0.0rc1"

# The log of the package's decisions, which is discarded unless the user adds a handler.
log = logging.getLogger("dobrushin")
# A package that has no handler at all prints its warnings.
log.addHandler(logging.NullHandler())

# Functions that read what users may pass in place of a model: by the lower-case name of the library that defines its
# class, and for paths. The packages that read models register here when `dobrushin` is imported.
READERS: dict[str, Callable[[Any], Any]] = {}
PATHS = "a path"


def require(module: str, extra: str) -> Any:
    """Import a module of an optional dependency; if it is missing, raise an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs {module.split('.')[0]}, which is not installed: pip install 'dobrushin[{extra}]'"
        ) from error


def replace_file(name: str, data: bytes) -> None:
    """Write a file completely or leave the old one; write directly if the path is a device or pipe."""
    if os.path.exists(name) and not os.path.isfile(name):  # also a directory, and Python's error for it
        with open(name, "wb") as file:
            file.write(data)
    else:
        with replacing(name) as file:
            file.write(data)


@contextlib.contextmanager
def replacing(name: str) -> Iterator[IO[bytes]]:
    """Yield a new file that replaces `name` when it is complete; after an `OSError` the old file remains."""
    temporary = f"{name}.{os.urandom(4).hex()}.part"
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, name)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
