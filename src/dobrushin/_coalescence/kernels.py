"""The ways to run steps on sets of states. Each has the face of a sampling kernel and states how exact it is. [trusted]

What they hold is the set of states that a variable could have, whatever allowed state the trajectory began in.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import sets
from dobrushin._sampling.kernels import Kernel, Work, cycle_of, streams_of
from dobrushin._sampling.region import Region

# Cells of tables that an update of an ordinary model looks at.
_ORDINARY_CELLS = 80.0


class SetKernel(Kernel):
    """Sets instead of states: `read` gives -1 where a variable is not settled, `count` has a last column for that."""

    @property
    def dtype(self) -> Any:
        return np.int16

    @property
    def cost(self) -> float:
        """How many times as long an update takes as one of an ordinary model of this kind."""
        return 1.0

    @abstractmethod
    def begin(self, runs: int) -> NDArray[Any]:
        """Everything is possible."""

    @abstractmethod
    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        """Steps of a cycle; the first uses the words of `number`, and each next one those `stride` further."""

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        del master
        return self.begin(len(chains))

    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        raise NotImplementedError("sets begin with everything")

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = cycle_of(work, self.region)
        self.steps(x, order, place, work.hi - work.lo, work.step, 1, work.keys(self.lanes))

    def keys(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint64]:
        """Keys and increments of the runs' streams."""
        return streams_of(master, chains, self.lanes)

    def count(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        states = self.read(x, rows, chains).astype(np.int64)
        width = counts.shape[1]
        states[states < 0] = width - 1
        cells = states + width * np.arange(len(rows))[:, None]
        counts += np.bincount(cells.ravel(), minlength=counts.size).reshape(counts.shape)


@dataclass(frozen=True)
class SetBits(SetKernel):
    """64 runs in a word, for binary variables that follow or oppose each of at most 6 neighbours."""

    region: Region
    neighbor: NDArray[np.int64]  # rows of the configuration with the smallest chance of 1, then with the largest
    threshold: NDArray[np.uint64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set bits"
    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 4096

    def begin(self, runs: int) -> NDArray[np.uint64]:
        size = self.region.size
        x = np.zeros((2 * size + 1, -(-runs // 64)), dtype=np.uint64)
        x[size : 2 * size] = ~np.uint64(0)
        return x

    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        wide = self.neighbor.shape[1] > 8
        sets.set_bits(order, place, steps, number, stride, self.neighbor, self.threshold, wide, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int16)
        sets.settled_bits(x, self.region.size, rows, out)
        return out


@dataclass(frozen=True)
class SetField(SetKernel):
    """Ising models of any degree."""

    region: Region
    theta: NDArray[np.float64]
    fields: NDArray[np.float64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set field"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64

    def begin(self, runs: int) -> NDArray[np.float64]:
        x = np.ones((2 * self.region.size, runs))
        x[: self.region.size] = -1.0
        return x

    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        shared = (self.region.start, self.region.neighbor, self.theta, self.fields)
        sets.set_field(order, place, steps, number, stride, *shared, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        low, high = x[rows, :chains] > 0, x[self.region.size + rows, :chains] > 0
        return np.where(low == high, low, -1).astype(np.int16)


@dataclass(frozen=True)
class SetRace(SetKernel):
    """Any model: labels race."""

    region: Region
    largest: int  # most states of any variable of the model: words per step
    states: NDArray[np.int64]
    first: NDArray[np.int64]  # row of the first label of each variable
    packed: tuple[NDArray[Any], ...]
    table: NDArray[np.float64]
    error: NDArray[np.float64]
    name: ClassVar[str] = "set race"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64

    @property
    def cost(self) -> float:
        """By the cells of the tables that an update looks at, when sets have shrunk to some extent."""
        f_start, m_start, member = self.packed[:3]
        labels = np.repeat(self.states, np.diff(f_start))
        logs = np.log(self.states[member])
        sums = np.concatenate([[0.0], np.cumsum(logs)])
        cells = labels * np.exp(0.5 * (sums[m_start[1:]] - sums[m_start[:-1]]))
        return max(1.0, float(cells.sum()) / max(1, len(self.region.updated)) / _ORDINARY_CELLS)

    def begin(self, runs: int) -> NDArray[np.bool_]:
        return np.ones((int(self.states.sum()), runs), dtype=np.bool_)

    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        shared = (self.largest, self.states, self.first, *self.packed, self.table)
        sets.set_race(order, place, steps, number, stride, *shared, keys, x)

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        out = np.empty((len(rows), chains), dtype=np.int16)
        sets.settled_labels(x, self.first, self.states, rows, out)
        return out
