"""Projected gradient ascent on the mean log-likelihood: what all methods of `fit` share, and exact gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._learning.data import Observed
from dobrushin._learning.result import Fit, History
from dobrushin._learning.structure import Structure
from dobrushin._learning.sums import ExactSums, ExpectedCounts
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import Deadline, limited
from dobrushin._shared.executors import TimeUp
from dobrushin._shared.state_file import StateFile
from dobrushin.errors import BudgetError, Interrupted

if TYPE_CHECKING:
    pass

Vector = NDArray[np.float64]
# How often a step is halved in search of parameters that are certified, or at which the likelihood is larger.
HALVINGS = 20
# Probability of mistaking noise of the gradient for a signal, when convergence is judged by it.
_ERROR = 0.01
# Moves from which L-BFGS takes the curvature.
_MEMORY = 10


@dataclass(frozen=True)
class AscentOptions:
    """Options of the ascent: step size, gradient at which to stop, ridge penalty, and the box of the parameters."""

    learning_rate: float | Callable[[int], float] | None  # None: chosen at each iteration
    gradient_tol: float | None
    ridge: float
    low: Vector
    high: Vector

    def step_size(self, iteration: int) -> float | None:
        """Return the step size of an iteration, counted from 0; None if the method chooses it."""
        if callable(self.learning_rate):
            return check.positive(self.learning_rate(iteration), "learning_rate")
        return self.learning_rate


class Expectation(NamedTuple):
    """Means of the free statistics under the model, with bounds on their biases."""

    means: Vector
    bias: Vector | float  # bounds on the bias of each of them; inf: unknown, or larger than the range
    steps: int = 0  # Gibbs updates of each chain
    is_new: bool = False  # whether the scan was chosen for this iteration


class _Row(NamedTuple):
    """Figures of one iteration, as `History` stores them."""

    step_size: float = 0.0
    gradient_norm: float = 0.0
    bias_bound: float = 0.0
    scan_length: int = 0
    updates: int = 0
    seconds: float = 0.0
    is_new_scan: bool = False
    log_likelihood: float = math.nan


class Ascent:
    """A fit in progress: each step goes to project( theta + size (data mean - model mean - ridge theta) )."""

    method = "exact"
    chains = 1
    persistent = False
    seed: Any = None

    def __init__(self, structure: Structure, observed: Observed, options: AscentOptions, theta: Vector) -> None:
        self.structure, self.observed, self.options = structure, observed, options
        self.theta = theta
        self.rows: list[_Row] = []
        self.bias = np.full(len(theta), np.inf)  # bounds of the last iteration
        self._began = time.perf_counter()
        self._log_likelihood = math.nan  # at theta, where it is known
        # Statistics of values that are not missing, and sums over those that are.
        self._known = structure.means(observed.counts, observed.n_rows)
        self._missing = None if observed.complete else ExactSums(structure, observed.gaps, observed.gap_rows)

    @property
    def curvature(self) -> float:
        """Upper bound on the curvature of the objective: a step of size 1 / curvature never overshoots."""
        return self.structure.n_graphs * float(np.sum(self.structure.ranges**2)) / 4.0 + self.options.ridge

    def expectation(self, full: Vector, iteration: int) -> Expectation:
        """Return the means of the free statistics under the model with the parameters `full`."""
        raise NotImplementedError

    def choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
        """Return the next parameters and the step size, if the caller has not set a learning rate."""
        raise NotImplementedError

    def data_means(self, entries: Vector, rounding: float) -> tuple[Vector, Vector | float, float]:
        """Return the data's means of the free statistics, their error bounds, and the data's log-likelihood term.

        The last value is the unnormalised log-density of all data. Missing values are summed over: statistics are then
        expected values given the observed ones.
        """
        rows, seen = self.observed.n_rows, self.observed.counts
        weight = float(seen @ np.where(seen > 0.0, entries, 0.0))
        if self._missing is None:
            return self._known, 0.0, weight
        sums = self._missing.run(entries)
        means = self._known + self.structure.means(sums.entries, rows)
        return means, self.error_of(sums, rows, rounding), weight + sums.log_partition

    def error_of(self, sums: ExpectedCounts, rows: float, rounding: float = 0.0) -> Vector:
        """Bound the errors of means of statistics that come from exact sums over some rows of data.

        `rounding` is a bound on the rounding error of the log-density, which changes probabilities by a factor of at
        most e^(2 rounding).
        """
        size = self.structure.means(sums.entries, rows, is_size=True)
        # Additions: over the entries of a weight, and for each entry over the factors and observations that it counts.
        terms = np.diff(self.structure.table_start).max() + self.structure.most_terms
        terms += len(self.structure.table_of) + self.observed.n_rows
        share = 2.0 * sums.relative + terms * (2.0 * sums.absolute + 2.0**-50) + 2.0 * math.expm1(2.0 * rounding)
        return size * share if share < 1.0 else np.full(len(size), np.inf)

    def run(
        self,
        iterations: int,
        saved: StateFile | None,
        report: Callable[[int], None] | None,
        callback: Callable[[int, Vector], Any] | None,
        deadline: Deadline,
    ) -> Fit:
        """Run the iterations, and return the fit; at the time limit the fit so far.

        Errors carry the fit so far in `result`.
        """
        if saved is not None:
            if (arrays := saved.read()) is not None:
                self.restore(arrays)
            saved.begin(self.to_arrays())
        goal = self.options.gradient_tol
        try:
            while len(self.rows) < iterations and not deadline.is_over:
                if self.rows and goal is not None and self.rows[-1].gradient_norm <= goal:
                    break
                with limited(deadline):
                    self.iterate()
                if saved is not None and saved.is_due():
                    saved.save(self.to_arrays())
                if report:
                    report(len(self.rows))
                if callback:
                    callback(len(self.rows), frozen(self.theta.copy()))
        except TimeUp:
            pass  # inside an iteration: its work is dropped
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
        """Take one step; if it raises an error, the state is that before the step."""
        options = self.options
        gradient, found = self.gradient()
        outward = ((self.theta >= options.high) & (gradient > 0)) | ((self.theta <= options.low) & (gradient < 0))
        inward = np.where(outward, 0.0, gradient)
        norm = float(np.abs(inward).max())
        value = self._log_likelihood
        theta, size = self.theta, 0.0
        if options.gradient_tol is None or norm > options.gradient_tol:
            given = options.step_size(len(self.rows))
            if given is None and inward.any():
                theta, size = self.choose_step(gradient, inward)
            else:
                theta, size = self.move(gradient, given or 1.0 / self.curvature), given or 0.0
        self.finish(theta, size, norm, found, value)

    def gradient(self) -> tuple[Vector, Expectation]:
        """Return the gradient at theta, and the model's means that it contains."""
        full = self.structure.fill(self.theta)
        found = self.expectation(full, len(self.rows))
        data, error, _ = self.data_means(self.structure.entries(full), self.structure.rounding(full))
        return data - found.means - self.options.ridge * self.theta, found._replace(bias=found.bias + error)

    def finish(self, theta: Vector, size: float, norm: float, found: Expectation, value: float) -> None:
        """Record an iteration, which led to the parameters `theta`."""
        before = self.rows[-1] if self.rows else _Row()
        now = time.perf_counter()
        updates, seconds = before.updates + found.steps * self.chains, before.seconds + now - self._began
        self.bias = np.broadcast_to(np.asarray(found.bias, dtype=np.float64), self.theta.shape)
        worst = float(self.bias.max())
        row = _Row(size, norm, worst, found.steps, updates, seconds, found.is_new, value)
        self._began = now
        self.rows, self.theta = [*self.rows, row], theta

    def move(self, gradient: Vector, size: float) -> Vector:
        """Return the parameters after a step in the direction of the gradient, projected onto the box."""
        return np.clip(self.theta + size * gradient, self.options.low, self.options.high)

    def noise(self, bias: float) -> float:
        """Bound the size of a gradient whose true value is 0, by its bias and Hoeffding's inequality."""
        chance = np.log(2.0 * len(self.theta) / _ERROR) / (2.0 * self.chains)
        return float(self.structure.ranges.max() * np.sqrt(chance)) + (bias if bias < np.inf else 0.0)

    # -- results ---------------------------------------------------------------------------------------------------

    def result(self) -> Fit:
        """Return the fit after the iterations so far."""
        history, structure = self._history(), self.structure
        bias = float(history.bias_bound.max()) if len(history) else np.inf
        converged = False
        if self.rows:
            last, goal = self.rows[-1], self.options.gradient_tol
            converged = last.gradient_norm <= (self.noise(last.bias_bound) if goal is None else goal)
        full = structure.fill(self.theta)
        return Fit(
            structure.model(full), frozen(self.theta.copy()), structure.names(), history, bias, converged,
            self.method, self.persistent, self.seed, frozen(self.bias.copy()),
            self.observed.impute(structure, full), structure.vocabulary,
        )  # fmt: skip

    def _history(self) -> History:
        columns = list(zip(*self.rows, strict=True)) if self.rows else [()] * len(_Row._fields)
        types = (np.float64, np.float64, np.float64, np.int64, np.int64, np.float64, np.bool_, np.float64)
        return History(*(frozen(np.array(c, dtype=t)) for c, t in zip(columns, types, strict=True)))

    def to_arrays(self) -> dict[str, Any]:
        """Return the state of the fit as arrays for a checkpoint."""
        arrays: dict[str, Any] = {f"history.{name}": part for name, part in vars(self._history()).items()}
        return {**arrays, "theta": self.theta, "bias": self.bias}

    def restore(self, arrays: dict[str, Any]) -> None:
        columns = (arrays[f"history.{name}"].tolist() for name in _Row._fields)
        self.rows = [_Row(*row) for row in zip(*columns, strict=True)]
        self.theta, self.bias = arrays["theta"], arrays["bias"]


class ExactAscent(Ascent):
    """Ascent by exact sums: L-BFGS directions for parameters inside the box, with a line search."""

    def __init__(self, structure: Structure, observed: Observed, options: AscentOptions, theta: Vector) -> None:
        super().__init__(structure, observed, options, theta)
        self._sums = ExactSums(structure)
        self._at: tuple[Vector, Vector, Expectation, float] | None = None  # theta, gradient and value there
        self._moves: list[tuple[Vector, Vector]] = []  # changes of theta and, with the sign turned, of the gradient

    def expectation(self, full: Vector, iteration: int) -> Expectation:
        return self.evaluate(full[self.structure.free])[1]

    def gradient(self) -> tuple[Vector, Expectation]:
        if self._at is None or self._at[0] is not self.theta:
            self._at = (self.theta, *self.evaluate(self.theta))
        _, gradient, found, self._log_likelihood = self._at
        return gradient, found

    def evaluate(self, theta: Vector) -> tuple[Vector, Expectation, float]:
        """Return the gradient, the model's means, and the mean log-likelihood."""
        structure, rows = self.structure, self.observed.n_rows
        full = structure.fill(theta)
        entries = structure.entries(full)
        sums = self._sums.run(entries)
        means = structure.means(sums.entries, 1.0)
        rounding = structure.rounding(full)
        data, error, weight = self.data_means(entries, rounding)
        value = (weight / rows - sums.log_partition) / structure.n_graphs
        found = Expectation(means, error + self.error_of(sums, 1.0, rounding))
        return data - means - self.options.ridge * theta, found, value

    def choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
        """Try steps of 1, 1/2, ... in the direction of L-BFGS, until the objective rises sufficiently."""
        direction = np.where(inward != 0.0, self._direction(inward), 0.0)
        if not direction @ inward > 0.0:
            self._moves, direction = [], inward
        size = 1.0 if self._moves else 1.0 / max(1.0, float(np.linalg.norm(inward)))
        assert self._at is not None
        start, least = self._objective(self.theta, self._at[3]), 1e-13 * (1.0 + abs(self._at[3]))
        for _ in range(HALVINGS + 10):
            theta = self.move(direction, size)
            trial = (theta, *self.evaluate(theta))
            move = theta - self.theta
            if self._objective(theta, trial[3]) >= start + 1e-4 * float(gradient @ move) - least:
                break
            size /= 2.0
        else:
            self._moves = []
            return self.theta, 0.0
        change = gradient - trial[1]
        if move @ change > 1e-12 * float(move @ move):
            self._moves = [*self._moves[1 - _MEMORY :], (move, change)]
        self._at = trial
        return theta, size

    def _direction(self, gradient: Vector) -> Vector:
        """Multiply by the inverse curvature estimated from the last steps (Nocedal and Wright 2006, algorithm 7.4)."""
        result, shares = gradient.copy(), []
        for move, change in reversed(self._moves):
            shares.append(float(move @ result) / float(move @ change))
            result -= shares[-1] * change
        if self._moves:
            move, change = self._moves[-1]
            result *= float(move @ change) / float(change @ change)
        for (move, change), share in zip(self._moves, reversed(shares), strict=True):
            result += (share - float(change @ result) / float(move @ change)) * move
        return result

    def _objective(self, theta: Vector, log_likelihood: float) -> float:
        """Return the mean log-likelihood minus the ridge penalty."""
        return log_likelihood - 0.5 * self.options.ridge * float(theta @ theta)

    def to_arrays(self) -> dict[str, Any]:
        moves = np.array(self._moves).reshape(-1, 2, len(self.theta))
        return super().to_arrays() | {"moves": moves}

    def restore(self, arrays: dict[str, Any]) -> None:
        super().restore(arrays)
        self._moves = [(move, change) for move, change in arrays["moves"]]
