"""What can stand behind an option, for the completion of the shell; quiet when something is wrong."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import typer

from dobrushin._shared.options import EstimateMethod, InfluenceMethod

# As the registries have them, which would take long to load; a test compares them.
METHODS = get_args(EstimateMethod)
INFLUENCES = get_args(InfluenceMethod)
SCANS = ("systematic", "uniform", "greedy", "dogs")
# More names than this help nobody.
_MOST = 200


def complete_method(incomplete: str) -> list[str]:
    """Methods of estimate."""
    return _begin(METHODS, incomplete)


def complete_influence(incomplete: str) -> list[str]:
    """Methods of influence."""
    return _begin(INFLUENCES, incomplete)


def complete_scan(incomplete: str) -> list[str]:
    """Scans by name."""
    return _begin(SCANS, incomplete)


def complete_experiment(incomplete: str) -> list[str]:
    """Names of experiments."""
    from dobrushin.experiments.catalog import EXPERIMENTS

    return _begin(("all", *EXPERIMENTS), incomplete)


def complete_target(ctx: typer.Context, incomplete: str) -> list[str]:
    """Variables of the model file that is on the line; behind a comma, too."""
    done, comma, last = incomplete.rpartition(",")
    return [done + comma + name for name in _begin(_labels(_model(ctx)), last)]


def complete_evidence(ctx: typer.Context, incomplete: str) -> list[str]:
    """Variables of the model file that is on the line, and behind = the states of the variable."""
    model = _model(ctx)
    done, comma, last = incomplete.rpartition(",")
    name, equals, state = last.rpartition("=")
    if not equals:
        return [f"{done}{comma}{label}=" for label in _begin(_labels(model), last)]
    label = next((label for label in model.labels if str(label) == name), None) if model is not None else None
    if label is None:
        return []
    states = _begin(map(str, model._called(model.index(label))), state)
    return [f"{done}{comma}{name}={known}" for known in states]


def _model(ctx: typer.Context) -> Any:
    """The model whose file is on the line; None if there is none that can be read."""
    with suppress(Exception):  # a shell that completes must not be written into
        import dobrushin as db

        # Behind an option that has no value yet, arguments are not told apart.
        paths = [ctx.params.get("model"), *ctx.args]
        return db.read(next(path for path in paths if path is not None and Path(path).is_file()))
    return None


def _labels(model: Any) -> list[str]:
    return [] if model is None else [str(label) for label, _ in zip(model.labels, range(10**5), strict=False)]


def _begin(names: Any, incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)][:_MOST]
