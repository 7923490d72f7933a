"""Exact sums over a region around each target, with a bound on the effect of its boundary. [trusted]"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import AnswerRows, Choice, Method, Plan
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Shortfall, StateQuestion
from dobrushin._estimate.regions import (
    CORRELATIONS,
    DOBRUSHIN,
    EXTREMES,
    SECONDS_PER_CELL,
    SECONDS_PER_REGION,
    WALKS,
    Growth,
    TargetRegion,
    WantedLaw,
)
from dobrushin._estimate.runs import unchecked_weights
from dobrushin._exact.engine import Law
from dobrushin._shared.call import NO_DEADLINE, LateError, current_deadline
from dobrushin._shared.environment import log
from dobrushin._shared.running import Running
from dobrushin._shared.text import counted
from dobrushin.errors import CertificateError

# Table entries that planning may sum for one target; seconds that an answer may take if no other method has one.
_PILOT_CELLS, _PATIENCE = 2.0**18, 60.0
# Table entries that may be summed even where no time is left.
_LEAST_CELLS = 2.0**10
# This method is preferred, as its answers are certain, up to this multiple of the best other method's time, or up to
# this number of seconds.
_PREFERRED, _QUICK = 1.5, 0.03
# The final sums may have up to this multiple of the planned number of table entries.
_OVERRUN = 16.0
# Largest number of laws (marginals) for which sums are tried before anything else is planned.
_MAX_QUICK_LAWS = 2
# The share of the tolerance for the boundary effect: the rest is for rounding.
_SHARE = 0.999
# The share of a target's time that its last sum may take: smaller sums before it take the rest.
_SHARE_OF_TIME = 0.5
# With more than `_MANY` targets, only `_SOME` of them, evenly spaced, are planned to predict the time of all.
_SOME, _MANY = 8, 64


class Local(Method):
    """The method "local": sums over a region around each target."""

    name: ClassVar[str] = "local"
    is_certain: ClassVar[bool] = True
    works_nearby: ClassVar[bool] = True

    def __init__(self, query: Query, plan: Plan, growths: list[Growth], rival: Method | None) -> None:
        super().__init__(query, plan)
        self.growths, self.rival = growths, rival

    @classmethod
    def asking_seconds(cls, query: Query, quickly: bool) -> float | None:
        laws = count_laws(query)
        return None if quickly and laws > _MAX_QUICK_LAWS else SECONDS_PER_REGION * laws

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        best = choice.best
        worth = _QUICK if choice.quickly else _PATIENCE
        if best is not None:
            worth = min(worth, max(_PREFERRED * best.plan.seconds, _QUICK))
        for question in query.questions:
            cls.refuse_many_states(query, question)
        least = SECONDS_PER_REGION * count_laws(query)
        if least > worth:
            raise cls.refuse(
                f"sums around each target would take at least {least:.2g} s, more than the {worth:.2g} s allowed."
            )
        growths = []
        for question in query.questions:
            places = np.arange(len(question.positions))
            for law in [places] if question.needs_joint_law else np.split(places, len(places)):
                wanted = WantedLaw(question.positions[law], question.weights[law])
                growths.append(Growth(query, wanted, _SHARE * query.tolerance))
        reaches = True
        try:
            seconds = cls._look(query, growths, worth)
        except (CertificateError, LateError):
            if not choice.by_name:
                unfinished = cls(query, cls.draft(query, _describe(growths), None), growths, None)
                choice.so_far.append(unfinished.so_far)
                raise
            reaches, seconds = False, _PATIENCE
        if query.is_part:  # regions must not reach the border of a submodel
            for growth in growths:
                growth.limit_growth()
        bias = min(query.tolerance, max((region.bias for region in _best_of(growths)), default=math.inf))
        plan = cls.draft(query, _describe(growths), bias, seconds=seconds, reaches_tolerance=reaches)
        # A quick proposal has made its sums while it was planned.
        is_wanted = not choice.quickly or all(growth.is_done for growth in growths)
        return cls(query, plan, growths, best) if is_wanted else None

    @classmethod
    def _look(cls, query: Query, growths: list[Growth], worth: float) -> float:
        """Plan the sums for the targets and return the expected seconds for all of them.

        Raise `CertificateError` if the expected time exceeds `worth` seconds. Of many targets, only some are planned.
        """
        count, seconds = len(growths), 0.0
        some = list(dict.fromkeys(np.linspace(0, count - 1, _SOME).astype(int).tolist()))
        others = [] if count > _MANY and not query.is_part else sorted(set(range(count)) - set(some))
        for done, k in enumerate([*some, *others], start=1):
            growth = growths[k]
            growth.look(_PILOT_CELLS)
            if growth.next is None:
                raise cls.refuse(_why_not(growth))
            region = growth.next
            seconds += region.seconds
            if not region.is_summed and region.can_bound(0.0):
                seconds += region.cells * SECONDS_PER_CELL
            if done >= len(some) and seconds * count / done > worth:
                raise cls.refuse(_too_dear(growth, seconds * count / done, worth))
        return seconds * count / (len(some) + len(others))

    def updated(self) -> NDArray[np.int64]:
        """Return the positions of all variables that may be summed over."""
        parts = [growth.reach.ball(growth.limit).positions for growth in self.growths]
        return np.unique(np.concatenate(parts))

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """Return the answer; raise `CertificateError`, with the intervals, if one is wider than the tolerance."""
        _ = self.query.space.start  # raises if the evidence is impossible
        is_short_of_time = False
        for k, growth in enumerate(self.growths):
            is_short_of_time |= self._finish(growth, running.deadline.left / (len(self.growths) - k))
        estimate = self._assemble()
        if not self.misses(estimate):
            return estimate
        boundaries = [math.inf if growth.best is None else growth.best.disagreement.max() for growth in self.growths]
        reason = Shortfall.SUMS if max(boundaries) > self.query.tolerance else Shortfall.ROUNDING
        if reason is Shortfall.SUMS and (is_short_of_time or running.deadline.is_over):
            reason = Shortfall.TIME
        estimate = replace(estimate, stopped_by=reason)
        if running.deadline is not NO_DEADLINE:
            return estimate
        if self.rival is not None:
            log.info("method %s missed its tolerance; falling back to %s", self.name, self.rival.name)
            return self.rival.answer(sequence, running)
        largest = max((region.size for region in _best_of(self.growths)), default=0)
        wide, _, widest = self.describe_wide(estimate)
        words = (
            f"sums over regions of up to {largest} variables leave {counted(wide, 'target')} with intervals wider than "
            f"the tolerance ({widest})."
        )
        raise self.too_wide(estimate, words, "All the intervals are valid. A larger tolerance may help.")

    def so_far(self) -> Estimate | None:
        """Return the intervals that can be had in a share of the planning time that is left; None if there are none.

        The intervals are not valid, and None is returned, if a region reaches the border of a submodel.
        """
        seconds = _SHARE_OF_TIME * current_deadline().work_left / len(self.growths)
        cells = max(_LEAST_CELLS, min(_PILOT_CELLS, seconds / SECONDS_PER_CELL))
        for growth in self.growths:
            with suppress(LateError):
                if growth.best is None:
                    growth.look(cells)
                growth.shrink_to(cells)
        regions = [region.ball.positions for region in _best_of(self.growths)]
        is_sound = bool(regions) and not self.query.reaches_border(np.concatenate(regions))
        return self._assemble() if is_sound else None

    def _finish(self, growth: Growth, seconds: float) -> bool:
        """Sum the planned region of a target, and larger ones while the tolerance is missed and time is left.

        Return whether the time limit kept the sums smaller than they would otherwise be.
        """
        planned = _PILOT_CELLS if growth.next is None else max(_PILOT_CELLS, growth.next.cells)
        patient = min(_OVERRUN * planned, _PATIENCE / SECONDS_PER_CELL)
        in_time = _SHARE_OF_TIME * seconds / SECONDS_PER_CELL
        most = max(_LEAST_CELLS, min(patient, in_time))
        with suppress(LateError):
            growth.look(most)
        with suppress(LateError):  # earlier sums are kept
            growth.shrink_to(most)
        return in_time < patient

    def _assemble(self) -> Estimate:
        rows, worst, growths = [], 0.0, iter(self.growths)
        for question in self.query.questions:
            laws = 1 if question.needs_joint_law else len(question.positions)
            part, error = self._rows(question, list(islice(growths, laws)))
            rows.append(part)
            worst = max(worst, error)
        ways = {region.bounded_by for region in _best_of(self.growths) if not region.is_closed}
        words = [
            f"the states of regions around the targets were summed in floating point, good to {worst:.1g} (included)"
        ]
        if EXTREMES in ways:
            words.append(
                "couplings in these regions are attractive after relabelling states, so the law of the model lies "
                "between the laws given the two extreme boundary states (in stochastic order)"
            )
        if CORRELATIONS in ways:
            words.append(
                "the model is a ferromagnet after relabelling states, so means of products of spins lie between those "
                "without the boundary of these regions and those given its favoured states (Griffiths' inequalities)"
            )
        if DOBRUSHIN in ways:
            words.append("Dobrushin's bound, rounded upwards, limits the effect of the boundary of these regions")
        if WALKS in ways:
            words.append("messages along walks, rounded upwards, limit the effect of the boundary of these regions")
        return self.assemble(rows, 1.0, (*words, *unchecked_weights(self.query)))

    def _rows(self, question: StateQuestion, growths: list[Growth]) -> tuple[AnswerRows, float]:
        """Return the rows of a question, and the rounding error of its sums, from the regions around its targets."""
        found = [_law_of(growth) for growth in growths]
        laws, disagreement = [law for law, _ in found], np.concatenate([part for _, part in found])
        rounding = self.query.space.rounding
        error = max(law.error for pair in laws for law in pair)
        ends = [np.concatenate([pair[end].probabilities for pair in laws]) for end in (0, -1)]
        values, errors = zip(*(question.exact(end, error) for end in ends), strict=True)
        value = 0.5 * (values[0] + values[1])
        # Rounding in the evidence changes no probability by more than this.
        slack = question.span * (math.expm1(2.0 * rounding) if rounding < 1.0 else 1.0) + 2.0**-190
        # A mean adds up all table entries, each times a value.
        size = max(map(len, ends)) * max(1.0, *map(abs, question.bounds))
        slack += size * max(law.loss for pair in laws for law in pair)
        bias = np.minimum(question.biases(disagreement) + np.maximum(*errors) * (1.0 + 2.0**-40) + slack, question.span)
        return AnswerRows.within(question, value, value, value, bias * (1.0 + 2.0**-50)), error

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "The probabilities were summed over all states of a region around each target, with the variables on its "
            "boundary fixed. No random draws are involved.",
            f"Other boundary states change a result by at most {estimate._bias_text}, rounding included. The intervals "
            "contain this bound and are therefore valid with certainty.",
        ]


def _best_of(growths: list[Growth]) -> list[TargetRegion]:
    return [growth.best for growth in growths if growth.best is not None]


def _law_of(growth: Growth) -> tuple[list[Law], NDArray[np.float64]]:
    """Return the law of the targets summed over their region, and bounds on its distance from their law in the model.

    Where there is no region, or no time to sum it, the law is uniform and the bound is 1.
    """
    region, positions = growth.best or growth.next, growth.wanted.positions
    with suppress(LateError):
        if region is not None and region.laws and all(law.error < math.inf for law in region.laws):
            return region.laws, region.disagreement
    states = math.prod(growth.query.model._form.cardinalities[positions].tolist())
    return [Law(np.full(states, 1.0 / states), 0.0, 0.0)], np.ones(len(positions))


def count_laws(query: Query) -> int:
    """Return how many laws a query needs: one for each variable, or one joint law for each question about several."""
    return sum(1 if question.needs_joint_law else len(question.positions) for question in query.questions)


def _describe(growths: list[Growth]) -> str:
    known = [region for growth in growths if (region := growth.next or growth.best) is not None]
    if not known:
        return "sums over regions around the targets"
    largest = max(known, key=lambda region: region.size)
    words = f"sums over {counted(largest.size, 'variable')}"
    if largest.order is not None:
        words += f" (width {largest.order.bits:.0f})"
    ways = sorted({region.bounded_by for region in known if not region.is_closed}, reverse=True)
    return f"{words}; the boundary is bounded by {' and '.join(ways)}" if ways else words


def _why_not(growth: Growth) -> str:
    """Explain why no region reaches the tolerance."""
    if growth.best is None:
        return "no region around the targets is small enough to be summed."
    return (
        f"summing a region of {counted(growth.best.size, 'variable')} leaves a boundary effect of "
        f"{growth.best.bias:.3g} (bounded by {growth.best.bounded_by}); a larger region barely helps."
    )


def _too_dear(growth: Growth, seconds: float, worth: float) -> str:
    best, size = growth.best, 0 if growth.next is None else growth.next.size
    reached = (
        f"; a region of {counted(best.size, 'variable')} leaves a boundary effect of {best.bias:.3g}" if best else ""
    )
    if seconds == math.inf:
        return f"sums over about {size} variables would need tables that are too large{reached}."
    return (
        f"sums over about {size} variables would take about {seconds:.2g} s, more than the {worth:.2g} s "
        f"allowed{reached}."
    )
