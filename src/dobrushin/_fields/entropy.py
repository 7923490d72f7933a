"""Estimates of fields by random-scan chains on a box, whose relative entropy falls at a known rate. [trusted]

Theory page, "Fields on boxes". Each chain starts uniformly near the centre of the box and updates variables in a random
order, which all chains share. The chain's relative entropy bounds its bias on the box. The probability of the field
outside the box is added to the bias bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import AnswerRows, Choice, Method, Plan
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Tally
from dobrushin._estimate.runs import Bias, ChainRun, StateChains
from dobrushin._fields.anchor import FieldSpace
from dobrushin._fields.boxes import OFFSETS, Boxed, Decay, box_of, decay_of
from dobrushin._fields.chains import FieldChains, FieldKernel, chains_needed
from dobrushin._fields.intervals import SHARES, Clip, FieldTally, Limits, TallyTerms, most_drifted
from dobrushin._fields.terms import FieldTerms
from dobrushin._kernels.generator import START, mix
from dobrushin._models.near import ScanRegion, region_of
from dobrushin._sampling.kernel import FixedStart, Work, streams_of
from dobrushin._sampling.samples import Samples
from dobrushin._scan import Scan
from dobrushin._shared.arrays import Floats, frozen
from dobrushin._shared.intervals import BernsteinMean
from dobrushin._shared.running import Running
from dobrushin.errors import CertificateError

# Shares of the tolerance that are tried for the probability outside the box, and its largest value.
_OUTSIDE_SHARES, _MOST_OUTSIDE = (0.05, 0.12, 0.25), 0.02
# Shares for a standard deviation: squares are large outside the box, so the shares are smaller. The first share whose
# plan takes at most this many times as long as the cheapest plan is used.
_DEVIATION_SHARES, _WORTH = (0.005, 0.02, 0.06, 0.12, 0.25), 2.0
# Share of the tolerance for the total variation of a chain from the field on the box, and its largest value. Both are
# small, because the number of steps grows with their logarithm only.
_CHAIN_SHARE, _MOST_CHAIN = 0.002, 1e-4
# Shares of the error probability: for the means that show where the field is in its box, and for an order of updates
# after which the relative entropy is unusually large.
_CENTRE_SHARE, _ORDER_SHARE = 0.01, 0.01
# The random stream that the order is drawn from; those of chains have smaller numbers.
_ORDER_STREAM = 2**62
# Deviations from the mean beyond which values are clipped, for a standard deviation.
_CLIP_DEVIATIONS = 3.7
_UP = 1.0 + 1e-9
# If another method has a plan of at most this number of seconds, it is used, and this method is not planned.
_LONG_SECONDS = 10.0
# A plan shorter than this is not compared with plans for boxes whose means are closer to the centre.
_SHORT_SECONDS = 1.0


@dataclass(frozen=True)
class SpreadKernel(FieldKernel):
    """Kernel for chains of a field that start uniformly on an interval for each variable and share one random order."""

    spread: Floats = field(default_factory=lambda: np.zeros(0))  # half of the width for each variable of the region

    def start(self, master: NDArray[np.uint64], chains: range) -> Floats:
        keys = streams_of(master, chains, 1)
        numbers = START + self.region.positions.astype(np.uint64)
        words = np.asarray(mix.py_func(keys[0] + keys[1] * numbers[:, None]))
        share = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return self.point[:, None] + (2.0 * share - 1.0) * self.spread[:, None]

    def run(self, x: NDArray[Any], work: Work) -> None:
        shared = streams_of(work.master, range(_ORDER_STREAM, _ORDER_STREAM + 1), 1)
        for steps in self.drawn_steps(work, work.choices(), shared):
            self.advance(x, work, steps, work.keys(1))


@dataclass(frozen=True, kw_only=True)
class BoxedQuery(Query):
    """A query about a field restricted to a box.

    Chains record all variables, not only the targets, because the sample means verify where in the box the field is.
    """

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        return np.arange(self.model.n_variables)

    @cached_property
    def error(self) -> float:
        return (1.0 - _CENTRE_SHARE - _ORDER_SHARE) * (1.0 - self.confidence) / self.intervals


class FieldEntropy(FieldChains):
    """Estimation method that runs random-scan chains on a box, with the bias bounded by relative entropy.

    Attributes
    ----------
    boxed : Boxed
    off : float
        Bound on the probability that a chain, drawn in floating point, is farther than the rounding error `place` from
        an exact draw of the field on the box, under the best coupling.
    clips : list of Clip or None
        How the values of each mean are clipped and averaged; None for questions that count chains.
    """

    name: ClassVar[str] = "entropy"
    works_nearby: ClassVar[bool] = False
    reason: ClassVar[str] = (
        "certified before sampling: the relative entropy of random scans on a box falls at a known rate"
    )
    has_proof: ClassVar[bool] = False

    def __init__(
        self, query: Query, plan: Plan, kernel: FieldKernel, bias: Bias, boxed: Boxed, off: float, clips: list[Any]
    ) -> None:
        StateChains.__init__(self, query, plan, kernel, bias)
        self.boxed, self.off, self.clips = boxed, off, clips

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method:
        if query.proof:
            raise cls.refuse("proofs of answers by random scans on boxes are not supported yet.")
        if choice.best is not None and choice.best.plan.seconds <= _LONG_SECONDS:
            return choice.best
        form = query.space.form
        has_deviations = any(question.state == "sd" for question in query.questions)
        shares: tuple[float, ...] = _DEVIATION_SHARES if has_deviations else _OUTSIDE_SHARES
        shares = (0.0,) if form.is_bounded.all() else shares
        best, refusal = choice.best, None
        for offset in OFFSETS:
            found: list[FieldEntropy] = []
            for share in shares:
                try:
                    boxed = box_of(form, min(share * query.tolerance, _MOST_OUTSIDE), offset)
                    found.append(cls._on(query, boxed))
                except CertificateError as error:
                    refusal = error
            if found:
                longest = min(method.plan.seconds for method in found) * (_WORTH if has_deviations else 1.0)
                own = next(method for method in found if method.plan.seconds <= longest)
                best = own if best is None or own.plan.seconds < best.plan.seconds else best
            if form.is_bounded.all() or (best is not None and best.plan.seconds < _SHORT_SECONDS):
                break
        if best is None:
            assert refusal is not None
            raise refusal
        return best

    @classmethod
    def _on(cls, query: Query, boxed: Boxed) -> FieldEntropy:
        """Return this method's plan for the query on the given box."""
        decay, tolerance = decay_of(boxed), query.tolerance
        inner = FieldSpace(boxed.form.to_model(query.model.labels), query.space.place)
        questions = [replace(question, space=inner) for question in query.questions]
        own = BoxedQuery(
            **({part.name: vars(query)[part.name] for part in fields(Query)} | {"space": inner, "questions": questions})
        )
        goal = min(_CHAIN_SHARE * tolerance, _MOST_CHAIN)
        # By Markov's inequality, the entropy after a random order seldom exceeds its mean over orders by this factor.
        seldom = _ORDER_SHARE * (1.0 - query.confidence)
        scan = Scan.uniform(query.model.n_variables, decay.steps(2.0 * goal * goal * seldom))
        off = goal + _slip(inner, len(scan))
        bounds = [_bound_question(question, boxed, goal, off) for question in questions]
        clips = [clip for _, clip in bounds]
        pairs = zip(questions, bounds, strict=True)  # the width of a deviation has no bound beforehand
        known = [
            bias + (0.0 if clip is None else clip.slack) for question, (bias, clip) in pairs if question.state != "sd"
        ]
        left = tolerance - max([boxed.outside + off, *known])
        chains = chains_needed(own, clips, left)
        if not chains:
            widest = int(np.argmax(boxed.form.width))
            raise cls.refuse(
                f"boxes that hold the field have widths of up to {boxed.form.width[widest]:.3g} "
                f"({query.model.labels[widest]!r}), on which relative entropy falls by {decay.rate:.2g} a sweep, too "
                "slowly for this tolerance: larger counts, a larger precision or narrower priors of coefficients help."
            )
        chains = max(chains, cls._chains_for_centre(own, boxed))
        kernel = make_spread(inner, decay, scan)
        plan = cls.draft(
            query, cls.reason, tolerance - left, scan=scan, chains=chains, kernel=kernel.name,
            seconds=kernel.seconds(float(len(scan)) * chains, scan),
        )  # fmt: skip
        words = (
            f"a chain is within {goal:.1e} of the field on a box in total variation (its relative entropy falls at the "
            f"rate {decay.rate:.3g} a sweep), but for a share {_ORDER_SHARE} of the error probability"
        )
        if boxed.stages:
            half = boxed.stages[-1].half
            words += (
                f"; the half-widths of the box are {half.min():.3g} to {half.max():.3g}, and the probability outside "
                f"is at most {boxed.outside:.1e}, which the run verifies by the sample means of all variables"
            )
        rows = [np.array([bias]) for bias, _ in bounds]
        return cls(own, plan, kernel, Bias(rows, [np.zeros(1) for _ in rows], words), boxed, off, clips)

    @classmethod
    def _chains_for_centre(cls, query: Query, boxed: Boxed) -> int:
        """Return how many chains show that no mean is far from the centre of the box.

        Each mean is estimated to within half of the distance that the box allows between the mean and its centre.
        """
        if not boxed.stages:
            return 0
        error = _CENTRE_SHARE * (1.0 - query.confidence) / 2.0
        share = 0.5 * float((boxed.stages[-1].offset / np.sqrt(boxed.variance)).min())
        return -(-math.ceil(2.0 * math.log(4.0 * query.model.n_variables / error) / share**2) // 64) * 64

    def counted_chains(self, aim: float) -> int:
        return max(super().counted_chains(aim), self._chains_for_centre(self.query, self.boxed))

    def make_tallies(self, aim: float) -> list[Tally]:
        errors = self.query.space.anchor.errors
        known = zip(self.query.questions, self.clips, self.bias.bounds, strict=True)
        common = self.query.error, aim, errors
        chains = self.counted_chains(aim)
        terms = [TallyTerms(*common, float(bias[0]), clip, self.query.tolerance) for _, clip, bias in known]
        return [
            DeviationTally(question, own, self.boxed, self.off, chains)
            if question.state == "sd"
            else question.tally_for(own)
            for question, own in zip(self.query.questions, terms, strict=True)
        ]

    def begin(self, sequence: np.random.SeedSequence, running: Running) -> BoxedRun:
        return BoxedRun(self, sequence, running)

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            f"The answer comes from {estimate.chains:,} chains. Each made {estimate.steps:,} updates on a box around "
            "the field, of variables in one random order. Given the order the chains are independent.",
            "On the box the energy has a least curvature, so the relative entropy of a chain falls by a known factor "
            "at each step, on average over orders, and bounds its bias. The probability outside of the box is bounded "
            f"too. Together the mean of infinitely many such chains is off by at most {estimate._bias_text}.",
            f"The random error remains. The intervals ({estimate.plan.interval}) were widened by the bias bound, and "
            f"hold all at once with probability {estimate.confidence_text} or more.",
        ]


def make_spread(space: FieldSpace, decay: Decay, scan: Scan) -> SpreadKernel:
    """Make the kernel for chains on a box, with the uniform start whose relative entropy is bounded."""
    form: FieldTerms = space.form
    region: ScanRegion = region_of(form, scan._updates(form.n_variables))
    plain = FieldKernel.start_at(form, region, FixedStart(decay.point, "near the middle"), space.anchor.errors.distance)
    return SpreadKernel(**(vars(plain) | {"spread": frozen(decay.spread[region.place])}))


def _slip(space: FieldSpace, steps: int) -> float:
    """Bound the probability that a chain with rounded draws ends farther than `place` from one with exact draws.

    At each step the conditional law differs from that of the exact chain, since the linear term is rounded and the
    neighbours are off by up to `place`. The order of the variables is arbitrary here.
    """
    form, errors = space.form, space.anchor.errors
    moved = errors.field + (abs(form.couplings) @ errors.place) * (1.0 + 1e-9)
    each = errors.chance + space.tilt * space.variances * moved + 2.0**-50
    return float(min(1.0, steps * each.max() * (1.0 + 1e-9)))


def _bound_question(question: Any, boxed: Boxed, goal: float, off: float) -> tuple[float, Clip | None]:
    """Return a bound on the bias of a question, and how its values are clipped; None if chains are counted."""
    positions, slopes = question.positions, question.slopes
    if question.state == "sd":  # the difference of roots is at most the root of the difference
        i = int(positions[0])
        missed = boxed.moved_square(i) + boxed.moved(positions, slopes) ** 2 + off * float(boxed.form.width[i]) ** 2
        return math.sqrt(missed), None
    if question.is_counted:
        return min(1.0, boxed.outside + off), None
    form = boxed.form
    deviation = float(slopes @ np.sqrt(boxed.variance[positions]))
    bias = boxed.moved(positions, slopes) + 2.0 * goal * deviation
    if math.isfinite(question.bounds[1] - question.bounds[0]):  # total variation bounds the bias too
        bias = min(bias, (question.bounds[1] - question.bounds[0]) * (boxed.outside + goal) * _UP)
    point = boxed.centre[positions]
    middle = float(question.values(point[None, :], 0)[0])
    reach = float(slopes @ np.maximum(form.upper[positions] - point, point - form.lower[positions])) * (1.0 + 1e-9)
    low, high = max(question.bounds[0], middle - reach), min(question.bounds[1], middle + reach)
    span = (high - low) * (1.0 + 1e-12) + 1e-300
    place = question.space.anchor.errors.place[positions]
    slack = float(slopes @ place) + 2.0**-48 * (abs(low) + span)
    proxy = min(deviation**2 * (1.0 + 1e-9), 0.25 * span**2)
    return bias + span * off, Clip(low, span, proxy, slack, off, SHARES[0])


class DeviationTally(FieldTally):
    """Estimates the standard deviation of a variable x from clipped averages of x - c and (x - c)^2.

    c is the centre of the box. Each average has a confidence sequence with half of the error probability.
    """

    def __init__(self, question: Any, terms: TallyTerms, boxed: Boxed, off: float, chains: int) -> None:
        super().__init__(question, terms)
        i = int(question.positions[0])
        place, width = float(terms.errors.place[i]), float(boxed.form.width[i])
        self.centre = float(boxed.centre[i])
        self.reach, mean, square = boxed.clip(i, _CLIP_DEVIATIONS)
        self.slacks = (
            (mean + boxed.moved(question.positions, np.ones(1)) + off * width + place) * _UP,
            (square + boxed.moved_square(i) + (off * self.reach + 2.0 * place) * self.reach) * _UP + 2.0**-40 * place,
        )
        # Expected half-widths for this number of chains, if x has a normal law with half of the proxy as its variance.
        scale = math.sqrt(math.log(4.0 / terms.error) / max(chains, 1))
        share = 0.5 * float(boxed.variance[i]) / self.reach**2
        self.mean = BernsteinMean(0.5 * terms.error, scale * math.sqrt(0.5 * share))
        self.square = BernsteinMean(0.5 * terms.error, scale * 2.0 * share)

    def take(self, values: Floats) -> None:
        unit = np.clip((values - self.centre) / self.reach, -1.0, 1.0)
        self.mean.add(0.5 * (unit + 1.0))
        self.square.add(unit**2)

    def ends(self, early: bool) -> Limits:
        if not self.chains:
            return Limits(math.nan, *self.question.bounds)
        low, high = ((2.0 * end - 1.0) * self.reach for end in self.mean.interval())
        low, high = low - self.slacks[0], high + self.slacks[0]
        least = 0.0 if low <= 0.0 <= high else min(low * low, high * high)
        below, above = (end * self.reach**2 for end in self.square.interval())
        variance = [below - self.slacks[1] - max(low * low, high * high), above + self.slacks[1] - least]
        mean, square = self.mean.total / self.chains, self.square.total / self.chains
        value = self.reach * math.sqrt(max(square - (2.0 * mean - 1.0) ** 2, 0.0))
        return Limits(value, math.sqrt(max(variance[0], 0.0)) / _UP, math.sqrt(max(variance[1], 0.0)) * _UP)


class BoxedRun(ChainRun):
    """A run of chains on a box that also averages all variables, to show that their means are near the box's centre."""

    method: FieldEntropy

    def __init__(self, method: FieldEntropy, sequence: np.random.SeedSequence, running: Running) -> None:
        super().__init__(method, sequence, running)
        self.sums, self.counted = np.zeros(method.query.model.n_variables), 0

    def _take(self, block: Samples) -> None:
        if self.counted < self.trials and block.states is not None:
            self.sums += (block.states - self.method.boxed.centre).sum(axis=0)
            self.counted += len(block.states)
        super()._take(block)

    @property
    def is_centred(self) -> bool:
        """Return whether all means are certified to be as near to the box's centre as the bound on `outside` assumes.

        Half of the error probability is for the planned number of chains; the other half is shared among all other
        numbers n, in proportion to 1 / (n (n + 1)).
        """
        boxed, n = self.method.boxed, self.counted
        if not boxed.stages:
            return True
        if not n:
            return False
        error = 0.5 * _CENTRE_SHARE * (1.0 - self.query.confidence)
        error = error if n == self.trials else error / (n * (n + 1.0))
        drifted = most_drifted(n * self.method.off, 0.5 * error)
        reach = np.sqrt(2.0 * boxed.variance * math.log(4.0 * len(self.sums) / error) / n)
        reach += boxed.form.width * (drifted / n) + self.query.space.anchor.errors.place
        return bool((np.abs(self.sums / n) + reach * (1.0 + 1e-9) <= boxed.stages[-1].offset).all())

    def rows(self, biases: list[Floats], widenings: list[Floats]) -> list[AnswerRows]:
        rows = super().rows(biases, widenings)
        if self.is_centred:
            return rows
        vacuous = []
        for question, row in zip(self.query.questions, rows, strict=True):
            least, most = (np.array([end]) for end in question.bounds)
            vacuous.append(AnswerRows(row.mean, least, most, most - least))
        return vacuous
