"""Measure proofs: how long they take to write and to check, and whether forged ones pass.

usage: python benchmarks/proofs.py [times uai random forged lines] [--answers 2000] [--forgeries 10000] [--seed 0]

All parts by default. With DOBRUSHIN_DATA set, the models of the UAI competition are asked, or those that --models names
("DBN_*"). What takes too long at once can be had in pieces, each with a seed of its own.
"""

from __future__ import annotations

import argparse
import ast
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

import dobrushin as db
from dobrushin.verify import BELIEVED, HOLDS, verify_proof
from measure import Row, print_verdict, promises, seconds, wide_console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from field_reference import KINDS, random_field
from forger import forgeries, insider_forgeries, name_forgeries, size_forgeries
from models import FAMILIES, random_model

_SHARE, _README_SECONDS, _RATIO, _SAMPLED_SECONDS, _SAMPLED_RATIO, _STATEMENTS = 0.1, 2.0, 100.0, 60.0, 5.0, 1300
# UAI instances whose answers take longer are left out.
_MOST_SECONDS = 10.0
# What the check of any file may take.
_FORGED_SECONDS, _FORGED_GIB = 60.0, 1.5
# Sizes are forged in proofs of about so many files only, since these are the ones that take long to check.
_SIZED = 800
# Answers that take shorter are found in a time in which no file is written.
_LONG = 0.02
_PARTS = ["times", "uai", "random", "forged", "lines"]
_CHECKER = Path(db.__file__).parent / "verify"


class Case(NamedTuple):
    """One answer: how long it took to find, to write down and to check, and the verdict."""

    name: str
    method: str
    finding: float
    writing: float
    checking: float
    verdict: str
    size: int


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description="Measure proofs.")
    parser.add_argument("parts", nargs="*", choices=[[], *_PARTS], help="what to measure; by default all")
    parser.add_argument("--forgeries", type=int, default=500, help="how many forged files to check")
    parser.add_argument("--answers", type=int, default=50, help="how many answers about random models to check")
    parser.add_argument("--seed", type=int, default=0, help="of random models and forgeries")
    parser.add_argument("--models", default="*", help="which models of the UAI set to ask")
    options = parser.parse_args()
    chosen = options.parts or _PARTS
    console = wide_console()
    cases: list[Case] = []
    rows: list[Row] = []
    with console.status("measuring"):
        if "times" in chosen:
            for name, ask in answers():  # compiles what is needed; the models are made again
                measure(name, ask)
            cases = [measure(name, ask) for name, ask in answers()]
            rows += [*_times(cases), _from_the_shell()]
        shares = [case.writing / case.finding for case in cases]
        if "uai" in chosen:
            row, more = _uai(console, options.models)
            shares, rows = shares + more, [*rows, row]
        if shares:
            rows.append(_writing(shares, f"writing a proof, all {len(shares)} answers"))
        if "random" in chosen:
            rows.append(_random_answers(console, options.answers, options.seed))
        if "forged" in chosen:
            rows += _forged(console, options.forgeries, options.seed)
        if "lines" in chosen:
            rows.append(_lines())
    for case in cases:
        ratio = case.checking / case.finding
        times = (
            f"found {case.finding:.3g} s, written {case.writing:.2g} s, checked {case.checking:.3g} s ({ratio:.2g}x)"
        )
        console.print(
            f"{case.name} ({case.method}): {times}, {case.size / 1000:.1f} KB, {case.verdict}", highlight=False
        )
    console.print(promises("Answers that carry their proof", rows))
    print_verdict(console, rows)


def answers() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Answers of all methods, families and ways to draw."""
    rng = np.random.default_rng(0)
    million = db.Ising.grid(1000, 1000, couplings=0.2)
    torus = db.Ising.grid(40, 40, couplings=0.3, periodic=True)
    glass = db.Ising.grid(60, 60, couplings=rng.uniform(-0.25, 0.25, 2 * 60 * 59))
    labels = db.Potts.grid(30, 30, states=5, couplings=0.2)
    ring = {(i, (i + k) % 400): 0.03 * rng.normal() for i in range(400) for k in range(1, 9)}
    crowd = db.Ising(ring, fields=0.2 * rng.normal(size=400))
    small = db.Ising.grid(10, 10, couplings=0.4, fields=0.1)
    pairs = db.PairwiseMRF(
        0.5 * rng.normal(size=(200, 3)), [(i, (i + 1) % 200) for i in range(200)], 0.4 * rng.normal(size=(200, 3, 3))
    )
    yield "a corner of 10^6 spins", lambda: db.estimate(million, [0], method="dobrushin")
    yield "a corner of 10^6 spins, to 0.003", lambda: db.estimate(million, [0], method="dobrushin", tolerance=0.003)
    yield "a corner of 10^6 spins", lambda: db.estimate(million, [0], method="local")
    yield "3 spins of a glass", lambda: db.estimate(glass, [0, 1800, 3599], method="dobrushin")
    yield "all spins of a glass, to 0.05", lambda: db.estimate(glass, "all", method="dobrushin", tolerance=0.05)
    yield "a joint marginal", lambda: db.estimate(glass, db.Joint(0, 1, 60), method="dobrushin", tolerance=0.02)
    yield (
        "a magnetisation",
        lambda: db.estimate(glass, db.Statistic.magnetisation(glass), method="dobrushin", tolerance=0.05),
    )
    yield "labels", lambda: db.estimate(labels, [0, 450], method="dobrushin")
    yield "spins with 16 neighbours", lambda: db.estimate(crowd, [0, 7], method="dobrushin")
    yield "pairs of 3 states", lambda: db.estimate(pairs, [0, 100], method="dobrushin", tolerance=0.02)
    yield "a torus past Dobrushin's condition", lambda: db.estimate(torus, [0], method="coalescence", tolerance=0.02)
    yield "labels by races", lambda: db.estimate(labels, [0], method="coalescence", tolerance=0.05)
    cold = db.Ising.grid(16, 16, couplings=0.5, fields=0.01, periodic=True)
    yield "a cold magnet by clusters", lambda: db.estimate(cold, [0], method="clusters", tolerance=0.05)
    yield "a spin without fields", lambda: db.estimate(torus, [0], method="symmetry")
    yield "all of a grid", lambda: db.estimate(small, "all", method="exact")
    yield "a ring of pairs", lambda: db.estimate(pairs, "all", method="exact")
    yield "a bound for a scan", lambda: db.variation(small, db.Scan.systematic(100, 5000), targets=[0])
    county = db.GaussianField.grid(30, 30, rho=0.8, linear=0.1).poisson(rng.poisson(2.0, size=900))
    many = [*range(0, 900, 90), db.Exceeds(450, 0.5), db.Quantile(450, 0.9)]
    yield "means of a field", lambda: db.estimate(county, many, tolerance=0.1, method="dobrushin", verify=True)
    yield "a bound on a field", lambda: db.variation(county, db.Scan.systematic(900, 9000), weights={0: 1.0})
    yield (
        "a limit by simulation",
        lambda: db.coalescence(torus, db.Scan.systematic(1600, 16_000), targets=[0], runs=1000, seed=1),
    )


def measure(name: str, ask: Callable[[], Any]) -> Case:
    """The times of one answer."""
    path = Path(tempfile.mkdtemp()) / "answer.proof"
    begin = time.perf_counter()
    answer = ask()
    finding = time.perf_counter() - begin
    writing = seconds(lambda: answer.write_proof(path))
    begin = time.perf_counter()
    verdict = verify_proof(path)
    checking = time.perf_counter() - begin
    method = answer.plan.method if isinstance(answer, db.Estimate) else type(answer).__name__
    kernel = getattr(getattr(answer, "plan", None), "kernel", None)
    why = f"{verdict.verdict} {verdict.reason}".strip()
    return Case(name, f"{method}, {kernel}" if kernel else method, finding, writing, checking, why, path.stat().st_size)


def _times(cases: list[Case]) -> Iterator[Row]:
    longer = [case.writing / case.finding for case in cases if case.finding >= _LONG]
    yield _writing(longer, f"writing a proof, {len(longer)} small answers of {1000 * _LONG:g} ms or more")
    full = [case.checking / case.finding for case in cases if case.verdict == HOLDS]
    ratio = statistics.median(full)
    yield Row("checking, all blocks, against finding", f"{ratio:.1f}x, median", f"<= {_RATIO:g}x", ratio <= _RATIO)
    true = sum(case.verdict in (HOLDS, BELIEVED) for case in cases)
    yield Row("answers that verify", f"{true} of {len(cases)}", "all", true == len(cases))


def _writing(shares: list[float], name: str) -> Row:
    """The time that proofs take to write, as a share of the time in which their answers were found."""
    share = statistics.median(shares)
    return Row(name, f"{share:.1%} of the answer, median", f"< {_SHARE:.0%}", share < _SHARE)


def _from_the_shell() -> Row:
    path = Path(tempfile.mkdtemp()) / "answer.proof"
    db.estimate(db.Ising.grid(1000, 1000, couplings=0.2), [0], method="dobrushin", proof=path)
    command = [sys.executable, "-m", "dobrushin.verify", str(path), "--replay", "all"]
    took = min(seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(3))
    return Row(
        "the README's answer, from the shell", f"{took:.2f} s", f"< {_README_SECONDS:g} s", took < _README_SECONDS
    )


def _uai(console: Console, pattern: str) -> tuple[Row, list[float]]:
    """Answers about all models of the set; and for each how long the proof took to write, as a share of finding."""
    data = os.environ.get("DOBRUSHIN_DATA")
    name = "the UAI set, blocks by chance"
    if data is None:
        return Row(name, "DOBRUSHIN_DATA is not set", f"<= {_SAMPLED_SECONDS:g} s or {_SAMPLED_RATIO:g}x", None), []
    path, worst, failed, count = Path(tempfile.mkdtemp()) / "answer.proof", "", [], 0
    most, shares = 0.0, []
    for file in sorted((Path(data) / "uai").glob(f"{pattern}.uai")):
        model = db.read(file)
        evidence = db.read_evidence(f"{file}.evid") if Path(f"{file}.evid").exists() else None
        begin = time.perf_counter()
        try:
            answer = db.estimate(model, "all", evidence=evidence, tolerance=0.02, time_limit=_MOST_SECONDS)
            finding = time.perf_counter() - begin
            if answer._is_vacuous or answer.stopped_by:
                continue
            begin = time.perf_counter()
            answer.write_proof(path)
            writing = time.perf_counter() - begin
        except (db.CertificateError, db.BudgetError) as error:
            console.print(f"{file.stem}: {type(error).__name__}", highlight=False)
            continue
        begin = time.perf_counter()
        verdict = verify_proof(path, file)
        checking = time.perf_counter() - begin
        count += 1
        console.print(
            f"{file.stem} ({answer.plan.method}): found {finding:.3g} s, written {writing:.2g} s, "
            f"checked {checking:.3g} s, "
            f"{path.stat().st_size / 1000:.0f} KB, {verdict.verdict} {verdict.reason}",
            highlight=False,
        )
        shares.append(writing / finding)
        if verdict.exit_code == 1:
            failed.append(file.stem)
        excess = min(checking / _SAMPLED_SECONDS, checking / (_SAMPLED_RATIO * finding))
        if excess > most:
            most, worst = excess, f"{file.stem}: {checking:.3g} s, {checking / finding:.2g}x"
    measured = f"{count} answers, {len(failed)} fail {' '.join(failed)}; worst {worst}"
    wanted = f"<= {_SAMPLED_SECONDS:g} s or {_SAMPLED_RATIO:g}x"
    return Row(name, measured, wanted, most <= 1.0 and not failed), shares


def _random_answers(console: Console, wanted: int, seed: int) -> Row:
    """Answers of all methods about random models of all families, with and without evidence and forbidden states."""
    rng, path = np.random.default_rng(seed), Path(tempfile.mkdtemp()) / "answer.proof"
    methods = ("dobrushin", "exact", "local", "coalescence", "clusters", "symmetry", "auto")
    count, failed = 0, []
    while count < wanted:
        if rng.random() < 0.2:
            count += (found := _about_a_field(rng, path)) is not None
            failed += [found] if found else []
            continue
        family, method = FAMILIES[rng.integers(len(FAMILIES))], methods[rng.integers(len(methods))]
        strength, number = rng.choice([0.1, 0.3, 1.0, 3.0]), None if rng.random() < 0.7 else 12
        model = random_model(rng, family, number, zeros=rng.random() < 0.5, strength=strength, density=0.4)
        labels = rng.permutation(model.n_variables).tolist()
        targets: list[Any] = labels[: rng.integers(1, 3)]
        targets += [db.Joint(*labels[:2])] if len(labels) > 1 and rng.random() < 0.3 else []
        targets += [db.Statistic.total(model, labels[:2])] if rng.random() < 0.3 else []
        evidence = {labels[-1]: model.states(labels[-1])[0]} if len(labels) > 2 and rng.random() < 0.4 else {}
        try:
            db.estimate(model, targets, evidence=evidence, method=method, tolerance=0.05, proof=path)
        except (db.CertificateError, db.BudgetError, db.ArgumentError):
            continue  # no certificate, or evidence that the model forbids
        count += 1
        if not verify_proof(path).holds:
            failed.append(f"{family} by {method}: {verify_proof(path).reason}")
        if count % 100 == 0:
            console.print(f"{count} answers about random models, {len(failed)} fail", highlight=False)
    measured = f"{count - len(failed)} of {count} {'; '.join(failed[:3])}".strip()
    return Row("answers about random models that verify", measured, "all", not failed)


def _about_a_field(rng: np.random.Generator, path: Path) -> str | None:
    """Why a proof about a random field is refused, "" where it is not; None where there is no answer."""
    kind = KINDS[rng.integers(len(KINDS))]
    field = random_field(rng, kind, int(rng.integers(1, 5)))
    label = int(rng.integers(field.n_variables))
    targets = [label, db.Exceeds(label, 0.3), db.Between(label, -0.5, 0.5), db.Quantile(label, 0.3)]
    asked = [targets[k] for k in rng.choice(4, 2, replace=False)]
    try:
        db.estimate(field, asked, tolerance=0.5, method="dobrushin", proof=path)
    except (db.CertificateError, db.BudgetError):
        return None
    verdict = verify_proof(path)
    return "" if verdict.verdict == BELIEVED else f"{kind}: {verdict.reason}"


def _forged(console: Console, wanted: int, seed: int) -> Iterator[Row]:
    """Forged files: none may pass that claims more than was proved, and none may take long or much memory."""
    folder = Path(tempfile.mkdtemp())
    judge = _Judge(folder / "forged.proof")
    grid, labels = db.Ising.grid(5, 5, couplings=0.2, fields=0.1), db.Potts.grid(4, 4, states=3, couplings=0.3)
    field = db.GaussianField.grid(2, 3, rho=0.6, linear=0.2, upper=2.0).poisson({0: 2})
    asked = [1, db.Exceeds(2, 0.3), db.Quantile(3, 0.4)]
    files = {"uai": folder / "model.uai", "npz": folder / "model.npz"}
    for file in files.values():
        db.write(grid, file)
    while judge.count < wanted:
        seed += 1
        own = seed if seed % 2 else None
        for answer in (
            db.estimate(grid, [seed % 25, db.Joint(1, 2)], method="dobrushin", tolerance=0.1, seed=own),
            db.estimate(labels, [seed % 16], method="dobrushin", tolerance=0.1, seed=own),
            db.estimate(grid, [seed % 25], method="coalescence", tolerance=0.1, seed=own),
            db.estimate(grid, [seed % 25], method="clusters", tolerance=0.1, seed=own),
            db.estimate(labels, [0, db.Joint(0, 1)], method="clusters", tolerance=0.02, seed=own),
            db.estimate(labels, [seed % 16], method="symmetry"),
            db.estimate(grid, [seed % 25], method="exact"),
            db.estimate(grid, [seed % 25], method="local"),
            db.estimate(labels, [seed % 16], method="local", tolerance=0.1),
            db.estimate(field, asked, evidence={5: 0.5}, method="dobrushin", tolerance=0.3, seed=seed, verify=True),
            db.variation(field, db.Scan.systematic(6, 12), weights={seed % 6: 1.0}),
            db.variation(grid, db.Scan.systematic(25, 50), [seed % 25]),
        ):
            _forge(judge, answer, seed, with_sizes=judge.count < _SIZED)
        file = files["uai" if seed % 2 else "npz"]
        _forge_beside(judge, file, seed)
        console.print(f"seed {seed}: {judge.count} forgeries, {judge.passed} pass", highlight=False)
    beside = f"{judge.drifts} of them by somebody who has the model file"
    measured = f"{judge.passed} of {judge.count} ({beside}); {judge.renamed} more are proofs of what they say"
    yield Row("forged files that pass", measured, "none", judge.passed == 0)
    yield Row("names that look like verdicts", f"{judge.shown}", "none", judge.shown == 0)
    slowest = f"{judge.slowest:.1f} s ({judge.slow_one})"
    yield Row(
        "the longest check, in seconds of the processor",
        slowest,
        f"<= {_FORGED_SECONDS:g} s",
        judge.slowest <= _FORGED_SECONDS,
    )
    # What the library and the answers take themselves is part of this.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield Row("memory of the whole run, at most", f"{peak:.2f} GiB", f"<= {_FORGED_GIB:g} GiB", peak <= _FORGED_GIB)


@dataclass
class _Judge:
    """Counts of forged files: all, those that passed, those that may, and those made beside a model file."""

    path: Path
    count: int = 0
    passed: int = 0
    renamed: int = 0
    drifts: int = 0
    shown: int = 0
    slowest: float = 0.0
    slow_one: str = ""

    def try_one(self, what: str, forged: Any, model: Path | None = None) -> Any:
        """Check one file; returns the verdict."""
        forged.save(self.path)
        begin = time.process_time()
        verdict = verify_proof(self.path, model)
        took = time.process_time() - begin
        self.count += 1
        if took > self.slowest:
            self.slowest, self.slow_one = took, what
        return verdict


def _forge(judge: _Judge, answer: Any, seed: int, with_sizes: bool) -> None:
    """Change numbers, arrays, sizes and names in the proof of an answer."""
    path = judge.path.with_name("answer.proof")
    answer.write_proof(path)
    for what, forged, is_strict in forgeries(path, np.random.default_rng(seed)):
        is_accepted = judge.try_one(what, forged).exit_code in (0, 3)
        judge.passed += is_accepted and is_strict
        judge.renamed += is_accepted and not is_strict
    for what, forged in size_forgeries(path, np.random.default_rng(seed)) if with_sizes else ():
        # A larger number of steps or chains may be a proof as well; it must not take long.
        judge.renamed += judge.try_one(what, forged).exit_code in (0, 3)
    for what, forged in name_forgeries(path, np.random.default_rng(seed)):
        lines = str(judge.try_one(what, forged)).splitlines()
        heads = [line for line in lines if not line.startswith("  ")][1:]
        is_plain = heads in (["Claim:", "Checked:", "Assumed:"], []) and all(map(str.isprintable, lines))
        judge.shown += not is_plain


def _forge_beside(judge: _Judge, file: Path, seed: int) -> None:
    """Let tables drift as far as a comparison with the model file tolerates, or supply what a bound rests on."""
    path, model, rng = judge.path.with_name("answer.proof"), db.read(file), np.random.default_rng(seed)
    targets = rng.choice(model.n_variables, 2, replace=False).tolist()
    db.estimate(model, targets, method="exact", proof=path)
    laws = db.exact.marginals(model)
    truth = {k: laws[target].tolist() for k, target in enumerate(targets)}
    for what, forged in insider_forgeries(path, truth, rng):
        judge.passed += judge.try_one(what, forged, file).exit_code == 0
        judge.drifts += 1
    db.variation(model, db.Scan.systematic(25, 50), targets).write_proof(path)
    for what, forged in insider_forgeries(path, {}, rng):
        judge.passed += judge.try_one(what, forged, file).exit_code == 0
        judge.drifts += 1


def _lines() -> Row:
    total, readers = (_count_statements(folder) for folder in (_CHECKER, _CHECKER / "readers"))
    measured = f"{total} statements, and {readers} to read model files"
    return Row("the checker", measured, f"<= {_STATEMENTS}", total <= _STATEMENTS)


def _count_statements(folder: Path) -> int:
    trees = [ast.parse(file.read_text()) for file in sorted(folder.glob("*.py"))]
    return sum(isinstance(node, ast.stmt) for tree in trees for node in ast.walk(tree))


if __name__ == "__main__":
    main()
