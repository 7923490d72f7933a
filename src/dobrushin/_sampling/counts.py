"""Bit-parallel chains of spins whose neighbours come in few groups of equal coupling: only counts of them matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import bits
from dobrushin._models.forms import Form
from dobrushin._models.ising import SpinPairs
from dobrushin._models.near import Region
from dobrushin._sampling.bits import MOST_NEIGHBORS, BitChains, thresholds_of
from dobrushin._sampling.kernel import UNIT, Runner, Work
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen, prefix_sums

# Bits of a configuration: one group of up to 15 neighbours, two of up to 3, and so on.
MOST_BITS = 4
# With fewer chains `field` is faster.
MANY_CHAINS = 256
# Variables that are looked at first: couplings without any pattern show at once.
FEW_VARIABLES = 64

ALL = ~np.uint64(0)


class Groups(NamedTuple):
    """Neighbours by variable and absolute value of their coupling; those with coupling 0 are left out."""

    entry: NDArray[np.int64]  # entries of the rows, in the order of the groups
    group: NDArray[np.int64]  # of each of these entries
    row: NDArray[np.int64]  # of each group: its variable, absolute coupling, neighbours, bits of their count
    size: NDArray[np.float64]
    neighbors: NDArray[np.int64]
    width: NDArray[np.int64]
    first: NDArray[np.int64]  # and its first bit in the configuration of its variable


@dataclass(frozen=True)
class Counts(BitChains):
    """64 chains in one number of 64 bits, for spins with few groups of neighbours of equal coupling, up to the sign."""

    triple_start: NDArray[np.int64]  # where the triples of neighbours of each variable begin
    neighbor: NDArray[np.int64]  # (triples, 3)
    flip: NDArray[np.uint64]  # (triples, 3): ones where the coupling is negative
    first: NDArray[np.int64]  # of each triple: the first bit of the count that it belongs to
    has_twin: ClassVar[bool] = True
    name: ClassVar[str] = "counts"
    rate: ClassVar[float] = 2.5e9

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        if scan.is_random or not isinstance(form, SpinPairs):
            return False
        theta = form.couplings.data[region.entry]
        few = region.updated[:FEW_VARIABLES]
        return _are_few(_groups(theta, region, few)) and _are_few(_groups(theta, region, region.updated))

    @classmethod
    def is_worth(cls, form: Form, scan: Scan, region: Region, chains: int) -> bool:
        del form, scan
        return chains >= MANY_CHAINS and region.degree > MOST_NEIGHBORS

    @classmethod
    def make(cls, form: Any, region: Region) -> Counts:
        theta, field = form.couplings.data[region.entry], form.fields[region.place]
        groups = _groups(theta, region, region.updated)
        configurations = np.arange(2**MOST_BITS)
        local = np.repeat(field[:, None], len(configurations), axis=1)
        for k in range(MOST_BITS):  # the groups that begin at this bit: at most one of each variable
            here = groups.first == k
            count = (configurations >> k) & ((1 << groups.width[here]) - 1)[:, None]
            local[groups.row[here]] += groups.size[here, None] * (2 * count - groups.neighbors[here, None])
        with np.errstate(over="ignore"):
            probability = 1.0 / (1.0 + np.exp(-2.0 * local))
        total = np.abs(field) + np.bincount(region.row, weights=np.abs(theta), minlength=region.size)
        error = UNIT * ((MOST_BITS + 2) * total + 8.0) + 2.0**-52
        threshold, certain = thresholds_of(probability)
        return cls(region, threshold, certain, frozen(np.minimum(error, 1.0)), *_triples(theta, region, groups))

    def twin(self) -> Runner:
        from dobrushin._sampling.cuda.bits import DeviceCounts

        return DeviceCounts(self)

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        tables = (self.triple_start, self.neighbor, self.flip, self.first, self.threshold, self.certain)
        bits.update_counts(order, place, work.step, work.steps, *tables, work.keys(64), x)


def _groups(theta: NDArray[np.float64], region: Region, updated: NDArray[np.int64]) -> Groups:
    """The groups of some variables."""
    lengths = region.start[updated + 1] - region.start[updated]
    entry = np.repeat(region.start[updated] - prefix_sums(lengths)[:-1], lengths) + np.arange(lengths.sum())
    row, size = np.repeat(updated, lengths), np.abs(theta[entry])
    kept = size > 0
    entry, row, size = entry[kept], row[kept], size[kept]
    order = np.lexsort((size, row))
    entry, row, size = entry[order], row[order], size[order]
    begins = np.ones(len(row), dtype=bool)
    begins[1:] = (row[1:] != row[:-1]) | (size[1:] != size[:-1])
    group = np.cumsum(begins) - 1
    neighbors = np.bincount(group)
    row, size = row[begins], size[begins]
    width = np.frexp(neighbors.astype(np.float64))[1].astype(np.int64)  # counts 0 to `neighbors`
    before = prefix_sums(width)[:-1]
    new_row = np.ones(len(row), dtype=bool)
    new_row[1:] = row[1:] != row[:-1]
    first = before - before[new_row][np.cumsum(new_row) - 1]
    return Groups(entry, group, row, size, neighbors, width, first)


def _are_few(groups: Groups) -> bool:
    """Whether the counts of every variable fit in a configuration."""
    return int((groups.first + groups.width).max(initial=0)) <= MOST_BITS


def _triples(
    theta: NDArray[np.float64], region: Region, groups: Groups
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """Neighbours by threes of one group: where those of a variable begin, who they are, if turned, counted where."""
    per_group = -(-groups.neighbors // 3)
    triple_start = prefix_sums(per_group)
    within = np.arange(len(groups.entry)) - prefix_sums(groups.neighbors)[:-1][groups.group]
    place = 3 * triple_start[groups.group] + within
    neighbor = np.full(3 * triple_start[-1], region.size, dtype=np.int64)
    flip = np.zeros(len(neighbor), dtype=np.uint64)
    neighbor[place] = region.neighbor[groups.entry]
    flip[place[theta[groups.entry] < 0]] = ALL
    of_row = np.bincount(groups.row, weights=per_group, minlength=region.size).astype(np.int64)
    start = prefix_sums(of_row)
    first = np.repeat(groups.first, per_group)
    return frozen(start), frozen(neighbor.reshape(-1, 3)), frozen(flip.reshape(-1, 3)), frozen(first)
