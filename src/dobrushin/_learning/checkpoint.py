"""A file from which a fit goes on as if it had never stopped."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from dobrushin._sampling.checkpoint import UNREADABLE
from dobrushin.errors import ArgumentError

FORMAT = "dobrushin fit 1"
SECONDS = 5.0


class FitFile:
    """The state of a fit, by name; the file is replaced as a whole, never half written."""

    def __init__(self, path: str | os.PathLike[str], run: str) -> None:
        try:
            self.path = Path(path)
        except TypeError:
            raise ArgumentError("fit", "checkpoint", "a path", path) from None
        self._run = run
        self._written = time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """What was stored; None if there is no file."""
        if not self.path.exists():
            return None
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = dict(stored)
            if str(arrays.pop("format")) != FORMAT:
                raise ValueError
            run = str(arrays.pop("run"))
        except (OSError, *UNREADABLE):
            requirement = "a file that an earlier fit wrote, or none"
            raise ArgumentError("fit", "checkpoint", requirement, os.fspath(self.path)) from None
        if run != self._run:
            requirement = "written by the same fit (model, data, seed and options)"
            raise ArgumentError("fit", "checkpoint", requirement, os.fspath(self.path))
        return arrays

    def is_due(self) -> bool:
        """Whether the last writing is long ago."""
        return time.monotonic() - self._written > SECONDS

    def write(self, arrays: dict[str, Any]) -> None:
        """Replace the file."""
        temporary = self.path.with_name(self.path.name + ".part")
        try:
            with open(temporary, "wb") as file:
                np.savez(file, format=np.array(FORMAT), run=np.array(self._run), **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            requirement = "a file that can be written"
            raise ArgumentError("fit", "checkpoint", requirement, os.fspath(self.path), error.strerror or "") from None
        self._written = time.monotonic()
