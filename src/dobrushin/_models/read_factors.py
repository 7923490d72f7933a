"""Factors as people give them: in a list, or in arrays of many of one shape."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._shared import validate as check
from dobrushin._shared.arrays import in_cache, prefix_sums
from dobrushin.errors import ArgumentError

# Members of a factor that are compared pair by pair; to sort more takes less time.
FEW = 4
Factors = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def read_factors(factors: Iterable[tuple[Any, ArrayLike]], sizes: NDArray[np.int64]) -> Factors:
    """Scopes and tables, each with their starts. They are looked at together, and one by one to say what is wrong."""
    items = list(factors)
    try:
        scopes = [tuple(scope) for scope, _ in items]
        flat = [v for scope in scopes for v in scope]
        arrays = [check.real_array(table, "factors") for _, table in items]
        known = sizes.tolist()
        shapes = [tuple(map(known.__getitem__, scope)) for scope in scopes]
        fine = all(map(check.is_whole, {type(v): v for v in flat}.values())) and min(flat, default=0) >= 0
        fine = fine and shapes == [array.shape for array in arrays] and all(len(set(s)) == len(s) for s in scopes)
    except (TypeError, ValueError, IndexError, ArgumentError):
        fine = False
    table = np.concatenate([*(array.ravel() for array in arrays), np.empty(0)]) if fine else np.empty(0)
    if not fine or not check.is_log_potential(table).all():
        for k, factor in enumerate(items):
            _check_factor(k, factor, sizes)
        raise ArgumentError("factors", "pairs (scope, log_table)", factors)
    arity = np.array([len(scope) for scope in scopes], dtype=np.int64)
    size = np.array([array.size for array in arrays], dtype=np.int64)
    return prefix_sums(arity), np.array(flat, dtype=np.int64), prefix_sums(size), table


def _check_factor(k: int, factor: Any, sizes: NDArray[np.int64]) -> None:
    """Fail if one factor is wrong."""
    where = f"factor {k}"
    try:
        scope, table = factor
        scope = tuple(scope)
        if not all(map(check.is_whole, scope)):
            raise TypeError
        scope_array = np.array(scope, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        requirement = "pairs (scope, log_table) with a scope of positions"
        raise ArgumentError("factors", requirement, factor, where) from None
    if scope_array.size and (scope_array.min() < 0 or scope_array.max() >= len(sizes)):
        requirement = f"on scopes of positions from 0 to {len(sizes) - 1}"
        raise ArgumentError("factors", requirement, tuple(scope), where)
    if len(set(scope_array.tolist())) < len(scope_array):
        raise ArgumentError("factors", "on distinct variables", tuple(scope), where)
    array = check.real_array(table, "factors")
    shape = tuple(int(c) for c in sizes[scope_array])
    if array.shape != shape:
        requirement = f"tables of the shape {shape} of their scope {tuple(scope_array.tolist())}"
        raise ArgumentError("factors", requirement, got=f"shape {array.shape}", where=where)
    if not (fine := check.is_log_potential(array)).all():
        raise ArgumentError("factors", check.LOG_POTENTIAL, array[check.first(~fine)], where)


def read_blocks(scopes: Any, tables: Any, sizes: NDArray[np.int64]) -> list[tuple[NDArray[Any], NDArray[np.float64]]]:
    """Blocks of factors of one shape: scopes (F, arity) and flat tables (F, size)."""
    several = isinstance(scopes, list | tuple) and all(isinstance(part, np.ndarray) for part in scopes)
    pairs = (list(scopes), list(tables)) if several else ([scopes], [tables])
    if len(pairs[0]) != len(pairs[1]):
        got = f"{len(pairs[1])} arrays for {len(pairs[0])} of scopes"
        raise ArgumentError("tables", "an array for each one of scopes", got=got)
    return [_read_block(scope, table, sizes) for scope, table in zip(*pairs, strict=True)]


def _read_block(scopes: Any, tables: Any, sizes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    scope = np.asarray(scopes)
    if scope.ndim != 2 or (scope.size and scope.dtype.kind not in "iu"):
        raise ArgumentError("scopes", "arrays of positions of shape (F, arity)", scopes)
    scope = scope if scope.size else scope.astype(np.int64)
    table = check.real_array(tables, "tables")
    if table.ndim != scope.shape[1] + 1 or len(table) != len(scope):
        requirement = f"of shape {(len(scope), *['k'] * scope.shape[1])}".replace("'", "")
        raise ArgumentError("tables", requirement, got=f"shape {table.shape}")
    flat = table.reshape(len(table), math.prod(table.shape[1:]))
    short = sizes.astype(np.min_scalar_type(sizes.max()))  # they are looked up in any order
    for few in in_cache(len(scope), scope.shape[1] + flat.shape[1]):
        _check_rows(scope[few], table[few], short, few.start)
    return scope, flat


def _check_rows(scope: NDArray[Any], table: NDArray[np.float64], sizes: NDArray[Any], at: int) -> None:
    """Fail if one of some factors is wrong; the first of them has number `at`."""
    n = len(sizes)
    if not (fine := (scope >= 0) & (scope < n)).all():
        k, place = check.first(~fine)
        where = check.place((at + k, place))
        raise ArgumentError("scopes", f"positions from 0 to {n - 1}", scope[k, place], where)
    if (twice := _repeats(scope)).any():
        k = int(np.argmax(twice))
        raise ArgumentError("scopes", "of distinct variables", tuple(scope[k].tolist()), f"index {at + k}")
    if (wrong := sizes[scope] != table.shape[1:]).any():
        k = check.first(wrong)[0]
        requirement = f"of the shape {tuple(sizes[scope[k]].tolist())} of the scope {tuple(scope[k].tolist())}"
        raise ArgumentError("tables", requirement, got=f"shape {table.shape[1:]}", where=f"index {at + k}")
    if not (fine := check.is_log_potential(table)).all():
        index = check.first(~fine)
        raise ArgumentError("tables", check.LOG_POTENTIAL, table[index], f"index {at + index[0]}")


def _repeats(scope: NDArray[Any]) -> NDArray[np.bool_]:
    """Which scopes name a variable twice."""
    arity = scope.shape[1]
    if arity > FEW:
        ordered = np.sort(scope, axis=1)
        return (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    twice = np.zeros(len(scope), dtype=np.bool_)
    for first, second in itertools.combinations(scope.T, 2):
        twice |= first == second
    return twice


def read_cardinalities(value: ArrayLike, argument: str) -> NDArray[np.int64]:
    """Numbers of states, each at least 2."""
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ArgumentError(argument, "a sequence of whole numbers", value)
    check.all_entries(array >= 2, array, argument, "at least 2")
    return array.astype(np.int64)
