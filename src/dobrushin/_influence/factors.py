"""Any factors: the range of each table, and enumeration of the neighbourhood."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._arrays import frozen
from dobrushin._influence import budget
from dobrushin._kernels import influence as kernels
from dobrushin._models import FactorGraph


def factor_rows(
    model: FactorGraph, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """MATH 4.7, and enumeration (4.6) under a budget. The paper has no theorem for factors; "paper" gives 4.7 alone."""
    packed = _pack(model, positions, start, columns)
    k_own, k_other, f_start, m_start, m_of, m_stride, own_stride, base = packed
    kernels.factor_ranges(
        k_own, start, k_other, f_start, m_start, m_of, m_stride, own_stride, base, model._table, values, cap
    )
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
    _enumerate(model, positions, start, _pack(model, positions, start, columns), method, values, theorem, cap)


def _enumerate(
    model: FactorGraph, positions: NDArray[np.int64], start: NDArray[np.int64], packed: Any, method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    k_own, k_other, f_start, m_start, m_of, m_stride, own_stride, base = packed
    rows = budget.enumerable(model.labels, positions, k_own, start, k_other, method)
    no_unary = frozen(np.zeros(int(k_own.max())))  # single-variable factors are factors here
    kernels.enumerated_rows(
        rows, k_own, frozen(np.zeros(len(k_own), dtype=np.int64)), no_unary, start, k_other, f_start, m_start, m_of,
        m_stride, own_stride, base, model._table, values, theorem, cap,
    )  # fmt: skip


def _pack(model: FactorGraph, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any]) -> Any:
    """The factors of each row, their members as places in the row's list of neighbours."""
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
    return tuple(frozen(part) for part in parts)
