"""Measure what certificates promise where Dobrushin's condition fails, and print it beside the promise.

usage: python benchmarks/certificates.py [--quick] [--uai] [--guides] [--only PREFIX ...] [--limit SECONDS]

--uai also asks for all marginals of every UAI instance in the folder that DOBRUSHIN_DATA names, each in a process of
its own with a time limit. --only asks for those whose names begin so, and does nothing else. --guides also runs
benchmarks/guides.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import special, stats

import dobrushin as db
from measure import Row, best_of, print_verdict, promises, seconds, wide_console

_SIDE, _STEPS = 40, 16_000
_CONFIDENCE = 0.999
# Coupling: largest limit that is allowed. The smallest of them needs more than the usual 10 000 runs.
_REQUIRED = {0.30: 0.002, 0.35: 0.04, 0.40: 0.45}
_RUNS = 100_000
# A set has two ends, and both are drawn.
_DEAREST = 3.0
# What is compared below differs by chance with at most this probability, if the draws are right.
_CHANCE = 1e-6
_SWEEPS, _CHAINS = 1000, 16_384


def main() -> int:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description="Measure certificates where Dobrushin's condition fails.")
    parser.add_argument("--quick", action="store_true", help="fewer draws, less time for each UAI instance")
    parser.add_argument("--uai", action="store_true", help="also the UAI instances (DOBRUSHIN_DATA names the data)")
    parser.add_argument("--guides", action="store_true", help="also compare scales of guided scans")
    parser.add_argument("--only", nargs="+", metavar="PREFIX", help="only UAI instances with such names")
    parser.add_argument("--limit", type=float, help="seconds for each UAI instance (150, or 40 with --quick)")
    parser.add_argument("--worker", nargs=2, metavar=("NAME", "METHOD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", db.VacuousBoundWarning)
    if options.worker:
        print(json.dumps(_answer(*options.worker)))
        return 0
    console = wide_console()
    rows: list[Row] = []
    if not options.only:
        with console.status("measuring"):
            rows += [*_torus(), *_cost(), *_exact_draws(10_000 if options.quick else 50_000)]
    if options.uai or options.only:
        rows += _uai(console, options.only or [""], options.limit or (40.0 if options.quick else 150.0))
    console.print(promises("Certificates past Dobrushin's condition", rows))
    all_ok = print_verdict(console, rows)
    if options.guides:
        command = [sys.executable, str(Path(__file__).with_name("guides.py"))]
        subprocess.run(command + ["--quick"] * options.quick, check=True)
    return 0 if all_ok else 1


# -- one site of a torus -------------------------------------------------------------------------------------------


def _model(theta: float) -> db.Ising:
    return db.Ising.grid(_SIDE, _SIDE, couplings=theta, periodic=True)


def _torus() -> Iterator[Row]:
    """The bound for one site after 16 000 steps, by guided scans and by sweeps."""
    sweeps = db.Scan.systematic(_SIDE**2, _STEPS)
    for theta, most in _REQUIRED.items():
        model = _model(theta)
        scans = {
            "systematic": sweeps,
            "greedy_scan": db.greedy_scan(model, targets=[0], steps=_STEPS).scan,
            "optimize (DoGS)": db.optimize_scan(model, sweeps, targets=[0]).scan,
        }
        limits = {}
        for name, scan in scans.items():
            proof = db.coalescence(model, scan, targets=[0], confidence=_CONFIDENCE, runs=_RUNS, seed=1)
            limits[name] = proof.value
        plain = f"systematic {limits.pop('systematic'):.3f}; {_RUNS} runs, confidence {_CONFIDENCE:g}"
        for name, limit in limits.items():
            what = f"Torus {_SIDE}x{_SIDE}, theta {theta:.2f}, one site, {_STEPS} steps: {name}"
            yield Row(what, f"{limit:.4g} ({plain})", f"{most:g} or less", limit <= most)


def _cost() -> Iterator[Row]:
    """Simulated sets beside plain chains of the same scan."""
    runs = 10_000
    model = _model(0.35)
    scan = db.greedy_scan(model, targets=[0], steps=_STEPS).scan
    plain = best_of(lambda: db.sample(model, scan, chains=runs, seed=1, record=[0]), repeats=5)
    sets = best_of(lambda: db.coalescence(model, scan, targets=[0], runs=runs, seed=1), repeats=5)
    measured = f"{sets / plain:.2f}x ({1e3 * sets:.0f} ms / {1e3 * plain:.0f} ms)"
    what = f"  time of {runs} runs / {runs} chains of sample, the same scan"
    yield Row(what, measured, f"{_DEAREST:g}x or less", sets <= _DEAREST * plain)


# -- exact draws ---------------------------------------------------------------------------------------------------


def _exact_draws(draws: int) -> Iterator[Row]:
    """How often two neighbours agree: exact draws, a long run, and the formula for the torus."""
    theta = 0.35
    model = _model(theta)
    db.exact_sample(model, [0, 1], 64, seed=0)  # compiles
    found: list[db.ExactSamples] = []
    spent = seconds(lambda: found.append(db.exact_sample(model, [0, 1], draws, seed=1)))
    agree = _agreeing(found[0].states)
    long = db.Scan.systematic(_SIDE**2, _SIDE**2 * _SWEEPS)
    same = _agreeing(db.sample(model, long, chains=_CHAINS, seed=2, record=[0, 1]).states)
    chance = float(stats.fisher_exact([[agree, draws - agree], [same, _CHAINS - same]]).pvalue)
    name = f"Torus {_SIDE}x{_SIDE}, theta {theta:g}, neighbours agree"
    measured = f"{agree / draws:.4f} of exact draws, {same / _CHAINS:.4f} of long runs, p {chance:.2g}"
    work = f"{draws} draws, {1e3 * spent / draws:.2f} ms each; {_CHAINS} runs of {_SWEEPS} sweeps"
    yield Row(name, f"{measured} ({work})", f"p {_CHANCE:g} or more", chance >= _CHANCE)
    truth = 0.5 + 0.5 * _correlation(theta)
    low = float(special.betaincinv(agree, draws - agree + 1, _CHANCE / 2))
    high = float(special.betaincinv(agree + 1, draws - agree, 1 - _CHANCE / 2))
    measured = f"{truth:.5f}; exact draws [{low:.4f}, {high:.4f}]"
    yield Row("  the same by Kaufman's formula", measured, f"inside, but for chance {_CHANCE:g}", low <= truth <= high)


def _agreeing(states: Any) -> int:
    return int((states[:, 0] == states[:, 1]).sum())


def _correlation(theta: float, step: float = 1e-4) -> float:
    """Mean of the product of two neighbours on the torus: the derivative of log Z, over the number of edges."""
    change = _log_partition(theta + step) - _log_partition(theta - step)
    return change / (2 * step) / (2 * _SIDE**2)


def _log_partition(theta: float) -> float:
    """B. Kaufman, Crystal statistics II, Physical Review 76, 1949: no field, below the critical coupling."""
    n = _SIDE
    angle = np.pi * np.arange(2 * n) / n
    gamma = np.arccosh(math.cosh(2 * theta) / math.tanh(2 * theta) - np.cos(angle))
    gamma[0] = -(2 * theta + math.log(math.tanh(theta)))  # its sign goes to the last term
    odd, even = 0.5 * n * gamma[1::2], 0.5 * n * gamma[0::2]
    terms = [np.log(2 * f(x)).sum() for x in (odd, even) for f in (np.cosh, np.sinh)]
    total = special.logsumexp(terms, b=[1, 1, 1, -1])
    return float(total - math.log(2) + 0.5 * n**2 * math.log(2 * math.sinh(2 * theta)))


# -- UAI instances -------------------------------------------------------------------------------------------------

_TOLERANCE, _SURE = 0.05, 0.99
# Good to so much: 12 digits from a clique tree where NAME.exact says so, else the 6 digits of the competition.
_TWELVE, _SIX = 1e-12, 5e-7
_UNRELIABLE = ("relational_2", "relational_4")
_MOST_SECONDS = 60.0
# Instances that are to be answered in time, and what sweeps on sets have certified of them before.
_SEGMENTATION = {"Segmentation_11": 0.57, "Segmentation_12": 1.0, "Segmentation_13": 0.85, "Segmentation_15": 1.0}


def _folder() -> Path | None:
    data = os.environ.get("DOBRUSHIN_DATA")
    return Path(data) / "uai" if data else None


def _answer(name: str, method: str) -> dict[str, Any]:
    """All marginals of an instance, compared with its reference: figures for a row of the table."""
    from dobrushin.io import read, read_evidence, read_marginals

    folder = _folder()
    assert folder is not None
    path = folder / f"{name}.uai"
    model = read(path)
    evidence = {i: x for i, x in read_evidence(f"{path}.evid").items() if i in set(model.labels)}
    begin, busy, why = time.perf_counter(), time.process_time(), ""
    try:
        found = db.estimate(
            model, "all", evidence=evidence, tolerance=_TOLERANCE, confidence=_SURE, method=method, seed=1
        )
    except db.CertificateError as error:
        found, why = error.result, str(error)
    spent = {"seconds": time.perf_counter() - begin, "CPU": time.process_time() - busy}
    row = {"n": model.n_variables, **spent, "why": why}
    if found is None:
        return {**row, "method": "none", "certified": 0.0}
    reference = read_marginals(f"{path}.MAR")
    truth = np.array([reference[i][a] for i, a in zip(found.targets, found.states, strict=True)])
    wide = {i for i, half in zip(found.targets, found.half_width, strict=True) if half > _TOLERANCE}
    return {
        **row,
        "method": found.plan.method,
        "certified": 1.0 - len(wide) / len(set(found.targets)),
        "half-width": float(found.half_width.max()),
        "error": float(np.abs(found.value - truth).max()),
        "outside": float(np.maximum(found.lower - truth, truth - found.upper).clip(0.0).max()),
    }


def _run(name: str, method: str, limit: float) -> dict[str, Any]:
    """The same in a process of its own, which may be stopped or fail without harm to the others."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", name, method]
    nothing = {"method": "none", "certified": 0.0}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {**nothing, "seconds": limit, "why": f"stopped after {limit:g} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {**nothing, "method": "FAILED", "why": last}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _uai(console: Console, prefixes: list[str], limit: float) -> list[Row]:
    """Print the table of instances; return the rows that are judged."""
    folder = _folder()
    if folder is None or not folder.is_dir():
        return [Row("UAI instances", "DOBRUSHIN_DATA does not name a folder with them", "", None)]
    names = sorted(path.stem for path in folder.glob("*.uai") if path.stem.startswith(tuple(prefixes)))
    title = f"All marginals, tolerance {_TOLERANCE:g} at confidence {_SURE:g}, at most {limit:g} s each"
    measures = ("seconds", "CPU", "certified", "half-width", "error")
    headings = ("instance", "n", "method", *measures, "outside", "reference good to")
    table = Table(*headings, title=title, title_justify="left")
    rows: list[Row] = []
    outside: dict[str, float] = {}
    answered = failed = 0
    forced = [(name, "coalescence") for name in names if name in _SEGMENTATION]
    for name, method in [*((name, "auto") for name in names), *forced]:
        with console.status(f"{name} ({method})"):
            found = _run(name, method, limit)
        said = name if method == "auto" else f"{name}, {method} forced"
        precision = _TWELVE if (folder / f"{name}.exact").exists() else _SIX
        judged = "outside" in found and name not in _UNRELIABLE
        if judged:
            outside[said] = found["outside"] / precision
        answered += method == "auto" and found["certified"] == 1.0
        failed += found["method"] == "FAILED"
        figures = [f"{found[key]:.3g}" if key in found else "" for key in measures]
        verdict = [f"{found['outside']:.2g}", f"{precision:g}"] if judged else ["", "not judged"]
        table.add_row(said, str(found.get("n", "")), found["method"], *figures, *verdict)
        if found.get("why"):
            console.print(f"{said}: {found['why']}", highlight=False, markup=False)
        if name in _SEGMENTATION:
            rows.append(_segmentation(said, found, 1.0 if method == "auto" else _SEGMENTATION[name]))
    console.print(table)
    rows.append(Row("Instances fully answered by auto", f"{answered} of {len(names)}", "as many as possible", None))
    rows.append(Row("Instances that failed", f"{failed}", "none", not failed))
    if outside:
        worst = max(outside, key=lambda said: outside[said])
        measured = f"{outside[worst]:.2g} times the precision of the reference ({worst}; {len(outside)} answers)"
        rows.append(Row("Furthest reference outside its interval", measured, "1 or less", outside[worst] <= 1.0))
    return rows


def _segmentation(name: str, found: dict[str, Any], least: float) -> Row:
    spent = found.get("seconds", math.inf)
    measured = f"{found['certified']:.3f} certified in {spent:.1f} s ({found['method']})"
    ok = found["certified"] >= least and spent < _MOST_SECONDS
    return Row(name, measured, f"{least:g} or more in {_MOST_SECONDS:g} s", ok)


if __name__ == "__main__":
    sys.exit(main())
