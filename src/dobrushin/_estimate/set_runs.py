"""Intervals from simulated sets of states. [trusted]

In a run that starts with all states and ends with the set S of a target, a trajectory that began in the model's own
distribution, with the same random words, ends in S. So P(S = {a}) <= pi(a) <= P(a in S), and both sides are chances
that independent runs count: no separate bound on the bias is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.build import run_sets
from dobrushin._estimate.answer import Estimate, Rows, answer, stated_weights
from dobrushin._estimate.coalescence import PATIENCE, is_open, span_of
from dobrushin._estimate.query import Plan, Query, combined, is_counted
from dobrushin._estimate.questions import JointMarginal, Marginals, Mean, Question
from dobrushin._estimate.targets import shown
from dobrushin._sampling.build import has_hard_zeros
from dobrushin._shared.executors import Running
from dobrushin._shared.intervals import BernsteinMean, lower_limit, upper_limit
from dobrushin._shared.seeds import kept_seed
from dobrushin.errors import CertificateError

_STATES_AT_ONCE = 2**25
# The first try may use this part of the error probability, the second one, with more runs, the rest.
_TRIES = ((0.75, 1), (0.25, 4))
# Marks the words of these runs.
_OWN = (1996, 8)


def simulated_answer(query: Query, made: Plan, sequence: np.random.SeedSequence, running: Running) -> Estimate:
    """The answer of a plan with the method "coalescence".

    `CertificateError` when some interval stays wider than the tolerance; it carries the intervals.
    """
    found: Estimate | None = None
    files = 0
    for k, (share, more) in enumerate(_TRIES):
        # Not `spawn`, which would change the sequence: the same one has to give the same answer again.
        child = np.random.SeedSequence(sequence.entropy, spawn_key=(*sequence.spawn_key, *_OWN, k))
        run = _SetRun(query, made, share * query.error / 2, made.chains * more, child, running, files)
        run.draw()
        files = run.files
        found = run.estimate(sequence)
        wide = found.half_width > query.tolerance
        if not wide.any():
            return found
        if (
            not run.worth_more()
            or made.seconds * _TRIES[1][1] > PATIENCE
            or made.updates * 5 > (query.budget or math.inf)
        ):
            break
    assert found is not None
    names = [str(shown(target)) for target in found.targets]
    targets = {name for name, bad in zip(names, wide, strict=True) if bad}
    share_of = 1.0 - len(targets) / len(set(names))
    widest = names[int(np.argmax(found.half_width))]
    reason = (
        f"after {len(made.scan or ())} steps and {run.done} runs {len(targets)} targets have intervals wider than the "
        f"tolerance (the widest is {found.half_width.max():.3g} at {widest}); {share_of:.0%} of them are certified."
    )
    remedy = (
        "All the intervals hold, and are attached ('estimate' of this error). What may help: joint variables "
        "(model.merge with suggest_groups), a larger tolerance, a larger budget."
    )
    raise CertificateError({"coalescence": reason}, remedy, found)


@dataclass
class _SetRun:
    """Simulation for a plan."""

    query: Query
    plan: Plan
    error: float  # of each interval; that on its bias may err as often
    runs: int
    sequence: np.random.SeedSequence
    running: Running
    files: int  # checkpoints that earlier runs of this call have written
    done: int = 0
    wrong: float = 0.0  # chance that rounding touches a run
    singles: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    open: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    means: dict[int, tuple[BernsteinMean, BernsteinMean]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.plan.scan is not None
        self.scan = self.plan.scan
        self.questions = self.query.questions
        self.positions = combined(self.questions).positions
        self.labels = self.query.space.model._labels_at(self.positions)
        for k, question in enumerate(self.questions):
            self.singles[k] = np.zeros(len(question), dtype=np.int64)
            self.open[k] = np.zeros(1, dtype=np.int64)
            if not is_counted(question):
                assert isinstance(question, Mean)
                aim = self.query.tolerance / question.span
                self.means[k] = (BernsteinMean(self.error, aim), BernsteinMean(self.error, aim))

    def draw(self) -> None:
        """Simulate the planned runs, in blocks."""
        room = max(64, _STATES_AT_ONCE // len(self.labels) // 64 * 64)
        while self.done < self.runs:
            numbers = range(self.done, min(self.done + room, self.runs))
            found = run_sets(
                self.query.space.model, self.scan, self.labels, numbers, self.sequence,
                executor=self.running.executor, progress=self.running.progress, backend=self.running.backend,
                checkpoint=self.running.file(self.files), function="estimate",
            )  # fmt: skip
            self.files += 1
            self.wrong = min(1.0, found.error + 2.0 * self.query.space.rounding * len(self.scan))
            for k, question in enumerate(self.questions):
                self._take(k, question, found.settled[:, -1, np.searchsorted(self.positions, question.positions)])
            self.done += len(numbers)

    def _take(self, k: int, question: Question, settled: NDArray[Any]) -> None:
        unsettled = is_open(question, settled)
        self.open[k] = self.open[k] + unsettled.sum(axis=0)
        if isinstance(question, Marginals):
            counts = [np.bincount(column[column >= 0], minlength=len(values)) for column, values in
                      zip(settled.T, question.values, strict=True)]  # fmt: skip
            self.singles[k] += np.concatenate(counts)
            return
        closed = ~unsettled[:, 0]
        digits = settled[closed].astype(np.int64)
        states = 2 * digits - 1 if self.query.space.model._spins else digits
        if isinstance(question, JointMarginal):
            self.singles[k] += np.bincount(question.cells(states), minlength=len(question))
            return
        assert isinstance(question, Mean)
        values = question.values(states, self.done) if len(states) else np.empty(0)
        if question.is_event:
            self.singles[k] += int(values.sum())
            return
        unit = (values - float(question.statistic.bounds[0])) / question.span
        for end, fill in zip(self.means[k], (0.0, 1.0), strict=True):
            whole = np.full(len(settled), fill)
            whole[closed] = unit
            end.add(whole)

    def worth_more(self) -> bool:
        """Whether more runs could help: not where too many do not settle."""
        parts = zip(self.questions, self.open.values(), strict=True)
        worst = max(span_of(question) * float(part.max()) for question, part in parts) / self.done
        return 0.5 * worst < 0.8 * self.query.tolerance

    def estimate(self, sequence: np.random.SeedSequence) -> Estimate:
        """The intervals."""
        rows = [self._interval(k, question) for k, question in enumerate(self.questions)]
        words: list[str] = [
            "the scan was run on sets of states that contain those of every trajectory, from all allowed starts",
            f"rounding touches a run (kernel {self.plan.kernel}) with probability at most {self.wrong:.2g} (included)",
            "the random words (SplitMix64, keyed by the seed) are taken to be independent and uniform",
            "a pilot with other random words chose the scan and the number of runs",
            f"all intervals and bias bounds hold at once with confidence {self.query.confidence:g}",
        ]
        if has_hard_zeros(self.query.space.model):
            words.append("the model forbids some states: that some state is allowed was checked")
        words += stated_weights(self.questions)
        done = replace(self.plan, chains=self.done)
        return answer(self.questions, done, rows, self.query.confidence, tuple(words), None, None, kept_seed(sequence))

    def _interval(self, k: int, question: Question) -> Rows:
        span = question.span if isinstance(question, Mean) else 1.0
        open_ = self.open[k]
        bias = span * np.minimum(upper_limit(open_, self.done, self.error) + self.wrong, 1.0)
        if isinstance(question, Marginals):
            open_, bias = np.repeat(open_, question.sizes), np.repeat(bias, question.sizes)
            states = np.repeat(question.sizes, question.sizes)
        else:
            open_, bias = np.repeat(open_, len(question)), np.repeat(bias, len(question))
            states = np.full(len(question), max(2, len(question)))
        if k in self.means:
            assert isinstance(question, Mean)
            least, most = map(float, question.statistic.bounds)
            low, high = (end.interval()[side] for side, end in enumerate(self.means[k]))
            middle = 0.5 * sum(end.total for end in self.means[k]) / self.done
            mean, lower, upper = (np.array([least + span * x]) for x in (middle, low - self.wrong, high + self.wrong))
            return Rows(mean, np.maximum(lower, least), np.minimum(upper, most), bias)
        singles = self.singles[k]
        lower = lower_limit(singles, self.done, self.error / 2) - self.wrong
        upper = upper_limit(singles + open_, self.done, self.error / 2) + self.wrong
        mean = (singles + open_ / states) / self.done
        return Rows(mean, np.maximum(lower, 0.0), np.minimum(upper, 1.0), bias)
