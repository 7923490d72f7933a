"""Read what verbs take on the command line: models, evidence, targets and scans."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Hashable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import dobrushin as db
from dobrushin._shared.text import hint
from dobrushin.cli.output import Usage


def read_model(path: Path, beta: float | None = None) -> db.Model:
    """Read the model in a file or folder."""
    if path.is_dir():
        if not (path / "manifest.json").exists():
            raise Usage(f"MODEL must be a file, or a folder that convert wrote. Got the directory {str(path)!r}.")
        if beta is not None:
            raise Usage(f"--beta is for files of energies, and {path} is a folder.")
        return db.open_model(path)
    if not path.exists():  # whatever its extension
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    from dobrushin._shared.memory import memory_limit
    from dobrushin.io.source import LIMIT

    limit = max(LIMIT, int(memory_limit(None) / 2))  # a user who names a large file means it
    options: Any = {} if beta is None else {"beta": beta}
    return db.read(path, memory_limit=limit, **options)


def read_given(path: Path, evidence: Sequence[str] | None, beta: float | None) -> db.Model:
    """Read the model in a file or folder, and condition it on the evidence."""
    model = read_model(path, beta)
    return model.condition(read_evidence(model, path, evidence))


def read_evidence(model: db.Model, path: Path | None, texts: Sequence[str] | None) -> dict[Hashable, Any]:
    """Read evidence written as smoke=yes or 5=1, or a UAI evidence file, about the model of the file `path`."""
    given: dict[Hashable, Any] = {}
    for text in texts or ():
        if "=" not in text:
            if not Path(text).exists():
                raise Usage(f"--evidence must be label=state, as in 5=1, or a UAI evidence file. Got {text!r}.")
            sizes = uai_sizes(path)
            states = db.read_evidence(text).items()
            # Models leave out variables of one state.
            given |= {i: s for i, s in states if sizes is None or i >= len(sizes) or sizes[i] > 1 or s != 0}
            continue
        for part in text.split(","):
            name, _, state = part.rpartition("=")
            if not name:
                likely = ", or label=state:likelihood/state:likelihood" if ":" in part else ""
                raise Usage(f"--evidence must be label=state, as in 5=1{likely}. Got {part!r}.")
            label = _read_label(model, name, "--evidence")
            if label in given:
                raise Usage(f"--evidence must name each variable once. Got {name.strip()!r} twice.")
            given[label] = _read_state(model, label, state.strip())
    return given


def uai_sizes(path: Path | None) -> Any:
    """Return the number of states, which may be 1, of each variable of a UAI file; None for other files."""
    if path is None or ".uai" not in [suffix.lower() for suffix in path.suffixes]:
        return None
    return db.io.read_sizes(path)


def read_scan(name: str, model: db.Model, targets: Any, steps: int | None) -> db.Scan:
    """Make a scan by its name ("systematic", ...), or read a scan file written by `dobrushin optimize --save`."""
    n = model.n_variables
    length = 100 * n if steps is None else steps
    ways = {
        "systematic": lambda: db.Scan.systematic(n, length),
        "uniform": lambda: db.Scan.uniform(n, length),
        "greedy": lambda: db.greedy_scan(model, targets, steps=length).scan,
        "dogs": lambda: db.optimize_scan(model, db.Scan.systematic(n, length), targets).scan,
    }
    if name in ways:
        return ways[name]()
    if not Path(name).exists():
        raise Usage(f"--scan must be {', '.join(ways)} or a file with a scan{hint(name, ways)}. Got {name!r}.")
    scan = db.Scan.load(name)
    return scan if steps is None else scan[max(0, len(scan) - steps) :]


def read_targets(model: db.Model, texts: Sequence[str] | None, *, questions: bool = False) -> list[Any] | None:
    """Read targets, separated by commas or in several options; return None for none and for "all".

    With `questions`, also read joint targets ("a & b") and, for fields, label>number (a probability) and label@level (a
    quantile). A text that is the name of a variable stands for the variable, even if it contains such signs.
    """
    names = set() if _are_numbers(model) else set(map(str, model.labels))
    parts = [part for text in texts or () for part in ([text] if text in names else map(str.strip, text.split(",")))]
    if not parts or parts == ["all"]:
        return None
    targets: list[Any] = []
    for part in parts:
        sign = next((sign for sign in ">@&" if questions and sign in part and part not in names), "")
        if not sign:
            targets.append(_read_label(model, part, "--target"))
        elif sign == "&":
            targets.append(db.Joint(*(_read_label(model, name, "--target") for name in part.split("&"))))
        else:
            name, _, number = part.rpartition(sign)
            message = f"--target must be a label; or label>number or label@level for a field. Got {part!r}."
            value = _read_number(number, message)
            label = _read_label(model, name, "--target")
            targets.append(db.Exceeds(label, value) if sign == ">" else db.Quantile(label, value))
    return targets


def _are_numbers(model: db.Model) -> bool:
    from dobrushin._shared.validate import are_positions

    return are_positions(model.labels)


def _read_label(model: db.Model, text: str, option: str) -> Hashable:
    from dobrushin._shared.validate import expected_labels

    name = text.strip()
    if _are_numbers(model):
        if name.isdecimal() and int(name) < model.n_variables:
            return int(name)
    else:
        for label in model.labels:
            if str(label) == name:
                return label
    raise Usage(f"{option} must name {expected_labels(model.labels, name)}. Got {name!r}.")


def _read_state(model: db.Model, label: Hashable, text: str) -> Any:
    """Read a state, likelihoods of states (yes:0.7/no:0.3), or for fields a number."""
    if not model._is_discrete:
        return _read_number(text, f"--evidence must be label=number for a field. Got {text!r} for {label!r}.")
    i = model.index(label)
    if ":" not in text or any(str(name) == text for name in model._called(i)):
        return _read_name(model, i, text)
    likelihoods = {}
    for part in text.split("/"):
        name, _, number = part.rpartition(":")
        message = f"--evidence must have numbers as likelihoods, as in yes:0.7/no:0.3. Got {part!r}."
        likelihoods[_read_name(model, i, name.strip())] = _read_decimal(number, message)
    return likelihoods


def _read_number(text: str, message: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Usage(message) from None


def _read_decimal(text: str, message: str) -> Decimal | float:
    """Read a decimal number exactly; `message` is the error if the text is none."""
    value = _read_number(text, message)
    try:
        return Decimal(text.strip()) if math.isfinite(value) else value
    except InvalidOperation:  # an exponent of many digits
        raise Usage(message) from None


def _read_name(model: db.Model, i: int, text: str) -> Any:
    """Return a state, given by its name or its number."""
    from dobrushin._models.state_names import expected_states, is_number_of_state

    names = model._names_at(i)
    for name in names or ():
        if str(name) == text:
            return name
    number = int(text) if text.lstrip("+-").isdecimal() else None
    if not is_number_of_state(number, model.states(i), names):
        raise Usage(f"--evidence must be {expected_states(model, i, text)}. Got {text!r}.")
    return number
