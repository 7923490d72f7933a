"""Probability of the evidence beside an exact answer: a quotient of two partition functions."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.exact import SECONDS_PER_VARIABLE, Exact
from dobrushin._estimate.method import interrupted
from dobrushin._estimate.query import Settings, Workspace, workspace
from dobrushin._exact.arithmetic import Working
from dobrushin._exact.sums import LogPartition, plan_partition
from dobrushin._models import Model
from dobrushin._shared.call import Deadline
from dobrushin._shared.environment import log
from dobrushin._shared.memory import memory_limit as read_memory
from dobrushin._shared.running import Running
from dobrushin.errors import BudgetError

# Seconds that log P(evidence) may take, or the share of the expected seconds of the answer, whichever is more.
_QUICK, _SHARE = 0.1, 0.5


def weigh_evidence(
    estimate: Estimate, model: Model, observed: dict[Hashable, int], settings: Settings, running: Running
) -> Estimate:
    """Return an exact answer with the probability of its evidence, if this takes little time beside the answer.

    The evidence is given by label, with states as the model numbers them.
    """
    if estimate.plan.made_by is not Exact or not observed or not model._is_whole:
        return estimate
    allowed = max(_QUICK, _SHARE * estimate.plan.seconds)
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


def _log_evidence(whole: Workspace, evidence: dict[Hashable, int], allowed: float, settings: Settings) -> LogPartition:
    model, limit, working = whole.model, read_memory(settings.memory_limit), Working()
    _refuse(2.0 * model.n_variables * SECONDS_PER_VARIABLE, allowed)
    tables = model._form.tables()
    positions = {model.index(label): state for label, state in evidence.items()}
    digits = {i: model.states(i).index(state) for i, state in positions.items()}
    above = plan_partition(tables, digits, limit, working)
    _refuse(above.seconds, allowed)
    if whole.log_partition is None:
        below = plan_partition(tables, {}, limit, working)
        _refuse(above.seconds + below.seconds, allowed)
        whole.log_partition = below.run(working, limit)
    return LogPartition.ratio(above.run(working, limit), whole.log_partition)


def _refuse(seconds: float, allowed: float) -> None:
    if seconds > allowed:
        raise BudgetError("P(evidence)", seconds, allowed, "seconds", "dobrushin.exact.log_partition computes it.")
