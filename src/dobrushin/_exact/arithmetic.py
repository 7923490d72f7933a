"""Arithmetic of sums: floats with bounded underflow, and wide numbers that cannot underflow. [trusted]"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.program import Program
from dobrushin._exact.working import Working
from dobrushin._kernels.contraction import LOWEST, account, add_wide_products, normalise, run_steps
from dobrushin._models.factors import FactorTables
from dobrushin._shared.compile import code_for
from dobrushin.errors import ArgumentError

# Roundings of exp, and of the error bound itself.
_EXP = 8.0
UNIT = 2.0**-53
# Operations of a step by itself, and for each combination of states.
_STEP, _ENTRY = 600, 12
# Largest loss of a product of numbers below 1 by underflow, also where small numbers are flushed to 0.
UNDERFLOW = 2.0**-1022


class NoAllowedState(ArgumentError):
    """A model that forbids every joint state."""


def no_allowed_state(tables: FactorTables) -> NoAllowedState:
    """Return the error to raise for a model that forbids every joint state."""
    return NoAllowedState("model", "one that allows some joint state", tables.to_model(None))


@dataclass(frozen=True)
class Sums:
    """Result of the sums: marginals and partition function, with error bounds.

    Attributes
    ----------
    marginals : list of arrays
        For each group its joint probabilities, one axis for each variable.
    relative, absolute : float
        Each probability p is off by at most `relative` p + `absolute`.
    log_partition, log_partition_error : float
        Logarithm of the sum of all unnormalised probabilities, and how far it may be off.
    """

    marginals: list[NDArray[np.float64]]
    relative: float
    absolute: float
    log_partition: float
    log_partition_error: float


@dataclass(frozen=True)
class Shifts:
    """Log-tables less their largest entries, and these."""

    logs: NDArray[np.float64]
    tops: NDArray[np.float64]
    spans: NDArray[np.float64]  # the largest finite difference in each table


def shifted_tables(tables: FactorTables) -> Shifts:
    """Refuse tables of which nothing is left, or whose sums are not finite."""
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


class _Ledger:
    """Error bounds of all tables: see `account`."""

    def __init__(self, program: Program, shifts: Shifts, longest: float) -> None:
        count = len(program.offset)
        self.exponent = np.zeros(count, dtype=np.int64)
        self.units = np.zeros(count)
        self.absolute = np.zeros(count)
        self.least = np.zeros(count)
        # An entry of a log-table less the top is rounded once, which costs exp so many units.
        self.units[: program.n_factors] = _EXP + np.minimum(shifts.spans, longest)


def _gamma(units: float) -> float:
    """Bound a product of roundings, less 1; infinite where no bound holds."""
    return units * UNIT / (1.0 - units * UNIT) if units * UNIT < 2.0**-20 else math.inf


def _finish(program: Program, ledger: _Ledger, shifts: Shifts, number: Callable[[int], NDArray[Any]]) -> Sums:
    """Read the marginals and the partition function; `number` returns a table as plain floats."""
    marginals, relative, absolute = [], 0.0, 0.0
    for block in program.reads:
        weights = number(block)
        marginals.append(weights / weights.sum())
        # The sum of the weights, which is at least 1/2, and the division.
        share = _gamma(float(ledger.units[block]) + weights.size + 4.0)
        relative = max(relative, 2.0 * share / (1.0 - share) if share < math.inf else math.inf)
        loose = float(ledger.absolute[block])
        absolute = max(absolute, 4.0 * (weights.size + 1) * loose if weights.size * loose <= 0.25 else 1.0)
    terms, error = list(shifts.tops), 0.0
    for block in program.roots:
        terms += [math.log(float(number(block).reshape(()))), int(ledger.exponent[block]) * math.log(2.0)]
        # A root is at least 1/2, so that an absolute error is at most twice as large relatively.
        share = _gamma(float(ledger.units[block])) + 2.0 * float(ledger.absolute[block])
        error += -math.log1p(-share) + 2.0 * UNIT * (1.0 + abs(terms[-1]) + abs(terms[-2])) if share < 0.5 else math.inf
    value = math.fsum(terms)
    return Sums(marginals, relative, absolute, value, error * (1 + 1e-9) + 4.0 * UNIT * abs(value))


class Plain:
    """The steps with plain numbers: scaled by powers of 2, the error by underflow bounded."""

    def __init__(self, program: Program, tables: FactorTables, shifts: Shifts) -> None:
        self.program, self.shifts = program, shifts
        self.ledger = _Ledger(program, shifts, 746.0)  # exp of less is 0, and then in the absolute error
        factors = np.exp(shifts.logs)
        self._fill(factors)
        if len(factors):
            smallest = np.minimum.reduceat(np.where(factors > 0.0, factors, 1.0), tables.table_start[:-1])
            self.ledger.least[: program.n_factors] = np.frexp(smallest)[1] - 1
            self.ledger.absolute[: program.n_factors] = np.where(shifts.spans > 700.0, UNDERFLOW, 0.0)

    def _fill(self, factors: NDArray[np.float64]) -> None:
        """Make the store, with the factors and what is 1."""
        self.store = np.empty(self.program.length)
        self.store[: len(factors)] = factors
        for block in self.program.ones:
            self.program.table(self.store, block)[...] = 1.0

    def table(self, block: int) -> NDArray[np.float64]:
        """A table that was made."""
        return self.program.table(self.store, block)

    def run(self, working: Working) -> Sums | None:
        """The sums; None where underflow may have taken all there is, or nothing is allowed."""
        return _finish(self.program, self.ledger, self.shifts, self.table) if self._run_steps(working) else None

    def _run_steps(self, working: Working) -> bool:
        """All steps; False where one makes zeros only."""
        program, ledger = self.program, self.ledger
        fixed = (program.sizes, program.scope_start, program.scope, program.offset)
        steps = (program.made, program.operand_start, program.operand)
        place = np.full(len(program.sizes), -1, dtype=np.int64)
        kept = (ledger.exponent, ledger.units, ledger.absolute, ledger.least)
        for first, last in working.batches(program.entries):
            if last - first == 1 and working.is_large(int(program.entries[first])):
                done = self._run_large(first, working)
            else:
                call = (first, last, *fixed, *steps, self.store, place, UNDERFLOW, *kept)
                work = _STEP * (last - first) + _ENTRY * int(program.entries[first:last].sum())
                done = working.wait_for(code_for(run_steps, work), *call) == last
            if not done:
                return False
            working.report(int(program.entries[first:last].sum()))
        return True

    def _run_large(self, t: int, working: Working) -> bool:
        """One step in pieces, over several threads; False if it makes zeros only."""
        program, ledger = self.program, self.ledger
        axes, kept, terms = working.layout(program, t)
        table = program.table(self.store, int(program.made[t])).reshape(-1)
        start = program.offset[program.operands_of(t)]
        working.add_products(axes, kept, self.store, start, table)
        most, least = working.extremes(table)
        shift = account(
            t, terms, most, least, UNDERFLOW, program.made, program.operand_start, program.operand,
            ledger.exponent, ledger.units, ledger.absolute, ledger.least,
        )  # fmt: skip
        if shift:
            working.rescale(table, shift)
        return bool(most > 0.0)


class Wide:
    """The steps with numbers that have exponents of their own, and cannot underflow. Slow, and rarely needed."""

    def __init__(self, program: Program, shifts: Shifts) -> None:
        self.program, self.shifts = program, shifts
        self.store = np.zeros(program.length)
        self.powers = np.zeros(program.length, dtype=np.int64)
        self.ledger = _Ledger(program, shifts, math.inf)
        # What is still smaller is made so large, and then nothing is known about the error, which spans so large say.
        bits = np.maximum(shifts.logs / math.log(2.0), LOWEST)
        whole = np.floor(bits)
        count = len(bits)
        self.store[:count] = np.where(shifts.logs > -np.inf, 0.5 * np.exp2(bits - whole), 0.0)
        self.powers[:count] = whole.astype(np.int64) + 1
        # The quotient and the fraction are rounded too.
        self.ledger.units[: program.n_factors] += 4.0 + 2.0 * shifts.spans
        for block in program.ones:
            program.table(self.store, block)[...] = 0.5
            program.table(self.powers, block)[...] = 1
        for block in range(program.n_factors):
            self._normalise(block)

    def _normalise(self, block: int) -> bool:
        numbers = self.program.table(self.store, block).reshape(-1)
        powers = self.program.table(self.powers, block).reshape(-1)
        top, some = normalise(numbers, powers)
        self.ledger.exponent[block] += top
        if powers.min(initial=0) <= LOWEST:
            self.ledger.units[block] = math.inf
        return bool(some)

    def run(self, working: Working) -> Sums | None:
        """The sums; None where nothing is allowed."""
        program, ledger = self.program, self.ledger
        for t in range(len(program.made)):
            made = int(program.made[t])
            operands = program.operands_of(t)
            axes, _, terms = working.layout(program, t)
            numbers = program.table(self.store, made).reshape(-1)
            powers = program.table(self.powers, made).reshape(-1)
            numbers[:], powers[:] = 0.0, 0
            start = program.offset[operands]
            for begin, end in working.pieces(int(program.entries[t])):
                call = (axes, begin, end, self.store, self.powers, start, numbers, powers)
                working.wait_for(add_wide_products, *call)
            ledger.exponent[made] = ledger.exponent[operands].sum()
            ledger.units[made] = ledger.units[operands].sum() + len(operands) + 3.0 * terms
            if not self._normalise(made):
                return None
        return _finish(program, ledger, self.shifts, self._number)

    def _number(self, block: int) -> NDArray[np.float64]:
        """A table as plain floats: what is smaller than the smallest of them becomes 0."""
        powers = np.maximum(self.program.table(self.powers, block), -5000).astype(np.int32)
        numbers = np.ldexp(self.program.table(self.store, block), powers)
        if (powers < -1000).any():
            self.ledger.absolute[block] = UNDERFLOW
        return numbers
