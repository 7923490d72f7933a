"""Choose the method that answers a query, and how much of the model to read. [trusted: `find_relevant`]

With method="auto", the methods are asked for proposals in the order of their expected cost. The search ends with the
first proposal whose intervals are valid with certainty and that takes less time than planning with the next method.
Methods read either a ball (all variables within some distance of the targets), or the whole model without the variables
that are irrelevant to the targets.

A scan that updates only inner variables of a ball (those with all their neighbours in the ball) has the same
certificate, chains and bounding sets as in the whole model. If the scan reaches the border, the ball is enlarged. A
variable is irrelevant if it is barren (the sum over its states does not depend on the other variables), or if no target
is in its connected component. Summing irrelevant variables out rounds the log-density of the others; `Form.error`
counts this rounding, as it counts that of evidence.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sized
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import METHODS, QUICK_SECONDS, Choice, Method, carry_estimate, nothing_known
from dobrushin._estimate.partial import intersect
from dobrushin._estimate.query import Query, Settings, Workspace, make_query
from dobrushin._estimate.targets import variables_of
from dobrushin._models import Model
from dobrushin._models.forms import Form, PartSource
from dobrushin._models.near import Numbering
from dobrushin._sampling.start import allowed_state
from dobrushin._shared import validate as check
from dobrushin._shared.call import PLANNING, Deadline, LateError, current_deadline, planning_deadline
from dobrushin._shared.environment import log
from dobrushin._shared.running import MOST_SECONDS, Running
from dobrushin.errors import ArgumentError, BudgetError, CertificateError

# Seconds per variable (benchmarks/local.py): to build a ball; to condition a model on evidence, or find the relevant
# variables; to index the neighbours of all variables.
_BALL_SECONDS, _MODEL_SECONDS, _INDEX_SECONDS = 2e-6, 5e-7, 2.5e-6
# If conditioning the whole model takes longer than the first number of seconds, quick local sums are tried first; if
# longer than the second, only a ball around the targets is read.
_SECONDS_TO_LOOK_NEARBY, _MAX_SECONDS_TO_READ = 1e-3, 1e-2
# Largest number of target variables around which balls are read.
_MAX_CENTRES = 1000
_MORE_TIME = "A longer 'time_limit' allows longer planning and pilots (a quarter of it; 30 s without a limit). "
# Share of the time limit for planning the last method, if no other method has an answer.
_SHARE_OF_LAST = 0.3
# Share of the time limit, beyond planning, for the intervals of each method that misses the tolerance.
_SHARE_TO_FINISH = 0.1


def choose_for_call(
    model: Any, targets: Any, observed: dict[Hashable, Any], settings: Settings, running: Running | None = None
) -> tuple[Method, Numbering | None]:
    """Choose the method for a call; return it with the positions of the variables that it reads (None: all variables).

    `observed` is the evidence as `read_evidence` returns it. `running` says how the method will run; it is None if only
    a plan is needed.
    """
    limit, is_saved = settings.time_limit, running is not None and running.checkpoint is not None
    if is_saved and limit is not None:  # the call may resume with more time: its plan does not depend on the limit
        settings = replace(settings, time_limit=math.inf)
    call = model, targets, observed, settings
    with planning_deadline(limit, is_saved):
        seconds = _seconds_to_read(*call)
        is_large = seconds >= _MAX_SECONDS_TO_READ
        if model._has_parts and (not model._is_whole or (is_large and model._form.is_indexed)):
            return _choose_nearby(*call)
        if is_large:
            with suppress(CertificateError, BudgetError):
                return _choose_nearby(*call)
            log.info("no method certified the answer from a ball around the targets: reading the whole model")
        is_worth = settings.method == "auto" and _SECONDS_TO_LOOK_NEARBY <= seconds < _MAX_SECONDS_TO_READ
        # A model with zeros is read as a whole: on a ball, impossible evidence far from the targets would go unnoticed.
        if is_worth and model._form.is_indexed and not model._form.has_zeros:
            with suppress(_NoneQuick):
                return _choose_nearby(*call, quickly=True)
        query = make_query(*call)
        with carry_estimate(query):
            query, part = keep_relevant(query)
            is_certain = settings.method in METHODS and METHODS[settings.method].is_certain
            if running is not None and not is_certain:
                _ = query.space.start  # raises if the evidence is impossible
        return choose(query, part), part


class _NoneQuick(Exception):
    """Raised when no fast method has an answer that is valid with certainty on the first, smallest ball."""


def _seconds_to_read(model: Any, targets: Any, observed: dict[Hashable, Any], settings: Settings) -> float:
    """Return the expected seconds to index the whole model or to condition it on evidence.

    Return 0 where reading a ball around the targets is no alternative.
    """
    count = targets.size if isinstance(targets, np.ndarray) else len(targets) if isinstance(targets, Sized) else 1
    is_needed = not model._is_whole or not model._has_parts or isinstance(targets, str) or count > _MAX_CENTRES
    if is_needed or not _works_nearby(settings.method):
        return 0.0
    if not model._form.is_indexed:
        return model.n_variables * _INDEX_SECONDS
    return model.n_variables * _MODEL_SECONDS if observed else 0.0


def _works_nearby(method: str) -> bool:
    return method == "auto" or METHODS[method].works_nearby


# -- methods ---------------------------------------------------------------------------------


def choose(query: Query, part: Numbering | None = None) -> Method:
    """Return the proposal of the requested method, or the best proposal if the method is "auto".

    Errors carry a partial estimate, at worst a vacuous one. `part` has the positions of the query's variables in the
    model.
    """
    with carry_estimate(query, part=part):
        if query.method == "auto":
            return _within_limits(_ask(query))
        asked = query.space.methods[query.method]
        if query.proof and not asked.has_proof:
            others = " or ".join(repr(name) for name, other in query.space.methods.items() if other.has_proof)
            remedy = f"Leave proof= and verify= out, or pass method={others}."
            raise CertificateError({query.method: "no proof of this method's answers can be written yet."}, remedy)
        method = asked.propose(query, Choice(by_name=True))
        if method is None:
            raise CertificateError({query.method: "the method has no plan for this query."}, asked.remedy)
        return _within_limits(method)


def _within_limits(method: Method) -> Method:
    """Return the method, or raise `BudgetError` if it needs more updates than the budget allows.

    Without budget and time limit, raise it also if the method needs more than `MOST_SECONDS`.
    """
    query, plan, needed = method.query, method.plan, method.needed_updates()
    if query.budget is not None and needed > query.budget:
        remedy = "Raise budget=, or ask for a larger tolerance, a lower confidence or fewer targets."
        raise BudgetError("This estimate", needed, query.budget, "Gibbs updates", remedy, plan)
    seconds = plan.seconds * (needed / plan.updates if plan.updates else 1.0)
    if query.budget is None and query.time_limit is None and seconds > MOST_SECONDS:
        remedy = (
            "Ask for a larger tolerance, a lower confidence or fewer targets; or allow it with time_limit= (seconds "
            "after which the intervals reached so far are returned) or with budget= (Gibbs updates)."
        )
        raise BudgetError("This estimate", seconds, MOST_SECONDS, "seconds", remedy, plan)
    log.info("method %s: %s", method.name, plan.reason)
    return method


def _asking_order(query: Query, methods: list[type[Method]]) -> Iterator[tuple[type[Method], float, bool]]:
    """Yield the methods in the order in which "auto" asks them, each with two facts about asking it.

    The facts are the least seconds that planning takes, and whether only a fast answer is wanted. Methods with fast
    answers come first, ordered by these seconds; then follow all methods, in the order of registration.
    """
    for quickly in (True, False):
        costs = [(method.asking_seconds(query, quickly), method) for method in methods]
        turns = [(method, seconds, quickly) for seconds, method in costs if seconds is not None]
        yield from sorted(turns, key=lambda turn: turn[1]) if quickly else turns


def _ask(query: Query, only_quickly: bool = False) -> Method:
    """Ask the methods for proposals and return the best one; a fast answer ends the search.

    Each method sees the best proposal so far, and returns its own proposal only if that is better. A method is not
    asked if planning with it takes longer than running the best proposal, provided that this one is certain and reaches
    the tolerance. With `only_quickly`, `_NoneQuick` is raised rather than asking methods that may plan for long.
    """
    choice, is_late, methods = Choice(), False, query.space.candidates(query)
    last = methods[-1]
    for method, seconds, quickly in _asking_order(query, methods):
        best = None if choice.best is None else choice.best.plan
        if best and best.is_certain and best.reaches_tolerance and best.seconds <= max(seconds, QUICK_SECONDS):
            continue
        if only_quickly and not quickly:
            raise _NoneQuick
        told = Choice(quickly=True) if quickly else choice
        try:
            with current_deadline().part(method.share) if quickly else _time_for(method, last, query, choice):
                proposal = method.propose(query, told)
        except CertificateError as refusal:
            told.refusals[method.name] = refusal.reasons.get(method.name, refusal.message)
        except BudgetError as refusal:
            told.refusals[method.name] = refusal.message
            is_late |= isinstance(refusal, LateError) and not quickly
        else:
            if quickly and proposal is not None:
                return proposal
            choice.best = proposal or choice.best
            choice.can_sample |= proposal is not None and proposal.plan.scan is not None
    for name, reason in choice.refusals.items():
        log.info("method %s has no plan: %s", name, reason)
    found = choice.best or choice.fallback
    if found is not None and found.plan.reaches_tolerance:
        return found
    known = _found_so_far(query, choice)
    if found is None:
        result = intersect(nothing_known(query), known)
        raise CertificateError(choice.refusals, (_MORE_TIME if is_late else "") + last.remedy, result=result)
    found.known, found.refusals = known, choice.refusals
    return found


def _time_for(method: type[Method], last: type[Method], query: Query, choice: Choice) -> Deadline:
    """Return the time limit for planning with one method.

    The last method gets more time if no other method has a proposal.
    """
    whole = current_deadline()
    if method is not last or choice.best is not None or query.time_limit in (None, math.inf):
        return whole.part(method.share if method is not last else 1.0)
    seconds = _SHARE_OF_LAST * min(query.time_limit or 0.0, MOST_SECONDS)
    return Deadline(max(whole.left, seconds), "A stage of planning", work=max(whole.work_left, seconds))


def _found_so_far(query: Query, choice: Choice) -> list[Estimate]:
    """Return the certain intervals found by methods that miss the tolerance, narrowest first."""
    seconds = _SHARE_TO_FINISH * min(PLANNING, query.time_limit or PLANNING)
    known: list[Estimate] = []
    for find in choice.so_far:
        with Deadline(seconds, work=seconds / 2), suppress(LateError):
            if (estimate := find()) is not None:
                known.append(estimate)
    known.sort(key=lambda estimate: float(estimate.half_width.sum()))
    return known[:1] if query.proof else known  # a proof is about the intervals of one method


# -- balls around targets --------------------------------------------------------------------


def _choose_nearby(
    model: Model, targets: Any, observed: dict[Hashable, Any], settings: Settings, quickly: bool = False
) -> tuple[Method, Numbering]:
    """Choose a method that reads only a ball around the targets; return it with the positions of the ball's variables.

    The radius is doubled until the method uses no neighbour outside of the ball. With `quickly`, `_NoneQuick` is raised
    unless a fast method has a certain answer on the first ball.
    """
    if not _works_nearby(settings.method):
        names = ", ".join(repr(name) for name, method in METHODS.items() if method.works_nearby)
        requirement = f"one of 'auto', {names} for a lazy model"
        raise ArgumentError("method", requirement, settings.method)
    model._refuse_forbidden(observed)
    centres, parts = _read_centres(model, targets), model._parts()
    radius = PartSource.first_radius if parts is None else parts.first_radius  # in edges
    radius *= 1 if settings.method == "auto" else METHODS[settings.method].reach
    while True:
        query, place = _query_near(model, centres, radius, targets, observed, settings)
        with carry_estimate(query, part=place):
            if not quickly:
                current_deadline().charge(place.size * _BALL_SECONDS, "looking around the targets")
            method = _ask(query, only_quickly=True) if quickly else choose(query)
        if not query.reaches_border(method.updated()):
            _ = query.space.start  # raises if the evidence is impossible
            return method, place
        if quickly:
            raise _NoneQuick
        radius *= 2


def _query_near(
    model: Model, centres: NDArray[np.int64], radius: int, targets: Any, observed: dict[Any, int], settings: Settings
) -> tuple[Query, Numbering]:
    """Return the query on a ball around the targets, and the ball's positions in the conditioned model."""
    ball = model._near(centres, radius)
    log.info("reading a ball of radius %d around the targets: %d variables", radius, ball.model.n_variables)
    known = np.fromiter(observed, dtype=np.int64, count=len(observed))
    near = {label: observed[label] for label in known[ball.numbering.holds(known)].tolist()}
    query = make_query(ball.model, targets, near, settings)
    labels = np.asarray(query.model.labels)
    query = replace(query, border=~ball.inner[ball.numbering.own(labels)])
    n = model.n_variables - len(known)
    return query, Numbering(n, labels - np.searchsorted(np.sort(known), labels))


def _read_centres(model: Model, targets: Any) -> NDArray[np.int64]:
    """Return the positions of the variables that the targets depend on."""
    if isinstance(targets, str):
        raise ArgumentError("targets", "labels of some variables (the model is lazy)", targets)
    items = list(targets) if check.is_several(targets) else [targets]
    if not items:
        raise ArgumentError("targets", "at least one target", items)
    labels = dict.fromkeys(label for item in items for label in variables_of(item))
    return check.positions(list(labels), model.labels, None, "targets")


# -- relevant variables ----------------------------------------------------------------------


def keep_relevant(query: Query) -> tuple[Query, Numbering | None]:
    """Restrict a query to the variables that are relevant to its targets; return it with their positions (None: all).

    All variables of a large model are kept: methods then read a ball around the targets, which takes less time than a
    search for the relevant variables.
    """
    model = query.model
    if not query.space.can_shrink:
        return query, query.space.place
    is_quick = model.n_variables * _MODEL_SECONDS < _MAX_SECONDS_TO_READ
    return restrict_query(query) if is_quick or not (model._has_parts and model._form.is_indexed) else (query, None)


def restrict_query(query: Query) -> tuple[Query, Numbering | None]:
    """Restrict a query to its relevant variables as `keep_relevant` does, but in models of any size."""
    space, targets = query.space, query.objective.positions
    n = space.model.n_variables
    if len(targets) == n:
        return query, None
    rest = space.derive(targets.tobytes(), lambda: _make_relevant(space, targets))
    part = rest.place
    if part is None:
        return query, None
    words = f"{part.size} of {n} variables {'matters' if part.size == 1 else 'matter'} to the targets"
    log.info("%s", words)
    questions = [replace(question, positions=part.own(question.positions)) for question in query.questions]
    return replace(query, space=rest, questions=questions, relevance=words), part


def _make_relevant(space: Workspace, targets: NDArray[np.int64]) -> Workspace:
    """Return the workspace (model with cached results) of the variables relevant to the targets.

    The given workspace is returned if all variables are relevant.
    """
    left, kept, variables = find_relevant(space.model._form, targets)
    near = kept[variables]
    if not near.all() and _is_possible(left.restrict(~near), space):
        left, variables = left.restrict(near), kept
    if variables.all():
        return space
    positions = np.flatnonzero(variables)
    model = left.to_model(space.model._labels_at(positions))._name_states(space.model._names_of(positions))
    return Workspace(model, space.is_given, Numbering(len(variables), positions))


def find_relevant(form: Form, targets: NDArray[np.int64]) -> tuple[Form, NDArray[np.bool_], NDArray[np.bool_]]:
    """Find the variables that are relevant to the targets: not barren, and in a component with a target.

    Return the form (lowered model) without its barren variables, a mask of the relevant variables, and a mask of the
    variables that are not barren. A variable is barren if the sum over its states does not depend on the other
    variables.
    """
    wanted = np.zeros(form.n_variables, dtype=bool)
    wanted[targets] = True
    left, variables = form.sum_out(wanted)
    group = left.components()
    kept = variables.copy()
    kept[variables] = np.isin(group, group[wanted[variables]])
    return left, kept, variables


def _is_possible(apart: Form, space: Workspace) -> bool:
    """Return whether the variables independent of the targets have an allowed joint state, so that they can be dropped.

    Raise an error if no state is allowed (the evidence is impossible); return False if the search exceeds its budget.
    """
    try:
        state = allowed_state(apart)
    except BudgetError:
        return False
    if state is None:
        raise space.impossible()
    return True
