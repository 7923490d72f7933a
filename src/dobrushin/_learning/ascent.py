"""Projected gradient ascent on the mean log-likelihood: what all methods share, and exact gradients."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.engine import plan_sums
from dobrushin._learning.fit_result import Fit, History
from dobrushin._learning.structure import Structure
from dobrushin._models.factors import FactorTables
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import NO_DEADLINE, Deadline
from dobrushin._shared.executors import TimeUp
from dobrushin._shared.memory import memory_limit
from dobrushin._shared.state_file import StateFile
from dobrushin.errors import BudgetError, Interrupted

Vector = NDArray[np.float64]
# How often a step is halved in search of parameters that are certified, or at which the likelihood is larger.
HALVINGS = 20
# Probability of mistaking noise of the gradient for a signal, when convergence is judged by it.
_ERROR = 0.01


@dataclass(frozen=True)
class AscentOptions:
    """Step sizes, the gradient at which to stop, the penalty and the box."""

    learning_rate: float | Callable[[int], float] | None  # None: chosen at each iteration
    gradient_tol: float | None
    ridge: float
    low: Vector
    high: Vector

    def step_size(self, iteration: int) -> float | None:
        """Return the step size of an iteration, counted from 0; None where it is to be chosen."""
        if callable(self.learning_rate):
            return check.positive(self.learning_rate(iteration), "learning_rate")
        return self.learning_rate


class Expectation(NamedTuple):
    """Means of all statistics under the model."""

    means: Vector
    bias: float  # bound on the bias of each of them; inf: unknown, or no better than the range
    steps: int  # Gibbs updates of each chain
    is_new: bool  # whether the scan was chosen for this iteration


class _Row(NamedTuple):
    """An iteration, as `History` has it."""

    step_size: float
    gradient_norm: float
    bias_bound: float
    scan_length: int
    updates: int
    seconds: float
    is_new_scan: bool


class Ascent(ABC):
    """A fit under way: theta goes to project( theta + size (mean of data - mean of model - ridge theta) )."""

    method = "exact"
    chains = 1
    persistent = False
    seed: Any = None

    def __init__(
        self, structure: Structure, observed: NDArray[np.int64], options: AscentOptions, theta: Vector
    ) -> None:
        self.structure, self.options = structure, options
        self._data = structure.means(structure.data_digits(observed))[structure.free]
        self.theta = theta
        self.rows: list[_Row] = []
        self._began = time.perf_counter()
        # The variance of sum_k v_k t_k is at most |v|^2 times this: a step of 1 / curvature never overshoots.
        self.curvature = len(theta) * structure.difference**2 / 4.0 + options.ridge

    @abstractmethod
    def expectation(self, full: Vector, iteration: int) -> Expectation:
        """Return the means of all statistics under the model with these parameters."""

    @abstractmethod
    def choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
        """Return the next parameters and the step size that leads there, where the caller sets none."""

    def run(
        self,
        iterations: int,
        saved: StateFile | None,
        report: Callable[[int], None] | None,
        callback: Callable[[int, Vector], Any] | None,
        deadline: Deadline,
    ) -> Fit:
        """Climb; errors that end it early carry the fit so far, and a time limit returns it."""
        if saved is not None:
            if (arrays := saved.read()) is not None:
                self.restore(arrays)
            saved.begin(self.to_arrays())
        goal = self.options.gradient_tol
        try:
            while len(self.rows) < iterations and not deadline.is_over:
                if self.rows and goal is not None and self.rows[-1].gradient_norm <= goal:
                    break
                with nullcontext() if deadline is NO_DEADLINE else deadline:
                    self.iterate()
                if saved is not None and saved.is_due():
                    saved.save(self.to_arrays())
                if report:
                    report(len(self.rows))
                if callback:
                    callback(len(self.rows), frozen(self.theta.copy()))
        except TimeUp:
            pass  # in the middle of an iteration, which is left out
        except BudgetError:
            if not deadline.is_over:
                raise
        except KeyboardInterrupt:
            fit = self.result()
            raise Interrupted(f"{len(fit.history)} of {iterations} iterations had finished", result=fit) from None
        finally:
            if saved is not None:
                saved.save(self.to_arrays())
        return self.result()

    def iterate(self) -> None:
        """Take one step; an error in the middle leaves no half of it behind."""
        structure, options = self.structure, self.options
        means, bias, steps, is_new = self.expectation(structure.fill(self.theta), len(self.rows))
        gradient = self._data - means[structure.free] - options.ridge * self.theta
        outward = ((self.theta >= options.high) & (gradient > 0)) | ((self.theta <= options.low) & (gradient < 0))
        inward = np.where(outward, 0.0, gradient)
        norm = float(np.abs(inward).max())
        theta, size = self.theta, 0.0
        if options.gradient_tol is None or norm > options.gradient_tol:
            given = options.step_size(len(self.rows))
            if given is None and inward.any():
                theta, size = self.choose_step(gradient, inward)
            else:
                theta, size = self.move(gradient, given or 1.0 / self.curvature), given or 0.0
        before = self.rows[-1] if self.rows else _Row(0.0, 0.0, 0.0, 0, 0, 0.0, False)
        now = time.perf_counter()
        updates, seconds = before.updates + steps * self.chains, before.seconds + now - self._began
        row = _Row(size, norm, bias, steps, updates, seconds, is_new)
        self._began = now
        self.rows, self.theta = [*self.rows, row], theta

    def move(self, gradient: Vector, size: float) -> Vector:
        """Return the parameters after a step, projected onto the box."""
        return np.clip(self.theta + size * gradient, self.options.low, self.options.high)

    def noise(self, bias: float) -> float:
        """Bound a gradient whose expectation is 0, by its bias and Hoeffding's inequality for all coordinates."""
        chance = np.log(2.0 * len(self.theta) / _ERROR) / (2.0 * self.chains)
        return float(self.structure.difference * np.sqrt(chance)) + (bias if bias < np.inf else 0.0)

    # -- results ---------------------------------------------------------------------------------------------------

    def result(self) -> Fit:
        """Return the fit after the iterations that finished."""
        history, structure = self._history(), self.structure
        bias = float(history.bias_bound.max()) if len(history) else np.inf
        converged = False
        if self.rows:
            last, goal = self.rows[-1], self.options.gradient_tol
            converged = last.gradient_norm <= (self.noise(last.bias_bound) if goal is None else goal)
        names = structure.names()
        return Fit(
            structure.model(structure.fill(self.theta))._name_states(structure.state_names), frozen(self.theta.copy()),
            [names[k] for k in structure.free.tolist()], history, bias, converged,
            self.method, self.persistent, self.seed,
        )  # fmt: skip

    def _history(self) -> History:
        columns = list(zip(*self.rows, strict=True)) if self.rows else [()] * 7
        types = (np.float64, np.float64, np.float64, np.int64, np.int64, np.float64, np.bool_)
        return History(*(frozen(np.array(c, dtype=t)) for c, t in zip(columns, types, strict=True)))

    def to_arrays(self) -> dict[str, Any]:
        """Return what the next iteration depends on."""
        arrays: dict[str, Any] = {f"history.{name}": part for name, part in vars(self._history()).items()}
        return {**arrays, "theta": self.theta}

    def restore(self, arrays: dict[str, Any]) -> None:
        """Resume from what `to_arrays` returned."""
        columns = (arrays[f"history.{name}"].tolist() for name in _Row._fields)
        self.rows = [_Row(*row) for row in zip(*columns, strict=True)]
        self.theta = arrays["theta"]


class ExactAscent(Ascent):
    """Ascent by gradients from a clique tree, one plan for all parameters, and steps by trial."""

    def __init__(
        self, structure: Structure, observed: NDArray[np.int64], options: AscentOptions, theta: Vector
    ) -> None:
        super().__init__(structure, observed, options, theta)
        self._limit = memory_limit(None)
        tables = self._tables(structure.start)
        asked = [*(tuple(edge) for edge in structure.edges.tolist()), *((v,) for v in range(structure.n))]
        try:
            self._plan = plan_sums(tables, asked, self._limit)
        except BudgetError as refusal:
            remedy = "Use method='gibbs'."
            raise BudgetError("The exact gradient", refusal.required, refusal.limit, refusal.unit, remedy) from None
        self._alone = self._plan.asking(tables, [])
        self._value = -np.inf  # of the objective at theta

    def expectation(self, full: Vector, iteration: int) -> Expectation:  # noqa: ARG002
        structure = self.structure
        sums = self._plan.run(self._tables(full), limit=self._limit)
        self._value = self._objective(full[structure.free], sums.log_partition)
        parts = [part.ravel() for part in sums.marginals]
        pairs = np.concatenate([*parts[: len(structure.edges)], np.empty(0)])
        singles = np.concatenate(parts[len(structure.edges) :])
        # Relative errors of probabilities, and the rounding of the sums below, of statistics of size 1.
        entries = max(part.size for part in parts)
        error = 2.0 * sums.relative + entries * (2.0 * sums.absolute + 2.0**-50)
        bias = error if error < structure.difference else np.inf
        return Expectation(structure.expectations(pairs, singles), bias, 0, False)

    def log_partition(self, full: Vector) -> float:
        """Return the log-partition function."""
        return self._alone.run(self._tables(full), limit=self._limit).log_partition

    def choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:  # noqa: ARG002
        """Try steps, the first twice as long as the last one, until the objective rises as it should."""
        size = 2.0 * self.rows[-1].step_size if self.rows and self.rows[-1].step_size else 1.0
        slack = 1e-13 * (1.0 + abs(self._value))
        for _ in range(HALVINGS + 10):
            theta = self.move(gradient, size)
            move = theta - self.theta
            value = self._objective(theta, self.log_partition(self.structure.fill(theta)))
            if value >= self._value + float(gradient @ move) - float(move @ move) / (2.0 * size) - slack:
                break
            size /= 2.0
        return theta, size

    def _tables(self, full: Vector) -> FactorTables:
        return self.structure.pairwise(full)._form.tables()

    def _objective(self, theta: Vector, log_partition: float) -> float:
        """Return the mean log-likelihood less the penalty, up to a constant."""
        return float(theta @ self._data) - log_partition - 0.5 * self.options.ridge * float(theta @ theta)
