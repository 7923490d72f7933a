"""The models of the paper's experiments."""

from __future__ import annotations

import numpy as np

from dobrushin._models import Ising, Model


def paper_ising(rows: int = 10, cols: int = 10, seed: int = 0, fields: bool = True) -> Model:
    """A draw of the Ising model of Section 5.1: couplings uniform on [0, 0.25], fields 0 or 1.

    Examples
    --------
    >>> from dobrushin.experiments.models import paper_ising
    >>> paper_ising()
    Ising(n_variables=100, edges=180)
    """
    rng = np.random.default_rng(seed)
    couplings = rng.uniform(0, 0.25, size=rows * (cols - 1) + (rows - 1) * cols)
    return Ising.grid(rows, cols, couplings, rng.integers(0, 2, size=(rows, cols)) if fields else None)
