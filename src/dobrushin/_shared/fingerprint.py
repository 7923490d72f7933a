"""A name for what a result depends on: the same only for the same."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
from scipy import sparse

# What objects remember of earlier work is not part of what they are.
_MEMORY = ("orders", "arranged", "_workspace", "_known_influence")


def fingerprint(*parts: Any) -> str:
    """Everything that is in a value counts: arrays by their bytes, functions by their code and what they hold."""
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        _update(digest, part, ())
    return digest.hexdigest()


def _update(digest: Any, part: Any, above: tuple[int, ...]) -> None:
    digest.update(f"\n{type(part).__module__}.{type(part).__qualname__} ".encode())
    if id(part) in above:  # it holds itself
        return
    inside = (*above, id(part))
    if isinstance(part, np.ndarray) and part.dtype != object:
        digest.update(f"{part.dtype} {part.shape} ".encode())
        digest.update(np.ascontiguousarray(part).data if part.size else b"")
    elif isinstance(part, Mapping):
        for name in sorted(part, key=repr):
            _update(digest, name, inside)
            _update(digest, part[name], inside)
    elif isinstance(part, Set):
        for value in sorted(part, key=repr):
            _update(digest, value, inside)
    elif isinstance(part, list | tuple | np.ndarray):
        digest.update(f"{len(part)} ".encode())
        for value in part:
            _update(digest, value, inside)
    elif isinstance(part, types.FunctionType):
        digest.update(f"{part.__module__}.{part.__qualname__} ".encode() + part.__code__.co_code)
        held = [cell.cell_contents for cell in part.__closure__ or () if _is_filled(cell)]
        constants = [value for value in part.__code__.co_consts if not isinstance(value, types.CodeType)]
        _update(digest, [constants, held, part.__defaults__, part.__kwdefaults__], inside)
    elif isinstance(part, types.MethodType):
        _update(digest, [part.__func__, part.__self__], inside)
    elif isinstance(part, functools.partial):
        _update(digest, [part.func, part.args, part.keywords], inside)
    elif isinstance(part, sparse.sparray | sparse.spmatrix):
        rows = part.tocsr()
        _update(digest, [part.shape, rows.indptr, rows.indices, rows.data], inside)
    elif hasattr(part, "__dict__") and (dataclasses.is_dataclass(part) or not isinstance(part, type)):
        made = {k: v for k, v in vars(part).items() if k not in _MEMORY and not _is_computed(type(part), k)}
        _update(digest, made, inside)
    else:
        digest.update(repr(part).encode())


def _is_computed(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), functools.cached_property)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - empty ones raise
    except ValueError:
        return False
    return True
