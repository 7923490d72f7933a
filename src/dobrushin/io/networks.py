"""What tables must be if their product is a Bayesian network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph


def sums_of(values: NDArray[np.float64], first: NDArray[Any]) -> NDArray[np.float64]:
    """Sums of the values from each of these places up to the next; too large ones are inf."""
    with np.errstate(over="ignore"):
        return np.add.reduceat(values, first)


def sums_to_one(sums: NDArray[np.float64], states: Any) -> NDArray[np.bool_]:
    """Which sums of the probabilities of so many states are 1 but for rounding.

    Published tables are rounded, to two digits at worst: 0.33 three times sums to 0.99.
    """
    return np.abs(sums - 1) <= np.maximum(0.01, 0.005 * np.asarray(states)) + 1e-9


def in_a_cycle(children: NDArray[Any], parents: NDArray[Any], n: int) -> int | None:
    """A variable that is its own ancestor, if there is one; an edge for each child and parent."""
    graph = sparse.csr_array((np.ones(len(children), dtype=np.int8), (parents, children)), shape=(n, n))
    count, group = csgraph.connected_components(graph, directed=True, connection="strong")
    if count == n:
        return None
    return int(np.argmax(np.bincount(group)[group] > 1))
