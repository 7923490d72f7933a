"""Exact answers: sums over all states along a junction tree, for models of small treewidth. [trusted]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.local import count_laws
from dobrushin._estimate.method import QUICK_SECONDS, AnswerRows, Choice, Method, Plan, allowed_seconds, interrupted
from dobrushin._estimate.query import Query, Settings, Workspace, workspace
from dobrushin._estimate.questions import Shortfall, TargetQuestion
from dobrushin._estimate.regions import SECONDS_PER_REGION
from dobrushin._exact.arithmetic import NoAllowedState, SumResult, Working
from dobrushin._exact.cutset import CutPlan, plan_within
from dobrushin._exact.engine import SumPlan, sum_memory
from dobrushin._exact.sums import LogPartition, plan_partition
from dobrushin._models import Model
from dobrushin._shared.call import Deadline, LateError, current_deadline
from dobrushin._shared.environment import log
from dobrushin._shared.memory import bytes_text, can_have_more
from dobrushin._shared.memory import memory_limit as read_memory
from dobrushin._shared.running import Running
from dobrushin._shared.text import counted
from dobrushin.errors import BudgetError

# Seconds per variable to find an elimination order.
SECONDS_PER_VARIABLE = 2.4e-5
# In models with more variables, a first question about one variable gets its own plan.
_LARGE_VARIABLES = 2**16
# The marginals of all variables are kept for later questions if summing them takes at most this number of seconds.
_KEPT_SECONDS = 0.5
# Seconds that sums with a cutset may take where the call has no time limit.
_PATIENCE = 60.0
# log P(evidence) may take this number of seconds, or this share of the expected seconds of the answer if that is more.
_SECONDS_TO_WEIGH, _SHARE_TO_WEIGH = 0.1, 0.5


class Exact(Method):
    """The method "exact": sums over all states along a junction tree.

    One plan serves all single variables; each question about several variables has a plan of its own.
    """

    name: ClassVar[str] = "exact"
    is_certain: ClassVar[bool] = True
    share: ClassVar[float] = 0.8

    def __init__(self, query: Query, plan: Plan, sum_plans: list[SumPlan]) -> None:
        super().__init__(query, plan)
        self.sum_plans = sum_plans

    @classmethod
    def asking_seconds(cls, query: Query, quickly: bool) -> float | None:
        seconds = _search_seconds(query)
        is_quick = seconds < min(QUICK_SECONDS, SECONDS_PER_REGION * count_laws(query))  # quicker than local sums
        return None if query.is_part or (quickly and not is_quick) else seconds

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        if choice.by_name:
            return cls._propose(query, True, "asked for")
        best = choice.best
        if best is None and not choice.quickly:
            return cls._propose(query, False, "Dobrushin's bound is vacuous")
        # An answer within `QUICK_SECONDS` is preferred even if sampling would be faster.
        worth = QUICK_SECONDS if best is None else max(best.plan.seconds, QUICK_SECONDS)
        if _search_seconds(query) >= worth:
            return best
        own = cls._propose(query, False, "no more work than sampling")
        return own if own.plan.seconds < worth else best

    @classmethod
    def _propose(cls, query: Query, by_name: bool, why: str) -> Exact:
        search = _search_seconds(query)
        if not by_name and search > 2.0 * current_deadline().work_left:
            # Half of the planning time may be spent on expected work; the next method makes better use of it.
            raise cls.refuse(
                f"the search for an elimination order would take {search:.2g} s, longer than planning may take."
            )
        try:
            plans = [_plan_for(query, question) for question in query.questions]
        except BudgetError as refusal:
            if by_name or refusal.unit != "bytes":
                raise
            more, all_bytes = bytes_text(refusal.required - refusal.limit), bytes_text(refusal.required)
            raised = ": raise 'memory_limit' (--memory-limit on the command line)"
            advice = raised if can_have_more(refusal.required) else ""
            raise cls.refuse(f"sums would take {all_bytes}, {more} more than is allowed{advice}.") from None
        distinct = list({id(plan): plan for plan in plans}.values())
        seconds = sum(plan.seconds_on(query.backend) for plan in distinct)  # the search for an order is done
        cut = [plan for plan in distinct if isinstance(plan, CutPlan)]
        if cut and not by_name and seconds > allowed_seconds(query, _PATIENCE):
            whole = max(plan.whole_bytes for plan in cut)
            raise cls.refuse(
                f"sums would take {bytes_text(whole)}, or {seconds:.2g} s within the memory limit: raise "
                "'memory_limit' (--memory-limit on the command line)."
            )
        most = max(distinct, key=lambda plan: plan.bytes)
        entries = sum(plan.entries for plan in distinct)
        count = f"{entries:.0f}" if entries < 1e4 else f"{entries:.2g}"
        words = f"{why}: sums of {count} entries, width {max(plan.width for plan in distinct)}"
        words += f", with {counted(max(plan.states for plan in cut), 'state')} of a cutset in turn" if cut else ""
        words += ", on the GPU" if any(plan.on_device(query.backend) for plan in distinct) else ""
        draft = cls.draft(query, f"{words}, take {bytes_text(most.bytes)}", 0.0, seconds=seconds)
        return cls(query, draft, plans)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """Return the sums, with intervals for their rounding errors.

        Raise `CertificateError`, with the intervals, if rounding errors exceed the tolerance.
        """
        rows, worst = [], 0.0
        working = Working()
        for question, plan in zip(self.query.questions, self.sum_plans, strict=True):
            sums = self._sums(plan, working)
            places = {group: k for k, group in enumerate(plan.groups)}
            asked = [tuple(question.positions.tolist())]
            if not question.needs_joint_law:
                asked = [(i,) for i in question.positions.tolist()]
            probabilities = np.concatenate([sums.marginals[places[group]].ravel() for group in asked])
            error = sums.relative_error(self.query.space.rounding)
            worst = max(worst, error)
            value, bias = question.exact(probabilities, error)
            bias = bias + sums.absolute * len(probabilities) * max(1.0, *map(abs, question.bounds))
            rows.append(AnswerRows.within(question, value, value, value, bias))
        words = (f"the sums over all states were made in floating point, good to {worst:.1g} (included)",)
        estimate = self.assemble(rows, 1.0, words)
        if not estimate.half_width.max() <= self.query.tolerance:
            reason = (
                f"rounding errors of the sums reach {estimate.half_width.max():.3g}, above the tolerance "
                f"{self.query.tolerance:.3g}."
            )
            raise self.too_wide(replace(estimate, stopped_by=Shortfall.ROUNDING), reason, "")
        return estimate

    def _sums(self, plan: SumPlan, working: Working) -> SumResult:
        """Run a plan and return its sums; the marginals of all single variables are computed once per model."""
        space = self.query.space
        of_all = plan is space.sum_plans.get(())
        if of_all and space.sums is not None:
            return space.sums
        tables, limit = space.model._form.tables(), _limit(self.query)
        try:
            sums = plan.run(tables, working=working, limit=limit, backend=self.query.backend)
        except NoAllowedState:
            raise space.impossible() from None
        if of_all:
            space.sums = sums
        return sums

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "The probabilities were added up over all states of the model, in an order that makes this affordable. No "
            "chance is involved.",
            "Numbers in a computer are rounded. The intervals include a bound on the rounding error, at most "
            f"{estimate._bias_text}.",
        ]


def _limit(query: Query) -> float:
    return sum_memory(query.memory_limit, query.backend)


def _plan_for(query: Query, question: TargetQuestion) -> SumPlan:
    """Return the plan of sums for a question; raise `BudgetError` or `CertificateError` if it is too large."""
    space, positions = query.space, question.positions.tolist()
    if question.needs_joint_law:
        Exact.refuse_many_states(query, question)
        if len(positions) > 1:
            return known_plan(space, _limit(query), tuple(positions))
    if _is_alone(query, question):
        return known_plan(space, _limit(query), tuple(positions))
    plan = known_plan(space, _limit(query))
    rebuilt = space.model.n_variables * SECONDS_PER_VARIABLE  # seconds to plan for these variables alone
    if (
        plan.seconds <= max(_KEPT_SECONDS, rebuilt)
        or 2 * len(positions) > space.model.n_variables
        or space.sums is not None
    ):
        return plan
    return plan.asking(space.model._form.tables(), [(i,) for i in positions])


def _search_seconds(query: Query) -> float:
    """Return the expected seconds to find an elimination order."""
    return query.model.n_variables * SECONDS_PER_VARIABLE * (0.5 if _is_alone(query, query.questions[0]) else 1.0)


def _is_alone(query: Query, question: TargetQuestion) -> bool:
    """Return whether this is a query about one variable only, and the first query about a large model."""
    known = query.space.sum_plans
    others = known.keys() - {tuple(question.positions.tolist())}
    return (
        query.model.n_variables > _LARGE_VARIABLES
        and len(query.questions) == len(question.positions) == 1
        and not others
    )


def known_plan(space: Workspace, limit: float, group: tuple[int, ...] = ()) -> SumPlan:
    """Return the plan of sums for the joint law of a group, or (without a group) for all single variables.

    Plans are kept: they are searched for again only with a larger memory limit.
    """
    known = space.sum_plans.get(group)
    is_stale = limit > known[0] if isinstance(known, tuple) else known is not None and known.bytes > limit
    if known is None or is_stale or (isinstance(known, CutPlan) and known.whole_bytes <= limit):
        tables = space.model._form.tables()
        groups = [group] if group else [(v,) for v in range(tables.n_variables)]
        try:
            known = plan_within(tables, groups, limit)
        except LateError:
            raise  # this refusal is not kept: another call may have more time
        except BudgetError as refusal:
            known = limit, refusal
        space.sum_plans[group] = known
    if isinstance(known, tuple):
        raise known[1]
    return known.require(limit)


# -- the probability of the evidence, a quotient of two partition functions ---------------------


def digits_of(model: Model, evidence: Mapping[Any, int]) -> dict[int, int]:
    """Return evidence by label as a dict from positions of variables to state numbers 0..k-1."""
    positions = {model.index(label): state for label, state in evidence.items()}
    return {i: model.states(i).index(state) for i, state in positions.items()}


def weigh_evidence(
    estimate: Estimate, model: Model, observed: Mapping[Any, int], settings: Settings, running: Running
) -> Estimate:
    """Add the probability of the evidence to an exact answer, if this takes little time compared with the answer.

    The evidence is given by label, with states as the model numbers them.
    """
    if estimate.plan.made_by is not Exact or not observed or not model._is_whole:
        return estimate
    allowed = max(_SECONDS_TO_WEIGH, _SHARE_TO_WEIGH * estimate.plan.seconds)
    whole = workspace(model)
    given = whole.given(observed)
    try:
        with Deadline(min(running.deadline.left, 4.0 * allowed), "P(evidence)"):
            if given.log_evidence is None:
                given.log_evidence = _log_evidence(whole, observed, allowed, settings)
    except BudgetError as refusal:
        log.info("P(evidence) was not computed: %s", refusal)
    except KeyboardInterrupt:
        raise interrupted(estimate) from None
    return replace(estimate, log_evidence=given.log_evidence)


def _log_evidence(whole: Workspace, evidence: Mapping[Any, int], allowed: float, settings: Settings) -> LogPartition:
    model, limit, working = whole.model, read_memory(settings.memory_limit), Working()

    def allow(seconds: float) -> None:
        if seconds > allowed:
            raise BudgetError("P(evidence)", seconds, allowed, "seconds", "dobrushin.exact.log_partition computes it.")

    allow(2.0 * model.n_variables * SECONDS_PER_VARIABLE)
    tables = model._form.tables()
    above = plan_partition(tables, digits_of(model, evidence), limit, working)
    allow(above.seconds)
    if whole.log_partition is None:
        below = plan_partition(tables, {}, limit, working)
        allow(above.seconds + below.seconds)
        whole.log_partition = below.run(working, limit)
    return LogPartition.ratio(above.run(working, limit), whole.log_partition)
