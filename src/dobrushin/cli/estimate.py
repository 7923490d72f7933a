"""`dobrushin estimate`: the answer, its error, and the reason to believe it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dobrushin as db
from dobrushin._estimate.targets import shown
from dobrushin.cli.common import (
    CERTIFIED,
    NO_CERTIFICATE,
    Usage,
    is_uai,
    read_evidence,
    read_model,
    read_targets,
    show,
    state_names,
    table,
    wants_progress,
)
from dobrushin.experiments.models import paper_ising

_EXAMPLE = "the paper's Ising model with a million spins (no file was given); target: one corner"


def run(
    path: Path | None,
    target: Sequence[str],
    tolerance: float,
    confidence: float,
    evidence: Sequence[str],
    method: str,
    seed: int | None,
    budget: float | None,
    beta: float | None,
    report: Path | None,
    output: Path | None,
    dry: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Estimate, print, and write what was asked for."""
    model = paper_ising(1000, 1000, fields=False) if path is None else read_model(path, beta)
    given = read_evidence(model, evidence, path)
    targets: Any = read_targets(model, target)
    if targets is None:
        targets = [0] if path is None else "all"
    if output is not None and output.suffix.lower() not in (".json", ".csv", ".mar"):
        raise Usage(f"--output must end in .json, .csv or .mar. Got {str(output)!r}.")
    asked: dict[str, Any] = {"tolerance": tolerance, "confidence": confidence, "evidence": given, "method": method}
    if dry:
        made = db.plan(model, targets, budget=budget, **asked)
        show({"plan": str(made)}, as_json, quiet, lambda: str(made))
        return CERTIFIED if made.is_certified else NO_CERTIFICATE
    if path is None and not quiet and not as_json:
        print(f"Estimating on {_EXAMPLE}.")
    progress = wants_progress(quiet, as_json)
    failed: db.CertificateError | None = None
    try:
        found = db.estimate(model, targets, seed=seed, budget=budget, progress=progress, **asked)
    except db.CertificateError as error:
        if error.estimate is None:
            raise
        found, failed = error.estimate, error
    show(found.to_json(indent=1), as_json, quiet, lambda: _shown(found, state_names(path)))
    if report is not None:
        command = shlex.join(["dobrushin", *sys.argv[1:]])
        _write_report(found, report, model, given, command)
        _wrote(report, quiet, as_json)
    if output is not None:
        _write(found, output, model, given, path)
        _wrote(output, quiet, as_json)
    if failed is not None:
        print(f"Error: {failed}", file=sys.stderr)
        return NO_CERTIFICATE
    return CERTIFIED if found.is_certified else NO_CERTIFICATE


def _shown(found: db.Estimate, names: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.markup import escape

    rows = []
    for k in range(len(found)):
        state = "" if found.states[k] is None else str(found.states[k])
        if (own := names.get(str(found.targets[k]))) is not None:
            state = own[found.states[k]]
        bias = "unknown" if found.bias_bound[k] != found.bias_bound[k] else f"{found.bias_bound[k]:.2g}"
        numbers = [f"{x[k]:.6g}" for x in (found.mean, found.lower, found.upper)]
        rows.append([str(shown(found.targets[k])), state, *numbers, bias])
    first, last = str(found).splitlines()[0], str(found).splitlines()[-1]
    columns = ("target", "state", "mean", "lower", "upper", "bias bound")
    reasons = [f"- {words}" for words in found.assumptions]
    return Group(table(first, columns, rows), escape(last.strip()), "It rests on this:", *map(escape, reasons))


def _write(found: db.Estimate, output: Path, model: db.Model, evidence: Any, path: Path | None) -> None:
    suffix = output.suffix.lower()
    if suffix == ".json":
        output.write_text(found.to_json(indent=1) + "\n", encoding="utf-8")
    elif suffix == ".csv":
        found.to_dataframe().to_csv(output, index=False)
    else:
        _write_mar(found, output, model, evidence, path)


def _write_mar(found: db.Estimate, output: Path, model: db.Model, evidence: Any, path: Path | None) -> None:
    """A UAI result file: all variables of the file, those observed and those with one state too."""
    marginals = {label: found[label].mean for label in dict.fromkeys(found.targets)}
    missing = [label for label in model.labels if label not in marginals and label not in evidence]
    if missing:
        raise Usage(f"--output {output.name} holds all marginals: estimate all variables. {missing[0]!r} is missing.")
    if is_uai(path):
        db.io.write_marginals(marginals, output, evidence=evidence, sizes=db.io.read_sizes(path))  # type: ignore[arg-type]
        return
    numbers = {model.index(label): values for label, values in marginals.items()}
    observed = {model.index(label): state for label, state in evidence.items()}
    db.io.write_marginals(numbers, output, evidence=observed, sizes=model.cardinalities)


def _write_report(found: db.Estimate, path: Path, model: db.Model, evidence: Any, command: str) -> None:
    from dobrushin import report

    report.write(found, path, model=model, evidence=evidence or None, command=command)


def _wrote(path: Path, quiet: bool, as_json: bool) -> None:
    if not quiet and not as_json:
        print(f"Wrote {path}.")
