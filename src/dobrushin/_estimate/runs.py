"""Draw outcomes (final states of chains, or final bounding sets) in blocks, and turn them into intervals. [trusted]

An interval covers the law of the outcomes and is then widened by the bias of that law. Intervals of a run that is
stopped early are wider: a share of the error probability was kept for this case. The base class of the methods that
draw chains is here too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.headline import UNCHECKED
from dobrushin._estimate.method import AnswerRows, Choice, Method, Plan, interrupted
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Shortfall, Tally
from dobrushin._sampling import Record, Samples
from dobrushin._sampling.batches import Job, Outcome
from dobrushin._sampling.kernel import Kernel, choose_kernel
from dobrushin._sampling.sampler import ChainSource
from dobrushin._scan import Scan
from dobrushin._shared.executors import Lost, TimeUp, Trouble, raise_trouble
from dobrushin._shared.intervals import ANYTIME
from dobrushin._shared.running import Running
from dobrushin._shared.text import counted, percent, rounded_up
from dobrushin._variation import Variation
from dobrushin.errors import BudgetError

# Largest number of states drawn at a time, and largest number of bytes of states kept in the result.
_MAX_STATES_AT_ONCE, _MAX_KEPT_BYTES = 2**25, 2**27
# Largest number of outcomes drawn at a time: counting this many (up to 0.2 us each) ends soon after a time limit.
_MAX_OUTCOMES_AT_ONCE = 2**21
# Number of chains in the first block of a mean.
_FIRST_BLOCK = 1024
_STOPPED_BY = {KeyboardInterrupt: Shortfall.INTERRUPTED, TimeUp: Shortfall.TIME, Lost: Shortfall.EXECUTOR}


class Run(ABC):
    """A run for one query: draws independent outcomes, and counts or averages them for every question.

    An outcome is the final state of a chain, or the final bounding sets of a run. Each limit of an interval is wrong
    with probability at most `error` / 2.
    """

    trials: float = math.inf  # number of outcomes that are counted; means may need more
    wrong: float = 0.0  # bound on the probability that an outcome is wrong
    most_states: int = _MAX_STATES_AT_ONCE  # largest number of states drawn at a time, and kept

    def __init__(
        self, method: Method, error: float, tallies: list[Any], sequence: np.random.SeedSequence, running: Running
    ) -> None:
        self.method, self.query, self.plan = method, method.query, method.plan
        self.error, self.tallies, self.running = error, tallies, running
        self.seed = self.sequence = sequence  # the seed of the call, and the seed of its draws
        self.files = 0  # number of checkpoints that this run has opened
        self.scan = cast(Scan, method.plan.scan)
        self.done = 0
        self.trouble: Trouble | None = None  # why the run ended early

    @abstractmethod
    def draw(self) -> None:
        """Draw the outcomes that the plan needs, or fewer if the run is stopped early."""

    @abstractmethod
    def estimate(self) -> Estimate:
        """Return the estimate from the outcomes drawn so far."""

    @property
    def can_wait(self) -> bool:
        """Return whether all outcomes can be drawn at once on a GPU, together with those of other queries.

        Their number must be fixed beforehand and small enough.
        """
        return False

    def job(self) -> tuple[Job, range]:
        """Return the GPU job that draws all outcomes, with their numbers; jobs of several queries can be joined."""
        raise NotImplementedError(f"{self.method.name} cannot draw all outcomes in one job on the GPU")

    def finish(self, job: Job, outcome: Outcome) -> Estimate:
        """Return the answer from the outcome of the job that `job` returned."""
        raise NotImplementedError(f"{self.method.name} cannot draw all outcomes in one job on the GPU")

    def running_block(self) -> Running:
        """Return the run settings for the next block of outcomes, with a checkpoint file of its own."""
        self.files += 1
        return replace(self.running, checkpoint=self.running.file(self.files - 1))

    def as_states(self, digits: NDArray[Any]) -> NDArray[Any]:
        """Return states from state numbers 0..k-1: for spins -1 and +1, for other variables the numbers themselves."""
        return 2 * digits - 1 if self.query.model._form.spins else digits

    def conclude(
        self, rows: list[AnswerRows], words: Iterable[str], plan: Plan | None = None, **parts: Any
    ) -> Estimate:
        """Return the estimate with these rows and assumptions, and the settings of this run."""
        words, confidence = (*words, *unchecked_weights(self.query)), self.query.confidence
        return self.method.assemble(rows, confidence, words, plan, seed=self.seed, run=self, **parts)

    def close(self, estimate: Estimate) -> Estimate:
        """Return the estimate; raise an error that carries it if Ctrl-C or a lost executor ended the run."""
        if isinstance(self.trouble, KeyboardInterrupt):
            raise interrupted(estimate)
        wanted, is_saved = max(self.plan.chains, self.done), self.running.checkpoint is not None
        raise_trouble(self.trouble, estimate, self.done, wanted, self.method.outcomes, is_saved=is_saved)
        return estimate

    @property
    def stopped_by(self) -> Shortfall | None:
        """Return why the run ended early, or why an interval stays wider than the tolerance; None if neither is so."""
        ended = [words for kind, words in _STOPPED_BY.items() if isinstance(self.trouble, kind)]
        return next(filter(None, (*ended, *(tally.shortfall for tally in self.tallies))), None)

    def early_words(self) -> list[str]:
        """Return the assumption to be stated if the run was stopped early: a list of one text, else an empty list."""
        if self.trouble is None:
            return []
        return [
            f"stopped by {self.stopped_by} after {self.done} of {self.plan.chains} {self.method.outcomes}: the "
            f"intervals hold at any stopping time (a confidence sequence with {ANYTIME:.0%} of the error probability)"
        ]

    @property
    def room(self) -> int:
        """Return the largest number of outcomes that are drawn at a time."""
        return max(64, min(_MAX_OUTCOMES_AT_ONCE, self.most_states // len(self.query.labels)) // 64 * 64)

    def rows(self, biases: list[NDArray[np.float64]], widenings: list[NDArray[np.float64]]) -> list[AnswerRows]:
        """Return the rows of each question, with intervals widened on both sides by `widenings`."""
        rows = []
        for question, tally, bias, widening in zip(self.query.questions, self.tallies, biases, widenings, strict=True):
            outcomes = int(min(self.trials, self.done)) if question.is_counted else self.done
            value, low, high = tally.limits(outcomes, self.error, self.wrong, self.trouble is not None)
            rows.append(AnswerRows.within(question, value, low, high, bias, widening))
        return rows


class Bias(NamedTuple):
    """Bounds on the bias of chains for the rows of each question, and the amounts by which intervals are widened."""

    bounds: list[NDArray[np.float64]]
    widenings: list[NDArray[np.float64]]
    words: str
    certificate: Variation | None = None

    @property
    def largest(self) -> float:
        return max(float(part.max()) for part in self.bounds)


class StateChains(Method):
    """Base class of the methods that draw independent chains of one scan and bound their bias.

    A subclass finds the scan and bounds its bias.
    """

    reason: ClassVar[str]

    def __init__(self, query: Query, plan: Plan, kernel: Kernel, bias: Bias) -> None:
        super().__init__(query, plan)
        self.kernel, self.bias = kernel, bias

    @property
    def scan(self) -> Scan:
        return cast(Scan, self.plan.scan)

    def make_tallies(self, aim: float) -> list[Tally]:
        """Make an empty tally for each question; `aim` is the requested half-width."""
        return [question.tally(self.query.error, aim, sets=False) for question in self.query.questions]

    def counted_chains(self, aim: float) -> int:
        """Return the number of chains that are counted; 0 if no question is answered by counts."""
        counted = any(question.is_counted for question in self.query.questions)
        return self.query.least_chains(aim) if counted else 0

    def begin(self, sequence: np.random.SeedSequence, running: Running) -> ChainRun:
        return ChainRun(self, sequence, running)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        run = self.begin(sequence, running)
        run.draw()
        return run.close(run.estimate())

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method:
        scan, expected = cls.find_scan(query)
        kernel = choose_kernel(query.model, scan, cls.most_chains(query, query.tolerance - (expected or 0.0)))
        bias = cls.bias_of(query, scan, kernel)
        largest = None if expected is None else bias.largest
        chains = cls.most_chains(query, query.tolerance - (largest or 0.0))
        seconds = kernel.seconds(len(scan) * chains, scan)
        plan = cls.draft(query, cls.reason, largest, scan=scan, chains=chains, kernel=kernel.name, seconds=seconds)
        best = choice.best
        return cls(query, plan, kernel, bias) if best is None or seconds < best.plan.seconds else best

    @classmethod
    def most_chains(cls, query: Query, half_width: float) -> int:
        """Return the number of chains that gives intervals of this half-width; `CertificateError` if none does."""
        try:
            return query.most_chains(half_width)
        except BudgetError as error:
            raise cls.refuse(str(error)) from None

    @classmethod
    @abstractmethod
    def find_scan(cls, query: Query) -> tuple[Scan, float | None]:
        """Return a scan, and a bound on its bias if updates were exact; None in place of the bound if none is known."""

    @classmethod
    @abstractmethod
    def bias_of(cls, query: Query, scan: Scan, kernel: Kernel) -> Bias:
        """Bound the bias of the scan, including errors of the kernel's draws; raise an error if it is too large."""


class ChainRun(Run):
    """The run of a `StateChains` method: chains, drawn in blocks."""

    method: StateChains

    def __init__(self, method: StateChains, sequence: np.random.SeedSequence, running: Running) -> None:
        query, aim = method.query, method.plan.monte_carlo
        super().__init__(method, query.error, method.make_tallies(aim), sequence, running)
        self.trials: int = method.counted_chains(aim)
        self.most_states = min(_MAX_STATES_AT_ONCE, _MAX_KEPT_BYTES // np.dtype(method.kernel.dtype).itemsize)
        self.blocks: list[Samples] = []

    def draw(self) -> None:
        if self.at_once.counts:
            # All chains at once: the kernel counts, and states are kept only if there are few.
            kept = self.trials * len(self.query.labels) <= self.most_states
            source, blocks = self._source(replace(self.at_once, states=kept)), iter([range(self.trials)])
        else:
            source, blocks = self._source(Record(self.query.labels)), self._blocks()
        for numbers in blocks:
            block, self.trouble = source.draw(numbers, self.running_block())
            self._take(block)
            if self.trouble is not None:
                return

    @property
    def can_wait(self) -> bool:
        # Means stop after a random number of chains, and initial states may be forbidden.
        is_counted = all(question.is_counted for question in self.query.questions)
        has_zeros = self.query.model._form.has_zeros
        return is_counted and not has_zeros and self.method.kernel.twin is not None and self.trials <= self.room

    def job(self) -> tuple[Job, range]:
        return self._source(self.at_once).job(self.trials, "cuda"), range(self.trials)

    def finish(self, job: Job, outcome: Outcome) -> Estimate:
        self._take(self._source(self.at_once).samples(job, outcome))
        return self.close(self.estimate())

    @property
    def at_once(self) -> Record:
        """Return what to record if all chains are drawn at once: counts if these are enough, else states."""
        counts = all(question.is_counted_by_kernels for question in self.query.questions)
        return Record(self.query.labels, states=not counts, counts=counts)

    def _blocks(self) -> Iterator[range]:
        """Yield ranges of chain numbers to draw next, until all counts are complete and all means are narrow enough.

        There are never more chains than planned: the planned number makes all means narrow enough.
        """
        budget = math.inf if self.query.budget is None else self.query.budget // len(self.scan) // 64 * 64
        while self.done < self.trials or not all(tally.is_narrow for tally in self.tallies):
            if self.done >= self.plan.chains:
                return
            more = self.trials - self.done if self.done < self.trials else max(_FIRST_BLOCK, self.done // 256 * 64)
            size = int(min(self.room, more, self.plan.chains - self.done, budget - self.done))
            if size <= 0:
                self.trouble = TimeUp()  # fewer chains than were planned
                remedy = "Raise budget=, or ask for a larger tolerance."
                needed, limit = self.plan.updates, self.query.budget or 0.0
                result = replace(self.estimate(), stopped_by=Shortfall.BUDGET)
                raise BudgetError("This estimate", needed, limit, "Gibbs updates", remedy, self.plan, result=result)
            yield range(self.done, self.done + size)

    def _source(self, record: Record) -> ChainSource:
        """Return the source of the chains; `record` says which of their states are kept."""
        query = self.query
        return ChainSource(query.model, self.method.kernel, self.scan, self.sequence, query.space.start, record)

    def _take(self, block: Samples) -> None:
        """Add a block of chains to the counts and averages of all questions."""
        known = zip(self.query.questions, self.query.columns, self.tallies, strict=True)
        for question, columns, tally in known:
            if block.counts is not None:
                tally.add_counts(block.counts[columns])
            elif block.chains and (self.done < self.trials if question.is_counted else not tally.is_narrow):
                tally.add(cast(NDArray[Any], block.states)[:, columns], None, self.done)
        size = sum(one.states.size for one in (*self.blocks, block) if one.states is not None)
        self.blocks.append(block if size <= self.most_states else replace(block, states=None))
        self.done += block.chains

    def samples(self) -> Samples | None:
        """Return all chains drawn so far, or None; the states are left out if they need too much memory."""
        if len(self.blocks) <= 1:
            return self.blocks[0] if self.blocks else None
        states = [block.states for block in self.blocks if block.states is not None]
        joined = np.concatenate(states) if len(states) == len(self.blocks) else None
        return replace(self.blocks[0], states=joined, chains=sum(block.chains for block in self.blocks))

    def estimate(self) -> Estimate:
        plan, form, kernel, bias = self.plan, self.query.model._form, self.method.kernel, self.method.bias
        error = float(kernel.errors_in(self.scan).max(initial=0.0))
        included = "included" if plan.is_certified else "not included"
        zeros = ["the model forbids some states: chains start in an allowed one"] if form.has_zeros else []
        if form.has_zeros and not plan.is_certified:
            zeros.append("updates of single variables may not reach every allowed state from there: see diagnose")
        words = (
            bias.words,
            f"the law of an update drawn by kernel {kernel.name} is off by at most {rounded_up(error, 2)} in "
            f"{kernel.measure} ({included})",
            INDEPENDENT_BITS,
            f"{counted(plan.intervals, 'interval')} ({plan.interval}) at once with confidence "
            f"{percent(plan.confidence)}",
            *zeros,
            *self.early_words(),
        )
        rows = self.rows(bias.bounds, bias.widenings)
        return self.conclude(rows, words, samples=self.samples(), certificate=bias.certificate)


INDEPENDENT_BITS = "the random bits (SplitMix64, keyed by the seed) are taken to be independent and uniform"


def unchecked_weights(query: Query) -> tuple[str, ...]:
    """Return the assumption that the weights of the user's statistics are correct, as they cannot be checked."""
    names = [repr(question.name) for question in query.questions if question.name is not None]
    return (f"the weights of {', '.join(names)} {UNCHECKED}",) if names else ()
