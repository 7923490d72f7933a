"""Measure exact draws of ferromagnets by random clusters, and certain answers of frustrated models by walks.

Times are those of the processor, beside a yardstick of the same run: 1000 Gibbs sweeps of 64 chains on a torus.

usage: python benchmarks/clusters.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from rich.table import Table

import dobrushin as db
from measure import wide_console

_SIDE = 128


def seconds(call: Callable[[int], object], repeats: int = 5) -> float:
    """Return the median processor time of a call with different seeds, after one that compiles."""
    call(0)
    times = []
    for seed in range(1, repeats + 1):
        begin = time.process_time()
        call(seed)
        times.append(time.process_time() - begin)
    return float(np.median(times))


def glass(theta: float, side: int) -> db.Ising:
    """Return a torus of mixed signs with random fields."""
    rng = np.random.default_rng(3)
    signs, fields = rng.choice([-1, 1], size=2 * side * side), 0.5 * rng.normal(size=(side, side))
    return db.Ising.grid(side, side, couplings=theta * signs, fields=fields, periodic=True)


def regular(n: int) -> db.Ising:
    """Return a 3-regular graph, of a ring and a random matching, with random couplings."""
    rng = np.random.default_rng(4)
    ends = rng.permutation(n).reshape(-1, 2)
    pairs = {(i, (i + 1) % n) for i in range(n)} | {(int(min(pair)), int(max(pair))) for pair in ends}
    return db.Ising({pair: 0.5 * float(rng.normal()) for pair in sorted(pairs)})


def main() -> None:
    """Print the table."""
    torus = db.Ising.grid(_SIDE, _SIDE, couplings=0.2, periodic=True)
    sweeps = db.Scan.systematic(_SIDE**2, steps=1000 * _SIDE**2)
    yardstick = seconds(lambda seed: db.sample(torus, sweeps, chains=64, seed=seed, record=[0]), 1)
    table = Table(title=f"yardstick: {yardstick:.3g} s", title_justify="left")
    for heading in ("what", "seconds", "yardsticks", "result"):
        table.add_column(heading)
    for theta in (0.3, 0.5 * np.log(1.0 + np.sqrt(2.0)), 0.6, 1.0):
        model = db.Ising.grid(_SIDE, _SIDE, couplings=theta, periodic=True)

        def draw(seed: int, model: db.Ising = model) -> db.ExactSamples:
            return db.exact_sample(model, "all", draws=1, seed=seed, method="clusters")

        took, edges = seconds(draw), 2 * _SIDE**2
        sweeps_back = draw(1).steps // edges
        name = f"exact draw, torus {_SIDE} x {_SIDE}, theta {theta:.4f}"
        table.add_row(name, f"{took:.3g}", f"{took / yardstick:.3g}", f"{sweeps_back} sweeps back")
    for name, model, tolerance in (
        ("marginal, +-0.3 glass on a 30 x 30 torus, fields sd 0.5", glass(0.3, 30), 1e-3),
        ("marginal, random 3-regular graph of 1000, couplings sd 0.5, variable 0 observed", regular(1000), 1e-4),
    ):

        def answer(seed: int, model: db.Ising = model, tolerance: float = tolerance) -> db.Estimate:
            return db.estimate(model, [7], evidence={0: 1}, tolerance=tolerance, method="walks", seed=seed)

        took = seconds(answer)
        width = float(answer(1).half_width.max())
        table.add_row(name, f"{took:.3g}", f"{took / yardstick:.3g}", f"half-width {width:.2g}, certain")
    wide_console().print(table)


if __name__ == "__main__":
    main()
