"""`estimate` and `plan` for fields: read the query, ask the methods, let the best one answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from dobrushin._estimate import method as methods
from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import Choice, Method, Plan
from dobrushin._estimate.origin import Asked
from dobrushin._fields.anchor import REMEDY
from dobrushin._fields.model import GaussianField
from dobrushin._fields.query import KIND, FieldQuery, read_field_query
from dobrushin._fields.sampling import Sampling
from dobrushin._fields.solve import Exact, Local
from dobrushin._shared import validate as check
from dobrushin._shared.families import version_of
from dobrushin._shared.log import log
from dobrushin._shared.memory_guard import guard_memory
from dobrushin._shared.running import MOST_SECONDS, read_running
from dobrushin.errors import ArgumentError, BudgetError, CertificateError

# In the order in which "auto" asks them. Solving is so much cheaper than sampling that the first proposal is taken.
FIELD_METHODS: dict[str, type[Method]] = {method.name: method for method in (Exact, Local, Sampling)}
methods.VERSIONS.update({(KIND, name): method for name, method in FIELD_METHODS.items()})
# Fields above this size are not factorised as a whole where a region may do.
_WHOLE = 20_000


@version_of("estimate", GaussianField)
@guard_memory
def estimate_field(
    model: GaussianField,
    targets: Any,
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, float] | None = None,
    seed: int | np.random.SeedSequence | None = None,
    method: str = "auto",
    budget: float | None = None,
    memory_limit: float | str | None = None,
    backend: str = "auto",
    executor: Executor | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    time: float | None = None,
    proof: str | os.PathLike[str] | None = None,
    verify: bool = False,
) -> Estimate:
    """`estimate` of a field: labels ask for means, and the tolerance is absolute."""
    del memory_limit
    if proof is not None or verify:
        raise ArgumentError("estimate", "proof", "None for a field: proofs are of discrete models", proof)
    if backend == "cuda":
        raise ArgumentError("estimate", "backend", "'cpu' for a field", backend)
    del progress  # `watched` reads it
    running, sequence = read_running(executor, backend, checkpoint, seed, time, "estimate")
    query = _read(model, targets, tolerance, confidence, evidence, method, budget, time)
    return replace(methods.answer(_choose(query), sequence, running), asked=Asked(model, {}))


@version_of("plan", GaussianField)
@guard_memory
def plan_field(
    model: GaussianField,
    targets: Any,
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, float] | None = None,
    method: str = "auto",
    budget: float | None = None,
    memory_limit: float | str | None = None,
) -> Plan:
    """`plan` of a field."""
    del memory_limit
    return _choose(_read(model, targets, tolerance, confidence, evidence, method, budget, np.inf)).plan


def _read(
    model: GaussianField, targets: Any, tolerance: Any, confidence: Any, evidence: Any, method: Any, budget: Any,
    time: Any,
) -> FieldQuery:  # fmt: skip
    if evidence:
        raise ArgumentError("estimate", "evidence", "None for a field (use field.condition)", evidence)
    check.choice(method, ("auto", *FIELD_METHODS), "estimate", "method")
    settings = {
        "tolerance": check.positive(tolerance, "estimate", "tolerance"),
        "confidence": check.fraction(confidence, "estimate", "confidence"),
        "method": method,
        "budget": None if budget is None else check.positive(budget, "estimate", "budget"),
        "time": time,
    }
    if 1.0 - settings["confidence"] < 1e-12:
        raise ArgumentError("estimate", "confidence", "at most 1 - 1e-12", confidence)
    return read_field_query(model, targets, settings)


def _choose(query: FieldQuery) -> Method:
    """The method that was asked for, or the first that has a proposal."""
    with methods.carry_estimate(query):  # type: ignore[arg-type]
        proposal = _ask(query)
        updates = proposal.plan.updates if query.budget is not None else 0
        if query.budget is not None and updates > query.budget and not proposal.plan.stops_early:
            remedy = "Allow more, or ask for less: a larger tolerance, a lower confidence, fewer targets."
            raise BudgetError("This estimate", updates, query.budget, "Gibbs updates", remedy, proposal.plan)
        if query.budget is None and query.time is None and proposal.plan.seconds > MOST_SECONDS:
            remedy = (
                "Ask for a larger tolerance, a lower confidence or fewer targets; or allow it with time= or budget=."
            )
            raise BudgetError("This estimate", proposal.plan.seconds, MOST_SECONDS, "seconds", remedy, proposal.plan)
    log.info("method %s: %s", proposal.name, proposal.plan.reason)
    return proposal


def _ask(query: FieldQuery) -> Method:
    asked = [FIELD_METHODS[query.method]] if query.method != "auto" else list(FIELD_METHODS.values())
    if query.method == "auto" and query.model.n_variables > _WHOLE:
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
