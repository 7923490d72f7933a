"""Measure how time grows with variables, targets, chains and workers, and draw it.

usage: python benchmarks/curves.py [--quick] [--out FOLDER]

Writes scaling.csv and scaling.png.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from measure import seconds
from scale import ask, centre, implicit, times
from workers import Work

_SIDES = (30, 100, 316, 1000, 3162, 10_000, 31_623)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_EXPONENTS = range(6, 20)
_UPDATES, _QUICK = 10**10, 2 * 10**9
# Curve, place on the horizontal axis, seconds.
Point = tuple[str, float, float]


def main() -> None:
    """Measure, write and draw."""
    parser = argparse.ArgumentParser(description="Measure how time grows.")
    parser.add_argument("--quick", action="store_true", help="fewer points, shorter runs")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the files (default: here)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    points: list[Point] = []
    for curve in (sizes, targets, chains, workers):
        for point in curve(options.quick):
            print(f"{point[0]:>10} {point[1]:>12.6g} {point[2]:.4g} s", flush=True)
            points.append(point)
    with open(options.out / "scaling.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("curve", "size", "seconds"), *points])
    draw(points).savefig(options.out / "scaling.png", dpi=220)


def sizes(quick: bool) -> Iterator[Point]:
    """One site of grids that are never made, against their variables."""
    for side in _SIDES[:: 3 if quick else 1]:
        yield "variables", side * side, times(implicit(side), [centre(side)])[0]


def targets(quick: bool) -> Iterator[Point]:
    """Sites far apart in a billion variables, against their number."""
    side = _SIDES[-1]
    model = implicit(side)
    for count in _COUNTS[:: 3 if quick else 1]:
        sites = [centre(side) + 50 * (k - count // 2) for k in range(count)]
        yield "targets", count, min(seconds(lambda sites=sites: ask(model, sites, 0)) for _ in range(3))


def chains(quick: bool) -> Iterator[Point]:
    """1000 sweeps of a 10 x 10 grid on all cores, against the number of chains."""
    for exponent in _EXPONENTS[:: 4 if quick else 1]:
        work = Work(1000 * 100 * 2**exponent, 2**exponent)
        work.run()
        yield "chains", 2**exponent, min(seconds(work.run) for _ in range(3))


def workers(quick: bool) -> Iterator[Point]:
    """One run of the same, against threads and processes."""
    work = Work(_QUICK if quick else _UPDATES)
    for count in range(1, 1 + (os.cpu_count() or 1)):
        for kind, name in ((ThreadPoolExecutor, "threads"), (ProcessPoolExecutor, "processes")):
            with kind(count) as pool:
                work.run(pool)
                yield name, count, min(seconds(lambda pool=pool: work.run(pool)) for _ in range(3))


def draw(points: list[Point]) -> Figure:
    """One panel a curve; dotted: proportional to the last point."""
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    titles = {
        "variables": "a certified site, by variables of the model",
        "targets": "certified sites of $10^9$, by their number",
        "chains": "1000 sweeps of 10 × 10, by chains",
    }
    for ax, (name, title) in zip(axes, titles.items(), strict=False):
        x, y = _curve(points, name)
        ax.loglog(x, y, "o-")
        if name != "variables":
            ax.loglog(x, y[-1] * x / x[-1], ":", color="grey")
        ax.set(title=title, xlabel=name, ylabel="seconds", ylim=(min(y) / 3, max(y) * 3))
    for name in ("threads", "processes"):
        x, y = _curve(points, name)
        axes[3].plot(x, points_of_one(points) / y, "o-", label=name)
    top = max(x)
    axes[3].plot([1, top], [1, top], ":", color="grey")
    axes[3].set(title="the same run over workers", xlabel="workers", ylabel="times one thread", ylim=(0, None))
    axes[3].set_xticks(range(1, int(top) + 1))
    axes[3].legend()
    for ax in axes:
        ax.title.set_fontsize("medium")
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def points_of_one(points: list[Point]) -> float:
    """Seconds of one thread."""
    return next(took for name, count, took in points if name == "threads" and count == 1)


def _curve(points: list[Point], name: str) -> tuple[np.ndarray, np.ndarray]:
    found = np.array([(x, y) for curve, x, y in points if curve == name])
    return found[:, 0], found[:, 1]


if __name__ == "__main__":
    main()
