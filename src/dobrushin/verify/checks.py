"""A proof as a whole, and the checks of answers that were drawn."""

import math
import secrets
from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import numpy as np

from dobrushin.verify.document import Array, Document, Factor, Names, Question, fields, items, require
from dobrushin.verify.draws import KERNELS, RACES, SETS, Walk
from dobrushin.verify.factors import forward, influence, read_factors

# Blocks are picked by chance where all would take longer than this, at about so many updates a second.
MOST_SECONDS, RATE, RATE_OF_RACES = 60.0, 1e7, 1e6
# In a second: steps of a scan, steps of a bound on its bias, rows of influence, and draws that need 60 digits.
STEPS, BOUNDS, ROWS, DECISIONS = 3e4, 5e5, 1e3, 1e4
AT_ONCE, MISSED = 2**22, 1e-6  # chains counted together; chance to miss a count that is off by a quarter of a width
MARGIN, FAR = 1e-9, 1e-60  # more than all roundings in a tail, and than what is 40 deviations and 100 from the mean
# Shares of the error probability: of the first and the second try of runs on sets (with so many times the runs); for
# the number that was planned, and for ending before; of means for ending when they are narrow, and for the last number.
TRIES, MORE, PLANNED, ANYTIME, SEQUENTIAL, FINAL = (0.75, 0.25), (1, 4), 0.99, 0.01, 0.75, 0.25
SOME_STATE = "the model allows some joint state, given the evidence"
GIVEN = "the matrix bounds what each variable does to each other one, its diagonal what all do"
WORDS = "the words of SplitMix64 under this seed are independent and uniform"
PLAN = {"variables": int, "fingerprint": str, "confidence": float, "states": dict}
PLAN |= dict.fromkeys(("names", "evidence", "dropped", "questions", "parts"), list)
# What checks a part, the kinds of questions that it answers, and the entries of its plan and of its outcome.
Method = tuple[Callable[["Part"], float], set[str], dict[str, Any], dict[str, Any]]


def upper_tail(k: int, n: int, p: float) -> float:
    """P(at least k of n) with chance p each, from above; 1 where k is not above the mean."""
    if p <= 0.0 or p >= 1.0 or k <= n * p:
        return float(k <= 0 or p > 0.0)
    mode, reach = int(n * p), int(40.0 * math.sqrt(n * p * (1.0 - p))) + 100
    above, below = np.arange(mode, min(n, mode + reach)), np.arange(mode, max(0, mode - reach), -1)
    with np.errstate(under="ignore"):  # terms as multiples of the largest one, by the ratios of neighbours
        rising = np.cumprod((n - above) / (above + 1.0) * (p / (1.0 - p)))  # the terms of mode + 1, ...
        falling = np.cumprod(below / (n - below + 1.0) * ((1.0 - p) / p))
    whole = 1.0 + math.fsum(rising) + math.fsum(falling)
    return min(1.0, math.fsum(rising[k - mode - 1 :]) / whole * (1.0 + MARGIN + 2e-15 * reach) + FAR)


def is_below(p: float, k: int, n: int, error: float, early: bool) -> bool:
    """Whether p is a lower limit for the chance of what was seen k times in n: wrong with probability `error`."""
    if p <= 0.0 or not early:
        return p <= 0.0 or upper_tail(k, n, p) <= PLANNED * error
    if n == 0 or k == 0 or p * n >= k:
        return False
    # Robbins' mixture: p is refuted at some time or other with this probability at most.
    mixed = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1.0) - math.log(math.pi)
    seen = k * math.log(p) + ((n - k) * math.log1p(-p) if n > k else 0.0)
    return mixed - seen >= -math.log(ANYTIME * error) + MARGIN + 1e-13 * n * math.log(n + 2.0)


def mean_limits(values: Array, error: float, aim: float, proxy: float | None) -> tuple[float, float]:
    """Limits for the mean of independent values in [0, 1]: Waudby-Smith and Ramdas' empirical Bernstein sequence."""
    n, before = len(values), np.arange(len(values))
    if not n:
        return 0.0, 1.0
    means = (0.5 + np.concatenate([[0.0], np.cumsum(values)[:-1]])) / (before + 1)
    squares = (values - means) ** 2
    variances = (0.25 + np.concatenate([[0.0], np.cumsum(squares)[:-1]])) / (before + 1)
    bets = np.minimum(0.5, aim / variances)
    total = math.fsum(bets)
    reach = (math.log(2.0 / (SEQUENTIAL * error)) + math.fsum(squares * (-np.log1p(-bets) - bets))) / total
    centre = math.fsum(bets * values) / total
    low, high = centre - reach, centre + reach
    if proxy is not None:  # as many values as was planned, all sub-Gaussian with this proxy: Hoeffding's interval
        reach, mean = math.sqrt(2.0 * proxy * math.log(2.0 / (FINAL * error)) / n), math.fsum(values) / n
        low, high = max(low, mean - reach), min(high, mean + reach)
    return max(0.0, low - 1e-12), min(1.0, high + 1e-12)


class Proof:
    """A proof file, read; what was checked so far, and what it rests on."""

    def __init__(self, document: Document, replay: int | None) -> None:
        self.document, self.replay, self.array = document, replay, document.array
        self.plan, claim = document.plan, document.claim
        fields(self.plan, "plan", **PLAN)
        fields(document.outcomes, "outcomes", seed=list, parts=list)
        fields(claim, "claim", lower=list, upper=list, words=list, assumptions=list)
        self.stated, self.states = (stated := read_factors(document)), stated.states
        self.positions = self.array("positions", "i", len(self.states))
        is_placed = np.all(np.diff(self.positions, prepend=-1, append=self.plan["variables"]) > 0)
        require(is_placed and self.states, "A variable of the proof is not one of the model.")
        self.names = Names(self.plan, self.positions, self.states)
        self.questions = [Question(about, self.states, self.names) for about in self.plan["questions"]]
        sides = (zip(claim[side], self.questions, strict=True) for side in ("lower", "upper"))
        self.lower, self.upper = ([items(row, float, asked.rows) for row, asked in side] for side in sides)
        self.evidence: dict[int, int] = dict(items(pair, int, 2) for pair in self.plan["evidence"])
        fits = all(0 <= v < len(self.states) and 0 <= d < self.states[v] for v, d in self.evidence.items())
        require(fits and len(self.evidence) == len(self.plan["evidence"]), "The evidence names no state of a variable.")
        dropped = self.free(items(self.plan["dropped"], int))
        is_free = {*self.evidence, *dropped}.isdisjoint(v for question in self.questions for v in question.variables)
        require(is_free and self.questions, "What is asked for is fixed or left out, or nothing is asked.")
        # Without what sums to a constant, probabilities may be off by this share.
        self.factors, error = self.stated.fix(self.evidence).drop(dropped)
        self.off, self.closed = math.expm1(2.0 * error), set(dropped)  # closed: all their factors must be in the file
        self.checked = [f"{len(dropped)} variables sum to a constant and are left out"] if dropped else []
        self.given = [f"given {self.names.event([v], [digit])}" for v, digit in self.evidence.items()]
        self.blocks, self.replayed, self.seconds, self.runs, self.assumptions = 0, 0, 0.0, set[int](), list[str]()
        self.own, self.is_believed = list[Factor](), False  # of a field: own terms, and whether it needs numbers

    def free(self, variables: list[int]) -> list[int]:
        """Some variables, none of which the evidence fixes."""
        fits = all(0 <= v < len(self.states) and v not in self.evidence for v in variables)
        require(fits, "Something is done with variables that are none, or that the evidence fixes.")
        return variables

    def spend(self, seconds: float) -> None:
        """Reject what would take far too long, unless the caller has said how much to replay."""
        self.seconds += seconds
        require(self.replay or self.seconds <= 20.0 * MOST_SECONDS, "The file is too large to check without --replay.")

    def check(self, methods: dict[str, Method]) -> None:
        """Check all parts, and that together they answer every question with the confidence that is claimed."""
        confidence, lost, asked = self.plan["confidence"], 0.0, []
        require(0.0 < confidence <= 1.0, "The confidence is no probability.")
        for plan, outcome in zip(self.plan["parts"], self.document.outcomes["parts"], strict=True):
            require(isinstance(plan, dict) and plan.get("method") in methods, "The checker does not know a method.")
            check, kinds, planned, drawn = methods[plan["method"]]
            fields(plan, "a part", method=str, questions=list, **planned)
            fields(outcome, "outcomes of a part", **drawn)
            asked += (own := items(plan["questions"], int))
            fits = own and all(0 <= k < len(self.questions) and self.questions[k].kind in kinds for k in own)
            require(fits, "A part answers no question, or one that it cannot.")
            lost += check(Part(self, plan, outcome))
        require(len(set(asked)) == len(asked), "Some question is answered by two parts.")
        for k in set(range(len(self.questions))) - set(asked):  # nothing is known
            for row in range(self.questions[k].rows):
                self.within(k, row, False, False)
        require(lost <= (1.0 - confidence) * (1.0 + 1e-9), "The parts err more often than the claim says.")
        document, claim = self.document, self.document.claim
        require(document.used == set(document.arrays), "The file has arrays that nothing uses.")
        require(claim["words"] == self.claim_in_words(), "The words of the claim do not say what its numbers say.")
        same = sorted(items(claim["assumptions"], str)) == sorted(set(self.assumptions))
        require(same, "The file names other assumptions than it needs.")
        if self.blocks:
            how = "all" if self.replayed == self.blocks else f"{self.replayed}, picked at random,"
            self.checked.append(f"draws and counts of {how} of {self.blocks} blocks of chains, from the seed")

    def claim_in_words(self) -> list[str]:
        titles = [title for question in self.questions for title in question.titles()]
        ends = zip(titles, chain(*self.lower), chain(*self.upper), strict=True)
        words = [f"{title}: from {low!r} to {high!r}" for title, low, high in ends]
        return [*words, *self.given, f"all at once with confidence {self.plan['confidence']!r}"]

    def seed(self) -> tuple[int, list[int]]:
        """Entropy and key of the seed: those of the file, or what follows from the plan."""
        seed = items(self.document.outcomes["seed"], int)
        require(all(0 <= k < 2**32 for k in seed[1:]) and all(0 <= k < 2**9999 for k in seed[:1]), "A strange seed.")
        what = f"the seed {', '.join(map(str, seed))} and the plan were" if seed else "the plan was"
        self.assumptions += [f"{what} not chosen by looking at what {'they give' if seed else 'it gives'}", WORDS]
        return seed[0] if seed else self.document.seed_of_plan(), seed[1:]

    def within(self, number: int, row: int, is_low: bool, is_high: bool) -> None:
        """Reject unless the claimed ends of a row are limits, or say nothing."""
        question, low, high = self.questions[number], self.lower[number][row], self.upper[number][row]
        where = f"of {question.shown!r}, row {row},"
        require(low <= high, f"The interval {where} is empty.")
        require(low <= question.least or is_low, f"The lower end {where} does not follow.")
        require(high >= question.most or is_high, f"The upper end {where} does not follow.")


class Part:
    """Some questions of a proof that are answered together."""

    def __init__(self, proof: Proof, plan: dict[str, Any], outcome: dict[str, Any]) -> None:
        self.proof, self.plan, self.outcome = proof, plan, outcome
        self.questions = {k: proof.questions[k] for k in plan["questions"]}

    def scan(self) -> list[int]:
        """The steps: a cycle that is gone through again and again."""
        cycle, steps = self.proof.free(self.proof.array(self.plan["scan"], "i", -1).tolist()), self.plan["steps"]
        require(cycle and 1 <= steps <= 10**8, "The scan has no steps, or too many.")
        self.proof.closed |= set(cycle)
        self.proof.spend(steps / BOUNDS + len(set(cycle)) / ROWS)
        return np.resize(cycle, steps).tolist()


class Counts:
    """The outcomes of a part, drawn again: all of them, or blocks that the checker picks."""

    def __init__(self, part: Part, walk: Walk, more: int = 1) -> None:  # a second try has more times as many runs
        self.part, self.walk, self.proof, plan, outcome = part, walk, part.proof, part.plan, part.outcome
        drawn, self.block, self.is_sets = outcome["drawn"], outcome["block"], walk.kernel in SETS
        trials, self.chains = plan["trials"] * more, plan["chains"] * more
        self.trials, self.early = min(trials, drawn), drawn < trials
        require(0 <= trials <= 2**40 and 1 <= self.chains <= 2**40 and plan["aim"] > 0.0, "Nothing was planned.")
        require(0.0 < plan["confidence"] < 1.0, "The confidence of a part is no probability.")
        require(0 <= drawn <= max(self.chains, trials), "More outcomes were drawn than was planned.")
        require(self.block >= 1 and self.block % walk.lanes == 0, "Blocks of chains do not hold whole streams.")
        self.row = {v: k for k, v in enumerate(walk.looked_at)}
        self.counted = {k: q for k, q in part.questions.items() if q.kind != "linear"}
        others = [k for k in part.questions if k not in self.counted]
        self.means = dict(zip(others, items(outcome["means"], int, len(others)), strict=True))
        if self.counted:
            self._replay()
        if others:
            most, room = max(self.means.values()), 2**30 // (8 + len(self.row))
            fits = min(self.means.values()) >= 0 and most <= min(drawn, room)
            require(fits, "Means are not those of what was drawn, or of too many chains for the checker.")
            self.proof.spend(self._seconds(most))
            self.final = walk.outcomes(np.arange(-(-most // walk.lanes) * walk.lanes))
            self.proof.checked.append(f"draws and means of all of {most} chains, from the seed")

    def _replay(self) -> None:
        number = -(-self.trials // self.block)
        stated = self.proof.array(self.part.outcome["counts"], "i", number, -1, drawn=True)
        require(np.all((stated >= 0) & (stated <= self.block)), "A count is not one of a block.")
        picked = self._pick(number)
        self.proof.spend(self._seconds(len(picked) * self.block))
        at_once, size = max(1, AT_ONCE // self.block), min(AT_ONCE, self.block)
        for group in np.split(picked, range(at_once, len(picked), at_once)):
            starts = range(0, self.block, size)
            found = sum(self._count(group * self.block + start, min(size, self.block - start)) for start in starts)
            require(np.array_equal(found, stated[group]), "The counts of a block are not those that its chains give.")
        self.proof.blocks, self.proof.replayed = self.proof.blocks + number, self.proof.replayed + len(picked)
        total = iter(stated.sum(axis=0).tolist())
        self.totals = {k: list(islice(total, q.cells + self.is_sets)) for k, q in self.counted.items()}

    def _count(self, firsts: Array, size: int) -> Array:
        """For so many chains from each of these on: how many are in each cell; of sets also how many are open (-1)."""
        chains, columns = (firsts[:, None] + np.arange(size)).ravel(), []
        digits = self.walk.outcomes(chains).astype(np.int64)
        for question in self.counted.values():
            own, width = digits[[self.row[v] for v in question.variables]], question.cells + self.is_sets
            cell = np.ravel_multi_index(tuple(np.maximum(own, 0)), question.sizes) + (not question.is_law)
            cell = np.where((own < 0).any(axis=0), question.cells, cell)
            kept = (chains < self.trials) & (cell < width)
            place = np.repeat(np.arange(len(firsts)), size)[kept] * width + cell[kept]
            columns.append(np.bincount(place, minlength=len(firsts) * width).reshape(len(firsts), width))
        return np.concatenate(columns, axis=1)

    def _seconds(self, chains: int) -> float:
        """About how long it takes to draw so many chains again."""
        near = max(8.0 * self.walk.factors.around(v).margin for v in set(self.walk.order))
        draw = 1.0 / (RATE_OF_RACES if self.walk.kernel in RACES else RATE) + min(1.0, near) / DECISIONS
        return len(self.walk.order) * (chains * draw + (1 + chains / 2**16) / STEPS)

    def _pick(self, number: int) -> Array:
        proof = self.proof
        if proof.replay is None and self._seconds(self.trials) <= MOST_SECONDS:
            return np.arange(number)
        widths = [high - low for k in self.counted for low, high in zip(proof.lower[k], proof.upper[k], strict=True)]
        needed = math.ceil(math.log(MISSED) / math.log1p(-min(0.5, max(1e-9, 0.25 * min(widths)))))
        return np.sort(secrets.SystemRandom().sample(range(number), min(number, proof.replay or needed)))

    def check(self, k: int, bias: float, level: float) -> None:
        """Check the rows of a question: each end may err with half of the level, and is widened by a bias."""
        proof, question = self.proof, self.part.questions[k]
        if question.kind == "linear":
            digits = self.final[[self.row[v] for v in question.variables], : self.means[k]]
            unit = np.clip((question.value(np.maximum(digits, 0)) - question.least) / question.span, 0.0, 1.0)
            proxy = 0.25 if self.means[k] == self.chains else None
            aim, known = self.part.plan["aim"] / question.span, (digits >= 0).all(axis=0)
            ends = [mean_limits(np.where(known, unit, open_), level, aim, proxy) for open_ in (0.0, 1.0)]
            low, high = question.least + question.span * ends[0][0], question.least + question.span * ends[1][1]
            wider = bias + 1e-12 * (1.0 + question.span) + 2.0**-50 * (abs(question.least) + abs(question.most))
            proof.within(k, 0, proof.lower[k][0] + wider <= low, proof.upper[k][0] - wider >= high)
            return
        wider, n, total = bias + 1e-15, self.trials, self.totals[k]
        left_open = total[-1] if self.is_sets else 0
        for row, (low, high) in enumerate(zip(proof.lower[k], proof.upper[k], strict=True)):
            is_low = is_below(low + wider, total[row], n, level / 2.0, self.early)
            is_high = is_below(1.0 - high + wider, n - total[row] - left_open, n, level / 2.0, self.early)
            proof.within(k, row, is_low, is_high)


def check_drawn(part: Part) -> float:
    """Chains whose bias Dobrushin's bound limits; or runs on sets of states that hold every trajectory."""
    proof, plan, order, questions = part.proof, part.plan, part.scan(), part.questions
    lost, attempt = 1.0 - plan["confidence"], part.outcome.get("attempt", 0)
    level = lost / sum(question.intervals for question in questions.values())
    is_bound = "joint" in {question.kind for question in questions.values()}
    if plan["method"] == "dobrushin":
        require(plan["kernel"] in KERNELS, "Chains are drawn in no known way.")
        # A uniform number has 53 bits or more; the log-density that was left may be off.
        error = {v: proof.states[v] * 2.0**-52 + proof.off for v in set(order)}
        disagreement = forward(influence(proof.factors, order), order, error, {})
        counts = Counts(part, Walk(part, order))
        biases = {k: question.bias(disagreement) for k, question in questions.items()}
        proof.checked.append(f"the bias of {len(order)} steps by Dobrushin's bound, from the factors")
    else:
        fits = plan["kernel"] in SETS and plan["start"] == "" and attempt in ((-1,) if is_bound else (0, 1))
        alone = not is_bound or len(questions) + len(proof.plan["dropped"]) == 1  # steps would see what is left out
        require(fits and alone, "These are no runs on sets.")
        mark, more = ((), 1) if is_bound else ((1996, 8, attempt), MORE[attempt])
        counts = Counts(part, Walk(part, order, mark), more)
        wrong = len(order) * (max(proof.states) ** 2 * 2.0**-46 + 2.0 * proof.off) + 1e-15
        biases = {k: question.span * wrong for k, question in questions.items()}
        level *= 0.5 * TRIES[attempt]
        proof.checked.append(f"{len(order)} steps on sets that hold every trajectory")
        proof.assumptions.append("the scan and the number of runs were chosen without the words of this seed")
    for k in questions:
        if is_bound:
            low, closed = 1.0 - proof.upper[k][0] + wrong, counts.trials - counts.totals[k][0]
            proof.within(k, 0, False, is_below(low, closed, counts.trials, lost, counts.early))
        else:
            counts.check(k, biases[k], level)
    proof.assumptions.append(SOME_STATE)
    return lost
