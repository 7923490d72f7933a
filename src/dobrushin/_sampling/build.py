"""Calls as they were, until their callers have moved to `kernels` and `sampler`."""

from __future__ import annotations

from typing import Any

from dobrushin._sampling import kernels
from dobrushin._sampling.sampler import run_chains
from dobrushin._sampling.samples import Samples, read_record
from dobrushin._shared.executors import Running

__all__ = ["build_kernel", "draw", "has_hard_zeros", "update_error"]


def has_hard_zeros(model: Any) -> bool:
    """See `Form.has_zeros`."""
    return bool(model._form.has_zeros)


def build_kernel(model: Any, scan: Any, region: Any, chains: int, wanted: str | None) -> Any:
    """See `kernels.choose_kernel`."""
    del region
    return kernels.choose_kernel(model, scan, chains, wanted)


def update_error(n: int, scan: Any, region: Any, kernel: Any) -> Any:
    """See `kernels.update_error`."""
    del region
    return kernels.update_error(n, scan, kernel)


def draw(
    model: Any, scan: Any, numbers: range, sequence: Any, initial: Any, record: Any, kernel: str | None, executor: Any,
    progress: bool, checkpoint: Any, backend: str, function: str,
) -> Samples:  # fmt: skip
    """See `sampler.run_chains`."""
    chosen = kernels.choose_kernel(model, scan, len(numbers), kernel)
    running, keep = Running(executor, progress, backend, checkpoint), read_record(record)
    return run_chains(
        model, chosen, scan, numbers, sequence, start=initial, record=keep, running=running, function=function
    )
