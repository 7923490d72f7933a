"""The part of the model that a proof is about: log-tables over variables 0..m-1.

The density is proportional to the exponential of the sum of all tables; -inf forbids a state. In
the file a table is a list of numbers, over the variables of its scope, the last one fastest.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal, localcontext
from functools import cache, cached_property, partial
from itertools import accumulate

import numpy as np

from dobrushin.verify.document import Array, Budget, Document, require

UNIT = 2.0**-53  # the relative error of one operation on doubles
LARGEST = 1e30  # log-potentials but -inf are at most this: their sums still have digits
MOST_CONFIGURATIONS = 2**14  # joint states of neighbours whose laws are kept
MOST_LAWS = 2**20  # numbers in these laws
PER_TABLE, PER_PASS = 1500.0, 1e-5  # bytes of a table as an object; seconds to look at one
Factor = tuple[tuple[int, ...], Array]  # scope and log-table


class Factors:
    """Variables with numbers of states, and log-tables over some of them."""

    def __init__(self, states: list[int], pairs: Iterable[Factor], budget: Budget) -> None:
        self.states, self.pairs, self.budget = states, list(pairs), budget
        budget.spend(PER_PASS * (len(self.pairs) + 1), "the tables of all parts")
        self.touching: dict[int, list[int]] = defaultdict(list)
        for number, (scope, _) in enumerate(self.pairs):
            for variable in scope:
                self.touching[variable].append(number)
        self.around = cache(partial(Neighbourhood, self))

    def near(self, variables: Iterable[int]) -> "Factors":
        """Return the factors that touch some variables."""
        numbers = sorted({k for v in variables for k in self.touching[v]})
        return Factors(self.states, (self.pairs[k] for k in numbers), self.budget)

    def fix(self, values: dict[int, int]) -> "Factors":
        """Return the factors given the states of some variables."""
        parts = []
        for scope, table in self.pairs:
            part = np.ascontiguousarray(table[tuple(values.get(v, slice(None)) for v in scope)])
            require(
                np.max(part, initial=-math.inf) > -math.inf,
                "A factor forbids the evidence, or everything.",
            )
            parts.append((tuple(v for v in scope if v not in values), part))
        return Factors(self.states, ((scope, part) for scope, part in parts if scope), self.budget)

    def drop(self, variables: list[int]) -> tuple["Factors", float]:
        """Leave out variables, in this order, whose only factor sums to a constant over each.

        Returns the other factors, and by how much the log-density may then be off: up to rounding
        the sums are equal (theory.md, What does not matter to the targets).
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
    """A variable, its neighbours, and its law given their states."""

    def __init__(self, factors: Factors, variable: int) -> None:
        self.own, self.budget = factors.states[variable], factors.budget
        touching = factors.touching[variable]
        scopes = [factors.pairs[k][0] for k in touching]
        self.others = sorted({v for scope in scopes for v in scope} - {variable})
        self.budget.spend(PER_PASS * (len(touching) + 1), "the neighbours of all variables")
        size = PER_TABLE / 3 * (len(touching) + 1)
        self.budget.hold(size, "the neighbours of all variables")
        self.sizes = [factors.states[v] for v in self.others]
        place = {v: k for k, v in enumerate(self.others)}
        self.parts: list[tuple[list[int], Array]] = []  # places of neighbours, table with own last
        self.magnitude = 0.0
        for k in touching:
            scope, table = factors.pairs[k]
            rest = [v for v in scope if v != variable]
            turned = table.transpose([scope.index(v) for v in (*rest, variable)])
            self.parts.append(([place[v] for v in rest], turned))
            self.magnitude += float(np.max(np.abs(table), where=np.isfinite(table), initial=0.0))
        # Bounds the error of a probability: sums of logs, exponentials and partial sums
        # (theory.md, Rounding of influence bounds).
        logs = 16.0 * (len(touching) + 2) * self.magnitude
        self.margin = UNIT * (logs + 64.0 * (self.own + 8))
        self.cells = min(math.prod(self.sizes), 2**62)  # joint states of the neighbours
        is_small = self.cells <= MOST_CONFIGURATIONS and self.cells * self.own <= MOST_LAWS
        self.are_laws_kept = is_small

    @cached_property
    def all_laws(self) -> Array:
        """The laws beside all joint states of the neighbours, the last one changing fastest."""
        size = self.cells * self.own
        self.budget.need(64.0 * size, "the laws of a variable")
        self.budget.hold(8.0 * size, "the laws of a variable")
        return self.laws(np.indices(self.sizes).reshape(len(self.sizes), self.cells))

    def laws(self, seen: Array) -> Array:
        """Return P(state <= a) for all a but the last, one row per column of neighbours' states.

        A row is NaN where every state is forbidden.
        """
        logs = np.zeros((seen.shape[1], self.own))
        for places, table in self.parts:
            logs += table[tuple(seen[p] for p in places)]
        with np.errstate(invalid="ignore"):
            sums = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
            return sums[:, :-1] / sums[:, -1:]

    def laws_beside(self, seen: list[Array], count: int) -> Array:
        """Return the laws beside neighbours in these states, for that many chains."""
        if not self.are_laws_kept:
            return self.laws(np.array(seen).reshape(len(seen), count))
        if not seen:
            return self.all_laws[np.zeros(count, dtype=np.int64)]
        return self.all_laws[np.ravel_multi_index(tuple(seen), self.sizes)]

    def decide(self, digits: list[int], u: tuple[int, int], rises: bool) -> int:
        """Return the state that a uniform number, a fraction, draws in 60 digits (see `draws`)."""
        with localcontext() as context:
            context.prec = 60
            cells = [table[tuple(digits[p] for p in places)] for places, table in self.parts]
            lists = [cell.tolist() for cell in cells]
            logs = [sum((Decimal(cell[a]) for cell in lists), Decimal(0)) for a in range(self.own)]
            sizes = [(log - max(logs)).exp() for log in logs]
            point = sum(sizes) * u[0] / u[1]
            if rises:
                return sum(total <= point for total in accumulate(sizes[:-1]))
            return int(point < sizes[1])


def cut(
    table: Array, scopes: Iterable[tuple[int, ...]], states: Sequence[int] | Array
) -> list[Array]:
    """Cut a list of numbers into the tables over some scopes."""
    shapes = [[int(states[v]) for v in scope] for scope in scopes]
    ends = [0, *accumulate(map(math.prod, shapes))]
    require(ends[-1] == len(table), "The tables are too short or too long for their scopes.")
    return [table[a:b].reshape(shape) for a, b, shape in zip(ends, ends[1:], shapes, strict=False)]


def read_factors(document: Document, budget: Budget) -> Factors:
    """Read the factors of a proof, before any evidence."""
    states = document.array("states", "i", -1).tolist()
    require(all(2 <= k < 2**31 for k in states), "A variable has fewer than two states.")
    arity, scope = document.array("arity", "i", -1), document.array("scope", "i", -1)
    table = document.array("tables", "f", -1)
    budget.spend(5.0 * PER_PASS * len(arity), f"{len(arity)} tables")
    budget.hold(PER_TABLE * len(arity) + 250.0 * len(states), f"{len(arity)} tables")
    require(
        np.all(np.isneginf(table) | (np.abs(table) <= LARGEST)),
        "A log-potential is not a number, or larger than 1e30.",
    )
    require(
        np.all(arity >= 1)
        and arity.sum() == len(scope)
        and np.all((scope >= 0) & (scope < len(states))),
        "The scopes of tables name unknown variables, or do not add up.",
    )
    ends = np.cumsum(arity).tolist()
    scopes = [tuple(scope[a:b].tolist()) for a, b in zip([0, *ends], ends, strict=False)]
    require(
        all(len(set(members)) == len(members) for members in scopes),
        "The scope of a table names a variable twice.",
    )
    return Factors(states, zip(scopes, cut(table, scopes, states), strict=True), budget)
