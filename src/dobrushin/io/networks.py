"""What tables must be if their product is a Bayesian network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

# Rows that miss 1 by more than this are not rounded but wrong, and by less than this for each state they do not.
_SLIGHT, _ROUNDING = 1e-5, 1e-15


def sums_of(values: NDArray[np.float64], first: NDArray[Any]) -> NDArray[np.float64]:
    """Sums of the values from each of these places up to the next; too large ones are inf."""
    with np.errstate(over="ignore"):
        return np.add.reduceat(values, first)


def sums_to_one(sums: NDArray[np.float64], states: Any) -> NDArray[np.bool_]:
    """Which sums of the probabilities of so many states are 1 but for rounding.

    Published tables are rounded, to two digits at worst: 0.33 three times sums to 0.99.
    """
    return np.abs(sums - 1) <= np.maximum(0.01, 0.005 * np.asarray(states)) + 1e-9


def normalise(table: NDArray[np.float64], sums: NDArray[np.float64], states: Any) -> NDArray[np.float64]:
    """Tables of probabilities, whose rows have these sums and numbers of states, with rows that sum to 1.

    Published tables are rounded, and their product is then no Bayesian network: what does not matter in a network would
    matter a little. Rows that miss 1 by more than `_SLIGHT` are left as they are, and so is what is 1 but for rounding.
    """
    off = np.abs(sums - 1)
    divisor = np.where((off > _ROUNDING * np.asarray(states)) & (off <= _SLIGHT), sums, 1.0)
    return table / np.repeat(divisor, states)


def in_a_cycle(children: NDArray[Any], parents: NDArray[Any], n: int) -> int | None:
    """A variable that is its own ancestor, if there is one; an edge for each child and parent."""
    graph = sparse.csr_array((np.ones(len(children), dtype=np.int8), (parents, children)), shape=(n, n))
    count, group = csgraph.connected_components(graph, directed=True, connection="strong")
    if count == n:
        return None
    return int(np.argmax(np.bincount(group)[group] > 1))
