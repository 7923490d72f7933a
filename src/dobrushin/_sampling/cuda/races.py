"""Races of labels on the GPU."""

from __future__ import annotations

from typing import Any

from dobrushin._shared.device import function


def compiled(name: str, labels: int, depth: int = 1) -> Any:
    """A function of races.cu, for so many labels, and factors with so many other members."""
    options = ("-fmad=false", f"-DLABELS={labels}", f"-DDEPTH={depth}")
    return function(__package__, ("generator.cuh", "states.cuh", "races.cu"), name, *options)
