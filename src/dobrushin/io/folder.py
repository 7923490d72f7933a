"""Write models to folders that `open_model` opens, without holding them in memory as a whole."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._models import Model
from dobrushin._models.forms import DivisibleForm
from dobrushin._models.ising import CoupledForm, SpinPairs
from dobrushin._models.local import LazyPairs
from dobrushin._models.potts import LabelPairs
from dobrushin._models.state_names import Names, StateNames, read_names
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import prefix_sums
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError
from dobrushin.io.source import Path, to_json
from dobrushin.io.stored import COUNTS, FORMAT, NAMES, TABLES_FORMAT

# Rows that are written together, and edges that are sorted together.
_ROWS, _EDGES = 2**18, 2**19
# Number of ranges of variables by which edges are put aside; each range is then sorted in memory.
_RANGES = 1024
# So that the number of an edge within a range fits in 64 bits.
_MAX_VARIABLES = 2**36

Edges = tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]
_Rows = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64]]  # sizes of rows, their columns and values


def write_folder(model: Model, path: Path) -> None:
    """Write an Ising or Potts model, a `LocalModel` or a factor graph to a folder, some variables at a time."""
    parts, names = model._parts(), model._state_names
    if isinstance(parts, DivisibleForm) and not parts.spins and not isinstance(parts, CoupledForm):
        form = parts.tables()
        arrays = {
            "cardinalities": form.cardinalities, "scope_start": form.scope_start, "scope": form.scope,
            "table_start": form.table_start, "table": form.table,
            "factor_start": form.factor_start, "factor_of": form.factor_of,
        }  # fmt: skip
        counts = (form.n_variables, form.n_factors, len(form.scope), len(form.table))
        with _Folder(path) as folder:
            for name, values in arrays.items():
                folder.begin(name, float if name == "table" else np.int64, values.shape)
                folder.append(name, values)
            folder.finish({"format": TABLES_FORMAT, **dict(zip(COUNTS, counts, strict=True))}, names)
        return
    if not isinstance(parts, LazyPairs | SpinPairs | LabelPairs):
        requirement = "an Ising or Potts model, or tables that forbid nothing, for a folder"
        raise ArgumentError("model", requirement, got=type(model).__name__)
    n, states = parts.n_variables, 0 if parts.spins else int(parts.sizes)
    if not isinstance(parts, LazyPairs):  # in memory
        matrix = parts.couplings
        given = parts.fields if isinstance(parts, SpinPairs) else parts.given_unaries
        whole = iter([(np.diff(matrix.indptr), matrix.indices, matrix.data)])
        with _Folder(path) as folder:
            folder.write_pairs((n, matrix.nnz, states), whole, None if given is None else iter([given]), names)
        return
    local = parts

    def rows() -> Iterator[_Rows]:
        for positions in _blocks(n):
            found = local.rows_of(positions)
            sizes = np.diff(found.start)
            local.check_couplings(np.repeat(positions, sizes), found)
            yield sizes, found.columns, found.values

    potentials = (local.potentials_of(positions) for positions in _blocks(n)) if local.has_potentials else None
    with _Folder(path) as folder:
        folder.write_pairs((n, 2 * local.n_edges, states), rows(), potentials, names)


@public(name="io.build_folder")
def build_folder(
    path: Path,
    n_variables: int,
    edges: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike]],
    *,
    states: int | None = None,
    potentials: ArrayLike | None = None,
    state_names: Sequence[Hashable] | None = None,
) -> None:
    """Build a model on disk from chunks of edges, which together may be larger than the memory.

    Parameters
    ----------
    path : str or path
        A folder that does not exist yet.
    n_variables : int
    edges : iterable over chunks
        Each of them is (i, j, coupling): three arrays. Each edge comes once, in any order.
    states : int, optional
        Number of states of a Potts model; default spins.
    potentials : array, optional
        Fields (n,) or unaries (n, states); may be memory-mapped.
    state_names : tuple, optional
        What all variables call their states.

    Notes
    -----
    Edges are put aside on disk by ranges of variables, and each range is then sorted in memory. This takes memory for
    a chunk, or for a range: about a thousandth of all edges, or what the largest hub has. While it runs, it takes twice
    the disk space of the model.

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
    >>> db.io.build_folder(folder, 1000, ring())
    >>> db.open_model(folder)
    LocalModel(1000 variables, 1000 edges, spins)
    """
    n = check.count(n_variables, "n_variables")
    if n > _MAX_VARIABLES:
        raise ArgumentError("n_variables", f"at most {_MAX_VARIABLES}", n)
    if not isinstance(edges, Iterable):
        hint = "an iterable over chunks of edges (call the function that makes them)"
        raise ArgumentError("edges", hint if callable(edges) else "an iterable over chunks of edges", edges)
    states = 0 if states is None else check.count(states, "states", 2)
    names = None if state_names is None else StateNames(common=read_names(state_names, states or 2))
    fields = potentials  # an array of real numbers is left where it is
    if fields is not None and not (isinstance(fields, np.ndarray) and fields.dtype.kind in "biuf"):
        fields = check.real_array(fields, "potentials")
    shape = (n, states) if states else (n,)
    if fields is not None and fields.shape != shape:
        raise ArgumentError("potentials", f"an array of shape {shape}", got=f"shape {fields.shape}")
    with _Folder(path) as folder, tempfile.TemporaryFile(dir=folder.temporary) as file:
        aside = _Aside(file, n)
        for chunk in _chunks(n, edges):
            aside.add(chunk)
        parts = None if fields is None else _checked_potentials(fields, bool(states))
        folder.write_pairs((n, 2 * aside.edges, states), aside.in_order(), parts, names)


def _index(n: int) -> Any:
    return np.int32 if n < 2**31 else np.int64


def _blocks(n: int) -> Iterator[NDArray[np.int64]]:
    for first in range(0, n, _ROWS):
        yield np.arange(first, min(n, first + _ROWS))


def _checked_potentials(fields: NDArray[Any], are_unaries: bool) -> Iterator[NDArray[np.float64]]:
    for block in _blocks(len(fields)):
        first = int(block[0])
        part = np.asarray(fields[first : first + len(block)], dtype=np.float64)
        ok = check.is_log_potential(part) if are_unaries else np.abs(part) <= check.LARGEST
        requirement = check.LOG_POTENTIAL if are_unaries else check.FINITE
        if are_unaries and ok.all():
            ok = np.asarray(np.isfinite(part).any(axis=1))
            requirement = "above -inf for some state of each variable"
        if not ok.all():
            k = check.first(~ok)
            raise ArgumentError("potentials", requirement, part[k], f"variable {first + k[0]}")
        yield part


def _chunks(n: int, edges: Iterable[Any]) -> Iterator[Edges]:
    """Check chunks of edges, and yield them in similar sizes: small ones are joined, large ones split."""
    kept: list[Edges] = []

    def together() -> Edges:
        i, j, values = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        kept.clear()
        return i, j, values

    for number, chunk in enumerate(edges):
        i, j, values = _read_chunk(n, chunk, number)
        for first in range(0, len(i), _EDGES):
            span = slice(first, first + _EDGES)
            kept.append((i[span], j[span], values[span]))
            if sum(len(part[0]) for part in kept) >= _EDGES:
                yield together()
    if kept:
        yield together()


def _read_chunk(n: int, chunk: Any, number: int) -> Edges:
    where = f"chunk {number}"
    try:
        i, j, values = (np.asarray(part) for part in chunk)
    except (TypeError, ValueError):
        raise ArgumentError("edges", "chunks (i, j, coupling)", chunk, where) from None
    if not (i.shape == j.shape == values.shape and i.ndim == 1):
        requirement = "chunks of three arrays of the same length"
        raise ArgumentError("edges", requirement, got=f"shapes {i.shape}, {j.shape} and {values.shape}", where=where)
    if not len(i):
        return i.astype(np.int64), j.astype(np.int64), values.astype(np.float64)
    if i.dtype.kind not in "iu" or j.dtype.kind not in "iu" or values.dtype.kind not in "biuf":
        requirement = "chunks of positions, positions and real numbers"
        raise ArgumentError("edges", requirement, got=f"{i.dtype}, {j.dtype} and {values.dtype}", where=where)
    wrong = (i < 0) | (j < 0) | (i >= n) | (j >= n) | (i == j)
    if wrong.any():
        k = int(np.argmax(wrong))
        requirement = f"between two variables from 0 to {n - 1}"
        raise ArgumentError("edges", requirement, (int(i[k]), int(j[k])), where)
    values = values.astype(np.float64)
    bad = ~(np.abs(values) <= check.LARGEST)
    if bad.any():
        k = int(np.argmax(bad))
        edge = (int(i[k]), int(j[k]))
        raise ArgumentError("edges", f"with couplings {check.FINITE}", values[k], f"edge {edge}")
    return i.astype(_index(n)), j.astype(_index(n)), values


class _Aside:
    """Temporary file of edges, sorted by range of variables: written in any order, read one range at a time."""

    def __init__(self, file: BinaryIO, n: int) -> None:
        self.file, self.n, self.edges = file, n, 0
        self.width = -(-n // _RANGES)
        self.pieces: list[tuple[list[int], NDArray[np.int64]]] = []  # per chunk: where each array lies, ends of ranges

    def add(self, chunk: Edges) -> None:
        """Store a chunk of edges, each edge in the ranges of both of its variables."""
        i, j, values = chunk
        row, column = np.concatenate([i, j]), np.concatenate([j, i])
        part = (row // self.width).astype(np.int16)
        order = np.argsort(part, kind="stable")
        places = []
        for array in (row, column, np.concatenate([values, values])):
            places.append(self.file.tell())
            self.file.write(array[order].data.cast("B"))
        ends = prefix_sums(np.bincount(part, minlength=_RANGES))
        self.pieces.append((places, ends))
        self.edges += len(i)

    def in_order(self) -> Iterator[_Rows]:
        """Yield, for each range of variables, the numbers of neighbours, the sorted neighbours, and the couplings."""
        for part, low in enumerate(range(0, self.n, self.width)):
            rows = min(self.n - low, self.width)
            row, column, values = (self._read(part, k) for k in range(3))
            key = (row.astype(np.int64) - low) * self.n + column
            order = np.argsort(key)
            key = key[order]
            double = key[1:] == key[:-1]
            if double.any():
                i, j = divmod(int(key[int(np.argmax(double))]), self.n)
                raise ArgumentError("edges", "each edge once", (low + i, j))
            yield np.bincount(row - low, minlength=rows), column[order], values[order]

    def _read(self, part: int, which: int) -> NDArray[Any]:
        dtype = np.dtype(np.float64 if which == 2 else _index(self.n))
        parts = []
        for places, ends in self.pieces:
            self.file.seek(places[which] + int(ends[part]) * dtype.itemsize)
            data = self.file.read(int(ends[part + 1] - ends[part]) * dtype.itemsize)
            parts.append(np.frombuffer(data, dtype))
        return np.concatenate(parts) if parts else np.zeros(0, dtype)


class _Folder:
    """Writer of a folder, which gets its name only when it is complete."""

    def __init__(self, path: Path) -> None:
        self.name = check.path(path)
        self.place = os.path.abspath(self.name)  # without a slash at its end
        if os.path.lexists(self.place):
            raise ArgumentError("path", "a folder that does not exist yet", self.name)
        self.temporary = f"{self.place}.{os.urandom(4).hex()}.part"
        self.files: dict[str, tuple[BinaryIO, np.dtype[Any]]] = {}

    def __enter__(self) -> _Folder:
        try:
            os.mkdir(self.temporary)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.name) from None
        return self

    def begin(self, name: str, dtype: Any, shape: tuple[int, ...]) -> None:
        """Create the file of an array, whose entries are appended later."""
        file = open(os.path.join(self.temporary, f"{name}.npy"), "xb")  # noqa: SIM115
        self.files[name] = file, np.dtype(dtype).newbyteorder("<")
        about = {"descr": self.files[name][1].str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, about)

    def append(self, name: str, values: NDArray[Any]) -> None:
        """Write the next entries of an array."""
        if values.size:
            file, dtype = self.files[name]
            file.write(np.ascontiguousarray(values, dtype=dtype).data.cast("B"))

    def write_pairs(
        self,
        counts: tuple[int, int, int],
        rows: Iterator[_Rows],
        potentials: Iterator[NDArray[np.float64]] | None,
        names: StateNames | None,
    ) -> None:
        """Write an Ising or Potts model; `counts` are the numbers of variables, entries and states (0 for spins)."""
        n, entries, states = counts
        if potentials is not None:
            self.begin("potential", float, (n, states) if states else (n,))
            for part in potentials:
                self.append("potential", part)
        shapes = {"start": (np.int64, n + 1), "neighbor": (_index(n), entries), "coupling": (float, entries)}
        for name, (dtype, length) in shapes.items():
            self.begin(name, dtype, (length,))
        done = 0
        self.append("start", np.zeros(1))
        for sizes, columns, values in rows:
            self.append("start", done + np.cumsum(sizes))
            self.append("neighbor", columns)
            self.append("coupling", values)
            done += len(columns)
        about = {"format": FORMAT, "variables": n, "entries": entries, "states": states}
        self.finish({**about, "potential": potentials is not None}, names)

    def finish(self, about: dict[str, Any], names: StateNames | None) -> None:
        """Write the names of states and the manifest, and rename the folder to its final name."""
        if names is not None:
            about = {**about, "state_names": True}
            content: dict[str, Any] = {"all": names.common}
            if names.common is None:
                number: dict[Names, int] = {}
                codes = (-1 if known is None else number.setdefault(known, len(number)) for known in names.own)
                kinds = np.fromiter(codes, dtype=np.int32, count=about["variables"])
                self.begin("state_kind", np.int32, kinds.shape)
                self.append("state_kind", kinds)
                content = {"kinds": list(number)}
            with open(os.path.join(self.temporary, NAMES), "xb") as file:
                file.write(to_json(content))
        self._close()
        with open(os.path.join(self.temporary, "manifest.json"), "w", encoding="utf-8") as manifest:
            json.dump(about, manifest)
        os.rename(self.temporary, self.place)

    def _close(self) -> None:
        for file, _ in self.files.values():
            file.close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._close()
        except OSError:
            if error is None:
                raise
        finally:
            shutil.rmtree(self.temporary, ignore_errors=True)
        # Errors about the temporary folder get the name that the caller gave; others come from the iterable of edges.
        if isinstance(error, OSError) and (error.filename is None or str(error.filename).startswith(self.temporary)):
            raise OSError(error.errno, error.strerror or str(error), self.name) from None
