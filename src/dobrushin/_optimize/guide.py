"""A scan with its certificate; and guides, which help to choose a scan where certificates are vacuous.

If the spectral radius of the influence is 1 or more, the variation grows with the length of the scan. The same matrix,
scaled to a radius below 1, still shows which variables a scan should update most. This guide certifies nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
from scipy import sparse

from dobrushin._influence import Influence, influence
from dobrushin._influence.matrix import KnownInfluence
from dobrushin._influence.rows import Rows, RowSource
from dobrushin._models import Model
from dobrushin._models.near import Numbering
from dobrushin._models.sources import as_model
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Ints, distinct
from dobrushin._shared.call import current_deadline
from dobrushin._shared.environment import log
from dobrushin._variation import Variation
from dobrushin.errors import ArgumentError
from dobrushin.typing import Guide

# Spectral radius to which a guide is scaled; benchmarks/guides.py compares it with others.
RADIUS = 0.95
# Largest number of variables for which the exact spectral radius is computed; in larger models, number of variables
# around the targets for which it is estimated, and number of power iterations.
_EXACT_RADIUS_VARIABLES, _MAX_VARIABLES_AROUND, _POWER_ROUNDS = 5000, 20_000, 60


@dataclass(frozen=True)
class ScanResult:
    """A scan and its certificate.

    Attributes
    ----------
    scan : Scan
    variation : Variation
        The certificate, computed afresh for this scan.
    """

    scan: Scan
    variation: Variation

    def _repr_html_(self) -> str:
        return self.scan._repr_html_() + self.variation._repr_html_()

    def _lift(self, part: Numbering | None) -> ScanResult:
        """Return the result renumbered from a submodel to the whole model; unchanged if `part` is None."""
        return ScanResult(self.scan._lift(part), self.variation._lift(part))

    def write_proof(self, path: str | os.PathLike[str]) -> None:
        """Write a proof of the certificate to a file; see `Variation.write_proof`."""
        self.variation.write_proof(path)


def whole(value: Influence | Model) -> Influence:
    """Return the influence matrix of all variables; raise `ArgumentError` if only some rows were computed."""
    if not isinstance(value, Influence):
        return influence(as_model(value, "model", "a model or an Influence"))
    if value.computed_rows is not None:
        raise ArgumentError("model", "a model or an Influence with all rows", value)
    return value


def guide_of(known: Influence, bound: Variation, guide: Any) -> Influence | None:
    """Return a scaled influence with which to choose a scan; None if the influence itself is good enough for that.

    It is good enough if its spectral radius is below 1, or if the bound of the scan chosen with it is below half of the
    bound after a single update of each variable (the caps).
    """
    if guide is None:
        return None
    check.choice(guide, get_args(Guide), "guide")
    objective = bound._objective
    if bound.value < 0.5 * float(objective.weights @ known.caps[objective.positions]):
        return None
    radius = known.spectral_radius() if known.n_variables <= _EXACT_RADIUS_VARIABLES else _rough_radius(known.matrix)
    if not radius >= 1.0:
        return None
    log.info("the influence is too strong to choose scans with it: scaling it by %.3g", RADIUS / radius)
    return Influence(known.matrix * (RADIUS / radius), known.labels)


def guiding_rows(known: KnownInfluence, targets: Ints) -> RowSource:
    """Return influence rows to choose scans with: scaled down if the spectral radius near the targets is 1 or more."""
    radius = radius_around(known, influence_around(known, targets))
    return _Scaled(known, RADIUS / radius) if radius >= 1.0 else known


class InfluenceAround(NamedTuple):
    """Some variables and the influence among them; influence from other variables is put on the diagonal."""

    positions: Ints  # increasing
    matrix: Any


def influence_around(known: KnownInfluence, targets: Ints) -> InfluenceAround:
    """Return the influence matrix of a small model, or that of the variables around the targets in a large model."""
    n = known.n_variables
    if n <= _EXACT_RADIUS_VARIABLES:
        return InfluenceAround(np.arange(n), known.whole.matrix)
    inside = distinct(targets, n)
    while len(inside) < _EXACT_RADIUS_VARIABLES:
        current_deadline().check("the strength of the influence")
        seen = distinct(np.concatenate([inside, known.rows(inside).columns]), n)
        if len(seen) == len(inside):
            break
        inside = distinct(np.concatenate([inside, seen[:_MAX_VARIABLES_AROUND]]), n)
    rows = known.rows(inside)
    place = np.minimum(np.searchsorted(inside, rows.columns), len(inside) - 1)
    is_inside = inside[place] == rows.columns
    row = np.repeat(np.arange(len(inside)), np.diff(rows.start))
    column = np.where(is_inside, place, row)
    return InfluenceAround(inside, sparse.coo_array((rows.values, (row, column)), shape=(len(inside),) * 2).tocsr())


def radius_around(known: KnownInfluence, around: InfluenceAround) -> float:
    """Return the spectral radius of a small model's influence; in a large model, estimate it around the targets."""
    return (
        known.whole.spectral_radius() if known.n_variables <= _EXACT_RADIUS_VARIABLES else _rough_radius(around.matrix)
    )


def _rough_radius(matrix: Any) -> float:
    """Estimate the spectral radius of C by 60 power iterations on I + C; used where the exact one takes too long."""
    x = np.full(matrix.shape[0], 1.0 / np.sqrt(matrix.shape[0]))
    growth = 1.0
    for _ in range(_POWER_ROUNDS):
        current_deadline().check("the strength of the influence")
        y = x + matrix @ x
        growth = float(np.linalg.norm(y))
        x = y / growth
    return growth - 1.0


class _Scaled:
    """Influence rows times a factor: a guide to choose scans with, not a bound."""

    _error = 0.0

    def __init__(self, source: RowSource, factor: float) -> None:
        self._source, self._factor = source, factor
        self.n_variables, self.labels, self._lookup = source.n_variables, source.labels, source._lookup

    def rows(self, positions: Ints) -> Rows:
        rows = self._source.rows(positions)
        return rows._replace(values=rows.values * self._factor)
