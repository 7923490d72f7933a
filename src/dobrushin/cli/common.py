"""What the verbs share: reading models, targets and evidence; printing; errors as one sentence and an exit code."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

import dobrushin as db

CERTIFIED, FAILED, USAGE, NO_CERTIFICATE, INTERRUPTED = 0, 1, 2, 3, 130
# Wide enough for the tables where the output is not a terminal.
_WIDTH = 120


class Usage(Exception):
    """An option that cannot be used."""


def guarded(run: Callable[[], int]) -> int:
    """Run a verb; what goes wrong becomes one sentence on stderr and an exit code."""
    try:
        with warnings.catch_warnings():
            # A bound that says nothing is marked in what is printed.
            warnings.simplefilter("ignore", db.VacuousBoundWarning)
            return run()
    except KeyboardInterrupt as interruption:
        print(interruption if str(interruption) else "Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except (Usage, db.ArgumentError) as error:
        return _say(error, USAGE)
    except (db.CertificateError, db.ToleranceError, db.CoalescenceError) as error:
        return _say(error, NO_CERTIFICATE)
    except db.BudgetError as error:
        return _say(error, NO_CERTIFICATE if error.plan is not None else FAILED)
    except FileNotFoundError as error:
        return _say(f"There is no file {error.filename}.", FAILED)
    except IsADirectoryError as error:
        return _say(f"{error.filename} is a directory, not a file.", FAILED)
    except PermissionError as error:
        return _say(f"No permission to use {error.filename}.", FAILED)
    except OSError as error:
        return _say(f"{error.filename or 'Output'}: {error.strerror or error}.", FAILED)
    except (db.FormatError, db.WorkerError, ImportError, MemoryError, ValueError) as error:
        return _say(error or "Out of memory.", FAILED)


def _say(error: object, code: int) -> int:
    print(f"Error: {error}", file=sys.stderr)
    return code


def read_model(path: Path, beta: float | None = None) -> db.Model:
    """The model in a file."""
    if path.is_dir():
        raise Usage(f"The model must be a file. {path} is a directory.")
    return db.read(path) if beta is None else db.read(path, beta=beta)


def read_targets(model: db.Model, words: Sequence[str]) -> list[Hashable] | None:
    """Labels named on the command line, separated by commas or in several options; None if there are none or "all"."""
    parts = [part.strip() for word in words for part in _split(model, word)]
    if not parts or parts == ["all"]:
        return None
    return [_label(model, part, "--target") for part in parts]


def read_evidence(model: db.Model, words: Sequence[str], path: Path | None) -> dict[Hashable, int]:
    """Evidence such as 5=1, or the name of a UAI evidence file."""
    names = state_names(path)
    given: dict[Hashable, int] = {}
    for word in words:
        if "=" not in word:
            if not Path(word).exists():
                raise Usage(f"--evidence must be label=state, as in 5=1, or a UAI evidence file. Got {word!r}.")
            given.update(_file_evidence(word, path).items())
            continue
        for part in word.split(","):
            name, _, state = part.rpartition("=")
            if not name:
                raise Usage(f"--evidence must be label=state, as in 5=1. Got {part!r}.")
            label = _label(model, name.strip(), "--evidence")
            if label in given:
                raise Usage(f"--evidence must name each variable once. Got {name.strip()!r} twice.")
            given[label] = _state(model, label, state.strip(), names.get(str(label), []))
    return given


def is_uai(path: Path | None) -> bool:
    """Whether a file is a UAI model."""
    return path is not None and ".uai" in [suffix.lower() for suffix in path.suffixes]


def _file_evidence(word: str, path: Path | None) -> dict[int, int]:
    """Evidence from a file; what it says of variables with one state, which models leave out, says nothing."""
    found = db.read_evidence(word)
    if path is None or not is_uai(path):
        return found
    sizes = db.io.read_sizes(path)
    return {i: state for i, state in found.items() if not (i < len(sizes) and sizes[i] == 1 and state == 0)}


def _split(model: db.Model, word: str) -> list[str]:
    """A name that contains commas is itself, if the model has it."""
    return [word] if not isinstance(model.labels, range) and word in map(str, model.labels) else word.split(",")


def _label(model: db.Model, word: str, option: str) -> Hashable:
    if isinstance(model.labels, range):
        if word.isdecimal() and int(word) < model.n_variables:
            return int(word)
    else:
        for label in model.labels:
            if str(label) == word:
                return label
    from dobrushin._shared.validate import expected_labels

    raise Usage(f"{option} must name {expected_labels(model.labels)}. Got {word!r}.")


def _state(model: db.Model, label: Hashable, word: str, names: Sequence[str]) -> int:
    if word in names:
        return list(names).index(word)
    states = model.states(model.index(label))
    try:
        state = int(word)
    except ValueError:
        state = None
    if state is None or state not in states:
        known = ", ".join(names) if names else ("-1, 1" if states.step == 2 else f"0 to {len(states) - 1}")
        raise Usage(f"--evidence must give {label!s} one of its states ({known}). Got {word!r}.")
    return state


def state_names(path: Path | None) -> dict[str, Any]:
    """Names of states that a Bayesian network file has."""
    if path is None or ".bif" not in path.suffixes:
        return {}
    return {str(label): list(names) for label, names in db.io.state_names(path).items()}


def make_scan(model: db.Model, name: str, steps: int | None, targets: Any) -> db.Scan:
    """A scan by its name, or from a file that `Scan.save` or `dobrushin optimize --save` wrote."""
    n = model.n_variables
    length = 100 * n if steps is None else steps
    if name == "systematic":
        return db.Scan.systematic(n, length)
    if name == "uniform":
        return db.Scan.uniform(n, length)
    if name == "greedy":
        return db.greedy_scan(model, targets, steps=length).scan
    if name == "dogs":
        return db.optimize(model, db.Scan.systematic(n, length), targets).scan
    if not Path(name).exists():
        raise Usage(f"--scan must be systematic, uniform, greedy, dogs or a file with a scan. Got {name!r}.")
    scan = db.Scan.load(name)
    return scan if steps is None else scan[max(0, len(scan) - steps) :]


def console() -> Console:
    """Where tables go."""
    made = Console()
    return made if made.is_terminal else Console(width=_WIDTH)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """A table whose numbers stand at the right, under its title."""
    made = Table()
    for k, column in enumerate(columns):
        made.add_column(column, justify="left" if k == 0 else "right")
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    return Group(escape(title), made)


def show(value: Any, as_json: bool, quiet: bool, text: Callable[[], Any]) -> None:
    """Print a result: JSON for programs, a table or words for people, nothing if told so."""
    if as_json:
        print(value if isinstance(value, str) else json.dumps(value, indent=1, default=str))
    elif not quiet:
        shown = text()
        console().print(shown, markup=not isinstance(shown, str), highlight=False)


def wants_progress(quiet: bool, as_json: bool) -> bool:
    """Whether somebody is looking."""
    return not quiet and not as_json and sys.stderr.isatty()
