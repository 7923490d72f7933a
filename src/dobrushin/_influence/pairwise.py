"""Theorem 4: general pairwise models, with and without the help of unaries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import budget
from dobrushin._kernels import influence as kernels
from dobrushin._models import PairwiseMRF, Potts
from dobrushin._shared.arrays import frozen

# Rows of a Potts model whose tables are written out at a time; those that are enumerated have small tables.
_CHUNK = 4096


def pairwise_rows(
    model: PairwiseMRF, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """Theorem 4, its sharper form with unaries, and enumeration under a budget."""
    entry = _entries(model._start, positions, start)
    k_own, k_other = model.cardinalities[positions], model.cardinalities[columns]
    parts = (
        k_own, model._unary_start[positions], model._unary, start, k_other, model._table_start[model._edge_of[entry]],
        model._own_stride[entry], model._other_stride[entry], model._table,
    )  # fmt: skip
    kernels.pairwise_rows(*(frozen(part) for part in parts), method == "paper", values, theorem, cap)
    if method != "paper":
        rows = budget.enumerable(model.labels, positions, k_own, start, k_other, method)
        _enumerate(rows, *parts, method, values, theorem, cap)


def potts_rows(
    model: Potts, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """The same from strengths alone; tables are written out only for the rows that are enumerated."""
    del columns
    strength = model.couplings.data[_entries(model.couplings.indptr, positions, start)]
    k = model._states
    unary = np.zeros((len(positions), 0)) if model._unaries is None else model._unaries[positions]
    kernels.potts_rows(start, frozen(strength), frozen(unary), method == "paper", values, theorem, cap)
    if method == "paper":
        return
    k_own, k_other = np.full(len(positions), k), np.full(len(strength), k)
    rows = budget.enumerable(model.labels, positions, k_own, start, k_other, method)
    equal = np.eye(k).ravel()
    for lo in range(0, len(rows), _CHUNK):
        part = rows[lo : lo + _CHUNK]
        sizes = np.diff(start)[part]
        part_start = np.concatenate([[0], np.cumsum(sizes)])
        entry = np.arange(part_start[-1]) + np.repeat(start[part] - part_start[:-1], sizes)
        part_unary = np.zeros(len(part) * k) if model._unaries is None else unary[part].ravel()
        out = (values[entry], theorem[entry], cap[part])
        _enumerate(
            np.arange(len(part)), k_own[part], np.arange(len(part)) * k, part_unary, part_start, k_other[entry],
            np.arange(len(entry)) * k * k, np.full(len(entry), k), np.ones(len(entry), dtype=np.int64),
            np.outer(strength[entry], equal).ravel(), method, *out,
        )  # fmt: skip
        values[entry], theorem[entry], cap[part] = out


def _entries(first: NDArray[Any], positions: NDArray[np.int64], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of the entries of some rows in arrays over all rows."""
    return np.arange(start[-1]) + np.repeat(first[positions] - start[:-1], np.diff(start))


def _enumerate(
    rows: NDArray[np.int64], k_own: NDArray[np.int64], unary_start: NDArray[np.int64], unary: NDArray[np.float64],
    start: NDArray[np.int64], k_other: NDArray[np.int64], base: NDArray[np.int64], own_stride: NDArray[np.int64],
    other_stride: NDArray[np.int64], table: NDArray[np.float64], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    if method == "exact":
        budget.forget(values, theorem, cap)
    # Each edge is a factor with one other member: the neighbour of the same number.
    place = np.arange(len(k_other)) - np.repeat(start[:-1], np.diff(start))
    members = np.arange(len(k_other) + 1)
    parts = (rows, k_own, unary_start, unary, start, k_other, start, members, place, other_stride, own_stride, base)
    kernels.enumerated_rows(*(frozen(part) for part in parts), frozen(table), values, theorem, cap)
