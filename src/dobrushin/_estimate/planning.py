"""Choosing how to answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Any

from dobrushin._estimate.coalescence import PATIENCE, plan_coalescence
from dobrushin._estimate.dobrushin import plan_dobrushin, why_not_dobrushin
from dobrushin._estimate.exact_plan import SECONDS_PER_VARIABLE, plan_exact
from dobrushin._estimate.nearby import in_the_whole, plan_locally
from dobrushin._estimate.query import Plan, Query, chains_for_counts, is_counted, read_query
from dobrushin._estimate.uncertified import plan_uncertified
from dobrushin._models import Ising, Model, Potts
from dobrushin._models.local import LocalArrays, LocalModel
from dobrushin.errors import BudgetError, CertificateError

# An exact answer that is expected within this time is taken even where sampling would be faster still.
_QUICK = 0.05
# Where Dobrushin's bound says nothing, an exact answer that is expected within this time is not beaten by simulation.
_SOON = 2.0
# Models of so many variables are not made again for evidence, when so few targets are asked for.
_LARGE, _FEW = 20_000, 1000


def plan(
    model: Model | LocalModel,
    targets: Any,
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, int] | None = None,
    method: str = "auto",
    budget: float | None = None,
) -> Plan:
    """Say what `estimate` would do with the same arguments, without doing it.

    Parameters
    ----------
    model, targets, tolerance, confidence, evidence, method, budget
        As for `estimate`.

    Returns
    -------
    Plan

    Raises
    ------
    CertificateError
        When there is no way to a guarantee.
    BudgetError
        When the plan needs more updates than the budget; it carries the plan.

    Notes
    -----
    The length T of the scan and the number N of chains are those with the smallest N T for which the bias bound of the
    scan and the half-width of the interval together are at most the tolerance. Scans are backward greedy, so that
    shorter ones are ends of longer ones and all lengths are compared in one go.

    Examples
    --------
    >>> import dobrushin as db
    >>> made = db.plan(db.Ising.grid(300, 300, couplings=0.2), targets=[0, 1], tolerance=0.02)
    >>> made.method, len(made.scan), made.chains
    ('dobrushin', 208, 6784)
    """
    query, made = planned(model, targets, tolerance, confidence, evidence, method, budget)
    return in_the_whole(query, made, evidence)


def planned(
    model: Model | LocalModel, targets: Any, tolerance: Any, confidence: Any, evidence: Any, method: Any, budget: Any
) -> tuple[Query, Plan]:
    """The query as it was understood, and its plan."""
    if (part := nearby(model, targets, evidence, method)) is not None:
        return plan_locally(part, targets, (tolerance, confidence, method, budget), evidence, make_plan)
    query = read_query(model, targets, tolerance, confidence, evidence, method, budget)
    return query, make_plan(query)


def nearby(model: Any, targets: Any, evidence: Any, method: Any) -> LocalModel | None:
    """A large model as one of which only what is near the targets is looked at; None where it is needed as a whole.

    Evidence changes a model only where it is. Making a new one of all the rest would take longer than the answer.
    """
    if isinstance(model, LocalModel):
        return model
    large = isinstance(model, Ising | Potts) and model.n_variables >= _LARGE and isinstance(model.labels, range)
    if not large or not evidence or method in ("exact", "uncertified") or isinstance(targets, str):
        return None
    if isinstance(targets, Sized) and len(targets) > _FEW:
        return None
    return LocalArrays.of(model)


def make_plan(query: Query) -> Plan:
    """The plan of a query."""
    made = _choose(query)
    needed = made.updates
    counted = [is_counted(question) for question in query.questions]
    if made.scan is not None and not all(counted):  # means may stop early, counts do not
        needed = len(made.scan) * (chains_for_counts(query, made.monte_carlo) if any(counted) else 64)
    if query.budget is not None and needed > query.budget:
        remedy = "Allow more, or ask for less: a larger tolerance, a lower confidence, fewer targets."
        raise BudgetError("This estimate", needed, query.budget, "Gibbs updates", remedy, made)
    return made


def _choose(query: Query) -> Plan:
    if query.method == "uncertified":
        return plan_uncertified(query)
    if query.method == "exact":
        return plan_exact(query, "asked for")
    if query.method == "coalescence":
        return _simulated(query, PATIENCE, "asked for", {})
    reasons: dict[str, str] = {}
    sampled = plan_dobrushin(query)
    if sampled is None:
        reasons["dobrushin"] = why_not_dobrushin(query)
    if query.method == "dobrushin":
        if sampled is None:
            raise CertificateError(reasons, _REMEDY)
        return sampled
    # Looking for a clique tree costs time by itself: not worth it where sampling is done sooner.
    worth = math.inf if sampled is None else max(sampled.seconds, _QUICK)
    exact = None
    if not query.local and query.space.model.n_variables * SECONDS_PER_VARIABLE < worth:
        try:
            exact = plan_exact(
                query, "Dobrushin's bound says nothing" if sampled is None else "no dearer than sampling"
            )
        except (BudgetError, CertificateError) as refusal:
            reasons["exact"] = refusal.message
    if sampled is not None:
        return sampled if exact is None or exact.seconds >= worth else exact
    if exact is not None and exact.seconds <= _SOON:
        return exact
    try:
        patience = PATIENCE if exact is None else min(PATIENCE, exact.seconds)
        simulated = _simulated(query, patience, "Dobrushin's bound says nothing", reasons)
    except CertificateError:
        if exact is None:
            raise
        return exact
    # A pilot that left something open promises nothing, an exact answer does.
    return simulated if exact is None or simulated.reaches_tolerance else exact


def _simulated(query: Query, patience: float, why: str, reasons: dict[str, str]) -> Plan:
    made = plan_coalescence(query, patience, why)
    if made is None:
        within = "the budget" if query.budget is not None else f"about {patience:.3g} s"
        words = f"no target settles in simulations that stay within {within}."
        raise CertificateError({**reasons, "coalescence": words}, _REMEDY)
    return made


_REMEDY = (
    "What may help: a larger tolerance or fewer targets; fixing strongly coupled variables (evidence=); joint "
    "variables (model.merge with suggest_groups). For an estimate without any guarantee pass method='uncertified'."
)
