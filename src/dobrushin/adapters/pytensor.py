"""PyTensor graphs: split a log-probability into small terms, and find the inputs that each term depends on.

Dependence is found by a walk through the graph, which may find too much but never too little: for an unknown operation,
each entry of the result counts as depending on everything that goes in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.forms import rounding_of
from dobrushin._shared.environment import require

Table = NDArray[np.float64]
Scope = tuple[int, ...]
# Largest error of PyMC's own log-probability of a term, in units of 2^-53 of its size.
_UNITS = 16.0
# Interactions below this share of the largest entry are the rounding of sums, and are left out.
_ROUNDING = 1e-13
# Largest product of matrices that is written out entry by entry.
_MAX_PRODUCTS = 10**6
# Operations that move entries without changing them, with the inputs that they move (None: all); others say where to.
_MOVES: dict[str, slice] = {
    "Alloc": slice(0, 1),
    "AdvancedSubtensor": slice(0, 1),
    "AdvancedSubtensor1": slice(0, 1),
    "DimShuffle": slice(0, 1),
    "Join": slice(1, None),
    "MakeVector": slice(0, None),
    "Reshape": slice(0, 1),
    "ScalarFromTensor": slice(0, 1),
    "SpecifyShape": slice(0, 1),
    "Subtensor": slice(0, 1),
    "TensorFromScalar": slice(0, 1),
}
# Types in which sums are exact sums: True + True is True, and small integers wrap around.
_SUMMED = {"float32", "float64", "int32", "int64"}
# Operations on conditions that hold where all their inputs hold.
_CONJUNCTIONS = {"All", "MakeVector", "And", "AND", "ScalarFromTensor", "TensorFromScalar", "DimShuffle"}
_KEEPS_FINITE = {"Add", "Sub", "Mul", "Neg", "Cast", "Identity"}
_ROWS = np.frompyfunc(frozenset.union, 2, 1)
_NOTHING: frozenset[int] = frozenset()


class TermPart(NamedTuple):
    """A tensor to sum up, with a weight; or a tensor of conditions that must all hold."""

    tensor: Any
    weight: float
    is_condition: bool = False


class ChangingShape(Exception):
    """Raised for an operation whose result may change its shape with the values of the inputs."""


@dataclass(frozen=True)
class _Known:
    """Properties of a variable of a PyTensor graph: a value, the inputs that its entries depend on, and finiteness."""

    value: Any  # at the point where the graph was looked at
    needs: NDArray[np.object_] | None  # for each entry a set of inputs; None where no entry needs any
    is_finite: bool  # for all values of the inputs


def kind(variable: Any) -> str:
    """Return the name of the operation that computes a variable; of an elementwise one, its scalar operation."""
    if variable.owner is None:
        return ""
    op = variable.owner.op
    inner = getattr(op, "scalar_op", None) if type(op).__name__ == "Elemwise" else getattr(op, "core_op", None)
    return type(op if inner is None else inner).__name__


def split(tensor: Any, shapes: Mapping[Any, tuple[int, ...]], checks: bool) -> list[TermPart]:
    """Split a tensor into parts whose weighted entries add up to the same total.

    Sums, matrix products, and products with numbers are split. PyMC's check of a parameter, which stands for -inf where
    it fails, becomes a condition if `checks`, and is dropped otherwise.
    """
    parts: list[TermPart] = []
    waiting = [TermPart(tensor, 1.0)]
    while waiting:
        part = waiting.pop()
        smaller = None if part.is_condition else _split_sum(part, shapes, checks)
        if part.is_condition and kind(part.tensor) in _CONJUNCTIONS:
            smaller = [TermPart(variable, 1.0, True) for variable in part.tensor.owner.inputs]
        if smaller is None:
            parts.append(part)
        else:
            waiting += smaller
    return parts[::-1]


def _split_sum(part: TermPart, shapes: Mapping[Any, tuple[int, ...]], checks: bool) -> list[TermPart] | None:
    name, node = kind(part.tensor), part.tensor.owner

    def times(weight: float, variable: Any) -> TermPart:
        return TermPart(variable, part.weight * weight)

    if node is None or part.tensor not in shapes or part.tensor.type.dtype not in _SUMMED:
        return None
    inputs = node.inputs
    if name in ("Sum", "DimShuffle", "Reshape", "SpecifyShape", "TensorFromScalar", "ScalarFromTensor"):
        return [times(1.0, inputs[0])]
    # Where a check fails, PyMC says -inf; times a weight below 0 that is no condition.
    if name == "CheckParameterValue" and node.op.can_be_replaced_by_ninf and part.weight > 0:
        conditions = [TermPart(condition, 1.0, True) for condition in inputs[1:]] if checks else []
        return [times(1.0, inputs[0]), *conditions]
    size = int(np.prod(shapes[part.tensor]))
    copies = [size / max(1, int(np.prod(shapes[variable]))) if variable in shapes else 1.0 for variable in inputs]
    if name == "Alloc":
        return [times(copies[0], inputs[0])]
    if name == "Add":
        return [times(count, variable) for count, variable in zip(copies, inputs, strict=True)]
    if name == "Sub":
        return [times(copies[0], inputs[0]), times(-copies[1], inputs[1])]
    if name == "Neg":
        return [times(-1.0, inputs[0])]
    if name == "Mul":
        numbers = [number for number in map(_as_number, inputs) if number is not None]
        others = [variable for variable in inputs if _as_number(variable) is None]
        if numbers and len(others) == 1 and np.prod(numbers) and np.isfinite(numbers).all():
            count = size / max(1, int(np.prod(shapes[others[0]])))
            return [times(count * float(np.prod(numbers)), others[0])]
    if name in ("Dot", "Matmul") and all(len(shapes[variable]) == 2 for variable in inputs):
        rows, columns = shapes[inputs[0]], shapes[inputs[1]][1]
        if rows[0] * rows[1] * columns <= _MAX_PRODUCTS:
            return [times(1.0, inputs[0][:, :, None] * inputs[1][None, :, :])]
    return None


def _as_number(variable: Any) -> float | None:
    """Return the value of a constant with one entry; None for other variables."""
    data = getattr(variable, "data", None)
    return float(data.reshape(())) if isinstance(data, np.ndarray) and data.size == 1 else None


def with_shapes(outputs: Sequence[Any], inputs: Mapping[Any, NDArray[Any]]) -> tuple[list[Any], list[Any]]:
    """Copy a graph, with new inputs whose types state their shapes; return the outputs and the inputs of the copy."""
    tensor = require("pytensor.tensor", "pymc").tensor
    clone = require("pytensor.graph.replace", "pymc").clone_replace
    fixed = {old: tensor(old.name, dtype=old.dtype, shape=value.shape) for old, value in inputs.items()}
    return clone(list(outputs), replace=fixed, rebuild_strict=False), list(fixed.values())


def shapes_of(outputs: Sequence[Any], inputs: Mapping[Any, NDArray[Any]]) -> dict[Any, tuple[int, ...]]:
    """Return the shape of each tensor in a graph, evaluated at given inputs."""
    return {variable: np.shape(value) for variable, value in _values(outputs, inputs).items() if _is_array(value)}


def _values(outputs: Sequence[Any], inputs: Mapping[Any, NDArray[Any]]) -> dict[Any, Any]:
    """Evaluate every variable of a graph at given inputs, without checks of parameters, which may fail there."""
    pytensor = require("pytensor", "pymc")
    traversal = require("pytensor.graph.traversal", "pymc")
    known = [variable for variable in traversal.ancestors(outputs) if hasattr(variable.type, "dtype")]
    rewriting = require("pytensor.graph.rewriting.basic", "pymc")
    without_checks = rewriting.in2out(require("pymc.logprob.utils", "pymc").local_remove_check_parameter)
    mode = pytensor.compile.mode.Mode(linker="py", optimizer=without_checks)
    evaluate = pytensor.function(list(inputs), known, mode=mode, on_unused_input="ignore")
    return dict(zip(known, evaluate(*inputs.values()), strict=True))


def _is_array(value: Any) -> TypeGuard[NDArray[Any]]:
    return isinstance(value, np.ndarray | np.generic)


class Dependence:
    """For each entry of a tensor, the entries of the inputs that it depends on.

    Parameters
    ----------
    outputs : list of tensors
        The tensors to be asked about.
    inputs : dict from tensor to array
        Values of the inputs, which determine the shapes of all tensors.
    numbers : dict from tensor to array of int
        Numbers that name the entries of the inputs.
    """

    def __init__(
        self, outputs: Sequence[Any], inputs: Mapping[Any, NDArray[Any]], numbers: Mapping[Any, NDArray[np.int64]]
    ) -> None:
        self._values = _values(outputs, inputs)
        self._known: dict[Any, _Known] = {}
        for variable, own in numbers.items():
            needs = np.empty(own.shape, dtype=object)
            needs.ravel()[:] = [frozenset((int(number),)) for number in own.ravel()]
            self._known[variable] = _Known(inputs[variable], needs, True)
        sort = require("pytensor.graph.traversal", "pymc").toposort
        for node in sort(outputs, blockers=list(inputs)):
            for variable in node.outputs:
                self._known[variable] = self._look_at(node, variable)

    def of(self, tensor: Any) -> list[frozenset[int]]:
        """Return, for each entry of a tensor in C order, the set of input entries that it depends on."""
        known = self._get(tensor)
        return [_NOTHING] * int(np.size(known.value)) if known.needs is None else list(known.needs.ravel())

    def _get(self, variable: Any) -> _Known:
        if variable not in self._known:  # a constant, or data
            value = self._values.get(variable, getattr(variable, "data", None))
            is_number = _is_array(value) and value.dtype.kind in "biuf" and bool(np.isfinite(value).all())
            self._known[variable] = _Known(value, None, is_number)
        return self._known[variable]

    def _look_at(self, node: Any, variable: Any) -> _Known:
        inputs = [self._get(other) for other in node.inputs]
        value = self._values.get(variable)
        name, dtype = kind(variable), np.asarray(value).dtype if _is_array(value) else None
        is_whole = dtype is not None and dtype.kind in "biu"
        is_number = is_whole or (_is_array(value) and value.dtype.kind == "f" and bool(np.isfinite(value).all()))
        moves = name in _MOVES
        moved = range(len(inputs))[_MOVES.get(name, slice(0))]
        is_finite = is_whole or ((moves or name in _KEEPS_FINITE) and all(known.is_finite for known in inputs))
        if all(known.needs is None for known in inputs) or name in ("Shape", "Shape_i"):
            return _Known(value, None, is_number)
        shape = np.shape(value) if _is_array(value) else ()
        needs = None
        if type(node.op).__name__ == "Elemwise":
            needs = _each_entry(inputs, shape, is_product=name == "Mul")
        elif moves and all(known.needs is None for k, known in enumerate(inputs) if k not in moved):
            needs = _moved(node, inputs, moved, node.outputs.index(variable), shape)
        elif name in ("Sum", "All", "Any", "Max", "Prod", "CAReduce") and inputs[0].needs is not None:
            needs = _reduced(inputs[0].needs, node.op.axis, shape)
        elif name in ("Dot", "Matmul") and all(np.ndim(known.value) == 2 for known in inputs):
            needs = _product(*inputs)
        if needs is None:
            if None in getattr(variable.type, "shape", ()):
                raise ChangingShape(type(node.op).__name__)
            together = _union(entry for known in inputs if known.needs is not None for entry in known.needs.ravel())
            needs = np.full(shape, together, dtype=object)
        return _Known(value, needs, is_finite)


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return reduce(frozenset.union, sets, _NOTHING)


def _each_entry(inputs: list[_Known], shape: tuple[int, ...], is_product: bool) -> NDArray[np.object_]:
    """Return, for each entry of an elementwise operation's result, the set of input entries that it depends on.

    An entry of a product depends on nothing where a constant factor is 0, if all other factors are always finite.
    """
    needs = np.full(shape, _NOTHING, dtype=object)
    for known in inputs:
        if known.needs is not None:
            needs = np.asarray(_ROWS(needs, known.needs), dtype=object)
    if is_product and all(known.is_finite for known in inputs):
        for known in inputs:
            if known.needs is None:
                needs[np.broadcast_to(np.asarray(known.value) == 0, shape)] = _NOTHING
    return needs


def _moved(
    node: Any, inputs: list[_Known], moved: range, which: int, shape: tuple[int, ...]
) -> NDArray[np.object_] | None:
    """Return the dependences of the result of an operation that only moves entries, such as a reshape."""
    arguments: list[Any] = [known.value for known in inputs]
    sets: list[frozenset[int]] = []
    for k in moved:
        size = int(np.size(inputs[k].value))
        numbers = np.arange(len(sets), len(sets) + size)
        arguments[k] = numbers.reshape(np.shape(inputs[k].value))
        needs = inputs[k].needs
        sets += [_NOTHING] * size if needs is None else list(needs.ravel())
    results: list[list[Any]] = [[None] for _ in node.outputs]
    if any(value is None for value in arguments):
        return None  # moved by something that is no number, such as a slice
    node.op.perform(node, arguments, results)
    places = np.asarray(results[which][0])
    if places.shape != shape:
        return None
    needs = np.full(shape, _NOTHING, dtype=object)
    needs.ravel()[:] = [sets[int(place)] for place in places.ravel()]
    return needs


def _reduced(needs: NDArray[np.object_], axis: Any, shape: tuple[int, ...]) -> NDArray[np.object_]:
    axes = tuple(range(needs.ndim)) if axis is None else tuple(np.atleast_1d(axis).tolist())
    kept = [k for k in range(needs.ndim) if k not in axes]
    rows = np.transpose(needs, [*kept, *axes]).reshape(int(np.prod(shape)), -1)
    result = np.full(shape, _NOTHING, dtype=object)
    result.ravel()[:] = [_union(row) for row in rows]
    return result


def _product(left: _Known, right: _Known) -> NDArray[np.object_]:
    """Return the dependences of a matrix product; a constant 0 hides the other factor, if all entries are finite."""
    (rows, inner), columns = np.shape(left.value), np.shape(right.value)[1]
    result = np.full((rows, columns), _NOTHING, dtype=object)
    can_hide = left.is_finite and right.is_finite
    for i in range(rows):
        for j in range(columns):
            chosen = range(inner)
            for known, line in ((left, left.value[i]), (right, right.value[:, j])):
                if known.needs is None and can_hide:
                    chosen = [k for k in chosen if line[k] != 0]  # type: ignore[assignment]
            entries = [left.needs[i, k] for k in chosen] if left.needs is not None else []
            entries += [right.needs[k, j] for k in chosen] if right.needs is not None else []
            result[i, j] = _union(entries)
    return result


def compile_terms(inputs: list[Any], outputs: Any) -> Any:
    """Compile tensors to a Python function of the inputs; without C code, as it is called only a few times."""
    mode = require("pytensor", "pymc").compile.mode.Mode(linker="py", optimizer="fast_run").excluding("fusion")
    return require("pymc.pytensorf", "pymc").compile(inputs, outputs, mode=mode, on_unused_input="ignore")


# -- tables of the terms ----------------------------------------------------------------------------


def add_table(tables: dict[Scope, Table], scope: Scope, table: Table) -> None:
    """Add a table to the dict, to the table that already has its scope if there is one."""
    tables[scope] = np.asarray(tables[scope] + table) if scope in tables else table


class TermTables:
    """Sums of tables with the same scope."""

    def __init__(self) -> None:
        self._sums: dict[Scope, Table] = {}
        self._sizes: dict[Scope, list[float]] = {}

    def add(self, scope: Scope, table: Table) -> None:
        """Add a table to those of the same scope."""
        add_table(self._sums, scope, table)
        self._sizes.setdefault(scope, []).append(float(np.abs(table[np.isfinite(table)]).max(initial=0.0)))

    def small(self) -> tuple[list[tuple[Scope, Table]], float]:
        """Return tables with the same total whose scopes are as small as possible, and a bound on the rounding."""
        small = as_small_tables(self._sums)
        bound = math.fsum(rounding_of(np.array(own), _UNITS + len(own)) for own in self._sizes.values())
        if {scope for scope, _ in small} - set(self._sums):  # some tables were split
            bound += 2.0 * _ROUNDING * math.fsum(itertools.chain(*self._sizes.values()))
        return small, bound


def as_small_tables(tables: Mapping[Scope, Table]) -> list[tuple[Scope, Table]]:
    """Write a sum of tables as a sum of tables with scopes as small as possible, without constant tables.

    A table without -inf is the sum of its interactions: for a subset A of its variables, g_A(x) is the alternating sum
    of the table over the states in which the variables of A have their states in x or 0, and all others 0. If the
    interactions of the largest subsets vanish, the table is a sum of tables of smaller scopes.
    """
    small: dict[Scope, Table] = {}
    for scope, table in tables.items():
        pieces = _pieces(table) if np.isfinite(table).all() else [(tuple(range(table.ndim)), table)]
        for axes, piece in pieces:
            add_table(small, tuple(scope[axis] for axis in axes), piece)
    return [(scope, table) for scope, table in small.items() if np.isneginf(table).any() or np.ptp(table) > 0]


def _pieces(table: Table) -> list[tuple[tuple[int, ...], Table]]:
    """Split a table into tables over some of its axes, whose sum is the table up to a constant and rounding."""
    differences = table.copy()
    for axis in range(table.ndim):
        first = np.take(differences, [0], axis=axis)
        differences -= first
        np.moveaxis(differences, axis, 0)[0] = np.squeeze(first, axis=axis)
    allowed = _ROUNDING * 2.0**table.ndim * np.abs(table).max(initial=0.0)
    differences[np.abs(differences) <= allowed] = 0.0
    present = {tuple(np.flatnonzero(index).tolist()) for index in np.argwhere(differences)} - {()}
    largest = [own for own in present if not any(set(own) < set(other) for other in present)]
    if len(largest) == 1 and len(largest[0]) == table.ndim:
        return [(largest[0], table)]
    pieces = []
    for own in sorted(largest):
        others = tuple(axis for axis in range(table.ndim) if axis not in own)
        piece = differences[tuple(0 if axis in others else slice(None) for axis in range(table.ndim))].copy()
        # Each interaction goes to one of the tables that have its variables.
        differences[tuple(0 if axis in others else slice(None) for axis in range(table.ndim))] = 0.0
        for axis in range(piece.ndim):
            first = np.take(piece, [0], axis=axis)
            piece += first
            np.moveaxis(piece, axis, 0)[0] = np.squeeze(first, axis=axis)
        pieces.append((own, piece))
    # Many interactions that are small next to the largest entry can be more than rounding.
    rest = table.copy()
    for own, piece in pieces:
        rest -= piece.reshape([size if axis in own else 1 for axis, size in enumerate(table.shape)])
    if np.ptp(rest) > _ROUNDING * np.abs(table).max(initial=0.0):
        return [(tuple(range(table.ndim)), table)]
    return pieces


def is_forbidden(forbidden: Mapping[Scope, Table], scope: Scope, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return, for each joint state of a scope, whether it violates a condition on some of its variables."""
    result = np.zeros(shape, dtype=bool)
    for own, table in forbidden.items():
        if set(own) <= set(scope):
            sizes = [size if i in own else 1 for i, size in zip(scope, shape, strict=True)]
            result |= np.isneginf(table).reshape(sizes)
    return result
