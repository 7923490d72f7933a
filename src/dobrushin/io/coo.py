"""dimod's coordinate text: ``.coo``.

A line ``# vartype=SPIN`` or ``# vartype=BINARY``, and lines ``i j bias``: linear where i = j. What is given twice is
added up. Labels are whole numbers; variables are in their order. The energy's offset, for which dimod's text has no
place, is kept in a line ``# offset=...``, which dimod skips.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import Model
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError
from dobrushin.io.energies import Energy
from dobrushin.io.numbers import Numbers, is_number, quote
from dobrushin.io.source import Source

_COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)
# The first as dimod reads it, which is anywhere in a comment.
_VARTYPE = re.compile(rb"vartype[:=][ \t]*([-_.a-zA-Z0-9]+)")
_OFFSET = re.compile(rb"[ \t]*#[ \t]*offset=(.*)")


def read(source: Source) -> Energy:
    """The energies of a file."""
    vartype, offset = _settings(source)
    numbers = Numbers(source, _COMMENT.sub(lambda line: b" " * len(line.group()), source.data))
    what = "lines 'i j bias'"
    rows = numbers.rows(max(1, len(numbers) // 3), 3, what)
    if numbers.position < len(numbers):
        raise numbers.error(what, numbers.position)
    ends = rows[:, :2]
    bad = ~(numbers.are_whole(3 * np.arange(len(rows))[:, None] + [0, 1]) & (ends >= 0))
    if bad.any():
        row, side = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise numbers.error("a label that is a whole number, 0 or more", 3 * int(row) + int(side))
    labels, position = np.unique(ends.astype(np.int64), return_inverse=True)
    i, j = np.sort(position.reshape(-1, 2), axis=1).T
    n, linear = len(labels), i == j
    a: NDArray[Any] = np.bincount(i[linear], rows[linear, 2], minlength=n)
    pairs, place = np.unique((i * n + j)[~linear], return_inverse=True)
    Q: NDArray[Any] = np.bincount(place, rows[~linear, 2], minlength=len(pairs))
    make = Energy if vartype == b"SPIN" else Energy.of_bits
    return make(pairs // n, pairs % n, Q, a, offset, labels.tolist())


def write(model: Model, beta: float, offset: float) -> bytes:
    """An Ising model as a file of spins."""
    energy = Energy.of_model(model, beta, offset, ".coo")
    labels = list(model.labels)
    for label in labels:
        if not check.is_whole(label) or not 0 <= label < 2**53:
            raise ArgumentError("write", "model", "labelled by whole numbers, for a .coo file", label)
    lines = ["# vartype=SPIN", f"# offset={offset!r}"] if offset else ["# vartype=SPIN"]
    # A variable without any term would not be in the file.
    alone = np.bincount(np.concatenate([energy.i, energy.j]), minlength=len(labels)) == 0
    told = np.flatnonzero(alone | (energy.h != 0)).tolist()
    lines += [f"{labels[v]} {labels[v]} {_write_number(energy.h[v])}" for v in told]
    pairs = zip(energy.i.tolist(), energy.j.tolist(), energy.J, strict=True)
    lines += [f"{labels[i]} {labels[j]} {_write_number(J)}" for i, j, J in pairs]
    return "\n".join([*lines, ""]).encode()


def _settings(source: Source) -> tuple[bytes, float]:
    """Vartype and offset, which stand in comments."""
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


def _write_number(value: float) -> str:
    """In full, and without an exponent: dimod skips lines that have one."""
    return np.format_float_positional(value, trim="-")
