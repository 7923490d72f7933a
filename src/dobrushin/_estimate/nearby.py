"""Planning on a ball around the targets, for models that are not made as a whole.

A scan that updates inner variables of the ball only has the same certificate, chains and sets in the whole model. If
the scan reaches the border, the ball was too small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.choice import ask_at_once, choose
from dobrushin._estimate.method import METHODS, Method, adapt_errors, carry_estimate
from dobrushin._estimate.query import Query, Settings, make_query, read_evidence
from dobrushin._estimate.targets import variables_of
from dobrushin._models import Model
from dobrushin._models.near import Numbering, Part
from dobrushin._shared import validate as check
from dobrushin._shared.deadline import current
from dobrushin._shared.log import log
from dobrushin.errors import ArgumentError

# About how long it takes to make a ball, for each of its variables.
_SECONDS_PER_VARIABLE = 2e-6


def choose_nearby(model: Model, targets: Any, evidence: Any, settings: Settings) -> tuple[Method, Numbering]:
    """The method for a query on a ball that is large enough, and where the ball's variables are in the whole."""
    if settings.method != "auto" and not METHODS[settings.method].works_nearby:
        names = ", ".join(repr(name) for name, method in METHODS.items() if method.works_nearby)
        requirement = f"one of 'auto', {names} for a model that is never made as a whole"
        raise ArgumentError("method", requirement, settings.method)
    given = read_evidence(model, evidence)
    model.refuse_forbidden(given)
    centres, radius = _read_centres(model, targets), _first_radius(model, settings.method)
    while True:
        ball, query, place = _query_near(model, centres, radius, targets, given, settings)
        with adapt_errors(lambda estimate, place=place: estimate.lift(place), place), carry_estimate(query):  # type: ignore[misc]
            current().charge(ball.model.n_variables * _SECONDS_PER_VARIABLE, "looking around the targets")
            method = choose(query)
        if not _reaches_border(query, method.updated(), ball):
            _ = query.space.start  # the evidence may be impossible
            return method, place
        radius *= 2


def choose_at_once(model: Model, targets: Any, evidence: Any, settings: Settings) -> tuple[Method, Numbering] | None:
    """The same where sums on the first ball are done while they are planned; None where that is not so."""
    given, centres = read_evidence(model, evidence), _read_centres(model, targets)
    ball, query, place = _query_near(model, centres, _first_radius(model, settings.method), targets, given, settings)
    with adapt_errors(lambda estimate: estimate.lift(place), place), carry_estimate(query):
        method = ask_at_once(query)
    return None if method is None or _reaches_border(query, method.updated(), ball) else (method, place)


def _first_radius(model: Model, method: str) -> int:
    """How far to look at first, in edges."""
    local = model._local()
    radius = model.first_radius if local is None else local.first_radius
    return radius if method == "auto" else METHODS[method].reach * radius


def _query_near(
    model: Model, centres: NDArray[np.int64], radius: int, targets: Any, given: dict[Any, int], settings: Settings
) -> tuple[Part, Query, Numbering]:
    """A ball around the targets, the query on it, and where its variables are in the whole given the evidence."""
    ball = model.near(centres, radius)
    log.info("looking %d edges around the targets: %d variables", radius, ball.model.n_variables)
    near = {label: state for label, state in given.items() if ball.holds(label)}
    query = make_query(ball.model, targets, near, settings, is_part=True)
    return ball, query, _place_in_the_whole(query, given, model.n_variables)


def _place_in_the_whole(query: Query, evidence: dict[Any, int], n: int) -> Numbering:
    """Where the variables of a query on a part are in the whole model given the evidence."""
    labels = np.asarray(query.model.labels)
    observed = np.sort(np.array(list(evidence), dtype=np.int64))
    return Numbering(n - len(observed), labels - np.searchsorted(observed, labels))


def _reaches_border(query: Query, positions: NDArray[np.int64], ball: Part) -> bool:
    """Whether some of these variables have neighbours that are not in the ball."""
    updated = np.asarray(query.model.labels)[positions]
    return not ball.inner[ball.numbering.own(updated)].all()


def _read_centres(model: Model, targets: Any) -> NDArray[np.int64]:
    """Positions that the targets look at."""
    if isinstance(targets, str):
        raise ArgumentError("targets", "some variables of a model that is never made as a whole", targets)
    items = list(targets) if check.is_several(targets) else [targets]
    if not items:
        raise ArgumentError("targets", "at least one target", items)
    labels = dict.fromkeys(label for item in items for label in variables_of(item))
    return check.positions(list(labels), model.labels, None, "targets")
