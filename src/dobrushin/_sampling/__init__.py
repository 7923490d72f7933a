"""Running scans: any model, any scan, any number of chains."""

from dobrushin._sampling.bits import Bits
from dobrushin._sampling.conditional import Conditional
from dobrushin._sampling.counts import Counts
from dobrushin._sampling.dense import Dense
from dobrushin._sampling.factors import Factors
from dobrushin._sampling.field import Field
from dobrushin._sampling.kernel import register
from dobrushin._sampling.kernel_check import self_check
from dobrushin._sampling.potts import PottsLanes
from dobrushin._sampling.sampler import Record, sample
from dobrushin._sampling.samples import Samples
from dobrushin._sampling.table import Table

__all__ = ["Record", "Samples", "sample", "self_check"]

# The ways to draw, in the order in which they are asked whether they are worth it.
for _kernel in (Bits, Counts, Table, Dense, Field, PottsLanes, Conditional, Factors):
    register(_kernel)
