"""Gaussian grids by a function: only regions around targets are ever made, and solved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._estimate import method as methods
from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import Method, Plan
from dobrushin._estimate.origin import Asked
from dobrushin._estimate.query import Settings
from dobrushin._estimate.settings import check_settings
from dobrushin._estimate.targets import Target
from dobrushin._fields.query import FieldQuery
from dobrushin._fields.questions import FieldEvent, FieldMean, FieldQuantile, FieldReader
from dobrushin._fields.solve import Local, System, beyond
from dobrushin._fields.terms import UNIT, FieldTerms
from dobrushin._models.model import Model
from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.families import version_of
from dobrushin._shared.running import Running
from dobrushin.errors import ArgumentError


class LazyGrid(Model):
    """A lattice with four neighbours whose linear terms are a function of site numbers; see `GaussianField.grid`."""

    is_whole = False
    is_discrete = False

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
        self.rho = abs(self.strength) * (1.0 + 16 * UNIT)
        self.largest_mean = beyond(self.bound / self.own * (1.0 + 4 * UNIT), self.rho)

    @property
    def _form(self) -> NoReturn:
        raise ArgumentError("model", "made as a whole here: by a function only estimate and plan", self)

    def region(self, centres: NDArray[np.int64], radius: int) -> System:
        """The sites within so many edges of one, factorised; their neighbours are seen from outside."""
        row, col = divmod(int(centres[0]), self.cols)
        span = np.arange(-radius - 1, radius + 2)
        i, j = (axis.ravel() for axis in np.meshgrid(row + span, col + span, indexing="ij"))
        distance = np.abs(i - row) + np.abs(j - col)
        there = (distance <= radius + 1) & (i >= 0) & (i < self.rows) & (j >= 0) & (j < self.cols)
        positions, inner = (i * self.cols + j)[there], (distance <= radius)[there]
        order = np.argsort(positions)
        positions, inner = positions[order], inner[order]
        return System(self._terms(positions), np.flatnonzero(inner), Numbering(self.n_variables, positions))

    @public(name="GaussianField.grid")
    def _terms(self, positions: NDArray[np.int64]) -> FieldTerms:
        """The field of some sites."""
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
        none, free = np.zeros(n), np.full(n, np.inf)
        start = np.zeros(n + 1, dtype=np.int64)
        return FieldTerms(matrix, np.full(n, self.own), linear.copy(), -free, free, none, none, start, np.empty(0))

    def _describe_states(self) -> tuple[str, str]:
        return "values", "unbounded; their linear terms are a function"

    def __repr__(self) -> str:
        return f"LazyGrid(n_variables={self.n_variables}, rho={self.strength:g})"


class _LazyReader(FieldReader):
    """Questions about a grid of which no form is made."""

    model: Any

    def read_label(self, i: int) -> FieldMean:
        return FieldMean(np.array([i]), np.ones(1), i, "mean", _unused, (-np.inf, np.inf))

    def read_interval(self, event: Any) -> FieldEvent:
        return FieldEvent(self._positions([event.label]), event, False, np.ones(1))

    def read_quantile(self, quantile: Any) -> FieldQuantile:
        return FieldQuantile(self._positions([quantile.label]), quantile, np.ones(1), (-np.inf, np.inf))

    def read_statistic(self, statistic: Any) -> FieldMean:
        raise ArgumentError("targets", "means, Exceeds, Between or Quantile of a grid by a function", statistic.name)


def _unused(states: NDArray[np.float64], first: int) -> NDArray[np.float64]:
    raise NotImplementedError("grids by a function are not sampled")


@version_of("read_settings", LazyGrid)
def read_lazy_settings(model: LazyGrid, *settings: Any) -> Settings:
    """`read_settings` of a grid by a function: only regions are solved."""
    del model
    return check_settings({Local.name: Local}, check.positive, *settings)


@version_of("require_proofs", LazyGrid)
def refuse_proofs(model: LazyGrid) -> None:
    """`require_proofs` of a grid by a function."""
    requirement = "one that is made as a whole for a proof: a file cannot hold a function"
    raise ArgumentError("model", requirement, model)


@version_of("answer_query", LazyGrid)
def answer_lazy_query(
    model: LazyGrid, targets: Any, evidence: Any, settings: Settings, sequence: np.random.SeedSequence,
    running: Running, from_plan: Any = None,
) -> Estimate:  # fmt: skip
    """`answer_query` of a grid by a function: a region around each target is solved."""
    del from_plan
    answer = methods.answer(_choose(model, targets, evidence, settings), sequence, running)
    return replace(answer, asked=Asked(model, {}))


@version_of("plan_query", LazyGrid)
def plan_lazy_query(model: LazyGrid, targets: Any, evidence: Any, settings: Settings) -> Plan:
    """`plan_query` of a grid by a function."""
    return _choose(model, targets, evidence, settings).plan


def _choose(model: LazyGrid, targets: Any, evidence: Any, settings: Settings) -> Method:
    if evidence:
        raise ArgumentError("evidence", "None for a field by a function", evidence)
    if check.is_text(targets, "all"):
        raise ArgumentError("targets", "some sites of a field by a function, not all of them", targets)
    reader = _LazyReader(model)  # type: ignore[arg-type]
    items = list(targets) if check.is_several(targets) else [targets]
    plain = [item for item in items if not isinstance(item, Target)]
    positions = iter(())
    if plain:
        positions = iter(check.positions(plain, model.labels, None, "targets").tolist())
    asked = [item.ask(reader) if isinstance(item, Target) else reader.read_label(next(positions)) for item in items]
    query = FieldQuery.make(model, asked, settings)
    with methods.carry_estimate(query):  # type: ignore[arg-type]
        return Local.propose_around(query, model)
