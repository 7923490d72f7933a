"""Weighted draws from mini-buckets or a Gaussian envelope, with intervals from bets on the weights. [trusted]

A draw x has a weight W in [0, 1] whose mean, given x, is proportional to the ratio of the model's probability of x to
that of the proposal. So E W (f(x) - p) = 0 for the mean p of f under the model. A gambler who bets on a wrong p gets
rich: the wealth is a test martingale for the right p, and the p for which it stays below 2 / error, after any number of
draws, are an interval (theory page, "Bounded weights").

A pilot with separate random bits chooses the proposal and the number of draws.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.bets import PRIOR, weighted_interval
from dobrushin._estimate.method import SOON_SECONDS, AnswerRows, Choice, Method, Plan
from dobrushin._estimate.query import Query
from dobrushin._estimate.runs import INDEPENDENT_BITS, Run
from dobrushin._exact.envelope import Envelope, has_envelope
from dobrushin._exact.minibuckets import Layout, MiniBuckets, NoState, TooDense, lay_out
from dobrushin._models.memory import Slot
from dobrushin._sampling.weighted import Proposal, Tries, draw_weighted
from dobrushin._shared.call import NO_DEADLINE, Deadline, LateError, current_deadline
from dobrushin._shared.executors import cores
from dobrushin._shared.memory import require_memory
from dobrushin._shared.running import PLAIN, Running, child_seed
from dobrushin._shared.text import counted, percent, rounded_up
from dobrushin.errors import BudgetError, CertificateError

# Size of mini-buckets in bits: for the pilot, and for an answer that needs fewer draws with larger mini-buckets.
_FEW_BITS, _MANY_BITS = 12.0, 16.0
# log(U / Z), where U is the mini-buckets' upper bound of Z, falls by about this factor from the first size to the
# second.
_GAIN = 0.82
# Number of draws of a pilot, and the largest log(U / Z) with which the method is proposed; then the same two numbers
# for a first pilot, made before the messages of mini-buckets are improved.
_PILOT, _MOST_GAP = 500, 25.0
_FIRST_PILOT, _HOPELESS = 50, 60.0
_PILOT_SEED = np.random.SeedSequence(0, spawn_key=(2015, 12))
_OWN = (2015,)
# Planned draws: `_TRIES` log(2 / error) (1 / (aim E W) + 1 / (aim^2 ESS)), with the effective sample size ESS of a
# draw; a run makes at most `_MORE` times as many.
_TRIES, _MORE = 0.6, 8.0
# Numbers of draws after which intervals are computed, as multiples of the planned number; and the least such number.
_LOOKS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
_FEWEST = 64
# With a time limit there are more looks, each at this multiple of the number of draws before.
_FURTHER, _FURTHER_LOOKS = 1.15, 40
# Seconds per draw for the interval of one row (benchmarks/rates.py), and the largest product of draws and rows in one
# block. Most answers end at the third look, so that a plan counts the intervals of as many draws as these looks have.
SECONDS_PER_PAIR, _PAIRS_AT_ONCE, _EXPECTED_LOOKS = 6e-8, 2**22, sum(_LOOKS[:3])
# Share of the error probability that is kept for the rounding of uniform random numbers to 53 bits.
_PRECISION = 0.01
# Seconds that an answer may be expected to take where the call has no time limit.
_PATIENCE = 60.0
# Largest number of variables of a model for which mini-buckets are planned; seconds per variable to plan them.
_MOST_VARIABLES, _LAYOUT_SECONDS = 2**14, 2e-4
# Expected number of rounds that improve the messages.
_PASSES = 8.0
# Name of the other proposal in plans.
_ENVELOPE = "Gaussian envelope"

# The model keeps its envelope, and its mini-buckets and their layouts, by the size in bits.
_ENVELOPES: Slot[Envelope] = Slot("Gaussian envelope")
_BUCKETS: Slot[MiniBuckets] = Slot("mini-buckets", 2, 2**29, lambda made: int(2 * made.layout.bytes))
_LAYOUTS: Slot[Layout] = Slot("layouts of mini-buckets", 4, 2**24, lambda layout: 500 * len(layout.scopes))


class Pilot(NamedTuple):
    """The mean and the mean square of the weights in a pilot, and predictions from them."""

    mean: float
    square: float

    @property
    def gap(self) -> float:
        """Return an estimate of log(U / Z): how far the upper bound U is above the partition function Z."""
        return -math.log(self.mean) if self.mean > 0 else math.inf

    @property
    def share(self) -> float:
        """Return the effective sample size per weighted draw."""
        return self.mean * self.mean / self.square if self.square > 0 else 0.0

    def tries(self, aim: float, error: float) -> float:
        """Return about how many weighted draws give the half-width `aim` for the mean of values in [0, 1]."""
        both = aim * self.mean, aim * aim * self.share
        if not min(both) > 0.0:
            return math.inf
        return _TRIES * math.log(2.0 / error) * (1.0 / both[0] + 1.0 / both[1])

    def threshold(self, aim: float) -> float:
        """Return a weight below which draws may be abandoned at random without many more of them being needed."""
        return min(1.0, max(0.5 * self.square / self.mean, 0.5 * aim))


class Weights(Method):
    """The method "weights": weighted draws from mini-buckets or a Gaussian envelope."""

    name: ClassVar[str] = "weights"
    outcomes: ClassVar[str] = "weighted draws"
    has_proof: ClassVar[bool] = False
    share: ClassVar[float] = 0.8

    def __init__(self, query: Query, plan: Plan, work: _Proposed) -> None:
        super().__init__(query, plan)
        self.bits, self.made, self.pilot = work.bits, work.made, work.pilot

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        best = choice.best
        if best is None or choice.by_name:
            return cls._propose(query, choice)
        if best.plan.reaches_tolerance and best.plan.seconds <= SOON_SECONDS:
            return best
        own = cls._propose(query, choice)
        return min((best, own), key=lambda method: (not method.plan.reaches_tolerance, method.plan.seconds))

    @classmethod
    def _propose(cls, query: Query, choice: Choice) -> Weights:
        n = query.model.n_variables
        if n > _MOST_VARIABLES:
            raise cls.refuse(f"mini-buckets are planned for at most {_MOST_VARIABLES} variables, not {n}.")
        work = _choose(query)
        patience = _PATIENCE if query.time_limit is None else query.time_limit
        is_enough = choice.by_name or work.seconds <= patience
        tries = work.tries if is_enough else work.tries * patience / work.seconds
        if not is_enough and choice.best is not None:
            raise cls.refuse(f"weighted draws would take about {work.seconds:.2g} s, more than {patience:.2g} s.")
        if query.budget is not None:
            allowed, tries = query.budget / work.drawn, max(tries, _FEWEST)
            if max(_LOOKS[0] * tries, _FEWEST) <= allowed:
                tries = min(tries, allowed)
            elif not choice.by_name:
                drawn = counted(work.drawn, "variable")
                raise cls.refuse(f"about {tries:.2g} weighted draws of {drawn} each would exceed the budget.")
        reason = (
            f"{work.name}; a pilot puts the bound at about e^{work.pilot.gap:.2g} times the partition function; about "
            f"{tries:.2g} draws of up to {counted(work.drawn, 'variable')} each"
        )
        plan = cls.draft(
            query, reason, 0.0, chains=_whole(tries), seconds=min(work.seconds, 1e12), reaches_tolerance=is_enough,
            other_updates=_whole(tries * work.drawn), kernel=None if work.bits else _ENVELOPE,
        )  # fmt: skip
        plan = replace(plan, interval="betting on weights, valid after any number of draws", stops_early=True)
        return cls(query, plan, work)

    def needed_updates(self) -> int:
        return self.plan.updates

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        made, pilot = self.made, self.pilot
        if self.bits > _FEW_BITS:
            try:
                made = _make(self.query, self.bits)
                pilot = run_pilot(Tries.make(made, self.query.positions, -math.inf))
            except LateError:
                made, pilot = self.made, self.pilot
        run = _WeightRun(self, made, pilot, sequence, running)
        run.draw()
        estimate = run.estimate()
        if run.trouble is None and self.misses(estimate):
            reason = (
                f"after {run.done} draws the widest interval has a half-width of {estimate.half_width.max():.3g}, "
                f"above the tolerance {self.query.tolerance:.3g}."
            )
            more = "" if self.query.budget is None else " or a larger budget"
            raise self.too_wide(estimate, reason, f"A larger tolerance{more} may help.")
        return run.close(estimate)

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        if estimate.plan.kernel == _ENVELOPE:
            how = (
                "The law of the spins was written as that of independent spins in Gaussian local fields, with a factor "
                "that is a product of hyperbolic cosines. A Gaussian law lies above it, from which fields are drawn."
            )
        else:
            how = (
                "The variables were summed out one after the other, with sums that were too large replaced by larger "
                "products of small ones. This gives an upper bound of the partition function, and a proposal from "
                "which states are drawn."
            )
        return [
            f"The answer comes from {estimate.chains:,} independent draws. {how}",
            "Each draw has a weight between 0 and 1, which corrects the proposal: weighted means of the draws tend to "
            "the model's means. No chain has to mix and no boundary effect has to decay.",
            "The intervals follow from a gambler's wealth, and hold after any number of draws: all at once with "
            f"probability {estimate.confidence_text} or more. Rounding, at most {estimate._bias_text}, is included.",
        ]


class _Proposed(NamedTuple):
    """A proposal distribution, its pilot, and the expected work of an answer: number of weighted draws and seconds."""

    made: Proposal
    pilot: Pilot
    bits: float  # of mini-buckets; 0 for an envelope
    tries: float
    seconds: float
    drawn: int  # variables of a draw

    @property
    def name(self) -> str:
        return f"mini-buckets of {self.bits:.0f} bits" if self.bits else f"a {_ENVELOPE}"


def _choose(query: Query) -> _Proposed:
    """Return the proposal with the least expected work.

    Mini-buckets are not tried if an envelope gives an answer soon.
    """
    reasons: list[str] = []
    limit: BudgetError | None = None
    found: list[_Proposed] = []
    for propose in (_use_envelope, _use_buckets):
        try:
            proposal = propose(query)
        except CertificateError as error:
            reasons.append(error.reasons[Weights.name].rstrip("."))
        except BudgetError as error:
            limit = error
        else:
            if proposal is not None:
                found.append(proposal)
            if proposal is not None and proposal.seconds <= SOON_SECONDS:
                break
    if not found:
        raise limit or Weights.refuse("; ".join(reasons) + ".")
    return min(found, key=lambda proposal: proposal.seconds)


def _use_buckets(query: Query) -> _Proposed:
    """Return the proposal made of mini-buckets: of the pilot's size, or of a larger size if that is less work.

    Larger mini-buckets are not looked at if an answer comes soon.
    """
    made = _make(query, _FEW_BITS)
    runner, pilot = _look(query, made, f"mini-buckets of {_FEW_BITS:.0f} bits")
    aim, error, seconds = _aim(query), query.error, _seconds_per_draw(query, runner)
    tries = pilot.tries(aim, error)
    few = _Proposed(made, pilot, _FEW_BITS, tries, tries * seconds, runner.drawn)
    if made.is_exact or few.seconds <= SOON_SECONDS:
        return few
    tries = Pilot(pilot.mean**_GAIN, pilot.mean ** (2.0 * _GAIN) / pilot.share).tries(aim, error)
    total = _PASSES * _layout(query, _MANY_BITS).pass_seconds + tries * seconds
    many = few._replace(bits=_MANY_BITS, tries=tries, seconds=total)
    return min(few, many, key=lambda work: work.seconds)


def _use_envelope(query: Query) -> _Proposed | None:
    """Return the proposal made of a Gaussian envelope, for dense models of spins; None for other models."""
    form = query.model._form
    if not has_envelope(form):
        return None
    name = f"a {_ENVELOPE}"

    def make() -> Envelope:
        made = Envelope(form.couplings.toarray(), form.fields)
        current_deadline().charge(10.0 * made.step_seconds, name)
        made.begin()
        gap = run_pilot(Tries.make(made, query.positions, -math.inf), _FIRST_PILOT).gap
        if not gap <= _HOPELESS:
            raise _too_loose(name, gap)
        with current_deadline().part(0.5):  # the rest is for a pilot
            made.improve()
        return made

    try:
        with np.errstate(all="ignore"):
            made = form.memory.get(_ENVELOPES, make)
            runner, pilot = _look(query, made, name)
    except np.linalg.LinAlgError:
        raise Weights.refuse(f"no {_ENVELOPE} was found: the potentials are too large.") from None
    tries = pilot.tries(_aim(query), query.error)
    return _Proposed(made, pilot, 0.0, tries, tries * _seconds_per_draw(query, runner), runner.drawn)


def _seconds_per_draw(query: Query, runner: Tries) -> float:
    """Return the expected seconds of a draw on all cores, and of its share of the intervals, which take one core."""
    return runner.try_seconds / cores() + SECONDS_PER_PAIR * _EXPECTED_LOOKS * sum(map(len, query.questions))


def _look(query: Query, made: Proposal, name: str) -> tuple[Tries, Pilot]:
    """Run a pilot of a proposal; raise `CertificateError` if its rounding or its bound is too large."""
    if not (distortion := _distortion(query, made)) < _aim(query):
        raise Weights.refuse(f"rounding of the weights reaches {rounded_up(distortion, 2)}, above the tolerance.")
    runner = Tries.make(made, query.positions, -math.inf)
    current_deadline().charge(_PILOT * runner.try_seconds / cores(), "a pilot of weights")
    pilot = run_pilot(runner)
    if not pilot.gap <= _MOST_GAP:
        raise _too_loose(name, pilot.gap)
    return runner, pilot


def _aim(query: Query) -> float:
    """Return the smallest half-width needed, when all values are scaled to [0, 1]."""
    return min(0.5, *(query.tolerance / question.span for question in query.questions))


def _distortion(query: Query, made: Proposal) -> float:
    """Bound the relative error of a weight by rounding; bounds above e^2 - 1 are cut to that number."""
    return math.expm1(min(made.distortion + query.space.rounding, 2.0))


def _whole(number: float) -> int:
    return int(min(number, 2.0**62))


def _layout(query: Query, bits: float) -> Layout:
    form = query.model._form
    current_deadline().charge(_LAYOUT_SECONDS * form.n_variables, "an order for mini-buckets")
    try:
        return form.memory.get(_LAYOUTS, lambda: lay_out(form.tables(), bits), bits)
    except TooDense as error:
        raise Weights.refuse(
            f"the model is too dense: mini-buckets would split the sum over any variable at least {error} times."
        ) from None


def _make(query: Query, bits: float) -> MiniBuckets:
    """Return the mini-buckets of a query; raise an error if they would take too much time or memory."""
    layout, form = _layout(query, bits), query.model._form
    require_memory("Mini-buckets", 4.0 * layout.bytes, "Pass another method=.")
    current_deadline().charge(2.0 * layout.pass_seconds, "the messages of mini-buckets")

    def make() -> MiniBuckets:
        made = MiniBuckets(form.tables(), layout)
        made.begin()
        gap = run_pilot(Tries.make(made, query.positions, -math.inf), _FIRST_PILOT).gap
        if not gap <= _HOPELESS:
            raise _too_loose(f"mini-buckets of {bits:.0f} bits", gap)
        with current_deadline().part(0.5):  # the rest is for a pilot
            made.improve()
        return made

    try:
        return form.memory.get(_BUCKETS, make, bits)
    except NoState:
        raise query.space.impossible() from None


def _too_loose(name: str, gap: float) -> CertificateError:
    """Return the error for an upper bound that is too far above the partition function."""
    times = f"e^{gap:.3g}" if math.isfinite(gap) else "more than e^700"
    return Weights.refuse(
        f"the bound by {name} is about {times} times the partition function, more than the e^{_MOST_GAP:.0f} up to "
        "which weighted draws are of use."
    )


def run_pilot(runner: Tries, tries: int = _PILOT) -> Pilot:
    draws = draw_weighted(runner, range(tries), _PILOT_SEED, replace(PLAIN, deadline=current_deadline()))
    if draws.trouble is not None:
        current_deadline().check("a pilot of weights")
        raise draws.trouble
    return Pilot(float(draws.weights.sum()) / draws.tries, float((draws.weights**2).sum()) / draws.tries)


class _WeightRun(Run):
    """Weighted draws for one answer, made in blocks until all intervals are narrow enough."""

    method: Weights

    def __init__(
        self, method: Weights, made: Proposal, pilot: Pilot, sequence: np.random.SeedSequence, running: Running
    ) -> None:
        query = method.query
        super().__init__(method, (1.0 - _PRECISION) * query.error, [], sequence, running)
        self.sequence = child_seed(sequence, *_OWN)
        self.made, self.pilot = made, pilot
        aim = _aim(query)
        self.threshold = 1.0 if made.is_exact else pilot.threshold(aim)
        self.runner = Tries.make(made, query.positions, math.log(self.threshold))
        most = _PRECISION * (1.0 - query.confidence) / float(self.runner.error[0])
        planned = min(pilot.tries(aim, query.error), float(max(1, method.plan.chains)) * _MORE, most)
        if most < _FEWEST:
            raise method.refuse("the confidence is too high: rounding of uniform numbers allows too few draws.")
        if query.budget is not None:
            most = min(most, query.budget / self.runner.drawn)
        looks = [look * planned for look in _LOOKS]
        if query.time_limit is not None:  # all of it is used
            looks += [looks[-1] * _FURTHER**k for k in range(1, _FURTHER_LOOKS + 1)]
        self.looks = list(dict.fromkeys(max(_FEWEST, int(min(most, look))) for look in looks))
        self.distortion = _distortion(query, made)
        self.weights: list[NDArray[np.float64]] = []
        self.states: list[NDArray[np.int16]] = []
        self.found: list[AnswerRows] | None = None

    def draw(self) -> None:
        rows = sum(map(len, self.query.questions))
        room = min(self.room, max(_FEWEST, _PAIRS_AT_ONCE // rows))
        for look in self.looks:
            while self.done < look:
                numbers = range(self.done, min(self.done + room, look))
                running = self.running_block()
                if running.deadline is not NO_DEADLINE:  # some of the time is left to the intervals
                    left = running.deadline.left
                    left = max(left / 2, left - SECONDS_PER_PAIR * rows * numbers.stop)
                    running = replace(running, deadline=Deadline(left, "The call"))
                block = draw_weighted(self.runner, numbers, self.sequence, running, self.seed)
                self.done += block.tries
                self.weights.append(block.weights)
                self.states.append(block.states)
                if block.trouble is not None:
                    self.trouble, self.found = block.trouble, None
                    return
            self.found = self._rows()
            if all(((rows.upper - rows.lower) / 2 <= self.query.tolerance).all() for rows in self.found):
                return

    def _rows(self) -> list[AnswerRows]:
        z = np.concatenate([np.empty(0), *self.weights])
        digits = np.concatenate([np.empty((0, len(self.query.labels)), dtype=np.int16), *self.states])
        states = self.as_states(digits)
        mean, square = self.pilot.mean, max(self.pilot.square, self.threshold * self.pilot.mean)
        before = PRIOR * np.array([mean, 0.5 * mean, 0.25 * square])
        rows = []
        for question, columns in zip(self.query.questions, self.query.columns, strict=True):
            aim = min(0.5, self.query.tolerance / question.span)
            ends = [
                weighted_interval(z * values, z, aim, self.error, before)
                for values in question.unit_values(states[:, columns])
            ]
            value, low, high = question.bounds[0] + question.span * np.array(ends).T
            bias = np.full(len(question), question.span * min(1.0, self.distortion))
            rows.append(AnswerRows.within(question, value, low, high, bias))
        return rows

    def estimate(self) -> Estimate:
        rows = self.found or self._rows()
        bound = "a Gaussian envelope lies above the law of local fields"
        if self.plan.kernel is None:
            bound = "mini-buckets bound the partition function from above"
        words = [
            f"{bound}, so that no weight exceeds 1",
            f"rounding changes the logarithm of a weight by at most {rounded_up(self.distortion, 2)} (included)",
            INDEPENDENT_BITS,
            "a pilot with separate random bits chose the proposal and the number of draws",
            f"all intervals hold at once with confidence {percent(self.query.confidence)}, after any number of draws",
        ]
        plan = replace(self.plan, chains=self.done, other_updates=self.done * self.runner.drawn)
        return self.conclude(rows, words, plan)
