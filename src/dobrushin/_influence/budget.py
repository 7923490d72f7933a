"""How much work a row of influence bounds is worth.

Costs are counted in elementary operations, about a nanosecond each.
"""

from __future__ import annotations

import numpy as np

from dobrushin._influence.rows import WantedRows
from dobrushin._shared.arrays import Floats, Ints, frozen, prefix_sums
from dobrushin._shared.environment import log
from dobrushin.errors import BudgetError

# Enumeration, per row: larger rows fall back on a closed form with method="best", and are an error with "exact".
BEST = 1e5
EXACT = 1e9
# Sign patterns that Theorem 5 tries with method="best" and "exact": 2 ** (degree - 1) per entry.
BEST_DEGREE = 12
EXACT_DEGREE = 24
# Double differences of tables, per row: larger rows fall back on distances from a centre.
RANGES = 5e9
# Potentials of one table that double differences may look at without a pause: larger tables fall back in the same way.
CELLS = 2e7
# Offsets from unaries, per row: once these are spent, the rest of the row goes without.
OFFSETS = 2 * 10**9
# States of a variable with several neighbours whose leads over each other are kept, and of one whose unaries are read.
LEADS = 4096
UNARIES = 10**7


def enumerable(wanted: WantedRows, k_own: Ints, k_other: Ints, members: Ints | int = 0) -> tuple[Ints, int]:
    """Return the rows whose neighbourhoods are small enough to enumerate, and the size of the largest table of laws.

    `members` is how many neighbours the factors of each row name, if some are named more than once.
    """
    start, is_exact = wanted.start, wanted.method == "exact"
    logs, sums = prefix_sums(np.log(k_other.astype(float))), prefix_sums(k_other.astype(float))
    with np.errstate(over="ignore"):
        laws = np.exp(logs[start[1:]] - logs[start[:-1]]) * k_own
        cost = laws * np.maximum(1.0 + sums[start[1:]] - sums[start[:-1]], members)
    over = (cost > (EXACT if is_exact else BEST)) & (np.diff(start) > 0)
    if over.any():
        if is_exact:
            r = int(np.argmax(over))
            raise over_budget(wanted.labels[int(wanted.positions[r])], float(cost[r]), EXACT)
        log.info("influence: %d of %d rows have too many neighbours to enumerate", np.sum(over), len(over))
    rows = np.flatnonzero(~over & (np.diff(start) > 0))
    return frozen(rows), int(np.rint(laws[rows].max(initial=0.0)))


def over_budget(label: object, cost: float, limit: float) -> BudgetError:
    """Make the exception for a row of the exact influence that is too expensive."""
    return BudgetError(
        f"The exact influence on variable {label!r}", cost, limit, "operations", "Use method='best' instead."
    )


def split_rows(start: Ints, cost: Floats, cells: Floats) -> tuple[Ints, Ints]:
    """Indices of the rows that are worth double differences, and of the others.

    For each entry, `cost` is what its double differences take, `cells` how many potentials they look at.
    """
    total = prefix_sums(cost)
    large = prefix_sums(cells > CELLS)
    coarse = (total[start[1:]] - total[start[:-1]] > RANGES) | (large[start[1:]] > large[start[:-1]])
    if coarse.any():
        log.info("influence: %d of %d rows have too many states for double differences", np.sum(coarse), len(coarse))
    return frozen(np.flatnonzero(~coarse)), frozen(np.flatnonzero(coarse))
