"""Experiment: bounds against steps on a 10 x 10 Ising model, for all variables (paper, Section 5.1, Figure 1,
appendix).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

import dobrushin as db
from dobrushin.experiments.catalog import Arrays, Finding, Part, Store, span
from dobrushin.experiments.drawing import draw_guarantees, panels
from dobrushin.experiments.scans import guarantees, paper_ising

# Steps. The paper gives no lengths in words: two orders of magnitude are reached between 2000 and 3000 steps.
BUDGETS = (100, 200, 500, 1000, 1500, 2000, 2500, 3000)
BOUNDS: dict[Literal["paper", "exact"], str] = {"paper": "Theorem 5", "exact": "exact influence"}


def compute(store: Store) -> list[dict[str, Arrays]]:
    """Bound the bias of all scans, for each replicate and each kind of influence bound.

    Parameters
    ----------
    store : Store
        Ten replicates; three if quick.

    Returns
    -------
    list of dicts from "paper" and "exact" to arrays
    """
    first = store.seed
    replicates = range(first, first + store.pick(3, 10))
    keys = [(seed, method) for seed in replicates for method in BOUNDS]
    parts = [Part(f"replicate-{seed}-{method}", _replicate, (seed, method), {"budgets": BUDGETS})
             for seed, method in keys]  # fmt: skip
    results = dict(zip(keys, store.parts(parts), strict=True))
    return [{method: results[seed, method] for method in BOUNDS} for seed in replicates]


def _replicate(seed: int, method: Literal["paper", "exact"]) -> Arrays:
    return guarantees(db.influence(paper_ising(seed=seed), method=method), BUDGETS)


def findings(data: list[dict[str, Arrays]]) -> list[Finding]:
    """Compare the paper's statements on Figure 1 with these replicates."""
    paper = [replicate["paper"] for replicate in data]
    last = BUDGETS[-1]
    early = [_first_not_worse(replicate["paper"]) for replicate in data]
    by_dogs = np.array([replicate["systematic"] / replicate["DoGS"] for replicate in paper])
    by_iterating = np.array([replicate["DoGS"] / replicate["iterated DoGS"] for replicate in paper])
    by_greedy = np.array([replicate["iterated DoGS"] / replicate["greedy + 1 round"] for replicate in paper])
    typical = np.median(by_dogs, axis=0)
    share = np.median([1 - (r["DoGS"] - r["iterated DoGS"])[-1] / (r["systematic"] - r["iterated DoGS"])[-1]
                       for r in paper])  # fmt: skip
    logs = float(np.median(np.log(by_dogs[:, -1]) / np.log(by_dogs[:, -1] * by_iterating[:, -1])))
    sharper = np.array([r["paper"]["DoGS"][-1] / r["exact"]["DoGS"][-1] for r in data])
    return [
        Finding(
            "systematic against uniform",
            "systematic is significantly better for all T (Sec. 5.1)",
            f"better from step {max(early)} on; {span([r['uniform'][-1] / r['systematic'][-1] for r in paper], '×')} "
            f"at T = {last}",
            max(early) <= 100,
        ),
        Finding(
            "DoGS against systematic",
            "two orders of magnitude (Sec. 5.1)",
            "median factor " + ", ".join(f"{f:.3g} at T = {t}" for f, t in zip(typical[3:], BUDGETS[3:], strict=True)),
            bool(np.log10(typical.max()) > 1.5),  # to the nearest order
        ),
        Finding(
            "iterated DoGS",
            "additional improvement (Sec. 5.1)",
            f"{span(by_iterating[:, -1], '×')} below DoGS at T = {last}",
            bool((by_iterating >= 1 - 1e-9).all()),
        ),
        Finding(
            "bulk of the improvement by one run",
            "consistently (Sec. 5.1)",
            f"{share:.1%} of the fall of the bound, but {logs:.0%} of it in orders of magnitude, at T = {last}",
            logs > 0.75,
            "One run takes off almost all of the bound itself; on the logarithmic axis of the figure iterating gives "
            "as much again, the more the longer the scan.",
        ),
        Finding(
            "greedy + 1 round of DoGS",
            "-",
            f"iterated DoGS / greedy + 1 round {span(by_greedy[:, -1], '×')} at T = {last}",
            bool(np.median(by_greedy[:, -1]) > 1),
        ),
        Finding(
            "exact influence",
            "mentioned, not used (Sec. 4.1)",
            f"DoGS bound {span(sharper, '×')} smaller at T = {last}: fields and unequal couplings leave little to gain",
            bool((sharper >= 1).all()),
        ),
    ]


def draw(data: list[dict[str, Arrays]]) -> dict[str, Any]:
    """Draw one replicate with both influence bounds, and all replicates with the paper's."""
    figure, axes = panels(1, 2, sharey=True)
    for ax, (method, title) in zip(axes[0], BOUNDS.items(), strict=True):
        draw_guarantees(ax, data[0][method], f"10 × 10 Ising, {title}")
    rows = -(-len(data) // 5)
    every, grid = panels(rows, min(5, len(data)), width=2.45, height=3.2, sharex=True, sharey=True)
    for k, ax in enumerate(grid.ravel()):
        if k < len(data):
            draw_guarantees(ax, data[k]["paper"], f"replicate {k + 1}", compact=True)
        else:
            ax.set_axis_off()
    return {"ising-tv": figure, "ising-tv-replicates": every}


def _first_not_worse(data: Arrays) -> int:
    """Return the number of steps from which on the systematic scan has the smaller bound."""
    worse = np.flatnonzero(data["systematic, along"] > data["uniform, along"])
    return int(data["along"][worse[-1] + 1]) if len(worse) else 0
