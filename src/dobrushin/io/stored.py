"""Models on disk that are used where they are: plain .npy arrays in a folder, with a small manifest.

manifest.json   format, number of variables and of entries, number of states (0 for spins)
start.npy       int64, n + 1: where the neighbours of each variable begin
neighbor.npy    int32 or int64: neighbours, increasing within each row; every edge stands in both rows
coupling.npy    float64: what couples them
potential.npy   float64: fields (n,) or unaries (n, states); may be missing, for 0
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin import _validate as check
from dobrushin._models import Ising, Model, Potts
from dobrushin._models.local import LocalArrays, Rows
from dobrushin.errors import ArgumentError, FormatError
from dobrushin.io.source import Path, path_name

_FORMAT = "dobrushin model folder 1"
# Entries that are sorted together.
_BLOCK = 2**22


class StoredModel(LocalArrays):
    """An Ising or Potts model whose arrays stay on disk."""

    def __init__(self, path: str, n: int, states: int | None, arrays: dict[str, Any]) -> None:
        super().__init__(n, states, arrays["start"], arrays["neighbor"], arrays["coupling"], arrays.get("potential"))
        self.path = path

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        ends = np.asarray(self._start[np.stack([positions, positions + 1])], dtype=np.int64)
        if (ends[0] > ends[1]).any() or ends.min(initial=0) < 0 or ends.max(initial=0) > len(self._neighbor):
            raise FormatError(self.path, "row starts that increase", "others, in start.npy")
        found = super().rows(positions)
        owner = np.repeat(positions, np.diff(found.start))
        wrong = (found.columns < 0) | (found.columns >= self.n_variables) | (found.columns == owner)
        if wrong.any():
            k = int(np.argmax(wrong))
            expected = f"neighbours from 0 to {self.n_variables - 1} other than the variable itself"
            raise FormatError(self.path, expected, f"{found.columns[k]} beside variable {owner[k]}, in neighbor.npy")
        return found

    def __repr__(self) -> str:
        what = "spins" if self.states is None else f"{self.states} states"
        return f"StoredModel({self.n_variables} variables, {len(self._neighbor) // 2} edges, {what})"


def open_model(path: Path) -> StoredModel:
    """Open a model that lies in a folder, without reading it.

    Parameters
    ----------
    path : str or path
        A folder that `write_folder` or `build_folder` made.

    Returns
    -------
    LocalModel
        Of which only what is near the targets is ever read.

    Examples
    --------
    >>> import os, tempfile
    >>> import dobrushin as db
    >>> folder = os.path.join(tempfile.mkdtemp(), "grid")
    >>> db.io.write_folder(db.Ising.grid(300, 300, couplings=0.2), folder)
    >>> stored = db.open_model(folder)
    >>> stored
    StoredModel(90000 variables, 179400 edges, spins)
    >>> db.estimate(stored, [0], tolerance=0.05, seed=1).is_certified
    True
    """
    folder = path_name(path, "open_model")
    if not os.path.exists(folder):
        raise FileNotFoundError(2, "No such folder", folder)
    manifest = os.path.join(folder, "manifest.json")
    if not os.path.isfile(manifest):
        raise FormatError(folder, "a folder with a manifest.json", "none")
    with open(manifest, encoding="utf-8", errors="replace") as file:
        text = file.read(100_000)
    try:
        about = json.loads(text)
        n, entries, states = (about[name] for name in ("variables", "entries", "states"))
        if about["format"] != _FORMAT or not all(type(x) is int and x >= 0 for x in (n, entries, states)):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise FormatError(manifest, f"a manifest of the format {_FORMAT!r}", repr(text[:60])) from None
    if n < 1 or states == 1:
        raise FormatError(manifest, "at least one variable, and 0 or at least 2 states", f"{n} and {states}")
    shapes: dict[str, tuple[int, ...]] = {"start": (n + 1,), "neighbor": (entries,), "coupling": (entries,)}
    shapes["potential"] = (n,) if states == 0 else (n, states)
    arrays = {name: _mapped(folder, name, shape) for name, shape in shapes.items()}
    if arrays["potential"] is None:
        del arrays["potential"]
    if int(arrays["start"][0]) != 0 or int(arrays["start"][-1]) != entries:
        raise FormatError(folder, f"row starts from 0 to {entries}", "others, in start.npy")
    return StoredModel(folder, n, states or None, arrays)


def _mapped(folder: str, name: str, shape: tuple[int, ...]) -> Any:
    file = os.path.join(folder, f"{name}.npy")
    if not os.path.isfile(file):
        if name == "potential":
            return None
        raise FormatError(folder, f"a file {name}.npy", "none")
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        if shape == (0,) and os.path.getsize(file) > 0:
            return np.zeros(0)  # NumPy maps no empty arrays
        raise FormatError(file, f"an array of shape {shape}", f"what NumPy cannot map ({error})") from None
    kinds = "iu" if name in ("start", "neighbor") else "f"
    if array.shape != shape or array.dtype.kind not in kinds:
        what = "whole numbers" if kinds == "iu" else "real numbers"
        raise FormatError(file, f"{what} of shape {shape}", f"{array.dtype} of shape {array.shape}")
    return array


def write_folder(model: Model, path: Path) -> None:
    """Write an Ising or Potts model to a folder that `open_model` opens.

    Parameters
    ----------
    model : Ising or Potts
        Its variables are named by their positions from then on.
    path : str or path
        A folder that does not exist yet.
    """
    if not isinstance(model, Ising | Potts):
        raise ArgumentError("io.write_folder", "model", "an Ising or Potts model", model)
    matrix = model.couplings
    potential = model.fields if isinstance(model, Ising) else model.unaries
    states = 0 if isinstance(model, Ising) else int(model.cardinalities[0])
    with _Folder(path, "io.write_folder") as folder:
        folder.save("start", matrix.indptr.astype(np.int64))
        folder.save("neighbor", matrix.indices)
        folder.save("coupling", matrix.data)
        folder.save("potential", potential)
        folder.finish(model.n_variables, matrix.nnz, states)


def build_folder(
    path: Path,
    n_variables: int,
    edges: Callable[[], Iterable[tuple[ArrayLike, ArrayLike, ArrayLike]]],
    *,
    states: int | None = None,
    potentials: ArrayLike | None = None,
) -> None:
    """Build a model on disk from chunks of edges, of which more may come than fit in memory.

    Parameters
    ----------
    path : str or path
        A folder that does not exist yet.
    n_variables : int
    edges : function without arguments
        Returns an iterator over chunks (i, j, coupling) of arrays; it is called twice, and has to give the same
        edges both times, each once.
    states : int, optional
        Number of states of a Potts model; default spins.
    potentials : array, optional
        Fields (n,) or unaries (n, states).

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import dobrushin as db
    >>> folder = os.path.join(tempfile.mkdtemp(), "ring")
    >>> def ring():
    ...     for first in range(0, 1000, 100):
    ...         i = np.arange(first, first + 100)
    ...         yield i, (i + 1) % 1000, np.full(100, 0.3)
    >>> db.io.build_folder(folder, 1000, ring)
    >>> db.open_model(folder)
    StoredModel(1000 variables, 1000 edges, spins)
    """
    n = check.count(n_variables, "io.build_folder", "n_variables")
    if not callable(edges):
        raise ArgumentError("io.build_folder", "edges", "a function that returns chunks of edges", edges)
    states = 0 if states is None else check.count(states, "io.build_folder", "states", 2)
    sizes = np.zeros(n + 1, dtype=np.int64)
    for i, j, _ in map(_chunk(n), edges()):
        sizes[1:] += np.bincount(i, minlength=n) + np.bincount(j, minlength=n)
    start = np.cumsum(sizes)
    entries = int(start[-1])
    index = np.int32 if n < 2**31 else np.int64
    with _Folder(path, "io.build_folder") as folder:
        folder.save("start", start)
        if potentials is not None:
            folder.save("potential", np.asarray(potentials, dtype=np.float64))
        neighbor, coupling = folder.make("neighbor", index, entries), folder.make("coupling", np.float64, entries)
        cursor = start[:-1].copy()
        for i, j, values in map(_chunk(n), edges()):
            for own, other in ((i, j), (j, i)):
                order = np.argsort(own, kind="stable")
                rows, first, counts = np.unique(own[order], return_index=True, return_counts=True)
                place = np.repeat(cursor[rows] - first, counts) + np.arange(len(order))
                if (cursor[rows] + counts > start[rows + 1]).any():
                    raise ArgumentError("io.build_folder", "edges", "the same edges each time", "more the second time")
                neighbor[place], coupling[place] = other[order], values[order]
                cursor[rows] += counts
        if (cursor != start[1:]).any():
            raise ArgumentError("io.build_folder", "edges", "the same edges each time", "fewer the second time")
        _sort(start, neighbor, coupling)
        folder.finish(n, entries, states)


def _chunk(n: int) -> Callable[[Any], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
    def read(chunk: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        try:
            i, j, values = (np.asarray(part) for part in chunk)
        except (TypeError, ValueError):
            raise ArgumentError("io.build_folder", "edges", "chunks (i, j, coupling)", chunk) from None
        values = check.finite(check.real_array(values, "io.build_folder", "edges"), "io.build_folder", "edges")
        if not (i.shape == j.shape == values.shape and i.ndim == 1 and i.dtype.kind in "iu" and j.dtype.kind in "iu"):
            raise ArgumentError(
                "io.build_folder", "edges", "three arrays of the same length, two of positions", i.shape
            )
        wrong = (i < 0) | (j < 0) | (i >= n) | (j >= n) | (i == j)
        if wrong.any():
            k = int(np.argmax(wrong))
            requirement = f"between two variables from 0 to {n - 1}"
            raise ArgumentError("io.build_folder", "edges", requirement, (int(i[k]), int(j[k])))
        return i.astype(np.int64), j.astype(np.int64), values

    return read


def _sort(start: NDArray[np.int64], neighbor: Any, coupling: Any) -> None:
    """Neighbours in increasing order within each row, some rows at a time."""
    n = len(start) - 1
    low = 0
    while low < n:
        high = max(low + 1, int(np.searchsorted(start, start[low] + _BLOCK, side="right")) - 1)
        span = slice(int(start[low]), int(start[high]))
        row = np.repeat(np.arange(low, high), np.diff(start[low : high + 1]))
        columns = np.asarray(neighbor[span])
        order = np.lexsort((columns, row))
        columns = columns[order]
        double = (columns[1:] == columns[:-1]) & (row[1:] == row[:-1])
        if double.any():
            k = int(np.argmax(double))
            raise ArgumentError("io.build_folder", "edges", "each edge once", (int(row[k]), int(columns[k])))
        neighbor[span], coupling[span] = columns, np.asarray(coupling[span])[order]
        low = high


class _Folder:
    """A folder that appears under its name only when it is complete."""

    def __init__(self, path: Path, function: str) -> None:
        self.name = path_name(path, function)
        if os.path.exists(self.name):
            raise ArgumentError(function, "path", "a folder that does not exist yet", self.name)
        self.temporary = f"{self.name}.{os.urandom(4).hex()}.part"

    def __enter__(self) -> _Folder:
        os.mkdir(self.temporary)
        return self

    def save(self, name: str, array: NDArray[Any]) -> None:
        """Write an array."""
        np.save(os.path.join(self.temporary, f"{name}.npy"), np.asarray(array))

    def make(self, name: str, dtype: Any, size: int) -> Any:
        """An array on disk, to be filled."""
        if not size:
            self.save(name, np.zeros(0, dtype=dtype))
            return np.zeros(0, dtype=dtype)
        file = os.path.join(self.temporary, f"{name}.npy")
        return np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=(size,))

    def finish(self, variables: int, entries: int, states: int) -> None:
        """Write the manifest and give the folder its name."""
        about = {"format": _FORMAT, "variables": variables, "entries": entries, "states": states}
        with open(os.path.join(self.temporary, "manifest.json"), "w", encoding="utf-8") as file:
            json.dump(about, file)
        os.rename(self.temporary, self.name)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)
