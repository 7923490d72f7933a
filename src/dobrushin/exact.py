"""Exact answers: what every bound and every sampler of this library is tested against.

Arrays of joint probabilities have one axis per variable, by position; along it come the variable's states in increasing
order, so that index 0 of a spin is -1 and index 1 is +1.
"""

from dobrushin._exact.enumeration import distribution, influence, law, total_variation
from dobrushin._exact.sums import LogPartition, Marginals, MostLikely, log_partition, marginals, most_likely

__all__ = [
    "LogPartition",
    "Marginals",
    "MostLikely",
    "distribution",
    "influence",
    "law",
    "log_partition",
    "marginals",
    "most_likely",
    "total_variation",
]
