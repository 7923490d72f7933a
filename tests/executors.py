"""What workers of other processes call: they have to find it by name."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Noted:
    """A start that leaves a file for each batch that begins, and takes its time."""

    folder: str
    variables: int
    seconds: float = 0.0

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        name = f"{int(numbers[0])}.{os.getpid()}.{time.monotonic_ns()}"
        (Path(self.folder) / name).touch()
        time.sleep(self.seconds)
        return np.ones((len(numbers), self.variables), dtype=int)


@dataclass(frozen=True)
class Forbidden:
    """A start that is forbidden from chain `first` on; the batch of this chain takes its time to say so."""

    variables: int
    first: int

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        if self.first in numbers:
            time.sleep(0.2)
        return np.repeat(numbers[:, None] >= self.first, self.variables, axis=1).astype(int)


@dataclass(frozen=True)
class Deadly:
    """A start that ends the process of the batch with chain `at`, the first time."""

    folder: str
    variables: int
    at: int

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        flag = Path(self.folder) / "dead"
        if self.at in numbers and not flag.exists():
            flag.touch()
            time.sleep(0.3)  # the batches before it come to an end
            os.kill(os.getpid(), signal.SIGKILL)
        return np.ones((len(numbers), self.variables), dtype=int)


def deadly_event(states: np.ndarray) -> np.ndarray:
    """A statistic that ends the process that computes it, unless that is the one named in the environment."""
    if os.getpid() != int(os.environ["DOBRUSHIN_TEST_MAIN"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return states[:, 0] > 0


def deadly_part(states: np.ndarray) -> dict:
    """A part of an experiment that does the same, after a while."""
    time.sleep(0.3)
    return {"values": deadly_event(states)}


def squares(n: int) -> dict:
    """A part of an experiment."""
    return {"values": [k * k for k in range(n)]}


def fails(n: int) -> dict:
    """A part of an experiment that cannot be computed."""
    time.sleep(0.1)
    return {"values": n // 0}


@dataclass(frozen=True)
class DeadlyScan:
    """Chooses a scan for a region; in another process than `main` it ends that one after some calls."""

    main: int
    file: str
    after: int

    def __call__(self, region: Any) -> Any:
        calls = Path(self.file).read_text() if Path(self.file).exists() else ""
        if os.getpid() != self.main:
            if len(calls) >= self.after:
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGKILL)
            Path(self.file).write_text(calls + "x")
        return region.shortest()
