"""Random clusters: draws of ferromagnets that are exact at every temperature, and marginals uniform by symmetry."""

import decimal
import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dobrushin as db
import reference
from dobrushin._coalescence import clusters, exact_draws
from dobrushin._coalescence.clusters import draw_clusters, make_runner
from dobrushin._coalescence.ferromagnet import _thresholds, is_ferromagnet, read_ferromagnet
from dobrushin._estimate.clusters import ClusterDraws, _Links
from dobrushin._estimate.method import METHODS
from dobrushin._estimate.symmetry import Symmetry, _is_symmetric
from dobrushin._shared.executors import TimeUp
from dobrushin._shared.intervals import lower_limit, upper_limit
from dobrushin._shared.running import PLAIN, master_key
from models import FAMILIES, random_model

# Every check below fails by chance at most this often.
ALPHA = 1e-9
KINDS = ["ising", "potts", "tables", "turned", "factors"]


def random_ferromagnet(rng, kind, n=None, fields=True):
    """A random model that is a ferromagnet, perhaps after relabelling: ties, zeros, very weak and strong couplings."""
    n = int(rng.integers(1, 6)) if n is None else n
    q = 2 if kind in ("ising", "tables") else int(rng.integers(2, 4))
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.6]
    K = rng.choice([0.3, 1.0, 3.0, 1e-12, 30.0], size=len(edges), p=[0.4, 0.3, 0.2, 0.05, 0.05]) * rng.choice(
        [1, 1, 0.7]
    )
    H = rng.exponential(0.7, size=n) * (rng.random(n) < 0.5) * fields
    gauge = np.stack([rng.permutation(q) for _ in range(n)])
    if kind == "potts":
        gauge[:] = gauge[0]
    unaries = np.zeros((n, q))
    unaries[np.arange(n), gauge[:, 0]] = H
    if kind == "ising":
        sign = 2 * gauge[:, 0] - 1
        couplings = {(i, j): K[e] / 2 * sign[i] * sign[j] for e, (i, j) in enumerate(edges)}
        return db.Ising(_matrix(n, couplings, couplings.values()), sign * H / 2)
    if kind == "potts":
        return db.Potts(_matrix(n, edges, K), q, unaries)
    tables = []
    for e, (i, j) in enumerate(edges):
        table = np.zeros((q, q))
        table[gauge[i], gauge[j]] = K[e]
        tables.append(table + (rng.normal() if kind == "factors" else 0.0))
    if kind == "factors":
        factors = [((i,), row) for i, row in enumerate(unaries)]
        factors += [(pair, table) for pair, table in zip(edges, tables, strict=True)]
        factors += [(pair[::-1], table.T) for pair, table in zip(edges, tables, strict=True) if rng.random() < 0.3]
        return db.FactorGraph([q] * n, factors)
    return db.PairwiseMRF(unaries, edges, tables)


def _matrix(n, edges, weights):
    matrix = np.zeros((n, n))
    for (i, j), weight in zip(edges, weights, strict=True):
        matrix[i, j] = matrix[j, i] = weight
    return matrix


def fits(model, states, alpha=ALPHA):
    """Whether draws of all variables are compatible with the joint law (each cell, Bonferroni)."""
    digits = (states + 1) // 2 if model._spins else states
    shape = tuple(model.cardinalities.tolist())
    counts = np.bincount(np.ravel_multi_index(tuple(digits.T), shape), minlength=math.prod(shape))
    law = db.exact.distribution(model).ravel()
    low = lower_limit(counts, len(states), alpha / 2 / counts.size)
    high = upper_limit(counts, len(states), alpha / 2 / counts.size)
    return bool(((low <= law) & (law <= high)).all())


def draw(model, draws, seed, runner=None):
    """States of all variables."""
    runner = runner or make_runner(model, np.arange(model.n_variables))
    return draw_clusters(runner, range(draws), np.random.SeedSequence(seed), PLAIN)


# -- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_clusters_are_those_of_a_plain_coupling_from_the_past(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for seed in range(12):
        model = random_ferromagnet(rng, kind)
        magnet, n = read_ferromagnet(model), model.n_variables
        targets = rng.permutation(n)[: rng.integers(1, n + 1)]
        runner = replace(make_runner(model, targets), past=1, rounds=5)
        block = draw_clusters(runner, range(3), np.random.SeedSequence(seed), PLAIN)
        owner = np.repeat(np.arange(n), np.diff(magnet.start))
        ends = [(int(owner[h]), int(magnet.neighbor[h])) for h in magnet.first] + [(int(v), n) for v in magnet.tied]
        low, high = magnet.low.tolist(), magnet.high.tolist()
        master = master_key(np.random.SeedSequence(seed))
        for c in range(3):
            for sweeps in (1, 2, 4, 8, 16):
                found = reference.clusters_from_past(ends, low, high, n, reference.stream(master, c), sweeps)
                upper, lower = ([own[v] for v in targets] for own in found)
                names = [[0 if v == n else 1 + own.index(v) for v in own] for own in (upper, lower)]
                if names[0] == names[1]:
                    assert block.clusters[c].tolist() == names[0]
                    assert block.sweeps[c] == sweeps
                    break
            else:
                assert block.sweeps[c] == -1
                assert (block.clusters[c] == -1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_joint_law(kind):
    rng = np.random.default_rng(10 + KINDS.index(kind))
    for seed in range(6):
        model = random_ferromagnet(rng, kind)
        found = db.exact_sample(model, "all", draws=4000, method="clusters", seed=seed)
        assert found.error < 1e-6
        assert fits(model, found.states)


@pytest.mark.slow
def test_draws_of_a_thousand_models_have_the_joint_law():
    rng = np.random.default_rng(7)
    for seed in range(1000):
        model = random_ferromagnet(rng, KINDS[seed % len(KINDS)])
        assert fits(model, db.exact_sample(model, "all", draws=4000, method="clusters", seed=seed).states), seed


def test_a_wrong_number_of_states_is_caught():
    """Negative control: clusters that are weighed as if there were one state more."""
    model = db.Potts({(0, 1): 1.0, (1, 2): 0.7, (0, 2): 0.5}, 3, {0: [0.4, 0, 0], 1: [0, 0, 0], 2: [0, 0, 0]})
    runner = make_runner(model, np.arange(3))
    assert fits(model, draw(model, 20_000, 1, runner).states())
    K = np.array([1.0, 0.5, 0.7, 0.4])
    for q in (2, 3, 4):
        low, high = _thresholds(K, q)
        wrong = replace(runner, magnet=replace(runner.magnet, low=low, high=high))
        assert fits(model, draw(model, 20_000, 1, wrong).states()) == (q == 3)


def test_thresholds_are_close():
    rng = np.random.default_rng(1)
    for K in [*rng.exponential(2.0, size=50), 1e-18, 1e-300, 0.5, 36.0, 40.0, 700.0, 1e6]:
        for q in (2, 3, 17):
            low, high = _thresholds(np.array([K]), q)
            with decimal.localcontext(prec=60):
                p = 1 - (-decimal.Decimal(float(K))).exp()
                exact = [p / (p + q * (1 - p)), p]
            off = sum(abs(Fraction(int(t[0]), 2**53) - Fraction(x)) for t, x in zip((low, high), exact, strict=True))
            assert off <= Fraction(1, 2**49)


def test_draws_belong_to_their_numbers():
    """Neither the first round nor batches, threads or the number of draws change a draw."""
    model = db.Ising.grid(6, 6, couplings=0.5, fields=0.02, periodic=True)
    one = draw(model, 40, 3)
    for past in (1, 2, 16):
        runner = replace(make_runner(model, np.arange(36), past), draw_seconds=0.1 if past == 1 else 1e-6)
        other = draw(model, 40, 3, runner)
        np.testing.assert_array_equal(one.clusters, other.clusters)
        np.testing.assert_array_equal(one.states(), other.states())
    later = draw_clusters(make_runner(model, np.arange(36)), range(30, 40), np.random.SeedSequence(3), PLAIN)
    np.testing.assert_array_equal(one.states()[30:], later.states())
    few = draw_clusters(make_runner(model, np.array([3, 20])), range(40), np.random.SeedSequence(3), PLAIN)
    whole = one.clusters[:, [3, 20]]
    np.testing.assert_array_equal(few.clusters[:, 0] == few.clusters[:, 1], whole[:, 0] == whole[:, 1])


def test_automatic_draws_take_clusters_where_a_scan_does_not_coalesce():
    warm, cold = (db.Ising.grid(8, 8, couplings=theta, periodic=True) for theta in (0.2, 1.0))
    scan = db.exact_sample(warm, [0, 1], draws=10, seed=1, method="scan")
    np.testing.assert_array_equal(db.exact_sample(warm, [0, 1], draws=10, seed=1).states, scan.states)
    found = db.exact_sample(cold, [0, 1], draws=10, seed=1)
    np.testing.assert_array_equal(
        found.states, db.exact_sample(cold, [0, 1], draws=10, seed=1, method="clusters").states
    )
    assert found.steps % 128 == 0
    with pytest.raises(db.CoalescenceError, match=r"[1-9]0? of 10"):
        db.exact_sample(db.Ising.grid(30, 30, couplings=0.44), "all", draws=10, method="clusters", max_steps=1)
    with pytest.raises(db.ArgumentError, match=r"'scan' .* left out with method='clusters'"):
        db.exact_sample(cold, [0], draws=1, scan=db.Scan.systematic(64, 64), method="clusters")
    lazy = db.Ising.grid(9, 9, couplings=lambda k: np.full(len(k), 0.5))
    with pytest.raises(db.ArgumentError, match=r"'model' .* in memory"):
        db.exact_sample(lazy, [0], draws=1, method="clusters")
    with pytest.raises(db.BudgetError, match="Drawing needs"):
        db.exact_sample(cold, [0], draws=10, time_limit=1e-9, method="clusters")


# -- which models ----------------------------------------------------------------------------------------------------


def test_ferromagnets_are_found_by_trying_all_flips():
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(300):
        n = int(rng.integers(2, 6))
        edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.5]
        theta = _matrix(n, edges, rng.choice([-0.5, 0.5], size=len(edges)))
        h = rng.choice([-1.0, 0.0, 0.0, 1.0], size=n)
        component = db.Ising(theta)._form.components()
        wanted = any(
            (theta * np.outer(s, s) >= 0).all()
            and all(len(set((s * h)[(component == k) & (h != 0)])) <= 1 for k in range(n))
            for s in itertools.product([-1, 1], repeat=n)
        )
        assert is_ferromagnet(db.Ising(theta, h)) == wanted
        found += wanted
    assert 50 < found < 250


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            lambda: db.Ising({("a", "b"): 0.5, ("b", "c"): 0.5, ("a", "c"): -0.5}),
            "the coupling of .* and .* closes a frustrated cycle",
        ),
        (
            lambda: db.Ising({("a", "b"): 0.5, ("b", "c"): 0.5}, fields={"a": 1.0, "c": -1.0}),
            "the fields of a and c favour different states",
        ),
        (
            lambda: db.Ising({("a", "b"): -0.5}, fields={"a": 1, "b": 1}),
            "the fields of a and b favour different states",
        ),
        (lambda: db.Potts({(0, 1): 0.5, (1, 2): -0.5}, 3), "the coupling of 1 and 2 does not favour equal states"),
        (lambda: db.Potts({(0, 1): 0.5}, 3, {0: [1.0, 0.5, 0.0], 1: [0, 0, 0]}), "field of 0 distinguishes more"),
        (lambda: db.SpinMRF({(0, 1, 2): 0.3}), "the variables 0, 1 and 2 share a factor"),
        (lambda: db.PairwiseMRF([[0, 0], [0, 0, 0]], [(0, 1)], [np.zeros((2, 3))]), "0 and 1 have different numbers"),
        (
            lambda: db.PairwiseMRF([[0, 0], [0, 0]], [(0, 1)], [[[0, 0], [0, -np.inf]]]),
            "the model forbids some states",
        ),
    ],
)
def test_other_models_are_refused_with_the_place(model, words):
    model = model()
    with pytest.raises(db.CertificateError, match=words):
        db.estimate(model, db.Joint(*model.labels[:2]), method="clusters")
    with pytest.raises(db.CertificateError, match=words):
        db.exact_sample(model, model.labels[:2], draws=2, method="clusters")


def test_evidence_must_favour_the_same_state():
    grid = db.Ising.grid(5, 5, couplings=0.6)
    found = db.estimate(grid, [24], evidence={0: 1, 3: 1}, method="clusters", tolerance=0.05, seed=1)
    law = db.estimate(grid, [24], evidence={0: 1, 3: 1}, method="exact").value
    assert ((found.lower <= law) & (law <= found.upper)).all()
    with pytest.raises(db.CertificateError, match="favour different states"):
        db.estimate(grid, [24], evidence={0: 1, 3: -1}, method="clusters")
    # What evidence cuts off has a field of its own.
    chain = db.Ising({(0, 1): 0.5, (1, 2): 0.5, (2, 3): 0.5, (3, 4): 0.5})
    cut = db.estimate(chain, [0, 4], evidence={1: 1, 3: -1}, method="clusters", tolerance=0.05, seed=1)
    assert cut.lower[1] > 0.5 > cut.upper[3]


# -- estimates -------------------------------------------------------------------------------------------------------


def questions(model):
    """Marginals, joint laws and statistics."""
    labels = list(model.labels)
    several = db.Statistic.event(labels, lambda x: (x == x[:, :1]).all(axis=1), name="all equal")
    mean = db.Statistic(
        lambda x: (x == x[:, :1]).mean(axis=1), dict.fromkeys(labels, 1 / len(labels)), (0.0, 1.0), name="share"
    )
    pairs = [db.Joint(*pair) for pair in itertools.combinations(labels[:3], 2)]
    return [*labels, *pairs, db.Joint(*labels[:4]), several, mean]


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_contain_exact_answers(kind):
    rng = np.random.default_rng(20 + KINDS.index(kind))
    for seed in range(4):
        model = random_ferromagnet(rng, kind, n=4, fields=seed % 2 == 0)
        asked = questions(model)
        found = db.estimate(model, asked, method="clusters", tolerance=0.06, confidence=1 - 1e-9, seed=seed)
        exact = db.estimate(model, asked, method="exact").value
        assert ((found.lower <= exact) & (exact <= found.upper)).all()
        assert found.half_width.max() <= 0.06


@pytest.mark.slow
def test_coverage_of_two_thousand_runs(monkeypatch):
    """Intervals at 80 % miss at most so often; with a connection that counts half they miss nearly always."""
    rng = np.random.default_rng(5)
    model = random_ferromagnet(rng, "potts", n=5)
    asked = [0, db.Joint(1, 2), db.Joint(0, 1, 2)]
    exact = db.estimate(model, asked, method="exact").value

    def misses(runs):
        missed = 0
        for seed in range(runs):
            found = db.estimate(model, asked, method="clusters", tolerance=0.1, confidence=0.8, seed=seed)
            missed += not ((found.lower <= exact) & (exact <= found.upper)).all()
        return missed

    assert upper_limit(misses(2000), 2000, 0.5) < 0.2
    half = _Links.add_clusters
    monkeypatch.setattr(
        _Links, "add_clusters", lambda self, found, keep=False: half(self, np.where(found == 0, 1, found), keep)
    )
    assert misses(50) > 25


def test_connections_need_fewer_draws():
    model = db.Ising.grid(6, 6, couplings=0.6, periodic=True)
    plan = db.plan(model, db.Joint(0, 14), method="clusters", tolerance=0.01)
    other = db.plan(model, db.Joint(0, 14, 20), method="clusters", tolerance=0.01)
    assert plan.chains * 10 < other.chains
    fielded = db.Ising.grid(6, 6, couplings=0.6, fields=0.05)
    event = db.Statistic.event([0], lambda x: x[:, 0] == 1, name="up")
    assert db.plan(fielded, [0], method="clusters").chains * 3 < db.plan(fielded, event, method="clusters").chains


def test_draws_that_stay_open_count_for_every_state(monkeypatch):
    """Their number is limited by rounds, and not left out: intervals with them hold."""
    model = db.Ising.grid(5, 5, couplings=0.45, fields=0.01, periodic=True)
    exact = db.estimate(model, [0, db.Joint(0, 12, 13)], method="exact").value
    whole = clusters.try_runner
    monkeypatch.setattr(
        "dobrushin._estimate.clusters.try_runner", lambda *args: replace(whole(*args), past=1, rounds=2)
    )
    with pytest.raises(db.CertificateError, match=r"of .* draws had not coalesced") as caught:
        db.estimate(model, [0, db.Joint(0, 12, 13)], method="clusters", tolerance=0.05, seed=1)
    found = caught.value.result
    assert ((found.lower <= exact) & (exact <= found.upper)).all()


def test_auto_takes_clusters_for_a_cold_ferromagnet():
    torus = db.Ising.grid(24, 24, couplings=0.6, periodic=True)
    plan = db.plan(torus, db.Joint(0, 300), tolerance=0.02)
    assert plan.method == "clusters"
    assert "ferromagnet" in plan.reason
    found = db.estimate(torus, db.Joint(0, 300), tolerance=0.02, seed=1)
    assert found.seed == 1
    assert "exact draws, kernel clusters, seed 1" in found.footer


def test_a_limit_in_time_leaves_the_first_draws_with_wider_intervals(monkeypatch):
    model = db.Ising.grid(5, 5, couplings=0.5, fields=0.05)
    exact = db.estimate(model, [0], method="exact").value
    whole = clusters.run_batches

    def early(job, numbers, *args, **named):
        outcome = whole(job, range(numbers.start, numbers.start + len(numbers) // 3), *args, **named)
        outcome.trouble = TimeUp()
        return outcome

    monkeypatch.setattr(clusters, "run_batches", early)
    found = db.estimate(model, [0], method="clusters", tolerance=0.02, seed=1)
    assert found.stopped_by == "the time limit"
    assert found.half_width.max() > 0.02
    assert ((found.lower <= exact) & (exact <= found.upper)).all()


def test_draws_go_on_from_a_checkpoint(tmp_path):
    model = db.Ising.grid(5, 5, couplings=0.5, fields=0.05)
    options = {"method": "clusters", "tolerance": 0.02, "seed": 1}
    once = db.estimate(model, [0, 3], **options)
    file = tmp_path / "run.npz"
    first = db.estimate(model, [0, 3], run=db.RunOptions(checkpoint=file), **options)
    assert file.exists()
    again = db.estimate(model, [0, 3], run=db.RunOptions(checkpoint=file), **options)
    for found in (first, again):
        np.testing.assert_array_equal(found.lower, once.lower)


def test_work_on_clusters_keeps_to_a_budget():
    model = db.Ising.grid(6, 6, couplings=0.5, fields=0.05)
    with pytest.raises(db.BudgetError, match="Gibbs updates"):
        db.estimate(model, [0], method="clusters", budget=100)
    with pytest.raises(db.ArgumentError, match="'cpu' for the kernel 'clusters'"):
        db.estimate(model, [0], method="clusters", run=db.RunOptions(backend="cuda"))


# -- symmetry --------------------------------------------------------------------------------------------------------


def test_symmetric_marginals_are_uniform_at_once():
    glass = np.random.default_rng(1).choice([-3.0, 3.0], size=2 * 30 * 30)
    model = db.Ising.grid(30, 30, couplings=glass, periodic=True)
    found = db.estimate(model, "all")
    assert found.plan.method == "symmetry"
    assert "equally likely" in found.plan.reason
    assert found.half_width.max() == 0
    assert (found.value == 0.5).all()
    potts = db.estimate(db.Potts.grid(9, 9, 3, couplings=-2.0), [5], method="symmetry")
    assert ((potts.lower <= 1 / 3) & (potts.upper >= 1 / 3)).all()
    with pytest.raises(db.CertificateError, match="no shift of all states"):
        db.estimate(model, [0], evidence={899: 1}, method="symmetry")
    with pytest.raises(db.CertificateError, match="only the marginals of single variables"):
        db.estimate(model, db.Joint(0, 1), method="symmetry")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_other_marginal_is_called_uniform(family):
    rng = np.random.default_rng(FAMILIES.index(family))
    uniform = 0
    for trial in range(150):
        model = random_model(rng, family, n=4, strength=0.0 if trial % 3 == 0 else 1.0, density=0.3, max_states=3)
        if trial % 3 == 1 and family in ("ising", "spins"):
            model = db.Ising(model.couplings) if family == "ising" else db.SpinMRF(model.terms or {(0, 1): 1.0})
        for i, law in enumerate(db.exact.marginals(model)):
            if _is_symmetric(model._form, np.array([i])):
                uniform += 1
                np.testing.assert_allclose(law, 1 / len(law), atol=1e-12)
    assert uniform > 20


def test_a_cyclic_table_is_symmetric_and_its_sheared_copy_is_not():
    table = np.array([[1.0, 0.3, -0.2], [-0.2, 1.0, 0.3], [0.3, -0.2, 1.0]])
    clock = db.PairwiseMRF(np.zeros((3, 3)), [(0, 1), (1, 2), (0, 2)], table)
    assert _is_symmetric(clock._form, np.arange(3))
    sheared = db.PairwiseMRF(np.zeros((3, 3)), [(0, 1), (1, 2), (0, 2)], table + np.array([[0.1, 0, 0]]))
    assert not _is_symmetric(sheared._form, np.arange(3))


def test_methods_are_registered_in_order():
    names = list(METHODS)
    assert names.index("symmetry") < names.index("dobrushin") < names.index("clusters") < names.index("coalescence")
    assert METHODS["clusters"] is ClusterDraws
    assert METHODS["symmetry"] is Symmetry
    assert exact_draws._PILOT_SEED.spawn_key != clusters._PILOT_SEED.spawn_key
