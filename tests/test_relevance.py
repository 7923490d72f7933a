"""What cannot matter to the targets given the evidence is dropped, and nothing else is."""

import itertools
import os
import pickle
from decimal import Decimal, getcontext
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
import models
from dobrushin._estimate import choice
from dobrushin._estimate.query import make_query, read_settings
from dobrushin._models import derived
from dobrushin._models.factors import FactorTables
from dobrushin.cli.app import app
from dobrushin.errors import BudgetError

DATA = os.environ.get("DOBRUSHIN_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="DOBRUSHIN_DATA, the folder of real files, is not set")
SETTINGS = read_settings(db.Ising({(0, 1): 0.1}), 0.01, 0.99, "auto", None, None)


def random_network(rng, n, zeros=False, density=0.4):
    """A Bayesian network: the model, and the parents of each variable. The scope of factor k ends with its variable."""
    sizes = rng.integers(2, 4, size=n)
    order = rng.permutation(n)
    parents, factors = {}, []
    for place, v in enumerate(order.tolist()):
        above = [u for u in order[:place].tolist() if rng.random() < density]
        parents[v] = above[:3]
        table = rng.random([*sizes[parents[v]], sizes[v]]) ** 3
        if zeros:
            table *= rng.random(table.shape) < 0.6
            table[table.sum(axis=-1) == 0] = 1.0
        with np.errstate(divide="ignore"):
            factors.append(((*parents[v], v), np.log(table / table.sum(axis=-1, keepdims=True))))
    return db.FactorGraph(sizes, [factors[k] for k in rng.permutation(n)]), parents


def random_question(rng, model):
    """Evidence that is possible, and targets outside it."""
    joint = db.exact.distribution(model)
    state = np.unravel_index(rng.choice(joint.size, p=joint.ravel()), joint.shape)
    observed = rng.permutation(model.n_variables)[: rng.integers(0, model.n_variables)].tolist()
    free = [v for v in range(model.n_variables) if v not in observed]
    targets = rng.permutation(free)[: rng.integers(1, 3)].tolist()
    return {v: int(state[v]) for v in observed}, targets


def posterior(model, evidence, targets):
    """The joint law of the targets given the evidence, by enumeration of the whole."""
    joint = db.exact.distribution(model)
    for v, state in evidence.items():
        joint = joint.take([state], axis=v)
    law = np.asarray(joint.sum(axis=tuple(v for v in range(joint.ndim) if v not in targets), keepdims=True))
    law = np.squeeze(np.moveaxis(law, targets, range(len(targets))), tuple(range(len(targets), joint.ndim)))
    return law / law.sum()


def pruned(model, targets, evidence=None):
    """The query on what matters, and where its variables are in the model given the evidence."""
    return choice.keep_relevant(make_query(model, targets, evidence or {}, SETTINGS))


def kept_labels(model, targets, evidence=None):
    return set(pruned(model, targets, evidence)[0].model.labels)


def check(model, evidence, targets):
    """The law of the targets is that in the whole model, within what is promised."""
    query, part = pruned(model, [db.Joint(*targets)] if len(targets) > 1 else targets, evidence)
    own = [query.model.index(v) for v in targets]
    truth, ours = posterior(model, evidence, targets), posterior(query.model, {}, own)
    assert np.abs(ours - truth).max() <= 2 * query.space.rounding + 1e-13
    if part is not None:
        whole = make_query(model, targets, evidence or {}, SETTINGS).model
        assert [whole.labels[i] for i in part.positions] == list(query.model.labels)
        verb = "matters" if part.size == 1 else "matter"
        assert query.relevance == f"{part.size} of {whole.n_variables} variables {verb} to the targets"
    return query


def d_connected(parents, targets, evidence):
    """What matters by the book: the targets' part of the moral graph of all ancestors, cut at the evidence."""
    family, todo = set(), [*targets, *evidence]
    while todo:
        v = todo.pop()
        if v not in family:
            family.add(v)
            todo += parents[v]
    cliques = [{v, *parents[v]} - set(evidence) for v in family]
    near = set(targets)
    while grown := set().union(*(clique for clique in cliques if clique & near)) - near:
        near |= grown
    return near


# -- Bayesian networks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_the_law_of_the_targets_is_that_of_the_whole_network(seed, zeros):
    rng = np.random.default_rng([seed, zeros])
    model, parents = random_network(rng, int(rng.integers(1, 8)), zeros, density=rng.choice([0.2, 0.5, 1.0]))
    evidence, targets = random_question(rng, model)
    query = check(model, evidence, targets)
    wanted = d_connected(parents, targets, evidence)
    # Zeros can make more of it independent than the graph says.
    assert set(query.model.labels) <= wanted if zeros else set(query.model.labels) == wanted


@pytest.mark.parametrize("seed", range(10))
def test_answers_are_those_of_the_whole_network(seed):
    rng = np.random.default_rng(seed)
    model, _ = random_network(rng, 7, zeros=seed % 2 == 1, density=0.3)
    evidence, targets = random_question(rng, model)
    truth = posterior(model, evidence, targets)
    asked = [db.Joint(*targets)] if len(targets) > 1 else targets
    for method in ("exact", "coalescence", "dobrushin"):
        try:
            answer = db.estimate(model, asked, evidence=evidence, tolerance=0.1, method=method, seed=1)
        except (db.CertificateError, BudgetError):
            continue
        assert (answer.lower <= truth.ravel()).all()
        assert (answer.upper >= truth.ravel()).all()
        assert bool(answer.plan.relevance) == any("to the targets" in words for words in answer.assumptions)
        if answer.plan.scan is not None:  # by positions in the model given the evidence
            rest = model.condition(evidence)
            updated = {rest.labels[i] for i in answer.plan.scan._updates(rest.n_variables)}
            assert updated <= kept_labels(model, targets, evidence)


def test_a_variable_that_matters_is_missed(monkeypatch):
    """Negative control: if sums that are not constant were taken to be, the check would fail."""
    monkeypatch.setattr(FactorTables, "sum_variation", lambda *_: 1e-15)
    failed = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        model = models.random_model(rng, "factors", n=5)
        try:
            check(model, {}, [0])
        except AssertionError:
            failed += 1
    assert failed > 5


def test_a_component_that_matters_is_missed(monkeypatch):
    """Negative control: a part that is dropped though it is not independent."""
    model = db.Ising({(0, 1): 0.5, (1, 2): 0.5}, fields=[0.1, 0.2, 0.3])
    check(model, {}, [0])
    monkeypatch.setattr(type(model._form), "components", lambda form: np.arange(form.n_variables))
    with pytest.raises(AssertionError):
        check(db.Ising({(0, 1): 0.5, (1, 2): 0.5}, fields=[0.1, 0.2, 0.3]), {}, [0])


def test_the_knowledge_survives(tmp_path):
    rng = np.random.default_rng(3)
    model, parents = random_network(rng, 8, zeros=True, density=0.4)
    leaf = next(v for v in range(8) if not any(v in above for above in parents.values()))
    target = next(v for v in range(8) if v != leaf)
    wanted = kept_labels(model, [target])
    assert leaf not in wanted
    for name in ("a.npz", "a.uai"):
        db.write(model, tmp_path / name)
        assert kept_labels(db.read(tmp_path / name), [target]) == wanted
    assert kept_labels(pickle.loads(pickle.dumps(model)), [target]) == wanted
    factors = [model.factor(k) for k in range(model.n_factors)]
    named = db.FactorGraph(model.cardinalities, factors, [f"v{i}" for i in range(8)])
    assert kept_labels(named, [f"v{target}"]) == {f"v{i}" for i in wanted}
    # What is left given some evidence is still known to be conditional probabilities.
    first = next(v for v in range(8) if v not in (leaf, target))
    state = int(np.argmax(posterior(model, {}, [first])))
    assert kept_labels(model.condition({first: state}), [target]) == kept_labels(model, [target], {first: state})
    # Joint variables: the answer is right, whatever is left of the knowledge.
    merged = model.merge([[first, target]])
    law = db.exact.marginals(pruned(merged, [(first, target)])[0].model)
    own = pruned(merged, [(first, target)])[0].model.index((first, target))
    np.testing.assert_allclose(law[own], posterior(model, {}, [first, target]).ravel(), atol=1e-12)


def test_rows_that_do_not_sum_to_one_are_plain_weights(tmp_path):
    text = "BAYES 2 2 2 2 1 0 2 0 1 2 0.3 0.7 4 0.5 0.5 {} 0.4"
    for number, count in (("0.6", 1), ("0.600001", 1), ("0.605", 2)):
        path = tmp_path / "a.uai"
        path.write_text(text.format(number))
        model = db.read(path)
        assert len(kept_labels(model, [0])) == count
        sums = np.exp(model.factor(1)[1]).sum(axis=1)
        assert sums[1] == pytest.approx(1.005 if count == 2 else 1, abs=1e-12)


# -- the bound -------------------------------------------------------------------------------------------------------


def test_sums_vary_by_less_than_the_bound():
    getcontext().prec = 60
    misses = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        shape = (*rng.integers(1, 5, size=2), int(rng.integers(2, 30)))
        table = rng.random(shape) ** rng.choice([1, 5, 40])
        logs = np.log(table / table.sum(axis=-1, keepdims=True)) + rng.choice([-300.0, 0.0, 5.5, 400.0])
        logs += rng.choice([0.0, 1e-14, 1e-13]) * rng.normal(size=(*shape[:2], 1))
        bound = derived.sum_variation(logs, 2)
        sums = [sum(Decimal(float(x)).exp() for x in row) for row in logs.reshape(-1, shape[2])]
        truth = (max(sums) / min(sums)).ln()
        assert truth <= Decimal(bound) < Decimal("2e-12")
        raw = np.exp(logs - logs.max()).sum(axis=-1)
        misses += truth > Decimal(float(np.log(raw.max() / raw.min())))
    assert misses > 5  # negative control: the variation as it is computed is not a bound


def test_sums_that_are_not_constant():
    assert derived.sum_variation(np.log([[0.5, 0.5], [0.5, 0.5 + 1e-11]]), 1) == np.inf
    assert derived.sum_variation(np.array([[-np.inf, -np.inf], [0.0, 0.0]]), 1) == np.inf
    assert derived.sum_variation(np.full((2, 2), -np.inf), 1) == np.inf
    assert derived.sum_variation(np.array([[0.0, -np.inf], [-np.inf, 0.0]]), 0) < 1e-13
    assert derived.sum_variation(np.array([[0.0, -800.0], [0.0, -900.0]]), 1) < 1e-13


# -- any model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("family", models.FAMILIES)
@pytest.mark.parametrize("seed", range(12))
def test_components_without_targets_are_dropped(family, zeros, seed):
    rng = np.random.default_rng([seed, zeros])
    model = models.random_model(rng, family, n=int(rng.integers(2, 7)), zeros=zeros, density=0.25)
    truth = db.exact.marginals(model)
    for target in range(model.n_variables):
        query, _ = pruned(model, [target])
        ours = db.exact.marginals(query.model)[query.model.index(target)]
        np.testing.assert_allclose(ours, truth[target], atol=1e-12)
        assert type(query.model) is type(model)
        answer = db.estimate(model, [target], method="exact")
        assert (answer.lower <= truth[target] + 1e-12).all()
        assert (answer.upper >= truth[target] - 1e-12).all()


def test_evidence_separates_a_chain():
    model = db.Ising({(k, k + 1): 0.7 for k in range(9)}, fields=np.linspace(-1, 1, 10))
    plan = db.plan(model, [0], evidence={2: 1, 5: -1})
    assert plan.relevance == "2 of 8 variables matter to the targets"
    assert "  model     2 of 8 variables matter to the targets" in str(plan)
    assert db.plan(model, "all").relevance == ""


def test_impossible_evidence_is_found_in_what_does_not_matter(monkeypatch):
    both = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)  # two variables that are equal
    factors = [((0,), [0.0, 0.5]), ((1, 2), both), ((2, 3), both)]
    model = db.FactorGraph([2, 2, 2, 2], factors)
    for method in ("auto", "exact", "coalescence"):
        with pytest.raises(db.ArgumentError, match="probability zero"):
            db.estimate(model, [0], evidence={1: 0, 3: 1}, method=method)
    assert kept_labels(model, [0], {1: 0, 3: 0}) == {0}
    factors.append(((1, 3), [[-np.inf, 0.0], [0.0, 1.0]]))
    assert kept_labels(db.FactorGraph([2] * 4, factors), [0]) == {0}

    def give_up(*_):
        raise BudgetError("The search", 2, 1, "choices", "")

    monkeypatch.setattr(choice, "allowed_state", give_up)
    assert kept_labels(db.FactorGraph([2] * 4, factors), [0]) == {0, 1, 2, 3}  # not known to be possible, so it stays


def test_statistics_and_joint_targets_keep_what_they_look_at():
    rng = np.random.default_rng(5)
    model, _ = random_network(rng, 7, density=0.3)
    for pair in itertools.combinations(range(7), 2):
        statistic = db.Statistic(
            lambda x: (x > 0).all(axis=-1).astype(float), dict.fromkeys(pair, 1.0), (0, 1), name="both"
        )
        answer = db.estimate(model, [db.Joint(*pair), pair[0], statistic], method="exact")
        law = posterior(model, {}, list(pair))
        rows = np.concatenate([law.ravel(), law.sum(axis=1), [law[1:, 1:].sum()]])
        np.testing.assert_allclose(answer.value, rows, atol=1e-12)


# -- published networks ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_data
def test_all_networks_are_known_as_such():
    paths = sorted((Path(DATA) / "bif").glob("*.bif.gz"))
    assert len(paths) == 24
    for path in paths:
        model = db.read(path)
        parents = {scope[-1]: scope[:-1] for scope in (model.factor(k)[0] for k in range(model.n_factors))}
        for k in np.random.default_rng(1).permutation(model.n_variables)[:3].tolist():
            query, _ = pruned(model, [model.labels[k]])
            assert {model.index(label) for label in query.model.labels} == d_connected(parents, [k], [])
            assert query.space.rounding < 1e-10


@needs_data
def test_munin1_on_the_command_line():
    path = Path(DATA) / "bif" / "munin1.bif.gz"
    model = db.read(path)
    label = min(model.labels[:40], key=lambda label: len(kept_labels(model, [label])))
    result = CliRunner().invoke(app, ["estimate", str(path), "--target", label])
    assert result.exit_code == 0, result.stderr
    assert "of 186 variables matter" in result.stdout
