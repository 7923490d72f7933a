"""Coalescence: bounding sets are simulated until they have one member, where Dobrushin's bound is vacuous. [trusted]

A run starts with all states and ends with a set S for each target. A chain that starts in the stationary distribution
and uses the same random bits ends in S. So P(S = {a}) <= pi(a) <= P(a in S), and independent runs estimate both
probabilities: no separate bound on the bias is needed.

A pilot with separate random bits chooses the scan and its length; the answer uses fresh runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence import coalescence
from dobrushin._coalescence.sets import SetKernel, SetRuns, choose_sets, collect_sets, make_set_job, run_sets
from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import SOON_SECONDS, Choice, Curve, Method, Plan, allowed_seconds
from dobrushin._estimate.query import Query
from dobrushin._estimate.runs import INDEPENDENT_BITS, Run
from dobrushin._estimate.targets import variables_of
from dobrushin._models import Model
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.guide import guiding_rows
from dobrushin._sampling.batches import Job, Outcome
from dobrushin._sampling.sampler import on_backend
from dobrushin._scan import Scan
from dobrushin._shared.call import LateError, current_deadline
from dobrushin._shared.intervals import upper_end
from dobrushin._shared.running import PLAIN, Running, child_seed
from dobrushin._shared.text import counted, percent, rounded_up
from dobrushin.errors import BudgetError

# Seconds that a simulation may be expected to take where the call has no time limit.
_PATIENCE = 30.0
_TOO_MANY = 2**62
_PILOT_RUNS = (128, 1024)
# Largest number of target states that a pilot holds in memory, unless the least number of runs needs more.
_PILOT_STATES = 2**27
# Pilots do not depend on the seed of the answer, and share no random bits with the answer.
_PILOT_SEED = np.random.SeedSequence(0, spawn_key=(2017, 5, 6))
# Largest number of target states kept for a proof.
_KEPT_STATES = 2**24
# Largest share of runs that may end without coalescing in a plan, used only if no other method has a plan.
_MOST_OPEN = 0.9
# Share of the half-width planned for the random error: the rest is for the error of the pilot.
_SHARE = 0.95
# Share of the error probability and multiple of the planned runs, for the first and the second batch of runs.
_TRIES = ((0.75, 1), (0.25, 4))
# Key of the random bits of these runs: no other part of a call uses them.
_OWN = (1996, 8)
# Numbers of runs for the displayed curve (the larger one if there is time), and the seconds that they may take.
_CURVE_RUNS, _CURVE_SECONDS = (4096, 512), 2.0
_CURVE_SEED = np.random.SeedSequence(0, spawn_key=(2017,))


class BoundingSets(Method):
    """The method "coalescence": independent runs of one scan on bounding sets."""

    name: ClassVar[str] = "coalescence"
    works_nearby: ClassVar[bool] = True
    outcomes: ClassVar[str] = "runs"
    bias_is_proven: ClassVar[bool] = False

    def __init__(self, query: Query, plan: Plan, kernel: SetKernel, first_runs: int) -> None:
        super().__init__(query, plan)
        self.kernel, self.first_runs = kernel, first_runs

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        best = choice.best
        if not choice.by_name and (choice.can_sample or (best and best.plan.seconds <= SOON_SECONDS)):
            return best
        allowed = allowed_seconds(query, _PATIENCE)
        patience = allowed if best is None else min(allowed, best.plan.seconds)
        why = "asked for" if choice.by_name else "Dobrushin's bound is vacuous"
        pilot = _Pilot(query, patience)
        own = pilot.proposal(why)
        if own is None or (pilot.is_far and not choice.by_name):
            choice.fallback = own
            raise cls.refuse(pilot.why_not())
        # If targets do not coalesce in the pilot, the plan misses the tolerance: a proposal that reaches it is better.
        return own if best is None or own.plan.reaches_tolerance else best

    def needed_updates(self) -> int:
        return self.plan.other_updates + self.first_runs * len(cast(Scan, self.plan.scan))

    def begin(self, sequence: np.random.SeedSequence, running: Running) -> _SetRun:
        """Return the first batch of runs, still to be drawn."""
        return _SetRun(self, 0, sequence, running)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        run = self.begin(sequence, running)
        run.draw()
        return self.answer_from(run)

    def answer_from(self, run: _SetRun) -> Estimate:
        """Return the answer once the first batch of runs is drawn; draw a second, larger batch if that helps.

        Raise `CertificateError`, with the intervals, if one of them stays wider than the tolerance.
        """
        best: Estimate | None = None
        runs = 0
        for k in range(len(_TRIES)):
            if k:
                run = _SetRun(self, k, run.seed, run.running, run.files)
                run.draw()
            runs += run.done
            estimate = run.estimate()
            if best is None or estimate.half_width.max() < best.half_width.max():
                best = estimate  # the intervals of both batches are valid at once
            if run.trouble is not None:
                return run.close(replace(best, stopped_by=run.stopped_by))
            if not self.misses(best):
                return best
            if runs + _TRIES[1][1] * self.first_runs > self.plan.chains or not run.is_worth_more():
                break
        best = cast(Estimate, best)
        wide, every, widest = self.describe_wide(best)
        which = "the interval of the target is" if every == 1 else f"the intervals of {wide} of {every} targets are"
        work = f"{counted(best.steps, 'step')} and {counted(runs, 'run')}"
        reason = f"after {work} {which} wider than the tolerance ({widest})."
        remedy = "All the intervals are valid. A larger tolerance or a larger budget may help."
        raise self.too_wide(best, reason, remedy)

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            f"The answer comes from at least {estimate.chains:,} independent runs of {estimate.steps:,} updates each. "
            "A run begins with all states of all variables, and its bounding sets keep every state that a chain from "
            "some initial state could have.",
            "If one state of a target is left, the target has coalesced, and this state is an exact draw from the "
            "model. If several are left, the run counts for each of them, so that the interval covers every case.",
            f"The share of runs that did not coalesce bounds the bias: at most {estimate._bias_text}. This bound and "
            f"the intervals ({estimate.plan.interval}) hold at once with probability {estimate.confidence_text} or "
            "more.",
        ]

    @classmethod
    def curve(cls, estimate: Estimate, model: Model | None) -> Curve | None:
        """Return the coalescence curve from additional runs; None if they would take too long."""
        scan = estimate.plan.scan
        if model is None or scan is None or estimate.plan.relevance:  # the scan is not one of the whole model
            return None
        known = set(model.labels)
        labels = list(dict.fromkeys(v for target in estimate.targets for v in variables_of(target) if v in known))
        kernel = choose_sets(model, scan)
        for runs in _CURVE_RUNS:  # each run is made twice: once to know the end, once for the curve
            if kernel.seconds(2.0 * runs * len(scan), scan) < _CURVE_SECONDS:
                certificate = coalescence(model, scan, labels, runs=runs, seed=_CURVE_SEED)
                about = "the target" if len(labels) == 1 else f"some of the {len(labels):,} variables of the answer"
                words = (
                    f"Upper limit on the probability that {about} still depends on the initial state, from additional "
                    f"runs. All points hold at once at confidence {percent(certificate.confidence)}. The intervals "
                    "above do not use this curve."
                )
                return Curve(*certificate.curve(), words)
        return None


class _SetRun(Run):
    """A batch of runs on bounding sets; each interval and each bias bound may err with probability `error`."""

    method: BoundingSets

    def __init__(
        self, method: BoundingSets, number: int, sequence: np.random.SeedSequence, running: Running, files: int = 0
    ) -> None:
        share, more = _TRIES[number]
        query, error = method.query, share * method.query.error / 2
        tallies = [question.tally(error, query.tolerance, sets=True) for question in query.questions]
        super().__init__(method, error, tallies, sequence, running)
        self.sequence = child_seed(sequence, *_OWN, number)
        self.kernel, self.number, self.runs = method.kernel, number, method.first_runs * more
        self.kept: list[NDArray[np.int16]] = []  # final states of each block, for a proof
        self.files = files  # number of checkpoints that the first batch has opened

    @property
    def has_few_states(self) -> bool:
        """Return whether the final states are few enough to be kept for a proof."""
        return self.runs * len(self.query.labels) <= _KEPT_STATES

    def draw(self) -> None:
        is_kept = self.query.proof and self.has_few_states
        counts = not is_kept and all(question.is_counted_by_kernels for question in self.query.questions)
        room = self.runs if counts else self.room
        while self.done < self.runs:
            numbers = range(self.done, min(self.done + room, self.runs))
            block = run_sets(
                self.query.model, self.kernel, self.scan, self.query.labels, numbers, self.sequence,
                running=self.running_block(), call_seed=self.seed, counts=counts,
            )  # fmt: skip
            self._take(block)
            if self.trouble is not None:
                return

    def _take(self, block: SetRuns) -> None:
        """Add the final states of a block of runs to the tallies."""
        self.trouble = block.trouble
        self.wrong = min(1.0, block.error)
        if block.counts is not None:
            for columns, tally in zip(self.query.columns, self.tallies, strict=True):
                table = block.counts[columns]
                tally.add_counts(table[:, 1:], table[:, 0])
        else:
            digits = block.settled[:, -1].astype(np.int64)
            if self.query.proof and self.has_few_states:
                self.kept.append(block.settled[:, -1])
            states = self.as_states(digits)
            for columns, tally in zip(self.query.columns, self.tallies, strict=True):
                tally.add(states[:, columns], digits[:, columns] >= 0, self.done)
        self.done += block.runs

    @property
    def can_wait(self) -> bool:
        return self.runs <= self.room and self.has_few_states and self.kernel.twin is not None

    def job(self) -> tuple[Job, range]:
        runner = on_backend(self.kernel, self.scan, self.runs, "cuda")
        job = make_set_job(self.query.model, runner, self.scan, self.query.labels, self.sequence)
        return job, range(self.runs)

    def finish(self, job: Job, outcome: Outcome) -> Estimate:
        self._take(collect_sets(self.kernel, job, outcome))
        return self.method.answer_from(self)

    def is_worth_more(self) -> bool:
        """Return whether more runs could reach the tolerance: not if too many of them do not coalesce."""
        pairs = zip(self.query.questions, self.tallies, strict=True)
        worst = max(question.span * float(tally.open.max()) for question, tally in pairs) / self.done
        return 0.5 * worst < 0.8 * self.query.tolerance

    def estimate(self) -> Estimate:
        biases = [
            question.span
            * np.minimum(upper_end(tally.open, self.done, self.error, self.trouble is not None) + self.wrong, 1.0)
            for question, tally in zip(self.query.questions, self.tallies, strict=True)
        ]
        nothing = [np.zeros(len(question)) for question in self.query.questions]  # bounding sets include the bias
        words = [
            "the scan was run on bounding sets, which contain the state of every chain from all allowed initial states",
            f"rounding changes a run (kernel {self.plan.kernel}) with probability at most "
            f"{rounded_up(self.wrong, 2)} (included)",
            INDEPENDENT_BITS,
            "a pilot with other random bits chose the scan and the number of runs",
            f"all intervals and bias bounds hold at once with confidence {percent(self.query.confidence)}",
        ]
        if self.query.model._form.has_zeros:
            words.append("the model forbids some states; it was checked that at least one is allowed")
        rows = self.rows(biases, nothing)
        return self.conclude(rows, [*words, *self.early_words()], replace(self.plan, chains=self.done))


class _Pilot:
    """Pilot runs of several scans, to propose the cheapest one."""

    def __init__(self, query: Query, patience: float) -> None:
        self.query, self.patience = query, patience
        # Half of the error probability is for the bias bounds, and a second batch of runs needs a share as well.
        self.strict = replace(query, confidence=1.0 - 0.3 * (1.0 - query.confidence))
        self.is_exhausted = False  # whether the search for scans has reached all variables that affect the targets
        self.is_far = False  # whether runs that do not coalesce make intervals far wider than the tolerance
        self.spent, self.seconds = 0, 0.0
        self.tried: tuple[Scan, SetKernel] | None = None
        most = _PILOT_STATES // len(query.labels) // 64 * 64
        self.runs = max(_PILOT_RUNS[0], min(_PILOT_RUNS[1], most, self._runs(query.tolerance) // 2048 * 64))

    def proposal(self, why: str) -> BoundingSets | None:
        """Propose the cheapest scan that reaches the tolerance.

        If none does, propose the longest scan tried, or return None if hardly any run of it coalesced.
        """
        query = self.query
        best: tuple[Scan, float] | None = None
        longest: tuple[Scan, float, float] | None = None
        least = math.inf
        try:
            for length in self._lengths():
                for scan in self._scans(length):
                    shares = self._unsettled(scan)
                    left = query.tolerance - 0.5 * float(shares.max())
                    if left > 0 and len(scan) * (runs := self._runs(_SHARE * left)) < least:
                        best, least = (scan, left), len(scan) * runs
                    if longest is None or (len(scan), -shares.mean()) > (len(longest[0]), -longest[2]):
                        longest = (scan, float(shares.min()), float(shares.mean()))
                if best is not None and 2 * length * self._runs(query.tolerance) >= least:
                    break
        except LateError:
            if longest is None:
                raise
        if best is not None and least <= self._most_updates(best[0]):
            scan, left = best
            share = 2 * (query.tolerance - left)
            reason = f"{why}; in a pilot, targets did not coalesce in at most {share:.2g} of the runs"
            return self._method(scan, left, reason, True)
        if longest is None or longest[1] > _MOST_OPEN * max(question.span for question in query.questions):
            return None
        self.is_far = not 0.5 * longest[1] < 0.8 * query.tolerance
        # Where runs that do not coalesce dominate the width of the intervals, fewer runs do as well.
        left = max(0.5 * query.tolerance, 0.25 * longest[1] if self.is_far else 0.0)
        steps = int(self._most_updates(longest[0]) // self._runs(_SHARE * left))
        if steps < len(query.labels):
            return None
        scan = query.complete(longest[0].order[max(0, len(longest[0]) - steps) :])
        if len(scan) > 2 * steps:  # most steps would be updates of targets at the beginning
            return None
        return self._method(scan, left, f"{why}; a pilot shows that some targets will not coalesce", False)

    def why_not(self) -> str:
        """Explain why no scan reaches the tolerance: what was tried, and which argument allows more."""
        steps = 0 if self.tried is None else len(self.tried[0])
        allowed = f"{self.patience:.3g} s allowed ('time_limit' changes this)"
        if self.query.budget is not None:
            allowed = "'budget'"
        return (
            f"no target coalesced often enough in pilots of {self.runs} runs of up to {steps} steps; answers from "
            f"longer runs would take more than the {allowed}."
        )

    def _method(self, scan: Scan, left: float, reason: str, reaches: bool) -> BoundingSets:
        query, runs, kernel = self.query, self._runs(_SHARE * left), self._kernel_for(scan)
        seconds = kernel.seconds(len(scan) * runs, scan)
        most = runs * sum(more for _, more in _TRIES)
        may_try_again = seconds * _TRIES[1][1] <= _PATIENCE and len(scan) * most <= self._most_updates(scan)
        plan = BoundingSets.draft(
            query, reason, max(0.0, query.tolerance - left), scan=scan, chains=most if may_try_again else runs,
            kernel=kernel.name, seconds=seconds, reaches_tolerance=reaches, other_updates=self.spent,
        )  # fmt: skip
        return BoundingSets(query, replace(plan, stops_early=may_try_again), kernel, runs)

    def _kernel_for(self, scan: Scan) -> SetKernel:
        if self.tried is None or self.tried[0] is not scan:
            self.tried = (scan, choose_sets(self.query.model, scan))
        return self.tried[1]

    def _lengths(self) -> Iterator[int]:
        """Yield doubling scan lengths, while there is time for a pilot and for the answer that follows."""
        length = max(64, 4 * len(self.query.objective.positions))
        while True:
            yield length
            # Pilots of all lengths together may take half of the time.
            is_late = 2 * self.seconds > 0.5 * self.patience
            if is_late or self.is_exhausted or self.tried is None:
                return
            length *= 2
            if length * self._runs(self.query.tolerance) > self._most_updates(self.tried[0]):
                return

    def _runs(self, half_width: float) -> int:
        """Return the number of runs for intervals of this half-width; `_TOO_MANY` if no number suffices."""
        try:
            return self.strict.most_chains(half_width)
        except BudgetError:
            return _TOO_MANY

    def _most_updates(self, scan: Scan) -> float:
        """Return how many updates the budget or the time limit leaves for an answer drawn with this scan."""
        if self.query.budget is not None:
            return self.query.budget - self.spent
        return self.patience / self._kernel_for(scan).seconds(1e12, scan) * 1e12

    def _scans(self, length: int) -> Iterator[Scan]:
        """Yield the scans to try at about this length: a greedy one and, if many variables are targets, a sweep.

        If most variables are targets, the greedy scan is left out.
        """
        n = self.query.model.n_variables
        if not self.query.is_about_most:
            self.search.extend(0.0, length)
            self.is_exhausted = self.search.steps < length
            yield self.query.complete(self.search.order(min(length, self.search.steps)))
        if len(self.query.labels) * 4 >= n:
            yield Scan.systematic(n, max(1, length // n) * n)

    @cached_property
    def search(self) -> BackwardGreedy:
        """Return the greedy search for scans by the influence, started with one step."""
        search = BackwardGreedy(
            guiding_rows(self.query.space.rows, self.query.objective.positions), self.query.objective
        )
        search.extend(0.0, 1)
        return search

    def _unsettled(self, scan: Scan) -> NDArray[np.float64]:
        """Estimate for each row of the answer the probability that its variables do not coalesce.

        Each probability is multiplied by the width of the row's vacuous interval, which is 1 but for statistics.
        """
        kernel = self._kernel_for(scan)
        seconds = kernel.seconds(self.runs * len(scan), scan)
        current_deadline().charge(seconds, f"a pilot of {len(scan)} steps")
        self.seconds += seconds
        running = replace(PLAIN, deadline=current_deadline())
        block = run_sets(
            self.query.model, kernel, scan, self.query.labels, range(self.runs), _PILOT_SEED, running=running
        )
        self.spent += self.runs * len(scan)
        if block.trouble is not None:
            current_deadline().check(f"a pilot of {len(scan)} steps")
            raise block.trouble
        settled = block.settled[:, -1] >= 0
        shares = []
        for question, columns in zip(self.query.questions, self.query.columns, strict=True):
            unsettled = question.unsettled(settled[:, columns])
            shares.append(question.span * ((unsettled + 1.0) / (self.runs + 2.0) + block.error))
        return np.concatenate(shares)
