"""The checks of answers that nothing was drawn for: sums, regions, and bounds on the bias of a scan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.checks import BOUNDS, ROWS, SOME_STATE, Part
from dobrushin.verify.document import fields, require
from dobrushin.verify.factors import Factors
from dobrushin.verify.influence import Row, forward
from dobrushin.verify.questions import Question
from dobrushin.verify.sums import Sums

Law = tuple[NDArray[np.float64], NDArray[np.float64]]  # probabilities, and how far they may be off


def check_exact(part: Part) -> float:
    """Sums over all states of what is connected with the targets."""
    fields(part.plan, "a part", method=str, questions=list, dropped=str, orders=list)
    fields(part.outcome, "outcomes of a part")
    factors, off = part.leave_out()
    answered: list[int] = []
    for about in part.plan["orders"]:
        fields(about, "an order", order=str, questions=list)
        order, own = part.proof.numbers(about["order"]), about["questions"]
        require(all(k in part.chosen for k in own), "An order answers a question of another part.")
        answered += own
        part.proof.closed |= set(order)
        groups = [question.variables for k in own if len((question := part.questions[k]).variables) > 1]
        sums = Sums(_touching(factors, set(order)), order, groups, part.proof.spend)
        for k in own:
            _check_law(part, k, sums.law(tuple(part.questions[k].variables)), math.expm1(2.0 * off), 0.0)
        part.proof.checked.append(f"sums over {len(order)} variables, in the order of the file")
    require(sorted(answered) == sorted(part.chosen), "Not every question has its order.")
    part.proof.assume("what no factor of the proof connects with the targets allows some state")
    return 0.0


def _touching(factors: Factors, inside: set[int]) -> Factors:
    """The factors that touch some variables."""
    kept = sorted({k for v in inside for k in factors.touching[v]})
    return Factors(factors.states, [factors.scopes[k] for k in kept], [factors.tables[k] for k in kept])


def _check_law(part: Part, k: int, law: Law, relative: float, bias: float) -> None:
    """Compare the claim with a law of its variables that is off by a bias and by a share of itself."""
    question, (chances, error) = part.questions[k], law
    error = error + (chances + bias) * relative
    if question.is_counted:
        low, high = (chances - error).ravel(), (chances + error).ravel()
    else:
        require(question.kind == "linear", "Sums do not tell a distance.")
        values = question.value(np.indices(chances.shape).reshape(chances.ndim, -1))
        mean = float(chances.ravel() @ values)
        off = float(error.ravel() @ np.abs(values)) + chances.size * 2.0**-50 * float(np.abs(values).max())
        low, high = np.array([mean - off]), np.array([mean + off])
    wider = bias + 2.0**-50 * (1.0 + abs(question.most) + abs(question.least))
    for row, (claimed_low, claimed_high) in enumerate(zip(part.proof.lower[k], part.proof.upper[k], strict=True)):
        part.proof.within(k, row, claimed_low <= low[row] - wider, claimed_high >= high[row] + wider)


def check_local(part: Part) -> float:
    """Sums over a region around each target, and a bound on what everything outside can do."""
    fields(part.plan, "a part", method=str, questions=list, dropped=str, regions=list)
    fields(part.outcome, "outcomes of a part")
    factors, off = part.leave_out()
    for about in part.plan["regions"]:
        fields(about, "a region", question=int, order=str, borders=list, sweep=str, sweeps=int)
        _check_region(part, about, factors, math.expm1(2.0 * off))
    require([about["question"] for about in part.plan["regions"]] == part.chosen, "Regions and questions do not fit.")
    part.proof.checked.append(f"sums over {len(part.chosen)} regions, and what is outside of them")
    part.proof.assume(SOME_STATE)
    return 0.0


def _check_region(part: Part, about: dict[str, Any], factors: Factors, relative: float) -> None:
    proof, question = part.proof, part.questions[about["question"]]
    order = proof.numbers(about["order"])
    inside = set(order)
    proof.closed |= inside
    require(set(question.variables) <= inside, "A region does not hold its target.")
    near = _touching(factors, inside)
    outside = sorted({v for scope in near.scopes for v in scope} - inside)
    require(len(about["borders"]) in (1, 2) and (outside or len(about["borders"]) == 1), "A region has no border.")
    borders: list[dict[int, int]] = []
    laws: list[Law] = []
    for name in about["borders"]:
        digits = proof.array(name, "i", len(outside)).tolist() if name else []
        border = dict(zip(outside, digits, strict=False))
        fits = len(digits) == len(outside) and all(0 <= d < factors.states[v] for v, d in border.items())
        require(fits, "The border of a region has no such state.")
        borders.append(border)
        sums = Sums(near.fix(border), order, [question.variables], proof.spend)
        laws.append(sums.law(tuple(question.variables)))
    bias = 0.0
    if len(laws) == 1 and outside:
        sweep, sweeps = proof.numbers(about["sweep"]), about["sweeps"]
        fits = bool(sweep) and set(sweep) <= inside and sweeps >= 1 and len(sweep) * sweeps <= 10**7
        require(fits, "Sweeps leave the region, or are too many.")
        proof.spend(len(sweep) * sweeps / BOUNDS + len(sweep) / ROWS)
        bias = question.bias(forward({v: Row(near, v) for v in set(sweep)}, sweep * sweeps, {}))
    else:
        require(about["sweep"] == "" and about["sweeps"] == 0, "This region needs no sweeps.")
    law = laws[0]
    if len(laws) == 2:
        bias = _half_gap(question, near, borders, laws, relative)
        law = (0.5 * (laws[0][0] + laws[1][0]), 0.5 * (laws[0][1] + laws[1][1]))
    _check_law(part, about["question"], law, relative, bias)


def _half_gap(question: Question, factors: Factors, borders: list[Any], laws: list[Law], relative: float) -> float:
    """How far the mean of the laws under the two extreme borders is from the model's.

    Where pairs of variables of two states like to be equal, up to names, the chance that a variable is in its higher
    state is between those under the lowest and the highest border.
    """
    low, high = borders
    members = {v for scope in factors.scopes for v in scope} | set(question.variables)
    require(all(factors.states[v] == 2 for v in members), "Extremes are for variables of two states.")
    require(all(low[v] == 1 - high[v] for v in high), "The borders are not the two extremes.")
    upper = _higher_states(factors, members, high)
    total = 0.0
    for axis, (variable, weight) in enumerate(zip(question.variables, question.weights, strict=True)):
        others = tuple(a for a in range(len(question.variables)) if a != axis)
        chances = [float(law.sum(axis=others)[upper[variable]]) for law, _ in laws]
        slack = sum(float(error.sum()) + relative for _, error in laws) + 2.0**-50 * laws[0][0].size
        total += weight * min(1.0, 0.5 * (max(0.0, chances[1] - chances[0]) + slack))
    return min(question.span, total)


def _higher_states(factors: Factors, members: set[int], given: dict[int, int]) -> dict[int, int]:
    """Which state of each variable is the higher one, such that all pairs like both high or both low."""
    edges: dict[int, list[tuple[int, int]]] = {v: [] for v in members}
    for scope, table in zip(factors.scopes, factors.tables, strict=True):
        require(len(scope) <= 2, "Extremes are for factors of at most two variables.")
        if len(scope) == 2:
            (a, b), (c, d) = table.tolist()
            forbidden = (-math.inf in (b, c)) - (-math.inf in (a, d))
            sign = forbidden if -math.inf in (a, b, c, d) else math.fsum((a, d, -b, -c))
            if sign:
                edges[scope[0]].append((scope[1], int(sign < 0)))
                edges[scope[1]].append((scope[0], int(sign < 0)))
    high = dict(given)
    for root in [*given, *members]:
        high.setdefault(root, 1)
        waiting = [root]
        while waiting:
            v = waiting.pop()
            for other, flip in edges[v]:
                if other not in high:
                    high[other] = high[v] ^ flip
                    waiting.append(other)
                require(high[other] == high[v] ^ flip, "Neighbours do not all like to be equal, up to names.")
    return high


def check_variation(part: Part) -> float:
    """A bound on the distance of laws after a scan, from the factors or from a matrix that was given."""
    fields(part.plan, "a part", method=str, questions=list, scan=dict, error=str, initial=str, matrix=str)
    fields(part.outcome, "outcomes of a part")
    proof, order = part.proof, part.scan()
    (k,), (question,) = part.chosen, part.questions.values()
    require(question.kind == "distance", "A bound on a scan tells a distance.")
    count = len(proof.names)
    error, initial = (
        dict(enumerate(proof.array(part.plan[name], "f", count).tolist())) if part.plan[name] else None
        for name in ("error", "initial")
    )
    for bounds in (error, initial):
        require(all(0.0 <= bound <= 1.0 for bound in (bounds or {}).values()), "A bound is no probability.")
    rows = {v: Row(proof.factors, v) for v in set(order)}
    if part.plan["matrix"]:
        triples = proof.array(part.plan["matrix"], "f", -1, 3)
        require(np.isfinite(triples).all() and np.all(triples[:, 2] >= 0.0), "An influence is below 0, or infinite.")
        for row in rows.values():
            row.pairs, row.cap = [], 1.0
        for i, j, value in triples.tolist():
            require(i in rows and 0 <= j < count and j == int(j), "The matrix has rows that nothing uses.")
            if i == j:  # nobody moves himself: there stands what all can do together
                rows[int(i)].cap = min(1.0, value)
            else:
                rows[int(i)].pairs.append((int(j), value))
        proof.assume("the matrix bounds what each variable does to each other one, its diagonal what all do")
    if initial is not None:
        proof.assume("start and model disagree at most as the file says, under one joint coupling")
    value = question.bias(forward(rows, order, error or {}, initial))
    proof.within(k, 0, False, proof.upper[k][0] >= value)
    proof.checked.append(f"the bias of {len(order)} steps by Dobrushin's bound")
    proof.assume(SOME_STATE)
    if error is not None:
        proof.assume("a draw errs at most as the file says")
    return 0.0


def check_nothing(part: Part) -> float:
    """Rows of which nothing is known."""
    fields(part.plan, "a part", method=str, questions=list)
    fields(part.outcome, "outcomes of a part")
    for k, question in part.questions.items():
        for row in range(question.rows):
            part.proof.within(k, row, False, False)
    return 0.0
