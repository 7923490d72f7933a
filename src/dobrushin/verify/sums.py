"""Answers that were summed: over everything, or over a region with a bound on the boundary effect.

Sums run along an order of elimination: messages go up the tree of its cliques, and down again to
the targets. Every table carries a bound on its error (theory.md, Rounding of exact answers).
"""

import math
from collections.abc import Iterable
from itertools import accumulate, chain
from string import ascii_letters

import numpy as np

from dobrushin.verify.certificates import forward, influence
from dobrushin.verify.claim import Question
from dobrushin.verify.document import Array, require
from dobrushin.verify.model import UNIT, Factors
from dobrushin.verify.proof import SOME_STATE, Part, Steps

# Joint states that are run through for one table, and tables that are multiplied at once.
MOST_CELLS, MOST_AT_ONCE = 2**31, 16
MOST_KEPT = 2**12  # joint states of a clique whose products before and behind tables are kept
PER_CONTRACTION, PER_CELL = 6e-5, 4e-9  # seconds
TINY = 2.0**-1022
Law = tuple[Array, Array]  # probabilities, and how far they may be off


class Table:
    """Numbers of at most 1: x stands for a number within relative x + absolute of it."""

    def __init__(
        self, scope: tuple[int, ...], values: Array, relative: float, absolute: float
    ) -> None:
        top = float(values.max())
        require(top > 0.0, "The model allows no state, or its numbers are too small to be summed.")
        scale = 2.0 ** -math.frexp(top)[1]
        self.scope, self.values = scope, values * scale
        self.relative, self.absolute = relative, absolute * scale
        self.least = math.log2(np.min(self.values, where=self.values > 0.0, initial=1.0))


class Sums:
    """Marginals of the product of factors, by messages up and down a tree of cliques."""

    def __init__(self, factors: Factors, order: list[int], groups: Iterable[Iterable[int]]) -> None:
        """Groups of variables are kept together, as if each had a factor of its own."""
        self.states, self.budget = factors.states, factors.budget
        self.place = {v: k for k, v in enumerate(order)}
        require(len(self.place) == len(order), "An order of elimination names a variable twice.")
        self._make_tree(order, chain((scope for scope, _ in factors.pairs), groups))
        # Tables in the bucket of each variable: factors, then messages of children in their order.
        self.buckets = [list[Table]() for _ in order]
        self._down = dict[int, list[Table]]()
        self._ends = dict[int, tuple[list[list[Table]], list[list[Table]]]]()
        for scope, log in factors.pairs:
            self.buckets[min(self.place[v] for v in scope)].append(self._weights(scope, log))
        for k, up in enumerate(self.parent):
            if self.buckets[k]:
                message = self._contract(self.buckets[k], self.rests[k])  # a root allows some state
                if up >= 0:
                    self.slot[k] = len(self.buckets[up])
                    self.buckets[up].append(message)

    def _make_tree(self, order: list[int], scopes: Iterable[Iterable[int]]) -> None:
        """Find cliques, and where the message of each variable's bucket goes (-1: a root)."""
        members = [{v} for v in order]
        for scope in scopes:
            require(self.place.keys() >= set(scope), "An order of elimination is not complete.")
            members[min(self.place[v] for v in scope)].update(scope)
        self.parent, self.slot = [-1] * len(order), [-1] * len(order)
        for k, variable in enumerate(order):
            self.budget.spend(2e-5 + 2e-6 * len(members[k]), "the cliques of a sum")
            if rest := members[k] - {variable}:
                self.parent[k] = min(self.place[v] for v in rest)
                members[self.parent[k]] |= rest
        self.cliques = [tuple(sorted(scope)) for scope in members]
        pairs = zip(members, order, strict=True)
        self.rests = [tuple(sorted(scope - {v})) for scope, v in pairs]

    def _weights(self, scope: tuple[int, ...], log: Array) -> Table:
        """Exponentials of a log-table, with the error of their rounding."""
        top = float(log.max())
        span = float(np.max(top - log, where=np.isfinite(log), initial=0.0))
        self.budget.hold(700.0 + 8.0 * log.size, "the tables of a sum")
        self.budget.spend(4e-5, "the tables of a sum")
        with np.errstate(under="ignore"):
            values = np.exp(log - top)
        return Table(scope, values, (8.0 + min(span, 800.0)) * UNIT, TINY if span > 690.0 else 0.0)

    def _contract(self, tables: list[Table], kept: tuple[int, ...]) -> Table:
        """Multiply tables, and sum over all variables but some: a few at once, then the results."""
        states, held = self.states, {v for table in tables for v in table.scope}
        tables = sorted(tables, key=lambda table: len(table.scope))
        while len(tables) > MOST_AT_ONCE:
            first, tables = tables[:MOST_AT_ONCE], tables[MOST_AT_ONCE:]
            union = tuple(sorted({v for table in first for v in table.scope}))
            tables.append(self._contract(first, union))
        alone = [v for v in kept if v not in held]
        tables = tables + [Table((v,), np.ones(states[v]), 0.0, 0.0) for v in alone]
        summed = sorted(held - set(kept))
        size, at_once = (math.prod(states[v] for v in some) for some in (kept, summed))
        cells, later = size * at_once, list[int]()
        self._charge(cells, len(tables), size)
        for v in summed:  # sums of many terms are made in parts: their rounding counts less
            if at_once > 64 and size * states[v] <= 2**22:
                later.append(v)
                at_once, size = at_once // states[v], size * states[v]
        values = self._multiply(tables, (*kept, *later))
        for _ in later:
            values = values.sum(axis=-1)
        roundings = len(tables) + at_once + sum(states[v] for v in later)
        share = math.prod(1.0 + table.relative for table in tables)
        relative = share * (1.0 + 2.0 * roundings * UNIT) - 1.0
        require(relative < 1e-3, "The sums are too long for the checker's arithmetic.")
        may_underflow = sum(table.least for table in tables) < -1020.0
        loss = 2.0 * sum(table.absolute for table in tables) + len(tables) * TINY * may_underflow
        loss *= (1.0 + relative) * (cells // max(1, values.size))
        return Table(kept, np.asarray(values), relative, loss)

    def _charge(self, cells: int, tables: int, size: int) -> None:
        require(cells <= MOST_CELLS, "A clique of a sum has too many joint states.")
        what = f"a sum over {cells} joint states"
        self.budget.spend(PER_CONTRACTION + PER_CELL * cells * (tables + 1), what)
        self.budget.need(2.0**26 + 24.0 * size, what)
        self.budget.hold(600.0 + 8.0 * size, "the messages of a sum")

    def _multiply(self, tables: list[Table], kept: tuple[int, ...]) -> Array:
        held = sorted({v for table in tables for v in table.scope})
        letter = dict(zip(held, ascii_letters, strict=False))
        require(len(letter) == len(held), "A clique of a sum has too many variables.")
        scopes = ["".join(letter[v] for v in table.scope) for table in tables]
        result = "".join(letter[v] for v in kept)
        values = (table.values for table in tables)
        return np.asarray(np.einsum(f"{','.join(scopes)}->{result}", *values))

    def _from_above(self, k: int) -> list[Table]:
        """Return what the rest of the tree says to a bucket: one message, or none at a root."""
        path = [k]
        while path[-1] not in self._down and self.parent[path[-1]] >= 0:
            path.append(self.parent[path[-1]])
        above = self._down.setdefault(path.pop(), [])
        for child in reversed(path):
            above = self._down[child] = self._message_down(self.parent[child], child, above)
        return above

    def _message_down(self, up: int, child: int, above: list[Table]) -> list[Table]:
        """Multiply all that a bucket holds but the message of one child.

        Of many messages the products of those before and behind each one are made once.
        """
        siblings = self.buckets[up]
        cells = math.prod(self.states[v] for v in self.cliques[up])
        if len(siblings) <= MOST_AT_ONCE or cells > MOST_KEPT:
            others = [table for slot, table in enumerate(siblings) if slot != self.slot[child]]
        else:
            before, behind = self._products(up)
            others = [*before[self.slot[child]], *behind[self.slot[child]]]
        return [self._contract([*others, *above], self.rests[child])]

    def _products(self, up: int) -> tuple[list[list[Table]], list[list[Table]]]:
        """Products of the tables of a bucket before and behind each one."""
        if up not in self._ends:
            siblings = self.buckets[up]

            def join(left: list[Table], table: Table) -> list[Table]:
                union = tuple(sorted({v for own in (*left, table) for v in own.scope}))
                return [self._contract([*left, table], union)]

            none: list[Table] = []
            before = list(accumulate(siblings[:-1], join, initial=none))
            behind = list(accumulate(siblings[:0:-1], join, initial=none))
            self._ends[up] = before, behind[::-1]
        return self._ends[up]

    def law(self, group: tuple[int, ...]) -> Law:
        """Return the joint law of variables that one clique holds, and how far it may be off."""
        k = min(self.place[v] for v in group)
        require(
            set(group) <= set(self.cliques[k]),
            "The order of elimination takes the variables of a target apart.",
        )
        table = self._contract([*self.buckets[k], *self._from_above(k)], group)
        total = float(table.values.sum())
        loose = table.absolute * (table.values.size + 1) / total
        require(loose < 1e-3, "The numbers of a sum are too small for the checker.")
        relative = 3.0 * table.relative + 8.0 * (table.values.size + 4) * UNIT
        chances = table.values / total
        return chances, chances * relative + 4.0 * loose


def check_sums(part: Part) -> float:
    """Check sums over everything, or over a region around a target.

    The effect of the boundary is bounded by sweeps inside (theory.md, What is outside: Dobrushin's
    bound), or by its two extreme states: `border` then has the higher state of each variable.
    """
    proof, plan = part.proof, part.plan
    order = proof.free(proof.array(plan["order"], "i", -1).tolist())
    inside, near = set(order), proof.factors.near(order)
    apart = proof.close(inside)
    outside = {v for scope, _ in near.pairs for v in scope} - inside
    members = sorted(inside | outside)
    digits = proof.array(plan["border"], "i", len(members)).tolist()
    state = dict(zip(members, digits, strict=True))
    require(
        all(0 <= d < proof.states[v] for v, d in state.items()),
        "The border of a region is in an unknown state.",
    )
    borders = [{v: state[v] for v in outside}]
    if outside and not plan["sweeps"]:
        borders.append({v: 1 - state[v] for v in outside})
    groups = {k: tuple(question.variables) for k, question in part.questions.items()}
    require(
        inside.issuperset(v for group in groups.values() for v in group),
        "A region does not hold its target.",
    )
    sums = [Sums(near.fix(border), order, groups.values()) for border in borders]
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
    return 0.0


def _sweep(near: Factors, inside: set[int], sweep: list[int], count: int) -> dict[int, float]:
    """Bound the effect of the boundary by sweeps over the region."""
    require(
        sweep and set(sweep) <= inside and 1 <= count <= 10**7,
        "The sweeps leave the region, or are too many.",
    )
    steps = Steps(sweep, len(sweep) * count, near.budget)
    return forward(influence(near, sweep), steps, {}, {})


def _check_law(part: Part, k: int, law: Law, bias: float) -> None:
    """Compare the claim with a law of its variables, its error, and a bias."""
    question, (chances, error), proof = part.questions[k], law, part.proof
    low, high = (chances - error).ravel(), (chances + error).ravel()
    if not question.is_law:
        values = question.value(np.indices(chances.shape).reshape(chances.ndim, -1))
        mean, sizes = float(chances.ravel() @ values), np.abs(values)
        off = float(error.ravel() @ sizes) + chances.size * 2.0**-50 * float(sizes.max())
        low, high = np.array([mean - off]), np.array([mean + off])
    wider = bias + 2.0**-50 * (1.0 + abs(question.most) + abs(question.least))
    for row, ends in enumerate(zip(proof.lower[k], proof.upper[k], strict=True)):
        is_low, is_high = ends[0] <= low[row] - wider, ends[1] >= high[row] + wider
        proof.within(k, row, is_low, is_high)


def _half_gap(
    question: Question, factors: Factors, upper: dict[int, int], laws: list[Law], share: float
) -> float:
    """Bound how far the mean of the laws beside the two extreme borders is from the model's.

    Where all pairs are attractive, chances of higher states lie between those beside the extremes
    (theory.md, What is outside: two extremes).
    """
    for scope, table in factors.pairs:
        require(
            len(scope) <= 2 and set(table.shape) == {2},
            "Extremes need factors of at most two variables, of two states each.",
        )
        if len(scope) == 2:
            turned = table[tuple(slice(None, None, 1 if upper[v] else -1) for v in scope)]
            (a, b), (c, d) = turned.tolist()
            require(
                -math.inf in (b, c)
                or (-math.inf not in (a, d) and math.fsum((a, d, -b, -c)) >= 0.0),
                "The pairs are not all attractive, after exchanging names of states.",
            )
    total = 0.0
    pairs = zip(question.variables, question.weights, strict=True)
    for axis, (variable, weight) in enumerate(pairs):
        others = tuple(a for a in range(len(question.variables)) if a != axis)
        high, low = (float(law.sum(axis=others)[upper[variable]]) for law, _ in laws)
        slack = sum(float(error.sum()) + share for _, error in laws) + 2.0**-50 * laws[0][0].size
        total += weight * min(1.0, 0.5 * (max(0.0, high - low) + slack))
    return min(question.span, total)
