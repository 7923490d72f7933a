"""Measure local exact answers beside the methods that sample, on the same questions.

usage: python benchmarks/local.py [--quick]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin._shared.compile import compile_always
from measure import Row, best_of, print_verdict, promises, seconds, wide_console

_MARGINAL_SECONDS, _TORUS_SECONDS = 0.3, 3.0
# Grids of about 10^6 and 10^9 spins; the second is never made as a whole.
_SIDES = (1000, 31_623)
# "auto" may take this many times as long as the best method by name.
_MAX_RATIO = 1.3
_NETWORKS = Path(os.environ.get("DOBRUSHIN_DATA", "data")) / "bif"


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description="Measure local exact answers.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    repeats = 5 if parser.parse_args().quick else 25
    console = wide_console()
    compile_always()
    with console.status("measuring"):
        rows = [*_auto(repeats), *_marginals(repeats), *_torus(repeats), *_signs(repeats)]
    console.print(promises("Local exact answers", rows))
    print_verdict(console, rows)


def _auto(repeats: int) -> Iterator[Row]:
    """What choosing a method costs, beside the method that wins."""
    grids = {f"{side} x {side} grid": db.Ising.grid(side, side, couplings=0.2) for side in (20, 30, 1000)}
    paths = {name: _NETWORKS / f"{name}.bif.gz" for name in ("asia", "alarm")}
    networks = {name: db.read(path) for name, path in paths.items() if path.exists()}
    for name, model in {**grids, **networks}.items():
        target = model.labels[model.n_variables // 2]
        times = {
            method: best_of(lambda m=method, model=model, t=target: _ask(model, t, 0.01, m), 2 * repeats)
            for method in ("auto", "local", *(["exact"] if name in networks else []))
        }
        auto = times.pop("auto")
        best = min(times, key=lambda method: times[method])
        ratio = auto / times[best]
        measured = f"{1e3 * auto:.2f} ms; {best} {1e3 * times[best]:.2f} ms, {ratio:.2f} times as long"
        yield Row(f"{name}: auto beside the best method", measured, f"<= {_MAX_RATIO}", ratio <= _MAX_RATIO)


def _marginals(repeats: int) -> Iterator[Row]:
    """One marginal of very many spins."""
    for side in _SIDES:
        model = db.Ising.grid(side, side, couplings=0.2)
        middle = side * (side // 2) + side // 2
        size = f"{float(side * side):.0e} spins, theta 0.2"
        answer = db.estimate(model, [middle], tolerance=1e-4, method="local")
        time = best_of(lambda model=model, middle=middle: _ask(model, middle, 1e-4, "local"), repeats)
        promised = (
            time < _MARGINAL_SECONDS and answer.half_width.max() <= 1e-4 and answer.lower[0] <= 0.5 <= answer.upper[0]
        )
        measured = f"{1e3 * time:.1f} ms, half-width {answer.half_width.max():.2g}; {answer.plan.reason}"
        yield Row(f"{size}: a marginal to 1e-4, certain", measured, f"< {_MARGINAL_SECONDS} s", bool(promised))
        for place, target in (("middle", middle), ("corner", 0)):
            sums, draws = (
                best_of(lambda m=method, t=target, model=model: _ask(model, t, 0.01, m), repeats)
                for method in ("local", "dobrushin")
            )
            measured = f"{1e3 * sums:.1f} ms; sampling {1e3 * draws:.1f} ms, {draws / sums:.1f} times as long"
            yield Row(f"{size}: the {place} to 0.01", measured, "faster than sampling", sums < draws)
        chosen = db.plan(model, [middle]).method
        yield Row(f"{size}: what auto takes at 0.01", chosen, "local", chosen == "local")


def _torus(repeats: int) -> Iterator[Row]:
    """Past Dobrushin's condition."""
    for theta, tolerance in ((0.30, 0.01), (0.35, 0.05)):
        torus = db.Ising.grid(40, 40, couplings=theta, periodic=True)
        few = max(1, repeats // 5)
        time = best_of(lambda torus=torus, t=tolerance: _ask(torus, 0, t, "local"), few)
        answer = db.estimate(torus, [0], tolerance=tolerance, method="local")
        plan = db.plan(torus, [0], tolerance=tolerance, method="coalescence")
        once = seconds(lambda torus=torus, t=tolerance: _ask(torus, 0, t, "coalescence"))
        measured = (
            f"{1e3 * time:.0f} ms, half-width {answer.half_width.max():.2g}; coalescence {once:.2f} s and "
            f"{plan.chains} runs, {once / time:.1f} times as long"
        )
        name = f"40 x 40 torus, theta {theta:g}: a marginal to {tolerance:g}, certain"
        yield Row(name, measured, f"< {_TORUS_SECONDS:g} s", time < _TORUS_SECONDS)


def _signs(repeats: int) -> Iterator[Row]:
    """Couplings of both signs, where Dobrushin's bound has to do; and other models."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-0.2, 0.2], size=2 * 300 * 299)
    mixed = db.Ising.grid(300, 300, couplings=signs)
    potts = db.Potts.grid(300, 300, states=3, couplings=0.3)
    for name, model in (("300 x 300 grid, signs +-0.2", mixed), ("300 x 300 Potts, 3 states, 0.3", potts)):
        sums, draws = (
            best_of(lambda m=method, model=model: _ask(model, 45_150, 0.01, m), repeats)
            for method in ("local", "dobrushin")
        )
        answer = db.estimate(model, [45_150], tolerance=0.01, method="local")
        measured = (
            f"{1e3 * sums:.1f} ms, half-width {answer.half_width.max():.2g}; sampling {1e3 * draws:.1f} ms, "
            f"{draws / sums:.1f} times as long"
        )
        yield Row(f"{name}: a marginal to 0.01", measured, "", None)


def _ask(model: Any, target: Any, tolerance: float, method: str) -> None:
    """One estimate."""
    db.estimate(model, [target], tolerance=tolerance, method=method, seed=1)


if __name__ == "__main__":
    main()
