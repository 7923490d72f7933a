"""Forms: the representations of a distribution that inference works on.

Each family of models lowers itself to a form: a plain object over positions 0..n-1, without names. Each form can be
widened to an equivalent one with larger arrays, up to tables of factors. So a stage that is written for
tables serves every family, and one that also knows a narrower form is only faster there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._models.couplings import symmetric
from dobrushin._models.memory import Memory, held_bytes, lasting
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import UNIT, Array, Bools, Floats, Ints, prefix_sums, rows_at
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from typing import Self

    from dobrushin._models.factors import FactorTables
    from dobrushin._models.model import Model


T = TypeVar("T")
_NORMAL = 708.0  # the size of the logarithm of numbers that have all their digits


class Variables:
    """Discrete variables at positions 0..n-1, without names.

    Attributes
    ----------
    n_variables : int
    sizes : int or array
        Number of states of every variable, or of each.
    spins : bool
        Whether the digits 0, 1 are shown as the states -1, +1.
    error : float
        Bound on how far the log-density is from the intended one, up to a constant: rounding of potentials that were
        computed, by logarithms, by scaling energies or by adding terms.
    """

    n_variables: int
    sizes: int | Ints
    spins: bool = False
    error: float = 0.0

    def off_by(self, error: float) -> Self:
        """Add to the error of an object that was just made, and return the object."""
        self.error += error
        return self

    def __getstate__(self) -> dict[str, Any]:
        return lasting(self)

    @property
    def cardinalities(self) -> Ints:
        """Number of states of each variable."""
        sizes = self.sizes
        return sizes if isinstance(sizes, np.ndarray) else np.broadcast_to(np.int64(sizes), self.n_variables)


class PartSource(Variables, ABC):
    """A lazy distribution: the part near any variables can be built without the rest."""

    first_radius: ClassVar[int] = 8  # radius of the first ball around targets, in edges

    @abstractmethod
    def degrees_at(self, positions: Ints) -> Ints:
        """Bound the number of neighbours of some variables; a neighbour in several terms may count several times."""

    @abstractmethod
    def neighbors_at(self, positions: Ints) -> Ints:
        """Return the neighbours of some variables, in any order; with repeats, and perhaps the variables themselves."""

    @abstractmethod
    def part(self, inside: Ints, inner: Bools) -> Form:
        """Make the form of the variables at the increasing positions `inside`, with all terms of the inner ones.

        All neighbours of inner variables must be inside. The other variables are never updated, so that their terms do
        not matter.
        """

    def is_forbidden(self, positions: Ints, digits: Ints) -> Bools:
        """Return which variables may not have these states (digits 0, 1, ...) by their unary potentials."""
        return np.zeros(len(positions), dtype=np.bool_)


class Form(Variables, ABC):
    """A distribution over positions 0..n-1, known up to its normalising constant.

    Arrays of states have shape (..., n_variables), with -1/+1 where `spins`. Digits are states counted from 0.
    """

    is_indexed: ClassVar[bool] = False  # whether all terms of a variable are found without a pass over the form
    state_type: ClassVar[type] = np.int64  # of arrays of states

    @cached_property
    def memory(self) -> Memory:
        """Values that later stages keep about the distribution."""
        return Memory()

    @property
    def nbytes(self) -> int:
        """Approximate number of bytes of the form's arrays."""
        return held_bytes(vars(self))

    # -- the variables ---------------------------------------------------------------------

    @property
    @abstractmethod
    def adjacency(self) -> tuple[Array, Array]:
        """Neighbours of all variables, CSR: row starts and sorted column positions."""

    @property
    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Numbers of edges, terms or factors by name, for `repr`."""

    @cached_property
    def has_zeros(self) -> bool:
        """Whether some combination of states is forbidden."""
        return False

    @abstractmethod
    def favourites(self, positions: Ints) -> Ints:
        """Return the most likely digit of each of some variables by its unary potentials alone."""

    # -- wider forms -----------------------------------------------------------------------

    @abstractmethod
    def tables(self) -> FactorTables:
        """Widen the distribution to tables of factors; `BudgetError` if a table would be too large."""

    def touching(self, inside: Ints) -> tuple[Ints, FactorTables]:
        """Return the positions of some variables and their neighbours, and the factors of the former as tables.

        Factors are sorted by arity and size.
        """
        return self.tables().touching(inside)

    @property
    def has_tables(self) -> bool:
        """Whether every table is small enough to be written out."""
        return True

    def wider(self) -> Form | None:
        """Widen the distribution to the next form; None for the widest one."""
        tables = self.tables()
        return None if tables is self else tables

    # -- probabilities ---------------------------------------------------------------------

    @property
    def numbers_per_state(self) -> int:
        """Numbers that `log_density` keeps in memory for one row of states."""
        return 3 * self.n_variables

    @abstractmethod
    def log_density(self, states: Ints) -> Floats:
        """Return the logarithm of the unnormalised probability of each row of a matrix of states."""

    @abstractmethod
    def log_weights(self, i: int, states: Ints) -> Floats:
        """Return the log-weights of the states of variable `i`, up to a constant: shape (..., cardinality)."""

    # -- evidence and components -----------------------------------------------------------

    @abstractmethod
    def condition(self, fixed: Bools, state: Ints) -> Form:
        """Fix some variables and return the form of the others, whose error includes the rounding.

        Raises
        ------
        ImpossibleEvidence
            If the fixed states have probability zero by a single term.
        """

    def _around(self, fixed: Bools) -> Bools:
        """Return which variables are fixed or have a fixed neighbour."""
        start, neighbor = self.adjacency
        near = fixed.copy()
        near[neighbor[rows_at(start, np.flatnonzero(fixed))[1]]] = True
        return near

    def components(self) -> NDArray[np.int32]:
        """Return the number of the connected component of each variable."""
        start, neighbor = self.adjacency
        links = np.ones(len(neighbor), dtype=np.int8)
        graph = sparse.csr_array((links, neighbor, start), shape=(self.n_variables, self.n_variables))
        return np.asarray(csgraph.connected_components(graph, directed=False)[1])

    def restrict(self, variables: Bools) -> Form:
        """Return the form of some components of the graph: variables that share no term with other variables."""
        return self.condition(~variables, np.where(variables, 0, 1))  # in which state they are fixed does not matter

    def sum_out(self, wanted: Bools) -> tuple[Form, Bools]:
        """Sum out unwanted variables whose sum does not depend on the others.

        Returns
        -------
        form, variables
            The form of the remaining variables, and which variables remain.
        """
        return self, np.ones(self.n_variables, dtype=bool)

    # -- models and files ------------------------------------------------------------------

    family: ClassVar[type[Model]]  # the ordinary family of this form

    def to_model(self, labels: Sequence[Hashable] | None) -> Model:
        """Make a model of the ordinary family of this form."""
        return self.family._from_form(self, labels)

    def parts(self) -> PartSource | None:
        """Return the source of parts of the distribution; None where parts cannot be made by themselves."""
        return None

    stored_as: ClassVar[str]  # name in files: that of the ordinary family
    stored_arrays: ClassVar[dict[str, Any]]  # the type of each array that a file must have
    optional_arrays: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def to_arrays(self) -> dict[str, Array]:
        """Return the form as arrays of one axis, in the order of the file."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: CheckedArrays) -> Self:
        """Make the form from the arrays of a file; `arrays` raises an error if one is missing or malformed."""


class DivisibleForm(Form, PartSource):
    """A form that can build the part near any variables without the rest."""

    first_radius = 5

    def parts(self) -> PartSource | None:
        """Return the form; None where states are forbidden, since a part cannot show that an allowed state exists."""
        return None if self.has_zeros else self

    def degrees_at(self, positions: Ints) -> Ints:
        start = self.adjacency[0]
        return (start[positions + 1] - start[positions]).astype(np.int64)

    def _entries_at(self, positions: Ints) -> tuple[Ints, Ints]:
        """Return the rows of some variables in the adjacency: where each begins, and the places of their entries."""
        return rows_at(self.adjacency[0], positions)

    def neighbors_at(self, positions: Ints) -> Ints:
        return self.adjacency[1][self._entries_at(positions)[1]].astype(np.int64)

    def restrict(self, variables: Bools) -> Form:
        positions = np.flatnonzero(variables)
        return self.part(positions, np.ones(len(positions), dtype=np.bool_)).off_by(self.error)


class ImpossibleEvidence(Exception):
    """Evidence of probability zero, at a position; the model that catches the exception adds the label."""

    def __init__(self, position: int, got: str, requirement: str = "possible") -> None:
        self.position, self.got, self.requirement = int(position), got, requirement
        super().__init__(position, got, requirement)


def log_table(weights: Floats, units: float = 0.0, start: Ints | None = None) -> tuple[Floats, float]:
    """Return the logarithms of a table of weights, and a bound on the error of a log-density that contains them.

    Every reader and constructor that takes logarithms calls this function, and passes the error to `Form.off_by`.
    NumPy's logarithm is off by at most one unit in the last place, which is at most 2 * 2^-53 of its size; the bound
    allows for twice as much.

    Parameters
    ----------
    weights : array
        Not negative.
    units : float
        Relative error of the weights, in units of 2^-53: 0 for floating-point numbers that are exact, 1 for decimals
        that were read from a file, and one more for each operation since.
    start : array of int, optional
        For several tables in one flat array: where each table begins, and the end of the last one.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    sizes = sizes_of(logs.ravel(), np.array([0, logs.size]) if start is None else start)
    error = UNIT * (4.0 * float(sizes.sum()) + 2.0 * units * len(sizes))
    if units and sizes.max(initial=0.0) > _NORMAL:  # smaller weights are rounded to multiples of the smallest number
        error += len(sizes) * units * 2.0**-1074 / float(weights[weights > 0].min())
    return logs, error


def sizes_of(potentials: Floats, start: Ints) -> Floats:
    """Return the largest absolute value of a finite potential in each block of a flat array; no block is empty."""
    sizes = np.where(potentials > -np.inf, np.abs(potentials), 0.0)
    return np.maximum.reduceat(sizes, start[:-1]) if len(start) > 1 else sizes[:0]


def sums_of(sizes: Floats) -> float:
    """Bound the rounding error when terms of these absolute values are added up in any order.

    Evidence turns terms of several variables into terms of fewer variables, which are added up. A sum of k numbers is
    off by at most k units of the sum of their absolute values. Callers pass every term that holds a fixed variable or a
    neighbour of one.
    """
    return float(2.0 * UNIT * (len(sizes) + 2) * sizes.sum())


def rounding_of(potentials: Floats, units: float) -> float:
    """Bound the error of a log-density whose potentials have a relative error of `units` times 2^-53."""
    return float(units * (UNIT * np.abs(potentials).sum() * (1.0 + 2.0**-20) + 2.0**-1074 * potentials.size))


def require_possible(log_potentials: Floats, positions: Array) -> None:
    """Raise `ImpossibleEvidence` about the first position whose log-potential is -inf."""
    if (forbidden := np.isneginf(log_potentials)).any():
        raise ImpossibleEvidence(positions[int(np.argmax(forbidden))], "a forbidden state")


def require_finite_sums(values: Floats, positions: Array) -> None:
    """Raise `ImpossibleEvidence` about the position of the first row with a sum of potentials that is too large."""
    if not (ok := check.is_log_potential(values)).all():
        index = check.first(~ok)
        requirement = f"such that sums of potentials are {check.FINITE}"
        raise ImpossibleEvidence(positions[index[0]], repr(float(values[index])), requirement)


def own_numbers(inside: Ints, positions: Array) -> Array:
    """Return the numbers of variables in a part, which numbers the variables at increasing positions `inside`."""
    if not len(inside) or inside[-1] == len(inside) - 1:
        return positions
    if 8 * len(positions) > inside[-1]:
        number = np.empty(inside[-1] + 1, dtype=np.int64)
        number[inside] = np.arange(len(inside))
        return number[positions]
    return np.searchsorted(inside, positions)


def require_variables(n: int, argument: str) -> int:
    """Return the number of variables; fail if it is 0."""
    if n < 1:
        raise ArgumentError(argument, "a model of at least one variable", 0)
    return n


def widen(form: Form, implementations: Mapping[type[Form], T]) -> tuple[Any, T]:
    """Return the implementation for a form, or for the narrowest wider form that has one.

    Returns
    -------
    form, implementation
        The form, widened as far as needed, and the implementation for its type.
    """
    wider: Form | None = form
    while wider is not None:
        for kind in type(wider).__mro__:
            if kind in implementations:
                return wider, implementations[kind]
        wider = wider.wider()
    raise TypeError(f"no version of this function is registered for {type(form).__name__} or a wider form")


FLOAT, WHOLE = np.dtype(np.float64), np.dtype(np.int64)


class CheckedArrays(dict[str, Array]):
    """Named arrays of one axis, as they were read from a file, with checks that say what the file must have.

    Parameters
    ----------
    arrays : dict from names to arrays
    error : function
        Makes the exception to raise, from the expected and the found value.
    require_memory : function
        Raises if the given number of bytes, for the given purpose, exceeds the limit.
    """

    def __init__(
        self,
        arrays: dict[str, Array],
        error: Callable[[str, str], Exception],
        require_memory: Callable[[float, str], None],
    ) -> None:
        super().__init__(arrays)
        self.error, self.require_memory = error, require_memory

    def require(self, ok: Any, expected: str, instead: Array | str) -> None:
        """Raise an error unless `ok` is true everywhere; it shows `instead`, or its entry where `ok` is first false."""
        if not np.all(ok):
            if isinstance(instead, str):
                raise self.error(expected, instead)
            k = int(np.argmin(ok))
            raise self.error(expected, f"{instead[k]} at entry {k}")

    def require_variables(self, n: int) -> None:
        """Raise an error if the model has no variables."""
        self.require(n >= 1, "one or more variables", "none")

    def finite(self, name: str) -> Floats:
        """Return an array of finite numbers."""
        array = self[name]
        self.require(np.abs(array) <= check.LARGEST, f"{name} that are {check.FINITE}", array)
        return array

    def logs(self, name: str, sizes: Array) -> Floats:
        """Return an array of log-potentials, whose length must be the sum of these sizes."""
        array, count = self[name], sizes.sum(dtype=np.float64)
        self.require(len(array) == count, f"{count:.17g} numbers in {name}", f"{len(array)}")
        self.require(check.is_log_potential(array), f"{name} that are {check.LOG_POTENTIAL}", array)
        return array

    def couplings(self, n: int) -> Any:
        """Return the symmetric matrix of couplings of pairs i < j, which must be sorted."""
        i, j, weights = self["i"], self["j"], self.finite("couplings")
        lengths = f"{len(i)}, {len(j)} and {len(weights)}"
        self.require(len(i) == len(j) == len(weights), "as many couplings as i and j", lengths)
        pairs = np.stack([i, j], axis=1)
        self.require((i >= 0) & (i < j) & (j < n), f"pairs i < j of positions from 0 to {n - 1}", pairs)
        self.require((np.diff(i) > 0) | (np.diff(i) == 0) & (np.diff(j) > 0), "pairs in increasing order", pairs[1:])
        self.require(weights != 0, "couplings other than 0", weights)
        return symmetric(i, j, weights, n)

    def cardinalities(self) -> Ints:
        """Return the numbers of states."""
        sizes = self["cardinalities"]
        self.require_variables(len(sizes))
        self.require(sizes >= 2, "cardinalities of 2 or more", sizes)
        self.require_memory(8.0 * sizes.sum(dtype=np.float64), "states")
        return sizes

    def scopes(self, n: int, least: int) -> tuple[Ints, Ints]:
        """Return where each scope of `least` or more variables begins, and the positions, sorted within each scope."""
        arity, scope = self["arity"], self["scope"]
        self.require(arity >= least, f"scopes of {least} or more variables", arity)
        total = arity.sum(dtype=np.float64)
        self.require(total == len(scope), f"{total:.17g} variables in all scopes", f"{len(scope)}")
        self.require((scope >= 0) & (scope < n), f"positions from 0 to {n - 1}", scope)
        owner = np.repeat(np.arange(len(arity)), arity)
        order = np.lexsort((scope, owner))
        twice = (np.diff(owner[order]) == 0) & (np.diff(scope[order]) == 0)
        if twice.any():
            raise self.error("different variables in each scope", f"variable {scope[order][1:][twice][0]} twice")
        return prefix_sums(arity).astype(np.int64), scope[order]
