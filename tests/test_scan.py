"""Scans as values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dobrushin as db
import reference
from models import FAMILIES, random_model

SEEDS = st.integers(0, 10**6)


def random_segments(rng, n, fixed=False):
    scan = None
    for _ in range(int(rng.integers(1, 5))):
        steps = int(rng.integers(1, 12))
        part = [
            lambda s=steps: db.Scan(rng.integers(n, size=s)),
            lambda s=steps: db.Scan.systematic(n, s),
            lambda s=steps: db.Scan.uniform(n, s),
            lambda s=steps: db.Scan.random(rng.dirichlet(np.ones(n)), s),
        ][rng.integers(2 if fixed else 4)]()
        scan = part if scan is None else scan + part
    return scan


@given(seed=SEEDS)
def test_slices_are_slices_of_the_order(seed):
    rng = np.random.default_rng(seed)
    scan = random_segments(rng, 5, fixed=True)
    order = scan.order
    lo, hi = sorted(rng.integers(-len(scan), len(scan) + 1, size=2).tolist())
    if len(order[lo:hi]):
        assert scan[lo:hi].order.tolist() == order[lo:hi].tolist()
        assert scan[lo:hi][::2].order.tolist() == order[lo:hi][::2].tolist()
    assert scan[::-1].order.tolist() == order[::-1].tolist()
    assert [scan[t] for t in range(-len(scan), len(scan))] == order.tolist() * 2
    assert list(scan) == order.tolist()
    assert scan.counts(5).tolist() == np.bincount(order, minlength=5).tolist()
    assert scan._size == max(s.size() for s in scan._segments)


@given(seed=SEEDS)
def test_random_scans_have_the_right_probabilities(seed):
    rng = np.random.default_rng(seed)
    scan = random_segments(rng, 4)
    vectors = np.array([scan.step_probabilities(t, 4) for t in range(len(scan))])
    assert vectors.sum(axis=1) == pytest.approx(1)
    assert scan.counts(4) == pytest.approx(vectors.sum(axis=0))
    cut = int(rng.integers(1, len(scan) + 1))
    for t in range(cut):
        assert (scan[:cut].step_probabilities(t, 4) == vectors[t]).all()
    assert scan == (scan[:cut] + scan[cut:] if cut < len(scan) else scan[:cut])
    assert scan.is_random == any(v.max() < 1 for v in vectors) or scan.is_random


@given(seed=SEEDS)
def test_save_and_load(seed, tmp_path_factory):
    scan = random_segments(np.random.default_rng(seed), 4)
    path = tmp_path_factory.mktemp("scans") / "any name"
    scan.save(path)
    assert db.Scan.load(path) == scan


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS)
def test_levels_are_the_literal_ones(family, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family, n=5)
    order = rng.integers(5, size=int(rng.integers(1, 25)))
    adjacency = np.zeros((5, 5), dtype=bool)
    for i in range(5):
        adjacency[i, model.neighbors(i)] = True
    levels = db.Scan(order).levels(model)
    assert levels.tolist() == reference.levels(order.tolist(), adjacency)
    # Sorted by level, the scan has the same law and the same certificate.
    regrouped = db.Scan(order[np.argsort(levels, kind="stable")])
    assert db.exact.law(model, regrouped) == pytest.approx(db.exact.law(model, db.Scan(order)), abs=1e-12)
    weights = np.ones(5) * 10
    one, two = (db.variation(model, scan, weights=weights).value for scan in (db.Scan(order), regrouped))
    assert one == pytest.approx(two, rel=1e-12)


def test_levels_of_sweeps_overlap():
    """Row-major sweeps of an R x C grid: step (s, i, j) has level i + j + 2 s; on a torus fewer overlap."""
    rows, cols, sweeps = 5, 7, 6
    levels = db.Scan.systematic(35, 35 * sweeps).levels(db.Ising.grid(rows, cols, couplings=0.1))
    i, j, s = np.arange(rows)[:, None], np.arange(cols), np.arange(sweeps)[:, None, None]
    assert (levels == (i + j + 2 * s).ravel()).all()


def test_systematic_scans_are_not_arrays():
    scan = db.Scan.systematic(10**6, steps=10**12)
    assert len(scan) == 10**12
    assert len(scan[123:-5]) == 10**12 - 128
    assert scan[10**11 + 7] == 7
    assert scan.counts(10**6)[0] == 10**6


def test_repr_says_what_it_is():
    assert repr(db.Scan.systematic(5, 20)[3:]) == "Scan(steps=17, systematic over 5 from 3)"
    assert "random over 2 + order=[0]" in repr(db.Scan.random([0.5, 0.5], 3) + db.Scan([0]))


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04broken"])
def test_broken_files_are_named(tmp_path, content):
    path = tmp_path / "scan.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a file that Scan\.save wrote"):
        db.Scan.load(path)
    with pytest.raises(FileNotFoundError):
        db.Scan.load(tmp_path / "missing.npz")
    np.savez(path, x=np.arange(3))
    with pytest.raises(ValueError, match=r"a file that Scan\.save wrote"):
        db.Scan.load(path)
