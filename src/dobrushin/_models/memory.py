"""The memory of a model: results of later stages, kept as long as the model or the form that they belong to.

A stage declares a `Slot` for each kind of value and gets values by `memory.get(slot, make)`, which computes a value
that is missing. The memory is bounded and is not pickled.
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
    """Return approximately the number of bytes of the arrays in a value, which may be a container or a dataclass."""
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
    """A kind of value that a stage keeps: at most `max_values` of them, of at most `max_bytes` bytes when made.

    The value that was used last stays even if it is larger.
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
    """Values by slot and key; the values of a slot that were used last are kept."""

    def __init__(self) -> None:
        self._values: dict[Slot[Any], OrderedDict[Hashable, tuple[Any, int]]] = {}  # with their bytes
        self._lock = RLock()
        self._origin: Memory | None = None

    @property
    def common(self) -> Memory:
        """The memory that a model shares with its parts, for values that are not about one of them."""
        return self if self._origin is None else self._origin

    def share(self, whole: Memory) -> None:
        """Use the common memory of another model, which the owner of this memory is a part of."""
        self._origin = whole.common

    def get(self, slot: Slot[T], make: Callable[[], T], key: Hashable = None) -> T:
        """Return the value kept under a key; make it if it is missing."""
        with self._lock:
            values = self._values.setdefault(slot, OrderedDict())
            if key in values:
                values.move_to_end(key)
                return cast(T, values[key][0])
        made = make()  # without the lock: threads that `make` waits for may need other values
        size = slot.bytes_of(made) if slot.max_values > 1 else 0
        with self._lock:
            value, _ = values.setdefault(key, (made, size))
            values.move_to_end(key)
            total = sum(size for _, size in values.values())
            while len(values) > 1 and (len(values) > slot.max_values or total > slot.max_bytes):
                total -= values.popitem(last=False)[1][1]
        return cast(T, value)

    def values(self, slot: Slot[T]) -> list[T]:
        """Return the values of a slot, the value that was used last at the end."""
        with self._lock:
            return [value for value, _ in self._values.get(slot, {}).values()]

    def forget(self, slot: Slot[Any]) -> None:
        """Drop all values of a slot."""
        with self._lock:
            self._values.pop(slot, None)
