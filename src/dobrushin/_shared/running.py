"""Options of a run (`RunOptions`, which users pass, and `Running`, which is made of them), and seeds.

A seed is an int, a SeedSequence, a Generator or None; NumPy's global state is never touched. From a Generator a call
takes 128 bits and stores them as an int: its draws depend only on the state of the generator, the next call with the
same generator draws anew, and the result can be repeated from its own `seed`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared import validate as check
from dobrushin._shared.call import NO_DEADLINE, Deadline, public
from dobrushin._shared.executors import read_executor
from dobrushin._shared.memory import memory_limit
from dobrushin._shared.state_file import numbered_file, read_checkpoint, stored_seed
from dobrushin.errors import ArgumentError, BudgetError
from dobrushin.typing import Backend

# Work that takes longer is not begun unless the call allows it.
MOST_SECONDS = 3600.0
BACKENDS = get_args(Backend)
# Pool size of a SeedSequence that is made from a number alone.
_POOL = np.random.SeedSequence(0).pool_size


@dataclass(frozen=True)
class RunOptions:
    """How a call is run, as the argument ``run=`` of `estimate`, `sample` and others.

    The answer does not depend on these options, but for the rounding of sums on a GPU and for a time limit that ends
    the call early. Options that a function does not use are refused.

    Parameters
    ----------
    executor : concurrent.futures.Executor, optional
        Runs chains or queries: a process pool, or ``client.get_executor()`` of Dask. Default: one thread per core.
    backend : {"auto", "cpu", "cuda"}
        Where to draw and to sum: with "auto" on an NVIDIA GPU if there is one and the work is long (extra `cuda`).
    checkpoint : path, optional
        File to which the state of the run is written every few seconds, and from which the run resumes if the file
        exists. (Very many chains are run in parts, each with a separate file.)
    memory_limit : number or str, optional
        Largest number of bytes for exact sums, as a number or as in "2GiB". Default: most of the free memory.
    time_limit : number, optional
        Time limit in seconds; the keyword of the same name takes precedence.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never. The keyword of the same name
        takes precedence.

    Examples
    --------
    >>> import dobrushin as db
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     answer = db.estimate(db.Ising({(0, 1): 0.5}), [0], seed=1, run=db.RunOptions(executor=pool, backend="cpu"))
    >>> answer.plan.method
    'exact'
    """

    executor: Executor | None = None
    backend: Backend = "auto"
    checkpoint: str | os.PathLike[str] | None = None
    memory_limit: float | str | None = None
    time_limit: float | None = None
    progress: bool | None = None

    @public()
    def __post_init__(self) -> None:
        check.choice(self.backend, BACKENDS, "backend")
        if self.memory_limit is not None:
            memory_limit(self.memory_limit)
        read_time_limit(self.time_limit)
        read_executor(self.executor)


def read_options(run: Any, unused: Sequence[str] = ()) -> RunOptions:
    """Return the options of a call; fail if an option in `unused`, which the function ignores, is set."""
    if run is None:
        return RunOptions()
    if not isinstance(run, RunOptions):
        raise ArgumentError("run", "a RunOptions", run)
    for field in fields(run):
        if field.name in unused and getattr(run, field.name) != field.default:
            raise ArgumentError("run", f"without {field.name!r}, which this function does not use", run)
    return run


@dataclass(frozen=True)
class Running:
    """Where and how a call runs its chains."""

    executor: Executor | None = None
    backend: str = "cpu"
    checkpoint: Path | None = None
    deadline: Deadline = NO_DEADLINE

    def file(self, number: int) -> Path | None:
        """Return the checkpoint file of run `number`, or None."""
        return None if self.checkpoint is None else numbered_file(self.checkpoint, number)


# On the CPU, without a checkpoint or a time limit.
PLAIN = Running()


def read_running(run: RunOptions, seed: Any, time_limit: Any) -> tuple[Running, np.random.SeedSequence]:
    """Return where and how a call runs, and its seed.

    The seed is that of the checkpoint if a run is resumed. The time limit begins now.
    """
    deadline = read_time_limit(run.time_limit if time_limit is None else time_limit)
    file = read_checkpoint(run.checkpoint)
    if seed is None and file is not None:
        seed = stored_seed(file)
    return Running(read_executor(run.executor), run.backend, file, deadline), seed_sequence(seed)


def read_time_limit(time_limit: Any) -> Deadline:
    """Return a time limit that begins now; for None one that never ends."""
    if time_limit is None:
        return NO_DEADLINE
    if not check.is_real(time_limit) or not float(time_limit) > 0.0:
        raise ArgumentError("time_limit", "a positive number of seconds", time_limit)
    return Deadline(float(time_limit), "The call")


def refuse_long(what: str, seconds: float, deadline: Deadline, remedy: str) -> None:
    """Raise `BudgetError` for work expected to take more than an hour, unless the call has a time limit."""
    if deadline is NO_DEADLINE and seconds > MOST_SECONDS:
        raise BudgetError(what, seconds, MOST_SECONDS, "seconds", remedy)


def child_seed(sequence: np.random.SeedSequence, *key: int) -> np.random.SeedSequence:
    """Return a seed for independent draws of the same call; unlike `spawn`, this leaves the sequence unchanged."""
    return np.random.SeedSequence(sequence.entropy, spawn_key=(*sequence.spawn_key, *key))


def seed_sequence(seed: object) -> np.random.SeedSequence:
    """Return the seed as a SeedSequence; None gives fresh entropy, a Generator 128 bits of its stream."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if isinstance(seed, np.random.Generator):
        return np.random.SeedSequence(int.from_bytes(seed.bytes(16), "little"))
    if seed is None or (check.is_whole(seed) and int(seed) >= 0):
        return np.random.SeedSequence(None if seed is None else int(seed))
    raise ArgumentError("seed", "a non-negative whole number, a SeedSequence, a Generator or None", seed)


def master_key(seed: np.random.SeedSequence) -> NDArray[np.uint64]:
    """Return the two 64-bit numbers from which all random streams of a run are derived."""
    return seed.generate_state(2, np.uint64).astype(np.uint64)


def kept_seed(seed: np.random.SeedSequence) -> int | np.random.SeedSequence:
    """Return the seed in the form that results store: an int if an int repeats it, else the SeedSequence."""
    plain = not seed.spawn_key and seed.pool_size == _POOL and check.is_whole(seed.entropy)
    return int(seed.entropy) if plain else seed  # type: ignore[arg-type]
