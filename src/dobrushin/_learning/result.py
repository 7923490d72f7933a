"""Results of fits: the fitted model, and the history of its iterations."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._learning.data import Imputed
from dobrushin._learning.features import AttributeNames, read_features
from dobrushin._models import Model
from dobrushin._models.sources import as_model
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.text import card, counted, rounded_up
from dobrushin.errors import ArgumentError
from dobrushin.typing import ModelLike

if TYPE_CHECKING:
    import pandas

# Numbers of first and last iterations that are printed.
_ROWS_SHOWN = 3
_COLUMNS = ("iteration", "step", "gradient", "bias bound", "scan", "updates", "seconds")


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """One entry for each iteration of a fit.

    Attributes
    ----------
    step_size : array
        0 where the gradient was small enough to stop.
    gradient_norm : array
        Largest coordinate, in size, of the gradient before the step; coordinates that push out of the box do not count.
        With expectation maximisation the largest change of a probability.
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
    log_likelihood : array
        Mean log-likelihood of the observations before the step, without penalties; NaN with gradients from chains.
    """

    step_size: NDArray[np.float64]
    gradient_norm: NDArray[np.float64]
    bias_bound: NDArray[np.float64]
    scan_length: NDArray[np.int64]
    updates: NDArray[np.int64]
    seconds: NDArray[np.float64]
    is_new_scan: NDArray[np.bool_]
    log_likelihood: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.step_size)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with a row for each iteration."""
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
        Learned parameters: of edges first, then of variables; with features the weights; of a Bayesian network the
        logarithms of the probabilities.
    names : list of tuples
        Names of the parameters: ("coupling", i, j), ("field", i), ("unary", i, state), ("table", i, j, state, state);
        of weights (attribute, state, ...); of a Bayesian network ("table", i, j, ..., state, state, ...).
    history : History
        Arrays with an entry for each iteration.
    bias_bound : float
        Bound on the bias of each coordinate of the gradient at every iteration, given the iterations before; inf if the
        bias of some iteration is unknown.
    converged : bool
        Whether the last gradient was at most `gradient_tol`; without one, whether its bias and the noise of the chains
        explain the gradient (Hoeffding, 99 %).
    method : str
        "dogs", "systematic" or "uniform" scans, "exact", "marginals" or "em".
    persistent : bool
        Whether each iteration continued the chains of the previous one.
    seed : int, SeedSequence or None
        Seed that repeats the fit.
    bias_bounds : array
        Bound on the bias of each coordinate of the last gradient.
    imputed : Imputed or None
        What the missing values are likely to be, under the fitted model; None if nothing was missing.
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
    bias_bounds: NDArray[np.float64]
    imputed: Imputed | None = None
    _vocabulary: AttributeNames | None = None

    @property
    def is_certified(self) -> bool:
        """True if the bias of every gradient is bounded."""
        return math.isfinite(self.bias_bound)

    @property
    def headline(self) -> str:
        """One line with the model and the bound on the bias of its gradients."""
        count = len(self.history)
        known = {"exact": "exact gradients", "dogs": "DoGS scans", "em": "expectation maximisation"}
        known["marginals"] = "certified marginals"
        about = known.get(self.method, f"{self.method} scans")
        if self.is_certified:
            words = f"every gradient biased by at most {rounded_up(self.bias_bound)}"
        elif count:
            words = "NOT CERTIFIED: the bias of the gradients is unknown"
        else:
            words = "no iteration finished"
        return f"Fit ({self.model!r}, {counted(len(self.parameters), 'parameter')}, {about}): {words}"

    @property
    def footer(self) -> str:
        """One line about how the fit ended."""
        end = "converged" if self.converged else "not converged"
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{end} after {counted(len(self.history), 'iteration')}{seed}"

    @public()
    def model_of(self, graph: ModelLike, features: Any) -> Model:
        """Return the model of another graph with the shared weights of this fit.

        Parameters
        ----------
        graph : model
            Its variables and states; its log-potentials are added.
        features : list
            Pairs (scope, attributes), as for `fit`. Attributes that the fit does not know are left out.

        Returns
        -------
        FactorGraph
        """
        if self._vocabulary is None:
            raise ArgumentError(
                "features", "left out: the fit has no shared weights", features, function="Fit.model_of"
            )
        structure = read_features([as_model(graph, "graph")], features, True, self._vocabulary)
        return structure.model(self.parameters)

    def _rows(self) -> list[tuple[str, ...]]:
        """Return table rows for the first and the last iterations, with a row of dots between."""
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
        return card(self.headline, (), _COLUMNS, self._rows(), self.footer)

    def __str__(self) -> str:
        cells = [_COLUMNS, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  " + "  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([self.headline, *(line.rstrip() for line in table), f"  {self.footer}"])

    __repr__ = __str__
