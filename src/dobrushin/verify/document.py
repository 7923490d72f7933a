"""Reading files: proofs, which are a zip of one JSON document and plain arrays; and models to compare them with."""

import gzip
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = "dobrushin proof 1"
# Bytes that the document may unpack to, numbers that all arrays together may hold, and names in a file.
MOST_TEXT, MOST_NUMBERS, MOST_MEMBERS = 2**26, 2**25, 100_000
KINDS = ("<f8", "<i8", "|i1", "<i2")
LINEAR = {"name": str, "slope": int, "offset": int, "divisor": int, "bounds": list}
WEIGHTS = {"weights": list}
# Questions: entries, and how what is claimed is called; the last seven are about fields.
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "law": ({}, ""),
    "linear": (LINEAR, "mean of {name!r}, ({offset} + {slope} times the states (from 0) of {shown}) / {divisor}"),
    "distance": (WEIGHTS, "distance of the law of {shown}, weighted {weights}, after the scan from the model's"),
    "joint": ({}, "total variation of the law of {shown} after the scan from the model's"),
    "bias": (WEIGHTS, "bias after the scan of any function of {shown} with slopes {weights}"),
    "mean": ({}, "mean of {shown}"),
    "statistic": ({"name": str, **WEIGHTS}, "mean of {name!r}, a function of {shown} with slopes {weights}"),
    "above": ({"threshold": float}, "probability of {shown} > {threshold}"),
    "between": ({"low": float, "high": float}, "probability of {low} <= {shown} <= {high}"),
    "quantile": ({"level": float}, "{level} quantile of {shown}"),
}
Array = NDArray[Any]
Factor = tuple[tuple[int, ...], Array]  # variables and log-table
Known = tuple[Array, Iterable[Factor]]  # numbers of states, and the factors that touch some positions
FAMILIES = ("Ising", "Potts", "SpinMRF", "PairwiseMRF", "FactorGraph", "GaussianField")
TERMS = ("diagonal", "linear", "exposure", "trials", "lower", "upper")  # of a variable of a field
SAME = 1e-14  # logarithms of the same weight differ by this much at most, or by this share, but by no more than 1e-11


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
        self.arrays, self.used = dict[str, Array](), set[str]()
        archive = zipfile.ZipFile(io.BytesIO(content))
        names, left = {info.filename for info in archive.infolist() if info.compress_type in (0, 8)}, MOST_NUMBERS
        fits = len(names) == len(archive.infolist()) <= MOST_MEMBERS and "proof.json" in names
        require(fits, "The file is no proof: a name is missing, twice or one too many, or it is packed strangely.")
        require(archive.getinfo("proof.json").file_size <= MOST_TEXT, "The document is too large for the checker.")
        for info in archive.infolist():
            name, is_array = info.filename.removesuffix(".npy"), info.filename.endswith(".npy")
            require((is_array and name.isidentifier()) or name == "proof.json", "The file holds strange names.")
            if is_array:
                require(info.file_size <= 8 * left, "The arrays are too large for the checker.")
                data = io.BytesIO(archive.open(info).read(info.file_size))  # more is not unpacked
                array = np.lib.format.read_array(data, allow_pickle=False)
                fits = array.dtype.str in KINDS and array.ndim <= 3 and not data.read(1)
                require(fits, f"The array {name!r} is of a strange kind, or too long.")
                self.arrays[name], left = np.ascontiguousarray(array), left - array.size
        require(left >= 0, "The arrays are too large for the checker.")
        whole = json.loads(archive.open("proof.json").read(MOST_TEXT), object_pairs_hook=_object)
        fields(whole, "proof.json", format=str, plan=dict, outcomes=dict, claim=dict)
        require(whole["format"] == FORMAT, f"The format is {whole['format']!r}, and this reads {FORMAT!r}.")
        self.plan, self.outcomes, self.claim = whole["plan"], whole["outcomes"], whole["claim"]

    def array(self, name: str, kind: str, *shape: int, drawn: bool = False) -> Array:
        """An array of this kind, of the plan or of the outcomes; -1 stands for any length."""
        require(name in self.arrays and name.startswith("counts") == drawn, f"The array {name!r} is missing.")
        self.used.add(name)
        array = self.arrays[name]
        fits = array.ndim == len(shape) and all(want in (-1, is_) for want, is_ in zip(shape, array.shape, strict=True))
        require(fits and array.dtype.kind == kind, f"The array {name!r} has the wrong kind or shape.")
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
        self.least = -math.inf if self.kind in ("mean", "statistic", "quantile") else 0.0
        self.most = {"distance": math.fsum(self.weights), "bias": math.inf}.get(self.kind, 1.0 - self.least)
        if self.kind == "linear":  # a whole number, and so many times the sum of the states, over a whole number
            self.name, self.slope, self.offset, self.divisor, bounds = (about[k] for k in LINEAR)
            self.least, self.most = items(bounds, float, 2)
            ends = [self.offset, self.offset + self.slope * (sum(self.sizes) - len(self.sizes))]
            fits = self.divisor > 0 and max(abs(self.slope), self.divisor, *map(abs, ends)) < 2**50
            require(fits and self.least < self.most, f"The statistic {self.name!r} is out of range.")
            fits = Fraction(self.least) * self.divisor <= min(ends) and max(ends) <= Fraction(self.most) * self.divisor
            require(fits, f"The values of {self.name!r} leave the bounds that are claimed for it.")
            self.weights = [abs(self.slope) * (size - 1) / self.divisor for size in self.sizes]
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


def cut(table: Array, scopes: Iterable[tuple[int, ...]], states: Sequence[int] | Array) -> list[Array]:
    """The tables over some variables that stand one after the other."""
    shapes = [[int(states[v]) for v in scope] for scope in scopes]
    ends = [0, *accumulate(map(math.prod, shapes))]
    require(ends[-1] == len(table), "The tables are too short, or too long.")
    return [table[a:b].reshape(shape) for a, b, shape in zip(ends, ends[1:], shapes, strict=False)]


def compare(proof: Any, path: str) -> str:
    """Reject unless the factors of a proof are those of the file; what is then still to be assumed."""
    inside = np.array(sorted(int(proof.positions[v]) for v in proof.closed))
    touched = set(inside.tolist())
    reader = _read_folder if Path(path).is_dir() else _read_npz if path.endswith(".npz") else _read_uai
    states, factors = reader(path, inside)
    there = _merge(factors, touched)
    require(len(states) == proof.plan["variables"], f"{path} has another number of variables.")
    require(np.array_equal(np.asarray(states)[proof.positions], proof.states), f"{path} has other states.")
    stated = [*proof.stated.pairs, *proof.own]
    here = _merge(((tuple(proof.positions[list(scope)].tolist()), table) for scope, table in stated), touched)
    require(here.keys() == there.keys(), f"{path} has other factors at the variables of the proof.")
    for scope, table in here.items():
        with np.errstate(invalid="ignore"):
            near = np.abs(table - there[scope]) <= SAME * np.clip(np.abs(there[scope]), 1.0, 1e3) * (not proof.own)
        same = np.all((table == there[scope]) | near & np.isfinite(there[scope]))
        require(same, f"{path} has another factor over the variables {scope}.")
    if proof.own:  # boxes that nothing else is known of count as well; or a value in them is given
        low, high = (np.load(path)[name][proof.positions] for name in TERMS[4:])
        least, most = proof.array(proof.plan["parts"][0]["sites"], "f", -1, -1)[4:6]
        fits = (low == least) & (high == most) | (low <= least) & (least == most) & (most <= high)
        require(fits.all(), f"{path} has other boxes.")
    proof.checked.append(f"the factors at {len(inside)} variables are those of {path} without variables of one state")
    return f"the model is that of {path}"


def _merge(factors: Iterable[Factor], touched: set[int]) -> dict[tuple[int, ...], Array]:
    """Factors that touch some variables, those over the same ones added up, in increasing order; without zeros."""
    parts: dict[tuple[int, ...], list[Array]] = {}
    for scope, table in (factor for factor in factors if touched & set(factor[0])):
        order = sorted(range(len(scope)), key=scope.__getitem__)
        parts.setdefault(tuple(scope[k] for k in order), []).append(np.transpose(table, order))
    # Sums are rounded once: what a large number hides would be in the law, and not in the comparison.
    sums = {k: t[0] if len(t) == 1 else np.apply_along_axis(math.fsum, 0, np.stack(t)) for k, t in parts.items()}
    return {scope: table for scope, table in sums.items() if table.any()}


def _read_uai(path: str, inside: Array) -> Known:
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path, encoding="ascii") as file:
        words = iter(" ".join(line.partition("#")[0] for line in file).split())  # pyAgrum writes comments
    require((kind := next(words)) in ("MARKOV", "BAYES"), f"{path} is no UAI file.")
    states = np.array([int(next(words)) for _ in range(int(next(words)))])
    scopes = [[int(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))]
    position = np.cumsum(states > 1) - 1  # variables with one state are left out
    touched, factors = set(inside.tolist()), []
    for scope in scopes:
        table = np.array([float(next(words)) for _ in range(int(next(words)))]).reshape([states[v] for v in scope])
        if kind == "BAYES":  # the chances of the last variable given the others may be rounded
            sums = table.sum(axis=-1, keepdims=True)
            table = table / sums if np.all(np.abs(sums - 1.0) <= 1e-5) else table
        free = tuple(int(position[v]) for v in scope if states[v] > 1)
        if touched & set(free):
            with np.errstate(divide="ignore"):
                factors.append((free, np.log(table).reshape([states[v] for v in scope if states[v] > 1])))
    return states[states > 1], factors


def _read_npz(path: str, inside: Array) -> Known:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    family = arrays["format"].tobytes().decode().removeprefix("dobrushin model 1 ")
    require(family in FAMILIES, f"{path} holds no known family.")
    ends = np.cumsum(arrays.get("arity", ())).astype(int).tolist()
    scopes = [tuple(arrays["scope"][a:b].tolist()) for a, b in zip([0, *ends], ends, strict=False)]
    if "i" in arrays:
        is_near = np.isin(arrays["i"], inside) | np.isin(arrays["j"], inside) | (family == "PairwiseMRF")
        scopes = list(zip(arrays["i"][is_near].tolist(), arrays["j"][is_near].tolist(), strict=True))
    if family == "GaussianField":  # own terms and levels, and what a coupling is on the values 0 and 1
        values = np.split(arrays["values"], arrays["value_start"][1:-1])
        own = [((i,), np.array([*(arrays[name][i] for name in TERMS), *values[i]])) for i in inside.tolist()]
        pairs = zip(scopes, arrays["couplings"][is_near], strict=True)
        return np.full(len(values), 2), [*own, *((pair, np.array([[0.0, 0.0], [0.0, -q]])) for pair, q in pairs)]
    if family in ("Ising", "SpinMRF"):
        strengths = arrays["couplings"][is_near] if family == "Ising" else arrays["strengths"]
        return np.full(len(arrays["fields"]), 2), _lower(inside, arrays["fields"], scopes, strengths, 0)
    if family == "Potts":
        n, states = arrays["size"].tolist()
        own = arrays.get("unaries", np.empty(0)).reshape(-1, states)
        return np.full(n, states), _lower(inside, own, scopes, arrays["couplings"][is_near], states)
    sizes, tables = arrays["cardinalities"], arrays["tables"]
    if family == "PairwiseMRF":
        scopes += [(i,) for i in range(len(sizes))]
        tables = np.concatenate([tables.ravel(), arrays["unaries"].ravel()])
    return sizes, zip(scopes, cut(tables, scopes, sizes), strict=True)


def _read_folder(path: str, inside: Array) -> Known:
    states = int(json.loads((Path(path) / "manifest.json").read_text())["states"])
    load = {name: Path(path) / f"{name}.npy" for name in ("start", "neighbor", "coupling", "potential")}
    arrays = {name: np.load(file, mmap_mode="r") for name, file in load.items() if file.exists()}
    edges = {}
    for i in inside.tolist():
        own = slice(int(arrays["start"][i]), int(arrays["start"][i + 1]))
        for j, value in zip(arrays["neighbor"][own].tolist(), arrays["coupling"][own].tolist(), strict=True):
            edges[min(i, j), max(i, j)] = value
    factors = _lower(inside, arrays.get("potential", np.empty(0)), edges, edges.values(), states)
    return np.broadcast_to(np.int64(states or 2), len(arrays["start"]) - 1), factors


def _lower(inside: Array, own: Any, scopes: Iterable[Any], strengths: Iterable[Any], states: int) -> Iterator[Factor]:
    """Own log-weights, and strengths times the product of spins, -1 and +1 (no states); or where labels are equal."""
    for i in inside.tolist() if len(own) else ():
        yield (i,), np.array(own[i]) if states else np.array([-own[i], own[i]])
    for scope, value in zip(scopes, strengths, strict=True):
        spins = 2.0 * np.indices((2,) * len(scope)) - 1.0
        yield scope, float(value) * (np.eye(states) if states else np.prod(spins, axis=0))
