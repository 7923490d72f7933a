"""Estimates as JSON: writing, reading, and comparing them."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin._estimate.query import METHODS
from dobrushin._estimate.targets import Joint, Target
from dobrushin._exact.sums import LogPartition
from dobrushin._shared.arrays import frozen
from dobrushin._shared.environment import VERSION
from dobrushin._shared.text import visible
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin._estimate.answer import Estimate

FORMAT = "dobrushin estimate 2"
NUMBERS = ("value", "lower", "upper", "bias_bound")
_OF_PLANS = (
    "bias", "intervals", "seconds", "other_updates", "reaches_tolerance", "stops_early", "relevance", "noun",
    "is_certain",
)  # fmt: skip
_REQUIREMENT = "JSON text that Estimate.to_json wrote"


class StoredTarget(Target):
    """A target read from JSON: its name, its variables and its noun ("mean", ...), but not its function."""

    def __init__(self, name: Hashable, variables: list[Hashable], kind: str) -> None:
        self.name, self.labels, self.kind = name, variables, kind

    @property
    def _name(self) -> Hashable:
        return self.name

    @property
    def _variables(self) -> list[Hashable]:
        return self.labels

    @property
    def _noun(self) -> str:
        return self.kind

    @property
    def _text(self) -> str:
        return str(visible(str(self.name)))


def about(answer: Estimate) -> dict[str, Any]:
    """Return everything that JSON text says of an estimate, except its rows, as a dict."""
    plan, seed = answer.plan, answer.seed
    evidence = {} if answer.asked is None else answer.asked.evidence
    return {
        "format": FORMAT,
        "library": f"dobrushin {VERSION}",
        "model": None if answer.asked is None else answer.asked.fingerprint,
        "evidence": [{"target": _plain(label), "state": _plain(state)} for label, state in evidence.items()],
        "headline": answer.headline,
        "method": plan.method,
        "certified": answer.is_certified,
        "tolerance": plan.tolerance,
        "confidence": answer.confidence,
        "stopped_by": answer.stopped_by,
        "reason": plan.reason,
        "interval": plan.interval,
        "steps": answer.steps,
        "chains": answer.chains,
        "kernel": plan.kernel or None,
        "seed": seed if seed is None or isinstance(seed, int) else str(seed),
        "assumptions": list(answer.assumptions),
        "log_evidence": None if answer.log_evidence is None else float(answer.log_evidence),
        "log_evidence_error": None if answer.log_evidence is None else answer.log_evidence.error,
        "plan": {name: getattr(plan, name) for name in _OF_PLANS},
    }


def to_json(answer: Estimate, indent: int | None) -> str:
    rows = []
    for k, (target, state) in enumerate(zip(answer.targets, answer.states, strict=True)):
        row: dict[str, Any] = {"target": _plain(target), "state": _plain(state), "kind": answer.plan.noun}
        if isinstance(target, Target):
            row |= {"kind": target._noun, "variables": [_plain(label) for label in target._variables]}
        row |= {name: None if np.isnan(column[k]) else float(column[k]) for name, column in answer._numbers.items()}
        if answer.found_by:
            row["method"] = answer.found_by[k]
        rows.append(row)
    return json.dumps({**about(answer), "rows": rows}, indent=indent)


def from_json(text: str) -> Estimate:
    """Return the estimate that `to_json` wrote as text; raise `ArgumentError` for any other text."""
    from dobrushin._estimate.answer import Asked, Estimate
    from dobrushin._estimate.method import Nothing, Plan

    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ArgumentError(
                "text", _REQUIREMENT, got=f"the format {data['format']!r} (this release reads {FORMAT!r})"
            )
        names = ("method", "reason", "tolerance", "confidence", "interval", "chains", "kernel")
        plan = Plan(
            **{name: data[name] for name in names}, **{name: data["plan"][name] for name in _OF_PLANS},
            is_certified=data["certified"], made_by=METHODS.get(data["method"], Nothing),
        )  # fmt: skip
        targets: dict[str, Any] = {}  # one object for all rows of a target
        for row in data["rows"]:
            targets.setdefault(_key(row), _target(row))
        columns: dict[str, Any] = {
            name: frozen(np.array([math.nan if row[name] is None else row[name] for row in data["rows"]], dtype=float))
            for name in NUMBERS
        }
        log_evidence = data["log_evidence"]
        if log_evidence is not None:
            log_evidence = LogPartition(log_evidence, data["log_evidence_error"])
        evidence = {_restored(item["target"]): _restored(item["state"]) for item in data["evidence"]}
        return Estimate(
            targets=[targets[_key(row)] for row in data["rows"]],
            states=[_restored(row["state"]) for row in data["rows"]],
            **columns, **{name: data[name] for name in ("confidence", "seed", "stopped_by")},
            found_by=tuple(row["method"] for row in data["rows"] if "method" in row),
            assumptions=tuple(data["assumptions"]), plan=plan, log_evidence=log_evidence,
            asked=Asked(evidence=evidence, observed={}, _fingerprint=data["model"]), _steps=data["steps"],
        )  # fmt: skip
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, ArgumentError):
            raise
        got = f"{type(error).__name__}: {error}"
        raise ArgumentError("text", _REQUIREMENT, got=got) from None


def are_equal(one: Estimate, two: Estimate) -> bool:
    """Return whether two estimates have the same model, evidence, targets, numbers, method and seed."""
    columns = zip(one._numbers.values(), two._numbers.values(), strict=True)
    if one.states != two.states or not all(np.array_equal(*pair, equal_nan=True) for pair in columns):
        return False
    if list(map(_plain, one.targets)) != list(map(_plain, two.targets)):
        return False
    ours, theirs = about(one), about(two)
    parts = ("model", "evidence", "method", "tolerance", "confidence", "stopped_by", "steps", "chains", "seed")
    return all(ours[part] == theirs[part] for part in parts)


def _key(row: dict[str, Any]) -> str:
    return json.dumps([row["target"], row.get("variables"), row["kind"]])


def _target(row: dict[str, Any]) -> Any:
    name = _restored(row["target"])
    if "variables" not in row:
        return name
    variables = [_restored(label) for label in row["variables"]]
    return Joint(*variables) if name == tuple(variables) else StoredTarget(name, variables, row["kind"])


def _plain(value: Any) -> Any:
    """Return a label or state in a form that JSON can hold: tuples as lists, numbers and text unchanged."""
    if isinstance(value, Target):
        value = value._name
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):  # likelihoods of states
        return [{"state": _plain(state), "likelihood": number} for state, number in value.items()]
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _restored(value: Any) -> Any:
    """Return the label or state that `_plain` changed for JSON."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {_restored(part["state"]): part["likelihood"] for part in value}
    return tuple(map(_restored, value)) if isinstance(value, list) else value
