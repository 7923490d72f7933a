"""Measure large factor graphs: building them, asking about one variable, and sweeping over all of them.

usage: python benchmarks/knowledge.py [--large]

Three-state variables and twice as many random pair factors, as knowledge bases have them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from rich.console import Console

import dobrushin as db
from measure import Row, best_of, promises, seconds

_WIDTH = 170
_FACTORS = 4 * 10**5
_SIZES = (10**4, 10**5, 10**6)
# How much slower the largest may be than the smallest, and still counts as flat.
_FLAT = 2.0
_CHAINS = 16


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description="Measure large factor graphs.")
    parser.add_argument("--large", action="store_true", help="up to 10^7 factors")
    sizes = (*_SIZES, 10**7) if parser.parse_args().large else _SIZES
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    with console.status("measuring"):
        rows = [*_one_size(), *_all_sizes(sizes)]
    console.print(promises("W11: large factor graphs", rows))
    judged = [row.ok for row in rows if row.ok is not None]
    console.print(f"{sum(judged)} of {len(judged)} rows ok", highlight=False)


def _arrays(factors: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cardinalities, scopes and tables."""
    rng = np.random.default_rng(0)
    n = factors // 2
    first = rng.integers(n, size=factors)
    second = (first + 1 + rng.integers(n - 1, size=factors)) % n
    return np.full(n, 3), np.stack([first, second], axis=1), 0.1 * rng.normal(size=(factors, 3, 3))


def _one_size() -> Iterator[Row]:
    arrays = _arrays(_FACTORS)
    factors = list(zip(arrays[1].tolist(), arrays[2], strict=True))
    yield _limit("build from arrays", best_of(lambda: db.FactorGraph.from_arrays(*arrays)), 0.5)
    yield _limit("build from a list", best_of(lambda: db.FactorGraph(arrays[0], factors), 1), 3.0)
    model = db.FactorGraph.from_arrays(*arrays)
    alone, observed = _times(model, arrays[1])
    yield _limit("one marginal to 0.01, another variable each time", alone, 0.02)
    yield _limit("the same with one observation", observed, 0.02)
    scan = db.Scan.systematic(model.n_variables, model.n_variables)

    def sweep() -> db.Samples:
        return db.sample(model, scan, chains=_CHAINS, seed=1, record="counts")

    first = seconds(sweep)
    rate = _CHAINS * model.n_variables / best_of(sweep)
    measured = f"{rate:.3g} updates/s, first call {_CHAINS * model.n_variables / first:.3g}; {sweep().kernel}"
    yield Row(f"one sweep of {_CHAINS} chains", measured, "2e+07 updates/s", rate >= 2e7)


def _all_sizes(sizes: tuple[int, ...]) -> Iterator[Row]:
    """The same questions of models of all sizes, and what a factor costs when they are built."""
    times = []
    for size in sizes:
        arrays = _arrays(size)
        # In memory that the process has had before: to get fresh memory can take several times as long as to build.
        build = best_of(lambda arrays=arrays: db.FactorGraph.from_arrays(*arrays)) / size
        model = db.FactorGraph.from_arrays(*arrays)
        times.append((*_times(model, arrays[1]), build))
        del arrays, model
    counts = ", ".join(f"{float(size):.0e}" for size in sizes)
    names = (("one marginal", "ms", 1e3), ("with one observation", "ms", 1e3), ("building, a factor", "ns", 1e9))
    for (name, unit, scale), column in zip(names, zip(*times, strict=True), strict=True):
        ratio = column[-1] / column[0]
        shown = ", ".join(f"{scale * value:.0f} {unit}" for value in column)
        yield Row(f"{name}: {counts} factors", f"{shown}: {ratio:.2f}x", f"flat within {_FLAT:g}x", ratio <= _FLAT)


def _times(model: db.FactorGraph, scopes: np.ndarray) -> tuple[float, float]:
    """Median seconds of a marginal, and of one with an observed neighbour, over several variables."""
    targets = np.random.default_rng(1).integers(model.n_variables, size=12).tolist()
    db.estimate(model, [targets[0]], seed=1)
    alone, observed = [], []
    for target in targets[1:]:
        near = scopes[(scopes == target).any(axis=1)]
        evidence = {int(near[0].sum()) - target: 1} if len(near) else {(target + 1) % model.n_variables: 1}
        alone.append(seconds(lambda target=target: db.estimate(model, [target], seed=1)))
        observed.append(
            seconds(lambda target=target, evidence=evidence: db.estimate(model, [target], evidence=evidence, seed=1))
        )
    return float(np.median(alone)), float(np.median(observed))


def _limit(name: str, taken: float, most: float) -> Row:
    return Row(f"{float(_FACTORS):.0e} factors: {name}", f"{1e3 * taken:.0f} ms", f"{1e3 * most:g} ms", taken <= most)


if __name__ == "__main__":
    main()
