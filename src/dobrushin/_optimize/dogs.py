"""DoGS: coordinate descent on the Dobrushin variation (paper, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from dobrushin._influence import Influence
from dobrushin._kernels import descent
from dobrushin._kernels.greedy import move_steps
from dobrushin._models import Model
from dobrushin._models.sources import read_source
from dobrushin._optimize.guide import ScanResult, guide_of, whole
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Bools, Floats, Ints, frozen
from dobrushin._shared.call import bar, public
from dobrushin._shared.compile import in_pieces
from dobrushin._variation import evaluate, read_objective, warn_vacuous
from dobrushin.errors import ArgumentError
from dobrushin.typing import Guide, Iterations, Keep, ScanLike, Targets, Weights

# With iterations="converged", DoGS ends when an iteration lowers the variation by less than this share.
_CONVERGED = 1e-6
_MAX_ROUNDS = 1000
_WHAT = "choosing a scan"


@public(_WHAT, read=read_source)
def optimize_scan(
    model: Model | Influence,
    scan: ScanLike,
    targets: Targets | None = None,
    weights: Weights | None = None,
    tolerance: float | None = None,
    iterations: int | Iterations = 1,
    guide: Guide | None = "auto",
    *,
    keep: Keep = "best",
    progress: bool | None = None,
) -> ScanResult:
    """Improve a scan for the variables that matter: DoGS, coordinate descent on the Dobrushin variation.

    Parameters
    ----------
    model : Model or Influence
        For a model, its whole influence is computed (``method="best"``); compute it once for several calls.
    scan : Scan or ScanResult
        Any scan, fixed or random; the result has the same length.
    targets, weights
        As for `variation`.
    tolerance : float, optional
        Stop as soon as the variation is at most this number; steps that have not been replaced by then stay.
    iterations : int or "converged"
        How often to repeat the algorithm on its own output.
    guide : {"auto", None}
        "auto": if the certificate is nearly vacuous because the spectral radius of the influence is 1 or more, choose
        again with the influence scaled to a radius below 1. The certificate never uses the scaled matrix.
    keep : {"best", "last"}
        Which scan to return: the one with the smallest certificate; or that of the last round, as Algorithm 2 does,
        even if its certificate is larger than that of the input.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    ScanResult
        With ``keep="best"`` never worse than the input scan, measured with the influence used to choose the scan.

    Notes
    -----
    Algorithm 2 of the paper, with the update V + w[i*] - w[i_t], w = -d * (I - C) b.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(10, 10, couplings=0.2)
    >>> systematic = db.Scan.systematic(100, steps=1000)
    >>> before = db.variation(model, systematic, targets=[0])
    >>> after = db.optimize_scan(model, systematic, targets=[0])
    >>> before.value / after.variation.value > 100
    True
    """
    source = whole(model)
    current = as_scan(scan, source)
    objective = read_objective(source, targets, weights)
    goal = -np.inf if tolerance is None else check.positive(tolerance, "tolerance")
    most = _MAX_ROUNDS if iterations == "converged" else check.count(iterations, "iterations")
    if not check.is_text(keep, "best", "last"):
        raise ArgumentError("keep", "'best' or 'last'", keep)
    d = np.zeros(source.n_variables)
    d[objective.positions] = objective.weights

    def improve(chooser: Influence) -> ScanResult:
        """Run iterations of DoGS with this influence; return the best scan, or the last one if `keep` is "last"."""
        scan, before = current, np.inf
        best = ScanResult(scan, evaluate(chooser, scan, objective))
        descend = descent_on(chooser.matrix)
        for _ in range(most):
            if best.variation.value <= goal:
                break
            # The goal is for the certificate, which is rounded up: aim a little lower.
            scan, linear = descend(scan, d, goal * (1 - 1e-9))
            candidate = evaluate(chooser, scan, objective)
            if keep == "last" or candidate.value < best.variation.value:
                best = ScanResult(scan, candidate)
            if not linear < before * (1 - _CONVERGED):
                break
            before = linear
        return best

    best = improve(source)
    if (chooser := guide_of(source, best.variation, guide)) is not None:
        scan = improve(chooser).scan
        best = ScanResult(scan, evaluate(source, scan, objective))
    if best.variation.is_vacuous:
        warn_vacuous(best.variation)
    return best


def descent_on(matrix: Any, candidate: Bools | None = None) -> Callable[..., tuple[Scan, float]]:
    """Return a function (scan, d, tolerance) -> (scan, linear variation) that runs one iteration of DoGS.

    The linear variation is the bound without clamps at 1. Only variables marked in `candidate` (default all) are put
    into the scan.
    """
    transpose = sparse.csr_array(matrix.T)
    rows = tuple(frozen(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    columns = tuple(frozen(part) for part in (transpose.indptr, transpose.indices, transpose.data))
    is_mutual = all(np.array_equal(*parts) for parts in zip(rows[:2], columns[:2], strict=True))
    if is_mutual:  # sharing one array of indices saves cache
        columns = (*rows[:2], columns[2])
    allowed = np.ones(matrix.shape[0], dtype=np.bool_) if candidate is None else candidate

    def descend(scan: Scan, d: Floats, tolerance: float) -> tuple[Scan, float]:
        if scan.is_random:
            return _descend_random(scan, rows, d, tolerance)
        order = scan.order
        variable, old, V = np.ones((len(d), 3)), np.empty(len(order)), np.zeros(1)
        variable[:, descent.D] = d
        tree = descent.tree(len(d))
        in_pieces(descent.bounds_through, len(order), order, *rows, variable, old)
        in_pieces(descent.gains, len(d), *rows, allowed, variable, *tree, V)
        known = (*rows, *columns, is_mutual, allowed)
        in_pieces(descent.dogs, len(order), order, *known, tolerance, old, variable, *tree, V, what=_WHAT)
        return Scan(order), float(V[0])

    return descend


def _descend_random(scan: Scan, rows: Any, d: Floats, tolerance: float) -> tuple[Scan, float]:
    steps = np.empty(len(scan), dtype=np.int64)
    vectors = np.zeros((len(scan._segments), len(d)))
    t = 0
    for k, segment in enumerate(scan._segments):
        span = slice(t, t + segment.steps)
        if segment.is_random:
            vectors[k, : segment.n] = segment.vector()
            steps[span] = -1 - k
        else:
            steps[span] = segment.order()
        t += segment.steps
    chosen, kept, value = _replace_steps(steps, vectors, rows, d.copy(), tolerance)
    if kept == len(scan):
        return scan, value
    return (scan[:kept] + Scan(chosen[kept:]) if kept else Scan(chosen)), value


def _replace_steps(steps: Ints, vectors: Floats, rows: Any, d: Floats, tolerance: float) -> tuple[Ints, int, float]:
    """Run DoGS on a random scan; return the new steps, the number of unchanged first steps, and the linear variation.

    Only every sqrt(T)-th vector b_t is kept; the others are recomputed from these, sqrt(T) at a time.
    """
    every, at_once = int(np.ceil(np.sqrt(len(steps)))), 4.0 * len(d) + 2.0 * len(rows[2])
    marks, b = np.empty((len(steps) // every + 1, len(d))), np.ones(len(d))
    in_pieces(descent.steps_through, len(steps), steps, vectors, *rows, every, b, marks, at_once=at_once)
    chosen, V = steps.copy(), np.array([np.cumsum(d * b)[-1], 0.0])
    with bar(len(steps), _WHAT, "steps") as report:
        for k in range((len(steps) - 1) // every, -1, -1):
            span = slice(k * every, min((k + 1) * every, len(steps)))
            block = steps[span]
            before, shared = np.empty((len(block), len(d))), (block, vectors, *rows)
            in_pieces(descent.steps_through, len(block), *shared, 1, marks[k].copy(), before, at_once=at_once)
            own = (*shared, tolerance, before, d, V, chosen[span])
            in_pieces(descent.replace_steps, len(block), *own, at_once=at_once)
            if V[1] > 0.0:
                return chosen, span.start + int(V[1]), float(V[0])
            if report:
                report(len(steps) - span.start)
    return chosen, 0, float(V[0])


# Elementary operations (about 1 ns each) for moving single steps; one attempt takes as many as the order has steps,
# times the entries of the matrix.
_MOVE_OPERATIONS = 5e5


def polisher(matrix: Any, weights: Floats, candidate: Bools, rounds: int) -> Callable[[Ints], Ints]:
    """Return a function that improves an order by rounds of DoGS, and by moving single steps if the order is short."""
    descend = descent_on(matrix, candidate)

    def improve(order: Ints) -> Ints:
        for _ in range(rounds):
            order = descend(Scan(order), weights, -np.inf)[0].order
        return move_single_steps(matrix, weights, candidate, order)

    return improve


def move_single_steps(matrix: Any, weights: Floats, candidate: Bools, order: Ints) -> Ints:
    """Improve a short order by moving single steps; return a longer order unchanged."""
    tries = int(_MOVE_OPERATIONS / (len(order) * (matrix.nnz + len(weights))))
    if len(order) < 2 or tries < len(order):  # not even one attempt for each step
        return order
    order = order.copy()
    parts = (frozen(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    move_steps(order, *parts, candidate, weights, tries)
    return order
