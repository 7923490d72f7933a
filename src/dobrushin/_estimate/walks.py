"""Certain answers for binary pairwise models of any sign, by trees of self-avoiding walks. [trusted]

Laws of several variables follow by the chain rule, from walks in which the variables before are fixed. Planning makes
the walks: their intervals are the answer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.local import count_laws
from dobrushin._estimate.method import AnswerRows, Choice, Method, Plan, allowed_seconds
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Mean, Shortfall, StateQuestion
from dobrushin._estimate.runs import unchecked_weights
from dobrushin._exact.walks import IMPOSSIBLE, SECONDS_PER_VISIT, WalkLaw, read_walks
from dobrushin._shared.call import LateError
from dobrushin._shared.running import Running
from dobrushin._shared.text import counted

# Variables visited for a law before anything is sampled, and laws for which that is tried.
_QUICK_VISITS, _MAX_QUICK_LAWS = 10**5, 2
# Variables visited for each law that planning did not come to, where the tolerance is missed.
_FEW_VISITS = 10**4
# Variables visited at once for a law where fewer were enough for a prediction that these will do.
_QUICK_FAR = 3 * 10**7
_SECONDS_PER_LAW = 0.02
# Largest number of variables of a law.
_MOST_VARIABLES = 6
# Seconds that walks may take where the call sets no limit, and in the place of an answer that is expected to take more
# than the second number.
_PATIENCE, _SOON = 10.0, 1.0
# Share of the tolerance for what is cut off: the rest is for rounding.
_SHARE = 0.999


class Walks(Method):
    """Walks from each target."""

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
            if isinstance(tree, str) or tree.is_attractive:  # sums with extreme boundaries do as well
                return None
            own = cls._propose(query, _QUICK_VISITS * count_laws(query), False, _QUICK_FAR)
            return own if own.plan.reaches_tolerance else None
        best, patience = choice.best, allowed_seconds(query, _PATIENCE)
        if not choice.by_name and best is not None:
            if best.plan.is_certain or best.plan.seconds <= _SOON:
                return best
            patience = min(patience, best.plan.seconds)
        own = cls._propose(query, int(patience / SECONDS_PER_VISIT), choice.by_name)
        if own.plan.reaches_tolerance or choice.by_name:
            return own
        choice.so_far.append(own.so_far)
        if best is None:
            raise cls.refuse(f"{own.plan.reason}, and leave {own.half_width:.3g}.")
        return best

    @classmethod
    def _propose(cls, query: Query, most: int, by_name: bool, far: int = 0) -> Walks:
        """Make walks that visit about so many variables; unless asked by name, end at the first law that needs more."""
        tree = read_walks(query.model._form)
        if isinstance(tree, str):
            raise query.space.impossible() if tree == IMPOSSIBLE else cls.refuse(tree)
        laws: list[list[WalkLaw]] = []
        left = count_laws(query)
        reaches, visited = True, 0
        for question in query.questions:
            laws.append([])
            for positions in _laws_of(question):
                law = WalkLaw(tree, positions)
                laws[-1].append(law)
                if reaches or by_name:
                    reaches &= law.narrow(_SHARE * query.tolerance / _slope(question), (most - visited) // left, far)
                visited += law.visited
                left -= 1
        reason = f"walks from {counted(count_laws(query), 'target')} visit {visited:,} variables"
        seconds = SECONDS_PER_VISIT * visited
        own = cls(query, cls.draft(query, reason, None, seconds=seconds, reaches_tolerance=reaches), laws)
        own.plan = replace(own.plan, bias=min(own.half_width, query.tolerance))
        return own

    @property
    def half_width(self) -> float:
        """Return half the width of the widest interval."""
        return max(float(0.5 * (rows.upper - rows.lower).max()) for rows in self._rows())

    def updated(self) -> NDArray[np.int64]:
        """Return the variables whose neighbours were read."""
        seen = np.zeros(self.query.model.n_variables, dtype=np.bool_)
        for law in (law for group in self.laws for law in group):
            seen |= law.seen
        return np.flatnonzero(seen)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """Return the intervals of the walks; a `CertificateError` with them if one is wider than the tolerance."""
        estimate = self._estimate()
        if not self.misses(estimate):
            return estimate
        why = Shortfall.SUMS if self.query.time_limit is None else Shortfall.TIME
        estimate = replace(estimate, stopped_by=why)
        if why is Shortfall.TIME:
            return estimate
        reason = f"{self.plan.reason}, and leave {estimate.half_width.max():.3g}."
        raise self.too_wide(
            estimate, reason, "All the intervals are valid. A larger time_limit= or tolerance= may help."
        )

    def so_far(self) -> Estimate | None:
        """Return the intervals of the walks; None if they read what a part of a model does not have."""
        for question, group in zip(self.query.questions, self.laws, strict=True):
            for law in group:
                if not law.visited:  # planning ended at a law before it
                    with suppress(LateError):
                        law.narrow(_SHARE * self.query.tolerance / _slope(question), _FEW_VISITS)
        return None if self.query.reaches_border(self.updated()) else self._estimate()

    def _estimate(self) -> Estimate:
        words = (
            "the odds of a variable are those of the root of its tree of self-avoiding walks, and monotone in those of "
            "every branch; branches that were cut have the range that their potentials allow",
            "sums, products and potentials were rounded outwards (included)",
            *unchecked_weights(self.query),
        )
        return self.assemble(self._rows(), 1.0, words)

    def _rows(self) -> list[AnswerRows]:
        return [_rows_of(question, group) for question, group in zip(self.query.questions, self.laws, strict=True)]

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "The probabilities follow from the trees of all walks that start at a target and visit no variable twice. "
            "No random draws are involved.",
            f"Branches that matter least were cut. Whatever lies beyond changes no result by more than "
            f"{estimate._bias_text}, rounding included: the intervals are valid with certainty.",
        ]


def _laws_of(question: StateQuestion) -> list[tuple[int, ...]]:
    """Return the variables of each law that a question needs."""
    positions = tuple(question.positions.tolist())
    if not question.needs_joint_law:
        return [(v,) for v in positions]
    if len(positions) > _MOST_VARIABLES:
        raise Walks.refuse(f"laws of at most {_MOST_VARIABLES} variables are found by walks, not {len(positions)}.")
    return [positions]


def _slope(question: StateQuestion) -> float:
    """Bound the half-width of an answer by that of the joint states."""
    if not isinstance(question, Mean):
        return 1.0
    return question.span * 0.5 * 2 ** len(question.positions)


def _rows_of(question: StateQuestion, laws: list[WalkLaw]) -> AnswerRows:
    low, high = (np.concatenate(ends) for ends in zip(*(law.limits() for law in laws), strict=True))
    if isinstance(question, Mean):
        values = question.values(_states_of(question), 0)
        middle = 0.5 * (values.max() + values.min())
        ends = np.stack([low * (values - middle), high * (values - middle)])
        slack = 2.0**-48 * len(values) * float(np.abs(values).max(initial=1.0))
        low, high = (np.array([middle + part.sum()]) for part in (ends.min(axis=0) - slack, ends.max(axis=0) + slack))
    least, most = question.bounds
    low, high = np.maximum(low, least), np.minimum(high, most)
    return AnswerRows(0.5 * (low + high), low, high, 0.5 * (high - low))


def _states_of(question: Mean) -> NDArray[Any]:
    """Return all joint states of a question, the last variable changing fastest."""
    return np.array(list(product(*question.values_of)))
