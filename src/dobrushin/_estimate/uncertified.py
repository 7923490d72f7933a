"""The method "uncertified": plain sampling with an unknown bias, used only on request."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.query import Query
from dobrushin._estimate.runs import Bias, StateChains
from dobrushin._sampling.kernel import Kernel
from dobrushin._scan import Scan

# Usual number of sweeps; least number of sweeps; and the total number of updates above which fewer sweeps are made.
_USUAL_SWEEPS, _FEWEST_SWEEPS, _MAX_UPDATES = 1000, 10, 10**10


class Uncertified(StateChains):
    """The method "uncertified": chains of systematic sweeps from arbitrary initial states, with an unknown bias."""

    name: ClassVar[str] = "uncertified"
    is_certified: ClassVar[bool] = False
    has_proof: ClassVar[bool] = False
    in_auto: ClassVar[bool] = False
    reason: ClassVar[str] = "NOT CERTIFIED: the bias of the scan is unknown"

    @classmethod
    def find_scan(cls, query: Query) -> tuple[Scan, float | None]:
        n, chains = query.model.n_variables, cls.most_chains(query, query.tolerance)
        allowed = _MAX_UPDATES if query.budget is None else query.budget
        sweeps = min(_USUAL_SWEEPS, max(_FEWEST_SWEEPS, int(allowed // (chains * n))))
        if query.budget is not None and chains * n * sweeps > query.budget:
            sweeps = max(1, int(query.budget // (chains * n)))
        return Scan.systematic(n, sweeps * n), None

    @classmethod
    def bias_of(cls, query: Query, scan: Scan, kernel: Kernel) -> Bias:
        sizes = [len(question) for question in query.questions]
        words = "NOT CERTIFIED: the bias of the scan is unknown, and is not in the intervals"
        return Bias([np.full(size, np.nan) for size in sizes], [np.zeros(size) for size in sizes], words)

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            f"The answer comes from {estimate.chains:,} independent chains of {estimate.steps:,} updates each.",
            f"No bound on the bias of such a chain was computed. The intervals ({estimate.plan.interval}) hold, with "
            f"probability {estimate.confidence_text} or more, for the law of the chain after {estimate.steps:,} "
            "updates, which need not be close to the model's.",
        ]
