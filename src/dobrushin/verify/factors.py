"""The part of a model that a proof is about: log-tables of factors over numbered variables.

Everything that a proof says of a family, a grid or a network is gone: there are tables, and what they add up to.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import Document, require

UNIT = 2.0**-53
# Log-potentials, but for those that forbid, are at most this large: their sums still have digits after the point.
LARGEST = 1e30
# Neighbourhoods of so many joint states have their laws written down.
MOST_CONFIGURATIONS = 2**14


class Factors:
    """Variables 0..m-1 with numbers of states, and log-tables over some of them (-inf forbids)."""

    def __init__(self, states: list[int], scopes: list[tuple[int, ...]], tables: list[NDArray[np.float64]]) -> None:
        self.states, self.scopes, self.tables = states, scopes, tables
        self.touching: dict[int, list[int]] = defaultdict(list)
        for number, scope in enumerate(scopes):
            for variable in scope:
                self.touching[variable].append(number)
        self._around: dict[int, Neighbourhood] = {}

    def around(self, variable: int) -> Neighbourhood:
        """What a variable sees."""
        if variable not in self._around:
            self._around[variable] = Neighbourhood(self, variable)
        return self._around[variable]

    def fix(self, values: dict[int, int]) -> Factors:
        """The same factors with some variables in given states."""
        scopes, tables = [], []
        for scope, table in zip(self.scopes, self.tables, strict=True):
            rest = tuple(v for v in scope if v not in values)
            part = table[tuple(values.get(v, slice(None)) for v in scope)]
            require(np.max(part, initial=-math.inf) > -math.inf, "A factor forbids the evidence, or everything.")
            if rest:
                scopes.append(rest)
                tables.append(np.ascontiguousarray(part))
        return Factors(self.states, scopes, tables)

    def drop(self, variables: list[int]) -> tuple[Factors, float]:
        """Leave out variables, in this order, that sum to a constant; and how far the log-density may then be off."""
        gone: set[int] = set()
        error = 0.0
        for variable in variables:
            own = [k for k in self.touching[variable] if k not in gone]
            require(len(own) <= 1, f"Variable {variable} is left out, but several factors hold it.")
            if own:
                scope, table = self.scopes[own[0]], self.tables[own[0]]
                sums = np.exp(table - table.max()).sum(axis=scope.index(variable))
                spread = float(sums.max() - sums.min()) / float(sums.min()) if sums.min() > 0 else math.inf
                require(spread <= 1e-11, f"Variable {variable} is left out, but what it sums to is not constant.")
                error += spread + (self.states[variable] + 16) * 2.0**-51
                gone.add(own[0])
        kept = [k for k in range(len(self.scopes)) if k not in gone]
        return Factors(self.states, [self.scopes[k] for k in kept], [self.tables[k] for k in kept]), error

    def forbids(self, variables: Iterable[int], digits: dict[int, int]) -> bool:
        """Whether a factor of one of these variables forbids a state of all that it holds."""
        near = {k for variable in variables for k in self.touching[variable]}
        return any(self.tables[k][tuple(digits[v] for v in self.scopes[k])] == -math.inf for k in near)


class Neighbourhood:
    """One variable, its neighbours, and its law given their states."""

    def __init__(self, factors: Factors, variable: int) -> None:
        self.own = factors.states[variable]
        touching = factors.touching[variable]
        self.others = sorted({v for k in touching for v in factors.scopes[k]} - {variable})
        self.sizes = [factors.states[v] for v in self.others]
        place = {v: k for k, v in enumerate(self.others)}
        self.parts: list[tuple[list[int], NDArray[np.float64]]] = []
        largest = 0.0
        for k in touching:
            scope, table = factors.scopes[k], factors.tables[k]
            rest = [v for v in scope if v != variable]
            moved = np.transpose(table, [scope.index(v) for v in (*rest, variable)])
            self.parts.append(([place[v] for v in rest], moved))
            largest += float(np.max(np.abs(table), where=np.isfinite(table), initial=0.0))
        # Bounds the error of a probability: of the sums of logs, of exponentials, and of the partial sums.
        self.margin = UNIT * (16.0 * (len(touching) + 2) * largest + 64.0 * (self.own + 8))
        self.magnitude = largest
        self.cells = min(math.prod(self.sizes), 2**62)
        self.is_small = self.cells <= MOST_CONFIGURATIONS  # the laws of all configurations are worth writing down
        self._laws: NDArray[np.float64] | None = None

    def weights(self, digits: NDArray[Any]) -> NDArray[np.float64]:
        """Log-weights (n, own) given the neighbours' states (neighbours, n)."""
        total = np.zeros((digits.shape[1], self.own))
        for places, table in self.parts:
            total += table[tuple(digits[p] for p in places)] if places else table
        return total

    def all_digits(self) -> NDArray[np.int64]:
        """All configurations of the neighbours, the last one changing fastest: (neighbours, cells)."""
        if not self.sizes:
            return np.zeros((0, 1), dtype=np.int64)
        return np.indices(self.sizes).reshape(len(self.sizes), -1)

    def laws(self, digits: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """The chance of state a or a lower one, for all a but the last: (n, own - 1).

        For all configurations of the neighbours, or some; NaN where every state is forbidden.
        """
        if digits is None and self._laws is not None:
            return self._laws
        logs = self.weights(self.all_digits() if digits is None else digits)
        with np.errstate(invalid="ignore"):
            sums = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
            laws = sums[:, :-1] / sums[:, -1:]
        if digits is None:
            self._laws = laws
        return laws

    def _exact_sum(self, digits: list[int], state: int) -> Decimal | None:
        """A log-weight without rounding (None: forbidden), for the rare draw that floats cannot decide."""
        entries = [float(table[(*(digits[p] for p in places), state)]) for places, table in self.parts]
        if -math.inf in entries:
            return None
        return to_decimal(sum(map(Fraction, entries), Fraction(0)))

    def decide(self, digits: list[int], u: Fraction, rises: bool) -> int:
        """The state that a uniform number draws, in 60 digits; see `draws`."""
        with localcontext() as context:
            context.prec = 60
            logs = [self._exact_sum(digits, a) for a in range(self.own)]
            top = max(log for log in logs if log is not None)
            sizes = [Decimal(0) if log is None else (log - top).exp() for log in logs]
            point = to_decimal(u) * sum(sizes)
            if not rises:
                return int(point < sizes[1])
            label, total = 0, Decimal(0)
            for size in sizes[:-1]:
                total += size
                label += total <= point
        return label


def to_decimal(value: Fraction) -> Decimal:
    """A fraction whose denominator is a power of two, to 60 digits."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def read_factors(document: Document) -> Factors:
    """The factors of a proof, checked to be ones, before any evidence."""
    states = document.array("states", "i", -1).tolist()
    require(all(2 <= k < 2**31 for k in states), "A variable has fewer than two states.")
    arity, scope = document.array("arity", "i", -1), document.array("scope", "i", -1)
    table = document.array("tables", "f", -1)
    fits = np.all(np.isneginf(table) | (np.abs(table) <= LARGEST))
    require(fits, "A log-potential is no number, or too large for the checker.")
    require(np.all(arity >= 1) and arity.sum() == len(scope), "The scopes do not fit together.")
    require(np.all((scope >= 0) & (scope < len(states))), "A scope names no variable.")
    scopes, tables, at, cell = [], [], 0, 0
    for size in arity.tolist():
        members = tuple(scope[at : at + size].tolist())
        require(len(set(members)) == size, "A scope names a variable twice.")
        shape = tuple(states[v] for v in members)
        area = math.prod(shape)
        require(cell + area <= len(table), "The tables are too short.")
        scopes.append(members)
        tables.append(table[cell : cell + area].reshape(shape))
        at, cell = at + size, cell + area
    require(cell == len(table), "The tables are too long.")
    return Factors(states, scopes, tables)
