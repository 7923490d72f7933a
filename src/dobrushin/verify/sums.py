"""Check answers without draws: sums over all variables or over a region, and uniform marginals.

Variables are summed out in an elimination order, and each product of tables on the way is kept.
Then messages go backwards: the message to a table is the message to the product that the table went
into, times the other tables of that product, summed over the variables that the table does not
have. Each target has a table of ones over its variables; the message to this table is the law of
the target. Every table carries a bound on its error (theory.md, Rounding of exact answers).
"""

import math
from collections.abc import Iterable
from string import ascii_letters

import numpy as np

from dobrushin.verify.certificates import forward, influence
from dobrushin.verify.claim import ProofQuestion
from dobrushin.verify.document import Array, require, require_reach
from dobrushin.verify.model import UNIT, Factors
from dobrushin.verify.proof import SOME_STATE, ProofPart, Steps

# Joint states that are run through for one table, and tables that are multiplied at once.
MAX_CELLS, MAX_AT_ONCE = 2**31, 16
PER_CONTRACTION, PER_CELL = 6e-5, 4e-9  # seconds
TINY = 2.0**-1022
Law = tuple[Array, Array]  # probabilities, and how far they may be off


class Table:
    """A table with error bounds: x stands for a number within relative * x + absolute of x."""

    def __init__(
        self, scope: tuple[int, ...], values: Array, relative: float, absolute: float
    ) -> None:
        top = float(values.max())
        require_reach(
            top > 0.0, "The model allows no state, or its numbers are too small to be summed."
        )
        scale = 2.0 ** -math.frexp(top)[1]
        self.scope, self.values = scope, values * scale
        self.relative, self.absolute = relative, absolute * scale
        self.least = math.log2(np.min(self.values, where=self.values > 0.0, initial=1.0))


class Elimination:
    """Joint laws of groups of variables under a product of factors, by variable elimination."""

    def __init__(
        self, factors: Factors, order: list[int], groups: Iterable[tuple[int, ...]]
    ) -> None:
        self.states, self.budget = factors.states, factors.budget
        self.tables = list[Table]()
        self.inputs = dict[int, list[int]]()  # the tables whose product was summed to a table
        self.output = dict[int, int]()  # the product that a table was an operand of
        self.others = dict[int, list[Table]]()  # the message of all other tables to a table
        self.place = {v: k for k, v in enumerate(order)}
        require(len(self.place) == len(order), "An order of elimination names a variable twice.")
        self.budget.charge("an order of elimination", 2e-5 * len(order), held=400.0 * len(order))
        # Tables by the first of their variables in the elimination order.
        self.buckets = [list[int]() for _ in order]
        for scope, log in factors.pairs:
            self._put(self._weights(scope, log))
        self.leaves = {group: self._put(self._ones(group)) for group in groups}
        for variable, bucket in zip(order, self.buckets, strict=True):
            bucket.sort(key=lambda number: len(self.tables[number].scope))
            while bucket:
                own, bucket[:MAX_AT_ONCE] = bucket[:MAX_AT_ONCE], []
                held = {v for number in own for v in self.tables[number].scope}
                kept = held if bucket else held - {variable}
                product = self._contract([self.tables[k] for k in own], tuple(sorted(kept)))
                number = self._put(product)
                self.inputs[number] = own
                self.output |= dict.fromkeys(own, number)

    def _put(self, table: Table) -> int:
        """Keep a table in the bucket of its first variable in the order; return its number."""
        require(self.place.keys() >= set(table.scope), "An order of elimination is not complete.")
        number = len(self.tables)
        self.tables.append(table)
        if table.scope:
            self.buckets[min(self.place[v] for v in table.scope)].append(number)
        else:
            self.others[number] = []
        return number

    def _weights(self, scope: tuple[int, ...], log: Array) -> Table:
        """Return the exponentials of a log-table, with a bound on their rounding."""
        top = float(log.max())
        span = float(np.max(top - log, where=np.isfinite(log), initial=0.0))
        self.budget.charge("the tables of a sum", 4e-5, held=700.0 + 8.0 * log.size)
        with np.errstate(under="ignore"):
            values = np.exp(log - top)
        return Table(scope, values, (8.0 + min(span, 800.0)) * UNIT, TINY if span > 690.0 else 0.0)

    def _ones(self, scope: tuple[int, ...]) -> Table:
        sizes = [self.states[v] for v in scope]
        self.budget.charge("the tables of a sum", held=16.0 * min(math.prod(sizes), 2**62))
        return Table(scope, np.ones(sizes), 0.0, 0.0)

    def _contract(self, tables: list[Table], kept: tuple[int, ...]) -> Table:
        """Multiply tables, and sum over all variables but those in `kept`."""
        states, held = self.states, {v for table in tables for v in table.scope}
        alone = [v for v in kept if v not in held]
        tables = tables + [self._ones((v,)) for v in alone]
        summed = sorted(held - set(kept))
        size, at_once = (math.prod(states[v] for v in some) for some in (kept, summed))
        cells, later = size * at_once, list[int]()
        self._charge(cells, len(tables), size)
        for v in summed:  # long sums are split into parts, which lowers the bound on their rounding
            if at_once > 64 and size * states[v] <= 2**22:
                later.append(v)
                at_once, size = at_once // states[v], size * states[v]
        values = _multiply(tables, (*kept, *later))
        for _ in later:
            values = values.sum(axis=-1)
        roundings = len(tables) + at_once + sum(states[v] for v in later)
        share = math.prod(1.0 + table.relative for table in tables)
        relative = share * (1.0 + 2.0 * roundings * UNIT) - 1.0
        require_reach(relative < 1e-3, "The sums are too long for the checker's arithmetic.")
        may_underflow = sum(table.least for table in tables) < -1020.0
        loss = 2.0 * sum(table.absolute for table in tables) + len(tables) * TINY * may_underflow
        loss *= (1.0 + relative) * (cells // max(1, values.size))
        return Table(kept, np.asarray(values), relative, loss)

    def _charge(self, cells: int, tables: int, size: int) -> None:
        require_reach(cells <= MAX_CELLS, "A clique of a sum has too many joint states.")
        seconds = PER_CONTRACTION + PER_CELL * cells * (tables + 1)
        what, kept = f"a sum over {cells} joint states", 600.0 + 8.0 * size
        self.budget.charge(what, seconds, briefly=2.0**26 + 24.0 * size)
        self.budget.charge("the messages of a sum", held=kept)

    def law(self, group: tuple[int, ...]) -> Law:
        """Return the joint law of a group of variables, and error bounds of its probabilities."""
        path = [self.leaves[group]]
        while path[-1] not in self.others:
            path.append(self.output[path[-1]])
        for product, own in zip(path[::-1], path[-2::-1], strict=False):
            tables = [self.tables[k] for k in self.inputs[product] if k != own]
            message = self._contract([*tables, *self.others[product]], self.tables[own].scope)
            self.others[own] = [message]
        (table,) = self.others[path[0]]
        total = float(table.values.sum())
        loose = table.absolute * (table.values.size + 1) / total
        require_reach(loose < 1e-3, "The numbers of a sum are too small for the checker.")
        relative = 3.0 * table.relative + 8.0 * (table.values.size + 4) * UNIT
        chances = table.values / total
        return chances, chances * relative + 4.0 * loose


def _multiply(tables: list[Table], kept: tuple[int, ...]) -> Array:
    held = sorted({v for table in tables for v in table.scope})
    require_reach(len(held) <= len(ascii_letters), "A clique of a sum has too many variables.")
    letter = dict(zip(held, ascii_letters, strict=False))
    scopes = ["".join(letter[v] for v in table.scope) for table in tables]
    result = "".join(letter[v] for v in kept)
    values = (table.values for table in tables)
    return np.asarray(np.einsum(f"{','.join(scopes)}->{result}", *values))


def check_sums(part: ProofPart) -> float:
    """Check sums over all variables, or over a region around a target.

    The effect of the boundary is bounded by sweeps inside the region (theory.md, What is outside:
    Dobrushin's bound), or by the two extreme states of the boundary. In the second case `border`
    has, for each variable, the state that counts as the higher one.
    """
    proof, plan = part.proof, part.plan
    order = proof.free(proof.array(plan["order"], "i", -1).tolist())
    inside, near = set(order), proof.factors.near(order)
    apart = proof.close(inside)
    outside = {v for scope, _ in near.pairs for v in scope} - inside
    members = sorted(inside | outside)
    digits = proof.array(plan["border"], "i", len(members)).tolist()
    state = dict(zip(members, digits, strict=True))
    is_known = all(0 <= d < proof.states[v] for v, d in state.items())
    require(is_known, "The boundary of a region is in an unknown state.")
    borders = [{v: state[v] for v in outside}]
    if outside and not plan["sweeps"]:
        borders.append({v: 1 - state[v] for v in outside})
    groups = {k: tuple(question.variables) for k, question in part.questions.items()}
    targets = {v for group in groups.values() for v in group}
    require(inside >= targets, "A region does not contain its target.")
    sums = [Elimination(near.fix(border), order, groups.values()) for border in borders]
    sweep = proof.array(plan["sweep"], "i", -1).tolist()
    disagreement = _sweep(near, inside, sweep, plan["sweeps"]) if plan["sweeps"] else {}
    share = math.expm1(math.log1p(proof.off) + math.log1p(apart))
    for k, question in part.questions.items():
        laws = [own.law(groups[k]) for own in sums]
        chances, error = (np.mean(pair, axis=0) for pair in zip(*laws, strict=True))
        bias = question.bias(disagreement) if plan["sweeps"] else 0.0
        if len(laws) > 1:
            bias = _half_gap(question, near, state, laws, share)
        _check_law(part, k, (chances, error + (chances + bias) * share), bias)
    where = f"sums over a region of {len(order)} variables"
    proof.checked.append(f"{where}, and the effect of {len(outside)} variables outside")
    proof.assumptions.append(SOME_STATE)
    return part.lost


def _sweep(near: Factors, inside: set[int], sweep: list[int], count: int) -> dict[int, float]:
    """Bound the effect of the boundary by sweeps over the region."""
    is_inside = sweep and set(sweep) <= inside and 1 <= count <= 10**7
    require(is_inside, "The sweeps leave the region, or their number is out of range.")
    steps = Steps(sweep, len(sweep) * count, near.budget)
    return forward(influence(near, sweep), steps, {}, {})


def _check_law(part: ProofPart, k: int, law: Law, bias: float) -> None:
    """Check claimed intervals against a law, its error, and a bound on its bias."""
    question, (chances, error), proof = part.questions[k], law, part.proof
    low, high = (chances - error).ravel(), (chances + error).ravel()
    if not question.is_law:
        values = question.value(np.indices(chances.shape).reshape(chances.ndim, -1))
        mean, sizes = float(chances.ravel() @ values), np.abs(values)
        off = float(error.ravel() @ sizes) + chances.size * 2.0**-50 * float(sizes.max())
        low, high = np.array([mean - off]), np.array([mean + off])
    wider = bias + 2.0**-50 * (1.0 + abs(question.most) + abs(question.least))
    for row, ends in enumerate(zip(proof.lower[k], proof.upper[k], strict=True)):
        proof.within(k, row, ends[0] <= low[row] - wider, ends[1] >= high[row] + wider)


def _half_gap(
    question: ProofQuestion, factors: Factors, upper: dict[int, int], laws: list[Law], share: float
) -> float:
    """Bound how far the average of the two laws at extreme boundaries is from the model's law.

    If all pairs are attractive, the probability of the higher state lies between its values at the
    two extreme boundaries (theory.md, What is outside: two extremes).
    """
    for scope, table in factors.pairs:
        is_binary = len(scope) <= 2 and set(table.shape) == {2}
        require(is_binary, "Extreme boundary states need binary variables, and pair factors.")
        if len(scope) == 2:
            turned = table[tuple(slice(None, None, 1 if upper[v] else -1) for v in scope)]
            (a, b), (c, d) = turned.tolist()
            favours = -math.inf not in (a, d, b, c) and math.fsum((a, d, -b, -c)) >= 0.0
            require(
                -math.inf in (b, c) or favours,
                "The pairs are not all attractive, even after relabelling states.",
            )
    total = 0.0
    for axis, (variable, weight) in enumerate(
        zip(question.variables, question.weights, strict=True)
    ):
        others = tuple(a for a in range(len(question.variables)) if a != axis)
        high, low = (float(law.sum(axis=others)[upper[variable]]) for law, _ in laws)
        slack = sum(float(error.sum()) + share for _, error in laws) + 2.0**-50 * laws[0][0].size
        total += weight * min(1.0, 0.5 * (max(0.0, high - low) + slack))
    return min(question.span, total)


# -- marginals known by symmetry -----------------------------------------------------------------
#
# If all variables that are connected with a target have as many states as it, and no factor over
# them changes when each state a becomes a + 1 (the last one 0), then all states of the target are
# equally likely, whatever the factors are (theory.md, Marginals known by symmetry).


def connected(factors: Factors, variables: set[int]) -> set[int]:
    """Return all variables that paths of factors connect with some variables."""
    found, waiting = set(variables), list(variables)
    while waiting:
        near = {v for k in factors.touching[waiting.pop()] for v in factors.pairs[k][0]}
        waiting += near - found
        found |= near
    return found


def check_symmetry(part: ProofPart) -> float:
    """Check claims that the laws of single variables are uniform."""
    proof = part.proof
    asked = {v for question in part.questions.values() for v in question.variables}
    inside = connected(proof.factors, asked)
    wider = proof.close(inside) + proof.off + 2.0**-50
    for scope, table in proof.factors.near(inside).pairs:
        shifted = np.roll(table, 1, axis=tuple(range(table.ndim)))
        is_same = len({*table.shape}) == 1 and np.array_equal(table, shifted)
        require(is_same, f"A shift of all states changes the factor over the variables {scope}.")
    for k, question in part.questions.items():
        require(
            len(question.variables) == 1, "A question about symmetry must name a single variable."
        )
        chance = 1.0 / question.cells
        for row, (low, high) in enumerate(zip(proof.lower[k], proof.upper[k], strict=True)):
            proof.within(k, row, low + wider <= chance, high - wider >= chance)
    proof.checked.append(f"the symmetry of all factors over {len(inside)} variables")
    proof.assumptions.append(SOME_STATE)
    return part.lost
