"""Gibbs sampling: running scans in many independent chains, with one kernel per kind of model."""

from dobrushin._sampling.bits import BitsKernel, CountsKernel, TableKernel
from dobrushin._sampling.kernel import register
from dobrushin._sampling.labels import ConditionalKernel, FactorsKernel, PottsKernel
from dobrushin._sampling.sampler import Record, sample
from dobrushin._sampling.samples import Samples
from dobrushin._sampling.spins import DenseKernel, LocalFieldKernel

__all__ = ["Record", "Samples", "sample"]

# Kernels in the order in which they are asked whether they are worth it.
for _kernel in (
    BitsKernel, CountsKernel, TableKernel, DenseKernel, LocalFieldKernel, PottsKernel, ConditionalKernel, FactorsKernel,
):  # fmt: skip
    register(_kernel)
