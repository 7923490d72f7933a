"""Projected gradient ascent on the mean log-likelihood."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._learning.fit_result import Fit, History
from dobrushin._learning.gradients import ExactGradient, Expectation, GibbsGradient, NoScanError, Options
from dobrushin._learning.structure import Structure
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import NO_DEADLINE, Deadline
from dobrushin._shared.executors import TimeUp
from dobrushin._shared.state_file import StateFile
from dobrushin.errors import BudgetError, Interrupted, UncertifiedStep

Vector = NDArray[np.float64]
# How often a step is halved in search of parameters that are certified, or at which the likelihood is larger.
_HALVINGS = 20
# Chance that the noise of the gradient is taken for more than noise, when convergence is judged by it.
_ERROR = 0.01
# Steps of a chosen size then fall with this power of the number of iterations.
_DECAY = 2.0 / 3.0


@dataclass(frozen=True)
class Settings:
    """Options of the ascent: step sizes, ridge and box."""

    step: float | Callable[[int], float] | None  # None: chosen at each iteration
    ridge: float
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def project(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the nearest point of the box."""
        return np.clip(theta, self.low, self.high)

    def inward(self, theta: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the gradient without the coordinates that push out of the box."""
        out = ((theta >= self.high) & (gradient > 0)) | ((theta <= self.low) & (gradient < 0))
        return np.where(out, 0.0, gradient)

    def step_size(self, iteration: int) -> float | None:
        """Return the step size of an iteration, counted from 0; None where it is to be chosen."""
        if callable(self.step):
            return check.positive(self.step(iteration), "step")
        return self.step


class Ascent(ABC):
    """A fit under way: theta goes to project(theta + step (mean of data - mean of model - ridge theta))."""

    def __init__(
        self, structure: Structure, observed: NDArray[np.int64], options: Options, settings: Settings, theta: Vector
    ) -> None:
        self._structure, self._options, self._settings = structure, options, settings
        self._data = structure.means(structure.data_digits(observed))[structure.free]
        self.theta = theta
        self._rows: list[tuple[Any, ...]] = []
        self._began = time.perf_counter()
        # The variance of sum_k v_k t_k is at most |v|^2 times this: a step of 1 / curvature never overshoots.
        self._curvature = len(theta) * structure.difference**2 / 4.0 + settings.ridge

    @abstractmethod
    def _expectation(self, full: Vector) -> Expectation:
        """Return the means of all statistics under the model with these parameters."""

    @abstractmethod
    def _choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
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
                self._restore(arrays)
            saved.begin(self._to_arrays())
        try:
            while len(self._rows) < iterations and not self._is_done() and not deadline.is_over:
                with nullcontext() if deadline is NO_DEADLINE else deadline:
                    self._iterate()
                if saved is not None and saved.is_due():
                    saved.save(self._to_arrays())
                if report:
                    report(len(self._rows))
                if callback:
                    callback(len(self._rows), frozen(self.theta.copy()))
        except TimeUp:
            pass  # in the middle of an iteration, which is left out
        except BudgetError:
            if not deadline.is_over:
                raise
        except KeyboardInterrupt:
            fit = self._fit()
            reached = f"{len(fit.history)} of {iterations} iterations had finished"
            raise Interrupted(reached, result=fit) from None
        except NoScanError:
            raise UncertifiedStep(self._options.tolerance, "at the parameters reached", result=self._fit()) from None
        finally:
            if saved is not None:
                saved.save(self._to_arrays())
        return self._fit()

    def _is_done(self) -> bool:
        stop = self._options.stop
        return bool(self._rows) and stop is not None and self._rows[-1][1] <= stop

    def _iterate(self) -> None:
        """Take one step; an error in the middle leaves no half of it behind."""
        row, theta = self._next()
        self._rows, self.theta = [*self._rows, row], theta

    def _next(self) -> tuple[tuple[Any, ...], Vector]:
        """Return a row of the history and the next parameters."""
        stop = self._options.stop
        means, bias, steps, is_new = self._expectation(self._structure.fill(self.theta))
        gradient = self._data - means[self._structure.free] - self._settings.ridge * self.theta
        inward = self._settings.inward(self.theta, gradient)
        norm = float(np.abs(inward).max())
        theta, size = self.theta, 0.0
        if stop is None or norm > stop:
            theta, size = self._move(gradient, inward)
        before = self._rows[-1] if self._rows else (0, 0, 0, 0, 0, 0.0, False)
        now = time.perf_counter()
        updates = before[4] + steps * self._options.chains
        row = (size, norm, bias, steps, updates, before[5] + now - self._began, is_new)
        self._began = now
        return row, theta

    def _move(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
        """Return the next parameters and the step size that leads there."""
        size = self._settings.step_size(len(self._rows))
        if size is not None or not inward.any():
            return self._at(gradient, size or 1.0 / self._curvature), size or 0.0
        return self._choose_step(gradient, inward)

    def _at(self, gradient: Vector, size: float) -> Vector:
        return self._settings.project(self.theta + size * gradient)

    # -- results ---------------------------------------------------------------------------------------------------

    def _fit(self) -> Fit:
        history, structure, about = self._history(), self._structure, self._options.about()
        bias = float(history.bias_bound.max()) if len(history) else np.inf
        names = structure.names()
        return Fit(
            structure.model(structure.fill(self.theta))._name_states(structure.state_names), frozen(self.theta.copy()),
            [names[k] for k in structure.free.tolist()], history, bias, self._is_flat(history),
            about["method"], about["persistent"], about["seed"],
        )  # fmt: skip

    def _is_flat(self, history: History) -> bool:
        if not len(history):
            return False
        last = float(history.gradient_norm[-1])
        if self._options.stop is not None:
            return last <= self._options.stop
        return last <= self._noise(float(history.bias_bound[-1]))

    def _noise(self, bias: float) -> float:
        """Bound a gradient whose expectation is 0, by its bias and Hoeffding's inequality for all coordinates."""
        chance = np.log(2.0 * len(self.theta) / _ERROR) / (2.0 * self._options.chains)
        return float(self._structure.difference * np.sqrt(chance)) + (bias if bias < np.inf else 0.0)

    def _history(self) -> History:
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * 7
        types = (np.float64, np.float64, np.float64, np.int64, np.int64, np.float64, np.bool_)
        return History(*(frozen(np.array(c, dtype=t)) for c, t in zip(columns, types, strict=True)))

    def _to_arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {f"history.{name}": part for name, part in vars(self._history()).items()}
        return {**arrays, "theta": self.theta}

    def _restore(self, arrays: dict[str, Any]) -> None:
        names = vars(self._history())
        self._rows = list(zip(*(arrays[f"history.{name}"].tolist() for name in names), strict=True))
        self.theta = arrays["theta"]


class GibbsAscent(Ascent):
    """Ascent by gradients from chains, on scans that are certified where the options ask for it."""

    def __init__(self, structure: Structure, observed: NDArray[np.int64], options: Options, *rest: Any) -> None:
        super().__init__(structure, observed, options, *rest)
        self._engine = GibbsGradient(structure, options, observed)

    def _expectation(self, full: Vector) -> Expectation:
        return self._engine.expectation(full, len(self._rows))

    def _iterate(self) -> None:
        held = self._engine.snapshot()
        try:
            super()._iterate()
        except BaseException:
            self._engine.roll_back(held)
            raise

    def _choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
        iteration, direction = len(self._rows), np.zeros(len(self._structure.start))
        direction[self._structure.free] = inward
        curvature = self._engine.variance(direction) / float(inward @ inward) + self._settings.ridge
        # Along this direction the log-likelihood is about a parabola: go to its top.
        size = 1.0 / (curvature if curvature > 1e-3 else self._curvature)
        # Once the gradient is within its noise, steps of that length would only wander about.
        settled = next((k for k, row in enumerate(self._rows) if row[1] <= self._noise(row[2])), iteration)
        size /= (1.0 + iteration - settled) ** _DECAY
        for _ in range(_HALVINGS):
            theta = self._at(gradient, size)
            if self._engine.prepare(self._structure.fill(theta)):
                return theta, size
            size /= 2.0
        reason = "anywhere near the parameters reached in the direction of the gradient"
        raise UncertifiedStep(self._options.tolerance, reason, result=self._fit())

    def _to_arrays(self) -> dict[str, Any]:
        inner = self._engine.to_arrays(self._structure.fill(self.theta))
        return super()._to_arrays() | {f"engine.{name}": part for name, part in inner.items()}

    def _restore(self, arrays: dict[str, Any]) -> None:
        super()._restore(arrays)
        inner = {k.removeprefix("engine."): v for k, v in arrays.items() if k.startswith("engine.")}
        self._engine.restore(inner, self._structure.fill(self.theta))


class ExactAscent(Ascent):
    """Ascent by gradients from a junction tree, and steps by trial."""

    def __init__(self, structure: Structure, *rest: Any) -> None:
        super().__init__(structure, *rest)
        self._engine = ExactGradient(structure)
        self._value = -np.inf  # of the objective at theta

    def _expectation(self, full: Vector) -> Expectation:
        means, bias, log_partition = self._engine.expectation(full)
        self._value = self._objective(self.theta, log_partition)
        return Expectation(means, bias, 0, False)

    def _choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:  # noqa: ARG002
        """Try steps, the first twice as long as the last one, until the objective rises as it should."""
        size = 2.0 * self._rows[-1][0] if self._rows and self._rows[-1][0] else 1.0
        slack = 1e-13 * (1.0 + abs(self._value))
        for _ in range(_HALVINGS + 10):
            theta = self._at(gradient, size)
            move = theta - self.theta
            value = self._objective(theta, self._engine.log_partition(self._structure.fill(theta)))
            if value >= self._value + float(gradient @ move) - float(move @ move) / (2.0 * size) - slack:
                break
            size /= 2.0
        return theta, size

    def _objective(self, theta: Vector, log_partition: float) -> float:
        """Return the mean log-likelihood less the penalty, up to a constant."""
        return float(theta @ self._data) - log_partition - 0.5 * self._settings.ridge * float(theta @ theta)
