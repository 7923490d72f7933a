"""The public function."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.exact import exact_answer
from dobrushin._estimate.nearby import in_the_whole, whole_positions
from dobrushin._estimate.planning import make_plan, nearby, planned
from dobrushin._estimate.query import Query, read_query
from dobrushin._estimate.runs import SampledRun, allowed_start
from dobrushin._estimate.set_runs import simulated_answer
from dobrushin._models import Model
from dobrushin._models.local import LocalModel
from dobrushin._sampling.sampler import BACKENDS
from dobrushin._shared import validate as check
from dobrushin._shared.executors import Running, read_executor
from dobrushin._shared.seeds import seed_sequence
from dobrushin._shared.state_file import read_checkpoint, stored_seed
from dobrushin._variation.certificate import in_a_larger_model
from dobrushin.errors import BudgetError, CertificateError


def estimate(
    model: Model | LocalModel,
    targets: Any,
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    evidence: Mapping[Any, int] | None = None,
    seed: int | np.random.SeedSequence | None = None,
    method: str = "auto",
    budget: float | None = None,
    backend: str = "auto",
    executor: Executor | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Estimate:
    """Estimate marginals or means, with intervals that are guaranteed at finite time.

    The scan, its length and the number of chains are chosen for the least work; see `plan`.

    Parameters
    ----------
    model : Model or LocalModel
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
    check.choice(backend, BACKENDS, "estimate", "backend")
    executor = read_executor(executor, "estimate")
    file = read_checkpoint(checkpoint, "estimate")
    if seed is None and file is not None:
        seed = stored_seed(file)
    running = Running(executor, bool(progress), backend, file)
    return answered(model, targets, tolerance, confidence, evidence, seed_sequence(seed, "estimate"), method, budget,
                    running)  # fmt: skip


def answered(
    model: Any,
    targets: Any,
    tolerance: Any,
    confidence: Any,
    evidence: Any,
    sequence: np.random.SeedSequence,
    method: Any,
    budget: Any,
    running: Running,
) -> Estimate:
    """`estimate`, once it is known how to run it."""
    start: Any = "uniform"
    if nearby(model, targets, evidence, method) is not None:
        query, made = planned(model, targets, tolerance, confidence, evidence, method, budget)
    else:
        query = read_query(model, targets, tolerance, confidence, evidence, method, budget)
        if query.method != "exact":
            start = allowed_start(query.space, bool(evidence))  # before all else: the evidence may be impossible
        made = make_plan(query)
    if made.method == "exact":
        return exact_answer(query, made, bool(evidence))
    if query.local:
        start = allowed_start(query.space, bool(evidence))
    try:
        if made.method == "coalescence":
            found = simulated_answer(query, made, sequence, running)
        else:
            run = SampledRun(query, made, sequence, running, start)
            run.draw()
            found = run.estimate()
    except CertificateError as error:
        raise error.carrying(error.estimate and _in_the_whole(error.estimate, query, model, evidence)) from None
    except BudgetError as error:
        reached = error.estimate and _in_the_whole(error.estimate, query, model, evidence)
        raise error.carrying(in_the_whole(query, made, evidence), reached) from None
    return _in_the_whole(found, query, model, evidence)


def _in_the_whole(found: Estimate, query: Query, model: Any, evidence: Any) -> Estimate:
    """Plan and certificate by positions in the whole model given the evidence, where only a part of it was made."""
    if not query.local:
        return found
    made = in_the_whole(query, found.plan, evidence)
    certificate = found.certificate
    if certificate is not None and made.scan is not None:
        n = model.n_variables - len(evidence or ())
        certificate = in_a_larger_model(certificate, made.scan, whole_positions(query, evidence), n)
    return replace(found, plan=made, certificate=certificate)
