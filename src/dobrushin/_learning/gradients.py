"""Gradients from Gibbs chains, whose scan is certified anew at every iteration, and from bounded marginals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.estimator import estimate
from dobrushin._estimate.targets import Joint
from dobrushin._influence import Influence, influence
from dobrushin._learning.ascent import HALVINGS, Ascent, AscentOptions, Expectation, Vector
from dobrushin._learning.data import Observed
from dobrushin._learning.structure import Structure
from dobrushin._models import Model
from dobrushin._optimize import shortest_scan
from dobrushin._sampling import sample
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array
from dobrushin._shared.call import NO_DEADLINE, current_deadline, public
from dobrushin._shared.executors import TimeUp
from dobrushin._shared.running import kept_seed
from dobrushin._shared.text import in_full
from dobrushin._variation import Objective, evaluate
from dobrushin.errors import ArgumentError, ToleranceError, UncertifiedStep
from dobrushin.typing import EstimateMethod, FitScan

# Share of the tolerance that a scan is chosen for, so that its certificate survives small steps of the parameters.
_AIMED_SHARE = 0.75
# Below this share of the tolerance a much shorter scan would do, so that another one is chosen.
_WASTEFUL_SHARE = 0.25
# Share of the tolerance for errors of updates, since the kernel is chosen only when sampling starts.
_UPDATE_ERROR_SHARE = 1e-6
# Steps per variable: the largest number for chosen scans, and the number for systematic and random scans.
_MAX_SWEEPS, _USUAL_SWEEPS = 1000, 10
# With more variables, making a scan a few percent shorter takes longer than running it.
_POLISHED_VARIABLES = 100
# Multiplications that the certificate of a random scan may take: about a second.
_MAX_PRODUCTS = 1e9
# Chosen step sizes fall with this power of the number of iterations, once the gradient is within its noise.
_DECAY = 2.0 / 3.0


@dataclass(frozen=True)
class GibbsGradient:
    """Options of gradients of `fit` that are estimated from Gibbs chains.

    Parameters
    ----------
    scan : {"dogs", "systematic", "uniform"}
        "dogs": the shortest scan found whose bias is within the tolerance. Its certificate is computed anew at every
        iteration, at the current parameters, and another scan is chosen when it fails. "systematic", "uniform": sweeps
        in order, or variables drawn at random; their bound is computed and may be vacuous.
    tolerance : float
        Largest bias of every coordinate of the gradient, for scan="dogs".
    gibbs_steps : int, optional
        Gibbs updates of each chain for a gradient. Default 10 for each variable; for scan="dogs" a limit, by default
        1000 for each variable.
    chains : int
    persistent : bool
        Continue the chains of the previous iteration, instead of starting from new uniform states.

    Notes
    -----
    Given the iterations before, the mean of a statistic t_k over the chains has a bias of at most
    min( s, s (b_i + b_j) ), with i and j the variables of t_k, s = 2 for spins and 1 for indicators, and b the
    disagreement after the scan from b_0 = 1, errors of the updates included (paper, "Dobrushin variation controls
    weighted TV" and "Accelerated MCMC maximum likelihood estimation").

    Examples
    --------
    >>> import dobrushin as db
    >>> options = db.GibbsGradient(chains=200, tolerance=0.05)
    >>> found = db.fit([(0, 1)], [[1, 1], [-1, -1], [1, -1]], method=options, iterations=5, seed=1)
    >>> bool(found.bias_bound <= 0.05)
    True
    """

    scan: FitScan = "dogs"
    tolerance: float = 0.02
    gibbs_steps: int | None = None
    chains: int = 1000
    persistent: bool = False

    @public()
    def __post_init__(self) -> None:
        check.choice(self.scan, get_args(FitScan), "scan")
        check.positive(self.tolerance, "tolerance")
        check.count(self.chains, "chains")
        if self.gibbs_steps is not None:
            check.count(self.gibbs_steps, "gibbs_steps")


class GibbsAscent(Ascent):
    """Ascent by gradients from chains; the scan is kept between iterations (and the states if persistent)."""

    def __init__(
        self,
        structure: Structure,
        observed: Observed,
        options: AscentOptions,
        theta: Vector,
        gibbs: GibbsGradient,
        sequence: np.random.SeedSequence,
    ) -> None:
        super().__init__(structure, observed, options, theta)
        self.method, self.chains, self.persistent = gibbs.scan, int(gibbs.chains), bool(gibbs.persistent)
        self.seed, self._sequence = kept_seed(sequence), sequence
        self._tolerance, steps = float(gibbs.tolerance), gibbs.gibbs_steps
        if self._tolerance >= structure.ranges.max():
            requirement = f"below {in_full(float(structure.ranges.max()))}, the range of the statistics"
            raise ArgumentError("tolerance", requirement, gibbs.tolerance, function="GibbsGradient")
        if gibbs.scan == "systematic" and steps is not None and steps < structure.n:
            requirement = f"at least {structure.n}, a sweep over all variables"
            raise ArgumentError("gibbs_steps", requirement, steps, function="GibbsGradient")
        self._max_steps = steps or _MAX_SWEEPS * structure.n
        self.scan: Scan | None = None
        if gibbs.scan != "dogs":
            make = Scan.systematic if gibbs.scan == "systematic" else Scan.uniform
            self.scan = make(structure.n, steps or _USUAL_SWEEPS * structure.n)
        self._objective = Objective(structure.used, np.ones(len(structure.used)), True)
        weights = structure.target_weights()
        self._weights = {structure.labels[i]: float(weights[i]) for i in structure.used.tolist()}
        self._is_new = False
        self._states: NDArray[Any] | None = None  # (chains, variables), of persistent chains
        self._at: tuple[bytes, Model, Influence] | None = None  # parameters that the scan is ready for
        self._drawn: NDArray[Any] | None = None  # (variables, chains), of the last iteration

    # -- the scan --------------------------------------------------------------------------------------------------

    def prepare(self, full: Vector) -> bool:
        """Choose a scan for these parameters; return False if none is certified for them."""
        if self._at is not None and self._at[0] == full.tobytes():
            return self.scan is not None
        model = self.structure.model(full)
        source = influence(model)
        self._at = (full.tobytes(), model, source)
        if self.method != "dogs":
            return True
        held, self._is_new = self.scan, False
        bound = np.inf if held is None else self.bound(source, held)
        is_valid = held is not None and bound <= self._goal
        is_shortest = held is not None and len(held) <= len(self._objective.positions)
        if is_valid and (bound >= _WASTEFUL_SHARE * self._tolerance or is_shortest):
            return True
        scan = self._choose_scan(source)
        if scan is not None and (held is None or not is_valid or len(scan) < len(held)):
            self.scan, self._is_new = scan, True
        elif not is_valid:
            self._at = None
            return False
        return True

    @property
    def _goal(self) -> float:
        return self._tolerance * (1.0 - _UPDATE_ERROR_SHARE)

    def _choose_scan(self, source: Influence) -> Scan | None:
        """Return the shortest scan found whose bias is within the tolerance; None if there is none."""
        for goal in (_AIMED_SHARE * self._tolerance, self._goal):
            try:
                result = shortest_scan(
                    source, None, self._weights, tolerance=goal, criterion="max",
                    polish=int(len(self._weights) <= _POLISHED_VARIABLES), max_steps=self._max_steps, guide=None,
                )  # fmt: skip
            except ToleranceError:
                continue
            # The weights bound every coordinate by the largest of the variables; the bound itself may be smaller.
            if self.bound(source, result.scan) <= self._goal:
                return result.scan
        return None

    def bounds(self, source: Influence, scan: Scan, error: Any = 0.0) -> Vector:
        """Bound the bias of each statistic after a scan from any start.

        The disagreement starts at 1, and `error` bounds that of each update.
        """
        certificate = evaluate(source, scan, self._objective, 1.0, error)
        return self.structure.bias(certificate.per_variable)

    def bound(self, source: Influence, scan: Scan) -> float:
        """Bound the largest bias of a coordinate of the gradient after a scan from any start."""
        return float(self.bounds(source, scan).max())

    # -- the chains ------------------------------------------------------------------------------------------------

    def expectation(self, full: Vector, iteration: int) -> Expectation:
        """Estimate the means of the statistics from the chains' states at the end of the scan."""
        is_ready = self.prepare(full)
        if not is_ready or self._at is None or self.scan is None:
            raise UncertifiedStep(self._tolerance, "at the parameters reached", result=self.result())
        _, model, source = self._at
        key = (*self._sequence.spawn_key, iteration)
        seed = np.random.SeedSequence(self._sequence.entropy, spawn_key=key)
        initial: Any = "uniform" if self._states is None else self._states
        if self._states is None and model._form.has_zeros:  # observations are allowed states
            initial = self._allowed_states(model)
        seconds = None if (limit := current_deadline()) is NO_DEADLINE else max(limit.left, 1e-9)
        run = sample(model, self.scan, chains=self.chains, seed=seed, initial=initial, time_limit=seconds)
        states = run.states
        if run.chains < self.chains or states is None:
            raise TimeUp
        if len(run.variables) < self.structure.n:  # no statistic depends on the other variables
            states = np.full((self.chains, self.structure.n), model.states(0)[0], dtype=states.dtype)
            if not isinstance(initial, str):
                states[:] = initial
            states[:, [model.index(label) for label in run.variables]] = run.states
        if self.persistent:
            self._states = states
        self._drawn = self.structure.digits(states)
        bias: Vector | float = np.inf
        if not self.scan.is_random or len(self.scan) * float(source.matrix.nnz + source.n_variables) <= _MAX_PRODUCTS:
            bias = self.bounds(source, self.scan, run.update_error)
            bias = np.where(bias < self.structure.ranges.max(), bias, np.inf)
        if (
            self.method == "dogs" and np.max(bias) > self._tolerance
        ):  # recomputed with the errors of the kernel that drew
            raise UncertifiedStep(self._tolerance, "at the parameters reached", result=self.result())
        means = self.structure.means(self.structure.count(self._drawn), self.chains)
        return Expectation(means, bias, len(self.scan), self._is_new)

    def _allowed_states(self, model: Model) -> Array:
        """Return complete observations to start the chains from, because the model allows these states."""
        complete = np.flatnonzero((self.observed.x >= 0).all(axis=0))
        if not len(complete):
            raise ArgumentError("data", "with a row without gaps, because the model forbids some states", got="none")
        states = self.observed.x[:, complete[np.arange(self.chains) % len(complete)]].T.astype(np.int64)
        return 2 * states - 1 if self.structure.is_spins else states

    def variance(self, direction: Vector) -> float:
        """Estimate the curvature of the log-likelihood in a direction from the last iteration's chains.

        For one graph the curvature is the variance of sum_k direction_k t_k; for an average over graphs it is smaller.
        """
        assert self._drawn is not None
        return self.structure.n_graphs * float(self.structure.along(direction, self._drawn).var())

    def choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
        iteration = len(self.rows)
        curvature = self.variance(inward) / float(inward @ inward) + self.options.ridge
        # Along this direction the log-likelihood is about a parabola: go to its top.
        size = 1.0 / (curvature if curvature > 1e-3 else self.curvature)
        # Once the gradient is within its noise, steps of that length would only wander about.
        quiet = (k for k, row in enumerate(self.rows) if row.gradient_norm <= self.noise(row.bias_bound))
        size /= (1.0 + iteration - next(quiet, iteration)) ** _DECAY
        for _ in range(HALVINGS):
            theta = self.move(gradient, size)
            if self.prepare(self.structure.fill(theta)):
                return theta, size
            size /= 2.0
        reason = "anywhere near the parameters reached in the direction of the gradient"
        raise UncertifiedStep(self._tolerance, reason, result=self.result())

    def iterate(self) -> None:
        held = self.scan, self._states, self._is_new, self._at
        try:
            super().iterate()
        except BaseException:
            self.scan, self._states, self._is_new, self._at = held
            raise

    # -- resuming --------------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, Any]:
        ready = self._at is not None and self._at[0] == self.structure.fill(self.theta).tobytes()
        arrays = super().to_arrays() | {"ready": np.array(ready), "is_new": np.array(self._is_new)}
        if self._states is not None:
            arrays["states"] = self._states
        if self.scan is not None:
            arrays |= {f"scan.{name}": part for name, part in self.scan._to_arrays().items()}
        return arrays

    def restore(self, arrays: dict[str, Any]) -> None:
        super().restore(arrays)
        self._states = arrays.get("states")
        scan = {name.removeprefix("scan."): part for name, part in arrays.items() if name.startswith("scan.")}
        self.scan = Scan._from_arrays(scan) if scan else None
        self._is_new = bool(arrays["is_new"])
        if arrays["ready"]:  # the scan was chosen for these parameters, and is certified with them once it has run
            full = self.structure.fill(self.theta)
            model = self.structure.model(full)
            self._at = (full.tobytes(), model, influence(model))


# -- gradients from marginals with guaranteed intervals ----------------------------------------------------------------


@dataclass(frozen=True)
class MarginalGradient:
    """Options of gradients of `fit` that are computed from marginals with certified intervals.

    Parameters
    ----------
    tolerance : float
        Largest half-width of the interval of each marginal probability.
    confidence : float
        Probability with which all intervals of a gradient are valid, where marginals are estimated from chains.
    method : str
        As for `estimate`: "auto", or one method by name, but not "uncertified". With "local" and "weights" they
        are certain.

    Notes
    -----
    The mean of a statistic is the sum over factors and their joint states x of a(x) p(x), with a the number that
    multiplies the weight there, and p the marginal probability. If every p is within e(x) of its estimate, the mean is
    off by at most the sum of |a(x)| e(x).

    Examples
    --------
    >>> import dobrushin as db
    >>> edges = [(i, i + 1) for i in range(9)]
    >>> rows = [(edge, {"alike": [[1, 0], [0, 1]]}) for edge in edges]
    >>> chain = db.FactorGraph([2] * 10, [])
    >>> data = [[0] * 10, [1] * 10, [0] * 5 + [1] * 5]
    >>> found = db.fit(chain, data, features=rows, ridge=0.1, iterations=5, method=db.MarginalGradient(0.01))
    >>> bool(found.bias_bound <= 9 * 2 * 0.01)
    True
    """

    tolerance: float = 0.02
    confidence: float = 0.99
    method: EstimateMethod = "auto"

    @public()
    def __post_init__(self) -> None:
        check.positive(self.tolerance, "tolerance")
        check.fraction(self.confidence, "confidence")
        check.choice(self.method, [name for name in get_args(EstimateMethod) if name != "uncertified"], "method")


class MarginalAscent(Ascent):
    """Ascent by marginals with intervals; step sizes by Barzilai and Borwein, from the last change of the gradient."""

    method = "marginals"

    def __init__(
        self,
        structure: Structure,
        observed: Observed,
        options: AscentOptions,
        theta: Vector,
        how: MarginalGradient,
        sequence: np.random.SeedSequence,
    ) -> None:
        super().__init__(structure, observed, options, theta)
        self.seed, self._sequence, self._how = kept_seed(sequence), sequence, how
        scopes = {tuple(scope) for part in structure.scopes for scope in part.tolist()}
        self._scopes = sorted(scopes, key=lambda scope: (len(scope), scope))
        self._last: tuple[Vector, Vector] | None = None  # theta and the gradient of the iteration before

    def expectation(self, full: Vector, iteration: int) -> Expectation:
        structure, how = self.structure, self._how
        labels = [tuple(structure.labels[i] for i in scope) for scope in self._scopes]
        key = (*self._sequence.spawn_key, iteration)
        seconds = None if (limit := current_deadline()) is NO_DEADLINE else max(limit.left, 1e-9)
        answer: Any = estimate(
            structure.model(full), [own[0] if len(own) == 1 else Joint(*own) for own in labels],
            tolerance=how.tolerance, confidence=how.confidence, method=how.method, time_limit=seconds,
            seed=np.random.SeedSequence(self._sequence.entropy, spawn_key=key),
        )  # fmt: skip
        found = {}
        for scope, own in zip(self._scopes, labels, strict=True):
            part = answer[own[0] if len(own) == 1 else own]
            found[scope] = part.value, np.maximum(part.upper - part.value, part.value - part.lower)
        counts, errors = np.zeros(len(structure.base)), np.zeros(len(structure.base))
        numbered = (tuple(scope) for part in structure.scopes for scope in part.tolist())
        for scope, table in zip(numbered, structure.table_of.tolist(), strict=True):
            span = slice(structure.table_start[table], structure.table_start[table + 1])
            counts[span] += np.ravel(found[scope][0])
            errors[span] += np.ravel(found[scope][1])
        bias = structure.means(errors, 1.0, is_size=True) * (1.0 + 2.0**-30)
        return Expectation(structure.means(counts, 1.0), bias)

    def choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
        """Take the step of Barzilai and Borwein (1988), or if that fails one of size 1 / curvature."""
        size = 1.0 / self.curvature
        if self._last is not None:
            move, change = self.theta - self._last[0], self._last[1] - gradient
            if (product := float(move @ change)) > 0.0:
                size = float(move @ move) / product
        self._last = self.theta, gradient
        return self.move(gradient, size), size

    def to_arrays(self) -> dict[str, Any]:
        return super().to_arrays() | ({} if self._last is None else {"last": np.stack(self._last)})

    def restore(self, arrays: dict[str, Any]) -> None:
        super().restore(arrays)
        self._last = (arrays["last"][0], arrays["last"][1]) if "last" in arrays else None
