"""Running the steps of a sum in pieces, over threads, so that Ctrl-C, time limits and a progress bar work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.program import Program
from dobrushin._kernels.contraction import LENGTH, MADE, add_products, extremes, layout, rescale
from dobrushin._shared.call import Deadline, bar, current_deadline
from dobrushin._shared.executors import cores, own_executor
from dobrushin._shared.memory import has_room_for_threads

# Combinations of states that are summed in one call of a kernel: some hundredths of a second.
_PIECE = 2**23
# A step of more is cut into pieces for several threads.
_LARGE = 2**20
# Tables with at most this number of entries are computed once per piece, and the copies added.
_PRIVATE = 2**14


class Working:
    """Threads, a deadline and a bar.

    Parameters
    ----------
    deadline : Deadline, optional
        It is asked between the pieces; default the current one.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = current_deadline() if deadline is None else deadline
        self._pool: ThreadPoolExecutor | None = None
        self._report: Callable[[int], None] | None = None
        self._done = 0

    @cached_property
    def _workers(self) -> int:
        return cores() if own_executor() is None else 1

    @contextmanager
    def on(self, entries: int) -> Iterator[None]:
        """While the work lasts: threads if it is long, and a bar."""
        if self._pool is not None or entries < _LARGE:
            yield
            return
        with self.threads(), ExitStack() as stack:
            self._report = stack.enter_context(bar(entries, "summing", "entries"))
            self._done = 0
            stack.callback(self._forget_bar)
            yield

    def _forget_bar(self) -> None:
        self._report = None

    @contextmanager
    def threads(self) -> Iterator[None]:
        """While this lasts kernels run in other threads, so that this one hears Ctrl-C."""
        if not has_room_for_threads(self._workers):
            yield
            return
        self._pool = ThreadPoolExecutor(self._workers)
        try:
            yield
        finally:
            # Waiting pieces are dropped after an error; running pieces end soon.
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def report(self, entries: int) -> None:
        """Report more work as done."""
        self._done += entries
        if self._report is not None:
            self._report(self._done)

    def wait_for(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a kernel; long work in another thread, so that this one hears Ctrl-C."""
        self.look()
        if self._pool is None:
            return function(*arguments)
        return self._pool.submit(function, *arguments).result()

    def look(self) -> None:
        """Stop where there is no time left."""
        self._deadline.check("exact sums")

    # -- steps -----------------------------------------------------------------------------

    def is_large(self, entries: int) -> bool:
        """Whether a step is worth several threads."""
        return self._pool is not None and entries >= _LARGE

    def batches(self, entries: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Ranges of steps: a large one alone, small ones together."""
        first, total = 0, 0
        for t, size in enumerate(entries.tolist()):
            if first < t and (size >= _LARGE or total + size > _PIECE):
                yield first, t
                first, total = t, 0
            total += size
            if size >= _LARGE:
                yield t, t + 1
                first, total = t + 1, 0
        if first < len(entries):
            yield first, len(entries)

    def pieces(self, entries: int, size: int = _PIECE) -> Iterator[tuple[int, int]]:
        """Return ranges of at most `size` entries."""
        for begin in range(0, entries, size):
            yield begin, min(begin + size, entries)

    def layout(self, program: Program, t: int) -> tuple[NDArray[np.int64], int, float]:
        """The axes of a step, how many outside its tile are kept, and how many terms each sum has."""
        place = np.full(len(program.sizes), -1, dtype=np.int64)
        axes, kept = layout(
            t, program.sizes, program.scope_start, program.scope,
            program.made, program.operand_start, program.operand, place,
        )  # fmt: skip
        terms = math.prod(float(length) for length in axes[axes[:, MADE] == 0, LENGTH])
        return axes, kept, terms

    def add_products(
        self, axes: NDArray[np.int64], kept: int, store: NDArray[np.float64], start: NDArray[np.int64],
        table: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """A large step: pieces make different parts of the table, or, of a small one, each a copy to be added."""
        lengths = axes[:-2, LENGTH].tolist()
        tile = int(axes[-2:, LENGTH].prod())
        outer, inner = math.prod(lengths[:kept]), math.prod(lengths[kept:])
        if len(table) <= _PRIVATE:
            self._add_copies(axes, outer * inner, tile, store, start, table)
            return
        self.map(lambda begin, end: table[begin:end].fill(0.0), len(table), _PIECE)
        size = max(1, min(_PIECE // (tile * inner), -(-outer // (4 * self._workers))))
        self.map(lambda a, b: add_products(axes, a * inner, b * inner, store, start, table), outer, size)

    def _add_copies(
        self, axes: NDArray[np.int64], combinations: int, tile: int, store: NDArray[np.float64],
        start: NDArray[np.int64], table: NDArray[np.float64],
    ) -> None:  # fmt: skip
        def add_copy(begin: int, end: int) -> NDArray[np.float64]:
            copy = np.zeros(len(table))
            add_products(axes, begin, end, store, start, copy)
            return copy

        size = max(1, min(_PIECE // tile, -(-combinations // (4 * self._workers))))
        table[:] = 0.0
        for copy in self.map(add_copy, combinations, size):
            table += copy

    def extremes(self, table: NDArray[np.float64]) -> tuple[float, float]:
        """The largest entry of a large table, and the smallest that is not 0."""
        found = self.map(lambda begin, end: extremes(table[begin:end]), len(table), _PIECE)
        return max(most for most, _ in found), min(least for _, least in found)

    def rescale(self, table: NDArray[np.float64], exponent: int) -> None:
        """Divide a large table by a power of 2."""
        self.map(lambda begin, end: rescale(table[begin:end], exponent), len(table), _PIECE)

    def map(self, function: Callable[[int, int], Any], total: int, size: int) -> list[Any]:
        """Call a function for ranges of at most `size`, over the threads; the results in order."""
        self.look()
        if self._pool is None or total <= size:
            return [function(begin, end) for begin, end in self.pieces(total, size)]
        results: list[Any] = []
        waiting: list[Future[Any]] = []
        for begin, end in self.pieces(total, size):
            waiting.append(self._pool.submit(function, begin, end))
            if len(waiting) > 2 * self._workers:
                results.append(waiting.pop(0).result())
                self.look()
        return results + [future.result() for future in waiting]
