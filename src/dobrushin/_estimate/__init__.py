"""Estimates with intervals that hold at finite time."""

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.entry import estimate

__all__ = ["Estimate", "estimate"]
