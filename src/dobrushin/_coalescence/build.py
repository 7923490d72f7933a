"""Choosing a kernel of sets for a model, and bounding its errors. [trusted]"""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._coalescence.kernels import SetBits, SetField, SetKernel, SetRace
from dobrushin._models import Ising, Model
from dobrushin._sampling.allowed_state import allowed_state
from dobrushin._sampling.build import (
    MOST_NEIGHBORS,
    UNIT,
    binary_tables_of,
    has_hard_zeros,
    largest_factors,
    local_factors,
)
from dobrushin._sampling.kernels import Kernel
from dobrushin._sampling.region import Region
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError, BudgetError

# States are kept in 16 bits, and -1 stands for none.
_MOST_STATES = 2**15 - 1


def check_feasible(model: Model, function: str) -> None:
    """A model that allows no state has no law; where the search for one gives up, the caller is believed."""
    if has_hard_zeros(model):
        with contextlib.suppress(BudgetError):
            if allowed_state(model) is None:
                raise ArgumentError(function, "model", "one that allows some joint state", model)


def build_sets(model: Model, region: Region) -> SetKernel:
    """The fastest kernel that fits the model.

    Which one that is depends on the model alone: exact draws run ever larger regions with the same random words, and
    every step has to be the same map each time.
    """
    spins = as_ising(model)
    if spins is None:
        return _race(model, region)
    if int(np.diff(model._adjacency[0]).max(initial=0)) <= MOST_NEIGHBORS:
        return _bits(model, spins, region)
    return _field(model, spins, region)


def _bits(model: Model, spins: Ising, region: Region) -> SetBits:
    neighbor, probability, error = binary_tables_of(model, region)
    size, width = region.size, neighbor.shape[1]
    degree = np.diff(region.start)
    follows = np.ones((size, width), dtype=np.bool_)
    slot = np.arange(len(region.neighbor)) - np.repeat(region.start[:-1], degree)
    follows[np.repeat(np.arange(size), degree), slot] = spins.couplings.data[region.entry] >= 0
    absent = neighbor == size
    low, high = np.where(absent, 2 * size, neighbor), np.where(absent, 2 * size, size + neighbor)
    rows = np.concatenate([np.where(follows, low, high), np.where(follows, high, low)], axis=1)
    threshold = np.minimum(np.rint(probability * 2.0**64), np.nextafter(2.0**64, 0)).astype(np.uint64)
    # Both ends of the set are drawn.
    return SetBits(region, frozen(rows), frozen(threshold), frozen(np.minimum(2.0 * (error + 2.0**-52), 1.0)))


def as_ising(model: Model) -> Ising | None:
    """A model of binary variables with terms of at most two, none of them forbidden, as an Ising model."""
    if isinstance(model, Ising):
        return model
    if (model.cardinalities != 2).any() or has_hard_zeros(model):
        return None
    graph = model.to_factor_graph()
    arity, size = np.diff(graph._scope_start), np.diff(graph._table_start)
    if arity.max(initial=0) > 2:
        return None
    fields = np.zeros(graph.n_variables)
    single = np.flatnonzero(arity == 1)
    tables = graph._table[graph._table_start[single][:, None] + np.arange(2)]
    np.add.at(fields, graph._scope[graph._scope_start[single]], 0.5 * (tables[:, 1] - tables[:, 0]))
    double = np.flatnonzero(arity == 2)
    assert (size[double] == 4).all()
    t00, t01, t10, t11 = graph._table[graph._table_start[double][:, None] + np.arange(4)].T
    i, j = graph._scope[graph._scope_start[double]], graph._scope[graph._scope_start[double] + 1]
    np.add.at(fields, i, 0.25 * ((t10 - t00) + (t11 - t01)))
    np.add.at(fields, j, 0.25 * ((t01 - t00) + (t11 - t10)))
    strength = 0.25 * ((t00 - t01) + (t11 - t10))
    n = graph.n_variables
    # Where couplings cancel, neighbours stay neighbours, so that places in the model's lists agree.
    start, columns = model._adjacency
    entries = np.repeat(np.arange(n), np.diff(start)) * n + columns
    values = np.zeros(len(columns))
    np.add.at(values, np.searchsorted(entries, i * n + j), strength)
    np.add.at(values, np.searchsorted(entries, j * n + i), strength)
    return Ising._make(sparse.csr_array((values, columns, start), (n, n)), fields, graph.labels)


def _field(model: Model, spins: Ising, region: Region) -> SetField:
    theta, field = spins.couplings.data[region.entry], spins.fields[region.positions]
    terms = np.diff(region.start).astype(np.int64)
    size = np.abs(field) + terms * np.abs(theta).max(initial=0.0)
    if spins is not model:  # many terms may have been added up, and may have cancelled
        graph, parts = local_factors(model, region)
        terms = terms + np.diff(parts[0])
        size = np.maximum(size, 2.0 * largest_factors(graph, parts, region))
    # Two ends, each with a local field and an exponential; the parameters themselves were rounded on the way here.
    error = 2.0 * UNIT * ((2 * terms + 16) * size + 256.0)
    return SetField(region, frozen(theta), frozen(field), frozen(np.minimum(error, 1.0)))


def _race(model: Model, region: Region) -> SetRace:
    if int(model.cardinalities.max()) > _MOST_STATES:
        requirement = f"of variables with at most {_MOST_STATES} states"
        raise ArgumentError("coalescence", "model", requirement, int(model.cardinalities.max()))
    graph, parts = local_factors(model, region)
    k = graph.cardinalities[region.positions]
    counts = np.diff(parts[0])
    size = largest_factors(graph, parts, region)
    # A set is wrong only if a difference of two arrival times, whose density is at most 1/4, is nearer to its limit
    # than all roundings together; for each of k (k - 1) ordered pairs. The last term is for the grid of the words.
    near = 2.0 * UNIT * ((counts + 4) * size + 128.0)
    error = k * (k - 1) * near + 128.0 * k * UNIT
    first = np.concatenate([[0], np.cumsum(k)[:-1]])
    largest = int(model.cardinalities.max())
    return SetRace(region, largest, frozen(k), frozen(first), parts, graph._table, frozen(np.minimum(error, 1.0)))


def run_error(kernel: Kernel, visits: NDArray[np.int64]) -> float:
    """Bound on the probability that any draw of a run is wrong, given how often each variable is updated."""
    return min(1.0, float(kernel.error @ visits) * (1 + 1e-9))
