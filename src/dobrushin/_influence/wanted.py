"""What the theorems are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.influence import ENUMERATED


class Bounds(NamedTuple):
    """Bounds of some rows; the kernels fill them in."""

    values: NDArray[np.float64]  # one per entry
    theorem: NDArray[np.uint8]  # where each of them comes from
    cap: NDArray[np.float64]  # one per row: the most that all other variables together can move it


class Wanted(NamedTuple):
    """Rows of an influence bound that are asked for, with the variables that may have an influence, CSR."""

    positions: NDArray[np.int64]
    start: NDArray[np.int64]
    columns: NDArray[Any]
    method: str
    labels: Sequence[Hashable]  # of all variables, for messages

    @property
    def is_paper(self) -> bool:
        """Whether the theorems are wanted as they stand in the paper."""
        return self.method == "paper"

    def no_bounds(self) -> Bounds:
        """No influence, from no theorem; and all variables together may do anything."""
        entries = len(self.columns)
        return Bounds(np.zeros(entries), np.zeros(entries, dtype=np.uint8), np.ones(len(self.positions)))

    def before_enumeration(self, bounds: Bounds) -> Bounds:
        """The bounds to improve; the trivial ones if enumeration has to stand by itself."""
        if self.method != "exact":
            return bounds
        return Bounds(np.ones_like(bounds.values), np.full_like(bounds.theorem, ENUMERATED), np.ones_like(bounds.cap))

    def entries(self, first: NDArray[Any]) -> NDArray[np.int64]:
        """Places of the entries of these rows in arrays over all rows, which begin at `first`."""
        return np.arange(self.start[-1]) + np.repeat(first[self.positions] - self.start[:-1], np.diff(self.start))
