"""Measure the sampler on a GPU beside the same kernels on the CPU, and beside what the chip could do at most.

usage: python benchmarks/gpu.py [--quick] [--cores N] [--only "random scan"]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from scipy import sparse

import dobrushin as db
from dobrushin._coalescence.sets import choose_sets
from dobrushin._sampling.kernel import Runner, Work, choose_kernel
from dobrushin._shared.device import cupy, is_available
from dobrushin._shared.running import master_key
from measure import wide_console

_MASTER = master_key(np.random.SeedSequence(1))
_VERDICTS = {True: "[green]yes[/green]", False: "[red]no[/red]", None: ""}
_REPEATS = 3
# Seconds that a measured run takes at least, about.
_LONG, _QUICK = 1.0, 0.1
# Per update of a word of 64 chains, as counted by the profiler on compute capability 9.0: operations of the pipe for
# logic and shifts, of the one for multiplication, all instructions, cycles of a multiprocessor's unit for loads and
# stores (for 32 words), and bytes of states.
_LOGIC, _MULTIPLY, _ALL, _CYCLES, _BYTES = 340, 192, 628, 195, 40
# Logic and shifts, and all instructions, of other kernels that have 64 chains in a word, counted by ncu --metrics
# sm__inst_executed_pipe_alu.sum,smsp__inst_executed.sum and divided by the updates of 32 words.
_WORDS = {"counts": (473, 869), "set bits": (563, 951)}


@dataclass(frozen=True)
class Case:
    """A model, a kernel and a number of chains; what is required in updates per nanosecond and times the CPU."""

    what: str
    model: db.Ising | db.Potts | db.PairwiseMRF
    kernel: str
    chains: int
    rate: float | None = None
    ratio: float | None = None
    cpu_chains: int = 4096
    operations: int = 0  # on doubles, in an update of a chain by itself; counted in the source
    scan: str = "cycle"

    def build(self) -> tuple[Runner, db.Scan]:
        """The kernel of the CPU and one long scan."""
        n = self.model.n_variables
        scan = db.Scan.systematic(n, 10**9 // n * n) if self.scan == "cycle" else db.Scan.uniform(n, 10**9)
        if self.kernel.startswith("set "):
            return choose_sets(self.model, scan), scan
        return choose_kernel(self.model, scan, self.chains, self.kernel), scan


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="Measure the sampler on a GPU.")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--only", default="", help="only cases whose description has this in it")
    parser.add_argument("--cores", type=int, default=2, help="cores that the CPU's kernels may use (default 2)")
    options = parser.parse_args()
    if not is_available():
        sys.exit("No GPU: nothing is measured (see docs/gpu.md).")
    console = wide_console()
    properties = cupy().cuda.runtime.getDeviceProperties(0)
    console.print(
        f"GPU: {properties['name'].decode()}; CPU: {_processor()}, {options.cores} cores used", highlight=False
    )
    table = Table(title="Updates per nanosecond", title_justify="left")
    for heading in ("work", "kernel", "chains", "GPU", "required", "CPU", "ratio", "required", "ok", "of the limit"):
        table.add_column(heading, justify="left" if heading in ("work", "kernel") else "right")
    known: dict[tuple[str, str], float] = {}
    best = 0.0
    for case in [case for case in cases(options.quick) if options.only in case.what]:
        gpu = device_rate(case, _QUICK if options.quick else _LONG)
        key = (case.what, case.kernel)
        if key not in known:
            known[key] = host_rate(case, options.cores, _QUICK if options.quick else _LONG)
        cpu = known[key]
        required = [(gpu, case.rate), (gpu / cpu, case.ratio)]
        ok = all(value >= least for value, least in required if least) if case.rate or case.ratio else None
        table.add_row(
            case.what, case.kernel, f"{case.chains:.3g}", f"{gpu:.4g}", f"{case.rate or ''}", f"{cpu:.3g}",
            f"{gpu / cpu:.3g}x", f"{case.ratio or ''}", _VERDICTS[ok], share_of_limit(case, gpu, properties),
        )  # fmt: skip
        if case.kernel == "bits" and case.rate:
            best = max(best, gpu)
    console.print(table)
    if not options.only:
        console.print(roofline(best, properties), highlight=False)
        console.print(whole_call(), highlight=False)


def cases(quick: bool) -> list[Case]:
    """What is measured."""
    rng = np.random.default_rng(0)
    small = db.Ising.grid(
        10, 10, couplings=rng.normal(0, 0.3, 200), fields=rng.normal(0, 0.2, (10, 10)), periodic=True
    )  # fmt: skip
    large = db.Ising.grid(300, 300, couplings=rng.normal(0, 0.3, 180_000), periodic=True)
    potts = db.Potts.grid(20, 31, states=8, couplings=0.48, unaries=rng.normal(size=(20, 31, 8)))
    sets = db.Potts.grid(20, 31, states=9, couplings=0.3, unaries=rng.normal(size=(20, 31, 9)))
    torus = "10 x 10, degree 4, any couplings"
    work = [
        Case(torus, small, "bits", 10**6, 900, 200),
        Case(torus, small, "bits", 2 * 10**6, 900, 200),
        Case(torus, small, "bits", 4 * 10**6, 900, 200),
        Case(torus, small, "bits", 10**8, 900, 200),
        Case("5 x 5 x 5, degree 6, any couplings", cube(5, rng), "bits", 4 * 10**6),
        Case("300 x 300, degree 4", large, "bits", 10**6),
        Case(torus, small, "set bits", 4 * 10**6),
        Case("Potts 20 x 31, 8 labels", potts, "potts", 10**6, None, 50, 256, 8 * 8),
        Case("the same by tables of pairs", potts, "factors", 10**6, None, 50, 64, 8 * 60),
        Case("W7: the same by tables of pairs", potts, "conditional", 10**6, None, 200, 256, 8 * 8),
        Case("W8: sets, Potts 20 x 31, 9 labels", sets, "set labels", 10**6, None, 200, 256, 9 * 40),
        Case("the same by tables of pairs", sets.to_factor_graph(), "set race", 10**6, None, 200, 256, 9 * 30),
        Case("sets, a small network", mixed(40, rng), "set race", 10**6, None, 200, 256, 3 * 40),
        Case("W9: 20 x 20, degree 8, any couplings", image(20, rng, False), "field", 10**6, None, 200, 4096, 50),
        Case("W9: 20 x 20, degree 8, equal couplings", image(20, rng, True), "counts", 4 * 10**6, None, 200),
        Case("W9: degree 12, any couplings", regular(400, 12, rng), "field", 10**6, None, 200, 4096, 60),
        Case("W10: spin glass of 1000, all coupled", glass(1000, rng), "dense", 2**18, None, 200, 1024, 1000),
        Case("random scan, 10 x 10", small, "table", 10**6, None, 200, 64, 0, "random"),
        Case("random scan, degree 8", image(20, rng, False), "field", 10**6, None, 200, 64, 50, "random"),
        Case("random scan, Potts 20 x 31", potts, "potts", 10**6, None, 200, 64, 8 * 8, "random"),
    ]
    return [case for case in work if not quick or case.chains < 10**8]


def cube(side: int, rng: np.random.Generator) -> db.Ising:
    """A periodic cube."""
    n = side**3
    at = np.arange(n).reshape(side, side, side)
    pairs = np.concatenate([np.stack([at.ravel(), np.roll(at, -1, axis).ravel()], axis=1) for axis in range(3)])
    return _pairs(n, pairs, rng.normal(0, 0.3, len(pairs)))


def image(side: int, rng: np.random.Generator, equal: bool) -> db.Ising:
    """A grid with 8 neighbours."""
    at = np.arange(side * side).reshape(side, side)
    shifts = [(0, 1), (1, 0), (1, 1), (1, -1)]
    pairs = np.concatenate([np.stack([at.ravel(), np.roll(at, shift, (0, 1)).ravel()], axis=1) for shift in shifts])
    return _pairs(side * side, pairs, np.full(len(pairs), 0.1) if equal else rng.normal(0, 0.1, len(pairs)))


def regular(n: int, degree: int, rng: np.random.Generator) -> db.Ising:
    """A circulant graph with couplings of all sizes."""
    at = np.arange(n)
    pairs = np.concatenate([np.stack([at, (at + k * k) % n], axis=1) for k in range(1, degree // 2 + 1)])
    return _pairs(n, pairs, rng.normal(0, 0.1, len(pairs)))


def glass(n: int, rng: np.random.Generator) -> db.Ising:
    """The model of Sherrington and Kirkpatrick."""
    upper = np.triu(rng.normal(0, 0.5 / np.sqrt(n), (n, n)), 1)
    return db.Ising(upper + upper.T)


def mixed(n: int, rng: np.random.Generator) -> db.FactorGraph:
    """Factors of up to four variables with two to four states, like those of a small network."""
    states = rng.integers(2, 5, size=n)
    scopes = [tuple(sorted(rng.choice(min(n, v + 1), size=min(v + 1, 1 + v % 4), replace=False))) for v in range(n)]
    tables = [rng.normal(0.0, 0.7, size=states[list(scope)]) for scope in scopes]
    return db.FactorGraph(states.tolist(), list(zip(scopes, tables, strict=True)))


def _pairs(n: int, pairs: Any, values: Any) -> db.Ising:
    upper = sparse.coo_array((values, pairs.T), shape=(n, n))
    return db.Ising(sparse.csr_array(upper + upper.T))


def share_of_limit(case: Case, rate: float, properties: dict[str, Any]) -> str:
    """The part of what the chip can do at most: of its doubles, of its memory; of its logic for 64 chains in a word."""
    cycles = properties["multiProcessorCount"] * properties["clockRate"] * 1e-6  # of all multiprocessors, per ns
    if case.kernel in _WORDS:
        logic, instructions = _WORDS[case.kernel]
        words = rate / 64
        return f"logic {words * logic / (64 * cycles):.0%}, instructions {words * instructions / (128 * cycles):.0%}"
    if not case.operations and case.kernel != "table":
        return ""
    if case.kernel == "dense":  # products of matrices: a multiplication and an addition at once, 128 a cycle
        return f"doubles {rate * case.operations / (128 * cycles):.0%}"
    doubles = 64 * cycles
    degree = sum(len(case.model.neighbors(i)) for i in range(case.model.n_variables)) / case.model.n_variables
    return f"doubles {rate * case.operations / doubles:.0%}, memory {rate * (degree + 1) / _bandwidth(properties):.0%}"


def device_rate(case: Case, long: float) -> float:
    """Updates per nanosecond of steps on the GPU, batch after batch; the best of some runs."""
    host, scan = case.build()
    kernel = host.twin(host)
    batches = kernel.batches(range(case.chains), 1)
    states = [(batch, kernel.start(_MASTER, batch)) for batch in batches]

    def run(steps: int) -> None:
        for batch, x in states:
            kernel.run(x, Work(_MASTER, batch, scan._segments[0], 0, steps, 0))

    return _rate(run, case.model.n_variables, case.chains, long)


def host_rate(case: Case, cores: int, long: float) -> float:
    """The same on some cores of the CPU, each with a batch of its own."""
    kernel, scan = case.build()
    size = min(case.cpu_chains, kernel.batch * 4)
    batches = [range(size * k, size * (k + 1)) for k in range(cores)]
    states = [kernel.start(_MASTER, batch) for batch in batches]

    def run(steps: int) -> None:
        threads = [
            threading.Thread(target=kernel.run, args=(x, Work(_MASTER, batch, scan._segments[0], 0, steps, 0)))
            for batch, x in zip(batches, states, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return _rate(run, case.model.n_variables, size * cores, long)


def _rate(run: Callable[[int], Any], n: int, chains: int, long: float) -> float:
    run(n)  # compiles, and fills caches
    steps = n
    while (elapsed := _seconds(run, steps)) < long / 4:
        steps *= 2 if elapsed > long / 16 else 4
    best = min(_seconds(run, steps) for _ in range(_REPEATS))
    return steps * chains / best * 1e-9


def _seconds(run: Callable[[int], Any], steps: int) -> float:
    begin = time.perf_counter()
    run(steps)
    return time.perf_counter() - begin


def roofline(rate: float, properties: dict[str, Any]) -> str:
    """How near the best rate of `bits` comes to what the chip can do."""
    cycles = properties["multiProcessorCount"] * properties["clockRate"] * 1e-6  # of all multiprocessors, per ns
    words = rate / 64
    limits = {
        f"logic and shifts ({_LOGIC} operations a word, 64 a cycle)": 64 * cycles / _LOGIC,
        f"multiplications and additions ({_MULTIPLY}, 64 a cycle)": 64 * cycles / _MULTIPLY,
        f"instructions ({_ALL}, 128 a cycle)": 128 * cycles / _ALL,
        f"loads and stores ({_CYCLES} cycles for 32 words)": 32 * cycles / _CYCLES,
        f"memory of states ({_BYTES} bytes, if none came from a cache)": _bandwidth(properties) / _BYTES,
    }
    lines = [f"Roofline of bits at {rate:.0f} updates/ns, at the chip's highest clock; a word is 64 chains:"]
    lines += [f"  {what}: at most {64 * most:.0f}; {words / most:.0%} of that" for what, most in limits.items()]
    return "\n".join(lines)


def _bandwidth(properties: dict[str, Any]) -> float:
    """Bytes per nanosecond."""
    return float(properties["memoryClockRate"] * 1e-6 * 2 * properties["memoryBusWidth"] / 8)


def whole_call() -> str:
    """A run from the built kernel to counts on the host."""
    case = cases(True)[0]
    host, scan = case.build()
    n = case.model.n_variables
    kernel = host.twin(host)
    counts = np.zeros((n, 2), dtype=np.int64)

    def run(steps: int) -> None:
        for batch in kernel.batches(range(case.chains), 1):
            x = kernel.start(_MASTER, batch)
            kernel.run(x, Work(_MASTER, batch, scan._segments[0], 0, steps, 0))
            kernel.count(x, np.arange(n), len(batch), counts)

    seconds = min(_seconds(run, 1000 * n) for _ in range(_REPEATS))
    return f"Start, 1000 sweeps and counts of {case.chains:.3g} chains of the first row: {seconds:.3f} s"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            name = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor()
    return f"{name}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
