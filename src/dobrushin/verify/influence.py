"""How much a neighbour can move a variable, by the theorems in their plainest form; and the pass that adds it up.

All bounds are upper bounds in floating point too: each is moved up by more than its own rounding.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import require
from dobrushin.verify.factors import UNIT, Factors, Neighbourhood

# Enumerate a neighbourhood while states x configurations x neighbours' states stay below this.
MOST_WORK = 1.2e5
# The same for a binary variable among binary ones: 2 to this power.
MOST_BINARY = 13
# Pairs of states of neighbours that are compared one by one.
MOST_PAIRS = 2**22
# The leads of own states over each other are looked at while there are not more.
MOST_LEADS = 2**26
FLOOR = 2.0**-1000


class Row:
    """The influence of each neighbour on a variable, and the most that all of them can do together."""

    def __init__(self, factors: Factors, variable: int) -> None:
        hood = factors.around(variable)
        work = hood.own * hood.cells * (1.0 + sum(hood.sizes))
        is_binary = hood.own == 2 and all(size == 2 for size in hood.sizes)
        values: list[float] = []
        self.cap = 0.0
        if work <= MOST_WORK or (is_binary and len(hood.others) <= MOST_BINARY):
            values, self.cap = _by_enumeration(hood)
        elif hood.others:
            values, self.cap = _by_closed_forms(hood)
        self.pairs = list(zip(hood.others, values, strict=True))


def gap(D: float, h: float) -> float:
    """sigma(h + D/2) - sigma(h - D/2), from above."""
    if D <= 0.0:
        return 0.0
    x, top = 0.5 * D, max(0.5 * D, h)
    if not top < math.inf:
        return 1.0
    upper = math.exp(x - top) * -math.expm1(-D)
    lower = math.exp(h - top) + math.exp(-h - top) + math.exp(x - top) + math.exp(-x - top)
    return min(1.0, max(FLOOR, upper / lower * (1.0 + (64.0 + 8.0 * abs(x - h)) * UNIT)))


def _by_enumeration(hood: Neighbourhood) -> tuple[list[float], float]:
    """The largest distance of laws that differ in one neighbour, over all configurations, allowed or not.

    A law is undefined where every state is forbidden: far from every law that is defined, and near to others like it.
    """
    below = hood.laws()
    ends = np.zeros((len(below), 1))
    laws = np.diff(np.concatenate([ends, below, ends + 1.0], axis=1), axis=1).reshape(*hood.sizes, hood.own)
    defined = ~np.isnan(laws[..., 0])
    values = []
    for axis, size in enumerate(hood.sizes):
        largest = 0.0
        lines, known = np.moveaxis(laws, axis, 0), np.moveaxis(defined, axis, 0)
        for x, y in combinations(range(size), 2):
            both = known[x] & known[y]
            if (known[x] != known[y]).any():
                largest = 1.0
            elif both.any() and not _is_same(hood, axis, x, y):
                far = 0.5 * np.abs(lines[x][both] - lines[y][both]).sum(axis=-1).max()
                largest = max(largest, float(far) + hood.margin)
        values.append(min(1.0, largest))
    if not any(values):
        return values, 0.0
    # Two laws share at least what every law gives to each state.
    shared = float(laws.reshape(-1, hood.own).min(axis=0).sum()) if defined.all() else 0.0
    return values, min(1.0, 1.0 - shared + hood.margin)


def _is_same(hood: Neighbourhood, axis: int, x: int, y: int) -> bool:
    """Whether no factor tells two states of a neighbour apart."""
    shared = [(table, places.index(axis)) for places, table in hood.parts if axis in places]
    return all(np.array_equal(np.take(table, x, at), np.take(table, y, at)) for table, at in shared)


Parts = list[tuple[list[int], NDArray[np.float64]]]
Bounds = dict[int, float]


def _by_closed_forms(hood: Neighbourhood) -> tuple[list[float], float]:
    """What ranges of log-odds, and the least that is left of them, say without enumeration."""
    unary = sum((table for places, table in hood.parts if not places), np.zeros(hood.own))
    alive = unary > -math.inf
    parts = [(places, table[..., alive]) for places, table in hood.parts]
    count = range(len(hood.others))
    require(sum(size**2 for size in hood.sizes) <= MOST_PAIRS, "Neighbours have too many states for the checker.")
    slack = UNIT * (16.0 * (len(parts) + 2) * hood.magnitude + 64.0 * hood.own)
    holding: list[list[int]] = [[] for _ in count]  # which factors have a neighbour
    for number, (places, _) in enumerate(parts):
        for k in places:
            holding[k].append(number)
    ranges = [_range([parts[n] for n in holding[k]], k, hood.sizes[k], slack) for k in count]
    if alive.sum() < 2:  # one state can be drawn, or none
        values = [float(math.inf == D) for D in ranges]
        return values, max(values)
    is_binary, is_paired = alive.sum() == 2, all(len(places) < 2 for places, _ in parts)
    offsets, cap = _binary_offsets(parts, holding, slack) if is_binary else ([0.0 for _ in count], 1.0)
    values = [gap(D, h) for D, h in zip(ranges, offsets, strict=True)]
    if is_paired and not is_binary and alive.sum() ** 2 * max(len(parts), *hood.sizes) <= MOST_LEADS:
        values = [min(pair) for pair in zip(values, _by_lead(parts, holding, hood.sizes, slack), strict=True)]
    return values, min(cap, gap(math.fsum(ranges) * (1.0 + 1e-12), 0.0))


def _range(parts: Parts, k: int, size: int, slack: float) -> float:
    """D: the sum over factors of the largest double difference in this neighbour, own states and the rest."""
    total, is_told_apart = np.zeros((size, size)), False
    for places, table in parts:
        lines = np.moveaxis(table, places.index(k), 0).reshape(size, -1, table.shape[-1])
        for x, y in combinations(range(size), 2):
            if np.array_equal(lines[x], lines[y]):
                continue
            is_told_apart = True
            with np.errstate(invalid="ignore"):
                change = lines[x] - lines[y]  # NaN where both forbid: no state that can be drawn
            most = np.where(np.isnan(change), -math.inf, change).max(axis=1)
            least = np.where(np.isnan(change), math.inf, change).min(axis=1)
            if np.isinf(change).any():
                total[x, y] = math.inf
            else:
                total[x, y] += max(0.0, float((most - least).max()))
    return float(total.max()) + slack if is_told_apart else 0.0


def _binary_offsets(parts: Parts, holding: list[list[int]], slack: float) -> tuple[list[float], float]:
    """The least size of the log-odds half-way between two values of each neighbour; and what their ends can do."""
    with np.errstate(invalid="ignore"):
        odds = [table[..., 1] - table[..., 0] for _, table in parts]
    if not all(np.isfinite(own).all() for own in odds):
        return [0.0 for _ in holding], 1.0
    ends = np.array([(own.min(), own.max()) for own in odds])
    all_ends, offsets = ends.sum(axis=0), []
    for k, own in enumerate(holding):
        low, high = all_ends - ends[own].sum(axis=0)
        for n in own:
            lines = np.moveaxis(odds[n], parts[n][0].index(k), 0)
            x, y = np.triu_indices(len(lines), 1)
            halfway = 0.5 * (lines[x] + lines[y])
            low, high = low + halfway.min(), high + halfway.max()
        offsets.append(max(0.0, float(low) - slack, -float(high) - slack))
    low, high = all_ends.tolist()
    return offsets, gap(high - low + slack, max(0.0, 0.5 * abs(low + high) - slack))


def _by_lead(parts: Parts, holding: list[list[int]], sizes: list[int], slack: float) -> list[float]:
    """Pair factors: one own state may lead by so much, whatever the neighbours do, that little can change."""
    if not all(np.isfinite(table).all() for _, table in parts):
        return [1.0] * len(sizes)
    own = parts[0][1].shape[-1]
    unary = sum((table for places, table in parts if not places), np.zeros(own))
    # [a, c]: the least by which a factor favours c over a
    leads = [(table[..., None, :] - table[..., :, None]).reshape(-1, own, own).min(axis=0) for _, table in parts]
    paired = sum((lead for lead, (places, _) in zip(leads, parts, strict=True) if places), np.zeros((own, own)))
    values = []
    for size, numbers in zip(sizes, holding, strict=True):
        pair = sum((parts[n][1] for n in numbers), np.zeros((size, own)))
        lead = paired - sum(leads[n] for n in numbers)
        largest = 0.0
        for x, y in combinations(range(size), 2):
            change = pair[x] - pair[y]
            middle = unary + 0.5 * (pair[x] + pair[y])
            ahead = middle[None, :] - middle[:, None] + lead
            np.fill_diagonal(ahead, math.inf)
            with np.errstate(over="ignore"):
                offset = float(np.max(-np.log(np.exp(-ahead).sum(axis=0))))
            largest = max(largest, gap(float(change.max() - change.min()) + slack, max(0.0, offset - slack)))
        values.append(largest)
    return values


def forward(rows: dict[int, Row], order: list[int], error: Bounds, initial: Bounds | None = None) -> Bounds:
    """Bounds on the disagreement of variables after the steps of a scan; those without an entry may disagree surely.

    Every step takes b_i = min(1, min(cap_i, sum_j C_ij b_j) + error_i).
    """
    b = {} if initial is None else dict(initial)
    for variable in order:
        total = 0.0
        for other, value in rows[variable].pairs:
            total += value * b.get(other, 1.0)
        b[variable] = min(1.0, max(FLOOR, min(rows[variable].cap, total) + error.get(variable, 0.0)))
    width = max(len(row.pairs) for row in rows.values())
    roundings = (2 * width + 6) * len(order) * UNIT
    require(roundings < 0.1, "The scan is too long for the checker's arithmetic.")
    return {variable: min(1.0, value * (1.0 + 2.0 * roundings)) for variable, value in b.items()}
