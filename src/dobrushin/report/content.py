"""What a page says, as plain data."""

from __future__ import annotations

import platform
from collections.abc import Hashable, Mapping
from importlib import metadata
from typing import Any

import numpy as np

from dobrushin._diagnose import Diagnosis, diagnose
from dobrushin._estimate import Estimate
from dobrushin._estimate.headline import given_words
from dobrushin._estimate.method import Curve, method_of
from dobrushin._estimate.targets import Statistic, shown
from dobrushin._models import Model
from dobrushin._models.state_names import shown_evidence
from dobrushin._shared.text import percent, rounded_up, visible
from dobrushin.errors import BudgetError
from dobrushin.report import sentences
from dobrushin.report.closing import picture
from dobrushin.report.graph import certified_surroundings, surroundings
from dobrushin.report.table import distinct_targets, rows_of, short_names

# Names in a sentence, and in a line of code.
_MOST_NAMES, _MOST_IN_CODE = 100, 8
_MOST_DIAGNOSED = 20_000


def content(
    estimate: Estimate,
    model: Model | None,
    evidence: dict[Hashable, Any],
    shape: tuple[int, int] | None,
    title: str | None,
    command: str | None,
    diagnosis: Diagnosis | bool | None,
) -> dict[str, Any]:
    """Everything that is on the page."""
    sampled = None if model is None else model.condition(evidence)
    around = certified_surroundings(estimate)
    if model is not None and sampled is not None:
        observed = {label: state for label, state in evidence.items() if not isinstance(state, Mapping)}
        around = surroundings(estimate, model, sampled, observed)
    scan, method = estimate.plan.scan, method_of(estimate.plan)
    default = "Certified estimate" if estimate.is_certified else "Estimate without a certificate"
    return {
        "title": default if title is None else title,
        "verdict": sentences.verdict(estimate),
        "asked": _question(estimate, model, evidence),
        "rows": rows_of(estimate),
        "certificate": {
            "words": method.explain(estimate),
            "facts": sentences.facts(estimate),
            "assumptions": list(estimate.assumptions),
            "bias": "" if method.bias_is_proven else f"limit at confidence {estimate.confidence_text}",
        },
        "curve": _points(method.curve(estimate, sampled)),
        "scan": None if scan is None else picture(scan, around, shape),
        "diagnosis": _diagnosis(sampled, diagnosis, bool(evidence)),
        "reproduce": _reproduce(estimate, evidence, command),
    }


def _question(estimate: Estimate, model: Model | None, evidence: dict[Hashable, Any]) -> dict[str, Any]:
    targets = distinct_targets(estimate)[0]
    hard = {label: state for label, state in evidence.items() if not isinstance(state, Mapping)}
    named = evidence if model is None else {**evidence, **shown_evidence(model, hard)}
    observed = [given_words({label: state}) for label, state in list(named.items())[:_MOST_NAMES]]
    certain = " (what was found is certain)" if estimate.plan.is_certain else ""
    return {
        "model": "" if model is None else short_names([repr(model)])[0],
        "targets": short_names([visible(str(shown(target))) for target in targets[:_MOST_NAMES]]),
        "count": len(targets),
        "tolerance": f"plus or minus {estimate.plan.tolerance:g}",
        "confidence": percent(estimate.plan.confidence) + certain,
        "evidence": short_names(observed),
        "evidence_count": len(evidence),
    }


def _points(curve: Curve | None) -> dict[str, Any] | None:
    """A curve for the page."""
    if curve is None:
        return None
    values = [float(rounded_up(value, 4)) for value in curve.values]
    return {"steps": curve.steps.tolist(), "values": values, "words": curve.words}


def _diagnosis(sampled: Model | None, given: Diagnosis | bool | None, has_evidence: bool) -> dict[str, Any]:
    """Lines of a diagnosis, or why there are none."""
    if given is False:
        return {"lines": [], "note": "The diagnosis was left out."}
    if not isinstance(given, Diagnosis):
        if sampled is None:
            return {"lines": [], "note": "The model was not given to the report: estimate.report(path, model=model)."}
        if given is None and sampled.n_variables > _MOST_DIAGNOSED:
            note = f"{sampled.n_variables:,} variables are too many to diagnose unasked: pass diagnosis=True."
            return {"lines": [], "note": note}
        try:
            given = diagnose(sampled)
        except BudgetError as error:
            return {"lines": [], "note": str(error)}
    note = "Hints from sweeps and a few pilot runs; they certify nothing."
    lines = [("model", given.model), *given.lines()]
    return {"lines": lines, "note": f"The model given the evidence. {note}" if has_evidence else note}


def _reproduce(estimate: Estimate, evidence: dict[Hashable, Any], command: str | None) -> dict[str, Any]:
    libraries = ("dobrushin", "numpy", "numba", "scipy")
    model = None if estimate.asked is None else estimate.asked.fingerprint
    known = [] if model is None else [("fingerprint of the model", model)]
    known += [] if estimate.proof is None else [("proof", estimate.proof)]
    facts = [
        *known,
        ("seed", _seed(estimate)),
        ("Python", platform.python_version()),
        *((x, _version(x)) for x in libraries),
    ]
    return {"command": _call(estimate, evidence) if command is None else command, "facts": facts}


def _version(name: str) -> str:
    import dobrushin

    if name == "dobrushin":
        return dobrushin.__version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def _seed(estimate: Estimate) -> str:
    seed = estimate.seed
    if isinstance(seed, np.random.SeedSequence):
        return f"np.random.SeedSequence({seed.entropy!r}, spawn_key={seed.spawn_key!r})"
    return "none (nothing was drawn)" if seed is None else str(seed)


def _call(estimate: Estimate, evidence: dict[Hashable, Any]) -> str:
    """The call of `estimate`, as far as it can be written."""
    targets, plan = distinct_targets(estimate)[0], estimate.plan
    names = [f"<statistic {t.name!r}>" if isinstance(t, Statistic) else repr(t) for t in targets[:_MOST_IN_CODE]]
    listed = ", ".join(short_names(names)) + (", ..." if len(targets) > len(names) else "")
    count = f"  # {len(targets):,} targets" if len(targets) > len(names) else ""
    lines = ["import dobrushin as db", "", "db.estimate(", "    model,", f"    targets=[{listed}],{count}"]
    if evidence:
        shown_evidence = ", ".join(f"{k!r}: {v!r}" for k, v in list(evidence.items())[:_MOST_IN_CODE])
        cut = ", ..." if len(evidence) > _MOST_IN_CODE else ""
        lines.append(f"    evidence={{{shown_evidence}{cut}}},")
    lines.append(f"    tolerance={plan.tolerance!r}, confidence={plan.confidence!r}, method={plan.method!r},")
    if estimate.seed is not None:
        lines.append(f"    seed={_seed(estimate)},")
    return "\n".join([*lines, ")"])
