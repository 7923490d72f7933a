"""Exact answers for Gaussian fields: linear systems whose error is bounded through Dobrushin's condition. [trusted]

From P e = r follows |e| <= C |e| + |r| / m, so any w >= C w + |r| / m bounds the error e of a solution with residual r.
Outside a region, the solution itself is bounded by the largest row of C; so a part of the field is enough.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.sparse import linalg

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import Choice, Method, Plan, Rows
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Question
from dobrushin._fields.anchor import REMEDY, FieldSpace, supersolve
from dobrushin._fields.questions import FieldEvent, FieldQuantile
from dobrushin._fields.terms import SMALLEST, UNIT, FieldTerms
from dobrushin._models.near import Numbering
from dobrushin._shared.arrays import distinct, row_entries
from dobrushin._shared.call import bar
from dobrushin._shared.running import Running
from dobrushin._shared.text import rounded_up
from dobrushin.errors import ArgumentError

# Fields up to this size are factorised as a whole, and regions up to it.
_LARGEST = 200_000
_FIRST_RADIUS = 6
# More than the error of SciPy's normal distribution function.
_OUTWARDS = 1e-14


class Solution(NamedTuple):
    """Mean and variance of one variable, each with a bound on its error."""

    mean: float
    mean_error: float
    variance: float
    variance_error: float


class System:
    """The rows of a region, factorised; everything outside it has a solution of at most `outside` in size."""

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
        # How much of what is outside each row sees.
        self.seen = np.bincount(row[~held], np.abs(data[~held]), len(region)) / self.least * (up + UNIT * self.degree)
        self.factors = linalg.splu(self.precision)
        if whole is not None:  # the form is a part of a larger one
            self.part = self.part.within(whole)

    def solve(
        self, right: NDArray[np.float64], right_error: NDArray[np.float64] | float = 0.0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Solve, refine once, and bound the residual over the diagonal, for every system within the rounding of terms.

        `right_error` bounds the rounding of the right side.
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
        """The solution for the mean, and the bound on its residual."""
        return self.solve(self.linear, self.linear_error)

    @cached_property
    def _shares(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Errors for a residual of 1 everywhere, and for a solution of 1 outside; sums of supersolutions are such."""
        one = supersolve(self.influence, np.ones(len(self.diagonal)))
        if one is None or not self.seen.any():
            return None if one is None else (one, np.zeros(len(one)))
        border = supersolve(self.influence, self.seen + float(self.seen.max()) * 1e-12)
        return None if border is None else (one, border)

    def bound(self, i: int, residual: NDArray[np.float64], outside: float) -> float | None:
        """A bound on the error of a solution at place i; None where Dobrushin's condition fails."""
        if self._shares is None:
            return None
        one, border = self._shares
        return float(one[i] * residual.max() + border[i] * outside) * (1.0 + 8 * UNIT) + 2.0**-1000


class Outside(NamedTuple):
    """What bounds a solution outside a region: every |mean|, and every |covariance| times the precision of its site."""

    mean: float
    inverse: float


class Solved(NamedTuple):
    """Value and both limits of a row; `off` is how far the value is off in the units of the tolerance."""

    value: float
    low: float
    high: float
    off: float


def answer_question(system: System, question: Question, outside: Outside) -> Solved | None:
    """The row of a question; None where Dobrushin's condition fails."""
    solution = _solve_for(system, int(question.positions[0]), outside, question.is_counted)
    if solution is None:
        return None
    if isinstance(question, FieldEvent):
        return _solved(*_probability(question.target._ends, solution))
    if isinstance(question, FieldQuantile):
        return _quantile(question.target.level, solution)
    pad = solution.mean_error * (1.0 + 4 * UNIT) + abs(solution.mean) * 4 * UNIT
    return _solved(solution.mean, solution.mean - pad, solution.mean + pad)


def _solved(value: float, low: float, high: float) -> Solved:
    return Solved(value, low, high, 0.5 * (high - low))


def _solve_for(system: System, position: int, outside: Outside, spread: bool) -> Solution | None:
    i = int(system.part.own(np.array([position]))[0])
    x, residual = system.means
    error = system.bound(i, residual, outside.mean)
    if error is None:
        return None
    if not spread:
        return Solution(float(x[i]), error, 0.0, 0.0)
    right = np.zeros(len(x))
    right[i] = 1.0
    v, rest = system.solve(right)
    other = system.bound(i, rest, outside.inverse / float(system.least[i]))
    return None if other is None else Solution(float(x[i]), error, float(v[i]), other)


def _probability(ends: tuple[float, float], solution: Solution) -> tuple[float, float, float]:
    """Probability of an interval, with limits from those of mean and variance."""
    mean, variance = solution.mean, solution.variance
    low, high = ends

    def above(threshold: float, sign: float) -> float:
        """The probability that x > threshold; rounded down (sign -1), not at all (0), or up (+1)."""
        if math.isinf(threshold):
            return 0.0
        values = []
        for shift in (-1.0, 1.0):
            for scale in (-1.0, 1.0):
                v = max(variance + scale * abs(sign) * solution.variance_error, 1e-300)
                m = mean + shift * abs(sign) * solution.mean_error * (1.0 + 1e-12)
                values.append(float(special.ndtr((m - threshold) / math.sqrt(v))))
        spread = _OUTWARDS * (1.0 + (abs(mean) + abs(threshold)) / math.sqrt(max(variance, 1e-300)))
        return max(values) + spread if sign > 0 else min(values) - spread if sign < 0 else values[0]

    value = above(low, 0.0) - above(high, 0.0)
    least = above(low, -1.0) - above(high, 1.0)
    most = above(low, 1.0) - above(high, -1.0)
    return value, max(0.0, least), min(1.0, most)


def _quantile(level: float, solution: Solution) -> Solved:
    """A quantile, with limits from those of mean and variance; off by a probability."""
    z, variance = float(special.ndtri(level)), solution.variance
    deviations = [math.sqrt(max(variance + sign * solution.variance_error, 0.0)) for sign in (-1.0, 0.0, 1.0)]
    ends = z * deviations[0], z * deviations[2]
    pad = solution.mean_error + 10 * _OUTWARDS * (abs(solution.mean) + (1.0 + abs(z)) * deviations[2])
    low, high = solution.mean + min(ends) - pad, solution.mean + max(ends) + pad
    density = 0.4 / deviations[0] if deviations[0] > 0.0 else math.inf
    return Solved(solution.mean + z * deviations[1], low, high, min(1.0, 0.5 * (high - low) * density))


class Solving(Method):
    """What both methods share: Gaussian fields, and limits that leave nothing to chance."""

    is_certain: ClassVar[bool] = True
    remedy: ClassVar[str] = REMEDY

    def __init__(self, query: Query, plan: Plan, limits: list[Solved]) -> None:
        super().__init__(query, plan)
        self.limits = limits

    @classmethod
    def require_gaussian(cls, query: Query, choice: Choice) -> None:
        """Refuse what is not Gaussian, statistics, whose means are not linear, and proofs."""
        if query.proof and choice.by_name:
            raise ArgumentError("method", "'dobrushin' for a proof about a field", query.method)
        if query.proof:
            raise cls.refuse("proofs about fields are about chains.")
        if not query.space.form.is_gaussian:
            raise cls.refuse("the field is truncated, or has a likelihood that is not normal.")
        if any(question.name is not None for question in query.questions):
            raise cls.refuse("statistics are sampled.")

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        del sequence, running
        rows = []
        for value, low, high, _ in self.limits:
            error = max(high - value, value - low)
            rows.append(Rows(*(np.array([number]) for number in (value, low, high, error))))
        words = (
            "the field is Gaussian: its mean solves a linear system, whose residual bounds the error through "
            "Dobrushin's condition",
            "rounding is included; nothing is left to chance",
        )
        return self.assemble(rows, 1.0, words)

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "The field is Gaussian, so its means and variances solve linear systems. The residual of each solution, "
            "and what lies outside the region that was solved, were turned into an error bound through Dobrushin's "
            f"condition: at most {rounded_up(float(np.max(estimate.bias_bound)))}. Nothing is left to chance."
        ]


class FieldExact(Solving):
    """The whole field, factorised."""

    name: ClassVar[str] = "exact"

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        if choice.best is not None:
            return choice.best
        cls.require_gaussian(query, choice)
        n = query.model.n_variables
        if n > _LARGEST:
            raise cls.refuse(f"{n} variables are too many to factorise (at most {_LARGEST}).")
        system = System(query.space.form, np.arange(n))
        limits = []
        with bar(len(query.questions), "solving", "targets") as report:
            for question in query.questions:
                if (limit := answer_question(system, question, Outside(0.0, 0.0))) is None:
                    short = cls.refuse("Dobrushin's condition, which would bound its error, fails.")
                    raise query.space.refuse() if choice.by_name else short  # "dobrushin" says which rows fail
                if not limit.off <= query.tolerance:
                    raise cls.refuse(f"rounding leaves {limit.off:.2g}, more than {query.tolerance:g}.")
                limits.append(limit)
                if report:
                    report(len(limits))
        reason = "Gaussian and untruncated: a sparse factorisation, its residual bounded by Dobrushin's condition"
        return cls(query, cls.draft(query, reason, 0.0), limits)


class Surroundings(Protocol):
    """A Gaussian field of which regions can be solved."""

    rho: float  # bounds the rows of C
    largest_mean: float  # bounds every |mean|

    def region(self, centres: NDArray[np.int64], radius: int) -> System:
        """The variables within so many edges of some, factorised."""


class Around:
    """Regions of a field that is there as a whole."""

    def __init__(self, space: FieldSpace) -> None:
        self.form, self.rho = space.form, space.largest_row
        self.largest_mean = beyond(space.largest_pull, self.rho)

    def region(self, centres: NDArray[np.int64], radius: int) -> System:
        """The variables within so many edges of some, factorised."""
        return System(self.form, ball(self.form, centres, radius))


def beyond(size: float, rho: float) -> float:
    """A bound on every entry of a solution whose right side is at most so large, over the diagonal."""
    return size / (1.0 - rho) * (1.0 + 32 * UNIT) if rho < 1.0 else math.inf


class FieldLocal(Solving):
    """A factorised region around each target, with a bound on the effect of its boundary."""

    name: ClassVar[str] = "local"

    @classmethod
    def surroundings(cls, query: Query, choice: Choice) -> Surroundings:
        """Return what regions are taken from."""
        cls.require_gaussian(query, choice)
        return Around(query.space)

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        if choice.best is not None:
            return choice.best
        surroundings = cls.surroundings(query, choice)
        if surroundings.rho >= 1.0:
            raise cls.refuse(f"the largest row of the influence is {surroundings.rho:.3g}, not below 1.")
        limits, largest = [], 0
        with bar(len(query.questions), "solving", "targets") as report:
            for question in query.questions:
                limit, size = cls._grow(query, question, surroundings)
                limits.append(limit)
                largest = max(largest, size)
                if report:
                    report(len(limits))
        what = f"a region of {largest} variables around each target"
        reason = f"Gaussian: {what}, the rest bounded by Dobrushin's condition"
        return cls(query, cls.draft(query, reason, 0.0), limits)

    @classmethod
    def _grow(cls, query: Query, question: Question, surroundings: Surroundings) -> tuple[Solved, int]:
        radius, size = _FIRST_RADIUS, 0
        outside = Outside(surroundings.largest_mean, beyond(1.0, surroundings.rho))
        while True:
            system = surroundings.region(question.positions, radius)
            if system.part.size == size:  # the whole component
                raise cls.refuse(f"rounding leaves more than {query.tolerance:g}.")
            size = system.part.size
            if size > _LARGEST:
                raise cls.refuse(f"a region of {size} variables is not enough for {query.tolerance:g}.")
            limit = answer_question(system, question, outside)
            if limit is not None and limit.off <= query.tolerance:
                return limit, size
            radius += max(2, radius // 2)


def ball(form: FieldTerms, centres: NDArray[np.int64], radius: int) -> NDArray[np.int64]:
    """The variables within so many edges of some, increasing; nothing else of the field is looked at."""
    matrix = form.couplings
    known = shell = np.unique(centres)
    for _ in range(radius):
        first = matrix.indptr[shell].astype(np.int64)
        _, entry = row_entries(first, matrix.indptr[shell + 1] - first)
        near = distinct(matrix.indices[entry].astype(np.int64), form.n_variables)
        shell = near[~Numbering(form.n_variables, known).holds(near)]
        if not len(shell):
            break
        known = np.sort(np.concatenate([known, shell]))
    return known
