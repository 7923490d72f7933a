"""The logger of the package: what it says, and that nobody hears it who does not listen."""

import json
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
from dobrushin.cli.app import app


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, logger="dobrushin")
    return lambda: "\n".join(caplog.messages)


def test_method_kernel_region_and_batches(said):
    answer = db.estimate(db.Ising.grid(30, 30, couplings=0.2), [0], tolerance=0.05, method="dobrushin", seed=1)
    assert f"method dobrushin: {answer.plan.reason}" in said()
    assert "sampling: kernel bits, region of " in said()
    assert f"{answer.chains} chains of {answer.steps} steps in " in said()


def test_methods_that_have_no_proposal(said):
    frustrated = np.where(np.arange(3200) % 3, 0.9, -0.9)
    unaries = np.tile([0.1, 0.0, 0.0], (1600, 1))
    torus = db.Potts.grid(40, 40, 3, couplings=frustrated, unaries=unaries, periodic=True)
    with pytest.raises((db.CertificateError, db.BudgetError)):
        db.estimate(torus, [0], tolerance=0.02, time_limit=4, seed=1)
    assert "method dobrushin has no plan: the spectral radius of the influence is" in said()
    assert "method local has no plan: summing a region of " in said()
    assert "method exact has no plan: " in said()
    assert "method coalescence has no plan: " in said()


def test_sets_and_what_is_near(said):
    db.coalescence(db.Ising.grid(4, 4, couplings=0.2), db.Scan.systematic(16, 160), [0], runs=64, seed=1)
    assert "coalescing: kernel " in said()
    db.estimate(db.Ising.grid(1000, 1000, couplings=0.2), [0], evidence={1: 1}, tolerance=0.1, seed=1)
    assert "reading a ball of radius 8 around the targets: " in said()


def test_influence_that_is_too_large_or_too_strong(said):
    star = db.FactorGraph([3] * 13, [((0, i), np.eye(3)) for i in range(1, 13)])
    db.influence(star)
    assert "influence: 1 of 13 variables have too many neighbours to enumerate" in said()
    db.greedy_scan(db.Ising.grid(10, 10, couplings=1.0), [0], steps=50)
    assert "the influence is too strong to choose scans with it: scaling it by 0." in said()


def test_a_lost_checkpoint(said, tmp_path, monkeypatch):
    from dobrushin._shared import state_file

    file = state_file.StateFile(tmp_path / "run.npz", "kind", "run", np.random.SeedSequence(1), (), "seed")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "_write", refuse)
    with pytest.warns(db.CheckpointWarning):
        file.save({})
    assert "can no longer be written (No space left on device)" in said()


BROKEN = [True]


def start_three_fifths(numbers):
    if BROKEN and numbers[0] >= 384:
        raise RuntimeError("broken")
    return np.ones((len(numbers), 16))


def test_a_checkpoint_that_is_taken_up(said, tmp_path):
    file = tmp_path / "run.npz"
    model, scan = db.Ising.grid(4, 4, couplings=0.2), db.Scan.systematic(16, 160)
    with ThreadPoolExecutor(1) as pool:
        options = db.RunOptions(executor=pool, checkpoint=file)
        run = partial(db.sample, model, scan, chains=640, seed=1, initial=start_three_fifths, run=options)
        with pytest.raises(RuntimeError, match="broken"):
            run()
        assert "resuming" not in said()
        BROKEN.clear()
        run()
        assert f"resuming from {file} at 60 %" in said()
        run()
    assert f"resuming from {file} at 100 %" in said()


def test_silent_by_default():
    """Also warnings, which a logger without any handler would print."""
    code = "import dobrushin, logging; logging.getLogger('dobrushin').warning('heard')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_verbose_on_the_command_line(tmp_path):
    path = tmp_path / "grid.npz"
    db.write(db.Ising.grid(10, 10, couplings=0.2), path)
    words = ["estimate", str(path), "--target", "0", "--method", "dobrushin", "--tolerance", "0.1", "--seed", "1"]
    logger = logging.getLogger("dobrushin")
    before = (list(logger.handlers), logger.level)
    plain = CliRunner().invoke(app, [*words, "--json"])
    assert (plain.exit_code, plain.stderr) == (0, "")
    for option in ("-v", "--verbose"):
        verbose = CliRunner().invoke(app, [*words, "--json", option])
        assert verbose.exit_code == 0
        assert json.loads(verbose.stdout) == json.loads(plain.stdout)
        assert "dobrushin: method dobrushin: " in verbose.stderr
        assert "dobrushin: sampling: kernel bits" in verbose.stderr
    assert (list(logger.handlers), logger.level) == before
    for verb in ("estimate", "inspect", "influence", "certify", "optimize", "sample", "fit", "convert", "warmup",
                 "reproduce"):  # fmt: skip
        assert "--verbose" in CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "120"}).stdout
