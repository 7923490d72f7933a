"""The verbs and their options; what they do is imported when they run, so that help is immediate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Gibbs sampling with error bars that can be trusted.\n\n"
    "Exit codes: 0 certified, 1 error, 2 usage, 3 no certificate.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

Model = Annotated[Path, typer.Argument(help="A model file: .uai, .bif, .bqm, .coo, .npz, .mc, .gset; .gz too.")]
MaybeModel = Annotated[
    Path | None,
    typer.Argument(help="A model file: .uai, .bif, .bqm, .coo, .npz, .mc, .gset; .gz too.", show_default=False),
]
Target = Annotated[
    list[str] | None, typer.Option(help="Variables of interest, as in 3,7. Can be repeated. Default: all.")
]
Evidence = Annotated[list[str] | None, typer.Option(help="Observed variables, as in 5=1, or a UAI evidence file.")]
Beta = Annotated[float | None, typer.Option(help="Inverse temperature of files that hold energies.")]
Seed = Annotated[int | None, typer.Option(help="Repeats a run.", min=0)]
Steps = Annotated[int | None, typer.Option(help="Length of the scan. Default: 100 sweeps.", min=1)]
ScanName = Annotated[str, typer.Option(help="systematic, uniform, greedy, dogs, or a file with a scan.")]
Confidence = Annotated[float, typer.Option(help="Probability with which all bounds hold at once.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


@app.callback()
def top() -> None:
    """Gibbs sampling with error bars that can be trusted.

    Exit codes: 0 certified, 1 error, 2 usage, 3 no certificate.
    """


def _run(call: object) -> None:
    from dobrushin.cli.common import guarded

    raise typer.Exit(guarded(call))  # type: ignore[arg-type]


@app.command(epilog="Example: dobrushin estimate model.uai --target 3,7 --tolerance 0.01 --evidence 5=1")
def estimate(
    model: MaybeModel = None,
    target: Target = None,
    tolerance: Annotated[float, typer.Option(help="Half the width of every interval is at most this.")] = 0.01,
    confidence: Confidence = 0.99,
    evidence: Evidence = None,
    method: Annotated[str, typer.Option(help="auto, exact, dobrushin, coalescence or uncertified.")] = "auto",
    seed: Seed = None,
    budget: Annotated[float | None, typer.Option(help="Most Gibbs updates to spend.")] = None,
    beta: Beta = None,
    report: Annotated[Path | None, typer.Option(help="Write an interactive page (.html).")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the answer to a .json, .csv or .mar file.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be done.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate marginals with intervals that are guaranteed. Without a model: a built-in example."""

    def run() -> int:
        from dobrushin.cli.estimate import run

        return run(
            model, target or [], tolerance, confidence, evidence or [], method, seed, budget, beta, report, output,
            plan, as_json, quiet,
        )  # fmt: skip

    _run(run)


@app.command(epilog="Example: dobrushin inspect model.uai --evidence model.uai.evid")
def inspect(
    model: Model, evidence: Evidence = None, beta: Beta = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Say what can be certified about a model, at what cost, and what to try."""

    def run() -> int:
        from dobrushin.cli import verbs

        return verbs.inspect(model, evidence or [], beta, as_json, quiet)

    _run(run)


@app.command(epilog="Example: dobrushin influence model.uai --top 5")
def influence(
    model: Model,
    method: Annotated[str, typer.Option(help="best, paper or exact.")] = "best",
    top: Annotated[int, typer.Option(help="How many of the strongest variables to list.", min=1)] = 10,
    evidence: Evidence = None,
    beta: Beta = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Bound how much the variables of a model move each other."""

    def run() -> int:
        from dobrushin.cli import verbs

        return verbs.influence(model, method, top, evidence or [], beta, as_json, quiet)

    _run(run)


@app.command(epilog="Example: dobrushin certify model.uai --scan systematic --steps 2000 --target 0")
def certify(
    model: Model,
    scan: ScanName = "systematic",
    steps: Steps = None,
    target: Target = None,
    evidence: Evidence = None,
    coalescence: Annotated[bool, typer.Option("--coalescence", help="By simulation: works for strong models.")] = False,
    runs: Annotated[int, typer.Option(help="Simulated runs.", min=1)] = 10_000,
    confidence: Confidence = 0.999,
    seed: Seed = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the bound against the steps.")] = None,
    beta: Beta = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Bound how far Gibbs sampling with a scan is from the truth, before sampling."""

    def run() -> int:
        from dobrushin.cli import verbs

        return verbs.certify(
            model, scan, steps, target or [], evidence or [], coalescence, runs, confidence, seed, plot, beta, as_json,
            quiet,
        )  # fmt: skip

    _run(run)


@app.command(epilog="Example: dobrushin optimize model.uai --target 0 --tolerance 0.01 --save scan.npz")
def optimize(
    model: MaybeModel = None,
    steps: Annotated[int | None, typer.Option(help="Length of the scans. Default: 20 sweeps.", min=1)] = None,
    tolerance: Annotated[float | None, typer.Option(help="Find the shortest scan with this bound instead.")] = None,
    target: Target = None,
    evidence: Evidence = None,
    seed: Annotated[int, typer.Option(help="Which draw of the built-in model.", min=0)] = 0,
    save: Annotated[Path | None, typer.Option(help="Write the best scan to a file (.npz).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the bounds (PNG, SVG or PDF).")] = None,
    beta: Beta = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose scans and say what they certify. Without a model: the paper's 10x10 Ising model."""

    def run() -> int:
        from dobrushin.cli.optimize import run

        return run(model, steps, tolerance, target or [], evidence or [], seed, save, plot, beta, as_json, quiet)

    _run(run)


@app.command(epilog="Example: dobrushin sample model.uai --steps 10000 --chains 1000 --output states.npz")
def sample(
    model: Model,
    scan: ScanName = "systematic",
    steps: Steps = None,
    chains: Annotated[int, typer.Option(help="Independent chains.", min=1)] = 1000,
    target: Target = None,
    evidence: Evidence = None,
    seed: Seed = None,
    output: Annotated[Path | None, typer.Option(help="Write the states to a .npz or .csv file.")] = None,
    beta: Beta = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a scan in many chains. What it gives carries no bound: see estimate and certify."""

    def run() -> int:
        from dobrushin.cli import verbs

        return verbs.sample(
            model, scan, steps, chains, target or [], evidence or [], seed, output, beta, as_json, quiet
        )

    _run(run)


@app.command(epilog="Example: dobrushin fit grid.npz data.csv --output fitted.npz")
def fit(
    model: Model,
    data: Annotated[Path, typer.Argument(help="Observations: .csv with a line of names, or a .npy array.")],
    method: Annotated[str, typer.Option(help="gibbs, or exact for narrow models.")] = "gibbs",
    scan: Annotated[str, typer.Option(help="certified, systematic or uniform.")] = "certified",
    tolerance: Annotated[float, typer.Option(help="Most bias of every coordinate of the gradient.")] = 0.02,
    iterations: Annotated[int, typer.Option(help="Gradient steps.", min=1)] = 100,
    chains: Annotated[int, typer.Option(help="Chains for each gradient.", min=1)] = 1000,
    ridge: Annotated[float, typer.Option(help="Strength of the penalty on squares.")] = 0.0,
    box: Annotated[float | None, typer.Option(help="Keep every parameter between -box and box.")] = None,
    seed: Seed = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Write the state here, and go on from it.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the fitted model.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit the parameters of a model to data, with gradients of bounded bias."""

    def run() -> int:
        from dobrushin.cli.fit import run

        return run(
            model, data, output, as_json, quiet, method=method, scan=scan, tolerance=tolerance, iterations=iterations,
            chains=chains, ridge=ridge, box=box, seed=seed, checkpoint=checkpoint,
        )  # fmt: skip

    _run(run)


@app.command(epilog="Example: dobrushin convert model.uai.gz model.npz")
def convert(
    model: Model,
    output: Annotated[Path, typer.Argument(help="The file to write; its name says the format.")],
    beta: Beta = None,
    quiet: Quiet = False,
) -> None:
    """Write a model in another format."""

    def run() -> int:
        from dobrushin.cli import verbs

        return verbs.convert(model, output, beta, quiet)

    _run(run)


@app.command(epilog="Example: dobrushin warmup")
def warmup(quiet: Quiet = False) -> None:
    """Compile everything once, so that later commands start at once; check the sampler on this machine."""

    def run() -> int:
        from dobrushin.cli import verbs

        return verbs.warmup(quiet)

    _run(run)


@app.command(epilog="Example: dobrushin reproduce ising-tv --quick")
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="An experiment, or all. Without it: which there are.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer replicates: a minute each at most.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with the images, for the one that needs some.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for data, tables and figures.")] = Path("reproduced"),
    seed: Annotated[int, typer.Option(help="Repeats a run, all but its times.", min=0)] = 0,
    workers: Annotated[int, typer.Option(help="Processes for replicates that do not measure time.", min=1)] = 1,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the paper's experiments again. An interrupted run goes on where it was.

    Exit codes: 0 everything came out as it should, 1 something did not.
    """

    def run() -> int:
        from dobrushin.cli.reproduce import run

        return run(name, quick, data, out, seed, workers, as_json, quiet)

    _run(run)
