"""Plain sampling, for those who ask for it by name."""

from __future__ import annotations

from dataclasses import replace

from dobrushin._estimate.query import Plan, Query, expected_seconds, intervals_of, with_chains
from dobrushin._sampling.build import build_kernel
from dobrushin._sampling.region import region_of
from dobrushin._scan import Scan

# Sweeps, as long as they take no more updates than this.
_SWEEPS, _FEWEST_SWEEPS, _UPDATES = 1000, 10, 10**10


def plan_uncertified(query: Query) -> Plan:
    """Sweeps over everything, from everywhere; how far that is from the truth is not known."""
    n = query.space.model.n_variables
    reason = "NOT CERTIFIED: the bias of the scan is unknown"
    made = Plan(
        "uncertified", reason, query.tolerance, query.confidence, None, *intervals_of(query), Scan.systematic(n, n)
    )
    made = with_chains(made, query)
    allowed = _UPDATES if query.budget is None else query.budget
    sweeps = min(_SWEEPS, max(_FEWEST_SWEEPS, int(allowed // (made.chains * n))))
    if query.budget is not None and made.chains * n * sweeps > query.budget:
        sweeps = max(1, int(query.budget // (made.chains * n)))
    scan = Scan.systematic(n, sweeps * n)
    kernel = build_kernel(query.space.model, scan, region_of(query.space.model, scan), made.chains, None)
    made = replace(made, scan=scan, kernel=kernel.name)
    return replace(made, seconds=expected_seconds(kernel.name, made.updates))
