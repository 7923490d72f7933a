"""Variable elimination on the GPU, with the same tables and error bounds as on the CPU. [trusted]"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dobrushin._exact.arithmetic import Plain, Working, layout
from dobrushin._kernels.contraction import LENGTH, MADE
from dobrushin._shared.arrays import Floats, Ints
from dobrushin._shared.device import Function, cupy, launch

_BLOCK = 256
# More axes than a table in memory can have.
_MAX_AXES = 64
# Products that one launch makes: about a tenth of a second.
_PIECE = 2**33
# A table of fewer than `_THREADS` entries is made in up to `_MAX_PARTS` parts, each of `_LEAST_TERMS` terms or more.
_THREADS, _LEAST_TERMS, _MAX_PARTS = 2**18, 64, 2**15
# Parts that a thread adds up.
_FEW_PARTS = 256


class OnDevice(Plain):
    """Elimination in ordinary floats on the GPU (see `Plain`)."""

    def _fill(self, factors: Floats) -> None:
        cp = cupy()
        self.store = cp.empty(self.program.length, dtype=np.float64)
        self.store[: len(factors)] = cp.asarray(factors)
        for block in self.program.ones:
            self.program.table(self.store, block)[...] = 1.0

    def table(self, block: int) -> Floats:
        here: Any = self.program.table(self.store, block)
        return np.asarray(here.get())

    def run_steps(self, working: Working) -> bool:
        return all(self._run_step(t, working) for t in range(len(self.program.made)))

    def _run_step(self, t: int, working: Working) -> bool:
        program = self.program
        axes, _, terms = layout(program, t)
        table = program.table(self.store, int(program.made[t])).reshape(-1)
        working.look()
        self._add_products(axes, program.offset[program.operands_of(t)], table, working)
        # The largest entry, and the smallest that is not 0.
        found = cupy().asarray(np.array([0.0, np.inf]).view(np.uint64))
        _launch("extremes", min(table.size, 2**16), (table, np.int64(table.size), found))
        most, least = (float(value) for value in found.get().view(np.float64))
        shift = self._account(t, terms, most, least)
        if shift:
            half = -shift // 2
            powers = (np.float64(math.ldexp(1.0, half)), np.float64(math.ldexp(1.0, -shift - half)))
            _launch("rescale", table.size, (table, np.int64(table.size), *powers))
        working.report(int(program.entries[t]))
        return bool(most > 0.0)

    def _add_products(self, axes: Ints, start: Ints, table: Any, working: Working) -> None:
        """Compute the table of a step on the GPU.

        A large table takes several launches. A small one is computed as several partial sums, which are then added.
        """
        cp, entries = cupy(), table.size
        if not len(start):  # a product of nothing
            table[...] = 1.0
            return
        rows, kept = _order_axes(axes)
        lengths = rows[:, 0].tolist()
        terms = math.prod(lengths[kept:])
        fixed = (self.store, cp.asarray(rows), np.int32(kept), np.int32(len(rows) - kept), cp.asarray(start))
        parts = max(1, min(_THREADS // entries, terms // _LEAST_TERMS, _MAX_PARTS))
        share = -(-terms // parts)
        parts = -(-terms // share)
        out = table if parts == 1 else cp.empty(parts * entries, dtype=np.float64)
        size = max(_BLOCK, _PIECE // max(terms, 1)) if parts == 1 else entries
        for begin in range(0, entries, size):
            end = min(entries, begin + size)
            numbers = (begin, end, entries, share, terms)
            arguments = (*fixed, *map(np.int64, numbers), out)
            _launch("add_products", end - begin, arguments, parts, len(start))
            if end < entries:
                cp.cuda.get_current_stream().synchronize()
                working.look()
        if parts > 1:
            _add_parts(out, parts, table)


def _order_axes(axes: Ints) -> tuple[Ints, int]:
    """Return the loops of a step with the summed axes last, and the number of axes that remain in the result."""
    axes = axes[axes[:, LENGTH] > 1]
    kept, summed = axes[axes[:, MADE] > 0], axes[axes[:, MADE] == 0]
    kept = kept[np.argsort(-kept[:, MADE], kind="stable")]
    summed = summed[np.argsort(-summed[:, MADE + 1 :].max(axis=1, initial=0), kind="stable")]
    return np.ascontiguousarray(np.delete(np.concatenate([kept, summed]), MADE, axis=1)), len(kept)


def _add_parts(parts: Any, count: int, table: Any) -> None:
    """Add the `count` partial sums of each table entry, up to `_FEW_PARTS` in one launch."""
    cp, entries = cupy(), table.size
    while count > 1:
        rows = min(count, _FEW_PARTS)
        left = -(-count // rows)
        if rows * left != count:  # filled up with zeros
            filled = cp.zeros(rows * left * entries, dtype=np.float64)
            filled[: count * entries] = parts
            parts = filled
        out = table if left == 1 else cp.empty(left * entries, dtype=np.float64)
        _launch("add_parts", left * entries, (parts, np.int64(left * entries), np.int32(rows), out))
        parts, count = out, left


def _launch(name: str, threads: int, arguments: tuple[Any, ...], rows: int = 1, count: int = 1) -> None:
    options = (f"-DCOUNT={count}", f"-DMOST_AXES={_MAX_AXES}")
    launch(Function(__package__, ("contraction.cu",), name, options), threads, _BLOCK, arguments, rows)
