"""The most likely joint state: the steps of the sums, with maxima of logarithms instead. [trusted]"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.arithmetic import UNIT, no_allowed_state, shifted_tables
from dobrushin._exact.engine import SumPlan
from dobrushin._exact.working import Working
from dobrushin._kernels.contraction import take_maxima
from dobrushin._models.factors import FactorTables


class Maximum(NamedTuple):
    """A joint state as digits, and how far its log-density can be below the largest one."""

    digits: NDArray[np.int64]
    gap: float


def maximise(plan: SumPlan, tables: FactorTables, working: Working) -> Maximum:
    """Maxima on the way up, and the states that reach them on the way down."""
    program = plan.program
    shifts = shifted_tables(tables)
    store = np.zeros(program.length)
    store[: len(shifts.logs)] = shifts.logs
    with working.on(plan.entries):
        for t in range(program.n_up):
            operands = program.operands_of(t)
            axes, _, _ = working.layout(program, t)
            table = program.table(store, int(program.made[t])).reshape(-1)
            table[:] = -np.inf
            start = program.offset[operands]
            for begin, end in working.pieces(int(program.entries[t])):
                working.wait_for(take_maxima, axes, begin, end, store, start, table)
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
    return Maximum(digits, 4.0 * UNIT * additions * float(shifts.spans.sum()))
