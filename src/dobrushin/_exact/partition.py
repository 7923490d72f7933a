"""The partition function, with and without evidence: barren variables by themselves, the rest by a plan. [trusted]"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dobrushin._exact.arithmetic import UNIT, NoAllowedState, no_allowed_state
from dobrushin._exact.engine import SumPlan, plan_sums
from dobrushin._exact.working import Working
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import ImpossibleEvidence


class LogPartition(float):
    """A logarithm of a sum that works as a float, and says how far it may be off.

    Attributes
    ----------
    value : float
        The number itself.
    error : float
        The true number is within `value` - `error` and `value` + `error`.
    """

    error: float

    def __new__(cls, value: float, error: float) -> LogPartition:
        number = super().__new__(cls, value)
        number.error = error
        return number

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return float(self), self.error

    @property
    def value(self) -> float:
        """The number as a plain float."""
        return float(self)

    @classmethod
    def ratio(cls, above: LogPartition, below: LogPartition) -> LogPartition:
        """The logarithm of a quotient of two sums."""
        value = float(above) - float(below)
        return cls(value, above.error + below.error + 2.0 * UNIT * abs(value) if value > -math.inf else 0.0)


@dataclass(frozen=True)
class PartitionPlan:
    """How a partition function will be summed.

    Attributes
    ----------
    tables : FactorTables
        Tables still to sum; all tables if none are left.
    is_given : bool
        Whether there is evidence, so that a sum of 0 is an answer and not a fault of the model.
    constant, error : float
        Logarithm of what is summed already, and how far it may be off.
    plan : SumPlan or None
        How the rest is summed; None where there is none.
    """

    tables: FactorTables
    is_given: bool
    constant: float
    error: float = 0.0
    plan: SumPlan | None = None

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return 0.0 if self.plan is None else self.plan.seconds

    def run(self, working: Working, limit: float, backend: str = "cpu") -> LogPartition:
        """Make the sum; `function` is named in errors."""
        value, error = self.constant, self.error
        try:
            if value == -math.inf:
                raise no_allowed_state(self.tables)
            if self.plan is not None:
                sums = self.plan.run(self.tables, working=working, limit=limit, backend=backend)
                value += sums.log_partition
                error += sums.log_partition_error
        except NoAllowedState:
            if self.is_given:
                return LogPartition(-math.inf, 0.0)
            raise
        return LogPartition(value, error + 2.0 * UNIT * (abs(self.constant) + abs(value)))


def plan_partition(tables: FactorTables, given: Mapping[int, int], limit: float, working: Working) -> PartitionPlan:
    """Plan the sum over the joint states that have some digits, by position; `BudgetError` beyond `limit` bytes."""
    is_given = bool(given)
    try:
        rest, constant = condition(tables, given)
    except ImpossibleEvidence:
        rest, constant = None, -math.inf
    if rest is None or constant == -math.inf:
        return PartitionPlan(tables, is_given, constant, tables.error)
    left, log_sum, error = rest.sum_out_barren()
    constant += log_sum
    error += 2.0 * UNIT * (abs(log_sum) + abs(constant))
    if left is None:
        return PartitionPlan(tables, is_given, constant, error)
    return PartitionPlan(left, is_given, constant, error, plan_sums(left, [], limit, working))


def condition(tables: FactorTables, given: Mapping[int, int]) -> tuple[FactorTables | None, float]:
    """The tables of the other variables, None if there are none, and the constant that conditioning leaves out."""
    if not given:
        return tables, 0.0
    state = np.zeros(tables.n_variables, dtype=np.int64)
    fixed = np.zeros(tables.n_variables, dtype=bool)
    state[list(given)], fixed[list(given)] = list(given.values()), True
    constants = []
    for k in range(tables.n_factors):
        scope, table = tables.factor(k)
        if (scope and all(fixed[v] for v in scope)) or (not scope and fixed.all()):
            constants.append(float(table[tuple(state[v] for v in scope)]))
    constant = -math.inf if -math.inf in constants else math.fsum(constants)
    return (None if fixed.all() else tables.condition(fixed, state)), constant
