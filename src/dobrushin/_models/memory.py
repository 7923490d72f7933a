"""Cache of a model: values that other modules compute from it, kept as long as the model or form exists.

Each kind of value has a `Slot`. `memory.get(slot, make)` returns the cached value, or calls `make` and caches the
result. The cache is bounded and is not pickled.
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
    """Return the approximate number of bytes of the arrays in a value, which may be a container or a dataclass."""
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
    """One kind of cached value, with limits on the number of values and on their total bytes.

    The most recently used value is kept even if it exceeds `max_bytes`.
    """

    name: str
    max_values: int = 1
    max_bytes: int = 2**28
    bytes_of: Callable[[T], int] = held_bytes


def lasting(owner: object) -> dict[str, Any]:
    """Return the attributes of an object that are pickled, which excludes cached properties."""
    members = {name: value for kind in reversed(type(owner).__mro__) for name, value in vars(kind).items()}
    return {name: value for name, value in vars(owner).items() if not isinstance(members.get(name), cached_property)}


class Memory:
    """Cache of values by slot and key; the least recently used values of a slot are dropped first."""

    def __init__(self) -> None:
        self._values: dict[Slot[Any], OrderedDict[Hashable, tuple[Any, int]]] = {}  # with their bytes
        self._lock = RLock()
        self._origin: Memory | None = None

    @property
    def common(self) -> Memory:
        """Return the cache that a model shares with its parts, for values that do not depend on the part."""
        return self if self._origin is None else self._origin

    def share(self, whole: Memory) -> None:
        """Use the common cache of another model, of which this one is a part."""
        self._origin = whole.common

    def get(self, slot: Slot[T], make: Callable[[], T], key: Hashable = None) -> T:
        """Return the cached value of a slot and key; call `make` if there is none."""
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
        """Return the cached values of a slot, the most recently used one last."""
        with self._lock:
            return [value for value, _ in self._values.get(slot, {}).values()]

    def forget(self, slot: Slot[Any]) -> None:
        with self._lock:
            self._values.pop(slot, None)
