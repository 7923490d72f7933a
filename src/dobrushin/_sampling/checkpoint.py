"""Files from which a run goes on as if it had never stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin._sampling.run import Progress

FORMAT = "dobrushin checkpoint 1"
# What NumPy raises on files that it cannot make sense of.
UNREADABLE = (
    ValueError,
    KeyError,
    EOFError,
    TypeError,
    AttributeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


class Checkpoint:
    """What is finished, what is under way, and for which run; a file is replaced as a whole, never half written."""

    def __init__(self, path: str | os.PathLike[str], run: str, function: str) -> None:
        try:
            self.path = Path(path)
        except TypeError:
            raise ArgumentError(function, "checkpoint", "a path", path) from None
        self.function = function
        self.run = run
        self.finished: dict[int, Progress] = {}
        self.under_way: dict[int, Progress] = {}
        try:
            if self.path.exists():
                self._read()
            # Better now than after hours of sampling.
            self.write(self.finished, self.under_way)
        except OSError as error:
            requirement = "a file that can be written"
            raise ArgumentError(function, "checkpoint", requirement, os.fspath(path), error.strerror or "") from None

    def write(self, finished: dict[int, Progress], under_way: dict[int, Progress]) -> None:
        """Replace the file."""
        arrays: dict[str, Any] = {"format": np.array(FORMAT), "run": np.array(self.run)}
        for kind, parts in (("finished", finished), ("under_way", under_way)):
            for k, progress in parts.items():
                name = f"{kind}.{k}"
                arrays[f"{name}.at"] = np.array([progress.step, progress.kept], dtype=np.int64)
                for part in ("x", "states", "counts"):
                    if (value := getattr(progress, part)) is not None:
                        arrays[f"{name}.{part}"] = value
        temporary = self.path.with_name(self.path.name + ".part")
        try:
            with open(temporary, "wb") as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def _read(self) -> None:
        from dobrushin._sampling.run import Progress

        expected = "a file that an earlier run wrote, or none"
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = dict(stored)
            if str(arrays.pop("format")) != FORMAT:
                raise ValueError
            run = str(arrays.pop("run"))
            for name in [name for name in arrays if name.endswith(".at")]:
                kind, k, _ = name.split(".")
                step, kept = (int(v) for v in arrays[name])
                parts = [arrays.get(f"{kind}.{k}.{part}") for part in ("x", "states", "counts")]
                {"finished": self.finished, "under_way": self.under_way}[kind][int(k)] = Progress(step, kept, *parts)
        except UNREADABLE:
            raise ArgumentError(self.function, "checkpoint", expected, os.fspath(self.path)) from None
        if run != self.run:
            requirement = "written by the same run (model, scan, seed, chains, record and kernel)"
            raise ArgumentError(self.function, "checkpoint", requirement, os.fspath(self.path))


def numbered(path: str | os.PathLike[str] | None, number: int) -> str | os.PathLike[str] | None:
    """The file of one part of a call that runs several, one after the other."""
    return path if path is None or number == 0 else f"{os.fspath(path)}.{number}"


def stored_seed(path: str | os.PathLike[str]) -> int | None:
    """The entropy of the run that wrote a file, so that a run without a seed can go on."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return int(str(stored["run"]).split(":")[0])
    except (OSError, *UNREADABLE):
        return None


def run_name(seed: Any, *parts: Any) -> str:
    """A name that is the same only for the same run."""
    digest = hashlib.sha256()
    for part in parts:
        _update(digest, part)
    return f"{seed}:{digest.hexdigest()}"


def _update(digest: Any, part: Any) -> None:
    """Everything that is in a value counts: arrays by their bytes, what holds them by what it holds."""
    digest.update(type(part).__name__.encode())
    if isinstance(part, np.ndarray):
        digest.update(f"{part.dtype} {part.shape}".encode() + np.ascontiguousarray(part).tobytes())
    elif isinstance(part, dict):
        for name, value in sorted(part.items(), key=lambda item: str(item[0])):
            digest.update(str(name).encode())
            _update(digest, value)
    elif isinstance(part, list | tuple):
        for value in part:
            _update(digest, value)
    elif dataclasses.is_dataclass(part):
        # What kernels remember of earlier work is not part of what they are.
        _update(digest, {k: v for k, v in vars(part).items() if k not in ("orders", "arranged", "model", "function")})
        _update(digest, getattr(getattr(part, "function", None), "__qualname__", None))
    else:
        digest.update(repr(part).encode())
