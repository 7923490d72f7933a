"""Graphs of DeepDive: every function against its definition, observed values, domains, and broken files."""

import gzip
import itertools
import math
import random
import struct

import numpy as np
import pytest

import dobrushin as db
import fuzz_deepdive
from fuzz_deepdive import write_graph


@pytest.mark.parametrize("number", range(20))
def test_every_function_has_its_log_density(tmp_path, number):
    graph = fuzz_deepdive.random_graph(random.Random(number))
    path = write_graph(tmp_path, *graph)
    model = db.read(path)
    states = np.array(list(itertools.product(*(range(size) for _, _, size in graph[1]))))
    expected = [fuzz_deepdive.log_density(graph, x) for x in states]
    np.testing.assert_allclose(model.log_density(states), expected, rtol=1e-12, atol=1e-12)
    assert model._form.error <= 1e-12
    assert db.read_evidence(path) == {i: value for i, (seen, value, _) in enumerate(graph[1]) if seen}
    assert all(model.state_names[i] == tuple(values) for i, values in graph[3].items())


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


def test_a_factor_of_many_variables_or_states_is_refused_before_its_table_is_made(tmp_path):
    for states, arity in ((2, 1100), (2**20, 20)):
        path = write_graph(tmp_path, [0.7], [(0, 0, states)] * arity, [(2, [(i, 1) for i in range(arity)], 0, 1.0)])
        with pytest.raises(db.FormatError, match="at most 1048576 combinations"):
            db.read(path)


DOMAINS = {
    "more bytes": (lambda data: data + b"\0", "whole numbers of 8 bytes"),
    "twice": (lambda data: data * 2, "increasing order"),
    "huge": (lambda data: data[:8] + struct.pack(">q", 2**63 - 1) + data[16:], "increasing order"),
    "negative": (lambda data: data[:8] + struct.pack(">q", -5) + data[16:], "increasing order"),
    "decreasing": (lambda data: data[:16] + struct.pack(">q", 8) + data[24:], "increasing order"),
    "without the value of a factor": (
        lambda data: data[:-8] + struct.pack(">q", 99),
        "a state of the variable to comp",
    ),
}


@pytest.mark.parametrize("case", DOMAINS)
def test_broken_domains_are_named(tmp_path, case):
    domain = [-(2**63), 7, 9]
    path = write_graph(tmp_path, [0.7], [(1, 7, 3), (0, 0, 2)], [(15, [(0, 9), (1, 1)], 0, 1.0)], {0: domain})
    assert db.read(path).state_names[0] == tuple(domain)
    change, message = DOMAINS[case]
    (tmp_path / "graph.domains").write_bytes(change((tmp_path / "graph.domains").read_bytes()))
    with pytest.raises(db.FormatError, match=message):
        db.read(path)


def test_packed_files_links_and_folders(tmp_path):
    """Each file of a graph may be packed or a link; a folder or a pipe in its place is refused."""
    path = write_graph(tmp_path, [0.7], [(1, 1, 2), (0, 0, 2)], [(0, [(0, 1), (1, 1)], 0, 1.0)])
    expected = db.read(path).log_density([[0, 0], [1, 0]])
    weights = tmp_path / "graph.weights"
    with gzip.open(f"{weights}.gz", "wb") as file:
        file.write(weights.read_bytes())
    weights.unlink()
    (tmp_path / "graph.factors").rename(tmp_path / "elsewhere")
    (tmp_path / "graph.factors").symlink_to(tmp_path / "elsewhere")
    assert (db.read(path).log_density([[0, 0], [1, 0]]) == expected).all()
    weights.mkdir()
    with pytest.raises(db.FormatError, match="a directory"):
        db.read(path)
    (tmp_path / "graph.factors").unlink()
    (tmp_path / "graph.factors").symlink_to("/dev/zero")
    weights.rmdir()
    with pytest.raises(db.FormatError, match="a device or pipe"):
        db.read(path)


def test_memory_is_charged_before_it_is_taken(tmp_path):
    path = write_graph(tmp_path, [0.1], [(0, 0, 2**31)], [(2, [(0, 1)], 0, 1.0)])
    with pytest.raises(db.FormatError, match="states of at most 1073741824 bytes"):
        db.read(path)
    path = write_graph(tmp_path, [0.1], [(0, 0, 2)] * 300, [(2, [(i, 1)], 0, 1.0) for i in range(300)])
    with pytest.raises(db.FormatError, match="memory_limit"):
        db.read(path, memory_limit=20_000)
