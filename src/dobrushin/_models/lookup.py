"""Numbers that are looked up when they are needed: given by a number, by arrays that may lie on disk, or by a function.

They travel to other processes as what they were made from. An array that is mapped from a file goes as the name of the
file, and is mapped again there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError, FormatError


@dataclass(frozen=True)
class MappedArray:
    """Where in which file an array lies."""

    path: str
    offset: int
    size: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def open(self) -> NDArray[Any]:
        """The array, mapped again."""
        if os.path.getsize(self.path) < self.offset + self.size:
            raise FormatError(self.path, f"{self.offset + self.size} bytes", f"{os.path.getsize(self.path)}")
        data = np.memmap(self.path, np.uint8, "r", self.offset, (self.size,))
        return np.ndarray(self.shape, self.dtype, buffer=data, strides=self.strides)


def pack(array: Any) -> Any:
    """An array as it should travel; anything else as it is."""
    root = _mapped_root(array)
    # Changes to a copy-on-write map are in this process only.
    if root is None or root.filename is None or root.mode == "c" or not array.size or min(array.strides, default=0) < 0:
        return np.asarray(array) if root is not None else array
    # A slice keeps the offset of the whole, so that its place is found by its address.
    offset = root.offset + array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    size = sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) + array.itemsize
    return MappedArray(os.fspath(root.filename), int(offset), int(size), array.dtype, array.shape, array.strides)


def unpack(value: Any) -> Any:
    """What `pack` was given."""
    return value.open() if isinstance(value, MappedArray) else value


def is_mapped(value: Any) -> bool:
    """Whether an array, or one of a pair of arrays, lies in a file."""
    parts = value if isinstance(value, tuple) else (value,)
    return any(_mapped_root(part) is not None for part in parts)


def _mapped_root(array: Any) -> np.memmap[Any, Any] | None:
    """The map that an array is a view of."""
    root = None
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array._mmap is not None:  # type: ignore[attr-defined]
            root = array
        array = array.base
    return root


class Lookup:
    """From numbers of edges or variables to values.

    Parameters
    ----------
    value : number, array, pair of arrays, function or None
    shapes : list of shapes
        Of each of the arrays of a pair, or of the only one: their entries, one after the other, are numbered.
    states : int
        Length of the row that each number has; 0 for a single value.
    argument, function : str
        Of the public function that makes the model: errors name both, also long after it has returned.
    """

    def __init__(self, value: Any, shapes: list[tuple[int, ...]], states: int, argument: str, function: str) -> None:
        self._arguments = (value, shapes, states, argument, function)
        self._row = (states,) if states else ()
        self._what = "edge" if argument == "couplings" else "variable"
        self._function, self._argument = function, argument
        self._call = value if callable(value) else None
        self._constant = 0.0
        self._arrays: list[Any] = []
        if value is None or callable(value):
            return
        size = sum(int(np.prod(shape)) for shape in shapes)
        if isinstance(value, tuple) and len(value) == len(shapes) == 2 and np.ndim(value[0]) == 2:
            allowed = [[shape] for shape in shapes]
        else:
            value, allowed = (value,), [[(size,), *(shapes if len(shapes) == 1 else [])]]
        for part, choices in zip(value, allowed, strict=True):
            array = part if isinstance(part, np.ndarray) else check.real_array(part, argument)
            if array.dtype.kind not in "biuf":
                raise ArgumentError(argument, "an array of real numbers", got=f"an array of {array.dtype}")
            if array.ndim == 0 and not states and len(value) == 1:
                self._constant = float(check.finite(np.asarray(array, dtype=np.float64), argument))
            elif array.shape not in [(*choice, *self._row) for choice in choices]:
                shape = (*choices[-1], *self._row)
                ways = f"a function or an array of shape {shape}"
                pair = f", or (right, down) of shapes {tuple(shapes)}" if len(shapes) == 2 else ""
                requirement = ways + pair if states else f"a number, {ways}{pair}"
                raise ArgumentError(argument, requirement, got=f"shape {array.shape}")
            else:
                self._arrays.append(array)

    def __reduce__(self) -> tuple[Any, ...]:
        value, *rest = self._arguments
        return _lookup, (_each(pack, value), *rest)

    def __call__(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        shape = (len(numbers), *self._row)
        if not len(numbers):
            return np.zeros(shape)
        if self._call is not None:
            return self._ask(numbers, shape)
        if not self._arrays:
            return np.full(shape, self._constant)
        values, first = np.empty(shape), 0
        for array in self._arrays:
            lead = array.shape[: array.ndim - len(self._row)]
            size = int(np.prod(lead))
            own = (numbers >= first) & (numbers < first + size)
            values[own] = array[np.unravel_index(numbers[own] - first, lead)]
            first += size
        return values

    def _ask(self, numbers: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Call the function; an exception or a wrong result of it becomes an `ArgumentError`."""
        assert self._call is not None
        where = f"{self._what} numbers {numbers.min()} to {numbers.max()}"
        try:
            values = np.asarray(self._call(numbers.copy()))
        except Exception as error:
            requirement = f"a function of an array of {self._what} numbers"
            got = f"{type(error).__name__}: {error}"
            raise ArgumentError(self._argument, requirement, got=got, where=where, function=self._function) from error
        if values.dtype.kind not in "biuf":
            requirement = "a function that returns an array of real numbers"
            raise ArgumentError(
                self._argument, requirement, got=f"{values.dtype}", where=where, function=self._function
            )
        if values.shape != shape:
            requirement = f"a function that returns an array of shape {shape}"
            raise ArgumentError(
                self._argument, requirement, got=f"shape {values.shape}", where=where, function=self._function
            )
        return values.astype(np.float64)


def _lookup(value: Any, *rest: Any) -> Lookup:
    return Lookup(_each(unpack, value), *rest)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """A function of a value, or of each of a pair."""
    return tuple(map(function, value)) if isinstance(value, tuple) else function(value)
