"""dimod's binary quadratic models: ``.bqm``, versions 1.0 and 2.0.

The magic word, the version, the length of the header, the header in JSON; then the offset, for each variable the start
of its neighbourhood and its linear bias, and for each variable its neighbours and quadratic biases: every pair twice.
Version 2 has its labels after that. Read here rather than by dimod, because every number is checked before it is used
as an index, and dimod need not be installed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._models import Model
from dobrushin.io import labels as names
from dobrushin.io.energies import VARIABLE_BYTES, Energy
from dobrushin.io.numbers import quote
from dobrushin.io.source import Source

_MAGIC = b"DIMODBQM"
_FLOATS = ("float64", "float32")
_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


def read(source: Source) -> Energy:
    """The energies of a file."""
    version, header, at = _read_header(source)
    n, m = header["shape"]
    source.require_memory(float(n) * VARIABLE_BYTES, "variables")
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
    a = variables["bias"].astype(np.float64)
    make = Energy if header["vartype"] == "SPIN" else Energy.of_bits
    return make(i, j, Q, a, offset, given)


def write(model: Model, beta: float, offset: float) -> bytes:
    """An Ising model as a file of spins, version 2.0."""
    energy = Energy.of_model(model, beta, offset, ".bqm")
    n, m = len(energy.h), len(energy.J)
    labelled = energy.labels is not None
    index = "int32" if max(n, 2 * m) < 2**31 else "int64"
    header = {
        "shape": [n, m],
        "dtype": "float64",
        "itype": index,
        "ntype": index,
        "vartype": "SPIN",
        "type": "BinaryQuadraticModel",
        "variables": labelled,
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
        given = names.encode(energy.labels)
        given += b" " * (-(8 + len(given)) % 64)
        parts += [b"VARS", struct.pack("<I", len(given)), given]
    return b"".join(parts)


def _read_header(source: Source) -> tuple[int, dict[str, Any], int]:
    """Version, header and where the numbers start."""
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
    header = names.parse(source, data[14 : 14 + length])
    if not isinstance(header, dict):
        raise source.error("a header that is a JSON object", f"a {type(header).__name__}")
    shape = header.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or any(type(k) is not int or k < 0 for k in shape)
        or not shape[0]
    ):
        raise source.error("a shape of one or more variables and their interactions", quote(str(shape)[:80]))
    choices = {"vartype": ("SPIN", "BINARY"), "dtype": _FLOATS, "itype": _INTEGERS, "ntype": _INTEGERS}
    for key, allowed in choices.items():
        if not isinstance(header.get(key), str) or header[key] not in allowed:
            raise source.error(f"{key} to be one of {', '.join(allowed)}", names.shown(header.get(key)))
    if not isinstance(header.get("variables"), list if data[8] == 1 else bool):
        raise source.error("a header that says what the labels are ('variables')", "another value")
    return data[8], header, 14 + length


def _read_labels(source: Source, version: int, told: Any, n: int, at: int) -> Sequence[Hashable] | None:
    """Labels from the header (version 1), or from the end of the file."""
    data = source.data
    if version == 1 or not told:
        if len(data) != at:
            raise source.error("the end of the file after the biases", f"{len(data) - at} bytes more")
        if version == 2:
            return None
        if len(told) not in (0, n):
            raise source.error(f"labels of {n} variables", f"{len(told)} of them")
        return names.from_list(source, told) if told else None
    if data[at : at + 4] != b"VARS" or len(data) < at + 8:
        raise source.error("labels (VARS) after the biases", quote(data[at : at + 4]))
    length = struct.unpack("<I", data[at + 4 : at + 8])[0]
    if length != len(data) - at - 8:
        raise source.error(f"{length} bytes of labels to the end of the file", f"{len(data) - at - 8} bytes")
    return names.decode(source, data[at + 8 :], n)


def _read_pairs(
    source: Source, starts: NDArray[Any], others: NDArray[Any], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Each unordered pair once, from neighbourhoods that must agree with each other."""
    start = np.append(starts.astype(np.float64), len(others))
    other = others["other"].astype(np.float64)
    if start[0] != 0 or (np.diff(start) < 0).any():
        raise source.error("neighbourhoods that follow each other", "starts that do not increase from 0")
    if not ((other >= 0) & (other < n)).all():
        raise source.error(f"neighbours from 0 to {n - 1}", f"{other[~((other >= 0) & (other < n))][0]:.17g}")
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
