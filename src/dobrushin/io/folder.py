"""Writing models to folders that `open_model` opens, a part at a time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._models import Model
from dobrushin._models.factors import FactorTables
from dobrushin._models.local import LocalForm, LocalPairs
from dobrushin._models.state_names import Names, StateNames, read_names
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import prefix_sums
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError
from dobrushin.io import labels
from dobrushin.io.source import Path
from dobrushin.io.stored import COUNTS, FORMAT, LENGTHS, NAMES, TABLES_FORMAT

# Rows that are written together, and edges that are sorted together.
_ROWS, _EDGES = 2**18, 2**19
# Number of ranges of variables by which edges are put aside; each range is then sorted in memory.
_RANGES = 1024
# So that an edge within a range has a number.
_MOST_VARIABLES = 2**36

Edges = tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]


def write_folder(model: Model, path: Path) -> None:
    """Write an Ising or Potts model, a `LocalModel` or tables to a folder; a part at a time."""
    local = model._local()
    names = model._state_names
    if isinstance(local, LocalForm) and not local._whole.spins:
        _write_tables(local._whole.tables(), names, path)
        return
    if not isinstance(local, LocalPairs):
        requirement = "an Ising or Potts model, or tables that forbid nothing, for a folder"
        raise ArgumentError("model", requirement, got=type(model).__name__)
    n, entries = local.n_variables, 2 * local.n_edges
    with _Folder(path) as folder:
        start = folder.array("start", np.int64, (n + 1,))
        neighbor, coupling = (
            folder.array("neighbor", _index(n), (entries,)),
            folder.array("coupling", float, (entries,)),
        )
        shape = (n,) if local.n_states is None else (n, local.n_states)
        potential = folder.array("potential", float, shape) if local.has_potentials else None
        done = 0
        start.append(np.zeros(1))
        for positions in _blocks(n):
            rows = local.rows_of(positions)
            local.check_couplings(np.repeat(positions, np.diff(rows.start)), rows)
            start.append(done + rows.start[1:])
            neighbor.append(rows.columns)
            coupling.append(rows.values)
            if potential is not None:
                potential.append(local.potentials_of(positions))
            done += len(rows.columns)
        folder.finish_pairs(n, entries, local.n_states or 0, names)


def _write_tables(form: FactorTables, names: StateNames | None, path: Path) -> None:
    """Write the arrays of a factor graph."""
    with _Folder(path) as folder:
        arrays = {name: form.cardinalities if name == "cardinalities" else getattr(form, name) for name in LENGTHS}
        for name, values in arrays.items():
            folder.array(name, float if name == "table" else np.int64, values.shape).append(values)
        counts = (form.n_variables, form.n_factors, len(form.scope), len(form.table))
        folder.finish({"format": TABLES_FORMAT, **dict(zip(COUNTS, counts, strict=True))}, names)


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
    """Build a model on disk from chunks of edges, of which more may come than fit in memory.

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
    StoredModel(1000 variables, 1000 edges, spins)
    """
    n = check.count(n_variables, "n_variables")
    if n > _MOST_VARIABLES:
        raise ArgumentError("n_variables", f"at most {_MOST_VARIABLES}", n)
    if not isinstance(edges, Iterable):
        hint = "an iterable over chunks of edges (call the function that makes them)"
        raise ArgumentError("edges", hint if callable(edges) else "an iterable over chunks of edges", edges)
    states = 0 if states is None else check.count(states, "states", 2)
    names = None if state_names is None else StateNames(common=read_names(state_names, states or 2))
    fields = None if potentials is None else _real(potentials, "potentials")
    shape = (n, states) if states else (n,)
    if fields is not None and fields.shape != shape:
        raise ArgumentError("potentials", f"an array of shape {shape}", got=f"shape {fields.shape}")
    with _Folder(path) as folder:
        if fields is not None:
            potential = folder.array("potential", float, shape)
            for block in _blocks(n):
                part = np.asarray(fields[block[0] : block[-1] + 1], dtype=np.float64)
                _check_potentials(part, int(block[0]), bool(states))
                potential.append(part)
        with folder.aside(n) as aside:
            for chunk in _chunks(n, edges):
                aside.add(chunk)
            entries = 2 * aside.edges
            start = folder.array("start", np.int64, (n + 1,))
            neighbor, coupling = (folder.array("neighbor", _index(n), (entries,)),
                                  folder.array("coupling", float, (entries,)))  # fmt: skip
            done = 0
            start.append(np.zeros(1))
            for sizes, columns, values in aside.in_order():
                start.append(done + np.cumsum(sizes))
                neighbor.append(columns)
                coupling.append(values)
                done += len(columns)
        folder.finish_pairs(n, entries, states, names)


def _index(n: int) -> Any:
    return np.int32 if n < 2**31 else np.int64


def _blocks(n: int) -> Iterator[NDArray[np.int64]]:
    for first in range(0, n, _ROWS):
        yield np.arange(first, min(n, first + _ROWS))


def _real(value: Any, argument: str) -> NDArray[Any]:
    """An array of real numbers that is left where it is."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value
    return check.real_array(value, argument)


def _check_potentials(part: NDArray[np.float64], first: int, labels: bool) -> None:
    ok = check.is_log_potential(part) if labels else np.abs(part) <= check.LARGEST
    requirement = check.LOG_POTENTIAL if labels else check.FINITE
    if labels and ok.all():
        ok = np.asarray(np.isfinite(part).any(axis=1))
        requirement = "above -inf for some state of each variable"
    if not ok.all():
        k = check.first(~ok)
        raise ArgumentError("potentials", requirement, part[k], f"variable {first + k[0]}")


def _chunks(n: int, edges: Iterable[Any]) -> Iterator[Edges]:
    """Chunks of edges that were checked: small ones together, large ones in parts."""
    kept: list[Edges] = []
    for number, chunk in enumerate(edges):
        i, j, values = _read_chunk(n, chunk, number)
        for first in range(0, len(i), _EDGES):
            span = slice(first, first + _EDGES)
            kept.append((i[span], j[span], values[span]))
            if sum(len(part[0]) for part in kept) >= _EDGES:
                yield _join(kept)
                kept = []
    if kept:
        yield _join(kept)


def _join(kept: list[Edges]) -> Edges:
    i, j, values = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    return i, j, values


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
    """Edges on disk by ranges of variables: written as they come, read again one range at a time."""

    def __init__(self, file: BinaryIO, n: int) -> None:
        self.file, self.n, self.edges = file, n, 0
        self.width = -(-n // _RANGES)
        self.pieces: list[tuple[list[int], NDArray[np.int64]]] = []  # per chunk: where each array lies, ends of ranges

    def __enter__(self) -> _Aside:
        return self

    def add(self, chunk: Edges) -> None:
        """Put a chunk aside, each edge in both of its ranges."""
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

    def in_order(self) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64]]]:
        """For each range: how many neighbours its variables have, the neighbours in order, and the couplings."""
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

    def __exit__(self, *_: object) -> None:
        self.file.close()
        os.unlink(self.file.name)


class _Growing:
    """An array on disk whose entries are written one after the other."""

    def __init__(self, file: BinaryIO, dtype: Any, shape: tuple[int, ...]) -> None:
        self.file, self.dtype = file, np.dtype(dtype)
        about = {"descr": self.dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, about)

    def append(self, values: NDArray[Any]) -> None:
        """Write the next entries."""
        if values.size:
            data = np.ascontiguousarray(values, dtype=self.dtype.newbyteorder("<"))
            self.file.write(data.data.cast("B"))


class _Folder:
    """A folder that appears under its name only when it is complete."""

    def __init__(self, path: Path) -> None:
        self.name = check.path(path)
        self.place = os.path.abspath(self.name)  # without a slash at its end
        if os.path.lexists(self.place):
            raise ArgumentError("path", "a folder that does not exist yet", self.name)
        self.temporary = f"{self.place}.{os.urandom(4).hex()}.part"
        self.files: dict[str, BinaryIO] = {}

    def __enter__(self) -> _Folder:
        try:
            os.mkdir(self.temporary)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.name) from None
        return self

    def array(self, name: str, dtype: Any, shape: tuple[int, ...]) -> _Growing:
        """An array to be filled."""
        self.files[name] = open(os.path.join(self.temporary, f"{name}.npy"), "xb")  # noqa: SIM115
        return _Growing(self.files[name], dtype, shape)

    def aside(self, n: int) -> _Aside:
        """Open the file to which edges are put aside."""
        return _Aside(open(os.path.join(self.temporary, "edges"), "x+b"), n)

    def finish_pairs(self, variables: int, entries: int, states: int, names: StateNames | None) -> None:
        """`finish` an Ising or Potts model."""
        about = {"format": FORMAT, "variables": variables, "entries": entries, "states": states}
        self.finish({**about, "potential": "potential" in self.files}, names)

    def finish(self, about: dict[str, Any], names: StateNames | None) -> None:
        """Write the names of states and the manifest, and give the folder its name."""
        if names is not None:
            about = {**about, "state_names": True}
            text, kinds = _encode_names(names, about["variables"])
            with open(os.path.join(self.temporary, NAMES), "xb") as file:
                file.write(text)
            if kinds is not None:
                self.array("state_kind", np.int32, kinds.shape).append(kinds)
        self._close()
        with open(os.path.join(self.temporary, "manifest.json"), "w", encoding="utf-8") as manifest:
            json.dump(about, manifest)
        os.rename(self.temporary, self.place)

    def _close(self) -> None:
        for file in self.files.values():
            file.close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._close()
        except OSError:
            if error is None:
                raise
        finally:
            shutil.rmtree(self.temporary, ignore_errors=True)
        # Ours are about the folder, which the caller knows by another name. Others come from the edges.
        if isinstance(error, OSError) and (error.filename is None or str(error.filename).startswith(self.temporary)):
            raise OSError(error.errno, error.strerror or str(error), self.name) from None


def _encode_names(names: StateNames, n: int) -> tuple[bytes, NDArray[np.int32] | None]:
    """Return the text with the names of states, and the kinds of all variables."""
    if names.common is not None:
        return labels.encode_states(names), None
    number: dict[Names, int] = {}
    codes = (-1 if known is None else number.setdefault(known, len(number)) for known in names.own)
    kinds = np.fromiter(codes, dtype=np.int32, count=n)
    return labels.encode_kinds(list(number)), kinds
