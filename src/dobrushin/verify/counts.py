"""Check answers from chains and from bounding sets: draw the outcomes again, and count them.

The functions before `Counts` check confidence limits of probabilities, and compute those of means.
"""

import math
import secrets
from itertools import islice
from typing import Any

import numpy as np

from dobrushin.verify.certificates import forward, influence
from dobrushin.verify.claim import ProofQuestion
from dobrushin.verify.document import Array, Budget, items, require, require_all
from dobrushin.verify.draws import KERNELS, SETS, Walk
from dobrushin.verify.proof import SOME_STATE, ProofPart

# Check random blocks only, if drawing all of them takes a larger share of the time limit.
REPLAYED_SHARE = 0.75
COUNTED_AT_ONCE = 2**23  # states of variables that are counted together
MISSED = 1e-6  # probability of missing counts that are wrong by a quarter of an interval's width
# Runs on sets: shares of the error probability of the first and the second try, and how many times
# the planned runs each has.
TRIES, MORE = (0.75, 0.25), (1, 4)
# Bounds the rounding of a tail, and its terms beyond 40 standard deviations and 100.
MARGIN, FAR = 1e-9, 1e-60
# Shares of the error probability: for runs with the planned number of chains, and ended early.
PLANNED, ANYTIME = 0.99, 0.01
# The same for means: for intervals that are narrow enough early, and for the planned number.
SEQUENTIAL, FINAL = 0.75, 0.25


def upper_tail(k: int, n: int, p: float, budget: Budget) -> float:
    """Bound the binomial probability of at least k successes in n from above.

    Each trial succeeds with probability p. The bound is 1 unless k is above the mean. Terms are
    computed relative to the largest one, by the ratios of neighbours.
    """
    if p <= 0.0 or p >= 1.0 or k <= n * p:
        return float(k <= 0 or p > 0.0)
    mode, reach = int(n * p), int(40.0 * math.sqrt(n * p * (1.0 - p))) + 100
    terms = min(n, reach)
    budget.charge("the tails of binomial laws", 2e-5 + 1e-7 * terms, briefly=100.0 * terms)
    above = np.arange(mode, min(n, mode + reach))
    below = np.arange(mode, max(0, mode - reach), -1)
    with np.errstate(under="ignore"):
        rising = np.cumprod((n - above) / (above + 1.0) * (p / (1.0 - p)))  # of mode + 1, ...
        falling = np.cumprod(below / (n - below + 1.0) * ((1.0 - p) / p))
    whole = 1.0 + math.fsum(rising) + math.fsum(falling)
    share = math.fsum(rising[k - mode - 1 :]) / whole
    return min(1.0, share * (1.0 + MARGIN + 2e-15 * reach) + FAR)


def is_below(p: float, k: int, n: int, error: float, early: bool, budget: Budget) -> bool:
    """Return whether p is a valid lower confidence limit for an event seen k times in n.

    The limit is wrong with probability `error` at most. It is Clopper and Pearson's if all planned
    chains were drawn, and Robbins' mixture if the run ended early (theory.md, Estimates).
    """
    if p <= 0.0:
        return True
    if not early:
        return upper_tail(k, n, p, budget) <= PLANNED * error
    if n == 0 or k == 0 or p * n >= k:
        return False
    mixed = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5)
    mixed -= math.lgamma(n + 1.0) + math.log(math.pi)
    seen = k * math.log(p) + ((n - k) * math.log1p(-p) if n > k else 0.0)
    slack = MARGIN + 1e-13 * n * math.log(n + 2.0)
    return mixed - seen >= -math.log(ANYTIME * error) + slack


def mean_limits(
    values: Array, error: float, aim: float, proxy: float | None
) -> tuple[float, float]:
    """Return confidence limits for the mean of independent values in [0, 1].

    Pass a variance `proxy` only if the number of values is the planned one: then Hoeffding's
    interval is valid too, and the narrower limits are returned (theory.md, The empirical Bernstein
    sequence).
    """
    n = len(values)
    if not n:
        return 0.0, 1.0
    before = np.arange(n)
    means = (0.5 + np.concatenate([[0.0], np.cumsum(values)[:-1]])) / (before + 1)
    squares = (values - means) ** 2
    variances = (0.25 + np.concatenate([[0.0], np.cumsum(squares)[:-1]])) / (before + 1)
    bets = np.minimum(0.5, aim / variances)
    total = math.fsum(bets)
    losses = math.fsum(squares * (-np.log1p(-bets) - bets))
    reach = (math.log(2.0 / (SEQUENTIAL * error)) + losses) / total
    centre = math.fsum(bets * values) / total
    low, high = centre - reach, centre + reach
    if proxy is not None:
        reach = math.sqrt(2.0 * proxy * math.log(2.0 / (FINAL * error)) / n)
        mean = math.fsum(values) / n
        low, high = max(low, mean - reach), min(high, mean + reach)
    return max(0.0, low - 1e-12), min(1.0, high + 1e-12)


class Counts:
    """Counts of the outcomes of a part of a proof, all or some blocks of which are drawn again."""

    def __init__(self, part: ProofPart, walk: Any, more: int = 1) -> None:
        """Read the planned and the drawn numbers of chains.

        Where bounding sets are tried a second time, that run has `more` times as many chains.
        """
        self.part, self.walk, self.proof, plan = part, walk, part.proof, part.plan
        drawn, self.block = part.outcome["drawn"], part.outcome["block"]
        trials, self.chains = plan["trials"] * more, plan["chains"] * more
        self.trials, self.early = min(trials, drawn), drawn < trials
        is_planned = 0 <= trials <= 2**40 and 1 <= self.chains <= 2**40 and plan["aim"] > 0.0
        self.row = {v: k for k, v in enumerate(walk.looked_at)}
        self.counted = {k: q for k, q in part.questions.items() if q.kind != "linear"}
        others = [k for k in part.questions if k not in self.counted]
        means = items(part.outcome["means"], int, len(others))
        self.means = dict(zip(others, means, strict=True))  # number of chains of each mean
        is_whole = self.block >= 1 and self.block % walk.lanes == 0
        require_all(
            {
                "The planned numbers of chains are not positive.": is_planned,
                "More outcomes were drawn than was planned.": (
                    0 <= drawn <= max(self.chains, trials)
                ),
                "Blocks of chains do not hold whole streams.": is_whole,
                "A mean is over more chains than were drawn.": all(0 <= n <= drawn for n in means),
            }
        )
        if self.counted:
            self._replay_blocks()
        if others:
            self._draw_all(max(means))

    def _draw_all(self, count: int) -> None:
        """Draw all chains again, and keep the final states, of which means are computed."""
        what, size = f"means of {count} chains", count * (8.0 * len(self.row) + 120.0)
        self._charge(what, count, size)
        lanes = self.walk.lanes
        self.final = self.walk.outcomes(np.arange(-(-count // lanes) * lanes))
        self.proof.checked.append(f"draws and means of all {count} chains, from the seed")

    def _charge(self, what: str, chains: int, size: float = 0.0) -> None:
        """Charge the budget for drawing chains, unless the user has asked for them by `replay`."""
        seconds, is_asked = self._seconds(chains), self.proof.replay is not None
        self.proof.budget.charge(what, 0.0 if is_asked else seconds, briefly=size)
        self.walk.paid = math.inf if is_asked else self.walk.work + seconds

    def _replay_blocks(self) -> None:
        """Draw blocks of chains again, and compare their counts with those in the file."""
        number, proof = -(-self.trials // self.block), self.proof
        stated = proof.array(self.part.outcome["counts"], "i", number, -1, drawn=True)
        is_count = np.all((stated >= 0) & (stated <= self.block))
        require(is_count, "A count is negative, or larger than its block.")
        picked = self._pick(number)
        what = f"{len(picked)} blocks of {self.block} chains"
        self._charge(what, len(picked) * self.block)
        chains = max(self.walk.lanes, COUNTED_AT_ONCE // len(self.row))
        at_once = max(1, chains // self.block)
        size = min(self.block, chains // self.walk.lanes * self.walk.lanes)
        for group in np.split(picked, range(at_once, len(picked), at_once)):
            found = sum(
                self._count(group * self.block + start, min(size, self.block - start))
                for start in range(0, self.block, size)
            )
            is_same = np.array_equal(found, stated[group])
            require(is_same, "The counts of a block differ from those of its chains, drawn again.")
        proof.blocks, proof.replayed = proof.blocks + number, proof.replayed + len(picked)
        total = iter(stated.sum(axis=0).tolist())
        widths = {k: self.width(question) for k, question in self.counted.items()}
        self.totals = {k: list(islice(total, width)) for k, width in widths.items()}

    def _count(self, firsts: Array, size: int) -> Array:
        """Return the counts of blocks of `size` chains, each beginning at one of `firsts`."""
        chains, columns = (firsts[:, None] + np.arange(size)).ravel(), []
        digits = self.walk.outcomes(chains).astype(np.int64)
        block = np.repeat(np.arange(len(firsts)), size)
        for question in self.counted.values():
            own = digits[[self.row[v] for v in question.variables]]
            width, cell = self.width(question), self.cells(question, own)
            kept = (chains < self.trials) & (cell < width)
            place = block[kept] * width + cell[kept]
            found = np.bincount(place, minlength=len(firsts) * width)
            columns.append(found.reshape(len(firsts), width))
        return np.concatenate(columns, axis=1)

    def width(self, question: ProofQuestion) -> int:
        """Return how many numbers are counted: one per joint state and, for sets, open runs.

        A run is open if some variable of the question has not coalesced.
        """
        return question.cells + self.walk.is_sets

    def cells(self, question: ProofQuestion, own: Array) -> Array:
        """Return the column in which each outcome is counted: its joint state, or "not coalesced".

        For a bound on a joint law only runs that did not coalesce are counted.
        """
        cell = np.full(own.shape[1], self.width(question))
        if question.is_law:
            cell = np.ravel_multi_index(tuple(np.maximum(own, 0)), question.sizes)
        return np.where((own < 0).any(axis=0), question.cells, cell)

    def _seconds(self, chains: int) -> float:
        looks = sum(len(question.variables) + 4 for question in self.part.questions.values())
        return self.walk.seconds(chains) + 3e-8 * looks * chains + 5e-5 * len(self.part.questions)

    def _pick(self, number: int) -> Array:
        """Choose the blocks to draw again: all, the number in `replay`, or enough to find wrong
        counts.
        """
        proof = self.proof
        limit = REPLAYED_SHARE * (proof.budget.seconds - proof.budget.spent)
        if proof.replay is None and self._seconds(self.trials) <= limit:
            return np.arange(number)
        ends = [(proof.lower[k], proof.upper[k]) for k in self.counted]
        widths = [high - low for rows in ends for low, high in zip(*rows, strict=True)]
        share = min(0.5, max(1e-9, 0.25 * min(widths)))
        needed = proof.replay or math.ceil(math.log(MISSED) / math.log1p(-share))
        return np.sort(secrets.SystemRandom().sample(range(number), min(number, needed)))

    def is_above(self, end: float, count: int, level: float) -> bool:
        """Return whether the counted event has probability above `end`, at error level `level`."""
        return is_below(end, count, self.trials, level, self.early, self.proof.budget)

    def check(self, k: int, bias: float, level: float) -> None:
        """Check the intervals of a question; each limit may err with probability level / 2."""
        proof, question = self.proof, self.part.questions[k]
        if question.kind == "linear":
            self._check_mean(k, bias, level)
            return
        wider, total = bias + 1e-15, self.totals[k]
        left_open = total[-1] if self.walk.is_sets else 0
        for row, (low, high) in enumerate(zip(proof.lower[k], proof.upper[k], strict=True)):
            inside, outside = total[row], self.trials - total[row] - left_open
            is_low = self.is_above(low + wider, inside, level / 2.0)
            proof.within(k, row, is_low, self.is_above(1.0 - high + wider, outside, level / 2.0))

    def _check_mean(self, k: int, bias: float, level: float) -> None:
        """Check the interval of a mean; a run without coalescence may have any value in range."""
        proof, question, count = self.proof, self.part.questions[k], self.means[k]
        digits = self.final[[self.row[v] for v in question.variables], :count]
        unit = (question.value(np.maximum(digits, 0)) - question.least) / question.span
        unit, is_known = np.clip(unit, 0.0, 1.0), (digits >= 0).all(axis=0)
        aim = self.part.plan["aim"] / question.span
        proxy = 0.25 if count == self.chains else None
        low, _ = mean_limits(np.where(is_known, unit, 0.0), level, aim, proxy)
        _, high = mean_limits(np.where(is_known, unit, 1.0), level, aim, proxy)
        rounding = 2.0**-50 * (abs(question.least) + abs(question.most))
        wider = bias + 1e-12 * (1.0 + question.span) + rounding
        is_low = proof.lower[k][0] + wider <= question.least + question.span * low
        is_high = proof.upper[k][0] - wider >= question.least + question.span * high
        proof.within(k, 0, is_low, is_high)


def check_chains(part: ProofPart) -> float:
    """Check answers counted from chains, whose bias is at most Dobrushin's bound."""
    proof, order = part.proof, part.scan()
    is_known = part.plan["kernel"] in KERNELS
    require(is_known, "The checker does not know the kernel of the chains.")
    apart = proof.close(order.cycle)
    # Errors of an update: of uniform numbers (53 bits or more), and of factors that were left out.
    error = {v: proof.states[v] * 2.0**-52 + proof.off for v in set(order.cycle)}
    disagreement = forward(influence(proof.factors, order.cycle), order, error, {})
    counts = Counts(part, Walk(part, order))
    proof.checked.append(f"the bias of {len(order)} steps by Dobrushin's bound, from the factors")
    for k, question in part.questions.items():
        counts.check(k, question.bias(disagreement) + question.span * apart, part.level)
    proof.assumptions.append(SOME_STATE)
    return part.lost


def check_sets(part: ProofPart) -> float:
    """Check answers from runs of bounding sets, which hold the states of all chains at once.

    Where a set holds a single state at the end, a chain that starts from the model is in this state
    too (theory.md, Coalescence).
    """
    proof, plan, order = part.proof, part.plan, part.scan()
    attempt = part.outcome["attempt"]
    is_bound = "joint" in {question.kind for question in part.questions.values()}
    is_try = attempt in ((-1,) if is_bound else (0, 1)) and plan["start"] == ""
    require(is_try and plan["kernel"] in SETS, "This part does not describe runs of bounding sets.")
    # A bound is on the law after the steps, which would see variables that are left out.
    is_alone = len(part.questions) + len(proof.dropped) == 1
    require(
        is_alone or not is_bound,
        "A bound on the law after a scan must be the only question, and leave out no variable.",
    )
    apart = proof.close(order.cycle)
    mark, more = ((), 1) if is_bound else ((1996, 8, attempt), MORE[attempt])
    counts = Counts(part, Walk(part, order, mark), more)
    wrong = len(order) * (max(proof.states) ** 2 * 2.0**-46 + 2.0 * proof.off) + 1e-15 + apart
    proof.checked.append(f"{len(order)} steps of bounding sets that hold every trajectory")
    for k, question in part.questions.items():
        if is_bound:  # beside a model file, its own laws of updates may differ at each step
            wrong += len(order) * max(proof.close([v]) for v in set(order.cycle))
            closed = counts.trials - counts.totals[k][0]
            is_high = counts.is_above(1.0 - proof.upper[k][0] + wrong, closed, part.lost)
            proof.within(k, 0, False, is_high)
        else:
            counts.check(k, question.span * wrong, part.level * 0.5 * TRIES[attempt])
    what = "the scan and the number of runs were chosen without knowing this seed's random words"
    proof.assumptions += [what, SOME_STATE]
    return part.lost
