"""Running scans: any model, any scan, any number of chains."""

from dobrushin._sampling.kernel_check import self_check
from dobrushin._sampling.sampler import sample
from dobrushin._sampling.samples import Record, Samples

__all__ = ["Record", "Samples", "sample", "self_check"]
