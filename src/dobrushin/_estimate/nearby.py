"""Planning on a ball around the targets, for models that are not made as a whole.

A scan that updates inner variables of the ball only has the same certificate, chains and sets in the whole model. If
the scan reaches the border, the ball was too small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.method import Method
from dobrushin._estimate.methods import METHODS, choose
from dobrushin._estimate.query import Query, Settings, read_query
from dobrushin._estimate.targets import variables_of
from dobrushin._models import Ising, Model, Potts
from dobrushin._models.local import LocalArrays, LocalModel
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError, BudgetError

_FIRST_RADIUS = 8
# Models of so many variables are not made again for evidence, when so few targets are asked for.
_LARGE, _FEW = 20_000, 1000


class Numbering(NamedTuple):
    n: int
    positions: NDArray[np.int64]


def is_asked_nearby(model: Any, targets: Any, evidence: Any, method: str) -> bool:
    """Whether only what is near the targets is looked at: always where there is no whole, and in large models.

    Evidence changes a model only where it is. Making a new one of all the rest would take longer than the answer.
    """
    if isinstance(model, LocalModel):
        return True
    if not isinstance(model, Ising | Potts) or not isinstance(model.labels, range):
        return False
    if not evidence or model.n_variables < _LARGE or isinstance(targets, str):
        return False
    few = not isinstance(targets, Sized) or len(targets) <= _FEW
    return few and (method == "auto" or METHODS[method].works_nearby)


def choose_nearby(model: Model, targets: Any, evidence: Any, settings: Settings) -> tuple[Method, Numbering]:
    """The method for a query on a ball that is large enough, and where the ball's variables are in the whole."""
    if settings.method != "auto" and not METHODS[settings.method].works_nearby:
        names = ", ".join(repr(name) for name, method in METHODS.items() if method.works_nearby)
        requirement = f"'auto', {names} for a model that is never made as a whole"
        raise ArgumentError("estimate", "method", requirement, settings.method)
    if not isinstance(model, LocalModel):
        model = LocalArrays.of(model)
    centres = _centres(model, targets)
    given = {} if evidence is None else _read_evidence(model, evidence)
    radius = _FIRST_RADIUS
    while True:
        ball = model.ball(centres, radius)
        inside = set(ball.model.labels)
        near = {label: state for label, state in given.items() if label in inside}
        query = read_query(ball.model, targets, near, settings, is_part=True)
        part = _in_the_whole(query, given, model.n_variables)
        try:
            method = choose(query)
        except BudgetError as error:
            raise error.carrying(error.plan and error.plan.lift(part), None) from None
        if method.plan.scan is None or not _reaches_border(query, method, ball):
            query.space.start  # noqa: B018 - the evidence may be impossible
            return method, part
        radius *= 2


def _in_the_whole(query: Query, evidence: dict[Any, int], n: int) -> Numbering:
    """Where the variables of a query on a part are in the whole model given the evidence."""
    labels = np.asarray(query.model.labels)
    observed = np.sort(np.array(list(evidence), dtype=np.int64))
    return Numbering(n - len(observed), labels - np.searchsorted(observed, labels))


def _reaches_border(query: Query, method: Method, ball: Any) -> bool:
    """Whether the scan updates a variable whose neighbours are not all in the ball."""
    updated = method.plan.scan.updates(query.model.n_variables)
    return not ball.inner[np.searchsorted(np.asarray(ball.model.labels), np.asarray(query.model.labels)[updated])].all()


def _centres(model: Model, targets: Any) -> NDArray[np.int64]:
    """Positions that the targets look at."""
    if isinstance(targets, str):
        raise ArgumentError("estimate", "targets", "some variables of a model that is never made as a whole", targets)
    items = list(targets) if check.is_several(targets) else [targets]
    if not items:
        raise ArgumentError("estimate", "targets", "at least one target", items)
    labels = dict.fromkeys(label for item in items for label in variables_of(item))
    return check.positions(list(labels), range(model.n_variables), None, "estimate", "targets")


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
