"""Bit-parallel chains, 64 to a thread, on the GPU."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.cuda.device_kernel import BLOCK, CountingKernel, DeviceKernel, Route
from dobrushin._shared.device import Function, cupy, launch

# Bits of thresholds that all chains look at: see bits.cu.
PLANES = 12


class DeviceWords(DeviceKernel):
    """64 chains or runs in one number of 64 bits."""

    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 2**24
    chunk: ClassVar[int] = 10**11
    width: ClassVar[Any] = np.uint64

    def _compiled(self, name: str) -> Function:
        options = (f"-DPLANES={PLANES}", f"-DBLOCK={BLOCK}")
        return Function(__package__, ("generator.cuh", "bits.cu"), name, options)

    def _choice(self, threshold: Any, degree: int) -> Any:
        n = threshold.shape[0]
        choice = cupy().empty((n, PLANES, 2 ** (degree - 2)), dtype=np.uint32)
        arguments = (threshold, np.uint32(n), np.int32(degree), choice)
        launch(self._compiled("choose"), choice.size, 256, arguments)
        return choice


class DeviceBits(DeviceWords, CountingKernel):
    """`Bits` on the device."""

    name: ClassVar[str] = "bits"

    @property
    def rows(self) -> int:
        return self.region.size + 1

    @property
    def _degree(self) -> int:
        return int(self.host.neighbor.shape[1])

    @property
    def _function(self) -> str:
        return f"update_bits{self._degree}"

    def _make_tables(self) -> tuple[Any, ...]:
        cp, host = cupy(), self.host
        threshold = cp.asarray(host.threshold)
        return (
            cp.asarray(host.neighbor.astype(np.uint32)), self._choice(threshold, self._degree), threshold,
            cp.asarray(host.certain.view(np.uint8)),
        )  # fmt: skip

    def _begin(self, columns: range, keys: Any) -> Any:
        cp = cupy()
        x = cp.zeros((self.rows, len(columns)), dtype=np.uint64)
        arguments = (cp.asarray(self.region.positions), np.uint32(self.region.size), keys, x, np.uint32(len(columns)))
        launch(self._compiled("start_bits"), len(columns), BLOCK, arguments)
        return x

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        about = (route.order, np.int32(len(route.order)), np.int32(route.place), np.uint64(step), np.int32(steps))
        W = x.shape[1]
        arguments = (*about, *self.tables(), keys, x, np.uint32(W))
        launch(self._compiled(self._function), W, BLOCK, arguments)

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        out = cupy().empty((len(rows), chains), dtype=np.int8)
        arguments = (x, rows, np.uint32(len(rows)), np.uint32(x.shape[1]), np.uint64(chains), out)
        launch(self._compiled("unpack"), chains, 256, arguments, len(rows))
        return out

    def _tally(self, x: Any, rows: NDArray[np.int64], chains: int, width: int) -> Any:
        del width
        found = cupy().zeros(len(rows), dtype=np.uint64)
        size = (np.uint32(len(rows)), np.uint32(x.shape[1]), np.uint64(chains))
        launch(self._compiled("count_bits"), 256 * len(rows), 256, (x, cupy().asarray(rows), *size, found))
        return found

    def _add(self, tally: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        counts[:, 1] += tally
        counts[:, 0] += chains - tally


class DeviceCounts(DeviceBits):
    """`Counts` on the device."""

    name: ClassVar[str] = "counts"
    _function: ClassVar[str] = "update_counts"

    def _make_tables(self) -> tuple[Any, ...]:
        cp, host = cupy(), self.host
        threshold = cp.asarray(host.threshold)
        start, neighbor, first = (part.astype(np.uint32) for part in (host.triple_start, host.neighbor, host.first))
        return (
            cp.asarray(start), cp.asarray(neighbor), cp.asarray(host.flip), cp.asarray(first),
            self._choice(threshold, 4), threshold, cp.asarray(host.certain.view(np.uint8)),
        )  # fmt: skip
