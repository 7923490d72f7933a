"""What to write so that reading gives the same number again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def inverse(
    forward: Callable[[Any], Any], wanted: NDArray[np.float64], guess: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Numbers that `forward` takes exactly to those wanted, where a neighbour of the guess does so; else the guess.

    Files hold weights or energies and models their logarithms, so what was read is not what is written: the rounded
    inverse of a rounded function may be off by one unit in the last place. Among its neighbours is the number that
    was read.
    """
    best = guess.copy()
    with np.errstate(all="ignore"):
        missed = np.flatnonzero((forward(guess) != wanted) & np.isfinite(guess))
        for direction in (np.inf, -np.inf):
            near = guess[missed]
            for _ in range(2):
                near = np.nextafter(near, direction)
                hit = forward(near) == wanted[missed]
                best[missed[hit]] = near[hit]
    return best
