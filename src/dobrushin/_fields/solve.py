"""Exact answers for Gaussian fields, from linear systems with bounds on the errors of their solutions. [trusted]

A solution with residual r has an error e with P e = r, so |e| <= C |e| + |r| / m. Any w >= C w + |r| / m therefore
bounds the error, if Dobrushin's condition holds. Where it fails, small fields have the bound |P^-1| |r|, from an
inverse whose own error is bounded. Solutions outside a region are bounded by the largest row sum of C, so it is enough
to solve a region around each target. A grid whose linear terms are a function is only ever built in such regions.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.sparse import linalg

from dobrushin._diagnose import diagnose
from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import AnswerRows, Choice, Method, Plan
from dobrushin._estimate.query import Query, Space, make_space
from dobrushin._estimate.targets import Statistic, Target, TargetReader
from dobrushin._fields.anchor import REMEDY, supersolve
from dobrushin._fields.boxes import MAX_VARIABLES, bound_inverse
from dobrushin._fields.likelihood import TERMS
from dobrushin._fields.questions import Deviation, FieldQuestion, FieldReader, Quantile
from dobrushin._fields.terms import SMALLEST, FieldTerms
from dobrushin._models.model import Model
from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import UNIT, row_entries
from dobrushin._shared.call import bar, public, version_for
from dobrushin._shared.running import Running
from dobrushin._shared.text import rounded_up
from dobrushin.errors import ArgumentError

# Largest number of variables of a field, or of a region, that is factorised.
_MAX_FACTORISED_VARIABLES = 200_000
_FIRST_RADIUS = 6
# More than the error of SciPy's normal distribution function.
_NDTR_ERROR = 1e-14


class Solution(NamedTuple):
    """Mean and variance of a variable, each with a bound on its numerical error."""

    mean: float
    mean_error: float
    variance: float
    variance_error: float


class System:
    """The factorised linear system of a region of the field."""

    def __init__(self, form: FieldTerms, region: NDArray[np.int64], whole: Numbering | None = None) -> None:
        self.part = Numbering(form.n_variables, region)
        matrix = form.couplings
        first = matrix.indptr[region].astype(np.int64)
        start, entry = row_entries(first, matrix.indptr[region + 1] - first)
        columns, data = matrix.indices[entry], matrix.data[entry]
        held = self.part.holds(columns)
        row = np.repeat(np.arange(len(region)), np.diff(start))
        shape = (len(region), len(region))
        own = self.part.own(columns[held])
        self.diagonal, self.linear = form.diagonal[region], form.linear[region]
        self.linear_error, self.diagonal_error = form.linear_error[region], form.diagonal_error[region]
        self.couplings = sparse.csr_array((data[held], (row[held], own)), shape=shape)
        self.precision = sparse.csc_array(self.couplings + sparse.dia_array((self.diagonal[None], [0]), shape=shape))
        self.degree = int(np.diff(start).max(initial=0))
        up = 1.0 + 8 * UNIT
        self.least = self.diagonal - self.diagonal_error * (1.0 + 4 * UNIT)
        scale = sparse.dia_array((1.0 / self.least[None], [0]), shape=shape)
        self.influence = sparse.csr_array(scale @ abs(self.couplings)) * up
        # The sum of the influences on each row from outside.
        self.seen = np.bincount(row[~held], np.abs(data[~held]), len(region)) / self.least * (up + UNIT * self.degree)
        self.factors = linalg.splu(self.precision)
        if whole is not None:  # the form is a part of a larger one
            self.part = self.part.within(whole)

    def solve(
        self, right: NDArray[np.float64], right_error: NDArray[np.float64] | float = 0.0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Solve the linear system for a right-hand side, and bound each residual divided by the diagonal.

        The solution is refined once. The bounds hold for every system whose terms differ by their rounding errors at
        most; `right_error` bounds those of the right-hand side.
        """
        x = self.factors.solve(right)
        x = x + self.factors.solve(right - self.precision @ x)
        residual = np.abs(right - self.precision @ x)
        size = np.abs(right) + abs(self.precision) @ np.abs(x)
        derived = right_error + self.diagonal_error * np.abs(x)
        rounding = (size * UNIT + SMALLEST) * (2.0 * self.degree + 8.0)  # products that underflow lose SMALLEST at most
        return x, (residual + rounding + derived) / self.least * (1.0 + 8 * UNIT)

    @cached_property
    def means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the means of the region's variables, with the bounds on their residuals."""
        return self.solve(self.linear, self.linear_error)

    @cached_property
    def _shares(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return bounds on the errors of solutions per unit of error in the input; None if unknown.

        The first bound is for residuals of 1 (divided by the diagonal) everywhere, the second for values of 1 outside
        the region. The errors of both together are at most the sum of the bounds.
        """
        one = supersolve(self.influence, np.ones(len(self.diagonal)))
        if not self.seen.any():
            one = self._bound_densely() if one is None else one
            return None if one is None else (one, np.zeros(len(one)))
        if one is None:
            return None
        border = supersolve(self.influence, self.seen + float(self.seen.max()) * 1e-12)
        return None if border is None else (one, border)

    def _bound_densely(self) -> NDArray[np.float64] | None:
        """Bound the error of each unknown by the inverse matrix, where each residual is 1 times its diagonal entry."""
        if len(self.diagonal) > MAX_VARIABLES:
            return None
        known = bound_inverse(self.precision.toarray(), self.diagonal_error)
        return None if known is None else (np.abs(known[0]) + known[1][:, None]) @ self.diagonal * (1.0 + 2.0**-30)

    def bound(self, i: int, residual: NDArray[np.float64], outside: float) -> float | None:
        """Bound the error of a solution at variable number i of the region; None where no bound is known."""
        if self._shares is None:
            return None
        one, border = self._shares
        return float(one[i] * residual.max() + border[i] * outside) * (1.0 + 8 * UNIT) + 2.0**-1000


class Outside(NamedTuple):
    """Bounds on solutions outside a region: on |mean|, and on |covariance| times the variable's precision."""

    mean: float
    inverse: float


class Solved(NamedTuple):
    """A solved question: the value, both ends of its interval, and the error `off` in the units of the tolerance."""

    value: float
    low: float
    high: float
    off: float


def answer_question(system: System, question: FieldQuestion, outside: Outside) -> Solved | None:
    """Return the value and interval of a question; None where its error has no bound."""
    i = int(system.part.own(question.positions)[0])
    x, residual = system.means
    mean, mean_error = float(x[i]), system.bound(i, residual, outside.mean)
    if mean_error is None:
        return None
    if not question.is_counted:
        pad = mean_error * (1.0 + 4 * UNIT) + abs(mean) * 4 * UNIT
        return _solved(mean, mean - pad, mean + pad)
    right = np.zeros(len(x))
    right[i] = 1.0
    v, residual = system.solve(right)
    variance_error = system.bound(i, residual, outside.inverse / float(system.least[i]))
    if variance_error is None:
        return None
    solution = Solution(mean, mean_error, float(v[i]), variance_error)
    if isinstance(question.target, Deviation):
        low, middle, high = (math.sqrt(max(v_i, 0.0)) for v_i in (v[i] - variance_error, v[i], v[i] + variance_error))
        return _solved(middle, low * (1.0 - 4 * UNIT), high * (1.0 + 4 * UNIT))
    if isinstance(question.target, Quantile):
        return _quantile(question.target.level, solution)
    return _solved(*_probability(question.target._ends, solution))


def _solved(value: float, low: float, high: float) -> Solved:
    return Solved(value, low, high, 0.5 * (high - low))


def _probability(ends: tuple[float, float], solution: Solution) -> tuple[float, float, float]:
    """Return the probability of an interval with lower and upper bounds, from the bounds on mean and variance."""
    mean, variance = solution.mean, solution.variance
    low, high = ends

    def above(threshold: float, sign: float) -> float:
        """Return P(x > threshold), rounded down for sign -1, up for sign +1 and to nearest for 0."""
        if math.isinf(threshold):
            return 0.0
        values = []
        for shift in (-1.0, 1.0):
            for scale in (-1.0, 1.0):
                v = max(variance + scale * abs(sign) * solution.variance_error, 1e-300)
                m = mean + shift * abs(sign) * solution.mean_error * (1.0 + 1e-12)
                values.append(float(special.ndtr((m - threshold) / math.sqrt(v))))
        spread = _NDTR_ERROR * (1.0 + (abs(mean) + abs(threshold)) / math.sqrt(max(variance, 1e-300)))
        return max(values) + spread if sign > 0 else min(values) - spread if sign < 0 else values[0]

    value = above(low, 0.0) - above(high, 0.0)
    least = above(low, -1.0) - above(high, 1.0)
    most = above(low, 1.0) - above(high, -1.0)
    return value, max(0.0, least), min(1.0, most)


def _quantile(level: float, solution: Solution) -> Solved:
    """Return a quantile with its interval, from the bounds on mean and variance; its error is a probability."""
    z, variance = float(special.ndtri(level)), solution.variance
    deviations = [math.sqrt(max(variance + sign * solution.variance_error, 0.0)) for sign in (-1.0, 0.0, 1.0)]
    ends = z * deviations[0], z * deviations[2]
    pad = solution.mean_error + 10 * _NDTR_ERROR * (abs(solution.mean) + (1.0 + abs(z)) * deviations[2])
    low, high = solution.mean + min(ends) - pad, solution.mean + max(ends) + pad
    density = 0.4 / deviations[0] if deviations[0] > 0.0 else math.inf
    return Solved(solution.mean + z * deviations[1], low, high, min(1.0, 0.5 * (high - low) * density))


class Solving(Method):
    """Base class of methods that answer questions about Gaussian fields exactly, by solving linear systems."""

    is_certain: ClassVar[bool] = True
    remedy: ClassVar[str] = REMEDY
    reason: ClassVar[str]  # of the plan, with a place for the number of variables that were solved

    def __init__(self, query: Query, plan: Plan, limits: list[Solved]) -> None:
        super().__init__(query, plan)
        self.limits = limits

    @classmethod
    @abstractmethod
    def solve(cls, query: Query, choice: Choice) -> Iterator[tuple[Solved, int]]:
        """Yield the value and interval of each question, and the number of variables in its linear system."""

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        if choice.best is not None:
            return choice.best
        if query.proof and choice.by_name:
            raise ArgumentError("method", "'dobrushin' for a proof about a field", query.method)
        if query.proof:
            raise cls.refuse("proofs of answers about fields can only be written for answers from chains.")
        if not query.space.is_gaussian:
            raise cls.refuse("the field is truncated, or has a likelihood that is not normal.")
        if any(question.name is not None for question in query.questions):
            raise cls.refuse("the mean of a statistic is not linear, so that it has to be sampled.")
        limits, largest = [], 0
        with bar(len(query.questions), "solving", "targets") as report:
            for limit, size in cls.solve(query, choice):
                limits.append(limit)
                largest = max(largest, size)
                if report:
                    report(len(limits))
        return cls(query, cls.draft(query, cls.reason.format(largest), 0.0), limits)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        rows = []
        for value, low, high, _ in self.limits:
            error = max(high - value, value - low)
            rows.append(AnswerRows(*(np.array([number]) for number in (value, low, high, error))))
        words = (
            "the field is Gaussian: its mean solves a linear system, whose residual bounds the error through "
            "Dobrushin's condition",
            "rounding errors are included, and there is no random error",
        )
        return self.assemble(rows, 1.0, words)

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "The field is Gaussian, so its means and variances solve linear systems. The residual of each solution, "
            "and the effect of variables outside the solved region, are bounded through Dobrushin's condition: the "
            f"error is at most {rounded_up(float(np.max(estimate.bias_bound)))}. There is no random error."
        ]


class FieldExact(Solving):
    """Method that factorises the precision matrix of the whole field."""

    name: ClassVar[str] = "exact"
    reason: ClassVar[str] = (
        "Gaussian and untruncated: a sparse factorisation, its residual bounded by Dobrushin's condition"
    )

    @classmethod
    def solve(cls, query: Query, choice: Choice) -> Iterator[tuple[Solved, int]]:
        n = query.model.n_variables
        if n > _MAX_FACTORISED_VARIABLES:
            raise cls.refuse(f"{n} variables are too many to factorise (at most {_MAX_FACTORISED_VARIABLES}).")
        system = System(query.space.form, np.arange(n))
        for question in query.questions:
            if (limit := answer_question(system, question, Outside(0.0, 0.0))) is None:
                short = cls.refuse(
                    "Dobrushin's condition fails, and the field is too large to bound the error by the inverse matrix."
                )
                raise query.space.refuse() if choice.by_name else short  # "dobrushin" says which rows fail
            if not limit.off <= query.tolerance:
                raise cls.refuse(f"the rounding error of {limit.off:.2g} exceeds the tolerance {query.tolerance:g}.")
            yield limit, n


class FieldLocal(Solving):
    """Method that factorises a region around each target, and bounds the effect of the region's boundary."""

    name: ClassVar[str] = "local"
    reason: ClassVar[str] = (
        "Gaussian: a region of {} variables around each target, the rest bounded by Dobrushin's condition"
    )

    @classmethod
    def solve(cls, query: Query, choice: Choice) -> Iterator[tuple[Solved, int]]:
        if query.space.largest_row >= 1.0:
            raise cls.refuse(f"the largest row sum of the influence is {query.space.largest_row:.3g}, not below 1.")
        return (cls._grow(query, question) for question in query.questions)

    @classmethod
    def _grow(cls, query: Query, question: FieldQuestion) -> tuple[Solved, int]:
        space = query.space
        radius, size = _FIRST_RADIUS, 0
        outside = Outside(beyond(space.largest_pull, space.largest_row), beyond(1.0, space.largest_row))
        while True:
            system = System(*space.around(question.positions, radius))
            if system.part.size == size:  # the whole component
                raise cls.refuse(f"the rounding error exceeds the tolerance {query.tolerance:g}.")
            size = system.part.size
            if size > _MAX_FACTORISED_VARIABLES:
                raise cls.refuse(f"even a region of {size} variables does not reach the tolerance {query.tolerance:g}.")
            limit = answer_question(system, question, outside)
            if limit is not None and limit.off <= query.tolerance:
                return limit, size
            radius += max(2, radius // 2)


def beyond(size: float, rho: float) -> float:
    """Bound the solution of the whole field's system, for right sides of at most `size` times the diagonal.

    `rho` < 1 is the largest row sum of C.
    """
    return size / (1.0 - rho) * (1.0 + 32 * UNIT)


class LazyGrid(Model):
    """A square lattice whose linear terms are a function, built only around targets (see `GaussianField.grid`)."""

    _is_whole = False
    _is_discrete = False

    def __init__(
        self, rows: Any, cols: Any, rho: Any, precision: Any, periodic: bool, *,
        linear: Callable[[NDArray[np.int64]], Any], linear_bound: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        if options:
            name, value = next(iter(options.items()))
            raise ArgumentError(name, "left out where 'linear' is a function", value)
        self.rows, self.cols = check.count(rows, "rows"), check.count(cols, "cols")
        if not check.is_real(rho) or not -1 < float(rho) < 1:
            raise ArgumentError("rho", "between -1 and 1, both excluded", rho)
        if periodic:
            raise ArgumentError("periodic", "False where 'linear' is a function", periodic)
        if linear_bound is None:
            raise ArgumentError("linear_bound", "given where 'linear' is a function", None)
        self.strength, self.own = float(rho), check.positive(precision, "precision")
        self.linear, self.bound = linear, check.non_negative(linear_bound, "linear_bound")
        self._labels = range(self.rows * self.cols)

    @property
    def _form(self) -> NoReturn:  # type: ignore[override]
        raise ArgumentError(
            "model", "in memory: a field whose linear terms are a function is only for estimate and plan", self
        )

    def _parts(self) -> None:
        return None

    def _read_evidence(self, evidence: Any) -> dict[int, Any]:
        if evidence:
            raise ArgumentError("evidence", "None for a field whose linear terms are a function", evidence)
        return {}

    @public(name="GaussianField.grid")
    def terms(self, positions: NDArray[np.int64]) -> FieldTerms:
        """Return the field of the sites at `positions`, without the couplings to other sites."""
        n, part = len(positions), Numbering(self.n_variables, positions)
        ends = []
        for step, fits in ((1, positions % self.cols < self.cols - 1), (self.cols, np.ones(n, dtype=np.bool_))):
            other = positions + step
            both = fits & (other < self.n_variables)
            both[both] = part.holds(other[both])
            ends.append(np.stack([np.flatnonzero(both), np.searchsorted(positions, other[both])]))
        a, b = np.concatenate(ends, axis=1)
        weights = np.full(2 * len(a), -0.25 * self.strength * self.own)
        matrix = sparse.coo_array((weights, (np.append(a, b), np.append(b, a))), shape=(n, n)).tocsr()
        matrix.sort_indices()
        linear = check.real_array(self.linear(positions), "linear")
        if linear.shape not in ((), (n,)):
            requirement = f"a function that returns a number for each of {n} sites"
            raise ArgumentError("linear", requirement, got=f"shape {linear.shape}")
        linear = np.broadcast_to(linear, (n,))
        if not (fine := np.abs(linear) <= self.bound).all():
            k = int(np.argmin(fine))
            requirement = f"at most linear_bound = {self.bound:g} in size"
            raise ArgumentError("linear", requirement, float(linear[k]), f"site {positions[k]}")
        none, free = np.zeros((len(TERMS), n)), np.full(n, np.inf)
        start = np.zeros(n + 1, dtype=np.int64)
        return FieldTerms(matrix, np.full(n, self.own), linear.copy(), -free, free, none, start, np.empty(0))

    def _describe_states(self) -> tuple[str, str]:
        return "values", "unbounded; their linear terms are a function"

    def __repr__(self) -> str:
        return f"LazyGrid(n_variables={self.n_variables}, rho={self.strength:g})"


class LazySpace(Space):
    """Everything that `estimate` needs of a `LazyGrid`: regions around targets. Nothing is sampled."""

    noun: ClassVar[str] = "mean"

    model: LazyGrid
    place = None

    def __init__(self, model: LazyGrid) -> None:
        self.model = model

    @property
    def rows(self) -> NoReturn:
        raise NotImplementedError("a field whose linear terms are a function is never sampled")

    @property
    def methods(self) -> Mapping[str, type[Method]]:
        return {FieldLocal.name: FieldLocal}

    def read_tolerance(self, value: Any) -> float:
        return check.positive(value, "tolerance")

    def reader(self, model: Any, evidence: dict[Hashable, Any]) -> TargetReader:
        return _LazyReader(model, evidence, model, self)

    def condition(self, evidence: Mapping[Hashable, Any]) -> Space:
        raise ArgumentError("evidence", "None for a field whose linear terms are a function", evidence)

    def provable(self) -> Space:
        requirement = "in memory for a proof: a file cannot contain a function"
        raise ArgumentError("model", requirement, self.model)

    @property
    def is_gaussian(self) -> bool:
        return True

    def bounds_at(self, i: int) -> tuple[float, float]:
        return -np.inf, np.inf

    @property
    def largest_row(self) -> float:
        return abs(self.model.strength) * (1.0 + 16 * UNIT)

    @property
    def largest_pull(self) -> float:
        return self.model.bound / self.model.own * (1.0 + 4 * UNIT)

    def around(self, centres: NDArray[np.int64], radius: int) -> tuple[FieldTerms, NDArray[np.int64], Numbering]:
        """Return the field around the centres, its sites within `radius` edges of them, and a `Numbering` of it.

        The sites are positions in the returned field; the `Numbering` has the positions of its variables in the grid.
        """
        rows, cols = self.model.rows, self.model.cols
        row, col = divmod(int(centres[0]), cols)
        span = np.arange(-radius - 1, radius + 2)
        i, j = (axis.ravel() for axis in np.meshgrid(row + span, col + span, indexing="ij"))
        distance = np.abs(i - row) + np.abs(j - col)
        there = (distance <= radius + 1) & (i >= 0) & (i < rows) & (j >= 0) & (j < cols)
        positions, inner = (i * cols + j)[there], (distance <= radius)[there]
        order = np.argsort(positions)
        positions, inner = positions[order], inner[order]
        return self.model.terms(positions), np.flatnonzero(inner), Numbering(self.model.n_variables, positions)


@make_space.register
def _(model: LazyGrid) -> LazySpace:
    return LazySpace(model)


@version_for(diagnose, LazyGrid)
def _(model: LazyGrid) -> Any:
    return model._form


class _LazyReader(FieldReader):
    """Reads targets about a `LazyGrid`, which cannot list all of its sites."""

    def read_all(self) -> list[Any]:
        requirement = "a list of sites: a field whose linear terms are a function has too many for 'all'"
        raise ArgumentError("targets", requirement, "all")

    def read(self, target: Target) -> Any:
        if isinstance(target, Statistic):
            requirement = "means, Exceeds, Between or Quantile for a field whose linear terms are a function"
            raise ArgumentError("targets", requirement, target.name)
        return super().read(target)
