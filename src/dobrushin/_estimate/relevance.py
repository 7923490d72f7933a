"""Relevance first: what cannot matter to the targets given the evidence is dropped before planning. [trusted]

Variables whose sum does not depend on the others go first (barren ones), then components without targets. An answer
about the law of what is left is one about the whole. The log-density that is left is off by rounding, as that of a
model made by evidence is, and this is counted in the same place: `Form.error`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.query import Query, Workspace
from dobrushin._estimate.questions import Question
from dobrushin._models.forms import Form
from dobrushin._models.near import Numbering
from dobrushin._sampling.start import allowed_state
from dobrushin._shared.log import log
from dobrushin.errors import BudgetError

# In models of so many variables, methods look near the targets anyway: looking at all the rest would take longer.
_LARGE = 20_000


def keep_relevant(query: Query) -> tuple[Query, Numbering | None]:
    """The query on what matters to its targets, and where its variables are in the whole; None for all of it."""
    model = query.model
    if not query.space.can_shrink:
        return query, query.space.place
    is_large = model.n_variables >= _LARGE and model.has_parts and model._form.is_indexed
    return (query, None) if is_large else restrict_query(query)


def restrict_query(query: Query) -> tuple[Query, Numbering | None]:
    """`keep_relevant`, however large the model is."""
    space, targets = query.space, query.objective.positions
    n = space.model.n_variables
    if len(targets) == n:
        return query, None
    rest = space.derive(targets.tobytes(), lambda: _make_relevant(space, targets))
    part = rest.place
    if part is None:
        return query, None
    words = f"{part.size} of {n} variables matter to the targets"
    log.info("%s", words)
    questions = [_renumber(question, part) for question in query.questions]
    return replace(query, space=rest, questions=questions, relevance=words), part


def _renumber(question: Any, part: Numbering) -> Question:
    """The same question about a part."""
    return replace(question, positions=part.own(question.positions))


def _make_relevant(space: Workspace, targets: NDArray[np.int64]) -> Workspace:
    """The workspace of what matters to some variables; the same one if all does."""
    left, kept, variables = find_relevant(space.model._form, targets)
    near = kept[variables]
    if not near.all() and _is_possible(left.restrict(~near), space):
        left, variables = left.restrict(near), kept
    if variables.all():
        return space
    positions = np.flatnonzero(variables)
    model = left.to_model(space.model._labels_at(positions))._name_states(space.model._names_of(positions))
    return Workspace(model, space.is_given, Numbering(len(variables), positions))


class Relevance(NamedTuple):
    """A form without barren variables, which variables matter, and which are left."""

    left: Form
    kept: NDArray[np.bool_]
    variables: NDArray[np.bool_]


def find_relevant(form: Form, targets: NDArray[np.int64]) -> Relevance:
    """What matters to some variables: what is not barren, and in a component with one of them."""
    wanted = np.zeros(form.n_variables, dtype=bool)
    wanted[targets] = True
    left, variables = form.sum_out(wanted)
    group = left.components()
    kept = variables.copy()
    kept[variables] = np.isin(group, group[wanted[variables]])
    return Relevance(left, kept, variables)


def _is_possible(apart: Form, space: Workspace) -> bool:
    """Whether what is independent of the targets allows some state, and so does not make the evidence impossible.

    An error if it does not; False if that is not known: it is not dropped then.
    """
    try:
        state = allowed_state(apart)
    except BudgetError:
        return False
    if state is None:
        raise space.impossible()
    return True
