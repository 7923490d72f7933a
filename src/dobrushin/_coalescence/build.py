"""Calls as they were, until their callers have moved to `set_kernels` and `set_runs`."""

from __future__ import annotations

from typing import Any

from dobrushin._coalescence import set_runs
from dobrushin._coalescence.set_kernels import SET_KERNELS, choose_sets
from dobrushin._shared.executors import Running


def build_sets(model: Any, region: Any) -> Any:
    """See `set_kernels.choose_sets`."""
    return next(kernel for kernel in SET_KERNELS.values() if kernel.fits(model._form)).make(model._form, region)


def run_sets(model: Any, scan: Any, labels: Any, numbers: range, sequence: Any, *, every: int | None = None,
             function: str = "coalescence", **options: Any) -> Any:  # fmt: skip
    """See `set_runs.run_sets`."""
    kernel, running = choose_sets(model, scan), Running(**options)
    return set_runs.run_sets(
        model, kernel, scan, labels, numbers, sequence, every=every, running=running, function=function
    )


def tally_sets(model: Any, scan: Any, labels: Any, runs: int, sequence: Any) -> Any:
    """See `set_runs.tally_sets`."""
    return set_runs.tally_sets(model, choose_sets(model, scan), scan, labels, runs, sequence)
