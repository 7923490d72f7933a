"""Exact sums on the GPU beside those on the CPU: `python benchmarks/gpu_sums.py [--width 20 22 24 25]`.

Square Ising grids with fields, all marginals. Ratios are to all cores of the same machine in the same run, where the
CPU takes at most a minute by the plan.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin._exact.engine import SumPlan, plan_sums
from dobrushin._shared.device import cupy

_MOST_SECONDS = 60.0


def main() -> None:
    """Print a row for each grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, nargs="+", default=[20, 22, 24, 25])
    table = Table(title="All marginals of square Ising grids")
    for heading in ("width", "entries", "GiB", "GPU s", "entries/ns", "CPU s", "CPU / GPU", "largest difference"):
        table.add_column(heading, justify="right")
    _on(db.Ising.grid(6, 6, couplings=0.1), "cuda")  # compiles
    for width in parser.parse_args().width:
        table.add_row(str(width), *_row(db.Ising.grid(width, width, couplings=0.3, fields=0.1)))
    Console(width=130).print(table)


def _row(model: db.Model) -> list[str]:
    plan, seconds, there = _on(model, "cuda")
    row = [f"{plan.entries:.2g}", f"{plan.bytes / 2**30:.2f}", f"{seconds:.3f}", f"{plan.entries / seconds / 1e9:.1f}"]
    if plan.seconds > _MOST_SECONDS:
        return [*row, "not run", "", ""]
    _, slow, here = _on(model, "cpu")
    gap = max(abs(a - b).max() for a, b in zip(here, there, strict=True))
    return [*row, f"{slow:.2f}", f"{slow / seconds:.0f}", f"{gap:.1e}"]


def _on(model: db.Model, backend: str) -> tuple[SumPlan, float, list[Any]]:
    """The plan, the seconds of its sums, and what they are."""
    tables = model._form.tables()
    plan = plan_sums(tables, [(v,) for v in range(model.n_variables)], 2.0**37)
    if backend == "cuda":
        cupy().cuda.get_current_stream().synchronize()
    begin = time.perf_counter()
    sums = plan.run(tables, backend=backend)
    return plan, time.perf_counter() - begin, sums.marginals


if __name__ == "__main__":
    main()
