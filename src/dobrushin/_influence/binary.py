"""Theorems 5 and 6: spins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import budget
from dobrushin._influence.factors import enumerate_factors
from dobrushin._kernels import influence as kernels
from dobrushin._models import Ising, SpinMRF

# Terms of more variables have neighbourhoods that are too large to enumerate anyway.
_TABLE_ORDER = 12


def ising_rows(
    model: Ising, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """Theorem 5, and its exact form up to a degree limit."""
    del columns
    matrix = model.couplings
    degree = int(np.diff(start).max(initial=0))
    limit = budget.BEST_DEGREE
    if method == "exact":
        limit = max(limit, degree)
        if degree > budget.EXACT_DEGREE:
            r = int(np.argmax(np.diff(start)))
            budget.over_budget(model.labels[int(positions[r])], 2.0 ** (degree - 1), 2.0 ** (budget.EXACT_DEGREE - 1))
    kernels.ising_rows(
        positions, matrix.indptr, matrix.data, model.fields, start, method == "paper", min(limit, degree),
        values, theorem, cap,
    )  # fmt: skip


def spin_rows(
    model: SpinMRF, positions: NDArray[np.int64], start: NDArray[np.int64], columns: NDArray[Any], method: str,
    values: NDArray[np.float64], theorem: NDArray[np.uint8], cap: NDArray[np.float64],
) -> None:  # fmt: skip
    """Theorem 6 (tightened unless method is "paper"), and enumeration under a budget."""
    kernels.spin_rows(
        positions, model._term_start, model._term_of, model._scope_start, model._scope, model._strengths,
        model.fields, start, columns, method == "paper", values, cap,
    )  # fmt: skip
    theorem[:] = kernels.THM6 if method == "paper" else kernels.THM6_TIGHT
    if method == "exact" or (method == "best" and model.order <= _TABLE_ORDER):
        enumerate_factors(model.to_factor_graph(), positions, start, columns, method, values, theorem, cap)
