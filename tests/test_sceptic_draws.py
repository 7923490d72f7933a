"""Holes that were found in draws of fields, in interpreted kernels and in what long calls show."""

import math
import os
import subprocess
import sys
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import sparse

import dobrushin as db
from dobrushin._fields.anchor import space_of
from dobrushin._kernels import field_draws, greedy
from dobrushin._shared import compile as compiling


def logistic_divergence(x, d, trials):
    """N (log(1 + e^(x + d)) - log(1 + e^x) - d / (1 + e^-x)), in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        x, d = Decimal(x), Decimal(d)
        s = 1 / (1 + (-x).exp())
        return float(Decimal(trials) * ((1 + s * (d.exp() - 1)).ln() - s * d))


@pytest.mark.parametrize(("trials", "failures"), [(1e6, 3), (1e9, 10), (1e12, 14)])
def test_ratios_of_nearly_certain_outcomes_are_as_good_as_their_chance_says(trials, failures):
    field = db.GaussianField([[0.01]]).bernoulli([trials - failures], trials=[trials])
    space = space_of(field)
    chance = space.anchor.errors.chance[0]
    x = math.log(trials / failures)
    for d in np.linspace(-1.5, 1.5, 31).tolist():
        for start in (x, -x):
            exact = logistic_divergence(start, d, trials)
            ratio = math.exp(-field_draws._divergence(start, d, 0.0, 0.0, trials))
            assert abs(ratio - math.exp(-exact)) <= chance
    # Slopes of the tangents: an error of theirs is felt over a distance of about 1.
    for d in (-0.7, 0.4):
        exact = trials * math.exp(-x) * -math.expm1(-d) / ((1.0 + math.exp(-x)) * (1.0 + math.exp(-x - d)))
        assert abs(field_draws._slope_gain(x, d, 0.0, 0.0, trials) - exact) <= chance


@pytest.mark.skipif(not compiling.CAN_INTERPRET, reason="NumPy before 2.0 mixes whole numbers otherwise")
def test_norms_of_suffixes_are_summed_alike_by_the_interpreter():
    rng = np.random.default_rng(0)
    for n in (9, 200):
        d, order, columns = rng.random(n), rng.integers(0, n, 30), rng.integers(0, n, 2 * n)
        begin, influence = 2 * np.arange(n), rng.random(2 * n) * 0.3
        found = []
        for code in (greedy.suffix_norms, compiling.Interpreted(greedy.suffix_norms)):
            found.append(np.empty(31))
            at = np.zeros(6, dtype=np.int64)
            code(at, 10**9, order, begin, begin + 2, columns, influence, d.copy(), np.empty(2), found[-1])
        np.testing.assert_array_equal(*found)


def run(code, **environment):
    """A program of its own: what it printed, and what it printed to the log."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_log_that_can_only_be_written_to_is_enough(monkeypatch):
    class Stream:
        def write(self, text):
            return len(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    model = db.Ising.grid(2, 2, couplings=0.1)
    for wanted in (None, True, False):
        assert db.estimate(model, [0], progress=wanted).chains == 0


_IN_A_FORK = """
import os, sys, time
from dobrushin._shared import call, progress
progress._PATIENCE = 0.0
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with call.watch(True, "planning"):
    time.sleep(0.4)
sys.stderr.flush()
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_process_that_was_forked_before_its_call_shows_it():
    assert "dobrushin: planning" in run(_IN_A_FORK)[1]


_A_FORK_IN_A_PAUSE = """
import os, signal, threading, time
from dobrushin._shared.clock import PAUSES, seconds
def compile_something():
    PAUSES.begin()
    PAUSES._lock.acquire()
thread = threading.Thread(target=compile_something)
thread.start()
thread.join()
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(10)
begin = seconds()
time.sleep(0.01)
os._exit(0 if seconds() > begin and PAUSES.current is None else 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_the_clock_of_a_process_that_was_forked_goes_on():
    run(_A_FORK_IN_A_PAUSE)


def test_without_a_compiler_one_sentence_says_so():
    code = "try:\n    from dobrushin import influence\nexcept ImportError as error:\n    print(error)"
    assert "NUMBA_DISABLE_JIT" in run(code, NUMBA_DISABLE_JIT="1")[0]


def wide_pair():
    return db.PairwiseMRF([np.zeros(400)] * 2, [(0, 1)], [np.random.default_rng(0).normal(size=(400, 400))])


@pytest.mark.parametrize(
    "call",
    [
        lambda: db.influence(db.Ising({(0, i): 0.1 for i in range(1, 21)}), method="exact"),
        lambda: db.influence(wide_pair(), method="paper"),
        lambda: db.influence(db.FactorGraph([2] * 17, [(range(17), np.zeros((2,) * 17))])),
        lambda: db.influence(db.Potts({(0, 1): 0.5}, 2**14, np.zeros((2, 2**14))), method="paper"),
        lambda: db.optimize_scan(db.Influence(0.1 * sparse.eye_array(70_000, k=1)), db.Scan.uniform(70_000, 1)),
    ],
)
def test_what_looks_at_its_allowance_too_rarely_is_not_interpreted(call, monkeypatch):
    """Such a call would not end for seconds; Ctrl-C and limits in time would wait for it."""

    class TooLarge(Exception):
        pass

    def code_for(kernel, operations):
        if operations > compiling.FEW_OPERATIONS:
            raise TooLarge
        return kernel

    monkeypatch.setattr(compiling, "code_for", code_for)
    with pytest.raises(TooLarge):
        call()


def test_a_field_of_finite_sets_alone_is_estimated_without_a_warning():
    field = db.GaussianField([[1.0, -0.3], [-0.3, 1.0]], linear=[0.2, 0.0], levels={0: [-1, 1], 1: [-1, 1]})
    answer = db.estimate(field, [0], tolerance=0.05, seed=1)
    assert answer.lower[0] <= math.tanh(0.2) <= answer.upper[0]


@pytest.mark.parametrize("precision", [1e-300, 5e-324])
def test_a_precision_whose_inverse_overflows_is_refused(precision):
    """No mean is said to be exactly NaN."""
    with pytest.raises(db.ArgumentError, match="positive on the diagonal, 1e-100 or more"):
        db.GaussianField([[precision]], linear=[1e10])


def test_what_is_too_large_for_a_field_is_told_the_limit():
    field = db.GaussianField([[1.0, 0.5], [0.5, 1.0]])
    with pytest.raises(db.ArgumentError, match=r"from -1e\+100 to 1e\+100\. Got 1e\+300"):
        field.condition({0: 1e300})
    with pytest.raises(db.ArgumentError, match="at most 1e100 in size"):
        db.sample(field, db.Scan([0]), initial=[1e300, 0.0])


@pytest.mark.parametrize("method", ["exact", "dobrushin", "local"])
def test_underflow_is_no_error(method):
    """People who make it one still get answers: bounds count with it."""
    model = db.Ising.grid(4, 4, couplings=0.1, fields=[500.0, -400.0] * 8)
    with np.errstate(all="raise"):
        answer = db.estimate(model, [0], method=method, seed=1)
    assert answer.is_certified
