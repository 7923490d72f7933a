"""Confidence intervals from the chains of a field: clipped means, counts, and order statistics. [trusted]"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dobrushin._estimate.questions import Shortfall, Tally
from dobrushin._fields.anchor import DrawErrors
from dobrushin._shared.intervals import LARGEST_BET, BernsteinMean, lower_end, upper_end

# Distance, in roots of the variance proxy, from the possible range of the mean to the clipping limits: clipping then
# changes the mean by less than 3e-15 roots of the proxy.
_CLIP = 8.0
# Shares of the error probability: of an interval that may stop early, and of one for the number of chains that was
# planned; the second pair where stopping early is not expected to pay.
SHARES = ((0.75, 0.25), (0.01, 0.99))
# Shares where a proof is wanted: a proof states one mean, of a fixed number of chains.
FIXED = (0.0, 1.0)
# Where the variance is expected to be far below its proxy: for stopping early, for all chains that were planned, and
# for stopping at one of a few numbers of chains, which grow by _STAGE_GROWTH from _FIRST_STAGE of the expected need.
STAGED, _STAGES_SHARE = (0.01, 0.49), 0.5
_STAGE_GROWTH, _FIRST_STAGE = 1.25, 1.15
# Part of a stage's share that pays for bounding the variance by the sample variance.
_VARIANCE_SHARE = 0.2
# Part of the share for the planned number of chains that pays for an unusually large number of chains that drift
# away from exact ones.
_SPARED = 1e-3


class Limits(NamedTuple):
    """The estimate for a question, and both ends of its interval."""

    value: float
    low: float
    high: float


class DrawStage(NamedTuple):
    """A planned number of chains at which sampling may stop.

    The sample variance then gives an interval, for the share `share` of the error probability.
    """

    chains: int
    share: float


class Clip(NamedTuple):
    """Limits low and low + span to which values are clipped before averaging, with bounds on the random error.

    Attributes
    ----------
    low, span : float
    proxy : float
        Variance proxy of the clipped values, which are sub-Gaussian; at most a quarter of the squared span.
    slack : float
        Largest change of the mean through clipping and through rounding of draws.
    chance : float
        Probability that a chain is farther from a chain with exact draws than `slack` allows for.
    shares : pair of floats
        Shares of the error probability: for intervals that allow stopping early, and for the planned number of chains.
    steepness : float
        Lipschitz constant of a chain's clipped value as a function of its standard normal random inputs; infinite if
        there is none.
    stages : tuple of DrawStage
        Numbers of chains at which the sample variance gives an interval.
    """

    low: float
    span: float
    proxy: float
    slack: float
    chance: float
    shares: tuple[float, float]
    steepness: float = math.inf
    stages: tuple[DrawStage, ...] = ()

    def most_chains(self, aim: float, error: float) -> int:
        """Return a number of chains that makes the interval narrow enough for any data; 0 if there is none."""
        left, moved, chains = self.shares[1] * error, 0.0, 0
        for _ in range(200):  # the error probability that remains falls with their number
            if left <= 0 or aim <= 0:
                return 0
            more = 2.0 * chains
            if aim > moved:
                more = max((self._deviation(left) / (aim - moved)) ** 2 * (1.0 + 1e-8), chains + 1.0)
            if not more < 2.0**52:
                return 0
            chains = math.ceil(more)
            if self.half_width(chains, error) <= aim:
                return chains
            left, moved = self._terms(chains, error)
        return 0

    def half_width(self, chains: int, error: float) -> float:
        """Return the half-width of the interval from a number of chains that was fixed in advance."""
        left, moved = self._terms(chains, error)
        if left <= 0:
            return math.inf
        return (self._deviation(left) / math.sqrt(chains) + moved) * (1.0 + 1e-9)

    def _deviation(self, error: float) -> float:
        """Return sqrt(N) times the half-width of the interval from the average of N chains with exact draws."""
        chernoff = math.sqrt(2.0 * self.proxy * math.log(2.0 / error))
        return min(chernoff, self.steepness * normal_reach(0.5 * error))

    def varied_reach(self, chains: int, deviation: float, error: float) -> float:
        """Return the half-width of the interval from a number of chains and their sample standard deviation.

        It is infinite if the chance that some chain drifted from an exact chain uses up the error probability (theory
        page, "Intervals from the sample variance").
        """
        error -= chains * self.chance
        if error <= 0 or not math.isfinite(self.steepness):
            return math.inf
        for_variance = _VARIANCE_SHARE * error
        most = math.sqrt(
            chains / (chains - 1.0)
            * ((deviation + self.slack + self.steepness * normal_reach(for_variance) / math.sqrt(chains)) ** 2
               + self.steepness**2 / chains)
        )  # fmt: skip
        most = min(most, self.steepness)
        log = math.log(2.0 / (error - for_variance))
        # Chernoff's bound for any of these rates, which depend on no data.
        rates = math.sqrt(2.0 * log / chains) / self.steepness * _RATES
        far = min(self.steepness * math.sqrt(2.0 * math.log(1e4 * chains)), self.span)
        x = rates * far
        above = far / self.steepness - rates * self.steepness
        with np.errstate(all="ignore"):
            grown = (np.expm1(x) - x) / x**2
            tail = np.exp(x - 0.5 * (far / self.steepness) ** 2) * (1.0 + rates * self.steepness / above)
        tail = np.where(above > 0.0, tail, np.inf) if far < self.span else np.zeros(len(x))
        reaches = (log / chains + grown * (rates * most) ** 2 + tail) / rates
        return float(reaches.min()) * (1.0 + 1e-9)

    def with_stages(self, aim: float, deviation: float, error: float) -> Clip:
        """Return these parameters with stages at which sampling may stop early; without stages if they do not pay.

        `deviation` is the expected standard deviation of the values.
        """
        planned = self._replace(shares=STAGED).most_chains(aim, error) or 2**52
        aim = aim - self.slack
        share, chains = _STAGES_SHARE / 2.0, 64

        def is_enough(count: int) -> bool:
            return self.varied_reach(count, deviation, share * error) <= aim

        while chains < planned and not is_enough(chains):
            chains = math.ceil(1.05 * chains)
        stages: list[DrawStage] = []
        count = _FIRST_STAGE * chains
        while count < planned and len(stages) < 12:
            stages.append(DrawStage(-(-math.ceil(count) // 64) * 64, share))
            count, share = count * _STAGE_GROWTH, share / 2.0
        return self._replace(shares=STAGED, stages=tuple(stages))

    def _terms(self, chains: int, error: float) -> tuple[float, float]:
        """Return the error probability left for chance fluctuations, and how far drifted chains can move the mean.

        Either all chains stay near their exact counterparts, or at most k chains drift. The case that gives the
        narrower interval is used, and its failure probability is subtracted from `error`. A drifted chain moves the
        mean by at most span / chains; without clipping there is no such bound, so no chain may drift.
        """
        error = self.shares[1] * error
        drifted = chains * self.chance
        choices = [(error - drifted, 0.0)]
        if math.isfinite(self.span) and drifted > _SPARED * error:
            k = most_drifted(drifted, _SPARED * error)
            choices.append(((1.0 - _SPARED) * error, k * self.span / chains))

        def width(choice: tuple[float, float]) -> float:
            left, moved = choice
            return self._deviation(left) / math.sqrt(chains) + moved if left > 0 else math.inf

        return min(choices, key=width) if chains else choices[0]


# Rates of exponential moments that are tried, as multiples of the best one where the variance is its proxy.
_RATES = 1.1 ** np.arange(-2.0, 60.0)


def normal_reach(error: float) -> float:
    """Return t such that F(Z) > E F(Z) + t with probability at most `error`, for normal inputs Z and 1-Lipschitz F.

    The worst function is min(z, q), where q is the upper `error` quantile of one normal input z (theory page,
    "Functions of normal variables").
    """
    q = -float(special.ndtri(error))
    return (q * float(special.ndtr(q)) + math.exp(-0.5 * q * q) / math.sqrt(2.0 * math.pi)) * (1.0 + 1e-12)


def most_drifted(expected: float, error: float) -> float:
    """Return a number that a count of independent events exceeds with probability `error` or less.

    `expected` bounds the mean of the count. The probability of k + 1 or more events is at most expected^(k+1) / (k+1)!.
    """
    for k in range(1000):
        if (k + 1) * math.log(expected) - math.lgamma(k + 2) <= math.log(error) - 1e-6:
            return k
    return math.inf


def make_clips(
    question: Any, states: NDArray[np.float64], distance: float, sigma2: float, steepness: float, drifted: float,
    chance: float,
) -> list[Clip]:  # fmt: skip
    """Return alternative parameters for averaging the values of a mean.

    The last one relies on the variance proxy sigma2 of f(X_T), the first one only on the range to which values are
    clipped. `states` is the initial point at the question's positions, and `distance` bounds |E f(X_T) - f(x0)|. A
    rounded chain is off by more than `drifted` with probability at most `chance`.
    """
    least, most = question.bounds
    sigma = math.sqrt(sigma2)
    if not math.isfinite(drifted):
        if not math.isfinite(most - least):
            return [Clip(0.0, math.inf, math.inf, 0.0, 1.0, SHARES[0])]
        return [Clip(least, most - least, 0.25 * (most - least) ** 2, 0.0, 0.0, SHARES[0])]
    centre = float(question.values(states[None, :], 0)[0])
    reach = (_CLIP * sigma + distance) * (1.0 + 1e-9) + 2.0**-50 * abs(centre) + 1e-300  # never 0
    low, high = max(least, centre - reach), min(most, centre + reach)
    span = (high - low) * (1.0 + 1e-15)
    clipped = 0.0 if (low, high) == question.bounds else 2.0 * sigma / _CLIP * math.exp(-0.5 * _CLIP**2) * 1.01
    slack = clipped + drifted + span * chance + 2.0**-48 * (abs(low) + span)
    bounded = Clip(low, span, 0.25 * span**2, slack, 0.0, SHARES[0])  # valid for any law of the draws
    return [bounded, Clip(low, span, min(sigma2, bounded.proxy), slack, chance, SHARES[0], steepness)]


def values_expected(aim: float, variance: float, error: float) -> float:
    """Estimate how many values in [0, 1] with this variance make an interval narrow enough, if it may stop early."""
    bet = min(LARGEST_BET, aim / max(variance, 1e-300))
    won = bet * aim - variance * (-math.log1p(-bet) - bet)
    return math.log(2.0 / (SHARES[0][0] * error)) / won if won > 0 else math.inf


class TallyTerms(NamedTuple):
    """Parameters of a question's interval.

    `error` is its error probability, `errors` bounds the errors of draws, `bias` bounds the bias, and `clip` says how
    values are clipped. `tolerance` is the half-width to reach, `aim` the same without bias and errors of draws.
    """

    error: float
    aim: float
    errors: DrawErrors
    bias: float
    clip: Clip | None
    tolerance: float


class FieldTally(Tally):
    """Collects the chains' values for one question as counts or averages; its interval is widened by the bias."""

    def __init__(self, question: Any, terms: TallyTerms) -> None:
        super().__init__(question)
        self.terms, self.chains = terms, 0

    def add(self, states: NDArray[Any], settled: NDArray[np.bool_] | None, first: int) -> None:
        self.chains += len(states)
        self.take(self.question.values(states, first))

    def limits(self, outcomes: int, error: float, wrong: float, early: bool) -> tuple[NDArray[np.float64], ...]:
        del outcomes, error, wrong  # `terms` has what the tally needs
        return tuple(np.array([number]) for number in self.ends(early))

    @abstractmethod
    def take(self, values: NDArray[np.float64]) -> None:
        """Add the values of more chains."""

    @abstractmethod
    def ends(self, early: bool) -> Limits:
        """Return the interval; `early` says that the run ended before the planned number of chains."""


def deciding_error(question: Any, errors: DrawErrors) -> float:
    """Return how close to an end of an event's interval a draw is left undecided because of rounding.

    The distance is 0 for variables on finite sets.
    """
    i, (low, high) = question.positions[0], question.target._ends
    if question.space.form.is_finite[i]:
        return 0.0
    rounding = 2.0**-50 * (abs(low) + (0.0 if math.isinf(high) else abs(high)))
    return float(errors.place[i]) + rounding


def undecidable_share(question: Any, errors: DrawErrors) -> float:
    """Bound the expected share of chains that are too near an end of the event's interval to be classified.

    The share is at most the width of the undecided zones times the largest value of a conditional density. Such a
    density is at most 1 / integral of exp(-slope d - curvature d^2 / 2) over distances d from its mode, on the longer
    side of the mode.
    """
    form, i = question.space.form, int(question.positions[0])
    error = deciding_error(question, errors)
    ends = [end for end in question.target._ends if form.lower[i] - error <= end <= form.upper[i] + error]
    if not error or not ends:
        return 0.0
    reach = question.space.anchor.reach()
    # Bounds the slope without likelihoods, and so e^x times the exposure at a mode that is not the lower end.
    pull = float(abs(form.linear[i]) + (abs(form.couplings[[i]]) @ reach)[0] + form.diagonal[i] * reach[i])
    steep = [term.near_mode(float(amount[i]), pull, float(form.lower[i])) for term, amount in form.likelihood]
    curvature = float(form.diagonal[i]) + sum(bend for _, bend in steep)
    has_ends = np.isfinite(form.lower[i]) or np.isfinite(form.upper[i])
    slope = pull + sum(slope for slope, _ in steep) if has_ends else 0.0  # bounds the slope at the mode
    # Over this distance the exponent falls by at most 3 / 2, and e^x grows at most by a factor of e.
    room = min(1.0, 0.5 * float(form.width[i]), 1.0 / max(slope, math.sqrt(curvature)))
    return min(1.0, len(ends) * 2.0 * error * math.exp(1.5) / room)


class EventTally(FieldTally):
    """Counts the chains in an interval, from below and from above: rounding leaves chains near its ends undecided."""

    def __init__(self, question: Any, terms: TallyTerms) -> None:
        super().__init__(question, terms)
        self.surely = self.perhaps = 0

    def take(self, values: NDArray[np.float64]) -> None:
        low, high = self.question.target._ends
        error = deciding_error(self.question, self.terms.errors)
        if not error:
            surely = perhaps = (values > low) if math.isinf(high) else (values >= low) & (values <= high)
        else:
            surely = (values > low + error) & (values < high - error)
            perhaps = (values >= low - error) & (values <= high + error)
        self.surely, self.perhaps = self.surely + int(surely.sum()), self.perhaps + int(perhaps.sum())

    def ends(self, early: bool) -> Limits:
        error, bias = self.terms.error, self.terms.bias
        if not self.chains:
            return Limits(0.5, 0.0, 1.0)
        low = float(lower_end(self.surely, self.chains, error / 2, early))
        high = float(upper_end(self.perhaps, self.chains, error / 2, early))
        value = 0.5 * (self.surely + self.perhaps) / self.chains
        return Limits(value, max(low - bias, 0.0), min(high + bias, 1.0))

    @property
    def shortfall(self) -> Shortfall | None:
        _, low, high = self.ends(False)
        is_wide = self.perhaps > self.surely and high - low > 2.0 * self.terms.tolerance
        return Shortfall.UNDECIDABLE if is_wide else None


class QuantileTally(FieldTally):
    """Sorts the chains' values and takes two of them as the interval's ends (theory page, "Quantiles")."""

    def __init__(self, question: Any, terms: TallyTerms) -> None:
        super().__init__(question, terms)
        self.blocks: list[NDArray[np.float64]] = []

    def take(self, values: NDArray[np.float64]) -> None:
        self.blocks.append(values)

    def order_statistics(self, early: bool) -> tuple[NDArray[np.float64], int, int]:
        """Return the sorted values, and the ranks (from 1) between which the quantile lies."""
        level, bias = self.question.target.level, self.terms.bias
        x = np.sort(np.concatenate([[], *self.blocks]))
        return x, *ranks(len(x), level - bias, level + bias, self.terms.error, early)

    def ends(self, early: bool) -> Limits:
        least, most = self.question.bounds
        if not self.chains:
            return Limits(math.nan, least, most)
        x, low, high = self.order_statistics(early)
        off = float(self.terms.errors.place[self.question.positions[0]])
        lower = max(float(x[low - 1]) - off, least) if low else least
        upper = min(float(x[high - 1]) + off, most) if high <= len(x) else most
        return Limits(float(x[math.ceil(self.question.target.level * len(x)) - 1]), lower, upper)


def ranks(chains: int, least: float, most: float, error: float, early: bool) -> tuple[int, int]:
    """Return two ranks r and s for the confidence interval of a quantile.

    An event with probability `least` or more occurs in at least r of the chains, and an event with probability `most`
    or less in fewer than s of them. Both statements together fail with probability at most `error`.
    """

    def first(fits: Callable[[int], bool]) -> int:
        low, high = -1, chains + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    r = first(lambda k: float(upper_end(k, chains, error / 2, early)) >= least)
    s = first(lambda k: float(lower_end(k, chains, error / 2, early)) > most)
    return r, s


class ClippedMean(FieldTally):
    """Averages clipped values, with a confidence sequence, stages and an interval for the planned number of chains."""

    def __init__(self, question: Any, clip: Clip, terms: TallyTerms) -> None:
        super().__init__(question, terms)
        self.clip = clip
        self.sequence = BernsteinMean(clip.shares[0] * terms.error, terms.aim / clip.span)
        self.squares = 0.0
        self.passed: list[tuple[float, float]] = []  # mean and half-width after each stage, in units of the span

    @property
    def is_narrow(self) -> bool:
        return min(self.sequence.half_width, *(reach for _, reach in self.passed), math.inf) * self.clip.span <= (
            self.terms.aim
        )

    def take(self, values: NDArray[np.float64]) -> None:
        unit = np.clip((values - self.clip.low) / self.clip.span, 0.0, 1.0)
        while len(unit):
            at_stage = [stage for stage in self.clip.stages if stage.chains > self.sequence.count]
            size = min(len(unit), at_stage[0].chains - self.sequence.count) if at_stage else len(unit)
            self._add(unit[:size])
            if at_stage and self.sequence.count == at_stage[0].chains:
                self.passed.append(self._stage(at_stage[0]))
            unit = unit[size:]

    def _add(self, unit: NDArray[np.float64]) -> None:
        self.sequence.add(unit)
        self.squares += math.fsum(unit * unit)

    def _stage(self, stage: DrawStage) -> tuple[float, float]:
        mean = self.sequence.total / stage.chains
        variance = max(self.squares / stage.chains - mean * mean, 0.0) + 1e-12  # more than the rounding
        deviation = self.clip.span * math.sqrt(variance)
        reach = self.clip.varied_reach(stage.chains, deviation, stage.share * self.terms.error)
        return mean, reach / self.clip.span

    def ends(self, early: bool) -> Limits:
        least, span, count = self.clip.low, self.clip.span, self.sequence.count
        bounds = self.question.bounds
        if not count:
            return Limits(least + 0.5 * span, *bounds)
        known = [self.sequence.interval(), *((mean - reach, mean + reach) for mean, reach in self.passed)]
        mean = self.sequence.total / count
        if not early and not self.is_narrow:
            reach = self.clip.half_width(count, self.terms.error) / span
            known.append((mean - reach, mean + reach))
        low, high = max(low for low, _ in known), min(high for _, high in known)
        if not low <= high:
            low, high = known[0]
        slack = self.clip.slack + self.terms.bias
        ends = least + span * low - slack, least + span * high + slack
        value = least + span * min(max(mean, low), high)
        return Limits(value, max(ends[0], bounds[0]), min(ends[1], bounds[1]))


class PlannedMean(FieldTally):
    """Averages values without clipping them, over exactly the planned number of chains."""

    def __init__(self, question: Any, clip: Clip, terms: TallyTerms) -> None:
        super().__init__(question, terms)
        self.clip, self.total = clip, 0.0

    @property
    def is_narrow(self) -> bool:
        return False

    def take(self, values: NDArray[np.float64]) -> None:
        self.total += math.fsum(values)

    def ends(self, early: bool) -> Limits:
        least, most = self.question.bounds
        mean = self.total / self.chains if self.chains else math.nan
        if early or not self.chains:  # the interval is for the planned number
            return Limits(mean, least, most)
        reach = self.clip.half_width(self.chains, self.terms.error) + self.clip.slack + self.terms.bias
        return Limits(mean, max(mean - reach, least), min(mean + reach, most))
