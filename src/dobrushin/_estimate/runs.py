"""Intervals from sampled chains: bias and Monte Carlo error both accounted for. [trusted]"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate, Rows, answer, stated_weights
from dobrushin._estimate.dobrushin import with_rounding
from dobrushin._estimate.exact import impossible
from dobrushin._estimate.query import Plan, Query, biases, chains_for_counts, combined, is_counted
from dobrushin._estimate.questions import JointMarginal, Marginals, Mean, Question
from dobrushin._estimate.workspace import Workspace
from dobrushin._influence.rows import THEOREMS
from dobrushin._sampling import Record, Samples
from dobrushin._sampling.allowed_state import allowed_state
from dobrushin._sampling.build import draw, has_hard_zeros
from dobrushin._shared.executors import Running
from dobrushin._shared.intervals import BernsteinMean, clopper_pearson
from dobrushin._shared.seeds import kept_seed
from dobrushin._variation.certificate import evaluate
from dobrushin.errors import BudgetError, SamplingInterrupted, WorkerError

# States are kept in the result up to this many, and drawn up to so many at a time.
_KEPT_STATES = 2**25
_STATES_AT_ONCE = 2**25
_FIRST_BLOCK = 1024


@dataclass
class SampledRun:
    """Sampling for a plan: draws chains, and turns them into intervals."""

    query: Query
    plan: Plan
    sequence: np.random.SeedSequence
    running: Running
    start: Any
    counts: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    means: dict[int, BernsteinMean] = field(default_factory=dict)
    blocks: list[Samples] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.plan.scan is not None
        self.scan = self.plan.scan
        self.questions = self.query.questions
        self.objective = combined(self.questions)
        self.labels = self.query.space.model._labels_at(self.objective.positions)
        for k, question in enumerate(self.questions):
            if is_counted(question):
                self.counts[k] = np.zeros(len(question), dtype=np.int64)
            elif isinstance(question, Mean):
                self.means[k] = BernsteinMean(self.query.error, self.plan.monte_carlo / question.span)
        self.trials = chains_for_counts(self.query, self.plan.monte_carlo) if self.counts else 0

    def draw(self) -> None:
        """Draw as many chains as it takes."""
        if all(isinstance(question, Marginals) for question in self.questions):
            kept = self.trials * len(self.labels) <= _KEPT_STATES
            self.blocks.append(self._chains(range(self.trials), Record(self.labels, states=kept, counts=True)))
            for k, question in enumerate(self.questions):
                assert isinstance(question, Marginals)
                self.counts[k] = question.flat(self.blocks[0].counts[self._places(question)])  # type: ignore[index]
            return
        room = max(64, _STATES_AT_ONCE // len(self.labels) // 64 * 64)
        done = 0
        while done < self.trials or not all(self._is_narrow(k) for k in self.means):
            more = self.trials - done if done < self.trials else max(_FIRST_BLOCK, done // 256 * 64)
            size = min(room, more)
            if self.query.budget is not None:
                size = min(size, (int(self.query.budget // len(self.scan)) - done) // 64 * 64)
            if size <= 0:
                remedy = "Allow more, or ask for a larger tolerance. What was reached is attached ('estimate')."
                needed = float(max(self.plan.updates, (done + 64) * len(self.scan)))
                reached = self.estimate()
                raise BudgetError(
                    "This estimate", needed, self.query.budget or 0, "Gibbs updates", remedy, self.plan, reached
                )
            try:
                run = self._chains(range(done, done + size), Record(self.labels))
            except (SamplingInterrupted, WorkerError) as ended:
                self.blocks.append(cast(Samples, ended.samples))
                raise ended.after(self.samples(), done) from None
            self._take(run, done)
            done += size

    def _chains(self, numbers: range, record: Record) -> Samples:
        return draw(
            self.query.space.model, self.scan, numbers, self.sequence, self.start, record, self.plan.kernel,
            self.running.executor, self.running.progress, self.running.file(len(self.blocks)),
            self.running.backend, "estimate",
        )  # fmt: skip

    def _places(self, question: Question) -> NDArray[np.int64]:
        return np.searchsorted(self.objective.positions, question.positions)

    def _take(self, run: Samples, done: int) -> None:
        """Count and average a block of chains, of which the first has number `done`."""
        assert run.states is not None
        for k, question in enumerate(self.questions):
            states = run.states[:, self._places(question)]
            if k in self.counts:
                if done < self.trials:
                    self.counts[k] += _tally(question, states, done)
            elif isinstance(question, Mean) and not self._is_narrow(k):
                low = float(question.statistic.bounds[0])
                self.means[k].add((question.values(states, done) - low) / question.span)
        kept = sum(block.states.size for block in self.blocks if block.states is not None)
        self.blocks.append(run if kept + run.states.size <= _KEPT_STATES else replace(run, states=None))

    def _is_narrow(self, k: int) -> bool:
        question = self.questions[k]
        assert isinstance(question, Mean)
        return self.means[k].half_width * question.span <= self.plan.monte_carlo

    def samples(self) -> Samples:
        """All that was drawn; without the states where there were too many."""
        if len(self.blocks) == 1:
            return self.blocks[0]
        states = [block.states for block in self.blocks if block.states is not None]
        joined = np.concatenate(states) if len(states) == len(self.blocks) else None
        return replace(self.blocks[0], states=joined, chains=sum(block.chains for block in self.blocks))

    def estimate(self) -> Estimate:
        """The intervals, widened by the bias of the scan as it was drawn."""
        run = self.samples()
        certificate = None
        bias = [np.full(len(question), np.nan) for question in self.questions]
        if self.plan.is_certified:
            error = with_rounding(run.update_error, self.query.space.rounding)
            certificate = evaluate(self.query.space.rows, self.scan, self.objective, 1.0, error)
            bias = biases(self.questions, self.objective, certificate.target_bounds)
        rows = [self._interval(k, question, bias[k]) for k, question in enumerate(self.questions)]
        assumptions = _assumptions(self.query, self.plan, run)
        seed = kept_seed(self.sequence)
        return answer(self.questions, self.plan, rows, self.query.confidence, assumptions, run, certificate, seed)

    def _interval(self, k: int, question: Question, bias: NDArray[np.float64]) -> Rows:
        widening = np.nan_to_num(bias, nan=0.0)
        if k in self.counts:
            low, high = clopper_pearson(self.counts[k], self.trials, self.query.error)
            mean = self.counts[k] / self.trials
            return Rows(mean, np.maximum(low - widening, 0.0), np.minimum(high + widening, 1.0), bias)
        assert isinstance(question, Mean)
        least, most = map(float, question.statistic.bounds)
        found = self.means[k]
        low, high = (np.array([least + question.span * limit]) for limit in found.interval())
        mean = np.array([least + question.span * found.total / found.count])
        return Rows(mean, np.maximum(low - widening, least), np.minimum(high + widening, most), bias)


def _tally(question: Question, states: NDArray[Any], first: int) -> NDArray[np.int64]:
    """How many chains are in each row's state."""
    if isinstance(question, JointMarginal):
        return np.bincount(question.cells(states), minlength=len(question))
    if isinstance(question, Mean):
        return np.array([int(question.values(states, first).sum())])
    assert isinstance(question, Marginals)
    parts = []
    for column, values in zip(states.T, question.values, strict=True):
        parts.append(np.bincount((column.astype(np.int64) - values[0]) // values.step, minlength=len(values)))
    return np.concatenate(parts)


def allowed_start(space: Workspace, has_evidence: bool) -> Any:
    """Where chains start: anywhere, or in a state that the model allows."""
    if not has_hard_zeros(space.model):
        return "uniform"
    if "start" not in space.memory:
        space.memory["start"] = allowed_state(space.model)
    if space.memory["start"] is None:
        raise impossible(has_evidence, space.model)
    return space.memory["start"]


def _assumptions(query: Query, made: Plan, run: Samples) -> tuple[str, ...]:
    """What the intervals rest on, in words."""
    words = []
    if made.is_certified:
        theorems = np.unique(query.space.rows.rows(run.scan.updates(query.space.model.n_variables)).theorem)
        names = ", ".join(THEOREMS[k] for k in theorems) or "none needed"
        words.append(
            f"the bias is bounded by the Dobrushin variation of the scan (influence by {names}), rounded upwards"
        )
    else:
        words.append("NOT CERTIFIED: the bias of the scan is unknown, and is not in the intervals")
    error = float(run.update_error.max(initial=0.0))
    included = "included" if made.is_certified else "not included"
    words.append(
        f"an update as it is drawn (kernel {run.kernel}) errs by at most {error:.2g} in total variation ({included})"
    )
    words.append("the random words (SplitMix64, keyed by the seed) are taken to be independent and uniform")
    several = "s" if made.intervals > 1 else ""
    words.append(f"{made.intervals} interval{several} ({made.interval}) at once with confidence {made.confidence:g}")
    if has_hard_zeros(query.space.model):
        words.append("the model forbids some states: chains start in an allowed one")
        if not made.is_certified:
            words.append("single moves may not reach all that is allowed from there: see diagnose")
    return (*words, *stated_weights(query.questions))
