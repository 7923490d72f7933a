"""The memory of a model: results of later stages, kept as long as the model or the form that they belong to.

A stage declares a `Slot` for each kind of value and asks for values by `memory.get(slot, make)`. Nothing rests on a
value being there: memory is bounded, is not pickled, and is no part of what a model is.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import Any, Generic, TypeVar, cast

import numpy as np
from scipy import sparse

T = TypeVar("T")


def held_bytes(value: Any) -> int:
    """Return about how many bytes the arrays of a value take: of a dataclass, those of its fields."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, sparse.csr_array):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    if isinstance(value, tuple | list):
        return 8 * len(value) + sum(map(held_bytes, value))
    if dataclasses.is_dataclass(value):
        value = vars(value)
    return sum(map(held_bytes, value.values())) if isinstance(value, Mapping) else 0


@dataclass(frozen=True, eq=False)
class Slot(Generic[T]):
    """A kind of value that a stage keeps: at most `max_values`, which took at most `max_bytes` when they were made.

    The value that was used last stays, however large it is.
    """

    name: str
    max_values: int = 1
    max_bytes: int = 2**28
    bytes_of: Callable[[T], int] = held_bytes


def lasting(owner: object) -> dict[str, Any]:
    """Return the attributes of an object that are pickled: neither its memory nor cached properties."""
    members = {name: value for kind in reversed(type(owner).__mro__) for name, value in vars(kind).items()}
    return {name: value for name, value in vars(owner).items() if not isinstance(members.get(name), cached_property)}


class Memory:
    """Values by slot and key; of each slot, those that were used last."""

    def __init__(self) -> None:
        self._values: dict[Slot[Any], OrderedDict[Hashable, tuple[Any, int]]] = {}  # with their bytes
        self._lock = RLock()
        self._origin: Memory | None = None

    @property
    def common(self) -> Memory:
        """The memory that a model shares with its parts, for values that are not about one of them."""
        return self if self._origin is None else self._origin

    def share(self, whole: Memory) -> None:
        """Let the model be a part of another one, whose memory this is."""
        self._origin = whole.common

    def get(self, slot: Slot[T], make: Callable[[], T], key: Hashable = None) -> T:
        """Return the value kept under a key; make it if it is missing."""
        with self._lock:
            values = self._values.setdefault(slot, OrderedDict())
            if key in values:
                values.move_to_end(key)
                return cast(T, values[key][0])
        made = make()  # without the lock: threads that this waits for may ask for other values
        size = slot.bytes_of(made) if slot.max_values > 1 else 0
        with self._lock:
            value, _ = values.setdefault(key, (made, size))
            values.move_to_end(key)
            total = sum(size for _, size in values.values())
            while len(values) > 1 and (len(values) > slot.max_values or total > slot.max_bytes):
                total -= values.popitem(last=False)[1][1]
        return cast(T, value)

    def values(self, slot: Slot[T]) -> list[T]:
        """Return what is kept, the value that was used last at the end."""
        with self._lock:
            return [value for value, _ in self._values.get(slot, {}).values()]

    def forget(self, slot: Slot[Any]) -> None:
        """Drop all values of a slot."""
        with self._lock:
            self._values.pop(slot, None)
