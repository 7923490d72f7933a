"""Reasons for intervals that are wider than the tolerance."""

from __future__ import annotations

from enum import StrEnum


class Shortfall(StrEnum):
    """Why an interval is wider than its tolerance, in words that fit after "stopped by".

    The reason is set where the decision is made to return, or to raise, with what is known.
    """

    INTERRUPTED = "Ctrl-C"
    TIME = "the time limit"
    BUDGET = "the budget"
    EXECUTOR = "the loss of the executor"
    ROUNDING = "rounding"
    UNDECIDABLE = "draws too close to an end of the event to decide"
    SUMS = "the largest sums that were planned"

    def __repr__(self) -> str:
        return repr(self.value)
