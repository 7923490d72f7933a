"""Measure which strongly coupled, wide models are certified, by which method, and how long that takes.

usage: python benchmarks/strong.py [--only PATTERN ...] [--method auto] [--tolerance 0.05] [--time-limit 30] [--list]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dobrushin as db

Pairs = list[tuple[int, int]]


class Case(NamedTuple):
    """A model, and what is asked about it."""

    make: Callable[[], Any]
    targets: Any


# -- graphs ------------------------------------------------------------------------------------


def lattice(rows: int, columns: int, periodic: bool = True) -> Pairs:
    """Edges of a square lattice."""
    return _offsets((rows, columns), [(0, 1), (1, 0)], periodic)


def triangular(side: int) -> Pairs:
    """Edges of a triangular lattice on a torus."""
    return _offsets((side, side), [(0, 1), (1, 0), (1, 1)], True)


def cubic(side: int) -> Pairs:
    """Edges of a cubic lattice on a torus."""
    return _offsets((side, side, side), [(0, 0, 1), (0, 1, 0), (1, 0, 0)], True)


def _offsets(shape: tuple[int, ...], steps: list[tuple[int, ...]], periodic: bool) -> Pairs:
    edges = []
    for place in np.ndindex(*shape):
        for step in steps:
            other = np.add(place, step)
            if periodic or (other < shape).all():
                edges.append((_number(place, shape), _number(tuple(other % shape), shape)))
    return edges


def _number(place: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(place, shape))


def regular(n: int, degree: int, seed: int) -> Pairs:
    """Edges of a random regular graph, by pairing stubs until there is no loop and no double edge."""
    rng = np.random.default_rng(seed)
    while True:
        stubs = rng.permutation(np.repeat(np.arange(n), degree)).reshape(-1, 2)
        edges = {tuple(sorted(edge)) for edge in stubs.tolist()}
        if len(edges) == n * degree // 2 and all(a != b for a, b in edges):
            return sorted(edges)
        stubs = _repaired(stubs, rng)
        edges = {tuple(sorted(edge)) for edge in stubs.tolist()}
        if len(edges) == n * degree // 2 and all(a != b for a, b in edges):
            return sorted(edges)


def _repaired(stubs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Exchange ends of loops and double edges with those of other edges."""
    for _ in range(1000):
        known: set[tuple[int, int]] = set()
        bad = []
        for k, (a, b) in enumerate(stubs.tolist()):
            edge = (min(a, b), max(a, b))
            if a == b or edge in known:
                bad.append(k)
            known.add(edge)
        if not bad:
            break
        for k in bad:
            other = int(rng.integers(len(stubs)))
            stubs[k, 1], stubs[other, 1] = stubs[other, 1], stubs[k, 1]
    return stubs


# -- models ------------------------------------------------------------------------------------


def glass(edges: Pairs, coupling: float, spread: float = 0.0, seed: int = 0) -> db.Ising:
    """Couplings of one size and random sign, with normal fields of this standard deviation."""
    rng = np.random.default_rng(seed)
    n = 1 + max(max(edge) for edge in edges)
    signs = rng.choice([-1.0, 1.0], size=len(edges))
    couplings = {edge: coupling * float(sign) for edge, sign in zip(edges, signs, strict=True)}
    return db.Ising(couplings, fields=spread * rng.normal(size=n)) if spread else db.Ising(couplings)


def gaussian_glass(edges: Pairs, spread: float, seed: int = 0) -> db.Ising:
    """Normal couplings."""
    rng = np.random.default_rng(seed)
    return db.Ising({edge: spread * float(rng.normal()) for edge in edges})


def uniform(edges: Pairs, coupling: float, spread: float = 0.0, seed: int = 0) -> db.Ising:
    """Equal couplings, with normal fields."""
    n = 1 + max(max(edge) for edge in edges)
    couplings = dict.fromkeys(edges, coupling)
    if not spread:
        return db.Ising(couplings)
    return db.Ising(couplings, fields=spread * np.random.default_rng(seed).normal(size=n))


def potts(edges: Pairs, states: int, strength: float, spread: float = 0.0, seed: int = 0) -> db.Potts:
    """A Potts model with normal unary potentials."""
    n = 1 + max(max(edge) for edge in edges)
    unary = spread * np.random.default_rng(seed).normal(size=(n, states)) if spread else None
    return db.Potts(dict.fromkeys(edges, strength), states, unary)


def hard_core(edges: Pairs, activity: float) -> db.PairwiseMRF:
    """Particles that exclude each other on neighbouring sites."""
    n = 1 + max(max(edge) for edge in edges)
    table = np.array([[0.0, 0.0], [0.0, -np.inf]])
    return db.PairwiseMRF([np.array([0.0, np.log(activity)])] * n, edges, [table] * len(edges))


def dense(n: int, strength: float, seed: int = 0) -> db.Ising:
    """Sherrington and Kirkpatrick: all pairs, couplings N(0, strength^2 / n)."""
    rng = np.random.default_rng(seed)
    scale = strength / np.sqrt(n)
    return db.Ising({(i, j): scale * float(rng.normal()) for i in range(n) for j in range(i)})


def boltzmann_machine(visible: int, hidden: int, spread: float, seed: int = 0) -> db.Ising:
    """A restricted Boltzmann machine with normal weights and biases."""
    rng = np.random.default_rng(seed)
    weights = spread * rng.normal(size=(visible, hidden))
    couplings = {(i, visible + j): float(weights[i, j]) for i in range(visible) for j in range(hidden)}
    return db.Ising(couplings, fields=0.3 * rng.normal(size=visible + hidden))


def clauses(n: int, ratio: float, weight: float, seed: int = 0) -> db.FactorGraph:
    """Random clauses of three literals; one that is violated costs `weight`, or is forbidden if that is infinite."""
    rng = np.random.default_rng(seed)
    factors = []
    for _ in range(int(ratio * n)):
        scope = rng.choice(n, size=3, replace=False)
        table = np.zeros((2, 2, 2))
        table[tuple(rng.integers(2, size=3))] = -weight
        factors.append((tuple(scope.tolist()), table))
    return db.FactorGraph(np.full(n, 2), factors)


def colouring(edges: Pairs, colours: int) -> db.PairwiseMRF:
    """Proper colourings, all alike."""
    n = 1 + max(max(edge) for edge in edges)
    table = np.where(np.eye(colours, dtype=bool), -np.inf, 0.0)
    return db.PairwiseMRF([np.zeros(colours)] * n, edges, [table] * len(edges))


PAIR, ONE = db.Joint(0, 1), [0]
T30, T40 = lattice(30, 30), lattice(40, 40)


def cases() -> dict[str, Case]:
    """All cases by name, from easy to hopeless within a kind."""
    found: dict[str, Case] = {}
    for coupling in (0.3, 0.4, 0.5, 0.7, 1.0):
        found[f"glass {coupling}"] = Case(lambda c=coupling: glass(T40, c), PAIR)
    for coupling in (0.4, 0.5, 0.8, 1.2):
        found[f"glass {coupling}, fields 0.5"] = Case(lambda c=coupling: glass(T40, c, 0.5), ONE)
    for spread in (0.5, 1.0):
        found[f"gaussian glass {spread}"] = Case(lambda s=spread: gaussian_glass(T30, s), PAIR)
    for coupling in (0.35, 0.43, 0.4407, 0.6, 1.0):
        found[f"ferromagnet {coupling}"] = Case(lambda c=coupling: uniform(T40, c), PAIR)
    for coupling in (0.4, 0.8):
        found[f"random fields {coupling}"] = Case(lambda c=coupling: uniform(T40, c, 0.8), ONE)
    found["triangular antiferromagnet 0.2"] = Case(lambda: uniform(triangular(30), -0.2), PAIR)
    found["triangular antiferromagnet 0.5"] = Case(lambda: uniform(triangular(30), -0.5), PAIR)
    found["cubic glass 0.2"] = Case(lambda: glass(cubic(10), 0.2), PAIR)
    found["cubic glass 0.5"] = Case(lambda: glass(cubic(10), 0.5), PAIR)
    found["cubic ferromagnet 0.25"] = Case(lambda: uniform(cubic(10), 0.25), PAIR)
    found["potts 3, 0.8"] = Case(lambda: potts(T30, 3, 0.8), PAIR)
    found["potts 3, 1.2"] = Case(lambda: potts(T30, 3, 1.2), PAIR)
    found["image of 4 labels, 1.0"] = Case(lambda: potts(T30, 4, 1.0, 1.0), ONE)
    found["image of 9 labels, 0.8"] = Case(lambda: potts(lattice(20, 31, False), 9, 0.8, 1.0), ONE)
    for activity in (1.0, 1.6, 3.0, 5.0):
        found[f"hard core {activity}"] = Case(lambda a=activity: hard_core(T30, a), ONE)
    for spread in (0.4, 0.6, 1.0):
        found[f"3-regular {spread}"] = Case(lambda s=spread: gaussian_glass(regular(200, 3, 1), s), PAIR)
    found["4-regular 0.6"] = Case(lambda: gaussian_glass(regular(200, 4, 1), 0.6), PAIR)
    found["hard core on 3-regular 2.0"] = Case(lambda: hard_core(regular(200, 3, 1), 2.0), ONE)
    found["dense 50, 0.5"] = Case(lambda: dense(50, 0.5), PAIR)
    found["dense 50, 1.0"] = Case(lambda: dense(50, 1.0), PAIR)
    found["dense 200, 0.2"] = Case(lambda: dense(200, 0.2), PAIR)
    found["dense 200, 0.8"] = Case(lambda: dense(200, 0.8), PAIR)
    found["boltzmann machine 40 x 20, 0.2"] = Case(lambda: boltzmann_machine(40, 20, 0.2), ONE)
    found["boltzmann machine 100 x 50, 0.1"] = Case(lambda: boltzmann_machine(100, 50, 0.1), ONE)
    found["boltzmann machine 100 x 50, 0.5"] = Case(lambda: boltzmann_machine(100, 50, 0.5), ONE)
    found["soft clauses 2.0"] = Case(lambda: clauses(100, 2.0, 1.0), ONE)
    found["soft clauses 4.2"] = Case(lambda: clauses(100, 4.2, 2.0), ONE)
    found["hard clauses 2.0"] = Case(lambda: clauses(100, 2.0, np.inf), ONE)
    found["hard clauses 3.5"] = Case(lambda: clauses(100, 3.5, np.inf), ONE)
    found["colouring 5"] = Case(lambda: colouring(T30, 5), PAIR)
    return found


# -- measurement -------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What came of a case."""

    seconds: float
    method: str
    half_width: float
    reason: str


def ask(case: Case, **how: Any) -> Outcome:
    """Ask once; errors carry what was reached."""
    model = case.make()
    begin = time.perf_counter()
    reason = ""
    try:
        found = db.estimate(model, case.targets, seed=1, **how)
    except (db.CertificateError, db.BudgetError) as error:
        found, reason = error.result, " ".join(str(error).split())
    return Outcome(time.perf_counter() - begin, found.plan.method, float(found.half_width.max()), reason)


def select(patterns: Iterable[str]) -> dict[str, Case]:
    """Return the cases whose names match some pattern, or contain it; all without patterns."""
    patterns = list(patterns)
    every = cases()
    kept = [name for name in every if not patterns or any(p in name or fnmatch(name, p) for p in patterns)]
    return {name: every[name] for name in kept}


def main() -> None:
    """Run the cases and print a line for each."""
    parser = argparse.ArgumentParser(description="Which strongly coupled models are certified.")
    parser.add_argument("--only", nargs="*", default=[], help="names, parts of names, or patterns")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--confidence", type=float, default=0.99)
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--list", action="store_true", help="print the names only")
    options = parser.parse_args()
    chosen = select(options.only)
    if options.list:
        print("\n".join(chosen))
        return
    how = {"method": options.method, "tolerance": options.tolerance, "confidence": options.confidence}
    certified = 0
    for name, case in chosen.items():
        found = ask(case, **how, time_limit=options.time_limit)
        reached = found.half_width <= options.tolerance
        certified += reached
        mark = "yes" if reached else " - "
        print(f"{mark} {name:36s} {found.seconds:7.2f} s  {found.method:12s} {found.half_width:9.2g}", flush=True)
        if not reached and found.reason:
            print(f"      {found.reason[:300]}", flush=True)
    print(f"{certified} of {len(chosen)} certified to {options.tolerance:g} at {options.confidence:g}")


if __name__ == "__main__":
    main()
