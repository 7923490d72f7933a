"""Measure what a first call compiles: each in a new process, with an empty folder for compiled code.

usage: python benchmarks/first.py [--repeats N]

The yardstick is a kernel of one loop, which is compiled in the same way: nothing that is compiled takes less. Kernels
that take longer than a tenth of a second are named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import event

import dobrushin as db
from dobrushin._shared.compile import kernel
from dobrushin.cli.app import app

# Seconds of compilation that are asked for.
_REQUIRED = 3.0
_YARDSTICK = "one loop over an array"


@kernel
def _add_up(numbers):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(numbers)):
        total += numbers[i]
    return total


def _command() -> None:
    app(["estimate"], standalone_mode=False)


def _torus() -> db.Estimate:
    return db.estimate(db.Ising.grid(1000, 1000, couplings=0.2, periodic=True), [0])


def _million(**options: Any) -> db.Estimate:
    return db.estimate(db.Ising.grid(1000, 1000, couplings=0.2), [0], evidence={1: 1}, **options)


def _pair() -> db.Estimate:
    torus = db.Ising.grid(40, 40, couplings=0.35, periodic=True)
    return db.estimate(torus, db.Joint(0, 1), tolerance=0.05, method="coalescence", seed=1)


CALLS: dict[str, Callable[[], object]] = {
    _YARDSTICK: lambda: _add_up(np.ones(10)),
    "README: dobrushin estimate": _command,
    "torus 1000 x 1000, one spin": _torus,
    "README: a million spins, sums near the target": lambda: _million(tolerance=1e-4),
    "README: the same, drawn": lambda: _million(method="dobrushin", seed=1),
    "README: coalescence": _pair,
}


class _Listener(event.Listener):
    """Seconds of each kernel, with the helpers that are compiled into it."""

    def __init__(self) -> None:
        self.kernels: dict[str, float] = {}
        self._depth, self._begin = 0, 0.0

    def on_start(self, event: Any) -> None:
        del event
        self._depth += 1
        if self._depth == 1:
            self._begin = time.perf_counter()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            name = event.data["dispatcher"].py_func.__name__
            self.kernels[name] = self.kernels.get(name, 0.0) + time.perf_counter() - self._begin


def _run_one(name: str) -> None:
    """Make a call in this process; the last line is for the parent."""
    _ = db.estimate, db.Joint, db.Ising  # imports are no part of the call
    listener = _Listener()
    event.register("numba:compile", listener)
    begin = time.perf_counter()
    CALLS[name]()
    print("\n" + json.dumps({"call": time.perf_counter() - begin, "kernels": listener.kernels}))


def _watch(name: str, repeats: int) -> dict[str, Any]:
    """What a call takes in a new process, as a whole and for each kernel that it compiles: the median of some."""
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            command = [sys.executable, __file__, "--one", name]
            done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return sorted(found, key=_compilation)[repeats // 2]


def _compilation(one: dict[str, Any]) -> float:
    return float(sum(one["kernels"].values()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure what a first call compiles.")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each call; the median is shown")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _run_one(options.one)
        return
    # Not in the processes that are measured: there nothing would be interpreted.
    from measure import Row, promises, wide_console

    console = wide_console()
    unit = _compilation(_watch(_YARDSTICK, options.repeats))
    rows = [Row(_YARDSTICK, f"{unit:.2f} s", "the yardstick", None)]
    for name in list(CALLS)[1:]:
        one = _watch(name, options.repeats)
        seconds = _compilation(one)
        parts = [f"{kernel} {took:.1f} s" for kernel, took in one["kernels"].items() if took > 0.1]
        parts = [f"{seconds:.2f} s", f"{seconds / unit:.1f}x", *parts, f"whole call {one['call']:.2f} s"]
        measured = ", ".join(parts)
        rows.append(Row(name, measured, f"{_REQUIRED:g} s", seconds <= _REQUIRED))
    console.print(promises("Compilation on a first call", rows))


if __name__ == "__main__":
    main()
