"""Families as `fit` needs them: parameters, the statistics that belong to them, and the model with given parameters.

Parameters of edges come first, in the order of the edges, then those of variables. Only finite ones that are asked for
are free; the others (forbidden states, parameters that are not learned) stay as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._models import Ising, Model, PairwiseMRF, Potts
from dobrushin._models.couplings import symmetric
from dobrushin._models.ising import SpinPairs
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.state_names import StateNames
from dobrushin._shared.arrays import frozen, prefix_sums

# Entries of the temporary arrays of a statistic.
_ENTRIES_AT_ONCE = 4_000_000


class Structure(ABC):
    """A family of models on fixed variables and edges: pi(x) ∝ exp( sum_k parameters_k t_k(x) ).

    Arrays of states have shape (variables, observations) here. `difference` is the largest change of a statistic with
    one of its variables, which is its range, too.
    """

    family: type[Model]
    difference: float = 1.0
    spins: bool = False  # whether states are -1/+1
    agreement: np.ufunc = np.equal  # of the states of the ends of an edge: its statistic
    state_names: StateNames | None = None

    def __init__(
        self,
        sizes: NDArray[np.int64],
        edges: NDArray[np.int64],
        labels: Sequence[Hashable],
        start: NDArray[np.float64] | None,
        learn: str,
    ) -> None:
        self.sizes, self.edges, self.labels = frozen(sizes), frozen(edges), labels
        self.n = len(sizes)
        per_edge, per_variable = self._counts()
        # Number of the first parameter of each edge, and of the first one of the variables.
        self.offsets = prefix_sums(per_edge).astype(np.int64)
        self.split = int(self.offsets[-1])
        first = np.concatenate([np.repeat(edges[:, 0], per_edge), np.repeat(np.arange(self.n), per_variable)])
        second = np.concatenate([np.repeat(edges[:, 1], per_edge), np.full(int(per_variable.sum()), -1)])
        start = np.zeros(len(first)) if start is None else start
        self.start = frozen(start)
        is_pair = second >= 0
        asked = is_pair if learn == "edges" else ~is_pair if learn == "unaries" else np.ones(len(start), dtype=np.bool_)
        self.free = frozen(np.flatnonzero(asked & np.isfinite(start)))
        # Variables of the free statistics; the second one is -1 for statistics of one variable.
        self._first, self._second = frozen(first[self.free]), frozen(second[self.free])
        both = np.concatenate([self._first, self._second])
        self.used = frozen(np.unique(both[both >= 0]))

    def fill(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return all parameters, given the free ones."""
        full: NDArray[np.float64] = self.start.copy()
        full[self.free] = theta
        return full

    def weights(self) -> NDArray[np.float64]:
        """Return numbers w with sum_i d_ik b_i <= max_i w_i b_i for every free statistic k with differences d_ik."""
        w = np.zeros(self.n)
        pair = self._second >= 0
        np.maximum.at(w, self._first, np.where(pair, 2.0, 1.0) * self.difference)
        w[self._second[pair]] = 2.0 * self.difference
        return w

    def largest_bias(self, b: NDArray[np.float64]) -> float:
        """Bound the bias of every free statistic, given bounds b on the disagreement of the variables."""
        pair = self._second >= 0
        total = b[self._first] + np.where(pair, b[self._second], 0.0)
        # Sums of two numbers, times 1 or 2: one rounding each.
        return float(min(self.difference, self.difference * total.max() * (1.0 + 2.0**-50)))

    def data_digits(self, states: NDArray[Any]) -> NDArray[Any]:
        """Return states of shape (observations, variables) as statistics take them."""
        small = np.int8 if int(self.sizes.max()) <= 127 else np.int32
        return np.ascontiguousarray(states.T, dtype=small)

    def pairwise(self, full: NDArray[np.float64]) -> PairwiseMRF:
        """Return the same distribution with a table on every edge, also where a coupling is 0."""
        pairs, singles = self.tables(full)
        return PairwiseMRF._from_form(PairTables(self.sizes, singles, self.edges, pairs), self.labels)

    def means(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return the average of every statistic over observations."""
        return np.concatenate([*self._edge_sums(x), self._variable_sums(x)]) / x.shape[1]

    def along(self, direction: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
        """Return sum_k direction_k t_k(x) of every observation."""
        total = self._along_variables(direction[self.split :], x)
        for part in self._along_edges(direction, x):
            total = total + part
        return total

    @classmethod
    @abstractmethod
    def _parameters(cls, model: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return edges and parameters of a model."""

    @abstractmethod
    def model(self, full: NDArray[np.float64]) -> Model:
        """Return the model with these parameters."""

    @abstractmethod
    def tables(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the log-tables of all edges and of all variables, one after the other."""

    @abstractmethod
    def expectations(self, pairs: NDArray[np.float64], singles: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the average of every statistic, given the marginals of all edges and variables as flat tables."""

    # Below: one statistic for each edge, and one for each state of each variable. Subclasses say where that is not so.

    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of parameters of each edge and of each variable."""
        return np.ones(len(self.edges), dtype=np.int64), self.sizes

    def names(self) -> list[tuple[Hashable, ...]]:
        """Return the name of each parameter."""
        names: list[tuple[Hashable, ...]] = [
            ("coupling", self.labels[a], self.labels[b]) for a, b in self.edges.tolist()
        ]
        return [*names, *(("unary", self.labels[i], a) for i in range(self.n) for a in range(int(self.sizes[i])))]

    def _chunks(self, x: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
        """Yield a slice of edges, and the states of their first and second ends."""
        step = max(1, _ENTRIES_AT_ONCE // max(1, x.shape[1]))
        for k in range(0, len(self.edges), step):
            here = self.edges[k : k + step]
            yield slice(k, k + len(here)), x[here[:, 0]], x[here[:, 1]]

    def _edge_sums(self, x: NDArray[Any]) -> list[NDArray[np.int64]]:
        return [self.agreement(a, b).sum(axis=1, dtype=np.int64) for _, a, b in self._chunks(x)]

    def _along_edges(self, direction: NDArray[np.float64], x: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        for span, a, b in self._chunks(x):
            yield direction[span] @ self.agreement(a, b)

    def _variable_sums(self, x: NDArray[Any]) -> NDArray[np.int64]:
        rows = zip(x, self.sizes.tolist(), strict=True)
        return np.concatenate([np.bincount(row, minlength=size) for row, size in rows])

    def _along_variables(self, direction: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
        start = prefix_sums(self.sizes)
        total = np.zeros(x.shape[1])
        for i, row in enumerate(x):
            total += direction[start[i] + row.astype(np.int64)]
        return total


class IsingStructure(Structure):
    """Spins: t = x_i x_j, with differences 2, and t = x_i."""

    family, difference, spins, agreement = Ising, 2.0, True, np.multiply

    @classmethod
    def _parameters(cls, model: Ising) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        edges, couplings = _couplings(model)
        return edges, np.concatenate([couplings, model.fields])

    def model(self, full: NDArray[np.float64]) -> Ising:
        matrix = symmetric(self.edges[:, 0], self.edges[:, 1], full[: self.split], self.n)
        return Ising._from_form(SpinPairs(matrix, full[self.split :]), self.labels)

    def tables(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        pairs = np.outer(full[: self.split], [1.0, -1.0, -1.0, 1.0]).ravel()
        return pairs, np.outer(full[self.split :], [-1.0, 1.0]).ravel()

    def expectations(self, pairs: NDArray[np.float64], singles: NDArray[np.float64]) -> NDArray[np.float64]:
        p, q = pairs.reshape(-1, 4), singles.reshape(-1, 2)
        return np.concatenate([p[:, 0] + p[:, 3] - p[:, 1] - p[:, 2], q[:, 1] - q[:, 0]])

    def names(self) -> list[tuple[Hashable, ...]]:
        return [*super().names()[: self.split], *(("field", label) for label in self.labels)]

    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.ones(len(self.edges), dtype=np.int64), np.ones(self.n, dtype=np.int64)

    def _variable_sums(self, x: NDArray[Any]) -> NDArray[np.int64]:
        return x.sum(axis=1, dtype=np.int64)

    def _along_variables(self, direction: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
        return direction @ x


class PottsStructure(Structure):
    """Labels with couplings between equal states: t = 1{x_i = x_j}, and t = 1{x_i = a}, with differences 1."""

    family = Potts

    @classmethod
    def _parameters(cls, model: Potts) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        edges, couplings = _couplings(model)
        return edges, np.concatenate([couplings, model.unaries.ravel()])

    def model(self, full: NDArray[np.float64]) -> Potts:
        k = int(self.sizes[0])
        matrix = symmetric(self.edges[:, 0], self.edges[:, 1], full[: self.split], self.n)
        return Potts._from_form(LabelPairs(matrix, k, full[self.split :].reshape(self.n, k)), self.labels)

    def tables(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return np.outer(full[: self.split], np.eye(int(self.sizes[0])).ravel()).ravel(), full[self.split :]

    def expectations(self, pairs: NDArray[np.float64], singles: NDArray[np.float64]) -> NDArray[np.float64]:
        k = int(self.sizes[0])
        return np.concatenate([pairs.reshape(-1, k * k)[:, :: k + 1].sum(axis=1), singles])


class PairwiseStructure(Structure):
    """A table on each edge: t = 1{x_i = a, x_j = b} and t = 1{x_i = a}, with differences 1."""

    family = PairwiseMRF

    @classmethod
    def _parameters(cls, model: PairwiseMRF) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return model._form.edges, np.concatenate([model._form.table, model._form.unary])

    def model(self, full: NDArray[np.float64]) -> PairwiseMRF:
        return self.pairwise(full)

    def tables(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return full[: self.split], full[self.split :]

    def expectations(self, pairs: NDArray[np.float64], singles: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([pairs, singles])

    def names(self) -> list[tuple[Hashable, ...]]:
        cells = [
            ("table", self.labels[a], self.labels[b], s, t)
            for a, b in self.edges.tolist()
            for s, t in np.ndindex(int(self.sizes[a]), int(self.sizes[b]))
        ]
        return [*cells, *super().names()[len(self.edges) :]]

    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.sizes[self.edges].prod(axis=1), self.sizes

    def _entries(self, x: NDArray[Any]) -> Iterator[NDArray[np.int64]]:
        """Yield the number of the parameter of each edge in each observation."""
        for span, a, b in self._chunks(x):
            width = self.sizes[self.edges[span, 1]][:, None]
            yield self.offsets[:-1][span][:, None] + a.astype(np.int64) * width + b

    def _edge_sums(self, x: NDArray[Any]) -> list[NDArray[np.int64]]:
        counts = np.zeros(self.split, dtype=np.int64)
        for entry in self._entries(x):
            counts += np.bincount(entry.ravel(), minlength=len(counts))
        return [counts]

    def _along_edges(self, direction: NDArray[np.float64], x: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        for entry in self._entries(x):
            yield direction[entry].sum(axis=0)


# Structures by the name that `fit` takes.
FAMILIES: dict[str, type[Structure]] = {"ising": IsingStructure, "potts": PottsStructure, "pairwise": PairwiseStructure}


def structure_of(model: Model, learn: str) -> Structure | None:
    """Return the structure of a model; None if the ordinary family of its form cannot be learned."""
    ordinary = model._form.to_model(model.labels)._name_states(model._state_names)
    kind = next((kind for kind in FAMILIES.values() if isinstance(ordinary, kind.family)), None)
    if kind is None:
        return None
    edges, start = kind._parameters(ordinary)
    structure = kind(ordinary.cardinalities, edges, ordinary.labels, start, learn)
    structure.state_names = ordinary._state_names
    return structure


def _couplings(model: Ising | Potts) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the edges in order, and their couplings."""
    upper = sparse.coo_array(sparse.triu(model.couplings, k=1))
    order = np.lexsort((upper.coords[1], upper.coords[0]))
    return np.stack(upper.coords, axis=1)[order].astype(np.int64), upper.data[order]
