"""Read graphs of DeepDive: `graph.meta`, and binary files beside it.

The log-table of a factor is weight * feature * h, where h is the value of its function.
"""

import math
import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dobrushin.verify.document import Array, Budget
from dobrushin.verify.model import UNIT, largest
from dobrushin.verify.readers.tables import PER_SCOPE, Logs, ModelFile, content, read_numbers

MAX_TABLE = 2**20  # entries of a table
MAX_AMOUNT = 1e300  # product of weight and feature
BODY_FAILS, HEAD_FAILS = {0: 0, 13: 1, 16: 0, 17: 1}, {0: -1, 13: 0, 16: -1, 17: 0}  # rules
ANY, ALL = {1, 14}, {2: -1, 4: -1, 12: 0, 15: 0}  # one holds (else -1), all hold (else this)
COMPARING = {12, 14, 15, 16, 17}  # a variable holds if it has the value in the factor


def read_graph(path: str, inside: Array, budget: Budget) -> ModelFile:
    """Read a graph: its `.meta` file, and the files of weights, variables, factors and domains."""
    stem = os.path.splitext(path.removesuffix(".gz"))[0]
    meta = content(path, budget).split(b"\n", 1)[0]
    words = [word.strip() for word in meta.split(b",")[:3]]
    n_weights, n, n_factors = read_numbers(int, words)
    weights = dict(_records(_beside(stem, ".weights", budget), ">q?d", (0, 2), n_weights))
    sizes = dict(_records(_beside(stem, ".variables", budget), ">q?qhq", (0, 4), n))
    states = np.array([sizes[v] for v in range(n)])
    domains = _domains(_beside(stem, ".domains", budget), sizes)
    near, factors = set(inside.tolist()), list[Logs]()
    for function, scope, values, weight, feature in _factors(stem, n_factors, budget):
        if not (scope and min(scope) >= 0 and max(scope) < n):
            raise ValueError("a factor has no variable, or one that the graph does not have")
        if near.isdisjoint(scope):
            continue
        shape = [sizes[v] for v in scope]
        if len({*scope}) < len(scope) or not 0 < math.prod(shape) <= MAX_TABLE:
            raise ValueError("a factor has a variable twice, or a table that is empty or too large")
        cells = float(len(scope) + 2) * math.prod(shape)
        held = 8.0 * math.prod(shape)
        what = "the tables of the model file"
        budget.charge(what, PER_SCOPE + 1e-8 * cells, held, briefly=32.0 * cells)
        wanted = None
        if function in COMPARING:
            pairs = zip(scope, values, strict=True)
            wanted = [domains[v].index(x) if v in domains else x for v, x in pairs]
        h = _outcome(function, np.indices(shape), wanted)
        if not abs(amount := weights[weight] * feature) <= MAX_AMOUNT:
            raise ValueError("a product of weight and feature is too large or no number")
        table = amount * h
        is_exact = math.frexp(feature)[0] == 0.5 and np.isin(h, (-1, 0, 1)).all()
        factors.append((scope, table, 0.0 if is_exact else 8.0 * UNIT * largest(table)))
    names = {v: [*map(str, domains[v])] if v in domains else None for v in near}
    return ModelFile(states, factors, range(n), names)


def _factors(stem: str, count: int, budget: Budget) -> Iterator[tuple[Any, ...]]:
    """Yield the function, variables, values, weight number and feature of each factor."""
    data, at = _beside(stem, ".factors", budget), 0
    for _ in range(count):
        budget.charge("the factors of the model file", PER_SCOPE / 4)
        function, arity = struct.unpack_from(">hq", data, at)
        numbers = struct.unpack_from(f">{2 * arity}qqd", data, at + 10)
        yield function, numbers[:-2:2], numbers[1:-2:2], *numbers[-2:]
        at += 26 + 16 * arity
    if at != len(data):
        raise ValueError("it has more factors than its .meta file says")


def _outcome(function: int, states: Array, wanted: list[int] | None) -> Array:
    """Return the value of a factor's function in every joint state of its variables.

    In a rule the last variable is the head, and the others are the body.
    """
    agreeing = (states[:-1] == states[-1]).sum(axis=0)
    if wanted is None:
        holds = states != 0
    else:
        holds = np.array([own == value for own, value in zip(states, wanted, strict=True)])
    if function in BODY_FAILS:
        is_true = np.where(holds[-1], 1.0, HEAD_FAILS[function])
        return np.where(holds[:-1].all(axis=0), is_true, BODY_FAILS[function])
    if function in ANY:
        return np.where(holds.any(axis=0), 1.0, -1.0)
    if function in ALL:
        return np.where(holds.all(axis=0), 1.0, ALL[function])
    if function == 3:
        return np.where((states == states[0]).all(axis=0), 1.0, -1.0)
    counts = {7: agreeing, 8: np.log1p(agreeing), 9: agreeing > 0}
    return np.asarray(counts[function], dtype=np.float64)


def _beside(stem: str, ending: str, budget: Budget) -> bytes:
    """Return the content of another file of the graph; empty if there is no file of domains."""
    paths = [Path(stem + ending), Path(f"{stem}{ending}.gz")]
    if found := [path for path in paths if path.exists()]:
        return content(str(found[0]), budget)
    if ending != ".domains":
        raise ValueError(f"{paths[0]}, which belongs to it, is missing")
    return b""


def _records(data: bytes, kind: str, which: tuple[int, int], count: int) -> list[tuple[Any, Any]]:
    """Return two members of each record of a file, given by their indices `which`.

    The first one numbers the records from 0, in any order.
    """
    found = [(row[which[0]], row[which[1]]) for row in struct.iter_unpack(kind, data)]
    if len(found) != count or sorted(number for number, _ in found) != list(range(count)):
        raise ValueError("its records are not those that its .meta file counts")
    return found


def _domains(data: bytes, sizes: dict[int, int]) -> dict[int, list[int]]:
    """Return the possible values of each categorical variable, by its number."""
    numbers, found, at = [x for (x,) in struct.iter_unpack(">q", data)], dict[int, list[int]](), 0
    while at < len(numbers):
        variable, size = numbers[at : at + 2]
        values = numbers[at + 2 : at + 2 + size]
        if size != len(values) or size != sizes[variable] or variable in found:
            raise ValueError("a domain has another number of values than its variable")
        if any(a >= b for a, b in pairwise(values)):
            raise ValueError("the values of a domain do not increase")
        found[variable] = values
        at += 2 + size
    return found
