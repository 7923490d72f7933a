"""`dobrushin estimate`: the answer, its error, and the reason to believe it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.text import Text

import dobrushin as db
from dobrushin._estimate.targets import name_of, shown
from dobrushin._models.state_names import read_evidence
from dobrushin._shared.call import stage
from dobrushin._shared.text import interval_texts, printable, rounded_up
from dobrushin.cli.guard import CERTIFIED, NO_CERTIFICATE, Usage
from dobrushin.cli.output import Output, check_file, table, write_table
from dobrushin.cli.source import Source, read_question, read_targets

_EXAMPLE = "the paper's Ising model with a million spins (no file was given); target: one corner"


def show_plan(source: Source, target: Sequence[str], query: dict[str, Any], out: Output) -> int:
    """Print the plan."""
    model = source.read()
    plan = db.plan(model, _targets(source, model, target), evidence=source.read_evidence(model), **query)
    about = {
        "method": plan.method, "certified": plan.is_certified, "certain": plan.is_certain, "reason": plan.reason,
        "tolerance": plan.tolerance, "confidence": plan.confidence, "bias": plan.bias, "interval": plan.interval,
        "steps": 0 if plan.scan is None else len(plan.scan), "chains": plan.chains, "kernel": plan.kernel,
        "updates": plan.updates, "seconds": plan.seconds, "reaches_tolerance": plan.reaches_tolerance,
    }  # fmt: skip
    out.show("plan", about, lambda: Text(str(plan)))
    return CERTIFIED if plan.is_certified else NO_CERTIFICATE


def run(
    source: Source,
    target: Sequence[str],
    query: dict[str, Any],
    files: tuple[Path | None, Path | None, Path | None],
    out: Output,
) -> int:
    """Estimate, print, and write the report, the answer and its proof where they are asked for."""
    report, output, proof = files
    check_file("--report", report, is_replaced=True)
    check_file("--proof", proof, is_replaced=True)
    is_marginals = output is not None and output.suffix.lower() == ".mar"
    check_file("--output", output, endings=(".json", ".csv", ".mar"), is_replaced=is_marginals)
    model = source.read()
    evidence = source.read_evidence(model)
    targets = _targets(source, model, target)
    if output is not None and is_marginals:
        _check_all_are_asked(output, model, targets, evidence)
    if source.path is None:
        out.note(f"Estimating on {_EXAMPLE}.")
    failure: BaseException | None = None
    try:
        answer = db.estimate(model, targets, evidence=evidence, proof=proof, **query)
    except (db.CertificateError, db.BudgetError, db.Interrupted, db.WorkerError) as error:
        if error.result is None or (error.result.says_nothing and query["time_limit"] is None):
            raise
        answer, failure = error.result, error
    out.print(lambda: answer.to_json(indent=1), lambda: _page(answer))
    if report is not None:
        words = ["dobrushin", *sys.argv[1:]]
        if isinstance(answer.seed, int) and not any(word.startswith("--seed") for word in words):
            words += ["--seed", str(answer.seed)]
        command = shlex.join(words)
        with stage("writing the report"):
            db.report.write(answer, report, model=model, evidence=evidence or None, command=command)
        out.note(f"Wrote {report}.")
    if output is not None:
        _write(answer, output, source, model, evidence)
        out.note(f"Wrote {output}.")
    if proof is not None:
        _prove(answer, proof, failure, out)
    if failure is not None:
        raise failure
    is_reached = answer.stopped_by is None and answer.widest <= answer.plan.tolerance
    return CERTIFIED if answer.is_certified and is_reached else NO_CERTIFICATE


def _prove(answer: db.Estimate, proof: Path, failure: BaseException | None, out: Output) -> None:
    """Say where the proof is; after a failure, write one for the partial result."""
    if answer.says_nothing:
        out.warn("No proof was written: nothing is known.")
        return
    if failure is not None:
        try:
            with stage("writing the proof"):
                answer.write_proof(proof)
        except (db.ArgumentError, db.BudgetError) as reason:
            about = reason.about("The answer") if isinstance(reason, db.ArgumentError) else reason.message
            out.warn(f"No proof was written. {about}")
            return
    out.note(f"Wrote {proof}. To check it: dobrushin verify {proof}")
    if answer.asked is not None and any(isinstance(state, Mapping) for state in answer.asked.evidence.values()):
        out.note("The likelihoods are factors of the model in the proof; its claim does not list them.")


def _targets(source: Source, model: db.Model, target: Sequence[str]) -> Any:
    """Read the targets; by default all variables, or one corner of the example. Fields have more kinds of targets."""
    questions = []
    if isinstance(model, db.GaussianField):
        questions = [text for text in target if {">", "@"} & set(text) and text not in map(str, model.labels)]
    asked = [read_question(model, text) for text in questions]
    plain = [text for text in target if text not in questions]
    labels = read_targets(model, plain) if plain or not questions else []
    return [*labels, *asked] if labels is not None and (labels or asked) else ([0] if source.path is None else "all")


def _check_all_are_asked(output: Path, model: db.Model, targets: Any, evidence: Mapping[Hashable, Any]) -> None:
    """Refuse a file of all marginals where only some are estimated."""
    known = set(model.labels if targets == "all" else targets) | set(evidence)
    missing = [label for label in model.labels if label not in known]
    if missing:
        raise Usage(f"--output {output.name} holds all marginals: estimate all variables. {missing[0]!r} is missing.")


def _page(answer: db.Estimate) -> Group:
    rows = []
    for k in range(len(answer)):
        state = "" if answer.states[k] is None else printable(answer.states[k])
        bias = "unknown" if answer.bias_bound[k] != answer.bias_bound[k] else rounded_up(answer.bias_bound[k], 2)
        numbers = interval_texts(answer.mean[k], answer.lower[k], answer.upper[k])
        rows.append([name_of(answer.targets[k]), state, *numbers, bias])
    columns = ("target", "state", "mean", "lower", "upper", "bias bound")
    reasons = [f"- {assumption}" for assumption in answer.assumptions]
    heading = table(answer.headline, columns, rows)
    return Group(heading, escape(answer.footer), "This rests on:", *map(escape, reasons))


def _write(
    answer: db.Estimate, output: Path, source: Source, model: db.Model, evidence: Mapping[Hashable, Any]
) -> None:
    suffix = output.suffix.lower()
    if suffix == ".json":
        output.write_text(answer.to_json(indent=1) + "\n", encoding="utf-8")
    elif suffix == ".csv":
        numbers = (answer.mean, answer.lower, answer.upper, answer.bias_bound)
        rows = zip(map(shown, answer.targets), answer.states, *(column.tolist() for column in numbers), strict=True)
        write_table(output, ("target", "state", "mean", "lower", "upper", "bias_bound"), rows)
    else:
        _write_mar(answer, output, source, model, evidence)


def _write_mar(
    answer: db.Estimate, output: Path, source: Source, model: db.Model, evidence: Mapping[Hashable, Any]
) -> None:
    """Write a UAI result file: all variables of the file, also those observed and those with one state."""
    marginals: dict[Any, Any] = {label: answer[label].mean for label in dict.fromkeys(answer.targets)}
    given = read_evidence(model, evidence)
    observed: dict[Any, int] = {model.labels[i]: model.states(i).index(state) for i, state in given.items()}
    if (sizes := source.uai_sizes()) is None:  # numbered by position where the file has no numbers
        sizes = model.cardinalities
        marginals = {model.index(label): values for label, values in marginals.items()}
        observed = {model.index(label): state for label, state in observed.items()}
    db.io.write_marginals(marginals, output, evidence=observed, sizes=sizes)
