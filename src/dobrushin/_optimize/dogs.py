"""DoGS: coordinate descent on the Dobrushin variation (paper, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin import _validate as check
from dobrushin._arrays import frozen
from dobrushin._influence import Influence
from dobrushin._kernels import descent
from dobrushin._models import Model
from dobrushin._objective import read_objective
from dobrushin._optimize.result import ScanResult, whole
from dobrushin._scan import Cycle, Draw, Scan, as_scan
from dobrushin._variation import evaluate, warn_vacuous

# Rounds of iterated DoGS end when the variation falls by less than this share.
_CONVERGED = 1e-6
_MOST_ROUNDS = 1000


def optimize(
    influence: Influence | Model,
    scan: Any,
    targets: Any = None,
    weights: Any = None,
    tolerance: float | None = None,
    rounds: int | str = 1,
) -> ScanResult:
    """Improve a scan for the variables that matter: DoGS, coordinate descent on the Dobrushin variation.

    Parameters
    ----------
    influence : Influence or Model
        Of a model the whole influence is computed (``method="best"``); compute it once for several calls.
    scan : Scan or ScanResult
        Any scan, fixed or random; the result has the same length.
    targets, weights
        As for `variation`.
    tolerance : float, optional
        Stop as soon as the variation is at most this; earlier steps stay as they were.
    rounds : int or "converged"
        How often to repeat the algorithm on its own output.

    Returns
    -------
    ScanResult
        Never worse than the input scan.

    Notes
    -----
    Algorithm 2 of the paper, with the update V + w[i*] - w[i_t], w = -d * (I - C) b.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(10, 10, couplings=0.2)
    >>> systematic = db.Scan.systematic(100, steps=1000)
    >>> before = db.variation(model, systematic, targets=[0])
    >>> after = db.optimize(model, systematic, targets=[0])
    >>> before.value / after.variation.value > 100
    True
    """
    source = whole(influence, "optimize")
    current = as_scan(scan, "optimize")
    objective = read_objective(source, targets, weights, "optimize")
    goal = -np.inf if tolerance is None else check.positive(tolerance, "optimize", "tolerance")
    most = _MOST_ROUNDS if rounds == "converged" else check.count(rounds, "optimize", "rounds")
    best = ScanResult(current, evaluate(source, current, objective))
    descend = descent_on(source.matrix)
    d = np.zeros(source.n_variables)
    d[objective.positions] = objective.weights
    before = np.inf
    for _ in range(most):
        if best.variation.value <= goal:
            break
        # The goal is for the certificate, which is rounded up: aim a little lower.
        current, linear = descend(current, d, goal * (1 - 1e-9))
        candidate = evaluate(source, current, objective)
        if candidate.value < best.variation.value:
            best = ScanResult(current, candidate)
        if not linear < before * (1 - _CONVERGED):
            break
        before = linear
    if best.variation.is_vacuous:
        warn_vacuous(best.variation)
    return best


def descent_on(matrix: Any, candidate: NDArray[np.bool_] | None = None) -> Callable[..., tuple[Scan, float]]:
    """One round of DoGS over a matrix: (scan, d, tolerance) -> (scan, linear variation)."""
    transpose = sparse.csr_array(matrix.T)
    rows = tuple(frozen(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    columns = tuple(frozen(part) for part in (transpose.indptr, transpose.indices, transpose.data))
    allowed = np.ones(matrix.shape[0], dtype=np.bool_) if candidate is None else candidate

    def descend(scan: Scan, d: NDArray[np.float64], tolerance: float) -> tuple[Scan, float]:
        if scan.is_random:
            return _descend_random(scan, rows, d, tolerance)
        order = scan.order
        value = descent.dogs(order, *rows, *columns, allowed, d, tolerance)
        return Scan(order), float(value)

    return descend


def _descend_random(scan: Scan, rows: Any, d: NDArray[np.float64], tolerance: float) -> tuple[Scan, float]:
    steps = np.empty(len(scan), dtype=np.int64)
    vectors = np.zeros((len(scan.segments), len(d)))
    t = 0
    for k, segment in enumerate(scan.segments):
        span = slice(t, t + segment.steps)
        if isinstance(segment, Draw):
            vectors[k, : segment.n] = segment.vector()
        steps[span] = segment.order() if isinstance(segment, Cycle) else -1 - k
        t += segment.steps
    chosen, kept, value = descent.dogs_random(steps, vectors, *rows, d.copy(), tolerance)
    if kept == len(scan):
        return scan, value
    return (scan[:kept] + Scan(chosen[kept:]) if kept else Scan(chosen)), value
