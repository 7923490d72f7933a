"""Graphs of max-cut problems (G-set, rudy): ``.mc``, ``.gset``, ``.rud``, ``.txt``.

The numbers of vertices and edges, and then a line ``i j w`` for each edge. The energy is sum w_ij s_i s_j, so the
states of least energy are the maximum cuts. Vertices are counted from 1 in the file, and these are their labels.
"""

from __future__ import annotations

import numpy as np

from dobrushin._models import Model
from dobrushin.errors import ArgumentError
from dobrushin.io.energies import VARIABLE_BYTES, Energy
from dobrushin.io.numbers import Numbers
from dobrushin.io.source import Source


def read(source: Source) -> Energy:
    """The energies of a file."""
    numbers = Numbers(source, source.data)
    numbers.rows(1, 2, "a line 'n m', the numbers of vertices and edges")
    numbers.position = 0
    n = numbers.count("the number of vertices, 1 or more", least=1)
    m = numbers.count("the number of edges")
    source.require_memory(float(n) * VARIABLE_BYTES, "vertices", numbers.offset(0))
    edges = numbers.rows(m, 3, f"a line 'i j w' for each of {m} edges")
    numbers.require_end("the last edge")
    ends = edges[:, :2]
    bad = ~(numbers.are_whole(2 + 3 * np.arange(m)[:, None] + [0, 1]) & (ends >= 1) & (ends <= n))
    if bad.any():
        edge, side = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise numbers.error(f"a vertex from 1 to {n}", 2 + 3 * int(edge) + int(side))
    i, j = ends.min(axis=1).astype(np.int64) - 1, ends.max(axis=1).astype(np.int64) - 1
    if (loop := i == j).any():
        raise numbers.error("an edge between different vertices", 2 + 3 * int(np.argmax(loop)))
    order = np.lexsort((j, i))
    again = order[1:][(np.diff(i[order]) == 0) & (np.diff(j[order]) == 0)]
    if again.size:
        raise numbers.error("each edge once", 2 + 3 * int(again.min()))
    return Energy(i, j, edges[:, 2], np.zeros(n), 0.0, range(1, n + 1))


def write(model: Model, beta: float, offset: float) -> bytes:
    """A model without fields as a file; vertices are numbered by position, from 1."""
    energy = Energy.of_model(model, beta, offset, "max-cut")
    if energy.h.any():
        raise ArgumentError(
            "write", "model", "without fields, for a max-cut file", energy.h[np.flatnonzero(energy.h)[0]]
        )
    if offset:
        raise ArgumentError("write", "offset", "0 for a max-cut file", offset)
    edges = zip(energy.i.tolist(), energy.j.tolist(), energy.J.tolist(), strict=True)
    lines = [f"{i + 1} {j + 1} {write_weight(w)}" for i, j, w in edges]
    return "\n".join([f"{len(energy.h)} {len(lines)}", *lines, ""]).encode()


def write_weight(weight: float) -> str:
    """A weight in full, whole numbers as in the files that people have."""
    return str(int(weight)) if weight.is_integer() and abs(weight) < 2**53 else repr(weight)
