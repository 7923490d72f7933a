"""Variable elimination in many small models of the same shape at once, by array operations. [trusted]

All models have the same scopes of factors; each table belongs to one model or is shared by all. The last axis of every
array is over the models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dobrushin._exact.arithmetic import UNDERFLOW
from dobrushin._exact.program import Scope, SumProgram
from dobrushin._shared.arrays import UNIT, Array, Bools, Floats
from dobrushin._shared.call import current_deadline

# Rounding errors of one exponential, in units of the roundoff; tables are exponentials.
_EXP = 8.0
# A table whose largest entry is smaller counts as zero: its model is summed again with a wider exponent range.
_LEAST = 2.0**-900
# Probabilities of a model are returned as valid if underflow has changed them by less than this.
NEGLIGIBLE = 2.0**-100
# Tables are scaled when their largest entry is below this.
_SCALED_BELOW = 0.25
# Steps between looks at the time limit.
_STEPS_PER_LOOK = 64


class BatchSums(NamedTuple):
    """Marginals and partition functions of the models of a batch."""

    # By group: weights of the joint states, and their sums; with an axis of length 1 where all models have the same.
    weights: list[Floats]
    totals: list[Floats]
    relative: float  # a probability p is off by at most relative p + `NEGLIGIBLE`
    log_partition: Floats
    is_valid: Bools  # False: numbers underflowed or no state is allowed, so the results of that model are meaningless

    def marginals(self) -> list[Floats]:
        """Return the joint probabilities of each group of variables; the last axis is over the models."""
        count = len(self.log_partition)
        shares = [weights / total for weights, total in zip(self.weights, self.totals, strict=True)]
        return [share if share.shape[-1] == count else np.repeat(share, count, axis=-1) for share in shares]


class _Step(NamedTuple):
    made: int
    operands: list[tuple[int, Scope, Scope]]  # table, order of its axes, and its shape among all axes of the step
    summed: Scope  # axes that are summed out
    terms: int  # of each sum
    finished: list[int]  # tables that no later step reads
    is_read: bool  # whether its table is a result, not an operand of a later step


@dataclass
class _Account:
    """Error bounds for the entries of a table (see `contraction.account`)."""

    units: float = _EXP
    absolute: Floats | float | None = None  # None: nothing has underflowed
    least: float = 0.0  # logarithm to base 2 of a lower bound on its positive entries
    exponent: Array | int = 0

    @property
    def loss(self) -> Floats | float:
        return 0.0 if self.absolute is None else self.absolute


class BatchProgram:
    """A `SumProgram` whose steps run as array operations on many models at once."""

    def __init__(self, program: SumProgram) -> None:
        self.program = program
        last = {int(block): t for t in range(len(program.made)) for block in program.operands_of(t)}
        reads = set(program.reads)
        kept = {*reads, *program.roots}
        self._steps = []
        for t, made in enumerate(program.made.tolist()):
            blocks = program.operands_of(t).tolist()
            scopes = [program.scope_of(block).tolist() for block in blocks]
            out = program.scope_of(made).tolist()
            whole = [*out, *sorted({v for scope in scopes for v in scope} - set(out))]
            sizes = [int(program.sizes[v]) for v in whole]
            operands = []
            for block, scope in sorted(zip(blocks, scopes, strict=True), key=lambda pair: len(pair[1])):
                axes = tuple(scope.index(v) for v in whole if v in scope)
                operands.append((block, axes, tuple(k if v in scope else 1 for v, k in zip(whole, sizes, strict=True))))
            summed = tuple(range(len(out), len(whole)))
            finished = [block for block in blocks if last[block] == t and block not in kept]
            self._steps.append(_Step(made, operands, summed, math.prod(sizes[len(out) :]), finished, made in reads))

    def run(self, logs: Sequence[Floats], n_models: int) -> BatchSums:
        """Run the steps and return the results of all models.

        Parameters
        ----------
        logs : list of arrays
            The log-tables in the shape of their scopes, with a last axis of length `n_models`, or of length 1 where the
            models share the table.
        n_models : int
        """
        program = self.program
        store: dict[int, Floats] = {}
        accounts: dict[int, _Account] = {}
        log_partition, is_valid = np.zeros(n_models), np.ones(n_models, dtype=np.bool_)
        for block, log in enumerate(logs):
            top = log.max(axis=tuple(range(log.ndim - 1)))
            is_valid &= top > -np.inf
            top = np.where(top > -np.inf, top, 0.0)
            log_partition += top
            shifted = log - top
            span = -float(shifted.min(where=shifted > -np.inf, initial=0.0))
            store[block] = np.exp(shifted)
            loss = UNDERFLOW if span > 700.0 else None
            accounts[block] = _Account(_EXP + min(span, 746.0), loss, -1.5 * min(span, 710.0) - 1.0)
        for block in program.ones:
            store[block], accounts[block] = np.ones((*self._shape(block), 1)), _Account(0.0)
        for t, step in enumerate(self._steps):
            if t % _STEPS_PER_LOOK == 0:
                current_deadline().check("exact sums")
            store[step.made], accounts[step.made] = _multiply(step, store, accounts, is_valid)
            for block in step.finished:
                del store[block]
        tables, totals, units = [], [], 0.0
        for block in program.reads:
            weights = store[block]
            size = math.prod(weights.shape[:-1])
            total = weights.sum(axis=tuple(range(weights.ndim - 1)))
            tables.append(weights)
            totals.append(np.where(total > 0.0, total, 1.0))
            is_valid &= total > 0.0
            units = max(units, accounts[block].units + size + 4.0)
            is_valid &= 8.0 * (size + 1) * accounts[block].loss < NEGLIGIBLE
        for block in program.roots:
            log_partition += np.log(np.maximum(store[block], _LEAST)) + accounts[block].exponent * math.log(2.0)
            is_valid &= accounts[block].loss < NEGLIGIBLE
        share = units * UNIT
        relative = 2.02 * share / (1.0 - 2.0 * share) if share < 2.0**-20 else math.inf
        return BatchSums(tables, totals, relative, log_partition, is_valid)

    def _shape(self, block: int) -> tuple[int, ...]:
        return tuple(self.program.sizes[self.program.scope_of(block)].tolist())


def _multiply(
    step: _Step, store: dict[int, Floats], accounts: dict[int, _Account], is_valid: Bools
) -> tuple[Floats, _Account]:
    """Multiply the tables of a step, sum out variables, and scale the result by powers of 2."""
    parts: list[Floats] = []
    for block, axes, shape in step.operands:
        part = store[block]
        parts.append(part.transpose(*axes, part.ndim - 1).reshape(*shape, part.shape[-1]))
    last = parts.pop()
    product = math.prod(parts[1:], start=parts[0]) if parts else last
    kept, summed = last.shape[: last.ndim - 1 - len(step.summed)], last.shape[last.ndim - 1 - len(step.summed) : -1]
    table: Floats
    if parts and summed and last.shape[-1] == 1 and product.shape[:-1] == (1,) * len(kept) + summed:
        # A table that all models share, times each model's numbers for the states that are summed out.
        table = last.reshape(-1, step.terms) @ product.reshape(step.terms, -1)
        table = table.reshape(*kept, -1)
    else:
        product = product * last if parts else last
        table = product.sum(axis=step.summed) if summed else product
    used = [accounts[block] for block, *_ in step.operands]
    units = sum([part.units for part in used]) + len(used) + 2.0 * step.terms
    lowest = sum([part.least for part in used])
    losses = [part.absolute for part in used if part.absolute is not None]
    absolute: Floats | float | None = None
    if losses or lowest < -1000.0:
        with np.errstate(over="ignore"):
            absolute = np.expm1(sum([np.log1p(2.0 * loss) for loss in losses])) * 1.001
        absolute = absolute + len(used) * UNDERFLOW * (lowest < -1000.0)
    elif step.is_read:
        return table, _Account(units)
    power = sum([part.exponent for part in used])
    most = table.max(axis=tuple(range(table.ndim - 1)))
    if (smallest := most.min(initial=1.0)) < _SCALED_BELOW or most.max(initial=0.0) > 1.0:
        if smallest < _LEAST:
            is_valid &= most >= _LEAST
            most = np.maximum(most, _LEAST)
        shift = np.frexp(most)[1]
        scale = np.ldexp(1.0, -shift)
        table, power = table * scale, power + shift
        if absolute is not None:
            with np.errstate(over="ignore"):
                absolute = absolute * scale
    least = math.log2(float(table.min(where=table > 0.0, initial=1.0))) - 1.0
    if absolute is not None:
        absolute = step.terms * absolute * 1.001
    return table, _Account(units, absolute, least, power)
