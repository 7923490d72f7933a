"""Measure first answers: each in a new process, with an empty folder for compiled code, and then with a full one.

usage: python benchmarks/first.py [--repeats N]

Seconds are those of the processor and of the whole process: the interpreter, imports, compilation and the call. The
yardstick is a kernel of one loop, which is compiled in the same way: nothing that is compiled takes less. Kernels that
take longer than a tenth of a second are named.
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

# Seconds that are asked for: where nothing was compiled before, and where all was.
_COLD, _WARM = 3.0, 1.0
_YARDSTICK = "one loop over an array"


@kernel
def _add_up(numbers):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(numbers)):
        total += numbers[i]
    return total


def _command() -> None:
    from dobrushin.cli.app import app  # here, since other calls do without it

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
            self._begin = time.process_time()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            name = event.data["dispatcher"].py_func.__name__
            self.kernels[name] = self.kernels.get(name, 0.0) + time.process_time() - self._begin


def _run_one(name: str) -> None:
    """Make a call in this process; the last line is for the parent."""
    listener = _Listener()
    event.register("numba:compile", listener)
    CALLS[name]()
    print("\n" + json.dumps({"process": time.process_time(), "kernels": listener.kernels}))


def _watch(name: str, repeats: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a call takes in a new process without compiled code, and in the next one: the medians of some."""
    pairs = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            command = [sys.executable, __file__, "--one", name]
            pairs.append([_run_alone(command, environment) for _ in range(2)])
    cold, warm = (sorted(found, key=lambda one: one["process"])[repeats // 2] for found in zip(*pairs, strict=True))
    return cold, warm


def _run_alone(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


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
    unit = _compilation(_watch(_YARDSTICK, options.repeats)[0])
    rows = [Row(_YARDSTICK, f"{unit:.2f} s", "the yardstick", None)]
    for name in list(CALLS)[1:]:
        cold, warm = _watch(name, options.repeats)
        seconds = _compilation(cold)
        parts = [f"{kernel} {took:.1f} s" for kernel, took in cold["kernels"].items() if took > 0.1]
        measured = f"{cold['process']:.2f} s, then {warm['process']:.2f} s"
        measured += f"; compilation {', '.join([f'{seconds:.2f} s', f'{seconds / unit:.1f}x', *parts])}"
        is_soon = cold["process"] <= _COLD and warm["process"] <= _WARM
        rows.append(Row(name, measured, f"{_COLD:g} s, then {_WARM:g} s", is_soon))
    console.print(promises("First answers", rows))


if __name__ == "__main__":
    main()
