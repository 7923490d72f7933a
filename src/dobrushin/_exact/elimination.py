"""Exact marginals of all variables at once, by a clique tree in log space.

Messages are summed upwards through the tree and then downwards (Lauritzen and Spiegelhalter 1988, in the form of
Jensen, Lauritzen and Olesen 1990).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.clique_tree import CliqueTree
from dobrushin._models import Model
from dobrushin.errors import ArgumentError


@dataclass(frozen=True)
class Elimination:
    """What a calibrated clique tree knows: log Z, one array of probabilities per variable, and what that took.

    `error` bounds the rounding error of each probability, relative to it.
    """

    log_partition: float
    marginals: list[NDArray[np.float64]]
    width: int
    memory: int
    error: float


class NoAllowedState(ArgumentError):
    """A model that forbids every joint state."""


def eliminate(
    model: Model, tree: CliqueTree, function: str, source: Model | None = None, rounding: float = 0.0
) -> Elimination:
    """Marginals of all variables and the log-partition function; `function` is named in errors.

    The bound on the error is for the model `source` that this one was made from by adding factors up, and whose own
    log-density was off by `rounding`.
    """
    tables, messages, log_mass = collect(model, tree, function)
    distribute(tree, tables, messages)
    error = rounding_error(model, model if source is None else source, tree, rounding)
    return Elimination(log_mass, _read_marginals(tree, tables), tree.width, tree.memory, error)


def rounding_error(model: Model, source: Model, tree: CliqueTree, rounding: float) -> float:
    """Bound on the relative error of a marginal probability; infinite where nothing is known.

    A rounding of an entry of a table or message, by d in the logarithm, is a factor exp(d) on the variables of that
    clique: what is computed is exact for a model whose log-density is off by at most the sum E of all of these, and
    its probabilities are off by at most exp(2 E) - 1. Entries are at most M in size, the sum of the factors' ranges and
    of the logarithms of the sums; a sum of K exponentials is good to K + 8 roundings.
    """
    graph = source.to_factor_graph()
    sizes = model.cardinalities
    finite = np.abs(np.where(graph._form.table > -np.inf, graph._form.table, 0.0))
    filled = np.flatnonzero(np.diff(graph._form.table_start))
    largest = np.maximum.reduceat(finite, graph._form.table_start[:-1][filled]) if len(finite) else np.zeros(0)
    size = 2.0 * float(largest.sum()) + float(np.log(graph.cardinalities).sum())
    cliques = len(tree.cliques)
    sums = 2 * sum(math.prod(int(sizes[v]) for v in clique) for clique in tree.cliques)
    # Twice the factors: they may have been added up, and are added to tables.
    total = rounding + 2.0**-53 * ((3.0 * graph.n_factors + 12.0 * cliques) * size + sums + 24.0 * cliques)
    return math.expm1(2.0 * total) + 2.0**-50 if 2.0 * total < 0.5 else math.inf


def collect(
    model: Model, tree: CliqueTree, function: str
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]], float]:
    """Upward pass: tables that hold the terms at and below each clique, messages to the parents, and log Z.

    Every term and every message is shifted to a maximum of 0 and the shifts are added up apart, so that neither a
    large model nor a large potential costs digits.
    """
    sizes = model.cardinalities.tolist()
    tables = [np.zeros([sizes[v] for v in clique]) for clique in tree.cliques]
    shifts = _place_terms(model, tree, tables, function)
    messages = []
    for table, clique, s, parent in zip(tables, tree.cliques, tree.summed, tree.parents, strict=True):
        message = log_sum(table, tuple(range(s)))
        top = float(message.max())
        if top == -math.inf:
            raise NoAllowedState(function, "model", "one that allows some joint state", model)
        shifts.append(top)
        message -= top
        if parent >= 0:
            tables[parent] += _aligned(message, clique[s:], tree.cliques[parent])
        messages.append(message)
    return tables, messages, math.fsum(shifts)


def _place_terms(model: Model, tree: CliqueTree, tables: list[NDArray[np.float64]], function: str) -> list[float]:
    """Add each factor to a clique that contains it; returns the maxima that were taken off."""
    graph = model.to_factor_graph()
    shifts = []
    reach = 0.0
    for k in range(graph.n_factors):
        scope, table = graph.factor(k)
        top = float(table.max())
        if top == -math.inf:
            raise NoAllowedState(function, "model", "one that allows some joint state", model)
        shifts.append(top)
        reach += 2 * float(np.abs(table, where=table > -np.inf, out=np.zeros(table.shape)).max())
        if reach == math.inf:
            raise ArgumentError(function, "model", "one whose log-potentials have a finite sum", model, f"factor {k}")
        if scope:
            home = tree.homes[min(scope, key=tree.rank.__getitem__)]
            tables[home] += _aligned(table - top, scope, tree.cliques[home])
    return shifts


def distribute(tree: CliqueTree, tables: list[NDArray[np.float64]], messages: list[NDArray[np.float64]]) -> None:
    """Downward pass, in place: afterwards each table is the log-marginal of its clique, up to a constant."""
    for c in reversed(range(len(tables))):
        if tree.parents[c] < 0:
            continue
        shared = tree.cliques[c][tree.summed[c] :]
        above = tree.cliques[tree.parents[c]]
        whole = log_sum(tables[tree.parents[c]], tuple(k for k, v in enumerate(above) if v not in shared))
        # What the parent knows beyond the message that came from here. Where that message was -inf so is the table.
        news = np.full(whole.shape, -np.inf)
        np.subtract(whole, messages[c], out=news, where=messages[c] > -np.inf)
        tables[c] += news


def _read_marginals(tree: CliqueTree, tables: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    marginals: list[NDArray[np.float64]] = [np.empty(0)] * len(tree.homes)
    for table, clique, s in zip(tables, tree.cliques, tree.summed, strict=True):
        weights = table - table.max()
        np.exp(weights, out=weights)
        for k, v in enumerate(clique[:s]):
            size = table.shape[k]
            before = math.prod(table.shape[:k])
            marginal = weights.reshape(before, size, -1).sum(axis=(0, 2))
            marginals[v] = marginal / marginal.sum()
    return marginals


def _aligned(array: NDArray[np.float64], scope: Any, clique: list[int]) -> NDArray[np.float64]:
    """The array with one axis per member of the clique, of length 1 for those outside its scope."""
    axes = sorted(range(len(scope)), key=lambda k: clique.index(scope[k]))
    size = dict(zip(scope, array.shape, strict=True))
    return array.transpose(axes).reshape([size.get(v, 1) for v in clique])


def log_sum(table: NDArray[np.float64], axes: tuple[int, ...]) -> NDArray[np.float64]:
    """log sum exp over some axes; -inf where all that is summed is -inf."""
    top = table.max(axis=axes, keepdims=True)
    top[np.isneginf(top)] = 0.0
    shifted = table - top
    total = np.exp(shifted, out=shifted).sum(axis=axes, keepdims=True)
    with np.errstate(divide="ignore"):
        np.log(total, out=total)
    total += top
    return total.squeeze(axis=axes)
