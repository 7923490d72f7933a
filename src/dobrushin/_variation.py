"""Dobrushin variation: a certified bound on the bias of a scan, before sampling. [trusted]"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dobrushin._influence import Influence, RowSource, row_source
from dobrushin._kernels.variation import forward, forward_random
from dobrushin._models import Model
from dobrushin._models.near import Numbering
from dobrushin._models.sources import read_source
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Floats, Ints, distinct, frozen, inflation, prefix_sums, weighted_sum
from dobrushin._shared.call import public, warn
from dobrushin._shared.compile import in_pieces
from dobrushin._shared.text import card, counted, rounded_up
from dobrushin.errors import ArgumentError, VacuousBoundWarning
from dobrushin.typing import ScanLike, Targets, Weights

_WHAT = "bounding the bias"


@dataclass(frozen=True)
class Objective:
    """The variables of interest with positive weights d; if `is_set`, they are targets, all of weight 1."""

    positions: Ints
    weights: Floats
    is_set: bool

    def trivial(self) -> float:
        """Return the trivial bound: 1 for the total variation of a set of targets, otherwise the sum of the weights."""
        with np.errstate(over="ignore"):
            return 1.0 if self.is_set else float(self.weights.sum())

    def describe(self, n: int) -> str:
        """Return the targets or weights in a few words, for messages."""
        size = len(self.positions)
        if not self.is_set:
            return f"{size} weighted variables"
        return f"all {n} variables" if size == n else f"{size} target{'s' if size > 1 else ''}"


def read_objective(source: RowSource, targets: Any, weights: Any) -> Objective:
    """Check the arguments `targets` and `weights` of a call; without either, all variables are targets."""
    n = source.n_variables
    if targets is not None and weights is not None:
        raise ArgumentError("weights", "None when 'targets' is given", weights)
    if weights is None:
        if targets is None:
            return Objective(np.arange(n), np.ones(n), True)
        positions = check.positions(targets, source.labels, source._lookup, "targets")
        return Objective(np.sort(positions), np.ones(len(positions)), True)
    if isinstance(weights, Mapping):
        positions = check.positions(list(weights), source.labels, source._lookup, "weights")
        values = check.real_array(list(weights.values()), "weights")
    else:
        values = check.real_array(weights, "weights")
        if values.shape != (n,):
            raise ArgumentError("weights", f"one number for each of {n} variables", got=f"shape {values.shape}")
        positions = np.arange(n)
    check.all_entries((values >= 0) & (values < np.inf), values, "weights", "non-negative and finite")
    kept = np.flatnonzero(values > 0)
    if not len(kept):
        raise ArgumentError("weights", "positive for some variable", weights)
    order = kept[np.argsort(positions[kept], kind="stable")]
    return Objective(positions[order], values[order], False)


@dataclass(frozen=True)
class Problem:
    """The influence rows that a scan reads, as arrays for the kernel, with their own numbering of the variables."""

    numbering: Numbering
    updated: Ints  # own numbers of the updated variables; only these have rows
    start: Ints
    columns: Array
    values: Floats
    cap: Floats
    error: Floats
    initial: Floats | float  # for the whole model

    @property
    def n(self) -> int:
        return self.numbering.n

    def start_values(self) -> Floats:
        """Return b_0: for each variable a bound on the disagreement before the first step."""
        return self.numbering.take(self.initial)

    def roundings(self, scan: Scan) -> int:
        """Return the largest number of rounding errors that an entry of the bounds b can accumulate over the scan."""
        width = int(np.diff(self.start).max(initial=0))
        return sum((width + (5 if segment.is_random else 1)) * segment.steps for segment in scan._segments)

    def advance(self, scan: Scan, b: Floats) -> None:
        """Update the bounds b in place, through all steps of the scan."""
        rows = (self.start, self.columns, self.values, self.cap, self.error)
        for segment in scan._within(self.numbering)._segments:
            steps = segment.steps
            if segment.is_random:
                in_pieces(forward_random, steps, steps, segment.vector(), *rows, np.empty_like(b), b, what=_WHAT)
            else:
                in_pieces(forward, steps, steps, segment.array(), segment.first, *rows, b, what=_WHAT)

    def at(self, values: Floats, positions: Ints) -> Floats:
        """Return the bounds of variables at positions in the model; those never read keep their initial bounds."""
        return self.numbering.look_up(values, positions, self.initial)

    def sum(self, b: Floats, objective: Objective, weights: Floats, roundings: int) -> float:
        """Return the weighted sum of the bounds b over the objective's variables, rounded up."""
        return weighted_sum(weights, self.at(b, objective.positions), roundings)

    def lift(self, part: Numbering) -> Problem:
        """Renumber the variables from the submodel `part` to the whole model."""
        initial = self.initial if np.ndim(self.initial) == 0 else part.spread(np.asarray(self.initial), 1.0)
        return replace(self, numbering=self.numbering.within(part), initial=initial)


def touched_by(source: RowSource, scan: Scan, initial: Floats | float, error: Any) -> Problem:
    """Return the influence rows of the variables that the scan updates, with initial bounds and update errors."""
    n = source.n_variables
    updated = scan._updates(n)
    rows = source.rows(updated)
    if len(updated) > n // 8:
        # If many variables are updated, renumbering costs more than it saves. Other variables have empty rows.
        part, columns = Numbering(n, np.arange(n)), rows.columns
    else:
        part = Numbering(n, distinct(np.concatenate([updated, rows.columns]), n))
        columns = part.own(rows.columns).astype(rows.columns.dtype)
    own = part.own(updated)
    rows_in_part = Numbering(part.size, own)
    start = rows.start if len(own) == part.size else prefix_sums(rows_in_part.spread(np.diff(rows.start), 0))
    cap, local_error = rows_in_part.spread(rows.cap, 1.0), part.take(error)
    start, columns, values, cap, local_error = (
        frozen(array) for array in (start, columns, rows.values, cap, local_error)
    )
    return Problem(part, own, start, columns, values, cap, local_error, initial)


@dataclass(frozen=True, repr=False, eq=False)
class Variation:
    """A certificate: bounds how far the law after a scan is from the target distribution.

    Attributes
    ----------
    value : float
        Dobrushin variation, rounded up. For every f with differences bounded by the weights,
        abs(E f(X_T) - E_pi f) is at most this number, for every initial law on allowed states.
    tv_bound : float
        Bound on the total variation of the joint law of the targets (or of the variables with positive weight).
    is_vacuous : bool
        Whether the value is no better than the trivial bound: 1 for targets, the sum of the weights otherwise.
    steps : int
        Length of the scan.
    """

    value: float
    tv_bound: float
    is_vacuous: bool
    steps: int
    _objective: Objective
    _scan: Scan
    _problem: Problem
    _bounds: Floats  # certified bounds of variables, by own number in the problem
    _kind_of_bounds: ClassVar[str] = "each target"  # label of `target_bounds` in notebooks
    _source: RowSource | None = None  # the source of the rows, if it is known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}  # the source would bring the whole model along

    @property
    def per_variable(self) -> Floats:
        """Bounds on the total variation distance between each variable's marginals after the scan and in the model."""
        return self._problem.numbering.spread(self._bounds, self._problem.initial)

    @property
    def target_bounds(self) -> Floats:
        """Bounds on the total variation distances of the targets' marginals, in the order of their positions."""
        return self._problem.at(self._bounds, self._objective.positions)

    @public()
    def curve(self, every: int | None = None) -> tuple[Ints, Floats]:
        """Return the bound after 0, `every`, 2 `every`, ... steps and after the last.

        Parameters
        ----------
        every : int, optional
            Default: about 200 points.

        Returns
        -------
        steps, values : arrays

        Examples
        --------
        >>> import dobrushin as db
        >>> bound = db.variation(db.Ising.grid(4, 4, couplings=0.1), db.Scan.systematic(16, 160), targets=[0])
        >>> steps, values = bound.curve(every=80)
        >>> steps
        array([  0,  80, 160])
        >>> float(values[-1]) == bound.value
        True
        """
        every = max(1, self.steps // 200) if every is None else check.count(every, "every")
        b, roundings = self._problem.start_values(), 0
        steps = np.append(np.arange(0, self.steps, every), self.steps)
        values = np.empty(len(steps))
        for k, t in enumerate(steps):
            if k:
                piece = self._scan[steps[k - 1] : t]
                roundings += self._problem.roundings(piece)
                self._problem.advance(piece, b)
            values[k] = self._problem.sum(b, self._objective, self._objective.weights, roundings)
        return steps, values

    def _lift(self, part: Numbering | None) -> Variation:
        """Renumber the certificate from the submodel `part` to the whole model; without a `part`, return it unchanged.

        The scan must update only variables with all their neighbours in the submodel.
        """
        if part is None:
            return self
        objective = replace(self._objective, positions=part.positions[self._objective.positions])
        lifted = replace(self, _problem=self._problem.lift(part), _objective=objective, _scan=self._scan._lift(part))
        return replace(lifted, _source=None)

    @public()
    def write_proof(self, path: str | os.PathLike[str]) -> None:
        """Write a proof of the bound, which others can check without this library: ``python -m dobrushin.verify``.

        The proof takes the factors around the updated variables as given; or the influence matrix, if the certificate
        was computed from one.

        Examples
        --------
        >>> import dobrushin as db, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "bound.proof"
        >>> db.variation(db.Ising.grid(4, 4, couplings=0.1), db.Scan.systematic(16, 160), [0]).write_proof(path)
        >>> db.verify_proof(path).verdict
        'holds'
        """
        from dobrushin._proof import write_variation

        write_variation(self, path)

    def __float__(self) -> float:
        return self.value

    def _repr_html_(self) -> str:
        largest = rounded_up(float(self.target_bounds.max()), 4)
        return card(f"Certificate: {self._describe()}", [(self._kind_of_bounds, f"at most {largest}")])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._describe()})"

    def _describe(self) -> str:
        about = self._objective.describe(self._problem.n)
        verdict = " (vacuous: no better than the trivial bound)" if self.is_vacuous else ""
        kind = "total variation" if self._objective.is_set else "bias"
        return (
            f"{rounded_up(self.value, 6)}: bound on the {kind} of {about} after {counted(self.steps, 'step')}{verdict}"
        )


@public(_WHAT, read=read_source)
def variation(
    model: Model | Influence,
    scan: ScanLike,
    targets: Targets | None = None,
    weights: Weights | None = None,
    initial_disagreement: ArrayLike | None = None,
    update_error: ArrayLike = 0.0,
    *,
    initial: ArrayLike | None = None,
    progress: bool | None = None,
) -> Variation:
    """Certify a scan: bound the bias of Gibbs sampling with it, before sampling.

    Parameters
    ----------
    model : Model or Influence
        For a model, only the influence on variables that the scan updates is computed (``method="best"``).
    scan : Scan or ScanResult
    targets : labels, optional
        Variables of interest; default all.
    weights : array or dict from labels, optional
        Instead of targets: non-negative, for functions whose change is at most weights[i] when variable i changes.
        (The value of a spin -1/+1 changes by 2.)
    initial_disagreement : number or array, optional
        Bounds on P(X_i != Y_i) for the initial state X and a draw Y from the target distribution, under **one** joint
        coupling of all variables. Default 1, right for every start. Distances of the marginals are not enough.
    update_error : number or array, optional
        Bound on the total-variation error of each variable's update, if updates are drawn only approximately.
    initial : array, optional
        Only for a field: the point where chains start. Weights are then Lipschitz constants, and bounds are distances;
        see the page on fields.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    Variation
        With a `VacuousBoundWarning` if the bound is vacuous.

    Notes
    -----
    V = d' b_T with b_0 = initial_disagreement and, when step t updates i,
    b_i = min(1, min(cap_i, sum_j C_ij b_j) + error_i); the weighted total variation is at most V
    (paper, "Dobrushin variation controls weighted TV").
    The value is an upper bound in floating point too.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(40, 40, couplings=0.2, periodic=True)
    >>> bound = db.variation(model, db.Scan.systematic(1600, steps=16000), targets=[0])
    >>> bound
    Variation(0.00939...: bound on the total variation of 1 target after 16000 steps)
    >>> bound.per_variable.shape
    (1600,)
    """
    if initial is not None:
        raise ArgumentError("initial", "None, except for a field: other bounds hold for every start", initial)
    source = row_source(model)
    scan = as_scan(scan, source)
    objective = read_objective(source, targets, weights)
    n = source.n_variables
    start = _read_bounds(1.0 if initial_disagreement is None else initial_disagreement, n, "initial_disagreement")
    error = _read_bounds(update_error, n, "update_error")
    result = evaluate(source, scan, objective, start, np.minimum(error + source._error, 1.0))
    if result.is_vacuous:
        warn_vacuous(result)
    return result


def evaluate(
    source: RowSource, scan: Scan, objective: Objective, initial: Floats | float = 1.0, error: Any = 0.0
) -> Variation:
    """Compute the certificate of a scan, from its first step to its last. All reported bounds are computed here."""
    scan._check_fits(source.n_variables)
    problem = touched_by(source, scan, initial, error)
    b = problem.start_values()
    roundings = problem.roundings(scan)
    factor = inflation(roundings)
    problem.advance(scan, b)
    value = problem.sum(b, objective, objective.weights, roundings)
    unit = objective.weights if objective.is_set else np.ones(len(objective.positions))
    total = value if objective.is_set else problem.sum(b, objective, unit, roundings)
    # Entries that were never updated are exact. No entry is above 1.
    bounds = b.copy()
    bounds[problem.updated] = np.minimum(b[problem.updated] * factor, 1.0)
    is_vacuous = value >= objective.trivial()
    return Variation(value, min(1.0, total), is_vacuous, len(scan), objective, scan, problem, bounds, source)


def warn_vacuous(result: Variation) -> None:
    """Warn that the bound of a certificate is vacuous, and say what may help."""
    bounds = result.target_bounds
    if result._objective.is_set and len(bounds) > 1 and bounds.min() < 1:
        least, most = rounded_up(bounds.min()), rounded_up(bounds.max())
        hint = f"Single variables are bounded (by {least} to {most}): see per_variable. "
    else:
        hint = ""
    warn(
        f"The bound {rounded_up(result.value, 4)} after {counted(result.steps, 'step')} is vacuous for "
        f"{result._objective.describe(result._problem.n)}. {hint}Try a longer scan, fewer targets, or a sharper "
        "influence (method='best' or 'exact'); where influence.satisfies_dobrushin is False no scan may help.",
        VacuousBoundWarning,
    )


def _read_bounds(value: ArrayLike, n: int, argument: str) -> Any:
    array = check.real_array(value, argument)
    if array.ndim and array.shape != (n,):
        raise ArgumentError(argument, f"a number or one for each of {n} variables", got=f"shape {array.shape}")
    check.all_entries((array >= 0) & (array <= 1), array, argument, "between 0 and 1")
    return array.copy() if array.ndim else float(array)
