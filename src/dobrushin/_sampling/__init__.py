"""Running scans: any model, any scan, any number of chains."""

# The ways to draw, in the order in which they are asked whether they are worth it.
from dobrushin._sampling import bits, table, field, potts, factors  # isort: skip

from dobrushin._sampling.kernel_check import self_check
from dobrushin._sampling.sampler import Record, sample
from dobrushin._sampling.samples import Samples

__all__ = ["Record", "Samples", "bits", "factors", "field", "potts", "sample", "self_check", "table"]
