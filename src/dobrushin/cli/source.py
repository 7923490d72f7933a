"""Input of the verbs: a model file, its evidence, targets and scans as they are written on the command line."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dobrushin as db
from dobrushin._shared.text import hint
from dobrushin.cli.guard import Usage


@dataclass(frozen=True)
class Source:
    """A model file and the options that say how to read it; without a path, the example that a verb has."""

    path: Path | None
    evidence: Sequence[str] = ()
    beta: float | None = None
    example: Callable[[], db.Model] | None = None

    def read(self) -> db.Model:
        """Read the model in the file, or make the example."""
        if self.path is None:
            assert self.example is not None  # other verbs require a path
            return self.example()
        if self.path.is_dir():
            return self._open()
        if not self.path.exists():  # whatever its extension
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        from dobrushin._shared.memory import memory_limit
        from dobrushin.io.source import LIMIT

        limit = max(LIMIT, int(memory_limit(None) / 2))  # who names a file means it
        return (
            db.read(self.path, memory_limit=limit)
            if self.beta is None
            else db.read(self.path, memory_limit=limit, beta=self.beta)
        )

    def _open(self) -> db.Model:
        """Open the model in a folder."""
        assert self.path is not None
        if not (self.path / "manifest.json").exists():
            raise Usage(f"MODEL must be a file, or a folder that convert wrote. Got the directory {str(self.path)!r}.")
        if self.beta is not None:
            raise Usage(f"--beta is for files of energies, and {self.path} is a folder.")
        return db.open_model(self.path)

    def read_given(self) -> db.Model:
        """Read the model, given the evidence."""
        model = self.read()
        return model.condition(self.read_evidence(model))

    def read_evidence(self, model: db.Model) -> dict[Hashable, Any]:
        """Read evidence such as smoke=yes or 5=1, or a UAI evidence file."""
        given: dict[Hashable, Any] = {}
        for text in self.evidence:
            if "=" not in text:
                if not Path(text).exists():
                    raise Usage(f"--evidence must be label=state, as in 5=1, or a UAI evidence file. Got {text!r}.")
                given.update(self._file_evidence(text).items())
                continue
            for part in text.split(","):
                name, _, state = part.rpartition("=")
                if not name:
                    likely = ", or label=state:likelihood/state:likelihood" if ":" in part else ""
                    raise Usage(f"--evidence must be label=state, as in 5=1{likely}. Got {part!r}.")
                label = _label(model, name.strip(), "--evidence")
                if label in given:
                    raise Usage(f"--evidence must name each variable once. Got {name.strip()!r} twice.")
                given[label] = _read_state(model, label, state.strip())
        return given

    def uai_sizes(self) -> Any:
        """Return the number of states of each variable of a UAI file, even where it is 1; None for other files."""
        if self.path is None or ".uai" not in [suffix.lower() for suffix in self.path.suffixes]:
            return None
        return db.io.read_sizes(self.path)

    def _file_evidence(self, name: str) -> dict[int, int]:
        """Read evidence from a file, without variables of one state, which models leave out."""
        evidence = db.read_evidence(name)
        sizes = self.uai_sizes()
        if sizes is None:
            return evidence
        return {i: state for i, state in evidence.items() if not (i < len(sizes) and sizes[i] == 1 and state == 0)}


@dataclass(frozen=True)
class ScanChoice:
    """A scan by its name, or the file that `Scan.save` or `dobrushin optimize --save` wrote."""

    name: str
    steps: int | None

    def make(self, model: db.Model, targets: Any) -> db.Scan:
        """Make the scan for this model."""
        n = model.n_variables
        length = 100 * n if self.steps is None else self.steps
        ways = {
            "systematic": lambda: db.Scan.systematic(n, length),
            "uniform": lambda: db.Scan.uniform(n, length),
            "greedy": lambda: db.greedy_scan(model, targets, steps=length).scan,
            "dogs": lambda: db.optimize_scan(model, db.Scan.systematic(n, length), targets).scan,
        }
        if self.name in ways:
            return ways[self.name]()
        if not Path(self.name).exists():
            near = hint(self.name, ways)
            raise Usage(f"--scan must be {', '.join(ways)} or a file with a scan{near}. Got {self.name!r}.")
        scan = db.Scan.load(self.name)
        return scan if self.steps is None else scan[max(0, len(scan) - self.steps) :]


def read_targets(model: db.Model, texts: Sequence[str]) -> list[Hashable] | None:
    """Read labels, separated by commas or in several options; return None for no label and for "all"."""
    names = None if _are_numbers(model) else set(map(str, model.labels))
    parts: list[str] = []
    for text in texts:  # a name that contains commas is itself, if the model has it
        parts += [text] if names is not None and text in names else map(str.strip, text.split(","))
    if not parts or parts == ["all"]:
        return None
    return [_label(model, part, "--target") for part in parts]


def read_question(model: db.Model, text: str) -> Any:
    """Read a target of a field: label>number for a probability, or label@level for a quantile."""
    mark = ">" if ">" in text else "@"
    name, _, number = text.rpartition(mark)
    try:
        value = float(number)
    except ValueError:
        message = f"--target must be a label; or label>number or label@level for a field. Got {text!r}."
        raise Usage(message) from None
    label = _label(model, name.strip(), "--target")
    return db.Exceeds(label, value) if mark == ">" else db.Quantile(label, value)


def _are_numbers(model: db.Model) -> bool:
    from dobrushin._shared.validate import are_positions

    return are_positions(model.labels)


def _label(model: db.Model, name: str, option: str) -> Hashable:
    from dobrushin._shared.validate import expected_labels

    if _are_numbers(model):
        if name.isdecimal() and int(name) < model.n_variables:
            return int(name)
    else:
        for label in model.labels:
            if str(label) == name:
                return label
    raise Usage(f"{option} must name {expected_labels(model.labels, name)}. Got {name!r}.")


def _read_state(model: db.Model, label: Hashable, text: str) -> Any:
    """Read a state, likelihoods of states as in yes:0.7/no:0.3, or for fields a number."""
    if isinstance(model, db.GaussianField):
        try:
            return float(text)
        except ValueError:
            raise Usage(f"--evidence must be label=number for a field. Got {text!r} for {label!r}.") from None
    if ":" not in text or any(str(name) == text for name in model._called(model.index(label))):
        return _state(model, label, text)
    likelihoods = {}
    for part in text.split("/"):
        name, _, number = part.rpartition(":")
        try:
            likelihoods[_state(model, label, name.strip())] = float(number)
        except ValueError:
            message = f"--evidence must have numbers as likelihoods, as in yes:0.7/no:0.3. Got {part!r}."
            raise Usage(message) from None
    return likelihoods


def _state(model: db.Model, label: Hashable, text: str) -> Any:
    """Read a state by its name or by its number."""
    from dobrushin._models.state_names import expected_states, is_number_of_state

    i = model.index(label)
    names, states = model._names_at(i), model.states(i)
    for name in names or ():
        if str(name) == text:
            return name
    number = int(text) if text.lstrip("+-").isdecimal() else None
    if not is_number_of_state(number, states, names):
        raise Usage(f"--evidence must be {expected_states(model, i, text)}. Got {text!r}.")
    return number
