"""Measure what the core of the library promises, and print it beside the promise.

usage: python benchmarks/core.py [--quick]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
from rich.table import Table

import dobrushin as db
import figures
import optimum
import speed
from measure import Row, print_verdict, promises, wide_console


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description="Measure what the core of the library promises.")
    parser.add_argument("--quick", action="store_true", help="fewer draws and smaller samples")
    quick = parser.parse_args().quick
    # Bounds that say nothing are among what is compared.
    warnings.simplefilter("ignore", db.VacuousBoundWarning)
    console = wide_console()
    with console.status("measuring (some minutes)" if not quick else "measuring"):
        rows = list(_measure(quick))
        distances = optimum.distances(models=10 if quick else 100)
    console.print(promises("Core of the library", rows))
    console.print(_distances(distances))
    print_verdict(console, rows)


def _measure(quick: bool) -> Iterator[Row]:
    yield from figures.potts_rectangle()
    yield from figures.ising_all_variables(draws=3 if quick else 12)
    yield from figures.ising_corner(draws=1 if quick else 4)
    yield from figures.torus_site()
    model = speed.million_model()
    yield from speed.million_setup(model)
    yield from speed.influence_of_many_states()
    yield from speed.waits_for_signals(model)
    yield from speed.optimize_time(model)
    yield from speed.optimize_memory()
    yield from speed.shortest_scan_time()
    yield from speed.import_time()


def _distances(found: dict[str, dict[str, np.ndarray]]) -> Table:
    models = len(next(iter(next(iter(found.values())).values())))
    title = f"Variation over the least possible, 5 variables, 10 steps, {models} models a column: mean (max)"
    table = Table("method", title=title, title_justify="left")
    for heading in next(iter(found.values())):
        table.add_column(heading, justify="right")
    for name, columns in found.items():
        if name == optimum.SHORTEST:
            table.add_section()
            cells = [f"{steps.mean():.2f} ({steps.max()})" for steps in columns.values()]
        else:
            cells = [f"{ratios.mean():.3f} ({ratios.max():.3f})" for ratios in columns.values()]
        table.add_row(name, *cells)
    return table


if __name__ == "__main__":
    main()
