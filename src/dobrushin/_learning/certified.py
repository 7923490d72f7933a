"""Gradients from marginals with certified intervals, for models whose treewidth is too large for exact sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from dobrushin._estimate.estimator import estimate
from dobrushin._estimate.targets import Joint
from dobrushin._learning.ascent import Ascent, AscentOptions, Expectation, Vector
from dobrushin._learning.data import Observed
from dobrushin._learning.structure import Structure
from dobrushin._shared import validate as check
from dobrushin._shared.call import NO_DEADLINE, current_deadline, public
from dobrushin._shared.running import kept_seed
from dobrushin.typing import EstimateMethod


@dataclass(frozen=True)
class MarginalGradient:
    """Options of gradients of `fit` that are computed from marginals with certified intervals.

    Parameters
    ----------
    tolerance : float
        Largest half-width of the interval of each marginal probability.
    confidence : float
        Probability with which all intervals of a gradient are valid, where marginals are estimated from chains.
    method : str
        As for `estimate`: "auto", or one method by name, but not "uncertified". With "local" and "weights" they
        are certain.

    Notes
    -----
    The mean of a statistic is the sum over factors and their joint states x of a(x) p(x), with a the number that
    multiplies the weight there, and p the marginal probability. If every p is within e(x) of its estimate, the mean is
    off by at most the sum of |a(x)| e(x).

    Examples
    --------
    >>> import dobrushin as db
    >>> edges = [(i, i + 1) for i in range(9)]
    >>> rows = [(edge, {"alike": [[1, 0], [0, 1]]}) for edge in edges]
    >>> chain = db.FactorGraph([2] * 10, [])
    >>> data = [[0] * 10, [1] * 10, [0] * 5 + [1] * 5]
    >>> found = db.fit(chain, data, features=rows, ridge=0.1, iterations=5, method=db.MarginalGradient(0.01))
    >>> bool(found.bias_bound <= 9 * 2 * 0.01)
    True
    """

    tolerance: float = 0.02
    confidence: float = 0.99
    method: EstimateMethod = "auto"

    @public()
    def __post_init__(self) -> None:
        check.positive(self.tolerance, "tolerance")
        check.fraction(self.confidence, "confidence")
        check.choice(self.method, [name for name in get_args(EstimateMethod) if name != "uncertified"], "method")


class MarginalAscent(Ascent):
    """Ascent by marginals with intervals; step sizes by Barzilai and Borwein, from the last change of the gradient."""

    method = "marginals"

    def __init__(
        self,
        structure: Structure,
        observed: Observed,
        options: AscentOptions,
        theta: Vector,
        how: MarginalGradient,
        sequence: np.random.SeedSequence,
    ) -> None:
        super().__init__(structure, observed, options, theta)
        self.seed, self._sequence, self._how = kept_seed(sequence), sequence, how
        scopes = {tuple(scope) for part in structure.scopes for scope in part.tolist()}
        self._scopes = sorted(scopes, key=lambda scope: (len(scope), scope))
        self._last: tuple[Vector, Vector] | None = None  # theta and the gradient of the iteration before

    def expectation(self, full: Vector, iteration: int) -> Expectation:
        structure, how = self.structure, self._how
        labels = [tuple(structure.labels[i] for i in scope) for scope in self._scopes]
        key = (*self._sequence.spawn_key, iteration)
        seconds = None if (limit := current_deadline()) is NO_DEADLINE else max(limit.left, 1e-9)
        answer: Any = estimate(
            structure.model(full), [own[0] if len(own) == 1 else Joint(*own) for own in labels],
            tolerance=how.tolerance, confidence=how.confidence, method=how.method, time_limit=seconds,
            seed=np.random.SeedSequence(self._sequence.entropy, spawn_key=key),
        )  # fmt: skip
        found = {}
        for scope, own in zip(self._scopes, labels, strict=True):
            part = answer[own[0] if len(own) == 1 else own]
            found[scope] = part.value, np.maximum(part.upper - part.value, part.value - part.lower)
        counts, errors = np.zeros(len(structure.base)), np.zeros(len(structure.base))
        numbered = (tuple(scope) for part in structure.scopes for scope in part.tolist())
        for scope, table in zip(numbered, structure.table_of.tolist(), strict=True):
            span = slice(structure.table_start[table], structure.table_start[table + 1])
            counts[span] += np.ravel(found[scope][0])
            errors[span] += np.ravel(found[scope][1])
        bias = structure.means(errors, 1.0, is_size=True) * (1.0 + 2.0**-30)
        return Expectation(structure.means(counts, 1.0), bias)

    def choose_step(self, gradient: Vector, inward: Vector) -> tuple[Vector, float]:
        """Take the step of Barzilai and Borwein (1988), or if that fails one of size 1 / curvature."""
        size = 1.0 / self.curvature
        if self._last is not None:
            move, change = self.theta - self._last[0], self._last[1] - gradient
            if (product := float(move @ change)) > 0.0:
                size = float(move @ move) / product
        self._last = self.theta, gradient
        return self.move(gradient, size), size

    def to_arrays(self) -> dict[str, Any]:
        return super().to_arrays() | ({} if self._last is None else {"last": np.stack(self._last)})

    def restore(self, arrays: dict[str, Any]) -> None:
        super().restore(arrays)
        self._last = (arrays["last"][0], arrays["last"][1]) if "last" in arrays else None
