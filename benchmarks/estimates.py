"""Measure what certified estimates promise, and print it beside the promise.

usage: python benchmarks/estimates.py [--quick] [--coverage] [--peers]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher
from scipy import special

import dobrushin as db
from answers import measure_answers
from measure import Row, print_verdict, promises, random_ising, seconds, wide_console
from misses import coverage
from plain import gibbs_update

_CORNER_SECONDS, _SAME, _TORUS_SECONDS, _SUMS_SECONDS = 0.5, 2.0, 3.0, 2e-3
_NEW_MODELS = 9
# Updates of plain C in one run of three.
_PLAIN_UPDATES = 10**7
# Sides of the grids on which other libraries look for the corner, and sweeps that are tried for the bias of ours.
_PEER_SIDES = (300, 1000)
_PEER_REPEATS = 25
_MOST_SWEEPS = 20


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description="Measure what certified estimates promise.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--coverage", action="store_true", help="1000 runs a model for the coverage, not 50")
    parser.add_argument("--peers", action="store_true", help="also run the other libraries that are installed")
    options = parser.parse_args()
    console = wide_console()
    with console.status("measuring"):
        rows = list(_measure(options.quick, options.coverage, options.peers))
    console.print(promises("Certified estimates", rows))
    print_verdict(console, rows)


def _measure(quick: bool, many_runs: bool, with_peers: bool) -> Iterator[Row]:
    yield from _corner(repeats=25 if quick else 100)
    yield from _torus(repeats=5 if quick else 20)
    yield from coverage(runs=1000 if many_runs else 50)
    # After ours: some of them leave threads behind.
    if with_peers:
        for side in _PEER_SIDES:
            yield from _peers(side, most_seconds=5.0 if quick else 100.0)


# -- one corner ----------------------------------------------------------------------------------------------------


def _ask(model: db.Ising, seed: int) -> db.Estimate:
    return db.estimate(model, [0], tolerance=0.01, confidence=0.99, seed=seed, method="dobrushin")


def _time(model: db.Ising, seed: int) -> float:
    """Milliseconds from the built model to the answer."""
    return 1e3 * seconds(lambda: _ask(model, seed))


def _corner(repeats: int) -> Iterator[Row]:
    """A million variables, and the ten thousand of them around the same corner, in turn."""
    large = random_ising(1000, seed=0)
    near = np.arange(100)
    kept = (1000 * near[:, None] + near).ravel()
    small = db.Ising(large.couplings[kept][:, kept])
    _ask(db.Ising(small.couplings), 0)  # compiles
    # One column for each model. A new model knows nothing of earlier calls.
    first = [[_time(db.Ising(model.couplings), seed) for model in (large, small)] for seed in range(_NEW_MODELS)]
    again = [[_time(model, seed) for model in (large, small)] for seed in range(repeats)]
    news, repeated = np.median(first, axis=0), np.median(again, axis=0)
    worst = max(large for large, _ in (*first, *again))
    plan = _ask(large, 0).plan
    work = f"{len(plan.scan)} steps x {plan.chains} chains"
    measured = f"{repeated[0]:.1f} ms, first call {news[0]:.1f} ms, slowest {worst:.1f} ms; {work}"
    name = "Ising 1000x1000, one corner, tolerance 0.01 at 0.99"
    yield Row(name, measured, f"under {_CORNER_SECONDS:g} s", worst < 1e3 * _CORNER_SECONDS)
    ratio, at_first = repeated[0] / repeated[1], news[0] / news[1]
    measured = f"{ratio:.2f}x ({repeated[0]:.1f} ms / {repeated[1]:.1f} ms), first calls {at_first:.2f}x"
    yield Row("  10^6 / 10^4 variables", measured, f"within {_SAME:g}x", bool(ratio <= _SAME))
    yield from _sums(large, repeats)


def _sums(model: db.Ising, repeats: int) -> Iterator[Row]:
    """What "auto" does with one spin: hardly anything but planning, in Python. So it is compared with such calls."""
    others = np.random.default_rng(0).integers(model.n_variables, size=3 * repeats).tolist()
    for spin in (0, *others[:repeats]):  # compiles
        db.estimate(model, [spin])
    numbers = np.arange(100) % 7
    for name, spins in (("the corner", [0] * 2 * repeats), ("another each time", others[repeats:])):
        times = [
            (seconds(lambda s=spin: db.estimate(model, [s])), seconds(lambda: np.unique(numbers)))
            for spin in spins[:repeats]
        ]
        whole, unit = np.median(times, axis=0)
        with _timed_kernels() as inside:
            for spin in spins[repeats:]:
                db.estimate(model, [spin])
        outside = whole - sum(inside) / repeats
        measured = f"{1e3 * outside:.2f} ms of {1e3 * whole:.2f} ms, {whole / unit:.0f} times np.unique of 100 numbers"
        required = f"{1e3 * _SUMS_SECONDS:g} ms"
        yield Row(f"  {name} by sums: outside the kernels", measured, required, bool(outside <= _SUMS_SECONDS))


class _Timed:
    """A kernel that notes how long its calls take."""

    def __init__(self, compiled: Dispatcher, noted: list[float]) -> None:
        self._compiled, self._noted = compiled, noted

    def __call__(self, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self._compiled(*arguments)
        finally:
            self._noted.append(time.perf_counter() - begin)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)


@contextlib.contextmanager
def _timed_kernels() -> Iterator[list[float]]:
    """Seconds of the calls of kernels, wherever the package has a name for them."""
    noted: list[float] = []
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("dobrushin.")]
    names = [(module, key, value) for module in modules for key, value in module.items()]
    kernels = [place for place in names if isinstance(place[2], Dispatcher)]
    timed = {id(kernel): _Timed(kernel, noted) for _, _, kernel in kernels}
    for module, key, kernel in kernels:
        module[key] = timed[id(kernel)]
    try:
        yield noted
    finally:
        for module, key, kernel in kernels:
            module[key] = kernel


# -- all of a torus ------------------------------------------------------------------------------------------------


def _torus(repeats: int) -> Iterator[Row]:
    torus = db.Ising.grid(40, 40, couplings=0.2, fields=0.01, periodic=True)  # no symmetry

    def ask(model: db.Ising, seed: int) -> db.Estimate:
        return db.estimate(model, "all", tolerance=0.02, confidence=0.95, seed=seed)

    plan = ask(db.Ising(torus.couplings, torus.fields), 0).plan  # compiles
    first = seconds(lambda: ask(torus, 0))
    times = [seconds(lambda seed=seed: ask(torus, seed)) for seed in range(repeats)]
    median, worst = float(np.median(times)), max(first, *times)
    name = "Torus 40x40, theta 0.2, all 1600 marginals, tolerance 0.02 at 0.95"
    work = f"{len(plan.scan)} steps x {plan.chains} chains"
    update = gibbs_update(torus, sweeps=_PLAIN_UPDATES // torus.n_variables)
    if update is not None:
        plain = 1e-9 * update * plan.updates
        work += f", {plain / median:.0f}x faster than plain C makes these updates ({plain:.1f} s)"
    measured = f"{median:.3f} s, first call {first:.3f} s, slowest {worst:.3f} s; {work}"
    yield Row(name, measured, f"under {_TORUS_SECONDS:g} s", worst < _TORUS_SECONDS)


# -- other libraries -----------------------------------------------------------------------------------------------


def _peers(side: int, most_seconds: float) -> Iterator[Row]:
    """The corner by libraries that update the whole grid, until the standard error that ours plans for."""
    model = random_ising(side, seed=0)
    plan = _ask(model, 0).plan
    ours = float(np.median([_time(model, seed) for seed in range(_PEER_REPEATS)]))
    error = plan.monte_carlo / -float(special.ndtri((1 - plan.confidence) / 2))
    sweeps = _sweeps(model, plan.bias)
    for found in measure_answers(model, error, sweeps, most_seconds):
        name = f"Ising {side}x{side}, corner, standard error {error:.4f}: {found.name} / ours"
        if found.seconds is None:
            yield Row(name, found.note, "ours faster", None)
            continue
        ratio = 1e3 * found.seconds / ours
        measured = f"{ratio:,.0f}x ({found.seconds:.0f} s, {found.note}; ours {ours:.1f} ms)"
        yield Row(name, measured, "ours faster", ratio > 1)


def _sweeps(model: db.Ising, bias: float) -> int:
    """Systematic sweeps after which the corner is as close as ours, by the certificate: what a start is given."""
    n = model.n_variables
    _, values = db.variation(model, db.Scan.systematic(n, _MOST_SWEEPS * n), targets=[0]).curve(every=n)
    return int(np.argmax(values <= bias)) or _MOST_SWEEPS


if __name__ == "__main__":
    main()
