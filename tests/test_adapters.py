"""Other libraries: exact round trips, the other library's own answers, and one sentence for what cannot be used."""

import gzip
import importlib.util
import itertools
import os
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

import dimod
import dimod.testing
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dobrushin as db
from dobrushin import adapters, from_dimod, from_pgmpy, to_dimod, to_pgmpy, to_sampleset
from dobrushin._models.ising import SpinPairs
from dobrushin.adapters import CertifiedInference, DobrushinSampler
from dobrushin.adapters import dimod_sampler as sampler_module
from dobrushin.errors import ArgumentError
from models import all_states, random_model
from transcripts import run_docstrings, run_section

SEEDS = st.integers(0, 10**6)
DATA = os.environ.get("DOBRUSHIN_DATA")
CLASSES = [dimod.Float64BQM, dimod.Float32BQM, dimod.DictBQM]
has_pgmpy = importlib.util.find_spec("pgmpy") is not None
needs_pgmpy = pytest.mark.skipif(not has_pgmpy, reason="pgmpy is not installed (extra 'pgmpy')")

if has_pgmpy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pgmpy warns of its own future
        from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
        from pgmpy.inference import VariableElimination
        from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork
        from pgmpy.models import FactorGraph as PgmpyFactorGraph
        from pgmpy.readwrite import BIFReader


def assert_same(one, other):
    """The same labels and, but for the sign of zeros, the same numbers."""
    assert list(one.labels) == list(other.labels)
    assert isinstance(one.labels, range) == isinstance(other.labels, range)
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(one.couplings, part), getattr(other.couplings, part)), part
    assert np.array_equal(one.fields, other.fields)


def random_bqm(rng, cls=dimod.Float64BQM, vartype="SPIN", n=None):
    """A random model with labels of all kinds, in no order."""
    n = int(rng.integers(1, 7)) if n is None else n
    labels = [("a", 1), "b", 7, 0, (("c",),), "d"][:n]
    pairs = {pair: rng.normal() for pair in itertools.combinations(labels, 2) if rng.random() < 0.5}
    return cls({label: rng.normal() for label in labels}, pairs, rng.normal(), vartype)


# -- no adapter needed -----------------------------------------------------------------------


@given(seed=SEEDS)
def test_graphs_and_sparse_matrices_are_models_as_they_are(seed):
    model = random_model(np.random.default_rng(seed), "ising")
    for kind in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_matrix):
        assert_same(db.Ising(kind(model.couplings), model.fields), model)
    graph = nx.from_scipy_sparse_array(sparse.csr_array(model.couplings))
    nx.set_node_attributes(graph, dict(enumerate(model.fields)), "field")
    assert_same(db.Ising(graph), model)
    potts = db.Potts(graph, states=3)
    assert (potts.couplings != db.Potts(sparse.csr_matrix(model.couplings), states=3).couplings).nnz == 0


# -- dimod -----------------------------------------------------------------------------------


@given(seed=SEEDS, beta=st.sampled_from([1.0, 0.37, 3.0, 1e-3]))
def test_models_come_back_from_dimod_exactly(seed, beta):
    rng = np.random.default_rng(seed)
    model = random_model(rng, "ising")
    if rng.random() < 0.5:
        model = SpinPairs(model.couplings, model.fields).to_model([f"v{i}" for i in range(model.n_variables)])
    bqm = to_dimod(model, beta=beta, offset=0.1)
    assert bqm.vartype is dimod.SPIN
    assert list(bqm.variables) == list(model.labels)
    assert bqm.offset == 0.1
    once = from_dimod(bqm, beta=beta)
    if beta == 1:
        assert_same(once, model)
    assert once.fields == pytest.approx(model.fields, rel=1e-15)
    assert_same(from_dimod(to_dimod(once, beta=beta), beta=beta), once)


@given(seed=SEEDS)
def test_dimod_models_of_spins_come_back_exactly(seed):
    bqm = random_bqm(np.random.default_rng(seed))
    back = to_dimod(from_dimod(bqm), offset=bqm.offset)
    assert back == bqm
    assert list(back.variables) == list(bqm.variables)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
@pytest.mark.parametrize("cls", CLASSES)
@given(seed=SEEDS, beta=st.sampled_from([1.0, 0.37, 3.0]))
def test_the_distribution_is_that_of_the_energy(cls, vartype, seed, beta):
    bqm = random_bqm(np.random.default_rng(seed), cls, vartype)
    model = from_dimod(bqm, beta=beta)
    assert list(model.labels) == list(bqm.variables)
    spins = all_states(model)
    tight = 1e-12 if cls is not dimod.Float32BQM else 1e-5
    for view, states in ((bqm.spin, spins), (bqm.binary, (spins + 1) // 2)):
        energies = view.energies((states, list(bqm.variables)))
        constant = np.ptp(model.log_density(spins) + beta * energies)
        assert constant == pytest.approx(0, abs=tight * 50)
        assert_same_distribution(from_dimod(view, beta=beta), model, tight)
    back = to_dimod(model, beta=beta, offset=bqm.spin.offset)
    wanted = bqm.spin.energies((spins, list(bqm.variables)))
    assert back.energies((spins, list(bqm.variables))) == pytest.approx(wanted, abs=tight * 50)


def assert_same_distribution(one, other, tight):
    states = all_states(one)
    assert one.log_density(states) == pytest.approx(other.log_density(states), abs=tight * 50)


def test_zero_interactions_and_single_variables():
    bqm = dimod.BinaryQuadraticModel({}, {("a", "b"): 0.0}, "BINARY")
    assert from_dimod(bqm).couplings.nnz == 0
    assert from_dimod(dimod.BinaryQuadraticModel({"x": 2.0}, {}, "BINARY")).fields == pytest.approx([-1.0])
    assert isinstance(from_dimod(dimod.BinaryQuadraticModel({0: 1, 1: 1}, {}, "SPIN")).labels, range)
    assert from_dimod(dimod.BinaryQuadraticModel({1: 1, 0: 1}, {}, "SPIN")).labels == (1, 0)


PAIR = dimod.BinaryQuadraticModel({"a": 1.0}, {("a", "b"): 1.0}, "SPIN")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: from_dimod(3), "'bqm' argument of dobrushin.from_dimod must be a dimod.Bin.* Got 3."),
        (lambda: from_dimod(dimod.QM()), "must be a dimod.BinaryQuadraticModel"),
        (lambda: from_dimod(dimod.BQM("SPIN")), "must be a model of at least one variable"),
        (lambda: from_dimod(PAIR, beta=0), "'beta' .* must be a positive finite number. Got 0."),
        (lambda: from_dimod(PAIR, beta=np.inf), "'beta' .* Got inf."),
        (lambda: from_dimod(dimod.BQM({"a": np.nan}, {}, "SPIN")), "Got nan at label 'a'"),
        (lambda: from_dimod(dimod.BQM({}, {("a", "b"): np.inf}, "BINARY")), "Got inf at labels 'b', 'a'"),
        (lambda: from_dimod(dimod.BQM({"a": 2.0**300}, {}, "SPIN"), beta=2.0**50), r"Got .*e\+105 at label 'a'"),
        (lambda: from_dimod(dimod.DictBQM({"a": "x"}, {}, "SPIN")), "biases are real numbers"),
        (lambda: to_dimod(db.Potts({(0, 1): 1.0}, 2)), "'model' .* must be an Ising model. Got Potts"),
        (lambda: to_dimod(db.Ising({(0, 1): 1.0}), beta=-1), "'beta' .* Got -1."),
        (lambda: to_dimod(db.Ising({(0, 1): 1.0}), beta=5e-324), "'beta' .* large enough .* Got 5e-324."),
        (lambda: to_dimod(db.Ising({(0, 1): 1.0}), offset=np.nan), "'offset' .* Got nan."),
        (lambda: to_dimod(db.Ising({(None, 1): 1.0})), "without the label None"),
        (lambda: DobrushinSampler().sample("x"), "'bqm' argument of dobrushin.adapters.DobrushinSampler.sample"),
        (lambda: DobrushinSampler().sample(PAIR, num_reads=0), "'num_reads' .* Got 0."),
        (lambda: DobrushinSampler().sample(PAIR, num_sweeps=1.5), "'num_sweeps' .* Got 1.5."),
        (lambda: DobrushinSampler().sample(PAIR, seed=-1), "'seed' .* Got -1."),
        (lambda: DobrushinSampler().sample(PAIR, beta="x"), "'beta' .* Got 'x'."),
        (lambda: DobrushinSampler().sample(dimod.BQM("SPIN"), beta=-2), "'beta' .* Got -2."),
        (lambda: DobrushinSampler().sample(PAIR, initial_states={"a": 1}), r"'initial_states' .* Got \{'a': 1\}."),
        (lambda: DobrushinSampler().sample(PAIR, initial_states={"a": 1, "b": 5}), "'initial_states' .* vartype"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_in_one_sentence(call, sentence):
    with pytest.raises(ArgumentError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


# -- the sampler -----------------------------------------------------------------------------


@dimod.testing.load_sampler_bqm_tests(DobrushinSampler)
class TestSamplerByDimod(unittest.TestCase):
    """The tests that dimod has for samplers."""

    def test_api(self):
        dimod.testing.assert_sampler_api(DobrushinSampler())


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_samples_have_the_distribution_and_the_energies(vartype):
    bqm = random_bqm(np.random.default_rng(5), vartype=vartype, n=4)
    reads = 40_000
    found = DobrushinSampler().sample(bqm, num_reads=reads, num_sweeps=100, beta=0.3, seed=2)
    dimod.testing.assert_sampleset_energies(found, bqm)
    assert found.vartype is bqm.vartype
    assert found.info["total_variation_bound"] < 1e-6
    model = from_dimod(bqm, beta=0.3)
    sampled = found.record.sample[:, [list(found.variables).index(label) for label in model.labels]]
    spins = sampled if vartype == "SPIN" else 2 * sampled - 1
    counts = np.bincount(np.ravel_multi_index(((spins + 1) // 2).T, (2,) * 4), minlength=16)

    def distance(wanted):
        return np.abs(counts / reads - wanted.ravel()).max()

    # Hoeffding for 16 frequencies, wrong with probability 1e-9; another temperature must be found out.
    allowed = np.sqrt(np.log(2 * 16 / 1e-9) / (2 * reads))
    assert distance(db.exact.distribution(model)) < allowed
    assert distance(db.exact.distribution(from_dimod(bqm, beta=0.6))) > allowed


def test_the_bound_is_the_variation_of_the_scan_and_only_where_it_is_cheap(monkeypatch):
    bqm = to_dimod(db.Ising.grid(4, 4, couplings=0.2), beta=2.0)
    info = DobrushinSampler().sample(bqm, num_sweeps=5, beta=2.0, seed=1).info
    bound = db.variation(from_dimod(bqm, beta=2.0), db.Scan.systematic(16, 80))
    # The errors of the updates as they are drawn are in it.
    assert bound.value < info["total_variation_bound"] <= bound.value + 1e-12
    assert info["marginal_bound"] == pytest.approx(bound.per_variable.max(), abs=1e-12)
    assert {name: info[name] for name in ("seed", "kernel", "scan", "num_sweeps", "beta")} == {
        "seed": 1, "kernel": "field", "scan": "systematic", "num_sweeps": 5, "beta": 2.0,
    }  # fmt: skip
    # A bound that says nothing is no warning here: nobody asked for it.
    assert DobrushinSampler().sample(bqm, num_sweeps=5, beta=50.0).info["total_variation_bound"] == 1.0
    monkeypatch.setattr(sampler_module, "_CHEAP_STEPS", 1.0)
    info = DobrushinSampler().sample(bqm, num_sweeps=5).info
    assert info["total_variation_bound"] is info["marginal_bound"] is None


def test_seeds_repeat_and_info_is_plain():
    bqm = random_bqm(np.random.default_rng(1), n=6)
    sampler = DobrushinSampler()
    first = sampler.sample(bqm, num_reads=70, num_sweeps=20)
    again = sampler.sample(bqm, num_reads=70, num_sweeps=20, seed=first.info["seed"])
    assert np.array_equal(first.record.sample, again.record.sample)
    bits = sampler.sample(bqm.binary, num_reads=70, num_sweeps=20, seed=first.info["seed"])
    assert np.array_equal(2 * bits.record.sample - 1, first.record.sample)
    child = np.random.SeedSequence(3).spawn(2)[1]
    for seed in (None, 5, child, np.random.SeedSequence([1, 2])):
        found = sampler.sample(bqm, num_reads=3, num_sweeps=2, seed=seed)
        kept = dimod.SampleSet.from_serializable(found.to_serializable())
        assert kept.info == found.info
    assert sampler.sample(bqm, seed=child, num_sweeps=2).info["seed"] == {"entropy": 3, "spawn_key": [1]}


def test_initial_states_are_where_chains_start():
    chain = {(i, i + 1): -1.0 for i in range(5)}
    frozen = dimod.BinaryQuadraticModel({}, chain, "SPIN")
    up, down = dict.fromkeys(range(6), 1), dict.fromkeys(range(6), -1)
    sampler = DobrushinSampler()

    def ends(bqm, states, **keywords):
        found = sampler.sample(bqm, beta=50.0, num_sweeps=1, initial_states=states, seed=1, **keywords)
        return found.record.sample.tolist()

    assert ends(frozen, up) == [[1] * 6]
    assert ends(frozen, [up, down]) == [[1] * 6, [-1] * 6]
    assert ends(frozen, [up, down], num_reads=3) == [[1] * 6, [-1] * 6, [1] * 6]
    assert ends(frozen, [up, down], num_reads=1) == [[1] * 6]
    zeros = dict.fromkeys(range(6), 0)
    assert ends(frozen, zeros) == [[-1] * 6]
    assert ends(frozen.binary, [zeros, up]) == [[0] * 6, [1] * 6]
    assert ends(frozen.binary, down) == [[0] * 6]
    # By label, not by place: two variables that repel each other, held by nothing but where they start.
    order = dimod.BinaryQuadraticModel({"z": 0.0, "a": 0.0}, {("z", "a"): 1.0}, "SPIN")
    for states in ({"a": 1, "z": -1}, (np.array([[-1, 1]]), ["z", "a"]), (np.array([[1, -1]]), ["a", "z"])):
        found = sampler.sample(order, beta=50.0, num_sweeps=1, initial_states=states)
        assert found.first.sample == {"a": 1, "z": -1}
    low = dimod.SampleSet.from_samples_bqm(zeros, frozen.binary)
    assert ends(frozen, low, num_reads=2) == [[-1] * 6] * 2


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_samples_become_sample_sets_in_the_vartype_of_the_model(vartype):
    bqm = random_bqm(np.random.default_rng(4), vartype=vartype, n=4)
    model = from_dimod(bqm)
    run = db.sample(model, db.Scan.systematic(4, 40), chains=50, seed=2)
    found = to_sampleset(run, bqm)
    dimod.testing.assert_sampleset_energies(found, bqm)
    assert found.vartype is bqm.vartype
    assert found.info == {"seed": 2, "kernel": run.kernel, "chains": 50, "steps": 40}
    spins = found.change_vartype("SPIN", inplace=False)
    place = [list(spins.variables).index(label) for label in model.labels]
    assert np.array_equal(spins.record.sample[:, place], run.states)
    kept = db.sample(model, db.Scan.systematic(4, 40), chains=3, seed=2, record=db.Record(every=4))
    assert len(to_sampleset(kept, bqm)) == kept.states.shape[0] * kept.states.shape[1]
    one = db.sample(model, db.Scan([0]), seed=1, record=[model.labels[0]])
    for call, sentence in (
        (lambda: to_sampleset(one, bqm), r"with the variables of 'bqm'. Got 1 variable\."),
        (lambda: to_sampleset(3, bqm), "must be Samples. Got 3"),
        (lambda: to_sampleset(run, 3), "must be a dimod.BinaryQuadraticModel. Got 3"),
    ):
        with pytest.raises(ArgumentError, match=sentence):
            call()


def test_mixins_composites_and_unknown_keywords():
    sampler = DobrushinSampler()
    found = sampler.sample_ising({"a": -50.0}, {("a", "b"): -50.0}, num_reads=5, seed=1)
    assert (found.record.sample == 1).all()
    assert found.vartype is dimod.SPIN
    found = sampler.sample_qubo({("a", "a"): -100.0, ("a", "b"): 300.0}, num_reads=5, seed=1)
    assert found.vartype is dimod.BINARY
    assert all(sample == {"a": 1, "b": 0} for sample in found.samples())
    bqm = dimod.BinaryQuadraticModel({}, {("a", "b"): -60.0, ("b", "c"): 60.0}, 1.5, "SPIN")
    tracked = dimod.TrackingComposite(dimod.TruncateComposite(sampler, 2)).sample(bqm, num_reads=4, seed=1)
    assert len(tracked) == 2
    dimod.testing.assert_sampleset_energies(tracked, bqm)
    less = bqm.copy()
    less.fix_variable("b", 1)
    assert set(sampler.sample(less, seed=1).first.sample.items()) == {("a", 1), ("c", -1)}
    with pytest.warns(dimod.exceptions.SamplerUnknownArgWarning, match="annealing_time"):
        sampler.sample(bqm, annealing_time=20)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_a_model_of_nothing_has_one_state(vartype):
    found = DobrushinSampler().sample(dimod.BinaryQuadraticModel({}, {}, 1.5, vartype), num_reads=3, seed=9)
    assert found.record.energy.tolist() == [1.5] * 3
    assert found.info["total_variation_bound"] == 0.0
    assert found.info["seed"] == 9


# -- libraries that are not there ------------------------------------------------------------


def test_libraries_are_imported_when_they_are_used():
    code = (
        "import sys, dobrushin as db; db.adapters; dir(db.adapters); "
        "print([m for m in ('dimod', 'pgmpy', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'from_nothing'"):
        _ = adapters.from_nothing
    assert set(dir(adapters)) == set(adapters.__all__)


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dimod", None)
    monkeypatch.delitem(sys.modules, "dobrushin.adapters.dimod_sampler")
    monkeypatch.delattr(adapters, "DobrushinSampler")
    for call in (
        lambda: adapters.DobrushinSampler,
        lambda: from_dimod(None),
        lambda: to_dimod(db.Ising({(0, 1): 1.0})),
    ):
        with pytest.raises(ImportError, match=r"^This needs dimod, which .*: pip install 'dobrushin\[dimod\]'$"):
            call()
    for module in ("pgmpy", "pgmpy.models", "pgmpy.factors", "pgmpy.factors.discrete"):
        monkeypatch.setitem(sys.modules, module, None)
    for call in (from_pgmpy, CertifiedInference):
        with pytest.raises(ImportError, match=r"^This needs pgmpy, which .*: pip install 'dobrushin\[pgmpy\]'$"):
            call(None)


# -- pgmpy -----------------------------------------------------------------------------------


def random_table(rng, shape, zeros):
    """Weights, some of them 0 but never all along the first axis."""
    weights = rng.gamma(1.0, size=shape)
    weights[(rng.random(shape) < 0.2) & (np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1)) > 0)] *= not zeros
    return weights


def random_network(rng, kind, zeros=False):
    """A network of pgmpy with states of many names, some variables with one state only."""
    n = int(rng.integers(2, 6))
    nodes = [("x", 0), "b", 7, "d", 0][:n]
    sizes = {node: int(k) for node, k in zip(nodes, rng.choice([1, 2, 2, 3], size=n), strict=True)}
    sizes[nodes[0]] = 2
    names = {node: [f"{node}.{k}" for k in range(sizes[node])][::-1] for node in nodes}
    names[nodes[1]] = list(range(sizes[nodes[1]]))
    if kind == "bayesian":
        network = DiscreteBayesianNetwork()
        network.add_nodes_from([nodes[i] for i in rng.permutation(n)])
        for k, node in enumerate(nodes):
            parents = [other for other in nodes[:k] if rng.random() < 0.5]
            network.add_edges_from([(parent, node) for parent in parents])
            weights = random_table(rng, (sizes[node], int(np.prod([sizes[p] for p in parents]))), zeros)
            weights /= weights.sum(axis=0)
            own = {other: names[other] for other in (node, *parents)}
            cards = [sizes[p] for p in parents]
            network.add_cpds(TabularCPD(node, sizes[node], weights, parents or None, cards or None, own))
        return network, names
    scopes = [(node,) for node in nodes] + list(itertools.combinations(nodes, 2))[: n + 1] + [tuple(nodes[:3])]
    factors = []
    for scope in scopes:
        own = {node: names[node] for node in scope}
        weights = random_table(rng, [sizes[node] for node in scope], zeros)
        factors.append(DiscreteFactor(scope, [sizes[node] for node in scope], weights, own))
    if kind == "markov":
        network = DiscreteMarkovNetwork()
        network.add_nodes_from([nodes[i] for i in rng.permutation(n)])
        network.add_edges_from(itertools.combinations(nodes, 2))
    else:
        network = PgmpyFactorGraph()
        network.add_nodes_from(nodes)
        network.add_nodes_from(factors)
        network.add_edges_from([(node, factor) for factor in factors for node in factor.scope()])
    network.add_factors(*factors)
    return network, names


def joint_of(network, labels):
    """The product of all tables, axes in the order of the labels, variables of one state left out."""
    tables = network.get_cpds() if isinstance(network, DiscreteBayesianNetwork) else network.get_factors()
    number = {}
    operands = []
    for table in tables:
        operands += [table.values, [number.setdefault(variable, len(number)) for variable in table.variables]]
    product = np.einsum(*operands, [number[label] for label in labels])
    return product / product.sum()


KINDS = ["bayesian", "markov", "graph"]


@needs_pgmpy
@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS, zeros=st.booleans())
def test_the_factor_graph_has_the_distribution_of_the_network(kind, seed, zeros):
    network, names = random_network(np.random.default_rng(seed), kind, zeros)
    model = from_pgmpy(network)
    order = [node for node in network.nodes() if node in names and len(names[node]) > 1]
    assert list(model.labels) == order
    assert db.exact.distribution(model) == pytest.approx(joint_of(network, order), abs=1e-12)


@needs_pgmpy
@pytest.mark.parametrize("kind", ["bayesian", "markov"])
@given(seed=SEEDS)
def test_queries_agree_with_variable_elimination(kind, seed):
    rng = np.random.default_rng(seed)
    network, names = random_network(rng, kind)
    nodes = list(names)
    asked = [nodes[i] for i in rng.permutation(len(nodes))[: int(rng.integers(1, 3))]]
    others = [node for node in nodes if node not in asked and rng.random() < 0.5]
    evidence = {node: names[node][int(rng.integers(len(names[node])))] for node in others}
    theirs = VariableElimination(network).query(asked, evidence=evidence, show_progress=False)
    theirs.normalize(inplace=True)
    inference = CertifiedInference(network)
    ours = inference.query(asked, evidence=evidence)
    assert type(ours) is type(theirs)
    assert ours.variables == asked
    assert ours.state_names == {node: names[node] for node in asked}
    assert ours.cardinality.tolist() == [len(names[node]) for node in asked]
    assert ours.values == pytest.approx(theirs.values, abs=1e-9)
    assert inference.state_names == names
    each = inference.query(asked, evidence=evidence, joint=False)
    assert list(each) == asked
    for node in asked:
        alone = theirs.marginalize([other for other in asked if other != node], inplace=False)
        assert each[node].variables == [node]
        assert each[node].values == pytest.approx(alone.values, abs=1e-9)


def weather():
    """Rain and sprinkler make wet, wet makes slippery."""
    states = {name: ["yes", "no"] for name in ("rain", "sprinkler", "wet")} | {"slip": ["none", "some", "much"]}
    network = DiscreteBayesianNetwork([("rain", "wet"), ("sprinkler", "wet"), ("wet", "slip")])
    wet = [[0.9, 0.8, 0.7, 0.4], [0.1, 0.2, 0.3, 0.6]]
    network.add_cpds(
        TabularCPD("rain", 2, [[0.2], [0.8]], state_names=states),
        TabularCPD("sprinkler", 2, [[0.1], [0.9]], state_names=states),
        TabularCPD("wet", 2, wet, ["rain", "sprinkler"], [2, 2], states),
        TabularCPD("slip", 3, [[0.5, 0.1], [0.3, 0.1], [0.2, 0.8]], ["wet"], [2], states),
    )
    return network


@needs_pgmpy
@pytest.mark.parametrize("method", ["exact", "dobrushin", "coalescence"])
def test_intervals_hold_and_come_with_the_answer(method):
    network = weather()
    theirs = VariableElimination(network).query(["rain"], evidence={"slip": "some"}, show_progress=False).values
    inference = CertifiedInference(network)
    answer = inference.query(["rain"], {"slip": "some"}, method=method, tolerance=0.02, confidence=0.999, seed=1)
    assert answer.estimate.plan.method == method
    rows = answer.estimate["rain"]
    assert rows.states == ["yes", "no"]
    assert answer.values == pytest.approx(rows.value, abs=0)
    assert answer.values.sum() == pytest.approx(1)
    assert (rows.lower <= theirs).all()
    assert (theirs <= rows.upper).all()
    assert answer.estimate.half_width.max() <= 0.02
    assert float(answer.get_value(rain="yes")) == rows.value[0]
    # What pgmpy makes of the answer is no longer the answer.
    assert not hasattr(answer.normalize(inplace=False), "estimate")
    joint = inference.query(["slip", "rain"], method=method, tolerance=0.05, seed=1)
    wanted = VariableElimination(network).query(["slip", "rain"], show_progress=False)
    assert joint.values == pytest.approx(wanted.values, abs=0.05)
    assert joint.estimate.states[1] == ("none", "no")


@needs_pgmpy
def test_estimates_become_factors():
    network = weather()
    answer = db.estimate(network, ["rain", db.Joint("slip", "rain")], method="exact", evidence={"wet": "no"})
    inference = VariableElimination(network)
    for target, scope in (("rain", ["rain"]), (("slip", "rain"), ["slip", "rain"])):
        ours = to_pgmpy(answer, target)
        theirs = inference.query(scope, evidence={"wet": "no"}, show_progress=False)
        assert ours.variables == scope
        assert ours == theirs
        assert ours.state_names == {name: theirs.state_names[name] for name in scope}
        assert ours.estimate is answer
    for call, sentence in (
        (lambda: to_pgmpy(answer), "given, where there are several. Got none of 2 targets."),
        (lambda: to_pgmpy(answer, "wet"), "one of the targets that were estimated"),
        (lambda: to_pgmpy(3), "an Estimate. Got 3"),
    ):
        with pytest.raises(ArgumentError, match=sentence):
            call()
    spins = db.Ising({(0, 1): 0.1})
    with pytest.raises(ArgumentError, match="a variable or a Joint"):
        to_pgmpy(db.estimate(spins, db.Statistic.magnetisation(spins), seed=1, tolerance=0.1))


@needs_pgmpy
def test_only_what_matters_is_looked_at():
    inference = CertifiedInference(weather())
    relevance = inference.query(["rain"]).estimate.plan.relevance
    assert relevance == "1 of 4 variables matter to the targets"
    # Given "wet", the variables that matter are its parents, but not its children.
    assert inference.query(["rain"], {"wet": "yes"}).estimate.plan.relevance.startswith("2 of 3 variables")
    assert inference.query(["wet"], {"slip": "none"}).estimate.plan.relevance == ""


@needs_pgmpy
def test_tables_that_are_slightly_off_are_normalised():
    network = weather()
    network.get_cpds("rain").values *= 1 + 3e-7
    model = from_pgmpy(network)
    table = next(table for scope, table in map(model.factor, range(model.n_factors)) if len(scope) == 1)
    assert np.exp(table).sum() == pytest.approx(1, abs=1e-15)
    network.get_cpds("rain").values *= 1 + 1e-4
    model = from_pgmpy(network)
    sums = [np.exp(table).sum() for scope, table in map(model.factor, range(model.n_factors)) if len(scope) == 1]
    assert max(sums) == pytest.approx(1.0001003, abs=1e-8)


@needs_pgmpy
def test_variables_of_one_state_are_certain():
    network = DiscreteBayesianNetwork([("one", "two")])
    network.add_cpds(
        TabularCPD("one", 1, [[1.0]], state_names={"one": ["only"]}),
        TabularCPD("two", 2, [[0.3], [0.7]], ["one"], [1], {"one": ["only"], "two": ["a", "b"]}),
    )
    assert from_pgmpy(network).labels == ("two",)
    inference = CertifiedInference(network)
    both = inference.query(["one", "two"])
    assert both.values == pytest.approx(np.array([[0.3, 0.7]]))
    alone = inference.query(["one"], {"two": "a"})
    assert alone.values.tolist() == [1.0]
    assert alone.estimate is None
    assert inference.query(["two"], {"one": "only"}, joint=False)["two"].values == pytest.approx([0.3, 0.7])
    assert inference.query(["one", "two"], joint=False)["one"].values.tolist() == [1.0]
    with pytest.raises(ArgumentError, match="one of the states 'only' of 'one'"):
        inference.query(["two"], {"one": "other"})


@needs_pgmpy
def test_names_of_states_must_agree():
    def network(*names):
        made = DiscreteMarkovNetwork([("a", "b")])
        made.add_factors(*(DiscreteFactor(["a"], [2], [1, 3], {"a": own} if own else {}) for own in names))
        made.add_factors(DiscreteFactor(["b"], [2], [1, 1]))
        return made

    # Numbers are what pgmpy calls states that have no names.
    for names in ((["x", "y"], None), (None, ["x", "y"]), (["x", "y"], ["x", "y"])):
        assert CertifiedInference(network(*names)).query(["a"]).state_names["a"] == ["x", "y"]
    for names in ((["x", "y"], ["y", "x"]), (None, [1, 0]), ([True, False], None), (["x", "y"], ["x", "z"])):
        with pytest.raises(ArgumentError, match="one whose tables agree on the states of 'a'"):
            from_pgmpy(network(*names))


def unusual_networks():
    """Networks that cannot be used, and why."""
    empty = DiscreteBayesianNetwork([("a", "b")])
    yield empty, "one with a table for each variable. Got none for 'a'"
    halves = [[0.5], [0.5]]
    strange = DiscreteBayesianNetwork([("a", "b")])
    strange.add_cpds(TabularCPD("a", 2, halves), TabularCPD("b", 2, halves))
    yield strange, r"whose table of 'b' is for its parents \['a'\]. Got \[\]"
    sums = DiscreteBayesianNetwork()
    sums.add_node("a")
    sums.add_cpds(TabularCPD("a", 2, [[0.5], [0.4]]))
    yield sums, "conditional probabilities, which sum to 1. Got 0.9 at the table of 'a'"
    sizes = DiscreteMarkovNetwork([("a", "b")])
    sizes.add_factors(DiscreteFactor(["a"], [2], [1, 1]), DiscreteFactor(["a", "b"], [3, 2], np.ones(6)))
    yield sizes, r"agree on the states of 'a'. Got \[0, 1\] and \[0, 1, 2\]"
    for value in (-1.0, np.nan, np.inf):
        weights = DiscreteMarkovNetwork([("a", "b")])
        weights.add_factors(DiscreteFactor(["a", "b"], [2, 2], [1, value, 1, 1]))
        yield weights, rf"finite, non-negative weights. Got {value} at the table of \['a', 'b'\]"
    bare = DiscreteMarkovNetwork([("a", "b")])
    bare.add_factors(DiscreteFactor(["a"], [2], [1, 1]))
    yield bare, "one with a table for each variable. Got none for 'b'"
    certain = DiscreteBayesianNetwork()
    certain.add_node("a")
    certain.add_cpds(TabularCPD("a", 1, [[1.0]]))
    yield certain, r"a variable of two or more states. Got \['a'\]"
    yield nx.path_graph(2), "a DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph of pgmpy"
    yield 3, "FactorGraph of pgmpy. Got 3."


@needs_pgmpy
def test_networks_that_cannot_be_used():
    for network, sentence in unusual_networks():
        with pytest.raises(ArgumentError, match=sentence) as caught:
            from_pgmpy(network)
        assert "\n" not in str(caught.value)


@needs_pgmpy
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((["snow"],), "'variables' .* variables of the network .'rain', .*. Got 'snow'."),
        (("rain",), "'variables' .* a list of variables of the network. Got 'rain'."),
        (([],), r"'variables' .* Got \[\]."),
        ((3,), "'variables' .* Got 3."),
        ((["rain", "rain"],), "'variables' .* distinct. Got 'rain' at index 1."),
        (([["rain"]],), r"'variables' .* Got \['rain'\]."),
        ((["rain"], {"rain": "yes"}), "'variables' .* variables that are not in the evidence. Got 'rain'."),
        ((["rain"], {"wet": "maybe"}), "'evidence' .* one of the states 'yes', 'no' of 'wet'. Got 'maybe'"),
        ((["rain"], {"wet": 0}), "'evidence' .* Got 0 at variable 'wet'"),
        ((["rain"], {"snow": "yes"}), "'evidence' .* Got 'snow'."),
        ((["rain"], ["wet"]), r"'evidence' .* a dict from variables to names of states. Got \['wet'\]."),
    ],
)
def test_queries_that_cannot_be_answered(arguments, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        CertifiedInference(weather()).query(*arguments)


@needs_pgmpy
def test_impossible_evidence_is_told():
    network = DiscreteBayesianNetwork([("a", "b")])
    network.add_cpds(TabularCPD("a", 2, [[1.0], [0.0]]), TabularCPD("b", 2, [[1.0, 0.5], [0.0, 0.5]], ["a"], [2]))
    with pytest.raises(ValueError, match="evidence"):
        CertifiedInference(network).query(["a"], {"b": 1})


@needs_pgmpy
@pytest.mark.skipif(not DATA, reason="DOBRUSHIN_DATA, the folder of real files, is not set")
@pytest.mark.parametrize("name", ["asia", "cancer", "earthquake"])
def test_real_networks_are_those_of_our_reader(name):
    path = Path(DATA) / "bif" / f"{name}.bif.gz"
    model, names = db.read(path), db.io.state_names(path)
    network = BIFReader(string=gzip.decompress(path.read_bytes()).decode()).get_model()
    inference = CertifiedInference(network)
    assert {node: tuple(states) for node, states in inference.state_names.items()} == names
    for label in model.labels:
        ours = db.estimate(model, [label], method="exact")
        assert inference.query([label], method="exact").values == pytest.approx(ours.value, abs=1e-12)


@needs_pgmpy
def test_examples_run_where_pgmpy_is():
    """Those of the docstrings, which are skipped elsewhere, and those of the page."""
    from dobrushin.adapters import networks as module

    assert run_docstrings(module, "pgmpy") >= 15
    assert run_section("pgmpy") >= 2
