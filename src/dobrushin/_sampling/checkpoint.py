"""Files from which a run goes on as if it had never stopped."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin._sampling.run import Progress

FORMAT = "dobrushin checkpoint 1"


class Checkpoint:
    """What is finished, what is under way, and for which run; a file is replaced as a whole, never half written."""

    def __init__(self, path: str | os.PathLike[str], run: str) -> None:
        self.path = Path(path)
        self.run = run
        self.finished: dict[int, Progress] = {}
        self.under_way: dict[int, Progress] = {}
        if self.path.exists():
            self._read()

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
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise ArgumentError("sample", "checkpoint", expected, os.fspath(self.path)) from None
        if run != self.run:
            requirement = "written by the same run (model, scan, seed, chains, record and kernel)"
            raise ArgumentError("sample", "checkpoint", requirement, os.fspath(self.path))


def stored_seed(path: str | os.PathLike[str]) -> int | None:
    """The entropy of the run that wrote a file, so that a run without a seed can go on."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return int(str(stored["run"]).split(":")[0])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def run_name(entropy: Any, *parts: Any) -> str:
    """A name that is the same only for the same run."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(str(part.dtype).encode() + str(part.shape).encode() + np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part).encode())
    return f"{entropy}:{digest.hexdigest()}"
