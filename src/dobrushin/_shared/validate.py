"""Checks of arguments. A failed check raises `ArgumentError`, which names the argument, the value and its index."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from types import UnionType
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._shared.arrays import Bools, Floats, Ints
from dobrushin._shared.text import counted, hint, nearest
from dobrushin.errors import ArgumentError

Labels = Sequence[Hashable]


def first(mask: Bools) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(mask)), mask.shape))


def place(index: tuple[int, ...]) -> str:
    """Write an index for an error message."""
    return f"index {index[0] if len(index) == 1 else index}"


def real_array(value: ArrayLike, argument: str) -> Floats:
    """Return an array of doubles; fail for entries that are no real numbers, or that no double can hold."""
    try:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind not in "biuf":
            raise TypeError
        doubles = array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise ArgumentError(argument, "an array of real numbers", value) from None
    if not isinstance(value, np.ndarray) and array.dtype == np.float64 and (np.abs(doubles) >= 2.0**53).any():
        array = np.asarray(value, dtype=object)  # whole numbers in a list beside others
    if array.dtype.itemsize >= 8 and array.dtype != np.float64:  # whole numbers over 2**53, and long doubles
        large = np.isfinite(doubles) & (np.abs(doubles) >= 2.0**53)
        if array.dtype.kind == "f":
            rounded = np.array(np.isfinite(doubles) & ((array > doubles) | (array < doubles)))
        else:  # NumPy compares whole numbers after rounding
            rounded = np.zeros(array.shape, dtype=np.bool_)
            rounded[large] = [int(x) != int(float(x)) for x in array[large].tolist()]
        all_entries(~rounded, array, argument, "numbers that doubles hold exactly")
    return doubles


def sparse_matrix(value: Any, argument: str) -> Any:
    """Return a SciPy sparse matrix as a new float64 CSR matrix without duplicate entries."""
    from scipy import sparse

    if value.ndim != 2 or value.dtype.kind not in "biuf":
        raise ArgumentError(argument, "a matrix of real numbers", got=f"shape {value.shape}, {value.dtype}")
    if value.dtype != np.float64:
        real_array(sparse.coo_array(value).data, argument)
    matrix = sparse.csr_array(value).astype(np.float64)
    matrix.sum_duplicates()
    return matrix


def square_matrix(value: Any, argument: str, requirement: str = "a square matrix") -> Any:
    """Return a square matrix, dense or sparse, as a CSR matrix without duplicate entries."""
    from scipy import sparse

    if sparse.issparse(value):
        matrix = sparse_matrix(value, argument)
    else:
        dense = real_array(value, argument)
        if dense.ndim != 2:
            raise ArgumentError(argument, requirement, got=f"shape {dense.shape}")
        matrix = sparse.csr_array(dense)
    if matrix.shape[0] != matrix.shape[1]:
        raise ArgumentError(argument, "a square matrix", got=f"shape {matrix.shape}")
    return matrix


def matrix_entries(ok: Bools, matrix: Any, argument: str, requirement: str) -> None:
    """Fail at the first stored entry of a CSR matrix where `ok` is false."""
    if not ok.all():
        k = int(np.argmin(ok))
        row = int(np.searchsorted(matrix.indptr, k, side="right")) - 1
        raise ArgumentError(argument, requirement, matrix.data[k], place((row, int(matrix.indices[k]))))


def all_entries(ok: Bools, array: NDArray[Any], argument: str, requirement: str) -> None:
    """Fail at the first entry of `array` where `ok` is false."""
    if not ok.all():
        index = first(~ok)
        raise ArgumentError(argument, requirement, array[index], place(index) if index else "")


# Parameters are logarithms: larger ones make no sense, and their sums could overflow.
LARGEST = 1e100
FINITE = "finite, at most 1e100 in size"
LOG_POTENTIAL = "finite, at most 1e100 in size, or -inf (a forbidden state)"


def finite(array: Floats, argument: str) -> Floats:
    """Return the array; fail at the first NaN or infinity, or at the first number above 1e100 in absolute value."""
    all_entries(np.abs(array) <= LARGEST, array, argument, FINITE)
    return array


def is_log_potential(array: Floats) -> Bools:
    """Return, for each entry, whether it can be the logarithm of a potential."""
    return (np.abs(array) <= LARGEST) | np.isneginf(array)


def log_potential(array: Floats, argument: str) -> Floats:
    """Return the array; fail at the first entry that cannot be the logarithm of a potential."""
    all_entries(is_log_potential(array), array, argument, LOG_POTENTIAL)
    return array


def instance(value: object, kind: type | UnionType, argument: str, requirement: str) -> None:
    """Fail unless the value is an instance of a class; `requirement` names the class in English ("a model")."""
    if not isinstance(value, kind):
        raise ArgumentError(argument, requirement, value)


def evidence(value: object) -> None:
    """Fail if evidence is not a dict. Its labels and states are checked later, against a model."""
    instance(value, Mapping, "evidence", "a dict from labels to states")


def path(value: object, argument: str = "path") -> str:
    """Return a path as text; fail for values that are no path."""
    if isinstance(value, str | os.PathLike) and "\0" not in (name := os.fsdecode(value)):
        return name
    raise ArgumentError(argument, "a path", value)


def grid_shape(value: Any) -> tuple[int, int] | None:
    """Return the rows and columns of a grid; None if no shape is given."""
    if value is None:
        return None
    if not is_several(value) or len(sides := tuple(value)) != 2:
        raise ArgumentError("shape", "a pair (rows, columns)", value)
    return count(sides[0], "shape"), count(sides[1], "shape")


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether this is a whole number; booleans are not."""
    # The first test is for speed: this is called for each label and each position.
    return type(value) is int or (isinstance(value, numbers.Integral) and not isinstance(value, bool))


def is_real(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number within the range of doubles, or inf or nan; booleans are not."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def exact_number(value: Any) -> Fraction | None:
    """Return a real number as a fraction; None for one that doubles cannot represent.

    That is a number whose double is not finite, or is 0 although the number is not.
    """
    if not (is_real(value) or isinstance(value, Decimal)) or not abs(double := float(value)) < np.inf:
        return None
    ratio = (value, 1) if is_whole(value) else value.as_integer_ratio()
    exact = Fraction(*map(int, ratio))
    return None if exact and not double else exact


def is_several(value: object) -> TypeGuard[Iterable[Any]]:
    """Return whether a value is an iterable other than a string."""
    return isinstance(value, Iterable) and not isinstance(value, str)


def is_text(value: object, *options: str) -> TypeGuard[str]:
    """Return whether a value is one of these strings; an array, which would compare item by item, is not."""
    return isinstance(value, str) and value in options


def _number(value: object, argument: str, requirement: str, is_fine: Callable[[float], bool]) -> float:
    if is_real(value) and is_fine(float(value)):
        return float(value)
    raise ArgumentError(argument, requirement, value)


def finite_number(value: object, argument: str) -> float:
    """Return a number of at most 1e100 in absolute value; fail for other values."""
    return _number(value, argument, FINITE, lambda x: abs(x) <= LARGEST)


def positive(value: object, argument: str) -> float:
    """Return a positive finite number; fail for other values."""
    return _number(value, argument, "a positive finite number", lambda x: 0 < x < np.inf)


def non_negative(value: object, argument: str) -> float:
    """Return a finite number of at least zero; fail for other values."""
    return _number(value, argument, "non-negative and finite", lambda x: 0 <= x < np.inf)


def fraction(value: object, argument: str) -> float:
    """Return a number between 0 and 1, such as a confidence; fail for other values."""
    return _number(value, argument, "a number between 0 and 1, both excluded", lambda x: 0 < x < 1)


def count(value: object, argument: str, least: int = 1) -> int:
    """Return a whole number from `least` to 2**60; fail for other values."""
    if is_whole(value) and least <= int(value) <= 2**60:
        return int(value)
    most = " and at most 2**60" if is_whole(value) and int(value) > 2**60 else ""
    raise ArgumentError(argument, f"a whole number, at least {least}{most}", value)


def choice(value: object, options: Sequence[str], argument: str) -> str:
    """Return a value that is one of the options; fail for other values."""
    if is_text(value, *options):
        return value
    listed = ", ".join(repr(option) for option in options)
    raise ArgumentError(argument, f"one of {listed}{hint(value, options)}", value)


def read_labels(labels: Any, n: int) -> Labels:
    """Return distinct names for n variables: a range if they are 0..n-1, otherwise a tuple."""
    if labels is None or (isinstance(labels, range) and labels == range(n)):
        return range(n)
    try:
        names = tuple(labels.tolist() if isinstance(labels, np.ndarray) else labels)
        distinct = len(set(names))
    except TypeError:
        raise ArgumentError("labels", "hashable names", labels) from None
    if len(names) != n:
        raise ArgumentError(
            "labels", f"one label for each of {counted(n, 'variable')}", got=counted(len(names), "label")
        )
    if distinct < n:
        raise ArgumentError("labels", "distinct", next(k for i, k in enumerate(names) if k in names[:i]))
    return range(n) if all(type(name) is int and name == i for i, name in enumerate(names)) else names


def are_positions(labels: Labels) -> bool:
    """Return whether the labels are just 0..n-1, because no names were given."""
    return isinstance(labels, range)


def lookup_table(labels: Labels) -> dict[Hashable, int] | None:
    """Return a dict from label to position; None for labels 0..n-1, which need none."""
    return None if are_positions(labels) else {label: position for position, label in enumerate(labels)}


def label_position(label: object, labels: Labels, lookup: dict[Hashable, int] | None) -> int | None:
    """Return the position of a label, or None if it is unknown; `lookup` is the labels' `lookup_table`."""
    if lookup is None:
        return int(label) if is_whole(label) and 0 <= int(label) < len(labels) else None
    try:
        return lookup.get(label)
    except TypeError:  # unhashable
        return None


def positions(labels: Any, known: Labels, lookup: dict[Hashable, int] | None, argument: str) -> Ints:
    """Return the positions of one label or of several distinct ones; fail for unknown labels."""
    array = labels if isinstance(labels, np.ndarray) else None
    if array is not None and array.ndim == 0:
        labels = array.item()
    if label_position(labels, known, lookup) is not None:
        labels = [labels]
    elif not is_several(labels):
        raise ArgumentError(argument, expected_labels(known, labels), labels)
    if lookup is None and array is not None and array.ndim == 1 and array.dtype.kind in "iu":
        places = array.astype(np.int64)
        all_entries((places >= 0) & (places < len(known)), places, argument, expected_labels(known))
    else:
        items = list(labels)
        places = np.empty(len(items), dtype=np.int64)
        is_plain = lookup is None and items and all(type(label) is int for label in items)
        if is_plain and min(items) >= 0 and max(items) < len(known):
            places[:], items = items, []  # all at once, for there may be very many
        for k, label in enumerate(items):
            position = label_position(label, known, lookup)
            if position is None:
                raise ArgumentError(argument, expected_labels(known, label), label, place((k,)))
            places[k] = position
    if places.size == 0:
        raise ArgumentError(argument, "at least one label", labels)
    if places.size == 1:
        return places
    values, where, counts = np.unique(places, return_index=True, return_counts=True)
    if (counts > 1).any():
        repeated = int(values[counts > 1][0])
        raise ArgumentError(argument, "distinct labels", known[repeated], f"index {where[counts > 1][0]}")
    return places


def expected_labels(known: Labels, label: object = None) -> str:
    """Describe the known labels for an error message: those nearest to `label`, or the first ones."""
    if are_positions(known):
        return f"labels of the model (0 to {len(known) - 1})"
    if close := nearest(label, known):
        return f"labels of the model (the nearest: {', '.join(map(repr, close))})"
    return "labels of the model ({}{})".format(", ".join(repr(k) for k in known[:4]), ", ..." if len(known) > 4 else "")
