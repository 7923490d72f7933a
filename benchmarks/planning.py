"""Measure how long planning takes on models of every shape, and how soon it ends when it is interrupted.

usage: python benchmarks/planning.py [--methods auto ...] [--only TEXT] [--interrupt SECONDS]

For each shape, targets and method: seconds of `plan` (without those in which kernels were compiled), what it said, and
whether it kept to its limit (and two seconds for the last step). Every case has a process of its own; one that is far
over its limit is ended, with its stack. `--interrupt` sends Ctrl-C after so many seconds instead, and prints how long
the process took to end.
"""

from __future__ import annotations

import argparse
import faulthandler
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
    options = parser.parse_args()
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
