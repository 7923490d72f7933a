"""Reading a proof file: a zip of one JSON document and plain arrays. Nothing in it is believed."""

import hashlib
import io
import json
import math
import zipfile
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = "dobrushin proof 1"
# Bytes that the document may unpack to, numbers that all arrays together may hold, and names in a file.
MOST_TEXT, MOST_NUMBERS, MOST_MEMBERS = 2**26, 2**25, 100_000
KINDS = ("<f8", "<i8", "|i1", "<i2")
LINEAR = {"name": str, "slope": int, "offset": int, "divisor": int, "bounds": list}
WEIGHTS = {"weights": list}
# Questions: entries, and how what is claimed is called; the last six are about fields.
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "law": ({}, ""),
    "linear": (
        LINEAR,
        "mean of {name!r}, ({offset} + {slope} times the sum of states, from 0, of {shown}) / {divisor}",
    ),
    "distance": (WEIGHTS, "distance of the law of {shown}, weighted {weights}, after the scan from the model's"),
    "joint": ({}, "total variation of the law of {shown} after the scan from the field's"),
    "bias": (WEIGHTS, "bias after the scan of any function of {shown} with slopes {weights}"),
    "mean": ({}, "mean of {shown}"),
    "statistic": ({"name": str, **WEIGHTS}, "mean of {name!r}, a function of {shown} with slopes {weights}"),
    "event": ({"ends": list}, "probability of {shown} in {ends}"),
    "quantile": ({"level": float}, "{level} quantile of {shown}"),
}
Array = NDArray[Any]


class Rejected(Exception):
    """The proof does not hold, or cannot be read as one; the message says why in a sentence."""


def require(is_so: Any, why: str) -> None:
    if not is_so:
        raise Rejected(why)


def is_a(value: Any, kind: Any) -> bool:
    return type(value) is kind and (kind is not float or math.isfinite(value))


def fields(value: Any, where: str, **kinds: Any) -> None:
    """Reject what is no object with exactly these entries, of these kinds."""
    require(isinstance(value, dict), f"{where} is not an object.")
    wrong = sorted(name for name in {*value, *kinds} if not is_a(value.get(name), kinds.get(name)))
    require(not wrong, f"{where} has missing, unknown or wrong entries: {', '.join(wrong)}.")


def items(values: Any, kind: type, count: int | None = None) -> list[Any]:
    """A list of so many values of one kind."""
    fits = isinstance(values, list) and all(is_a(value, kind) for value in values)
    require(fits and count in (None, len(values)), "A list has the wrong length or kind.")
    return values


class Document:
    """The three parts of a proof: what was planned before anything was drawn, what was drawn, and what is claimed."""

    def __init__(self, content: bytes) -> None:
        self.arrays: dict[str, Array] = {}
        self.used: set[str] = set()
        archive = zipfile.ZipFile(io.BytesIO(content))
        names = archive.namelist()
        require(len(set(names)) == len(names) <= MOST_MEMBERS, "The file holds a name twice, or too many.")
        require("proof.json" in names, "The file is not a proof: it has no proof.json.")
        require(archive.getinfo("proof.json").file_size <= MOST_TEXT, "proof.json is too large.")
        left = MOST_NUMBERS
        for info in archive.infolist():
            name, is_array = info.filename.removesuffix(".npy"), info.filename.endswith(".npy")
            require((is_array and name.isidentifier()) or name == "proof.json", "The file holds strange names.")
            if is_array:
                require(info.file_size <= 8 * left, "The arrays are too large for the checker.")
                data = io.BytesIO(archive.read(info))
                array = np.lib.format.read_array(data, allow_pickle=False)
                fits = array.dtype.str in KINDS and array.ndim <= 3 and not data.read(1)
                require(fits, f"The array {name!r} is of a strange kind, or too long.")
                self.arrays[name], left = np.ascontiguousarray(array), left - array.size
        require(left >= 0, "The arrays are too large for the checker.")
        whole = json.loads(archive.read("proof.json"), object_pairs_hook=_object)
        fields(whole, "proof.json", format=str, plan=dict, outcomes=dict, claim=dict)
        require(whole["format"] == FORMAT, f"The format is {whole['format']!r}, and this reads {FORMAT!r}.")
        self.plan, self.outcomes, self.claim = whole["plan"], whole["outcomes"], whole["claim"]

    def array(self, name: Any, kind: str, *shape: int, drawn: bool = False) -> Array:
        """An array of this kind, of the plan or of the outcomes; -1 stands for any length."""
        fits = isinstance(name, str) and name in self.arrays and name.startswith("counts") == drawn
        require(fits, f"The array {name!r} is missing.")
        self.used.add(name)
        array = self.arrays[name]
        fits = array.dtype.kind == kind and array.ndim == len(shape)
        fits = fits and all(want in (-1, size) for want, size in zip(shape, array.shape, strict=True))
        require(fits, f"The array {name!r} has the wrong kind or shape.")
        return array.astype(np.int64) if kind == "i" else array

    def seed_of_plan(self) -> int:
        """The seed that follows from the plan and its arrays; those of the outcomes are called counts."""
        digest = hashlib.sha256(json.dumps(self.plan, sort_keys=True, separators=(",", ":")).encode())
        for name, array in sorted(self.arrays.items()):
            if not name.startswith("counts"):
                digest.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
        return int.from_bytes(digest.digest()[:16], "big")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    require(len(dict(pairs)) == len(pairs), "A name stands twice in proof.json.")
    return dict(pairs)


class Names:
    """How variables and their states are called: by name, and by number where that is another one."""

    def __init__(self, plan: dict[str, Any], positions: Array, states: list[int]) -> None:
        names = zip(items(plan["names"], str), positions.tolist(), strict=True)
        self.variables = [name if name == str(p) else f"{name!r} (variable {p} of the model)" for name, p in names]
        require(len(set(plan["names"])) == len(states), "The variables of the proof have no names of their own.")
        self.states = {int(v): items(called, str, states[int(v)]) for v, called in plan["states"].items()}

    def event(self, variables: list[int], digits: Any) -> str:
        pairs = [(self.states[v][d] if v in self.states else str(d), d) for v, d in zip(variables, digits, strict=True)]
        states = ", ".join(name if name == str(d) else f"{name!r} (state {d})" for name, d in pairs)
        return f"{', '.join(self.variables[v] for v in variables)} = {states}"


class Question:
    """The law of some variables, the mean of a linear statistic, a distance of laws; or one about a field."""

    def __init__(self, about: Any, states: list[int], names: Names) -> None:
        require(isinstance(about, dict) and about.get("kind") in QUESTIONS, "A question is of no known kind.")
        self.about, self.kind, self.names = about, about["kind"], names
        fields(about, "a question", kind=str, variables=list, **QUESTIONS[self.kind][0])
        self.variables = items(about["variables"], int)
        fits = 0 < len(set(self.variables)) == len(self.variables) and all(0 <= v < len(states) for v in self.variables)
        require(fits, "A question names no such variables.")
        self.sizes = [states[v] for v in self.variables]
        self.weights = items(about.get("weights", [1.0] * len(self.sizes)), float, len(self.sizes))
        require(min(self.weights) > 0.0, "A weight is not positive.")
        self.least, self.most = (-math.inf, math.inf) if self.kind in ("mean", "statistic", "quantile") else (0.0, 1.0)
        if self.kind == "linear":  # a whole number, and so many times the sum of the states, over a whole number
            self.name, self.slope, self.offset, self.divisor, bounds = (about[k] for k in LINEAR)
            self.least, self.most = items(bounds, float, 2)
            ends = [self.offset, self.offset + self.slope * (sum(self.sizes) - len(self.sizes))]
            fits = self.divisor > 0 and max(abs(self.slope), self.divisor, *map(abs, ends)) < 2**50
            require(fits and self.least < self.most, f"The statistic {self.name!r} is out of range.")
            fits = Fraction(self.least) * self.divisor <= min(ends) and max(ends) <= Fraction(self.most) * self.divisor
            require(fits, f"The values of {self.name!r} leave the bounds that are claimed for it.")
            self.weights = [abs(self.slope) * (size - 1) / self.divisor for size in self.sizes]
        elif self.kind in ("distance", "bias"):
            self.most = math.fsum(self.weights) if self.kind == "distance" else math.inf
        self.is_law, self.shown = self.kind == "law", ", ".join(names.variables[v] for v in self.variables)
        # How many intervals are claimed; how many have to hold at once: the chances of two states mirror each other.
        self.cells = math.prod(self.sizes) if self.is_law else 0
        self.rows, self.intervals = max(1, self.cells), self.cells if self.cells > 2 else 1
        self.span = self.most - self.least  # how far the answer can be off at all

    def bias(self, bounds: dict[int, float]) -> float:
        """How far each row can be off, given bounds on what variables are off."""
        terms = (weight * bounds.get(v, 1.0) for weight, v in zip(self.weights, self.variables, strict=True))
        return min(self.span, math.fsum(terms) * (1.0 + 1e-15))

    def value(self, digits: Array) -> Array:
        return (self.offset + self.slope * digits.sum(axis=0, dtype=np.int64)) / self.divisor

    def titles(self) -> list[str]:
        """What each row is."""
        if not self.is_law:
            return [QUESTIONS[self.kind][1].format(**self.about, shown=self.shown)]
        events = (self.names.event(self.variables, digits) for digits in product(*map(range, self.sizes)))
        return [f"probability of {event}" for event in events]
