"""Planning on a ball around the targets, for models that are never made as a whole.

A scan that updates inner variables of the ball only has the same certificate, chains and sets in the whole model. If
the scan reaches the border, the ball was too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.query import Plan, Query, read_query
from dobrushin._estimate.targets import Joint, Statistic
from dobrushin._models.local import Ball, LocalModel
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError, BudgetError

_FIRST_RADIUS = 8


def plan_locally(
    model: LocalModel, targets: Any, arguments: tuple[Any, ...], evidence: Any, make: Callable[[Query], Plan]
) -> tuple[Query, Plan]:
    """The query on a ball that is large enough, and its plan."""
    tolerance, confidence, method, budget = arguments
    if method in ("exact", "uncertified"):
        requirement = "'auto', 'dobrushin' or 'coalescence' for a model that is never made as a whole"
        raise ArgumentError("estimate", "method", requirement, method)
    centres = _centres(model, targets)
    given = {} if evidence is None else _read_evidence(model, evidence)
    radius = _FIRST_RADIUS
    while True:
        ball = model.ball(centres, radius)
        inside = set(ball.model.labels)
        near = {label: state for label, state in given.items() if label in inside}
        query = read_query(ball.model, targets, tolerance, confidence, near, method, budget, local=True)
        try:
            made = make(query)
        except BudgetError as error:
            raise error.carrying(error.plan and in_the_whole(query, error.plan, evidence), None) from None
        if made.scan is None or not _reaches_border(query, made, ball):
            return query, made
        radius *= 2


def in_the_whole(query: Query, made: Plan, evidence: Any) -> Plan:
    """The plan with its scan by positions in the whole model given the evidence, where it was made for a part of it."""
    if not query.local or made.scan is None:
        return made
    return replace(made, scan=Scan(whole_positions(query, evidence)[made.scan.order]))


def whole_positions(query: Query, evidence: Any) -> NDArray[np.int64]:
    """For each variable of the part that was made, its position in the whole model given the evidence."""
    labels = np.asarray(query.space.model.labels)
    observed = np.sort(np.array([int(label) for label in evidence or ()], dtype=np.int64))
    return labels - np.searchsorted(observed, labels)


def _reaches_border(query: Query, made: Plan, ball: Ball) -> bool:
    """Whether the scan updates a variable whose neighbours are not all in the ball."""
    assert made.scan is not None
    rest = query.space.model
    updated = made.scan.updates(rest.n_variables)
    whole = np.asarray(ball.model.labels)
    return not ball.inner[np.searchsorted(whole, np.asarray(rest.labels)[updated])].all()


def _centres(model: LocalModel, targets: Any) -> NDArray[np.int64]:
    """Positions that the targets look at."""
    if isinstance(targets, str):
        raise ArgumentError("estimate", "targets", "some variables of a model that is never made as a whole", targets)
    items = [targets] if isinstance(targets, Joint | Statistic) or not isinstance(targets, Iterable) else list(targets)
    if not items:
        raise ArgumentError("estimate", "targets", "at least one target", items)
    labels: list[Any] = []
    for item in items:
        labels += item.labels if isinstance(item, Joint) else item.weights if isinstance(item, Statistic) else [item]
    return check.positions(list(dict.fromkeys(labels)), range(model.n_variables), None, "estimate", "targets")


def _read_evidence(model: LocalModel, evidence: Any) -> dict[int, int]:
    if not isinstance(evidence, Mapping):
        raise ArgumentError("estimate", "evidence", "a dict from labels to states", evidence)
    if not evidence:
        return {}
    known = check.positions(list(evidence), range(model.n_variables), None, "estimate", "evidence")
    allowed = range(-1, 2, 2) if model.states is None else range(model.states)
    for label, state in evidence.items():
        if isinstance(state, bool) or state not in allowed:
            raise ArgumentError("estimate", "evidence", f"one of the states {list(allowed)}", state, f"label {label!r}")
    if model.states is not None:
        own = model.potentials(known)[np.arange(len(known)), [int(state) for state in evidence.values()]]
        if np.isneginf(own).any():  # of Potts models nothing else can be forbidden
            label = list(evidence)[int(np.argmax(np.isneginf(own)))]
            raise ArgumentError("estimate", "evidence", "possible", got="a forbidden state", where=f"label {label!r}")
    return dict(zip(known.tolist(), (int(state) for state in evidence.values()), strict=True))
