"""Graphs of DeepDive, made up: all files of a graph in one text of bytes, and their literal reading."""

from __future__ import annotations

import itertools
import math
import re
import struct
from pathlib import Path

import numpy as np

import dobrushin as db

EXTENSIONS = (".meta", ".weights", ".variables", ".factors", ".domains")
# What a graph is cut at: the name of each file, before its content.
_MARK = re.compile(rb"\n@(\.meta|\.weights|\.variables|\.factors|\.domains)@\n")
# Numbers that promise much, or nothing at all.
_STRANGE = (-1, 0, 1, 2, 3, 20, 21, 64, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))


def rule(holds, without_body, without_head):
    if not all(holds[:-1]):
        return without_body
    return 1 if holds[-1] else without_head


FUNCTIONS = {
    0: lambda x, _: rule([v != 0 for v in x], 0, -1),
    1: lambda x, _: 1 if any(x) else -1,
    2: lambda x, _: 1 if all(x) else -1,
    3: lambda x, _: 1 if len(set(x)) == 1 else -1,
    4: lambda x, _: 1 if all(x) else -1,
    7: lambda x, _: sum(v == x[-1] for v in x[:-1]),
    8: lambda x, _: math.log(1 + sum(v == x[-1] for v in x[:-1])),
    9: lambda x, _: int(any(v == x[-1] for v in x[:-1])),
    12: lambda x, eq: int(list(x) == list(eq)),
    13: lambda x, _: rule([v != 0 for v in x], 1, 0),
    14: lambda x, eq: 1 if any(v == e for v, e in zip(x, eq, strict=True)) else -1,
    15: lambda x, eq: int(list(x) == list(eq)),
    16: lambda x, eq: rule([v == e for v, e in zip(x, eq, strict=True)], 0, -1),
    17: lambda x, eq: rule([v == e for v, e in zip(x, eq, strict=True)], 1, 0),
}


def graph_files(weights, variables, factors, domains=None):
    """The files of a graph; variables are (is_observed, value, states), factors (function, pairs, weight, x)."""
    edges = sum(len(pairs) for _, pairs, _, _ in factors)
    packed = {".meta": f"{len(weights)},{len(variables)},{len(factors)},{edges},a,b,c\n".encode()}
    rows = [struct.pack(">qBd", k, 1, w) for k, w in enumerate(weights)]
    packed[".weights"] = b"".join(reversed(rows))  # in any order
    packed[".variables"] = b"".join(
        struct.pack(">qBqhq", k, seen, value, states > 2, states) for k, (seen, value, states) in enumerate(variables)
    )
    packed[".factors"] = b"".join(
        struct.pack(f">hq{2 * len(pairs)}qqd", function, len(pairs), *itertools.chain(*pairs), weight, feature)
        for function, pairs, weight, feature in factors
    )
    rows = [struct.pack(f">qq{len(values)}q", k, len(values), *values) for k, values in (domains or {}).items()]
    return packed | ({} if domains is None else {".domains": b"".join(rows)})


def random_graph(rng):
    """A graph of a few variables with all functions, as the arguments of `graph_files`."""
    sizes = [rng.choice((2, 2, 3)) for _ in range(rng.randrange(3, 6))]
    domains = {i: sorted(rng.sample(range(-50, 50), k)) for i, k in enumerate(sizes) if k > 2}
    allowed = [domains.get(i, range(k)) for i, k in enumerate(sizes)]
    weights = [rng.gauss(0, 1) for _ in range(4)]
    factors = []
    for function in FUNCTIONS:
        scope = rng.sample(range(len(sizes)), rng.randrange(2 if function in (7, 8, 9) else 1, 4))
        pairs = [(i, rng.choice(allowed[i])) for i in scope]
        factors.append((function, pairs, rng.randrange(4), rng.choice((1.0, 0.3, -2.0))))
    variables = [(int(rng.random() < 0.3), rng.choice(allowed[i]), k) for i, k in enumerate(sizes)]
    return weights, variables, factors, domains


def log_density(graph, x):
    """The logarithm of the density of one state, by definition, up to a constant."""
    weights, _, factors, domains = graph
    total = 0.0
    for function, pairs, weight, feature in factors:
        compared = [list(domains[i]).index(v) if i in domains and function in (12, 14, 15, 16, 17) else v
                    for i, v in pairs]  # fmt: skip
        total += weights[weight] * feature * FUNCTIONS[function]([int(x[i]) for i, _ in pairs], compared)
    return total


def write_graph(folder, *graph):
    """Write the files of a graph, and return the path of the first."""
    return write_files(graph_files(*graph), folder / "graph.meta")


def write_files(packed, path):
    for extension in EXTENSIONS:
        Path(path).with_suffix(extension).write_bytes(packed.get(extension, b""))
    return path


def joined(packed):
    """All files as one text of bytes; the factors last, since nothing may be missing or added there."""
    names = sorted(packed, key=lambda name: name == ".factors")
    return b"".join(b"\n@" + name.encode() + b"@\n" + packed[name] for name in names)


def parted(data):
    """The files of a graph in one text of bytes; a file that is there twice is its last one."""
    parts = _MARK.split(data)
    return {name.decode(): content for name, content in zip(parts[1::2], parts[2::2], strict=True)}


def make_deepdive(rng):
    packed = graph_files(*random_graph(rng))
    for _ in range(rng.choice((0, 0, 1, 2))):  # a number in a place where there is one
        name = rng.choice(EXTENSIONS[1:])
        data = bytearray(packed[name])
        if len(data) >= 8:
            at = rng.randrange(len(data) - 7)
            data[at : at + 8] = struct.pack(">q", rng.choice(_STRANGE))
            packed[name] = bytes(data)
    return joined(packed)


def literal(data):
    """Read a graph number by number."""
    packed = parted(data)
    n_weights, n, n_factors, *_ = map(int, packed[".meta"].split(b"\n")[0].split(b",")[:4])
    weights = {k: w for k, _, w in struct.iter_unpack(">qBd", packed[".weights"])}
    variables = {k: row for k, *row in struct.iter_unpack(">qBqhq", packed[".variables"])}
    factors, text = [], packed[".factors"]
    while text:
        function, arity = struct.unpack_from(">hq", text)
        flat = struct.unpack_from(f">{2 * arity}q", text, 10)
        weight, feature = struct.unpack_from(">qd", text, 10 + 16 * arity)
        factors.append((function, list(zip(flat[::2], flat[1::2], strict=True)), weight, feature))
        text = text[26 + 16 * arity :]
    domains, numbers = {}, [number for (number,) in struct.iter_unpack(">q", packed.get(".domains", b""))]
    while numbers:
        i, size, *numbers = numbers
        domains[i], numbers = numbers[:size], numbers[size:]
    assert (len(weights), len(variables), len(factors)) == (n_weights, n, n_factors)
    rows = [(seen, value, size) for seen, value, _, size in (variables[k] for k in range(n))]
    return [weights[k] for k in range(n_weights)], rows, factors, domains


def same_model(data, model):
    """Whether a model has the log-density of a graph, in a few random states."""
    graph = literal(data)
    sizes = [size for _, _, size in graph[1]]
    if list(model.cardinalities) != sizes:
        return False
    rng = np.random.default_rng(0)
    states = np.stack([rng.integers(size, size=30) for size in sizes], axis=1)
    expected = [log_density(graph, x) for x in states]
    scale = sum(abs(graph[0][weight] * feature) for *_, weight, feature in graph[2])
    return np.allclose(model.log_density(states), expected, rtol=1e-12, atol=1e-12 * (1 + 4 * scale))


def same_evidence(path, data):
    """Whether the observed values are those of a graph."""
    _, variables, _, _ = literal(data)
    return db.read_evidence(path) == {i: value for i, (seen, value, _) in enumerate(variables) if seen}
