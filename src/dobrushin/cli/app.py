"""The verbs and their options; what they do is imported when they run, so that help is immediate."""

from __future__ import annotations

import functools
import inspect as inspection
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from dobrushin._shared.call import watch
from dobrushin._shared.environment import VERSION
from dobrushin._shared.text import in_full
from dobrushin.cli import completion
from dobrushin.cli.guard import run_verb
from dobrushin.cli.output import Output, decisions_shown
from dobrushin.cli.source import ScanChoice, Source
from dobrushin.io.formats import extensions

app = typer.Typer(
    help="Gibbs sampling with error bars that can be trusted.\n\n"
    "Exit codes: 0 certified, 1 error, 2 usage, 3 no certificate.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_FILE = f"A model file: {extensions()}; .gz too."
Model = Annotated[Path, typer.Argument(help=_FILE)]
MaybeModel = Annotated[Path | None, typer.Argument(help=_FILE, show_default=False)]
Target = Annotated[
    list[str] | None,
    typer.Option(
        help="Variables of interest, as in 3,7. Can be repeated. Default: all.",
        autocompletion=completion.complete_target,
    ),
]
Evidence = Annotated[
    list[str] | None,
    typer.Option(
        help="Observed variables, as in smoke=yes,xray=no or 5=1; likelihoods, as in xray=yes:0.7/no:0.2; or a UAI "
        "evidence file.",
        autocompletion=completion.complete_evidence,
    ),
]
Beta = Annotated[float | None, typer.Option(help="Inverse temperature of files that hold energies.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the random draws, to repeat a run.", min=0)]
Steps = Annotated[int | None, typer.Option(help="Length of the scan. Default: 100 sweeps.", min=1)]
ScanName = Annotated[
    str,
    typer.Option(
        help="systematic, uniform, greedy, dogs, or a file with a scan.", autocompletion=completion.complete_scan
    ),
]
Confidence = Annotated[float, typer.Option(help="Probability that all bounds hold at once.")]
Time = Annotated[
    float | None, typer.Option(help="Seconds after which to stop and print the result so far; Ctrl-C does that too.")
]
Checkpoint = Annotated[Path | None, typer.Option(help="Save the state here, and resume from it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log decisions to the error stream.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def _say_version(is_asked: bool) -> None:
    """Print which release this is, and end."""
    if is_asked:
        typer.echo(f"dobrushin {VERSION}")
        raise typer.Exit()


Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", callback=_say_version, is_eager=True)
]


@app.callback()
def top(version: Version = False) -> None:
    """Gibbs sampling with error bars that can be trusted.

    Exit codes: 0 certified, 1 error, 2 usage, 3 no certificate.
    """


def _verb(example: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Make a function a verb: it returns the exit code, and its errors become one sentence.

    Every verb has the option --verbose.
    """

    def register(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def command(*args: Any, verbose: bool = False, **kwargs: Any) -> None:
            with decisions_shown(verbose), watch(_progress(function.__name__, verbose, kwargs)):
                code = run_verb(lambda: function(*args, **kwargs), lambda: _options(function.__name__))
            raise typer.Exit(code)

        signature = inspection.signature(function, eval_str=True)
        for parameter in signature.parameters.values():
            _read_number_here(parameter.annotation)
            _name_value(parameter)
        kind = inspection.Parameter.KEYWORD_ONLY
        verbosity = inspection.Parameter("verbose", kind, default=False, annotation=Verbose)
        own: Any = command
        own.__signature__ = signature.replace(parameters=[*signature.parameters.values(), verbosity])
        own.__annotations__ = {**function.__annotations__, "verbose": Verbose}
        app.command(epilog=f"Example: dobrushin {example}")(command)
        return function

    return register


def _name_value(parameter: inspection.Parameter) -> None:
    """Name the value of an option in help by a word, not by a type of Python: MODEL, PATH, EVIDENCE."""
    kind, *details = get_args(parameter.annotation) or (None,)
    kinds = {kind, *get_args(kind)}
    for detail in details:
        if detail.metavar is None and bool not in kinds:
            is_path = Path in kinds and isinstance(detail, typer.models.OptionInfo)
            detail.metavar = "PATH" if is_path else parameter.name.upper()


def _read_number_here(annotation: Any) -> None:
    """Let the option that an annotation describes, if it takes a number, be read here."""
    kind, *details = get_args(annotation) or (None,)
    kinds = {kind, *get_args(kind)} & {int, float}
    for option in details:
        if kinds and option.parser is None:
            option.parser = partial(_read_number, is_whole=int in kinds, least=option.min)
            option.metavar = "INTEGER" if int in kinds else "NUMBER"
            option.min = None


def _read_number(text: Any, is_whole: bool, least: float | None) -> float:
    """Read a number; raise an error of usage where the text is no number, or too small.

    Examples
    --------
    >>> _read_number("1e6", True, 1), _read_number("0.01", False, None)
    (1000000, 0.01)
    """
    found: float | None = None
    with suppress(ValueError, OverflowError):
        found = _whole(text) if is_whole else float(text)
    if found is None or (least is not None and not found >= least):
        what = "a whole number" if is_whole else "a number"
        bound = "" if least is None else f" of at least {in_full(least)}"
        raise typer.BadParameter(f"it must be {what}{bound}. Got {str(text)!r}.")
    return found


def _whole(text: Any) -> int | None:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return int(number) if number.is_integer() else None


def _progress(verb: str, verbose: bool, options: dict[str, Any]) -> bool | None:
    """Return whether to show progress: never with --json or --quiet, also in logs with --verbose."""
    says_it_itself = verb == "reproduce"
    if says_it_itself or options.get("as_json") or options.get("quiet"):
        return False
    return True if verbose else None


def _options(verb: str) -> dict[str, str]:
    """How the parameters of a verb are written on the command line: --tolerance, MODEL."""
    parameters = typer.main.get_command(app).commands[verb].params  # type: ignore[attr-defined]
    return {p.name: p.opts[0] if p.opts[0].startswith("-") else p.opts[0].upper() for p in parameters}


@_verb("estimate model.uai --target 3,7 --tolerance 0.01 --evidence 5=1")
def estimate(
    model: MaybeModel = None,
    target: Target = None,
    tolerance: Annotated[float, typer.Option(help="Largest allowed half-width of an interval.")] = 0.01,
    confidence: Confidence = 0.99,
    evidence: Evidence = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto, exact, local, dobrushin, parts, coalescence or uncertified.",
            autocompletion=completion.complete_method,
        ),
    ] = "auto",
    seed: Seed = None,
    budget: Annotated[float | None, typer.Option(help="Largest number of Gibbs updates to spend.")] = None,
    time_limit: Time = None,
    checkpoint: Checkpoint = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="Memory limit for exact sums, as in 2GiB. Default: what is free.")
    ] = None,
    beta: Beta = None,
    report: Annotated[Path | None, typer.Option(help="Write an interactive page (.html).")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the answer to a .json, .csv or .mar file.")] = None,
    proof: Annotated[Path | None, typer.Option(help="Write a proof that `dobrushin verify` checks.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be done.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Estimate marginals with guaranteed intervals. Without a model: a built-in example."""
    from dobrushin import RunOptions
    from dobrushin.cli.estimate import run, show_plan
    from dobrushin.experiments.scans import paper_ising

    source = Source(model, evidence or (), beta, lambda: paper_ising(1000, 1000, fields=False))
    query: dict[str, Any] = {"tolerance": tolerance, "confidence": confidence, "method": method, "budget": budget}
    query["run"] = RunOptions(memory_limit=memory_limit, checkpoint=checkpoint)
    if plan:
        return show_plan(source, target or [], query, Output(as_json, quiet))
    query |= {"seed": seed, "time_limit": time_limit}
    return run(source, target or [], query, (report, output, proof), Output(as_json, quiet))


@_verb("verify answer.proof model.uai")
def verify(
    proof: Annotated[Path, typer.Argument(help="What `estimate --proof` wrote.")],
    model: Annotated[
        Path | None, typer.Argument(help="A model file (.uai, .bif, .npz or a folder) to compare the factors with.")
    ] = None,
    replay: Annotated[str | None, typer.Option(help="all, or how many blocks of chains to draw again.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds that the check may take, by its own estimate.")] = 60.0,
    memory_limit: Annotated[float, typer.Option(help="Bytes that the check may take.")] = 2.0**30,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Check a proof, without the library that wrote it.

    Exit code 3: something is believed, such as chains that were not drawn again. 4: the proof was not checked, or not
    compared with the model file.
    """
    from dobrushin.cli import verbs

    return verbs.verify(proof, model, replay, (time_limit, memory_limit), Output(as_json, quiet))


@_verb("inspect model.uai --evidence model.uai.evid")
def inspect(
    model: Model, evidence: Evidence = None, beta: Beta = None, as_json: Json = False, quiet: Quiet = False
) -> int:
    """Say what can be certified about a model, at what cost, and what to try."""
    from dobrushin.cli import verbs

    return verbs.inspect(Source(model, evidence or (), beta), Output(as_json, quiet))


@_verb("influence model.uai --top 5")
def influence(
    model: Model,
    method: Annotated[
        str, typer.Option(help="best, paper or exact.", autocompletion=completion.complete_influence)
    ] = "best",
    top: Annotated[int, typer.Option(help="How many of the strongest variables to list.", min=1)] = 10,
    evidence: Evidence = None,
    beta: Beta = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Bound how much the variables of a model move each other."""
    from dobrushin.cli import verbs

    return verbs.influence(Source(model, evidence or (), beta), method, top, Output(as_json, quiet))


@_verb("certify model.uai --scan systematic --steps 2000 --target 0")
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
    time_limit: Time = None,
    checkpoint: Checkpoint = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the bound against the steps.")] = None,
    beta: Beta = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Bound how far Gibbs sampling with a scan is from the truth, before sampling."""
    from dobrushin import RunOptions
    from dobrushin.cli import verbs

    simulation: dict[str, Any] | None = None
    if coalescence:
        run = RunOptions(checkpoint=checkpoint)
        simulation = {"confidence": confidence, "runs": runs, "seed": seed, "time_limit": time_limit, "run": run}
    source, out = Source(model, evidence or (), beta), Output(as_json, quiet)
    return verbs.certify(source, ScanChoice(scan, steps), target or [], simulation, plot, out)


@_verb("optimize model.uai --target 0 --tolerance 0.01 --save scan.npz")
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
) -> int:
    """Choose scans and say what they certify. Without a model: the paper's 10x10 Ising model."""
    from dobrushin.cli import verbs
    from dobrushin.experiments.scans import paper_ising

    source = Source(model, evidence or (), beta, lambda: paper_ising(seed=seed))
    return verbs.optimize(source, target or [], steps, tolerance, save, plot, Output(as_json, quiet))


@_verb("sample model.uai --steps 10000 --chains 1000 --output states.npz")
def sample(
    model: Model,
    scan: ScanName = "systematic",
    steps: Steps = None,
    chains: Annotated[int, typer.Option(help="Independent chains.", min=1)] = 1000,
    target: Target = None,
    evidence: Evidence = None,
    seed: Seed = None,
    time_limit: Time = None,
    checkpoint: Checkpoint = None,
    output: Annotated[Path | None, typer.Option(help="Write the states to a .npz or .csv file.")] = None,
    beta: Beta = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Run a scan in many chains. What it gives carries no bound: see estimate and certify."""
    from dobrushin import RunOptions
    from dobrushin.cli import verbs

    source, out = Source(model, evidence or (), beta), Output(as_json, quiet)
    options = {"chains": chains, "seed": seed, "time_limit": time_limit, "run": RunOptions(checkpoint=checkpoint)}
    return verbs.sample(source, ScanChoice(scan, steps), target or [], output, out, **options)


@_verb("fit grid.npz data.csv --output fitted.npz")
def fit(
    model: Model,
    data: Annotated[Path, typer.Argument(help="Observations: .csv with a line of names, or a .npy array.")],
    method: Annotated[
        str, typer.Option(help="gibbs, or exact (small treewidth).", autocompletion=completion.complete_gradient)
    ] = "gibbs",
    scan: Annotated[
        str, typer.Option(help="dogs, systematic or uniform.", autocompletion=completion.complete_gradient_scan)
    ] = "dogs",
    tolerance: Annotated[float, typer.Option(help="Largest allowed bias of each coordinate of the gradient.")] = 0.02,
    iterations: Annotated[int, typer.Option(help="Gradient steps.", min=1)] = 100,
    chains: Annotated[int, typer.Option(help="Chains for each gradient.", min=1)] = 1000,
    ridge: Annotated[float, typer.Option(help="Strength of the penalty on squares.")] = 0.0,
    box: Annotated[float | None, typer.Option(help="Keep every parameter between -box and box.")] = None,
    seed: Seed = None,
    time_limit: Time = None,
    checkpoint: Checkpoint = None,
    output: Annotated[Path | None, typer.Option(help="Write the fitted model.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Fit the parameters of a model to data, with gradients of bounded bias."""
    from dobrushin import RunOptions
    from dobrushin.cli import verbs

    return verbs.fit(
        Source(model), data, output, Output(as_json, quiet), method,
        {"scan": scan, "tolerance": tolerance, "chains": chains},
        iterations=iterations, ridge=ridge, box=box, seed=seed, time_limit=time_limit,
        run=RunOptions(checkpoint=checkpoint),
    )  # fmt: skip


@_verb("convert model.uai.gz model.npz")
def convert(
    model: Model,
    output: Annotated[Path, typer.Argument(help="The file to write; its name says the format.")],
    beta: Beta = None,
    quiet: Quiet = False,
) -> int:
    """Write a model in another format."""
    from dobrushin.cli import verbs

    return verbs.convert(Source(model, beta=beta), output, Output(False, quiet))


@_verb("warmup")
def warmup(quiet: Quiet = False) -> int:
    """Compile everything once, so that later commands start quickly; check the sampler on this machine."""
    from dobrushin.cli import verbs

    return verbs.warmup(Output(False, quiet))


@_verb("reproduce ising-tv --quick")
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An experiment, or all. Without it: list them.",
            show_default=False,
            autocompletion=completion.complete_experiment,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer replicates: a minute each at most.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with the data, for those that need some.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for data, tables and figures.")] = Path("reproduced"),
    seed: Annotated[int, typer.Option(help="Seed, to repeat a run (all but its times).", min=0)] = 0,
    workers: Annotated[int, typer.Option(help="Processes for replicates that do not measure time.", min=1)] = 1,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Repeat the paper's experiments. An interrupted run resumes where it stopped.

    Exit codes: 0 everything came out as it should, 1 something did not.
    """
    from dobrushin.cli.reproduce import run
    from dobrushin.experiments.store import Setting

    return run(name, Setting(quick, seed, data), out, workers, Output(as_json, quiet))
