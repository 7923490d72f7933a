"""Plain sampling, for those who ask for it by name."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import Choice, Method, Plan
from dobrushin._estimate.query import Query
from dobrushin._estimate.runs import ChainRun, expected_seconds
from dobrushin._sampling.kernel import Kernel
from dobrushin._sampling.kernels import choose_kernel
from dobrushin._scan import Scan
from dobrushin._shared.executors import Running

# Sweeps, as long as they take no more updates than this.
_SWEEPS, _FEWEST_SWEEPS, _UPDATES = 1000, 10, 10**10


class Uncertified(Method):
    """Sweeps over everything, from everywhere; how far that is from the truth is not known."""

    name: ClassVar[str] = "uncertified"
    summary: ClassVar[str] = "plain sampling, with intervals that leave out the unknown bias"
    is_certified: ClassVar[bool] = False
    in_auto: ClassVar[bool] = False

    def __init__(self, query: Query, plan: Plan, kernel: Kernel) -> None:
        super().__init__(query, plan)
        self.kernel = kernel

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method:
        del choice  # only asked for by name
        n, chains = query.model.n_variables, query.most_chains(query.tolerance)
        allowed = _UPDATES if query.budget is None else query.budget
        sweeps = min(_SWEEPS, max(_FEWEST_SWEEPS, int(allowed // (chains * n))))
        if query.budget is not None and chains * n * sweeps > query.budget:
            sweeps = max(1, int(query.budget // (chains * n)))
        scan = Scan.systematic(n, sweeps * n)
        kernel = choose_kernel(query.model, scan, chains)
        reason = "NOT CERTIFIED: the bias of the scan is unknown"
        plan = cls.draft(query, reason, None, scan=scan, chains=chains, kernel=kernel.name)
        return cls(query, replace(plan, seconds=expected_seconds(kernel, plan.updates)), kernel)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        run = _UncertifiedRun(self.query, self.plan, self.kernel, sequence, running)
        run.draw()
        return run.estimate()

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            f"The answer comes from {estimate.chains:,} independent chains of {estimate.steps:,} updates each.",
            f"No bound on the bias of such a chain was computed. The intervals ({estimate.plan.interval}) hold, with "
            f"probability {estimate.confidence_text} or more, for the law of the chain after {estimate.steps:,} "
            "updates, which need not be close to the model's.",
        ]


class _UncertifiedRun(ChainRun):
    """Chains whose bias is left out."""

    def estimate(self) -> Estimate:
        unknown = [np.full(len(question), np.nan) for question in self.query.questions]
        nothing = [np.zeros(len(question)) for question in self.query.questions]
        words = "NOT CERTIFIED: the bias of the scan is unknown, and is not in the intervals"
        return Estimate.from_rows(
            self.query, self.plan, self.rows(unknown, nothing), self.query.confidence, self.assumptions(words),
            samples=self.samples(), seed=self.sequence,
        )  # fmt: skip
