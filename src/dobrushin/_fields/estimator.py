"""What `estimate`, `plan` and `estimate_many` ask of fields: ask the methods, let the best one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dobrushin._estimate import method as methods
from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.choice import within_limits
from dobrushin._estimate.method import Choice, Method, Plan
from dobrushin._estimate.origin import Asked
from dobrushin._estimate.query import Settings
from dobrushin._estimate.settings import check_settings
from dobrushin._fields.anchor import REMEDY
from dobrushin._fields.model import GaussianField
from dobrushin._fields.query import KIND, FieldQuery, read_field_query, refuse_observed
from dobrushin._fields.sampling import Sampling
from dobrushin._fields.solve import Exact, Local
from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.deadline import planning_deadline
from dobrushin._shared.families import version_of
from dobrushin._shared.running import Running
from dobrushin.errors import ArgumentError, CertificateError

# In the order in which "auto" asks them. Solving is so much cheaper than sampling that the first proposal is taken.
FIELD_METHODS: dict[str, type[Method]] = {method.name: method for method in (Exact, Local, Sampling)}
methods.VERSIONS.update({(KIND, name): method for name, method in FIELD_METHODS.items()})
# Fields above this size are not factorised as a whole where a region around each target may do, unless so many targets
# are means, which the whole gives at once, that it is cheaper: one or more for so many variables.
_WHOLE, _MANY_MEANS = 20_000, 100


@version_of("read_settings", GaussianField)
def read_field_settings(model: GaussianField, *settings: Any) -> Settings:
    """`read_settings` of a field: the tolerance is absolute."""
    del model
    return check_settings(FIELD_METHODS, _read_tolerance, *settings)


def _read_tolerance(value: Any, argument: str) -> float:
    tolerance = check.positive(value, argument)
    if not 1.0 / check.LARGEST <= tolerance <= check.LARGEST:  # its square has to be a number
        raise ArgumentError(argument, f"a number from {1.0 / check.LARGEST:g} to {check.LARGEST:g}", value)
    return tolerance


@version_of("plan_query", GaussianField)
def plan_field_query(model: GaussianField, targets: Any, evidence: Any, settings: Settings) -> Plan:
    """`plan_query` of a field."""
    given, part = _condition(model, targets, evidence)
    plan = _choose(given, targets, settings, None).plan
    return plan if part is None else plan.lift(part)


@version_of("answer_query", GaussianField)
def answer_field_query(
    model: GaussianField, targets: Any, evidence: Any, settings: Settings, sequence: np.random.SeedSequence,
    running: Running, from_plan: Callable[..., Any] | None = None,
) -> Estimate:  # fmt: skip
    """`answer_query` of a field: labels ask for means."""
    del from_plan
    given, part = _condition(model, targets, evidence)
    asked = Asked(model, dict(evidence or {}))

    def adapt(estimate: Estimate) -> Estimate:
        estimate = replace(estimate, asked=asked)
        if estimate._origin is not None:
            estimate = replace(estimate, _origin=replace(estimate._origin, asked=asked))
        return estimate if part is None else estimate.lift(part)

    with methods.adapt_errors(adapt, part):
        return adapt(methods.answer(_choose(given, targets, settings, running), sequence, running))


def _condition(
    model: GaussianField, targets: Any, evidence: Mapping[Any, float] | None
) -> tuple[GaussianField, Numbering | None]:
    """The field given values of some variables, and where the others are; None for all of them."""
    if not evidence:
        return model, None
    given = model._condition(evidence)
    refuse_observed(model, targets, evidence)
    known = [model.index(label) for label in evidence]
    return given, Numbering(model.n_variables, np.setdiff1d(np.arange(model.n_variables), known))


def _choose(model: GaussianField, targets: Any, settings: Settings, running: Running | None) -> Method:
    """The method that was asked for, or the first that has a proposal; `running` is how it will answer, if it will."""
    with planning_deadline(settings.time, running is not None and running.checkpoint is not None):
        if settings.proof:
            model = model._form.to_plain().to_model(model.labels)
        query = read_field_query(model, targets, settings)
        with methods.carry_estimate(query):  # type: ignore[arg-type]
            method = _ask(query)
            # Means stop early: with a budget they are drawn until it is spent.
            needed = 0 if settings.budget is not None and method.plan.stops_early else method.plan.updates
            return within_limits(method, needed)


def _ask(query: FieldQuery) -> Method:
    asked = [FIELD_METHODS[query.method]] if query.method != "auto" else list(FIELD_METHODS.values())
    n, counted = query.model.n_variables, any(question.is_counted for question in query.questions)
    if query.proof:
        if query.method not in ("auto", Sampling.name):
            raise ArgumentError("method", "'dobrushin' for a proof about a field", query.method)
        asked = [Sampling]
    elif query.method == "auto" and n > _WHOLE and (counted or n > _MANY_MEANS * len(query.questions)):
        asked = [Local, Exact, Sampling]
    refusals: dict[str, str] = {}
    for method in asked:
        try:
            proposal = method.propose(query, Choice(by_name=len(asked) == 1))  # type: ignore[arg-type]
        except CertificateError as refusal:
            refusals[method.name] = refusal.reasons.get(method.name, next(iter(refusal.reasons.values())))
        else:
            if proposal is not None:
                return proposal
    raise CertificateError(refusals, REMEDY)
