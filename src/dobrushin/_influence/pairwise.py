"""Theorem 4: general pairwise models, with and without the help of unaries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._arrays import frozen
from dobrushin._influence import budget
from dobrushin._kernels import influence as kernels
from dobrushin._models import PairwiseMRF, Potts

# Rows of a Potts model whose tables are written out at a time.
_CHUNK = 4096


def pairwise_rows(
    model: PairwiseMRF, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """Theorem 4, its sharper form with unaries, and enumeration under a budget."""
    first = model._start[positions]
    entry = np.arange(start[-1]) + np.repeat(first - start[:-1], np.diff(start))
    base = model._table_start[model._edge_of[entry]]
    _bound(
        model.labels, positions, model.cardinalities[positions], model._unary_start[positions], model._unary, start,
        model.cardinalities[columns], base, model._own_stride[entry], model._other_stride[entry], model._table,
        method, values, theorem, cap,
    )  # fmt: skip


def potts_rows(
    model: Potts, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """As for tables; without unaries the closed form needs only the strengths."""
    del columns
    first = model.couplings.indptr[positions]
    entry = np.arange(start[-1]) + np.repeat(first - start[:-1], np.diff(start))
    strength = model.couplings.data[entry]
    if method == "paper":
        kernels.potts_rows(frozen(strength), values)
        theorem[:] = kernels.THM4
        return
    k = model._states
    own = np.repeat(np.arange(k), k) == np.tile(np.arange(k), k)
    for lo in range(0, len(positions), _CHUNK):
        hi = min(lo + _CHUNK, len(positions))
        part = slice(start[lo], start[hi])
        entries = int(start[hi] - start[lo])
        unary = model.unaries[positions[lo:hi]].ravel() if model._unaries is not None else np.zeros((hi - lo) * k)
        _bound(
            model.labels, positions[lo:hi], np.full(hi - lo, k), np.arange(hi - lo) * k, unary,
            start[lo : hi + 1] - start[lo], np.full(entries, k), np.arange(entries) * k * k, np.full(entries, k),
            np.ones(entries, dtype=np.int64), np.outer(strength[part], own).ravel(),
            method, values[part], theorem[part], cap[lo:hi],
        )  # fmt: skip


def _bound(
    labels: Any, positions: NDArray[np.int64], k_own: NDArray[np.int64], unary_start: NDArray[np.int64],
    unary: NDArray[np.float64], start: NDArray[np.int64], k_other: NDArray[np.int64], base: NDArray[np.int64],
    own_stride: NDArray[np.int64], other_stride: NDArray[np.int64], table: NDArray[np.float64], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    k_own, unary_start, unary, start, k_other, base, own_stride, other_stride, table = (
        frozen(part) for part in (k_own, unary_start, unary, start, k_other, base, own_stride, other_stride, table)
    )
    kernels.pairwise_rows(
        k_own, unary_start, unary, start, k_other, base, own_stride, other_stride, table, method == "paper",
        values, theorem, cap,
    )  # fmt: skip
    if method == "paper":
        return
    rows = budget.enumerable(labels, positions, k_own, start, k_other, method)
    # Each edge is a factor with one other member: the neighbour of the same number.
    place = np.arange(len(k_other)) - np.repeat(start[:-1], np.diff(start))
    kernels.enumerated_rows(
        rows, k_own, unary_start, unary, start, k_other, start, frozen(np.arange(len(k_other) + 1)), frozen(place),
        other_stride,
        own_stride, base, table, values, theorem, cap,
    )  # fmt: skip
