"""Read what users give: couplings as arrays, sparse matrices, dicts or graphs; and factors in lists or arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen, in_cache, prefix_sums
from dobrushin.errors import ArgumentError


class Couplings(NamedTuple):
    """Symmetric couplings without zeros, and the labels of the variables (None: 0..n-1)."""

    matrix: Any
    labels: Sequence[Hashable] | None

    @property
    def names(self) -> Sequence[Hashable]:
        """The labels, written out."""
        return range(self.matrix.shape[0]) if self.labels is None else self.labels


def is_graph(value: object) -> bool:
    """Whether this is a networkx graph (found by its face, so that networkx stays optional)."""
    return hasattr(value, "nodes") and hasattr(value, "edges") and hasattr(value, "is_directed")


def symmetric(i: NDArray[Any], j: NDArray[Any], weights: NDArray[np.float64], n: int) -> Any:
    """Symmetric CSR matrix of couplings given once per unordered pair."""
    index = np.int32 if n < 2**31 and 2 * len(i) < 2**31 else np.int64
    rows = np.concatenate([i, j]).astype(index, copy=False)
    columns = np.concatenate([j, i]).astype(index, copy=False)
    matrix = sparse.coo_array((np.concatenate([weights, weights]), (rows, columns)), shape=(n, n)).tocsr()
    return _freeze(matrix)


def restrict_couplings(matrix: Any, kept: NDArray[np.bool_]) -> Any:
    """The couplings among some of the variables."""
    number, size = (np.cumsum(kept) - 1).astype(matrix.indices.dtype), int(kept.sum())
    inside = np.repeat(kept, np.diff(matrix.indptr)) & kept[matrix.indices]
    seen = prefix_sums(inside)[matrix.indptr]  # entries that are inside, before each row
    start = np.concatenate([[0], seen[1:][kept]]).astype(matrix.indptr.dtype)
    columns = number[matrix.indices[inside]]
    parts = (frozen(matrix.data[inside]), frozen(columns), frozen(start))
    return sparse.csr_array(parts, shape=(size, size))


def couplings_of_part(
    row: NDArray[np.int64], column: NDArray[np.int64], values: NDArray[np.float64], inner: NDArray[np.bool_]
) -> Any:
    """Symmetric couplings of a part from the rows of its inner variables.

    The couplings of an outer variable to inner ones are known from the rows of the inner ones.
    """
    n, outer = len(inner), ~inner[column]
    column, row = np.concatenate([column, row[outer]]), np.concatenate([row, column[outer]])
    values = np.concatenate([values, values[outer]])
    order = np.argsort(row * n + column)
    order = order[values[order] != 0]
    start = prefix_sums(np.bincount(row[order], minlength=n)).astype(np.int32)
    parts = (values[order], column[order].astype(np.int32), start)
    return sparse.csr_array(tuple(frozen(part) for part in parts), shape=(n, n))


def read_couplings(value: Any, per_variable: Any = None, weight: str = "weight") -> Couplings:
    """Couplings from any accepted form; `per_variable` (fields or unaries) may name further variables."""
    if isinstance(value, Mapping) and not sparse.issparse(value):  # some sparse matrices are dicts too
        labels, pairs, weights = _read_mapping(value, per_variable)
        return Couplings(symmetric(pairs[:, 0], pairs[:, 1], weights, labels[0]), labels[1])
    if is_graph(value):
        return _read_graph(value, weight)
    return Couplings(_read_matrix(value), None)


def read_node_attribute(graph: Any, name: str, default: Any) -> list[Any]:
    """An attribute of every node of a networkx graph, in node order."""
    return [data.get(name, default) for _, data in graph.nodes(data=True)]


def name_variables(
    keys: Sequence[tuple[Hashable, ...]], argument: str, per_variable: Any
) -> tuple[int, Sequence[Hashable] | None, dict[Hashable, int] | None]:
    """Number, labels and positions of the variables that index tuples speak of.

    Whole numbers are positions (so variables in between exist too) and must not be negative; any other labels are
    numbered in order of appearance.
    """
    names: dict[Hashable, int] = {}
    for key in keys:
        for name in key:
            names.setdefault(name, len(names))
    if is_named := isinstance(per_variable, Mapping):
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
                raise ArgumentError(argument, f"among the {size} variables that are given", n - 1)
            n = size
        if n > 10**6 + 100 * len(names):
            requirement = "labels that are positions if they are whole numbers (name variables by strings otherwise)"
            raise ArgumentError(argument, requirement, n - 1)
        return n, None, None
    return len(names), tuple(names), names


def by_position(value: Any, labels: Sequence[Hashable], fill: Any, name: str) -> Any:
    """An array over variables from a dict over labels; anything else as it is."""
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


def read_fields(fields: Any, n: int) -> NDArray[np.float64]:
    """One number per variable, from a number, an array or nothing."""
    array = check.real_array(0.0 if fields is None else fields, "fields")
    if array.ndim and array.shape != (n,):
        raise ArgumentError("fields", f"a number or an array of shape {(n,)}", got=f"shape {array.shape}")
    return frozen(np.broadcast_to(check.finite(array, "fields"), (n,)).copy())


def _read_mapping(value: Mapping[Any, Any], per_variable: Any) -> tuple[Any, Any, Any]:
    for key in value:
        if not isinstance(key, tuple) or len(key) != 2 or key[0] == key[1]:
            raise ArgumentError("couplings", "a dict whose keys are pairs of distinct labels", key)
        if (key[1], key[0]) in value:
            raise ArgumentError("couplings", "given once for each unordered pair", key, "both orders")
    n, labels, lookup = name_variables(list(value), "couplings", per_variable)
    pairs = np.array([(a, b) if lookup is None else (lookup[a], lookup[b]) for a, b in value], dtype=np.int64).reshape(
        -1, 2
    )
    weights = np.empty(len(value))
    for k, (key, entry) in enumerate(value.items()):
        weights[k] = _scalar(entry, "couplings", f"key {key!r}")
    return (n, labels), pairs, weights


def _read_graph(graph: Any, weight: str) -> Couplings:
    if graph.is_directed() or graph.is_multigraph():
        raise ArgumentError("couplings", "an undirected simple graph", got=type(graph).__name__)
    labels = list(graph.nodes)
    position = {label: i for i, label in enumerate(labels)}
    ends, weights = [], []
    for a, b, data in graph.edges(data=True):
        if a == b:
            raise ArgumentError("couplings", "a graph without self-loops", (a, b))
        if weight not in data:
            raise ArgumentError("couplings", f"a graph whose edges all have the attribute {weight!r}", (a, b))
        ends.append((position[a], position[b]))
        weights.append(_scalar(data[weight], "couplings", f"edge {(a, b)!r}"))
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    return Couplings(symmetric(pairs[:, 0], pairs[:, 1], np.array(weights, dtype=float), len(labels)), labels)


def _read_matrix(value: ArrayLike) -> Any:
    if sparse.issparse(value):
        matrix = check.sparse_matrix(value, "couplings")
        matrix.sum_duplicates()
    else:
        dense = check.real_array(value, "couplings")
        if dense.ndim != 2:
            raise ArgumentError(
                "couplings",
                "a square matrix, a dict of edges or a networkx graph",
                got=f"shape {dense.shape}",
            )
        matrix = sparse.csr_array(dense)
    if matrix.shape[0] != matrix.shape[1]:
        raise ArgumentError("couplings", "a square matrix", got=f"shape {matrix.shape}")
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    bad = ~(np.abs(matrix.data) <= check.LARGEST)
    if bad.any():
        k = int(np.argmax(bad))
        raise ArgumentError(
            "couplings", check.FINITE, matrix.data[k], f"index {(int(rows[k]), int(matrix.indices[k]))}"
        )
    if (loop := (rows == matrix.indices) & (matrix.data != 0)).any():
        k = int(np.argmax(loop))
        raise ArgumentError("couplings", "zero on the diagonal", matrix.data[k], f"index {(rows[k],) * 2}")
    difference = sparse.coo_array(matrix - matrix.T)
    if (uneven := difference.data != 0).any():
        k = int(np.argmax(uneven))
        i, j = int(difference.coords[0][k]), int(difference.coords[1][k])
        pair = (float(matrix[i, j]), float(matrix[j, i]))
        raise ArgumentError(
            "couplings", "symmetric (a triangle A becomes A + A.T)", pair, f"indices {(i, j)} and {(j, i)}"
        )
    return _freeze(matrix)


def _freeze(matrix: Any) -> Any:
    matrix.eliminate_zeros()
    matrix.sort_indices()
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.setflags(write=False)
    return matrix


def _scalar(value: Any, argument: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not abs(number) <= check.LARGEST:
        raise ArgumentError(argument, check.FINITE, value, where)
    return number


def grid_couplings(rows: int, cols: int, couplings: Any, periodic: bool) -> Any:
    """Symmetric CSR couplings of a grid.

    Edges come in this order: each site with its right neighbour, row by row, then each site with the one
    below, row by row. `couplings` is a number, an array over the edges, or the pair (right, down).
    """
    rows = check.count(rows, "rows")
    cols = check.count(cols, "cols")
    if periodic and 2 in (rows, cols):
        raise ArgumentError("periodic", "False when a side has 2 sites, whose edges would be double", (rows, cols))
    site = np.arange(rows * cols, dtype=np.int64 if rows * cols >= 2**31 else np.int32).reshape(rows, cols)
    shapes, starts, ends = [], [], []
    for axis in (1, 0):
        wrap = periodic and site.shape[axis] > 1
        start = site if wrap else (site[:, :-1] if axis == 1 else site[:-1])
        end = np.roll(site, -1, axis) if wrap else (site[:, 1:] if axis == 1 else site[1:])
        shapes.append(start.shape)
        starts.append(start.ravel())
        ends.append(end.ravel())
    i, j = np.concatenate(starts), np.concatenate(ends)
    return symmetric(i, j, _edge_values(couplings, shapes, len(i)), rows * cols)


def site_values(values: Any, rows: int, cols: int, argument: str) -> NDArray[np.float64]:
    """One number per site, from a number or an array over the grid."""
    array = check.real_array(values, argument)
    if array.ndim and array.shape not in ((rows, cols), (rows * cols,)):
        raise ArgumentError(argument, f"a number or an array of shape {(rows, cols)}", got=f"shape {array.shape}")
    return np.broadcast_to(array, (rows, cols) if array.ndim != 1 else array.shape).ravel()


def _edge_values(couplings: Any, shapes: list[Any], edges: int) -> NDArray[np.float64]:
    if isinstance(couplings, tuple) and len(couplings) == 2 and np.ndim(couplings[0]) == 2:
        parts = [check.real_array(part, "couplings") for part in couplings]
        for part, shape in zip(parts, shapes, strict=True):
            if part.shape != shape:
                raise ArgumentError("couplings", f"(right, down) of shapes {tuple(shapes)}", got=f"shape {part.shape}")
        array = np.concatenate([part.ravel() for part in parts])
    else:
        array = check.real_array(couplings, "couplings")
    if array.ndim and array.shape != (edges,):
        requirement = f"a number, an array over the {edges} edges or (right, down) of shapes {tuple(shapes)}"
        raise ArgumentError("couplings", requirement, got=f"shape {array.shape}")
    return np.broadcast_to(check.finite(array, "couplings"), (edges,)).astype(np.float64)


# -- factors ------------------------------------------------------------------------------------

# Members of a factor that are compared pair by pair; sorting more takes less time.
_MAX_PAIRED_MEMBERS = 4


def read_factors(
    factors: Iterable[tuple[Any, ArrayLike]], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Read scopes and tables, each after their starts: all factors together, one by one only to name the wrong one."""
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
    """Read blocks of factors of one shape: scopes (F, arity) and flat tables (F, size)."""
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


def read_cardinalities(value: ArrayLike, argument: str) -> NDArray[np.int64]:
    """Read numbers of states, each at least 2."""
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ArgumentError(argument, "a sequence of whole numbers", value)
    check.all_entries(array >= 2, array, argument, "at least 2")
    return array.astype(np.int64)
