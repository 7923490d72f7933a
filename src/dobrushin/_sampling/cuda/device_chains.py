"""GPU kernels: each thread runs 64 chains of binary variables, or one chain of variables with any number of states."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._sampling.cuda.device_kernel import BLOCK, MAX_GRID_ROWS, CountingKernel, DeviceKernel, Route
from dobrushin._shared.device import Function, cupy, launch

# Bits of thresholds that all chains compare: see bits.cu.
PLANES = 12
# Steps of a dense model whose local fields come from one product of matrices, as in labels.cu, and chains in a product.
BLOCK_STEPS, MAX_DENSE_CHAINS = 32, 2**17
# Chains of a thread on a cycle, by loop, for few labels and many chains: measured. A thread reads as far beyond a row
# as its last chain is from its first, which must be less than a row is long.
LANES, MAX_LANES_LABELS, MIN_LANES_CHAINS = {"update_field": 4, "update_potts": 2}, 8, 2**18
# Words of shared memory that hold one chain: code is compiled for one of these numbers.
HELD_WORDS = (8, 16, 32, 64, 96)


class DeviceWords(DeviceKernel):
    """Base class of GPU kernels that pack 64 chains, or 64 runs of bounding sets, into each 64-bit word."""

    lanes: ClassVar[int] = 64
    batch: ClassVar[int] = 2**24
    chunk: ClassVar[int] = 10**11
    width: ClassVar[Any] = np.uint64

    def _compiled(self, name: str) -> Function:
        options = (f"-DPLANES={PLANES}", f"-DBLOCK={BLOCK}")
        return Function(__package__, ("generator.cuh", "bits.cu"), name, options)

    def _make_tables(self) -> tuple[Any, ...]:
        """Copy the tables to the GPU, with each bit of the thresholds as a Boolean function of the neighbours."""
        cp, tables = cupy(), []
        for part in self.host.device_tables():
            table = cp.asarray(part) if isinstance(part, np.ndarray) else part
            if part is self.host.threshold:
                n, cells = part.shape
                choice = cp.empty((n, PLANES, cells // 4), dtype=np.uint32)
                arguments = (table, np.uint32(n), np.int32(cells.bit_length() - 1), choice)
                launch(self._compiled("choose"), choice.size, 256, arguments)
                tables.append(choice)
            tables.append(table)
        return tuple(tables)


class DeviceBits(DeviceWords, CountingKernel):
    """The kernels of class `WordKernel` on the GPU."""

    def _begin(self, columns: range, keys: Any) -> Any:
        cp = cupy()
        x = cp.zeros((self.rows, len(columns)), dtype=np.uint64)
        arguments = (cp.asarray(self.region.positions), np.uint32(self.region.size), keys, x, np.uint32(len(columns)))
        launch(self._compiled("start_bits"), len(columns), BLOCK, arguments)
        return x

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return self._unpack("unpack", x, rows, chains)

    def _tally(self, x: Any, rows: NDArray[np.int64], chains: int, width: int) -> Any:
        found = cupy().zeros(len(rows), dtype=np.uint64)
        size = (np.uint32(len(rows)), np.uint32(x.shape[1]), np.uint64(chains))
        launch(self._compiled("count_bits"), 256 * len(rows), 256, (x, cupy().asarray(rows), *size, found))
        return found


class DeviceLabels(CountingKernel):
    """The kernels of class `ArrayKernel` on the GPU, with one chain in each thread."""

    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**22
    chunk: ClassVar[int] = 10**10

    @property
    def width(self) -> Any:
        return self.host.dtype

    @property
    def most_together(self) -> int:
        return self.batch if self._words else super().most_together

    @property
    def _words(self) -> int:
        """Return how many words of shared memory hold a chain; 0 if a chain does not fit."""
        bits = next((bits for bits in (1, 2, 4, 8) if self.host.largest <= 2**bits), 32)
        needed = -(-self.rows // (32 // bits))
        return next((words for words in HELD_WORDS if needed <= words), 0)

    def _compiled(self, name: str, words: int = 0, lanes: int = 1) -> Function:
        """Return a CUDA function compiled for the model's number of states.

        Each thread has `lanes` chains, each of them in `words` words of shared memory.
        """
        state = "signed char" if self.dtype == np.int8 else "int"
        options = ["-fmad=false", f"-DLABELS={self.host.largest}", f"-DSTATE={state}", f"-DTHREADS={BLOCK}"]
        options += [f"-DHELD={words}"] if words else []
        options += [f"-DLANES={lanes}"] if lanes > 1 else []
        return Function(__package__, ("generator.cuh", "states.cuh", "labels.cu"), name, tuple(options))

    def _begin(self, columns: range, keys: Any) -> Any:
        cp = cupy()
        x = cp.zeros((self.rows, len(columns)), dtype=self.dtype)
        states = cp.asarray(np.broadcast_to(self.host.sizes, self.region.size).astype(np.int32))
        ids = cp.asarray(self.region.positions)
        arguments = (ids, states, np.uint32(self.region.size), keys, x, np.uint32(len(columns)))
        launch(self._compiled("start_labels"), len(columns), BLOCK, arguments)
        return x

    def _way(self, route: Route, step: int, steps: int) -> tuple[Any, ...]:
        cycle = (route.order, np.int32(len(route.order)), np.int32(route.place))
        drawn = (route.thresholds, np.int32(route.last))
        return *cycle, *drawn, np.uint64(step), np.int32(steps), np.int32(self.rows)

    def _loop(self, route: Route, columns: int) -> tuple[Function, int]:
        loop, is_random, lanes = self.host.device_loop, route.last >= 0, 1
        if not is_random and columns >= MIN_LANES_CHAINS and self.host.largest <= MAX_LANES_LABELS:
            lanes = LANES.get(loop, 1)
        return self._compiled(loop, self._words if is_random else 0, lanes), BLOCK * -(-columns // (BLOCK * lanes))

    def _read(self, x: Any, rows: Any, chains: int) -> Any:
        return x[rows, :chains]

    def _tally(self, x: Any, rows: NDArray[np.int64], chains: int, width: int) -> Any:
        found = cupy().zeros((len(rows), width), dtype=np.uint64)
        for lo in range(0, len(rows), MAX_GRID_ROWS):
            some = cupy().asarray(rows[lo : lo + MAX_GRID_ROWS])
            size = (np.uint32(len(some)), np.uint32(x.shape[1]), np.int32(width))
            arguments = (x, some, *size, found[lo : lo + MAX_GRID_ROWS])
            launch(self._compiled("count_labels"), min(chains, 2**16), 256, arguments, len(some))
        return found


class DeviceDense(DeviceLabels):
    """The kernel `DenseKernel` on the GPU.

    The local fields for a block of steps are one matrix product, whose sums are exact in any order of summation.
    """

    def _update(self, x: Any, route: Route, step: int, steps: int, keys: Any) -> None:
        if route.last >= 0:  # each chain has its own steps
            super()._update(x, route, step, steps, keys)
            return
        columns, fields = self.tables()[:2]
        chains = x.shape[1]
        for lo in range(0, chains, MAX_DENSE_CHAINS):
            some = x[:, lo : lo + MAX_DENSE_CHAINS].copy()
            spins = 2.0 * some[:-1] - 1.0
            own_keys = keys[:, lo : lo + MAX_DENSE_CHAINS].copy()
            for k in range(0, steps, BLOCK_STEPS):
                block = self._block(route, k, min(BLOCK_STEPS, steps - k))
                toward = columns[:, block]
                local = toward.T @ spins + fields[block][:, None]
                about = (block, np.int32(len(block)), np.uint64(step + k), toward[block])
                arguments = (*about, local, own_keys, spins, some, np.uint32(some.shape[1]))
                launch(self._compiled("draw_block"), some.shape[1], BLOCK, arguments)
            x[:, lo : lo + MAX_DENSE_CHAINS] = some

    def _block(self, route: Route, k: int, count: int) -> Any:
        """Return the variables of the next `count` steps, from step `k` of the route on."""
        length = len(route.order)
        first = (route.place + k) % length
        block = route.order[first : first + count]
        while len(block) < count:
            block = cupy().concatenate([block, route.order[: count - len(block)]])
        return block
