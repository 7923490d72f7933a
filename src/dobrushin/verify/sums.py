"""Answers that nothing is drawn for: sums along an order of elimination with a bound on their error, and bounds."""

import math
from collections.abc import Iterable
from string import ascii_letters

import numpy as np

from dobrushin.verify import checks
from dobrushin.verify.document import Array, Question, require
from dobrushin.verify.factors import UNIT, Factors, forward, influence
from dobrushin.verify.fields import NUMBERS, check_field

# Combinations of states that are run through for one table; in a second; numbers that messages hold; tables at once.
MOST_CELLS, RATE, MOST_KEPT, MOST_AT_ONCE = 2**31, 1e8, 2**28, 16
TINY = 2.0**-1022
Law = tuple[Array, Array]  # probabilities, and how far they may be off


class Table:
    """Numbers over some variables, at most 1: an entry x stands for one within relative x + absolute of it."""

    def __init__(self, scope: tuple[int, ...], values: Array, relative: float, absolute: float) -> None:
        top = float(values.max())
        require(top > 0.0, "The model allows no state, or its numbers are too small for the checker.")
        scale = 2.0 ** -math.frexp(top)[1]
        self.scope, self.values, self.relative, self.absolute = scope, values * scale, relative, absolute * scale
        self.least = math.log2(np.min(self.values, where=self.values > 0.0, initial=1.0))


class Sums:
    """Marginals of the product of factors, by messages up and down the tree that an order makes."""

    def __init__(self, factors: Factors, order: list[int], groups: Iterable[Iterable[int]], proof: checks.Proof):
        """Groups are kept together, as if each had a factor of its own."""
        self.states, self.place = factors.states, {v: k for k, v in enumerate(order)}
        require(len(self.place) == len(order), "An order of elimination names a variable twice.")
        members = [{v} for v in order]  # of each bucket
        for scope in [*(scope for scope, _ in factors.pairs), *groups]:
            require(self.place.keys() >= set(scope), "An order of elimination is not complete.")
            members[min(self.place[v] for v in scope)].update(scope)
        # The bucket that each one's message goes to, and its place there.
        self.parent, self.slot = [-1] * len(order), [-1] * len(order)
        for k, variable in enumerate(order):
            if rest := members[k] - {variable}:
                self.parent[k] = min(self.place[v] for v in rest)
                members[self.parent[k]] |= rest
        self.cliques = [tuple(sorted(scope)) for scope in members]
        self.rests = [tuple(sorted(scope - {v})) for scope, v in zip(members, order, strict=True)]
        cells = [math.prod(self.states[v] for v in clique) for clique in self.cliques]
        kept = sum(size // self.states[v] for size, v in zip(cells, order, strict=True))
        require(max(cells, default=0) <= MOST_CELLS and kept <= MOST_KEPT, "A sum is too large for the checker.")
        proof.spend(2.0 * sum(cells) / RATE)
        self.buckets, self._down = [list[Table]() for _ in order], dict[int, list[Table]]()
        for scope, log in factors.pairs:
            top = float(log.max())
            span = float(np.max(top - log, where=np.isfinite(log), initial=0.0))
            with np.errstate(under="ignore"):
                table = Table(scope, np.exp(log - top), (8.0 + min(span, 800.0)) * UNIT, TINY if span > 690.0 else 0.0)
            self.buckets[min(self.place[v] for v in scope)].append(table)
        for k, up in enumerate(self.parent):
            if self.buckets[k]:
                message = self._contract(self.buckets[k], self.rests[k])  # at a root: some state is allowed
                if up >= 0:
                    self.slot[k] = len(self.buckets[up])
                    self.buckets[up].append(message)

    def _contract(self, tables: list[Table], kept: tuple[int, ...]) -> Table:
        """The product of tables, summed over all variables but some: at once over a few, then one after the other."""
        states, held = self.states, {v for table in tables for v in table.scope}
        tables = sorted(tables, key=lambda table: len(table.scope))
        while len(tables) > MOST_AT_ONCE:
            first = tuple(sorted({v for table in tables[:MOST_AT_ONCE] for v in table.scope}))
            tables = [*tables[MOST_AT_ONCE:], self._contract(tables[:MOST_AT_ONCE], first)]
        tables = tables + [Table((v,), np.ones(states[v]), 0.0, 0.0) for v in kept if v not in held]
        summed = sorted(held - set(kept))
        size, at_once = math.prod(states[v] for v in kept), math.prod(states[v] for v in summed)
        cells, later = size * at_once, []
        for v in summed:
            if at_once > 64 and size * states[v] <= 2**24:
                later.append(v)
                at_once, size = at_once // states[v], size * states[v]
        letter = {v: ascii_letters[k] for k, v in enumerate(sorted(held | set(kept)))}
        scopes = ["".join(letter[v] for v in scope) for scope in [*(table.scope for table in tables), (*kept, *later)]]
        values = np.einsum(f"{','.join(scopes[:-1])}->{scopes[-1]}", *(table.values for table in tables))
        for _ in later:
            values = values.sum(axis=-1)
        roundings = len(tables) + at_once + sum(states[v] for v in later)
        relative = math.prod(1.0 + table.relative for table in tables) * (1.0 + 2.0 * roundings * UNIT) - 1.0
        require(relative < 1e-3, "The sums are too long for the checker's arithmetic.")
        may_underflow = sum(table.least for table in tables) < -1020.0
        loss = 2.0 * sum(table.absolute for table in tables) + len(tables) * TINY * may_underflow
        return Table(kept, np.asarray(values), relative, loss * (1.0 + relative) * (cells // max(1, values.size)))

    def _from_above(self, k: int) -> list[Table]:
        """What the rest of the tree says to a bucket: one message, or none at a root."""
        path = [k]
        while path[-1] not in self._down and self.parent[path[-1]] >= 0:
            path.append(self.parent[path[-1]])
        above = self._down.setdefault(path.pop(), [])
        for child in reversed(path):
            siblings = enumerate(self.buckets[self.parent[child]])
            others = [table for slot, table in siblings if slot != self.slot[child]]
            self._down[child] = above = [self._contract([*others, *above], self.rests[child])]
        return above

    def law(self, group: tuple[int, ...]) -> Law:
        """Joint probabilities of some variables that one clique holds, and how far each may be off."""
        k = min(self.place[v] for v in group)
        require(set(group) <= set(self.cliques[k]), "The order of elimination takes the variables of a target apart.")
        table = self._contract([*self.buckets[k], *self._from_above(k)], group)
        total = float(table.values.sum())
        loose = table.absolute * (table.values.size + 1) / total
        require(loose < 1e-3, "The numbers of a sum are too small for the checker.")
        relative = 3.0 * table.relative + 8.0 * (table.values.size + 4) * UNIT
        return table.values / total, table.values / total * relative + 4.0 * loose


def _check_law(part: checks.Part, k: int, law: Law, bias: float) -> None:
    """Compare the claim with a law of its variables that is off by a bias and by a share of itself."""
    question, (chances, error), proof = part.questions[k], law, part.proof
    error = error + (chances + bias) * proof.off
    low, high = (chances - error).ravel(), (chances + error).ravel()
    if not question.is_law:
        values = question.value(np.indices(chances.shape).reshape(chances.ndim, -1))
        mean = float(chances.ravel() @ values)
        off = float(error.ravel() @ np.abs(values)) + chances.size * 2.0**-50 * float(np.abs(values).max())
        low, high = np.array([mean - off]), np.array([mean + off])
    wider = bias + 2.0**-50 * (1.0 + abs(question.most) + abs(question.least))
    for row, (claimed_low, claimed_high) in enumerate(zip(proof.lower[k], proof.upper[k], strict=True)):
        proof.within(k, row, claimed_low <= low[row] - wider, claimed_high >= high[row] + wider)


def check_summed(part: checks.Part) -> float:
    """Sums over everything, or over a region around a target and a bound on what everything outside can do.

    By sweeps, or by extremes: `border` is then the higher state of each variable, and all high or all low is the most.
    """
    proof, plan = part.proof, part.plan
    order = proof.free(proof.array(plan["order"], "i", -1).tolist())
    sweep, sweeps = proof.array(plan["sweep"], "i", -1).tolist(), plan["sweeps"]
    inside, near = set(order), proof.factors.near(order)
    proof.closed |= inside
    outside = {v for scope, _ in near.pairs for v in scope} - inside
    members = sorted(inside | outside)
    state = dict(zip(members, proof.array(plan["border"], "i", len(members)).tolist(), strict=True))
    require(all(0 <= d < proof.states[v] for v, d in state.items()), "The border of a region has no such state.")
    borders = [{v: state[v] for v in outside}]
    borders += [{v: 1 - state[v] for v in outside}] if outside and not sweeps else []
    groups = {k: tuple(question.variables) for k, question in part.questions.items()}
    require(inside.issuperset(v for group in groups.values() for v in group), "A region does not hold its target.")
    sums = [Sums(near.fix(border), order, groups.values(), proof) for border in borders]
    if sweeps:
        fits = sweep and set(sweep) <= inside and sweeps >= 1 and len(sweep) * sweeps <= 10**7
        require(fits, "Sweeps leave the region, or are too many.")
        proof.spend(len(sweep) * sweeps / checks.BOUNDS + len(sweep) / checks.ROWS)
        disagreement = forward(influence(near, sweep), sweep * sweeps, {}, {})
    for k, question in part.questions.items():
        laws = [own.law(groups[k]) for own in sums]
        law = (np.mean([chances for chances, _ in laws], axis=0), np.mean([error for _, error in laws], axis=0))
        bias = _half_gap(question, near, state, laws, proof.off) if len(laws) > 1 else 0.0
        _check_law(part, k, law, question.bias(disagreement) if sweeps else bias)
    proof.checked.append(f"sums over a region of {len(order)} variables, and what {len(outside)} outside can do to it")
    proof.assumptions.append(checks.SOME_STATE)
    return 0.0


def _half_gap(question: Question, factors: Factors, upper: dict[int, int], laws: list[Law], relative: float) -> float:
    """How far the mean of the laws beside the highest and the lowest border is from the model's.

    Where pairs like both to be high, or both low, chances of higher states are between those beside these borders.
    """
    for scope, table in factors.pairs:
        require(len(scope) <= 2 and set(table.shape) == {2}, "Extremes are for at most two variables, of two states.")
        if len(scope) == 2:
            (a, b), (c, d) = table[:: 1 if upper[scope[0]] else -1, :: 1 if upper[scope[1]] else -1].tolist()
            likes = -math.inf in (b, c) or (-math.inf not in (a, d) and math.fsum((a, d, -b, -c)) >= 0.0)
            require(likes, "Neighbours do not all like to be equal, up to names.")
    total = 0.0
    for axis, (variable, weight) in enumerate(zip(question.variables, question.weights, strict=True)):
        others = tuple(a for a in range(len(question.variables)) if a != axis)
        high, low = (float(law.sum(axis=others)[upper[variable]]) for law, _ in laws)
        slack = sum(float(error.sum()) + relative for _, error in laws) + 2.0**-50 * laws[0][0].size
        total += weight * min(1.0, 0.5 * (max(0.0, high - low) + slack))
    return min(question.span, total)


def check_variation(part: checks.Part) -> float:
    """A bound on the distance of laws after a scan, from the factors or from a matrix that was given."""
    proof, plan, order, ((k, question),) = part.proof, part.plan, part.scan(), part.questions.items()
    error, initial = (proof.array(plan[name], "f", len(proof.states)) for name in ("error", "initial"))
    require(all(np.all((b >= 0.0) & (b <= 1.0)) for b in (error, initial)), "A bound is no probability.")
    require(not proof.plan["dropped"], "Steps of a scan would see what is left out.")
    rows = influence(proof.factors, order)
    if plan["matrix"]:
        triples, rows = proof.array(plan["matrix"], "f", -1, 3), {v: ([], 1.0) for v in rows}
        require(np.isfinite(triples).all() and np.all(triples[:, 2] >= 0.0), "An influence is below 0, or infinite.")
        for i, j, value in triples.tolist():
            require(i in rows and 0 <= j < len(error) and j == int(j), "The matrix has rows that nothing uses.")
            if i == j:  # nobody moves himself: there stands what all can do together
                rows[int(i)] = (rows[int(i)][0], min(1.0, value))
            else:
                rows[int(i)][0].append((int(j), value))
        proof.assumptions.append(checks.GIVEN)
    if (initial < 1.0).any():
        proof.assumptions.append("start and model disagree at most as the file says, under one joint coupling")
    proof.assumptions += ["a draw errs at most as the file says"] if error.any() else []
    bounds = forward(rows, order, dict(enumerate(error.tolist())), dict(enumerate(initial.tolist())))
    proof.within(k, 0, False, proof.upper[k][0] >= question.bias(bounds))
    proof.checked.append(f"the bias of {len(order)} steps by Dobrushin's bound")
    proof.assumptions.append(checks.SOME_STATE)
    return 0.0


_SCAN, _LAWS = {"scan": str, "steps": int, "confidence": float, "chains": int}, {"law", "linear"}
_DRAWN = {**_SCAN, "kernel": str, "places": str, "start": str, "trials": int, "aim": float, "run": int}
_OUTCOME = {"drawn": int, "block": int, "counts": str, "means": list}
_BOUND = {"scan": str, "steps": int, "error": str, "initial": str, "matrix": str}
_SETS, _TRIED = {**_DRAWN, "words": int}, {**_OUTCOME, "attempt": int}
_FIELD = {**_SCAN, "sites": str, "levels": dict, "slip": float}
METHODS: dict[str, checks.Method] = {
    "dobrushin": (checks.check_drawn, _LAWS, _DRAWN, _OUTCOME),
    "coalescence": (checks.check_drawn, {*_LAWS, "joint"}, _SETS, _TRIED),
    "sums": (check_summed, _LAWS, {"order": str, "border": str, "sweep": str, "sweeps": int}, {}),
    "variation": (check_variation, {"distance"}, _BOUND, {}),
    "field": (check_field, {"joint", "bias", *NUMBERS}, _FIELD, {"numbers": list}),
}
