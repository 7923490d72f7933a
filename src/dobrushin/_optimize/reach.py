"""Regions around targets: who can have an influence on them, the strongest first."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import RowSource
from dobrushin._kernels import greedy
from dobrushin._optimize.greedy import BackwardGreedy, enlarge
from dobrushin._shared.arrays import frozen, prefix_sums, row_entries
from dobrushin._shared.compile import code_for
from dobrushin._variation import Objective

# Paths whose products differ by less than this tell nothing apart: rounding alone can do it.
_TIE = 1e-9
# Larger regions are not made.
MOST_VARIABLES = 20_000


class Ball(NamedTuple):
    """Some variables, and which of them are neighbours."""

    positions: NDArray[np.int64]  # increasing
    outwards: NDArray[np.int64]  # their numbers, the strongest first
    start: NDArray[np.int64]  # neighbours within the ball, CSR by number
    neighbor: NDArray[np.int64]
    border: NDArray[np.int64]  # positions of the neighbours outside


class Reach(BackwardGreedy):
    """The variables around targets, by the largest product of influences along a path to a target.

    This is the largest single term of the pulled-back weight of a variable. The set of the k strongest grows with k,
    the targets themselves come first, and nothing here grows with the model.
    """

    def __init__(self, influence: RowSource, targets: NDArray[np.int64]) -> None:
        super().__init__(influence, Objective(np.sort(targets), np.ones(len(targets)), True), ahead=True)
        self._strength = np.zeros(64)

    def grow(self, size: int, strength: float = math.inf, most: int = MOST_VARIABLES) -> int:
        """Go on until there are so many variables, all that are so strong, and those as strong as the last of these.

        Returns how many there are: fewer if no others have an influence; `most`, if there are as many or more.
        """
        if self.steps < most:
            self._take(size, strength, most)
        known = self._strength[: self.steps]
        size = max(1, min(size, self.steps), int(np.searchsorted(-known, -strength, side="right")))
        last = known[size - 1] * (1.0 - _TIE)
        return min(most, size + int(np.searchsorted(-known[size:], -last, side="left")))

    def strength(self, size: int) -> float:
        """The product of the weakest of the first so many variables."""
        return float(self._strength[size - 1])

    def ball(self, size: int) -> Ball:
        """The first so many variables."""
        numbers = self._order[:size]
        rank = np.full(self.size, -1, dtype=np.int64)
        by_position = np.argsort(self.ids[numbers], kind="stable")
        positions = self.ids[numbers][by_position]
        rank[numbers[by_position]] = np.arange(size)
        members = numbers[by_position]
        first = self._begin[members]
        start, entry = row_entries(first, self._end[members] - first)
        columns = self._columns[entry]
        owner = np.repeat(np.arange(size), np.diff(start))
        inside = rank[columns] >= 0
        border = np.unique(self.ids[columns[~inside]])
        rows = prefix_sums(np.bincount(owner[inside], minlength=size))
        own = rank[columns[inside]]
        return Ball(positions, rank[numbers], frozen(rows), frozen(own), border)

    def _take(self, size: int, strength: float, most: int) -> None:
        while True:
            # It only goes through rows that are there.
            code = code_for(greedy.reach, 16 * (self._entries + self.size))
            status = code(
                size, strength, most, self._begin, self._end, self._columns, self._values, self.has_row, self.ids,
                self._d, self._heap, self._place, self._order, self._strength, self._counters,
            )  # fmt: skip
            if status == greedy.DONE:
                return
            if status == greedy.NEED_ROW:
                self._fetch()
            else:
                self._order = enlarge(self._order, 2 * len(self._order))
                self._strength = enlarge(self._strength, len(self._order))
