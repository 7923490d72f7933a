"""Variable elimination with a plan that states its cost before any work. [trusted]

`plan_sums` takes tables of factors and groups of variables, and returns a plan with its treewidth, table entries,
seconds and bytes. `SumPlan.run` returns the joint marginal of each group with a bound on its error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._exact.arithmetic import (
    NoAllowedState,
    Plain,
    SumResult,
    Wide,
    Working,
    layout,
    no_allowed_state,
    shifted_tables,
)
from dobrushin._exact.order import Order, find_order
from dobrushin._exact.program import Scope, SumProgram, build
from dobrushin._kernels.contraction import take_maxima
from dobrushin._models.factors import FactorTables, adjacency
from dobrushin._models.forms import Form
from dobrushin._models.memory import Memory, Slot
from dobrushin._models.near import Numbering
from dobrushin._shared import device
from dobrushin._shared.arrays import UNIT, Bools, Floats, Ints, frozen, is_among
from dobrushin._shared.call import NO_DEADLINE
from dobrushin._shared.memory import bytes_text, can_have_more
from dobrushin._shared.memory import memory_limit as read_memory
from dobrushin.errors import BudgetError

# Seconds of a step by itself, and of each combination of states (benchmarks/rates.py).
_SECONDS_PER_TABLE, _SECONDS_PER_ENTRY = 1.5e-6, 8e-10
# Seconds on the GPU, measured by benchmarks/gpu_sums.py, and the entries from which on it is used.
_SECONDS_PER_LAUNCH, _SECONDS_PER_PRODUCT, _ENTRIES_FOR_DEVICE = 4e-4, 6e-11, 2**28
# Programs whose factors have at most this number of variables in all are kept.
_VARIABLES_OF_KEPT_PROGRAM = 2048
_PROGRAMS: Slot[SumProgram] = Slot("programs of sums", max_values=64)
# Sums that underflow may have changed by more are made again with numbers that cannot underflow.
_NEGLIGIBLE = 2.0**-100


@dataclass(frozen=True)
class SumPlan:
    """Plan of a variable elimination, with its cost.

    Attributes
    ----------
    groups : list of tuples of positions
        Groups of variables whose joint marginals are computed.
    width : int
        Number of variables of the largest clique, less one.
    entries : int
        Combinations of states that all steps go through in total.
    bytes : int
        Memory of all tables and messages.
    seconds : float
        Estimated time on the CPU.
    """

    groups: list[Scope]
    program: SumProgram = field(repr=False)
    order: list[int] = field(repr=False)

    @property
    def width(self) -> int:
        return self.program.width

    @property
    def entries(self) -> int:
        return int(self.program.entries.sum())

    @property
    def bytes(self) -> int:
        return 8 * self.program.length + 64 * len(self.program.offset)

    @property
    def seconds(self) -> float:
        return len(self.program.made) * _SECONDS_PER_TABLE + self.entries * _SECONDS_PER_ENTRY

    def seconds_on(self, backend: str) -> float:
        """Estimate the seconds on the CPU or the GPU, whichever this backend would use."""
        if not self.on_device(backend):
            return self.seconds
        return len(self.program.made) * _SECONDS_PER_LAUNCH + self.entries * _SECONDS_PER_PRODUCT

    def on_device(self, backend: str) -> bool:
        """Return whether the elimination runs on the GPU: always with "cuda", and with "auto" if it is long enough.

        With "cuda", raises BudgetError if the tables do not fit in the memory of the GPU.
        """
        if backend == "cuda":
            self.require(device.free_memory())
            return True
        is_long = backend == "auto" and self.entries >= _ENTRIES_FOR_DEVICE
        return is_long and device.is_available() and self.bytes <= device.free_memory()

    def asking(self, tables: FactorTables, groups: Sequence[Scope]) -> SumPlan:
        """Return a plan with the same elimination order for other groups of variables.

        Each group must be a single variable, or be within the scope of some factor.
        """
        return SumPlan(list(groups), _program(tables, self.order, groups), self.order)

    def require(self, limit: float) -> SumPlan:
        """Return this plan if its tables fit in `limit` bytes; else raise `BudgetError`."""
        if self.bytes > limit:
            raised = "Raise 'memory_limit' (--memory-limit on the command line), fix"
            advice = raised if can_have_more(self.bytes) else "Fix"
            remedy = f"It lacks {bytes_text(self.bytes - limit)}. {advice} some variables with evidence, or sample."
            raise BudgetError("Summing over the states", float(self.bytes), limit, "bytes", remedy)
        return self

    def run(
        self, tables: FactorTables, *, working: Working | None = None, limit: float = math.inf, backend: str = "cpu"
    ) -> SumResult:
        """Run the elimination on tables that have the scopes of the plan's tables.

        Errors through underflow are bounded. If they matter, the elimination runs again on the CPU with numbers that
        cannot underflow, if these fit into `limit` bytes.
        """
        working = Working() if working is None else working
        arithmetic = Plain
        if self.on_device(backend):
            from dobrushin._exact.device_sums import OnDevice as arithmetic
        with working.on(self.entries):
            shifts = shifted_tables(tables)
            plain = arithmetic(self.program, tables, shifts)
            sums = plain.run(working)
            if sums is not None and (sums.absolute <= _NEGLIGIBLE or 2 * self.bytes > limit):
                return sums
            del plain
            wide = Wide(self.program, shifts).run(working)
            if wide is None:
                raise no_allowed_state(tables)
            return wide


def sum_memory(memory_limit: Any, backend: str) -> float:
    """Return the bytes that tables may take: `memory_limit`, by default most of the free memory of CPU or GPU."""
    if memory_limit is None and backend == "cuda":
        return float(device.free_memory())
    here = read_memory(memory_limit)
    there = memory_limit is None and backend == "auto" and device.is_available()
    return max(here, float(device.free_memory())) if there else here


def plan_sums(
    tables: FactorTables, groups: Sequence[Scope], limit: float, working: Working | None = None,
    memory: float = math.inf,
) -> SumPlan:  # fmt: skip
    """Plan the computation of joint marginals for groups of variables, with the best elimination order found.

    Groups are tuples of positions; a group of several variables is treated like the scope of one more factor. Without
    groups only the partition function is computed. Raises BudgetError if the tables need more than `limit` bytes.
    Orders whose tables need far more than `memory` bytes are not improved.
    """
    wide = [group for group in groups if len(group) > 1]
    near = tables.adjacency
    if wide:
        start = np.concatenate([tables.scope_start, tables.scope_start[-1] + np.cumsum([len(g) for g in wide])])
        scope = np.concatenate([tables.scope, *(np.array(g, dtype=np.int64) for g in wide)])
        near = adjacency(start, scope, tables.n_variables)
    working = Working() if working is None else working
    order = find_order(near, tables.cardinalities, working, largest=min(limit, memory) / 8.0)
    return SumPlan(list(groups), _program(tables, order.variables, groups), order.variables).require(limit)


def plan_in_order(tables: FactorTables, groups: Sequence[Scope], order: list[int], memory: Memory) -> SumPlan:
    """Return the plan for a given elimination order, in which each group's variables share a clique.

    Programs of small models are cached, because in a lattice the neighbourhoods of many variables have the same shape.
    """
    if len(tables.scope) > _VARIABLES_OF_KEPT_PROGRAM:
        program = _program(tables, order, groups)
    else:
        shape = tuple(part.tobytes() for part in (tables.cardinalities, tables.scope_start, tables.scope))
        program = memory.get(_PROGRAMS, partial(_program, tables, order, groups), (shape, tuple(order), tuple(groups)))
    return SumPlan(list(groups), program, order)


def _program(tables: FactorTables, order: Sequence[int], groups: Sequence[Scope]) -> SumProgram:
    start, scope = tables.scope_start.tolist(), tables.scope.tolist()
    scopes = [tuple(scope[a:b]) for a, b in itertools.pairwise(start)]
    return build(tables.cardinalities.tolist(), scopes, order, groups)


# -- the most likely joint state: the steps of the sums, with maxima of logarithms instead -------


def maximise(plan: SumPlan, tables: FactorTables, working: Working) -> tuple[Ints, float]:
    """Return the most likely joint state, as state numbers, with an error bound.

    The bound says by how much the largest log-density may exceed the log-density of the returned state.
    """
    program = plan.program
    shifts = shifted_tables(tables)
    store = np.zeros(program.length)
    store[: len(shifts.logs)] = shifts.logs
    with working.on(plan.entries):
        for t in range(program.n_up):
            operands = program.operands_of(t)
            axes, _, _ = layout(program, t)
            table = program.table(store, int(program.made[t])).reshape(-1)
            table[:] = -np.inf
            start = program.offset[operands]
            working.each_piece(int(program.entries[t]), take_maxima, axes, store, start, table)
            working.report(int(program.entries[t]))
            if table.max() == -math.inf:
                raise no_allowed_state(tables)
    digits = np.full(tables.n_variables, -1, dtype=np.int64)
    for t in reversed(range(program.n_up)):
        operands = program.operands_of(t)
        free = [v for v in dict.fromkeys(v for b in operands for v in program.scope_of(b).tolist()) if digits[v] < 0]
        total = np.zeros([int(program.sizes[v]) for v in free])
        for block in operands.tolist():
            scope = program.scope_of(block).tolist()
            part = program.table(store, block)[tuple(slice(None) if v in free else digits[v] for v in scope)]
            own = [v for v in scope if v in free]
            part = part.transpose(np.argsort([free.index(v) for v in own]))
            total += part.reshape([int(program.sizes[v]) if v in own else 1 for v in free])
        digits[free] = np.unravel_index(int(total.argmax()), total.shape)
    # Each entry that is added up is off by one rounding, of numbers no larger than all spans together; the computed
    # maximum and the computed value of the state that was found are both off by at most that.
    additions = len(tables.table_start) + float(np.diff(program.operand_start[: program.n_up + 1]).sum())
    return digits, 4.0 * UNIT * additions * float(shifts.spans.sum())


# -- regions: parts of a model, cut out and summed with their boundary fixed --------------------


@dataclass(frozen=True)
class RegionFactors:
    """The factors that contain a variable of a region; their variables are the region and its boundary."""

    numbering: Numbering  # of all these variables in the model
    inside: Bools
    factors: FactorTables

    @property
    def border(self) -> Ints:
        """Return the positions of the boundary variables: the region's neighbours outside."""
        return self.numbering.positions[~self.inside]

    def fix(self, boundaries: Sequence[Ints]) -> list[FactorTables]:
        """Return the factors over the region for each joint state of the boundary, without any rounding."""
        states = np.zeros((len(boundaries), len(self.inside)), dtype=np.int64)
        states[:, ~self.inside] = boundaries
        return self.factors.cut(self.inside, states)

    def without_border(self) -> FactorTables:
        """Return the factors over the region alone, without the couplings of binary pairs across the boundary.

        Each of their log-tables is replaced by its mean over the states of the variable outside, which is the field
        that the table holds.
        """
        factors = self.factors
        ends = factors.scope_start[:-1]
        pairs = np.flatnonzero(np.diff(factors.scope_start) == 2)
        sides = self.inside[factors.scope[ends[pairs, None] + np.arange(2)]]
        table = factors.table.copy()
        for axis in (0, 1):
            entries = factors.table_start[pairs[~sides[:, axis]], None] + np.arange(4)
            means = table[entries].reshape(-1, 2, 2).mean(axis=axis + 1, keepdims=True)
            table[entries] = np.broadcast_to(means, (len(entries), 2, 2)).reshape(-1, 4)
        shape = factors.sizes, factors.scope_start, factors.scope, factors.table_start
        (rest,) = FactorTables(*shape, table).cut(self.inside, np.zeros((1, len(self.inside)), dtype=np.int64))
        return rest

    @cached_property
    def extremes(self) -> tuple[Ints, Ints, Ints] | None:
        """Return the lowest and the highest boundary state, and which state of each inner variable counts as high.

        Only for binary pairwise factors that are attractive after relabelling states; None for other models.
        """
        factors = self.factors
        if (factors.sizes != 2).any() or (np.diff(factors.scope_start) > 2).any():
            return None
        ends, tables = factors.of_arity(2)
        signs = pair_signs(tables)
        ends, signs = ends[signs != 0], signs[signs != 0]
        high = np.ones(len(self.inside), dtype=np.int64)
        if (signs < 0).any():
            # Two copies of the graph, which the negative edges connect with each other. A variable is high if its first
            # copy is connected with the first copy of the first variable of its component.
            n, (i, j) = len(high), ends.T
            across = n * (signs < 0)
            rows, columns = np.concatenate([i, i + n]), np.concatenate([j + across, j + n - across])
            copies = sparse.coo_array((np.ones(len(rows)), (rows, columns)), (2 * n, 2 * n))
            first, second = csgraph.connected_components(copies, directed=False)[1].reshape(2, n)
            if (first == second).any():  # frustrated
                return None
            _, root, component = np.unique(np.minimum(first, second), return_index=True, return_inverse=True)
            high = (first == first[root[component]]).astype(np.int64)
        outside = high[~self.inside]
        return 1 - outside, outside, high[self.inside]


def pair_signs(tables: Floats) -> Ints:
    """Return the signs of log-tables (00, 01, 10, 11) of binary pairs: +1 attractive, -1 repulsive, 0 neither.

    This is the sign of t_00 + t_11 - t_01 - t_10, computed without rounding. It is 0 if both sums are -inf.
    """
    equal, unequal = tables[:, (0, 3)], tables[:, (1, 2)]
    with np.errstate(invalid="ignore"):
        gap = equal.sum(axis=1) - unequal.sum(axis=1)
        doubtful = np.abs(gap) <= 2.0**-50 * np.abs(tables).sum(axis=1)
    signs = np.where(np.isnan(gap), 0.0, np.sign(gap))
    for k in np.flatnonzero(doubtful & np.isfinite(tables).all(axis=1)).tolist():
        a, b, c, d = tables[k].tolist()
        signs[k] = np.sign(math.fsum((a, d, -b, -c)))
    return signs.astype(np.int64)


def surroundings(form: Form, inside: Ints) -> RegionFactors:
    """Return the factors that contain a variable of the region `inside` (increasing positions)."""
    own, factors = form.touching(inside)
    return RegionFactors(Numbering(form.n_variables, own), frozen(is_among(own, inside)), factors)


class Law(NamedTuple):
    """The joint law of a group of variables in C order; a probability p is off by at most `error` p + `loss`."""

    probabilities: Floats
    error: float
    loss: float


def sum_region(tables: Sequence[FactorTables], order: Order, group: Ints, memory: Memory) -> list[Law] | None:
    """Return the law of a group of variables under each set of tables, which share their scopes.

    None: one of them allows no joint state.
    """
    plan = plan_in_order(tables[0], [tuple(group.tolist())], order.variables, memory)
    try:
        sums = [plan.run(each, working=Working(NO_DEADLINE)) for each in tables]
    except NoAllowedState:
        return None
    return [Law(each.marginals[0].ravel(), each.relative, each.absolute) for each in sums]
