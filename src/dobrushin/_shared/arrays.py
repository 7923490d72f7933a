"""Helpers for arrays: read-only arrays, gathering rows of sparse matrices, and bounds on rounding errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.errors import BudgetError

# Types of arrays.
Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
# Unit roundoff: the largest relative error of one operation on doubles.
UNIT = 2.0**-53
# This many numbers, and a few arrays that are computed from them, fit into a cache.
CACHE_NUMBERS = 2**14


def frozen(array: Array) -> Array:
    """Return the array, contiguous and read-only.

    Numba compiles a kernel anew for writable arrays, so inputs of kernels are always passed through here.
    """
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array


def without_repeats(values: Array) -> Array:
    """Return only the first entry of an array made by broadcasting one number; return other arrays unchanged."""
    return values[:1] if values.strides == (0,) else values


def in_cache(rows: int, width: int = 1) -> Iterator[slice]:
    """Yield slices that cover the rows of a long array, each small enough for the processor's cache."""
    few = max(1, CACHE_NUMBERS // max(1, width))
    return (slice(lo, min(lo + few, rows)) for lo in range(0, rows, few))


def is_increasing(values: Array) -> bool:
    return bool((values[1:] > values[:-1]).all())


def prefix_sums(sizes: Array) -> Array:
    """Return where rows of these sizes begin if stored one after the other, and where the last one ends."""
    ends = np.cumsum(sizes)
    start = np.zeros(len(ends) + 1, dtype=ends.dtype)
    start[1:] = ends
    return start


def distinct(positions: Array, n: int) -> Array:
    """Return the distinct values of `positions`, sorted; all are below n. For long arrays faster than `np.unique`."""
    if len(positions) > n // 8:
        seen = np.zeros(n, dtype=np.bool_)
        seen[positions] = True
        return np.flatnonzero(seen)
    ordered = np.sort(positions)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def is_among(positions: Array, increasing: Array) -> Bools:
    """Return, for each of `positions`, whether it is in the sorted array `increasing`."""
    if not len(increasing):
        return np.zeros(len(positions), dtype=np.bool_)
    place = np.minimum(np.searchsorted(increasing, positions), len(increasing) - 1)
    found: Bools = increasing[place] == positions
    return found


def row_entries(first: Array, sizes: Array) -> tuple[Ints, Ints]:
    """Return (start, index): index[start[k] : start[k + 1]] are the places of row k's entries in a longer array.

    Row k has `sizes[k]` entries, which begin at `first[k]` in the longer array.
    """
    start = prefix_sums(sizes)
    return start, np.arange(start[-1]) + np.repeat(first - start[:-1], sizes)


def rows_at(start: Array, rows: Ints) -> tuple[Ints, Ints]:
    """Return (start, index): index[start[k] : start[k + 1]] are the places of the entries of `rows[k]` in a CSR matrix.

    The argument `start` is the matrix's array of row pointers.
    """
    first = start[rows].astype(np.int64)
    return row_entries(first, start[rows + 1].astype(np.int64) - first)


def rounded_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return a + b as doubles, and the absolute rounding error of each sum, exactly (Knuth's TwoSum)."""
    total = a + b
    part = total - a
    return total, np.abs((a - (total - part)) + (b - part))


def rounded_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return a * b as doubles, and a bound on each rounding error: 0 if both factors have at most 26 bits."""
    product = a * b
    few = 2.0**26

    def is_short(x: Floats) -> Bools:
        mantissa = np.frexp(x)[0] * few
        return mantissa == np.floor(mantissa)

    is_exact = (is_short(a) & is_short(b)) & ((np.abs(product) > 1e-280) | (product == 0) & ((a == 0) | (b == 0)))
    return product, np.where(is_exact, 0.0, np.abs(product) * 2.0**-52 + 2.0**-1074)


def inflation(operations: int) -> float:
    """Return a factor that makes the result of `operations` rounded operations an upper bound. [trusted]

    k additions and multiplications of non-negative numbers lead to a value with a relative error of at most
    k u / (1 - k u), with u = 2^-53 the unit roundoff; for k u < 1/4 a factor 1 + 2 k u, itself rounded, makes the value
    an upper bound.
    """
    # Four more pay for the roundings of the factor itself and of its use.
    k = operations + 4
    if k * UNIT >= 0.25:
        raise BudgetError("A certificate of this scan", k, 0.25 / UNIT, "roundings", "Split the scan.")
    return 1.0 + 2.0 * k * UNIT


def weighted_sum(weights: Floats, bounds: Floats, operations: int) -> float:
    """Bound a weighted sum of bounds from above, rounding errors included. [trusted]

    `operations` is the number of rounded operations from which the bounds themselves come.
    """
    terms = len(weights)
    # Any order of the additions has this error bound. Products below the normal range lose up to 2^-1075 each.
    total = float(weights @ bounds) + terms * 2.0**-1074
    return total * inflation(operations + 2 * terms)
