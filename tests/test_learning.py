"""Maximum likelihood: against enumeration, with every bound on a bias checked against the exact law of the chain."""
# ruff: noqa: E501 (the table of bad input has one case a line)

import dataclasses
import itertools
import pickle
import re

import numpy as np
import pytest
from scipy.optimize import minimize

import dobrushin as db
from dobrushin._learning import gradients
from dobrushin._learning.ascent import AscentOptions, ExactAscent
from dobrushin._learning.data import Observed
from dobrushin._learning.gradients import GibbsAscent
from dobrushin._learning.structure import FAMILIES as STRUCTURES
from dobrushin._learning.structure import Structure, structure_of
from dobrushin.errors import Interrupted, UncertifiedStep

RING = [(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)]
SPINS = np.random.default_rng(5).choice([-1, 1], size=(30, 4))
COLOURS = np.random.default_rng(6).integers(0, 3, size=(40, 4))
FAMILIES = ["ising", "potts", "pairwise"]


def mixed_model(rng, strength=0.3):
    """Variables of 2, 3 and 4 states, and a forbidden pair."""
    sizes = [2, 3, 4, 2]
    tables = [rng.normal(0, strength, (sizes[a], sizes[b])) for a, b in RING]
    tables[2][1, 1] = -np.inf
    return db.PairwiseMRF([rng.normal(0, strength, k) for k in sizes], RING, tables)


def ring_structure(family, learn):
    """All parameters 0; two states of spins, three of others."""
    return STRUCTURES[family](np.full(4, 2 if family == "ising" else 3), np.array(RING), range(4), None, learn)


def some_structure(family, rng, strength=0.3, learn="all"):
    if family == "mixed":
        return structure_of(mixed_model(rng, strength), learn)
    found = ring_structure(family, learn)
    return dataclasses.replace(found, start=rng.normal(0, strength, len(found.start)))


FREE = AscentOptions(None, None, 0.0, -np.inf, np.inf)


def observe(structure, data):
    return Observed.of(structure, structure.digits(np.asarray(data)))


def ascent_of(structure, data, scan="dogs", tolerance=0.1, gibbs_steps=None, chains=8):
    """An ascent that is asked for expectations only."""
    how = db.GibbsGradient(scan, tolerance, gibbs_steps, chains)
    theta = np.zeros(len(structure.free))
    return GibbsAscent(structure, observe(structure, data), FREE, theta, how, np.random.SeedSequence(1))


def all_states(structure):
    """Every joint state, (states, variables), as the family writes them."""
    states = np.array(list(itertools.product(*(range(k) for k in structure.sizes))))
    return 2 * states - 1 if structure.is_spins else states


def statistics(structure, states):
    """A row of all statistics for each state, one at a time: what the structure's own means are tested against."""
    rows = []
    for x in states:
        row = []
        edges = structure.scopes[0]
        if structure.is_spins:
            row += [x[a] * x[b] for a, b in edges] + list(x)
        elif structure.family is db.Potts:
            row += [float(x[a] == x[b]) for a, b in edges]
        else:
            for a, b in edges:
                row += [float((x[a], x[b]) == cell) for cell in np.ndindex(structure.sizes[a], structure.sizes[b])]
        if not structure.is_spins:
            row += [float(x[i] == s) for i in range(structure.n) for s in range(structure.sizes[i])]
        rows.append(row)
    return np.array(rows, dtype=float)


def energies(t, full):
    """Log-densities, where some parameters may be -inf."""
    return np.array([full[row != 0] @ row[row != 0] for row in t])


def enumerated(structure, full):
    """Exact means of all statistics, and log Z."""
    t = statistics(structure, all_states(structure))
    energy = energies(t, full)
    top = energy.max()
    weights = np.exp(energy - top)
    return weights @ t / weights.sum(), top + np.log(weights.sum())


def optimum(structure, data, ridge=0.0, box=None):
    """The maximum of the penalised likelihood inside the box, by enumeration."""
    free = structure.free
    target = statistics(structure, data).mean(axis=0)[free]

    def loss(theta):
        means, log_z = enumerated(structure, structure.fill(theta))
        value = log_z - theta @ target + ridge / 2 * theta @ theta
        return value, means[free] - target + ridge * theta

    bounds = None if box is None else [(-box, box)] * len(free)
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000}
    return minimize(loss, np.zeros(len(free)), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x


@pytest.mark.parametrize("family", [*FAMILIES, "mixed"])
def test_statistics_and_exact_means_are_those_of_enumeration(family):
    rng = np.random.default_rng(1)
    for learn in ("all", "edges", "unaries"):
        structure = some_structure(family, rng, learn=learn)
        states = all_states(structure)[rng.integers(0, len(all_states(structure)), 50)]
        t = statistics(structure, states)
        x, free = structure.digits(states), structure.free
        np.testing.assert_allclose(structure.means(structure.count(x), 50), t.mean(axis=0)[free], atol=1e-12)
        direction = rng.normal(size=len(free))
        np.testing.assert_allclose(structure.along(direction, x), t[:, free] @ direction, atol=1e-12)
        full = structure.fill(rng.normal(0, 0.5, len(free)))
        exact = ExactAscent(structure, observe(structure, states), FREE, full[free])
        gradient, (means, bias, *_), value = exact.evaluate(full[free])
        wanted, wanted_log_z = enumerated(structure, full)
        assert (np.abs(means - wanted[free]) <= bias).all()
        assert bias.max() < 1e-10
        np.testing.assert_allclose(gradient, (t.mean(axis=0) - wanted)[free], atol=1e-12)
        assert value == pytest.approx(energies(t, full).mean() - wanted_log_z, rel=1e-12)
        density = np.asarray(structure.model(full).log_density(states))
        np.testing.assert_allclose(density, energies(t, full), atol=1e-9)
        assert len(structure.names()) == len(free)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("ridge", "box"), [(0.0, 0.2), (0.05, None), (0.1, 0.3)])
def test_exact_gradients_lead_to_the_projected_optimum(family, ridge, box):
    data = SPINS if family == "ising" else COLOURS
    states = None if family == "ising" else 3
    found = db.fit(RING, data, family=family, states=states, method="exact", ridge=ridge, box=box, iterations=2000)
    assert found.converged
    assert found.is_certified
    assert found.seed is None
    assert found.history.updates[-1] == 0
    structure = ring_structure(family, "all")
    best = optimum(structure, data, ridge, box)
    if ridge:
        np.testing.assert_allclose(found.parameters, best, atol=1e-4)
    target = statistics(structure, data).mean(axis=0)

    def value(theta):
        return theta @ target - enumerated(structure, theta)[1] - ridge / 2 * theta @ theta

    assert value(found.parameters) >= value(best) - 1e-7


def test_a_fixed_step_is_the_formula():
    found = db.fit(RING, SPINS, method="exact", learning_rate=0.1, iterations=3, ridge=0.2, box=0.05)
    structure = ring_structure("ising", "all")
    target = statistics(structure, SPINS).mean(axis=0)
    theta = np.zeros(9)
    for _ in range(3):
        theta = np.clip(theta + 0.1 * (target - enumerated(structure, theta)[0] - 0.2 * theta), -0.05, 0.05)
    np.testing.assert_allclose(found.parameters, theta, atol=1e-12)
    scheduled = db.fit(RING, SPINS, method="exact", learning_rate=lambda k: 0.1 / (k + 1), iterations=2)
    np.testing.assert_allclose(scheduled.history.step_size, [0.1, 0.05])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options", [{}, {"persistent": True}, {"scan": "systematic"}, {"scan": "uniform", "gibbs_steps": 60}]
)
def test_gibbs_gradients_lead_to_the_optimum_within_their_noise(family, options):
    data = SPINS if family == "ising" else COLOURS
    states = None if family == "ising" else 3
    given = {"family": family, "states": states, "ridge": 0.05, "box": 0.3}
    exact = db.fit(RING, data, method="exact", iterations=2000, **given)
    found = db.fit(RING, data, method=db.GibbsGradient(chains=4000, **options), iterations=40, seed=3, **given)
    assert found.converged
    assert found.is_certified
    # Noise of 1 / sqrt(4000) = 0.016 in a coordinate at each step, of which the falling steps leave less.
    assert np.abs(found.parameters - exact.parameters).max() < 0.05
    start = db.fit(RING, data, iterations=1, learning_rate=1e-9, seed=3, **given)
    assert np.abs(start.parameters - exact.parameters).max() > 0.1


def biases(structure, engine, full, initial):
    """Exact bias of every free statistic of a step at these parameters, from one start."""
    model = structure.model(full)
    p = db.exact.law(model, engine.scan, initial)
    t = statistics(structure, all_states(structure))
    return np.abs(p.ravel() @ t - enumerated(structure, full)[0])[structure.free]


def worst_bias_and_claims(engine, structure, path):
    """Largest (exact bias - claimed bound) along a path of parameters, over starts."""
    worst = -np.inf
    states = all_states(structure)
    for k, full in enumerate(path):
        claim = engine.expectation(full, k)
        for initial in ("uniform", states[0], states[-1], states[len(states) // 3]):
            worst = max(worst, float((biases(structure, engine, full, initial) - claim.bias).max()))
    return worst


def slow_path(structure, rng):
    """From 0 to couplings that mix slowly, so that a scan that was good at first is bad at the end."""
    target = np.abs(rng.normal(0, 1, len(structure.start)))
    return [
        structure.fill(structure.start[structure.free] + s * target[structure.free]) for s in np.linspace(0, 0.4, 6)
    ]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["dogs", "systematic", "uniform"])
@pytest.mark.parametrize("learn", ["all", "edges"])
def test_no_bias_is_larger_than_its_bound(family, kind, learn):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        structure = ring_structure(family, learn)
        data = all_states(structure)
        engine = ascent_of(structure, data, kind, gibbs_steps=None if kind == "dogs" else 8)
        assert worst_bias_and_claims(engine, structure, slow_path(structure, rng)) <= 1e-12


def test_forbidden_states_stay_forbidden_and_bounded():
    rng = np.random.default_rng(2)
    model = mixed_model(rng, 0.1)
    structure = structure_of(model, "all")
    p = db.exact.distribution(model)
    states = all_states(structure)
    data = states[rng.choice(len(states), 60, p=p.ravel())]
    found = db.fit(
        model, data, method=db.GibbsGradient(scan="systematic", gibbs_steps=40), ridge=0.1, iterations=5, seed=1
    )
    assert np.isneginf(found.model.table(2)[1, 1])
    assert len(found.parameters) == np.isfinite(structure.start).sum()
    assert ("table", 2, 3, 1, 1) not in found.names
    exact = db.fit(model, data, method="exact", ridge=0.1, iterations=500)
    assert exact.converged
    assert exact.names == found.names
    bad = np.concatenate([data, [[0, 0, 1, 1]]])
    with pytest.raises(db.ArgumentError, match=re.escape("allowed by the model. Got array([0, 0, 1, 1]) at row 60.")):
        db.fit(model, bad)


def test_a_bound_that_is_dropped_is_caught(monkeypatch):
    """Negative control: the check above fails when a scan is reused on the strength of its first certificate."""
    structure = ring_structure("ising", "all")
    path = slow_path(structure, np.random.default_rng(0))
    fresh, first = GibbsAscent.bounds, []

    def remembered(self, source, scan, error=0.0):
        first.append(fresh(self, source, scan, error))
        return first[0]

    def engine():
        return ascent_of(structure, all_states(structure))

    assert worst_bias_and_claims(engine(), structure, path) <= 1e-12
    monkeypatch.setattr(GibbsAscent, "bounds", remembered)
    assert worst_bias_and_claims(engine(), structure, path) > 0.05


def test_differences_of_spins_are_two(monkeypatch):
    """Negative control: with differences of 1, as of indicators, a bias is larger than its bound."""
    structure = structure_of(db.Ising({(0, 1): 0.3}), "unaries")
    engine = ascent_of(structure, all_states(structure), "systematic", gibbs_steps=2)
    full = structure.fill(np.array([0.0, -3.0]))
    claim = engine.expectation(full, 0).bias
    truth = biases(structure, engine, full, [1, 1])
    assert (truth <= claim).all()
    monkeypatch.setattr(Structure, "bias", lambda self, b, real=Structure.bias: real(self, b) / 2.0)
    assert (truth > engine.expectation(full, 1).bias).any()


def test_scans_are_reused_only_with_a_fresh_certificate():
    thetas, scans = [], []
    truth = db.Ising.grid(3, 3, couplings=0.12)
    data = db.sample(truth, db.Scan.systematic(9, 900), chains=500, seed=2).states
    found = db.fit(
        db.Ising.grid(3, 3, couplings=1.0), data, initial=0, learn="edges", learning_rate=0.2, iterations=12, seed=1,
        callback=lambda _, theta: thetas.append(theta),
    )  # fmt: skip
    h = found.history
    assert 1 < h.is_new_scan.sum() < len(h)
    assert (h.bias_bound <= 0.02).all()
    assert found.bias_bound == h.bias_bound.max()
    structure = structure_of(db.Ising.grid(3, 3, couplings=1.0), "edges")
    # The same scans, gone through again: every bound belongs to the parameters of its own step.
    engine = ascent_of(structure, data, tolerance=0.02, chains=1000)
    for k, theta in enumerate([np.zeros(12), *thetas[:-1]]):
        full = structure.fill(theta)
        assert engine.prepare(full)
        scans.append(engine.scan)
        assert len(engine.scan) == h.scan_length[k]
        b = db.variation(structure.model(full), engine.scan).per_variable
        i, j = structure.scopes[0].T
        assert h.bias_bound[k] == pytest.approx((2 * (b[i] + b[j])).max(), abs=1e-12)
    assert len({id(scan) for scan in scans}) == h.is_new_scan.sum()


def test_parameters_that_cannot_be_certified():
    data = np.repeat([[1, 1, 1, 1], [-1, -1, -1, -1]], 10, axis=0)
    with pytest.raises(UncertifiedStep, match=r"no scan bounds the bias of the gradient by 0\.02") as caught:
        db.fit(RING, data, learning_rate=0.5, iterations=50, method=db.GibbsGradient(chains=64), seed=1)
    reached = caught.value.result
    assert isinstance(caught.value, db.CertificateError)
    assert 0 < len(reached.history) < 50
    assert reached.bias_bound <= 0.02
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert len(again.result.history) == len(reached.history)
    with pytest.raises(UncertifiedStep, match="in the direction of the gradient") as caught:
        db.fit(RING, data, iterations=200, method=db.GibbsGradient(chains=64), seed=1)
    assert np.abs(caught.value.result.parameters).max() > 0.2
    inside = db.fit(RING, data, iterations=30, method=db.GibbsGradient(chains=64), seed=1, box=0.15)
    assert inside.is_certified
    np.testing.assert_allclose(inside.parameters[:5], 0.15)

    plain = db.fit(
        RING,
        data,
        learning_rate=0.5,
        iterations=10,
        method=db.GibbsGradient(chains=64, scan="systematic", gibbs_steps=4),
        seed=1,
    )
    assert not plain.is_certified
    assert plain.bias_bound == np.inf
    assert "NOT CERTIFIED: the bias of the gradients is unknown" in str(plain)
    assert "unknown" in str(plain).splitlines()[-2]


def test_errors_of_the_updates_count(monkeypatch):
    """As drawn, an update may err; what the kernel says of that is in every bound."""

    def coarse(*given, **options):
        run = db.sample(*given, **options)
        return dataclasses.replace(run, update_error=np.full(4, 0.003))

    monkeypatch.setattr("dobrushin._learning.gradients.sample", coarse)
    exact_start = db.fit(RING, SPINS, iterations=1, method=db.GibbsGradient(chains=64), learning_rate=0.1, seed=1)
    # At 0 the scan itself is exact: an edge of two variables with differences 2, wrong with probability 0.003 each.
    assert exact_start.bias_bound == pytest.approx(4 * 0.003, rel=1e-9)
    with pytest.raises(UncertifiedStep):
        db.fit(RING, SPINS, iterations=1, method=db.GibbsGradient(chains=64, tolerance=0.01))


def test_random_scans_beyond_the_budget_have_no_bound(monkeypatch):
    monkeypatch.setattr("dobrushin._learning.gradients._MAX_PRODUCTS", 10.0)
    assert not db.fit(RING, SPINS, iterations=1, method=db.GibbsGradient(scan="uniform", chains=8)).is_certified
    assert db.fit(RING, SPINS, iterations=1, method=db.GibbsGradient(scan="systematic", chains=8)).is_certified


RUNS = {
    "dogs": ({}, {}),
    "fixed steps": ({}, {"learning_rate": 0.05, "box": 0.2}),
    "persistent": ({"persistent": True}, {"learning_rate": lambda k: 0.3 / (1 + k)}),
    "systematic": ({"scan": "systematic", "persistent": True}, {}),
    "uniform": ({"scan": "uniform", "gibbs_steps": 30}, {}),
    "exact": ({}, {"method": "exact", "gradient_tol": 1e-12}),
}


def same(first, second):
    """All but the clock."""
    np.testing.assert_array_equal(first.parameters, second.parameters)
    for name in ("step_size", "gradient_norm", "bias_bound", "scan_length", "updates", "is_new_scan"):
        np.testing.assert_array_equal(getattr(first.history, name), getattr(second.history, name))
    assert (first.converged, first.bias_bound) == (second.converged, second.bias_bound)


@pytest.mark.parametrize(("how", "options"), RUNS.values(), ids=RUNS)
def test_a_fit_that_was_interrupted_goes_on_as_if_it_were_not(how, options, tmp_path):
    method = db.GibbsGradient(chains=100, **how)
    options = {"method": method, "iterations": 12, "ridge": 0.1, "seed": 4, **options}
    whole = db.fit(RING, SPINS, **options)
    path = tmp_path / "fit.npz"

    def interrupt(k, _):
        if k == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="5 of 12 iterations had finished") as caught:
        db.fit(RING, SPINS, **options, run=db.RunOptions(checkpoint=path), callback=interrupt)
    assert len(caught.value.result.history) == 5
    np.testing.assert_array_equal(caught.value.result.history.gradient_norm, whole.history.gradient_norm[:5])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    same(db.fit(RING, SPINS, **options, run=db.RunOptions(checkpoint=path)), whole)
    same(db.fit(RING, SPINS, **options, run=db.RunOptions(checkpoint=path)), whole)
    # A fit that is done goes on with more iterations.
    longer = {**options, "iterations": 15}
    same(db.fit(RING, SPINS, **longer, run=db.RunOptions(checkpoint=path)), db.fit(RING, SPINS, **longer))
    with pytest.raises(db.ArgumentError, match=r"'checkpoint' .* written by the same fit"):
        db.fit(RING, SPINS, **{**options, "ridge": 0.2}, run=db.RunOptions(checkpoint=path))


@pytest.mark.parametrize("persistent", [False, True])
def test_an_interruption_in_the_middle_of_a_step_leaves_no_half_of_it(persistent, tmp_path, monkeypatch):
    method = db.GibbsGradient(chains=100, persistent=persistent)
    options = {"method": method, "iterations": 8, "ridge": 0.1, "seed": 4}
    whole = db.fit(RING, SPINS, **options)
    path = tmp_path / "fit.npz"
    real, calls = GibbsAscent.variance, []

    def interrupted(self, direction):
        calls.append(0)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, direction)

    monkeypatch.setattr(GibbsAscent, "variance", interrupted)
    with pytest.raises(Interrupted, match="3 of 8"):
        db.fit(RING, SPINS, **options, run=db.RunOptions(checkpoint=path))
    same(db.fit(RING, SPINS, **options, run=db.RunOptions(checkpoint=path)), whole)


def test_a_seed_that_was_drawn_is_taken_up_again(tmp_path):
    path = tmp_path / "fit.npz"
    keep = db.RunOptions(checkpoint=path)
    first = db.fit(RING, SPINS, method=db.GibbsGradient(chains=64), iterations=3, run=keep)
    second = db.fit(RING, SPINS, method=db.GibbsGradient(chains=64), iterations=3, run=keep)
    assert first.seed == second.seed
    same(first, second)
    same(db.fit(RING, SPINS, method=db.GibbsGradient(chains=64), iterations=3, seed=first.seed), first)


def test_where_to_start_and_what_to_learn():
    model = db.Ising({("a", "b"): 0.3, ("b", "c"): -0.2}, fields={"a": 0.5})
    data = np.random.default_rng(0).choice([-1, 1], size=(20, 3))
    tiny = {"iterations": 1, "learning_rate": 1e-12, "method": db.GibbsGradient(chains=16)}
    found = db.fit(model, data, **tiny)
    assert found.names == [
        ("coupling", "a", "b"),
        ("coupling", "b", "c"),
        ("field", "a"),
        ("field", "b"),
        ("field", "c"),
    ]
    np.testing.assert_allclose(found.parameters, [0.3, -0.2, 0.5, 0, 0], atol=1e-9)
    edges = db.fit(model, data, learn="edges", **tiny)
    assert len(edges.parameters) == 2
    np.testing.assert_array_equal(edges.model.fields, model.fields)
    fields = db.fit(model, data, learn="unaries", initial=0.1, **tiny)
    np.testing.assert_allclose(fields.parameters, 0.1, atol=1e-9)
    np.testing.assert_array_equal(fields.model.couplings.toarray(), model.couplings.toarray())
    boxed = db.fit(model, data, box=(0, [0.1, 1, 1, 1, 1]), **tiny)
    np.testing.assert_allclose(boxed.parameters, [0.1, 0, 0.5, 0, 0], atol=1e-9)
    named = db.fit([("x", "y"), ("y", "z")], data, **tiny)
    assert named.model.labels == ("x", "y", "z")
    potts = db.Potts.grid(2, 2, states=3, couplings=0.5)
    assert db.fit(potts, COLOURS, **tiny).names[:2] == [("coupling", 0, 1), ("coupling", 0, 2)]
    assert len(db.fit(RING, COLOURS, family="potts", states=5, **tiny).parameters) == 5 + 20
    assert db.fit(RING, COLOURS, family="pairwise", **tiny).names[0] == ("table", 0, 1, 0, 0)


def test_columns_of_a_data_frame_are_found_by_name():
    pandas = pytest.importorskip("pandas")
    model = db.Ising({("a", "b"): 0.3, ("b", "c"): -0.2})
    data = np.random.default_rng(0).choice([-1, 1], size=(20, 3))
    frame = pandas.DataFrame(data[:, ::-1], columns=["c", "b", "a"])
    options = {"method": "exact", "ridge": 0.1, "iterations": 3}
    np.testing.assert_array_equal(db.fit(model, frame, **options).parameters, db.fit(model, data, **options).parameters)
    edges = db.fit([("a", "b")], frame, **options)
    assert edges.model.labels == ("c", "b", "a")
    with pytest.raises(db.ArgumentError, match=r"'data' .* the labels as columns, 'a' among them"):
        db.fit(model, frame.rename(columns={"a": "d"}))
    with pytest.raises(db.ArgumentError, match=r"'data' .* distinct names"):
        db.fit(model, frame.rename(columns={"a": "b"}))
    history = db.fit(model, frame, **options).history.to_dataframe()
    assert history.shape == (3, 8)


def test_stopping_and_printing():
    found = db.fit(RING, SPINS, ridge=0.5, gradient_tol=0.3, method=db.GibbsGradient(chains=2000), seed=1)
    assert found.converged
    assert len(found.history) < 100
    assert found.history.step_size[-1] == 0
    assert found.history.gradient_norm[-1] <= 0.3
    short = db.fit(
        RING, SPINS, ridge=0.5, gradient_tol=1e-9, method=db.GibbsGradient(chains=2000), seed=1, iterations=2
    )
    assert not short.converged
    assert "not converged after 2 iterations, seed 1" in str(short)
    long = db.fit(RING, SPINS, ridge=0.5, iterations=9, method=db.GibbsGradient(chains=100), seed=1)
    lines = str(long).splitlines()
    assert len(lines) == 1 + 1 + 7 + 1
    assert lines[5].split() == ["..."]
    assert lines[1].split() == ["iteration", "step", "gradient", "bias", "bound", "scan", "updates", "seconds"]
    assert repr(long.history) == "History(iterations=9)"
    assert long.history.updates[-1] == 100 * long.history.scan_length.sum()
    for column in (long.parameters, long.history.seconds):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1
    with pytest.raises(Interrupted) as caught:
        raise_at_once()
    assert "no iteration finished" in str(caught.value.result)


def raise_at_once():
    def step(_):
        raise KeyboardInterrupt

    db.fit(RING, SPINS, learning_rate=step, method=db.GibbsGradient(chains=8))


def test_noise_alone_does_not_move_a_settled_fit():
    """Steps of a chosen size fall once there is nothing but noise to follow."""
    found = db.fit(RING, SPINS, ridge=0.3, iterations=60, method=db.GibbsGradient(chains=500), seed=2)
    sizes = found.history.step_size
    assert sizes[-10:].max() < 0.3 * sizes[:3].max()
    assert gradients._DECAY > 0.5


def test_wide_models_have_no_exact_gradient():
    grid = db.Ising.grid(40, 40, couplings=0.1)
    with pytest.raises(
        db.BudgetError, match=r"exact gradient needs .* entries, over the limit of .* Use method='gibbs'"
    ):
        db.fit(grid, np.ones((1, 1600)), method="exact")


NAN = float("nan")
GRID = db.Ising.grid(2, 2, couplings=0.1)
BAD = {
    "too few columns": (lambda: db.fit(GRID, np.ones((3, 3))), "'data' .* a column for each of 4 variables, in the order of the labels. Got 3 columns"),
    "one row only": (lambda: db.fit(GRID, np.ones(4)), "'data' .* a row for each observation, at least one, .* Got shape (4,)"),
    "no rows": (lambda: db.fit(GRID, np.ones((0, 4))), "'data' .* at least one, .* Got shape (0, 4)"),
    "NaN": (lambda: db.fit(GRID, [[1, 1, NAN, 1]]), "'data' .* an observed value in every column. Got none at label 2"),
    "zeros and ones": (lambda: db.fit(GRID, [[1, 1, 1, 1], [1, 0, 1, 1]]), "'data' .* (of 0/1 data take 2 * x - 1), or NaN for missing values. Got 0.0 at index (1, 1)"),
    "text": (lambda: db.fit(GRID, [["a", "b", "c", "d"]]), "'data' .* an array of real numbers"),
    "state out of range": (lambda: db.fit(db.Potts.grid(2, 2, states=3, couplings=0.1), [[0, 1, 2, 3]]), "'data' .* states from 0 to 2, or NaN for missing values. Got 3.0 at index (0, 3)"),
    "half a state": (lambda: db.fit(RING, [[0, 1, 0.5, 1]], family="potts"), "'data' .* states from 0 to 1, or NaN for missing values. Got 0.5 at index (0, 2)"),
    "infinite colours": (lambda: db.fit(RING, [[0, 1, np.inf, 1]], family="pairwise"), "'data' .* states from 0 to 1, or NaN for missing values. Got inf at index (0, 2)"),
    "negative colour": (lambda: db.fit(RING, [[0, 1, -1, 1]], family="potts", states=3), "'data' .* states from 0 to 2, or NaN for missing values. Got -1.0"),
    "unknown scan": (lambda: db.fit(GRID, np.ones((3, 4)), method=db.GibbsGradient(scan="random")), "'scan' .* 'dogs', 'systematic', 'uniform'. Got 'random'"),
    "unknown method": (lambda: db.fit(GRID, np.ones((3, 4)), method="mcmc"), "'method' .* 'gibbs', 'exact', 'em'. Got 'mcmc'"),
    "unknown learn": (lambda: db.fit(GRID, np.ones((3, 4)), learn="fields"), "'learn' .* 'all', 'edges', 'unaries'. Got 'fields'"),
    "unknown family": (lambda: db.fit(RING, SPINS, family="spins"), "'family' .* 'ising', 'potts', 'pairwise', 'bayesian' (the nearest is 'ising'). Got 'spins'"),
    "family of a model": (lambda: db.fit(GRID, SPINS, family="ising"), "'family' .* None when a model is given. Got 'ising'"),
    "states of a model": (lambda: db.fit(GRID, SPINS, states=2), "'states' .* None when a model is given. Got 2"),
    "states of spins": (lambda: db.fit(RING, SPINS, states=2), "'states' .* None for spins -1/+1. Got 2"),
    "no edges in a model": (lambda: db.fit(db.Ising.grid(2, 2), SPINS), "'model' .* one with edges (couplings of 0 make none: .*). Got Ising(n_variables=4, edges=0)"),
    "another model": (lambda: db.fit(db.SpinMRF({(0, 1, 2): 1.0}), SPINS), "'model' .* an Ising, Potts or PairwiseMRF model, a Bayesian network, .* Got SpinMRF"),
    "no model": (lambda: db.fit(3, SPINS), "'model' .* a list of edges, .* Got 3"),
    "edges as text": (lambda: db.fit("01", SPINS), "'model' .* the path of a file.* (there is no such file). Got '01'"),
    "no edges": (lambda: db.fit([], SPINS), "'model' .* at least one edge. Got []"),
    "an edge of three": (lambda: db.fit([(0, 1), (0, 1, 2)], SPINS), "'model' .* pairs of distinct labels. Got (0, 1, 2) at edge 1"),
    "a loop": (lambda: db.fit([(1, 1)], SPINS), "'model' .* pairs of distinct labels. Got (1, 1) at edge 0"),
    "an edge that is a number": (lambda: db.fit([3], SPINS), "'model' .* pairs of distinct labels. Got 3 at edge 0"),
    "an edge twice": (lambda: db.fit([(0, 1), (1, 0)], SPINS), "'model' .* without repetition. Got (1, 0) at edge 1"),
    "an edge off the data": (lambda: db.fit([(0, 4)], SPINS), "'model' .* the 4 columns of the data. Got 4"),
    "names without columns": (lambda: db.fit([("a", "b")], SPINS), "'data' .* each of 2 variables, in the order of the labels. Got 4 columns"),
    "tolerance 0": (lambda: db.fit(GRID, SPINS, method=db.GibbsGradient(tolerance=0)), "'tolerance' .* a positive finite number. Got 0"),
    "tolerance beyond the range": (lambda: db.fit(GRID, SPINS, method=db.GibbsGradient(tolerance=2.0)), "'tolerance' .* below 2, the range of the statistics. Got 2.0"),
    "no chains": (lambda: db.fit(GRID, SPINS, method=db.GibbsGradient(chains=0)), "'chains' .* at least 1. Got 0"),
    "no iterations": (lambda: db.fit(GRID, SPINS, iterations=0), "'iterations' .* at least 1. Got 0"),
    "part of a sweep": (lambda: db.fit(GRID, SPINS, method=db.GibbsGradient(scan="systematic", gibbs_steps=3)), "'gibbs_steps' .* at least 4, a sweep over all variables. Got 3"),
    "step as text": (lambda: db.fit(GRID, SPINS, learning_rate="fast"), "'learning_rate' .* 'auto'. Got 'fast'"),
    "negative step": (lambda: db.fit(GRID, SPINS, learning_rate=-1.0), "'learning_rate' .* a positive finite number. Got -1.0"),
    "schedule that ends": (lambda: db.fit(GRID, SPINS, learning_rate=lambda k: 0.1 * (1 - k), method=db.GibbsGradient(chains=8)), "'learning_rate' .* a positive finite number. Got 0.0"),
    "negative ridge": (lambda: db.fit(GRID, SPINS, ridge=-0.1), "'ridge' .* non-negative and finite. Got -0.1"),
    "box upside down": (lambda: db.fit(GRID, SPINS, box=(1, 0)), "'box' .* not above the upper one .* Got (1.0, 0.0) at index 0"),
    "box of three": (lambda: db.fit(GRID, SPINS, box=(1, 2, 3)), "'box' .* a pair of a lower and an upper bound. Got (1, 2, 3)"),
    "box of another size": (lambda: db.fit(GRID, SPINS, box=([0, 0], 1)), "'box' .* one for each of 8 parameters. Got shape (2,)"),
    "box of NaN": (lambda: db.fit(GRID, SPINS, box=NAN), "'box' .* not NaN. Got nan"),
    "start of another size": (lambda: db.fit(GRID, SPINS, initial=[0, 0]), "'initial' .* one for each of 8 parameters. Got shape (2,)"),
    "infinite start": (lambda: db.fit(GRID, SPINS, initial=np.inf), "'initial' .* finite"),
    "stop 0": (lambda: db.fit(GRID, SPINS, gradient_tol=0), "'gradient_tol' .* a positive finite number. Got 0"),
    "callback": (lambda: db.fit(GRID, SPINS, callback=3), "'callback' .* a function. Got 3"),
    "seed": (lambda: db.fit(GRID, SPINS, seed=-1), "'seed' .* non-negative whole number"),
    "checkpoint": (lambda: db.fit(GRID, SPINS, run=db.RunOptions(checkpoint=3.5)), "'checkpoint' .* a path. Got 3.5"),
    "checkpoint in no folder": (lambda: db.fit(GRID, SPINS, run=db.RunOptions(checkpoint="no/such/folder/x")), "'checkpoint' .* a file that can be written"),
    "checkpoint that is none": (lambda: db.fit(GRID, SPINS, run=db.RunOptions(checkpoint=__file__)), "'checkpoint' .* that an earlier fit wrote, or none"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(db.ArgumentError) as caught:
        call()
    text = str(caught.value)
    pattern = ".*".join(map(re.escape, message.split(".*")))
    assert re.search(pattern, text), text
    assert text.endswith(".")
    assert "\n" not in text
    assert text.startswith("The '")
    assert re.search("argument of dobrushin.(fit|GibbsGradient) must be", text)
