"""Expected statistics from Gibbs chains, with a bound on their bias at every step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import Influence, influence
from dobrushin._learning.read import Options
from dobrushin._learning.structure import Structure
from dobrushin._models import Model
from dobrushin._optimize import shortest_scan
from dobrushin._sampling import sample
from dobrushin._scan import Scan
from dobrushin._shared.deadline import NO_DEADLINE, current
from dobrushin._shared.executors import TimeUp
from dobrushin._variation import Objective, evaluate
from dobrushin.errors import ToleranceError

# A scan is chosen for less than the tolerance, so that it still holds when the parameters have moved a little, ...
AIM = 0.75
# ... and chosen again when the parameters have moved to where a much shorter one would do.
WASTEFUL = 0.25
# What the errors of the updates may add to a bound: before sampling it is not known which kernel will draw.
_ROOM = 1e-6
# A certified scan may take so many steps for each variable, if the caller sets no limit.
_MOST_SWEEPS = 1000
# With more variables, making a scan a few percent shorter takes longer than running it.
_POLISHED = 100
# Multiplications that the certificate of a random scan may take: about a second.
_MOST_WORK = 1e9


class Expectation(NamedTuple):
    """Means of all statistics under the model, as the chains of a step have them."""

    means: NDArray[np.float64]
    bias: float  # bound on the bias of each of them; inf: unknown, or no better than the range
    steps: int  # Gibbs updates of each chain
    is_new: bool  # whether the scan was chosen for this step


class NoScanError(Exception):
    """No scan has a bound within the tolerance at these parameters."""


class Gibbs:
    """Chains that follow the parameters.

    What is remembered from step to step is the scan, and the states if chains are persistent. A scan is never used
    on the strength of an earlier certificate.
    """

    def __init__(self, structure: Structure, options: Options, data: NDArray[Any]) -> None:
        self._structure, self._kind, self._tolerance = structure, options.scan, options.tolerance
        self._chains, self._persistent, self._sequence = options.chains, options.persistent, options.sequence
        steps = options.steps
        self._most_steps = _MOST_SWEEPS * structure.n if steps is None else steps
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
        """Make ready for these parameters; False if no scan is certified for them."""
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
        """The shortest scan found; None where none has the bound."""
        for goal in (AIM * self._tolerance, self._goal):
            try:
                result = shortest_scan(
                    source, None, self._weights, tolerance=goal, criterion="max",
                    polish=int(len(self._weights) <= _POLISHED), max_steps=self._most_steps, guide=None,
                )  # fmt: skip
            except ToleranceError:
                continue
            # The weights make every coordinate's bound at most the largest of the variables'; it is computed itself.
            if self.bound(source, result.scan) <= self._goal:
                return result.scan
        return None

    def bound(self, source: Influence, scan: Scan, error: Any = 0.0) -> float:
        """A fresh forward pass with the parameters at hand, from b_0 = 1: right for any start."""
        certificate = evaluate(source, scan, self._objective, 1.0, error)
        return self._structure.largest_bias(certificate.per_variable)

    # -- the chains ------------------------------------------------------------------------------------------------

    def expectation(self, full: NDArray[np.float64], iteration: int) -> Expectation:
        """Means of the statistics at the end of the scan; `NoScanError` where it cannot be certified but should be."""
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
        seconds = None if (limit := current()) is NO_DEADLINE else max(limit.left, 1e-9)
        run = sample(model, self.scan, chains=self._chains, seed=seed, initial=initial, time=seconds)
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
        if not self.scan.is_random or len(self.scan) * float(source.matrix.nnz + source.n_variables) <= _MOST_WORK:
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
        """Of sum_k direction_k t_k over the chains of the last step."""
        assert self._x is not None
        return float(self._structure.along(direction, self._x).var())

    def snapshot(self) -> tuple[Any, ...]:
        """What a step changes."""
        return self.scan, self.states, self._is_new, self._at

    def roll_back(self, held: tuple[Any, ...]) -> None:
        """Undo a step that was not finished."""
        self.scan, self.states, self._is_new, self._at = held

    # -- going on later --------------------------------------------------------------------------------------------

    def to_arrays(self, full: NDArray[np.float64]) -> dict[str, Any]:
        """What the next step, at these parameters, depends on."""
        ready = self._at is not None and self._at[0] == full.tobytes()
        arrays: dict[str, Any] = {"ready": np.array(ready), "is_new": np.array(self._is_new)}
        if self.states is not None:
            arrays["states"] = self.states
        if self.scan is not None:
            arrays |= {f"scan.{name}": part for name, part in self.scan.to_arrays().items()}
        return arrays

    def restore(self, arrays: dict[str, Any], full: NDArray[np.float64]) -> None:
        """Go on from what `to_arrays` gave."""
        self.states = arrays.get("states")
        scan = {name.removeprefix("scan."): part for name, part in arrays.items() if name.startswith("scan.")}
        self.scan = Scan.from_arrays(scan) if scan else None
        self._is_new = bool(arrays["is_new"])
        if arrays["ready"]:  # the scan was chosen for these parameters, and is certified with them once it has run
            model = self._structure.model(full)
            self._at = (full.tobytes(), model, influence(model))
