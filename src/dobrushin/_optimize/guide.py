"""Choosing scans where the influence is too strong for its variation to mean anything.

Where the spectral radius is 1 or more, the variation grows with the length of the scan and misleads. The same matrix,
scaled to a radius below 1, still says where a scan should spend its steps. It certifies nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import Influence
from dobrushin._influence.known import KnownInfluence
from dobrushin._influence.rows import Rows, RowSource
from dobrushin._shared import validate as check
from dobrushin._shared.deadline import current
from dobrushin._shared.log import log
from dobrushin._variation import Variation

# The spectral radius to scale to; see benchmarks/guides.py for what others give.
RADIUS = 0.95
# Larger models are not worth their exact radius.
_SMALL, _ROUNDS = 5000, 60


def guide_of(influence: Influence, bound: Variation, guide: Any, function: str) -> Influence | None:
    """The influence to choose again with, where the bound says little; None where it need not be.

    Where a bound is below half of what the caps alone give, it is the bound that counts.
    """
    if guide is None:
        return None
    check.choice(guide, ("auto",), function, "guide")
    objective = bound._objective
    if bound.value < 0.5 * float(objective.weights @ influence.caps[objective.positions]):
        return None
    factor = _factor(influence)
    if factor < 1.0:
        log.info("influence is too strong to choose scans with: scaled by %.3g", factor)
    return None if factor == 1.0 else Influence(influence.matrix * factor, influence.labels)


def guiding_rows(known: KnownInfluence) -> RowSource:
    """Rows of a model to choose scans with: the best bounds, scaled where they are too strong."""
    factor = _factor(known.whole)
    return known if factor == 1.0 else _Scaled(known, factor)


def quick_radius(influence: Influence) -> float:
    """The spectral radius of a small model, and about that of a large one."""
    return influence.spectral_radius() if influence.n_variables <= _SMALL else _rough_radius(influence.matrix)


def _factor(influence: Influence) -> float:
    radius = quick_radius(influence)
    return RADIUS / radius if radius >= 1.0 else 1.0


def _rough_radius(matrix: Any) -> float:
    """Some steps of power iteration on I + C: good enough to choose with, where the exact radius takes long."""
    x = np.full(matrix.shape[0], 1.0 / np.sqrt(matrix.shape[0]))
    growth = 1.0
    for _ in range(_ROUNDS):
        current().check("the strength of the influence")
        y = x + matrix @ x
        growth = float(np.linalg.norm(y))
        x = y / growth
    return growth - 1.0


class _Scaled:
    """Influence rows times a factor."""

    def __init__(self, source: RowSource, factor: float) -> None:
        self._source, self._factor = source, factor
        self.n_variables, self.labels, self._lookup = source.n_variables, source.labels, source._lookup

    def rows(self, positions: NDArray[np.int64]) -> Rows:
        """The scaled rows at increasing positions."""
        rows = self._source.rows(positions)
        return rows._replace(values=rows.values * self._factor)
