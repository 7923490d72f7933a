"""Files of energies: E(s) = sum J_ij s_i s_j + sum h_i s_i + offset over spins, and pi ∝ exp(-beta E).

dimod's binary quadratic models, ``.bqm``, versions 1.0 and 2.0
    The magic word, the version, the length of the header, the header in JSON; then the offset, for each variable the
    start of its neighbourhood and its linear bias, and for each variable its neighbours and quadratic biases: every
    pair twice. Version 2 has its labels after that. Read here rather than by dimod, because every number is checked
    before it is used as an index, and dimod need not be installed.
dimod's coordinate text, ``.coo``
    A line ``# vartype=SPIN`` or ``# vartype=BINARY``, and lines ``i j bias``: linear where i = j. Terms that are given
    twice are added up. Labels are whole numbers; variables are in their order. The energy's offset, for which dimod's
    text has no place, is kept in a line ``# offset=...``, which dimod skips.
Graphs of max-cut problems (G-set, rudy), ``.mc``, ``.gset``, ``.rud``, ``.txt``
    The numbers of vertices and edges, and then a line ``i j w`` for each edge. The energy is sum w_ij s_i s_j, so the
    states of least energy are the maximum cuts. Vertices are counted from 1 in the file, and these are their labels.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._models import Ising, Model
from dobrushin._models.couplings import symmetric
from dobrushin._models.forms import rounding_of
from dobrushin._models.ising import SpinPairs
from dobrushin._models.state_names import StateNames
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError
from dobrushin.io.source import Numbers, Source, from_json, inverse, is_number, quote, read_labels, shown, to_json

# Bytes of memory for a variable before it has a coupling: its label and a few numbers.
_VARIABLE_BYTES = 128


@dataclass(frozen=True)
class Energy:
    """The energy function in a file, over spins -1/+1, with each unordered pair once."""

    i: NDArray[Any]
    j: NDArray[Any]
    J: NDArray[np.float64]
    h: NDArray[np.float64]
    offset: float
    labels: Sequence[Hashable] | None
    error: float = 0.0  # bounds the rounding of the energies, without the offset: of decimals and of sums
    bits: bool = False  # whether people call the states 0 and 1

    def of_bits(self) -> Energy:
        """Return the energy over spins, if the numbers here are those over bits 0/1, by x = (1 + s) / 2."""
        quarter, half, n = self.J / 4, self.h / 2, len(self.h)
        with np.errstate(over="ignore", invalid="ignore"):
            h, sizes = half, np.abs(half)
            for ends in (self.i, self.j):
                h = h + np.bincount(ends, quarter, minlength=n)
                sizes = sizes + np.bincount(ends, np.abs(quarter), minlength=n)
            terms = np.bincount(np.concatenate([self.i, self.j]), minlength=n).astype(np.float64)
            error = rounding_of(terms * sizes, 1.0) + rounding_of(np.concatenate([quarter, half]), 0.0)
            offset = float(self.offset + half.sum() + quarter.sum())
            return replace(self, J=quarter, h=h, offset=offset, error=self.error + error, bits=True)

    @classmethod
    def of_model(cls, model: Model, beta: float, offset: float, extension: str) -> Energy:
        """Return the energies of an Ising model at an inverse temperature."""
        ordinary = model._form.to_model(model.labels)
        if not isinstance(ordinary, Ising):
            raise ArgumentError("model", f"an Ising model, for a {extension} file", got=type(model).__name__)
        upper = sparse.coo_array(sparse.triu(ordinary.couplings, k=1))
        J, h = (
            inverse(lambda energy: -beta * energy, theta, -theta / beta) + 0.0
            for theta in (upper.data, ordinary.fields)
        )
        i, j = upper.coords
        return cls(i, j, J, h, offset, None if isinstance(model.labels, range) else model.labels)

    def model(self, beta: float, refuse: Callable[[float, tuple[int, ...]], Exception]) -> Ising:
        """Return the Ising model at an inverse temperature; `refuse` makes the error for a number out of range."""
        with np.errstate(over="ignore", invalid="ignore"):
            # Adding 0 makes -0 a 0.
            couplings, fields = -beta * self.J + 0.0, -beta * self.h + 0.0
            is_exact = math.frexp(beta)[0] == 0.5 and (couplings / -beta == self.J).all()
            error = beta * self.error * (1.0 + 1e-12)
            error += 0.0 if is_exact else rounding_of(couplings, 1.0) + rounding_of(fields, 1.0)
        for values, ends in ((couplings, (self.i, self.j)), (fields, (np.arange(len(fields)),))):
            if (bad := ~(np.abs(values) <= check.LARGEST)).any():
                k = int(np.argmax(bad))
                raise refuse(float(values[k]), tuple(int(end[k]) for end in ends))
        form = SpinPairs(symmetric(self.i, self.j, couplings, len(self.h)), fields).off_by(error)
        return Ising._from_form(form, self.labels, StateNames(common=(0, 1)) if self.bits else None)

    def model_of_file(self, source: Source, beta: float) -> Ising:
        """Return the Ising model of a file at an inverse temperature."""

        def refuse(value: float, _: tuple[int, ...] = ()) -> Exception:
            return source.error(f"energies that times beta are {check.FINITE}", f"{value:.6g}")

        if not abs(self.offset) <= check.LARGEST:
            raise refuse(self.offset)
        return self.model(beta, refuse)


def _decimals(numbers: Numbers, which: NDArray[Any]) -> float:
    """Bound the rounding error of some of a file's numbers, all added up: 0 for whole numbers."""
    return 0.0 if numbers.are_whole(which).all() else rounding_of(numbers.values[which], 1.0)


# -- dimod, binary ----------------------------------------------------------------------------------

_MAGIC = b"DIMODBQM"
_FLOATS = ("float64", "float32")
_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


def read_bqm(source: Source) -> Energy:
    """Read the energies of a binary quadratic model of dimod (``.bqm``)."""
    version, header, at = _read_header(source)
    n, m = header["shape"]
    source.require_memory(float(n) * _VARIABLE_BYTES, "variables")
    bias, index, start = (np.dtype(header[key]).newbyteorder("<") for key in ("dtype", "itype", "ntype"))
    linear = np.dtype([("start", start), ("bias", bias)])
    quadratic = np.dtype([("other", index), ("bias", bias)])
    size = bias.itemsize + n * linear.itemsize + 2 * m * quadratic.itemsize
    if size > len(source.data) - at:
        got = f"{len(source.data) - at} bytes after the header"
        raise source.error(f"{size} bytes for {n} variables and {m} interactions", got)
    offset = float(np.frombuffer(source.data, bias, 1, at)[0])
    variables = np.frombuffer(source.data, linear, n, at + bias.itemsize)
    others = np.frombuffer(source.data, quadratic, 2 * m, at + bias.itemsize + n * linear.itemsize)
    given = _read_labels(source, version, header["variables"], n, at + size)
    for values in (offset, variables["bias"], others["bias"]):
        if not np.isfinite(values).all():
            raise source.error("finite biases", "inf or nan")
    i, j, Q = _read_pairs(source, variables["start"], others, n)
    energy = Energy(i, j, Q, variables["bias"].astype(np.float64), offset, given)
    return energy if header["vartype"] == "SPIN" else energy.of_bits()


def write_bqm(model: Model, beta: float, offset: float) -> bytes:
    """Write an Ising model as a ``.bqm`` file over spins, version 2.0."""
    energy = Energy.of_model(model, beta, offset, ".bqm")
    n, m = len(energy.h), len(energy.J)
    index = "int32" if max(n, 2 * m) < 2**31 else "int64"
    header = {
        "shape": [n, m],
        "dtype": "float64",
        "itype": index,
        "ntype": index,
        "vartype": "SPIN",
        "type": "BinaryQuadraticModel",
        "variables": energy.labels is not None,
    }
    text = json.dumps(header, sort_keys=True).encode() + b"\n"
    text += b" " * (-(len(_MAGIC) + 6 + len(text)) % 64)
    ends = (np.concatenate([energy.i, energy.j]), np.concatenate([energy.j, energy.i]))
    both = sparse.csr_array((np.tile(energy.J, 2), ends), shape=(n, n))
    both.sort_indices()
    little = np.dtype(index).newbyteorder("<")
    variables = np.empty(n, dtype=[("start", little), ("bias", "<f8")])
    variables["start"], variables["bias"] = both.indptr[:-1], energy.h
    others = np.empty(2 * m, dtype=[("other", little), ("bias", "<f8")])
    others["other"], others["bias"] = both.indices, both.data
    parts = [_MAGIC, bytes([2, 0]), struct.pack("<I", len(text)), text, struct.pack("<d", offset)]
    parts += [variables.tobytes(), others.tobytes()]
    if energy.labels is not None:
        given = to_json(list(energy.labels))
        given += b" " * (-(8 + len(given)) % 64)
        parts += [b"VARS", struct.pack("<I", len(given)), given]
    return b"".join(parts)


def _read_header(source: Source) -> tuple[int, dict[str, Any], int]:
    """Return the version of a ``.bqm`` file, its header, and the offset of the first byte after the header."""
    data = source.data
    if not data.startswith(_MAGIC):
        raise source.error(f"the bytes {_MAGIC.decode()} at the start", quote(data[: len(_MAGIC)]))
    if len(data) < 14:
        raise source.error("a header", "the end of the file")
    if (data[8], data[9]) not in ((1, 0), (2, 0)):
        raise source.error("version 1.0 or 2.0", f"{data[8]}.{data[9]}")
    length = struct.unpack("<I", data[10:14])[0]
    if length > len(data) - 14:
        raise source.error(f"a header of {length} bytes", f"{len(data) - 14} bytes to the end of the file")
    header = from_json(source, data[14 : 14 + length])
    if not isinstance(header, dict):
        raise source.error("a header that is a JSON object", f"a {type(header).__name__}")
    shape = header.get("shape")
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) != 2 or any(type(k) is not int or k < 0 for k in sizes) or not sizes[0]:
        raise source.error("a shape of one or more variables and their interactions", quote(str(shape)[:80]))
    choices = {"vartype": ("SPIN", "BINARY"), "dtype": _FLOATS, "itype": _INTEGERS, "ntype": _INTEGERS}
    for key, allowed in choices.items():
        if not isinstance(header.get(key), str) or header[key] not in allowed:
            raise source.error(f"{key} to be one of {', '.join(allowed)}", shown(header.get(key)))
    if not isinstance(header.get("variables"), list if data[8] == 1 else bool):
        raise source.error("a header that says what the labels are ('variables')", "another value")
    return data[8], header, 14 + length


def _read_labels(source: Source, version: int, told: Any, n: int, at: int) -> Sequence[Hashable] | None:
    """Read labels from the header (version 1) or the end (version 2) of a ``.bqm`` file."""
    data = source.data
    if version == 1 or not told:
        if len(data) != at:
            raise source.error("the end of the file after the biases", f"{len(data) - at} bytes more")
        if version == 2:
            return None
        return read_labels(source, told, n) if told else None
    if data[at : at + 4] != b"VARS" or len(data) < at + 8:
        raise source.error("labels (VARS) after the biases", quote(data[at : at + 4]))
    length = struct.unpack("<I", data[at + 4 : at + 8])[0]
    if length != len(data) - at - 8:
        raise source.error(f"{length} bytes of labels to the end of the file", f"{len(data) - at - 8} bytes")
    return read_labels(source, from_json(source, data[at + 8 :]), n)


def _read_pairs(
    source: Source, starts: NDArray[Any], others: NDArray[Any], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return each unordered pair once; the file lists it at both of its variables, which must agree."""
    start = np.append(starts.astype(np.float64), len(others))
    other = others["other"].astype(np.float64)
    if start[0] != 0 or (np.diff(start) < 0).any():
        raise source.error("lists of neighbours whose starts increase from 0", "other starts")
    if len(outside := other[~((other >= 0) & (other < n))]):
        raise source.error(f"neighbours from 0 to {n - 1}", f"{outside[0]:.17g}")
    v = np.repeat(np.arange(n), np.diff(start).astype(np.int64))
    u = other.astype(np.int64)
    if (v == u).any():
        raise source.error("no variable to be its own neighbour", f"variable {int(v[v == u][0])}")
    biases = others["bias"].astype(np.float64)
    up, down = np.flatnonzero(v < u), np.flatnonzero(v > u)
    up, down = up[np.lexsort((u[up], v[up]))], down[np.lexsort((v[down], u[down]))]
    i, j, Q = v[up], u[up], biases[up]
    if len(up) != len(down) or (i != u[down]).any() or (j != v[down]).any() or (biases[down] != Q).any():
        raise source.error("each interaction with one bias at both of its ends", "ends that differ")
    if (again := (np.diff(i) == 0) & (np.diff(j) == 0)).any():
        k = int(np.argmax(again))
        raise source.error("each interaction once", f"that of {int(i[k])} and {int(j[k])} twice")
    return i, j, Q


# -- dimod, text ------------------------------------------------------------------------------------

_COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)
# As dimod does, take the first that occurs in any comment.
_VARTYPE = re.compile(rb"vartype[:=][ \t]*([-_.a-zA-Z0-9]+)")
_OFFSET = re.compile(rb"[ \t]*#[ \t]*offset=(.*)")


def read_coo(source: Source) -> Energy:
    """Read the energies of a COO file of dimod (``.coo``)."""
    vartype, offset = _settings(source)
    numbers = Numbers(source, _COMMENT.sub(lambda line: b" " * len(line.group()), source.data))
    what = "lines 'i j bias'"
    rows = numbers.rows(max(1, len(numbers) // 3), 3, what)
    if numbers.position < len(numbers):
        raise numbers.error(what, numbers.position)
    ends, which = rows[:, :2], 3 * np.arange(len(rows))[:, None] + [0, 1]
    bad = ~(numbers.are_whole(which) & (ends >= 0))
    numbers.first_error(bad, which, "a label that is a whole number, 0 or more")
    labels, position = np.unique(ends.astype(np.int64), return_inverse=True)
    i, j = np.sort(position.reshape(-1, 2), axis=1).T
    n, linear = len(labels), i == j
    a: NDArray[Any] = np.bincount(i[linear], rows[linear, 2], minlength=n)
    pairs, place = np.unique((i * n + j)[~linear], return_inverse=True)
    Q: NDArray[Any] = np.bincount(place, rows[~linear, 2], minlength=len(pairs))
    error = _decimals(numbers, 3 * np.arange(len(rows)) + 2)
    for terms, own in ((i[linear], rows[linear, 2]), (place, rows[~linear, 2])):  # repeated entries are added up
        counts = np.bincount(terms).astype(np.float64)
        error += rounding_of(np.maximum(counts - 1.0, 0.0) * np.bincount(terms, np.abs(own)), 1.0)
    energy = Energy(pairs // n, pairs % n, Q, a, offset, labels.tolist(), error)
    return energy if vartype == b"SPIN" else energy.of_bits()


def write_coo(model: Model, beta: float, offset: float) -> bytes:
    """Write an Ising model as a COO file over spins."""
    energy = Energy.of_model(model, beta, offset, ".coo")
    labels = list(model.labels)
    for label in labels:
        if not check.is_whole(label) or not 0 <= label < 2**53:
            raise ArgumentError("model", "labelled by whole numbers, for a .coo file", label)
    lines = ["# vartype=SPIN", f"# offset={offset!r}"] if offset else ["# vartype=SPIN"]
    # A variable without any term would not be in the file.
    alone = np.bincount(np.concatenate([energy.i, energy.j]), minlength=len(labels)) == 0
    told = np.flatnonzero(alone | (energy.h != 0))
    terms = [*zip(told, told, energy.h[told], strict=True), *zip(energy.i, energy.j, energy.J, strict=True)]
    # In full, without an exponent: dimod skips lines that have one.
    lines += [f"{labels[i]} {labels[j]} {np.format_float_positional(x, trim='-')}" for i, j, x in terms]
    return "\n".join([*lines, ""]).encode()


def _settings(source: Source) -> tuple[bytes, float]:
    """Read the vartype and the offset from the comments of a COO file."""
    settings: dict[str, set[bytes]] = {"vartype": set(), "offset": set()}
    for comment in _COMMENT.finditer(source.data):
        for vartype in _VARTYPE.findall(comment.group()):
            settings["vartype"].add(vartype)
            if vartype not in (b"SPIN", b"BINARY"):
                raise source.error("vartype SPIN or BINARY", quote(vartype), comment.start())
        if offset := _OFFSET.match(comment.group()):
            word = offset.group(1).strip()
            settings["offset"].add(word)
            if not is_number(word):
                raise source.error("an offset that is a number", quote(word), comment.start())
        for name, values in settings.items():
            if len(values) > 1:
                raise source.error(f"one {name}", "two different ones", comment.start())
    if not settings["vartype"]:
        raise source.error("a line '# vartype=SPIN' or '# vartype=BINARY'", "none", 0)
    return settings["vartype"].pop(), float(settings["offset"].pop() if settings["offset"] else 0)


# -- max-cut ----------------------------------------------------------------------------------------


def read_maxcut(source: Source) -> Energy:
    """Read the energies of a max-cut graph."""
    numbers = Numbers(source, source.data)
    numbers.rows(1, 2, "a line 'n m', the numbers of vertices and edges")
    numbers.position = 0
    n = numbers.count("the number of vertices, 1 or more", least=1)
    m = numbers.count("the number of edges")
    source.require_memory(float(n) * _VARIABLE_BYTES, "vertices", numbers.offset(0))
    edges = numbers.rows(m, 3, f"a line 'i j w' for each of {m} edges")
    numbers.require_end("the last edge")
    ends, which = edges[:, :2], 2 + 3 * np.arange(m)[:, None] + [0, 1]
    bad = ~(numbers.are_whole(which) & (ends >= 1) & (ends <= n))
    numbers.first_error(bad, which, f"a vertex from 1 to {n}")
    i, j = np.sort(ends.astype(np.int64), axis=1).T - 1
    numbers.first_error(i == j, which[:, 0], "an edge between different vertices")
    order = np.lexsort((j, i))
    again = order[1:][(np.diff(i[order]) == 0) & (np.diff(j[order]) == 0)]
    if again.size:
        raise numbers.error("each edge once", 2 + 3 * int(again.min()))
    return Energy(i, j, edges[:, 2], np.zeros(n), 0.0, range(1, n + 1), _decimals(numbers, 4 + 3 * np.arange(m)))


def write_maxcut(model: Model, beta: float, offset: float) -> bytes:
    """Write an Ising model without fields as a max-cut graph, whose vertices are numbered from 1."""
    energy = Energy.of_model(model, beta, offset, "max-cut")
    if energy.h.any():
        raise ArgumentError("model", "without fields, for a max-cut file", energy.h[np.flatnonzero(energy.h)[0]])
    if offset:
        raise ArgumentError("offset", "0 for a max-cut file", offset)
    # In full, whole numbers without a point.
    weights = [str(int(w)) if w.is_integer() and abs(w) < 2**53 else repr(w) for w in energy.J.tolist()]
    edges = zip(energy.i.tolist(), energy.j.tolist(), weights, strict=True)
    lines = [f"{i + 1} {j + 1} {weight}" for i, j, weight in edges]
    return "\n".join([f"{len(energy.h)} {len(lines)}", *lines, ""]).encode()
