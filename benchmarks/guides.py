"""Measure which spectral radius the influence should be scaled to when it chooses scans past Dobrushin's condition.

usage: python benchmarks/guides.py [--quick]

For each model and radius: the share of runs in which the targets have not settled after a greedy scan of a given
length, and after a systematic one. The last lines say how far each radius is from the best one, over all models.
"""

from __future__ import annotations

import argparse
import warnings

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin._optimize import guide

_RADII = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)


def models() -> dict[str, tuple[db.Model, list[int], int]]:
    """Name: model, targets, steps."""
    rng = np.random.default_rng(1)
    edges = 2 * 30 * 29
    random_graph = nx.random_regular_graph(4, 900, seed=1)
    return {
        "torus 0.30": (db.Ising.grid(40, 40, couplings=0.30, periodic=True), [0], 16_000),
        "torus 0.35": (db.Ising.grid(40, 40, couplings=0.35, periodic=True), [0], 16_000),
        "torus 0.40": (db.Ising.grid(40, 40, couplings=0.40, periodic=True), [0], 16_000),
        "torus 0.35, two far": (db.Ising.grid(40, 40, couplings=0.35, periodic=True), [0, 820], 16_000),
        "grid U[0, 0.7]": (db.Ising.grid(30, 30, couplings=rng.uniform(0, 0.7, edges)), [450], 9_000),
        "glass +-0.4": (db.Ising.grid(30, 30, couplings=rng.choice([-0.4, 0.4], edges)), [450], 9_000),
        "grid 0.5, fields": (db.Ising.grid(30, 30, couplings=0.5, fields=rng.normal(size=(30, 30))), [450], 9_000),
        "regular graph 0.28": (db.Ising(dict.fromkeys(random_graph.edges, 0.28)), [0], 9_000),
        "Potts 3, 0.5": (db.Potts.grid(20, 20, states=3, couplings=0.5), [210], 4_000),
        "all of torus 0.30": (db.Ising.grid(20, 20, couplings=0.30, periodic=True), list(range(400)), 16_000),
    }


def failures(model: db.Model, scan: db.Scan, targets: list[int], runs: int) -> float:
    """Share of runs in which a target (on average over the targets) is not settled."""
    proof = db.coalescence(model, scan, targets, runs=runs, seed=1)
    if len(targets) > 2:
        return float(np.mean(proof.per_variable))
    return proof.failures / runs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the scale of guided scans.")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    runs = 1_000 if parser.parse_args().quick else 20_000
    warnings.simplefilter("ignore", db.VacuousBoundWarning)
    table = Table("model", "radius of the influence", "systematic", *(f"{radius:g}" for radius in _RADII))
    ratios = []
    for name, (model, targets, steps) in models().items():
        count = min(runs, 1_000) if isinstance(model, db.Potts) else runs
        bound = db.influence(model)
        systematic = failures(model, db.Scan.systematic(model.n_variables, steps), targets, count)
        shares = []
        for radius in _RADII:
            guide.RADIUS = radius
            shares.append(failures(model, db.greedy_scan(bound, targets, steps=steps).scan, targets, count))
        ratios.append((np.array(shares) + 1 / count) / (min(shares) + 1 / count))
        table.add_row(name, f"{bound.spectral_radius():.3f}", f"{systematic:.4f}", *(f"{s:.4f}" for s in shares))
    mean = np.exp(np.log(np.array(ratios)).mean(axis=0))
    table.add_row("times the best, geometric mean", "", "", *(f"{ratio:.2f}" for ratio in mean))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
