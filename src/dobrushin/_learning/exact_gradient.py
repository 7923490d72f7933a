"""Expected statistics from a clique tree, where the model is narrow enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.clique_tree import clique_tree
from dobrushin._exact.elimination import collect, distribute, rounding_error
from dobrushin._learning.structure import Structure
from dobrushin._shared.arrays import prefix_sums
from dobrushin.errors import BudgetError


class Exact:
    """Marginals of all edges and variables; the tree is that of the edges, so that one serves all parameters."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        try:
            self._tree = clique_tree(structure.pairwise(structure.start))
        except BudgetError as refusal:
            remedy = "Use method='gibbs'."
            raise BudgetError("The exact gradient", refusal.required, refusal.limit, "bytes", remedy) from None
        tree, sizes, edges = self._tree, structure.sizes, structure.edges
        self._single_start = prefix_sums(sizes).astype(np.int64)
        self._pair_start = prefix_sums(sizes[edges].prod(axis=1)).astype(np.int64)
        # An edge lies in the clique that sums out the end that is eliminated first.
        self._edges_in: list[list[int]] = [[] for _ in tree.cliques]
        for e, (a, b) in enumerate(edges.tolist()):
            self._edges_in[tree.homes[min(a, b, key=tree.rank.__getitem__)]].append(e)

    def expectation(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
        """Means of all statistics, a bound on their rounding errors, and the log-partition function."""
        structure, tree = self._structure, self._tree
        model = structure.pairwise(full)
        tables, messages, log_partition = collect(model, tree, "fit")
        distribute(tree, tables, messages)
        pairs = np.zeros(int(self._pair_start[-1]))
        singles = np.zeros(int(self._single_start[-1]))
        for c, (table, clique) in enumerate(zip(tables, tree.cliques, strict=True)):
            weights = np.exp(table - table.max())
            weights /= weights.sum()
            for v in clique[: tree.summed[c]]:
                singles[self._single_start[v] : self._single_start[v + 1]] = _onto(weights, clique, [v])
            for e in self._edges_in[c]:
                ends = structure.edges[e].tolist()
                pairs[self._pair_start[e] : self._pair_start[e + 1]] = _onto(weights, clique, ends).ravel()
        # Relative errors of probabilities, and the roundings of what is added up here, of statistics of size 1.
        cells = max(table.size for table in tables)
        error = 2.0 * rounding_error(model, model, tree, 0.0) + 2.0**-50 * cells
        bias = error if error < structure.difference else np.inf
        return structure.expectations(pairs, singles), bias, log_partition

    def log_partition(self, full: NDArray[np.float64]) -> float:
        """The log-partition function alone."""
        return collect(self._structure.pairwise(full), self._tree, "fit")[2]


def _onto(weights: NDArray[np.float64], clique: list[int], variables: list[int]) -> NDArray[np.float64]:
    """The marginal of some members of a clique, one axis each in the order given."""
    axes = [clique.index(v) for v in variables]
    marginal = weights.sum(axis=tuple(k for k in range(len(clique)) if k not in axes))
    return marginal.transpose(np.argsort(np.argsort(axes)))
