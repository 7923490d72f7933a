"""Measure chains of factor graphs and of tables beside the `potts` kernel, in the same run.

usage: python benchmarks/tables.py [--quick]

Real models are read from the folder that DOBRUSHIN_DATA names; without it they are skipped.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import dobrushin as db
from measure import Row, best_of, print_verdict, promises, wide_console
from workloads import random_potts

# The part of the `potts` kernel's rate that is asked for.
_PART, _PART_OF_SETS = 1 / 3, 1 / 6
_REAL = {"alarm": "bif/alarm.bif.gz", "munin1": "bif/munin1.bif.gz", "Segmentation_11": "uai/Segmentation_11.uai"}
# Updates of a run: of the kernel that is measured, and of `factors`, which is slower.
_UPDATES, _SLOW_UPDATES = 8 * 10**7, 10**7


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description="Measure chains of factor graphs and tables.")
    parser.add_argument("--quick", action="store_true", help="the same models, shorter runs")
    less = 8 if parser.parse_args().quick else 1
    console = wide_console()
    with console.status("measuring"):
        rows = [*_pair_tables(less), *_real_models(less), *_sets(less)]
    console.print(promises("Factor graphs and tables", rows))
    print_verdict(console, rows)


def _pair_tables(less: int) -> Iterator[Row]:
    """W7: a Potts model as a table for each pair, against the kernel that knows what it is."""
    for states in (3, 8, 9, 21):
        potts = random_potts(20, 31, states)
        own = _rate(potts, 256, _UPDATES // less, "potts")
        yield _row(f"W7: Potts 20x31, {states} labels as tables of pairs, 256 chains", as_tables(potts), 256, own, less)


def _real_models(less: int) -> Iterator[Row]:
    """W7: models that people bring, against `potts` on a grid of 8 labels."""
    own = _rate(random_potts(20, 31, 8), 1024, _UPDATES // less, "potts")
    folder = os.environ.get("DOBRUSHIN_DATA")
    for name, path in _REAL.items():
        what = f"W7: {name}, 1024 chains"
        if folder is None:
            yield Row(what, "needs DOBRUSHIN_DATA", _required(), None)
            continue
        yield _row(what, db.io.read(Path(folder) / path), 1024, own, less)


def _sets(less: int) -> Iterator[Row]:
    """W8: sets of labels, in runs of as many steps, against chains of the same model."""
    for states, tables in ((9, False), (3, False), (9, True)):
        potts = random_potts(20, 31, states)
        own = _rate(potts, 1024, _UPDATES // less, "potts")
        model = as_tables(potts) if tables else potts
        n, runs = model.n_variables, 1024
        scan = db.Scan.systematic(n, n * max(1, _SLOW_UPDATES // less // (n * runs)))

        def settle(model: db.Model = model, scan: db.Scan = scan, runs: int = runs) -> db.Coalescence:
            return db.coalescence(model, scan, runs=runs, seed=1)

        rate = len(scan) * runs / best_of(settle)
        what = f"W8: sets, Potts 20x31, {states} labels{' as tables of pairs' if tables else ''}, {runs} runs"
        measured = f"{rate:.3g} updates/s, {rate / own:.3f} of potts ({own:.3g}); {settle().kernel}"
        yield Row(
            what,
            measured,
            "" if tables else f"{_PART_OF_SETS:.2f} of potts",
            None if tables else rate >= _PART_OF_SETS * own,
        )


def as_tables(potts: db.Potts) -> db.PairwiseMRF:
    """The same model, with a table for each pair."""
    pairs = potts.couplings.tocoo()
    first, second = pairs.coords
    upper = first < second
    tables = pairs.data[upper][:, None, None] * np.eye(potts.unaries.shape[1])
    return db.PairwiseMRF(potts.unaries, np.stack([first[upper], second[upper]], axis=1), tables)


def _required() -> str:
    return f"{_PART:.2f} of potts"


def _row(what: str, model: db.Model, chains: int, potts: float, less: int) -> Row:
    """The rate of the kernel that `sample` takes, beside `potts` and beside `factors`."""
    ours, slow = (_rate(model, chains, n // less, k) for n, k in ((_UPDATES, None), (_SLOW_UPDATES, "factors")))
    kernel = _run(model, chains, _UPDATES // less, None).kernel
    measured = f"{ours:.3g} updates/s, {ours / potts:.2f} of potts ({potts:.3g}), {ours / slow:.1f}x factors; {kernel}"
    return Row(what, measured, _required(), ours >= _PART * potts)


def _rate(model: db.Model, chains: int, updates: int, kernel: str | None) -> float:
    """Updates per second of a whole call."""
    sweep = model.n_variables * chains
    return sweep * max(1, updates // sweep) / best_of(lambda: _run(model, chains, updates, kernel))


def _run(model: db.Model, chains: int, updates: int, kernel: str | None) -> db.Samples:
    n = model.n_variables
    scan = db.Scan.systematic(n, n * max(1, updates // (n * chains)))
    return db.sample(model, scan, chains=chains, seed=1, record="counts", kernel=kernel)


if __name__ == "__main__":
    main()
