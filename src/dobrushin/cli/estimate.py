"""The verb `dobrushin estimate`: the answer, its error bound, and the assumptions that it rests on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

import dobrushin as db
from dobrushin._shared.call import stage
from dobrushin.cli import completion
from dobrushin.cli import options as opt
from dobrushin.cli.output import CERTIFIED, NO_CERTIFICATE, Output, Usage, check_file, table, write_table
from dobrushin.cli.source import read_evidence, read_model, read_targets, uai_sizes

# The example of a call without a file: a corner, given a neighbour, so that symmetry does not give the answer.
_EXAMPLE = "the paper's Ising model with a million spins (no file was given)"
_EXAMPLE_EVIDENCE: dict[Hashable, Any] = {1: 1}


@opt.verb("estimate model.uai --target 3,7 --tolerance 0.01 --evidence 5=1")
def estimate(
    model: opt.MaybeModel = None,
    target: opt.Target = None,
    tolerance: Annotated[float, opt.number("Largest allowed half-width of an interval.")] = 0.01,
    confidence: opt.Confidence = 0.99,
    evidence: opt.Evidence = None,
    method: Annotated[
        str,
        opt.word(
            "METHOD",
            "auto, exact, local, dobrushin, parts, symmetry, walks, clusters, coalescence, weights or uncertified.",
            completion.METHODS,
        ),
    ] = "auto",
    seed: opt.Seed = None,
    budget: Annotated[float | None, opt.number("Largest number of Gibbs updates to spend.")] = None,
    time_limit: opt.Time = None,
    checkpoint: opt.Checkpoint = None,
    memory_limit: Annotated[
        str | None,
        opt.word("MEMORY_LIMIT", "Memory limit for exact sums, as in 2GiB. Default: most of the free memory."),
    ] = None,
    beta: opt.Beta = None,
    report: Annotated[Path | None, opt.file("Write an interactive page (.html).")] = None,
    output: Annotated[Path | None, opt.file("Write the answer to a .json, .csv or .mar file.")] = None,
    proof: Annotated[Path | None, opt.file("Write a proof that `dobrushin verify` checks.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show the plan only, without sampling.")] = False,
    *,
    out: Output,
) -> int:
    """Estimate marginals with guaranteed intervals. Without a model: a built-in example."""
    query: dict[str, Any] = {"tolerance": tolerance, "confidence": confidence, "method": method, "budget": budget}
    query["run"] = db.RunOptions(memory_limit=memory_limit, checkpoint=checkpoint)
    is_marginals = output is not None and output.suffix.lower() == ".mar"
    check_file("--report", report, is_replaced=True)
    check_file("--proof", proof, is_replaced=True)
    check_file("--output", output, endings=(".json", ".csv", ".mar"), is_replaced=is_marginals)
    asked = _read_example_or(model, beta)
    given = read_evidence(asked, model, evidence)
    if model is None and not target and not evidence:
        given = dict(_EXAMPLE_EVIDENCE)
    targets: Any = read_targets(asked, target, questions=True) or ([0] if model is None else "all")
    if plan:
        return _show_plan(db.plan(asked, targets, evidence=given, **query), out)
    if output is not None and is_marginals:
        known = set(asked.labels if targets == "all" else targets) | set(_without_likelihoods(given))
        if missing := [label for label in asked.labels if label not in known]:
            text = f"{output.name} holds all marginals: estimate all variables. {missing[0]!r} is missing."
            raise Usage(f"--output {text}")
    if model is None:
        out.note(f"Estimating on {_EXAMPLE}.")
    query |= {"evidence": given, "seed": seed, "time_limit": time_limit, "proof": proof}
    answer = out.reach(lambda: db.estimate(asked, targets, **query), db.CertificateError, db.BudgetError)
    if out.failure is not None and answer._is_vacuous and time_limit is None:
        raise out.failure
    out.print(lambda: answer.to_json(indent=1), lambda: _page(answer))
    if report is not None:
        words = ["dobrushin", *sys.argv[1:]]
        if isinstance(answer.seed, int) and not any(word.startswith("--seed") for word in words):
            words += ["--seed", str(answer.seed)]
        with stage("writing the report"):
            db.report.write(answer, report, model=asked, evidence=given or None, command=shlex.join(words))
        out.note(f"Wrote {report}.")
    if output is not None:
        _write(answer, output, model, asked, given)
        out.note(f"Wrote {output}.")
    if proof is not None:
        _prove(answer, proof, out)
    is_reached = answer.stopped_by is None and answer.widest <= answer.plan.tolerance
    return CERTIFIED if answer.is_certified and is_reached else NO_CERTIFICATE


def _read_example_or(model: Path | None, beta: float | None) -> db.Model:
    from dobrushin.experiments.scans import paper_ising

    return paper_ising(1000, 1000, fields=False) if model is None else read_model(model, beta)


def _without_likelihoods(evidence: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    """Return the observed states of evidence, without likelihoods (soft evidence)."""
    return {label: state for label, state in evidence.items() if not isinstance(state, Mapping)}


def _show_plan(plan: db.Plan, out: Output) -> int:
    about = {
        "method": plan.method, "certified": plan.is_certified, "certain": plan.is_certain, "reason": plan.reason,
        "tolerance": plan.tolerance, "confidence": plan.confidence, "bias": plan.bias, "interval": plan.interval,
        "steps": 0 if plan.scan is None else len(plan.scan), "chains": plan.chains, "kernel": plan.kernel,
        "updates": plan.updates, "seconds": plan.seconds, "reaches_tolerance": plan.reaches_tolerance,
    }  # fmt: skip
    out.show("plan", about, lambda: Text(str(plan)))
    return CERTIFIED if plan.is_certified else NO_CERTIFICATE


def _prove(answer: db.Estimate, proof: Path, out: Output) -> None:
    """Print where the proof is; after an error, first write the proof of the partial result."""
    if answer._is_vacuous:
        out.warn("No proof was written: all intervals are vacuous.")
        return
    if out.failure is not None:
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


def _page(answer: db.Estimate) -> Group:
    from dobrushin._estimate.headline import column_names, row_texts

    rows = [row_texts(answer, k) for k in range(len(answer))]
    assumptions = [f"- {assumption}" for assumption in answer.assumptions]
    return Group(table(answer.headline, column_names(answer), rows), answer.footer, "This rests on:", *assumptions)


def _write(
    answer: db.Estimate, output: Path, path: Path | None, model: db.Model, evidence: Mapping[Hashable, Any]
) -> None:
    """Write an answer to a file; a UAI result file has all variables, even observed ones and those with one state."""
    from dobrushin._estimate.headline import value_name
    from dobrushin._estimate.targets import shown

    suffix = output.suffix.lower()
    if suffix == ".json":
        output.write_text(answer.to_json(indent=1) + "\n", encoding="utf-8")
        return
    if suffix == ".csv":
        numbers = (answer.value, answer.lower, answer.upper, answer.bias_bound)
        rows = zip(map(shown, answer.targets), answer.states, *(column.tolist() for column in numbers), strict=True)
        write_table(output, ("target", "state", value_name(answer), "lower", "upper", "bias_bound"), rows)
        return
    states = model._read_evidence(_without_likelihoods(evidence))
    seen = set(states)
    marginals: dict[Any, Any] = {x: answer[x].value for i, x in enumerate(model.labels) if i not in seen}
    observed: dict[Any, int] = {model.labels[i]: model.states(i).index(state) for i, state in states.items()}
    if (sizes := uai_sizes(path)) is None:  # numbered by position where the file has no numbers
        sizes = model.cardinalities
        marginals = {model.index(label): values for label, values in marginals.items()}
        observed = {model.index(label): state for label, state in observed.items()}
    db.io.write_marginals(marginals, output, evidence=observed, sizes=sizes)
