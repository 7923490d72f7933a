"""Models on disk that are read only where they are needed: arrays (.npy) in a folder, with a small manifest.

Of an Ising or Potts model:

manifest.json   format, number of variables and of entries, number of states (0 for spins), whether there are potentials
                and names of states
start.npy       int64, n + 1: where the neighbours of each variable begin
neighbor.npy    int32 or int64: neighbours, increasing within each row; every edge stands in both rows
coupling.npy    float64: couplings
potential.npy   float64: fields (n,) or unaries (n, states); missing where all are 0

Of a factor graph:

manifest.json      format; numbers of variables, of factors, of places in all scopes, and of entries of all tables
cardinalities.npy  int64: number of states of each variable
scope_start.npy    int64, factors + 1: where the scope of each factor begins
scope.npy          int64: positions of the variables of the factors
table_start.npy    int64, factors + 1: where the log-table of each factor begins
table.npy          float64: log-tables in C order; nothing is forbidden
factor_start.npy   int64, variables + 1: where the factors of each variable begin
factor_of.npy      int64: the factors of the variables

Of both, where states have names:

state_names.json  {"all": names} where all variables have the same, else {"kinds": [names, ...]}
state_kind.npy    int32, n: which of the kinds each variable has, -1 for none; missing where all have the same
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import PartSource
from dobrushin._models.local import LazyPairs, LocalModel, PairRows
from dobrushin._models.state_names import Names, StateNames
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import row_entries
from dobrushin._shared.call import public
from dobrushin.errors import FormatError
from dobrushin.io.source import LIMIT, Path, load, read_names

FORMAT, TABLES_FORMAT = "dobrushin model folder 1", "dobrushin factor graph folder 1"
# Numbers in the manifest of a factor graph, and the arrays that have them as lengths (one more for starts).
COUNTS = ("variables", "factors", "places", "entries")
LENGTHS = {
    "cardinalities": ("variables", 0),
    "scope_start": ("factors", 1),
    "scope": ("places", 0),
    "table_start": ("factors", 1),
    "table": ("entries", 0),
    "factor_start": ("variables", 1),
    "factor_of": ("places", 0),
}
# Arrays of an Ising or Potts model; and arrays whose last entry is the length of other ones.
_PAIRS = {"start": ("variables", 1), "neighbor": ("entries", 0), "coupling": ("entries", 0)}
_PAIR_ENDS = {"start": "entries"}
_TABLE_ENDS = {"scope_start": "places", "table_start": "entries", "factor_start": "places"}
NAMES, KINDS = "state_names.json", "state_kind.npy"
# Files that are shorter are read where NumPy cannot map them: it maps no empty arrays.
_SHORT = 10_000


class MappedPairs(LazyPairs):
    """An Ising or Potts model whose arrays stay on disk; every number read is checked, since files may be damaged."""

    def __init__(self, path: str, n: int, states: int | None, arrays: dict[str, Any]) -> None:
        self.path, self._start, self._neighbor = path, arrays["start"], arrays["neighbor"]
        self._coupling, self._potential = arrays["coupling"], arrays.get("potential")
        super().__init__(n, len(self._neighbor) // 2, states, self._potential is not None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, str(self))

    def degrees_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        first = np.asarray(self._start[positions], dtype=np.int64)
        sizes = np.asarray(self._start[positions + 1], dtype=np.int64) - first
        wrong = (sizes < 0) | (first < 0) | (first + sizes > len(self._neighbor))
        if wrong.any():
            k = int(np.argmax(wrong))
            what, where = (int(first[k]), int(first[k] + sizes[k])), f"variable {positions[k]}"
            raise self._fault("start", f"increasing up to {len(self._neighbor)}", what, where)
        return sizes

    def neighbors_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.rows_of(positions).columns

    def rows_of(self, positions: NDArray[np.int64]) -> PairRows:
        sizes = self.degrees_at(positions)
        start, entry = row_entries(np.asarray(self._start[positions], dtype=np.int64), sizes)
        columns, owner = np.asarray(self._neighbor[entry], dtype=np.int64), np.repeat(positions, sizes)
        wrong = (columns < 0) | (columns >= self.n_variables) | (columns == owner)
        if wrong.any():
            k = int(np.argmax(wrong))
            expected = f"from 0 to {self.n_variables - 1} other than the variable itself"
            raise self._fault("neighbor", expected, int(columns[k]), f"variable {owner[k]}")
        return PairRows(start, columns, np.asarray(self._coupling[entry], dtype=np.float64))

    def _look_up(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._potential is None:
            return np.zeros(len(positions) if self.spins else (len(positions), int(self.sizes)))
        return np.asarray(self._potential[positions], dtype=np.float64)

    def _fault(self, what: str, requirement: str, value: object, where: str) -> Exception:
        subject = {"start": "row starts", "neighbor": "neighbours"}.get(what, f"{what}s")
        value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        file = os.path.join(self.path, f"{what}.npy")
        return FormatError(file, f"{subject} to be {requirement}", f"{value} at {where}")


class MappedTables(FactorTables):
    """A factor graph whose arrays stay on disk; every number read is checked, since files may be damaged."""

    def __init__(self, path: str, arrays: dict[str, Any]) -> None:
        self.path, self._arrays = path, arrays
        self.sizes, self.n_variables = arrays["cardinalities"], len(arrays["cardinalities"])
        self.scope_start, self.scope = arrays["scope_start"], arrays["scope"]
        self.table_start, self.table = arrays["table_start"], arrays["table"]
        self.factor_start, self.factor_of = arrays["factor_start"], arrays["factor_of"]

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, str(self))

    def __str__(self) -> str:
        return f"{self.n_variables} variables, {self.n_factors} factors"

    def parts(self) -> PartSource:
        return self

    def _factors_at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        start, slot = self._rows("factor_start", positions, len(self.factor_of))
        factor = np.asarray(self.factor_of[slot])
        fine = (factor >= 0) & (factor < self.n_factors)
        self._require("factor_of", fine, f"factors from 0 to {self.n_factors - 1}", factor)
        scope_start, places = self._rows("scope_start", factor, len(self.scope))
        own = np.repeat(np.repeat(positions, np.diff(start)), np.diff(scope_start))
        held = np.add.reduceat(self.scope[places] == own, scope_start[:-1]) if len(factor) else factor
        self._require("factor_of", held == 1, "factors that hold the variable, once", factor)
        return start, factor

    def neighbors_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        seen = super().neighbors_at(positions)
        self._require("scope", (seen >= 0) & (seen < self.n_variables), f"below {self.n_variables}", seen)
        return np.asarray(seen)

    def part(self, inside: NDArray[np.int64], inner: NDArray[np.bool_]) -> FactorTables:
        sizes = np.asarray(self.sizes[inside])
        self._require("cardinalities", sizes >= 2, "2 or more", sizes)
        start, factor = self._factors_at(inside[inner])
        values = self.table[self._rows("table_start", np.unique(factor), len(self.table))[1]]
        self._require("table", np.abs(values) <= check.LARGEST, check.FINITE, values)
        part = super().part(inside, inner)
        # Every inner variable must list all factors over it that other variables list.
        listed = np.diff(start)
        found = np.diff(part.factor_start)[inner]
        self._require("factor_of", listed == found, f"complete ({found.tolist()[:5]} factors or more)", listed)
        area = np.multiply.reduceat(sizes[part.scope], part.scope_start[:-1]) if part.n_factors else sizes[:0]
        numbers = np.diff(part.table_start)
        self._require("table_start", area == numbers, "tables as large as their scopes say", numbers)
        return part

    def _rows(self, name: str, rows: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return `row_entries` (in _shared/arrays.py) for rows of a stored array; file `name` has the row starts."""
        starts = self._arrays[name]
        first, last = np.asarray(starts[rows]), np.asarray(starts[rows + 1])
        self._require(name, (first >= 0) & (first <= last) & (last <= most), f"increasing up to {most}", first)
        return row_entries(first, last - first)

    def _require(self, name: str, fine: Any, expected: str, values: NDArray[Any]) -> None:
        if not np.all(fine):
            value = np.ravel(values)[int(np.argmin(fine))]
            raise FormatError(os.path.join(self.path, f"{name}.npy"), f"numbers that are {expected}", f"{value}")


class StoredNames(Sequence[Names | None]):
    """Names of states by position, read from disk when needed, and checked, since files may be damaged."""

    def __init__(self, path: str, kinds: tuple[Names, ...], codes: Any, sizes: Any) -> None:
        self.path, self._kinds, self._codes, self._sizes = path, kinds, codes, sizes

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_names, (self.path,)

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, i: Any) -> Any:
        code = int(self._codes[i])
        if code == -1:
            return None
        if not 0 <= code < len(self._kinds):
            expected = f"numbers from -1 to {len(self._kinds) - 1}"
            raise FormatError(os.path.join(self.path, KINDS), expected, f"{code} at variable {i}")
        if len(self._kinds[code]) != int(self._sizes[i]):
            expected = f"{int(self._sizes[i])} names of states for variable {i}"
            raise FormatError(os.path.join(self.path, NAMES), expected, f"{len(self._kinds[code])}")
        return self._kinds[code]


@public()
def open_model(path: Path) -> LocalModel:
    """Open a model that is stored in a folder, without reading it into memory.

    Parameters
    ----------
    path : str or path
        A folder that `write` or `io.build_folder` made.

    Returns
    -------
    LocalModel
        Only what is near the targets is ever read. Other processes open the model again by its path.

    Raises
    ------
    FormatError
        If the folder is no such model; functions that read a damaged part of it later fail so, too.

    Examples
    --------
    >>> import os, tempfile
    >>> import dobrushin as db
    >>> folder = os.path.join(tempfile.mkdtemp(), "grid")
    >>> db.write(db.Ising.grid(300, 300, couplings=0.2), folder)
    >>> stored = db.open_model(folder)
    >>> stored
    LocalModel(90000 variables, 179400 edges, spins)
    >>> db.estimate(stored, [0], tolerance=0.05, seed=1).is_certified
    True
    """
    folder = os.path.abspath(check.path(path))
    if not os.path.exists(folder):
        raise FileNotFoundError(2, "No such folder", folder)
    if not os.path.isdir(folder):
        raise FormatError(folder, "a folder", "a file (dobrushin.read reads those)")
    about = _read_manifest(os.path.join(folder, "manifest.json"))
    tables = about["format"] == TABLES_FORMAT
    shapes: dict[str, tuple[int, ...]]
    shapes = {name: (about[count] + more,) for name, (count, more) in (LENGTHS if tables else _PAIRS).items()}
    if not tables and about["potential"]:
        shapes["potential"] = (about["variables"], about["states"]) if about["states"] else (about["variables"],)
    arrays = {name: _map(os.path.join(folder, f"{name}.npy"), shape) for name, shape in shapes.items()}
    for start, end in (_TABLE_ENDS if tables else _PAIR_ENDS).items():
        ends = int(arrays[start][0]), int(arrays[start][-1])
        if ends != (0, about[end]):
            expected = f"row starts from 0 to {about[end]}"
            raise FormatError(os.path.join(folder, f"{start}.npy"), expected, f"{ends[0]} to {ends[1]}")
    stored: MappedPairs | MappedTables
    if tables:
        stored = MappedTables(folder, arrays)
    else:
        stored = MappedPairs(folder, about["variables"], about["states"] or None, arrays)
    model = LocalModel(stored)
    if not about.get("state_names"):
        return model
    shape, sizes = (model.n_variables,), model.cardinalities
    source = load(os.path.join(folder, NAMES), LIMIT)
    is_common, lists = read_names(source, source.data, "kinds")
    kinds = tuple(names or () for names in lists)
    if not is_common:
        own = StoredNames(folder, kinds, _map(os.path.join(folder, KINDS), shape), sizes)
        return model._name_states(StateNames(own=own))
    if tables:  # the sizes of the variables are in a file, which is not read here
        own = StoredNames(folder, kinds, np.broadcast_to(np.int32(0), shape), sizes)
        return model._name_states(StateNames(own=own))
    if stored.sizes != len(kinds[0]):
        raise source.error(f"names of {stored.sizes} states", f"{len(kinds[0])}")
    return model._name_states(StateNames(common=kinds[0]))


def _reopen(path: str, known: str) -> PartSource:
    """Open a model sent from another process, by its path; fail if the folder now holds another model."""
    stored = open_model(path)._lowered
    if str(stored) != known:
        raise FormatError(path, f"{known} as when it was opened first", str(stored))
    return stored


def _reopen_names(path: str) -> Sequence[Names | None]:
    names = open_model(path)._state_names
    if names is None or names.common is not None:
        raise FormatError(path, "names for the states of each variable, as when it was opened first", "none")
    return names.own


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
        raise FormatError(file, what, f"an array that NumPy cannot map into memory ({error})") from None
    if array.shape != shape or array.dtype.kind not in ("iu" if whole else "iuf"):
        raise FormatError(file, what, kind)
    return array
