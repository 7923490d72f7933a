"""Certificates of scans on Gaussian fields [trusted], and the influence, scan search and diagnosis of fields.

Scan search works in the units of the initial point (see `anchor`), where a field's influence is a matrix like that of a
discrete model and every initial distance is at most 1. The scan that is found is then certified for the field itself.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dobrushin._diagnose import Diagnosis, describe_influence, diagnose
from dobrushin._fields.anchor import (
    FAR_CHANCE,
    REMEDY,
    Anchor,
    FieldSpace,
    ScaledRows,
    read_start,
    space_of,
    supersolve,
)
from dobrushin._fields.influence import truncated_variance
from dobrushin._fields.model import GaussianField
from dobrushin._influence.matrix import Influence, influence
from dobrushin._influence.rows import METHODS, influence_rows
from dobrushin._kernels.field_draws import spread
from dobrushin._models.near import Numbering
from dobrushin._optimize import ScanResult, greedy_scan, optimize_scan, shortest_scan
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import UNIT, frozen, inflation, weighted_sum
from dobrushin._shared.call import version_for
from dobrushin._shared.compile import in_pieces
from dobrushin._variation import (
    Objective,
    Problem,
    Variation,
    evaluate,
    read_objective,
    touched_by,
    variation,
    warn_vacuous,
)
from dobrushin.errors import ArgumentError, CertificateError, ToleranceError
from dobrushin.typing import InfluenceMethod


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class FieldVariation(Variation):
    """The certificate of a scan on a Gaussian field: bounds on the bias after the scan, from a fixed initial point.

    Attributes
    ----------
    value : float
        With weights: a bound on abs(E f(X_T) - E_pi f) for every f with |f(x) - f(y)| <= sum_i weights_i |x_i - y_i|.
        With targets: a bound on the total variation distance of the joint law of the targets.
    tv_bound : float
        The bound on the total variation distance, with weights or targets.
    per_variable : array
        For each variable, a bound on the Wasserstein distance (W1) between its law after the scan and under the field.
    """

    _unit: NDArray[np.float64]
    _tilt: NDArray[np.float64]
    _missed: NDArray[np.float64]  # for each variable, P(never updated) + the total variation of a draw by rounding
    _anchor: Anchor | None = None  # for a proof
    _kind_of_bounds: ClassVar[str] = "each target, in Wasserstein distance"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_anchor": None}  # an anchor contains the whole field

    @property
    def per_variable(self) -> NDArray[np.float64]:
        """Return a bound on each variable's Wasserstein distance (W1) from the field after the scan."""
        return self.distances_at(np.arange(self._problem.n))

    @property
    def target_bounds(self) -> NDArray[np.float64]:
        """Return a bound on each target's Wasserstein distance from the field, in increasing order of position."""
        return self.distances_at(self._objective.positions)

    @property
    def tv_per_variable(self) -> NDArray[np.float64]:
        """Return a bound on each variable's total variation distance after the scan; 1 if it was never updated."""
        return self.tv_at(np.arange(self._problem.n))

    def distances_at(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the entries of `per_variable` at some positions, without computing the others."""
        bounds = self._problem.at(self._bounds, positions)
        return bounds * self._unit[positions] * (1.0 + 4 * UNIT)

    def tv_at(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the entries of `tv_per_variable` at some positions, without computing the others."""
        distances = self.distances_at(positions)
        return np.minimum(1.0, (distances * self._tilt[positions] + self._missed[positions]) * (1.0 + 4 * UNIT))

    def curve(self, every: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return bounds on the bias after 0, `every`, 2 `every`, ... and all steps (see `Variation.curve`).

        With targets, each value is the sum of the Wasserstein distances of the targets: their total variation has no
        bound below 1 until all of them have been updated.
        """
        own = self._objective
        scaled = Objective(own.positions, own.weights * self._unit[own.positions] * (1.0 + 2 * UNIT), False)
        return Variation.curve(replace(self, _objective=scaled), every)

    def _lift(self, part: Numbering | None) -> FieldVariation:
        """Return the certificate renumbered for the whole field (see `Variation.lift`).

        All variables outside the part are observed.
        """
        if part is None:
            return self
        lifted: Any = super()._lift(part)
        known = {"_unit": 0.0, "_tilt": 1.0, "_missed": 0.0}
        return replace(lifted, **{name: part.spread(vars(self)[name], known[name]) for name in known}, _anchor=None)

    def write_proof(self, path: str | os.PathLike[str]) -> None:
        """Write a proof file of this bound, which others can check without this library.

        The file proves a bound for the same scan, for exact draws, from simple influence bounds that the checker
        recomputes. If this certificate used sharper influence bounds, the bound in the file is larger.

        Examples
        --------
        >>> import dobrushin as db, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "bound.proof"
        >>> field = db.GaussianField.grid(3, 3, rho=0.8)
        >>> db.variation(field, db.Scan.systematic(9, 90), weights={0: 1.0}).write_proof(path)
        >>> db.verify_proof(path).verdict
        'holds'
        """
        from dobrushin._fields.proof import write_field_variation

        write_field_variation(self, path)


@version_for(variation, GaussianField)
def _(
    model: GaussianField, scan: Any, targets: Any = None, weights: Any = None,
    initial_disagreement: ArrayLike | None = None, update_error: ArrayLike = 0.0, *, initial: ArrayLike | None = None,
) -> FieldVariation:  # fmt: skip
    if initial_disagreement is not None:
        requirement = "None for a field (see 'initial')"
        raise ArgumentError("initial_disagreement", requirement, initial_disagreement)
    if np.ndim(update_error) or update_error != 0.0:
        raise ArgumentError(
            "update_error", "0 for a field, whose certificate includes the rounding of draws", update_error
        )
    space, scan = space_of(model), as_scan(scan, model)
    objective = read_objective(space.known, targets, weights)
    result = certify(space.anchor_at(read_start(model, initial)), scan, objective)
    if result.is_vacuous:
        warn_vacuous(result)
    return result


def certify(anchor: Anchor, scan: Scan, objective: Objective) -> FieldVariation:
    """Return the certificate of a scan for chains that begin at the anchor's initial point.

    The bound is computed in units in which the field's expected distance from this point is at most 1 in each variable.
    """
    space, unit, errors = anchor.space, anchor.unit, anchor.errors
    if (errors.distance > 1.0 / np.sqrt(space.form.diagonal))[~space.form.is_bounded].any():
        raise CertificateError(
            {"dobrushin": "the rounding error of an unbounded variable's draws exceeds its standard deviation."}, REMEDY
        )
    with np.errstate(over="ignore"):
        error = np.minimum(errors.distance / unit * (1.0 + 8 * UNIT), 1.0)
    scaled = Objective(objective.positions, objective.weights * unit[objective.positions] * (1.0 + 2 * UNIT), False)
    plain = evaluate(ScaledRows(anchor), scan, scaled, anchor.initial, error)
    distance = plain.target_bounds * unit[objective.positions]
    # The last draw is near a law whose linear term is rounded, except with a small probability.
    missed = never_updated(scan, space.form.n_variables) + anchor.slips
    loose = (distance * space.tilt[objective.positions] + missed[objective.positions]) * (1.0 + 16 * UNIT)
    total = min(1.0, float(np.minimum(loose, 1.0).sum()) * inflation(len(loose)))
    value = total if objective.is_set else plain.value
    start = float((scaled.weights * anchor.initial[objective.positions]).sum())
    vacuous = value >= (1.0 if objective.is_set else start)
    parts = vars(plain) | {"value": value, "tv_bound": total, "is_vacuous": vacuous, "_objective": objective}
    return FieldVariation(**parts, _unit=unit, _tilt=space.tilt, _missed=np.minimum(missed, 1.0), _anchor=anchor)


def never_updated(scan: Scan, n: int) -> NDArray[np.float64]:
    """Return, for each variable, the probability that no step of the scan updates it, rounded up."""
    missed = np.ones(n)
    for segment in scan._segments:
        if segment.is_random:
            q = np.zeros(n)
            q[: segment.n] = segment.vector()
            with np.errstate(divide="ignore"):
                missed *= np.exp(segment.steps * np.log1p(-q)) * (1.0 + 1e-12)
        else:
            missed[np.unique(segment.updates())] = 0.0
    return np.minimum(missed, 1.0)


class Drift(NamedTuple):
    """Bounds on how far a chain with rounded draws is from a coupled chain with exact draws.

    At each step the distance in variable i is at most each_i, except with total probability `chance`. Both chains turn
    the same random numbers into quantiles of their conditional laws. When x_j moves by 1, a quantile of a continuous
    x_i moves by at most M_ij = |Q_ij| / P_ii, so any vector delta >= M delta + (error of one draw) bounds the distance
    at all steps; it is infinite if no such vector is found. A variable on a finite set rarely changes at all.
    """

    each: NDArray[np.float64]
    chance: float

    def of(self, objective: Objective) -> float:
        """Bound how much rounding of draws changes a function with the objective's weights as Lipschitz constants."""
        each = self.each[objective.positions]
        return weighted_sum(objective.weights, each, 8) if np.isfinite(each).all() else np.inf


class ChainBounds:
    """Bounds for one chain: its distance from a chain with exact draws, and the spread of its final values."""

    def __init__(self, anchor: Anchor, scan: Scan) -> None:
        self.anchor, self.order = anchor, scan.order

    @cached_property
    def drift(self) -> Drift:
        form, errors, order = self.anchor.space.form, self.anchor.errors, self.order
        matrix = form.couplings
        slope = np.where(form.is_finite, 0.0, 1.0 / form.diagonal)
        moved = np.repeat(slope, np.diff(matrix.indptr)) * np.abs(matrix.data) * (1.0 + 8 * UNIT)
        local = errors.place + slope * errors.field
        largest = max(float(local.max()), 2.0**-900)  # values of finite sets carry no rounding
        moves = sparse.csr_array((moved, matrix.indices, matrix.indptr), shape=matrix.shape)
        shares = supersolve(moves, local / largest + 1e-6)
        if shares is None:
            return Drift(np.full(form.n_variables, np.inf), 1.0)
        delta = shares * (largest * (1.0 + 4 * UNIT))
        chance = float(errors.chance[order].sum()) + len(order) * FAR_CHANCE
        if form.is_finite.any():
            changed = 0.5 * np.sqrt(self.anchor.space.variances) * (abs(matrix) @ delta + errors.field)
            chance += float(np.where(form.is_finite, changed, 0.0)[order].sum())
        return Drift(delta, 1.001 * chance)

    @cached_property
    def _rows(self) -> Problem:
        return touched_by(self.anchor.space.known, Scan(self.order), 1.0, 0.0)

    @cached_property
    def _own_order(self) -> NDArray[np.int64]:
        return frozen(self._rows.numbering.own(self.order))

    def proxy(self, objective: Objective) -> float:
        """Return sigma^2 such that a chain's final value f(X_T) is sub-Gaussian with this variance proxy, rounded up.

        f has the Lipschitz constants of the objective, and X_T is the state after the scan from the fixed initial
        point. The recursion runs backwards through the scan. At a step that updates variable i, it adds v_i^2 g_i to
        the sum, where g_i is the variance proxy of the update, and distributes the weight v_i as v_i C_ij over the
        neighbours j (theory page, "Intervals for fields").
        """
        form = self.anchor.space.form
        g = np.minimum(1.0 / form.curvature, 0.25 * form.width**2)
        return self._pull_back(objective, np.where(form.is_finite, 0.25 * form.width**2, g), self._rows.values)

    def steepness(self, objective: Objective) -> float:
        """Bound the Lipschitz constant of a chain's final value f(X_T) in its random inputs.

        The inputs are one standard normal number for each step. When x_j moves by 1, quantiles of a continuous x_i move
        by at most |Q_ij| / m_i, where m_i is the least curvature of x_i's own energy. The bound is infinite if f
        depends on a variable on a finite set.
        """
        form, rows = self.anchor.space.form, self._rows
        g = np.where(form.is_finite, np.inf, np.minimum(1.0 / form.curvature, 0.25 * form.width**2))
        more = 1.0 / (form.curvature * self.anchor.space.variances) * (1.0 + 8 * UNIT)  # ratio to the moves of means
        sizes = np.diff(rows.start)
        moved = rows.values * np.repeat(np.maximum(more, 1.0)[rows.numbering.positions], sizes)
        return float(np.sqrt(self._pull_back(objective, g, frozen(moved)))) * (1.0 + 4 * UNIT)

    def guess_variance(self, objective: Objective) -> float:
        """Estimate the variance of a chain's final value f(X_T) from the conditional variances at the start.

        The estimate has no guarantee.
        """
        space, rows, point = self.anchor.space, self._rows, self.anchor.point
        form = space.form
        bend = form.diagonal + sum(term.least_curvature(amount, point, point) for term, amount in form.likelihood)
        slope = form.diagonal * point - form.linear + form.couplings @ point
        slope += sum(term.slope(amount, point) for term, amount in form.likelihood)
        pull = bend * point - slope  # linear term of the normal law with the same slope and curvature
        guess = np.minimum(space.variances, 1.0 / bend)
        guess = np.fmin(guess, truncated_variance(bend, form.lower, form.upper, pull, pull))
        guess = np.where(form.is_finite, space.variances, guess)
        share = np.repeat((guess / space.variances)[rows.numbering.positions], np.diff(rows.start))
        return self._pull_back(objective, guess, frozen(rows.values * share))

    def _pull_back(self, objective: Objective, g: NDArray[np.float64], moved: NDArray[np.float64]) -> float:
        """Return the sum of v_i^2 g_i over all steps, rounded up, where the step updates variable i.

        The weights v are pulled back as in `proxy`; g_i is a given number for each variable. `moved` holds the entries
        of the influence rows by which weights are pulled back.
        """
        rows, own, total = self._rows, self._own_order, np.zeros(1)
        positions, weights = rows.numbering.positions, np.zeros(self.anchor.space.form.n_variables)
        weights[objective.positions] = objective.weights
        g = frozen(g[positions] * (1.0 + 8 * UNIT))
        in_pieces(spread, len(own), own, rows.start, rows.columns, moved, g, weights[positions], total)
        width = int(np.diff(rows.start).max(initial=0))
        # Weights and their squares: each carries at most (width + 1) roundings a step, twice.
        return float(total[0]) * inflation(2 * (width + 2) * len(own) + len(own) + 8) + 2.0**-1000


# Share of the tolerance that is reserved for the errors of draws, which the search does not include.
_DRAW_ERROR_SHARE = 1e-6
# Numbers of sweeps that a diagnosis certifies, and the largest distance that counts as close, in conditional standard
# deviations.
_DIAGNOSED_SWEEPS, _CLOSE_DEVIATIONS = (10, 100), 0.05


class FieldInfluence(Influence):
    """The influence matrix of a Gaussian field: entry (i, j) bounds how far the mean of x_i moves when x_j moves by 1.

    Certificates need the initial point of chains too, which an influence matrix does not contain. So `variation` and
    the functions that choose scans take the field itself.
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
    raise ArgumentError("model", "the field itself: an influence matrix has no initial point for chains", influence)


for _function in (variation, optimize_scan, greedy_scan, shortest_scan):
    version_for(_function, FieldInfluence)(_refuse)


class _ScaledSearch:
    """The influence and the weights of a field in the units of its initial point, for the search of scans."""

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
        """Return the scan that was found, with its certificate for the field."""
        return ScanResult(result.scan, certify(self.space.anchor, result.scan, self.objective))


@version_for(optimize_scan, GaussianField)
def _(
    model: GaussianField, scan: Any, targets: Any = None, weights: Any = None, *more: Any, **options: Any
) -> ScanResult:
    search = _ScaledSearch(model, targets, weights)
    return search.certify(optimize_scan(search.influence, scan, None, search.weights, *more, **options))


@version_for(greedy_scan, GaussianField)
def _(model: GaussianField, targets: Any = None, weights: Any = None, **options: Any) -> ScanResult:
    search = _ScaledSearch(model, targets, weights)
    return search.certify(greedy_scan(search.influence, None, search.weights, **options))


@version_for(shortest_scan, GaussianField)
def _(
    model: GaussianField, targets: Any = None, weights: Any = None, *, tolerance: float, **options: Any
) -> ScanResult:
    search = _ScaledSearch(model, targets, weights)
    tolerance = check.positive(tolerance, "tolerance")
    try:
        found = shortest_scan(
            search.influence, None, search.weights, tolerance=tolerance * (1.0 - _DRAW_ERROR_SHARE), **options
        )
    except ToleranceError as error:
        best = search.certify(error.result)
        raise ToleranceError(tolerance, best.variation.value, error.why, result=best) from None
    result = search.certify(found)
    if _measure(result, search.objective, options.get("criterion", "sum")) > tolerance:
        why = "The rest comes from the rounding errors of draws, which a longer scan cannot reduce."
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
    """Findings of `diagnose` about a Gaussian field.

    Attributes
    ----------
    dobrushin : dict of int to float
        For a number of systematic sweeps, the share of variables that are then certified to be close to the field, at a
        Wasserstein distance of at most 0.05 conditional standard deviations.
    unbounded : int
        Number of variables without a limit on one side or both.
    """

    unbounded: int = 0

    def lines(self) -> list[tuple[str, str]]:
        holds = "holds" if self.satisfies_dobrushin else "fails"
        strongest = ", ".join(f"{label!r} ({value:.3g})" for label, value in self.strongest)
        shares = "; ".join(f"{sweeps} sweeps {share:.0%}" for sweeps, share in self.dobrushin.items()) or "no scan"
        norms = f"rows {self.row_norm:.3g}, columns {self.column_norm:.3g}, spectral radius {self.spectral_radius:.3g}"
        free = f"{self.unbounded} of them unbounded"
        size = f"{self.n_variables} variables, {free}, up to {self.largest_degree} neighbours"
        return [
            ("size", size),
            ("influence", f"{norms}: Dobrushin's condition {holds} in Wasserstein distance"),
            ("strongest", strongest),
            ("dobrushin", f"variables within {_CLOSE_DEVIATIONS:g} deviations of the field after {shares}"),
            *(("try", advice) for advice in self.advice),
        ]


@version_for(diagnose, GaussianField)
def _(model: GaussianField) -> FieldDiagnosis:
    space, form = space_of(model), model._form
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
        **describe_influence(model, space.known.whole), largest_cardinality=0, hard_zeros=False, irreducible=True,
        determined=[], width=None, exact_memory=None, dobrushin=shares, coalescence={}, seconds={}, advice=advice,
        unbounded=int((~form.is_bounded).sum()),
    )  # fmt: skip


def _shares(space: FieldSpace) -> dict[int, float]:
    n = space.form.n_variables
    everything = Objective(np.arange(n), np.ones(n), False)
    near = _CLOSE_DEVIATIONS / np.sqrt(space.form.diagonal)
    shares = {}
    for sweeps in _DIAGNOSED_SWEEPS:
        bounds = certify(space.anchor, Scan.systematic(n, n * sweeps), everything).per_variable
        shares[sweeps] = float((bounds <= near).mean())
    return shares
