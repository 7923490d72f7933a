"""What is added from outside the package works everywhere: each part is defined in a test file and registered once."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
import edge_list_format
from dobrushin._estimate.dobrushin import Dobrushin
from dobrushin._estimate.method import METHODS, AnswerRows, Curve, Method
from dobrushin._estimate.method import register as register_method
from dobrushin._fields.likelihood import LIKELIHOODS, Added, per_variable
from dobrushin._models.pairwise import PairTables
from dobrushin._sampling.kernel import KERNELS, Kernel, register
from dobrushin.cli.app import app
from dobrushin.io.formats import FORMATS, Format, extensions
from models import FAMILIES, random_model


@pytest.fixture
def edge_list(monkeypatch):
    entry = Format(
        (".edges",),
        lambda: (edge_list_format.read, edge_list_format.write),
        "lines i j strength",
        "`Ising`",
        "positions",
        "`Ising`",
    )
    monkeypatch.setitem(FORMATS, "edges", entry)


@pytest.mark.usefixtures("edge_list")
def test_a_format_defined_here_is_read_and_written(tmp_path):
    model = db.Ising.grid(3, 3, couplings=0.3)
    for name in ("grid.edges", "grid.edges.gz"):
        db.write(model, tmp_path / name)
        np.testing.assert_array_equal(db.read(tmp_path / name).couplings.toarray(), model.couplings.toarray())
    db.write(model, tmp_path / "grid.xyz", format="edges")
    assert db.read(tmp_path / "grid.xyz", format="edges").n_variables == 9
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "grid.edges"), str(tmp_path / "grid.npz")])
    assert result.exit_code == 0
    assert db.read(tmp_path / "grid.npz").n_variables == 9


@pytest.mark.usefixtures("edge_list")
def test_a_format_defined_here_is_named_in_messages_and_refuses_a_temperature(tmp_path):
    assert ".edges" in extensions(written=True)
    assert ".edges" not in extensions(energies=True)
    with pytest.raises(db.FormatError, match=r"\.npz, \.edges"):
        db.read(tmp_path / "model.xyz")
    (tmp_path / "bad.edges").write_text("0 1 0.5\n0 2\n")
    with pytest.raises(db.FormatError, match="line 2: expected a line 'i j strength', found '0 2'"):
        db.read(tmp_path / "bad.edges")
    with pytest.raises(db.ArgumentError, match=r"1\.0 for \.edges files"):
        db.read(tmp_path / "bad.edges", beta=2.0)


def test_a_format_defined_here_is_gone_without_its_entry(tmp_path):
    with pytest.raises(db.ArgumentError, match="one of the extensions"):
        db.write(db.Ising.grid(3, 3, couplings=0.3), tmp_path / "grid.edges")


class Clock(db.Model):
    """Hands on a ring of dials, each at one of k angles: pi(x) ∝ exp( strength sum cos of the angles between them )."""

    def __init__(self, dials, angles, strength):
        turn = 2 * np.pi / angles * np.arange(angles)
        table = strength * np.cos(turn[:, None] - turn).ravel()
        edges = np.stack([np.arange(dials), np.roll(np.arange(dials), -1)], axis=1)
        form = PairTables(np.full(dials, angles), np.zeros(dials * angles), edges, np.tile(table, dials))
        super().__init__(form, [f"dial {i}" for i in range(dials)])


@pytest.fixture
def clock():
    return Clock(dials=6, angles=3, strength=0.4)


@pytest.fixture
def same(clock):
    """The same distribution in a family of the library."""
    turn = 2 * np.pi / 3 * np.arange(3)
    table = 0.4 * np.cos(turn[:, None] - turn)
    return db.PairwiseMRF(np.zeros((6, 3)), [(i, (i + 1) % 6) for i in range(6)], table, clock.labels)


def test_a_family_defined_here_answers_like_one_of_the_library(clock, same):
    assert repr(clock) == "Clock(n_variables=6, edges=6)"
    assert clock.neighbors(0).tolist() == [1, 5]
    states = np.random.default_rng(1).integers(0, 3, size=(20, 6))
    np.testing.assert_allclose(clock.log_density(states), same.log_density(states))
    np.testing.assert_allclose(clock.conditional(2, states), same.conditional(2, states))
    rest = clock.condition({"dial 0": 1})
    assert type(rest) is db.PairwiseMRF
    assert rest.labels == clock.labels[1:]
    assert clock.merge([["dial 0", "dial 1"]]).cardinalities.tolist() == [9, 3, 3, 3, 3]


@pytest.mark.parametrize("method", ["auto", "exact", "local", "dobrushin", "coalescence", "weights", "uncertified"])
def test_a_family_defined_here_works_through_every_stage(clock, same, method):
    np.testing.assert_array_equal(db.influence(clock).matrix.toarray(), db.influence(same).matrix.toarray())
    scans = [db.shortest_scan(model, ["dial 0"], tolerance=0.2) for model in (clock, same)]
    assert scans[0].scan == scans[1].scan
    assert db.variation(clock, scans[0], targets=["dial 0"]).value == scans[0].variation.value <= 0.2
    draws = [db.sample(model, scans[0], chains=70, seed=3, initial="mode").states for model in (clock, same)]
    np.testing.assert_array_equal(*draws)
    settled = [db.coalescence(model, db.Scan.systematic(6, 60), runs=200, seed=1) for model in (clock, same)]
    assert settled[0].value == settled[1].value < 1
    np.testing.assert_array_equal(db.exact.marginals(clock)[3], db.exact.marginals(same)[3])
    options = {"evidence": {"dial 2": 1}, "tolerance": 0.2, "method": method, "seed": 1}
    means = [db.estimate(model, ["dial 0"], **options).value for model in (clock, same)]
    np.testing.assert_array_equal(*means)
    assert db.diagnose(clock).n_variables == 6


def test_a_family_defined_here_is_kept_as_the_family_of_its_form(clock, tmp_path):
    db.write(clock, tmp_path / "clock.npz")
    again = db.read(tmp_path / "clock.npz")
    assert type(again) is db.PairwiseMRF
    states = np.zeros((1, 6), dtype=int)
    assert again.labels == clock.labels
    np.testing.assert_array_equal(again.log_density(states), clock.log_density(states))
    assert pickle.loads(pickle.dumps(clock)).labels == clock.labels


class Slow(Kernel):
    """Chains of any model by its conditional laws, one step after the other, in plain NumPy."""

    name = "slow"
    rate = 1e4
    lanes = 1
    batch = 8
    dtype = np.int8

    def __init__(self, form, region):
        self.form, self.region, self.error = form, region, np.full(region.size, 1e-12)

    @classmethod
    def fits(cls, form, scan, region):
        return region.size == form.n_variables and not scan.is_random

    @classmethod
    def make(cls, form, region):
        return cls(form, region)

    def start(self, master, chains):
        k = self.form.cardinalities
        return np.stack([np.random.default_rng([*master, c]).integers(k) for c in chains], axis=1)

    def load(self, states):
        return states.copy()

    def run(self, x, work):
        for t, i in enumerate(work.cycle.cut(work.lo, work.hi).order()):
            states = 2 * x.T - 1 if self.form.spins else x.T
            weights = np.exp(self.form.log_weights(i, states))
            shares = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
            u = [np.random.default_rng([*work.master, c, work.step + t + 1]).random() for c in work.chains]
            x[i] = np.minimum((np.array(u)[:, None] >= shares).sum(axis=1), shares.shape[1] - 1)

    def read(self, x, rows, chains):
        return x[rows, :chains].astype(np.int8)


@pytest.fixture
def slow_kernel():
    register(Slow)
    yield
    del KERNELS["slow"]


@pytest.mark.usefixtures("slow_kernel")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_kernel_defined_here_draws_from_every_family(family, tmp_path):
    model = random_model(np.random.default_rng(3), family, n=3, density=1.0)
    scan = db.Scan([0, 1, 2, 1, 0])
    run = db.sample(model, scan, chains=4000, seed=2, kernel="slow", record=db.Record(counts=True))
    assert run.kernel == "slow"
    law = db.exact.law(model, scan)
    for i, exact in enumerate(law.sum(axis=tuple(a for a in range(3) if a != axis)) for axis in range(3)):
        frequency = run.counts[i, : len(exact)] / 4000
        assert np.abs(frequency - exact).max() < 6.5 * 0.5 / np.sqrt(4000)
    # Prefixes, executors and checkpoints are those of every kernel.
    with ThreadPoolExecutor(2) as pool:
        few = db.sample(
            model, scan, chains=40, seed=2, kernel="slow", run=db.RunOptions(executor=pool, checkpoint=tmp_path / "run")
        )
    assert (few.states == run.states[:40]).all()
    assert run.variation(model, weights=np.ones(3)).value >= db.variation(model, scan, weights=np.ones(3)).value


@pytest.mark.usefixtures("slow_kernel")
def test_a_kernel_defined_here_is_checked_and_named_like_the_others():
    assert "slow" in {result.kernel for result in db.self_check(chains=2000) if result.ok}
    model = db.Ising.grid(2, 2, couplings=0.1)
    assert db.sample(model, db.Scan.systematic(4, 8)).kernel != "slow"
    with pytest.raises(
        db.ArgumentError, match="one of 'table', 'dense', 'field', 'conditional', 'factors' for this model and scan"
    ):
        db.sample(model, db.Scan.uniform(4, 8), kernel="slow")
    with pytest.raises(db.ArgumentError, match="'cpu' for the kernel 'slow'"):
        db.sample(model, db.Scan.systematic(4, 8), kernel="slow", run=db.RunOptions(backend="cuda"))


def test_a_kernel_defined_here_is_gone_without_its_entry():
    with pytest.raises(
        db.ArgumentError, match="one of 'bits', 'counts', 'table', 'dense', 'field', 'potts', 'conditional', 'factors'"
    ):
        db.sample(db.Ising.grid(2, 2), db.Scan([0]), kernel="slow")


def test_a_family_defined_here_is_fitted_and_written_like_the_ordinary_one(clock, same, tmp_path):
    data = db.exact_sample(clock, list(clock.labels), 200, seed=1).states
    fits = [db.fit(model, data, method="exact", iterations=3) for model in (clock, same)]
    np.testing.assert_array_equal(fits[0].parameters, fits[1].parameters)

    class Pair(db.Model):
        def __init__(self, strength):
            super().__init__(db.Ising({(0, 1): strength})._form)

    db.write(Pair(0.3), tmp_path / "pair.coo")
    assert db.read(tmp_path / "pair.coo").couplings[0, 1] == 0.3


def test_help_names_every_method_of_the_library():
    text = CliRunner().invoke(app, ["estimate", "--help"]).output
    assert all(name in text for name in METHODS)


class Independent(Method):
    """Exact answers for models without edges: each variable has the law of its own potentials."""

    name = "independent"
    summary = "one variable at a time, where none has a neighbour"
    is_certain = True

    def __init__(self, query, plan, laws):
        super().__init__(query, plan)
        self.laws = laws

    @classmethod
    def asking_seconds(cls, query, quickly):
        return 1e-6 * query.model.n_variables if quickly else None

    @classmethod
    def propose(cls, query, choice):
        if any(len(query.model.neighbors(i)) for i in range(query.model.n_variables)):
            if choice.by_name:
                raise cls.refuse("some variables have neighbours.")
            return choice.best
        state = np.array([query.model.states(i)[0] for i in range(query.model.n_variables)])
        laws = [query.model.conditional(i, state) for i in range(query.model.n_variables)]
        return cls(query, cls.draft(query, "no variable has a neighbour", 0.0), laws)

    def answer(self, sequence, running):
        del sequence, running
        rows = []
        for question in self.query.questions:
            value = np.concatenate([self.laws[i] for i in question.positions])
            rows.append(AnswerRows(value, value - 1e-12, value + 1e-12, np.full(len(value), 1e-12)))
        return self.assemble(rows, 1.0, ("the variables do not know of each other",))

    @classmethod
    def explain(cls, estimate):
        del estimate
        return ["Every variable was looked at by itself."]

    @classmethod
    def curve(cls, estimate, model):
        del estimate, model
        return Curve(np.array([0, 1]), np.array([1.0, 0.0]), "Known at once.")


@pytest.fixture
def independent(monkeypatch):
    monkeypatch.setitem(METHODS, "independent", Independent)
    return db.PairwiseMRF([[0.0, 1.0], [0.3, 0.0, 0.2]], [], [], labels=["a", "b"])


def test_a_method_defined_here_answers_by_name_and_in_auto(independent):
    exact = np.concatenate(db.exact.marginals(independent))
    for method in ("independent", "auto"):
        answer = db.estimate(independent, "all", method=method)
        assert answer.plan.method == "independent"
        assert answer.is_certified
        assert answer.plan.is_certain
        assert answer.confidence == 1
        np.testing.assert_allclose(answer.value, exact, atol=1e-12)
    assert "independent" in str(db.plan(independent, ["a"]))
    many = db.estimate_many(independent, [(["a"], None), (["b"], {"a": 1})], method="independent")
    np.testing.assert_allclose(many[1].value, db.exact.marginals(independent)[1])


@pytest.mark.usefixtures("independent")
def test_a_method_defined_here_says_why_not_and_leaves_others_alone():
    pair = db.Ising({(0, 1): 0.3})
    with pytest.raises(db.CertificateError, match="independent: some variables have neighbours"):
        db.estimate(pair, [0], method="independent")
    assert db.estimate(pair, [0]).plan.method == "exact"
    with pytest.raises(db.ArgumentError, match="'uncertified', 'independent'"):
        db.estimate(pair, [0], method="nonsense")


def test_a_method_defined_here_is_described_by_report_and_command_line(independent, tmp_path):
    db.estimate(independent, "all").report(tmp_path / "page.html", model=independent)
    page = (tmp_path / "page.html").read_text()
    assert "Every variable was looked at by itself." in page
    assert "Known at once." in page
    assert "the variables do not know of each other" in page
    assert "NOT CERTIFIED" not in page
    db.write(independent, tmp_path / "model.npz")
    result = CliRunner().invoke(app, ["estimate", str(tmp_path / "model.npz"), "--method", "independent"])
    assert result.exit_code == 0, result.output
    assert "independent" in result.output


def test_a_method_that_proposes_nothing_takes_nothing_away(monkeypatch):
    class Silent(Independent):
        name = "silent"

        @classmethod
        def propose(cls, query, choice):
            del query, choice

    monkeypatch.setitem(METHODS, "silent", Silent)
    pair = db.Ising({(0, 1): 0.3})
    assert db.estimate(pair, [0]).plan.method == "exact"
    with pytest.raises(db.CertificateError, match="silent: the method has no plan for this query"):
        db.estimate(pair, [0], method="silent")


def test_a_method_that_is_no_faster_leaves_the_best_proposal(monkeypatch):
    class Twin(Dobrushin):
        name = "twin"

    some = {name: METHODS[name] for name in ("dobrushin", "exact")}
    for module in ("query", "method", "choice"):
        monkeypatch.setattr(f"dobrushin._estimate.{module}.METHODS", {**some, "twin": Twin})
    grid = db.Ising.grid(100, 100, couplings=0.2)
    assert db.plan(grid, [0], tolerance=0.05).method == "dobrushin"
    assert db.plan(grid, [0], tolerance=0.05, method="twin").method == "twin"


def test_a_method_is_registered_by_one_line(monkeypatch):
    monkeypatch.setattr("dobrushin._estimate.method.METHODS", dict(METHODS))
    assert register_method(Independent) is Independent
    from dobrushin._estimate import method

    names = [
        "symmetry",
        "dobrushin",
        "local",
        "walks",
        "exact",
        "parts",
        "clusters",
        "coalescence",
        "weights",
        "uncertified",
    ]
    assert list(method.METHODS) == [*names, "independent"]


def waiting_times(labels, times, events=1.0):
    """Waiting times with rate e^x up to some events: the log-likelihood is events x - time e^x."""
    waited = per_variable(times, labels, np.nan, "times")
    seen = ~np.isnan(waited)
    happened = np.where(seen, per_variable(events, labels, 1.0, "events"), 0.0)
    return Added(seen, happened, {"exposure": np.where(seen, waited, 0.0)})


@pytest.fixture
def survival(monkeypatch):
    monkeypatch.setitem(LIKELIHOODS, "waiting_times", waiting_times)
    prior = db.GaussianField.grid(3, 3, rho=0.5)
    return prior.observe("waiting_times", {0: 0.5, 4: 2.0, 7: 1.25}, events={0: 1, 4: 0, 7: 3})


def test_a_likelihood_defined_here_has_the_density_that_it_says(survival):
    states = np.random.default_rng(1).normal(size=(20, 9))
    prior = db.GaussianField.grid(3, 3, rho=0.5)
    added = states[:, [0, 4, 7]] @ [1, 0, 3] - np.exp(states[:, [0, 4, 7]]) @ [0.5, 2.0, 1.25]
    np.testing.assert_allclose(survival.log_density(states), prior.log_density(states) + added)
    with pytest.raises(db.ArgumentError, match=r"'likelihood' .* 'poisson', 'bernoulli', 'normal', 'waiting_times'"):
        prior.observe("gamma", {0: 1.0})
    with pytest.raises(db.ArgumentError, match=r"'exposure'.* not negative\. Got -1\.0 at variable 2"):
        prior.observe("waiting_times", {2: -1.0})


def test_a_likelihood_defined_here_works_through_every_stage(survival, tmp_path):
    # Counts have the same likelihood here, up to constants.
    same = db.GaussianField.grid(3, 3, rho=0.5).poisson({0: 1, 4: 0, 7: 3}, exposure={0: 0.5, 4: 2.0, 7: 1.25})
    np.testing.assert_array_equal(db.influence(survival).matrix.toarray(), db.influence(same).matrix.toarray())
    scan = db.Scan.systematic(9, 90)
    assert db.variation(survival, scan, weights={4: 1.0}).value == db.variation(same, scan, weights={4: 1.0}).value
    draws = [db.sample(field, scan, chains=70, seed=3).states for field in (survival, same)]
    np.testing.assert_array_equal(*draws)
    rows = [db.estimate(field, [0, db.Exceeds(7, 0.0)], tolerance=0.2, seed=1) for field in (survival, same)]
    np.testing.assert_array_equal(rows[0].value, rows[1].value)
    db.write(survival, tmp_path / "field.npz")
    assert db.read(tmp_path / "field.npz") == survival
    proven = db.estimate(survival, [4], tolerance=0.5, seed=1, proof=tmp_path / "field.proof")
    assert proven.is_certified
    verdict = db.verify_proof(tmp_path / "field.proof", model=tmp_path / "field.npz").verdict
    assert verdict == "holds if the numbers that the file supplies are right"
