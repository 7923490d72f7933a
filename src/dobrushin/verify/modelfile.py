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
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dobrushin.verify.document import (
    Array,
    Budget,
    NotComparable,
    TooLarge,
    open_zip,
    read_array,
    require,
)
from dobrushin.verify.model import UNIT, Factor, cut

FAMILIES = ("Ising", "Potts", "SpinMRF", "PairwiseMRF", "FactorGraph", "GaussianField")
TERMS = ("diagonal", "linear", "exposure", "trials", "lower", "upper")  # of a variable of a field
NUMERIC = ("<f8", "<i8", "<i4", "|i1", "<i2", "|u1")
LARGEST_DRIFT = 1e-9  # two tables that differ by more are called different
# Rows of probabilities that miss 1 by less than the first, for each state, are right; those that
# miss it by less than the second are rounded, and divided by their sum; others stay as they are.
RIGHT, ROUNDED = 1e-15, 1e-5
COMMENT_OR_WORD = re.compile(rb"#[^\n]*|[^\s#]+")
TOKEN = re.compile(r'\s+|//[^\n]*|/\*[\s\S]*?\*/|("[^"]*"|[{}()\[\];,|]|[^\s{}()\[\];,|"]+)')
Logs = tuple[tuple[int, ...], Array, float]  # scope, log-table, and how far an entry may be off


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
        self.known: dict[tuple[int, ...], float] = {}
        try:
            self.file = read_model_file(path, proof.positions, proof.budget)
            self.there = self._by_scope(self.file.factors)
        except (NotComparable, TooLarge):
            raise
        except Exception as error:  # a damaged file can raise anything
            what = f"{path} cannot be read as a model file"
            raise NotComparable(f"{what} ({type(error).__name__}: {error}).") from None
        self.here = self._by_scope(self._placed(proof.stated.pairs))
        self.touching: dict[int, set[tuple[int, ...]]] = defaultdict(set)
        for scope in {*self.here, *self.there}:
            for position in scope:
                self.touching[position].add(scope)
        self._compare_variables()

    def _placed(self, pairs: Iterable[Factor]) -> Iterator[Logs]:
        positions = self.proof.positions.tolist()
        return ((tuple(positions[v] for v in scope), table, 0.0) for scope, table in pairs)

    def _by_scope(
        self, factors: Iterable[Logs]
    ) -> dict[tuple[int, ...], list[tuple[Array, float]]]:
        """Collect tables with axes in increasing order of their variables."""
        found = defaultdict[tuple[int, ...], list[tuple[Array, float]]](list)
        inside = set(self.proof.positions.tolist())
        for scope, table, error in factors:
            self.budget.spend(2e-5, "the tables of the model file")
            if inside.isdisjoint(scope):
                continue
            order = sorted(range(len(scope)), key=scope.__getitem__)
            found[tuple(scope[k] for k in order)].append((np.transpose(table, order), error))
        return dict(found)

    def _compare_variables(self) -> None:
        proof, file, path = self.proof, self.file, self.path
        require(
            len(file.states) == proof.plan["variables"], f"{path} has another number of variables."
        )
        require(
            np.array_equal(np.asarray(file.states[proof.positions]), proof.states),
            f"{path} has other numbers of states.",
        )
        for v, position in enumerate(proof.positions.tolist() if file.names else ()):
            require(
                file.names[position] == proof.names.plain[v],
                f"{path} has another name for variable {position}.",
            )
            called = proof.names.states.get(v)
            require(
                called is None or tuple(called) == tuple(file.state_names[position]),
                f"{path} has other names for the states of variable {position}.",
            )

    def drift(self, variables: Iterable[int], is_field: bool = False) -> float:
        """Bound how far log-densities differ, up to a constant, by factors at some variables."""
        require(
            is_field == (self.file.field is not None),
            f"{self.path} holds {'no field' if is_field else 'a field'}.",
        )
        positions = self.proof.positions.tolist()
        scopes = {scope for v in variables for scope in self.touching.get(positions[v], ())}
        return math.fsum(self._drift_of(scope) for scope in scopes)

    def compare_field(self, own: list[Factor], low: Array, high: Array) -> None:
        """Compare numbers of single variables of a field, and the boxes of all.

        Boxes that nothing else is known of count as well; or a value in them is given.
        """
        require(self.file.field, f"{self.path} holds no field.")
        singles, least, most = self.file.field or ({}, low, high)
        positions = self.proof.positions
        for (v,), numbers in own:
            require(
                np.array_equal(singles[int(positions[v])], numbers),
                f"{self.path} has another factor over the variable {positions[v]}.",
            )
        least, most = least[positions], most[positions]
        is_given = (least <= low) & (low == high) & (high <= most)
        require(((least == low) & (most == high) | is_given).all(), f"{self.path} has other boxes.")

    def _drift_of(self, scope: tuple[int, ...]) -> float:
        """Bound how far the tables over some variables differ; sums are rounded once."""
        if scope not in self.known:
            here, there = self.here.get(scope, []), self.there.get(scope, [])
            shape = (*here, *there)[0][0].shape
            zero = np.zeros(shape)
            a, b = (
                sum((np.isneginf(table) for table, _ in side), zero > 0.0) for side in (here, there)
            )
            drift = self._range(here, there, a) if np.array_equal(a, b) else math.inf
            limit = 0.0 if self.file.field else LARGEST_DRIFT
            names = ", ".join(map(str, scope))
            require(drift <= limit, f"{self.path} has another factor over the variables {names}.")
            self.known[scope] = drift
        return self.known[scope]

    def _range(self, here: Any, there: Any, forbidden: Array) -> float:
        """Bound the range of the difference of two sums of tables, where nothing is forbidden.

        A constant changes no law. So each table is taken relative to its first entry.
        """
        plus = [table[~forbidden] for table, _ in here]
        minus = [table[~forbidden] for table, _ in there]
        if forbidden.all() or (len(plus) == len(minus) == 1 and np.array_equal(plus[0], minus[0])):
            return 2.0 * math.fsum(error for _, error in there)
        stack = [own - own[0] for own in plus] + [own[0] - own for own in minus]
        self.budget.spend(4e-7 * len(stack) * stack[0].size, "the comparison of tables")
        off = stack[0]
        if len(stack) > 1:  # sums are rounded once: a large number hides nothing
            off = np.array([math.fsum(numbers) for numbers in zip(*stack, strict=True)])
        rounding = 4.0 * UNIT * sum(float(np.abs(own).max()) for own in (*stack, off))
        return float(off.max() - off.min()) + rounding + 2.0 * math.fsum(e for _, e in there)


def read_model_file(path: str, inside: Array, budget: Budget) -> ModelFile:
    """Read a file by the ending of its name; `inside` are the positions that matter."""
    if Path(path).is_dir():
        return _read_folder(Path(path), inside, budget)
    name, data = path.lower().removesuffix(".gz"), _load(path, budget)
    if name.endswith(".npz"):
        return _read_npz(data, inside, budget)
    if name.endswith(".bif"):
        return _read_bif(data.decode(), inside, budget)
    if name.endswith(".uai"):
        return _read_uai(data, inside, budget)
    endings = ".uai, .bif and .npz files, packed with gzip or not, and folders of models"
    raise NotComparable(f"{path} is of another format: the checker reads {endings}.")


def _load(path: str, budget: Budget) -> bytes:
    """Read a regular file, and unpack it up to a limit."""
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise NotComparable(f"{path} is neither a file nor a folder.")
    most = int(max(0.0, budget.memory - budget.held) / 32.0)
    with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as file:
        data = file.read(most + 1)
    budget.hold(32.0 * len(data), f"the model file {path}")
    budget.spend(2e-7 * len(data), f"the model file {path}")
    return data


def _logs(rows: Array, are_chances: bool) -> tuple[Array, float]:
    """Return the logarithms of weights, or of rows of chances, and bound their errors.

    A weight is rounded once when it is read; a division adds as many roundings as its sum has
    terms; a logarithm is right to within two units in the last place. A power of two, which is a
    constant, is taken out first.
    """
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
    largest = float(np.max(np.abs(logs), where=np.isfinite(logs), initial=0.0))
    return logs, error + 4.0 * UNIT * largest


def _number(word: Any) -> float:
    """Read a weight."""
    value = float(word)
    if not 0.0 <= value < math.inf:
        raise ValueError("a weight is negative, infinite or not a number")
    return value


def _read_uai(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read a preamble and tables of weights; variables of one state are left out."""
    found = (match[0] for match in COMMENT_OR_WORD.finditer(data))
    words = (word for word in found if not word.startswith(b"#"))

    def take(count: int) -> list[bytes]:
        taken = [word for _, word in zip(range(count), words, strict=False)]
        if len(taken) < count:
            raise EOFError("the file ends early")
        return taken

    def whole() -> int:
        return int(take(1)[0])

    (kind,) = take(1)
    if kind not in (b"MARKOV", b"BAYES"):
        raise ValueError("it begins with neither MARKOV nor BAYES")
    states = np.array(list(map(int, take(whole()))))
    scopes = [list(map(int, take(whole()))) for _ in range(whole())]
    position = np.cumsum(states > 1) - 1
    touched, factors = set(inside.tolist()), list[Logs]()
    for scope in scopes:
        budget.spend(2e-5, "the tables of the model file")
        weights = np.array(list(map(_number, take(whole()))))
        free = tuple(int(position[v]) for v in scope if states[v] > 1)
        if touched & set(free):
            rows = weights.reshape(-1, states[scope[-1]])
            logs, error = _logs(rows, kind == b"BAYES")
            factors.append((free, logs.reshape([states[v] for v in scope if states[v] > 1]), error))
    return ModelFile(states[states > 1], factors)


def _read_bif(text: str, inside: Array, budget: Budget) -> ModelFile:
    """Read blocks of variables and of conditional probabilities."""
    tokens = iter([token for token in TOKEN.findall(text) if token])
    states, tables = dict[str, list[str]](), dict[str, tuple[list[str], Array]]()
    for kind in tokens:
        head = [token.strip('"') for token in takewhile("{".__ne__, tokens)]
        body = list(_statements(tokens))
        if kind == "variable":
            (own,) = (words for words in body if words[0] == "type")
            states[head[0]] = [token for token in own[own.index("{") + 1 :] if token not in ",}"]
        elif kind == "probability":
            child, *parents = [token for token in head if token not in "(|),"]
            tables[child] = parents, _chances([states[v] for v in (*parents, child)], body, budget)
    if states.keys() != tables.keys():
        raise ValueError("a variable has no probabilities")
    names = [name for name, own in states.items() if len(own) > 1]
    position, touched = {name: k for k, name in enumerate(names)}, set(inside.tolist())
    factors = list[Logs]()
    for child, (parents, rows) in tables.items():
        budget.spend(2e-5, "the tables of the model file")
        scope = [name for name in (*parents, child) if name in position]
        logs, error = _logs(rows, True)
        places = tuple(position[name] for name in scope)
        if touched & set(places):
            factors.append((places, logs.reshape([len(states[name]) for name in scope]), error))
    sizes = np.array([len(states[name]) for name in names])
    return ModelFile(sizes, factors, names, [states[name] for name in names])


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
    size = math.prod(shape) * len(own)
    budget.need(64.0 * size, "a table of the model file")
    rows, default = np.full((math.prod(shape), len(own)), np.nan), [math.nan] * len(own)
    for statement in body:
        words = [word for word in statement if word != ","]
        if words[0] == "table":
            rows[...] = np.array(list(map(_number, words[1:]))).reshape(len(own), -1).T
        elif words[0] == "default":
            default = list(map(_number, words[1:]))
        elif words[0] == "(":
            end = words.index(")")
            pairs = zip(given, words[1:end], strict=True)
            digits = tuple(names.index(word) for names, word in pairs)
            rows[np.ravel_multi_index(digits, shape)] = list(map(_number, words[end + 1 :]))
    rows = np.where(np.isnan(rows[:, :1]), default, rows)
    if np.isnan(rows).any():
        raise ValueError("a row of probabilities is missing")
    return rows


def _read_npz(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read arrays that hold a model as it is."""
    archive = open_zip(data, budget)
    found = ((info.filename, archive.read(info)) for info in archive.infolist())
    arrays = {name.removesuffix(".npy"): read_array(content, NUMERIC) for name, content in found}
    family = arrays["format"].tobytes().decode().removeprefix("dobrushin model 1 ")
    if family not in FAMILIES:
        raise ValueError("it holds a model of no known family")
    if "i" in arrays:  # pairs; those that are far away are left out
        is_near = np.isin(arrays["i"], inside) | np.isin(arrays["j"], inside)
        first, last = (arrays[name][is_near].tolist() for name in "ij")
        scopes = list(zip(first, last, strict=True))
    else:
        ends = [0, *np.cumsum(arrays["arity"]).astype(int).tolist()]
        scopes = [tuple(arrays["scope"][a:b].tolist()) for a, b in pairwise(ends)]
    if family == "GaussianField":
        return _field_of(
            arrays, inside, list(zip(scopes, arrays["couplings"][is_near], strict=True))
        )
    if family in ("Ising", "SpinMRF"):
        name = "couplings" if family == "Ising" else "strengths"
        strengths = arrays[name][is_near] if family == "Ising" else arrays[name]
        factors = _lower(inside, arrays["fields"], scopes, strengths, 0)
        return ModelFile(np.full(len(arrays["fields"]), 2), factors)
    if family == "Potts":
        n, states = arrays["size"].tolist()
        own = arrays.get("unaries", np.empty(0)).reshape(-1, states)
        factors = _lower(inside, own, scopes, arrays["couplings"][is_near], states)
        return ModelFile(np.broadcast_to(np.int64(states), n), factors)
    sizes, tables = arrays["cardinalities"], arrays["tables"]
    if family == "PairwiseMRF":
        pairs = np.stack([arrays["i"], arrays["j"]], axis=1).tolist()
        scopes = [tuple(scope) for scope in (*pairs, *([i] for i in range(len(sizes))))]
        tables = np.concatenate([tables.ravel(), arrays["unaries"].ravel()])
    own_tables = zip(scopes, cut(tables, scopes, sizes), strict=True)
    return ModelFile(sizes, ((scope, table, 0.0) for scope, table in own_tables))


def _field_of(arrays: Any, inside: Array, couplings: list[Any]) -> ModelFile:
    """A field: numbers of single variables, and -Q_ij as the factor of a pair of ones."""
    values = np.split(arrays["values"], arrays["value_start"][1:-1])
    singles = {
        i: np.array([*(arrays[name][i] for name in TERMS), *values[i]]) for i in inside.tolist()
    }
    pairs = [(scope, np.array([[0.0, 0.0], [0.0, -q]]), 0.0) for scope, q in couplings]
    sizes = np.broadcast_to(np.int64(2), len(values))
    return ModelFile(sizes, pairs, field=(singles, arrays["lower"], arrays["upper"]))


def _read_folder(path: Path, inside: Array, budget: Budget) -> ModelFile:
    """Read what is near some variables of a model that lies in a folder of arrays."""
    about = json.loads((path / "manifest.json").read_text())
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in path.glob("*.npy")}

    def row(name: str, k: int, of: str) -> list[Any]:
        first, last = (int(end) for end in arrays[name][k : k + 2])
        budget.spend(1e-5 + 1e-6 * max(0, last - first), "the rows of the model folder")
        budget.hold(200.0 * max(0, last - first), "the rows of the model folder")
        found: list[Any] = arrays[of][first:last].tolist()
        return found

    if "table" in arrays:
        numbers = {k for i in inside.tolist() for k in row("factor_start", i, "factor_of")}
        sizes, factors = arrays["cardinalities"], list[Logs]()
        for k in sorted(numbers):
            scope = tuple(row("scope_start", k, "scope"))
            table = np.array(row("table_start", k, "table"))
            factors.append((scope, table.reshape([int(sizes[v]) for v in scope]), 0.0))
        return ModelFile(sizes, factors)
    states, edges = int(about["states"]), dict[tuple[int, int], float]()
    for i in inside.tolist():
        near = zip(row("start", i, "neighbor"), row("start", i, "coupling"), strict=True)
        edges |= {(min(i, j), max(i, j)): value for j, value in near}
    own = arrays.get("potential", np.empty(0))
    lowered = list(_lower(inside, own, edges, edges.values(), states))
    return ModelFile(np.broadcast_to(np.int64(states or 2), len(arrays["start"]) - 1), lowered)


def _lower(
    inside: Array, own: Any, scopes: Iterable[Any], strengths: Iterable[Any], states: int
) -> Iterator[Logs]:
    """Own log-weights, and strengths times the product of spins, or where labels are equal.

    The number of states is 0 for spins, -1 and 1.
    """
    for i in inside.tolist() if len(own) else ():
        yield (i,), np.array(own[i]) if states else np.array([-own[i], own[i]]), 0.0
    for scope, value in zip(scopes, strengths, strict=True):
        spins = 2.0 * np.indices((2,) * len(scope)) - 1.0
        yield scope, float(value) * (np.eye(states) if states else np.prod(spins, axis=0)), 0.0
