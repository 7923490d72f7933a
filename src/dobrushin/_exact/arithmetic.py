"""Arithmetic of variable elimination, with bounds on rounding and underflow. [trusted]

`Plain` computes with ordinary floats, `Wide` with a separate exponent for each number, which cannot underflow. The work
is split into pieces over threads, so that Ctrl-C, time limits and a progress bar work.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dobrushin._exact.program import SumProgram
from dobrushin._kernels import contraction
from dobrushin._kernels.contraction import LENGTH, MADE
from dobrushin._kernels.tables import LOWEST, normalise
from dobrushin._models.factors import FactorTables
from dobrushin._shared.arrays import UNIT, Floats, Ints
from dobrushin._shared.call import Deadline, bar, current_deadline
from dobrushin._shared.compile import code_for
from dobrushin._shared.executors import cores, own_executor
from dobrushin._shared.memory import has_room_for_threads
from dobrushin.errors import ArgumentError

# Roundings of exp, and of the error bound itself.
_EXP = 8.0
# Largest loss of a product of numbers below 1 by underflow, also where small numbers are flushed to 0.
UNDERFLOW = 2.0**-1022
# Elementary operations of a step by itself, and for each combination of states.
_OPERATIONS_PER_STEP, _OPERATIONS_PER_ENTRY = 600, 12
# Combinations of states that are summed in one call of a kernel: some hundredths of a second.
_ENTRIES_PER_PIECE = 2**23
# A step of more combinations is cut into pieces for several threads.
_ENTRIES_OF_LARGE_STEP = 2**20
# Tables with at most this number of entries are computed once per piece, and the copies added.
_ENTRIES_OF_PRIVATE_TABLE = 2**14


class Working:
    """Threads, time limit and progress bar of a computation by variable elimination.

    Parameters
    ----------
    deadline : Deadline, optional
        The time limit, checked between pieces of work; default the limit of the current call.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = current_deadline() if deadline is None else deadline
        self._workers = cores() if own_executor() is None else 1
        self._pool: ThreadPoolExecutor | None = None
        self._report: Callable[[int], None] | None = None
        self._done = 0

    @contextmanager
    def on(self, entries: int) -> Iterator[None]:
        """Use threads and show a progress bar during the block, if the work is long."""
        if self._pool is not None or entries < _ENTRIES_OF_LARGE_STEP:
            yield
            return
        with self.threads(), bar(entries, "summing", "entries") as self._report:
            self._done = 0
            try:
                yield
            finally:
                self._report = None

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Run kernels in other threads during the block, so that this thread can react to Ctrl-C."""
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
        """Advance the progress bar by this number of table entries."""
        self._done += entries
        if self._report is not None:
            self._report(self._done)

    def look(self) -> None:
        """Raise `LateError` if the time limit is over."""
        self._deadline.check("exact sums")

    def wait_for(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a kernel and return its result; the call runs in another thread if threads are in use."""
        return self.wait_for_all(function, [arguments])[0]

    def wait_for_all(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a kernel once for each tuple of arguments, in parallel if threads are in use."""
        self.look()
        if self._pool is None:
            return [function(*arguments) for arguments in calls]
        waiting = [self._pool.submit(function, *arguments) for arguments in calls]
        return [future.result() for future in waiting]

    def batches(self, entries: Ints) -> Iterator[tuple[int, int, bool]]:
        """Group the steps of a program into ranges (first, last, is_large) for one kernel call each.

        A step with many entries is a range by itself, which threads share (`is_large`).
        """
        first, total = 0, 0
        for t, size in enumerate(entries.tolist()):
            is_large = size >= _ENTRIES_OF_LARGE_STEP
            if first < t and (is_large or total + size > _ENTRIES_PER_PIECE):
                yield first, t, False
                first, total = t, 0
            total += size
            if is_large:
                yield t, t + 1, self._pool is not None
                first, total = t + 1, 0
        if first < len(entries):
            yield first, len(entries), False

    def map(self, function: Callable[[int, int], Any], total: int, size: int = 0) -> list[Any]:
        """Call a function for consecutive ranges of `size` numbers, in parallel; return the results in order."""
        size = size or _ENTRIES_PER_PIECE
        self.look()
        pieces = ((begin, min(begin + size, total)) for begin in range(0, total, size))
        if self._pool is None or total <= size:
            return [function(begin, end) for begin, end in pieces]
        results: list[Any] = []
        waiting: list[Future[Any]] = []
        for begin, end in pieces:
            waiting.append(self._pool.submit(function, begin, end))
            if len(waiting) > 2 * self._workers:
                results.append(waiting.pop(0).result())
                self.look()
        return results + [future.result() for future in waiting]

    def each_piece(self, entries: int, function: Callable[..., Any], axes: Ints, *arguments: Any) -> None:
        """Call a kernel repeatedly, each time for the next range of combinations of the axes' states."""
        for begin in range(0, entries, _ENTRIES_PER_PIECE):
            self.wait_for(function, axes, begin, min(begin + _ENTRIES_PER_PIECE, entries), *arguments)

    def add_products(self, axes: Ints, kept: int, store: Floats, start: Ints, table: Floats) -> None:
        """Compute the table of a step with many entries in pieces, over the threads.

        A large table is split into parts. A small one is computed as several partial sums, which are then added.
        """
        lengths = axes[:-2, LENGTH].tolist()
        tile = int(axes[-2:, LENGTH].prod())
        outer, inner = math.prod(lengths[:kept]), math.prod(lengths[kept:])
        if len(table) > _ENTRIES_OF_PRIVATE_TABLE:
            self.map(lambda begin, end: table[begin:end].fill(0.0), len(table))
            size = max(1, min(_ENTRIES_PER_PIECE // (tile * inner), -(-outer // (4 * self._workers))))
            add = contraction.add_products
            self.map(lambda a, b: add(axes, a * inner, b * inner, store, start, table), outer, size)
            return

        def add_copy(begin: int, end: int) -> Floats:
            copy = np.zeros(len(table))
            contraction.add_products(axes, begin, end, store, start, copy)
            return copy

        size = max(1, min(_ENTRIES_PER_PIECE // tile, -(-outer * inner // (4 * self._workers))))
        table[:] = 0.0
        for copy in self.map(add_copy, outer * inner, size):
            table += copy


def layout(program: SumProgram, t: int) -> tuple[Ints, int, float]:
    """Return the nested loops that compute the table of a step, and the number of terms in each of its sums."""
    place = np.full(len(program.sizes), -1, dtype=np.int64)
    axes, kept = contraction.layout(t, program.sizes, program.scope_start, program.scope, *program.steps, place)
    terms = math.prod(float(length) for length in axes[axes[:, MADE] == 0, LENGTH])
    return axes, kept, terms


class NoAllowedState(ArgumentError):
    """The model gives probability 0 to every joint state."""


def no_allowed_state(tables: FactorTables) -> NoAllowedState:
    """Return the error for a model in which every joint state has probability 0."""
    return NoAllowedState("model", "one that allows some joint state", tables.to_model(None))


@dataclass(frozen=True)
class SumResult:
    """Marginals and partition function of a model, with bounds on their errors.

    Attributes
    ----------
    marginals : list of arrays
        The joint probabilities of each group of variables, with one axis for each variable.
    relative, absolute : float
        Each probability p is off by at most `relative` p + `absolute`.
    log_partition, log_partition_error : float
        Logarithm of the sum of all unnormalised probabilities, and a bound on its error.
    """

    marginals: list[Floats]
    relative: float
    absolute: float
    log_partition: float
    log_partition_error: float

    def relative_error(self, rounding: float) -> float:
        """Bound the relative error of the probabilities if log-densities are themselves off by up to `rounding`."""
        if not (self.relative < math.inf and 2.0 * rounding < 0.5):
            return math.inf
        return self.relative + (1.0 + self.relative) * math.expm1(2.0 * rounding) * (1.0 + 2.0**-50)


@dataclass(frozen=True)
class Shifts:
    """Log-tables from which their largest entries (`tops`) have been subtracted."""

    logs: Floats
    tops: Floats
    spans: Floats  # the largest finite difference in each table


def shifted_tables(tables: FactorTables) -> Shifts:
    """Subtract from each log-table its largest entry.

    Raises ArgumentError if a table forbids all states, or if the potentials have no finite sum.
    """
    starts = tables.table_start[:-1]
    if not len(starts):
        return Shifts(np.empty(0), np.empty(0), np.empty(0))
    tops = np.maximum.reduceat(tables.table, starts)
    if np.isneginf(tops).any():
        raise no_allowed_state(tables)
    finite = np.where(tables.table > -np.inf, np.abs(tables.table), 0.0)
    reach = np.cumsum(2.0 * np.maximum.reduceat(finite, starts))
    if not reach[-1] < np.inf:
        where = f"factor {int(np.argmax(~(reach < np.inf)))}"
        requirement = "one whose log-potentials have a finite sum"
        raise ArgumentError("model", requirement, tables.to_model(None), where)
    logs = tables.table - np.repeat(tops, np.diff(tables.table_start))
    spans = -np.minimum.reduceat(np.where(logs > -np.inf, logs, 0.0), starts)
    return Shifts(logs, tops, spans)


def _gamma(units: float) -> float:
    """Bound the relative error of a product of this many roundings; infinite for too many of them."""
    return units * UNIT / (1.0 - units * UNIT) if units * UNIT < 2.0**-20 else math.inf


class _StepTables(ABC):
    """The tables of a program's steps, with bounds on the errors of each table (see `contraction.account`)."""

    def __init__(self, program: SumProgram, shifts: Shifts, longest: float) -> None:
        self.program, self.shifts = program, shifts
        count = len(program.offset)
        self.exponent = np.zeros(count, dtype=np.int64)
        self.units = np.zeros(count)
        self.absolute = np.zeros(count)
        self.least = np.zeros(count)
        # An entry of a log-table less the top is rounded once, which makes exp this many units wrong.
        self.units[: program.n_factors] = _EXP + np.minimum(shifts.spans, longest)
        self.bounds = (self.exponent, self.units, self.absolute, self.least)

    @abstractmethod
    def table(self, block: int) -> Floats:
        """Return a computed table as an array of floats."""

    @abstractmethod
    def run_steps(self, working: Working) -> bool:
        """Run all steps; return False if the table of some step has zeros only."""

    def run(self, working: Working) -> SumResult | None:
        """Run all steps and return the result; None if underflow or forbidden states leave a table of zeros only."""
        if not self.run_steps(working):
            return None
        marginals, relative, absolute = [], 0.0, 0.0
        for block in self.program.reads:
            weights = self.table(block)
            marginals.append(weights / weights.sum())
            # The sum of the weights, which is at least 1/2, and the division.
            share = _gamma(float(self.units[block]) + weights.size + 4.0)
            relative = max(relative, 2.0 * share / (1.0 - share) if share < math.inf else math.inf)
            loose = float(self.absolute[block])
            absolute = max(absolute, 4.0 * (weights.size + 1) * loose if weights.size * loose <= 0.25 else 1.0)
        terms, error = list(self.shifts.tops), 0.0
        for block in self.program.roots:
            terms += [math.log(float(self.table(block).reshape(()))), int(self.exponent[block]) * math.log(2.0)]
            # A root is at least 1/2, so that an absolute error is at most twice as large relatively.
            share = _gamma(float(self.units[block])) + 2.0 * float(self.absolute[block])
            sizes = 1.0 + abs(terms[-1]) + abs(terms[-2])
            error += -math.log1p(-share) + 2.0 * UNIT * sizes if share < 0.5 else math.inf
        value = math.fsum(terms)
        return SumResult(marginals, relative, absolute, value, error * (1 + 1e-9) + 4.0 * UNIT * abs(value))


class Plain(_StepTables):
    """Elimination in ordinary floats: tables are scaled by powers of 2, and the error through underflow is bounded."""

    def __init__(self, program: SumProgram, tables: FactorTables, shifts: Shifts) -> None:
        super().__init__(program, shifts, 746.0)  # exp of smaller numbers is 0, which the absolute error covers
        factors = np.exp(shifts.logs)
        self._fill(factors)
        if len(factors):
            smallest = np.minimum.reduceat(np.where(factors > 0.0, factors, 1.0), tables.table_start[:-1])
            self.least[: program.n_factors] = np.frexp(smallest)[1] - 1
            self.absolute[: program.n_factors] = np.where(shifts.spans > 700.0, UNDERFLOW, 0.0)

    def _fill(self, factors: Floats) -> None:
        """Allocate the array of all tables, and fill in the factors and the tables of ones."""
        self.store = np.empty(self.program.length)
        self.store[: len(factors)] = factors
        for block in self.program.ones:
            self.program.table(self.store, block)[...] = 1.0

    def table(self, block: int) -> Floats:
        return self.program.table(self.store, block)

    def run_steps(self, working: Working) -> bool:
        program = self.program
        fixed = (program.sizes, program.scope_start, program.scope, program.offset, *program.steps)
        place = np.full(len(program.sizes), -1, dtype=np.int64)
        for first, last, is_large in working.batches(program.entries):
            entries = int(program.entries[first:last].sum())
            if is_large:
                done = self._run_large(first, working)
            else:
                call = (first, last, *fixed, self.store, place, UNDERFLOW, *self.bounds)
                work = _OPERATIONS_PER_STEP * (last - first) + _OPERATIONS_PER_ENTRY * entries
                done = working.wait_for(code_for(contraction.run_steps, work), *call) == last
            if not done:
                return False
            working.report(entries)
        return True

    def _run_large(self, t: int, working: Working) -> bool:
        """Run one step in pieces over several threads; return False if its table has zeros only."""
        program = self.program
        axes, kept, terms = layout(program, t)
        table = program.table(self.store, int(program.made[t])).reshape(-1)
        working.add_products(axes, kept, self.store, program.offset[program.operands_of(t)], table)
        found = working.map(lambda begin, end: contraction.extremes(table[begin:end]), len(table))
        most, least = max(most for most, _ in found), min(least for _, least in found)
        if shift := self._account(t, terms, most, least):
            working.map(lambda begin, end: contraction.rescale(table[begin:end], shift), len(table))
        return bool(most > 0.0)

    def _account(self, t: int, terms: float, most: float, least: float) -> int:
        """Record error bounds for a step's table, given its extreme entries; return the power of 2 to divide it by."""
        bounds = self.bounds
        return int(contraction.account(t, terms, most, least, UNDERFLOW, *self.program.steps, *bounds))


class Wide(_StepTables):
    """Elimination in numbers with a separate exponent each, which cannot underflow: slow, and rarely needed."""

    def __init__(self, program: SumProgram, shifts: Shifts) -> None:
        super().__init__(program, shifts, math.inf)
        self.store = np.zeros(program.length)
        self.powers = np.zeros(program.length, dtype=np.int64)
        # Smaller exponents are raised to LOWEST; spans as large as that make the bound on the error infinite.
        bits = np.maximum(shifts.logs / math.log(2.0), LOWEST)
        whole = np.floor(bits)
        count = len(bits)
        self.store[:count] = np.where(shifts.logs > -np.inf, 0.5 * np.exp2(bits - whole), 0.0)
        self.powers[:count] = whole.astype(np.int64) + 1
        # The quotient and the fraction are rounded too.
        self.units[: program.n_factors] += 4.0 + 2.0 * shifts.spans
        for block in program.ones:
            program.table(self.store, block)[...] = 0.5
            program.table(self.powers, block)[...] = 1
        for block in range(program.n_factors):
            self._normalise(block)

    def _normalise(self, block: int) -> bool:
        numbers = self.program.table(self.store, block).reshape(-1)
        powers = self.program.table(self.powers, block).reshape(-1)
        top, some = normalise(numbers, powers)
        self.exponent[block] += top
        if powers.min(initial=0) <= LOWEST:
            self.units[block] = math.inf
        return bool(some)

    def run_steps(self, working: Working) -> bool:
        program = self.program
        for t in range(len(program.made)):
            made = int(program.made[t])
            operands = program.operands_of(t)
            axes, _, terms = layout(program, t)
            numbers = program.table(self.store, made).reshape(-1)
            powers = program.table(self.powers, made).reshape(-1)
            numbers[:], powers[:] = 0.0, 0
            start = program.offset[operands]
            call = (axes, self.store, self.powers, start, numbers, powers)
            working.each_piece(int(program.entries[t]), contraction.add_wide_products, *call)
            self.exponent[made] = self.exponent[operands].sum()
            self.units[made] = self.units[operands].sum() + len(operands) + 3.0 * terms
            if not self._normalise(made):
                return False
        return True

    def table(self, block: int) -> Floats:  # numbers below the smallest float become 0
        powers = np.maximum(self.program.table(self.powers, block), -5000).astype(np.int32)
        numbers = np.ldexp(self.program.table(self.store, block), powers)
        if (powers < -1000).any():
            self.absolute[block] = UNDERFLOW
        return numbers
