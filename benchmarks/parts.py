"""Where the time of one long chain on a large model goes, and how far bit-parallel chains are from their limit."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

import dobrushin as db
from dobrushin._sampling import array_kernel, spins
from dobrushin._sampling.kernel import Work, choose_kernel
from measure import best_of, one_core, random_ising
from plain import bit_plane

_SWEEPS = 10
# Chains that are drawn together in W3, and sweeps of them.
_TOGETHER, _BIT_SWEEPS = 2048, 200


def large_chain_parts() -> str:
    """Times of three ways to run the sweeps of W2, and of putting its variables in the order of two of them."""
    model = random_ising(1000, seed=0, with_fields=True)
    n = model.n_variables
    scan = db.Scan.systematic(n, n * _SWEEPS)
    kernel = choose_kernel(model, scan, 1, "field")
    master = np.array([1, 2], dtype=np.uint64)
    work = Work(master, range(1), scan._segments[0], 0, len(scan), 0)
    states = kernel.start(master, range(1))
    times = {}
    for name, fewest, side in (("step by step", 10**9, 10**9), ("in waves", 1, 10**9), ("by diagonals", 1, 1)):
        kernel.orders.clear()
        sweeps = (patch.object(spins, "DIAGONAL_SWEEPS", 1), patch.object(array_kernel, "WAVE_SWEEPS", fewest))
        with sweeps[0], sweeps[1], patch.object(array_kernel, "MIN_SIDE", side):
            times[name] = best_of(lambda: kernel.run(states, work))
    waves = best_of(lambda: kernel.arrange(scan._segments[0]))
    order = best_of(lambda: array_kernel.find_diagonals(kernel.region, kernel.weights, kernel.fields))
    return (
        f"W2 by its parts: {_SWEEPS} sweeps step by step {times['step by step']:.3f} s; in waves "
        f"{times['in waves']:.3f} s, after {waves:.3f} s to put the variables in their order; by diagonals "
        f"{times['by diagonals']:.3f} s, after {order:.3f} s"
    )


def bit_limit() -> str:
    """An update of W3 beside the planes of random bits that it cannot do without, on one core."""
    # A chain is open after k planes with probability 2^-k; an update goes on until the last one is decided.
    planes = float(sum(-np.expm1(_TOGETHER * np.log1p(-(2.0**-k))) for k in range(1, 64))) + 1.0
    model = random_ising(10, seed=0)
    scan = db.Scan.systematic(100, 100 * _BIT_SWEEPS)
    kernel = choose_kernel(model, scan, _TOGETHER, "bits")
    master = np.array([1, 2], dtype=np.uint64)
    states = kernel.start(master, range(_TOGETHER))
    work = Work(master, range(_TOGETHER), scan._segments[0], 0, len(scan), 0)
    with one_core():
        ours = 1e9 * best_of(lambda: kernel.run(states, work), repeats=10) / len(scan)
        plane = bit_plane()
    if plane is None:
        return f"W3 by its parts: {ours:.0f} ns for a step of {_TOGETHER} chains; no C compiler to compare with"
    return (
        f"W3 by its parts: a step of {_TOGETHER} chains on one core takes {ours:.0f} ns; "
        f"{planes:.1f} planes of {plane:.1f} ns in C are {planes * plane:.0f} ns, {planes * plane / ours:.0%} of that"
    )
