"""Measure how long planning takes on models of every shape, and how soon it ends when it is interrupted.

usage: python benchmarks/planning.py [--methods auto ...] [--only TEXT] [--interrupt SECONDS] [--needed]

For each shape, targets and method: seconds of `plan` (without those in which kernels were compiled), what it said, and
whether it kept to its limit (and two seconds for the last step). Every case has a process of its own; one that is far
over its limit is ended, with its stack. `--interrupt` sends Ctrl-C after so many seconds instead, and prints how long
the process took to end. `--needed` runs smaller calls instead, and prints the seconds that their plans expect beside
those that they need: a plan is right within a factor of 2, or within 0.1 s of short work, and takes at most a tenth of
what it plans or one second.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin._models.couplings import symmetric
from dobrushin._shared import clock
from dobrushin._shared.call import PLANNING

_METHODS = ("auto", "dobrushin", "local", "exact", "parts", "coalescence")
_SLACK = 2.0


def _star(leaves: int, strength: float) -> db.Model:
    hub, rays = np.zeros(leaves, dtype=np.int64), np.arange(1, leaves + 1)
    return db.Ising(symmetric(hub, rays, np.full(leaves, strength), leaves + 1))


def _clique(n: int, strength: float) -> db.Model:
    return db.Ising(strength * (np.ones((n, n)) - np.eye(n)))


def _chain(n: int, strength: float) -> db.Model:
    return db.Ising(symmetric(np.arange(n - 1), np.arange(1, n), np.full(n - 1, strength), n))


def _isolated(n: int) -> db.Model:
    nothing = np.zeros(0, dtype=np.int64)
    return db.Ising(symmetric(nothing, nothing, np.zeros(0), n), np.linspace(-1.0, 1.0, n))


def _wide_factor(scale: float) -> db.Model:
    table = scale * np.random.default_rng(1).normal(size=(2,) * 20)
    return db.FactorGraph([2] * 20, [(range(20), table)])


def _regular(n: int, degree: int, strength: float) -> db.Model:
    rng = np.random.default_rng(1)
    ends = [(a, b) for _ in range(degree // 2) for a, b in [(np.arange(n), rng.permutation(n))]]
    pairs = np.sort(np.concatenate([np.stack(e, axis=1) for e in ends]), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    return db.Ising(symmetric(pairs[:, 0], pairs[:, 1], np.full(len(pairs), strength), n))


def _colouring(side: int, colours: int) -> db.Model:
    site = np.arange(side * side).reshape(side, side)
    right = np.stack([site[:, :-1].ravel(), site[:, 1:].ravel()], axis=1)
    down = np.stack([site[:-1].ravel(), site[1:].ravel()], axis=1)
    differ = np.where(np.eye(colours, dtype=bool), -np.inf, 0.0)
    edges = np.concatenate([right, down])
    return db.PairwiseMRF(np.zeros((side * side, colours)), edges, np.broadcast_to(differ, (len(edges), *differ.shape)))


_MANY, _SIDE = 10**6, 1000
SHAPES: dict[str, tuple[Callable[[], db.Model], tuple[Any, ...]]] = {
    "star of 10^6, 0.001": (lambda: _star(_MANY, 0.001), (0, 1, "all")),
    "star of 10^6, 0.5": (lambda: _star(_MANY, 0.5), (0, 1, "all")),
    "clique of 2000, 0.0002": (lambda: _clique(2000, 0.0002), (0, "all")),
    "clique of 2000, 0.1": (lambda: _clique(2000, 0.1), (0, "all")),
    "chain of 10^6, 0.3": (lambda: _chain(_MANY, 0.3), (0, _MANY // 2, "all")),
    "chain of 10^6, 3": (lambda: _chain(_MANY, 3.0), (0, _MANY // 2, "all")),
    "10^6 isolated": (lambda: _isolated(_MANY), (0, "all")),
    "factor over 20, weak": (lambda: _wide_factor(0.01), (0, "all")),
    "factor over 20, strong": (lambda: _wide_factor(2.0), (0, "all")),
    "Potts 200 states": (lambda: db.Potts.grid(30, 30, states=200, couplings=1.0), (0, "all")),
    "Potts 30000 states": (lambda: db.Potts.grid(3, 3, states=30_000, couplings=1.0), (0,)),
    "grid 1000 x 1000, 0.2": (lambda: db.Ising.grid(_SIDE, _SIDE, couplings=0.2), (0, "all")),
    "grid 1000 x 1000, 0.5": (lambda: db.Ising.grid(_SIDE, _SIDE, couplings=0.5), (0, "all")),
    "grid 1000 x 1000, 1.0": (lambda: db.Ising.grid(_SIDE, _SIDE, couplings=1.0), (0, "all")),
    "random graph of 10^6, degree 6, 0.3": (lambda: _regular(_MANY, 6, 0.3), (0, "all")),
    "random graph of 10^5, degree 20, 0.3": (lambda: _regular(_MANY // 10, 20, 0.3), (0, "all")),
    "5 colours on 300 x 300": (lambda: _colouring(300, 5), (0, "all")),
    "12 colours on 300 x 300": (lambda: _colouring(300, 12), (0, "all")),
}


# -- planned beside needed -------------------------------------------------------------------


def _glass(n: int, size: float) -> db.Ising:
    upper = np.triu(np.random.default_rng(0).normal(0.0, size / np.sqrt(n), (n, n)), 1)
    return db.Ising(upper + upper.T, np.full(n, 0.1))  # with fields, since without them marginals are 1/2 by symmetry


def _frustrated(side: int, size: float) -> db.Model:
    rng = np.random.default_rng(2)
    grid = db.Ising.grid(side, side, couplings=1.0)
    pairs = np.argwhere(np.triu(grid.couplings.toarray()))
    values = rng.choice([-size, size], len(pairs))
    return db.Ising(symmetric(pairs[:, 0], pairs[:, 1], values, side * side), rng.normal(0.0, 0.2, side * side))


def _network(n: int, size: float = 0.15) -> db.FactorGraph:
    """Return random tables over three of n variables with three states each."""
    rng = np.random.default_rng(3)
    scopes = [rng.choice(n, 3, replace=False).tolist() for _ in range(n)]
    return db.FactorGraph([3] * n, [(scope, rng.normal(0.0, size, (3, 3, 3))) for scope in scopes])


def _noisy(side: int, states: int, coupling: float) -> db.Model:
    unaries = np.random.default_rng(4).normal(size=(side, side, states))
    return db.Potts.grid(side, side, states=states, couplings=coupling, unaries=unaries)


def _torus(side: int, coupling: float) -> db.Model:
    return db.Ising.grid(side, side, couplings=coupling, fields=0.01, periodic=True)


# Model, targets (or a function of the model that makes them), and other arguments of `plan` and `estimate`.
CALLS: dict[str, tuple[Callable[[], db.Model], Any, dict[str, Any]]] = {
    "torus 40, 0.2": (lambda: _torus(40, 0.2), "all", {"tolerance": 0.02}),
    "torus 100, 0.2": (lambda: _torus(100, 0.2), "all", {"tolerance": 0.02}),
    "torus 40, 0.2, dobrushin": (lambda: _torus(40, 0.2), "all", {"tolerance": 0.01, "method": "dobrushin"}),
    "torus 40, 0.35, coalescence": (lambda: _torus(40, 0.35), "all", {"tolerance": 0.03, "method": "coalescence"}),
    "torus 30, 0.42, clusters": (lambda: _torus(30, 0.42), "all", {"tolerance": 0.03, "method": "clusters"}),
    "torus 60, 0.5, clusters": (lambda: _torus(60, 0.5), [0, 1], {"tolerance": 0.01, "method": "clusters"}),
    "grid 300, one spin": (lambda: db.Ising.grid(300, 300, couplings=0.2), [45150], {"tolerance": 0.001}),
    "grid 300, one spin, dobrushin": (
        lambda: db.Ising.grid(300, 300, couplings=0.2),
        [45150],
        {"tolerance": 0.002, "method": "dobrushin"},
    ),
    "grid 300, a statistic": (
        lambda: db.Ising.grid(300, 300, couplings=0.15),
        db.Statistic.magnetisation,
        {"tolerance": 0.05, "method": "dobrushin"},
    ),
    "grid 14 x 14, exact": (lambda: db.Ising.grid(14, 14, couplings=0.6, fields=0.1), "all", {"method": "exact"}),
    "grid 18 x 18, exact": (lambda: db.Ising.grid(18, 18, couplings=0.6, fields=0.1), "all", {"method": "exact"}),
    "grid 20 x 20, exact": (lambda: db.Ising.grid(20, 20, couplings=0.6, fields=0.1), "all", {"method": "exact"}),
    "chain of 10^5, all": (lambda: _chain(10**5, 0.8), "all", {"method": "exact"}),
    "spin glass grid 12": (lambda: _frustrated(12, 1.0), "all", {"tolerance": 0.02}),
    "spin glass grid 40, 0.3": (lambda: _frustrated(40, 0.3), "all", {"tolerance": 0.03}),
    "spin glass grid 40, 0.25, walks": (lambda: _frustrated(40, 0.25), [820], {"tolerance": 0.05, "method": "walks"}),
    "Sherrington-Kirkpatrick 300, 0.05": (lambda: _glass(300, 0.05), "all", {"tolerance": 0.03}),
    "Sherrington-Kirkpatrick 60, 0.4": (lambda: _glass(60, 0.4), "all", {"tolerance": 0.05}),
    "Potts 30, 5 states": (lambda: _noisy(30, 5, 0.3), "all", {"tolerance": 0.03}),
    "Potts 30, 5 states, coalescence": (
        lambda: _noisy(30, 5, 0.4),
        "all",
        {"tolerance": 0.05, "method": "coalescence"},
    ),
    "Potts 8 x 8, 5 states, exact": (lambda: _noisy(8, 5, 0.8), "all", {"method": "exact"}),
    "Potts 200, one site": (lambda: _noisy(200, 4, 0.4), [20_100], {"tolerance": 0.005}),
    "tables of 3, 300 variables": (lambda: _network(300), "all", {"tolerance": 0.03}),
    "tables of 3, dobrushin": (lambda: _network(300, 0.08), [0, 1], {"tolerance": 0.01, "method": "dobrushin"}),
    "tables of 3, coalescence": (lambda: _network(200), [0, 1], {"tolerance": 0.02, "method": "coalescence"}),
    "5 colours on 6 x 6, exact": (lambda: _colouring(6, 5), "all", {"method": "exact"}),
    "5 colours on 7 x 7, exact": (lambda: _colouring(7, 5), "all", {"method": "exact"}),
    "star of 2000": (lambda: _star(2000, 0.02), "all", {"tolerance": 0.02, "method": "dobrushin"}),
    "random graph of 2000, degree 6": (
        lambda: _regular(2000, 6, 0.12),
        "all",
        {"tolerance": 0.03, "method": "dobrushin"},
    ),
    "spin glass 9 x 9, weights": (lambda: _frustrated(9, 1.0), "all", {"tolerance": 0.03, "method": "weights"}),
}
# Plans may be wrong by this factor, or by these seconds; planning may take this share of what it plans, or a second.
_FACTOR, _SHORT, _SHARE, _PLANNING_SECONDS = 2.0, 0.1, 0.1, 1.0


def _measure_call(name: str) -> None:
    """Plan and run a call in this process; the last line has the seconds: by the clock, and of processors."""
    make, targets, options = CALLS[name]
    os.cpu_count = lambda: 1  # on one core, the processor time of a run is what its plan expects
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # On a model of its own: this compiles, and what was found for one model is not known for another.
    first, model = make(), make()
    db.estimate(first, targets(first) if callable(targets) else targets, seed=1, **options)
    targets = targets(model) if callable(targets) else targets
    try:
        marks = [(clock.seconds(), time.process_time())]
        plan = db.plan(model, targets, **options)
        marks.append((clock.seconds(), time.process_time()))
        db.estimate(model, targets, seed=2, **options)
        marks.append((clock.seconds(), time.process_time()))
        db.plan(model, targets, **options)
        marks.append((clock.seconds(), time.process_time()))
    except (db.CertificateError, db.BudgetError) as refusal:
        print(f"refused: {refusal}")
        return
    planning, answering, known = np.diff(np.array(marks), axis=0)
    needed = np.maximum(answering - known, 0.0)  # `estimate` plans as well
    print(plan.method, plan.seconds, *planning, *needed)


def _compare(only: str) -> None:
    table, wrong, total = Table("call", "method", "planning", "planned", "needed", "processors", "factor", ""), 0, 0
    for name in CALLS:
        if only not in name:
            continue
        done = subprocess.run([sys.executable, __file__, "--call", name], capture_output=True, text=True, check=False)
        words = done.stdout.strip().splitlines()[-1:] or done.stderr.strip().splitlines()[-1:]
        total += 1
        try:
            method, *numbers = words[0].split()
            planned, planning, planning_cpu, wall, cpu = map(float, numbers)
        except ValueError:
            table.add_row(name, words[0][:60])
            wrong += 1
            continue
        is_right = abs(planned - cpu) <= _SHORT or planned / _FACTOR <= cpu <= planned * _FACTOR
        is_quick = planning_cpu <= max(_SHARE * planned, _PLANNING_SECONDS)
        verdict = " and ".join(["wrong"] * (not is_right) + ["slow planning"] * (not is_quick)) or "ok"
        wrong += verdict != "ok"
        seconds = (f"{planning:.2f} ({planning_cpu:.2f})", f"{planned:.3g}", f"{wall:.3g}", f"{cpu:.3g}")
        table.add_row(name, method, *seconds, f"{cpu / planned:.2g}" if planned else "", verdict)
        print(name, method, *seconds, verdict, file=sys.stderr)
    Console(width=160).print(table)
    print(f"{total - wrong} of {total} plans are right")


# -- planning alone --------------------------------------------------------------------------


def _run_one(shape: str, number: int, method: str) -> None:
    """Plan one case in this process; the last line is for the parent."""
    make, targets = SHAPES[shape]
    model = make()
    print("ready", flush=True)
    faulthandler.dump_traceback_later(2 * PLANNING, exit=True)
    begin, cpu = clock.seconds(), time.process_time()
    try:
        words = f"plan: {db.plan(model, targets[number], tolerance=0.05, method=method).method}"
    except (db.CertificateError, db.BudgetError, db.ArgumentError) as refusal:
        words = f"refused: {refusal}"
    except KeyboardInterrupt:
        words = "interrupted"
    seconds, cpu = clock.seconds() - begin, time.process_time() - cpu
    faulthandler.cancel_dump_traceback_later()
    print(f"{seconds:.2f} ({cpu:.1f} s of processors) {words}", flush=True)


def _watch(shape: str, number: int, method: str, interrupt: float | None) -> tuple[float, str]:
    """Seconds that a case took, or took to end after Ctrl-C; and what it said."""
    command = [sys.executable, __file__, "--one", shape, str(number), method]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    begin = time.perf_counter()
    if interrupt is not None:
        try:
            child.wait(interrupt)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
    out, errors = child.communicate()
    if not out.strip():
        frames = [line.strip() for line in errors.splitlines() if "dobrushin" in line]
        return time.perf_counter() - begin, "ENDED at " + " < ".join(frame.split("/")[-1] for frame in frames[:4])
    seconds, words = out.strip().splitlines()[-1].split(" ", 1)
    if interrupt is None:
        return float(seconds), words
    return max(0.0, time.perf_counter() - begin - interrupt), words


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure how long planning takes.")
    parser.add_argument("--methods", nargs="+", default=_METHODS, choices=_METHODS, help="only these")
    parser.add_argument("--only", default="", help="shapes whose names have this text")
    parser.add_argument("--interrupt", type=float, help="send Ctrl-C after so many seconds")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--needed", action="store_true", help="compare the seconds of plans with those of runs")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call:
        _measure_call(options.call)
        return
    if options.needed:
        _compare(options.only)
        return
    if options.one:
        _run_one(options.one[0], int(options.one[1]), options.one[2])
        return
    limit = PLANNING if options.interrupt is None else 0.0
    heading = "seconds" if options.interrupt is None else "seconds to end"
    table, over = Table("shape", "targets", "method", heading, "limit", "", "outcome"), 0
    for shape, (_, targets) in SHAPES.items():
        for number, target in enumerate(targets if options.only in shape else ()):
            for method in options.methods:
                seconds, words = _watch(shape, number, method, options.interrupt)
                is_over = seconds > limit + _SLACK
                over += is_over
                verdict = "over" if is_over else "ok"
                table.add_row(shape, str(target), method, f"{seconds:.2f}", f"{limit:g}", verdict, words[:120])
                print(f"{shape} | {target} | {method}: {seconds:.2f} s, {verdict}, {words[:300]}", file=sys.stderr)
    Console(width=160).print(table)
    print(f"{over} cases over the limit")


if __name__ == "__main__":
    main()
