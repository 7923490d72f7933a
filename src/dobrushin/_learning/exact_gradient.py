"""Expected statistics from sums over all states, where the model is narrow enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.engine import SumPlan, plan_sums
from dobrushin._learning.structure import Structure
from dobrushin._models.factors import FactorTables
from dobrushin._shared.memory import memory_limit
from dobrushin.errors import BudgetError


class Exact:
    """Marginals of all edges and variables; the plan is that of the edges, so that one serves all parameters."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._limit = memory_limit(None)
        edges = [tuple(edge) for edge in structure.edges.tolist()]
        singles = [(v,) for v in range(len(structure.sizes))]
        tables = self._tables(structure.start)
        self._n_edges = len(edges)
        try:
            self._plan: SumPlan = plan_sums(tables, [*edges, *singles], self._limit)
        except BudgetError as refusal:
            remedy = "Use method='gibbs'."
            raise BudgetError("The exact gradient", refusal.required, refusal.limit, refusal.unit, remedy) from None
        self._alone = self._plan.asking(tables, [])

    def expectation(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
        """Means of all statistics, a bound on their rounding errors, and the log-partition function."""
        structure = self._structure
        sums = self._plan.run(self._tables(full), limit=self._limit)
        parts = [part.ravel() for part in sums.marginals]
        pairs = np.concatenate([*parts[: self._n_edges], np.empty(0)])
        singles = np.concatenate(parts[self._n_edges :])
        # Relative errors of probabilities, and the roundings of what is added up here, of statistics of size 1.
        cells = max(part.size for part in parts)
        error = 2.0 * sums.relative + cells * (2.0 * sums.absolute + 2.0**-50)
        bias = error if error < structure.difference else np.inf
        return structure.expectations(pairs, singles), bias, sums.log_partition

    def log_partition(self, full: NDArray[np.float64]) -> float:
        """The log-partition function alone."""
        return self._alone.run(self._tables(full), limit=self._limit).log_partition

    def _tables(self, full: NDArray[np.float64]) -> FactorTables:
        return self._structure.pairwise(full)._form.tables()
