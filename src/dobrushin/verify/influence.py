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


def _by_closed_forms(hood: Neighbourhood) -> tuple[list[float], float]:
    """What ranges of log-odds, and the least that is left of them, say without enumeration."""
    unary = sum((table for places, table in hood.parts if not places), np.zeros(hood.own))
    alive = unary > -math.inf
    parts = [(places, table[..., alive]) for places, table in hood.parts]
    count = range(len(hood.others))
    if alive.sum() < 2:
        return [0.0 for _ in count], 0.0
    slack = UNIT * (16.0 * (len(parts) + 2) * hood.magnitude + 64.0 * hood.own)
    ranges = [_range(parts, k, hood.sizes[k], slack) for k in count]
    is_binary, is_paired = alive.sum() == 2, all(len(places) < 2 for places, _ in parts)
    offsets = [_binary_offset(parts, k, slack) if is_binary else 0.0 for k in count]
    values = [gap(D, h) for D, h in zip(ranges, offsets, strict=True)]
    if is_paired and not is_binary:
        values = [min(value, _by_lead(parts, k, hood.sizes[k], slack)) for k, value in zip(count, values, strict=True)]
    return values, gap(math.fsum(ranges) * (1.0 + 1e-12), _binary_offset(parts, -1, slack) if is_binary else 0.0)


def _range(parts: Parts, k: int, size: int, slack: float) -> float:
    """D: the sum over factors of the largest double difference in this neighbour, own states and the rest."""
    total = np.zeros((size, size))
    for places, table in parts:
        if k not in places:
            continue
        lines = np.moveaxis(table, places.index(k), 0).reshape(size, -1, table.shape[-1])
        for x, y in combinations(range(size), 2):
            with np.errstate(invalid="ignore"):
                change = lines[x] - lines[y]  # NaN where both forbid: no state that can be drawn
            most = np.where(np.isnan(change), -math.inf, change).max(axis=1)
            least = np.where(np.isnan(change), math.inf, change).min(axis=1)
            some = most >= least
            if np.isinf(change).any():
                total[x, y] = math.inf
            elif some.any():
                total[x, y] += float((most - least)[some].max())
    worst = float(total.max())
    return worst + slack if worst > 0.0 else 0.0


def _binary_offset(parts: Parts, k: int, slack: float) -> float:
    """The least size of the log-odds half-way between two values of neighbour k; of the middle of all for -1."""
    low = high = 0.0
    for places, table in parts:
        with np.errstate(invalid="ignore"):
            odds = table[..., 1] - table[..., 0]
        if not np.isfinite(odds).all():
            return 0.0
        if places and k < 0:
            odds = np.array(0.5 * (float(odds.max()) + float(odds.min())))
        elif k in places:
            lines = np.moveaxis(odds, places.index(k), 0)
            x, y = np.triu_indices(len(lines), 1)
            odds = 0.5 * (lines[x] + lines[y])
        low, high = low + float(odds.min()), high + float(odds.max())
    return max(0.0, low - slack, -high - slack)


def _by_lead(parts: Parts, k: int, size: int, slack: float) -> float:
    """Pair factors: one own state may lead by so much, whatever the neighbours do, that little can change."""
    own = parts[0][1].shape[-1]
    unary, pair = np.zeros(own), np.zeros((size, own))
    lead = np.zeros((own, own))  # [a, c]: the least by which the other neighbours favour c over a
    for places, table in parts:
        if not np.isfinite(table).all():
            return 1.0
        if not places:
            unary = unary + table
        elif places == [k]:
            pair = pair + table
        else:
            lead += (table[:, None, :] - table[:, :, None]).min(axis=0)
    largest = 0.0
    for x, y in combinations(range(size), 2):
        change = pair[x] - pair[y]
        middle = unary + 0.5 * (pair[x] + pair[y])
        ahead = middle[None, :] - middle[:, None] + lead
        np.fill_diagonal(ahead, math.inf)
        with np.errstate(over="ignore"):
            offset = float(np.max(-np.log(np.exp(-ahead).sum(axis=0))))
        if change.max() > change.min():
            largest = max(largest, gap(float(change.max() - change.min()) + slack, max(0.0, offset - slack)))
    return largest


def forward(
    rows: dict[int, Row], order: list[int], error: dict[int, float], initial: dict[int, float] | None = None
) -> dict[int, float]:
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
