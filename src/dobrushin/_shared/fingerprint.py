"""A name for what a result depends on: the same only for the same."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np
from scipy import sparse

Add = Callable[[Any], None]
Write = Callable[[Any], None]


def fingerprint(*parts: Any) -> str:
    """Everything that is in a value counts: arrays by their bytes, functions by their code and what they hold."""
    digest = hashlib.blake2b(digest_size=32)
    inside: list[int] = []

    def add(part: Any) -> None:
        digest.update(f"\n{type(part).__module__}.{type(part).__qualname__} ".encode())
        if id(part) not in inside:  # what holds itself is only named there
            inside.append(id(part))
            _take(part, add, digest.update)
            inside.pop()

    for value in parts:
        add(value)
    return digest.hexdigest()


@functools.singledispatch
def _take(part: Any, add: Add, write: Write) -> None:
    if hasattr(part, "__dict__") and (dataclasses.is_dataclass(part) or not isinstance(part, type)):
        # What objects keep of earlier work is not part of what they are.
        kept = {f.name for f in dataclasses.fields(part) if not f.compare} if dataclasses.is_dataclass(part) else ()
        add({k: v for k, v in vars(part).items() if k not in kept and not _is_computed(type(part), k)})
    else:
        write(repr(part).encode())


@_take.register
def _(part: np.ndarray, add: Add, write: Write) -> None:
    if part.dtype == object:
        _take_items(part, add, write)
    else:
        write(f"{part.dtype} {part.shape} ".encode())
        write(np.ascontiguousarray(part).data if part.size else b"")


@_take.register(list)
@_take.register(tuple)
def _take_items(part: Any, add: Add, write: Write) -> None:
    write(f"{len(part)} ".encode())
    for value in part:
        add(value)


@_take.register(Mapping)
def _(part: Mapping[Any, Any], add: Add, _: Write) -> None:
    for name in sorted(part, key=repr):
        add(name)
        add(part[name])


@_take.register(Set)
def _(part: Set[Any], add: Add, _: Write) -> None:
    for value in sorted(part, key=repr):
        add(value)


@_take.register
def _(part: types.FunctionType, add: Add, write: Write) -> None:
    write(f"{part.__module__}.{part.__qualname__} ".encode() + part.__code__.co_code)
    held = [cell.cell_contents for cell in part.__closure__ or () if _is_filled(cell)]
    constants = [value for value in part.__code__.co_consts if not isinstance(value, types.CodeType)]
    add([constants, held, part.__defaults__, part.__kwdefaults__])


@_take.register
def _(part: types.MethodType, add: Add, _: Write) -> None:
    add([part.__func__, part.__self__])


@_take.register(functools.partial)
def _(part: Any, add: Add, _: Write) -> None:
    add([part.func, part.args, part.keywords])


@_take.register(sparse.sparray)
@_take.register(sparse.spmatrix)
def _(part: Any, add: Add, _: Write) -> None:
    rows = part.tocsr()
    add([part.shape, rows.indptr, rows.indices, rows.data])


def _is_computed(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), functools.cached_property)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - empty ones raise
    except ValueError:
        return False
    return True
