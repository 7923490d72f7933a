"""Estimates of fields by chains whose bias is bounded beforehand. [trusted: `FieldChains.propose`, `bound_bias`]"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.dobrushin import cheapest_scan
from dobrushin._estimate.method import Choice, Curve, Method, Plan
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Tally
from dobrushin._estimate.runs import Bias, ChainMethod
from dobrushin._fields.anchor import REMEDY
from dobrushin._fields.certificate import Drift, FieldVariation, certify, float_drift, proxy
from dobrushin._fields.intervals import FIXED, SHARES, Clip, Terms, make_clip
from dobrushin._fields.kernel import FieldKernel, make_kernel
from dobrushin._influence.rows import THEOREMS
from dobrushin._models import Model
from dobrushin._scan import Scan
from dobrushin._shared.intervals import PLANNED, trials_needed
from dobrushin._variation import Objective, weighted_sum


@dataclass(frozen=True)
class Design:
    """A scan for a query, with bounds on its bias."""

    scan: Scan
    certificate: FieldVariation
    biases: NDArray[np.float64]  # of each question


class FieldChains(ChainMethod):
    """Chains of one scan from one initial point, with the bias bounded before sampling."""

    name: ClassVar[str] = "dobrushin"
    remedy: ClassVar[str] = REMEDY
    reason: ClassVar[str] = "certified before sampling: Dobrushin's bound in Wasserstein distance reaches the tolerance"

    def __init__(self, query: Query, plan: Plan, kernel: FieldKernel, design: Design, clips: list[Any]) -> None:
        super().__init__(query, plan, kernel)
        self.design, self.clips = design, clips

    @cached_property
    def drift(self) -> Drift:
        """How far chains of the scan can be from exact ones."""
        return _chain_drift(self.query, self.design)

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method:
        if choice.best is not None:
            return choice.best
        scan = cheapest_scan(query)
        design = None if scan is None else _certify(query, scan)
        if design is None or design.biases.max() >= query.tolerance:
            raise cls.refuse("no scan of an affordable length brings the bias below the tolerance.")
        if query.proof and not _chain_drift(query, design).chance < 1.0:
            raise cls.refuse("a proof says how far chains drift from exact ones, which has no bound here.")
        bias = float(design.biases.max())
        clips = [_clip_for(query, design, question, query.tolerance - bias) for question in query.questions]
        left = query.tolerance - bias - max((clip.slack for clip in clips if clip is not None), default=0.0)
        chains = _chains_needed(query, clips, left)
        if left <= 0 or not chains:
            raise cls.refuse("the random error, and how far draws are off, have no bound that reaches the tolerance.")
        kernel = make_kernel(query.space, query.space.anchor, design.scan)
        seconds = kernel.seconds(float(len(design.scan)) * chains, design.scan)
        plan = cls.draft(
            query, cls.reason, query.tolerance - left, scan=design.scan, chains=chains, kernel=kernel.name,
            seconds=seconds,
        )  # fmt: skip
        return cls(query, replace(plan, stops_early=plan.stops_early and not query.proof), kernel, design, clips)

    def needed_updates(self) -> int:
        """Means stop early: with a budget they are drawn until it is spent."""
        return 0 if self.query.budget is not None and self.plan.stops_early else self.plan.updates

    def counted_chains(self, aim: float) -> int:
        return self.plan.chains if self.query.proof else super().counted_chains(aim)

    def make_tallies(self, aim: float) -> list[Tally]:
        query: Any = self.query
        errors, biases = query.space.errors(query.space.anchor), self.design.biases.tolist()
        if query.proof:  # states how far whole chains are off
            errors = replace(errors, place=self.drift.each)
            pairs = zip(query.questions, biases, strict=True)
            biases = [bias + question.is_counted * self.drift.chance for question, bias in pairs]
        known = zip(query.questions, self.clips, biases, strict=True)
        return [question.tally_for(Terms(query.error, aim, errors, bias, clip)) for question, clip, bias in known]

    def bound_bias(self) -> Bias:
        query, design = self.query, self.design
        theorems = np.unique(query.space.known.rows(design.scan._updates(query.model.n_variables)).theorem)
        names = ", ".join(THEOREMS[k] for k in theorems) or "none needed"
        words = (
            "the bias is bounded by the Dobrushin variation of the scan in Wasserstein distance (influence by "
            f"{names}), from one fixed start, rounded upwards"
        )
        bounds = [np.array([bias]) for bias in design.biases]
        # Tallies widen by the bias themselves: that of a quantile is one of its level.
        return Bias(bounds, [np.zeros(1) for _ in bounds], words, design.certificate)

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


def _chain_drift(query: Query, design: Design) -> Drift:
    """How far chains can be from exact ones, whatever is asked of them."""
    nothing = Objective(query.positions, np.zeros(len(query.positions)), False)
    return float_drift(query.space, design.scan, query.space.anchor, nothing)


def _clip_for(query: Query, design: Design, question: Any, aim: float) -> Clip | None:
    """Return how a mean is averaged; None for a counted question."""
    if question.is_counted:
        return None
    space, anchor = query.space, query.space.anchor
    objective = Objective(question.positions, question.slopes, False)
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


def _chains_needed(query: Query, clips: list[Clip | None], left: float) -> int:
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


def _certify(query: Query, scan: Scan) -> Design:
    """The certificate of a scan, with the errors of draws, and the bias of each question."""
    every = Objective(query.positions, np.ones(len(query.positions)), False)
    certificate = certify(query.space, scan, every, query.space.anchor)
    bounds = certificate.bounds_at(query.positions)
    return Design(scan, certificate, np.concatenate(query.biases(bounds)))
