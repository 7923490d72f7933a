"""Potts models: couplings reward or punish equal states of neighbours."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike

from dobrushin._models.couplings import read_pairs, restrict_couplings
from dobrushin._models.forms import (
    FLOAT,
    WHOLE,
    CheckedArrays,
    require_finite_sums,
    require_possible,
    sizes_of,
    sums_of,
)
from dobrushin._models.ising import CoupledForm
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Bools, Floats, Ints, frozen
from dobrushin._shared.call import public
from dobrushin._shared.memory import require_memory
from dobrushin.errors import ArgumentError
from dobrushin.typing import Couplings, GridCouplings, GridPotentials, NamesOfStates, Potentials

if TYPE_CHECKING:
    from dobrushin._models.local import LocalModel

# Bytes of tables up to which the free memory is not looked at, because that takes longer than making the tables.
_NEGLIGIBLE_BYTES = 2**20
_MANY_STATES = "Fix some variables with evidence, or use a model of fewer states."


class Potts(Model):
    """Potts model: each edge rewards equal states.

    Parameters
    ----------
    couplings : array, sparse matrix, dict or networkx graph
        As for `Ising`; strengths are finite (for hard constraints use `PairwiseMRF`).
    states : int
        Number of states of each variable.
    unaries : array of shape (n, states) or dict, optional
        Log-potential of each state of each variable; -inf forbids a state. From a graph the node
        attribute ``unary`` is taken.
    state_names : tuple, dict or list, optional
        Names of the states; see `Model`.

    Notes
    -----
    pi(x) ∝ exp( sum over edges s_ij 1{x_i = x_j} + sum_i unary_i(x_i) ).

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Potts({(0, 1): 0.5, (1, 2): 0.5}, states=3)
    >>> model.conditional(1, [0, 1, 0]).round(4)
    array([0.5761, 0.2119, 0.2119])
    """

    _form: LabelPairs

    @public()
    def __init__(
        self, couplings: Couplings, states: int, unaries: Potentials | None = None, *, state_names: NamesOfStates = None
    ) -> None:
        zero = np.broadcast_to(0.0, check.count(states, "states", 2))  # takes no memory
        read = read_pairs(couplings, unaries, "unaries", "unary", zero)
        form = LabelPairs(read.couplings, states, read.potentials).off_by(read.error)
        super().__init__(form, read.labels, state_names)

    @overload
    @classmethod
    def grid(
        cls,
        rows: int,
        cols: int,
        states: int,
        couplings: ArrayLike | tuple[ArrayLike, ArrayLike] = 0.0,
        unaries: ArrayLike | None = None,
        periodic: bool = False,
        *,
        state_names: NamesOfStates = None,
    ) -> Potts: ...

    @overload
    @classmethod
    def grid(
        cls,
        rows: int,
        cols: int,
        states: int,
        couplings: GridCouplings = 0.0,
        unaries: GridPotentials = None,
        periodic: bool = False,
        *,
        state_names: NamesOfStates = None,
    ) -> LocalModel: ...

    @classmethod
    @public()
    def grid(
        cls,
        rows: int,
        cols: int,
        states: int,
        couplings: GridCouplings = 0.0,
        unaries: GridPotentials = None,
        periodic: bool = False,
        *,
        state_names: NamesOfStates = None,
    ) -> Potts | LocalModel:
        """Make the Potts model of a rectangular lattice, with sites in row-major order.

        Parameters
        ----------
        rows, cols, states : int
        couplings : number, array, pair of arrays or function
            As for `Ising.grid`.
        unaries : array of shape (rows, cols, states), or function of variable numbers, optional
        periodic : bool
        state_names : tuple, dict or list, optional
            As for `Ising.grid`.

        Returns
        -------
        Potts or LocalModel
            As for `Ising.grid`.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Potts.grid(20, 31, states=9, couplings=0.48)
        Potts(n_variables=620, states=9, edges=1189)
        """
        from dobrushin._models.local import GridPairs

        count = check.count(states, "states", 2)
        return GridPairs(rows, cols, couplings, unaries, periodic, count).model(cls, state_names)

    @property
    def couplings(self) -> Any:
        """Return the symmetric CSR matrix of the couplings s_ij."""
        return self._form.couplings

    @property
    def unaries(self) -> Floats:
        """Return the log-potentials of the single variables, shape (n, states)."""
        return self._form.unaries


class LabelPairs(CoupledForm):
    """Internal form of Potts models: couplings that reward equal states, and unary potentials.

    Parameters
    ----------
    couplings : CSR matrix
        Symmetric, with an empty diagonal and sorted columns (see `symmetric`).
    states : int
        Number of states, at least 2.
    unaries : array of shape (n, states), optional
        Log-potentials.
    """

    family = Potts
    stored_as = "Potts"
    stored_arrays: ClassVar = {"i": WHOLE, "j": WHOLE, "couplings": FLOAT, "size": WHOLE}
    optional_arrays: ClassVar = {"unaries": FLOAT}

    def __init__(self, couplings: Any, states: int, unaries: Any = None) -> None:
        self.states = self.sizes = check.count(states, "states", 2)
        super().__init__(couplings)
        self.given_unaries: Floats | None = None  # None: all 0
        if unaries is not None:
            array = check.log_potential(check.real_array(unaries, "unaries"), "unaries")
            if array.shape != (self.n_variables, states):
                requirement = f"an array of shape {(self.n_variables, states)}"
                raise ArgumentError("unaries", requirement, got=f"shape {array.shape}")
            none = np.flatnonzero(np.isneginf(array).all(axis=1))
            if len(none):
                requirement = "above -inf for some state of each variable"
                raise ArgumentError("unaries", requirement, array[none[0]], f"index {none[0]}")
            self.given_unaries = frozen(array.copy())

    @property
    def unaries(self) -> Floats:
        return np.zeros((self.n_variables, self.states)) if self.given_unaries is None else self.given_unaries

    @property
    def counts(self) -> dict[str, int]:
        return {"states": self.states, "edges": self.couplings.nnz // 2}

    @cached_property
    def has_zeros(self) -> bool:
        return self.given_unaries is not None and bool(np.isneginf(self.given_unaries).any())

    def is_forbidden(self, positions: Ints, digits: Ints) -> Bools:
        if self.given_unaries is None:
            return super().is_forbidden(positions, digits)
        return np.isneginf(self.given_unaries[positions, digits])

    @cached_property
    def largest_exponent(self) -> float:
        """Bound the difference between the log-weights of two allowed states of any variable."""
        owner = np.repeat(np.arange(self.n_variables), np.diff(self.couplings.indptr))
        total = np.bincount(owner, weights=np.abs(self.couplings.data), minlength=self.n_variables)
        if self.given_unaries is not None:
            least = np.where(self.given_unaries > -np.inf, self.given_unaries, np.inf).min(axis=1)
            total = total + self.given_unaries.max(axis=1) - least
        return float(total.max())

    def favourites(self, positions: Ints) -> Ints:
        return self.unaries[positions].argmax(axis=1)

    def _blocks(self, positions: Ints, ends: Ints, strengths: Floats) -> list[tuple[Ints, Floats]]:
        needed = 16.0 * len(strengths) * self.states**2  # two copies at a time
        if needed > _NEGLIGIBLE_BYTES:
            require_memory("A table for each pair", needed, _MANY_STATES)
        pairs = ends, strengths[:, None] * np.eye(self.states).ravel()
        return [pairs] if self.given_unaries is None else [(positions[:, None], self.given_unaries[positions]), pairs]

    def log_density(self, states: Ints) -> Floats:
        total = np.zeros(len(states))
        for a in range(self.states):
            here = (states == a).astype(np.float64)
            total += 0.5 * np.einsum("sn,sn->s", here, here @ self.couplings)
        if self.given_unaries is not None:
            total += self.given_unaries[np.arange(self.n_variables), states].sum(axis=-1)
        return total

    def log_weights(self, i: int, states: Ints) -> Floats:
        span = slice(self.couplings.indptr[i], self.couplings.indptr[i + 1])
        neighbors, strengths = self.couplings.indices[span], self.couplings.data[span]
        agree = states[..., neighbors, None] == np.arange(self.states)
        return self.unaries[i] + np.einsum("...ma,m->...a", agree, strengths)

    def condition(self, fixed: Bools, state: Ints) -> LabelPairs:
        kept, known = np.flatnonzero(~fixed), np.flatnonzero(fixed)
        require_possible(self.unaries[known, state[known]], known)
        one_hot = np.zeros((self.n_variables, self.states))
        one_hot[known, state[known]] = 1.0
        unaries = self.unaries[kept] + (self.couplings @ one_hot)[kept]
        require_finite_sums(unaries, kept)
        near, (i, j, strengths) = self._around(fixed), self.pairs()
        sizes = np.abs(strengths[near[i] | near[j]])
        if self.given_unaries is not None:
            start = np.arange(0, self.given_unaries.size + 1, self.states)
            sizes = np.concatenate([sizes, sizes_of(self.given_unaries.ravel(), start)[near]])
        rest = LabelPairs(restrict_couplings(self.couplings, ~fixed), self.states, unaries)
        return rest.off_by(self.error + sums_of(sizes))

    def _replace(self, couplings: Any, kept: Ints) -> LabelPairs:
        given = self.given_unaries
        return LabelPairs(couplings, self.states, None if given is None else given[kept])

    def to_arrays(self) -> dict[str, Array]:
        arrays = dict(zip(("i", "j", "couplings"), self.pairs(), strict=True))
        arrays["size"] = np.array([self.n_variables, self.states])
        return arrays if self.given_unaries is None else {**arrays, "unaries": self.given_unaries.ravel()}

    @classmethod
    def from_arrays(cls, arrays: CheckedArrays) -> LabelPairs:
        arrays.require(len(arrays["size"]) == 2, "the numbers of variables and states", "another size")
        n, states = arrays["size"].tolist()
        arrays.require(n >= 1 and states >= 2, "one or more variables of two or more states", f"{n} of {states}")
        arrays.require_memory(8.0 * n * states, "states")
        unaries = arrays.get("unaries")
        if unaries is not None:
            arrays.require(len(unaries) == n * states, f"{n * states} numbers in unaries", f"{len(unaries)}")
            unaries = unaries.reshape(n, states)
        return cls(arrays.couplings(n), states, unaries)
