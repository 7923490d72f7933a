"""How the work of a call is run: executor, backend, checkpoint, time and seed.

A seed is an int, a SeedSequence or None; global state is never touched.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared import validate as check
from dobrushin._shared.call import NO_DEADLINE, Deadline
from dobrushin._shared.executors import read_executor
from dobrushin._shared.state_file import numbered_file, read_checkpoint, stored_seed
from dobrushin.errors import ArgumentError, BudgetError
from dobrushin.typing import Backend

# Work that takes longer is not begun unless the call allows it.
MOST_SECONDS = 3600.0
BACKENDS = get_args(Backend)
# Of a SeedSequence that is made from a number alone.
_POOL = np.random.SeedSequence(0).pool_size


@dataclass(frozen=True)
class Running:
    """Where and how the chains of a call are run."""

    executor: Executor | None = None
    backend: str = "cpu"
    checkpoint: Path | None = None
    deadline: Deadline = NO_DEADLINE

    def file(self, number: int) -> Path | None:
        """Where one of several runs, one after the other, is saved."""
        return None if self.checkpoint is None else numbered_file(self.checkpoint, number)


# On this machine, without a file.
PLAIN = Running()


def read_running(
    executor: Any, backend: Any, checkpoint: Any, seed: Any, time_limit: Any
) -> tuple[Running, np.random.SeedSequence]:
    """Check these arguments of a call, whose time begins now; a run that goes on from a file goes on with its seed."""
    deadline = read_time_limit(time_limit)
    check.choice(backend, BACKENDS, "backend")
    executor = None if executor is None else read_executor(executor)
    file = None if checkpoint is None else read_checkpoint(checkpoint)
    if seed is None and file is not None:
        seed = stored_seed(file)
    return Running(executor, backend, file, deadline), seed_sequence(seed)


def read_time_limit(time_limit: Any) -> Deadline:
    """The limit of a call that begins now; None is one that is never over."""
    if time_limit is None:
        return NO_DEADLINE
    if not check.is_real(time_limit) or not float(time_limit) > 0.0:
        raise ArgumentError("time_limit", "a positive number of seconds", time_limit)
    return Deadline(float(time_limit), "The call")


def refuse_long(what: str, seconds: float, deadline: Deadline, remedy: str) -> None:
    """`BudgetError` for work that would take longer than anyone waits, unless the call has a limit of its own."""
    if deadline is NO_DEADLINE and seconds > MOST_SECONDS:
        raise BudgetError(what, seconds, MOST_SECONDS, "seconds", remedy)


def seed_sequence(seed: object) -> np.random.SeedSequence:
    """The seed as a SeedSequence; with None, fresh entropy, which the result keeps."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if seed is None or (check.is_whole(seed) and int(seed) >= 0):
        return np.random.SeedSequence(None if seed is None else int(seed))
    raise ArgumentError("seed", "a non-negative whole number, a SeedSequence or None", seed)


def master_key(seed: np.random.SeedSequence) -> NDArray[np.uint64]:
    """Two numbers that all streams of a run are made from."""
    return seed.generate_state(2, np.uint64).astype(np.uint64)


def kept_seed(seed: np.random.SeedSequence) -> int | np.random.SeedSequence:
    """What a result keeps of its seed: a number where that is all there is to it."""
    plain = not seed.spawn_key and seed.pool_size == _POOL and check.is_whole(seed.entropy)
    return int(seed.entropy) if plain else seed  # type: ignore[arg-type]
