"""Any factors: the range of each table, and enumeration of the neighbourhood."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import budget
from dobrushin._kernels import influence as kernels
from dobrushin._models import FactorGraph
from dobrushin._shared.arrays import frozen


def factor_rows(
    model: FactorGraph, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """MATH 4.7, and enumeration (4.6) under a budget. The paper has no theorem for factors; "paper" gives 4.7 alone."""
    packed = pack_factors(model, positions, start, columns)
    kernels.factor_ranges(
        packed.k_own, start, packed.k_other, packed.m_start, packed.m_of, packed.m_stride, packed.own_stride,
        packed.base, model._table, *_by_neighbor(packed, start), values, cap,
    )  # fmt: skip
    theorem[:] = kernels.RANGE
    if method == "paper":
        cap[:] = 1.0
    else:
        _enumerate(model, positions, start, packed, method, values, theorem, cap)


def enumerate_factors(
    model: FactorGraph, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """Replace bounds by exact influences where the neighbourhood is small enough and they are smaller."""
    _enumerate(model, positions, start, pack_factors(model, positions, start, columns), method, values, theorem, cap)


class Packed(NamedTuple):
    """The factors of each row, their members as places in the row's list of neighbours."""

    k_own: NDArray[np.int64]
    k_other: NDArray[np.int64]
    f_start: NDArray[np.int64]
    m_start: NDArray[np.int64]
    m_of: NDArray[np.int64]
    m_stride: NDArray[np.int64]
    own_stride: NDArray[np.int64]
    base: NDArray[np.int64]


def _enumerate(
    model: FactorGraph, positions: NDArray[np.int64], start: NDArray[np.int64], packed: Packed, method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    rows = budget.enumerable(model.labels, positions, packed.k_own, start, packed.k_other, method)
    if method == "exact":
        budget.forget(values, theorem, cap)
    no_unary = np.zeros(int(packed.k_own.max()))  # single-variable factors are factors here
    kernels.enumerated_rows(
        rows, packed.k_own, frozen(np.zeros_like(packed.k_own)), frozen(no_unary), start, *packed[1:], model._table,
        values, theorem, cap,
    )  # fmt: skip


def _by_neighbor(packed: Packed, start: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
    """The members again, sorted by the neighbour that they are."""
    factor = np.repeat(np.arange(len(packed.base)), np.diff(packed.m_start))
    row = np.repeat(np.arange(len(packed.k_own)), np.diff(packed.f_start))[factor]
    entry = start[row] + packed.m_of
    order = np.argsort(entry, kind="stable")
    by_start = np.concatenate([[0], np.cumsum(np.bincount(entry, minlength=int(start[-1])))])
    return frozen(by_start), frozen(order), frozen(factor[order])


def pack_factors(
    model: FactorGraph, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any]
) -> Packed:
    """The factors of some rows, as the kernels take them."""
    counts = model._factor_start[positions + 1] - model._factor_start[positions]
    f_start = np.concatenate([[0], np.cumsum(counts)])
    slot = np.arange(f_start[-1]) + np.repeat(model._factor_start[positions] - f_start[:-1], counts)
    factor = model._factor_of[slot]
    row = np.repeat(np.arange(len(positions)), counts)
    sizes = np.diff(model._scope_start)[factor]
    inside = np.concatenate([[0], np.cumsum(sizes)])
    member = np.arange(inside[-1]) + np.repeat(model._scope_start[factor] - inside[:-1], sizes)
    member_row = np.repeat(row, sizes)
    variable = model._scope[member]
    other = variable != positions[member_row]
    # Neighbours are sorted within each row, so (row, variable) can be found by one search.
    n = model.n_variables
    key = np.repeat(np.arange(len(positions)), np.diff(start)) * n + columns
    place = np.searchsorted(key, member_row[other] * n + variable[other]) - start[member_row[other]]
    m_start = np.concatenate([[0], np.cumsum(sizes - 1)])
    parts = (
        model.cardinalities[positions], model.cardinalities[columns], f_start, m_start, place,
        model._stride[member][other], model._factor_stride[slot], model._table_start[factor],
    )  # fmt: skip
    return Packed(*(frozen(part) for part in parts))
