"""Outcomes for a plan, drawn block by block and turned into intervals. [trusted]

An interval is for the law of the outcomes; it is then widened by what that law can be off, which is its bias.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate, Rows
from dobrushin._estimate.method import Plan
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import CountTally, Marginals
from dobrushin._sampling import Record, Samples
from dobrushin._sampling.kernel import Kernel, Runner
from dobrushin._sampling.sampler import run_chains
from dobrushin._scan import Scan
from dobrushin._shared.executors import Running, cores
from dobrushin.errors import BudgetError, SamplingInterrupted, WorkerError

# States are drawn up to so many at a time, and kept in the result up to this many.
_STATES_AT_ONCE = 2**25
_KEPT_STATES = 2**25
_FIRST_BLOCK = 1024
# Seconds that a call takes besides its updates.
_OVERHEAD = 0.005


def expected_seconds(kernel: Runner, updates: float) -> float:
    """About how long so many updates take on all cores."""
    return _OVERHEAD + kernel.cost * updates / (kernel.rate * cores())


class Run(ABC):
    """Independent outcomes, counted and averaged for every question."""

    wrong: float = 0.0  # chance that an outcome is not what it should be

    def __init__(self, query: Query, plan: Plan, sequence: np.random.SeedSequence, running: Running) -> None:
        self.query, self.plan, self.sequence, self.running = query, plan, sequence, running
        self.scan = cast(Scan, plan.scan)
        self.done = 0

    def _prepare(self, error: float, aim: float, sets: bool) -> None:
        """Each limit of an interval may err with half of this probability; means should get as narrow as `aim`."""
        self.error = error
        self.tallies = [question.tally(error, aim, sets) for question in self.query.questions]

    @abstractmethod
    def draw(self) -> None:
        """Draw as many outcomes as it takes."""

    @abstractmethod
    def estimate(self) -> Estimate:
        """The answer that the outcomes give."""

    @property
    def room(self) -> int:
        """How many outcomes are drawn at a time at most."""
        return max(64, _STATES_AT_ONCE // len(self.query.labels) // 64 * 64)

    def rows(self, biases: list[NDArray[np.float64]], widenings: list[NDArray[np.float64]]) -> list[Rows]:
        """The rows of each question, their intervals widened on both sides."""
        rows = []
        for question, tally, bias, widening in zip(self.query.questions, self.tallies, biases, widenings, strict=True):
            least, most = question.bounds
            value, low, high = tally.limits(self._outcomes(question.is_counted), self.error, self.wrong)
            rows.append(Rows(value, np.maximum(low - widening, least), np.minimum(high + widening, most), bias))
        return rows

    def _outcomes(self, is_counted: bool) -> int:
        """How many outcomes are in a tally."""
        del is_counted
        return self.done


class ChainRun(Run):
    """Chains of states; what is done with their bias is for the method that runs them."""

    def __init__(
        self, query: Query, plan: Plan, kernel: Kernel, sequence: np.random.SeedSequence, running: Running
    ) -> None:
        super().__init__(query, plan, sequence, running)
        self.kernel = kernel
        self._prepare(query.error, plan.monte_carlo, sets=False)
        counted = any(question.is_counted for question in query.questions)
        self.trials = query.least_chains(plan.monte_carlo) if counted else 0  # chains that are counted
        self.blocks: list[Samples] = []

    def draw(self) -> None:
        marginals = [question for question in self.query.questions if isinstance(question, Marginals)]
        if len(marginals) == len(self.query.questions):
            self._count_marginals(marginals)
            return
        for numbers in self._blocks():
            try:
                block = self._chains(numbers, Record(self.query.labels))
            except (SamplingInterrupted, WorkerError) as ended:
                self.blocks.append(cast(Samples, ended.samples))
                raise ended.after(self.samples(), self.done) from None
            self._take(block)

    def _count_marginals(self, questions: list[Marginals]) -> None:
        """All chains at once: the kernel counts, and states are kept only where there are few."""
        kept = self.trials * len(self.query.labels) <= _KEPT_STATES
        block = self._chains(range(self.trials), Record(self.query.labels, states=kept, counts=True))
        self.blocks.append(block)
        self.done = self.trials
        for question, tally in zip(questions, self.tallies, strict=True):
            cast(CountTally, tally).settled = question.counts_of(cast(Any, block.counts)[self.query.columns(question)])

    def _blocks(self) -> Iterator[range]:
        """Numbers of chains to draw next, until all that are counted are there and all means are narrow."""
        while self.done < self.trials or not all(tally.is_narrow for tally in self.tallies):
            more = self.trials - self.done if self.done < self.trials else max(_FIRST_BLOCK, self.done // 256 * 64)
            size = min(self.room, more)
            if self.query.budget is not None:
                size = min(size, (int(self.query.budget // len(self.scan)) - self.done) // 64 * 64)
            if size <= 0:
                raise self._over_budget()
            yield range(self.done, self.done + size)

    def _over_budget(self) -> BudgetError:
        remedy = "Allow more, or ask for a larger tolerance."
        needed = float(max(self.plan.updates, (self.done + 64) * len(self.scan)))
        limit = self.query.budget or 0
        return BudgetError("This estimate", needed, limit, "Gibbs updates", remedy, self.plan, self.estimate())

    def _chains(self, numbers: range, record: Record) -> Samples:
        running = replace(self.running, checkpoint=self.running.file(len(self.blocks)))
        return run_chains(
            self.query.model, self.kernel, self.scan, numbers, self.sequence, start=self.query.space.start,
            record=record, running=running, function="estimate",
        )  # fmt: skip

    def _take(self, block: Samples) -> None:
        """Count and average a block of chains."""
        states = cast(NDArray[Any], block.states)
        for question, tally in zip(self.query.questions, self.tallies, strict=True):
            if self.done < self.trials if question.is_counted else not tally.is_narrow:
                tally.add(states[:, self.query.columns(question)], None, self.done)
        kept = sum(known.states.size for known in self.blocks if known.states is not None)
        self.blocks.append(block if kept + states.size <= _KEPT_STATES else replace(block, states=None))
        self.done += len(states)

    def _outcomes(self, is_counted: bool) -> int:
        return self.trials if is_counted else self.done

    def samples(self) -> Samples:
        """All that was drawn; without the states where there were too many."""
        if len(self.blocks) == 1:
            return self.blocks[0]
        states = [block.states for block in self.blocks if block.states is not None]
        joined = np.concatenate(states) if len(states) == len(self.blocks) else None
        return replace(self.blocks[0], states=joined, chains=sum(block.chains for block in self.blocks))

    def assumptions(self, *about_bias: str) -> tuple[str, ...]:
        """What the intervals rest on, in words."""
        samples, plan, form = self.samples(), self.plan, self.query.model._form
        error = float(samples.update_error.max(initial=0.0))
        included = "included" if plan.is_certified else "not included"
        several = "s" if plan.intervals > 1 else ""
        zeros = ["the model forbids some states: chains start in an allowed one"] if form.has_zeros else []
        if form.has_zeros and not plan.is_certified:
            zeros.append("single moves may not reach all that is allowed from there: see diagnose")
        return (
            *about_bias,
            f"an update as it is drawn (kernel {samples.kernel}) errs by at most {error:.2g} in total variation "
            f"({included})",
            INDEPENDENT_BITS,
            f"{plan.intervals} interval{several} ({plan.interval}) at once with confidence {plan.confidence:g}",
            *zeros,
            *unchecked_weights(self.query),
        )


INDEPENDENT_BITS = "the random bits (SplitMix64, keyed by the seed) are taken to be independent and uniform"


def unchecked_weights(query: Query) -> tuple[str, ...]:
    """What is taken from the user without a check."""
    names = [repr(question.name) for question in query.questions if question.name is not None]
    return (f"the weights of {', '.join(names)} were given and not checked",) if names else ()
