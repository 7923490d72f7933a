"""Choosing a kernel for a model, a scan and a number of chains, and making its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence.factors import pack_factors
from dobrushin._kernels.tables import binary_tables
from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
from dobrushin._models.spins import TABLE_ORDER
from dobrushin._sampling.kernels import MANY_SWEEPS, Bits, Factors, Field, Kernel, PottsLanes, Table
from dobrushin._sampling.region import Region
from dobrushin._scan import Cycle, Draw, Scan
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError

KERNELS = ("bits", "table", "field", "potts", "factors")
UNIT = 2.0**-53
# Neighbours that a table of all configurations is made for.
MOST_NEIGHBORS = 6
# From so many chains on, words of 64 are faster than one chain after the other.
FEW_CHAINS = 16
# Larger tables (32 MB) are worth it for so many chains only.
LARGEST_BITS, MANY_CHAINS = 2**22, 256
# Thresholds that a table may have: 4 MB.
LARGEST_TABLE = 2**19
# Exponentials of larger sums could overflow.
SAFE_EXPONENT = 500.0


def choice_error(scan: Scan, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the rounding of a random scan's choices adds to the error of an update.

    A variable is chosen with a probability that is off by at most 2^-62. The certificate weighs the error of an update
    with the probability q of its variable, so the error has to be 2^-62 / q.
    """
    error = np.zeros(len(positions))
    for segment in scan.segments:
        if isinstance(segment, Draw):
            q = np.zeros(max(segment.n, int(positions[-1]) + 1))
            q[: segment.n] = segment.vector()
            here = q[positions]
            error = np.maximum(error, np.divide(2.0**-62, here, out=np.zeros_like(here), where=here > 2.0**-62))
            error[(here > 0) & (here <= 2.0**-62)] = 1.0
    return error


def update_error(n: int, scan: Scan, region: Region, made: Kernel) -> NDArray[np.float64]:
    """For each variable of a model of `n`, a bound on the error of one of its updates; 0 for those without any."""
    error = np.zeros(n)
    updated = region.positions[region.updated]
    error[updated] = np.minimum(made.error[region.updated] + choice_error(scan, updated), 1.0)
    return error


def build_kernel(model: Model, scan: Scan, region: Region, chains: int, wanted: str | None) -> Kernel:
    """The kernel asked for, or the fastest that fits."""
    possible = possible_kernels(model, scan, region)
    if wanted is None:
        wanted = _fastest(scan, region, chains, possible)
    elif wanted not in possible:
        reason = f"one of {', '.join(map(repr, possible))} for this model and scan"
        raise ArgumentError("sample", "kernel", reason, wanted)
    if wanted in ("bits", "table"):
        neighbor, probability, error = binary_tables_of(model, region)
        if wanted == "bits":
            threshold = np.minimum(np.rint(probability * 2.0**64), np.nextafter(2.0**64, 0)).astype(np.uint64)
            threshold[probability == 1] = np.uint64(2**64 - 1)
            return Bits(
                region, neighbor, frozen(threshold), frozen(probability == 1), np.minimum(error + 2.0**-52, 1.0)
            )
        threshold = np.rint(probability * 2.0**63).astype(np.uint64)
        return Table(region, neighbor, frozen(threshold), np.minimum(error + 2.0**-52, 1.0))
    if wanted == "field":
        return _field(model, region)
    if wanted == "potts":
        return _potts(model, region)
    return _factors(model, region)


def possible_kernels(model: Model, scan: Scan, region: Region) -> list[str]:
    """The kernels that can run this scan on this model."""
    if isinstance(model, SpinMRF) and model.order > TABLE_ORDER:
        requirement = f"without terms of more than {TABLE_ORDER} variables"
        raise ArgumentError("sample", "model", requirement, got=f"a term of {model.order}")
    possible = ["factors"]
    if isinstance(model, Ising):
        possible.insert(0, "field")
    if isinstance(model, Potts) and _spread(model, region) < SAFE_EXPONENT:
        possible.insert(0, "potts")
    if region.degree <= MOST_NEIGHBORS and (model._spins or (model.cardinalities[region.positions] == 2).all()):
        possible.insert(0, "table")
        if not scan.is_random:
            possible.insert(0, "bits")
    return possible


def _fastest(scan: Scan, region: Region, chains: int, possible: list[str]) -> str:
    cells = len(region.updated) * 2 ** max(4, region.degree)
    if "bits" in possible and chains >= FEW_CHAINS and (cells <= LARGEST_BITS or chains >= MANY_CHAINS):
        return "bits"
    # A table costs as much as some draws for each of its entries, and is slow where it does not fit in a cache.
    pays = len(scan) * chains > 4 * cells and cells < LARGEST_TABLE and not _long_sweeps(scan)
    if "table" in possible and (pays or "field" not in possible):
        return "table"
    return next(name for name in ("field", "potts", "factors") if name in possible)


def _long_sweeps(scan: Scan) -> bool:
    """Whether most of the steps repeat a long cycle, which can be run in waves."""
    steps = [s.steps for s in scan.segments if isinstance(s, Cycle) and s.steps >= MANY_SWEEPS * len(s.cycle) > 10_000]
    return 2 * sum(steps) > len(scan)


def binary_tables_of(
    model: Model, region: Region
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Neighbours (filled up with a dummy), P(1) for each of their configurations, and its error."""
    width = 4 if region.degree <= 4 else 6
    degree = np.diff(region.start)
    neighbor = np.full((region.size, width), region.size, dtype=np.int64)
    slot = np.arange(len(region.neighbor)) - np.repeat(region.start[:-1], degree)
    row = np.repeat(np.arange(region.size), degree)
    neighbor[row, slot] = region.neighbor
    if isinstance(model, Ising):
        theta = np.zeros((region.size, width))
        theta[row, slot] = model.couplings.data[region.entry]
        field = model.fields[region.positions]
        signs = 2.0 * ((np.arange(2**width)[:, None] >> np.arange(width)) & 1) - 1.0
        with np.errstate(over="ignore"):
            probability = 1.0 / (1.0 + np.exp(-2.0 * (field[:, None] + theta @ signs.T)))
        error = UNIT * ((width + 2) * (np.abs(theta).sum(axis=1) + np.abs(field)) + 8.0)
        return frozen(neighbor), frozen(probability), frozen(np.minimum(error, 1.0))
    probability = np.zeros((region.size, 2**width))
    error = np.zeros(region.size)
    own = region.updated
    part_probability, part_error = np.zeros((len(own), 2**width)), np.zeros(len(own))
    graph, starts = model.to_factor_graph(), np.concatenate([[0], np.cumsum(degree[own])])
    packed = pack_factors(graph, region.positions[own], starts, region.positions[region.neighbor])
    binary_tables(
        frozen(starts), packed.f_start, packed.m_start, packed.m_of, packed.m_stride, packed.own_stride, packed.base,
        graph._table, part_probability, part_error,
    )  # fmt: skip
    probability[own], error[own] = part_probability, part_error
    return frozen(neighbor), frozen(probability), frozen(np.minimum(error, 1.0))


def _field(model: Model, region: Region) -> Field:
    assert isinstance(model, Ising)
    theta, field = model.couplings.data[region.entry], model.fields[region.positions]
    degree = np.diff(region.start)
    size = np.abs(field) + degree * max(theta.max(initial=0.0), -theta.min(initial=0.0))
    # The exponential of the waves is good to 2^-48.
    error = UNIT * ((degree + 2) * size + 64.0)
    return Field(region, frozen(theta), frozen(field), frozen(np.minimum(error, 1.0)))


def _potts(model: Model, region: Region) -> PottsLanes:
    assert isinstance(model, Potts)
    strength = model.couplings.data[region.entry]
    unary = model.unaries[region.positions]
    size = _row_sums(np.abs(strength), region) + np.abs(np.where(unary > -np.inf, unary, 0.0)).max(axis=1)
    k = unary.shape[1]
    error = UNIT * (2.0 * size + 8.0 * (np.diff(region.start) + k + 4))
    relative = np.exp(unary - unary.max(axis=1, keepdims=True))
    return PottsLanes(region, frozen(np.exp(strength)), frozen(relative), frozen(np.minimum(error, 1.0)))


def _factors(model: Model, region: Region) -> Factors:
    graph, parts = local_factors(model, region)
    counts, size = np.diff(parts[0]), largest_factors(graph, parts, region)
    k = graph.cardinalities[region.positions]
    error = UNIT * (8.0 * (counts + 2) * size + 8.0 * (k + 4))
    return Factors(region, frozen(k), parts, graph._table, frozen(np.minimum(error, 1.0)))


def largest_factors(graph: FactorGraph, parts: tuple[NDArray[Any], ...], region: Region) -> NDArray[np.float64]:
    """For each updated variable, the sum of the largest finite entries of its factors."""
    largest = np.zeros(graph.n_factors)
    finite = np.abs(np.where(graph._table > -np.inf, graph._table, 0.0))
    filled = np.flatnonzero(np.diff(graph._table_start))
    largest[filled] = np.maximum.reduceat(finite, graph._table_start[:-1][filled]) if len(finite) else 0.0
    used = np.searchsorted(graph._table_start, parts[-1], side="right") - 1
    row = np.repeat(np.arange(region.size), np.diff(parts[0]))
    return np.bincount(row, weights=largest[used], minlength=region.size).astype(np.float64)


def local_factors(model: Model, region: Region) -> tuple[FactorGraph, tuple[NDArray[Any], ...]]:
    """The factors of the updated variables: f_start, m_start, member, m_stride, own_stride, base (see `Packed`).

    Members are by own number instead of by place in the row's list of neighbours.
    """
    graph = model.to_factor_graph()
    own = region.updated
    starts = np.concatenate([[0], np.cumsum(np.diff(region.start)[own])])
    packed = pack_factors(graph, region.positions[own], starts, region.positions[region.neighbor])
    factors = np.repeat(np.arange(len(own)), np.diff(packed.f_start))
    row = np.repeat(factors, np.diff(packed.m_start))
    member = region.neighbor[starts[row] + packed.m_of].astype(np.int64)
    counts = np.zeros(region.size, dtype=np.int64)
    counts[own] = np.diff(packed.f_start)
    f_start = np.concatenate([[0], np.cumsum(counts)])
    parts = (f_start, packed.m_start, member, packed.m_stride, packed.own_stride, packed.base)
    return graph, tuple(frozen(part) for part in parts)


def _spread(model: Potts, region: Region) -> float:
    """The largest exponent that a product of weights can have."""
    sums = _row_sums(np.abs(model.couplings.data[region.entry]), region)
    unary = model.unaries[region.positions]
    gap = unary.max(axis=1) - np.where(unary > -np.inf, unary, np.inf).min(axis=1)
    return float((sums + gap).max())


def _row_sums(values: NDArray[np.float64], region: Region) -> NDArray[np.float64]:
    row = np.repeat(np.arange(region.size), np.diff(region.start))
    return np.bincount(row, weights=values, minlength=region.size).astype(np.float64)


def has_hard_zeros(model: Model) -> bool:
    """Whether some combination of states is forbidden."""
    if isinstance(model, Ising | SpinMRF):
        return False
    if isinstance(model, Potts):
        return model._unaries is not None and bool(np.isneginf(model._unaries).any())
    if isinstance(model, PairwiseMRF):
        return bool(np.isneginf(model._table).any() or np.isneginf(model._unary).any())
    assert isinstance(model, FactorGraph)
    return bool(np.isneginf(model._table).any())
