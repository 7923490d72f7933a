"""Kernels whose states are an array (variables, chains), and the lists of steps that they go through."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels import labels
from dobrushin._kernels.generator import CHOICE
from dobrushin._kernels.waves import reorder
from dobrushin._sampling.kernel import Kernel, Work, streams_of
from dobrushin._scan import Cycle, Draw
from dobrushin._shared.arrays import frozen, is_increasing

# Steps that are put in order of their levels together.
WINDOW = 2048


class Steps(NamedTuple):
    """A list of steps that is gone through `repeats` times; see `_kernels.spins`."""

    order: NDArray[np.int32]  # own numbers
    number: NDArray[np.int32]
    repeats: int
    base: int  # number of the first step
    period: int


# The variables of a cycle, and which step each is.
Order = tuple[NDArray[np.int32], NDArray[np.int32]]
Orders = dict[Cycle, Order]


class ArrayKernel(Kernel):
    """Chains side by side, each with a stream of its own."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 64
    by_levels: ClassVar[bool] = True  # whether that is faster than one step after the other
    orders: Orders

    def __getstate__(self) -> dict[str, Any]:
        # What was made for the scan's own segments is of no use to copies of them in another process.
        made = ("orders", "arranged", "for_sweeps")
        return {name: {} if name in made else value for name, value in self.__dict__.items()}

    @property
    def largest(self) -> int:
        """Most states of a variable."""
        return 2

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of states of each variable; a single entry if they all have the same."""
        return np.array([self.largest])

    @property
    def dtype(self) -> Any:
        return np.int8 if self.largest <= 127 else np.int32

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        x = np.zeros((self.region.size + 1, len(chains)), dtype=self.dtype)
        labels.start_labels(frozen(self.region.positions), frozen(self.sizes), streams_of(master, chains, 1), x)
        return x

    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        x = np.zeros((self.region.size + 1, states.shape[1]), dtype=self.dtype)
        x[:-1] = states
        return x

    def read(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        size = self.region.size  # there may be a row more than that
        return x[:size, :chains].copy() if len(rows) == size and is_increasing(rows) else x[rows, :chains]

    def count(self, x: NDArray[Any], rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        del chains
        labels.count_labels(x, rows, counts)

    def steps_of_chains(self, work: Work, keys: NDArray[np.uint64]) -> Iterator[list[Steps]]:
        """The steps of each chain; a fixed order is the same for all of them."""
        if not work.segment.is_random:
            shared = self.steps_of_cycle(work)
            for _ in range(keys.shape[1]):
                yield shared
            return
        choices, numbers = choices_of(work.segment), _numbers(work.steps)
        positions = np.empty(work.steps, dtype=np.int64)
        for c in range(keys.shape[1]):
            labels.draw_order(work.step, work.steps, *choices, keys[0, c], keys[1, c], CHOICE, positions)
            yield [Steps(frozen(self.region.numbering.own(positions).astype(np.int32)), numbers, 1, work.step, 0)]

    def steps_of_cycle(self, work: Work) -> list[Steps]:
        """What is left of a cycle, whole cycles, and the beginning of another."""
        cycle, left, step = work.cycle, work.steps, work.step
        place = (cycle.first + work.lo) % cycle.period
        lists = []
        if place or left < cycle.period:
            head = min(left, cycle.period - place)
            lists.append(Steps(self._part(cycle, place, head), _numbers(head), 1, step, 0))
            left, step = left - head, step + head
        repeats, tail = divmod(left, cycle.period)
        if repeats:
            lists.append(Steps(*self._whole(cycle), repeats, step, cycle.period))
        if tail:
            lists.append(Steps(self._part(cycle, 0, tail), _numbers(tail), 1, step + repeats * cycle.period, 0))
        return lists

    def _whole(self, cycle: Cycle) -> Order:
        """The whole cycle, in the order of its levels if that helps; made once, since long runs come back for it."""
        if cycle not in self.orders:
            order = self._part(cycle, 0, cycle.period)
            if self.by_levels:
                number = reorder(order, self.region.start, self.region.neighbor, self.region.size, WINDOW)
            else:
                number = _numbers(len(order))
            self.orders[cycle] = (frozen(order[number]), frozen(number))
        return self.orders[cycle]

    def _part(self, cycle: Cycle, place: int, steps: int) -> NDArray[np.int32]:
        return frozen(self.region.numbering.own(cycle.array()[place : place + steps]).astype(np.int32))


class TableKernel(ArrayKernel):
    """Chains of variables with any numbers of states, by tables: those of all chains are looked up side by side."""

    states: NDArray[np.int64]  # how many each variable has

    @property
    def largest(self) -> int:
        return int(self.states.max())

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.states

    @abstractmethod
    def run_steps(self, steps: Steps, keys: NDArray[np.uint64], x: NDArray[Any]) -> None:
        """Take the states of chains, which have these keys, through some steps."""

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        if not work.segment.is_random:
            for steps in self.steps_of_cycle(work):
                self.run_steps(steps, keys, x)
            return
        for c, lists in enumerate(self.steps_of_chains(work, keys)):
            own, state = np.ascontiguousarray(keys[:, c : c + 1]), x[:, c : c + 1].copy()
            for steps in lists:
                self.run_steps(steps, own, state)
            x[:, c : c + 1] = state


def _numbers(steps: int) -> NDArray[np.int32]:
    return frozen(np.arange(steps, dtype=np.int32))


def choices_of(segment: Draw) -> tuple[int, NDArray[np.uint64], int]:
    """What `draw_order` needs to choose variables."""
    if segment.probabilities is None and segment.n < 2**32:
        return segment.n, np.empty(0, dtype=np.uint64), 0
    return segment.n, *labels.partial_sums(frozen(segment.vector()))
