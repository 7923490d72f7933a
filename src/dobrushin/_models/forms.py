"""Forms: the internal representations of models, on which all inference works.

Each family of models is converted to a form, which knows variables by position 0..n-1 and has no labels. A form can be
widened to a more general form with larger arrays, and finally to tables of factors. An algorithm written for tables
therefore works for every family; a version for a narrower form is only faster.
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
    """Discrete variables at positions 0..n-1, without labels.

    Attributes
    ----------
    n_variables : int
    sizes : int or array
        Number of states: the same for all variables, or one number for each.
    spins : bool
        Whether the state numbers 0, 1 are shown as -1, +1.
    error : float
        Bound on the difference, up to a constant, between the log-density and the one that the user meant. It comes
        from rounding potentials when taking logarithms, scaling energies or adding terms.
    """

    n_variables: int
    sizes: int | Ints
    spins: bool = False
    error: float = 0.0

    def off_by(self, error: float) -> Self:
        """Increase the error bound of a new object, and return the object."""
        self.error += error
        return self

    def __getstate__(self) -> dict[str, Any]:
        return lasting(self)

    @property
    def cardinalities(self) -> Ints:
        sizes = self.sizes
        return sizes if isinstance(sizes, np.ndarray) else np.broadcast_to(np.int64(sizes), self.n_variables)


class PartSource(Variables, ABC):
    """A model of which any neighbourhood can be built by itself, without building the rest."""

    first_radius: ClassVar[int] = 8  # radius of the first ball around targets, in edges

    @abstractmethod
    def degrees_at(self, positions: Ints) -> Ints:
        """Return upper bounds on the numbers of neighbours of some variables.

        A neighbour that shares several terms with a variable may count several times.
        """

    @abstractmethod
    def neighbors_at(self, positions: Ints) -> Ints:
        """Return the neighbours of some variables, in any order.

        The result may contain repeats, and the variables themselves.
        """

    @abstractmethod
    def part(self, inside: Ints, inner: Bools) -> Form:
        """Return the model of the variables at positions `inside` (increasing), with all terms of the inner variables.

        All neighbours of inner variables must be inside. The other variables are never updated, so their terms do not
        matter.
        """

    def is_forbidden(self, positions: Ints, digits: Ints) -> Bools:
        """Return, for each variable, whether its unary potential forbids this state number."""
        return np.zeros(len(positions), dtype=np.bool_)


class Form(Variables, ABC):
    """Internal representation of a model over positions 0..n-1, known up to its normalising constant.

    Arrays of states have shape (..., n_variables), with states -1 and +1 if `spins` is true. Digits are state numbers
    counted from 0.
    """

    is_indexed: ClassVar[bool] = False  # whether all terms of a variable are found without a pass over the form
    state_type: ClassVar[type] = np.int64  # of arrays of states

    @cached_property
    def memory(self) -> Memory:
        """Return the cache of values that other modules compute from this model."""
        return Memory()

    @property
    def nbytes(self) -> int:
        return held_bytes(vars(self))

    # -- the variables ---------------------------------------------------------------------

    @property
    @abstractmethod
    def adjacency(self) -> tuple[Array, Array]:
        """Return the neighbours of all variables as CSR arrays: row starts and sorted column positions."""

    @property
    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return the numbers of edges, terms or factors by name, for `repr`."""

    @cached_property
    def has_zeros(self) -> bool:
        """Return whether some combination of states is forbidden (has probability 0)."""
        return False

    @abstractmethod
    def favourites(self, positions: Ints) -> Ints:
        """Return the most likely state number of each of some variables, by its unary potential alone."""

    # -- wider forms -----------------------------------------------------------------------

    @abstractmethod
    def tables(self) -> FactorTables:
        """Convert the model to tables of factors; raise BudgetError if a table would be too large."""

    def touching(self, inside: Ints) -> tuple[Ints, FactorTables]:
        """Return the factors that contain any of some variables, and the positions of all variables in these factors.

        The factors are tables, sorted by arity and size.
        """
        return self.tables().touching(inside)

    @property
    def has_tables(self) -> bool:
        """Return whether all tables of factors are small enough to build."""
        return True

    def wider(self) -> Form | None:
        """Convert the model to the next more general internal form; None for the most general one."""
        tables = self.tables()
        return None if tables is self else tables

    # -- probabilities ---------------------------------------------------------------------

    @property
    def numbers_per_state(self) -> int:
        """Return how many numbers `log_density` needs in memory for one row of states."""
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
        """Fix some variables and return the model of the others; its error bound includes the rounding.

        Raises
        ------
        ImpossibleEvidence
            If the fixed states have probability zero by a single term.
        """

    def _around(self, fixed: Bools) -> Bools:
        """Return which variables are fixed or are neighbours of fixed ones."""
        start, neighbor = self.adjacency
        near = fixed.copy()
        near[neighbor[rows_at(start, np.flatnonzero(fixed))[1]]] = True
        return near

    def components(self) -> NDArray[np.int32]:
        """Return, for each variable, the number of its connected component."""
        start, neighbor = self.adjacency
        links = np.ones(len(neighbor), dtype=np.int8)
        graph = sparse.csr_array((links, neighbor, start), shape=(self.n_variables, self.n_variables))
        return np.asarray(csgraph.connected_components(graph, directed=False)[1])

    def restrict(self, variables: Bools) -> Form:
        """Return the model of some connected components, whose variables share no term with others."""
        return self.condition(~variables, np.where(variables, 0, 1))  # in which state they are fixed does not matter

    def sum_out(self, wanted: Bools) -> tuple[Form, Bools]:
        """Sum out unwanted variables whose sum does not depend on the other variables.

        Returns
        -------
        form : Form
            The form of the remaining variables.
        variables : array of bool
            Which variables remain.
        """
        return self, np.ones(self.n_variables, dtype=bool)

    # -- models and files ------------------------------------------------------------------

    family: ClassVar[type[Model]]  # the ordinary family of this form

    def to_model(self, labels: Sequence[Hashable] | None) -> Model:
        """Return the model as an instance of the family that belongs to this internal form, with labels."""
        return self.family._from_form(self, labels)

    def parts(self) -> PartSource | None:
        """Return an object that can build any part of the model by itself; None if this is impossible."""
        return None

    stored_as: ClassVar[str]  # name in files: that of the ordinary family
    stored_arrays: ClassVar[dict[str, Any]]  # the type of each array that a file must have
    optional_arrays: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def to_arrays(self) -> dict[str, Array]:
        """Return the model as one-dimensional arrays, in the order in which files store them."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: CheckedArrays) -> Self:
        """Make the model from the arrays of a file; `arrays` raises an error if one is missing or malformed."""


class DivisibleForm(Form, PartSource):
    """A model in memory, of which any neighbourhood can also be built by itself."""

    first_radius = 5

    def parts(self) -> PartSource | None:
        """Return the object that can build any part of the model: the model itself; None if states are forbidden.

        A part of a model with forbidden states cannot show that an allowed joint state exists.
        """
        return None if self.has_zeros else self

    def degrees_at(self, positions: Ints) -> Ints:
        start = self.adjacency[0]
        return (start[positions + 1] - start[positions]).astype(np.int64)

    def _entries_at(self, positions: Ints) -> tuple[Ints, Ints]:
        """Return where the neighbours of some variables are in the adjacency, as CSR arrays."""
        return rows_at(self.adjacency[0], positions)

    def neighbors_at(self, positions: Ints) -> Ints:
        return self.adjacency[1][self._entries_at(positions)[1]].astype(np.int64)

    def restrict(self, variables: Bools) -> Form:
        positions = np.flatnonzero(variables)
        return self.part(positions, np.ones(len(positions), dtype=np.bool_)).off_by(self.error)


class ImpossibleEvidence(Exception):
    """The evidence has probability zero because of the variable at `position`.

    The model that catches this exception adds the variable's label.
    """

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
    """Return the largest absolute value of the finite potentials in each non-empty block of a flat array."""
    sizes = np.where(potentials > -np.inf, np.abs(potentials), 0.0)
    return np.maximum.reduceat(sizes, start[:-1]) if len(start) > 1 else sizes[:0]


def sums_of(sizes: Floats) -> float:
    """Bound the rounding error when terms of these absolute values are added up in any order.

    Evidence turns terms of several variables into terms of fewer variables, which are added up. A sum of k numbers is
    off by at most k roundings of the sum of their absolute values. Callers pass every term that contains a fixed
    variable or a neighbour of one.
    """
    return float(2.0 * UNIT * (len(sizes) + 2) * sizes.sum())


def rounding_of(potentials: Floats, units: float) -> float:
    """Bound the error of a log-density whose potentials have a relative error of `units` times 2^-53."""
    return float(units * (UNIT * np.abs(potentials).sum() * (1.0 + 2.0**-20) + 2.0**-1074 * potentials.size))


def require_possible(log_potentials: Floats, positions: Array) -> None:
    """Raise `ImpossibleEvidence` for the first position whose potential forbids the observed state (-inf)."""
    if (forbidden := np.isneginf(log_potentials)).any():
        raise ImpossibleEvidence(positions[int(np.argmax(forbidden))], "a forbidden state")


def require_finite_sums(values: Floats, positions: Array) -> None:
    """Raise `ImpossibleEvidence` for the first row with a sum of potentials that is too large."""
    if not (ok := check.is_log_potential(values)).all():
        index = check.first(~ok)
        requirement = f"such that sums of potentials are {check.FINITE}"
        raise ImpossibleEvidence(positions[index[0]], repr(float(values[index])), requirement)


def own_numbers(inside: Ints, positions: Array) -> Array:
    """Return the numbers that variables have in a part of a model.

    The part numbers its variables 0, 1, ... in the order of their increasing positions `inside` in the model.
    """
    if not len(inside) or inside[-1] == len(inside) - 1:
        return positions
    if 8 * len(positions) > inside[-1]:
        number = np.empty(inside[-1] + 1, dtype=np.int64)
        number[inside] = np.arange(len(inside))
        return number[positions]
    return np.searchsorted(inside, positions)


def require_variables(n: int, argument: str) -> int:
    """Return the number of variables; raise ArgumentError if it is 0."""
    if n < 1:
        raise ArgumentError(argument, "a model of at least one variable", 0)
    return n


def widen(form: Form, implementations: Mapping[type[Form], T]) -> tuple[Any, T]:
    """Return the implementation for a model's internal form; if it has none, convert the model to a form that has.

    Returns
    -------
    form, implementation
        The form, converted as far as needed, and the implementation for its type.
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
    """Named one-dimensional arrays read from a file, with methods that check their contents.

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
        """Raise an error unless `ok` is true everywhere.

        The message shows `instead`: a text, or the first bad entry of an array.
        """
        if not np.all(ok):
            if isinstance(instead, str):
                raise self.error(expected, instead)
            k = int(np.argmin(ok))
            raise self.error(expected, f"{instead[k]} at entry {k}")

    def require_variables(self, n: int) -> None:
        self.require(n >= 1, "one or more variables", "none")

    def finite(self, name: str) -> Floats:
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
        self.require(len(i) == len(j) == len(weights), "arrays i, j and couplings of equal length", lengths)
        pairs = np.stack([i, j], axis=1)
        self.require((i >= 0) & (i < j) & (j < n), f"pairs i < j of positions from 0 to {n - 1}", pairs)
        self.require((np.diff(i) > 0) | (np.diff(i) == 0) & (np.diff(j) > 0), "pairs in increasing order", pairs[1:])
        self.require(weights != 0, "couplings other than 0", weights)
        return symmetric(i, j, weights, n)

    def cardinalities(self) -> Ints:
        """Return the number of states of each variable."""
        sizes = self["cardinalities"]
        self.require_variables(len(sizes))
        self.require(sizes >= 2, "cardinalities of 2 or more", sizes)
        self.require_memory(8.0 * sizes.sum(dtype=np.float64), "states")
        return sizes

    def scopes(self, n: int, least: int) -> tuple[Ints, Ints]:
        """Return the scopes as CSR arrays: where each begins, and its positions in increasing order.

        Raises an error if a scope has fewer than `least` variables or the same variable twice.
        """
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
