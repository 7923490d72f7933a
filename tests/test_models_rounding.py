"""The error that a model carries: what rounding did to its potentials before any sum or bound looked at them."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import dobrushin as db
from dobrushin._models.forms import Form, log_table, rounding_of
from dobrushin.io import read

SCALES = [1e-300, 1e-150, 1e-12, 1.0, 1e12, 1e150, 1e300]


def decimal(value):
    """A positive number as a file holds it."""
    return f"{value:.17g}"


def write_uai(path, sizes, factors):
    """Factors of (scope, decimals) as a UAI file."""
    lines = ["MARKOV", str(len(sizes)), " ".join(map(str, sizes)), str(len(factors))]
    lines += [f"{len(scope)} {' '.join(map(str, scope))}" for scope, _ in factors]
    lines += [f"{len(words)} {' '.join(words)}" for _, words in factors]
    path.write_text("\n".join(lines))
    return path


def rational_marginals(sizes, factors):
    """Exact marginals of all variables, from the decimals."""
    sums = [[Fraction(0)] * size for size in sizes]
    for state in itertools.product(*map(range, sizes)):
        weight = Fraction(1)
        for scope, words in factors:
            place = 0
            for v in scope:
                place = place * sizes[v] + state[v]
            weight *= Fraction(words[place])
        for v, s in enumerate(state):
            sums[v][s] += weight
    total = sum(sums[0])
    return [[part / total for part in row] for row in sums]


def random_factors(rng, sizes, scale):
    """Tables whose entries differ by little at the same extreme scale."""
    scopes = [(i,) for i in range(len(sizes))] + [(i, i + 1) for i in range(len(sizes) - 1)]
    return [
        (scope, [decimal(scale * x) for x in rng.uniform(0.1, 3.0, math.prod(sizes[v] for v in scope))])
        for scope in scopes
    ]


def violations(estimate, truth):
    """Rows of a certain answer whose interval does not hold the true probability."""
    assert estimate.confidence == 1.0
    flat = [p for row in truth for p in row]
    ends = zip(estimate.lower.tolist(), estimate.upper.tolist(), strict=True)
    return sum(not Fraction(low) <= p <= Fraction(high) for p, (low, high) in zip(flat, ends, strict=True))


def forget_errors(monkeypatch):
    """Let no model carry an error."""
    monkeypatch.setattr(Form, "off_by", lambda self, _: self)


def count_violations(tmp_path, method, models=4):
    wrong, rng = 0, np.random.default_rng(3)
    for scale in SCALES:
        for _ in range(models):
            sizes = rng.integers(2, 4, 4).tolist()
            factors = random_factors(rng, sizes, scale)
            model = read(write_uai(tmp_path / "model.uai", sizes, factors))
            answer = db.estimate(model, "all", tolerance=1e-9, method=method)
            wrong += violations(answer, rational_marginals(sizes, factors))
    return wrong


@pytest.mark.parametrize("method", ["exact", "local"])
def test_intervals_hold_the_law_of_the_decimals(tmp_path, method):
    assert count_violations(tmp_path, method) == 0


def test_without_the_error_intervals_are_false(tmp_path, monkeypatch):
    forget_errors(monkeypatch)
    assert count_violations(tmp_path, "exact") > 0


def write_energies(path, rng, beta, vartype):
    """Energies as coordinate text, some of whose terms are given twice and nearly cancel; returns the terms too."""
    terms = []
    for i, j in itertools.combinations_with_replacement(range(3), 2):
        value = Decimal(f"{rng.uniform(-1.0, 1.0) / beta:.25e}")
        if rng.random() < 0.5:
            large = Decimal(f"{rng.uniform(10.0, 1e4) / beta:.25e}")
            terms += [(i, j, large + value), (j, i, -large)]
        else:
            terms.append((i, j, value))
    lines = [f"# vartype={vartype}", *(f"{i} {j} {value:f}" for i, j, value in terms)]
    path.write_text("\n".join([*lines, ""]))
    return terms


def decimal_marginals(terms, beta, vartype):
    """Marginals of three variables from the decimals of energies, to 60 digits."""
    values = (-1, 1) if vartype == "SPIN" else (0, 1)
    sums = [[Decimal(0)] * 2 for _ in range(3)]
    with localcontext(prec=60):
        for state in itertools.product(range(2), repeat=3):
            energy = Decimal(0)
            for i, j, value in terms:
                energy += value * values[state[i]] * (1 if i == j else values[state[j]])
            weight = (-Decimal(beta) * energy).exp()
            for v, s in enumerate(state):
                sums[v][s] += weight
        total = sum(sums[0])
        return [[Fraction(part / total) for part in row] for row in sums]


def count_energy_violations(tmp_path):
    wrong, rng = 0, np.random.default_rng(19)
    for beta in (1e-100, 1 / 3, 1.0, 0.5, 7.1, 1e100):
        for vartype in ("SPIN", "BINARY"):
            for method in ("exact", "local", "auto"):
                terms = write_energies(tmp_path / "model.coo", rng, beta, vartype)
                answer = db.estimate(read(tmp_path / "model.coo", beta=beta), "all", tolerance=1e-9, method=method)
                wrong += violations(answer, decimal_marginals(terms, beta, vartype))
    return wrong


def test_intervals_hold_the_law_of_energies(tmp_path):
    assert count_energy_violations(tmp_path) == 0


def test_without_the_error_intervals_of_energies_are_false(tmp_path, monkeypatch):
    forget_errors(monkeypatch)
    assert count_energy_violations(tmp_path) > 0


@pytest.mark.parametrize("weights", ["1e-300 3e-300", "1e300 3e300"])
def test_a_quarter_is_a_quarter(tmp_path, weights):
    path = tmp_path / "coin.uai"
    path.write_text(f"MARKOV\n1\n2\n1\n1 0\n2\n{weights}\n")
    answer = db.estimate(path, 0, tolerance=1e-6, method="exact")
    assert answer.lower[0] <= 0.25 <= answer.upper[0]
    assert 0 < answer.half_width.max() < 1e-11


def test_partition_functions_hold_the_logarithm_of_the_decimals(tmp_path):
    rng = np.random.default_rng(5)
    for scale in SCALES:
        sizes = [2, 3, 2]
        factors = random_factors(rng, sizes, scale)
        z = db.exact.log_partition(read(write_uai(tmp_path / "model.uai", sizes, factors)))
        total = Fraction(0)
        for state in itertools.product(*map(range, sizes)):
            weight = Fraction(1)
            for scope, words in factors:
                weight *= Fraction(words[np.ravel_multi_index([state[v] for v in scope], [sizes[v] for v in scope])])
            total += weight
        shift = round(math.log2(scale)) * len(factors)
        truth = math.log(total / Fraction(2) ** shift) + shift * math.log(2.0)
        assert abs(truth - z) <= z.error + 2.0**-51 * abs(truth)


def test_intervals_hold_the_law_of_the_likelihoods():
    rng = np.random.default_rng(7)
    model = db.Ising({(i, i + 1): 0.0 for i in range(4)})  # the variables have their evidence only
    for scale in SCALES:
        likelihoods = (scale * rng.uniform(1e-9, 1.0, (5, 2))).tolist()
        evidence = {i: dict(zip((-1, 1), own, strict=True)) for i, own in enumerate(likelihoods)}
        answer = db.estimate(model, "all", evidence=evidence, tolerance=1e-9, method="exact")
        laws = [[Fraction(part) / sum(map(Fraction, own)) for part in own] for own in likelihoods]
        assert violations(answer, laws) == 0
        assert model.condition(evidence)._error > 0


def test_likelihoods_of_any_scale_are_taken():
    model = db.Ising({(0, 1): 0.0})
    answer = db.estimate(model, 0, evidence={0: {-1: 1e-300, 1: 1e300}}, tolerance=1e-6, method="exact")
    assert answer.lower[0] == 0 <= answer.upper[0] < 1e-10
    graph = model.condition({0: {-1: 1e-300, 1: 1e300}})
    assert graph.log_density([0, 0]) - graph.log_density([1, 0]) == pytest.approx(-600 * math.log(10))
    with pytest.raises(ValueError, match="non-negative and finite"):
        model.condition({0: {-1: 1, 1: 10**400}})


def test_evidence_that_is_folded_in_is_counted():
    # Large couplings to observed spins cancel but for their last digits.
    rng = np.random.default_rng(11)
    for _ in range(40):
        strengths = rng.uniform(1e3, 1e4, 6)
        strengths[3:] = -strengths[:3] + rng.uniform(-0.1, 0.1, 3)
        model = db.Ising({(0, k): float(s) for k, s in enumerate(strengths, 1)})
        rest = model.condition(dict.fromkeys(range(1, 7), 1))
        exact = sum(map(Fraction, strengths.tolist()))
        assert abs(Fraction(float(rest.fields[0])) - exact) <= Fraction(rest._error)
        answer = db.estimate(rest, 0, tolerance=1e-6, method="exact")
        truth = 1.0 / (1.0 + math.exp(-2.0 * float(exact)))
        assert answer.lower[1] <= truth <= answer.upper[1]


def test_joint_variables_carry_the_rounding_of_their_sums():
    rng = np.random.default_rng(13)
    factors = [
        ((0, 1), rng.normal(size=(2, 2)) * 1e6),
        ((1, 0), rng.normal(size=(2, 2)) * 1e6),
        ((1,), rng.normal(size=2)),
    ]
    model = db.FactorGraph([2, 2], factors)
    merged = model.merge([[0, 1]])
    table = merged.factor(0)[1]
    for a, b in itertools.product(range(2), repeat=2):
        exact = Fraction(factors[0][1][a, b]) + Fraction(factors[1][1][b, a]) + Fraction(factors[2][1][b])
        assert abs(Fraction(table[2 * a + b]) - exact) <= Fraction(merged._error)
    assert 0 < merged._error < 1e-8


def test_every_form_of_a_model_and_every_part_carries_its_error():
    grid = db.Ising.grid(4, 4, couplings=0.3)._off_by(1e-9)
    assert grid._form.tables().error == grid._form.wider().tables().error == 1e-9
    assert grid.to_factor_graph()._error == grid.merge([[0, 1]])._error == 1e-9
    assert grid._near(np.array([5]), 1).model._error == 1e-9
    assert grid.condition({0: 1})._error > 1e-9
    models = [
        db.Potts.grid(3, 3, 3, couplings=0.2),
        db.PairwiseMRF(np.zeros((4, 2)), [(0, 1), (1, 2), (2, 3)], np.array([[0.3, 0.0], [0.0, 0.2]])),
        db.SpinMRF({(0, 1, 2): 0.4, (1, 3): -0.2}, fields=[0.1, 0, 0, 0]),
        db.FactorGraph([2, 2, 2], [((0, 1), np.ones((2, 2))), ((1, 2), np.eye(2))]),
    ]
    for model in models:
        model._off_by(1e-9)
        form = model._form
        everything = np.ones(model.n_variables, dtype=bool)
        assert form.tables().error == form.restrict(everything).error == 1e-9
        assert form.sum_out(everything)[0].error == 1e-9
        assert model.condition({0: model.states(0)[0]})._error >= 1e-9
        assert model._near(np.array([0]), 1).model._error == 1e-9


def test_certificates_count_the_error_of_the_model():
    plain, off = (db.Ising.grid(4, 4, couplings=0.2) for _ in range(2))
    off._off_by(1e-6)
    scan = db.Scan.systematic(16, 160)
    assert db.variation(off, scan, [0]).value > db.variation(plain, scan, [0]).value + 1e-6
    assert (db.influence(off).matrix - db.influence(plain).matrix).max() == pytest.approx(2e-6)
    assert db.shortest_scan(off, [0], tolerance=0.01).variation.value <= 0.01
    bounds = [db.coalescence(model, scan, [0], runs=100, seed=1).update_error for model in (plain, off)]
    assert bounds[1] == pytest.approx(bounds[0] + 2e-6 * 160)
    runs = [db.sample(model, scan, chains=64, seed=1) for model in (plain, off)]
    np.testing.assert_allclose(runs[1].update_error, runs[0].update_error + 1e-6)
    near = [db.exact.most_likely(model).error for model in (plain, off)]
    assert near[1] == pytest.approx(near[0] + 1e-6)


@pytest.mark.parametrize("scale", [1e-310, *SCALES])
def test_logarithms_are_as_near_as_their_error_says(scale):
    rng = np.random.default_rng(17)
    words = [decimal(x) for x in scale * rng.uniform(0.01, 1.0, 300)]
    logs, error = log_table(np.array([float(word) for word in words]), 1.0)
    with localcontext(prec=60):
        worst = max(abs(Decimal(word).ln() - Decimal(log)) for word, log in zip(words, logs.tolist(), strict=True))
    assert worst <= error
    assert scale < 1e-300 or error < 2e-12


def test_tables_in_one_array_have_an_error_each():
    weights = np.array([1.0, 2.0, 0.0, 1e-9])
    apart = log_table(weights[:2])[1] + log_table(weights[2:])[1]
    assert log_table(weights, start=np.array([0, 2, 4]))[1] == pytest.approx(apart)
    assert log_table(np.ones(3))[1] == 0.0
    assert rounding_of(np.array([1.0, -2.0]), 1.0) == pytest.approx(3 * 2.0**-53)


# -- numbers that are not doubles --------------------------------------------------------------


@pytest.mark.parametrize("number", [Fraction(1, 3), Decimal("0.1"), 2**60 + 1, np.int64(2**53 + 1), Fraction(1, 2)])
def test_the_rounding_of_numbers_to_doubles_is_in_the_error(number):
    off = abs(Fraction(float(number)) - Fraction(int(number) if isinstance(number, np.integer) else number))
    models = [db.Ising({(0, 1): number}), db.Potts({(0, 1): number}, states=3), db.SpinMRF({(0, 1): number})]
    for model in models:
        assert off <= Fraction(model._error)
        assert model._error <= (2.0**-52 * float(number) if off else 0.0)


@pytest.mark.parametrize(
    "likelihoods",
    [
        (Fraction(1, 3), 1),
        (Decimal("0.1"), Decimal("0.3")),
        (Fraction(1, 3) / 10**310, Fraction(1, 10**310)),  # doubles of these have 12 digits
        (Decimal("7.4e-324"), Decimal("1.2e-323")),  # and of these none
        (Fraction(10**309, 37), 10**308),
        (2**60 + 1, 2**60),
        (np.int64(2**60 + 1), np.float32(0.1)),
        (Decimal("1e-308"), Decimal("3e307")),
    ],
)
def test_likelihoods_are_read_exactly(likelihoods):
    model = db.Ising({(0, 1): 0.0})
    answer = db.estimate(model, 0, evidence={0: dict(zip((-1, 1), likelihoods, strict=True))}, method="exact")
    exact = [Fraction(x) if isinstance(x, Decimal | Fraction) else Fraction(x.item() if hasattr(x, "item") else x)
             for x in likelihoods]  # fmt: skip
    assert violations(answer, [[part / sum(exact) for part in exact]]) == 0
    assert answer.half_width.max() < 1e-11


@pytest.mark.parametrize("likelihood", [10**400, Fraction(1, 10**400), Decimal("1e-400"), Decimal("nan"), -1, "1", 1j])
def test_likelihoods_that_are_no_doubles_are_refused(likelihood):
    model = db.Ising({(0, 1): 0.5})
    with pytest.raises(db.ArgumentError, match="non-negative and finite, and at least 5e-324 where they are not 0"):
        model.condition({0: {-1: likelihood, 1: 1}})


@pytest.mark.parametrize("number", [2**60 + 1, -(2**53) - 1, 2**63 - 1])
def test_whole_numbers_that_doubles_do_not_hold_are_refused(number):
    calls = [
        lambda: db.FactorGraph([2], [((0,), np.array([number, 0]))]),
        lambda: db.Ising({(0, 1): 0.5}, fields=np.array([0, number])),
        lambda: db.Ising.grid(1, 2, couplings=np.array([number])),
        lambda: db.FactorGraph([2], [((0,), [number, 0.5])]),  # NumPy makes doubles of both
        lambda: db.Ising(sparse.coo_array(([number] * 2, ([0, 1], [1, 0])), shape=(2, 2))),
        lambda: db.GaussianField([[1.0]], linear=[number]),
    ]
    for call in calls:
        with pytest.raises(db.ArgumentError, match=f"that doubles hold exactly. Got {number} at index"):
            call()
    with pytest.raises(db.ArgumentError, match=f"a number that a double holds exactly. Got {number} at label 0"):
        db.GaussianField([[1.0, 0.5], [0.5, 1.0]]).condition({0: number})
    assert db.Ising({(0, 1): 0.5}, fields=np.array([0, 2**60])).fields[1] == 2.0**60


def test_sums_of_duplicate_entries_are_in_the_error():
    rng = np.random.default_rng(8)
    inexact = 0
    for _ in range(50):
        k = rng.integers(1, 5)
        values = rng.normal(size=k) * 10.0 ** rng.integers(-8, 9, size=k)
        ends = np.zeros(k, dtype=int), np.ones(k, dtype=int)
        i, j = np.concatenate(ends), np.concatenate(ends[::-1])
        model = db.Ising(sparse.coo_array((np.tile(values, 2), (i, j)), shape=(2, 2)))
        off = abs(sum(map(Fraction, values.tolist())) - Fraction(float(model.couplings[0, 1])))
        assert off <= Fraction(model._error)
        assert (model._error > 0.0) == (k > 1)
        inexact += off > 0
    assert inexact > 10  # without the error, these bounds would be false
