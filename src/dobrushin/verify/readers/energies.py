"""Read files of energies, pi ~ exp(-beta E): two formats of dimod, and max-cut graphs.

E is a sum of biases of variables and of pairs, over spins -1 and 1 or bits 0 and 1. Bits become
spins by x = (1 + s) / 2. Sums and products are computed as fractions, and rounded once.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from dobrushin.verify.document import Array, Budget
from dobrushin.verify.model import UNIT
from dobrushin.verify.readers.tables import (
    PER_SCOPE,
    Logs,
    ModelFile,
    Scope,
    read_numbers,
    spin_table,
)

WHOLE = re.compile(rb"[+-]?\d{1,15}(\.0*)?")
COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)
VARTYPE = re.compile(rb"vartype[:=][ \t]*([-_.a-zA-Z0-9]+)")
STATES = {"SPIN": ("-1", "1"), "BINARY": ("0", "1")}
FLOATS, INTEGERS = ("float64", "float32"), ("int8", "int16", "int32", "int64")
Bias = tuple[int, int, float, float]  # variables, equal for a single one; number; its error


def _of_energies(
    labels: Any, vartype: str, biases: Iterable[Bias], beta: float, inside: Array, budget: Budget
) -> ModelFile:
    """Make a model of biases, adding up those of the same variable or pair."""
    near, count = set(inside.tolist()), len(labels)
    sums, errors = defaultdict[Scope, Fraction](Fraction), defaultdict[Scope, float](float)
    for i, j, value, error in biases:
        if near.isdisjoint((i, j)):
            continue
        budget.charge("the biases of the model file", PER_SCOPE, held=1000.0)
        scope: Scope = (i,) if i == j else (min(i, j), max(i, j))
        shares = [(scope, 1)]
        if vartype == "BINARY":  # x = (1 + s) / 2, and x y = (1 + s + t + s t) / 4
            shares = [(own, 2 * len(scope)) for own in {scope, (i,), (j,)}]
        for own, share in shares:
            sums[own] += Fraction(value) / share
            errors[own] += error / share
    factors = list[Logs]()
    for scope, total in sums.items():
        if not near.isdisjoint(scope):
            exact = -Fraction(beta) * total
            value = float(exact)
            error = float(abs(exact - Fraction(value))) + beta * errors[scope]
            factors.append((scope, spin_table(value, len(scope)), error * (1.0 + 1e-12)))
    state_names = np.broadcast_to(STATES[vartype], (count, 2))
    return ModelFile(np.broadcast_to(np.int64(2), count), factors, labels, state_names)


def _decimal(word: bytes) -> tuple[float, float]:
    """Return the double nearest to a decimal number, and its rounding error."""
    (value,) = read_numbers(float, [word])
    return value, 0.0 if WHOLE.fullmatch(word) else UNIT * abs(value) + 2.0**-1074


def _whole(words: list[bytes]) -> Array:
    return np.array(read_numbers(int, words), dtype=np.int64)


def read_maxcut(data: bytes, inside: Array, budget: Budget, beta: float) -> ModelFile:
    """Read a max-cut graph: numbers of vertices and edges, then edges `i j w`, counted from 1."""
    words = data.split()
    n, m = read_numbers(int, words[:2])
    if len(words) != 2 + 3 * m:
        raise ValueError("it has more or fewer edges than it says")
    ends = _whole(words[2::3] + words[3::3]).reshape(2, m) - 1
    if (m and not 0 <= ends.min() <= ends.max() < n) or (ends[0] == ends[1]).any():
        raise ValueError("an edge has an unknown vertex, or the same one twice")
    pairs = zip(*ends.tolist(), words[4::3], strict=True)
    biases = ((i, j, *_decimal(word)) for i, j, word in pairs)
    return _of_energies(range(1, n + 1), "SPIN", biases, beta, inside, budget)


def read_coo(data: bytes, inside: Array, budget: Budget, beta: float) -> ModelFile:
    """Read dimod's COO format: lines `i j bias`, i = j for one variable; vartype in a comment."""
    comments = b"\n".join(COMMENT.findall(data))
    (vartype,) = set(VARTYPE.findall(comments))
    words = COMMENT.sub(b"", data).split()
    labels, ends = np.unique(_whole(words[::3] + words[1::3]), return_inverse=True)
    pairs = zip(*ends.reshape(2, -1).tolist(), words[2::3], strict=True)
    biases = ((i, j, *_decimal(word)) for i, j, word in pairs)
    return _of_energies(labels.tolist(), vartype.decode(), biases, beta, inside, budget)


def read_bqm(data: bytes, inside: Array, budget: Budget, beta: float) -> ModelFile:
    """Read dimod's BQM format: a header in JSON, then biases of variables and of neighbours."""
    size = int.from_bytes(data[10:14], "little")
    head = json.loads(data[14 : 14 + size])
    n, m = head["shape"]
    if data[:10] not in (b"DIMODBQM\x01\x00", b"DIMODBQM\x02\x00") or head["dtype"] not in FLOATS:
        raise ValueError("its version is unknown")
    if not {head["itype"].lstrip("u"), head["ntype"].lstrip("u")} <= {*INTEGERS}:
        raise ValueError("the type of its numbers is unknown")
    bias, index, start = (np.dtype(head[name]) for name in ("dtype", "itype", "ntype"))
    own, other = (
        np.dtype([("start", start), ("bias", bias)]),
        np.dtype([("at", index), ("bias", bias)]),
    )
    at = 14 + size + bias.itemsize
    single = np.frombuffer(data, own, n, at)
    near = np.frombuffer(data, other, 2 * m, at := at + n * own.itemsize)
    degrees = np.diff(np.append(single["start"].astype(np.int64), 2 * m))
    i, j = np.repeat(np.arange(n), degrees), near["at"].astype(np.int64)
    if len(i) != 2 * m or (m and not 0 <= j.min() <= j.max() < n):
        raise ValueError("a list of neighbours has a wrong start, length or entry")
    first = i < j  # each pair is there twice
    if np.count_nonzero(first) != m:
        raise ValueError("an interaction is not listed at both of its variables")
    kept = first & (np.isin(i, inside) | np.isin(j, inside))
    pairs = zip(i[kept].tolist(), j[kept].tolist(), near["bias"][kept].tolist(), strict=True)
    biases = [(v, v, single["bias"][v].item(), 0.0) for v in inside.tolist()]
    biases += [(a, b, value, 0.0) for a, b, value in pairs]
    labels = _labels(data, head, at + 2 * m * other.itemsize)
    return _of_energies(labels, head["vartype"], biases, beta, inside, budget)


def _labels(data: bytes, head: dict[str, Any], at: int) -> Any:
    """Return the labels of a BQM file, which are in its header, at its end, or just numbers."""
    if not head["variables"]:
        return range(head["shape"][0])
    found = json.loads(data[at + 8 :]) if data[8] == 2 else head["variables"]
    return [_of_lists(label) for label in found]


def _of_lists(label: Any) -> Any:
    return tuple(map(_of_lists, label)) if isinstance(label, list) else label
