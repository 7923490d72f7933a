"""Large factor graphs: built from arrays, and asked about some variables at a cost that does not grow with them."""

import json
import os
import pickle

import numpy as np
import pytest

import dobrushin as db
from dobrushin._estimate import choice
from dobrushin._sampling.kernel import WHOLE_KERNEL
from models import all_states, random_model

TABLES = ["pairwise", "spins", "factors"]


def random_graph(n, rng, strength=0.1, arity=2):
    """Three-state variables and twice as many factors on random variables."""
    scopes = np.array([rng.choice(n, arity, replace=False) for _ in range(2 * n)])
    tables = strength * rng.normal(size=(2 * n, *[3] * arity))
    return db.FactorGraph.from_arrays(np.full(n, 3), scopes, tables), scopes, tables


# -- from arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_arrays_make_the_model_that_a_list_makes(seed):
    rng = np.random.default_rng(seed)
    sizes = np.array([2, 3, 3, 2, 3])
    pairs, singles = np.array([[1, 2], [4, 1], [2, 4]]), np.array([[0], [3]])
    tables = [rng.normal(size=(3, 3, 3)), rng.normal(size=(2, 2))]
    tables[0][0, 1, 2] = -np.inf
    model = db.FactorGraph.from_arrays(sizes, [pairs, singles], tables, labels=list("abcde"))
    factors = [*zip(pairs.tolist(), tables[0], strict=True), *zip(singles.tolist(), tables[1], strict=True)]
    same = db.FactorGraph(sizes, factors, labels=list("abcde"))
    states = all_states(model)
    np.testing.assert_array_equal(model.log_density(states), same.log_density(states))
    assert (model.labels, model.n_factors) == (same.labels, 5)


def test_no_factors_at_all():
    model = db.FactorGraph.from_arrays([2, 3], np.empty((0, 2), dtype=int), np.empty((0, 2, 3)))
    assert model.n_factors == 0
    assert db.FactorGraph([2, 3], []).n_factors == 0
    assert db.FactorGraph.from_arrays([2, 3], [], []).n_factors == 0


@pytest.mark.parametrize(
    ("scopes", "tables", "message"),
    [
        ([[0, 1]], np.zeros((1, 2, 2)), r"'tables' .* the shape \(2, 3\) of the scope \(0, 1\). Got shape \(2, 2\)"),
        ([[0, 2]], np.zeros((1, 2, 2)), r"'scopes' .* positions from 0 to 1. Got 2"),
        ([[0, -1]], np.zeros((1, 2, 2)), r"'scopes' .* positions from 0 to 1. Got -1"),
        ([[1, 1]], np.zeros((1, 3, 3)), r"'scopes' .* distinct variables. Got \(1, 1\) at index 0"),
        ([[0.5, 1]], np.zeros((1, 2, 3)), r"'scopes' .* arrays of positions of shape \(F, arity\)"),
        ([0, 1], np.zeros((2, 2)), r"'scopes' .* arrays of positions of shape \(F, arity\)"),
        ([[0, 1]], np.full((1, 2, 3), np.nan), r"'tables' .* finite, .* Got nan at index 0"),
        ([[0, 1]], np.zeros((2, 2, 3)), r"'tables' .* of shape \(1, k, k\). Got shape \(2, 2, 3\)"),
        ([np.array([[0, 1]])], [], "'tables' .* an array for each entry of 'scopes'. Got 0 arrays for 1"),
        ([[0, 1]], "nonsense", "'tables' .* an array of real numbers"),
    ],
)
def test_wrong_arrays_are_named(scopes, tables, message):
    with pytest.raises(db.ArgumentError, match=message):
        db.FactorGraph.from_arrays([2, 3], scopes, tables)


def test_scopes_may_be_anything_that_can_be_gone_through():
    table = np.random.default_rng(0).normal(size=(2, 3))
    lists = db.FactorGraph([2, 3], [([0, 1], table.tolist())])
    for scope in ((0, 1), np.array([0, 1]), range(2), iter([0, 1])):
        same = db.FactorGraph([2, 3], ((s, table) for s in [scope]))
        np.testing.assert_array_equal(same.factor(0)[1], lists.factor(0)[1])
    for wrong in ((True, 1), (0, 10**30), (0, None)):
        with pytest.raises(db.ArgumentError, match=r"scopes? of positions"):
            db.FactorGraph([2, 3], [((0, 1), table), (wrong, table)])


# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", TABLES)
@pytest.mark.parametrize("seed", range(8))
def test_inner_variables_of_a_part_have_their_conditional_laws(family, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=9, density=0.25)
    centre = np.array([int(rng.integers(9))])
    for radius in (1, 2, 3):
        part = model._near(centre, radius)
        where = part.numbering.positions
        assert centre[0] in where[part.inner]
        for i in np.flatnonzero(part.inner):
            assert set(model.neighbors(where[i])) <= set(where.tolist())
            state = np.array([rng.choice(model.states(v)) for v in range(9)])
            np.testing.assert_allclose(
                part.model.conditional(int(i), state[where]), model.conditional(int(where[i]), state), rtol=1e-12
            )
    parts = model._parts()
    for i in range(9):
        assert set(parts.neighbors_at(np.array([i]))) - {i} == set(model.neighbors(i))
        assert parts.degrees_at(np.array([i]))[0] >= len(model.neighbors(i))


def test_models_with_forbidden_combinations_have_no_parts():
    never = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    model = db.FactorGraph([3, 3], [((0, 1), never)])
    assert not model._has_parts
    with pytest.raises(db.ArgumentError, match="without forbidden combinations"):
        model._near(np.array([0]), 1)


@pytest.mark.parametrize("method", ["auto", "dobrushin", "local"])
def test_answers_about_a_large_model_are_those_of_the_whole(monkeypatch, method):
    """Asked nearby or as a whole: the intervals hold the same numbers."""
    model, scopes, _ = random_graph(300, np.random.default_rng(1))
    other = int(scopes[(scopes == 7).any(axis=1)][0].sum() - 7)
    for evidence in (None, {other: 2}):
        whole = db.estimate(model, [7], evidence=evidence, tolerance=0.02, method=method, seed=1)
        with monkeypatch.context() as patch:
            patch.setattr(choice, "_INDEX_SECONDS", 1e-3)
            near = db.estimate(model, [7], evidence=evidence, tolerance=0.02, method=method, seed=1)
        assert near.is_certified
        assert (near.lower <= whole.upper).all()
        assert (whole.lower <= near.upper).all()


def test_only_what_is_near_is_looked_at(monkeypatch):
    model, _, _ = random_graph(300, np.random.default_rng(1))
    monkeypatch.setattr(choice, "_INDEX_SECONDS", 1e-3)
    sizes = []
    part = type(model._form).part

    def watch(form, inside, inner):
        sizes.append(len(inside))
        return part(form, inside, inner)

    monkeypatch.setattr(type(model._form), "part", watch)
    monkeypatch.setattr(type(model._form), "first_radius", 2)
    db.estimate(model, [7], tolerance=0.05, seed=1)
    assert sizes
    assert "adjacency" not in vars(model._form)


@pytest.mark.slow
def test_where_nothing_near_is_certified_the_whole_is_asked(monkeypatch):
    """A chain is summed exactly, however strong it is; around a target, nothing is certified."""
    i = np.arange(400)
    model = db.FactorGraph.from_arrays(
        np.full(401, 3),
        [np.stack([i, i + 1], axis=1), i[:1, None]],
        [np.tile(9 * np.eye(3), (400, 1, 1)), [[0, 1, 2.0]]],
    )
    monkeypatch.setattr(choice, "_INDEX_SECONDS", 1e-3)
    near = db.estimate(model, [400], tolerance=0.01, seed=1)
    assert near.plan.method == "exact"
    assert near.is_certified
    # The state at the other end is still felt, which no part of the chain knows.
    np.testing.assert_allclose(near.value, [0.1235188, 0.2569241, 0.6195571], atol=1e-6)


def test_a_part_is_cut_where_there_are_very_many():
    star = db.FactorGraph.from_arrays(
        np.full(30_001, 2),
        np.stack([np.zeros(30_000, dtype=int), 1 + np.arange(30_000)], axis=1),
        np.zeros((30_000, 2, 2)),
    )
    part = star._near(np.array([5]), 4)
    assert list(part.numbering.positions) == [0, 5]
    assert part.inner.tolist() == [False, True]


# -- evidence and kernels of whole models ------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_evidence_cuts_the_tables_it_touches(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, "factors", n=6, zeros=seed % 2 == 0, max_states=4)
    states = all_states(model)
    allowed = states[model.log_density(states) > -np.inf]
    state = allowed[rng.integers(len(allowed))]
    known = rng.permutation(6)[: int(rng.integers(1, 5))]
    rest = model.condition({int(v): int(state[v]) for v in known})
    kept = [v for v in range(6) if v not in known]
    fitting = states[(states[:, known] == state[known]).all(axis=1)]
    before, after = model.log_density(fitting), rest.log_density(fitting[:, kept])
    finite = np.isfinite(before)
    assert (np.isfinite(after) == finite).all()
    assert np.ptp(before[finite] - after[finite]) < 1e-12


def test_a_kernel_for_the_whole_model_is_made_once():
    rng = np.random.default_rng(0)
    model = random_model(rng, "factors", n=6, max_states=4, density=0.9)
    scan = db.Scan.systematic(6, 60)
    first = db.sample(model, scan, chains=100, seed=1)
    (kept,) = model._form.memory.values(WHOLE_KERNEL)
    assert first.kernel == kept.name == "conditional"
    again = db.sample(model, scan, chains=100, seed=1)
    assert model._form.memory.values(WHOLE_KERNEL) == [kept]
    assert (first.states == again.states).all()
    db.sample(model, scan, chains=100, seed=1, kernel="factors")
    assert [kernel.name for kernel in model._form.memory.values(WHOLE_KERNEL)] == ["factors"]
    db.sample(model, db.Scan([0] * 50), chains=100, seed=1)
    assert [kernel.name for kernel in model._form.memory.values(WHOLE_KERNEL)] == ["factors"]  # parts are not kept


# -- on disk -------------------------------------------------------------------------------------------


def test_a_factor_graph_on_disk_gives_the_answers_of_memory(tmp_path):
    model, scopes, _ = random_graph(5000, np.random.default_rng(2))
    db.write(model, tmp_path / "graph")
    stored = db.open_model(tmp_path / "graph")
    assert repr(stored) == "LocalModel(5000 variables, 10000 factors)"
    assert set(stored.neighbors(7)) == set(model.neighbors(7))
    assert list(stored.states(7)) == [0, 1, 2]
    other = int(scopes[(scopes == 7).any(axis=1)][0].sum() - 7)
    for evidence in (None, {other: 1}):
        for method in ("auto", "dobrushin"):
            far, near = (
                db.estimate(m, [7], evidence=evidence, method=method, tolerance=0.05, seed=3) for m in (model, stored)
            )
            assert (far.lower == near.lower).all()
            assert (far.upper == near.upper).all()
    scan = db.shortest_scan(stored, [7], tolerance=0.1).scan
    runs = [db.sample(m, scan, chains=200, seed=1, record=[7]).states for m in (model, stored)]
    assert (runs[0] == runs[1]).all()
    again = pickle.loads(pickle.dumps(stored))
    assert (again._near(np.array([7]), 2).model.cardinalities == 3).all()
    db.write(stored, tmp_path / "copy")
    for file in (tmp_path / "graph").iterdir():
        assert file.read_bytes() == (tmp_path / "copy" / file.name).read_bytes()


def test_pair_tables_go_to_disk_as_factors_and_others_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    pairs = db.PairwiseMRF(rng.normal(size=(4, 3)), [(0, 1), (1, 2), (2, 3)], rng.normal(size=(3, 3, 3)))
    db.write(pairs, tmp_path / "pairs")
    part = db.open_model(tmp_path / "pairs")._near(np.array([1]), 3).model
    states = all_states(pairs)
    assert np.ptp(pairs.log_density(states) - part.log_density(states)) < 1e-12
    hard = db.FactorGraph([2, 2], [((0, 1), [[0, -np.inf], [0, 0]])])
    for refused in (hard, db.SpinMRF({(0, 1, 2): 0.3})):
        with pytest.raises(db.ArgumentError, match="tables that forbid nothing, for a folder"):
            db.write(refused, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


FILES = ["cardinalities", "scope_start", "scope", "table_start", "factor_start", "factor_of", "table"]
BROKEN = [{"factors": -1}, {"places": "x"}, {"entries": 7}, {"format": "else"}, {"variables": 0}]


def test_broken_files_are_named(tmp_path):
    """Whatever number is wrong near the target: a sentence, or numbers that are used as they are."""
    rng = np.random.default_rng(1)
    model, _, _ = random_graph(30, rng)
    right = db.estimate(model, [3], tolerance=0.1, seed=1, method="local")
    caught = set()
    for trial in range(120):
        folder = tmp_path / str(trial)
        db.write(model, folder)
        name = str(rng.choice(FILES))
        array = np.load(folder / f"{name}.npy")
        array[int(rng.integers(1, len(array) - 1))] = rng.choice([-5, 0, 1, 7, 10**6]) if name != "table" else np.inf
        np.save(folder / f"{name}.npy", array)
        try:
            found = db.estimate(db.open_model(folder), [3], tolerance=0.1, seed=1, method="local")
        except db.FormatError as error:
            caught |= {name} & {os.path.basename(error.path).removesuffix(".npy")}
        else:
            assert (found.lower <= right.upper).all()
            assert (right.lower <= found.upper).all()
    assert caught == set(FILES)


@pytest.mark.parametrize("change", BROKEN, ids=str)
def test_broken_manifests_are_named(tmp_path, change):
    model, _, _ = random_graph(30, np.random.default_rng(1))
    db.write(model, tmp_path / "graph")
    manifest = tmp_path / "graph" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    with pytest.raises(db.FormatError):
        db.open_model(tmp_path / "graph")
