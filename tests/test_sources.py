"""One door for everything that stands for a model: paths, and models of other libraries."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import dobrushin as db
from dobrushin._models import sources
from dobrushin._models.sources import as_model, reader_of
from dobrushin._shared.environment import READERS

dimod = pytest.importorskip("dimod")
needs_pyagrum = pytest.mark.skipif(importlib.util.find_spec("pyagrum") is None, reason="pyagrum is not installed")


def path_graph():
    graph = nx.path_graph(["sun", "rain", "wet"])
    nx.set_edge_attributes(graph, {("sun", "rain"): -0.4, ("rain", "wet"): 0.7}, "weight")
    graph.nodes["sun"]["field"] = 0.2
    return graph


MODEL = db.Ising({("sun", "rain"): -0.4, ("rain", "wet"): 0.7}, fields={"sun": 0.2})
SCAN = db.Scan.systematic(3, 30)
CALLS = {
    "estimate": lambda model: db.estimate(model, "wet", evidence={"sun": 1}).value,
    "plan": lambda model: db.plan(model, "wet").method,
    "estimate_many": lambda model: db.estimate_many(model, [("wet", None)])[0].value,
    "influence": lambda model: db.influence(model).matrix.toarray(),
    "variation": lambda model: db.variation(model, SCAN, "wet").value,
    "shortest_scan": lambda model: len(db.shortest_scan(model, "wet", tolerance=0.1).scan),
    "greedy_scan": lambda model: db.greedy_scan(model, "wet", steps=9).variation.value,
    "optimize": lambda model: db.optimize_scan(model, SCAN, "wet").variation.value,
    "sample": lambda model: db.sample(model, SCAN, chains=10, seed=1).states,
    "coalescence": lambda model: db.coalescence(model, SCAN, runs=64, seed=1).value,
    "exact_sample": lambda model: db.exact_sample(model, ["wet"], draws=10, seed=1).states,
    "diagnose": lambda model: db.diagnose(model).n_variables,
    "suggest_groups": db.suggest_groups,
    "exact.marginals": lambda model: np.stack(db.exact.marginals(model)),
    "exact.log_partition": lambda model: float(db.exact.log_partition(model)),
    "exact.most_likely": lambda model: db.exact.most_likely(model).states,
    "exact.distribution": db.exact.distribution,
    "exact.influence": db.exact.influence,
    "exact.law": lambda model: db.exact.law(model, SCAN),
    "Statistic.energy": lambda model: db.estimate(MODEL, db.Statistic.energy(model)).value,
    "Statistic.magnetisation": lambda model: db.estimate(MODEL, db.Statistic.magnetisation(model)).value,
    "Statistic.total": lambda model: db.estimate(MODEL, db.Statistic.total(model, ["wet"])).value,
    "fit": lambda model: db.fit(model, [[1, 1, -1], [-1, 1, 1], [1, -1, -1]], method="exact", iterations=3).parameters,
    "report": lambda model: (
        db.estimate(MODEL, "wet", evidence={"sun": 1}).report(model=model, diagnosis=False).html.count("<")
    ),
    "plots.scan_map": lambda model: len(db.plots.scan_map(SCAN, model=model).shape),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_takes_a_model_takes_a_path_and_other_libraries(name, tmp_path):
    db.write(MODEL, tmp_path / "model.npz")
    expected = CALLS[name](MODEL)
    for value in (tmp_path / "model.npz", str(tmp_path / "model.npz"), db.to_dimod(MODEL), path_graph()):
        answer = CALLS[name](value)
        if isinstance(expected, np.ndarray):
            np.testing.assert_array_equal(answer, expected)
        else:
            assert answer == expected


def test_a_path_may_be_that_of_a_field(tmp_path):
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    db.write(field, tmp_path / "field.npz")
    assert db.estimate(tmp_path / "field.npz", [0]).value == pytest.approx(db.estimate(field, [0]).value)
    assert db.estimate(model=str(tmp_path / "field.npz"), targets=[0]).value == pytest.approx(
        db.estimate(field, [0]).value
    )
    assert "in Wasserstein distance" in str(db.diagnose(tmp_path / "field.npz"))


def test_a_file_is_read_once_as_long_as_it_does_not_change(tmp_path):
    path = tmp_path / "model.npz"
    db.write(MODEL, path)
    first = as_model(path)
    assert as_model(str(path)) is first
    assert as_model(os.path.relpath(path)) is first
    db.write(MODEL.condition({"sun": 1}), path)
    assert as_model(path).n_variables == 2
    for k in range(20):
        db.write(MODEL, tmp_path / f"{k}.npz")
        as_model(tmp_path / f"{k}.npz")
    assert len(sources._MEMORY.values(sources._FILES)) <= sources._FILES.max_values


def test_folders_are_opened(tmp_path):
    db.write(db.Ising.grid(20, 20, couplings=0.1), tmp_path / "grid")
    assert db.estimate(tmp_path / "grid", [0], tolerance=0.05).is_certified
    assert not as_model(tmp_path / "grid")._is_whole


def test_bits_of_dimod_are_asked_for_and_answered_as_bits():
    bqm = dimod.BinaryQuadraticModel({"a": 1.0}, {("a", "b"): -2.0}, "BINARY")
    assert db.estimate(bqm, "b", evidence={"a": 1}).states == [0, 1]
    assert db.estimate(bqm, "b", evidence={"a": 1}).value[1] == pytest.approx(np.exp(2) / (1 + np.exp(2)))


def test_graphs_with_unaries_are_potts_models():
    graph = nx.path_graph(3)
    nx.set_edge_attributes(graph, 0.3, "weight")
    graph.nodes[1]["unary"] = [0.0, 1.0, 0.0]
    model = as_model(graph)
    assert isinstance(model, db.Potts)
    assert model.unaries[1].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, r"a model, the path of a file, or a model of dimod, pgmpy, pyAgrum, networkx, PyMC or thrml\. Got 3"),
        ("asia.bif", r"\(there is no such file\)\. Got 'asia\.bif'"),
        (str(Path(__file__).with_name("conftst.py")), r"no such file; the nearest is 'conftest\.py'\)"),
        (np.zeros((2, 2)), "must be a model"),
        (nx.DiGraph([(0, 1)]), "an undirected simple graph"),
        (nx.path_graph(2), "whose edges all have the attribute 'weight'"),
        (dimod.BinaryQuadraticModel("SPIN"), "at least one variable"),
    ],
)
def test_what_is_no_model_is_refused_in_a_sentence(value, message):
    with pytest.raises(db.ArgumentError, match=message):
        db.estimate(value, "all")
    with pytest.raises(db.ArgumentError, match="a model or an Influence"):
        db.variation(3, SCAN)


def test_a_broken_file_is_told_as_read_tells_it(tmp_path):
    (tmp_path / "bad.bif").write_text("network {")
    with pytest.raises(db.FormatError, match="expected"):
        db.estimate(tmp_path / "bad.bif", "all")


def test_no_library_is_imported_to_look():
    code = (
        "import sys, dobrushin as db; from dobrushin._models.sources import reader_of\n"
        "class Own: pass\n"
        "assert reader_of(Own()) is None\n"
        "libraries = 'dimod', 'pgmpy', 'networkx', 'pyagrum', 'dobrushin.io.dispatch', 'dobrushin.adapters.dimod'\n"
        "print([m for m in libraries if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_library_defined_here_is_read_after_one_line(monkeypatch):
    class Chain:
        length = 4

    Chain.__module__ = "elsewhere.models"
    assert reader_of(Chain()) is None
    monkeypatch.setitem(READERS, "elsewhere", read_chain)
    assert db.estimate(Chain(), [0]).value.tolist() == [0.5, 0.5]


def read_chain(chain):
    """The adapter of this test."""
    return db.Ising.grid(1, chain.length, couplings=0.2)


PYAGRUM = """
import pyagrum, numpy as np, dobrushin as db
network = pyagrum.fastBN("a{yes|no}->b{x|y|z}<-c[2]->d<-a")
inference = pyagrum.LazyPropagation(network)
inference.setEvidence({"a": "no"})
inference.makeInference()
for source in (network, pyagrum.MarkovRandomField.fromBN(network)):
    answer = db.estimate(source, "all", evidence={"a": "no"})
    for name in ("b", "c", "d"):
        np.testing.assert_allclose(answer[name].value, inference.posterior(name).toarray(), atol=1e-9)
        assert answer[name].states == list(network.variable(name).labels())
        tensor = db.to_pyagrum(answer, network, name)
        assert abs((tensor - inference.posterior(name)).toarray()).max() < 1e-9
inference.addJointTarget({"b", "c"})
inference.makeInference()
joint = db.estimate(network, db.Joint("c", "b"), evidence={"a": "no"})
tensor, theirs = db.to_pyagrum(joint, network), inference.jointPosterior({"b", "c"})
assert tensor.names == ("c", "b"), tensor.names
for b in "xyz":
    for c in "01":
        assert abs(tensor[{"b": b, "c": c}] - theirs[{"b": b, "c": c}]) < 1e-9
for call, sentence in [
    (lambda: db.to_pyagrum(answer, network), "given, where there are several"),
    (lambda: db.to_pyagrum(joint, 3), "a BayesNet or a MarkovRandomField"),
    (lambda: db.to_pyagrum(3, network), "an Estimate"),
    (lambda: db.to_pyagrum(joint, pyagrum.fastBN("x->y")), "with the variable 'c'"),
    (lambda: db.to_pyagrum(joint, pyagrum.fastBN("c[2]->b{u|v|w}")), "with the states ['x', 'y', 'z'] of 'b'"),
]:
    try:
        call()
        raise SystemExit(sentence)
    except db.ArgumentError as error:
        assert sentence in str(error), error
import sys
sys.path.insert(0, "TESTS")
from transcripts import run_docstrings, run_section
from dobrushin.adapters import networks as module
assert run_docstrings(module, "pyagrum") >= 8
assert run_section("pyAgrum") == 1
"""


@needs_pyagrum
def test_networks_of_pyagrum_give_pyagrums_answers():
    # In a process of its own: its library does not load after some others.
    result = subprocess.run(
        [sys.executable, "-c", PYAGRUM.replace("TESTS", str(Path(__file__).parent))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
