"""How fast files are read and written: `python benchmarks/formats.py`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console

import dobrushin as db
from dobrushin.io import read, write
from measure import Row, best_of, promises

_MEGABYTES = 10


def main() -> int:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        graph, ising, network = random_factors(), random_spins(), random_network()
        for name, model in {
            "pairs.uai": graph,
            "pairs.uai.gz": graph,
            "pairs.npz": graph,
            "spins.npz": ising,
            "spins.bqm": ising,
            "spins.coo": ising,
            "spins.mc": ising,
        }.items():
            path = os.path.join(folder, name)
            seconds = best_of(lambda path=path, model=model: write(model, path), repeats=1)
            rows.append(measured(path, f"{seconds:.2f} s to write", lambda path=path: read(path)))
        path = os.path.join(folder, "network.bif")
        Path(path).write_text(network)
        rows.append(measured(path, "", lambda path=path: read(path)))
    Console().print(promises("Files", rows))
    return 1 if any(row.ok is False for row in rows) else 0


def measured(path: str, also: str, work: Callable[[], object]) -> Row:
    """A row about reading one file; there is a requirement for the UAI file only."""
    seconds = best_of(work, repeats=3)
    size = os.path.getsize(path) / 1e6
    name = os.path.basename(path)
    required, ok = ("under 2 s", seconds < 2) if name == "pairs.uai" else ("", True)
    return Row(f"{name}, {size:.1f} MB", f"{seconds:.2f} s to read" + (f", {also}" if also else ""), required, ok)


def random_factors() -> db.FactorGraph:
    """As many tables on pairs of variables of up to four states as fill the file."""
    rng = np.random.default_rng(0)
    n = 20_000
    sizes = rng.integers(2, 5, size=n)
    factors, letters = [], 0
    while letters < _MEGABYTES * 1e6:
        i, j = rng.choice(n, size=2, replace=False).tolist()
        table = rng.normal(size=(sizes[i], sizes[j]))
        letters += 18.5 * table.size + 17  # numbers in full, and a scope
        factors.append(((i, j), table))
    return db.FactorGraph(sizes, factors)


def random_spins() -> db.Ising:
    """A grid without fields, so that it is a max-cut problem as well."""
    rng = np.random.default_rng(0)
    return db.Ising.grid(400, 400, couplings=rng.normal(size=2 * 400 * 399))


def random_network() -> str:
    """A chain of variables with many states, as text."""
    rng = np.random.default_rng(0)
    states = [f"s{k}" for k in range(100)]
    text = ["network chain { }"]
    text += [f"variable v{i} {{ type discrete [ 100 ] {{ {', '.join(states)} }}; }}" for i in range(60)]
    for i in range(60):
        rows = rng.dirichlet(np.ones(100), size=100 if i else 1)
        given = [f"({state})" for state in states] if i else ["table"]
        body = "\n".join(f"  {g} {', '.join(map(repr, row.tolist()))};" for g, row in zip(given, rows, strict=True))
        text.append(f"probability ( v{i} {f'| v{i - 1}' if i else ''} ) {{\n{body}\n}}")
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(main())
