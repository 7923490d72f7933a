"""Kernels that the interpreter runs: the same numbers, bit by bit, as compiled ones, and nothing is compiled."""

import functools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import dobrushin as db
from dobrushin._exact import order
from dobrushin._kernels import greedy
from dobrushin._shared import compile as compiling
from models import FAMILIES, FAMILIES_WITH_ZEROS, random_model
from test_pieces import closed_forms, coarse_bounds, influences, scans
from test_sums import kernel_order, plain, treacherous

pytestmark = pytest.mark.skipif(not compiling.CAN_INTERPRET, reason="NumPy before 2.0 mixes whole numbers otherwise")


@pytest.fixture
def interpreted(monkeypatch):
    """Interpret whatever may be; what was interpreted, by name."""
    used = {}

    def take(kernel):
        return used.setdefault(kernel.py_func.__name__, compiling.Interpreted(kernel))

    def begin():
        monkeypatch.setattr(compiling, "INTERPRETED_SECONDS", math.inf)
        monkeypatch.setattr(compiling, "_is_loaded", lambda _: False)
        monkeypatch.setattr(compiling, "_interpreted", functools.cache(take))
        return used

    return begin


def sums(seed):
    """Exact answers and sums near a target, with their errors."""
    parts = []
    for family in FAMILIES:
        for zeros in (False, True) if family in FAMILIES_WITH_ZEROS else (False,):
            model = random_model(np.random.default_rng(seed), family, n=6, zeros=zeros, max_states=4, strength=0.7)
            log_z = db.exact.log_partition(model)
            parts += [*db.exact.marginals(model), log_z.value, log_z.error]
            near = db.estimate(model, [0], method="local", tolerance=0.4)
            parts += [near.value, near.lower, near.upper, near.bias_bound]
    glass = db.Ising.grid(5, 5, couplings=np.random.default_rng(seed).choice([-0.2, 0.2], 40))
    tree = db.Ising({(i, (i - 1) // 2): (-1) ** i * 0.5 for i in range(1, 31)}, fields=np.full(31, 0.1))
    for model in (glass, tree):
        near = db.estimate(model, [7], method="local", tolerance=0.2)
        parts += [near.value, near.lower, near.upper, near.plan.reason]
    model, plan = treacherous()
    small = plain(model, plan)
    return [*parts, small.marginals[0], small.relative, small.absolute, small.log_partition]


def orders(seed):
    """Orders of summing by all rules."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in (1, 7, 30, 66):
        near = np.triu(rng.random((n, n)) < min(0.3, 2.0 / n), 1)
        for rule in range(4):
            parts += kernel_order(near | near.T, rule, rng.integers(2, 6, size=n), seed)
    return parts


def draws(seed):
    """Chains of the kernel for bits, and what is counted of them."""
    model = db.Ising.grid(20, 20, couplings=0.15)
    answer = db.estimate(model, [0], tolerance=0.04, method="dobrushin", seed=seed)
    samples = db.sample(model, answer.plan.scan, chains=70, seed=seed, record=db.Record(counts=True))
    return [answer.value, answer.lower, answer.bias_bound, answer.plan.scan.order, samples.counts, samples.states]


WORKS = (influences, closed_forms, coarse_bounds, scans, sums, orders, draws)


@pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
@pytest.mark.parametrize("work", WORKS)
def test_the_interpreter_gives_the_bits_of_compiled_code(work, interpreted):
    expected = work(1)
    used = interpreted()
    for part, same in zip(work(1), expected, strict=True):
        np.testing.assert_array_equal(part, same)
    assert sum(kernel.seconds for kernel in used.values()) > 0.0


@pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
@pytest.mark.parametrize("work", [influences, scans, sums])
def test_compiled_code_goes_on_where_the_interpreter_has_spent_its_allowance(work, interpreted, monkeypatch):
    expected = work(1)
    interpreted()
    monkeypatch.setattr(compiling, "FEW_OPERATIONS", 100)
    monkeypatch.setattr(order, "_LITTLE_OPERATIONS", 20)
    for part, same in zip(work(1), expected, strict=True):
        np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("work", [influences, sums])
def test_another_last_bit_of_exp_would_be_seen(work, interpreted, monkeypatch):
    """The control of the tests above."""
    expected = work(1)
    interpreted()
    exp = math.exp
    monkeypatch.setattr(math, "exp", lambda x: math.nextafter(exp(x), math.inf))
    monkeypatch.setattr(math, "log1p", lambda x: 2.0 * x)
    monkeypatch.setattr(compiling, "_plain", compiling._plain.__wrapped__)
    monkeypatch.setattr(compiling, "_as_compiled", compiling._as_compiled.__wrapped__)
    assert any(not np.array_equal(part, same) for part, same in zip(work(1), expected, strict=True))


def test_numbers_of_the_interpreter_overflow_as_compiled_ones_do():
    for module in (compiling._as_compiled(math), compiling._as_compiled(np)):
        with np.errstate(all="ignore"):
            assert module.exp(1000.0) == module.expm1(1000.0) == module.ldexp(1.0, 2000) == np.inf
            assert module.log(0.0) == module.log1p(-1.0) == -np.inf
            assert np.isnan(module.log(-1.0))
        assert module.inf == np.inf


def test_a_kernel_is_compiled_when_it_was_interpreted_for_long_or_has_much_to_do(monkeypatch):
    monkeypatch.setattr(compiling, "INTERPRETED_SECONDS", 1.0)
    kernel = compiling.kernel(sums)
    assert compiling.code_for(kernel, compiling.FEW_OPERATIONS + 1) is kernel
    code = compiling.code_for(kernel, compiling.FEW_OPERATIONS)
    assert isinstance(code, compiling.Interpreted)
    code.seconds = 1.0
    assert compiling.code_for(kernel, 0) is kernel


_FIRST_CALL = """
import dobrushin as db
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    answer = db.estimate(db.Ising.grid(1000, 1000, couplings=0.2), [0])
print(len(compiled.buffer), answer.lower.tobytes().hex(), answer.upper.tobytes().hex())
"""


def test_the_first_answer_in_a_fresh_environment_compiles_nothing(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _FIRST_CALL]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    compiled, lower, upper = done.stdout.split()
    assert int(compiled) == 0
    answer = db.estimate(db.Ising.grid(1000, 1000, couplings=0.2), [0])
    assert (lower, upper) == (answer.lower.tobytes().hex(), answer.upper.tobytes().hex())


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
