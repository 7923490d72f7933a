"""Models on disk that are used where they are: plain .npy arrays in a folder, with a small manifest.

manifest.json   format, number of variables and of entries, number of states (0 for spins), whether there are potentials
                and names of states (`folder_names`)
start.npy       int64, n + 1: where the neighbours of each variable begin
neighbor.npy    int32 or int64: neighbours, increasing within each row; every edge stands in both rows
coupling.npy    float64: what couples them
potential.npy   float64: fields (n,) or unaries (n, states); missing where all are 0
"""

from __future__ import annotations

import json
import os
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.local import LocalArrays, LocalModel, Rows
from dobrushin._shared import validate as check
from dobrushin.errors import FormatError
from dobrushin.io.folder_names import open_names
from dobrushin.io.source import Path
from dobrushin.io.stored_tables import COUNTS, LENGTHS, TABLES_FORMAT, StoredTables

FORMAT = "dobrushin model folder 1"
# Files that are shorter are read where NumPy cannot map them: it maps no empty arrays.
_SHORT = 10_000
Stored = TypeVar("Stored", "StoredModel", StoredTables)


class StoredModel(LocalArrays):
    """An Ising or Potts model whose arrays stay on disk."""

    def __init__(self, path: str, n: int, states: int | None, arrays: dict[str, Any]) -> None:
        super().__init__(n, states, arrays["start"], arrays["neighbor"], arrays["coupling"], arrays.get("potential"))
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, (self.n_variables, len(self._neighbor), self.n_states))

    def degrees_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        sizes = super().degrees_of(positions)
        first = np.asarray(self._start[positions], dtype=np.int64)
        wrong = (sizes < 0) | (first < 0) | (first + sizes > len(self._neighbor))
        if wrong.any():
            k = int(np.argmax(wrong))
            what, where = (int(first[k]), int(first[k] + sizes[k])), f"variable {positions[k]}"
            raise self._fault("start", f"increasing up to {len(self._neighbor)}", what, where)
        return sizes

    def rows_of(self, positions: NDArray[np.int64]) -> Rows:
        rows = super().rows_of(positions)
        self._check_neighbors(positions, rows.start, rows.columns)
        return rows

    def neighbors_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        start, entry = self._entries(positions)
        columns = np.asarray(self._neighbor[entry], dtype=np.int64)
        self._check_neighbors(positions, start, columns)
        return columns

    def _check_neighbors(self, positions: NDArray[np.int64], start: Any, columns: NDArray[np.int64]) -> None:
        owner = np.repeat(positions, np.diff(start))
        wrong = (columns < 0) | (columns >= self.n_variables) | (columns == owner)
        if wrong.any():
            k = int(np.argmax(wrong))
            expected = f"from 0 to {self.n_variables - 1} other than the variable itself"
            raise self._fault("neighbor", expected, int(columns[k]), f"variable {owner[k]}")

    def _fault(self, what: str, requirement: str, value: object, where: str) -> Exception:
        subject = {"start": "row starts", "neighbor": "neighbours"}.get(what, f"{what}s")
        value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        file = os.path.join(self.path, f"{what}.npy")
        return FormatError(file, f"{subject} to be {requirement}", f"{value} at {where}")


def open_model(path: Path) -> LocalModel:
    """Open a model that lies in a folder, without reading it.

    Parameters
    ----------
    path : str or path
        A folder that `write` or `io.build_folder` made.

    Returns
    -------
    LocalModel
        Of which only what is near the targets is ever read. In other processes it is opened again by its path.

    Raises
    ------
    FormatError
        If the folder is no such model, here; or when a part of it is read that cannot be used, by the functions that
        read it.

    Examples
    --------
    >>> import os, tempfile
    >>> import dobrushin as db
    >>> folder = os.path.join(tempfile.mkdtemp(), "grid")
    >>> db.write(db.Ising.grid(300, 300, couplings=0.2), folder)
    >>> stored = db.open_model(folder)
    >>> stored
    StoredModel(90000 variables, 179400 edges, spins)
    >>> db.estimate(stored, [0], tolerance=0.05, seed=1).is_certified
    True
    """
    folder = os.path.abspath(check.path(path, "open_model"))
    if not os.path.exists(folder):
        raise FileNotFoundError(2, "No such folder", folder)
    if not os.path.isdir(folder):
        raise FormatError(folder, "a folder", "a file (dobrushin.read reads those)")
    about = _read_manifest(os.path.join(folder, "manifest.json"))
    if about["format"] == TABLES_FORMAT:
        return _open_tables(folder, about)
    n, entries, states, has_potentials = (about[name] for name in ("variables", "entries", "states", "potential"))
    shapes: dict[str, tuple[int, ...]] = {"start": (n + 1,), "neighbor": (entries,), "coupling": (entries,)}
    if has_potentials:
        shapes["potential"] = (n, states) if states else (n,)
    arrays = {name: _map(os.path.join(folder, f"{name}.npy"), shape) for name, shape in shapes.items()}
    ends = int(arrays["start"][0]), int(arrays["start"][-1])
    if ends != (0, entries):
        raise FormatError(
            os.path.join(folder, "start.npy"), f"row starts from 0 to {entries}", f"{ends[0]} to {ends[1]}"
        )
    return _name(StoredModel(folder, n, states or None, arrays), about)


def _open_tables(folder: str, about: dict[str, Any]) -> StoredTables:
    """A factor graph."""
    shapes = {name: (about[count] + more,) for name, (count, more) in LENGTHS.items()}
    arrays = {name: _map(os.path.join(folder, f"{name}.npy"), shape) for name, shape in shapes.items()}
    for start, end in (("scope_start", "places"), ("table_start", "entries"), ("factor_start", "places")):
        ends = int(arrays[start][0]), int(arrays[start][-1])
        if ends != (0, about[end]):
            expected = f"row starts from 0 to {about[end]}"
            raise FormatError(os.path.join(folder, f"{start}.npy"), expected, f"{ends[0]} to {ends[1]}")
    return _name(StoredTables(folder, arrays), about)


def _name(model: Stored, about: dict[str, Any]) -> Stored:
    """Give the states of a model that is new the names in its folder, if there are some."""
    if not about.get("state_names"):
        return model
    sizes = np.array([model.n_states or 2]) if isinstance(model, StoredModel) else model.cardinalities
    shape = (model.n_variables,)
    names = open_names(model.path, np.broadcast_to(sizes, shape), lambda file: _map(file, shape))
    return model._name_states(names)


def _reopen(path: str, known: tuple[int, int, int | None]) -> LocalModel:
    """A model from another process, if the folder still holds it."""
    model = open_model(path)
    sizes = (model.n_variables, len(getattr(model, "_neighbor", ())), getattr(model, "n_states", None))
    if sizes != known:
        text = "{} variables, {} entries and {} states"
        raise FormatError(path, text.format(*known) + " as when it was opened first", text.format(*sizes))
    return model


def _read_manifest(manifest: str) -> dict[str, Any]:
    if not os.path.isfile(manifest):
        raise FormatError(os.path.dirname(manifest), "a folder with a manifest.json", "none")
    with open(manifest, encoding="utf-8", errors="replace") as file:
        text = file.read(_SHORT)
    try:
        about = json.loads(text)
        format = about["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(manifest, f"a manifest of the format {FORMAT!r}", repr(text[:60])) from None
    if format not in (FORMAT, TABLES_FORMAT):
        raise FormatError(manifest, f"the format {FORMAT!r} or {TABLES_FORMAT!r}", repr(format)[:60])
    names = ("variables", "entries", "states") if format == FORMAT else COUNTS
    for name in names:
        least = int(name == "variables")
        value = about.get(name)
        if type(value) is not int or value < least or value > 2**60 or (name == "states" and value == 1):
            numbers = "0 or at least 2" if name == "states" else f"at least {least}"
            raise FormatError(manifest, f"a whole number of {name}, {numbers}", repr(value)[:60])
    if format == FORMAT and type(about.get("potential")) is not bool:
        raise FormatError(manifest, "'potential' to be true or false", repr(about.get("potential"))[:60])
    if type(about.get("state_names", False)) is not bool:
        raise FormatError(manifest, "'state_names' to be true or false", repr(about["state_names"])[:60])
    return dict(about)


def _map(file: str, shape: tuple[int, ...]) -> Any:
    whole = os.path.basename(file) not in ("coupling.npy", "potential.npy", "table.npy")
    what = f"{'whole' if whole else 'real'} numbers of shape {shape}"
    if not os.path.isfile(file):
        raise FormatError(file, what, "no such file")
    try:
        is_short = 0 in shape and os.path.getsize(file) < _SHORT
        array = np.load(file, mmap_mode=None if is_short else "r", allow_pickle=False)
        kind = f"{array.dtype} of shape {array.shape}"
    except (ValueError, TypeError, OSError, EOFError, SyntaxError, OverflowError, MemoryError, AttributeError) as error:
        if isinstance(error, PermissionError):
            raise
        raise FormatError(file, what, f"what NumPy cannot map ({error})") from None
    if array.shape != shape or array.dtype.kind not in ("iu" if whole else "iuf"):
        raise FormatError(file, what, kind)
    return array
