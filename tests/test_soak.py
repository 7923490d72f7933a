"""A few seconds of `benchmarks/soak.py`, and that what it looks for is counted."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dobrushin as db

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import soak_faults  # noqa: E402
from soak_calls import Work, judge_estimate  # noqa: E402
from soak_models import Case  # noqa: E402

SPINS = db.Ising({(0, 1): 0.3}, fields=[0.2, 0.0])
# Quick ones of all kinds.
TRIALS = [3, 5, 9, 17, 29, 33, 34, 37, 39, 49, 51, 53]
GUARD = 120  # seconds, for machines that compile first


def kinds(trial):
    return [fault.split(":", 1)[0] for fault in trial.faults]


@pytest.mark.slow
def test_a_share_of_the_soak_test_finds_nothing():
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--hangs", str(GUARD), "--trial", *map(str, TRIALS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(TRIALS)} trials" in ended.stdout


def test_wrong_intervals_are_counted():
    answer = db.estimate(SPINS, [0], method="dobrushin", tolerance=0.1, seed=1)
    case = Case("spins", SPINS, SPINS)
    assert judge_estimate(case, answer, None) == []
    narrow = replace(answer, lower=answer.upper - 1e-6)
    assert judge_estimate(case, narrow, None)[0].startswith("wrong")


@pytest.mark.parametrize("error", [ZeroDivisionError(), MemoryError(), KeyboardInterrupt()])
def test_bare_errors_are_counted(error):
    def fail():
        raise error

    trial = soak_faults.Trial()
    soak_faults.observe(trial, Work("failing", fail))
    assert kinds(trial) == ["bare"]


def test_lost_work_is_counted():
    trial, work = soak_faults.Trial(), Work("number", lambda: 1, facts=lambda value: [value])
    first = soak_faults.observe(trial, work)
    soak_faults._compare(trial, work, first, first, may_refuse=False)
    assert trial.faults == []
    soak_faults._compare(trial, work, first, soak_faults.Outcome(2, None, 0.0), may_refuse=False)
    soak_faults._compare(trial, work, first, soak_faults.Outcome(None, OSError(), 0.0), may_refuse=False)
    assert kinds(trial) == ["lost", "lost"]


@pytest.mark.slow
def test_broken_promises_and_overruns_are_counted(monkeypatch, tmp_path):
    def refuse():
        raise db.BudgetError("This estimate", 2, 1, "seconds", "Wait.")

    trial = soak_faults.Trial()
    soak_faults.observe(trial, Work("estimate (auto)", refuse))
    assert kinds(trial) == ["promise"]
    monkeypatch.setattr(soak_faults, "GRACE", -100.0)
    trial = soak_faults.Trial()
    soak_faults.in_time(np.random.default_rng(2), trial, tmp_path)
    assert "overrun" in kinds(trial)


@pytest.mark.slow
def test_hangs_and_crashes_are_counted():
    code = f"""
import os, sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
import soak
for action in ("time.sleep(60)", "os.abort()", "1 / 0"):
    soak.run_trial = lambda *a: eval(action)
    print(soak.isolate(0, 0, hangs=2.0)["faults"][0].split(":")[0])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["hang", "bare", "bare"], ended.stdout + ended.stderr
