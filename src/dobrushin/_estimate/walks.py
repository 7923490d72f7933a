"""Certain intervals for binary pairwise models of any sign, by trees of self-avoiding walks. [trusted]

The law of several variables follows by the chain rule, from walks in which the earlier variables are fixed. Walks are
made while the method is planned: their intervals are the answer. If they miss the tolerance, more walks are made in the
time that is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.local import count_laws
from dobrushin._estimate.method import AnswerRows, Choice, Method, Plan, allowed_seconds
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Mean, Shortfall, StateQuestion
from dobrushin._estimate.runs import unchecked_weights
from dobrushin._exact.walks import IMPOSSIBLE, SECONDS_PER_VISIT, WalkLaw, read_walks
from dobrushin._shared.running import Running
from dobrushin._shared.text import counted

# For a quick answer: number of visits of variables for each law (marginal), and the largest number of laws.
_QUICK_VISITS, _MAX_QUICK_LAWS = 10**5, 2
# For a quick answer: number of visits for a law if a prediction from fewer visits says that this number is enough.
_QUICK_FAR = 3 * 10**7
# Number of visits for each law that planning did not come to, if the tolerance is missed.
_FEW_VISITS = 10**4
# Least seconds to try one law.
_SECONDS_PER_LAW = 0.02
# Largest number of variables of a law.
_MAX_VARIABLES = 6
# Seconds that walks may take where the call has no time limit; an answer of another method that is expected within the
# second number of seconds is preferred.
_PATIENCE, _SOON_SECONDS = 10.0, 1.0
# Unless walks are asked for by name, they end where this multiple of the allowed visits is predicted.
_HOPELESS = 100.0
# Share of the tolerance for the effect of branches that are cut: the rest is for rounding.
_SHARE = 0.999


class Walks(Method):
    """The method "walks": bounds from the tree of self-avoiding walks that start at each target."""

    name: ClassVar[str] = "walks"
    is_certain: ClassVar[bool] = True
    works_nearby: ClassVar[bool] = True
    has_proof: ClassVar[bool] = False

    def __init__(self, query: Query, plan: Plan, laws: list[list[WalkLaw]]) -> None:
        super().__init__(query, plan)
        self.laws = laws

    @classmethod
    def asking_seconds(cls, query: Query, quickly: bool) -> float | None:
        laws = count_laws(query)
        return None if quickly and laws > _MAX_QUICK_LAWS else _SECONDS_PER_LAW * laws

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        if choice.quickly:
            tree = read_walks(query.model._form)
            if isinstance(tree, str) or tree.is_attractive:  # sums with extreme boundary states are as good
                return None
            own = cls._propose(query, _QUICK_VISITS * count_laws(query), False, _QUICK_FAR)
            return own if own.plan.reaches_tolerance else None
        best, patience = choice.best, allowed_seconds(query, _PATIENCE)
        if not choice.by_name and best is not None:
            if best.plan.is_certain or best.plan.seconds <= _SOON_SECONDS:
                return best
            patience = min(patience, best.plan.seconds)
        own = cls._propose(query, int(patience / SECONDS_PER_VISIT), choice.by_name)
        if own.plan.reaches_tolerance or choice.by_name:
            return own
        choice.so_far.append(own.so_far)
        if best is None:
            raise cls.refuse(f"{own.plan.reason}, and leave a half-width of {own.half_width:.3g}.")
        return best

    @classmethod
    def _propose(cls, query: Query, most: int, by_name: bool, far: int = 0) -> Walks:
        """Make walks with about `most` visits of variables, and return them as a proposal.

        Unless the user asked for this method (`by_name`), stop at the first law that needs more visits. `far` is the
        number of visits allowed for a law if a prediction says that it is enough.
        """
        tree = read_walks(query.model._form)
        if isinstance(tree, str):
            raise query.space.impossible() if tree == IMPOSSIBLE else cls.refuse(tree)
        laws = [[WalkLaw(tree, positions) for positions in _laws_of(question)] for question in query.questions]
        own = cls(query, cls.draft(query, "", None), laws)
        reaches = own._narrow(most, by_name, far)
        visited = sum(law.visited for group in laws for law in group)
        reason = f"walks from {counted(count_laws(query), 'target')} visit {visited:,} variables"
        seconds = SECONDS_PER_VISIT * visited
        bias = min(own.half_width, query.tolerance)
        own.plan = cls.draft(query, reason, bias, seconds=seconds, reaches_tolerance=reaches)
        return own

    def _narrow(self, most: int, to_the_end: bool, far: int = 0) -> bool:
        """Make about `most` more visits of variables; return whether all laws now meet the tolerance.

        Unless `to_the_end`, stop at the first law that does not meet it.
        """
        reaches, left = True, count_laws(self.query)
        for law, goal in self._goals():
            if reaches or to_the_end:
                before = law.visited
                hopeless = math.inf if to_the_end or far else _HOPELESS * most
                reaches &= law.narrow(goal, most // left, far, hopeless)
                most -= law.visited - before
            left -= 1
        return reaches

    def _goals(self) -> Iterator[tuple[WalkLaw, float]]:
        """Yield each law with the half-width that the tolerance allows for it."""
        for question, group in zip(self.query.questions, self.laws, strict=True):
            for law in group:
                yield law, _SHARE * self.query.tolerance / _slope(question)

    @property
    def half_width(self) -> float:
        return max(float(0.5 * (rows.upper - rows.lower).max()) for rows in self.rows)

    def updated(self) -> NDArray[np.int64]:
        """Return the positions of the variables whose neighbours were read."""
        return np.flatnonzero(np.logical_or.reduce([law.seen for group in self.laws for law in group]))

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """Return the intervals of the walks; raise `CertificateError`, with them, if one is too wide."""
        left = running.deadline.left
        if left < math.inf and not self.plan.reaches_tolerance and not self.query.is_part:
            self._narrow(int(left / SECONDS_PER_VISIT), True)
        estimate = self._estimate()
        if not self.misses(estimate):
            return estimate
        why = Shortfall.SUMS if self.query.time_limit is None else Shortfall.TIME
        estimate = replace(estimate, stopped_by=why)
        if why is Shortfall.TIME:
            return estimate
        reason = f"{self.plan.reason}, and leave a half-width of {estimate.half_width.max():.3g}."
        raise self.too_wide(
            estimate, reason, "All the intervals are valid. A larger time_limit= or tolerance= may help."
        )

    def so_far(self) -> Estimate | None:
        """Return the intervals of the walks made so far; None if walks in a submodel reached its border."""
        for law, goal in self._goals():
            if not law.visited:  # planning stopped at an earlier law
                law.narrow(goal, _FEW_VISITS)
        return None if self.query.reaches_border(self.updated()) else self._estimate()

    def _estimate(self) -> Estimate:
        words = (
            "the odds of a variable are those at the root of its tree of self-avoiding walks, which are monotone in "
            "the odds of every branch; branches that were cut may have any odds that their potentials allow",
            "sums, products and potentials were rounded outwards (included)",
            *unchecked_weights(self.query),
        )
        return self.assemble(self.rows, 1.0, words)

    @property
    def rows(self) -> list[AnswerRows]:
        """Return the rows of each question, from the walks made so far."""
        return [_rows_of(question, group) for question, group in zip(self.query.questions, self.laws, strict=True)]

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "The probabilities follow from the trees of all walks that start at a target and visit no variable twice. "
            "No random draws are involved.",
            f"Branches with the least effect were cut. The variables beyond change no result by more than "
            f"{estimate._bias_text}, rounding included: the intervals are valid with certainty.",
        ]


def _laws_of(question: StateQuestion) -> list[tuple[int, ...]]:
    """Return the variables of each law that a question needs: each variable alone, or all jointly."""
    positions = tuple(question.positions.tolist())
    if not question.needs_joint_law:
        return [(v,) for v in positions]
    if len(positions) > _MAX_VARIABLES:
        raise Walks.refuse(f"walks give the joint law of at most {_MAX_VARIABLES} variables, not of {len(positions)}.")
    return [positions]


def _slope(question: StateQuestion) -> float:
    """Return the largest ratio between the half-width of the answer and those of the joint states' probabilities."""
    if not isinstance(question, Mean):
        return 1.0
    return question.span * 0.5 * 2 ** len(question.positions)


def _rows_of(question: StateQuestion, laws: list[WalkLaw]) -> AnswerRows:
    low, high = (np.concatenate(ends) for ends in zip(*(law.limits() for law in laws), strict=True))
    if isinstance(question, Mean):
        values = question.values(np.array(list(product(*question.values_of))), 0)  # the last variable changes fastest
        middle = 0.5 * (values.max() + values.min())
        ends = np.stack([low * (values - middle), high * (values - middle)])
        slack = 2.0**-48 * len(values) * float(np.abs(values).max(initial=1.0))
        low, high = (np.array([middle + part.sum()]) for part in (ends.min(axis=0) - slack, ends.max(axis=0) + slack))
    low, high = np.maximum(low, question.bounds[0]), np.minimum(high, question.bounds[1])
    return AnswerRows(0.5 * (low + high), low, high, 0.5 * (high - low))
