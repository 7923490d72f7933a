"""Exact expected counts of table entries, under a log-linear model or given observations with missing values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._exact.arithmetic import NoAllowedState
from dobrushin._exact.batch import NEGLIGIBLE, BatchProgram
from dobrushin._exact.engine import SumPlan, plan_sums
from dobrushin._exact.program import Scope
from dobrushin._learning.structure import Structure
from dobrushin._models.factors import FactorTables
from dobrushin._shared.arrays import Array, Floats, Ints, prefix_sums
from dobrushin._shared.memory import memory_limit
from dobrushin.errors import ArgumentError, BudgetError

# Models are summed one by one where there are fewer of them, or where they have more combinations of states.
_MIN_BATCH, _MAX_ENTRIES = 3, 2**18
# Most numbers in the tables of the models that are summed together.
_NUMBERS_AT_ONCE = 2**22


class ExpectedCounts(NamedTuple):
    """Sum of log partition functions over models, and expected counts of the table entries."""

    log_partition: float
    entries: Floats
    relative: float  # error of a probability p is at most relative p + absolute
    absolute: float


class _Shape(NamedTuple):
    """Connected components of the factor graph that have the same structure, so that they are summed together."""

    factors: Ints  # (factors of a part, parts)
    variables: Ints  # (variables of a part, parts)
    scopes: list[Scope]
    plan: SumPlan
    batch: BatchProgram


class _Found(NamedTuple):
    """Results for a batch of models: unnormalised marginals of groups of variables, and their totals."""

    weights: list[Floats]
    totals: list[Floats]
    log_partition: Floats
    relative: float
    absolute: float


class ExactSums:
    """Exact sums over the states of a log-linear model, or over the missing values of observations.

    Parameters
    ----------
    structure : Structure
    x : array of shape (variables, observations), optional
        Observed states counted from 0, and -1 where a value is missing. None: nothing is observed.
    numbers : array of int, optional
        Row of the data of each observation, for messages.
    singles : bool
        Sum the marginals of variables, and not those of factors.
    """

    def __init__(
        self, structure: Structure, x: Array | None = None, numbers: Any = (), *, singles: bool = False
    ) -> None:
        self.structure, self.x, self._numbers, self._singles = structure, x, numbers, singles
        self._limit = memory_limit(None)
        self._shapes = list(self._find_shapes())

    def _find_shapes(self) -> Iterator[_Shape]:
        """Group the connected components by their structure, and plan the sums of each group."""
        structure = self.structure
        scope_start, scope, _ = structure.shape
        factors, n = len(structure.table_of), structure.n
        graph = sparse.csr_array((np.ones(len(scope)), scope + factors, scope_start), shape=(factors, factors + n))
        graph.resize(factors + n, factors + n)
        _, part = csgraph.connected_components(graph, directed=False)
        part_of_factor, part_of_variable = part[:factors], part[factors:]
        variables = np.argsort(part_of_variable, kind="stable")
        first_variable = prefix_sums(np.bincount(part_of_variable, minlength=part.max() + 1))
        own = np.empty(n, dtype=np.int64)
        own[variables] = np.arange(n) - first_variable[part_of_variable[variables]]
        by_part = np.argsort(part_of_factor, kind="stable")
        first_factor = prefix_sums(np.bincount(part_of_factor, minlength=part.max() + 1))
        groups: dict[tuple[bytes, ...], list[tuple[Ints, Ints]]] = {}
        for k in range(part.max() + 1):
            inside = variables[first_variable[k] : first_variable[k + 1]]
            here = by_part[first_factor[k] : first_factor[k + 1]]
            pieces = [own[scope[a:b]] for a, b in zip(scope_start[here], scope_start[here + 1], strict=True)]
            arity = np.array([len(piece) for piece in pieces], dtype=np.int64)
            members = np.concatenate([*pieces, np.empty(0, dtype=np.int64)])
            key = structure.sizes[inside].tobytes(), arity.tobytes(), members.tobytes()
            groups.setdefault(key, []).append((here, inside))
        for (sizes, arity_bytes, members_bytes), parts in groups.items():
            start = prefix_sums(np.frombuffer(arity_bytes, dtype=np.int64)).tolist()
            flat = np.frombuffer(members_bytes, dtype=np.int64).tolist()
            scopes = [tuple(flat[a:b]) for a, b in itertools.pairwise(start)]
            yield self._plan(np.frombuffer(sizes, dtype=np.int64), scopes, parts)

    def _plan(self, sizes: Ints, scopes: list[Scope], parts: list[tuple[Ints, Ints]]) -> _Shape:
        alone = [(v,) for v in range(len(sizes))]
        everything = scopes + (alone if self.x is not None else [])
        asked = alone if self._singles else [scope for scope in scopes if scope]
        blocks = [(np.array([scope]), np.zeros((1, int(sizes[list(scope)].prod())))) for scope in everything]
        tables = FactorTables.from_blocks(sizes, blocks)
        try:
            plan = plan_sums(tables, asked, self._limit)
        except BudgetError as refusal:
            remedy = "Use method='gibbs'." if self.x is None else "Leave out the rows with missing values."
            raise BudgetError("The exact gradient", refusal.required, refusal.limit, refusal.unit, remedy) from None
        factors, variables = (np.stack(column, axis=1) for column in zip(*parts, strict=True))
        return _Shape(factors, variables, everything, plan, BatchProgram(plan.program))

    def run(self, entries: Floats, weights: Floats | None = None) -> ExpectedCounts:
        """Sum over all components and observations; observation k counts `weights[k]` times."""
        total, counts = 0.0, np.zeros(len(entries))
        relative = absolute = 0.0
        for shape in self._shapes:
            for parts, rows in self._batches(shape):
                logs, places = self._log_tables(shape, entries, parts, rows)
                count = len(parts) * max(1, len(rows))
                found = self._sum(shape, logs, count, rows)
                own = np.ones(count) if weights is None else weights[rows]
                total += float(found.log_partition @ own)
                relative, absolute = max(relative, found.relative), max(absolute, found.absolute)
                for place, table, sums in zip(places, found.weights, found.totals, strict=False):
                    share = own / sums
                    flat = table.reshape(len(place), -1)
                    if place.shape[1] > 1:
                        np.add.at(counts, place, flat * share)
                    else:
                        counts[place[:, 0]] += flat @ share if flat.shape[1] == count else flat[:, 0] * share.sum()
        return ExpectedCounts(total, counts, relative, absolute)

    def marginals(self, entries: Floats) -> Iterator[tuple[int, Ints, Floats]]:
        """Yield (variable, observations, probabilities): for some observations the law of the variable given each.

        The probabilities have shape (states, observations).
        """
        for shape in self._shapes:
            for parts, rows in self._batches(shape):
                logs, _ = self._log_tables(shape, entries, parts, rows)
                found = self._sum(shape, logs, len(rows), rows)
                for v, weights, total in zip(shape.variables[:, parts[0]], found.weights, found.totals, strict=True):
                    yield int(v), rows, np.broadcast_to(weights / total, (len(weights), len(rows)))

    def _batches(self, shape: _Shape) -> Iterator[tuple[Ints, Ints]]:
        """Yield batches: many components for one observation, or many observations for one component."""
        n_parts, n_rows = shape.factors.shape[1], 0 if self.x is None else self.x.shape[1]
        many = max(1, _NUMBERS_AT_ONCE // max(1, shape.plan.program.length))
        if self._singles or n_rows > 1:
            for part in range(n_parts):
                for k in range(0, n_rows, many):
                    yield np.array([part]), np.arange(k, min(k + many, n_rows))
        else:
            for k in range(0, n_parts, many):
                yield np.arange(k, min(k + many, n_parts)), np.arange(n_rows)

    def _log_tables(self, shape: _Shape, entries: Floats, parts: Ints, rows: Ints) -> tuple[list[Floats], list[Ints]]:
        """Return the log-tables of a batch, whose last axis is the model, and the indices of their entries.

        The indices, into the entries of the structure, have shape (entries, components), or (entries, 1) where all
        components share a table.
        """
        structure = self.structure
        sizes = structure.sizes[shape.variables[:, 0]]
        logs, places = [], []
        for scope, factors in zip(shape.scopes, shape.factors, strict=False):
            tables = structure.table_of[factors[parts]]
            if (tables == tables[0]).all():
                tables = tables[:1]
            place = structure.table_start[tables] + np.arange(int(sizes[list(scope)].prod()))[:, None]
            places.append(place)
            logs.append(entries[place].reshape(*sizes[list(scope)].tolist(), len(tables)))
        if self.x is not None:
            for v, size in enumerate(sizes.tolist()):
                seen = self.x[shape.variables[v, parts]][:, rows].reshape(-1)
                allowed = (seen == np.arange(size)[:, None]) | (seen < 0)
                logs.append(np.where(allowed, 0.0, -np.inf))
        return logs, [place for place, scope in zip(places, shape.scopes, strict=False) if scope]

    def _sum(self, shape: _Shape, logs: list[Floats], count: int, rows: Ints) -> _Found:
        """Sum a batch of models together; those whose numbers underflow, or very few models, one by one."""
        if count >= _MIN_BATCH and shape.plan.entries <= _MAX_ENTRIES:
            found = shape.batch.run(logs, count)
            left = np.flatnonzero(~found.is_valid)
            log_partition, relative, absolute = found.log_partition, found.relative, NEGLIGIBLE
            if not len(left):
                return _Found(found.weights, found.totals, log_partition, relative, absolute)
            marginals = found.marginals()
        else:
            left, log_partition, relative, absolute = np.arange(count), np.empty(count), 0.0, 0.0
            sizes = shape.plan.program.sizes
            marginals = [np.empty((*sizes[list(group)].tolist(), count)) for group in shape.plan.groups]
        for k in left.tolist():
            tables = [log[..., k if log.shape[-1] > 1 else 0].reshape(1, -1) for log in logs]
            scopes = [np.array([scope], dtype=np.int64).reshape(1, -1) for scope in shape.scopes]
            blocks = list(zip(scopes, tables, strict=True))
            try:
                sums = shape.plan.run(FactorTables.from_blocks(shape.plan.program.sizes, blocks), limit=self._limit)
            except NoAllowedState:
                if not len(rows):
                    raise
                row = int(self._numbers[rows[k if len(rows) > 1 else 0]])
                raise ArgumentError(
                    "data", "allowed by the model", got="a row of probability 0", where=f"row {row}"
                ) from None
            log_partition[k] = sums.log_partition
            relative, absolute = max(relative, sums.relative), max(absolute, sums.absolute)
            for marginal, part in zip(marginals, sums.marginals, strict=True):
                marginal[..., k] = part
        return _Found(marginals, [np.ones(1)] * len(marginals), log_partition, relative, absolute)
