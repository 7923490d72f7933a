"""Random command lines of the soak test, run in the process of the trial."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dobrushin as db
from dobrushin.cli import main
from soak_calls import CONFIDENCE, NAMES, Work
from soak_models import Case, small_case

_CODES = {0, 1, 2, 3, 130}
_VERBS = ("estimate", "estimate", "sample", "certify", "optimize", "fit", "influence", "inspect", "convert")
_TIMED = {"estimate", "sample", "certify", "fit"}


class Ended(NamedTuple):
    """What a command line left."""

    code: int
    out: str
    err: str


def run_line(arguments: list[str]) -> Ended:
    """Run a command line here."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["dobrushin", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        except KeyboardInterrupt:  # a user would see a traceback
            traceback.print_exc()
    return Ended(code, out.getvalue(), err.getvalue())


def make_cli(rng: np.random.Generator, is_heavy: bool, folder: Path, outputs: Path) -> Work:
    """A command line on a file that is written to one folder, with outputs in another."""
    case = small_case(rng)
    path = folder / f"model{rng.choice(['.npz', '.uai'])}"
    db.write(case.whole, path)
    model = db.read(path)
    case = Case(case.name, model, model)
    verb = str(rng.choice(_VERBS))
    label = str(case.labels[int(rng.integers(len(case.labels)))])
    arguments = [verb, str(path), *_options(rng, verb, case, label, is_heavy, folder, outputs)]

    def run(**how: Any) -> Ended:
        limits = [text for name, value in how.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        return run_line([*arguments, *limits])

    def judge(ended: Ended) -> list[str]:
        faults = []
        if ended.code not in _CODES or "Traceback" in ended.err + ended.out:
            faults.append(f"bare: {' '.join(arguments)} ended with {ended.code}: {ended.err[-2000:]}")
        if ended.code == 1 and not ended.err.strip():
            faults.append(f"bare: {' '.join(arguments)} failed without a word")
        if verb == "estimate" and ended.code == 0 and "--json" in arguments:
            faults += _judge_json(case, ended.out)
        return faults

    takes = {"time_limit", "checkpoint"} if verb in _TIMED else set()
    if verb == "certify" and "--coalescence" not in arguments:
        takes = set()
    return Work(f"dobrushin {verb}", run, judge, lambda ended: [ended.code, ended.out], takes)


def _options(
    rng: np.random.Generator, verb: str, case: Case, label: str, is_heavy: bool, folder: Path, outputs: Path
) -> list[str]:
    seed, count = ["--seed", str(rng.integers(2**31))], str(int(10 ** rng.uniform(0, 9 if is_heavy else 4)))
    tolerance = ["--tolerance", str(rng.choice([1e-2, 1e-4, 1e-7] if is_heavy else [0.2, 0.1, 0.05]))]
    writes = rng.random() < 0.7
    if verb == "estimate":
        output = ["--output", str(outputs / f"answer{rng.choice(['.json', '.csv'])}")] if writes else []
        output += ["--report", str(outputs / "page.html")] if rng.random() < 0.2 else []
        method = ["--method", str(rng.choice(NAMES)), "--confidence", repr(CONFIDENCE)]
        return ["--target", label, "--json", *method, *tolerance, *seed, *output]
    if verb == "sample":
        output = ["--output", str(outputs / f"states{rng.choice(['.npz', '.csv'])}")] if writes else []
        return ["--chains", count, "--steps", str(rng.integers(1, 200)), *seed, *output]
    if verb == "certify":
        simulated = ["--coalescence", "--runs", count, *seed] if rng.random() < 0.7 else []
        return ["--target", label, "--steps", str(rng.integers(1, 200)), *simulated]
    if verb == "optimize":
        return ["--target", label, *tolerance, *(["--save", str(outputs / "scan.npz")] if writes else [])]
    if verb == "fit":
        data = folder / "data.npy"
        np.save(data, case.states[rng.choice(case.joint.size, size=50, p=case.joint.ravel())])
        output = ["--output", str(outputs / "fitted.npz")] if writes else []
        return [str(data), "--iterations", "100000" if is_heavy else "10", "--chains", "200", *seed, *output]
    return [str(outputs / f"copy{rng.choice(['.npz', '.uai'])}")] if verb == "convert" else []


def _judge_json(case: Case, text: str) -> list[str]:
    """Intervals of a printed answer that miss the exact value."""
    try:
        answer = json.loads(text)
    except ValueError as error:
        return [f"bare: output that is no JSON: {error}"]
    faults = []
    for row in answer["rows"] if answer["certified"] == "yes" else []:
        exact = case.truth(row["target"], row["state"], None)
        if exact is not None and not row["lower"] - 1e-9 <= exact <= row["upper"] + 1e-9:
            faults.append(f"wrong: {row} misses {exact}")
    return faults


assert sys.platform != "win32", "the soak test uses signals and limits that Windows does not have"
