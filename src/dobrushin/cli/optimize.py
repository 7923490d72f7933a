"""`dobrushin optimize`: what each way of choosing a scan certifies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dobrushin as db
from dobrushin._shared.options import InfluenceMethod
from dobrushin._shared.text import printable
from dobrushin.cli.guard import CERTIFIED, NO_CERTIFICATE
from dobrushin.cli.output import Output, table
from dobrushin.cli.source import Source, read_targets
from dobrushin.cli.writing import check_file, check_plot

_SWEEPS = 20


def run(
    source: Source,
    target: Sequence[str],
    steps: int | None,
    tolerance: float | None,
    save: Path | None,
    plot: Path | None,
    out: Output,
) -> int:
    """Print the table, write the picture; the exit code."""
    check_file("--save", save)
    check_plot("--plot", plot)
    model = source.read_given()
    targets = read_targets(model, target)
    length = _SWEEPS * model.n_variables if steps is None else steps
    if tolerance is not None:
        results = {"best": {"shortest": db.shortest_scan(model, targets, tolerance=tolerance, max_steps=steps)}}
    else:
        methods: tuple[InfluenceMethod, ...] = ("paper", "best") if model.is_discrete else ("best",)
        results = {method: _scans(model, method, length, targets) for method in methods}
    best = min(results["best"].values(), key=lambda result: result.variation.value)
    scans = [
        {"scan": name, "bound": found.variation.value, "steps": len(found.scan), "vacuous": found.variation.is_vacuous}
        for name, found in results["best"].items()
    ]
    out.show("optimize", {"targets": targets, "scans": scans}, lambda: _table(model, results, targets))
    if save is not None:
        best.scan.save(save)
    if plot is not None:
        # The picture is the paper's where there is one.
        curves = {name: result.variation for name, result in results.get("paper", results["best"]).items()}
        axes: Any = db.plots.bounds(curves)
        axes.figure.savefig(plot, dpi=150)
    for what, written in (("Best scan", save), ("Bounds against steps", plot)):
        if written is not None:
            out.note(f"{what}: {written}")
    return NO_CERTIFICATE if best.variation.is_vacuous else CERTIFIED


def _scans(model: db.Model, method: InfluenceMethod, steps: int, targets: Any) -> dict[str, db.ScanResult]:
    influence = db.influence(model, method=method) if model.is_discrete else model
    n = model.n_variables
    uniform, systematic = db.Scan.uniform(n, steps), db.Scan.systematic(n, steps)
    greedy = db.greedy_scan(influence, targets, steps=steps)
    return {
        "uniform": db.ScanResult(uniform, db.variation(influence, uniform, targets)),
        "systematic": db.ScanResult(systematic, db.variation(influence, systematic, targets)),
        "DoGS": db.optimize(influence, systematic, targets),
        "iterated DoGS": db.optimize(influence, systematic, targets, rounds="converged"),
        "greedy, polished": db.optimize(influence, greedy, targets),
    }


def _table(model: db.Model, results: Any, targets: Any) -> Any:
    about = f"variables {', '.join(map(printable, targets))}" if targets else f"all {model.n_variables} variables"
    title = f"Certified bounds on the total variation of {about}\n{model!r}"
    if "paper" not in results:
        each = [[name, str(len(found.scan)), _bound_text(found)] for name, found in results["best"].items()]
        return table(title, ("scan", "steps", "bound"), each)
    base = results["best"]["systematic"].variation.value
    rows = []
    for name, paper in results["paper"].items():
        best = results["best"][name]
        ratio = f"{base / best.variation.value:.3g}x"
        rows.append([name, str(len(best.scan)), _bound_text(paper), _bound_text(best), ratio])
    return table(title, ("scan", "steps", "paper's influence", "best influence", "systematic / this"), rows)


def _bound_text(result: db.ScanResult) -> str:
    bound = result.variation
    return f"{bound.value:.3g}" + (" (vacuous)" if bound.is_vacuous else "")
