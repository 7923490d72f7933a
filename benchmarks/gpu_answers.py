"""Many answers at once on a GPU, beside two cores: `python benchmarks/gpu_answers.py [--cores 2]`.

All marginals of a model come from one run, whose chains are one launch. Queries one by one are planned one by one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin._shared.compile import compile_always
from dobrushin._shared.device import is_available


def main() -> None:
    """Print a row for each kind of question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=2)
    cores = parser.parse_args().cores
    compile_always()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:cores])
    table = Table(title=f"Seconds of the whole call, {cores} cores")
    for heading in ("what", "answers", "CPU", "GPU", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    backends = ("cpu", "cuda") if is_available() else ("cpu",)
    for what, call in _calls().items():
        seconds, rows = [], 0
        for backend in backends:
            call(backend)  # compiles, and remembers what does not depend on the backend
            begin = time.perf_counter()
            rows = call(backend)
            seconds.append(time.perf_counter() - begin)
        ratio = f"{seconds[0] / seconds[-1]:.1f}" if len(seconds) > 1 else ""
        table.add_row(what, str(rows), *(f"{s:.3f}" for s in seconds), *[""] * (2 - len(seconds)), ratio)
    Console(width=130).print(table)


def _calls() -> dict[str, Callable[[str], int]]:
    rng = np.random.default_rng(0)
    torus = db.Ising.grid(40, 40, couplings=0.22, periodic=True)
    image = db.Potts.grid(20, 31, states=8, couplings=0.3, unaries=2.0 * rng.normal(size=(20, 31, 8)))
    million = db.Ising.grid(1000, 1000, couplings=0.2)
    queries: list[tuple[Any, Any]] = [([k], {k + 1: 1}) for k in range(0, 1000, 5)]

    def ask(model: db.Model, **how: Any) -> Callable[[str], int]:
        return lambda backend: len(set(db.estimate(model, "all", seed=1, backend=backend, **how).targets))

    def ask_many(backend: str) -> int:
        return len(list(db.estimate_many(million, queries, seed=1, method="dobrushin", backend=backend)))

    def plan_many(backend: str) -> int:
        del backend
        for targets, evidence in queries:
            db.plan(million, targets, evidence=evidence, method="dobrushin")
        return len(queries)

    return {
        "all marginals of a 40 x 40 torus, theta 0.22, by coalescence": ask(torus, method="coalescence"),
        "all marginals of a 20 x 31 image, 8 labels, by chains": ask(image, method="dobrushin", tolerance=0.02),
        "200 queries on 10^6 spins, one by one": ask_many,
        "the plans of these alone": plan_many,
    }


if __name__ == "__main__":
    main()
