"""Sums over all states of a model, by steps that are planned before any work: what is asked, what it takes, the sums.

`plan_sums` takes the tables of factors and groups of variables, and returns a plan: its width, entries, seconds and
bytes. `SumPlan.run` returns the joint marginal of each group with a bound on its error. [trusted]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.order import find_order
from dobrushin._exact.program import Program, Scope, build
from dobrushin._exact.working import Working
from dobrushin._kernels.contraction import account, run_steps
from dobrushin._kernels.semirings import LOWEST, add_wide_products, normalise
from dobrushin._models.factors import FactorTables, adjacency
from dobrushin._shared.memory import bytes_text
from dobrushin.errors import ArgumentError, BudgetError

# Seconds: a step takes about so long by itself, and so long for each combination of states.
_SECONDS_PER_STEP, _SECONDS_PER_ENTRY = 5e-5, 1.2e-9
# Sums whose error beyond rounding may be larger are made again with numbers that cannot underflow.
_NEGLIGIBLE = 2.0**-100
# Roundings of exp, and of what is said about the error itself.
_EXP = 8.0
UNIT = 2.0**-53
# What a product of numbers below 1 can lose where it underflows, also where small numbers are flushed to 0.
UNDERFLOW = 2.0**-1022


class NoAllowedState(ArgumentError):
    """A model that forbids every joint state."""


def no_allowed_state(tables: FactorTables, function: str) -> NoAllowedState:
    """What to raise about a model that forbids every joint state."""
    return NoAllowedState(function, "model", "one that allows some joint state", tables.to_model(None))


@dataclass(frozen=True)
class Sums:
    """What the sums gave.

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
class SumPlan:
    """How the sums will be made, and what that takes.

    Attributes
    ----------
    groups : list of tuples of positions
        What is asked for.
    width : int
        Size of the largest clique less one.
    entries : int
        Combinations of states that all steps together run through.
    bytes : int
        Memory of all tables and messages.
    seconds : float
        About how long it takes.
    """

    groups: list[Scope]
    program: Program = field(repr=False)
    order: list[int] = field(repr=False)

    @property
    def width(self) -> int:
        return self.program.width

    @property
    def entries(self) -> int:
        return self.program.total

    @property
    def bytes(self) -> int:
        return 8 * self.program.length + 64 * len(self.program.offset)

    @property
    def seconds(self) -> float:
        return len(self.program.made) * _SECONDS_PER_STEP + self.entries * _SECONDS_PER_ENTRY

    def asking(self, tables: FactorTables, groups: Sequence[Scope]) -> SumPlan:
        """The same order for other questions, about single variables or groups that some factor holds."""
        return SumPlan(list(groups), _program(tables, self.order, groups), self.order)

    def require(self, limit: float) -> SumPlan:
        """This plan, if it keeps to a limit in bytes; else `BudgetError`."""
        if self.bytes > limit:
            missing = bytes_text(self.bytes - limit)
            remedy = (
                f"It lacks {missing}. Raise 'memory_limit' (--memory on the command line), fix some variables with "
                "evidence, or sample."
            )
            raise BudgetError("Summing over the states", float(self.bytes), limit, "bytes", remedy)
        return self

    def run(
        self, tables: FactorTables, function: str, *, working: Working | None = None, limit: float = math.inf
    ) -> Sums:
        """Make the sums; `function` is named in errors. The tables must be those of the plan, or have their scopes.

        Numbers that could underflow are bounded; where that matters, all is done again with wider ones, if these fit
        into `limit` bytes.
        """
        working = Working() if working is None else working
        with working.on(self.entries):
            shifts = shifted_tables(tables, function)
            plain = _Plain(self.program, tables, shifts)
            sums = plain.run(working)
            if sums is not None and (sums.absolute <= _NEGLIGIBLE or 2 * self.bytes > limit):
                return sums
            del plain
            wide = _Wide(self.program, shifts).run(working)
            if wide is None:
                raise no_allowed_state(tables, function)
            return wide


def plan_sums(tables: FactorTables, groups: Sequence[Scope], limit: float, working: Working | None = None) -> SumPlan:
    """The best plan of many for the joint marginals of some groups of variables.

    `BudgetError` where it takes more than `limit` bytes. Groups are tuples of positions; those of several variables
    are summed as if one more factor held them together. Without groups only the partition function is summed.
    """
    wide = [group for group in groups if len(group) > 1]
    near = tables.adjacency
    if wide:
        start = np.concatenate([tables.scope_start, tables.scope_start[-1] + np.cumsum([len(g) for g in wide])])
        scope = np.concatenate([tables.scope, *(np.array(g, dtype=np.int64) for g in wide)])
        near = adjacency(start, scope, tables.n_variables)
    working = Working() if working is None else working
    order = find_order(near, tables.cardinalities, working)
    return SumPlan(list(groups), _program(tables, order.variables, groups), order.variables).require(limit)


def plan_in_order(tables: FactorTables, groups: Sequence[Scope], order: list[int]) -> SumPlan:
    """The same with an order that is there already; the variables of a group must be in one of its cliques."""
    return SumPlan(list(groups), _program(tables, order, groups), order)


def _program(tables: FactorTables, order: list[int], groups: Sequence[Scope]) -> Program:
    scope, start = tables.scope.tolist(), tables.scope_start.tolist()
    factors = [tuple(scope[a:b]) for a, b in itertools.pairwise(start)]
    return build(tables.cardinalities.tolist(), factors, order, groups)


@dataclass(frozen=True)
class Shifts:
    """Log-tables less their largest entries, and these."""

    logs: NDArray[np.float64]
    tops: NDArray[np.float64]
    spans: NDArray[np.float64]  # the largest finite difference in each table


def shifted_tables(tables: FactorTables, function: str) -> Shifts:
    """Refuse tables of which nothing is left, or whose sums are not finite."""
    starts = tables.table_start[:-1]
    if not len(starts):
        return Shifts(np.empty(0), np.empty(0), np.empty(0))
    tops = np.maximum.reduceat(tables.table, starts)
    if np.isneginf(tops).any():
        raise no_allowed_state(tables, function)
    finite = np.where(tables.table > -np.inf, np.abs(tables.table), 0.0)
    reach = np.cumsum(2.0 * np.maximum.reduceat(finite, starts))
    if not reach[-1] < np.inf:
        where = f"factor {int(np.argmax(~(reach < np.inf)))}"
        requirement = "one whose log-potentials have a finite sum"
        raise ArgumentError(function, "model", requirement, tables.to_model(None), where)
    logs = tables.table - np.repeat(tops, np.diff(tables.table_start))
    spans = -np.minimum.reduceat(np.where(logs > -np.inf, logs, 0.0), starts)
    return Shifts(logs, tops, spans)


class _Ledger:
    """What is known about the error of every table: see `account`."""

    def __init__(self, program: Program, shifts: Shifts, longest: float) -> None:
        count = len(program.offset)
        self.exponent = np.zeros(count, dtype=np.int64)
        self.units = np.zeros(count)
        self.absolute = np.zeros(count)
        self.least = np.zeros(count)
        # An entry of a log-table less the top is rounded once, which costs exp so many units.
        self.units[: program.n_factors] = _EXP + np.minimum(shifts.spans, longest)


def _gamma(units: float) -> float:
    """Bound on a product of so many roundings, less 1; infinite where nothing is known."""
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


class _Plain:
    """The steps with plain numbers: scaled by powers of 2, the error by underflow bounded."""

    def __init__(self, program: Program, tables: FactorTables, shifts: Shifts) -> None:
        self.program, self.shifts = program, shifts
        self.store = np.empty(program.length)
        self.ledger = _Ledger(program, shifts, 746.0)  # exp of less is 0, and then in the absolute error
        factors = self.store[: len(shifts.logs)]
        np.exp(shifts.logs, out=factors)
        for block in program.ones:
            program.table(self.store, block)[...] = 1.0
        if len(factors):
            smallest = np.minimum.reduceat(np.where(factors > 0.0, factors, 1.0), tables.table_start[:-1])
            self.ledger.least[: program.n_factors] = np.frexp(smallest)[1] - 1
            self.ledger.absolute[: program.n_factors] = np.where(shifts.spans > 700.0, UNDERFLOW, 0.0)

    def run(self, working: Working) -> Sums | None:
        """The sums; None where underflow may have taken all there is, or nothing is allowed."""
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
                done = working.wait_for(run_steps, *call) == last
            if not done:
                return None
            working.report(int(program.entries[first:last].sum()))
        return _finish(program, ledger, self.shifts, lambda block: program.table(self.store, block))

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


class _Wide:
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
