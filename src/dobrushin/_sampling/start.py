"""Initial states of chains: uniform, given by the caller, or a state that no factor forbids."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._kernels.conditional import first_forbidden
from dobrushin._models import Model
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form
from dobrushin._models.near import ScanRegion
from dobrushin._sampling.labels import LocalFactors, local_factors, pack_region
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import LateError, current_deadline, stage
from dobrushin._shared.environment import log
from dobrushin.errors import ArgumentError, BudgetError

# The search for an allowed state gives up after this number of tables in the depth-first search (2 s on random 3-SAT),
# followed by this number of repairs of violated tables (3 s).
_MAX_LOOKS, _MAX_REPAIRS = 200_000, 500_000
_SEARCH = "searching for an allowed state"
_REMEDY = "Pass an allowed state as 'initial' where there is one, or fix some variables with 'condition'."
# Tables or repairs between two checks of the time limit: some milliseconds.
_CHECK_EVERY = 256

Start = Callable[[range], NDArray[np.int64]]
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Given:
    """Initial states that the user gave: one state for all chains, or one for each chain."""

    states: NDArray[np.int64]  # (variables, 1) or (variables, chains)

    def __call__(self, chains: range) -> NDArray[np.int64]:
        if self.states.shape[1] == 1:
            return np.repeat(self.states, len(chains), axis=1)
        return self.states[:, chains.start : chains.stop]


@dataclass(frozen=True)
class Computed:
    """Initial states from a function of the user."""

    model: Model
    region: ScanRegion
    function: Any

    def __call__(self, chains: range) -> NDArray[np.int64]:
        return _digits(self.model, self.region, self.function(np.arange(chains.start, chains.stop)), len(chains))


def read_start(model: Model, form: Form, region: ScanRegion, initial: Any, chains: int) -> Start:
    """Return a function from a range of chains to their initial states, made from the user's argument `initial`.

    It returns state numbers of shape (variables, chains).
    """
    if check.is_text(initial, "mode"):
        return Given(form.favourites(region.place)[:, None])
    if callable(initial):
        return Computed(model, region, initial)
    array = _rows_of_states(initial)
    return Given(_digits(model, region, array[None], 1) if array.ndim == 1 else _digits(model, region, array, chains))


@dataclass(frozen=True)
class Guard:
    """Check of initial states: it finds those that some factor of an updated variable forbids.

    A forbidden state given by the user raises an error; a uniform one is replaced by an allowed state (the refuge).
    """

    factors: LocalFactors
    positions: NDArray[np.int64]
    labels: Sequence[Hashable]
    refuge: NDArray[np.int64] | None = None  # allowed state that replaces forbidden starts; None: they are refused
    has_given_up: bool = False  # whether the search for a refuge gave up

    def admit(self, states: NDArray[Any], first: int) -> NDArray[np.int64] | None:
        """Return the initial states with forbidden ones replaced; None if all of `states` are allowed.

        `first` is the number of the first chain, for error messages.
        """
        states = np.ascontiguousarray(states, dtype=np.int64)
        if first_forbidden(*self.factors, states)[0] < 0:
            return None
        better = states.copy()
        for chain in range(states.shape[1]):
            own = np.ascontiguousarray(states[:, chain : chain + 1])
            variable, factor, _ = first_forbidden(*self.factors, own)
            if variable >= 0:
                if self.refuge is None:
                    raise self._refusal(own[:, 0], variable, factor, first + chain)
                better[:, chain] = self.refuge
        return better

    def _refusal(self, states: NDArray[np.int64], variable: int, factor: int, chain: int) -> ArgumentError:
        first_member, last = self.factors.m_start[factor : factor + 2]
        names = [variable, *self.factors.member[first_member:last].tolist()]
        values = [f"{self.labels[int(self.positions[v])]!r} = {states[v]}" for v in names]
        requirement = "an allowed state (pass one as initial=, or a function that makes them)"
        if self.has_given_up:
            requirement = "an allowed state: the search for one gave up, so pass one as initial="
        return ArgumentError("initial", requirement, got=f"forbidden: {', '.join(values)}", where=f"chain {chain}")


def make_guard(model: Model, form: Form, region: ScanRegion, is_uniform: bool) -> Guard | None:
    """Return the guard of a region; None if no factor can forbid an initial state.

    If initial states are uniform, the guard has an allowed state to replace forbidden ones.
    """
    tables = form.tables()
    factors = local_factors(pack_region(tables, region), region)
    entries = np.flatnonzero(np.isneginf(tables.table))
    hard, used = (np.searchsorted(tables.table_start, k, side="right") for k in (entries, factors.base))
    if not np.isin(used, hard).any():
        return None
    state = check_feasible(model, form) if is_uniform else None
    refuge = None if state is None else frozen(state[region.place])
    return Guard(factors, region.positions, model.labels, refuge, is_uniform and refuge is None)


def _rows_of_states(states: Any) -> NDArray[Any]:
    try:
        array = np.asarray(states)
    except (TypeError, ValueError):  # rows of different lengths
        array = np.empty(())
    if array.ndim == 0:
        raise ArgumentError("initial", "'uniform', 'mode', states or a function that returns them", states)
    return array


def _digits(model: Model, region: ScanRegion, states: Any, chains: int) -> NDArray[np.int64]:
    array = _rows_of_states(states)
    if array.shape != (chains, model.n_variables):
        requirement = f"states of shape ({model.n_variables},) or ({chains}, {model.n_variables})"
        got = array.shape[1:] if len(array) == 1 == chains else array.shape
        raise ArgumentError("initial", requirement, got=f"shape {got}")
    # Only variables of the region are simulated, and checked.
    seen = check.real_array(array[:, region.positions], "initial").T
    if model._spins:
        check.all_entries((seen == 1) | (seen == -1), seen, "initial", "-1 or +1")
        return (seen.astype(np.int64) + 1) // 2
    sizes = model.cardinalities[region.positions][:, None]
    fine = (seen >= 0) & (seen < sizes) & (seen == np.floor(seen))
    check.all_entries(fine, seen, "initial", "from 0 to the variable's cardinality less one")
    return seen.astype(np.int64)


def allowed_state(form: Form) -> NDArray[np.int64] | None:
    """Return a joint state (as state numbers) that no factor forbids; None if there is none.

    Raises `BudgetError` if the search gives up, `LateError` if the time limit of the call ends the search.
    """
    zeros = np.zeros(form.n_variables, dtype=np.int64)
    if not form.has_zeros:
        return zeros
    tables = form.tables()
    if tables.log_density(zeros[None])[0] > -np.inf:
        return zeros
    log.info("searching for an allowed state of a model with %d variables", form.n_variables)
    with stage(_SEARCH):
        return _AllowedState(tables).run()


def check_feasible(model: Model, form: Form) -> NDArray[np.int64] | None:
    """Return an allowed state of a model with forbidden states, or None if the search gives up.

    Raises ArgumentError if there is no allowed state, and `LateError` if the time limit of the call ends the search.
    """
    if not form.has_zeros:
        return None
    try:
        state = allowed_state(form)
    except LateError:
        raise
    except BudgetError:
        return None
    if state is None:
        raise ArgumentError("model", "one that allows some joint state", model)
    return state


def _check_limit() -> None:
    limit = current_deadline()
    if limit.is_over:
        remedy = f"A longer 'time_limit' leaves more time for the search. {_REMEDY}"
        raise LateError("The search for an allowed state", limit.spent, limit.limit, "seconds or more", remedy)


def _within_limit(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the items, and check the time limit of the call from time to time."""
    for k, item in enumerate(items):
        if k % _CHECK_EVERY == 0:
            _check_limit()
        yield item


class _AllowedState:
    """Search for an allowed joint state: depth first, and if that takes long by repairing violated factors.

    `trail` records changes of domains, so that the depth-first search can undo them.
    """

    def __init__(self, form: FactorTables) -> None:
        self.domains = [np.ones(k, dtype=np.bool_) for k in form.cardinalities.tolist()]
        self.left = form.cardinalities.tolist()  # how many states are left to each variable
        self.scopes: list[tuple[int, ...]] = []
        self.tables: list[NDArray[np.bool_]] = []
        self.around: list[list[int]] = [[] for _ in range(form.n_variables)]
        self.liking = [np.zeros(k) for k in form.cardinalities.tolist()]
        entries = np.flatnonzero(np.isneginf(form.table))
        hard = np.unique(np.searchsorted(form.table_start, entries, side="right") - 1).tolist()
        for k in _within_limit(hard):
            scope, table = form.factor(k)
            for axis, variable in enumerate(scope):
                others = tuple(a for a in range(len(scope)) if a != axis)
                self.around[variable].append(len(self.tables))
                self.liking[variable] += np.exp(np.minimum(table, 0.0)).sum(axis=others)
            self.scopes.append(tuple(int(v) for v in scope))
            self.tables.append(np.ascontiguousarray(table > -np.inf))
        self.trail: list[tuple[int, NDArray[np.bool_]]] = []
        self._looked = 0
        # Variables by their number of remaining states; outdated entries are skipped.
        self.heap = [(self.left[v], v) for v in range(form.n_variables) if self.around[v]]
        heapq.heapify(self.heap)

    def run(self) -> NDArray[np.int64] | None:
        """Return an allowed state, or None if there is none; raise `BudgetError` if neither search ends."""
        if not self._propagate(set(range(len(self.tables)))):
            return None
        stack: list[tuple[int, list[int], int]] = []  # variable, states to try, length of the trail before
        descend = True
        while self._looked < _MAX_LOOKS:
            if descend:
                variable = self._next()
                if variable < 0:
                    return np.array([int(np.argmax(domain)) for domain in self.domains], dtype=np.int64)
                states = np.flatnonzero(self.domains[variable])
                order = states[np.argsort(self.liking[variable][states], kind="stable")]
                stack.append((variable, order.tolist(), len(self.trail)))
            while stack and not stack[-1][1]:
                self._undo(stack.pop()[2])
            if not stack:
                return None
            variable, untried, mark = stack[-1]
            self._undo(mark)
            self._set(variable, np.arange(len(self.domains[variable])) == untried.pop())
            descend = self._propagate(set(self.around[variable]))
        self._undo(stack[0][2] if stack else len(self.trail))
        state = _repaired(self.scopes, self.tables, [np.flatnonzero(domain).tolist() for domain in self.domains])
        if state is None:
            raise BudgetError("The search for an allowed state", _MAX_REPAIRS + 1, _MAX_REPAIRS, "repairs", _REMEDY)
        return state

    def _next(self) -> int:
        """Return the undecided variable with the fewest possible states; -1 if all variables are decided."""
        while self.heap:
            left, variable = self.heap[0]
            if left == self.left[variable] and left > 1:
                return variable
            heapq.heappop(self.heap)
        return -1

    def _set(self, variable: int, domain: NDArray[np.bool_]) -> None:
        self.trail.append((variable, self.domains[variable]))
        self._put(variable, domain)

    def _put(self, variable: int, domain: NDArray[np.bool_]) -> None:
        self.domains[variable] = domain
        self.left[variable] = int(domain.sum())
        heapq.heappush(self.heap, (self.left[variable], variable))

    def _undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            self._put(*self.trail.pop())

    def _propagate(self, waiting: set[int]) -> bool:
        """Remove states that the tables in `waiting` forbid, then check the tables of the changed variables.

        Returns False if a variable has no possible state left.
        """
        while waiting:
            self._looked += 1
            if self._looked % _CHECK_EVERY == 0:
                _check_limit()
            k = waiting.pop()
            scope, table = self.scopes[k], self.tables[k]
            if not scope:
                return False
            possible = table
            for axis, variable in enumerate(scope):
                shape = [1] * len(scope)
                shape[axis] = -1
                possible = possible & self.domains[variable].reshape(shape)
            for axis, variable in enumerate(scope):
                left: Any = possible.any(axis=tuple(a for a in range(len(scope)) if a != axis))
                count = int(left.sum())
                if not count:
                    return False
                if count < self.left[variable]:
                    self._set(variable, left)
                    waiting.update(other for other in self.around[variable] if other != k)
        return True


def _repaired(
    scopes: list[tuple[int, ...]], tables: list[NDArray[np.bool_]], domains: list[list[int]]
) -> NDArray[np.int64] | None:
    """Repair violated tables one by one, as WalkSAT does (Selman, Kautz and Cohen 1994).

    A repair changes a variable of a violated table to the state that violates the fewest other tables, or at random.
    Return None if tables stay violated after _MAX_REPAIRS repairs.
    """
    random = Random(0)
    state = [random.choice(states) for states in domains]
    entries = [table.ravel().tolist() for table in tables]
    near: list[list[tuple[int, int]]] = [[] for _ in domains]  # tables of a variable, with its stride in them
    place = [0] * len(tables)  # of the entry of each table that the state picks
    for k, (scope, table) in enumerate(_within_limit(zip(scopes, tables, strict=True))):
        for variable, stride in zip(scope, table.strides, strict=True):
            near[variable].append((k, stride))
            place[k] += stride * state[variable]
    violated = [k for k, (own, at) in enumerate(zip(entries, place, strict=True)) if not own[at]]
    rank = {k: r for r, k in enumerate(violated)}
    for repairs in range(_MAX_REPAIRS):
        if not violated:
            return np.array(state, dtype=np.int64)
        if repairs % _CHECK_EVERY == 0:
            _check_limit()
        moves = [(v, s - state[v]) for v in scopes[random.choice(violated)] for s in domains[v] if s != state[v]]
        broken = [
            sum(not entries[k][place[k] + stride * by] for k, stride in near[v] if k not in rank) for v, by in moves
        ]
        least = min(broken)
        is_any = least > 0 and random.random() < 0.5
        variable, by = random.choice([move for move, n in zip(moves, broken, strict=True) if is_any or n == least])
        state[variable] += by
        for k, stride in near[variable]:
            place[k] += stride * by
            if not entries[k][place[k]] and k not in rank:
                rank[k] = len(violated)
                violated.append(k)
            elif entries[k][place[k]] and k in rank:
                violated[rank[k]] = violated[-1]
                rank[violated.pop()] = rank[k]
                del rank[k]
    return None
