"""Projected gradient ascent on the mean log-likelihood: its result, what all methods share, and exact gradients."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.engine import plan_sums
from dobrushin._learning.structure import Structure
from dobrushin._models import Model
from dobrushin._models.factors import FactorTables
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import NO_DEADLINE, Deadline
from dobrushin._shared.environment import require
from dobrushin._shared.executors import TimeUp
from dobrushin._shared.memory import memory_limit
from dobrushin._shared.state_file import StateFile
from dobrushin._shared.text import card, counted, rounded_up
from dobrushin.errors import BudgetError, Interrupted

if TYPE_CHECKING:
    import pandas

Vector = NDArray[np.float64]
# How often a step is halved in search of parameters that are certified, or at which the likelihood is larger.
HALVINGS = 20
# Probability of mistaking noise of the gradient for a signal, when convergence is judged by it.
_ERROR = 0.01
# Iterations that are printed at the beginning and at the end.
_ROWS_SHOWN = 3
_COLUMNS = ("iteration", "step", "gradient", "bias bound", "scan", "updates", "seconds")


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """One entry for each iteration.

    Attributes
    ----------
    step_size : array
        0 where the gradient was small enough to stop.
    gradient_norm : array
        Largest coordinate, in size, of the gradient before the step; coordinates that push out of the box do not count.
    bias_bound : array
        Bound on the bias of every coordinate of that gradient; inf if unknown.
    scan_length : array of int
        Gibbs updates of each chain; 0 for exact gradients.
    updates : array of int
        Gibbs updates of all chains since the beginning.
    seconds : array
        Time since the beginning, without breaks.
    is_new_scan : array of bool
        Whether a scan was chosen for the iteration; where not, an earlier one was certified again.
    """

    step_size: NDArray[np.float64]
    gradient_norm: NDArray[np.float64]
    bias_bound: NDArray[np.float64]
    scan_length: NDArray[np.int64]
    updates: NDArray[np.int64]
    seconds: NDArray[np.float64]
    is_new_scan: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.step_size)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas DataFrame, a row for each iteration."""
        return require("pandas", "formats").DataFrame(vars(self), index=range(1, len(self) + 1))

    def __repr__(self) -> str:
        return f"History(iterations={len(self)})"


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """A fitted model, with bounds on the bias of the gradients that led to it.

    Attributes
    ----------
    model : Model
        The fitted model, of the family asked for. (Couplings of exactly 0 make no edges.)
    parameters : array
        Learned parameters: those of the edges first, then those of the variables.
    names : list of tuples
        Names of the parameters: ("coupling", i, j), ("field", i), ("unary", i, state), ("table", i, j, state, state).
    history : History
        Arrays with an entry for each iteration.
    bias_bound : float
        Bound on the bias of each coordinate of the gradient at every iteration, given the iterations before; inf if the
        bias of some iteration is unknown.
    converged : bool
        Whether the last gradient was at most `gradient_tol`; without one, whether its bias and the noise of the chains
        explain the gradient (Hoeffding, 99 %).
    method : str
        "dogs", "systematic" or "uniform" scans, or "exact".
    persistent : bool
        Whether each iteration continued the chains of the previous one.
    seed : int, SeedSequence or None
        Seed that repeats the fit.
    """

    model: Model
    parameters: NDArray[np.float64]
    names: list[tuple[Hashable, ...]]
    history: History
    bias_bound: float
    converged: bool
    method: str
    persistent: bool
    seed: Any

    @property
    def is_certified(self) -> bool:
        """Whether the bias of every gradient is bounded."""
        return math.isfinite(self.bias_bound)

    @property
    def headline(self) -> str:
        """The model and the bound on its gradients, in one line."""
        count = len(self.history)
        about = {"exact": "exact gradients", "dogs": "DoGS scans"}.get(self.method, f"{self.method} scans")
        if self.is_certified:
            words = f"every gradient biased by at most {rounded_up(self.bias_bound)}"
        elif count:
            words = "NOT CERTIFIED: the bias of the gradients is unknown"
        else:
            words = "no iteration finished"
        return f"Fit ({self.model!r}, {counted(len(self.parameters), 'parameter')}, {about}): {words}"

    @property
    def footer(self) -> str:
        """How the fit ended, in one line."""
        end = "converged" if self.converged else "not converged"
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{end} after {counted(len(self.history), 'iteration')}{seed}"

    def _rows(self) -> list[tuple[str, ...]]:
        """Return rows for the first and the last iterations, with a row of dots for those between."""
        count, h = len(self.history), self.history
        rows: list[tuple[str, ...]] = []
        for k in range(count):
            if _ROWS_SHOWN <= k < count - _ROWS_SHOWN:
                if k == _ROWS_SHOWN:
                    rows.append(("...", *[""] * (len(_COLUMNS) - 1)))
                continue
            bias = rounded_up(h.bias_bound[k]) if math.isfinite(h.bias_bound[k]) else "unknown"
            numbers = (f"{h.step_size[k]:.3g}", f"{h.gradient_norm[k]:.3g}", bias)
            rows.append((str(k + 1), *numbers, str(h.scan_length[k]), str(h.updates[k]), f"{h.seconds[k]:.2f}"))
        return rows

    def _repr_html_(self) -> str:
        """For notebooks."""
        return card(self.headline, (), _COLUMNS, self._rows(), self.footer)

    def __str__(self) -> str:
        cells = [_COLUMNS, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  " + "  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([self.headline, *(line.rstrip() for line in table), f"  {self.footer}"])

    __repr__ = __str__


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

    def expectation(self, full: Vector, iteration: int) -> Expectation:
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

    def choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
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
