"""Expectation maximisation for the conditional probability tables of Bayesian networks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from scipy import sparse

from dobrushin._learning.ascent import Ascent, AscentOptions, Expectation, Vector
from dobrushin._learning.data import Observed
from dobrushin._learning.structure import Structure
from dobrushin._models import FactorGraph
from dobrushin._models.derived import find_parents
from dobrushin._models.factors import FactorTables
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Ints, frozen, prefix_sums, row_entries
from dobrushin._shared.call import public
from dobrushin._shared.running import kept_seed
from dobrushin.errors import ArgumentError


@dataclass(frozen=True)
class EM:
    """Options of expectation maximisation, the method of `fit` for Bayesian networks.

    Parameters
    ----------
    prior : number
        Dirichlet prior: this many additional observations of each entry of each table (0: maximum likelihood; 1:
        Laplace's rule). Entries that are 0 in the model stay 0.
    starts : int
        Number of starts; the best result is kept. The first start has the tables of the model, the others random
        ones.

    Notes
    -----
    Each iteration replaces every conditional probability by the share of its expected count, given the observed values
    and the tables before. The expected counts are exact sums. The log-likelihood, with the logarithm of the prior,
    never falls (Dempster, Laird and Rubin 1977).

    Examples
    --------
    >>> import dobrushin as db
    >>> nan = float("nan")
    >>> data = [[0, 0], [0, 0], [1, 1], [1, nan], [nan, 1]]
    >>> found = db.fit([(0, 1)], data, family="bayesian", method=db.EM(prior=1.0))
    >>> found.converged, found.imputed
    (True, Imputed(values=2, mean_probability=0.7...))
    """

    prior: float = 0.0
    starts: int = 1

    @public()
    def __post_init__(self) -> None:
        check.non_negative(self.prior, "prior")
        check.count(self.starts, "starts")


def network_structure(model: FactorGraph) -> Structure | None:
    """Return the log-linear structure of a Bayesian network, in its log-probabilities; None for other models."""
    pairs = find_parents(model)
    if pairs is None:
        return None
    child_of = {k: i for i, k in pairs}
    order = sorted(child_of, key=lambda k: len(model.factor(k)[0]))
    scopes = [np.array(model.factor(k)[0], dtype=np.int64) for k in order]
    logs = [model.factor(k)[1] for k in order]
    sizes = np.array([log.size for log in logs], dtype=np.int64)
    start = np.concatenate([log.ravel() for log in logs])
    arity = np.array([len(scope) for scope in scopes])
    children = [scope.tolist().index(child_of[k]) for k, scope in zip(order, scopes, strict=True)]

    form = model._form
    _, own = row_entries(form.table_start[order], sizes)

    def make(full: Vector) -> FactorGraph:
        table = np.empty(len(full))
        table[own] = full
        return FactorGraph._from_form(
            FactorTables(form.sizes, form.scope_start, form.scope, form.table_start, table), model.labels
        )

    def names() -> list[tuple[Hashable, ...]]:
        found: list[tuple[Hashable, ...]] = []
        for scope, log in zip(scopes, logs, strict=True):
            labels = tuple(model.labels[i] for i in scope)
            found += [("table", *labels, *cell) for cell in np.ndindex(log.shape)]
        return found

    groups, count = [], 0
    for log, axis in zip(logs, children, strict=True):
        parents = np.arange(log.size // log.shape[axis]).reshape(
            [1 if a == axis else k for a, k in enumerate(log.shape)]
        )
        groups.append(count + np.broadcast_to(parents, log.shape).ravel())
        count += parents.size
    return Structure(
        FactorGraph, model.labels, frozen(model.cardinalities),
        [frozen(np.stack([s for s in scopes if len(s) == a])) for a in np.unique(arity).tolist()],
        frozen(np.arange(len(order))), frozen(prefix_sums(sizes)), np.zeros(len(start)),
        sparse.csr_array(sparse.eye_array(len(start), format="csr")), frozen(start),
        frozen(np.flatnonzero(np.isfinite(start))), names, make, model._state_names,
        rows=frozen(np.concatenate(groups)),
    )  # fmt: skip


def network_of_edges(
    edges: Ints, labels: Sequence[Hashable], states: Sequence[Sequence[Hashable] | int]
) -> FactorGraph:
    """Return the Bayesian network with these edges from parents to children, and uniform tables."""
    parents: dict[int, list[int]] = {i: [] for i in range(len(labels))}
    for parent, child in edges.tolist():
        parents[child].append(parent)
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle = " -> ".join(repr(labels[i]) for i in error.args[1])
        raise ArgumentError("model", "a network without a cycle", got=cycle) from None
    short = next(
        (label for label, own in zip(labels, states, strict=True) if not isinstance(own, int) and len(own) < 2), None
    )
    if short is not None:
        raise ArgumentError("data", f"columns of at least two different states, {short!r} among them", got="one state")
    sizes = [own if isinstance(own, int) else len(own) for own in states]
    factors = []
    for i, above in parents.items():
        shape = [sizes[v] for v in (*above, i)]
        factors.append(((*above, i), np.full(shape, -np.log(shape[-1]))))
    names: Any = [None if isinstance(own, int) else tuple(own) for own in states]
    return FactorGraph(sizes, factors, labels, state_names=names if any(names) else None)


class EMAscent(Ascent):
    """Expectation maximisation from several starts; `theta` has the tables of the best start so far."""

    method = "em"

    def __init__(
        self,
        structure: Structure,
        observed: Observed,
        options: AscentOptions,
        em: EM,
        sequence: np.random.SeedSequence,
    ) -> None:
        super().__init__(structure, observed, options, structure.start[structure.free])
        assert structure.rows is not None
        self._row_of: Ints = structure.rows[structure.free]
        self._prior = float(em.prior)
        self._tables = np.tile(self.theta, (em.starts, 1))
        if em.starts > 1:
            self.seed = kept_seed(sequence)
            weights = np.random.Generator(np.random.Philox(sequence)).standard_exponential(
                (em.starts - 1, len(self.theta))
            )
            for k, row in enumerate(weights, start=1):
                self._tables[k] = self._shares(row, self._tables[k])
        self._values = np.full(em.starts, -np.inf)

    def iterate(self) -> None:
        """Take one step of expectation maximisation from each start."""
        structure, rows = self.structure, self.observed.n_rows
        tables, values, likelihoods = self._tables.copy(), self._values.copy(), np.zeros(len(self._tables))
        change, error = 0.0, np.zeros(len(self.theta))
        for k, theta in enumerate(self._tables):
            entries = structure.fill(theta)
            counts, total = self.observed.counts, 0.0
            if self._missing is not None:
                sums = self._missing.run(entries)
                counts, total = counts + sums.entries, sums.log_partition
                error = np.maximum(error, self.error_of(sums, rows))
            seen = self.observed.counts > 0.0
            likelihoods[k] = (total + float(self.observed.counts[seen] @ entries[seen])) / rows
            values[k] = likelihoods[k] * rows
            if self._prior:
                values[k] += self._prior * float(theta.sum())
            tables[k] = self._shares(counts[structure.free] + self._prior, theta)
            change = max(change, float(np.abs(np.exp(tables[k]) - np.exp(theta)).max()))
        self._tables, self._values = tables, values
        best = int(values.argmax())
        self.finish(tables[best], 1.0, change, Expectation(self.theta, error), float(likelihoods[best]))

    def _shares(self, counts: Vector, before: Vector) -> Vector:
        """Return log-probabilities from expected counts; a table row without counts keeps its probabilities."""
        totals = np.bincount(self._row_of, counts)[self._row_of]
        with np.errstate(divide="ignore"):
            return np.where(totals > 0.0, np.log(counts / np.where(totals > 0.0, totals, 1.0)), before)

    def to_arrays(self) -> dict[str, Any]:
        return super().to_arrays() | {"tables": self._tables, "values": self._values}

    def restore(self, arrays: dict[str, Any]) -> None:
        super().restore(arrays)
        self._tables, self._values = arrays["tables"], arrays["values"]
