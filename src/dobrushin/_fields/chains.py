"""The sampling kernel for Gaussian fields, and the estimation method that certifies the bias of its chains beforehand.

[trusted: `FieldChains.propose`]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.dobrushin import Dobrushin, cheapest_scan, name_theorems
from dobrushin._estimate.method import Choice, Method, Plan
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Tally
from dobrushin._estimate.runs import Bias
from dobrushin._fields.anchor import REMEDY, Anchor, find_start, read_start, space_of
from dobrushin._fields.certificate import ChainBounds, Drift, certify
from dobrushin._fields.intervals import FIXED, SHARES, Clip, TallyTerms, make_clips, undecidable_share, values_expected
from dobrushin._fields.likelihood import TERMS
from dobrushin._fields.model import GaussianField
from dobrushin._fields.terms import FieldTerms
from dobrushin._kernels.field_draws import field_steps
from dobrushin._models.forms import Form
from dobrushin._models.near import ScanRegion, region_of
from dobrushin._sampling.array_kernel import ArrayKernel, StepList
from dobrushin._sampling.kernel import CACHE_BYTES, Batches, FixedStart, Work
from dobrushin._sampling.sampler import make_runner
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen, weighted_sum
from dobrushin._shared.intervals import PLANNED, trials_needed
from dobrushin._shared.text import rounded_up
from dobrushin._variation import Objective
from dobrushin.errors import ArgumentError, CertificateError


@dataclass(frozen=True)
class FieldKernel(ArrayKernel):
    """Kernel that updates one variable in many chains at once, each chain with its own random numbers."""

    region: ScanRegion
    sites: tuple[NDArray[np.float64], ...]
    values: tuple[NDArray[Any], ...]
    couplings: NDArray[np.float64]
    point: NDArray[np.float64]  # where every chain starts: one number for each variable of the region
    error: NDArray[np.float64]
    work_of_sites: NDArray[np.float64]
    fixed_start: FixedStart | None = field(default=None, compare=False)
    name: ClassVar[str] = "density"
    measure: ClassVar[str] = "Wasserstein distance"
    counts_states: ClassVar[bool] = False
    rate: ClassVar[float] = 2.5e8
    batch: ClassVar[int] = 256

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: ScanRegion) -> bool:
        return isinstance(form, FieldTerms)

    @classmethod
    def make(cls, form: Any, region: ScanRegion) -> FieldKernel:
        return cls.start_at(form, region, FixedStart(find_start(form), ""), np.zeros(form.n_variables))

    @classmethod
    def start_at(
        cls, form: FieldTerms, region: ScanRegion, start: FixedStart, error: NDArray[np.float64]
    ) -> FieldKernel:
        """Make the kernel of a region for chains with this start; `error` bounds each variable's draw error."""
        place, point = region.place, start.point
        numbers = (form.diagonal, form.linear, form.lower, form.upper)
        amounts = form.amounts[:, place]
        sites = (*(frozen(number[place]) for number in numbers), frozen(amounts))
        sizes = np.diff(form.value_start)[place]
        value_start = np.concatenate([[0], np.cumsum(sizes)])
        sets = [form.values_of(int(i)) for i in place[sizes > 0]]
        values = (frozen(value_start.astype(np.int64)), frozen(np.concatenate([np.empty(0), *sets])))
        likelihood = sum((amount > 0) * term.work for term, amount in zip(TERMS, amounts, strict=True))
        work = 1.0 + likelihood + 4.0 * sizes
        return cls(
            region, sites, values, frozen(form.couplings.data[region.entry]), frozen(point[place]),
            frozen(error[place]), frozen(work), fixed_start=start,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "fixed_start": None}  # only the main process needs the state of the whole model

    def errors_in(self, scan: Scan) -> NDArray[np.float64]:
        return self.error[self.region.updated]

    @property
    def costs(self) -> NDArray[np.float64]:
        return self.work_of_sites

    @property
    def dtype(self) -> Any:
        return np.float64

    def batches(self, numbers: range, cores: int) -> Batches:
        most = max(64, CACHE_BYTES // (8 * self.region.size) // 64 * 64)
        return Batches(numbers, min(super().batches(numbers, cores).size, most))

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.float64]:
        return np.repeat(self.point[:, None], len(chains), axis=1)

    def load(self, states: NDArray[Any]) -> NDArray[np.float64]:
        return np.array(states, dtype=np.float64, order="C")

    def advance(self, x: NDArray[Any], work: Work, steps: StepList, keys: NDArray[np.uint64]) -> None:
        rows = (self.region.start, self.region.neighbor, self.couplings)
        field_steps(*steps, *rows, *self.sites, *self.values, keys, np.empty(x.shape[1]), x)


@make_runner.register
def _(model: GaussianField, scan: Scan, chains: int, kernel: str | None, initial: Any) -> FieldKernel:
    del chains
    if kernel not in (None, FieldKernel.name):
        raise ArgumentError("kernel", f"None or {FieldKernel.name!r} for a field", kernel)
    space, point = space_of(model), read_start(model, initial)
    try:
        anchor = space.anchor_at(point)
    except CertificateError:  # chains can be run all the same
        start, n = find_start(model._form) if point is None else point, model.n_variables
        anchor = Anchor(space, frozen(start), np.full(n, np.inf), np.ones(n))
    return make_kernel(anchor, scan, "near the modes" if point is None else "given")


def make_kernel(anchor: Anchor, scan: Scan, start: str = "near the modes") -> FieldKernel:
    """Make the kernel that runs a scan from an initial point (`anchor`); `start` describes the point in results."""
    form = anchor.space.form
    is_certified = bool(np.isfinite(anchor.unit).all())
    error = anchor.errors.distance if is_certified else np.full(form.n_variables, np.inf)
    region = region_of(form, scan._updates(form.n_variables))
    return FieldKernel.start_at(form, region, FixedStart(anchor.point, start), error)


# A share of undecidable draws below this part of the tolerance is neglected in the plan.
_TINY_SHARE = 1e-6
# Stages are used if the first one is expected to need less than this part of the chains planned without stages.
_STAGES_PAY = 0.8
_UNDECIDED = (
    "the bias is certified before sampling, but a share of up to {} of the draws may be too close to an end of the "
    "event to decide"
)


class FieldChains(Dobrushin):
    """Estimation method that runs one scan from one initial point, with the bias bounded before sampling.

    Attributes
    ----------
    clips : list of Clip or None
        How the values of each mean are clipped and averaged; None for probabilities and quantiles, which count chains.
    """

    remedy: ClassVar[str] = REMEDY
    reason: ClassVar[str] = "certified before sampling: Dobrushin's bound in Wasserstein distance reaches the tolerance"
    start: ClassVar[str] = "from the point at which all chains start"
    bounded: ClassVar[str] = "far {} can still be from the field, in Wasserstein distance"
    caution: ClassVar[str] = " For unbounded variables the intervals do not rely on a sample variance alone."

    def __init__(
        self, query: Query, plan: Plan, kernel: FieldKernel, bias: Bias, chain: ChainBounds, clips: list[Clip | None]
    ) -> None:
        super().__init__(query, plan, kernel, bias)
        self.chain, self.clips = chain, clips

    @property
    def drift(self) -> Drift:
        """Return bounds on how far the scan's chains are from chains with exact draws."""
        return self.chain.drift

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method:
        if choice.best is not None:
            return choice.best
        if any(question.state == "sd" for question in query.questions):
            raise cls.refuse("standard deviations have no Lipschitz constant.")
        tolerance, anchor = query.tolerance, query.space.anchor
        scan = cheapest_scan(query)
        proven = None if scan is None else _bound_bias(query, scan)
        if scan is None or proven is None or proven.largest >= tolerance:
            raise cls.refuse("no scan of an affordable length brings the bias below the tolerance.")
        chain = ChainBounds(anchor, scan)
        if query.proof and not chain.drift.chance < 1.0:
            raise cls.refuse("a proof needs a bound on the effect of rounding on the chains, and none was found.")
        bias = proven.largest
        clips = [
            _clip_for(query, proven.certificate, chain, question, tolerance - bias) for question in query.questions
        ]
        undecided = _undecided(query, chain)
        reaches = bias + 0.5 * undecided < tolerance  # otherwise draws are counted nevertheless
        slacks = [clip.slack for clip in clips if clip is not None]
        left = tolerance - bias - max(*slacks, 0.5 * undecided if reaches else 0.0, 0.0)
        chains = chains_needed(query, clips, left)
        if left <= 0 or not chains:
            raise cls.refuse("the bounds on the random error and on the rounding of draws exceed the tolerance.")
        kernel = make_kernel(anchor, scan)
        seconds = kernel.seconds(float(len(scan)) * _chains_expected(clips, chains), scan)
        plan = cls.draft(
            query, cls.reason if reaches else _UNDECIDED.format(rounded_up(undecided)), tolerance - left, scan=scan,
            chains=chains, kernel=kernel.name, seconds=seconds, reaches_tolerance=reaches,
        )  # fmt: skip
        plan = replace(plan, stops_early=plan.stops_early and not query.proof)
        return cls(query, plan, kernel, proven, chain, clips)

    def needed_updates(self) -> int:
        """Return 0 if sampling may stop early within a budget, and else the number of planned updates."""
        return 0 if self.query.budget is not None and self.plan.stops_early else self.plan.updates

    def counted_chains(self, aim: float) -> int:
        return self.plan.chains if self.query.proof else super().counted_chains(aim)

    def make_tallies(self, aim: float) -> list[Tally]:
        query: Any = self.query
        errors, biases = query.space.anchor.errors, [float(bound[0]) for bound in self.bias.bounds]
        if query.proof:  # a proof states how far whole chains are off
            errors = errors._replace(place=self.drift.each)
            pairs = zip(query.questions, biases, strict=True)
            biases = [bias + question.is_counted * self.drift.chance for question, bias in pairs]
        known = zip(query.questions, self.clips, biases, strict=True)
        common = query.error, aim, errors
        return [question.tally_for(TallyTerms(*common, bias, clip, query.tolerance)) for question, clip, bias in known]


def _bound_bias(query: Query, scan: Scan) -> Bias:
    """Bound the bias of each question after the scan from the fixed initial point."""
    every = Objective(query.positions, np.ones(len(query.positions)), False)
    certificate = certify(query.space.anchor, scan, every)
    bounds = query.biases(certificate._problem.at(certificate._bounds, query.positions))
    words = (
        "the bias is bounded by the Dobrushin variation of the scan in Wasserstein distance (influence by "
        f"{name_theorems(query, scan)}), from one fixed start, rounded upwards"
    )
    # No widening here: tallies add the bias themselves, because for a quantile it is a bias of the level.
    return Bias(bounds, [np.zeros(1) for _ in bounds], words, certificate)


def _undecided(query: Query, chain: ChainBounds) -> float:
    """Return the largest expected share of chains that are too close to an event's ends to classify; 0 if tiny."""
    events = [question for question in query.questions if question.state == "probability"]
    errors = query.space.anchor.errors
    if events and query.proof:
        errors = errors._replace(place=chain.drift.each)
    share = max((undecidable_share(question, errors) for question in events), default=0.0)
    return share if share > _TINY_SHARE * query.tolerance else 0.0


def _clip_for(query: Query, certificate: Any, chain: ChainBounds, question: Any, aim: float) -> Clip | None:
    """Choose how the values of a mean are clipped and averaged; None for a question that counts chains."""
    if question.is_counted:
        return None
    anchor, objective = chain.anchor, Objective(question.positions, question.slopes, False)
    sigma2, drifted, chance = chain.proxy(objective), chain.drift.of(objective), chain.drift.chance
    after = certificate.distances_at(question.positions)
    before = anchor.initial[question.positions] * anchor.unit[question.positions]
    distance = weighted_sum(objective.weights, after + before, 4)
    if query.proof:
        least, most = question.bounds
        return Clip(0.0, math.inf, min(sigma2, 0.25 * (most - least) ** 2), drifted, chance, FIXED)
    steepness, start = chain.steepness(objective), anchor.point[question.positions]
    clips = make_clips(question, start, distance, sigma2, steepness, drifted, chance)
    if not math.isfinite(clips[-1].span) or aim <= 0:
        return clips[-1]

    def planned(clip: Clip) -> float:
        return clip.most_chains(aim, query.error) or math.inf

    later = min((clip._replace(shares=SHARES[1]) for clip in clips), key=planned)
    # Stopping early pays if it is expected to happen before all chains are drawn.
    variance = chain.guess_variance(objective)
    expected = values_expected(aim / later.span, variance / later.span**2, query.error)
    first = planned(later)
    if math.isfinite(steepness):
        staged = clips[-1].with_stages(aim, math.sqrt(variance), query.error)
        if staged.stages and staged.stages[0].chains < min(_STAGES_PAY * first, expected):
            return staged
    return later if first <= expected else min(clips, key=planned)


def _chains_expected(clips: list[Clip | None], chains: int) -> int:
    """Return the number of chains after which all means are expected to have narrow enough intervals."""
    return max(clip.stages[0].chains if clip is not None and clip.stages else chains for clip in clips)


def chains_needed(query: Query, clips: list[Clip | None], left: float) -> int:
    """Return the number of chains that is enough whatever is drawn; 0 if no number is enough.

    `left` is the half-width that remains for the random error.
    """
    if left <= 0:
        return 0
    needed = [
        trials_needed(left, PLANNED * query.error) if clip is None else clip.most_chains(left, query.error)
        for clip in clips
    ]
    chains = -(-max(64, *needed) // 64) * 64 if all(needed) else 0
    # With more chains than a mean needs, drifting chains may use up its error probability.
    is_finite = all(clip is None or math.isfinite(clip.half_width(chains, query.error)) for clip in clips if chains)
    return chains if is_finite else 0
