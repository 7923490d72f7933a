"""Exact draws of ferromagnets at every temperature: random clusters, coupled from the past. [trusted]

Fields are treated as couplings to an additional variable, the ghost. Given the clusters of a draw, the state of each
cluster is uniform and independent of the others. So where connections alone decide a probability, connections are
counted instead of states. Without fields, P(x_i = x_j) = 1/q + (1 - 1/q) P(i and j are connected); for a single
variable, the same holds with the ghost in place of j. The interval of a connection is multiplied by that slope.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.clusters import ClusterRunner, Clusters, draw_clusters, expected_seconds, try_runner
from dobrushin._coalescence.ferromagnet import Ferromagnet
from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import SOON_SECONDS, Choice, Method, Plan, allowed_seconds
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import JointMarginal, SingleMarginals, Tally, TargetQuestion
from dobrushin._estimate.runs import INDEPENDENT_BITS, Run
from dobrushin._kernels.clusters import GHOST
from dobrushin._shared.intervals import FINAL, PLANNED, lower_end, trials_needed, upper_end, values_needed
from dobrushin._shared.running import Running
from dobrushin._shared.text import counted, percent, rounded_up
from dobrushin.errors import BudgetError

# Seconds that draws may be expected to take where the call has no time limit, and seconds for a pilot.
_DRAWING_SECONDS, _PILOT_SECONDS, _PILOT_SECONDS_BY_NAME = 30.0, 2.0, 10.0
# Number of draws in the first block for a mean.
_FIRST_BLOCK = 256


class ClusterDraws(Method):
    """The method "clusters": counts over exact draws of the random clusters of a ferromagnet."""

    name: ClassVar[str] = "clusters"
    outcomes: ClassVar[str] = "exact draws"

    def __init__(self, query: Query, plan: Plan, runner: ClusterRunner) -> None:
        super().__init__(query, plan)
        self.runner = runner

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        best = choice.best
        if not choice.by_name and (choice.can_sample or (best and best.plan.seconds <= SOON_SECONDS)):
            return best
        if query.is_part:
            raise cls.refuse("random clusters need the whole model, not only a ball around the targets.")
        pilot = _PILOT_SECONDS_BY_NAME if choice.by_name else _PILOT_SECONDS
        runner = try_runner(query.model, query.positions, pilot)
        if runner is None:
            raise cls.refuse(f"random clusters did not coalesce in a pilot of about {pilot:g} s.")
        if query.proof and any(_links_of(question, runner.magnet) is None for question in query.questions):
            raise cls.refuse(
                "proofs of random clusters cover only single variables, and connected pairs without fields."
            )
        try:
            draws = max(_draws_for(query, question, runner) for question in query.questions)
        except BudgetError as error:
            raise cls.refuse(str(error)) from None
        seconds = expected_seconds(runner, draws)
        if not choice.by_name:
            if best is not None and seconds >= best.plan.seconds:
                return best
            if best is None and seconds > (allowed := allowed_seconds(query, _DRAWING_SECONDS)):
                raise cls.refuse(
                    f"{draws} exact draws would take about {seconds:.2g} s, more than the {allowed:.3g} s allowed."
                )
        why = "asked for" if choice.by_name else "the model is a ferromagnet"
        reason = f"{why}; clusters of the targets coalesced from about {counted(runner.past, 'sweep')} back in a pilot"
        plan = cls.draft(
            query, reason, runner.run_error, chains=draws, kernel=runner.name, seconds=seconds,
            other_updates=int(draws * runner.draw_seconds * runner.rate),
        )  # fmt: skip
        return cls(query, plan, runner)

    def needed_updates(self) -> int:
        if not self.plan.stops_early:
            return self.plan.updates
        least = max((_draws_for(self.query, q, self.runner) for q in self.query.questions if q.is_counted), default=64)
        return self.plan.updates * least // self.plan.chains

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """Return the answer; raise `CertificateError` if draws that did not coalesce leave an interval too wide.

        The error carries the intervals.
        """
        run = _ClusterRun(self, sequence, running)
        run.draw()
        estimate = run.close(run.estimate())
        if run.trouble is None and self.misses(estimate):
            reason = (
                f"{run.open} of {run.done} draws had not coalesced at the end of their last round. They count for "
                f"every state, so that half-widths reach {estimate.half_width.max():.3g}."
            )
            raise self.too_wide(estimate, reason, "All the intervals are valid.")
        return estimate

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            f"The answer comes from {estimate.chains:,} independent exact draws from the model. A draw joins "
            "neighbours in equal states to random clusters, whose states are then drawn independently. Clusters were "
            "coupled from the past: two chains, which contain all others between them, were started further and "
            "further back until they ended with the same clusters of the targets.",
            f"There is no bias but that of rounding, at most {estimate._bias_text}. The intervals "
            f"({estimate.plan.interval}) hold at once with probability {estimate.confidence_text} or more.",
        ]


def _draws_for(query: Query, question: TargetQuestion, runner: ClusterRunner) -> int:
    """Return the number of draws that a question needs; where a mean may stop earlier, the largest number."""
    aim = query.tolerance - runner.run_error
    if (links := _links_of(question, runner.magnet)) is not None:
        return links.draws_for(aim, query.error)
    if question.is_counted:
        return trials_needed(aim, PLANNED * query.error)
    return values_needed(aim / question.span, FINAL * query.error)


class _ClusterRun(Run):
    """The draws for one answer: a fixed number, then further ones until the intervals of means are narrow enough."""

    method: ClusterDraws

    def __init__(self, method: ClusterDraws, sequence: np.random.SeedSequence, running: Running) -> None:
        self.runner, self.wrong = method.runner, method.runner.run_error
        query, counted = method.query, [question for question in method.query.questions if question.is_counted]
        tallies: list[Tally] = []
        for question in query.questions:
            links = _links_of(question, self.runner.magnet)
            own = question.tally(query.error, query.tolerance - self.wrong, sets=True)
            tallies.append(own if links is None else links)
        super().__init__(method, query.error, tallies, sequence, running)
        self.trials: int = max((_draws_for(query, question, self.runner) for question in counted), default=0)
        self.open = 0

    def draw(self) -> None:
        while self.done < self.plan.chains and not (
            self.done >= self.trials and all(tally.is_narrow for tally in self.tallies)
        ):
            more = self.trials - self.done if self.done < self.trials else max(_FIRST_BLOCK, self.done // 4)
            numbers = range(self.done, self.done + min(self.room, more, self.plan.chains - self.done))
            self._take(draw_clusters(self.runner, numbers, self.sequence, self.running_block()))
            if self.trouble is not None:
                return

    def _take(self, block: Clusters) -> None:
        """Add a block of draws to the counts and averages of all questions."""
        self.trouble = block.trouble
        states: NDArray[Any] | None = None
        known = zip(self.query.questions, self.query.columns, self.tallies, strict=True)
        for question, columns, tally in known:
            if self.done >= self.trials if question.is_counted else tally.is_narrow:
                continue
            if isinstance(tally, _Links):
                tally.add_clusters(block.clusters[:, columns], self.query.proof)
                continue
            if states is None:
                states = self.as_states(block.states())
            closed = np.broadcast_to(block.is_closed[:, None], states.shape)
            tally.add(states[:, columns], closed[:, columns], self.done)
        self.open += int((~block.is_closed).sum())
        self.done += len(block.clusters)

    def estimate(self) -> Estimate:
        sizes = [len(question) for question in self.query.questions]
        biases = [np.full(len(question), min(self.wrong, 1.0) * question.span) for question in self.query.questions]
        words = [
            "each draw comes exactly from the model, by coupling from the past; no time limit decides how far back",
            f"rounding changes a draw with probability at most {rounded_up(self.wrong, 2)} (included)",
            INDEPENDENT_BITS,
            "a pilot with separate random bits chose the length of the first round, on which no draw depends",
            f"all intervals hold at once with confidence {percent(self.query.confidence)}",
            *self.early_words(),
        ]
        rows = self.rows(biases, [np.zeros(size) for size in sizes])
        return self.conclude(rows, words, replace(self.plan, chains=self.done))


# -- connections ---------------------------------------------------------------------------------


def _links_of(question: TargetQuestion, magnet: Ferromagnet) -> _Links | None:
    """Return a tally of connections for a question whose answer follows from connections; None for other questions."""
    if isinstance(question, SingleMarginals):
        return _marginal_links(question, magnet)
    if isinstance(question, JointMarginal) and len(question.positions) == 2:
        i, j = question.positions.tolist()
        if magnet.component[i] == magnet.component[j] and not magnet.has_field(question.positions).any():
            return _pair_links(question, magnet)
    return None


def _marginal_links(question: SingleMarginals, magnet: Ferromagnet) -> _Links:
    """Return a tally of the draws in which each variable is connected to the ghost (which stands for the fields)."""
    q, positions = magnet.q, question.positions
    slope = np.full((len(positions), q), -1.0 / q)
    favoured = magnet.gauge[positions, magnet.favourite[positions]]
    slope[np.arange(len(positions)), favoured] = 1.0 - 1.0 / q
    slope[~magnet.has_field(positions)] = 0.0  # all states are equally likely, by symmetry
    return _Links(question, slope.ravel(), 1.0 / q, np.repeat(np.arange(len(positions)), q))


def _pair_links(question: JointMarginal, magnet: Ferromagnet) -> _Links:
    """Return a tally of the draws in which two variables are connected."""
    q, (i, j) = magnet.q, question.positions.tolist()
    slope = np.full((q, q), -1.0 / q**2)
    slope[magnet.gauge[i], magnet.gauge[j]] += 1.0 / q
    return _Links(question, slope.ravel(), 1.0 / q**2, np.zeros(q * q, dtype=np.int64))


class _Links(Tally):
    """Tally of connections between variables: each row of the answer is base + slope * P(connection)."""

    def __init__(
        self, question: TargetQuestion, slope: NDArray[np.float64], base: float, link: NDArray[np.int64]
    ) -> None:
        super().__init__(question)
        self.slope, self.base, self.link = slope, base, link
        self.hits = np.zeros(int(link.max()) + 1, dtype=np.int64)
        self.unknown = 0
        # For a proof: for each draw and connection 1 if present, 0 if absent, -1 if the draw did not coalesce.
        self.kept: list[NDArray[np.int8]] = []

    def level(self, error: float) -> float:
        """Return the error probability of the interval of one connection.

        The intervals of all states follow from those of the connections, and share their error probabilities.
        """
        return error * self.question.intervals / len(self.hits)

    def draws_for(self, aim: float, error: float) -> int:
        """Return the number of draws with which the interval of every row has the half-width `aim`."""
        steepest = float(np.abs(self.slope).max())
        return trials_needed(aim / steepest, PLANNED * self.level(error)) if steepest else 1

    def add(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> None:
        raise NotImplementedError("connections are counted by add_clusters, from the clusters of draws")

    def add_clusters(self, clusters: NDArray[np.int32], keep: bool = False) -> None:
        """Count the connections in a block of draws; `clusters` has a row for each draw, a column for each variable."""
        is_pair = isinstance(self.question, JointMarginal)
        closed = clusters[:, 0] >= GHOST
        linked = clusters[:, :1] == clusters[:, 1:] if is_pair else clusters == GHOST
        self.hits += linked[closed].sum(axis=0)
        self.unknown += int((~closed).sum())
        if keep:
            self.kept.append(np.where(closed[:, None], linked, -1).astype(np.int8))

    def limits(self, outcomes: int, error: float, wrong: float, early: bool) -> tuple[NDArray[np.float64], ...]:
        level = self.level(error)
        middle = (self.hits + 0.5 * self.unknown) / outcomes if outcomes else np.full(len(self.hits), 0.5)
        low = lower_end(self.hits, outcomes, level / 2, early)
        high = upper_end(self.hits + self.unknown, outcomes, level / 2, early)
        value, *ends = (self.base + self.slope * part[self.link] for part in (middle, low, high))
        wrong += 2.0**-50  # the rounding of these products and sums
        return value, np.minimum(*ends) - wrong, np.maximum(*ends) + wrong
