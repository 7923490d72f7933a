"""PyMC: its models as factor graphs, against its own log-probability at every state, and answers as ArviZ data."""

import itertools
import sys
import warnings

import numpy as np
import pytest

import dobrushin as db
from dobrushin.adapters.pytensor import as_small_tables
from dobrushin.errors import ArgumentError
from transcripts import run_docstrings, run_section

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import pymc as pm
        import pytensor
        import pytensor.tensor as pt
    except ImportError:
        pm = None

needs_pymc = pytest.mark.skipif(pm is None, reason="PyMC is not installed (extra 'pymc')")
# PyTensor misses a BLAS, and PyMC's clusters of cores.
pytestmark = pytest.mark.filterwarnings("ignore")


def values_of(model):
    """What each label can be, in order."""
    return [model._called(i) for i in range(model.n_variables)]


def joint_by_pymc(pymc_model, model):
    """PyMC's own log-probability at every state of the factor graph."""
    mode = pytensor.compile.mode.Mode(linker="py", optimizer="fast_run")
    with pymc_model:
        logp = pymc_model.compile_logp(mode=mode)
    start = pymc_model.initial_point()
    found = []
    for state in itertools.product(*values_of(model)):
        point = {name: np.array(value) for name, value in start.items()}
        for label, value in zip(model.labels, state, strict=True):
            name, _, index = label.partition("[")
            place = tuple(int(k) for k in index.rstrip("]").split(",")) if index else ()
            point[name][place] = value
        found.append(float(logp(point)))
    return np.array(found).reshape([len(values) for values in values_of(model)])


def assert_same(pymc_model, model=None):
    """All joint probabilities, and exactly the same forbidden states."""
    model = db.from_pymc(pymc_model) if model is None else model
    theirs = joint_by_pymc(pymc_model, model)
    states = np.indices(theirs.shape).reshape(theirs.ndim, -1).T
    ours = model.log_density(states).reshape(theirs.shape)
    assert np.array_equal(np.isneginf(ours), ~np.isfinite(theirs))
    allowed = np.isfinite(theirs)
    assert np.ptp((ours - theirs)[allowed]) < 1e-9
    return model


def everything():
    """All kinds of variables, scalars and arrays, observations, potentials, a hard zero, and a value that is fixed."""
    rng = np.random.default_rng(3)
    with pm.Model(coords={"city": ["a", "b", "c"]}) as model:
        x = pm.Bernoulli("x", [0.3, 0.6, 0.5], dims="city")
        z = pm.Categorical("z", p=np.ones((2, 3)) / 3)
        w = pm.Categorical("w", p=pt.as_tensor(rng.dirichlet(np.ones(2), size=3))[z[0]])
        pm.Binomial("n", n=[2, 0], p=0.2 + 0.5 * x[:2])
        pm.DiscreteUniform("u", -1, 1)
        pm.Normal("y", mu=x * 1.0 + z[1], sigma=1.0 + 0.5 * w, observed=[0.1, 0.2, 0.3])
        pm.Potential("chain", 0.5 * pt.sum(x[1:] * x[:-1]))
        pm.Potential("equal", pt.switch(pt.eq(x[0], z[0]), -np.inf, 0.0))
    return model


@needs_pymc
def test_every_joint_probability_is_that_of_pymc():
    model = assert_same(everything())
    assert model.labels == ("x[0]", "x[1]", "x[2]", "z[0]", "z[1]", "w", "n[0]", "u")
    assert model.state_names["u"] == (-1, 0, 1)
    scopes = [tuple(model.labels[i] for i in model.factor(k)[0]) for k in range(model.n_factors)]
    assert ("z[0]", "w") in scopes
    assert ("x[0]", "x[1]") in scopes
    assert max(map(len, scopes)) == 3  # y[i]: x[i], z[1], w
    assert ("x[0]", "x[2]") not in scopes


@needs_pymc
@pytest.mark.parametrize("seed", range(4))
def test_random_models_are_read_whichever_way_they_are_written(seed):
    rng = np.random.default_rng(seed)
    n = 5
    couplings = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.5), 1)
    both, pairs = couplings + couplings.T, np.nonzero(couplings)
    ways = {
        "outer": lambda x: pt.sum(couplings * x[:, None] * x[None, :]),
        "matmul": lambda x: 0.5 * (x @ both @ x),
        "dot": lambda x: 0.5 * pt.dot(x, pt.dot(pt.as_tensor(both), x.astype("float64"))),
        "loop": lambda x: sum(couplings[i, j] * x[i] * x[j] for i in range(n) for j in range(i + 1, n)),
        "edges": lambda x: pt.as_tensor(couplings[pairs]) * x[pairs[0]] * x[pairs[1]],
    }
    seen = []
    for way in ways.values():
        with pm.Model() as pymc_model:
            x = pm.Bernoulli("x", rng.random(n) * 0 + 0.4, shape=n)
            pm.Potential("e", way(x))
        model = assert_same(pymc_model)
        scopes = {model.factor(k)[0] for k in range(model.n_factors)}
        assert {scope for scope in scopes if len(scope) > 1} == set(zip(*(k.tolist() for k in pairs), strict=True))
        seen.append(db.exact.distribution(model))
    for other in seen[1:]:
        assert other == pytest.approx(seen[0], abs=1e-12)
    # Negative control: another coupling is another distribution.
    with pm.Model() as other_model:
        x = pm.Bernoulli("x", 0.4, shape=n)
        pm.Potential("e", ways["outer"](x) + 0.01 * x[0] * x[4])
    with pytest.raises(AssertionError):
        assert_same(other_model, model)


TRANSITIONS = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.4, 0.1]])
GRAPHS = {
    "hidden Markov": lambda x, z: pt.log(pt.as_tensor(TRANSITIONS)[z[:-1], z[1:]]).sum() + 0 * x,
    "cumulated": lambda x, z: 0.1 * pt.cumsum(x * 1.0) * z,
    "set": lambda x, z: pt.set_subtensor((x * 1.0)[1], z[0] * 0.3) * x[0],
    "increased": lambda x, z: pt.inc_subtensor((x * 1.0)[1:], z[:2] * 0.3) * x[0],
    "softmax": lambda x, z: pt.special.log_softmax(z * x * 1.0),
    "joined": lambda x, z: (pt.concatenate([x, z]).reshape((2, 3)) * TRANSITIONS[:2]).sum(axis=0) ** 2,
    "matrix": lambda x, z: (pt.as_tensor(TRANSITIONS) @ z) * x,
    "variable index": lambda x, z: x[z[0]] * 0.7,
    "branches": lambda x, z: pt.switch(x[0], z[1] * 0.2, -0.1 * z[2]),
    "largest": lambda x, z: pt.max(z) * 0.4 * x[0],
    "sorted": lambda x, z: pt.sort(z) * x,
    "mean": lambda x, z: pt.mean((x[:, None] - z[None, :]) ** 2),
    "a number to a vector": lambda x, z: (x[0] * 0.1 + z * 0.2) - 2.0 * (x[0] - x * 0.1),
    "turned": lambda x, z: -(x[::-1] * z * 0.3),
    "gathered": lambda x, z: x[np.array([0, 0, 2])] * z[np.array([1, 2, 2])] * 0.5,
    "zeros": lambda x, z: pt.eye(3) * x[:, None] * z[None, :],
    "hard": lambda x, z: 0.0 * x[0] * z[0] + pt.where(pt.lt(x + z, 3), 0.0, -np.inf),
    "stable": lambda x, z: pm.logp(pm.Bernoulli.dist(logit_p=900 * (x[0] - 2 * z[0])), x[1]),
    "repeated": lambda x, z: pt.repeat(x, 2) * 0.1 + pt.tile(z, 2),
    "einsum": lambda x, z: pt.einsum("i,ij,j->", x * 1.0, pt.as_tensor(TRANSITIONS), z * 1.0),
    "unknown operation": lambda x, z: pt.linalg.det(pt.eye(2) + 0.1 * pt.stack([x[:2], z[:2]])),
}


@needs_pymc
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_of_all_kinds_are_read(name):
    with pm.Model() as model:
        x, z = pm.Bernoulli("x", 0.4, shape=3), pm.Categorical("z", p=[0.2, 0.3, 0.5], shape=3)
        pm.Potential("e", GRAPHS[name](x, z))
    assert_same(model)


@needs_pymc
def test_checks_of_parameters_forbid_only_where_they_fail():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=3)
        pm.Bernoulli("y", 0.3 + 0.4 * x[0] + 0.4 * x[1], observed=1)  # 1.1 is no probability
        pm.Binomial("k", n=2, p=0.1 + 0.3 * x, observed=[1, 2, 0])
    read = assert_same(model)
    # The checks of y and k look at all entries at once. The factors do not.
    assert max(len(read.factor(k)[0]) for k in range(read.n_factors)) == 2
    assert read.log_density([1, 1, 0]) == -np.inf
    with pm.Model(check_bounds=False) as unchecked:
        x = pm.Bernoulli("x", 0.5)
        pm.Bernoulli("y", 0.3 + 0.5 * x, observed=1)
    assert_same(unchecked)


@needs_pymc
def test_small_odd_models():
    with pm.Model() as one:
        pm.Bernoulli("x", 0.3)
    assert assert_same(one).labels == ("x",)
    with pm.Model() as apart:
        pm.Bernoulli("a", 0.3)
        pm.Categorical("b", p=[0.2, 0.3, 0.5])
        pm.HyperGeometric("h", N=10, k=4, n=3)
        pm.BetaBinomial("c", n=3, alpha=1.5, beta=2.0)
        pm.OrderedLogistic("o", eta=0.1, cutpoints=[-1.0, 1.0])
    model = assert_same(apart)
    assert all(len(model.factor(k)[0]) == 1 for k in range(model.n_factors))
    with pm.Model() as data:  # mutable data are constants
        value = pm.Data("value", np.array([0.1, 0.9]))
        x = pm.Bernoulli("x", 0.5)
        pm.Bernoulli("y", value[x], observed=1)
    assert db.estimate(data, "x")["x"].value == pytest.approx([0.1, 0.9])
    with pm.Model() as cubic:  # interactions of three that do not come apart
        x = pm.Bernoulli("x", 0.5, shape=4)
        pm.Potential("e", x[0] * x[1] * x[2] + pt.sqr(pt.sum(x)))
    model = assert_same(cubic)
    assert sorted(len(model.factor(k)[0]) for k in range(model.n_factors))[-2:] == [2, 3]


@needs_pymc
def test_sums_that_wrap_around_and_small_interactions_next_to_large_ones_are_read_as_they_are():
    with pm.Model() as logical:  # True + True is True
        x = pm.Bernoulli("x", 0.5, shape=8)
        pm.Potential("any", 1.0 * (pt.all(pt.eq(x[:6], 1)) + pt.all(pt.eq(x[2:], 1))))
    assert_same(logical)
    with pm.Model() as short:
        x = pm.DiscreteUniform("x", 0, 100)
        pm.Potential("e", 0.1 * (pt.cast(x, "int8") + np.int8(30)))
    assert_same(short)
    weights = np.random.default_rng(0).normal(size=8)
    with pm.Model() as penalty:  # interactions of three and more are small next to 1.6e8, and more than rounding
        x = pm.Bernoulli("x", 0.5, shape=8)
        pm.Potential("half", -1e7 * pt.sqr(pt.sum(x) - 4))
        pm.Potential("score", pt.softplus(pt.sum(weights * x)))
    model = db.from_pymc(penalty)
    theirs = joint_by_pymc(penalty, model).ravel()
    ours = model.log_density(np.indices((2,) * 8).reshape(8, -1).T)
    assert np.ptp(ours - theirs) < 1e-6


@needs_pymc
def test_what_cannot_be_read_is_told_in_one_sentence():
    def made(build):
        with pm.Model() as model:
            build()
        return model

    def dependent():
        n = pm.Binomial("n", n=3, p=0.5)
        pm.Binomial("m", n=n, p=0.5)

    def wide():
        x = pm.Bernoulli("x", 0.5, shape=30)
        pm.Potential("e", pt.exp(pt.sum(x)))

    def no_number():
        x = pm.Bernoulli("x", 0.5)
        pm.Potential("e", pt.log(x - 0.5))

    def out_of_range():
        x = pm.Categorical("x", p=[0.2, 0.3, 0.5])
        pm.Potential("e", pt.as_tensor([0.1, 0.2])[x])

    def growing():
        x = pm.Binomial("x", n=3, p=0.5)
        pm.Potential("e", pt.sum(pt.arange(x) * 0.1))

    def cut():
        x, z = pm.Binomial("x", n=3, p=0.5), pm.Bernoulli("z", 0.5, shape=4)
        pm.Potential("e", pt.sum(z[:x]))

    cases = [
        (growing, "shapes that no variable changes. Got the operation ARange."),
        (cut, "shapes that no variable changes. Got the operation Subtensor."),
        (lambda: pm.Normal("mu"), "free variables are discrete. Got the continuous variable 'mu' .Normal.."),
        (lambda: pm.Poisson("k", 2.0), r"Bernoulli, Categorical, .* Got 'k' \(Poisson\)."),
        (lambda: pm.Mixture("g", [0.2, 0.8], [pm.Bernoulli.dist(0.1), pm.Bernoulli.dist(0.8)]), "Got 'g'"),
        (lambda: pm.Multinomial("m", n=2, p=[0.5, 0.5]), r"Got 'm' \(Multinomial\)."),
        (dependent, "does not depend on other variables. Got 'm', whose values depend on another variable."),
        (wide, r"at most 1,048,576 states .* Got 'e', where one depends on 30 variables"),
        (no_number, "numbers or -inf. Got nan for 'e' at x = 0."),
        (out_of_range, "evaluated everywhere. Got IndexError in 'e'"),
        (lambda: pm.Bernoulli("x", 0.5, observed=1), "a model with free variables"),
        (lambda: pm.DiscreteUniform("x", 2, 2), "of two or more states"),
        (lambda: pm.DiscreteUniform("x", 2, 1), "each variable has at least one value. Got .x."),
    ]
    for build, sentence in cases:
        with pytest.raises(ArgumentError, match=sentence) as caught:
            db.from_pymc(made(build))
        assert "\n" not in str(caught.value)
    with pytest.raises(ArgumentError, match=r"'model' argument of dobrushin.from_pymc must be a pymc.Model. Got 3"):
        db.from_pymc(3)


@needs_pymc
def test_certified_answers_agree_with_enumeration_and_come_back_as_arviz():
    pymc_model = everything()
    model = db.from_pymc(pymc_model)
    exact = dict(zip(model.labels, db.exact.marginals(model), strict=True))
    answer = db.estimate(pymc_model, ["x[0]", "x[2]", "u"], seed=1, evidence={"w": 1})
    truth = db.estimate(model, ["x[0]"], evidence={"w": 1}, method="exact")
    assert (answer["x[0]"].lower <= truth.value).all()
    assert (truth.value <= answer["x[0]"].upper).all()
    data = db.adapters.pymc.to_arviz(answer, pymc_model)
    mean = data["constant_data"]["x_value"]
    assert mean.dims == ("city", "x_state")
    assert float(mean.sel(city="a", x_state=1)) == answer["x[0]"].value[1]
    assert np.isnan(mean.sel(city="b")).all()
    assert data["constant_data"]["u_lower"].coords["u_state"].values.tolist() == [-1, 0, 1]
    assert "z_value" not in data["constant_data"]
    assert data["constant_data"].attrs["certified"] == "yes"
    run = db.sample(model, db.Scan.systematic(8, 80), chains=4000, seed=2)
    data = db.adapters.pymc.to_arviz(run, pymc_model)
    posterior = data["posterior"]
    assert posterior["x"].dims == ("chain", "draw", "city")
    assert posterior["z"].shape == (4000, 1, 2)
    assert (posterior["n"].values[..., 1] == 0).all()  # the entry that cannot vary
    assert set(np.unique(posterior["u"].values)) == {-1, 0, 1}
    share = (posterior["z"].values[:, 0, 0] == 1).mean()
    assert abs(share - exact["z[0]"][1]) < 0.05
    with pytest.raises(ArgumentError, match="Samples or an Estimate"):
        db.adapters.pymc.to_arviz(3, pymc_model)
    other = db.sample(db.Ising({(0, 1): 0.1}), db.Scan([0]), seed=1)
    with pytest.raises(ArgumentError, match=r"about the variables of the model. Got 0"):
        db.adapters.pymc.to_arviz(other, pymc_model)


@needs_pymc
def test_scans_order_the_steps_of_pymc():
    with pm.Model() as pymc_model:
        x = pm.Bernoulli("x", 0.5, shape=4)
        c = pm.Categorical("c", p=[0.2, 0.3, 0.5])
        pm.Potential("e", 0.4 * pt.sum(x[1:] * x[:-1]) + 0.3 * x[0] * c)
    order = db.adapters.pymc.order
    assert order(pymc_model, db.Scan([4, 1, 0, 4, 0])) == [2, 3, 1, 4, 0]
    assert order(pymc_model, db.Scan.systematic(5, 50)) == [0, 1, 2, 3, 4]
    assert order(pymc_model, db.Scan([3, 4, 1, 0]), vars=[c, x]) == [3, 4, 0, 2, 1]
    result = db.shortest_scan(db.from_pymc(pymc_model), ["x[0]"], tolerance=0.05)
    with pymc_model:  # PyMC takes them
        binary = pm.BinaryGibbsMetropolis(
            [x], order=order(pymc_model, result, [x]), compile_kwargs={"mode": "FAST_COMPILE"}
        )
        both = pm.CategoricalGibbsMetropolis(
            [c, x], order=order(pymc_model, result, [c, x]), compile_kwargs={"mode": "FAST_COMPILE"}
        )
    assert binary.order[-1] == 0
    assert not binary.shuffle_dims
    assert [dim for dim, _ in both.dimcats] == order(pymc_model, result, [c, x])
    assert sorted(order(pymc_model, result)) == list(range(5))
    with pytest.raises(ArgumentError, match=r"distinct free variables of the model \('x', 'c'\). Got 'y' at index 0"):
        order(pymc_model, result, ["y"])
    with pytest.raises(ArgumentError, match="'scan'"):
        order(pymc_model, db.Scan([7]))


@needs_pymc
def test_certificates_do_not_hold_for_the_steps_of_pymc():
    """As docs/adapters.md says: two fair coins, which Gibbs updates forget at once."""
    with pm.Model() as pymc_model:
        x = pm.Bernoulli("x", 0.5, shape=2)
        step = pm.CategoricalGibbsMetropolis([x], order=[0, 1], compile_kwargs={"mode": "FAST_COMPILE"})
    assert db.variation(db.from_pymc(pymc_model), db.Scan([0, 1])).value < 1e-12
    point, seen = {"x": np.array([0, 0])}, set()
    for _ in range(20):
        point, _ = step.step(point)
        seen.add(tuple(point["x"].tolist()))
    assert seen == {(0, 0), (1, 1)}


def test_tables_come_apart_where_they_are_sums():
    rng = np.random.default_rng(1)
    a, b, c = rng.normal(size=(2, 3)), rng.normal(size=(3, 4)), rng.normal(size=4)
    whole = a[:, :, None] + b[None] + c
    small = as_small_tables({(5, 3, 9): whole})
    assert {scope for scope, _ in small} == {(5, 3), (3, 9)}
    total = sum(
        table.reshape([size if i in scope else 1 for i, size in zip((5, 3, 9), whole.shape, strict=True)])
        for scope, table in small
    )
    assert np.ptp(total - whole) < 1e-12
    together = whole + 0.1 * np.multiply.outer(np.arange(2), np.multiply.outer(np.arange(3), np.arange(4)))
    assert [scope for scope, _ in as_small_tables({(5, 3, 9): together})] == [(5, 3, 9)]
    hard = np.where(np.arange(2) > 0, 0.0, -np.inf)
    assert [scope for scope, _ in as_small_tables({(0,): hard, (1,): np.zeros(2), (): np.array(3.0)})] == [(0,)]


def discrete_model():
    with pm.Model() as model:
        pm.Bernoulli("fixed", 0.5, observed=1)
        x = pm.Bernoulli("x", 0.4, shape=3)
        y = pm.Categorical("y", [0.2, 0.5, 0.3])
        pm.Potential("link", 0.8 * (x[1:] * x[:-1]).sum() + 0.5 * x[0] * y)
    return model


@needs_pymc
@pytest.mark.parametrize("scan", [None, [3, 2, 1, 0, 1], [0]])
def test_gibbs_steps_have_the_law_of_the_model(scan):
    model = discrete_model()
    graph = db.from_pymc(model)
    step = db.adapters.pymc.GibbsStep(
        [model["x"], model["y"]], scan=None if scan is None else db.Scan(scan), model=model, rng=1
    )
    exact = np.exp(
        [graph.log_density([list(state)])[0] for state in itertools.product((0, 1), (0, 1), (0, 1), range(3))]
    )
    exact /= exact.sum()
    point, counts, total = model.initial_point(), np.zeros((2, 2, 2, 3)), 6000
    for _ in range(total):
        point, stats = step.step(point)
        assert stats == [{}]
        counts[(*point["x"], int(point["y"]))] += 1
    assert np.abs(counts.ravel() / total - exact).max() < 0.04
    assert np.abs(counts[::-1].ravel() / total - exact).max() > 0.04  # the control


@needs_pymc
def test_gibbs_steps_leave_an_entry_that_no_value_makes_possible():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=2)
        pm.Potential("different", pt.switch(pt.eq(x[0], x[1]), -np.inf, 0.0))
        pm.Potential("never", pt.switch(pt.eq(x[1], 1), -np.inf, 0.0))
    step = db.adapters.pymc.GibbsStep([x], scan=db.Scan([0]), model=model, rng=1)
    step._order = np.array([0])
    assert step.step({"x": np.array([0, 1])})[0]["x"].tolist() == [0, 1]
    assert step.step({"x": np.array([0, 0])})[0]["x"].tolist() == [1, 0]


@needs_pymc
def test_gibbs_steps_beside_nuts():
    """The mean of the rate by quadrature is 0.184; a scan that leaves entries out does not freeze them."""
    with pm.Model() as model:
        rate = pm.Normal("rate", 0, 1)
        x = pm.Bernoulli("x", logit_p=rate, shape=3)
        pm.Potential("link", 0.4 * (x[1:] * x[:-1]).sum())
    found = db.shortest_scan(db.from_pymc(pm.observe(model, {rate: 0.3})), ["x[0]"], tolerance=0.01)
    assert 2 not in found.scan.order
    with model:
        steps = [db.adapters.pymc.GibbsStep([x], scan=found), pm.NUTS([rate])]
        trace = pm.sample(3000, tune=300, chains=2, cores=1, step=steps, progressbar=False, random_seed=1)
    assert abs(float(trace.posterior["rate"].mean()) - 0.184) < 0.15
    assert np.abs(trace.posterior["x"].mean(("chain", "draw")).values - [0.587, 0.625, 0.587]).max() < 0.06


@needs_pymc
def test_gibbs_steps_update_arrays_that_lie_in_memory_by_columns():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(2, 3))
    start = {"x": np.zeros((2, 3), dtype=np.int64)}
    by_columns = {"x": np.asfortranarray(start["x"])}
    points = [
        db.adapters.pymc.GibbsStep([x], model=model, rng=1).step(point)[0]["x"].tolist()
        for point in (start, by_columns)
    ]
    assert points[0] == points[1] != start["x"].tolist()
    assert not by_columns["x"].any()


@needs_pymc
def test_gibbs_steps_refuse_what_they_cannot_update():
    with pm.Model() as model:
        rate = pm.Normal("rate", 0, 1)
        x = pm.Bernoulli("x", logit_p=rate, shape=3)
    for change, message in (
        ({"vars": [rate]}, "whose free variables are discrete"),
        ({"vars": [x, x]}, "distinct variables"),
        ({"scan": db.Scan([3])}, "'scan'"),
        ({"order": [0, 1, 2]}, "Got 'order'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            db.adapters.pymc.GibbsStep(**{"vars": [x], "model": model, **change})


def test_missing_pymc_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(ImportError, match=r"^This needs pymc, which .*: pip install 'dobrushin\[pymc\]'$"):
        db.from_pymc(None)


@needs_pymc
def test_examples_run_where_pymc_is():
    from dobrushin.adapters import pymc as module

    assert run_docstrings(module) >= 8
    assert run_docstrings(sys.modules[module.order.__module__]) >= 11
    assert run_section("PyMC") >= 3


@needs_pymc
def test_parameters_that_are_not_valid_everywhere():
    """A check of PyMC's means -inf; with a weight below 0 it is no condition. Refused is what cannot be evaluated."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5)
        pm.Bernoulli("z", x - 0.5, observed=1)  # -0.5 is no probability: x = 0 is not allowed
    assert assert_same(model).log_density([[0], [1]])[0] == -np.inf
    assert db.estimate(model, "x").headline == "P(x = 1) = 1, exact to 1e-12"
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=3)
        k = pm.Binomial("k", n=2, p=0.4 * x[0] + 0.7 * x[1] - 0.1)  # -0.1 where both are 0, and 1.0 where both are 1
        pm.Normal("y", mu=x[2] + k, sigma=k + x[2], observed=0.3)  # 0 is no deviation
    assert_same(model)
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5)
        pm.Bernoulli("z", 2.0 + x, observed=1)
    with pytest.raises(ArgumentError, match="one that allows some joint state"):
        db.estimate(model, "x")
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5)
        pm.Potential("p", -pm.logp(pm.Bernoulli.dist(0.2 + 1.3 * x), 1))
    with pytest.raises(ArgumentError, match=r"numbers or -inf|evaluated everywhere"):
        db.from_pymc(model)
