"""Races of labels on the GPU."""

from __future__ import annotations

from dobrushin._shared.device import Function


def compiled(name: str, labels: int, depth: int = 1) -> Function:
    """A function of races.cu, for so many labels, and factors with so many other members."""
    options = ("-fmad=false", f"-DLABELS={labels}", f"-DDEPTH={depth}")
    return Function(__package__, ("generator.cuh", "states.cuh", "races.cu"), name, options)
