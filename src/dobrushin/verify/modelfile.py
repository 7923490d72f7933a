"""Read a model file, and compare its tables with those of a proof.

Logarithms are rounded, and differently by different programs. So tables need not be equal: their
difference, up to a constant, is bounded, and the bounds are added up and charged to the claim.
"""

import gzip
import json
import math
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dobrushin.verify.document import (
    Array,
    Budget,
    NotComparable,
    TooLarge,
    read_array,
    read_zip,
    require,
)
from dobrushin.verify.model import UNIT, cut, largest

FAMILIES = ("Ising", "Potts", "SpinMRF", "PairwiseMRF", "FactorGraph", "GaussianField")
TERMS = ("diagonal", "linear", "exposure", "trials", "lower", "upper")  # of a variable of a field
NUMERIC = ("<f8", "<i8", "<i4", "|i1", "<i2", "|u1")
LARGEST_DRIFT = 1e-9  # two tables that differ by more are called different
# Rows of probabilities that miss 1 by less than the first, for each state, are right; those that
# miss it by less than the second are rounded, and divided by their sum; others stay as they are.
RIGHT, ROUNDED = 1e-15, 1e-5
COMMENT_OR_WORD = re.compile(rb"#[^\n]*|[^\s#]+")
TOKEN = re.compile(r'\s+|//[^\n]*|/\*[\s\S]*?\*/|("[^"]*"|[{}()\[\];,|]|[^\s{}()\[\];,|"]+)')
Scope = tuple[int, ...]
Logs = tuple[Scope, Array, float]  # scope, log-table, and how far an entry may be off


class ModelFile(NamedTuple):
    """Numbers of states, factors near some variables, and names where the file has any."""

    states: Any
    factors: Iterable[Logs]
    names: Sequence[str] = ()
    state_names: Sequence[Sequence[str]] = ()
    # Of a field, which has to be the same: numbers of single variables, least and largest values.
    field: tuple[dict[int, Array], Array, Array] | None = None


class Reference:
    """The tables of a model file beside those of a proof, by their scopes in the model."""

    def __init__(self, proof: Any, path: str) -> None:
        self.path, self.proof, self.budget = path, proof, proof.budget
        self.known: dict[Scope, float] = {}
        try:
            self.file = read_model_file(path, proof.positions, proof.budget)
            self.there = self._by_scope(self.file.factors)
        except (NotComparable, TooLarge):
            raise
        except Exception as error:  # a damaged file can raise anything
            what = f"{path} cannot be read as a model file"
            raise NotComparable(f"{what} ({type(error).__name__}: {error}).") from None
        at, pairs = proof.positions.tolist(), proof.stated.pairs
        self.here = self._by_scope((tuple(at[v] for v in scope), log, 0.0) for scope, log in pairs)
        self.touching: dict[int, set[Scope]] = defaultdict(set)
        for scope in {*self.here, *self.there}:
            for position in scope:
                self.touching[position].add(scope)
        self._compare_variables()

    def _by_scope(self, factors: Iterable[Logs]) -> dict[Scope, list[tuple[Array, float]]]:
        """Collect tables with axes in increasing order of their variables."""
        found = defaultdict[Scope, list[tuple[Array, float]]](list)
        inside = set(self.proof.positions.tolist())
        for scope, table, error in factors:
            self.budget.charge("the tables of the model file", 2e-5)
            if not inside.isdisjoint(scope):
                order = sorted(range(len(scope)), key=scope.__getitem__)
                found[tuple(scope[k] for k in order)].append((np.transpose(table, order), error))
        return dict(found)

    def _compare_variables(self) -> None:
        proof, file, path, positions = self.proof, self.file, self.path, self.proof.positions
        is_long = len(file.states) == proof.plan["variables"]
        require(is_long, f"{path} has another number of variables.")
        is_same = np.array_equal(np.asarray(file.states[positions]), proof.states)
        require(is_same, f"{path} has other numbers of states.")
        for v, position in enumerate(positions.tolist() if file.names else ()):
            named = proof.names.states.get(v, file.state_names[position])
            is_same = file.names[position] == proof.names.plain[v]
            require(is_same, f"{path} has another name for variable {position}.")
            why = f"{path} has other names for the states of variable {position}."
            require([*named] == [*file.state_names[position]], why)

    def drift(self, variables: Iterable[int]) -> float:
        """Bound how far log-densities differ, up to a constant, by factors at some variables."""
        require(self.file.field is None, f"{self.path} holds a field.")
        return self._drift_at(variables, LARGEST_DRIFT)

    def compare_field(self, singles: dict[int, Array], low: Array, high: Array) -> None:
        """Compare the factors of some variables of a field, which must be equal, and all boxes.

        Boxes that nothing else is known of count as well; or a value in them is given.
        """
        require(self.file.field, f"{self.path} holds no field.")
        there, least, most = self.file.field or ({}, low, high)
        positions = self.proof.positions
        for v, numbers in singles.items():
            why = f"{self.path} has another factor over the variable {positions[v]}."
            require(np.array_equal(there[int(positions[v])], numbers), why)
        self._drift_at(singles, 0.0)
        least, most = least[positions], most[positions]
        is_given = (least <= low) & (low == high) & (high <= most)
        require(((least == low) & (most == high) | is_given).all(), f"{self.path} has other boxes.")

    def _drift_at(self, variables: Iterable[int], limit: float) -> float:
        positions = self.proof.positions.tolist()
        scopes = {scope for v in variables for scope in self.touching.get(positions[v], ())}
        for scope in scopes - self.known.keys():
            drift, names = self._drift_of(scope), ", ".join(map(str, scope))
            require(drift <= limit, f"{self.path} has another factor over the variables {names}.")
            self.known[scope] = drift
        return math.fsum(self.known[scope] for scope in scopes)

    def _drift_of(self, scope: Scope) -> float:
        """Bound the range of the difference of two sums of tables, where nothing is forbidden.

        A constant changes no law. So each table is taken relative to its first entry.
        """
        here, there = self.here.get(scope, []), self.there.get(scope, [])
        error = 2.0 * math.fsum(error for _, error in there)
        shape, forbidden = (*here, *there)[0][0].shape, []
        for side in (here, there):
            tables = [np.isneginf(table) for table, _ in side]
            forbidden.append(np.any([np.zeros(shape, dtype=bool), *tables], axis=0))
        if not np.array_equal(*forbidden):
            return math.inf
        plus, minus = ([table[~forbidden[0]] for table, _ in side] for side in (here, there))
        if forbidden[0].all() or (len(plus) == len(minus) == 1 and np.array_equal(*plus, *minus)):
            return error
        stack = [own - own[0] for own in plus] + [own[0] - own for own in minus]
        self.budget.charge("the comparison of tables", 4e-7 * len(stack) * stack[0].size)
        off = stack[0]
        if len(stack) > 1:  # sums are rounded once: a large number hides nothing
            off = np.array([math.fsum(numbers) for numbers in zip(*stack, strict=True)])
        rounding = 4.0 * UNIT * sum(float(np.abs(own).max()) for own in (*stack, off))
        return float(off.max() - off.min()) + rounding + error


def read_model_file(path: str, inside: Array, budget: Budget) -> ModelFile:
    """Read a file by the ending of its name; `inside` are the positions that matter."""
    if Path(path).is_dir():
        return _read_folder(Path(path), inside, budget)
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise NotComparable(f"{path} is neither a file nor a folder.")
    name = path.lower()
    most = int(max(0.0, budget.memory - budget.held) / 32.0)
    with gzip.open(path) if name.endswith(".gz") else open(path, "rb") as file:
        data = file.read(most + 1)
    budget.charge(f"the model file {path}", 2e-7 * len(data), held=32.0 * len(data))
    for ending, read in READERS.items():
        if name.removesuffix(".gz").endswith(ending):
            return read(data, inside, budget)
    endings = ".uai, .bif and .npz files, packed with gzip or not, and folders of models"
    raise NotComparable(f"{path} is of another format: the checker reads {endings}.")


def _of_weights(
    sizes: Array, tables: Iterable[tuple[list[int], Array]], are_chances: bool, inside: Array
) -> ModelFile:
    """Make a model of tables of weights; variables of one state are left out."""
    position, touched, factors = np.cumsum(sizes > 1) - 1, set(inside.tolist()), list[Logs]()
    for scope, weights in tables:
        free = [v for v in scope if sizes[v] > 1]
        places = tuple(position[free].tolist())
        if not touched.isdisjoint(places):
            logs, error = _logs(weights.reshape(-1, sizes[scope[-1]]), are_chances)
            factors.append((places, logs.reshape(sizes[free]), error))
    return ModelFile(sizes[sizes > 1], factors)


def _logs(rows: Array, are_chances: bool) -> tuple[Array, float]:
    """Return the logarithms of weights, or of rows of chances, and bound their errors.

    A weight is rounded once when it is read; a division adds as many roundings as its sum has
    terms; a logarithm is right to within two units in the last place. A power of two, which is a
    constant, is taken out first.
    """
    if not np.all((rows >= 0.0) & (rows < math.inf)):
        raise ValueError("a weight is negative, infinite or not a number")
    error, states = UNIT, rows.shape[-1]
    scaled = np.ldexp(rows, -math.frexp(float(rows.max(initial=0.0)))[1])
    if np.min(scaled, where=rows > 0.0, initial=1.0) >= 2.0**-1022 and not are_chances:
        rows = scaled
    if are_chances:
        sums = rows.sum(axis=-1, keepdims=True)
        off = np.abs(sums - 1.0)
        is_rounded = (off > RIGHT * states) & (off <= ROUNDED)
        rows = np.where(is_rounded, rows / np.where(is_rounded, sums, 1.0), rows)
        error += (states + 1) * UNIT * bool(is_rounded.any())
    with np.errstate(divide="ignore"):
        logs = np.log(rows)
    return logs, error + 4.0 * UNIT * largest(logs)


def _read_uai(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read a preamble and tables of weights."""
    found = (match[0] for match in COMMENT_OR_WORD.finditer(data))
    words = (word for word in found if not word.startswith(b"#"))

    def take(kind: Any, count: int | None = None) -> list[Any]:
        if count is None:
            (count,) = take(int, 1)
        taken = list(map(kind, islice(words, count)))
        if len(taken) < count:
            raise EOFError("the file ends early")
        return taken

    (kind,) = take(bytes, 1)
    if kind not in (b"MARKOV", b"BAYES"):
        raise ValueError("it begins with neither MARKOV nor BAYES")
    sizes = np.array(take(int))
    scopes = [take(int) for _ in range(*take(int, 1))]
    budget.charge("the tables of the model file", 2e-5 * len(scopes))
    tables = ((scope, np.array(take(float))) for scope in scopes)
    return _of_weights(sizes, tables, kind == b"BAYES", inside)


def _read_bif(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read blocks of variables and of conditional probabilities."""
    tokens = iter([token for token in TOKEN.findall(data.decode()) if token])
    states, tables = dict[str, list[str]](), dict[str, tuple[list[str], Array]]()
    for kind in tokens:
        head = [token.strip('"') for token in takewhile("{".__ne__, tokens)]
        body = list(_statements(tokens))
        if kind == "variable":
            (own,) = (words for words in body if words[0] == "type")
            states[head[0]] = [token for token in own[own.index("{") + 1 :] if token not in ",}"]
        elif kind == "probability":
            child, *parents = [token for token in head if token not in "(|),"]
            scope = [*parents, child]
            tables[child] = scope, _chances([states[v] for v in scope], body, budget)
    if states.keys() != tables.keys():
        raise ValueError("a variable has no probabilities")
    budget.charge("the tables of the model file", 2e-5 * len(tables))
    number = {name: k for k, name in enumerate(states)}
    numbered = (([number[name] for name in scope], rows) for scope, rows in tables.values())
    sizes = np.array([len(own) for own in states.values()])
    names = [name for name, own in states.items() if len(own) > 1]
    model = _of_weights(sizes, numbered, True, inside)
    return model._replace(names=names, state_names=[states[name] for name in names])


def _statements(tokens: Iterator[str]) -> Iterator[list[str]]:
    """Split the rest of a block into statements that end with a semicolon."""
    words, depth = list[str](), 1
    for token in tokens:
        depth += (token == "{") - (token == "}")
        if depth == 0:
            return
        if token != ";":
            words.append(token.strip('"'))
        elif depth == 1:
            yield words
            words = []


def _chances(states: list[list[str]], body: list[list[str]], budget: Budget) -> Array:
    """Return a row of probabilities for each joint state of the parents, the last one fastest."""
    *given, own = states
    shape = [len(names) for names in given]
    budget.charge("a table of the model file", briefly=64.0 * math.prod(shape) * len(own))
    rows, default = np.full((math.prod(shape), len(own)), np.nan), [math.nan] * len(own)
    for statement in body:
        kind, *words = [word for word in statement if word != ","]
        if kind == "table":
            rows[...] = np.array(list(map(float, words))).reshape(len(own), -1).T
        elif kind == "default":
            default = list(map(float, words))
        elif kind == "(":
            end = words.index(")")
            digits = [names.index(word) for names, word in zip(given, words[:end], strict=True)]
            rows[np.ravel_multi_index(tuple(digits), shape)] = list(map(float, words[end + 1 :]))
    rows = np.where(np.isnan(rows[:, :1]), default, rows)
    if np.isnan(rows).any():
        raise ValueError("a row of probabilities is missing")
    return rows


def _read_npz(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read arrays that hold a model as it is."""
    members = read_zip(data, budget).items()
    arrays = {name.removesuffix(".npy"): read_array(own, NUMERIC) for name, own in members}
    family = arrays["format"].tobytes().decode().removeprefix("dobrushin model 1 ")
    if family not in FAMILIES:
        raise ValueError("it holds a model of no known family")
    scopes: list[Scope]
    near = np.ones(len(arrays.get("i", ())), dtype=bool)
    if family in ("Ising", "Potts", "GaussianField"):  # pairs that are far away are left out
        near = np.isin(arrays["i"], inside) | np.isin(arrays["j"], inside)
    if "i" in arrays:
        scopes = list(zip(arrays["i"][near].tolist(), arrays["j"][near].tolist(), strict=True))
    else:
        ends = [0, *np.cumsum(arrays["arity"]).astype(int).tolist()]
        scopes = [tuple(arrays["scope"][a:b].tolist()) for a, b in pairwise(ends)]
    if family in ("Ising", "SpinMRF", "Potts", "GaussianField"):
        strengths = arrays["strengths"] if family == "SpinMRF" else arrays["couplings"][near]
        pairs = zip(scopes, strengths, strict=True)
        if family == "GaussianField":
            return _field_of(arrays, inside, pairs)
        n, states = arrays["size"].tolist() if family == "Potts" else (len(arrays["fields"]), 0)
        own = arrays.get("unaries", np.empty(0)).reshape(-1, states) if states else arrays["fields"]
        return _lower(n, states, own, inside, pairs)
    sizes, tables = arrays["cardinalities"], arrays["tables"]
    if family == "PairwiseMRF":
        scopes += [(i,) for i in range(len(sizes))]
        tables = np.concatenate([tables.ravel(), arrays["unaries"].ravel()])
    own_tables = zip(scopes, cut(tables, scopes, sizes), strict=True)
    return ModelFile(sizes, ((scope, table, 0.0) for scope, table in own_tables))


def _field_of(
    arrays: Mapping[str, Array], inside: Array, pairs: Iterable[tuple[Scope, float]]
) -> ModelFile:
    """A field: numbers of single variables, and -Q_ij as the factor of a pair of ones."""
    values = np.split(arrays["values"], arrays["value_start"][1:-1])
    singles = {
        i: np.array([*(arrays[name][i] for name in TERMS), *values[i]]) for i in inside.tolist()
    }
    ones = np.array([[0.0, 0.0], [0.0, 1.0]])
    sizes = np.broadcast_to(np.int64(2), len(values))
    field = singles, arrays["lower"], arrays["upper"]
    return ModelFile(sizes, ((scope, -q * ones, 0.0) for scope, q in pairs), field=field)


def _read_folder(path: Path, inside: Array, budget: Budget) -> ModelFile:
    """Read what is near some variables of a model that lies in a folder of arrays."""
    about = json.loads((path / "manifest.json").read_text())
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in path.glob("*.npy")}

    def row(start: str, k: int, of: str) -> list[Any]:
        first, last = (int(end) for end in arrays[start][k : k + 2])
        size = max(0, last - first)
        budget.charge("the rows of the model folder", 1e-5 + 1e-6 * size, held=200.0 * size)
        return arrays[of][first:last].tolist()

    if "table" in arrays:
        numbers = {k for i in inside.tolist() for k in row("factor_start", i, "factor_of")}
        sizes, factors = arrays["cardinalities"], list[Logs]()
        for k in sorted(numbers):
            scope, table = row("scope_start", k, "scope"), row("table_start", k, "table")
            factors.append((tuple(scope), np.reshape(table, sizes[scope]), 0.0))
        return ModelFile(sizes, factors)
    edges = dict[Scope, float]()
    for i in inside.tolist():
        near = zip(row("start", i, "neighbor"), row("start", i, "coupling"), strict=True)
        edges |= {(min(i, j), max(i, j)): value for j, value in near}
    n, own = len(arrays["start"]) - 1, arrays.get("potential", np.empty(0))
    return _lower(n, int(about["states"]), own, inside, edges.items())


def _lower(
    n: int, states: int, own: Any, inside: Array, pairs: Iterable[tuple[Scope, float]]
) -> ModelFile:
    """Own log-weights, and strengths times the product of spins, or where labels are equal.

    The number of states is 0 for spins, -1 and 1.
    """
    factors = list[Logs]()
    for i in inside.tolist() if len(own) else ():
        factors.append(((i,), np.array(own[i]) if states else np.array([-own[i], own[i]]), 0.0))
    for scope, value in pairs:
        spins = 2.0 * np.indices((2,) * len(scope)) - 1.0
        table = np.eye(states) if states else np.prod(spins, axis=0)
        factors.append((scope, float(value) * table, 0.0))
    return ModelFile(np.broadcast_to(np.int64(states or 2), n), factors)


READERS = {".npz": _read_npz, ".bif": _read_bif, ".uai": _read_uai}
