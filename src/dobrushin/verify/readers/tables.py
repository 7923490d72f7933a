"""The class `ModelFile`, which every reader returns, and the reader of UAI files."""

import gzip
import math
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from dobrushin.verify.document import Array, Budget
from dobrushin.verify.model import UNIT, largest

# Sums of rows of probabilities: within the first number (per state) of 1, the row is taken as it
# is; within the second, it is divided by its sum as rounded; other rows are taken as they are.
RIGHT, ROUNDED = 1e-15, 1e-5
COMMENT_OR_WORD = re.compile(rb"#[^\n]*|[^\s#]+")
PLAIN = frozenset("0123456789+-.eE")  # characters of a decimal number
PER_SCOPE = 2e-5  # seconds to look at a table of a model file
Scope = tuple[int, ...]
Logs = tuple[Scope, Array, float]  # scope, log-table, and how far an entry may be off


class ModelFile(NamedTuple):
    """Content of a model file: numbers of states, factors at some variables, and any names."""

    states: Any
    factors: Iterable[Logs]
    names: Sequence[Any] = ()  # a name in the proof may be the `str` or the `repr` of the name here
    state_names: Any = ()
    # Of a field, which has to be the same: numbers of single variables, least and largest values.
    field: tuple[dict[int, Array], Array, Array] | None = None


def content(path: str, budget: Budget) -> bytes:
    """Read a file (unpacked if its name ends in .gz) of no more bytes than the budget allows."""
    most = int(max(0.0, budget.memory - budget.held) / 32.0)
    with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as file:
        data = file.read(most + 1)
    budget.charge(f"the model file {path}", 2e-7 * len(data), held=32.0 * len(data))
    return data


def read_numbers(kind: Any, words: Sequence[Any]) -> list[Any]:
    """Read decimal numbers; reject what only Python takes as a number, such as 1_0 or nan."""
    text = "".join(words) if words and isinstance(words[0], str) else b"".join(words).decode()
    if not PLAIN.issuperset(text):
        raise ValueError("a number is not a decimal number")
    return list(map(kind, words))


def spin_table(value: float, count: int) -> Array:
    """Return the table of a number times the product of `count` spins."""
    spins = 2.0 * np.indices((2,) * count) - 1.0
    return np.asarray(float(value) * np.prod(spins, axis=0))


def of_weights(
    sizes: Array, tables: Iterable[tuple[list[int], Array]], are_chances: bool, inside: Array
) -> ModelFile:
    """Make a model of tables of weights or probabilities, leaving out variables of one state."""
    position, touched, factors = np.cumsum(sizes > 1) - 1, set(inside.tolist()), list[Logs]()
    for scope, weights in tables:
        free = [v for v in scope if sizes[v] > 1]
        places = tuple(position[free].tolist())
        if not touched.isdisjoint(places):
            logs, error = _logs(weights.reshape(-1, sizes[scope[-1]]), are_chances)
            factors.append((places, logs.reshape(sizes[free]), error))
    return ModelFile(sizes[sizes > 1], factors)


def _logs(rows: Array, are_chances: bool) -> tuple[Array, float]:
    """Return the logarithms of weights, or of rows of probabilities, and a bound on their errors.

    A weight is rounded once when it is read; a division adds as many roundings as its sum has
    terms; a logarithm is right to within two units in the last place. Weights are first divided by
    a power of two, a constant factor.
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


def read_uai(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read a UAI file: a preamble, then a table of weights for each factor."""
    found = (match[0] for match in COMMENT_OR_WORD.finditer(data))
    words = (word for word in found if not word.startswith(b"#"))

    def take(kind: Any, count: int | None = None) -> list[Any]:
        if count is None:
            (count,) = take(int, 1)
        taken = list(islice(words, count))
        if len(taken) < count:
            raise EOFError("the file ends early")
        return read_numbers(kind, taken)

    kind = next(words, b"")
    if kind not in (b"MARKOV", b"BAYES"):
        raise ValueError("it begins with neither MARKOV nor BAYES")
    sizes = np.array(take(int))
    scopes = [take(int) for _ in range(*take(int, 1))]
    budget.charge("the tables of the model file", PER_SCOPE * len(scopes))
    tables = ((scope, np.array(take(float))) for scope in scopes)
    return of_weights(sizes, tables, kind == b"BAYES", inside)
