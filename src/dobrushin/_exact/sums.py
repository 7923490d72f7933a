"""Exact marginals, partition functions and most likely states, by variable elimination."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from dobrushin._exact.arithmetic import UNIT, NoAllowedState, Working, no_allowed_state, shifted_tables
from dobrushin._exact.cutset import plan_within
from dobrushin._exact.engine import SumPlan, maximise, plan_sums, sum_memory
from dobrushin._models import Model
from dobrushin._models.derived import split_evidence
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import ImpossibleEvidence
from dobrushin._models.sources import as_model
from dobrushin._models.state_names import read_evidence
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array
from dobrushin._shared.call import public
from dobrushin._shared.running import BACKENDS
from dobrushin._shared.text import card, printable, rounded_up
from dobrushin.errors import ArgumentError
from dobrushin.typing import Backend

# Most variables that a notebook lists.
_SHOWN = 20
# States of the variables, by label.
Evidence = Mapping[Any, Any]


class LogPartition(float):
    """The logarithm of a partition function or of a probability: a float with a bound on its error.

    Attributes
    ----------
    value : float
        The value as a plain float.
    error : float
        Bound on the error: the true value is between `value` - `error` and `value` + `error`.
    lower, upper : float
        These two ends, rounded outwards.
    method : str
        How the value was computed, such as "exact".
    confidence : float
        Probability with which the bound is valid; 1 if no random draws are involved.
    """

    error: float
    method: str
    confidence: float

    def __new__(cls, value: float, error: float, method: str = "exact", confidence: float = 1.0) -> LogPartition:
        number = super().__new__(cls, value)
        number.error, number.method, number.confidence = error, method, confidence
        return number

    def __getnewargs__(self) -> tuple[float, float, str, float]:  # type: ignore[override]
        return float(self), self.error, self.method, self.confidence

    def __repr__(self) -> str:
        return f"LogPartition({float(self)!r}, error={rounded_up(self.error)}, method={self.method!r})"

    @property
    def lower(self) -> float:
        """Return the lower end of the interval, rounded down."""
        return math.nextafter(self.value - self.error, -math.inf)

    @property
    def upper(self) -> float:
        """Return the upper end of the interval, rounded up."""
        return math.nextafter(self.value + self.error, math.inf)

    @property
    def value(self) -> float:
        """Return the value as a plain float."""
        return float(self)

    @property
    def _is_vacuous(self) -> bool:
        return self.error == math.inf

    @classmethod
    def ratio(cls, above: LogPartition, below: LogPartition) -> LogPartition:
        """Return the logarithm of the ratio of two partition functions, given by their logarithms."""
        value = float(above) - float(below)
        error = above.error + below.error + 2.0 * UNIT * abs(value) if value > -math.inf else 0.0
        method = above.method if below.method == "exact" else below.method
        return cls(value, error, method, min(above.confidence, below.confidence))


class Marginals(list[Array]):
    """List of the marginal probabilities of all variables, by position, with a bound on their errors.

    Attributes
    ----------
    error : float
        Bound on the error of each probability.
    """

    def __init__(self, arrays: Iterable[Array], error: float) -> None:
        super().__init__(arrays)
        self.error = error


@dataclass(frozen=True)
class PartitionPlan:
    """Plan for computing the logarithm of a partition function.

    Attributes
    ----------
    tables : FactorTables
        The tables that elimination has to sum; all tables of the model if nothing is left to sum.
    is_given : bool
        Whether there is evidence. With evidence a sum of 0 is an answer (the evidence is impossible), without evidence
        it is an error of the model.
    constant, error : float
        Logarithm of the factors that were evaluated while planning, and a bound on its error.
    plan : SumPlan or None
        Plan for the remaining tables; None if there are none.
    """

    tables: FactorTables
    is_given: bool
    constant: float
    error: float = 0.0
    plan: SumPlan | None = None

    @property
    def seconds(self) -> float:
        """Return the estimated time of the elimination in seconds."""
        return 0.0 if self.plan is None else self.plan.seconds

    def run(self, working: Working, limit: float, backend: str = "cpu") -> LogPartition:
        """Run the elimination and return the logarithm of the partition function."""
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
    """Plan the sum over the joint states that agree with evidence (state numbers by position).

    Raises BudgetError if the tables need more than `limit` bytes.
    """
    is_given = bool(given)
    rest, constant = condition(tables, given)
    if rest is None or constant == -math.inf:
        return PartitionPlan(tables, is_given, constant, tables.error)
    left, log_sum, error = rest.sum_out_barren()
    constant += log_sum
    error += 2.0 * UNIT * (abs(log_sum) + abs(constant))
    if left is None:
        return PartitionPlan(tables, is_given, constant, error)
    return PartitionPlan(left, is_given, constant, error, plan_within(left, [], limit, working))


def condition(tables: FactorTables, given: Mapping[int, int]) -> tuple[FactorTables | None, float]:
    """Fix the given variables; return the tables of the others, and the logarithm of the factors that became constant.

    The tables are None if all variables are given; the logarithm is -inf if the evidence is impossible.
    """
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
    try:
        return (None if fixed.all() else tables.condition(fixed, state)), constant
    except ImpossibleEvidence:
        return None, -math.inf


# -- public functions --------------------------------------------------------------------------


@dataclass(frozen=True)
class MostLikely:
    """A joint state of largest probability.

    Attributes
    ----------
    states : dict
        The state of every variable by label, including the evidence; states that have names are given by name.
    log_density : float
        Logarithm of the unnormalised probability of this joint state.
    error : float
        Bound on the effect of rounding: no joint state has a log-density above `log_density` + `error`.
    """

    states: dict[Hashable, Any]
    log_density: float
    error: float

    def _repr_html_(self) -> str:
        rows = [(printable(label), printable(state)) for label, state in islice(self.states.items(), _SHOWN)]
        more = len(self.states) - len(rows)
        note = f"{more:,} more variables." if more else ""
        facts = [("log-density", f"{self.log_density:.6g}, and none is larger by more than {rounded_up(self.error)}")]
        return card("Most likely state", facts, ("variable", "state"), rows, note)


@public("planning", name="exact.marginals")
def marginals(
    model: Model, *, memory_limit: float | str | None = None, backend: Backend = "auto", progress: bool | None = None
) -> Marginals:
    """Compute exact marginals of all variables, by variable elimination.

    Parameters
    ----------
    model : Model
        Any number of variables, if the treewidth is small: chains, trees, strips, binary grids up to about 25 x 25.
    memory_limit : float or str, optional
        Bytes that the messages may take, as a number or as in "2GiB". If they would need more, some variables are fixed
        in each of their states in turn, which takes longer; if these would be too many, BudgetError is raised before
        any message is computed. Default: most of the free memory.
    backend : {"auto", "cpu", "cuda"}
        Where to compute. "auto" uses a GPU, if there is one, for long computations.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    Marginals
        A list with one array for each variable, by position: the probabilities of its states in increasing order. The
        attribute `error` bounds the rounding error of each probability.

    Notes
    -----
    p_i(a) = sum over x with x_i = a of pi(x), from messages in both directions of a tree: with
    m_cp(x_s) = sum over x_{c minus s} of psi_c(x_c) prod over the other neighbours c' of c of m_c'c, every clique has
    pi(x_c) ∝ psi_c(x_c) prod over neighbours c' of m_c'c. Tables of cliques are never stored.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(16, 16, couplings=0.3, fields=0.1)
    >>> p = db.exact.marginals(model)
    >>> len(p), p[0].round(4)
    (256, array([0.3736, 0.6264]))
    >>> p.error < 1e-10
    True
    """
    model = as_model(model)
    tables, limit = _read(model, memory_limit, backend)
    working = Working()
    groups = [(v,) for v in range(model.n_variables)]
    plan = plan_within(tables, groups, limit, working)
    sums = plan.run(tables, working=working, limit=limit, backend=backend)
    return Marginals(sums.marginals, min(1.0, sums.relative_error(tables.error) + sums.absolute))


@public("planning", name="exact.log_partition")
def log_partition(
    model: Model,
    *,
    evidence: Evidence | None = None,
    memory_limit: float | str | None = None,
    backend: Backend = "auto",
    progress: bool | None = None,
) -> LogPartition:
    """Compute the logarithm of the partition function (the sum of all unnormalised probabilities) exactly.

    Parameters
    ----------
    model : Model
    evidence : dict from label to state, optional
        Sum only over the joint states with this evidence. So log P(evidence) is the difference between a call with the
        evidence and one without; for a Bayesian network the second is 0. Soft evidence (likelihoods in place of a
        state) weights each joint state by its likelihoods, scaled so that the largest of each variable is 1.
    memory_limit, backend, progress
        As for `marginals`.

    Returns
    -------
    LogPartition
        A float with the attributes `value` and `error`; minus infinity where the evidence is impossible.

    Notes
    -----
    log Z = log( sum over x of exp(log_density(x)) ).

    Examples
    --------
    The chain of n spins has Z = 2 (2 cosh theta)^(n - 1).

    >>> import dobrushin as db, numpy as np
    >>> chain = db.Ising.grid(1, 100, couplings=0.5)
    >>> z = db.exact.log_partition(chain)
    >>> bool(abs(z - np.log(2) - 99 * np.log(2 * np.cosh(0.5))) <= z.error + 1e-13)
    True

    The first two spins agree with probability e^0.5 / (2 cosh 0.5).

    >>> both = db.exact.log_partition(chain, evidence={0: 1, 1: 1})
    >>> round(2 * float(np.exp(both - z)), 4)
    0.7311
    """
    model, evidence, _ = split_evidence(as_model(model), evidence)
    tables, limit = _read(model, memory_limit, backend)
    given = _read_digits(model, evidence)
    working = Working()
    return plan_partition(tables, given, limit, working).run(working, limit, backend)


@public("planning", name="exact.most_likely")
def most_likely(
    model: Model,
    *,
    evidence: Evidence | None = None,
    memory_limit: float | str | None = None,
    progress: bool | None = None,
) -> MostLikely:
    """Find the joint state of largest probability (MPE), by variable elimination with maxima in place of sums.

    Parameters
    ----------
    model : Model
    evidence : dict from label to state, optional
        Consider only joint states with this evidence. Soft evidence (likelihoods in place of a state) weights them.
    memory_limit, progress
        As for `marginals`.

    Returns
    -------
    MostLikely
        One of the most likely joint states, if there are several.

    Notes
    -----
    argmax over x of log_density(x): messages are m(x_s) = max over x_{c minus s} of the sum of the logarithms.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising({(0, 1): 1.0, (1, 2): -1.0}, fields=[0.1, 0, 0])
    >>> best = db.exact.most_likely(model)
    >>> best.states, round(best.log_density, 6)
    ({0: 1, 1: 1, 2: -1}, 2.1)
    >>> db.exact.most_likely(model, evidence={2: 1}).states
    {0: -1, 1: -1, 2: 1}
    """
    model, evidence, _ = split_evidence(as_model(model), evidence)
    tables, limit = _read(model, memory_limit)
    given = _read_digits(model, evidence)
    digits = np.full(model.n_variables, -1, dtype=np.int64)
    digits[list(given)] = list(given.values())
    impossible = ArgumentError("evidence", "possible under the model", evidence)
    rest, constant = condition(tables, given)
    if constant == -math.inf:
        raise impossible
    gap = 0.0
    if rest is not None:
        working = Working()
        try:
            digits[digits < 0], gap = maximise(plan_sums(rest, [], limit, working), rest, working)
        except NoAllowedState:
            if given:
                raise impossible from None
            raise
    names = [model._called(i)[digit] for i, digit in enumerate(digits.tolist())]
    states = dict(zip(model.labels, names, strict=True))
    density = float(model.log_density(2 * digits - 1 if model._spins else digits))
    # The density itself is a sum of one entry of each table, off by a rounding for each.
    shifts = shifted_tables(tables)
    entries = len(shifts.tops) + model.n_variables
    rounding = 4.0 * UNIT * entries * float((np.abs(shifts.tops) + shifts.spans).sum())
    return MostLikely(states, density, gap + rounding + tables.error)


def _read(model: Model, limit: Any, backend: str = "cpu") -> tuple[FactorTables, float]:
    check.choice(backend, BACKENDS, "backend")
    return model._form.tables(), sum_memory(limit, backend)


def _read_digits(model: Model, evidence: Any) -> dict[int, int]:
    """Return the evidence as a dict from positions to state numbers."""
    given = read_evidence(model, evidence) if evidence else {}
    return {i: model._states_at(i).index(state) for i, state in given.items()}
