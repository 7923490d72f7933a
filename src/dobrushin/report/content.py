"""Content of a report as plain data: sentences, tables, the curve of the bound, and the call that repeats it."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Hashable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN
from importlib import metadata
from typing import Any

import numpy as np

from dobrushin._diagnose import Diagnosis, diagnose
from dobrushin._estimate import Estimate
from dobrushin._estimate.headline import given_words, value_name
from dobrushin._estimate.query import read_evidence
from dobrushin._estimate.targets import Joint, Statistic, Target, shown
from dobrushin._models import Model
from dobrushin._models.state_names import shown_evidence
from dobrushin._shared.environment import VERSION
from dobrushin._shared.text import decimals_for, in_full, percent, round_decimal, rounded_up, visible
from dobrushin.errors import BudgetError
from dobrushin.report.scan_picture import certified_surroundings, picture, surroundings

# Largest number of names in a sentence, and of characters that the targets take in the code.
_MAX_NAMES, _MAX_CODE = 100, 20_000
# Largest number of variables of a model that is diagnosed without being asked for.
_MAX_DIAGNOSED = 20_000


def content(
    estimate: Estimate,
    model: Model | None,
    evidence: dict[Hashable, Any],
    shape: tuple[int, int] | None,
    title: str | None,
    command: str | None,
    diagnosis: Diagnosis | bool | None,
) -> dict[str, Any]:
    """Return the data of all sections of the page."""
    sampled = None if model is None else model.condition(evidence)
    around = certified_surroundings(estimate)
    if model is not None and sampled is not None:
        observed = {label: state for label, state in evidence.items() if not isinstance(state, Mapping)}
        around = surroundings(estimate, model, sampled, observed)
    scan, method = estimate.plan.scan, estimate.plan.made_by
    curve = method.curve(estimate, sampled)
    values = [] if curve is None else [float(rounded_up(value, 4)) for value in curve.values]
    default = "Certified estimate" if estimate.is_certified else "Estimate without a certificate"
    return {
        "title": default if title is None else title,
        "verdict": _verdict(estimate),
        "asked": _question(estimate, model, evidence),
        "rows": rows_of(estimate),
        "certificate": {
            "words": method.explain(estimate),
            "facts": _facts(estimate),
            "assumptions": list(estimate.assumptions),
            "bias": "" if method.bias_is_proven else f"limit at confidence {estimate.confidence_text}",
        },
        "curve": None if curve is None else {"steps": curve.steps.tolist(), "values": values, "words": curve.words},
        "scan": None if scan is None else picture(scan, around, shape),
        "diagnosis": _diagnosis(sampled, diagnosis, bool(evidence)),
        "reproduce": _reproduce(estimate, evidence, command),
    }


def _question(estimate: Estimate, model: Model | None, evidence: dict[Hashable, Any]) -> dict[str, Any]:
    targets = distinct_targets(estimate)[0]
    hard = {label: state for label, state in evidence.items() if not isinstance(state, Mapping)}
    named = evidence if model is None else {**evidence, **shown_evidence(model, read_evidence(model, hard))}
    observed = [given_words({label: state}) for label, state in list(named.items())[:_MAX_NAMES]]
    certain = " (not needed: the answers are certain)" if estimate.plan.is_certain else ""
    return {
        "model": "" if model is None else short_names([repr(model)])[0],
        "targets": short_names([visible(str(shown(target))) for target in targets[:_MAX_NAMES]]),
        "count": len(targets),
        "tolerance": f"plus or minus {in_full(estimate.plan.tolerance)}",
        "confidence": percent(estimate.plan.confidence) + certain,
        "evidence": short_names(observed),
        "evidence_count": len(evidence),
    }


def _diagnosis(sampled: Model | None, given: Diagnosis | bool | None, has_evidence: bool) -> dict[str, Any]:
    """Return the lines of a diagnosis and a note; if there are no lines, the note says why."""
    if given is False:
        return {"lines": [], "note": "The diagnosis was left out."}
    if not isinstance(given, Diagnosis):
        if sampled is None:
            return {"lines": [], "note": "The model was not given to the report: estimate.report(path, model=model)."}
        if given is None and sampled.n_variables > _MAX_DIAGNOSED:
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
    facts = [("seed", _seed(estimate)), ("Python", platform.python_version()), ("dobrushin", VERSION)]
    facts += [(name, metadata.version(name)) for name in ("numpy", "numba", "scipy")]
    if estimate.proof is not None:
        facts.insert(0, ("proof", estimate.proof))
    if estimate.asked is not None and estimate.asked.fingerprint is not None:
        facts.insert(0, ("fingerprint of the model", estimate.asked.fingerprint))
    return {"command": _call(estimate, evidence) if command is None else command, "facts": facts}


def _seed(estimate: Estimate) -> str:
    seed = estimate.seed
    if isinstance(seed, np.random.SeedSequence):
        return f"np.random.SeedSequence({seed.entropy!r}, spawn_key={seed.spawn_key!r})"
    return "none (nothing was drawn)" if seed is None else str(seed)


def _call(estimate: Estimate, evidence: dict[Hashable, Any]) -> str:
    """Write Python code that repeats the estimate; it runs as printed, given the variable `model`."""
    targets, plan = distinct_targets(estimate)[0], estimate.plan
    above = ["import dobrushin as db"]
    if isinstance(estimate.seed, np.random.SeedSequence):
        above.append("import numpy as np")
    if estimate.asked is not None and estimate.asked.model is not None:
        above += ["", f"# model: {visible(repr(estimate.asked.model))}"]
    listed = f"[{', '.join(map(_code, targets))}]"
    if any(isinstance(target, Statistic) for target in targets) or len(listed) > _MAX_CODE:
        listed = "targets"
        above += ["", f"# targets: a list of the {len(targets):,} on this page"]
    asked = [f"targets={listed}"]
    if evidence:
        asked.append(f"evidence={{{', '.join(f'{_code(k)}: {_code(v)}' for k, v in evidence.items())}}}")
    asked.append(f"tolerance={plan.tolerance!r}, confidence={plan.confidence!r}, method={plan.method!r}")
    if estimate.seed is not None:
        asked.append(f"seed={_seed(estimate)}")
    return "\n".join([*above, "", "answer = db.estimate(", "    model,", *(f"    {line}," for line in asked), ")"])


def _code(value: Any) -> str:
    """Write a label, a state or a target as Python code."""
    if isinstance(value, Joint):
        return f"db.Joint({', '.join(map(_code, value.labels))})"
    if isinstance(value, Target):
        return f"db.{value!r}"
    return repr(value.item() if isinstance(value, np.generic) else value)


def _verdict(estimate: Estimate) -> dict[str, str]:
    """Return the first sentences of the report: whether the intervals are certified."""
    count, tolerance = len(estimate), in_full(estimate.plan.tolerance)
    rows = {1: "The interval holds", 2: "Both intervals hold"}.get(count, f"All {count:,} intervals hold")
    them, sure = "it" if count == 1 else "them", percent(estimate.confidence)
    if not estimate.is_certified:
        text = (
            "Nothing is known about how far the sampler is from the model. The intervals cover chance only; the bias "
            "is left out of them, and the true values may lie far outside."
        )
        return {"level": "bad", "headline": "NOT CERTIFIED: the bias is unknown", "text": text}
    if estimate.plan.is_certain:
        text = f"Nothing was sampled. {rows} for certain: rounding is inside {them}."
        return {"level": "good", "headline": "Certified: exact up to rounding", "text": text}
    text = (
        f"{rows}{' at once' if count > 1 else ''} with probability {sure} or more. The bias of the sampler is inside "
        f"{them}."
    )
    if estimate.widest > estimate.plan.tolerance:
        headline = f"Certified, but wider than asked: within {rounded_up(estimate.widest)} instead of {tolerance}"
        return {"level": "warn", "headline": headline, "text": text}
    return {"level": "good", "headline": f"Certified: within {tolerance} at confidence {sure}", "text": text}


def _facts(estimate: Estimate) -> list[tuple[str, str]]:
    """Return facts about the certificate, as pairs of a name and a text."""
    plan, method = estimate.plan, estimate.plan.made_by
    lines = [("Method", plan.method)]
    if estimate.is_certified:
        lines.append(("Chosen because", plan.reason))
    at = "" if method.bias_is_proven else f" (at confidence {estimate.confidence_text})"
    lines.append(("Largest bias bound", estimate._bias_text + at))
    lines.append(("Widest interval", f"plus or minus {rounded_up(float(estimate.half_width.max()))}"))
    if not plan.is_certain:
        lines.append(("Confidence", f"{estimate.confidence_text}, for all intervals at once"))
        lines.append(("Interval", f"{plan.interval}, {plan.intervals:,} at once"))
    if estimate.chains:
        steps = "" if plan.scan is None else f"{estimate.steps:,} steps x "
        kernel = f", kernel {plan.kernel}" if plan.kernel else ""
        lines.append(("Work", f"{steps}{estimate.chains:,} {method.outcomes}{kernel}"))
    if estimate.evidence_text:
        lines.append(("Evidence", estimate.evidence_text))
    return lines


# Largest number of rows of a page; of characters of a name, and of all names together.
MAX_ROWS = 20_000
_MAX_NAME, _MAX_ALL_NAMES = 200, 500_000


def rows_of(estimate: Estimate) -> dict[str, Any]:
    """Return the columns of the report's table of answers; a row names its target by number."""
    count = min(len(estimate), MAX_ROWS)
    targets, numbers = distinct_targets(estimate, count)
    widths = estimate.half_width[:count]
    narrowest = float(np.min(widths, where=widths > 0, initial=1.0))
    largest = float(np.max(np.abs([estimate.lower[:count], estimate.upper[:count]]), initial=1.0))
    decimals = decimals_for(narrowest, largest)
    columns = {
        "value": (estimate.value, ROUND_HALF_EVEN),
        "lower": (estimate.lower, ROUND_FLOOR),
        "upper": (estimate.upper, ROUND_CEILING),
    }
    return {
        "total": len(estimate),
        "names": short_names([visible(str(shown(target))) for target in targets]),
        "target": numbers,
        "state": ["" if state is None else visible(str(state)) for state in estimate.states[:count]],
        **{
            name: [float(x if abs(x) >= 1e15 else round_decimal(float(x), decimals, way)) for x in part[:count]]
            for name, (part, way) in columns.items()
        },
        "bias": [None if math.isnan(x) else float(rounded_up(x, 2)) for x in estimate.bias_bound[:count]],
        "decimals": decimals,
        "value_name": value_name(estimate),
        "probabilities": not any(isinstance(target, Statistic) and not target.is_event for target in targets),
    }


def cell_texts(rows: dict[str, Any], k: int) -> tuple[str, ...]:
    """Return the cells of row `k` of the table as text."""
    numbers = (f"{rows[name][k]:.{rows['decimals']}f}" for name in ("value", "lower", "upper"))
    bias = "unknown" if rows["bias"][k] is None else f"{rows['bias'][k]:.2g}"
    return rows["names"][rows["target"][k]], rows["state"][k], *numbers, bias


def distinct_targets(estimate: Estimate, count: int | None = None) -> tuple[list[Any], list[int]]:
    """Return the targets without repetition, and the number of the target of each row."""
    targets: list[Any] = []
    numbers = []
    for target in estimate.targets[:count]:
        last = targets[-1] if targets else None
        if not targets or not (last is target or (type(last) is type(target) and bool(last == target))):
            targets.append(target)
        numbers.append(len(targets) - 1)
    return targets, numbers


def short_names(names: list[str]) -> list[str]:
    """Shorten long names in the middle, or all names if there are many; names that become equal get a number.

    Examples
    --------
    >>> [name[-5:] for name in short_names(["a", "b" * 300 + "x" + "b" * 300, "b" * 300 + "y" + "b" * 300])]
    ['a', 'b (2)', 'b (3)']
    """
    cut = [_cut(name, _MAX_NAME) for name in names]
    size = sum(len(json.dumps(name)) for name in cut)
    if size > _MAX_ALL_NAMES:
        longest = int(_MAX_ALL_NAMES / size * sum(map(len, cut)) / len(cut))
        cut = [_cut(name, max(8, longest)) for name in names]
    if len(set(cut)) < len(set(names)):
        pairs = zip(cut, names, strict=True)
        cut = [short if short == name else f"{short} ({k})" for k, (short, name) in enumerate(pairs, 1)]
    return cut


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}\u2026{name[len(name) - most // 2 + 1 :]}"
