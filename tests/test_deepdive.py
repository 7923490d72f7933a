"""Graphs of DeepDive: every function against its definition, observed values, domains, and broken files."""

import itertools
import math
import struct

import numpy as np
import pytest

import dobrushin as db

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


def rule(holds, without_body, without_head):
    if not all(holds[:-1]):
        return without_body
    return 1 if holds[-1] else without_head


def write_graph(folder, weights, variables, factors, domains=None):
    """Write the files of a graph; variables are (is_observed, value, states), factors (function, pairs, weight, x)."""
    edges = sum(len(pairs) for _, pairs, _, _ in factors)
    (folder / "graph.meta").write_text(f"{len(weights)},{len(variables)},{len(factors)},{edges},a,b,c\n")
    packed = [struct.pack(">qBd", k, 1, w) for k, w in enumerate(weights)]
    (folder / "graph.weights").write_bytes(b"".join(reversed(packed)))  # in any order
    packed = [struct.pack(">qBqhq", k, seen, value, states > 2, states)
              for k, (seen, value, states) in enumerate(variables)]  # fmt: skip
    (folder / "graph.variables").write_bytes(b"".join(packed))
    packed = [struct.pack(f">hq{2 * len(pairs)}qqd", function, len(pairs), *itertools.chain(*pairs), weight, feature)
              for function, pairs, weight, feature in factors]  # fmt: skip
    (folder / "graph.factors").write_bytes(b"".join(packed))
    if domains is not None:
        packed = [struct.pack(f">qq{len(values)}q", k, len(values), *values) for k, values in domains.items()]
        (folder / "graph.domains").write_bytes(b"".join(packed))
    return folder / "graph.meta"


def random_graph(rng, folder):
    """A graph of a few variables with all functions, and its log-density by definition."""
    n = int(rng.integers(3, 6))
    sizes = rng.integers(2, 4, size=n).tolist()
    domains = {i: sorted(rng.choice(100, size=k, replace=False).tolist()) for i, k in enumerate(sizes) if k > 2}
    weights = rng.normal(size=4).tolist()
    factors = []
    for function in FUNCTIONS:
        arity = int(rng.integers(1 if function not in (7, 8, 9) else 2, 4))
        scope = rng.choice(n, size=arity, replace=False).tolist()
        pairs = [(i, int(rng.choice(domains.get(i, range(sizes[i]))))) for i in scope]
        factors.append((function, pairs, int(rng.integers(4)), float(rng.choice([1.0, 0.3, -2.0]))))
    variables = [(int(rng.random() < 0.3), int(rng.choice(domains.get(i, range(k)))), k) for i, k in enumerate(sizes)]

    def log_density(x):
        total = 0.0
        for function, pairs, weight, feature in factors:
            compared = [domains[i].index(value) if i in domains else value for i, value in pairs]
            total += weights[weight] * feature * FUNCTIONS[function]([int(x[i]) for i, _ in pairs], compared)
        return total

    return write_graph(folder, weights, variables, factors, domains), sizes, variables, domains, log_density


@pytest.mark.parametrize("number", range(20))
def test_every_function_has_its_log_density(tmp_path, number):
    path, sizes, variables, domains, log_density = random_graph(np.random.default_rng(number), tmp_path)
    model = db.read(path)
    states = np.array(list(itertools.product(*map(range, sizes))))
    expected = [log_density(x) for x in states]
    np.testing.assert_allclose(model.log_density(states), expected, rtol=1e-12, atol=1e-12)
    assert model._form.error <= 1e-12
    assert db.read_evidence(path) == {i: value for i, (seen, value, _) in enumerate(variables) if seen}
    assert all(model.state_names[i] == tuple(values) for i, values in domains.items())


def test_observed_facts_and_a_marginal(tmp_path):
    """If a spouse is a spouse of one's own: a rule, its observed body, and the probability of its head."""
    path = write_graph(tmp_path, [0.7], [(1, 1, 2), (0, 0, 2)], [(0, [(0, 1), (1, 1)], 0, 1.0)])
    answer = db.estimate(db.read(path), [1], evidence=db.read_evidence(path))
    assert answer.lower[1] <= 1 / (1 + math.exp(-1.4)) <= answer.upper[1]


def test_many_factors_of_one_rule(tmp_path):
    rng, n = np.random.default_rng(1), 300
    factors = [(2, [(int(i), 1), (int((i + 1) % n), 1)], 0, 1.0) for i in rng.integers(n, size=1000)]
    path = write_graph(tmp_path, [0.1], [(0, 0, 2)] * n, factors)
    model = db.read(path)
    assert model.n_factors == 1000
    assert model._form.error == 0.0


BROKEN = {
    "empty meta": ("graph.meta", lambda _: b"1,2", "numbers of weights"),
    "short weights": ("graph.weights", lambda data: data[:-1], "weights of 17 bytes"),
    "twice": ("graph.variables", lambda data: data[:27] * 2, "numbered from 0 to 1"),
    "one state": ("graph.variables", lambda data: data[:19] + struct.pack(">q", 1) + data[27:], "2 or more states"),
    "observed": (
        "graph.variables",
        lambda data: data[:9] + struct.pack(">q", 9) + data[17:],
        "a state of the variable",
    ),
    "infinite": ("graph.weights", lambda data: data[:9] + struct.pack(">d", math.inf), "finite weights"),
    "cut factors": ("graph.factors", lambda data: data[:-1], "factors of one or more variables"),
    "function": ("graph.factors", lambda data: b"\0\x63" + data[2:], "factors with the functions"),
    "variable": ("graph.factors", lambda data: data[:10] + struct.pack(">q", 7) + data[18:], "variables from 0 to 1"),
    "weight": ("graph.factors", lambda data: data[:42] + struct.pack(">q", 5) + data[50:], "weights from 0 to 0"),
    "one twice": ("graph.factors", lambda data: data[:26] + data[10:26] + data[42:], "different variables"),
    "arity": ("graph.factors", lambda data: data[:2] + struct.pack(">q", -1) + data[10:], "factors of one or more"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named(tmp_path, case):
    path = write_graph(tmp_path, [0.7], [(1, 1, 2), (0, 0, 2)], [(0, [(0, 1), (1, 1)], 0, 1.0)])
    db.read(path)
    name, change, message = BROKEN[case]
    (tmp_path / name).write_bytes(change((tmp_path / name).read_bytes()))
    with pytest.raises(db.FormatError, match=message):
        db.read(path)


def test_a_missing_file_of_a_graph_and_one_with_too_many_states(tmp_path):
    path = write_graph(tmp_path, [0.7], [(0, 0, 2)] * 25, [(2, [(i, 1) for i in range(25)], 0, 1.0)])
    with pytest.raises(db.FormatError, match="at most 1048576 combinations"):
        db.read(path)
    (tmp_path / "graph.weights").unlink()
    with pytest.raises(FileNotFoundError, match=r"graph\.weights"):
        db.read(path)
