"""Estimates with intervals that hold at finite time."""

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.estimator import estimate, plan
from dobrushin._estimate.many import Estimates, estimate_many
from dobrushin._estimate.method import Plan
from dobrushin._estimate.targets import Joint, Statistic

__all__ = ["Estimate", "Estimates", "Joint", "Plan", "Statistic", "estimate", "estimate_many", "plan"]
