"""Ways to draw spins that go beyond few neighbours: chains side by side, and counts of equal neighbours."""

import numpy as np
import pytest

import dobrushin as db
import reference
from dobrushin._sampling.kernel import choose_kernel
from dobrushin._shared.running import master_key


def digits(states):
    return (np.asarray(states, dtype=int) + 1) // 2


def random_spins(rng, n, degree, couplings):
    """A graph of about this degree whose couplings are drawn from the given ones."""
    upper = np.triu(rng.random((n, n)) < degree / n, 1) * rng.choice(couplings, size=(n, n))
    return db.Ising(upper + upper.T, fields=rng.normal(size=n) * (rng.random(n) < 0.7))


def equal_couplings(rng, n, degree, size):
    """A circulant graph of exactly this (even) degree: couplings of one size, of either sign, and two of 0."""
    offsets = np.arange(1, degree // 2 + 1)
    upper = np.zeros((n, n))
    for i in range(n):
        upper[i, (i + offsets) % n] = rng.choice([-size, size], size=len(offsets))
    upper[0, offsets[0]] = upper[1, 1 + offsets[-1]] = 0.0
    return db.Ising(upper + upper.T, fields=rng.normal(size=n) * (rng.random(n) < 0.7))


# -- chains side by side -------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [0, 3, 4, 7, 8, 11, 12, 16, 29, 60])
def test_chains_side_by_side_make_the_draws_of_single_chains(degree):
    rng = np.random.default_rng(degree)
    strength = [0.1, 3.0, 1e98][degree % 3]
    model = random_spins(rng, 61, degree, rng.normal(size=50) * strength)
    scan = db.Scan(rng.integers(61, size=80)) + db.Scan.systematic(61, 150)
    kernel = choose_kernel(model, scan, 64, "field")
    many = db.sample(model, scan, chains=300, seed=degree, kernel="field").states
    few = db.sample(model, scan, chains=3, seed=degree, kernel="field").states  # one after the other
    assert len(kernel.batches(range(3), 2)[0]) == 1
    assert len(kernel.batches(range(300), 2)[0]) >= 8
    assert (many[:3] == few).all()


def test_chains_side_by_side_are_those_of_the_slow_reference():
    rng = np.random.default_rng(1)
    model = random_spins(rng, 14, 14, rng.normal(size=50))
    scan = db.Scan.systematic(14, 30)
    sequence = np.random.SeedSequence(5)
    run = db.sample(model, scan, chains=64, seed=sequence, kernel="field")
    assert (digits(run.states) == reference.sample(model, scan, 64, master_key(sequence), "field")).all()


# -- counts of equal neighbours --------------------------------------------------------------------


@pytest.mark.parametrize("degree", [2, 4, 6, 8, 10, 12, 14])
def test_counted_draws_are_those_of_the_slow_reference(degree):
    rng = np.random.default_rng(degree)
    size = [0.2, 1.0, 40.0][degree % 3]  # with the last one probabilities of exactly 0 and 1 occur
    model = equal_couplings(rng, 16, degree, size)
    scan = db.Scan.systematic(16, 40)
    sequence = np.random.SeedSequence(degree)
    run = db.sample(model, scan, chains=70, seed=sequence, kernel="counts")
    assert (digits(run.states) == reference.sample(model, scan, 70, master_key(sequence), "counts")).all()
    assert ((run.update_error > 0) & (run.update_error < 1e-11)).all()


@pytest.mark.parametrize("sizes", [(3, 3), (7, 1), (1, 1, 1, 1), (3, 1, 1), (15,)])
def test_groups_of_neighbours(sizes):
    """A star whose centre has groups of neighbours of equal coupling; leaves have one each."""
    values = np.repeat([0.3, 0.7, 0.2, 1.1][: len(sizes)], sizes) * np.where(np.arange(sum(sizes)) % 3, 1, -1)
    model = db.Ising({(0, k + 1): float(value) for k, value in enumerate(values)}, fields=np.full(sum(sizes) + 1, 0.1))
    scan = db.Scan.systematic(sum(sizes) + 1, 3 * sum(sizes) + 3)
    sequence = np.random.SeedSequence(3)
    run = db.sample(model, scan, chains=130, seed=sequence, kernel="counts")
    assert (digits(run.states) == reference.sample(model, scan, 130, master_key(sequence), "counts")).all()


def test_counts_are_taken_where_they_help_and_refused_where_they_cannot_be_made():
    rng = np.random.default_rng(0)
    even, odd = equal_couplings(rng, 20, 8, 0.2), random_spins(rng, 20, 12, rng.normal(size=50))
    scan = db.Scan.systematic(20, 40)
    assert db.sample(even, scan, chains=300, seed=1).kernel == "counts"
    assert db.sample(even, scan, chains=20, seed=1).kernel == "field"
    assert db.sample(odd, scan, chains=300, seed=1).kernel == "field"
    assert db.sample(equal_couplings(rng, 20, 6, 0.2), scan, chains=300, seed=1).kernel == "bits"
    star = db.Ising({(0, k): 0.1 for k in range(1, 17)})
    assert db.sample(star, db.Scan.systematic(17, 17), chains=300, seed=1).kernel == "field"
    with pytest.raises(db.ArgumentError, match="'kernel'"):
        db.sample(star, db.Scan.systematic(17, 17), kernel="counts")
    # Only what is updated has to fit: a leaf has one neighbour.
    assert db.sample(star, db.Scan([1, 2]), seed=1, kernel="counts").kernel == "counts"


def test_counts_and_fields_have_one_law():
    """Marginals of the same scan by both; and a negative control, another scan."""
    model = equal_couplings(np.random.default_rng(4), 18, 8, 0.3)
    scan = db.Scan.systematic(18, 36)
    start = np.ones(18, dtype=int)
    runs = [
        db.sample(model, some, chains=40_000, seed=7, kernel=kernel, initial=start, record="counts").marginals()[:, 1]
        for kernel, some in (("counts", scan), ("field", scan), ("field", scan[:18]))
    ]
    spread = np.sqrt(0.5 / 40_000)
    assert np.abs(runs[0] - runs[1]).max() < 6.5 * spread
    assert np.abs(runs[0] - runs[2]).max() > 6.5 * spread
