"""Gradients of the log-likelihood: expected statistics from sums, or from chains whose bias is bounded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.engine import SumPlan, plan_sums
from dobrushin._influence import Influence, influence
from dobrushin._learning.structure import Structure
from dobrushin._models import Model
from dobrushin._models.factors import FactorTables
from dobrushin._optimize import shortest_scan
from dobrushin._sampling import sample
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import NO_DEADLINE, current_deadline
from dobrushin._shared.executors import TimeUp
from dobrushin._shared.memory import memory_limit
from dobrushin._shared.running import kept_seed
from dobrushin._shared.text import in_full
from dobrushin._variation import Objective, evaluate
from dobrushin.errors import ArgumentError, BudgetError, ToleranceError


@dataclass(frozen=True)
class Options:
    """Options of gradients: their method, scan, chains, and when they are small enough."""

    method: str
    scan: str
    tolerance: float
    steps: int | None
    chains: int
    persistent: bool
    stop: float | None
    sequence: np.random.SeedSequence

    @property
    def is_exact(self) -> bool:
        """Whether gradients come from a clique tree."""
        return self.method == "exact"

    def check_for(self, structure: Structure) -> Options:
        """Return the options, checked for this structure."""
        tolerance = check.positive(self.tolerance, "tolerance")
        if tolerance >= structure.difference:
            requirement = f"below {in_full(structure.difference)}, the range of the statistics"
            raise ArgumentError("tolerance", requirement, tolerance)
        steps, stop = self.steps, self.stop
        if steps is not None:
            steps = check.count(steps, "steps", structure.n if self.scan == "systematic" else 1)
        if stop is not None:
            stop = check.positive(stop, "stop")
        elif self.is_exact:
            stop = 1e-6
        return replace(self, tolerance=tolerance, steps=steps, stop=stop, persistent=bool(self.persistent))

    def about(self) -> dict[str, Any]:
        """Return what identifies the fit, for its result and its checkpoint."""
        return {
            "method": "exact" if self.is_exact else self.scan,
            "persistent": not self.is_exact and self.persistent,
            "seed": None if self.is_exact else kept_seed(self.sequence),
            "tolerance": self.tolerance,
            "chains": self.chains,
        }


class ExactGradient:
    """Expected statistics from sums over all states; one plan serves all parameters."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._limit = memory_limit(None)
        edges = [tuple(edge) for edge in structure.edges.tolist()]
        singles = [(v,) for v in range(len(structure.sizes))]
        tables = self._tables(structure.start)
        self._n_edges = len(edges)
        try:
            self._plan: SumPlan = plan_sums(tables, [*edges, *singles], self._limit)
        except BudgetError as refusal:
            remedy = "Use method='gibbs'."
            raise BudgetError("The exact gradient", refusal.required, refusal.limit, refusal.unit, remedy) from None
        self._alone = self._plan.asking(tables, [])

    def expectation(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
        """Return the means of all statistics, a bound on their rounding errors, and the log-partition function."""
        structure = self._structure
        sums = self._plan.run(self._tables(full), limit=self._limit)
        parts = [part.ravel() for part in sums.marginals]
        pairs = np.concatenate([*parts[: self._n_edges], np.empty(0)])
        singles = np.concatenate(parts[self._n_edges :])
        # Relative errors of probabilities, and the roundings of what is added up here, of statistics of size 1.
        cells = max(part.size for part in parts)
        error = 2.0 * sums.relative + cells * (2.0 * sums.absolute + 2.0**-50)
        bias = error if error < structure.difference else np.inf
        return structure.expectations(pairs, singles), bias, sums.log_partition

    def log_partition(self, full: NDArray[np.float64]) -> float:
        """Return the log-partition function alone."""
        return self._alone.run(self._tables(full), limit=self._limit).log_partition

    def _tables(self, full: NDArray[np.float64]) -> FactorTables:
        return self._structure.pairwise(full)._form.tables()


# Share of the tolerance that a scan is chosen for, so that it still holds when the parameters have moved a little.
AIM = 0.75
# A scan is chosen again when its bound is below this share: a much shorter one would do.
WASTEFUL = 0.25
# Share of the tolerance for the errors of updates: before sampling it is not known which kernel will draw.
_ROOM = 1e-6
# Steps of a certified scan for each variable, at most, if the caller sets no limit.
_MAX_SWEEPS = 1000
# With more variables, making a scan a few percent shorter takes longer than running it.
_POLISHED = 100
# Multiplications that the certificate of a random scan may take: about a second.
_MAX_WORK = 1e9


class Expectation(NamedTuple):
    """Means of all statistics under the model, as the chains of a step estimate them."""

    means: NDArray[np.float64]
    bias: float  # bound on the bias of each of them; inf: unknown, or no better than the range
    steps: int  # Gibbs updates of each chain
    is_new: bool  # whether the scan was chosen for this step


class NoScanError(Exception):
    """No scan has a bound within the tolerance at these parameters."""


class GibbsGradient:
    """Expected statistics from chains that follow the parameters.

    From step to step the scan is kept, and the states if chains are persistent. A scan is certified anew at every step.
    """

    def __init__(self, structure: Structure, options: Options, data: NDArray[Any]) -> None:
        self._structure, self._kind, self._tolerance = structure, options.scan, options.tolerance
        self._chains, self._persistent, self._sequence = options.chains, options.persistent, options.sequence
        steps = options.steps
        self._max_steps = _MAX_SWEEPS * structure.n if steps is None else steps
        used = structure.used_variables()
        self._objective = Objective(used, np.ones(len(used)), True)
        weights = structure.weights()
        self._weights = {structure.labels[i]: float(weights[i]) for i in used.tolist()}
        self._data = data
        self.scan: Scan | None = None
        self.states: NDArray[Any] | None = None  # (chains, variables), of persistent chains
        self._is_new = False
        if self._kind == "systematic":
            self.scan = Scan.systematic(structure.n, steps or 10 * structure.n)
        elif self._kind == "uniform":
            self.scan = Scan.uniform(structure.n, steps or 10 * structure.n)
        self._at: tuple[bytes, Model, Influence] | None = None  # parameters that all is ready for
        self._x: NDArray[Any] | None = None

    # -- the scan --------------------------------------------------------------------------------------------------

    def prepare(self, full: NDArray[np.float64]) -> bool:
        """Prepare a step at these parameters; return False if no scan is certified for them."""
        if self._at is None or self._at[0] != full.tobytes():
            model = self._structure.model(full)
            self._at = (full.tobytes(), model, influence(model))
            if self._kind == "certified":
                return self._renew()
        return self.scan is not None

    def _renew(self) -> bool:
        """Keep the scan where a fresh certificate allows it, else choose another one."""
        assert self._at is not None
        source = self._at[2]
        held, self._is_new = self.scan, False
        bound = np.inf if held is None else self.bound(source, held)
        holds = held is not None and bound <= self._goal
        shortest = held is not None and len(held) <= len(self._objective.positions)
        if holds and (bound >= WASTEFUL * self._tolerance or shortest):
            return True
        scan = self._choose(source)
        if scan is not None and (held is None or not holds or len(scan) < len(held)):
            self.scan, self._is_new = scan, True
        elif not holds:
            self._at = None
            return False
        return True

    @property
    def _goal(self) -> float:
        return self._tolerance * (1.0 - _ROOM)

    def _choose(self, source: Influence) -> Scan | None:
        """Return the shortest scan found; None where no scan reaches the bound."""
        for goal in (AIM * self._tolerance, self._goal):
            try:
                result = shortest_scan(
                    source, None, self._weights, tolerance=goal, criterion="max",
                    polish=int(len(self._weights) <= _POLISHED), max_steps=self._max_steps, guide=None,
                )  # fmt: skip
            except ToleranceError:
                continue
            # The weights bound every coordinate by the largest of the variables; the bound itself may be smaller.
            if self.bound(source, result.scan) <= self._goal:
                return result.scan
        return None

    def bound(self, source: Influence, scan: Scan, error: Any = 0.0) -> float:
        """Bound the bias by a fresh forward pass at these parameters, from b_0 = 1: valid for any start."""
        certificate = evaluate(source, scan, self._objective, 1.0, error)
        return self._structure.largest_bias(certificate.per_variable)

    # -- the chains ------------------------------------------------------------------------------------------------

    def expectation(self, full: NDArray[np.float64], iteration: int) -> Expectation:
        """Estimate the means at the end of the scan; raise `NoScanError` where a required certificate fails."""
        if not self.prepare(full):
            raise NoScanError
        expectation = self._draw(iteration)
        if self._kind == "certified" and expectation.bias > self._tolerance:
            raise NoScanError  # the updates as they were drawn err by more than there is room for
        return expectation

    def _draw(self, iteration: int) -> Expectation:
        assert self._at is not None
        assert self.scan is not None
        _, model, source = self._at
        key = (*self._sequence.spawn_key, iteration)
        seed = np.random.SeedSequence(self._sequence.entropy, spawn_key=key)
        initial = self._initial(model)
        seconds = None if (limit := current_deadline()) is NO_DEADLINE else max(limit.left, 1e-9)
        run = sample(model, self.scan, chains=self._chains, seed=seed, initial=initial, time_limit=seconds)
        if run.chains < self._chains:
            raise TimeUp
        assert run.states is not None
        states = run.states
        if len(run.variables) < self._structure.n:  # the others are in no statistic
            states = np.full((self._chains, self._structure.n), model.states(0)[0], dtype=run.states.dtype)
            if not isinstance(initial, str):
                states[:] = initial
            states[:, [model.index(label) for label in run.variables]] = run.states
        if self._persistent:
            self.states = states
        self._x = self._structure.data_digits(states)
        bias = np.inf
        if not self.scan.is_random or len(self.scan) * float(source.matrix.nnz + source.n_variables) <= _MAX_WORK:
            bias = self.bound(source, self.scan, run.update_error)
        bias = bias if bias < self._structure.difference else np.inf
        return Expectation(self._structure.means(self._x), bias, len(self.scan), self._is_new)

    def _initial(self, model: Model) -> Any:
        if self.states is not None:
            return self.states
        if model._form.has_zeros:  # observations are allowed states
            return self._data[np.arange(self._chains) % len(self._data)]
        return "uniform"

    def variance(self, direction: NDArray[np.float64]) -> float:
        """Return the variance of sum_k direction_k t_k over the chains of the last step."""
        assert self._x is not None
        return float(self._structure.along(direction, self._x).var())

    def snapshot(self) -> tuple[Any, ...]:
        """Return the state that a step changes."""
        return self.scan, self.states, self._is_new, self._at

    def roll_back(self, held: tuple[Any, ...]) -> None:
        """Undo a step that was not finished."""
        self.scan, self.states, self._is_new, self._at = held

    # -- going on later --------------------------------------------------------------------------------------------

    def to_arrays(self, full: NDArray[np.float64]) -> dict[str, Any]:
        """Return what the next step, at these parameters, depends on."""
        ready = self._at is not None and self._at[0] == full.tobytes()
        arrays: dict[str, Any] = {"ready": np.array(ready), "is_new": np.array(self._is_new)}
        if self.states is not None:
            arrays["states"] = self.states
        if self.scan is not None:
            arrays |= {f"scan.{name}": part for name, part in self.scan._to_arrays().items()}
        return arrays

    def restore(self, arrays: dict[str, Any], full: NDArray[np.float64]) -> None:
        """Resume from what `to_arrays` returned."""
        self.states = arrays.get("states")
        scan = {name.removeprefix("scan."): part for name, part in arrays.items() if name.startswith("scan.")}
        self.scan = Scan._from_arrays(scan) if scan else None
        self._is_new = bool(arrays["is_new"])
        if arrays["ready"]:  # the scan was chosen for these parameters, and is certified with them once it has run
            model = self._structure.model(full)
            self._at = (full.tobytes(), model, influence(model))
