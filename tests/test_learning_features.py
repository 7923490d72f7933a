"""Weights that factors share: against enumeration and finite differences, with bounds on their bias."""
# ruff: noqa: E501 (the table of bad input has one case a line)

import itertools
import re

import numpy as np
import pytest

import dobrushin as db
from dobrushin._exact.batch import BatchProgram
from dobrushin._exact.engine import plan_sums
from dobrushin._learning.ascent import AscentOptions, ExactAscent
from dobrushin._learning.data import Observed, read_graphs
from dobrushin._learning.features import read_features
from dobrushin._learning.gradients import GibbsAscent, MarginalAscent
from dobrushin._learning.structure import Structure
from dobrushin._models.factors import FactorTables

FREE = AscentOptions(None, None, 0.0, -np.inf, np.inf)


def all_scopes(structure):
    return [scope for scopes in structure.scopes for scope in scopes]


def random_graphs(rng, count=3):
    """Graphs of 2 to 4 variables with 2 or 3 states, and features on scopes of 1 to 3 of them."""
    models, features, data = [], [], []
    for _ in range(count):
        n = int(rng.integers(2, 5))
        sizes = [2, 3, 2, 3][:n]
        base = [((0, 1), rng.normal(size=(2, 3)))] if rng.random() < 0.5 else []
        models.append(db.FactorGraph(sizes, base))
        rows = [((i,), {f"word {rng.integers(3)} of {k}": float(rng.normal())}) for i, k in enumerate(sizes)]
        rows += [
            ((i, i + 1), [f"next {sizes[i]}"] + ["strong"] * bool(rng.random() < 0.3 and sizes[i] == 2))
            for i in range(n - 1)
        ]
        if n > 2:
            rows.append(((0, 2), {"alike": np.eye(2)}))
            rows.append(((2, 1, 0), "three"))
        features.append(rows)
        data.append([int(rng.integers(k)) for k in sizes])
    return models, features, data


def literal_statistics(rows, names, x):
    """Statistics of one state of one graph, a feature at a time."""
    place = {name: k for k, name in enumerate(names)}
    t = np.zeros(len(names))
    for scope, attributes in rows:
        cell = tuple(x[i] for i in scope)
        given = (
            attributes
            if isinstance(attributes, dict)
            else dict.fromkeys([attributes] if isinstance(attributes, str) else attributes, 1.0)
        )
        for name, value in given.items():
            if isinstance(value, np.ndarray):
                t[place[(name,)]] += value[cell]
            else:
                t[place[(name, *cell)]] += value
    return t


def literal_likelihood(models, features, data, names, theta):
    """Mean log-likelihood of complete or incomplete states of the graphs, by enumeration, and its gradient."""
    total, gradient = 0.0, np.zeros(len(names))
    for model, rows, observed in zip(models, features, data, strict=True):
        states = list(itertools.product(*(range(k) for k in model.cardinalities)))
        t = np.array([literal_statistics(rows, names, x) for x in states])
        energy = t @ theta + np.asarray(model.log_density(np.array(states)))
        fits = np.array([all(o is None or o == a for o, a in zip(observed, x, strict=True)) for x in states])
        weights = np.exp(energy)
        clamped = weights * fits
        total += np.log(clamped.sum()) - np.log(weights.sum())
        gradient += clamped @ t / clamped.sum() - weights @ t / weights.sum()
    return total / len(models), gradient / len(models)


@pytest.mark.parametrize("missing", [False, True])
def test_gradients_are_those_of_enumeration_and_of_finite_differences(missing):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        models, features, data = random_graphs(rng, count=6)
        if missing:
            data = [[None if rng.random() < 0.4 else a for a in row] for row in data]
            data[0][0] = 0
        structure = read_features(models, features, False)
        names = structure.names()
        theta = rng.normal(size=len(names))
        ascent = ExactAscent(structure, read_graphs(models, structure, data), FREE, theta)
        gradient, (means, bias, *_), value = ascent.evaluate(theta)
        digits = [[name[0], *name[1:]] for name in names]
        wanted, wanted_gradient = literal_likelihood(models, features, data, [tuple(d) for d in digits], theta)
        assert value == pytest.approx(wanted, abs=1e-11)
        assert (np.abs(gradient - wanted_gradient) <= bias).all()
        assert bias.max() < 1e-11
        assert np.isfinite(means).all()
        k, h = int(rng.integers(len(theta))), 1e-5
        step = np.where(np.arange(len(theta)) == k, h, 0.0)
        slope = (ascent.evaluate(theta + step)[2] - ascent.evaluate(theta - step)[2]) / (2 * h)
        assert gradient[k] == pytest.approx(slope, abs=1e-7)


def test_sums_of_many_models_at_once_are_those_of_each():
    rng = np.random.default_rng(3)
    for _ in range(20):
        sizes = rng.integers(2, 4, size=5)
        scopes = [(i, i + 1) for i in range(4)] + [(0, 4), (0, 2), (3,), (1, 2, 4)]
        scopes = [scopes[k] for k in sorted(rng.permutation(len(scopes))[:6])]
        count = 4
        logs = [rng.normal(0, 3, (*sizes[list(s)], 1 if rng.random() < 0.4 else count)) for s in scopes]
        logs[0][(0,) * len(scopes[0])] = -np.inf

        def tables(k, logs=logs, scopes=scopes, sizes=sizes):
            own = [log[..., min(k, log.shape[-1] - 1)].reshape(1, -1) for log in logs]
            return FactorTables.from_blocks(sizes, [(np.array([s]), t) for s, t in zip(scopes, own, strict=True)])

        groups = [*scopes, *((v,) for v in range(5))]
        plan = plan_sums(tables(0), groups, 1e9)
        found = BatchProgram(plan.program).run(logs, count)
        assert found.is_valid.all()
        for k in range(count):
            sums = plan.run(tables(k))
            assert found.log_partition[k] == pytest.approx(sums.log_partition, abs=1e-12)
            for one, many in zip(sums.marginals, found.marginals(), strict=True):
                allowed = (found.relative + sums.relative) * one + 1e-15
                assert (np.abs(one - many[..., k]) <= allowed).all()


def test_sums_that_underflow_are_not_trusted():
    """Messages that agree nowhere but in their smallest entries; one of the models is harmless."""
    scopes = [(0, 1), (1, 2), (2, 3)]
    logs = [np.zeros((2, 2, 3)) for _ in scopes]
    logs[0][:, 1, 0], logs[1][0, :, 0] = -800.0, -800.0
    logs[1][1, 1, 1] = -np.inf
    logs[2][:, :, 2] = -np.inf
    shape = FactorTables.from_blocks(np.full(4, 2), [(np.array([s]), np.zeros((1, 4))) for s in scopes])
    plan = plan_sums(shape, scopes, 1e9)
    assert BatchProgram(plan.program).run(logs, 3).is_valid.tolist() == [False, True, False]


@pytest.mark.parametrize("scan", ["systematic", "dogs"])
def test_no_bias_of_a_shared_weight_is_larger_than_its_bound(scan):
    """500 random models; a bound that leaves out one factor of each weight is caught on some of them."""
    checked = broken = 0
    for seed in range(250):
        rng = np.random.default_rng(1000 + seed)
        n = 4
        graph = db.FactorGraph([2] * n, [])
        rows = [((i,), "field") for i in range(n)]
        rows += [((i, i + 1), {"alike": np.eye(2) * rng.choice([1.0, -1.0])}) for i in range(n - 1)]
        structure = read_features([graph], rows, True)
        theta = rng.normal(0, 0.6, len(structure.start)) if scan == "systematic" else rng.normal(0, 0.15, 3)
        how = db.GibbsGradient(scan, 0.3, n if scan == "systematic" else None, 4)
        data = Observed.of(structure, np.zeros((n, 1), dtype=np.int8))
        ascent = GibbsAscent(structure, data, FREE, theta, how, np.random.SeedSequence(seed))
        if not ascent.prepare(theta):
            continue
        b = db.variation(structure.model(theta), ascent.scan, targets=[0]).per_variable
        bound = structure.bias(b)
        states = np.array(list(itertools.product(range(2), repeat=n)))
        t = np.array([literal_statistics(rows, structure.names(), x) for x in states])
        exact = np.exp(t @ theta) / np.exp(t @ theta).sum()
        for start in (states[0], states[-1], states[5]):
            law = db.exact.law(structure.model(theta), ascent.scan, start).ravel()
            bias = np.abs(law @ t - exact @ t)
            assert (bias <= bound + 1e-12).all()
            by_factor = structure.factor_ranges.toarray() * [
                min(1.0, b[scope].sum()) for scope in all_scopes(structure)
            ]
            broken += (bias > by_factor.sum(axis=1) - by_factor.max(axis=1) + 1e-12).any()
            checked += 1
    assert checked > 600
    assert broken > 0 or scan == "dogs"


def test_chains_learn_what_exact_sums_learn():
    rng = np.random.default_rng(4)
    grid = db.FactorGraph([2] * 6, [])
    edges = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]
    rows = [((i, j), {"across" if j == i + 1 else "down": np.eye(2)}) for i, j in edges] + [
        (i, "site") for i in range(6)
    ]
    data = rng.integers(0, 2, size=(40, 6))
    options = {"features": rows, "ridge": 0.05, "seed": 1}
    exact = db.fit(grid, data, **options)
    assert (exact.method, exact.converged, exact.names[0]) == ("exact", True, ("across",))
    chains = db.fit(grid, data, method=db.GibbsGradient(chains=4000, tolerance=0.2), iterations=40, **options)
    assert chains.is_certified
    assert np.abs(chains.parameters - exact.parameters).max() < 0.05
    boxed = db.fit(grid, data, box=0.01, **options)
    assert np.abs(boxed.parameters).max() == pytest.approx(0.01)


@pytest.mark.parametrize("method", ["local", "weights", "auto"])
def test_no_bias_from_certified_marginals_is_larger_than_its_bound(method):
    """On paths of parameters; a bound that is made ten times smaller is caught."""
    broken = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        grid = db.FactorGraph([2] * 9, [])
        edges = [(i, i + 1) for i in range(9) if i % 3 < 2] + [(i, i + 3) for i in range(6)]
        rows = [((i, j), {"across" if j == i + 1 else "down": np.eye(2)}) for i, j in edges]
        rows += [((i,), "site") for i in range(9)]
        how = db.MarginalGradient(0.2, 0.9999, method)
        data = rng.integers(0, 2, size=(20, 9))
        seen = []
        found = db.fit(
            grid, data, features=rows, method=how, ridge=0.1, iterations=4, seed=seed, initial=rng.normal(0, 0.4, 4),
            callback=lambda _, theta, seen=seen: seen.append(theta),
        )  # fmt: skip
        structure = read_features([grid], rows, True)
        exact = ExactAscent(structure, Observed.of(structure, data.T.astype(np.int8)), FREE, seen[-2])
        mean = exact.evaluate(seen[-2])[1].means
        last = MarginalAscent(structure, exact.observed, FREE, seen[-2], how, np.random.SeedSequence(seed))
        claim = last.expectation(seen[-2], 3)
        off = np.abs(claim.means - mean)
        assert (off <= claim.bias).all()
        np.testing.assert_array_equal(found.bias_bounds, claim.bias)
        broken += (off > claim.bias / 10).any()
    assert broken > 0 or method == "auto"


def test_certified_marginals_learn_what_exact_sums_learn(tmp_path):
    rows = [((i, i + 1), {"alike": np.eye(2)}) for i in range(5)] + [((i,), "site") for i in range(6)]
    chain = db.FactorGraph([2] * 6, [])
    data = np.random.default_rng(2).integers(0, 2, size=(30, 6))
    options = {"features": rows, "ridge": 0.1}
    exact = db.fit(chain, data, **options)
    how = db.MarginalGradient(1e-6)
    found = db.fit(chain, data, method=how, iterations=40, seed=1, **options)
    assert np.abs(found.parameters - exact.parameters).max() < 1e-3
    assert "certified marginals" in str(found)
    keep = db.RunOptions(checkpoint=tmp_path / "fit.npz")
    db.fit(chain, data, method=how, iterations=3, seed=1, run=keep, **options)
    resumed = db.fit(chain, data, method=how, iterations=40, seed=1, run=keep, **options)
    np.testing.assert_array_equal(resumed.parameters, found.parameters)


def test_spins_keep_their_states():
    ring = db.Ising({(i, (i + 1) % 5): 0.1 for i in range(5)})
    rows = [((i, (i + 1) % 5), {"alike": [[1, -1], [-1, 1]]}) for i in range(5)] + [(i, "site") for i in range(5)]
    data = np.random.default_rng(1).choice([-1.0, 1.0], size=(30, 5))
    data[0, 2] = np.nan
    found = db.fit(ring, data, features=rows, ridge=0.1)
    assert found.names == [("alike",), ("site", -1), ("site", 1)]
    assert found.imputed.states[0] in (-1, 1)
    assert found.model.state_names[0] == (-1, 1)
    plain = db.fit(
        db.Ising(dict.fromkeys([(i, (i + 1) % 5) for i in range(5)], 1.0)), data, initial=0, method="exact", ridge=0.1
    )
    # The graph's own couplings of 0.1 are added to the shared one.
    assert abs(found.parameters[0] + 0.1 - plain.parameters[:5].mean()) < 0.15


def test_chains_on_several_graphs():
    rng = np.random.default_rng(11)
    models = [db.FactorGraph([2] * n, []) for n in (2, 3, 4, 3)]
    rows = [
        [*(((i, i + 1), {"alike": np.eye(2)}) for i in range(n - 1)), *((i, "site") for i in range(n))]
        for n in (2, 3, 4, 3)
    ]
    data = [rng.integers(0, 2, size=model.n_variables).tolist() for model in models]
    options = {"features": rows, "ridge": 0.3, "seed": 1}
    exact = db.fit(models, data, **options)
    chains = db.fit(models, data, method=db.GibbsGradient(chains=4000, tolerance=0.1), iterations=30, **options)
    assert chains.is_certified
    assert np.abs(exact.parameters - chains.parameters).max() < 0.08
    assert (chains.bias_bounds <= 0.1).all()
    late = db.fit(models, data, time_limit=1e-6, **options)
    assert len(late.history) <= 1


def test_a_model_of_a_new_graph_has_the_weights_of_the_fit():
    rng = np.random.default_rng(7)
    models, features, data = random_graphs(rng, count=5)
    found = db.fit(models, data, features=features, ridge=0.1)
    assert found.converged
    new = found.model_of(models[0], [*features[0], (0, "unheard of")])
    states = np.array(list(itertools.product(*(range(k) for k in models[0].cardinalities))))
    t = np.array([literal_statistics(features[0], found.names, x) for x in states])
    expected = t @ found.parameters + np.asarray(models[0].log_density(states))
    np.testing.assert_allclose(new.log_density(states), expected, atol=1e-12)
    whole = found.model
    assert whole.n_variables == sum(model.n_variables for model in models)
    assert whole.labels[0] == (0, 0)


def test_names_of_states_and_dicts_of_labels():
    words = db.FactorGraph([2, 2], [], ["first", "second"], state_names=("N", "V"))
    rows = [("first", "dogs"), ("second", "bark"), (("first", "second"), "next")]
    full = db.fit([words], [["N", "V"]], features=[rows], ridge=0.5)
    assert full.names == [
        ("dogs", "N"),
        ("dogs", "V"),
        ("bark", "N"),
        ("bark", "V"),
        *(("next", a, b) for a in "NV" for b in "NV"),
    ]
    part = db.fit([words, words], [{"first": "N"}, {"second": "V", "first": "N"}], features=lambda _: rows, ridge=0.5)
    assert part.imputed.labels == ["second"]
    assert part.imputed.states.tolist() == ["V"]
    assert part.imputed.rows.tolist() == [0]
    marginal = db.exact.marginals(part.model_of(words, rows).condition({"first": "N"}))
    assert part.imputed.probabilities[0] == pytest.approx(max(marginal[0]))


SMALL = db.FactorGraph([2, 3], [], ["a", "b"], state_names={"a": ("yes", "no")})
ROWS = [("a", "x"), (("a", "b"), "y")]
BAD = {
    "no features": (lambda: db.fit(SMALL, [[0, 1]], features=[]), "'features' .* at least one of pairs of a scope .* Got none"),
    "features of a number": (lambda: db.fit(SMALL, [[0, 1]], features=3), "'features' .* a list of pairs of a scope"),
    "a row of one": (lambda: db.fit(SMALL, [[0, 1]], features=["a"]), "'features' .* pairs of a scope .* Got 'a' at row 0"),
    "a function that returns nothing": (lambda: db.fit([SMALL], [[0, 1]], features=lambda _: None), "'features' .* a function that returns pairs .* Got None at graph 0"),
    "lists of another number": (lambda: db.fit([SMALL] * 3, [[0, 1]] * 3, features=[ROWS]), "'features' .* a list for each of 3 graphs. Got 1 lists"),
    "a label that is none": (lambda: db.fit(SMALL, [[0, 1]], features=[("c", "x")]), "'features' .* labels of the model ('a', 'b'). Got 'c' at row 0"),
    "a label twice": (lambda: db.fit(SMALL, [[0, 1]], features=[(("a", "a"), "x")]), "'features' .* several different ones. Got ('a', 'a') at row 0"),
    "two shapes": (lambda: db.fit(SMALL, [[0, 1]], features=[("a", "x"), ("b", "x")]), "'features' .* the same numbers of states, (2,) of 'x'. Got (3,) at row 1"),
    "a table of another shape": (lambda: db.fit(SMALL, [[0, 1]], features=[("a", {"x": np.eye(2)})]), "'features' .* (2,) of 'x'. Got shape (2, 2) at row 0"),
    "a number and a table": (lambda: db.fit(SMALL, [[0, 1]], features=[("a", "x"), ("a", {"x": np.ones(2)})]), "'features' .* numbers, or arrays, wherever 'x' has values. Got"),
    "an infinite value": (lambda: db.fit(SMALL, [[0, 1]], features=[("a", {"x": np.inf})]), "'features' .* finite values of attributes. Got inf"),
    "a weight that no factor uses": (lambda: db.fit(SMALL, [[0, 1]], features=[*ROWS, ("b", {"z": 0.0})]), "'features' .* a value other than 0 somewhere. Got 'z'"),
    "an attribute that is a list": (lambda: db.fit(SMALL, [[0, 1]], features=[("a", [["x"]])]), "'features' .* hashable. Got [['x']] at row 0"),
    "states of another number": (lambda: db.fit([SMALL], [[0, 1, 2]], features=[ROWS]), "'data' .* a state of each of 2 variables of graph 0, .* Got 3 states"),
    "data of another number": (lambda: db.fit([SMALL], [[0, 1], [0, 1]], features=[ROWS]), "'data' .* the states of each of 1 graphs"),
    "an unknown state": (lambda: db.fit([SMALL], [["ye", 1]], features=[ROWS]), "'data' .* one of the states 'yes', 'no' of 'a' (the nearest is 'yes'). Got 'ye' at graph 0, label 'a'"),
    "an unknown label": (lambda: db.fit([SMALL], [{"c": 1}], features=[ROWS]), "'data' .* labels of the model"),
    "nothing observed": (lambda: db.fit([SMALL], [{}], features=[ROWS]), "'data' .* at least one of which is not missing. Got missing values only"),
    "models that are none": (lambda: db.fit([3], [[0]], features=[ROWS]), "'model' .* a model, or a list of models, with 'features'"),
    "marginals without a bound": (lambda: db.MarginalGradient(method="uncertified"), "'method' .* 'auto', 'exact', .* Got 'uncertified'"),
    "marginals of no tolerance": (lambda: db.MarginalGradient(tolerance=0), "'tolerance' .* a positive finite number. Got 0"),
    "features with em": (lambda: db.fit(SMALL, [[0, 1]], features=ROWS, method="em"), "'method' .* Got 'em'"),
    "features of edges only": (lambda: db.fit(SMALL, [[0, 1]], features=ROWS, learn="edges"), "'learn' .* Got 'edges'"),
    "a new graph without weights": (lambda: db.fit(db.Ising({(0, 1): 0.1}), [[1, 1]], iterations=1, method="exact").model_of(SMALL, ROWS), "'features' .* no shared weights"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(db.ArgumentError) as caught:
        call()
    text = str(caught.value)
    assert re.search(".*".join(map(re.escape, message.split(".*"))), text), text
    assert text.endswith(".")
    assert "\n" not in text


def test_ranges_are_those_of_enumeration():
    rng = np.random.default_rng(9)
    for _ in range(10):
        models, features, _ = random_graphs(rng, count=1)
        structure: Structure = read_features(models, features, False)
        states = list(itertools.product(*(range(k) for k in models[0].cardinalities)))
        t = np.array([literal_statistics(features[0], structure.names(), x) for x in states])
        assert (np.ptp(t, axis=0) <= structure.ranges + 1e-12).all()
        for i in range(models[0].n_variables):
            for x, y in itertools.combinations(range(len(states)), 2):
                if all(a == b for j, (a, b) in enumerate(zip(states[x], states[y], strict=True)) if j != i):
                    b = np.eye(models[0].n_variables)[i]
                    assert (np.abs(t[x] - t[y]) <= structure.bias(b) + 1e-12).all()
