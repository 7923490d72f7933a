"""What is added from outside the package works everywhere: each part is defined in a test file and registered once."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
from dobrushin._sampling.kernel import Kernel
from dobrushin._sampling.kernels import KERNELS, register
from dobrushin.cli.app import app
from dobrushin.io.formats import FORMATS, Format, extensions
from models import FAMILIES, random_model


@pytest.fixture
def edge_list(monkeypatch):
    entry = Format((".edges",), "edge_list_format", "lines i j strength", "`Ising`", "positions", "`Ising`")
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
        few = db.sample(model, scan, chains=40, seed=2, kernel="slow", executor=pool, checkpoint=tmp_path / "run")
    assert (few.states == run.states[:40]).all()
    assert run.variation(model, weights=np.ones(3)).value >= db.variation(model, scan, weights=np.ones(3)).value


@pytest.mark.usefixtures("slow_kernel")
def test_a_kernel_defined_here_is_checked_and_named_like_the_others():
    assert "slow" in {result.kernel for result in db.self_check(chains=2000) if result.ok}
    model = db.Ising.grid(2, 2, couplings=0.1)
    assert db.sample(model, db.Scan.systematic(4, 8)).kernel != "slow"
    with pytest.raises(db.ArgumentError, match="one of 'table', 'field', 'factors' for this model and scan"):
        db.sample(model, db.Scan.uniform(4, 8), kernel="slow")
    with pytest.raises(db.ArgumentError, match="'cpu' for the kernel 'slow'"):
        db.sample(model, db.Scan.systematic(4, 8), kernel="slow", backend="cuda")


def test_a_kernel_defined_here_is_gone_without_its_entry():
    with pytest.raises(db.ArgumentError, match="one of 'bits', 'table', 'field', 'potts', 'factors'"):
        db.sample(db.Ising.grid(2, 2), db.Scan([0]), kernel="slow")
