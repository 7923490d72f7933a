"""The smaller verbs: inspect, influence, certify, sample, convert, warmup."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin.cli.common import (
    CERTIFIED,
    FAILED,
    NO_CERTIFICATE,
    Usage,
    make_scan,
    read_evidence,
    read_model,
    read_targets,
    show,
    table,
    wants_progress,
)


def _given(path: Path, evidence: Sequence[str], beta: float | None) -> db.Model:
    model = read_model(path, beta)
    return model.condition(read_evidence(model, evidence, path))


def inspect(path: Path, evidence: Sequence[str], beta: float | None, as_json: bool, quiet: bool) -> int:
    """What can be certified about a model."""
    found = db.diagnose(_given(path, evidence, beta))
    show(asdict(found), as_json, quiet, lambda: str(found))
    return CERTIFIED


def influence(
    path: Path, method: str, top: int, evidence: Sequence[str], beta: float | None, as_json: bool, quiet: bool
) -> int:
    """How strong the influence is, and where."""
    model = _given(path, evidence, beta)
    bound = db.influence(model, method=method)
    sums = np.asarray(bound.matrix.sum(axis=1)).ravel()
    strongest = np.argsort(-sums, kind="stable")[:top].tolist()
    about = {
        "rows": bound.norm(np.inf),
        "columns": bound.norm(1),
        "spectral_radius": bound.spectral_radius(),
        "satisfies_dobrushin": bool(bound.satisfies_dobrushin),
        "entries": bound.theorems,
        "strongest": [{"variable": str(model.labels[i]), "row_sum": float(sums[i])} for i in strongest],
    }
    holds = "holds" if bound.satisfies_dobrushin else "fails"
    title = (
        f"Influence of {model!r}: Dobrushin's condition {holds}\n"
        f"rows {about['rows']:.4g}, columns {about['columns']:.4g}, spectral radius {about['spectral_radius']:.4g}"
    )
    rows = [
        [str(model.labels[i]), f"{sums[i]:.4g}", f"{bound.caps[i]:.4g}", str(len(model.neighbors(i)))]
        for i in strongest
    ]
    show(about, as_json, quiet, lambda: table(title, ("variable", "all others", "cap", "neighbours"), rows))
    return CERTIFIED


def certify(
    path: Path, scan: str, steps: int | None, target: Sequence[str], evidence: Sequence[str], simulate: bool, runs: int,
    confidence: float, seed: int | None, plot: Path | None, beta: float | None, as_json: bool, quiet: bool,
) -> int:  # fmt: skip
    """Bound the bias of a scan."""
    model = _given(path, evidence, beta)
    targets = read_targets(model, target)
    order = make_scan(model, scan, steps, targets)
    bound: Any
    if simulate:
        progress = wants_progress(quiet, as_json)
        bound = db.coalescence(model, order, targets, confidence=confidence, runs=runs, seed=seed, progress=progress)
        about = {"kind": "coalescence", "confidence": confidence, "runs": runs, "seed": str(bound.seed)}
    else:
        bound = db.variation(model, order, targets)
        about = {"kind": "dobrushin variation"}
    about |= {"value": bound.value, "steps": len(order), "vacuous": bool(bound.is_vacuous)}
    if plot is not None:
        axes: Any = db.plots.bounds({scan: bound})
        axes.figure.savefig(plot, dpi=150)
    show(about, as_json, quiet, lambda: repr(bound))
    return NO_CERTIFICATE if bound.is_vacuous else CERTIFIED


def sample(
    path: Path, scan: str, steps: int | None, chains: int, target: Sequence[str], evidence: Sequence[str],
    seed: int | None, output: Path | None, beta: float | None, as_json: bool, quiet: bool,
) -> int:  # fmt: skip
    """Run a scan."""
    model = _given(path, evidence, beta)
    targets = read_targets(model, target)
    if output is not None and output.suffix.lower() not in (".npz", ".csv"):
        raise Usage(f"--output must end in .npz or .csv. Got {str(output)!r}.")
    order = make_scan(model, scan, steps, targets)
    keep = db.Record(targets, states=output is not None, counts=True)
    run = db.sample(model, order, chains=chains, seed=seed, record=keep, progress=wants_progress(quiet, as_json))
    if output is not None:
        if output.suffix.lower() == ".npz":
            run.save(output)
        else:
            run.to_dataframe().to_csv(output)
    shares = run.marginals()
    names = [str(label) for label in run.variables]
    about = {"chains": run.chains, "steps": run.steps, "kernel": run.kernel, "seed": str(run.seed),
             "certified": False, "marginals": dict(zip(names, shares.tolist(), strict=True))}  # fmt: skip
    title = f"{run!r}\nShares of the states, without any bound on their error: see estimate"
    rows = [[name, *(f"{share:.4g}" for share in row)] for name, row in zip(names, shares, strict=True)]
    columns = ("variable", *(f"state {k}" for k in range(shares.shape[1])))
    show(about, as_json, quiet, lambda: table(title, columns, rows))
    return CERTIFIED


def convert(path: Path, output: Path, beta: float | None, quiet: bool) -> int:
    """From one format to another."""
    model = read_model(path, beta)
    if beta is None:
        db.write(model, output)
    else:
        db.write(model, output, beta=beta)
    if not quiet:
        print(f"Wrote {model!r} to {output}.")
    return CERTIFIED


def warmup(quiet: bool) -> int:
    """Compile everything once: later runs load it from the cache."""
    import time

    begin = time.monotonic()
    spins = db.Ising.grid(3, 3, couplings=0.1, fields=0.1)
    star = db.Ising({(0, i): 0.1 for i in range(1, 10)})
    labels = db.Potts.grid(3, 3, states=3, couplings=0.1)
    tables = spins.to_factor_graph()
    order3 = db.SpinMRF({(0, 1, 2): 0.1}, fields=[0.1] * 3)
    pairs = db.PairwiseMRF([[0.0, 0.1], [0.0, 0.0, 0.3]], [(0, 1)], [np.full((2, 3), 0.1)])
    for model in (spins, star, labels, tables, order3, pairs):
        n = model.n_variables
        for scan in (db.Scan.systematic(n, 30 * n), db.Scan.uniform(n, n)):
            for chains in (1, 100):
                db.sample(model, scan, chains=chains, seed=1, record="counts")
        db.optimize(model, db.Scan.systematic(n, 10))
        db.greedy_scan(model, [model.labels[0]], steps=4)
        db.shortest_scan(model, [model.labels[0]], tolerance=0.1)
        db.coalescence(model, db.Scan.systematic(n, n), runs=64)
        for method in ("exact", "dobrushin", "coalescence"):
            db.estimate(model, [model.labels[0]], tolerance=0.2, method=method, seed=1)
    if not all(result.ok for result in db.self_check(chains=20_000)):
        print("Error: the sampler gives wrong frequencies on this machine.", file=sys.stderr)
        return FAILED
    if not quiet:
        print(f"Compiled everything in {time.monotonic() - begin:.0f} s.")
    return CERTIFIED
