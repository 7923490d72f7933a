"""Sums over all states in less memory: for one joint state of a few variables (a cutset) after the other. [trusted]

With the cutset fixed, every table that holds one of its variables is smaller. The laws given its states are weighed by
the partition functions of these states.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dobrushin._exact.arithmetic import NoAllowedState, SumResult, Working, no_allowed_state
from dobrushin._exact.engine import SumPlan, plan_in_order, plan_sums
from dobrushin._exact.program import Scope
from dobrushin._models.factors import FactorTables
from dobrushin._models.memory import Memory
from dobrushin._shared.arrays import UNIT, Bools, Floats, frozen

# Joint states of a cutset, and entries that they may take together.
_MAX_STATES, _MAX_ENTRIES = 2**12, 2.0**38
# Largest logarithm of a weight.
_MOST_ABOVE = 500.0


@dataclass(frozen=True)
class CutPlan(SumPlan):
    """Sums for each joint state of a cutset.

    `order` is the elimination order of all variables without a cutset, which proofs use.

    Attributes
    ----------
    inner : SumPlan
        Of the other variables, with the cutset fixed.
    cut : tuple of positions
    states : int
        Number of joint states of the cutset.
    whole_bytes : int
        Memory that the sums would take without a cutset.
    """

    inner: SumPlan = field(repr=False)
    cut: Scope
    states: int
    whole_bytes: int

    @property
    def entries(self) -> int:
        return self.states * self.inner.entries

    @property
    def bytes(self) -> int:
        return self.inner.bytes

    @property
    def seconds(self) -> float:
        return self.states * self.inner.seconds

    def seconds_on(self, backend: str) -> float:
        return self.states * self.inner.seconds_on(backend)

    def on_device(self, backend: str) -> bool:
        return self.inner.on_device(backend)

    def asking(self, tables: FactorTables, groups: Sequence[Scope]) -> SumPlan:
        return _plan(self, tables, groups, self.cut)

    def run(
        self, tables: FactorTables, *, working: Working | None = None, limit: float = math.inf, backend: str = "cpu"
    ) -> SumResult:
        """Compute the sums for each joint state of the cutset, and add them up, weighted by the state's probability."""
        working = Working() if working is None else working
        free = _free(tables, self.cut)
        mixture = _Mixture(self, tables)
        for digits in itertools.product(*(range(int(tables.sizes[v])) for v in self.cut)):
            state = np.zeros(tables.n_variables, dtype=np.int64)
            state[list(self.cut)] = digits
            (rest,) = tables.cut(free, state[None])
            try:
                mixture.add(digits, self.inner.run(rest, working=working, limit=limit, backend=backend))
            except NoAllowedState:
                continue  # the state has probability 0
        if not mixture.laws:
            raise no_allowed_state(tables)
        return mixture.result()


class _Mixture:
    """Sum of the laws given states of a cutset, each times its partition function over that of a reference state."""

    def __init__(self, plan: CutPlan, tables: FactorTables) -> None:
        self.plan = plan
        self.marginals = [np.zeros([int(tables.sizes[v]) for v in group]) for group in plan.groups]
        self.total = 0.0
        self.reference = 0.0  # a logarithm
        self.laws = 0
        self.moves = 0  # number of times that the reference changed
        self.largest = 0.0  # absolute value of a logarithm
        self.relative, self.absolute, self.error = 0.0, 0.0, 0.0

    def add(self, digits: tuple[int, ...], sums: SumResult) -> None:
        """Add the law given a state of the cutset."""
        value = sums.log_partition
        if not self.laws:
            self.reference = value
        elif value > self.reference + _MOST_ABOVE:
            scale = math.exp(self.reference - value)
            self.total *= scale
            for out in self.marginals:
                out *= scale
            self.reference = value
            self.moves += 1
        weight = math.exp(value - self.reference)
        self.total += weight
        fixed, laws = dict(zip(self.plan.cut, digits, strict=True)), iter(sums.marginals)
        for group, out in zip(self.plan.groups, self.marginals, strict=True):
            law: Floats | float = 1.0 if all(v in fixed for v in group) else next(laws)
            out[tuple(fixed.get(v, slice(None)) for v in group)] += weight * law
        self.laws += 1
        self.largest = max(self.largest, abs(value))
        self.relative = max(self.relative, sums.relative)
        self.absolute = max(self.absolute, sums.absolute)
        self.error = max(self.error, sums.log_partition_error)

    def result(self) -> SumResult:
        """Return the mixture, whose total weight is at least 1."""
        # A weight is off by the error of its logarithm, of differences to references and of exponentials.
        error = self.error + 8.0 * UNIT * (1.0 + self.moves) * (self.largest + 1.0)
        value = self.reference + math.log(self.total)
        share = math.expm1(min(2.0 * error + 2.0 * (self.laws + 8.0) * UNIT, 700.0))
        return SumResult(
            [out / self.total for out in self.marginals], self.relative + share * (1.0 + self.relative),
            self.absolute * (1.0 + share) + self.laws * 2.0**-1000, value,
            error + (self.laws + 8.0) * UNIT + 4.0 * UNIT * (abs(value) + self.largest),
        )  # fmt: skip


def plan_within(tables: FactorTables, groups: Sequence[Scope], limit: float, working: Working | None = None) -> SumPlan:
    """Plan as `plan_sums` does, with a cutset where the sums would take more than `limit` bytes."""
    plan = plan_sums(tables, groups, math.inf, working, limit)
    if plan.bytes <= limit:
        return plan
    return _find_cut(plan, tables, limit) or plan.require(limit)


def _find_cut(plan: SumPlan, tables: FactorTables, limit: float) -> CutPlan | None:
    """Fix variables, always the one that saves most memory for its number of states; None where that takes too long."""
    program, sizes = plan.program, plan.program.sizes
    owner = np.repeat(np.arange(len(program.offset)), np.diff(program.scope_start))
    lengths = np.exp(np.bincount(owner, np.log(sizes[program.scope]), len(program.offset)))
    shared = program.length / lengths.sum()  # tables share memory
    cut: list[int] = []
    states = 1
    can_cut = sizes > 1
    while can_cut.any() and len(cut) < len(sizes) - 1:
        saved = np.bincount(program.scope, lengths[owner], len(sizes)) * (1.0 - 1.0 / sizes)
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(can_cut, -np.log1p(-saved / lengths.sum()) / np.log(sizes), -1.0)
        v = int(np.argmax(gain))
        cut.append(v)
        states *= int(sizes[v])
        can_cut[v] = False
        lengths[owner[program.scope == v]] /= sizes[v]
        if states > _MAX_STATES:
            return None
        if 8.0 * shared * lengths.sum() <= limit:
            found = _plan(plan, tables, plan.groups, tuple(cut))
            if found.entries > _MAX_ENTRIES:
                return None
            if found.bytes <= limit:
                return found
    return None


def _plan(plan: SumPlan, tables: FactorTables, groups: Sequence[Scope], cut: Scope) -> CutPlan:
    """Return the plan with this cutset; its elimination order is that of another plan."""
    free = _free(tables, cut)
    number = np.cumsum(free) - 1
    (rest,) = tables.cut(free, np.zeros((1, tables.n_variables), dtype=np.int64))
    inner_groups = [tuple(int(number[v]) for v in group if free[v]) for group in groups]
    order = [v for v in plan.order if free[v]]
    inner = plan_in_order(rest, [group for group in inner_groups if group], number[order].tolist(), Memory())
    states = math.prod(int(tables.sizes[v]) for v in cut)
    whole = plan.whole_bytes if isinstance(plan, CutPlan) else plan.bytes
    return CutPlan(list(groups), inner.program, plan.order, inner, cut, states, whole)


def _free(tables: FactorTables, cut: Scope) -> Bools:
    free = np.ones(tables.n_variables, dtype=bool)
    free[list(cut)] = False
    return frozen(free)
