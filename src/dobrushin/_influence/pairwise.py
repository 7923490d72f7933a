"""Theorem 4: general pairwise models, with and without the help of unaries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import budget
from dobrushin._influence.rows import Bounds, Wanted, theorem_for
from dobrushin._kernels import influence as kernels
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._shared.arrays import frozen, row_entries

# Rows of labelled pairs whose tables are written out at a time; those that are enumerated have small tables.
_CHUNK = 4096


class _Tables(NamedTuple):
    """Rows and their neighbours' tables, as the kernel of Theorem 4 takes them."""

    k_own: NDArray[np.int64]
    unary_start: NDArray[np.int64]
    unary: NDArray[np.float64]
    start: NDArray[np.int64]
    k_other: NDArray[np.int64]
    base: NDArray[np.int64]
    own_stride: NDArray[np.int64]
    other_stride: NDArray[np.int64]
    table: NDArray[np.float64]


@theorem_for(PairTables)
def pair_table_rows(form: PairTables, wanted: Wanted) -> Bounds:
    """Theorem 4, its sharper form with unaries, and enumeration under a budget."""
    entry = wanted.entries(form.start)
    parts = (
        form.cardinalities[wanted.positions], form.unary_start[wanted.positions], form.unary,
        wanted.start, form.cardinalities[wanted.columns], form.table_start[form.edge_of[entry]],
        form.own_stride[entry], form.other_stride[entry], form.table,
    )  # fmt: skip
    tables, bounds = _Tables(*(frozen(part) for part in parts)), wanted.no_bounds()
    kernels.pairwise_rows(*tables, wanted.is_paper, *bounds)
    if wanted.is_paper:
        return bounds
    rows = budget.enumerable(wanted, tables.k_own, tables.k_other)
    return _enumerate(rows, tables, wanted.before_enumeration(bounds))


@theorem_for(LabelPairs)
def label_pair_rows(form: LabelPairs, wanted: Wanted) -> Bounds:
    """The same from strengths alone; tables are written out only for the rows that are enumerated."""
    strength, k, start = form.couplings.data[wanted.entries(form.couplings.indptr)], form.states, wanted.start
    given, count = form.given_unaries, len(wanted.positions)
    unary = np.zeros((count, 0)) if given is None else given[wanted.positions]
    bounds = wanted.no_bounds()
    kernels.potts_rows(start, frozen(strength), frozen(unary), wanted.is_paper, *bounds)
    if wanted.is_paper:
        return bounds
    k_own, k_other = np.full(count, k), np.full(len(strength), k)
    rows = budget.enumerable(wanted, k_own, k_other)
    values, theorem, cap = wanted.before_enumeration(bounds)
    equal = np.eye(k if len(rows) else 0).ravel()  # only where it is small
    for lo in range(0, len(rows), _CHUNK):
        part = rows[lo : lo + _CHUNK]
        part_start, entry = row_entries(start[part], np.diff(start)[part])
        own, edges = np.arange(len(part)), np.arange(len(entry))
        tables = _Tables(
            k_own[part], own * k, np.zeros(len(part) * k) if given is None else unary[part].ravel(),
            part_start, k_other[entry], edges * k * k, np.full(len(entry), k), np.ones(len(entry), dtype=np.int64),
            np.outer(strength[entry], equal).ravel(),
        )  # fmt: skip
        values[entry], theorem[entry], cap[part] = _enumerate(
            own, tables, Bounds(values[entry], theorem[entry], cap[part])
        )
    return Bounds(values, theorem, cap)


def _enumerate(rows: NDArray[np.int64], tables: _Tables, bounds: Bounds) -> Bounds:
    """The bounds, with exact influences on some rows where they are smaller."""
    k_own, unary_start, unary, start, k_other, base, own_stride, other_stride, table = tables
    # Each edge is a factor with one other member: the neighbour of the same number.
    place = np.arange(len(k_other)) - np.repeat(start[:-1], np.diff(start))
    members = np.arange(len(k_other) + 1)
    parts = (rows, k_own, unary_start, unary, start, k_other, start, members, place, other_stride, own_stride, base)
    kernels.enumerated_rows(*(frozen(part) for part in parts), frozen(table), *bounds)
    return bounds
