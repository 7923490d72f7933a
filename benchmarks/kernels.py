"""Measure each kernel beside the one that would run in its place, with calls in turns.

usage: OPENBLAS_NUM_THREADS=1 python benchmarks/kernels.py [--only table field] [--repeats N] [--gpu]

A kernel earns its keep where it makes at least 1.2 times the updates per second of its replacement on some work that
it is chosen for. On the CPU one thread draws, and seconds are those of the processor: so the rates are of one core, and
other work on the machine hardly changes the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from rich.table import Table

import dobrushin as db
from dobrushin._sampling import array_kernel, spins
from dobrushin._sampling.kernel import choose_kernel
from measure import random_ising, wide_console
from tables import as_tables
from workloads import glass, machine, many_neighbors, random_graph, random_potts

_KEEP = 1.2
_NEVER = 10**9

Limits = tuple[tuple[Any, dict[str, int]], ...]
# Limits of modules under which a kernel leaves out one of its ways to go through the steps.
_ORDERED: Limits = ()
_NO_DIAGONALS: Limits = ((array_kernel, {"MIN_SIDE": _NEVER}),)
_NO_WAVES: Limits = ((array_kernel, {"WAVE_SWEEPS": _NEVER}), (spins, {"DIAGONAL_SWEEPS": _NEVER}))
_WAVES_AT_ONCE: Limits = (*_NO_DIAGONALS, (array_kernel, {"WAVE_SWEEPS": 1}))
_NO_LANES: Limits = ((array_kernel, {"FEW_CHAINS": _NEVER}),)


@dataclass(frozen=True)
class Case:
    """A run by a kernel, and by the one that would replace it."""

    kernel: str
    what: str
    model: Callable[[], db.Model]
    chains: int
    steps: int
    replacement: str
    without: Limits = _ORDERED  # for the replacement
    limits: Limits = _ORDERED  # for both
    scan: str = "sweeps"


def cases() -> Iterator[Case]:
    """Each kernel on work that it is chosen for, on the CPU."""
    small, grid, million = partial(random_ising, 10, 0), partial(random_ising, 40, 0), partial(random_ising, 1000, 0)
    yield Case("table", "Ising 10x10, 1 chain", small, 1, 10**7, "field", _NO_WAVES)
    yield Case("table", "Ising 10x10, 8 chains", small, 8, 10**6, "field")
    yield Case("table", "Ising 40x40, 1 chain, random steps", grid, 1, 10**7, "field", scan="random")
    yield Case("table", "Ising 40x40, 64 chains, random steps", grid, 64, 10**5, "field", scan="random")
    yield Case("table", "spins in triples, 1 chain", _triples, 1, 10**7, "conditional")
    yield Case("table", "spins in triples, 1 chain, random steps", _triples, 1, 10**6, "conditional", scan="random")
    yield Case("table", "independent sets 30x30, 1 chain", _hard_core, 1, 10**7, "conditional")
    for chains in (16, 64, 256, 4096):
        yield Case("bits", f"Ising 10x10, {chains} chains", small, chains, 2 * 10**8 // chains, "field")
    yield Case("bits", "spins in triples, 4096 chains", _triples, 4096, 10**4, "conditional")
    for degree in (8, 12):
        equal = partial(_many_neighbors, degree, True)
        for chains in (256, 4096):
            yield Case("counts", f"W9, degree {degree}, {chains} chains", equal, chains, 16_000, "field")
    for name, make, n in (("W10a", glass, 1000), ("W10b", machine, 1284)):
        yield Case("dense", f"{name}, 1024 chains", make, 1024, 10 * n, "field")
        yield Case("dense", f"{name}, 1 chain", make, 1, 100 * n, "field", _NO_WAVES)
        yield Case("dense", f"{name}, 1 chain, random steps", make, 1, 40 * n, "field", scan="random")
    eight = partial(_many_neighbors, 8, False)
    yield Case("field", "lanes: W9a, 8 chains", eight, 8, 400_000, "field", _NO_LANES, _NO_WAVES)
    yield Case("field", "lanes: W9a, 4096 chains", eight, 4096, 8000, "field", _NO_LANES)
    yield Case("field", "waves: W1, Ising 40x40", grid, 1, 8_000_000, "field", _NO_WAVES)
    yield Case("field", "waves: W1, Ising 40x40; by tables", grid, 1, 8_000_000, "table")
    yield Case("field", "waves: W5, random graph", partial(random_graph, 10**5, 6), 1, 5_000_000, "field", _NO_WAVES)
    yield Case("field", "diagonals: W2, 10 sweeps; waves", million, 1, 10**7, "field", _WAVES_AT_ONCE)
    yield Case("field", "diagonals: W2, 10 sweeps; steps", million, 1, 10**7, "field", _NO_WAVES)
    yield Case("field", "diagonals: W2, 100 sweeps; waves", million, 1, 10**8, "field", _NO_DIAGONALS)
    for states in (3, 8, 21, 64):
        labels = partial(random_potts, 20, 31, states)
        sweeps = 620 * (2000 // states)
        one, many = f"{states} labels, 1 chain", f"{states} labels, 256 chains"
        yield Case("potts", f"waves: {one}; steps", labels, 1, 10 * sweeps, "potts", _NO_WAVES)
        yield Case("potts", f"waves: {one}", labels, 1, 10 * sweeps, "conditional")
        yield Case("potts", f"lanes: {many}; waves", labels, 256, sweeps, "potts", _NO_LANES)
        yield Case("potts", f"lanes: {many}; steps", labels, 256, sweeps, "potts", _NO_LANES, _NO_WAVES)
        yield Case("potts", f"lanes: {many}", labels, 256, sweeps, "conditional")
    yield Case("conditional", "factor graph, 16 chains", _graph, 16, 10**5, "factors")
    yield Case("conditional", "factor graph, 1024 chains", _graph, 1024, 10**4, "factors")
    wide = partial(_pair_tables, 21)
    yield Case("factors", "factor graph, 1 chain", _graph, 1, 10**6, "conditional")
    yield Case("factors", "21 labels as tables, 1 chain", wide, 1, 10**6, "conditional")
    yield Case("factors", "21 labels as tables, 8 chains, 1 sweep", wide, 8, 620, "conditional")
    yield Case("factors", "graph of 2*10^5 factors, 1 chain, 1 sweep", partial(_graph, 10**5), 1, 10**5, "conditional")


def gpu_cases() -> Iterator[Case]:
    """Each kernel that has a twin on the GPU, with chains enough to fill it."""
    many, grid = 2**18, partial(random_ising, 40, 0)
    yield Case("bits", "Ising 40x40", grid, 64 * many, 1600, "field")
    yield Case("table", "Ising 40x40, random steps", grid, many, 16_000, "field", scan="random")
    yield Case("table", "spins in triples, random steps", _triples, many, 10_000, "conditional", scan="random")
    yield Case("counts", "W9, degree 8", partial(_many_neighbors, 8, True), 16 * many, 4000, "field")
    yield Case("counts", "W9, degree 12", partial(_many_neighbors, 12, True), 16 * many, 4000, "field")
    yield Case("dense", "W10a", glass, many, 4000, "field")
    yield Case("dense", "W10b", machine, many, 5136, "field")
    yield Case("dense", "W10a, random steps", glass, many // 8, 1000, "field", scan="random")
    for states in (3, 8, 21):
        yield Case("potts", f"{states} labels", partial(random_potts, 20, 31, states), many, 6200, "conditional")
    yield Case("conditional", "factor graph", _graph, many, 4000, "factors")
    yield Case("conditional", "21 labels as tables", partial(_pair_tables, 21), many, 620, "factors")


def _many_neighbors(degree: int, is_equal: bool) -> db.Ising:
    return many_neighbors(degree, is_equal)[1]


def _triples() -> db.SpinMRF:
    """Spins on a ring with a term for each three in a row: binary variables without pairs."""
    rng, n = np.random.default_rng(0), 1000
    return db.SpinMRF({(i, (i + 1) % n, (i + 2) % n): float(rng.uniform(-0.3, 0.3)) for i in range(n)})


def _hard_core() -> db.PairwiseMRF:
    """Independent sets of a grid."""
    index = np.arange(900).reshape(30, 30)
    right = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
    down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
    return db.PairwiseMRF(np.zeros((900, 2)), np.concatenate([right, down]), np.array([[0.0, 0.0], [0.0, -np.inf]]))


def _graph(n: int = 2000) -> db.FactorGraph:
    """Variables of three states and twice as many random pair factors."""
    rng = np.random.default_rng(0)
    first = rng.integers(n, size=2 * n)
    second = (first + 1 + rng.integers(n - 1, size=2 * n)) % n
    tables = 0.1 * rng.normal(size=(2 * n, 3, 3))
    return db.FactorGraph.from_arrays(np.full(n, 3), np.stack([first, second], axis=1), tables)


def _pair_tables(states: int) -> db.PairwiseMRF:
    return as_tables(random_potts(20, 31, states))


@dataclass(frozen=True)
class Rates:
    """Updates per second of a kernel and of its replacement, and the kernel that `sample` chooses."""

    own: float
    other: float
    first_ratio: float  # of the first calls on a model, which make what a kernel keeps
    chosen: str


def measure(case: Case, repeats: int, backend: str) -> Rates:
    """Measure whole calls on models that are used again, in turns, after a first call on each."""
    ways = ((case.kernel, case.limits), (case.replacement, (*case.limits, *case.without)))
    n = case.model().n_variables
    scan = db.Scan.uniform(n, case.steps) if case.scan == "random" else db.Scan.systematic(n, case.steps)
    clock = time.perf_counter if backend == "cuda" else time.process_time
    times: list[list[float]] = [[], []]
    with ThreadPoolExecutor(1) as one_thread:
        for number in range(repeats + 2):
            if number < 2:  # the first model is for the compiler
                models = [case.model() for _ in ways]  # what one kernel keeps with its model is of no use to the other
            for model, (kernel, limits), taken in zip(models, ways, times, strict=True):
                run = db.RunOptions(backend=backend, executor=one_thread)
                options: Any = {"chains": case.chains, "kernel": kernel, "run": run}
                with contextlib.ExitStack() as stack:
                    for module, values in limits:
                        stack.enter_context(mock.patch.multiple(module, **values))
                    begin = clock()
                    db.sample(model, scan, seed=1, record="counts", **options)
                    taken.append(clock() - begin)
    updates = case.chains * case.steps
    own, other = (updates / min(taken[2:]) for taken in times)
    chosen = choose_kernel(case.model(), scan, case.chains).name
    return Rates(own, other, times[1][1] / times[0][1], chosen)


def main() -> None:
    """Measure all cases and print the table."""
    parser = argparse.ArgumentParser(description="Measure each kernel beside the one that would replace it.")
    parser.add_argument("--only", nargs="+", metavar="KERNEL", help="only these kernels")
    parser.add_argument("--repeats", type=int, default=3, help="calls of each kernel, of which the fastest counts")
    parser.add_argument("--gpu", action="store_true", help="the kernels on the GPU instead")
    options = parser.parse_args()
    console = wide_console()
    table = Table(title="Updates per second", title_justify="left")
    for heading in (
        "kernel",
        "work",
        "chosen",
        "rate",
        "instead",
        "rate of that",
        "first call",
        "ratio",
        f"{_KEEP:g}x",
    ):
        table.add_column(heading)
    for case in gpu_cases() if options.gpu else cases():
        if not options.only or case.kernel in options.only:
            with console.status(f"{case.kernel}: {case.what}"):
                found = measure(case, options.repeats, "cuda" if options.gpu else "cpu")
            ratio = found.own / found.other
            rates = (
                f"{found.own:.3g}",
                case.replacement,
                f"{found.other:.3g}",
                f"{found.first_ratio:.2f}",
                f"{ratio:.2f}",
            )
            table.add_row(case.kernel, case.what, found.chosen, *rates, "yes" if ratio >= _KEEP else "no")
    console.print(table)


if __name__ == "__main__":
    main()
