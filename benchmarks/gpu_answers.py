"""Many answers at once on a GPU, beside two cores: `python benchmarks/gpu_answers.py [--cores 2]`.

All marginals of a model come from one run, whose chains are one launch. The chains of many queries are one launch too;
the queries are planned one by one before that, on the CPU.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin._estimate.query import read_settings
from dobrushin._estimate.several import Content, _Wave
from dobrushin._sampling.cuda.together import Chains, can_join, draw_together
from dobrushin._shared.call import NO_DEADLINE
from dobrushin._shared.compile import compile_always
from dobrushin._shared.device import is_available

_QUERIES, _FEWER = 200, 50
_PROCESSES = 2


class Row(NamedTuple):
    """What is asked, how many answers there are, and how to get them: on the CPU, one by one on the GPU, and there."""

    what: str
    answers: int
    calls: list[Callable[[], object] | None]


def main() -> None:
    """Print a row for each kind of question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=2)
    cores = parser.parse_args().cores
    compile_always()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:cores])
    table = Table(title=f"Seconds of the whole call, {cores} cores")
    for heading in ("what", "answers", "CPU", "GPU, one by one", "GPU", "CPU / GPU"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in _rows():
        seconds = [None if call is None else _seconds(call) for call in row.calls]
        cells = ["" if s is None else f"{s:.3f}" for s in seconds]
        first, last = seconds[0], seconds[-1]
        ratio = "" if first is None or last is None else f"{first / last:.1f}"
        table.add_row(row.what, str(row.answers), *cells, ratio)
    Console(width=140).print(table)


def _seconds(call: Callable[[], object]) -> float:
    """After a call that compiles, and remembers what does not depend on the backend."""
    call()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _rows() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    torus = db.Ising.grid(40, 40, couplings=0.22, periodic=True)
    image = db.Potts.grid(20, 31, states=8, couplings=0.3, unaries=2.0 * rng.normal(size=(20, 31, 8)))
    yield _whole("all marginals of a 40 x 40 torus, theta 0.22, by coalescence", torus, method="coalescence")
    yield _whole("all marginals of a 20 x 31 image, 8 labels, by chains", image, method="dobrushin", tolerance=0.02)
    million = db.Ising.grid(1000, 1000, couplings=0.2)
    labels = db.Potts.grid(300, 300, states=4, couplings=0.25)
    for name, model, tolerance, count in (
        ("10^6 spins", million, 0.01, _QUERIES),
        ("10^6 spins", million, 0.003, _QUERIES),
        ("90 000 variables of 4 states", labels, 0.01, _FEWER),
    ):
        yield from _queries(f"{count} queries on {name}, tolerance {tolerance:g}", model, tolerance, count)


def _whole(what: str, model: db.Model, **how: Any) -> Row:
    def ask(backend: str) -> Callable[[], object]:
        return lambda: db.estimate(model, "all", seed=1, run=db.RunOptions(backend=backend), **how)

    return Row(what, model.n_variables, [ask("cpu"), None, ask("cuda") if is_available() else None])


def _queries(what: str, model: db.Model, tolerance: float, count: int) -> Iterator[Row]:
    """Marginals beside an observation; and what of that is planning, and what are draws."""
    queries: list[tuple[Any, Any]] = [([k], {k + 1: 1}) for k in range(0, 5 * count, 5)]

    def ask(backend: str, executor: Executor | None = None) -> object:
        how: dict[str, Any] = {"seed": 1, "method": "dobrushin", "tolerance": tolerance, "backend": backend}
        return list(db.estimate_many(model, queries, **how, run=db.RunOptions(executor=executor)))

    def plan() -> object:
        return [db.plan(model, t, evidence=e, method="dobrushin", tolerance=tolerance) for t, e in queries]

    on_gpu = (lambda: ask("cuda")) if is_available() else None
    yield Row(what, count, [lambda: ask("cpu"), None, on_gpu])
    # Not forked: a child of a process that has used the GPU cannot use it.
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        on_gpu = (lambda: ask("cuda", pool)) if is_available() else None
        yield Row(f"  the same on {_PROCESSES} processes", count, [lambda: ask("cpu", pool), None, on_gpu])
    yield Row("  their plans alone, on one core", count, [plan, None, None])
    settings = read_settings(model, tolerance, 0.99, "dobrushin", None, None)
    wave = _Wave(Content(model, settings, np.random.SeedSequence(1)), NO_DEADLINE, may_wait=True)
    for k, query in enumerate(queries):
        wave.plan(k, query)
    runs = [run for _, run in wave.plans.values()]

    def draw() -> object:
        return [run._chains(range(run.trials), run.at_once) for run in runs]  # type: ignore[attr-defined]

    together = one_by_one = None
    if is_available():
        wanted = [Chains(*run.job()) for run in runs]
        assert all(map(can_join, wanted))
        together, one_by_one = lambda: draw_together(wanted), lambda: [draw_together([one]) for one in wanted]
    yield Row("  their draws alone", count, [draw, one_by_one, together])


if __name__ == "__main__":
    main()
