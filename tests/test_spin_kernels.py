"""Ways to draw spins: chains side by side, counts of equal neighbours, products of matrices, diagonals of grids."""

import gc
import pickle
import weakref
from fractions import Fraction

import numpy as np
import pytest

import dobrushin as db
import reference
from dobrushin._sampling.array_kernel import find_diagonals
from dobrushin._sampling.kernel import choose_kernel
from dobrushin._sampling.sampler import ChainSource
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


# -- products of matrices ----------------------------------------------------------------------------


def dense_spins(rng, n, strength=1.0):
    """Couplings between almost all pairs, of very different sizes from variable to variable."""
    scale = strength * np.exp(rng.normal(size=n))
    upper = np.triu(rng.normal(size=(n, n)) * np.outer(np.sqrt(scale), np.sqrt(scale)) * (rng.random((n, n)) < 0.9), 1)
    return db.Ising(upper / np.sqrt(n) + upper.T / np.sqrt(n), fields=rng.normal(size=n) * scale)


def dense_kernel(model):
    return choose_kernel(model, db.Scan.systematic(model.n_variables, model.n_variables), 1, "dense")


@pytest.mark.parametrize("chains", [3, 64])
@pytest.mark.parametrize("strength", [1e-200, 1.0, 1e60])
def test_dense_draws_are_those_of_the_slow_reference(chains, strength):
    rng = np.random.default_rng(chains)
    model = dense_spins(rng, 12, strength)
    sequence = np.random.SeedSequence(chains)
    for scan in (db.Scan([3, 3, 11, 0, 3]) + db.Scan.systematic(12, 30), db.Scan.uniform(12, 20)):
        run = db.sample(model, scan, chains=chains, seed=sequence, kernel="dense")
        assert (digits(run.states) == reference.sample(model, scan, chains, master_key(sequence), "dense")).all()


def test_dense_draws_do_not_depend_on_how_local_fields_are_summed():
    """Products for blocks of steps, or sums kept up to date; in whole runs, or a few steps at a time."""
    rng = np.random.default_rng(2)
    model = dense_spins(rng, 150)
    scan = db.Scan(rng.permutation(150)) + db.Scan.systematic(150, 500)
    together = db.sample(model, scan, chains=300, seed=1, kernel="dense").states
    one_by_one = db.sample(model, scan, chains=3, seed=1, kernel="dense").states
    in_parts = db.sample(model, scan, chains=3, seed=1, kernel="dense", record=db.Record(every=13)).states
    whole = db.sample(model, scan[:-1], chains=3, seed=1, kernel="dense").states
    assert (together[:3] == one_by_one).all()
    assert (in_parts[:, -1] == whole).all()


@pytest.mark.parametrize("strength", [1e-250, 1e-3, 1.0, 1e90])
def test_sums_of_rounded_couplings_are_exact_in_every_order(strength):
    rng = np.random.default_rng(3)
    model = dense_spins(rng, 80, strength)
    kernel = dense_kernel(model)
    given = model.couplings.toarray()
    missed = 0
    for i in range(80):
        rounded, plain = kernel.columns[:, i], given[i]
        for _ in range(5):
            order, signs = rng.permutation(80), rng.choice([-1.0, 1.0], size=80)
            exact = sum(Fraction(v) for v in signs * rounded) + Fraction(kernel.fields[i])
            assert Fraction(float(np.cumsum((signs * rounded)[order])[-1] + kernel.fields[i])) == exact
            missed += Fraction(float(np.cumsum((signs * plain)[order])[-1])) != sum(Fraction(v) for v in signs * plain)
    assert missed > 100  # negative control: without rounding most sums are not exact


def test_the_error_of_rounded_couplings_is_stated():
    """Half of what rounding moves a local field by, which bounds what it moves a probability by, is in the bound."""
    rng = np.random.default_rng(4)
    worst = 0.0
    for strength in (1e-3, 1.0, 1e5):
        model = dense_spins(rng, 60, strength)
        kernel, given = dense_kernel(model), model.couplings.toarray()
        for i in range(60):
            before, after = [*given[i], model.fields[i]], [*kernel.columns[:, i], kernel.fields[i]]
            moved = float(sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(before, after, strict=True))) / 2
            stated = kernel.error[i] - 64 * 2.0**-53
            assert moved <= stated
            worst = max(worst, moved / stated)
    assert worst > 1 / 16  # negative control: a bound 16 times as small would not hold


def test_dense_models_take_products():
    rng = np.random.default_rng(5)
    full = dense_spins(rng, 100)
    layers = np.zeros((300, 300))
    layers[:200, 200:] = rng.normal(size=(200, 100)) * 0.1
    machine = db.Ising(layers + layers.T)
    for model, steps, kernel in (
        (full, 10_000, "dense"),
        (full, 100, "field"),  # not worth a matrix
        (machine, 30_000, "dense"),
        (random_spins(rng, 1000, 70, rng.normal(size=50)), 30_000, "field"),  # a matrix of zeros
    ):
        assert db.sample(model, db.Scan.systematic(model.n_variables, steps), seed=1).kernel == kernel
    assert (dense_kernel(machine).reach[[0, 299]] == [[200, 300], [0, 200]]).all()


def test_layers_and_parts_of_dense_models():
    """A block of a machine of two layers sees one layer; a scan of some variables holds the others fixed."""
    rng = np.random.default_rng(6)
    layers = np.zeros((20, 20))
    layers[:12, 12:] = rng.normal(size=(12, 8))
    model = db.Ising(layers + layers.T, fields=rng.normal(size=20))
    sequence = np.random.SeedSequence(6)
    for scan in (db.Scan.systematic(20, 50), db.Scan([3, 15, 2, 3, 15, 4]), db.Scan([19])):
        for chains in (2, 70):
            run = db.sample(model, scan, chains=chains, seed=sequence, kernel="dense")
            expected = reference.sample(model, scan, chains, master_key(sequence), "dense")
            assert (digits(run.states) == expected[:, list(run.variables)]).all()


# -- diagonals of grids, and what is kept for the next call -------------------------------------------


def uneven_grid(rng, rows, columns):
    edges = rows * (columns - 1) + columns * (rows - 1)
    fields = rng.normal(size=(rows, columns))
    return db.Ising.grid(rows, columns, couplings=rng.normal(size=edges), fields=fields)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2), (2, 7), (7, 2), (3, 3), (3, 8), (9, 4), (20, 20), (13, 31)])
def test_diagonals_make_the_draws_of_single_steps(shape, monkeypatch):
    monkeypatch.setattr("dobrushin._sampling.array_kernel.MIN_SIDE", 2)
    model = uneven_grid(np.random.default_rng(shape[0]), *shape)
    n = model.n_variables
    for scan in (db.Scan.systematic(n, 5 * n), db.Scan.systematic(n, 37 * n + 1)[n // 2 :]):
        kernel = choose_kernel(model, scan, 2, "field")
        fast, _ = ChainSource(model, kernel, scan, np.random.SeedSequence(3)).draw(range(2))
        assert kernel.orders["diagonals", None].columns == shape[1]
        slow = db.sample(model, db.Scan(scan.order), chains=2, seed=3, kernel="field")
        assert (fast.states == slow.states).all()
        many = db.sample(model, scan, chains=40, seed=3, kernel="field")  # side by side
        assert (fast.states == many.states[:2]).all()


def test_only_grids_have_diagonals(monkeypatch):
    monkeypatch.setattr("dobrushin._sampling.array_kernel.MIN_SIDE", 2)
    grid = uneven_grid(np.random.default_rng(0), 6, 5)
    matrix = grid.couplings.toarray()
    shuffled = np.random.default_rng(1).permutation(30)
    missing, extra, moved = matrix.copy(), matrix.copy(), matrix[np.ix_(shuffled, shuffled)]
    missing[7, 8] = missing[8, 7] = 0.0
    extra[7, 13] = extra[13, 7] = 0.1
    models = {"grid": grid, "missing": missing, "extra": extra, "moved": moved}
    models["rewired"] = matrix.copy()  # as many neighbours, but others
    for i, j, weight in ((7, 8, 0.0), (17, 18, 0.0), (7, 18, 0.1), (8, 17, 0.1)):
        models["rewired"][i, j] = models["rewired"][j, i] = weight
    models["torus"] = db.Ising.grid(6, 5, couplings=0.1, periodic=True).couplings.toarray()
    models["path"] = np.diag(np.full(29, 0.1), 1) + np.diag(np.full(29, 0.1), -1)
    models["nothing"] = np.zeros((30, 30))
    for name, model in models.items():
        model = model if isinstance(model, db.Ising) else db.Ising(model)
        kernel = choose_kernel(model, db.Scan.systematic(30, 300), 1, "field")
        assert (find_diagonals(kernel.region, kernel.weights, kernel.fields) is not None) == (name == "grid")
    # Nor has a scan that leaves some variables out.
    kernel = choose_kernel(grid, db.Scan.systematic(29, 290), 1, "field")
    assert find_diagonals(kernel.region, kernel.weights, kernel.fields) is None


@pytest.mark.slow
def test_what_was_made_for_sweeps_is_kept_as_long_as_the_model(monkeypatch):
    rng = np.random.default_rng(8)
    model = random_spins(rng, 1000, 5, rng.normal(size=50) * 0.3)
    scan, short = db.Scan.systematic(1000, 30_000), db.Scan.systematic(1000, 2000)
    slow = db.sample(model, db.Scan(short.order), seed=1, kernel="field").states
    kernel = choose_kernel(model, scan, 1, "field")
    assert not kernel.orders
    db.sample(model, scan, seed=1, kernel="field")
    again = choose_kernel(model, short, 1, "field")
    assert again is kernel
    assert set(kernel.orders) == {("diagonals", None), ("wave", None)}
    late = scan[300:4500]  # parts of sweeps are no sweeps
    expected = db.sample(model, db.Scan(late.order), seed=1, kernel="field").states
    assert (db.sample(model, late, seed=1, kernel="field").states == expected).all()
    monkeypatch.setattr("dobrushin._kernels.spins.ising_steps", None)  # waves are used now, however few the sweeps
    assert (db.sample(model, short, seed=1, kernel="field").states == slow).all()
    assert not pickle.loads(pickle.dumps(kernel)).orders
    form = weakref.ref(model._form)
    del model, kernel, again
    gc.collect()
    assert form() is None
