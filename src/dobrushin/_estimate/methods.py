"""The methods, and how "auto" chooses among them. `estimate`, `plan`, the command line, the report and the docs read
this list.
"""

from __future__ import annotations

from typing import Any

from dobrushin._estimate.coalescence import Coalescence
from dobrushin._estimate.dobrushin import Dobrushin
from dobrushin._estimate.exact import Exact
from dobrushin._estimate.method import REMEDY, Choice, Method
from dobrushin._estimate.query import Query, Settings
from dobrushin._estimate.uncertified import Uncertified
from dobrushin._shared import validate as check
from dobrushin.errors import BudgetError, CertificateError

# By name, in the order in which "auto" asks them.
METHODS: dict[str, type[Method]] = {method.name: method for method in (Dobrushin, Exact, Coalescence, Uncertified)}


def register(method: type[Method]) -> type[Method]:
    """Add a method of your own; "auto" asks it after the others."""
    METHODS[method.name] = method
    return method


def read_settings(tolerance: Any, confidence: Any, method: Any, budget: Any, function: str) -> Settings:
    """Check what does not depend on the model."""
    tolerance = check.fraction(tolerance, function, "tolerance")
    confidence = check.fraction(confidence, function, "confidence")
    check.choice(method, ("auto", *METHODS), function, "method")
    most = None if budget is None else check.positive(budget, function, "budget")
    return Settings(tolerance, confidence, method, most)


def is_certain(name: str) -> bool:
    """Whether a method leaves nothing to chance; "auto" may."""
    return name in METHODS and METHODS[name].is_certain


def choose(query: Query) -> Method:
    """The method that was asked for, or the one that "auto" likes best: its proposal for the query."""
    method = _ask_all(query) if query.method == "auto" else METHODS[query.method].propose(query, Choice(by_name=True))
    if method is None:
        raise CertificateError({query.method: "it has no proposal."}, REMEDY)
    needed = method.needed_updates()
    if query.budget is not None and needed > query.budget:
        remedy = "Allow more, or ask for less: a larger tolerance, a lower confidence, fewer targets."
        raise BudgetError("This estimate", needed, query.budget, "Gibbs updates", remedy, method.plan)
    return method


def _ask_all(query: Query) -> Method:
    """Each method sees the best proposal so far, and returns its own if that is better."""
    choice = Choice()
    for method in METHODS.values():
        if not method.in_auto:
            continue
        try:
            choice.best = method.propose(query, choice)
        except CertificateError as refusal:
            choice.refusals[method.name] = refusal.reasons.get(method.name, refusal.message)
        except BudgetError as refusal:
            choice.refusals[method.name] = refusal.message
    if choice.best is None:
        raise CertificateError(choice.refusals, REMEDY)
    return choice.best
