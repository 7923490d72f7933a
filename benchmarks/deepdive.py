"""Measure factor graphs of DeepDive: reading them, one marginal, and numbskull's own sampler on the same graph.

usage: python benchmarks/deepdive.py [--variables 1000000]

The graph has as many is-true factors as variables, and as many equalities of two variables, at random. numbskull 0.1.1
(with the package `future`) is measured where it is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import dobrushin as db

_SWEEPS = 20
_HEAD = [("function", ">i2"), ("arity", ">i8")]
_TAIL = [("weight", ">i8"), ("feature", ">f8")]
_ONE = np.dtype([*_HEAD, ("v", ">i8"), ("is", ">i8"), *_TAIL])
_TWO = np.dtype([*_HEAD, ("v", ">i8"), ("is", ">i8"), ("w", ">i8"), ("is_w", ">i8"), *_TAIL])
_IS_TRUE, _EQUAL = 4, 3


def main() -> None:
    """Write a graph, and print what takes how long."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variables", type=int, default=10**6)
    n = parser.parse_args().variables
    warnings.simplefilter(
        "ignore", db.VacuousBoundWarning
    )  # of all variables together; those of single ones are printed
    with tempfile.TemporaryDirectory() as folder:
        write_graph(Path(folder), n)
        begin = time.perf_counter()
        model = db.read(Path(folder) / "graph.meta")
        print(f"read {model}: {time.perf_counter() - begin:.1f} s")
        times = []
        for i in range(10):
            begin = time.perf_counter()
            answer = db.estimate(model, [i], tolerance=0.01)
            times.append(time.perf_counter() - begin)
        print(f"one marginal to 0.01: first {times[0]:.2f} s, then {1e3 * np.median(times[1:]):.0f} ms in the median")
        print("   ", answer.headline)
        ours = _updates_per_second(model)
        theirs = _numbskull(folder, n)
        if theirs is None:
            print(f"updates per second: {ours:.3g}; numbskull is not installed")
        else:
            print(f"updates per second: {ours:.3g}, numbskull {theirs:.3g} ({ours / theirs:.1f} times)")
        for sweeps in (1, 2, 5, 10):
            bound = db.variation(model, db.Scan.systematic(model, sweeps=sweeps)).per_variable
            print(f"after {sweeps} sweeps of burn-in: the marginals of {np.mean(bound < 0.01):.1%} are within 0.01, "
                  f"of all within {bound.max():.2g}")  # fmt: skip


def write_graph(folder: Path, n: int) -> None:
    """Write the files of a random graph."""
    rng = np.random.default_rng(0)
    weights = np.zeros(10, dtype=[("number", ">i8"), ("is_fixed", "u1"), ("value", ">f8")])
    weights["number"], weights["is_fixed"], weights["value"] = np.arange(10), 1, 0.3 * rng.normal(size=10)
    kinds = [("number", ">i8"), ("seen", "u1"), ("value", ">i8"), ("kind", ">i2"), ("states", ">i8")]
    variables = np.zeros(n, dtype=kinds)
    variables["number"], variables["states"] = np.arange(n), 2
    one, two = np.zeros(n, dtype=_ONE), np.zeros(n, dtype=_TWO)
    for factors, function, arity in ((one, _IS_TRUE, 1), (two, _EQUAL, 2)):
        factors["function"], factors["arity"], factors["feature"] = function, arity, 1.0
        factors["v"], factors["weight"] = rng.integers(n, size=n), 5 * (arity - 1) + rng.integers(5, size=n)
    two["w"] = (two["v"] + 1 + rng.integers(n - 1, size=n)) % n
    (folder / "graph.meta").write_text(f"10,{n},{2 * n},{3 * n}\n")
    for name, arrays in (("weights", [weights]), ("variables", [variables]), ("factors", [one, two]), ("domains", [])):
        (folder / f"graph.{name}").write_bytes(b"".join(array.tobytes() for array in arrays))


def _updates_per_second(model: db.Model) -> float:
    """Return the rate of one chain per core and 16 chains in all: sweeps in the order of the file."""
    scan = db.Scan.systematic(model, sweeps=1)
    db.sample(model, scan, chains=16, seed=0, record="counts")
    begin = time.perf_counter()
    db.sample(model, db.Scan.systematic(model, sweeps=_SWEEPS), chains=16, seed=1, record="counts")
    return 16 * _SWEEPS * model.n_variables / (time.perf_counter() - begin)


def _numbskull(folder: str, n: int) -> float | None:
    """Return the rate of numbskull's sampler with two threads; None where it is not installed."""
    try:
        from numbskull import NumbSkull
    except ImportError:
        return None
    with contextlib.redirect_stdout(io.StringIO()):
        run = NumbSkull(directory=folder, n_inference_epoch=_SWEEPS, burn_in=0, quiet=True, nthreads=2)
        run.loadFGFromFile()
        run.inference(out=False)  # compiles
        begin = time.perf_counter()
        run.inference(out=False)
    return _SWEEPS * n / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
