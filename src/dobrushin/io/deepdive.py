"""Factor graphs of DeepDive and numbskull: ``graph.meta``, with the binary files of weights, variables and factors.

``.meta`` has the numbers of weights, variables, factors and edges, between commas. Beside it are, with the same name,

``.weights``
    For each weight its number, a byte (whether learning leaves it as it is), and its value.
``.variables``
    For each variable its number, a byte (whether it is observed), its value, 0 or 1 (Boolean or
    categorical), and the number of its states.
``.factors``
    For each factor its function, its arity, for each variable its number and the value that it is compared with, the
    number of its weight, and the value of the feature.
``.domains``, which may be missing
    For some categorical variables: their number, how many values they take, and these values in increasing order.

All numbers are big-endian. pi(x) ∝ exp( sum over factors weight * feature * h(x) ), with h by the function of DeepDive:
most functions are 1 where their rule holds, and -1 or 0 where it does not.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import FactorGraph, Model
from dobrushin._models.factors import FactorTables
from dobrushin._models.state_names import StateNames
from dobrushin._shared.arrays import UNIT, prefix_sums, rows_at
from dobrushin.io.source import Source, load

_WEIGHT = np.dtype([("number", ">i8"), ("is_fixed", "u1"), ("value", ">f8")])
_VARIABLE = np.dtype(
    [("number", ">i8"), ("is_observed", "u1"), ("value", ">i8"), ("is_categorical", ">i2"), ("states", ">i8")]
)
# Bytes of a factor before its variables, of one of its variables, and after its variables.
_BEFORE, _EACH, _AFTER = 10, 16, 16
_ARITY = struct.Struct(">q")
# Largest number of entries of one table, and bytes needed per entry while tables are built.
_MAX_ENTRIES, _ENTRY_BYTES = 2**20, 16.0
_MAX_ARITY = 20  # two states each make _MAX_ENTRIES
# Bytes of memory for each byte of a file while it is read.
_RECORD_BYTES, _FACTOR_BYTES, _DOMAIN_BYTES = 4.0, 6.0, 6.0

Truth = NDArray[np.bool_]
Function = Callable[[Truth, NDArray[np.int64]], NDArray[Any]]


def _rule(body_fails: int, fails: int) -> Function:
    """Return the function h(states) of a rule's factor.

    Its value is 1 if the rule holds, `body_fails` if its body does not hold, and `fails` if only its head does not.
    """
    return lambda truth, _: np.where(truth[:-1].all(axis=0), np.where(truth[-1], 1, fails), body_fails)


def _all(otherwise: int) -> Function:
    return lambda truth, _: np.where(truth.all(axis=0), 1, otherwise)


def _any(truth: Truth, _: NDArray[np.int64]) -> NDArray[Any]:
    return np.where(truth.any(axis=0), 1, -1)


def _equal(_: Truth, states: NDArray[np.int64]) -> NDArray[Any]:
    return np.where((states == states[:1]).all(axis=0), 1, -1)


def _agreeing(states: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many variables of the body have the value of the head, which is the last variable."""
    return np.asarray((states[:-1] == states[-1:]).sum(axis=0))


# h by the number of the function, from the truth of each variable (its state is not 0; for categorical ones, it is the
# value of the factor) and from the states. Rules have their head last. numbskull gives 0 where DeepDive's rule 0 gives
# -1, since its code counts the head as a part of the body: here it is DeepDive's.
_FUNCTIONS: dict[int, Function] = {
    0: _rule(0, -1),
    1: _any,
    2: _all(-1),
    3: _equal,
    4: _all(-1),
    7: lambda _, states: _agreeing(states),
    8: lambda _, states: np.log1p(_agreeing(states)),
    9: lambda _, states: np.where(_agreeing(states) > 0, 1, 0),
    12: _all(0),
    13: _rule(1, 0),
    14: _any,
    15: _all(0),
    16: _rule(0, -1),
    17: _rule(1, 0),
}
_COMPARED = frozenset({12, 14, 15, 16, 17})  # functions that compare their variables with the values in the factor


class _Graph(NamedTuple):
    """The content of a graph's files, but for the factors; states are counted from 0."""

    weights: NDArray[np.float64]
    sizes: NDArray[np.int64]
    observed: NDArray[np.bool_]
    values: NDArray[np.int64]
    domains: dict[int, NDArray[np.int64]]


def read(source: Source) -> Model:
    """Read the model of a DeepDive graph; its observed states are read by `read_evidence`."""
    counts, graph = _read_graph(source)
    form = _read_factors(_beside(source, ".factors"), counts, graph)
    names = None
    if graph.domains:
        own = [tuple(graph.domains[i].tolist()) if i in graph.domains else None for i in range(len(graph.sizes))]
        names = StateNames(own=own)
    return FactorGraph._from_form(form, None, names)


def read_evidence(source: Source) -> dict[int, int]:
    """Read the observed states of a DeepDive graph: a dict from variable number to value."""
    _, graph = _read_graph(source)
    observed = np.flatnonzero(graph.observed).tolist()
    return {i: int(graph.domains[i][graph.values[i]] if i in graph.domains else graph.values[i]) for i in observed}


def _beside(source: Source, extension: str) -> Source:
    """Read the file with another extension that belongs to the same graph."""
    plain, packed = _paths_beside(source, extension)
    return load(packed if os.path.exists(packed) and not os.path.exists(plain) else plain, source.limit)


def _paths_beside(source: Source, extension: str) -> tuple[str, str]:
    path = os.path.splitext(source.path.removesuffix(".gz"))[0] + extension
    return path, path + ".gz"


def _read_graph(source: Source) -> tuple[list[int], _Graph]:
    words = source.data.split(b"\n", 1)[0].split(b",")[:4]
    try:
        counts = [int(word) for word in words if len(word) < 19 and word.strip().isdigit()]
    except ValueError:
        counts = []
    if len(counts) < 4 or min(counts) < 0 or counts[1] < 1:
        expected = "the numbers of weights, variables, factors and edges, between commas, with 1 or more variables"
        raise source.error(expected, repr(b",".join(words).decode("utf-8", "replace")[:40]), 0)
    file = _beside(source, ".weights")
    weights = _records(file, _WEIGHT, counts[0], "weights")
    known = weights["value"].astype(np.float64)
    _require(file, np.abs(known) <= 1e300, "finite weights", known)
    file = _beside(source, ".variables")
    variables = _records(file, _VARIABLE, counts[1], "variables")
    sizes, values = variables["states"].astype(np.int64), variables["value"].astype(np.int64)
    _require(file, (sizes >= 2) & (sizes <= 2**31), "2 or more states of each variable", sizes)
    file.require_memory(8.0 * sizes.sum(dtype=np.float64), "states")
    domains = {}
    if any(os.path.exists(path) and os.path.getsize(path) for path in _paths_beside(source, ".domains")):
        domains = _read_domains(_beside(source, ".domains"), sizes)
        values = _positions(domains, np.arange(len(sizes)), values, len(sizes))
    observed = variables["is_observed"] != 0
    allowed = ~observed | ((values >= 0) & (values < sizes))
    _require(file, allowed, "a state of the variable as its observed value", variables["value"])
    return counts, _Graph(known, sizes, observed, values, domains)


def _require(file: Source, ok: NDArray[np.bool_], expected: str, values: NDArray[Any]) -> None:
    if not ok.all():
        k = int(np.argmin(ok))
        raise file.error(expected, f"{values[k]} for number {k}")


def _records(file: Source, kind: np.dtype[Any], count: int, what: str) -> NDArray[Any]:
    """Return the records of a file, sorted by the numbers in them, each of which must occur once."""
    if len(file.data) != count * kind.itemsize:
        expected = f"{count} {what} of {kind.itemsize} bytes, as the .meta file has it"
        raise file.error(expected, f"{len(file.data)} bytes")
    file.require_memory(_RECORD_BYTES * len(file.data), what)
    records = np.frombuffer(file.data, dtype=kind)
    order = np.argsort(records["number"], kind="stable")
    _require(file, records["number"][order] == np.arange(count), f"{what} numbered from 0 to {count - 1}",
             records["number"][order])  # fmt: skip
    return records[order]


def _read_domains(file: Source, sizes: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Read the possible values of categorical variables, as increasing arrays by the number of the variable."""
    file.require_memory(_DOMAIN_BYTES * len(file.data), "domains")
    if len(file.data) % 8:
        raise file.error("a file of whole numbers of 8 bytes", f"{len(file.data)} bytes")
    domains: dict[int, NDArray[np.int64]] = {}
    numbers, at = np.frombuffer(file.data, dtype=">i8").astype(np.int64), 0
    while at < len(numbers):
        i, size = int(numbers[at]), int(numbers[at + 1]) if at + 1 < len(numbers) else -1
        values = numbers[at + 2 : at + 2 + max(size, 0)]
        is_known = 0 <= i < len(sizes) and i not in domains and size == sizes[i] == len(values)
        if not is_known or (values[1:] <= values[:-1]).any():
            expected = "domains: a variable, its number of states, and that many values in increasing order"
            raise file.error(expected, f"others at number {at}")
        domains[i] = values
        at += 2 + size
    return domains


def _positions(
    domains: dict[int, NDArray[np.int64]], variables: NDArray[np.int64], values: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Return the index of each value among its variable's values (-1: not there); without a list, the value itself."""
    places = values.copy()
    order, first = np.argsort(variables, kind="stable"), prefix_sums(np.bincount(variables, minlength=n))
    for i, domain in domains.items():
        mine = order[first[i] : first[i + 1]]
        place = np.minimum(np.searchsorted(domain, values[mine]), len(domain) - 1)
        places[mine] = np.where(domain[place] == values[mine], place, -1)
    return places


def _read_factors(file: Source, counts: list[int], graph: _Graph) -> FactorTables:
    """Read all factors; those with the same function, shape and compared values share a table."""
    data, n = np.frombuffer(file.data, dtype=np.uint8), len(graph.sizes)
    file.require_memory(_FACTOR_BYTES * len(data), "factors")
    start = _starts(file, counts[2])

    def numbers(offset: NDArray[np.int64], kind: str) -> NDArray[Any]:
        letters = np.empty((len(offset), np.dtype(kind).itemsize), dtype=np.uint8)
        for k in range(letters.shape[1]):
            letters[:, k] = data[offset + k]
        return letters.view(kind).ravel().astype(kind[1:])

    function, arity = numbers(start, ">i2"), numbers(start + 2, ">i8")
    _require(file, np.isin(function, list(_FUNCTIONS)), f"factors with the functions {sorted(_FUNCTIONS)}", function)
    entries_allowed = f"factors with at most {_MAX_ENTRIES} combinations of states"
    _require(file, arity <= _MAX_ARITY, f"{entries_allowed}, of at most {_MAX_ARITY} variables", arity)
    first = prefix_sums(arity)
    place = np.repeat(start + _BEFORE - _EACH * first[:-1], arity) + _EACH * np.arange(first[-1])
    scope, value = numbers(place, ">i8"), numbers(place + 8, ">i8")
    weight, feature = (
        numbers(start + _BEFORE + _EACH * arity, ">i8"),
        numbers(start + _BEFORE + _EACH * arity + 8, ">f8"),
    )
    _require(file, (scope >= 0) & (scope < n), f"variables from 0 to {n - 1}", scope)
    _require(file, (weight >= 0) & (weight < counts[0]), f"weights from 0 to {counts[0] - 1}", weight)
    with np.errstate(over="ignore", invalid="ignore"):
        factor = graph.weights[weight] * feature
    _require(file, np.abs(factor) <= 1e300, "finite products of weight and feature", factor)
    compared = np.repeat(np.isin(function, list(_COMPARED)), arity)
    place = np.where(compared, _positions(graph.domains, scope, value, n), 0)
    _require(file, (place >= 0) & (place < graph.sizes[scope]), "a state of the variable to compare with", value)
    blocks, error, entries = [], 0.0, 0.0
    # A key for each factor: function, arity, and sizes and compared values of its variables.
    for group in _alike(function, arity, first, np.stack([graph.sizes[scope], place], axis=1)):
        which = int(function[group[0]])
        members = rows_at(first, group)[1].reshape(len(group), -1)
        sizes = graph.sizes[scope[members[0]]]
        cells = math.prod(sizes.tolist())
        if cells > _MAX_ENTRIES:
            raise file.error(entries_allowed, f"{cells:.3g}")
        entries += float(cells) * len(group)
        file.require_memory(_ENTRY_BYTES * entries, "tables")
        scopes = scope[members]
        if (twice := np.diff(np.sort(scopes, axis=1), axis=1) == 0).any():
            raise file.error("different variables in each factor", f"one twice in factor {group[twice.any(axis=1)][0]}")
        states = np.indices(sizes.tolist()).reshape(len(sizes), -1)
        truth = states == place[members[0]][:, None] if which in _COMPARED else states != 0
        h = np.broadcast_to(_FUNCTIONS[which](truth, states), cells).astype(np.float64)
        tables = factor[group, None] * h
        is_exact = np.isin(h, (-1.0, 0.0, 1.0)).all() and (np.frexp(feature[group])[0] == 0.5).all()
        error += 0.0 if is_exact else 8.0 * UNIT * float(np.abs(tables).max(axis=1).sum())
        blocks.append((scopes, tables))
    return FactorTables.from_blocks(graph.sizes, blocks).off_by(error)


def _starts(file: Source, count: int) -> NDArray[np.int64]:
    """Return where each factor begins in the file, which follows from the arities of those before it."""
    end = len(file.data) - _BEFORE - _EACH - _AFTER
    starts: list[int] = []
    at, read = 0, _ARITY.unpack_from
    while at <= end and len(starts) < count:
        starts.append(at)
        arity = read(file.data, at + 2)[0]
        if arity < 1:
            break
        at += _BEFORE + _EACH * arity + _AFTER
    if at != len(file.data) or len(starts) != count:
        expected = f"{count} factors of one or more variables, as the .meta file has it"
        raise file.error(expected, f"{len(starts)} that fit")
    return np.array(starts, dtype=np.int64)


def _alike(
    function: NDArray[Any], arity: NDArray[Any], first: NDArray[np.int64], pairs: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Return groups of factors with the same function, arity, sizes and compared values."""
    groups = []
    for a in np.unique(arity).tolist():
        chosen = np.flatnonzero(arity == a)
        keys = np.empty((len(chosen), 1 + 2 * a), dtype=np.int64)
        keys[:, 0] = function[chosen]
        keys[:, 1:] = pairs[rows_at(first, chosen)[1]].reshape(len(chosen), 2 * a)
        packed = np.ascontiguousarray(keys).view([("", np.int64)] * keys.shape[1]).ravel()
        order = np.argsort(packed, kind="stable") if (keys != keys[0]).any() else np.arange(len(chosen))
        cuts = np.flatnonzero((keys[order][1:] != keys[order][:-1]).any(axis=1)) + 1
        groups += np.split(chosen[order], cuts)
    return groups
