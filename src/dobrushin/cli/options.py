"""Options that several verbs share, and errors as one sentence with an exit code."""

from __future__ import annotations

import functools
import inspect as inspection
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import dobrushin as db
from dobrushin._shared.call import watch
from dobrushin._shared.environment import VERSION
from dobrushin._shared.text import hint, in_full
from dobrushin.cli import completion
from dobrushin.cli.output import (
    CLOSED,
    FAILED,
    INTERRUPTED,
    NO_CERTIFICATE,
    USAGE,
    Output,
    Usage,
    decisions_shown,
)
from dobrushin.io.formats import extensions

app = typer.Typer(
    help="Gibbs sampling with error bars that can be trusted.\n\n"
    "Exit codes: 0 certified, 1 error, 2 usage, 3 no certificate.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


# -- options -----------------------------------------------------------------------------------


def read_number(text: Any, is_whole: bool = False, least: float | None = None) -> float:
    """Read a number; raise a usage error if the text is no number, not whole as required, or below `least`.

    Examples
    --------
    >>> read_number("1e6", True, 1), read_number("0.01")
    (1000000, 0.01)
    """
    found: float | None = None
    with suppress(ValueError, OverflowError):
        found = float(text)
        if is_whole:  # with all its digits
            found = int(Decimal(str(text))) if found.is_integer() else None
    if found is None or (least is not None and not found >= least):
        what = "a whole number" if is_whole else "a number"
        bound = "" if least is None else f" of at least {in_full(least)}"
        raise typer.BadParameter(f"it must be {what}{bound}. Got {str(text)!r}.")
    return found


def number(text: str) -> Any:
    """Return the description of an option that takes a number."""
    return typer.Option(help=text, parser=read_number, metavar="NUMBER")


def whole(text: str, least: int = 1) -> Any:
    """Return the description of an option that takes a whole number of at least `least`."""
    return typer.Option(help=text, parser=partial(read_number, is_whole=True, least=least), metavar="INTEGER")


def word(metavar: str, text: str, offered: Callable[..., list[str]] | Sequence[str] = ()) -> Any:
    """Return the description of an option that takes a text; the shell completes the text from `offered`."""
    complete = offered if callable(offered) else completion.one_of(offered)
    return typer.Option(help=text, metavar=metavar, autocompletion=complete)


_FILE = f"A model file: {extensions()}; .gz too."
Model = Annotated[Path, typer.Argument(help=_FILE, metavar="MODEL")]
MaybeModel = Annotated[Path | None, typer.Argument(help=_FILE, metavar="MODEL", show_default=False)]
Target = Annotated[
    list[str] | None,
    word("TARGET", "Variables of interest, as in 3,7. Can be repeated. Default: all.", completion.complete_target),
]
Evidence = Annotated[
    list[str] | None,
    word(
        "EVIDENCE",
        "Observed variables, as in smoke=yes,xray=no or 5=1; likelihoods, as in xray=yes:0.7/no:0.2; or a file: "
        "UAI evidence, or the .meta file of a graph of DeepDive.",
        completion.complete_evidence,
    ),
]
Beta = Annotated[float | None, number("Inverse temperature of files that hold energies.")]
Seed = Annotated[int | None, whole("Seed of the random draws, to repeat a run.", 0)]
Steps = Annotated[int | None, whole("Length of the scan. Default: 100 sweeps.")]
ScanName = Annotated[str, word("SCAN", "systematic, uniform, greedy, dogs, or a file with a scan.", completion.SCANS)]
Confidence = Annotated[float, number("Probability that all bounds hold at once.")]
Time = Annotated[float | None, number("Seconds after which to stop and print the result so far; Ctrl-C does that too.")]


def file(text: str) -> Any:
    """Return the description of an option that takes the name of a file or folder."""
    return typer.Option(help=text, metavar="PATH")


Checkpoint = Annotated[Path | None, file("Save the state here, and resume from it.")]


# -- verbs -------------------------------------------------------------------------------------


def _say_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"dobrushin {VERSION}")
        raise typer.Exit()


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Gibbs sampling with error bars that can be trusted.

    Exit codes: 0 certified, 1 error, 2 usage, 3 no certificate.
    """


def _every_verb(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log decisions to the error stream.")] = False,
) -> None:
    """Hold the options --json, --quiet and --verbose, which `verb` copies to each verb."""


def verb(example: str, shows_progress: bool = True) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorate a function as a verb of the command line, which returns its exit code.

    Every verb has the options --json, --quiet and --verbose; its last parameter `out` is where it prints.
    """

    def register(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def command(ctx: typer.Context, as_json: bool, quiet: bool, verbose: bool, **options: Any) -> None:
            out = Output(as_json, quiet)
            shown = out.shows_progress(verbose) if shows_progress else False
            with decisions_shown(verbose), watch(shown):
                code = run_verb(partial(function, **options, out=out), out, ctx)
            raise typer.Exit(code)

        own = list(inspection.signature(function, eval_str=True).parameters.values())[:-1]
        shared = inspection.signature(_every_verb, eval_str=True).parameters.values()
        parameters = [p.replace(kind=inspection.Parameter.KEYWORD_ONLY) for p in [*own, *shared]]
        made: Any = command
        made.__signature__ = inspection.Signature(parameters)
        made.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(epilog=f"Example: dobrushin {example}")(command)
        return function

    return register


# -- errors ------------------------------------------------------------------------------------

# Arguments of functions that an option of another name sets.
_OPTION_OF = {
    ("read", "path"): "model",
    ("write", "path"): "output",
    ("Scan.load", "path"): "scan",
    ("report.write", "path"): "report",
    "targets": "target",
    "max_steps": "steps",
}
# Remedies in terms of the options.
_HINTS = {
    db.UncertifiedStep: (
        "Keep the parameters smaller with --box or --ridge, raise --tolerance, or use --scan systematic, which needs "
        "no certificate and gives none."
    ),
    db.CertificateError: (
        "What may help: a larger --tolerance, fewer variables (--target), or --evidence on strongly coupled ones. For "
        "an estimate without any guarantee use --method uncertified."
    ),
    db.ToleranceError: (
        "What may help: a larger --tolerance, fewer variables (--target) or more --steps. For strong models see "
        "dobrushin certify --coalescence."
    ),
    db.BudgetError: (
        "Allow more with --budget or --time-limit, or ask for less: a larger --tolerance, a lower --confidence, "
        "fewer variables."
    ),
}
# Errors that are told in a sentence; others are defects, whose traceback is wanted.
_TOLD: Any = (Usage, *_HINTS, db.WorkerError, OSError, ImportError, MemoryError, ValueError)


def run_verb(run: Callable[[], int], out: Output, ctx: typer.Context) -> int:
    """Run a verb; turn an error, even one after a partial result, into one sentence and an exit code."""
    try:
        with warnings.catch_warnings():
            # Vacuous bounds are marked in the output.
            warnings.simplefilter("ignore", db.VacuousBoundWarning)
            code = run()
        sys.stdout.flush()  # here, where a closed pipe is no error
        if out.failure is not None:
            raise out.failure
        return code
    except KeyboardInterrupt as interruption:
        reached = interruption.message if isinstance(interruption, db.Interrupted) else str(interruption)
        print(reached or "Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads what is printed has seen enough
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the end
        return CLOSED
    except _TOLD as error:
        # How the parameters of the verb are written on the command line: --tolerance, MODEL.
        names = {
            p.name or "": p.opts[0] if p.opts[0].startswith("-") else p.opts[0].upper() for p in ctx.command.params
        }
        text, code = _explain(error, names)
        print(f"Error: {text}", file=sys.stderr)
        return code


def _explain(error: Exception, options: Mapping[str, str]) -> tuple[str, int]:
    """Return the message of an error with command-line options instead of argument names, and its exit code."""
    match error:
        case Usage():
            return str(error), error.code
        case db.ArgumentError():
            name = _OPTION_OF.get((error.function, error.argument)) or _OPTION_OF.get(error.argument, error.argument)
            return error.about(options.get(name, f"The {name.replace('_', ' ')}")), USAGE
        case db.CertificateError() | db.ToleranceError():
            return f"{error.message} {_what_may_help(error)}", NO_CERTIFICATE
        case db.BudgetError() if error.unit == "bytes" and "memory_limit" in options:
            return f"{error.message} {_less_memory(error.required)}", FAILED
        case db.BudgetError() if error.plan is not None or error.result is not None:
            return f"{error.message} {_HINTS[db.BudgetError]}", NO_CERTIFICATE
        case db.BudgetError():
            remedy = " Try another --method." if "method" in options else " Ask for fewer --steps."
            return error.message + (remedy if "method" in options or "steps" in options else ""), FAILED
        case db.FormatError():
            return f"{error.message} {_hint_for_file(error)}".rstrip(), FAILED
        case db.WorkerError():
            return error.message, FAILED
        case FileNotFoundError():
            return f"There is no file {error.filename}{_nearest_file(error.filename)}.", FAILED
        case IsADirectoryError():
            return f"{error.filename} is a directory, not a file.", FAILED
        case PermissionError():
            return f"No permission to use {error.filename}.", FAILED
        case OSError():
            return f"{error.filename or 'Output'}: {error.strerror or error}.", FAILED
    return str(error) or "Out of memory.", FAILED


def _what_may_help(error: db.CertificateError | db.ToleranceError) -> str:
    """Return the hint of an error about certificates, with options of the command line."""
    from dobrushin._fields.anchor import REMEDY

    if isinstance(error, db.CertificateError) and error.remedy == REMEDY:
        return REMEDY
    return _HINTS[type(error)]


def _less_memory(required: float) -> str:
    """Return a hint for a call that needs `required` bytes: a larger limit, or less work if too few are free."""
    from dobrushin._shared.memory import can_have_more

    less = "fix some variables with --evidence, or try another --method."
    return f"Allow more with --memory-limit, {less}" if can_have_more(required) else less[0].upper() + less[1:]


def _hint_for_file(error: db.FormatError) -> str:
    """Return the hint of an error about a file, in terms of the command line."""
    from dobrushin.io.source import ALLOW_MORE, SAVE_AS_UTF8

    hints = {
        ALLOW_MORE: "The limit is 1 GiB, or half of the free memory if that is more.",
        SAVE_AS_UTF8: SAVE_AS_UTF8,
        "read_evidence reads it.": "Give it with --evidence.",
    }
    return hints.get(error.hint, "")


def _nearest_file(name: Any) -> str:
    """Return a hint with the file in the same folder whose name is most similar."""
    folder, base = os.path.split(os.fsdecode(name or ""))
    with suppress(OSError):
        return hint(base, os.listdir(folder or "."))
    return ""
