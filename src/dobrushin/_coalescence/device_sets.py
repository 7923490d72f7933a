"""Bounding sets on the GPU: spins with 64 runs in a thread, or labels with one run in a thread. [trusted]"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.sets import SetRunner
from dobrushin._sampling import cuda
from dobrushin._sampling.cuda.device_chains import DeviceWords
from dobrushin._sampling.cuda.device_kernel import DeviceKernel, States, in_parts
from dobrushin._shared.device import Function, cupy


class _DeviceSets(SetRunner, DeviceKernel):
    """Kernel of bounding sets on the GPU."""

    def _column(self) -> NDArray[Any]:
        """Return the initial bounding sets of one column of the array: all states, for one run or for 64 runs."""
        column: NDArray[Any] = self.host.start(np.empty(0, dtype=np.uint64), range(1))
        return column

    @property
    def rows(self) -> int:
        return len(self._column())

    def _begin(self, columns: range, keys: Any) -> Any:
        column = self._column()
        x = cupy().empty((len(column), len(columns)), dtype=self.width)
        x[:] = cupy().asarray(column)
        return x


class DeviceSetBits(_DeviceSets, DeviceWords):
    """The kernel `SetBits` (64 runs in a word) on the GPU."""

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return self._unpack("settled_bits", x, rows, chains, np.int32(self.region.size))


class DeviceSetLabels(_DeviceSets):
    """The kernel `SetLabels` on the GPU: a bit for each label of a variable, 32 labels in a word."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**20
    chunk: ClassVar[int] = 10**9
    width: ClassVar[Any] = np.uint32

    @property
    def depth(self) -> int:
        """Largest number of other variables in a factor."""
        return 1

    def _compiled(self, name: str) -> Function:
        options = ("-fmad=false", f"-DLABELS={self.host.words}", f"-DDEPTH={self.depth}")
        return Function(cuda.__name__, ("generator.cuh", "states.cuh", "races.cu"), name, options)

    def _column(self) -> NDArray[Any]:
        inside = np.clip(self.host.states[:, None] - 32 * np.arange(-(-self.host.words // 32)), 0, 32)
        column: NDArray[Any] = ((1 << inside) - 1).astype(np.uint32).reshape(-1, 1)
        return column

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return self._unpack("settled_sets", x, rows, chains)

    def read(self, x: Any, rows: NDArray[np.int64], chains: int) -> NDArray[Any]:
        if isinstance(x, States):
            return super().read(x, rows, chains)
        # The host holds the states in the form of the GPU, which its own kernel cannot read.
        out = np.empty((len(rows), chains), dtype=self.dtype)

        def part(lo: int, hi: int) -> None:
            out[:, lo:hi] = super(DeviceSetLabels, self).read(States(cupy().asarray(x[:, lo:hi])), rows, hi - lo)

        in_parts(chains, part)
        return out


class DeviceSetRace(DeviceSetLabels):
    """The kernel `SetRace` on the GPU: the same sets, for any factors."""

    chunk: ClassVar[int] = 10**8

    @property
    def depth(self) -> int:
        return max(1, int(np.diff(self.host.factors.m_start).max(initial=0)))
