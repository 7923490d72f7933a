"""Models that are never made as a whole: the same answers as if they were."""

import functools
import json
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dobrushin as db


def hashed(numbers):
    """Couplings in [0, 0.25) that look random."""
    return 0.25 * np.modf(np.abs(np.sin(numbers * 12.9898 + 1.0)) * 43758.5453)[0]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.booleans(), st.integers(0, 10**6))
def test_rows_are_those_of_the_whole_grid(rows, cols, periodic, seed):
    if periodic and min(rows, cols) < 3:
        return
    rng = np.random.default_rng(seed)
    edges = 2 * rows * cols if periodic else rows * (cols - 1) + (rows - 1) * cols
    values, fields = rng.normal(size=edges), rng.normal(size=rows * cols)
    whole = db.Ising.grid(rows, cols, values, fields.reshape(rows, cols), periodic)
    local = db.Ising.grid(rows, cols, lambda e: values[e], lambda i: fields[i], periodic)
    assert isinstance(local, db.LocalModel)
    ball = local._near(np.array([int(rng.integers(rows * cols))]), rows + cols)
    assert ball.inner.all()
    assert (ball.model.couplings != whole.couplings).nnz == 0
    np.testing.assert_array_equal(ball.model.fields, whole.fields)


def test_inner_variables_have_all_their_neighbours():
    local = db.Ising.grid(50, 50, couplings=hashed)
    whole = db.Ising.grid(50, 50, couplings=hashed(np.arange(4900)))
    ball = local._near(np.array([1275, 30]), 3)
    labels = np.asarray(ball.model.labels)
    for place, label in enumerate(labels):
        near = set(labels[ball.model.neighbors(place)].tolist())
        true = set(whole.neighbors(int(label)).tolist())
        assert near <= true
        assert not ball.inner[place] or near == true
    assert 0 < ball.inner.sum() < len(labels)


@pytest.mark.parametrize("target", [0, 1275])
def test_plans_bounds_and_estimates_are_those_of_the_whole(target):
    local = db.Ising.grid(50, 50, couplings=hashed)
    whole = db.Ising.grid(50, 50, couplings=hashed(np.arange(4900)))
    near, far = (db.shortest_scan(model, [target], tolerance=0.01) for model in (local, whole))
    assert near.scan == far.scan
    assert near.variation.value == far.variation.value
    made, other = (db.plan(model, [target], method="dobrushin") for model in (local, whole))
    assert (len(made.scan), made.chains, made.bias) == (len(other.scan), other.chains, other.bias)
    proof, same = (db.coalescence(model, near.scan, [target], runs=2000, seed=1) for model in (local, whole))
    assert (proof.value, proof.failures) == (same.value, same.failures)
    found = db.estimate(local, [target, db.Joint(target, target + 1)], tolerance=0.05, seed=1)
    assert found.is_certified
    assert found.targets[0] == target
    exact = db.estimate(whole, [target], tolerance=0.001, seed=1)
    assert (np.abs(found[target].value - exact.value) < 0.051).all()


def test_a_billion_variables():
    side = 31623
    model = db.Ising.grid(side, side, couplings=hashed)
    centre = side * (side // 2) + side // 2
    found = db.estimate(model, [centre], seed=1)
    assert found.half_width.max() <= 0.01
    strong = db.Ising.grid(side, side, couplings=0.3)
    assert isinstance(strong, db.LocalModel)
    found = db.estimate(strong, [centre], tolerance=0.1, seed=1)
    assert found.plan.method == "local"
    found = db.estimate(strong, [centre], tolerance=0.1, seed=1, method="coalescence")
    assert found.half_width.max() <= 0.1
    labels = db.Potts.grid(side, side, states=3, couplings=0.2, unaries=lambda i: np.tile([0.0, 0.5, 0.0], (len(i), 1)))
    found = db.estimate(labels, [centre], tolerance=0.05, evidence={centre + 1: 2, 0: 1}, seed=1)
    assert found[centre].value[1] > found[centre].value[0]


def test_forbidden_evidence_far_away_is_noticed():
    labels = db.Potts.grid(
        300, 300, states=3, couplings=0.2, unaries=lambda i: np.tile([0.0, -np.inf, 0.0], (len(i), 1))
    )
    with pytest.raises(db.ArgumentError, match="possible"):
        db.estimate(labels, [0], evidence={80_000: 1})


def test_local_models_are_models():
    spins = db.Ising.grid(10**5, 10**5, couplings=hashed)
    labels = db.Potts.grid(40, 50, states=3, couplings=hashed)
    whole = db.Potts.grid(40, 50, states=3, couplings=hashed(np.arange(40 * 49 + 39 * 50)))
    assert isinstance(spins, db.Model)
    assert (spins._is_whole, whole._is_whole) == (False, True)
    assert spins.labels == range(10**10)
    assert spins.index(7) == 7
    assert spins.states(5) == range(-1, 2, 2)
    assert labels.states(5) == range(3)
    assert spins.cardinalities[10**9] == 2
    assert spins.cardinalities.strides == (0,)  # no memory
    np.testing.assert_array_equal(labels.cardinalities, whole.cardinalities)
    for i in (0, 49, 777, 1999):
        np.testing.assert_array_equal(labels.neighbors(i), whole.neighbors(i))
    assert pickle.loads(pickle.dumps(labels)).neighbors(777).tolist() == whole.neighbors(777).tolist()


@pytest.mark.parametrize("states", [None, 3])
def test_draws_of_a_local_model_are_those_of_the_whole(states):
    grid = db.Ising.grid if states is None else functools.partial(db.Potts.grid, states=states)
    local, whole = (grid(30, 30, couplings=value) for value in (hashed, hashed(np.arange(2 * 30 * 29))))
    for scan in (db.Scan([0, 31, 30, 1, 0]), db.Scan.systematic(900, 1800), db.Scan.uniform(900, 50)):
        for chains in (1, 70):
            runs = [db.sample(model, scan, chains=chains, seed=1) for model in (local, whole)]
            np.testing.assert_array_equal(runs[0].states, runs[1].states)
            assert runs[0].update_error == runs[1].update_error.max()  # no array over a model that is never made
            assert (list(runs[0].variables), runs[0].kernel) == (list(runs[1].variables), runs[1].kernel)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.log_density(np.ones(10_000)),
        lambda model: model.conditional(0, np.ones(10_000)),
        lambda model: model.condition({3: 1}),
        lambda model: model.merge([[0, 1]]),
        lambda model: model.to_factor_graph(),
        lambda model: db.influence(model),
        lambda model: db.variation(model, db.Scan([0, 1])),
        lambda model: db.optimize_scan(model, db.Scan([0, 1])),
        lambda model: db.exact.marginals(model),
        lambda model: db.diagnose(model),
    ],
)
def test_what_needs_all_of_a_local_model_says_so(ask):
    with pytest.raises(db.ArgumentError, match=r"'model' .* in memory.* Got LocalModel\(100 x 100"):
        ask(db.Ising.grid(100, 100, couplings=hashed))


def test_functions_that_cannot_be_used_are_named():
    big = db.Ising.grid(100, 100, couplings=hashed)
    for call, message in (
        (lambda: db.estimate(big, "all"), "labels of some variables \\(the model is lazy"),
        (lambda: db.estimate(big, []), "at least one target"),
        (lambda: db.estimate(big, [10**9]), "Got 1000000000"),
        (lambda: db.estimate(big, [0], method="exact"), "'method'"),
        (lambda: db.estimate(big, [0], evidence={1: 3}), "Got 3 at label 1"),
        (lambda: db.shortest_scan(big, tolerance=0.1), "'targets'"),
        (lambda: db.coalescence(big, db.Scan.uniform(10, 5), [0]), "random"),
        (lambda: db.influence(big), "'model'"),
        (lambda: db.estimate(db.Ising.grid(50, 50, couplings=lambda e: np.full(len(e), np.nan)), [0]), "nan at edge"),
        (lambda: db.estimate(db.Ising.grid(50, 50, couplings=lambda e: e[:1] * 0.0), [0]), "returns an array of shape"),
        (lambda: db.Ising.grid(2, 50, couplings=hashed, periodic=True), "'periodic'"),
        (lambda: db.Ising.grid(50, 50, couplings=hashed, fields=np.zeros(3)), "'fields'"),
    ):
        with pytest.raises(db.ArgumentError, match=message):
            call()
    assert repr(big) == "LocalModel(100 x 100 grid, spins)"
    assert repr(db.Potts.grid(3, 3, 4, couplings=hashed, periodic=True)) == "LocalModel(3 x 3 grid, 4 states)"


def test_evidence_does_not_rebuild_a_large_model(monkeypatch):
    couplings = hashed(np.arange(2 * 200 * 199))
    model = db.Ising.grid(200, 200, couplings=couplings, fields=0.1)
    given = {20_101: 1, 3: -1}
    exact = db.estimate(model.condition(given), [20_100], tolerance=0.004, seed=3)

    def refuse(*_):
        raise AssertionError("the whole model was made again")

    whole = db.Ising.condition
    monkeypatch.setattr(
        db.Ising, "condition", lambda self, e: refuse() if self.n_variables > 30_000 else whole(self, e)
    )
    found = db.estimate(model, [20_100], evidence=given, seed=1, method="dobrushin")
    assert (np.abs(found.value - exact.value) <= 0.014).all()
    near = db.plan(model, [20_100], evidence=given, tolerance=0.006, method="dobrushin")
    assert near.bias < 0.006
    # The scan is by positions in the model given the evidence, and has there the bound that was planned with.
    monkeypatch.undo()
    rest = model.condition(given)
    assert abs(db.variation(rest, near.scan, [20_100]).value - near.bias) < 1e-9
    whole = db.variation(rest, found.plan.scan, [20_100], update_error=1e-15)
    assert abs(whole.value - found.certificate.value) < 1e-9
    np.testing.assert_allclose(found.certificate.per_variable, whole.per_variable, atol=1e-9)
    np.testing.assert_allclose(found.certificate.curve(10)[1], whole.curve(10)[1], atol=1e-9)
    with pytest.raises(db.ArgumentError, match="'evidence'"):
        db.estimate(model, [0], evidence={40_000: 1})
    with pytest.raises(db.ArgumentError, match="not in the evidence"):
        db.estimate(model, [3], evidence=given)


def test_arrays_may_lie_on_disk_or_be_pairs(tmp_path):
    rng = np.random.default_rng(0)
    right, down, fields = rng.normal(0, 0.1, (20, 29)), rng.normal(0, 0.1, (19, 30)), rng.normal(0, 0.1, (20, 30))
    whole = db.Ising.grid(20, 30, (right, down), fields)
    np.save(tmp_path / "right.npy", right)
    np.save(tmp_path / "all.npy", np.concatenate([right.ravel(), down.ravel()]))
    np.save(tmp_path / "fields.npy", fields)
    mapped, every, own = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("right", "all", "fields"))
    for couplings, values in (((mapped, down), own), (every, fields), ((right, down), own), (every, own.reshape(-1))):
        local = db.Ising.grid(20, 30, couplings, values)
        assert isinstance(local, db.LocalModel)
        ball = local._near(np.array([0]), 60)
        assert (ball.model.couplings != whole.couplings).nnz == 0
        np.testing.assert_array_equal(ball.model.fields, whole.fields)
    for couplings, values in (((down, mapped), own), (every[1:], own), (mapped, own), (every, own.T)):
        with pytest.raises(db.ArgumentError, match="shape"):
            db.Ising.grid(20, 30, couplings, values)
    with pytest.raises(db.ArgumentError, match="real numbers"):
        db.Ising.grid(20, 30, every, np.zeros((20, 30), dtype=complex))
    with pytest.raises(db.ArgumentError, match="'rows'"):
        db.Ising.grid("20", 30, every)


def same(found, other):
    assert found.plan.scan == other.plan.scan
    for name in ("value", "lower", "upper"):
        np.testing.assert_array_equal(getattr(found, name), getattr(other, name))


def test_models_that_are_never_made_travel_as_what_they_were_made_from(tmp_path):
    values = np.random.default_rng(0).uniform(0, 0.2, 2 * 300 * 299 + 7)
    np.save(tmp_path / "values.npy", values)
    mapped = np.load(tmp_path / "values.npy", mmap_mode="r")
    backwards = np.lib.format.open_memmap(tmp_path / "two.npy", "w+", shape=(2, 2 * 300 * 299))
    backwards[:] = values[7:]
    backwards.flush()
    billion = {"rows": 31623, "cols": 31623}
    for model in (
        db.Ising.grid(**billion, couplings=0.2),
        db.Ising.grid(**billion, couplings=hashed, fields=hashed, periodic=True),
        db.Potts.grid(**billion, states=3, couplings=hashed),
        db.Ising.grid(300, 300, couplings=mapped[7:]),
        db.Ising.grid(300, 300, couplings=backwards[1]),
    ):
        data = pickle.dumps(model)
        assert len(data) < 10_000
        twice = pickle.loads(pickle.dumps(pickle.loads(data)))
        same(*(db.estimate(m, [45_150], tolerance=0.1, seed=1) for m in (model, twice)))
    changed = np.load(tmp_path / "values.npy", mmap_mode="c")
    changed[:] = 0.1  # in this process only
    other = pickle.loads(pickle.dumps(db.Ising.grid(300, 300, couplings=changed[7:])))
    assert (other._near(np.array([0]), 2).model.couplings.data == 0.1).all()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(db.Ising.grid(300, 300, couplings=lambda edges: 0.1 + 0.0 * edges))
    gone = pickle.dumps(db.Ising.grid(300, 300, couplings=mapped[7:]))
    with open(tmp_path / "values.npy", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(db.FormatError, match=r"values\.npy: expected \d+ bytes, found 1000"):
        pickle.loads(gone)
    os.unlink(tmp_path / "values.npy")
    with pytest.raises(FileNotFoundError, match=r"values\.npy"):
        pickle.loads(gone)


def test_stored_models_and_parts_of_models_travel(tmp_path, monkeypatch):
    whole = db.Ising.grid(200, 200, couplings=hashed(np.arange(2 * 200 * 199)), fields=0.1)
    db.write(whole, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    stored = db.open_model("model")
    data = pickle.dumps(stored)
    assert len(data) < 1000
    monkeypatch.chdir("/")
    again = pickle.loads(data)
    same(*(db.estimate(model, [20_100], evidence={20_101: 1}, tolerance=0.05, seed=1) for model in (stored, again)))
    ball = stored._near(np.array([20_100]), 5)
    copy = pickle.loads(pickle.dumps(ball))
    assert (copy.model.couplings != ball.model.couplings).nnz == 0
    part = pickle.loads(pickle.dumps(whole))
    assert (part._near(np.array([0]), 3).model.fields == 0.1).all()
    os.rename(tmp_path / "model", tmp_path / "old")
    db.write(db.Ising.grid(5, 5, couplings=0.1), tmp_path / "model")
    with pytest.raises(db.FormatError, match="as when it was opened first"):
        pickle.loads(data)


@pytest.mark.parametrize(
    ("couplings", "message"),
    [
        (lambda e: np.random.default_rng().random(len(e)), r"'couplings' .* both ends .* at edge \(\d+, \d+\)"),
        (lambda e: np.where(e == 61, np.inf, 0.1), r"Ising\.grid must be finite.* inf at edge \(62, 63\)"),
        (lambda e: 0.1 + 0j * e, "returns an array of real numbers. Got complex128 at edge numbers"),
        (lambda e: e.astype(str), "returns an array of real numbers"),
        (lambda e: [0.1] * (len(e) - 1), "returns an array of shape"),
        (lambda _: 0.1, "returns an array of shape"),
        (lambda e: 1 // (len(e) - len(e)), r"edge numbers\. Got ZeroDivisionError: .* at edge numbers \d+ to"),
    ],
)
def test_functions_that_give_no_couplings(couplings, message):
    model = db.Ising.grid(50, 50, couplings=couplings)
    for call in (
        lambda: db.estimate(model, [12]),
        lambda: db.plan(model, [12]),
        lambda: db.shortest_scan(model, [12], tolerance=0.1),
        lambda: db.coalescence(model, db.Scan([12, 11, 62, 12]), [12], runs=64),
    ):
        with pytest.raises(db.ArgumentError, match=message):
            call()


def test_functions_that_give_no_potentials():
    for fields, message in (
        (lambda i: np.where(i == 13, np.nan, 0.1), r"'fields' .* nan at variable 13"),
        (lambda i: i.astype(complex), "variable numbers 4 to"),
    ):
        with pytest.raises(db.ArgumentError, match=message):
            db.estimate(db.Ising.grid(50, 50, 0.1, fields=fields), [12])
    for unary, message in (
        (lambda i: np.where(i[:, None] == 13, -np.inf, [0.0, 0, 0]), r"above -inf for some state.* at variable 13"),
        (lambda i: np.where(i[:, None] == 13, np.inf, [0.0, 0, 0]), r"'unaries' .* inf at variable 13"),
        (lambda i: np.zeros(len(i)), r"shape \(\d+, 3\)"),
    ):
        with pytest.raises(db.ArgumentError, match=message):
            db.estimate(db.Potts.grid(50, 50, 3, 0.1, unaries=unary), [12])


def counted(couplings):
    """The same function, and how many edges it was asked for."""
    asked = []

    def count(edges):
        asked.append(len(edges))
        return couplings(edges)

    return count, asked


@pytest.mark.parametrize("target", [0, 31_622, 31_623 * 15_811, 31_623**2 - 1])
def test_nothing_far_away_is_asked_for(target):
    couplings, asked = counted(hashed)
    model = db.Ising.grid(31_623, 31_623, couplings=couplings)
    db.estimate(model, [target], tolerance=0.05, seed=1)
    db.plan(model, [target], tolerance=0.05)
    scan = db.shortest_scan(model, [target], tolerance=0.05).scan
    db.coalescence(model, scan, [target], runs=64, seed=1)
    assert sum(asked) < 2500


@pytest.mark.parametrize("states", [None, 3])
@pytest.mark.parametrize("periodic", [False, True])
def test_balls_that_are_the_whole_model_give_exact_answers(states, periodic):
    rng = np.random.default_rng(2)
    values = rng.normal(0, 0.15, 18 if periodic else 12)
    if states is None:
        fields = rng.normal(0, 0.3, 9)
        whole = db.Ising.grid(3, 3, values, fields.reshape(3, 3), periodic)
        local = db.Ising.grid(3, 3, lambda e: values[e], lambda i: fields[i], periodic)
    else:
        fields = rng.normal(0, 0.3, (9, 3))
        fields[4, 1] = -np.inf
        whole = db.Potts.grid(3, 3, 3, values, fields.reshape(3, 3, 3), periodic)
        local = db.Potts.grid(3, 3, 3, lambda e: values[e], lambda i: fields[i], periodic)
    given = {8: 1}
    found = db.estimate(local, [0, 4], tolerance=0.03, confidence=1 - 1e-6, evidence=given, seed=1)
    true = db.estimate(whole, [0, 4], method="exact", evidence=given).value
    assert ((found.lower <= true) & (true <= found.upper)).all()
    same(found, db.estimate(whole, [0, 4], tolerance=0.03, confidence=1 - 1e-6, evidence=given, seed=1,
                            method=found.plan.method))  # fmt: skip


# -- on disk -------------------------------------------------------------------------------------------------------


def test_stored_models_answer_as_they_did(tmp_path):
    spins = db.Ising.grid(60, 60, couplings=hashed(np.arange(2 * 60 * 59)), fields=0.1)
    labels = db.Potts.grid(30, 30, states=3, couplings=0.2, unaries=np.random.default_rng(0).normal(size=(30, 30, 3)))
    for name, model in (("spins", spins), ("labels", labels)):
        db.write(model, tmp_path / name)
        stored = db.open_model(tmp_path / name)
        assert stored.n_variables == model.n_variables
        near, far = (db.shortest_scan(m, [100], tolerance=0.02) for m in (stored, model))
        assert near.scan == far.scan
        assert near.variation.value == far.variation.value
        assert db.estimate(stored, [100], tolerance=0.05, seed=1).is_certified
    with pytest.raises(db.ArgumentError, match="does not exist yet"):
        db.write(spins, tmp_path / "spins")
    with pytest.raises(db.ArgumentError, match="Ising or Potts"):
        db.write(db.SpinMRF({(0, 1, 2): 0.3}), tmp_path / "graph")


def test_chunks_of_edges_make_the_same_model(tmp_path):
    rng = np.random.default_rng(0)
    model = db.Ising.grid(40, 40, couplings=hashed(np.arange(2 * 40 * 39)), fields=rng.normal(size=(40, 40)))
    pairs = model.couplings.tocoo()
    upper = pairs.coords[0] < pairs.coords[1]
    i, j, values = pairs.coords[0][upper], pairs.coords[1][upper], pairs.data[upper]
    shuffled = rng.permutation(len(i))
    flip = rng.random(len(i)) < 0.5
    i, j = np.where(flip, j, i)[shuffled], np.where(flip, i, j)[shuffled]
    values = values[shuffled]

    def chunks():
        for k in range(0, len(i), 97):
            yield i[k : k + 97], j[k : k + 97], values[k : k + 97]

    db.io.build_folder(tmp_path / "built", 1600, chunks(), potentials=model.fields)
    ball = db.open_model(tmp_path / "built")._near(np.array([0]), 100)
    assert (ball.model.couplings != model.couplings).nnz == 0
    np.testing.assert_array_equal(ball.model.fields, model.fields)
    with pytest.raises(db.ArgumentError, match="each edge once"):
        db.io.build_folder(tmp_path / "double", 3, [([0, 1], [1, 0], [0.1, 0.2])])
    with pytest.raises(db.ArgumentError, match="between two variables"):
        db.io.build_folder(tmp_path / "loop", 3, [([0], [0], [0.1])])
    with pytest.raises(db.ArgumentError, match="between two variables"):
        db.io.build_folder(tmp_path / "far", 3, [([0], [7], [0.1])])
    assert not [path for path in tmp_path.iterdir() if path.name != "built"]


def test_foreign_and_broken_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        db.open_model(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(db.FormatError, match=r"manifest\.json"):
        db.open_model(tmp_path / "empty")

    def fresh(name):
        db.write(db.Ising.grid(5, 5, couplings=0.2), tmp_path / name)
        return tmp_path / name

    folder = fresh("manifest")
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(db.FormatError, match="a manifest of the format"):
        db.open_model(folder)
    folder = fresh("short")
    data = (folder / "coupling.npy").read_bytes()
    (folder / "coupling.npy").write_bytes(data[:-80])
    with pytest.raises(db.FormatError, match="cannot map"):
        db.open_model(folder)
    folder = fresh("shape")
    about = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**about, "variables": 7}))
    with pytest.raises(db.FormatError, match="of shape"):
        db.open_model(folder)
    folder = fresh("asymmetric")
    values = np.load(folder / "coupling.npy")
    values[0] = 0.9
    np.save(folder / "coupling.npy", values)
    with pytest.raises(db.FormatError, match=r"the same from both ends.*0\.9 at edge \(0, 1\)"):
        db.estimate(db.open_model(folder), [0])
    folder = fresh("neighbor")
    columns = np.load(folder / "neighbor.npy")
    columns[0] = 99
    np.save(folder / "neighbor.npy", columns)
    with pytest.raises(db.FormatError, match="99 at variable 0"):
        db.estimate(db.open_model(folder), [0])


def test_write_makes_a_folder_where_the_path_has_no_extension(tmp_path):
    spins = db.Ising.grid(9, 7, couplings=hashed(np.arange(9 * 6 + 8 * 7)), fields=0.1)
    local = db.Ising.grid(9, 7, couplings=hashed, fields=lambda i: np.full(len(i), 0.1))
    db.write(spins, tmp_path / "plain")
    db.write(local, f"{tmp_path}/slash.v2/")
    db.write(spins, tmp_path / "named.v3", format="folder")
    db.write(db.open_model(tmp_path / "plain"), tmp_path / "copied")
    for name in ("plain", "slash.v2", "named.v3", "copied"):
        ball = db.open_model(tmp_path / name)._near(np.array([0]), 99)
        assert (ball.model.couplings != spins.couplings).nnz == 0
        np.testing.assert_array_equal(ball.model.fields, spins.fields)
    alone = db.Ising(np.zeros((3, 3)))
    db.write(alone, tmp_path / "alone")
    assert "0 edges" in repr(db.open_model(tmp_path / "alone"))
    assert db.estimate(db.open_model(tmp_path / "alone"), [1], tolerance=0.1, seed=1).is_certified
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("kept")
    for model, path, keywords, message in (
        (spins, "model.v3", {}, "without an extension"),
        (spins, "mine", {}, "does not exist yet"),
        (spins, "beta", {"beta": 2.0}, "'beta'"),
        (spins, "offset", {"offset": 2.0}, "'offset'"),
        (db.SpinMRF({(0, 1, 2): 0.3}), "graph", {}, "an Ising or Potts model"),
        (local, "local.npz", {}, "a model in memory; lazy models go to a folder"),
        (3, "three", {}, "'model'"),
        (db.Ising.grid(9, 7, couplings=lambda e: np.where(e == 1, np.nan, 0)), "nan", {}, r"nan at edge \(1, 2\)"),
    ):
        with pytest.raises(db.ArgumentError, match=message):
            db.write(model, tmp_path / path, **keywords)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "kept"
    with pytest.raises(db.FormatError, match="open_model opens folders"):
        db.read(tmp_path / "plain")
    with pytest.raises(FileNotFoundError) as caught:
        db.write(spins, tmp_path / "no" / "folder")
    assert caught.value.filename == str(tmp_path / "no" / "folder")
    assert not list(tmp_path.glob("*.part"))


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dobrushin.io.folder._Folder.append", full)
    for call in (
        lambda: db.write(db.Ising.grid(5, 5, 0.1), tmp_path / "model"),
        lambda: db.io.build_folder(tmp_path / "model", 3, [([0], [1], [0.1])]),
    ):
        with pytest.raises(OSError, match="No space left") as caught:
            call()
        assert caught.value.filename == str(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_no_folder_can_be_built_from(tmp_path):
    edge = [([0], [1], [0.1])]
    for n, edges, keywords, message in (
        (3, lambda: edge, {}, "call the function"),
        (3, 7, {}, "an iterable over chunks"),
        (3, [7], {}, r"chunks \(i, j, coupling\). Got 7 at chunk 0"),
        (3, [*edge, ([0], [1, 2], [0.1])], {}, r"same length.* at chunk 1"),
        (3, [([0.0], [1.0], [0.1])], {}, "float64"),
        (3, [([0], [1], ["x"])], {}, "real numbers"),
        (3, [([0], [1], [np.nan])], {}, r"nan at edge \(0, 1\)"),
        (0, edge, {}, "'n_variables'"),
        (2**40, edge, {}, "'n_variables'"),
        (3, edge, {"states": 1}, "'states'"),
        (3, edge, {"potentials": np.zeros(2)}, r"shape \(3,\)"),
        (3, edge, {"potentials": [0, np.nan, 0]}, "nan at variable 1"),
        (3, edge, {"states": 2, "potentials": [[0, 0], [0, 0], [-np.inf] * 2]}, "variable 2"),
        (3, edge, {"potentials": ["a", "b", "c"]}, "real numbers"),
    ):
        with pytest.raises(db.ArgumentError, match=message):
            db.io.build_folder(tmp_path / "model", n, edges, **keywords)

    def broken():
        yield from edge
        raise FileNotFoundError(2, "No such file", "edges.csv")

    with pytest.raises(FileNotFoundError, match=r"edges\.csv"):
        db.io.build_folder(tmp_path / "model", 3, broken())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "dobrushin model folder 2"}, "found 'dobrushin model folder 2'"),
        ({"format": 3}, "the format"),
        ({"variables": 0}, "a whole number of variables, at least 1, found 0"),
        ({"entries": True}, "entries"),
        ({"states": 1}, "states, 0 or at least 2, found 1"),
        ({"states": 4}, r"potential.npy: expected real numbers of shape \(25, 4\)"),
        ({"potential": None}, "'potential' to be true or false, found None"),
        ({"entries": 3}, r"shape \(3,\), found int32 of shape \(80,\)"),
    ],
)
def test_foreign_manifests(tmp_path, change, message):
    folder = tmp_path / "model"
    db.write(db.Ising.grid(5, 5, couplings=0.2), folder)
    about = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(db.FormatError, match=message):
        db.open_model(folder)


def test_broken_arrays_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(db.FormatError, match="expected a folder, found a file"):
        db.open_model(tmp_path / "file")
    folder = tmp_path / "model"
    db.write(db.Ising.grid(5, 5, couplings=0.2), folder)
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    for text in ("", "not JSON", "[" * 9000, "[]", "null", "\x00" * 10):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(db.FormatError, match="a manifest of the format"):
            db.open_model(folder)
    (folder / "manifest.json").write_bytes(contents["manifest.json"])
    sizes = {"start": 26, "neighbor": 80, "coupling": 80, "potential": 25}
    for name in sizes:
        file, data = folder / f"{name}.npy", contents[f"{name}.npy"]
        file.unlink()
        with pytest.raises(db.FormatError, match=rf"{name}\.npy: .* no such file"):
            db.open_model(folder)
        np.savez(folder / "other.npz", a=np.zeros(3))
        for bad in (b"", data[:5], data[:60], data[:-1], b"x" + data[1:], (folder / "other.npz").read_bytes()):
            file.write_bytes(bad)
            with pytest.raises(db.FormatError, match=rf"{name}\.npy: expected (whole|real) numbers of shape"):
                db.open_model(folder)
        for dtype in (complex, "U3", object, bool):
            np.save(file, np.zeros(sizes[name], dtype=dtype))
            with pytest.raises(db.FormatError, match=rf"{name}\.npy"):
                db.open_model(folder)
        file.write_bytes(data)
    for name, place, value, message in (
        ("coupling", 2, np.nan, r"coupling\.npy: expected couplings to be finite.* nan at edge \(1, 0\)"),
        ("coupling", 2, 0.7, r"coupling\.npy: .* both ends .* at edge \(0, 1\)"),
        ("neighbor", 2, -4, r"neighbor\.npy: .* -4 at variable 1"),
        ("neighbor", 2, 1, r"neighbor\.npy: .* 1 at variable 1"),
        ("neighbor", 1, 1, r"neighbor\.npy: expected neighbours to be there once, found 1 at variable 0"),
        ("neighbor", 1, 9, r"coupling\.npy: .* both ends .* at edge"),
        ("start", 1, -3, r"start\.npy: .* increasing up to 80, found \(0, -3\) at variable 0"),
        ("start", 25, 81, r"start\.npy: expected row starts from 0 to 80, found 0 to 81"),
        ("potential", 3, np.inf, r"potential\.npy: expected potentials to be finite.* inf at variable 3"),
    ):
        values = np.load(folder / f"{name}.npy")
        values[place] = value
        np.save(folder / f"{name}.npy", values)
        with pytest.raises(db.FormatError, match=message):
            db.estimate(db.open_model(folder), [0], tolerance=0.1)
        (folder / f"{name}.npy").write_bytes(contents[f"{name}.npy"])
    assert db.estimate(db.open_model(folder), [0], tolerance=0.1, seed=1).is_certified


def test_hubs_do_not_fill_the_ball(tmp_path):
    leaves = 10**6
    edges = [(np.zeros(leaves, dtype=int), np.arange(1, leaves + 1), np.full(leaves, 1e-3))]
    db.io.build_folder(tmp_path / "star", leaves + 1, edges)
    star = db.open_model(tmp_path / "star")
    assert star._near(np.array([77]), 8).model.n_variables == 2
    assert star._near(np.array([0]), 1).model.n_variables == leaves + 1
    assert len(db.shortest_scan(star, [77], tolerance=0.01).scan) == 1
    assert db.estimate(star, [77], tolerance=0.05, evidence={0: 1, 5: -1}, seed=1).is_certified


def test_graphs_where_everything_is_near_are_not_read_as_a_whole(tmp_path):
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, 10**5, (2, 10**6))
    numbers = np.unique((np.minimum(i, j) * 10**5 + np.maximum(i, j))[i != j])
    edges = [(numbers // 10**5, numbers % 10**5, np.full(len(numbers), 0.004))]
    db.io.build_folder(tmp_path / "random", 10**5, edges)
    model = db.open_model(tmp_path / "random")
    assert model._near(np.array([5]), 8).model.n_variables < 40_000
    found = db.estimate(model, [5], tolerance=0.05, seed=1)
    assert found.is_certified
    assert abs(found.value[0] - 0.5) < 0.05


def test_what_errors_carry_is_of_the_whole_model():
    side = 31_623
    model = db.Ising.grid(side, side, couplings=lambda edges: np.full(len(edges), 0.24))
    centre = side * (side // 2) + side // 2
    with pytest.raises(db.ToleranceError) as caught:
        db.shortest_scan(model, [centre], tolerance=1e-9, max_steps=2000)
    best = caught.value.result
    rows, cols = np.divmod(best.scan.order, side)
    assert centre in best.scan.order
    assert np.abs(rows - side // 2).max() < 100
    assert np.abs(cols - side // 2).max() < 100
    # The same scan on a grid that is made, with the same bound.
    small = db.Ising.grid(201, 201, couplings=0.24)
    order = (rows - side // 2 + 100) * 201 + cols - side // 2 + 100
    bound = db.variation(small, db.Scan(order), targets=[100 * 201 + 100])
    assert bound.value == pytest.approx(best.variation.value, rel=1e-12)
    with pytest.raises(db.BudgetError) as short:
        db.estimate(model, [centre], budget=1000, method="dobrushin")
    assert centre in short.value.plan.scan.order


def test_the_bound_of_a_local_scan_is_of_the_whole_model():
    side = 31_623
    model = db.Ising.grid(side, side, couplings=lambda edges: np.full(len(edges), 0.2))
    found = db.shortest_scan(model, [5], tolerance=0.05)
    steps, values = found.variation.curve()
    assert steps[-1] == len(found.scan)
    assert values[-1] == pytest.approx(found.variation.value)
    assert len(found.variation.target_bounds) == 1


def test_nothing_that_is_kept_of_a_sample_grows_with_a_model_that_is_never_made():
    huge = db.Ising.grid(10**7, 10**7, couplings=lambda edges: np.full(len(edges), 0.2))
    run = db.sample(huge, db.Scan([5, 6, 5]), chains=100, seed=1, record=[5])
    assert run.states.shape == (100, 1)
    assert run.update_error.shape == ()
    assert 0 < run.update_error < 1e-12
