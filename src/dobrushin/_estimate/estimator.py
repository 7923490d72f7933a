"""The public functions: read the query, ask the methods for their plans, take the best, let it answer."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.choice import choose_for_call
from dobrushin._estimate.evidence import weigh_evidence
from dobrushin._estimate.method import Method, Plan, adapt_errors, answer_by
from dobrushin._estimate.origin import Asked, Call, Transcript
from dobrushin._estimate.query import Settings, read_evidence, read_settings
from dobrushin._estimate.runs import Run
from dobrushin._estimate.shortfall import Shortfall
from dobrushin._estimate.targets import is_asked
from dobrushin._models import Model
from dobrushin._models.derived import split_evidence
from dobrushin._models.near import Numbering
from dobrushin._models.sources import as_model
from dobrushin._models.state_names import shown_evidence
from dobrushin._sampling.batches import Job, Outcome
from dobrushin._shared.call import public
from dobrushin._shared.deadline import PLANNING_SHARE
from dobrushin._shared.log import log
from dobrushin._shared.options import Backend, EstimateMethod
from dobrushin._shared.running import Running, read_running
from dobrushin.errors import BudgetError, CertificateError

# The part of the time that is left for drawing, and a tolerance that is not worth another plan.
_SHARE, _VAGUE = 0.8, 0.25


@public("planning")
def estimate(
    model: Model | Any,
    targets: Any = "all",
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, Any] | None = None,
    seed: int | np.random.SeedSequence | None = None,
    method: EstimateMethod = "auto",
    budget: float | None = None,
    memory_limit: float | str | None = None,
    backend: Backend = "auto",
    executor: Executor | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    time: float | None = None,
    proof: str | os.PathLike[str] | None = None,
    verify: bool = False,
) -> Estimate:
    """Estimate marginals or means, with intervals that are guaranteed at finite time.

    The scan, its length and the number of chains are chosen for the least work; see `plan`.

    Parameters
    ----------
    model : Model, path, or a model of another library
        A path is read (`read`, `open_model`), and so are models of dimod, pgmpy, pyAgrum and networkx (see `adapters`).
        Of a `LocalModel` only what is near the targets is ever made. The same goes for large models with evidence.
    targets : label, list of labels, "all", Joint, Statistic, or a list of these
        Labels ask for the marginal of each variable by itself. Default all variables that are not observed.
    tolerance : float
        Half the width of every interval is at most this.
    confidence : float
        Probability with which all the intervals hold at once.
    evidence : dict from label to state, optional
        Observed variables. A dict from states to likelihoods in the place of a state is soft evidence: how likely each
        state makes what was seen, up to a factor.
    seed : int, SeedSequence or None
    method : {"auto", "exact", "local", "dobrushin", "parts", "coalescence", "uncertified"}
        "exact": a clique tree. "local": sums over a region around each target, with a bound on what everything else can
        do. "dobrushin": sampling with the bias bounded beforehand by the Dobrushin variation. "coalescence": simulated
        sets of states, which need no condition (see `coalescence`). "auto": the cheapest of the first three that
        reaches the tolerance, else coalescence. "parts": "auto" for each part of the targets that depends on less than
        all do; "auto" tries this where the first three fail. "uncertified": plain sampling, with intervals that leave
        out the unknown bias; it has to be asked for.
    budget : number, optional
        Most Gibbs updates to spend.
    memory_limit : number or str, optional
        Bytes that exact sums may take, as a number or as in "2GiB". Default: most of the memory that is free.
    backend : {"auto", "cpu", "cuda"}
        Where to draw and to sum; see `sample`. The draws are the same, sums differ by rounding.
    executor : concurrent.futures.Executor, optional
        Runs the chains; default: one thread per core.
    progress : bool, optional
        Show what is done: None in a terminal or a notebook, True also in a log, False nowhere.
    checkpoint : path, optional
        Write the state of the run here every few seconds, and go on from it if it exists. (Very many chains are run
        in parts, each of which has a file of its own.)
    time : number, optional
        Seconds after which to return what was reached: intervals that hold, wider than was asked for (`stopped_by`
        says so). Without it, an estimate that would take longer than an hour is refused; ``math.inf`` allows it.
    proof : path, optional
        Write a proof of the answer here; see `Estimate.write_proof`. Without a seed, the seed then follows from the
        model and the plan, so that nobody can have chosen it.
    verify : bool
        Have the proof checked at once, by `dobrushin.verify`; `CertificateError` if it does not hold.

    Returns
    -------
    Estimate

    Raises
    ------
    CertificateError
        When no guarantee can be given; it says why and what would help. Like all of these errors it has a partial
        result, valid intervals, as ``error.result``.
    BudgetError
        When the budget or the time for planning is too small; it also has the plan, if there is one.
    Interrupted
        On Ctrl-C.
    WorkerError
        When the executor ends early, as a process pool does when one of its workers dies.

    Notes
    -----
    For f with differences bounded by d, an interval for E f(X_T) from independent chains, widened by the Dobrushin
    variation V(d) on both sides, covers E_pi f with the stated confidence, at any finite number of steps and chains.
    A hundredth of the error probability is kept for intervals that hold whenever one stops: those of a run that the
    clock or Ctrl-C has ended.

    Examples
    --------
    >>> import dobrushin as db
    >>> million = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> db.estimate(million, targets=[0], evidence={1: 1}, method="dobrushin", seed=1)
    P(0 = 1) = 0.60... +- 0.0..., with 99% confidence; proved, not diagnosed
      target  state  mean  lower  upper  bias bound
           0     -1  0.39...
           0      1  0.60...
      ... steps x ... chains, kernel bits, seed 1
    """
    running, sequence = read_running(executor, backend, checkpoint, seed, time)
    model = as_model(model)
    settings = read_settings(model, tolerance, confidence, method, budget, time, memory_limit)
    settings = settings._replace(backend=backend, proof=proof is not None or verify)
    if not settings.proof:
        return answer_query(model, targets, evidence, settings, sequence, running)
    from dobrushin._proof import answer_with_proof, seed_of_plan

    from_plan = seed_of_plan if seed is None and checkpoint is None else None
    answer = answer_query(model, targets, evidence, settings, sequence, running, from_plan)
    return answer_with_proof(answer, proof, verify)


@public("planning")
def plan(
    model: Model | Any,
    targets: Any = "all",
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, Any] | None = None,
    method: EstimateMethod = "auto",
    budget: float | None = None,
    memory_limit: float | str | None = None,
    progress: bool | None = None,
) -> Plan:
    """Say what `estimate` would do with the same arguments, without doing it.

    Parameters
    ----------
    model, targets, tolerance, confidence, evidence, method, budget, memory_limit, progress
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
    >>> plan = db.plan(db.Ising.grid(300, 300, couplings=0.2), targets=[0, 1], tolerance=0.02, method="dobrushin")
    >>> plan.method, len(plan.scan), plan.chains
    ('dobrushin', 208, 6784)
    """
    model = as_model(model)
    settings = read_settings(model, tolerance, confidence, method, budget, math.inf, memory_limit)
    return plan_query(model, targets, evidence, settings)


def plan_query(model: Any, targets: Any, evidence: Any, settings: Settings) -> Plan:
    """`plan`, once the settings are read."""
    model, evidence, _ = split_evidence(model, evidence, lambda label: is_asked(label, targets))
    choice, part = choose_for_call(model, targets, evidence, settings)
    return choice.plan if part is None else choice.plan.lift(part)


def quick_plan(model: Model, targets: Any, seconds: float) -> Plan | None:
    """What `estimate` would do, if that is found in so many seconds; None where there is no way to a guarantee.

    It is looked for as `estimate` looks for it, so that nobody advises against what `estimate` can do.
    """
    settings = read_settings(model, 0.01, 0.99, "auto", None, seconds / PLANNING_SHARE)
    try:
        choice, _ = choose_for_call(model, targets, None, settings)
    except (CertificateError, BudgetError):
        return None
    return choice.plan


def answer_query(
    model: Any, targets: Any, evidence: Any, settings: Settings, sequence: np.random.SeedSequence, running: Running,
    from_plan: Callable[[Asked], np.random.SeedSequence] | None = None,
) -> Estimate:  # fmt: skip
    """`estimate`, once it is known how to run it; `from_plan` is where the seed comes from if it is not given."""
    prepared = prepare_query(model, targets, evidence, settings, running)
    if from_plan is not None and prepared.method.query.space.is_replayed:
        sequence = from_plan(prepared.asked.told(Transcript(prepared.method)))
    return prepared.answer(sequence)


def prepare_query(model: Any, targets: Any, evidence: Any, settings: Settings, running: Running) -> Prepared:
    """Choose a method for a query."""
    asked_model = model
    targets = list(targets) if isinstance(targets, Iterator) else targets
    call = Call(copy.copy(targets), copy.copy(evidence), settings)
    model, evidence, soft = split_evidence(model, evidence, lambda label: is_asked(label, targets))
    method, part = choose_for_call(model, targets, evidence, settings, running)
    reachable = _reachable(method.plan, settings, running)
    if reachable > settings.tolerance:
        log.info("the time allows about %.3g, not %g", reachable, settings.tolerance)
        wider = settings._replace(tolerance=reachable, method=method.name)
        method, part = choose_for_call(model, targets, evidence, wider, running)
    observed = read_evidence(model, evidence)
    asked = Asked(asked_model, {**shown_evidence(model, evidence), **soft}, model, observed, call=call)
    return Prepared(method, part, asked, settings, running, reachable > settings.tolerance, not soft)


@dataclass(frozen=True)
class Prepared:
    """A query whose method is chosen, and how it will answer.

    Attributes
    ----------
    part : Numbering or None
        Where the variables that the method knows are in the model; None for all of them.
    is_wider : bool
        Whether the time allows less than the tolerance.
    is_hard : bool
        Whether no evidence is soft.
    """

    method: Method
    part: Numbering | None
    asked: Asked
    settings: Settings
    running: Running
    is_wider: bool
    is_hard: bool

    def answer(self, sequence: np.random.SeedSequence) -> Estimate:
        """The answer."""
        return self._complete(lambda: self.method.answer(sequence, self.running))

    def finish(self, run: Run, job: Job, outcome: Outcome) -> Estimate:
        """The answer from what was drawn for a run of the method."""
        return self._complete(lambda: run.finish(job, outcome))

    def _complete(self, find: Callable[[], Estimate]) -> Estimate:
        """The answer that is found for what the method knows, as one about the model."""
        with adapt_errors(self._adapt, self.part):
            estimate = self._adapt(answer_by(find, self.method, self.running))
        if not self.is_hard or self.asked.weighed is None:
            return estimate
        return weigh_evidence(estimate, self.asked.weighed, self.asked.observed, self.settings, self.running)

    def _adapt(self, estimate: Estimate) -> Estimate:
        if self.is_wider:
            wider = replace(estimate.plan, tolerance=self.settings.tolerance)
            estimate = replace(estimate, plan=wider, stopped_by=estimate.stopped_by or Shortfall.TIME)
        asked = self.asked.told(None if estimate.asked is None else estimate.asked.transcript)
        estimate = replace(estimate, asked=asked)
        return estimate if self.part is None else estimate.lift(self.part)


def _reachable(plan: Plan, settings: Settings, running: Running) -> float:
    """The tolerance that the time allows: the one that was asked for, or one for which shorter scans do.

    A run that is to go on later, from a file, keeps to what was asked for.
    """
    if settings.time is None or running.checkpoint is not None or plan.scan is None:
        return settings.tolerance
    reachable = settings.tolerance * math.sqrt(plan.seconds / (_SHARE * settings.time))
    return reachable if settings.tolerance < reachable < _VAGUE else settings.tolerance
