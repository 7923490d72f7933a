"""How far from the best scan of its length each method is, where exhaustive search can tell: five variables, ten steps.

All bounds are plain matrices with row sums below 1, so that no clamp of the certificates acts and they equal the linear
variation V = d' b_T with b_0 = 1, which the search minimises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin._shared.compile import kernel

_VARIABLES = 5
_STEPS = 10
_RESTARTS = 50


@kernel
def least_variation(C_bar: Any, d: Any, T: int) -> float:
    """The least V of all scans of T steps, depth first; only repeating a step, which does nothing, is skipped."""
    n = d.size
    b = np.ones(n)
    order = np.full(T, -1)
    old = np.empty(T)
    least = np.inf
    t = 0
    while t >= 0:
        if order[t] >= 0:
            b[order[t]] = old[t]
        order[t] += 1
        if t > 0 and order[t] == order[t - 1]:
            order[t] += 1
        i = order[t]
        if i >= n:
            order[t] = -1
            t -= 1
            continue
        old[t] = b[i]
        total = 0.0
        for j in range(n):
            total += C_bar[i, j] * b[j]
        b[i] = total
        if t < T - 1:
            t += 1
            continue
        V = 0.0
        for j in range(n):
            V += d[j] * b[j]
        least = min(least, V)
    return least


@dataclass(frozen=True)
class Problem:
    """A model's influence, what matters in it, and randomness for the methods that use some."""

    influence: db.Influence
    targets: list[int] | None
    rng: np.random.Generator

    def optimum(self) -> float:
        """By exhaustive search."""
        d = np.ones(_VARIABLES)
        if self.targets is not None:
            d[:] = 0
            d[self.targets] = 1
        return float(least_variation(self.influence.matrix.toarray(), d, _STEPS))

    def certify(self, scan: db.Scan) -> float:
        """Variation of a scan."""
        return db.variation(self.influence, scan, targets=self.targets).value

    def dogs(self, scan: db.Scan, rounds: int | str = 1) -> float:
        """Variation after DoGS."""
        return db.optimize_scan(self.influence, scan, targets=self.targets, iterations=rounds).variation.value

    def restarts(self, rounds: int | str = 1) -> float:
        """The best of many runs of DoGS from orders drawn uniformly."""
        orders = self.rng.integers(_VARIABLES, size=(_RESTARTS, _STEPS))
        return min(self.dogs(db.Scan(order), rounds) for order in orders)

    def greedy(self) -> db.ScanResult:
        """What greedy_scan finds."""
        return db.greedy_scan(self.influence, targets=self.targets, steps=_STEPS)

    def steps_to(self, tolerance: float) -> int:
        """Length of what shortest_scan finds."""
        return len(db.shortest_scan(self.influence, targets=self.targets, tolerance=tolerance).scan)


_SYSTEMATIC = db.Scan.systematic(_VARIABLES, steps=_STEPS)
_UNIFORM = db.Scan.uniform(_VARIABLES, steps=_STEPS)

METHODS: dict[str, Callable[[Problem], float]] = {
    "uniform random scan": lambda problem: problem.certify(_UNIFORM),
    "systematic scan": lambda problem: problem.certify(_SYSTEMATIC),
    "DoGS from uniform": lambda problem: problem.dogs(_UNIFORM),
    "DoGS from systematic": lambda problem: problem.dogs(_SYSTEMATIC),
    "iterated DoGS from systematic": lambda problem: problem.dogs(_SYSTEMATIC, "converged"),
    f"best of {_RESTARTS} DoGS restarts": lambda problem: problem.restarts(),
    f"best of {_RESTARTS} iterated DoGS restarts": lambda problem: problem.restarts("converged"),
    "greedy_scan": lambda problem: problem.greedy().variation.value,
    "greedy_scan + iterated DoGS": lambda problem: problem.dogs(problem.greedy().scan, "converged"),
}
SHORTEST = f"steps of shortest_scan to the bound of the best {_STEPS}"


def distances(models: int) -> dict[str, dict[str, np.ndarray]]:
    """For each method and each kind of problem, variation over optimum, one number per model; for SHORTEST steps."""
    found: dict[str, dict[str, np.ndarray]] = {name: {} for name in [*METHODS, SHORTEST]}
    for kind, draw in {"Ising": complete_ising, "random matrix": random_matrix}.items():
        for goal, targets in {"d = 1": None, "one target": [0]}.items():
            problems = list(_problems(draw, targets, models))
            optima = np.array([problem.optimum() for problem in problems])
            column = f"{kind}, {goal}"
            for name, method in METHODS.items():
                found[name][column] = np.array([method(problem) for problem in problems]) / optima
            # A little above the optimum, because certificates are rounded up.
            pairs = zip(problems, optima * (1 + 1e-9), strict=True)
            found[SHORTEST][column] = np.array([problem.steps_to(bound) for problem, bound in pairs])
    return found


def _problems(
    draw: Callable[[np.random.Generator], db.Influence], targets: list[int] | None, models: int
) -> Iterator[Problem]:
    for seed in range(models):
        rng = np.random.default_rng(seed)
        yield Problem(draw(rng), targets, rng)


def complete_ising(rng: np.random.Generator) -> db.Influence:
    """Five spins, each coupled to all others, under Dobrushin's condition whatever is drawn."""
    theta = np.triu(rng.uniform(0, 0.25, (_VARIABLES, _VARIABLES)), 1)
    # Rebuilt from the matrix alone: the model's own bound also has caps.
    return db.Influence(db.influence(db.Ising(theta + theta.T), method="paper").matrix)


def random_matrix(rng: np.random.Generator) -> db.Influence:
    """Any entries, row sums drawn between 0.3 and 0.95."""
    entries = rng.uniform(0, 1, (_VARIABLES, _VARIABLES))
    np.fill_diagonal(entries, 0)
    sums = rng.uniform(0.3, 0.95, _VARIABLES)
    return db.Influence(entries * (sums / entries.sum(axis=1))[:, None])
