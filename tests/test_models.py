"""Models: one distribution whichever way it is built, conditioned, merged or converted."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dobrushin as db
from dobrushin._models.memory import Memory, Slot
from dobrushin._shared.state_file import fingerprint
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

SEEDS = st.integers(0, 10**6)


def digits(model, states):
    return (states + 1) // 2 if isinstance(model, db.Ising | db.SpinMRF) else states


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, zeros=st.booleans())
def test_factor_graph_is_the_same_distribution(family, seed, zeros):
    model = random_model(np.random.default_rng(seed), family, zeros=zeros)
    graph, states = model.to_factor_graph(), all_states(model)
    assert model.log_density(states) == pytest.approx(graph.log_density(digits(model, states)), abs=1e-12)
    assert graph.cardinalities.tolist() == model.cardinalities.tolist()
    assert list(graph.labels) == list(model.labels)
    for i in range(model.n_variables):
        # The factor graph may keep a coupling that is exactly zero.
        assert set(model.neighbors(i)) <= set(graph.neighbors(i))


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, zeros=st.booleans())
def test_conditionals_are_those_of_the_joint_density(family, seed, zeros):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, zeros=zeros)
    states = all_states(model)
    allowed = states[model.log_density(states) > -np.inf]
    for state in allowed[rng.integers(len(allowed), size=3)]:
        for i in range(model.n_variables):
            others = np.repeat(state[None], model.cardinalities[i], axis=0)
            others[:, i] = list(model.states(i))
            weights = np.exp(model.log_density(others) - model.log_density(others).max())
            assert model.conditional(i, state) == pytest.approx(weights / weights.sum(), abs=1e-12)
    batch = allowed.reshape(1, *allowed.shape)
    assert model.conditional(0, batch).shape == (1, len(allowed), model.cardinalities[0])
    assert model.log_density(batch).shape == (1, len(allowed))


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, zeros=st.booleans())
def test_evidence_gives_the_conditional_distribution(family, seed, zeros):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=int(rng.integers(2, 6)), zeros=zeros)
    states = all_states(model)
    allowed = states[model.log_density(states) > -np.inf]
    seen = rng.choice(model.n_variables, size=int(rng.integers(1, model.n_variables)), replace=False)
    state = allowed[rng.integers(len(allowed))]
    smaller = model.condition({model.labels[i]: state[i] for i in seen})
    kept = [i for i in range(model.n_variables) if i not in seen]
    assert type(smaller) is type(model)
    assert list(smaller.labels) == [model.labels[i] for i in kept]
    agree = states[(states[:, seen] == state[seen]).all(axis=1)]
    whole, part = model.log_density(agree), smaller.log_density(agree[:, kept])
    finite = whole > -np.inf
    assert (finite == (part > -np.inf)).all()
    assert np.ptp(whole[finite] - part[finite]) < 1e-9


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, zeros=st.booleans())
def test_merging_keeps_the_distribution(family, seed, zeros):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=5, zeros=zeros)
    shuffled = rng.permutation(5)
    groups = [shuffled[:2].tolist(), shuffled[2 : 2 + int(rng.integers(1, 4))].tolist()]
    merged = model.merge([[model.labels[i] for i in group] for group in groups])
    members = {(group[0] if len(group) == 1 else tuple(group)): group for group in groups}
    states = all_states(model)
    joint = np.zeros((len(states), merged.n_variables), dtype=int)
    for k, label in enumerate(merged.labels):
        group = members.get(label, [label] if not isinstance(label, tuple) else list(label))
        joint[:, k] = np.ravel_multi_index(tuple(digits(model, states)[:, group].T), tuple(model.cardinalities[group]))
    assert merged.log_density(joint) == pytest.approx(model.log_density(states), abs=1e-12)


def test_ways_to_build_an_ising_model():
    import networkx as nx

    dense = np.array([[0, 0.3, 0], [0.3, 0, -0.2], [0, -0.2, 0]])
    graph = nx.Graph()
    graph.add_nodes_from([("a", {"field": 1.0}), "b", "c"])
    graph.add_weighted_edges_from([("a", "b", 0.3), ("b", "c", -0.2)])
    states = np.array([[1, -1, 1], [1, 1, 1], [-1, 1, -1]])
    expected = db.Ising(dense, fields=[1.0, 0, 0]).log_density(states)
    for model in (
        db.Ising(sparse.csr_matrix(dense), fields=np.array([1, 0, 0])),
        db.Ising(sparse.coo_array(dense), fields={0: 1.0}),
        db.Ising({(0, 1): 0.3, (2, 1): -0.2}, fields={0: 1.0}),
        db.Ising({("a", "b"): 0.3, ("b", "c"): -0.2}, fields={"a": 1.0}),
        db.Ising(graph),
        db.Ising.from_networkx(graph),
        db.Ising(dense.tolist(), fields=(1.0, 0, 0)),
    ):
        assert model.log_density(states) == pytest.approx(expected)
    assert db.Ising(graph).labels == ("a", "b", "c")
    assert db.Ising(graph, fields=2.0).fields.tolist() == [2, 2, 2]
    potts = db.Potts(graph, states=3)
    assert potts.labels == ("a", "b", "c")
    assert potts.condition({"a": 2}).labels == ("b", "c")


def test_whole_number_labels_are_positions():
    gap = db.Ising({(0, 1): 0.1, (3, 4): 0.2})
    assert gap.n_variables == 5
    assert gap.neighbors(2).tolist() == []
    assert db.Ising({(0, 1): 0.1}, fields=np.zeros(4)).n_variables == 4
    assert db.SpinMRF({(0, 5): 0.1}).n_variables == 6
    named = db.SpinMRF({("x", "y", "z"): 0.5}, fields={"y": 1.0})
    assert named.labels == ("x", "y", "z")
    assert named.terms == {("x", "y", "z"): 0.5}


def test_grids():
    rng = np.random.default_rng(0)
    right, down = rng.normal(size=(3, 3)), rng.normal(size=(2, 4))
    by_pair = db.Ising.grid(3, 4, couplings=(right, down), fields=rng.normal(size=(3, 4)))
    by_edge = db.Ising.grid(3, 4, couplings=np.concatenate([right.ravel(), down.ravel()]), fields=by_pair.fields)
    assert (by_pair.couplings != by_edge.couplings).nnz == 0
    assert by_pair.couplings[5, 6] == right[1, 1]
    assert by_pair.couplings[5, 9] == down[1, 1]
    torus = db.Ising.grid(3, 4, couplings=0.1, periodic=True)
    assert np.diff(torus.couplings.indptr).tolist() == [4] * 12
    assert torus.neighbors(0).tolist() == [1, 3, 4, 8]
    assert db.Ising.grid(1, 5, couplings=0.1, periodic=True).neighbors(0).tolist() == [1, 4]
    unaries = rng.normal(size=(3, 4, 5))
    potts = db.Potts.grid(3, 4, states=5, couplings=0.2, unaries=unaries)
    assert (potts.unaries == unaries.reshape(12, 5)).all()


def test_models_do_not_share_memory_with_their_arguments():
    couplings, fields = np.array([[0, 0.5], [0.5, 0]]), np.zeros(2)
    model = db.Ising(couplings, fields)
    couplings[:] = 9
    fields[:] = 9
    assert model.log_density([1, 1]) == 0.5
    with pytest.raises(ValueError, match="read-only"):
        model.fields[0] = 1
    order = np.array([0, 1])
    scan = db.Scan(order)
    order[:] = 0
    assert scan.order.tolist() == [0, 1]


def test_a_million_variables_build_without_an_object_each():
    import tracemalloc

    tracemalloc.start()
    model = db.Ising.grid(1000, 1000, couplings=0.1)
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(model.labels, range)
    # 12 bytes for each of 4 neighbours, a row start, a field
    assert current < 70 * model.n_variables


def test_labels_that_are_ranges():
    graph = db.FactorGraph([2, 2, 2], [], labels=range(2, -1, -1))
    assert [graph.index(label) for label in (0, 1, 2)] == [2, 1, 0]
    matrix = [[0, 0.1, 0], [0.1, 0, 0.5], [0, 0.5, 0]]
    bound = db.Influence(matrix, labels=range(2, -1, -1))
    assert db.variation(bound, db.Scan([0]), targets=[2]).value == pytest.approx(0.1)


def test_terms_of_many_variables_need_no_table():
    wide = db.SpinMRF({tuple(range(40)): 0.1, (0, 40): 0.2})
    assert wide.neighbors(40).tolist() == [0]
    for method in ("paper", "best"):
        assert db.influence(wide, method=method).matrix.nnz == 40 * 39 + 2
    with pytest.raises(db.BudgetError, match="table of the largest term"):
        wide.to_factor_graph()


def test_models_and_errors_survive_pickling():
    import pickle

    for family in FAMILIES:
        model = random_model(np.random.default_rng(0), family, n=4)
        copy = pickle.loads(pickle.dumps(model))
        states = all_states(model)
        assert (copy.log_density(states) == model.log_density(states)).all()
    with pytest.raises(db.ArgumentError) as caught:
        db.Ising({(0, 1): "x"})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_subclasses_are_models():
    class Mine(db.Ising):
        pass

    assert db.influence(Mine({(0, 1): 0.3})).matrix.nnz == 2


def test_contradictory_evidence_is_named():
    hard = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    pair = db.PairwiseMRF([[0, 0], [0, 0], [0, 0]], [(0, 1), (1, 2)], hard)
    graph = pair.to_factor_graph()
    for model in (pair, graph):
        with pytest.raises(ValueError, match=r"'evidence' argument .* possible"):
            model.condition({0: 0, 1: 1})
        assert model.condition({0: 1}).conditional(0, [0, 1]).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="label 1"):
        db.Potts({(0, 1): 1.0}, states=2, unaries=[[0, 0], [0, -np.inf]]).condition({1: 1})


@pytest.mark.parametrize("family", FAMILIES_WITH_ZEROS)
def test_forbidden_states_have_no_probability(family):
    for seed in range(20):
        model = random_model(np.random.default_rng(seed), family, zeros=True, n=4)
        values = model.log_density(all_states(model))
        assert not np.isnan(values).any()


def test_sparse_matrices_that_are_dicts_are_matrices():
    matrix = sparse.dok_array((3, 3))
    matrix[0, 1] = matrix[1, 0] = 0.5
    assert db.Ising(matrix).couplings[0, 1] == 0.5


def test_negative_positions_are_refused():
    for make in (
        lambda: db.Ising({(-1, 0): 0.1}),
        lambda: db.Potts({(0, -3): 0.1}, states=3),
        lambda: db.Ising({}, fields={-2: 0.5}),
    ):
        with pytest.raises(db.ArgumentError, match=r"not negative if they are whole numbers.* Got -[123]"):
            make()
    assert db.Ising({("a", -1): 0.1}).labels == ("a", -1)


# -- memory ------------------------------------------------------------------------------------


def test_memory_makes_a_value_once_and_keeps_those_used_last():
    memory, slot, made = Memory(), Slot("numbers", max_values=2), []
    for key in (1, 2, 1, 3, 1, 2):
        assert memory.get(slot, lambda key=key: made.append(key) or 10 * key, key) == 10 * key
    assert made == [1, 2, 3, 2]
    assert memory.values(slot) == [10, 20]
    assert memory.get(Slot("numbers"), lambda: "another slot of the same name", 1) == "another slot of the same name"


def test_memory_is_bounded_in_bytes_but_keeps_the_last_value():
    memory, slot = Memory(), Slot("arrays", max_values=100, max_bytes=10_000)
    for size in (400, 400, 400, 2000):
        memory.get(slot, lambda size=size: np.zeros(size), object())
        assert sum(array.nbytes for array in memory.values(slot)) <= max(10_000, 8 * size)
    assert [len(array) for array in memory.values(slot)] == [2000]


def test_memory_is_neither_pickled_nor_part_of_a_model():
    model, same = (db.Ising.grid(4, 4, couplings=0.2) for _ in range(2))
    db.estimate(model, [0])
    db.sample(model, db.Scan.systematic(16, 160), chains=2)
    assert model._memory._values
    assert model._form.memory._values
    assert fingerprint(model) == fingerprint(same)
    again = pickle.loads(pickle.dumps(model))
    assert not again._memory._values
    assert not again._form.memory._values
    assert again == model


def test_a_model_shares_its_memory_with_its_parts():
    model = db.Ising.grid(30, 30, couplings=0.2)
    part, rest = model._near(np.array([0]), 3).model, model.condition({0: 1})
    assert part._memory.common is rest._memory.common is model._memory
    assert part._memory is not model._memory


@pytest.mark.parametrize("family", FAMILIES)
def test_pickles_leave_out_what_can_be_made_again(family):
    model = random_model(np.random.default_rng(5), family)
    before = vars(pickle.loads(pickle.dumps(model))).keys(), vars(pickle.loads(pickle.dumps(model._form))).keys()
    made = [model.fingerprint, model._form.adjacency, model._form.tables(), model.index(model.labels[0])]
    assert len(made) == 4
    assert (
        vars(pickle.loads(pickle.dumps(model))).keys(),
        vars(pickle.loads(pickle.dumps(model._form))).keys(),
    ) == before
    again = pickle.loads(pickle.dumps(model._off_by(1e-12)))
    assert again == model
    assert again._error == model._error


def test_pairs_without_edges():
    model = db.PairwiseMRF(np.zeros((1, 2)), np.empty((0, 2), dtype=int), np.empty((0, 2, 2)))
    assert db.estimate(model, [0]).value.tolist() == [0.5, 0.5]
