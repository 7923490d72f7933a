"""The functions `estimate` and `plan`: read the query, choose a method, return its answer or its plan."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dobrushin._estimate.answer import Asked, Estimate, Transcript
from dobrushin._estimate.choice import choose_for_call
from dobrushin._estimate.exact import weigh_evidence
from dobrushin._estimate.method import Method, Plan, carry_estimate
from dobrushin._estimate.query import Settings, read_evidence, read_settings
from dobrushin._estimate.questions import Shortfall
from dobrushin._estimate.targets import is_asked
from dobrushin._models import Model
from dobrushin._models.derived import split_evidence
from dobrushin._models.near import Numbering
from dobrushin._models.sources import as_model
from dobrushin._models.state_names import shown_evidence
from dobrushin._shared.call import NO_DEADLINE, PLANNING_SHARE, limited, public
from dobrushin._shared.environment import log
from dobrushin._shared.running import Running, RunOptions, read_options, read_running
from dobrushin.errors import BudgetError, CertificateError
from dobrushin.typing import EstimateMethod, Evidence, ModelLike, Seed, Targets

# Share of the time limit that is left for drawing; and the tolerance above which no new plan is made for a time limit.
_DRAWING_SHARE, _VAGUE_TOLERANCE = 0.8, 0.25


@public("planning")
def estimate(
    model: ModelLike,
    targets: Targets = "all",
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Evidence | None = None,
    seed: Seed = None,
    method: EstimateMethod = "auto",
    budget: float | None = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    proof: str | os.PathLike[str] | None = None,
    verify: bool = False,
    run: RunOptions | None = None,
) -> Estimate:
    """Estimate marginals or means, with intervals that are guaranteed at finite time.

    The order of updates (scan), its length and the number of chains are chosen to minimise the work; see `plan`.

    Parameters
    ----------
    model : Model, path, or a model of another library
        A path is read (`read`, `open_model`), and so are models of dimod, pgmpy, pyAgrum and networkx (see `adapters`).
        Of a `LocalModel`, and of large models with evidence, only a ball around the targets is read.
    targets : label, list of labels, "all", Joint, Statistic, or a list of these
        A label stands for the marginal of that variable. Default: all variables that are not observed.
    tolerance : float
        Largest half-width of the intervals.
    confidence : float
        Probability with which all the intervals are valid at once.
    evidence : dict from label to state, optional
        Observed states. A dict of likelihoods in place of a state is soft (virtual) evidence: P(observation | state),
        up to a constant factor.
    seed : int, SeedSequence, Generator or None
    method : str
        "exact": a clique tree. "local": sums over a region around each target, with a bound on the boundary effect.
        "dobrushin": sampling with the bias bounded beforehand by the Dobrushin variation. "walks": trees of
        self-avoiding walks, for binary pairwise models of any sign. "symmetry": marginals that
        are uniform because a relabelling of states leaves the model unchanged. "clusters": exact draws of ferromagnets
        at every temperature (see `exact_sample`). "coalescence": simulated bounding sets, which need no condition on
        the model (see `coalescence`). "weights": independent draws from approximate sums, with weights that a bound of
        the partition function keeps below 1: for strong couplings of any sign. "auto": symmetry, or the cheapest of the
        first three that reaches the tolerance, else clusters, or the cheaper of coalescence and weights. "parts":
        "auto" for each group of targets that depends on its own subset of the variables; "auto" tries this if the
        first three fail. "uncertified": plain sampling, with intervals that leave out the unknown bias; never chosen by
        "auto".
    budget : number, optional
        Largest number of Gibbs updates.
    time_limit : number, optional
        Time limit in seconds, after which the partial result is returned: valid intervals, wider than the tolerance
        (see `Estimate.stopped_by`). A quarter of it, at most 15 minutes, is for planning and pilots; without a limit
        these have 30 s, and an estimate expected to take over an hour is refused, which ``math.inf`` allows.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.
    proof : path, optional
        File to which a proof of the answer is written; see `Estimate.write_proof`. Without a seed, the seed then
        follows from the model and the plan, so that it cannot have been chosen for its result.
    verify : bool
        Check the proof at once with `dobrushin.verify`; raise `CertificateError` if the proof does not hold.
    run : RunOptions, optional
        Executor, GPU, checkpoint, and the memory for exact sums.

    Returns
    -------
    Estimate

    Raises
    ------
    CertificateError
        When no method reaches the tolerance; the message says why and what may help. All errors listed here carry a
        partial result as ``error.result``: for each target the best valid interval that some method found, and the
        method (`Estimate.methods`).
    BudgetError
        When the budget or the time for planning is too small; the error also has the plan, if there is one.
    Interrupted
        On Ctrl-C.
    WorkerError
        When the executor ends early, as a process pool does when one of its workers dies.

    Notes
    -----
    For f with differences bounded by d, an interval for E f(X_T) from independent chains, widened by the Dobrushin
    variation V(d) on both sides, covers E_pi f with the stated confidence, at any finite number of steps and chains.
    A hundredth of the error probability is kept for intervals that are valid at any stopping time: those of a run that
    was stopped by the time limit or Ctrl-C.

    Examples
    --------
    >>> import dobrushin as db
    >>> million = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> db.estimate(million, targets=[0], evidence={1: 1}, method="dobrushin", seed=1)
    P(0 = 1 | 1 = 1) = 0.60... +- 0.0..., with 99% confidence; proved, not diagnosed
      target  state  probability  lower  upper  bias bound
           0     -1  0.39...
           0      1  0.60...
      ... steps x ... chains, kernel bits, seed 1
    """
    options = read_options(run)
    running, sequence = read_running(options, seed, time_limit)
    model = as_model(model)
    seconds = None if running.deadline is NO_DEADLINE else running.deadline.limit
    settings = read_settings(model, tolerance, confidence, method, budget, seconds, options)
    settings = replace(settings, proof=proof is not None or verify)
    prepared = prepare_query(model, targets, evidence, settings, running)
    if not settings.proof:
        return prepared.answer(sequence)
    from dobrushin._proof import answer_with_proof, seed_of_plan

    if seed is None and running.checkpoint is None and prepared.method.query.space.is_replayed:
        sequence = seed_of_plan(replace(prepared.asked, transcript=Transcript(prepared.method)))
    return answer_with_proof(prepared.answer(sequence), proof, verify)


@public("planning")
def plan(
    model: ModelLike,
    targets: Targets = "all",
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Evidence | None = None,
    method: EstimateMethod = "auto",
    budget: float | None = None,
    progress: bool | None = None,
    run: RunOptions | None = None,
) -> Plan:
    """Return the plan that `estimate` would follow with the same arguments, without running it.

    Parameters
    ----------
    model, targets, tolerance, confidence, evidence, method, budget, progress, run
        As for `estimate`.

    Returns
    -------
    Plan

    Raises
    ------
    CertificateError
        When no method can give a guarantee.
    BudgetError
        When the plan needs more updates than the budget; the error carries the plan.

    Notes
    -----
    The length T of the scan and the number N of chains are those with the smallest N T for which the bias bound of the
    scan and the half-width of the interval together are at most the tolerance. Scans are backward greedy: a shorter
    scan is the end of a longer one, so that one search compares all lengths.

    Examples
    --------
    >>> import dobrushin as db
    >>> plan = db.plan(db.Ising.grid(300, 300, couplings=0.2), targets=[0, 1], tolerance=0.02, method="dobrushin")
    >>> plan.method, len(plan.scan), plan.chains
    ('dobrushin', 208, 6784)
    """
    model = as_model(model)
    settings = read_settings(model, tolerance, confidence, method, budget, math.inf, read_options(run))
    model, evidence, _ = split_evidence(model, evidence, lambda label: is_asked(label, targets))
    choice, part = choose_for_call(model, targets, read_evidence(model, evidence), settings)
    return choice.plan if part is None else choice.plan._lift(part)


def quick_plan(model: Model, targets: Any, seconds: float) -> Plan | None:
    """Return the plan that `estimate` finds within this number of seconds; None if it finds no guarantee in that time.

    The search is that of `estimate`, so that advice (of `diagnose`) never contradicts what `estimate` does.
    """
    settings = read_settings(model, 0.01, 0.99, "auto", None, seconds / PLANNING_SHARE)
    try:
        choice, _ = choose_for_call(model, targets, {}, settings)
    except (CertificateError, BudgetError):
        return None
    return choice.plan if choice.plan.reaches_tolerance else None


def prepare_query(model: Any, targets: Any, evidence: Any, settings: Settings, running: Running) -> Prepared:
    """Read the evidence and the targets of a query, and choose its method.

    If the time limit is too short for the tolerance, the method is planned for a larger tolerance.
    """
    asked_model = model
    targets = list(targets) if isinstance(targets, Iterator) else targets
    call = copy.copy(targets), copy.copy(evidence), settings
    model, evidence, soft = split_evidence(model, evidence, lambda label: is_asked(label, targets))
    observed = read_evidence(model, evidence)
    method, part = choose_for_call(model, targets, observed, settings, running)
    reachable, plan = settings.tolerance, method.plan
    # A run with a checkpoint, which can be resumed later, keeps the requested tolerance.
    if settings.time_limit is not None and running.checkpoint is None and plan.chains:
        reachable *= math.sqrt(plan.seconds / (_DRAWING_SHARE * settings.time_limit))
    is_wider = settings.tolerance < reachable < _VAGUE_TOLERANCE
    if is_wider:
        log.info("the time limit allows a tolerance of about %.3g, not %g", reachable, settings.tolerance)
        wider = replace(settings, tolerance=reachable, method=method.name)
        known, refusals = method.known, method.refusals
        method, part = choose_for_call(model, targets, observed, wider, running)
        method.known, method.refusals = known, refusals
    asked = Asked(asked_model, {**shown_evidence(model, observed), **soft}, model, observed, call)
    return Prepared(method, part, asked, settings, running, is_wider, not soft)


@dataclass(frozen=True)
class Prepared:
    """A query with its chosen method and the settings of its run.

    Attributes
    ----------
    part : Numbering or None
        Positions in the model of the variables that the method reads; None for all variables.
    is_wider : bool
        Whether the time limit allows only intervals wider than the tolerance.
    is_hard : bool
        Whether all evidence is hard: observed states, not likelihoods.
    """

    method: Method
    part: Numbering | None
    asked: Asked
    settings: Settings
    running: Running
    is_wider: bool
    is_hard: bool

    def answer(self, sequence: np.random.SeedSequence) -> Estimate:
        return self.complete(partial(self.method.answer, sequence, self.running))

    def complete(self, find: Callable[[], Estimate]) -> Estimate:
        """Return the estimate that `find` computes, renumbered to the whole model and with its question attached.

        Errors get the partial result. P(evidence) is added if that takes little time.
        """
        method, running = self.method, self.running
        with carry_estimate(method.query, method.plan, self.part, self._adapt), limited(running.deadline):
            try:
                estimate = find()
            except CertificateError as failure:
                reasons = {**method.refusals, **failure.reasons}
                raise CertificateError(reasons, failure.remedy, result=failure.result) from None
        estimate = self._adapt(estimate)
        if not self.is_hard or self.asked.weighed is None:
            return estimate
        return weigh_evidence(estimate, self.asked.weighed, self.asked.observed, self.settings, running)

    def _adapt(self, estimate: Estimate) -> Estimate:
        estimate = self.method.narrow(estimate, self.settings.tolerance)
        if self.is_wider:
            wider = replace(estimate.plan, tolerance=self.settings.tolerance)
            estimate = replace(estimate, plan=wider, stopped_by=estimate.stopped_by or Shortfall.TIME)
        asked = replace(self.asked, transcript=None if estimate.asked is None else estimate.asked.transcript)
        estimate = replace(estimate, asked=asked)
        return estimate if self.part is None else estimate._lift(self.part)
