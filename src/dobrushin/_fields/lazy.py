"""Gaussian grids by a function: only regions around targets are ever made, and solved."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._diagnose import diagnose
from dobrushin._estimate.method import Method
from dobrushin._estimate.query import Space, make_space
from dobrushin._estimate.targets import Statistic, Target, TargetReader
from dobrushin._fields.questions import FieldReader
from dobrushin._fields.solve import FieldLocal
from dobrushin._fields.terms import UNIT, FieldTerms
from dobrushin._models.model import Model
from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.call import public, version_for
from dobrushin.errors import ArgumentError


class LazyGrid(Model):
    """A lattice with four neighbours whose linear terms are a function of site numbers; see `GaussianField.grid`."""

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
    def _lowered(self) -> NoReturn:  # type: ignore[override]
        raise ArgumentError("model", "made as a whole here: by a function only estimate and plan", self)

    def _parts(self) -> None:
        return None

    def _read_evidence(self, evidence: Any) -> dict[int, Any]:
        if evidence:
            raise ArgumentError("evidence", "None for a field by a function", evidence)
        return {}

    @public(name="GaussianField.grid")
    def terms(self, positions: NDArray[np.int64]) -> FieldTerms:
        """Return the form of some sites."""
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


class LazySpace(Space):
    """The space of a grid by a function: regions around targets are solved, and nothing else is done."""

    noun: ClassVar[str] = "mean"

    model: LazyGrid
    place = None

    def __init__(self, model: LazyGrid) -> None:
        self.model = model

    @property
    def rows(self) -> NoReturn:
        raise NotImplementedError("nothing is sampled")

    @property
    def methods(self) -> Mapping[str, type[Method]]:
        return {FieldLocal.name: FieldLocal}

    def read_tolerance(self, value: Any) -> float:
        return check.positive(value, "tolerance")

    def reader(self, model: Any, evidence: dict[Hashable, Any]) -> TargetReader:
        return _LazyReader(model, evidence, model, self)

    def condition(self, evidence: Mapping[Hashable, Any]) -> Space:
        raise ArgumentError("evidence", "None for a field by a function", evidence)

    def provable(self) -> Space:
        requirement = "one that is made as a whole for a proof: a file cannot hold a function"
        raise ArgumentError("model", requirement, self.model)

    @property
    def is_gaussian(self) -> bool:
        return True

    def bounds_at(self, i: int) -> tuple[float, float]:
        """Return the ends of the interval of a variable."""
        del i
        return -np.inf, np.inf

    @property
    def largest_row(self) -> float:
        """An upper bound on the largest row sum of C."""
        return abs(self.model.strength) * (1.0 + 16 * UNIT)

    @property
    def largest_pull(self) -> float:
        """The largest |linear_i| / m_i, rounded up."""
        return self.model.bound / self.model.own * (1.0 + 4 * UNIT)

    def around(self, centres: NDArray[np.int64], radius: int) -> tuple[FieldTerms, NDArray[np.int64], Numbering]:
        """Return the form of a region and its neighbours, the sites of the region, and the place of the form."""
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
    """Questions about a grid of which no form is made."""

    def read_all(self) -> list[Any]:
        raise ArgumentError("targets", "some sites of a field by a function, not all of them", "all")

    def read(self, target: Target) -> Any:
        if isinstance(target, Statistic):
            requirement = "means, Exceeds, Between or Quantile of a grid by a function"
            raise ArgumentError("targets", requirement, target.name)
        return super().read(target)
