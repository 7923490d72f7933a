"""Choosing scans where the influence is too strong for its variation to mean anything.

Where the spectral radius is 1 or more, the variation grows with the length of the scan and misleads. The same matrix,
scaled to a radius below 1, still says where a scan should spend its steps. It certifies nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import numpy as np
from scipy import sparse

from dobrushin._influence import Influence
from dobrushin._influence.known import KnownInfluence
from dobrushin._influence.rows import Rows, RowSource
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Ints, distinct
from dobrushin._shared.call import current_deadline
from dobrushin._shared.environment import log
from dobrushin._variation import Variation
from dobrushin.typing import Guide

# The spectral radius to scale to; benchmarks/guides.py compares it with others.
RADIUS = 0.95
# Variables up to which the exact radius is computed, and largest number of variables around targets of larger models.
_SMALL, _MOST, _ROUNDS = 5000, 20_000, 60


def guide_of(influence: Influence, bound: Variation, guide: Any) -> Influence | None:
    """The influence to choose again with, where the bound says little; None where it need not be.

    A bound below half of the trivial one by the caps alone is informative: no guide is needed.
    """
    if guide is None:
        return None
    check.choice(guide, get_args(Guide), "guide")
    objective = bound._objective
    if bound.value < 0.5 * float(objective.weights @ influence.caps[objective.positions]):
        return None
    factor = _factor(influence)
    if factor < 1.0:
        log.info("influence is too strong to choose scans with: scaled by %.3g", factor)
    return None if factor == 1.0 else Influence(influence.matrix * factor, influence.labels)


def guiding_rows(known: KnownInfluence, targets: Ints) -> RowSource:
    """Rows of a model to choose scans with: the best bounds, scaled where they are too strong around the targets."""
    factor = _factor_for(radius_around(known, influence_around(known, targets)))
    return known if factor == 1.0 else _Scaled(known, factor)


class Around(NamedTuple):
    """Some variables, and their influence on each other; that of others is on the diagonal, as if they were alike."""

    positions: Ints  # increasing
    matrix: Any


def influence_around(known: KnownInfluence, targets: Ints) -> Around:
    """All of a small model; of a large one, whose whole influence may take long, what is around some targets."""
    n = known.n_variables
    if n <= _SMALL:
        return Around(np.arange(n), known.whole.matrix)
    inside = distinct(targets, n)
    while len(inside) < _SMALL:
        current_deadline().check("the strength of the influence")
        seen = distinct(np.concatenate([inside, known.rows(inside).columns]), n)
        if len(seen) == len(inside):
            break
        inside = distinct(np.concatenate([inside, seen[:_MOST]]), n)
    rows = known.rows(inside)
    place = np.minimum(np.searchsorted(inside, rows.columns), len(inside) - 1)
    is_inside = inside[place] == rows.columns
    row = np.repeat(np.arange(len(inside)), np.diff(rows.start))
    column = np.where(is_inside, place, row)
    return Around(inside, sparse.coo_array((rows.values, (row, column)), shape=(len(inside),) * 2).tocsr())


def radius_around(known: KnownInfluence, around: Around) -> float:
    """Return the spectral radius of a small model, or estimate it around some targets of a large one."""
    return known.whole.spectral_radius() if known.n_variables <= _SMALL else _rough_radius(around.matrix)


def _factor(influence: Influence) -> float:
    small = influence.n_variables <= _SMALL
    return _factor_for(influence.spectral_radius() if small else _rough_radius(influence.matrix))


def _factor_for(radius: float) -> float:
    return RADIUS / radius if radius >= 1.0 else 1.0


def _rough_radius(matrix: Any) -> float:
    """Some steps of power iteration on I + C: good enough to choose with, where the exact radius takes long."""
    x = np.full(matrix.shape[0], 1.0 / np.sqrt(matrix.shape[0]))
    growth = 1.0
    for _ in range(_ROUNDS):
        current_deadline().check("the strength of the influence")
        y = x + matrix @ x
        growth = float(np.linalg.norm(y))
        x = y / growth
    return growth - 1.0


class _Scaled:
    """Influence rows times a factor, to choose with: they bound nothing."""

    _error = 0.0

    def __init__(self, source: RowSource, factor: float) -> None:
        self._source, self._factor = source, factor
        self.n_variables, self.labels, self._lookup = source.n_variables, source.labels, source._lookup

    def rows(self, positions: Ints) -> Rows:
        """The scaled rows at increasing positions."""
        rows = self._source.rows(positions)
        return rows._replace(values=rows.values * self._factor)
