"""Measure work that is split over workers: processes and Dask beside threads, and many queries in one call.

usage: python benchmarks/workers.py [--parts dask killed queries] [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np

import dobrushin as db
from measure import Row, promises, random_ising, seconds, wide_console

_PARTS = ("dask", "killed", "queries")
_WORKERS = 2
# Updates that the threads of two cores make in some 35 s.
_UPDATES, _QUICK = 2 * 10**11, 10**10
_CHAINS = 2**16
# Of each of many queries, on two processes.
_QUERY_SECONDS = 2.5e-3


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="Measure work that is split over workers.")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS, help="what to measure (default: all)")
    parser.add_argument("--quick", action="store_true", help="shorter runs, fewer of them, and fewer queries")
    options = parser.parse_args()
    console = wide_console()
    console.print(f"{os.cpu_count()} cores", highlight=False)
    rows = []
    if "dask" in options.parts:
        rows += [dask_beside_threads(options.quick)]
    if "killed" in options.parts:
        rows += [killed_workers(options.quick)]
    if "queries" in options.parts:
        rows += many_queries(options.quick)
    console.print(promises("Workers", rows))
    if any(row.ok is False for row in rows):
        sys.exit(1)


class Work:
    """Chains of a 10 x 10 grid, in about so many updates."""

    def __init__(self, updates: int, chains: int = _CHAINS) -> None:
        self.model = random_ising(10, 0, with_fields=True)
        self.chains = chains
        n = self.model.n_variables
        self.scan = db.Scan.systematic(n, n * max(1, updates // (n * chains)))

    def run(self, executor: Executor | None = None) -> db.Samples:
        """Draw them."""
        return db.sample(self.model, self.scan, chains=self.chains, seed=1, run=db.RunOptions(executor=executor))


@contextlib.contextmanager
def local_cluster() -> Iterator[Any]:
    """A client of two workers with a thread each, or None where Dask is not installed."""
    try:
        import distributed
    except ImportError:
        yield None
        return
    options = {"n_workers": _WORKERS, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def dask_beside_threads(quick: bool) -> Row:
    """The same long run in threads of this process and on a local cluster, in turns."""
    name = f"Dask, {_WORKERS} workers: speed / that of {_WORKERS} threads in-process"
    required = "0.9 or more, median of five, 30 s or more each"
    with local_cluster() as client, ThreadPoolExecutor(_WORKERS) as threads:
        if client is None:
            return Row(name, "distributed is not installed", required, None)
        pool = client.get_executor()
        warm, work = Work(10**8), Work(_QUICK if quick else _UPDATES)
        for executor in (threads, pool):
            warm.run(executor)
        ratios, times = [], []
        for _ in range(2 if quick else 5):
            here = seconds(lambda: work.run(threads))
            there = seconds(lambda: work.run(pool))
            ratios.append(here / there)
            times.append(here)
    median = float(np.median(ratios))
    measured = f"{median:.3f} ({min(ratios):.3f} to {max(ratios):.3f}; threads {np.median(times):.1f} s)"
    return Row(name, measured, required, None if quick else median >= 0.9 and np.median(times) >= 30)


def killed_workers(quick: bool) -> Row:
    """Kill each of the workers once in the middle of a run, and compare its draws."""
    name, required = "Dask: each worker killed once in the middle", "the same draws"
    with local_cluster() as client:
        if client is None:
            return Row(name, "distributed is not installed", required, None)
        work = Work(_QUICK if quick else _UPDATES // 4)
        plain: list[db.Samples] = []
        usual = seconds(lambda: plain.append(work.run()))
        victims = list(client.run(os.getpid).values())

        def kill() -> None:
            for pid in victims:
                time.sleep(usual / 4)
                os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        pool = client.get_executor()
        found: list[db.Samples] = []
        killer.start()
        took = seconds(lambda: found.append(work.run(pool)))
        killer.join()
    same = bool(np.array_equal(plain[0].states, found[0].states))
    measured = f"{'the same' if same else 'DIFFERENT'} draws, {took:.1f} s; in-process {usual:.1f} s"
    return Row(name, measured, required, same)


def many_queries(quick: bool) -> list[Row]:
    """Ten thousand queries with evidence on one model, in one call, by one process and by several."""
    count = 300 if quick else 10_000
    model = random_ising(100, 1)
    rng = np.random.default_rng(2)
    queries = []
    for _ in range(count):
        target, *known = rng.choice(model.n_variables, 4, replace=False).tolist()
        queries.append(([target], {k: int(rng.choice([-1, 1])) for k in known}))
    name = f"{count} queries (one target, three observed, tolerance 0.02 at 0.99), 100 x 100"
    single = _single(model, queries[:200])
    rows, digests = [], set()
    with ProcessPoolExecutor(_WORKERS) as processes, local_cluster() as client:
        executors = {"no executor": None, "processes": processes}
        if client is not None:
            executors["Dask"] = client.get_executor()
        for label, executor in executors.items():
            db.estimate_many(model, queries[:64], tolerance=0.02, seed=1, run=db.RunOptions(executor=executor))
            found: list[db.Estimates] = []
            ask = {"tolerance": 0.02, "seed": 1, "run": db.RunOptions(executor=executor)}
            took = seconds(lambda ask=ask, found=found: found.append(db.estimate_many(model, queries, **ask)))
            digests.add(_digest(found[0]))
            ratio = single * count / took
            measured = f"{took:.1f} s, {1000 * took / count:.1f} ms each, {ratio:.2f}x a loop of estimate"
            most = _QUERY_SECONDS * count if label == "processes" else np.inf
            required = "the same answers" + f", {most:g} s" * bool(most < np.inf)
            rows.append(Row(f"{name}: {label}", measured, required, len(digests) == 1 and took <= most))
    return rows


def _single(model: db.Ising, queries: list[Any]) -> float:
    """Seconds of one call of `estimate` in a loop."""

    def loop() -> None:
        for k, (targets, evidence) in enumerate(queries):
            db.estimate(model, targets, evidence=evidence, tolerance=0.02, seed=k)

    loop()
    return seconds(loop) / len(queries)


def _digest(found: db.Estimates) -> str:
    digest = hashlib.sha256()
    for answer in found:
        for part in (answer.value, answer.lower, answer.upper, answer.bias_bound):
            digest.update(part.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
