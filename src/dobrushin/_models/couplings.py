"""Reading of users' arguments: couplings as arrays, matrices, dicts or graphs, and factors as lists or arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from dobrushin._shared import validate as check
from dobrushin._shared.arrays import UNIT, Array, Bools, Floats, Ints, frozen, in_cache, prefix_sums
from dobrushin.errors import ArgumentError


def is_graph(value: object) -> bool:
    """Return whether an object is a networkx graph, by its attributes, so that networkx stays optional."""
    return hasattr(value, "nodes") and hasattr(value, "edges") and hasattr(value, "is_directed")


def symmetric(i: Array, j: Array, weights: Floats, n: int) -> Any:
    """Return the symmetric CSR matrix of couplings that are given once for each unordered pair."""
    index = np.int32 if n < 2**31 and 2 * len(i) < 2**31 else np.int64
    rows = np.concatenate([i, j]).astype(index, copy=False)
    columns = np.concatenate([j, i]).astype(index, copy=False)
    matrix = sparse.coo_array((np.concatenate([weights, weights]), (rows, columns)), shape=(n, n)).tocsr()
    return _freeze(matrix)


def restrict_couplings(matrix: Any, kept: Bools) -> Any:
    """Return the matrix of the couplings among the variables selected by `kept`."""
    return _freeze(matrix[kept][:, kept])


def couplings_of_part(row: Ints, column: Ints, values: Floats, inner: Bools) -> Any:
    """Return the symmetric matrix of the couplings in a part of a model, from the matrix rows of its inner variables.

    A coupling between an outer variable and an inner one is taken from the row of the inner one.
    """
    n, outer = len(inner), ~inner[column]
    column, row = np.concatenate([column, row[outer]]), np.concatenate([row, column[outer]])
    values = np.concatenate([values, values[outer]])
    order = np.argsort(row * n + column)
    order = order[values[order] != 0]
    start = prefix_sums(np.bincount(row[order], minlength=n)).astype(np.int32)
    parts = (values[order], column[order].astype(np.int32), start)
    return sparse.csr_array(tuple(frozen(part) for part in parts), shape=(n, n))


class Pairs(NamedTuple):
    """Couplings and potentials as read from the user's arguments.

    Attributes
    ----------
    couplings : CSR matrix
        Symmetric, without zeros.
    labels : sequence or None
        Labels of the variables; None: 0..n-1.
    potentials : array or None
        Fields or unaries, not checked yet.
    error : float
        Bound on the error of the log-density that comes from rounding the couplings.
    """

    couplings: Any
    labels: Sequence[Hashable] | None
    potentials: Any
    error: float


def read_pairs(
    couplings: Any, potentials: Any, argument: str, attribute: str, zero: Any, weight: str = "weight"
) -> Pairs:
    """Read couplings in any accepted form, together with fields or unaries.

    The labels of fields or unaries define the variables only if there are no couplings.

    Parameters
    ----------
    argument : str
        Name of the user's argument that holds `potentials`.
    attribute, weight : str
        Names of the node and edge attributes of a graph that hold potentials and couplings.
    zero : number or array
        Potential of a variable without a given one.
    """
    labels: Sequence[Hashable] | None = None
    if isinstance(couplings, Mapping) and not sparse.issparse(couplings):  # some sparse matrices are dicts too
        for key in couplings:
            if not isinstance(key, tuple) or len(key) != 2 or key[0] == key[1]:
                raise ArgumentError("couplings", "a dict whose keys are pairs of distinct labels", key)
            if (key[1], key[0]) in couplings:
                raise ArgumentError("couplings", "given once for each unordered pair", key, "both orders")
        n, labels, lookup = name_variables(list(couplings), "couplings", potentials)
        entries = [(key, f"key {key!r}", value) for key, value in couplings.items()]
    elif is_graph(couplings):
        if couplings.is_directed() or couplings.is_multigraph():
            raise ArgumentError("couplings", "an undirected simple graph", got=type(couplings).__name__)
        labels = list(couplings.nodes)
        n, lookup, entries = len(labels), check.lookup_table(labels), []
        for a, b, data in couplings.edges(data=True):
            if a == b:
                raise ArgumentError("couplings", "a graph without self-loops", (a, b))
            if weight not in data:
                raise ArgumentError("couplings", f"a graph whose edges all have the attribute {weight!r}", (a, b))
            entries.append(((a, b), f"edge {(a, b)!r}", data[weight]))
        if potentials is None:
            potentials = [data.get(attribute, zero) for _, data in couplings.nodes(data=True)]
    else:
        matrix, error = _read_matrix(couplings)
        return Pairs(matrix, None, by_position(potentials, range(matrix.shape[0]), zero, argument), error)
    pairs = np.array([key if lookup is None else (lookup[key[0]], lookup[key[1]]) for key, _, _ in entries])
    i, j = pairs.reshape(-1, 2).astype(np.int64).T
    weights, error = read_weights(entries, "couplings")
    potentials = by_position(potentials, range(n) if labels is None else labels, zero, argument)
    return Pairs(symmetric(i, j, weights, n), labels, potentials, error)


def read_weights(entries: list[tuple[Any, str, Any]], argument: str) -> tuple[Floats, float]:
    """Convert numbers to doubles, and bound the sum of the rounding errors.

    Each entry is a triple: a key, the number's place in the argument (for messages), and the number.
    """
    weights, rounded = np.empty(len(entries)), np.zeros(len(entries), dtype=np.bool_)
    for k, (_, where, value) in enumerate(entries):
        try:
            weights[k] = float(value)
        except (TypeError, ValueError, OverflowError):
            weights[k] = np.nan
        if not abs(weights[k]) <= check.LARGEST:
            raise ArgumentError(argument, check.FINITE, value, where)
        exact = int(value) if check.is_whole(value) else value
        rounded[k] = float(weights[k]) != exact  # a fraction, a decimal or a large whole number, say
    return weights, float(UNIT * np.abs(weights[rounded]).sum() * 1.001 + 2.0**-1074 * rounded.sum())


def name_variables(
    keys: Sequence[tuple[Hashable, ...]], argument: str, per_variable: Any
) -> tuple[int, Sequence[Hashable] | None, dict[Hashable, int] | None]:
    """Return the variables that tuples of labels mention: their number, labels, and a dict from label to position.

    Labels that are all whole numbers are positions; they must not be negative, and every smaller number is a variable
    too. Other labels are numbered in order of appearance.
    """
    names: dict[Hashable, int] = {}
    for key in keys:
        for name in key:
            names.setdefault(name, len(names))
    is_named = isinstance(per_variable, Mapping)
    if is_named and not names:  # else a misspelt label would add a variable
        for name in per_variable:
            names.setdefault(name, len(names))
    if all(check.is_whole(name) for name in names):
        least = min((int(name) for name in names), default=0)  # type: ignore[call-overload]
        if least < 0:
            requirement = "labels that are not negative if they are whole numbers, which are positions"
            raise ArgumentError(argument, requirement, least)
        n = 1 + max((int(name) for name in names), default=-1)  # type: ignore[call-overload]
        if per_variable is not None and not is_named and np.ndim(per_variable) >= 1:
            size = len(per_variable)
            if n > size:
                raise ArgumentError(argument, f"positions below {size}, the number of given potentials", n - 1)
            n = size
        if n > 10**6 + 100 * len(names):
            requirement = "labels that are positions if they are whole numbers (name variables by strings otherwise)"
            raise ArgumentError(argument, requirement, n - 1)
        return n, None, None
    return len(names), tuple(names), names


def by_position(value: Any, labels: Sequence[Hashable], fill: Any, name: str) -> Any:
    """Convert a dict over labels to an array over variables; return any other value unchanged."""
    if not isinstance(value, Mapping):
        return value
    array = np.array([fill] * len(labels), dtype=np.float64)
    lookup = check.lookup_table(labels)
    positions = check.positions(list(value), labels, lookup, name).tolist() if value else []
    for i, entry in zip(positions, value.values(), strict=True):
        row = check.real_array(entry, name)
        if row.shape != array[i].shape:
            raise ArgumentError(name, f"of shape {array[i].shape} for each label", got=f"shape {row.shape}")
        array[i] = row
    return array


def read_fields(fields: Any, n: int) -> Floats:
    """Read the argument `fields`, a number, an array or None, as an array of one number for each variable."""
    array = check.real_array(0.0 if fields is None else fields, "fields")
    if array.ndim and array.shape != (n,):
        raise ArgumentError("fields", f"a number or an array of shape {(n,)}", got=f"shape {array.shape}")
    return frozen(np.broadcast_to(check.finite(array, "fields"), (n,)).copy())


def _read_matrix(value: ArrayLike) -> tuple[Any, float]:
    """Read a symmetric matrix; also bound the error of the log-density from adding up duplicate entries."""
    error = 0.0
    matrix = check.square_matrix(value, "couplings", "a square matrix, a dict of edges or a networkx graph")
    if sparse.issparse(value):
        entries = sparse.coo_array(value)
        if entries.nnz > matrix.nnz:
            place = entries.coords[0].astype(np.int64) * matrix.shape[1] + entries.coords[1]
            _, which, counts = np.unique(place, return_inverse=True, return_counts=True)
            sizes = np.bincount(which, weights=np.abs(entries.data.astype(np.float64)))
            error = float(2.0 * UNIT * ((counts + 2) * sizes)[counts > 1].sum())
    check.matrix_entries(np.abs(matrix.data) <= check.LARGEST, matrix, "couplings", check.FINITE)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    check.matrix_entries((rows != matrix.indices) | (matrix.data == 0), matrix, "couplings", "zero on the diagonal")
    difference = sparse.coo_array(matrix - matrix.T)
    if (uneven := difference.data != 0).any():
        k = int(np.argmax(uneven))
        i, j = int(difference.coords[0][k]), int(difference.coords[1][k])
        pair = (float(matrix[i, j]), float(matrix[j, i]))
        raise ArgumentError(
            "couplings", "symmetric (in place of a triangle A pass A + A.T)", pair, f"indices {(i, j)} and {(j, i)}"
        )
    return _freeze(matrix), error


def _freeze(matrix: Any) -> Any:
    matrix.eliminate_zeros()
    matrix.sort_indices()
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.setflags(write=False)
    return matrix


def site_values(values: Any, rows: int, cols: int, argument: str) -> Floats:
    """Return one number for each site of a grid, from a number or an array."""
    array = check.real_array(values, argument)
    if array.ndim and array.shape not in ((rows, cols), (rows * cols,)):
        raise ArgumentError(argument, f"a number or an array of shape {(rows, cols)}", got=f"shape {array.shape}")
    return np.broadcast_to(array, (rows, cols) if array.ndim != 1 else array.shape).ravel()


# -- factors ------------------------------------------------------------------------------------

# Variables of a factor up to which they are compared pair by pair; for more, sorting is faster.
_MAX_PAIRED_MEMBERS = 4


def read_factors(factors: Iterable[tuple[Any, ArrayLike]], sizes: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """Read pairs (scope, log-table) into flat arrays: starts of the scopes, scopes, starts of the tables, tables."""
    known, scopes, tables = sizes.tolist(), [], []
    for k, factor in enumerate(factors):
        where = f"factor {k}"
        try:
            scope, table = factor
            scope = tuple(scope)
            if not all(map(check.is_whole, scope)):
                raise TypeError
        except (TypeError, ValueError):
            requirement = "pairs (scope, log_table) with a scope of positions"
            raise ArgumentError("factors", requirement, factor, where) from None
        scope = tuple(map(int, scope))
        if scope and (min(scope) < 0 or max(scope) >= len(known)):
            raise ArgumentError("factors", f"on scopes of positions from 0 to {len(known) - 1}", scope, where)
        if len(set(scope)) < len(scope):
            raise ArgumentError("factors", "on distinct variables", scope, where)
        array, shape = check.real_array(table, "factors"), tuple(known[v] for v in scope)
        if array.shape != shape:
            requirement = f"tables of the shape {shape} of their scope {scope}"
            raise ArgumentError("factors", requirement, got=f"shape {array.shape}", where=where)
        scopes.append(scope)
        tables.append(array.ravel())
    scope_start = prefix_sums(np.array([len(scope) for scope in scopes], dtype=np.int64))
    table_start = prefix_sums(np.array([len(table) for table in tables], dtype=np.int64))
    flat = np.concatenate([*tables, np.empty(0)])
    if not (fine := check.is_log_potential(flat)).all():
        entry = int(np.argmin(fine))
        owner = int(np.searchsorted(table_start, entry, side="right")) - 1
        raise ArgumentError("factors", check.LOG_POTENTIAL, flat[entry], f"factor {owner}")
    return scope_start, np.array(list(itertools.chain.from_iterable(scopes)), dtype=np.int64), table_start, flat


def read_blocks(scopes: Any, tables: Any, sizes: Ints) -> list[tuple[Array, Floats]]:
    """Read blocks of factors of equal shape: arrays of scopes (F, arity) and of flat tables (F, size)."""
    several = isinstance(scopes, list | tuple) and all(isinstance(part, np.ndarray) for part in scopes)
    pairs = (list(scopes), list(tables)) if several else ([scopes], [tables])
    if len(pairs[0]) != len(pairs[1]):
        got = f"{len(pairs[1])} arrays for {len(pairs[0])} of scopes"
        raise ArgumentError("tables", "an array for each entry of 'scopes'", got=got)
    return [_read_block(scope, table, sizes) for scope, table in zip(*pairs, strict=True)]


def _read_block(scopes: Any, tables: Any, sizes: Ints) -> tuple[Array, Floats]:
    scope = np.asarray(scopes)
    if scope.ndim != 2 or (scope.size and scope.dtype.kind not in "iu"):
        raise ArgumentError("scopes", "arrays of positions of shape (F, arity)", scopes)
    scope = scope if scope.size else scope.astype(np.int64)
    table = check.real_array(tables, "tables")
    if table.ndim != scope.shape[1] + 1 or len(table) != len(scope):
        requirement = f"of shape {(len(scope), *['k'] * scope.shape[1])}".replace("'", "")
        raise ArgumentError("tables", requirement, got=f"shape {table.shape}")
    flat = table.reshape(len(table), math.prod(table.shape[1:]))
    short = sizes.astype(np.min_scalar_type(sizes.max()))  # a small type, because sizes are looked up at random
    for few in in_cache(len(scope), scope.shape[1] + flat.shape[1]):
        _check_rows(scope[few], table[few], short, few.start)
    return scope, flat


def _check_rows(scope: Array, table: Floats, sizes: Array, at: int) -> None:
    """Raise ArgumentError for the first factor with an invalid scope or table.

    `at` is the number of the factor in the first row.
    """
    n = len(sizes)
    if not (fine := (scope >= 0) & (scope < n)).all():
        k, place = check.first(~fine)
        where = check.place((at + k, place))
        raise ArgumentError("scopes", f"positions from 0 to {n - 1}", scope[k, place], where)
    twice = np.zeros(len(scope), dtype=np.bool_)
    if scope.shape[1] > _MAX_PAIRED_MEMBERS:
        ordered = np.sort(scope, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    else:
        for first, second in itertools.combinations(scope.T, 2):
            twice |= first == second
    if twice.any():
        k = int(np.argmax(twice))
        raise ArgumentError("scopes", "of distinct variables", tuple(scope[k].tolist()), f"index {at + k}")
    if (wrong := sizes[scope] != table.shape[1:]).any():
        k = check.first(wrong)[0]
        requirement = f"of the shape {tuple(sizes[scope[k]].tolist())} of the scope {tuple(scope[k].tolist())}"
        raise ArgumentError("tables", requirement, got=f"shape {table.shape[1:]}", where=f"index {at + k}")
    if not (fine := check.is_log_potential(table)).all():
        index = check.first(~fine)
        raise ArgumentError("tables", check.LOG_POTENTIAL, table[index], f"index {at + index[0]}")


def read_cardinalities(value: ArrayLike, argument: str) -> Ints:
    """Read numbers of states, each at least 2."""
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ArgumentError(argument, "a sequence of whole numbers", value)
    check.all_entries(array >= 2, array, argument, "at least 2")
    return array.astype(np.int64)
