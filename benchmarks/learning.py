"""Maximum likelihood with Gibbs gradients: certified scans against the uniform scan (paper, Section 5.3).

Ising grids of 3x3 and 4x4 without fields, data of 5 vectors with independent Rademacher entries, K = 46 gradient steps,
M = 1533 chains for each gradient, start at 0, steps of 1 / (4 x number of edges), projection onto |theta| <= 0.2, no
ridge. K, M and the step are our reading of Domke (2015). The uniform scan has v = ceil(n ln(n / 0.01) /
(1 - 4 tanh 0.2)) steps for each gradient; the certified ones have what a bias of 0.02 in every coordinate takes, which
is what a total variation of 0.01 allows x_i x_j. The error is the Euclidean distance to the projected optimum, found by
enumeration of all states and L-BFGS-B.

usage: python benchmarks/learning.py [--runs 5] [--long]
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

import dobrushin as db
from measure import Row, over_draws, promises, wide_console

BOX, TOLERANCE, K, M = 0.2, 0.02, 46, 1533


def edges_of(side: int) -> list[tuple[int, int]]:
    """Pairs of neighbours of a square grid."""
    grid = db.Ising.grid(side, side, couplings=1.0)
    return [(i, int(j)) for i in range(side * side) for j in grid.neighbors(i) if i < j]


def optimum(edges: list[tuple[int, int]], data: np.ndarray) -> np.ndarray:
    """The projected maximum of the likelihood, by enumeration."""
    n = data.shape[1]
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=n)))
    i, j = np.array(edges).T
    t = states[:, i] * states[:, j]
    mean = (data[:, i] * data[:, j]).mean(axis=0)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        energy = t @ theta
        top = energy.max()
        weights = np.exp(energy - top)
        total = weights.sum()
        return top + math.log(total) - theta @ mean, weights @ t / total - mean

    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000}
    return minimize(loss, np.zeros(len(edges)), jac=True, bounds=[(-BOX, BOX)] * len(edges), options=options).x


class Run(NamedTuple):
    """Errors after each iteration, Gibbs steps of one chain until then, and the fit."""

    errors: np.ndarray
    steps: np.ndarray
    fit: db.Fit


def climb(
    edges: list[tuple[int, int]],
    data: np.ndarray,
    best: np.ndarray,
    scan: str,
    steps: int | None,
    seed: int,
    count: int,
) -> Run:
    """One fit, watched."""
    errors: list[float] = []
    method = db.GibbsGradient(scan, TOLERANCE, steps, M)
    fit = db.fit(
        edges, data, learn="edges", method=method, iterations=count,
        learning_rate=1 / (4 * len(edges)), box=BOX, seed=seed,
        callback=lambda _, theta: errors.append(float(np.linalg.norm(theta - best))),
    )  # fmt: skip
    return Run(np.array(errors), np.cumsum(fit.history.scan_length), fit)


def uniform_steps(fit: db.Fit, tolerance: float) -> int:
    """How long a uniform scan has to be for the same certificate at the parameters of a fit."""
    source = db.influence(fit.model)
    i, j = np.array([name[1:] for name in fit.names]).T
    steps = fit.model.n_variables
    while True:
        b = db.variation(source, db.Scan.uniform(fit.model.n_variables, steps), targets=[0]).per_variable
        if 2 * (b[i] + b[j]).max() <= tolerance:
            return steps
        steps += 1 + steps // 50


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description="Certified scans against the uniform scan in maximum likelihood.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--long", action="store_true", help="also ten times as many iterations, to where noise rules")
    options = parser.parse_args()
    console = wide_console()
    with console.status("measuring"):
        rows = [row for side in (3, 4) for row in _compare(side, options.runs, K)]
        if options.long:
            rows += [row for side in (3, 4) for row in _compare(side, min(options.runs, 3), 10 * K)]
    console.print(promises("Maximum likelihood with Gibbs gradients", rows))


def _compare(side: int, runs: int, iterations: int) -> Iterator[Row]:
    n, edges = side * side, edges_of(side)
    v = math.ceil(n * math.log(n / 0.01) / (1 - 4 * math.tanh(BOX)))
    data = np.random.default_rng(side).choice([-1, 1], size=(5, n))
    best = optimum(edges, data)
    for scan, steps in (("uniform", v), ("dogs", None)):
        climb(edges, data, best, scan, steps, 0, 1)  # compiles
    began = time.perf_counter()
    uniform = [climb(edges, data, best, "uniform", v, 100 + run, iterations) for run in range(runs)]
    middle = time.perf_counter()
    ours = [climb(edges, data, best, "dogs", None, 200 + run, iterations) for run in range(runs)]
    ended = time.perf_counter()

    about = f"{side}x{side}, {iterations} gradients: "
    first, second = (np.array([run.errors[-1] for run in kind]) for kind in (uniform, ours))
    start = np.linalg.norm(best)
    words = [f"{e.mean():.4f} ({e.min():.4f} to {e.max():.4f})" for e in (second, first)]
    enough = bool(second.mean() <= first.max())
    yield Row(about + "error at the end", words[0], f"uniform: {words[1]}; at the start {start:.4f}", enough)
    spent = iterations * v
    goal = first.max()
    ratios = [spent / run.steps[np.argmax(run.errors <= goal)] if (run.errors <= goal).any() else 0.0 for run in ours]
    yield over_draws(about + "fewer Gibbs steps to the error of the uniform scan", ratios, least=4.0)
    lengths = np.concatenate([run.fit.history.scan_length for run in ours])
    yield over_draws(about + "fewer Gibbs steps in all", [spent / run.steps[-1] for run in ours], least=4.0)
    chosen = np.mean([run.fit.history.is_new_scan.sum() for run in ours])
    enough = uniform_steps(ours[-1].fit, TOLERANCE)
    measured = f"{lengths.min()} to {lengths.max()}, mean {lengths.mean():.1f}; {chosen:.1f} scans chosen"
    yield Row(
        about + "steps for a gradient",
        measured,
        f"uniform: {v} (with our bound at the end: {enough})",
        bool(lengths.max() < v),
    )
    bias = [max(run.fit.bias_bound for run in kind) for kind in (ours, uniform)]
    required = f"{TOLERANCE:g} or less (uniform: {bias[1]:.1g})"
    yield Row(about + "bias of a gradient, at most", f"{bias[0]:.3g}", required, bool(bias[0] <= TOLERANCE))
    ratio = (middle - began) / (ended - middle)
    yield Row(about + "less time", f"{ratio:.1f}x", "1x or more", ratio > 1)


if __name__ == "__main__":
    main()
