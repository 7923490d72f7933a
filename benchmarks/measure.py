"""What every part of the benchmark uses: rows of the table and where they go, random models, and clocks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin._shared.compile import compile_always

compile_always()  # what is measured is compiled code, also after a first call that has little to do
_WIDTH = 180
_VERDICTS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "skipped"}


@dataclass(frozen=True)
class Row:
    """One line of the table; `ok` is None where the figure could not be measured here."""

    name: str
    measured: str
    required: str
    ok: bool | None


def promises(title: str, rows: Sequence[Row]) -> Table:
    """The rows as a table."""
    table = Table(title=title, title_justify="left")
    for heading in ("what", "measured", "required", "ok"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row.name, row.measured, row.required, _VERDICTS[row.ok])
    return table


def wide_console() -> Console:
    """Where tables are printed; wide enough for them where the output is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def print_verdict(console: Console, rows: Sequence[Row]) -> bool:
    """Say how many of the rows that could be measured are ok; returns whether all of them are."""
    judged = [row.ok for row in rows if row.ok is not None]
    console.print(f"{sum(judged)} of {len(judged)} rows ok", highlight=False)
    return all(judged)


def random_ising(side: int, seed: int, with_fields: bool = False) -> db.Ising:
    """The paper's grids: couplings uniform on [0, 0.25], fields 0, or 0 or 1 with equal chances."""
    rng = np.random.default_rng(seed)
    couplings = rng.uniform(0, 0.25, 2 * side * (side - 1))
    fields = rng.integers(0, 2, (side, side)).astype(float) if with_fields else None
    return db.Ising.grid(side, side, couplings=couplings, fields=fields)


def seconds(call: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def best_of(call: Callable[[], object], repeats: int = 3) -> float:
    """Least wall-clock time of several calls, after one that compiles kernels and fills caches."""
    call()
    return min(seconds(call) for _ in range(repeats))


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Stay on one core, where the system can be told so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def over_draws(name: str, ratios: Sequence[float], *, least: float = 0.0, most: float = np.inf) -> Row:
    """A ratio that varies from draw to draw: its median must be in the limits, its range is shown."""
    values = np.asarray(ratios)
    within = int(((values >= least) & (values <= most)).sum())
    median = float(np.median(values))
    measured = f"{median:.3g}x ({values.min():.3g}x to {values.max():.3g}x; {within} of {len(values)} draws within)"
    required = f"median {least:g}x or more" if most == np.inf else f"median {most:g}x or less"
    return Row(name, measured, required, least <= median <= most)
