"""Making a given scan better at the same length, on the small matrix of the variables that it can touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.greedy import move_steps
from dobrushin._optimize.dogs import descent_on
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen

# Elementary operations that moving steps may take, about a nanosecond each; a try costs steps times entries.
_MOVE_BUDGET = 5e5


def polisher(
    matrix: Any, weights: NDArray[np.float64], candidate: NDArray[np.bool_], rounds: int
) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """A function that improves orders: rounds of DoGS, then moves of single steps where the scan is short."""
    descend = descent_on(matrix, candidate)

    def improve(order: NDArray[np.int64]) -> NDArray[np.int64]:
        for _ in range(rounds):
            order = descend(Scan(order), weights, -np.inf)[0].order
        return move_single_steps(matrix, weights, candidate, order)

    return improve


def move_single_steps(
    matrix: Any, weights: NDArray[np.float64], candidate: NDArray[np.bool_], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The order after moves of single steps, or as it was when it is too long for that."""
    tries = int(_MOVE_BUDGET / (len(order) * (matrix.nnz + len(weights))))
    if len(order) < 2 or tries < len(order):  # not even one try for each step
        return order
    order = order.copy()
    parts = (frozen(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    move_steps(order, *parts, candidate, weights, tries)
    return order
