"""The part of the model that a proof is about: log-tables over variables 0..m-1.

The density is proportional to the exponential of the sum of all tables; -inf forbids a state. In
the file a table is a list of numbers over the joint states of its scope, the last variable changing
fastest.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal, localcontext
from functools import cache, cached_property, partial
from itertools import accumulate, pairwise

import numpy as np

from dobrushin.verify.document import Array, Budget, Document, require, require_all

UNIT = 2.0**-53  # the relative error of one operation on doubles
LARGEST = 1e30  # largest size of finite log-potentials, so that their sums keep enough digits
MAX_CONFIGURATIONS = 2**14  # joint states of neighbours whose laws are kept
MAX_LAWS = 2**20  # numbers in these laws
PER_TABLE, PER_PASS = 1500.0, 1e-5  # bytes of a table as an object; seconds to look at one
Factor = tuple[tuple[int, ...], Array]  # scope and log-table


class Factors:
    """Log-tables over some variables, and the number of states of each variable."""

    def __init__(self, states: list[int], pairs: Iterable[Factor], budget: Budget) -> None:
        self.states, self.pairs, self.budget = states, list(pairs), budget
        budget.charge("the tables of all parts", PER_PASS * (len(self.pairs) + 1))
        self.touching: dict[int, list[int]] = defaultdict(list)
        for number, (scope, _) in enumerate(self.pairs):
            for variable in scope:
                self.touching[variable].append(number)
        self.around = cache(partial(Neighbourhood, self))

    def near(self, variables: Iterable[int]) -> "Factors":
        """Return the factors over at least one of some variables."""
        numbers = sorted({k for v in variables for k in self.touching[v]})
        return Factors(self.states, (self.pairs[k] for k in numbers), self.budget)

    def fix(self, values: dict[int, int]) -> "Factors":
        """Return the factors conditioned on the states of some variables."""
        parts = []
        for scope, table in self.pairs:
            part = np.ascontiguousarray(table[tuple(values.get(v, slice(None)) for v in scope)])
            is_possible = np.max(part, initial=-math.inf) > -math.inf
            require(is_possible, "A factor forbids the evidence, or everything.")
            parts.append((tuple(v for v in scope if v not in values), part))
        return Factors(self.states, ((scope, part) for scope, part in parts if scope), self.budget)

    def drop(self, variables: list[int]) -> tuple["Factors", float]:
        """Leave out variables in this order; each one's only factor must sum over it to a constant.

        Returns the other factors, and a bound on the error of the log-density: up to rounding the
        sums are equal (theory.md, What does not matter to the targets).
        """
        left, error = dict(enumerate(self.pairs)), 0.0
        for variable in variables:
            own = [left.pop(k) for k in self.touching[variable] if k in left]
            require(len(own) <= 1, f"Variable {variable} is left out, but several factors hold it.")
            for scope, table in own:
                sums = np.exp(table - table.max()).sum(axis=scope.index(variable))
                least, most = float(sums.min()), float(sums.max())
                spread = (most - least) / least if least > 0.0 else math.inf
                require(
                    spread <= 1e-11,
                    f"Variable {variable} is left out, but its factor sums to no constant.",
                )
                error += spread + (self.states[variable] + 16) * 2.0**-51
        return Factors(self.states, left.values(), self.budget), error


class Neighbourhood:
    """A variable, its neighbours, and its conditional law given their states."""

    def __init__(self, factors: Factors, variable: int) -> None:
        self.own, self.budget = factors.states[variable], factors.budget
        pairs = [factors.pairs[k] for k in factors.touching[variable]]
        tables = len(pairs) + 1
        what = "the neighbours of all variables"
        self.budget.charge(what, PER_PASS * tables, held=PER_TABLE / 3 * tables)
        self.others = sorted({v for scope, _ in pairs for v in scope} - {variable})
        self.sizes = [factors.states[v] for v in self.others]
        place = {v: k for k, v in enumerate(self.others)}
        self.parts: list[tuple[list[int], Array]] = []  # places of neighbours, table with own last
        self.holding: list[list[int]] = [[] for _ in self.others]  # the parts of each neighbour
        for number, (scope, table) in enumerate(pairs):
            rest = [v for v in scope if v != variable]
            turned = table.transpose([scope.index(v) for v in (*rest, variable)])
            self.parts.append(([place[v] for v in rest], turned))
            for v in rest:
                self.holding[place[v]].append(number)
        # Bounds the error of a probability: sums of logs, exponentials and partial sums
        # (theory.md, Rounding of influence bounds).
        self.magnitude = sum(largest(table) for _, table in pairs)
        self.margin = UNIT * (16.0 * (len(pairs) + 2) * self.magnitude + 64.0 * (self.own + 8))
        self.cells = min(math.prod(self.sizes), 2**62)  # joint states of the neighbours
        is_small = self.cells <= MAX_CONFIGURATIONS and self.cells * self.own <= MAX_LAWS
        self.are_laws_kept = is_small

    @cached_property
    def all_laws(self) -> Array:
        """The laws for all joint states of the neighbours, the last neighbour changing fastest."""
        size = self.cells * self.own
        self.budget.charge("the laws of a variable", held=8.0 * size, briefly=56.0 * size)
        return self.laws(np.indices(self.sizes).reshape(len(self.sizes), self.cells))

    def laws(self, seen: Array) -> Array:
        """Return P(state <= a) for all states a but the last.

        Column k of `seen` has states of the neighbours, and row k of the result the law given these
        states. A row is NaN where every state is forbidden.
        """
        logs = np.zeros((seen.shape[1], self.own))
        for places, table in self.parts:
            logs += table[tuple(seen[p] for p in places)]
        with np.errstate(invalid="ignore"):
            sums = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
            return sums[:, :-1] / sums[:, -1:]

    def laws_beside(self, seen: list[Array], count: int) -> Array:
        """Return the law for each chain, given the chains' states of the neighbours."""
        if not self.are_laws_kept:
            return self.laws(np.array(seen).reshape(len(seen), count))
        if not seen:
            return self.all_laws[np.zeros(count, dtype=np.int64)]
        return self.all_laws[np.ravel_multi_index(tuple(seen), self.sizes)]

    def decide(self, digits: list[int], u: tuple[int, int], rises: bool) -> int:
        """Return the state that the uniform number u[0] / u[1] draws, computed with 60 digits."""
        cells = [table[tuple(digits[p] for p in places)].tolist() for places, table in self.parts]
        with localcontext(prec=60):
            logs = decimal_sums(cells, self.own)
            sizes = [(log - max(logs)).exp() for log in logs]
            point = sum(sizes) * u[0] / u[1]
            if rises:
                return sum(total <= point for total in accumulate(sizes[:-1]))
            return int(point < sizes[1])


def decimal_sums(lists: Sequence[Sequence[float]], count: int) -> list[Decimal]:
    """Add up lists of `count` numbers item by item, with the precision of the decimal context."""
    return [sum((Decimal(own[a]) for own in lists), Decimal(0)) for a in range(count)]


def largest(table: Array) -> float:
    """Return the largest absolute value of the finite numbers in a table."""
    return float(np.max(np.abs(table), where=np.isfinite(table), initial=0.0))


def cut(
    table: Array, scopes: Iterable[tuple[int, ...]], states: Sequence[int] | Array
) -> list[Array]:
    """Cut a list of numbers into the tables over some scopes."""
    shapes = [[int(states[v]) for v in scope] for scope in scopes]
    ends = [0, *accumulate(map(math.prod, shapes))]
    require(ends[-1] == len(table), "The tables are too short or too long for their scopes.")
    return [table[a:b].reshape(shape) for (a, b), shape in zip(pairwise(ends), shapes, strict=True)]


def read_factors(document: Document, budget: Budget) -> Factors:
    """Read the factors of a proof, before any evidence."""
    states = document.array("states", "i", -1).tolist()
    arity, scope = document.array("arity", "i", -1), document.array("scope", "i", -1)
    table = document.array("tables", "f", -1)
    size = PER_TABLE * len(arity) + 250.0 * len(states)
    budget.charge(f"{len(arity)} tables", 5.0 * PER_PASS * len(arity), held=size)
    scopes = [tuple(part.tolist()) for part in np.split(scope, np.cumsum(arity)[:-1])]
    is_known = np.all(arity >= 1) and arity.sum() == len(scope)
    is_known &= np.all((scope >= 0) & (scope < len(states)))
    is_bounded = np.isneginf(table) | (np.abs(table) <= LARGEST)
    require_all(
        {
            "A variable has fewer than two states.": all(2 <= k < 2**31 for k in states),
            "A log-potential is not a number, or larger than 1e30.": np.all(is_bounded),
            "The scopes of tables name unknown variables, or do not add up.": is_known,
            "The scope of a table names a variable twice.": all(
                len(set(members)) == len(members) for members in scopes
            ),
        }
    )
    scopes = scopes[: len(arity)]  # np.split returns one empty part if there are no tables
    return Factors(states, zip(scopes, cut(table, scopes, states), strict=True), budget)
