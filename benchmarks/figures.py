"""How good the scans are: the paper's experiments and this library's answers to them."""

from __future__ import annotations

from typing import Any

import numpy as np

import dobrushin as db
from dobrushin.experiments.scans import doubling_scan
from measure import Row, over_draws, random_ising


def potts_rectangle() -> list[Row]:
    """Shortest scan for the central rectangle of the segmentation model, no worse than one systematic sweep."""
    influence = db.influence(db.Potts.grid(20, 31, states=9, couplings=0.48), method="paper")
    targets = [31 * row + column for row in range(6, 14) for column in range(9, 21)]
    sweep = db.Scan.systematic(620, steps=620)
    tolerance = db.variation(influence, sweep, targets=targets).value
    doubled = len(doubling_scan(influence, targets=targets, tolerance=tolerance, base=sweep, cut=True).scan)
    shortest = len(db.shortest_scan(influence, targets=targets, tolerance=tolerance).scan)
    name = "Potts 20x31, central rectangle"
    return [
        Row(f"{name}: variation of a systematic sweep", f"{tolerance:.3f}", "85.467", round(tolerance, 3) == 85.467),
        Row(f"{name}: doubling and suffix cut", f"{doubled} steps", "110 steps", doubled == 110),
        Row(f"{name}: shortest_scan", f"{shortest} steps", "109 steps or fewer", shortest <= 109),
    ]


def ising_all_variables(draws: int) -> list[Row]:
    """DoGS for all variables at a fixed length, over independent draws of the model."""
    by_dogs, by_iterating, greedy_to_iterated = [], [], []
    for seed in range(draws):
        influence = db.influence(random_ising(10, seed, with_fields=True), method="paper")
        scan = db.Scan.systematic(100, steps=2000)
        systematic = db.variation(influence, scan).value
        dogs = db.optimize_scan(influence, scan).variation.value
        iterated = db.optimize_scan(influence, scan, iterations="converged").variation.value
        polished = db.optimize_scan(influence, db.greedy_scan(influence, steps=2000)).variation.value
        by_dogs.append(systematic / dogs)
        by_iterating.append(dogs / iterated)
        greedy_to_iterated.append(polished / iterated)
    name = "Ising 10x10, T = 2000, d = 1"
    return [
        over_draws(f"{name}: systematic / DoGS", by_dogs, least=30),
        over_draws(f"{name}: DoGS / iterated DoGS", by_iterating, least=5),
        over_draws(f"{name}: (greedy + 1 polish) / iterated DoGS", greedy_to_iterated, most=1.25),
    ]


def ising_corner(draws: int) -> list[Row]:
    """Shortest scan for one corner, no worse than 190 000 systematic steps."""
    doubled, shortest = [], []
    for seed in range(draws):
        influence = db.influence(random_ising(300, seed), method="paper")
        scan = db.Scan.systematic(90_000, steps=190_000)
        tolerance = db.variation(influence, scan, targets=[0]).value
        doubled.append(len(doubling_scan(influence, targets=[0], tolerance=tolerance, base=scan).scan))
        shortest.append(len(db.shortest_scan(influence, targets=[0], tolerance=tolerance).scan))
    name = "Ising 300x300, one corner"
    return [
        Row(f"{name}: doubling", f"{_listed(doubled)} steps", "16 steps", all(steps == 16 for steps in doubled)),
        Row(f"{name}: shortest_scan", f"{_listed(shortest)} steps", "12 steps or fewer", max(shortest) <= 12),
    ]


def torus_site() -> list[Row]:
    """Bound for one site of a torus at a fixed length."""
    torus = db.Ising.grid(40, 40, couplings=0.25, periodic=True)
    scan = db.Scan.systematic(1600, steps=16_000)
    paper, exact = (db.influence(torus, method=method) for method in ("paper", "exact"))
    bounds = {
        ("DoGS, paper bound", "0.158"): db.optimize_scan(paper, scan, targets=[0]),
        ("DoGS, exact influence", "0.0023"): db.optimize_scan(exact, scan, targets=[0]),
        ("greedy_scan, exact influence", "0.0020"): db.greedy_scan(exact, targets=[0], steps=16_000),
    }
    return [_at_most(f"Torus 40x40, one site: {name}", found, limit) for (name, limit), found in bounds.items()]


def _at_most(name: str, found: db.ScanResult, limit: str) -> Row:
    """The bound, rounded to the digits of the limit, is at most the limit."""
    digits = len(limit.partition(".")[2])
    value = found.variation.value
    return Row(name, f"{value:.4g}", f"{limit} or less", bool(np.round(value, digits) <= float(limit)))


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values))
