"""Lazy models: the neighbourhood of some variables is made in memory on demand.

The part near some variables is an ordinary model. Its inner variables, whose neighbours are all in it, have the
conditional laws that they have in the whole model. So whatever updates inner variables only (a scan, its certificate,
its chains, its sets of states) is the same in the part as in the whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._models.forms import DivisibleForm, Form
from dobrushin._models.ising import SpinPairs
from dobrushin._models.lookup import Lookup, is_mapped, pack, unpack
from dobrushin._models.model import Model
from dobrushin._models.near import Numbering, Part, Region, region_of
from dobrushin._models.potts import LabelPairs
from dobrushin._models.state_names import read_state_names
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import distinct, frozen, is_among, prefix_sums, row_entries
from dobrushin._shared.call import current, public
from dobrushin.errors import ArgumentError, BudgetError

# Larger parts are not worth their memory.
MOST_VARIABLES = 4 * 10**6
# Variables that a part of radius 8 may have, in all and for each centre; twice the radius may have four times as many.
# Grids stay far below. Where every variable has many neighbours, the part is cut so that it does not become the model.
_ROOM, _ROOM_PER_CENTRE = 2**14, 2**8


class Rows(NamedTuple):
    """Neighbours of some variables, CSR, and what couples them."""

    start: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]


class LocalModel(Model, ABC):
    """A lazy model of any size: only neighbourhoods of some variables are ever made in memory.

    Made by `Ising.grid` and `Potts.grid` with functions or memory-mapped arrays, and by `open_model`. It can be given
    to `estimate`, `plan`, `estimate_many`, `shortest_scan`, `coalescence` and `sample`, with targets where they look at
    all variables otherwise. Variables are named by their positions 0..n-1.
    """

    _is_whole = False
    _has_parts = True
    _error = 0.0

    @property
    def _form(self) -> Form:
        requirement = "one that is in memory: this call needs all of the model, and a LocalModel is lazy"
        raise ArgumentError("model", requirement, self)

    @public()
    def neighbors(self, i: int) -> NDArray[np.intp]:
        self._check_position(i)
        return np.setdiff1d(self.neighbors_of(np.array([i], dtype=np.int64)), [i]).astype(np.intp)

    def _local(self) -> LocalModel:
        return self

    def _region(self, updated: NDArray[np.int64]) -> tuple[Form, Region]:
        part = self._near(updated, 1)
        region = region_of(part.model._form, part.numbering.own(updated))
        return part.model._form, replace(region, numbering=region.numbering.within(part.numbering))

    def _form_of(self, region: Region) -> Form:
        return self._near(region.positions[region.updated], 1).model._form

    # -- neighbours of single variables ----------------------------------------------------

    @abstractmethod
    def neighbors_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Neighbours of some variables, in any order."""

    @abstractmethod
    def degrees_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many neighbours each of some variables has; or more, where some come several times."""

    # -- parts -----------------------------------------------------------------------------

    def _near(self, centres: NDArray[np.int64], radius: int) -> Part:
        """Make the subproblem of the variables within `radius` edges of the centres; of fewer in dense graphs.

        Parameters
        ----------
        centres : array of positions
            Their neighbours are always in the part.
        radius : int
            At least 1.

        Returns
        -------
        Part
        """
        border = np.unique(centres)
        layers, inner, before, size = [border], [], border[:0], len(border)
        room = (_ROOM + _ROOM_PER_CENTRE * size) * radius**2 // 64
        for layer in range(radius):
            degrees = self.degrees_of(border)
            is_cut = bool(layer and size + degrees.sum() > room)
            if is_cut:
                # Variables with few neighbours come first: a hub would exhaust the limit alone.
                order = np.argsort(degrees, kind="stable")
                few = np.sort(order[np.cumsum(degrees[order]) <= room - size])
                border, degrees = border[few], degrees[few]
            if not len(border):
                break
            _require_room(int(degrees.max()))  # before the neighbours are read
            inner.append(border)
            # A neighbour of a layer is in it, in the one before or in the next.
            found = distinct(self.neighbors_of(border), self.n_variables)
            found = found[~(is_among(found, layers[-1]) | is_among(found, before))]
            before, border, size = layers[-1], found, size + len(found)
            layers.append(found)
            _require_room(size)
            if is_cut:
                break
        inside = np.unique(np.concatenate(layers))
        is_inner = is_among(inside, np.unique(np.concatenate(inner)))
        form = self._part_form(inside, is_inner).off_by(self._error)
        model = form.to_model(inside.tolist())._name_states(self._names_of(inside))
        model._memory.share(self._memory)
        return Part(model, is_inner, Numbering(self.n_variables, inside))

    @abstractmethod
    def _part_form(self, inside: NDArray[np.int64], inner: NDArray[np.bool_]) -> Form:
        """The form of a part. Only what its inner variables are coupled to matters: others are never updated."""


class LocalPairs(LocalModel):
    """An Ising or Potts model of any size."""

    n_edges: int
    has_potentials: bool  # else they are 0
    n_states: int | None  # None: spins

    def __init__(self, n: int, n_states: int | None, state_names: Any = None) -> None:
        self._labels, self.n_states = range(n), n_states
        if state_names is not None and (isinstance(state_names, Mapping) or len(state_names) != (n_states or 2)):
            requirement = f"a tuple of {n_states or 2} names for all variables of a lazy model"
            raise ArgumentError("state_names", requirement, state_names)
        self._name_states(read_state_names(state_names, self))

    @property
    def _spins(self) -> bool:
        return self.n_states is None

    def _states_at(self, i: int) -> range:
        del i
        return range(-1, 2, 2) if self.n_states is None else range(self.n_states)

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        return np.broadcast_to(np.int64(self.n_states or 2), (self.n_variables,))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_variables} variables, {self.n_edges} edges, {self._kind})"

    @property
    def _kind(self) -> str:
        return "spins" if self.n_states is None else f"{self.n_states} states"

    @abstractmethod
    def rows_of(self, positions: NDArray[np.int64]) -> Rows:
        """Neighbours of some variables, and what couples them."""

    @abstractmethod
    def _look_up(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Fields or unaries as they are given."""

    def potentials_of(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Fields of some variables, or their unaries of shape (len, states)."""
        values = self._look_up(positions)
        spins = self._spins
        ok = np.abs(values) <= check.LARGEST if spins else check.is_log_potential(values)
        if not ok.all():
            index = check.first(~ok)
            requirement = check.FINITE if spins else check.LOG_POTENTIAL
            raise self._fault("potential", requirement, values[index], f"variable {positions[index[0]]}")
        if not spins and np.isneginf(values).all(axis=1).any():
            k = int(np.argmax(np.isneginf(values).all(axis=1)))
            raise self._fault("potential", "above -inf for some state", values[k], f"variable {positions[k]}")
        return values

    def _refuse_forbidden(self, evidence: Mapping[Any, int]) -> None:
        if self.n_states is None or not evidence:
            return
        known, states = np.array(list(evidence), dtype=np.int64), np.array(list(evidence.values()))
        forbidden = np.isneginf(self.potentials_of(known)[np.arange(len(known)), states])
        if forbidden.any():
            where = f"label {known[int(np.argmax(forbidden))]}"
            raise ArgumentError("evidence", "possible", got="a forbidden state", where=where)

    def check_couplings(self, owner: NDArray[np.int64], rows: Rows) -> None:
        """Fail at the first edge whose coupling is no number that can be used."""
        bad = ~(np.abs(rows.values) <= check.LARGEST)
        if bad.any():
            k = int(np.argmax(bad))
            edge = (int(owner[k]), int(rows.columns[k]))
            raise self._fault("coupling", check.FINITE, rows.values[k], f"edge {edge}")

    def _fault(self, what: str, requirement: str, value: object, where: str) -> Exception:
        """Make the exception for a wrong coupling, neighbour or potential."""
        return ArgumentError(what, requirement, value, where, function="LocalModel")

    def _part_form(self, inside: NDArray[np.int64], inner: NDArray[np.bool_]) -> SpinPairs | LabelPairs:
        own = np.flatnonzero(inner)
        rows = self.rows_of(inside[own])
        row = np.repeat(own, np.diff(rows.start))
        place = np.minimum(np.searchsorted(inside, rows.columns), len(inside) - 1)
        self.check_couplings(inside[row], rows)
        n, outer = len(inside), ~inner[place]
        if not _is_symmetric(row, place, rows.values, outer, n):
            # Rows of variables that are not inner are empty.
            start = prefix_sums(Numbering(n, own).spread(np.diff(rows.start), 0))
            self._refuse_asymmetric(sparse.csr_array((rows.values, place, start), shape=(n, n)), inside, inner)
        # The couplings of an outer variable to inner ones are known from the rows of the inner ones.
        place, row = np.concatenate([place, row[outer]]), np.concatenate([row, place[outer]])
        values = np.concatenate([rows.values, rows.values[outer]])
        order = np.argsort(row * n + place)
        order = order[values[order] != 0]
        indptr = prefix_sums(np.bincount(row[order], minlength=n)).astype(np.int32)
        parts = (values[order], place[order].astype(np.int32), indptr)
        whole = sparse.csr_array(tuple(frozen(part) for part in parts), shape=(n, n))
        potentials = self.potentials_of(inside)
        return SpinPairs(whole, potentials) if self.n_states is None else LabelPairs(whole, self.n_states, potentials)

    def _refuse_asymmetric(self, matrix: Any, inside: NDArray[np.int64], inner: NDArray[np.bool_]) -> None:
        """Name the edge whose ends were not told the same, where both were asked."""
        matrix.sort_indices()
        row = np.repeat(np.arange(len(inside)), np.diff(matrix.indptr))
        double = (matrix.indices[1:] == matrix.indices[:-1]) & (row[1:] == row[:-1])
        if double.any():
            k = int(np.argmax(double))
            edge = (int(inside[row[k]]), int(inside[matrix.indices[k]]))
            raise self._fault("neighbor", "there once", edge[1], f"variable {edge[0]}")
        both = inner[matrix.indices]
        known = sparse.csr_array(sparse.coo_array((matrix.data[both], (row[both], matrix.indices[both])), matrix.shape))
        gap = sparse.coo_array(known - known.T)
        wrong = np.flatnonzero(gap.data)
        if len(wrong):
            i, j = (int(part[wrong[0]]) for part in gap.coords)
            edge = (int(inside[i]), int(inside[j]))
            there = float(known[j, i])
            requirement = f"the same from both ends of an edge ({there!r} from the other one)"
            raise self._fault("coupling", requirement, float(known[i, j]), f"edge {edge}")


def _is_symmetric(
    row: NDArray[np.int64], column: NDArray[np.int64], values: NDArray[np.float64], outer: NDArray[np.bool_], n: int
) -> bool:
    """Whether every entry is there once, and those between inner variables are the same from both ends."""
    forth = row * n + column
    if (np.diff(np.sort(forth)) == 0).any():
        return False
    both = ~outer & (values != 0)
    forth, back, values = forth[both], column[both] * n + row[both], values[both]
    first, second = np.argsort(forth), np.argsort(back)
    return np.array_equal(forth[first], back[second]) and np.array_equal(values[first], values[second])


def _require_room(size: int) -> None:
    if size > MOST_VARIABLES:
        remedy = "The influence near the targets decays too slowly: try a larger tolerance."
        raise BudgetError("The part of the model around the targets", size, MOST_VARIABLES, "variables", remedy)


class LocalGrid(LocalPairs):
    """A grid whose couplings are a number, arrays (also memory-mapped) or a function of edge numbers."""

    def __init__(
        self,
        rows: int,
        cols: int,
        couplings: Any,
        potentials: Any,
        periodic: bool,
        states: int | None,
        state_names: Any = None,
    ) -> None:
        rows, cols = check.count(rows, "rows"), check.count(cols, "cols")
        self.shape = (rows, cols)
        if rows * cols > _MOST_SITES:
            raise ArgumentError("rows", f"such that there are at most {_MOST_SITES} sites", self.shape)
        super().__init__(rows * cols, states, state_names)
        if periodic and min(self.shape) < 3:
            raise ArgumentError("periodic", "False when a side has fewer than 3 sites", self.shape)
        self.periodic, self._function = bool(periodic), current().name
        right, down = ((rows, cols),) * 2 if periodic else ((rows, cols - 1), (rows - 1, cols))
        self._across = right[0] * right[1]
        self.n_edges = self._across + down[0] * down[1]
        self._couplings = Lookup(couplings, [right, down], 0, "couplings", self._function)
        self.has_potentials = potentials is not None
        self._argument = "fields" if states is None else "unaries"
        self._potentials = Lookup(potentials, [self.shape], states or 0, self._argument, self._function)

    def _sides(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Of each edge at some variables: which of them, its other end and its number."""
        rows, cols = self.shape
        r, c = np.divmod(positions, cols)
        parts = []
        # Edges are numbered as in `Ising.grid`: to the right, row by row; then downwards, row by row.
        width = cols if self.periodic else cols - 1
        for dr, dc in ((-1, 0), (0, -1), (0, 1), (1, 0)):
            nr, nc = r + dr, c + dc
            if self.periodic:
                nr, nc, exists = nr % rows, nc % cols, np.ones(len(r), dtype=np.bool_)
            else:
                exists = (nr >= 0) & (nr < rows) & (nc >= 0) & (nc < cols)
            if dr:
                edge = self._across + np.where(dr < 0, nr, r) * cols + c
            else:
                edge = r * width + np.where(dc < 0, nc, c)
            parts.append((np.flatnonzero(exists), (nr * cols + nc)[exists], edge[exists]))
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def rows_of(self, positions: NDArray[np.int64]) -> Rows:
        owner, columns, edges = self._sides(positions)
        order = np.lexsort((columns, owner))
        start = prefix_sums(np.bincount(owner, minlength=len(positions)))
        return Rows(start, columns[order], self._couplings(edges[order]))

    def neighbors_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._sides(positions)[1]

    def degrees_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(self._sides(positions)[0], minlength=len(positions))

    def _look_up(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._potentials(positions)

    def _fault(self, what: str, requirement: str, value: object, where: str) -> Exception:
        argument = self._argument if what == "potential" else "couplings"
        return ArgumentError(argument, requirement, value, where, function=self._function)

    def __repr__(self) -> str:
        return f"LocalGrid({self.shape[0]} x {self.shape[1]}, {self._kind})"


class LocalArrays(LocalPairs):
    """A model whose arrays are there, in memory or on disk, and of which only some entries are looked at."""

    def __init__(
        self, n: int, states: int | None, start: Any, neighbor: Any, coupling: Any, potential: Any, error: float = 0.0
    ) -> None:
        super().__init__(n, states)
        self._error = error
        self.n_edges = len(neighbor) // 2
        self.has_potentials = potential is not None
        self._start, self._neighbor, self._coupling, self._potential = start, neighbor, coupling, potential

    def __getstate__(self) -> dict[str, Any]:
        return {name: pack(value) for name, value in super().__getstate__().items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: unpack(value) for name, value in state.items()})

    def _entries(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each row begins among the entries of these rows, and which entries of the arrays they are."""
        sizes = self.degrees_of(positions)
        return row_entries(np.asarray(self._start[positions], dtype=np.int64), sizes)

    def rows_of(self, positions: NDArray[np.int64]) -> Rows:
        start, entry = self._entries(positions)
        columns = np.asarray(self._neighbor[entry], dtype=np.int64)
        return Rows(start, columns, np.asarray(self._coupling[entry], dtype=np.float64))

    def neighbors_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(self._neighbor[self._entries(positions)[1]], dtype=np.int64)

    def degrees_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        first = np.asarray(self._start[positions], dtype=np.int64)
        return np.asarray(self._start[positions + 1], dtype=np.int64) - first

    def _look_up(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._potential is None:
            return np.zeros((len(positions), self.n_states) if self.n_states else len(positions))
        return np.asarray(self._potential[positions], dtype=np.float64)


class LocalForm(LocalModel):
    """A model whose form is there, and of which only some entries are looked at."""

    first_radius = 5

    def __init__(self, form: DivisibleForm) -> None:
        self._whole, self._labels, self._error = form, range(form.n_variables), form.error

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self._whole.counts.items())
        return f"{type(self).__name__}({self.n_variables} variables, {counts})"

    @property
    def _spins(self) -> bool:
        return self._whole.spins

    def _states_at(self, i: int) -> range:
        return self._whole.states_of(i)

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        return self._whole.cardinalities

    def _refuse_forbidden(self, evidence: Mapping[Any, int]) -> None:
        """Nothing is forbidden."""

    def neighbors_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._whole.neighbors_at(positions)

    def degrees_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._whole.degrees_at(positions)

    def _part_form(self, inside: NDArray[np.int64], inner: NDArray[np.bool_]) -> Form:
        return self._whole.part(inside, inner)


# Grids with more variables are lazy; positions must fit into 64 bits.
_MOST_IN_MEMORY, _MOST_SITES = 2 * 10**7, 2**60


def is_local(rows: Any, cols: Any, couplings: Any, potentials: Any) -> bool:
    """Return whether a grid should be lazy."""
    if any(callable(part) or is_mapped(part) for part in (couplings, potentials)):
        return True
    # Sides that are no numbers are refused where the grid is made.
    return check.is_whole(rows) and check.is_whole(cols) and int(rows) * int(cols) > _MOST_IN_MEMORY
