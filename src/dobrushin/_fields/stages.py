"""What the stages before an estimate have for fields: influence, the choice of scans, and the diagnosis.

Scans are searched in the units of the start, where the influence of a field is a matrix like any other and every
distance begins at 1 or less; what is found is certified as a field.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dobrushin._diagnose import Diagnosis, diagnose
from dobrushin._fields.anchor import FieldSpace, space_of
from dobrushin._fields.certificate import certify
from dobrushin._fields.model import GaussianField
from dobrushin._fields.terms import UNIT
from dobrushin._influence.known import influence
from dobrushin._influence.matrix import Influence
from dobrushin._influence.rows import METHODS, influence_rows
from dobrushin._optimize import ScanResult, greedy_scan, optimize_scan, shortest_scan
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import version_for
from dobrushin._variation import Objective, read_objective, variation
from dobrushin.errors import ArgumentError, CertificateError, ToleranceError
from dobrushin.typing import InfluenceMethod

# Room for what the search does not know of: the errors of draws.
_ROOM = 1e-6
# The sweeps that a diagnosis certifies, and the distance, in conditional standard deviations, that it calls close.
_SWEEPS, _CLOSE = (10, 100), 0.05


class FieldInfluence(Influence):
    """The influence of a field: entry (i, j) bounds how far the mean of i moves when j moves by 1.

    It says nothing of where a chain starts, without which distances have no bound: certificates take the field itself.
    """


@version_for(influence, GaussianField)
def _(model: GaussianField, method: InfluenceMethod = "best", rows: Iterable[Hashable] | None = None) -> FieldInfluence:
    check.choice(method, METHODS, "method")
    n = model.n_variables
    computed = None
    if rows is not None:
        computed = np.sort(check.positions(rows, model.labels, model._lookup, "rows"))
    bounds = influence_rows(model, np.arange(n) if computed is None else computed, method)
    result = FieldInfluence._make(bounds, n, model.labels, computed)
    assert isinstance(result, FieldInfluence)
    return result


def _refuse(influence: FieldInfluence, *args: Any, **options: Any) -> Any:
    del args, options
    raise ArgumentError("model", "the field itself, which knows its start", influence)


for _function in (variation, optimize_scan, greedy_scan, shortest_scan):
    version_for(_function, FieldInfluence)(_refuse)


class _Search:
    """A field as the searches for scans see it."""

    def __init__(self, field: GaussianField, targets: Any, weights: Any) -> None:
        self.space: FieldSpace = space_of(field)
        self.objective = read_objective(self.space.known, targets, weights)
        own = self.objective.weights
        positions = self.objective.positions
        if self.objective.is_set:
            own = self.space.tilt[positions]
        scaled = own * self.space.anchor.unit[positions] * (1.0 + 4 * UNIT)
        self.weights = dict(zip([field.labels[i] for i in positions.tolist()], scaled.tolist(), strict=True))
        rows = self.space.rows.rows(np.arange(field.n_variables))
        self.influence = Influence._make(rows, field.n_variables, field.labels, None)

    def certify(self, result: ScanResult) -> ScanResult:
        """The scan of a result, with the certificate of the field."""
        return ScanResult(result.scan, certify(self.space.anchor, result.scan, self.objective))


@version_for(optimize_scan, GaussianField)
def _(
    model: GaussianField, scan: Any, targets: Any = None, weights: Any = None, *more: Any, **options: Any
) -> ScanResult:
    search = _Search(model, targets, weights)
    return search.certify(optimize_scan(search.influence, scan, None, search.weights, *more, **options))


@version_for(greedy_scan, GaussianField)
def _(model: GaussianField, targets: Any = None, weights: Any = None, **options: Any) -> ScanResult:
    search = _Search(model, targets, weights)
    return search.certify(greedy_scan(search.influence, None, search.weights, **options))


@version_for(shortest_scan, GaussianField)
def _(
    model: GaussianField, targets: Any = None, weights: Any = None, *, tolerance: float, **options: Any
) -> ScanResult:
    search = _Search(model, targets, weights)
    tolerance = check.positive(tolerance, "tolerance")
    try:
        found = shortest_scan(search.influence, None, search.weights, tolerance=tolerance * (1.0 - _ROOM), **options)
    except ToleranceError as error:
        best = search.certify(error.result)
        raise ToleranceError(tolerance, best.variation.value, error.why, result=best) from None
    result = search.certify(found)
    if _measure(result, search.objective, options.get("criterion", "sum")) > tolerance:
        why = "What is left are the errors of draws, which no longer scan takes away."
        raise ToleranceError(tolerance, result.variation.value, why, result=result)
    return result


def _measure(result: ScanResult, objective: Objective, criterion: str) -> float:
    if criterion == "sum":
        return result.variation.value
    bound: Any = result.variation
    each = bound.tv_at(objective.positions) if objective.is_set else objective.weights * bound.target_bounds
    return float(each.max())


@dataclass(frozen=True, repr=False)
class FieldDiagnosis(Diagnosis):
    """What `diagnose` found about a field.

    Attributes
    ----------
    dobrushin : dict from sweeps to share
        After so many systematic sweeps, the share of the variables whose distance from the field is at most 0.05 of
        the standard deviation that they have given the others.
    unbounded : int
        Variables without limits on one side or both.
    """

    unbounded: int = 0

    def lines(self) -> list[tuple[str, str]]:
        holds = "holds" if self.satisfies_dobrushin else "fails"
        strongest = ", ".join(f"{label!r} ({value:.3g})" for label, value in self.strongest)
        shares = "; ".join(f"{sweeps} sweeps {share:.0%}" for sweeps, share in self.dobrushin.items())
        norms = f"rows {self.row_norm:.3g}, columns {self.column_norm:.3g}, spectral radius {self.spectral_radius:.3g}"
        free = f"{self.unbounded} of them unbounded"
        size = f"{self.n_variables} variables, {free}, up to {self.largest_degree} neighbours"
        return [
            ("size", size),
            ("influence", f"{norms}: Dobrushin's condition {holds} in Wasserstein distance"),
            ("strongest", strongest),
            ("dobrushin", f"variables within {_CLOSE:g} deviations of the field after {shares or 'no scan'}"),
            *(("try", advice) for advice in self.advice),
        ]


@version_for(diagnose, GaussianField)
def _(model: GaussianField) -> FieldDiagnosis:
    space, form = space_of(model), model._form
    bound = space.known.whole
    sums = np.asarray(bound.matrix.sum(axis=1)).ravel()
    strongest = [(model.labels[i], float(sums[i])) for i in np.argsort(-sums, kind="stable")[:3].tolist()]
    advice = []
    if form.is_gaussian:
        advice.append('methods "exact" and "local": the field is Gaussian, nothing has to be sampled')
    try:
        shares = _shares(space)
        advice.append('method "dobrushin": the bias can be bounded before sampling')
    except CertificateError as error:
        shares = {}
        advice.append(next(iter(error.reasons.values())))
    return FieldDiagnosis(
        repr(model), model.n_variables, int(np.diff(form.adjacency[0]).max(initial=0)), 0, bound.norm(np.inf),
        bound.norm(1), bound.spectral_radius(), strongest, False, True, [], None, None, shares, {}, {}, advice,
        unbounded=int((~form.is_bounded).sum()),
    )  # fmt: skip


def _shares(space: FieldSpace) -> dict[int, float]:
    n = space.form.n_variables
    everything = Objective(np.arange(n), np.ones(n), False)
    near = _CLOSE / np.sqrt(space.form.diagonal)
    shares = {}
    for sweeps in _SWEEPS:
        bounds = certify(space.anchor, Scan.systematic(n, n * sweeps), everything).per_variable
        shares[sweeps] = float((bounds <= near).mean())
    return shares
