"""Measure the seconds that plans expect beside those that the work takes, for each constant that plans rest on.

usage: OPENBLAS_NUM_THREADS=1 python benchmarks/rates.py [--only TEXT] [--threads N] [--repeats N]

Plans expect seconds on all cores. Here they are made for one core, and seconds are those of the processor, so that
other work on the machine hardly changes them. A first call is left out: it compiles, and makes tables that a model
keeps. With `--threads 2` the same work runs on two threads: the seconds of both together, which should be the same.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from rich.table import Table

import dobrushin as db
from dobrushin._coalescence.clusters import draw_clusters, expected_seconds, try_runner
from dobrushin._coalescence.sets import choose_sets
from dobrushin._estimate.weights import SECONDS_PER_PAIR, weighted_interval
from dobrushin._exact.engine import plan_sums
from dobrushin._exact.minibuckets import MiniBuckets, lay_out
from dobrushin._sampling.kernel import choose_kernel
from dobrushin._sampling.weighted import Tries, draw_weighted
from dobrushin._shared.call import Deadline
from dobrushin._shared.running import PLAIN
from measure import random_ising, wide_console
from planning import _chain, _frustrated, _glass, _network, _noisy, _regular, _torus
from tables import as_tables
from workloads import glass, many_neighbors

# A plan is right within this factor.
_FACTOR = 1.5


class Case(NamedTuple):
    """Some work: what a plan expects of it, and a function that does it."""

    constant: str
    work: str
    make: Callable[[], tuple[float, Callable[[], object]]]


def cases(pool: ThreadPoolExecutor) -> Iterator[Case]:
    """Work of about a tenth of a second to a second for each constant."""
    yield from _kernels(pool)
    yield from _sets(pool)
    for work, model, targets in (
        ("torus 30, 0.42, all", partial(_torus, 30, 0.42), None),
        ("torus 60, 0.5, two sites", partial(_torus, 60, 0.5), np.array([0, 1])),
        ("torus 200, 0.3, one site", partial(_torus, 200, 0.3), np.array([0])),
    ):
        yield Case("seconds per visit of clusters", work, partial(_clusters, model, targets))
    for work, model in (
        ("spin glass 9 x 9", partial(_frustrated, 9, 1.0)),
        ("spin glass 12 x 12", partial(_frustrated, 12, 1.0)),
        ("Sherrington-Kirkpatrick 60", partial(_glass, 60, 0.4)),
        ("tables of 3, 60 variables", partial(_network, 60, 0.3)),
    ):
        yield Case("seconds per step and read of a try", work, partial(_tries, model))
        yield Case("seconds per entry and table of a round", work, partial(_round, model))
    for tries in (1000, 30_000):
        yield Case("seconds per try of a row's intervals", f"{tries} tries", partial(_intervals, tries))
    for work, model in (
        ("grid 14 x 14", lambda: db.Ising.grid(14, 14, couplings=0.6, fields=0.1)),
        ("grid 18 x 18", lambda: db.Ising.grid(18, 18, couplings=0.6, fields=0.1)),
        ("Potts 8 x 8, 5 states", partial(_noisy, 8, 5, 0.8)),
        ("Potts 5 x 5, 20 states", partial(_noisy, 5, 20, 0.8)),
        ("chain of 10^5", partial(_chain, 10**5, 0.8)),
        ("tables of 3, 20 variables", partial(_network, 20, 0.3)),
    ):
        yield Case("seconds per table and entry of sums", work, partial(_sums, model))


def _kernels(pool: ThreadPoolExecutor) -> Iterator[Case]:
    small, six = partial(random_ising, 10, 0), partial(_regular, 2000, 6, 0.12)
    equal, different = (partial(lambda e: many_neighbors(8, e)[1], e) for e in (True, False))
    for kernel, work, model, chains, updates, scan in (
        ("bits", "Ising 10x10, 64 chains", small, 64, 2e8, "sweeps"),
        ("bits", "Ising 10x10, 1024 chains", small, 1024, 5e8, "sweeps"),
        ("bits", "torus 40, 8192 chains", partial(_torus, 40, 0.2), 8192, 1e9, "sweeps"),
        ("bits", "random graph of degree 6, 8192 chains", six, 8192, 5e8, "sweeps"),
        ("bits", "random graph of degree 6, 128 chains", six, 128, 1e8, "sweeps"),
        ("counts", "8 equal neighbours, 4096 chains", equal, 4096, 5e8, "sweeps"),
        ("table", "Ising 10x10, 8 chains", small, 8, 3e7, "sweeps"),
        ("table", "Ising 10x10, 64 chains, random steps", small, 64, 1e7, "random"),
        ("field", "8 neighbours, 64 chains", different, 64, 3e7, "sweeps"),
        ("field", "8 neighbours, 4096 chains", different, 4096, 3e7, "sweeps"),
        ("field", "8 neighbours, 1 chain", different, 1, 1e7, "sweeps"),
        ("field", "Ising 40x40, 1 chain", partial(random_ising, 40, 0), 1, 1e7, "sweeps"),
        ("dense", "Sherrington-Kirkpatrick 1000, 1024 chains", glass, 1024, 1e7, "sweeps"),
        ("dense", "Sherrington-Kirkpatrick 300, 4096 chains", partial(_glass, 300, 0.05), 4096, 1e7, "sweeps"),
        ("dense", "Sherrington-Kirkpatrick 300, 1 chain", partial(_glass, 300, 0.05), 1, 3e6, "sweeps"),
        *(
            ("potts", f"Potts 30x30, {k} states, {chains} chains", partial(_noisy, 30, k, 0.3), chains, 5e6, "sweeps")
            for k in (3, 5, 21)
            for chains in (1, 1024)
        ),
        ("conditional", "tables of 3, 256 chains", partial(_network, 300), 256, 1e7, "sweeps"),
        ("conditional", "tables of 3, 4096 chains", partial(_network, 300), 4096, 1e7, "sweeps"),
        *(
            ("conditional", f"{k} states as tables of pairs", partial(_pairs, k), 1024, 1e7, "sweeps")
            for k in (3, 8, 21)
        ),
        ("factors", "tables of 3, 64 chains", partial(_network, 300), 64, 3e6, "sweeps"),
        ("factors", "8 states as tables of pairs", partial(_pairs, 8), 64, 3e6, "sweeps"),
    ):
        yield Case(f"rate of {kernel}", work, partial(_sampling, pool, kernel, model, chains, updates, scan))


def _sets(pool: ThreadPoolExecutor) -> Iterator[Case]:
    for work, model, runs, updates in (
        ("Ising 10x10, 64 runs", partial(random_ising, 10, 0), 64, 1e8),
        ("torus 40, 1024 runs", partial(_torus, 40, 0.35), 1024, 3e8),
        ("torus 40, 8192 runs", partial(_torus, 40, 0.35), 8192, 3e8),
        ("random graph of degree 6, 4096 runs", partial(_regular, 2000, 6, 0.12), 4096, 1e8),
        ("8 neighbours, 1024 runs", lambda: many_neighbors(8, False)[1], 1024, 2e7),
        ("Sherrington-Kirkpatrick 300, 512 runs", partial(_glass, 300, 0.05), 512, 1e6),
        ("Potts 30x30, 3 states, 1024 runs", partial(_noisy, 30, 3, 0.4), 1024, 5e6),
        ("Potts 30x30, 5 states, 1024 runs", partial(_noisy, 30, 5, 0.4), 1024, 5e6),
        ("Potts 30x30, 21 states, 256 runs", partial(_noisy, 30, 21, 0.4), 256, 1e6),
        ("tables of 3, 1024 runs", partial(_network, 200), 1024, 2e6),
        ("3 states as tables of pairs, 1024 runs", partial(_pairs, 3), 1024, 5e6),
        ("8 states as tables of pairs, 1024 runs", partial(_pairs, 8), 1024, 1e6),
    ):
        kernel = choose_sets(model(), db.Scan.systematic(1, 1)).name
        yield Case(f"rate of {kernel}", work, partial(_settling, pool, model, runs, updates))


def _pairs(states: int) -> db.PairwiseMRF:
    return as_tables(_noisy(20, states, 0.3))


# -- the work ----------------------------------------------------------------------------------


def _sampling(
    pool: ThreadPoolExecutor, name: str, make: Callable[[], db.Model], chains: int, updates: float, kind: str
) -> tuple[float, Callable[[], object]]:
    model = make()
    n = model.n_variables
    steps = max(1, int(updates / (chains * n))) * n
    scan = db.Scan.uniform(n, steps) if kind == "random" else db.Scan.systematic(n, steps)
    expected = choose_kernel(model, scan, chains, name).seconds(float(steps) * chains, scan)
    run = db.RunOptions(executor=pool, backend="cpu")
    return expected, lambda: db.sample(model, scan, chains=chains, seed=1, record="counts", kernel=name, run=run)


def _settling(
    pool: ThreadPoolExecutor, make: Callable[[], db.Model], runs: int, updates: float
) -> tuple[float, Callable[[], object]]:
    model = make()
    n = model.n_variables
    scan = db.Scan.systematic(n, max(1, int(updates / (runs * n))) * n)
    run = db.RunOptions(executor=pool, backend="cpu")
    expected = choose_sets(model, scan).seconds(float(len(scan)) * runs, scan)
    return expected, lambda: db.coalescence(model, scan, runs=runs, seed=1, run=run)


def _clusters(make: Callable[[], db.Model], targets: np.ndarray | None) -> tuple[float, Callable[[], object]]:
    model = make()
    positions = np.arange(model.n_variables) if targets is None else targets
    runner = try_runner(model, positions, math.inf)
    assert runner is not None
    draws = max(8, int(0.5 / runner.draw_seconds))
    return expected_seconds(runner, draws), lambda: draw_clusters(
        runner, range(draws), np.random.SeedSequence(1), PLAIN
    )


def _tries(make: Callable[[], db.Model]) -> tuple[float, Callable[[], object]]:
    form = make()._form
    made = MiniBuckets(form.tables(), lay_out(form.tables(), 12.0))
    made.begin()
    runner = Tries.make(made, np.arange(form.n_variables), -math.inf)
    tries = max(100, int(0.5 / runner.try_seconds))
    return tries * runner.try_seconds, lambda: draw_weighted(runner, range(tries), np.random.SeedSequence(1))


def _round(make: Callable[[], db.Model]) -> tuple[float, Callable[[], object]]:
    form = make()._form
    layout = lay_out(form.tables(), 12.0)
    made = MiniBuckets(form.tables(), layout)
    made.begin()

    def match() -> None:
        made.shifts = made.backward(0.04)
        made.forward(tight=True)

    return layout.pass_seconds, match


def _intervals(tries: int) -> tuple[float, Callable[[], object]]:
    rng = np.random.default_rng(0)
    z = rng.random(tries)
    y, before = z * (rng.random(tries) < 0.4), np.array([50.0, 20.0, 10.0])
    return tries * SECONDS_PER_PAIR, lambda: weighted_interval(y, z, 0.03, 1e-4, before)


def _sums(make: Callable[[], db.Model]) -> tuple[float, Callable[[], object]]:
    tables = make()._form.tables()
    plan = plan_sums(tables, [(v,) for v in range(tables.n_variables)], math.inf)
    return plan.seconds, lambda: plan.run(tables)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure the constants with which plans expect seconds.")
    parser.add_argument("--only", default="", help="constants or work whose names have this text")
    parser.add_argument("--threads", type=int, default=1, help="threads that draw")
    parser.add_argument("--repeats", type=int, default=2, help="calls, of which the fastest counts")
    options = parser.parse_args()
    os.cpu_count = lambda: 1  # plans are for one core
    table, wrong, total = Table("constant", "work", "expected", "processor", "factor", ""), 0, 0
    with ThreadPoolExecutor(options.threads) as pool, Deadline(math.inf):
        for case in cases(pool):
            if options.only not in f"{case.constant}: {case.work}":
                continue
            expected, work = case.make()
            work()
            found = []
            for _ in range(options.repeats):
                begin = time.process_time()
                work()
                found.append(time.process_time() - begin)
            factor = min(found) / expected
            is_right = 1 / _FACTOR <= factor <= _FACTOR
            total, wrong = total + 1, wrong + (not is_right)
            row = (f"{expected:.3g}", f"{min(found):.3g}", f"{factor:.2f}", "ok" if is_right else "wrong")
            table.add_row(case.constant, case.work, *row)
            print(case.constant, case.work, *row, sep=" | ", flush=True)
    console = wide_console()
    console.print(table)
    console.print(f"{total - wrong} of {total} are right within a factor of {_FACTOR:g}", highlight=False)


if __name__ == "__main__":
    main()
