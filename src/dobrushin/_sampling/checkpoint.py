"""What is finished and what is under way in a run of batches, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin._shared.state_file import StateFile

if TYPE_CHECKING:
    from dobrushin._sampling.batches import Progress

_FORMAT = "dobrushin checkpoint 2"
_SAME = "model, scan, seed, chains, record and kernel"
_PARTS = ("x", "states", "counts")


class Checkpoint:
    """The batches of a run by number; read when it is made, if the file exists."""

    def __init__(self, path: Path, seed: np.random.SeedSequence, parts: Any, function: str) -> None:
        from dobrushin._sampling.batches import Progress

        self._file = StateFile(path, _FORMAT, "run", seed, parts, _SAME, function)
        self.finished: dict[int, Progress] = {}
        self.under_way: dict[int, Progress] = {}
        stored = self._file.read() or {}
        for name in [name for name in stored if name.endswith(".at")]:
            kind, k, _ = name.split(".")
            step, kept = (int(v) for v in stored[name])
            arrays = [stored.get(f"{kind}.{k}.{part}") for part in _PARTS]
            {"finished": self.finished, "under_way": self.under_way}[kind][int(k)] = Progress(step, kept, *arrays)
        self._file.begin(_arrays(self.finished, self.under_way))

    def is_due(self) -> bool:
        """Whether the last writing is long ago."""
        return self._file.is_due()

    def write(self, finished: dict[int, Progress], under_way: dict[int, Progress]) -> None:
        """Replace the file."""
        self._file.save(_arrays(finished, under_way))


def _arrays(finished: dict[int, Progress], under_way: dict[int, Progress]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for kind, parts in (("finished", finished), ("under_way", under_way)):
        for k, progress in parts.items():
            name = f"{kind}.{k}"
            arrays[f"{name}.at"] = np.array([progress.step, progress.kept], dtype=np.int64)
            for part in _PARTS:
                if (value := getattr(progress, part)) is not None:
                    arrays[f"{name}.{part}"] = value
    return arrays
