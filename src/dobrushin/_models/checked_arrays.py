"""Arrays of a file, checked while they are made a form: what the families check, but in bulk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.couplings import symmetric
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import prefix_sums

FLOAT, WHOLE = np.dtype(np.float64), np.dtype(np.int64)


class CheckedArrays:
    """Named arrays of one axis.

    Parameters
    ----------
    arrays : dict from names to arrays
    error : function
        What to raise, from what was expected and what is there instead.
    require_memory : function
        Fails if so many bytes, for what is named, are too many.
    """

    def __init__(
        self,
        arrays: dict[str, NDArray[Any]],
        error: Callable[[str, str], Exception],
        require_memory: Callable[[float, str], None],
    ) -> None:
        self._arrays, self.error, self.require_memory = arrays, error, require_memory

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def get(self, name: str) -> NDArray[Any] | None:
        """An array that may be missing."""
        return self._arrays.get(name)

    def require(self, ok: Any, expected: str, instead: NDArray[Any] | str) -> None:
        """Fail if something is not so; `instead` is a text, or an array with an entry for each of `ok`."""
        if not np.all(ok):
            if isinstance(instead, str):
                raise self.error(expected, instead)
            k = int(np.argmin(ok))
            raise self.error(expected, f"{instead[k]} at entry {k}")

    def require_variables(self, n: int) -> None:
        """A model has a variable."""
        self.require(n >= 1, "one or more variables", "none")

    def finite(self, name: str) -> NDArray[np.float64]:
        """Numbers that can be computed with."""
        array = self[name]
        self.require(np.abs(array) <= check.LARGEST, f"{name} that are {check.FINITE}", array)
        return array

    def logs(self, name: str, sizes: NDArray[Any]) -> NDArray[np.float64]:
        """Log-potentials, as many as the sum of these sizes."""
        array, count = self[name], sizes.sum(dtype=np.float64)
        self.require(len(array) == count, f"{count:.17g} numbers in {name}", f"{len(array)}")
        self.require(check.is_log_potential(array), f"{name} that are {check.LOG_POTENTIAL}", array)
        return array

    def couplings(self, n: int) -> Any:
        """A symmetric matrix from pairs i < j, in order."""
        i, j, weights = self["i"], self["j"], self.finite("couplings")
        lengths = f"{len(i)}, {len(j)} and {len(weights)}"
        self.require(len(i) == len(j) == len(weights), "as many couplings as i and j", lengths)
        pairs = np.stack([i, j], axis=1)
        self.require((i >= 0) & (i < j) & (j < n), f"pairs i < j of positions from 0 to {n - 1}", pairs)
        self.require((np.diff(i) > 0) | (np.diff(i) == 0) & (np.diff(j) > 0), "pairs in increasing order", pairs[1:])
        self.require(weights != 0, "couplings other than 0", weights)
        return symmetric(i, j, weights, n)

    def cardinalities(self) -> NDArray[np.int64]:
        """Numbers of states."""
        sizes = self["cardinalities"]
        self.require_variables(len(sizes))
        self.require(sizes >= 2, "cardinalities of 2 or more", sizes)
        self.require_memory(8.0 * sizes.sum(dtype=np.float64), "states")
        return sizes

    def scopes(self, n: int, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts of the scopes, each of `least` or more different positions; and these positions in order."""
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
