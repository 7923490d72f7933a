"""Completion of options in the shell. Errors are ignored: nothing is offered then."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, get_args

import typer

from dobrushin._shared.call import watch
from dobrushin.typing import EstimateMethod, FitMethod, FitScan, InfluenceMethod, PartitionMethod

# Copies of the registries, which take long to import; a test compares them.
METHODS = get_args(EstimateMethod)
INFLUENCES = get_args(InfluenceMethod)
SCANS = ("systematic", "uniform", "greedy", "dogs")
PARTITIONS = get_args(PartitionMethod)
GRADIENTS, GRADIENT_SCANS = get_args(FitMethod), get_args(FitScan)
# Names that are offered at once, at most.
_MAX_NAMES = 200


def one_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a function that completes a word to one of these names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)][:_MAX_NAMES]

    return complete


def complete_experiment(incomplete: str) -> list[str]:
    """Offer the names of experiments that begin with the word."""
    from dobrushin.experiments.catalog import EXPERIMENTS

    return one_of(("all", *EXPERIMENTS))(incomplete)


def complete_target(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer variables of the model file on the command line, also after a comma."""
    done, comma, last = incomplete.rpartition(",")
    return [done + comma + name for name in one_of(_labels(_model(ctx)))(last)]


def complete_evidence(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer variables of the model file on the command line, and after "=" the states of the variable."""
    model = _model(ctx)
    done, comma, last = incomplete.rpartition(",")
    name, equals, state = last.rpartition("=")
    if not equals:
        names = one_of(_labels(model))(last)
        if len(names) != 1:
            return [f"{done}{comma}{label}=" for label in names]
        name, state = names[0], ""  # with its states, so that the shell puts no space behind the =
    label = next((label for label in model.labels if str(label) == name), None) if model is not None else None
    if label is None:
        return []
    states = one_of(map(str, model._called(model.index(label))))(state)
    return [f"{done}{comma}{name}={known}" for known in states]


def answer_bash(app: Callable[[], object], environ: MutableMapping[str, str]) -> None:
    """Print completions for bash, which splits words at = and :, and replaces only the text after the last split."""
    words, position = environ["COMP_WORDS"].split("\n"), int(environ["COMP_CWORD"])
    joined, behind = join_words(words[: position + 1])
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    typed = joined[-1]
    if typed.startswith("--") and "=" in typed:  # --evidence=smoke=y
        typed = typed.partition("=")[2]
    held = len(typed) - len(behind)
    offered = io.StringIO()
    try:
        with redirect_stdout(offered):
            app()
    finally:
        lines = offered.getvalue().splitlines()
        sys.stdout.write("".join(f"{line[held:]}\n" for line in lines))


def join_words(words: list[str]) -> tuple[list[str], str]:
    """Rejoin words that bash split at = and :; also return the part of the last word after its last split.

    Examples
    --------
    >>> join_words(["estimate", "--evidence", "rain", "=", "yes,roof", "=", "w"])
    (['estimate', '--evidence', 'rain=yes,roof=w'], 'w')
    """
    joined: list[str] = []
    behind, was_cut = "", False
    for word in words:
        is_cut = bool(word) and not word.strip("=:")
        if joined and (is_cut or was_cut):
            joined[-1] += word
        else:
            joined.append(word)
        behind = "" if is_cut else word
        was_cut = is_cut
    return joined, behind


def _model(ctx: typer.Context) -> Any:
    """Read the model file on the command line; return None if there is none that can be read."""
    with suppress(Exception), watch(False):  # a shell that completes must not be written into
        import dobrushin as db

        # Behind an option that has no value yet, arguments are not told apart.
        paths = [ctx.params.get("model"), *ctx.args]
        found = next(Path(path) for path in paths if path is not None and Path(path).exists())
        return db.open_model(found) if found.is_dir() else db.read(found)
    return None


def _labels(model: Any) -> list[str]:
    return [] if model is None else [str(label) for label, _ in zip(model.labels, range(10**5), strict=False)]
