"""The verbs but for estimate and reproduce: what each prints and writes, and its exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.text import Text

import dobrushin as db
from dobrushin._shared.call import stage
from dobrushin._shared.environment import require
from dobrushin._shared.text import printable, rounded_up
from dobrushin.cli.guard import CERTIFIED, FAILED, NO_CERTIFICATE, Usage
from dobrushin.cli.output import Output, check_file, check_model, check_plot, rehearse_model, table, write_table
from dobrushin.cli.source import ScanChoice, Source, read_targets
from dobrushin.typing import InfluenceMethod

# Length of the scans that optimize compares, if none is given.
_SWEEPS = 20


def inspect(source: Source, out: Output) -> int:
    """Print what can be certified about a model."""
    model = source.read_given()
    diagnosis = db.diagnose(model)
    out.show("inspect", {"fingerprint": model.fingerprint, **diagnosis.to_dict()}, lambda: Text(str(diagnosis)))
    return CERTIFIED


def influence(source: Source, method: str, top: int, out: Output) -> int:
    """Print how strong the influence is, and where."""
    model = source.read_given()
    bound = db.influence(model, method=cast(InfluenceMethod, method))
    sums = np.asarray(bound.matrix.sum(axis=1)).ravel()
    strongest = np.argsort(-sums, kind="stable")[:top].tolist()
    about: dict[str, Any] = {
        "rows": bound.norm(np.inf),
        "columns": bound.norm(1),
        "spectral_radius": bound.spectral_radius(),
        "satisfies_dobrushin": bool(bound.satisfies_dobrushin),
        "entries": bound.theorems,
        "strongest": [{"variable": model.labels[i], "row_sum": sums[i]} for i in strongest],
    }
    holds = "holds" if bound.satisfies_dobrushin else "fails"
    title = (
        f"Influence of {model!r}: Dobrushin's condition {holds}\n"
        f"rows {rounded_up(about['rows'], 4)}, columns {rounded_up(about['columns'], 4)}, "
        f"spectral radius {about['spectral_radius']:.4g}"
    )
    rows = [
        [str(model.labels[i]), rounded_up(sums[i], 4), rounded_up(bound.caps[i], 4), str(len(model.neighbors(i)))]
        for i in strongest
    ]
    out.show("influence", about, lambda: table(title, ("variable", "all others", "cap", "neighbours"), rows))
    return CERTIFIED


def certify(
    source: Source,
    choice: ScanChoice,
    target: Sequence[str],
    simulation: dict[str, Any] | None,
    plot: Path | None,
    out: Output,
) -> int:
    """Bound the bias of a scan: by Dobrushin's theorem, or by simulation with these options of `coalescence`."""
    check_plot("--plot", plot)
    model = source.read_given()
    targets = read_targets(model, target)
    scan = choice.make(model, targets)
    bound: Any
    about: dict[str, Any]
    failure: BaseException | None = None
    if simulation is not None:
        try:
            bound = db.coalescence(model, scan, targets, **simulation)
        except (db.Interrupted, db.WorkerError) as error:
            bound, failure = error.result, error
        about = {"confidence": bound.confidence, "runs": bound.runs, "seed": bound.seed}
        about |= {"stopped_early": bound.stopped_early, "kind": "coalescence"}
    else:
        bound = db.variation(model, scan, targets)
        about = {"confidence": 1.0, "runs": None, "seed": None, "stopped_early": False, "kind": "dobrushin variation"}
    about |= {"value": bound.value, "steps": len(scan), "vacuous": bool(bound.is_vacuous)}
    out.show("certify", about, lambda: Text(repr(bound)))
    if plot is not None:
        axes: Any = db.plots.bounds({choice.name: bound})
        axes.figure.savefig(plot, dpi=150)
    if failure is not None:
        raise failure
    return NO_CERTIFICATE if bound.is_vacuous else CERTIFIED


def sample(
    source: Source, choice: ScanChoice, target: Sequence[str], output: Path | None, out: Output, **options: Any
) -> int:
    """Run a scan."""
    check_file("--output", output, endings=(".npz", ".csv"))
    model = source.read_given()
    targets = read_targets(model, target)
    is_discrete = model._is_discrete
    keep = db.Record(targets, states=output is not None or not is_discrete, counts=is_discrete)
    failure: BaseException | None = None
    try:
        run = db.sample(model, choice.make(model, targets), record=keep, **options)
    except db.Interrupted as interruption:
        run, failure = interruption.result, interruption
    if not run.chains:
        raise failure or db.BudgetError("A chain", options["time_limit"], options["time_limit"], "seconds or more", "")
    rows, what = _shares(run, model) if is_discrete else _moments(run)
    about = {"chains": run.chains, "steps": run.steps, "kernel": run.kernel, "seed": run.seed, "certified": False}
    title = f"{run!r}\n{what}, without any bound on their error: see estimate"
    texts = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row.values()] for row in rows]
    out.show("sample", {**about, "rows": rows}, lambda: table(title, list(rows[0]), texts))
    if output is not None:
        _write_states(run, output)
    if failure is not None:
        raise failure
    return CERTIFIED


def _shares(run: db.Samples, model: db.Model) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each variable and state."""
    rows = []
    for label, shares in zip(run.variables, run.marginals().tolist(), strict=True):
        called = model._called(model.index(label))
        rows += [{"variable": label, "state": name, "share": x} for name, x in zip(called, shares, strict=False)]
    return rows, "Shares of the states"


def _moments(run: db.Samples) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each variable of a field."""
    states: Any = run.states
    numbers = zip(run.variables, states.mean(axis=0).tolist(), states.std(axis=0).tolist(), strict=True)
    return [{"variable": label, "mean": m, "deviation": d} for label, m, d in numbers], "Means and standard deviations"


def _write_states(run: db.Samples, output: Path) -> None:
    """Write the states of the chains: the whole run, or a table of the last states by their names."""
    if output.suffix.lower() == ".npz":
        run.save(output)
        return
    columns = [run._called(k) for k in range(len(run.variables))]
    rows = ((chain, 0, *states) for chain, states in enumerate(zip(*columns, strict=True)))
    write_table(output, ("chain", "draw", *run.variables), rows)


def convert(source: Source, output: Path, out: Output) -> int:
    """Write a model in another format."""
    check_model("OUTPUT", output)
    model = source.read()
    if source.beta is None:
        db.write(model, output)
    else:
        db.write(model, output, beta=source.beta)
    out.note(f"Wrote {model!r} to {output}.")
    if lost := db.io.lost_names(model, output):
        kinds = ", ".join(f"{kind.extensions[0]}" for kind in db.io.FORMATS.values() if "states" in kind.keeps)
        out.warn(f"Warning: {output.name} does not keep the {lost} ({kinds} files do).")
    return CERTIFIED


def warmup(out: Output) -> int:
    """Compile everything once: later runs load it from the cache."""
    from dobrushin._shared.compile import compile_always

    compile_always()
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
        db.optimize_scan(model, db.Scan.systematic(n, 10))
        db.greedy_scan(model, [model.labels[0]], steps=4)
        db.shortest_scan(model, [model.labels[0]], tolerance=0.1)
        db.coalescence(model, db.Scan.systematic(n, n), runs=64)
        for method in ("exact", "local", "dobrushin", "coalescence"):
            db.estimate(model, [model.labels[0]], tolerance=0.2, method=method, seed=1)
    if not all(result.ok for result in db.self_check(chains=20_000)):
        print("Error: the sampler gives wrong frequencies on this machine.", file=sys.stderr)
        return FAILED
    out.note(f"Compiled everything in {time.monotonic() - begin:.0f} s.")
    return CERTIFIED


def verify(proof: Path, model: Path | None, replay: str | None, limits: tuple[float, float], out: Output) -> int:
    """Check a proof, within limits of seconds and bytes."""
    from dobrushin.verify import verify_proof as check

    if replay is not None and replay != "all" and not (replay.isdecimal() and int(replay) > 0):
        raise Usage(f"--replay must be 'all' or how many blocks. Got {replay!r}.")
    with stage("checking the proof"):
        verdict = check(proof, model, replay if replay in (None, "all") else int(replay), *limits)
    about = {"verdict": verdict.verdict, "reason": verdict.reason, "claim": list(verdict.claim)}
    about |= {"checked": list(verdict.checked), "assumed": list(verdict.assumptions)}
    out.show("verify", about, lambda: Text(str(verdict)))
    return verdict.exit_code


def optimize(
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
        methods: tuple[InfluenceMethod, ...] = ("paper", "best") if model._is_discrete else ("best",)
        results = {method: _scans(model, method, length, targets) for method in methods}
    best = min(results["best"].values(), key=lambda result: result.variation.value)
    scans = [
        {"scan": name, "bound": found.variation.value, "steps": len(found.scan), "vacuous": found.variation.is_vacuous}
        for name, found in results["best"].items()
    ]
    out.show("optimize", {"targets": targets, "scans": scans}, lambda: _bounds_table(model, results, targets))
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
    influence = db.influence(model, method=method) if model._is_discrete else model
    n = model.n_variables
    uniform, systematic = db.Scan.uniform(n, steps), db.Scan.systematic(n, steps)
    greedy = db.greedy_scan(influence, targets, steps=steps)
    return {
        "uniform": db.ScanResult(uniform, db.variation(influence, uniform, targets)),
        "systematic": db.ScanResult(systematic, db.variation(influence, systematic, targets)),
        "DoGS": db.optimize_scan(influence, systematic, targets),
        "iterated DoGS": db.optimize_scan(influence, systematic, targets, iterations="converged"),
        "greedy, polished": db.optimize_scan(influence, greedy, targets),
    }


def _bounds_table(model: db.Model, results: Any, targets: Any) -> Any:
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
    return rounded_up(bound.value) + (" (vacuous)" if bound.is_vacuous else "")


def fit(
    source: Source, data: Path, output: Path | None, out: Output, method: Any, gibbs: dict[str, Any], **options: Any
) -> int:
    """Fit, print, and write the fitted model."""
    gradient = db.GibbsGradient(**gibbs)
    options["method"] = gradient if method == "gibbs" else method
    check_model("--output", output)
    model = source.read()
    rehearse_model(output, model)
    failure: BaseException | None = None
    try:
        fitted = db.fit(model, _read_data(data), **options)
    except db.Interrupted as interruption:
        fitted, failure = interruption.result, interruption
    certified = fitted.bias_bound is not None and bool(np.isfinite(fitted.bias_bound))
    about = {
        "parameters": fitted.parameters,
        "certified": certified,
        "bias_bound": fitted.bias_bound,
        "converged": bool(fitted.converged),
        "seed": fitted.seed,
    }
    out.show("fit", about, lambda: Text(str(fitted)))
    if output is not None:
        db.write(fitted.model, output)
        out.note(f"Wrote {output}.")
    if failure is not None:
        raise failure
    return CERTIFIED if certified else NO_CERTIFICATE


def _read_data(path: Path) -> Any:
    """Read observations: a .csv file whose first line names the variables, or a .npy array."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)
    if suffix != ".csv":
        raise Usage(f"DATA must be a .csv or .npy file. Got {str(path)!r}.")
    frame = require("pandas", "formats").read_csv(path)
    names = [int(name) if str(name).isdecimal() else name for name in frame.columns]
    return frame.set_axis(names, axis=1)
