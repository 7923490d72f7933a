"""NumPyro: Gibbs updates of discrete sites along a scan, against enumeration and quadrature."""

import itertools
import sys
import warnings

import numpy as np
import pytest

import dobrushin as db
from transcripts import run_docstrings, run_section

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import jax
        import numpyro
        import numpyro.distributions as dist
    except ImportError:
        numpyro = None

needs_numpyro = pytest.mark.skipif(numpyro is None, reason="NumPyro is not installed (extra 'numpyro')")
pytestmark = pytest.mark.filterwarnings("ignore")
PROBABILITIES = (0.2, 0.5, 0.3)


def model():
    rate = numpyro.sample("rate", dist.Normal(0.0, 1.0))
    x = numpyro.sample("x", dist.Bernoulli(logits=rate).expand([3]))
    y = numpyro.sample("y", dist.Categorical(probs=np.array(PROBABILITIES)))
    numpyro.factor("link", 0.4 * (x[1:] * x[:-1]).sum() + 0.5 * x[0] * y)


def exact():
    """The mean of the rate, P(x = 1) for each entry, and the law of y."""
    rate = np.linspace(-7, 7, 1401)
    one = 1 / (1 + np.exp(-rate))
    total, mean, x_mean, y_law = 0.0, 0.0, np.zeros(3), np.zeros(3)
    for *x, y in itertools.product((0, 1), (0, 1), (0, 1), range(3)):
        link = 0.4 * (x[0] * x[1] + x[1] * x[2]) + 0.5 * x[0] * y
        density = np.exp(link - rate**2 / 2) * PROBABILITIES[y] * np.prod([one if v else 1 - one for v in x], axis=0)
        weight = density.sum()
        total, mean = total + weight, mean + (density * rate).sum()
        x_mean += weight * np.array(x)
        y_law[y] += weight
    return mean / total, x_mean / total, y_law / total


@needs_numpyro
@pytest.mark.parametrize("scan", [None, [3, 2, 1, 0, 1], [0]])
def test_one_call_leaves_the_conditional_law_as_it_is(scan):
    """From exact draws of the discrete sites given the rate, the law after an update is the same."""
    rate, count = 0.7, 20000
    states = np.array(list(itertools.product((0, 1), (0, 1), (0, 1), range(3))))
    weights = np.array([
        np.exp(0.4 * (a * b + b * c) + 0.5 * a * y + rate * (a + b + c)) * PROBABILITIES[y] for a, b, c, y in states
    ])  # fmt: skip
    law = weights / weights.sum()
    drawn = states[np.random.default_rng(0).choice(len(states), size=count, p=law)]
    update = db.adapters.numpyro.gibbs_fn(model, ["x", "y"], None if scan is None else db.Scan(scan))
    keys = jax.random.split(jax.random.key(1), count)
    after = jax.vmap(lambda key, x, y: update(key, {"x": x, "y": y}, {"rate": rate}))(keys, drawn[:, :3], drawn[:, 3])
    both = np.column_stack([after["x"], after["y"]])
    assert (both != drawn).any(axis=0).all()  # every entry is updated, whatever the scan
    counts = np.array([(both == state).all(axis=1).sum() for state in states])
    chi_square = ((counts - count * law) ** 2 / (count * law)).sum()
    assert chi_square < 75  # 23 degrees of freedom: exceeded with probability 2e-7
    wrong = np.array([(drawn[:, [2, 1, 0, 3]] == state).all(axis=1).sum() for state in states])
    assert ((wrong - count * law) ** 2 / (count * law)).sum() > 75  # the control: entries of x in another order


@needs_numpyro
def test_beside_nuts():
    update = db.adapters.numpyro.gibbs_fn(model, ["x", "y"], db.Scan([3, 2, 1, 0]))
    kernel = numpyro.infer.HMCGibbs(numpyro.infer.NUTS(model), gibbs_fn=update, gibbs_sites=["x", "y"])
    run = numpyro.infer.MCMC(kernel, num_warmup=300, num_samples=4000, progress_bar=False)
    run.run(jax.random.key(0))
    draws = run.get_samples()
    rate, x_mean, y_law = exact()
    assert abs(float(draws["rate"].mean()) - rate) < 0.15
    assert np.abs(np.asarray(draws["x"]).mean(axis=0) - x_mean).max() < 0.06
    assert np.abs([(np.asarray(draws["y"]) == k).mean() for k in range(3)] - y_law).max() < 0.06


@needs_numpyro
def test_bad_sites_and_scans():
    gibbs_fn = db.adapters.numpyro.gibbs_fn
    with pytest.raises(db.ArgumentError, match=r"can be enumerated \('x', 'y'\)\. Got 'rate' at index 1"):
        gibbs_fn(model, ["x", "rate"])
    with pytest.raises(db.ArgumentError, match="'z' at index 0"):
        gibbs_fn(model, ["z"])
    with pytest.raises(db.ArgumentError, match="'scan'"):
        gibbs_fn(model, ["x"], db.Scan([3]))


@needs_numpyro
@pytest.mark.parametrize(
    ("sites", "words"),
    [(["x", "x", "y"], "distinct names .* Got 'x' at index 1"), ([], "at least one name"), ("x", "at least one name")],
)
def test_a_site_that_is_named_twice_or_none_at_all(sites, words):
    """A site that counted twice moved the places of all sites after it: their entries took values of other sites."""

    def model():
        numpyro.sample("x", numpyro.distributions.Bernoulli(0.5))
        numpyro.sample("y", numpyro.distributions.Categorical(np.array([0.2, 0.3, 0.5])))

    with pytest.raises(db.ArgumentError, match=words):
        db.adapters.numpyro.gibbs_fn(model, sites)


@needs_numpyro
def test_sites_that_numpyro_cannot_enumerate_get_a_sentence():
    """NumPyro says of both that they have a support to enumerate, and then has none."""

    def model():
        numpyro.sample("x", numpyro.distributions.Bernoulli(0.5))
        numpyro.sample("event", numpyro.distributions.Bernoulli(0.5).expand([2]).to_event(1))
        numpyro.sample("ranges", numpyro.distributions.DiscreteUniform(0, np.array([1, 2])))

    for name in ("event", "ranges"):
        with pytest.raises(db.ArgumentError, match=rf"can be enumerated \('x'\)\. Got '{name}' at index 1"):
            db.adapters.numpyro.gibbs_fn(model, ["x", name])


@needs_numpyro
def test_examples_run_where_numpyro_is():
    from dobrushin.adapters import numpyro as module

    assert run_docstrings(module) >= 4
    assert run_section("NumPyro") >= 1


def test_missing_numpyro_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"^This needs jax, which .*: pip install 'dobrushin\[numpyro\]'$"):
        db.adapters.numpyro.gibbs_fn(model, ["x"])
