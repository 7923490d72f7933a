"""The public functions: read the query, ask the methods for their plans, take the best, let it answer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sized
from concurrent.futures import Executor
from typing import Any

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import METHODS, Method, Plan, choose, is_certain, read_settings
from dobrushin._estimate.nearby import choose_nearby
from dobrushin._estimate.query import Settings, read_query
from dobrushin._models import Model
from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.running import Running, read_running
from dobrushin.errors import BudgetError, CertificateError

# Models of so many variables are not made again for evidence, when so few targets are asked for.
_LARGE, _FEW = 20_000, 1000


def estimate(
    model: Model,
    targets: Any,
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, int] | None = None,
    seed: int | np.random.SeedSequence | None = None,
    method: str = "auto",
    budget: float | None = None,
    memory_limit: float | str | None = None,
    backend: str = "auto",
    executor: Executor | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Estimate:
    """Estimate marginals or means, with intervals that are guaranteed at finite time.

    The scan, its length and the number of chains are chosen for the least work; see `plan`.

    Parameters
    ----------
    model : Model
        Of a `LocalModel` only what is near the targets is ever made. The same goes for large models with evidence.
    targets : label, list of labels, "all", Joint, Statistic, or a list of these
        Labels ask for the marginal of each variable by itself.
    tolerance : float
        Half the width of every interval is at most this.
    confidence : float
        Probability with which all the intervals hold at once.
    evidence : dict from label to state, optional
        Observed variables.
    seed : int, SeedSequence or None
    method : {"auto", "exact", "dobrushin", "coalescence", "uncertified"}
        "exact": a clique tree. "dobrushin": sampling with the bias bounded beforehand by the Dobrushin variation.
        "coalescence": simulated sets of states, which need no condition (see `coalescence`). "auto": the clique
        tree if it is cheap, else Dobrushin's bound if it reaches the tolerance, else coalescence. "uncertified": plain
        sampling, with intervals that leave out the unknown bias; it has to be asked for.
    budget : number, optional
        Most Gibbs updates to spend.
    memory_limit : number or str, optional
        Bytes that exact sums may take, as a number or as in "2GiB". Default: most of the memory that is free.
    backend : {"auto", "cpu", "cuda"}
        Where to draw; see `sample`. The answer is the same.
    executor : concurrent.futures.Executor, optional
        Runs the chains; default: one thread per core.
    progress : bool
        Show a bar.
    checkpoint : path, optional
        Write the state of the run here every few seconds, and go on from it if it exists. (Very many chains are run
        in parts, each of which has a file of its own.)

    Returns
    -------
    Estimate

    Raises
    ------
    CertificateError
        When no guarantee can be given; it says why and what would help.
    BudgetError
        When the budget is too small; it carries the plan, and what was reached if sampling had begun.
    WorkerError
        When the executor ends early, as a process pool does when one of its workers dies.

    Notes
    -----
    For f with differences bounded by d, an interval for E f(X_T) from independent chains, widened by the Dobrushin
    variation V(d) on both sides, covers E_pi f with the stated confidence, at any finite number of steps and chains.

    Examples
    --------
    >>> import dobrushin as db
    >>> million = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> db.estimate(million, targets=[0], evidence={1: 1}, tolerance=0.01, seed=1)
    Estimate (dobrushin, certified) within 0.01 at confidence 0.99
      target  state  mean  lower  upper  bias bound
           0     -1  0.39...
           0      1  0.60...
      ... steps x ... chains, kernel bits, seed 1
    """
    running, sequence = read_running(executor, progress, backend, checkpoint, seed, "estimate")
    settings = read_settings(tolerance, confidence, method, budget, "estimate", memory_limit)
    return answer_query(model, targets, evidence, settings, sequence, running)


def plan(
    model: Model,
    targets: Any,
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, int] | None = None,
    method: str = "auto",
    budget: float | None = None,
    memory_limit: float | str | None = None,
) -> Plan:
    """Say what `estimate` would do with the same arguments, without doing it.

    Parameters
    ----------
    model, targets, tolerance, confidence, evidence, method, budget, memory_limit
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
    >>> plan = db.plan(db.Ising.grid(300, 300, couplings=0.2), targets=[0, 1], tolerance=0.02)
    >>> plan.method, len(plan.scan), plan.chains
    ('dobrushin', 208, 6784)
    """
    settings = read_settings(tolerance, confidence, method, budget, "estimate", memory_limit)
    choice, part = _choose(model, targets, evidence, settings)
    return choice.plan if part is None else choice.plan.lift(part)


def answer_query(
    model: Any, targets: Any, evidence: Any, settings: Settings, sequence: np.random.SeedSequence, running: Running
) -> Estimate:
    """`estimate`, once it is known how to run it."""
    method, part = _choose(model, targets, evidence, settings, will_draw=True)
    if part is None:
        return method.answer(sequence, running)
    try:
        return method.answer(sequence, running).lift(part)
    except CertificateError as error:
        raise error.carrying(error.estimate and error.estimate.lift(part)) from None
    except BudgetError as error:
        raise error.carrying(method.plan.lift(part), error.estimate and error.estimate.lift(part)) from None


def _choose(
    model: Any, targets: Any, evidence: Any, settings: Settings, will_draw: bool = False
) -> tuple[Method, Numbering | None]:
    """The method for a query, and where the variables that it knows are in the model; None for all of them."""
    check.instance(model, Model, "estimate", "model", "a model")
    if _is_asked_nearby(model, targets, evidence, settings.method):
        return choose_nearby(model, targets, evidence, settings)
    query = read_query(model, targets, evidence, settings)
    if will_draw and not is_certain(settings.method):
        _ = query.space.start  # before all else: the evidence may be impossible
    return choose(query), None


def _is_asked_nearby(model: Model, targets: Any, evidence: Any, method: str) -> bool:
    """Whether only what is near the targets is looked at: always where there is no whole, and in large models.

    Evidence changes a model only where it is. Making a new one of all the rest would take longer than the answer.
    """
    if not model.is_whole:
        return True
    if not evidence or model.n_variables < _LARGE or not model.has_parts or isinstance(targets, str):
        return False
    few = not isinstance(targets, Sized) or len(targets) <= _FEW
    return few and (method == "auto" or METHODS[method].works_nearby)
