"""Which method answers a query: the one that was asked for, or the best of those that "auto" asks."""

from __future__ import annotations

from dobrushin._estimate.method import Choice, Method, carry_estimate
from dobrushin._estimate.query import Query
from dobrushin._shared.call import guarded
from dobrushin._shared.deadline import current
from dobrushin._shared.log import log
from dobrushin._shared.running import MOST_SECONDS
from dobrushin.errors import BudgetError, CertificateError


def choose(query: Query) -> Method:
    """The method that was asked for, or the one that "auto" likes best: its proposal for the query.

    What goes wrong carries an estimate, at worst one that says nothing.
    """
    with carry_estimate(query):
        return guarded(_choose, query)


def _choose(query: Query) -> Method:
    if query.method == "auto":
        method: Method | None = _ask_all(query)
    else:
        asked = query.space.methods[query.method]
        method = asked.propose(query, Choice(by_name=True))
        if method is None:
            raise CertificateError({query.method: "it has no proposal."}, asked.remedy)
    assert method is not None
    return within_limits(method, method.needed_updates())


def within_limits(method: Method, needed: int) -> Method:
    """The method, if its needed updates are what the query allows."""
    query = method.query
    if query.budget is not None and needed > query.budget:
        remedy = "Allow more, or ask for less: a larger tolerance, a lower confidence, fewer targets."
        raise BudgetError("This estimate", needed, query.budget, "Gibbs updates", remedy, method.plan)
    if query.budget is None and query.time is None:
        _refuse_long(method, needed)
    log.info("method %s: %s", method.name, method.plan.reason)
    return method


def _refuse_long(method: Method, needed: int) -> None:
    """`BudgetError` for work that takes longer than anyone waits and that nobody has allowed."""
    plan = method.plan
    seconds = plan.seconds * (needed / plan.updates if plan.updates else 1.0)
    if seconds > MOST_SECONDS:
        remedy = (
            "Ask for a larger tolerance, a lower confidence or fewer targets; or allow it with time= (seconds after "
            "which the intervals reached so far are returned) or with budget= (Gibbs updates)."
        )
        raise BudgetError("This estimate", seconds, MOST_SECONDS, "seconds", remedy, plan)


def ask_at_once(query: Query) -> Method | None:
    """The first proposal that those before it could not be better than, if there is one."""
    for method in query.space.candidates(query):
        with current().part(method.share):
            proposal: Method | None = method.propose_at_once(query)
        if proposal is not None:
            return proposal
    return None


def _ask_all(query: Query) -> Method:
    """Each method sees the best proposal so far, and returns its own if that is better."""
    choice = Choice(best=ask_at_once(query))
    asked: list[type[Method]] = query.space.candidates(query)
    if choice.best is not None:
        asked = asked[asked.index(type(choice.best)) + 1 :]  # those before it would not be better
    for method in asked:
        try:
            with current().part(method.share if method is not asked[-1] else 1.0):
                proposal = method.propose(query, choice)
        except CertificateError as refusal:
            choice.refusals[method.name] = refusal.reasons.get(method.name, refusal.message)
        except BudgetError as refusal:
            choice.refusals[method.name] = refusal.message
        else:
            choice.best = proposal or choice.best
            choice.can_sample |= proposal is not None and proposal.plan.scan is not None
    for name, reason in choice.refusals.items():
        log.info("method %s is out: %s", name, reason)
    if choice.best is None:
        raise CertificateError(choice.refusals, asked[-1].remedy)
    return choice.best
