"""The library's own files: ``.npz``, for every family, exact, with labels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
from dobrushin._models.couplings import symmetric
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError
from dobrushin.io import labels as names
from dobrushin.io.archive import pack, unpack
from dobrushin.io.source import Source

_FORMAT = "dobrushin model 1"
_FLOAT, _WHOLE = np.dtype(np.float64), np.dtype(np.int64)
# Arrays of each family, besides 'format', 'labels' and 'unaries', which not every file has.
_ARRAYS: dict[str, dict[str, Any]] = {
    "Ising": {"i": _WHOLE, "j": _WHOLE, "couplings": _FLOAT, "fields": _FLOAT},
    "Potts": {"i": _WHOLE, "j": _WHOLE, "couplings": _FLOAT, "size": _WHOLE},
    "PairwiseMRF": {"cardinalities": _WHOLE, "unaries": _FLOAT, "i": _WHOLE, "j": _WHOLE, "tables": _FLOAT},
    "SpinMRF": {"arity": _WHOLE, "scope": _WHOLE, "strengths": _FLOAT, "fields": _FLOAT},
    "FactorGraph": {"cardinalities": _WHOLE, "arity": _WHOLE, "scope": _WHOLE, "tables": _FLOAT},
}


def write(model: Model) -> bytes:
    """The model as a file."""
    family = type(model).__name__
    if type(model) not in (Ising, Potts, PairwiseMRF, SpinMRF, FactorGraph):
        raise ArgumentError("write", "model", f"one of {', '.join(_ARRAYS)}", family)
    arrays: dict[str, NDArray[Any]] = {"format": _text(f"{_FORMAT} {family}")}
    if not isinstance(model.labels, range):
        arrays["labels"] = np.frombuffer(names.encode(model.labels), dtype=np.uint8)
    if isinstance(model, Ising | Potts):
        upper = sparse.coo_array(sparse.triu(model.couplings, k=1))
        arrays |= {"i": upper.coords[0], "j": upper.coords[1], "couplings": upper.data}
    if isinstance(model, Ising | SpinMRF):
        arrays["fields"] = model.fields
    if isinstance(model, Potts):
        arrays["size"] = np.array([model.n_variables, model._states])
        if model._unaries is not None:
            arrays["unaries"] = model._unaries.ravel()
    if isinstance(model, PairwiseMRF):
        i, j = model.edges.T
        arrays |= {"cardinalities": model.cardinalities, "unaries": model._unary, "i": i, "j": j}
        arrays["tables"] = model._table
    if isinstance(model, SpinMRF | FactorGraph):
        arrays |= {"arity": np.diff(model._scope_start), "scope": model._scope}
    if isinstance(model, SpinMRF):
        arrays["strengths"] = model._strengths
    if isinstance(model, FactorGraph):
        arrays |= {"cardinalities": model.cardinalities, "tables": model._table}
    kinds = _ARRAYS[family] | {"unaries": _FLOAT}
    return pack({name: array.astype(kinds[name]) if name in kinds else array for name, array in arrays.items()})


def read(source: Source) -> Model:
    """The model of a file."""
    arrays = unpack(source)
    told = arrays.pop("format", np.empty(0, dtype=np.uint8)).tobytes().decode("utf-8", "replace")
    family = told.removeprefix(f"{_FORMAT} ")
    if family not in _ARRAYS or not told.startswith(_FORMAT):
        raise source.error(f"the format '{_FORMAT}' and a family", names.shown(told))
    labels = arrays.pop("labels", None)
    expected = dict(_ARRAYS[family])
    if family == "Potts" and "unaries" in arrays:
        expected["unaries"] = _FLOAT
    if {name: array.dtype for name, array in arrays.items()} != expected:
        raise source.error(f"the arrays {', '.join(sorted(expected))}", ", ".join(sorted(map(names.shown, arrays))[:8]))
    return _Reader(source, arrays, labels).make(family)


def _text(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


class _Reader:
    """Arrays of a file, checked as they are made a model: what the constructors check, but in bulk."""

    def __init__(self, source: Source, arrays: dict[str, NDArray[Any]], labels: NDArray[np.uint8] | None) -> None:
        self.source = source
        self.arrays = arrays
        self._labels = labels

    def make(self, family: str) -> Model:
        """The model."""
        make = {
            "Ising": self._ising,
            "Potts": self._potts,
            "PairwiseMRF": self._pairwise,
            "SpinMRF": self._spins,
            "FactorGraph": self._factors,
        }
        try:
            return make[family]()
        except ArgumentError as error:
            raise self.source.error("a model", f"what is none ({str(error).rstrip('.')})") from None

    def require(self, ok: Any, expected: str, found: Any = None) -> None:
        """Fail if something is not so; `found` is a text, or an array with the first bad entry where `ok` is false."""
        if not np.all(ok):
            if not isinstance(found, str):
                k = int(np.argmin(ok))
                found = f"entry {k}" if found is None else f"{np.asarray(found)[k]} at entry {k}"
            raise self.source.error(expected, found)

    def labels(self, n: int) -> Sequence[Hashable] | None:
        self.require(n >= 1, "one or more variables", "none")
        if self._labels is None:
            return None
        self.require(self._labels.dtype == np.uint8, "labels as text", "numbers")
        return names.decode(self.source, self._labels.tobytes(), n)

    def finite(self, name: str) -> NDArray[np.float64]:
        array = self.arrays[name]
        self.require(np.abs(array) <= check.LARGEST, f"{name} that are {check.FINITE}", array)
        return array

    def logs(self, name: str, sizes: NDArray[Any]) -> NDArray[np.float64]:
        """Log-potentials, as many as the sum of these sizes."""
        array, count = self.arrays[name], sizes.sum(dtype=np.float64)
        self.require(len(array) == count, f"{count:.17g} numbers in {name}", f"{len(array)}")
        self.require(check.is_log_potential(array), f"{name} that are {check.LOG_POTENTIAL}", array)
        return array

    def couplings(self, n: int) -> Any:
        """A symmetric matrix from pairs i < j, in order."""
        i, j, weights = self.arrays["i"], self.arrays["j"], self.finite("couplings")
        lengths = f"{len(i)}, {len(j)} and {len(weights)}"
        self.require(len(i) == len(j) == len(weights), "as many couplings as i and j", lengths)
        pairs = np.stack([i, j], axis=1)
        self.require((i >= 0) & (i < j) & (j < n), f"pairs i < j of positions from 0 to {n - 1}", pairs)
        self.require((np.diff(i) > 0) | (np.diff(i) == 0) & (np.diff(j) > 0), "pairs in increasing order", pairs[1:])
        self.require(weights != 0, "couplings other than 0", weights)
        return symmetric(i, j, weights, n)

    def cardinalities(self) -> NDArray[np.int64]:
        sizes = self.arrays["cardinalities"]
        self.require(sizes >= 2, "cardinalities of 2 or more", sizes)
        self.source.require_memory(8.0 * sizes.sum(dtype=np.float64), "states")
        return sizes

    def scopes(self, n: int, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts of the scopes, each of `least` or more different positions; and these positions in order."""
        arity, scope = self.arrays["arity"], self.arrays["scope"]
        self.require(arity >= least, f"scopes of {least} or more variables", arity)
        total = arity.sum(dtype=np.float64)
        self.require(total == len(scope), f"{total:.17g} variables in all scopes", f"{len(scope)}")
        self.require((scope >= 0) & (scope < n), f"positions from 0 to {n - 1}", scope)
        of = np.repeat(np.arange(len(arity)), arity)
        order = np.lexsort((scope, of))
        twice = (np.diff(of[order]) == 0) & (np.diff(scope[order]) == 0)
        if twice.any():
            found = f"variable {scope[order][1:][twice][0]} twice"
            raise self.source.error("different variables in each scope", found)
        return np.concatenate([[0], np.cumsum(arity)]).astype(np.int64), scope[order]

    def _ising(self) -> Ising:
        fields = self.finite("fields")
        labels = self.labels(len(fields))
        return Ising._make(self.couplings(len(fields)), fields, labels)

    def _potts(self) -> Potts:
        self.require(len(self.arrays["size"]) == 2, "the numbers of variables and states", "another size")
        n, states = self.arrays["size"].tolist()
        self.require(n >= 1 and states >= 2, "one or more variables of two or more states", f"{n} of {states}")
        self.source.require_memory(8.0 * n * states, "states")
        unaries = self.arrays.get("unaries")
        if unaries is not None:
            self.require(len(unaries) == n * states, f"{n * states} numbers in unaries", f"{len(unaries)}")
            unaries = unaries.reshape(n, states)
        return Potts._make(self.couplings(n), states, unaries, self.labels(n))

    def _pairwise(self) -> PairwiseMRF:
        sizes = self.cardinalities()
        labels = self.labels(len(sizes))
        unaries = self.logs("unaries", sizes)
        best = np.maximum.reduceat(unaries, np.cumsum(sizes) - sizes)
        self.require(best > -np.inf, "a state of each variable that is allowed", best)
        self.require(len(self.arrays["i"]) == len(self.arrays["j"]), "as many i as j", "more of one")
        pairs = np.stack([self.arrays["i"], self.arrays["j"]], axis=1)
        n = len(sizes)
        self.require(((pairs >= 0) & (pairs < n)).all(axis=1), f"positions from 0 to {n - 1}", pairs)
        self.require(pairs[:, 0] != pairs[:, 1], "edges between different variables", pairs)
        order = np.lexsort((pairs.max(axis=1), pairs.min(axis=1)))
        ends = np.sort(pairs, axis=1)[order]
        if (twice := (np.diff(ends, axis=0) == 0).all(axis=1)).any():
            raise self.source.error("each edge once", f"{tuple(ends[1:][twice][0].tolist())} twice")
        areas = sizes[pairs].astype(np.float64).prod(axis=1)
        model = PairwiseMRF.__new__(PairwiseMRF)
        model._build(sizes, unaries, pairs, self.logs("tables", areas), labels)
        return model

    def _spins(self) -> SpinMRF:
        fields, strengths = self.finite("fields"), self.finite("strengths")
        n = len(fields)
        labels = self.labels(n)
        start, ordered = self.scopes(n, least=2)
        self.require(len(strengths) == len(start) - 1, f"{len(start) - 1} strengths", f"{len(strengths)}")
        self.require(strengths != 0, "strengths other than 0", strengths)
        sets = {ordered[a:b].tobytes() for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)}
        self.require(len(sets) == len(strengths), "each set of variables once", "one of them twice")
        return SpinMRF._make(n, start, self.arrays["scope"], strengths, fields, labels)

    def _factors(self) -> FactorGraph:
        sizes = self.cardinalities()
        labels = self.labels(len(sizes))
        start, _ = self.scopes(len(sizes), least=0)
        area = np.ones(len(start) - 1)
        with np.errstate(over="ignore"):
            np.multiply.at(area, np.repeat(np.arange(len(area)), np.diff(start)), sizes[self.arrays["scope"]])
        table = self.logs("tables", area)
        model = FactorGraph.__new__(FactorGraph)
        table_start = np.concatenate([[0], np.cumsum(area)]).astype(np.int64)
        model._build(sizes, start, self.arrays["scope"], table_start, table, labels)
        return model
