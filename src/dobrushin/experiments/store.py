"""What an experiment has finished, on disk: an interrupted run goes on from there."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dobrushin import __version__

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
        """One of two values."""
        return quick if self.quick else full

    def words(self, *key: int) -> np.random.SeedSequence:
        """The seed of one part of an experiment."""
        return np.random.SeedSequence(self.seed, spawn_key=key)


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

    Examples
    --------
    >>> from dobrushin.experiments.store import Setting, Store
    >>> Store(Setting(quick=True)).part("squares", lambda n: {"values": [k * k for k in range(n)]}, 3)
    {'values': array([0, 1, 4])}
    """

    def __init__(self, setting: Setting, folder: Path | None = None, say: Callable[[str], None] | None = None) -> None:
        self.setting = setting
        self.folder = folder
        self._say = say

    def part(self, name: str, compute: Callable[..., Mapping[str, Any]], *arguments: Any, **about: Any) -> Arrays:
        """The arrays of a part: read if a run with the same setting has finished it, else computed and written.

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
        settings = json.dumps(
            {"version": __version__, "quick": self.setting.quick, "seed": self.setting.seed, **about}, sort_keys=True
        )
        path = None if self.folder is None else self.folder / "parts" / f"{name}.npz"
        if path is not None and (stored := _read(path, settings)) is not None:
            return stored
        if self._say is not None:
            self._say(name)
        arrays = {key: np.asarray(value) for key, value in compute(*arguments).items()}
        if path is not None:
            write_arrays(path, {**arrays, _SETTINGS: np.array(settings)})
        return arrays


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write all arrays or none: a file under the final name is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    os.replace(partial, path)


def _read(path: Path, settings: str) -> Arrays | None:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
        return None  # not whole: computed again
    return arrays if str(arrays.pop(_SETTINGS, "")) == settings else None
