"""Experiment: maximum likelihood for small Ising models with Gibbs gradients (paper, Section 5.3, after Domke 2015)."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import dobrushin as db
from dobrushin.experiments.catalog import Arrays, Finding, Store, span
from dobrushin.experiments.drawing import finish, look, panels
from dobrushin.experiments.scans import doubling_scan

SIDES = (3, 4)
OBSERVATIONS = 5
# Our reading of Domke's Section 6: gradient steps, chains, and (below) a step of 1 / (4 x number of edges), no ridge.
GRADIENTS, CHAINS = 46, 1533
BOX, TOLERANCE = 0.2, 0.01
# Bias of the mean of a product of spins, which lies between -1 and 1, at a total variation of `TOLERANCE`.
BIAS = 2 * TOLERANCE
# Two runs of the same method end with errors that differ by a few per cent, from the noise of 1533 chains.
_NOISE = 1.1
METHODS = ("uniform", "DoGS", "fit", "fit, own step sizes")


def uniform_steps(n: int) -> int:
    """Return how many steps of the uniform scan Domke's bound requires for a gradient.

    Examples
    --------
    >>> from dobrushin.experiments.mle import uniform_steps
    >>> uniform_steps(9), uniform_steps(16)
    (291, 561)
    """
    return math.ceil(n * math.log(n / TOLERANCE) / (1 - 4 * math.tanh(BOX)))


def compute(store: Store) -> dict[int, list[Arrays]]:
    """Record the error of the parameters against gradients, Gibbs steps and seconds, for each size and run.

    Parameters
    ----------
    store : Store
        Five runs, each with data of its own; two if quick.

    Returns
    -------
    dict from sides to lists of arrays
    """
    return {
        side: [store.part(f"run-{side}-{k}", _run, side, store.seed_of(side, k)) for k in range(store.pick(2, 5))]
        for side in SIDES
    }


def _run(side: int, seed: np.random.SeedSequence) -> Arrays:
    n = side * side
    data_seed, *own = seed.spawn(1 + len(METHODS))
    data = np.random.default_rng(data_seed).choice(np.array([-1, 1], dtype=np.int8), size=(OBSERVATIONS, n))
    edges = _edges(side)
    best = optimum(edges, data)
    arrays: dict[str, Any] = {"optimum": best, "data": data}
    for method, seed in zip(METHODS, own, strict=True):
        _follow(method, edges, data, 1, seed)  # compiled
        path, steps, seconds, bias = _follow(method, edges, data, GRADIENTS, seed)
        error = np.linalg.norm(np.vstack([np.zeros(len(edges)), path]) - best, axis=1)
        arrays |= {f"{method}, error": error, f"{method}, steps": steps, f"{method}, seconds": seconds}
        arrays |= {f"{method}, bias": bias}
    return arrays


def _edges(side: int) -> list[tuple[int, int]]:
    across = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    return across + [(i, i + side) for i in range(side * (side - 1))]


def optimum(edges: list[tuple[int, int]], data: NDArray[Any]) -> NDArray[np.float64]:
    """Return the couplings with the largest likelihood in the box, by enumerating all states.

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin.experiments.mle import optimum
    >>> optimum([(0, 1)], np.array([[1, 1], [1, -1], [1, 1], [1, 1], [-1, 1]])).round(3)
    array([0.2])
    """
    one, other = np.array(edges).T
    states = np.array(list(itertools.product([-1, 1], repeat=data.shape[1])), dtype=np.int8)
    products = (states[:, one] * states[:, other]).astype(float)
    observed = (data[:, one] * data[:, other]).mean(axis=0)

    def loss(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        energies = products @ theta
        return float(logsumexp(energies) - theta @ observed), products.T @ softmax(energies) - observed

    start = np.zeros(len(edges))
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000}
    return np.asarray(minimize(loss, start, jac=True, bounds=[(-BOX, BOX)] * len(edges), options=options).x)


def _follow(
    method: str, edges: list[tuple[int, int]], data: NDArray[Any], gradients: int, seed: Any
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], float]:
    """Fit by one method; return parameters, Gibbs steps and seconds after each gradient, and a bound on the bias."""
    if method == "DoGS":
        return _follow_dogs(edges, data, gradients, seed)
    path: list[NDArray[np.float64]] = []
    is_uniform = method == "uniform"
    gibbs = db.GibbsGradient(
        "uniform" if is_uniform else "dogs", tolerance=BIAS, chains=CHAINS,
        gibbs_steps=uniform_steps(data.shape[1]) if is_uniform else None,
    )  # fmt: skip
    done = db.fit(
        edges, data, learn="edges", method=gibbs, iterations=gradients, box=BOX, initial=0.0, seed=seed,
        learning_rate="auto" if method == METHODS[3] else 1 / (4 * len(edges)),
        callback=lambda _, theta: path.append(np.array(theta)),
    )  # fmt: skip
    return np.array(path), np.cumsum(done.history.scan_length), done.history.seconds, done.bias_bound


def _follow_dogs(
    edges: list[tuple[int, int]], data: NDArray[Any], gradients: int, seed: np.random.SeedSequence
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], float]:
    """Fit as the paper does: a DoGS scan with total variation at most 0.01, chosen anew for each gradient."""
    one, other = np.array(edges).T
    n = data.shape[1]
    observed = (data[:, one] * data[:, other]).mean(axis=0)
    base = db.Scan.uniform(n, uniform_steps(n))
    theta, path, steps, seconds, begin = np.zeros(len(edges)), [], [], [], time.perf_counter()
    for own in seed.spawn(gradients):
        model = db.Ising(dict(zip(edges, theta.tolist(), strict=True)), fields=np.zeros(n))
        result = doubling_scan(db.influence(model, method="paper"), tolerance=TOLERANCE, base=base, cut=True)
        states = db.sample(model, result, chains=CHAINS, seed=own).states
        assert states is not None
        expected = (states[:, one] * states[:, other]).mean(axis=0)
        theta = np.clip(theta + (observed - expected) / (4 * len(edges)), -BOX, BOX)
        path.append(theta)
        steps.append(len(result.scan))
        seconds.append(time.perf_counter() - begin)
    return np.array(path), np.cumsum(steps), np.array(seconds), BIAS


def work_needed(run: Arrays, method: str, what: str) -> float:
    """Return the gradients, steps or seconds until the error is the uniform scan's at its end, up to noise; inf if
    never.
    """
    goal = _NOISE * run["uniform, error"][-1]
    there = np.flatnonzero(run[f"{method}, error"][1:] <= goal)
    return float(run[f"{method}, {what}"][there[0]]) if len(there) else math.inf


def findings(data: dict[int, list[Arrays]]) -> list[Finding]:
    """Compare the statements of Section 5.3 of the paper with the measurements."""
    rows = []
    for side, runs in data.items():
        fewer, faster = (
            {m: np.array([work_needed(r, "uniform", what) / work_needed(r, m, what) for r in runs]) for m in METHODS}
            for what in ("steps", "seconds")
        )
        ends = {m: float(np.mean([run[f"{m}, error"][-1] for run in runs])) for m in METHODS}
        lengths = {m: np.concatenate([np.diff(run[f"{m}, steps"], prepend=0) for run in runs]) for m in METHODS}
        rows += [
            Finding(
                f"{side}×{side}: Gibbs steps to the error of the uniform scan, within 10 %",
                "much more quickly with DoGS, consistently (Sec. 5.3)",
                f"DoGS {span(fewer['DoGS'], '×')} fewer, fit {span(fewer['fit'], '×')}",
                bool(fewer["DoGS"].min() > 2 and fewer["fit"].min() >= 4),
            ),
            Finding(
                f"{side}×{side}: seconds to that error",
                "much more quickly with DoGS, consistently (Sec. 5.3)",
                f"DoGS {span(faster['DoGS'], '×')} faster, fit {span(faster['fit'], '×')}",
                bool(faster["DoGS"].min() > 1),
                "A scan is chosen for each gradient, which takes as long as 1533 chains of models as small as these.",
            ),
            Finding(
                f"{side}×{side}: steps for a gradient",
                f"v = {uniform_steps(side * side)} for the uniform scan (Domke 2015)",
                f"DoGS {_range(lengths['DoGS'])}, fit {_range(lengths['fit'])}; bias of fit at most "
                f"{max(float(run['fit, bias']) for run in runs):.3g}",
                bool(lengths["fit"].max() < uniform_steps(side * side)),
            ),
            Finding(
                f"{side}×{side}: error after {GRADIENTS} gradients, mean of {len(runs)} runs",
                "the same level of accuracy (Sec. 5.3)",
                f"uniform {ends['uniform']:.3g}, DoGS {ends['DoGS']:.3g}, fit {ends['fit']:.3g}; with step sizes "
                f"of its own {ends[METHODS[3]]:.2g}",
                abs(ends["DoGS"] / ends["uniform"] - 1) < 0.1 and abs(ends["fit"] / ends["uniform"] - 1) < 0.1,
            ),
        ]
    return rows


def _range(values: NDArray[Any]) -> str:
    return f"{values.min()} to {values.max()}"


def draw(data: dict[int, list[Arrays]]) -> dict[str, Any]:
    """Draw errors against Gibbs steps and against time, for all runs."""
    figure, axes = panels(len(data), 2, sharey="row")
    for (left, right), (side, runs) in zip(axes, data.items(), strict=True):
        for ax, what in ((left, "steps"), (right, "seconds")):
            for k, run in enumerate(runs):
                for method in METHODS:
                    style = look(method) | {"linewidth": 1.0, "alpha": 0.8}
                    if method == "uniform":
                        style |= {"linestyle": "-"}
                    if method == METHODS[3]:
                        style |= {"color": "#56B4E9", "linestyle": "--"}
                    when = np.concatenate([[0.0], run[f"{method}, {what}"]])
                    ax.plot(when, run[f"{method}, error"], label=method if k == 0 else None, **style)
        finish(left, f"{side} × {side} Ising, {len(runs)} runs", "Gibbs steps of each chain", "distance to the optimum")
        finish(right, "the same against time", "seconds", "", legend=0)
        for ax in (left, right):
            ax.set_xlim(left=0)
    return {"mle": figure}
