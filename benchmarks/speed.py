"""How long it takes and how much memory: figures at a million variables, and the time to import."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dobrushin as db
from measure import Row, best_of, one_core, random_ising, seconds
from plain import gibbs_update

_HERE = Path(__file__).parent
_SIDE = 1000
_STEPS = 4 * 10**6
# Gibbs updates that a step of DoGS may cost.
_UPDATES_A_STEP = 8
# States at which all double differences are timed.
_LITERAL = 60
# Seconds that Ctrl-C may have to wait, and between two signals that measure it.
_WAIT, _TICK = 0.2, 0.005
# How much slower at 10^6 than at 10^4 variables still counts as the same.
_SAME = 1.25

# Parts that need an extra may be missing.
_IMPORT = """
import contextlib, time
begin = time.perf_counter()
import dobrushin
imported = time.perf_counter()
for name in dobrushin.__all__:
    with contextlib.suppress(ImportError):
        getattr(dobrushin, name)
print(imported - begin, time.perf_counter() - imported)
"""


def million_setup(model: db.Ising) -> list[Row]:
    """Everything that the million-variable experiment needs before it samples."""
    times = {}
    with one_core():
        for method in ("paper", "best"):
            times[method] = best_of(lambda method=method: _set_up(model, method))
    measured = f"{times['paper']:.2f} s by the paper's bound, {times['best']:.2f} s by the best one"
    return [Row("Ising 1000x1000: set-up on one core", measured, "under 1 s", max(times.values()) < 1)]


def _set_up(model: db.Ising, method: str) -> db.ScanResult:
    influence = db.influence(model, method=method)
    scan = db.Scan.systematic(model.n_variables, steps=2 * 10**6)
    tolerance = db.variation(influence, scan, targets=[0]).value
    return db.shortest_scan(influence, targets=[0], tolerance=tolerance)


def influence_of_many_states() -> list[Row]:
    """Theorem 4 on one edge, against the time that all double differences one by one would take."""
    rng = np.random.default_rng(0)
    small = rng.normal(size=(_LITERAL, _LITERAL))
    literal = 2 * best_of(lambda: _all_double_differences(small)) / _LITERAL**4
    rows = []
    for states, limit in ((200, 0.1), (1000, 5.0)):
        unaries, table = rng.normal(size=(2, states)), 0.3 * rng.normal(size=(states, states))
        edge = db.PairwiseMRF(unaries, [(0, 1)], [table])
        with one_core():
            taken = best_of(lambda edge=edge: db.influence(edge))
        measured = f"{taken:.3g} s, 1/{literal * states**4 / taken:.2g} of states^4 in NumPy"
        rows.append(Row(f"influence, one edge, {states} states", measured, f"{limit:g} s or less", taken <= limit))
    return rows


def _all_double_differences(table: np.ndarray) -> float:
    """The largest double difference of a table, all of them looked at."""
    differences = table[:, :, None] - table[:, None, :]
    return max(float((differences[a] - differences).max()) for a in range(len(table)))


def waits_for_signals(model: db.Ising) -> list[Row]:
    """The longest time without a look at signals, in calls that take seconds."""
    rng = np.random.default_rng(0)
    influence = db.influence(model)
    order = rng.integers(0, model.n_variables, _STEPS)
    edge = db.PairwiseMRF(np.zeros((2, 1000)), [(0, 1)], [0.3 * rng.normal(size=(1000, 1000))])
    calls: dict[str, Callable[[], object]] = {
        "influence, 1000 states": lambda: db.influence(edge),
        "variation, n = 10^6, T = 4x10^6, any order": lambda: db.variation(influence, db.Scan(order)),
        "optimize, the same": lambda: db.optimize_scan(influence, db.Scan(order)),
        "greedy_scan, n = T = 10^6": lambda: db.greedy_scan(influence, steps=_SIDE**2),
    }
    rows = []
    for name, call in calls.items():
        call()
        name, required = f"longest wait of Ctrl-C: {name}", f"about {_WAIT} s"
        if not hasattr(signal, "SIGVTALRM"):
            rows.append(Row(name, "needs Unix", required, None))
            continue
        longest, total = _longest_wait(call)
        rows.append(Row(name, f"{longest:.2f} s of {total:.2g} s", required, longest <= 1.5 * _WAIT))
    return rows


def _longest_wait(call: Callable[[], object]) -> tuple[float, float]:
    """The longest time between two looks at signals, and the time of the call: of the processor, not by the clock."""
    looks = [time.process_time()]
    before = signal.signal(signal.SIGVTALRM, lambda *_: looks.append(time.process_time()))
    signal.setitimer(signal.ITIMER_VIRTUAL, _TICK, _TICK)
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    looks.append(time.process_time())
    return float(np.diff(looks).max()), looks[-1] - looks[0]


def optimize_time(model: db.Ising) -> list[Row]:
    """One round of DoGS, in units of a Gibbs update."""
    name = "optimize, n = 10^6, T = 4x10^6, d = 1: time per step"
    influence = db.influence(model)
    scan = db.Scan.systematic(model.n_variables, steps=_STEPS)
    with one_core():
        step = 1e9 * best_of(lambda: db.optimize_scan(influence, scan)) / _STEPS
        update = gibbs_update(model, sweeps=4, runs=5)
    if update is None:
        return [
            Row(name, f"{step:.0f} ns; no C compiler to compare with", f"{_UPDATES_A_STEP} Gibbs updates or less", None)
        ]
    measured = f"{step / update:.1f} Gibbs updates ({step:.0f} ns / {update:.1f} ns)"
    return [Row(name, measured, f"{_UPDATES_A_STEP} Gibbs updates or less", step <= _UPDATES_A_STEP * update)]


def optimize_memory() -> list[Row]:
    """Peak memory of the same call, in a process of its own."""
    name = "optimize, n = 10^6, T = 4x10^6, d = 1: memory"
    limit = 64 * _STEPS + 300 * _SIDE**2
    required = f"64 T + 300 n = {limit / 1e6:.0f} MB"
    command = [sys.executable, str(_HERE / "memory_probe.py"), str(_SIDE), str(_STEPS)]
    peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if peak is None:
        return [Row(name, "needs Linux", required, None)]
    return [Row(name, f"{peak / 1e6:.0f} MB above what the influence takes", required, peak <= limit)]


def shortest_scan_time() -> list[Row]:
    """Shortest scan for one target given the model alone, which must not depend on the model's size."""
    return [row for tolerance in (0.05, 0.01) for row in _search_times(tolerance)]


def _search_times(tolerance: float) -> list[Row]:
    first, again = {}, {}
    for side in (100, _SIDE):
        first[side] = min(_first_search(side, tolerance) for _ in range(3))
        model = _even_grid(side)
        again[side] = 1e3 * best_of(lambda model=model: _search(model, tolerance), repeats=50)
    steps = len(_search(model, tolerance).scan)
    ratio = again[_SIDE] / again[100]
    name = f"shortest_scan from the model, one target, tolerance {tolerance}"
    measured = f"{again[_SIDE]:.2f} ms, {first[_SIDE]:.2f} ms the first time; {steps} steps"
    same = f"{ratio:.2f}x ({again[_SIDE]:.2f} ms / {again[100]:.2f} ms)"
    return [
        Row(f"{name}: n = 10^6", measured, "under 5 ms", first[_SIDE] < 5),
        Row(f"{name}: n = 10^6 / 10^4", same, f"the same (within {_SAME}x)", ratio <= _SAME),
    ]


def _even_grid(side: int) -> db.Ising:
    """Equal couplings, so that grids of all sizes have the same shortest scan."""
    return db.Ising.grid(side, side, couplings=0.2)


def _search(model: db.Ising, tolerance: float) -> db.ScanResult:
    return db.shortest_scan(model, targets=[0], tolerance=tolerance)


def _first_search(side: int, tolerance: float) -> float:
    """Milliseconds of the first call on a new model, kernels compiled."""
    _search(_even_grid(10), tolerance)
    model = _even_grid(side)
    return 1e3 * seconds(lambda: _search(model, tolerance))


def import_time() -> list[Row]:
    """Import with every public name loaded, in new processes."""

    def one() -> tuple[float, float]:
        # Compiled modules are kept, as they are where the package is installed.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-c", _IMPORT]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, env=kept).stdout
        bare, names = map(float, printed.split())
        return bare, names

    one()
    bare, names = min((one() for _ in range(5)), key=sum)
    measured = f"{bare:.3f} s, and {names:.2f} s at first use of all names"
    return [Row("import dobrushin, warm", measured, "under 0.6 s together", bare + names < 0.6)]


def million_model() -> db.Ising:
    """The model of the paper's Section 5.2."""
    return random_ising(_SIDE, seed=0)
