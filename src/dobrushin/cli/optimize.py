"""`dobrushin optimize`: what each way of choosing a scan certifies."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin.experiments.models import paper_ising


def run(steps: int, target: str, seed: int, plot: Path | None) -> int:
    """Print the table, write the picture; the exit code."""
    model = paper_ising(seed=seed)
    try:
        targets = [int(word) for word in target.split(",")] if target else None
    except ValueError:
        print(f"--target must be numbers of variables such as 0,1,2. Got {target!r}.", file=sys.stderr)
        return 2
    try:
        with warnings.catch_warnings():
            # A bound that says nothing is marked in the table.
            warnings.simplefilter("ignore", db.VacuousBoundWarning)
            results = {method: _scans(model, method, steps, targets) for method in ("paper", "best")}
        Console().print(_table(model, results, steps, targets))
        if plot is not None:
            axes: Any = db.plots.bounds(results["paper"])
            axes.figure.savefig(plot, dpi=150)
            print(f"Bounds against steps: {plot}")
    except (db.ArgumentError, ImportError, OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def _scans(model: db.Ising, method: str, steps: int, targets: Any) -> dict[str, db.Variation]:
    influence = db.influence(model, method=method)
    n = model.n_variables
    systematic = db.Scan.systematic(n, steps)
    greedy = db.greedy_scan(influence, targets, steps=steps)
    return {
        "uniform": db.variation(influence, db.Scan.uniform(n, steps), targets),
        "systematic": db.variation(influence, systematic, targets),
        "DoGS": db.optimize(influence, systematic, targets).variation,
        "iterated DoGS": db.optimize(influence, systematic, targets, rounds="converged").variation,
        "greedy, polished": db.optimize(influence, greedy, targets).variation,
    }


def _table(model: db.Ising, results: Any, steps: int, targets: Any) -> Table:
    about = f"variables {', '.join(map(str, targets))}" if targets else f"all {model.n_variables} variables"
    table = Table(
        title=f"Certified bounds on the total variation of {about} after {steps} steps\n10x10 Ising model of the paper"
    )
    table.add_column("scan")
    table.add_column("paper's influence", justify="right")
    table.add_column("best influence", justify="right")
    table.add_column("systematic / this", justify="right")
    base = results["best"]["systematic"].value
    for name, paper in results["paper"].items():
        best = results["best"][name]
        table.add_row(name, _shown(paper), _shown(best), f"{base / best.value:.3g}x")
    return table


def _shown(bound: db.Variation) -> str:
    return f"{bound.value:.3g}" + (" (vacuous)" if bound.is_vacuous else "")
