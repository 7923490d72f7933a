"""Results of an experiment on disk, part by part: an interrupted run goes on with what is missing."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

import dobrushin as db

Arrays = dict[str, NDArray[Any]]
_SETTINGS = "settings"


@dataclass(frozen=True)
class Setting:
    """How an experiment is run.

    Attributes
    ----------
    quick : bool
        Fewer replicates and chains: a minute or less.
    seed : int
        With the same seed all but the times are the same.
    data : Path or None
        Where the images are, for the experiment that needs some.
    """

    quick: bool = False
    seed: int = 0
    data: Path | None = None

    def pick(self, quick: Any, full: Any) -> Any:
        """Return `quick` for a quick run, else `full`."""
        return quick if self.quick else full

    def seed_of(self, *key: int) -> np.random.SeedSequence:
        """Return the seed of one part of an experiment."""
        return np.random.SeedSequence(self.seed, spawn_key=key)


@dataclass(frozen=True)
class Part:
    """A part of an experiment that is yet to be read or computed; see `Store.part`."""

    name: str
    compute: Callable[..., Mapping[str, Any]]
    arguments: tuple[Any, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


class MissingData(ValueError):
    """An experiment needs files that were not given."""


class Store:
    """The parts of one experiment, each a file that is written when the part is finished.

    Parameters
    ----------
    setting : Setting
    folder : Path, optional
        Default: nothing is written.
    say : function, optional
        Told the name of each part before it is computed.
    executor : concurrent.futures.Executor, optional
        Computes parts that do not depend on each other; default: one after the other.

    Examples
    --------
    >>> from dobrushin.experiments.store import Setting, Store
    >>> Store(Setting(quick=True)).part("squares", lambda n: {"values": [k * k for k in range(n)]}, 3)
    {'values': array([0, 1, 4])}
    """

    def __init__(
        self,
        setting: Setting,
        folder: Path | None = None,
        say: Callable[[str], None] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.setting = setting
        self.folder = folder
        self._say = say
        self._executor = executor

    def part(self, name: str, compute: Callable[..., Mapping[str, Any]], *arguments: Any, **about: Any) -> Arrays:
        """Return the arrays of a part: read if a run with the same setting has finished it, else computed and written.

        Parameters
        ----------
        name : str
            Names the file.
        compute : function
            Returns a dict of arrays, given the arguments.
        **about
            What else the result depends on, beside the setting: a change makes the part be computed again.

        Returns
        -------
        dict of arrays
        """
        wanted = Part(name, compute, arguments, about)
        stored = self._read(wanted)
        if stored is not None:
            return stored
        if self._say is not None:
            self._say(name)
        return self._write(wanted, compute(*arguments))

    def parts(self, wanted: Sequence[Part]) -> list[Arrays]:
        """Return parts that do not depend on each other, in order; over the executor, if there is one.

        Examples
        --------
        >>> from dobrushin.experiments.store import Part, Setting, Store
        >>> Store(Setting()).parts([Part(f"power-{k}", lambda k: {"value": 2**k}, (k,)) for k in range(2)])
        [{'value': array(1)}, {'value': array(2)}]
        """
        if self._executor is None:
            return [self.part(part.name, part.compute, *part.arguments, **part.about) for part in wanted]
        done = {k: stored for k, part in enumerate(wanted) if (stored := self._read(part)) is not None}
        pending: dict[Future[Any], int] = {}

        def keep(finished: Iterable[Future[Any]]) -> None:
            for future in finished:
                k = pending[future]
                done[k] = self._write(wanted[k], future.result())

        try:
            for k in (k for k in range(len(wanted)) if k not in done):
                if self._say is not None:
                    self._say(wanted[k].name)
                pending[self._executor.submit(wanted[k].compute, *wanted[k].arguments)] = k
            keep(as_completed(pending))
        except BaseException as error:
            # What is under way comes to its end and is kept too.
            for future in pending:
                future.cancel()
            ended = wait(pending).done
            keep(f for f in ended if pending[f] not in done and not f.cancelled() and f.exception() is None)
            if not isinstance(error, BrokenExecutor):
                raise
            remedy = "They are kept: the same call with a new executor goes on from there."
            raise db.WorkerError(str(error), len(done), len(wanted), "parts", remedy) from None
        return [done[k] for k in range(len(wanted))]

    def _path(self, part: Part) -> Path | None:
        return None if self.folder is None else self.folder / "parts" / f"{part.name}.npz"

    def _settings(self, part: Part) -> str:
        """Return what a stored part must have been computed for."""
        about = {"version": db.__version__, "quick": self.setting.quick, "seed": self.setting.seed, **part.about}
        return json.dumps(about, sort_keys=True)

    def _read(self, part: Part) -> Arrays | None:
        path = self._path(part)
        if path is None:
            return None
        try:
            # Opened here: of a damaged file NumPy leaves its own handle open.
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = dict(stored)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
            return None  # not there, or not whole: computed again
        return arrays if str(arrays.pop(_SETTINGS, "")) == self._settings(part) else None

    def _write(self, part: Part, content: Mapping[str, Any]) -> Arrays:
        """Write all arrays or none: a file under the final name is always whole."""
        arrays = {key: np.asarray(value) for key, value in content.items()}
        path = self._path(part)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(path.name + ".partial")
            with open(partial, "wb") as file:
                content = {**arrays, _SETTINGS: np.array(self._settings(part))}
                np.savez_compressed(file, **content)
            os.replace(partial, path)
        return arrays
