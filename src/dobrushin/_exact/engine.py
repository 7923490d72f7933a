"""Sums over all states of a model, by steps that are planned before any work, with their cost known in advance.

`plan_sums` takes the tables of factors and groups of variables, and returns a plan: its width, entries, seconds and
bytes. `SumPlan.run` returns the joint marginal of each group with a bound on its error. [trusted]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dobrushin._exact.arithmetic import Plain, Shifts, Sums, Wide, no_allowed_state, shifted_tables
from dobrushin._exact.order import find_order
from dobrushin._exact.program import Program, Scope, build
from dobrushin._exact.working import Working
from dobrushin._models.factors import FactorTables, adjacency
from dobrushin._models.memory import Memory, Slot
from dobrushin._shared import device
from dobrushin._shared.memory import bytes_text
from dobrushin._shared.memory import memory_limit as read_memory
from dobrushin.errors import BudgetError

# Seconds: a step takes about so long by itself, and so long for each combination of states.
_SECONDS_PER_STEP, _SECONDS_PER_ENTRY = 5e-5, 1.2e-9
# The same on the GPU; and so many entries pay there.
_SECONDS_PER_LAUNCH, _SECONDS_PER_PRODUCT, _MANY = 4e-4, 6e-11, 2**28
# Largest number of variables in all factors for which programs are cached.
_SMALL = 2048
# Sums whose error beyond rounding may be larger are made again with numbers that cannot underflow.
_NEGLIGIBLE = 2.0**-100


@dataclass(frozen=True)
class SumPlan:
    """Plan of the sums and its cost.

    Attributes
    ----------
    groups : list of tuples of positions
        Groups of variables whose joint marginals are computed.
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

    def seconds_on(self, backend: str) -> float:
        """About how long it takes where it will be done."""
        if not self.on_device(backend):
            return self.seconds
        return len(self.program.made) * _SECONDS_PER_LAUNCH + self.entries * _SECONDS_PER_PRODUCT

    def on_device(self, backend: str) -> bool:
        """Whether the sums are made on the GPU: where that is asked for, or, if nothing is, where it pays.

        `BudgetError` where they are asked for there and do not fit.
        """
        if backend == "cpu" or (backend == "auto" and not (self.entries >= _MANY and device.is_available())):
            return False
        free = device.free_memory()
        if backend == "cuda":
            self.require(free)
        return self.bytes <= free

    def asking(self, tables: FactorTables, groups: Sequence[Scope]) -> SumPlan:
        """The same order for other questions, about single variables or groups that some factor holds."""
        return SumPlan(list(groups), _program(_shape(tables), self.order, groups), self.order)

    def require(self, limit: float) -> SumPlan:
        """This plan, if it keeps to a limit in bytes; else `BudgetError`."""
        if self.bytes > limit:
            missing = bytes_text(self.bytes - limit)
            remedy = (
                f"It lacks {missing}. Raise 'memory_limit' (--memory-limit on the command line), fix some variables "
                "with evidence, or sample."
            )
            raise BudgetError("Summing over the states", float(self.bytes), limit, "bytes", remedy)
        return self

    def run(
        self,
        tables: FactorTables,
        *,
        working: Working | None = None,
        limit: float = math.inf,
        backend: str = "cpu",
    ) -> Sums:
        """Make the sums; `function` is named in errors. The tables must be those of the plan, or have their scopes.

        Numbers that could underflow are bounded; where that matters, all is done again with wider ones, if these fit
        into `limit` bytes. Wide numbers are for the CPU only.
        """
        working = Working() if working is None else working
        is_there = self.on_device(backend)
        with working.on(self.entries):
            shifts = shifted_tables(tables)
            plain = self._on_device(tables, shifts) if is_there else Plain(self.program, tables, shifts)
            sums = plain.run(working)
            if sums is not None and (sums.absolute <= _NEGLIGIBLE or 2 * self.bytes > limit):
                return sums
            del plain
            wide = Wide(self.program, shifts).run(working)
            if wide is None:
                raise no_allowed_state(tables)
            return wide

    def _on_device(self, tables: FactorTables, shifts: Shifts) -> Plain:
        from dobrushin._exact.cuda.sums import OnDevice

        return OnDevice(self.program, tables, shifts)


def sum_memory(memory_limit: Any, backend: str) -> float:
    """Bytes that sums may take: those that were given, or most of the memory that is free, here or on the GPU."""
    if memory_limit is None and backend == "cuda":
        return float(device.free_memory())
    here = read_memory(memory_limit)
    there = memory_limit is None and backend == "auto" and device.is_available()
    return max(here, float(device.free_memory())) if there else here


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
    return SumPlan(list(groups), _program(_shape(tables), order.variables, groups), order.variables).require(limit)


def plan_in_order(tables: FactorTables, groups: Sequence[Scope], order: list[int], memory: Memory) -> SumPlan:
    """Return the plan for a given elimination order; the variables of a group must share a clique of the order.

    In a lattice the surroundings of many variables look the same, so small programs are kept.
    """
    shape = _shape(tables)
    if len(tables.scope) > _SMALL:
        return SumPlan(list(groups), _program(shape, order, groups), order)
    program = memory.get(_PROGRAMS, lambda: _program(shape, order, groups), (shape, tuple(order), tuple(groups)))
    return SumPlan(list(groups), program, order)


def _shape(tables: FactorTables) -> _Shape:
    parts = (tables.cardinalities, tables.scope_start, tables.scope)
    return _Shape(*(part.astype(np.int64, copy=False).tobytes() for part in parts))


class _Shape(NamedTuple):
    """The scopes of factors, as bytes of 64-bit integers: arrays that can be looked up."""

    cardinalities: bytes
    scope_start: bytes
    scope: bytes


def _program(shape: _Shape, order: Sequence[int], groups: Sequence[Scope]) -> Program:
    cardinalities, start, scope = (np.frombuffer(part, dtype=np.int64).tolist() for part in shape)
    factors = [tuple(scope[a:b]) for a, b in itertools.pairwise(start)]
    return build(cardinalities, factors, order, groups)


_PROGRAMS: Slot[Program] = Slot("programs of sums", max_values=64)
