"""Factor graphs on disk that are used where they are: plain .npy arrays in a folder, with a small manifest.

manifest.json      format; numbers of variables, of factors, of places in all scopes, and of entries of all tables
cardinalities.npy  int64: number of states of each variable
scope_start.npy    int64, factors + 1: where the scope of each factor begins
scope.npy          int64: positions of the variables of the factors
table_start.npy    int64, factors + 1: where the log-table of each factor begins
table.npy          float64: log-tables in C order; nothing is forbidden
factor_start.npy   int64, variables + 1: where the factors of each variable begin
factor_of.npy      int64: the factors of the variables
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.factors import FactorTables
from dobrushin._models.local import LocalForm
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import row_entries
from dobrushin.errors import FormatError

TABLES_FORMAT = "dobrushin factor graph folder 1"
# What the manifest counts, and of which arrays these are the lengths (one more for starts).
COUNTS = ("variables", "factors", "places", "entries")
LENGTHS = {
    "cardinalities": ("variables", 0),
    "scope_start": ("factors", 1),
    "scope": ("places", 0),
    "table_start": ("factors", 1),
    "table": ("entries", 0),
    "factor_start": ("variables", 1),
    "factor_of": ("places", 0),
}


class MappedTables(FactorTables):
    """A form whose arrays stay on disk. What is read of them is checked: files may be damaged."""

    def __init__(self, path: str, arrays: dict[str, Any]) -> None:
        self.path = path
        self._cardinalities = arrays["cardinalities"]
        self.scope_start, self.scope = arrays["scope_start"], arrays["scope"]
        self.table_start, self.table = arrays["table_start"], arrays["table"]
        self.factor_start, self.factor_of = arrays["factor_start"], arrays["factor_of"]

    def _factors_at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        start, slot = self._rows("factor_start", positions, len(self.factor_of))
        factor = np.asarray(self.factor_of[slot])
        fine = (factor >= 0) & (factor < self.n_factors)
        self._require("factor_of", fine, f"factors from 0 to {self.n_factors - 1}", factor)
        scope_start, places = self._rows("scope_start", factor, len(self.scope))
        own = np.repeat(np.repeat(positions, np.diff(start)), np.diff(scope_start))
        held = np.add.reduceat(self.scope[places] == own, scope_start[:-1]) if len(factor) else factor
        self._require("factor_of", held == 1, "factors that hold the variable, once", factor)
        return start, factor

    def neighbors_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        seen = super().neighbors_at(positions)
        self._require("scope", (seen >= 0) & (seen < self.n_variables), f"below {self.n_variables}", seen)
        return np.asarray(seen)

    def part(self, inside: NDArray[np.int64], inner: NDArray[np.bool_]) -> FactorTables:
        sizes = np.asarray(self._cardinalities[inside])
        self._require("cardinalities", sizes >= 2, "2 or more", sizes)
        start, factor = self._factors_at(inside[inner])
        values = self.table[self._rows("table_start", np.unique(factor), len(self.table))[1]]
        self._require("table", np.abs(values) <= check.LARGEST, check.FINITE, values)
        part = super().part(inside, inner)
        # Every inner variable knows all the factors that were found through the others.
        listed = np.diff(start)
        found = np.diff(part.factor_start)[inner]
        self._require("factor_of", listed == found, f"complete ({found.tolist()[:5]} factors or more)", listed)
        area = np.multiply.reduceat(sizes[part.scope], part.scope_start[:-1]) if part.n_factors else sizes[:0]
        numbers = np.diff(part.table_start)
        self._require("table_start", area == numbers, "tables as large as their scopes say", numbers)
        return part

    def _rows(self, name: str, rows: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`row_entries` of rows whose starts are in a file."""
        starts = getattr(self, name)
        first, last = np.asarray(starts[rows]), np.asarray(starts[rows + 1])
        self._require(name, (first >= 0) & (first <= last) & (last <= most), f"increasing up to {most}", first)
        return row_entries(first, last - first)

    def _require(self, name: str, fine: Any, expected: str, values: NDArray[Any]) -> None:
        if not np.all(fine):
            value = np.ravel(values)[int(np.argmin(fine))]
            raise FormatError(os.path.join(self.path, f"{name}.npy"), f"numbers that are {expected}", f"{value}")


class StoredTables(LocalForm):
    """A factor graph whose arrays stay on disk."""

    def __init__(self, path: str, arrays: dict[str, Any]) -> None:
        super().__init__(MappedTables(path, arrays))
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, repr(self))


def _reopen(path: str, known: str) -> Any:
    """A model from another process, if the folder still holds it."""
    from dobrushin.io.stored import open_model

    model = open_model(path)
    if repr(model) != known:
        raise FormatError(path, f"{known} as when it was opened first", repr(model))
    return model
