"""What a way to run steps on sets of states is. [trusted]

What runs hold is the set of states that a variable could have, whatever allowed state the trajectory began in.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.kernel import Runner, Work, streams_of
from dobrushin._scan import Scan


class SetKernel(Runner):
    """Sets instead of states: `read` gives -1 where a variable is not settled."""

    @classmethod
    @abstractmethod
    def fits(cls, form: Form) -> bool:
        """Whether it can run on this model."""

    @classmethod
    @abstractmethod
    def make(cls, form: Form, region: Region) -> SetKernel:
        """Its arrays, for a region of a form that it fits."""

    @property
    def dtype(self) -> Any:
        return np.int16

    def run_error(self, scan: Scan) -> float:
        """Bound on the probability that any draw of a run is wrong."""
        visits = scan.within(self.region.numbering).counts(self.region.size)
        return min(1.0, float(self.error @ visits) * (1 + 1e-9))

    @abstractmethod
    def begin(self, runs: int) -> NDArray[Any]:
        """Everything is possible."""

    @abstractmethod
    def steps(
        self, x: NDArray[Any], order: NDArray[np.int32], place: int, steps: int, number: int, stride: int, keys: Any
    ) -> None:
        """Steps of a cycle; the first uses the random bits of `number`, and each next one those `stride` further."""

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[Any]:
        del master
        return self.begin(len(chains))

    def load(self, states: NDArray[np.int64]) -> NDArray[Any]:
        raise NotImplementedError("sets begin with everything")

    def run(self, x: NDArray[Any], work: Work) -> None:
        order, place = work.order_in(self.region)
        self.steps(x, order, place, work.steps, work.step, 1, work.keys(self.lanes))

    def keys(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.uint64]:
        """Keys and increments of the runs' streams."""
        return streams_of(master, chains, self.lanes)
