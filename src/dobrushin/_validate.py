"""Checks of what callers pass in. Every check fails with one sentence that names argument, value and place."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin.errors import ArgumentError

Labels = Sequence[Hashable]


def first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Index of the first true entry."""
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(mask)), mask.shape))


def place(index: tuple[int, ...]) -> str:
    """How an index is written in a message."""
    return f"index {index[0] if len(index) == 1 else index}"


def real_array(value: ArrayLike, function: str, argument: str) -> NDArray[np.float64]:
    """A float64 array, or a sentence instead of NumPy's traceback."""
    try:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind not in "biuf":
            raise TypeError
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise ArgumentError(function, argument, "an array of real numbers", value) from None


def all_entries(ok: NDArray[np.bool_], array: NDArray[Any], function: str, argument: str, requirement: str) -> None:
    """Fail at the first entry of `array` where `ok` is false."""
    if not ok.all():
        index = first(~ok)
        raise ArgumentError(function, argument, requirement, array[index], place(index) if index else "")


def finite(array: NDArray[np.float64], function: str, argument: str) -> NDArray[np.float64]:
    """Fail at the first NaN or infinity."""
    all_entries(np.isfinite(array), array, function, argument, "finite")
    return array


def log_potential(array: NDArray[np.float64], function: str, argument: str) -> NDArray[np.float64]:
    """Logarithms of potentials: finite, or -inf for a forbidden state."""
    all_entries(array < np.inf, array, function, argument, "finite or -inf (a forbidden state)")
    return array


def count(value: object, function: str, argument: str, least: int = 1) -> int:
    """A whole number, at least `least`."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise ArgumentError(function, argument, f"a whole number, at least {least}", value)


def positive(value: object, function: str, argument: str) -> float:
    """A positive finite number."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < np.inf:
        return float(value)
    raise ArgumentError(function, argument, "a positive finite number", value)


def choice(value: object, options: Sequence[str], function: str, argument: str) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in options:
        return value
    raise ArgumentError(function, argument, "one of " + ", ".join(repr(option) for option in options), value)


def label_position(label: Hashable, labels: Labels, lookup: dict[Hashable, int] | None) -> int | None:
    """Position of a label, or None. Labels 0..n-1 (a range) need no lookup table."""
    if lookup is not None:
        return lookup.get(label)
    if isinstance(label, numbers.Integral) and not isinstance(label, bool) and 0 <= int(label) < len(labels):
        return int(label)
    return None


def positions(
    labels: Any, known: Labels, lookup: dict[Hashable, int] | None, function: str, argument: str
) -> NDArray[np.int64]:
    """Positions of one label or of several distinct ones."""
    if isinstance(labels, Hashable) and label_position(labels, known, lookup) is not None:
        labels = [labels]
    elif isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ArgumentError(function, argument, _expected(known), labels)
    array = labels if isinstance(labels, np.ndarray) else None
    if lookup is None and array is not None and array.ndim == 1 and array.dtype.kind in "iu":
        found = array.astype(np.int64)
        all_entries((found >= 0) & (found < len(known)), found, function, argument, _expected(known))
    else:
        found = np.empty(len(items := list(labels)), dtype=np.int64)
        for k, label in enumerate(items):
            position = label_position(label, known, lookup) if isinstance(label, Hashable) else None
            if position is None:
                raise ArgumentError(function, argument, _expected(known), label, place((k,)))
            found[k] = position
    if found.size == 0:
        raise ArgumentError(function, argument, "at least one label", labels)
    values, where, counts = np.unique(found, return_index=True, return_counts=True)
    if (counts > 1).any():
        repeated = int(values[counts > 1][0])
        raise ArgumentError(function, argument, "distinct labels", known[repeated], f"index {where[counts > 1][0]}")
    return found


def _expected(known: Labels) -> str:
    if isinstance(known, range):
        return f"labels of the model (0 to {len(known) - 1})"
    return "labels of the model ({}{})".format(", ".join(repr(k) for k in known[:4]), ", ..." if len(known) > 4 else "")
