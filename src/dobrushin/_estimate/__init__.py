"""Estimates with intervals that hold at finite time."""

# The methods, in the order in which "auto" asks them.
from dobrushin._estimate import dobrushin, exact, coalescence, uncertified  # isort: skip

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.estimator import estimate, plan
from dobrushin._estimate.many import Estimates, estimate_many
from dobrushin._estimate.method import Plan
from dobrushin._estimate.targets import Joint, Statistic

__all__ = [
    "Estimate", "Estimates", "Joint", "Plan", "Statistic", "coalescence", "dobrushin", "estimate", "estimate_many",
    "exact", "plan", "uncertified",
]  # fmt: skip
