"""Where the time of one long chain on a large Ising model goes."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

import dobrushin as db
from dobrushin._sampling import diagonals, field
from dobrushin._sampling.kernel import Work, choose_kernel
from measure import best_of, random_ising

_SWEEPS = 10


def large_chain_parts() -> str:
    """Times of three ways to run the sweeps of W2, and of putting its variables in the order of two of them."""
    model = random_ising(1000, seed=0, with_fields=True)
    n = model.n_variables
    scan = db.Scan.systematic(n, n * _SWEEPS)
    kernel = choose_kernel(model, scan, 1, "field")
    master = np.array([1, 2], dtype=np.uint64)
    work = Work(master, range(1), scan.segments[0], 0, len(scan), 0)
    states = kernel.start(master, range(1))
    times = {}
    for name, fewest, side in (("step by step", 10**9, 10**9), ("in waves", 1, 10**9), ("by diagonals", 1, 1)):
        kernel.for_sweeps.clear()
        sweeps = (patch.object(field, "SOME_SWEEPS", 1), patch.object(field, "MANY_SWEEPS", fewest))
        with sweeps[0], sweeps[1], patch.object(diagonals, "SHORTEST_SIDE", side):
            times[name] = best_of(lambda: kernel.run(states, work))
    waves = best_of(lambda: kernel.arrange(scan.segments[0]))
    order = best_of(lambda: diagonals.find_diagonals(kernel.region, kernel.theta, kernel.fields))
    return (
        f"W2 by its parts: {_SWEEPS} sweeps step by step {times['step by step']:.3f} s; in waves "
        f"{times['in waves']:.3f} s, after {waves:.3f} s to put the variables in their order; by diagonals "
        f"{times['by diagonals']:.3f} s, after {order:.3f} s"
    )
