"""Measure how fast `sample` is beside a plain sampler in C and, if asked for, beside other libraries.

usage: python benchmarks/sampling.py [--quick] [--peers] [--only W2 W9]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import zip_longest

from rich.table import Table

import dobrushin as db
from measure import best_of, seconds, wide_console
from parts import bit_limit, large_chain_parts
from peers import measure_peers, peer_names
from plain import gibbs_update
from workloads import Corner, Workload, sweeping

_VERDICTS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "skipped"}
# Updates of plain C in one run of three.
_PLAIN_UPDATES = 10**7
# A call shorter than this may be mostly set-up; a run so many times longer shows it.
_SHORT = 1.0
_LONGER = 10
_FIRST_SECONDS = 1.5

# W9 of W9a.
_NUMBER = re.compile(r"W\d+")

_FIRST = """
import dobrushin as db
model = db.Ising.grid(40, 40, couplings=0.25)
print(db.sample(model, db.Scan.systematic(1600, 1600 * 10_000), seed=1, record="counts").marginals()[0])
"""


@dataclass(frozen=True)
class Row:
    """One line of the table, as text."""

    cells: list[str]
    ok: bool | None


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description="Measure how fast `sample` is.")
    parser.add_argument("--quick", action="store_true", help="the same models, shorter runs")
    parser.add_argument("--peers", action="store_true", help="also run the other libraries that are installed")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these workloads: W2, W9, ...")
    options = parser.parse_args()
    console = wide_console()
    names = peer_names() if options.peers else []
    if options.only:
        with console.status("measuring"):
            rows = [_rate(work) for work in sweeping(options.quick) if _NUMBER.findall(work.name)[0] in options.only]
        console.print(_table(rows, [], []))
        return
    with console.status("measuring"):
        rows = [*map(_rate, sweeping(options.quick)), _corner()]
        first = _first_result()
        parts = [large_chain_parts(), bit_limit()]
        # After ours: some of them leave threads behind.
        peers = [_peers(work) for work in sweeping(options.quick)] if names else []
    console.print(_table(rows, names, peers))
    console.print(first, highlight=False)
    for part in parts:
        console.print(part, highlight=False)


def _rate(work: Workload) -> Row:
    """Updates per second, ours and those of plain C, in the same minute."""
    plain = gibbs_update(work.model, sweeps=max(1, _PLAIN_UPDATES // _cost(work.model)))
    if work.is_first:
        elapsed = min(seconds(work.fresh().run) for _ in range(4))
    else:
        elapsed = best_of(work.run)
    ours = work.updates / elapsed
    ratio = None if plain is None else ours * plain * 1e-9
    cells = [
        work.name,
        work.what,
        "no compiler" if plain is None else f"{1e9 / plain:.3g}",
        f"{ours:.3g}",
        "-" if ratio is None else f"{ratio:.2f}x",
        f"{work.required:g}x",
    ]
    ok = None if ratio is None else ratio >= work.required
    return Row([*cells, work.run().kernel, _note(work, elapsed)], ok)


def _cost(model: db.Ising | db.Potts) -> int:
    """A sweep in plain C, in updates of a variable with few neighbours."""
    return model.n_variables + max(0, model.couplings.nnz - 8 * model.n_variables) // 8


def _note(work: Workload, elapsed: float) -> str:
    """How much of a short call is set-up, by the rate of a longer one."""
    if elapsed > _SHORT:
        return ""
    longer = work.longer(_LONGER)
    return f"{elapsed:.3g} s; {_LONGER}x longer: {longer.updates / seconds(longer.run):.3g}/s"


def _peers(work: Workload) -> list[str]:
    return [
        found.reason if found.seconds is None else f"{work.updates / found.seconds:.3g}"
        for found in measure_peers(work)
    ]


def _corner() -> Row:
    work = Corner()
    elapsed = best_of(work.run)
    cells = [work.name, work.what, "-", f"{elapsed:.3f} s", "-", f"under {work.seconds:g} s", work.run().kernel]
    rate = f"{work.chains * len(work.scan) / elapsed:.3g} updates/s"
    return Row([*cells, rate], elapsed < work.seconds)


def _table(rows: list[Row], names: list[str], peers: list[list[str]]) -> Table:
    table = Table(title="Updates per second", title_justify="left")
    for heading in ("", "work", "plain C", "ours", "ratio", "required", "kernel", "whole call", "ok", *names):
        table.add_column(heading)
    for row, others in zip_longest(rows, peers, fillvalue=["-"] * len(names)):
        table.add_row(*row.cells, _VERDICTS[row.ok], *others)
    return table


def _first_result() -> str:
    """W1 in new processes: import, build, compile or load, run."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = (_process(cache) for _ in range(2))
    verdict = _VERDICTS[warm < _FIRST_SECONDS]
    return (
        f"W1 from the start of Python: {warm:.2f} s with compiled kernels in the cache "
        f"(required: under {_FIRST_SECONDS:g} s; ok: {verdict}); {cold:.1f} s when they must be compiled"
    )


def _process(cache: str) -> float:
    begin = time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    subprocess.run([sys.executable, "-c", _FIRST], check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
