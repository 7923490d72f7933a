"""Lazy models, which are built only near the variables of interest, and the numbers that define them.

The numbers come from a constant, from arrays that may be on disk, or from a function. When a lazy model is sent to
another process, a memory-mapped array is sent as its file name, and the file is mapped again there.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.couplings import couplings_of_part, symmetric
from dobrushin._models.forms import Form, PartSource
from dobrushin._models.ising import SpinPairs
from dobrushin._models.model import Model
from dobrushin._models.near import ScanRegion, region_of
from dobrushin._models.potts import LabelPairs
from dobrushin._models.state_names import read_state_names
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Bools, Floats, Ints, prefix_sums
from dobrushin._shared.call import current, public
from dobrushin.errors import ArgumentError, FormatError
from dobrushin.typing import NamesOfStates

M = TypeVar("M", bound=Model)
# Grids with more variables are lazy; positions must fit into 64 bits.
_MAX_SITES_IN_MEMORY, _MAX_SITES = 2 * 10**7, 2**60
# Steps (rows, columns) from a site to its neighbours.
_DIRECTIONS = ((-1, 0), (0, -1), (0, 1), (1, 0))


class LocalModel(Model):
    """Lazy model of any size: only neighbourhoods of the variables of interest are built in memory.

    `Ising.grid` and `Potts.grid` return one for functions or memory-mapped arrays, and `open_model` for a folder on
    disk. The functions `estimate`, `plan`, `estimate_many`, `shortest_scan`, `coalescence` and `sample` accept it;
    those that treat all variables by default need targets. Variables are named by their positions 0..n-1.
    """

    _is_whole = False

    def __init__(self, source: PartSource, state_names: NamesOfStates = None) -> None:
        self._source, self._labels = source, range(source.n_variables)
        if state_names is not None and (isinstance(state_names, Mapping) or len(state_names) != source.sizes):
            requirement = f"a tuple of {source.sizes} names for all variables of a lazy model"
            raise ArgumentError("state_names", requirement, state_names)
        self._name_states(read_state_names(state_names, self))

    @property
    def _lowered(self) -> PartSource:
        return self._source

    @property
    def _form(self) -> NoReturn:  # type: ignore[override]
        requirement = "one that is in memory: this call needs all of the model, and a LocalModel is lazy"
        raise ArgumentError("model", requirement, self)

    @public()
    def neighbors(self, i: int) -> NDArray[np.intp]:
        self._check_position(i)
        return np.setdiff1d(self._source.neighbors_at(np.array([i], dtype=np.int64)), [i]).astype(np.intp)

    def _parts(self) -> PartSource:
        return self._source

    def _region(self, updated: Ints) -> tuple[Form, ScanRegion]:
        part = self._near(updated, 1)
        region = region_of(part.model._form, part.numbering.own(updated))
        return part.model._form, replace(region, numbering=region.numbering.within(part.numbering))

    def _form_of(self, region: ScanRegion) -> Form:
        return self._near(region.positions[region.updated], 1).model._form

    def __repr__(self) -> str:
        return f"LocalModel({self._source})"


class PairRows(NamedTuple):
    """The neighbours of some variables in CSR form, and the couplings to them."""

    start: Ints
    columns: Ints
    values: Floats


class LazyPairs(PartSource):
    """Base class of lazy Ising and Potts models, whose numbers are checked when they are read.

    Parameters
    ----------
    n, n_edges : int
    states : int or None
        Number of states; None for spins.
    has_potentials : bool
        Whether there are fields or unaries; else they are 0.
    """

    def __init__(self, n: int, n_edges: int, states: int | None, has_potentials: bool) -> None:
        self.n_variables, self.n_edges, self.has_potentials = n, n_edges, has_potentials
        self.sizes, self.spins = states or 2, states is None

    def __str__(self) -> str:
        kind = "spins" if self.spins else f"{self.sizes} states"
        return f"{self.n_variables} variables, {self.n_edges} edges, {kind}"

    @abstractmethod
    def rows_of(self, positions: Ints) -> PairRows:
        """Return the neighbours of some variables, and the couplings to them."""

    @abstractmethod
    def _look_up(self, positions: Ints) -> Floats:
        """Return the fields or unaries of some variables as the user gave them, unchecked."""

    @abstractmethod
    def _fault(self, what: str, requirement: str, value: object, where: str) -> Exception:
        """Make the exception for a wrong coupling, neighbour or potential."""

    def potentials_of(self, positions: Ints) -> Floats:
        """Return the fields of some variables, or their unaries of shape (variables, states), after checking them."""
        values = self._look_up(positions)
        ok = np.abs(values) <= check.LARGEST if self.spins else check.is_log_potential(values)
        if not ok.all():
            index = check.first(~ok)
            requirement = check.FINITE if self.spins else check.LOG_POTENTIAL
            raise self._fault("potential", requirement, values[index], f"variable {positions[index[0]]}")
        if not self.spins and (none := np.isneginf(values).all(axis=1)).any():
            k = int(np.argmax(none))
            raise self._fault("potential", "above -inf for some state", values[k], f"variable {positions[k]}")
        return values

    def is_forbidden(self, positions: Ints, digits: Ints) -> Bools:
        if self.spins:
            return super().is_forbidden(positions, digits)
        return np.isneginf(self.potentials_of(positions)[np.arange(len(positions)), digits])

    def check_couplings(self, owner: Ints, rows: PairRows) -> None:
        """Raise an error at the first edge whose coupling is not a finite number."""
        bad = ~(np.abs(rows.values) <= check.LARGEST)
        if bad.any():
            k = int(np.argmax(bad))
            edge = (int(owner[k]), int(rows.columns[k]))
            raise self._fault("coupling", check.FINITE, rows.values[k], f"edge {edge}")

    def part(self, inside: Ints, inner: Bools) -> Form:
        own = np.flatnonzero(inner)
        rows = self.rows_of(inside[own])
        row = np.repeat(own, np.diff(rows.start))
        column = np.minimum(np.searchsorted(inside, rows.columns), len(inside) - 1)
        self.check_couplings(inside[row], rows)
        self._require_symmetric(row, column, rows.values, inside, inner)
        matrix, potentials = couplings_of_part(row, column, rows.values, inner), self.potentials_of(inside)
        return SpinPairs(matrix, potentials) if self.spins else LabelPairs(matrix, int(self.sizes), potentials)

    def _require_symmetric(self, row: Ints, column: Ints, values: Floats, inside: Ints, inner: Bools) -> None:
        """Raise an error at an edge that is given twice, or whose coupling differs between the rows of its ends."""
        n = len(inner)
        order = np.argsort(row * n + column)
        code = (row * n + column)[order]
        if (double := np.flatnonzero(code[1:] == code[:-1])).size:
            i, j = (int(inside[ends[order[double[0]]]]) for ends in (row, column))
            raise self._fault("neighbor", "there once", j, f"variable {i}")
        both = np.flatnonzero(inner[column])
        back = column[both] * n + row[both]
        place = np.minimum(np.searchsorted(code, back), len(code) - 1)
        other = np.where(code[place] == back, values[order][place], 0.0)
        if (wrong := np.flatnonzero(values[both] != other)).size:
            k = wrong[0]
            edge = (int(inside[row[both[k]]]), int(inside[column[both[k]]]))
            requirement = f"the same from both ends of an edge ({float(other[k])!r} from the other one)"
            raise self._fault("coupling", requirement, float(values[both[k]]), f"edge {edge}")


class GridPairs(LazyPairs):
    """Lazy grid whose couplings are a number, arrays (possibly memory-mapped) or a function of edge numbers."""

    def __init__(
        self, rows: int, cols: int, couplings: Any, potentials: Any, periodic: bool, states: int | None
    ) -> None:
        rows, cols = self.shape = (check.count(rows, "rows"), check.count(cols, "cols"))
        if rows * cols > _MAX_SITES:
            raise ArgumentError("rows", f"such that there are at most {_MAX_SITES} sites", self.shape)
        if periodic and 2 in self.shape:
            raise ArgumentError("periodic", "False when a side has 2 sites, whose edges would be double", self.shape)
        # The public function that makes the grid: errors name it long after it has returned.
        self._made_by = current().name
        self._wraps = bool(periodic and rows > 1), bool(periodic and cols > 1)
        right, down = (rows, cols - (not self._wraps[1])), (rows - (not self._wraps[0]), cols)
        self._across = right[0] * right[1]
        super().__init__(rows * cols, self._across + down[0] * down[1], states, potentials is not None)
        self._couplings = Lookup(couplings, [right, down], 0, "couplings")
        self._potentials = Lookup(potentials, [self.shape], states or 0, "unaries" if states else "fields")

    def model(self, family: type[M], state_names: Any) -> M | LocalModel:
        """Return a model in memory; a lazy one if numbers come from a function or from disk or the grid is large."""
        if self._couplings.is_lazy or self._potentials.is_lazy or self.n_variables > _MAX_SITES_IN_MEMORY:
            return LocalModel(self, state_names)
        potentials = self._potentials(np.arange(self.n_variables)) if self.has_potentials else None
        matrix = self.matrix()
        form = SpinPairs(matrix, potentials) if self.spins else LabelPairs(matrix, int(self.sizes), potentials)
        return family._from_form(form, None, state_names)

    def matrix(self) -> Any:
        site = np.arange(self.n_variables, dtype=np.int32).reshape(self.shape)
        firsts, seconds = [], []
        for axis in (1, 0):  # to the right, row by row; then downwards
            kept = (slice(None),) * axis + (slice(self.shape[axis] - (not self._wraps[axis])),)
            firsts.append(site[kept].ravel())
            seconds.append(np.roll(site, -1, axis)[kept].ravel())
        values = check.finite(self._couplings(np.arange(self.n_edges)), "couplings")
        return symmetric(np.concatenate(firsts), np.concatenate(seconds), values, self.n_variables)

    def __str__(self) -> str:
        kind = "spins" if self.spins else f"{self.sizes} states"
        return f"{self.shape[0]} x {self.shape[1]} grid, {kind}"

    def _sides(self, positions: Ints) -> tuple[Ints, ...]:
        """Return all edges at some variables: indices of the variables, positions of the other ends, edge numbers."""
        rows, cols = self.shape
        r, c = np.divmod(positions, cols)
        parts = []
        # Edges are numbered as in `Ising.grid`: to the right, row by row; then downwards, row by row.
        width = self._across // rows
        for dr, dc in _DIRECTIONS:
            nr, nc = (r + dr) % rows, (c + dc) % cols
            exists = np.ones(len(r), dtype=np.bool_)
            if not self._wraps[0 if dr else 1]:
                exists = (nr == r + dr) & (nc == c + dc)
            if dr:
                edge = self._across + np.where(dr < 0, nr, r) * cols + c
            else:
                edge = r * width + np.where(dc < 0, nc, c)
            parts.append((np.flatnonzero(exists), (nr * cols + nc)[exists], edge[exists]))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def rows_of(self, positions: Ints) -> PairRows:
        owner, columns, edges = self._sides(positions)
        order = np.lexsort((columns, owner))
        start = prefix_sums(np.bincount(owner, minlength=len(positions)))
        return PairRows(start, columns[order], self._ask(self._couplings, edges[order]))

    def neighbors_at(self, positions: Ints) -> Ints:
        return self._sides(positions)[1]

    def degrees_at(self, positions: Ints) -> Ints:
        return np.bincount(self._sides(positions)[0], minlength=len(positions))

    def _look_up(self, positions: Ints) -> Floats:
        return self._ask(self._potentials, positions)

    def _ask(self, lookup: Lookup, numbers: Ints) -> Floats:
        try:
            return lookup(numbers)
        except ArgumentError as error:
            error.name_function(self._made_by)
            raise

    def _fault(self, what: str, requirement: str, value: object, where: str) -> Exception:
        argument = self._potentials.argument if what == "potential" else "couplings"
        return ArgumentError(argument, requirement, value, where, function=self._made_by)


def _pack(array: Array) -> Array | partial[Array]:
    """Return an array in picklable form; for a memory-mapped array this is a call that maps its file again."""
    root = _mapped_root(array)
    # Changes to a copy-on-write map are in this process only.
    if root is None or root.filename is None or root.mode == "c" or not array.size or min(array.strides, default=0) < 0:
        return np.asarray(array)
    # A slice keeps the offset of the whole, so that its place is found by its address.
    offset = root.offset + array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    size = sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) + array.itemsize
    return partial(
        _map_again, os.fspath(root.filename), int(offset), int(size), array.dtype, array.shape, array.strides
    )


def _map_again(path: str, offset: int, size: int, dtype: Any, shape: tuple[int, ...], strides: Any) -> Array:
    if os.path.getsize(path) < offset + size:
        raise FormatError(path, f"{offset + size} bytes", f"{os.path.getsize(path)}")
    data = np.memmap(path, np.uint8, "r", offset, (size,))
    return np.ndarray(shape, dtype, buffer=data, strides=strides)


def _mapped_root(array: Any) -> np.memmap[Any, Any] | None:
    """Return the memory map that an array is a view of, or None."""
    root = None
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array._mmap is not None:  # type: ignore[attr-defined]
            root = array
        array = array.base
    return root


class Lookup:
    """Values of an argument of a grid, looked up by the number of the edge or variable.

    Parameters
    ----------
    value : number, array, pair of arrays, function or None
    shapes : list of shapes
        Shape of each array; entries are numbered through all arrays.
    states : int
        Length of the row of values for each number; 0 for a single value.
    argument : str
        Name of the argument that holds the value.
    """

    def __init__(self, value: Any, shapes: list[tuple[int, ...]], states: int, argument: str) -> None:
        self._row = (states,) if states else ()
        self.argument = argument
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
                ways = f"an array of shape {(*choices[-1], *self._row)}"
                if len(shapes) == 2:
                    ways = f"an array over the {size} edges or (right, down) of shapes {tuple(shapes)}"
                number = "" if states else "a number, "
                raise ArgumentError(argument, f"{number}a function or {ways}", got=f"shape {array.shape}")
            else:
                self._arrays.append(array)

    @property
    def is_lazy(self) -> bool:
        """Return whether the values come from a function or are on disk."""
        return self._call is not None or any(_mapped_root(array) is not None for array in self._arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_arrays": [_pack(array) for array in self._arrays]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = [array() if isinstance(array, partial) else array for array in state["_arrays"]]
        vars(self).update(state, _arrays=arrays)

    def __call__(self, numbers: Ints) -> Floats:
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
            values[own] = check.real_array(array[np.unravel_index(numbers[own] - first, lead)], self.argument)
            first += size
        return values

    def _ask(self, numbers: Ints, shape: tuple[int, ...]) -> Floats:
        """Call the user's function; raise ArgumentError if it fails or returns no numbers of this shape."""
        assert self._call is not None
        what = "edge" if self.argument == "couplings" else "variable"
        where = f"{what} numbers {numbers.min()} to {numbers.max()}"
        try:
            values = np.asarray(self._call(numbers.copy()))
        except Exception as error:
            requirement, got = f"a function of an array of {what} numbers", f"{type(error).__name__}: {error}"
            raise ArgumentError(self.argument, requirement, got=got, where=where) from error
        if values.dtype.kind not in "biuf":
            requirement, got = "a function that returns an array of real numbers", f"{values.dtype}"
        elif values.shape != shape:
            requirement, got = f"a function that returns an array of shape {shape}", f"shape {values.shape}"
        else:
            return check.real_array(values, self.argument)
        raise ArgumentError(self.argument, requirement, got=got, where=where)
