"""Models that are never made as a whole: the same answers as if they were."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dobrushin as db
from dobrushin._models.local import LocalGrid, LocalModel


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
    assert isinstance(local, LocalModel)
    ball = local.ball(np.array([int(rng.integers(rows * cols))]), rows + cols)
    assert ball.inner.all()
    assert (ball.model.couplings != whole.couplings).nnz == 0
    np.testing.assert_array_equal(ball.model.fields, whole.fields)


def test_inner_variables_have_all_their_neighbours():
    local = db.Ising.grid(50, 50, couplings=hashed)
    whole = db.Ising.grid(50, 50, couplings=hashed(np.arange(4900)))
    ball = local.ball(np.array([1275, 30]), 3)
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
    assert (np.abs(found[target].mean - exact.mean) < 0.051).all()


def test_a_billion_variables():
    side = 31623
    model = db.Ising.grid(side, side, couplings=hashed)
    centre = side * (side // 2) + side // 2
    found = db.estimate(model, [centre], seed=1)
    assert found.half_width.max() <= 0.01
    strong = db.Ising.grid(side, side, couplings=0.3)
    assert isinstance(strong, LocalModel)
    found = db.estimate(strong, [centre], tolerance=0.1, seed=1)
    assert found.plan.method == "coalescence"
    labels = db.Potts.grid(side, side, states=3, couplings=0.2, unaries=lambda i: np.tile([0.0, 0.5, 0.0], (len(i), 1)))
    found = db.estimate(labels, [centre], tolerance=0.05, evidence={centre + 1: 2, 0: 1}, seed=1)
    assert found[centre].mean[1] > found[centre].mean[0]


def test_forbidden_evidence_far_away_is_noticed():
    labels = db.Potts.grid(
        300, 300, states=3, couplings=0.2, unaries=lambda i: np.tile([0.0, -np.inf, 0.0], (len(i), 1))
    )
    with pytest.raises(db.ArgumentError, match="possible"):
        db.estimate(labels, [0], evidence={80_000: 1})


def test_functions_that_cannot_be_used_are_named():
    big = db.Ising.grid(100, 100, couplings=hashed)
    for call, message in (
        (lambda: db.estimate(big, "all"), "some variables of a model that is never made"),
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
    assert repr(big) == "LocalGrid(100 x 100, spins)"
    assert LocalGrid(3, 3, None, None, True, 4, "Potts.grid").states == 4


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
    found = db.estimate(model, [20_100], evidence=given, seed=1)
    assert found.plan.method == "dobrushin"
    assert (np.abs(found.mean - exact.mean) <= 0.014).all()
    near = db.plan(model, [20_100], evidence=given, tolerance=0.006)
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


# -- on disk -------------------------------------------------------------------------------------------------------


def test_stored_models_answer_as_they_did(tmp_path):
    spins = db.Ising.grid(60, 60, couplings=hashed(np.arange(2 * 60 * 59)), fields=0.1)
    labels = db.Potts.grid(30, 30, states=3, couplings=0.2, unaries=np.random.default_rng(0).normal(size=(30, 30, 3)))
    for name, model in (("spins", spins), ("labels", labels)):
        db.io.write_folder(model, tmp_path / name)
        stored = db.open_model(tmp_path / name)
        assert stored.n_variables == model.n_variables
        near, far = (db.shortest_scan(m, [100], tolerance=0.02) for m in (stored, model))
        assert near.scan == far.scan
        assert near.variation.value == far.variation.value
        assert db.estimate(stored, [100], tolerance=0.05, seed=1).is_certified
    with pytest.raises(db.ArgumentError, match="does not exist yet"):
        db.io.write_folder(spins, tmp_path / "spins")
    with pytest.raises(db.ArgumentError, match="Ising or Potts"):
        db.io.write_folder(labels.to_factor_graph(), tmp_path / "graph")


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

    db.io.build_folder(tmp_path / "built", 1600, chunks, potentials=model.fields)
    ball = db.open_model(tmp_path / "built").ball(np.array([0]), 100)
    assert (ball.model.couplings != model.couplings).nnz == 0
    np.testing.assert_array_equal(ball.model.fields, model.fields)
    with pytest.raises(db.ArgumentError, match="each edge once"):
        db.io.build_folder(tmp_path / "double", 3, lambda: [([0, 1], [1, 0], [0.1, 0.2])])
    with pytest.raises(db.ArgumentError, match="between two variables"):
        db.io.build_folder(tmp_path / "loop", 3, lambda: [([0], [0], [0.1])])
    with pytest.raises(db.ArgumentError, match="between two variables"):
        db.io.build_folder(tmp_path / "far", 3, lambda: [([0], [7], [0.1])])
    once = iter([[([0], [1], [0.1])]])
    with pytest.raises(db.ArgumentError, match="the same edges each time"):
        db.io.build_folder(tmp_path / "once", 3, lambda: next(once, []))
    assert not [path for path in tmp_path.iterdir() if path.name != "built"]


def test_foreign_and_broken_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        db.open_model(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(db.FormatError, match=r"manifest\.json"):
        db.open_model(tmp_path / "empty")

    def fresh(name):
        db.io.write_folder(db.Ising.grid(5, 5, couplings=0.2), tmp_path / name)
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
    with pytest.raises(db.ArgumentError, match=r"symmetric couplings.*edge \(0, 1\)"):
        db.estimate(db.open_model(folder), [0])
    folder = fresh("neighbor")
    columns = np.load(folder / "neighbor.npy")
    columns[0] = 99
    np.save(folder / "neighbor.npy", columns)
    with pytest.raises(db.FormatError, match="99 beside variable 0"):
        db.estimate(db.open_model(folder), [0])
