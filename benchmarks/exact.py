"""Exact answers: the UAI instances in full, large grids and images, and Bayesian networks against pyAgrum.

    python benchmarks/exact.py [uai] [images] [networks] [roofline] [--only NAME ...] [--seconds 60]

Needs the data folder that DOBRUSHIN_DATA names, but for `roofline`, which compares the rate of sums with what memory
and arithmetic allow. Each model is answered in a process of its own, so that its memory and its time are its own;
kernels are compiled before. pyAgrum and opt_einsum are left out where they are not installed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin._exact.engine import plan_sums
from dobrushin._exact.program import build
from dobrushin._kernels import contraction
from peers import is_installed
from plain import sum_entry

# Published marginals that are off by more than their last digit.
_UNRELIABLE = {"relational_2", "relational_3", "relational_4", "relational_5"}
_TOLERANCE, _CONFIDENCE = 0.05, 0.99
# Entries of the clique tree of the largest ObjectDetection instance of UAI 2014.
_TREE = 1.2e9
# Below this a network is too small to compare.
_SMALL = 0.05


def main() -> None:
    """Read what is asked for, and print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["uai", "images", "networks"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    folder = Path(os.environ.get("DOBRUSHIN_DATA", ""))
    if chosen.parts != ["roofline"] and not (folder / "uai").is_dir():
        sys.exit("DOBRUSHIN_DATA names no data folder.")
    _warm_up()
    console = Console(width=150)
    parts = {"uai": _uai, "images": _images, "networks": _networks, "roofline": _roofline}
    for part in chosen.parts:
        console.print(parts[part](folder, chosen.only, chosen.seconds))


def _warm_up() -> None:
    db.exact.marginals(db.Ising.grid(12, 12, couplings=0.1, fields=0.1))
    db.estimate(db.Ising.grid(5, 5, couplings=0.3), "all", tolerance=0.1)


def _alone(function: Any, *arguments: Any, seconds: float) -> dict[str, Any]:
    """Call a function in a process of its own, for so many seconds at most."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def call() -> None:
        try:
            result = function(*arguments)
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        result["memory"] = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        there.send(result)

    process = context.Process(target=call)
    process.start()
    there.close()
    result: dict[str, Any] = {"error": f"more than {seconds:g} s"}
    try:
        if here.poll(seconds):
            result = here.recv()
    except EOFError:
        result = {"error": "out of memory"}
    process.kill()
    process.join()
    return result


# -- UAI instances -----------------------------------------------------------------------------


def _uai(folder: Path, only: list[str], seconds: float) -> Table:
    table = Table(title=f"UAI instances in full: all variables, {_TOLERANCE} at {_CONFIDENCE}, {seconds:g} s each")
    for heading in ("instance", "variables", "answer", "seconds", "MB", "worst miss", "beyond its interval"):
        table.add_column(heading)
    answered = total = 0
    for path in sorted((folder / "uai").glob("*.uai")):
        if only and path.stem not in only:
            continue
        total += 1
        result = _alone(_answer, path, seconds=seconds)
        if "error" in result:
            table.add_row(path.stem, "", result["error"][:70], "", "", "", "")
            continue
        answered += result["half_width"] <= _TOLERANCE
        beyond = "reference unreliable" if path.stem in _UNRELIABLE else str(result["violations"])
        numbers = f"{result['seconds']:.2f}", f"{result['memory'] / 1e6:.0f}", f"{result['miss']:.1e}"
        table.add_row(path.stem, str(result["variables"]), result["method"], *numbers, beyond)
    table.caption = f"{answered} of {total} in full"
    return table


def _answer(path: Path) -> dict[str, Any]:
    model = db.read(path)
    evidence = db.io.read_evidence(f"{path}.evid")
    begin = time.perf_counter()
    estimate = db.estimate(
        model, "all", evidence=evidence, tolerance=_TOLERANCE, confidence=_CONFIDENCE, seed=1, progress=False
    )
    elapsed = time.perf_counter() - begin
    reference = db.io.read_marginals(f"{path}.MAR")
    exact = path.with_suffix(".exact").exists()
    # Variables with one state are in the file of references, and not in the model.
    expected = np.concatenate([reference[int(v)] for v in dict.fromkeys(estimate.targets)])
    slack = 1e-12 if exact else 6e-7
    outside = (expected < estimate.lower - slack) | (expected > estimate.upper + slack)
    return {
        "seconds": elapsed,
        "variables": len(dict.fromkeys(estimate.targets)),
        "method": estimate.plan.method,
        "half_width": float(estimate.half_width.max()),
        "miss": float(np.abs(expected - estimate.value).max()),
        "violations": int(outside.sum()),
    }


# -- images with more states -------------------------------------------------------------------


def _images(folder: Path, only: list[str], seconds: float) -> Table:
    table = Table(title=f"ObjectDetection with more states, until a clique tree has {_TREE:.1g} entries: all marginals")
    for heading in ("instance", "states", "entries of the tree", "entries of all steps", "seconds", "MB"):
        table.add_column(heading)
    for name in ("ObjectDetection_14", "ObjectDetection_28"):
        if only and name not in only:
            continue
        result = _alone(_sum_with_more_states, folder / "uai" / f"{name}.uai", seconds=seconds)
        if "error" in result:
            table.add_row(name, "", "", result["error"][:70], "", "")
            continue
        tree, steps = f"{result['tree']:.3g}", f"{result['entries']:.3g}"
        row = (tree, steps, f"{result['seconds']:.2f}", f"{result['memory'] / 1e6:.0f}")
        table.add_row(name, str(result["states"]), *row)
    table.caption = "required: 20 s and 3000 MB"
    return table


def _sum_with_more_states(path: Path) -> dict[str, Any]:
    tables, rng = db.read(path)._form.tables(), np.random.default_rng(1)
    scopes = [tables.factor(k)[0] for k in range(tables.n_factors)]
    for more in range(100):
        sizes = tables.cardinalities + more
        model = db.FactorGraph(sizes, [(scope, rng.normal(size=[sizes[v] for v in scope])) for scope in scopes])
        plan = plan_sums(model._form.tables(), [(v,) for v in range(model.n_variables)], math.inf)
        tree = int(plan.program.entries[: plan.program.n_up].sum())
        if tree >= _TREE:
            break
    begin = time.perf_counter()
    db.exact.marginals(model)
    elapsed = time.perf_counter() - begin
    return {"seconds": elapsed, "states": int(sizes.max()), "tree": tree, "entries": plan.entries}


# -- Bayesian networks -------------------------------------------------------------------------


def _networks(folder: Path, only: list[str], seconds: float) -> Table:
    table = Table(title="All posteriors of a Bayesian network, from the model in memory; best of three")
    for heading in ("network", "ours", "pyAgrum", "ratio", "MB", "MB pyAgrum", "worst difference"):
        table.add_column(heading)
    ratios = {}
    for path in sorted((folder / "bif").glob("*.bif.gz")):
        name = path.name.removesuffix(".bif.gz")
        if only and name not in only:
            continue
        ours = _alone(_posteriors, path, seconds=10 * seconds)
        theirs = {"error": "not installed"}
        if is_installed("pyagrum"):
            theirs = _alone(_posteriors_by_pyagrum, path, seconds=10 * seconds)
        row = [name, _time(ours), _time(theirs), "", _megabytes(ours), _megabytes(theirs), ""]
        if "seconds" in ours and "seconds" in theirs:
            ratio = theirs["seconds"] / ours["seconds"]
            if max(ours["seconds"], theirs["seconds"]) > _SMALL:
                ratios[name] = ratio
            common = ours["marginals"].keys() & theirs["marginals"].keys()
            worst = max(np.abs(ours["marginals"][v] - theirs["marginals"][v]).max() for v in common)
            row[3], row[6] = f"{ratio:.2f}", f"{worst:.1e}"
        table.add_row(*row)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        worst_name = min(ratios, key=ratios.__getitem__)
        table.caption = (
            f"geometric mean of the ratios over {_SMALL} s: {mean:.2f} (required 1.5); "
            f"smallest {ratios[worst_name]:.2f}, {worst_name} (required 0.67)"
        )
    return table


def _time(result: dict[str, Any]) -> str:
    return f"{result['seconds']:.3f} s" if "seconds" in result else result["error"][:40]


def _megabytes(result: dict[str, Any]) -> str:
    return f"{result['memory'] / 1e6:.0f}" if "seconds" in result else ""


def _best_of_three(call: Any) -> tuple[float, Any]:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - begin)
        if sum(times) > 30.0:
            break
    return min(times), result


def _posteriors(path: Path) -> dict[str, Any]:
    model = db.read(path)
    elapsed, marginals = _best_of_three(lambda: db.exact.marginals(model))
    return {"seconds": elapsed, "marginals": dict(zip(model.labels, marginals, strict=True))}


def _posteriors_by_pyagrum(path: Path) -> dict[str, Any]:
    import gzip
    import tempfile

    import pyagrum

    with tempfile.NamedTemporaryFile(suffix=".bif") as file:
        file.write(gzip.decompress(path.read_bytes()))
        file.flush()
        network = pyagrum.loadBN(file.name)

    def infer() -> dict[str, Any]:
        inference = pyagrum.LazyPropagation(network)
        inference.makeInference()
        return {name: np.array(inference.posterior(name).toarray()) for name in network.names()}

    elapsed, marginals = _best_of_three(infer)
    return {"seconds": elapsed, "marginals": marginals}


# -- the rate of sums beside what the machine allows ---------------------------------------------

# A sum of products out[q, z] = sum_y a[y, q] f[y, z], by the states of a variable and the variables of q.
_SHAPES = {"binary, in the first cache": (2, 9), "binary, in the second cache": (2, 13), "binary, in memory": (2, 20),
           "3 states": (3, 9), "5 states": (5, 7), "20 states": (20, 4)}  # fmt: skip


def _roofline(folder: Path, only: list[str], seconds: float) -> Table:
    del folder, seconds
    table = Table(title="State entries per nanosecond of one thread, in processor time")
    headings = ("a message times a factor", "entries", "ours", "plain C", "opt_einsum", "memory", "arithmetic", "share")
    for heading in headings:
        table.add_column(heading)
    for name, (states, variables) in _SHAPES.items():
        if only and name not in only:
            continue
        kept = states**variables
        entries = kept * states * states
        ours, einsum = _rate_of_step(states, variables), _rate_of_einsum(states, kept)
        row = [f"{name}: {states} x {variables}", f"{entries:.2g}", f"{ours:.2f}"]
        limits = sum_entry(kept, states, states, max(3, int(3e7 / entries)))
        if limits is None:
            table.add_row(*row, "no compiler", einsum)
            continue
        plain, word, product = limits
        # The message is read once and the result written once.
        memory, arithmetic = entries / (2 * kept * states * word), 1.0 / product
        share = ours / min(memory, arithmetic)
        table.add_row(*row, f"{1 / plain:.2f}", einsum, f"{memory:.2f}", f"{arithmetic:.2f}", f"{share:.0%}")
    return table


def _rate_of_step(states: int, variables: int) -> float:
    """Entries per nanosecond of the first step of a program that multiplies a message by a factor."""
    y, z = 0, variables + 1
    order = list(range(variables + 2))
    others = tuple(range(y + 1, z + 1))  # of a table that keeps these variables alive
    program = build([states] * (variables + 2), [tuple(range(y, z)), (y, z), others], order, [])
    store = np.random.default_rng(0).random(program.length)
    bounds = [np.zeros(len(program.offset), dtype=kind) for kind in (np.int64, float, float, float)]
    place = np.full(variables + 2, -1, dtype=np.int64)
    fixed = (program.sizes, program.scope_start, program.scope, program.offset, *program.steps)
    best = _best_time(lambda: contraction.run_steps(0, 1, *fixed, store, place, 0.0, *bounds))
    return int(program.entries[0]) / best / 1e9


def _rate_of_einsum(states: int, kept: int) -> str:
    if not is_installed("opt_einsum"):
        return "not installed"
    import opt_einsum

    rng = np.random.default_rng(0)
    message, factor = rng.random((states, kept)), rng.random((states, states))
    best = _best_time(lambda: opt_einsum.contract("yq,yz->qz", message, factor))
    return f"{kept * states * states / best / 1e9:.2f}"


def _best_time(call: Any) -> float:
    """Least processor time of a call, among calls of half a second together."""
    call()
    times: list[float] = []
    while sum(times) < 0.5:
        begin = time.process_time_ns()
        for _ in range(repeats := 1 if not times or times[-1] > 1e-3 else 100):
            call()
        times.append((time.process_time_ns() - begin) / 1e9 / repeats)
        if len(times) > 1000:
            break
    return min(times[1:] or times)


if __name__ == "__main__":
    main()
