"""Estimates of fields by chains whose bias is bounded beforehand. [trusted: `Sampling.propose`, `FieldRun`]"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import Choice, Curve, Method, Plan, Rows
from dobrushin._estimate.runs import INDEPENDENT_BITS, close, stopped_by
from dobrushin._fields.anchor import ScaledRows
from dobrushin._fields.certificate import Drift, FieldVariation, certify, float_drift, proxy
from dobrushin._fields.kernel import FieldKernel
from dobrushin._fields.query import FieldMethod, FieldQuery
from dobrushin._fields.questions import FIXED, SHARES, Clip, FieldTally, Terms, make_clip
from dobrushin._fields.sampler import make_kernel, run_field_chains
from dobrushin._influence.rows import THEOREMS
from dobrushin._models import Model
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.shortest import MOST_STEPS, stagnates
from dobrushin._sampling.sampler import Record
from dobrushin._sampling.samples import Samples
from dobrushin._scan import Scan
from dobrushin._shared.executors import TimeUp, Trouble
from dobrushin._shared.intervals import ANYTIME, PLANNED, trials_needed
from dobrushin._shared.running import Running
from dobrushin._shared.text import rounded_up
from dobrushin._variation import Objective, weighted_sum
from dobrushin.errors import BudgetError

# Numbers that are drawn at a time at most, and kept in the result.
_AT_ONCE, _KEPT = 2**24, 2**24
_FIRST_BLOCK = 1024
# Sweeps, where most variables are asked for, before it is asked whether more of them help; and how far to go.
_MOST_SWEEPS = 100_000


@dataclass(frozen=True)
class Design:
    """A scan for a query, with what is known of its bias and of the random error."""

    scan: Scan
    certificate: FieldVariation
    biases: NDArray[np.float64]  # of each question


class Sampling(FieldMethod):
    """Chains of one scan, from one point; their bias is bounded before anything is drawn."""

    name: ClassVar[str] = "dobrushin"
    reason: ClassVar[str] = "certified before sampling: Dobrushin's bound in Wasserstein distance reaches the tolerance"

    def __init__(self, query: FieldQuery, plan: Plan, kernel: FieldKernel, design: Design, clips: list[Any]) -> None:
        super().__init__(query, plan)  # type: ignore[arg-type]
        self.kernel, self.design, self.clips = kernel, design, clips

    @cached_property
    def drift(self) -> Drift:
        """How far chains of the scan can be from exact ones."""
        return chain_drift(self.query, self.design)

    @classmethod
    def propose(cls, query: Any, choice: Choice) -> Method:
        design = find_design(query)
        if design is None:
            raise cls.refuse("no scan of an affordable length brings the bias below the tolerance.")
        if query.proof and not chain_drift(query, design).chance < 1.0:
            raise cls.refuse("a proof says how far chains drift from exact ones, which has no bound here.")
        bias = float(design.biases.max())
        clips = [make_clips(query, design, question, query.tolerance - bias) for question in query.questions]
        left = query.tolerance - bias - max((clip.slack for clip in clips if clip is not None), default=0.0)
        chains = _chains_needed(query, clips, left)
        if left <= 0 or not chains:
            raise cls.refuse("the random error, and how far draws are off, have no bound that reaches the tolerance.")
        kernel = make_kernel(query.space, query.anchor, design.scan)
        seconds = kernel.seconds(float(len(design.scan)) * chains, design.scan)
        names = dict.fromkeys(question.interval for question in query.questions)
        plan = cls.draft_field(
            query, cls.reason, query.tolerance - left, " and ".join(names), scan=design.scan, chains=chains,
            kernel=kernel.name, seconds=seconds,
        )  # fmt: skip
        best = choice.best
        return cls(query, plan, kernel, design, clips) if best is None or seconds < best.plan.seconds else best

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        run = FieldRun(self, sequence, running)
        run.draw()
        return run.close()

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            f"The answer comes from {estimate.chains:,} independent chains. Each started at the same point and made "
            f"{estimate.steps:,} updates of single variables, in an order that was chosen for these targets.",
            "Before anything was drawn, Dobrushin's condition in Wasserstein distance showed how far such a chain can "
            "be from the field after so many updates: means are off by their bias bound or less, at most "
            f"{estimate.bias_text}, and so are probabilities and the levels of quantiles. This is proven and does not "
            "rest on chance.",
            f"What is left is chance. The intervals ({estimate.plan.interval}) were widened by the bias bound, and "
            f"hold all at once with probability {estimate.confidence_text} or more. No sample variance is relied on "
            "where a variable has no bounds.",
        ]

    @classmethod
    def curve(cls, estimate: Estimate, model: Model | None) -> Curve | None:
        del model
        if estimate.certificate is None:
            return None
        steps, values = estimate.certificate.curve()
        words = "Dobrushin's bound on how far the targets can still be from the field, as a sum of distances."
        return Curve(steps, values, f"{words} It is proven: no chance is involved.")


def chain_drift(query: FieldQuery, design: Design) -> Drift:
    """How far chains can be from exact ones, whatever is asked of them."""
    nothing = Objective(query.positions, np.zeros(len(query.positions)), False)
    return float_drift(query.space, design.scan, query.anchor, nothing)


def make_clips(query: FieldQuery, design: Design, question: Any, aim: float) -> Clip | None:
    """How a mean is averaged; None for what is counted."""
    if question.is_counted:
        return None
    space, anchor = query.space, query.anchor
    objective: Objective = question.objective
    sigma2 = proxy(space, design.scan.order, objective)
    drift: Drift = float_drift(space, design.scan, anchor, objective)
    after = design.certificate.per_variable_at(question.positions)
    before = anchor.initial[question.positions] * anchor.unit[question.positions]
    distance = weighted_sum(objective.weights, after + before, 4)
    if query.proof:
        least, most = question.bounds
        return Clip(0.0, math.inf, min(sigma2, 0.25 * (most - least) ** 2), drift.distance, drift.chance, FIXED)
    clip = make_clip(question, anchor.point[question.positions], distance, sigma2, drift)
    if not math.isfinite(clip.span) or aim <= 0:
        return clip
    # Stopping early pays if the confidence sequence can be narrow before all chains are drawn.
    later = clip._replace(shares=SHARES[1])
    least = 4.0 * clip.span / aim * math.log(2.0 / query.error)
    return later if later.most_chains(aim, query.error) <= least else clip


def _chains_needed(query: FieldQuery, clips: list[Clip | None], left: float) -> int:
    """Chains that the random error needs in the worst case; 0 where no number is enough."""
    if left <= 0:
        return 0
    needed = [
        trials_needed(left, PLANNED * query.error) if clip is None else clip.most_chains(left, query.error)
        for clip in clips
    ]
    chains = -(-max(64, *needed) // 64) * 64 if all(needed) else 0
    # More chains than a mean needs may be more than its draws allow.
    is_finite = all(clip is None or math.isfinite(clip.half_width(chains, query.error)) for clip in clips if chains)
    return chains if is_finite else 0


def find_design(query: FieldQuery) -> Design | None:
    """The scan with the least steps x chains; chains go with 1 / (tolerance - bias)^2. None if none is good enough."""
    n, asked = query.model.n_variables, len(query.positions)
    best, least = None, math.inf
    norms: list[float] = []
    for scan, total in _scans(query, 4 * asked >= n):
        design = _certify(query, scan)
        left = query.tolerance - float(design.biases.max())
        if left > 0 and len(scan) / left**2 < least:
            best, least = design, len(scan) / left**2
        norms.append(total if total > 0 else float(design.biases.sum()))
        if len(scan) / query.tolerance**2 >= least:
            return best
        if best is None and len(norms) > 60 and stagnates(np.array(norms)):
            return None
    return best


def _scans(query: FieldQuery, sweeps: bool) -> Iterator[tuple[Scan, float]]:
    """Scans of growing length: sweeps, or backward greedy ones, with the norm that the search knows."""
    n, space, anchor = query.model.n_variables, query.space, query.anchor
    if sweeps:
        count = 1
        while count <= _MOST_SWEEPS and n * count <= MOST_STEPS:
            yield Scan.systematic(n, n * count), 0.0
            count += max(1, count // 8)
        return
    weights = np.zeros(len(query.positions))
    for question in query.questions:
        own = question.weights if not question.is_counted else space.tilt[question.positions]
        np.maximum.at(weights, query.columns(question), own * anchor.unit[question.positions])
    search = BackwardGreedy(ScaledRows(space, anchor), Objective(query.positions, weights, False))
    length = len(query.positions)
    while length <= MOST_STEPS:
        search.extend(0.0, length)
        order = search.order(min(length, search.steps))
        missing = np.setdiff1d(query.positions, order)
        yield Scan(np.concatenate([missing, order]) if len(missing) else order), search.norm
        if search.steps < length:
            return
        length += max(1, length // 8)


def _certify(query: FieldQuery, scan: Scan) -> Design:
    """The certificate of a scan, and the bias of each question."""
    every = Objective(query.positions, np.ones(len(query.positions)), False)
    certificate = certify(query.space, scan, every, query.anchor)
    biases = []
    for question in query.questions:
        if question.is_counted:
            biases.append(float(certificate.tv_at(question.positions)[0]))
            continue
        span = question.bounds[1] - question.bounds[0]
        distances = certificate.per_variable_at(question.positions)
        biases.append(min(span, weighted_sum(question.weights, distances, 4)))
    return Design(scan, certificate, np.array(biases))


class FieldRun:
    """Chains of a plan, drawn block by block and turned into intervals."""

    def __init__(self, method: Sampling, sequence: np.random.SeedSequence, running: Running) -> None:
        self.method, self.query, self.plan = method, method.query, method.plan
        self.sequence, self.running = sequence, running
        query, aim = self.query, method.plan.monte_carlo
        errors, biases = query.space.errors(query.anchor), method.design.biases.tolist()
        counted = any(question.is_counted for question in query.questions)
        self.trials = -(-trials_needed(aim, PLANNED * query.error) // 64) * 64 if counted else 0
        if query.proof:  # states how far whole chains are off, and one number of them
            self.trials, errors = method.plan.chains, replace(errors, place=method.drift.each)
            pairs = zip(query.questions, biases, strict=True)
            biases = [bias + question.is_counted * method.drift.chance for question, bias in pairs]
        known = zip(query.questions, method.clips, biases, strict=True)
        self.tallies: list[FieldTally] = [
            question.tally(Terms(query.error, aim, errors, bias, clip)) for question, clip, bias in known
        ]
        self.done = 0
        self.trouble: Trouble | None = None
        self.blocks: list[Samples] = []

    def draw(self) -> None:
        """Draw as many chains as it takes, or until something ends it."""
        labels = self.query.model._labels_at(self.query.positions)
        for numbers in self._blocks():
            running = replace(self.running, checkpoint=self.running.file(len(self.blocks)))
            block, self.trouble = run_field_chains(
                self.query.model, self.method.kernel, self.method.design.scan, numbers, self.sequence,
                record=Record(labels), running=running,
            )  # fmt: skip
            self._take(block)
            if self.trouble is not None:
                return

    def _blocks(self) -> Iterator[range]:
        """Numbers of chains to draw next, until all that are counted are there and all means are narrow."""
        room = max(64, _AT_ONCE // len(self.query.positions) // 64 * 64)
        steps, budget = len(self.method.design.scan), self.query.budget
        allowed = math.inf if budget is None else budget // steps // 64 * 64
        while self.done < self.trials or not all(tally.is_narrow for tally in self.tallies):
            if self.done >= self.plan.chains:
                return
            more = self.trials - self.done if self.done < self.trials else max(_FIRST_BLOCK, self.done // 256 * 64)
            size = int(min(room, more, self.plan.chains - self.done, allowed - self.done))
            if size <= 0:
                self.trouble = TimeUp()
                remedy = "Allow more, or ask for a larger tolerance."
                estimate = replace(self.estimate(), stopped_by="the budget")
                raise BudgetError(
                    "This estimate", self.plan.updates, budget or 0.0, "Gibbs updates", remedy, self.plan, estimate
                )
            yield range(self.done, self.done + size)

    def _take(self, block: Samples) -> None:
        states: Any = block.states
        for question, tally in zip(self.query.questions, self.tallies, strict=True):
            wanted = self.done < self.trials if question.is_counted else not tally.is_narrow
            if wanted and len(states):
                tally.add(question.values(states[:, self.query.columns(question)], self.done))
        kept = sum(known.states.size for known in self.blocks if known.states is not None)
        self.blocks.append(block if kept + states.size <= _KEPT else replace(block, states=None))
        self.done += len(states)

    def estimate(self) -> Estimate:
        """The answer that the chains give."""
        rows = []
        for tally, bias in zip(self.tallies, self.method.design.biases, strict=True):
            limits = tally.limits(self.trouble is not None)
            rows.append(Rows(*(np.array([number]) for number in (*limits, bias))))
        samples, design = self._samples(), self.method.design
        return replace(
            self.method.assemble(
                rows, self.query.confidence, self._assumptions(), samples=samples, certificate=design.certificate,
                seed=self.sequence, run=self,
            ),
            stopped_by=stopped_by(self.trouble),
        )  # fmt: skip

    def _samples(self) -> Samples | None:
        if len(self.blocks) <= 1:
            return self.blocks[0] if self.blocks else None
        states = [block.states for block in self.blocks if block.states is not None]
        joined = np.concatenate(states) if len(states) == len(self.blocks) else None
        return replace(self.blocks[0], states=joined, chains=sum(block.chains for block in self.blocks))

    def _assumptions(self) -> tuple[str, ...]:
        query, plan = self.query, self.plan
        updated = self.method.design.scan.updates(query.model.n_variables)
        names = ", ".join(THEOREMS[k] for k in np.unique(query.space.rows.rows(updated).theorem)) or "none needed"
        error = float(self.method.kernel.error.max(initial=0.0))
        given = [repr(question.name) for question in query.questions if question.name is not None]
        several = "s" if plan.intervals > 1 else ""
        words = [
            "the bias is bounded by the Dobrushin variation of the scan in Wasserstein distance (influence by "
            f"{names}), from one fixed start, rounded upwards",
            f"an update as it is drawn (kernel {self.method.kernel.name}) is off by at most {rounded_up(error, 2)} in "
            "Wasserstein distance (included)",
            INDEPENDENT_BITS,
            f"{plan.intervals} interval{several} ({plan.interval}) at once with confidence {plan.confidence:g}",
        ]
        if given:
            words.append(f"the weights of {', '.join(given)} were given and not checked")
        if self.trouble is not None:
            words.append(
                f"stopped after {self.done} of {plan.chains} chains: the intervals hold whenever one stops (confidence "
                f"sequences, for which {ANYTIME:.0%} of the error or more was kept)"
            )
        return tuple(words)

    def close(self) -> Estimate:
        """The answer, or the error that carries it where something else than time has ended the run."""
        return close(self.estimate(), self.trouble, self.done, self.plan.chains, "chains", self.running)
