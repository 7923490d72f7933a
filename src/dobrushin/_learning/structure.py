"""Statistics of a family on given edges, and the places of their parameters.

All parameters of a model stand in one vector, those of the edges first. Some of them are free; the others (forbidden
states, and what is not to be learned) stay as they are.
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

# Numbers that the temporaries of a statistic hold at once.
_CHUNK = 4_000_000


class Structure(ABC):
    """A family of models on fixed variables and edges: pi(x) ∝ exp( sum_k parameters_k t_k(x) ).

    Arrays of states have shape (variables, observations) here.
    """

    family: type[Model]
    # The most that a statistic changes with one of its variables, which is its range, too.
    difference: float = 1.0
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
        first, second = self._members()
        start = np.zeros(len(first)) if start is None else start
        self.start = frozen(start)
        kind = second >= 0
        wanted = kind if learn == "edges" else ~kind if learn == "unaries" else np.ones(len(start), dtype=np.bool_)
        self.free = frozen(np.flatnonzero(wanted & np.isfinite(start)))
        self._first, self._second = frozen(first[self.free]), frozen(second[self.free])

    @classmethod
    def of(cls, model: Any, learn: str) -> Structure:
        """Return the structure of a model, which starts at the parameters of the model."""
        edges, start = cls._parameters(model)
        structure = cls(model.cardinalities, edges, model.labels, start, learn)
        structure.state_names = model._state_names
        return structure

    @classmethod
    def on(cls, edges: NDArray[np.int64], labels: Sequence[Hashable], states: int, learn: str) -> Structure:
        """Return the structure on given edges, all parameters 0."""
        return cls(np.full(len(labels), states, dtype=np.int64), edges, labels, None, learn)

    @property
    def spins(self) -> bool:
        """Whether states are -1/+1."""
        return False

    def fill(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return all parameters, given the free ones."""
        full: NDArray[np.float64] = self.start.copy()
        full[self.free] = theta
        return full

    def used_variables(self) -> NDArray[np.int64]:
        """Return the positions of the variables that the free statistics depend on."""
        both = np.concatenate([self._first, self._second])
        return np.unique(both[both >= 0])

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

    def _chunks(self, x: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
        step = max(1, _CHUNK // max(1, x.shape[1]))
        for k in range(0, len(self.edges), step):
            here = self.edges[k : k + step]
            yield slice(k, k + len(here)), x[here[:, 0]], x[here[:, 1]]

    @classmethod
    @abstractmethod
    def _parameters(cls, model: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return edges and parameters of a model."""

    @abstractmethod
    def _members(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the variables of each statistic; -1 for the second one of statistics of one variable."""

    @abstractmethod
    def model(self, full: NDArray[np.float64]) -> Model:
        """Return the model with these parameters."""

    @abstractmethod
    def tables(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the log-tables of all edges and of all variables, one after the other."""

    @abstractmethod
    def means(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return the average of every statistic over observations."""

    @abstractmethod
    def along(self, direction: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
        """Return sum_k direction_k t_k(x) of every observation."""

    @abstractmethod
    def expectations(self, pairs: NDArray[np.float64], singles: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the average of every statistic, given the marginals of all edges and variables as flat tables."""

    @abstractmethod
    def names(self) -> list[tuple[Hashable, ...]]:
        """Return the name of each parameter."""

    def pairwise(self, full: NDArray[np.float64]) -> PairwiseMRF:
        """Return the same distribution with a table on every edge, also where a coupling is 0."""
        pairs, singles = self.tables(full)
        return PairTables(self.sizes, singles, self.edges, pairs).to_model(self.labels)

    def _edge_labels(self) -> list[tuple[Hashable, Hashable]]:
        return [(self.labels[a], self.labels[b]) for a, b in self.edges.tolist()]


class IsingStructure(Structure):
    """Spins: t = x_i x_j, with differences 2, and t = x_i."""

    family, difference = Ising, 2.0

    @classmethod
    def _parameters(cls, model: Ising) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        edges, couplings = _couplings(model)
        return edges, np.concatenate([couplings, model.fields])

    @property
    def spins(self) -> bool:
        return True

    def _members(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        first = np.concatenate([self.edges[:, 0], np.arange(self.n)])
        return first, np.concatenate([self.edges[:, 1], np.full(self.n, -1)])

    def model(self, full: NDArray[np.float64]) -> Ising:
        split = len(self.edges)
        matrix = symmetric(self.edges[:, 0], self.edges[:, 1], full[:split], self.n)
        return SpinPairs(matrix, full[split:]).to_model(self.labels)

    def tables(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        split = len(self.edges)
        pairs = np.outer(full[:split], [1.0, -1.0, -1.0, 1.0]).ravel()
        return pairs, np.outer(full[split:], [-1.0, 1.0]).ravel()

    def means(self, x: NDArray[Any]) -> NDArray[np.float64]:
        sums = [(a * b).sum(axis=1, dtype=np.int64) for _, a, b in self._chunks(x)]
        return np.concatenate([*sums, x.sum(axis=1, dtype=np.int64)]) / x.shape[1]

    def along(self, direction: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
        total = direction[len(self.edges) :] @ x
        for span, a, b in self._chunks(x):
            total = total + direction[span] @ (a * b)
        return total

    def expectations(self, pairs: NDArray[np.float64], singles: NDArray[np.float64]) -> NDArray[np.float64]:
        p, q = pairs.reshape(-1, 4), singles.reshape(-1, 2)
        return np.concatenate([p[:, 0] + p[:, 3] - p[:, 1] - p[:, 2], q[:, 1] - q[:, 0]])

    def names(self) -> list[tuple[Hashable, ...]]:
        return [("coupling", *ends) for ends in self._edge_labels()] + [("field", label) for label in self.labels]


class PottsStructure(Structure):
    """Labels with couplings between equal states: t = 1{x_i = x_j}, and t = 1{x_i = a}, with differences 1."""

    family = Potts

    @classmethod
    def _parameters(cls, model: Potts) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        edges, couplings = _couplings(model)
        return edges, np.concatenate([couplings, model.unaries.ravel()])

    def _members(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        single = np.repeat(np.arange(self.n), self.sizes)
        first = np.concatenate([self.edges[:, 0], single])
        return first, np.concatenate([self.edges[:, 1], np.full(len(single), -1)])

    def model(self, full: NDArray[np.float64]) -> Potts:
        split, k = len(self.edges), int(self.sizes[0])
        matrix = symmetric(self.edges[:, 0], self.edges[:, 1], full[:split], self.n)
        return LabelPairs(matrix, k, full[split:].reshape(self.n, k)).to_model(self.labels)

    def tables(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        split, k = len(self.edges), int(self.sizes[0])
        return np.outer(full[:split], np.eye(k).ravel()).ravel(), full[split:]

    def means(self, x: NDArray[Any]) -> NDArray[np.float64]:
        shares = [(a == b).mean(axis=1) for _, a, b in self._chunks(x)]
        return np.concatenate([*shares, _shares(x, self.sizes)])

    def along(self, direction: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
        total = _sum_of_values(direction[len(self.edges) :], x, self.sizes)
        for span, a, b in self._chunks(x):
            total = total + direction[span] @ (a == b)
        return total

    def expectations(self, pairs: NDArray[np.float64], singles: NDArray[np.float64]) -> NDArray[np.float64]:
        k = int(self.sizes[0])
        return np.concatenate([pairs.reshape(-1, k * k)[:, :: k + 1].sum(axis=1), singles])

    def names(self) -> list[tuple[Hashable, ...]]:
        names: list[tuple[Hashable, ...]] = [("coupling", *ends) for ends in self._edge_labels()]
        return names + [("unary", label, a) for label in self.labels for a in range(int(self.sizes[0]))]


class PairwiseStructure(Structure):
    """A table on each edge: t = 1{x_i = a, x_j = b} and t = 1{x_i = a}, with differences 1."""

    family = PairwiseMRF

    @classmethod
    def _parameters(cls, model: PairwiseMRF) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return model.edges, np.concatenate([model._form.table, model._form.unary])

    def _cells(self) -> NDArray[np.int64]:
        """Return the offsets of the table of each edge, and the end of the last one."""
        return prefix_sums(self.sizes[self.edges].prod(axis=1)).astype(np.int64)

    def _members(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        single = np.repeat(np.arange(self.n), self.sizes)
        area = np.diff(self._cells())
        first = np.concatenate([np.repeat(self.edges[:, 0], area), single])
        return first, np.concatenate([np.repeat(self.edges[:, 1], area), np.full(len(single), -1)])

    def model(self, full: NDArray[np.float64]) -> PairwiseMRF:
        return self.pairwise(full)

    def tables(self, full: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        split = int(self._cells()[-1])
        return full[:split], full[split:]

    def _places(self, x: NDArray[Any]) -> Iterator[NDArray[np.int64]]:
        start = self._cells()
        for span, a, b in self._chunks(x):
            width = self.sizes[self.edges[span, 1]][:, None]
            yield start[:-1][span][:, None] + a.astype(np.int64) * width + b

    def means(self, x: NDArray[Any]) -> NDArray[np.float64]:
        counts = np.zeros(int(self._cells()[-1]), dtype=np.int64)
        for place in self._places(x):
            counts += np.bincount(place.ravel(), minlength=len(counts))
        return np.concatenate([counts / x.shape[1], _shares(x, self.sizes)])

    def along(self, direction: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
        total = _sum_of_values(direction[int(self._cells()[-1]) :], x, self.sizes)
        for place in self._places(x):
            total = total + direction[place].sum(axis=0)
        return total

    def expectations(self, pairs: NDArray[np.float64], singles: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([pairs, singles])

    def names(self) -> list[tuple[Hashable, ...]]:
        names: list[tuple[Hashable, ...]] = []
        for (a, b), (one, other) in zip(self.edges.tolist(), self._edge_labels(), strict=True):
            cells = np.ndindex(int(self.sizes[a]), int(self.sizes[b]))
            names += [("table", one, other, s, t) for s, t in cells]
        return names + [("unary", self.labels[i], s) for i in range(self.n) for s in range(int(self.sizes[i]))]


# Structures by the name that `fit` takes.
FAMILIES: dict[str, type[Structure]] = {"ising": IsingStructure, "potts": PottsStructure, "pairwise": PairwiseStructure}


def structure_of(model: Model, learn: str) -> Structure | None:
    """Return the structure of a model; None if the ordinary family of its form cannot be learned."""
    ordinary = model._form.to_model(model.labels)._name_states(model._state_names)
    kind = next((kind for kind in FAMILIES.values() if isinstance(ordinary, kind.family)), None)
    return None if kind is None else kind.of(ordinary, learn)


def _couplings(model: Ising | Potts) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the edges in order, and their couplings."""
    upper = sparse.coo_array(sparse.triu(model.couplings, k=1))
    order = np.lexsort((upper.coords[1], upper.coords[0]))
    return np.stack(upper.coords, axis=1)[order].astype(np.int64), upper.data[order]


def _shares(x: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of every state of every variable, one after the other."""
    start = prefix_sums(sizes)
    counts = np.zeros(int(start[-1]), dtype=np.int64)
    for i, row in enumerate(x):
        counts[start[i] : start[i + 1]] = np.bincount(row, minlength=int(sizes[i]))
    return counts / x.shape[1]


def _sum_of_values(values: NDArray[np.float64], x: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sum over variables of the value that belongs to the state of each."""
    start = prefix_sums(sizes)
    total = np.zeros(x.shape[1])
    for i, row in enumerate(x):
        total += values[start[i] + row.astype(np.int64)]
    return total
