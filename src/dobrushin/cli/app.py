"""The verbs of the command line: what each prints and writes, and its exit code."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.text import Text

import dobrushin as db
from dobrushin._shared.call import stage
from dobrushin._shared.environment import require
from dobrushin._shared.text import in_full, interval_texts, percent, printable, rounded_up
from dobrushin.cli import completion
from dobrushin.cli import options as opt
from dobrushin.cli.estimate import estimate
from dobrushin.cli.output import (
    CERTIFIED,
    FAILED,
    NO_CERTIFICATE,
    Output,
    Usage,
    check_file,
    check_model,
    check_plot,
    table,
    write_table,
)
from dobrushin.cli.reproduce import reproduce
from dobrushin.cli.source import read_evidence, read_given, read_model, read_scan, read_targets
from dobrushin.typing import InfluenceMethod

__all__ = ["app", "estimate", "reproduce"]
app = opt.app
# Length of the scans that optimize compares, if none is given.
_USUAL_SWEEPS = 20


@opt.verb("verify answer.proof model.uai")
def verify(
    proof: Annotated[Path, typer.Argument(help="A file that `estimate --proof` wrote.", metavar="PROOF")],
    model: Annotated[
        Path | None,
        typer.Argument(help="A model file or a folder to compare the factors with.", metavar="MODEL"),
    ] = None,
    replay: Annotated[
        str | None, opt.word("REPLAY", "How many blocks of chains to draw again: all or a number.")
    ] = None,
    time_limit: Annotated[float, opt.number("Seconds that the check may take, by its own estimate.")] = 60.0,
    memory_limit: Annotated[float, opt.number("Bytes that the check may take.")] = 2.0**30,
    beta: opt.Beta = None,
    *,
    out: Output,
) -> int:
    """Check a proof, without the library that wrote it.

    Exit code 3: the claim holds if unchecked numbers in the file are right, such as counts of chains that were not
    drawn again. 4: the proof was not checked, or not compared with the model file.
    """
    if replay is not None and replay != "all" and not (replay.isdecimal() and int(replay) > 0):
        raise Usage(f"--replay must be 'all' or a number of blocks of chains. Got {replay!r}.")
    for option, limit, unit in (("--time-limit", time_limit, "seconds"), ("--memory-limit", memory_limit, "bytes")):
        if not limit > 0.0:
            raise Usage(f"{option} must be a positive number of {unit}. Got {in_full(limit)}.")
    blocks = replay if replay in (None, "all") else int(replay)
    with stage("checking the proof"):
        verdict = db.verify_proof(proof, model, blocks, time_limit, memory_limit, 1.0 if beta is None else beta)
    about = {"verdict": verdict.verdict, "reason": verdict.reason, "claim": list(verdict.claim)}
    about |= {"checked": list(verdict.checked), "assumed": list(verdict.assumptions)}
    out.show("verify", about, lambda: Text(str(verdict)))
    return verdict.exit_code


@opt.verb("inspect model.uai --evidence model.uai.evid")
def inspect(model: opt.Model, evidence: opt.Evidence = None, beta: opt.Beta = None, *, out: Output) -> int:
    """Say what can be certified about a model, at what cost, and what to try."""
    given = read_given(model, evidence, beta)
    diagnosis = db.diagnose(given)
    out.show("inspect", {"fingerprint": given.fingerprint, **diagnosis.to_dict()}, lambda: Text(str(diagnosis)))
    return CERTIFIED


@opt.verb("evidence asia.bif --evidence xray=yes,dysp=yes")
def evidence(
    model: opt.Model,
    evidence: opt.Evidence = None,
    tolerance: Annotated[float, opt.number("Largest relative error of the probability.")] = 0.01,
    confidence: opt.Confidence = 0.99,
    method: Annotated[str, opt.word("METHOD", "auto, exact, chain or weights.", completion.PARTITIONS)] = "auto",
    seed: opt.Seed = None,
    time_limit: opt.Time = None,
    output: Annotated[Path | None, opt.file("Write log10 of the partition function to a UAI file (.PR).")] = None,
    beta: opt.Beta = None,
    *,
    out: Output,
) -> int:
    """Bound the probability of observations; without any, bound the partition function."""
    import math

    check_file("--output", output, endings=(".pr",))
    asked = read_model(model, beta)
    given = read_evidence(asked, model, evidence)
    options: Any = {"tolerance": tolerance, "confidence": confidence, "seed": seed, "time_limit": time_limit}
    options["method"] = method
    if output is not None or not given:
        found = db.log_partition(asked, evidence=given, **options)
        name, is_shown = "Z(evidence)" if given else "Z", False
    else:
        found = db.log_evidence(asked, given, **options)
        name, is_shown = "P(evidence)", found.lower > math.log(sys.float_info.min)
    about = {"quantity": f"log {name}", "value": found.value, "lower": found.lower, "upper": found.upper}
    about |= {"method": found.method, "confidence": found.confidence}
    shown = (found.value, found.lower, found.upper)
    value, low, high = interval_texts(*((min(1.0, math.exp(end)) for end in shown) if is_shown else shown))
    chance = "for certain" if found.confidence == 1.0 else f"with {percent(found.confidence)} confidence"
    line = f"{'' if is_shown else 'log '}{name} = {value}, between {low} and {high} {chance} (method {found.method})"
    out.show("evidence", about, lambda: line)
    if output is not None:
        output.write_text(f"PR\n{found.value / math.log(10.0)!r}\n")
        out.note(f"Wrote {output}.")
    return CERTIFIED


@opt.verb("influence model.uai --top 5")
def influence(
    model: opt.Model,
    method: Annotated[str, opt.word("METHOD", "best, paper or exact.", completion.INFLUENCES)] = "best",
    top: Annotated[int, opt.whole("How many of the strongest variables to list.")] = 10,
    evidence: opt.Evidence = None,
    beta: opt.Beta = None,
    *,
    out: Output,
) -> int:
    """Bound how strongly the variables of a model influence each other."""
    import numpy as np

    given = read_given(model, evidence, beta)
    bound = db.influence(given, method=cast(InfluenceMethod, method))
    sums = np.asarray(bound.matrix.sum(axis=1)).ravel()
    strongest = np.argsort(-sums, kind="stable")[:top].tolist()
    about: dict[str, Any] = {
        "rows": bound.norm(np.inf),
        "columns": bound.norm(1),
        "spectral_radius": bound.spectral_radius(),
        "satisfies_dobrushin": bool(bound.satisfies_dobrushin),
        "entries": bound.theorems,
        "strongest": [{"variable": given.labels[i], "row_sum": sums[i]} for i in strongest],
    }
    holds = "holds" if bound.satisfies_dobrushin else "fails"
    title = (
        f"Influence of {given!r}: Dobrushin's condition {holds}\n"
        f"rows {rounded_up(about['rows'], 4)}, columns {rounded_up(about['columns'], 4)}, "
        f"spectral radius {about['spectral_radius']:.4g}"
    )
    rows = [
        [str(given.labels[i]), rounded_up(sums[i], 4), rounded_up(bound.caps[i], 4), str(len(given.neighbors(i)))]
        for i in strongest
    ]
    out.show("influence", about, lambda: table(title, ("variable", "all others", "cap", "neighbours"), rows))
    return CERTIFIED


@opt.verb("certify model.uai --scan systematic --steps 2000 --target 0")
def certify(
    model: opt.Model,
    scan: opt.ScanName = "systematic",
    steps: opt.Steps = None,
    target: opt.Target = None,
    evidence: opt.Evidence = None,
    coalescence: Annotated[
        bool, typer.Option("--coalescence", help="Bound by simulation, which also works for strong couplings.")
    ] = False,
    runs: Annotated[int, opt.whole("Simulated runs.")] = 10_000,
    confidence: opt.Confidence = 0.999,
    seed: opt.Seed = None,
    time_limit: opt.Time = None,
    checkpoint: opt.Checkpoint = None,
    plot: Annotated[Path | None, opt.file("Draw the bound against the steps.")] = None,
    beta: opt.Beta = None,
    *,
    out: Output,
) -> int:
    """Bound the bias of Gibbs sampling with a scan, before sampling."""
    check_plot("--plot", plot)
    given = read_given(model, evidence, beta)
    targets = read_targets(given, target)
    order = read_scan(scan, given, targets, steps)
    bound: Any
    about: dict[str, Any]
    if coalescence:
        options: dict[str, Any] = {"confidence": confidence, "runs": runs, "seed": seed, "time_limit": time_limit}
        run = db.RunOptions(checkpoint=checkpoint)
        bound = out.reach(lambda: db.coalescence(given, order, targets, **options, run=run))
        about = {"confidence": bound.confidence, "runs": bound.runs, "seed": bound.seed}
        about |= {"stopped_early": bound.stopped_early, "kind": "coalescence"}
    else:
        bound = db.variation(given, order, targets)
        about = {"confidence": 1.0, "runs": None, "seed": None, "stopped_early": False, "kind": "dobrushin variation"}
    about |= {"value": bound.value, "steps": len(order), "vacuous": bool(bound.is_vacuous)}
    out.show("certify", about, lambda: Text(repr(bound)))
    _draw({scan: bound}, plot)
    return NO_CERTIFICATE if bound.is_vacuous else CERTIFIED


def _draw(curves: Any, path: Path | None) -> None:
    """Draw certified bounds against steps and write the picture, if a path is given."""
    if path is not None:
        axes: Any = db.plots.bounds(curves)
        axes.figure.savefig(path, dpi=150)


@opt.verb("optimize model.uai --target 0 --tolerance 0.01 --save scan.npz")
def optimize(
    model: opt.MaybeModel = None,
    steps: Annotated[int | None, opt.whole("Length of the scans. Default: 20 sweeps.")] = None,
    tolerance: Annotated[float | None, opt.number("Find the shortest scan with this bound instead.")] = None,
    target: opt.Target = None,
    evidence: opt.Evidence = None,
    seed: Annotated[int, opt.whole("Seed of the random built-in model.", 0)] = 0,
    save: Annotated[Path | None, opt.file("Write the best scan to a file (.npz).")] = None,
    plot: Annotated[Path | None, opt.file("Draw the bounds (PNG, SVG or PDF).")] = None,
    beta: opt.Beta = None,
    *,
    out: Output,
) -> int:
    """Choose scans and print their certified bounds. Without a model: the paper's 10x10 Ising model."""
    from dobrushin.experiments.scans import paper_ising

    check_file("--save", save)
    check_plot("--plot", plot)
    given = paper_ising(seed=seed) if model is None else read_given(model, evidence, beta)
    targets = read_targets(given, target)
    if tolerance is not None:
        results = {"best": {"shortest": db.shortest_scan(given, targets, tolerance=tolerance, max_steps=steps)}}
    else:
        methods: tuple[InfluenceMethod, ...] = ("paper", "best") if given._is_discrete else ("best",)
        length = _USUAL_SWEEPS * given.n_variables if steps is None else steps
        results = {method: _make_scans(given, method, length, targets) for method in methods}
    best = min(results["best"].values(), key=lambda result: result.variation.value)
    scans = [
        {"scan": name, "bound": found.variation.value, "steps": len(found.scan), "vacuous": found.variation.is_vacuous}
        for name, found in results["best"].items()
    ]
    out.show("optimize", {"targets": targets, "scans": scans}, lambda: _bounds_table(given, results, targets))
    if save is not None:
        best.scan.save(save)
        out.note(f"Best scan: {save}")
    if plot is not None:
        _draw(results.get("paper", results["best"]), plot)  # the picture is the paper's where there is one
        out.note(f"Bounds against steps: {plot}")
    return NO_CERTIFICATE if best.variation.is_vacuous else CERTIFIED


def _make_scans(model: db.Model, method: InfluenceMethod, steps: int, targets: Any) -> dict[str, db.ScanResult]:
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


def _bounds_table(model: db.Model, results: dict[str, dict[str, db.ScanResult]], targets: Sequence[Any] | None) -> Any:
    about = f"all {model.n_variables} variables"
    if targets:
        about = f"variable{'s' if len(targets) > 1 else ''} {', '.join(map(printable, targets))}"
    title = f"Certified bounds on the total variation of {about}\n{model!r}"
    columns = ["scan", "steps", *(["paper's influence", "best influence", "systematic / this"] if len(results) > 1
                                  else ["bound"])]  # fmt: skip
    rows = []
    for name, best in results["best"].items():
        bounds = [found[name].variation for found in results.values()]
        texts = [rounded_up(bound.value) + (" (vacuous)" if bound.is_vacuous else "") for bound in bounds]
        if len(results) > 1:
            texts.append(f"{results['best']['systematic'].variation.value / best.variation.value:.3g}x")
        rows.append([name, str(len(best.scan)), *texts])
    return table(title, columns, rows)


@opt.verb("sample model.uai --steps 10000 --chains 1000 --output states.npz")
def sample(
    model: opt.Model,
    scan: opt.ScanName = "systematic",
    steps: opt.Steps = None,
    chains: Annotated[int, opt.whole("Independent chains.")] = 1000,
    target: opt.Target = None,
    evidence: opt.Evidence = None,
    seed: opt.Seed = None,
    time_limit: opt.Time = None,
    checkpoint: opt.Checkpoint = None,
    output: Annotated[Path | None, opt.file("Write the states to a .npz or .csv file.")] = None,
    beta: opt.Beta = None,
    *,
    out: Output,
) -> int:
    """Run a scan in many chains. The draws carry no error bound: see estimate and certify."""
    check_file("--output", output, endings=(".npz", ".csv"))
    given = read_given(model, evidence, beta)
    targets = read_targets(given, target)
    counts = given._is_discrete
    keep = db.Record(targets, states=output is not None or not counts, counts=counts)
    order, own = read_scan(scan, given, targets, steps), db.RunOptions(checkpoint=checkpoint)
    run = out.reach(
        lambda: db.sample(given, order, chains=chains, seed=seed, time_limit=time_limit, record=keep, run=own)
    )
    if not run.chains:
        if out.failure is not None:
            raise out.failure
        print(f"Error: No chain ended within {time_limit} s. Raise --time-limit, or lower --steps.", file=sys.stderr)
        return FAILED
    rows, what = _moments(run) if run.counts is None else _shares(run, given)
    about = {"chains": run.chains, "steps": run.steps, "kernel": run.kernel, "seed": run.seed, "certified": False}
    title = f"{run!r}\n{what}, without any bound on their error: see estimate"
    texts = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row.values()] for row in rows]
    out.show("sample", {**about, "rows": rows}, lambda: table(title, list(rows[0]), texts))
    if output is not None and output.suffix.lower() == ".npz":
        run.save(output)
    elif output is not None:  # the last states by their names
        columns = [run._called(k) for k in range(len(run.variables))]
        states = ((chain, 0, *last) for chain, last in enumerate(zip(*columns, strict=True)))
        write_table(output, ("chain", "draw", *run.variables), states)
    return CERTIFIED


def _shares(run: db.Samples, model: db.Model) -> tuple[list[dict[str, Any]], str]:
    """Return a table row for each variable and state, with the state's share of the chains."""
    rows = []
    for label, shares in zip(run.variables, run.marginals().tolist(), strict=True):
        called = model._called(model.index(label))
        rows += [{"variable": label, "state": name, "share": x} for name, x in zip(called, shares, strict=False)]
    return rows, "Shares of the states"


def _moments(run: db.Samples) -> tuple[list[dict[str, Any]], str]:
    """Return a table row for each variable of a field, with its mean and standard deviation."""
    states: Any = run.states
    numbers = zip(run.variables, states.mean(axis=0).tolist(), states.std(axis=0).tolist(), strict=True)
    return [{"variable": label, "mean": m, "deviation": d} for label, m, d in numbers], "Means and standard deviations"


@opt.verb("fit grid.npz data.csv --output fitted.npz")
def fit(
    model: opt.Model,
    data: Annotated[
        Path,
        typer.Argument(
            help="Observations: .csv with a line of names (empty: missing), or a .npy array.", metavar="DATA"
        ),
    ],
    method: Annotated[
        str, opt.word("METHOD", "gibbs, exact (small treewidth), or em (Bayesian networks).", completion.GRADIENTS)
    ] = "gibbs",
    scan: Annotated[str, opt.word("SCAN", "dogs, systematic or uniform.", completion.GRADIENT_SCANS)] = "dogs",
    tolerance: Annotated[float, opt.number("Largest allowed bias of each coordinate of the gradient.")] = 0.02,
    iterations: Annotated[int, opt.whole("Gradient steps.")] = 100,
    chains: Annotated[int, opt.whole("Chains for each gradient.")] = 1000,
    ridge: Annotated[float, opt.number("Strength of the penalty on squares.")] = 0.0,
    box: Annotated[float | None, opt.number("Keep every parameter between -box and box.")] = None,
    seed: opt.Seed = None,
    time_limit: opt.Time = None,
    checkpoint: opt.Checkpoint = None,
    output: Annotated[Path | None, opt.file("Write the fitted model.")] = None,
    *,
    out: Output,
) -> int:
    """Fit the parameters of a model to data, with gradients of bounded bias."""
    gibbs = db.GibbsGradient(cast(Any, scan), tolerance=tolerance, chains=chains)
    gradient: Any = gibbs if method == "gibbs" else method
    check_model("--output", output)
    start = read_model(model)
    if output is not None:  # written elsewhere first, for the reasons why a format cannot hold it
        with tempfile.TemporaryDirectory() as folder:
            db.write(start, Path(folder) / output.name)
    table, run = _read_data(data), db.RunOptions(checkpoint=checkpoint)
    options: dict[str, Any] = {"iterations": iterations, "ridge": ridge, "box": box, "seed": seed}
    options |= {"method": gradient, "time_limit": time_limit, "run": run}
    fitted = out.reach(lambda: db.fit(start, table, **options))
    certified = fitted.bias_bound is not None and fitted.bias_bound < float("inf")
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
    return CERTIFIED if certified else NO_CERTIFICATE


def _read_data(path: Path) -> Any:
    """Read observations: a .csv file whose first line names the variables, or a .npy array."""
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".csv"):
        raise Usage(f"DATA must be a .csv or .npy file. Got {str(path)!r}.")
    try:
        if suffix == ".npy":
            import numpy as np

            with path.open("rb") as file:
                return np.load(file, allow_pickle=False)
        pandas = require("pandas", "formats")
        # Words such as TRUE and None are names of states: only empty cells are missing.
        frame = pandas.read_csv(path, dtype=str, keep_default_na=False, na_values=["", "NaN", "nan"])
        for name in frame.columns:
            with suppress(ValueError):  # a column of words
                frame[name] = pandas.to_numeric(frame[name])
    except (ValueError, EOFError) as error:
        what = "an array that numpy.save wrote" if suffix == ".npy" else "a line of names and lines of observations"
        raise db.FormatError(str(path), what, f"something else ({str(error).splitlines()[0][:100]})") from None
    names = [int(name) if str(name).isdecimal() else name for name in frame.columns]
    return frame.set_axis(names, axis=1)


@opt.verb("convert model.uai.gz model.npz")
def convert(
    model: opt.Model,
    output: Annotated[Path, typer.Argument(help="The file to write; its name says the format.", metavar="OUTPUT")],
    beta: opt.Beta = None,
    *,
    out: Output,
) -> int:
    """Write a model in another format."""
    check_model("OUTPUT", output)
    given = read_model(model, beta)
    options: Any = {} if beta is None else {"beta": beta}
    db.write(given, output, **options)
    lost = db.io.lost_names(given, output)
    about = {"model": repr(given), "fingerprint": given.fingerprint, "output": str(output), "lost": lost or None}
    out.show("convert", about, lambda: f"Wrote {given!r} to {output}.")
    if lost:
        kinds = ", ".join(f"{kind.extensions[0]}" for kind in db.io.FORMATS.values() if "states" in kind.keeps)
        out.warn(f"Warning: {output.name} does not keep the {lost} ({kinds} files do).")
    return CERTIFIED


@opt.verb("warmup")
def warmup(*, out: Output) -> int:
    """Compile all kernels once, so that later commands start quickly; check the sampler on this machine."""
    import numpy as np

    from dobrushin._shared.compile import compile_always

    compile_always()
    begin = time.monotonic()
    spins = db.Ising.grid(3, 3, couplings=0.1, fields=0.1)
    small_star, star = (db.Ising({(0, i): 0.1 for i in range(1, n)}) for n in (6, 10))
    labels = db.Potts.grid(3, 3, states=3, couplings=0.1)
    tables = spins.to_factor_graph()
    order3 = db.SpinMRF({(0, 1, 2): 0.1}, fields=[0.1] * 3)
    pairs = db.PairwiseMRF([[0.0, 0.1], [0.0, 0.0, 0.3]], [(0, 1)], [np.full((2, 3), 0.1)])
    for model in (spins, small_star, star, labels, tables, order3, pairs):
        n, first = model.n_variables, [model.labels[0]]
        for scan in (db.Scan.systematic(n, 30 * n), db.Scan.uniform(n, n)):
            for chains in (1, 100):
                db.sample(model, scan, chains=chains, seed=1, record="counts")
        db.optimize_scan(model, db.Scan.systematic(n, 10))
        db.greedy_scan(model, first, steps=4)
        db.shortest_scan(model, first, tolerance=0.1)
        db.coalescence(model, db.Scan.systematic(n, n), runs=64)
        for method in ("exact", "local", "dobrushin", "coalescence"):
            db.estimate(model, first, tolerance=0.2, method=cast(Any, method), seed=1)
    is_right = all(result.ok for result in db.self_check(chains=20_000))
    seconds = time.monotonic() - begin
    text = f"Compiled everything in {seconds:.0f} s."
    out.show("warmup", {"seconds": seconds, "frequencies_are_right": is_right}, lambda: text)
    if not is_right:
        print("Error: the sampler gives wrong frequencies on this machine.", file=sys.stderr)
    return CERTIFIED if is_right else FAILED
