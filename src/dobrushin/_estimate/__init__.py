"""Estimates with intervals that hold at finite time."""

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.entry import estimate
from dobrushin._estimate.many import Estimates, estimate_many

__all__ = ["Estimate", "Estimates", "estimate", "estimate_many"]
