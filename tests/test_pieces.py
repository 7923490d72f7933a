"""Long native calls in pieces: the same results wherever they pause, and Ctrl-C and limits that act in between."""

import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import dobrushin as db
from dobrushin._influence import theorems
from dobrushin._shared import compile as pieces
from dobrushin._shared.call import Deadline
from models import FAMILIES, random_model

# What a process that Ctrl-C reaches needs to end, and one that is alone on a busy machine to begin.
HANG = 120


def influences(seed):
    """All bounds of all families, as arrays."""
    parts = []
    for family in FAMILIES:
        for zeros in (False, True):
            model = random_model(np.random.default_rng(seed), family, n=5, zeros=zeros, max_states=4)
            for method in ("best", "paper", "exact"):
                bound = db.influence(model, method=method)
                parts += [bound.matrix.toarray(), bound._theorem, bound.caps]
    return parts


def closed_forms(seed):
    """The same where nothing is enumerated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theorems, "BEST_OPERATIONS", 0.0)
        patch.setattr(theorems, "BEST_DEGREE", 0)
        return influences(seed)


def coarse_bounds(seed):
    """The same where even double differences take too long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theorems, "RANGE_OPERATIONS", -1.0)
        return closed_forms(seed)


def scans(seed):
    """Certificates, and scans that are chosen in every way."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, "ising", n=9, strength=0.15)
    parts = []
    for targets in (None, [0, 3]):
        fixed, uniform = db.Scan(rng.integers(0, 9, 70)), db.Scan.uniform(9, 17)
        for scan in (fixed, uniform, db.Scan.systematic(9, 100) + uniform + fixed):
            bound = db.variation(model, scan, targets=targets)
            better = db.optimize_scan(model, scan, targets=targets, iterations=2, tolerance=0.3)
            parts += [bound.per_variable, bound.curve(every=7)[1], better.variation.value, str(better.scan)]
            parts += [] if better.scan.is_random else [better.scan.order]
        greedy = db.greedy_scan(model, targets=targets, steps=60)
        shortest = db.shortest_scan(model, targets=targets, tolerance=0.05)
        parts += [greedy.scan.order, greedy.variation.value, shortest.scan.order, shortest.variation.value]
    return parts


@pytest.mark.parametrize("work", [influences, closed_forms, coarse_bounds, scans])
@pytest.mark.parametrize("piece", [1, 37, 1000])
def test_results_do_not_depend_on_where_kernels_pause(work, piece, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", db.VacuousBoundWarning)
        for seed in range(2):
            whole = work(seed)
            with monkeypatch.context() as patch:
                patch.setattr(pieces, "PIECE", piece)
                for part, same in zip(work(seed), whole, strict=True):
                    np.testing.assert_array_equal(part, same)


class Stop:
    """Stands for the limit on planning; ends the work after so many looks at it."""

    def __init__(self, looks):
        self.looks = looks

    def charge(self, seconds, stage):
        del seconds, stage
        self.looks -= 1
        if self.looks < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("looks", [0, 1, 10, 50])
def test_an_interruption_leaves_what_is_known_of_a_model_right(family, looks, monkeypatch):
    model, twin = (random_model(np.random.default_rng(5), family, n=6, max_states=4, strength=0.2) for _ in range(2))
    scan, stop = db.Scan([1, 2, 3, 1]), Stop(looks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", db.VacuousBoundWarning)
        with monkeypatch.context() as patch:
            patch.setattr(pieces, "PIECE", 1)
            patch.setattr(pieces, "current_deadline", lambda: stop)
            try:
                db.variation(model, scan, targets=[1])
            except KeyboardInterrupt:
                pass
            else:
                assert looks > 1
        assert db.variation(model, scan).value == db.variation(twin, scan).value
    np.testing.assert_array_equal(db.influence(model).matrix.toarray(), db.influence(twin).matrix.toarray())


def test_a_limit_on_planning_acts_between_pieces(monkeypatch):
    model = db.Ising.grid(4, 4, couplings=0.1)
    monkeypatch.setattr(pieces, "PIECE", 1)
    with Deadline(-1.0), pytest.raises(db.BudgetError, match="Planning"):
        db.influence(model)
    with Deadline(-1.0), pytest.raises(db.BudgetError, match="Planning"):
        db.greedy_scan(db.Influence(np.full((4, 4), 0.1) - 0.1 * np.eye(4)), steps=50)
    monkeypatch.undo()
    with Deadline(-1.0):
        db.influence(model)  # what takes one piece is not worth a look


# Each would take hours, in a native call of its own.
_ENDLESS = {
    "variation": "db.variation(grid, db.Scan.systematic(16, 10**12))",
    "influence": "db.influence(wide, method='paper')",
    "optimize": "db.optimize_scan(grid, db.Scan.uniform(16, 10**8))",
    "greedy_scan": "db.greedy_scan(db.Influence((np.ones((16, 16)) - np.eye(16)) / 15), steps=10**9)",
}
_PREPARE = """
import numpy as np, dobrushin as db
from dobrushin._influence import theorems
from dobrushin._shared import compile as pieces
theorems.RANGE_OPERATIONS = theorems.RANGE_ENTRIES = float("inf")
grid = db.Ising.grid(4, 4, couplings=0.2)
wide = db.PairwiseMRF([np.zeros(3), np.zeros(10**6)], [(0, 1)], [np.random.default_rng(0).normal(size=(3, 10**6))])
small = db.PairwiseMRF([np.zeros(3)] * 2, [(0, 1)], [np.ones((3, 3))])
for scan in (db.Scan.systematic(16, 20), db.Scan.uniform(16, 20)):
    db.optimize_scan(grid, scan)
db.greedy_scan(grid, steps=10)
db.influence(small, method="paper")
"""


def begin(call, piece=None):
    """A process in the middle of a call."""
    change = "" if piece is None else f"pieces.PIECE = {piece}\n"
    code = f"import warnings; warnings.simplefilter('ignore')\n{_PREPARE}{change}print('begin', flush=True)\n{call}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "begin", process.stderr.read()
    time.sleep(1.0)
    return process


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of Windows are others")
@pytest.mark.parametrize("call", _ENDLESS)
def test_ctrl_c_ends_a_long_call(call):
    process = begin(_ENDLESS[call])
    try:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in errors


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of Windows are others")
def test_ctrl_c_waits_for_a_call_without_pauses():
    """Negative control: the calls above are long, and it is the pauses that let them end."""
    process = begin(_ENDLESS["variation"], piece=2**62)
    try:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=5)
    finally:
        process.kill()
        process.communicate()
